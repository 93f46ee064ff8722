"""Parts of a model as one function each: the values of transformers' modules to the bit, and their
gradients."""

import copy

import pytest
import torch
from torch.autograd import gradcheck
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from plumbline.policies import open_policy
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.pretrained import fused
from plumbline.policies.pretrained.causal_model import checkpoint_layers
from plumbline.recipe import LoraSection
from tests.policies.test_adapters import adapted

SIZE = 96
IDS = torch.tensor([[5, 17, 40, 5, 90, 3, 17, 20, 8, 40]])


@pytest.fixture
def small_blocks(monkeypatch):
    """So that there are several, the last of them shorter."""
    monkeypatch.setattr(fused, "BLOCK", 10 * SIZE)


def random(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def made(kind):
    """A module for inputs [..., SIZE]."""
    if kind == "norm":
        norm = LlamaRMSNorm(SIZE)
        norm.weight.data = random(SIZE)
        return norm
    config = LlamaConfig(hidden_size=SIZE, intermediate_size=2 * SIZE)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaMLP(config)


def outputs_and_gradients(module, hidden, flow):
    hidden = hidden.clone().requires_grad_()
    module.zero_grad(set_to_none=True)
    output = module(hidden)
    output.backward(flow.to(output.dtype))
    trained = {
        name: weight.grad for name, weight in module.named_parameters() if weight.grad is not None
    }
    return output.detach(), {"input": hidden.grad, **trained}


@pytest.mark.parametrize("trained", [True, False], ids=["trained", "frozen"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["norm", "mlp"])
def test_a_part_gives_its_own_bits_and_gradients_as_exact(kind, dtype, trained, small_blocks):
    module = made(kind).to(dtype).requires_grad_(trained)
    hidden, flow = random(3, 17, SIZE).to(dtype), random(3, 17, SIZE, seed=2).to(dtype)
    own, own_gradients = outputs_and_gradients(module, hidden, flow)
    _, exact = outputs_and_gradients(copy.deepcopy(module).float(), hidden.float(), flow)
    fused.fuse(module)
    got, gradients = outputs_and_gradients(module, hidden, flow)
    assert fused.ORIGINAL in vars(module)
    assert torch.equal(got, own)
    assert gradients.keys() == own_gradients.keys() == exact.keys()
    assert len(gradients) > trained
    for name, gradient in gradients.items():
        assert gradient.dtype == dtype
        ours, theirs = (
            float((each.float() - exact[name]).norm()) for each in (gradient, own_gradients[name])
        )
        assert ours <= 1.1 * theirs + 2e-7 * float(exact[name].norm()), name
    fused.unfuse(module)
    assert fused.ORIGINAL not in vars(module)
    assert torch.equal(module(hidden), own)


def test_gradients_are_those_of_differences(small_blocks):
    def inputs(*shapes):
        return [
            random(*shape, seed=place).double().requires_grad_()
            for place, shape in enumerate(shapes)
        ]

    assert gradcheck(lambda x, w: fused._Norm.apply(x, w, 1e-3), inputs((2, 13, 8), (8,)))
    assert gradcheck(fused._Gated.apply, inputs((2, 13, 8), (2, 13, 8)))
    weight, adapter = random(5, 8, seed=9).double(), inputs((6, 8), (2, 8), (5, 2))

    def layer(hidden, down, up):
        return fused._LowRank.apply((hidden @ weight.T).detach(), hidden, weight, down, up)

    # The gradient of x that goes through W is the function's, though what it is given was made
    # without one.
    wanted = torch.autograd.grad(
        (adapter[0] @ weight.T + adapter[0] @ adapter[1].T @ adapter[2].T).sin().sum(), adapter
    )
    for one, other in zip(
        torch.autograd.grad(layer(*adapter).sin().sum(), adapter), wanted, strict=True
    ):
        torch.testing.assert_close(one, other)


def test_gradients_of_a_frozen_layer_in_bfloat16_are_as_exact_as_autograds():
    net = adapted(torch.bfloat16)
    hidden, flow = random(400, 64).bfloat16(), random(400, 48, seed=2).bfloat16()
    _, exact = outputs_and_gradients(copy.deepcopy(net).float().one, hidden.float(), flow)
    fused.fuse(net)
    values, got = outputs_and_gradients(net.one, hidden, flow)
    assert got.keys() == exact.keys() == {"input", "lora_A.default.weight", "lora_B.default.weight"}
    net.one.base_layer.weight.requires_grad_()  # autograd adds up the two gradients of the input
    own_values, own = outputs_and_gradients(net.one, hidden, flow)
    assert torch.equal(values, own_values)
    ours, theirs = (float((each["input"].float() - exact["input"]).norm()) for each in (got, own))
    assert 0 < ours < theirs
    for name, gradient in got.items():
        assert (gradient.float() - exact[name]).norm() < 0.01 * exact[name].norm(), name


def gradients_of(policy):
    policy.model.zero_grad(set_to_none=True)
    policy.model(IDS, use_cache=False).logits.float().log_softmax(-1)[..., 7].sum().backward()
    return {name: weight.grad for name, weight in policy.trainable().items()}


@pytest.mark.parametrize("lora", [LoraSection(rank=4), None], ids=["lora", "full"])
def test_a_copy_has_its_own_weights_and_layers_may_be_made_again(lora, tiny_folder):
    policy = open_policy(AutoregressiveModel(name=str(tiny_folder), lora=lora), str(tiny_folder))
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.add_(0.05 * random(*weight.shape))
    twin = copy.deepcopy(policy)
    modules = [module for module in twin.model.modules() if hasattr(module, fused.ORIGINAL)]
    kinds = {type(module).__name__ for module in modules}
    assert kinds == {"LlamaRMSNorm", "LlamaMLP", "Linear"} if lora else {"LlamaRMSNorm", "LlamaMLP"}
    assert all(module.forward.args == (module,) for module in modules)
    before = gradients_of(policy)
    assert all(torch.equal(gradient, before[name]) for name, gradient in gradients_of(twin).items())
    with torch.no_grad():
        for weight in twin.trainable().values():
            weight.mul_(1.5)
    moved = gradients_of(twin)
    assert all(
        (moved[name] - gradient).norm() > 1e-3 * gradient.norm() > 0
        for name, gradient in before.items()
    )
    checkpoint_layers(policy.model)
    assert all(
        torch.equal(gradient, before[name]) for name, gradient in gradients_of(policy).items()
    )
