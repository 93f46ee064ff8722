"""Many requests of many kinds at one server, and what stays of them:
`python -m tests.serve.soak --requests 10000`."""

import argparse
import asyncio
import gc
import resource
import time
from dataclasses import dataclass

import httpx

from tests.serve.serving import Scripted, body, running, until

KINDS = [
    (body(), 200),
    (body(stream=True), 200),
    (body(n=3, stream=True, stop=["two"]), 200),
    (b"{", 400),
    (body("other"), 404),
    (body(messages=[]), 400),
]


@dataclass
class Soaked:
    requests: int
    failed: int
    seconds: float
    grown: int
    """Objects of the server's modules after the second half of the requests beyond those after the
    first."""
    memory: int
    """Bytes by which the process's highest memory grew meanwhile."""


def soak(server, requests, at_once=32):
    """Ask in two halves; the first one warms up."""
    began = time.monotonic()
    failed = asyncio.run(_ask(server.address, requests // 2, at_once))
    before, memory = _objects(server), _peak()
    failed += asyncio.run(_ask(server.address, requests - requests // 2, at_once))
    return Soaked(
        requests, failed, time.monotonic() - began, _objects(server) - before, _peak() - memory
    )


SERVERS = ("plumbline.serve", "tests.serve", "starlette", "uvicorn", "h11", "asyncio", "_asyncio")


def _objects(server):
    """Without connections, which the server drops after their clients have, and timers that the
    loop has yet to."""
    until(lambda: not server.server_state.connections and not server.server_state.tasks)
    gc.collect()
    return sum(
        str(type(one).__module__).startswith(SERVERS)
        and not (isinstance(one, asyncio.TimerHandle) and one.cancelled())
        for one in gc.get_objects()
    )


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def _ask(address, requests, at_once):
    async with httpx.AsyncClient(
        base_url=address, timeout=60, limits=httpx.Limits(max_connections=at_once)
    ) as client:
        left = iter(range(requests))

        async def worker():
            failed = 0
            for index in left:
                content, status = KINDS[index % len(KINDS)]
                headers = {"content-type": "application/json"}
                said = await client.post("/v1/chat/completions", content=content, headers=headers)
                failed += said.status_code != status
            return failed

        return sum(await asyncio.gather(*(worker() for _ in range(at_once))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=32)
    given = parser.parse_args()
    with running([Scripted()]) as running_server:
        print(soak(running_server, given.requests, given.at_once))
