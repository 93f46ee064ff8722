"""Nothing meets what is on another device: every family on a GPU that only says it is one
(`tests.fake_gpu`)."""

from dataclasses import replace

import pytest
import torch

from plumbline.api import sample_trajectories
from plumbline.policies.pretrained import causal_model
from plumbline.policies.sampling_distribution import noises
from plumbline.training import microbatches
from plumbline.training.optimiser import Optimiser
from plumbline.training.update import update_policy
from tests.algorithms.batches import group_of, rollout_of
from tests.fake_gpu import fake_gpu, is_there
from tests.policies.families import SAMPLINGS, opened
from tests.training.toy_runs import toy_recipe

CHATS = [[{"role": "user", "content": text}] for text in ("nota?", "o produto")]
SELECTORS = (
    "random",
    "ancestral",
    "leftmost",
    "plackett_luce",
    "plackett_luce_set",
    "threshold",
    "low_confidence",
)
MASKED, SLOTS, FLOW, PLAIN = (
    SAMPLINGS[family] for family in ("masked", "slots", "flow", "autoregressive")
)
FAMILIES = {
    "masked": ({}, [replace(MASKED, selector=name) for name in SELECTORS]),
    "flow": (
        {"learned_temperature": True},
        [replace(FLOW, kernel=kernel) for kernel in ("conditional", "marginal")],
    ),
    "slots": ({"lora": {"rank": 2}}, [SLOTS, replace(SLOTS, selector="random")]),
    "autoregressive": ({"lora": {"rank": 2}}, [PLAIN, replace(PLAIN, top_k=5, top_p=0.9)]),
    "autoregressive-general": ({"decoder": "transformers"}, [PLAIN]),
}


@pytest.fixture(params=sorted(FAMILIES))
def family(request, family_folders, monkeypatch):
    """A family's name, its laws, and its policy on the fake GPU."""
    (options, samplings), name = FAMILIES[request.param], request.param.partition("-")[0]
    monkeypatch.setattr(causal_model, "count_devices", lambda kind: 1)
    for planted, value in {
        "begin_peak": None,
        "read_peak": 10**6,
        "measure_reachable_memory": 10**9,
    }.items():
        monkeypatch.setattr(microbatches, planted, lambda device, value=value: value)
    with fake_gpu():
        yield (
            name,
            samplings,
            opened(name, family_folders[name], device="cuda", dtype="float32", **options),
        )


def test_every_family_samples_scores_and_learns_on_a_gpu(family, tmp_path):
    name, samplings, policy = family
    assert policy.engine["device"] == "cuda:0"
    assert all(is_there(weight) for weight in policy.trainable().values())
    assert policy.engine.get("left_out", "") == ""
    policy.keep_reference()
    closed = {"beta": 0.1, "kl": "sampled" if name == "autoregressive" else "closed"}
    for sampling in samplings:
        trajectories = [
            t for group in sample_trajectories(policy, CHATS, 2, sampling, 0) for t in group
        ]
        group = group_of(
            *(
                rollout_of(t, advantage=(-1.0) ** index, weight=1 / 32)
                for index, t in enumerate(trajectories)
            )
        )
        for settings in ({"algorithm": "gspo", "inner_epochs": 2}, closed):
            recipe = toy_recipe(family=name, steps=2, optimiser={"learning_rate": 5e-6}, **settings)
            optimiser = Optimiser(policy.trainable(), recipe.rl.optimiser, 2)
            update = update_policy(policy, optimiser, [group], recipe, 0)
            assert update.terms > 0
        greedy = (
            replace(sampling, temperature=0.0, selector="threshold")
            if name == "slots"
            else replace(sampling, temperature=0)
        )
        sample_trajectories(policy, CHATS, 1, greedy, 0)
    batch = [policy.demonstrate([*chat, {"role": "assistant", "content": "sim"}]) for chat in CHATS]
    policy.supervised_loss(batch, noises(2, 0)).backward()
    policy.save(tmp_path / "saved", {})


def test_the_fake_gpu_finds_what_a_gpu_would():
    with fake_gpu():
        here, there = torch.zeros(3, 2), torch.zeros(3, 2).to("cuda")
        assert (there + 1).sum().device == torch.device("cuda", 0)
        assert there.cpu().device == torch.device("cpu")
        assert there[torch.tensor([0])].shape == (1, 2)
        for wrong in (
            lambda: here + there,
            lambda: torch.cat([here, there]),
            lambda: here[torch.zeros(1, dtype=torch.long, device="cuda")],
            lambda: there.__setitem__(torch.tensor([0]), torch.ones(1, 2)),
            lambda: torch.nn.Linear(2, 2).to("cuda")(here),
        ):
            with pytest.raises(RuntimeError, match="same device"):
                wrong()
        with pytest.raises(TypeError, match="can't convert"):
            there.numpy()
