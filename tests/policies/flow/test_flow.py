"""The flow policy: both laws under both kernels and sources, scoring by itself and among others,
its files."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from plumbline.api import check_policy, sample_trajectories
from plumbline.errors import ModelError
from plumbline.policies.flow.network import FlowNetwork
from plumbline.policies.flow.options import FlowSampling
from plumbline.policies.sampling_distribution import noises
from tests.policies.families import SAMPLINGS, assert_both_laws_hold, drawn
from tests.policies.flow.conftest import make, opened

CHATS = [
    [{"role": "user", "content": text}] for text in ("nota?", "o produto chegou atrasado?", "sim")
]
SAMPLING = SAMPLINGS["flow"]


@pytest.fixture(scope="module", params=["uniform", "mask"])
def sourced(request, tmp_path_factory):
    return opened(make(tmp_path_factory.mktemp("models") / request.param, source=request.param))


@pytest.mark.parametrize("kernel", ["conditional", "marginal"])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.5}, {"top_p": 0.5}])
def test_both_laws_hold(tmp_path, kernel, options, monkeypatch):
    """With a start that is always the same (the noise has no term), one place, and few tokens that
    matter."""
    policy = opened(make(tmp_path / "m", source="mask"))
    sampling = FlowSampling(max_tokens=1, steps=3, top_k=4, kernel=kernel, **options)
    assert_both_laws_hold(policy, CHATS[0], sampling, draws=1500, gap=1e-5, least=0.97)


@pytest.mark.parametrize("kernel", ["conditional", "marginal"])
def test_the_laws_hold_from_one_noisy_start(flow_folder, kernel, monkeypatch):
    policy = opened(flow_folder)
    start = torch.tensor([5, 9])
    monkeypatch.setattr(policy, "_noise", lambda places, generator: start[:places])
    assert_both_laws_hold(
        policy,
        CHATS[1],
        FlowSampling(max_tokens=2, steps=2, top_k=2, kernel=kernel),
        draws=1500,
        gap=1e-5,
        least=0.97,
    )


def test_a_model_in_float64_is_scored_in_float64(flow_folder):
    policy = opened(flow_folder)
    (sampled,) = sample_trajectories(policy, [CHATS[0]], 4, SAMPLING, seed=0)
    policy.model.double()
    policy.keep_reference()
    terms = policy.score(sampled, divergence=True)
    assert (terms.logprobs.dtype, terms.divergence.dtype) == (torch.float64, torch.float64)
    assert (terms.logprobs - terms.recorded).abs().max() < 1e-5
    assert terms.divergence.abs().max() < 1e-5


def test_a_scorer_of_another_kernel_breaks_them(flow_folder, monkeypatch):
    policy = opened(flow_folder)
    ((greedy,),) = sample_trajectories(
        policy, [CHATS[0]], 1, FlowSampling(temperature=0, max_tokens=1, steps=2), seed=0
    )
    # from an unlikely start nothing stays, and the kernels agree
    likely = torch.from_numpy(greedy.answer)
    monkeypatch.setattr(policy, "_noise", lambda places, generator: likely)
    honest = policy.score
    monkeypatch.setattr(
        policy,
        "score",
        lambda ts: honest(
            [replace(t, sampling=replace(t.sampling, kernel="marginal")) for t in ts]
        ),
    )
    laws = check_policy(
        policy, CHATS[0], FlowSampling(max_tokens=1, steps=2, top_k=3, temperature=3.0), draws=2500
    )
    assert laws.gap > 1e-3
    assert laws.chi_square_p < 1e-3


def test_steps_follow_one_another_and_the_prompt_is_left_alone(sourced):
    for trajectory in drawn(sourced):
        for step, after in zip(trajectory.transitions, trajectory.transitions[1:], strict=False):
            assert step.tokens.tolist() == after.state.tolist()
            assert step.until == after.time
        assert trajectory.transitions[-1].until == 1
        assert (
            trajectory.transitions[-1].tokens[: trajectory.num_tokens].tolist()
            == trajectory.answer.tolist()
        )
    if sourced.mask_id is not None:
        assert all((t.answer != sourced.mask_id).all() for t in drawn(sourced))


def test_greedy_ends_with_the_most_probable_tokens(policy):
    ((trajectory,),) = sample_trajectories(
        policy, [CHATS[0]], 1, FlowSampling(temperature=0, max_tokens=4, steps=3), seed=0
    )
    last = trajectory.transitions[-1]
    prefix = policy.network.encode([trajectory.prompt.tolist()])
    with torch.no_grad():
        hidden = policy.network.hidden_states(
            prefix,
            torch.from_numpy(last.state)[None],
            torch.tensor([last.time]),
            torch.tensor([1 - last.time]),
        )
    assert policy.network.head(hidden)[0].argmax(-1).tolist() == last.tokens.tolist()
    assert trajectory.logprobs.tolist() == [0.0] * 12


def test_gradients_are_those_of_finite_differences(flow_folder):
    policy = opened(flow_folder, learned_temperature=True)
    trajectories = drawn(policy, replace(SAMPLING, kernel="marginal", temperature=0.8), copies=1)
    policy.score(trajectories).logprobs.sum().backward()
    for name in (
        "head.bias",
        "layers.0.query.weight",
        "time.outer.weight",
        "learned_temperature.log_temperature",
    ):
        weight = policy.trainable()[name]
        index = np.unravel_index(int(weight.grad.abs().argmax()), weight.shape)
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                weight[index] += sign * 1e-2
                values.append(policy.score(trajectories).logprobs.double().sum().item())
                weight[index] -= sign * 1e-2
        assert weight.grad[index].item() == pytest.approx((values[0] - values[1]) / 2e-2, rel=3e-2)


@pytest.mark.parametrize("kernel", ["conditional", "marginal"])
def test_the_divergence_has_a_gradient_where_the_present_token_is_filtered_out(flow_folder, kernel):
    """It was no number: a token outside the filters has a log-probability of minus infinity on both
    sides."""
    policy = opened(flow_folder)
    policy.keep_reference()
    trajectories = drawn(policy, replace(SAMPLING, kernel=kernel, top_k=2))
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.add_(0.02)
    policy.score(trajectories, divergence=True).divergence.sum().backward()
    gradients = [weight.grad for weight in policy.trainable().values() if weight.grad is not None]
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert any(bool(gradient.any()) for gradient in gradients)


def test_training_lowers_its_loss(flow_folder):
    policy = opened(flow_folder, canvas=6)
    chat = [*CHATS[0], {"role": "assistant", "content": "sim"}]
    batch = [policy.demonstrate(chat)] * 16
    assert batch[0].num_targets == 6
    optimiser = torch.optim.Adam(policy.trainable().values(), lr=3e-3)
    losses = []
    for step in range(60):
        loss = policy.supervised_loss(batch, noises(16, step)) / (16 * 6)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])
    ((trajectory,),) = sample_trajectories(
        policy, [CHATS[0]], 1, FlowSampling(temperature=0, max_tokens=6, steps=6), seed=0
    )
    assert trajectory.finish in {"stop", "length"}


def test_what_cannot_be_is_said(flow_folder, tiny_folder, tmp_path):
    with pytest.raises(ModelError, match=r"config\.json"):
        FlowNetwork.from_pretrained(tiny_folder)
    with pytest.raises(ModelError, match=r"model\.lora"):
        opened(flow_folder, lora={"rank": 2, "alpha": 4})
    broken = make(tmp_path / "broken")
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps({**config, "hidden": 32}))
    with pytest.raises(ModelError, match="of another model"):
        opened(broken)
    (broken / "config.json").write_text(
        json.dumps({k: v for k, v in config.items() if k != "layers"})
    )
    with pytest.raises(ModelError, match="damaged"):
        opened(broken)
    save_file({}, broken / "model.safetensors")
    (broken / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="of another model"):
        FlowNetwork.from_pretrained(broken)
