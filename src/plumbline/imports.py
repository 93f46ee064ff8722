"""What a user names as `module:name`: code of theirs, in the working directory or installed."""

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from plumbline.errors import RecipeError


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
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise RecipeError(f"cannot open the {what} {name}: {error}", advice) from error
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"
        raise RecipeError(
            f"cannot open the {what} {name}: its module fails with {type(error).__name__}: {error}{where}",
            f"correct it until `python -c 'import {module}'` is silent",
        ) from error
    if not hasattr(found, attribute):
        raise RecipeError(f"cannot open the {what} {name}: module {module} has no {attribute}", advice)
    return getattr(found, attribute)
