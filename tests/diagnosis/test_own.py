"""Runs of Plumbline: real small ones, and stored ones of any outcome; what the command says of them
and of others."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from plumbline.checks.check import examine
from plumbline.checks.diagnosis.history import Final
from plumbline.checks.diagnosis.readers import read_histories
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.errors import DataError
from plumbline.recipe import parse_recipe
from plumbline.records import Headline
from plumbline.runs.run import Run
from plumbline.storage import write_jsonl
from plumbline.training.pipeline import run_recipe
from tests.diagnosis.test_checks import healthy, said
from tests.reports.building import (
    RL,
    SFT,
    Level,
    evaluation,
    recipe,
    write_evaluations,
    write_rl,
    write_supervised,
)
from tests.training.toy_runs import toy_recipe
from tests.work import work


def run(tiny_folder, folder, options=None, steps=24, **rl):
    values = toy_recipe(steps=steps, **rl).model_dump()
    values |= {
        "model": {**values["model"], "name": str(tiny_folder)},
        "evaluation": {"every": 8, "limit": 8},
    }
    values["task"] = {"name": "tests.toy:open_toy", "options": options or {}}
    run_recipe(parse_recipe(values), folder)
    (examined,) = [examine(history, CHECKS) for history in read_histories(folder)]
    return examined


@pytest.fixture(scope="module")
def real(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "run"
    return folder, run(tiny_folder, folder, group_size=8)


def test_a_small_real_run_has_no_fatal_finding_and_its_oracle_is_1(real):
    _, examined = real
    assert not examined.fatal, examined.findings
    assert {"references", "not-finite", "no-signal", "degenerate-output", "unjudged"} <= set(
        examined.clear
    )


def test_a_part_that_is_never_earned_and_the_gold_answers_that_do_not_earn_it(
    tiny_folder, tmp_path
):
    examined = run(
        tiny_folder, tmp_path / "run", {"reward": "dead_part"}, steps=16, group_size=16, patience=30
    )
    assert ("references", "fatal") in {(one.check, one.level) for one in examined.findings}
    assert "dead-part" in {one.check for one in examined.findings}


def test_a_stage_has_its_own_last_evaluations_and_those_before_it(tmp_path):
    with Run.start(recipe(), tmp_path) as made:
        write_supervised(made, "base", 2)
        write_supervised(made, "sft", 2)
        write_rl(made, 2, n=2)
        write_evaluations(made, {"base": SFT, "sft": SFT, "rl": RL}, 2, splits=("test",))
    read = {
        one.name: {(last.stage, last.split) for last in one.finals}
        for one in read_histories(tmp_path)
    }
    before = {("reference", "test"), ("base", "test")}
    sft, rl = before | {("sft", "test")}, before | {("sft", "test"), ("rl", "test")}
    assert read == {"base": before, "sft": sft, "rl": rl}


def final(stage, mode, level, *, n=200, split="test", **over):
    found = replace(evaluation(stage, split, mode, level, n, 1), **over)
    return Final(stage=stage, split=split, mode=mode, task="", evaluation=found)


def stored(*finals):
    return replace(healthy(), origin="plumbline", finals=finals)


LOW, LOWER, LIMITED = Level(0.3, 0.2), Level(0.2, 0.1), Headline(limits={"echo": 0.01})
SHORT, LONG, TEN_STEPS = {"max_tokens": 64}, {"max_tokens": 96}, {"temperature": 0.0, "steps": 10}
DECODING = [("decoding", "warning")]


@pytest.mark.parametrize(
    ("finals", "wanted"),
    [
        ((final("sft", "greedy", SFT), final("rl", "greedy", RL)), []),
        ((final("sft", "greedy", RL), final("rl", "greedy", SFT)), [("gain", "warning")]),
        ((final("sft", "greedy", SFT), final("rl", "greedy", SFT, n=150)), [("gain", "warning")]),
        ((final("rl", "greedy", LOW), final("rl", "sampled", RL)), DECODING),
        ((final("sft", "greedy", SFT), final("rl", "greedy", RL, sampling=TEN_STEPS)), DECODING),
        (
            (final("sft", "greedy", RL, sampling=SHORT), final("rl", "greedy", RL, sampling=LONG)),
            [("decoding", "warning")],
        ),
        ((final("reference", "oracle", RL),), [("references", "fatal")]),
        ((final("reference", "echo", RL),), [("references", "warning")]),
        ((final("reference", "echo", LOWER),), []),
        ((final("reference", "echo", LOWER, headline=LIMITED),), [("references", "warning")]),
    ],
)
def test_what_evaluations_say(finals, wanted):
    assert said(stored(*finals)) == wanted


def test_a_gain_inside_the_noise_asks_for_clusters_where_there_are_some():
    def clustered(one):
        rows = tuple(
            replace(row, cluster=f"c{n // 8}") for n, row in enumerate(one.evaluation.rows)
        )
        return replace(one, evaluation=replace(one.evaluation, rows=rows))

    before, after = (
        final(stage, "greedy", level, n=64)
        for stage, level in (("sft", SFT), ("rl", Level(0.8, 0.57)))
    )
    findings = examine(stored(clustered(before), clustered(after)), CHECKS).findings
    (found,) = [one for one in findings if one.check == "gain"]
    assert (found.evidence["wanted"], found.evidence["unit"]) == (32, "clusters of 8 examples")


def test_a_strict_parser_that_is_paid_by_is_named():
    """The commerce log's first failure: 4,5 was read as nothing."""
    base = healthy()
    series = dict(base.series)
    for name, shift in (("reading/lenient", 0.25), ("reading/strict", 0.0)):
        series[name] = replace(series["reward"], values=series["reward"].values + shift)
    assert said(replace(base, series=series)) == [("parser", "fatal")]
    series["reward"] = series["reading/lenient"]
    assert said(replace(base, series=series)) == []


def test_the_command_says_it_and_ends_with_1_where_something_is_fatal(plumbline, real, tmp_path):
    folder, _ = real
    code, out, _ = plumbline("check", folder)
    assert code == 0
    assert re.search(r"rl \(plumbline\): 24 .* 24\b", out)
    row = {"loss": 0.1, "grad_norm": 1.0, "learning_rate": 1e-5}
    rows = [{**row, "step": step, "reward": 0.5 + step / 100} for step in range(1, 31)]
    state = {"max_steps": 30, "global_step": 30, "log_history": rows}
    for one in state["log_history"][11:]:
        one["grad_norm"] = float("nan")
    (tmp_path / "checkpoint-30").mkdir()
    (tmp_path / "checkpoint-30" / "trainer_state.json").write_text(json.dumps(state))
    for path in (
        tmp_path,
        tmp_path / "checkpoint-30",
        tmp_path / "checkpoint-30" / "trainer_state.json",
    ):
        code, out, _ = plumbline("check", path, "--json")
        assert code == 1
        found = json.loads(out)
        assert found["stages"][0]["findings"][0]["check"] == "not-finite"
        assert found["stages"][0]["findings"][0]["since"] == 12
        assert "gap" in found["stages"][0]["not_run"]


def test_records_that_are_none_get_an_answer(real, tmp_path):
    folder, _ = real
    (tmp_path / "empty").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "recipe.yaml").write_text("name: x\n")
    (tmp_path / "trainer_state.json").write_text('{"log_history": [{"step": 1, "lo')
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "trainer_state.json").write_text("[]")
    shutil.copytree(folder, tmp_path / "half")
    with (tmp_path / "half" / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "rl", "st')
    for name, message in {
        "nowhere": "there is no",
        "empty": "holds no record of a run",
        "new": "no step of training yet",
        "trainer_state.json": "no whole JSON",
        "list": "holds no JSON object",
    }.items():
        with pytest.raises(DataError, match=message):
            read_histories(tmp_path / name)
    assert len(read_histories(tmp_path / "half")) == 1


def test_a_run_of_600_steps_and_20_000_completions_is_looked_at_in_time(tmp_path):
    row = {"stage": "rl", "train/loss": 0.1, "train/grad_norm": 0.3}
    rows = [{**row, "step": step, "train/reward": 0.5 + step / 2000} for step in range(1, 601)]
    (tmp_path / "recipe.yaml").write_text("name: big\nrl: {steps: 600}\n")
    write_jsonl(tmp_path / "metrics.jsonl", rows)
    with (tmp_path / "samples.jsonl").open("w") as file:
        for number in range(20_000):
            row = {
                "step": number // 34 + 1,
                "id": f"p{number // 8}",
                "text": f"answer {number} " * 20,
            }
            file.write(json.dumps({**row, "reward": number % 7 / 7, "parts": {}}) + "\n")
    found = []
    assert (
        work(
            lambda: found.extend(examine(one, CHECKS) for one in read_histories(tmp_path)), tries=1
        )
        < 600
    )
    assert [len(examined.context.samples) for examined in found] == [20_000]
