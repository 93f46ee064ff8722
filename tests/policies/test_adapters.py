"""LoRA layers without peft's casts, against peft's own forward pass and against sums in float64."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM

from conftest import WORDS
from plumbline.api import sample_trajectories
from plumbline.policies import open_policy
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.pretrained import adapters, fused
from plumbline.policies.pretrained.causal_model import load
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.recipe import LoraSection, TinySection
from plumbline.records import Sampling
from plumbline.storage import read_json, write_json
from plumbline.training.update import probe_gap
from tests.policies.planted import merged_adapters

NAMES = ["one", "two", "bare", "biased"]


class Net(nn.Module):
    """Four linear layers on one input, the last with a bias."""

    def __init__(self):
        super().__init__()
        for name, size in zip(NAMES, (48, 16, 24, 40), strict=True):
            setattr(self, name, nn.Linear(64, size, bias=name == "biased"))

    def forward(self, hidden):
        return [getattr(self, name)(hidden) for name in NAMES]


def adapted(dtype=torch.float32, targets=("one", "two", "biased"), **options):
    """The four layers, some with filled adapters in float32 of scale 3."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        net = Net().to(dtype)
        get_peft_model(net, LoraConfig(r=4, lora_alpha=12, target_modules=list(targets), **options))
        fill(net)
    return net


def fill(net, name="default", size=0.2):
    for layer in adapters.lora_layers(net):
        layer.lora_B[name].weight.data = torch.randn(layer.lora_B[name].weight.shape) * size


def inputs(dtype=torch.float32, rows=(3, 5)):
    return torch.randn(*rows, 64, generator=torch.Generator().manual_seed(1)).to(dtype)


def in_float64(layer, hidden):
    """W x + s B (A x) + b, written out."""
    x, base, name = hidden.double(), layer.base_layer, "default"
    down, up = layer.lora_A[name].weight.double(), layer.lora_B[name].weight.double()
    bias = 0 if base.bias is None else base.bias.double()
    return x @ base.weight.double().T + bias + (x @ down.T) @ up.T * layer.scaling[name]


def values_and_gradients(net, hidden):
    hidden = hidden.clone().requires_grad_()
    net.zero_grad(set_to_none=True)
    outputs = net(hidden)
    sum(
        (output.float().sin() * (place + 1)).sum() for place, output in enumerate(outputs)
    ).backward()
    gradients = {
        name: weight.grad for name, weight in net.named_parameters() if weight.grad is not None
    }
    return outputs, gradients | {"input": hidden.grad}


@pytest.mark.parametrize("trained", [False, True], ids=["frozen", "trained"])
def test_fused_layers_are_pefts_in_float32_values_and_gradients(trained):
    net = adapted()
    net.one.base_layer.weight.requires_grad_(trained)
    wanted, wanted_gradients = values_and_gradients(net, inputs())
    fused.fuse(net)
    got, gradients = values_and_gradients(net, inputs())
    assert adapters.ORIGINAL in vars(net.one)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=2e-6)
    assert set(gradients) == set(wanted_gradients)
    assert ("one.base_layer.weight" in gradients) == trained
    assert {"one.lora_A.default.weight", "biased.lora_B.default.weight", "input"} <= set(gradients)
    for name, gradient in gradients.items():
        wanted_gradient = wanted_gradients[name]
        assert (gradient - wanted_gradient).norm() < 1e-6 * wanted_gradient.norm(), name
    fused.unfuse(net)
    assert not any(adapters.ORIGINAL in vars(module) for module in net.modules())
    assert all(torch.equal(one, other) for one, other in zip(net(inputs()), wanted, strict=True))


def test_fused_layers_in_bfloat16_are_as_exact_as_pefts():
    net, hidden = adapted(torch.bfloat16), inputs(torch.bfloat16, rows=(400,))
    fill(net, size=0.05)  # B A is a fourth of W
    exact = in_float64(net.one, hidden)

    def error():
        return float((net.one(hidden).double() - exact).detach().square().mean().sqrt())

    pefts, (_, wanted) = error(), values_and_gradients(net, hidden)
    fused.fuse(net)
    ours, (_, got) = error(), values_and_gradients(net, hidden)
    assert net.one(hidden).dtype == torch.bfloat16
    assert 0 < ours < 1.1 * pefts, (ours, pefts)
    for name, gradient in got.items():
        assert gradient.dtype == wanted[name].dtype
        assert (gradient - wanted[name]).norm() < 0.01 * wanted[name].norm(), name


@pytest.mark.parametrize("which", ["lora_A", "lora_B"])
def test_an_update_of_the_size_of_rl_is_not_rounded_away(which):
    """A step of 1e-5 on weights of 0.04, of which one bfloat16 matrix keeps nothing, and W with B A
    added even less."""
    net, hidden = adapted(torch.bfloat16, targets=["one"]), inputs(torch.bfloat16, rows=(4000,))
    layer, generator = net.one, torch.Generator().manual_seed(2)
    fused.fuse(net)
    with torch.no_grad():
        for matrix in (layer.lora_A["default"].weight, layer.lora_B["default"].weight):
            # what one 16-bit matrix would hold
            matrix.copy_(matrix.sign() * 0.04).copy_(matrix.bfloat16())
    weight = getattr(layer, which)["default"].weight

    def merged():
        product = (
            layer.lora_B["default"].weight
            @ layer.lora_A["default"].weight
            * layer.scaling["default"]
        )
        return (layer.base_layer.weight + product).bfloat16()

    before, exact_before, rounded, one = (
        layer(hidden).detach().double(),
        in_float64(layer, hidden),
        weight.bfloat16(),
        merged(),
    )
    with torch.no_grad():
        weight.add_(torch.randn(weight.shape, generator=generator).sign() * 1e-5)
    moved, exact = layer(hidden).double() - before, in_float64(layer, hidden) - exact_before
    assert torch.equal(weight.bfloat16(), rounded)
    assert (merged() != one).double().mean() < 0.02
    # Outputs are rounded, so only the average over many shows the update: its slope on the exact
    # one.
    slope = float(((moved * exact).sum() / exact.square().sum()).detach())
    assert 0.8 < slope < 1.2


def test_halves_sum_to_the_matrix_and_give_its_gradient():
    matrix = (
        torch.randn(30, 20, generator=torch.Generator().manual_seed(3)) * 0.04
    ).requires_grad_()
    two = adapters.split_halves(matrix, torch.bfloat16)
    assert two.shape == (2, 30, 20)
    assert two.dtype == torch.bfloat16
    assert ((two.detach().float().sum(0) - matrix).abs() <= 2**-16 * matrix.abs()).all()
    (two.float().sum(0) * 2).sum().backward()
    assert torch.equal(matrix.grad, torch.full_like(matrix, 2.0))
    assert torch.equal(adapters.split_halves(matrix, torch.float32)[0], matrix)


def more_to_it(case):
    """Layers with something that the products here do not have."""
    if case == "dora":
        return adapted(use_dora=True)
    if case == "dropout":
        return adapted(lora_dropout=0.5)
    if case == "bias":
        net = adapted(targets=["biased"], lora_bias=True)
        net.biased.lora_B["default"].bias.data.fill_(0.3)
        return net
    net = adapted()
    if case == "disabled":
        for layer in adapters.lora_layers(net):
            layer.enable_adapters(False)
    elif case == "merged":
        for layer in adapters.lora_layers(net):
            layer.merge()
    elif case == "two":
        config = LoraConfig(r=2, lora_alpha=2, target_modules=["one"])
        for layer in adapters.lora_layers(net):
            layer.update_layer("second", 2, lora_alpha=2, config=config)
            layer.set_adapter(["default", "second"])
        fill(net, "second")
    return net


@pytest.mark.parametrize("case", ["dora", "dropout", "bias", "disabled", "merged", "two"])
def test_a_layer_with_more_to_it_keeps_pefts_forward_pass(case):
    net, hidden = more_to_it(case), inputs(rows=(6,))
    plain = adapted(targets=["biased"] if case == "bias" else ("one", "two", "biased"))
    layers = [net.biased] if case == "bias" else [net.one, net.two]

    def outputs():
        torch.manual_seed(0)  # of the dropout
        return [layer(hidden) for layer in layers]

    wanted = outputs()
    fused.fuse(net)
    got = outputs()
    torch.manual_seed(0)
    together = adapters.Projection(layers)(hidden)
    for layer, other, ours, also in zip(layers, wanted, got, together, strict=True):
        assert adapters.ORIGINAL in vars(layer)
        assert torch.equal(ours, other)
        assert torch.equal(also, other)
    # and there is more to it: the plain layer gives something else
    if case in {"dropout", "disabled", "two", "bias"}:
        assert (
            wanted[0] - getattr(plain, "biased" if case == "bias" else "one")(hidden)
        ).abs().max() > 1e-3


def test_dropout_that_is_off_is_no_obstacle(monkeypatch):
    net = adapted(lora_dropout=0.5)
    fused.fuse(net)
    net.one.lora_dropout["default"].p = 0.0
    monkeypatch.setattr(net.one, adapters.ORIGINAL, None)
    torch.testing.assert_close(
        net.one(inputs()).double(), in_float64(net.one, inputs()), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_projection_is_its_layers_one_by_one(dtype):
    net, hidden = adapted(dtype), inputs(dtype, rows=(7,))
    fused.fuse(net)
    layers = [net.one, net.bare, net.biased, net.two]
    with torch.no_grad():
        got = adapters.Projection(layers)(hidden)
        for layer, output in zip(layers, got, strict=True):
            wanted = (
                layer(hidden).float() if layer is net.bare else in_float64(layer, hidden).float()
            )
            assert output.dtype == dtype
            tolerance = 1e-6 if dtype == torch.float32 else 0.006
            assert (output.float() - wanted).norm() < tolerance * wanted.norm()
        (alone,) = adapters.Projection([net.bare])(hidden)
        assert torch.equal(alone, net.bare(hidden))


@pytest.mark.parametrize(
    "names",
    [("one", "bare", "two"), ("two",), ("bare",), ("biased",), ("bare", "biased", "one")],
    ids=str,
)
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16], ids=str)
def test_weights_that_are_laid_out_give_the_same(names, stored):
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this processor multiplies no bfloat16")
    net, hidden = adapted(torch.bfloat16), inputs(torch.bfloat16, rows=(7,))
    fused.fuse(net)
    layers = [getattr(net, name) for name in names]
    for weight in (weight for name, weight in net.named_parameters() if "lora" in name):
        weight.data = weight.data.to(stored)
    with torch.no_grad():
        projection, plain = adapters.Projection(layers, lay_out=True), adapters.Projection(layers)
        assert (projection.laid_out is None, plain.laid_out is None) == (False, True)
        off = {} if torch.cpu._is_amx_tile_supported() else {"rtol": 0, "atol": 0}
        for ours, theirs in zip(projection(hidden), plain(hidden), strict=True):
            torch.testing.assert_close(ours, theirs, **off)


def test_the_reference_adapter_is_the_one_that_is_switched_to(tiny_folder):
    """Fused and peft's layers agree under both adapters; a fused layer that looked at its first
    only would not."""
    policy = open_policy(
        AutoregressiveModel(name=str(tiny_folder), lora=LoraSection(rank=4)), str(tiny_folder)
    )
    assert policy.engine["adapters"] == "fused"
    generator = torch.Generator().manual_seed(3)

    def move():
        with torch.no_grad():
            for weight in policy.trainable().values():
                weight.add_(torch.randn(weight.shape, generator=generator) * 0.1)

    move()
    policy.keep_reference()
    move()
    chat = [{"role": "user", "content": "o produto"}]
    sampling = Sampling(max_tokens=8)
    (trajectories,) = sample_trajectories(policy, [chat], 3, sampling, seed=0)
    ours = [
        policy.score(trajectories, reference=which).logprobs.detach() for which in (False, True)
    ]
    with policy.as_reference():  # decoding, too
        (drawn,) = sample_trajectories(policy, [chat], 3, sampling, seed=0)
    by_reference = policy.score(drawn, reference=True)
    fused.unfuse(policy.model)
    theirs = [
        policy.score(trajectories, reference=which).logprobs.detach() for which in (False, True)
    ]
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=0)
    assert (theirs[0] - theirs[1]).abs().max() > 0.1
    torch.testing.assert_close(by_reference.logprobs, by_reference.recorded, atol=2e-5, rtol=0)


def test_a_loaded_adapters_dropout_is_off_and_so_is_its_references(tiny_folder, tmp_path):
    """It came after the model's own was switched off, in training mode: no score was the same
    twice."""
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny_folder)
    config = LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.3, task_type="CAUSAL_LM"
    )
    get_peft_model(base, config).save_pretrained(tmp_path / "adapter")
    saved = read_json(tmp_path / "adapter" / "adapter_config.json")
    write_json(
        tmp_path / "adapter" / "adapter_config.json",
        {**saved, "base_model_name_or_path": str(tiny_folder)},
    )
    lora = LoraSection(rank=4, alpha=8, targets=["q_proj", "v_proj"])
    section = AutoregressiveModel(name=str(tmp_path / "adapter"), lora=lora)
    loaded = load(section, str(tmp_path / "adapter"), 0)
    assert [module for module in loaded.model.modules() if isinstance(module, nn.Dropout)]
    policy = open_policy(section, str(tmp_path / "adapter"))
    assert policy.engine["left_out"] == ""
    policy.keep_reference()
    rates = [module.p for module in policy.model.modules() if isinstance(module, nn.Dropout)]
    assert not any(rates)


CHAT = [{"role": "user", "content": "o produto"}]
WEIGHT, ADAPTER = 0.09423828125, 0.05
UPDATE = 0.94 * 2**-12
"""A little less than half of what bfloat16 numbers stand apart at `WEIGHT`."""


@pytest.fixture(scope="module")
def even_folder(tmp_path_factory):
    """A tiny Llama whose matrices are all of one size, so that an update is below the spacing of
    each or of none."""
    made = tmp_path_factory.mktemp("even") / "tiny"
    make_tiny(
        made,
        TinySection(hidden=128, layers=3, heads=4, vocabulary=300, context=128),
        WORDS * 10,
        seed=3,
    )
    model = AutoModelForCausalLM.from_pretrained(made)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("proj.weight"):
                weight.copy_(weight.sign() * WEIGHT)
        model.get_input_embeddings().weight.mul_(5.0)
        model.get_decoder().norm.weight.mul_(4.0)
    model.save_pretrained(made)
    return made


def learn(policy, seen):
    """Four steps up the gradient's sign, after which every element of s B A is `UPDATE` or less."""
    trainable = policy.trainable()
    with torch.no_grad():
        for name, weight in trainable.items():
            weight.copy_(weight.sign() * ADAPTER if "lora_A" in name else weight)
    for _ in range(4):
        total = policy.score(seen).logprobs.sum()
        gradients = torch.autograd.grad(total, list(trainable.values()))
        with torch.no_grad():
            for (name, weight), gradient in zip(trainable.items(), gradients, strict=True):
                if "lora_B" in name:
                    weight.add_(gradient.sign() * UPDATE / ADAPTER / 4)


def test_a_sampler_that_merges_adapters_in_16_bits_stays_behind_and_the_gap_shows_it(
    even_folder, monkeypatch
):
    section = AutoregressiveModel(
        name=str(even_folder), dtype="bfloat16", lora=LoraSection(rank=1, alpha=1)
    )
    policy = open_policy(section, str(even_folder))
    policy.chat.stop_ids = (-1,)

    def drawn():
        return sample_trajectories(policy, [CHAT], 2, Sampling(max_tokens=24), seed=0)[0]

    seen = drawn()
    learn(policy, seen)
    gain = float(
        (
            policy.score(seen).logprobs.detach()
            - torch.cat([torch.tensor(t.logprobs) for t in seen])
        ).mean()
    )
    assert gain > 0.05, "nats a token: the scorer has learnt"
    moved = drawn()
    gap = probe_gap(policy, moved)
    with monkeypatch.context() as patch:
        merged_adapters(patch, policy)
        behind = drawn()
        merged_gap = probe_gap(policy, behind)
    assert [t.logprobs.tolist() for t in behind] == [t.logprobs.tolist() for t in seen], (
        "and the sampler has not"
    )
    assert [t.logprobs.tolist() for t in moved] != [t.logprobs.tolist() for t in seen]
    assert gap < 0.05
    assert merged_gap > max(0.06, 2 * gap)
