"""Which models can be opened as slots, what a saved one says of itself, and the messages for what
does not fit."""

from dataclasses import replace

import pytest
import torch
from transformers import Qwen3ForCausalLM

from conftest import WORDS
from plumbline.api import sample_trajectories
from plumbline.errors import DataError, ModelError, RecipeError
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.policies.slots.options import SlotSampling
from plumbline.policies.slots.packing import Grid
from plumbline.recipe import TinySection
from tests.policies.slots.models import PROMPT, opened, save_mini, save_outlier

SAMPLING = SlotSampling(max_tokens=8, steps=2, selector="plackett_luce")


def test_other_causal_models_work_too(tmp_path):
    policy = opened(save_mini(tmp_path / "llama", model_type="llama"))
    terms = policy.score(sample_trajectories(policy, [PROMPT], 4, SAMPLING, 0)[0])
    torch.testing.assert_close(terms.logprobs, terms.recorded, atol=1e-5, rtol=0)


def test_a_model_that_keeps_to_a_window_is_an_error(tmp_path):
    folder = save_mini(
        tmp_path / "m", use_sliding_window=True, sliding_window=8, max_window_layers=0
    )
    with pytest.raises(ModelError, match="within a window of 8"):
        opened(folder)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("broken", ["mask", "positions", "head"])
@pytest.mark.parametrize("save", [save_mini, save_outlier])
def test_a_model_that_ignores_what_it_is_told_is_an_error(
    tmp_path, monkeypatch, save, broken, dtype
):
    """An outlier channel makes the largest hidden state large, and hid errors that were measured
    against it."""
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
    with pytest.raises(ModelError, match="attention mask"):
        opened(folder, dtype=dtype)


def test_the_tiny_model_of_the_recipes_opens(tmp_path):
    sizes = TinySection(hidden=32, layers=1, heads=2, vocabulary=300, context=64)
    make_tiny(tmp_path / "tiny", sizes, WORDS, seed=0, family="slots")
    policy = opened(tmp_path / "tiny", slot=4, canvas=16)
    chats = [[{"role": "user", "content": words}] for words in ("sim", "o produto chegou")]
    groups = sample_trajectories(policy, chats, 3, replace(SAMPLING, max_tokens=16, steps=3), 0)
    terms = policy.score([each for group in groups for each in group])
    torch.testing.assert_close(terms.logprobs, terms.recorded, atol=1e-5, rtol=0)
    assert policy.engine["mask_token"] == str(policy.chat.tokenizer.mask_token_id)


def test_sizes_that_do_not_fit_are_errors(mini):
    with pytest.raises(RecipeError, match=r"model\.canvas is 7"):
        opened(mini, canvas=7)
    with pytest.raises(DataError, match="context of 64"):
        sample_trajectories(
            opened(mini), [[{"role": "user", "content": "a " * 60}]], 1, SAMPLING, 0
        )


def test_rounds_are_as_even_as_they_can_be():
    assert Grid.of(SlotSampling(max_tokens=28, steps=3), 4).counts() == [2, 2, 3]
    assert Grid.of(SlotSampling(max_tokens=32, steps=4, blocks=2), 4).counts() == [2, 2, 2, 2]
    for slots in range(1, 12):
        for steps in range(1, slots + 1):
            counts = Grid.of(SlotSampling(max_tokens=slots, steps=steps), 1).counts()
            assert sum(counts) == slots
            assert max(counts) - min(counts) <= 1
            assert min(counts) >= 1
