"""What was trained is handed on as it was trained: merged, as an adapter, or as one GGUF file, each
with its card."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from conftest import WORDS
from plumbline.engines.vllm import check_publication
from plumbline.errors import EngineError, ModelError
from plumbline.export import weights
from plumbline.export.card import UNKNOWN, find_base
from plumbline.export.export import Export, export
from plumbline.export.weights import write_merged
from plumbline.policies import open_policy
from plumbline.policies.opening import adapter_base
from plumbline.policies.pretrained import gguf_writer
from plumbline.policies.pretrained.adapters import round_weights
from plumbline.policies.pretrained.gguf_writer import KINDS, compare, write_gguf
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.recipe import LoraSection, TinySection, options_of
from plumbline.recipe.execution import EngineSection
from plumbline.records import Request, Sampling
from plumbline.runs.metadata import ModelMetadata
from plumbline.runs.run import Observer
from tests.policies.families import move, redraw

PLAIN = ModelMetadata(
    recipe="toy 0", stage="sft", task="tests.toy:open_toy", options={"size": 20}
).to_json()
CHAT = [{"role": "user", "content": "nota 12, sim"}]


def opened(source, family="autoregressive", **section):
    return open_policy(
        options_of(family).model(name=str(source), device="cpu", dtype="float32", **section),
        str(source),
    )


def tiny(folder, family="autoregressive"):
    section = TinySection(hidden=32, layers=2, heads=2, vocabulary=300, context=128)
    make_tiny(folder, section, WORDS * 10, seed=0, family=family)
    return folder


def logprobs(policy):
    (answer,) = [one for _, one in policy.sample([Request((0,), CHAT, Sampling(max_tokens=8))])]
    return answer.text, policy.score([answer]).logprobs


@pytest.fixture(scope="module")
def adapter(tiny_folder, tmp_path_factory):
    """A LoRA adapter that changes something, with a card of ours."""
    base = tmp_path_factory.mktemp("bases") / "base"
    shutil.copytree(tiny_folder, base)
    (base / "LICENSE").write_text("Do what you like.\n")
    (base / "README.md").write_text("---\nlicense: apache-2.0\n---\n# base\n")
    policy = opened(base, lora=LoraSection(rank=2))
    redraw(policy, 0.05)
    folder = tmp_path_factory.mktemp("adapters") / "adapter"
    options = {"size": 20}
    card = ModelMetadata(
        recipe="toy 0",
        stage="sft",
        task="tests.toy:open_toy",
        options=options,
        sampling={"max_tokens": 8},
    )
    policy.save(folder, card.to_json())
    return folder


def exported(model, out, **options):
    return export(Export(model=str(model), out=out, **options), Observer())


def head_of(folder):
    return yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])


def test_a_merged_model_is_an_ordinary_directory_and_the_same_model(adapter, tmp_path):
    done = exported(adapter, tmp_path / "out")
    ours, theirs = opened(adapter, lora=LoraSection(rank=2)), opened(tmp_path / "out")
    assert theirs.adapter is None
    (text, before), (again, after) = logprobs(ours), logprobs(theirs)
    assert text == again
    assert torch.allclose(before, after, atol=1e-5)
    from transformers import AutoModelForCausalLM

    assert (
        AutoModelForCausalLM.from_pretrained(tmp_path / "out").num_parameters()
        == done.figures["parameters"]
    )
    assert ModelMetadata.read(tmp_path / "out").recipe == "toy 0", (
        "what it was trained on goes with it"
    )
    assert {path.name for path in tmp_path.iterdir()} == {"out"}, "nothing half written is left"
    assert (tmp_path / "out" / "LICENSE").read_text() == "Do what you like.\n"
    assert head_of(tmp_path / "out")["license"] == "apache-2.0"


def adapter_of(base, folder, **options):
    """An adapter as peft saves it, every part of which does something."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base)
    options = {"target_modules": ["q_proj", "v_proj", "down_proj"], **options}
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", **options))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight += 0.1 * torch.randn(weight.shape, generator=generator)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return model.eval()


def plain_logprobs(model):
    ids = torch.arange(3, 60)[None] * 5 % 250
    return model(ids).logits[0].log_softmax(-1).gather(-1, ids.roll(-1)[0, :, None])[:-1]


@pytest.mark.parametrize(
    "options",
    [
        {"use_rslora": True},
        {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 32}},
        {"lora_dropout": 0.5},
        {"target_modules": r".*\.(q|v)_proj"},
        {"bias": "lora_only"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["merged", "gguf"])
@torch.no_grad()
def test_what_is_merged_gives_the_log_probabilities_of_the_adapter(
    tiny_folder, tmp_path, options, kind
):
    from transformers import AutoModelForCausalLM

    trained = adapter_of(tiny_folder, tmp_path / "adapter", **options)
    exported(
        tmp_path / "adapter", tmp_path / "out", kind=kind, gguf="f32" if kind == "gguf" else None
    )
    file = {"gguf_file": "out-f32.gguf"} if kind == "gguf" else {}
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "out", **file).eval()
    assert torch.allclose(plain_logprobs(ours), plain_logprobs(trained), atol=1e-4)
    before = AutoModelForCausalLM.from_pretrained(tiny_folder).eval()
    assert not torch.allclose(plain_logprobs(before), plain_logprobs(trained), atol=1e-2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"use_dora": True}, "q_proj has more to it"),
        ({"target_modules": ["q_proj"], "lora_bias": True}, "q_proj has more to it"),
        ({"target_modules": ["q_proj", "lm_head"]}, "have one weight"),
        (
            {"target_modules": ["q_proj", "embed_tokens"]},
            "embed_tokens is adapted by peft's Embedding",
        ),
        ({"modules_to_save": ["embed_tokens"]}, "ModulesToSaveWrapper"),
        ({"trainable_token_indices": [5, 6]}, "TrainableTokens"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")  # peft says of some that it would merge them wrongly, too
def test_what_cannot_be_merged_exactly_is_refused_before_anything_is_written(
    tmp_path, options, said, plumbline
):
    base = tiny(tmp_path / "base")
    adapter_of(base, tmp_path / "adapter", **options)
    for kind in ("merged", "gguf"):
        code, _, error = plumbline(
            "export", tmp_path / "adapter", "--out", tmp_path / "out", "--kind", kind
        )
        assert (code, "Traceback" in error) == (1, False)
        assert said in error
        assert "--kind adapter" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "base"]
    assert (
        plumbline("export", tmp_path / "adapter", "--out", tmp_path / "out", "--kind", "adapter")[0]
        == 0
    )
    with pytest.raises(EngineError, match=said):  # a run says the same before its first stage
        check_publication(
            EngineSection(name="vllm", publish="full"),
            weights.open_float32(str(tmp_path / "adapter")),
        )


@pytest.mark.parametrize("moe", ["mixtral", "olmoe", "qwen3_moe"])
def test_adapters_on_experts_are_refused(tiny_folder, tmp_path, moe):
    from transformers import AutoConfig, AutoModelForCausalLM

    shutil.copytree(tiny_folder, tmp_path / "moe")
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "moe_intermediate_size": 32,
        "num_hidden_layers": 1,
    }
    sizes |= {
        "vocab_size": 300,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_experts_per_tok": 2,
    }
    config = AutoConfig.for_model(
        moe, num_local_experts=4, num_experts=4, max_position_embeddings=256, **sizes
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "moe")
    with pytest.raises(EngineError, match="ParamWrapper"):
        round_weights(opened(tmp_path / "moe", lora=LoraSection(rank=2)), torch.float32)
    round_weights(
        opened(tmp_path / "moe", lora=LoraSection(rank=2, targets=["q_proj"])), torch.float32
    )


def test_a_merged_model_that_is_another_is_not_published(adapter, tmp_path, monkeypatch):
    from peft.tuners.lora import Linear

    true = Linear.get_delta_weight
    monkeypatch.setattr(Linear, "get_delta_weight", lambda *args: true(*args) / 2)
    with pytest.raises(ModelError, match="the merged model"):
        exported(adapter, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_generation_ends_with_is_kept(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path / "base")
    (tmp_path / "base" / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    opened(tmp_path / "base", lora=LoraSection(rank=2)).save(tmp_path / "adapter", PLAIN)
    for source in ("base", "adapter"):
        exported(tmp_path / source, tmp_path / "out")
        assert json.loads((tmp_path / "out" / "generation_config.json").read_text())[
            "eos_token_id"
        ] == [2, 7]


def test_where_16_bits_are_stored_the_card_says_what_is_left_and_what_it_costs(
    adapter, tmp_path, plumbline
):
    code, out, err = plumbline(
        "export",
        adapter,
        "--out",
        tmp_path / "out",
        "--dtype",
        "bfloat16",
        "--evaluate",
        5,
        "--json",
    )
    assert code == 0, err
    said = json.loads(out)
    share = said["figures"]["arrived"]["share"]
    assert 0.9 < share < 1.1
    assert share != 1
    (change,) = said["changes"]
    assert change["n"] == 5
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"left {share:.1%} of the update" in card
    assert f"on n = {change['n']}" in card
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    from safetensors.torch import load_file

    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}


def test_a_small_update_does_not_survive_16_bits_and_that_is_said(tiny_folder, tmp_path):
    policy = opened(tiny_folder, lora=LoraSection(rank=2))
    redraw(policy, 1e-4)
    policy.save(tmp_path / "adapter", PLAIN)
    done = exported(tmp_path / "adapter", tmp_path / "out", dtype="bfloat16")
    assert done.figures["arrived"]["elements"] < 0.2


def test_of_a_model_whose_every_weight_was_trained_the_base_says_what_was_learnt(
    tiny_folder, tmp_path
):
    policy = opened(tiny_folder)
    move(policy, 0.01)
    policy.save(tmp_path / "trained", PLAIN)
    (tmp_path / "out").mkdir()
    done = write_merged(
        policy, tmp_path / "out", "bfloat16", str(tiny_folder), str(tmp_path / "trained")
    )
    assert done.compared_with == str(tiny_folder)
    assert done.arrived.share == pytest.approx(1, abs=0.1)


def test_an_adapter_goes_alone_and_names_its_base_as_the_world_does(adapter, tmp_path):
    done = exported(adapter, tmp_path / "out", kind="adapter", base="org/base")
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (
        config["base_model_name_or_path"] == "org/base" == head_of(tmp_path / "out")["base_model"]
    )
    name = "adapter_model.safetensors"
    assert (tmp_path / "out" / name).read_bytes() == (adapter / name).read_bytes()
    assert not (tmp_path / "out" / "model.safetensors").exists()
    trained = opened(adapter, lora=LoraSection(rank=2)).trainable()
    assert done.figures["parameters"] == sum(math.prod(weight.shape) for weight in trained.values())
    unnamed = exported(adapter, tmp_path / "other", kind="adapter")
    assert any("--base NAME" in sentence for sentence in unnamed.said)


@pytest.mark.parametrize("stored", KINDS)
def test_a_gguf_file_is_read_back_as_the_model_that_it_was_made_of(adapter, tmp_path, stored):
    done = exported(adapter, tmp_path / "out", kind="gguf", gguf=stored)
    (path,) = (tmp_path / "out").glob("*.gguf")
    assert path.name == f"out-{stored}.gguf"
    figures = done.figures
    assert figures["weights"] <= figures["allowed"]
    assert figures["same_ids"]
    assert figures["tokens"] > 100
    limit = {"f32": 1e-5, "f16": 0.01, "bf16": 0.1, "q8_0": 0.3}[stored]
    assert 0 <= figures["mean"] <= figures["logprob"] < limit
    if stored == "f32":
        ours, theirs = logprobs(opened(adapter, lora=LoraSection(rank=2))), logprobs(opened(path))
        assert ours[0] == theirs[0]
    import gguf

    fields = gguf.GGUFReader(path).fields
    assert fields["tokenizer.ggml.pre"].contents() == "smollm"
    assert "message" in fields["tokenizer.chat_template"].contents()
    assert fields["general.license"].contents() == "apache-2.0"


@pytest.mark.parametrize("shape", ["qwen2", "qwen3"])
def test_qwens_shapes_are_written_in_their_own_order(tiny_folder, tmp_path, shape):
    """Rotary halves are not interleaved there; queries and keys have biases, or norms: the read
    back would differ."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shutil.copytree(tiny_folder, tmp_path / "qwen")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 300}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 256}
    wide = {"head_dim": 128} if shape == "qwen3" else {}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(shape, **sizes, **wide))
    for name, weight in model.named_parameters():
        if name.endswith(".bias"):
            torch.nn.init.normal_(weight)
    model.save_pretrained(tmp_path / "qwen")
    policy = opened(tmp_path / "qwen")
    write_gguf(policy, tmp_path / "x.gguf", "f32", {"name": "x"})
    found = compare(policy, opened(tmp_path / "x.gguf"), "f32")
    assert (found.weights, found.logprob < 1e-5) == (0.0, True)


def test_a_file_that_holds_something_else_is_refused(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(gguf_writer.SHAPES, "llama", False)  # the rotary halves as they are
    with pytest.raises(ModelError, match="GGUF file"):
        exported(tiny_folder, tmp_path / "out", kind="gguf")
    assert list(tmp_path.iterdir()) == []


def test_what_llama_cpp_would_misread_is_refused_with_its_reason(tiny_folder, tmp_path):
    config = json.loads((tiny_folder / "config.json").read_text())
    for change, said in (
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
            "stretched",
        ),
        ({"hidden_act": "gelu"}, "gelu, not silu"),
    ):
        folder = tmp_path / said.split()[0]
        shutil.copytree(tiny_folder, folder)
        (folder / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(ModelError, match=said):
            exported(folder, tmp_path / "out", kind="gguf")
    from tokenizers import pre_tokenizers

    policy = opened(tiny_folder)
    policy.chat.tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(ModelError, match="smollm, qwen2, llama-bpe"):
        write_gguf(policy, tmp_path / "x.gguf", "f16", {"name": "x"})


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (["ByteLevel"], "gpt-2"),
        (["Digits", "ByteLevel"], "smollm"),
        ([r"\p{N}", "bytes"], "qwen2"),
        ([r"\p{N}{1,3}", "bytes"], "llama-bpe"),
    ],
)
def test_the_way_to_split_text_is_known_by_llama_cpps_name(tiny_folder, parts, name):
    from tokenizers import Regex, pre_tokenizers
    from transformers.models.qwen2 import tokenization_qwen2

    qwen = tokenization_qwen2.PRETOKENIZE_REGEX
    steps = {
        "ByteLevel": pre_tokenizers.ByteLevel(add_prefix_space=False),
        "bytes": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        "Digits": pre_tokenizers.Digits(individual_digits=True),
    }
    built = [
        steps.get(part)
        or pre_tokenizers.Split(Regex(qwen.replace(r"|\p{N}|", f"|{part}|")), "isolated")
        for part in parts
    ]
    policy = opened(tiny_folder)
    policy.chat.tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(built)
    assert gguf_writer.check_writable(policy) == name


@pytest.mark.parametrize("family", ["autoregressive", "masked", "flow"])
def test_adapters_of_other_families_on_a_causal_model_are_merged_too(tiny_folder, tmp_path, family):
    section = {} if family == "autoregressive" else {"canvas": 8}
    section |= {"mask_token": "<|endoftext|>"} if family == "masked" else {}
    base = tmp_path / "base"
    shutil.copytree(tiny_folder, base)
    policy = opened(base, family, lora=LoraSection(rank=2), **section)
    redraw(policy, 0.05)
    card = ModelMetadata(
        recipe="toy 0", stage="sft", task="tests.toy:open_toy", options={"size": 20}, model=section
    )
    policy.save(tmp_path / "adapter", card.to_json())
    exported(tmp_path / "adapter", tmp_path / "out", dtype="bfloat16")
    ours = opened(tmp_path / "out", family, **section)
    assert (weights.measure_logprobs(ours) - weights.measure_logprobs(policy)).abs().mean() < 0.05


@pytest.mark.parametrize("family", ["masked", "slots", "flow"])
def test_the_other_families_are_merged_in_their_own_format_and_are_no_gguf(tmp_path, family):
    source = tmp_path / "source"
    opened(tiny(tmp_path / "made", family), family).save(source, PLAIN)
    exported(source, tmp_path / "out", dtype="bfloat16")
    ours, theirs = (opened(one, family).model.state_dict() for one in (source, tmp_path / "out"))
    assert {name: weight.bfloat16().float().tolist() for name, weight in ours.items()} == {
        name: weight.float().tolist() for name, weight in theirs.items()
    }
    with pytest.raises(ModelError, match=f"of family {family}"):
        exported(source, tmp_path / "gguf", kind="gguf")
    with pytest.raises(ModelError, match="is no adapter"):
        exported(source, tmp_path / "gguf", kind="adapter")
    assert not (tmp_path / "gguf").exists()


def test_what_an_export_made_is_written_over(tiny_folder, tmp_path, plumbline):
    for _ in range(2):
        assert plumbline("export", tiny_folder, "--out", tmp_path / "out")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    "name",
    """adapter/LICENSE adapter/notes.txt adapter/tokenizer.model adapter/adapter_model.safetensors base/LICENSE
    base/README.md base/tokenizer.model base/spiece.model base/additional_chat_templates/x.jinja""".split(),  # noqa: SIM905
)
@pytest.mark.parametrize("kind", ["adapter", "merged"])
def test_no_link_out_of_a_models_folder_is_followed(adapter, tmp_path, name, kind):
    shutil.copytree(adapter, tmp_path / "adapter")
    shutil.copytree(adapter_base(str(adapter)), tmp_path / "base")
    config = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    config["base_model_name_or_path"] = str(tmp_path / "base")
    (tmp_path / "adapter/adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "secret").write_text("of the user")
    if name.endswith("safetensors"):
        shutil.move(tmp_path / name, tmp_path / "secret")
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError, match=r"link to .*secret"):
        exported(tmp_path / "adapter", tmp_path / "out", kind=kind)
    assert not (tmp_path / "out").exists()


def test_links_of_the_hubs_cache_and_within_a_folder_are_followed(adapter, tmp_path):
    repository = tmp_path / "models--org--adapter"
    (repository / "blobs").mkdir(parents=True)
    snapshot = repository / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(adapter.iterdir())):
        shutil.copy(path, repository / "blobs" / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    (snapshot / "NOTICE").symlink_to("adapter_config.json")
    exported(snapshot, tmp_path / "out", kind="adapter")
    name = "adapter_model.safetensors"
    assert (tmp_path / "out" / name).read_bytes() == (adapter / name).read_bytes()
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())
    (tmp_path / "secret").touch()
    (snapshot / "NOTICE").unlink()
    (snapshot / "NOTICE").symlink_to("../../../secret")
    with pytest.raises(ModelError, match="is a link to"):
        exported(snapshot, tmp_path / "out", kind="adapter")


def test_of_an_adapter_nothing_of_its_trainer_is_exported(adapter, tmp_path):
    source = shutil.copytree(adapter, tmp_path / "checkpoint-50")
    state = (
        "optimizer.pt scheduler.pt scaler.pt training_args.bin rng_state.pth rng_state_0.pth "
        "trainer_state.json a.pkl"
    )
    for (
        name
    ) in f"{state} optimizer.safetensors README.md notes.txt .env rows.json .remote.json".split():
        (source / name).write_text("{}")
    (source / "global_step50").mkdir()
    before = exported(adapter, tmp_path / "plain", kind="adapter")
    for _ in range(2):
        done = exported(source, tmp_path / "out", kind="adapter")
        assert done.files == before.files
        assert {path.name for path in (tmp_path / "out").iterdir()} == {*before.files}
    assert "adapter_config.json" in done.files
    assert "tokenizer.json" in done.files


def test_a_licence_is_the_one_that_the_files_or_the_catalogue_say_or_unknown(tmp_path):
    folder = tmp_path / "somebody"
    folder.mkdir()
    assert (find_base(str(folder)).licence, find_base(str(folder)).public) == (UNKNOWN, False)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    assert find_base(str(folder)).licence == "mit"
    (folder / "origin.json").write_text('{"model": "smollm2-135m", "licence": "Apache-2.0"}')
    found = find_base(str(folder))
    assert (found.name, found.licence) == ("HuggingFaceTB/SmolLM2-135M-Instruct", "Apache-2.0")
    assert find_base("org/nobody-knows").licence == UNKNOWN
    assert find_base("HuggingFaceTB/SmolLM2-135M-Instruct").licence == "Apache-2.0"
    assert Path(found.source) == folder
