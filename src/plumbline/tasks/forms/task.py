"""The forms task: examples drawn from the suite, plans carried out on the site, judged by what the server received."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from plumbline.errors import DataError, PlumblineError, RecipeError
from plumbline.records import Example, Failure, Outcome, Score
from plumbline.tasks import Progress
from plumbline.tasks.forms import rubric, seed_rubric
from plumbline.tasks.forms.build import HELD_OUT_FORMS, SEEN, build_split, forms_of, held_out_of, values_of
from plumbline.tasks.forms.controls import controls
from plumbline.tasks.forms.executors.executor import Case, Execution, Executor
from plumbline.tasks.forms.options import FormsOptions, read_options
from plumbline.tasks.forms.plans.actions import Plan
from plumbline.tasks.forms.plans.agent import read_plan
from plumbline.tasks.forms.plans.elements import Element, elements_of
from plumbline.tasks.forms.rubric import Expected
from plumbline.tasks.forms.site.receipts import submission_of
from plumbline.tasks.forms.site.view import View
from plumbline.tasks.forms.suite.catalogue import VERSION
from plumbline.tasks.forms.suite.declaration import Value
from plumbline.tasks.task import Control

_KEPT = 4096
"""Examples whose preparation is remembered."""


class EpisodeFailed(PlumblineError):  # noqa: N818 - it says what happened
    """The executor could not carry out a plan, through no fault of the plan: a counted failure, never a reward."""


def open_forms(options: Mapping[str, Any], folder: Path, progress: Progress) -> "FormsTask":  # noqa: ARG001
    """Open the forms task; its examples are drawn from the options, so nothing is read from or written to the folder.

    Raises:
        RecipeError: an unknown option, or an executor that is not there.
        DataError: the chosen forms cannot be split as the options say.
    """
    checked = read_options(dict(options))
    return FormsTask(checked, open_executor(checked.executor))


def open_executor(name: str) -> Executor:
    """The executor of this name.

    Raises:
        RecipeError: it is not there, or what it needs is not installed.
    """
    if name != "direct":
        raise RecipeError(
            f"the {name} executor is not part of this version", "set task.options.executor: direct, or leave it out"
        )
    try:
        from plumbline.tasks.forms.executors.direct import DirectExecutor
    except ImportError as error:
        raise RecipeError(
            f"the direct executor reads pages with {error.name}, which is not installed",
            "pip install 'plumbline[forms]'",
        ) from error
    return DirectExecutor()


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Everything about an example that does not depend on the answer."""

    reference: Mapping[str, Any]
    case: Case
    values: Mapping[str, Value]
    expected: tuple[Expected, ...]
    elements: tuple[Element, ...]


class FormsTask:
    """See `plumbline.tasks.task.Task`."""

    name = "forms"

    def __init__(self, options: FormsOptions, executor: Executor) -> None:
        self.options, self.executor = options, executor
        self.forms = forms_of(options)
        held = held_out_of(options, self.forms)
        self.splits: tuple[str, ...] = (*SEEN, HELD_OUT_FORMS) if held else SEEN
        self._build: Callable[[str], list[Example]] = cache(lambda split: build_split(split, options, self.forms))
        self._prepared: dict[int, _Prepared] = {}
        self._views: dict[tuple[Any, ...], View] = {}

    @property
    def rubric(self) -> str:
        """See `Task.rubric`; the suite's version is part of it, because it decides what is asked for."""
        identity = (seed_rubric.SEED_RUBRIC if self.options.rubric == "seed-v6" else rubric.RUBRIC).identity
        narrow = "" if self.options.max_fields is None else f":{self.options.max_fields} fields"
        return f"{identity}:suite {VERSION}{narrow}"

    @property
    def form(self) -> Sequence[str]:
        """See `Task.form`: nothing of a plan's form is judged, only what it comes to."""
        return ()

    def examples(self, split: str) -> Sequence[Example]:
        """See `Task.examples`."""
        if split not in self.splits:
            mend = f"it has {', '.join(self.splits)}"
            if split == HELD_OUT_FORMS:
                mend = "add one of the held-out forms to task.options.forms, or name one in task.options.held_out"
            raise DataError(f"the forms task has no split {split!r} with these options", mend)
        return self._build(split)

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Task.judge`.

        Raises:
            EpisodeFailed: the executor broke down; the direct one never does.
        """
        return self.judge_group(example, [completion])[0]

    def judge_group(self, example: Example, completions: Sequence[str]) -> list[tuple[Outcome, Score]]:
        """Judge several completions of one example in one call to the executor, for those that gain from it.

        Raises:
            EpisodeFailed: the executor broke down on one of them.
        """
        prepared = self._prepare(example)
        plans = [read_plan(completion, prepared.elements) for completion in completions]
        judged = []
        for plan, result in zip(plans, self.executor.run(prepared.case, plans), strict=True):
            if isinstance(result, Failure):
                raise EpisodeFailed(f"{self.executor.name} executor: {result.cause} {result.detail}".strip())
            judged.append((_outcome(plan, result), self._score(prepared, plan, result)))
        return judged

    def _score(self, prepared: _Prepared, plan: Plan, execution: Execution) -> Score:
        if self.options.rubric == "seed-v6":
            return seed_rubric.score(prepared.case.view.form, prepared.values, plan, execution)
        return rubric.score(prepared.expected, execution)

    def demonstration(self, example: Example, seed: int) -> str:  # noqa: ARG002
        """See `Task.demonstration`: the gold plan."""
        return example.gold

    @property
    def controls(self) -> Mapping[str, Control]:
        """See `Task.controls`."""
        return controls(self.view_of)

    def view_of(self, example: Example) -> View:
        """The form of an example, as it is met there."""
        return self._prepare(example).case.view

    def case_of(self, example: Example) -> Case:
        """What an executor needs to know about an example."""
        return self._prepare(example).case

    def _prepare(self, example: Example) -> _Prepared:
        # By the identity of the reference, which is kept alive here: an id may come with another reference.
        found = self._prepared.get(id(example.reference))
        if found is not None and found.reference is example.reference:
            return found
        if len(self._prepared) >= _KEPT:
            self._prepared.clear()
            self._views.clear()
        values = values_of(example.reference)
        view = self._view(example)
        files = frozenset(
            name
            for one in view.form.fields
            if one.kind == "file" and isinstance(value := values.get(one.name), tuple)
            for name in value
        )
        prepared = _Prepared(
            example.reference, Case(view, files), values, rubric.expected(view, values), elements_of(view.form)
        )
        self._prepared[id(example.reference)] = prepared
        return prepared

    def _view(self, example: Example) -> View:
        """One view for all examples that meet the form in the same way, so that pages are rendered and parsed once."""
        name, prefilled = example.reference["form"], example.reference["prefilled"]
        form = self.forms.get(name)
        if form is None:
            raise DataError(f"{example.id}: the form {name} is not among the chosen ones", "open the task with it")
        key = (name, tuple(sorted(prefilled.items())), example.reference["stars"])
        return self._views.setdefault(key, View(form, prefilled, example.reference["stars"]))


def _outcome(plan: Plan, execution: Execution) -> Outcome:
    """The facts: how the plan was read, what became of it, and what arrived."""
    submission = submission_of(execution.receipts)
    failed = {
        number: f"{attempt.status}: {attempt.reason}"
        for number, attempt in enumerate(execution.attempts, 1)
        if attempt.status != "ok"
    }
    facts = {
        "submitted": submission is not None,
        "posts": len(execution.receipts),
        "actions": len(plan.actions),
        "carried_out": len(execution.attempts),
        "unread": plan.unread,
        "failed": failed,
        "errors": [dict(receipt.errors) for receipt in execution.receipts if receipt.errors],
        "received": {} if submission is None else {**submission.entries, **submission.files},
        "cut": execution.cut,
    }
    return Outcome(how=plan.how, facts=facts)
