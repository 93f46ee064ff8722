"""Models that cannot be used say why, and what to do."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from plumbline.api import sampled
from plumbline.errors import ModelError
from plumbline.policies import open_policy
from plumbline.policies.pretrained.chat import CHATML
from plumbline.recipe import LoraSection, options_of


@pytest.fixture
def copy(tiny_folder, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    return folder


def edit(path, **changes):
    values = json.loads(path.read_text())
    for key, value in changes.items():
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    path.write_text(json.dumps(values))


def opened(folder, family="autoregressive", **options):
    return open_policy(options_of(family).model(name=str(folder), **options), str(folder))


def test_a_missing_model(tmp_path):
    with pytest.raises(ModelError, match="there is no model directory at"):
        opened(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"no config\.json"):
        opened(tmp_path / "empty")


def test_a_directory_without_a_tokenizer(copy):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copy / name).unlink()
    with pytest.raises(ModelError, match="has a model and no tokenizer"):
        opened(copy)


def test_a_tokenizer_without_a_chat_template_and_two_ways_to_give_one(copy, tmp_path):
    (copy / "chat_template.jinja").unlink(missing_ok=True)
    edit(copy / "tokenizer_config.json", chat_template=None)
    with pytest.raises(ModelError, match="has no chat template"):
        opened(copy)
    chat = [{"role": "user", "content": "oi"}]
    by_name = opened(copy, chat_template="chatml").chat.prompt(chat)
    (tmp_path / "template.jinja").write_text(CHATML)
    assert opened(copy, chat_template=str(tmp_path / "template.jinja")).chat.prompt(chat) == by_name
    with pytest.raises(ModelError, match="cannot read the chat template"):
        opened(copy, chat_template=str(tmp_path / "absent.jinja"))


def test_weights_that_are_missing_of_another_shape_or_too_many(copy):
    weights = load_file(copy / "model.safetensors")
    name = next(name for name in weights if "down_proj" in name)

    def refused(changed, message):
        save_file(changed, copy / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ModelError, match=message):
            opened(copy)

    refused({n: w for n, w in weights.items() if n != name}, "is of another model: it lacks 1 weights")
    refused({**weights, "model.extra.weight": torch.zeros(2)}, "also has 1 weights")
    refused({**weights, name: torch.zeros(3, 3)}, "another (shape|model)|cannot load")


def test_a_checkpoint_that_is_no_causal_model(copy):
    edit(copy / "config.json", model_type="t5", architectures=["T5ForConditionalGeneration"])
    with pytest.raises(ModelError, match="cannot load a causal language model"):
        opened(copy)


def test_damaged_weights(copy):
    (copy / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(ModelError):
        opened(copy)


def test_a_tokenizer_with_more_tokens_than_the_model(copy):
    edit(copy / "config.json", vocab_size=100)
    weights = load_file(copy / "model.safetensors")
    weights = {n: (w[:100].contiguous() if "embed_tokens" in n or "lm_head" in n else w) for n, w in weights.items()}
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="has 300 tokens, but the model has embeddings for 100"):
        opened(copy)


def test_an_adapter_of_another_model(copy, tmp_path):
    opened(copy, lora=LoraSection(rank=2)).save(tmp_path / "adapter", {})
    weights = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    name = next(iter(weights))
    save_file({**weights, name: torch.zeros(7, 7)}, tmp_path / "adapter" / "adapter_model.safetensors")
    with pytest.raises(ModelError, match=r"the adapter in .* is of another model"):
        opened(tmp_path / "adapter", lora=LoraSection(rank=2))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"lora": LoraSection(rank=32, alpha=4)}, "adapter of rank 2 and alpha 4, .* trains one of rank 32"),
        ({"lora": LoraSection(rank=2, alpha=32)}, "trains one of rank 2 and alpha 32"),
        ({}, "and the recipe trains all weights"),
        ({"lora": LoraSection(rank=2, alpha=4)}, r"on other layers than model\.lora\.targets asks for: 10 differ"),
        ({"lora": LoraSection(rank=2, alpha=4, targets=["q_proj"])}, "2 differ .*v_proj"),
        ({"lora": LoraSection(rank=2, alpha=4, targets=r".*\.q_proj")}, "2 differ .*v_proj"),
        ({"lora": LoraSection(rank=2, alpha=4, targets=["q_proj", "v_proj"]), "family": "masked"}, "of family autoreg"),
    ],
    ids=["rank", "alpha", "all weights", "all layers", "fewer layers", "a pattern", "family"],
)
def test_an_adapter_keeps_its_settings_and_says_so(copy, tmp_path, asked, message):
    """It was opened with its own, whatever the recipe said."""
    lora = LoraSection(rank=2, alpha=4, targets=["q_proj", "v_proj"])
    opened(copy, lora=lora).save(tmp_path / "adapter", {})
    with pytest.raises(ModelError, match=message):
        opened(tmp_path / "adapter", **asked)
    for targets in (lora.targets, r".*\.(q|v)_proj"):
        again = opened(tmp_path / "adapter", lora=lora.model_copy(update={"targets": targets}))
        assert {weight.shape[0] for name, weight in again.trainable().items() if "lora_A" in name} == {2}


def test_an_adapter_on_all_layers_is_that_of_the_default_targets(copy, tmp_path):
    opened(copy, lora=LoraSection(rank=2)).save(tmp_path / "adapter", {})
    assert opened(tmp_path / "adapter", lora=LoraSection(rank=2)).adapter is not None
    edit(tmp_path / "adapter" / "adapter_config.json", r=None)
    with pytest.raises(ModelError, match="is damaged, or of an adapter that is no LoRA"):
        opened(tmp_path / "adapter", lora=LoraSection(rank=2))


def test_a_base_in_4_bits_belongs_to_its_adapter(copy, tmp_path):
    opened(copy, lora=LoraSection(rank=2)).save(tmp_path / "adapter", {"model": {"quantize": "4bit"}})
    with pytest.raises(ModelError, match="trained with quantize: 4bit, not None"):
        opened(tmp_path / "adapter", lora=LoraSection(rank=2))


def test_lora_on_layers_that_are_not_there(copy):
    with pytest.raises(ModelError, match=r"model\.lora does not fit"):
        opened(copy, lora=LoraSection(targets=["no_such_layer"]))


def test_a_context_longer_than_the_model_was_made_for(copy):
    with pytest.raises(ModelError, match="made for 256 tokens"):
        opened(copy, context=4096)
    assert opened(copy, context=64).context == 64


def test_four_bits_without_bitsandbytes(copy, monkeypatch):
    import builtins

    real = builtins.__import__

    def without(name, *arguments, **named):
        if name == "bitsandbytes":
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModelError, match="needs bitsandbytes"):
        opened(copy, quantize="4bit", lora=LoraSection())


def test_bfloat16_works_within_its_precision(tiny_folder):
    from plumbline.records import Sampling

    policy = opened(tiny_folder, dtype="bfloat16")
    assert policy.engine["dtype"] == "bfloat16"
    chats = [[{"role": "user", "content": "oi"}], [{"role": "user", "content": "não recomendo"}]]
    trajectories = [t for g in sampled(policy, chats, 4, Sampling(max_tokens=12), 0) for t in g]
    terms = policy.score(trajectories)
    assert terms.logprobs.dtype == torch.float32
    gap = (terms.logprobs - terms.recorded).abs()
    assert gap.mean() < 0.05
    assert gap.max() < 0.5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_graph_decoder_draws_what_the_plain_one_draws(tiny_folder):
    from plumbline.records import Sampling

    chats = [[{"role": "user", "content": "oi"}], [{"role": "user", "content": "não recomendo"}]]
    law = Sampling(max_tokens=160, temperature=1.2)
    lean, plain = (
        sampled(opened(tiny_folder, dtype="float32", decoder=d), chats, 4, law, 0) for d in ("lean", "transformers")
    )
    assert [[t.tokens.tolist() for t in g] for g in lean] == [[t.tokens.tolist() for t in g] for g in plain]
