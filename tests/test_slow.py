"""A short cut that is left out is said: once in a run's events, and by `plumbline eval` on standard
error."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config

from conftest import WORDS
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.recipe import TinySection, parse_recipe
from plumbline.runs.run import Run
from plumbline.training.pipeline import _open


@pytest.fixture(scope="module")
def other(tiny_folder, tmp_path_factory):
    """A GPT-2, which the lean decoder does not know."""
    folder, tokenizer = (
        tmp_path_factory.mktemp("slow") / "other",
        AutoTokenizer.from_pretrained(tiny_folder),
    )
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 256}
    config = GPT2Config(
        vocab_size=len(tokenizer), bos_token_id=None, eos_token_id=tokenizer.eos_token_id, **sizes
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def events_of(folder, run_folder, times=1, **model):
    recipe = parse_recipe(
        {
            "name": "slow",
            "model": {"name": str(folder), **model},
            "task": {"name": "tests.toy:open_toy"},
        }
    )
    with Run.start(recipe, run_folder) as run:
        for _ in range(times):
            policy = _open(run, str(folder), "evaluate")
    return policy, [event for event in run.files["events"].rows() if event["kind"] == "slow"]


def test_a_run_says_once_what_it_goes_without(other, tmp_path):
    _, said = events_of(other, tmp_path / "run", times=2)
    (event,) = said
    assert "(model type gpt2" in event["message"]
    assert "slower" in event["message"]
    assert "no less exact" in event["message"]


def test_a_run_of_a_model_that_needs_nothing_says_nothing(tiny_folder, tmp_path):
    policy, said = events_of(tiny_folder, tmp_path / "run")
    assert policy.engine["left_out"] == ""
    assert said == []


def test_another_family_has_nothing_to_say(tmp_path):
    tiny = TinySection(hidden=32, layers=1, heads=2, vocabulary=300, context=128)
    make_tiny(tmp_path / "masked", tiny, WORDS, seed=0, family="masked")
    policy, said = events_of(tmp_path / "masked", tmp_path / "run", family="masked")
    assert "left_out" not in policy.engine
    assert said == []


@pytest.mark.parametrize("slow", [True, False])
def test_eval_says_it_on_standard_error(plumbline, other, tiny_folder, tmp_path, slow):
    arguments = [
        "--task",
        "tests.toy:open_toy",
        "--limit",
        "2",
        "--max-tokens",
        "4",
        "--json",
        "--data",
        tmp_path,
    ]
    code, out, err = plumbline("eval", other if slow else tiny_folder, *arguments)
    assert (code, json.loads(out)["n"]) == (0, 2)
    assert ("(model type gpt2" in err) is slow
    assert ("slow" in err) is slow


@pytest.mark.parametrize(
    ("dtype", "able"), [("bfloat16", False), ("bfloat16", True), ("float32", False)]
)
def test_numbers_that_the_processor_emulates_are_said(
    tiny_folder, tmp_path, monkeypatch, dtype, able
):
    able = {"architecture": "x86_64", "avx512_bf16": able}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able, raising=False)
    _, said = events_of(tiny_folder, tmp_path / "run", dtype=dtype, device="cpu")
    emulated = dtype == "bfloat16" and not able["avx512_bf16"]
    assert ["model.dtype=float32" in one["message"] for one in said] == [True] * emulated
