"""The optimiser: schedules, clipping, master weights, state."""

import math
import sys
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_linear_schedule_with_warmup,
)

from plumbline.errors import ModelError, RunError, TrainingStopped
from plumbline.recipe import OptimiserSection
from plumbline.training.optimiser import Optimiser

PEERS = {
    "constant_with_warmup": lambda o: get_constant_schedule_with_warmup(o, 10),
    "linear": lambda o: get_linear_schedule_with_warmup(o, 10, 50),
    "cosine": lambda o: get_cosine_schedule_with_warmup(o, 10, 50),
}


@pytest.mark.parametrize("kind", PEERS)
def test_schedules_are_transformers_after_the_warmup(kind):
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    peer = PEERS[kind](optimiser)
    theirs = []
    for _ in range(50):
        theirs.append(peer.get_last_lr()[0])
        optimiser.step()
        peer.step()
    section = OptimiserSection(schedule=kind, warmup=10)
    ours = [section.learning_rate_factor(step, 50) for step in range(50)]
    assert ours[10:] == pytest.approx(theirs[10:])
    # ours moves from the first step on; theirs loses it at rate 0
    assert ours[:10] == pytest.approx(theirs[1:11])


def test_a_cosine_ends_in_nothing_and_a_constant_does_not_and_warmup_is_a_share_or_a_number():
    """The commerce log's run spent its last 70 steps at a learning rate of 1.5e-10."""
    assert OptimiserSection(schedule="cosine", warmup=20).learning_rate_factor(199, 200) < 1e-3
    assert (
        OptimiserSection(schedule="constant_with_warmup", warmup=20).learning_rate_factor(199, 200)
        == 1.0
    )
    assert OptimiserSection(warmup=0.05).warmup_steps(600) == 30
    assert OptimiserSection(warmup=7).warmup_steps(600) == 7


def weights(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(4, 3, generator=generator).to(dtype).requires_grad_()
        for name in ("a", "b")
    }


def descend(optimiser, steps, start=0):
    for step in range(start, start + steps):
        sum((weight.float() ** 2).sum() for weight in optimiser.weights.values()).backward()
        optimiser.step(step)


def test_the_gradient_is_clipped_and_the_norm_told_is_before_it():
    mine = weights()
    optimiser = Optimiser(mine, OptimiserSection(learning_rate=1e-3, max_grad_norm=1e-3), 10)
    sum((weight**2).sum() for weight in mine.values()).backward()
    expected = math.sqrt(sum(float((weight.grad**2).sum()) for weight in mine.values()))
    clipped = {}
    original = optimiser.adam.step
    optimiser.adam.step = lambda: (
        clipped.update({n: m.grad.clone() for n, m in optimiser.masters.items()}) or original()
    )
    assert optimiser.step(0) == pytest.approx(expected)
    assert math.sqrt(
        sum(float((gradient**2).sum()) for gradient in clipped.values())
    ) == pytest.approx(1e-3, rel=1e-3)


def test_small_updates_reach_16_bit_weights():
    """Without a master copy an update of 1e-5 on weights near 1 is rounded away every time."""
    section = OptimiserSection(learning_rate=1e-5, schedule="constant")
    mine = {"a": torch.ones(64, dtype=torch.bfloat16).requires_grad_()}
    optimiser = Optimiser(mine, section, 1000)
    descend(optimiser, 500)
    assert mine["a"].max() < 1
    naive = torch.ones(64, dtype=torch.bfloat16)
    for _ in range(500):
        naive -= 1e-5
    assert naive.min() == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_no_number_stops_before_the_weights_change(value):
    mine = weights()
    optimiser = Optimiser(mine, OptimiserSection(), 10)
    before = {name: weight.detach().clone() for name, weight in mine.items()}
    mine["a"].grad = torch.full((4, 3), value)
    with pytest.raises(TrainingStopped, match="not updated"):
        optimiser.step(0)
    for name, weight in mine.items():
        assert torch.equal(weight.detach(), before[name])


ON_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_GPU)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_taken_up_again_goes_on_bit_for_bit(dtype, device):
    def there():
        return {
            name: weight.detach().to(device).requires_grad_()
            for name, weight in weights(dtype).items()
        }

    section = OptimiserSection(learning_rate=1e-2, weight_decay=0.1)
    whole, first, second = (Optimiser(there(), section, 20) for _ in range(3))
    descend(whole, 20)
    descend(first, 8)
    second.load({name: tensor.clone().cpu() for name, tensor in first.state().items()})
    descend(second, 12, start=8)
    for name, weight in whole.weights.items():
        assert torch.equal(weight, second.weights[name])


# -- 8 bits ----------------------------------------------------------------------------------------


def wide(dtype, device):
    """A matrix whose moments are kept in 8 bits, and a bias whose moments are too few for that."""
    torch.manual_seed(1)
    made = {"a": torch.randn(64, 96, dtype=dtype), "norm": torch.randn(8, dtype=dtype)}
    return {name: weight.to(device).requires_grad_() for name, weight in made.items()}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_GPU)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adamw_of_8_bits_learns_and_goes_on_bit_for_bit(dtype, device):
    pytest.importorskip("bitsandbytes")
    section = OptimiserSection(name="adamw8bit", learning_rate=1e-2, weight_decay=0.1)
    whole, first, second = (Optimiser(wide(dtype, device), section, 20) for _ in range(3))
    descend(whole, 20)
    descend(first, 8)
    state = {name: tensor.clone().cpu() for name, tensor in first.state().items()}
    assert (state["state1:a"].dtype, state["state1:norm"].dtype) == (torch.uint8, torch.float32)
    moments = sum(
        tensor.nbytes for key, tensor in state.items() if key.endswith(":a") and "state" in key
    )
    assert moments == 2 * 64 * 96
    save_file(state, "/dev/null")  # no two of them share memory
    second.load(state)
    descend(second, 12, start=8)
    plain = Optimiser(wide(dtype, device), section.model_copy(update={"name": "adamw"}), 20)
    descend(plain, 20)
    for name, weight in whole.weights.items():
        assert torch.equal(weight, second.weights[name]), "as without a stop"
        moved = float((plain.weights[name] - wide(dtype, device)[name]).abs().mean())
        assert float((plain.weights[name] - weight).abs().mean()) < 0.1 * moved, (
            "as AdamW in 32 bits, nearly"
        )


def test_adamw_of_8_bits_says_what_is_missing(monkeypatch):
    section, refusal = OptimiserSection(name="adamw8bit"), "no kernel for this device"

    class Elsewhere:
        def __init__(self, *_, **__):
            raise NotImplementedError(refusal)

    monkeypatch.setitem(
        sys.modules, "bitsandbytes", SimpleNamespace(optim=SimpleNamespace(AdamW8bit=Elsewhere))
    )
    with pytest.raises(ModelError, match=f"bitsandbytes .* cpu: {refusal}") as found:
        Optimiser(weights(), section, 4)
    assert "optimiser.name: adamw," in found.value.fix
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ModelError, match=r"adamw8bit needs bitsandbytes(.|\n)*4bit"):
        Optimiser(weights(), section, 4)


@pytest.mark.parametrize(
    ("before", "after"), [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)]
)
def test_a_state_is_taken_up_in_the_precision_that_it_has(before, after):
    """A run that moves to another device may find its weights in another dtype (dtype: auto)."""
    first = Optimiser(weights(before), OptimiserSection(learning_rate=1e-4), 20)
    descend(first, 3)
    second = Optimiser(weights(after), OptimiserSection(learning_rate=1e-4), 20)
    second.load({name: tensor.clone() for name, tensor in first.state().items()})
    for name, master in first.masters.items():
        assert torch.equal(second.masters[name], master)
        assert torch.equal(second.weights[name], master.to(after))


def test_all_of_a_state_is_taken_up_where_the_weights_are():
    """A fused step refuses a count on another device; meta stands for a GPU."""
    first = Optimiser(weights(), OptimiserSection(), 20)
    descend(first, 2)
    elsewhere = {
        name: weight.detach().to("meta").requires_grad_() for name, weight in weights().items()
    }
    second = Optimiser(elsewhere, OptimiserSection(), 20)
    second.load(first.state())
    devices = {
        value.device.type for state in second.adam.state.values() for value in state.values()
    }
    assert devices == {"meta"}


def test_a_state_of_another_model_is_refused():
    optimiser = Optimiser(weights(), OptimiserSection(), 10)
    state = optimiser.state()
    other = Optimiser({"c": torch.zeros(2).requires_grad_()}, OptimiserSection(), 10)
    with pytest.raises(RunError, match="another model"):
        other.load(state)
    with pytest.raises(RunError, match="another model"):
        optimiser.load({**state, "weight:a": torch.zeros(2, 2)})


def test_nothing_to_train_is_an_error():
    with pytest.raises(RunError, match="nothing to train"):
        Optimiser({}, OptimiserSection(), 1)


def test_weight_decay_leaves_norms_biases_and_embeddings_out():
    names = (
        "layers.0.mlp.weight",
        "lm_head.weight",
        "layers.0.norm.weight",
        "layers.0.q.bias",
        "embed_tokens.weight",
    )
    names += ("transformer.wte.weight",)
    given = {
        name: torch.ones(2) if "norm" in name or "bias" in name else torch.ones(2, 2)
        for name in names
    }
    for weight in given.values():
        weight.requires_grad_()
    optimiser = Optimiser(given, OptimiserSection(learning_rate=0.1, weight_decay=0.5, warmup=0), 4)
    sum((weight * 0).sum() for weight in given.values()).backward()
    optimiser.step(0)
    assert {name for name, weight in given.items() if float(weight.min()) < 1} == {
        names[0],
        names[1],
    }


@pytest.mark.parametrize(("total", "warmup"), [(10, 1), (40, 2), (100, 5)])
@pytest.mark.parametrize("kind", PEERS)
def test_no_factor_is_above_1_between_two_steps(kind, total, warmup):
    """A budget of seconds moves the schedule to where no whole step is."""
    section = OptimiserSection(schedule=kind, warmup=warmup)
    factors = [section.learning_rate_factor(step / 37, total) for step in range(37 * total)]
    assert max(factors) <= 1
    assert min(factors) >= 0
