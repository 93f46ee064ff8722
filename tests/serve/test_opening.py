"""Models by what a command line calls them: a run, a path, a name of the user's; in this process or
behind vLLM."""

import json

import openai
import pytest

from plumbline.errors import EngineError, RecipeError
from plumbline.policies.opening import ModelOptions
from plumbline.records import Request, Sampling
from plumbline.runs.run import Observer
from plumbline.serve import vllm_backend
from plumbline.serve.served_models import named_models, open_models
from plumbline.serve.server import ServerOptions, token_of
from plumbline.serve.vllm_backend import Spelling
from tests.engines import vllm_stand_in as stand_in
from tests.serve.serving import assert_says, by_command, client_of, running

CHAT = [{"role": "user", "content": "o produto chegou?"}]


@pytest.fixture
def run(tmp_path, tiny_folder):
    """A run whose last stage is SFT."""
    folder = tmp_path / "runs" / "mine"
    (folder / "models").mkdir(parents=True)
    (folder / "recipe.yaml").write_text("name: mine\n")
    for stage in ("base", "sft"):
        (folder / "models" / stage).symlink_to(tiny_folder)
    return folder


def test_names_of_models(run, tiny_folder):
    assert named_models([str(run)]) == {"mine": f"{run}/models/sft"}
    assert named_models([f"{run}/models/base"]) == {"mine": f"{run}/models/base"}
    assert named_models([f"a={run}", f"b.1={tiny_folder}"]) == {
        "a": f"{run}/models/sft",
        "b.1": str(tiny_folder),
    }
    assert named_models(["org/model", f"{tiny_folder}/"]) == {
        "model": "org/model",
        "tiny": f"{tiny_folder}/",
    }


def test_a_token_is_needed_beyond_this_machine(monkeypatch):
    monkeypatch.setenv("SECRET", "abc")
    monkeypatch.setenv("BAD", "a b")
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        assert token_of(None, ServerOptions(host=host)) is None
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.example.org"):
        with pytest.raises(RecipeError, match="other machines"):
            token_of(None, ServerOptions(host=host))
        assert token_of("SECRET", ServerOptions(host=host)) == "abc"
    for name in ("BAD", "NO_SUCH_NAME"):
        with pytest.raises(RecipeError, match="holds no token"):
            token_of(name, ServerOptions())


def test_a_run_is_served_by_one_command(run, monkeypatch, capfd):
    words = [str(run), "--device", "cpu", "--max-tokens", "6"]
    with by_command(monkeypatch, *words) as address:
        client = client_of(address)
        said = client.chat.completions.create(model="mine", messages=CHAT, max_tokens=5)
        assert 1 <= said.usage.completion_tokens <= 5
        with pytest.raises(openai.BadRequestError, match="at most 6"):
            client.chat.completions.create(model="mine", messages=CHAT, max_tokens=7)
    told = capfd.readouterr().err
    assert f"serving mine at {address}" in told
    assert f"a page to try it: {address.removesuffix('v1')}\n" in told
    assert f"curl {address}/chat/completions -H 'Content-Type: application/json' -d " in told
    assert told.endswith("ended\n")


@pytest.fixture
def behind_vllm(tiny_folder, monkeypatch):
    """The tiny model behind a stand-in for vLLM."""
    started = stand_in.on_threads(monkeypatch)
    options = ModelOptions(engine="vllm", dtype="float32", device="cpu")
    (served,) = open_models({"tiny": str(tiny_folder)}, options, Observer())
    with running([served]) as server:
        yield (
            client_of(f"{server.address}/v1"),
            started[0],
        )


def test_an_autoregressive_model_behind_vllm(behind_vllm, tiny_policy):
    client, httpd = behind_vllm

    def ask(**more):
        return client.chat.completions.create(model="tiny", messages=CHAT, max_tokens=12, **more)

    ((_, wanted),) = tiny_policy.sample(
        [Request((0,), CHAT, Sampling(temperature=0.0, max_tokens=12))]
    )
    said = ask(temperature=0, logprobs=True)
    assert_says(said, wanted)
    assert len(said.choices[0].logprobs.content) == wanted.num_tokens
    assert said.model_extra["plumbline"]["seed"] is False
    streamed = list(ask(temperature=0, stream=True))
    assert "".join(one.choices[0].delta.content or "" for one in streamed) == wanted.text
    with pytest.raises(openai.BadRequestError, match="the server's context"):
        client.chat.completions.create(model="tiny", messages=CHAT, max_tokens=3000)
    httpd.state.faults.cuts = 0
    with pytest.raises(openai.InternalServerError, match="the engine") as caught:
        ask()
    assert caught.value.status_code == 502
    assert len(ask(n=3).choices) == 3


@pytest.mark.parametrize("installed", [True, False])
def test_an_autoregressive_model_follows_a_schema_by_a_grammar_where_there_is_xgrammar(
    tiny_folder, installed, monkeypatch
):
    if installed:
        pytest.importorskip("xgrammar", reason="the extra constrained is not installed")
    else:
        monkeypatch.setattr("plumbline.serve.served_models.find_spec", lambda name: None)
    (served,) = open_models({"tiny": str(tiny_folder)}, ModelOptions(device="cpu"), Observer())
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [["a"]]}}}
    with running([served]) as server:
        client = client_of(f"{server.address}/v1")
        said = client.chat.completions.create(
            model="tiny", messages=CHAT, max_tokens=24, response_format=schema
        )
    assert said.choices[0].plumbline["json"]["way"] == ("constrained" if installed else "lenient")
    if installed:
        assert json.loads(said.choices[0].message.content) == ["a"]


def test_other_families_are_not_behind_vllm(tmp_path):
    from tests.policies.flow.conftest import make

    folder = make(tmp_path / "flow")
    with pytest.raises(EngineError, match="family flow"):
        open_models({"flow": str(folder)}, ModelOptions(engine="vllm", family="flow"), Observer())


def test_text_is_spelled_as_it_comes_and_never_taken_back(tiny_policy):
    text = "não 12 dias — ação, 🙂🙂 é"
    tokens = tiny_policy.chat.tokenizer(text, add_special_tokens=False)["input_ids"]
    spelling = Spelling(tiny_policy.chat.text)
    parts = [
        spelling.add([token], last=index == len(tokens) - 1) for index, token in enumerate(tokens)
    ]
    assert "".join(parts) == text
    assert "" in parts, "a part of a character is held back"
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(parts)
    broken = Spelling(tiny_policy.chat.text)
    cut = tiny_policy.chat.tokenizer("🙂", add_special_tokens=False)["input_ids"][:2]
    assert broken.add(cut[:1]) + broken.add(cut[1:], last=True) == tiny_policy.chat.text(cut) != ""


def test_the_log_of_a_vllm_server_that_does_not_start_stays(tiny_folder, monkeypatch):
    seen = []

    def start(section, policy, place):
        seen.append(place.folder)
        raise EngineError("it ended", f"its log is {place.folder / 'server.log'}")

    monkeypatch.setattr(vllm_backend, "VllmSampler", start)
    with pytest.raises(EngineError, match="it ended"):
        open_models(
            {"tiny": str(tiny_folder)}, ModelOptions(engine="vllm", device="cpu"), Observer()
        )
    assert seen[0].is_dir()
    seen[0].rmdir()
