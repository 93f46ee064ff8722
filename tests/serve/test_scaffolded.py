"""JSON of a masked model through the official client: on a scaffold where the schema has one, else read leniently."""

import json

import openai
import pytest

from plumbline.policies.masked.options import MaskedSampling
from plumbline.serve.batched import BatchedServed
from plumbline.serve.lenient import LenientServed
from plumbline.serve.scaffolded import with_scaffolds
from tests.policies.masked.conftest import masked_folder, opened  # noqa: F401 - a fixture
from tests.serve.serving import Scripted, running

jsonschema = pytest.importorskip("jsonschema")
CHAT = [{"role": "user", "content": "o produto chegou atrasado, nota 4,5"}]
LAW = MaskedSampling(max_tokens=48, steps=4, selector="plackett_luce", blocks=2)
SCHEMA = {
    "type": "object",
    "properties": {"nota": {"type": "number", "minimum": 0, "maximum": 5}, "atraso": {"type": "boolean"}},
    "required": ["nota", "atraso"],
}


@pytest.fixture(scope="module")
def client(masked_folder):  # noqa: F811 - the fixture
    policy = opened(masked_folder, canvas=48)
    served = with_scaffolds(LenientServed(BatchedServed("masked", policy, LAW), retries=1), policy, LAW)
    with running([served]) as server:
        yield openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0)


def ask(client, schema, **more):
    form = {"type": "json_schema", "json_schema": {"name": "nota", "schema": schema}}
    said = client.chat.completions.create(model="masked", messages=CHAT, response_format=form, **more)
    return [choice.message.content for choice in said.choices], said.model_extra["plumbline"]["json"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_answer_is_valid_and_says_how(client, temperature):
    texts, facts = ask(client, SCHEMA, n=8, temperature=temperature)
    assert facts == {"way": "scaffold", "valid": True, "how": "strict", "retries": 0}
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)


def test_streamed_it_is_the_same(client):
    form = {"type": "json_schema", "json_schema": {"name": "nota", "schema": SCHEMA}}
    asked = {"model": "masked", "messages": CHAT, "response_format": form, "seed": 3}
    pieces = client.chat.completions.create(**asked, stream=True)
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert text == client.chat.completions.create(**asked).choices[0].message.content
    jsonschema.validate(json.loads(text), SCHEMA)


@pytest.mark.parametrize(
    ("schema", "more"),
    [
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}, {}),
        (SCHEMA, {"max_tokens": 8}),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {"type": "string", "maxLength": 200}, "maxItems": 200}},
            },
            {},
        ),
    ],
)
def test_what_has_no_scaffold_is_read_leniently(client, schema, more):
    _, facts = ask(client, schema, **more)
    assert (facts["way"], facts["valid"], facts["retries"]) == ("lenient", False, 1)


def test_text_is_text(client):
    said = client.chat.completions.create(model="masked", messages=CHAT)
    assert "json" not in said.model_extra["plumbline"]


def test_another_family_is_left_as_it_is():
    scripted = Scripted()
    assert with_scaffolds(scripted, scripted, object()) is scripted
