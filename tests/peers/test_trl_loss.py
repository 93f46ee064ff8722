"""The same batch through TRL's GRPO loss and through ours: log-probabilities, loss and gradients to
1e-5."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from plumbline.algorithms.cispo import Cispo
from plumbline.algorithms.grpo import Grpo
from plumbline.algorithms.objective import Batch
from plumbline.api import sample_trajectories
from plumbline.policies import open_policy
from plumbline.recipe import ModelSection
from plumbline.records import Sampling
from tests.peers.trainer import grpo_trainer

CHATS = [
    [{"role": "user", "content": "o produto chegou"}],
    [{"role": "user", "content": "não recomendo, 12 dias " * 2}],
]
G, LIMIT = 4, 12
TEMPERATURE = 0.8
PARTS = ("ids", "mask")


def batch_for_trl(policy, groups, advantages, old, reference):
    """TRL's tensors: prompts padded on the left, completions on the right."""
    trajectories = [t for group in groups for t in group]
    longest_prompt = max(len(t.prompt) for t in trajectories)
    longest = max(t.num_tokens for t in trajectories)
    batch = {
        **{
            f"prompt_{part}": torch.zeros(len(trajectories), longest_prompt, dtype=torch.long)
            for part in PARTS
        },
        **{
            f"completion_{part}": torch.zeros(len(trajectories), longest, dtype=torch.long)
            for part in PARTS
        },
        **{
            f"{kind}_per_token_logps": torch.zeros(len(trajectories), longest)
            for kind in ("old", "ref")
        },
    }
    at = 0
    for row, t in enumerate(trajectories):
        batch["prompt_ids"][row, longest_prompt - len(t.prompt) :] = torch.from_numpy(t.prompt)
        batch["prompt_mask"][row, longest_prompt - len(t.prompt) :] = 1
        batch["completion_ids"][row, : t.num_tokens] = torch.from_numpy(t.tokens)
        batch["completion_mask"][row, : t.num_tokens] = 1
        batch["old_per_token_logps"][row, : t.num_tokens] = old[at : at + t.num_tokens]
        batch["ref_per_token_logps"][row, : t.num_tokens] = reference[at : at + t.num_tokens]
        at += t.num_tokens
    batch["advantages"] = torch.tensor(advantages, dtype=torch.float32)
    batch["num_items_in_batch"] = batch["completion_mask"].sum()
    return batch


@pytest.mark.parametrize(
    ("loss_type", "beta", "cap"),
    [
        ("dr_grpo", 0.0, None),
        ("dr_grpo", 0.3, None),
        ("grpo", 0.1, None),
        ("dapo", 0.0, None),
        ("cispo", 0.0, None),
        ("cispo", 0.1, None),
        ("grpo", 0.0, 1.1),
        ("cispo", 0.0, 1.1),
    ],
)
def test_same_batch_same_loss_and_gradients(tiny_folder, tmp_path, loss_type, beta, cap):
    """With a cap there is a third distribution, the sampler's (TRL leaves the KL without its
    weight: no beta there)."""
    policy = open_policy(ModelSection(name=str(tiny_folder)), str(tiny_folder))
    sampling = Sampling(temperature=TEMPERATURE, max_tokens=LIMIT)
    groups = sample_trajectories(policy, CHATS, G, sampling, seed=1)
    trajectories = [t for group in groups for t in group]
    assert len({t.num_tokens for t in trajectories}) > 1, (
        "the batch should hold completions of several lengths"
    )
    rng = np.random.default_rng(0)
    advantages = rng.normal(size=len(trajectories))
    with torch.no_grad():
        scored = policy.score(trajectories)
        noise = torch.from_numpy(rng.normal(size=len(scored.logprobs), scale=0.15)).float()
    old, reference = scored.logprobs + noise, scored.logprobs - noise.roll(1)
    engine = old + noise.roll(2)  # an engine's own records

    # Ours: two passes, so that cutting a batch is tested, too.
    lengths = [t.num_tokens for t in trajectories]
    algorithm = Cispo(clip_high=0.15)
    if loss_type != "cispo":
        algorithm = Grpo(normaliser=loss_type, clip_low=0.1, clip_high=0.15)
    weight = algorithm.weights(lengths, LIMIT)
    total, at = 0.0, 0
    for part in (trajectories[:3], trajectories[3:]):
        terms = policy.score(part)
        first = trajectories.index(part[0])
        owner = terms.owner + first
        of_part = slice(at, at + len(terms.logprobs))
        batch = Batch(
            [],
            terms if cap is None else replace(terms, recorded=engine[of_part]),
            old[of_part],
            torch.tensor(advantages, dtype=torch.float32)[owner],
            torch.tensor(weight, dtype=torch.float32)[owner],
            reference=reference[of_part] if beta else None,
            beta=beta,
            cap=cap,
        )
        losses = algorithm.loss(batch)
        at += len(terms.logprobs)
        losses.value.backward()
        total += losses.value.item()

    peer = grpo_trainer(
        tiny_folder, tmp_path, lambda completions, **_: [0.0] * len(completions), CHATS,
        per_device_train_batch_size=2 * G, num_generations=G, max_completion_length=LIMIT, temperature=TEMPERATURE,
        loss_type=loss_type, beta=beta, epsilon=0.1,
        # TRL clips a CISPO weight at the value itself
        epsilon_high=1.15 if loss_type == "cispo" else 0.15,
    )  # fmt: skip
    peer.model.train()
    peer.current_gradient_accumulation_steps = 1
    batch = batch_for_trl(policy, groups, advantages, old, reference)
    if cap is not None:
        # what `vllm_importance_sampling_mode: token_truncate` makes of an engine's records
        peer.use_vllm = True
        weights = torch.zeros_like(batch["old_per_token_logps"])
        weights[batch["completion_mask"].bool()] = (old - engine).exp().clamp(max=cap)
        assert (weights == cap).any()
        batch["importance_sampling_ratio"] = weights
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    theirs, *_ = peer._get_per_token_logps_and_entropies(
        peer.model, ids, mask, batch["completion_ids"].shape[1]
    )
    torch.testing.assert_close(
        theirs[batch["completion_mask"].bool()], scored.logprobs, atol=1e-5, rtol=0
    )

    loss = peer._compute_loss(peer.model, batch)
    loss.backward()
    assert total == pytest.approx(loss.item(), abs=1e-5)
    wanted = {name: parameter.grad for name, parameter in peer.model.named_parameters()}
    for name, parameter in policy.trainable().items():
        torch.testing.assert_close(parameter.grad, wanted[name], atol=1e-5, rtol=1e-3)
    assert max(float(g.abs().max()) for g in wanted.values()) > 1e-3
