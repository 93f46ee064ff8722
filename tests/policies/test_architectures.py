"""One tiny model of each kind against transformers, and what is refused."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from plumbline.errors import ModelError
from plumbline.policies import open_policy
from plumbline.policies.autoregressive import probe as probing
from plumbline.policies.autoregressive.decoders.cached import CachedDecoder
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.opening import ModelOptions, adapter_settings
from plumbline.recipe import LoraSection
from plumbline.records import Request, Sampling
from plumbline.runs.run import Observer
from plumbline.serve.served_models import open_models
from tests.policies import architectures
from tests.policies.architectures import (
    FAMILIES,
    SAMPLING,
    by_transformers,
    config_of,
    make,
    measure,
    verdict,
)
from tests.policies.families import move

KINDS = {
    "llama": "lean, packed, sliced",
    "gpt2": "transformers, packed, sliced",
    "mistral": "transformers, packed, sliced",  # a window
    "bloom": "transformers, rows, sliced",  # ALiBi
    "gemma2": "transformers, rows, whole",  # soft caps
    "gpt_neo": "transformers, rows, sliced",  # a window that no mask says
    "lfm2": "transformers, rows, sliced",  # convolutions
    "granitemoehybrid": "transformers, rows, sliced",  # state spaces
    "zamba2": "transformers, rows, sliced",  # state spaces with a least time step
    "jamba": "transformers, rows, sliced",  # a linear layer whose weight is read without calling it
    "qwen3_5_text": "transformers, rows, sliced",  # linear attention
    "modernbert-decoder": "transformers, rows, whole",  # its class calls the head its decoder
    # a router that is a linear layer with another forward pass
    "phimoe": "transformers, packed, sliced",
    # attention and a state in one layer; layers that peft refuses
    "falcon_h1": "transformers, rows, sliced",
    "llama, LongRoPE": "lean, packed, sliced",
    "llama, dynamic": "transformers, packed, sliced",
}


LAYERS = {
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"]},
    "qwen3_5_text": {"layer_types": ["linear_attention", "full_attention"]},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "minimax": {"layer_types": ["full_attention", "linear_attention"]},
    "nemotron_h": {"layers_block_type": ["mamba", "attention"]},
    "qwen3_next": {"layer_types": ["linear_attention", "full_attention"]},
}
"""Of models of two layers, where the kind says what each of them is."""


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Models of two layers; short answers where they are measured."""
    monkeypatch.setattr(architectures, "SAMPLING", Sampling(max_tokens=10))
    for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
        monkeypatch.setitem(architectures.SIZES, name, 2)
    for name, layers in LAYERS.items():
        monkeypatch.setitem(FAMILIES, name, {**FAMILIES.get(name, {}), **layers})


def section_of(folder, **options):
    return AutoregressiveModel(name=str(folder), dtype="float32", **options)


def made(folder, name, **changes):
    make(folder, config_of(name.partition(",")[0], {**FAMILIES.get(name, {}), **changes}))
    return folder


def opened(folder, **options):
    return open_policy(section_of(folder, **options), str(folder))


def drawn(policy, texts, sampling=SAMPLING, copies=1):
    requests = [
        Request((text, c), [{"role": "user", "content": text}], sampling)
        for text in texts
        for c in range(copies)
    ]
    found = {request.key: trajectory for request, trajectory in policy.sample(requests)}
    return [found[request.key] for request in requests]


@pytest.mark.parametrize("name", KINDS)
def test_a_model_of_each_kind_is_as_transformers_has_it(name, tmp_path):
    row = measure(name, tmp_path)
    assert verdict(row) == "ok", row
    assert f"{row['decoder']}, {row['scoring']}, {row['head']}" == KINDS[name]
    assert {"sampler", "scorer", "gradient", "lora", "reload"} <= set(row), row


@pytest.mark.parametrize("name", ["mamba", "recurrent_gemma", "bart"])
def test_a_model_that_cannot_be_sampled_from_is_refused_when_it_is_opened(name, tmp_path):
    """No rows in its cache, or (BART's decoder) prompts of several lengths that are padded without
    a word."""
    row = measure(name, tmp_path)
    assert re.match(f"a model of type {name} ", row["refused"]), row
    assert "\n" not in row["refused"]


def no_reordering(patch):
    """A cache whose states stay where they are."""
    from transformers.cache_utils import LinearAttentionCacheLayerMixin

    patch.setattr(LinearAttentionCacheLayerMixin, "reorder_cache", lambda self, rows: None)


def rolled_rows(patch):
    """Rows of another order than was asked for."""
    true = CachedDecoder.keep

    def wrong(self, prompts, copies):
        true(self, prompts, copies.roll(1, 1))

    patch.setattr(CachedDecoder, "keep", wrong)


def no_mask(patch):
    """Padding before a prompt is read like its tokens."""
    true = probing.pad_rows
    patch.setattr(
        "plumbline.policies.autoregressive.decoders.cached.pad_rows",
        lambda *args, **kw: ((found := true(*args, **kw))[0], torch.ones_like(found[1])),
    )


@pytest.mark.parametrize(
    "plant", [no_reordering, rolled_rows, no_mask], ids=lambda plant: plant.__name__
)
def test_a_fault_of_the_cache_is_found_when_the_model_is_opened(plant, tmp_path, monkeypatch):
    folder = made(tmp_path / "lfm2", "lfm2")
    assert opened(folder).engine["decoder"] == "transformers"
    plant(monkeypatch)
    monkeypatch.setattr(probing, "_FOUND", {})
    with pytest.raises(ModelError, match="sampled from"):
        opened(folder)


def test_rows_that_leak_into_one_another_are_found_when_the_model_is_opened(tmp_path, monkeypatch):
    folder = made(tmp_path / "lfm2", "lfm2")
    true = probing.pad_rows

    def wrong(rows, *args, **kw):  # padding before the text, which a state then has read
        return true(rows, left=True)[0].roll(0), true(rows)[1]

    monkeypatch.setattr(probing, "pad_rows", wrong)
    with pytest.raises(ModelError, match="several lengths"):
        opened(folder)


@pytest.mark.parametrize("name", ["llama, LongRoPE", "phi3, LongRoPE"])
def test_no_answer_depends_on_the_company_of_its_request(name, tmp_path):
    """The context ends where the frequencies change, so the longest sequence has those of the
    shortest."""
    folder = made(tmp_path / "model", name)
    policy = opened(folder)
    assert policy.context == 256
    assert policy.engine["context_ends"].startswith("the context ends at 256 of 512 tokens")
    short, long = "a" * 10, "b" * 180
    (alone,), (beside, other) = drawn(policy, [short]), drawn(policy, [short, long])
    assert alone.tokens.tolist() == beside.tokens.tolist()
    together = policy.score([beside, other]).logprobs.detach()
    assert torch.allclose(
        together[: beside.num_tokens], policy.score([alone]).logprobs.detach(), atol=1e-4
    )
    with pytest.raises(ModelError, match=r"model\.context is 300, .* 256"):
        opened(folder, context=300)
    assert opened(folder, context=200).context == 200


def test_a_dynamic_rotary_that_begins_within_the_context_ends_it(tmp_path, monkeypatch):
    """As it would where the config's own length is not that of the context."""
    folder = made(tmp_path / "model", "llama, dynamic")
    monkeypatch.setattr("plumbline.policies.pretrained.causal_model._context", lambda *_: 1024)
    policy = opened(folder)
    assert policy.context == 255  # at 256 they stay as a longer pass has left them
    first = drawn(policy, ["a" * 10])[0]
    assert torch.allclose(
        policy.score([first]).logprobs.detach(), torch.from_numpy(first.logprobs), atol=1e-4
    )


@pytest.mark.parametrize("name", ["llama", "llama, yarn", "gpt2", "bloom", "gemma3_text"])
def test_the_context_of_a_steady_model_is_its_own(name, tmp_path):
    policy = opened(made(tmp_path / "model", name))
    assert policy.engine["context_ends"] == ""
    assert policy.context in {512, 2**31}


ADAPTED = [
    "qwen3_moe",  # experts in one tensor, which peft names in target_parameters
    "falcon_h1",  # attention and a state in one layer; layers that peft refuses
    "gemma3",  # with a vision tower
    "laguna",  # whose shared experts peft saves under one name and looks for under another
]
MORE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "name", [*ADAPTED, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)]
)
def test_an_adapter_opens_again_as_its_run_and_as_its_directory_say(name, tmp_path):
    """eval, export, serve and a teacher take what the directory says; a second run what the first
    one's recipe said."""
    asked = LoraSection(rank=2, alpha=4)
    policy, adapter = opened(made(tmp_path / "base", name), lora=asked), str(tmp_path / "adapter")
    move(policy, 0.1, seed=0)
    answers = drawn(policy, ["abc"], Sampling(max_tokens=10), copies=2)
    policy.save(tmp_path / "adapter", {})
    for lora in (asked, adapter_settings(adapter)):
        again = opened(adapter, lora=lora)
        assert again.trainable().keys() == policy.trainable().keys()
        assert all(
            torch.equal(weight, again.trainable()[name])
            for name, weight in policy.trainable().items()
        )
        assert torch.equal(again.score(answers).logprobs, policy.score(answers).logprobs)


def test_the_targets_of_an_adapter_are_compared_with_those_that_are_asked_for(tmp_path):
    lora = LoraSection(rank=2, alpha=4)
    policy = opened(made(tmp_path / "base", "glm4_moe"), lora=lora)
    assert re.match(r"\d+ .*model\.layers\.0\.mlp\.", policy.engine["without_adapters"])
    policy.save(tmp_path / "adapter", {})
    own = adapter_settings(str(tmp_path / "adapter")).targets
    assert (
        opened(tmp_path / "adapter", lora=lora.model_copy(update={"targets": own[::-1]})).adapter
        is not None
    )
    with pytest.raises(ModelError, match=r"model\.lora\.targets"):
        opened(tmp_path / "adapter", lora=lora.model_copy(update={"targets": ["o_proj"]}))


@pytest.mark.parametrize("modules", [[], None, ["q_proj"], r".*\.(q|v)_proj"], ids=str)
def test_a_foreign_adapter_on_parameters_opens_as_it_is(modules, tmp_path):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = made(tmp_path / "base", "mixtral")
    config = LoraConfig(
        r=2,
        lora_alpha=4,
        target_modules=modules,
        target_parameters=["mlp.experts.down_proj"],
        task_type="CAUSAL_LM",
    )
    theirs = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator) * weight.requires_grad)
    theirs.save_pretrained(tmp_path / "adapter")
    if modules is None:  # as other versions of peft write it
        said = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
        (tmp_path / "adapter" / "adapter_config.json").write_text(
            json.dumps({**said, "target_modules": None})
        )
    policy = opened(tmp_path / "adapter", lora=adapter_settings(str(tmp_path / "adapter")))
    answers = drawn(policy, ["abc"])
    assert torch.allclose(
        policy.score(answers).logprobs, by_transformers(theirs, answers), atol=1e-4
    )
    assert not torch.allclose(
        policy.score(answers).logprobs, opened(base).score(answers).logprobs, atol=1e-2
    )


def test_a_cache_that_copies_rows_in_another_way_is_asked_in_that_way(tmp_path):
    policy = opened(made(tmp_path / "minimax", "minimax"))
    answers = drawn(policy, ["abc", "a longer prompt"], Sampling(max_tokens=10), copies=3)
    recorded = torch.cat([torch.from_numpy(each.logprobs) for each in answers])
    assert torch.allclose(policy.score(answers).logprobs.detach(), recorded, atol=1e-4)


def test_an_adapter_that_lacks_a_weight_does_not_begin_with_a_random_one(tmp_path):
    lora = LoraSection(rank=2, alpha=4)
    opened(made(tmp_path / "base", "llama"), lora=lora).save(tmp_path / "adapter", {})
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    weights = load_file(file)
    save_file(
        {name: weight for name, weight in weights.items() if "layers.1.mlp.up_proj" not in name},
        file,
    )
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.up_proj"):
        opened(tmp_path / "adapter", lora=lora)


def test_all_linear_layers_are_those_of_the_language_model(tmp_path):
    lora = LoraSection(rank=2, alpha=4)
    policy = opened(made(tmp_path / "base", "gemma3"), lora=lora)
    assert policy.trainable()
    assert not [name for name in policy.trainable() if "language_model" not in name]
    assert "vision_tower" in policy.engine["without_adapters"]
    with torch.no_grad():
        for name, weight in policy.trainable().items():
            if "lora_B" in name:
                weight.add_(0.1)
    policy.score(drawn(policy, ["abc"])).logprobs.sum().backward()
    assert all(weight.grad is not None for weight in policy.trainable().values())
    policy.save(tmp_path / "adapter", {})
    assert set(opened(tmp_path / "adapter", lora=lora).trainable()) == set(policy.trainable())


@pytest.mark.parametrize(
    ("name", "options"), [("gemma2", {}), ("llama", {"scoring": "rows"}), ("mistral", {})]
)
def test_a_pass_of_rows_keeps_to_its_tokens(name, options, tmp_path):
    """Rows have their prompt once each; Mistral's sequences are longer than its window."""
    policy = opened(made(tmp_path / "model", name), **options)
    answers = drawn(policy, ["y" * 60], Sampling(max_tokens=30), copies=9)
    seen = []

    def watch(module, args, named):
        seen.append((args[0] if args else named["input_ids"]).numel())

    policy.model.get_decoder().register_forward_pre_hook(watch, with_kwargs=True)
    limit = 3 * max(len(each.prompt) + each.num_tokens for each in answers)
    passes = policy.batches(answers, limit)
    for part in passes:
        policy.score([answers[index] for index in part])
    assert len(seen) == len(passes)
    assert limit / 3 < max(seen) <= limit


def test_a_pack_is_tried_past_every_window_that_a_config_names(tmp_path):
    """GPT-Neo's local layers count places of a pack, whatever its mask says; only its sequences are
    short here."""
    neo = opened(made(tmp_path / "neo", "gpt_neo", window_size=96))
    assert neo.engine["scoring"] == "rows"
    answers = drawn(neo, ["abc"], Sampling(max_tokens=16), copies=8)
    scored = neo.score(answers).logprobs.detach()
    assert torch.allclose(
        scored, torch.cat([torch.from_numpy(each.logprobs) for each in answers]), atol=1e-4
    )
    plain = opened(made(tmp_path / "global", "gpt_neo", attention_types=[[["global"], 2]]))
    assert plain.engine["scoring"] == "packed"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3_moe", "falcon_h1"])
def test_what_a_run_with_adapters_saves_is_taken_by_every_command(
    name, tmp_path, plumbline, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "base", name)
    recipe = {
        "name": "first",
        "model": {
            "name": str(tmp_path / "base"),
            "dtype": "float32",
            "lora": {"rank": 2, "alpha": 4},
        },
        "task": {"name": "tests.toy:open_toy"},
        "sft": {"epochs": 1, "batch_size": 6},
        "rl": {"steps": 2, "prompts_per_step": 2, "group_size": 4, "beta": 0.1},
        "sampling": {"max_tokens": 8},
        "evaluation": {"limit": 2},
    }

    def run(**changes):
        (tmp_path / "recipe.yaml").write_text(json.dumps({**recipe, **changes}))
        code, _, error = plumbline("run", tmp_path / "recipe.yaml")
        assert code == 0, error

    run()
    shutil.copytree("runs/first/models/rl", tmp_path / "shared")
    adapter = str(tmp_path / "shared")
    assert plumbline("eval", "runs/first/models/rl", "--split", "test", "--limit", "2")[0] == 0
    assert (
        plumbline(
            "export", adapter, "--out", tmp_path / "adapter", "--kind", "adapter", "--base", "a/b"
        )[0]
        == 0
    )
    code, _, error = plumbline("export", adapter, "--out", tmp_path / "merged", "--kind", "merged")
    assert (code, "--kind adapter" in error) == ((1, True) if name == "qwen3_moe" else (0, False))
    assert open_models({"shared": adapter}, ModelOptions(), Observer())
    del recipe["sft"]
    recipe["task"]["options"] = {"size": 14}
    run(name="second", model={**recipe["model"], "name": adapter})
    run(
        name="third",
        model={"name": str(tmp_path / "base")},
        rl={**recipe["rl"], "teacher": {"model": adapter}},
    )
