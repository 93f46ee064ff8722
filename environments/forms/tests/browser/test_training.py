"""The one RL loop with a browser as its verifier."""

import threading

import pytest

from plumbline.recipe import parse_recipe
from plumbline.training.pipeline import run_recipe

RECIPE = {
    "name": "browser",
    "task": {
        "name": "forms",
        "options": {
            "forms": ["meeting-room", "change-ticket", "thesis-defence"],
            "records": 10,
            "max_fields": 2,
            "instructions": "short",
        },
    },
    "model": {
        "threads": 1,
        "tiny": {
            "hidden": 32,
            "layers": 1,
            "heads": 2,
            "vocabulary": 300,
            "context": 512,
            "steps": 2,
        },
    },
    "sft": {"steps": 1, "batch_size": 2},
    "rl": {"steps": 1, "prompts_per_step": 2, "group_size": 3},
    "sampling": {"max_tokens": 12},
    "evaluation": {"every": 0, "final": ["val"], "further": False, "sampled": False, "limit": 2},
}


@pytest.mark.parametrize("executor", ["browser", "in-page"])
def test_rewards_come_from_a_browser_while_the_model_samples(executor, tmp_path, monkeypatch):
    from plumbline_forms.executors.browser import BrowserExecutor

    seen = []
    original = BrowserExecutor.run

    def run(self, case, plans):
        results = original(self, case, plans)
        seen.append((threading.current_thread().name, len(plans), results))
        return results

    monkeypatch.setattr(BrowserExecutor, "run", run)
    task = {"name": "forms", "options": {**RECIPE["task"]["options"], "executor": executor}}
    finished = run_recipe(parse_recipe({**RECIPE, "task": task}), tmp_path / "run")
    (row,) = [row for row in finished.rows("rl") if "train/reward" in row]
    assert row["train/frac_failed"] == 0
    assert all(name.startswith("judge-") for name, _, _ in seen)
    assert sum(count for _, count, _ in seen) >= 2 * 3
    # An untrained model sends nothing; the oracle, which stands beside its evaluation, sends
    # everything.
    evaluations = {str(key): one for key, one in finished.evaluations().items()}
    assert evaluations["reference.val.oracle"].rewards().min() == 1.0
