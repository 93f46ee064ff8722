"""The command line in this process, in a folder of a user's with no network, and what it wrote
there."""

import contextlib
import importlib
import io
import os
import shutil
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

RECIPE = "recipe.yaml"
TRAINERS = (
    "accelerate",
    "bitsandbytes",
    "datasets",
    "deepspeed",
    "fire",
    "pandas",
    "peft",
    "torch",
    "transformers",
)
TRAINERS += ("trl", "unsloth", "vllm", "wandb")
RANK = ("right", "unclear", "wrong", "silently wrong")


@dataclass(frozen=True)
class Said:
    """What a command printed, its exit status, and the recipe that it wrote."""

    code: int
    printed: str
    text: str = ""

    @property
    def all(self) -> str:
        """The output, and the recipe with its comments."""
        return f"{self.printed}\n{self.text}"

    @property
    def recipe(self) -> dict[str, Any]:
        return yaml.safe_load(self.text)


@contextlib.contextmanager
def workplace(source: Path, *names: str) -> Iterator[Path]:
    """A folder with copies of a user's files, as the working directory; what is imported from it is
    forgotten."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("there is no network here")

    was, path, modules = Path.cwd(), [*sys.path], {*sys.modules}
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder = Path(made).resolve()
        for name in names or [each.name for each in source.iterdir()]:
            copy = shutil.copytree if (source / name).is_dir() else shutil.copy
            copy(source / name, folder / name)
        for name in ("getaddrinfo", "create_connection"):
            stack.enter_context(mock.patch.object(socket, name, refuse))
        stack.enter_context(mock.patch.dict(os.environ, {"COLUMNS": "1000", "HF_HUB_OFFLINE": "1"}))
        os.environ.pop("PLUMBLINE_TRUST_CODE", None)
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(was)
            sys.path[:], sys.dont_write_bytecode = path, bytecode
            for name in {*sys.modules} - modules:
                if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
                    del sys.modules[name]
            importlib.invalidate_caches()


def plumbline(*arguments: str) -> Said:
    """Run a command in the working directory."""
    from plumbline.cli import main as cli

    out, code = io.StringIO(), 0
    argv = mock.patch.object(sys, "argv", ["plumbline", *arguments])
    with argv, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            cli.main()
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
        except Exception:  # noqa: BLE001 - whatever it is, a user sees its traceback
            out.write(traceback.format_exc())
            code = 1
    text = Path(RECIPE).read_text(encoding="utf-8") if Path(RECIPE).exists() else ""
    return Said(code, out.getvalue(), text)


def function(name: str) -> Callable[..., Any]:
    """What a recipe's `module:function` or `file.py:function` is, with nothing that trains within
    reach."""
    module, _, attribute = name.rpartition(":")
    if module.endswith(".py"):
        sys.path.insert(0, str(Path(module).resolve().parent))
        module = Path(module).stem
    sys.path.insert(0, str(Path.cwd()))
    importlib.invalidate_caches()
    heavy = dict.fromkeys({*TRAINERS, *(m for m in sys.modules if m.partition(".")[0] in TRAINERS)})
    with mock.patch.dict(sys.modules, heavy), contextlib.redirect_stdout(io.StringIO()):
        return getattr(importlib.import_module(module), attribute)


def worst(found: list[tuple[str, str]]) -> tuple[str, str]:
    """The worst verdict of all, and every reason for it."""
    verdict = max((verdict for verdict, _ in found), key=RANK.index, default="right")
    return verdict, "; ".join(why for each, why in found if each == verdict)


def cause(said: Said) -> str:
    """The first lines of an error."""
    return " ".join(said.printed.split())[:260]
