"""The plan languages of small web pages: readings by hand, round trips over hostile texts, agents'
JSON."""

import json
import tracemalloc
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.api import HOSTILE
from plumbline_miniwob.actions import Act, Named, Point, Ref, from_json, key_named, to_json
from plumbline_miniwob.grammar import ROLES, PageText, TextElement
from plumbline_miniwob.reading import MAX_ACTS, read_plan
from plumbline_miniwob.writing import write_plan, write_step
from tests.work import calls, most_work

DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))

PAGE = PageText(
    (
        TextElement(1, "textbox", "Username"),
        TextElement(2, "password", "Password"),
        TextElement(3, "button", "Login"),
        TextElement(4, "checkbox", "abc"),
        TextElement(5, "select", "Size"),
        TextElement(6, "link", "More"),
        TextElement(7, "button", "Submit"),
        TextElement(8, "radio", "Female"),
    )
)


def click(on):
    return Act(do="click", on=on)


LOGIN = Named("Login", "button")


@pytest.mark.parametrize(
    ("line", "act"),
    [
        ("Click the 'Submit' button", click(Named("Submit", "button"))),
        ("Click [7]", click(Ref(7))),
        ("2) click on [7].", click(Ref(7))),
        ("- Click [7] 'Submit' button", click(Ref(7))),
        ("Then tap on element 3", click(Ref(3))),
        ("Click at (80, 95)", click(Point(80, 95))),
        ("Click at x=80, y=95", click(Point(80, 95))),
        ("Click the second 'OK' button", click(Named("OK", "button", 2))),
        ("Click the 'OK' button #2", click(Named("OK", "button", 2))),
        ("Click the 3rd 'OK'", click(Named("OK", None, 3))),
        ("Click Login", click(Named("Login"))),
        ("Click the Login button", click(LOGIN)),
        ("Click on the Submit button", click(Named("Submit", "button"))),
        ("You should now click on the button labeled “Login”", click(LOGIN)),
        ("Press the 'Login' button", click(LOGIN)),
        ("Select 'Female'", click(Named("Female"))),
        ("Double-click [3]", Act(do="double", on=Ref(3))),
        ("Move to [4]", Act(do="hover", on=Ref(4))),
        ("Hover over the 'More' link", Act(do="hover", on=Named("More", "link"))),
        (
            "Type 'joe' into the 'Username' field",
            Act(do="type", on=Named("Username", "textbox"), text="joe"),
        ),
        (
            'Enter "joe" in the Username text box',
            Act(do="type", on=Named("Username", "textbox"), text="joe"),
        ),
        ("Type 'it's' into [1]", Act(do="type", on=Ref(1), text="it's")),
        (
            "Fill in the 'Password' field with 'x'",
            Act(do="type", on=Named("Password", "password"), text="x"),
        ),
        ("Set [1] to 'joe'", Act(do="type", on=Ref(1), text="joe")),
        ("Type 'ls'", Act(do="type", text="ls")),
        ("Select 'Large' from [5]", Act(do="select", on=Ref(5), option="Large")),
        (
            "Choose the option 'L' in the 'Size' dropdown",
            Act(do="select", on=Named("Size", "select"), option="L"),
        ),
        ("Tick the 'abc' checkbox", Act(do="check", on=Named("abc", "checkbox"))),
        ("Uncheck [4]", Act(do="uncheck", on=Ref(4))),
        ("Drag [3] to [5]", Act(do="drag", on=Ref(3), to=Ref(5))),
        ("Drag 'Ann' onto (40, 60)", Act(do="drag", on=Named("Ann"), to=Point(40, 60))),
        ("Drag from (1, 2) and drop it on [5]", Act(do="drag", on=Point(1, 2), to=Ref(5))),
        ("Scroll [4] down by 120", Act(do="scroll", on=Ref(4), by=(0, 120))),
        (
            "Scroll up by 50 pixels in the 'Size' list",
            Act(do="scroll", on=Named("Size", "select"), by=(0, -50)),
        ),
        ("Scroll down", Act(do="scroll", by=(0, 100))),
        ("Press Enter", Act(do="key", key="Enter")),
        ("Press ctrl + c in [3]", Act(do="key", key="Control+C", on=Ref(3))),
        ("Press the arrow down key", Act(do="key", key="ArrowDown")),
        ("Wait for 1.5 seconds", Act(do="wait", ms=1500)),
    ],
)
def test_one_step(line, act):
    assert read_plan(line, PAGE).acts == (act,)


PHRASINGS = yaml.safe_load(
    (Path(__file__).parents[2] / "forms" / "tests" / "phrasings.yaml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize(
    ("group", "label", "value"),
    [
        ("typed", "Username", "joe"),
        ("chosen", "Size", "L"),
        ("checkbox", "abc", ""),
        ("button", "Login", ""),
    ],
)
def test_what_forms_are_filled_in_with_is_read_here_too(group, label, value):
    """But for what scrolls, clicks twice, or speaks of an option that the page does not show."""
    wrong = []
    for phrase in PHRASINGS[group]:
        if "'{label}'" not in phrase or ("{value}" in phrase and "'{value}'" not in phrase):
            continue  # without quotation marks the page decides
        acts = read_plan(phrase.replace("{label}", label).replace("{value}", value), PAGE).acts
        told = {
            told for act in acts for told in (act.text, act.option, getattr(act.on, "name", None))
        }
        if not {label, value or label} <= told:
            wrong.append(phrase)
    assert [
        one for one in wrong if not one.startswith(("Double-click", "Scroll", "Make sure"))
    ] == []


@pytest.mark.parametrize(
    "line",
    DATA,
)
def test_what_does_not_say_what_is_to_be_done_is_counted_and_not_guessed(line):
    plan = read_plan(line, PAGE)
    assert plan.acts == ()
    assert plan.unread == 1


@pytest.mark.parametrize(
    "line", ["I will log in now.", "", "The user name is joe.", "```", "Do not click [3]"]
)
def test_what_claims_nothing_is_not_counted(line):
    plan = read_plan(line, PAGE)
    assert (plan.acts, plan.unread) == ((), 0)


def test_several_steps_in_a_line_and_an_end():
    text = (
        "<think>Click [9]</think>Sure:\n```\n1. Click [3], then wait 2 s\n2. Click [4]; click "
        "[5]\nDone\nClick [6]\n```"
    )
    acts = (click(Ref(3)), Act(do="wait", ms=2000), click(Ref(4)), click(Ref(5)))
    assert read_plan(text, PAGE).acts == acts


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Ctrl+Shift+k", "Control+Shift+K"),
        ("page down", "PageDown"),
        ("ESC", "Escape"),
        ("+", "+"),
        ("foo", None),
    ],
)
def test_keys(text, key):
    assert key_named(text) == key


PIECES = st.lists(
    st.sampled_from(
        [
            *"'\"\\\n\t a“”{[\x00",
            *(
                "' into the '",
                "field",
                " in the ",
                "[3]",
                "(1, 2)",
                "2nd",
                " to ",
                "' onto '",
                ", then ",
                "Click",
            ),
            *(". ", "' field", "Click the 'x' button", "Done"),
        ]
    ),
    max_size=8,
).map("".join)
TEXTS = st.one_of(st.text(max_size=30), PIECES).filter(
    lambda text: (
        "</think>" not in text
        and text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") == text
    )
)
COUNTS = st.integers(1, 99)
PLACES = st.integers(-300, 300) | st.integers(-3000, 3000).map(lambda tenths: tenths / 10)
TARGETS = st.one_of(
    st.builds(Ref, COUNTS),
    st.builds(Named, TEXTS, st.none() | st.sampled_from(sorted(ROLES)), st.none() | COUNTS),
    st.builds(Point, PLACES, PLACES),
)
KEYS = st.sampled_from(
    ["Enter", "ArrowDown", "Control+C", "Shift+Tab", "a", "'", ".", "é", "+", "9"]
)
ACTS = st.one_of(
    st.builds(
        Act, do=st.sampled_from(["click", "double", "hover", "check", "uncheck"]), on=TARGETS
    ),
    st.builds(Act, do=st.just("type"), on=st.none() | TARGETS, text=TEXTS),
    st.builds(Act, do=st.just("select"), on=TARGETS, option=TEXTS),
    st.builds(Act, do=st.just("drag"), on=TARGETS, to=TARGETS),
    st.builds(Act, do=st.just("scroll"), on=st.none() | TARGETS, by=st.tuples(PLACES, PLACES)),
    st.builds(Act, do=st.just("key"), on=st.none() | TARGETS, key=KEYS),
    st.builds(Act, do=st.just("wait"), ms=st.integers(0, 60_000)),
)


@given(st.lists(ACTS, max_size=6), st.sampled_from(["steps", "agent"]))
@settings(max_examples=80, deadline=None)
def test_reading_what_was_written_gives_the_same_acts(acts, language):
    plan = read_plan(write_plan(acts, language))
    assert list(plan.acts) == acts
    assert plan.unread == 0
    assert [from_json(json.loads(json.dumps(to_json(act)))) for act in acts] == acts


def test_a_quotation_is_escaped_only_where_it_must_be():
    assert write_step(Act(do="type", on=Ref(1), text="it's")) == "Type 'it's' into [1]"
    assert write_step(click(Named("a' into the 'b"))) == "Click 'a\\' into the \\'b'"


@pytest.mark.parametrize(
    ("item", "act"),
    [
        ({"click": {"index": 3}}, click(Ref(3))),
        ({"click_element_by_index": {"index": "3"}}, click(Ref(3))),
        ({"click": 3}, click(Ref(3))),
        ({"click": {"coordinate_x": 5, "coordinate_y": 6}}, click(Point(5, 6))),
        ({"action": "click", "index": 3}, click(Ref(3))),
        ({"do": "click", "on": {"ref": 3}}, click(Ref(3))),
        ({"input_text": {"index": 1, "text": "a"}}, Act(do="type", on=Ref(1), text="a")),
        ({"select_dropdown": {"index": 5, "text": "L"}}, Act(do="select", on=Ref(5), option="L")),
        ({"send_keys": {"keys": "ctrl+a"}}, Act(do="key", key="Control+A")),
        (
            {"drag": {"from": {"index": 3}, "to": {"x": 1, "y": 2}}},
            Act(do="drag", on=Ref(3), to=Point(1, 2)),
        ),
        (
            {"scroll": {"down": True, "index": 4, "amount": 30}},
            Act(do="scroll", on=Ref(4), by=(0, 30)),
        ),
        ({"wait": {"seconds": 2}}, Act(do="wait", ms=2000)),
        (
            {"action": "type", "target": "Username", "value": "joe"},
            Act(do="type", on=Named("Username"), text="joe"),
        ),
    ],
)
def test_agents_json(item, act):
    assert read_plan(json.dumps({"memory": "", "action": [item]}), PAGE).acts == (act,)
    assert read_plan("Sure!\n```json\n" + json.dumps([item]) + "\n```", PAGE).acts == (act,)


@pytest.mark.parametrize(
    "item",
    [
        *(
            {"click": {}},
            {"click": {"index": -1}},
            {"click": {"index": True}},
            {"input": {"index": 1}},
        ),
        {"input": {"index": 1, "text": "x", "clear": False}},
        *({"drag": {"from": {"index": 1}}}, {"drag": {"from": {"index": 1}, "to": [1, 2]}}),
        *(
            {"wait": {"seconds": 1e999}},
            {"wait": {"seconds": "long"}},
            {"send_keys": {"keys": "Hyper+Q"}},
        ),
        *({"scroll": {"by": 7}}, {"evaluate": {"code": "alert(1)"}}),
    ],
)
def test_agents_actions_that_are_none_are_counted(item):
    plan = read_plan(json.dumps({"action": [{"click": {"index": 3}}, item]}), PAGE)
    assert plan.acts == (click(Ref(3)),)
    assert plan.unread == 1


@given(st.text())
@settings(max_examples=60, deadline=None)
def test_any_text_is_read(text):
    read_plan(text, PAGE)
    read_plan('{"action": ' + text, PAGE)


LONG = (
    "Type '" + "' into the '" * 4000,
    "Drag " + "[1] to " * 9000,
    "Click " + "the 'x' button " * 2000,
    "Click " + "[1], then click " * 4000,
    "\n".join("Type '" + "' in '" * 150 for _ in range(20)),
    "\n".join("Drag " + "(1, 2) to '" * 150 for _ in range(12)),
    '[{"action": ' * 3000,
    '{"action": [' + '{"click": {"index": 1}},' * 2000,
    "Click [1]\n" * 8000,
    "\\" * 50000,
    "Scroll " + "down " * 5000,
    "Press " + "+" * 9000,
    "Press " + "a in " * 390,
    "Wait " + "9" * 9000,
    "\n".join("Drag " + "to " * 450 + "'a' x " * 100 for _ in range(10)),
    "\n[" * 10000,
    "\n[" * 100 + "a" * 19000,
)


@pytest.mark.parametrize(
    "acts", [{"do": "wait", "ms": [0] * 9000}, {"do": "type", "text": [0] * 9000}]
)
def test_what_is_wrong_is_said_in_short(acts):
    with pytest.raises(ValueError, match="is") as told:
        from_json(acts)
    assert len(str(told.value)) < 100


def test_a_list_of_seconds_is_not_multiplied():
    tracemalloc.start()
    read_plan('{"action": [{"wait": {"seconds": [' + "0," * 9900 + "0]}}]}", PAGE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


@pytest.mark.parametrize("unit", ["click 'a', then 'b' ", "type “a” 'b' ", "'a' to \"b\", "])
def test_the_work_on_a_plan_has_a_bound(unit):
    lines = "\n".join(unit * (1900 // len(unit)) + str(at) for at in range(10))
    assert read_plan(lines, PAGE).acts == ()
    assert calls(lambda: read_plan(lines, PAGE)) < 1_500_000


def test_hostile_plans_are_read_in_no_time():
    def within_limits(text):
        assert len(read_plan(text, PAGE).acts) <= MAX_ACTS

    assert most_work(within_limits, [*HOSTILE, *LONG]) < 150
