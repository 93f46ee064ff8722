"""Many requests of many kinds at one server, and what stays of them."""

import asyncio
import gc

import httpx

from tests.serve.serving import body, until

KINDS = [
    (body(), 200),
    (body(stream=True), 200),
    (body(n=3, stream=True, stop=["two"]), 200),
    (b"{", 400),
    (body("other"), 404),
    (body(messages=[]), 400),
]


def soak(server, requests, at_once):
    """Ask in two halves, of which the first warms up: how many failed, and how many more objects of
    the server's modules there are after the second."""
    failed = asyncio.run(_ask(server.address, requests // 2, at_once))
    before = _objects(server)
    failed += asyncio.run(_ask(server.address, requests - requests // 2, at_once))
    return failed, _objects(server) - before


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
