"""The miniwob task: an instruction and a page, plans carried out there, and the page's own
reward."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from plumbline.errors import DataError
from plumbline.records import (
    Example,
    Failure,
    Figure,
    Frame,
    Headline,
    Message,
    Mistake,
    Outcome,
    Score,
)
from plumbline.storage import read_jsonl
from plumbline.tasks import Progress, silent
from plumbline.tasks.task import Baseline, Task, gold_of, label_failure, unwrap_result
from plumbline_miniwob.actions import from_json
from plumbline_miniwob.baselines import baselines
from plumbline_miniwob.build import (
    DEALT,
    HELD_OUT_TASKS,
    build_records,
    has_records,
    pages_version,
    sizes_of,
    splits_of,
)
from plumbline_miniwob.grammar import PageText
from plumbline_miniwob.options import MiniwobOptions, PerTask, read_options
from plumbline_miniwob.pages import table
from plumbline_miniwob.prompts import again, messages
from plumbline_miniwob.reading import PagePlan, read_plan
from plumbline_miniwob.world import Played, World, page_of
from plumbline_miniwob.writing import write_plan

VERSION = 1
"""Of how a reward is made of what a page says."""
_FEW = 24
"""Pages, evenly from all, on whose episodes the lengths of prompts are measured before records are
built."""


def open_miniwob(options: Mapping[str, Any], folder: Path, progress: Progress) -> "MiniwobTask":
    """Open the miniwob task; a split that `folder` has no records of is built there when it is
    asked for.

    Raises:
        RecipeError: an unknown option, or the pages, Playwright or a Chromium are not installed.
        DataError: `folder` holds records of other options or other pages.
        StorageError: it holds what is not ours.
    """
    from plumbline_miniwob.browser.world import BrowserWorld  # here, because it needs an extra

    checked = read_options(dict(options))
    world = BrowserWorld()
    build = (
        None
        if has_records(checked, folder)
        else partial(build_records, checked, folder, world, progress)
    )
    return MiniwobTask(folder, checked, world, build)


class MiniwobTask(Task):
    """Small web pages; what its methods promise stands in `plumbline.tasks.task`."""

    name = "miniwob"

    def __init__(
        self,
        folder: Path,
        options: MiniwobOptions,
        world: World,
        build: Callable[[str], object] | None = None,
    ) -> None:
        """Nothing is read yet; `build` is called with a split's name before its records are."""
        self.folder, self.options, self.world = folder, options, world
        self.splits = splits_of(options)
        self._build = build
        self._read = cache(self._read_split)
        self._turns: dict[str, list[Mapping[str, Any]]] = {}
        self._pages: dict[int, tuple[Mapping[str, Any], PageText]] = {}

    @property
    def rubric(self) -> str:
        """See `Task.rubric`: the pages decide a score, and how often an answer may look at them."""
        looks = f":{self.turns} turns" if self.turns > 1 else ""
        return f"miniwob/{VERSION}:{pages_version()}{looks}"

    @property
    def headline(self) -> Headline:
        """See `Task.headline`."""
        return Headline(
            figures=(
                Figure(key="success_rate", title="Success", part="success", rate=True),
                Figure(key="answered_rate", title="Answered", part="answered", rate=True),
            ),
            stratum="page",
        )

    @property
    def turns(self) -> int:
        """See `Task.turns`."""
        return self.options.turns

    @property
    def judges(self) -> int:
        """See `Task.judges`: one more than pages that work at once, so that plans are read while
        all of these do."""
        return self.world.at_once + 1

    def examples(self, split: str) -> Sequence[Example]:
        """See `Task.examples`."""
        if split not in self.splits:
            hint = "; name pages in task.options.held_out" if split == HELD_OUT_TASKS else ""
            raise DataError(
                f"the miniwob task has no split {split!r}", f"it has {', '.join(self.splits)}{hint}"
            )
        return self._read(split)

    @property
    def built(self) -> bool:
        """See `Task.built`."""
        return self._build is None

    def sizes(self) -> Mapping[str, int]:
        """See `Task.sizes`: the most; a page that comes in few ways fills fewer places."""
        return sizes_of(self.options)

    def sketch(self, folder: Path) -> "MiniwobTask":
        """See `Task.sketch`: one episode of a few pages."""
        held = set(self.options.held)
        seen = [name for name in self.options.chosen if name not in held]
        few = [*seen[:: len(seen) // _FEW + 1], *self.options.held[:2]]
        one = PerTask(train=1, val=1, test=1, held_out_tasks=1)
        options = self.options.model_copy(
            update={"tasks": few, "held_out": [*self.options.held[:2]], "per_task": one}
        )
        return MiniwobTask(
            folder, options, self.world, partial(build_records, options, folder, self.world, silent)
        )

    def _read_split(self, split: str) -> list[Example]:
        if self._build is not None:
            self._build(split)
            if split == DEALT[-1]:
                self._build = None
        path = self.folder / f"{split}.jsonl"
        found = [self._example(row, f"{path}:{number}") for number, row in read_jsonl(path)]
        if not found:
            raise DataError(
                f"{path} has no examples", "remove the folder, so that it is built again"
            )
        return found

    def _example(self, row: Mapping[str, Any], where: str) -> Example:
        options = self.options
        try:
            acts = None if row["acts"] is None else tuple(map(from_json, row["acts"]))
            example = Example(
                id=row["id"],
                messages=messages(
                    row["utterance"],
                    row["page"],
                    plan=options.plan,
                    full=options.instructions == "full",
                    turns=options.turns,
                ),
                gold=None if acts is None else write_plan(acts, options.plan),
                reference={"task": row["task"], "seed": row["seed"], "elements": row["elements"]},
                stratum=row["task"],
                cluster=row["task"],
            )
            self._turns[example.id] = row["turns"]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{where}: no record of ours ({error})",
                "remove the folder, so that it is built again",
            ) from error
        return example

    # -- verdicts ----------------------------------------------------------------------------------

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Task.judge`.

        Raises:
            EpisodeFailed: the browser broke down, twice.
        """
        return unwrap_result(self.judge_group(example, [completion])[0])

    def judge_group(
        self, example: Example, completions: Sequence[str]
    ) -> list[tuple[Outcome, Score] | Failure]:
        """See `Task.judge_group`: all in one call to the browser; a failure where it broke down,
        twice."""
        page = self.page_of(example)
        plans = [read_plan(completion, page) for completion in completions]
        task, seed = example.reference["task"], example.reference["seed"]
        results = [
            label_failure(f"{task} {seed}", one)
            for one in self.world.play(task, seed, [plan.acts for plan in plans])
        ]
        return [
            played
            if isinstance(played, Failure)
            else (outcome_of(plan, played), self.score(played))
            for plan, played in zip(plans, results, strict=True)
        ]

    def score(self, played: Played) -> Score:
        """The page's own reward where it has ended the episode; success is what others count, a raw
        reward above 0."""
        raw = played.raw if played.answered else 0.0
        parts = {"success": float(raw > 0), "answered": float(played.answered)}
        return Score(total=min(1.0, max(0.0, raw)), parts=parts, rubric=self.rubric)

    def page_of(self, example: Example) -> PageText:
        """The elements of an example's page, as it is shown first."""
        # By the identity of the reference, which is kept alive here: an id may come with another
        # reference.
        kept = self._pages.get(id(example.reference))
        if kept is None or kept[0] is not example.reference:
            kept = example.reference, page_of(example.reference["elements"])
            self._pages[id(example.reference)] = kept
        return kept[1]

    def episode(self, example: Example) -> "Looks":
        """See `Task.episode`."""
        return Looks(self, example)

    # -- what is shown -----------------------------------------------------------------------------

    def demonstration(self, example: Example, seed: int) -> str:
        """See `Task.demonstration`: of several turns the first."""
        return self.demonstrations(example, seed)[0][-1]["content"]

    def demonstrations(self, example: Example, seed: int) -> Sequence[Sequence[Message]]:  # noqa: ARG002
        """See `Task.demonstrations`: one action of the oracle's a turn, each with the page that it
        is about.

        The whole plan at once, where one action a turn would take more turns than there are.
        """
        turns = self._turns.get(example.id, [])
        gold = gold_of(example)
        if not 1 < len(turns) <= self.turns:
            return [[*example.messages, {"role": "assistant", "content": gold}]]
        chat = list(example.messages)
        chats = []
        for number, turn in enumerate(turns):
            if number:
                chat = [*chat, {"role": "user", "content": again(turn["page"])}]
            chat = [
                *chat,
                {
                    "role": "assistant",
                    "content": write_plan([from_json(turn["act"])], self.options.plan),
                },
            ]
            chats.append(chat)
        return chats

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        """See `Task.baselines`."""
        return baselines(
            with_gold=all("oracle" not in table()[name] for name in self.options.chosen)
        )

    def mistakes(self, example: Example, completion: str) -> Sequence[Mistake]:
        """See `Task.mistakes`."""
        return self._mistakes(self._again(example, [completion]))

    def replay(self, example: Example, completion: str) -> Sequence[Frame]:
        """See `Task.replay`."""
        return self.replay_episode(example, [completion])[1]

    def replay_episode(
        self, example: Example, completions: Sequence[str]
    ) -> tuple[Sequence[Mistake], Sequence[Frame]]:
        """See `Task.replay_episode`."""
        again = self._again(example, completions)
        stretches = [plan.acts for plan in again.plans]
        frames = self.world.film(example.reference["task"], example.reference["seed"], stretches)
        return self._mistakes(again), frames

    def _again(self, example: Example, completions: Sequence[str]) -> "Looks":
        """The episode of some answers, gone through once more."""
        looks = Looks(self, example)
        for completion in completions:
            looks.turn(completion)
        return looks

    def _mistakes(self, looks: "Looks") -> list[Mistake]:
        if looks.result()[1].total == 1:
            return []
        return [Mistake(what="the page", expected="reward 1", received=looks.why_not())]


class Looks:
    """An episode in which the model sees the page again after each answer; see
    `plumbline.tasks.task`."""

    def __init__(self, task: MiniwobTask, example: Example) -> None:
        self.task, self.example = task, example
        self.plans: list[PagePlan] = []
        self._messages: list[Message] | None = list(example.messages)
        self._page = task.page_of(example)
        self._where = example.reference["task"], example.reference["seed"]
        self._turn = task.world.begin(*self._where)
        self._played: Played | None = None

    def ask(self) -> Sequence[Message] | None:
        """See `Episode.ask`: the chat goes on with the answer and what the page shows after it."""
        return self._messages

    def tell(self, text: str) -> None:
        """See `Episode.tell`.

        Raises:
            EpisodeFailed: the browser broke down, twice.
            ValueError: the episode is over.
        """
        if self._messages is None:
            raise ValueError(f"the episode of {self.example.id} is over")
        before = 0 if self._played is None else len(self._played.attempts)
        played = self.turn(text)
        if played.answered or played.cut or len(self.plans) == self.task.turns:
            self._messages = None
            return
        acts = self.plans[-1].acts
        shown = again(played.text, acts, played.attempts[before:], empty=not acts)
        told: list[Message] = [
            {"role": "assistant", "content": text},
            {"role": "user", "content": shown},
        ]
        self._messages = [*self._messages, *told]

    def turn(self, text: str) -> Played:
        """Carry an answer out, which is read with the page that it was given for.

        Raises:
            EpisodeFailed: the browser broke down, twice.
        """
        self.plans.append(read_plan(text, self._page))
        self._played = unwrap_result(
            label_failure(" ".join(self._where), self._turn(self.plans[-1].acts))
        )
        self._page = page_of(self._played.elements)
        return self._played

    def why_not(self) -> str:
        """What is wrong with an episode that has earned less than everything."""
        assert self._played is not None, "asked for after an answer"
        return _why_not(self.plans[-1], self._played)

    def result(self) -> tuple[Outcome, Score]:
        """See `Episode.result`.

        Raises:
            ValueError: nothing was told.
        """
        if self._played is None:
            raise ValueError("an episode comes to nothing before its first answer")
        plans = self.plans
        every = PagePlan(
            tuple(act for plan in plans for act in plan.acts),
            plans[-1].how,
            sum(plan.unread for plan in plans),
            sum(plan.idle for plan in plans),
        )
        return outcome_of(every, self._played), self.task.score(self._played)


def outcome_of(plan: PagePlan, played: Played) -> Outcome:
    """The facts: how the plan was read, what became of it, and what the page said."""
    facts = {
        "answered": played.answered,
        "raw": played.raw,
        "reason": played.reason,
        "actions": len(plan.acts),
        "carried_out": len(played.attempts),
        "unread": plan.unread,
        "failed": _failed(played),
        "notes": list(played.notes),
        "cut": played.cut,
    }
    return Outcome(how=plan.how, facts=facts)


def _failed(played: Played) -> dict[int, str]:
    return {
        number: f"{status}: {reason}" if reason else status
        for number, (status, reason) in enumerate(played.attempts, 1)
        if status != "ok"
    }


def _why_not(plan: PagePlan, played: Played) -> str:
    if not plan.acts:
        return "no action could be read from the answer"
    failed = "; ".join(
        f"action {number} {why}" for number, why in list(_failed(played).items())[:3]
    )
    if not played.answered:
        return (
            f"the page has not ended the episode; {failed}"
            if failed
            else "the page has not ended the episode"
        )
    said = f"reward {played.raw:g}" + (f" ({played.reason})" if played.reason else "")
    return f"{said}; {failed}" if failed else said
