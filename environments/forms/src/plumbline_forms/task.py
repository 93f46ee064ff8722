"""The forms task: examples drawn from the suite, plans carried out on the site, judged by what the
server received."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from plumbline.config.imports import check_consent, missing_module_error
from plumbline.errors import DataError, RecipeError
from plumbline.records import Example, Failure, Frame, Headline, Message, Mistake, Outcome, Score
from plumbline.seeds import generator
from plumbline.tasks import Progress
from plumbline.tasks.task import Baseline, Task, gold_of, label_failure, unwrap_result
from plumbline_browser.plans.actions import Element, Plan
from plumbline_forms import rubric
from plumbline_forms.baselines import baselines
from plumbline_forms.build import HELD_OUT_FORMS, Suite, gold_plan, own_suite, values_of, write_plan
from plumbline_forms.corruptions import misread, sloppily
from plumbline_forms.executors.executor import Execution, Executor, FormCase
from plumbline_forms.options import FormsOptions, RecordingFaults, read_options
from plumbline_forms.plans.agent import read_plan
from plumbline_forms.plans.oracle import elements_of
from plumbline_forms.prompts import again
from plumbline_forms.rubric import Expected, mistakes_of
from plumbline_forms.site.page import FormView
from plumbline_forms.site.site import Site, submission_of
from plumbline_forms.suite.declaration import Value

STRICT, FILLABLE = "strict", "fillable"
"""FormFactory: two readings of a score, with the values that nobody could enter, and without
them."""
_KEPT = 4096
"""Examples whose preparation is remembered."""
_MISREAD = 16
"""Plans with mistakes that are tried for one that sends nothing."""


def open_forms(options: Mapping[str, Any], folder: Path, progress: Progress) -> "FormsTask":  # noqa: ARG001
    """Open the forms task; its examples are drawn from the options, so nothing is read from or
    written to the folder.

    Raises:
        RecipeError: an unknown option, or something is not installed that an executor or a suite
            needs.
        DataError: the chosen forms cannot be split as the options say, or a checkout is missing or
            incomplete.
    """
    checked = read_options(dict(options))
    if checked.suite == "own":
        suite = own_suite(checked)
    else:
        from plumbline_forms.formfactory.importer import import_formfactory

        check_consent(f"path={checked.path}", "the app of a checkout", "formfactory", checked.path)
        suite = import_formfactory(checked)
    return FormsTask(checked, open_executor(checked.executor, Site(suite.application)), suite)


open_forms.served = {"executor": "direct"}  # type: ignore[attr-defined]


def open_executor(name: str, site: Site | None = None) -> Executor:
    """The executor of this name (direct, browser or in-page), for a site; None is one of its own.

    Raises:
        RecipeError: what it needs is not installed.
    """
    try:
        if name == "direct":
            from plumbline_forms.executors.direct import DirectExecutor

            return DirectExecutor(site)
        from plumbline_forms.executors.browser import BrowserExecutor
    except ImportError as error:
        raise missing_module_error(f"the {name} executor", error, RecipeError) from error
    return BrowserExecutor(site, navigates=name == "browser")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Everything about an example that does not depend on the answer."""

    reference: Mapping[str, Any]
    case: FormCase
    values: Mapping[str, Value]
    expected: tuple[Expected, ...]
    raw: tuple[Expected, ...] | None
    """FormFactory: what is expected in the strict reading, where values that nobody could enter
    count as missed."""
    elements: tuple[Element, ...]


class FormsTask(Task):
    """Forms to fill in; what its methods promise stands in `plumbline.tasks.task`."""

    name = "forms"

    def __init__(
        self, options: FormsOptions, executor: Executor, suite: Suite | None = None
    ) -> None:
        self.options, self.executor = options, executor
        self.suite = suite if suite is not None else own_suite(options)
        self.forms, self.splits = self.suite.forms, self.suite.splits
        self._build: Callable[[str], list[Example]] = cache(self.suite.build)
        self._prepared: dict[int, _Prepared] = {}
        self._views: dict[tuple[Any, ...], FormView] = {}

    @property
    def rubric(self) -> str:
        """See `Task.rubric`; the suite's identity is part of it, because it decides what is asked
        for, and how often.

        A further attempt takes nothing away: whoever needs one has sent nothing yet, and one that
        sends is the last.
        """
        identity = (
            rubric.SEED_RUBRIC if self.options.rubric == "seed-v6" else rubric.RUBRIC
        ).identity
        often = f":{self.turns} attempts" if self.turns > 1 else ""
        return f"{identity}:{self.suite.identity}{often}"

    @property
    def turns(self) -> int:
        """See `Task.turns`."""
        return self.options.attempts

    def episode(self, example: Example) -> "Attempts":
        """See `Task.episode`."""
        return Attempts(self, example)

    @property
    def judges(self) -> int:
        """See `Task.judges`: as many as the executor runs episodes at once."""
        return self.executor.at_once

    @property
    def headline(self) -> Headline:
        """See `Task.headline`."""
        return rubric.SEED_V6 if self.options.rubric == "seed-v6" else rubric.RECEIVED

    def examples(self, split: str) -> Sequence[Example]:
        """See `Task.examples`."""
        if split not in self.splits:
            fix = f"it has {', '.join(self.splits)}"
            if self.options.suite == "formfactory":
                fix += "; task.options.splits: 80-10-10 deals the records to train, val and test"
                fix += ", and task.options.held_out names forms for held-out-forms"
            elif split == HELD_OUT_FORMS:
                fix = (
                    "add one of the held-out forms to task.options.forms, or name one in "
                    "task.options.held_out"
                )
            raise DataError(f"the forms task has no split {split!r} with these options", fix)
        return self._build(split)

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Task.judge`.

        Raises:
            EpisodeFailed: the executor broke down; the direct one never does.
        """
        return unwrap_result(self.judge_group(example, [completion])[0])

    def judge_group(
        self, example: Example, completions: Sequence[str]
    ) -> list[tuple[Outcome, Score] | Failure]:
        """Judge several completions of one example in one call to the executor, for those that gain
        from it."""
        return [
            one if isinstance(one, Failure) else one[:2]
            for one in self.attempt(example, completions)
        ]

    def attempt(
        self, example: Example, completions: Sequence[str]
    ) -> list[tuple[Outcome, Score, Execution] | Failure]:
        """Carry completions out, each on a fresh visit, and judge them; see `judge_group`."""
        prepared = self._prepare(example)
        plans = [read_plan(completion, prepared.elements) for completion in completions]
        return [
            execution
            if isinstance(execution, Failure)
            else (_outcome(plan, execution), self._score(prepared, plan, execution), execution)
            for plan, execution in zip(plans, self._run(prepared, plans), strict=True)
        ]

    def _run(self, prepared: _Prepared, plans: Sequence[Plan]) -> list[Execution | Failure]:
        return [
            label_failure(f"{self.executor.name} executor", one)
            for one in self.executor.run(prepared.case, plans)
        ]

    def _score(self, prepared: _Prepared, plan: Plan, execution: Execution) -> Score:
        if self.options.rubric == "seed-v6":
            return rubric.seed_score(prepared.case.view.form, prepared.values, plan, execution)
        score = rubric.score(prepared.expected, plan, execution, len(prepared.case.view.form.pages))
        if prepared.raw is None:
            return score
        strict = rubric.score(prepared.raw, plan, execution).total
        return replace(score, readings={STRICT: strict, FILLABLE: score.total})

    def mistakes(self, example: Example, completion: str) -> Sequence[Mistake]:
        """See `Task.mistakes`."""
        prepared = self._prepare(example)
        (execution,) = self._run(prepared, [read_plan(completion, prepared.elements)])
        return mistakes_of(prepared.expected, unwrap_result(execution))

    def replay(self, example: Example, completion: str) -> Sequence[Frame]:
        """See `Task.replay`.

        Raises:
            RecipeError: there is no browser.
        """
        try:
            from plumbline_forms.executors.pictures import film
        except ImportError as error:
            raise missing_module_error(
                "a replay, which is filmed in a browser,", "playwright", RecipeError
            ) from error
        prepared = self._prepare(example)
        return film(prepared.case, read_plan(completion, prepared.elements), self.executor.site)

    def render_pages(self, example: Example, completion: str) -> Sequence[str]:
        """See `Task.render_pages`; by the direct executor, whichever one judges."""
        from plumbline_forms.executors.pictures import filled

        prepared = self._prepare(example)
        return filled(prepared.case, read_plan(completion, prepared.elements), self.executor.site)

    def demonstration(self, example: Example, seed: int) -> str:
        """See `Task.demonstration`: the gold plan, as carelessly recorded as the options say."""
        if self.options.sloppiness == RecordingFaults():
            return gold_of(example)
        prepared = self._prepare(example)
        view = prepared.case.view
        gold = gold_plan(view, prepared.values, self.options)
        actions = sloppily(gold, self.options.sloppiness, generator(seed, "sloppiness"))
        return write_plan(actions, view.form, self.options.plan)

    def demonstrations(self, example: Example, seed: int) -> Sequence[Sequence[Message]]:
        """See `Task.demonstrations`: where plans may fail, the gold plan after one that has sent
        nothing comes second.

        Careless recordings fail by themselves. Faultless ones never do, and would leave second
        plans untrained: there a plan with a learner's mistakes (`corruptions.py`) stands before the
        page's reply. It is read, and not learnt. No browser is asked what failing plans come to.
        """
        shown = self.demonstration(example, seed)
        chats: list[Sequence[Message]] = [
            [*example.messages, {"role": "assistant", "content": shown}]
        ]
        for failing in self._failing(example, shown, seed) if self.turns > 1 else ():
            episode = Attempts(self._direct, example)
            episode.tell(failing)
            if (asked := episode.ask()) is not None:
                return [*chats, [*asked, {"role": "assistant", "content": gold_of(example)}]]
        return chats

    def _failing(self, example: Example, shown: str, seed: int) -> Iterator[str]:
        """What may come before a second plan; one with mistakes is sometimes sent all the same."""
        if self.options.sloppiness != RecordingFaults():
            yield shown
            return
        prepared, rng = self._prepare(example), generator(seed, "misreading")
        if rng.random() >= self.options.damaged:
            return
        form = prepared.case.view.form
        gold = gold_plan(prepared.case.view, prepared.values, self.options)
        for _ in range(_MISREAD):
            with suppress(ValueError):  # an agent's plan cannot name what the page does not have
                yield write_plan(misread(gold, prepared.elements, rng), form, self.options.plan)

    @cached_property
    def _direct(self) -> "FormsTask":
        """The same task without a browser."""
        if self.executor.name == "direct":
            return self
        return FormsTask(self.options, open_executor("direct", self.executor.site), self.suite)

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        """See `Task.baselines`."""
        return baselines(self.view_of)

    def view_of(self, example: Example) -> FormView:
        """The form of an example, as it is met there."""
        return self._prepare(example).case.view

    def case_of(self, example: Example) -> FormCase:
        """What an executor needs to know about an example."""
        return self._prepare(example).case

    def _prepare(self, example: Example) -> _Prepared:
        # By the identity of the reference, which is kept alive here: an id may come with another
        # reference.
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
        expected, raw = rubric.expected(view, values), None
        if (unfillable := example.reference.get("unfillable")) is not None:
            raw = rubric.expected(
                view, {**values, **{name: one["gold"] for name, one in unfillable.items()}}
            )
            expected = tuple(one for one in expected if one.field.name not in unfillable)
        prepared = _Prepared(
            example.reference, FormCase(view, files), values, expected, raw, elements_of(view.form)
        )
        self._prepared[id(example.reference)] = prepared
        return prepared

    def _view(self, example: Example) -> FormView:
        """One view for all examples that meet the form in the same way, so that pages are rendered
        and parsed once."""
        name, prefilled = example.reference["form"], example.reference["prefilled"]
        form = self.forms.get(name)
        if form is None:
            raise DataError(
                f"{example.id}: the form {name} is not among the chosen ones",
                "open the task with it",
            )
        key = (name, tuple(sorted(prefilled.items())), example.reference["stars"])
        return self._views.setdefault(key, FormView(form, prefilled, example.reference["stars"]))


class Attempts:
    """Plans for one form until one sends it whole, which cannot be taken back; see
    `plumbline.tasks.task`."""

    def __init__(self, task: FormsTask, example: Example) -> None:
        self.task, self.example = task, example
        self._messages: list[Message] | None = list(example.messages)
        self._left = task.turns
        self._came_to: tuple[Outcome, Score] | None = None

    def ask(self) -> Sequence[Message] | None:
        """See `Episode.ask`: the chat goes on with the answer and what the page showed for it."""
        return self._messages

    def tell(self, text: str) -> None:
        """See `Episode.tell`.

        Raises:
            EpisodeFailed: the executor broke down.
            ValueError: the episode is over.
        """
        if self._messages is None:
            raise ValueError(f"the episode of {self.example.id} is over")
        outcome, score, execution = unwrap_result(self.task.attempt(self.example, [text])[0])
        self._came_to = outcome, score
        self._left -= 1
        if outcome.facts["submitted"] or not self._left:
            self._messages = None
            return
        view = self.task.view_of(self.example)
        shown = again(view.form, execution, prefilled=bool(view.prefilled))
        told: list[Message] = [
            {"role": "assistant", "content": text},
            {"role": "user", "content": shown},
        ]
        self._messages = [*self._messages, *told]

    def result(self) -> tuple[Outcome, Score]:
        """See `Episode.result`: what the last plan came to.

        Raises:
            ValueError: nothing was told.
        """
        if self._came_to is None:
            raise ValueError("an episode comes to nothing before its first answer")
        return self._came_to


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
