"""Values and patterns: what Chromium makes of them, and what is known without one. See also
../test_values.py."""

import random
from pathlib import Path

import pytest
import yaml

from environments.forms.tests.pages import at_page
from environments.forms.tests.test_values import VALUES
from plumbline_browser.plans.actions import Submit, Type
from plumbline_forms.values import UnreadPatternError, held, invalid, matches, sanitised, typed

PATTERNS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_TEXTS = (
    "a b A ab abc abcab ABC aab abab xyz 12345 12345-6789 555-123-4567 (555)123-4567 "
    "123.456.789-09 12.345/6789-01 "
    "CC-1234 L1234567 #ff00AA https://a $5 5 1.2 1,234 +5 a_b a-b ^a ] - _ @ a@b é ٣٤ 😀 \u2028 \\ x"
)
TEXTS = [*_TEXTS.split(" "), "a b", " a ", "a" * 30 + "!"]

MATCH = """rows => rows.map(([pattern, texts]) => {
  const input = document.createElement("input");
  input.pattern = pattern;
  return texts.map(text => { input.value = text; return !input.validity.patternMismatch; });
})"""
HOLD = """jobs => {
  const reasons = {typeMismatch: "not a valid", patternMismatch: "not in the format", rangeUnderflow: "(min)",
    rangeOverflow: "(max)", stepMismatch: "(step)"};
  const form = document.createElement("form");
  document.body.append(form);
  const why = control => reasons[Object.keys(reasons).find(flag => control.validity[flag])] ?? "";
  return jobs.map(([kind, attributes, text]) => {
    const control = document.createElement(kind === "textarea" ? "textarea" : "input");
    const holder = document.createElement("div");
    for (const [name, value] of Object.entries(attributes)) control.setAttribute(name, value);
    if (kind !== "textarea") control.setAttribute("type", kind);
    holder.append(control);
    form.innerHTML = holder.innerHTML;
    const parsed = form.firstElementChild;
    const first = [parsed.value, why(parsed)];
    if (["date", "month", "week", "time", "datetime-local", "range", "color"].includes(kind)) parsed.value = text;
    else { parsed.focus(); parsed.select(); document.execCommand(text ? "insertText" : "delete", false, text); }
    return [first, [parsed.value, why(parsed)]];
  });
}"""


@pytest.fixture(scope="module")
def ask(browsers):
    """Evaluates a function of JavaScript on a page."""

    def evaluate(function, argument):
        async def work(page, _):
            return await page.evaluate(function, argument)

        return browsers["in-page"].use(work)

    return evaluate


def test_patterns_match_what_they_match_in_chromium(ask):
    differences, read = [], 0
    for pattern, found in zip(
        PATTERNS, ask(MATCH, [[one, TEXTS] for one in PATTERNS]), strict=True
    ):
        try:
            mine = [matches(pattern, one) for one in TEXTS]
        except UnreadPatternError:
            continue
        differences += [
            (pattern, one) for one, a, b in zip(TEXTS, mine, found, strict=True) if a != b
        ]
        read += 1
    assert not differences
    assert read > 20


def _split(text):
    return text.split()


KINDS = {
    "number": _split(
        "0 1 5 10 2.5 0.1 0.3 -3 1e2 .5 100 99.99 1500 7 33.333 1e400 abc 1,500 $12 1. 007"
    ),
    "date": _split(
        "2026-03-04 2024-02-29 2026-02-29 1969-12-31 9999-12-31 04/03/2026 x 2026-03-11"
    ),
    "time": _split("14:30 00:00 23:59 14:30:15 14:30:15.5 24:00 2pm 06:00 22:00 12:00 x"),
    "email": [
        "a@b",
        " a@b.co ",
        "a@b..c",
        "@b",
        "a b@c",
        "ä@b.c",
        "a@exämple.org",
        "a@-b.c",
        " a@b , c@d",
        "a@b,,c@d",
        "a@b,",
    ],
    "url": _split(
        "http://a http:a http:///a http:// a.org mailto:a@b javascript:x foo://u@ http://h:99999 "
        "http://[::1]/ x:"
    ),
    "month": _split("2026-03 2024-12 2026-13 0000-01 0001-01 2026-3 1969-12 x"),
    "week": _split("2026-W09 2026-W53 2025-W53 2026-W00 2026-w09 2026-W9 1970-W01 x"),
    "datetime-local": [
        *_split(
            "2026-03-04T14:30 2026-03-04T14:30:00.100 2026-03-04T24:00 2026-02-29T00:00 2026-03-04 "
            "x"
        ),
        *("2026-03-04 14:30:15", "2026-03-04  14:30", "1969-12-31T23:59"),
    ],
    "range": _split("0 1 5 10 2.5 0.1 0.34 -3 .5 100 99.99 1500 7 33.3 abc"),
    "color": [
        "red",
        "#ABC",
        "#abcd",
        "#A0b1C2",
        "#A0b1C2d3",
        " red",
        "aabbcc",
        "RebeccaPurple",
        "#12345",
        "transparent",
        "",
    ],
    "text": ["", "a", "abc", "abcdef", "😀😀", "a\nb", " a ", "é", "e\u0301", "12-34"],
}
KINDS |= dict.fromkeys(("search", "tel", "textarea"), KINDS["text"])
LIMITS = ("", "0", "1", "3", "5px", " 4", "-1", "abc", "+3")
STEPS = ("", "1", "0.1", "5", "any", "ANY", "0", "-1", "abc", "2.5")


def _job(rng):
    """A kind, its attributes, and what is typed."""
    kind = rng.choice(list(KINDS))
    texts, attributes = KINDS[kind], {}
    if kind in {"number", "date", "time", "month", "week", "datetime-local", "range"}:
        attributes = {name: rng.choice(texts) for name in ("min", "max") if rng.random() < 0.4}
        # Where no step lies between min and max, Chromium has no rule that could be told.
        attributes |= (
            {"step": rng.choice(STEPS[:3] if kind == "range" else STEPS)}
            if rng.random() < 0.5
            else {}
        )
    elif rng.random() < 0.4:
        attributes["maxlength"] = rng.choice(LIMITS)
    if kind == "email" and rng.random() < 0.4:
        attributes["multiple"] = ""
    if rng.random() < 0.3:
        attributes["pattern"] = rng.choice(("[a-z]+", "[0-9+]+", "[^@]+@b", "\\d+"))
    if rng.random() < 0.3 and kind != "textarea":
        attributes["value"] = rng.choice(texts)
    return [kind, attributes, typed(kind, rng.choice(texts)).value]


def test_controls_hold_what_they_hold_in_chromium(ask):
    rng = random.Random(1)
    jobs = [_job(rng) for _ in range(2500)]
    differences = []
    for (kind, attributes, text), found in zip(jobs, ask(HOLD, jobs), strict=True):
        first = sanitised(kind, attributes.get("value", ""), attributes)
        for value, (there, why) in zip(
            (first, held(kind, text, attributes).value), found, strict=True
        ):
            reason = invalid(kind, value, attributes, edited=False)
            if value != there or bool(why) != bool(reason) or why not in reason:
                differences.append((kind, attributes, text, (value, reason), (there, why)))
    assert not differences


def _page(kind, attributes):
    listed = "".join(f' {name}="{value}"' for name, value in attributes.items())
    control = (
        f"<textarea id=n name=n{listed}></textarea>"
        if kind == "textarea"
        else f"<input id=n name=n type={kind}{listed}>"
    )
    return f"<label for=n>Entry</label>{control}"


PLANS = [
    *((_page(kind, attributes), (Type("Entry", text),)) for kind, attributes, text, _, _ in VALUES),
    (_page("number", {"step": "any"}), (Type("Entry", "2"), Type("Entry", "1.5", clear=False))),
    (_page("number", {"step": "any"}), (Type("Entry", "2"), Type("Entry", "-1", clear=False))),
    (_page("text", {"maxlength": "4"}), (Type("Entry", "abc"), Type("Entry", "def", clear=False))),
    (
        (
            '<label for=n>Entry</label><select id=n name=n required><option>a<option value="" '
            "selected>-</select>"
        ),
        (),
    ),
]


def test_all_executors_send_the_same_values(foreign):
    executor, _, pages = foreign
    differences = []
    for controls, actions in PLANS:
        wanted = at_page(controls, *actions, Submit())
        found = at_page(controls, *actions, Submit(), executor=executor, pages=pages)
        if found != wanted:
            differences.append((controls, actions, wanted, found))
    assert not differences
