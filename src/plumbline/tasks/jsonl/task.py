"""The task jsonl: files of prompts with what is known about their answers, and a scoring function
of the user's."""

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from plumbline.config.imports import is_allowed
from plumbline.errors import DataError, RewardError
from plumbline.records import Example, Outcome, Score
from plumbline.storage import clear_read_errors
from plumbline.tasks import Progress
from plumbline.tasks.baselines import WITH_GOLD, WITHOUT_GOLD
from plumbline.tasks.cases import (
    BETTER,
    BUDGET,
    GOLD,
    LABEL,
    SANE,
    TEMPLATES,
    TRIED,
    Case,
    Label,
    baseline_cases,
    cases_of,
    count_turned,
    find_label,
    gold_cases,
    within_budget,
)
from plumbline.tasks.jsonl.columns import (
    NOT_ASKED,
    as_template,
    as_text,
    columns_of,
    fill_template,
    find_unasked_columns,
    gold_columns,
    gold_expressions,
    guess_prompt,
    is_given,
    value_of,
)
from plumbline.tasks.jsonl.files import read_rows
from plumbline.tasks.jsonl.reward_functions import OTHER_RANGE, Scorer, Scoring, range_advice
from plumbline.tasks.jsonl.rows import (
    SPLITS,
    JsonlOptions,
    Records,
    read_messages,
    read_options,
    read_records,
    scorer_rows,
)
from plumbline.tasks.task import Baseline, Task

LOOKED_AT = 1000
"""Rows that columns are looked for in, and that lengths are measured of."""
MARKS = (
    "####",
    "\\boxed",
    "<answer>",
    "<think>",
    "<reasoning>",
    "```",
    "**",
    "answer is",
    "Answer:",
)
"""That rewards ask for around an answer."""
PENALTY = re.compile("penal|punish|repet|overlong", re.IGNORECASE)
"""Names of parts that only take away."""
SURELY = 0.9
"""By what a text that nobody called the gold answer earns more."""
LITERALS = 24
"""Texts of a function's source that are tried."""


def open_jsonl(options: Mapping[str, Any], folder: Path, progress: Progress) -> "JsonlTask":  # noqa: ARG001
    """Open the task; the files are read when their examples are first asked for, and nothing is
    written.

    Raises:
        RecipeError: an unknown option, or a scoring function that cannot be used.
    """
    task = open_rows(options)
    _ = task.rubric  # imports the functions
    return task


def open_rows(options: Mapping[str, Any]) -> "JsonlTask":
    """The task without its scoring functions, which are imported when they are first needed.

    Raises:
        RecipeError: an unknown option.
    """
    return JsonlTask(read_options(options))


class JsonlTask(Task):
    """Prompts and what is known about their answers, judged by functions of the user's."""

    name = "jsonl"
    splits = SPLITS

    def __init__(
        self,
        options: JsonlOptions,
        limit: int | None = None,
        remarks: Sequence[str] = (),
        *,
        inferred: bool = False,
    ) -> None:
        self.options, self.limit, self.remarks = options, limit, remarks
        self.inferred = inferred
        """Whether its ranges are guessed."""

    @cached_property
    def _scoring(self) -> Scoring:
        return Scoring(self.options, inferred=self.inferred)

    @cached_property
    def _records(self) -> Records:
        return read_records(
            self.options,
            self._scoring.required_columns if self._readable else frozenset(),
            self.limit,
        )

    @property
    def _readable(self) -> bool:
        """Whether the functions may be imported; else rows can be looked at, and not judged."""
        return all(map(is_allowed, self.options.functions()))

    @property
    def rubric(self) -> str:
        """See `Task.rubric`: names, source, weights and ranges of the scoring functions."""
        return self._scoring.identity

    @property
    def judges(self) -> int:
        """See `Task.judges`."""
        return self.options.judges

    def examples(self, split: str) -> Sequence[Example]:
        """See `Task.examples`."""
        if split not in SPLITS:
            raise DataError(f"the task jsonl has no split {split!r}", f"it has {', '.join(SPLITS)}")
        return self._records.splits[split]

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Task.judge`.

        Raises:
            RewardError: the function returned what is no reward, which stops whatever asked.
            Exception: what the function raises, or a DataError where it says nothing: a counted
                failure.
        """
        return self.judge_group(example, [completion])[0]

    def judge_group(
        self, example: Example, completions: Sequence[str]
    ) -> list[tuple[Outcome, Score]]:
        """See `Task.judge_group`: a function of lists takes them in one call."""
        return self.judge_rows([example] * len(completions), completions)

    def judge_rows(
        self, examples: Sequence[Example], completions: Sequence[str]
    ) -> list[tuple[Outcome, Score]]:
        """Judge a completion of each example; a function of lists takes all in one call, as it does
        in TRL."""
        prompts, rows = (
            [self.prompt_of(one) for one in examples],
            [one.reference for one in examples],
        )
        try:
            scores = self._scoring.scores(prompts, completions, rows)
        except RewardError as error:
            if error.code != OTHER_RANGE or self._ranges is None:
                raise
            raise RewardError(error.cause, self._ranges, error.code) from error
        return [(Outcome(how="text"), score) for score in scores]

    def prompt_of(self, example: Example) -> Any:
        """The prompt as the scoring functions get it: without the gold answer."""
        try:
            prompt = value_of(example.reference, self.options.prompt)
        except KeyError:  # a template
            return example.messages[-1]["content"]
        if not isinstance(prompt, list):
            return prompt
        messages = read_messages(prompt, self.options.prompt)
        return messages[:-1] if messages[-1]["role"] == "assistant" else messages

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        """See `Task.baselines`: the general ones, those from gold answers where there are any."""
        return WITH_GOLD if self._records.has_gold else WITHOUT_GOLD

    @property
    def users_task(self) -> Task:
        """See `Task.users_task`."""
        return self

    def describe_before_run(self, quick: bool) -> Sequence[str]:
        """See `Task.describe_before_run`: ranges that nobody declared and nothing shows, and what
        may be the gold answer."""
        notes = [*self.notes]
        if self.sums and not self.has_gold and self.options.range is None:
            notes.append(
                "no range is declared, and no gold answers show it: "
                f"{', '.join(self.options.parts())} count from 0 to "
                "1, and the first number outside stops the run. Declare it with task.options.range"
            )
        guess = self.guess_gold()[0] if quick and not self.has_gold else None
        if guess is not None and guess.earns > SURELY:
            notes.append(
                f"{guess.gold!r} earns {guess.earns:.3f}: it may be the gold answer, "
                "task.options.gold"
            )
        return notes

    # -- what a trial of the reward asks -----------------------------------------------------------

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know of the rows."""
        return [*self.remarks, *self._records.notes]

    def describe_rows(self, examples: Sequence[Example]) -> Sequence[str]:
        """See `Task.describe_rows`."""
        further = [self.describe_left_out(), self.explain_unnamed_form(examples)]
        return [*self.notes, *filter(None, further)]

    def describe_left_out(self) -> str:
        """What is said of columns that are in no prompt; nothing where there are none."""
        rows = [example.reference for example in self.examples("train")[:LOOKED_AT]]
        left = find_unasked_columns(
            rows, dict(self.options), self._scoring.named_columns if self._readable else ()
        )
        return f"left out of the prompts: {', '.join(left)}" if left else ""

    @property
    def answer_columns(self) -> list[str]:
        """Columns that may hold gold answers, the likeliest first."""
        rows = [example.reference for example in self.examples("train")[:TRIED]]
        return gold_columns(rows, self._scoring.required_columns, self.options.prompt)

    @property
    def answer_parts(self) -> list[str]:
        """The parts that pay, and whose functions read a column of answers."""
        return [
            one.part
            for one in self._scoring.scorers
            if self.effective_weights.get(one.part) and self._compares(one)
        ]

    def _compares(self, scorer: Scorer) -> bool:
        some = self.examples("train")[:TRIED]
        answers = {name for name in some[0].reference if name.lower() in NOT_ASKED}
        answers -= {name for name in answers if all(is_given(one, name) for one in some)}
        words = () if scorer.takes is not None else _NAMES.findall(scorer.own_source())
        return bool(answers & {*(scorer.takes or scorer.required_columns), *words})

    @property
    def sums(self) -> bool:
        """Whether parts add up, as they do in TRL."""
        return self._scoring.sums

    @property
    def has_gold(self) -> bool:
        """Whether the rows have gold answers."""
        return self._records.has_gold

    @property
    def effective_weights(self) -> Mapping[str, float]:
        """See `Task.effective_weights`."""
        return self._scoring.shares

    @property
    def knows_ranges(self) -> bool:
        """See `Task.knows_ranges`."""
        return not self.sums or self.options.range is not None or self.has_gold

    @cached_property
    def functions(self) -> Mapping[str, str]:
        """See `Task.functions`: the source of each scoring function alone."""
        return {scorer.name: scorer.own_source() for scorer in self._scoring.scorers}

    def reopen(self) -> Mapping[str, Any]:
        """See `Task.reopen`."""
        return self.options.model_dump(mode="json")

    def guess_answers(self, examples: Sequence[Example]) -> list[Case]:
        """Texts that may be right where there are no gold answers: what the functions are given of
        the row, and completions that contain it."""
        rows = [example.reference for example in examples]
        asked = columns_of(self.options.prompt, rows[0])
        names = [*self.answer_columns, *sorted(self._scoring.required_columns)] or [
            name for name in rows[0] if name not in asked
        ]
        wholes = [
            as_template(one, rows[0])
            for name in dict.fromkeys(names)
            for one in gold_expressions(rows, name)
        ]
        cases = []
        for example in examples:
            cases += [Case(example, "likely answer", text) for text in self.source_literals]
            for whole in wholes:
                with suppress(ValueError):  # no index of a choice
                    if value := fill_template(whole, example.reference):
                        cases += [
                            Case(example, "likely answer", each.format(value))
                            for each in ("{}", *self.templates)
                        ]
        return cases

    @cached_property
    def source_literals(self) -> list[str]:
        """Short texts in the functions' source, of which some may be answers."""
        found = [
            text
            for one in self.functions.values()
            for text in re.findall(r"""["']([^"'\n\\]{1,40})["']""", one)
        ]
        return [*dict.fromkeys(found)][:LITERALS]

    @cached_property
    def templates(self) -> list[str]:
        """`TEMPLATES`, and those of the tags and the keys of JSON that the functions' source
        has."""
        tags = [tag for one in self.functions.values() for tag in re.findall(r"<(\w+)>", one)]
        keys = [text for text in self.source_literals if text.isidentifier()]
        more = [
            *(f"<{tag}>{{}}</{tag}>" for tag in tags),
            *(f'{{{{"{key}": "{{}}"}}}}' for key in keys),
        ]
        return [*dict.fromkeys([*TEMPLATES, *more])]

    def explain_unpaid(self, count: int, parts: Sequence[str] = ()) -> tuple[str, str]:
        """See `Task.explain_unpaid`: what the columns hold is included, and it is said where a
        column that is read otherwise makes the reward pay."""
        compares = any(map(self._compares, self._scoring.scorers))
        if not self.answer_columns or not compares:
            return "", ""
        name, examples = self.answer_columns[0], self.examples("train")[:2]

        def pays(rows: Sequence[Example]) -> bool:
            found = within_budget(self.guess_answers(rows) if rows else [], self._numbers_of)
            named = parts or self.options.parts()
            return any(numbers[part] for _, numbers in found for part in named)

        if self.has_gold and pays(examples):
            return "", ""
        by = f" by {', '.join(parts)}" if parts else ""
        said = (
            f"the reward paid nothing{by} for {count:,} texts, the column {name} alone and in "
            f"{len(self.templates)} templates included"
        )
        for what, other in _READINGS.items():
            turned = []
            for one in examples:
                with suppress(ValueError):
                    if (value := other(one.reference.get(name))) != one.reference.get(name):
                        turned.append(replace(one, reference={**one.reference, name: value}))
            if pays(turned):
                cause = (
                    f"{said}. It pays where {name} is {what}: read it so in the function, or write "
                    "the rows so"
                )
                return cause, what
        if self.has_gold:
            return "", ""
        return (
            f"{said}. Judge a right answer by hand; if it earns something, give its form as "
            "task.options.gold"
        ), ""

    def _numbers_of(self, case: Case) -> Mapping[str, float | None]:
        return self._scoring.numbers(
            [self.prompt_of(case.example)], [case.text], [case.example.reference]
        )[0]

    def seen_by_functions(self, case: Case) -> str:
        """How the functions get a row, in words."""
        prompt, row = self.prompt_of(case.example), case.example.reference
        batched = any(scorer.batched for scorer in self._scoring.scorers)
        text = "messages" if batched and isinstance(prompt, list) else "text"
        named = sorted(self._scoring.named_columns & row.keys()) or [*row]
        kinds = [f"{name} is {_KINDS.get(type(row[name]), 'null')}" for name in named[:6]]
        return (
            f"a completion is {text}, "
            f"{', '.join(kinds)}{', in lists of all rows' if batched else ''}"
        )

    def find_label(self, examples: Sequence[Example]) -> Label | None:
        """See `Task.find_label`: where they are a column's."""
        column = self.options.gold or ""
        bare = re.fullmatch(r"[^{}]+|\{[^{}]+\}", column)
        return find_label(self, examples, column, self.templates) if bare else None

    def explain_unnamed_form(self, examples: Sequence[Example]) -> str:
        """What is said where gold answers earn less without a mark that no prompt names; else
        nothing."""
        golden = gold_cases(examples)[:TRIED]
        asked = "\n".join(
            message["content"] for one in examples for message in one.messages
        ).lower()
        for mark in MARKS if golden else ():
            if mark.lower() in asked or not all(mark in case.text for case in golden):
                continue
            means = [
                self.mean_of(replace(case, text=case.text.replace(mark, other)) for case in golden)
                for other in (mark, "")
            ]
            if means[1] < means[0] - BETTER:
                return (
                    f"no prompt names {mark!r}, and gold answers earn {means[1]:.3f} without it, "
                    f"{means[0]:.3f} with: "
                    "ask for that form in the prompts or in task.options.system"
                )
        return ""

    def mean_of(self, cases: Iterable[Case]) -> float:
        """What texts earn on average; 0 where none is judged."""
        totals = self._totals(cases)
        return sum(totals) / max(1, len(totals))

    def _totals(self, cases: Iterable[Case]) -> list[float]:
        judged = within_budget(cases, lambda case: self.judge(case.example, case.text)[1])
        return [score.total for _, score in judged]

    def is_turned(self) -> bool:
        """Whether gold answers earn less than those of other rows."""
        examples = self.examples("train")[:TRIED]
        shuffled = baseline_cases(self, examples)["shuffled-gold"]
        return count_turned(*map(self._rewards, (gold_cases(examples), shuffled))) > 0

    def _rewards(self, cases: Iterable[Case]) -> dict[str, float]:
        return {case.example.id: self.mean_of([case]) for case in cases}

    def guess_gold(self, columns: Sequence[str] = ()) -> "tuple[GoldGuess | None, dict[str, str]]":
        """The column, or template of columns, that earns most as an answer, if it earns more than
        answers that know nothing, or the first of a usual name that earns less in its own row than
        in others; and why columns cannot hold answers. It is tried on the first rows.

        Args:
            columns: that are tried; none are `answer_columns`.
        """
        began, best, refused = time.monotonic(), None, dict[str, str]()
        rows = [example.reference for example in self.examples("train")[: 10 * TRIED]]
        for name in columns or self.answer_columns:
            for gold in [name] if columns else gold_expressions(rows, name):
                try:
                    guess = self._guess(gold)
                except DataError as error:  # a column with empty cells
                    refused[name] = f"{error.cause}. {error.fix}"
                    break
                if guess.earns > (best.earns + 1e-6 if best else 0.0 if columns else guess.least):
                    best = guess
                elif guess.turned and name.lower() in NOT_ASKED - {"rejected"}:
                    return guess, refused
                if (best and best.earns > 1 - 1e-6) or time.monotonic() - began > 3 * BUDGET:
                    return best, refused
        return best, refused

    def _guess(self, gold: str) -> "GoldGuess":
        task = JsonlTask(
            self.options.model_copy(update={"gold": gold}), LOOKED_AT
        ).with_seen_ranges()
        labelled, turned = None, task.is_turned()
        if not turned and (labelled := task.find_label(task.examples("train"))) is not None:
            gold = labelled.template.replace(
                "{}", as_template(gold, task.examples("train")[0].reference)
            )
            task = JsonlTask(
                self.options.model_copy(update={"gold": gold}), LOOKED_AT
            ).with_seen_ranges()
        examples = task.examples("train")[:TRIED]
        golds = gold_cases(examples)
        earns, least = task.mean_of(golds), 0.0
        for name, cases in baseline_cases(task, examples).items():
            several = len({case.text for case in golds}) > 1
            if name in {"blank", "echo"} or (name == "shuffled-gold" and several):
                least = max(least, task.mean_of(cases))
        # the rows say that it is the better one
        preferred = gold == "chosen" and "rejected" in examples[0].reference
        return GoldGuess(gold, earns, 0.0 if preferred else least, labelled, turned)

    def declare_ranges(self) -> tuple[str, bool]:
        """See `Task.declare_ranges`; and what lay beyond them."""
        if not self.inferred:
            return "", False
        beyond = self._scoring.beyond
        ends = {
            part: (*self.options.range_of(part), *beyond.get(part, ()))
            for part in self.options.parts()
        }
        ranges = {part: (min(numbers), max(numbers)) for part, numbers in ends.items()}
        advice = range_advice(ranges)
        counts = ", ".join(f"{part} {len(numbers)}" for part, numbers in beyond.items())
        if beyond:
            advice += f". Numbers beyond what a few texts showed count as the nearest end: {counts}"
        return advice, _reach_beyond(ranges)

    @property
    def penalties(self) -> list[str]:
        """Parts that only take away."""
        return [
            part
            for part, weight in self.effective_weights.items()
            if self._takes_away(part) and weight
        ]

    def _takes_away(self, part: str) -> bool:
        low, high = self.options.range_of(part)
        return low >= 0 if self.options.parts()[part] < 0 else high <= 0

    @property
    def rows_without_gold(self) -> Sequence[Example]:
        """Rows that are in no split, because they have no gold answer and others do."""
        return self._records.without_gold

    def explain_misread(self, examples: Sequence[Example]) -> tuple[str, str] | None:
        """See `Task.explain_misread`: functions of TRL's signature that take messages for texts or
        texts for messages pay little or raise, and pay in the other form."""
        cases = gold_cases(examples[:TRIED]) or self.guess_answers(examples[:1])
        chat = [isinstance(self.prompt_of(one), list) for one in examples[:TRIED]]
        if len(set(chat)) > 1:
            tried = {
                form: [
                    Case(one, GOLD, one.gold or SANE)
                    for one, is_chat in zip(examples, chat, strict=False)
                    if is_chat is form
                ]
                for form in (True, False)
            }
            judged = [len(self._totals(some)) == len(some) for some in tried.values()]
            if judged[0] == judged[1]:  # what fails for both is no matter of the form
                return None
            return (
                f"of {len(chat)} prompts {sum(chat)} are messages and the others are texts",
                "write all prompts in one form: functions get completions in that of their prompt",
            )
        if not self._scoring.sums:
            return None

        def other(case: Case) -> float:
            prompt, text = self.prompt_of(case.example), case.text
            turned = prompt[-1]["content"] if chat[0] else [{"role": "user", "content": prompt}]
            return self._scoring.scores([turned], [text], [case.example.reference])[0].total

        there = [score for _, score in within_budget(cases, other)]
        here = self._totals(cases)
        if sum(there) <= 2 * sum(here) and (here or not there):
            return None
        form, wanted = ("messages", "texts") if chat[0] else ("texts", "messages")
        got = "" if here else " raise, and"
        return (
            (
                f"completions are {form}, as prompts are, and{got} earn {max(there):.3f} where "
                f"they are {wanted}: {cases[0]}"
            ),
            'give prompts as lists of messages: [{"role": "user", "content": "..."}]'
            if wanted == "messages"
            else 'read completion[0]["content"] there, or give prompts as texts',
        )

    @cached_property
    def _ranges(self) -> str | None:
        """The line that declares the ranges of all parts, where a number lies outside of them; else
        None."""
        seen = self.measure_ranges()
        known = {part: self.options.range_of(part) for part in seen}
        if not any(
            seen[part][0] < low or seen[part][1] > high for part, (low, high) in known.items()
        ):
            return None
        labelled = JsonlTask(self.options.model_copy(update={"range": seen})).find_label(
            self.examples("train")
        )
        more = "" if labelled is None else f"; and {labelled.fix}: {labelled.cause}"
        return range_advice(seen) + more

    def fit_ranges(self) -> "JsonlTask":
        """The task with the ranges that its parts are seen to have, where none are declared, the
        functions have TRL's signature and gold answers, or numbers beyond 0 to 1, show them, or
        where gold answers earn less than wrong ones; else itself."""
        if self.options.range is not None:
            return self
        fitted = self.with_seen_ranges()
        shown = self.has_gold or _reach_beyond(fitted.measure_ranges())
        return fitted if shown and (self.sums or fitted.is_turned()) else self

    def with_seen_ranges(self) -> "JsonlTask":
        """The task with the ranges that its parts are seen to have, where 0 to 1 is not what they
        say.

        One function that stays within 0 to 1 is left there: it may give gold answers less than it
        could.
        """
        seen = self.measure_ranges()
        narrow = self.options.range is None and len(seen) > 1 and {*seen.values()} != {(0.0, 1.0)}
        outside = _reach_beyond(seen)
        if not outside and not (self.sums and (narrow or not self.has_gold)):
            return self
        options = self.options.model_copy(update={"range": seen})
        return JsonlTask(options, self.limit, self.remarks, inferred=True)

    def measure_ranges(self) -> dict[str, tuple[float, float]]:
        """What each part is seen to lie between, for a few gold answers, completions with them,
        baselines and hostile texts; and what is declared, else 0, and 1 for a part that grades gold
        answers. Without gold answers a part that nothing raised is left out."""
        examples = self.examples("train")
        cases = [case for some in cases_of(self, examples) for case in some]
        labels = [case for case in cases if case.kind == GOLD and len(case.text) <= LABEL]
        cases += [
            Case(one.example, "", template.format(one.text))
            for one in labels
            for template in TEMPLATES
        ]
        cases += self.guess_answers(examples[:2])
        numbers: dict[str, list[float]] = {part: [] for part in self.options.parts()}
        gold: dict[str, set[float]] = {part: set() for part in numbers}

        for case, found in within_budget(cases, self._numbers_of):
            for part, number in found.items():
                if number is not None and math.isfinite(number):
                    numbers[part].append(number)
                    gold[part] |= {number} if case.kind == GOLD else set()
        ranges = {}
        for part, values in numbers.items():
            if self.options.range is not None:
                low, high = self.options.range_of(part)
                ranges[part] = min([low, *values]), max([high, *values])
                continue
            least, most = min([0.0, *values]), max([0.0, *values])
            if least == most and not self.has_gold:
                continue  # it may be anything
            if least == most and PENALTY.search(part):
                least = -1.0
            binary = len(gold[part]) == 1 or (not self.has_gold and len({0.0, *values}) == 2)
            graded = not binary and not (least < 0 and most <= 0)
            ranges[part] = (least, max(most, 1.0) if graded or least == most else most)
        return ranges


def _reach_beyond(ranges: Mapping[str, tuple[float, float]]) -> bool:
    return any(low < 0 or high > 1 for low, high in ranges.values())


_KINDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a dict",
}


def _number(value: Any) -> int | float:
    text = as_text(value).strip()
    return int(text) if re.fullmatch("-?[0-9]{1,15}", text) else float(text)


def _after_mark(value: Any) -> str:
    if "####" not in as_text(value):
        raise ValueError("no mark")
    return as_text(value).rpartition("####")[2].strip()


_READINGS: dict[str, Callable[[Any], Any]] = {
    "a text": as_text,
    "a number": _number,
    "what follows its '####'": _after_mark,
    "the number that follows its '####'": lambda value: _number(
        _after_mark(value).replace(",", "")
    ),
}
"""Ways to read a column that a function may be written for."""


_NAMES = re.compile(r"(?<![</\w])\w+")
"""Names in a source, those of tags left out."""


@dataclass(frozen=True, slots=True)
class GoldGuess:
    """A column, or a template of columns, and what its texts earn as answers."""

    gold: str
    earns: float
    least: float
    """What an empty answer, the question written back, and texts of other rows earn at most."""
    labelled: Label | None
    """Where the column alone earns less."""
    turned: bool
    """Whether other rows' texts earn more than a row's own."""


def open_guessed(options: Mapping[str, Any]) -> JsonlTask:
    """The task of rows and functions alone, whose prompts and gold answers are guessed where they
    are not given.

    Raises:
        RecipeError, DataError: an unknown option, or rows that cannot be read.
    """
    given = read_options(options)
    Scoring(given)  # what is wrong with the functions is said first
    rows, _ = scorer_rows(
        [row for _, row in islice(read_rows(given.train), LOOKED_AT)], texts=False
    )
    with clear_read_errors(given.train):
        found = {} if "prompt" in options else guess_prompt(rows)
    found = {key: value for key, value in found.items() if key not in options}
    task = JsonlTask(given.model_copy(update=found))
    if (
        "gold" not in options
        and not task.has_gold
        and (guess := task.guess_gold()[0])
        and (guess.turned or guess.earns > SURELY)
    ):
        found["gold"] = guess.gold
    settled = given.model_copy(update=found)
    said = [f"{key} {value!r}" for key, value in found.items() if value != "prompt"]
    remarks = [f"guessed: {', '.join(said)}"] if said else []
    return JsonlTask(settled, remarks=remarks)
