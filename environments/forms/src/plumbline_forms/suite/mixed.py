"""Forms that are made up for training, so that a model learns to read a form and not to know twenty
of them.

A form is put together from fields of others. Some fields are of another kind, and labels are dealt
again or coined: a label then says nothing about what to do with its control, and only the page
does.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.seeds import generator
from plumbline.tasks.tables import read_table
from plumbline_browser.plans.actions import CHOSEN, Language
from plumbline_forms.suite.catalogue import slug
from plumbline_forms.suite.declaration import (
    Draw,
    Field,
    Form,
    FormPage,
    Kind,
    Option,
    Value,
    VisibleWhen,
)
from plumbline_forms.suite.drawing import Drawing, ascii_of, drawn

# -- coined words ----------------------------------------------------------------------------------
# Labels, choices and entries that no form has, put together from words.
#
# A model that has seen a few hundred labels over and over writes those from memory, and "Area in
# square metre" where a new form says metres. Labels that come once each it can only copy. Some
# labels of a form begin with the same word ("Permit", "Permit email"), because the shorter of two
# such labels is taken for the longer.

COINED, BY_KIND, SAME_HEAD, CHOICES, ENTRIES, FILES = 0.85, 0.7, 0.35, 0.75, 0.5, 0.7
"""Of fields: a coined label; of labels: an ending that fits the control, and the first thing of one
before; of an option: its label's thing; of choices: coined options; of texts: a coined entry; of
files: coined names, up to three."""
QUESTIONS, LONG = 0.2, 0.3
"""Of coined choices of one: yes, no and perhaps a third; of coined texts of several lines: 4 to
`SENTENCES`."""
SENTENCES = 12
_PEOPLE = 4
"""People of one record, at most, that draws ask for."""


def _lists(written: Any) -> Any:
    """Lists that are written with commas, however deep in mappings they are."""
    if isinstance(written, Mapping):
        return {key: _lists(value) for key, value in written.items()}
    return tuple(one.strip() for one in written.split(","))


_WORDS: Mapping[str, Any] = _lists(read_table(Path(__file__).with_name("coined.yaml")))


@dataclass(slots=True)
class Coiner:
    """Draws words of a language, and no name twice that a control of one form has."""

    rng: np.random.Generator
    language: Language
    taken: set[str]
    """Slugs of labels and of options' texts."""

    def coin(self, patterns: str, **given: str) -> str:
        """A text by one of a list's patterns, with what is given in its places: a capital in each
        that has one."""
        words = _WORDS[self.language]
        lists = {
            "thing": words["things"],
            "quality": words["qualities"],
            "text": words["endings"]["text"],
        }
        lists["unit"] = words["units"]

        def fill(found: re.Match[str]) -> str:
            name = found.group(1)
            low = name.lower()
            if low == "number":
                return str(self.rng.integers(2, 400))
            if low == "last":
                return coined_name(self.rng, self.language)
            if low in given:
                # a second thing is another one
                text = given.pop(low) if low == "thing" else given[low]
            else:
                text = self._pick(lists[low])
            return text[0].upper() + text[1:] if name[0].isupper() else text[0].lower() + text[1:]

        return re.sub(r"\{(\w+)\}", fill, self._pick(words[patterns]))

    def fresh(self, patterns: str, **given: str) -> str:
        """The same, for a name that the form does not have; there are thousands, and a form has a
        hundred at most."""
        while slug(text := self.coin(patterns, **given)) in self.taken:
            pass
        self.taken.add(slug(text))
        return text

    def _pick(self, choices: tuple[str, ...]) -> str:
        return choices[int(self.rng.integers(len(choices)))]

    def field(self, one: Field, heads: list[str]) -> Field:
        """A field under a coined name, perhaps with other choices or entries.

        Args:
            one: its label and options are given up where they are coined.
            heads: things that labels before began with; its own is added.
        """
        words = _WORDS[self.language]
        head = (
            self._pick(tuple(heads))
            if heads and self.rng.random() < SAME_HEAD
            else self._pick(words["things"])
        )
        if one.kind in {"select", "radio"} and self.rng.random() < QUESTIONS:
            return self._question(one)
        if one.options and self.rng.random() < CHOICES:
            one = self._with_choices(one, head)
        if one.kind == "file" and self.rng.random() < FILES:
            stem = ascii_of(self._pick(words["things"]))
            one = replace(
                one,
                draw=drawn("papers", stem, *(one.accept or (".pdf", ".png")), count=3),
                multiple=True,
            )
        if (
            one.kind in _ENTRIES
            and one.pattern is None
            and one.maxlength is None
            and self.rng.random() < ENTRIES
        ):
            one = replace(one, draw=_ENTRIES[one.kind], placeholder="", hint="", minlength=None)
        if self.rng.random() >= COINED:
            return one
        if one.kind == "checkbox":
            label = self.fresh("boxes")
        else:
            kind = "choice" if one.kind in CHOSEN else one.kind
            kinds = tuple(words["endings"])
            ending = self._pick(
                words["endings"][kind if self.rng.random() < BY_KIND else self._pick(kinds)]
            )
            label = self.fresh("labels", thing=head, ending=ending)
            heads.append(head)
        return replace(one, label=label, name=slug(label), alias="")

    def _question(self, one: Field) -> Field:
        answers = _WORDS[self.language]["answers"][: int(self.rng.integers(2, 4))]
        label = self.fresh("questions")
        options = tuple(Option(slug(text), text) for text in answers)
        return replace(one, label=label, name=slug(label), alias="", options=options, default="")

    def _with_choices(self, one: Field, head: str) -> Field:
        texts = [
            self.fresh("choices", **({"thing": head} if self.rng.random() < SAME_HEAD else {}))
            for _ in range(int(self.rng.integers(2, 7)))
        ]
        return replace(one, options=tuple(Option(slug(text), text) for text in texts), default="")


def coined_name(rng: np.random.Generator, language: Language) -> str:
    """A first or a last name of two or three syllables that no list of names has, or only by
    chance."""
    words = _WORDS[language]
    parts = (
        words[part]
        for _ in range(int(rng.integers(2, 4)))
        for part in ("onsets", "vowels", "codas")
    )
    return "".join(part[int(rng.integers(len(part)))].strip("-") for part in parts).capitalize()


def of_strangers(draw: Draw) -> Draw:
    """The same draw, about people of its own, whose names are coined.

    A name that was seen often is written from memory, and two fields with one value do not show
    which line was read.
    """

    def own(drawing: Drawing) -> Value:
        names = (coined_name(drawing.rng, drawing.language) for _ in range(2 * _PEOPLE))
        return draw(replace(drawing, people=dict(enumerate(zip(names, names, strict=True)))))

    return own


def _coiner(drawing: Drawing) -> Coiner:
    return Coiner(drawing.rng, drawing.language, set())


def _entry(drawing: Drawing) -> str:
    return _coiner(drawing).coin("entries")


def _remark(drawing: Drawing) -> str:
    rng = drawing.rng
    count = int(rng.integers(4, SENTENCES + 1) if rng.random() < LONG else rng.integers(1, 4))
    return " ".join(_coiner(drawing).coin("remarks") for _ in range(count))


def _mail(drawing: Drawing) -> str:
    local, host = (".".join(filter(None, map(ascii_of, _entry(drawing).split()))) for _ in range(2))
    return f"{local}@{host}.example"


def _telephone(drawing: Drawing) -> Value:
    return drawing.code(drawing.pick(_WORDS[drawing.language]["phones"]))


def _address_on_the_web(drawing: Drawing) -> str:
    things = [ascii_of(drawing.pick(_WORDS[drawing.language]["things"])) for _ in range(3)]
    number = drawing.rng.integers(2, 9000)
    ways = (
        "https://{}.example",
        "http://www.{}-{}.example/{}",
        "https://{}.example/{}/{}?id=#",
        "https://{}.example/#",
    )
    return drawing.pick(ways).format(*things).replace("#", str(number))


_ENTRIES: Mapping[str, Draw] = {
    "text": _entry,
    "textarea": _remark,
    "email": _mail,
    "tel": _telephone,
    "url": _address_on_the_web,
}


# -- forms of fields of others ---------------------------------------------------------------------

FEWEST, MOST = 4, 16
"""Fields of a form, before those that would say the same twice are left out."""
MIXED_COINED, RELABELLED, CHANGED, EVEN, TWO_PAGES = 0.6, 0.5, 0.25, 0.5, 0.2
"""Of forms: labels are coined; of others: dealt again; of fields: of another kind; of choices: so,
too, which makes lists of which several may be chosen as common as boxes; of forms: a second
page."""
STRANGERS, SPARE, UNTOLD, CONDITIONAL = 0.7, 0.5, 0.3, 0.3
"""Of fields: people with coined names, of its own; of fields that are not required: one that
records leave out, and how often; of pages with a choice: what stands below depends on it."""
_KINDS: Mapping[Kind, Kind] = {
    "text": "textarea",
    "email": "text",
    "tel": "text",
    "url": "text",
    "number": "text",
    "date": "text",
    "time": "text",
    "select": "radio",
    "radio": "select",
    "multiselect": "checkboxes",
    "checkboxes": "multiselect",
}
"""What a field may become, such that each of its values can still be entered."""


def mixed_forms(
    forms: Mapping[str, Form], count: int, seed: int, most: int | None = None
) -> dict[str, Form]:
    """So many forms of the fields of others, each by its name.

    Args:
        forms: whose fields, titles and buttons are taken; a form keeps to one language.
        count: how many are made.
        seed: the same seed makes the same forms.
        most: fields of each, where it is below `MOST`.
    """
    usable = {
        name: [one for one in form.fields if _stands_alone(one, form)]
        for name, form in forms.items()
    }
    most = MOST if most is None else min(most, MOST)
    languages = sorted({form.language for form in forms.values()})
    made = {}
    for index in range(count):
        rng = generator(seed, "forms", "mixed", index)
        # Every language as often: of the rarer one not even the verbs were safe (Aplica for Anexe,
        # after 900 forms).
        language = languages[int(rng.integers(len(languages)))]
        alike = [form for form in forms.values() if form.language == language]
        like = alike[int(rng.integers(len(alike)))]
        pool = [
            one for name, form in forms.items() if form.language == language for one in usable[name]
        ]
        coiner = Coiner(rng, language, set()) if rng.random() < MIXED_COINED else None
        fields = _fields(pool, int(rng.integers(min(FEWEST, most), most + 1)), rng, coiner)
        cut = (
            int(rng.integers(1, len(fields)))
            if len(fields) > 1 and rng.random() < TWO_PAGES
            else len(fields)
        )
        name = f"mixed-{index:04d}"
        made[name] = Form(
            name=name,
            domain=like.domain,
            title=coiner.coin("titles") if coiner else like.title,
            pages=tuple(
                FormPage(_depending(part, rng)) for part in (fields[:cut], fields[cut:]) if part
            ),
            button=coiner.coin("buttons") if coiner else like.button,
            language=language,
            asides=like.asides,
        )
    return made


def _fields(
    pool: Sequence[Field], count: int, rng: np.random.Generator, coiner: Coiner | None
) -> tuple[Field, ...]:
    chosen: list[Field] = []
    names: set[str] = set()
    labels: set[str] = set()
    texts: set[str] = set()
    for one in _order(pool, rng):
        spoken = {one.label.casefold(), one.alias.casefold()} - {""}
        said = {option.text.casefold() for option in one.options}
        # An option that reads as a label would be another control of that name.
        if len(chosen) == count or one.name in names or spoken & (labels | texts) or said & labels:
            continue
        chosen.append(one)
        names.add(one.name)
        labels |= spoken
        texts |= said
    fields = [
        _changed(one)
        if one.kind in _KINDS and rng.random() < (EVEN if one.options else CHANGED)
        else one
        for one in chosen
    ]
    fields = [_told(one, rng) for one in fields]
    if coiner is not None:
        coiner.taken |= {slug(text) for text in labels | texts} | names
        heads: list[str] = []
        return tuple(coiner.field(one, heads) for one in fields)
    if rng.random() >= RELABELLED:
        return tuple(fields)
    # What a box says is a sentence, which names nothing that could be typed or chosen.
    places = [place for place, one in enumerate(fields) if one.kind != "checkbox"]
    called = [fields[place] for place in places]
    for place, other in zip(places, rng.permutation(len(places)), strict=True):
        given = called[int(other)]
        fields[place] = replace(
            fields[place], label=given.label, name=given.name, alias=given.alias
        )
    return tuple(fields)


def _order(pool: Sequence[Field], rng: np.random.Generator) -> list[Field]:
    """The pool in any order, but every other field is of a kind that is drawn first, so that rare
    kinds come, too."""
    left = [pool[int(place)] for place in rng.permutation(len(pool))]
    order: list[Field] = []
    while left:
        if len(order) % 2:
            order.append(left.pop())
            continue
        kinds = sorted({one.kind for one in left})
        kind = kinds[int(rng.integers(len(kinds)))]
        order.append(left.pop(next(place for place, one in enumerate(left) if one.kind == kind)))
    return order


def _changed(one: Field) -> Field:
    kind = _KINDS[one.kind]
    blank = "-" if kind == "select" else None
    # A text is held to no range, and a pattern is not asked of several lines.
    return replace(
        one,
        kind=kind,
        blank=blank,
        named_by="for",
        minimum=None,
        maximum=None,
        step=None,
        pattern=None,
        placeholder="",
    )


def _told(one: Field, rng: np.random.Generator) -> Field:
    """A field about people of its own, perhaps, and perhaps one that records leave out."""
    assert one.draw is not None
    draw = of_strangers(one.draw) if rng.random() < STRANGERS else one.draw
    spare = not one.required and rng.random() < SPARE
    return replace(one, draw=draw, filled=1 - UNTOLD if spare else one.filled)


def _depending(fields: tuple[Field, ...], rng: np.random.Generator) -> tuple[Field, ...]:
    """The fields of a page, of which one is perhaps shown for some of the choices before it
    only."""
    choices = [
        place
        for place, one in enumerate(fields[:-1])
        if one.kind in {"select", "radio", "checkbox"}
    ]
    if not choices or rng.random() >= CONDITIONAL:
        return fields
    by = choices[int(rng.integers(len(choices)))]
    place = int(rng.integers(by + 1, len(fields)))
    values = [option.value for option in fields[by].options]
    some = tuple(
        values[int(at)] for at in rng.permutation(len(values))[: max(1, len(values) // 2)]
    ) or ("on",)
    shown = replace(fields[place], shown_if=VisibleWhen(fields[by].name, some))
    return (*fields[:place], shown, *fields[place + 1 :])


def _stands_alone(one: Field, form: Form) -> bool:
    """Whether a field can be entered without the others of its form: no value of theirs decides its
    own."""
    if one.draw is None or one.shown_if is not None or one.named_by == "name":
        return False
    if any(one.name == rule.names[-1] for rule in form.rules):
        return False
    try:
        one.draw(Drawing(generator(0, "forms", "alone", one.name), form.language, now=one))
    except (ValueError, InvalidOperation):  # a date, time or number after one that is not there
        return False
    return True
