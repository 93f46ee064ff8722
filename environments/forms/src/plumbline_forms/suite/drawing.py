"""Where a record's values come from: small functions of a seeded generator and of what was drawn before.

Every draw returns a canonical value (see `Value`). A record's generator is its own, named by form and index, so that a
record depends on no other.
"""

import datetime
import string
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path

import numpy as np

from plumbline.tasks.tables import read_table
from plumbline_forms.suite.declaration import Draw, Field, Language, Value

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
        """First and last name of the record's person number `who`, the same wherever the record needs them."""
        if who not in self.people:
            self.people[who] = (self.pick(self.words["first"]), self.pick(self.words["last"]))
        return self.people[who]

    def text(self, name: str) -> str:
        """A value drawn before, as text; empty where there is none."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""


def ascii_of(text: str) -> str:
    """A text without accents and apostrophes, for addresses and file names."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return "".join(letter for letter in plain.lower() if letter.isalnum())


def full_name(who: int = 0) -> Draw:
    """A person's full name."""
    return lambda drawing: " ".join(drawing.person(who))


def first_name(who: int = 0) -> Draw:
    """A person's first name."""
    return lambda drawing: drawing.person(who)[0]


def last_name(who: int = 0) -> Draw:
    """A person's last name."""
    return lambda drawing: drawing.person(who)[1]


def address_of(who: int = 0) -> Draw:
    """The e-mail address of a person, made of their name."""

    def draw(drawing: Drawing) -> Value:
        first, last = (ascii_of(name) for name in drawing.person(who))
        host = drawing.pick(("example.com", "example.org", "mail.example.net"))
        return drawing.pick((f"{first}.{last}@{host}", f"{first[0]}{last}{drawing.rng.integers(10, 99)}@{host}"))

    return draw


def phone() -> Draw:
    """A telephone number in one of the styles that people write."""

    def draw(drawing: Drawing) -> Value:
        digits = "".join(str(digit) for digit in drawing.rng.integers(0, 10, 8))
        if drawing.language == "pt":
            area = drawing.pick(("11", "21", "31", "41", "51", "71", "81"))
            return drawing.pick((f"({area}) 9{digits[:4]}-{digits[4:]}", f"+55 {area} 9{digits[:4]}-{digits[4:]}"))
        return drawing.pick(
            (f"555-{digits[:3]}-{digits[3:7]}", f"(555) {digits[:3]}-{digits[3:7]}", f"+1 555 {digits[:7]}")
        )

    return draw


def company() -> Draw:
    """The name of a company."""
    return lambda drawing: " ".join(drawing.pick(drawing.words[key]) for key in ("companies", "forms_of_company"))


def city() -> Draw:
    """A town."""
    return lambda drawing: drawing.pick(drawing.words["cities"])


def street() -> Draw:
    """Street and number."""

    def draw(drawing: Drawing) -> Value:
        house = int(drawing.rng.integers(1, 400))
        name = drawing.pick(drawing.words["streets"])
        return f"{name}, {house}" if drawing.language == "pt" else f"{house} {name} Street"

    return draw


def postal_address(separator: str = ", ") -> Draw:
    """Street, number and town; with a line break between them where the control has several lines."""
    parts = street(), city()
    return lambda drawing: separator.join(str(part(drawing)) for part in parts)


def website() -> Draw:
    """A web address."""

    def draw(drawing: Drawing) -> Value:
        name = ascii_of(drawing.pick(drawing.words["companies"]))
        return f"https://{name}{drawing.rng.integers(2, 99)}.example.{drawing.pick(('com', 'org', 'net'))}/"

    return draw


def code(shape: str) -> Draw:
    """A reference number: `#` is a digit, `@` a capital letter, everything else itself ("LB-####@")."""

    def draw(drawing: Drawing) -> Value:
        pools = {"#": string.digits, "@": string.ascii_uppercase}
        return "".join(drawing.pick(pools[sign]) if sign in pools else sign for sign in shape)

    return draw


def secret() -> Draw:
    """A password: letters, digits and signs that are awkward in quotes and addresses."""

    def draw(drawing: Drawing) -> Value:
        letters = "".join(drawing.pick(string.ascii_letters) for _ in range(8))
        return f"{letters}{drawing.rng.integers(10, 99)}{drawing.pick(('!', '#', '&', '%', '+', chr(39)))}"

    return draw


def phrase(*parts: str) -> Draw:
    """Words from several lists, each written "one|two|three", joined by blanks."""
    lists = [part.split("|") for part in parts]
    return lambda drawing: " ".join(word for choices in lists if (word := drawing.pick(choices)))


def prose(*sentences: str, count: int = 2, joint: str = " ") -> Draw:
    """Some of these sentences in any order; `{a|b}` in them is drawn, `{#}` a number, `{day}` a weekday."""

    def draw(drawing: Drawing) -> Value:
        order = drawing.rng.permutation(len(sentences))[:count]
        return joint.join(_filled(sentences[index], drawing) for index in order)

    return draw


def _filled(sentence: str, drawing: Drawing) -> str:
    done = []
    for part in sentence.split("{"):
        slot, brace, rest = part.partition("}")
        if not brace:
            done.append(part)
        elif slot == "#":
            done.append(f"{drawing.rng.integers(2, 60)}{rest}")
        elif slot == "day":
            done.append(drawing.pick(drawing.words["days"]) + rest)
        else:
            done.append(drawing.pick(slot.split("|")) + rest)
    return "".join(done)


def day_between(first: str, last: str) -> Draw:
    """An ISO date, both ends included."""
    start, end = datetime.date.fromisoformat(first), datetime.date.fromisoformat(last)
    return lambda drawing: _later(start, int(drawing.rng.integers(0, (end - start).days + 1)))


def days_after(name: str, least: int, most: int) -> Draw:
    """A date so many days after another field's."""

    def draw(drawing: Drawing) -> Value:
        return _later(datetime.date.fromisoformat(drawing.text(name)), int(drawing.rng.integers(least, most + 1)))

    return draw


def _later(day: datetime.date, days: int) -> str:
    return (day + datetime.timedelta(days=days)).isoformat()


def clock(first: int, last: int, minutes: int = 15) -> Draw:
    """A time of day between two hours, on whole steps of so many minutes."""

    def draw(drawing: Drawing) -> Value:
        step = int(drawing.rng.integers(0, (last - first) * 60 // minutes + 1)) * minutes
        return f"{first + step // 60:02d}:{step % 60:02d}"

    return draw


def minutes_after(name: str, *choices: int) -> Draw:
    """A time so many minutes after another field's, on the same day."""

    def draw(drawing: Drawing) -> Value:
        hours, minutes = map(int, drawing.text(name).split(":"))
        late = min(hours * 60 + minutes + choices[int(drawing.rng.integers(len(choices)))], 23 * 60 + 59)
        return f"{late // 60:02d}:{late % 60:02d}"

    return draw


def whole(least: int, most: int, step: int = 1) -> Draw:
    """A whole number."""
    return lambda drawing: str(least + step * int(drawing.rng.integers(0, (most - least) // step + 1)))


def tenths(least: int, most: int) -> Draw:
    """A number with at most one decimal, between these tenths."""
    return lambda drawing: f"{drawing.rng.integers(least, most + 1) / 10:g}"


def amount(least: int, most: int) -> Draw:
    """An amount with cents."""
    return lambda drawing: plain(Decimal(int(drawing.rng.integers(least * 100, most * 100 + 1))) / 100)


def more_than(name: str, least: int, most: int) -> Draw:
    """Another field's number and so much more."""
    return lambda drawing: plain(Decimal(drawing.text(name)) + int(drawing.rng.integers(least, most + 1)))


def total(*names: str) -> Draw:
    """The sum of other fields; those left empty count as 0."""
    return lambda drawing: plain(sum((Decimal(drawing.text(name) or "0") for name in names), Decimal(0)))


def product(first: str, second: str) -> Draw:
    """The product of two other fields."""
    return lambda drawing: plain(Decimal(drawing.text(first)) * Decimal(drawing.text(second)))


def plain(number: Decimal) -> str:
    """A number as people and form controls write it: no exponent, no zeros at the end of the decimals."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def one_of() -> Draw:
    """One of the field's options."""

    def draw(drawing: Drawing) -> Value:
        assert drawing.now is not None
        return drawing.pick([option.value for option in drawing.now.options])

    return draw


def some_of(least: int, most: int) -> Draw:
    """Some of the field's options, in the form's order."""

    def draw(drawing: Drawing) -> Value:
        assert drawing.now is not None
        there = [option.value for option in drawing.now.options]
        count = min(int(drawing.rng.integers(least, most + 1)), len(there))
        return tuple(there[index] for index in sorted(drawing.rng.permutation(len(there))[:count]))

    return draw


def flag(chance: float) -> Draw:
    """A box that is ticked with this chance."""
    return lambda drawing: bool(drawing.rng.random() < chance)


def agreed() -> Draw:
    """A box that is always ticked."""
    return lambda _: True


def papers(stem: str, *endings: str, count: int = 1) -> Draw:
    """Names of files, made of a stem, the person's name and a number, so that no two records share one."""
    return partial(_papers, stem, endings, count)


def _papers(stem: str, endings: tuple[str, ...], count: int, drawing: Drawing) -> Value:
    last = ascii_of(drawing.person(0)[1])
    many = 1 if count == 1 else int(drawing.rng.integers(1, count + 1))
    first = int(drawing.rng.integers(100, 900))
    return tuple(f"{stem}_{last}_{first + index}{drawing.pick(endings)}" for index in range(many))


_DRAWS: tuple[Callable[..., Draw], ...] = (
    full_name, first_name, last_name, address_of, phone, company, city, street, postal_address, website, code,
    secret, phrase, prose, day_between, days_after, clock, minutes_after, whole, tenths, amount, more_than, total,
    product, one_of, some_of, flag, agreed, papers,
)  # fmt: skip
DRAWS: Mapping[str, Callable[..., Draw]] = {draw.__name__: draw for draw in _DRAWS}
"""By the names that the files of `domains` call them."""
