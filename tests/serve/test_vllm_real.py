"""A model behind a real vLLM server, where one can be started, asked by the official client.

PLUMBLINE_VLLM_PYTHON=~/vllm/bin/python pytest tests/serve/test_vllm_real.py
"""

import math
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from plumbline.policies import open_policy
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.opening import ModelOptions
from plumbline.records import Request, Sampling
from plumbline.runs.run import Observer
from plumbline.serve.served_models import open_models
from tests.engines.test_vllm_real import MODEL, WHY
from tests.serve.serving import assert_says, client_of, running

pytestmark = pytest.mark.skipif(bool(WHY), reason=WHY)
CHAT = [{"role": "user", "content": "What is the capital of France?"}]


def test_a_real_vllm_server_answers_as_the_model_itself_does():
    policy = open_policy(
        AutoregressiveModel(name=str(MODEL), dtype="float32", threads=2), str(MODEL), 0
    )
    sampling = Sampling(temperature=0.0, max_tokens=12)
    ((_, wanted),) = policy.sample([Request((0,), CHAT, sampling)])
    options = ModelOptions(engine="vllm", dtype="float32", device="cpu")
    (served,) = open_models({"small": str(MODEL)}, options, Observer())
    with running([served]) as server:
        client = client_of(f"{server.address}/v1", timeout=120)

        def ask(**more):
            return client.chat.completions.create(
                model="small", messages=CHAT, max_tokens=12, **more
            )

        assert_says(ask(temperature=0, logprobs=True), wanted)
        assert (
            "".join(one.choices[0].delta.content or "" for one in ask(temperature=0, stream=True))
            == wanted.text
        )
        # At temperature 1 its log-probabilities are those of the model, of the tokens that it says
        # it drew.
        drawn = ask(temperature=1, logprobs=True)
        spelled = [one.token for one in drawn.choices[0].logprobs.content]
        assert "".join(spelled).startswith(drawn.choices[0].message.content)
        assert all(-math.inf < one.logprob <= 0 for one in drawn.choices[0].logprobs.content)
        with ThreadPoolExecutor(16) as clients:
            answers = list(clients.map(lambda _: ask(temperature=1, n=2), range(16)))
        assert [len(answer.choices) for answer in answers] == [2] * 16
        assert len({choice.message.content for answer in answers for choice in answer.choices}) > 1
        with pytest.raises(openai.BadRequestError, match="at most"):
            client.chat.completions.create(model="small", messages=CHAT, max_tokens=100_000)
