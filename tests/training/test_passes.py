"""Out of memory in a pass: it is done again in smaller ones, with the same draws, and says so."""

import pytest
import torch

from plumbline.errors import DeviceMemoryError
from plumbline.pipeline import run_recipe
from plumbline.policies import open_policy
from plumbline.policies.autoregressive.policy import AutoregressivePolicy
from plumbline.recipe import parse
from tests.runs.test_changes import recipe
from tests.training.toy_runs import train_toy


class Full:
    """A memory that holds so many trajectories a pass with gradient, or that is full at some calls only."""

    def __init__(self, monkeypatch, policy=AutoregressivePolicy, *, method="score", holds=10**9, at=()):
        self.passes, self.holds, self.at = [], holds, at
        honest = getattr(policy, method)

        def limited(policy, trajectories, *rest, **named):
            self.passes.append(len(trajectories))
            if len(trajectories) > self.holds or len(self.passes) in self.at:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return honest(policy, trajectories, *rest, **named)

        monkeypatch.setattr(policy, method, limited)


def told(run):
    return [row["message"] for row in run.files["events"].rows() if row["kind"] == "out_of_memory"]


def weights(policy):
    return {name: weight.detach().clone() for name, weight in policy.trainable().items()}


def rows(run):
    """What is recorded, but for what is estimated from how a batch was cut into passes."""
    estimated = {"train/grad_signal", "train/grad_noise", "train/grad_snr"}
    return [{name: value for name, value in row.items() if name not in estimated} for row in run.rows("rl")]


WAYS = {
    "once": {},
    "inner": {"inner_epochs": 2, "old": "rescored", "beta": 0.1},
    "closer": {"inner_epochs": 3, "algorithm": "gspo"},
}


@pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)
def test_a_memory_that_holds_fewer_is_a_run_of_smaller_passes(tiny_folder, tmp_path, monkeypatch, settings):
    with monkeypatch.context() as patch:
        full = Full(patch, holds=2)
        policy, run = train_toy(tiny_folder, tmp_path / "full", **settings)
    messages = told(run)
    assert sum(count > 2 for count in full.passes) == len(messages), "what was too much is not tried again"
    assert "passes of up to 8192 tokens" in messages[0]
    tokens = int(messages[-1].rsplit("rl.tokens_per_pass: ", 1)[1].split()[0])
    other, small = train_toy(tiny_folder, tmp_path / "small", tokens_per_pass=tokens, **settings)
    for name, weight in weights(policy).items():
        assert torch.equal(weight, weights(other)[name]), name
    assert run.rows("rl") == small.rows("rl")
    assert run.files["samples"].rows() == small.files["samples"].rows()
    assert told(small) == []


@pytest.mark.parametrize("call", [1, 2, 4, 8])
def test_whichever_pass_fails_the_step_is_done_once(tiny_folder, tmp_path, monkeypatch, call):
    """Gradients of passes that had fitted are not counted twice, and what an earlier epoch has learnt is kept."""
    settings = {"inner_epochs": 2, "steps": 2, "prompts_per_step": 6}
    with monkeypatch.context() as patch:
        full = Full(patch, at=(call,))
        policy, run = train_toy(tiny_folder, tmp_path / "full", **settings)
    assert len(full.passes) > 10
    assert len(told(run)) == 1
    other, whole = train_toy(tiny_folder, tmp_path / "whole", **settings)
    for one, two in zip(rows(run), rows(whole), strict=True):
        assert one == pytest.approx(two, abs=1e-6)
    for name, weight in weights(policy).items():
        torch.testing.assert_close(weight, weights(other)[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["autoregressive", "masked"])
def test_sft_does_the_same(tiny_folder, tmp_path, monkeypatch, family):
    """The masked family's loss draws: each demonstration keeps its noise."""
    made = {"name": None, "tiny": {"hidden": 16, "layers": 1, "heads": 2, "vocabulary": 300, "context": 128}}
    made = {"family": family, **made, "tiny": {**made["tiny"], "steps": 1}}
    sft = {"steps": 2, "batch_size": 4, "optimiser": {"learning_rate": 1e-3}}
    values = {"name": "x", "model": made, "task": {"name": "tests.toy:open_toy"}, "sft": sft,
              "sampling": {"max_tokens": 4, **({} if family == "autoregressive" else {"steps": 2})},
              "evaluation": {"every": 0, "final": ["val"], "sampled": False}}  # fmt: skip
    if family != "autoregressive":
        made["canvas"] = 8
    from plumbline.policies.masked.policy import MaskedPolicy

    policy = AutoregressivePolicy if family == "autoregressive" else MaskedPolicy
    with monkeypatch.context() as patch:
        full = Full(patch, policy, method="supervised_loss", at=(2,))
        run = run_recipe(parse(values), tmp_path / "full")
    assert min(full.passes) < 4
    (message,) = told(run)
    tokens = int(message.rsplit("sft.tokens_per_pass: ", 1)[1].split()[0])
    small = run_recipe(parse({**values, "sft": {**sft, "tokens_per_pass": tokens}}), tmp_path / "small")
    one, other = (open_policy(parse(values).model, str(r.folder / "models" / "sft")) for r in (run, small))
    for name, weight in weights(one).items():
        torch.testing.assert_close(weight, weights(other)[name], atol=1e-6, rtol=0)


def test_where_one_alone_does_not_fit_the_error_says_what_to_do(tiny_folder, tmp_path, monkeypatch):
    Full(monkeypatch, holds=0)
    with pytest.raises(DeviceMemoryError, match=r"lower sft\.tokens_per_pass .*, lower rl\.tokens_per_pass"):
        run_recipe(recipe(tiny_folder), tmp_path / "run")


def test_an_error_that_is_not_of_memory_is_not_tried_again(tiny_folder, tmp_path, monkeypatch):
    calls = []

    def broken(*_, **__):
        calls.append(1)
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(AutoregressivePolicy, "score", broken)
    with pytest.raises(RuntimeError, match="mat1"):
        train_toy(tiny_folder, tmp_path / "run")
    assert calls == [1]
