"""Which states are scored, and what each counts: unbiased, by enumeration and by averages of many
draws."""

import itertools
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from plumbline.algorithms import ALGORITHMS, espo, gdpo
from plumbline.algorithms.algorithm import make_bound_targets, make_trajectory_targets
from plumbline.algorithms.grpo import Grpo
from plumbline.errors import RecipeError
from plumbline.recipe import parse_recipe
from plumbline.records import Sampling, SteppedSampling, Trajectory, Transition
from tests.algorithms.batches import rollout_of

MODULES = {"espo": espo, "gdpo": gdpo}
SAMPLERS = {name: module.sample_masks for name, module in MODULES.items()}
LENGTH = 3
ANSWER = np.array([1, 0, 1])


def trajectory(steps: int) -> Trajectory:
    made = tuple(
        Transition(
            positions=np.array([index]),
            tokens=np.array([index]),
            logprobs=np.array([-1.0], dtype=np.float32),
            state=np.zeros(LENGTH, dtype=np.int64),
        )
        for index in range(steps)
    )
    return Trajectory(
        prompt=np.array([1]),
        transitions=made,
        text="",
        sampling=SteppedSampling(max_tokens=LENGTH, steps=steps),
        finish="stop",
    )


@pytest.mark.parametrize("pick", ["uniform", "stratified"])
@pytest.mark.parametrize("keep", [1, 3, 5, 7])
def test_some_steps_stand_for_all_without_bias(pick, keep):
    whole = trajectory(7)
    values = np.array([1.0, -2.0, 0.5, 4.0, 3.0, -1.0, 2.0])
    rng = np.random.default_rng(0)
    sums = []
    for _ in range(1500):
        (target,) = make_trajectory_targets([rollout_of(whole)], keep, pick, rng, split=False)
        assert len(target.trajectory.transitions) == keep
        sums.append(
            sum(step.weight * values[step.tokens[0]] for step in target.trajectory.transitions)
        )
    error = np.std(sums) / np.sqrt(len(sums))
    assert np.mean(sums) == pytest.approx(values.sum(), abs=4 * error + 1e-9)
    if keep == 7:
        assert np.std(sums) < 1e-9


def test_stratified_steps_come_one_from_each_stretch_and_uniform_ones_from_anywhere():
    """Seven steps in three stretches of 2, 3 and 2."""
    rng = np.random.default_rng(0)
    picked = {"stratified": set(), "uniform": set()}
    for pick, found in picked.items():
        for _ in range(300):
            (target,) = make_trajectory_targets(
                [rollout_of(trajectory(7))], 3, pick, rng, split=False
            )
            found.add(
                tuple((int(step.tokens[0]), step.weight) for step in target.trajectory.transitions)
            )
    stretches = [
        [(at, 2.0) for at in (0, 1)],
        [(at, 3.0) for at in (2, 3, 4)],
        [(at, 2.0) for at in (5, 6)],
    ]
    assert picked["stratified"] == set(itertools.product(*stretches))
    assert picked["uniform"] == {
        tuple((at, 7 / 3) for at in some) for some in itertools.combinations(range(7), 3)
    }


def test_a_trajectory_that_ended_early_is_scored_whole():
    """Its distribution allows 7 steps and it took 2; of a distribution without steps nothing is
    known, so too many are an error."""
    short = replace(trajectory(2), sampling=SteppedSampling(max_tokens=LENGTH, steps=7))
    for keep in (2, 5, 7):
        (target,) = make_trajectory_targets(
            [rollout_of(short)], keep, "stratified", np.random.default_rng(0), split=False
        )
        assert [step.weight for step in target.trajectory.transitions] == [1.0, 1.0]
    for sampling in (short.sampling, Sampling(max_tokens=LENGTH)):
        with pytest.raises(ValueError, match=r"\b8 of 2 steps$"):
            make_trajectory_targets(
                [rollout_of(replace(short, sampling=sampling))],
                8,
                "uniform",
                np.random.default_rng(0),
                split=False,
            )


def test_splitting_gives_each_step_a_view_of_its_own():
    two, three = rollout_of(trajectory(2)), rollout_of(trajectory(3))
    targets = make_trajectory_targets(
        [two, three], None, "uniform", np.random.default_rng(0), split=True
    )
    assert [target.rollout for target in targets] == [two, two, three, three, three]
    assert [len(target.trajectory.transitions) for target in targets] == [1] * 5
    with pytest.raises(ValueError, match="4 of 3"):
        make_trajectory_targets([three], 4, "uniform", np.random.default_rng(0), split=False)


class Table:
    """A masked model as a table: log p(token | what is visible), drawn once for every state."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self.logits = {
            state: rng.normal(size=(LENGTH, 2))
            for state in itertools.product((0, 1, 2), repeat=LENGTH)
        }

    def mask_positions(self, trajectory, hidden):
        state = np.where(hidden, 2, ANSWER)
        positions = np.flatnonzero(hidden)
        empty = np.full(len(positions), np.nan, dtype=np.float32)
        return Transition(
            positions=positions, tokens=ANSWER[positions], logprobs=empty, state=state
        )

    def log_prob(self, step: Transition) -> np.ndarray:
        logits = self.logits[tuple(step.state.tolist())][step.positions]
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return log_p[np.arange(len(step.tokens)), step.tokens]

    def any_order_bound(self) -> float:
        """E over all orders of sum log p(next | so far), by enumeration."""
        total = 0.0
        orders = list(itertools.permutations(range(LENGTH)))
        for order in orders:
            for count in range(LENGTH):
                hidden = np.zeros(LENGTH, dtype=bool)
                hidden[list(order[count:])] = True
                step = self.mask_positions(None, hidden)
                total += self.log_prob(step)[step.positions.tolist().index(order[count])]
        return total / len(orders)


def estimates(bound, draws, repeats, seed=0):
    table, rng = Table(), np.random.default_rng(seed)
    sums = []
    for _ in range(repeats):
        (target,) = make_bound_targets(
            table, [rollout_of(trajectory(3))], SAMPLERS[bound], draws, rng
        )
        sums.append(
            sum(step.weight * table.log_prob(step).sum() for step in target.trajectory.transitions)
        )
    return np.array(sums)


@pytest.mark.parametrize(("bound", "draws"), [("espo", 1), ("espo", 3), ("gdpo", 8)])
def test_the_bounds_are_those_of_random_orders(bound, draws):
    sums = estimates(bound, draws, 2000)
    wanted = Table().any_order_bound()
    assert sums.mean() == pytest.approx(wanted, abs=4 * sums.std() / np.sqrt(len(sums)) + 2e-3)


def test_complements_halve_the_spread():
    assert estimates("espo", 2, 1000).std() < estimates("espo", 1, 1000).std()


@pytest.mark.parametrize("bound", ["espo", "gdpo"])
def test_no_look_hides_nothing(bound):
    targets = make_bound_targets(
        Table(),
        [rollout_of(trajectory(3))] * 200,
        SAMPLERS[bound],
        2,
        np.random.default_rng(0),
    )
    assert (
        min(len(step.positions) for target in targets for step in target.trajectory.transitions)
        == 1
    )


@pytest.mark.parametrize(
    ("rl", "message"),
    [
        ({"algorithm": {"name": "gspo", "keep": 2}}, "unknown key keep"),
        ({"algorithm": {"name": "espo", "keep": 2}}, "unknown key keep"),
        ({"algorithm": "no_ratio", "inner_epochs": 2}, "no_ratio .* inner epoch"),
        ({"algorithm": "no_ratio", "beta": 0.1}, r"no_ratio .* inner epoch, .* 0\b"),
        ({"algorithm": "no_ratio", "minibatch": 2}, "no minibatch"),
        ({"algorithm": "no_ratio", "old": "rescored"}, r"no_ratio .* rl\.old\b"),
        ({"kl": "closed", "beta": 0.1, "algorithm": "gdpo"}, "rl.kl: sampled"),
    ],
)
def test_combinations_that_would_be_biased_or_empty_are_refused(rl, message, monkeypatch):
    class NoRatio(Grpo):
        uses_ratio = False
        name: Literal["no_ratio"] = "no_ratio"

    monkeypatch.setitem(ALGORITHMS, "no_ratio", NoRatio)
    with pytest.raises(RecipeError, match=message):
        parse_recipe({"name": "x", "model": {"name": "m"}, "rl": {"steps": 1, **rl}})


def test_a_view_keeps_everything_but_the_steps():
    whole = trajectory(3)
    (target,) = make_trajectory_targets(
        [rollout_of(whole)], None, "stratified", np.random.default_rng(0), split=False
    )
    assert replace(target.trajectory, transitions=whole.transitions).prompt is whole.prompt
    assert target.trajectory.sampling == whole.sampling
