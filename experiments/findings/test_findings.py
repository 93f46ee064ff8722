"""experiments/findings: every declaration can be run, and one is, on a few steps."""

import pytest
import yaml

from experiments.findings import __main__ as command
from experiments.findings import arms, measured
from experiments.findings.show import figure
from plumbline.algorithms import ALGORITHMS
from plumbline.recipe import load_recipe
from plumbline.storage import read_json

DECLARED = yaml.safe_load((command.HERE / "findings.yaml").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def _divided(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "divided", arms.Divided)


TRAINED = [name for name, one in command.declarations().items() if "arms" in one]


@pytest.mark.parametrize("name", TRAINED)
def test_every_arm_is_a_recipe(name):
    one = DECLARED[name]
    assert one["reference"] in one["arms"]
    assert set(one["measures"]) <= set(arms.MEASURES)
    for size, every in (("small", one["arms"]), ("real", one.get("real", {"arms": {}})["arms"])):
        base = arms.Base(**DECLARED["bases"][size])
        for values in every.values():
            keys = {
                key: value
                for key, value in values.items()
                if key not in ("family", "optimiser", "alone")
            }
            family = base.families[values.get("family", "autoregressive")]
            load_recipe(base.recipe, arms.written({**family, **keys}))


def test_what_needs_no_model_is_a_function():
    names = [one["measured"] for one in command.declarations().values() if "measured" in one]
    assert names
    assert all(callable(getattr(measured, name)) for name in names)


@pytest.mark.parametrize("path", sorted(command.RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_stored_result_is_drawn_as_a_figure_of_the_page(path):
    page = command.FIGURES.with_suffix(".md").read_text(encoding="utf-8")
    assert f"](findings/{path.stem}.svg)" in page
    assert figure(read_json(path)).startswith("<svg xmlns=")


def test_the_log_s_binomial_chance():
    assert measured.at_least(2, 3, 0.5) == 0.5
    assert measured.at_least(13, 25, 9 / 124) < 1e-8


def test_a_finding_runs_goes_on_and_is_drawn(tmp_path, capsys):
    steps, small = ("model.tiny.steps=2", "sft.steps=2", "rl.steps=2"), ("test=4", "distinct=8")
    tiny = [*steps, *(f"task.options.{one}" for one in small), "sampling.max_tokens=4"]
    places = [
        part
        for name in ("runs", "results", "figures")
        for part in (f"--{name}", str(tmp_path / name))
    ]
    words = ["dead-part", "--seeds", "0", *places, "--set", *tiny]
    command.main(words)
    first = capsys.readouterr()
    assert "| content's part dead |" in first.out
    assert (tmp_path / "figures" / "dead-part.svg").read_text().startswith("<svg xmlns=")
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("metrics.jsonl")}
    assert len(made) == 3  # the start and two arms
    command.main(words)
    assert capsys.readouterr().out == first.out
    assert {
        path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("metrics.jsonl")
    } == made


def test_sgd_takes_the_place_of_adamw_and_gives_it_back():
    import torch

    from plumbline.recipe import OptimiserSection
    from plumbline.training import rl

    kind = rl.Optimiser
    with arms.optimiser("sgd"):
        trained = rl.Optimiser(
            {"w": torch.ones(2, requires_grad=True)}, OptimiserSection(learning_rate=0.5), 10
        )
        assert isinstance(trained.adam, torch.optim.SGD)
        trained.weights["w"].grad = torch.tensor([0.1, 0.0])
        trained.step(5)
        assert trained.weights["w"].tolist() == pytest.approx([0.95, 1.0])
    assert rl.Optimiser is kind
