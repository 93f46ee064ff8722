"""Imports that may fail: what a user names as `module:name`, and what comes with an extra."""

import importlib
import sys
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from plumbline.errors import ModelError, PlumblineError, RecipeError

EXTRAS = {
    "train": ("torch", "transformers", "tokenizers", "safetensors", "peft", "jinja2", "gguf"),
    "4bit": ("bitsandbytes",),
    "commerce": ("sqlglot",),
    "forms": ("selectolax", "uvicorn"),
    "browser": ("playwright",),
    "formfactory": ("flask",),
    "miniwob": ("miniwob",),
    "vllm": ("httpx",),
    "ray": ("ray",),
    "remote": ("fsspec", "s3fs"),
    "serve": ("starlette", "uvicorn", "prometheus_client", "jsonschema_rs"),
    "constrained": ("xgrammar",),
    "trackio": ("trackio",),
    "wandb": ("wandb",),
    "tensorboard": ("tensorboard",),
    "verifiers": ("verifiers",),
    "inspect": ("inspect_ai",),
    "openenv": ("openenv",),
}
"""Which modules each extra of the package brings."""


LIGHTER = {"miniwob": "; or `pip install --no-deps miniwob` and '.[browser]', which leaves out selenium and gymnasium"}
"""What to add to the advice for a module that brings much that nothing here needs."""


def extra_of(module: str) -> str | None:
    """The extra that brings a module (or the package that it is in); None where it is in none."""
    root = module.partition(".")[0]
    return next((extra for extra, modules in EXTRAS.items() if root in modules), None)


def missing(
    what: str, error: ImportError | str, kind: type[PlumblineError] = ModelError, *, extra: str | None = None
) -> PlumblineError:
    """The error that says what is not installed, and which extra of Plumbline brings it.

    Args:
        what: needs it.
        error: of its import, or the module's name.
        kind: of the error.
        extra: by default the one that brings the module.
    """
    module = error if isinstance(error, str) else str(error.name)
    brings = extra or extra_of(module)
    # From a clone: Plumbline is on no package index yet.
    advice = (
        f"pip install '.[{brings}]' in a clone of Plumbline" if brings else f"pip install {module.partition('.')[0]}"
    )
    advice += LIGHTER.get(module, "")
    return kind(f"{what} needs {module}, which is not installed", advice)


def needed(module: str, what: str, kind: type[PlumblineError] = ModelError) -> Any:
    """A module that an extra brings, imported; `what` needs it.

    Raises:
        PlumblineError: of this kind: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing(what, error, kind) from error


def check_installed(what: str, modules: Sequence[str]) -> None:
    """Ask whether modules are there, without importing them.

    Raises:
        ModelError: names the first that is not, and its extra.
    """
    for module in modules:
        if find_spec(module) is None:
            raise missing(what, module)


def named(name: str, what: str) -> Any:
    """The object that a user names as `module:name`; `what` is what it should be.

    The working directory is searched first, as Python does for a script in it. Every exception of the import is caught
    here, because beyond lies a module of the user's, which may do anything.

    Raises:
        RecipeError: there is no such module or no such name in it, or the module fails while it is imported.
    """
    module, _, attribute = name.partition(":")
    advice = f"write it as module:name; modules are looked for in {Path.cwd()} and among the installed packages"
    if not attribute or not all(part.isidentifier() for part in module.split(".")):
        raise RecipeError(f"{name} names no {what}", advice)
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, str(Path.cwd()))  # a console script's own path does not have it
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if extra_of(error.name or "") is not None:
            raise missing(f"the {what} {name}", error, RecipeError) from error
        raise RecipeError(f"cannot open the {what} {name}: {error}", advice) from error
    except AttributeError as error:
        if module not in sys.modules:  # it broke while it was imported
            raise _broke(name, what, module, error) from error
        raise RecipeError(f"cannot open the {what} {name}: module {module} has no {attribute}", advice) from error
    except Exception as error:
        raise _broke(name, what, module, error) from error


def _broke(name: str, what: str, module: str, error: Exception) -> RecipeError:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"
    said = " ".join(str(error).split())
    return RecipeError(
        f"cannot open the {what} {name}: its module fails with {type(error).__name__}: {said}{where}",
        f"correct it until `python -c 'import {module}'` is silent",
    )
