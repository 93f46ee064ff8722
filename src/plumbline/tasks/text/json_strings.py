"""Quoted texts of nearly-JSON: where they end, and what their escapes stand for.

Models leave quotes inside a text unescaped (`"disse "oi" e saiu"`, `'caixa d'água'`), so a quote
alone ends nothing: what follows it must be what follows a value. Once a quote was passed over, more
is asked of the next ones, because a text may itself hold a comma, a colon or a brace. Where the
doubt stays, the text is called broken and is not read: half a text, or a text that swallowed its
neighbours, looks right and is wrong.
"""

import re
from collections.abc import Collection
from typing import Literal, NamedTuple


class Ending(NamedTuple):
    """Where a text ends: its content is `text[start:end]`, and reading goes on at `after`."""

    state: Literal["closed", "unclosed", "cut", "broken"]
    """unclosed: its quote is missing, but the next key shows where it was; cut: the whole text ends
    first."""
    end: int
    after: int
    inner: bool = False
    """Whether quotes inside were not escaped."""


OPENING = "\"'“‘«`„”’´"
_CLOSERS = dict(
    zip(OPENING, ('"', "'", '”“"', "’‘'", "»", "`´", '”“"', '”"', "’'", "´`"), strict=True)
)
"""Which quotes may close a text that each quote opens."""

_MAX_INNER = 2_000
"""A text with more unescaped quotes is not read, so that a megabyte of quotes costs no more than
its length."""

_BODIES = {
    opener: re.compile(rf"[^{closers}\\]*+(?:\\.[^{closers}\\]*+)*+\\?", re.DOTALL).match
    for opener, closers in _CLOSERS.items()
}

BLANK = r"[\s\x00-\x1f\ufeff\u200b-\u200d\u2060]"
QUOTE = "[\"'“‘«`„”’»´]"
NAME = r"[^\W\d][\w.\\-]{0,80}"
"""A key without quotes; a backslash may stand before its underscores."""
_FENCE = r"```|~~~"
_COMMENT = r"//|/\*|\#"
_LITERAL = r"(?:true|false|null|True|False|None)\b"
_OPENING = f"(?:[uUbBrR](?=[\"']))?{QUOTE}"
"""The beginning of a quoted text, Python's u'…' included."""
_COLON = r"(?:[:：]|=>?)"


def quoted_key(group: str) -> str:
    """A pattern for a quoted key and its colon; `group` names the key, "" does not."""
    name = f"?P<{group}>" if group else "?:"
    content = r"(?:[^\"'“”‘’«»`„\n\\]|\\.|(?<=\w)['’](?=\w)){0,120}"
    return rf"{_OPENING}({name}{content}){QUOTE}{BLANK}*{_COLON}"


_JUNK = rf"[^\"'“‘«`{{}}\[\]\n:,]{{1,80}}(?:,{BLANK}*(?:{quoted_key('')}|{NAME}[ \t]*[:：=])|{BLANK}*\}})"
"""Words without quotes, and then a member or the end of the object."""

_FIRST_IN_OBJECT = re.compile(
    rf"""{BLANK}*+(?:
        \Z | [}}\];；] | {_FENCE} | </ | {_COMMENT}
        | [,，]{BLANK}*+(?:
            \Z | [}}\],，] | {_OPENING} | \.\.\. | … | {_FENCE} | {_COMMENT} | {_JUNK}
            | {NAME}(?:[\t\x20]*[:：=] | \Z) | \d{{1,20}}\x20*:)
        | {quoted_key("")}
        | (?<=\s){_OPENING}[\w\x20.-]{{0,80}}{QUOTE}?{BLANK}*\Z)
    | [\t\r\x20]*\n{BLANK}*{NAME}[\t\x20]*[:：=]""",
    re.VERBOSE,
).match
"""What may follow the first quote that can end a value of an object."""

_FIRST_IN_ARRAY = re.compile(
    rf"""{BLANK}*+(?:
        \Z | [\]}},，;；:：] | (?<={BLANK}){_OPENING} | {_FENCE} | </ | {_COMMENT} | \.\.\. | …)
    | [\t\r\x20]*\n{BLANK}*(?:[\d\[{{+−-] | [^\W\d]\w*[\t\x20]*[,\]\n])""",
    re.VERBOSE,
).match
"""What may follow the first quote that can end an element of an array."""

_LATER = re.compile(
    rf"""{BLANK}*+(?:
        (?P<end>\Z | {_FENCE})
        | (?P<colon>[:：])
        | (?P<remark>{_COMMENT})
        | (?P<bracket>[}}\]])(?P<strong>{BLANK}*+(?:\Z | [,，;}}\]] | {_FENCE} | </) | [\t\r\x20]*\n)?
        | (?P<comma>[,，;；]){BLANK}*+(?:
            (?P<tail>\Z | [}}\]] | {_FENCE})
            | (?P<comment>{_COMMENT})
            | {quoted_key("key")}
            | (?P<bare>{NAME})[\t\x20]*{_COLON}(?P<valued>{BLANK}*(?:[\"'“\d\[{{-] | {_LITERAL}))?
            | (?P<junk>{_JUNK}))?
        | (?P<next>{quoted_key("next_key")}))
    | [\t\r\x20]*\n{BLANK}*(?:(?P<line>{_OPENING}) | (?P<line_key>{NAME})[\t\x20]*[:：=])""",
    re.VERBOSE,
).match
"""What follows a quote when others were passed over before it."""

_FAR = re.compile(
    rf"""(?<!\\)"(?={BLANK}*+(?:
        ,{BLANK}*+"(?P<key>[\w\x20.-]{{1,80}})"{BLANK}*+:
        | \}}{BLANK}*+(?:\Z | ```|~~~ | [\]}}] | ,{BLANK}*+\{{)))""",
    re.VERBOSE,
).finditer
_PARTS = re.compile(rf'(?<!\\)"{BLANK}*+\+?{BLANK}*+"').search
"""Two texts one behind the other, as Python and JavaScript join them."""
_QUOTES = re.compile(r'(?<!\\)"').findall
_CLOSING = "\"'”’»`"
_DOUBTFUL = "+,，;；{[:："
"""Behind a quote that closes nothing, these are as likely to follow a value as to be part of a
text."""
_KEY_BEFORE_COLON = re.compile(r"(\w[\w .-]{0,80})[\"'”’]\s*[:：]").match
_AT_LINE_END = re.compile(r"[ \t\r]*\n").match
_PATH = re.compile(r"\w:\\|\\\\").match
_BACKSLASH_AT_END = re.compile(
    rf"\\(?=[\"']{BLANK}*+(?:[}}\]]+{BLANK}*+\Z|[,，]{BLANK}*+{quoted_key('')}))"
)
_FENCE_LINE = re.compile(r"\n[ \t]*+(?:```|~~~)[ \t]*+(?:\n|\Z)")
_FENCE_AT_END = re.compile(r"\s*(?:```|~~~)\s*\Z")


def place_behind(match: re.Match[str] | None, otherwise: int) -> int:
    """The place behind a match; another where there is none."""
    return match.end() if match is not None else otherwise


def find_end(
    text: str, start: int, quote: str, *, in_array: bool, known: Collection[str]
) -> Ending:
    """Find where a quoted text ends.

    Args:
        text: the whole text.
        start: the place after the opening quote.
        quote: the opening quote, one of `OPENING`.
        in_array: whether the value is an element of an array (else a member of an object).
        known: the keys that the schema names for the object around it; empty where it names none.
    """
    body = _BODIES[quote]
    size = len(text)
    first = _FIRST_IN_ARRAY if in_array else _FIRST_IN_OBJECT
    apostrophe = quote in "'‘’`´"
    inner, nested, weak = 0, 0, -1
    doubtful = False  # whether a quote inside may be the opening quote of the next text
    at = place_behind(body(text, start), start)
    # ""aspas" no início": the second quote opens an inner text, or is one too many
    doubled = at == start
    while at < size:
        after = text[at + 1 : at + 2]
        word_before, word_after = (
            at > start and text[at - 1].isalnum(),
            after.isalnum() or after == "\\",
        )
        if apostrophe and word_before and word_after:
            pass  # d'água: it quotes nothing
        elif inner == 0 and first(text, at + 1):
            return Ending("closed", at, at + 1)
        else:
            if inner == 0:
                verdict = _at_first(text, at, start, known)
            else:
                verdict = _at_later(
                    text, at, known, balanced=nested == 0, loose=apostrophe, in_array=in_array
                )
            if doubled and nested and verdict in ("close", "weak", "stop"):
                verdict = "broken"
            if doubtful and verdict == "close" and (weak >= 0 or inner % 2):
                verdict = "broken"
            if verdict == "close":
                return Ending("closed", at, at + 1, inner=True)
            if verdict == "unclosed":
                return _end_of_unclosed(text, start, at, quote)
            if not doubtful and (
                verdict == "stop" or (verdict == "broken" and in_array and weak >= 0)
            ):
                end = weak if weak >= 0 else at
                return Ending("closed", end, end + 1, inner=True)
            if verdict in ("broken", "stop") or inner >= _MAX_INNER:
                return Ending("broken", at, at)
            if verdict == "weak" and weak < 0:
                weak = at
            inner += 1
            doubtful = doubtful or text[max(start, at - 20) : at].rstrip()[-1:] in (",", "，", ";")
            # An inch mark (32") closes nothing that was opened, so it does not count.
            if word_after and not word_before:
                nested += 1
            elif word_before and not word_after and nested:
                nested -= 1
        at = place_behind(body(text, at + 1), at + 1)
    if inner == 0 and _PATH(text, start) and (path := _BACKSLASH_AT_END.search(text, start)):
        return Ending("closed", path.end(), path.end() + 1)
    # A text that nothing closes ends at the latest at the line that closes the fence around it.
    fence = _FENCE_LINE.search(text, start) or _FENCE_AT_END.search(text, max(start, size - 40))
    end = start + len(text[start : fence.start()].rstrip()) if fence else size
    return Ending("cut", end, size, inner=inner > 0)


def far_end(text: str, start: int, known: Collection[str]) -> Ending | None:
    """Where the text of a member ends if every quote before the next key, or the end of the object,
    is part of it.

    Returns:
        Broken where the quotes inside are no pairs; None where no such end follows.
    """
    for match in _FAR(text, start):
        if match["key"] is None or not known or match["key"] in known:
            inner = len(_QUOTES(text, start, match.start()))
            if inner % 2 or _PARTS(text, start, match.start()):
                return Ending("broken", match.start(), match.start())
            return Ending("closed", match.start(), match.start() + 1, inner=inner > 0)
    return None


_Verdict = Literal["close", "stop", "weak", "unclosed", "broken", "inside"]
"""stop: an end, unless there was a weak one before; weak: an end, if there is no better one."""


def _end_of_unclosed(text: str, start: int, at: int, quote: str) -> Ending:
    """The text ended before the comma in front of the next key, whose quote is at `at`."""
    end = len(text[start:at].rstrip(", \t\r\n")) + start
    if end == start or text[end - 1] in "[]{}:":
        return Ending("broken", at, at)
    # "C:\pasta\", "next": the backslash escaped nothing
    if text[end - 1] == quote and text[end - 2] == "\\":
        return Ending("closed", end - 1, at)
    if text[end - 1] in _CLOSING and text[end - 1] != quote:
        end -= 1  # it was closed by a quote of another kind
    return Ending("unclosed", end, at)


def _at_first(text: str, at: int, start: int, known: Collection[str]) -> _Verdict:
    """Judge the first quote of a text, where what comes next does not follow a value."""
    key = _KEY_BEFORE_COLON(text, at + 1)
    before = text[max(start, at - 40) : at].rstrip(" \t")[-1:]
    if key is None:
        # A quote straight behind a quote, as in "a" "b" of Python: no telling which of them are
        # part of the text.
        after = text[at + 1 : at + 40].lstrip()[:1]
        behind = at > start and not text[at - 1].isspace()
        return "broken" if behind and after and after in _DOUBTFUL + text[at] else "inside"
    if before in (",", "\n") and key[1] in known:
        return "unclosed"
    return "broken" if before in (",", "\n", "{") else "inside"


def _at_later(
    text: str, at: int, known: Collection[str], *, balanced: bool, loose: bool, in_array: bool
) -> _Verdict:
    """Judge a quote behind others that were inside.

    Args:
        text: the whole text.
        at: the place of the quote.
        known: the keys that the schema names for the object around it; empty where it names none.
        balanced: whether each quote that was opened inside was closed again. If not, one is missing
            somewhere.
        loose: whether that says nothing, because the quotes are apostrophes.
        in_array: whether the value is an element of an array.
    """
    follows = _LATER(text, at + 1)
    if follows is None:
        structure = text[max(0, at - 20) : at].rstrip()[-1:] == "{" and _KEY_BEFORE_COLON(
            text, at + 1
        )
        return "broken" if structure or (balanced and _AT_LINE_END(text, at + 1)) else "inside"
    if follows["end"] is not None or follows["remark"]:
        return (
            "close" if balanced and (follows["remark"] or not text[at - 1].isspace()) else "inside"
        )
    if follows["colon"]:
        return "broken"
    if follows["bracket"]:
        return "close" if balanced else "stop" if follows["strong"] is not None else "weak"
    if follows["next"]:
        newline = "\n" in text[at + 1 : follows.start("next")]
        ends = newline or follows["next_key"] in known
        return "close" if ends and (balanced or loose) else "broken"
    if in_array:
        return "close" if balanced or follows["tail"] is not None else "weak"
    if follows["line"]:
        return "inside"
    if follows["line_key"]:
        return "close" if balanced or (loose and follows["line_key"] in known) else "broken"
    # A comma follows.
    if follows["tail"] is not None or (follows["junk"] and balanced):
        return "close"
    if follows["key"] is not None or follows["comment"]:
        return "close" if balanced or (loose and not follows["comment"]) else "broken"
    if follows["bare"] is None:
        return "broken" if balanced else "inside"
    if balanced or (loose and follows["bare"] in known):
        return "close"
    # `, word:` may be part of the text; not where a value follows, or where the schema knows the
    # word.
    named = follows["bare"] in known if known else follows["valued"] is not None
    return "broken" if named else "inside"


# -- escapes ---------------------------------------------------------------------------------------

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.?))", re.DOTALL)
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_JSON_ESCAPES = dict(zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True))
_QUOTED = re.compile(r"""(["'])((?:(?!\1)[^\\]|\\.)*+)(?:\1|\\?\Z)""", re.DOTALL).finditer
_UNKNOWN = re.compile(
    r"(?<!\\)(?:\\\\)*+\\(?:u(?![0-9a-fA-F]{4}|[0-9a-fA-F]*\Z)|x(?![0-9a-fA-F]{2}|[0-9a-fA-F]*\Z)|(?![\\bfnrtux])[^\W_])"
).search
"""A backslash before a letter or digit that JSON (and JavaScript) have no escape for."""
_HOLDS_PATH = re.compile(r"(?<!\w)[A-Za-z]:\\\w|\A\\\\\w").search
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
    """Whether the quoted texts from here on hold plain backslashes, as paths, LaTeX and patterns
    do.

    One escape that JSON does not know proves it for all of them.
    """
    return any("\\" in match[2] and _UNKNOWN(match[2]) for match in _QUOTED(text, start))


def without_breaks(text: str) -> str | None:
    """The text with the escaped line breaks and tabs between its values as blanks; None where there
    are none."""
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

    An escape that JSON does not know stands for its character where that is punctuation (`\\%` is
    how Markdown and LaTeX write `%`), for nothing before a newline, and for itself before a letter
    (`C:\\pasta`). Where the backslashes are plain, punctuation keeps its own, too, and so do the
    letters of JSON's escapes before another letter.

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
    path = raw and _HOLDS_PATH(written) is not None
    literal = own or path or " " not in written
    breaks = raw and _BREAKS(written) is not None

    def decode(match: re.Match[str]) -> str:
        nonlocal odd
        unicode, latin, char = match.groups()
        if unicode:
            return chr(int(unicode, 16))
        if raw and char and char in "bfnrt" and is_plain(match, char):
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

    def is_plain(match: re.Match[str], char: str) -> bool:
        if char in "bf" or path or _COMMAND(written, match.start()):
            return True
        return (
            literal
            and written[match.end() : match.end() + 1].isalnum()
            and not (breaks and char == "n")
        )

    text = _ESCAPE.sub(decode, written)
    if own and _SHARE(written):
        text = "\\" + text
    if "\\u" in written:
        text = _PAIR.sub(
            lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text
        )
        if cut and "\ud800" <= text[-1:] <= "\udbff":
            text = text[:-1]
    return text, odd
