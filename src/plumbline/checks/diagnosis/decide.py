"""What a run's records answer to its recipe's questions, which branch of its tree they lead to, and
the next recipe.

Branches are walked in their order. The first that holds is taken, if those before it do not hold:
where one of them is not decided, nothing after it is. Where branches say how weak they are
(`weakest`), all that hold are compared.
"""

import os
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from plumbline.checks.diagnosis.conditions import (
    ConditionVerdict,
    Estimate,
    Evidence,
    RunFigures,
    VerdictFigure,
    judge_condition,
    subtract_estimates,
)
from plumbline.checks.diagnosis.routing_table import RoutingTable
from plumbline.checks.diagnosis.watch import RuleHistory
from plumbline.errors import IncomparableError, RecipeError, RunError
from plumbline.evaluation.statistics import Interval
from plumbline.recipe import Recipe, differences, load_recipe
from plumbline.recipe.decision_rules import Change, Condition, DecideSection, Question
from plumbline.runs.lineage import is_other_seed
from plumbline.runs.record import RunRecord
from plumbline.storage import dumps, file_begins_with, write_text

WIDTH = 100
"""Of text, where a terminal is no narrower."""
COMMENT_WIDTH = 110
"""Of comments in the next recipe."""
HEAD = "# Written by `plumbline decide`: "
UNSAID = frozenset({"name", "description", "decide"})
"""What every next recipe has of its own."""


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """To one question."""

    name: str
    ask: str
    answer: str
    """yes, no, not decided; or the lowest of some metrics."""
    means: str
    """What follows from it, in the words of the recipe."""
    verdict: ConditionVerdict


@dataclass(frozen=True, slots=True)
class Decision:
    """What the evidence says to do next."""

    runs: tuple[str, ...]
    previous: tuple[str, ...]
    stopped: tuple[str, ...]
    """Which watch rule stopped a run, where there is one that was."""
    answers: tuple[QuestionAnswer, ...]
    path: tuple[str, ...]
    """The branches taken, such as ("C", "insights"); empty where there is none."""
    decided: bool
    says: str
    because: tuple[str, ...]
    """The figures that it rests on."""
    needs: tuple[str, ...]
    """What would decide it."""
    noise: tuple[str, ...]
    """What in it rests on a difference inside the noise."""
    changes: Mapping[str, Change]
    """Of the next recipe, by key; empty where nothing is decided."""

    @property
    def scenario(self) -> str:
        """The path in one word."""
        return "-".join(self.path) if self.decided else "undecided"

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        values = asdict(self)
        changes = {key: one.model_dump() for key, one in self.changes.items()}
        return {
            "scenario": self.scenario,
            "questions": values.pop("answers"),
            **values,
            "changes": changes,
        }


def gather_evidence(folders: Sequence[Path]) -> Evidence:
    """The records of runs: those of the first one's recipe are its seeds, those of another one are
    the previous run's.

    Raises:
        RunError: a folder is no run, or there are runs of three recipes.
        DataError: a record cannot be read.
    """
    groups: list[list[RunFigures]] = []
    for folder in {folder.resolve(): folder for folder in folders}.values():
        run = RunRecord.read(folder)
        group = next((one for one in groups if is_other_seed(one[0].run.recipe, run.recipe)), None)
        if group is None:
            groups.append(group := [])
        group.append(RunFigures(run))
    if len(groups) > 2:
        raise RunError(
            f"these are runs of {len(groups)} recipes: "
            f"{', '.join(one[0].run.recipe.name for one in groups)}",
            "give the runs of one recipe (its seeds), and after them those of the recipe before it",
        )
    for group in groups:  # where a budget of seconds ended them, seeds made more steps or fewer
        last = min(one.last_step for one in group)
        for one in group:
            one.last_step = last
    return Evidence(tuple(groups[0]), tuple(groups[1]) if len(groups) > 1 else ())


def find_decision_tree(evidence: Evidence, tree: str | None = None) -> DecideSection:
    """The recipe's questions and branches.

    Args:
        evidence: of the runs.
        tree: a recipe, by path or name, whose section is taken; None takes the run's own.

    Raises:
        RunError: the recipe has none.
        RecipeError: there is no recipe `tree`, or it is wrong.
    """
    recipe = evidence.runs[0].run.recipe if tree is None else load_recipe(tree)
    if recipe.decide is None:
        raise RunError(
            f"the recipe {recipe.name} has no section decide, so there is no tree to walk",
            "add --tree RECIPE, a recipe that has one, or write one: docs/decide.md",
        )
    return recipe.decide


def decide(evidence: Evidence, tree: DecideSection) -> Decision:
    """Answer the questions and walk the tree.

    Raises:
        DataError: a record cannot be read.
    """
    says: list[str] = []
    path: list[str] = []
    because: list[str] = []
    noise: list[str] = []
    needs: Sequence[str] = ()
    changes: dict[str, Change | None] = {}
    below, decided = tree.branches, False
    while not decided:
        branches = {name: branch for name, branch in below.items() if branch is not None}
        verdicts = {
            name: judge_condition(branch.when, evidence, tree.conditions)
            for name, branch in branches.items()
        }
        held = [name for name, verdict in verdicts.items() if verdict.holds]
        name = held[0] if held else ""
        undecided = [other for other, verdict in verdicts.items() if verdict.holds is None]
        if not any(branch.weakest is not None for branch in branches.values()):
            before = list(branches)[: list(branches).index(name)] if held else list(branches)
            undecided = [other for other in undecided if other in before]
        elif held:
            weakest = {
                str(metric): other
                for other in held
                if (metric := branches[other].weakest) is not None
            }
            if ranked := _rank_metrics(weakest, evidence):
                lowest, *rivals = _find_lowest(ranked)
                name = weakest[lowest]
                if rivals:
                    lower = f"{lowest} is lower than {' and '.join(rivals)}"
                    noise.append(f"that {lower} is inside the noise: those branches hold, too")
            noise += [f"whether {other} holds, too, is not decided" for other in undecided]
            undecided = []
        shown = [*undecided, *filter(None, [name])] or list(branches)
        because += dict.fromkeys(line for other in shown for line in verdicts[other].reasons)
        if undecided:  # they stand before the first that holds
            needs = tuple(
                dict.fromkeys(line for other in undecided for line in verdicts[other].needs)
            )
            lean = ", ".join(
                f"{other} ({_describe_leaning(verdicts[other])})" for other in undecided
            )
            rest = f" Without them it would be {name}." if held else ""
            says.append(f"The evidence does not decide {lean}.{rest}")
            break
        if not held:
            needs = ("a branch for what was found",)
            says.append(f"None of the branches holds ({', '.join(branches)}).")
            break
        path.append(name)
        says.append(branches[name].says)
        changes |= branches[name].changes
        below = branches[name].branches
        decided = not below
    return Decision(
        runs=tuple(str(records.run.folder) for records in evidence.runs),
        previous=tuple(str(records.run.folder) for records in evidence.previous),
        stopped=tuple(
            f"{records.run.folder} was stopped at step {stop.get('step')} by the {_name_stopper(stop)}"
            for records in evidence.runs
            if (stop := records.run.read_stop()) is not None
        ),
        answers=tuple(
            QuestionAnswer(
                name, question.ask, *_answer_question(question, evidence, tree.conditions)
            )
            for name, question in tree.questions.items()
            if question is not None
        ),
        path=tuple(path),
        decided=decided,
        says=" ".join(says),
        because=tuple(because),
        needs=tuple(needs),
        noise=tuple(noise),
        changes={key: change for key, change in changes.items() if change is not None}
        if decided
        else {},
    )


def _name_stopper(stopped: Mapping[str, Any]) -> str:
    return f"check {stopped['check']}" if "check" in stopped else f"rule {stopped.get('rule')}"


def _describe_leaning(verdict: ConditionVerdict) -> str:
    if verdict.leans is None:
        return "figures are missing"
    return f"the figures lean to {'yes' if verdict.leans else 'no'}, inside the noise"


def _answer_question(
    question: Question, evidence: Evidence, named: Mapping[str, Condition]
) -> tuple[str, str, ConditionVerdict]:
    """The answer to a question, what it means, and what the records say of it."""
    if question.when is not None:
        verdict = judge_condition(question.when, evidence, named)
        words = {
            True: ("yes", question.if_yes),
            False: ("no", question.if_no),
            None: ("not decided", ""),
        }
        return (*words[verdict.holds], verdict)
    metrics = question.lowest or []
    try:
        ranked = _rank_metrics(metrics, evidence)
    except IncomparableError as error:
        return "not decided", "", ConditionVerdict(None, None, (error.cause,), (error.fix,))
    records = evidence.runs[0]
    reasons = tuple(
        f"{metric} {records.describe_step(metric, step)} is {figure}"
        for metric, (step, figure) in ranked.items()
    )
    if lacking := ", ".join(metric for metric in metrics if metric not in ranked):
        verdict = ConditionVerdict(
            None, None, (f"there is no {lacking}", *reasons), ("an evaluation of all of them",)
        )
        return "not decided", "", verdict
    figures = tuple(
        VerdictFigure.of(metric, step, figure) for metric, (step, figure) in ranked.items()
    )
    lowest = _find_lowest(ranked)
    if len(lowest) == 1:
        return lowest[0], "", ConditionVerdict(True, True, reasons, figures=figures)
    need = (
        f"more {ranked[lowest[0]][1].scatter.unit} of {', '.join(lowest)}: which is the lowest is "
        "inside the noise"
    )
    return (
        f"{' or '.join(lowest)}, not decided",
        "",
        ConditionVerdict(None, True, reasons, (need,), True, figures),
    )


def _rank_metrics(metrics: Iterable[str], evidence: Evidence) -> dict[str, tuple[int, Estimate]]:
    """Those of the metrics that the runs have, at their last steps, the lowest first.

    Raises:
        IncomparableError: the seeds were evaluated on other examples.
    """
    last = {metric: point for metric in metrics if (point := evidence.last(metric)) is not None}
    return dict(sorted(last.items(), key=lambda item: item[1][1].interval.mean))


def _find_lowest(ranked: Mapping[str, tuple[int, Estimate]]) -> list[str]:
    """The lowest, and those that it is not decidedly below."""
    (lowest, (_, least)), *others = ranked.items()
    return [
        lowest,
        *(
            metric
            for metric, (_, other) in others
            if subtract_estimates(least, other).interval.high >= 0
        ),
    ]


def write_next_recipe(decision: Decision, run: RunRecord, path: Path) -> list[tuple[str, Any, Any]]:
    """Write the recipe that a decision leads to; it extends the recipe of the run.

    Args:
        decision: with a branch taken.
        run: the first that was decided on.
        path: a new file, or one that was written by this function.

    Returns:
        What differs from the run's recipe: key, old and new value.

    Raises:
        RunError: nothing was decided, the branch changes nothing, or the file is somebody else's.
        RecipeError: with these changes it is no recipe.
        StorageError: it cannot be written.
    """
    if not decision.decided:
        raise RunError("the evidence does not decide, so there is no next recipe", decision.says)
    if not decision.changes:
        raise RunError(
            f"scenario {decision.scenario} changes no key, so there is no next recipe",
            decision.says,
        )
    if path.suffix not in {".yaml", ".yml"}:
        raise RunError(f"{path} is no name for a recipe", "end it in .yaml")
    if path.exists() and not (path.is_file() and file_begins_with(path, HEAD)):
        raise RunError(
            f"{path} is there already, and `plumbline decide` did not write it",
            "give another --out",
        )
    base = os.path.relpath((run.folder / "recipe.yaml").resolve(), path.parent.resolve())
    beside = path.with_name(f".{path.stem}.tmp.yaml")
    write_text(beside, _recipe_text(decision, run.recipe, base))
    try:
        found = [
            row
            for row in differences(run.recipe, load_recipe(beside))
            if row[0].partition(".")[0] not in UNSAID
        ]
        if not found:
            raise RunError(
                f"the recipe of {run.folder} has all of {', '.join(decision.changes)} already",
                "nothing is left to change; give the branch other changes",
            )
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return found


def _recipe_text(decision: Decision, recipe: Recipe, base: str) -> str:
    """The file's text.

    Args:
        decision: with a branch taken.
        recipe: of the run.
        base: the recipe that is extended, as the file says it.
    """
    lines = [f"{HEAD}scenario {decision.scenario} of {', '.join(decision.runs)}."]
    lines += _wrap_comments([decision.says, *decision.because, *decision.noise], "")
    lines += _render_entry("extends", base, 0)
    lines += _render_entry("name", f"{recipe.name}-{decision.scenario}".lower(), 0)
    lines += _render_entry(
        "description",
        f"{recipe.name}, scenario {decision.scenario}: what was decided from its run.",
        0,
    )
    lines += _render_sections(decision.changes)
    if not any(key.partition(".")[0] == "decide" for key in decision.changes):
        lines += ["# The tree that led here asks about the run before.", "decide: null"]
    return "\n".join(lines) + "\n"


def _render_sections(changes: Mapping[str, Change], depth: int = 0) -> Iterator[str]:
    """Keys under their sections, in the order in which they come first."""
    sections: dict[str, dict[str, Change]] = {}
    for key, change in changes.items():
        first, _, rest = key.partition(".")
        sections.setdefault(first, {})[rest] = change
    for first, inner in sections.items():
        if "" in inner and len(inner) > 1:
            raise RecipeError(
                f"a branch changes {first} as a whole and a key in it", "give one of the two"
            )
        if "" in inner:
            yield from _wrap_comments([inner[""].because], "  " * depth)
            yield from _render_entry(first, inner[""].to, depth)
        else:
            yield f"{'  ' * depth}{_to_flow_yaml(first)}:"
            yield from _render_sections(inner, depth + 1)


def _render_entry(key: str, value: Any, depth: int) -> list[str]:
    """A key with its value, in a line."""
    return [f"{'  ' * depth}{_to_flow_yaml(key)}: {_to_flow_yaml(value)}"]


def _to_flow_yaml(value: Any) -> str:
    """A value as YAML without a line break; in a list, because alone it may end in a mark of its
    own."""
    text = yaml.safe_dump(
        [value], default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6
    )
    return text.strip()[1:-1]


def _wrap_comments(texts: list[str], indent: str) -> list[str]:
    mark = f"{indent}# "
    wrapped = [
        textwrap.wrap(text, COMMENT_WIDTH, initial_indent=mark, subsequent_indent=mark)
        for text in texts
    ]
    return [line for lines in wrapped for line in lines]


def render_decision(decision: Decision, watched: Sequence[RuleHistory]) -> str:
    """The questions with their answers and figures, the rules that fired, the scenario, and what it
    changes.

    Args:
        decision: of the runs.
        watched: the rules of the first run.
    """
    return "\n".join(_decision_lines(decision, watched)) + "\n"


def _decision_lines(decision: Decision, watched: Sequence[RuleHistory]) -> Iterator[str]:
    yield f"decided on {', '.join(decision.runs)}"
    if decision.previous:
        yield f"previous   {', '.join(decision.previous)}"
    yield from decision.stopped
    for number, one in enumerate(decision.answers, 1):
        yield ""
        yield from _wrap_text(f"{number}. {one.ask}", "", "   ")
        yield from _wrap_text(" ".join(filter(None, (f"{one.answer}.", one.means))), "   ")
        yield from _mark_lines(one.verdict.reasons, one.verdict.needs)
    fired = [each for rule in watched for each in rule.fired]
    if watched:
        yield ""
        yield (
            f"watch rules: {len(watched)}, of which {len({each.rule for each in fired})} found "
            "something"
        )
    yield from _mark_lines([f"{each.action}: {each.message}" for each in fired])
    yield ""
    yield f"scenario {decision.scenario}"
    yield from _wrap_text(decision.says, "   ")
    told = {line for one in decision.answers for line in (*one.verdict.reasons, *one.verdict.needs)}
    because, needs = (
        [line for line in lines if line not in told] for lines in (decision.because, decision.needs)
    )
    yield from _mark_lines(because, needs, decision.noise)
    if decision.changes:
        yield ""
        yield "the next recipe changes"
    for key, change in decision.changes.items():
        yield from _wrap_text(
            f"{key}: {dumps(change.to)}, because {change.because}", "   ", "     "
        )


def _mark_lines(
    reasons: Sequence[str], needs: Sequence[str] = (), noise: Sequence[str] = ()
) -> Iterator[str]:
    """Lines for a terminal, by what they are."""
    marks = {
        "   · ": reasons,
        "   ! inside the noise: ": noise,
        "   → what would decide it: ": needs,
    }
    for mark, lines in marks.items():
        for line in lines:
            yield from _wrap_text(line, mark, "     ")


def render_routes(table: RoutingTable) -> str:
    """A line for each job, and under it every model with its figures, the best first."""
    lines = []
    for job, one in table.routes.items():
        lines.append(f"{job}: {one.model}{'' if one.decided else ' (not decided)'}")
        lines += _wrap_text(one.reason, "   ")
        for each in one.candidates:
            behind = (
                f", {Interval(*each.behind, each.n):+.3f} beside the best" if each.behind else ""
            )
            lines.append(f"   · {each.model}: {each.figure:.3f}, n = {each.n:,}{behind}")
    return "\n".join(lines) + "\n"


def _wrap_text(text: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        min(WIDTH, shutil.get_terminal_size((WIDTH, 1)).columns),
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
    )
