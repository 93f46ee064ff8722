"""`plumbline eval --task forms`: figures, floor and ceiling on every split, tables, and what a
failed episode shows."""

import json
import sys
from types import ModuleType

import pytest

from plumbline.checks.audit.trial import check_reward
from plumbline.cli import main as cli
from plumbline.errors import RecipeError
from plumbline.evaluation.command import EvaluationSpec, run_evaluation
from plumbline.evaluation.evaluate import evaluate_references
from plumbline.evaluation.replays import replay_episodes
from plumbline.evaluation.summary import summarise_with_references
from plumbline.records import Frame, Mistake
from plumbline.runs.run import Observer
from plumbline.tasks import open_task
from plumbline_forms.rubric import RECEIVED, SEED_V6

FILM = "plumbline_forms.executors.pictures"
TEN = ("--set", "task.options.records=10")


@pytest.fixture
def plumbline(monkeypatch, capfd):
    """Run the command line in this process; returns exit code, standard output and standard
    error."""

    def run(*arguments: object):
        monkeypatch.setattr(sys, "argv", ["plumbline", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as exit_:
            code = exit_.code or 0
        return code, *capfd.readouterr()

    return run


@pytest.mark.parametrize("split", ["val", "held-out-forms"])
def test_the_oracle_is_the_ceiling_and_every_baseline_keeps_its_limit(fewer, split):
    """On one record a form; test_rubric.py holds oracle and baselines to their rewards on all of
    them."""
    examples = fewer.examples(split)
    beside = evaluate_references(fewer, examples, split)
    summary = summarise_with_references(beside["oracle"], beside)
    assert {name: found["mean"] for name, found in summary["figures"].items()} == dict.fromkeys(
        summary["titles"], 1.0
    )
    assert set(summary["limits"]) == {
        *("blank", "submit-only", "type-after-submit", "constant", "shuffled-gold", "spray")
    }
    assert all(limit["holds"] for limit in summary["limits"].values()), summary["limits"]
    assert len(summary["by"]["form"]) == (5 if split == "held-out-forms" else 20)
    assert {found["accuracy"]["mean"] for found in summary["by"]["kind"].values()} == {1.0}
    assert {"text", "date", "select", "file", "checkbox"} <= set(summary["by"]["kind"])


@pytest.mark.parametrize("headline", [RECEIVED, SEED_V6])
def test_every_figure_is_a_part_that_the_rubric_gives(headline):
    options = {
        "rubric": "received" if headline is RECEIVED else "seed-v6",
        "forms": ["library-card"],
        "held_out": [],
    }
    evaluated = run_evaluation(
        EvaluationSpec(model="constant", task="forms", options=options), Observer(), check_reward
    )
    assert evaluated.evaluation.headline == headline
    parts = set(evaluated.evaluation.rows[0].parts)
    assert {figure.part for figure in headline.figures} <= parts
    assert any(part.startswith("kind-") for part in parts) == bool(headline.prefix)


def test_the_command_prints_one_object_with_the_figures_on_held_out_forms(plumbline):
    arguments = (
        "--task",
        "forms",
        "--executor",
        "direct",
        "--split",
        "held-out-forms",
        "--n",
        12,
        "--greedy",
    )
    code, out, _ = plumbline("eval", "submit-only", *arguments, *TEN, "--json")
    assert code == 0
    summary = json.loads(out)
    assert (summary["n"], summary["split"], out.count("\n")) == (12, "held-out-forms", 1)
    assert summary["figures"]["mean_reward"]["mean"] == 0
    assert list(summary["figures"]) == [
        *("nonzero_rate", "mean_reward", "field_accuracy", "exact_form_rate", "submitted_rate")
    ]
    assert set(summary["references"]) == {"oracle", *summary["baselines"]}


def test_the_terminal_shows_figures_baselines_limits_forms_and_kinds(plumbline):
    code, out, _ = plumbline(
        "eval", "shuffled-gold", "--task", "forms", "--set", "task.options.forms=[library-card]"
    )
    assert code == 0
    assert "exact form rate" in out
    assert "(limit 0.15)" in out
    assert "by form" not in out, "there is one form only"
    assert "by kind" in out
    assert "kind-text" not in out
    code, out, _ = plumbline("eval", "shuffled-gold", "--task", "forms", "--n", 30, *TEN)
    assert "by form" in out


def test_the_seeds_rubric_is_labelled_in_every_format(plumbline, tmp_path):
    arguments = (
        "eval",
        "type-after-submit",
        "--task",
        "forms",
        "--n",
        5,
        "--set",
        "task.options.rubric=seed-v6",
        *TEN,
    )
    label = "seed-v6: the rubric of the forms log's tables"
    for shown in ("md", "latex"):
        code, out, _ = plumbline(*arguments, "--table", shown)
        assert code == 0
        assert label in out
        assert "Limit" not in out, "the limits are those of the other rubric"
    code, out, _ = plumbline(*arguments, "--report", tmp_path / "page.html")
    assert label in " ".join(out.split())
    assert "forms-seed-v6/2" in (tmp_path / "page.html").read_text()
    assert json.loads(plumbline(*arguments, "--json")[1])["reward"]["mean"] > 0.4, (
        "which is why it is not ours"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--task", "forms", "--suite", "formfactory"), "set task.options.path (--path)"),
        (("--task", "commerce", "--path", "somewhere"), "task.options.path"),
    ],
)
def test_a_path_is_asked_for_where_it_is_read_and_refused_elsewhere(
    plumbline, tmp_path, arguments, message
):
    code, out, err = plumbline("eval", "oracle", "--data", tmp_path, *arguments)
    assert (code, out) == (1, "")
    assert message in err


# -- failed episodes -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library():
    return open_task("forms", {"forms": ["library-card"], "held_out": []}, None)


def test_a_right_answer_has_no_mistakes_and_a_wrong_field_is_named(library):
    example = library.examples("val")[0]
    assert library.mistakes(example, example.gold) == []
    (label, value) = next(
        (one.field.label, one.gold)
        for one in library._prepare(example).expected
        if one.field.kind == "text" and f"Type '{one.gold}'" in example.gold
    )
    wrong = example.gold.replace(f"Type '{value}'", "Type 'Zzyzx'")
    assert library.mistakes(example, wrong) == [
        Mistake(what=label, expected=value, received="Zzyzx")
    ]


def test_a_form_that_never_arrived_says_why(library):
    example = library.examples("val")[0]

    def received(name):
        (mistake,) = library.mistakes(example, library.baselines[name]([example])[0])
        assert (mistake.what, mistake.expected) == ("the form", "sent, and accepted")
        return mistake.received

    assert "no action" in received("blank")
    assert "refused" in received("submit-only")
    assert (
        library.mistakes(example, example.gold.rsplit("\n", 1)[0])[0].received == "nothing was sent"
    )


def test_an_episode_is_replayed_with_what_was_wrong(library, monkeypatch):
    seen = []

    def film(case, plan, *site):
        seen.append((case.view.form.name, len(plan.actions)))
        return [Frame(caption="the end", image=b"\xff\xd8")]

    fake = ModuleType(FILM)
    fake.film = film
    monkeypatch.setitem(sys.modules, FILM, fake)
    assert library.replayable
    examples = library.examples("val")
    evaluation = evaluate_references(library, examples, "val")["submit-only"]
    found = replay_episodes(library, examples, evaluation, 2)
    assert [one.frames[0].caption for one in found] == ["the end", "the end"]
    assert all(one.mistakes[0].what == "the form" for one in found)
    assert seen == [("library-card", 2)] * 2, "navigate and press"


def test_without_a_browser_the_replay_says_what_to_install(library, monkeypatch):
    monkeypatch.setitem(sys.modules, FILM, None)
    examples = library.examples("val")
    with pytest.raises(RecipeError, match=r"\./environments/browser\[playwright\]"):
        library.replay(examples[0], examples[0].gold)
    evaluation = evaluate_references(library, examples, "val")["blank"]
    (one,) = replay_episodes(library, examples, evaluation, 1)
    assert "is not installed" in one.problem
    assert one.mistakes
