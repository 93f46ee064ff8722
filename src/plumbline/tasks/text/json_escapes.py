"""What the escapes of a quoted text stand for."""

import re

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.?))", re.DOTALL)
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_JSON_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CUT_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?)\Z")


def unescape(raw: str, *, cut: bool = False) -> tuple[str, bool]:
    """Decode the escapes of a text.

    An escape that JSON does not know stands for its character where that is punctuation (`\\%` is how Markdown and
    LaTeX write `%`), for nothing before a newline, and for itself before a letter (`C:\\pasta`).

    Args:
        raw: the content between the quotes.
        cut: whether the text was cut off, so that half an escape at its end is left out.

    Returns:
        The text, and whether it held an escape that JSON does not know.
    """
    if cut and (half := _CUT_ESCAPE.search(raw)):
        raw = raw[: half.start(1)]
    odd = False

    def decode(match: re.Match[str]) -> str:
        nonlocal odd
        unicode, latin, char = match.groups()
        if unicode:
            return chr(int(unicode, 16))
        if char in _JSON_ESCAPES and char:
            return _JSON_ESCAPES[char]
        odd = odd or char != "'"
        if latin:
            return chr(int(latin, 16))
        if char == "\n":
            return ""
        return match[0] if char.isalnum() or not char else str(char)

    text = _ESCAPE.sub(decode, raw)
    if "\\u" in raw:
        text = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
        if cut and "\ud800" <= text[-1:] <= "\udbff":
            text = text[:-1]
    return text, odd
