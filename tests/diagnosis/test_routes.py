"""Which model does which job: the better one where that is decided, else the one that was given
first."""

import json
import re

import pytest
import yaml
from typer.testing import CliRunner

from plumbline.checks.diagnosis.routing_table import choose_routes, routes_to_json, write_routes
from plumbline.cli.main import app
from plumbline.errors import PlumblineError
from plumbline.recipe import load_recipe
from plumbline.runs.run import Run
from tests.diagnosis.planted import LARGE, SMALL, TASKS, finished


@pytest.fixture
def two(tmp_path):
    return finished(tmp_path / "small", SMALL), finished(tmp_path / "large", LARGE)


def test_each_job_goes_to_the_better_model_and_noise_to_the_first(two):
    small, large = two
    table = choose_routes([small, large])
    assert list(table.routes) == sorted(TASKS)
    chosen = {job: (one.model.split("/")[-3], one.decided) for job, one in table.routes.items()}
    assert chosen == {
        "extraction": ("small", True),
        "sql_qa": ("large", True),
        "insights": ("small", False),
        "push": ("large", True),
    }
    assert "not decided" in table.routes["insights"].reason
    best, other = table.routes["sql_qa"].candidates
    assert (best.model, best.behind) == (str(large / "models" / "rl"), None)
    assert other.figure.mean == pytest.approx(0.1, abs=0.02)
    behind, low, high = other.behind
    assert behind == pytest.approx(-0.3, abs=0.02)
    assert low < behind < high < 0
    assert choose_routes([large, small]).routes["insights"].model.split("/")[-3] == "large"


def test_one_model_is_chosen_and_not_decided_on(two):
    table = choose_routes(two[:1])
    assert {one.decided for one in table.routes.values()} == {False}


def test_a_table_is_written_and_never_laid_over_another_file(two, tmp_path):
    table, path = choose_routes(two), tmp_path / "routes.yaml"
    write_routes(path, table)
    write_routes(path, table)
    assert yaml.safe_load(path.read_text()) == routes_to_json(table)
    path.write_text("mine: 1\n")
    with pytest.raises(PlumblineError, match=re.escape(str(path))) as caught:
        write_routes(path, table)
    assert "--out" in caught.value.fix


def test_runs_without_a_model_or_with_other_examples_are_errors(two, tmp_path):
    with Run.start(load_recipe("commerce-smollm2"), tmp_path / "new"):
        pass
    with pytest.raises(PlumblineError, match=r"/new .* model .* stage\b"):
        choose_routes([tmp_path / "new"])
    with pytest.raises(PlumblineError, match="is no folder"):
        choose_routes([tmp_path / "nowhere"])
    with pytest.raises(PlumblineError, match="share 50 examples"):
        choose_routes([two[0], finished(tmp_path / "short", {"push": 0.9}, n=50)])


def test_the_command_prints_the_table_and_writes_it(two, tmp_path):
    arguments = ["route", *map(str, two), "--out", str(tmp_path / "routes.yaml")]
    text = CliRunner().invoke(app, arguments)
    assert text.exit_code == 0, text.output
    assert "insights: " in text.output
    assert "(not decided)" in text.output
    said = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert said["routes"]["sql_qa"]["decided"] is True
    assert said == yaml.safe_load((tmp_path / "routes.yaml").read_text())
    assert said["routes"]["sql_qa"]["model"].endswith("large/models/rl")
