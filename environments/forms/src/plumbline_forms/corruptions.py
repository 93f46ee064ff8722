"""Plans with something wrong or left out: careless recordings, and plans of a model that misreads
the page."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from plumbline_browser.plans.actions import (
    Action,
    Attach,
    Check,
    Element,
    Fill,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline_forms.options import RecordingFaults

# -- careless recordings ---------------------------------------------------------------------------
# The gold plan as somebody in a hurry would have recorded it: things left out, nothing wrong in
# what is there.


def sloppily(
    actions: Sequence[Action], sloppiness: RecordingFaults, rng: np.random.Generator
) -> list[Action]:
    """Leave things out of a gold plan, each at its probability.

    Args:
        actions: the plan.
        sloppiness: probabilities.
        rng: decides; as many numbers are drawn whatever they come to, so one probability moves no
            other.
    """
    unsent, chances = rng.random(), rng.random(len(actions))
    kept = [
        action
        for action, chance in zip(actions, chances, strict=True)
        if not (isinstance(action, Fill) and chance < sloppiness.skipped)
    ]
    if unsent < sloppiness.unsent and kept and isinstance(kept[-1], Submit):
        kept.pop()
    return kept


# -- misread pages ---------------------------------------------------------------------------------
# Plans as a small model writes them for a form that it has not seen: what the page says is misread
# or miscopied.
#
# The mistakes of trained models: the right label with the action of another kind of control, a
# label for its neighbour's or for an option of its own, letters lost in copying, the second of
# several files left out.

MOST = 3
"""Mistakes of a plan."""
_Fill = Type | Select | Check | Uncheck | Attach


def misread(
    actions: Sequence[Action], elements: Sequence[Element], rng: np.random.Generator
) -> tuple[Action, ...]:
    """A copy of a plan in which one to `MOST` entries are misread; one without entries is itself.

    Args:
        actions: a right plan.
        elements: of the page.
        rng: decides.
    """
    plan = list(actions)
    for _ in range(int(rng.integers(1, MOST + 1))):
        places = [place for place, action in enumerate(plan) if isinstance(action, Fill)]
        if not places:
            break
        place = places[int(rng.integers(len(places)))]
        entry = plan[place]
        assert isinstance(entry, Fill)
        plan[place : place + 1] = _MISTAKES[int(rng.integers(len(_MISTAKES)))](entry, elements, rng)
    return tuple(plan)


def _other_kind(entry: _Fill, _: Sequence[Element], rng: np.random.Generator) -> list[Action]:
    """What another kind of control would take."""
    label, value = entry.label, _value(entry)
    ways: list[Action] = [
        Type(label, value or "yes"),
        Select(label, value or "yes"),
        Check(label),
        Check(label, value),
    ]
    others = [way for way in ways if type(way) is not type(entry)]
    return [others[int(rng.integers(len(others)))]]


def _other_label(
    entry: _Fill, elements: Sequence[Element], rng: np.random.Generator
) -> list[Action]:
    """Another control's label, or a choice of its own for the label."""
    own = [
        text
        for one in elements
        if one.label == entry.label
        for text in (*one.offers, one.option)
        if text
    ]
    labels = [one.label for one in elements if one.label != entry.label]  # a button's at least
    choices = own if own and rng.random() < 0.5 else labels
    return [replace(entry, label=choices[int(rng.integers(len(choices)))])]


def _miscopied(entry: _Fill, _: Sequence[Element], rng: np.random.Generator) -> list[Action]:
    """A letter of the label or of the value lost, doubled or swapped with the next."""
    if rng.random() < 0.5 or not _value(entry):
        return [replace(entry, label=_slip(entry.label, rng))]
    value = _slip(_value(entry), rng)
    match entry:
        case Type():
            return [replace(entry, text=value)]
        case Attach():
            return [replace(entry, file=value)]
        case _:
            return [replace(entry, option=value)]


def _left_out(_: _Fill, __: Sequence[Element], ___: np.random.Generator) -> list[Action]:
    return []


_Mistake = Callable[[_Fill, Sequence[Element], np.random.Generator], list[Action]]
_MISTAKES: tuple[_Mistake, ...] = (_other_kind, _other_label, _miscopied, _left_out)


def _value(entry: _Fill) -> str:
    match entry:
        case Type(_, text):
            return text
        case Attach(_, file):
            return file
        case Select(_, option) | Check(_, option) | Uncheck(_, option):
            return option


def _slip(text: str, rng: np.random.Generator) -> str:
    at = int(rng.integers(max(1, len(text) - 1)))
    before, two, after = text[:at], text[at : at + 2], text[at + 2 :]
    return before + (two[1:], two[:1] + two, two[::-1])[int(rng.integers(3))] + after
