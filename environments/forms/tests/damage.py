"""Plans as models write them while they learn: right ones with something wrong in them, drawn from
a generator."""

import string
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from plumbline_browser.plans.actions import (
    Action,
    Attach,
    Check,
    Click,
    Done,
    Element,
    Fill,
    Navigate,
    Press,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline_forms.plans.oracle import ADDRESS
from plumbline_forms.suite.declaration import Form

_TEXTS = (
    *(
        "",
        " ",
        "x",
        "N/A",
        "None",
        "yes",
        "12",
        "-3",
        "1e3",
        "1,234.50",
        "1.234,50",
        "R$ 99,90",
        "0012",
        "3.14159",
    ),
    *(
        "2026-02-30",
        "03/04/2026",
        "13/04/2026",
        "April 3, 2026",
        "3 de abril de 2026",
        "2026-04-03",
        "tomorrow",
    ),
    *(
        "9:05",
        "9h05",
        "2:30 PM",
        "25:00",
        "a@b",
        "a@b.example",
        "no.at.example",
        "https://x.example/a?b=c",
        "x.example",
    ),
    *(
        "two\nlines",
        "a\r\nb",
        "\ttab",
        "  spaces  ",
        "<b>bold</b> & co",
        "'quoted' \"twice\"",
        "naïve café",
        "😀 ok",
    ),
    *(
        "ab" * 60,
        "é" * 150,
        "😀" * 45,
        "word " * 100,
        "\x07bell",
        "null\x00",
        "a\u2028b",
        "ﬁne",
        "\u202eback",
    ),
)
_KEYS = ("Enter", "Tab", "Escape", "Return", "Control+A", "F5")
_LABELS = ("", "Nothing", "Name", "E-mail", "Submit", "*", "the field", "Data", "1")
Damage = Callable[[list[Action], Sequence[Element], Form, np.random.Generator], None]


def damaged(
    actions: Sequence[Action], elements: Sequence[Element], form: Form, rng: np.random.Generator
) -> tuple[Action, ...]:
    """A copy of a plan with one to four things wrong in it."""
    plan = list(actions)
    for _ in range(int(rng.integers(1, 5))):
        DAMAGES[int(rng.integers(len(DAMAGES)))](plan, elements, form, rng)
    return tuple(plan)


def _place(plan: Sequence[Action], rng: np.random.Generator) -> int:
    return int(rng.integers(len(plan) + 1))


def _fills(plan: Sequence[Action]) -> list[int]:
    return [place for place, action in enumerate(plan) if isinstance(action, Fill)]


def _pick(items: Sequence[str], rng: np.random.Generator) -> str:
    return items[int(rng.integers(len(items)))]


def _drop(plan: list[Action], _: Sequence[Element], __: Form, rng: np.random.Generator) -> None:
    if len(plan) > 1:
        del plan[int(rng.integers(len(plan)))]


def _repeat(plan: list[Action], _: Sequence[Element], __: Form, rng: np.random.Generator) -> None:
    if plan:
        plan.insert(_place(plan, rng), plan[int(rng.integers(len(plan)))])


def _swap(plan: list[Action], _: Sequence[Element], __: Form, rng: np.random.Generator) -> None:
    if len(plan) > 1:
        first, second = (int(place) for place in rng.permutation(len(plan))[:2])
        plan[first], plan[second] = plan[second], plan[first]


def _other_text(
    plan: list[Action], _: Sequence[Element], __: Form, rng: np.random.Generator
) -> None:
    if places := _fills(plan):
        place = places[int(rng.integers(len(places)))]
        text, action = _pick(_TEXTS, rng), plan[place]
        if isinstance(action, Type):
            plan[place] = replace(action, text=text, clear=bool(rng.random() < 0.8))
        elif isinstance(action, Select):
            plan[place] = replace(action, option=text)
        elif isinstance(action, Attach):
            plan[place] = replace(action, file="other.pdf" if text else "")


def _typo(plan: list[Action], _: Sequence[Element], __: Form, rng: np.random.Generator) -> None:
    for place in _fills(plan)[:: max(1, int(rng.integers(1, 6)))]:
        action = plan[place]
        if isinstance(action, Type) and action.text:
            at = int(rng.integers(len(action.text)))
            letter = _pick(string.ascii_letters + string.digits, rng)
            plan[place] = replace(action, text=action.text[:at] + letter + action.text[at + 1 :])


def _other_label(
    plan: list[Action], elements: Sequence[Element], _: Form, rng: np.random.Generator
) -> None:
    if places := _fills(plan):
        place = places[int(rng.integers(len(places)))]
        action = plan[place]
        label = _pick([*_LABELS, *(element.label for element in elements)], rng)
        if isinstance(action, Fill):
            plan[place] = replace(action, label=label)


def _roughly(plan: list[Action], _: Sequence[Element], __: Form, rng: np.random.Generator) -> None:
    """The label in capitals, with a star, without its last word."""
    if places := _fills(plan):
        place = places[int(rng.integers(len(places)))]
        action = plan[place]
        if isinstance(action, Fill):
            label = action.label
            ways = (
                label.upper(),
                label + " *",
                label + ":",
                label.rpartition(" ")[0],
                label.replace(" ", "_"),
            )
            plan[place] = replace(action, label=_pick(ways, rng))


def _other_kind(
    plan: list[Action], elements: Sequence[Element], _: Form, rng: np.random.Generator
) -> None:
    """An action of a kind that the control does not take, or does."""
    element = elements[int(rng.integers(len(elements)))]
    label, option = element.label, element.option or _pick(_TEXTS, rng)
    kinds: tuple[Action, ...] = (
        *(
            Type(label, option),
            Type(label, option, clear=False),
            Select(label, option),
            Check(label),
        ),
        *(
            Check(label, option),
            Uncheck(label),
            Uncheck(label, option),
            Click(label),
            Click(element.option or label),
        ),
        *(Attach(label, "other.pdf"), Submit(label)),
    )
    plan.insert(_place(plan, rng), kinds[int(rng.integers(len(kinds)))])


def _press(plan: list[Action], _: Sequence[Element], __: Form, rng: np.random.Generator) -> None:
    plan.insert(_place(plan, rng), Press(_pick(_KEYS, rng)))


def _send(plan: list[Action], _: Sequence[Element], __: Form, rng: np.random.Generator) -> None:
    plan.insert(_place(plan, rng), Submit(_pick(("", "Submit", "Enviar", "Send it", "Next"), rng)))


def _go(plan: list[Action], _: Sequence[Element], form: Form, rng: np.random.Generator) -> None:
    places = (form.path, form.path + "/2", form.path + "/9", "/elsewhere")
    hosts = (ADDRESS, "http://127.0.0.1", "", "https://example.org", "file://")
    plan.insert(_place(plan, rng), Navigate(_pick(hosts, rng) + _pick(places, rng)))


def _end(plan: list[Action], _: Sequence[Element], __: Form, rng: np.random.Generator) -> None:
    plan.insert(_place(plan, rng), Done("done"))


def _cut_off(plan: list[Action], _: Sequence[Element], __: Form, rng: np.random.Generator) -> None:
    del plan[_place(plan, rng) :]


DAMAGES: tuple[Damage, ...] = (
    *(_drop, _repeat, _swap, _other_text, _other_text, _other_text, _typo, _other_label, _roughly),
    *(_other_kind, _other_kind, _press, _send, _go, _end, _cut_off),
)
