"""The same answer in many forms, from a table; and properties that hold for every text."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from environments.commerce.tests.test_extraction import GOLD, REVIEW, damaged
from plumbline.records import Score
from plumbline.tasks.text.lenient_json import strict_json
from plumbline_commerce.database.gold import ANCHORS, MAX_SPAN
from plumbline_commerce.extraction.pairs import EXPLAINED
from plumbline_commerce.extraction.rubric import RUBRIC, judge
from plumbline_commerce.extraction.schema import (
    _WRITTEN,
    CATEGORIES,
    ISSUES,
    JSON_SCHEMA,
    KEYS,
    SENTIMENTS,
    _fold_text,
    _forms,
    fits,
    meanings,
    words,
)

TABLE = yaml.safe_load(Path(__file__).with_name("answers.yaml").read_text(encoding="utf-8"))
WRITERS = {
    "gold": lambda gold: json.dumps(gold, ensure_ascii=False),
    "indented": lambda gold: json.dumps(gold, ensure_ascii=False, indent=2),
    "python": repr,
    "escaped": json.dumps,
    "backwards": lambda gold: json.dumps(dict(reversed(gold.items())), ensure_ascii=False),
    "quoted": lambda gold: json.dumps(json.dumps(gold, ensure_ascii=False)),
}


def scored(value, key, gold) -> Score:
    """The score of a right answer with one value in its place."""
    return judge(
        {**GOLD, key: gold}, REVIEW, json.dumps({**GOLD, key: value}, ensure_ascii=False), "lenient"
    )[1]


def forms(kind):
    """Every form of a kind in the table: the key, its gold value, what it must come to, and the
    value as written."""
    for section in TABLE["values"]:
        found = section.get(kind, {})
        by_worth = found if isinstance(found, dict) else {0.0: found}
        for worth, values in by_worth.items():
            yield from ((section["key"], section["gold"], worth, value) for value in values)


def part_of(key):
    return "issues" if key in ISSUES else key


def test_the_table_is_large_and_tries_every_key_and_every_kind():
    right = list(forms("right"))
    assert len(right) > 300
    assert len(list(forms("wrong"))) > 240
    asked = {key for key, *_ in right}
    assert asked | {*ISSUES} == set(KEYS), "the three flags are judged alike, and one is tried"


def unlike(kind, is_right):
    """The forms of a kind whose score is not as it should be, with that score."""
    found = ((each, scored(each[3], *each[:2])) for each in forms(kind))
    return [
        (*each, score.total, score.parts) for each, score in found if not is_right(score, *each)
    ]


def test_a_right_value_earns_its_part_whole_in_any_form():
    def right(score, key, gold, total, value):
        whole = score.parts[part_of(key)] == score.parts["exact"] == score.parts["parses"] == 1
        return whole and score.total == pytest.approx(total)

    assert unlike("right", right) == []


def test_a_value_that_is_nearly_right_earns_a_share_of_its_part():
    def right(score, key, gold, worth, value):
        return (
            score.parts[part_of(key)] == pytest.approx(worth)
            and score.total < scored(gold, key, gold).total
        )

    assert unlike("partly", right) == []


def test_a_wrong_value_earns_nothing_for_its_part():
    weights = {part.name: part.weight for part in RUBRIC.parts}

    def right(score, key, gold, worth, value):
        nothing = score.parts[part_of(key)] == worth == score.parts["exact"]
        return nothing and score.total <= 1 - 0.15 - weights[part_of(key)] + 1e-12

    assert unlike("wrong", right) == []


def test_a_right_answer_as_a_whole_written_otherwise():
    wrong = []
    for case in TABLE["texts"]:
        text = case["text"]
        for name, write in WRITERS.items():
            text = text.replace("{" + name + "}", write(GOLD))
        for old, new in case.get("swap", {}).items():
            assert old in text, case
            text = text.replace(old, new)
        score = judge(GOLD, REVIEW, text, "lenient")[1]
        if score.total != pytest.approx(case["total"]):
            wrong.append((case, score.total))
    assert wrong == []


def test_no_form_stands_for_two_values():
    by_key = {key: values for key, values in _WRITTEN.items() if isinstance(values, dict)}
    assert set(by_key["sentiment"]) == set(SENTIMENTS)
    assert set(by_key["complaint_category"]) == set(CATEGORIES)
    for key, by_value in by_key.items():
        values = {value: _forms(given) for value, given in by_value.items()}
        assert all(
            _fold_text(value) in values[value] for value in values if isinstance(value, str)
        ), "each member is a form"
        every = [form for given in values.values() for form in given]
        assert len(every) == len(set(every)), key


def test_what_fits_is_never_changed():
    samples = [None, True, False, 0, 1, 3, 7.0, 4.5, "positivo", "nenhum", "x", "não", [], {}]
    for key in KEYS:
        for value in samples:
            if fits(key, value):
                meant, repairs = meanings({key: value}, (), {key: "x"})
                assert (meant, repairs) == ({key: value}, set())
                assert type(meant[key]) is type(value)


class TestSpans:
    """What counts as literal, and how long it may be."""

    long = "O " + " ".join(f"item{n}" for n in range(30)) + " chegou quebrado."

    def worth(self, span, gold, review):
        answer = json.dumps({"main_complaint": span}, ensure_ascii=False)
        return judge({"main_complaint": gold}, review, answer, "lenient")[1].parts["main_complaint"]

    def test_eighty_characters_are_allowed_and_no_more(self):
        review = "a" * 40 + " " + "b" * 39 + "cd"
        assert self.worth(review[:MAX_SPAN], review[:MAX_SPAN], review) == 1
        assert self.worth(review[: MAX_SPAN + 1], review[:MAX_SPAN], review) == 0

    def test_what_stands_around_the_words_does_not_count_for_the_length(self):
        review = "a" * 40 + " " + "b" * 39 + "!!! Nunca mais."
        span = review[:MAX_SPAN]
        assert self.worth(f'"{span}!!!"', span, review) == 1
        assert self.worth(span.replace(" ", "   \n "), span, review) == 1

    def test_the_limit_stands_once(self):
        assert JSON_SCHEMA["properties"]["main_complaint"]["maxLength"] == MAX_SPAN
        assert str(MAX_SPAN) in EXPLAINED["main_complaint"]
        assert fits("main_complaint", "x" * MAX_SPAN)
        assert not fits("main_complaint", "x" * (MAX_SPAN + 1))

    def test_a_span_of_every_example_may_carry_its_punctuation_and_lose_its_accents(self, commerce):
        """Punctuation, case, accents and white space of a copy are no fault on any review."""
        tried = 0
        for example in commerce.examples("train"):
            gold, review = example.reference["main_complaint"], example.reference["review"]
            if gold is None:
                continue
            end = review.index(gold) + len(gold)
            for span in (
                gold + review[end : end + 1].strip(),
                gold.upper(),
                " ".join(words(gold)),
                f"“{gold}”…",
            ):
                if len(" ".join(span.split())) <= MAX_SPAN:
                    tried += 1
                    assert self.worth(span, gold, review) == 1, (span, review)
        assert tried > 400

    def test_words_that_the_review_lacks_earn_nothing_on_any_review(self, commerce):
        for example in commerce.examples("train"):
            gold, review = example.reference["main_complaint"], example.reference["review"]
            if gold is not None and len(gold) < MAX_SPAN - 10:
                assert self.worth(gold + " zebra", gold, review) == 0
                assert self.worth("zebra " + gold, gold, review) == 0


def test_the_prompt_names_every_mark_that_gold_gives():
    assert all(str(level) in EXPLAINED["sentiment_score"] for level in ANCHORS.values())


HOSTILE_VALUES = {
    "an integer": "9" * 5000,
    "a list": "[" * 20_000 + "]" * 20_000,
    "a float": "1e999",
    "no JSON": "NaN",
}
"""What json.dumps does not write, by what stands for it until it did."""


def spoilt(rng: np.random.Generator, value: object) -> object:
    """A value of an answer, written otherwise or wrong."""
    text = value if isinstance(value, str) else json.dumps(value)
    written = [
        "sim",
        "Não",
        "talvez",
        "nenhuma",
        "Positivo",
        "Entrega Atrasada",
        "1",
        "",
        "0,9",
        "null",
    ]
    values = [True, False, 0, 1, 3.5, -1, 10**400, "\ud800", "9" * 5000 + " dias"]
    ways = [
        *(
            text.capitalize(),
            text.upper(),
            f" {text}. ",
            f'"{text}"',
            [value],
            [value, value],
            text.replace(".", ","),
        ),
        *(f"{text} dias", f"{text}%", f"{text}/5", f"{text} (talvez)"),
        *(
            float(value) if isinstance(value, int) else value,
            None,
            str(rng.choice(written)),
            values[rng.integers(9)],
        ),
        *(str(rng.choice([*HOSTILE_VALUES])), json.loads("[" * 400 + "]" * 400)),
    ]
    return ways[rng.integers(len(ways))]


def perturbed(rng: np.random.Generator, gold: dict) -> str:
    """An answer with some of its values written otherwise or wrong, and some of its keys."""
    answer = {}
    for key, value in gold.items():
        chance = rng.random()
        name = key.title() if chance < 0.05 else key.replace("_", " ") if chance < 0.1 else key
        if rng.random() > 0.05:
            answer[name] = spoilt(rng, value) if rng.random() < 0.4 else value
    written = json.dumps(answer, ensure_ascii=bool(rng.integers(2)))
    for name, text in HOSTILE_VALUES.items():
        written = written.replace(f'"{name}"', text)
    if rng.random() < 0.1:
        return damaged(rng, written)
    return f"```json\n{written}\n```" if rng.random() < 0.1 else written


def test_no_text_earns_less_when_it_is_read_leniently(commerce):
    """Over 600 answers in other forms, huge integers, deep lists and lone surrogates too; the items
    add up."""
    rng = np.random.default_rng(0)
    examples = [example for split in commerce.splits for example in commerce.examples(split)]
    valid = more = 0
    for number in range(600):
        example = examples[number % len(examples)]
        text = perturbed(rng, json.loads(example.gold))
        _, score = commerce.judge(example, text)
        strict, lenient = score.readings["strict"], score.readings["lenient"]
        assert 0 <= strict <= lenient + 1e-12 <= 1 + 1e-9, text
        valid += strict_json(text) is not None
        more += lenient > strict > 0
    assert valid > 300
    assert more > 180, "the forms that only the lenient reading takes are many"
