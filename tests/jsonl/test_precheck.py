"""A verifier that would make a result false is found before anything is trained with it."""

import json
from types import SimpleNamespace

import pytest

from plumbline.errors import DataError, RecipeError, RewardError, RunError
from plumbline.evaluation.command import EvaluationSpec, run_evaluation
from plumbline.recipe import parse_recipe
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Observer
from plumbline.tasks import precheck as module
from plumbline.tasks.jsonl import task as precheck_of_jsonl
from plumbline.tasks.jsonl.task import JsonlTask
from plumbline.training.pipeline import run_recipe

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
    ("score", "options", "message", "advice"),
    [
        (
            "raises",
            {},
            r"judging the baseline blank '' .* raised ValueError: .*scoring_\d+.py, line 5\)",
            "catch it",
        ),
        (
            "nan",
            {},
            "the baseline blank '' .* gets no reward: what nan says is nan",
            "return a number for every text",
        ),
        (
            "outside",
            {},
            r"the gold answer .* what outside says is 10, which is not in \[0, 1\]",
            "task.options.range",
        ),
        ("dice", {}, "the verifier gave 0.* and 0.* the second time", "no random numbers"),
        ("aging", {}, "the verifier gave 0.* the second time", "no random numbers"),
        (
            "ranked",
            {},
            r"the verifier gave 1.0000 to the gold answer .* and 0.1667 the second time",
            "no other answers",
        ),
        (
            "wrong",
            {},
            "looks like a label, not a completion: .* 0.000 .* '#### 5' and the like 1.000",
            '"#### {answer}"',
        ),
        (
            "never",
            {},
            "none of the 8 gold answers tried earns anything, for example the gold answer",
            "what the gold",
        ),
        (
            "graded",
            {},
            r"what graded says is 1.5, which is not in \[0, 1\] \(.*:graded\)",
            "range: {graded: [-0.5, 2]}",
        ),
        (
            "main_only",
            {"judges": 2},
            "raised AssertionError: signals need the main thread",
            "in threads",
        ),
    ],
)
def test_a_bad_scoring_function_is_found_before_anything_is_built(
    bad, score, options, message, advice
):
    recipe = parse_recipe(
        {
            "name": "bad",
            "task": {"name": "jsonl", "options": bad.options(score, gold="answer", **options)},
            "model": {"tiny": {}},
            "rl": {"steps": 5},
        }
    )
    with pytest.raises(DataError, match=message) as error:
        run_recipe(recipe, bad.folder / "run")
    assert advice in error.value.fix
    assert not (bad.folder / "run" / "models").exists()
    # And without a run: by evaluating the oracle.
    spec = EvaluationSpec(
        model="oracle", task="jsonl", options=bad.options(score, gold="answer", **options)
    )
    with pytest.raises(DataError, match=r"second time|tried earns|raised|gets no reward|label"):
        run_evaluation(spec, Observer())


def test_an_honest_one_passes_in_threads_and_without(bad):
    for judges in (0, 2):
        assert bad.open("honest", gold="answer", judges=judges).precheck(10**6) == []


def test_one_that_does_not_come_back_is_stopped(bad, monkeypatch):
    monkeypatch.setattr(module, "LIMIT", 1.0)
    monkeypatch.setattr(module, "HOSTILE", ('"' * 40,))
    for judges in (0, 1):
        with pytest.raises(
            DataError, match=r"the verifier has not judged the hostile text .* after 1 seconds"
        ):
            bad.open("hangs", gold="answer", judges=judges).precheck(0)


def test_a_slow_one_is_told_with_the_hours_that_the_run_would_take(bad, monkeypatch):
    """By a clock of our own, in which a verdict takes 2 ms."""
    clock, honest = [0.0], module.judge_case

    def judged(*given):
        clock[0] += 0.002
        return honest(*given)

    monkeypatch.setattr(module, "judge_case", judged)
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    (told,) = bad.open("honest", gold="answer").precheck(10_000_000)
    assert "so the 10,000,000 verdicts of this run take 5.6 hours" in told
    (told,) = bad.open("honest", gold="answer", judges=100).precheck(100_000_000)
    assert "take 0.6 hours" in told
    assert bad.open("honest", gold="answer").precheck(1000) == []


def test_what_pays_for_knowing_nothing_is_told(bad):
    told = bad.open("contains", gold="answer").precheck(0)
    assert told == [
        (
            "the baseline every-gold earns 1.000, and the gold answers 1.000: such answers will be "
            "learnt"
        )
    ]
    told = bad.open("half", gold="answer").precheck(0)
    assert told == ["the gold answers tried earn 0.500 on average: that is the ceiling, not 1"]


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
    assert "noisy: [-0.05, 1]" in task.declare_ranges()
    assert "the nearest end: noisy 1" in task.declare_ranges()
    with pytest.raises(RewardError, match="which is not in"):
        JsonlTask(task.options).judge(example, "4444")


def test_no_further_example_is_tried_after_the_budget(bad, monkeypatch):
    task = bad.open("honest", gold="answer")
    tried = []
    monkeypatch.setattr(
        task,
        "judge",
        lambda example, text: tried.append(example.id) or type(task).judge(task, example, text),
    )
    task.precheck(0)
    assert len(set(tried)) == module.TRIED
    monkeypatch.setattr(module, "BUDGET", -1.0)
    tried.clear()
    task.precheck(0)
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
    with pytest.raises(
        RecipeError, match="needs gold answers, and 32 of 32 training examples have none"
    ):
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
    events = [event["message"] for event in run.files["events"].rows() if event["kind"] == "task"]
    assert events == ["no gold answers: no ceiling, no oracle, and nothing that SFT could show"]
    for name in ("report.md", "report.html"):
        text = (run.folder / name).read_text(encoding="utf-8")
        assert "there is no oracle, so the ceiling is unknown" in text
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
    with pytest.raises(RunError, match="was begun under rubric another, and the task's is now"):
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
    monkeypatch.setattr(precheck_of_jsonl, "precheck", lambda *_: [])
    # the references of the evaluation and the base model come first
    workplace.functions(LATER.format(after=30))
    with pytest.raises(
        RewardError, match=r"what score says is 2, which is not in \[0, 1\] \(scoring_\d+:score\)"
    ) as error:
        run_recipe(
            recipe(workplace, tiny_folder, options={"judges": judges}), workplace.folder / "run"
        )
    assert "task.options.range: {score: [0, 2]}" in error.value.fix
