"""A reward on answers that were stored in training: what a mended function makes of what the model
wrote."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from plumbline.checks.audit.scoring_runner import CaseVerdict, ScoringRunner, quote_text
from plumbline.checks.diagnosis.history import Sample
from plumbline.checks.diagnosis.readers.completions import read_completions
from plumbline.errors import DataError
from plumbline.evaluation.statistics import Interval, mean_interval
from plumbline.records import Example, group_by_key
from plumbline.tasks import Progress, silent
from plumbline.tasks.cases import Case
from plumbline.tasks.task import Task

EARNS = 1e-6
"""Over this a reward is something, and two rewards differ."""
SHOWN = 3
"""Answers that are quoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoredAnswers:
    """Stored answers with what a reward says of them now."""

    answers: Sequence[tuple[Sample, CaseVerdict]]
    """Those that could be judged; the function may have raised."""
    unknown: int
    """Answers to prompts that no row has."""
    shared: int
    """Prompts that several rows have; the first of them counts."""
    remarks: tuple[str, ...]
    """What of the file could not be read."""

    @property
    def interval(self) -> Interval:
        """Of the mean reward now, by prompts."""
        judged = [
            (verdict.reward, sample.prompt)
            for sample, verdict in self.answers
            if verdict.score is not None
        ]
        return mean_interval([reward for reward, _ in judged], [prompt for _, prompt in judged])

    @property
    def failed(self) -> Sequence[CaseVerdict]:
        """Those that got no reward."""
        return [verdict for _, verdict in self.answers if verdict.score is None]

    def spans(self) -> Iterator[tuple[str, dict[str, float | int | None]]]:
        """The figures of all answers, and of the first and the last third of the steps."""
        steps = sorted({sample.step for sample, _ in self.answers})
        third = len(steps) // 3
        parts = {"all": steps}
        if third:
            parts |= {
                f"step{'' if third == 1 else f's {some[0]} to'} {some[-1]}": some
                for some in (steps[:third], steps[-third:])
            }
        for name, some in parts.items():
            chosen = [
                (sample, verdict) for sample, verdict in self.answers if sample.step in {*some}
            ]
            yield name, _figures(chosen)

    def to_dict(self) -> dict[str, Any]:
        """All figures, for JSON."""
        return {
            "answers": len(self.answers),
            "unknown_prompts": self.unknown,
            "shared_prompts": self.shared,
            "failed": len(self.failed),
            "failure": self.failed[0].failure if self.failed else None,
            "reward": asdict(self.interval) if len(self.failed) < len(self.answers) else None,
            "spans": dict(self.spans()),
            "remarks": list(self.remarks),
        }

    def tables(self) -> RenderableType:
        """For a terminal."""
        found = f"the reward is now {self.interval:.3f} (95 %, by prompts)"
        lines = [f"{len(self.answers):,} stored answers judged; {found}"]
        if self.unknown:
            lines.append(
                f"{self.unknown:,} answers are to prompts that no row has, and were left out"
            )
        if self.shared:
            lines.append(f"{self.shared:,} prompts stand in several rows: the first of them counts")
        if self.failed:
            lines.append(
                f"{len(self.failed):,} got no reward: {self.failed[0].failure}; "
                f"{self.failed[0].fix}"
            )
        lines += self.remarks
        table = Table(box=SIMPLE_HEAD)
        table.add_column("", no_wrap=True)
        for heading in ("answers", "reward", "now", "paid", "now", "groups differ", "now"):
            table.add_column(heading, justify="right", min_width=5)
        for name, figures in self.spans():
            known = [
                f"{value:.3f}" if isinstance(value, float) else str(value or "-")
                for value in figures.values()
            ]
            table.add_row(name, *known)
        quotes = [Text(line) for line in self._quotes()]
        return Group(Text("\n".join(lines)), table, *quotes)

    def _quotes(self) -> Iterator[str]:
        """A few answers whose reward changed most; where none is known to have changed, the first
        ones."""

        def change(pair: tuple[Sample, CaseVerdict]) -> float:
            return abs(pair[1].reward - (pair[0].reward or 0.0))

        for sample, verdict in sorted(self.answers, key=change, reverse=True)[:SHOWN]:
            then = "" if sample.reward is None else f"{sample.reward:.3f} -> "
            ends = (
                sample.text
                if len(sample.text) <= 160
                else f"{sample.text[:70]} ... {sample.text[-80:]}"
            )
            yield (
                f"step {sample.step}, {verdict.case.example.id}: {then}{verdict.reward:.3f}: "
                f"{quote_text(ends, 200)}"
            )


def _figures(answers: Sequence[tuple[Sample, CaseVerdict]]) -> dict[str, float | int | None]:
    stored = [sample.reward for sample, _ in answers if sample.reward is not None]
    now = [verdict.reward for _, verdict in answers if verdict.score is not None]
    groups = group_by_key(
        ((sample.step, sample.prompt), (sample.reward, verdict.reward))
        for sample, verdict in answers
    )
    several = [group for group in groups.values() if len(group) > 1]
    known = [[reward for reward, _ in group if reward is not None] for group in several]
    return {
        "answers": len(answers),
        "stored": float(np.mean(stored)) if stored else None,
        "now": float(np.mean(now)) if now else None,
        "stored_share_paid": _share(abs(value) > EARNS for value in stored),
        "share_paid": _share(abs(value) > EARNS for value in now),
        "stored_groups_differ": _share(max(group) - min(group) > EARNS for group in known if group),
        "groups_differ": _share(
            np.ptp([reward for _, reward in group]) > EARNS for group in several
        ),
    }


def _share(which: Iterable[bool]) -> float | None:
    found = list(which)
    return float(np.mean(found)) if found else None


def score_stored(path: Path, task: Task, progress: Progress = silent) -> RescoredAnswers:
    """Judge stored answers again.

    Args:
        path: a file of completions, or a folder with such, as trainers write them; see
            `read_completions`.
        task: whose examples have the prompts.
        progress: told what is judged.

    Raises:
        DataError: there are no completions with prompts, or no prompt is one of the task's.
    """
    places = [path / "completions", path / "samples.jsonl"]  # of TRL's run, and of ours
    samples, remarks = read_completions(next((one for one in places if one.exists()), path))
    if not any(sample.prompt for sample in samples):
        cause = (
            f"{path} has no completions with their prompts"
            if samples or not remarks
            else remarks[0]
        )
        raise DataError(cause, "give a file or folder of prompts and answers that can be read")
    rows = _Rows([example for split in task.splits for example in task.examples(split)])
    runner = ScoringRunner(task.fit_ranges(), progress)
    answers: list[tuple[Sample, CaseVerdict]] = []
    unknown = 0
    for done, sample in enumerate(samples):
        progress("stored answers", done, len(samples))
        if (example := rows.find(sample.prompt)) is None:
            unknown += 1
            continue
        answers.append((sample, runner.judge_once(Case(example, "stored answer", sample.text))))
        if runner.hangs:
            break
    if not answers:
        asked = quote_text(samples[0].prompt, 120)
        what = (
            f"none of the {len(samples):,} completions in {path} is to a prompt of the rows: the "
            f"first is to {asked}"
        )
        raise DataError(
            what,
            "give the rows that were trained on, and task.options.prompt where the column is "
            "another",
        )
    return RescoredAnswers(answers=answers, unknown=unknown, shared=rows.shared, remarks=remarks)


class _Rows:
    """The examples by their prompts."""

    def __init__(self, examples: Sequence[Example]) -> None:
        """Take the examples; of several with one prompt the first counts."""
        self._known: dict[str, Example] = {}
        self.shared = 0
        self._asked: dict[str, Example | None] = {}
        for example in examples:
            question = _fold_blanks(example.messages[-1]["content"])
            self.shared += question in self._known
            for text in (
                question,
                _fold_blanks("\n".join(one["content"] for one in example.messages)),
                example.id,
            ):
                self._known.setdefault(text, example)
        self._longest = sorted(
            {_fold_blanks(one.messages[-1]["content"]) for one in examples} - {""},
            key=len,
            reverse=True,
        )

    def find(self, prompt: str) -> Example | None:
        """Whose prompt it is: letter by letter but for blanks, or the longest question within a
        rendered chat."""
        if prompt not in self._asked:
            text = _fold_blanks(prompt)
            inside = (
                next((one for one in self._longest if one in text), None)
                if text not in self._known
                else text
            )
            self._asked[prompt] = None if inside is None else self._known[inside]
        return self._asked[prompt]


def _fold_blanks(text: str) -> str:
    return " ".join(text.split())
