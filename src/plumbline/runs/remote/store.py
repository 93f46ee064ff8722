"""Bytes at an address, by fsspec: read, written, listed, and tried again where the store does not answer.

A single write is whole or absent: object stores do so by themselves; elsewhere it goes to another name and is moved.
Credentials are fsspec's matter (its configuration, the environment, a cloud's own files): none pass through here.
"""

import errno
import os
import time
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from plumbline.config.imports import missing
from plumbline.errors import PlumblineError, RecipeError, StorageError
from plumbline.runs.remote.address import checked
from plumbline.storage import one_line

WAITS = (0.5, 2.0, 8.0)
"""Seconds before each further attempt at what the store refused or left unanswered."""
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory"})
"""Stores without folders, in which a written object is there whole or not at all."""


class Store:
    """What is stored under an address; keys are paths below it.

    Raises:
        RecipeError: no such scheme, or no address that may be used.
        ModelError: fsspec, or what it needs for the scheme, is not installed.
    """

    def __init__(self, address: str) -> None:
        self.address = checked(address)
        scheme = self.address.partition("://")[0]
        try:
            from fsspec.core import url_to_fs

            self.fs, root = url_to_fs(self.address)
        except ImportError as error:
            module = error.name or getattr(error.__cause__, "name", None) or "fsspec"
            raise missing(f"the address {self.address}", module.partition(".")[0]) from error
        except ValueError as error:
            raise RecipeError(
                f"{self.address} cannot be used: {one_line(error)}",
                "give a scheme that fsspec knows (s3, gs, abfs, file), or a path without ://",
            ) from error
        self.root = str(root).rstrip("/")
        self.atomic = scheme in OBJECT_STORES

    def read(self, key: str) -> bytes | None:
        """The bytes at a key; None where there is nothing."""
        try:
            found: bytes = self._try(lambda: self.fs.cat_file(self._at(key)), f"read {key}")
        except FileNotFoundError:
            return None
        return found

    def get(self, key: str, path: Path) -> None:
        """Write what is at a key into a file.

        Raises:
            FileNotFoundError: there is nothing.
            OSError: this machine's disk is full.
            StorageError: the store does not answer.
        """
        try:
            self._try(lambda: self.fs.get_file(self._at(key), str(path)), f"read {key}")
        except StorageError as error:
            if getattr(error.__cause__, "errno", None) in {errno.ENOSPC, errno.EDQUOT}:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise

    def write(self, key: str, content: bytes) -> None:
        """Write bytes, in place of what is there."""
        self._try(lambda: self._write(key, lambda at: self.fs.pipe_file(at, content)), f"write {key}")

    def put(self, path: Path, key: str) -> None:
        """Write a file, however large."""
        self._try(lambda: self._write(key, lambda at: self.fs.put_file(str(path), at)), f"write {key}")

    def create(self, key: str, content: bytes) -> bool:
        """Write bytes where nothing is yet; False where something is, as far as the store can tell."""
        try:
            self._make_folder(key)
            self._try(lambda: self.fs.pipe_file(self._at(key), content, mode="create"), f"write {key}")
        except FileExistsError:
            return False
        return True

    def sizes(self, under: str = "") -> dict[str, int]:
        """The keys below a prefix, with their sizes in bytes."""

        def find() -> dict[str, Any]:
            self.fs.invalidate_cache()
            found: dict[str, Any] = self.fs.find(self._at(under) if under else self.root, detail=True)
            return found

        try:
            found = self._try(find, f"list {under}")
        except FileNotFoundError:
            return {}
        below = len(self.root) + 1
        return {name[below:]: int(one.get("size") or 0) for name, one in found.items() if len(name) >= below}

    def mark(self, key: str) -> str:
        """What changes with the file at a key, as far as the store has such a thing (its ETag, its time)."""
        info = self._try(lambda: self.fs.info(self._at(key)), f"look at {key}")
        return str(next((info[name] for name in ("ETag", "etag", "md5Hash", "mtime", "created") if name in info), ""))

    def remove(self, keys: Iterable[str]) -> None:
        """Remove what is at keys; what is gone already is well."""
        for key in keys:
            try:
                self._try(partial(self.fs.rm_file, self._at(key)), f"remove {key}")
            except FileNotFoundError:
                continue

    def _at(self, key: str) -> str:
        return f"{self.root}/{key}"

    def _make_folder(self, key: str) -> None:
        if not self.atomic:
            self.fs.makedirs(self._at(key).rpartition("/")[0], exist_ok=True)

    def _write(self, key: str, write: Callable[[str], object]) -> None:
        self._make_folder(key)
        if self.atomic:
            write(self._at(key))
            return
        beside = self._at(f"{key}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            write(beside)
            self.fs.mv(beside, self._at(key))
        except BaseException:
            if self.fs.exists(beside):
                self.fs.rm_file(beside)
            raise

    def _try(self, act: Callable[[], Any], what: str) -> Any:
        """Do something to the store, again where it fails.

        Raises:
            FileNotFoundError, FileExistsError: as the store says.
            StorageError: it refuses, or still fails after the last attempt.
        """
        for wait in (*WAITS, None):
            try:
                return act()
            except (FileNotFoundError, FileExistsError, PlumblineError):
                raise
            except Exception as error:
                ours = type(error).__module__ == "builtins" and not isinstance(error, OSError)
                if ours:
                    raise
                final = isinstance(error, PermissionError) or "Credentials" in type(error).__name__
                if wait is None or final:
                    raise StorageError(
                        f"cannot {what.strip()} at {self.address}: {one_line(error) or type(error).__name__}",
                        "check the address, the network, and what the store is told about you (docs/remote.md)",
                    ) from error
            time.sleep(wait)
        raise AssertionError("the last attempt returns or raises")
