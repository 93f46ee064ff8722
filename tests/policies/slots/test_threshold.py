"""Threshold decoding against the same algorithm without a cache."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from plumbline.api import sample_trajectories
from plumbline.errors import RecipeError
from plumbline.policies.slots.options import SlotSampling
from tests.policies.slots.models import END, LONGER, MASK, PROMPT, opened, save_mini
from tests.policies.slots.oracle import behind, logits, prompt_tokens

SAMPLING = SlotSampling(max_tokens=12, selector="threshold", temperature=0.0)


def published(model, prompt, places, width, threshold, blocks=1):
    """The paper's rounds, every context written out; the slots of a round share no token of each
    other."""
    context, canvas, done = prompt_tokens(prompt), np.full(places, END), set()
    last, size, rounds = places // width, places // width // blocks, 0
    while todo := [slot for slot in range(last) if slot not in done]:
        rounds += 1
        todo = [slot for slot in todo if slot // size == todo[0] // size]
        asked = [len(prompt) + slot * width + offset for slot in todo for offset in range(width)]
        plan = (
            logits(model, behind(context, [MASK] * len(asked), asked))[len(context) :]
            .softmax(-1)
            .max(-1)
        )
        sure = plan.values[::width]
        columns = [c for c in range(len(todo)) if sure[c] > threshold] or [int(sure.argmax())]
        slots = [todo[column] for column in columns]
        drafts = [plan.indices[c * width : (c + 1) * width].tolist() for c in columns]
        at = {
            slot: [len(prompt) + slot * width + offset for offset in range(width)] for slot in slots
        }
        flat = [token for draft in drafts for token in draft]
        spots = [spot for slot in slots for spot in at[slot]]
        chances = logits(model, behind(context, flat, spots)).softmax(-1)[len(context) :]
        passed = [
            i % width == 0 or bool(chances[i - 1, flat[i]] > threshold) for i in range(len(flat))
        ]
        prefix = passed.index(False) if False in passed else len(passed)
        ends = [i for i in range(prefix) if flat[i] == END]
        keep = ends[0] + 1 if ends else prefix // width * width
        if keep:
            context = behind(context, flat[:keep], spots[:keep])
            for i in range(keep):
                canvas[spots[i] - len(prompt)] = flat[i]
            settled = slots[: -(-keep // width)]
        else:
            start, settled, count = list(context), slots, None
            good = [
                [all(passed[n * width : n * width + j + 1]) for j in range(width)]
                for n in range(len(slots))
            ]
            for n, slot in enumerate(slots):
                tokens, ok = drafts[n], good[n]
                while not all(ok):
                    masked = [
                        token if fine else MASK for token, fine in zip(tokens, ok, strict=True)
                    ]
                    proposed = (
                        logits(model, behind(start, masked, at[slot]))[len(start) :]
                        .argmax(-1)
                        .tolist()
                    )
                    tokens = [
                        t if fine else p for t, fine, p in zip(tokens, ok, proposed, strict=True)
                    ]
                    chance = logits(model, behind(start, tokens, at[slot])).softmax(-1)[
                        len(start) :
                    ]
                    fresh = ok.index(False)
                    fine = [
                        j <= fresh or bool(chance[j - 1, tokens[j]] > threshold)
                        for j in range(width)
                    ]
                    ok = [all(fine[: j + 1]) for j in range(width)]
                    if END in [t for t, good_ in zip(tokens, ok, strict=True) if good_]:
                        break
                final = tokens[: tokens.index(END) + 1] if END in tokens else tokens
                if count is None:
                    context = behind(context, final, at[slot][: len(final)], range(len(start)))
                    canvas[[spot - len(prompt) for spot in at[slot][: len(final)]]] = final
                    if END in final:
                        count = n + 1
            settled = slots[:count]
        done |= set(settled)
        if END in canvas[[slot * width + o for slot in settled for o in range(width)]]:
            last = min(last, settled[-1] + 1)
    return canvas, rounds


@pytest.fixture(scope="module", params=range(4))
def model(request, tmp_path_factory):
    """Several models, so that the branches of the algorithm are met."""
    folder = save_mini(
        tmp_path_factory.mktemp("threshold") / "m", seed=request.param, initializer_range=0.5
    )
    return opened(folder, double=True, slot=3)


def whole(canvas):
    return canvas[: list(canvas).index(END) + 1].tolist() if END in canvas else canvas.tolist()


@torch.no_grad()
@pytest.mark.parametrize("threshold", [0.05, 0.45, 0.6, 0.8, 1 - 1e-12])
@pytest.mark.parametrize("blocks", [1, 2])
def test_any_threshold_is_the_algorithm_without_a_cache(model, threshold, blocks):
    sampling = replace(SAMPLING, threshold=threshold, blocks=blocks)
    groups = sample_trajectories(model, [PROMPT, LONGER], 2, sampling, 0)
    for chat, (one, two) in zip((PROMPT, LONGER), groups, strict=True):
        canvas, rounds = published(model.model, model.chat.prompt(chat), 12, 3, threshold, blocks)
        assert one.answer.tolist() == two.answer.tolist() == whole(canvas)
        assert len(one.transitions) == rounds
        if threshold > 0.9:  # which nothing passes: one slot at a time
            assert all(len(set((step.positions // 3).tolist())) == 1 for step in one.transitions)
        # What stands behind an end token is dropped, the slots that were filled beside it included.
        assert all(END not in step.tokens[:-1] for step in one.transitions)


def test_it_is_not_scored_and_not_random(policy):
    sampling = replace(SAMPLING, threshold=0.5)
    (answers,) = sample_trajectories(policy, [PROMPT], 2, sampling, 0)
    assert not policy.exact(sampling)
    assert policy.exact(replace(sampling, selector="random"))
    with pytest.raises(RecipeError, match="density"):
        policy.score(answers)
    with pytest.raises(RecipeError, match="temperature"):
        sample_trajectories(policy, [PROMPT], 2, replace(sampling, temperature=1.0), 0)
