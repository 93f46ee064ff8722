"""The official client against a real server with tiny models."""

import openai
import pytest

from plumbline.records import Sampling
from plumbline.serve.batched import BatchedServed
from tests.serve.serving import served

CHAT = [{"role": "user", "content": "o produto chegou?"}]


@pytest.fixture(scope="module")
def client(tiny_policy):
    pytest.importorskip("starlette")
    model = BatchedServed("tiny", tiny_policy, Sampling(temperature=0.0, max_tokens=8))
    with served([model]) as address:
        yield openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


def test_an_answer_is_that_of_the_policy(client, tiny_policy):
    said = client.chat.completions.create(model="tiny", messages=CHAT, max_tokens=8, seed=3, temperature=1.0, n=2)
    from plumbline.records import Request

    law = Sampling(max_tokens=8)
    requests = [Request((3, "serve", index), CHAT, law) for index in range(2)]
    wanted = {request.key[2]: trajectory for request, trajectory in tiny_policy.sample(requests)}
    assert [choice.message.content for choice in said.choices] == [wanted[index].text for index in range(2)]
    assert [choice.finish_reason for choice in said.choices] == [wanted[index].finish for index in range(2)]
    assert said.usage.completion_tokens == sum(each.num_tokens for each in wanted.values())
    assert said.usage.prompt_tokens == tiny_policy.prompt_length(CHAT)


def test_a_stream_says_the_same(client):
    asked = {"model": "tiny", "messages": CHAT, "seed": 1, "temperature": 1.0}
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_models_and_what_is_not_there(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    with pytest.raises(openai.NotFoundError, match="there is no model"):
        client.chat.completions.create(model="other", messages=CHAT)
    with pytest.raises(openai.BadRequestError, match="exceed the context"):
        client.chat.completions.create(model="tiny", messages=CHAT, max_tokens=4000)
