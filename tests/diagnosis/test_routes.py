"""Which model does which job: the better one where that is decided, else the one that was given
first."""

import json

import pytest
from typer.testing import CliRunner

from plumbline.checks.diagnosis.routes import read_routes, route, write_routes
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
    table = route([small, large])
    assert list(table.routes) == sorted(TASKS)
    chosen = {job: (one.model.split("/")[-3], one.decided) for job, one in table.routes.items()}
    assert chosen == {
        "extraction": ("small", True),
        "sql_qa": ("large", True),
        "insights": ("small", False),
        "push": ("large", True),
    }
    assert "not decided" in table.routes["insights"].said
    best, other = table.routes["sql_qa"].candidates
    assert (best.model, best.behind) == (str(large / "models" / "rl"), None)
    assert other.figure.mean == pytest.approx(0.1, abs=0.02)
    behind, low, high = other.behind
    assert behind == pytest.approx(-0.3, abs=0.02)
    assert low < behind < high < 0
    assert route([large, small]).routes["insights"].model.split("/")[-3] == "large"


def test_one_model_is_chosen_and_not_decided_on(two):
    table = route(two[:1])
    assert {one.decided for one in table.routes.values()} == {False}


def test_a_table_is_written_read_back_and_never_laid_over_another_file(two, tmp_path):
    table, path = route(two), tmp_path / "routes.yaml"
    write_routes(path, table)
    write_routes(path, table)
    assert read_routes(path) == table
    path.write_text("mine: 1\n")
    with pytest.raises(PlumblineError, match="did not write it"):
        write_routes(path, table)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no routing table"),
        ("- 1", "is no routing table"),
        ("routes: {}", "version"),
        ("version: 2\nroutes: {}", "has version 2"),
        ("version: 1\nroutes: {push: {decided: true}}", "model"),
        ("version: 1\nroutes: {push: {model: m, falback: [n]}}", "did you mean fallback"),
        ("version: 1\nroutes: {push: {model: m, fallback: n}}", "routes.push.fallback"),
        (
            "version: 1\nroutes: {push: {model: m, fallback: [n, m]}}",
            "one of them stands there twice",
        ),
        ("version: 1\nroutes: {push: {model: m, shadow: m}}", "compared with itself"),
        (
            "version: 1\nroutes: {push: {model: m, shadow: n, shadow_share: 0}}",
            "shadow_share must lie in",
        ),
        ("version: 1\nroutes: {}\nextra: 1", "unknown key extra"),
        ("version: [", "is not YAML"),
    ],
)
def test_what_is_no_table_is_an_error(tmp_path, text, said):
    path = tmp_path / "routes.yaml"
    path.write_text(text)
    with pytest.raises(PlumblineError, match=said):
        read_routes(path)


def test_a_table_by_hand_says_as_little_as_it_needs(tmp_path):
    path = tmp_path / "routes.yaml"
    path.write_text(
        "version: 1\nroutes: {push: {model: a, fallback: [b], shadow: c}, sql_qa: {model: "
        "b}}\ndefault: d\n"
    )
    table = read_routes(path)
    assert table.models == ("a", "b", "c", "d")
    write_routes(tmp_path / "again.yaml", table)
    assert read_routes(tmp_path / "again.yaml") == table


def test_runs_without_a_model_or_with_other_examples_are_errors(two, tmp_path):
    with Run.start(load_recipe("commerce-smollm2"), tmp_path / "new", resume=False):
        pass
    with pytest.raises(PlumblineError, match="no model that was evaluated"):
        route([tmp_path / "new"])
    with pytest.raises(PlumblineError, match="is no folder"):
        route([tmp_path / "nowhere"])
    with pytest.raises(PlumblineError, match="share 50 examples"):
        route([two[0], finished(tmp_path / "short", {"push": 0.9}, n=50)])


def test_the_command_prints_the_table_and_writes_it(two, tmp_path):
    arguments = ["route", *map(str, two), "--out", str(tmp_path / "routes.yaml")]
    text = CliRunner().invoke(app, arguments)
    assert text.exit_code == 0, text.output
    assert "insights: " in text.output
    assert "(not decided)" in text.output
    plain = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert plain["routes"]["sql_qa"]["decided"] is True
    assert read_routes(tmp_path / "routes.yaml").routes["sql_qa"].model.endswith("large/models/rl")
