"""The corpus of the doorstep gets the right answers, but for a few that are unclear; none is
wrong."""

import re

import pytest

from tests.doorstep import corpus

UNCLEAR = {
    "logs/swift-grpo-resumed": (
        "32 rows of a reward that walks; a rise cannot be told from slow noise"
    ),
    "logs/trl-completions-by-id": "15 rows of ten steps each",
    "logs/trl-grpo-solved-early": "it is solved within the first rows, and stands",
    "logs/trl-grpo-kl-blow-up": (
        "the KL is named; of a reward that falls the first line says that it did not rise"
    ),
    "logs/trl-grpo-beta-1": "12 rows: what would explain it is a note",
    "logs/verl-rollouts": "eight steps are too few for the first line",
}
INPUTS = [f"{kind}/{name}" for kind in corpus.KINDS for name in corpus.names(kind)]


@pytest.mark.parametrize("name", [one for one in INPUTS if not one.startswith("logs/")])
def test_a_script_rows_and_a_reward_get_their_right_answer(name):
    gets_its_right_answer(name)


@pytest.mark.parametrize("name", [one for one in INPUTS if one.startswith("logs/")])
def test_a_log_gets_its_right_answer(name):
    gets_its_right_answer(name)


def gets_its_right_answer(name):
    verdict, why = corpus.grade(*name.split("/"))
    if missing := re.search(r"needs \w+, which is not installed", why):
        pytest.skip(missing[0])
    assert verdict == ("unclear" if name in UNCLEAR else "right"), why


def test_at_most_one_in_ten_is_unclear():
    assert len(UNCLEAR) <= len(INPUTS) / 10
    assert UNCLEAR.keys() <= set(INPUTS)
