"""A model opens, or one sentence says why not: whatever its files hold, by whatever way it is
opened."""

import http.server
import json
import os
import pickle
import shutil
import struct
import sys
import threading
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from plumbline.api import sample_trajectories
from plumbline.errors import DataError, ModelError, PlumblineError
from plumbline.export.export import Export, export
from plumbline.policies import open_policy
from plumbline.policies.library_errors import clear_opening_errors
from plumbline.policies.opening import check_model, check_source
from plumbline.policies.pretrained.chat import CHATML
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.recipe import LoraSection, ModelSection, TinySection, options_of
from plumbline.records import Sampling
from plumbline.runs.run import Observer
from tests.policies.families import SAMPLINGS, edit
from tests.policies.families import opened as open_lively
from tests.policies.published import WORDS
from tests.policies.test_published import MASKED, llada

CHAT = [{"role": "user", "content": "nota?"}]
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 3\n"
LORA = LoraSection(rank=2)
TINY = TinySection(hidden=32, layers=2, heads=2, vocabulary=300, context=256)


@pytest.fixture
def copy(tiny_folder, tmp_path):
    return shutil.copytree(tiny_folder, tmp_path / "model")


@pytest.fixture(scope="module")
def _adapter(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "adapter"
    opened(tiny_folder, lora=LORA).save(folder, {})
    return folder


@pytest.fixture
def adapter(_adapter, tmp_path):
    return shutil.copytree(_adapter, tmp_path / "adapter")


def opened(folder, family="autoregressive", **options):
    return open_policy(options_of(family).model(name=str(folder), **options), str(folder))


def text(name, value):
    return lambda folder: (folder / name).write_bytes(
        value if isinstance(value, bytes) else value.encode()
    )


def key(file, **values):
    def change(folder):
        if not (folder / file).is_file():
            (folder / file).write_text("{}")
        (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | values))

    return change


def template(source):
    def change(folder):
        edit(folder / "tokenizer_config.json", chat_template=None)
        (folder / "chat_template.jinja").write_text(source)

    return change


def shards(weight_map):
    def change(folder):
        (folder / "model.safetensors").rename(folder / "a.safetensors")
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {}, "weight_map": weight_map})
        )

    return change


def instead(name, content):
    def change(folder):
        next(folder.glob("*.safetensors")).unlink()
        (folder / name).write_bytes(content)

    return change


def tokenizer(part, value):
    return lambda folder: edit(folder / "tokenizer.json", **{part: value})


def header(**first):
    """The weights' file with another header for the first weight."""

    def change(folder):
        path = next(folder.glob("*.safetensors"))
        whole = path.read_bytes()
        size = struct.unpack("<Q", whole[:8])[0]
        values = json.loads(whole[8 : 8 + size])
        values[next(name for name in values if name != "__metadata__")] |= first
        made = json.dumps(values).encode()
        path.write_bytes(struct.pack("<Q", len(made)) + made + whole[8 + size :])

    return change


def in_model(folder, **values):
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    edit(folder / "tokenizer.json", model={**model, **values})


def replace_by(text, content):
    return {"type": "Replace", "pattern": {"String": text}, "content": content}


DOUBLES = {"type": "Replace", "pattern": {"Regex": "(?=b)"}, "content": "b"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
SPLIT = {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}
# leads out of its own table
CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": "CAAAAP//////////YWJjAA=="}
TWICE = {"type": "Replace", "pattern": {"Regex": "(.)"}, "content": "aa"}


def weights(change):
    def of_all(folder):
        path = next(folder.glob("*.safetensors"))
        save_file(change(load_file(path)), path, metadata={"format": "pt"})

    return of_all


def first_100(of):
    return {
        name: each[:100].contiguous() if each.shape[0] == 300 else each for name, each in of.items()
    }


def endless(name, how):
    def change(folder):
        (folder / name).unlink(missing_ok=True)
        if how == "pipe":
            os.mkfifo(folder / name)
        elif how == "sparse":
            (folder / name).touch()
            os.truncate(folder / name, 6 * 10**9)
        else:
            (folder / name).symlink_to(how)

    return change


DOWN = "model.layers.0.mlp.down_proj.weight"
DAMAGED = {
    "no heads": (
        key("config.json", num_attention_heads=0),
        "num_attention_heads: 0, which is no size",
    ),
    "more labels than words": (
        key("config.json", num_labels=10**7),
        "num_labels: 10000000, which is no size",
    ),
    "layers of images": (
        key("config.json", vision_config={"num_hidden_layers": 10**9}),
        "num_hidden_layers: 10000000",
    ),
    **{
        f"far larger: {kind}, {name}": (
            key("config.json", model_type=kind, **{name: value}),
            "far larger than its we",
        )
        for kind, name, value in (
            ("llama", "hidden_size", 2**20),
            ("llama", "intermediate_size", 10**9),
            ("llama", "vocab_size", 2**26),
            ("llama", "head_dim", 10**9),
            ("mixtral", "num_local_experts", 10**9),
            ("qwen2_moe", "num_experts", 10**7),
            ("mamba", "state_size", 10**9),
            ("mamba", "conv_kernel", 10**9),
            ("gpt2", "max_position_embeddings", 10**9),
        )
    },
    **{
        f"setting: {name} {value}": (
            key("config.json", plumbline={name: value}),
            f"which is no {name}",
        )
        for name in ("family", "attention", "quantize", "canvas", "predicts_next")
        for value in (["x"], {"x": 1}, 0.5)
    },
    "settings": (key("config.json", plumbline=["family"]), "which is no plumbline"),
    **{
        f"{name} {how}": (endless(name, how), "named pipe|is a device|too large|no config.json")
        for name, ways in {
            **dict.fromkeys(
                ("tokenizer.json", "chat_template.jinja"),
                ("pipe", "/dev/zero", "/dev/full", "sparse"),
            ),
            **dict.fromkeys(
                ("config.json", "tokenizer_config.json", "generation_config.json"),
                ("pipe", "sparse"),
            ),
            **dict.fromkeys(
                ("model.safetensors", "plumbline.json", "added_tokens.json"), ("pipe", "/dev/zero")
            ),
        }.items()
        for how in ways
    },
    "negative": (key("config.json", hidden_size=-1), "hidden_size: -1, which is no size"),
    "a billion layers": (
        key("config.json", num_hidden_layers=10**9),
        "num_hidden_layers: 1000000000, which is no",
    ),
    "odd sizes": (
        key("config.json", intermediate_size=[1, "a"]),
        "cannot load a causal language model",
    ),
    "odd rope": (
        key("config.json", rope_parameters={"rope_type": "yarn", "factor": "a"}),
        "cannot load a causal",
    ),
    "odd layers": (key("config.json", layer_types=["a"]), "cannot load a causal language model"),
    "another's code": (
        key("config.json", attn_implementation="kernels/evil"),
        "code that would be fetched and run",
    ),
    "no window": (
        key("config.json", sliding_window=0),
        "sliding_window: 0, a window through which no token is seen",
    ),
    "ends of words": (key("generation_config.json", eos_token_id="</s>"), "generation"),
    "odd ends": (key("generation_config.json", eos_token_id=[1, [2]]), "generation"),
    "generation list": (
        text("generation_config.json", "[1]"),
        "cannot load a causal language model",
    ),
    "tokenizer list": (text("tokenizer.json", "[1]"), "cannot load a tokenizer"),
    "tokenizer deep": (text("tokenizer_config.json", "[" * 10**5), "cannot load a tokenizer"),
    "odd pattern": (tokenizer("pre_tokenizer", SPLIT), "cannot load a tokenizer"),
    "growing": (
        tokenizer("normalizer", {"type": "Sequence", "normalizers": [TWICE] * 24}),
        "may make a text|makes over",
    ),
    **{
        f"growing {name}": (
            tokenizer(part, {"type": "Sequence", key: [value] * 30}),
            "may make a text",
        )
        for name, part, key, value in (
            ("of a rare letter", "normalizer", "normalizers", replace_by("\u00df", "\u00df\u00df")),
            ("of nothing", "normalizer", "normalizers", replace_by("", "a")),
            ("before", "normalizer", "normalizers", {"type": "Prepend", "prepend": "a" * 999}),
            ("bytes", "pre_tokenizer", "pretokenizers", BYTES),
            ("answers", "decoder", "decoders", replace_by("a", "aa")),
            ("suffixes", "decoder", "decoders", {"type": "BPEDecoder", "suffix": ""}),
        )
    },
    "growing in a sequence": (
        tokenizer(
            "decoder",
            {"type": "Sequence", "decoders": [{"type": "Sequence", "decoders": [DOUBLES] * 9}]},
        ),
        "may make a text",
    ),
    "failing normalizer": (tokenizer("normalizer", CHARSMAP), "cannot load a tokenizer"),
    "dropout": (lambda f: in_model(f, dropout=0.1), "draws at random"),
    "special list": (
        text("special_tokens_map.json", '{"eos_token": [1]}'),
        "cannot load a tokenizer",
    ),
    "odd special": (key("tokenizer_config.json", eos_token={"a": 1}), "cannot load a tokenizer"),
    "template raises": (template("{{ 1 / 0 }}"), "chat template .* division by zero"),
    "template huge": (template("{{ 'x' * 3000000 }}"), "any prompt"),
    "cut": (
        lambda f: text("model.safetensors", (f / "model.safetensors").read_bytes()[:-9])(f),
        "is cut off: ",
    ),
    "pointer": (
        text("model.safetensors", POINTER),
        "model.safetensors is a pointer of Git LFS, and not the weights",
    ),
    "tokenizer pointer": (
        text("tokenizer.json", POINTER),
        "tokenizer.json is a pointer of Git LFS",
    ),
    "offsets": (header(data_offsets=[5, 1]), "cannot load a causal language model"),
    "endless offsets": (
        text(
            "model.safetensors",
            b"\x2c" + bytes(7) + b'{"a":{"data_offsets":[0,1e400]}}            ',
        ),
        "is damaged: its header is none of safetensors",
    ),
    "dtype": (header(dtype="X"), "cannot load a causal language model"),
    "elsewhere": (
        shards({"model.norm.weight": "../../../etc/passwd"}),
        "names a file that is not in its folder",
    ),
    "absolute": (
        shards({"model.norm.weight": "/etc/passwd"}),
        "names a file that is not in its folder",
    ),
    "no shard": (
        shards({"model.norm.weight": "gone.safetensors"}),
        "lacks 1 of the 1 files that its index names",
    ),
    "odd index": (shards([1]), "does not say which file holds which weight"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has a config and no weights"),
    "pickle of a list": (
        instead("pytorch_model.bin", pickle.dumps([1])),
        "cannot load a causal language model",
    ),
    "integers": (
        weights(
            lambda of: {
                name: each.to(torch.int8) if each.ndim == 2 else each for name, each in of.items()
            }
        ),
        r"holds .*\.weight as integers \(I8\), and its config.json has no quantization_config",
    ),
    "never written": (
        weights(lambda of: {name: torch.zeros_like(each) for name, each in of.items()}),
        "were never written: every embedding holds 0 alone",
    ),
    "no tokenizer": (
        lambda f: [(f / name).unlink() for name in ("tokenizer.json", "tokenizer_config.json")],
        "has a model and no tokenizer",
    ),
    "no causal model": (
        key("config.json", model_type="t5", architectures=["T5ForConditionalGeneration"]),
        "cannot load a causal language model",
    ),
    "junk": (
        text("model.safetensors", b"not safetensors"),
        "cannot load a causal language model|is cut off",
    ),
    "one weight less": (
        weights(lambda of: {name: each for name, each in of.items() if name != DOWN}),
        "is of another model: it lacks 1 weights",
    ),
    "one weight more": (
        weights(lambda of: {**of, "model.extra.weight": torch.zeros(2)}),
        "also has 1 weights",
    ),
    "another shape": (
        weights(lambda of: {**of, DOWN: torch.zeros(3, 3)}),
        "another (shape|model)|cannot load",
    ),
    "fewer embeddings": (
        lambda f: (key("config.json", vocab_size=100)(f), weights(first_100)(f)),
        "has 300 tokens, but the model has embeddings for 100",
    ),
    "bin pointer": (instead("pytorch_model.bin", POINTER), "is a pointer of Git LFS"),
}
DAMAGED_ADAPTERS = {
    "pattern": (
        key("adapter_config.json", target_modules="("),
        "the adapter in .* is of another model",
    ),
    "rank 0": (key("adapter_config.json", r=0), "is damaged, or of an adapter that is no LoRA"),
    "rank of words": (
        key("adapter_config.json", rank_pattern={"(": 3}),
        "the adapter in .* is of another model",
    ),
    "rank of a pattern": (
        key("adapter_config.json", rank_pattern={".*": 10**9}),
        "has a rank of 1,000,000,000",
    ),
    "layers again": (
        key("adapter_config.json", layer_replication=[[0, 2]] * 20000),
        "repeats 40,000 layers",
    ),
    "begun by its base": (
        key("adapter_config.json", init_lora_weights="pissa_niter_100000000"),
        "changes its base",
    ),
    "begun by a list": (key("adapter_config.json", init_lora_weights=[1]), "changes its base"),
    "setting": (key("plumbline.json", model={"family": ["x"]}), "which is no family"),
    "settings": (key("plumbline.json", model="x"), "which is no model"),
    "no rank": (
        lambda f: edit(f / "adapter_config.json", r=None),
        "is damaged, or of an adapter that is no LoRA",
    ),
    "another shape": (
        weights(lambda of: {**of, next(iter(of)): torch.zeros(7, 7)}),
        "the adapter in .* is of another model",
    ),
    "another kind": (
        key("adapter_config.json", peft_type="NONE"),
        "the adapter in .* is of another model",
    ),
    "odd bias": (key("adapter_config.json", bias=3), "the adapter in .* is of another model"),
    "no weights": (
        lambda f: (f / "adapter_model.safetensors").unlink(),
        "has a config and no weights",
    ),
    "pickle": (
        instead("adapter_model.bin", pickle.dumps({"a": 1})),
        "the adapter in .* is of another model",
    ),
    "junk": (instead("adapter_model.bin", b"x"), "the adapter in .* is of another model"),
    "pointer": (
        text("adapter_model.safetensors", POINTER),
        "is a pointer of Git LFS, and not the weights",
    ),
    "offsets": (header(data_offsets=[5, 1]), "the adapter in .* is of another model"),
    "of itself": (
        lambda f: edit(f / "adapter_config.json", base_model_name_or_path=str(f)),
        "is an adapter itself",
    ),
    "an address": (
        key("adapter_config.json", base_model_name_or_path="file:///etc"),
        "names a base model at the addr",
    ),
}


def refused(folder, message, **options):
    with pytest.raises(ModelError, match=message) as caught:
        opened(folder, **options)
    assert caught.value.fix
    assert len(caught.value.cause.splitlines()) == 1
    assert str(folder) in caught.value.cause


@pytest.mark.parametrize("name", DAMAGED)
def test_whatever_is_wrong_with_a_model_is_one_error(copy, name):
    damage, message = DAMAGED[name]
    damage(copy)
    refused(copy, message)


@pytest.mark.parametrize("name", DAMAGED_ADAPTERS)
def test_whatever_is_wrong_with_an_adapter_is_one_error(adapter, name):
    damage, message = DAMAGED_ADAPTERS[name]
    damage(adapter)
    refused(adapter, message, lora=LORA)


def test_an_answer_that_the_tokenizer_cannot_write(copy):
    edit(
        copy / "tokenizer.json",
        decoder={"type": "Strip", "content": "a", "start": 10**9, "stop": 10**9},
    )
    chat = opened(copy).chat
    with pytest.raises(ModelError, match="answer as text"):
        chat.text(chat.tokenizer("aa aa")["input_ids"])


@pytest.mark.parametrize(
    "parts",
    [
        [
            {"type": "NFKC"},
            replace_by("``", '"'),
            replace_by(" ", "\u2581"),
            {"type": "Prepend", "prepend": "\u2581"},
        ],
        [
            {"type": "Replace", "pattern": {"Regex": one}, "content": " "}
            for one in (r"\s+", " {2,}", "[\n\r\t]", "x")
        ],
        [replace_by(one, '"') for one in "\u201c\u201d\u201e\u00ab\u00bb\u2018\u2019"] * 9,
    ],
)
def test_normalizers_that_make_no_text_longer_are_taken(copy, parts):
    edit(copy / "tokenizer.json", normalizer={"type": "Sequence", "normalizers": parts})
    assert opened(copy).chat.prompt(CHAT)


def test_what_an_adapter_began_with_is_not_done_again(adapter, monkeypatch):
    """Its matrices are read; a costly start would be for nothing."""
    key("adapter_config.json", init_lora_weights="orthogonal")(adapter)
    monkeypatch.setattr("peft.tuners.lora.layer.LoraLayer.orthogonal_init", None)
    assert opened(adapter, lora=LORA).adapter is not None


def test_layers_that_an_adapter_repeats(adapter):
    key("adapter_config.json", layer_replication=[[0, 2], [0, 0]])(adapter)
    assert opened(adapter, lora=LORA).adapter is not None


def test_the_border_lets_interrupts_and_full_memory_pass():
    class PanicException(BaseException):  # as pyo3's
        pass

    for error in (
        RecursionError("deep"),
        MemoryError(),
        KeyError("a"),
        PanicException("index out of bounds"),
    ):
        with (
            pytest.raises(ModelError, match="the part: "),
            clear_opening_errors("the part", "mend it"),
        ):
            raise error
    for error in (
        KeyboardInterrupt(),
        SystemExit(1),
        torch.OutOfMemoryError("out of memory"),
        DataError("a row"),
    ):
        with pytest.raises(type(error)), clear_opening_errors("the part", "mend it"):
            raise error


@pytest.mark.parametrize(
    "name", ["pointer", "cut", "no shard", "elsewhere", "no window", "no heads"]
)
def test_one_fault_has_one_sentence_by_every_way(copy, tmp_path, name):
    DAMAGED[name][0](copy)
    section = ModelSection(name=str(copy))
    causes = []
    for attempt in (
        lambda: opened(copy),
        lambda: check_model(section, str(copy)),
        lambda: export(Export(model=str(copy), out=tmp_path / "out"), Observer()),
    ):
        with pytest.raises(PlumblineError) as caught:
            attempt()
        causes.append(caught.value.cause)
    assert len(set(causes)) == 1


def test_a_missing_model(tmp_path):
    with pytest.raises(ModelError, match="absent"):
        opened(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"no config\.json"):
        opened(tmp_path / "empty")


def test_a_tokenizer_without_a_chat_template_and_two_ways_to_give_one(copy, tmp_path):
    (copy / "chat_template.jinja").unlink(missing_ok=True)
    edit(copy / "tokenizer_config.json", chat_template=None)
    with pytest.raises(ModelError, match="no chat template"):
        opened(copy)
    chat = [{"role": "user", "content": "oi"}]
    by_name = opened(copy, chat_template="chatml").chat.prompt(chat)
    (tmp_path / "template.jinja").write_text(CHATML)
    assert opened(copy, chat_template=str(tmp_path / "template.jinja")).chat.prompt(chat) == by_name
    with pytest.raises(ModelError, match=r"absent\.jinja"):
        opened(copy, chat_template=str(tmp_path / "absent.jinja"))


@pytest.fixture(scope="module")
def adapter_on_two(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two") / "adapter"
    opened(tiny_folder, lora=LoraSection(rank=2, alpha=4, targets=["q_proj", "v_proj"])).save(
        folder, {}
    )
    return folder


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"lora": LoraSection(rank=32, alpha=4)},
            "adapter of rank 2 and alpha 4, .* trains one of rank 32",
        ),
        ({"lora": LoraSection(rank=2, alpha=32)}, "trains one of rank 2 and alpha 32"),
        ({}, "and the recipe trains all weights"),
        (
            {"lora": LoraSection(rank=2, alpha=4)},
            r"on other layers than model\.lora\.targets asks for: 10 differ",
        ),
        ({"lora": LoraSection(rank=2, alpha=4, targets=["q_proj"])}, "2 differ .*v_proj"),
        ({"lora": LoraSection(rank=2, alpha=4, targets=r".*\.q_proj")}, "2 differ .*v_proj"),
        (
            {
                "lora": LoraSection(rank=2, alpha=4, targets=["q_proj", "v_proj"]),
                "family": "masked",
            },
            "of family autoreg",
        ),
    ],
    ids=["rank", "alpha", "all weights", "all layers", "fewer layers", "a pattern", "family"],
)
def test_an_adapter_keeps_its_settings_and_says_so(adapter_on_two, asked, message):
    """It was opened with its own, whatever the recipe said."""
    with pytest.raises(ModelError, match=message):
        opened(adapter_on_two, **asked)


@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], r".*\.(q|v)_proj"])
def test_the_layers_of_an_adapter_may_be_said_by_a_pattern(adapter_on_two, targets):
    again = opened(adapter_on_two, lora=LoraSection(rank=2, alpha=4, targets=targets))
    assert {weight.shape[0] for name, weight in again.trainable().items() if "lora_A" in name} == {
        2
    }


def test_an_adapter_on_all_layers_is_that_of_the_default_targets(copy, tmp_path):
    opened(copy, lora=LoraSection(rank=2)).save(tmp_path / "adapter", {})
    assert opened(tmp_path / "adapter", lora=LoraSection(rank=2)).adapter is not None


def test_a_base_in_4_bits_belongs_to_its_adapter(copy, tmp_path):
    opened(copy, lora=LoraSection(rank=2)).save(
        tmp_path / "adapter", {"model": {"quantize": "4bit"}}
    )
    with pytest.raises(ModelError, match="quantize: 4bit"):
        opened(tmp_path / "adapter", lora=LoraSection(rank=2))


def test_lora_on_layers_that_are_not_there(copy):
    with pytest.raises(ModelError, match=r"model\.lora\.targets"):
        opened(copy, lora=LoraSection(targets=["no_such_layer"]))


def test_a_context_longer_than_the_model_was_made_for(copy):
    with pytest.raises(ModelError, match="made for 256 tokens"):
        opened(copy, context=4096)
    assert opened(copy, context=64).context == 64


def test_four_bits_without_bitsandbytes(copy, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ModelError, match="needs bitsandbytes"):
        opened(copy, quantize="4bit", lora=LoraSection())


# -- weights and logits that are no numbers --------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", ["model", "adapter"])
def test_a_weight_that_is_no_number_is_named(copy, adapter, which, value):
    path = copy / "model.safetensors" if which == "model" else adapter / "adapter_model.safetensors"
    weights = load_file(path)
    name = sorted(weights)[-1]
    weights[name].view(-1)[-1] = value
    save_file(weights, path, metadata={"format": "pt"})
    stem = name.removeprefix("base_model.model.").removesuffix(".weight")
    refused(
        path.parent, f"are not finite: .*{stem}", **({} if which == "model" else {"lora": LORA})
    )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("family", SAMPLINGS)
def test_logits_that_are_no_numbers_are_an_error_when_a_token_is_drawn(
    family_folders, family, temperature
):
    policy = open_lively(family, family_folders[family])
    with torch.no_grad():
        policy.model.get_output_embeddings().weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="not finite"):
        sample_trajectories(
            policy, [CHAT], 2, replace(SAMPLINGS[family], temperature=temperature), 0
        )


# -- the network -----------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """What was asked of a listener that stands for the hub."""
    found = []

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found.append(f"{self.command} {self.path} {self.headers.get('authorization')}")
            self.send_response(404)
            self.end_headers()

        do_HEAD = do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(
        constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        address + "/{repo_id}/resolve/{revision}/{filename}",
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    yield found
    server.shutdown()


def test_nothing_of_a_local_path_is_asked_of_any_server(adapter, copy, asked, monkeypatch):
    monkeypatch.chdir(adapter.parent)
    edit(adapter / "adapter_config.json", base_model_name_or_path="model")
    opened("adapter", lora=LORA).save(adapter.parent / "saved", {})
    for damage in ("no weights", "junk", "pickle"):
        broken = shutil.copytree(adapter, adapter.parent / damage.replace(" ", "-"))
        DAMAGED_ADAPTERS[damage][0](broken)
        with pytest.raises(ModelError):
            opened(broken.name, lora=LORA)
    for gone in ("tokenizer.json", "generation_config.json", "model.safetensors"):
        (copy / gone).unlink(missing_ok=True)
        for family in ("autoregressive", "masked", "slots"):
            with pytest.raises(PlumblineError):
                opened("model", family)
    assert asked == []


def test_a_base_at_an_address_is_not_fetched_because_a_file_says_so(
    adapter, asked, monkeypatch, tmp_path
):
    """It is where this machine fetched it from before, at its user's word."""
    from huggingface_hub import constants

    base = f"{constants.ENDPOINT}/latest/meta-data/iam"
    edit(adapter / "adapter_config.json", base_model_name_or_path=base)
    for attempt in (
        lambda: opened(adapter, lora=LORA),
        lambda: check_model(ModelSection(name="x"), str(adapter)),
    ):
        with pytest.raises(ModelError, match="nothing is fetched"):
            attempt()
    assert asked == []
    monkeypatch.setenv("PLUMBLINE_CACHE", str(tmp_path / "cache"))
    for place in (adapter, tmp_path / "cache/runs/hash/name/models/rl"):  # where others leave files
        place.mkdir(parents=True, exist_ok=True)
        (place / ".remote.json").write_text(json.dumps({"address": base}))
    with pytest.raises(ModelError, match="nothing is fetched"):
        opened(adapter, lora=LORA)
    assert asked == []
    (tmp_path / "cache" / "models" / "hash" / "iam").mkdir(parents=True)
    (tmp_path / "cache" / "models" / "hash" / "iam" / ".remote.json").write_text(
        json.dumps({"address": base})
    )
    with pytest.raises(PlumblineError):
        check_model(ModelSection(name="x"), str(adapter))
    assert asked, "as it was fetched before"


# -- bounds ----------------------------------------------------------------------------------------


def test_a_pattern_that_takes_years_is_given_up(adapter, monkeypatch):
    monkeypatch.setattr("plumbline.policies.pretrained.causal_model.PATIENCE", 0.5)
    edit(adapter / "adapter_config.json", target_modules="(([a-z0-9_.]+)+)+X")
    refused(
        adapter,
        "take over 0 s to be matched",
        lora=LoraSection(rank=2, targets="(([a-z0-9_.]+)+)+X"),
    )


def test_a_long_text_of_many_tokens_is_refused(tiny_folder):
    chat = opened(tiny_folder).chat
    with pytest.raises(DataError, match="any prompt"):
        chat.prompt([{"role": "user", "content": "x" * 10**6}])


# -- embeddings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["autoregressive", "flow"])
def test_a_token_without_an_embedding_is_refused_where_a_text_has_it(tmp_path, family):
    """Gemma 3's tokenizer has one for images, which its models of text alone have no row for."""
    make_tiny(tmp_path, TINY, WORDS, 0, family)
    from transformers import AutoTokenizer

    words = AutoTokenizer.from_pretrained(tmp_path)
    words.add_special_tokens({"additional_special_tokens": ["<image>"]})
    words.save_pretrained(tmp_path)
    with pytest.warns(
        UserWarning,
        match=f" {len(words)} tokens, .* {len(words) - 1}:",
    ):
        policy = opened(tmp_path, family, **({"canvas": 64} if family == "flow" else {}))
    for wrong in (
        lambda: policy.chat.prompt([{"role": "user", "content": "an <image>"}]),
        lambda: policy.demonstrate([*CHAT, {"role": "assistant", "content": "<image>"}]),
    ):
        with pytest.raises(DataError, match=f"<image>.* {len(words) - 1}:"):
            wrong()
    assert policy.chat.prompt(CHAT)


# -- architectures ---------------------------------------------------------------------------------

SIZES = {
    "vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": None, "eos_token_id": 2,
    "pad_token_id": 0,
}  # fmt: skip
KINDS = {
    "OPT": {"word_embed_proj_dim": 32, "ffn_dim": 64},
    "Mamba": {"state_size": 8},
    "Bloom": {"n_layer": 2, "n_head": 2},
    "Lfm2": {"layer_types": ["conv", "full_attention"]},
    "Gemma3Text": {"head_dim": 16},
    "GptOss": {"head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1},
    "Llama4Text": {
        "head_dim": 16,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 64,
        "attention_chunk_size": 32,
    },
}
MASKED_REFUSES = "cannot be read as a masked-diffusion model"


@pytest.mark.parametrize(
    ("kind", "family", "options", "message"),
    [
        ("OPT", "masked", {}, MASKED_REFUSES),
        ("Mamba", "masked", {}, MASKED_REFUSES),
        ("Bloom", "masked", {}, MASKED_REFUSES),
        ("Lfm2", "masked", {"attention": "prefix"}, MASKED_REFUSES),
        ("Gemma3Text", "flow", {}, "cannot be told the time"),
        ("GptOss", "flow", {}, "cannot be told the time"),
        ("Llama4Text", "autoregressive", {}, None),
    ],
)
def test_an_architecture_opens_or_is_refused(tmp_path, kind, family, options, message):
    import transformers

    make_tiny(tmp_path, TINY, WORDS, 0, "masked")
    config = getattr(transformers, f"{kind}Config")(**SIZES, **KINDS[kind])
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    canvas = {} if family == "autoregressive" else {"canvas": 8}
    if message is not None:
        refused(tmp_path, message, family=family, **canvas, **options)
        return
    policy = opened(tmp_path, family, **canvas, **options)
    (group,) = sample_trajectories(policy, [CHAT], 2, Sampling(max_tokens=6), 0)
    terms = policy.score(group)
    assert float((terms.logprobs - terms.recorded).abs().max()) < 1e-3


def test_a_window_that_no_layer_has_may_be_anything(copy):
    edit(
        copy / "config.json",
        model_type="qwen2",
        architectures=["Qwen2ForCausalLM"],
        sliding_window=0,
    )
    edit(copy / "config.json", use_sliding_window=False)
    with pytest.raises(ModelError, match="lacks"):  # a Qwen2 has biases; its window was no reason
        opened(copy)


def test_an_index_of_an_earlier_model_is_not_read(copy):
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    assert opened(copy).chat.prompt(CHAT)


SHARD = "model-00001-of-00001.safetensors"
TWICE = {
    "two formats": (
        ["pytorch_model.bin"],
        None,
        "model.safetensors is read, and pytorch_model.bin is not",
    ),
    "shards of another model": ([SHARD], SHARD, f"model.safetensors is read, and {SHARD} is not"),
    "under other names": (
        ["other.safetensors"],
        "other.safetensors",
        "and other.safetensors is not",
    ),
    "a file beside the index's": (
        [SHARD],
        "model.safetensors",
        f"model.safetensors is read, and {SHARD} is not",
    ),
    "no index": ([SHARD], None, f"model.safetensors is read, and {SHARD} is not"),
    "an adapter": (["adapter_model.safetensors"], None, "and adapter_model.safetensors is not"),
}


@pytest.mark.parametrize("case", TWICE)
@pytest.mark.parametrize("newer", [True, False])
def test_weights_beside_those_that_are_read_are_named(copy, case, newer):
    files, indexed, said = TWICE[case]
    for name in files:
        shutil.copy(copy / "model.safetensors", copy / name)
        os.utime(
            copy / name,
            (time := (copy / "model.safetensors").stat().st_mtime + (9 if newer else -9), time),
        )
    if indexed is not None:
        weights = load_file(copy / "model.safetensors")
        index = {"metadata": {}, "weight_map": dict.fromkeys(weights, indexed)}
        (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.warns(UserWarning, match="set of weights") as found:
        check_source(str(copy))
    assert said in str(found[0].message)
    assert ("which is newer" in str(found[0].message)) == newer


def test_an_adapter_beside_a_whole_model_is_what_is_read_and_says_so(adapter_on_two, copy):
    for file in adapter_on_two.iterdir():
        shutil.copy(file, copy / file.name)
    with pytest.warns(UserWarning, match=r"adapter_model\.safetensors is read"):
        policy = opened(copy, lora=LoraSection(rank=2, alpha=4, targets=["q_proj", "v_proj"]))
    assert policy.adapter is not None


@pytest.mark.filterwarnings("error")
def test_weights_in_shards_and_an_adapter_alone_are_one_set(adapter_on_two, copy):
    (copy / "model.safetensors").rename(copy / SHARD)
    weights = load_file(copy / SHARD)
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, SHARD)}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    check_source(str(copy))
    check_source(str(adapter_on_two))
    shutil.copytree(adapter_on_two, copy, dirs_exist_ok=True)
    for damaged in ([], {"a": []}, "x" * 300, {"a": "x" * 300}):
        (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": damaged}))
        with pytest.raises(UserWarning, match=SHARD):
            check_source(str(copy))


# -- LLaDA's config --------------------------------------------------------------------------------


def test_what_a_llada_config_says_of_positions_is_obeyed(tmp_path):
    layout = llada(tmp_path)
    layout.config["rope_scaling"] = {"type": "linear", "factor": 2.0}
    policy = layout.save().open()
    parameters = policy.model.config.rope_parameters
    assert (parameters["rope_type"], parameters["factor"]) == ("linear", 2.0)
    (tmp_path / "plain").mkdir()
    other = llada(tmp_path / "plain").save().open()
    ids = torch.arange(9).unsqueeze(0)
    with torch.no_grad():
        here, there = (each.model(ids, use_cache=False).logits for each in (policy, other))
    assert float((here - there).abs().max()) > 1e-2
    turns, plain = (each.model.get_decoder().rotary_emb.inv_freq for each in (policy, other))
    torch.testing.assert_close(turns, plain / 2)


@pytest.mark.parametrize("key", ["rope_theta", "rms_norm_eps", "weight_tying", "d_model"])
def test_a_llada_config_without_what_decides_logits_is_refused(tmp_path, key):
    layout = llada(tmp_path)
    del layout.config[key]
    with pytest.raises(ModelError, match=f"lacks '{key}'"):
        layout.save().open()


@pytest.mark.parametrize("make", MASKED, ids=lambda make: make.__name__)
def test_a_key_that_nobody_reads_is_refused(tmp_path, make):
    layout = make(tmp_path)
    layout.config["logit_softcap"] = 30.0
    with pytest.raises(ModelError, match="logit_softcap"):
        layout.save().open()


def test_a_flow_config_is_read_whole(tmp_path):
    make_tiny(tmp_path, TINY, WORDS, 0, "flow")
    whole = (tmp_path / "config.json").read_text()
    for changed in (
        {"heads": 0},
        {"heads": 3},
        {"layers": True},
        {"hidden": "x"},
        {"exponent": -1},
        {"source": "no"},
        {"cap": 3},
    ):
        (tmp_path / "config.json").write_text(json.dumps(json.loads(whole) | changed))
        refused(tmp_path, "config.json is damaged: ", family="flow", canvas=8)
