"""Where a record's values come from: small functions of a seeded generator and of what was drawn
before.

Every draw returns a canonical value (see `Value`). A record's generator is its own, named by form
and index, so that a record depends on no other.
"""

import datetime
import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.tasks.tables import read_table
from plumbline_browser.plans.actions import Language
from plumbline_forms.suite.declaration import Draw, Field, Value

_WORDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    language: {key: tuple(text.split(", ")) for key, text in lists.items()}
    for language, lists in read_table(Path(__file__).with_name("words.yaml")).items()
}
"""What each language draws from, by list."""


@dataclass(slots=True)
class Drawing:
    """One record while it is being drawn."""

    rng: np.random.Generator
    language: Language
    values: dict[str, Value] = field(default_factory=dict)
    """What the fields before got."""
    now: Field | None = None
    """The field that is drawn."""
    people: dict[int, tuple[str, str]] = field(default_factory=dict)

    @property
    def words(self) -> Mapping[str, tuple[str, ...]]:
        """The language's names and places."""
        return _WORDS[self.language]

    def pick(self, choices: Sequence[str]) -> str:
        """One of them, all equally likely."""
        return choices[int(self.rng.integers(len(choices)))]

    def person(self, who: int) -> tuple[str, str]:
        """First and last name of the record's person number `who`, the same wherever the record
        needs them."""
        if who not in self.people:
            self.people[who] = (self.pick(self.words["first"]), self.pick(self.words["last"]))
        return self.people[who]

    @property
    def options(self) -> list[str]:
        """The values of the field's options."""
        assert self.now is not None
        return [option.value for option in self.now.options]

    def text(self, name: str) -> str:
        """A value drawn before, as text; empty where there is none."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""

    # -- draws: what the files of `domains` may name -----------------------------------------------

    def full_name(self, who: int = 0) -> str:
        """A person's full name."""
        return " ".join(self.person(who))

    def first_name(self, who: int = 0) -> str:
        """A person's first name."""
        return self.person(who)[0]

    def last_name(self, who: int = 0) -> str:
        """A person's last name."""
        return self.person(who)[1]

    def address_of(self, who: int = 0) -> str:
        """The e-mail address of a person, made of their name."""
        first, last = (ascii_of(name) for name in self.person(who))
        host = self.pick(("example.com", "example.org", "mail.example.net"))
        return self.pick(
            (f"{first}.{last}@{host}", f"{first[0]}{last}{self.rng.integers(10, 99)}@{host}")
        )

    def phone(self) -> str:
        """A telephone number in one of the styles that people write."""
        digits = "".join(str(digit) for digit in self.rng.integers(0, 10, 8))
        if self.language == "pt":
            area = self.pick(("11", "21", "31", "41", "51", "71", "81"))
            return self.pick(
                (f"({area}) 9{digits[:4]}-{digits[4:]}", f"+55 {area} 9{digits[:4]}-{digits[4:]}")
            )
        return self.pick(
            (
                f"555-{digits[:3]}-{digits[3:7]}",
                f"(555) {digits[:3]}-{digits[3:7]}",
                f"+1 555 {digits[:7]}",
            )
        )

    def company(self) -> str:
        """The name of a company."""
        return " ".join(self.pick(self.words[key]) for key in ("companies", "forms_of_company"))

    def city(self) -> str:
        """A town."""
        return self.pick(self.words["cities"])

    def street(self) -> str:
        """Street and number."""
        house = int(self.rng.integers(1, 400))
        name = self.pick(self.words["streets"])
        return f"{name}, {house}" if self.language == "pt" else f"{house} {name} Street"

    def postal_address(self, separator: str = ", ") -> str:
        """Street, number and town; with a line break between them where the control has several
        lines."""
        return f"{self.street()}{separator}{self.city()}"

    def website(self) -> str:
        """A web address."""
        name = ascii_of(self.pick(self.words["companies"]))
        return (
            f"https://{name}{self.rng.integers(2, 99)}.example.{self.pick(('com', 'org', 'net'))}/"
        )

    def code(self, shape: str) -> str:
        """A reference number: `#` is a digit, `@` a capital letter, everything else itself
        ("LB-####@")."""
        pools = {"#": string.digits, "@": string.ascii_uppercase}
        return "".join(self.pick(pools[sign]) if sign in pools else sign for sign in shape)

    def secret(self) -> str:
        """A password: letters, digits and signs that are awkward in quotes and addresses."""
        letters = "".join(self.pick(string.ascii_letters) for _ in range(8))
        return (
            f"{letters}{self.rng.integers(10, 99)}{self.pick(('!', '#', '&', '%', '+', chr(39)))}"
        )

    def phrase(self, *parts: str) -> str:
        """Words from several lists, each written "one|two|three", joined by blanks."""
        return " ".join(word for part in parts if (word := self.pick(part.split("|"))))

    def prose(self, *sentences: str, count: int = 2, joint: str = " ") -> str:
        """Some of these sentences in any order; `{a|b}` in them is drawn, `{#}` a number, `{day}` a
        weekday."""

        def fill(slot: re.Match[str]) -> str:
            if slot.group(1) == "#":
                return str(self.rng.integers(2, 60))
            return self.pick(
                self.words["days"] if slot.group(1) == "day" else slot.group(1).split("|")
            )

        order = self.rng.permutation(len(sentences))[:count]
        return joint.join(re.sub(r"\{([^}]*)\}", fill, sentences[index]) for index in order)

    def day_between(self, first: str, last: str) -> str:
        """An ISO date, both ends included."""
        start, end = datetime.date.fromisoformat(first), datetime.date.fromisoformat(last)
        return _later(start, int(self.rng.integers(0, (end - start).days + 1)))

    def days_after(self, name: str, least: int, most: int) -> str:
        """A date so many days after another field's."""
        return _later(
            datetime.date.fromisoformat(self.text(name)), int(self.rng.integers(least, most + 1))
        )

    def clock(self, first: int, last: int, minutes: int = 15) -> str:
        """A time of day between two hours, on whole steps of so many minutes."""
        step = int(self.rng.integers(0, (last - first) * 60 // minutes + 1)) * minutes
        return f"{first + step // 60:02d}:{step % 60:02d}"

    def minutes_after(self, name: str, *choices: int) -> str:
        """A time so many minutes after another field's, on the same day."""
        hours, minutes = map(int, self.text(name).split(":"))
        late = min(
            hours * 60 + minutes + choices[int(self.rng.integers(len(choices)))], 23 * 60 + 59
        )
        return f"{late // 60:02d}:{late % 60:02d}"

    def whole(self, least: int, most: int, step: int = 1) -> str:
        """A whole number."""
        return str(least + step * int(self.rng.integers(0, (most - least) // step + 1)))

    def tenths(self, least: int, most: int) -> str:
        """A number with at most one decimal, between these tenths."""
        return f"{self.rng.integers(least, most + 1) / 10:g}"

    def amount(self, least: int, most: int) -> str:
        """An amount with cents."""
        return plain(Decimal(int(self.rng.integers(least * 100, most * 100 + 1))) / 100)

    def more_than(self, name: str, least: int, most: int) -> str:
        """Another field's number and so much more."""
        return plain(Decimal(self.text(name)) + int(self.rng.integers(least, most + 1)))

    def total(self, *names: str) -> str:
        """The sum of other fields; those left empty count as 0."""
        return plain(sum((Decimal(self.text(name) or "0") for name in names), Decimal(0)))

    def product(self, first: str, second: str) -> str:
        """The product of two other fields."""
        return plain(Decimal(self.text(first)) * Decimal(self.text(second)))

    def one_of(self) -> str:
        """One of the field's options."""
        return self.pick(self.options)

    def some_of(self, least: int, most: int) -> tuple[str, ...]:
        """Some of the field's options, in the form's order."""
        there = self.options
        count = min(int(self.rng.integers(least, most + 1)), len(there))
        return tuple(there[index] for index in sorted(self.rng.permutation(len(there))[:count]))

    def flag(self, chance: float) -> bool:
        """A box that is ticked with this chance."""
        return bool(self.rng.random() < chance)

    def agreed(self) -> bool:
        """A box that is always ticked."""
        return True

    def papers(self, stem: str, *endings: str, count: int = 1) -> tuple[str, ...]:
        """Names of files, made of a stem, the person's name and a number, so that no two records
        share one."""
        last = ascii_of(self.person(0)[1])
        many = 1 if count == 1 else int(self.rng.integers(1, count + 1))
        first = int(self.rng.integers(100, 900))
        return tuple(f"{stem}_{last}_{first + index}{self.pick(endings)}" for index in range(many))


def drawn(name: str, *given: Any, **named: Any) -> Draw:
    """The draw that a method of `Drawing` makes with these arguments.

    Raises:
        KeyError: there is no such method.
        TypeError: it takes other arguments.
    """
    method = vars(Drawing)[name]
    signature(method).bind(None, *given, **named)
    return lambda drawing: method(drawing, *given, **named)


def ascii_of(text: str) -> str:
    """A text without accents and apostrophes, for addresses and file names."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return "".join(letter for letter in plain.lower() if letter.isalnum())


def plain(number: Decimal) -> str:
    """A number as people and form controls write it: no exponent, no zeros at the end of the
    decimals."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _later(day: datetime.date, days: int) -> str:
    return (day + datetime.timedelta(days=days)).isoformat()
