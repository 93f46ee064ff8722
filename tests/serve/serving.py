"""A server over some models in a thread, on a free port of this machine."""

import asyncio
import threading
import time
from contextlib import contextmanager

import uvicorn

from plumbline.serve.app import application


@contextmanager
def served(models, *given, **options):
    """The server's address while the block runs."""
    config = uvicorn.Config(application(models, *given, **options), port=0, log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()
