"""A `Backend` over several: which model answers is read from a table, and each decision is logged
and counted.

The job of a request is what the client says in its metadata (`job`), else what the text asks for,
else the table's default. Where a model fails before its first piece, the route's next one is asked.
A shadow gets a copy of some requests when their answers have ended: it costs no client time, and
its answers go to the log alone.
"""

import asyncio
import difflib
import json
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from plumbline.checks.diagnosis.routes import Route, RoutingTable
from plumbline.config.imports import loaded, plugins
from plumbline.errors import DataError, EngineError, PlumblineError, RecipeError
from plumbline.records import Message
from plumbline.runs import output_guard
from plumbline.serve.backend import Asked, Backend, Piece
from plumbline.serve.metrics import Disk, now
from plumbline.storage import JsonLines, clear_os_errors, one_line, open_regular
from plumbline.tasks.text.json_schema import Schema
from plumbline.tasks.text.lenient_json import strict_json

LONGEST = 8_000
"""Characters of a request that classifiers look at, so that a long one does not hold up the
others."""
LOGGED = 4_000
"""Characters of an answer that are logged beside a shadow's."""
COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "answers": ("Answers of a router, by what became of them", ("job", "model", "status")),
    "refused": ("Requests that no route was found for", ()),
    "fallbacks": (
        "Models that failed, and after which the route's next was asked",
        ("job", "model", "why"),
    ),
    "shadows": (
        "Requests that a shadow got, or for which there was no space",
        ("job", "model", "status"),
    ),
    "log_rows": ("Rows of the decision log", ("status",)),
}
"""What Prometheus reads, with labels. Jobs and models are the table's, so nobody can make counters
at will."""


# -- what was decided ------------------------------------------------------------------------------


class DecisionLog:
    """An append-only file of JSON lines that is renamed to `.1`, `.2`, ... when it is full, and the
    counters."""

    def __init__(
        self, path: Path | None = None, *, most_bytes: int = 50_000_000, kept: int = 4
    ) -> None:
        """Open the log.

        Args:
            path: of the file; None counts and writes nothing.
            most_bytes: the file is put aside before a row would be written to one of so many bytes.
            kept: files that were put aside and are kept; with the open one the log takes (kept + 1)
                * most_bytes.

        Raises:
            StorageError: the place cannot be written, or holds a file that is no decision log.
        """
        self.path, self.most_bytes, self.kept = path, most_bytes, kept
        self.counts: Counter[tuple[str, ...]] = Counter()
        """By name and a word for each label; see `COUNTERS`."""
        self._disk = Disk("the decision log")
        if path is None:
            return
        output_guard.check_file(path, "decision log", _is_log)
        with clear_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)  # rows of shadows hold answers
            path.open("ab").close()
        JsonLines(path).cut_torn()

    def write(self, kind: str, row: Mapping[str, Any]) -> None:
        """Write a row (a decision, or a shadow) with the present time, or count it as lost."""
        if self.path is None:
            return
        kept = self._disk.takes(
            partial(self._write, self.path, {"kind": kind, "time": now(), **row})
        )
        self.counts["log_rows", "written" if kept else "lost"] += 1

    def _write(self, path: Path, row: Mapping[str, Any]) -> None:
        lines = JsonLines(path)
        if lines.size() >= self.most_bytes:
            self._put_aside(path)
        lines.append(row)

    def _put_aside(self, path: Path) -> None:
        names = [
            path,
            *(path.with_name(f"{path.name}.{number}") for number in range(1, self.kept + 1)),
        ]
        with clear_os_errors(path):
            for name, older in reversed([*pairwise(names)]):
                if name.exists():
                    name.replace(older)
            path.touch(mode=0o600)


def _is_log(path: Path) -> bool:
    """Whether a file begins with a row of ours."""
    with open_regular(path) as file, suppress(ValueError, AttributeError):
        return {"kind", "time"} <= json.loads(file.readline(100_000)).keys()
    return False


# -- router ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class RoutedRequest:
    """Where a request goes, and what becomes of it."""

    asked: Asked
    job: str
    """Empty where the default is a model, and no job is known."""
    how: Literal["metadata", "classifier", "default"]
    """How the job was found."""
    route: Route
    wanted: Schema | None = None
    """What JSON the answer has to be; None for any text."""
    began: float = field(default_factory=time.perf_counter)
    model: str = ""
    tried: list[dict[str, str]] = field(default_factory=list)
    """Models that failed, and why."""
    first: float | None = None
    """Seconds until the first piece was there."""
    text: list[str] = field(default_factory=list)
    status: str = "gone"
    """ok; invalid, for JSON that is none; stopped, where the reader had enough (a stop text); the
    name of an error; or gone, as its client is."""

    @property
    def request(self) -> str:
        """The request's key as one word: it finds a shadow's row beside the decision."""
        return "/".join(map(str, self.asked.request.key))[:200]


class Router(Backend, Collector):
    """A `Backend` that asks others, and their counters; see the module. It runs in one event
    loop."""

    name = family = "router"

    def __init__(
        self,
        table: RoutingTable,
        models: Mapping[str, Backend],
        log: DecisionLog | None = None,
        *,
        timeout: float = 30.0,
        shadow_timeout: float = 120.0,
        shadow_queue: int = 16,
    ) -> None:
        """Nothing is asked yet.

        Args:
            table: which model does which job.
            models: by the names that the table gives them. Whoever opened them closes them.
            log: where decisions go; None only counts them.
            timeout: seconds in which a model has to begin its answer, or to end it where it has to
                be JSON, while there is another one to ask. The last one has the time that the
                server gives.
            shadow_timeout: seconds in which a shadow has to end its answer.
            shadow_queue: requests that wait for shadows; what comes when so many wait is dropped,
                and counted.

        Raises:
            RecipeError: the table names a model that is not there, or sends nothing anywhere.
        """
        for name in table.models:
            if name not in models:
                close = difflib.get_close_matches(name, [*models, *table.routes], n=1)
                raise RecipeError(
                    f"the routing table names {name}, which is not among the models that are served",
                    f"did you mean {close[0]}?"
                    if close
                    else f"serve it, too, or name one of {', '.join(models)}",
                )
        if not table.models:
            raise RecipeError(
                "the routing table has no route", "`plumbline route RUN ... --out FILE` writes one"
            )
        self.table, self.models, self.log = table, models, log or DecisionLog()
        self.timeout, self.shadow_timeout = timeout, shadow_timeout
        self.collectors = (self,)
        self.classifiers = [
            loaded(one, "classifier of requests")
            for one in plugins("plumbline.classifiers").values()
        ]
        # A model that is too short for a request refuses it, and the next is asked.
        self.context = max(models[name].context for name in table.models)
        self._seen: Counter[str] = Counter()
        self._waiting: asyncio.Queue[RoutedRequest] = asyncio.Queue(shadow_queue)
        self._worker: asyncio.Task[None] | None = None

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """Tokens as the model counts them that does the job which the text asks for; else the
        table's first.

        Raises:
            DataError: the template refuses the chat.
        """
        name = self._job_of(messages) or self.table.default or self.table.models[0]
        return self.models[self.table.routes.get(name, Route(name)).model].prompt_length(messages)

    def counts(self) -> Mapping[tuple[str, ...], int]:
        """What was decided so far, by name and labels; see `COUNTERS`."""
        return dict(self.log.counts)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """A family for each counter, read when Prometheus asks for it."""
        for name, (said, labels) in COUNTERS.items():
            family = CounterMetricFamily(f"plumbline_router_{name}", said, labels=labels)
            for (what, *values), count in self.counts().items():
                if what == name:
                    family.add_metric(values, count)
            yield family

    def destination(self, asked: Asked) -> RoutedRequest:
        """Where a request goes.

        Raises:
            DataError: it names a job without a route; or nothing says its job, and the table has no
                default.
        """
        routes, default, job = self.table.routes, self.table.default, asked.metadata.get("job")
        how: Literal["metadata", "classifier", "default"] = "metadata"
        if job is None:
            job, how = self._job_of(asked.request.messages), "classifier"
        if job is None:
            job, how = default, "default"
        if job is not None and job in routes:
            return RoutedRequest(asked, job, how, routes[job])
        if job is not None and how == "default":
            return RoutedRequest(asked, "", how, Route(job))
        unknown = "nothing says which job the request is of"
        what = unknown if job is None else f"there is no route for the job {job[:60]!r}"
        raise DataError(what, f"give metadata.job one of {', '.join(routes)}")

    def _job_of(self, messages: Sequence[Message]) -> str | None:
        """The job with a route that the last thing asked is recognised by."""
        text = next((one["content"] for one in reversed(messages) if one["role"] == "user"), "")
        jobs = (classify(text[:LONGEST]) for classify in self.classifiers)
        return next((job for job in jobs if job in self.table.routes), None)

    async def answer(self, asked: Asked) -> AsyncGenerator[Piece, None]:
        """See `Backend.answer`; the facts of the last piece say under `route` who answered, and
        why.

        Raises:
            DataError: see `destination`; the schema is none; or so said every model that was asked.
            EngineError: several models were asked, and none answered.
        """
        schema = asked.schema
        wanted = (
            None
            if schema is None
            else await asyncio.to_thread(Schema.from_json, schema or {"type": "object"})
        )
        try:
            course = self.destination(asked)
        except DataError:
            self.log.counts["refused",] += 1
            raise
        course.wanted = wanted
        pieces = self._pieces(course)
        try:
            async for piece in pieces:
                course.first = course.first or time.perf_counter() - course.began
                course.text.append(piece.text)
                if piece.finish is None:
                    yield piece
                    continue
                route = {
                    "job": course.job,
                    "how": course.how,
                    "model": course.model,
                    "tried": course.tried,
                }
                yield replace(piece, facts={"model": course.model, **piece.facts, "route": route})
            course.status = "ok" if _is_valid("".join(course.text), wanted) else "invalid"
        except GeneratorExit:
            course.status = "stopped"
            raise
        except Exception as error:
            course.status = type(error).__name__
            raise
        finally:
            await pieces.aclose()
            self._record(course)

    async def _pieces(self, course: RoutedRequest) -> AsyncGenerator[Piece, None]:
        """The answer of the first model of the route that begins one."""
        chain = (course.route.model, *course.route.fallback)
        errors: list[Exception] = []
        for name in chain:
            course.model = name
            others = len(errors) + 1 < len(chain)
            async with aclosing(self.models[name].answer(course.asked)) as source:
                try:
                    async with asyncio.timeout(self.timeout if others else None):
                        held = await _held(source, course.wanted if others else None)
                except Exception as error:  # noqa: BLE001 - whatever fails in a model, another one may answer
                    errors.append(error)
                    course.tried.append({"model": name, "why": _reason(error)})
                    if others:
                        self.log.counts["fallbacks", course.job, name, type(error).__name__] += 1
                    continue
                for piece in held:
                    yield piece
                async for piece in source:
                    yield piece
                return
        # The first refusal where all refused it, for then it is the client's.
        if len(errors) == 1 or all(isinstance(error, DataError | RecipeError) for error in errors):
            raise errors[0]
        said = "; ".join(f"{one['model']}: {one['why']}" for one in course.tried)
        raise EngineError(
            f"none of the models of this route answered: {said}",
            "look at the server's log, and ask again",
        ) from errors[0]

    def _record(self, course: RoutedRequest) -> None:
        """Count and log a decision, and have a shadow asked where this answer belongs to its
        share."""
        job, route, shadow = course.job, course.route, None
        if course.status == "ok" and route.shadow is not None:
            # Evenly spread, the same at every repetition.
            before, share = self._seen[job], route.shadow_share
            self._seen[job] += 1
            if math.floor((before + 1) * share + 1e-9) > math.floor(before * share + 1e-9):
                self._worker = self._worker or asyncio.create_task(self._ask_shadows())
                try:
                    self._waiting.put_nowait(course)
                    shadow = route.shadow
                except asyncio.QueueFull:
                    self.log.counts["shadows", job, route.shadow, "dropped"] += 1
        self.log.counts["answers", job, course.model, course.status] += 1
        self.log.write(
            "decision",
            {
                "request": course.request,
                "job": job,
                "how": course.how,
                "model": course.model,
                "fallback": course.tried,
                "shadow": shadow,
                "first_seconds": None if course.first is None else round(course.first, 4),
                "seconds": round(time.perf_counter() - course.began, 4),
                "status": course.status,
            },
        )

    async def _ask_shadows(self) -> None:
        """Ask shadows, one request after the other."""
        while True:
            course = await self._waiting.get()
            name, began, answer = str(course.route.shadow), time.perf_counter(), ""
            status, why = "ok", ""
            try:
                async with aclosing(self.models[name].answer(course.asked)) as source:
                    async with asyncio.timeout(self.shadow_timeout):
                        async for piece in source:
                            answer += piece.text
                if not _is_valid(answer, course.wanted):
                    status = "invalid"
            except Exception as error:  # noqa: BLE001 - nobody waits for a shadow: what fails there fails nothing else
                status, why = "failed", _reason(error)
            finally:
                self._waiting.task_done()
            returned = "".join(course.text)
            self.log.counts["shadows", course.job, name, status] += 1
            self.log.write(
                "shadow",
                {
                    "request": course.request,
                    "job": course.job,
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
    table: RoutingTable,
    models: Sequence[Backend],
    sources: Mapping[str, str],
    log: Path | None = None,
) -> Router:
    """A router over models that are served; `sources` is where each is, by the name that it is
    served as.

    Raises:
        RecipeError: it names a model that is not there, or the router's name is taken.
        StorageError: the log cannot be written.
    """
    router = Router(table, as_named(table, models, sources), log=DecisionLog(log))
    if any(served.name == router.name for served in models):
        raise RecipeError(
            f"a model is called {router.name}, as the router is",
            f"name it: NAME={sources[router.name]}",
        )
    return router


def as_named(
    table: RoutingTable, models: Sequence[Backend], sources: Mapping[str, str]
) -> dict[str, Backend]:
    """Models by the names that a table gives them: what they are served as, or where they are.

    Args:
        table: `plumbline route` writes paths into it.
        models: that are served.
        sources: where each is, by the name that it is served as.
    """
    found = {served.name: served for served in models}
    places = {_place(source): found[name] for name, source in sources.items() if name in found}
    return {
        **{name: places[_place(name)] for name in table.models if _place(name) in places},
        **found,
    }


def _place(source: str) -> str:
    return str(Path(source).resolve()) if Path(source).exists() else source


async def _held(source: AsyncIterator[Piece], wanted: Schema | None) -> list[Piece]:
    """The first piece of an answer; all of them where they are to be looked at before they are
    given.

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
    """Whether a text is valid JSON of the type and with the keys that are wanted at its top; any
    text is where none is.

    What is further inside is not compared with the schema.
    """
    if wanted is None:
        return True
    value = strict_json(text)
    if value is None or (wanted.accepts and type(value) not in wanted.accepts):
        return False
    return not isinstance(value, dict) or wanted.required <= value.keys()


def _reason(error: BaseException) -> str:
    """Why, for clients: of errors that are not ours the type alone, because their texts may hold
    anything."""
    return (
        one_line(Exception(error.cause))
        if isinstance(error, PlumblineError)
        else type(error).__name__
    )
