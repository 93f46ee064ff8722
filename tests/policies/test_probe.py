"""The probe: it keeps short cuts that only round, finds each planted error, and leaves the weights
as they were."""

import copy

import pytest
import torch
from transformers import AutoModelForCausalLM, MambaConfig

from conftest import WORDS
from plumbline.policies.autoregressive import probe as probing
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.autoregressive.probe import probe
from plumbline.policies.pretrained.adapters import FILLED, lora_layers
from plumbline.policies.pretrained.causal_model import load
from plumbline.policies.pretrained.numerics import AgreementCheck, cast_to_float32
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.recipe import LoraSection, TinySection
from tests.policies.planted import PLANTED

IDS = torch.tensor([[5, 17, 40, 5, 90, 3, 17, 250, 8, 40]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny Llama whose attention and logits are far from even, so that what is attended to
    matters."""
    made = tmp_path_factory.mktemp("probe") / "tiny"
    tiny = TinySection(hidden=64, layers=3, heads=4, vocabulary=300, context=128)
    make_tiny(made, tiny, WORDS * 10, seed=3)
    model = AutoModelForCausalLM.from_pretrained(made)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                weight.mul_(8.0 if "q_proj" in name or "k_proj" in name else 5.0)
    model.save_pretrained(made)
    return made


def opened(folder, dtype, lora=True):
    section = AutoregressiveModel(
        name=str(folder), dtype=dtype, lora=LoraSection(rank=4) if lora else None
    )
    return load(section, str(folder), 0).model


def bits(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def assert_untouched(model, before):
    after = dict(model.named_parameters())
    assert set(after) == set(before)
    for name, weight in before.items():
        assert after[name].dtype == weight.dtype, name
        assert torch.equal(after[name].view(torch.uint8), weight.view(torch.uint8)), name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
def test_every_short_cut_of_a_usual_model_is_used(folder, dtype, lora):
    model = opened(folder, dtype, lora)
    before = bits(model)
    abilities = probe(model)
    assert abilities.left_out() == ""
    assert abilities.linear_head
    assert abilities.packing
    assert abilities.shared
    assert abilities.lean
    assert abilities.adapters
    assert_untouched(model, before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_error_is_found_and_named(folder, dtype, plant, monkeypatch):
    model = opened(folder, dtype)
    plant(monkeypatch, model)
    assert probe(model).left_out() == ", ".join(PLANTED[plant])


def test_what_may_be_off_is_some_of_what_the_models_own_pass_is():
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(40, 300, generator=generator) * 4
    own, noise = (exact + 0.02 * torch.randn(exact.shape, generator=generator) for _ in range(2))
    trial = AgreementCheck.from_logits(exact, own)
    logprobs = exact.double().log_softmax(-1)
    plausible = logprobs.argsort(-1, descending=True)[:, :32]
    moved = (own.double().log_softmax(-1) - logprobs).gather(-1, plausible)
    assert trial.allowed == pytest.approx(
        1.5 * float(moved.square().mean().sqrt()) + 1e-4, rel=1e-3
    )
    assert trial.agrees(own)
    assert trial.agrees(noise)
    assert not trial.agrees(exact + 1.6 * (own - exact))
    assert not trial.agrees(own[1:])
    assert not trial.agrees(own * float("nan"))
    # of a token that is never drawn
    unlikely = exact.clone().scatter_(-1, exact.argmin(-1, keepdim=True), -60.0)
    assert trial.agrees(unlikely)
    assert AgreementCheck.from_logits(exact, exact).allowed == pytest.approx(1e-4)


def test_of_several_sequences_the_middle_one_decides():
    """One that rounding threw far off refuses no model; errors in most of them do."""
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(50, 300, generator=generator) * 4
    own, noise, wrong = (
        exact + size * torch.randn(exact.shape, generator=generator) for size in (0.02, 0.02, 0.2)
    )
    jumped = torch.cat([wrong[:10], noise[10:]])
    assert not AgreementCheck.from_logits(exact, own).agrees(jumped)
    trial = AgreementCheck.from_logits(exact, own, 5)
    assert trial.agrees(jumped)
    assert trial.agrees(exact + 2.9 * (own - exact))
    assert not trial.agrees(exact + 3.3 * (own - exact))
    assert not trial.agrees(torch.cat([wrong[:30], noise[30:]]))


@pytest.mark.parametrize("at_once", [False, True])
def test_in_float32_gives_the_logits_of_a_float32_copy(folder, at_once):
    model = opened(folder, "bfloat16")
    with probing.randomise_adapters(model), torch.no_grad():
        wanted, before = copy.deepcopy(model).float()(IDS).logits, bits(model)
        own = model(IDS).logits.float()
        with cast_to_float32(model, at_once=at_once):
            got = model(IDS).logits
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
        assert (own - wanted).abs().max() > 0.01
        assert_untouched(model, before)
        assert torch.equal(model(IDS).logits.float(), own)


@pytest.mark.parametrize("at_once", [False, True])
def test_in_float32_restores_every_weight_when_the_pass_raises(folder, at_once):
    model = opened(folder, "bfloat16")
    before, activation = bits(model), model.get_decoder().layers[1].mlp.act_fn

    def broken(*_):
        raise KeyError

    handle = activation.register_forward_pre_hook(broken)
    with pytest.raises(KeyError), cast_to_float32(model, at_once=at_once):
        model(IDS)
    handle.remove()
    assert_untouched(model, before)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_in_float32_restores_weights_of_a_module_that_raises_itself(folder):
    model = opened(folder, "bfloat16", lora=False)
    before = bits(model)
    with pytest.raises(IndexError), cast_to_float32(model):
        model(torch.tensor([[10**6]]))
    assert_untouched(model, before)


def test_filled_adapters_do_something_and_are_restored_to_the_bit(folder):
    model = opened(folder, "bfloat16")
    for layer in lora_layers(model):
        layer.lora_B["default"].weight.data.normal_(generator=torch.Generator().manual_seed(1))
    before = bits(model)
    places = [weight.data_ptr() for weight in model.parameters()]

    def filled_and_broken():
        with torch.no_grad(), probing.randomise_adapters(model):
            for layer in lora_layers(model):
                product = (
                    layer.lora_B["default"].weight
                    @ layer.lora_A["default"].weight
                    * layer.scaling["default"]
                )
                # kaiming_uniform of width H is uniform within 1 / sqrt(H): a fifth of that size.
                assert float(product.std() * layer.in_features**0.5) == pytest.approx(
                    FILLED / 3**0.5, rel=0.35
                )
            raise KeyError

    with pytest.raises(KeyError):
        filled_and_broken()
    assert_untouched(model, before)
    assert [weight.data_ptr() for weight in model.parameters()] == places


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_model_whose_modules_read_each_others_weights_can_be_probed(dtype):
    """Mamba's mixer uses its convolution's weight itself: that one is not cast as the module that
    holds it runs."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = MambaConfig(vocab_size=300, hidden_size=32, num_hidden_layers=2)
        model = AutoModelForCausalLM.from_config(config).to(dtype).eval()
    before = bits(model)
    abilities = probe(model)
    assert not abilities.packing
    assert "packed scoring" in abilities.left_out()
    assert "mamba" in abilities.left_out()
    assert_untouched(model, before)


def test_a_model_of_the_same_build_is_tried_once_and_has_the_same_parts(folder, monkeypatch):
    tried = []
    true = probing.probe
    monkeypatch.setattr(
        probing, "probe", lambda model, **more: tried.append(model) or true(model, **more)
    )
    first, again = opened(folder, "float32"), opened(folder, "float32")
    assert probing.probe_once(first) == probing.probe_once(again)
    assert len(tried) == 1
    assert torch.equal(first(IDS).logits, again(IDS).logits)
    assert {type(one.forward).__name__ for one in first.modules()} == {
        type(one.forward).__name__ for one in again.modules()
    }
    assert first.config._attn_implementation == again.config._attn_implementation
    probing.probe_once(opened(folder, "float32", lora=False))
    probing.probe_once(opened(folder, "bfloat16"))
    assert len(tried) == 3, "adapters and dtypes are builds of their own"
