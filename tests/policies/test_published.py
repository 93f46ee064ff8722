"""Published checkpoints, as tiny files of exactly their layout: opened without their code, with a
plain pass's logits.

None of their weights are here: what is tested is that nothing of a layout is lost or taken for
something else."""

import json
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
import torch

from plumbline.api import sample_trajectories
from plumbline.errors import ModelError, RecipeError
from plumbline.policies import open_policy
from plumbline.policies.masked.options import MaskedModel, MaskedSampling
from tests.policies.families import assert_both_laws_hold
from tests.policies.published import (
    HEADERS,
    LLADA,
    QWEN,
    QWEN_TOKENS,
    ROWS,
    decode,
    tokenizer,
    weights_of,
    write,
)

CHAT = [{"role": "user", "content": "nota?"}]
PLACES = 6
SAMPLING = MaskedSampling(max_tokens=3, steps=2, selector="plackett_luce", top_k=2)
SIZES = {
    "hidden": 16,
    "inner": 24,
    "layers": 2,
    "heads": 2,
    "kv_heads": 1,
    "head_size": 8,
    "eps": 1e-6,
    "theta": 1e6,
}


@dataclass
class Layout:
    """A checkpoint on disk, and what a plain pass needs to read it."""

    folder: object
    config: dict
    weights: dict
    names: dict
    sizes: dict
    mask: int
    shift: int = 0
    block: int | None = None
    options: dict = field(default_factory=dict)

    def save(self):
        write(self.folder, self.config, self.weights)
        return self

    def open(self):
        options = {"canvas": PLACES, **self.options}
        return open_policy(MaskedModel(name=str(self.folder), **options), str(self.folder))

    def logits(self, prompt, canvas):
        """[L, V]."""
        place = torch.arange(len(prompt) + len(canvas)) // (self.block or 10**6)
        allowed = place[None, :] <= place[:, None]
        made = decode(self.weights, self.names, self.sizes, [*prompt, *canvas], allowed)
        return made[len(prompt) - self.shift : len(made) - self.shift]


def qwen_config(**more):
    """The keys that Qwen's checkpoints have, as transformers 4 wrote them."""
    return {
        "attention_dropout": 0.0, "bos_token_id": 290, "eos_token_id": 290, "hidden_act": "silu", "hidden_size": 16,
        "initializer_range": 0.02, "intermediate_size": 24, "max_position_embeddings": 64, "max_window_layers": 2,
        "num_attention_heads": 2, "num_hidden_layers": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": None, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "transformers_version": "4.52.4", "use_cache": False, "use_sliding_window": False,
        "vocab_size": ROWS, **more,
    }  # fmt: skip


def dllm(folder):
    """Qwen3-0.6B-diffusion-mdlm: a Qwen3 whose config ties the head, and whose file has one of its
    own."""
    ids = tokenizer(
        folder,
        (*QWEN_TOKENS, "<|mask|>"),
        ("json", "vocab"),
        tokenizer_class="Qwen2Tokenizer",
        mask_token="<|mask|>",
    )
    config = qwen_config(
        model_type="a2d-qwen3", architectures=["A2DQwen3LMHeadModel"], attention_bias=False, head_dim=12,
        auto_map={"AutoConfig": "modeling_qwen3.A2DQwen3Config", "AutoModelForMaskedLM": "modeling_qwen3.A2DQwen3"},
        layer_types=["full_attention"] * 2, tie_word_embeddings=True,
    )  # fmt: skip
    sizes = SIZES | {"head_size": 12}
    return Layout(folder, config, weights_of(sizes, QWEN), QWEN, sizes, ids["<|mask|>"])


def dream(folder):
    """Dream-v0-Instruct-7B: a Qwen2 with biases, a tokenizer class of its own, and logits one place
    late."""
    ids = tokenizer(
        folder, (*QWEN_TOKENS, "<|beginoftext|>", "<|mask|>"), ("vocab",), tokenizer_class="DreamTokenizer",
        auto_map={"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]}, mask_token="<|mask|>",
        bos_token="<|beginoftext|>", additional_special_tokens=["<|beginoftext|>", "<|mask|>"], add_bos_token=False,
    )  # fmt: skip
    config = qwen_config(
        model_type="Dream", architectures=["DreamModel"], mask_token_id=ids["<|mask|>"], pad_token_id=290,
        auto_map={"AutoConfig": "configuration_dream.DreamConfig", "AutoModel": "modeling_dream.DreamModel"},
        attn_implementation="flash_attention_2", use_mrope=False, _name_or_path="Dream-org/Dream-v0-Instruct-7B",
    )  # fmt: skip
    names = {part: name for part, name in QWEN.items() if not part.endswith("_norm")}
    return Layout(
        folder,
        config,
        weights_of(SIZES, names, biases=True),
        names,
        SIZES,
        ids["<|mask|>"],
        shift=1,
    )


def llada(folder):
    """LLaDA-8B-Instruct: a Llama under OLMo's names, whose mask stands in config.json alone."""
    tokens = (
        "<|startoftext|>",
        "<|endoftext|>",
        "<|mdm_mask|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    )
    ids = tokenizer(
        folder, tokens, ("json",), tokenizer_class="PreTrainedTokenizerFast", trust_remote_code=True,
        bos_token="<|startoftext|>", fast_tokenizer=True, merges_file=None, vocab_file=None, chat_template=HEADERS,
    )  # fmt: skip
    end = ids["<|endoftext|>"]
    config = {
        "activation_type": "silu", "alibi": False, "alibi_bias_max": 8.0, "architectures": ["LLaDAModelLM"],
        "attention_dropout": 0.0, "attention_layer_norm": False, "attention_layer_norm_with_affine": True,
        "auto_map": {"AutoConfig": "configuration_llada.LLaDAConfig", "AutoModel": "modeling_llada.LLaDAModelLM"},
        "bias_for_layer_norm": False, "block_group_size": 1, "block_type": "llama", "d_model": 16,
        "embedding_dropout": 0.0, "embedding_size": ROWS, "eos_token_id": end, "flash_attention": True,
        "include_bias": False, "include_qkv_bias": False, "init_device": "meta", "input_emb_norm": False,
        "layer_norm_type": "rms", "layer_norm_with_affine": True, "mask_token_id": ids["<|mdm_mask|>"],
        "max_sequence_length": 64, "mlp_hidden_size": 24, "mlp_ratio": 4, "model_type": "llada",
        "multi_query_attention": None, "n_heads": 2, "n_kv_heads": 2, "n_layers": 2, "pad_token_id": end,
        "precision": "amp_bf16", "residual_dropout": 0.0, "rms_norm_eps": 1e-05, "rope": True,
        "rope_full_precision": True, "rope_theta": 500000.0, "scale_logits": False, "torch_dtype": "bfloat16",
        "transformers_version": "4.51.2", "use_cache": False, "vocab_size": ROWS, "weight_tying": False,
    }  # fmt: skip
    sizes = SIZES | {"kv_heads": 2, "eps": 1e-5, "theta": 5e5}
    return Layout(folder, config, weights_of(sizes, LLADA), LLADA, sizes, ids["<|mdm_mask|>"])


def tied_llada(folder):
    """One whose head is its embedding, of which the file has one copy."""
    layout = llada(folder)
    layout.config["weight_tying"] = True
    del layout.weights[f"{LLADA['head']}.weight"]
    return layout


def sdar(folder, **more):
    """SDAR-1.7B-Chat: a Qwen3 that sees blocks of four; some of its config.json do not say so
    (`block_size`)."""
    ids = tokenizer(
        folder, (*QWEN_TOKENS, "<|MASK|>"), ("json", "vocab"), tokenizer_class="Qwen2Tokenizer", bos_token=None,
        auto_map={"AutoTokenizer": ["tokenization_qwen2.Qwen2Tokenizer", None]}, mask_token="<|MASK|>",
    )  # fmt: skip
    config = qwen_config(
        model_type="sdar", architectures=["SDARForCausalLM"], attention_bias=False, head_dim=12, debug=False,
        attn_implementation="flex_attention", ep_size=1, fuse_cross_entropy=True, micro_forward=False,
        auto_map={"AutoConfig": "configuration_sdar.SDARConfig", "AutoModelForCausalLM": "modeling_sdar.SDARFor"},
        skip_checkpoint=False, use_deepep=False, **more,
    )  # fmt: skip
    sizes = SIZES | {"head_size": 12}
    return Layout(folder, config, weights_of(sizes, QWEN), QWEN, sizes, ids["<|MASK|>"], block=4)


def told_sdar(folder):
    """The same with what its config.json says for training."""
    return sdar(folder, block_size=4, mask_token_id=293)


MASKED = (dllm, dream, llada, tied_llada, told_sdar)


def far(policy, layout):
    """The largest difference between a policy's logits and those of the plain pass, over two
    canvases."""
    whole, mask = policy.chat.prompt(CHAT), layout.mask
    worst = 0.0
    canvases = ([mask] * PLACES, [40, mask, 41, 42, mask, mask])
    for prompt, canvas in product([whole[start:] for start in range(layout.block or 1)], canvases):
        with torch.no_grad():
            hidden = policy.network.hidden(policy.network.encode([prompt]), torch.tensor([canvas]))[
                0
            ]
            found = policy.model.get_output_embeddings()(hidden).double()
        worst = max(worst, float((found - layout.logits(prompt, canvas)).abs().max()))
    return worst


@pytest.mark.parametrize("make", MASKED)
def test_it_gives_a_plain_pass_s_logits_and_obeys_both_laws(tmp_path, make):
    layout = make(tmp_path).save()
    policy = layout.open()
    assert policy.mask_id == layout.mask
    assert far(policy, layout) < 1e-3
    assert_both_laws_hold(policy, CHAT, SAMPLING, draws=600, gap=1e-4)


@pytest.mark.parametrize("make", MASKED)
def test_what_is_saved_from_it_is_the_same_stock_model(tmp_path, make):
    layout = make(tmp_path).save()
    layout.open().save(tmp_path / "saved", {})
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["model_type"] in {
        "llama",
        "qwen2",
        "qwen3",
    }
    layout.folder = tmp_path / "saved"
    assert far(layout.open(), layout) < 1e-3


@pytest.mark.parametrize("make", MASKED)
def test_planted_faults_do_not_pass(tmp_path, make):
    layout = make(tmp_path)
    whole, config = dict(layout.weights), dict(layout.config)
    name = next(
        name for name in whole if name.endswith((".1.mlp.down_proj.weight", ".1.ff_out.weight"))
    )
    layout.weights = {key: weight for key, weight in whole.items() if key != name}
    with pytest.raises(ModelError, match="lacks 1 weights"):
        layout.save().open()
    layout.weights = whole | {f"{name[:-6]}extra": torch.ones(3)}
    with pytest.raises(ModelError, match="also has 1 weights"):
        layout.save().open()
    name = next(key for key in whole if layout.names["down"] in key)
    layout.weights = whole | {name: whole[name].T}
    with pytest.raises(ModelError, match="other shapes"):
        layout.save().open()
    # no shape tells; the logits do
    for square in [key for key in whole if whole[key].shape == (16, 16)][:1]:
        layout.weights = whole | {square: whole[square].T}
        layout.save().weights = whole
        assert far(layout.open(), layout) > 0.1
    layout.weights, layout.config = whole, config | {"mask_token_id": 40}
    with pytest.raises(ModelError, match="40"):
        layout.save().open()
    layout.config = config
    policy = layout.save().open()
    policy.network.shifted = not policy.network.shifted
    assert far(policy, layout) > 0.1


class TestBlocks:
    """What is true of a model that writes block after block, and of no other."""

    @pytest.fixture
    def policy(self, tmp_path):
        return told_sdar(tmp_path).save().open()

    def test_the_length_of_a_block_is_never_guessed(self, tmp_path):
        layout = sdar(tmp_path).save()
        with pytest.raises(ModelError, match="block_size"):
            layout.open()
        layout.options = {"block": 4}
        assert far(layout.open(), layout) < 1e-3
        layout.options = {"block": 3}
        assert far(layout.open(), layout) > 0.1
        layout.config |= {"block_size": 4}
        with pytest.raises(ModelError, match=r"blocks of 4 .* 3"):
            layout.save().open()
        layout.options = {"attention": "prefix"}
        with pytest.raises(ModelError, match=r"model\.attention"):
            layout.open()
        with pytest.raises(ValueError, match="attention: prefix"):
            MaskedModel(name="x", block=4, attention="prefix")

    @pytest.mark.parametrize("selector", ["plackett_luce", "random", "threshold", "leftmost"])
    def test_prompts_of_all_lengths_are_scored_as_they_were_drawn(self, policy, selector):
        sampling = MaskedSampling(max_tokens=PLACES, steps=5, selector=selector)
        chats = [[{"role": "user", "content": "?" * count}] for count in range(1, 5)]
        drawn = [
            each
            for group in sample_trajectories(policy, chats, 2, sampling, seed=0)
            for each in group
        ]
        assert len({len(each.prompt) % 4 for each in drawn}) == 4
        terms = policy.score(drawn)
        torch.testing.assert_close(terms.logprobs.detach(), terms.recorded, atol=1e-4, rtol=0)
        for each in drawn:
            blocks = [set((step.positions + len(each.prompt)) // 4) for step in each.transitions]
            assert all(len(block) == 1 for block in blocks)
            assert [min(block) for block in blocks] == sorted(min(block) for block in blocks)

    def test_training_sees_what_drawing_sees(self, policy):
        """Each block behind the finished ones before it, in one pass for all blocks."""
        whole, clean = policy.chat.prompt(CHAT), torch.tensor([[40, 41, 42, 43, 44, 45]])
        hidden = torch.tensor([[False, True, True, False, True, True]])
        for prompt in (whole[start:] for start in range(4)):
            encoded = policy.network.encode([prompt])
            noisy = clean.masked_fill(hidden, policy.mask_id)
            number = (torch.arange(PLACES) + len(prompt)) // 4
            with torch.no_grad():
                found = policy.network.training_hidden(encoded, noisy, clean)
                for block in number.unique():
                    state = torch.where(number < block, clean, noisy)
                    wanted = policy.network.hidden(encoded, state)[:, number == block]
                    torch.testing.assert_close(found[:, number == block], wanted, atol=1e-4, rtol=0)
                assert (policy.network.hidden(encoded, noisy) - found).abs().max() > 0.01

    def test_what_needs_the_whole_canvas_is_refused(self, policy):
        sampling = MaskedSampling(max_tokens=PLACES, steps=PLACES)
        with pytest.raises(RecipeError, match=r"sampling\.blocks is 2"):
            sample_trajectories(
                policy, [CHAT], 1, MaskedSampling(max_tokens=PLACES, steps=PLACES, blocks=2), 0
            )
        with pytest.raises(RecipeError, match="1 steps"):
            sample_trajectories(policy, [CHAT], 1, MaskedSampling(max_tokens=PLACES, steps=1), 0)
        ((drawn,),) = sample_trajectories(policy, [CHAT], 1, sampling, 0)
        with pytest.raises(RecipeError, match=r"rl\.algorithm"):
            policy.mask_positions(drawn, np.ones(PLACES, dtype=bool))


def test_a_llada_that_is_no_llama_is_refused(tmp_path):
    layout = llada(tmp_path)
    layout.config |= {"alibi": True}
    with pytest.raises(ModelError, match="alibi: True"):
        layout.save().open()
