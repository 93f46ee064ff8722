"""A browser agent's model: a planner of forms, behind what the agent (browser-use) asks and expects
at every step.

The agent asks at each step what to do on the page that it sees; the planner was trained to say once
how a whole form is filled in. So the planner is asked once for a page, in its own words, and its
plan is dealt out over the agent's steps: as many actions as the agent takes at once, resolved on
the page as it is now. How far a plan has come stands in the `memory` of every answer, which the
agent sends back; kept here is only what the planner said, under an id in that memory, so a step
that is asked for twice is answered twice alike.

A page that shows errors, or that a browser does not send, is a further attempt in the planner's
episode; the next page of a wizard that the plan says nothing about is a form of its own.
"""

import asyncio
import contextlib
import hashlib
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from plumbline.records import Message, Request
from plumbline.serve.backend import AnswerChunk, AnswerRequest, Backend
from plumbline_browser.plans.actions import Done, Fill, Navigate, Plan, Submit
from plumbline_browser.plans.grammar import folded
from plumbline_forms.agent.acts import MARK, Act, Acted, act_on, actions_of, schema_of, write_output
from plumbline_forms.agent.scene import (
    Scene,
    form_of,
    further_prompt,
    given_of,
    is_step,
    read_scene,
    why_not_sent,
)
from plumbline_forms.executors.executor import Attempt
from plumbline_forms.executors.operations import Target, find
from plumbline_forms.plans.agent import read_plan
from plumbline_forms.plans.oracle import elements_of
from plumbline_forms.prompts import messages as prompt

_MOST_KEPT, _SECONDS = 1024, 3600.0
"""Plans that are kept at once, and how long after they were last used."""
_MOST_LOOKS, _MOST_WAITS, _MOST_PAGES = 12, 3, 12
_FROM_TOP = 100
"""Added to the number of looks when the page is gone through once more."""
_EDGE = 0.2
"""Screens outside of what is shown from which on it is worth scrolling."""
_ON_THE_WAY = "Waiting for the form"
_URL = re.compile(r"https?://[^\s'\"<>]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """How the planner was trained, which is how it is asked, and what an agent may use up."""

    plan: Literal["steps", "agent"] = "steps"
    full: bool = True
    """Whether its prompts describe the plan language and the controls
    (`task.options.instructions: full`)."""
    attempts: int = 3
    """Plans for one page."""


# -- how far a plan has come, as a line in the `memory` of every answer ----------------------------

_LINE = re.compile(
    r"Plan ([0-9a-f]{12}): sent ([\d+ ]*)of (\d+), next (\d+), page ([0-9a-f]{8})(, prepared)?(?:, looked (\d+))?\."
)
_WENT_WELL = (
    "Typed ",
    "Selected dropdown option ",
    "Clicked ",
    "Uploaded file ",
    "Sent keys",
    "Navigated to ",
    MARK,
)
"""What the agent writes of an action that went well begins like this; of others it writes what was
wrong."""
_RESULT = re.compile(rf"^(?:{'|'.join(_WENT_WELL)})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Memory:
    """Where an answer left a plan."""

    id: str
    sent: tuple[tuple[int, ...], ...]
    """Numbers of the plan's actions, those together that were one action of the agent's."""
    total: int
    next: int
    page: str
    """Stands for the page that was open."""
    prepared: bool = False
    """Whether the page was made ready for the next action."""
    looked: int = 0
    """How often it was scrolled in search of what the next action is about."""
    results: str = ""
    """What the agent says became of the actions."""

    def text(self) -> str:
        """The line."""
        sent = "".join("+".join(map(str, group)) + " " for group in self.sent)
        more = ", prepared" * self.prepared + (f", looked {self.looked}" if self.looked else "")
        return (
            f"Plan {self.id}: sent {sent}of {self.total}, next {self.next}, page {self.page}{more}."
        )

    @property
    def went_well(self) -> int:
        """How many of the agent's actions went well; it stops at the first that does not."""
        return len(_RESULT.findall(self.results))


def memory_of(history: str) -> Memory | None:
    """The last line in an agent's history that is one of ours."""
    found = [*_LINE.finditer(history)][-1:]
    if not found:
        return None
    key, sent, total, following, page, prepared, looked = found[0].groups()
    groups = tuple(tuple(map(int, filter(None, group.split("+")))) for group in sent.split())
    results = history[found[0].end() :]
    return Memory(
        key, groups, int(total), int(following), page, bool(prepared), int(looked or 0), results
    )


# -- planner ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Course:
    """What the planner said of a page, and what was found out about it since."""

    start: str
    """The form's address."""
    lines: frozenset[str]
    """Texts of the page when it was planned first: what comes later is what the page says to the
    plan."""
    prefilled: bool
    pages: int
    attempt: int = 0
    id: str = ""
    chat: Sequence[Message] = ()
    answer: str = ""
    plan: Plan = Plan(())  # noqa: RUF009 - it cannot be changed
    finish: str = ""
    planner: Mapping[str, Any] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    """By the number of an action why it came to nothing."""
    used: float = 0.0


@dataclass(frozen=True, slots=True)
class _Step:
    """What is answered."""

    acts: Sequence[Act]
    memory: str
    goal: str
    facts: Mapping[str, Any]


class AgentServed(Backend):
    """See `Backend`: answers the steps of a browser agent; `Planning` says how its planner is
    asked."""

    def __init__(self, planner: Backend, planning: Planning | None = None) -> None:
        self.planner, self.planning = planner, planning or Planning()
        self.name, self.family, self.context = (
            f"{planner.name}-agent",
            planner.family,
            planner.context,
        )
        self._courses: OrderedDict[str, _Course] = OrderedDict()

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """See `Backend`: of what the planner is asked for the page, not of the agent's own
        instructions."""
        if not is_step(messages):
            return self.planner.prompt_length(messages)
        return self.planner.prompt_length(self._prompt(read_scene(messages)))

    async def answer(self, asked: AnswerRequest) -> AsyncGenerator[AnswerChunk, None]:
        """See `Backend`: one piece, which conforms to the request's schema.

        Raises:
            DataError: the chat is no step of a browser agent.
            RecipeError: the schema is none of `AgentOutput`.
        """
        chat = asked.request.messages
        scene = await asyncio.to_thread(read_scene, chat)
        schema = schema_of(chat, asked.schema)
        offered = actions_of(schema)
        step = await self._step(scene, offered, asked)
        failed = step.facts.get("failed")
        evaluation = (
            f"{len(failed)} actions of the plan came to nothing." if failed else "As planned."
        )
        brain = {
            "evaluation_previous_goal": evaluation,
            "memory": step.memory,
            "next_goal": step.goal,
        }
        yield AnswerChunk(
            text=write_output(schema, brain, step.acts), finish="stop", facts={"agent": step.facts}
        )

    async def close(self) -> None:
        """See `Backend`."""
        self._courses.clear()
        await self.planner.close()

    # -- one step ----------------------------------------------------------------------------------

    async def _step(
        self, scene: Scene, offered: Mapping[str, Any] | None, asked: AnswerRequest
    ) -> _Step:
        only_done = offered is not None and set(offered) == {"done"}
        memory = memory_of(scene.history)
        course = self._course(memory.id) if memory is not None else None
        begin = 1
        if course is None:
            if not _fields(scene):
                return _on_the_way(scene)
            if only_done:
                return _done(None, 1, scene, received=False)
            course = await self._ask(scene, asked, 1)
            if memory is not None and memory.total == len(course.plan.actions):
                # the plan was lost with a restart, and the planner said the same again
                begin = memory.next
            memory = None
        while True:
            sent = False
            if memory is not None:
                begin, sent = _settled(course, memory, scene)
            over = begin > len(course.plan.actions) or isinstance(
                course.plan.actions[begin - 1], Done
            )
            if sent and _is_received(scene, over=over):
                return _done(course, begin, scene, received=True)
            refused = memory is not None and sent and _is_same_page(course, memory, scene)
            if not refused and not over:
                step = self._dealt(course, begin, memory, scene, offered)
                if step is not None and not (only_done and "done" not in step.acts[0]):
                    return step
            further = (
                course.attempt < self.planning.attempts
                if refused or not sent
                else course.pages < _MOST_PAGES
            )
            if only_done or not further:
                return _done(course, begin, scene, received=False)
            if sent and not refused:
                course = await self._ask(scene, asked, course.pages + 1)
            else:
                course = await self._ask(scene, asked, course.pages, course)
            begin, memory = 1, None

    def _prompt(self, scene: Scene) -> list[Message]:
        given, surface = given_of(scene.task)
        return prompt(
            form_of(scene), given, surface=surface, plan=self.planning.plan, full=self.planning.full
        )

    async def _ask(
        self, scene: Scene, asked: AnswerRequest, page: int, before: _Course | None = None
    ) -> _Course:
        """Ask the planner for this page, or once more for one that did not take the plan before.

        What it says is kept under a new id.
        """
        if before is None:
            prefilled = any(one.value for one in scene.page.controls if one.is_typed)
            before, chat = (
                _Course(scene.url, frozenset(scene.lines), prefilled, page),
                self._prompt(scene),
            )
        else:
            reasons = [
                before.failed.get(number, "") for number in range(1, len(before.plan.actions) + 1)
            ]
            further = further_prompt(scene, reasons, before.lines, prefilled=before.prefilled)
            chat = [*before.chat, Message(role="assistant", content=before.answer), further]
        attempt = before.attempt + 1
        request = Request((*asked.request.key, "plan", attempt), chat, asked.request.sampling)
        # Its answers end where they did in training, and not where the agent's own would be cut
        # off.
        said = (
            None
            if asked.said is None
            else {key: value for key, value in asked.said.items() if key != "max_tokens"}
        )
        text, last = "", AnswerChunk()
        pieces = self.planner.answer(
            replace(asked, request=request, schema=None, name="", said=said)
        )
        async with contextlib.aclosing(pieces):
            async for last in pieces:
                text += last.text
        plan, key = read_plan(text, elements_of(form_of(scene))), secrets.token_hex(6)
        course = replace(
            before, id=key, chat=chat, answer=text, plan=plan, attempt=attempt, failed={}
        )
        course.finish, course.planner = str(last.finish), last.facts
        self._courses[key] = course
        return self._course(key) or course

    def _course(self, key: str) -> _Course | None:
        """What is kept under a key; what was not used for long, and what is too much, is
        forgotten."""
        now = time.monotonic()
        found = self._courses.get(key)
        if found is not None:
            found.used = now
            self._courses.move_to_end(key)
        while self._courses and (
            len(self._courses) > _MOST_KEPT
            or next(iter(self._courses.values())).used < now - _SECONDS
        ):
            self._courses.popitem(last=False)
        return found

    def _dealt(
        self,
        course: _Course,
        begin: int,
        memory: Memory | None,
        scene: Scene,
        offered: Mapping[str, Any] | None,
    ) -> _Step | None:
        """The next actions of a plan, as many as the agent takes; None where none is left that can
        be carried out."""
        actions, most = course.plan.actions, scene.most_actions

        def step(
            acts: Sequence[Act], following: int, *, prepared: bool = False, looked: int = 0
        ) -> _Step:
            there = Memory(
                course.id, tuple(sent), len(actions), following, _page(scene), prepared, looked
            )
            goal = (
                "Fill in the form."
                if following <= len(actions)
                else "See whether the form was received."
            )
            return _Step(acts, there.text(), goal, _facts(course, following, scene))

        acts: list[Act] = []
        sent: list[tuple[int, ...]] = []
        was_loaded = memory is not None and memory.prepared
        if (
            begin == 1
            and course.attempt > 1
            and not was_loaded
            and not isinstance(actions[0], Navigate)
        ):
            # A further attempt is asked for with the words that the form is as it was at first.
            return step([_load(course)], 1, prepared=True)
        is_head = memory is not None and memory.next == begin
        prepared = is_head and memory is not None and memory.prepared
        looked = memory.looked if is_head and memory is not None else 0
        number, prepares = begin, False
        while (
            number <= len(actions)
            and len(acts) < most
            and not isinstance(actions[number - 1], Done)
        ):
            if isinstance(action := actions[number - 1], Navigate):
                acted = _navigated(action, course, number)
            else:
                acted = act_on(
                    actions[number - 1 :], scene, offered, prepared=prepared and number == begin
                )
            if isinstance(acted, Attempt):
                if acted.status == "not found" and acts:
                    break  # it may come to be shown by what is done now
                if acted.status == "not found" and (
                    look := _look(scene, offered, looked if number == begin else 0)
                ):
                    return step([look[0]], number, looked=look[1])
                course.failed[number] = acted.reason
                number += 1
                continue
            if acted.act is not None:
                acts.append(acted.act)
                sent.append(tuple(range(number, number + max(acted.taken, 1))))
            number, prepares = number + acted.taken, acted.prepares
            if acted.ends:
                break
        return step(acts, number, prepared=prepares) if acts else None


# -- what became of the last step ------------------------------------------------------------------


def _settled(course: _Course, memory: Memory, scene: Scene) -> tuple[int, bool]:
    """The number of the action that is next, and whether the last one that was carried out was to
    send the form.

    The agent stops at an action that fails and where the page changes. The first of a step that
    failed is given up; a later one is tried again, first of its step, on the page as it is then.
    """
    done = memory.went_well
    actions = course.plan.actions
    if done >= len(memory.sent):
        last = memory.sent[-1][-1] if memory.sent else 0
        is_sending = (
            0 < last <= len(actions)
            and isinstance(actions[last - 1], Submit)
            and not memory.prepared
        )
        if is_sending and _is_same_page(course, memory, scene):
            course.failed[last] = why_not_sent(scene) or "not sent"
        return memory.next, is_sending
    stuck = memory.sent[done]
    if done:
        return stuck[0], False
    said = " ".join(memory.results.split()).removeprefix("Result ")[:200]
    course.failed |= dict.fromkeys(stuck, said or "it came to nothing")
    return stuck[-1] + 1, False


def _is_same_page(course: _Course, memory: Memory, scene: Scene) -> bool:
    """Whether a page is still there after it was sent: its address, and a control that was filled
    in."""
    if _page(scene) != memory.page:
        return False
    until = memory.sent[-1][0] - 1 if memory.sent else len(course.plan.actions)
    filled: list[str] = []
    for action in course.plan.actions[:until]:
        filled = (
            []
            if isinstance(action, Submit)
            else [*filled, action.label]
            if isinstance(action, Fill)
            else filled
        )
    if not filled:
        return bool(_fields(scene))
    return any(isinstance(find(scene.page, label, frozenset()), Target) for label in filled)


def _is_received(scene: Scene, *, over: bool) -> bool:
    """Whether the page that came after the form was sent asks for nothing more."""
    fields = _fields(scene)
    # the browser's own page: nothing answered
    if not scene.url.startswith(("http://", "https://")):
        return False
    if not fields:
        return over or not scene.page.controls
    asked = folded(scene.task)
    return over and not any(folded(label) and folded(label) in asked for label in fields)


def _fields(scene: Scene) -> list[str]:
    """What the controls that can be filled in are called."""
    return [
        one.group or one.label or one.name
        for one in scene.page.controls
        if one.kind not in {"button", "hidden"}
    ]


def _page(scene: Scene) -> str:
    """What stands for a page in the memory."""
    return hashlib.sha256(scene.url.encode()).hexdigest()[:8]


# -- actions that are no plan's --------------------------------------------------------------------


def _navigated(action: Navigate, course: _Course, number: int) -> Acted | Attempt:
    """A plan's address is the form's, whatever host it names; a first plan begins on a page that is
    open already."""
    try:
        path = urlsplit(action.url).path.rstrip("/")
    except ValueError:
        path = ""
    if number > 1 and (not path or not urlsplit(course.start).path.endswith(path)):
        return Attempt("refused", f"{action.url[:60]!r} is not the address of this form")
    if number == 1 and course.attempt == 1:
        return Acted(None)
    return Acted(_load(course), ends=True)


def _load(course: _Course) -> Act:
    return {"navigate": {"url": course.start, "new_tab": False}}


def _look(scene: Scene, offered: Mapping[str, Any] | None, looked: int) -> tuple[Act, int] | None:
    """Scroll to what is not shown, and how often that was done: down to the end, then once more
    from the top."""
    if offered is not None and "scroll" not in offered:
        return None
    if scene.below > _EDGE and looked % _FROM_TOP < _MOST_LOOKS:
        return {"scroll": {"down": True, "pages": 1.0}}, looked + 1
    if scene.above > _EDGE and looked < _FROM_TOP:
        return {"scroll": {"down": False, "pages": 10.0}}, _FROM_TOP
    return None


def _on_the_way(scene: Scene) -> _Step:
    """What is done while there is no form to see: go to the address that the task names, wait, give
    up."""
    waited = scene.history.count(_ON_THE_WAY)
    address = _URL.search(scene.task)
    facts = {"asked": False, "waited": waited}
    if waited >= _MOST_WAITS:
        text = f"There is no form on the page. {' '.join(scene.lines)[:300]}".strip()
        return _Step(
            [{"done": {"text": text, "success": False, "files_to_display": []}}], text, "", facts
        )
    there = address is None or scene.url.rstrip("/") == address.group().rstrip("/.,;")
    act: Act = {"wait": {"seconds": 1}}
    if address is not None and not there:
        act = {"navigate": {"url": address.group().rstrip(".,;"), "new_tab": False}}
    return _Step([act], f"{_ON_THE_WAY} ({waited + 1}).", "Find the form.", facts)


def _done(course: _Course | None, begin: int, scene: Scene, *, received: bool) -> _Step:
    shown = " ".join(scene.lines)[:400]
    text = (
        f"The form was received. The page says: {shown}"
        if received
        else f"The form was not received. {shown}"
    )
    facts = {**(_facts(course, begin, scene) if course else {}), "received": received}
    return _Step(
        [{"done": {"text": text, "success": received, "files_to_display": []}}], text, "", facts
    )


def _facts(course: _Course, number: int, scene: Scene) -> dict[str, Any]:
    """What is counted of a plan so far."""
    return {
        "plan": course.id,
        "how": course.plan.how,
        "unread": course.plan.unread,
        "actions": len(course.plan.actions),
        "next": number,
        "failed": {str(at): reason for at, reason in sorted(course.failed.items())},
        "attempt": course.attempt,
        "page": course.pages,
        "dialogs": scene.dialogs,
        "planner_finish": course.finish,
        "planner": dict(course.planner),
    }
