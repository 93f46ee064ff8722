"""The site on a loopback port, for real browsers; nothing outside this machine can reach it."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from plumbline.config.imports import missing_module_error
from plumbline_forms.site.site import Site, SiteError

HOST = "127.0.0.1"
REFUSED = frozenset(
    {
        *(
            1,
            7,
            9,
            11,
            13,
            15,
            17,
            19,
            20,
            21,
            22,
            23,
            25,
            37,
            42,
            43,
            53,
            69,
            77,
            79,
            87,
            95,
            101,
            102,
            103,
            104,
        ),
        *(
            109,
            110,
            111,
            113,
            115,
            117,
            119,
            123,
            135,
            137,
            139,
            143,
            161,
            179,
            389,
            427,
            465,
            512,
            513,
            514,
            515,
        ),
        *(
            526,
            530,
            531,
            532,
            540,
            548,
            554,
            556,
            563,
            587,
            601,
            636,
            989,
            990,
            993,
            995,
            1719,
            1720,
            1723,
            2049,
        ),
        *(
            3659,
            4045,
            4190,
            5060,
            5061,
            6000,
            6566,
            6665,
            6666,
            6667,
            6668,
            6669,
            6679,
            6697,
            10080,
        ),
    }
)
"""Ports to which browsers do not connect (the "bad ports" of the Fetch standard)."""
_TRIES = 50
_START = 10.0


@contextmanager
def serve(site: Site, port: int = 0) -> Iterator[str]:
    """Serve a site while the block runs.

    Args:
        site: what to serve.
        port: 0 takes any free port that browsers connect to.

    Yields:
        The address, for example `http://127.0.0.1:41733`.

    Raises:
        SiteError: the port is taken or refused by browsers, or the server does not start.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise missing_module_error("serving forms", error, SiteError) from error

    listening = listen(port)
    config = uvicorn.Config(
        site,
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        ws="none",
    )
    server = uvicorn.Server(config)
    # A thread with its own loop: uvicorn would take over the signals of the main thread, which
    # belong to the run.
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve([listening])), name="forms-site", daemon=True
    )
    thread.start()
    try:
        until = time.monotonic() + _START
        while not server.started:
            if not thread.is_alive() or time.monotonic() > until:
                raise SiteError(
                    f"the forms site did not start within {_START:.0f} s",
                    "look at the machine's load",
                )
            time.sleep(0.005)
        yield f"http://{HOST}:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(_START)
        listening.close()


def listen(port: int = 0) -> socket.socket:
    """A socket that listens on a loopback port that browsers connect to.

    Raises:
        SiteError: the port is taken, refused by browsers, or out of range.
    """
    if port in REFUSED:
        raise SiteError(
            f"browsers do not connect to port {port}", "take another port, or 0 for any free one"
        )
    for _ in range(_TRIES):
        try:
            opened = socket.create_server((HOST, port), backlog=1024)
        except (OSError, OverflowError) as error:
            raise SiteError(
                f"cannot serve forms on {HOST}:{port}: {getattr(error, 'strerror', None) or error}",
                "end what uses that port, or take 0 for any free one",
            ) from error
        if opened.getsockname()[1] not in REFUSED:
            return opened
        opened.close()
    raise SiteError(
        "every free port that the system offered is refused by browsers", "name a port yourself"
    )
