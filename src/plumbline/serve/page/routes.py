"""Routes of the page. Its files have fixed names; no path of a request is ever opened."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from importlib.resources import files
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from plumbline.errors import DataError, PlumblineError
from plumbline.evaluation.command import open_task_for
from plumbline.evaluation.evaluate import ORACLE, evaluate_references
from plumbline.evaluation.summary import part_means
from plumbline.records import Evaluation, Example
from plumbline.reports.templating import read_template
from plumbline.rollouts.reward_workers import judge
from plumbline.runs.metadata import ModelMetadata
from plumbline.runs.remote import local_model
from plumbline.serve.limits import Json, Refusal, RequestLimits, read_body
from plumbline.tasks import find_opener, silent
from plumbline.tasks.task import Task

FILES = {
    "/": ("index.html", "text/html"),
    "/page/page.css": ("page.css", "text/css"),
    "/page/shown.css": ("shown.css", "text/css"),
    "/page/page.js": ("page.js", "text/javascript"),
    "/page/icon.svg": ("icon.svg", "image/svg+xml"),
}
PUBLIC = frozenset({*FILES, "/page/palette.css"})
"""Paths that need no token: they say nothing of the models."""
POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors "
    "'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
LIMITS = RequestLimits(body=400_000)
"""Of a request for a verdict."""
LONGEST = 100_000
"""Characters of an answer to judge."""
WAITING = 16
"""Requests that may wait for the one thread that opens tasks and judges."""
SECONDS = 30.0
"""That a request may wait and take."""


def routes(sources: Mapping[str, str]) -> list[Route]:
    """The page, its files, `/try/examples` and `POST /try/judge`. A GET opens no task; a POST may.

    Args:
        sources: of each model that clients know by name its directory, or "" for one that has none.
    """
    contents = {
        path: (files(__package__).joinpath(name).read_bytes(), kind)
        for path, (name, kind) in FILES.items()
    }
    contents["/page/palette.css"] = (read_template("palette.css").encode(), "text/css")
    trials = Trials(sources)
    return [
        *(
            Route(path, partial(_file, *content), methods=["GET"])
            for path, content in contents.items()
        ),
        Route(
            "/try/examples",
            partial(_answer_json, partial(_examples, trials)),
            methods=["GET", "POST"],
        ),
        Route("/try/judge", partial(_answer_json, partial(_judge, trials)), methods=["POST"]),
    ]


async def _file(content: bytes, kind: str, request: Request) -> Response:  # noqa: ARG001
    return Response(content, media_type=kind, headers=HEADERS)


async def _answer_json(handle: Callable[[Request], Awaitable[Any]], request: Request) -> Response:
    """What a handler gives, as JSON; what there is not is refused."""
    try:
        value = await handle(request)
    except PlumblineError as error:
        raise Refusal(404, " ".join(str(error).split())) from error
    except ClientDisconnect:
        return Response(status_code=499)  # to nobody
    # In ASCII, so that half a surrogate pair in an answer cannot break the encoding.
    return Response(
        json.dumps(value), 200, {**HEADERS, "cache-control": "no-store"}, "application/json"
    )


async def _examples(trials: "Trials", request: Request) -> Any:
    asked = request.query_params
    offset = asked.get("offset", "0")
    if not (offset.isascii() and offset.isdigit() and len(offset) < 10):
        raise Refusal(400, "offset is a number from 0 on")
    given = (asked.get("model", ""), asked.get("task", ""), asked.get("split", ""))
    opens = request.method == "POST"
    return await trials.run(lambda: trials.list_examples(*given, int(offset), opens=opens))


async def _judge(trials: "Trials", request: Request) -> Any:
    try:
        value = json.loads(await read_body(request, LIMITS))
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "the body is no JSON") from error
    names = ("model", "task", "split", "example", "text")
    if not isinstance(value, dict) or not all(isinstance(value.get(name), str) for name in names):
        raise Refusal(400, f"the body is an object with the texts {', '.join(names)}")
    model, task, split, example, text = (value[name] for name in names)
    if len(text) > LONGEST:
        raise Refusal(413, f"an answer may have {LONGEST} characters")
    return await trials.run(lambda: trials.judge_answer((model, task, split), example, text))


# -- examples and verdicts -------------------------------------------------------------------------

AT_ONCE = 20
"""Examples that are listed at once."""
BESIDE = 24
"""The most examples that floor and ceiling are means over."""
DEEPEST, WIDEST = 6, 200
"""Of what a verdict reports as facts, which may hold whatever an answer held."""


class Trials:
    """Examples of the tasks that served models were trained on, and verdicts on answers to them, as
    plain JSON values.

    A task is opened when the page first asks for it. Nothing is built: a task whose records are not
    there has no examples, and says so; so does one whose code a model's metadata names (see
    `config.imports`). What stands beside a score are the best baseline (floor) and the oracle
    (ceiling) on the first examples of the same stratum. Tasks, and the databases that some of them
    hold, are for one thread at a time: what takes time goes through `run`.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        """Nothing is opened yet.

        Args:
            sources: of each model that clients know by name its directory, or "" for one that has
                none.
        """
        self.sources = sources
        self._tasks: dict[tuple[str, str], Task] = {}
        self._examples: dict[tuple[str, str, str], Mapping[str, Example]] = {}
        self._beside: dict[tuple[str, str, str, str], Json] = {}
        self._pool = ThreadPoolExecutor(1, "try")
        self._begun: list[Future[Any]] = []

    async def run(self, work: Callable[[], Any]) -> Any:
        """What `work` returns.

        Raises:
            Refusal: too many wait already, or it took too long; it then goes on, and what it opens
                is kept.
        """
        # What nobody waits for any more still counts until it has run, so that the line stays
        # short.
        self._begun = [future for future in self._begun if not future.done()]
        if len(self._begun) >= WAITING:
            raise Refusal(503, "too many wait for a verdict; try again later")
        self._begun.append(self._pool.submit(work))
        try:
            return await asyncio.wait_for(
                asyncio.shield(asyncio.wrap_future(self._begun[-1])), SECONDS
            )
        except TimeoutError as error:
            raise Refusal(503, f"no verdict after {SECONDS:.0f} seconds") from error

    def list_examples(
        self, model: str, task: str = "", split: str = "", offset: int = 0, *, opens: bool = True
    ) -> Json:
        """Some examples of a task that a model was trained on.

        Args:
            model: one of the sources' names.
            task: the name of one of several tasks; empty is the first.
            split: empty is test, or the task's last one.
            offset: of the first example.
            opens: whether the task may be opened, and its examples be read, if they were not
                before.

        Returns:
            tasks (names), task, splits, split, total (how many the split has), offset, examples
            (id, messages, gold, stratum), and why there are none.

        Raises:
            DataError: there is no such model, task or split.
        """
        names = self._names(model)
        chosen = task or next(iter(names), "")
        found: Json = {
            "tasks": names,
            "task": chosen,
            "splits": [],
            "split": split,
            "total": 0,
            "offset": offset,
            "examples": [],
            "why": "",
        }
        if not names:
            return {**found, "why": f"{model} does not say which task it was trained on"}
        if chosen not in names:
            raise DataError(
                f"{model} was not trained on the task {chosen[:100]!r}",
                f"it was on {', '.join(names)}",
            )
        if not opens and (model, chosen) not in self._tasks:
            return {**found, "why": f"the task {chosen} is not opened yet"}
        try:
            splits = self._task(model, chosen).splits
        except PlumblineError as error:
            return {**found, "why": str(error)}
        split = split or ("test" if "test" in splits else splits[-1])
        found |= {"splits": list(splits), "split": split}
        if split not in splits:
            raise DataError(f"{chosen} has no split {split[:100]!r}", f"it has {', '.join(splits)}")
        if not opens and (model, chosen, split) not in self._examples:
            return {**found, "why": f"the split {split} is not read yet"}
        try:
            examples = list(self._split(model, chosen, split).values())
        except PlumblineError as error:
            return {**found, "why": str(error)}
        found["total"] = len(examples)
        found["examples"] = [
            {"id": one.id, "messages": list(one.messages), "gold": one.gold, "stratum": one.stratum}
            for one in examples[offset : offset + AT_ONCE]
        ]
        return found

    def judge_answer(self, place: tuple[str, str, str], example: str, text: str) -> Json:
        """What an answer to an example comes to, whoever gave it.

        Args:
            place: model, task and split, as `listing` names them.
            example: its id.
            text: the answer.

        Returns:
            how (it was read), said (what was read, where the task can tell), score and parts (None
            where there is none), failure (why there is no score), facts, floor and ceiling (name,
            score, parts, n; None where there is none), and pages (HTML of what it fills in).

        Raises:
            DataError: there is no such example.
            PlumblineError: the task cannot be opened.
        """
        model, chosen, split = place
        if chosen not in self._names(model):
            raise DataError(
                f"{model} was not trained on the task {chosen[:100]!r}", "/try/examples names them"
            )
        task = self._task(model, chosen)
        asked = self._split(model, chosen, split).get(example)
        if asked is None:
            raise DataError(
                f"there is no example {example[:100]!r} in {split}", "/try/examples names them"
            )
        outcome, score, failure = judge(task, asked, text)
        said = task.canonicalise_answer(asked, text)
        return {
            "how": outcome.how,
            "said": to_json_value(sorted(said or (), key=str)),
            "score": None if score is None else score.total,
            "parts": {} if score is None else dict(score.parts),
            "failure": "" if failure is None else str(failure),
            "facts": to_json_value(outcome.facts),
            **self._bounds(place, asked.stratum),
            "pages": list(task.render_pages(asked, text)),
        }

    def _names(self, model: str) -> list[str]:
        """The tasks that a model was trained on, by the names that its recipe gave them."""
        if model not in self.sources:
            raise DataError(f"there is no model {model[:100]!r}", "/v1/models lists them")
        source = self.sources[model]
        metadata = ModelMetadata.read(local_model(source)) if source else None
        return [] if metadata is None else list(metadata.tasks) or [metadata.task]

    def _task(self, model: str, name: str) -> Task:
        key = (model, name)
        if key not in self._tasks:
            source = local_model(self.sources[model])
            metadata = ModelMetadata.read(source)
            kind = metadata.tasks[name]["name"] if metadata is not None and metadata.tasks else name
            # Nothing heavy, such as a browser, is started for somebody who asks over HTTP.
            options = getattr(find_opener(kind), "served", {})
            self._tasks[key] = open_task_for(str(source), name, options, None, silent)
        return self._tasks[key]

    def _split(self, model: str, name: str, split: str) -> Mapping[str, Example]:
        """The examples of a split by id."""
        key = (model, name, split)
        if key not in self._examples:
            task = self._task(model, name)
            if not task.built:
                raise DataError(
                    f"the records of the task {name} are not here",
                    "serve the model from its run's folder",
                )
            self._examples[key] = {one.id: one for one in task.examples(split)}
        return self._examples[key]

    def _bounds(self, place: tuple[str, str, str], stratum: str) -> Json:
        """The best baseline and the oracle on the first examples of a stratum."""
        key = (*place, stratum)
        if key not in self._beside:
            model, name, split = place
            part = [one for one in self._split(*place).values() if one.stratum == stratum][:BESIDE]
            found = dict(evaluate_references(self._task(model, name), part, split))
            ceiling = found.pop(ORACLE, None)
            floor = max(found.values(), key=lambda baseline: baseline.mean_reward, default=None)
            self._beside[key] = {
                "floor": _summarise_evaluation(floor),
                "ceiling": _summarise_evaluation(ceiling),
            }
        return self._beside[key]


def _summarise_evaluation(evaluation: Evaluation | None) -> Json | None:
    if evaluation is None or not evaluation.rows:
        return None
    parts = {name: interval.mean for name, interval in part_means(evaluation.rows).items()}
    return {
        "name": evaluation.source,
        "score": evaluation.mean_reward,
        "parts": parts,
        "n": len(evaluation.rows),
    }


def to_json_value(value: Any, depth: int = 0) -> Any:
    """A value as JSON can hold it, cut where it is deep or wide; what JSON does not know becomes
    text."""
    match value:
        case None | bool():
            return value
        case int():
            return value if value.bit_length() < 64 else f"(a number of {value.bit_length()} bits)"
        case float() if math.isfinite(value):
            return value
        case str() | bytes():
            return str(value)
        case Mapping() | Sequence() | set() | frozenset() if (
            depth == DEEPEST or len(value) > WIDEST
        ):
            return f"({len(value)} entries)"
        case Mapping():
            return {str(key): to_json_value(one, depth + 1) for key, one in value.items()}
        case Sequence() | set() | frozenset():
            return [to_json_value(one, depth + 1) for one in value]
    return str(value)
