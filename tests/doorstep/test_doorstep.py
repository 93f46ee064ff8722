"""The corpus of the doorstep gets the right answers, and none that is silently wrong."""

import pytest

from tests.doorstep import corpus

INPUTS = [(kind, name) for kind in corpus.KINDS for name in corpus.names(kind)]


@pytest.mark.parametrize(("kind", "name"), INPUTS, ids=[f"{kind}/{name}" for kind, name in INPUTS])
def test_an_input_of_the_doorstep_gets_its_right_answer(kind, name):
    verdict, why = corpus.grade(kind, name)
    assert verdict == "right", why
