"""The sampler with a real vLLM server, where one can be started: what the stand-in claims about it
holds.

PLUMBLINE_VLLM_PYTHON=~/vllm/bin/python pytest tests/engines/test_vllm_real.py
"""

import os
import signal
from pathlib import Path

import pytest
import torch

from plumbline.engines.vllm import EngineContext, VllmSampler
from plumbline.errors import EngineError
from plumbline.policies import open_policy
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.recipe.execution import EngineSection
from plumbline.records import Sampling
from tests.engines.test_vllm import Heard, answered, change, requests

MODEL = Path("models/smollm2-135m")
WHY = (
    "PLUMBLINE_VLLM_PYTHON names no interpreter with vLLM 0.32"
    if "PLUMBLINE_VLLM_PYTHON" not in os.environ
    else "there is no models/smollm2-135m (`plumbline get smollm2-135m`)"
    if not MODEL.is_dir()
    else ""
)
pytestmark = pytest.mark.skipif(bool(WHY), reason=WHY)


def test_a_real_server_samples_by_the_distribution_is_handed_weights_and_survives_a_kill(tmp_path):
    """One server for all of it, because each takes half a minute to start."""
    section = AutoregressiveModel(name=str(MODEL), lora={"rank": 16}, dtype="float32")
    policy = open_policy(section, str(MODEL), 0)
    policy.context = 512
    heard = Heard()
    sampler = VllmSampler(
        EngineSection(name="vllm", timeout=240), policy, EngineContext(tmp_path, 0, heard)
    )
    try:
        assert sampler.engine["dtype"] == "float32"
        change(policy, size=2e-3)
        sampler.take(policy, 1)
        assert sampler.figures["engine/probe_moved"] == pytest.approx(1, abs=0.02)
        for sampling in ({}, {"temperature": 0.7, "top_k": 20}, {"top_p": 0.8}):
            asked = requests(
                ["Name a river.", "Name a colour."], 4, Sampling(max_tokens=24, **sampling)
            )
            got = answered(sampler, asked, policy, 0.01)
            assert {trajectory.version for trajectory in got.values()} == {1}
        greedy = requests(
            ["What is the capital of France?"], 2, Sampling(max_tokens=12, temperature=0.0)
        )
        ours = [trajectory.tokens.tolist() for _, trajectory in policy.sample(greedy)]
        assert [trajectory.tokens.tolist() for _, trajectory in sampler.sample(greedy)] == ours

        asked = requests(["Tell me a story of a river."], 1, Sampling(max_tokens=4))
        asked += requests(["Tell me a story of a hill."], 8, Sampling(max_tokens=300))
        keys = []
        for request, _ in sampler.sample(asked):
            if not keys:
                os.killpg(sampler.server.keeper.pid, signal.SIGKILL)
            keys.append(request.key)
        assert sorted(keys) == sorted(request.key for request in asked)
        assert any("started again" in message for message in heard.events)

        before = sampler.client.call("/weight_info")["weight_version"]
        change(policy, size=2e-3, seed=1)
        original = sampler.client.call
        sampler.client.call = lambda path, *rest: (
            None if path == "/collective_rpc" else original(path, *rest)
        )
        with pytest.raises(EngineError, match="older weights"):
            sampler.take(policy, 2)
        assert original("/weight_info")["weight_version"] != before, "it says that it has them"
    finally:
        sampler.close()
    assert sampler.server.process.poll() is not None


def test_weights_that_16_bits_round_away_are_an_error_with_a_real_server_too(tmp_path):
    section = AutoregressiveModel(name=str(MODEL), lora={"rank": 16}, dtype="bfloat16")
    policy = open_policy(section, str(MODEL), 0)
    policy.context = 512
    engine = EngineSection(name="vllm", timeout=240, arguments=["--dtype", "bfloat16"])
    sampler = VllmSampler(engine, policy, EngineContext(tmp_path, 0, Heard()))
    try:
        with torch.no_grad():
            for name, weight in policy.trainable().items():
                weight += 1e-5 * torch.randn(weight.shape) * ("lora_B" in name)
        with pytest.raises(EngineError, match="rounded to bfloat16"):
            sampler.take(policy, 1)
    finally:
        sampler.close()
