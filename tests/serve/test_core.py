"""The official client against a real server, with tiny models of all four families."""

import json
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import openai
import pytest
import yaml

from plumbline.records import Request
from plumbline.serve.batched import BatchedBackend
from tests.policies.flow.conftest import make as make_flow
from tests.policies.flow.conftest import opened as open_flow
from tests.policies.masked.conftest import masked_folder  # noqa: F401 - a fixture
from tests.policies.masked.conftest import opened as open_masked
from tests.policies.slots.models import opened as open_slots
from tests.policies.slots.models import save_mini
from tests.policies.test_requests import SAMPLINGS
from tests.serve.serving import Scripted, ScriptedText, client_of, running

DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))

CHAT = [{"role": "user", "content": "a b"}]


@pytest.fixture(scope="module")
def policies(tiny_policy, masked_folder, tmp_path_factory):  # noqa: F811 - the fixture
    folder = tmp_path_factory.mktemp("served")
    return {
        "autoregressive": tiny_policy,
        "masked": open_masked(masked_folder),
        "slots": open_slots(save_mini(folder / "slots")),
        "flow": open_flow(make_flow(folder / "flow")),
    }


@pytest.fixture(scope="module")
def client(policies):
    models = [BatchedBackend(name, policy, SAMPLINGS[name][0]) for name, policy in policies.items()]
    scripted = Scripted(words=("um, do", "is, tr", "ês, qu", "atro"))
    with served(*models, scripted) as client:
        yield client


@contextmanager
def served(*models):
    """A client of a server of its own."""
    with running(models) as server:
        yield client_of(f"{server.address}/v1")


def spoken(chunks):
    """The text of a stream."""
    return "".join(one.choices[0].delta.content or "" for one in chunks)


def ask(client, model, **more):
    return client.chat.completions.create(model=model, messages=CHAT, **more)


def by(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


@pytest.mark.parametrize("family", SAMPLINGS)
def test_answers_are_those_of_the_policy_under_its_own_distribution(client, policies, family):
    said = ask(client, family, n=3, seed=5, temperature=0.8)
    sampling = replace(SAMPLINGS[family][0], temperature=0.8)
    requests = [Request((5, "serve", index), CHAT, sampling) for index in range(3)]
    wanted = {
        request.key[2]: trajectory for request, trajectory in policies[family].sample(requests)
    }
    assert [choice.message.content for choice in said.choices] == [
        wanted[index].text for index in range(3)
    ]
    assert [choice.finish_reason for choice in said.choices] == [
        wanted[index].finish for index in range(3)
    ]
    assert said.usage.prompt_tokens == policies[family].prompt_length(CHAT)
    assert said.usage.completion_tokens == sum(each.num_tokens for each in wanted.values())
    assert said.model_extra["plumbline"] == {"model": family, "family": family, "ignored": []}


@pytest.mark.parametrize("family", SAMPLINGS)
def test_a_stream_says_the_same_as_a_whole_answer(client, family):
    asked = {"seed": 1, "temperature": 1.0, "max_tokens": 4}
    whole = ask(client, family, **asked)
    chunks = list(ask(client, family, **asked, stream=True, stream_options={"include_usage": True}))
    assert spoken(chunks[:-1]) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage == whole.usage
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert "usage" not in list(ask(client, family, **asked, stream=True))[-1].model_fields_set


def test_seeds_decide_and_no_seed_is_a_fresh_one(client):
    def texts(**more):
        return [
            choice.message.content
            for choice in ask(client, "autoregressive", temperature=1.0, n=4, **more).choices
        ]

    assert texts(seed=1) == texts(seed=1) != texts(seed=2)
    assert texts() != texts()
    assert len(set(texts(seed=1))) > 1
    assert (
        ask(client, "autoregressive", temperature=1.0, seed=1).choices[0].message.content
        == texts(seed=1)[0]
    )


def test_letters_of_several_bytes_are_whole_in_a_stream(client):
    wholes = []
    for seed in range(12):
        asked = {"seed": seed, "temperature": 1.0, "max_tokens": 12, "logprobs": True}
        whole = ask(client, "autoregressive", **asked).choices[0]
        chunks = [one.choices[0] for one in ask(client, "autoregressive", **asked, stream=True)]
        assert "".join(one.delta.content or "" for one in chunks) == whole.message.content
        assert [
            each for one in chunks if one.logprobs for each in one.logprobs.content
        ] == whole.logprobs.content
        assert all(bytes(each.bytes).decode() == each.token for each in whole.logprobs.content)
        wholes.append(whole.message.content)
    assert not all(map(str.isascii, wholes))


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"max_completion_tokens": 3}, 3),
        ({"max_completion_tokens": 3, "max_tokens": 5}, 3),
        ({"max_tokens": 5}, 5),
    ],
)
def test_an_answer_has_at_most_the_tokens_that_are_asked_for(client, limits, most):
    said = [
        ask(client, "autoregressive", seed=seed, temperature=1.0, **limits) for seed in range(6)
    ]
    assert {(each.usage.completion_tokens, each.choices[0].finish_reason) for each in said} >= {
        (most, "length")
    }
    assert max(each.usage.completion_tokens for each in said) == most


def test_log_probabilities_are_those_that_were_drawn_by(client, policies):
    said = ask(client, "autoregressive", seed=3, temperature=0.8, logprobs=True).choices[0]
    request = Request((3, "serve", 0), CHAT, SAMPLINGS["autoregressive"][1])
    ((_, wanted),) = policies["autoregressive"].sample([request])
    assert [one.logprob for one in said.logprobs.content] == pytest.approx(
        wanted.logprobs.tolist(), abs=1e-5
    )
    assert said.message.content.startswith(said.logprobs.content[0].token)
    streamed = [
        one.choices[0]
        for one in ask(
            client, "autoregressive", seed=3, temperature=0.8, logprobs=True, stream=True
        )
    ]
    pieces = [one.logprobs.content for one in streamed if one.logprobs]
    assert [each for piece in pieces for each in piece] == said.logprobs.content


@pytest.mark.parametrize("stream", [False, True])
def test_the_tokens_behind_a_stop_are_left_out_with_its_text(client, stream):
    for seed in range(50):  # until one is drawn whose tokens are whole letters
        asked = {"seed": seed, "temperature": 1.0, "logprobs": True, "max_tokens": 6}
        whole = ask(client, "autoregressive", **asked)
        tokens = whole.choices[0].logprobs.content
        texts = [one.token for one in tokens]
        if "".join(texts) == whole.choices[0].message.content and len(set(texts)) == len(texts) > 4:
            break
    at = 3
    stop = texts[at]
    said = ask(client, "autoregressive", **asked, stop=stop, stream=stream)
    chunks = list(said) if stream else [said]
    kept = [
        one
        for chunk in chunks
        for choice in chunk.choices
        for one in ((choice.logprobs and choice.logprobs.content) or ())
    ]
    text = whole.choices[0].message.content.partition(stop)[0]
    assert "".join(one.token for one in kept).startswith(text)
    assert kept == tokens[: len(kept)]
    assert len("".join(texts[: len(kept) - 1])) < len(text), "the last one begins before the stop"
    if not stream:
        beyond = said.choices[0].plumbline["after_stop"]["tokens"]
        assert said.usage.completion_tokens == len(kept) + len(beyond) > len(kept)


def test_what_a_reply_holds_may_be_sent_back(client):
    def after(**message):
        chat = [*CHAT, {"role": "assistant", **message}, {"role": "user", "content": "b"}]
        return client.chat.completions.create(
            model="autoregressive", messages=chat, seed=1, temperature=1.0
        )

    empty = after(content="")
    for message in (
        {},
        {"content": None},
        {"content": None, "tool_calls": [], "function_call": None, "refusal": None},
        {
            "content": "",
            "reasoning_content": "I think",
            "refusal": "no",
            "annotations": [{"type": "x"}],
        },
    ):
        said = after(**message)
        assert said.choices[0].message.content == empty.choices[0].message.content
        ignored = [
            f"messages.{name}"
            for name in ("refusal", "reasoning_content", "annotations")
            if message.get(name)
        ]
        assert said.plumbline["ignored"] == ignored


@pytest.mark.parametrize(
    ("stop", "wanted"),
    [
        ("tr", "um, dois, "),
        (["zz", "s, tr"], "um, doi"),
        (["is", "três"], "um, do"),
        ("quatro", "um, dois, três, "),
        (["quatro!"], "um, dois, três, quatro"),  # what was held back comes
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_ends_before_a_stop_that_lies_across_pieces(client, stop, wanted, stream):
    said = ask(client, "scripted", stop=stop, stream=stream)
    chunks = list(said) if stream else [said]
    text = spoken(chunks) if stream else said.choices[0].message.content
    assert (text, chunks[-1].choices[0].finish_reason) == (wanted, "stop")


def test_a_limit_beyond_the_canvas_is_that_of_the_canvas(client):
    assert ask(client, "masked", max_tokens=4000, temperature=1.0).usage.completion_tokens <= 8


@pytest.mark.parametrize("family", ["masked", "slots", "flow"])
def test_a_canvas_is_shown_after_each_step_and_changes_nothing(client, policies, family):
    sampling = SAMPLINGS[family][0]
    asked = {"seed": 4, "temperature": 1.0, "n": 2}
    plain = ask(client, family, **asked)
    chunks = list(
        ask(client, family, **asked, stream=True, extra_body={"plumbline": {"canvas": True}})
    )
    for index, choice in enumerate(plain.choices):
        own = [one for one in chunks if one.choices[0].index == index]
        canvases = [
            one.model_extra["plumbline"]["canvas"]
            for one in own
            if "canvas" in one.model_extra.get("plumbline", {})
        ]
        assert spoken(own) == choice.message.content
        assert 1 <= len(canvases) <= sampling.steps
        assert canvases[-1].startswith(choice.message.content)
        if family != "flow":
            hidden = [canvas.count("░") for canvas in canvases]
            assert hidden == sorted(hidden, reverse=True)
            assert sampling.max_tokens > hidden[0] >= hidden[-1]
    assert not any(
        "canvas" in one.model_extra.get("plumbline", {})
        for one in ask(client, family, **asked, stream=True)
    )


def test_models_are_listed_and_described(client):
    assert [model.id for model in client.models.list()] == [*SAMPLINGS, "scripted"]
    assert client.models.retrieve("flow").model_extra["plumbline"] == {
        "family": "flow",
        "context": 64,
    }


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"model": "other"}, "there is no model 'other'"),
        ({"max_tokens": 4000}, "exceed the context"),
        ({"max_tokens": 5000}, "this server gives at most 4096"),
        ({"n": 17}, "this server gives at most 16"),
        ({"extra_body": {"steps": 3}}, "sampling has no steps"),
        ({"model": "flow", "logprobs": True}, "no log-probabilities of single tokens"),
        ({"top_logprobs": 5, "logprobs": True}, "top_logprobs"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"temperature": 3}, "temperature"),
        ({"stop": ["a", ""]}, "stop.1: String should have at least 1 character"),
        ({"stop": ""}, "stop: String should have at least 1 character"),
        ({"extra_body": {"temprature": 1}}, "temprature: this parameter is not known here"),
        ({"response_format": by({"type": "nope"})}, "no JSON"),
        ({"response_format": by({"$ref": "http://a/b"})}, "no JSON Schema"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_done_is_refused_with_its_reason(client, more, says, stream):
    with pytest.raises((openai.BadRequestError, openai.NotFoundError)) as caught:
        ask(client, **{"model": "autoregressive", "stream": stream, **more})
    assert says in caught.value.body["message"]
    assert caught.value.body["type"] in {"invalid_request_error", "not_found_error"}


def test_what_clients_send_as_a_matter_of_course_is_passed_over_and_named(client):
    said = ask(
        client,
        "scripted",
        frequency_penalty=0.3,
        presence_penalty=0,
        user="me",
        store=False,
        metadata={"job": "x"},
    )
    assert said.model_extra["plumbline"]["ignored"] == ["frequency_penalty"]


@pytest.mark.parametrize(
    ("sent", "passes"),
    DATA["settings_that_ask_for_nothing_are_passed_over"],
)
def test_settings_that_ask_for_nothing_are_passed_over(client, sent, passes):
    part = {"type": "text", "text": "oi", "cache_control": {"type": "ephemeral"}}
    messages = [{"role": "user", "content": [part]}]
    with nullcontext() if passes else pytest.raises(openai.BadRequestError, match=next(iter(sent))):
        client.chat.completions.create(model="scripted", messages=messages, extra_body=sent)


SCHEMA = {
    "type": "object",
    "properties": {"nota": {"type": "number"}},
    "required": ["nota"],
    "additionalProperties": False,
}


class Tries(Scripted):
    """Says one of its answers for each try."""

    async def answer(self, asked):
        assert asked.schema is None
        self.asked.append(asked)
        self.words = [self.answers[len(self.asked) - 1]]
        async for piece in super().answer(asked):
            yield piece


@pytest.mark.parametrize(
    ("answers", "text", "facts"),
    DATA["json_is_read_leniently_and_asked_for_again"],
)
def test_json_is_read_leniently_and_asked_for_again(answers, text, facts):
    model = Tries()
    model.answers, model.asked = answers, []
    with served(ScriptedText(model, retries=2)) as client:
        said = ask(client, "scripted", response_format=by(SCHEMA), temperature=0)
    found = said.model_extra["plumbline"]["json"]
    assert said.choices[0].message.content == text
    assert found.items() >= facts.items()
    assert said.usage.completion_tokens == len(model.asked) == facts["retries"] + 1
    assert [one.said["temperature"] for one in model.asked] == [0, 1.0, 1.0][: len(answers)]
    assert len({one.request.key for one in model.asked}) == len(answers)


def test_any_object_will_do_for_json_object():
    model = Tries()
    model.answers, model.asked = ["[1]", "{'a': 1}"], []
    with served(ScriptedText(model, retries=2)) as client:
        said = ask(client, "scripted", response_format={"type": "json_object"})
    assert json.loads(said.choices[0].message.content) == {"a": 1}


def test_requests_of_one_key_and_of_several_distributions_are_all_answered(client):
    from concurrent.futures import ThreadPoolExecutor

    def one(index):
        return (
            ask(client, "masked", seed=1, temperature=1.0, top_p=(0.5, 1.0)[index % 2])
            .choices[0]
            .message.content
        )

    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(one, range(12)))
    assert len(set(found[::2])) == len(set(found[1::2])) == 1


def test_the_distribution_of_the_models_own_run_holds_where_a_client_says_nothing(policies):
    own = replace(SAMPLINGS["slots"][0], temperature=0.0, max_tokens=6, steps=3)
    ((_, wanted),) = policies["slots"].sample([Request((0,), CHAT, own)])
    with served(BatchedBackend("slots", policies["slots"], own)) as client:
        said = ask(client, "slots")
        read = ask(client, "slots", response_format={"type": "json_object"})
    assert said.choices[0].message.content == wanted.text
    assert said.usage.completion_tokens == wanted.num_tokens <= 6
    assert read.choices[0].plumbline["json"]["way"] == "lenient"
