"""The autoregressive policy against transformers' generate, against itself under other engines, and under both laws."""

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from conftest import sharpen
from plumbline.api import check_policy, sampled
from plumbline.errors import DataError, ModelError
from plumbline.policies import open_policy
from plumbline.policies.autoregressive import policy as sampler
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.autoregressive.packing import pack
from plumbline.recipe import LoraSection
from plumbline.records import Sampling

CHATS = [
    [{"role": "user", "content": "o produto"}],
    [{"role": "system", "content": "extraia"}, {"role": "user", "content": "não recomendo, 12 dias de atraso " * 3}],
    [{"role": "user", "content": "sim"}],
]

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256}
LLAMA_LIKE = {**SMALL, "intermediate_size": 64, "num_key_value_heads": 2, "tie_word_embeddings": False}
ARCHITECTURES = {
    "llama": ("LlamaConfig", {**LLAMA_LIKE, "rope_theta": 5e3, "attention_bias": True}),
    "qwen2": ("Qwen2Config", LLAMA_LIKE),
    "qwen3": ("Qwen3Config", {**LLAMA_LIKE, "head_dim": 16}),
    "mistral": ("MistralConfig", {**LLAMA_LIKE, "sliding_window": None}),
    "mistral-window": ("MistralConfig", {**LLAMA_LIKE, "sliding_window": 8}),
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}),
    "gemma2": ("Gemma2Config", {**LLAMA_LIKE, "head_dim": 8, "final_logit_softcapping": 2.0, "sliding_window": 8}),
    "phi": ("PhiConfig", {**SMALL, "intermediate_size": 64}),
}
LEAN = {"llama", "qwen2", "qwen3", "mistral"}


@pytest.fixture(scope="session")
def architectures(tiny_folder, tmp_path_factory):
    """A directory for each architecture: random weights, the tiny model's tokenizer."""
    import transformers

    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    folders = {}
    for name, (config_class, sizes) in ARCHITECTURES.items():
        config = getattr(transformers, config_class)(
            vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, bos_token_id=None, pad_token_id=0, **sizes
        )
        with torch.random.fork_rng():
            torch.manual_seed(7)
            model = transformers.AutoModelForCausalLM.from_config(config)
        folders[name] = tmp_path_factory.mktemp("architectures") / name
        model.save_pretrained(folders[name])
        tokenizer.save_pretrained(folders[name])
        if name in LEAN:
            sharpen(folders[name], 3.0)
    return folders


def opened(folder, **options):
    return open_policy(AutoregressiveModel(name=str(folder), **options), str(folder))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_answers_are_generates_token_for_token(architectures, name):
    policy = opened(architectures[name])
    assert policy.engine["decoder"] == ("lean" if name in LEAN else "transformers")
    answers = sampled(policy, CHATS, 1, Sampling(temperature=0, max_tokens=24), seed=0)
    for chat, (answer,) in zip(CHATS, answers, strict=True):
        ids = torch.tensor([policy.chat.prompt(chat)])
        generated = policy.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=list(policy.chat.stop_ids),
        )
        assert answer.tokens.tolist() == generated[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_engine_gives_the_same_draws_and_scores(architectures, name):
    chosen = opened(architectures[name])
    general = opened(architectures[name], decoder="transformers", scoring="rows")
    law = Sampling(temperature=0.9, max_tokens=12)
    ours = [t for group in sampled(chosen, CHATS, 3, law, seed=3) for t in group]
    theirs = [t for group in sampled(general, CHATS, 3, law, seed=3) for t in group]
    assert [t.tokens.tolist() for t in ours] == [t.tokens.tolist() for t in theirs]
    one, other = chosen.score(ours), general.score(ours)
    torch.testing.assert_close(one.logprobs, other.logprobs, atol=2e-5, rtol=0)
    torch.testing.assert_close(one.logprobs, one.recorded, atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(top_k=3, max_tokens=3),
        Sampling(temperature=0.4, top_k=4, max_tokens=2),
        Sampling(top_p=0.6, max_tokens=1),
        Sampling(temperature=1.7, max_tokens=1),
    ],
    ids=str,
)
def test_both_laws_hold(tiny_policy, sampling):
    laws = check_policy(tiny_policy, CHATS[0], sampling, draws=2500, seed=11)
    assert laws.gap < 2e-5
    assert laws.chi_square_p > 1e-3
    assert laws.mass < 1 + 1e-4
    assert laws.kinds > 3


def test_a_scorer_at_another_temperature_fails_law_1(tiny_policy):
    (trajectories,) = sampled(tiny_policy, [CHATS[0]], 4, Sampling(temperature=0.7, max_tokens=8), seed=0)
    mistold = [replace_sampling(t, Sampling(temperature=1.0, max_tokens=8)) for t in trajectories]
    scored = tiny_policy.score(mistold)
    assert (scored.logprobs - scored.recorded).abs().max() > 0.05


def test_a_sampler_that_does_not_draw_its_law_fails_law_2(tiny_policy, monkeypatch):
    """It records true log-probabilities, so law 1 passes; only the counts give it away."""
    true_draw = sampler.draw
    monkeypatch.setattr(sampler, "draw", lambda logits, uniforms, law: true_draw(logits, uniforms**1.3, law))
    laws = check_policy(tiny_policy, CHATS[0], Sampling(top_k=4, max_tokens=2), draws=2500, seed=0)
    assert laws.gap < 2e-5
    assert laws.chi_square_p < 1e-6


def replace_sampling(trajectory, sampling):
    from dataclasses import replace

    return replace(trajectory, sampling=sampling)


def test_dropping_finished_rows_changes_nothing(tiny_policy, monkeypatch):
    law = Sampling(temperature=1.5, max_tokens=40)
    # Several stop tokens, so that rows end at many different times.
    monkeypatch.setattr(tiny_policy.chat, "stop_ids", tuple(range(60)))
    shapes = []
    original = sampler._smaller_grid
    monkeypatch.setattr(sampler, "_smaller_grid", lambda live: shapes.append(live.shape) or original(live))
    dropped = sampled(tiny_policy, CHATS, 5, law, seed=4)
    assert min(p * g for p, g in shapes) < 15
    monkeypatch.setattr(sampler, "_smaller_grid", lambda live: None)
    kept = sampled(tiny_policy, CHATS, 5, law, seed=4)
    assert [[t.tokens.tolist() for t in g] for g in dropped] == [[t.tokens.tolist() for t in g] for g in kept]
    assert {t.finish for group in kept for t in group} == {"stop", "length"} or all(
        t.tokens[-1] < 60 for group in kept for t in group
    )


def test_the_same_seed_draws_the_same_and_another_does_not(tiny_policy):
    law = Sampling(max_tokens=10)
    one, same, other = (sampled(tiny_policy, CHATS, 2, law, seed=s)[1][1].tokens.tolist() for s in (1, 1, 2))
    assert one == same != other


def test_copies_of_a_prompt_differ(tiny_policy):
    (group,) = sampled(tiny_policy, [CHATS[0]], 8, Sampling(max_tokens=10), seed=0)
    assert len({t.tokens.tobytes() for t in group}) > 4


def test_gradients_of_packed_and_row_scoring_agree(tiny_folder):
    gradients = []
    for scoring in ("packed", "rows"):
        policy = opened(tiny_folder, scoring=scoring)
        trajectories = [t for g in sampled(policy, CHATS, 2, Sampling(max_tokens=9), seed=0) for t in g]
        terms = policy.score(trajectories)
        (terms.logprobs * (terms.owner + 1)).sum().backward()
        gradients.append({name: weight.grad for name, weight in policy.trainable().items()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], atol=2e-4, rtol=1e-3)


def test_packing_without_its_mask_is_wrong(tiny_policy):
    """The control of the packed pass: with a plain causal mask a completion sees its siblings."""
    (group,) = sampled(tiny_policy, [CHATS[0]], 3, Sampling(max_tokens=6), seed=0)
    packed = pack(group, tiny_policy.device)
    body, head = tiny_policy.model.get_decoder(), tiny_policy.model.get_output_embeddings()
    plain = torch.ones_like(packed.mask).tril()
    from plumbline.policies.pretrained.policy import additive

    results = []
    for mask in (packed.mask, plain):
        hidden = body(
            packed.ids, attention_mask=additive(mask, torch.float32), position_ids=packed.positions, use_cache=False
        )
        logits = head(hidden.last_hidden_state[0, packed.predictors])
        results.append(logits.log_softmax(-1).gather(-1, packed.targets[:, None])[:, 0].detach())
    recorded = torch.from_numpy(np.concatenate([t.logprobs for t in group]))
    assert (results[0] - recorded).abs().max() < 2e-5
    assert (results[1] - recorded).abs().max() > 0.01


def test_batches_keep_order_and_respect_the_budget(tiny_policy):
    trajectories = [t for g in sampled(tiny_policy, CHATS, 4, Sampling(max_tokens=8), seed=0) for t in g]
    parts = tiny_policy.batches(trajectories, 100)
    assert [index for part in parts for index in part] == list(range(12))
    for part in parts:
        prompts = {trajectories[index].prompt.tobytes() for index in part}
        packed = len(trajectories[part[0]].prompt) + sum(trajectories[index].num_tokens for index in part)
        assert len(prompts) == 1
        assert packed <= 100 or len(part) == 1
    assert len(tiny_policy.batches(trajectories, 10**6)) < 12
    assert tiny_policy.batches(trajectories, 1) == [[index] for index in range(12)]


def test_a_prompt_longer_than_the_context_is_an_error(tiny_policy):
    with pytest.raises(DataError, match="exceed the context of 256"):
        sampled(tiny_policy, CHATS, 1, Sampling(max_tokens=250), seed=0)


class TestReference:
    def test_lora_off_is_the_reference_without_a_second_model(self, tiny_folder):
        policy = opened(tiny_folder, lora=LoraSection(rank=4))
        base = opened(tiny_folder)
        law = Sampling(max_tokens=8)
        trajectories = [t for g in sampled(base, CHATS, 2, law, seed=0) for t in g]
        policy.keep_reference()
        before = sum(p.numel() for p in base.model.parameters())
        added = sum(p.numel() for n, p in policy.model.named_parameters() if "lora" in n)
        assert sum(p.numel() for p in policy.model.parameters()) == before + added
        with torch.no_grad():
            for weight in policy.trainable().values():
                weight.add_(0.05)
        changed = policy.score(trajectories).logprobs
        reference = policy.score(trajectories, reference=True).logprobs
        assert (changed - base.score(trajectories).logprobs).abs().max() > 0.01
        torch.testing.assert_close(reference, base.score(trajectories).logprobs, atol=1e-5, rtol=0)
        assert not reference.requires_grad
        torch.testing.assert_close(policy.score(trajectories).logprobs, changed)

    def test_the_reference_is_the_adapter_that_rl_began_with(self, tiny_folder, tmp_path):
        trained = opened(tiny_folder, lora=LoraSection(rank=4))
        with torch.no_grad():
            for weight in trained.trainable().values():
                weight.add_(0.05)
        trained.save(tmp_path / "sft", {})
        policy = opened(tmp_path / "sft", lora=LoraSection(rank=4))
        names = set(policy.trainable())
        trajectories = [t for g in sampled(policy, CHATS, 2, Sampling(max_tokens=8), seed=0) for t in g]
        began = policy.score(trajectories).logprobs.detach()
        policy.keep_reference()
        assert set(policy.trainable()) == names
        with torch.no_grad():
            for weight in policy.trainable().values():
                weight.mul_(-1)
        torch.testing.assert_close(policy.score(trajectories, reference=True).logprobs, began, atol=1e-5, rtol=0)
        assert set(policy.trainable()) == names

    def test_full_training_keeps_a_frozen_copy(self, tiny_folder):
        policy = opened(tiny_folder)
        trajectories = sampled(policy, [CHATS[0]], 2, Sampling(max_tokens=8), seed=0)[0]
        with pytest.raises(ValueError, match="keep_reference"):
            policy.score(trajectories, reference=True)
        policy.keep_reference()
        began = policy.score(trajectories).logprobs.detach()
        with torch.no_grad():
            for weight in policy.trainable().values():
                weight.mul_(1.1)
        torch.testing.assert_close(policy.score(trajectories, reference=True).logprobs, began)


def test_how_many_rows_are_drawn_at_once_changes_no_draw(tiny_folder):
    chats = [[{"role": "user", "content": "sim " * number}] for number in range(1, 6)]
    one, other = (opened(tiny_folder, rows_at_once=rows) for rows in (4, 100))
    assert (one.rows_at_once, other.rows_at_once) == (4, 100)
    drawn = [
        [[t.tokens.tolist() for t in group] for group in sampled(policy, chats, 2, Sampling(max_tokens=8), 3)]
        for policy in (one, other)
    ]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("lora", [None, LoraSection(rank=4)], ids=["full", "lora"])
def test_a_saved_model_is_the_same_model(tiny_folder, tmp_path, lora):
    policy = opened(tiny_folder, lora=lora)
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) * 0.02)
    policy.save(tmp_path / "saved", {"stage": "test"})
    again = opened(tmp_path / "saved", lora=lora)
    law = Sampling(max_tokens=12)
    one, other = (sampled(p, CHATS, 2, law, seed=5) for p in (policy, again))
    assert [[t.tokens.tolist() for t in g] for g in one] == [[t.tokens.tolist() for t in g] for g in other]
    assert set(policy.trainable()) == set(again.trainable())
    assert (tmp_path / "saved" / "plumbline.json").is_file()
    assert not list(tmp_path.glob(".saved*"))


def test_gradient_checkpointing_changes_no_gradient(tiny_folder):
    gradients = []
    for checkpointing in (False, True):
        policy = opened(tiny_folder, gradient_checkpointing=checkpointing)
        trajectories = sampled(policy, [CHATS[1]], 3, Sampling(max_tokens=9), seed=0)[0]
        policy.score(trajectories).logprobs.sum().backward()
        gradients.append([weight.grad for weight in policy.trainable().values()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_dropout_is_off_even_where_the_model_asks_for_it(architectures):
    policy = opened(architectures["gpt2"])
    policy.model.train()
    trajectories = sampled(policy, [CHATS[0]], 2, Sampling(max_tokens=8), seed=0)[0]
    torch.testing.assert_close(policy.score(trajectories).logprobs, policy.score(trajectories).logprobs, atol=0, rtol=0)
    policy.model.eval()


def test_an_engine_asked_for_by_name_that_does_not_fit_is_an_error(architectures):
    with pytest.raises(ModelError, match="lean does not fit"):
        opened(architectures["gpt2"], decoder="lean")
    with pytest.raises(ModelError, match="packed differs"):
        opened(architectures["gemma2"], scoring="packed")
