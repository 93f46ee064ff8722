"""The task short-answers: gold answers are the only ones, and what others earn; its laws:
test_strict_json.py."""

from pathlib import Path

import pytest

import plumbline
from plumbline.records import Example
from plumbline.tasks import silent
from plumbline_answers import short_answers
from plumbline_answers.short_answers import ORDINALS, open_short_answers


def judged(gold, text, reward="slope"):
    task = open_short_answers({"reward": reward}, Path("nowhere"), silent)
    return task.judge(Example(id="x", messages=[], gold=gold), text)[1]


PARTS = ("exact", "items", "bare")
ANSWERS = [
    ("kite lamp", "kite lamp", (1, 1, 1)),
    ("kite lamp", "\nkite lamp ", (1, 1, 1)),
    ("kite lamp", "kite, lamp", (0, 1, 0)),
    ("kite lamp", "kite  lamp", (0, 1, 0)),
    ("kite lamp", "Kite lamp", (0, 0.5, 1)),
    ("kite lamp", "lamp kite", (0, 0, 1)),
    ("kite lamp", "kite lamp owl", (0, 2 / 3, 0)),
    ("42", "42", (1, 1, 1)),
    ("42", "42.", (0, 1, 0)),
    ("42", "042", (0, 0, 1)),
    ("42", "The answer is 42", (0, 0.25, 0)),
    ("owl", "", (0, 0, 0)),
    ("owl", "`owl`", (0, 1, 0)),
]


@pytest.mark.parametrize(("gold", "text", "expected"), ANSWERS)
def test_parts(gold, text, expected):
    score = judged(gold, text)
    assert [score.parts[name] for name in PARTS] == pytest.approx(expected)
    assert judged(gold, text, "strict").total == score.readings["strict"] == expected[0]
    assert score.total == pytest.approx(
        (expected[0] + expected[1]) / 2 * (1 - 0.2 * (1 - expected[2]))
    )


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 10**6, "a\x00b", "\ud800", ", " * 10**5])
def test_hostile_texts_earn_nothing(text):
    assert judged("owl", text).total == judged("kite lamp", text).total == 0


def test_every_request_has_one_answer():
    known = short_answers.load_words()["words"]
    assert len(set(known)) == len(known)
    assert all(word.isascii() and word.isalpha() and word.islower() for word in known)
    seen = set()
    for example in open_short_answers({}, Path("nowhere"), silent).examples("train"):
        words, way, gold = (
            example.reference["given"].split(),
            example.reference["way"],
            example.gold,
        )
        prompt = example.messages[-1]["content"]
        seen.add(way)
        right = {
            "reverse": [" ".join(reversed(words))],
            "sort": [" ".join(sorted(words))],
            "sum": [str(sum(map(int, words)))] if way == "sum" else [],
            "nth": [
                word for word, nth in zip(words, ORDINALS, strict=False) if f"the {nth} " in prompt
            ]
            or [gold],
            "letter": [word for word in words if word[0] == gold[0]],
            "longest": [word for word in words if len(word) == max(map(len, words))],
        }[way]
        assert right == [gold], prompt
    assert seen == {"reverse", "sort", "sum", "nth", "letter", "longest"}


@pytest.mark.parametrize("name", ["strict-json", "short-answers"])
def test_the_recipes_load(name):
    recipes = Path(short_answers.__file__).with_name("recipes")
    recipe = plumbline.load_recipe(recipes / f"{name}.yaml")
    assert (recipe.name, recipe.task.name, recipe.sft) == (name, name, None)
    assert recipe.task.options == {"reward": "slope"}
