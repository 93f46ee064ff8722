"""Values and patterns: what Chromium makes of them, and what is known without one. See also ../test_values.py."""

import random
from pathlib import Path

import pytest

from benchmarks.forms_differential import Pages
from environments.forms.tests.pages import at_page
from environments.forms.tests.test_values import VALUES
from plumbline_forms.characters import UnreadPatternError
from plumbline_forms.constraints import invalid, sanitised
from plumbline_forms.executors.browser.executor import BrowserExecutor
from plumbline_forms.executors.typing import held, typed
from plumbline_forms.patterns import read_pattern
from plumbline_forms.plans.actions import Press, Select, Submit, Type
from plumbline_forms.site.site import Site

PATTERNS = (Path(__file__).parent / "patterns.txt").read_text(encoding="utf-8").splitlines()
"""From pages and public reports (telephone, postal code, date, name, address, amount, password), of all syntax."""
_TEXTS = (
    "a b A ab abc abcab ABC aab aaaa x xyz foo foobar 12345 12345-6789 555-123-4567 (555)123-4567 5551234567 "
    "+493012 a@b.co ana.maria@exemplo.com.br Passw0rd! password 12.50 $1,234.50 1,234 https://a.org José Ñandú "
    "O'Neil Łódź 31/12/2026 1.2.2026 1-2/2026 12/26 2026-03 01310-100 123.456.789-09 #ff00AA 192.168.0.1 256.1.1.1 "
    "😀 😀😎 Привет 漢字 かな カナ 한국 ٣٤ _ - -- a-b a.b .. ! # % ' \" \\ / (a) [a] {} | * $5 €5 yes 'q' \"q' ch "
    "llama \x08 ſ K é e\u0301 İ ı 0 -1 +5 1e3 aXa ababab bab \u00a0 \u2028"
)
TEXTS = [*_TEXTS.split(" "), "ext. 12", "Zoë Müller", "a\tb", " a ", "a" * 30 + "!"]
PIECES = (
    r". \w [a-c] [^a] (a|b) (?:ab|c) (a) \1 \2 (?=a) (?!b) (?<=a) (?<!b) \b ^ $ (a*) (b?) [\w--[b]] (?i:A) (?=(a+)) | 1"
)
CLASS = r"a b - & && -- ! ^ \w \- [a] a-c ( \( ~ \q{ab} \p{L} . | \s z"
COUNTS = ("", "", "", "", "*", "+", "?", "{2}", "{1,2}", "*?", "+?", "??", "{2,}")
SMALL = [*"abcA-&!^z", "ab", "ba", "aa", "abc", "aab", "abb", "aba", "abab", "aabb", "a1"]

MATCH = """rows => rows.map(([pattern, texts]) => {
  let right = true;
  try { new RegExp(pattern, "v"); } catch { right = false; }
  const input = document.createElement("input");
  input.pattern = pattern;
  return [right, texts.map(text => { input.value = text; return !input.validity.patternMismatch; })];
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


def _drawn(rng):
    """A pattern of syntax that is drawn at random."""
    if rng.random() < 0.4:
        parts = rng.choices(CLASS.split(), k=rng.randint(1, 5))
        return f"[{rng.choice(('', '^'))}{''.join(parts)}]{rng.choice(('', '+'))}"
    return "".join(rng.choice(PIECES.split()) + rng.choice(COUNTS) for _ in range(rng.randint(1, 5)))


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_patterns_match_what_they_match_in_chromium(ask, seed):
    rng = random.Random(seed)
    rows = [[one, TEXTS] for one in PATTERNS] if seed is None else [[_drawn(rng), SMALL] for _ in range(800)]
    differences, pairs = [], 0
    for (pattern, texts), (right, found) in zip(rows, ask(MATCH, rows), strict=True):
        read = read_pattern(pattern)
        if (read is not None) != right:
            differences.append((pattern, right))
        for text, matched in zip(texts, found, strict=True) if read is not None else ():
            try:
                differences += [(pattern, text, matched)] if read.fullmatch(text) != matched else []
                pairs += 1
            except UnreadPatternError:
                continue  # a property of a character that is not known here
    assert not differences
    assert pairs > 5000


def _split(text):
    return text.split()


KINDS = {
    "number": _split("0 1 5 10 2.5 0.1 0.3 -3 1e2 .5 100 99.99 1500 7 33.333 1e400 abc 1,500 $12 1. 007"),
    "range": _split("0 1 5 10 2.5 0.3 -3 100 150 33.333 abc"),
    "date": _split("2026-03-04 2024-02-29 2026-02-29 1969-12-31 9999-12-31 20260-01-01 04/03/2026 x 2026-03-11"),
    "month": _split("2026-03 2026-12 2026-13 1970-01 03/2026 x 0001-01 1969-12"),
    "week": _split("2026-W10 2026-W53 2021-W53 2026-W01 1970-W01 x 2026-W11"),
    "time": _split("14:30 00:00 23:59 14:30:15 14:30:15.5 24:00 2pm 06:00 22:00 12:00 x"),
    "datetime-local": [
        *_split("02026-03-04T14:30:15.50 2026-03-04T14:30:15. 2026-03-04T14:30 2026-03-04T14:30:15"),
        *_split("2026-03-04T14:30:00 2026-03-04 x 2026-03-05T00:00"),
    ],
    "color": ["#ff0000", "#F00", " red", "hotpink", "#ff000080", "rgb(1, 2, 3)", "rgb(1 2 3)", "x", ""],
    "email": [
        "a@b",
        " a@b.co ",
        "a@b..c",
        "@b",
        "a b@c",
        "ä@b.c",
        "a@exämple.org",
        "a@b,c@d",
        "a@b , c@d",
        "a@b,",
        "a@-b.c",
    ],
    "url": _split(
        "http://a http:a http:///a http:// a.org mailto:a@b javascript:x foo://u@ http://h:99999 http://[::1]/ x:"
    ),
    "text": ["", "a", "abc", "abcdef", "😀😀", "a\nb", " a ", "é", "e\u0301", "12-34"],
}
KINDS |= dict.fromkeys(("search", "tel", "textarea"), KINDS["text"])
LIMITS = ("", "0", "1", "3", "5px", " 4", "-1", "abc", "+3")
STEPS = ("", "1", "0.1", "5", "any", "ANY", "0", "-1", "abc", "2.5")


def _job(rng):
    """A kind, its attributes, and what is typed."""
    kind = rng.choice(list(KINDS))
    texts, attributes = KINDS[kind], {}
    if kind in list(KINDS)[:7]:
        attributes = {name: rng.choice(texts) for name in ("min", "max") if rng.random() < 0.4}
        attributes |= {"step": rng.choice(STEPS)} if rng.random() < 0.5 else {}
    elif rng.random() < 0.4:
        attributes["maxlength"] = rng.choice(LIMITS)
    if rng.random() < 0.3:
        attributes["pattern"] = rng.choice(("[a-z]+", "[0-9-() ]+", ".{3}", "[^@]+@.+", "\\d+"))
    if rng.random() < 0.3 and kind != "textarea":
        attributes["value"] = rng.choice(texts)
    if kind == "email" and rng.random() < 0.4:
        attributes["multiple"] = ""
    return [kind, attributes, typed(kind, rng.choice(texts)).value]


@pytest.mark.parametrize("seed", [1, 2])
def test_controls_hold_what_they_hold_in_chromium(ask, seed):
    rng = random.Random(seed)
    jobs = [_job(rng) for _ in range(1500)]
    differences = []
    for (kind, attributes, text), found in zip(jobs, ask(HOLD, jobs), strict=True):
        first = sanitised(kind, attributes.get("value", ""), attributes)
        for value, (there, why) in zip((first, held(kind, text, attributes).value), found, strict=True):
            reason = invalid(kind, value, attributes, edited=False)
            if value != there or bool(why) != bool(reason) or why not in reason:
                differences.append((kind, attributes, text, (value, reason), (there, why)))
    assert not differences


@pytest.fixture(scope="module", params=["browser", "in-page"])
def other(request):
    pages = Pages()
    executor = BrowserExecutor(Site(pages), navigates=request.param == "browser")
    yield executor, pages
    executor.close()


def _page(kind, attributes):
    listed = "".join(f' {name}="{value}"' for name, value in attributes.items())
    control = (
        f"<textarea id=n name=n{listed}></textarea>"
        if kind == "textarea"
        else f"<input id=n name=n type={kind}{listed}>"
    )
    return f"<label for=n>Entry</label>{control}"


SUGGESTED = '<label for=n>Entry</label><input id=n name=n list=l><datalist id=l><option value="a.b">B</datalist>'
PLANS = [
    *((_page(kind, attributes), (Type("Entry", text),)) for kind, attributes, text, _, _ in VALUES),
    (SUGGESTED, (Select("Entry", "B"),)),
    (_page("number", {"step": "any"}), (Type("Entry", "2"), Type("Entry", "1.5", clear=False))),
    (_page("number", {"step": "any"}), (Type("Entry", "2"), Type("Entry", "-1", clear=False))),
    (_page("month", {}), (Type("Entry", "2026-01"), Type("Entry", "2026-02", clear=False))),
    (_page("text", {"maxlength": "4"}), (Type("Entry", "abc"), Type("Entry", "def", clear=False))),
    (_page("week", {"required": ""}), ()),
    (_page("color", {}), (Type("Entry", "blue"), Press("Enter"))),
    ('<label for=n>Entry</label><select id=n name=n required><option>a<option value="" selected>-</select>', ()),
]


def test_all_executors_send_the_same_values(other):
    executor, pages = other
    differences = []
    for controls, actions in PLANS:
        wanted = at_page(controls, *actions, Submit())
        found = at_page(controls, *actions, Submit(), executor=executor, pages=pages)
        if found != wanted:
            differences.append((controls, actions, wanted, found))
    assert not differences
