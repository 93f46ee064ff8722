"""ReFusion's training loss against loops over plain forward passes, at its edges, and by what it
teaches."""

import pytest
import torch

from plumbline.api import sample_trajectories
from plumbline.errors import DataError, RecipeError
from plumbline.policies.sampling_distribution import noises
from plumbline.policies.slots.options import SlotSampling
from plumbline.policies.slots.policy import noise_demonstration
from tests.policies.slots.models import END, LONGER, MASK, PROMPT, opened
from tests.policies.slots.oracle import behind, logits, prompt_tokens


def shown(policy, chat=PROMPT, answer="a b b a a b b"):
    return policy.demonstrate([*chat, {"role": "assistant", "content": answer}])


def by_loops(model, demonstration, width, noise):
    """The mean loss of one demonstration, from the same noise, term by term."""
    places = demonstration.num_targets
    prompt, canvas = demonstration.tokens[:-places], demonstration.tokens[-places:]
    chance = 0.999 * noise.time + 0.001
    masked = (
        torch.rand(places // width, generator=noise.generator, dtype=torch.float64) < chance
    ).tolist()
    order = [
        s
        for s in torch.randperm(places // width, generator=noise.generator).tolist()
        if not masked[s]
    ]
    context = prompt_tokens(prompt)
    clean = [slot * width + offset for slot in order for offset in range(width)]
    hidden = [place for place in range(places) if masked[place // width]]
    context = behind(
        context, [canvas[place] for place in clean], [len(prompt) + place for place in clean]
    )
    context = behind(context, [MASK] * len(hidden), [len(prompt) + place for place in hidden])
    rows = logits(model, context, drawn=False).log_softmax(-1)
    following = [
        -rows[len(prompt) + index, canvas[place + 1]]
        for index, place in enumerate(clean)
        if (place + 1) % width
    ]
    filling = [
        -rows[len(prompt) + len(clean) + index, canvas[place]] for index, place in enumerate(hidden)
    ]
    total = sum(filling) / chance / places
    return (total + sum(following) / len(following) if following else total), masked


def test_the_loss_is_the_formula_for_every_noise(mini):
    policy = opened(mini, double=True, canvas=8)
    batch = [shown(policy), shown(policy, LONGER, "b"), shown(policy, PROMPT, "")]
    patterns = set()
    for seed in range(30):
        loss = policy.supervised_loss(batch, noises(3, seed)) / 24
        parts = [
            by_loops(policy.model, each, 2, own)
            for each, own in zip(batch, noises(3, seed), strict=True)
        ]
        torch.testing.assert_close(loss, sum(part for part, _ in parts) / 3, atol=1e-9, rtol=0)
        patterns |= {tuple(masked) for _, masked in parts}
    assert {(True,) * 4, (False,) * 4} <= patterns  # the edges were met


@pytest.mark.parametrize("width", [1, 2, 8])
def test_it_is_finite_with_everything_or_nothing_masked(mini, width):
    policy = opened(mini, slot=width, canvas=8)
    for seed in range(25):
        loss = policy.supervised_loss([shown(policy)], noises(1, seed))
        assert bool(loss.isfinite())
        for gradient in torch.autograd.grad(
            loss, list(policy.trainable().values()), materialize_grads=True
        ):
            assert bool(gradient.isfinite().all())


def test_a_batch_may_be_cut_anywhere(policy, mini):
    policy = opened(mini, canvas=8)
    batch = [shown(policy), shown(policy, LONGER), shown(policy, PROMPT, "b a")]
    whole = policy.supervised_loss(batch, noises(3, 3))
    noise = noises(3, 3)
    parts = [
        policy.supervised_loss(batch[part], noise[part]) for part in (slice(0, 1), slice(1, 3))
    ]
    torch.testing.assert_close(whole, sum(parts), atol=1e-4, rtol=0)
    assert torch.equal(whole, policy.supervised_loss(batch, noises(3, 3)))


def test_every_place_is_a_target_or_a_context_once(mini):
    policy = opened(mini, canvas=8)
    demonstration = shown(policy, LONGER)
    for seed in range(10):
        made = noise_demonstration(demonstration, 2, MASK, noises(1, seed)[0])
        assert sorted(made.positions.tolist()) == list(range(len(demonstration.tokens)))
        clean = made.ids != MASK
        tokens = torch.tensor(demonstration.tokens)
        assert torch.equal(made.ids[clean], tokens[made.positions[clean]])


def test_a_demonstration_is_learnt_and_then_answered_in_any_number_of_rounds(mini):
    policy = opened(mini, canvas=8)
    batch = [shown(policy, PROMPT, "a b b a b"), shown(policy, LONGER, "b b a")]
    optimiser = torch.optim.Adam(list(policy.trainable().values()), lr=5e-3)
    # A rate that stays as it is ends where rounding leaves it, which differs between processors.
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, 500)
    for step in range(500):
        optimiser.zero_grad()
        (policy.supervised_loss(batch * 4, noises(8, step)) / 64).backward()
        optimiser.step()
        falling.step()
    samplings = [
        SlotSampling(max_tokens=8, steps=steps, selector="plackett_luce", temperature=0.0)
        for steps in (1, 2, 4)
    ]
    samplings += [
        SlotSampling(max_tokens=8, selector="threshold", threshold=t, temperature=0.0)
        for t in (0.5, 0.9)
    ]
    for sampling in samplings:
        texts = [
            group[0].text for group in sample_trajectories(policy, [PROMPT, LONGER], 1, sampling, 0)
        ]
        assert texts == ["a b b a b", "b b a"]


def test_canvases_that_do_not_fit_are_errors(mini):
    policy = opened(mini, canvas=8)
    assert shown(policy, answer="a b").tokens[-8:] == (0, 1, *[END] * 6)
    with pytest.raises(DataError, match="canvas of 8"):
        shown(policy, answer="a b " * 5)
    cut = policy.demonstrate(
        [*PROMPT, {"role": "assistant", "content": "a b " * 5}], allow_truncation=True
    )
    assert cut.truncated
    assert cut.num_targets == 8
    with pytest.raises(RecipeError, match=r"model\.canvas"):
        shown(opened(mini))
    with pytest.raises(DataError, match="context of 9"):
        shown(opened(mini, canvas=8, context=9))
