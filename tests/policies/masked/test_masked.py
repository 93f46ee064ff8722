"""The masked policy around its law: batches, references, losses, checkpoints, and what it refuses."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from plumbline.api import sampled
from plumbline.errors import DataError, ModelError, RecipeError
from plumbline.policies import open_policy
from plumbline.policies.masked.options import MaskedModel, MaskedSampling
from plumbline.policies.masked.scorer import slices
from plumbline.policies.token_law import noises
from tests.policies.masked.conftest import opened
from tests.policies.masked.oracle import logits_of, ways

CHATS = [[{"role": "user", "content": text}] for text in ("nota?", "o produto chegou atrasado?", "sim")]
LAW = MaskedSampling(max_tokens=8, steps=4, selector="plackett_luce")


def drawn(policy, law=LAW, copies=3, seed=0):
    return [t for group in sampled(policy, CHATS, copies, law, seed) for t in group]


@pytest.mark.parametrize("attention", ["prefix", "full"])
def test_a_trajectory_scores_the_same_alone_and_among_others(masked_folder, attention):
    policy = opened(masked_folder, attention=attention)
    trajectories = drawn(policy)
    together = policy.score(trajectories)
    alone = torch.cat([policy.score([t]).logprobs for t in trajectories])
    torch.testing.assert_close(together.logprobs, alone, atol=2e-5, rtol=0)
    torch.testing.assert_close(together.logprobs.detach(), together.recorded, atol=2e-5, rtol=0)
    single = [replace(t, steps=(step,)) for t in trajectories for step in t.steps]
    torch.testing.assert_close(policy.score(single).logprobs, together.logprobs, atol=2e-5, rtol=0)


def test_the_same_seed_draws_the_same_and_another_something_else(policy):
    first, again, other = drawn(policy, seed=1), drawn(policy, seed=1), drawn(policy, seed=2)
    assert [t.answer.tolist() for t in first] == [t.answer.tolist() for t in again]
    assert [t.answer.tolist() for t in first] != [t.answer.tolist() for t in other]


def test_every_place_is_filled_once_and_never_with_the_mask(policy):
    for law in (LAW, replace(LAW, selector="ancestral"), replace(LAW, selector="threshold", threshold=0.2)):
        for trajectory in drawn(policy, law):
            places = np.concatenate([step.positions for step in trajectory.steps])
            assert sorted(places) == list(range(8))
            last = trajectory.steps[-1]
            assert (last.state[last.positions] == policy.mask_id).all()


def test_greedy_takes_the_most_confident_places_and_their_best_tokens(policy):
    law = MaskedSampling(temperature=0, max_tokens=4, steps=4)
    ((trajectory,),) = sampled(policy, [CHATS[0]], 1, law, seed=0)
    state = [policy.mask_id] * 4
    for step in trajectory.steps:
        assert step.state.tolist() == state
        with torch.no_grad():
            p = logits_of(policy, policy.chat.prompt(CHATS[0]), state).softmax(-1)
        best = max((place for place in range(4) if state[place] == policy.mask_id), key=lambda i: p[i].max())
        assert step.positions.tolist() == [best]
        assert step.tokens.tolist() == [int(p[best].argmax())]
        state[best] = int(step.tokens[0])
    assert trajectory.logprobs.tolist() == [0] * 4


def test_batches_keep_order_and_respect_the_budget(policy):
    trajectories = drawn(policy)
    parts = policy.batches(trajectories, 120)
    assert [index for part in parts for index in part] == list(range(len(trajectories)))
    for part in parts:
        distinct = {trajectories[i].prompt.tobytes(): len(trajectories[i].prompt) for i in part}
        assert sum(distinct.values()) + 32 * len(part) <= 120 or len(part) == 1
    assert len(policy.batches(trajectories, 10**6)) == 1


def test_the_divergence_is_the_enumerated_one(masked_folder):
    """One step of one place: KL over (place, token) pairs, against the mean of the closed form over places."""
    policy = opened(masked_folder)
    law = MaskedSampling(max_tokens=2, steps=2, top_k=2, selector="plackett_luce")
    policy.keep_reference()
    before = {}
    prompt = policy.chat.prompt(CHATS[0])

    def first_steps():
        found = {}
        for key, log_p, _ in ways(policy, prompt, replace(law, steps=2)):
            found.setdefault(key[0], []).append(log_p)
        return {key: float(torch.stack(parts).logsumexp(0)) for key, parts in found.items()}

    with torch.no_grad():
        before = first_steps()
        for weight in policy.trainable().values():
            weight.add_(0.004 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
        after = first_steps()
    assert set(before) == set(after), "the perturbation must not change the two best tokens"
    exact = sum(np.exp(after[key]) * (after[key] - before[key]) for key in after)
    (group,) = sampled(policy, [CHATS[0]], 300, law, seed=0)
    by_place = {int(t.steps[0].positions[0]): replace(t, steps=t.steps[:1]) for t in group}
    terms = policy.score(list(by_place.values()), divergence=True)
    chance = [sum(np.exp(v) for key, v in after.items() if key[0][0] == place) for place in by_place]
    mean = float((terms.divergence.detach().double() * torch.tensor(chance)).sum())
    assert mean == pytest.approx(exact, rel=0.01, abs=1e-6)
    assert exact > 1e-6


def test_no_update_no_divergence_and_a_reference_that_stays(masked_folder):
    policy = opened(masked_folder, explore=True)
    policy.keep_reference()
    trajectories = drawn(policy)
    terms = policy.score(trajectories, divergence=True)
    assert terms.divergence.abs().max() < 1e-6
    assert torch.equal(policy.score(trajectories, reference=True).logprobs, terms.logprobs.detach())
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.add_(0.05)
    torch.testing.assert_close(
        policy.score(trajectories, reference=True).logprobs, terms.logprobs.detach(), atol=1e-6, rtol=0
    )
    assert policy.score(trajectories, divergence=True).divergence.sum() > 0


def test_the_supervised_loss_is_the_any_order_bound_on_average(masked_folder):
    """Two places: E over t of (1/t) sum over hidden = half of both hidden twice, or one after the other."""
    policy = opened(masked_folder, canvas=2)
    chat = [*CHATS[0], {"role": "assistant", "content": "a"}]
    demonstration = policy.demonstrate(chat)
    prompt, canvas = policy.chat.prompt(CHATS[0]), list(demonstration.tokens[-2:])
    mask = policy.mask_id
    with torch.no_grad():
        both = logits_of(policy, prompt, [mask, mask]).log_softmax(-1)
        one = logits_of(policy, prompt, [mask, canvas[1]]).log_softmax(-1)[0, canvas[0]]
        two = logits_of(policy, prompt, [canvas[0], mask]).log_softmax(-1)[1, canvas[1]]
        wanted = -0.5 * (both[0, canvas[0]] + two + both[1, canvas[1]] + one)
        losses = [policy.supervised_loss([demonstration] * 500, noises(500, seed)) / 500 for seed in range(60)]
    assert torch.stack(losses).mean().item() == pytest.approx(wanted.item(), rel=0.03)


def test_an_answer_is_followed_by_end_tokens(policy):
    demonstration = policy.demonstrate([*CHATS[0], {"role": "assistant", "content": "a"}])
    canvas = [t for t, wanted in zip(demonstration.tokens, demonstration.is_target, strict=True) if wanted]
    assert len(canvas) == 8
    assert canvas[1:] == [policy.chat.end_of_turn] * 7


def test_a_hidden_view_of_an_answer_has_its_own_tokens(policy):
    trajectory = drawn(policy)[0]
    step = policy.hide(trajectory, np.array([True, False] * 4))
    assert step.positions.tolist() == [0, 2, 4, 6]
    assert (step.state[step.positions] == policy.mask_id).all()
    view = replace(trajectory, steps=(step,), sampling=MaskedSampling(max_tokens=8, steps=4))
    assert policy.score([view]).logprobs.shape == (4,)


class TestCheckpointsOfOthers:
    """Synthetic files in the layouts of LLaDA and Dream, made from a stock model, give that model's logits."""

    def write(self, source, folder, config, rename=None):
        folder.mkdir()
        for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            (folder / file).write_bytes((source / file).read_bytes())
        weights = load_file(source / "model.safetensors")
        save_file({(rename or (lambda n: n))(name): t for name, t in weights.items()}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def test_llada(self, masked_folder, tmp_path):
        stock = json.loads((masked_folder / "config.json").read_text())
        names = {
            "input_layernorm": "attn_norm", "self_attn.q_proj": "q_proj", "self_attn.k_proj": "k_proj",
            "self_attn.v_proj": "v_proj", "self_attn.o_proj": "attn_out", "post_attention_layernorm": "ff_norm",
            "mlp.gate_proj": "ff_proj", "mlp.up_proj": "up_proj", "mlp.down_proj": "ff_out",
        }  # fmt: skip

        def rename(name):
            name = name.replace("model.embed_tokens", "model.transformer.wte")
            name = name.replace("model.norm", "model.transformer.ln_f")
            found = re.match(r"model\.layers\.(\d+)\.(.*)\.weight", name)
            return f"model.transformer.blocks.{found[1]}.{names[found[2]]}.weight" if found else name

        config = {
            "model_type": "llada", "architectures": ["LLaDAModelLM"], "auto_map": {"AutoModel": "evil.Model"},
            "vocab_size": stock["vocab_size"], "d_model": 32, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2,
            "mlp_hidden_size": stock["intermediate_size"], "max_sequence_length": 128, "weight_tying": True,
            "rms_norm_eps": stock["rms_norm_eps"], "rope_theta": 10000.0, "mask_token_id": 3,
        }  # fmt: skip
        other = opened(self.write(masked_folder, tmp_path / "llada", config, rename))
        mine = opened(masked_folder)
        ids = mine.chat.prompt(CHATS[1])
        torch.testing.assert_close(
            logits_of(other, ids, [other.mask_id] * 3), logits_of(mine, ids, [mine.mask_id] * 3), atol=1e-6, rtol=0
        )

    def test_dream_predicts_a_place_at_the_one_before(self, tmp_path):
        from transformers import Qwen2Config, Qwen2ForCausalLM

        from plumbline.policies.pretrained.tiny import make_tiny
        from plumbline.recipe import TinySection

        tiny = tmp_path / "tiny"
        make_tiny(tiny, TinySection(hidden=32, layers=2, heads=2, vocabulary=300, context=128), ["a b"], 0, "masked")
        size = json.loads((tiny / "config.json").read_text())["vocab_size"]
        shape = {
            "vocab_size": size, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 128,
            "tie_word_embeddings": False, "rms_norm_eps": 1e-6,
        }  # fmt: skip
        model = Qwen2ForCausalLM(Qwen2Config(**shape))
        model.save_pretrained(tiny)
        config = {**shape, "model_type": "Dream", "architectures": ["DreamModel"], "mask_token_id": 3}
        folder = self.write(tiny, tmp_path / "dream", config)
        for attention in ("prefix", "full"):
            policy = opened(folder, attention=attention)
            assert policy.network.shifted
            law = MaskedSampling(max_tokens=4, steps=4, selector="plackett_luce")
            ((trajectory,),) = sampled(policy, [CHATS[0]], 1, law, 0)
            scored = policy.score([trajectory])
            torch.testing.assert_close(scored.logprobs.detach(), scored.recorded, atol=2e-5, rtol=0)
            step = trajectory.steps[1]
            log_p = logits_of(policy, trajectory.prompt.tolist(), step.state.tolist()).log_softmax(-1)
            assert float(log_p[step.positions[0], step.tokens[0]]) == pytest.approx(float(step.logprobs[0]), abs=2e-5)
            policy.save(tmp_path / attention, {})
            again = open_policy(MaskedModel(name="x", canvas=8, attention=attention), str(tmp_path / attention))
            assert again.network.shifted


def test_the_learnt_temperatures_are_saved_with_the_model(masked_folder, tmp_path):
    policy = opened(masked_folder, explore=True)
    with torch.no_grad():
        policy.exploration.log_temperature.add_(0.3)
    policy.save(tmp_path / "saved", {})
    again = opened(tmp_path / "saved", explore=True)
    torch.testing.assert_close(again.exploration.log_temperature, policy.exploration.log_temperature)


def test_the_schedule_fills_everything_whatever_the_numbers():
    for places in range(1, 9):
        for steps in range(1, places + 1):
            for blocks in range(1, steps + 1):
                made = slices(MaskedSampling(max_tokens=places, steps=steps, blocks=blocks))
                assert len(made) == steps
                assert sum(piece.count for piece in made) == places
                assert [piece.time for piece in made] == sorted({piece.time for piece in made})


@pytest.mark.parametrize(
    ("law", "error", "message"),
    [
        (MaskedSampling(max_tokens=8), RecipeError, "number of denoising steps"),
        (MaskedSampling(max_tokens=4, steps=8), RecipeError, "do not fit"),
        (MaskedSampling(max_tokens=9, steps=2), DataError, "canvas has 8 places"),
    ],
)
def test_laws_that_cannot_be(policy, law, error, message):
    with pytest.raises(error, match=message):
        sampled(policy, [CHATS[0]], 1, law, 0)


def test_no_steps_at_all_are_refused_where_the_law_is_made():
    with pytest.raises(ValueError, match="at least 1"):
        MaskedSampling(max_tokens=8, steps=0)


def test_models_that_cannot_be(tiny_folder, masked_folder, tmp_path):
    with pytest.raises(ModelError, match="has no mask token"):
        opened(tiny_folder)
    with pytest.raises(DataError, match="exceeds the canvas of 8"):
        opened(masked_folder).demonstrate([*CHATS[0], {"role": "assistant", "content": "muito longa " * 9}])
