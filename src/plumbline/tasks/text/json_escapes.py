"""What the escapes of a quoted text stand for."""

import re

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.?))", re.DOTALL)
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_JSON_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_QUOTED = re.compile(r"""(["'])((?:(?!\1)[^\\]|\\.)*+)(?:\1|\\?\Z)""", re.DOTALL).finditer
_UNKNOWN = re.compile(
    r"(?<!\\)(?:\\\\)*+\\(?:u(?![0-9a-fA-F]{4}|[0-9a-fA-F]*\Z)|x(?![0-9a-fA-F]{2}|[0-9a-fA-F]*\Z)|(?![\\bfnrtux])[^\W_])"
).search
"""A backslash before a letter or digit that JSON (and JavaScript) have no escape for."""
_PATH = re.compile(r"(?<!\w)[A-Za-z]:\\\w|\A\\\\\w").search
_SHARE = re.compile(r"\\\\\w(?!.*\\\\)", re.DOTALL).match
"""A path that begins with two backslashes, and has no other two."""
_BREAKS = re.compile(r"(?<!\\)(?:\\\\)*+\\n(?:[\s\-*#\\]|\Z)").search
_COMMAND = re.compile(
    r"\\(?:nu|neq?|nabla|neg|not(?:in)?|newline|newcommand|tau|theta|times|text\w*|tan|to|tilde|triangle|rho|right\w*"
    r"|rangle|rceil|rfloor|ref|rm)(?![^\W_])"
).match
"""Commands of LaTeX that begin as an escape of JSON does, `\\b` and `\\f` aside."""
_BETWEEN = {
    quote: re.compile(
        rf"""{quote}(?:[^{quote}\\]|\\.)*+{quote}?
        | (?P<before>[\[{{,:}}\]]\s*+|\A\s*+)?(?P<breaks>(?:\\{{1,8}}[nrt]\s*+)+)(?P<after>(?=[\[{{,:}}\]]|\Z))?""",
        re.DOTALL | re.VERBOSE,
    )
    for quote in "\"'"
}
_FIRST_QUOTE = re.compile(r"[^\[{]*+[\[{][^\"']*+([\"'])").match
_BREAK = re.compile(r"\\{1,8}[nrt]")
_CUT_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?)\Z")


def is_raw(text: str, start: int) -> bool:
    """Whether the quoted texts from here on hold plain backslashes, as paths, LaTeX and patterns do.

    One escape that JSON does not know proves it for all of them.
    """
    return any("\\" in match[2] and _UNKNOWN(match[2]) for match in _QUOTED(text, start))


def without_breaks(text: str) -> str | None:
    """The text with the escaped line breaks and tabs between its values as blanks; None where there are none."""
    first = _FIRST_QUOTE(text) if _BREAK.search(text) else None
    if first is None:
        return None

    def blank(match: re.Match[str]) -> str:
        found = match["breaks"]
        if found is None or not (match["before"] is not None or match["after"] is not None):
            return match[0]
        return (match["before"] or "") + _BREAK.sub(lambda one: "\n".ljust(len(one[0])), found)

    plain = _BETWEEN[first[1]].sub(blank, text)
    return plain if plain != text else None


def unescape(written: str, *, cut: bool = False, raw: bool = False) -> tuple[str, bool]:
    """Decode the escapes of a text.

    An escape that JSON does not know stands for its character where that is punctuation (`\\%` is how Markdown and
    LaTeX write `%`), for nothing before a newline, and for itself before a letter (`C:\\pasta`). Where the backslashes
    are plain, punctuation keeps its own, too, and so do the letters of JSON's escapes before another letter.

    Args:
        written: the content between the quotes.
        cut: whether the text was cut off, so that half an escape at its end is left out.
        raw: whether the backslashes around are plain (`is_raw`).

    Returns:
        The text, and whether it held an escape that JSON does not know.
    """
    if cut and (half := _CUT_ESCAPE.search(written)):
        written = written[: half.start(1)]
    odd = False
    own = raw and _UNKNOWN(written) is not None
    # Prose with line breaks beside a path is prose; a name without a blank is none.
    path = raw and _PATH(written) is not None
    literal = own or path or " " not in written
    breaks = raw and _BREAKS(written) is not None

    def decode(match: re.Match[str]) -> str:
        nonlocal odd
        unicode, latin, char = match.groups()
        if unicode:
            return chr(int(unicode, 16))
        if raw and char and char in "bfnrt" and plain(match, char):
            odd = True
            return match[0]
        if char in _JSON_ESCAPES and char:
            return _JSON_ESCAPES[char]
        odd = odd or char != "'"
        if latin:
            return chr(int(latin, 16))
        if char == "\n":
            return ""
        return match[0] if char.isalnum() or not char or (own and char != "'") else str(char)

    def plain(match: re.Match[str], char: str) -> bool:
        if char in "bf" or path or _COMMAND(written, match.start()):
            return True
        return literal and written[match.end() : match.end() + 1].isalnum() and not (breaks and char == "n")

    text = _ESCAPE.sub(decode, written)
    if own and _SHARE(written):
        text = "\\" + text
    if "\\u" in written:
        text = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
        if cut and "\ud800" <= text[-1:] <= "\udbff":
            text = text[:-1]
    return text, odd
