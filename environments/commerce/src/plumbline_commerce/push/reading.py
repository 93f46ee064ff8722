"""Reading a completion: the message, and what stands around it."""

import re
from typing import NamedTuple

from plumbline_commerce.push.phrases import folded, lexicon

MOST = 300
"""Characters of a completion that are looked at, behind its thoughts; a message of more than 120 has failed anyway."""
MOST_THOUGHT = 20_000


class Message(NamedTuple):
    """A push notification as it was written."""

    title: str
    """Empty where none was asked for."""
    body: str
    around: tuple[str, ...] = ()
    """What had to be taken away, in this order: thought, fence, preamble, count, lines, label, quotes."""
    lines: int = 1
    """Of the message itself; one, or two with a title."""

    @property
    def how(self) -> str:
        """The parse mode of reports."""
        return "+".join(self.around) or "strict"


_THOUGHT = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE).match
_FENCE = re.compile(r"\s*(?:```|~~~)[ \t]*\w*[ \t]*\n?(.*?)\s*(?:```|~~~)?\s*\Z", re.DOTALL).match
_COUNT = re.compile(r"\s*[(\[]\s*\d{1,4}\s*(?:caracteres|chars|characters)\s*[)\]]\s*\Z", re.IGNORECASE).search
_LABEL = re.compile(r"[*_#\s]*([^\W\d_]+(?: [^\W\d_]+){0,2})[*_\s]*[:：][*_\s]*").match
_QUOTED = re.compile(r"""(["“”'‘’«»*_`]{1,3})(.*?)(["“”'‘’«»*_`]{1,3})\Z""", re.DOTALL).match


def read(completion: str, *, titled: bool) -> Message:
    """Read what a model wrote. Never raises.

    Args:
        completion: any text.
        titled: whether the first line is a title.
    """
    text, around = completion[:MOST_THOUGHT].strip(), []
    if text.startswith("<") and (match := _THOUGHT(text)):
        text = text[match.end() :].strip()
        around.append("thought")
    text = text[:MOST]
    if text.startswith(("```", "~~~")) and (match := _FENCE(text)):
        text = match[1].strip()
        around.append("fence")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):
        lines = lines[1:]
        around.append("preamble")
    if lines and (match := _COUNT(lines[-1])):
        lines[-1] = lines[-1][: match.start()]
        around.append("count")
    bare = [_bare(line, around) for line in lines]
    lines = [line for line in bare if line]
    wanted = 2 if titled else 1
    if len(lines) == wanted + 1:
        around.append("lines")
    title = lines[0] if titled and len(lines) > 1 else ""
    body = " ".join(lines[1:] if title else lines)
    return Message(title, body, tuple(dict.fromkeys(around)), len(lines))


def _bare(line: str, around: list[str]) -> str:
    """A line without its label and the quotes around it."""
    if (match := _LABEL(line)) and folded(match[1]) in lexicon().labels:
        line = line[match.end() :]
        around.append("label")
    match = _QUOTED(line)
    if match and match[1][0] not in match[2] and match[3][0] not in match[2]:
        line = match[2].strip()
        around.append("quotes")
    return line.strip()
