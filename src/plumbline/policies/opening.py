"""Where files of others are opened: whatever a library raises there is one error that names the part and the remedy.

Damaged files make transformers, tokenizers, peft and torch fail in any way, a PanicException of Rust included, which is
no Exception.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from plumbline.errors import DataError, ModelError, PlumblineError
from plumbline.policies.memory import is_full


@contextmanager
def clear_opening_errors(what: str, fix: str) -> Iterator[None]:
    """Turn what libraries raise inside the block into a ModelError: `what`, their own words, and `fix`.

    Raises:
        ModelError: a library failed. Our own errors, an interrupt and a full memory pass as they are.
    """
    try:
        yield
    except PlumblineError:
        raise
    except BaseException as error:
        if not (isinstance(error, Exception) or type(error).__name__ == "PanicException") or is_full(error):
            raise
        raise ModelError(f"{what}: {one_line(error)}", fix) from error


def one_line(error: BaseException) -> str:
    """A library's own words on one line, with the error's type where they alone say nothing."""
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in str(error)).split())[:300]
    return words if " " in words else f"{type(error).__name__} {words}".strip()


GROWTH, FREE = 64, 1024
"""Tokens that a character may become, and tokens that any text may: the most that Unicode makes of a character is 18
others, of up to 3 bytes each."""
LONGEST = 10**6
"""Characters of a chat: beyond what a model of ours reads."""


def encode(read: Callable[[], Sequence[int]], text: str, tokenizer: Any, rows: int | None) -> list[int]:
    """The ids that `read` gives for a text, for a model of so many embeddings.

    Raises:
        DataError: the text holds half a character or becomes far longer than any text should; an id has no embedding.
        ModelError: the tokenizer fails.
    """
    if len(text) > LONGEST:
        raise DataError(f"a text of {len(text):,} characters is longer than any prompt", "correct the chat template")
    try:
        with clear_opening_errors("the tokenizer fails", "use the tokenizer that was saved with this model"):
            ids = list(read())
    except ModelError as error:
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise DataError("a message holds half of a pair of surrogates, which is no character") from error
        raise
    if len(ids) > GROWTH * len(text) + FREE:
        raise DataError(
            f"the tokenizer makes {len(ids):,} tokens of {len(text):,} characters", "use the model's own tokenizer"
        )
    if rows is not None and ids and (largest := max(ids)) >= rows:
        raise DataError(
            f"{tokenizer.convert_ids_to_tokens(largest)!r} has the id {largest}: the tokenizer has {len(tokenizer)} "
            f"tokens, but the model has embeddings for {rows}",
            "leave it out of the text, use the tokenizer that was saved with this model, or resize the embeddings",
        )
    return ids


PROBE = "Aa0 ?!.,:;-_/\\|<>{}[]()=\"'\n\te\u00e9\u4e00"


def check_growth(tokenizer: Any, source: str) -> None:
    """Refuse a tokenizer whose normalizer makes a text many times longer, before a long one goes through it.

    Raises:
        ModelError: it does so with some character, or with a few.
    """
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    if normalizer is None:
        return
    parts = _parts(normalizer)
    for text in [*map(chr, range(32, 127)), *(PROBE[:size] for size in range(1, len(PROBE) + 1))]:
        made = text
        for part in parts:
            made = part.normalize_str(made)
            if len(made) > GROWTH * len(text) + FREE:
                raise ModelError(
                    f"the tokenizer of {source} makes over {GROWTH * len(text) + FREE:,} characters of {text!r}",
                    "use the model's own tokenizer",
                )


def _parts(normalizer: Any) -> list[Any]:
    """The normalizers that one is a sequence of, however deep: each makes a text longer by a factor of its own."""
    from tokenizers.normalizers import Sequence

    if not isinstance(normalizer, Sequence):
        return [normalizer]
    return [part for index in range(len(normalizer)) for part in _parts(normalizer[index])]
