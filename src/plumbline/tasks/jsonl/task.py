"""The task jsonl: files of prompts with what is known about their answers, and a scoring function of the user's."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from plumbline.config.imports import allowed
from plumbline.errors import DataError, RewardError
from plumbline.records import Example, Outcome, Score
from plumbline.tasks import Progress
from plumbline.tasks.controls import WITH_GOLD, WITHOUT_GOLD
from plumbline.tasks.jsonl.rows import SPLITS, JsonlOptions, Records, read_options, read_records
from plumbline.tasks.jsonl.scorer import Scoring, range_advice
from plumbline.tasks.precheck import (
    GOLD,
    LABEL,
    TEMPLATES,
    TRIED,
    Case,
    Label,
    cases_of,
    label,
    precheck,
    within_budget,
)
from plumbline.tasks.task import Control, Task


def open_jsonl(options: Mapping[str, Any], folder: Path, progress: Progress) -> "JsonlTask":  # noqa: ARG001
    """Open the task; the files are read when their examples are first asked for, and nothing is written.

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

    def __init__(self, options: JsonlOptions) -> None:
        self.options = options

    @cached_property
    def _scoring(self) -> Scoring:
        return Scoring(self.options)

    @cached_property
    def _records(self) -> Records:
        readable = all(map(allowed, self.options.functions()))  # else rows can be looked at, and not judged
        return read_records(self.options, self._scoring.needs if readable else frozenset())

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
            Exception: what the function raises, or a DataError where it says nothing: a counted failure.
        """
        return self.judge_group(example, [completion])[0]

    def judge_group(self, example: Example, completions: Sequence[str]) -> list[tuple[Outcome, Score]]:
        """See `Task.judge_group`: a function of lists takes them in one call."""
        return self.judge_rows([example] * len(completions), completions)

    def judge_rows(self, examples: Sequence[Example], completions: Sequence[str]) -> list[tuple[Outcome, Score]]:
        """Judge a completion of each example; a function of lists takes all in one call, as it does in TRL."""
        prompts, rows = [self.prompt_of(one) for one in examples], [one.reference for one in examples]
        try:
            scores = self._scoring.scores(prompts, completions, rows)
        except RewardError as error:
            if "task.options.range" not in error.fix or self._ranges is None:
                raise
            raise RewardError(error.cause, self._ranges) from error
        return [(Outcome(how="text"), score) for score in scores]

    def prompt_of(self, example: Example) -> Any:
        """The prompt as the scoring functions get it: without the gold answer."""
        prompt = example.reference[self.options.prompt]
        return prompt[:-1] if isinstance(prompt, list) and prompt[-1]["role"] == "assistant" else prompt

    @property
    def controls(self) -> Mapping[str, Control]:
        """See `Task.controls`: the general ones, those from gold answers where there are any."""
        return WITH_GOLD if self._records.has_gold else WITHOUT_GOLD

    def precheck(self, verdicts: int) -> Sequence[str]:
        """See `Task.precheck`."""
        examples, column = self.examples("train"), self.options.gold or "COLUMN"
        likely = [] if self._records.has_gold else self.likely(examples[:2])
        notes = [*self._records.notes]
        if self.sums and not self.has_gold and self.options.range is None:
            notes.append(
                f"no range is declared, and no gold answers show it: {', '.join(self.options.parts())} count from 0 to "
                "1, and the first number outside stops the run. Declare it with task.options.range"
            )
        try:
            return [*notes, *precheck(self, examples, verdicts, column, likely)]
        except DataError as error:
            if isinstance(error.__cause__, RewardError) or (misread := self.misread(examples)) is None:
                raise
            raise DataError(*misread) from error

    # -- what an audit asks besides ------------------------------------------------------------------------------------

    @property
    def sums(self) -> bool:
        """Whether parts add up, as they do in TRL."""
        return self._scoring.sums

    @property
    def has_gold(self) -> bool:
        """Whether the rows have gold answers."""
        return self._records.has_gold

    @property
    def shares(self) -> Mapping[str, float]:
        """The effective weight of each part."""
        return self._scoring.shares

    def sources(self) -> Sequence[str]:
        """The source of each scoring function alone."""
        return [scorer.own_source() for scorer in self._scoring.scorers]

    def likely(self, examples: Sequence[Example]) -> list[Case]:
        """Texts that may be right where there are no gold answers: what the functions are given of the row, and
        completions that contain it."""
        names = sorted(self._scoring.needs) or [name for name in examples[0].reference if name != self.options.prompt]
        cases = []
        for example in examples:
            known = {name: example.reference.get(name) for name in names}
            values = [str(value) for value in known.values() if isinstance(value, str | int | float)]
            texts = [template.format(value) for value in values if value for template in ("{}", *TEMPLATES)]
            cases += [Case(example, "likely answer", text) for text in texts]
        return cases

    def label(self, examples: Sequence[Example]) -> Label | None:
        """What is wrong with gold answers that are labels, where they are a column's."""
        return label(self, examples) if self.options.gold is not None and "{" not in self.options.gold else None

    def declared(self) -> str:
        """The line that declares this task's ranges."""
        return range_advice({part: self.options.range_of(part) for part in self.options.parts()})

    def misread(self, examples: Sequence[Example]) -> tuple[str, str] | None:
        """What is wrong, and what to do, where functions of TRL's signature take messages for texts or texts for
        messages: they pay little or raise, and pay in the other form."""
        cases = [Case(one, GOLD, one.gold) for one in examples[:TRIED] if one.gold] or self.likely(examples[:1])
        chat = [isinstance(one.reference[self.options.prompt], list) for one in examples[:TRIED]]
        if not self._scoring.sums or len(set(chat)) > 1:
            return None

        def other(case: Case) -> float:
            prompt, text = self.prompt_of(case.example), case.text
            turned = prompt[-1]["content"] if chat[0] else [{"role": "user", "content": prompt}]
            return self._scoring.scores([turned], [text], [case.example.reference])[0].total

        here = [score for _, score in within_budget(cases, lambda case: self.judge(case.example, case.text)[1].total)]
        there = [score for _, score in within_budget(cases, other)]
        if sum(there) <= 2 * sum(here):
            return None
        form, wanted = ("messages", "texts") if chat[0] else ("texts", "messages")
        return (
            f"completions are {form}, as prompts are, and earn {max(there):.3f} where they are {wanted}: {cases[0]}",
            'give prompts as lists of messages: [{"role": "user", "content": "..."}]'
            if wanted == "messages"
            else 'read completion[0]["content"] there, or give prompts as texts',
        )

    @cached_property
    def _ranges(self) -> str | None:
        """The line that declares the ranges of all parts, where a number lies outside of them; else None."""
        seen = self.seen_ranges()
        known = {part: self.options.range_of(part) for part in seen}
        if not any(seen[part][0] < low or seen[part][1] > high for part, (low, high) in known.items()):
            return None
        labelled = JsonlTask(self.options.model_copy(update={"range": seen})).label(self.examples("train"))
        more = "" if labelled is None else f"; and {labelled.fix(self.options.gold or '')}: {labelled.cause}"
        return range_advice(seen) + more

    def fitted(self) -> "JsonlTask | None":
        """The task with the ranges that its parts are seen to have; None where they are declared, or need not be.

        Of functions of TRL's signature alone, and where there are gold answers to see. One function that stays within
        0 to 1 is left there: it may give gold answers less than it could.
        """
        if self.options.range is not None or not self._scoring.sums or not self._records.has_gold:
            return None
        seen = self.seen_ranges()
        outside = any(low < 0 or high > 1 for low, high in seen.values())
        if set(seen.values()) == {(0.0, 1.0)} or not (outside or len(seen) > 1):
            return None
        return JsonlTask(self.options.model_copy(update={"range": seen}))

    def seen_ranges(self) -> dict[str, tuple[float, float]]:
        """What each part is seen to lie between, for a few gold answers, completions with them, controls and hostile
        texts; and what is declared, else 0, and 1 for a part that grades gold answers."""
        examples = self.examples("train")
        cases = [case for some in cases_of(self, examples) for case in some]
        labels = [case for case in cases if case.kind == GOLD and len(case.text) <= LABEL]
        cases += [Case(one.example, "", template.format(one.text)) for one in labels for template in TEMPLATES]
        cases += self.likely(examples[:2])
        numbers: dict[str, list[float]] = {part: [] for part in self.options.parts()}
        gold: dict[str, set[float]] = {part: set() for part in numbers}

        def numbers_of(case: Case) -> Mapping[str, float | None]:
            return self._scoring.numbers([self.prompt_of(case.example)], [case.text], [case.example.reference])[0]

        for case, found in within_budget(cases, numbers_of):
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
            graded = len(gold[part]) != 1 and not (least < 0 and most <= 0)
            ranges[part] = (least, max(most, 1.0) if graded or least == most else most)
        return ranges
