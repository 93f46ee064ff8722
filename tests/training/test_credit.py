"""Credit by items: by hand, against enumeration, through the tokenizer, and as a gradient."""

import itertools

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from plumbline.algorithms.advantages import advantages
from plumbline.errors import RecipeError
from plumbline.policies import open_policy
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.recipe import ControlsSection, ModelSection, RlSection, parse
from plumbline.records import Example, Group, Item, Outcome, Rollout, Sampling, Score, Step, Trajectory
from plumbline.tasks.rubric import Part, Rubric
from plumbline.training.credit import NO_CONTROLS, credit, locate_items
from plumbline.training.optimiser import Optimiser
from plumbline.training.pipeline import run_recipe
from plumbline.training.rollouts import collect
from plumbline.training.update import update_policy
from tests.toy import ToyTask
from tests.training.toy_runs import toy_recipe, train_toy

SECTION = RlSection(steps=1, credit="items")
EXAMPLE = Example(id="one", messages=[], gold="", reference={}, stratum="")


def rollout(tokens, reward):
    step = Step(positions=np.arange(len(tokens)), tokens=np.array(tokens), logprobs=np.zeros(len(tokens), np.float32))
    law = Sampling(max_tokens=len(tokens))
    trajectory = Trajectory(prompt=np.array([1]), steps=(step,), text="", sampling=law, finish="stop")
    return Rollout(
        turns=(trajectory,),
        outcome=Outcome(how="strict"),
        score=None if np.isnan(reward) else Score(total=reward),
    )


def credited(rewards, items, section=SECTION, tokens=(0, 0, 0), controls=NO_CONTROLS):
    """The credits of one group; `items` has those of each rollout."""
    rollouts = tuple(rollout(tokens, reward) for reward in rewards)
    found = {id(one): each for one, each in zip(rollouts, items, strict=True)}
    group = Group(example=EXAMPLE, rollouts=rollouts)
    return credit([group], section, np.random.default_rng(0), {"": lambda one: found[id(one)]}, controls)


def test_three_rollouts_by_hand():
    """The middle one lacks the second item, so what it misses there counts everywhere; the last was not judged."""
    first, second = [slice(0, 1)], [slice(1, 2)]
    got = credited(
        [0.9, 0.2, np.nan],
        [{"a": (0.5, first), "b": (0.3, second)}, {"a": (0.1, first)}, {}],
    )
    # a: 0.5, 0.1 (mean 0.3); b: 0.3, 0 (0.15); the rest: 0.1, 0.1 (0.1)
    np.testing.assert_allclose(got[0].by_term, [0.2, 0.15, 0.0], atol=1e-12)
    np.testing.assert_allclose(got[1].by_term, [-0.2 - 0.15, -0.15, -0.15], atol=1e-12)
    np.testing.assert_allclose(got[2].by_term, 0.0)
    assert got[2].is_idle
    assert not got[0].is_idle
    np.testing.assert_allclose([c.advantage for c in got], advantages(np.array([0.9, 0.2, np.nan])), atol=1e-12)


def test_an_answer_of_average_worth_still_learns_what_it_got_right_and_wrong():
    first, second = [slice(0, 1)], [slice(1, 2)]
    got = credited(
        [0.5, 0.5],
        [{"a": (0.5, first), "b": (0.0, second)}, {"a": (0.0, first), "b": (0.5, second)}],
    )
    assert [c.advantage for c in got] == [0, 0]
    np.testing.assert_allclose(got[0].by_term, [0.25, -0.25, 0])
    assert not any(c.is_idle for c in got)


def test_scaled_and_shuffled_they_stay_the_advantages_of_the_answers():
    rng = np.random.default_rng(0)
    earned = rng.random((6, 2)) / 2
    items = [{"a": (a, [slice(0, 1)]), "b": (b, [slice(1, 2)])} for a, b in earned]
    rewards = earned.sum(axis=1)
    scaled = credited(rewards, items, RlSection(steps=1, credit="items", algorithm={"scale_advantages": "group"}))
    np.testing.assert_allclose([c.advantage for c in scaled], advantages(rewards, "group"), atol=1e-9)
    plain = credited(rewards, items)
    dealt = credited(rewards, items, controls=ControlsSection(shuffle_advantages=True))
    rows, others = ([tuple(np.round(c.by_term, 9)) for c in each] for each in (plain, dealt))
    assert rows != others
    assert sorted(rows) == sorted(others)


def enumerated(how, worth):
    """Mean and variance, over all groups of two, of the estimated gradient of two independent choices' logits.

    Each choice has three options with probabilities of its own; `worth` [2, 3] is what each option earns.
    """
    logits = np.array([[0.3, -0.2, 0.9], [1.1, 0.0, -0.5]])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    answers = list(itertools.product(range(3), range(3)))
    chance = {answer: p[0, answer[0]] * p[1, answer[1]] for answer in answers}
    score = {answer: np.eye(3)[list(answer)] - p for answer in answers}  # d log p / d logits [2, 3]
    estimates, chances = [], []
    for group in itertools.product(answers, repeat=2):
        rewards = [worth[0, a] + worth[1, b] for a, b in group]
        if how == "items":
            items = [{"a": (worth[0, a], [slice(0, 1)]), "b": (worth[1, b], [slice(1, 2)])} for a, b in group]
            found = [c.by_term for c in credited(rewards, items, tokens=(0, 0))]
        else:
            found = [np.full(2, a) for a in advantages(np.array(rewards))]
        estimates.append(sum(score[answer] * terms[:, None] for answer, terms in zip(group, found, strict=True)) / 2)
        chances.append(chance[group[0]] * chance[group[1]])
    estimates, chances = np.array(estimates), np.array(chances)
    mean = np.einsum("g,gij->ij", chances, estimates)
    exact = p * (worth - (p * worth).sum(axis=1, keepdims=True))  # the gradient of the expected reward
    return mean, exact, np.einsum("g,gij->", chances, (estimates - mean) ** 2)


def test_where_values_are_independent_it_is_the_same_gradient_with_less_noise():
    """Enumerated: every group of two answers. The mean of two takes half of the gradient away, in both (1 - 1/G)."""
    worth = np.array([[0.1, 0.4, 0.0], [0.0, 0.5, 0.3]])
    whole, exact, noise_whole = enumerated("answer", worth)
    by_item, _, noise_items = enumerated("items", worth)
    np.testing.assert_allclose(whole, exact / 2, atol=1e-12)
    np.testing.assert_allclose(by_item, exact / 2, atol=1e-12)
    assert noise_items < 0.6 * noise_whole


class Letters(ToyTask):
    """The first and the last third of the text are judged by themselves: how many of their letters are a or b."""

    rubric_ = Rubric("thirds", 1, (Part("a", 0.4, "a"), Part("b", 0.6, "b")))

    def judge(self, example, completion):
        head, tail = self._ends(completion)
        values = {"a": head.count("a") / max(1, len(head)), "b": tail.count("b") / max(1, len(tail))}
        return Outcome(how="strict"), self.rubric_.score(values)

    @staticmethod
    def _ends(text):
        return text[: len(text) // 3], text[2 * len(text) // 3 :]

    def items(self, completion, score):
        third, end = len(completion) // 3, len(completion)
        earned = self.rubric_.earned(score.parts)
        return {"a": Item(earned["a"], ((0, third),)), "b": Item(earned["b"], ((2 * end // 3, end),))}


def test_the_terms_of_a_span_are_the_tokens_that_begin_in_it(tiny_policy):
    text = 'não é "água", é só ãõ – 🦙🦙 fim'
    tokens = tiny_policy.chat.tokenizer(text, add_special_tokens=False)["input_ids"]
    tokens = [*tokens, tiny_policy.chat.end_of_turn]
    (one,) = rollout(tokens, 1.0).turns
    starts = [tiny_policy.first_terms(one, [place])[0] for place in range(len(text) + 1)]
    assert starts == tiny_policy.first_terms(one, range(len(text) + 1))
    assert starts[0] == 0
    assert starts[-1] == len(tokens) - 1, "the token that ends the answer writes nothing"
    assert starts == sorted(starts)
    assert any(len(tiny_policy.chat.text([token])) > 1 for token in tokens), "a token of several characters is needed"
    for place, start in enumerate(starts):
        assert len(tiny_policy.chat.text(tokens[:start]).rstrip("\ufffd")) >= place
        assert start == 0 or len(tiny_policy.chat.text(tokens[: start - 1]).rstrip("\ufffd")) < place


def test_the_gradient_is_that_of_a_plain_sum_over_terms(tiny_folder):
    policy = open_policy(ModelSection(name=str(tiny_folder)), str(tiny_folder))
    task, recipe = Letters({}), toy_recipe(steps=1, credit="items", tokens_per_pass=60)
    law = Sampling(max_tokens=8)
    groups = collect(policy, task, task.examples("train")[:4], copies=4, sampling=law, key=(0,))
    credits_ = credit(groups, recipe.rl, np.random.default_rng(0), {"": locate_items(task, policy)})
    assert any(len(set(c.by_term)) > 1 for c in credits_)
    gradients = []
    optimiser = Optimiser(policy.trainable(), recipe.rl.optimiser, 1)
    optimiser.step = lambda step: gradients.append({n: w.grad.clone() for n, w in policy.trainable().items()}) or 1.0
    update_policy(policy, optimiser, credits_, recipe, 0)

    plain = open_policy(AutoregressiveModel(name=str(tiny_folder), scoring="rows"), str(tiny_folder))
    scored = plain.score([turn for c in credits_ for turn in c.turns])
    given = torch.tensor(np.concatenate([c.by_term for c in credits_]), dtype=torch.float32)
    (-scored.logprobs * given).sum().div(16 * 8).backward()
    for name, weight in plain.trainable().items():
        torch.testing.assert_close(gradients[0][name], weight.grad, atol=2e-6, rtol=1e-3)


def test_who_cannot_do_it_says_so(tiny_folder, tmp_path):
    with pytest.raises(RecipeError, match="a task that says which characters decide what; toy does not"):
        train_toy(tiny_folder, tmp_path / "toy", credit="items")

    recipe = parse(
        {
            "name": "early",
            "task": {"name": "tests.toy:open_toy"},
            "model": {"name": str(tiny_folder)},
            "sft": {"steps": 1},
            "rl": {"steps": 1, "credit": "items"},
        }
    )
    with pytest.raises(RecipeError, match="toy does not"):
        run_recipe(recipe, tmp_path / "early")
    assert not (tmp_path / "early" / "models").exists(), "it is said before anything is trained"

    class Silent:
        family = "masked"

    with pytest.raises(RecipeError, match="masked does not"):
        locate_items(Letters({}), Silent())
    for wrong in ("gspo", {"ratio": "step"}, "wd1", "coupled_grpo"):
        with pytest.raises(ValidationError, match=r"rl.credit: items"):
            RlSection(steps=1, credit="items", algorithm=wrong)
    assert RlSection(steps=1, credit="items", algorithm="cispo").algorithm.by_term
