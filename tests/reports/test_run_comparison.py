"""A history in its forms: terminal, page, Markdown, LaTeX, CSV, JSON; and the two commands that
print it."""

import csv
import io
import json
from xml.etree import ElementTree

import pytest

from plumbline.evaluation.compared_runs import EvaluationFilter, read_lineage
from plumbline.reports.run_comparison import OTHER_SEED, history_page, history_tables
from plumbline.runs.evaluations import write_evaluation
from tests.runs.stored import evaluation, rewards, stored

GREEDY = "rl.test.greedy"
RL = {"steps": 60, "prompts_per_step": 4, "group_size": 8}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A lineage as the forms log has one: a crash, a version that gains, a metric that was
    redefined, seeds."""
    runs = tmp_path_factory.mktemp("lineage") / "runs"
    low, high = rewards(0.3, seed=1), rewards(0.95, seed=2)

    def version(name: str, hour: int, found, **over) -> None:
        stored(runs / name, found, began=f"2026-02-17T{hour:02d}:00:00+00:00", **over)

    version("v1", 1, None, steps=3, finished=False)
    version("v2", 2, {GREEDY: low, "base.test.greedy": low}, rl=RL | {"group_size": 4})
    version("v3", 3, {GREEDY: high}, rl=RL | {"group_size": 4, "beta": 0.1})
    version("v3-seed9", 4, {GREEDY: high}, rl=RL | {"group_size": 4, "beta": 0.1}, seed=9)
    version(
        "v4", 5, {GREEDY: evaluation(high, rubric="toy/2")}, rl=RL | {"group_size": 4, "beta": 0.2}
    )
    version(
        "v4-shuffled",
        6,
        {GREEDY: evaluation(low, rubric="toy/2")},
        controls={"shuffle_advantages": True},
    )
    (runs / "notes").mkdir()
    return runs


@pytest.fixture(autouse=True)
def _in_an_empty_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def rows(place, name: str) -> list[dict[str, str]]:
    (table,) = (one for one in history_tables(read_lineage([place])) if one.name == name)
    return list(csv.DictReader(io.StringIO(table.to_csv())))


def test_the_table_of_runs_is_the_lineage(place):
    found = {row["run"]: row for row in rows(place, "runs")}
    assert list(found) == ["v1", "v2", "v3", "v3-seed9", "v4", "v4-shuffled"]
    assert found["v1"]["status"].startswith("stopped: ")
    assert found["v1"]["steps"] == "rl 3 of 60"
    assert (found["v2"]["began"], found["v2"]["trained"]) == ("2026-02-17 02:00", "2 min 00 s")
    assert found["v2"]["changed"] == "rl.group_size 8 → 4 (than v1)"
    assert found["v4-shuffled"]["status"] == "finished, negative control"
    assert {row["from"] for row in found.values()} == {"models/small"}


def test_each_comparison_says_what_it_comes_to(place):
    said = {(row["run"], row["against"]): row["says"] for row in rows(place, "comparisons")}
    assert said[("v2", "its start, models/small")] == "no difference shown"
    assert said[("v3", "v2")] == "higher"
    assert said[("v3-seed9", "v2")] == "higher"
    assert said[("v4", "v3")].startswith("not comparable: ")
    assert said[("v4", "v3")].endswith("toy/1+abc123 and v4 under toy/2")
    assert said[("v4-shuffled", "v4")] == "lower"


def test_two_seeds_of_a_recipe_that_differ_are_no_change_of_the_recipe(tmp_path):
    for seed, level in enumerate((0.1, 0.95)):
        stored(tmp_path / f"seed{seed}", {GREEDY: rewards(level, seed=seed)}, seed=seed)
    (row,) = rows(tmp_path, "comparisons")
    assert row["says"].startswith(OTHER_SEED)
    assert "higher" in row["says"]


def test_a_large_difference_of_few_examples_is_not_called_none(tmp_path):
    for name, level in (("v1", 0.1), ("v2", 0.9)):
        stored(tmp_path / name, {GREEDY: [level] * 4}, rl=RL | {"beta": level})
    (row,) = rows(tmp_path, "comparisons")
    assert "4 independent examples are too few" in row["says"]


def test_rewards_under_two_rubrics_stand_in_two_figures(place):
    page = history_page(read_lineage([place]), "plumbline runs")
    figures = [one.partition("</figure>")[0] for one in page.split("<figure>")[1:]]
    assert [("rubric toy/1+abc123" in one, "rubric toy/2" in one) for one in figures] == [
        (True, False),
        (False, True),
    ]
    for one in figures:
        drawing = one[one.index('<svg viewBox="0 0 420') : one.rindex("</svg>") + 6]
        ElementTree.fromstring(drawing)
        assert "floor 0.000" in drawing
        assert "ceiling 1.000" in drawing
    assert "Other folders" in page
    assert "notes: empty" in page


def test_greedy_and_sampled_stand_in_one_row_with_a_key(tmp_path):
    stored(tmp_path / "v1", {GREEDY: rewards(0.5), "rl.test.sampled": rewards(0.4)})
    page = history_page(read_lineage([tmp_path], EvaluationFilter(mode=None)), "plumbline runs")
    (figure,) = page.split("<figure>")[1:]
    assert figure.count('class="key"') == 2
    assert "v1, greedy: " in figure
    assert "v1, sampled: " in figure


# -- the commands ----------------------------------------------------------------------------------


def test_runs_on_a_terminal_of_80_columns(plumbline, place):
    code, out, _ = plumbline("runs", place)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    for text in ("#3-#2", "#2-start", "0.933", "rl.beta 0.0 → 0.1"):
        assert text in out
    flat = " ".join(out.split())
    assert "#5 against #3, test greedy: " in flat
    assert "toy/1+abc123" in flat
    assert "4 comparisons" in flat
    assert "notes: empty" in flat


def test_runs_looks_in_the_folder_runs_and_says_if_there_is_none(plumbline, place, monkeypatch):
    code, out, err = plumbline("runs")
    assert (code, out) == (1, "")
    assert "error: runs " in err
    monkeypatch.chdir(place.parent)
    code, out, _ = plumbline("runs", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["tests"] == 4
    assert found["others"] == {"runs/notes": "empty"}
    v3 = next(run for run in found["runs"] if run["name"] == "v3")
    assert (v3["status"], v3["against"], v3["recipe"]["seed"]) == ("finished", "v2", 7)
    assert v3["began_from"] == {"model": "models/small", "run": "", "stage": ""}
    assert v3["changes"] == [{"key": "rl.beta", "before": 0.0, "after": 0.1}]
    assert v3["comparisons"][0]["direction"] == "rise"
    assert v3["results"][0]["reward"]["n"] == 60
    v4 = next(run for run in found["runs"] if run["name"] == "v4")
    assert "rubric" in v4["comparisons"][0]["not_comparable"]


def test_runs_as_tables_to_publish_and_as_a_page(plumbline, place, tmp_path):
    code, out, _ = plumbline("runs", place, "--table", "md", "--report", tmp_path / "page.html")
    assert code == 0
    assert out.count("**") == 8, "four captions"
    assert "| v3 | v2 | test greedy |" in out
    page = (tmp_path / "page.html").read_text()
    assert "plumbline runs" in page
    _, out, _ = plumbline("runs", place, "--table", "latex")
    assert out.count(r"\begin{tabular}") == 4


def test_a_result_of_a_stage_before_the_last_says_so_on_a_terminal(plumbline, tmp_path):
    stored(
        tmp_path / "runs" / "v1",
        {"sft.test.greedy": rewards(0.5)},
        sft={"steps": 5},
        finished=False,
    )
    stored(tmp_path / "runs" / "v2", {GREEDY: rewards(0.5)}, seed=1)
    write_evaluation(tmp_path / "one.json", evaluation(rewards(0.5)))
    _, out, _ = plumbline("runs")
    assert out.count("(after sft)") == 1
    assert "(after rl)" not in out
    _, out, _ = plumbline("compare", "one.json", "runs/v2")
    assert "(after" not in out


def test_compare_of_several(plumbline, place, tmp_path):
    code, out, _ = plumbline(
        "compare", place / "v2", place / "v3", place / "v4", "--report", tmp_path / "page.html"
    )
    assert code == 0
    assert "#2-#1" in out
    assert "#3 against #1, test greedy: " in " ".join(out.split())
    assert "rl.beta 0.0 → 0.2" in out
    assert "<h1>3 runs</h1>" in (tmp_path / "page.html").read_text()
    _, out, _ = plumbline("compare", place / "v2", place / "v3", "--table", "csv")
    assert out.startswith("run,task,split,mode,stage,n,reward,reward_low,reward_high")


def test_what_a_folder_is_called_cannot_drive_the_terminal(plumbline, tmp_path):
    stored(tmp_path / "runs" / "a\x1b[31m", {GREEDY: rewards(0.5)})
    code, out, _ = plumbline("runs", "runs")
    assert code == 0
    assert "\x1b[31m" not in out
    assert "001B" in out.replace("\n", "")
