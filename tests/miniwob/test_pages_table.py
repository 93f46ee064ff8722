"""experiments/miniwob_pages: what stands in its tables."""

from experiments.miniwob_pages import written
from plumbline.evaluation.evaluate import evaluate_completions, references
from plumbline.runs.evaluations import EvaluationKey
from tests.miniwob.test_task import opened


def test_pages_have_the_share_of_their_episodes_that_succeed_over_all_runs(tmp_path):
    task = opened(tmp_path / "records")
    examples = task.examples("test")
    half = [one.gold if number % 2 else "" for number, one in enumerate(examples)]
    found = {
        EvaluationKey(stage, "test", "greedy"): evaluate_completions(task, examples, texts, source=stage, split="test")
        for stage, texts in {"base": [""] * 4, "sft": half, "rl": [one.gold for one in examples]}.items()
    }
    beside = {EvaluationKey("reference", "test", name): one for name, one in references(task, examples, "test").items()}
    worse = {**found, EvaluationKey("rl", "test", "greedy"): found[EvaluationKey("base", "test", "greedy")]}
    text = written([found | beside, worse], "runs/a runs/b")
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines()}
    assert rows["click-button"] == "| click-button | 4 | 0.50 constant | 0.00 | 0.50 | 0.50 |"
    assert rows["GRPO"].startswith("| GRPO | 8 | 0.500 [")
    assert rows["oracle"].startswith("| oracle | 4 | 1.000 [")
