"""Tries a verifier that is somebody's own code, before anything is trained with it.

What would make a result false is an error: it raises, gives no reward in [0, 1], says another thing
the second time, gives the gold answers nothing, or does not come back. What makes it slow, or kind
to answers that know nothing, is told.
"""

import json
import re
import signal
import sysconfig
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

from plumbline.errors import DataError, PlumblineError
from plumbline.records import Example, Score
from plumbline.storage import shorten
from plumbline.tasks.task import Task, unwrap_result

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
"""Seconds that one example's texts may take, or one verdict."""
SLOW = 600.0
"""Seconds of judging in a run from which on they are worth a word."""
ALONE = (
    "let a reward depend on the example and the answer alone: no random numbers, no clock, no "
    "other answers"
)

T = TypeVar("T")


class _NoAnswer(BaseException):
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
UNPAID = "the reward paid nothing"
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

    @property
    def cause(self) -> str:
        """The sentence for people."""
        return (
            f"the gold column looks like a label, not a completion: its texts earn {self.gold:.3f} "
            "on average, and "
            f"{self.example!r} and the like {self.earns:.3f}"
        )

    def fix(self, column: str) -> str:
        """What to do."""
        template = json.dumps(
            self.template.replace("{}", column if column.startswith("{") else f"{{{column}}}")
        )
        return f"give a template in place of the column: task.options.gold: {template}"

    @property
    def grave(self) -> bool:
        """Whether the texts of the column earn less than half of what completions earn."""
        return self.gold < self.earns / 2


def find_label(
    task: Task, examples: Sequence[Example], templates: Sequence[str] = TEMPLATES
) -> Label | None:
    """Whether gold answers earn less than all because they are labels: a completion that contains
    them earns more."""
    golden = [(one, one.gold) for one in examples if one.gold is not None][:TRIED]
    if not golden or max(len(text) for _, text in golden) > LABEL:
        return None
    began = time.perf_counter()
    texts = [text for _, text in golden]
    wrong = [
        next((other for other in texts[n:] + texts[:n] if other != text), NO_LABEL)
        for n, text in enumerate(texts)
    ]

    def earns(template: str, labels: Sequence[str]) -> float:
        pairs = zip(golden, labels, strict=True)
        cases = [Case(one, GOLD, template.format(text)) for (one, _), text in pairs]
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
            # else the form is paid, whatever is in it
            if better and mean > earns(template, wrong) + BETTER:
                found = Label(template, plain, mean, template.format(golden[0][1]))
    except DataError:
        return None  # what the verifier breaks on is said where every text is judged
    return found


def precheck(
    task: Task,
    examples: Sequence[Example],
    verdicts: int,
    column: str = "COLUMN",
    likely: Sequence[Case] = (),
    reads: Sequence[str] = (),
    unpaid: Callable[[int, Sequence[str]], str] | None = None,
) -> list[str]:
    """Try a task's verifier on gold answers, baselines and hostile texts, twice each.

    Args:
        task: what is tried.
        examples: of a split that is trained on.
        verdicts: how many a run will ask for.
        column: what the column of the gold answers is called.
        likely: texts that are tried besides, where there are no gold answers.
        reads: parts that compare an answer with what is known.
        unpaid: what is said of so many texts where these should have earned something, and none
            did.

    Returns:
        What the user should know: how long judging will take, baselines that earn what gold answers
            earn.

    Raises:
        DataError: see the module; the message names a text, what happened, and where in the
            verifier.
    """
    tried: list[tuple[Case, Score]] = []
    began = time.perf_counter()
    for cases in [*cases_of(task, examples), likely]:
        for case in cases:
            tried.append((case, judge_case(task, case)))
            if cases is likely and time.perf_counter() - began > BUDGET:
                break
        if time.perf_counter() - began > BUDGET:
            break
    each = (time.perf_counter() - began) / len(tried)
    _judge_again(task, tried)

    told = []
    seconds = each * verdicts / max(1, task.judges)
    if seconds >= SLOW:
        told.append(
            f"a verdict takes {each:.2g} s, so the {verdicts:,} verdicts of this run take "
            f"{seconds / 3600:.1f} hours. "
            "Make it faster, or, where it waits for something, let more threads judge (task jsonl: "
            "task.options.judges)"
        )
    rewards: dict[str, list[float]] = defaultdict(list)
    for case, score in tried:
        rewards[case.kind].append(score.total)
    means = {kind: sum(found) / len(found) for kind, found in rewards.items()}
    gold = means.pop(GOLD, None)
    dead = [name for name in reads if not any(score.parts.get(name, 1) for _, score in tried)]
    if gold is None:
        nothing = not any(score.total for _, score in tried)
        if unpaid is not None and (dead or nothing):
            told.append(unpaid(len(tried), [] if nothing else dead))
        return [*told, "no gold answers: no ceiling, no oracle, and nothing that SFT could show"]
    labelled = find_label(task, examples[:TRIED]) if gold < 1 - 1e-6 else None
    if labelled is not None and labelled.grave:
        raise DataError(labelled.cause, labelled.fix(column))
    if gold == 0:
        case = next(case for case, _ in tried if case.kind == GOLD)
        raise DataError(
            f"none of the {len(rewards[GOLD])} gold answers tried earns anything, for example "
            f"{case}",
            "look at what the verifier expects of an answer, and at what the gold answers are: "
            "task.options.gold is a "
            "column of whole completions, or a template with a label in it, such as '#### {answer}'",
        )
    if labelled is not None:
        told.append(f"{labelled.cause}; {labelled.fix(column)}")
    elif gold < 1 - 1e-6:
        told.append(
            f"the gold answers tried earn {gold:.3f} on average: that is the ceiling, not 1"
        )
    if dead:
        told.append(f"{UNPAID} by {', '.join(dead)} for {len(tried)} texts, gold answers included")
    for kind, mean in means.items():
        if kind.startswith("baseline ") and mean >= gold:
            told.append(
                f"the {kind} earns {mean:.3f}, and the gold answers {gold:.3f}: such answers will "
                "be learnt"
            )
    return told


def cases_of(task: Task, examples: Sequence[Example]) -> Iterator[list[Case]]:
    """The texts to try, example by example."""
    some = examples[:64]
    baselines = {f"baseline {name}": baseline(some) for name, baseline in task.baselines.items()}
    for index, example in enumerate(some[:TRIED]):
        cases = [] if example.gold is None else [Case(example, GOLD, example.gold)]
        cases += [Case(example, kind, answers[index]) for kind, answers in baselines.items()]
        yield cases + [Case(example, "hostile text", text) for text in HOSTILE if index == 0]


def judge_case(task: Task, case: Case, limit: float | None = None) -> Score:
    """The score of a text, in at most `limit` seconds (by default `LIMIT`; outside of the main
    thread without end).

    Raises:
        DataError: there is none; the cause names the text, what happened, and where in the
            verifier.
    """
    limit = LIMIT if limit is None else limit
    try:
        with _limit(limit):
            score = task.judge(case.example, case.text)[1]
            assert isinstance(score, Score), (
                f"a verdict is (Outcome, Score), not (..., {type(score).__name__})"
            )
    except _NoAnswer:
        raise DataError(
            f"the verifier has not judged {case} after {limit:g} seconds",
            "make it end for every text: a model writes anything",
        ) from None
    except PlumblineError as error:
        raise DataError(f"{case} gets no reward: {error.cause}", error.fix) from error
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
            _advice(task, case, error),
        ) from error
    return score


OUTAGE = (
    "see that what it asks is there, and let it raise: an answer that nobody judged is left out of "
    "a run, and counted. "
    "Do not catch it: an answer would be paid for the outage"
)
READ = "read the row as it comes"
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


def _advice(task: Task, case: Case, error: Exception) -> str:
    """What to do about what a verifier raised."""
    # the verifier's own limit, maybe
    slow_text = case.kind == "hostile text" and type(error) is TimeoutError
    if is_outage(error) and not slow_text:
        return OUTAGE
    view = task.seen_by_functions(case)
    if view and _fails_for_row(task, case):
        return f"{READ}: {view}. Arrays come as lists; completions are messages where prompts are"
    return "catch it there and give such a text what it is worth: a model writes anything"


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
        with _limit(BUDGET):
            task.judge(case.example, text)
    except (TypeError, AttributeError) as error:
        return "NoneType" not in str(error)  # a pattern that the text does not match
    except (Exception, _NoAnswer):  # noqa: BLE001 - the boundary to a verifier's code; it is told by the caller
        return False
    return False


def _judge_again(task: Task, tried: Sequence[tuple[Case, Score]]) -> None:
    """The second time: backwards, all texts of an example in one call, and in a thread where
    verdicts come from such.

    Raises:
        DataError: something is said that was not said the first time.
    """
    by_example: dict[str, list[tuple[Case, Score]]] = defaultdict(list)
    for case, score in reversed(tried):
        by_example[case.example.id].append((case, score))
    failed: list[BaseException] = []

    def judge() -> None:
        try:
            for cases in by_example.values():
                example, texts = cases[0][0].example, [case.text for case, _ in cases]
                verdicts = task.judge_group(example, texts)
                if verdicts is None:
                    verdicts = [task.judge(example, text) for text in texts]
                for (case, before), verdict in zip(cases, verdicts, strict=True):
                    after = unwrap_result(verdict)[1]
                    if (before.total, before.parts) != (after.total, after.parts):
                        cause = (
                            f"the verifier gave {before.total:.4f} to {case}, and "
                            f"{after.total:.4f} the second time: a "
                            "difference between two evaluations could be its own"
                        )
                        failed.append(DataError(cause, ALONE))
                        return
        except Exception as error:  # noqa: BLE001 - the boundary to a verifier's code; told to the user below
            failed.append(error)

    try:
        with _limit(LIMIT * len(by_example)):
            if task.judges:
                thread = threading.Thread(target=judge, name="precheck", daemon=True)
                thread.start()
                thread.join()
            else:
                judge()
    except _NoAnswer:
        failed.append(
            DataError("it did not come back", "make it end for every text: a model writes anything")
        )
    if failed and isinstance(failed[0], PlumblineError):
        raise failed[0]
    if failed:
        raise DataError(
            f"the verifier judged texts one by one, and then raised {type(failed[0]).__name__}: "
            f"{failed[0]}",
            "it must work for several answers of one example at once, and in threads where "
            "task.options.judges is set",
        )


def within_budget(cases: Iterable[Case], call: Callable[[Case], T]) -> Iterator[tuple[Case, T]]:
    """What a call gives for each text that it does not fail for, until the budget is spent or a
    call hangs."""
    began = time.perf_counter()
    for case in cases:
        try:
            with _limit(BUDGET):
                value = call(case)
        except _NoAnswer:
            return
        except Exception:  # noqa: BLE001, S112 - the boundary to a verifier's code; failures are said elsewhere
            continue
        yield case, value
        if time.perf_counter() - began > BUDGET:
            return


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise `_NoAnswer` inside the block after so many seconds; outside of the main thread there is
    no such alarm."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise _NoAnswer

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
