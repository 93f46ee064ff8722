"""What controls hold, and which values a browser does not send; `browser/test_values.py` asks a
browser the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.forms.tests.pages import at_page
from plumbline_browser.plans.actions import Select, Submit, Type
from plumbline_forms.values import (
    PICKED,
    TYPED,
    UnreadPatternError,
    held,
    invalid,
    is_url,
    matches,
    read_pattern,
    sanitised,
    typed,
)
from tests.work import most_work


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("[0-9\\-\\(\\) ]+", "(11) 99-99", "ext. 12"),
        ("\\d+", "12", "١٢"),
        ("\\w+", "ab_1", "é"),
        ("[0-9]{3}( [0-9]{4}){3}", "123 4567 8901 2345", "123 4567 8901"),
        ("[0-9]{2}[.][0-9]{3}/[0-9]{4}-[0-9]{2}", "12.345/6789-01", "12x345/6789-01"),
        ("PC-[0-9]{4}-[A-Z]", "PC-0123-X", "PC-0123-x"),
        ("[^@]{2}\\.?a", "😀😀.a", "@@a"),
    ],
)
def test_a_pattern_means_what_javascript_means(pattern, good, bad):
    assert (matches(pattern, good), matches(pattern, bad)) == (True, False)


ERRONEOUS = "[0-9-()] [a-zA-Z0-9-]+ [(]\\d+[)] [{}] [a|b] [/]"


@pytest.mark.parametrize("pattern", ERRONEOUS.split())
def test_an_erroneous_pattern_is_ignored(pattern):
    assert read_pattern(pattern) is None
    assert matches(pattern, "anything")


@pytest.mark.parametrize(
    "pattern", ["a|b", "(a+)+b", "(?=a)a", "\\p{L}", "[!!]", "[z-a]", "a" * 3000, "(", "a*a*"]
)
def test_a_pattern_that_is_not_read_here_is_refused_in_words(pattern):
    with pytest.raises(UnreadPatternError, match="its pattern"):
        matches(pattern, "a")
    sent, attempts = at_page(
        f'<label>Code <input name="c" pattern="{pattern}"></label>', Type("Code", "a"), Submit()
    )
    assert sent is None
    assert "its pattern" in attempts[-1].reason


def test_no_pattern_takes_long():
    def try_it(pattern):
        for text in ("a" * 40 + "!", "ab" * 2000, "a" * 10_000):
            matches(pattern, text)

    hostile = ("a*b", "(a{9}a{9}){99}b", "\\w+!", "a{1,999}b")
    assert most_work(try_it, hostile) < 4


VALUES = [
    ("text", {}, "a\nb", "a b", ""),
    ("text", {"maxlength": "3"}, "a😀😀", "a😀", ""),
    ("text", {"maxlength": " +3px"}, "abcdef", "abc", ""),
    ("text", {"minlength": "4"}, "a😀", "a😀", "too short"),
    ("tel", {"pattern": "[0-9-() ]+"}, "ext. 12", "ext. 12", ""),
    ("textarea", {"maxlength": "4"}, "a\r\nbcd", "a\nbc", ""),
    ("textarea", {"pattern": "a"}, "b", "b", ""),
    ("email", {}, " a@b.co ", "a@b.co", ""),
    ("email", {}, "a@b,c@d", "a@b,c@d", "not a valid email"),
    ("email", {}, "a@Exämple.ORG", "a@xn--exmple-cua.org", ""),
    ("email", {}, "a b@exämple.org", "a b@exämple.org", "not a valid email"),
    ("email", {}, "a@ä_b.org", "a@ä_b.org", "not a valid email"),
    ("email", {"multiple": ""}, " a@b , c@exämple.org ", "a@b,c@xn--exmple-cua.org", ""),
    ("email", {"multiple": ""}, "a@b,,c@d", "a@b,,c@d", "not a valid email"),
    (
        "email",
        {"multiple": "", "pattern": "[a-z]@b"},
        "a@b,c@d",
        "a@b,c@d",
        "not in the format that is asked for",
    ),
    ("url", {}, " http://a.org/x y ", "http://a.org/x y", ""),
    ("number", {}, "2.5", "2.5", "out of range (step)"),
    ("number", {"step": "0.1"}, "0.3", "0.3", ""),
    ("number", {"step": " any"}, "0.3", "0.3", "out of range (step)"),
    ("number", {"step": "-1", "value": "0.5"}, "1.5", "1.5", ""),
    ("number", {"min": "0.5"}, "2", "2", "out of range (step)"),
    ("number", {"minlength": "3"}, "1", "1", ""),
    ("number", {}, "9007199254740994.5", "9007199254740994.5", ""),
    ("number", {}, "1e999", "", ""),
    ("date", {"step": "7"}, "2026-01-02", "2026-01-02", "out of range (step)"),
    ("time", {"min": "22:00", "max": "06:00"}, "11 PM", "23:00", ""),
    ("time", {"min": "22:00", "max": "06:00"}, "12:00", "12:00", "out of range (min)"),
    ("time", {}, "14:30:00", "14:30", ""),
    ("time", {}, "14:30:15", "14:30:15", "out of range (step)"),
    ("time", {"step": "5"}, "14:30:15", "14:30:15", ""),
    ("date", {}, "2026-W09-1", "", ""),
    *(
        ("month", {}, text, "2026-03", "")
        for text in ("2026-03", "March 2026", "3/2026", "2026/3", "março de 2026")
    ),
    *(("month", {}, text, "", "") for text in ("2026-13", "0000-01", "2026", "2026-03-04")),
    ("month", {"min": "2026-02", "step": "2"}, "2026-03", "2026-03", "out of range (step)"),
    *(
        ("week", {}, text, "2026-W09", "")
        for text in ("2026-W09", "2026w9", "Week 9, 2026", "semana 9 de 2026")
    ),
    *(("week", {}, text, "", "") for text in ("2025-W53", "2026-W00", "9")),
    ("week", {"max": "2026-W08"}, "2026-W09", "2026-W09", "out of range (max)"),
    *(
        ("datetime-local", {}, text, "2026-03-04T14:30", "")
        for text in (
            "2026-03-04T14:30",
            "2026-03-04 14:30:00",
            "March 4, 2026 2:30 PM",
            "4 March 2026 at 14h30",
        )
    ),
    (
        "datetime-local",
        {},
        "2026-03-04 14:30:15.50",
        "2026-03-04T14:30:15.5",
        "out of range (step)",
    ),
    *(("datetime-local", {}, text, "", "") for text in ("2026-03-04", "14:30", "2026-02-30T14:30")),
    *(
        ("range", {"min": low, "max": high, "step": step, "value": first}, text, value, "")
        for low, high, step, first, text, value in (
            *(
                ("", "", "", "", "70", "70"),
                ("3", "8", "", "", "x", "6"),
                ("10", "5", "", "", "7", "10"),
            ),
            *(
                ("0", "10", "4", "", "5", "4"),
                ("0", "10", "4", "", "6", "8"),
                ("0", "10", "4", "", "99", "8"),
            ),
            *(
                ("", "", "", "2.5", "4", "4.5"),
                ("", "", "any", "", "1.50", "1.5"),
                ("", "0.5", "", "", "1", "0"),
            ),
            *(("-9", "9", "0", "", "-2.5", "-2"), ("", "1e9", "", "", "1e7", "10000000")),
        )
    ),
    *(("color", {}, text, "#aabbcc", "") for text in ("#AABBCC", "#abc", "#abcd", "#aabbccdd")),
    *(
        ("color", {}, text, value, "")
        for text, value in (("Red", "#ff0000"), ("aabbcc", "#000000"), ("", "#000000"))
    ),
]


@pytest.mark.parametrize(("kind", "attributes", "text", "value", "why"), VALUES)
def test_a_control_holds_what_a_browser_holds(kind, attributes, text, value, why):
    result = held(kind, typed(kind, text).value, attributes)
    assert result.value == value
    assert invalid(kind, result.value, attributes, edited=True) == why


_TEXTS = st.one_of(
    st.text(max_size=12),
    st.from_regex(r"[-+$R]{0,2}\d{0,4}([.,:/ -]\d{1,4}){0,3}( [ap]m|h|%)?", fullmatch=True),
    st.sampled_from([text for _, _, text, _, _ in VALUES]),
)


@pytest.mark.parametrize("kind", sorted(TYPED | PICKED))
@settings(max_examples=60, deadline=None)
@given(text=_TEXTS, language=st.sampled_from(["en", "pt"]), limit=st.sampled_from(["", "3"]))
def test_a_value_stays_as_it_is(kind, text, language, limit):
    """Values are written with a decimal point on every page, so it is as on an English one that
    they are read again."""
    attributes = {"maxlength": limit}
    entered = typed(kind, text, language)
    assert typed(kind, entered.value).value == entered.value
    result = held(kind, entered.value, attributes).value
    attributes["maxlength"] = ""  # the ASCII form of a host may be longer
    assert held(kind, result, attributes).value == result
    assert sanitised(kind, result, attributes) == result


@pytest.mark.parametrize(
    ("text", "sent"), [("12,345", "12.345"), ("1.234", "1234"), ("1.234,5", "1234.5")]
)
def test_a_text_is_read_in_the_language_of_the_page_once(text, sent):
    page = '<label>Peso <input type="number" step="any" name="n"></label>'
    assert at_page(page, Type("Peso", text), Submit(), language="pt")[0] == [("n", sent)]


@pytest.mark.parametrize(
    ("address", "right"),
    [
        *(
            (one, True)
            for one in (
                "http:a",
                "http:///a",
                "mailto:",
                "x:y z",
                "http://u:p@h:80/",
                "http://[::1]/",
                "x://",
            )
        ),
        *((one, True) for one in ("file:///x", "http://a b", "http://0x7f.1", "HTTP:\\\\a")),
        *(
            (one, False)
            for one in (
                "a.org",
                "//a",
                "http://",
                "http://u@",
                "http://h:99999",
                "http://[x]",
                "x:// a",
            )
        ),
        *((one, False) for one in ("http://1.2.3.256", "http://a<b", "1x:y", "http://h:8a")),
    ],
)
def test_addresses(address, right):
    assert is_url(address) == right


_SUGGESTS = (
    '<label>Part <input name="p" list="l"{}></label><datalist id="l"><option '
    'value="Blink&gt;DOM">DOM</option>'
    '<option label="Forms" value="Blink&gt;Forms"><option>CSS<option disabled>Old<option '
    'value="">Any</datalist>'
)


@pytest.mark.parametrize(
    ("option", "sent"),
    [("Blink>DOM", "Blink>DOM"), ("DOM", "Blink>DOM"), ("forms", "Blink>Forms"), ("CSS", "CSS")],
)
def test_a_suggestion_is_typed(option, sent):
    assert at_page(_SUGGESTS.format(""), Select("Part", option), Submit())[0] == [("p", sent)]


def test_what_is_no_suggestion_cannot_be_selected():
    for option in ("HTML", "Old", "Any"):
        assert at_page(_SUGGESTS.format(""), Select("Part", option))[1][0].status == "not found"
    assert (
        at_page(_SUGGESTS.format(" type=password"), Select("Part", "CSS"))[1][0].status == "refused"
    )
    assert at_page(_SUGGESTS.format(" readonly"), Select("Part", "DOM"))[1][0].status == "refused"
    assert (
        at_page('<label>Part <input name="p"></label>', Select("Part", "DOM"))[1][0].status
        == "refused"
    )
