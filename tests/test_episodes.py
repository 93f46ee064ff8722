"""Episodes of several turns: laws over whole episodes, credit for every turn, records that keep
them, and forms."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from plumbline.algorithms.grpo import Grpo
from plumbline.api import check_episodes
from plumbline.errors import DataError, RecipeError
from plumbline.evaluation.evaluate import Conditions, evaluate_policy
from plumbline.evaluation.replays import replay_episodes
from plumbline.policies.flow.options import FlowSampling
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.slots.options import SlotSampling
from plumbline.recipe import SftSection
from plumbline.records import Group, Outcome, Rollout, Sampling, Score, Verdict, rollouts_of
from plumbline.rollouts.collect import collect
from plumbline.runs.evaluations import read_evaluation, write_evaluation
from plumbline.runs.run import Run
from plumbline.tasks import open_task
from plumbline.tasks.task import Task, as_task, episode_of
from plumbline.training.gradient_noise import group_independent_parts
from plumbline.training.prompts import Source
from plumbline.training.rl import train_rl, weigh_rollouts
from plumbline.training.sft import demonstrate
from tests.algorithms.batches import assert_gradients, gradients_of
from tests.evaluation.shown_toy import ShownToy
from tests.policies import families
from tests.policies.conftest import family_folders, masked_folder  # noqa: F401 - fixtures
from tests.test_reward_workers import trajectory
from tests.toy import ToyTask
from tests.training.toy_runs import toy_recipe

SMALL = Sampling(top_k=3, max_tokens=1)
SAMPLINGS = {
    "autoregressive": SMALL,
    "masked": MaskedSampling(max_tokens=2, steps=2, top_k=2, selector="plackett_luce"),
    "slots": SlotSampling(max_tokens=4, steps=2, top_k=2, selector="plackett_luce"),
    "flow": FlowSampling(max_tokens=1, steps=2, top_k=3),
}
"""Of each family, one under which the episodes of two turns can be counted."""
ONE_TURN = {"autoregressive": 3, "masked": 8, "slots": 32, "flow": 9}
"""What can happen in one turn, at most."""
LONGER = {
    family: replace(sampling, max_tokens=4, top_k=0, temperature=3.0)
    for family, sampling in SAMPLINGS.items()
}
"""Answers that differ, as training needs them."""


@pytest.fixture(scope="module")
def folders(family_folders):  # noqa: F811 - a fixture
    return family_folders


def opened(family, folders, **of_autoregressive):
    if family == "flow":  # whose noisy start has no term, and would be drawn anew each time
        return families.opened("flow", folders["flow of masks"], attention="full")
    return families.opened(
        family, folders[family], **(of_autoregressive if family == "autoregressive" else {})
    )


class Twice:
    """An episode that asks again after every answer but an empty one, and tells it what it said."""

    def __init__(self, task, example):
        self.task, self.example, self.told = task, example, []

    def ask(self):
        if len(self.told) == self.task.turns or "" in self.told:
            return None
        said = [
            {"role": role, "content": text}
            for answer in self.told
            for role, text in (("assistant", answer), ("user", f"{len(answer)}!"))
        ]
        return [*self.example.messages, *said]

    def tell(self, text):
        self.told.append(text)
        self.found = self.task.judge(self.example, text)

    def result(self):
        return self.found


class Asks(ShownToy):
    """The toy task in two turns."""

    turns = 2

    def episode(self, example):
        return Twice(self, example)


class Threads(Asks):
    judges = 2


class Varied(Asks):
    """Pays by what the letters add up to as numbers, in which the answers of every family differ,
    learnt or not."""

    def judge(self, example, completion):
        outcome, score = super().judge(example, completion)
        return outcome, replace(score, total=sum(map(ord, completion)) % 5 / 4)


@pytest.mark.parametrize("family", SAMPLINGS)
def test_both_laws_hold_over_whole_episodes(family, folders):
    task = Asks({"size": 1})
    laws = check_episodes(
        opened(family, folders), task, task.examples("val")[0], SAMPLINGS[family], draws=1500
    )
    assert laws.gap < 2e-5
    assert laws.chi_square_p > 1e-3
    assert 0.97 < laws.mass < 1 + 1e-4, "all that can happen has been drawn"
    assert laws.kinds > ONE_TURN[family], "more than one turn can make"


class Wrong:
    """A policy with one thing wrong: `sample` or `score` as given."""

    def __init__(self, policy, **wrong):
        self.policy = policy
        vars(self).update(wrong)

    def __getattr__(self, name):
        return getattr(self.policy, name)


def test_turns_that_share_random_numbers_break_the_second_law_alone(tiny_policy):
    """Each turn by itself is drawn from its distribution; the two together are not."""

    def sample(requests):
        known = {request.key[:-1]: request for request in requests}
        first = [replace(request, key=(*request.key[:-1], 0)) for request in requests]
        for request, drawn in tiny_policy.sample(first):
            yield known[request.key[:-1]], drawn

    task = Asks({"size": 1})
    wrong = Wrong(tiny_policy, sample=sample)
    laws = check_episodes(wrong, task, task.examples("val")[0], SMALL, draws=1500)
    assert laws.gap < 2e-5
    assert laws.chi_square_p < 1e-6


@pytest.mark.parametrize("family", SAMPLINGS)
def test_scoring_a_turn_at_the_first_prompt_breaks_the_first_law(family, folders):
    policy, task = opened(family, folders), Asks({"size": 1})
    shortest = len(policy.chat.prompt(task.examples("val")[0].messages))

    def score(trajectories):
        return policy.score([replace(one, prompt=one.prompt[:shortest]) for one in trajectories])

    laws = check_episodes(
        Wrong(policy, score=score), task, task.examples("val")[0], SAMPLINGS[family], draws=100
    )
    assert laws.gap > 2e-4, "the first prompt alone would do"


class Engine:
    """Answers by a table of texts; remembers what it was asked, in one list for each call."""

    def __init__(self, texts, context=1000):
        self.texts, self.context, self.calls, self.chats = texts, context, [], {}

    def prompt_length(self, messages):
        return sum(len(message["content"]) for message in messages)

    def sample(self, requests):
        self.calls.append([request.key for request in requests])
        for request in reversed(requests):
            *_, example, copy, turn = request.key
            self.chats[example, copy, turn] = list(request.messages)
            yield request, trajectory(self.texts[example][copy][turn])


TEXTS = {"val-0": [["a", "aa"], [""]], "val-1": [["bb", "ab"], ["b" * 50, "a"]]}


def answered(task, engine):
    return collect(
        engine, task, task.examples("val"), copies=2, sampling=Sampling(max_tokens=4), key=(7,)
    )


@pytest.mark.parametrize("kind", [Asks, Threads])
def test_live_episodes_are_asked_together_turn_by_turn(kind):
    task, engine = kind({"size": 2}), Engine(TEXTS)
    groups = answered(task, engine)
    assert engine.calls == [
        [(7, name, copy, 0) for name in ("val-0", "val-1") for copy in (0, 1)],
        [(7, "val-0", 0, 1), (7, "val-1", 0, 1), (7, "val-1", 1, 1)],
    ]
    first, answer, asked = engine.chats["val-1", 0, 1]
    assert [first] == task.examples("val")[1].messages
    assert (answer["content"], asked["content"]) == ("bb", "2!")
    found = [[[turn.text for turn in one.turns] for one in group.rollouts] for group in groups]
    assert found == list(TEXTS.values())
    first = groups[0].rollouts[0]
    assert (first.asked, first.text, first.reward, first.cut) == (("1!",), "aa", 1.0, False)
    assert groups[0].rollouts[1].asked == ()


def test_a_prompt_that_does_not_fit_ends_its_episode_and_no_other():
    task = Asks({"size": 2})
    groups = answered(task, Engine(TEXTS, context=60))
    assert [[one.cut for one in group.rollouts] for group in groups] == [
        [False, False],
        [False, True],
    ]
    cut = groups[1].rollouts[1]
    assert len(cut.turns) == 1
    assert cut.verdict.failure is None
    assert cut.reward == task.judge(groups[1].example, "b" * 50)[1].total, "what it came to so far"


def test_a_verifier_that_breaks_in_a_later_turn_fails_that_rollout():
    class Breaks(Threads):
        def judge(self, example, completion):
            if completion == "aa":
                raise RuntimeError("gone")
            return super().judge(example, completion)

    groups = answered(Breaks({"size": 2}), Engine(TEXTS))
    failed = [[one.verdict.failure is not None for one in group.rollouts] for group in groups]
    assert failed == [[True, False], [False, False]]
    assert np.isnan(groups[0].rollouts[0].reward)


def rollout(lengths, reward):
    turns = []
    for number, length in enumerate(lengths):
        one = trajectory("text")
        step = replace(
            one.transitions[0], tokens=np.arange(length), logprobs=np.zeros(length, np.float32)
        )
        turns.append(replace(one, transitions=(step,), prompt=np.array([1, number])))
    return Rollout(turns=tuple(turns), verdict=Verdict(Outcome(), Score(total=reward)))


@pytest.mark.parametrize(
    ("normaliser", "expected"),
    [
        ("dr_grpo", [1 / (2 * 4 * 3)] * 2),
        ("grpo", [1 / (2 * 5), 1 / (2 * 1)]),
        ("dapo", [1 / 6] * 2),
    ],
)
def test_denominators_count_the_tokens_of_all_turns(normaliser, expected):
    """Two rollouts with 2 + 3 tokens and 1, of at most 4 in each of three turns."""
    example = ToyTask({}).examples("train")[0]
    group = Group(example=example, rollouts=(rollout([2, 3], 1.0), rollout([1], 0.0)))
    rollouts = rollouts_of(weigh_rollouts([group], Grpo(normaliser=normaliser), turns=3))
    np.testing.assert_allclose([each.weight for each in rollouts], expected)
    assert [len(each.turns) for each in rollouts] == [2, 1]
    assert {each.prompt for each in rollouts} == {np.array([1, 0]).tobytes()}, (
        "one group, whatever later turns ask"
    )


@pytest.mark.parametrize("family", SAMPLINGS)
def test_an_advantage_goes_to_every_turn_and_groups_stay_whole(family, folders, monkeypatch):
    """Against a plain sum over all terms; the signal is measured over groups, not over prompts of
    later turns."""
    policy = opened(family, folders)
    task, recipe = Varied({"size": 3}), toy_recipe(steps=1, tokens_per_microbatch=100)
    groups = collect(
        policy, task, task.examples("train"), copies=4, sampling=LONGER[family], key=(0,)
    )
    groups = weigh_rollouts(groups, recipe.rl.algorithm, turns=2)
    rollouts = rollouts_of(groups)
    assert {len(each.turns) for each in rollouts if each.advantage} >= {2}
    parts = []
    monkeypatch.setattr(
        "plumbline.training.update.group_independent_parts",
        lambda of: parts.extend(of) or group_independent_parts(of),
    )
    update, gradients = gradients_of(policy, groups, recipe)
    assert update.gap < 2e-5
    assert len(parts) > 1
    assert {prompt for part in parts for prompt in part} <= {
        each.turns[0].prompt.tobytes() for each in rollouts
    }

    plain = opened(family, folders, scoring="rows")
    scored = plain.score([turn for each in rollouts for turn in each.turns])
    counts = [sum(len(turn.logprobs) for turn in each.turns) for each in rollouts]
    given = torch.tensor(
        np.repeat([each.advantage for each in rollouts], counts), dtype=torch.float32
    )
    (-scored.logprobs * given).sum().div(12 * 4 * 2).backward()
    assert_gradients(gradients, plain)


@pytest.mark.parametrize("family", SAMPLINGS)
def test_a_run_of_two_turns_keeps_them(family, folders, tmp_path):
    policy, task = opened(family, folders), Varied({})
    recipe = toy_recipe(steps=1, group_size=8).model_copy(update={"sampling": LONGER[family]})
    before = {name: weight.detach().clone() for name, weight in policy.trainable().items()}
    with Run.start(recipe, tmp_path / "run") as run:
        source = Source.of(task, task.examples("train"))
        train_rl(policy, source, run)
    (row,) = run.files["metrics"].rows()
    samples = run.files["samples"].rows()
    several = [sample for sample in samples if "turns" in sample]
    assert several
    assert all(
        len(s["turns"]) == 2 == len(s["asked"]) + 1 and s["turns"][-1] == s["text"] for s in several
    )
    assert row["train/turns"] == 1 + len(several) / len(samples)
    assert row["train/completion_length"] == np.mean([sample["tokens"] for sample in samples])
    assert row["train/frac_cut"] == 0
    assert row["train/sampler_scorer_gap"] < 2e-5
    assert any(not torch.equal(before[name], weight) for name, weight in policy.trainable().items())


@pytest.mark.parametrize("family", SAMPLINGS)
def test_an_evaluation_keeps_every_turn(family, folders, tmp_path):
    policy, task, sampling = opened(family, folders), Asks({"size": 4}), LONGER[family]
    under = Conditions(source="tiny", split="val", sampling=sampling, seed=0)
    found = evaluate_policy(policy, task, task.examples("val"), under)
    several = [row for row in found.rows if row.turns]
    assert several
    assert all(row.turns[-1] == row.completion and len(row.asked) == 1 for row in several)
    path = tmp_path / "evaluation.json"
    write_evaluation(path, found)
    assert read_evaluation(path) == found
    replays = replay_episodes(task, task.examples("val"), replace(found, rows=tuple(several)), 1)
    assert [frame.caption for frame in replays[0].frames] == [
        f"Turn {turn}: {caption}" for turn in (1, 2) for caption in ("<b>before</b>", "after")
    ]
    path.write_text(path.read_text().replace('"asked": [', '"asked": ["more", '))
    with pytest.raises(DataError, match=r"turns of val-.* asked"):
        read_evaluation(path)


def test_rows_of_one_turn_are_as_they_were(tiny_policy, tmp_path):
    task = ToyTask({"size": 2})
    under = Conditions(source="tiny", split="val", sampling=Sampling(max_tokens=6), seed=0)
    found = evaluate_policy(tiny_policy, task, task.examples("val"), under)
    write_evaluation(tmp_path / "e.json", found)
    assert not any(
        f'"{name}"' in (tmp_path / "e.json").read_text() for name in ("turns", "asked", "cut")
    )
    assert read_evaluation(tmp_path / "e.json") == found


def test_a_task_that_asks_once_has_an_episode_of_one_turn():
    task = ToyTask({})
    example = task.examples("val")[0]
    episode = episode_of(task, example)
    assert task.turns == 1
    assert episode.ask() == example.messages
    with pytest.raises(ValueError, match="first answer"):
        episode.result()
    episode.tell("ab")
    assert episode.ask() is None
    assert episode.result() == task.judge(example, "ab")


class Plain:
    """The toy task as a class of its own, with a call for groups."""

    name, splits, baselines = "plain", ("val",), {}
    rubric = property(lambda self: ToyTask({}).rubric)
    size = 3

    def examples(self, split):
        return ToyTask({"size": self.size}).examples(split)

    def judge(self, example, completion):
        return ToyTask({}).judge(example, completion)

    def judge_group(self, example, completions):
        return [self.judge(example, completion) for completion in completions]


def test_a_class_that_is_no_task_has_the_defaults_of_one():
    plain = as_task(Plain())
    assert isinstance(plain, Task)
    assert (plain.name, plain.rubric, plain.form, plain.size) == (
        "plain",
        ToyTask({}).rubric,
        (),
        3,
    )
    assert (plain.turns, plain.judges, plain.headline, plain.built, plain.replayable) == (
        1,
        0,
        None,
        True,
        False,
    )
    (example, *_) = plain.examples("val")
    assert plain.judge_group(example, ["a"]) == [plain.judge(example, "a")]
    assert plain.demonstration(example, 0) == example.gold
    assert as_task(plain) is plain
    assert as_task(Asks({})).replayable
    with pytest.raises(AttributeError, match="nothing"):
        _ = plain.nothing


# -- forms -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def once():
    return open_task("forms", {}, Path("unused"))


@pytest.fixture(scope="module")
def twice():
    return open_task("forms", {"attempts": 2}, Path("unused"))


def test_the_oracle_earns_all_on_both_turns(twice):
    """A form that was sent is over; one that was not may be sent at the second attempt, for the
    same reward."""
    for example in twice.examples("val"):
        episode = episode_of(twice, example)
        assert episode.ask() == example.messages
        episode.tell(example.gold)
        assert episode.ask() is None
        assert episode.result()[1].total == 1.0
        episode = episode_of(twice, example)
        unsent = example.gold.rpartition("\n")[0]
        episode.tell(unsent)
        *before, answer, shown = episode.ask()
        assert (before, answer["content"], shown["role"]) == (example.messages, unsent, "user")
        assert episode.result()[1].total == 0.0
        episode.tell(example.gold)
        assert episode.ask() is None
        assert episode.result()[1].total == 1.0
        with pytest.raises(ValueError, match="is over"):
            episode.tell(example.gold)


def test_a_further_attempt_shows_the_servers_errors_and_nothing_of_what_is_right(twice):
    """Window start and end swapped: the server refuses what the browser lets through, and says so
    at the field."""
    example = next(one for one in twice.examples("val") if one.stratum == "change-ticket")
    values = example.reference["values"]
    swap = {
        values["window_start"]: values["window_end"],
        values["window_end"]: values["window_start"],
    }
    lines = []
    for line in example.gold.splitlines():
        old = next((value for value in swap if f"'{value}'" in line), None)
        lines.append(line.replace(old, swap[old]) if old else line)
    episode = episode_of(twice, example)
    episode.tell("\n".join(lines))
    shown = episode.ask()[-1]["content"]
    assert "- Window end: " in shown
    assert "the marked entries" in shown
    episode.tell(example.gold)
    assert episode.result()[1].total == 1.0


@pytest.mark.parametrize(
    ("prefilled", "said"),
    [(0.0, "is empty again"), (1.0, "holds again")],
)
def test_a_further_attempt_says_how_the_form_is_found(prefilled, said):
    task = open_task("forms", {"attempts": 2, "noise": {"prefilled": prefilled}}, Path("unused"))
    example = next(one for one in task.examples("val") if one.stratum == "change-ticket")
    episode = episode_of(task, example)
    episode.tell("")
    *_, last = episode.ask()[-1]["content"].splitlines()
    assert last.startswith(f"The form {said}")


def test_what_is_shown_holds_no_gold_value(twice):
    checked = 0
    for example in twice.examples("val"):
        form = twice.view_of(example).form
        episode = episode_of(twice, example)
        episode.tell(twice.baselines["submit-only"]([example])[0])
        if episode.ask() is None:
            continue
        shown = episode.ask()[-1]["content"]
        assert "const now" not in shown, "no script"
        for one in form.fields:
            value = example.reference["values"].get(one.name)
            if isinstance(value, str) and not one.options and len(value) > 4:
                assert value not in shown
                checked += 1
    assert checked > 100


def test_baselines_earn_no_more_in_two_attempts(once, twice):
    examples = twice.examples("val")[:30]
    for name, baseline in twice.baselines.items():
        totals = {}
        for task in (once, twice):
            rewards = []
            for example, text in zip(examples, baseline(examples), strict=True):
                episode = episode_of(task, example)
                while episode.ask() is not None:
                    episode.tell(text)
                rewards.append(episode.result()[1].total)
            totals[task.turns] = np.mean(rewards)
        assert totals[2] == totals[1], name


class Shown:
    """Keeps the chats that it is shown."""

    def demonstrate(self, messages, *, allow_truncation=False):
        assert not allow_truncation
        return list(messages)


def test_sft_shows_the_second_attempt_after_a_careless_first(tmp_path):
    options = {"attempts": 2, "records": 10, "sloppiness": {"unsent": 0.5}}
    task = open_task("forms", options, tmp_path)
    chats = {
        one.id: demonstrate(Shown(), task, one, SftSection(steps=1), 0)
        for one in task.examples("train")
    }
    lengths = [len(turns) for turns in chats.values()]
    assert {1, 2} == set(lengths), "what was sent at once is not asked again"
    for example in task.examples("train"):
        first, *rest = chats[example.id]
        assert [*example.messages, first[-1]] == first
        for second in rest:
            assert first[-1]["content"] != example.gold
            assert second[:-2] == first, (
                "the chat goes on with what was answered and what came of it"
            )
            assert second[-1] == {"role": "assistant", "content": example.gold}


@pytest.mark.parametrize("plan", ["steps", "agent"])
def test_sft_shows_the_second_attempt_after_a_misread_first_where_recordings_are_faultless(plan):
    own = {"records": 10, "mixed": 20, "plan": plan}
    task, once = (
        open_task("forms", {"attempts": count, **own}, Path("unused")) for count in (2, 1)
    )
    examples, firsts, sent = task.examples("train")[-40:], set(), 0
    for example, same in zip(examples, once.examples("train")[-40:], strict=True):
        chats = task.demonstrations(example, 5)
        assert chats == task.demonstrations(example, 5)
        assert [*once.demonstrations(same, 5)] == [chats[0]]
        assert chats[0] == [*example.messages, {"role": "assistant", "content": example.gold}]
        for *chat, misread, page, gold in chats[1:]:
            assert (chat, gold) == (
                [*example.messages],
                {"role": "assistant", "content": example.gold},
            )
            assert not task.judge(example, misread["content"])[0].facts["submitted"]
            assert page["role"] == "user"
            firsts.add(misread["content"])
        sent += len(chats) == 1
    assert len(firsts) + sent == 40, "each its own"
    assert sent < 10, "where every plan with mistakes is sent there is nothing to show"


def test_sft_shows_no_second_attempt_where_nothing_is_damaged():
    task = open_task("forms", {"attempts": 2, "records": 10, "damaged": 0}, Path("unused"))
    assert {len(task.demonstrations(one, 5)) for one in task.examples("train")} == {1}


def test_two_attempts_are_another_rubric(once, twice):
    assert once.rubric == "forms-received/2+9f1f81:suite 1"
    assert twice.rubric == f"{once.rubric}:2 attempts"
    with pytest.raises(RecipeError, match="seed-v6 judges one plan"):
        open_task("forms", {"attempts": 2, "rubric": "seed-v6"}, Path("unused"))
