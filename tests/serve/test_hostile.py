"""Clients that are broken, slow, many or gone: each is answered rightly, and the server stays
well."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from pathlib import Path

import httpx
import pytest

from plumbline.errors import EngineError, RecipeError, StorageError
from plumbline.serve.metrics import RequestMetrics
from plumbline.serve.server import ServerOptions, bind_socket, serve
from tests.serve.serving import (
    RequestLimits,
    Scripted,
    ScriptedText,
    body,
    connect,
    head,
    running,
    until,
)

JSON = {"content-type": "application/json"}


def ask(server, content=None, headers=JSON):
    given = {"content": body() if content is None else content, "headers": headers}
    return httpx.post(f"{server.address}/v1/chat/completions", timeout=60, **given)


@pytest.fixture(scope="module")
def server():
    with running([Scripted()], limits=RequestLimits(body=5000, body_seconds=0.4)) as server:
        yield server


@pytest.fixture
def post(server):
    def post(content, **more):
        return ask(server, content, **more)

    yield post
    assert httpx.get(f"{server.address}/healthz").json()["status"] == "ok"
    assert server.metrics.busy == 0
    assert post(body()).status_code == 200


def chat(*messages):
    return body(messages=messages)


def schema(text):
    said = {"type": "json_schema", "json_schema": {"name": "x", "schema": "HERE"}}
    return body(response_format=said).replace(b'"HERE"', text.encode())


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"\xff\xfe{}", 400, "not JSON"),
        (b"[1]", 400, "the body"),
        (b"null", 400, "the body"),
        (b"[" * 4000, 400, "not JSON"),
        (b'{"model": "scripted", "messages": "x"}', 400, "messages"),
        (b'{"model": 1, "messages": []}', 400, "model"),
        (body(messages=[]), 400, "messages"),
        (chat({"role": "robot", "content": "x"}), 400, "messages.0.role"),
        (chat({"role": "user", "content": None}), 400, "messages.0.content"),
        (chat({"role": "user"}), 400, "messages.0.content"),
        (
            chat({"role": "user", "content": "x", "reasoning_content": "y"}),
            400,
            "an assistant's message",
        ),
        (chat({"role": "assistant", "tool_calls": [{"id": "1"}]}), 400, "messages.0.tool_calls"),
        (
            chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
            400,
            "messages",
        ),
        (body().replace(b"say it", rb"\ud800"), 400, "not JSON"),
        (body(n="2"), 400, "n:"),
        (body(n=True), 400, "n:"),
        (body(n=0), 400, "n:"),
        (body(temperature=-1), 400, "temperature"),
        (body(temperature=float("nan")), 400, "temperature"),
        (body(seed=2**70), 400, "seed"),
        (body(stop=[""]), 400, "stop"),
        (body(stop="a" * 129), 400, "stop"),
        (body(stop=["b", "a" * 129]), 400, "stop"),
        (body(stop=["b"] * 17), 400, "stop"),
        (schema('{"maximum": 1e309}'), 400, "a number is too large"),
        (
            schema('{"anyOf": [{"type": "object"}, {"const": [{"a": -1e999}]}]}'),
            400,
            "a number is too large",
        ),
        (body(model="../../etc/passwd"), 404, "there is no model"),
        (chat({"role": "user", "content": "x" * 6000}), 413, "at most 5000 bytes"),
    ],
)
def test_a_broken_body_is_refused_with_its_reason(post, content, status, says):
    said = post(content)
    assert said.status_code == status
    error = said.json()["error"]
    assert says in error["message"]
    assert set(error) == {"message", "type", "param", "code"}


def test_the_bodies_that_are_being_read_are_bounded_together():
    with running(
        [Scripted()], limits=RequestLimits(body=1000, requests=2, body_seconds=5.0)
    ) as server:
        slow = [connect(server) for _ in range(2)]
        for raw in slow:
            raw.sendall(head(1000) + b" " * 950)
        with connect(server) as raw:
            until(lambda: server.config.app.app.state._state.get("bytes") == 1900)
            raw.sendall(head(1000) + b" " * 150)
            assert raw.recv(4096).startswith(b"HTTP/1.1 429")
        assert ask(server).status_code == 200
        for raw in slow:
            raw.close()
        until(lambda: server.config.app.app.state.bytes == 0)


def test_a_log_on_a_full_disk_fails_no_request(caplog):
    with running([Scripted()], log=Path("/dev/full")) as server:
        said = [
            ask(server, one).status_code
            for one in (body(), b"{", body("nobody"), body(stop=""), body())
        ]
        assert said == [200, 400, 404, 400, 200]
        assert "data: [DONE]" in ask(server, body(stream=True)).text
        assert "plumbline_log_rows_lost_total 6.0" in httpx.get(f"{server.address}/metrics").text
        metrics = server.metrics
    assert metrics._log.closed
    (lost,) = (one.message for one in caplog.records if "loses rows" in one.message)
    assert "[Errno 28]" in lost


def test_a_log_that_nobody_reads_is_refused_and_a_pipe_that_somebody_reads_is_none_to_wait_for(
    tmp_path,
):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="cannot write"):
        RequestMetrics(RequestLimits(), tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    metrics = RequestMetrics(RequestLimits(), tmp_path / "pipe")
    for _ in range(2000):  # more than a pipe holds
        with metrics.record_request() as entry:
            entry.status = 200
    assert json.loads(os.read(reader, 10_000).split(b"\n")[0])["status"] == 200
    assert 0 < metrics.lost._value.get() < 2000
    metrics.close()
    os.close(reader)


def test_contents_of_another_type_and_in_chunks(post):
    assert post(body(), headers={"content-type": "text/plain"}).status_code == 415
    assert post(iter([body()[:9], body()[9:]])).status_code == 200
    assert post(iter([b" " * 3000] * 3)).status_code == 413


TRICKS = [
    *(
        "/v1",
        "/v1/models/",
        "//v1/models",
        "/v1/models/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
    ),
    *("/v1/models/%00", "/healthz/", "/openapi.json/../x", "/v1/models/..%2f..%2fetc%2fpasswd"),
]


def test_methods_and_paths(server, post):
    with httpx.Client(base_url=server.address) as client:
        assert client.get("/v1/chat/completions").status_code == 405
        assert client.get("/v1/chat/completions").headers["allow"] == "POST"
        assert client.delete("/v1/models").json()["error"]["message"].endswith("DELETE")
        for path in TRICKS:
            with connect(server) as raw:
                raw.sendall(
                    f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
                )
                assert b"404 Not Found" in raw.recv(4096).split(b"\r\n")[0], path


def test_what_is_no_http_and_too_long_a_head(server, post):
    for junk in (
        b"\x16\x03\x01\x02\x00" * 20,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 6_000,
    ):
        with connect(server) as raw:
            raw.sendall(junk)
            assert b" 400 " in raw.recv(100)


def test_slow_heads_and_bodies_are_not_waited_for(server, post):
    with connect(server) as silent, connect(server) as begun, connect(server) as slow:
        begun.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
        slow.sendall(head(len(body())) + body()[:10])
        assert b"408 " in slow.recv(1000)
        for other in (silent, begun):
            with suppress(ConnectionResetError):
                assert other.recv(10) == b""


def test_a_second_request_on_a_connection_may_not_be_slow_either(server, post):
    with connect(server) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):  # head and body may come apart
            answer += raw.recv(1000)
        assert b"200 OK" in answer
        raw.sendall(b"GET /heal")
        with suppress(ConnectionResetError):
            assert raw.recv(1000) == b""


def test_a_client_that_goes_away_ends_its_work():
    model = Scripted(words=("word ",) * 1000, pause=0.01)
    with running([model]) as server:
        for stream in (True, False):
            with connect(server) as raw:
                content = body(stream=stream, n=3)
                raw.sendall(head(len(content)) + content)
                until(lambda: model.begun == 3)
            until(lambda: model.stopped == 3)
            until(lambda: server.metrics.busy == 0)
            model.begun = model.stopped = 0
        page = httpx.get(f"{server.address}/metrics").text
        assert 'plumbline_requests_total{model="scripted",status="499"} 2.0' in page
        assert 'plumbline_tokens_total{kind="completion",model="scripted"}' in page


def test_a_client_that_does_not_read_is_dropped():
    model = Scripted(words=("x" * 200_000,) * 200, pause=0.01)
    with running([model], limits=RequestLimits(body_seconds=0.4)) as server, connect(server) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.sendall(head(len(body(stream=True))) + body(stream=True))
        until(lambda: model.begun == 1)
        until(lambda: server.metrics.busy == 0)
        assert model.stopped == 1


class Held(Scripted):
    """Waits behind its first word until it may go on."""

    goes_on = False

    async def answer(self, asked):
        async with aclosing(super().answer(asked)) as pieces:
            async for piece in pieces:
                yield piece
                while not self.goes_on:
                    await asyncio.sleep(0.01)


def test_an_answer_that_takes_too_long_has_a_status_or_an_event():
    model = Held()
    with running([model], limits=RequestLimits(seconds=0.3)) as server:
        said = ask(server)
        assert (said.status_code, said.json()["error"]["type"]) == (504, "timeout_error")
        said = ask(server, body(stream=True))
        events = said.text.split("\n\n")
        assert said.status_code == 200
        assert json.loads(events[-2].removeprefix("data: "))["error"]["type"] == "timeout_error"
        assert "[DONE]" not in said.text
        assert model.stopped == 2


class Breaks(Scripted):
    async def answer(self, asked):
        raise self.error
        yield


def test_what_breaks_in_a_model_is_not_told_to_clients():
    model = Breaks()
    with running([model, Scripted("well")]) as server:
        for error, status in (
            (RecipeError("no such sampling", "x"), 400),
            (RuntimeError("secret /home/me"), 500),
        ):
            model.error = error
            for stream in (False, True):
                said = ask(server, body(stream=stream))
                assert said.status_code == status
                assert "secret" not in said.text
                assert said.json()["error"]["message"]
        assert ask(server, body("well")).is_success


def test_more_requests_than_may_be_in_flight_are_asked_to_come_again():
    model = Held()
    with (
        running([model], limits=RequestLimits(requests=2)) as server,
        ThreadPoolExecutor(6) as clients,
    ):
        all_of_them = [clients.submit(ask, server) for _ in range(6)]
        until(lambda: sum(one.done() for one in all_of_them) == 4)
        model.goes_on = True
        found = [one.result() for one in all_of_them]
        assert sorted(one.status_code for one in found) == [200] * 2 + [429] * 4
        assert {one.headers["retry-after"] for one in found if one.status_code == 429} == {"1"}


def at_once(server, connections):
    """So many connections, all open before the first of them asks; their statuses."""
    host, port = server.address.removeprefix("http://").split(":")

    async def all_of_them():
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(connections)]

        async def one(reader, writer):
            writer.write(head(len(body()), Connection="close") + body())
            said = await reader.read()
            writer.close()
            return int(said.split(b" ", 2)[1])

        return await asyncio.gather(*(one(*each) for each in opened))

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("connections", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_connections_at_once_are_all_answered(connections):
    with running([Scripted()], limits=RequestLimits(requests=connections // 2)) as server:
        found = at_once(server, connections)
        assert set(found) <= {200, 429}
        assert found.count(200) >= connections // 2
        assert httpx.get(f"{server.address}/healthz").is_success
        until(lambda: not server.server_state.connections)


def test_a_token_is_asked_for_everywhere_but_at_the_door():
    with (
        running([Scripted()], token="s3cret") as server,
        httpx.Client(base_url=server.address) as client,
    ):
        assert client.get("/healthz").status_code == 200
        wrong_ones = [
            {"authorization": one} for one in ("Bearer s3cre", "Bearer s3crett", "s3cret")
        ]
        for wrong in ({}, *wrong_ones):
            for path in ("/v1/models", "/metrics", "/v1/models/scripted", "/nowhere"):
                said = client.get(path, headers=wrong)
                assert (said.status_code, said.json()["error"]["code"]) == (401, "invalid_api_key")
        assert (
            client.get("/v1/models", headers={"authorization": "Bearer s3cret"}).status_code == 200
        )


def test_a_page_from_elsewhere_cannot_ask_in_the_users_name(server, post):
    assert post(body(), headers={**JSON, "host": "evil.example"}).status_code == 421
    assert post(body(), headers={**JSON, "host": "[::1"}).status_code == 421
    assert post(body(), headers={**JSON, "host": "localhost:1234"}).status_code == 200
    own = server.address
    for headers, status in (
        ({"sec-fetch-site": "cross-site", "origin": "http://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        # another port of this machine
        ({"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:1"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-origin", "origin": own}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"origin": own}, 200),
        ({}, 200),
    ):
        assert post(body(), headers={**JSON, **headers}).status_code == status, headers
        assert httpx.get(f"{own}/v1/models", headers=headers).status_code == status, headers
        assert httpx.get(f"{own}/healthz", headers=headers).status_code == 200


def test_the_log_has_a_line_a_request_and_contents_only_where_asked(tmp_path):
    for contents in (False, True):
        log = tmp_path / f"{contents}.jsonl"
        with running([ScriptedText(Scripted())], log=log, log_contents=contents) as server:
            for content in (body(user="me"), body(stream=True, n=2), b"{", body("other")):
                ask(server, content)
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        assert [row["status"] for row in rows] == [200, 200, 400, 404]
        assert (rows[1]["n"], rows[1]["completion_tokens"], rows[1]["finish"]) == (
            2,
            6,
            ["stop", "stop"],
        )
        assert rows[0].get("answers") == (["one two three"] if contents else None)
        assert ("say it" in log.read_text()) == contents
        assert not contents or log.stat().st_mode & 0o777 == 0o600, (
            "what people ask is for nobody else to read"
        )


def test_nothing_stays_of_many_requests():
    from tests.serve.soak import soak

    with running([Scripted()]) as server:
        failed, grown = soak(server, 240, at_once=8)
        assert server.metrics.busy == 0
    assert failed == 0
    assert grown < 20, "one object of each request of the second half would be 120"


PROGRAM = """
import asyncio, sys
from plumbline.serve.server import ServerOptions, serve
from tests.serve.serving import Scripted

class Held(Scripted):
    async def answer(self, asked):
        async for piece in super().answer(asked):
            yield piece
            if piece.tokens == (0,):
                await asyncio.to_thread(sys.stdin.readline)

model = Held(words=("a",) * int(sys.argv[1]), pause=0.02)
serve(lambda: [model], ServerOptions(port=0, grace=float(sys.argv[2])), lambda said: print(said, flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_requests_end_and_takes_no_more(number):
    process, address = start(20, grace=60, stdin=subprocess.PIPE)
    found = []
    asking = threading.Thread(
        target=lambda: found.append(httpx.post(address, content=body(), headers=JSON))
    )
    asking.start()
    until(
        lambda: "in_flight 1.0" in httpx.get(address.replace("v1/chat/completions", "metrics")).text
    )
    process.send_signal(number)
    until(lambda: closed(address))
    out, err = process.communicate("the answer may go on\n", timeout=60)
    asking.join()
    assert found[0].json()["choices"][0]["message"]["content"] == "a" * 20
    assert process.returncode == 0
    assert (out.splitlines()[-1], err) == ("ended", "")


@pytest.mark.parametrize(("number", "grace"), [(signal.SIGTERM, 1), (signal.SIGINT, 60)])
def test_what_has_not_ended_in_time_or_before_a_second_ctrl_c_is_told(number, grace):
    process, address = start(100_000, grace)
    with httpx.stream("POST", address, content=body(stream=True), headers=JSON, timeout=60) as said:
        lines = said.iter_lines()
        next(lines)
        process.send_signal(number)
        if number == signal.SIGINT:
            until(lambda: closed(address))
            process.send_signal(number)
        rest = "\n".join(lines)
    assert '"code": "shutting_down"' in rest
    assert process.communicate(timeout=60) == ("ended\n", "" if number == signal.SIGINT else TOLD)
    assert process.returncode == 0


TOLD = "Cancel 1 running task(s), timeout graceful shutdown exceeded\n"


def closed(address):
    try:
        httpx.get(address.replace("v1/chat/completions", "healthz"))
    except httpx.TransportError:
        return True
    return False


def start(words, grace, stdin=subprocess.DEVNULL):
    """A server in a process of its own; behind the first word an answer waits for a line of
    standard input."""
    command = [sys.executable, "-c", PROGRAM, str(words), str(grace)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=stdin, stdout=pipe, stderr=pipe, text=True, env=environment
    )
    address = process.stdout.readline().split(" at ")[1].split()[0]
    assert "curl" in process.stdout.readline()
    return process, f"{address}/chat/completions"


def test_a_server_says_that_it_serves_when_it_can_be_reached():
    class Seen(BaseException):
        pass

    def told(text):
        port = int(text.partition("127.0.0.1:")[2].partition("/")[0])
        socket.create_connection(("127.0.0.1", port), 5).close()
        raise Seen

    with pytest.raises(Seen):
        serve(lambda: [Scripted()], ServerOptions(port=0), told)


def test_a_port_that_another_server_is_about_to_use_is_taken_before_a_model_is_opened():
    opened = []
    with bind_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(EngineError, match=f"cannot serve on 127.0.0.1:{port}: Address"):
            serve(lambda: opened.append(1), ServerOptions(port=port), print)
    assert opened == []
