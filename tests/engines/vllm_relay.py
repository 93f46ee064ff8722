"""A process in vLLM's place that hands on what it is asked, to a stand-in on a thread of whoever
started it.

    python -m tests.engines.vllm_relay --uds SOCKET

It imports nothing that takes its time. `STAND_IN` in the environment, JSON: `at` is where the
stand-in listens; `dies`, after how many answers the process ends, as by kill -9; `once`, a file: it
ends so only while that is not there, and writes it.
"""

import argparse
import json
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingMixIn, UnixStreamServer

ASKED = json.loads(os.environ["STAND_IN"])
ANSWERED, LOCK = [0], threading.Lock()


class Relay(BaseRequestHandler):
    def handle(self) -> None:
        with socket.create_connection(tuple(ASKED["at"])) as there, suppress(OSError):
            threading.Thread(target=hand_on, args=(self.request, there), daemon=True).start()
            for line in there.makefile("rb"):  # a stream's piece is a line
                if line.startswith(b"data: ") and b'"finish_reason": "' in line:
                    count()
                self.request.sendall(line)


def hand_on(here: socket.socket, there: socket.socket) -> None:
    with suppress(OSError):
        while said := here.recv(2**16):
            there.sendall(said)


def count() -> None:
    """An answer more has ended; the process may end before it is handed on."""
    with LOCK:
        ANSWERED[0] += 1
        if ANSWERED[0] > ASKED["dies"] and not Path(ASKED["once"]).exists():
            Path(ASKED["once"]).touch()
            os._exit(9)


class OnSocket(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--uds")
    OnSocket(parser.parse_known_args()[0].uds, Relay).serve_forever()
