"""A server over some models in a thread, on a free port of this machine; and models that do as they
are told."""

import asyncio
import json
import socket
import threading
import time
from contextlib import contextmanager

import openai
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("prometheus_client", reason="the extra serve is not installed")

from plumbline.cli import main as cli
from plumbline.serve import server as server_module
from plumbline.serve.backend import AnswerChunk, Backend
from plumbline.serve.limits import RequestLimits
from plumbline.serve.server import PUBLIC, ServerOptions, bind_socket, make_server


@contextmanager
def running(models, *, routes=(), public=PUBLIC, **options):
    """The server with its `address` while the block runs; it is told to end as a signal would, and
    has to."""
    server = make_server(models, ServerOptions(**options), routes, public)
    with bind_socket("127.0.0.1", 0) as listening:
        server.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(
            target=lambda: asyncio.run(server.serve([listening])), daemon=True
        )
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        try:
            yield server
        finally:
            server.stop()
            thread.join(60)
            assert not thread.is_alive()


class Scripted(Backend):
    """Says the words one by one, with a pause before each, and counts what was begun, ended and
    closed."""

    family, context = "scripted", 1000

    def __init__(self, name="scripted", words=("one ", "two ", "three"), pause=0.0):
        self.name, self.words, self.pause = name, words, pause
        self.begun = self.ended = self.stopped = 0

    def prompt_length(self, messages):
        return sum(len(message["content"].split()) for message in messages)

    async def answer(self, asked):
        self.begun += 1
        done = False
        try:
            for index, word in enumerate(self.words):
                await asyncio.sleep(self.pause)
                last = index == len(self.words) - 1
                done = last
                yield AnswerChunk(
                    text=word,
                    tokens=(index,),
                    finish="stop" if last else None,
                    facts={"model": self.name} if last else {},
                )
        finally:
            self.ended += done
            self.stopped += not done

    async def close(self):
        self.closed = True


class ScriptedText(Backend):
    """JSON out of what a `Scripted` says."""

    def __init__(self, scripted, retries=2):
        super().__init__(scripted.name, scripted, None)
        self.retries, self.close = retries, scripted.close

    def write(self, asked):
        return self.sampler.answer(asked)


def body(model="scripted", **more):
    return json.dumps(
        {"model": model, "messages": [{"role": "user", "content": "say it"}], **more}
    ).encode()


def head(size, path="/v1/chat/completions", **more):
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {size}",
    ]
    return (
        "\r\n".join([*lines, *(f"{name}: {value}" for name, value in more.items())]) + "\r\n\r\n"
    ).encode()


def connect(server):
    host, port = server.address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


@contextmanager
def by_command(monkeypatch, *words):
    """The address at which `plumbline serve` serves while the block runs.

    In a thread of this process, which signals do not reach: what they do is tested with a process
    of its own.
    """
    opened = []
    monkeypatch.setattr(
        server_module, "make_server", lambda *given: opened.append(make_server(*given)) or opened[0]
    )
    command = ["serve", *words, "--port", "0"]
    thread = threading.Thread(target=lambda: cli.app(command, standalone_mode=False), daemon=True)
    thread.start()
    until(lambda: opened and opened[0].started, 60)
    try:
        yield f"http://127.0.0.1:{opened[0].servers[0].sockets[0].getsockname()[1]}/v1"
    finally:
        opened[0].stop()
        thread.join(60)
        assert not thread.is_alive()


def client_of(address, **options):
    return openai.OpenAI(base_url=address, api_key="none", max_retries=0, **options)


def assert_says(said, wanted):
    """A reply from behind vLLM is what the model itself draws."""
    (choice,) = said.choices
    assert choice.message.content == wanted.text
    assert (choice.finish_reason, said.usage.completion_tokens) == (
        wanted.finish,
        wanted.num_tokens,
    )
    assert said.model_extra["plumbline"]["engine"] == "vllm"


def until(condition, seconds=60.0):
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


__all__ = [
    "RequestLimits",
    "Scripted",
    "ScriptedText",
    "assert_says",
    "body",
    "by_command",
    "client_of",
    "connect",
    "head",
    "running",
    "until",
]
