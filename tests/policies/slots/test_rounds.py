"""Packed scoring against the rollout it stands for; what must change nothing; how rounds and
answers end."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from plumbline.api import sample_trajectories
from plumbline.policies.sampling_distribution import noises
from plumbline.policies.slots import packing
from plumbline.policies.slots.options import SlotSampling
from plumbline.policies.slots.packing import Grid, pack, read_packed
from tests.policies.slots.models import END, LONGER, MASK, PROMPT, opened, save_mini
from tests.policies.slots.oracle import behind, by_rounds, logits, prompt_tokens

SAMPLING = SlotSampling(
    max_tokens=12, steps=2, selector="plackett_luce", temperature=0.8, position_temperature=0.5
)
SAMPLINGS = {
    "4 slots in 2 rounds": (SAMPLING, 3),
    "blocks": (replace(SAMPLING, blocks=2, steps=4), 2),
    "evenly": (replace(SAMPLING, selector="random", steps=3), 2),
    "one token a slot": (replace(SAMPLING, steps=5), 1),
    "one slot": (replace(SAMPLING, steps=1), 12),
}


def drawn(policy, sampling, copies=4, seed=0):
    return [
        each
        for group in sample_trajectories(policy, [PROMPT, LONGER], copies, sampling, seed)
        for each in group
    ]


@torch.no_grad()
def by_definition(model, trajectory, sampling, width):
    """Each term by a plain pass over a written-out context: the slots of a round see what was there
    before it."""
    start, context, found = len(trajectory.prompt), prompt_tokens(trajectory.prompt.tolist()), []
    for step in trajectory.transitions:
        slots = len(step.history) // width
        at = {
            slot: [start + slot * width + offset for offset in range(width)]
            for slot in range(slots)
        }
        empty = [slot for slot in at if step.history[slot * width] < 0]
        empty = [
            slot
            for slot in empty
            if slot * sampling.blocks // slots == empty[0] * sampling.blocks // slots
        ]
        asked = [place for slot in empty for place in at[slot]]
        plan = (
            logits(model, behind(context, [MASK] * len(asked), asked))[len(context) :: width]
            / sampling.temperature
        )
        first = dict(zip(empty, plan.log_softmax(-1), strict=True))
        scores = {slot: row.max() / sampling.position_temperature for slot, row in first.items()}
        choice, new = 0.0, context
        for slot in dict.fromkeys((step.positions // width).tolist()):
            choice = choice + scores[slot] - torch.stack(list(scores.values())).logsumexp(0)
            del scores[slot]
            tokens = step.tokens[step.positions // width == slot].tolist()
            following = logits(model, behind(context, tokens, at[slot][: len(tokens)]))[
                len(context) : -1
            ]
            rows = [first[slot], *(following / sampling.temperature).log_softmax(-1)]
            found += [row[token] for row, token in zip(rows, tokens, strict=True)]
            whole = [*tokens, *[END] * (width - len(tokens))]
            new = behind(new, whole, at[slot], range(len(context)))
        if step.selection is not None and sampling.selector == "random":
            choice = choice.new_tensor(-math.log(math.comb(len(empty), len(empty) - len(scores))))
        if step.selection is not None:
            found.append(choice)
        context = new
    return torch.stack(found)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_packed_scoring_is_the_rollout_by_definition_and_a_pass_for_every_round(mini, name):
    """Values against written-out contexts and the sampler's cache, gradients against a pass for
    every round."""
    sampling, width = SAMPLINGS[name]
    policy = opened(mini, double=True, slot=width)
    trajectories = drawn(policy, sampling)
    terms = policy.score(trajectories)
    wanted = torch.cat(
        [by_definition(policy.model, each, sampling, width) for each in trajectories]
    )
    torch.testing.assert_close(terms.logprobs.detach(), wanted, atol=1e-10, rtol=0)
    torch.testing.assert_close(terms.recorded.double(), wanted, atol=1e-6, rtol=0)
    apart = torch.cat(
        by_rounds(policy.model, trajectories, Grid.of(sampling, width), MASK, sampling)
    )
    weights = policy.trainable()
    factors = torch.arange(len(wanted)) % 3 - 0.7
    one, other = (
        torch.autograd.grad((each * factors).sum(), list(weights.values()))
        for each in (terms.logprobs, apart)
    )
    for weight_name, mine, theirs in zip(weights, one, other, strict=True):
        torch.testing.assert_close(
            mine, theirs, atol=1e-5 if "lm_head" in weight_name else 1e-9, rtol=0
        )


def test_slots_that_see_one_another_are_another_distribution(policy, monkeypatch):
    """The control of the mask: causal attention over the pack gives other numbers."""
    trajectories = drawn(policy, SAMPLING)
    assert (
        max(len(step.positions) for each in trajectories for step in each.transitions)
        > policy.width
    )
    honest = policy.score(trajectories)
    monkeypatch.setattr(
        packing,
        "_visible_tokens",
        lambda at: torch.ones((len(at), len(at)), dtype=torch.bool).tril(),
    )
    assert (honest.logprobs - honest.recorded).abs().max() < 1e-5
    assert (policy.score(trajectories).logprobs - honest.recorded).abs().max() > 0.05


def test_any_of_a_trajectorys_rounds_can_be_scored_by_themselves(exact):
    trajectories = drawn(exact, replace(SAMPLING, steps=5))
    whole = exact.score(trajectories)
    for index, trajectory in enumerate(trajectories):
        mine = whole.logprobs[whole.owner == index].split(
            [len(s.tokens) + (s.selection is not None) for s in trajectory.transitions]
        )
        for some in ([0], [1], [len(mine) - 1], list(range(0, len(mine), 2))):
            part = replace(
                trajectory, transitions=tuple(trajectory.transitions[number] for number in some)
            )
            wanted = torch.cat([mine[number] for number in some])
            torch.testing.assert_close(exact.score([part]).logprobs, wanted, atol=1e-10, rtol=0)
    with pytest.raises(ValueError, match="order"):
        exact.score([replace(trajectories[0], transitions=trajectories[0].transitions[::-1])])
    with pytest.raises(ValueError, match="has no history"):
        exact.score(
            [
                replace(
                    trajectories[0],
                    transitions=(replace(trajectories[0].transitions[0], history=None),),
                )
            ]
        )


def test_order_changes_no_score(policy):
    """Of trajectories in a batch, and of tokens in a pack of two prompts."""
    trajectories = drawn(policy, SAMPLING, copies=5)
    for order in (range(9, -1, -1), [5, 0, 6, 1, 7, 2, 8, 3, 9, 4]):
        terms = policy.score([trajectories[index] for index in order])
        for place, index in enumerate(order):
            each = policy.score([trajectories[index]]).logprobs
            torch.testing.assert_close(
                terms.logprobs[terms.owner == place], each, atol=1e-5, rtol=0
            )
    packed = pack(trajectories, Grid.of(SAMPLING, policy.width), MASK, policy.device)
    hidden = read_packed(policy.model, packed.ids, packed.positions, packed.mask)[0]
    order = torch.randperm(len(hidden), generator=torch.Generator().manual_seed(0))
    shuffled = packed.mask[:, :, order][:, :, :, order]
    moved = read_packed(policy.model, packed.ids[:, order], packed.positions[:, order], shuffled)[0]
    torch.testing.assert_close(moved, hidden[order], atol=1e-5, rtol=0)


def test_how_an_answer_ends(policy):
    """Behind an end token a slot is filled without terms; a row is done when no slot before its end
    is empty."""
    sampling = replace(SAMPLING, steps=6, temperature=1.3)
    trajectories = drawn(policy, sampling, copies=40)
    kinds = set()
    for each in trajectories:
        canvas = each.transitions[-1].state.copy()
        for step in each.transitions:
            assert np.array_equal(step.state == MASK, step.history < 0)
            for slot in dict.fromkeys((step.positions // 2).tolist()):
                mine = step.tokens[step.positions // 2 == slot].tolist()
                assert END not in mine[:-1]
                assert len(mine) == 2 or mine == [END]
                kinds.add(len(mine))
        last = each.transitions[-1]
        for slot in (last.positions // 2).tolist():
            canvas[slot * 2 : slot * 2 + 2] = END
        canvas[last.positions] = last.tokens
        empty = np.flatnonzero(canvas == MASK)
        ends = np.flatnonzero(canvas == END)
        if len(empty):
            kinds.add("early")
            assert each.finish == "stop"
            assert ends[0] < empty[0]
        assert each.answer.tolist() == (canvas[: ends[0] + 1] if len(ends) else canvas).tolist()
        assert each.finish == ("stop" if len(ends) else "length")
        # Not before it was decided: the state of the last round was open still.
        before = last.state
        gap = np.flatnonzero(before == MASK)[0]
        assert END not in before[:gap]
    assert kinds == {1, 2, "early"}


@torch.no_grad()
def plainly_greedy(model, prompt, places, width, counts):
    """The surest slots of each round, every token the most probable one, no cache."""
    context, canvas, filled = prompt_tokens(prompt), np.full(places, MASK), set()
    for count in counts:
        empty = [slot for slot in range(places // width) if slot not in filled]
        asked = [len(prompt) + slot * width + offset for slot in empty for offset in range(width)]
        first = (
            logits(model, behind(context, [MASK] * len(asked), asked))[len(context) :: width]
            .softmax(-1)
            .max(-1)
        )
        new = context
        for index in sorted(range(len(empty)), key=lambda index: -float(first.values[index]))[
            :count
        ]:
            slot, tokens = empty[index], [int(first.indices[index])]
            at = [len(prompt) + slot * width + offset for offset in range(width)]
            while len(tokens) < width:
                row = logits(model, behind(context, tokens, at[: len(tokens)]))[-1]
                tokens.append(END if tokens[-1] == END else int(row.argmax()))
            canvas[slot * width : (slot + 1) * width] = tokens
            new = behind(new, tokens, at, range(len(context)))
            filled.add(slot)
        context = new
        if END in canvas and MASK not in canvas[: list(canvas).index(END)]:
            break
    return canvas[: list(canvas).index(END) + 1] if END in canvas else canvas


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_greedy_answers_are_the_most_probable_choices(tmp_path, steps, seed):
    policy = opened(save_mini(tmp_path / "m", seed=seed), double=True, slot=3)
    sampling = replace(SAMPLING, temperature=0.0, steps=steps)
    one, other = (
        drawn(policy, sampling, copies=2, seed=0),
        drawn(policy, sampling, copies=2, seed=9),
    )
    assert [t.answer.tolist() for t in one] == [t.answer.tolist() for t in other]
    assert all(
        step.selection is None and not step.logprobs.any() for t in one for step in t.transitions
    )
    for each in one:
        wanted = plainly_greedy(
            policy.model, each.prompt.tolist(), 12, 3, Grid.of(sampling, 3).counts()
        )
        assert each.answer.tolist() == wanted.tolist()
    with pytest.raises(ValueError, match="greedy"):
        policy.score(one)


class TestMasksAreAlwaysGiven:
    def test_the_model_never_runs_without_one(self, mini, monkeypatch):
        from transformers import Qwen3Model

        seen = []
        honest = Qwen3Model.forward
        policy = opened(mini, canvas=12)

        def watched(self, *args, attention_mask=None, position_ids=None, **kwargs):
            seen.append(
                None if attention_mask is None or position_ids is None else attention_mask.ndim
            )
            return honest(
                self, *args, attention_mask=attention_mask, position_ids=position_ids, **kwargs
            )

        monkeypatch.setattr(Qwen3Model, "forward", watched)
        trajectories = drawn(policy, SAMPLING)
        policy.score(trajectories)
        sample_trajectories(
            policy, [PROMPT], 1, replace(SAMPLING, selector="threshold", temperature=0.0), 0
        )
        policy.supervised_loss(
            [policy.demonstrate([*PROMPT, {"role": "assistant", "content": "a b a"}])], noises(1, 0)
        )
        assert set(seen) == {4}

    @torch.no_grad()
    def test_transformers_still_cuts_the_attention_where_none_is_given(self, policy):
        """Why: positions out of order look like packed documents. If this fails, the trap is
        gone."""
        ids, positions = torch.tensor([[0, 1, 0, 1]]), torch.tensor([[0, 1, 6, 2]])
        body = policy.model.get_decoder()
        trapped = body(ids, position_ids=positions, use_cache=False).last_hidden_state
        ones = body(
            ids, position_ids=positions, attention_mask=torch.ones_like(ids), use_cache=False
        ).last_hidden_state
        causal = torch.ones((1, 1, 4, 4), dtype=torch.bool).tril()
        explicit = read_packed(policy.model, ids, positions, causal)
        torch.testing.assert_close(ones, explicit, atol=1e-5, rtol=0)
        assert (trapped - explicit).abs().max() > 0.05
