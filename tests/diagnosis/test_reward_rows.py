"""Rewards that belong to other rows, and such that do not depend on the answer."""

import random

import pytest

from plumbline.checks.check import examine
from plumbline.checks.diagnosis.history import Sample
from plumbline.checks.diagnosis.rules.rows import find_reward_rows
from tests.diagnosis.test_checks import healthy
from tests.diagnosis.test_more_checks import stored

GROUP, PROMPTS, STEPS = 4, 4, 30


def drawn(order, *, few=False):
    """Completions whose reward is the share of one letter, dealt to the rows of a step by `order`;
    of few texts some are equal."""
    dice, samples = random.Random(0), []
    for step in range(1, STEPS + 1):
        texts = [
            "".join(dice.choices("ab" if few else "abcdefgh", k=3 if few else 12))
            for _ in range(GROUP * PROMPTS)
        ]
        places = order(dice, list(range(len(texts))))
        samples += [
            Sample(step, f"the prompt {at // GROUP}", text, texts[place].count("a") / len(text))
            for at, (text, place) in enumerate(zip(texts, places, strict=True))
        ]
    return samples


def rolled(by):
    return lambda _, places: places[by:] + places[:by]


def shuffled(dice, places):
    return dice.sample(places, len(places))


@pytest.mark.parametrize(
    ("order", "few", "found"),
    [
        (rolled(0), False, []),
        (rolled(0), True, []),
        (rolled(1), False, [("fatal", "shifted")]),
        (rolled(-1), True, [("fatal", "shifted")]),
        (rolled(GROUP), False, [("fatal", "shifted")]),
        (shuffled, True, [("warning", "unrelated")]),
        (shuffled, False, []),
    ],
)
def test_whose_rewards_these_are(order, few, found):
    history = stored(drawn(order, few=few))
    seen = examine(history, [find_reward_rows]).findings
    assert [(one.level, one.code) for one in seen] == found
    assert {one.check for one in seen} <= {"reward-rows"}


def test_a_usual_run_says_nothing():
    assert not examine(healthy(), [find_reward_rows]).findings
