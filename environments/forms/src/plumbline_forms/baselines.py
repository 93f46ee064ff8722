"""Ways to answer without reading what to enter: what they earn is the floor that every figure
stands on."""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence

from plumbline.records import Example
from plumbline.tasks.baselines import blank, echo
from plumbline.tasks.task import Baseline
from plumbline_browser.controls import shuffle_gold
from plumbline_browser.plans.actions import (
    Action,
    Attach,
    Check,
    Fill,
    Navigate,
    Select,
    Submit,
    Type,
)
from plumbline_browser.plans.writer import write_steps
from plumbline_forms.build import values_of, write_gold
from plumbline_forms.plans.oracle import ADDRESS, plan_for
from plumbline_forms.site.page import FormView
from plumbline_forms.suite.catalogue import RECORDS, draw_record, is_shown
from plumbline_forms.suite.declaration import Form, Value

_TOLD = re.compile(r"^- (.+?): (.+)$", re.MULTILINE)
"""A line of what is to be entered: a label and a value."""
_OTHER = 1_000_003
"""A seed for records that no example has."""
ViewOf = Callable[[Example], FormView]
"""The form of an example, as it is met."""


def baselines(view_of: ViewOf) -> dict[str, Baseline]:
    """The baselines by name."""
    return {
        "blank": blank,
        "submit-only": lambda examples: [_submit_only(view_of(example)) for example in examples],
        "type-after-submit": lambda examples: [
            _type_after(view_of(example), example) for example in examples
        ],
        "success-text": lambda examples: [_success_text(view_of(example)) for example in examples],
        "echo": echo,
        "constant": lambda examples: _constant(examples, view_of),
        "shuffled-gold": lambda examples: _shuffled(examples, view_of),
        "spray": lambda examples: [_spray(view_of(example), example) for example in examples],
    }


def _submit_only(view: FormView) -> str:
    """Every page's button, and nothing else: what a rubric pays most for that looks for words of
    success."""
    presses = [Submit() for _ in view.form.pages]
    return write_steps([Navigate(ADDRESS + view.form.path), *presses], view.form.language)


def _type_after(view: FormView, example: Example) -> str:
    """Sends the form as it is, and then claims to type everything right."""
    gold = plan_for(view, values_of(example.reference))
    typing: list[Action] = [action for action in gold if isinstance(action, Fill)]
    presses = [Submit() for _ in view.form.pages]
    return write_steps([Navigate(ADDRESS + view.form.path), *presses, *typing], view.form.language)


def _success_text(view: FormView) -> str:
    """Types into every field that all went well, which a rubric that looks for these words would
    pay for."""
    lines = [
        f"Step {number}: Type 'form submitted, success, thank you' into the '{one.label}' field"
        for number, one in enumerate(view.form.fields, 1)
    ]
    return "\n".join(
        [*lines, "Click the Submit button", "The form was successfully submitted. Thank you."]
    )


def _spray(view: FormView, example: Example) -> str:
    """Tries every kind of action with every line "label: value" of the prompt, on every page, and
    reads no more of it.

    It knows what is to be entered, because the prompt says so, and not how: three of four of its
    actions fail.
    """
    actions: list[Action] = []
    given = example.messages[-1]["content"].split("\n\n")[1]  # between what is asked and the page
    for label, value in _TOLD.findall(given):
        parts = value.split("; ")
        actions += [Type(label, value), *(Select(label, part) for part in parts)]
        actions += [*(Attach(label, part) for part in parts), Check(label)]
    pages = [action for _ in view.form.pages for action in (*actions, Submit())]
    return write_steps([Navigate(ADDRESS + view.form.path), *pages], view.form.language)


def _constant(examples: Sequence[Example], view_of: ViewOf) -> list[str]:
    """For each form one plan: every field's most frequent value over other records of the form.

    Other records, because a form has five examples in a small split, and any one's own values are
    right for a fifth.
    """
    best: dict[str, dict[str, Value]] = {}
    for example in examples:
        form = view_of(example).form
        if form.name not in best:
            best[form.name] = _most_frequent(
                form, [draw_record(form, _OTHER, index) for index in range(RECORDS)]
            )
    return [
        write_gold(FormView(view_of(one).form), best[one.reference["form"]], "steps")
        for one in examples
    ]


def _most_frequent(form: Form, records: Sequence[dict[str, Value]]) -> dict[str, Value]:
    best: dict[str, Value] = {}
    for one in form.fields:
        if one.kind == "hidden" or not is_shown(one, best):
            best[one.name] = None
            continue
        # A field that is shown needs a value where the form requires one, even if most records do
        # not show it.
        found = [
            record[one.name]
            for record in records
            if record[one.name] is not None or not one.required
        ]
        counts = Counter(json.dumps(value) for value in found)
        value = json.loads(counts.most_common(1)[0][0]) if counts else None
        best[one.name] = tuple(value) if isinstance(value, list) else value
    entered = {name: value for name, value in best.items() if isinstance(value, str)}
    for rule in form.rules:
        # values that do not fit together would not be accepted: take one record's
        if not rule.holds(entered):
            best |= {name: records[0][name] for name in rule.names}
    return best


def _shuffled(examples: Sequence[Example], view_of: ViewOf) -> list[str]:
    """Perfect plans for the right form, each with another record's values."""

    def write(one: Example, other: Example) -> str:
        return write_gold(FormView(view_of(one).form), values_of(other.reference), "steps")

    return shuffle_gold(examples, lambda one: str(one.reference["form"]), write)
