"""A text through a tokenizer of others, which may make it far too long or fail."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from plumbline.errors import DataError, ModelError
from plumbline.policies.library_errors import clear_opening_errors

GROWTH, FREE = 64, 1024
"""Tokens that a character may become, and tokens that any text may: the most that Unicode makes of
a character is 18 others, of up to 3 bytes each."""
LONGEST = 10**6
"""Characters of a chat: beyond what a model of ours reads."""


def encode(
    read: Callable[[], Sequence[int]], text: str, tokenizer: Any, rows: int | None
) -> list[int]:
    """The ids that `read` gives for a text, for a model of so many embeddings.

    Raises:
        DataError: the text holds half a character or becomes far longer than any text should; an id
            has no embedding.
        ModelError: the tokenizer fails.
    """
    if len(text) > LONGEST:
        raise DataError(
            f"a text of {len(text):,} characters is longer than any prompt",
            "correct the chat template",
        )
    try:
        with clear_opening_errors(
            "the tokenizer fails", "use the tokenizer that was saved with this model"
        ):
            ids = list(read())
    except ModelError as error:
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise DataError(
                "a message holds half of a pair of surrogates, which is no character"
            ) from error
        raise
    if len(ids) > GROWTH * len(text) + FREE:
        raise DataError(
            f"the tokenizer makes {len(ids):,} tokens of {len(text):,} characters",
            "use the model's own tokenizer",
        )
    if rows is not None and ids and (largest := max(ids)) >= rows:
        raise DataError(
            f"{tokenizer.convert_ids_to_tokens(largest)!r} has the id {largest}: the tokenizer has "
            f"{len(tokenizer)} "
            f"tokens, but the model has embeddings for {rows}",
            "leave it out of the text, use the tokenizer that was saved with this model, or resize "
            "the embeddings",
        )
    return ids


PROBE = "Aa0 ?!.,:;-_/\\|<>{}[]()=\"'\n\te\u00e9\u4e00"


def check_tokenizer(tokenizer: Any, source: str) -> None:
    """Refuse a tokenizer that makes a text many times longer, before one goes through it, or other
    ids each time.

    Raises:
        ModelError: it does so, by what its parts are, or with some character, or with a few.
    """
    fix = "use the model's own tokenizer"
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if any(getattr(getattr(backend, "model", None), key, None) for key in DRAWN) or _is_drawn(
        tokenizer
    ):
        raise ModelError(
            f"the tokenizer of {source} draws at random how it cuts a text",
            "save it without its dropout",
        )
    steps = [
        [*_parts(getattr(backend, kind, None))]
        for kind in ("normalizer", "pre_tokenizer", "decoder")
    ]
    for way in (steps[0] + steps[1], steps[2]):
        times, more = 1.0, 0.0
        for part in way:
            grows = _growth(part)
            times, more = times * grows, more * grows + len(part.get("prepend", ""))
        if times > GROWTH or more > FREE:
            raise ModelError(
                f"the tokenizer of {source} may make a text {times:,.0f} times longer", fix
            )
    if (normalizer := getattr(backend, "normalizer", None)) is None:
        return
    for text in [*map(chr, range(32, 127)), *(PROBE[:size] for size in range(1, len(PROBE) + 1))]:
        if len(normalizer.normalize_str(text)) > GROWTH * len(text) + FREE:
            raise ModelError(
                f"the tokenizer of {source} makes over {GROWTH * len(text) + FREE:,} characters of "
                f"{text!r}",
                fix,
            )


DRAWN = ("dropout", "nbest_size", "alpha")
"""Of a BPE and of a unigram model: what makes it cut the same text in other ways."""
_EMPTY = re.compile(r"\(\?|[*?|^$]|\\[bBAzZGK]|\{0?,|^$")
"""In a pattern that may match where nothing is."""


def _is_drawn(tokenizer: Any) -> bool:
    """Whether a tokenizer reads one text in two ways; those in Rust tell by their settings."""
    text = PROBE * 10
    return (
        not getattr(tokenizer, "is_fast", True)
        and len({tuple(tokenizer(text)["input_ids"]) for _ in range(3)}) > 1
    )


def _parts(whole: Any) -> Iterator[Mapping[str, Any]]:
    """The settings of what a normalizer, pre-tokenizer or decoder is a sequence of, however
    deep."""
    left = [] if whole is None else [json.loads(whole.__getstate__())]
    while left:
        part = left.pop(0)
        inner = next(
            (part[key] for key in ("normalizers", "pretokenizers", "decoders") if key in part), None
        )
        if inner is None:
            yield part
        left = [*(inner or []), *left]


def _growth(part: Mapping[str, Any]) -> float:
    """How many times longer a part of a tokenizer may make a text."""
    if part["type"] == "ByteLevel":
        return 2.0  # a letter of two bytes becomes two letters of two bytes
    if part["type"] != "Replace":
        return 2.0 if "" in part.values() else 1.0  # BPEDecoder, CTC: a blank for each nothing
    pattern, content = part["pattern"], len(part["content"])
    if literal := pattern.get("String"):
        return max(1.0, content / len(literal))
    return max(1.0, content + bool(_EMPTY.search(pattern.get("Regex", ""))))
