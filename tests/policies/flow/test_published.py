"""FS-DFM's published checkpoints at tiny size, converted, against a plain pass over what is in the
file."""

import pickle

import pytest
import torch
from torch.nn import functional

from plumbline.errors import ModelError
from plumbline.policies.flow.convert import convert
from plumbline.policies.flow.network import FlowNetwork
from plumbline.policies.flow.options import FlowSampling
from tests.policies.families import assert_both_laws_hold, edit
from tests.policies.flow.conftest import opened
from tests.policies.published import tokenizer

HIDDEN, CONDITION, HEADS, LAYERS, FREQUENCIES = 16, 8, 2, 2, 256
CHAT = [{"role": "user", "content": "sim"}]


def shapes(rows, *, student):
    """{published name: shape}; a student is told the step's size, too."""
    fused = 2 * CONDITION
    found = {"vocab_embed.weight": (rows, HIDDEN), "output_layer.norm_final.weight": (HIDDEN,)}

    def linear(name, outputs, inputs, bias=True):
        found[f"{name}.weight"] = (outputs, inputs)
        if bias:
            found[f"{name}.bias"] = (outputs,)

    for name in ("time_embedding", *(["dt_embedding"] if student else [])):
        linear(f"{name}.mlp.0", CONDITION, FREQUENCIES)
        linear(f"{name}.mlp.2", CONDITION, CONDITION)
    if student:
        linear("time_condition_fuser", fused, fused)
    for layer in range(LAYERS):
        at = f"blocks.{layer}."
        found |= {f"{at}norm1.weight": (HIDDEN,), f"{at}norm2.weight": (HIDDEN,)}
        for name in ("qw", "kw", "vw", "attn_out"):
            linear(at + name, HIDDEN, HIDDEN, bias=False)
        linear(f"{at}mlp.0", 4 * HIDDEN, HIDDEN)
        linear(f"{at}mlp.2", HIDDEN, 4 * HIDDEN)
        linear(f"{at}adaLN_modulation", 6 * HIDDEN, CONDITION)
        if student:
            linear(f"{at}condition_fuser", CONDITION, fused)
    linear("output_layer.linear", rows, HIDDEN)
    linear("output_layer.adaLN_modulation", 2 * HIDDEN, CONDITION)
    if student:
        linear("output_layer.condition_fuser", CONDITION, fused)
    return found


def weights_of(rows, *, student, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = {
        name: 0.3 * torch.randn(shape, generator=generator)
        for name, shape in shapes(rows, student=student).items()
    }
    return made | {"rotary_emb.inv_freq": 10_000.0 ** (-torch.arange(0, 8, 2).float() / 8)}


def plain(weights, ids, time, width):
    """Logits [T, V] of one sequence, everything seeing everything."""
    w = {name: tensor.double() for name, tensor in weights.items()}

    def linear(states, name):
        return functional.linear(states, w[f"{name}.weight"], w.get(f"{name}.bias"))

    def embedded(value, name):
        angle = (
            value * torch.exp(-torch.log(torch.tensor(10_000.0)) * torch.arange(128) / 128).double()
        )
        inner = functional.silu(linear(torch.cat([angle.cos(), angle.sin()]), f"{name}.mlp.0"))
        return linear(inner, f"{name}.mlp.2")

    condition = embedded(time, "time_embedding")
    if "time_condition_fuser.weight" in w:
        condition = linear(
            torch.cat([condition, embedded(width, "dt_embedding")]), "time_condition_fuser"
        )
    condition = functional.silu(condition)

    def modulation(at, parts):
        given = condition
        if f"{at}.condition_fuser.weight" in w:
            given = functional.silu(linear(given, f"{at}.condition_fuser"))
        return linear(given, f"{at}.adaLN_modulation").chunk(parts)

    def norm(states, name):
        return functional.layer_norm(states, (HIDDEN,)) * w[f"{name}.weight"]

    angle = torch.arange(len(ids))[:, None] * w["rotary_emb.inv_freq"]

    def turned(states):
        first, second = states.chunk(2, dim=-1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def heads(states):
        return states.view(len(ids), HEADS, -1).transpose(0, 1)

    states = w["vocab_embed.weight"][ids]
    for layer in range(LAYERS):
        at = f"blocks.{layer}"
        shift, scale, gate, shift_f, scale_f, gate_f = modulation(at, 6)
        inner = norm(states, f"{at}.norm1") * (1 + scale) + shift
        query, key, value = (heads(linear(inner, f"{at}.{name}")) for name in ("qw", "kw", "vw"))
        mixed = (turned(query) @ turned(key).transpose(1, 2) / (HIDDEN // HEADS) ** 0.5).softmax(
            -1
        ) @ value
        states = states + gate * linear(
            mixed.transpose(0, 1).reshape(len(ids), -1), f"{at}.attn_out"
        )
        inner = norm(states, f"{at}.norm2") * (1 + scale_f) + shift_f
        inner = functional.gelu(linear(inner, f"{at}.mlp.0"), approximate="tanh")
        states = states + gate_f * linear(inner, f"{at}.mlp.2")
    shift, scale = modulation("output_layer", 2)
    return linear(
        norm(states, "output_layer.norm_final") * (1 + scale) + shift, "output_layer.linear"
    )


def far(folder, weights):
    network = FlowNetwork.from_pretrained(folder)
    ids = torch.tensor([5, 60, 7, 200, 33, 90])
    with torch.no_grad():
        prefix = network.encode([ids[:2].tolist()])
        found = network.head(
            network.hidden_states(prefix, ids[None, 2:], torch.tensor([0.3]), torch.tensor([0.125]))
        )[0]
    return float((found.double() - plain(weights, ids, 0.3, 0.125)[2:]).abs().max())


@pytest.fixture
def vocabulary(tmp_path):
    """A tokenizer as GPT-2's: one added token, no chat template; its size."""
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2" / "config.json").write_text('{"model_type": "gpt2"}')
    ids = tokenizer(
        tmp_path / "gpt2",
        ("<|endoftext|>",),
        ("json",),
        tokenizer_class="GPT2Tokenizer",
        chat_template=None,
    )
    return max(ids.values()) + 1


def saved(path, vocabulary, kind):
    """A file as published (`student`: distilled, with its teacher and optimiser; else of
    pretraining), its weights."""
    counters = {"step": 190_000, "train_sampler": {"yielded": 3}, "test_sampler": {"yielded": 0}}
    weights = weights_of(vocabulary, student=kind == "student")
    prefix = "module._orig_mod." if kind == "student" else "_orig_mod."
    wrapped = {f"{prefix}{name}": tensor for name, tensor in weights.items()}
    optimiser = {
        "state": {0: {"exp_avg": torch.ones(2)}},
        "param_groups": [{"lr": 1e-5, "betas": (0.9, 0.95)}],
    }
    if kind == "student":
        other = weights_of(vocabulary, student=True, seed=1)
        models = {"teacher_model": weights_of(vocabulary, student=False), "student_model": other}
        content = {
            **counters,
            **models,
            "student_optimizer": optimiser,
            "student_ema_model": wrapped,
        }
    else:
        content = {**counters, "model": wrapped, "optimizer": optimiser}
    torch.save(content, path)
    return weights


def converted(folder):
    return convert(
        folder / "checkpoint.pth", folder / "ours", str(folder / "gpt2"), heads=HEADS, context=64
    )


@pytest.mark.parametrize("source", ["uniform", "mask"])
@pytest.mark.parametrize("kind", ["student", "pretrained"])
def test_it_gives_a_plain_pass_s_logits_and_obeys_both_laws(
    tmp_path, monkeypatch, vocabulary, kind, source
):
    weights = saved(tmp_path / "checkpoint.pth", vocabulary + (source == "mask"), kind)
    config = converted(tmp_path)
    assert (config.step_conditioned, config.source) == (kind == "student", source)
    assert (config.layers, config.hidden, config.conditioning, config.context) == (
        LAYERS,
        HIDDEN,
        CONDITION,
        64,
    )
    assert far(tmp_path / "ours", weights) < 1e-4
    policy = opened(tmp_path / "ours", attention="full", canvas=2, chat_template="chatml")
    if source == "uniform":
        start = torch.tensor([5, 60])
        monkeypatch.setattr(policy, "_noise", lambda places, generator: start[:places])
    sampling = FlowSampling(max_tokens=2, steps=2, kernel="marginal", top_k=2)
    assert_both_laws_hold(policy, CHAT, sampling, draws=600, gap=1e-4)


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch /tmp/plumbline-was-here",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(Evil()), "cannot be read as plain tensors"),
        (b"not a file of torch's", "cannot be read as plain tensors"),
        ({"optimizer": {}}, "has no weights under"),
        ({"model": {"x": torch.ones(1)}}, r"lacks .vocab_embed"),
        (None, "there is no file"),
    ],
)
def test_hostile_and_foreign_files_are_refused(tmp_path, vocabulary, content, message):
    file = tmp_path / "file.pth"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        torch.save(content, file)
    with pytest.raises(ModelError, match=message):
        convert(file, tmp_path / "out", str(tmp_path / "gpt2"), heads=HEADS)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (torch.empty(2**50, device="meta"), "which is no plain tensor of floats"),
        (torch.empty((2**20, 2**30), device="meta"), "which is no plain tensor of floats"),
        (torch.eye(3).to_sparse(), "which is no plain tensor of floats"),
        (torch.ones(3, dtype=torch.int8), "which is no plain tensor of floats"),
        (torch.ones(3, dtype=torch.complex64), "which is no plain tensor of floats"),
        (torch.ones(1).expand(2**40), "more than it has"),
        (torch.ones(1).as_strided((2**30, 2**20), (0, 0)), "more than it has"),
        (torch.tensor(1.0), "cannot|is no FS-DFM|has weights of another shape"),
    ],
)
@pytest.mark.parametrize(
    "name", ["vocab_embed.weight", "time_embedding.mlp.2.weight", "blocks.0.mlp.0.weight"]
)
def test_tensors_that_are_not_what_is_stored_are_refused(tmp_path, vocabulary, name, odd, message):
    torch.save(
        {"model": weights_of(vocabulary, student=False) | {name: odd}}, tmp_path / "file.pth"
    )
    with pytest.raises(ModelError, match=message):
        convert(tmp_path / "file.pth", tmp_path / "out", str(tmp_path / "gpt2"), heads=HEADS)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("key", ["vocabulary", "hidden", "conditioning", "layers"])
def test_a_config_of_far_more_than_its_weights(tmp_path, vocabulary, key):
    saved(tmp_path / "checkpoint.pth", vocabulary, "student")
    converted(tmp_path)
    edit(tmp_path / "ours" / "config.json", **{key: 10**4 if key == "layers" else 2**26})
    with pytest.raises(ModelError, match=r"ours .* bytes"):
        FlowNetwork.from_pretrained(tmp_path / "ours")


def test_planted_faults_do_not_pass(tmp_path, vocabulary):
    whole = weights_of(vocabulary, student=True)

    def attempt(weights, **options):
        torch.save({"student_ema_model": weights}, tmp_path / "file.pth")
        convert(
            tmp_path / "file.pth",
            tmp_path / "out",
            str(tmp_path / "gpt2"),
            **{"heads": HEADS, **options},
        )
        return far(tmp_path / "out", whole)

    with pytest.raises(ModelError, match="missing"):
        attempt({name: tensor for name, tensor in whole.items() if name != "blocks.1.vw.weight"})
    with pytest.raises(ModelError, match="no FS-DFM network has"):
        attempt(whole | {"blocks.1.gate.weight": torch.ones(2)})
    with pytest.raises(ModelError, match="fits neither a vocabulary"):
        attempt(whole | {"vocab_embed.weight": torch.ones(vocabulary + 2, HIDDEN)})
    with pytest.raises(ModelError, match="of another shape"):
        attempt(whole | {"blocks.0.mlp.0.weight": whole["blocks.0.mlp.0.weight"].T})
    assert attempt(whole) < 1e-4
    assert attempt(whole | {"blocks.0.qw.weight": whole["blocks.0.qw.weight"].T}) > 1e-2
    assert attempt(whole, heads=4) > 1e-2


def test_without_a_template_it_says_what_to_set(tmp_path, vocabulary):
    saved(tmp_path / "checkpoint.pth", vocabulary, "student")
    converted(tmp_path)
    with pytest.raises(ModelError, match=r"model\.chat_template"):
        opened(tmp_path / "ours", attention="full")
