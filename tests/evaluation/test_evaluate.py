"""Evaluations: rows, summaries, comparisons, completions from elsewhere, and what is refused."""

import json
import threading
from dataclasses import asdict, replace

import pytest

from plumbline.errors import DataError, IncomparableError, TrainingStopped
from plumbline.evaluation.comparison import compare, describe_fall
from plumbline.evaluation.evaluate import (
    Conditions,
    evaluate_completions,
    evaluate_policy,
    evaluate_reference,
    evaluate_references,
)
from plumbline.evaluation.score_completions import evaluate_file
from plumbline.evaluation.summary import summarise
from plumbline.records import Judged, Sampling, Unjudged
from plumbline.runs.evaluations import (
    EvaluationKey,
    PartialEvaluation,
    partial_file,
    read_evaluation,
    write_evaluation,
)
from plumbline.storage import dumps, write_jsonl
from tests.toy import ToyTask


@pytest.fixture
def task():
    return ToyTask({"size": 8})


def evaluated(task, texts):
    """The toy's validation split with these answers."""
    return evaluate_completions(task, task.examples("val"), texts, source="x", split="val")


def test_a_summary_says_everything(task):
    evaluation = evaluated(task, ["a"] * 4 + ["b"] * 3 + [""])
    summary = summarise(evaluation, evaluate_references(task, task.examples("val"), "val"))
    assert summary["n"] == 8
    assert summary["reward"]["mean"] == pytest.approx((4 * 1 + 3 * 0.25 + 0) / 8)
    assert summary["parts"]["letters"]["mean"] == pytest.approx(0.5)
    assert set(summary["strata"]) == {"even", "odd"}
    assert summary["nonzero_rate"] == pytest.approx(7 / 8)
    assert summary["truncated"] is None, "nobody knows whether a completion from elsewhere was cut"
    assert (summary["floor"], summary["ceiling"]) == (0.25, 1.0)
    assert summary["skill"] == pytest.approx((summary["reward"]["mean"] - 0.25) / 0.75)
    assert summary["failures"] == 0


def test_a_verifier_that_breaks_everywhere_stops_the_evaluation_with_its_cause():
    with pytest.raises(TrainingStopped, match=r"12 of 12 .*database"):
        evaluated(ToyTask({"reward": "raises"}), ["a"] * 12)


class Fragile(ToyTask):
    """Its verifier breaks on a text that says so."""

    def judge(self, example, completion):
        if completion == "break":
            raise ZeroDivisionError("a bug")
        return super().judge(example, completion)


class Slow(ToyTask):
    """Judged by a thread, which has no verdict on the second text before `told` is set."""

    judges = 1

    def __init__(self):
        super().__init__({"size": 3})
        self.told = threading.Event()

    def judge(self, example, completion):
        assert completion != "b" or self.told.wait(60)
        return super().judge(example, completion)


def test_verdicts_that_take_their_time_are_said_while_they_are_waited_for(monkeypatch):
    monkeypatch.setattr("plumbline.evaluation.evaluate.SECONDS_BETWEEN", 0.05)
    task, said = Slow(), []

    def progress(*now):
        said.append(now)
        if now[1]:
            task.told.set()

    evaluate_completions(
        task, task.examples("val")[:3], ["a", "b", "a"], source="x", split="val", progress=progress
    )
    assert said[-1] == ("x on val", 3, 3)
    assert ("x on val", 1, 3) in said
    said.clear()
    evaluate_references(task, task.examples("val")[:3], "val", progress)
    assert not said, "verdicts that cost nothing are not worth a word"


def test_what_could_not_be_judged_is_counted_and_in_no_figure(tmp_path):
    task = Fragile({"size": 12})
    after, before = (
        evaluated(task, ["break", *["aa"] * 11]),
        evaluated(task, [*["b"] * 10, "break", "b"]),
    )
    summary = summarise(after, evaluate_references(task, task.examples("val"), "val"))
    assert (summary["n"], summary["failures"], summary["reward"]["mean"]) == (11, 1, 1.0)
    assert after.unjudged[0].failure == "ZeroDivisionError: a bug"
    compared = compare(before, after)
    assert (compared.difference.n, compared.difference.mean) == (10, 0.75), "those judged in both"
    write_evaluation(tmp_path / "e.json", after)
    assert read_evaluation(tmp_path / "e.json") == after


def test_a_baseline_that_equals_the_oracle_leaves_the_skill_open(tmp_path):
    """One example is enough; it was NaN, which is no JSON, and the run had no result."""
    task = ToyTask({"size": 1, "reward": "constant"})
    summary = summarise(
        evaluated(task, ["a"]), evaluate_references(task, task.examples("val"), "val")
    )
    assert summary["skill"] is None
    assert json.loads(dumps(summary))["n"] == 1


UNDER = Conditions(source="tiny", split="val", sampling=Sampling(max_tokens=6), seed=1)


def test_a_model_is_evaluated_the_same_twice_and_its_lengths_are_known(tiny_policy, task):
    one = evaluate_policy(tiny_policy, task, task.examples("val"), UNDER)
    assert one == evaluate_policy(tiny_policy, task, task.examples("val"), UNDER)
    summary = summarise(one)
    assert 0 < summary["mean_tokens"] <= 6
    assert 0 <= summary["truncated"] <= 1


def test_an_evaluation_that_was_killed_goes_on_after_what_it_has(
    tmp_path, tiny_policy, task, monkeypatch
):
    monkeypatch.setattr("plumbline.evaluation.evaluate.AT_ONCE", 3)
    examples, place = task.examples("val"), tmp_path / "e.json"
    whole = evaluate_policy(tiny_policy, task, examples, UNDER)

    def killed(done: int, total: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    facts = asdict(UNDER)
    with pytest.raises(KeyboardInterrupt):
        evaluate_policy(tiny_policy, task, examples, UNDER, killed, PartialEvaluation(place, facts))
    with partial_file(place).open("a") as file:
        file.write('{"id": "val-6", "str')  # torn
    begun, told = PartialEvaluation(place, facts), []
    assert [row.id for row in begun.rows()] == [f"val-{number}" for number in range(6)]
    assert (
        evaluate_policy(
            tiny_policy, task, examples, UNDER, lambda *so_far: told.append(so_far), begun
        )
        == whole
    )
    assert told == [(6, 8), (8, 8)]
    with pytest.raises(DataError, match="other examples"):
        evaluate_policy(
            tiny_policy, task, examples[1:], UNDER, None, PartialEvaluation(place, facts)
        )
    assert PartialEvaluation(place, {**facts, "seed": 2}).rows() == [], "drawn under another seed"
    begun.remove()
    assert not [*tmp_path.iterdir()]


def test_an_answer_that_could_not_be_judged_is_begun_too(tmp_path):
    rows = [
        Unjudged(id="a", stratum="", completion="x", failure="EpisodeFailed"),
        Judged(
            id="b",
            stratum="",
            completion="y",
            reward=0.5,
            parts={},
            readings={},
            how="",
            truncated=None,
            tokens=2,
        ),
    ]
    PartialEvaluation(tmp_path / "e.json", {}).add(rows)
    assert PartialEvaluation(tmp_path / "e.json", {}).rows() == rows
    with partial_file(tmp_path / "e.json").open("a") as file:
        file.write('{"id": "c", "reward": 2}\n')
    with pytest.raises(DataError, match=r"part.jsonl:4: "):
        PartialEvaluation(tmp_path / "e.json", {}).rows()


def test_what_is_no_evaluation_is_not_read_as_one(tmp_path):
    (tmp_path / "f.json").write_text('{"rows": 3}')
    with pytest.raises(DataError, match="not an evaluation"):
        read_evaluation(tmp_path / "f.json")


def test_comparing_what_cannot_be_compared_is_refused(task):
    one = evaluated(task, ["a"] * 8)
    assert compare(one, one).difference.mean == 0
    with pytest.raises(IncomparableError, match="rubric"):
        compare(one, replace(one, rubric="toy/2+000000"))
    with pytest.raises(IncomparableError, match="share 7 examples"):
        compare(one, replace(one, rows=one.rows[:7]))


def test_completions_from_anywhere(tmp_path, task):
    path = tmp_path / "answers.jsonl"
    answers = {"val-0": "aa", "test-3": "b", "nobody": ""}
    write_jsonl(path, ({"id": id_, "completion": text} for id_, text in answers.items()))
    evaluation, unknown = evaluate_file(path, task, ["val", "test"])
    assert [row.reward for row in evaluation.rows] == [1.0, 0.25]
    assert unknown == {"nobody"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (['{"id": "val-0"}'], r'answers.jsonl:1: a row needs "id" and "completion"'),
        (['{"id": "val-0", "completion": 3}'], r"answers.jsonl:1"),
        (
            ['{"id": "val-0", "completion": "a"}'] * 2,
            r"answers.jsonl:2: val-0 has an answer already",
        ),
        (['{"id": "other", "completion": "a"}'], "none of the 1 ids"),
        (["{"], r"answers.jsonl:1: not JSON"),
    ],
)
def test_a_bad_file_of_completions(tmp_path, task, rows, message):
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(rows))
    with pytest.raises(DataError, match=message):
        evaluate_file(path, task, ["val"])


def test_an_unknown_baseline_is_named_with_the_known_ones(task):
    with pytest.raises(DataError, match="oracle, blank, constant"):
        evaluate_reference(task, task.examples("val"), source="cheat", split="val")


@pytest.mark.parametrize(
    "text", ["rl.val.greedy", "rl@000040.val.sampled", "reference.held-out.keyword-stuffing"]
)
def test_keys_read_back_and_what_is_none_is_refused(text):
    assert str(EvaluationKey.parse(text)) == text
    with pytest.raises(DataError, match="report"):
        EvaluationKey.parse("report")


def test_so_few_examples_that_chance_alone_lowers_them_are_no_fall():
    """Four of four flips are as extreme in one of eight ways, whatever the interval of four equal
    differences says."""
    for size, falls in ((1, False), (4, False), (8, True)):
        before, fewer = (
            evaluated(ToyTask({"size": size}), [text] * size) for text in ("aaaa", "aaab")
        )
        assert (describe_fall(before, fewer) is not None) == falls


def test_a_fall_is_said_with_its_part_and_chance_is_not():
    answers = (["aaaa"] * 40, ["aaab"] * 40, ["aaaa"] * 39 + ["b"])
    before, fewer, mixed = (evaluated(ToyTask({"size": 40}), texts) for texts in answers)
    assert describe_fall(before, before) is None
    assert describe_fall(before, mixed) is None, "one of 40 is chance"
    assert describe_fall(fewer, before) is None, "a gain"
    said = describe_fall(before, fewer)
    for figure in ("-0.188 [-0.188, -0.188]", " 40 ", "letters (-0.250)"):
        assert figure in said
