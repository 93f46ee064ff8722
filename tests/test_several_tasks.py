"""Several tasks in one run: each has its share of every step, and figures, floors and ceilings of
its own."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from plumbline.errors import DataError, RecipeError, TrainingStopped
from plumbline.evaluation.command import open_task_for
from plumbline.evaluation.compared_runs import compare_paths
from plumbline.recipe import find_recipe, load_recipe, parse_recipe, task_section
from plumbline.records import (
    Example,
    Group,
    Outcome,
    Rollout,
    Sampling,
    Score,
    Trajectory,
    Transition,
    Verdict,
)
from plumbline.reports.run_comparison import sweep_table
from plumbline.reports.verdict import run_verdict
from plumbline.reports.view import RunView
from plumbline.rollouts.collect import collect
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.metadata import ModelMetadata
from plumbline.runs.run import Run
from plumbline.tasks import open_task
from plumbline.tasks.task_data import task_shares
from plumbline.training.pipeline import run_recipe
from plumbline.training.prompts import Source, collect_step
from plumbline.training.rl import _rewards
from plumbline.training.stage import Stage
from plumbline.training.sweep import run_sweep
from tests.reports.building import RL, SFT, evaluation
from tests.toy import ToyTask
from tests.training.toy_runs import messages, toy_recipe

TASKS = {
    "letters": {"name": "tests.toy:open_toy", "options": {"size": 8}, "weight": 3},
    "words": {"name": "tests.toy:open_toy", "options": {"size": 5}},
}
VALUES = {
    "name": "several",
    "seed": 3,
    "tasks": TASKS,
    "model": {
        "threads": 1,
        "tiny": {
            "hidden": 32,
            "layers": 2,
            "heads": 2,
            "vocabulary": 300,
            "context": 128,
            "steps": 4,
        },
    },
    "sft": {"steps": 4, "batch_size": 4, "optimiser": {"learning_rate": 1e-3}},
    "rl": {
        "steps": 4,
        "prompts_per_step": 4,
        "group_size": 4,
        "optimiser": {"learning_rate": 1e-3},
    },
    "sampling": {"max_tokens": 8},
    "evaluation": {"every": 2, "limit": 4, "final": ["val"]},
    "run": {"checkpoint_every": 2},
}


# -- the source ------------------------------------------------------------------------------------


def shares_of(weights, sizes, mix):
    tasks = {name: SimpleNamespace(weight=weight) for name, weight in weights.items()}
    return task_shares(SimpleNamespace(tasks=tasks, mix=mix), sizes)


def source(sizes: dict[str, int], weights: dict[str, float], mix="tasks") -> Source:
    tasks = {name: ToyTask({"size": size}) for name, size in sizes.items()}
    examples = {name: task.examples("train") for name, task in tasks.items()}
    return Source(tasks=tasks, examples=examples, shares=shares_of(weights, sizes, mix))


@pytest.mark.parametrize(
    ("weights", "count"),
    [
        ((1, 1), 6),
        ((3, 1), 4),
        ((1, 2), 5),
        ((5, 2, 1), 4),
        ((1, 1, 1), 7),
        ((20, 1, 1), 3),
        ((0.1, 0.2, 0.7), 10),
    ],
)
def test_every_step_has_each_tasks_share_up_to_a_prompt_and_many_steps_have_it_closely(
    weights, count
):
    names = [f"t{index}" for index in range(len(weights))]
    made = source(dict.fromkeys(names, 30), dict(zip(names, weights, strict=True)))
    dealt = [made.deal(count, step, "rl", seed=1) for step in range(200)]
    counts = np.array([[len(indices) for indices in each.values()] for each in dealt])
    wanted = count * np.array(weights) / sum(weights)
    assert (counts.sum(axis=1) == count).all()
    assert (np.abs(counts - wanted) < 1 + 1e-9).all()
    drift = np.abs(np.cumsum(counts, axis=0) - wanted * np.arange(1, 201)[:, None])
    assert drift.max() < 3, "prompts; chance alone would be about 5 off"


def test_every_example_of_a_task_comes_once_before_any_comes_again_whatever_the_others_size():
    made = source({"small": 5, "large": 23}, {"small": 1, "large": 2})
    drawn = [made.draw(4, step, "rl", seed=2) for step in range(40)]
    for name, size in (("small", 5), ("large", 23)):
        ids = [example.id for prompts in drawn for example in prompts[name]]
        epochs = [ids[start : start + size] for start in range(0, len(ids) - size + 1, size)]
        assert len(epochs) > 1
        assert all(len(set(epoch)) == size for epoch in epochs)
        assert epochs[0] != epochs[1]
        assert made.epochs(4, 40, "rl", seed=2)[f"train/epoch/{name}"] == pytest.approx(
            len(ids) / size
        )


def test_a_step_needs_no_step_before_it_and_seeds_and_stages_draw_anew():
    made = source({"a": 9, "b": 9}, {"a": 1, "b": 1})
    assert made.deal(5, 17, "rl", seed=0) == made.deal(5, 17, "rl", seed=0)
    assert made.deal(5, 17, "rl", seed=0) != made.deal(5, 17, "rl", seed=1)
    assert made.deal(5, 17, "rl", seed=0) != made.deal(5, 17, "sft", seed=0)


def test_a_weight_weighs_its_task_or_each_of_its_examples():
    sizes = {"a": 30, "b": 10}
    assert shares_of({"a": 1, "b": 1}, sizes, "tasks") == {"a": 0.5, "b": 0.5}
    assert shares_of({"a": 1, "b": 1}, sizes, "examples") == {"a": 0.75, "b": 0.25}
    assert shares_of({"a": 1, "b": 3}, sizes, "examples") == {"a": 0.5, "b": 0.5}


def test_one_task_is_the_source_of_one_and_has_no_metric_of_its_own():
    task = ToyTask({"size": 6})
    made = Source.of(task, task.examples("train"))
    assert [len(made.draw(4, step, "rl", 0)[""]) for step in range(3)] == [4, 4, 4]
    assert made.epochs(4, 3, "rl", 0) == {}


# -- the recipe ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": {"name": "forms"}}, "give either task"),
        ({"tasks": {"only": {"name": "forms"}}}, "a single one"),
        ({"tasks": {"a.b": {"name": "forms"}, "c": {}}}, "should match pattern"),
        ({"tasks": {"a": {"weight": 0}, "b": {}}}, "tasks.a.weight"),
        ({"tasks": {"a": {"wieght": 1}, "b": {}}}, "unknown key tasks.a.wieght"),
        ({"tasks": None, "mix": "examples"}, "there is one"),
        ({"model": {"tiny": {"task_options": {"seed": 7}}}}, "model.tiny.task_options has seed"),
        ({"model": {"tiny": {"task_options": {"words": 7}}}}, "is no mapping"),
    ],
)
def test_what_a_recipe_of_several_tasks_cannot_say(change, message):
    with pytest.raises(RecipeError, match=message):
        parse_recipe({**VALUES, **change})


def test_a_recipe_of_several_tasks_is_read_back_as_it_was_written(tmp_path):
    recipe = parse_recipe(VALUES)
    (tmp_path / "again.yaml").write_text(recipe.to_yaml())
    assert load_recipe(tmp_path / "again.yaml") == recipe
    assert list(recipe.each_task) == ["letters", "words"]
    assert parse_recipe({"name": "one", "model": {"name": "x"}}).each_task[""].name == "jsonl"


def test_the_example_of_the_guide_is_a_recipe():
    page = (Path(__file__).parents[1] / "docs" / "your-task.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```text\n(tasks:.*?)```", page, flags=re.DOTALL)
    recipe = parse_recipe({"name": "guide", "model": {"name": "x"}, **yaml.safe_load(block)})
    weights = {name: one.weight for name, one in recipe.tasks.items()}
    made = source(dict.fromkeys(weights, 40), weights, recipe.mix)
    assert set(weights) == {"extraction", "tickets"}
    assert {name: len(found) for name, found in made.deal(6, 0, "rl", 0).items()} == {
        "extraction": 2,
        "tickets": 4,
    }


def test_an_option_that_a_task_does_not_have_is_said_with_the_tasks_name(tmp_path):
    tasks = {"shop": {"name": "commerce", "options": {"ordres": 5}}, "forms": {"name": "forms"}}
    with pytest.raises(RecipeError, match=r"tasks\.shop: .* task\.options\.ordres"):
        run_recipe(parse_recipe({**VALUES, "tasks": tasks}), tmp_path / "run")


# -- a run -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Run:
    return run_recipe(parse_recipe(VALUES), tmp_path_factory.mktemp("several") / "run")


def from_base(finished: Run, **values) -> dict:
    """The recipe above with other values, from the tiny model that the finished run has made."""
    model = {"name": str(finished.model("base")), "threads": 1}
    evaluation = {"every": 0, "final": ["val"], "untrained": False}
    return {**VALUES, "model": model, "evaluation": evaluation, "sft": None, **values}


def test_rewards_parts_evaluations_and_epochs_are_kept_by_task(finished):
    rows = [row for row in finished.rows("rl") if row["step"]]
    for row in rows:
        means = [row["train/reward/letters"], row["train/reward/words"]]
        assert row["train/reward"] == pytest.approx(np.mean(means)), (
            "the mean of the tasks' means, not of rollouts"
        )
        assert {"train/reward/letters/any", "train/reward/words/letters"} <= row.keys()
        assert "train/reward/any" not in row
    assert rows[-1]["train/epoch/letters"] == pytest.approx(4 * 3 / 8)
    assert rows[-1]["train/epoch/words"] == pytest.approx(4 / 5)
    assert rows[-1]["train/epoch"] == pytest.approx(16 / 13)
    evaluated = finished.rows("rl")[0]
    both = [evaluated["eval/letters"], evaluated["eval/words"]]
    assert evaluated["eval/mean_reward"] == pytest.approx(np.mean(both))
    assert {
        "eval/words/even",
        "eval/words/sampled_mean_reward",
        "eval/sampled_mean_reward",
    } <= evaluated.keys()
    assert (
        evaluated["eval/words/mean_reward_low"]
        <= evaluated["eval/words"]
        <= evaluated["eval/words/mean_reward_high"]
    )
    assert finished.rows("sft")[-1]["train/epoch/words"] == pytest.approx(4 / 5)
    assert finished.rows("base")[-1]["train/epoch/letters"] == pytest.approx(4 * 12 / 8)
    owners = [row["task"] for row in finished.files["samples"].rows() if row["step"] == 1]
    assert owners == ["letters"] * 12 + ["words"] * 4


def test_every_task_has_evaluations_with_a_floor_and_a_ceiling(finished):
    names = {str(key) for key in finished.evaluations()}
    assert {
        "rl.words.val.greedy",
        "rl@000002.letters.val.sampled",
        "reference.words.val.oracle",
    } <= names
    assert {EvaluationKey.parse(name) for name in names} == set(finished.evaluations())
    sizes = {
        key.task: len(found.rows)
        for key, found in finished.evaluations().items()
        if key.step is None
    }
    assert sizes == {"letters": 8, "words": 5}
    summaries = (finished.result() or {})["evaluations"]
    assert {"floor", "ceiling", "skill"} <= summaries["rl.words.val.greedy"].keys()


def test_the_report_speaks_of_every_task(finished):
    text = (finished.folder / "report.md").read_text()
    assert "Of 2 tasks" in text
    assert "# Task: letters" in text
    assert "the tasks' means" in text
    page = (finished.folder / "report.html").read_text()
    for anchor in (
        "results-letters",
        "results-words",
        "samples-words",
        "curves-letters",
        "curves",
        "top",
    ):
        assert page.count(f'<section id="{anchor}">') == 1, anchor
    assert (finished.folder / "tables" / "words" / "parts.csv").is_file()
    assert (finished.folder / "tables" / "tasks.csv").read_text().count("\n") == 4


def test_a_view_of_one_task_has_its_own_records_only(finished):
    _, words = RunView(finished.record()).tasks
    assert {len(found.rows) for key, found in words.evaluations.items() if key.step is None} == {5}
    assert {row["task"] for row in words.samples} == {"words"}
    row = words.metrics["rl"][1]
    assert row["train/reward"] == finished.rows("rl")[1]["train/reward/words"]
    assert "train/reward/any" in row
    assert not [key for key in row if "letters/" in key or "words" in key]


def test_two_runs_are_compared_task_by_task_and_a_file_finds_its_own(finished):
    compared = compare_paths(finished.folder, finished.folder).pairings
    asked = {f"{task} val {mode}" for task in TASKS for mode in ("greedy", "sampled")}
    assert {pairing.asked for pairing in compared} == asked
    one = finished.folder / "evaluations" / "sft.words.val.greedy.json"
    (pairing,) = compare_paths(one, finished.folder).pairings
    assert pairing.paired.difference.n == 5


def test_the_model_knows_its_tasks_and_asks_which_one_is_meant(finished):
    model = str(finished.model("rl"))
    card = ModelMetadata.read(model)
    assert card is not None
    assert card.task == ""
    assert card.tasks["words"] == {
        "name": "tests.toy:open_toy",
        "options": TASKS["words"]["options"],
    }
    assert len(card.trained_on) == 8, "the two toys ask the same"
    assert len(open_task_for(model, "words", {}, None, lambda *_: None).examples("val")) == 5
    assert (
        len(open_task_for(model, "letters", {"size": 3}, None, lambda *_: None).examples("val"))
        == 3
    )
    for name in ("", "tests.toy:open_toy", "leters"):
        with pytest.raises(RecipeError, match=r"--task .* letters, words"):
            open_task_for(model, name, {}, None, lambda *_: None)


def test_a_run_that_was_stopped_draws_what_the_whole_one_drew(finished, tmp_path, monkeypatch):
    calls = []

    def stop_once(*_):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return ()

    with monkeypatch.context() as broken:
        broken.setattr(Stage, "spend", stop_once)
        with pytest.raises(KeyboardInterrupt):
            run_recipe(parse_recipe(VALUES), tmp_path / "run")
    # A browser's verdicts would take minutes again.
    monkeypatch.setattr("plumbline.training.pipeline.evaluate_reference", None)
    again = run_recipe(parse_recipe(VALUES), tmp_path / "run", resume=True)
    for name in ("metrics.jsonl", "samples.jsonl", "models/rl/model.safetensors"):
        assert (again.folder / name).read_bytes() == (finished.folder / name).read_bytes(), name


def test_what_is_held_out_of_one_task_is_not_trained_on_for_another(tmp_path):
    tasks = {"a": {"name": "tests.toy:open_toy"}, "b": {"name": "tests.test_several_tasks:swapped"}}
    with pytest.raises(DataError, match=r"val .* in train"):
        run_recipe(parse_recipe({**VALUES, "tasks": tasks}), tmp_path / "run")


def test_sft_shows_the_demonstrations_of_the_tasks_that_it_names(finished, tmp_path):
    values = from_base(
        finished, sft={**VALUES["sft"], "steps": 1, "batch_size": 1, "tasks": ["words"]}, rl=None
    )
    run = run_recipe(parse_recipe(values), tmp_path / "run")
    assert run.rows("sft")[-1]["train/epoch"] == pytest.approx(1 / 5), "one of the five words"
    with pytest.raises(RecipeError, match=r"sft\.tasks .* wrds, .* letters, words"):
        parse_recipe({**values, "sft": {**values["sft"], "tasks": ["wrds"]}})


def leaking(count: int, model=None, **evaluation) -> dict:
    """A run of SFT whose tiny model's records begin with so many prompts that `val` holds out."""
    tiny = {**VALUES["model"]["tiny"], "steps": 1, "task_options": {"leaks": count}}
    return {
        **VALUES,
        "tasks": None,
        "task": {"name": "tests.test_several_tasks:leaky", "options": {"size": 8}},
        "model": model or {"threads": 1, "tiny": tiny},
        "sft": {"steps": 1, "batch_size": 4},
        "rl": None,
        "evaluation": {"every": 0, "final": ["val"], **evaluation},
    }


def left_out(run: Run) -> list[str]:
    return messages(run, "left_out")


def test_a_tiny_model_is_not_pretrained_on_what_is_held_out(tmp_path):
    """The demos of forms with one field were: 136 of 200 test prompts are also among the records of
    another seed."""
    run = run_recipe(parse_recipe(leaking(3)), tmp_path / "run")
    (told,) = left_out(run)
    assert told.startswith("3 of 8 prompts ")
    card = ModelMetadata.read(run.model("base"))
    assert card is not None
    assert card.trained_on == {
        example.fingerprint() for example in ToyTask({"size": 8}).examples("train")[3:]
    }
    none = run_recipe(parse_recipe(leaking(0, final_limit=3)), tmp_path / "none")
    assert left_out(none) == []
    assert {len(found.rows) for found in run.evaluations().values()} == {8}
    assert {len(found.rows) for found in none.evaluations().values()} == {3}, (
        "no more than were asked for at the ends"
    )
    with pytest.raises(DataError, match=r"all 8 prompts .* pretraining"):
        run_recipe(parse_recipe(leaking(8)), tmp_path / "all")


def test_a_run_does_not_begin_from_a_model_that_was_trained_on_what_it_holds_out(tmp_path):
    run = run_recipe(parse_recipe(leaking(3, split="test", final=["test"])), tmp_path / "run")
    assert left_out(run) == [], "that run evaluates on another split"
    again = leaking(0, {"name": str(run.model("base")), "threads": 1})
    with pytest.raises(DataError, match=r"base .* 3 of the 8 .* val-0\b"):
        run_recipe(parse_recipe(again), tmp_path / "again")


def test_a_verifier_that_breaks_stops_the_run_however_small_its_tasks_share_is(finished, tmp_path):
    tasks = {
        **TASKS,
        "words": {
            **TASKS["words"],
            "options": {"size": 5, "breaks": [f"train-{i}" for i in range(5)]},
        },
    }
    tasks["letters"] = {**TASKS["letters"], "weight": 7}
    values = from_base(finished, tasks=tasks, rl={**VALUES["rl"], "prompts_per_step": 8})
    with pytest.raises(TrainingStopped, match="4 of 4 completions"):
        run_recipe(parse_recipe(values), tmp_path / "run")


def test_the_demo_of_extraction_and_forms_runs_at_a_tiny_size(tmp_path):
    small = {
        "tasks.extraction.options": (
            "{orders: 60, extraction: 24, instructions: short, keys: [sentiment]}"
        ),
        "tasks.forms.options.records": 12,
        "model.tiny": "{hidden: 32, layers: 1, heads: 2, vocabulary: 500, context: 320, steps: 2, "
        "batch_size: 2, "
        "task_options: {extraction: {seed: 7}, forms: {seed: 7}}}",
        "sft.steps": 2,
        "rl": "{steps: 2, prompts_per_step: 2, group_size: 2}",
        "sampling.max_tokens": 8,
        "evaluation": "{every: 0, limit: 2, final: [test], sampled: False}",
    }
    recipe = load_recipe("mixed-demo", [f"{key}={value}" for key, value in small.items()])
    run_recipe(recipe, tmp_path / "run")
    # the evaluations that it finds are of two rubrics
    run = run_recipe(recipe, tmp_path / "run", resume=True)
    found = run.evaluations()
    rubrics = {key.task: evaluation.rubric.partition("/")[0] for key, evaluation in found.items()}
    assert set(rubrics) == {"extraction", "forms"}
    assert len(set(rubrics.values())) == 2
    assert found[EvaluationKey("reference", "test", "oracle", task="forms")].mean_reward == 1.0
    assert found[EvaluationKey("reference", "test", "oracle", task="extraction")].mean_reward == 1.0
    last = run.rows("rl")[-1]
    drawn = {
        name: last[f"train/epoch/{name}"] * len(_records(run, name))
        for name in ("extraction", "forms")
    }
    assert drawn["extraction"] + drawn["forms"] == pytest.approx(4)
    assert drawn["forms"] > drawn["extraction"] > 0
    assert len(
        open_task_for(str(run.model("rl")), "extraction", {}, None, lambda *_: None).examples(
            "test"
        )
    ) == len(found[EvaluationKey("rl", "test", "greedy", task="extraction")].rows)


def _records(run: Run, name: str):
    section = run.recipe.each_task[name]
    return open_task(section.name, section.options, run.folder / "data" / name).examples("train")


def test_a_sweep_has_figures_for_each_task(finished, tmp_path):
    values = from_base(
        finished, rl={**VALUES["rl"], "steps": 1}, evaluation={"every": 0, "final": ["val"]}
    )
    rows = run_sweep(
        {"only": parse_recipe(values)}, tmp_path / "sweep", resume=False, observers=lambda *_: []
    )
    assert {name for name, value in rows[0].items() if isinstance(value, dict)} == {
        f"{task} {mode}" for task in TASKS for mode in ("greedy", "sampled")
    }
    assert sweep_table(rows).row_count == 4


# -- by task ---------------------------------------------------------------------------------------


def group(task: str, parts: dict[str, float], copies: int = 2) -> Group:
    trajectory = Trajectory(
        prompt=np.array([1]),
        transitions=(
            Transition(
                positions=np.array([0]), tokens=np.array([1]), logprobs=np.array([-1.0], np.float32)
            ),
        ),
        text="a",
        sampling=Sampling(),
        finish="stop",
    )
    score = Score(total=float(np.mean(list(parts.values()))), parts=parts)
    rollout = Rollout(turns=(trajectory,), verdict=Verdict(Outcome(), score))
    return Group(example=Example(id="x", messages=[]), rollouts=(rollout,) * copies, task=task)


def test_rewards_of_two_rubrics_are_averaged_as_means_and_not_at_all_where_a_task_is_missing():
    many, few = group("a", {"x": 1.0}, 6), group("b", {"y": 0.0}, 2)
    assert _rewards([many, few], ["a", "b"]) == {
        "train/reward/a": 1.0,
        "train/reward/a/x": 1.0,
        "train/reward/b": 0.0,
        "train/reward/b/y": 0.0,
        "train/reward": 0.5,
    }
    alone = _rewards([many], ["a", "b"])
    assert alone["train/reward/b"] is None
    assert alone["train/reward"] is None
    assert _rewards([group("", {"x": 1.0})], [""]) == {"train/reward": 1.0, "train/reward/x": 1.0}


def test_tasks_are_drawn_in_one_call_and_each_as_if_it_were_alone(tiny_policy, monkeypatch):
    """Tasks that ask the same have answers of their own."""
    made, recipe = source({"a": 1, "b": 1}, {"a": 1, "b": 1}), toy_recipe(steps=1)
    calls, draw = [], tiny_policy.sample
    monkeypatch.setattr(
        tiny_policy, "sample", lambda requests: (calls.append(len(requests)), draw(requests))[1]
    )
    together = first, second = collect_step(tiny_policy, made, recipe, 0)
    assert ((first.task, second.task), first.example.id) == (("a", "b"), second.example.id)
    assert any(
        one.text != other.text for one, other in zip(first.rollouts, second.rollouts, strict=True)
    )
    assert calls == [sum(len(one.rollouts) for one in together)]
    for one in together:
        how = {"copies": len(one.rollouts), "sampling": recipe.sampling}
        key = (recipe.seed, "rl", "sample", 0, one.task)
        (alone,) = collect(tiny_policy, made.tasks[one.task], [one.example], key=key, **how)
        assert [rollout.text for rollout in alone.rollouts] == [
            rollout.text for rollout in one.rollouts
        ]


def test_a_task_of_a_recipe_is_named_by_its_path_and_its_name():
    mixed, forms = find_recipe("mixed-demo"), find_recipe("forms-demo")
    options = task_section(f"{mixed}:forms", ["task.options.records=9"]).options
    assert options["records"] == 9
    assert options["max_fields"] == 2
    with pytest.raises(RecipeError, match="has 2 tasks"):
        task_section(str(mixed), [])
    with pytest.raises(RecipeError, match="has one task"):
        task_section(f"{forms}:forms", [])


def test_the_verdict_names_a_task_that_fell(tmp_path):
    recipe = parse_recipe({**VALUES, "evaluation": {"final": ["test"]}})
    with Run.start(recipe, tmp_path / "run") as run:
        for task, levels in {"letters": (SFT, RL), "words": (RL, SFT)}.items():
            for stage, level in zip(("sft", "rl"), levels, strict=True):
                made = evaluation(stage, "test", "greedy", level, 80, 0)
                run.evaluation(EvaluationKey(stage, "test", "greedy", task=task), made)
        run.finish({"status": "finished"})
    said = run_verdict(RunView(run.record()))
    assert said.tone == "fall"
    assert said.sentence.startswith("Of 2 tasks words fell, letters rose. ")
    assert "words: GRPO lowered" in said.sentence


def leaky(options, folder, progress):
    """The toy task; its first `leaks` training examples are those of val."""
    task = ToyTask(options)
    examples, leaks = task.examples, options.get("leaks", 0)
    task.examples = lambda split: [
        *examples("val" if split == "train" else split)[:leaks],
        *examples(split)[leaks:],
    ]
    return task


def swapped(options, folder, progress):
    """A task that trains on what the toy task holds out."""
    task = ToyTask(options)
    examples = task.examples
    task.examples = lambda split: examples({"train": "val", "val": "test"}.get(split, split))
    return task
