"""What a run's records answer to its recipe's questions, and which branch of its tree they lead to.

Branches are walked in their order. The first that holds is taken, if those before it do not hold: where one of them is
not decided, nothing after it is. Where branches say how weak they are (`weakest`), all that hold are compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from plumbline.checks.diagnosis.conditions import Figure, Verdict, judge, shown
from plumbline.checks.diagnosis.evidence import Estimate, Evidence, Records, apart
from plumbline.errors import IncomparableError, RunError
from plumbline.recipe import load
from plumbline.recipe.handoff import Branch, Change, Condition, DecideSection, Question
from plumbline.runs.lineage import same_but_seed
from plumbline.runs.run import Run


@dataclass(frozen=True, slots=True)
class Answer:
    """To one question."""

    name: str
    ask: str
    answer: str
    """yes, no, not decided; or the lowest of some metrics."""
    means: str
    """What follows from it, in the words of the recipe."""
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Decision:
    """What the evidence says to do next."""

    runs: tuple[str, ...]
    previous: tuple[str, ...]
    stopped: tuple[str, ...]
    """Which watch rule stopped a run, where there is one that was."""
    answers: tuple[Answer, ...]
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

    def plain(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "runs": list(self.runs),
            "previous": list(self.previous),
            "stopped": list(self.stopped),
            "questions": [{**asdict(one), "verdict": one.verdict.plain()} for one in self.answers],
            "decided": self.decided,
            "scenario": self.scenario,
            "path": list(self.path),
            "says": self.says,
            "because": list(self.because),
            "needs": list(self.needs),
            "noise": list(self.noise),
            "changes": {key: {"to": one.to, "because": one.because} for key, one in self.changes.items()},
        }


def gather(folders: Sequence[Path]) -> Evidence:
    """The records of runs: those of the first one's recipe are its seeds, those of another one are the previous run's.

    Raises:
        RunError: a folder is no run, or there are runs of three recipes.
        DataError: a record cannot be read.
    """
    groups: list[list[Records]] = []
    for folder in {folder.resolve(): folder for folder in folders}.values():
        if not folder.is_dir():
            raise RunError(f"{folder} is no folder", "give the folder of a run")
        run = Run.read(folder)
        group = next((one for one in groups if same_but_seed(one[0].run.recipe, run.recipe)), None)
        if group is None:
            groups.append(group := [])
        group.append(Records.of(run))
    if len(groups) > 2:
        raise RunError(
            f"these are runs of {len(groups)} recipes: {', '.join(one[0].run.recipe.name for one in groups)}",
            "give the runs of one recipe (its seeds), and after them those of the recipe before it",
        )
    return Evidence(tuple(groups[0]), tuple(groups[1]) if len(groups) > 1 else ())


def tree_of(evidence: Evidence, tree: str | None = None) -> DecideSection:
    """The recipe's questions and branches.

    Args:
        evidence: of the runs.
        tree: a recipe, by path or name, whose section is taken; None takes the run's own.

    Raises:
        RunError: the recipe has none.
        RecipeError: there is no recipe `tree`, or it is wrong.
    """
    recipe = evidence.runs[0].run.recipe if tree is None else load(tree)
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
    asked = {name: question for name, question in tree.questions.items() if question is not None}
    end = _walk(tree.branches, evidence, tree.conditions)
    changes: dict[str, Change | None] = {}
    for branch in end.taken.values():
        changes.update(branch.changes)
    return Decision(
        runs=tuple(str(one.run.folder) for one in evidence.runs),
        previous=tuple(str(one.run.folder) for one in evidence.previous),
        stopped=tuple(
            f"{one.run.folder} was stopped at step {found.get('step')} by the {_what(found)}"
            for one in evidence.runs
            if (found := one.run.stopped()) is not None
        ),
        answers=tuple(_answer(name, question, evidence, tree.conditions) for name, question in asked.items()),
        path=tuple(end.taken),
        decided=end.decided,
        says=" ".join([branch.says for branch in end.taken.values()] + [end.open] * (not end.decided)),
        because=end.because,
        needs=end.needs,
        noise=end.noise,
        changes={key: one for key, one in changes.items() if one is not None} if end.decided else {},
    )


def _what(stopped: Mapping[str, Any]) -> str:
    return f"check {stopped['check']}" if "check" in stopped else f"rule {stopped.get('rule')}"


def _answer(name: str, question: Question, evidence: Evidence, named: Mapping[str, Condition]) -> Answer:
    if question.lowest is not None:
        return _lowest(name, question.ask, question.lowest, evidence)
    assert question.when is not None
    verdict = judge(question.when, evidence, named)
    words = {True: ("yes", question.if_yes), False: ("no", question.if_no), None: ("not decided", "")}
    return Answer(name, question.ask, *words[verdict.holds], verdict)


@dataclass(frozen=True, slots=True)
class _Ranking:
    """Metrics at their last steps, the lowest first."""

    found: Mapping[str, tuple[int, Estimate]]
    records: Records

    @classmethod
    def of(cls, metrics: Iterable[str], evidence: Evidence) -> "_Ranking":
        """Those of the metrics that the runs have.

        Raises:
            IncomparableError: the seeds were evaluated on other examples.
        """
        found = {metric: last for metric in metrics if (last := evidence.last(metric)) is not None}
        ordered = sorted(found.items(), key=lambda item: item[1][1].interval.mean)
        return cls(dict(ordered), evidence.runs[0])

    def rivals(self) -> list[str]:
        """Those that the lowest is not decidedly below."""
        (_, lowest), *others = self.found.values()
        names = list(self.found)[1:]
        return [name for name, (_, other) in zip(names, others, strict=True) if apart(lowest, other).interval.high >= 0]

    def said(self) -> tuple[str, ...]:
        """A line for each."""
        places = {metric: self.records.where(metric, step) for metric, (step, _) in self.found.items()}
        return tuple(f"{metric} {places[metric]} is {shown(one)}" for metric, (_, one) in self.found.items())


def _lowest(name: str, ask: str, metrics: Sequence[str], evidence: Evidence) -> Answer:
    try:
        ranking = _Ranking.of(metrics, evidence)
    except IncomparableError as error:
        return Answer(name, ask, "not decided", "", Verdict(None, None, (error.cause,), (error.fix,)))
    if len(ranking.found) < len(metrics):
        lacking = ", ".join(metric for metric in metrics if metric not in ranking.found)
        need = "an evaluation of all of them"
        return Answer(
            name, ask, "not decided", "", Verdict(None, None, (f"there is no {lacking}", *ranking.said()), (need,))
        )
    lowest, rivals = next(iter(ranking.found)), ranking.rivals()
    figures = tuple(
        Figure(metric, step, "value", one.interval.mean, one.interval.low, one.interval.high, one.interval.n, one.seeds)
        for metric, (step, one) in ranking.found.items()
    )
    if not rivals:
        return Answer(name, ask, lowest, "", Verdict(True, True, ranking.said(), figures=figures))
    verdict = Verdict(
        holds=None,
        leans=True,
        said=ranking.said(),
        needs=(f"more examples of {', '.join([lowest, *rivals])}: which is the lowest is inside the noise",),
        noise=True,
        figures=figures,
    )
    return Answer(name, ask, f"{' or '.join([lowest, *rivals])}, not decided", "", verdict)


@dataclass(frozen=True, slots=True)
class _End:
    """Where a walk ended."""

    taken: Mapping[str, Branch]
    decided: bool
    open: str = ""
    """Why it did not end in a leaf."""
    because: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    noise: tuple[str, ...] = ()


def _walk(branches: Mapping[str, Branch | None], evidence: Evidence, named: Mapping[str, Condition]) -> _End:
    there = {name: branch for name, branch in branches.items() if branch is not None}
    verdicts = {name: judge(branch.when, evidence, named) for name, branch in there.items()}
    held = [name for name, verdict in verdicts.items() if verdict.holds]
    if any(branch.weakest is not None for branch in there.values()):
        name, noise = _weakest({name: there[name] for name in held}, evidence)
        before = [each for each, verdict in verdicts.items() if verdict.holds is None]
        noise += tuple(f"whether {each} holds, too, is not decided" for each in before if held)
        before = [] if held else before
    else:
        name, noise = (held[0] if held else ""), ()
        earlier = list(there)[: list(there).index(name)] if name else list(there)
        before = [each for each in earlier if verdicts[each].holds is None]
    if before:
        return _open(before, name, verdicts)
    if not name:
        said = tuple(dict.fromkeys(line for verdict in verdicts.values() for line in verdict.said))
        listed = ", ".join(there)
        need = ("a branch for what was found",)
        return _End({}, False, f"None of the branches holds ({listed}).", said, need)
    because, branch = verdicts[name].said, there[name]
    if not branch.branches:
        return _End({name: branch}, True, because=because, noise=noise)
    inner = _walk(branch.branches, evidence, named)
    return _End(
        {name: branch, **inner.taken},
        inner.decided,
        inner.open,
        (*because, *inner.because),
        inner.needs,
        (*noise, *inner.noise),
    )


def _open(before: Sequence[str], held: str, verdicts: Mapping[str, Verdict]) -> _End:
    """Branches that are not decided stand before the first one that holds."""
    lean = [f"{name} ({_leaning(verdicts[name])})" for name in before]
    rest = f" Without them it would be {held}." if held else ""
    because = [line for name in [*before, *([held] if held else [])] for line in verdicts[name].said]
    needs = dict.fromkeys(line for name in before for line in verdicts[name].needs)
    return _End(
        {}, False, f"The evidence does not decide {', '.join(lean)}.{rest}", tuple(dict.fromkeys(because)), tuple(needs)
    )


def _leaning(verdict: Verdict) -> str:
    if verdict.leans is None:
        return "figures are missing"
    return f"the figures lean to {'yes' if verdict.leans else 'no'}, inside the noise"


def _weakest(held: Mapping[str, Branch], evidence: Evidence) -> tuple[str, tuple[str, ...]]:
    """The branch whose metric is the lowest, and what of that is inside the noise; "" where none holds."""
    names = {str(branch.weakest): name for name, branch in held.items() if branch.weakest is not None}
    ranking = _Ranking.of(names, evidence)
    if not ranking.found:
        return next(iter(held), ""), ()
    lowest, rivals = next(iter(ranking.found)), ranking.rivals()
    noise = f"that {lowest} is lower than {' and '.join(rivals)} is inside the noise: those branches hold, too"
    return names[lowest], (noise,) if rivals else ()
