"""What a budget of training gains on held-out prompts, foretold from rewards of sampled answers.

Of the room above the present reward a way gains the share odds / (1 + odds), with

    odds = exp(at) * (n / 1000) ** answers * (s / room) ** spread

n the answers that the budget pays for, s the spread of rewards within a prompt. The coefficients of a
way lie in gain.yaml, which `python -m experiments.pilots fit` makes from a grid of small runs;
docs/pilot.md has how well it foretells. Under a policy gradient the expected reward of a prompt rises
at first with the variance of its rewards: where s is 0, nothing is gained but from gold answers, whose
`spread` is 0.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plumbline.config.overrides import read_package_yaml
from plumbline.errors import RunError
from plumbline.runs.record import MOST_SECONDS, RunRecord, last_model

LEAST_GAIN = 0.05
"""Less than this is no reason to train."""
REWARDS = ("train/reward", "train/reward_std")


@dataclass(frozen=True, slots=True)
class Offer:
    """What answers to training prompts offer to learn from; rewards in [0, 1]."""

    reward: float
    """Mean."""
    spread: float
    """Standard deviation within a prompt, root of the mean variance."""
    draw_seconds: float
    """Processor-seconds of drawing and judging an answer."""
    update_seconds: float
    """Of learning from an answer."""
    gold: bool = False
    """Whether there are gold answers to learn from."""

    @property
    def room(self) -> float:
        """What is left to gain above the reward."""
        return max(1 - self.reward, 1e-6)


@dataclass(frozen=True, slots=True)
class Foretold:
    """What a way gains, with an 80 % interval."""

    way: str
    gain: float
    low: float
    high: float
    answers: float
    """That the budget pays for."""
    learning_rate: float
    """That the way began with in the runs behind this."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Of one way, in gain.yaml."""

    at: float
    answers: float
    spread: float
    gold: bool
    """It learns from gold answers, and draws none."""
    learning_rate: float


@dataclass(frozen=True, slots=True)
class GainTable:
    """gain.yaml."""

    runs: int
    """That it was fitted to."""
    low: float
    """The tenth part of errors, in units of `error_scale`."""
    high: float
    """The ninth."""
    ways: dict[str, Coefficients]


def read_table() -> GainTable:
    """The table that comes with the package."""
    values = read_package_yaml(Path(__file__).with_suffix(".yaml"))
    ways = {name: Coefficients(**one) for name, one in values["ways"].items()}
    return GainTable(**values | {"ways": ways})


def gain_at(offer: Offer, answers: float, way: Coefficients) -> float:
    """The expected gain."""
    odds = math.exp(way.at) * (answers / 1000) ** way.answers
    odds *= (offer.spread / offer.room) ** way.spread
    return offer.room * odds / (1 + odds)


def error_scale(gain: float, room: float) -> float:
    """What an error of a foretold gain is divided by: least near none of the room, and near all."""
    return math.sqrt(gain * max(room - gain, 0)) + 0.02


def foretell(offer: Offer, seconds: float) -> list[Foretold]:
    """The gain of each way that the offer allows, the largest first.

    Args:
        offer: of the model that training would begin with.
        seconds: processor-seconds of training.
    """
    table = read_table()
    found = []
    for name, way in table.ways.items():
        if offer.gold or not way.gold:
            each = offer.update_seconds + (0 if way.gold else offer.draw_seconds)
            found.append(foretell_way(name, offer, seconds / max(each, 1e-9), table))
    return sorted(found, key=lambda one: -one.gain)


def foretell_way(name: str, offer: Offer, answers: float, table: GainTable) -> Foretold:
    """The gain of one way by so many answers."""
    way = table.ways[name]
    gain = gain_at(offer, answers, way)
    scale = error_scale(gain, offer.room)
    low, high = gain + table.low * scale, min(gain + table.high * scale, offer.room)
    return Foretold(name, gain, low, high, answers, way.learning_rate)


def offer_of_run(run: RunRecord) -> tuple[Offer, float]:
    """What the last steps of a run's RL offer to more of it, and the processor-seconds that it took.

    Raises:
        RunError: it has no steps of RL that say so.
    """
    section = run.recipe.rl
    known = [row for row in run.rows("rl")[-10:] if None not in map(row.get, REWARDS)]
    rows = [[float(row[name]) for name in REWARDS] for row in known]
    spent = [row for row in run.timings.get("rl", []) if "cpu/update" in row]
    if section is None or not rows or not spent:
        raise RunError(
            f"{run.folder} has no steps of RL that say what more of it would gain",
            f"draw answers of its model, which say what each way would gain: plumbline pilot "
            f"{run.folder}/recipe.yaml --set model.name={last_model(str(run.folder))}",
        )
    answers = len(spent) * section.prompts_per_step * section.group_size
    seconds = [[row.get(name) or 0 for name in ("cpu/rollouts", "cpu/update")] for row in spent]
    draw, update = np.clip(seconds, 0, MOST_SECONDS).sum(0).tolist()
    # the records may be somebody else's
    reward, spread = np.clip(rows, 0, 1).mean(0).tolist()
    return Offer(reward, spread, draw / answers, update / answers), draw + update


def foretold_lines(found: Sequence[Foretold], seconds: float) -> Iterator[str]:
    """For terminals."""
    yield (
        f"in {seconds:,.0f} processor-seconds, foretold gain of the held-out reward (80 %; from "
        f"{read_table().runs} runs):"
    )
    for one in found:
        yield (
            f"  {one.way:<18} {one.gain:+.2f} [{one.low:+.2f}, {one.high:+.2f}]"
            f"  {one.answers:,.0f} answers"
        )
