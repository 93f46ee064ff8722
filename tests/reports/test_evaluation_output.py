"""One evaluation to publish: its tables in three formats, its page, and what is refused before
anything is done."""

import csv
import io
import re

import pytest
from rich.console import Console

from plumbline.checks.audit.trial import check_reward
from plumbline.errors import RecipeError
from plumbline.evaluation.command import EvaluationSpec, run_evaluation
from plumbline.evaluation.evaluate import evaluate_completions, evaluate_references
from plumbline.evaluation.summary import summarise_with_references
from plumbline.reports.evaluation_output import (
    Outputs,
    detail_tables,
    evaluation_page,
    evaluation_tables,
    render_tables,
    write_outputs,
)
from plumbline.reports.templating import POLICY
from plumbline.runs.evaluations import read_evaluation
from plumbline.runs.output_guard import MARK
from plumbline.runs.run import Observer
from tests.evaluation.shown_toy import ShownToy

SHOWN = "tests.evaluation.shown_toy:open_shown"


@pytest.fixture
def summary():
    task = ShownToy({"size": 8})
    examples = task.examples("val")
    evaluation = evaluate_completions(
        task, examples, ["a"] * 4 + ["b"] * 3 + [""], source="m_1 & <b>", split="val"
    )
    return summarise_with_references(evaluation, evaluate_references(task, examples, "val"))


def rows_of(table):
    return list(csv.DictReader(io.StringIO(table.to_csv())))


def test_the_figures_stand_above_the_oracle_and_the_baselines_with_their_limits(summary):
    rows = rows_of(evaluation_tables(summary)[0])
    assert [row["source"] for row in rows] == [
        "m_1 & <b>",
        "Oracle",
        "Baseline: constant",
        "Baseline: blank",
    ]
    first = rows[0]
    assert float(first["nonzero_rate"]) == 7 / 8
    assert float(first["mean_reward_low"]) == summary["reward"]["low"]
    assert float(first["letter_accuracy"]) == 0.5
    assert (first["limit"], first["holds"], first["failures"]) == ("", "", "0")
    assert [(row["limit"], row["holds"]) for row in rows[2:]] == [("0.1", "no"), ("0.05", "yes")]


def test_on_a_terminal_baselines_stand_from_the_best_to_the_worst(summary):
    page = io.StringIO()
    Console(file=page, width=100).print(
        detail_tables({**summary, "baselines": {"a": 0.1, "b": 0.3, "c": 0.2}})
    )
    assert re.findall(r"baseline: (\w)", page.getvalue()) == ["b", "c", "a"]


def test_there_is_a_table_for_each_thing_that_is_broken_down_by(summary):
    tables = evaluation_tables(summary)
    assert [table.name for table in tables] == ["figures", "by-parity", "by-kind"]
    assert [row["parity"] for row in rows_of(tables[1])] == ["even", "odd"]
    (kind,) = rows_of(tables[2])
    assert (kind["kind"], kind["n"], float(kind["accuracy"]), float(kind["all_right_rate"])) == (
        "short",
        "8",
        0.5,
        0.5,
    )
    for table in tables:
        assert table.caption.endswith("[each 95 %]. a toy")


def test_the_three_formats_hold_the_same_rows_and_escape_what_others_wrote(summary):
    tables = evaluation_tables(summary)
    shown = {form: render_tables(tables, form) for form in ("md", "csv", "latex")}
    for text in shown.values():
        assert text.count("Baseline: constant") == 1
        assert text.count("short") == 1
    assert r"m\_1 \& \textless{}b\textgreater{}" in shown["latex"]
    assert shown["latex"].count(r"\begin{tabular}") == 3
    assert r"m\_1 &" in shown["md"] or r"m\_1 &amp;" in shown["md"]
    with pytest.raises(RecipeError, match="md, csv, latex"):
        render_tables(tables, "html")


def test_a_page_without_pictures_allows_none(summary):
    html = evaluation_page(summary)
    assert f'content="{POLICY}"' in html
    assert "m_1 &amp; &lt;b&gt;" in html
    assert re.findall(r"<h2>([^<]*)", html)[1:] == ["By parity", "By kind"]


def test_all_outputs_of_one_evaluation(tmp_path):
    spec = EvaluationSpec(
        model="constant", task=SHOWN, options={"size": 4}, split="strange", limit=3, replays=2
    )
    outputs = Outputs(
        evaluation=tmp_path / "e.json",
        tables=tmp_path / "tables",
        report=tmp_path / "page.html",
        replays=2,
        table="md",
    )
    printed = write_outputs(outputs, {"": run_evaluation(spec, Observer(), check_reward)})
    assert printed.startswith("**Figures, toy, strange, rubric toy/1+")
    assert [row.id for row in read_evaluation(tmp_path / "e.json").rows] == [
        "strange-0",
        "strange-1",
        "strange-2",
    ]
    page = (tmp_path / "page.html").read_text()
    assert page.count("<img ") == 4
    assert "&lt;b&gt;before&lt;/b&gt;" in page
    names = {
        f"{name}.{end}"
        for name in ("figures", "by-parity", "by-kind")
        for end in ("md", "csv", "tex")
    }
    assert {path.name for path in (tmp_path / "tables").iterdir()} - {MARK} == names
