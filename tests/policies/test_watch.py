"""Who watches a sampler sees each canvas after each of its steps, and changes nothing of what is drawn."""

from collections import defaultdict

import numpy as np
import pytest

from plumbline.policies.canvas import HIDDEN, answer_of
from plumbline.policies.flow.options import FlowSampling
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.slots.options import SlotSampling
from plumbline.records import Request
from tests.policies.flow.conftest import make as make_flow
from tests.policies.flow.conftest import opened as open_flow
from tests.policies.masked.conftest import masked_folder  # noqa: F401 - a fixture
from tests.policies.masked.conftest import opened as open_masked
from tests.policies.slots.models import opened as open_slots
from tests.policies.slots.models import save_mini

LAWS = {
    "masked": [
        MaskedSampling(max_tokens=8, steps=4, selector="plackett_luce"),
        MaskedSampling(max_tokens=8, steps=8, selector="leftmost"),
    ],
    "slots": [
        SlotSampling(max_tokens=8, steps=2, selector="plackett_luce"),
        SlotSampling(max_tokens=8, steps=2, selector="threshold", temperature=0.0),
    ],
    "flow": [FlowSampling(max_tokens=4, steps=3)],
}


@pytest.fixture(params=sorted(LAWS))
def policy(request, tmp_path):
    if request.param == "masked":
        return open_masked(request.getfixturevalue("masked_folder"))
    return open_slots(save_mini(tmp_path / "m")) if request.param == "slots" else open_flow(make_flow(tmp_path / "m"))


def test_each_step_is_shown_and_nothing_else_changes(policy):
    for law in LAWS[policy.family]:
        requests = [Request((law.temperature, copy), [{"role": "user", "content": "a b"}], law) for copy in range(3)]
        unwatched = {request.key: trajectory for request, trajectory in policy.sample(requests)}
        seen = defaultdict(list)
        policy.watch = lambda key, canvas, seen=seen: seen[key].append(canvas.copy())
        watched = {request.key: trajectory for request, trajectory in policy.sample(requests)}
        policy.watch = None
        assert {key: one.text for key, one in watched.items()} == {key: one.text for key, one in unwatched.items()}
        for key, trajectory in watched.items():
            shown = seen[key]
            assert len(shown) == len(trajectory.steps)
            for canvas, following in zip(shown[:-1], trajectory.steps[1:], strict=True):
                # A row's leftover places may be filled between two steps, so what a step put there is what counts.
                kept = following.state != policy.mask_id if policy.mask_id is not None else slice(None)
                assert np.array_equal(canvas[kept], following.state[kept])
            assert np.array_equal(answer_of(shown[-1], policy.chat.stop_ids)[0], trajectory.answer)


def test_hidden_places_are_shown_and_what_lies_behind_the_end_is_not(policy):
    end = policy.chat.end_of_turn
    words = policy.chat.tokenizer("a b", add_special_tokens=False)["input_ids"]
    assert policy.shown(np.array([*words, end, words[0]])) == policy.chat.text(words)
    if policy.mask_id is not None:
        hidden = policy.mask_id
        assert policy.shown(np.array([hidden, *words, hidden, hidden, end, hidden])) == (
            HIDDEN + policy.chat.text(words) + 2 * HIDDEN
        )
