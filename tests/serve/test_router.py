"""Requests go where the table says, to the next model where one fails, and to a shadow that nobody
waits for."""

import asyncio
import json
import logging
from dataclasses import dataclass, field

import pytest

from plumbline.checks.diagnosis.routes import VERSION, Route, RoutingTable
from plumbline.errors import DataError, EngineError, PlumblineError, RecipeError, StorageError
from plumbline.records import Request, Sampling
from plumbline.serve.backend import AnswerChunk, AnswerRequest, Backend
from plumbline.serve.router import DecisionLog, Router, as_named, open_router
from plumbline.storage import JsonLines
from plumbline.tasks import open_task
from plumbline_commerce.build import build_commerce
from plumbline_commerce.options import CommerceOptions
from plumbline_commerce.sql_qa import engine

FIRST_A_THEN_B = {"push": {"model": "a", "fallback": ("b",)}}
SQL = "Escreva uma consulta SQL: quantos pedidos foram entregues?"


@dataclass
class Fake(Backend):
    """Answers with its words, one a piece; may fail before or after the first, or wait."""

    name: str
    words: tuple[str, ...] = ("a", "b")
    fails: Exception | None = None
    fails_at: int = 0
    waits: float = 0.0
    gate: asyncio.Event | None = None
    """What its first word waits for."""
    family: str = "fake"
    context: int = 100
    asked: int = 0
    closed: int = 0
    running: int = 0
    most: int = field(default=0)

    def prompt_length(self, messages):
        return len(self.name) + len(messages)

    async def answer(self, asked):
        self.asked += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.gate is not None:
                await self.gate.wait()
            for place, word in enumerate(self.words):
                if self.fails is not None and place == self.fails_at:
                    raise self.fails
                await asyncio.sleep(self.waits)
                last = place + 1 == len(self.words)
                yield AnswerChunk(
                    text=word, finish="stop" if last else None, facts={"tries": 1} if last else {}
                )
        finally:
            self.closed += 1
            self.running -= 1

    async def close(self):
        raise AssertionError("whoever opened a model closes it")


def asked(text="oi", *, number=0, schema=None, **metadata):
    request = Request((0, number), [{"role": "user", "content": text}], Sampling())
    return AnswerRequest(request=request, schema=schema, metadata=metadata)


def table(routes, default=None):
    return RoutingTable(VERSION, {job: Route(**one) for job, one in routes.items()}, default)


async def read(router, one):
    pieces = [piece async for piece in router.answer(one)]
    return "".join(piece.text for piece in pieces), pieces[-1].facts


def answered(router, *all_asked):
    """What each request got, asked one after the other: text and facts, or the error."""

    async def both():
        found = []
        for one in all_asked:
            try:
                found.append(await read(router, one))
            except PlumblineError as error:
                found.append(error)
        await router.drain()
        await router.close()
        return found

    return asyncio.run(both())


def by_name(*fakes):
    return {one.name: one for one in fakes}


def test_the_job_is_the_metadatas_else_the_texts_else_the_default():
    models = by_name(Fake("small"), Fake("large"), Fake("rest"))
    routes = {"push": {"model": "small"}, "sql_qa": {"model": "large"}}
    router = Router(table(routes, "rest"), models)
    found = answered(
        router, asked(SQL, job="push"), asked(SQL), asked("bom dia"), asked("bom dia", job="sql")
    )
    ways = [
        (facts["route"]["job"], facts["route"]["how"], facts["model"]) for _, facts in found[:3]
    ]
    assert ways == [
        ("push", "metadata", "small"),
        ("sql_qa", "classifier", "large"),
        ("", "default", "rest"),
    ]
    assert [text for text, _ in found[:3]] == ["ab"] * 3
    assert found[0][1]["tries"] == 1, "what the model says of itself is kept"
    assert isinstance(found[3], DataError), (
        "a job that a client names and nobody has is the client's mistake"
    )
    assert "push, sql_qa" in found[3].fix
    assert router.counts() == {
        ("answers", "push", "small", "ok"): 1,
        ("answers", "sql_qa", "large", "ok"): 1,
        ("answers", "", "rest", "ok"): 1,
        ("refused",): 1,
    }
    lengths = [router.prompt_length(asked(text).request.messages) for text in (SQL, "bom dia")]
    assert lengths == [len("large") + 1, len("rest") + 1], (
        "without its metadata nobody knows a request's job"
    )


def test_without_a_default_a_request_of_no_job_is_refused():
    (found,) = answered(
        Router(table({"push": {"model": "a"}}), by_name(Fake("a"))), asked("bom dia")
    )
    assert isinstance(found, DataError)
    assert "metadata.job" in found.fix


def test_a_default_may_be_a_job_with_all_that_it_has():
    models = by_name(Fake("a", fails=EngineError("down")), Fake("b"))
    ((_, facts),) = answered(Router(table(FIRST_A_THEN_B, "push"), models), asked("bom dia"))
    assert facts["route"] == {
        "job": "push",
        "how": "default",
        "model": "b",
        "tried": [{"model": "a", "why": "down"}],
    }


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (Fake("a", fails=EngineError("the server is gone")), "the server is gone"),
        (Fake("a", fails=RuntimeError("/home/secret/weights")), "RuntimeError"),
        (Fake("a", fails=DataError("exceeds the context")), "exceeds the context"),
        (Fake("a", waits=5), "TimeoutError"),
        (Fake("a", words=()), "the model ended without a piece of an answer"),
    ],
)
def test_where_a_model_fails_before_its_first_piece_the_next_is_asked(first, why):
    models = by_name(first, Fake("b"))
    router = Router(table(FIRST_A_THEN_B), models, timeout=0.05)
    ((text, facts),) = answered(router, asked(job="push"))
    assert (text, facts["model"]) == ("ab", "b")
    assert facts["route"]["tried"] == [{"model": "a", "why": why}]
    assert first.running == 0, "what failed or was too slow is closed"
    assert router.counts()["answers", "push", "b", "ok"] == 1
    assert sum(count for name, count in router.counts().items() if name[0] == "fallbacks") == 1


@pytest.mark.parametrize(
    ("words", "schema", "good"),
    [
        (("{", '"a": 1', "}"), {}, True),
        (("{", '"a": 4,5', "}"), {}, False),
        (("[1]",), {}, False),
        (("[1]",), {"type": "array"}, True),
        (('{"a": 1}',), {"type": "object", "required": ["b"]}, False),
        (('{"a"', ": 1"), {"type": "object"}, False),
        (("não sei",), None, True),
    ],
)
def test_an_answer_that_is_not_the_json_that_is_demanded_is_not_given(words, schema, good):
    models = by_name(Fake("a", words), Fake("b", ("{}",)))
    router = Router(table(FIRST_A_THEN_B), models)
    ((text, facts),) = answered(router, asked(job="push", schema=schema))
    assert (text, facts["model"]) == (("".join(words), "a") if good else ("{}", "b"))
    if not good:
        assert "not the JSON" in facts["route"]["tried"][0]["why"]


def test_a_schema_that_is_none_is_refused_before_anybody_is_asked():
    models = by_name(Fake("a"))
    (found,) = answered(
        Router(table({"push": {"model": "a"}}), models), asked(job="push", schema={"type": "objet"})
    )
    assert isinstance(found, DataError)
    assert models["a"].asked == 0


def test_the_last_models_json_is_given_as_it_comes_and_its_status_says_what_it_is():
    router = Router(table({"push": {"model": "a"}}), by_name(Fake("a", ("{", "4,5"))))
    ((text, _),) = answered(router, asked(job="push", schema={}))
    assert text == "{4,5"
    assert router.counts() == {("answers", "push", "a", "invalid"): 1}


def test_a_model_that_fails_in_the_middle_is_not_replaced():
    """The client has read half of its answer."""
    models = by_name(Fake("a", ("a", "b"), EngineError("down"), 1), Fake("b"))
    router = Router(table(FIRST_A_THEN_B), models)
    (found,) = answered(router, asked(job="push"))
    assert isinstance(found, EngineError)
    assert models["b"].asked == 0
    assert router.counts() == {("answers", "push", "a", "EngineError"): 1}


@pytest.mark.parametrize(
    ("first", "second", "kind", "said"),
    [
        (EngineError("one"), RuntimeError("two"), EngineError, "a: one; b: RuntimeError"),
        (DataError("too long"), RecipeError("no such law"), DataError, "too long"),
        (DataError("too long"), EngineError("down"), EngineError, "a: too long; b: down"),
    ],
)
def test_where_nobody_answers_the_error_says_of_each_why(first, second, kind, said):
    models = by_name(Fake("a", fails=first), Fake("b", fails=second))
    router = Router(table(FIRST_A_THEN_B), models)
    (found,) = answered(router, asked(job="push"))
    assert type(found) is kind
    assert said in found.cause


def test_a_client_that_goes_away_ends_the_work():
    models = by_name(Fake("a", ("x",) * 50, waits=0.001))
    router = Router(table({"push": {"model": "a", "shadow": "a2"}}), {**models, "a2": Fake("a2")})

    async def half():
        stream = router.answer(asked(job="push"))
        await anext(stream)
        await stream.aclose()
        assert models["a"].running == 0
        task = asyncio.create_task(read(router, asked(job="push")))
        await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert models["a"].running == 0
        await router.close()

    asyncio.run(half())
    counts = {("answers", "push", "a", "stopped"): 1, ("answers", "push", "a", "gone"): 1}
    assert router.counts() == counts, "and no shadow is asked for what nobody got"


def test_a_shadow_gets_its_share_is_logged_and_never_returned(tmp_path):
    log = DecisionLog(tmp_path / "log.jsonl")
    models = by_name(Fake("a"), Fake("s", ("c",)))
    router = Router(
        table({"push": {"model": "a", "shadow": "s", "shadow_share": 0.25}}), models, log=log
    )
    found = answered(router, *(asked(job="push", number=number) for number in range(40)))
    assert {text for text, _ in found} == {"ab"}
    assert models["s"].asked == 10
    rows = JsonLines(log.path).rows()
    shadows = [row for row in rows if row["kind"] == "shadow"]
    decisions = {row["request"]: row for row in rows if row["kind"] == "decision"}
    assert (len(shadows), len(decisions)) == (10, 40)
    assert sum(row["shadow"] == "s" for row in decisions.values()) == 10
    row = shadows[0]
    assert (row["returned"], row["answer"], row["same"], row["status"]) == ("ab", "c", False, "ok")
    assert decisions[row["request"]]["shadow"] == "s"
    assert router.counts()["shadows", "push", "s", "ok"] == 10


def test_a_slow_or_broken_shadow_delays_nothing_and_what_does_not_fit_is_dropped_and_counted():
    models = by_name(Fake("a"), Fake("s", gate=asyncio.Event()))
    router = Router(
        table({"push": {"model": "a", "shadow": "s"}}), models, shadow_queue=3, shadow_timeout=300
    )

    async def all_of_them():
        await asyncio.gather(
            *(read(router, asked(job="push", number=number)) for number in range(20))
        )
        assert models["s"].closed == 0, "all are answered before a shadow's first word"
        models["s"].fails = RuntimeError("broken")
        models["s"].gate.set()
        await router.drain()
        models["s"].waits, models["s"].fails, router.shadow_timeout = 300, None, 0.05
        await read(router, asked(job="push"))
        await router.drain()
        await router.close()

    asyncio.run(all_of_them())
    counts = router.counts()
    dropped, failed = (
        counts["shadows", "push", "s", "dropped"],
        counts["shadows", "push", "s", "failed"],
    )
    assert dropped + failed == 21
    assert 3 <= failed - 1 <= 4, "three wait, one may be asked already"
    assert models["s"].most == 1
    assert models["s"].running == 0
    assert counts["answers", "push", "a", "ok"] == 21


def test_each_decision_is_a_line(tmp_path):
    log = DecisionLog(tmp_path / "log.jsonl")
    models = by_name(Fake("a", fails=EngineError("down")), Fake("b"))
    router = Router(table(FIRST_A_THEN_B), models, log=log)
    answered(router, asked(job="push", number=7))
    (row,) = JsonLines(log.path).rows()
    assert row.pop("time").startswith("20")
    assert 0 <= row.pop("first_seconds") <= row.pop("seconds")
    assert row == {
        "kind": "decision",
        "request": "0/7",
        "job": "push",
        "how": "metadata",
        "model": "b",
        "fallback": [{"model": "a", "why": "down"}],
        "shadow": None,
        "status": "ok",
    }


def test_the_log_stays_small_and_keeps_the_newest_rows(tmp_path):
    log = DecisionLog(tmp_path / "log.jsonl", most_bytes=2000, kept=2)
    for number in range(200):
        log.write("decision", {"number": number})
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["log.jsonl", "log.jsonl.1", "log.jsonl.2"]
    assert max(path.stat().st_size for path in files) < 2100
    numbers = [row["number"] for path in reversed(files) for row in JsonLines(path).rows()]
    assert numbers == [*range(numbers[0], 200)]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_a_full_disk_is_told_once_and_fails_no_request(tmp_path, monkeypatch, caplog):
    log = DecisionLog(tmp_path / "log.jsonl")

    def full(*_):
        raise StorageError("cannot write it: No space left on device")

    monkeypatch.setattr(JsonLines, "append", full)
    router = Router(table({"push": {"model": "a"}}), by_name(Fake("a")), log=log)
    with caplog.at_level(logging.ERROR):
        found = answered(router, *(asked(job="push") for _ in range(3)))
    assert [text for text, _ in found] == ["ab"] * 3
    assert router.counts()["log_rows", "lost"] == 3
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text


def test_a_log_that_cannot_be_written_or_is_somebody_elses_is_an_error_at_the_start(tmp_path):
    (tmp_path / "mine.txt").write_text("my notes\n")
    for place in (tmp_path / "mine.txt", tmp_path, tmp_path / "mine.txt" / "log"):
        with pytest.raises(StorageError):
            DecisionLog(place)
    assert (tmp_path / "mine.txt").read_text() == "my notes\n"
    DecisionLog(tmp_path / "log.jsonl").write("decision", {"number": 0})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"torn')
    DecisionLog(tmp_path / "log.jsonl").write("decision", {"number": 1})
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["number"] for row in lines] == [0, 1]


@pytest.mark.parametrize(
    ("routes", "default", "said"),
    [
        ({"push": {"model": "smal"}}, None, "did you mean small?"),
        ({"push": {"model": "small", "fallback": ("x",)}}, None, "names x"),
        ({"push": {"model": "small", "shadow": "y"}}, None, "names y"),
        ({"push": {"model": "small"}}, "psh", "did you mean push?"),
        ({}, None, "no route"),
    ],
)
def test_a_table_that_sends_requests_nowhere_is_an_error_at_the_start(routes, default, said):
    with pytest.raises(RecipeError, match=said.replace("?", r"\?")):
        Router(table(routes, default), by_name(Fake("small")))


def test_a_table_may_name_a_model_by_its_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "small" / "models" / "rl").mkdir(parents=True)
    small, large = Fake("small"), Fake("large")
    routes = table({"push": {"model": "runs/small/models/rl", "fallback": ("large",)}}, "org/hub")
    sources = {
        "small": str(tmp_path / "runs/small/models/rl"),
        "large": "org/large",
        "hub": "org/hub",
    }
    named = as_named(routes, [small, large, hub := Fake("hub")], sources)
    assert (named["runs/small/models/rl"], named["large"], named["org/hub"]) == (small, large, hub)
    Router(routes, named)


def test_the_server_routes_by_a_requests_metadata_and_text_and_shows_the_counts(tmp_path):
    from tests.serve.serving import Scripted, running

    httpx = pytest.importorskip("httpx")
    small, large = Scripted("small", ("s",)), Scripted("large", ("l",))
    routes = table({"push": {"model": "small"}, "sql_qa": {"model": "large", "shadow": "small"}})
    router = open_router(
        routes, [small, large], {"small": "x", "large": "y"}, tmp_path / "log.jsonl"
    )
    with running([small, large, router]) as server:

        def ask(text, **more):
            chat = {"model": "router", "messages": [{"role": "user", "content": text}], **more}
            return httpx.post(f"{server.address}/v1/chat/completions", json=chat)

        found = ask("bom dia", metadata={"job": "push"}).json()
        assert found["choices"][0]["message"]["content"] == "s"
        assert found["plumbline"]["route"] == {
            "job": "push",
            "how": "metadata",
            "model": "small",
            "tried": [],
        }
        assert ask(SQL).json()["choices"][0]["message"]["content"] == "l"
        assert '"content":"l"' in ask(SQL, stream=True).text.replace(" ", "")
        refused = ask("bom dia")
        assert (refused.status_code, "metadata.job" in refused.json()["error"]["message"]) == (
            400,
            True,
        )
        page = httpx.get(f"{server.address}/metrics").text
    answers = 'plumbline_router_answers_total{job="sql_qa",model="large",status="ok"} 2.0'
    assert answers in page
    assert "plumbline_router_refused_total 1.0" in page
    assert len(JsonLines(tmp_path / "log.jsonl").rows()) >= 3


def test_the_routers_name_is_its_own():
    with pytest.raises(RecipeError, match="as the router is"):
        open_router(table({"push": {"model": "router"}}), [Fake("router")], {"router": "models/x"})


def test_real_requests_of_each_job_find_their_model(tmp_path, monkeypatch):
    """The classifier on prompts that it was not told the job of, through the whole router."""
    monkeypatch.setattr(engine, "ORDERS", 500)  # of the databases on which questions are tried
    counts = {"extraction": 60, "sql_qa": 30, "insights": 30, "push": 30}
    build_commerce(CommerceOptions(seed=42, orders=300, **counts), tmp_path)
    router = Router(
        table({job: {"model": job} for job in counts}), {job: Fake(job) for job in counts}
    )
    found = []
    for job in counts:
        task = open_task("commerce", {"job": job}, tmp_path)
        for example in (one for split in task.splits for one in task.examples(split)):
            asked = AnswerRequest(request=Request((0,), example.messages, Sampling()))
            found.append((job, router.destination(asked).route.model))
    assert len(found) >= 150
    assert [(job, model) for job, model in found if job != model] == []
