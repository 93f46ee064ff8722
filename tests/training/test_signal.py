"""Steps with a signal: groups that are drawn again, prompts that are left out before RL, and the
order of the rest."""

import hashlib
import json
import re
import sys
from dataclasses import replace
from itertools import islice

import pytest

from plumbline.algorithms.algorithm import has_signal
from plumbline.errors import DataError, RecipeError
from plumbline.recipe.sections import NO_RESULT
from plumbline.records import Outcome
from plumbline.runs.run import Run
from plumbline.seeds import generator
from plumbline.training import prompts
from plumbline.training.optimiser import Optimiser
from plumbline.training.prompts import Source, collect_step, resample
from plumbline.training.rl import resample_metrics, train_rl
from plumbline.training.stage import Stage
from tests.toy import RUBRIC, ToyTask
from tests.training.toy_runs import fresh_policy, toy_recipe

SETTINGS = {"steps": 4, "prompts_per_step": 4, "group_size": 2, "checkpoint_every": 1}


class SomeSilent(ToyTask):
    """Of every three prompts the first earns 0, the second 1 and only the third what its text
    does."""

    def judge(self, example, completion):
        kind = int(example.id.rpartition("-")[2]) % 3
        if kind == 2:
            share = (sum(map(ord, completion)) % 7) / 6
            return Outcome(how="strict"), RUBRIC.score({"letters": share, "any": share})
        return Outcome(how="strict"), RUBRIC.score({"letters": float(kind), "any": float(kind)})


def train(model, folder, resume=False, task=None, policy=None, **settings):
    task = task or SomeSilent({"size": 24})
    with Run.start(toy_recipe(**{**SETTINGS, **settings}), folder, resume=resume) as run:
        train_rl(policy or fresh_policy(model), Source.of(task, task.examples("train")), run)
    return run


def two_tasks() -> Source:
    tasks = {"b": ToyTask({"size": 9, "reward": "constant"}), "a": SomeSilent({"size": 24})}
    return Source(
        tasks=tasks,
        examples={n: t.examples("train") for n, t in tasks.items()},
        shares={"a": 0.5, "b": 0.5},
    )


# -- dynamic sampling ------------------------------------------------------------------------------


def test_silent_groups_are_replaced_in_their_places_and_nothing_is_asked_twice(
    tiny_policy, monkeypatch
):
    source, recipe = two_tasks(), toy_recipe(**{**SETTINGS, "prompts_per_step": 8, "resample": 3})
    keys, asked, drawn, draw = [], [], [], prompts.collect_parts

    def watch(sampler, parts, **rest):
        keys.extend(part.key for part in parts)
        asked.extend((part.name, example.id) for part in parts for example in part.examples)
        drawn.extend(groups := draw(sampler, parts, **rest))
        return groups

    monkeypatch.setattr(prompts, "collect_parts", watch)
    for step in range(3):
        asked.clear(), drawn.clear()
        first = collect_step(tiny_policy, source, recipe, step)
        groups, found = resample(tiny_policy, source, recipe, step, first)
        assert [group.task for group in groups] == [group.task for group in first], (
            "each task keeps its share"
        )
        pairs = list(zip(first, groups, strict=True))
        assert all(
            before is after
            for before, after in pairs
            if has_signal(before.rewards()) or before.task == "b"
        )
        replaced = [after for before, after in pairs if before is not after]
        assert (
            replaced
            == [group for group in drawn[8:] if has_signal(group.rewards())][: len(replaced)]
        ), "in order"
        assert len(replaced) > 1
        assert found == drawn
        assert len(found) == len(asked) <= 8 * (1 + 3)
        of_a, of_b = ([each for name, each in asked if name == task] for task in "ab")
        assert len(set(of_a)) == len(of_a), "a prompt is not drawn twice while there are others"
        assert len(of_b) == 4 * (1 + 3)
        assert set(of_b[:9]) == {f"train-{index}" for index in range(9)}, (
            "all others come before any comes again"
        )
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys if key[2] == "sample"} == {5}


def test_no_more_is_drawn_once_every_group_has_a_signal(tiny_policy):
    task, recipe = SomeSilent({"size": 24}), toy_recipe(**SETTINGS, resample=16)
    source = Source.of(task, task.examples("train"))
    groups, _ = resample(
        tiny_policy, source, recipe, 0, collect_step(tiny_policy, source, recipe, 0)
    )
    assert all(has_signal(group.rewards()) for group in groups)
    again, drawn = resample(tiny_policy, source, recipe, 0, groups)
    assert again == groups == drawn
    figures = resample_metrics(drawn, source.tasks)
    assert (figures["train/prompts_drawn"], figures["train/frac_zero_std_drawn"]) == (4, 0.0)


@pytest.mark.parametrize("off_policy_steps", [0, 1])
def test_figures_are_of_what_was_drawn_and_of_what_is_trained_on_and_a_resume_is_the_same(
    tiny_folder, tmp_path, monkeypatch, off_policy_steps
):
    settings = {
        "off_policy_steps": off_policy_steps,
        **({"filter": {"samples": 2}, "order": "given"} if off_policy_steps else {}),
    }
    run = train(tiny_folder, tmp_path / "whole", resample=2, **settings)
    without = train(tiny_folder, tmp_path / "without", **settings)
    for row, plain in zip(run.rows("rl"), without.rows("rl"), strict=True):
        silent = row["train/frac_zero_std_drawn"] * row["train/prompts_drawn"]
        assert silent == pytest.approx(round(silent))
        assert row["train/frac_reward_zero_std"] < row["train/frac_zero_std_drawn"]
        assert 4 < row["train/prompts_drawn"] <= 4 * 3
        assert row.keys() - plain.keys() == {
            "train/prompts_drawn",
            "train/frac_zero_std_drawn",
            "train/reward_drawn",
        }
    first, plain = run.rows("rl")[0], without.rows("rl")[0]
    assert len({first["train/reward"], first["train/reward_drawn"], plain["train/reward"]}) == 3
    timings, calls = Run.timings, iter(range(9))
    monkeypatch.setattr(
        Run, "timings", lambda *given: sys.exit() if next(calls) == 2 else timings(*given)
    )
    with pytest.raises(SystemExit):
        train(tiny_folder, tmp_path / "cut", resample=2, **settings)
    monkeypatch.setattr(Run, "timings", timings)
    again = train(tiny_folder, tmp_path / "cut", resume=True, resample=2, **settings)
    assert again.rows("rl") == run.rows("rl")
    assert again.files["samples"].rows() == run.files["samples"].rows()


# -- the filter ------------------------------------------------------------------------------------

BETWEEN = {"samples": 4, "least": 0.05, "most": 0.95}


def measured(run):
    return [json.loads(line) for line in (run.folder / "difficulty.jsonl").read_text().splitlines()]


def test_the_filter_keeps_what_it_says_and_goes_on_in_a_file_that_was_cut(
    tiny_folder, tmp_path, monkeypatch
):
    run = train(tiny_folder, tmp_path / "run", filter=BETWEEN, seconds=1e6)
    rows = measured(run)
    assert len(rows) == 24
    assert all(row["samples"] == 4 and row["seconds"] > 0 for row in rows)
    kept = {row["id"] for row in rows if 0.05 <= row["mean"] <= 0.95}
    assert {row["id"] for row in run.files["samples"].rows()} <= kept
    (said,) = [e["message"] for e in run.files["events"].rows() if "kept" in e["message"]]
    assert said.startswith(f"{len(kept)} of 24 prompts kept (")
    assert re.search(r"\(mean reward 0\.\d+; 8 .*, 8 .*\)$", said)
    assert run.rows("rl")[-1]["train/epoch"] == pytest.approx(4 * 4 / len(kept))

    lines = (run.folder / "difficulty.jsonl").read_text().splitlines(keepends=True)
    asked, honest = [], prompts.collect_parts

    def watch(sampler, parts, **rest):
        asked.extend(
            example.id for part in parts if "filter" in part.key for example in part.examples
        )
        return honest(sampler, parts, **rest)

    monkeypatch.setattr(prompts, "collect_parts", watch)
    with Run.start(run.recipe, tmp_path / "again"):
        (tmp_path / "again" / "difficulty.jsonl").write_text("".join(lines[:9]) + lines[9][:20])
    again = train(tiny_folder, tmp_path / "again", resume=True, filter=BETWEEN, seconds=1e6)
    assert asked == [row["id"] for row in rows[9:]], "what is there is not asked again"
    timeless = [[{**row, "seconds": 0} for row in measured(each)] for each in (run, again)]
    assert timeless[0] == timeless[1]
    assert again.files["samples"].rows() == run.files["samples"].rows()
    spent = [
        json.loads(p.read_text())["memory"]["spent"]
        for p in again.folder.glob("checkpoints/rl/*/state.json")
    ]
    assert min(spent) > sum(row["seconds"] for row in measured(again))


def test_a_filter_that_keeps_nothing_or_meets_other_prompts_or_takes_all_the_time_is_an_error(
    tiny_folder, tmp_path
):
    constant = ToyTask({"size": 6, "reward": "constant"})
    with pytest.raises(
        DataError, match=r"rl\.filter .* none of 6 .*0\.500; 0 .*, 0 .*\)\n"
    ) as caught:
        train(tiny_folder, tmp_path / "none", task=constant, filter={"least": 0.6})
    assert "rl.filter.least" in caught.value.fix
    with pytest.raises(DataError, match=r"none/difficulty\.jsonl .* other prompts"):
        train(tiny_folder, tmp_path / "none", resume=True, filter={"least": 0.6})
    with pytest.raises(DataError, match=r"rl\.filter .* 1e-06 seconds"):
        train(tiny_folder, tmp_path / "late", filter={"samples": 2}, seconds=1e-6)


def test_several_tasks_are_filtered_by_themselves_and_no_more_prompts_are_asked_than_are_to_be(
    tiny_policy, tmp_path
):
    recipe = toy_recipe(**SETTINGS, filter={"samples": 2, "prompts": 7}, order="easy-first")
    with Run.start(recipe, tmp_path / "run") as run:
        stage = Stage(run, "rl", Optimiser(tiny_policy.trainable(), recipe.rl.optimiser, 4))
        chosen = prompts.choose_prompts(two_tasks(), tiny_policy, None, stage)
    assert {name: len(examples) for name, examples in chosen.examples.items()} == {"a": 7, "b": 7}
    means = {(row["task"], row["id"]): row["mean"] for row in measured(run)}
    for name, examples in chosen.examples.items():
        order = [
            (-means[name, example.id], int(example.id.partition("-")[2])) for example in examples
        ]
        assert order == sorted(order)
    assert len([event for event in run.files["events"].rows() if "kept" in event["message"]]) == 2
    assert [len(each) for each in chosen.deal(4, 0, "rl", 0).values()] == [2, 2]


# -- the order -------------------------------------------------------------------------------------


def test_a_given_order_is_that_of_every_epoch_and_a_random_one_is_what_it_was(
    tiny_folder, tmp_path
):
    task = ToyTask({"size": 5})
    source = Source.of(task, task.examples("train"))
    for order in ("given", "easy-first"):
        sorted_ = replace(source, order=order)
        assert [index for step in range(5) for index in sorted_.deal(2, step, "rl", 0)[""]] == [
            *range(5),
            *range(5),
        ]
    beyond = islice(replace(source, order="given").draw_further(3, 1, "rl", 0)[""], 4)
    assert [example.id for example in beyond] == ["train-1", "train-2", "train-1", "train-2"]
    for epoch in range(2):
        assert (
            source.deal(5, epoch, "rl", 0)[""]
            == generator(0, "rl", "order", epoch).permutation(5).tolist()
        )
    run = train(tiny_folder, tmp_path / "run", order="given")
    ids = [row["id"] for row in run.files["samples"].rows()]
    assert ids[::2] == [f"train-{index}" for index in range(16)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": "easy-first"}, r"rl\.order: easy-first .* rl\.filter .*{samples: 4}"),
        ({"resample": 17}, r"rl\.resample: .* 16\n"),
        ({"filter": {"least": 0.9, "most": 0.1}}, r"rl\.filter: least 0\.9 .* most 0\.1\b"),
        ({"filter": {"samples": 0}}, r"rl\.filter\.samples: .* 0\n"),
    ],
)
def test_a_wrong_key_is_an_error_of_the_recipe(settings, message):
    with pytest.raises(RecipeError, match=message):
        toy_recipe(**settings)


def test_keys_at_their_defaults_change_no_identity():
    changed = [{}, {"resample": 1}, {"order": "given"}, {"filter": {}}]
    assert len({toy_recipe(**each).identity() for each in changed}) == 4
    assert toy_recipe(resample=0, filter=None, order="random").identity() == toy_recipe().identity()
    content = toy_recipe().model_dump(mode="json", exclude=set(NO_RESULT))
    for section, keys in (
        ("model", ["date"]),
        ("rl", ["resample", "filter", "order", "minibatch", "teacher"]),
    ):
        content[section] = {
            key: value for key, value in content[section].items() if key not in keys
        }
    text = json.dumps(content, sort_keys=True)  # as versions without these keys wrote it
    assert toy_recipe().identity() == hashlib.sha256(text.encode()).hexdigest()[:12]
