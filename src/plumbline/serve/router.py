"""A `Served` over several: which model answers is read from a table, and each decision is logged and counted.

The job of a request is what the client says in its metadata (`job`), else what the text asks for, else the table's
default. Where a model fails before its first piece, the route's next one is asked. A shadow gets a copy of some
requests when their answers have ended: it costs no client time, and its answers go to the log alone.
"""

import asyncio
import difflib
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from plumbline.checks.diagnosis.routes import Route, RoutingTable
from plumbline.config.imports import loaded, plugins
from plumbline.errors import DataError, EngineError, PlumblineError, RecipeError
from plumbline.records import Message
from plumbline.serve.decision_log import DecisionLog
from plumbline.serve.served import Asked, Piece, Served
from plumbline.storage import one_line
from plumbline.tasks.text.json_schema import Schema
from plumbline.tasks.text.lenient_json import strict_json

Classifier = Callable[[str], str | None]
"""From what a user asks for to a job, or to None where nothing speaks for one."""
How = Literal["metadata", "classifier", "default"]
"""How the job of a request was found."""

LONGEST = 8_000
"""Characters of a request that the classifier looks at, so that a long one does not hold up the others."""
LOGGED = 4_000
"""Characters of an answer that are logged beside a shadow's."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a request goes."""

    job: str
    """Empty where the default is a model, and no job is known."""
    how: How
    route: Route


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterOptions:
    """What the table does not say."""

    name: str = "router"
    timeout: float = 30.0
    """Seconds in which a model has to begin its answer, or to end it where it has to be JSON, while there is another
    one to ask. The last one has the time that the server gives."""
    shadow_timeout: float = 120.0
    """Seconds in which a shadow has to end its answer."""
    shadow_queue: int = 16
    """Requests that wait for shadows; what comes when so many wait is dropped, and counted."""
    classifiers: Sequence[Classifier] | None = None
    """Asked in turn; None asks those of installed packages (entry points of the group `plumbline.classifiers`)."""


@dataclass(slots=True)
class _Course:
    """What becomes of a request."""

    to: Destination
    wanted: Schema | None
    """What JSON the answer has to be; None for any text."""
    began: float = field(default_factory=time.perf_counter)
    model: str = ""
    tried: list[dict[str, str]] = field(default_factory=list)
    """Models that failed, and why."""
    first: float | None = None
    """Seconds until the first piece was there."""
    text: list[str] = field(default_factory=list)
    status: str = "gone"
    """ok; invalid, for JSON that is none; stopped, where the reader had enough (a stop text); the name of an error; or
    gone, as its client is."""

    def said(self) -> dict[str, Any]:
        """What the client is told."""
        return {"job": self.to.job, "how": self.to.how, "model": self.model, "tried": self.tried}


class Router(Served):
    """A `Served` that asks others; see the module. It runs in one event loop."""

    def __init__(
        self,
        table: RoutingTable,
        models: Mapping[str, Served],
        options: RouterOptions | None = None,
        log: DecisionLog | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            table: which model does which job.
            models: by the names that the table gives them. Whoever opened them closes them.
            options: what the table does not say.
            log: where decisions go; None only counts them.

        Raises:
            RecipeError: the table names a model that is not there, or sends nothing anywhere.
        """
        for name in table.models:
            if name not in models:
                close = difflib.get_close_matches(name, [*models, *table.routes], n=1)
                raise RecipeError(
                    f"the routing table names {name}, which is not among the models that are served",
                    f"did you mean {close[0]}?" if close else f"serve it, too, or name one of {', '.join(models)}",
                )
        if not table.models:
            raise RecipeError("the routing table has no route", "`plumbline route RUN ... --out FILE` writes one")
        self.table, self.models, self.options = table, models, options or RouterOptions()
        self.log = log or DecisionLog()
        installed = plugins("plumbline.classifiers").values() if self.options.classifiers is None else ()
        self.classifiers = self.options.classifiers or [loaded(one, "classifier of requests") for one in installed]
        self.name, self.family = self.options.name, "router"
        # A model that is too short for a request refuses it, and the next is asked.
        self.context = max(models[name].context for name in table.models)
        self._seen: dict[str, int] = {}
        self._waiting: asyncio.Queue[tuple[_Course, Asked]] = asyncio.Queue(self.options.shadow_queue)
        self._worker: asyncio.Task[None] | None = None

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """Tokens as the model counts them that does the job which the text asks for; else the table's first.

        Raises:
            DataError: the template refuses the chat.
        """
        name = self._job_of(messages) or self.table.default or self.table.models[0]
        model = self.table.routes[name].model if name in self.table.routes else name
        return self.models[model].prompt_length(messages)

    def counts(self) -> Mapping[tuple[str, ...], int]:
        """What was decided so far; see `DecisionLog.counts`."""
        return self.log.counts()

    def destination(self, asked: Asked) -> Destination:
        """Where a request goes.

        Raises:
            DataError: it names a job without a route; or nothing says its job, and the table has no default.
        """
        job = asked.metadata.get("job")
        if job is None:
            return self._by_text(asked.request.messages)
        if job not in self.table.routes:
            known = ", ".join(self.table.routes)
            raise DataError(f"there is no route for the job {job[:60]!r}", f"give metadata.job one of {known}")
        return Destination(job, "metadata", self.table.routes[job])

    def _by_text(self, messages: Sequence[Message]) -> Destination:
        routes, default, job = self.table.routes, self.table.default, self._job_of(messages)
        if job is not None:
            return Destination(job, "classifier", routes[job])
        if default is None:
            raise DataError("nothing says which job the request is of", f"give metadata.job one of {', '.join(routes)}")
        if default in routes:
            return Destination(default, "default", routes[default])
        return Destination("", "default", Route(default))

    def _job_of(self, messages: Sequence[Message]) -> str | None:
        """The job with a route that the last thing asked is recognised by."""
        text = next((one["content"] for one in reversed(messages) if one["role"] == "user"), "")
        jobs = (classify(text[:LONGEST]) for classify in self.classifiers)
        return next((job for job in jobs if job in self.table.routes), None)

    async def answer(self, asked: Asked) -> AsyncIterator[Piece]:
        """See `Served.answer`; the facts of the last piece say under `route` who answered, and why.

        Raises:
            DataError: see `destination`; the schema is none; or so said every model that was asked.
            EngineError: several models were asked, and none answered.
        """
        schema = asked.schema
        wanted = None if schema is None else await asyncio.to_thread(Schema.from_json, schema or {"type": "object"})
        try:
            course = _Course(self.destination(asked), wanted)
        except DataError:
            self.log.count("refused")
            raise
        source: AsyncIterator[Piece] | None = None
        try:
            held, source = await self._begin(asked, course)
            course.first = time.perf_counter() - course.began
            for piece in held:
                yield _with_route(piece, course)
            async for piece in source:
                course.text.append(piece.text)
                yield _with_route(piece, course)
            course.status = "ok" if _is_valid("".join(course.text), course.wanted) else "invalid"
        except GeneratorExit:
            course.status = "stopped"
            raise
        except Exception as error:
            course.status = type(error).__name__
            raise
        finally:
            if source is not None:
                await _close(source)
            self._record(course, asked)

    async def _begin(self, asked: Asked, course: _Course) -> tuple[list[Piece], AsyncIterator[Piece]]:
        """Pieces that a model has given already, and the iterator that goes on with them."""
        chain = (course.to.route.model, *course.to.route.fallback)
        errors: list[Exception] = []
        for name in chain:
            course.model = name
            others = len(errors) + 1 < len(chain)
            source = self.models[name].answer(asked)
            try:
                async with asyncio.timeout(self.options.timeout if others else None):
                    held = await _held(source, course.wanted if others else None)
            except Exception as error:  # noqa: BLE001 - whatever fails in a model, another one may answer
                errors.append(error)
            else:
                course.text += [piece.text for piece in held]
                return held, source
            why = type(errors[-1]).__name__
            course.tried.append({"model": name, "why": _reason(errors[-1])})
            if others:
                self.log.count("fallbacks", course.to.job, name, why)
        raise _together(course, errors) from errors[0]

    def _record(self, course: _Course, asked: Asked) -> None:
        to, route = course.to, course.to.route
        shadow = course.status == "ok" and route.shadow is not None and self._is_due(to.job, route.shadow_share)
        if shadow:
            shadow = self._enqueue(course, asked)
        self.log.count("answers", to.job, course.model, course.status)
        self.log.write(
            "decision",
            {
                "request": _named(asked),
                "job": to.job,
                "how": to.how,
                "model": course.model,
                "fallback": course.tried,
                "shadow": route.shadow if shadow else None,
                "first_seconds": None if course.first is None else round(course.first, 4),
                "seconds": round(time.perf_counter() - course.began, 4),
                "status": course.status,
            },
        )

    # -- shadows -------------------------------------------------------------------------------------------------

    def _is_due(self, job: str, share: float) -> bool:
        """Whether this answer of a job belongs to the share: evenly spread, the same at every repetition."""
        seen = self._seen[job] = self._seen.get(job, 0) + 1
        return math.floor(seen * share + 1e-9) > math.floor((seen - 1) * share + 1e-9)

    def _enqueue(self, course: _Course, asked: Asked) -> bool:
        if self._worker is None:
            self._worker = asyncio.create_task(self._shadow())
        try:
            self._waiting.put_nowait((course, asked))
        except asyncio.QueueFull:
            self.log.count("shadows", course.to.job, str(course.to.route.shadow), "dropped")
            return False
        return True

    async def _shadow(self) -> None:
        """Ask shadows, one request after the other."""
        while True:
            course, asked = await self._waiting.get()
            name, began, answer = str(course.to.route.shadow), time.perf_counter(), ""
            source = self.models[name].answer(asked)
            status, why = "ok", ""
            try:
                async with asyncio.timeout(self.options.shadow_timeout):
                    async for piece in source:
                        answer += piece.text
                if not _is_valid(answer, course.wanted):
                    status = "invalid"
            except Exception as error:  # noqa: BLE001 - nobody waits for a shadow: what fails there fails nothing else
                status, why = "failed", _reason(error)
            finally:
                await _close(source)
                self._waiting.task_done()
            returned = "".join(course.text)
            self.log.count("shadows", course.to.job, name, status)
            self.log.write(
                "shadow",
                {
                    "request": _named(asked),
                    "job": course.to.job,
                    "model": course.model,
                    "shadow": name,
                    "seconds": round(time.perf_counter() - began, 4),
                    "status": status,
                    "why": why,
                    "same": answer == returned,
                    "returned": returned[:LOGGED],
                    "answer": answer[:LOGGED],
                },
            )

    async def drain(self) -> None:
        """Wait until no request waits for a shadow."""
        await self._waiting.join()

    async def close(self) -> None:
        """End the asking of shadows; what waits for one is dropped. The models are left open."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
            self._worker = None


def open_router(
    table: RoutingTable, models: Sequence[Served], sources: Mapping[str, str], log: Path | None = None
) -> Router:
    """A router over models that are served; `sources` is where each is, by the name that it is served as.

    Raises:
        RecipeError: it names a model that is not there, or the router's name is taken.
        StorageError: the log cannot be written.
    """
    router = Router(table, as_named(table, models, sources), log=DecisionLog(log))
    if any(served.name == router.name for served in models):
        raise RecipeError(f"a model is called {router.name}, as the router is", f"name it: NAME={sources[router.name]}")
    return router


def as_named(table: RoutingTable, models: Sequence[Served], sources: Mapping[str, str]) -> dict[str, Served]:
    """Models by the names that a table gives them: what they are served as, or where they are.

    Args:
        table: `plumbline route` writes paths into it.
        models: that are served.
        sources: where each is, by the name that it is served as.
    """
    found = {served.name: served for served in models}
    places = {_place(source): found[name] for name, source in sources.items() if name in found}
    return {**{name: places[_place(name)] for name in table.models if _place(name) in places}, **found}


def _place(source: str) -> str:
    return str(Path(source).resolve()) if Path(source).exists() else source


async def _held(source: AsyncIterator[Piece], wanted: Schema | None) -> list[Piece]:
    """The first piece of an answer; all of them where they are to be looked at before they are given.

    Raises:
        EngineError: there is no piece, or they are not the JSON that is wanted.
    """
    held: list[Piece] = []
    async for piece in source:
        held.append(piece)
        if wanted is None:
            return held
    if not held:
        raise EngineError("the model ended without a piece of an answer")
    if not _is_valid("".join(piece.text for piece in held), wanted):
        raise EngineError("the answer is not the JSON that is demanded")
    return held


def _is_valid(text: str, wanted: Schema | None) -> bool:
    """Whether a text is valid JSON of the type and with the keys that are wanted at its top; any text is where none is.

    What is further inside is not compared with the schema.
    """
    if wanted is None:
        return True
    value = strict_json(text)
    if value is None or (wanted.accepts and type(value) not in wanted.accepts):
        return False
    return not isinstance(value, dict) or wanted.required <= value.keys()


def _with_route(piece: Piece, course: _Course) -> Piece:
    if piece.finish is None:
        return piece
    return replace(piece, facts={"model": course.model, **piece.facts, "route": course.said()})


def _together(course: _Course, errors: Sequence[Exception]) -> Exception:
    """What the client is told where nobody answered: the first refusal where all refused it, for it is the client's."""
    if len(errors) == 1 or all(isinstance(error, DataError | RecipeError) for error in errors):
        return errors[0]
    said = "; ".join(f"{one['model']}: {one['why']}" for one in course.tried)
    return EngineError(f"none of the models of this route answered: {said}", "look at the server's log, and ask again")


def _reason(error: BaseException) -> str:
    """Why, for clients: of errors that are not ours the type alone, because their texts may hold anything."""
    return one_line(Exception(error.cause)) if isinstance(error, PlumblineError) else type(error).__name__


def _named(asked: Asked) -> str:
    """A request's key as one word: it finds a shadow's row beside the decision."""
    return "/".join(str(part) for part in asked.request.key)[:200]


async def _close(source: AsyncIterator[Piece]) -> None:
    if isinstance(source, AsyncGenerator):
        await source.aclose()
