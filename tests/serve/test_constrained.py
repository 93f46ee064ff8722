"""A served autoregressive model: each client gets its own answer, whoever asks beside it; JSON
follows a schema."""

import asyncio
import contextlib
import copy
import json
import threading
import time

import pytest
import torch

from plumbline.errors import DataError, DeviceMemoryError, EngineError, RecipeError
from plumbline.policies import open_policy
from plumbline.policies.autoregressive.decoders.lean import LeanDecoder
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.policy import LiveRequest
from plumbline.recipe import ModelSection
from plumbline.records import Request, Sampling
from plumbline.serve.backend import AnswerRequest
from plumbline.serve.batched import BatchedBackend
from plumbline.serve.constrained import COUNT, Grammars, SchemaConstraint, check_schema

SAMPLING = Sampling(max_tokens=40)
CHATS = [
    [{"role": "user", "content": text}]
    for text in ("sim", "não recomendo, 12 dias de atraso", "nota 10")
]
INVOICE = {
    "type": "object",
    "properties": {
        "total": {"type": "number"},
        "items": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
        "mood": {"enum": ["bom", "ruim", None]},
        "name": {"type": "string", "maxLength": 12},
    },
    "required": ["total", "items", "mood", "name"],
    "additionalProperties": False,
}
SCHEMAS = [
    {},
    INVOICE,
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 4},
    {
        "anyOf": [
            {"type": "integer", "minimum": 3, "maximum": 40},
            {"type": "string", "pattern": "^[a-c]{2,6}$"},
        ]
    },
    {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
                "required": ["next"],
                "additionalProperties": False,
            }
        },
    },
]


LOOSE = {"type": "string", "enum": ["a", "b"], "not": {"enum": ["a", "b"]}}
"""No answer is right by it, and a grammar has no word for `not`."""


@pytest.fixture(scope="module")
def policy(tiny_folder):
    return open_policy(ModelSection(name=str(tiny_folder)), str(tiny_folder))


@contextlib.asynccontextmanager
async def opened(policy, **options):
    served = BatchedBackend("tiny", policy, SAMPLING, grammars=Grammars(policy), **options)
    try:
        yield served
    finally:
        await served.close()
        assert not served._thread.is_alive()


def asked(number, schema=None, sampling=SAMPLING, **more):
    return AnswerRequest(
        request=Request((number,), CHATS[number % len(CHATS)], sampling), schema=schema, **more
    )


def parses(text, one):
    import jsonschema

    try:
        jsonschema.validate(json.loads(text), one.schema or {"type": "object"})
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


async def whole(served, one):
    return [piece async for piece in served.answer(one)]


def test_answers_are_those_of_the_policy(policy):
    async def ask():
        async with opened(policy, at_once=8) as served:
            return await asyncio.gather(
                *(whole(served, asked(number, logprobs=True)) for number in range(20))
            )

    wanted = {
        request.key: found
        for request, found in policy.sample([asked(n).request for n in range(20)])
    }
    for number, pieces in enumerate(asyncio.run(ask())):
        found = wanted[number,]
        assert "".join(piece.text for piece in pieces) == found.text
        assert [token for piece in pieces for token in piece.tokens] == found.tokens.tolist()
        assert len([text for piece in pieces for text in piece.spelled]) == found.num_tokens
        assert len([each for piece in pieces for each in piece.logprobs]) == found.num_tokens
        assert [piece.finish for piece in pieces] == [None] * (len(pieces) - 1) + [found.finish]
        assert pieces[-1].facts == {"model": "tiny", "family": "autoregressive"}


@pytest.fixture
def slow(monkeypatch):
    """How many rows each step of a decoder has had, one in 20 ms."""
    steps, original = [], LeanDecoder.step

    def step(self, tokens):
        steps.append(len(tokens))
        time.sleep(0.02)
        return original(self, tokens)

    monkeypatch.setattr(LeanDecoder, "step", step)
    return steps


LONG = Sampling(max_tokens=200, top_k=1)
"""The tiny model's own choice does not end for long."""


def test_a_client_that_goes_frees_its_row(policy, slow):
    async def ask():
        async with opened(policy, at_once=2) as served:
            both = [
                asyncio.ensure_future(whole(served, asked(number, sampling=LONG)))
                for number in (0, 1)
            ]
            while slow[-1:] != [2]:  # the second joins when it has been read
                await asyncio.sleep(0.01)
            waits = asyncio.ensure_future(whole(served, asked(2)))
            while not served.waiting:
                await asyncio.sleep(0.01)
            assert slow[-1] == 2
            both[0].cancel()
            before = len(slow)
            while len(slow) < before + 100 and slow[-1] != 1:
                await asyncio.sleep(0.01)
            assert slow[-1] == 1
            both[1].cancel()
            assert (await waits)[-1].finish is not None
            assert len(slow) < 150, "the long answers were dropped"

    asyncio.run(ask())


def test_what_cannot_be_answered_is_an_error_of_that_answer(policy, monkeypatch):
    async def ask():
        async with opened(policy) as served:
            with pytest.raises(DataError, match="context"):
                await whole(served, asked(0, sampling=Sampling(max_tokens=100_000)))
            with pytest.raises(RecipeError, match="steps"):
                await whole(served, asked(0, said={"steps": 4}))
            for broken, kind in (
                ("can't allocate memory", DeviceMemoryError),
                ("a kernel broke", RuntimeError),
            ):
                with monkeypatch.context() as patch:

                    def breaks(self, *given, said=broken):
                        raise RuntimeError(said)

                    patch.setattr(LeanDecoder, "begin", breaks)
                    with pytest.raises(kind):
                        await whole(served, asked(0))
            assert (await whole(served, asked(0)))[-1].finish is not None, (
                "the next one is answered"
            )

    asyncio.run(ask())


def test_closing_ends_what_runs_with_an_error(policy, slow):
    async def ask():
        async with opened(policy) as served:
            running = asyncio.ensure_future(whole(served, asked(0, sampling=LONG)))
            await asyncio.sleep(0.1)
            await served.close()
            with pytest.raises(EngineError, match="closed"):
                await running
            with pytest.raises(EngineError, match="closed"):
                await whole(served, asked(1))

    asyncio.run(ask())
    assert not [thread for thread in threading.enumerate() if thread.name == "serve-tiny"]


def test_two_event_loops_share_a_batch(policy):
    async def ask():
        async with opened(policy) as served:
            other = asyncio.to_thread(lambda: asyncio.run(whole(served, asked(1))))
            return await asyncio.gather(whole(served, asked(0)), other)

    for number, pieces in enumerate(asyncio.run(ask())):
        (_, wanted), *_ = policy.sample([asked(number).request])
        assert "".join(piece.text for piece in pieces) == wanted.text


def test_json_follows_its_schema(policy):
    pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    pytest.importorskip("xgrammar", reason="the extra constrained is not installed")
    samplings = [
        Sampling(max_tokens=most, temperature=warm) for most in (120, 20) for warm in (1.0, 0.3)
    ]
    every = [asked(n, SCHEMAS[n % len(SCHEMAS)], samplings[n % len(samplings)]) for n in range(60)]

    async def ask():
        async with opened(policy, at_once=16) as served:
            return await asyncio.gather(
                *(whole(served, one) for one in [*every, asked(100), asked(101, LOOSE)])
            )

    ended = cut = 0
    *constrained, free, loose = asyncio.run(ask())
    for one, pieces in zip(every, constrained, strict=True):
        text, last = "".join(piece.text for piece in pieces), pieces[-1]
        assert last.facts["json"] == {"way": "constrained", "valid": parses(text, one)}
        if last.finish == "stop":
            ended += 1
            assert last.facts["json"]["valid"], (text, one.schema)
        else:
            cut += 1
            assert sum(len(piece.tokens) for piece in pieces) == one.request.sampling.max_tokens
    assert loose[-1].facts["json"] == {"way": "constrained", "valid": False}, (
        "said where the grammar leaves out a part"
    )
    assert ended >= 20
    assert cut >= 5
    (_, wanted), *_ = policy.sample([asked(100).request])
    assert "".join(piece.text for piece in free) == wanted.text, (
        "what is not constrained is not changed"
    )


def test_log_probabilities_are_of_the_constrained_distribution(policy):
    pytest.importorskip("xgrammar", reason="the extra constrained is not installed")

    async def ask():
        async with opened(policy) as served:
            return await whole(served, asked(0, {"enum": ["x"]}))

    pieces = asyncio.run(ask())
    assert "".join(piece.text for piece in pieces) == '"x"'
    # From the quotation mark on there is one way to write it, in at most two ways of cutting it up;
    # then the end.
    assert pieces[-1].logprobs[-1] == pytest.approx(0.0, abs=1e-6)


def test_over_http_json_by_a_schema_and_one_that_cannot_be_followed(policy):
    httpx = pytest.importorskip("httpx", reason="httpx is not installed")
    pytest.importorskip("xgrammar", reason="the extra constrained is not installed")
    from tests.serve.serving import running

    def post(schema):
        wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        body = {
            "model": "tiny",
            "messages": CHATS[0],
            "max_tokens": 60,
            "seed": 1,
            "response_format": wanted,
        }
        return httpx.post(f"{server.address}/v1/chat/completions", json=body, timeout=60)

    served = BatchedBackend("tiny", policy, SAMPLING, grammars=Grammars(policy))
    with running([served]) as server:
        said = post({"type": "array", "items": {"type": "boolean"}, "maxItems": 2}).json()[
            "choices"
        ][0]
        assert all(isinstance(each, bool) for each in json.loads(said["message"]["content"]))
        assert said["plumbline"]["json"] == {"way": "constrained", "valid": True}
        refused = post({"type": "string", "pattern": "^((a{99}){99}){99}$"})
        assert refused.status_code == 400, refused.text
        assert "multiply" in refused.json()["error"]["message"]
    asyncio.run(served.close())


@pytest.mark.parametrize(
    ("decoder", "dtype"), [("lean", "float32"), ("lean", "bfloat16"), ("transformers", "float32")]
)
def test_a_constrained_answer_has_the_log_probabilities_of_the_restricted_logits(
    tiny_folder, decoder, dtype
):
    """Drawn beside free text and other schemas; in 16 bits what is likeliest of the rest is
    computed in float32."""
    pytest.importorskip("xgrammar", reason="the extra constrained is not installed")
    section = AutoregressiveModel(name=str(tiny_folder), decoder=decoder, dtype=dtype, device="cpu")
    policy = open_policy(section, str(tiny_folder))
    grammars = Grammars(policy)

    def requests(at_once):
        many = [asked(number).request for number in range(6)]
        held = [
            LiveRequest(
                one.key,
                one.messages,
                one.sampling,
                threading.Event(),
                grammars.constraint(SCHEMAS[n]),
            )
            for n, one in enumerate(many[:4])
        ]
        return held if at_once else held[:1]

    free = [asked(number).request for number in range(4, 8)]
    ((_, alone),) = policy.sample(requests(at_once=False))
    found = {
        request.key: trajectory
        for request, trajectory in policy.sample([*requests(at_once=True), *free])
    }
    assert found[0,].text == alone.text
    for number in range(4):
        trajectory, constraint = found[number,], grammars.constraint(SCHEMAS[number])
        whole_text = torch.tensor([[*trajectory.prompt.tolist(), *trajectory.tokens.tolist()]])
        exact = (
            copy.deepcopy(policy.model)
            .float()(whole_text)
            .logits[0, len(trajectory.prompt) - 1 : -1]
        )
        constraint.begin()
        wanted = []
        for logits, token in zip(exact.detach(), trajectory.tokens.tolist(), strict=True):
            constraint.restrict(logits)
            wanted.append(float(logits.log_softmax(-1)[token]))
            constraint.accept(token)
        tolerance = 1e-4 if dtype == "float32" else 0.1
        assert trajectory.logprobs.tolist() == pytest.approx(wanted, abs=tolerance)
    for request in free:
        ((_, wanted),) = policy.sample([request])
        assert found[request.key].text == wanted.text, "what is not constrained is not changed"


def test_where_no_token_goes_on_that_answer_alone_fails(policy, monkeypatch):
    pytest.importorskip("xgrammar", reason="the extra constrained is not installed")
    original = SchemaConstraint.restrict

    def restrict(self, logits):
        self._mask.zero_()
        self._matcher.fill_next_token_bitmask = lambda mask: True
        original(self, logits)

    async def ask():
        async with opened(policy) as served:
            return await asyncio.gather(
                whole(served, asked(0, {})), whole(served, asked(1)), return_exceptions=True
            )

    monkeypatch.setattr(SchemaConstraint, "restrict", restrict)
    failed, free = asyncio.run(ask())
    assert isinstance(failed, RecipeError)
    assert "nothing" in str(failed)
    assert "".join(piece.text for piece in free) == next(policy.sample([asked(1).request]))[1].text


HOSTILE = {
    "JSON cannot say": {"minimum": float("inf")},
    "levels": json.loads('{"a":' * 40 + "1" + "}" * 40),
    "characters": {"enum": ["x" * 40_000]},
    "adds up": {
        "type": "object",
        "properties": {str(n): {"maxLength": COUNT // 2} for n in range(3)},
    },
    "multiply": {"type": "string", "pattern": "^(([a-z]{1,100}){1,100}){1,100}$"},
    "a pattern has": {"type": "object", "patternProperties": {"a" * 300: {}}},
    "leads out": {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_schema_that_would_take_for_ever_is_refused(why):
    with pytest.raises(RecipeError, match=why):
        check_schema(HOSTILE[why])


def test_a_schema_is_compiled_once_and_within_a_time(policy, monkeypatch):
    pytest.importorskip("xgrammar", reason="the extra constrained is not installed")
    grammars, times = Grammars(policy), []

    def slow(text, **options):
        times.append(text)
        time.sleep(0.2)
        return compiled(text, **options)

    compiled = grammars._compiler.compile_json_schema
    monkeypatch.setattr(
        grammars, "_compiler", type("Slow", (), {"compile_json_schema": staticmethod(slow)})
    )
    grammars.constraint(INVOICE)
    grammars.constraint(dict(INVOICE))
    assert len(times) == 1
    monkeypatch.setattr("plumbline.serve.constrained.SECONDS", 0.05)
    with pytest.raises(EngineError, match="not compiled within"):
        grammars.constraint({"type": "integer"})
    with pytest.raises(EngineError, match="not compiled within"):  # the first one still runs
        grammars.constraint({"type": "null"})
    assert len(times) == 2
    monkeypatch.setattr("plumbline.serve.constrained.SECONDS", 10)
    with pytest.raises(RecipeError, match="cannot be followed"):
        grammars.constraint({"type": "strng"})
    monkeypatch.setattr("plumbline.serve.constrained.KEPT_BYTES", 1)
    grammars.constraint({"type": "null"})
    assert len(grammars._kept) == 1
