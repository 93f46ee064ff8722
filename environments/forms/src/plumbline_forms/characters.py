"""Sets of characters as JavaScript's regular expressions know them: escapes, properties, letters without their case."""

import unicodedata
from collections.abc import Callable, Mapping
from typing import NoReturn

Test = Callable[[str], bool]
"""Whether a character is in a set."""


class UnreadPatternError(ValueError):
    """A pattern is right, but asks for more than is read here."""


ENDS = frozenset("\n\r\u2028\u2029")
SPACES = frozenset("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff") | {
    chr(c) for c in range(0x2000, 0x200B)
}
DIGITS = frozenset("0123456789")
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
word = _WORD.__contains__
ESCAPES: Mapping[str, Test] = {"d": DIGITS.__contains__, "s": SPACES.__contains__, "w": word}
SIGNS = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}
SYNTAX = frozenset("^$\\.*+?()[]{}|/")
CLASS_SYNTAX = frozenset("()[]{}/-\\|")
CLASS_SIGNS = frozenset("&-!#%,:;<=>@`~")
TWICE = frozenset("&!#$%*+,.:;<=>?@^`~")
_GROUPS_OF_CATEGORIES = {"LC": ("Lu", "Ll", "Lt")}
CATEGORIES: Mapping[str, str] = {
    name: short
    for short, names in {
        "L": "Letter", "LC": "Cased_Letter", "Lu": "Uppercase_Letter", "Ll": "Lowercase_Letter",
        "Lt": "Titlecase_Letter", "Lm": "Modifier_Letter", "Lo": "Other_Letter", "M": "Mark Combining_Mark",
        "Mn": "Nonspacing_Mark", "Mc": "Spacing_Mark", "Me": "Enclosing_Mark", "N": "Number",
        "Nd": "Decimal_Number digit", "Nl": "Letter_Number", "No": "Other_Number", "P": "Punctuation punct",
        "Pc": "Connector_Punctuation", "Pd": "Dash_Punctuation", "Ps": "Open_Punctuation", "Pe": "Close_Punctuation",
        "Pi": "Initial_Punctuation", "Pf": "Final_Punctuation", "Po": "Other_Punctuation", "S": "Symbol",
        "Sm": "Math_Symbol", "Sc": "Currency_Symbol", "Sk": "Modifier_Symbol", "So": "Other_Symbol", "Z": "Separator",
        "Zs": "Space_Separator", "Zl": "Line_Separator", "Zp": "Paragraph_Separator", "C": "Other", "Cc": "Control",
        "Cf": "Format", "Cs": "Surrogate", "Co": "Private_Use", "Cn": "Unassigned",
    }.items()
    for name in (short, *names.split())
}  # fmt: skip
_OTHERS = """Bidi_Control Bidi_C Bidi_Mirrored Bidi_M Case_Ignorable CI Cased Changes_When_Casefolded CWCF
    Changes_When_Casemapped CWCM Changes_When_Lowercased CWL Changes_When_NFKC_Casefolded CWKCF Changes_When_Titlecased
    CWT Changes_When_Uppercased CWU Dash Default_Ignorable_Code_Point DI Deprecated Dep Diacritic Dia Emoji
    Emoji_Component EComp Emoji_Modifier EMod Emoji_Modifier_Base EBase Emoji_Presentation EPres Extended_Pictographic
    ExtPict Extender Ext Grapheme_Base Gr_Base Grapheme_Extend Gr_Ext Hex_Digit Hex IDS_Binary_Operator IDSB
    IDS_Trinary_Operator IDST ID_Continue IDC ID_Start IDS Ideographic Ideo Join_Control Join_C
    Logical_Order_Exception LOE Math Noncharacter_Code_Point NChar Pattern_Syntax Pat_Syn Pattern_White_Space Pat_WS
    Quotation_Mark QMark Radical Regional_Indicator RI Sentence_Terminal STerm Soft_Dotted SD Terminal_Punctuation Term
    Unified_Ideograph UIdeo Variation_Selector VS XID_Continue XIDC XID_Start XIDS"""
OTHER_PROPERTIES = frozenset(_OTHERS.split())
"""Names of properties that are known in JavaScript, and not here."""
_STRINGS = """Basic_Emoji Emoji_Keycap_Sequence RGI_Modifier_Sequence RGI_Flag_Sequence RGI_Emoji_Modifier_Sequence
    RGI_Emoji_Flag_Sequence RGI_Emoji_Tag_Sequence RGI_Emoji_ZWJ_Sequence RGI_Emoji"""
OF_STRINGS = frozenset(_STRINGS.split())
"""Those that strings have."""
SCRIPTS = {
    name: word
    for names, word in {
        "Latin Latn": "LATIN", "Greek Grek": "GREEK", "Cyrillic Cyrl": "CYRILLIC", "Hebrew Hebr": "HEBREW",
        "Arabic Arab": "ARABIC", "Thai": "THAI", "Hangul Hang": "HANGUL", "Hiragana Hira": "HIRAGANA",
        "Katakana Kana": "KATAKANA", "Han Hani": "CJK", "Devanagari Deva": "DEVANAGARI", "Armenian Armn": "ARMENIAN",
        "Georgian Geor": "GEORGIAN",
    }.items()
    for name in names.split()
}  # fmt: skip


def variants(letter: str) -> set[str]:
    """The characters that are the same without regard to case."""
    if letter in "ıİ":
        return {letter}
    folds = {letter, letter.lower(), letter.upper(), letter.casefold(), letter.upper().lower(), letter.lower().upper()}
    found = {one for one in folds if len(one) == 1}
    for group in ("kK\u212a", "sS\u017f", "åÅ\u212b", "ßẞ"):
        if letter in group:
            found |= set(group)
    return found


def same(one: str, two: str, *, folds: bool) -> bool:
    """Whether two texts are the same, with `folds` without regard to case."""
    return one == two or (
        folds and len(one) == len(two) and all(b in variants(a) for a, b in zip(one, two, strict=True))
    )


def _unknown(name: str, letter: str) -> NoReturn:
    raise UnreadPatternError(f"its pattern asks whether {letter!r} is {name}, which is not known here")


def in_category(short: str) -> Test:
    """The characters of a general category, by its short name."""
    wanted = _GROUPS_OF_CATEGORIES.get(short, (short,))
    return lambda letter: unicodedata.category(letter).startswith(wanted)


def _is_alphabetic(letter: str) -> bool:
    kind = unicodedata.category(letter)
    if kind in {"Mn", "Mc", "So"} and letter > "\u02ff":
        _unknown("Alphabetic", letter)
    return kind[0] == "L" or kind == "Nl"


def _is_emoji(letter: str) -> bool:
    if letter > "\u0250" and (not letter.isalpha() or letter == "\u2139"):
        _unknown("Emoji", letter)
    return letter in "#*0123456789©®"


_COMMON = (
    *(("\u0300", "\u036f"), ("\u2000", "\u20cf"), ("\u2190", "\u27bf")),
    *(("\U0001f000", "\U0001f1ff"), ("\U0001f300", "\U0001faff")),
)
"""Where all but letters belong to no script."""


def in_script(name: str) -> Test:
    """The characters of a script, by the first word of their names."""

    def test(letter: str) -> bool:
        if letter < "\u0100":
            return name == "LATIN" and letter.isalpha() and letter != "µ"
        if any(first <= letter <= last for first, last in _COMMON) and not letter.isalpha():
            return False
        words = unicodedata.name(letter, "").split()
        if not letter.isalpha() or unicodedata.category(letter) == "Lm" or not words:
            _unknown(f"of the script {name}", letter)
        if words[0] in {"FULLWIDTH", "HALFWIDTH"}:
            words = words[1:]
        if words[0] in {"KELVIN", "ANGSTROM"}:
            return name == "LATIN"
        if words[0] not in SCRIPTS.values() and name not in {"LATIN", "CJK"}:
            return False
        return words[0] == name and (name != "CJK" or "IDEOGRAPH" in " ".join(words))

    return test


PROPERTIES: Mapping[str, Test] = {
    "Any": lambda _: True,
    "ASCII": str.isascii,
    "Assigned": lambda letter: unicodedata.category(letter) != "Cn",
    **dict.fromkeys(("Alphabetic", "Alpha"), _is_alphabetic),
    **dict.fromkeys(("Lowercase", "Lower"), str.islower),
    **dict.fromkeys(("Uppercase", "Upper"), str.isupper),
    **dict.fromkeys(("White_Space", "space"), lambda letter: letter in SPACES - {"\ufeff"} or letter == "\u0085"),
    **dict.fromkeys(("ASCII_Hex_Digit", "AHex"), frozenset("0123456789abcdefABCDEF").__contains__),
    "Emoji": _is_emoji,
}
