"""`plumbline eval --inspect`: a log that Inspect itself reads back."""

import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest

from plumbline.errors import ModelError, RecipeError, StorageError
from plumbline.evaluation.evaluate import evaluate_completions
from plumbline.evaluation.inspect_log import check_log, is_log, write_log
from plumbline.records import Unjudged
from tests.evaluation.shown_toy import ShownToy

needs_inspect = pytest.mark.skipif(
    find_spec("inspect_ai") is None, reason="pip install '.[inspect]'"
)


@pytest.fixture
def evaluated():
    """Six judged answers and two that could not be judged, and their examples."""
    task = ShownToy({"size": 8})
    examples = task.examples("val")
    answers = [example.gold for example in examples[:4]] + ["b", ""]
    evaluation = evaluate_completions(task, examples[:6], answers, source="mine", split="val")
    failed = tuple(
        Unjudged(id=one.id, stratum=one.stratum, completion="?", failure="ValueError: broken")
        for one in examples[6:]
    )
    return replace(evaluation, unjudged=failed), examples


@needs_inspect
def test_inspect_reads_every_sample_back(evaluated, tmp_path):
    from inspect_ai.log import read_eval_log

    evaluation, examples = evaluated
    path = tmp_path / "deep" / "mine.eval"
    write_log(path, evaluation, examples)
    assert [one.name for one in path.parent.iterdir()] == ["mine.eval"]
    log = read_eval_log(str(path))
    assert (log.status, log.eval.task, log.eval.model) == ("success", evaluation.task, "mine")
    assert log.eval.metadata["rubric"] == evaluation.rubric
    (scores,) = log.results.scores
    assert scores.metrics["mean"].value == pytest.approx(evaluation.mean_reward)
    assert (
        scores.metrics["ci95_low"].value
        <= evaluation.mean_reward
        <= scores.metrics["ci95_high"].value
    )
    assert (scores.scored_samples, scores.unscored_samples) == (6, 2)
    assert [one.id for one in log.samples] == [one.id for one in examples]
    for sample, row, example in zip(log.samples, evaluation.rows, examples, strict=False):
        assert [(one.role, one.content) for one in sample.input] == [
            (one["role"], one["content"]) for one in example.messages
        ]
        assert sample.target == example.gold
        assert sample.output.completion == sample.messages[-1].content == row.completion
        score = sample.scores["reward"]
        assert score.value == row.reward
        assert score.metadata["parts"] == dict(row.parts)
    failed = log.samples[-1].scores["reward"]
    assert failed.explanation == "ValueError: broken"
    assert failed.value != failed.value, "it has no reward"


@needs_inspect
def test_the_command_writes_a_log_and_replaces_its_own_alone(tmp_path, monkeypatch, capsys):
    from inspect_ai.log import read_eval_log

    from plumbline.cli import main as cli

    monkeypatch.chdir(tmp_path)
    words = ["eval", "oracle", "--task", "forms", "--n", "3", "--inspect", "oracle.eval"]
    for _ in range(2):
        cli.app(words, standalone_mode=False)
    assert "oracle on forms" in capsys.readouterr().out
    log = read_eval_log("oracle.eval")
    assert [one.scores["reward"].value for one in log.samples] == [1.0] * 3
    assert is_log(tmp_path / "oracle.eval")
    (tmp_path / "other.eval").write_text("not ours")
    with pytest.raises(StorageError, match=r"other\.eval"):
        check_log(tmp_path / "other.eval")


def test_what_cannot_be_written_is_refused_before_anything_is_evaluated(tmp_path, monkeypatch):
    with pytest.raises(RecipeError, match=r"mine\.json\.eval"):
        check_log(tmp_path / "mine.json")
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    with pytest.raises(ModelError, match="--inspect needs inspect_ai") as found:
        check_log(tmp_path / "mine.eval")
    assert "[inspect]" in found.value.fix
