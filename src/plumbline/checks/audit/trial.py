"""Whether a reward is sound: what is tried at each depth, what came of it, and how that is shown."""

import inspect
import io
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from plumbline.checks.audit.cheats import cheapest_cheat
from plumbline.checks.audit.checks import EXACT, checks_for, count_misjudged
from plumbline.checks.audit.other_conditions import judge_elsewhere
from plumbline.checks.audit.scoring_runner import (
    ANYTHING,
    DAMAGED,
    Depth,
    Group,
    ScoringRunner,
    mean_reward,
    quote_text,
    scored_rewards,
)
from plumbline.checks.audit.texts import (
    damage_answer,
    damage_marks,
    list_examples,
    make_wrong_answers,
    rewrite_answer,
    sample_examples,
    shape_of,
    writes_commas,
)
from plumbline.checks.check import Examination, Finding, examine
from plumbline.checks.findings_output import finding_to_json, render_findings
from plumbline.config.imports import import_named, module_names
from plumbline.errors import DataError, RecipeError
from plumbline.evaluation.command import records_folder
from plumbline.evaluation.statistics import mean_interval
from plumbline.recipe import list_recipe_names, load_recipe, task_section
from plumbline.records import Example
from plumbline.storage import read_object
from plumbline.tasks import Progress, open_task, silent, task_names, variants_of
from plumbline.tasks.cases import (
    BUDGET,
    Case,
    baseline_cases,
    cases_of,
    gold_cases,
    hostile_cases,
)
from plumbline.tasks.jsonl.task import open_guessed
from plumbline.tasks.task import Task
from plumbline.tasks.task_data import Splits

EXAMPLES: dict[Depth, int | None] = {"load": 64, "run": 40, "audit": None}
"""Of each split the first so many are used, by depth; before a run `cases.TRIED` are answered."""
PROBED, STRUCK, POOL = 24, 4, 300
"""Examples whose gold answers are damaged and written otherwise; that hostile texts are answers to;
that cheats are sought among."""
NONSENSE = "}{]["
"""Tried on every row: what pays this pays anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(Examination[ScoringRunner]):
    """What a trial of a reward found."""

    counts: Mapping[str, int]
    """Examples by split."""
    seconds: float

    @property
    def refusal(self) -> Finding | None:
        """What no run should begin with, because its result would be false: verdicts that do not
        come or do not last, gold answers that earn nothing, or that are labels, and a part that
        pays where a column is of another kind."""
        seen = self.context
        unread = any(one.check == "unpaid" and one.evidence["reading"] for one in self.findings)
        if seen.is_broken() or seen.misread is not None or unread:
            return next((finding for finding in self.findings if finding.level == "fatal"), None)
        return None

    @property
    def verdicts(self) -> int:
        """How many texts were judged, those of the search and the second time included."""
        return self.context.count + self.context.repeated

    @property
    def rate(self) -> float:
        """Verdicts a second, one after the other."""
        return self.context.count / self.context.seconds if self.context.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """All figures, for JSON."""
        seen, cheat = self.context, self.context.cheat
        rewards, _ = scored_rewards(seen.golds)
        golds = {"n": len(rewards), "mean": seen.ceiling, "least": min(rewards, default=0)}
        return {
            "task": seen.task.name,
            "rubric": seen.task.rubric,
            "effective_weights": dict(seen.task.effective_weights)
            if seen.task.knows_ranges
            else None,
            "splits": dict(self.counts),
            "fatal": self.fatal,
            "findings": [finding_to_json(finding) for finding in self.findings],
            "not_run": dict(self.not_run),
            "gold": golds if seen.golds else None,
            "baselines": {
                name: {"limit": seen.limits.get(name)}
                | {split: mean_reward(found) for split, found in splits.items()}
                for name, splits in seen.baselines.items()
            },
            "parts": {
                name: {"least": min(known), "most": max(known), "texts": len(known)}
                for name, known in seen.values().items()
            },
            "writings": seen.measure_writings(),
            "misjudged": {
                what: {"count": count, "n": n} for what, (count, n) in count_misjudged(seen).items()
            },
            "cheat": cheat
            and {
                "reward": asdict(cheat.interval),
                **{key: getattr(cheat, key) for key in ("rule", "example", "text", "verdicts")},
            },
            "verdicts": self.verdicts,
            "verdicts_per_second": self.rate,
            "seconds": self.seconds,
        }


def try_reward(
    task: Task,
    depth: Depth = "audit",
    splits: Sequence[str] = (),
    *,
    limit: int | None = None,
    planned: int = 0,
    seed: int = 0,
    progress: Progress = silent,
) -> Trial:
    """Try a task's verifier, without a model.

    Args:
        task: any.
        depth: `load`, before every run, tries gold answers, baselines and hostile texts of a few
            examples of train, twice; `run`, where a run is checked, the first of each split,
            with a third of the probes of an audit and no search for cheats; `audit` all.
        splits: whose gold answers and baselines are judged; none is all of the task's.
        limit: of each split the first so many examples; None is `EXAMPLES`.
        planned: verdicts that a run will ask for.
        seed: of what is drawn: which examples are damaged, and the search for cheats.
        progress: told what is judged.

    Raises:
        DataError: there is no such split, or its records are malformed.
    """
    began = time.monotonic()
    limit = limit or EXAMPLES[depth]
    wanted = ("train",) if depth == "load" else splits or task.splits
    chosen = {split: task.examples(split)[:limit] for split in wanted}
    few = sample_examples(chosen, PROBED if depth == "audit" else PROBED // 3, seed)
    if not few:
        raise DataError(f"the task {task.name} has no examples", "give it some rows")
    # standard output is no place for what a verifier prints: the audit's figures stand there
    printed = io.StringIO()
    with redirect_stdout(printed):
        fitted = task if depth == "load" else task.fit_ranges()
        runner = ScoringRunner(fitted, progress, depth, planned, commas=writes_commas(few))
        if depth == "load":
            _judge_few(runner, chosen["train"])
        else:
            _judge_all(runner, chosen, few, seed)
            # else it is a finding; what was judged until then is looked at
            if not runner.ended:
                _try_again(runner, chosen, few, seed)
        runner.printed = printed.getvalue()
        found = examine(runner, checks_for(runner))
    return Trial(
        context=runner,
        findings=found.findings,
        clear=found.clear,
        not_run=found.not_run,
        counts={split: len(examples) for split, examples in chosen.items()},
        seconds=time.monotonic() - began,
    )


def check_reward(task: Task, planned: int = 0) -> list[Finding]:
    """Try a verifier that is somebody's own code before anything is trained with it; what the user
    should know.

    Args:
        task: any; without such code nothing is tried.
        planned: verdicts that a run will ask for.

    Raises:
        DataError: a result would be false (see `Trial.refusal`).
    """
    if (own := task.users_task) is None:
        return []
    trial = try_reward(own, "load", planned=planned)
    if (refusal := trial.refusal) is not None:
        raise DataError(refusal.what, refusal.fix)
    notes = own.describe_before_run(trial.seconds < BUDGET / 4)
    told = [one for one in trial.findings if one.check not in {"part-silent", "part-unreached"}]
    rows = (Finding("note", "rows", evidence={"cause": one}, check="rows") for one in notes)
    return [*rows, *told]


def is_audit(path: Path) -> bool:
    """Whether a file is what `plumbline audit --out` writes."""
    try:
        return "audits" in read_object(path)
    except DataError:
        return False


def _judge_few(runner: ScoringRunner, examples: Sequence[Example]) -> None:
    """Judge gold answers, baselines and hostile texts of a few examples, or what may be right where
    there are no gold answers, until one fails; and then once more, by themselves and together. Look
    for what explains it where they are broken."""
    task = runner.task
    few = [*cases_of(task, examples)]
    if not gold_cases(examples):
        few += [[case] for case in task.guess_answers(examples[:2])]
    for cases in few:
        for case in cases:
            first, _, name = case.kind.partition(" ")
            group = ("baseline", name, "train") if first == "baseline" else (first,)
            runner.judge("a few texts", {group: [case]})
        if runner.failed or runner.seconds > BUDGET:
            break
    if not runner.failed:
        judged = runner.all_verdicts
        runner.repeat(judged)
        if not runner.changed:
            judge_elsewhere(runner, judged)
        if runner.ceiling < 1 - EXACT:
            runner.label = task.find_label(examples)
    if runner.is_broken() and not runner.out_of_range:
        runner.misread = task.explain_misread(examples)


def judge_references(
    runner: ScoringRunner,
    splits: Splits,
    struck: Sequence[Example],
    texts: Sequence[str] | None = None,
) -> None:
    """Judge hostile texts, by default `HOSTILE`, as answers to examples; and gold answers and
    baselines of every example.
    """
    runner.judge("hostile texts", {("hostile",): hostile_cases(struck, texts)})
    if golds := gold_cases(list_examples(splits)):
        runner.judge("gold answers", {("gold",): golds})
    answers: dict[Group, Sequence[Case]] = {
        ("baseline", name, split): cases
        for split, examples in splits.items()
        for name, cases in baseline_cases(runner.task, examples).items()
    }
    runner.judge("baselines", answers)


def _judge_all(
    runner: ScoringRunner,
    splits: Splits,
    few: Sequence[Example],
    seed: int,
) -> None:
    """Judge hostile texts, gold answers, baselines, damaged gold answers, and gold answers written
    otherwise.
    """
    judge_references(runner, splits, few[:STRUCK])
    every = hostile_cases(list_examples(splits), [NONSENSE])
    runner.judge("one text on every row", {ANYTHING: every})
    # what fails for a row that is left out is no fault
    for case in hostile_cases(runner.task.rows_without_gold, [NONSENSE]):
        if not runner.ended and (verdict := runner.judge_once(case)).score is not None:
            runner.kept[ANYTHING].append(verdict)
    if not runner.golds:
        likely = runner.task.guess_answers(few[: len(few) // 3 + 1])
        runner.judge("likely answers", {("likely",): likely})
    golden = [one for one in few if one.gold is not None]
    worse = [
        Case(one, "damaged gold answer", text)
        for one, other in zip(golden, [*golden[1:], *golden[:1]], strict=True)
        for text in damage_answer(one, other, seed)
    ]
    runner.judge("damaged gold answers", {DAMAGED: worse})
    ways: dict[Group, list[Case]] = defaultdict(list)
    language, known = "pt" if runner.commas else "en", [one.gold or "" for one in golden]
    for place, one in enumerate(golden):
        others = known[place + 1 :] + known[:place]
        for way, text in rewrite_answer(one, language, others):
            ways["writing", way].append(Case(one, f"gold answer ({way})", text))
        own = shape_of(one.gold or "")  # rows of several tasks have answers of several kinds
        different = min(
            (each for each in others if each != one.gold),
            key=lambda e: shape_of(e) != own,
            default="",
        )
        for way, text in make_wrong_answers(one, different, language):
            ways["wrong", way].append(Case(one, way, text))
        for way, text in damage_marks(one.gold or ""):
            ways["marks", way].append(Case(one, f"gold answer with {way}", text))
    runner.judge("gold answers written otherwise", ways)


def _try_again(
    runner: ScoringRunner,
    splits: Splits,
    few: Sequence[Example],
    seed: int,
) -> None:
    """Look for what explains the rewards, search for a cheat, and judge a second time, here and
    elsewhere.
    """
    task = runner.task
    runner.misread = None if runner.out_of_range else task.explain_misread(few)
    runner.label = task.find_label(few) if runner.misread is None else None
    runner.notes = task.describe_rows([one for examples in splits.values() for one in examples])
    grave = runner.label is not None and runner.label.grave
    if runner.depth == "audit" and runner.misread is None and not grave:
        runner.cheat = cheapest_cheat(
            runner, sample_examples(splits, POOL, seed), task.baselines, seed
        )
    probed = {example.id for example in few}
    repeated = [verdict for verdict, _ in runner.scored if verdict.case.example.id in probed]
    runner.repeat(repeated)
    if not runner.changed:
        runner.progress("on another thread, in another process", 0, 1)
        judge_elsewhere(runner, repeated)


# -- for a terminal --------------------------------------------------------------------------------


def audit_tables(name: str, audit: Trial) -> Iterator[RenderableType]:
    """What was tried with its figures, and the findings below."""
    seen, cheat, parts = audit.context, audit.context.cheat, audit.context.task.effective_weights
    splits = ", ".join(f"{split} {count}" for split, count in audit.counts.items())
    title = Text(
        f"{name or seen.task.name}: {splits}; {audit.verdicts:,} verdicts, {audit.rate:,.0f} a "
        "second"
    )
    if tried := count_misjudged(seen):
        title.append(
            "\n" + "; ".join(f"{what}: {count} of {n}" for what, (count, n) in tried.items())
        )
    if len(parts) > 1 and seen.task.knows_ranges:
        title.append(
            "\neffective weights: "
            f"{', '.join(f'{part} {share:.2f}' for part, share in parts.items())}"
        )

    limited = ["at most"] if seen.limits else []
    earned = _table("who earns what", "n", "reward [95 %]", *limited)
    if seen.golds:
        scored = len(scored_rewards(seen.golds)[0])
        count = f"{scored:,}" + (f" of {len(seen.golds):,}" if scored < len(seen.golds) else "")
        earned.add_row("gold answers", count, f"{seen.ceiling:.3f}", style="bold")
    for baseline, found in seen.baselines.items():
        split, verdicts = max(found.items(), key=lambda item: mean_reward(item[1]))
        limit = seen.limits.get(baseline)
        of = mean_interval(*scored_rewards(verdicts))
        reward, most = f"{of:.3f}" if of.n else "-", "" if limit is None else f"{limit:.3f}"
        cells = [f"{of.n:,}", reward, most][: len(earned.columns) - 1]
        earned.add_row(f"baseline {baseline} ({split})", *cells)
    if cheat is not None:
        earned.add_row("cheapest cheat found", str(len(cheat.rewards)), f"{cheat.interval:.3f}")
    rule = [] if cheat is None else [Text(f"cheapest cheat: {quote_text(cheat.rule, 240)}\n")]

    values = _table("parts of the reward", "texts", "least", "most")
    for part, known in seen.values().items():
        values.add_row(part, f"{len(known):,}", f"{min(known):.3f}", f"{max(known):.3f}")

    ways = seen.measure_writings()
    readings = sorted({reading for way in ways.values() for reading in way["readings"]})
    written = _table(
        "a gold answer written otherwise", "n", "loses", *(f"{one} reading" for one in readings)
    )
    for way, figures in ways.items():
        totals = [
            f"{figures['readings'][one]:.3f}" for one in readings if one in figures["readings"]
        ]
        written.add_row(way, str(figures["n"]), f"{figures['loss']:.1%}", *totals)
    tables = [table for table in (values, written) if table.row_count]
    shown: list[RenderableType] = [title, earned, *rule, *tables]
    yield from shown
    yield from render_findings(audit.findings, audit.clear, audit.not_run, ours=True, verbose=True)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left")
    table.add_column("")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


# -- what the word after `plumbline audit` names ---------------------------------------------------


Opening = Callable[[Progress], Task]


def open_targets(
    name: str, options: Mapping[str, Any], rows: Path | None, data: Path | None
) -> dict[str, Opening]:
    """What is meant, task by task, to be opened; a single one has the name "".

    Args:
        name: a task (one with variants stands for each), a recipe (for all its tasks, or
            RECIPE:NAME for one), or, with rows, a reward function as `module:function`, or several
            with commas between.
        options: of the task, over a recipe's.
        rows: for a reward function; columns of prompts and gold answers are guessed where options
            do not name them.
        data: where the records are, else data/TASK.

    Raises:
        RecipeError: there is no such thing, or an option that it does not have.
        DataError, StorageError: records that cannot be read.
    """
    name = module_names(name)
    if rows is not None:
        scored = {"train": str(rows), "score": name.split(",") if "," in name else name}

        def opened(progress: Progress) -> Task:
            progress("looking for questions and answers in the rows", 0, 1)
            with redirect_stdout(io.StringIO()):
                return open_guessed({**scored, **options})

        return {"": opened}
    path, _, one = name.partition(":")
    if path not in task_names() and (
        Path(path).suffix in {".yaml", ".yml"} or path in list_recipe_names()
    ):
        sections = (
            {one: task_section(name, ())}
            if one and Path(path).suffix
            else load_recipe(path).each_task
        )
        if one and one not in sections:
            raise RecipeError(
                f"the recipe {path} has no task {one}",
                f"it has {', '.join(filter(None, sections))}",
            )
        wanted = {one: sections[one]} if one else sections
        return {
            label: partial(
                open_task, task.name, {**task.options, **options}, records_folder(task.name, data)
            )
            for label, task in wanted.items()
        }
    if one and path not in task_names():
        parameters: Iterable[str] = ()
        with suppress(TypeError, ValueError):  # which is said where it is opened
            parameters = inspect.signature(import_named(name, "task")).parameters
        # A scoring function opens no task, though its parameters may be as many as an opener's.
        if {"completion", "completions", "solution_str"}.intersection(parameters):
            raise RecipeError(
                f"{name} is a scoring function, and no task", "add --rows with a file of JSON lines"
            )
    folder = records_folder(name, data)
    variants = variants_of(name, options, folder)
    return {label: partial(open_task, name, one_of, folder) for label, one_of in variants.items()}
