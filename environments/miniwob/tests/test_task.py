"""The task on a world without a browser: records, splits, verdicts, episodes, demonstrations,
baselines."""

import json
import time
from functools import partial

import pytest

from environments.miniwob.tests.fake import FakeWorld
from plumbline.api import check_task
from plumbline.errors import DataError, RecipeError
from plumbline.evaluation.evaluate import evaluate_completions
from plumbline.evaluation.replays import replay_episodes
from plumbline.recipe import SftSection
from plumbline.records import Failure
from plumbline.rollouts.reward_workers import RewardWorkers, judge
from plumbline.tasks import silent
from plumbline.tasks.task import EpisodeFailed
from plumbline.training.sft import demonstrate
from plumbline_miniwob import build
from plumbline_miniwob.actions import Act, Named, Ref
from plumbline_miniwob.browser.script import PARTS
from plumbline_miniwob.build import build_records, has_records, pages_version, sizes_of
from plumbline_miniwob.options import read_options
from plumbline_miniwob.pages import table
from plumbline_miniwob.task import MiniwobTask
from plumbline_miniwob.world import Played, page_of
from plumbline_miniwob.writing import by_name


class Shows:
    """A policy that shows chats as they are."""

    def demonstrate(self, chat, *, allow_truncation):
        assert not allow_truncation
        return chat


FEW = {"tasks": ["click-button", "enter-text", "login-user"], "held_out": ["login-user"]}
COUNTS = {"per_task": {"train": 3, "val": 1, "test": 2, "held_out_tasks": 2}}


def opened(folder, world=None, **given):
    options = read_options({**FEW, **COUNTS, **given})
    world = world or FakeWorld()
    return MiniwobTask(
        folder, options, world, partial(build_records, options, folder, world, silent)
    )


@pytest.fixture
def task(tmp_path):
    return opened(tmp_path / "records")


def test_the_laws_of_a_task(task):
    for split in task.splits:
        laws = check_task(task, split)
        assert laws.oracle == 1
        assert laws.raised == ()
        assert laws.baselines["blank"] == laws.baselines["click-everything"] == 0
        assert max(laws.baselines.values()) <= 0.5  # the fake has twelve words only


def test_ctrl_c_while_records_are_built_waits_for_no_further_page(tmp_path):
    options = read_options(
        {"tasks": [name for name, about in table().items() if "oracle" not in about], **COUNTS}
    )
    world, began, told = FakeWorld(), set(), []
    solved = world.solved

    def slowly(task, seed):
        began.add(task)
        time.sleep(0.001)
        return solved(task, seed)

    def interrupt(what, done, total):
        told.append((done, total))
        raise KeyboardInterrupt

    world.solved = slowly
    with pytest.raises(KeyboardInterrupt):
        build_records(options, tmp_path / "records", world, interrupt)
    assert told == [(2, sum(sizes_of(options).values()))]
    assert len(began) < 10 < len(options.held)


def test_splits_have_no_prompt_in_common_and_what_is_held_out_is_in_one(task):
    splits = {split: task.examples(split) for split in task.splits}
    assert {split: len(examples) for split, examples in splits.items()} == dict(task.sizes())
    prints = [example.fingerprint() for examples in splits.values() for example in examples]
    assert len(set(prints)) == len(prints)
    assert {one.stratum for one in splits["held-out-tasks"]} == {"login-user"}
    assert {one.stratum for split in ("train", "val", "test") for one in splits[split]} == {
        "click-button",
        "enter-text",
    }
    assert all(
        one.reference["seed"].startswith(split)
        for split, examples in splits.items()
        for one in examples
    )


def test_a_page_that_comes_in_one_way_is_tested_and_not_trained_on(tmp_path):
    class Same(FakeWorld):
        def solved(self, task, seed):
            return super().solved(task, "test-1" if task == "click-button" else seed)

    task = opened(tmp_path / "records", Same())
    held = [one for one in task.examples("test") if one.stratum == "click-button"]
    assert len(held) == 1
    assert {one.stratum for one in task.examples("train")} == {"enter-text"}
    assert json.loads((tmp_path / "records" / "manifest.json").read_text())["left_out"][
        "click-button"
    ]


def test_the_same_options_give_the_same_records_and_others_are_refused(tmp_path):
    first, second = opened(tmp_path / "a"), opened(tmp_path / "b", FakeWorld(at_once=3))
    assert [one.messages for one in first.examples("train")] == [
        one.messages for one in second.examples("train")
    ]
    assert has_records(first.options, tmp_path / "a")
    with pytest.raises(DataError, match="holds other records"):
        has_records(read_options({**FEW, "seed": 1}), tmp_path / "a")
    other = opened(tmp_path / "c", seed=1)
    assert {one.id for one in other.examples("test")}.isdisjoint(
        one.id for one in first.examples("test")
    )


def test_a_split_is_built_when_it_is_asked_for_and_is_the_same_whichever_is_first(tmp_path):
    class Counting(FakeWorld):
        splits = frozenset()

        def solve(self, task, seeds, **more):
            self.splits |= {seed.rpartition("-")[0] for seed in seeds}
            return super().solve(task, seeds, **more)

    world, whole, parts = Counting(), tmp_path / "whole", tmp_path / "parts"
    opened(whole).examples("train")
    first = opened(parts, world)
    first.examples("val")
    assert world.splits == {"held-out-tasks", "test", "val"}
    assert not first.built
    assert not (parts / "train.jsonl").exists()
    assert has_records(first.options, parts, "val")
    assert not has_records(first.options, parts)
    world.splits = frozenset()
    second = opened(parts, world)
    second.examples("test")
    assert world.splits == frozenset()
    second.examples("train")
    assert world.splits == {"train"}
    assert second.built
    assert has_records(second.options, parts)
    names = sorted(path.name for path in whole.iterdir())
    assert names == sorted(path.name for path in parts.iterdir())
    assert [(whole / name).read_bytes() for name in names] == [
        (parts / name).read_bytes() for name in names
    ]


@pytest.mark.parametrize("part", PARTS)
def test_every_script_that_decides_an_episode_is_part_of_what_records_and_rewards_are_of(
    task, monkeypatch, part
):
    before = pages_version()
    assert before in task.rubric
    monkeypatch.setattr(build, "PARTS", [one for one in PARTS if one != part])
    assert pages_version() != before


def test_a_page_that_is_loaded_anew_has_other_records_and_rewards(monkeypatch):
    before = pages_version()
    monkeypatch.setattr(build, "is_reloaded", lambda task: task == "click-pie")
    assert pages_version() != before


def test_a_browser_that_breaks_down_is_counted_when_records_are_built_and_when_answers_are_judged(
    tmp_path,
):
    world = FakeWorld()
    world.broken = {"test-1"}
    seeds = {one.reference["seed"] for one in opened(tmp_path / "a", world).examples("test")}
    assert seeds == {"test-0", "test-2"}
    left_out = json.loads((tmp_path / "a" / "manifest.json").read_text())["left_out"]
    assert left_out.keys() == {"click-button", "enter-text"}
    for counts in left_out.values():
        assert [(why.partition(": ")[2], count) for why, count in counts.items()] == [("hang", 1)]
    world.broken = {f"test-{number}" for number in range(3)}
    with pytest.raises(EpisodeFailed, match="3 of 4 episodes"):
        opened(tmp_path / "c", world).examples("test")
    world.broken = set()
    task = opened(tmp_path / "b", world)
    example = next(one for one in task.examples("test") if one.reference["seed"] == "test-1")
    world.broken = {"test-1"}
    _, score, failure = judge(task, example, example.gold)
    assert score is None
    assert failure.cause == "EpisodeFailed"


def test_what_an_answer_is_worth_is_what_the_page_says(task):
    example = task.examples("test")[0]
    word = example.gold.split("'")[1]
    outcome, score = task.judge(example, f"1. Type '{word}' into the 'Word' field\n2. Click Go")
    assert score.total == 1
    assert score.parts == {"success": 1, "answered": 1}
    assert outcome.facts["carried_out"] == 2
    wrong = task.judge(example, "Click [2]")
    assert (wrong[1].total, wrong[1].parts) == (0, {"success": 0, "answered": 1})
    unfinished = task.judge(example, f"Type '{word}' into [1]\nClick [7]\nJump over [3]")
    assert (unfinished[1].total, unfinished[1].parts) == (0, {"success": 0, "answered": 0})
    assert unfinished[0].facts["failed"].keys() == {2}
    assert unfinished[0].facts["failed"][2].startswith("not found: ")
    assert task.judge(example, "Jump")[0].how == "none"


def test_a_group_is_judged_in_one_call(task):
    example = task.examples("test")[0]
    task.world.calls.clear()
    scores = [
        score.total for _, score in task.judge_group(example, [example.gold, "", "Click [2]"])
    ]
    assert scores == [1, 0, 0]
    assert len(task.world.calls) == 1


def test_an_answer_that_breaks_the_browser_down_takes_no_other_of_its_group_along(task):
    example = task.examples("test")[0]
    play = task.world.play
    task.world.play = lambda *given: [*play(*given)[:2], Failure(cause="hang", detail="for ever")]
    workers = RewardWorkers(task, [example])
    task.world.calls.clear()
    workers.judge_texts(0, [(0, example.gold), (1, ""), (2, "Click [2]")])
    assert [workers.result(0, copy)[1].total for copy in (0, 1)] == [1, 0]
    _, score, failure = workers.result(0, 2)
    assert score is None
    assert (failure.cause, failure.detail[-14:]) == ("EpisodeFailed", " hang for ever")
    assert len(task.world.calls) == 1


def test_an_episode_goes_on_with_what_the_page_shows_until_the_page_answers(tmp_path):
    task = opened(tmp_path / "records", turns=3)
    example = task.examples("test")[0]
    word = example.gold.split("'")[1]
    episode = task.episode(example)
    assert episode.ask() == example.messages
    episode.tell("Jump over the fence")
    assert episode.ask()[-1]["content"].startswith(
        "Nothing in the answer is an action.\nThe page now:\n[1] textbox"
    )
    episode.tell(f"Type '{word}' into [1]\nClick [9]")
    assert [message["role"] for message in episode.ask()][-4:] == ["assistant", "user"] * 2
    assert (
        "Not done:\n- Click [9]: there is no such thing\nThe page now:\n[1] textbox 'Word' = "
        f"'{word}'"
    ) in (episode.ask()[-1]["content"])
    assert episode.result()[1].total == 0
    episode.tell("Click [2]")
    assert episode.ask() is None
    outcome, score = episode.result()
    assert score.total == 1
    assert outcome.facts["actions"] == 3
    with pytest.raises(ValueError, match="is over"):
        episode.tell("Click [2]")


def test_a_later_turn_knows_the_names_of_the_page_as_they_are(tmp_path):
    task = opened(tmp_path / "records", turns=3)
    told = []

    def turn(acts):
        told.append(acts)
        return Played(
            0.0, False, "", (), "[1] link 'James' book'", elements=(("link", "James' book"),)
        )

    task.world.begin = lambda *_: turn
    episode = task.episode(task.examples("test")[0])
    episode.tell("")
    episode.tell('Click [1] "James\' book"')  # a number and a name, which must be of one element
    assert told == [(), (Act(do="click", on=Ref(1)),)]


def test_an_episode_ends_after_so_many_answers_and_a_whole_plan_is_an_answer_too(tmp_path):
    task = opened(tmp_path / "records", turns=2)
    example = task.examples("test")[0]
    episode = task.episode(example)
    episode.tell("")
    episode.tell("")
    assert episode.ask() is None
    assert episode.result()[1].total == 0
    assert task.judge(example, example.gold)[1].total == 1
    assert task.rubric != opened(tmp_path / "records").rubric


def test_supervised_training_shows_one_action_a_turn_where_there_are_turns_enough(tmp_path):
    one, two = opened(tmp_path / "one"), opened(tmp_path / "records", turns=2)
    example = two.examples("train")[0]
    word = example.gold.split("'")[1]
    whole = one.demonstrations(one.examples("train")[0], 0)
    assert [chat[-1]["content"] for chat in whole] == [
        f"Type '{word}' into the 'Word' field\nClick the 'Go' button"
    ]
    first, second = two.demonstrations(example, 0)
    assert first[-1]["content"] == two.demonstration(example, 0) == f"Type '{word}' into [1]"
    assert second[:-2] == first
    assert second[-2]["content"] == f"The page now:\n[1] textbox 'Word' = '{word}'\n[2] button 'Go'"
    assert second[-1]["content"] == "Click [2]"
    for task, chats in ((one, whole), (two, [first, second])):
        task.world.calls.clear()
        assert (
            demonstrate(Shows(), task, task.examples("train")[0], SftSection(steps=1), 0) == chats
        )
        assert task.world.calls == []


def test_the_prompt_is_the_language_the_instruction_and_the_page(tmp_path):
    task = opened(tmp_path / "records")
    system, asked = task.examples("test")[0].messages
    assert "Click [7]" in system["content"]
    assert asked["content"].endswith("\n\nThe page:\n[1] textbox 'Word' = ''\n[2] button 'Go'")
    (short,) = opened(tmp_path / "records", instructions="short").examples("test")[0].messages
    assert short == asked
    agent = opened(tmp_path / "records", plan="agent").examples("test")[0]
    assert json.loads(agent.gold)[0]["action"][1] == {"click": {"name": "Go", "role": "button"}}
    agent = opened(tmp_path / "numbers", plan="agent", naming="numbers").examples("test")[0]
    assert json.loads(agent.gold)[0]["action"][1] == {"click": {"index": 2}}


def test_gold_plans_say_names_where_these_earn_as_much(tmp_path):
    """A page may show two of a name later on."""
    world = FakeWorld()
    played = world.played

    def ambiguous(task, seed, plan):
        named = any(isinstance(act.on, Named) for acts in plan for act in acts)
        return played(task, seed, [] if named and seed == "train-1" else plan)

    world.played = ambiguous
    task = opened(tmp_path / "names", world)
    golds = {one.reference["seed"]: one.gold for one in task.examples("train")}
    assert golds["train-1"].endswith("into [1]\nClick [2]")
    assert golds["train-0"].endswith("into the 'Word' field\nClick the 'Go' button")
    assert all(
        "[" in one.gold for one in opened(tmp_path / "numbers", naming="numbers").examples("train")
    )


def test_what_has_no_name_of_its_own_keeps_its_number():
    elements = [
        ("icon", "trash"),
        ("icon", "trash"),
        ("button", "trash"),
        ("textbox", ""),
        ("link", "x" * 61),
    ]
    acts = [Act(do="click", on=Ref(number)) for number in range(1, 7)] + [Act(do="wait", ms=100)]
    acts += [Act(do="drag", on=Ref(3), to=Ref(1))]
    button = Named("trash", "button")
    told = [*acts[:2], Act(do="click", on=button), *acts[3:7], Act(do="drag", on=button, to=Ref(1))]
    assert by_name(acts, page_of(elements)) == tuple(told)


def test_pages_without_an_oracle_can_be_evaluated_and_have_no_gold(tmp_path):
    task = opened(tmp_path / "records", tasks=["hover-shape", "enter-text"], held_out=[])
    assert {one.stratum: one.gold is None for one in task.examples("test")} == {
        "hover-shape": True,
        "enter-text": False,
    }
    assert set(task.baselines) == {"blank", "random-clicks", "click-everything"}


def test_the_worst_answers_are_replayed_whole(tmp_path):
    task = opened(tmp_path / "records", turns=2)
    examples = task.examples("test")[:2]
    evaluation = evaluate_completions(
        task, examples, ["Click [2]", "Click [8]"], source="me", split="test"
    )
    replays = replay_episodes(task, examples, evaluation, 2)
    assert [len(replay.frames) for replay in replays] == [2, 2]
    ended, other = sorted((replay.mistakes[0].received for replay in replays), key=len)
    assert ended == "reward -1"
    assert "action 1 not found" in other


@pytest.mark.parametrize(
    ("held_out", "said"),
    [("enter-text", r"task\.options\.tasks"), ("click-button", "nothing to train")],
)
def test_pages_that_cannot_be_held_out(held_out, said):
    with pytest.raises(RecipeError, match=said):
        read_options({"tasks": ["click-button"], "held_out": [held_out]})


def test_the_table_has_all_pages_and_holds_out_twenty_over_the_families():
    held = [row["family"] for row in table().values() if row.get("held_out") == "true"]
    assert len(table()) == 130
    assert len(held) == 20
    assert len(set(held)) >= 10
    assert not any(row.get("held_out") == "true" and "oracle" in row for row in table().values())
