"""What a form is worth: what the server received for it, and nothing else.

A field pays if an untouched form would have sent something else, and it pays in proportion to how hard it is to guess:
1 for what is typed or attached, 1 - 1/k for one of k options, nothing for a box that must be ticked anyway. So the
blank form, the prefilled one, and the one that agrees to everything stand at or near zero. Changing what should have
stayed alone takes away, and so does every action that came to nothing: who tries every kind of action on every control
has not said what is to be done. Without a complete form at the server there is no reward at all: not for actions that
were carried out, not for a page that says thank you, not for what the plan says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plumbline.records import Score
from plumbline.tasks.rubric import Part, Rubric
from plumbline_forms.canonical import Canonical, canonical, gold
from plumbline_forms.executors.executor import Execution
from plumbline_forms.plans.actions import Fill, Plan
from plumbline_forms.site.receipts import Entries, Submission, submission_of
from plumbline_forms.site.view import View
from plumbline_forms.suite.declaration import Field, Value
from plumbline_forms.suite.records import is_shown

RUBRIC = Rubric(
    "forms-received",
    2,
    parts=(
        Part("fields", 0.8, "entries that had to be made: each right one, weighted by how hard it is to guess"),
        Part("exact", 0.2, "the whole form is right, every field of it"),
    ),
    form=(Part("clean", 1.0, "what should have stayed as it was did, and the plan's actions came to something"),),
)
_CHANGES_TAKE, _WASTE_TAKES = 0.5, 0.9
"""Of the reward, at most: changing what should have stayed alone, and actions that came to nothing. `clean` is the
product of what both leave; a change of either number is a new version of the rubric, because its hash has only the
weights."""
KIND = "kind-"
"""Prefix of the parts that say what share of the entries of one kind was right; they are reported and do not pay."""
_SET_WORTH = 0.75
"""Of a group of boxes or a list with several choices: more than one option, less than a text."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What one field should have received."""

    field: Field
    gold: Canonical
    weight: float
    """What it pays; 0 where an untouched form is right already, or where nothing else could be sent."""
    kept: bool
    """Whether it should stay as it was."""
    untouched: Canonical


def expected(view: View, values: Mapping[str, Value]) -> tuple[Expected, ...]:
    """What every visible field of a form should receive for these values."""
    found = []
    for one in view.form.fields:
        if one.kind == "hidden":
            continue
        shown = is_shown(one, values)
        value = values.get(one.name) if shown else None
        nothing = canonical(one, view.untouched(one) if shown else ())
        wanted = nothing if value is None else gold(one, value)
        kept = wanted == nothing
        found.append(Expected(one, wanted, 0.0 if kept else worth(one), kept, nothing))
    return tuple(found)


def worth(one: Field) -> float:
    """What a field pays where it had to be changed: 1 less the chance that a blind guess is right."""
    if one.kind == "checkbox":
        return 0.0 if one.required else 0.5
    if one.kind in {"select", "radio"}:
        return 1 - 1 / len(one.options)
    if one.kind in {"checkboxes", "multiselect"}:
        return _SET_WORTH
    return 1.0


def needed(asked: Sequence[Expected], pages: int) -> int:
    """How many actions a form takes: going there, one for each entry that was told, and a button a page.

    What is right already counts as well, because whoever writes a plan has not seen the page.
    """
    entries = 0
    for one in asked:
        if not one.kept or one.gold or one.field.kind == "checkbox":
            entries += max(1, len(one.gold)) if isinstance(one.gold, tuple) else 1
    return 1 + entries + pages


def wasted(plan: Plan, execution: Execution, need: int) -> int:
    """How many actions of a plan came to nothing.

    These are: actions that failed (no such control or option, not of this kind, a form that was not sent) or were
    never carried out, lines that claim to be steps and are not understood, forms that the server refused, and whatever
    succeeds beyond use: more entries than the form takes actions, or more of the rest (clicks into a field, keys,
    waiting) than that.
    """
    done = [action for action, attempt in zip(plan.actions, execution.attempts, strict=False) if attempt.status == "ok"]
    entries = sum(isinstance(action, Fill) for action in done)
    refused = sum(bool(receipt.errors) for receipt in execution.receipts)
    beyond = max(0, entries - need) + max(0, len(done) - entries + plan.idle - need)
    return len(plan.actions) - len(done) + plan.unread + refused + beyond


def score(asked: Sequence[Expected], plan: Plan, execution: Execution, pages: int = 1) -> Score:
    """Judge what the server received.

    Args:
        asked: what it should have received.
        plan: what was carried out.
        execution: the facts.
        pages: of the form.

    Returns:
        The score; every part is 0 where no complete form arrived.
    """
    submission = submission_of(execution.receipts)
    values: dict[str, float | None] = {"fields": 0.0, "exact": 0.0, "clean": 0.0}
    facts = {"submitted": float(submission is not None), "kept": 0.0, "economy": 0.0}
    kinds: dict[str, list[float]] = {}
    if submission is None:
        kinds = {one.field.kind: [0.0] for one in asked if not one.kept}
    else:
        need = needed(asked, pages)
        values, facts["kept"] = _values(asked, submission, kinds)
        facts["economy"] = 1 - min(1.0, wasted(plan, execution, need) / need)
        values["clean"] = (1 - _CHANGES_TAKE * (1 - facts["kept"])) * (1 - _WASTE_TAKES * (1 - facts["economy"]))
    extra = {KIND + kind: sum(worths) / len(worths) for kind, worths in sorted(kinds.items())}
    return Score(total=RUBRIC.total(values), parts={**values, **facts, **extra}, rubric=RUBRIC.identity)


def _values(
    asked: Sequence[Expected], submission: Submission, kinds: dict[str, list[float]]
) -> tuple[dict[str, float | None], float]:
    """What of a submission pays, and the share that was kept; `kinds` collects the worth of every entry to be made."""
    paid = weight = 0.0
    changed, exact = 0, True
    for one in asked:
        source: Entries = submission.files if one.field.kind == "file" else submission.entries
        got = canonical(one.field, source.get(one.field.name, ()))
        right = got == one.gold
        exact = exact and right
        if one.kept:
            changed += not right
            continue
        # A prefilled text may resemble the right one; leaving it there is nothing that was entered.
        value = 1.0 if right else 0.0 if got == one.untouched else closeness(one, got)
        paid += one.weight * value
        weight += one.weight
        kinds.setdefault(one.field.kind, []).append(value)
    values: dict[str, float | None] = {
        "fields": paid / weight if weight else 0.0,
        "exact": float(exact and bool(weight)),
    }
    return values, 1 - min(1.0, 2 * changed / max(len(asked), 1))


def closeness(one: Expected, got: Canonical) -> float:
    """What an entry that is not right is worth: sets and long texts that are mostly right pay in part.

    From half on: what shares half of its words, or half of its options, with the right one is still worth nothing.
    """
    if isinstance(one.gold, tuple):
        both, either = set(one.gold) & set(got), set(one.gold) | set(got)
        return max(0.0, 2 * len(both) / len(either) - 1)  # two empty sets would be equal, and so right
    if one.field.kind != "textarea" or not isinstance(got, str):
        return 0.0
    mine, wanted = got.split(), one.gold.split()
    if not mine or not wanted or len(mine) > 4 * len(wanted):
        return 0.0
    return max(0.0, 2 * _in_order(mine, wanted) / (len(mine) + len(wanted)) * 2 - 1) * 0.9


def _in_order(mine: Sequence[str], wanted: Sequence[str]) -> int:
    """Length of the longest common subsequence of words: the same words in another order are another text."""
    row = [0] * (len(wanted) + 1)
    for word in mine:
        before = 0
        for place, other in enumerate(wanted, 1):
            before, row[place] = row[place], before + 1 if word == other else max(row[place], row[place - 1])
    return row[-1]
