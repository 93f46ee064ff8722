"""One causal model's weights as four families: each by its own distribution, and a flow that begins
as its backbone."""

import shutil
from dataclasses import replace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from conftest import make_sharp
from plumbline.api import check_policy, sample_trajectories
from plumbline.errors import ModelError
from plumbline.policies import open_policy, sampling_distribution
from plumbline.policies import token_logprobs as places
from plumbline.policies.autoregressive import policy as autoregressive
from plumbline.policies.autoregressive.options import OPTIONS as CAUSAL
from plumbline.policies.flow import sampler as flow_sampler
from plumbline.policies.flow.network import FILE
from plumbline.policies.flow.options import FlowModel, FlowSampling
from plumbline.policies.masked import sampler as masked_sampler
from plumbline.policies.masked.network import Network
from plumbline.policies.masked.options import MaskedModel, MaskedSampling
from plumbline.policies.slots.options import SlotModel, SlotSampling
from plumbline.recipe import LoraSection
from plumbline.records import Sampling
from tests.policies.families import assert_both_laws_hold

CHAT = [{"role": "user", "content": "nota?"}]
SHOWN = [*CHAT, {"role": "assistant", "content": "sim"}]
MASK = "<|endoftext|>"
LORA = LoraSection(rank=2, alpha=4)
SAMPLINGS = {
    "autoregressive": Sampling(max_tokens=3, top_k=3),
    "masked": MaskedSampling(max_tokens=3, steps=3, top_k=2, selector="plackett_luce"),
    "slots": SlotSampling(max_tokens=4, steps=2, top_k=2, selector="plackett_luce"),
    "flow": FlowSampling(max_tokens=2, steps=2, top_k=2),
}
MODELS = {
    "autoregressive": CAUSAL.model,
    "masked": MaskedModel,
    "slots": SlotModel,
    "flow": FlowModel,
}
DRAWS_IN = {
    "autoregressive": autoregressive,
    "masked": masked_sampler,
    "slots": places,
    "flow": flow_sampler,
}
OWN = {
    "masked": {"mask_token": MASK, "attention": "prefix"},
    "slots": {"mask_token": MASK, "slot": 2},
    "flow": {"attention": "prefix", "conditioning": 8},
}


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    """A causal model that knows of no mask."""
    return make_sharp(tmp_path_factory.mktemp("models") / "backbone", context=128)


def opened(folder, family, seed=0, **options):
    section = MODELS[family](name=str(folder), family=family, **{**OWN.get(family, {}), **options})
    return open_policy(section, str(folder), seed)


def livened(policy, seed=1):
    """Numbers in what begins as 0: the conditioning, and the second factor of adapters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in policy.trainable().items():
            if "modulation.out" in name or "lora_B" in name:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
    return policy


@pytest.fixture(params=SAMPLINGS)
def policy(request, backbone, monkeypatch):
    policy = livened(opened(backbone, request.param, lora=LORA))
    if request.param == "flow":  # the noise that a canvas begins with has no term
        monkeypatch.setattr(
            policy, "_noise", lambda places, generator: torch.tensor([5, 9])[:places]
        )
    return policy


def test_both_laws_hold_on_the_same_weights(policy):
    assert_both_laws_hold(policy, CHAT, SAMPLINGS[policy.family], draws=1000, least=0.9, kinds=8)


def test_a_scorer_at_another_temperature_breaks_both_laws(policy, monkeypatch):
    honest = policy.score
    wrong = replace(SAMPLINGS[policy.family], temperature=0.5)
    monkeypatch.setattr(
        policy, "score", lambda drawn: honest([replace(each, sampling=wrong) for each in drawn])
    )
    laws = check_policy(policy, CHAT, SAMPLINGS[policy.family], draws=1500)
    assert laws.gap > 0.01
    assert laws.chi_square_p < 1e-6


def test_a_sampler_of_other_tokens_breaks_the_second_law_alone(policy, monkeypatch):
    """It records true log-probabilities, so law 1 passes; only the counts give it away."""
    module, true = DRAWS_IN[policy.family], sampling_distribution.draw
    monkeypatch.setattr(
        module, "draw", lambda logits, uniforms, sampling: true(logits, uniforms**1.3, sampling)
    )
    laws = check_policy(policy, CHAT, SAMPLINGS[policy.family], draws=1500)
    assert laws.gap < 2e-5
    assert laws.chi_square_p < 1e-6


def logits(policy, tokens, time):
    """Of the places behind a prompt of 9, at a time."""
    network = policy.network
    times = torch.full((len(tokens),), time)
    with torch.no_grad():
        hidden = network.hidden_states(
            network.encode(tokens[:, :9].tolist()), tokens[:, 9:], times, torch.zeros_like(times)
        )
        return network.head(hidden).flatten(0, 1)


def backbones_own(policy, tokens):
    """By one pass of transformers under a mask that hides nothing; with a kept prompt, as the
    masked family has it."""
    backbone, attention = policy.network.backbone, policy.network.config.attention
    with torch.no_grad():
        if attention == "full":
            mask = torch.zeros(
                (len(tokens), 1, tokens.shape[1], tokens.shape[1]), dtype=backbone.dtype
            )
            return (
                backbone(tokens, attention_mask=mask, use_cache=False).logits[:, 9:].flatten(0, 1)
            )
        network = Network(backbone, attention, shifted=False)
        hidden = network.hidden(network.encode(tokens[:, :9].tolist()), tokens[:, 9:])
        return backbone.get_output_embeddings()(hidden).flatten(0, 1)


@pytest.mark.parametrize("attention", ["full", "prefix"])
@pytest.mark.parametrize("options", [{}, {"lora": LORA}, {"dtype": "bfloat16", "lora": LORA}])
def test_a_flow_begins_as_its_backbone_at_any_time(backbone, attention, options):
    policy = opened(backbone, "flow", attention=attention, **options)
    tokens = torch.randint(0, 280, (3, 14), generator=torch.Generator().manual_seed(0))
    wanted = backbones_own(policy, tokens)
    for time in (0.0, 0.4, 1.0):
        assert torch.equal(logits(policy, tokens, time), wanted)
    # A conditioning that begins otherwise is seen, each of its parts by itself.
    for name, weight in policy.network.clock().items():
        if name.endswith("out.bias"):
            with torch.no_grad():
                weight.fill_(0.2)
            assert float((logits(policy, tokens, 0.4) - wanted).abs().max()) > 1e-3, name
            with torch.no_grad():
                weight.zero_()


def test_a_trained_flow_is_told_the_time(backbone):
    policy = livened(opened(backbone, "flow"))
    tokens = torch.randint(0, 280, (2, 14), generator=torch.Generator().manual_seed(0))
    assert float((logits(policy, tokens, 0.1) - logits(policy, tokens, 0.9)).abs().max()) > 1e-2


@pytest.mark.parametrize("lora", [None, LORA])
def test_a_flow_is_saved_and_opened_like_any_model(backbone, tmp_path, lora):
    policy = livened(opened(backbone, "flow", lora=lora, canvas=5))
    tokens = torch.randint(0, 280, (2, 14), generator=torch.Generator().manual_seed(0))
    folder = tmp_path / "model"
    card = {"model": {"family": "flow", "canvas": 5, "attention": "prefix", "conditioning": 8}}
    policy.save(folder, card)
    assert (folder / "config.json").is_file() == (lora is None)
    again = opened(folder, "flow", lora=lora, seed=7)
    assert torch.equal(logits(again, tokens, 0.3), logits(policy, tokens, 0.3))
    assert again.canvas == 5
    assert again.engine["backbone"] == "llama"
    with pytest.raises(ModelError, match=r"model\.conditioning"):
        opened(folder, "flow", lora=lora, conditioning=16)
    with pytest.raises(ModelError, match="family flow"):
        opened(folder, "masked", lora=lora)
    (folder / FILE).unlink()
    with pytest.raises(ModelError, match=FILE):
        opened(folder, "flow", lora=lora)


def test_a_sampler_behind_has_a_conditioning_of_its_own(backbone):
    from copy import deepcopy

    policy = livened(opened(backbone, "flow", lora=LORA))
    twin = deepcopy(policy)
    tokens = torch.randint(0, 280, (2, 14), generator=torch.Generator().manual_seed(0))
    before = logits(policy, tokens, 0.3)
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.add_(0.1)
    assert torch.equal(logits(twin, tokens, 0.3), before)
    assert float((logits(policy, tokens, 0.3) - before).abs().max()) > 1e-3


def test_what_cannot_become_a_flow_is_refused(backbone, tmp_path):
    other = shutil.copytree(backbone, tmp_path / "gpt2")
    rows = opened(backbone, "flow").network.config.vocabulary
    config = GPT2Config(
        vocab_size=rows,
        n_positions=128,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    GPT2LMHeadModel(config).save_pretrained(other)
    with pytest.raises(ModelError, match="plain layers"):
        opened(other, "flow")


def test_a_backbone_that_computes_more_than_its_layers_is_refused(backbone, monkeypatch):
    """Scaled embeddings (Gemma): layer by layer it would be another model, without a word."""
    from plumbline.policies.flow import network as module

    monkeypatch.setattr(
        module.TimedBackbone, "_read_out", lambda self, states, condition: 1.1 * self.norm(states)
    )
    with pytest.raises(ModelError, match="one by one"):
        opened(backbone, "flow")


@pytest.mark.parametrize("family", ["masked", "slots"])
def test_a_mask_is_named_or_asked_for(backbone, tmp_path, family):
    with pytest.raises(ModelError, match=r"model\.mask_token"):
        opened(backbone, family, mask_token=None)
    with pytest.raises(ModelError, match=r"does not have"):
        opened(backbone, family, mask_token="<|nothing|>")
    policy = opened(backbone, family)
    assert policy.mask_id == policy.chat.tokenizer.convert_tokens_to_ids(MASK)
    policy.save(tmp_path / "model", {})
    again = opened(tmp_path / "model", family, mask_token=None)
    assert again.mask_id == policy.mask_id
    with pytest.raises(ModelError, match="has the mask"):
        opened(tmp_path / "model", family, mask_token="<|im_start|>")
    sampling = replace(SAMPLINGS[family], temperature=0)
    one, other = (
        sample_trajectories(each, [CHAT], 1, sampling, 0)[0][0].answer.tolist()
        for each in (policy, again)
    )
    assert one == other


@pytest.mark.parametrize("family", ["masked", "slots", "flow"])
def test_adapters_run_in_few_products(backbone, family):
    assert opened(backbone, family, lora=LORA).engine["adapters"] == "fused"
    assert opened(backbone, family).engine["adapters"] == "none"


def test_a_place_may_be_predicted_at_the_one_before_it(backbone, tmp_path):
    """As a causal model predicts: the shifted network's hidden states are those of one place
    before."""
    canvas = torch.randint(0, 280, (2, 5), generator=torch.Generator().manual_seed(0))
    prompts = [[1, 5, 7], [1, 9]]
    plain, moved = (
        opened(backbone, "masked", lora=LORA, predicts_next=moves) for moves in (None, True)
    )
    with torch.no_grad():
        here, before = (
            each.network.hidden(each.network.encode(prompts), canvas) for each in (plain, moved)
        )
    assert torch.equal(before[:, 1:], here[:, :-1])
    assert not torch.equal(before, here)
    laws = check_policy(moved, CHAT, SAMPLINGS["masked"], draws=200)
    assert laws.gap < 2e-5
    moved.save(tmp_path / "model", {"model": moved_section(backbone).meaning()})
    with pytest.raises(ModelError, match="predicts_next: True"):
        opened(tmp_path / "model", "masked", lora=LORA)
    assert opened(tmp_path / "model", "masked", lora=LORA, predicts_next=True).network.shifted


def moved_section(folder):
    return MaskedModel(
        name=str(folder), family="masked", predicts_next=True, lora=LORA, **OWN["masked"]
    )
