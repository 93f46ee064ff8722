"""The masked policy around its distribution: places, batches, losses, what is opened, and what is
refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from plumbline.api import sample_trajectories
from plumbline.errors import DataError, ModelError
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.masked.policy import check_model
from plumbline.policies.sampling_distribution import noises
from tests.policies.families import SAMPLINGS, drawn
from tests.policies.masked.conftest import opened
from tests.policies.masked.oracle import logits_of, ways

CHAT = [{"role": "user", "content": "nota?"}]
SAMPLING = SAMPLINGS["masked"]


def test_every_place_is_filled_once_and_never_with_the_mask(policy):
    for sampling in (
        SAMPLING,
        replace(SAMPLING, selector="ancestral"),
        replace(SAMPLING, selector="threshold", threshold=0.2),
    ):
        for trajectory in drawn(policy, sampling):
            places = np.concatenate([step.positions for step in trajectory.transitions])
            assert sorted(places) == list(range(8))
            last = trajectory.transitions[-1]
            assert (last.state[last.positions] == policy.mask_id).all()


def test_greedy_takes_the_most_confident_places_and_their_best_tokens(policy):
    sampling = MaskedSampling(temperature=0, max_tokens=4, steps=4)
    ((trajectory,),) = sample_trajectories(policy, [CHAT], 1, sampling, seed=0)
    state = [policy.mask_id] * 4
    for step in trajectory.transitions:
        assert step.state.tolist() == state
        with torch.no_grad():
            p = logits_of(policy, policy.chat.prompt(CHAT), state).softmax(-1)
        best = max(
            (place for place in range(4) if state[place] == policy.mask_id),
            key=lambda i: p[i].max(),
        )
        assert step.positions.tolist() == [best]
        assert step.tokens.tolist() == [int(p[best].argmax())]
        state[best] = int(step.tokens[0])
    assert trajectory.logprobs.tolist() == [0] * 4


def test_the_divergence_is_the_enumerated_one(masked_folder):
    """One step of one place: KL over (place, token) pairs, against the mean of the closed form over
    places."""
    policy = opened(masked_folder)
    sampling = MaskedSampling(max_tokens=2, steps=2, top_k=2, selector="plackett_luce")
    policy.keep_reference()
    before = {}
    prompt = policy.chat.prompt(CHAT)

    def first_steps():
        found = {}
        for key, log_p, _ in ways(policy, prompt, replace(sampling, steps=2)):
            found.setdefault(key[0], []).append(log_p)
        return {key: float(torch.stack(parts).logsumexp(0)) for key, parts in found.items()}

    with torch.no_grad():
        before = first_steps()
        for weight in policy.trainable().values():
            weight.add_(
                0.004 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
            )
        after = first_steps()
    assert set(before) == set(after), "the perturbation must not change the two best tokens"
    exact = sum(np.exp(after[key]) * (after[key] - before[key]) for key in after)
    (group,) = sample_trajectories(policy, [CHAT], 300, sampling, seed=0)
    by_place = {
        int(t.transitions[0].positions[0]): replace(t, transitions=t.transitions[:1]) for t in group
    }
    terms = policy.score(list(by_place.values()), divergence=True)
    chance = [
        sum(np.exp(v) for key, v in after.items() if key[0][0] == place) for place in by_place
    ]
    mean = float((terms.divergence.detach().double() * torch.tensor(chance)).sum())
    assert mean == pytest.approx(exact, rel=0.01, abs=1e-6)
    assert exact > 1e-6


def test_the_supervised_loss_is_the_any_order_bound_on_average(masked_folder):
    """Two places: E over t of (1/t) sum over hidden = half of both hidden twice, or one after the
    other."""
    policy = opened(masked_folder, canvas=2)
    chat = [*CHAT, {"role": "assistant", "content": "a"}]
    demonstration = policy.demonstrate(chat)
    prompt, canvas = policy.chat.prompt(CHAT), list(demonstration.tokens[-2:])
    mask = policy.mask_id
    with torch.no_grad():
        both = logits_of(policy, prompt, [mask, mask]).log_softmax(-1)
        one = logits_of(policy, prompt, [mask, canvas[1]]).log_softmax(-1)[0, canvas[0]]
        two = logits_of(policy, prompt, [canvas[0], mask]).log_softmax(-1)[1, canvas[1]]
        wanted = -0.5 * (both[0, canvas[0]] + two + both[1, canvas[1]] + one)
        losses = [
            policy.supervised_loss([demonstration] * 500, noises(500, seed)) / 500
            for seed in range(30)
        ]
    assert torch.stack(losses).mean().item() == pytest.approx(wanted.item(), rel=0.03)


def test_an_answer_is_followed_by_end_tokens(policy):
    demonstration = policy.demonstrate([*CHAT, {"role": "assistant", "content": "a"}])
    canvas = [
        t for t, wanted in zip(demonstration.tokens, demonstration.is_target, strict=True) if wanted
    ]
    assert len(canvas) == 8
    assert canvas[1:] == [policy.chat.end_of_turn] * 7


def test_a_hidden_view_of_an_answer_has_its_own_tokens(policy):
    trajectory = drawn(policy)[0]
    step = policy.mask_positions(trajectory, np.array([True, False] * 4))
    assert step.positions.tolist() == [0, 2, 4, 6]
    assert (step.state[step.positions] == policy.mask_id).all()
    target = replace(
        trajectory, transitions=(step,), sampling=MaskedSampling(max_tokens=8, steps=4)
    )
    assert policy.score([target]).logprobs.shape == (4,)


def test_no_steps_at_all_are_refused_where_the_distribution_is_made():
    with pytest.raises(ValueError, match="at least 1"):
        MaskedSampling(max_tokens=8, steps=0)


def test_an_answer_longer_than_the_canvas_is_an_error(masked_folder):
    with pytest.raises(DataError, match="canvas of 8"):
        opened(masked_folder).demonstrate(
            [*CHAT, {"role": "assistant", "content": "muito longa " * 9}]
        )


def made(model, source, folder):
    """A model with the tokenizer of another."""
    model.save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(source / file, folder / file)
    return folder


def sizes(source, **more):
    vocabulary = json.loads((source / "config.json").read_text())["vocab_size"]
    return {
        "vocab_size": vocabulary, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 256, "pad_token_id": 0,
        "bos_token_id": None, "eos_token_id": 2, **more,
    }  # fmt: skip


def test_a_window_of_attention_and_a_config_without_cache_are_no_obstacle(masked_folder, tmp_path):
    """The explicit mask says what is seen; a sliding window would drop a kept prompt's first
    keys."""
    from transformers import MistralConfig, MistralForCausalLM

    model = MistralForCausalLM(
        MistralConfig(**sizes(masked_folder, sliding_window=8, use_cache=False))
    )
    policy = opened(made(model, masked_folder, tmp_path / "mistral"))
    trajectories = drawn(policy)
    assert max(len(t.prompt) for t in trajectories) > 8
    terms = policy.score(trajectories)
    torch.testing.assert_close(terms.logprobs.detach(), terms.recorded, atol=2e-5, rtol=0)
    last = trajectories[-1]
    with torch.no_grad():
        plain = logits_of(policy, last.prompt.tolist(), last.transitions[1].state.tolist())
        rows = policy.network.encode([last.prompt.tolist()])
        hidden = policy.network.hidden(
            rows, torch.from_numpy(last.transitions[1].state).unsqueeze(0)
        )[0]
        found = policy.model.get_output_embeddings()(hidden).double()
    kept = [token for token in range(found.shape[1]) if token != policy.mask_id]
    torch.testing.assert_close(found[:, kept], plain[:, kept], atol=1e-5, rtol=0)


def test_capped_logits_are_refused(masked_folder, tmp_path):
    from transformers import Gemma2Config, Gemma2ForCausalLM

    model = Gemma2ForCausalLM(
        Gemma2Config(**sizes(masked_folder, head_dim=16, final_logit_softcapping=0.1))
    )
    with pytest.raises(ModelError, match="linear head"):
        opened(made(model, masked_folder, tmp_path / "gemma"))


def test_a_model_that_stays_causal_is_refused(masked_folder):
    from transformers import AttentionInterface

    def deaf(module, query, key, value, attention_mask, **kwargs):
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return out.transpose(1, 2).contiguous(), None

    policy = opened(masked_folder, attention="full")
    check_model(policy.network, "mine")
    AttentionInterface.register("deaf", deaf)
    policy.model.config._attn_implementation = "deaf"
    with pytest.raises(ModelError, match="mine stays causal"):
        check_model(policy.network, "mine")


def test_a_model_that_hardly_looks_at_its_last_token_is_not_taken_for_a_causal_one(masked_folder):
    from transformers import AttentionInterface

    def looks_away(module, query, key, value, attention_mask, **kwargs):
        mask = attention_mask.clone()
        mask[..., -1] -= 30
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)
        return out.transpose(1, 2).contiguous(), None

    policy = opened(masked_folder, attention="full")
    AttentionInterface.register("looks_away", looks_away)
    policy.model.config._attn_implementation = "looks_away"
    check_model(policy.network, "mine")


def test_a_kept_prompt_that_changes_something_is_refused(policy, monkeypatch):
    honest = policy.network.hidden
    monkeypatch.setattr(policy.network, "hidden", lambda *args: honest(*args) * 1.01)
    with pytest.raises(ModelError, match=r"model\.attention"):
        check_model(policy.network, "mine")


def test_learnt_temperatures_are_never_left_out_silently(masked_folder, tmp_path):
    opened(masked_folder, learned_temperature=True).save(tmp_path / "explored", {})
    with pytest.raises(ModelError, match=r"model\.learned_temperature"):
        opened(tmp_path / "explored")
