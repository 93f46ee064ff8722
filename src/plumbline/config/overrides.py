"""Values that a command line sets: `key.subkey=value`, the value read as YAML."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from plumbline.errors import RecipeError

_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
MOST_CHARACTERS = 2**20
"""Of a YAML text: a thousand times a long recipe."""
MOST_VALUES = 20_000
"""Keys and values of a YAML text, those behind an alias counted again wherever it stands: nested
anchors of 300 bytes would be billions."""
MOST_LEVELS = 100
"""Of mappings and lists inside each other."""
_LONGEST_NUMBER = 250
"""Characters of a number: a longer integer is beyond every float, and YAML has some that are read
in quadratic time."""


def task_options(overrides: Sequence[str]) -> dict[str, Any]:
    """The task's options out of `task.options.a=value` each, for commands that have no recipe.

    Raises:
        RecipeError: an override that is not of the task's options, or cannot be read.
    """
    values: dict[str, Any] = {}
    for override in overrides:
        if not override.strip().startswith("task.options."):
            raise RecipeError(
                f"{override!r} is not an option of the task",
                "this command takes --set task.options.KEY=VALUE only",
            )
        set_value(values, override)
    options: dict[str, Any] = values.get("task", {}).get("options", {})
    return options


def set_value(values: dict[str, Any], override: str) -> None:
    """Set one value in nested mappings; what is not a mapping on the way becomes one (see
    `as_mapping`).

    Raises:
        RecipeError: there is no key, or the value is not YAML.
    """
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise RecipeError(f"cannot read the override {override!r}", "write --set key.subkey=value")
    # the text `#### {answer}`, which YAML would drop in silence
    comment = text.lstrip().startswith("#")
    value = text if comment else read_yaml(text, f"the value in {override!r}")
    if isinstance(value, str):
        value = _number(value)
    *folders, leaf = key.strip().split(".")
    if len(folders) > MOST_LEVELS:
        raise RecipeError(
            f"the override {override[:60]!r}... is nested too deeply", "give a key of fewer levels"
        )
    target = values
    for folder in folders:
        target[folder] = as_mapping(target.get(folder))
        target = target[folder]
    target[leaf] = value


def as_mapping(value: Any) -> dict[str, Any]:
    """A mapping as it is; a text alone is short for its name (`algorithm: gspo`), anything else
    holds nothing."""
    if isinstance(value, str):
        return {"name": value}
    return value if isinstance(value, dict) else {}


def read_yaml(text: str, name: str, *, strict: bool = True) -> Any:
    """Plain values; a key that stands twice in one mapping is an error, because YAML would drop the
    first in silence.

    Args:
        text: YAML.
        name: what an error calls it.
        strict: without it, keys may stand twice and texts hold anything: it is of a program, and is
            only looked at.

    Raises:
        RecipeError: it is no YAML, names a key twice, is nested too deeply, is too large, holds
            itself, or holds text that cannot be written.
    """
    if len(text) > MOST_CHARACTERS:
        raise RecipeError(
            f"{name} has more than {MOST_CHARACTERS:,} characters of YAML", "give a shorter one"
        )
    try:
        return yaml.load(text, Loader=_UniqueKeys if strict else _Bounded)  # noqa: S506 - both are safe loaders
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        raise RecipeError(f"{name} is not YAML: {error.problem}{at}", "correct it there") from error
    except yaml.YAMLError as error:
        raise RecipeError(
            f"{name} is not YAML: {' '.join(str(error).split())}", "correct it there"
        ) from error
    except RecursionError as error:
        raise RecipeError(f"{name} is nested too deeply", "give values of fewer levels") from error
    except (LookupError, AttributeError, OverflowError) as error:  # !!bool maybe, !!timestamp x
        raise RecipeError(
            f"{name} holds a value that its tag (!!) does not allow", "leave the tag out"
        ) from error
    except ValueError as error:  # a date such as 2026-13-45, an integer of 5,000 digits
        raise RecipeError(
            f"{name} holds a value that cannot be: {error}", "correct that value"
        ) from error


def read_package_yaml(path: Path) -> Any:
    """Plain values of a file of this package, in C where that is there: ten times as fast, without
    the limit of depth that a file of a user needs.
    """
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - both are safe loaders


class _Bounded(yaml.SafeLoader):
    """Plain YAML, but for what would take hours or all memory to read, and for bytes."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.composed = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Count the values while they are read."""
        self.composed += 1
        if self.composed > MOST_VALUES:
            raise self._too_many()
        return super().compose_node(parent, index)

    def get_single_node(self) -> yaml.Node | None:
        """Count them again as they would be with a copy behind each alias, and the levels."""
        node = super().get_single_node()
        if node is not None:
            values, levels = self._size(node, {})
            if values > MOST_VALUES:
                raise self._too_many()
            if levels > MOST_LEVELS:
                raise RecursionError
        return node

    def _size(self, node: yaml.Node, known: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
        """How many values and levels a node has; `known` has those of other nodes, and None while
        one is counted."""
        if id(node) not in known:
            known[id(node)] = None
            inner = node.value if isinstance(node, yaml.CollectionNode) else ()
            sizes = [
                self._size(one, known)
                for each in inner
                for one in (each if isinstance(each, tuple) else (each,))
            ]
            known[id(node)] = (
                1 + sum(values for values, _ in sizes),
                1 + max((most for _, most in sizes), default=0),
            )
        if (size := known[id(node)]) is None:
            raise yaml.constructor.ConstructorError(
                None, None, "an anchor stands inside itself", node.start_mark
            )
        return size

    def _too_many(self) -> yaml.MarkedYAMLError:
        return yaml.constructor.ConstructorError(
            None, None, f"it has more than {MOST_VALUES:,} values"
        )

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Numbers have a length."""
        value = super().construct_scalar(node)
        if (
            isinstance(value, str)
            and len(value) > _LONGEST_NUMBER
            and node.tag.endswith((":int", ":float"))
        ):
            raise ValueError(
                f"an integer of {'thousands' if len(value) > 999 else 'hundreds'} of digits"
            )
        if node.tag.endswith(":binary"):
            raise yaml.constructor.ConstructorError(
                None, None, "bytes (!!binary) are no value", node.start_mark
            )
        return value


class _UniqueKeys(_Bounded):
    """The same, but for keys that stand twice, and for texts that cannot be written."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        # `!!set x` is refused below
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.tag != "tag:yaml.org,2002:merge":
                name = key.value if isinstance(key, yaml.ScalarNode) else str(key)
                if name in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {name!r} stands twice", key.start_mark
                    )
                seen.add(name)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Escapes can spell what no file name holds (NUL), and what no encoding can write (lone
        surrogates)."""
        value = super().construct_scalar(node)
        if isinstance(value, str) and (bad := _UNWRITABLE.search(value)):
            raise yaml.constructor.ConstructorError(
                None,
                None,
                f"a text holds the character {bad[0]!a}, which cannot be written",
                node.start_mark,
            )
        return value


def _number(text: str) -> str | float:
    """YAML 1.1 reads `5e-6` as text; people mean the number."""
    try:
        return float(text) if "e" in text.lower() else text
    except ValueError:
        return text
