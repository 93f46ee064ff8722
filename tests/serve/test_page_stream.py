"""A stream of a diffusion model shows its steps to whom asks for them, and answers everybody the
same."""

import openai
import pytest

pytest.importorskip("starlette")

from plumbline.policies.canvas import HIDDEN
from plumbline.policies.masked.options import MaskedSampling
from plumbline.serve.batched import BatchedBackend
from tests.policies.masked.conftest import masked_folder  # noqa: F401 - a fixture
from tests.policies.masked.conftest import opened as open_masked
from tests.serve.serving import client_of, running

CHAT = [{"role": "user", "content": "a b"}]


@pytest.fixture(scope="module")
def client(masked_folder):  # noqa: F811 - the fixture
    sampling = MaskedSampling(max_tokens=8, steps=4, selector="random")
    with running([BatchedBackend("masked", open_masked(masked_folder), sampling)]) as server:
        yield client_of(f"{server.address}/v1")


def test_canvases_come_before_the_answer_and_do_not_change_it(client):
    asked = {"model": "masked", "messages": CHAT, "seed": 5, "temperature": 1.0}
    whole = client.chat.completions.create(**asked, extra_body={"plumbline": {"canvas": True}})
    assert "canvas" not in whole.plumbline
    for wanted in (True, False):
        stream = client.chat.completions.create(
            **asked, stream=True, extra_body={"plumbline": {"canvas": wanted}}
        )
        chunks = list(stream)
        canvases = [
            found
            for one in chunks
            if (found := (one.model_extra.get("plumbline") or {}).get("canvas"))
        ]
        text = "".join(one.choices[0].delta.content or "" for one in chunks)
        assert text == whole.choices[0].message.content
        assert len(canvases) == (4 if wanted else 0)
        if wanted:
            assert canvases[0].count(HIDDEN) > canvases[2].count(HIDDEN) > 0
            assert canvases[-1] == text


def test_what_the_key_may_hold_is_checked(client):
    for wrong in ({"canvas": "yes"}, {"other": 1}, []):
        with pytest.raises(openai.BadRequestError, match="plumbline"):
            client.chat.completions.create(
                model="masked", messages=CHAT, extra_body={"plumbline": wrong}
            )
