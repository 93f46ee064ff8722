"""What is opened, what is refused, and that a short cut is never assumed."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from plumbline.api import sampled
from plumbline.errors import DataError, ModelError
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.masked.policy import check_model
from plumbline.recipe import LoraSection
from tests.policies.masked.conftest import opened
from tests.policies.masked.oracle import logits_of

CHATS = [[{"role": "user", "content": text}] for text in ("nota?", "o produto chegou atrasado " * 4)]
LAW = MaskedSampling(max_tokens=8, steps=4, selector="plackett_luce")


def drawn(policy, law=LAW):
    return [t for group in sampled(policy, CHATS, 3, law, 0) for t in group]


def changed(source, folder, **config):
    """A copy of a model's directory with other values in its config.json."""
    shutil.copytree(source, folder)
    values = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(values))
    return folder


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


@pytest.mark.parametrize("attention", ["prefix", "full"])
def test_recomputed_layers_give_the_same_values_and_gradients(masked_folder, attention):
    """A cache that grew in every forward pass would be twice as long in the recomputed one."""
    found = []
    for again in (False, True):
        policy = opened(masked_folder, attention=attention, gradient_checkpointing=again)
        policy.keep_reference()
        terms = policy.score(drawn(policy), divergence=True)
        (terms.logprobs.sum() + terms.divergence.sum()).backward()
        found.append([terms.logprobs.detach(), *(weight.grad for weight in policy.trainable().values())])
    for plain, recomputed in zip(*found, strict=True):
        assert torch.equal(plain, recomputed)


def test_a_window_of_attention_and_a_config_without_cache_are_no_obstacle(masked_folder, tmp_path):
    """The explicit mask says what is seen; a sliding window would drop a kept prompt's first keys."""
    from transformers import MistralConfig, MistralForCausalLM

    model = MistralForCausalLM(MistralConfig(**sizes(masked_folder, sliding_window=8, use_cache=False)))
    policy = opened(made(model, masked_folder, tmp_path / "mistral"))
    trajectories = drawn(policy)
    assert max(len(t.prompt) for t in trajectories) > 8
    terms = policy.score(trajectories)
    torch.testing.assert_close(terms.logprobs.detach(), terms.recorded, atol=2e-5, rtol=0)
    last = trajectories[-1]
    with torch.no_grad():
        plain = logits_of(policy, last.prompt.tolist(), last.steps[1].state.tolist())
        rows = policy.network.encode([last.prompt.tolist()])
        hidden = policy.network.hidden(rows, torch.from_numpy(last.steps[1].state).unsqueeze(0))[0]
        found = policy.model.get_output_embeddings()(hidden).double()
    kept = [token for token in range(found.shape[1]) if token != policy.mask_id]
    torch.testing.assert_close(found[:, kept], plain[:, kept], atol=1e-5, rtol=0)


def test_capped_logits_are_refused(masked_folder, tmp_path):
    from transformers import Gemma2Config, Gemma2ForCausalLM

    model = Gemma2ForCausalLM(Gemma2Config(**sizes(masked_folder, head_dim=16, final_logit_softcapping=0.1)))
    with pytest.raises(ModelError, match="not those of its linear head"):
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
    with pytest.raises(ModelError, match="mine stays causal whatever mask"):
        check_model(policy.network, "mine")


def test_a_kept_prompt_that_changes_something_is_refused(policy, monkeypatch):
    honest = policy.network.hidden
    monkeypatch.setattr(policy.network, "hidden", lambda *args: honest(*args) * 1.01)
    with pytest.raises(ModelError, match=r"set model\.attention to full"):
        check_model(policy.network, "mine")


def test_the_mask_token_may_stand_in_the_config_and_must_have_an_embedding(masked_folder, tmp_path):
    for name, mask in (("named", 3), ("outside", 999_999)):
        folder = changed(masked_folder, tmp_path / name, mask_token_id=mask)
        values = json.loads((folder / "tokenizer_config.json").read_text())
        values.pop("mask_token")
        (folder / "tokenizer_config.json").write_text(json.dumps(values))
    assert opened(tmp_path / "named").mask_id == 3
    with pytest.raises(ModelError, match="is 999999, but the model has embeddings for"):
        opened(tmp_path / "outside")


def test_a_saved_model_remembers_its_canvas(masked_folder, tmp_path):
    opened(masked_folder).save(tmp_path / "saved", {})
    again = opened(tmp_path / "saved", canvas=None)
    assert again.canvas == 8
    with pytest.raises(DataError, match="canvas has 8 places"):
        sampled(again, CHATS, 1, MaskedSampling(max_tokens=9, steps=3), 0)


def test_learnt_temperatures_are_never_left_out_silently(masked_folder, tmp_path):
    opened(masked_folder, explore=True).save(tmp_path / "explored", {})
    with pytest.raises(ModelError, match=r"set model\.explore to true"):
        opened(tmp_path / "explored")


def test_adapters_obey_the_law_and_are_their_own_reference(masked_folder, tmp_path):
    policy = opened(masked_folder, lora=LoraSection(rank=2, alpha=4))
    policy.keep_reference()
    with torch.no_grad():
        for index, weight in enumerate(policy.trainable().values()):
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(index)))
    trajectories = drawn(policy)
    terms = policy.score(trajectories, divergence=True)
    torch.testing.assert_close(terms.logprobs.detach(), terms.recorded, atol=2e-5, rtol=0)
    assert terms.divergence.min() > -1e-6
    assert terms.divergence.sum() > 1e-3
    base = opened(masked_folder).score(trajectories).logprobs.detach()
    torch.testing.assert_close(policy.score(trajectories, reference=True).logprobs, base, atol=1e-5, rtol=0)
    policy.save(tmp_path / "adapter", {})
    again = opened(tmp_path / "adapter", lora=LoraSection(rank=2, alpha=4)).score(trajectories).logprobs.detach()
    torch.testing.assert_close(again, terms.logprobs.detach(), atol=1e-5, rtol=0)


NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "q_proj", "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj", "self_attn.o_proj": "attn_out", "post_attention_layernorm": "ff_norm",
    "mlp.gate_proj": "ff_proj", "mlp.up_proj": "up_proj", "mlp.down_proj": "ff_out",
}  # fmt: skip


class TestLlada:
    """A LLaDA checkpoint of our own making; `test_masked` compares its logits."""

    def write(self, source, folder, *, tied, without=()):
        weights = {}
        for name, weight in load_file(source / "model.safetensors").items():
            for mine, theirs in NAMES.items():
                name = name.replace(f".{mine}.", f".{theirs}.")
            name = name.replace("model.embed_tokens", "model.transformer.wte").replace(
                "model.norm", "model.transformer.ln_f"
            )
            weights[name.replace("model.layers", "model.transformer.blocks")] = weight
        if not tied:
            weights["model.transformer.ff_out.weight"] = weights["model.transformer.wte.weight"].flip(0).contiguous()
        stock = json.loads((source / "config.json").read_text())
        config = {
            "model_type": "llada", "architectures": ["LLaDAModelLM"], "vocab_size": stock["vocab_size"],
            "embedding_size": stock["vocab_size"], "d_model": 32, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2,
            "mlp_hidden_size": stock["intermediate_size"], "max_sequence_length": 128, "weight_tying": tied,
            "rms_norm_eps": stock["rms_norm_eps"], "rope_theta": 500000.0, "mask_token_id": 3,
        }  # fmt: skip
        shutil.copytree(source, folder)
        save_file(weights, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k not in without}))
        return folder

    @pytest.mark.parametrize("tied", [True, False])
    def test_it_is_saved_as_the_stock_model_that_it_is(self, masked_folder, tmp_path, tied):
        policy = opened(self.write(masked_folder, tmp_path / "llada", tied=tied))
        assert policy.model.config.rope_parameters["rope_theta"] == 500000.0
        policy.save(tmp_path / "saved", {})
        assert json.loads((tmp_path / "saved" / "config.json").read_text())["model_type"] == "llama"
        again = opened(tmp_path / "saved")
        for name, weight in policy.model.state_dict().items():
            assert torch.equal(weight, again.model.state_dict()[name]), name
        first, second = drawn(policy), drawn(again)
        assert [t.answer.tolist() for t in first] == [t.answer.tolist() for t in second]

    def test_a_config_that_lacks_something_is_named(self, masked_folder, tmp_path):
        folder = self.write(masked_folder, tmp_path / "llada", tied=True, without=["d_model"])
        with pytest.raises(ModelError, match="model_type llada, but lacks 'd_model'"):
            opened(folder)
