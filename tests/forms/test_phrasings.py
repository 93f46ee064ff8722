"""A plan earns the same in whatever words it is written: many phrasings for every kind of control, on real forms."""

from functools import cache
from itertools import cycle
from pathlib import Path

import pytest
import yaml

from plumbline.tasks.forms.build import values_of
from plumbline.tasks.forms.plans.actions import Attach, Check, Select, Submit, Type
from plumbline.tasks.forms.plans.oracle import plan_for
from plumbline.tasks.forms.plans.write import write_step
from plumbline.tasks.forms.suite.declaration import TYPED

PHRASINGS = yaml.safe_load(Path(__file__).with_name("phrasings.yaml").read_text(encoding="utf-8"))
KINDS = {
    **dict.fromkeys(sorted(TYPED), "typed"),
    **dict.fromkeys(("select", "multiselect"), "chosen"),
    **{kind: kind for kind in ("radio", "checkbox", "checkboxes", "file", "button")},
}
FORMS = 4
"""Forms on which each phrasing is tried."""
MARKERS = ("", "Step {}: ", "{}. ", "{}) ", "- ", "**Step {}:** ", "Passo {}: ", "* ", "{} - ", "({}) ")
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
        if found is None or (kinds.get(found[0]) if not isinstance(action, Submit) else "button") != kind:
            lines.append(write_step(action, view.form.language))
            continue
        label, value = found
        marks = MARKS[number % len(MARKS)]
        if set(marks) & set(label + value):
            marks = "''"
        marker = MARKERS[(number + at) % len(MARKERS)].format(at)
        value = value.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(marker + quoted(phrase, marks).replace("{label}", label).replace("{value}", value))
        count += 1
    return "\n".join(lines) if count else None


@cache
def examples_with(task, kind):
    """An example of each form that enters something into a control of this kind; first those of the phrase's tongue."""
    found = {}
    for split in ("train", "held-out-forms"):
        for example in task.examples(split):
            view = task.view_of(example)
            plan = plan_for(view, values_of(example.reference))
            if example.stratum not in found and rewritten(view, plan, kind, "", 0) is not None:
                found[example.stratum] = (example, view, plan)
    return list(found.values())


@pytest.mark.parametrize("kind", KINDS)
def test_every_phrasing_earns_what_the_canonical_plan_earns(forms, kind):
    phrases = PHRASINGS[KINDS[kind]]
    assert len(set(phrases)) >= 60
    some = cycle(examples_with(forms, kind))
    wrong = []
    for number, phrase in enumerate(phrases):
        for _ in range(FORMS):
            example, view, plan = next(some)
            text = rewritten(view, plan, kind, phrase, number)
            outcome, score = forms.judge(example, text)
            if score.total != 1.0:
                line = next(line for line in text.split("\n") if line not in example.gold)
                wrong.append((phrase, line, round(score.total, 3), outcome.facts["failed"], outcome.facts["unread"]))
    assert not wrong, f"{len({one[0] for one in wrong})} of {len(phrases)}:\n" + "\n".join(map(str, wrong))
