"""ReFusion, as tiny files of the layout that its public training code writes; no weights of theirs
are here."""

import pytest
import torch
from transformers import Qwen3ForCausalLM

from plumbline.errors import ModelError
from plumbline.policies.slots.options import SlotSampling
from plumbline.policies.slots.packing import read_packed
from tests.policies.families import assert_both_laws_hold
from tests.policies.published import QWEN, QWEN_TOKENS, decode, tokenizer, weights_of, write
from tests.policies.slots.models import opened

CHAT = [{"role": "user", "content": "nota?"}]
SIZES = {
    "hidden": 16,
    "inner": 24,
    "layers": 2,
    "heads": 2,
    "kv_heads": 1,
    "head_size": 12,
    "eps": 1e-6,
    "theta": 1e6,
}


def refusion(folder):
    """Config, weights and the mask's id: a Qwen3 with an embedding of exactly its tokens, two of
    them new.

    The tokenizer names no mask (the new tokens are "additional" ones), the config does; the head is
    not tied.
    """
    ids = tokenizer(
        folder, (*QWEN_TOKENS, "<|beginoftext|>", "<|mask|>"), ("json", "vocab"), tokenizer_class="Qwen2Tokenizer",
        eos_token="<|im_end|>", additional_special_tokens=["<|beginoftext|>", "<|mask|>"],
    )  # fmt: skip
    weights = weights_of(SIZES, QWEN, rows=max(ids.values()) + 1)
    config = {
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "head_dim": 12,
        "auto_map": {"AutoModelForCausalLM": "modeling_qwen3_refusion.Qwen3ForCausalLM"}, "hidden_act": "silu",
        "bos_token_id": ids["<|beginoftext|>"], "eos_token_id": ids["<|im_end|>"], "hidden_size": 16,
        "initializer_range": 0.02, "intermediate_size": 24, "mask_token_id": ids["<|mask|>"], "model_type": "qwen3",
        "max_position_embeddings": 64, "max_window_layers": 2, "num_attention_heads": 2, "num_hidden_layers": 2,
        "num_key_value_heads": 1, "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 1e6,
        "sliding_window": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "transformers_version": "4.52.4", "use_cache": False, "use_sliding_window": False,
        "vocab_size": max(ids.values()) + 1,
    }  # fmt: skip
    return config, weights, ids["<|mask|>"]


def far(policy, weights, *, causal=True):
    """The largest difference of logits to a plain pass over tokens that stand out of order, as
    slots do."""
    positions = [0, 1, 2, 3, 6, 7, 4, 5]
    ids = [30, 31, 32, 33, 40, 41, policy.mask_id, policy.mask_id]
    allowed = (
        torch.ones((8, 8), dtype=torch.bool).tril()
        if causal
        else torch.ones((8, 8), dtype=torch.bool)
    )
    with torch.no_grad():
        hidden = read_packed(
            policy.model, torch.tensor([ids]), torch.tensor([positions]), allowed[None, None]
        )
        found = policy.model.get_output_embeddings()(hidden)[0].double()
    wanted = decode(
        weights, QWEN, SIZES, ids, torch.ones((8, 8), dtype=torch.bool).tril(), positions
    )
    return float((found - wanted).abs().max())


@pytest.mark.parametrize(
    "names", [{}, {"model_type": "refusion"}, {"architectures": ["ReFusionForCausalLM"]}], ids=str
)
def test_it_gives_a_plain_pass_s_logits_and_obeys_both_laws(tmp_path, names):
    config, weights, mask = refusion(tmp_path)
    policy = opened(write(tmp_path, config | names, weights))
    assert policy.mask_id == mask
    assert type(policy.model) is Qwen3ForCausalLM
    assert policy.chat.tokenizer.convert_ids_to_tokens(policy.chat.end_of_turn) == "<|im_end|>"
    assert far(policy, weights) < 1e-3
    assert far(policy, weights, causal=False) > 0.1
    assert_both_laws_hold(
        policy,
        CHAT,
        SlotSampling(max_tokens=4, steps=2, selector="plackett_luce", top_k=2),
        draws=600,
        gap=1e-4,
    )
    policy.save(tmp_path / "saved", {})
    again = opened(tmp_path / "saved")
    assert again.mask_id == mask
    assert type(again.model) is Qwen3ForCausalLM
    assert again.model.config.model_type == "qwen3"
    assert far(again, weights) < 1e-3
    with pytest.raises(ModelError, match="slots of 2"):
        opened(tmp_path / "saved", slot=4)


def test_planted_faults_do_not_pass(tmp_path):
    config, weights, _ = refusion(tmp_path)
    name = "model.layers.1.self_attn.q_norm.weight"
    with pytest.raises(ModelError, match="lacks 1 weights"):
        opened(
            write(tmp_path, config, {key: weight for key, weight in weights.items() if key != name})
        )
    with pytest.raises(ModelError, match="also has 1 weights"):
        opened(write(tmp_path, config, weights | {"model.slots.weight": torch.ones(3)}))
    with pytest.raises(ModelError, match=r"mask_token_id .* 40"):
        opened(write(tmp_path, config | {"mask_token_id": 40}, weights))
    down = "model.layers.0.mlp.down_proj.weight"
    with pytest.raises(ModelError, match="other shapes"):
        opened(write(tmp_path, config, weights | {down: weights[down].T}))
    other = opened(write(tmp_path, config | {"rope_theta": 1e4}, weights))
    assert far(other, weights) > 0.1
