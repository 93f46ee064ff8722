"""Who writes the run at an address: `lock.json`, which its holder renews.

Whoever finds a lock watches it: where it is renewed, its holder lives; where it is not for `LEASE` seconds, its holder
is dead. No clock is compared with another machine's. The lock is made by a write that fails where something is
(S3's If-None-Match); a store without that may let two in which begin within the same instant, and a holder whose
machine slept through a lease learns at its next publication that another has taken over, which it then leaves alone.
Between that look and the write lies an instant in which no store says no.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable

from plumbline.errors import RunError, StorageError
from plumbline.runs.remote.store import Store

KEY = "lock.json"
LEASE, BEAT = 60.0, 15.0
"""Seconds after which a lock that nobody renewed is void, and between two renewals."""


class Lock:
    """The right to write a run, held from `acquire` to `release`."""

    def __init__(self, store: Store) -> None:
        self.store, self.id = store, uuid.uuid4().hex
        self._beat, self._lost, self._end = 0, False, threading.Event()
        self._thread = threading.Thread(target=self._renew, name="plumbline-lock", daemon=True)

    def acquire(self, dead: str | None = None, tell: Callable[[str], None] = lambda _: None) -> None:
        """Take the lock.

        Args:
            dead: a holder that is known to live no more.
            tell: is told what is waited for.

        Raises:
            RunError: another process holds it.
            StorageError: the store does not answer.
        """
        found = self.store.read(KEY)
        if found is not None and _holder(found) != dead:
            tell(f"{self.store.address} has a lock: watching for {LEASE:.0f} s whether its holder still lives")
            until = time.monotonic() + LEASE
            while time.monotonic() < until:
                time.sleep(min(1.0, LEASE / 10))
                now = self.store.read(KEY)
                if now is None:
                    break
                if now != found:
                    raise self._busy()
        if found is not None:
            self.store.remove([KEY])
        if not self.store.create(KEY, self._content()) or not self.held():
            raise self._busy()
        self._thread.start()

    def held(self) -> bool:
        """Whether the lock is still ours."""
        if not self._lost:
            found = self.store.read(KEY)
            self._lost = found is None or _holder(found) != self.id
        return not self._lost

    def release(self) -> None:
        """Give the lock back; where the store does not answer, it becomes void by itself."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        try:
            if self.held():
                self.store.remove([KEY])
        except StorageError:
            return

    def _renew(self) -> None:
        while not self._end.wait(BEAT):
            try:
                if not self.held():
                    return
                self._beat += 1
                self.store.write(KEY, self._content())
            except StorageError:
                continue

    def _content(self) -> bytes:
        return json.dumps({"id": self.id, "beat": self._beat}).encode()

    def _busy(self) -> RunError:
        return RunError(
            f"another process is writing {self.store.address}",
            "wait for it, or use --out for another address",
        )


def _holder(content: bytes) -> str:
    """Who a lock names; empty for one that cannot be read."""
    try:
        return str(json.loads(content)["id"])
    except (ValueError, KeyError, TypeError):
        return ""
