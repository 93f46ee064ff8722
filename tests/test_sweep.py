"""A sweep: every variant runs once, a changed recipe is noticed, and one that fails costs no
other."""

import io
import json
import math
import sys
from contextlib import redirect_stdout

import pytest
from rich.console import Console

from plumbline.cli.main import main
from plumbline.errors import EngineError, RunError
from plumbline.evaluation.statistics import t_interval, t_quantile
from plumbline.reports.run_comparison import seeds_terminal, sweep_table
from plumbline.training.sweep import SideBySide, _on_gpu, list_variants, run_sweep, summarise_seeds

RECIPE = """
name: swept
task: {name: "tests.toy:open_toy", options: {size: 4}}
model: {threads: 1, tiny: {hidden: 32, layers: 2, heads: 2, vocabulary: 300, context: 128, steps: 2}}
rl: {steps: 3, prompts_per_step: 2, group_size: 8}
sampling: {max_tokens: 8}
evaluation: {every: 0, final: [val]}
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "swept.yaml"
    path.write_text(RECIPE)
    return path


def swept(recipe, folder, *varied, overrides=(), resume=False):
    return run_sweep(
        list_variants(recipe, overrides, varied), folder, resume=resume, observers=lambda *_: []
    )


@pytest.fixture(scope="module")
def over_two_seeds(tmp_path_factory):
    """The folder of a sweep over two seeds by the command, and what it says as JSON."""
    folder, said = tmp_path_factory.mktemp("swept"), io.StringIO()
    (folder / "swept.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said):
        words = f"sweep {folder}/swept.yaml --seeds 3,12 --out {folder}/s --json"
        patch.setattr(sys, "argv", ["plumbline", *words.split()])
        patch.setattr("plumbline.runs.observers.LiveView.event", lambda *_: None)
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0
    return folder / "s", json.loads(said.getvalue())


def test_a_sweep_over_seeds_has_a_report_of_its_own(over_two_seeds):
    folder, said = over_two_seeds
    assert [run["variant"] for run in said["runs"]] == ["seed=3", "seed=12"]
    assert {one["asked"]: one["n"] for one in said["seeds"]} == {"greedy": 2, "sampled": 2}
    own = said["seeds"][0]["seeds"]
    assert own == {str(run["seed"]): run["greedy"] for run in said["runs"]}
    assert said["report"] == str(folder / "report.html")
    page = (folder / "report.html").read_text()
    assert len(page) < 500_000
    for what in (
        "seed 3",
        "seed 12",
        "<svg",
        "all 2",
        "--seeds 3,12",
        "prompts_per_step: 2",
        "</html>",
    ):
        assert what in page


def test_a_finished_variant_is_taken_as_it_is_and_a_changed_one_is_not(recipe, over_two_seeds):
    folder, said = over_two_seeds
    written = {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.jsonl")}
    assert swept(recipe, folder, "seed=3,12", resume=True) == said["runs"]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.jsonl")} == written
    more = ["rl.steps=4"]
    rows = swept(recipe, folder, "seed=3,2", overrides=more, resume=True)
    assert "another recipe (rl.steps: 3 -> 4" in rows[0]["error"]
    assert "greedy" in rows[1]
    with pytest.raises(RunError, match=r"another recipe \(rl.steps: 3 -> 4"):  # none ended well
        swept(recipe, folder, "seed=3", overrides=more, resume=True)


def test_one_that_fails_has_its_error_and_the_others_their_figures(recipe, tmp_path):
    rows = swept(
        recipe,
        tmp_path / "sweep",
        "task.options.reward=constant,letters",
        overrides=["rl.steps=11"],
    )
    assert "the check no-signal" in rows[0]["error"]
    assert rows[1]["greedy"]["n"] == 4
    assert sweep_table(rows).row_count == 3


@pytest.mark.slow
def test_side_by_side_they_come_to_the_same_though_a_process_is_killed(recipe, tmp_path):
    pytest.importorskip("ray", reason="needs the extra ray")
    once = tmp_path / "once"
    recipes = list_variants(recipe, [f"task.options.kills_once={once}"], ["seed=0,1"])
    once.touch()
    alone = run_sweep(recipes, tmp_path / "alone", resume=False, observers=lambda *_: [])
    once.unlink()
    heard: list[str] = []
    spread = SideBySide(at_once=2, told=heard.append)
    rows = run_sweep(
        recipes, tmp_path / "beside", resume=False, observers=lambda *_: [], spread=spread
    )
    assert [{**row, "folder": ""} for row in rows] == [{**row, "folder": ""} for row in alone]
    assert len([said for said in heard if "its process died" in said]) == 1
    assert heard[-1].endswith("ended, 0 left")


@pytest.mark.slow
def test_side_by_side_a_head_that_is_gone_ends_the_sweep(recipe, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="needs the extra ray")
    from plumbline.engines import workers

    monkeypatch.setattr(workers, "PATIENCE", 0.2)

    def begun(said):  # from now on nothing answers
        monkeypatch.setattr(workers, "is_listening", lambda address: False)

    recipes = list_variants(recipe, ["rl.steps=100000", "checks.every=0"], ["seed=0"])
    spread = SideBySide(at_once=1, told=begun)
    with pytest.raises(EngineError, match=r"Ray cluster, .* 0\.2 s"):
        run_sweep(
            recipes, tmp_path / "beside", resume=False, observers=lambda *_: [], spread=spread
        )


def test_a_run_that_takes_what_there_is_takes_a_gpu_of_a_cluster_that_has_some():
    given = [
        (device, has)
        for device in ("auto", "cuda:0", "cpu")
        for has in (0.0, 1.0)
        if _on_gpu(device, {"GPU": has})
    ]
    assert given == [("auto", 1.0), ("cuda:0", 0.0), ("cuda:0", 1.0)]


def test_values_are_yaml(recipe):
    found = list_variants(
        recipe, [], ["evaluation.final=[val],[val, test]", "rl.optimiser.learning_rate=5e-6,1e-4"]
    )
    assert [len(one.evaluation.final) for one in found.values()] == [1, 1, 2, 2]
    assert {one.rl.optimiser.learning_rate for one in found.values()} == {5e-6, 1e-4}


# -- over seeds ------------------------------------------------------------------------------------


def test_students_quantile_is_that_of_the_tables():
    known = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 9: 2.2622, 30: 2.0423}
    assert {freedom: round(t_quantile(freedom), 4) for freedom in known} == known
    three = t_interval([0.1, 0.2, 0.3])
    half = 4.3027 * 0.1 / 3**0.5
    assert (three.mean, three.n) == (pytest.approx(0.2), 3)
    assert (three.low, three.high) == (
        pytest.approx(0.2 - half, abs=1e-5),
        pytest.approx(0.2 + half, abs=1e-5),
    )
    assert math.isnan(t_interval([0.5]).low)


def row(variant, seed, **modes):
    own = {
        "before": 0.4,
        "after": 0.5,
        "difference": 0.1,
        "low": 0.0,
        "high": 0.2,
        "p_value": 0.04,
        "n": 20,
    }
    found = {
        mode: {**own, "after": 0.4 + change, "difference": change} for mode, change in modes.items()
    }
    return {"variant": variant, "seed": seed, "folder": "x", **found}


def test_seeds_of_the_same_values_are_summed_up_by_task_and_mode():
    rows = [
        row("rl.beta=0 seed=1", 1, **{"forms greedy": 0.1, "forms sampled": 0.3}),
        row("rl.beta=0 seed=12", 12, **{"forms greedy": 0.3, "forms sampled": 0.3}),
        row("rl.beta=1 seed=1", 1, **{"forms greedy": -0.1}),
        {"variant": "rl.beta=1 seed=12", "seed": 12, "folder": "x", "error": "it broke"},
    ]
    found = {(one["variant"], one["asked"]): one for one in summarise_seeds(rows)}
    assert list(found) == [
        ("rl.beta=0", "forms greedy"),
        ("rl.beta=0", "forms sampled"),
        ("rl.beta=1", "forms greedy"),
    ]
    greedy = found["rl.beta=0", "forms greedy"]
    assert (greedy["difference"], greedy["after"], greedy["n"]) == (
        pytest.approx(0.2),
        pytest.approx(0.6),
        2,
    )
    assert greedy["high"] == pytest.approx(0.2 + 12.7062 * 0.1, abs=1e-3)
    assert greedy["seeds"][12]["difference"] == 0.3
    alone = found["rl.beta=1", "forms greedy"]
    assert (alone["low"], alone["high"], alone["n"], alone["failed"]) == (None, None, 1, [12])
    page = io.StringIO()
    Console(file=page, width=80).print(seeds_terminal(summarise_seeds(rows)))
    for figure in (
        "+0.200 [-1.071, +1.471]",
        "+0.300 [+0.000, +0.200]",
        "-0.100  ",
        "forms sampled",
    ):
        assert figure in page.getvalue()


def test_seeds_are_the_last_values_of_a_label(recipe):
    assert list(list_variants(recipe, [], ["rl.beta=0,1"], "4,5")) == [
        f"rl.beta={b} seed={s}" for b in (0, 1) for s in (4, 5)
    ]
