"""The texts that a reward is tried on, and one verdict in bounded time; `plumbline.checks.audit`
says what follows from the verdicts."""

import json
import re
import signal
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

from plumbline.errors import DataError, PlumblineError
from plumbline.records import Example, Score
from plumbline.storage import shorten
from plumbline.tasks.task import Task

HOSTILE = (
    "",
    " \n\t",
    "\x00",
    "\ud800",
    "{" * 5000,
    '"' * 5000,
    "}{][",
    "NaN",
    "9" * 6000,
    "<script>alert(1)</script>",
    "'; DROP TABLE orders; --",
    "🦙" * 500,
    "\\u" * 500,
    "null",
    "[[[]]]",
    '{"a": 1e999999}',
    "and so we see that " * 300,
)
"""Texts that break careless verifiers."""
GOLD = "gold answer"
TRIED = 8
"""Examples whose gold answers and baselines are tried; the hostile texts are answers to the
first."""
BUDGET = 20.0
"""Seconds after which no further example is tried."""
LIMIT = 60.0
"""Seconds that a verdict may take."""

T = TypeVar("T")


class NoAnswer(BaseException):
    """The time is up; no `except Exception` of a verifier's takes it for its own."""


@dataclass(frozen=True, slots=True)
class Case:
    """A text that is tried as the answer to an example; `kind` says where it is from."""

    example: Example
    kind: str
    text: str

    def __str__(self) -> str:
        return f"the {self.kind} {shorten(self.text, 40)!r} to example {self.example.id}"


TEMPLATES = (
    "#### {}",
    "\\boxed{{{}}}",
    "<answer>{}</answer>",
    "<think>\n\n</think>\n{}",
    "<think>\n\n</think>\n<answer>\n{}\n</answer>",
    "<think>\n\n</think>\n\\boxed{{{}}}",
    "<think> </think><answer>{}</answer>",
    "<reasoning> </reasoning><answer>{}</answer>",
    "<think>\n\n</think>\n\n<answer>\n\\boxed{{{}}}\n</answer>",
    "<reasoning>\n\n</reasoning>\n<answer>\n{}\n</answer>\n",
    "The answer is {}.",
    "The final answer is: {}",
    "Answer: {}",
    "**{}**",
    "({})",
    '{{"answer": "{}"}}',
)
"""Completions as models are asked for them, with a place for what is known of the answer
(`str.format`)."""
LABEL = 80
"""Characters that a label has at most; a longer text is a completion of its own."""
NO_LABEL = "no such label"
BETTER = 0.02
"""By what a completion must earn more than the label in it."""


@dataclass(frozen=True, slots=True)
class Label:
    """A gold column that holds labels: what its texts earn, and what completions earn that contain
    them."""

    template: str
    """Of `TEMPLATES`."""
    gold: float
    earns: float
    example: str
    """A completion."""
    column: str
    """What holds the labels, as the task's options name it."""

    @property
    def cause(self) -> str:
        """The sentence for people."""
        return (
            f"the gold column looks like a label, not a completion: its texts earn {self.gold:.3f} "
            "on average, and "
            f"{self.example!r} and the like {self.earns:.3f}"
        )

    @property
    def fix(self) -> str:
        """What to do."""
        column = self.column if self.column.startswith("{") else f"{{{self.column}}}"
        template = json.dumps(self.template.replace("{}", column))
        return f"give a template in place of the column: task.options.gold: {template}"

    @property
    def grave(self) -> bool:
        """Whether the texts of the column earn less than half of what completions earn."""
        return self.gold < self.earns / 2


def find_label(
    task: Task, examples: Sequence[Example], column: str, templates: Sequence[str] = TEMPLATES
) -> Label | None:
    """Whether gold answers earn less than all because they are labels: a completion that contains
    them earns more. `column` is what holds them, as the task's options name it."""
    golden = gold_cases(examples)[:TRIED]
    texts = [case.text for case in golden]
    if not golden or max(map(len, texts)) > LABEL:
        return None
    began = time.perf_counter()
    wrong = [
        next((other for other in texts[n:] + texts[:n] if other != text), NO_LABEL)
        for n, text in enumerate(texts)
    ]

    def earns(template: str, labels: Sequence[str]) -> float:
        cases = [
            Case(case.example, GOLD, template.format(label))
            for case, label in zip(golden, labels, strict=True)
        ]
        return sum(judge_case(task, case, BUDGET).total for case in cases) / len(cases)

    found: Label | None = None
    try:
        plain = earns("{}", texts)
        for template in templates:
            if (
                time.perf_counter() - began > BUDGET
                or max(plain, found.earns if found else 0.0) > 1 - 1e-6
            ):
                break
            mean = earns(template, texts)
            better = mean > (plain + BETTER if found is None else found.earns + 1e-6)
            # else the form is paid, whatever is in it, or the length
            as_long = "." * len(template) + " {}"
            if better and mean > max(earns(template, wrong) + BETTER, earns(as_long, texts)):
                found = Label(template, plain, mean, template.format(texts[0]), column)
    except DataError:
        return None  # what the verifier breaks on is said where every text is judged
    return found


def gold_cases(examples: Sequence[Example]) -> list[Case]:
    """Gold answers, which should earn 1."""
    return [Case(one, GOLD, one.gold) for one in examples if one.gold is not None]


FEWEST, CLEAR = 4, 10
"""Gold answers that earn less than wrong ones, and times those that earn more, which are no
chance."""


def count_turned(gold: Mapping[str, float], wrong: Mapping[str, float]) -> int:
    """How many gold answers earn less than a gold answer of another row in their place; 0 unless
    many do and next to none earns more, as where a sign is wrong.

    Args:
        gold: rewards of gold answers, by example.
        wrong: the same of shuffled ones; two of one text earn the same.
    """
    pairs = [(gold[key], wrong[key]) for key in gold.keys() & wrong.keys()]
    less, more = sum(own < other for own, other in pairs), sum(own > other for own, other in pairs)
    return less if less >= max(FEWEST, len(pairs) / 4) and less > CLEAR * more else 0


def hostile_cases(examples: Sequence[Example], texts: Sequence[str] | None = None) -> list[Case]:
    """Texts that break careless verifiers, by default `HOSTILE`: none should raise or earn."""
    tried = HOSTILE if texts is None else texts
    return [Case(one, "hostile text", text) for one in examples for text in tried]


def baseline_cases(task: Task, examples: Sequence[Example]) -> dict[str, list[Case]]:
    """By name what each baseline answers: it knows nothing, and should earn little."""
    return {
        name: [
            Case(one, f"baseline {name}", text)
            for one, text in zip(examples, baseline(examples), strict=True)
        ]
        for name, baseline in task.baselines.items()
    }


def cases_of(task: Task, examples: Sequence[Example]) -> Iterator[list[Case]]:
    """The texts to try before a run, example by example."""
    some = examples[:64]
    baselines = baseline_cases(task, some).values()
    for index, example in enumerate(some[:TRIED]):
        known = [*gold_cases([example]), *(cases[index] for cases in baselines)]
        yield [*known, *hostile_cases(some[:1] if index == 0 else ())]


def judge_case(task: Task, case: Case, limit: float | None = None) -> Score:
    """The score of a text, in at most `limit` seconds (by default `LIMIT`; outside of the main
    thread without end).

    Raises:
        DataError: there is none; the cause names the text, what happened, and where in the
            verifier.
    """
    limit = LIMIT if limit is None else limit
    try:
        with limit_time(limit):
            score = task.judge(case.example, case.text)[1]
            assert isinstance(score, Score), (
                f"a verdict is (Outcome, Score), not (..., {type(score).__name__})"
            )
    except NoAnswer:
        raise DataError(
            f"the verifier has not judged {case} after {limit:g} seconds",
            "make it end for every text: a model writes anything",
        ) from None
    except PlumblineError as error:
        raise DataError(f"{case} gets no reward: {error.cause}", error.fix, error.code) from error
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        # whose own code raises for what a verifier gives it
        python = (sysconfig.get_path("stdlib"), "<frozen")
        own = [
            one
            for one in frames
            if not one.filename.startswith(python) or "site-packages" in one.filename
        ]
        last = (own or frames)[-1]
        raise DataError(
            f"judging {case} raised {type(error).__name__}: {error} ({last.filename}, line "
            f"{last.lineno})",
            *_advise(task, case, error),
        ) from error
    return score


_CLIENTS = frozenset(
    {"requests", "httpx", "httpcore", "aiohttp", "urllib", "urllib3", "http", "openai", "anthropic"}
)
_CLIENTS |= {
    "socket",
    "ssl",
    "grpc",
    "websockets",
    "websocket",
    "huggingface_hub",
    "litellm",
    "botocore",
    "redis",
}
"""Modules whose errors are of a network, or of what answers there."""
_SAYS_SO = re.compile(
    r"connection (refused|reset|error|aborted)|unreachable|HTTP\S* ?(status |error )?5\d\d", re.I
)
SANE = "The answer is 42."
"""A text that nothing is wrong with, and that is no JSON."""


def _advise(task: Task, case: Case, error: Exception) -> tuple[str, str]:
    """What to do about what a verifier raised, and the code of its cause."""
    # the verifier's own limit, maybe
    slow_text = case.kind == "hostile text" and type(error) is TimeoutError
    if is_outage(error) and not slow_text:
        return (
            "see that what it asks is there, and let it raise: an answer that nobody judged is left "
            "out of a run, and counted. Do not catch it: an answer would be paid for the outage"
        ), "outage"
    if isinstance(error, ImportError):
        return "install it where this runs, and where the run will", "package-missing"
    view = task.seen_by_functions(case)
    if view and _fails_for_row(task, case):
        return (
            f"read the row as it comes: {view}. Arrays come as lists; completions are messages "
            "where prompts are"
        ), "other-rows"
    fix = "catch it there and give such a text what it is worth: a model writes anything"
    return fix, "text-taken-for-granted"


def is_outage(error: BaseException | None) -> bool:
    """Whether an error, or what it was raised from, is of a network."""
    for _ in range(8):
        if error is None:
            return False
        modules = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
        if (
            isinstance(error, ConnectionError | TimeoutError)
            or modules & _CLIENTS
            or _SAYS_SO.search(str(error)[:500])
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def _fails_for_row(task: Task, case: Case) -> bool:
    """Whether a verifier fails for a sane text too, because of the types of what it gets."""
    text = case.example.gold or SANE
    try:
        with limit_time(BUDGET):
            task.judge(case.example, text)
    except (TypeError, AttributeError) as error:
        return "NoneType" not in str(error)  # a pattern that the text does not match
    except (Exception, NoAnswer):  # noqa: BLE001 - the boundary to a verifier's code; it is told by the caller
        return False
    return False


def within_budget(cases: Iterable[Case], call: Callable[[Case], T]) -> Iterator[tuple[Case, T]]:
    """What a call gives for each text that it does not fail for, until the budget is spent or a
    call hangs."""
    began = time.perf_counter()
    for case in cases:
        try:
            with limit_time(BUDGET):
                value = call(case)
        except NoAnswer:
            return
        except Exception:  # noqa: BLE001, S112 - the boundary to a verifier's code; failures are said elsewhere
            continue
        yield case, value
        if time.perf_counter() - began > BUDGET:
            return


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raise `NoAnswer` inside the block after so many seconds; outside of the main thread there is
    no such alarm."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise NoAnswer

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
