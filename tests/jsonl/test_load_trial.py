"""A verifier that would make a result false is found before anything is trained with it."""

import json
from types import SimpleNamespace

import pytest

from plumbline.checks.audit import scoring_runner, trial
from plumbline.checks.audit.trial import check_reward, try_reward
from plumbline.errors import DataError, RecipeError, RewardError, RunError
from plumbline.evaluation.command import EvaluationSpec, run_evaluation
from plumbline.recipe import parse_recipe
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Observer
from plumbline.tasks import cases
from plumbline.tasks.jsonl.task import JsonlTask
from plumbline.training.pipeline import run_recipe
from tests.training.toy_runs import messages

BAD = '''
import itertools, math, random, re, threading

def honest(completion, answer): return float(completion == answer)
def raises(completion, answer): return float(int(completion) == int(answer))
def nan(completion, answer): return math.nan if not completion else 1.0
def outside(completion, answer): return 10.0 if completion == answer else 0.0
def dice(completion, answer): return random.random()
calls = itertools.count()
def aging(completion, answer): return 1 / (1 + next(calls))
def ranked(completions, answer, **columns):
    return [float(c == a) / len(completions) for c, a in zip(completions, answer)]
def hangs(completion, answer):
    if completion.startswith('"""'):
        re.match(r"(\\W+\\W+)+x", completion)
    return 1.0
def wrong(completion, answer): return float(completion == f"#### {answer}")
def never(completion, answer): return 0
def graded(completions, answer, **columns):
    return [2.0 if c == f"#### {a}" else 1.5 if c == a else -0.5 * (a in c) for c, a in zip(completions, answer)]
def wordy(completions, **columns): return [min(1.0, len(c) / 400) for c in completions]
def noisy(completions, answer, **columns):
    return [(c == a) - 0.05 * (c == "4" * 4) for c, a in zip(completions, answer)]
def repetition(completions, **columns):
    return [-0.5 * (len(c.split()) > 9 and len(set(c.split())) < len(c.split()) / 4) for c in completions]
def half(completion, answer): return 0.5 * (completion == answer)
def contains(completion, answer): return float(answer in completion.split())
def main_only(completion, answer):
    assert threading.current_thread() is threading.main_thread(), "signals need the main thread"
    return float(completion == answer)
'''  # fmt: skip


@pytest.fixture
def bad(workplace):
    workplace.functions(BAD)
    return workplace


@pytest.mark.parametrize(
    ("score", "options", "check", "cause", "fix"),
    [
        ("raises", {}, "raises", r"ValueError: .*scoring_\d+.py, line 5\)", "catch"),
        ("nan", {}, "raises", "baseline blank '' .* nan", "return a number"),
        ("outside", {}, "raises", r"gold answer .* 10, .* \[0, 1\]", "task.options.range"),
        ("dice", {}, "repeat", r"0\.\d+, then 0", "no random numbers"),
        ("aging", {}, "repeat", r"0\.\d+, then 0", "no random numbers"),
        ("ranked", {}, "elsewhere", "gold answer .* 1.0000, then 0.1667", "no other answers"),
        ("wrong", {}, "label", "0.000 .* '#### 5' .* 1.000", '"#### {answer}"'),
        ("never", {}, "part-dead", "never", "gold answer"),
        ("graded", {}, "raises", r"1.5, .* \[0, 1\] \(.*:graded\)", "{graded: [-0.5, 2]}"),
        ("main_only", {"judges": 2}, "repeat", "AssertionError: signals", "task.options.judges"),
    ],
)
def test_a_bad_scoring_function_is_found_before_anything_is_built(
    bad, score, options, check, cause, fix
):
    recipe = parse_recipe(
        {
            "name": "bad",
            "task": {"name": "jsonl", "options": bad.options(score, gold="answer", **options)},
            "model": {"tiny": {}},
            "rl": {"steps": 5},
        }
    )
    with pytest.raises(DataError, match=cause) as error:
        run_recipe(recipe, bad.folder / "run")
    assert fix in error.value.fix
    assert not (bad.folder / "run" / "models").exists()
    assert try_reward(bad.open(score, gold="answer", **options), "load").refusal.check == check
    # And without a run: by evaluating the oracle.
    spec = EvaluationSpec(
        model="oracle", task="jsonl", options=bad.options(score, gold="answer", **options)
    )
    with pytest.raises(DataError, match=cause):
        run_evaluation(spec, Observer(), check_reward)


def test_an_honest_one_passes_in_threads_and_without(bad):
    for judges in (0, 2):
        assert check_reward(bad.open("honest", gold="answer", judges=judges), 10**6) == []


def test_one_that_does_not_come_back_is_stopped(bad, monkeypatch):
    monkeypatch.setattr(cases, "LIMIT", 1.0)
    monkeypatch.setattr(cases, "HOSTILE", ('"' * 40,))
    for judges in (0, 1):
        with pytest.raises(DataError, match=r"hostile text .* 1 seconds"):
            check_reward(bad.open("hangs", gold="answer", judges=judges))


def test_a_slow_one_is_told_with_the_hours_that_the_run_would_take(bad, monkeypatch):
    """By a clock of our own, in which a verdict takes 2 ms."""
    clock, honest = [0.0], scoring_runner.judge_case

    def judged(*given):
        clock[0] += 0.002
        return honest(*given)

    monkeypatch.setattr(scoring_runner, "judge_case", judged)
    monkeypatch.setattr(scoring_runner, "time", SimpleNamespace(perf_counter=lambda: clock[0]))

    def hours(planned, **options):
        return [
            (one.check, round(one.evidence["seconds"] / 3600, 1))
            for one in check_reward(bad.open("honest", gold="answer", **options), planned)
        ]

    assert hours(10_000_000) == [("long", 5.6)]
    assert hours(100_000_000, judges=100) == [("long", 0.6)]
    assert hours(1000) == []


def test_what_pays_for_knowing_nothing_is_told(bad):
    (told,) = check_reward(bad.open("contains", gold="answer"))
    assert (told.check, told.evidence["baseline"]) == ("baseline", "every-gold")
    assert told.evidence["reward"]["mean"] == 1.0
    (told,) = check_reward(bad.open("half", gold="answer"))
    assert (told.check, told.evidence["mean"]) == ("oracle", 0.5)


def test_few_rows_that_pay_a_baseline_like_gold_are_told(bad):
    """So few that no test is sure of it."""
    bad.rows([{"prompt": f"Say {n}", "answer": f"Say {n}"} for n in range(4)])
    found = check_reward(bad.open("honest", gold="answer"))
    echo = [one for one in found if one.evidence.get("baseline") == "echo"]
    assert [(one.check, one.level) for one in echo] == [("baseline", "fatal")]


def test_a_form_that_is_paid_whatever_is_in_it_makes_no_label(bad):
    task = bad.open("wordy", gold="answer")
    assert task.find_label(task.examples("train")) is None
    task = bad.open("wrong", gold="answer")
    assert task.find_label(task.examples("train")).template == "#### {}"


def test_numbers_beyond_ranges_that_were_guessed_are_counted_and_a_penalty_is_known(bad):
    task = bad.open(["noisy", "repetition"], gold="answer").fit_ranges()
    assert task.options.range_of("repetition") == (-0.5, 0)
    assert task.penalties == ["repetition"]
    example = task.examples("train")[0]
    assert task.judge(example, "4444")[1].parts["noisy"] == 0
    assert "noisy: [-0.05, 1]" in task.declare_ranges()[0]
    assert "the nearest end: noisy 1" in task.declare_ranges()[0]
    with pytest.raises(RewardError, match=r"noisy .* \[0, 1\]"):
        JsonlTask(task.options).judge(example, "4444")


def test_no_further_example_is_tried_after_the_budget(bad, monkeypatch):
    task = bad.open("honest", gold="answer")
    tried = []
    monkeypatch.setattr(
        task,
        "judge",
        lambda example, text: tried.append(example.id) or type(task).judge(task, example, text),
    )
    check_reward(task)
    assert len(set(tried)) == cases.TRIED
    monkeypatch.setattr(trial, "BUDGET", -1.0)
    tried.clear()
    check_reward(task)
    assert len(set(tried)) == 1


# -- runs ------------------------------------------------------------------------------------------


def recipe(place, model, **values):
    task = {"name": "jsonl", "options": place.options(**values.pop("options", {}))}
    return parse_recipe(
        {
            "name": "mine",
            "task": task,
            "model": {"name": str(model), "threads": 1},
            "rl": {"steps": 2, "prompts_per_step": 2, "group_size": 2},
            "sampling": {"max_tokens": 8},
            "evaluation": {"every": 1, "limit": 2, "final": ["val"]},
            **values,
        }
    )  # fmt: skip


@pytest.mark.parametrize("model", [{"name": "m"}, {"tiny": {}}])
def test_sft_without_gold_answers_is_refused_before_anything_is_built(workplace, model):
    values = recipe(workplace, "m").model_dump(mode="json", exclude={"model", "rl"})
    stages = {"sft": {"steps": 1}} if "name" in model else {"rl": {"steps": 1}}
    with pytest.raises(RecipeError, match="32 of 32"):
        run_recipe(parse_recipe({**values, "model": model, **stages}), workplace.folder / "run")
    assert not (workplace.folder / "run" / "models").exists()


def test_rl_without_gold_answers_runs_and_its_report_says_that_there_is_no_ceiling(
    workplace, tiny_folder
):
    workplace.functions(
        "def score(completion):\n    return sum(c in '0123456789+' for c in completion[:20]) / 20\n"
    )
    run_recipe(recipe(workplace, tiny_folder), workplace.folder / "run")
    run = run_recipe(recipe(workplace, tiny_folder), workplace.folder / "run", resume=True)
    summary = run.result()["evaluations"]["rl.val.greedy"]
    assert summary["ceiling"] is None
    assert set(summary["baselines"]) == {"blank", "echo"}
    events = messages(run, "task")
    assert len(events) == 1
    assert "no gold answers" in events[0]
    for name in ("report.md", "report.html"):
        text = (run.folder / name).read_text(encoding="utf-8")
        assert "no oracle" in text
    lines = [name for name in ("blank", "echo") if f"best baseline ({name})" in text]
    assert lines == [max(summary["baselines"], key=summary["baselines"].__getitem__)]


def test_a_run_is_not_resumed_under_another_scoring_function(workplace, tiny_folder):
    started = recipe(workplace, tiny_folder, options={"gold": "answer"})
    folder = workplace.folder / "run"
    run = run_recipe(started, folder)
    assert run_recipe(started, folder, resume=True).result() == run.result()
    stored = folder / "evaluations" / "reference.val.blank.json"
    values = json.loads(stored.read_text())
    stored.write_text(json.dumps({**values, "rubric": "another"}))
    with pytest.raises(RunError, match="rubric another"):
        run_recipe(started, folder, resume=True)
    assert RunRecord.read(folder).result() == run.result()


LATER = """
calls = []
def score(completion):
    calls.append(1)
    return 2.0 if len(calls) > {after} else len(completion) % 2
"""


@pytest.mark.parametrize("judges", [0, 2])
def test_a_number_outside_its_range_stops_training_and_leaves_no_answer_out(
    workplace, tiny_folder, judges, monkeypatch
):
    monkeypatch.setattr("plumbline.checks.refusals.check_reward", lambda *_: [])
    # the references of the evaluation and the base model come first
    workplace.functions(LATER.format(after=30))
    with pytest.raises(RewardError, match=r"2, .* \[0, 1\] \(scoring_\d+:score\)") as error:
        run_recipe(
            recipe(workplace, tiny_folder, options={"judges": judges}), workplace.folder / "run"
        )
    assert "task.options.range: {score: [0, 2]}" in error.value.fix
