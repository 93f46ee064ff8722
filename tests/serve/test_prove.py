"""What is wrong with a deployed model is named; of a healthy and of a quantised one nothing is."""

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conftest import WORDS
from plumbline.evaluation.endpoint import Endpoint
from plumbline.export.export import Export, export
from plumbline.export.prove import FAULTS, prove
from plumbline.export.weights import OPTIONS
from plumbline.policies import open_policy
from plumbline.policies.opening import options_as_trained
from plumbline.policies.pretrained.adapters import lora_layers
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.recipe import LoraSection, TinySection, options_of
from plumbline.runs.metadata import ModelMetadata
from plumbline.runs.run import Observer
from plumbline.serve.batched import BatchedBackend
from tests.policies.families import redraw
from tests.serve.serving import running

LEAD = [{"role": "system", "content": " ".join(WORDS * 2)}]
CARD = ModelMetadata(
    recipe="toy 0",
    stage="sft",
    task="tests.toy:open_toy",
    options={"size": 10, "lead": LEAD},
    sampling={"max_tokens": 12},
).to_json()
SAYS = ["ótima compra", "com defeito", "não recomendo", "sim, nota 12"]
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def opened(folder, **section):
    model = options_of("autoregressive").model
    return open_policy(
        model(name=str(folder), device="cpu", dtype="float32", **section), str(folder)
    )


def load(folder, **options):
    section, _ = options_as_trained(str(folder), replace(OPTIONS, **options))
    return open_policy(section, str(folder))


def save_adapter(base, folder, size, seed=0):
    """An adapter that moves a base by random numbers of a size."""
    policy = opened(base, lora=LoraSection(rank=8))
    redraw(policy, size, seed)
    policy.save(folder, CARD)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A base that writes words, an adapter of it, another step of that one, and a stranger."""
    home = tmp_path_factory.mktemp("models")
    sizes = TinySection(hidden=32, layers=2, heads=2, vocabulary=300, context=256)
    make_tiny(home / "new", sizes, WORDS * 10, seed=0)
    policy = opened(home / "new")
    chats = [
        [
            *LEAD,
            {"role": "user", "content": f"test {index}: escreva"},
            {"role": "assistant", "content": said},
        ]
        for index, said in enumerate(SAYS)
    ]
    shown = [policy.demonstrate(chat) for chat in chats]
    optimiser = torch.optim.AdamW(policy.trainable().values(), 5e-3)
    for _ in range(60):
        optimiser.zero_grad()
        (policy.supervised_loss(shown, [None] * len(shown)) / 40).backward()
        optimiser.step()
    policy.save(home / "base", CARD)
    (home / "base" / "plumbline.json").unlink()  # nobody's
    save_adapter(home / "base", home / "out", 0.05)
    save_adapter(home / "base", home / "out" / "checkpoint-5", 0.03)
    save_adapter(home / "base", home / "stranger", 0.08, seed=9)
    return home


class Wrong(BatchedBackend):
    """A server's model that draws otherwise than it is asked."""

    def sampling_of(self, asked):
        own = super().sampling_of(asked)
        return replace(
            own, **{name: change(getattr(own, name)) for name, change in self.said.items()}
        )


def serving(policy, folder, silent=False, **said):
    sampling = options_as_trained(str(folder), OPTIONS)[1]
    backend = Wrong("m", policy, sampling, at_once=4, grammars=None)
    backend.said, backend._single = said, not silent
    return running([backend])


def rewrite(policy, change):
    """Have a policy's prompts changed on their way to the model."""
    true = policy.chat.prompt
    policy.chat.prompt = lambda messages: change(true, messages)


def drop_system(true, messages):
    return true([one for one in messages if one["role"] != "system"])


def add_system(true, messages):
    return true(messages if messages[0]["role"] == "system" else [*LEAD, *messages])


def plant(fault, models, tmp_path):
    """A server's policy with a fault, and what else is wrong there."""
    folder = {"base": "base", "other-step": "out/checkpoint-5", "other-weights": "stranger"}
    policy = load(models / folder.get(fault, "out"))
    said = {}
    if fault == "adapter-twice":
        for layer in lora_layers(policy.model):
            layer.scaling["default"] *= 2
    elif fault == "quantised":
        for name, weight in policy.model.named_parameters():
            if "lora" not in name:
                weight.data += 0.002 * torch.randn(weight.shape) * weight.abs().mean()
    elif fault == "chat-template":
        (tmp_path / "other.jinja").write_text(TEMPLATE)
        policy = load(models / "out", chat_template=str(tmp_path / "other.jinja"))
    elif fault == "no system":
        rewrite(policy, drop_system)
    elif fault == "own system":
        rewrite(policy, add_system)
    elif fault == "tokenizer":
        make_tiny(
            tmp_path / "other",
            TinySection(hidden=32, layers=2, heads=2, vocabulary=300, context=256),
            ["nothing of the kind, 1 2 3"] * 20,
            seed=1,
        )
        policy.chat = load(tmp_path / "other").chat
    elif fault == "stop-token":
        policy.chat.stop_ids = (0,)
    elif fault == "context":
        rewrite(policy, lambda true, messages: true(messages)[-110:])
    elif fault == "max-tokens":
        said = {"max_tokens": lambda most: min(most, 2)}
    elif fault == "warm":
        said = {"temperature": lambda _: 1.0}
    elif fault == "cold":
        said = {"temperature": lambda _: 0.0}
    return serving(policy, models / "out", **said)


PLANTED = {
    **{name: name for name in FAULTS if name not in {"system-prompt", "temperature"}},
    "no system": "system-prompt",
    "own system": "system-prompt",
    "warm": "temperature",
    "cold": "temperature",
}


@pytest.mark.parametrize("fault", [*PLANTED, "none", "quantised"])
def test_each_planted_fault_is_named_and_no_other(models, tmp_path, fault, monkeypatch):
    draws = itertools.count(1)  # the same ones each time
    monkeypatch.setattr(
        "plumbline.serve.chat_body.os.urandom", lambda size: next(draws).to_bytes(size, "little")
    )
    with plant(fault, models, tmp_path) as server:
        proof = prove(str(models / "out"), server.address, 10, Observer())
    assert list(proof.faults) == ([PLANTED[fault]] if fault in PLANTED else [])


HOSTILE = Path(__file__).with_name("logprobs.txt").read_text().splitlines()


@pytest.fixture(scope="module")
def served(models):
    with serving(load(models / "out"), models / "out") as server:
        yield server


@pytest.mark.parametrize(
    "said",
    [*HOSTILE[::3], None]
    + [pytest.param(one, marks=pytest.mark.slow) for n, one in enumerate(HOSTILE) if n % 3],
)
def test_log_probabilities_that_are_none_are_left_out(models, served, said, monkeypatch):
    true = Endpoint._request

    async def changed(self, client, path, body=None):
        answer = await true(self, client, path, body)
        if not (body or {}).get("logprobs"):
            return answer
        whole = json.loads(answer)
        (choice,) = whole["choices"]
        rows = [{"logprob": row["logprob"]} for row in choice["logprobs"]["content"]]
        choice["logprobs"] = json.loads(said) if said else {"content": rows}  # no token, no others
        return json.dumps(whole).encode()

    monkeypatch.setattr(Endpoint, "_request", changed)
    proof = prove(str(models / "out"), served.address, 2, Observer())
    assert (proof.figures["compared"] > 0, proof.figures["same"]) == (said is None, 2)
    assert not proof.faults


def test_the_command_says_by_its_status_whether_a_file_is_the_model(models, tmp_path, plumbline):
    made = Export(model=str(models / "out"), out=tmp_path / "out", kind="gguf", gguf="q8_0")
    export(made, Observer())
    code, out, _ = plumbline(
        "export", models / "out", "--prove", tmp_path / "out" / "out-q8_0.gguf", "--evaluate", 3
    )
    assert (code, "no fault found" in out, len(out.splitlines())) == (0, True, 3)
    asked = ("export", models / "out", "--prove", models / "base", "--evaluate", 3, "--json")
    code, out, _ = plumbline(*asked)
    said = json.loads(out)
    assert (code, list(said["faults"]), said["figures"]["prompts"]) == (1, ["base"], 3)
    assert (said["rewards"][0]["n"], said["rewards"][0]["split"]) == (3, "test")


def test_a_server_that_says_little_or_is_not_there_is_no_fault(models, tmp_path, plumbline):
    with serving(load(models / "base"), models / "base", silent=True) as server:
        shutil.copytree(models / "base", tmp_path / "foreign")  # by another trainer, without a task
        code, out, _ = plumbline(
            "export", tmp_path / "foreign", "--prove", f"m={server.address}", "--json"
        )
        figures = json.loads(out)["figures"]
        assert (code, figures["compared"], figures["same"], figures["prompts"]) == (0, 0, 4, 4)
    code, _, error = plumbline("export", models / "out", "--prove", server.address)
    assert (code, "is not there" in error) == (1, True)
    code, _, error = plumbline("export", models / "out")
    assert (code, "--prove" in error) == (1, True)
    code, _, error = plumbline("export", models / "out", "--prove", "x", "--dtype", "bfloat16")
    assert (code, "--evaluate" in error) == (1, True)
