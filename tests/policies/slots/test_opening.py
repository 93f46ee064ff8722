"""Which models can be opened as slots, what a saved one says of itself, and the messages for what does not fit."""

import json
from dataclasses import replace

import pytest
import torch
from transformers import AutoTokenizer, Qwen3ForCausalLM

from conftest import WORDS
from plumbline.api import sampled
from plumbline.errors import DataError, ModelError, RecipeError
from plumbline.policies import open_policy
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.policies.saved import saved_settings
from plumbline.policies.slots.options import SlotSampling
from plumbline.policies.slots.packing import Grid
from plumbline.recipe import LoraSection, TinySection
from tests.policies.slots.models import PROMPT, opened, save_mini, save_outlier

LAW = SlotSampling(max_tokens=8, steps=2, selector="plackett_luce")


def edit(path, **changes):
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))


def without_mask_in_tokenizer(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.mask_token = None
    tokenizer.save_pretrained(folder)
    edit(folder / "tokenizer_config.json", mask_token=None)
    assert AutoTokenizer.from_pretrained(folder).mask_token_id is None


@pytest.mark.parametrize("named", ["model_type", "architectures"])
def test_a_refusion_checkpoint_is_opened_as_the_qwen3_that_it_is(tmp_path, named):
    folder = save_mini(tmp_path / "refusion", rope_theta=500.0)
    plain = Qwen3ForCausalLM.from_pretrained(folder)
    without_mask_in_tokenizer(folder)
    names = {"model_type": {"model_type": "refusion"}, "architectures": {"architectures": ["ReFusionForCausalLM"]}}[
        named
    ]
    edit(
        folder / "config.json",
        mask_token_id=3,
        auto_map={"AutoModelForCausalLM": "modeling_refusion.ReFusionForCausalLM"},
        rope_parameters=None,
        rope_theta=500.0,  # as checkpoints of transformers 4 have it
        **names,
    )
    policy = opened(folder)
    assert type(policy.model) is Qwen3ForCausalLM
    assert policy.mask_id == 3
    ids = torch.tensor([[0, 1, 1, 0, 2, 0, 1]])
    torch.testing.assert_close(policy.model(ids).logits, plain(ids).logits)
    policy.save(tmp_path / "saved", {})
    again = opened(tmp_path / "saved")
    assert again.mask_id == 3
    assert type(again.model) is Qwen3ForCausalLM
    assert again.model.config.model_type == "qwen3"


def test_other_causal_models_work_too(tmp_path):
    policy = opened(save_mini(tmp_path / "llama", model_type="llama"))
    terms = policy.score(sampled(policy, [PROMPT], 4, LAW, 0)[0])
    torch.testing.assert_close(terms.logprobs, terms.recorded, atol=1e-5, rtol=0)


def test_a_model_without_a_mask_token_is_an_error(tmp_path):
    folder = save_mini(tmp_path / "m")
    without_mask_in_tokenizer(folder)
    with pytest.raises(ModelError, match="has no mask token"):
        opened(folder)
    edit(folder / "config.json", mask_token_id=99)
    with pytest.raises(ModelError, match="embeddings for 4 tokens"):
        opened(folder)


def test_a_model_that_keeps_to_a_window_is_an_error(tmp_path):
    folder = save_mini(tmp_path / "m", use_sliding_window=True, sliding_window=8, max_window_layers=0)
    with pytest.raises(ModelError, match="within a window of 8"):
        opened(folder)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("broken", ["mask", "positions", "head"])
@pytest.mark.parametrize("save", [save_mini, save_outlier])
def test_a_model_that_ignores_what_it_is_told_is_an_error(tmp_path, monkeypatch, save, broken, dtype):
    """An outlier channel makes the largest hidden state large, and hid errors that were measured against it."""
    from transformers import Qwen3Model

    folder = save(tmp_path / "model")
    assert opened(folder, dtype=dtype)
    honest = Qwen3Model.forward

    def deaf(self, *args, **kwargs):
        if broken == "mask":
            kwargs["attention_mask"] = None
        if broken == "positions":
            kwargs["position_ids"] = None
        return honest(self, *args, **kwargs)

    if broken == "head":
        plain = Qwen3ForCausalLM.forward

        def capped(self, *args, **kwargs):
            output = plain(self, *args, **kwargs)
            output.logits = output.logits.tanh()
            return output

        monkeypatch.setattr(Qwen3ForCausalLM, "forward", capped)
    else:
        monkeypatch.setattr(Qwen3Model, "forward", deaf)
    with pytest.raises(ModelError, match="does not follow an explicit attention mask"):
        opened(folder, dtype=dtype)


@pytest.mark.parametrize("lora", [None, LoraSection(rank=2)], ids=["full", "lora"])
def test_a_saved_model_is_the_same_model(mini, tmp_path, lora):
    policy = opened(mini, lora=lora, canvas=8)
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) * 0.05)
    policy.save(tmp_path / "saved", {"stage": "test"})
    again = opened(tmp_path / "saved", lora=lora, canvas=8)
    one, other = (sampled(p, [PROMPT], 4, LAW, 5)[0] for p in (policy, again))
    assert [t.tokens.tolist() for t in one] == [t.tokens.tolist() for t in other]
    assert saved_settings(str(tmp_path / "saved"))["family"] == "slots"
    assert opened(tmp_path / "saved", lora=lora).canvas == 8
    with pytest.raises(ModelError, match="trained with slots of 2"):
        opened(tmp_path / "saved", lora=lora, slot=4)
    with pytest.raises(ModelError, match="is of family slots, not autoregressive"):
        open_policy(AutoregressiveModel(name="x", lora=lora), str(tmp_path / "saved"))


def test_the_adapters_start_is_the_reference(mini):
    policy = opened(mini, lora=LoraSection(rank=2))
    trajectories = sampled(policy, [PROMPT], 4, LAW, 0)[0]
    with pytest.raises(ValueError, match="keep_reference"):
        policy.score(trajectories, reference=True)
    policy.keep_reference()
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.add_(0.1)
    base = opened(mini).score(trajectories).logprobs
    torch.testing.assert_close(policy.score(trajectories, reference=True).logprobs, base, atol=1e-5, rtol=0)
    terms = policy.score(trajectories, divergence=True)
    assert (terms.logprobs - base).abs().max() > 0.01
    assert terms.divergence.shape == (sum(len(t.steps) for t in trajectories),)
    assert terms.divergence.requires_grad
    assert terms.divergence.sum() > 0.01


def test_the_tiny_model_of_the_recipes_opens(tmp_path):
    sizes = TinySection(hidden=32, layers=1, heads=2, vocabulary=300, context=64)
    make_tiny(tmp_path / "tiny", sizes, WORDS, seed=0, family="slots")
    policy = opened(tmp_path / "tiny", slot=4, canvas=16)
    chats = [[{"role": "user", "content": words}] for words in ("sim", "o produto chegou")]
    groups = sampled(policy, chats, 3, replace(LAW, max_tokens=16, steps=3), 0)
    terms = policy.score([each for group in groups for each in group])
    torch.testing.assert_close(terms.logprobs, terms.recorded, atol=1e-5, rtol=0)
    assert policy.engine["mask_token"] == str(policy.chat.tokenizer.mask_token_id)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": None}, r"sampling\.steps is not set"),
        ({"steps": 5}, "5 rounds do not fit 4 slots"),
        ({"max_tokens": 7}, "7, which is no whole number of slots of 2"),
        ({"blocks": 3}, "cannot be cut into 3 equal blocks"),
        ({"blocks": 4}, "2 rounds do not fit 4 slots in 4 blocks"),
        ({"max_tokens": 16}, "the model's canvas has 8 places"),
    ],
    ids=str,
)
def test_laws_that_do_not_fit_are_errors(mini, change, message):
    with pytest.raises(RecipeError, match=message):
        sampled(opened(mini, canvas=8), [PROMPT], 1, replace(LAW, **change), 0)


def test_sizes_that_do_not_fit_are_errors(mini):
    with pytest.raises(RecipeError, match=r"model\.canvas is 7, which is no whole number"):
        opened(mini, canvas=7)
    with pytest.raises(DataError, match="exceed the context of 64"):
        sampled(opened(mini), [[{"role": "user", "content": "a " * 60}]], 1, LAW, 0)


def test_rounds_are_as_even_as_they_can_be():
    assert Grid.of(SlotSampling(max_tokens=28, steps=3), 4).counts() == [2, 2, 3]
    assert Grid.of(SlotSampling(max_tokens=32, steps=4, blocks=2), 4).counts() == [2, 2, 2, 2]
    for slots in range(1, 12):
        for steps in range(1, slots + 1):
            counts = Grid.of(SlotSampling(max_tokens=slots, steps=steps), 1).counts()
            assert sum(counts) == slots
            assert max(counts) - min(counts) <= 1
            assert min(counts) >= 1
