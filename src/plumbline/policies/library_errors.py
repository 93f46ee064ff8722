"""What a library raises while it opens files of others is one error here, with the part and the
remedy.

Damaged files make transformers, tokenizers, peft and torch fail in any way, a PanicException of
Rust included, which is no Exception.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from plumbline.errors import ModelError, PlumblineError
from plumbline.policies.memory import is_full

# tokenizers' panics are errors of ours; its stack would stand before them
os.environ["RUST_BACKTRACE"] = "0"


@contextmanager
def clear_opening_errors(what: str, fix: str) -> Iterator[None]:
    """Turn what libraries raise inside the block into a ModelError: `what`, their own words, and
    `fix`.

    Raises:
        ModelError: a library failed. Our own errors, an interrupt and a full memory pass as they
            are.
    """
    try:
        yield
    except PlumblineError:
        raise
    except BaseException as error:
        if not (
            isinstance(error, Exception) or type(error).__name__ == "PanicException"
        ) or is_full(error):
            raise
        raise ModelError(f"{what}: {one_line(error)}", fix) from error


def one_line(error: BaseException) -> str:
    """A library's own words on one line, with the error's type where they alone say nothing."""
    words = " ".join(
        "".join(letter if letter.isprintable() else " " for letter in str(error)).split()
    )[:300]
    return words if " " in words else f"{type(error).__name__} {words}".strip()


ELEMENTS, SPARE, OBJECT = 16, 2**26, 2**10
"""Of weights: those that a byte of a file may be (of 1.5 bits, and made twice while they are
loaded), those that any model may have beside them, and what a module counts as."""


@contextmanager
def refuse_growth(source: str, held: int) -> Iterator[None]:
    """Refuse, before it takes its memory, a model that is built in the block and far larger than
    its weights.

    Args:
        source: what is opened, for the message.
        held: bytes of its weights on the disk.

    Raises:
        ModelError: its modules, parameters and buffers are more than those bytes can be.
    """
    from torch.nn.modules import module

    counted, owner = 0, threading.get_ident()

    def count(_module: Any, _name: str, part: Any) -> None:
        nonlocal counted
        if threading.get_ident() == owner:
            counted += part.numel() if hasattr(part, "numel") else OBJECT
        if counted > ELEMENTS * held + SPARE:
            raise ModelError(
                f"the config of {source} is of a model that is far larger than its weights "
                f"({held:,} bytes)",
                "use the config.json that was saved with these weights",
            )

    hooks = [
        module.register_module_module_registration_hook(count),
        module.register_module_parameter_registration_hook(count),
        module.register_module_buffer_registration_hook(count),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
