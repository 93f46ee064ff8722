"""`training_args.bin` of transformers: options that were pickled, read as text and never executed."""

import pickletools
import zipfile
import zlib
from pathlib import Path
from typing import Any

from plumbline.errors import DataError

LARGEST = 2**20
"""Bytes; transformers writes about 7 KiB."""
PLAIN = (str, int, float, type(None))
DAMAGED = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What reading raises of an archive that is cut, encrypted or packed in another way, or of a pickle
that is none."""
_OTHER = object()
"""What is no plain value: a class, or what one would make."""
_VALUES = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def read_pickled_options(path: Path) -> dict[str, Any]:
    """The plain values of an object that torch.save wrote, by the names of its attributes, and one
    level of what holds some; an enum as its value. Empty where it is no archive: what git-lfs leaves.

    Opcodes move values on a stack here. No name in the file is imported, and nothing is called.

    Raises:
        DataError: it is another archive, or damaged.
    """
    if not zipfile.is_zipfile(path):
        return {}
    wrong = DataError(
        f"{path} holds no options that transformers saved", "move it away, or save it again"
    )
    try:
        with zipfile.ZipFile(path) as archive:
            (member,) = [one for one in archive.infolist() if one.filename.endswith("/data.pkl")]
            if member.file_size > LARGEST:
                raise wrong
            state = _walk(archive.read(member))
    except DAMAGED as error:
        raise wrong from error
    found: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, PLAIN):
            found[name] = value
        elif isinstance(value, dict):
            found[name] = {key: one for key, one in value.items() if isinstance(one, PLAIN)}
    return found


def _walk(data: bytes) -> dict[Any, Any]:
    """The state that the last object of a pickle is given."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    state: dict[Any, Any] = {}

    def pop_to_mark() -> list[Any]:
        at = marks.pop()
        taken = stack[at:]
        del stack[at:]
        return taken

    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        if name in _VALUES:
            stack.append(_VALUES[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            marks.append(len(stack))
        elif name in _TUPLES:
            stack[-_TUPLES[name] :] = [tuple(stack[-_TUPLES[name] :])]
        elif name == "TUPLE":
            stack.append(tuple(pop_to_mark()))
        elif name in {"APPENDS", "ADDITEMS"}:
            pop_to_mark()
        elif name == "APPEND":
            stack.pop()
        elif name in {"SETITEM", "SETITEMS"}:
            pairs = pop_to_mark() if name == "SETITEMS" else [stack.pop() for _ in "kv"][::-1]
            if isinstance(stack[-1], dict):
                stack[-1].update(
                    (key, value)
                    for key, value in zip(pairs[::2], pairs[1::2], strict=True)
                    if isinstance(key, str)
                )
        elif name in {"BINPUT", "LONG_BINPUT", "MEMOIZE"}:
            memo[len(memo) if argument is None else int(argument)] = stack[-1]
        elif name in {"BINGET", "LONG_BINGET"}:
            stack.append(memo[int(argument or 0)])
        elif name in {"REDUCE", "NEWOBJ", "STACK_GLOBAL"}:
            given = stack.pop()
            stack.pop()
            # an enum is its class called with its value
            value = given[0] if name == "REDUCE" and len(given) == 1 else _OTHER
            stack.append(value if isinstance(value, str | int) else _OTHER)
        elif name == "BUILD":
            given = stack.pop()
            state = given if isinstance(given, dict) else state
        elif name in {"GLOBAL", "BINPERSID"}:
            if name == "BINPERSID":
                stack.pop()
            stack.append(_OTHER)
        elif name not in {"PROTO", "FRAME", "STOP"}:
            if opcode.arg is None:  # what it would do to the stack is unknown
                raise ValueError(name)
            stack.append(argument)  # a number or a text
    return state
