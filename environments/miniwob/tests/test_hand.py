"""What the hand takes, what it refuses, and that it finds what it was told."""

import json

import pytest

FIELD = {"ref": 1}
PLACES = [
    3,
    [],
    {"ref": "1"},
    {"ref": -1},
    {"ref": 0},
    {"ref": 1e308},
    {"ref": 1.5},
    {"x": 1e12, "y": 3},
]
PLACES += [
    {"x": "3", "y": 3},
    {"x": None, "y": None},
    {"name": {"a": 1}},
    {"name": "x" * 100_000},
    {"element": "body"},
]
PLACES += [
    {"name": "Submit", "role": 3},
    {"name": "Submit", "nth": -3},
    {"name": "Submit", "nth": 1e9},
]
PLACES += [
    {"name": "<img src=x onerror=alert(1)>"},
    {"name": "'); alert(1); ('"},
    {"role": "toString", "name": "Submit"},
]
HOSTILE = [
    *(
        None,
        7,
        "click",
        [],
        {},
        {"do": "constructor"},
        {"do": "__proto__", "on": FIELD},
        {"do": None, "on": FIELD},
    ),
    {"do": "click"},
    *({"do": "click", "on": place} for place in PLACES),
    *({"do": "type", "on": FIELD, "text": text} for text in (5, "x" * 1001)),
    {"do": "type", "on": {"ref": 2}, "text": "on a button"},
    *(
        {"do": "select", "on": FIELD, "option": "a"},
        {"do": "check", "on": FIELD},
        {"do": "drag", "on": FIELD},
    ),
    {"do": "drag", "on": FIELD, "to": {"x": float("1e400"), "y": 1}},
    *({"do": "scroll", "on": FIELD, "by": by} for by in ("down", [1e9, 0])),
    *({"do": "key", "key": key} for key in ("Control+Alt+Nonsense", "", ["Enter"])),
    *({"do": "wait", "ms": ms} for ms in (-1, "1000", 1e9)),
]


def test_hostile_acts_are_refused_one_by_one_and_the_page_stays_whole(pool):
    first = pool.first("enter-text", "b-0")
    # The two buttons and the field of this page: [1] is the field, [2] the button.
    results = pool.run("enter-text", "b-0", [[act] for act in HOSTILE])
    for act, one in zip(HOSTILE, results, strict=True):
        (attempt,) = one.attempts
        assert attempt.status in ("refused", "not found"), (json.dumps(act)[:100], attempt)
        assert 0 < len(attempt.reason) < 120, attempt
        assert one.notes == ()
    assert pool.first("enter-text", "b-0") == first


@pytest.mark.parametrize(
    "task", ["click-button", "login-user", "click-checkboxes", "choose-list", "email-inbox"]
)
def test_elements_are_found_again_by_number_by_name_and_by_place(pool, task):
    first = pool.first(task, "b-1")
    for one in first.elements[:10]:
        left, top, width, height = one.box
        same = [
            other.ref
            for other in first.elements
            if (other.role, other.name) == (one.role, one.name)
        ]
        named = {"role": one.role, "name": one.name, "nth": same.index(one.ref) + 1}
        plans = [[{"do": "hover", "on": {"ref": one.ref}}]]
        if one.name:
            plans.append([{"do": "hover", "on": named}])
            plans.append([{"do": "hover", "on": {"role": one.role, "name": one.name}}])
        results = pool.run(task, "b-1", plans)
        assert [result.attempts[0].status for result in results[:2]] == ["ok"] * min(
            2, len(results)
        ), (one, results)
        if one.name:
            assert results[2].attempts[0].status == ("ok" if len(same) == 1 else "ambiguous")
        assert 0 <= left <= 500
        assert width >= 0
        assert height >= 0
        assert top >= 0


def test_typing_replaces_what_is_there_and_keys_edit_it(pool):
    field = {"ref": 1}
    typed = [
        {"do": "type", "on": field, "text": "one two"},
        {"do": "type", "on": field, "text": "three"},
    ]
    keys = [
        "Home",
        "x",
        "End",
        "Backspace",
        "Shift+ArrowLeft",
        "Y",
        "Control+A",
        "Control+C",
        "End",
        "Control+V",
    ]
    acts = [*typed, *({"do": "key", "key": key} for key in keys)]
    states = pool.run("enter-text", "b-0", [acts[:count] for count in (1, 2, 4, 6, 8, 12)])
    values = [one.text.split("= '")[1].split("'")[0] for one in states]
    assert values == ["one two", "three", "xthree", "xthre", "xthrY", "xthrYxthrY"]


def test_a_date_a_time_and_a_list_take_what_is_typed_or_chosen(pool):
    given = [
        ("enter-date", {"do": "type", "on": {"ref": 1}, "text": "08/16/2019"}, "= '2019-08-16'"),
        ("enter-time", {"do": "type", "on": {"ref": 1}, "text": "8:08 PM"}, "= '20:08'"),
    ]
    for task, act, shown in given:
        (one,) = pool.run(task, "b-0", [[act]])
        assert one.attempts[0].status == "ok"
        assert shown in one.text
    (wrong,) = pool.run("enter-date", "b-0", [[{"do": "type", "on": {"ref": 1}, "text": "soon"}]])
    assert wrong.attempts[0].status == "refused"
    select = {
        "do": "select",
        "on": {"role": "select", "nth": 1, "name": ""},
        "option": "No such land",
    }
    (none,) = pool.run("choose-list", "b-0", [[{**select, "on": {"ref": 1}}]])
    assert none.attempts[0].status == "not found"
