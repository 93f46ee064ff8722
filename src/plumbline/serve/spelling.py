"""The text of tokens as they come."""

from collections.abc import Callable, Sequence

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What a decoder gives for bytes that are no whole character yet."""


class Spelling:
    """The text of an answer, token by token: nothing is taken back, and no character is cut.

    Some tokenizers write a token otherwise at the beginning than behind another. So each is decoded behind those
    before it, a few of them: from the last two places at which whole characters had come.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        """Take what gives the text of tokens."""
        self._decode = decode
        self._tokens: list[int] = []
        self._begin = self._known = 0

    def add(self, tokens: Sequence[int], *, last: bool = False) -> str:
        """Take more tokens, and give the text that is certain now; of the last ones all of it."""
        self._tokens += tokens
        before = self._decode(self._tokens[self._begin : self._known])
        text = self._decode(self._tokens[self._begin :])
        if not last and (len(text) <= len(before) or text.endswith(UNFINISHED)):
            return ""
        self._begin, self._known = self._known, len(self._tokens)
        return text[len(before) :]
