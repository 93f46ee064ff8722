"""Labels, choices and entries that no form has, put together from words.

A model that has seen a few hundred labels over and over writes those from memory, and "Area in square metre" where a
new form says metres. Labels that come once each it can only copy. Some labels of a form begin with the same word
("Permit", "Permit email"), because the shorter of two such labels is taken for the longer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.tasks.tables import read_table
from plumbline_forms.suite.declaration import CHOSEN, Draw, Field, Language, Option, Value
from plumbline_forms.suite.drawing import Drawing, ascii_of, code, papers
from plumbline_forms.suite.fields import slug

COINED, BY_KIND, SAME_HEAD, CHOICES, ENTRIES, FILES = 0.85, 0.7, 0.35, 0.75, 0.5, 0.7
"""Of fields: a coined label; of labels: an ending that fits the control, and the first thing of one before; of an
option: its label's thing; of choices: coined options; of texts: a coined entry; of files: coined names, up to three."""
QUESTIONS, LONG = 0.2, 0.3
"""Of coined choices of one: yes, no and perhaps a third; of coined texts of several lines: 4 to `SENTENCES`."""
SENTENCES = 12
_PEOPLE = 4
"""People of one record, at most, that draws ask for."""


def _list(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(","))


def _lists(lists: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _lists(value) if isinstance(value, Mapping) else _list(value) for key, value in lists.items()}


_WORDS: Mapping[str, Any] = {
    language: _lists(lists) for language, lists in read_table(Path(__file__).with_name("coined.yaml")).items()
}


@dataclass(slots=True)
class Coiner:
    """Draws words of a language, and no name twice that a control of one form has."""

    rng: np.random.Generator
    language: Language
    taken: set[str]
    """Slugs of labels and of options' texts."""

    def coin(self, patterns: str, **given: str) -> str:
        """A text by one of a list's patterns, with what is given in its places: a capital in each that has one."""
        words = _WORDS[self.language]
        lists = {"thing": words["things"], "quality": words["qualities"], "text": words["endings"]["text"]}
        lists["unit"] = words["units"]

        def fill(found: re.Match[str]) -> str:
            name = found.group(1)
            low = name.lower()
            if low == "number":
                return str(self.rng.integers(2, 400))
            if low == "last":
                return coined_name(self.rng, self.language)
            if low in given:
                text = given.pop(low) if low == "thing" else given[low]  # a second thing is another one
            else:
                text = self._pick(lists[low])
            return text[0].upper() + text[1:] if name[0].isupper() else text[0].lower() + text[1:]

        return re.sub(r"\{(\w+)\}", fill, self._pick(words[patterns]))

    def fresh(self, patterns: str, **given: str) -> str:
        """The same, for a name that the form does not have; there are thousands, and a form has a hundred at most."""
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
        head = self._pick(tuple(heads)) if heads and self.rng.random() < SAME_HEAD else self._pick(words["things"])
        if one.kind in {"select", "radio"} and self.rng.random() < QUESTIONS:
            return self._question(one)
        if one.options and self.rng.random() < CHOICES:
            one = self._with_choices(one, head)
        if one.kind == "file" and self.rng.random() < FILES:
            stem = ascii_of(self._pick(words["things"]))
            one = replace(one, draw=papers(stem, *(one.accept or (".pdf", ".png")), count=3), multiple=True)
        if one.kind in _ENTRIES and one.pattern is None and one.maxlength is None and self.rng.random() < ENTRIES:
            one = replace(one, draw=_ENTRIES[one.kind], placeholder="", hint="", minlength=None)
        if self.rng.random() >= COINED:
            return one
        if one.kind == "checkbox":
            label = self.fresh("boxes")
        else:
            kind = "choice" if one.kind in CHOSEN else one.kind
            kinds = tuple(words["endings"])
            ending = self._pick(words["endings"][kind if self.rng.random() < BY_KIND else self._pick(kinds)])
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
    """A first or a last name of two or three syllables that no list of names has, or only by chance."""
    words = _WORDS[language]
    parts = (words[part] for _ in range(int(rng.integers(2, 4))) for part in ("onsets", "vowels", "codas"))
    return "".join(part[int(rng.integers(len(part)))].strip("-") for part in parts).capitalize()


def of_strangers(draw: Draw) -> Draw:
    """The same draw, about people of its own, whose names are coined.

    A name that was seen often is written from memory, and two fields with one value do not show which line was read.
    """

    def own(drawing: Drawing) -> Value:
        names = (coined_name(drawing.rng, drawing.language) for _ in range(2 * _PEOPLE))
        return draw(replace(drawing, people=dict(enumerate(zip(names, names, strict=True)))))

    return own


def _entry(drawing: Drawing) -> str:
    return Coiner(drawing.rng, drawing.language, set()).coin("entries")


def _remark(drawing: Drawing) -> str:
    coiner, rng = Coiner(drawing.rng, drawing.language, set()), drawing.rng
    count = int(rng.integers(4, SENTENCES + 1) if rng.random() < LONG else rng.integers(1, 4))
    return " ".join(coiner.coin("remarks") for _ in range(count))


def _mail(drawing: Drawing) -> str:
    coiner = Coiner(drawing.rng, drawing.language, set())
    local, host = (".".join(filter(None, map(ascii_of, coiner.coin("entries").split()))) for _ in range(2))
    return f"{local}@{host}.example"


def _telephone(drawing: Drawing) -> Value:
    return code(drawing.pick(_WORDS[drawing.language]["phones"]))(drawing)


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
