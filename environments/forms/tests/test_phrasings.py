"""A plan earns the same in whatever words it is written: many phrasings for every kind of control,
on real forms."""

from functools import cache
from itertools import cycle
from pathlib import Path

import pytest
import yaml

from plumbline_browser.plans.actions import (
    Attach,
    Check,
    Navigate,
    Plan,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline_browser.plans.writer import write_step
from plumbline_forms.build import values_of
from plumbline_forms.executors.direct import DirectExecutor
from plumbline_forms.executors.executor import FormCase
from plumbline_forms.plans.agent import read_plan
from plumbline_forms.plans.oracle import elements_of, plan_for
from plumbline_forms.site.page import FormView
from plumbline_forms.suite.catalogue import options
from plumbline_forms.suite.declaration import Field, Form, FormPage
from plumbline_forms.suite.drawing import drawn

PHRASINGS = yaml.safe_load(Path(__file__).with_name("phrasings.yaml").read_text(encoding="utf-8"))
KINDS = {
    **dict.fromkeys(("textarea", "password"), ("typed",)),
    **dict.fromkeys(("email", "tel", "url"), ("typed", "bare", "short")),
    "text": ("typed", "bare"),
    "number": ("typed", "bare", "short", "numbers"),
    **dict.fromkeys(("date", "time"), ("typed", "bare", "short", "picked")),
    **dict.fromkeys(("select", "multiselect"), ("chosen",)),
    **{kind: (kind,) for kind in ("radio", "checkbox", "checkboxes", "file", "button")},
}
"""The lists of phrasings that are tried on each kind of control."""
FORMS = 4
"""Forms on which each phrasing is tried."""
MARKERS = (
    "",
    "Step {}: ",
    "{}. ",
    "{}) ",
    "- ",
    "**Step {}:** ",
    "Passo {}: ",
    "* ",
    "{} - ",
    "({}) ",
)
MARKS = ("''", '""', "“”", "‘’", "«»", "``")


def entered(action):
    """The kind of action and what it enters."""
    match action:
        case Type(label, text):
            return label, text
        case Select(label, option) | Check(label, option):
            return label, option
        case Attach(label, file):
            return label, file
        case Submit(label):
            return label, ""
    return None


def quoted(phrase, marks):
    """The phrase with other quotation marks around its arguments."""
    for name in ("{label}", "{value}", "yes", "true"):
        phrase = phrase.replace(f"'{name}'", marks[0] + name + marks[1])
    return phrase


def rewritten(view, plan, kind, phrase, number):
    """The plan with every step on controls of this kind in other words; None where it has none."""
    kinds = {one.label: one.kind for one in view.form.fields}
    lines, count = [], 0
    for at, action in enumerate(plan, 1):
        found = entered(action)
        if (
            found is None
            or (kinds.get(found[0]) if not isinstance(action, Submit) else "button") != kind
        ):
            lines.append(write_step(action, view.form.language))
            continue
        label, value = found
        marks = MARKS[number % len(MARKS)]
        if set(marks) & set(label + value):
            marks = "''"
        marker = MARKERS[(number + at) % len(MARKERS)].format(at)
        value = value.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(
            marker + quoted(phrase, marks).replace("{label}", label).replace("{value}", value)
        )
        count += 1
    return "\n".join(lines) if count else None


@cache
def examples_with(task, kind):
    """An example of each form that enters something into a control of this kind; first those of the
    phrase's tongue."""
    found = {}
    for split in ("train", "held-out-forms"):
        for example in task.examples(split):
            view = task.view_of(example)
            if example.stratum in found or kind not in {
                "button",
                *(one.kind for one in view.form.fields),
            }:
                continue
            plan = plan_for(view, values_of(example.reference))
            if rewritten(view, plan, kind, "", 0) is not None:
                found[example.stratum] = (example, view, plan)
    return list(found.values())


@pytest.mark.parametrize("kind", KINDS)
def test_every_phrasing_earns_what_the_canonical_plan_earns(forms, kind):
    phrases = [phrase for group in KINDS[kind] for phrase in PHRASINGS[group]]
    assert len(set(phrases)) >= 12
    some = cycle(examples_with(forms, kind))
    wrong = []
    for number, phrase in enumerate(phrases):
        for _ in range(FORMS):
            example, view, plan = next(some)
            text = rewritten(view, plan, kind, phrase, number)
            outcome, score = forms.judge(example, text)
            if score.total != 1.0:
                line = next(line for line in text.split("\n") if line not in example.gold)
                wrong.append(
                    (
                        phrase,
                        line,
                        round(score.total, 3),
                        outcome.facts["failed"],
                        outcome.facts["unread"],
                    )
                )
    assert not wrong, f"{len({one[0] for one in wrong})} of {len(phrases)}:\n" + "\n".join(
        map(str, wrong)
    )


ADDRESS = "http://127.0.0.1:5050/test/guest-stay"


@cache
def form_of(name):
    """A form with a control of every kind, under the labels of the data; the box to be unticked is
    ticked at first."""
    data = PHRASINGS["forms"][name]
    fields = [
        Field(
            name=kind,
            label=told[0],
            draw=drawn("whole", 1, 2),
            kind="checkbox" if kind == "unticked" else kind,
            options=options(data["options"].get(kind, "")) if kind in data["options"] else (),
            blank="-" if kind == "select" else None,
            default="on" if kind == "unticked" else "",
            accept=(".pdf",) if kind == "file" else (),
        )
        for kind, told in data["controls"].items()
        if kind != "button"
    ]
    return Form(
        name="guest-stay",
        domain="test",
        title=name,
        pages=(FormPage(tuple(fields)),),
        button=data["controls"]["button"][0],
        rules=(),
        language=data["language"],
    )


def canonical(name, kind):
    """The actions that fill in a control with what the data says."""
    label, *values = PHRASINGS["forms"][name]["controls"][kind]
    if kind in {"checkbox", "unticked"}:
        return [Check(label) if kind == "checkbox" else Uncheck(label)]
    act = {
        "select": Select,
        "multiselect": Select,
        "radio": Select,
        "checkboxes": Check,
        "file": Attach,
    }.get(kind, Type)
    return [act(label, value) for value in values]


def arrives(name, actions):
    """What the server receives, how often, and how many actions came to nothing."""
    controls = PHRASINGS["forms"][name]["controls"]
    case = FormCase(FormView(form_of(name)), frozenset({controls["file"][1]}))
    (result,) = DirectExecutor().run(
        case, [Plan(tuple(one for one in actions if not isinstance(one, Navigate)))]
    )
    failed = sum(attempt.status != "ok" for attempt in result.attempts)
    last = result.receipts[-1] if result.receipts else None
    return last and (last.entries, last.files), len(result.receipts), failed


def test_more_than_one_option_and_what_is_unticked():
    groups = {"several": ("multiselect", "checkboxes"), "unticked": ("unticked",)}
    wrong = []
    for name, kind, phrase in (
        (name, kind, phrase)
        for name in PHRASINGS["forms"]
        for group, kinds in groups.items()
        for kind in kinds
        for phrase in PHRASINGS[group]
    ):
        label, *values = PHRASINGS["forms"][name]["controls"][kind]
        line = phrase.replace("{label}", label)
        for place, value in zip(("{value}", "{other}"), values, strict=False):
            line = line.replace(place, value)
        plan = read_plan(line, elements_of(form_of(name)))
        if (
            arrives(name, [*plan.actions, Submit()])
            != arrives(name, [*canonical(name, kind), Submit()])
            or plan.unread
        ):
            wrong.append((line, plan.actions))
    assert not wrong, "\n".join(map(str, wrong))


def test_an_address():
    elements = elements_of(form_of("stay"))
    found = {
        line: read_plan(line.replace("{address}", ADDRESS), elements).actions[:1]
        for line in PHRASINGS["addresses"]
    }
    assert {
        line: actions for line, actions in found.items() if actions != (Navigate(ADDRESS),)
    } == {}


@pytest.mark.parametrize("name", PHRASINGS["nothing"])
def test_what_asks_for_nothing_changes_nothing(name):
    elements, untouched = elements_of(form_of(name)), arrives(name, [Submit()])[:2]
    found = {line: read_plan(line, elements).actions for line in PHRASINGS["nothing"][name]}
    assert {
        line: all_
        for line, all_ in found.items()
        if arrives(name, [*all_, Submit()])[:2] != untouched
    } == {}


@pytest.mark.parametrize("data", PHRASINGS["plans"], ids=lambda data: data["name"])
def test_a_whole_plan(data):
    name, text = data["form"], data["text"]
    elements = elements_of(form_of(name))
    for kind, (label, *_) in PHRASINGS["forms"][name]["controls"].items():
        index = next(one.index for one in elements if one.label == label)
        text = text.replace(f"<{kind}>", str(index))
    plan = read_plan(text, elements)
    wanted = [action for kind in data["fills"] for action in canonical(name, kind)]
    assert arrives(name, plan.actions) == arrives(name, [*wanted, Submit()])
    assert plan.actions[0] == Navigate(ADDRESS)
    assert plan.unread == 0
