"""What a recipe says of its own run: rules to watch it by, questions to ask it, and the tree to the
next recipe.

All of it is data, and nothing in it is ever run: `checks.diagnosis.conditions` evaluates
conditions, for the rules while a run trains and for questions and branches when `plumbline decide`
is asked.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Self, Union

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from plumbline.config.section import PositiveInt, Section

Metric = Annotated[str, Field(pattern=r"^(train|eval)/[\w.-]+(/[\w.-]+)*$")]
Step = Annotated[int, Field(ge=0)]
Named = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
BOUNDS = ("above", "at_least", "below", "at_most")
LISTS = ("all", "any", "none")


class _Brief(Section):
    """Written without the keys that are as they are by default: a condition has many, and sets two
    or three."""

    @model_serializer(mode="wrap")
    def _what_is_set(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        return {
            key: value
            for key, value in plain(self).items()
            if getattr(self, key) != fields[key].default
        }


class Condition(_Brief):
    """A figure beside a bound, or several conditions together.

    Of a figure the last point that was recorded is meant, unless `at` says which. Several bounds
    must all hold.
    """

    metric: Metric | None = None
    """As in metrics.jsonl: `train/grad_norm`, `eval/mean_reward`, `eval/TASK`,
    `eval/TASK/reading/strict`."""
    at: Step | None = None
    """The first point from this step on, not the last."""
    after: Step | None = None
    """Not judged on a point before this step, unless a watch rule stopped the run there."""
    since: Step | None = None
    """The change since the last point up to this step, on the same examples."""
    against: Annotated[str, Field(pattern=r"^previous$")] | None = None
    """The difference to the previous run at the same step, on the same examples."""
    across_rubrics: bool = False
    """With `against`: allowed where the two were scored by different rubrics, because that is what
    is asked about."""
    baseline: float | None = None
    """With `against`: what stands for the previous run where none is given."""
    minus: Metric | None = None
    """The difference to this metric of the same answers."""
    window: PositiveInt = 1
    """Of a `train/` metric: the mean of so many steps, with its interval."""
    sustained: PositiveInt = 1
    """At so many points in a row."""
    above: float | None = None
    """The figure is greater."""
    at_least: float | None = None
    """The figure is greater or equal."""
    below: float | None = None
    """The figure is smaller."""
    at_most: float | None = None
    """The figure is smaller or equal."""
    all: list[Union["Condition", Named]] | None = Field(default=None, min_length=1)
    """All of these conditions hold."""
    any: list[Union["Condition", Named]] | None = Field(default=None, min_length=1)
    """At least one of these conditions holds."""
    none: list[Union["Condition", Named]] | None = Field(default=None, min_length=1)
    """None of these conditions holds."""

    @property
    def parts(self) -> list[Union["Condition", str]]:
        """The conditions that this one is made of; none of a figure."""
        return self.all or self.any or self.none or []

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds that are given, by name."""
        return {name: value for name in BOUNDS if (value := getattr(self, name)) is not None}

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [name for name in ("metric", *LISTS) if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise ValueError("a condition has either metric, or one of all, any and none")
        if kinds != ["metric"]:
            fields = type(self).model_fields
            if strange := [
                key
                for key in fields
                if key not in kinds and getattr(self, key) != fields[key].default
            ]:
                raise ValueError(f"{kinds[0]} stands alone, and beside it is {', '.join(strange)}")
            return self
        if not self.bounds:
            raise ValueError(f"give a bound for {self.metric}: {', '.join(BOUNDS)}")
        if sum(x is not None for x in (self.since, self.against, self.minus)) > 1:
            raise ValueError("a difference is one of since, against and minus")
        if self.against is None and (self.baseline is not None or self.across_rubrics):
            raise ValueError("baseline and across_rubrics belong to against")
        trained = str(self.metric).startswith("train/")
        if self.window > 1 and not trained:
            raise ValueError(
                "window is the mean of some steps of a train/ metric; an evaluation has its "
                "examples"
            )
        if self.minus is not None and trained:
            raise ValueError(
                "minus compares what the same answers of an evaluation earned; it takes eval/ "
                "metrics"
            )
        if trained and self.window == 1 and (self.since, self.against) != (None, None):
            raise ValueError(
                f"{self.metric} of a single step is one draw: give a window to compare the means of"
            )
        return self

    def figures_and_names(self) -> Iterator[Union["Condition", str]]:
        """The figures in it, and the names of other conditions."""
        if self.metric is not None:
            yield self
        for part in self.parts:
            if isinstance(part, str):
                yield part
            else:
                yield from part.figures_and_names()


class ChecksSection(Section):
    """The checks of `plumbline check`, while the run trains."""

    every: int = Field(default=10, ge=0)
    """Steps from one look to the next; 0: none."""
    stop: bool | None = None
    """Whether what is fatal, and no passing draw, stops the run after a checkpoint. None: unless
    `controls` say that it is wrong on purpose."""
    ignore: list[str] = Field(default=[])
    """Names of checks of which nothing is said and by which nothing is stopped."""


class WatchRule(_Brief):
    """What is looked at while RL trains, at every step that has the figure."""

    expected: str
    """What a healthy run shows."""
    stop_if: Condition | None = None
    """Stop, after a checkpoint."""
    warn_if: Condition | None = None
    """Print a warning and continue."""
    advice: str = ""
    """What it means, and what to do."""

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        conditions = [one for one in (self.stop_if, self.warn_if) if one is not None]
        if not conditions:
            raise ValueError("a rule has stop_if, or warn_if, or both")
        for condition in conditions:
            leaves = list(condition.figures_and_names())
            if name := next((leaf for leaf in leaves if isinstance(leaf, str)), None):
                raise ValueError(f"{name} names a condition of decide, and a rule says its own")
            if any(isinstance(leaf, Condition) and leaf.against is not None for leaf in leaves):
                raise ValueError("a rule is judged while its run trains, and knows no previous one")
        return self


class Question(_Brief):
    """Something to answer from a run: whether a condition holds, or which of some figures is the
    lowest."""

    ask: str
    """The question, for people."""
    when: Condition | Named | None = None
    """The condition, or its name."""
    lowest: list[Metric] | None = Field(default=None, min_length=2)
    """Metrics of which the lowest is the answer."""
    if_yes: str = ""
    """What it means where the condition holds."""
    if_no: str = ""
    """What it means where the condition does not hold."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.when is None) == (self.lowest is None):
            raise ValueError("a question has either when or lowest")
        return self


class Change(Section):
    """A key of the next recipe."""

    to: Any
    """The new value."""
    because: str
    """The reason, for people."""


class Branch(_Brief):
    """What to do next where a condition holds."""

    when: Condition | Named
    """The condition, or its name."""
    says: str
    """The conclusion."""
    changes: dict[str, Change | None] = Field(default={})
    """By the key of the recipe, such as `rl.steps`; to take one away from a recipe that is
    extended, null."""
    weakest: Metric | None = None
    """Where several branches beside each other hold, that of the lowest of these is taken, not the
    first."""
    branches: dict[Named, "Branch | None"] = Field(default={})
    """Further branches, tried where this one holds."""

    def conditions(self) -> Iterator[Condition | str]:
        """Its own and those of the branches in it."""
        yield self.when
        for branch in self.branches.values():
            if branch is not None:
                yield from branch.conditions()


class DecideSection(Section):
    """Questions to a run and a tree of branches: the first branch that holds leads to the next
    recipe."""

    conditions: dict[Named, Condition] = Field(default={})
    """To be referred to by name; each may refer to those before it."""
    questions: dict[Named, Question | None] = Field(default={})
    """What is asked of the run."""
    branches: dict[Named, Branch | None] = Field(default={})
    """The tree: the first branch that holds is taken."""

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        known: set[str] = set()
        for name, condition in self.conditions.items():
            _check_names(
                [condition], known, f"conditions.{name}, which may refer to those before it,"
            )
            known.add(name)
        asked = [
            each.when
            for each in self.questions.values()
            if each is not None and each.when is not None
        ]
        _check_names(asked, known, "a question")
        for name, branch in self.branches.items():
            _check_names(
                branch.conditions() if branch is not None else (), known, f"branches.{name}"
            )
        return self


def _check_names(conditions: Any, known: set[str], where: str) -> None:
    for condition in conditions:
        for leaf in [condition] if isinstance(condition, str) else condition.figures_and_names():
            if isinstance(leaf, str) and leaf not in known:
                raise ValueError(
                    f"{where} refers to {leaf}, and the conditions are {', '.join(known) or 'none'}"
                )
