"""How large a fault each check finds that decides by noise: in half of the cases, and in nine of
ten.

    python benchmarks/power.py              # as in docs/research/check-evidence.md; a minute of one core
    python benchmarks/power.py --logs 400   # more cases a size
    python benchmarks/power.py --still      # what is said of logs that stand still under slow noise, or rise under it

Each case is a log with a fault of one size under white noise; the size is raised until the check
says it often enough. At size 0 nothing is planted, so what is said is a false alarm; for `no-rise`
that is the fault itself. With `--still` every row is a kind of noise, and "rose or fell" is what
the first line says.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from plumbline.checks.check import examine
from plumbline.checks.diagnosis.history import Final, History, Series
from plumbline.checks.diagnosis.outcome import measure_outcome
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.records import Evaluation, Judged
from plumbline.runs.evaluations import REFERENCE

SIZES = tuple(np.round(np.geomspace(0.01, 1.0, 21), 4).tolist())
"""Tried one after another."""
Make = Callable[[float, int, float, np.random.Generator], History]


@dataclass(frozen=True)
class Fault:
    """A fault that a check is to find."""

    check: str
    what: str
    """Whose size is varied."""
    make: Make
    """A history of a size, of so many steps or examples, of a noise."""
    counts: tuple[int, ...] = (30, 100, 300)
    """Steps, or examples of an evaluation."""
    noises: tuple[float, ...] = (0.03, 0.1)
    """Standard deviations of a step's mean, or of an example's change."""
    sizes: tuple[float, ...] = SIZES
    notes: bool = False
    """Whether a note says it, too; else a warning or what is fatal must."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--logs", type=int, default=100, help="cases of a size")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--still", action="store_true", help="slow noise and smoothed logs, in place of sizes"
    )
    options = parser.parse_args()
    if options.still:
        still(options.logs, options.seed)
        return
    print("| check | what has the size | of | noise | at size 0 | half | nine of ten |")
    print("|---|---|--:|--:|--:|--:|--:|", flush=True)
    for fault in FAULTS:
        for count in fault.counts:
            for noise in fault.noises:
                print(row(fault, count, noise, options.logs, options.seed), flush=True)


def row(fault: Fault, count: int, noise: float, logs: int, seed: int) -> str:
    """A line of the table: the share that is said without a fault, and the first sizes that are
    found often enough."""
    nothing = share(fault, 0.0, count, noise, 3 * logs, seed)
    found: dict[float, str] = {}
    for size in fault.sizes:
        of = share(fault, size, count, noise, logs, seed)
        for wanted in (0.5, 0.9):
            if of >= wanted:
                found.setdefault(wanted, f"{size:.2g}")
        if 0.9 in found:
            break
    sizes = " | ".join(found.get(wanted, "over 1" if fault.sizes else "") for wanted in (0.5, 0.9))
    return f"| {fault.check} | {fault.what} | {count} | {noise} | {nothing:.3f} | {sizes} |"


def share(fault: Fault, size: float, count: int, noise: float, logs: int, seed: int) -> float:
    """Of so many cases, those of which the check says something."""
    return float(
        np.mean(
            [
                says(fault, fault.make(size, count, noise, np.random.default_rng((seed, at))))
                for at in range(logs)
            ]
        )
    )


def says(fault: Fault, history: History) -> bool:
    """Whether the check finds something; `rose` is the first line of the answer."""
    if fault.check == "rose":
        came = measure_outcome(history)
        return came is not None and bool(came.better)
    checks = [check for check in CHECKS if check.name == fault.check]
    assert checks, fault.check
    return any(
        fault.notes or finding.level != "note" for finding in examine(history, checks).findings
    )


# -- slow noise ------------------------------------------------------------------------------------


def still(logs: int, seed: int) -> None:
    """What the first line says of rewards that stand still, and of those that rise; and who
    warns."""
    print(
        "| reward | steps | rose | fell | of a size that matters excluded | warned or fatal, but "
        "for no-rise |"
    )
    print("|---|--:|--:|--:|--:|---|", flush=True)
    for name, make in {**STILL, **RISES}.items():
        for steps in (20, 40, 150, 500):
            came, warned = [], Counter[str]()
            for at in range(logs):
                history = run_of(make(steps, np.random.default_rng((seed, steps, at))))
                came.append(measure_outcome(history))
                worse = {
                    one.check for one in examine(history, CHECKS).findings if one.level != "note"
                } - {"no-rise"}
                warned.update(worse)
            rose, fell, none = (
                float(np.mean([bool(getattr(one, word)) for one in came]))
                for word in ("better", "worse", "still")
            )
            words = ", ".join(
                f"{check} {count / logs:.3f}" for check, count in warned.most_common()
            )
            print(
                f"| {name} | {steps} | {rose:.3f} | {fell:.3f} | {none:.3f} | {words} |", flush=True
            )


def run_of(reward: np.ndarray) -> History:
    at = np.arange(1, len(reward) + 1)
    made = {"reward": Series(at, reward), "reward_std": Series(at, np.full(len(at), 0.3))}
    return History(origin="trl", name="rl", kind="rl", series=made)


def alike(steps: int, correlation: float, dice: np.random.Generator) -> np.ndarray:
    """AR(1) noise of deviation 1."""
    values, value = np.zeros(steps), dice.standard_normal()
    for step in range(steps):
        value = correlation * value + (1 - correlation**2) ** 0.5 * dice.standard_normal()
        values[step] = value
    return values


def window(values: np.ndarray, width: int) -> np.ndarray:
    """The means of so many values each."""
    return np.convolve(values, np.full(width, 1 / width), mode="valid")


def averaged(values: np.ndarray, keeps: float) -> np.ndarray:
    """The moving average that starts at the first value."""
    found, value = np.zeros(len(values)), values[0]
    for step, new in enumerate(values):
        value = keeps * value + (1 - keeps) * new
        found[step] = value
    return found


def growing(values: np.ndarray, width: int) -> np.ndarray:
    """The means of the last so many values, or of as many as there are yet."""
    return np.array([values[max(0, at + 1 - width) : at + 1].mean() for at in range(len(values))])


def cycled(steps: int, dice: np.random.Generator) -> np.ndarray:
    """Forty prompts in a fixed order, four a step, eight answers each."""
    prompts = dice.beta(0.6, 0.6, 40)
    return np.array(
        [
            dice.binomial(8, prompts.take(range(4 * at, 4 * at + 4), mode="wrap")).mean() / 8
            for at in range(steps)
        ]
    )


def curve(steps: int, last: float = 0.7) -> np.ndarray:
    """A logistic rise from .2."""
    return 0.2 + (last - 0.2) / (1 + np.exp(-10 * (np.linspace(0, 1, steps) - 0.5)))


def white(steps: int, dice: np.random.Generator) -> np.ndarray:
    return 0.1 * dice.standard_normal(steps)


Reward = Callable[[int, np.random.Generator], np.ndarray]
STILL: dict[str, Reward] = {
    "white noise": lambda n, dice: 0.5 + white(n, dice),
    **{
        f"AR {r}": lambda n, dice, r=r: np.clip(0.5 + 0.1 * alike(n, r, dice), 0, 1)  # type: ignore[misc]
        for r in (0.5, 0.8, 0.95, 0.99)
    },
    "heavy tails": lambda n, dice: np.clip(0.5 + 0.04 * dice.standard_t(2, n), 0, 1),
    "rarely earned": lambda n, dice: dice.binomial(32, 0.02, n) / 32,
    "prompts in turn": cycled,
    "moving average .9": lambda n, dice: averaged(0.5 + white(n + 100, dice), 0.9)[100:],
    "window of 10": lambda n, dice: window(0.5 + white(n + 9, dice), 10),
    "window of 30": lambda n, dice: window(0.5 + white(n + 29, dice), 30),
    "window of 100": lambda n, dice: window(0.5 + white(n + 99, dice), 100),
    "moving average .9 from its first value": lambda n, dice: averaged(0.5 + white(n, dice), 0.9),
    "moving average .97 from its first value": lambda n, dice: averaged(0.5 + white(n, dice), 0.97),
    "window of 50 from its first value": lambda n, dice: growing(0.5 + white(n, dice), 50),
}
RISES: dict[str, Reward] = {
    "rise, white noise of .05": lambda n, dice: curve(n) + 0.5 * white(n, dice),
    "rise, white noise of .1": lambda n, dice: curve(n) + white(n, dice),
    "rise, AR .8 of .05": lambda n, dice: curve(n) + 0.05 * alike(n, 0.8, dice),
    "rise, AR .8 of .1": lambda n, dice: curve(n) + 0.1 * alike(n, 0.8, dice),
    "rise, moving average .9": lambda n, dice: averaged(curve(n) + white(n, dice), 0.9),
    "rise, window of 10": lambda n, dice: growing(curve(n) + white(n, dice), 10),
    "rise to .9, window of 50": lambda n, dice: growing(curve(n, 0.9) + white(n, dice), 50),
    "rise, means of ten steps": lambda n, dice: (
        (curve(10 * n) + white(10 * n, dice)).reshape(n, 10).mean(axis=1)
    ),
}


# -- logs of a run ---------------------------------------------------------------------------------


def log(noise: float, dice: np.random.Generator, **series: np.ndarray) -> History:
    """A log of these series under noise; those of evaluations have every tenth step."""
    made = {}
    for name, values in series.items():
        at = np.arange(1, len(values) + 1)[:: 10 if name.startswith("eval/") else 1]
        made[name] = Series(at, values[at - 1] + noise * dice.standard_normal(len(at)))
    return History(origin="trl", name="rl", kind="rl", series=made)


def rise(size: float, steps: int, noise: float, dice: np.random.Generator) -> History:
    return log(noise, dice, reward=0.4 + size * np.linspace(0, 1, steps))


def fall(size: float, steps: int, noise: float, dice: np.random.Generator) -> History:
    place = np.linspace(0, 1, steps)
    return log(noise, dice, reward=0.6 * (1 - size * np.clip(2 * place - 1, 0, 1)))


def plateau(size: float, steps: int, noise: float, dice: np.random.Generator) -> History:
    return log(noise, dice, reward=0.3 + size * np.clip(2 * np.linspace(0, 1, steps), 0, 1))


def opposed(size: float, steps: int, noise: float, dice: np.random.Generator) -> History:
    place = np.linspace(0, 1, steps)
    parts = {"reward/right": 0.6 - size * place, "reward/form": 0.3 + (0.2 + size) * place}
    return log(noise, dice, **parts, reward=0.9 + 0.2 * place)


def disagrees(size: float, steps: int, noise: float, dice: np.random.Generator) -> History:
    place = np.linspace(0, 1, steps)
    return log(noise, dice, reward=0.3 + 0.4 * place, **{"eval/reward": 0.6 - size * place})


def jumps(size: float, steps: int, noise: float, dice: np.random.Generator) -> History:
    late = np.arange(steps) >= steps // 2
    return log(noise, dice, reward=0.5 + size * late, entropy=0.8 - size * late)


def outage(size: float, steps: int, noise: float, dice: np.random.Generator) -> History:
    history = log(noise, dice, reward=np.full(steps, size))
    history["reward"].values[steps // 2] = 0 if size else history["reward"].values[steps // 2]
    return history


def stands(_: float, steps: int, noise: float, dice: np.random.Generator) -> History:
    history = log(noise, dice, reward=np.full(steps, 0.4))
    return replace(
        history,
        series={
            **history.series,
            "reward_std": Series(history["reward"].steps, np.full(steps, 0.3)),
        },
    )


# -- evaluations -----------------------------------------------------------------------------------


def evaluated(stage: str, mode: str, rewards: np.ndarray, part: np.ndarray | None = None) -> Final:
    parts = [
        {} if part is None else {"right": float(value)}
        for value in (rewards if part is None else part)
    ]
    rows = tuple(
        Judged(
            id=str(at),
            stratum="",
            completion="",
            reward=float(reward),
            parts=of,
            readings={"strict": 0.0},
            how="strict",
        )
        for at, (reward, of) in enumerate(zip(rewards, parts, strict=True))
    )
    sampling = {
        "temperature": float(mode == "sampled"),
        "top_k": 0,
        "top_p": 1.0,
        "max_tokens": 64,
        "steps": None,
    }
    evaluation = Evaluation(
        source=stage,
        task="t",
        split="test",
        rubric="r@1",
        sampling=sampling,
        seed=0,
        rows=rows,
        form=(),
        unjudged=(),
    )
    return Final(stage=stage, split="test", mode=mode, task="t", evaluation=evaluation)


def pair(
    change: float, count: int, noise: float, dice: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    first = dice.uniform(0, 1, count)
    return first, first + change + noise * dice.standard_normal(count)


def stored(*finals: Final) -> History:
    return History(origin="plumbline", name="rl", kind="rl", series={}, finals=finals)


def worse(size: float, count: int, noise: float, dice: np.random.Generator) -> History:
    first, last = pair(-size, count, noise, dice)
    return stored(evaluated("sft", "greedy", first), evaluated("rl", "greedy", last))


def below(size: float, count: int, noise: float, dice: np.random.Generator) -> History:
    """No better than a baseline, whose lead is the size; at size 0 the model leads by .2."""
    baseline, mine = pair(-size if size else 0.2, count, noise, dice)
    return stored(evaluated(REFERENCE, "shuffled-gold", baseline), evaluated("rl", "greedy", mine))


def lost(size: float, count: int, noise: float, dice: np.random.Generator) -> History:
    first, last = pair(0.2, count, noise, dice)
    part, after = pair(-size, count, noise, dice)
    return stored(evaluated("sft", "greedy", first, part), evaluated("rl", "greedy", last, after))


def hotter(size: float, count: int, noise: float, dice: np.random.Generator) -> History:
    greedy, sampled = pair(size, count, noise, dice)
    return stored(evaluated("rl", "greedy", greedy), evaluated("rl", "sampled", sampled))


EXAMPLES = {"counts": (20, 60, 240), "noises": (0.3,)}
FAULTS = (
    Fault("rose", "rise of the reward", rise),
    Fault("no-rise", "no size: the reward stands still", stands, counts=(100, 300, 1000), sizes=()),
    Fault("reward-falls", "share of the reward that is lost", fall),
    Fault("plateau", "rise before it", plateau, counts=(100, 300), notes=True),
    Fault("parts-oppose", "fall of a part", opposed),
    Fault("eval-disagrees", "fall of the evaluation", disagrees, counts=(60, 100, 300)),
    Fault("jump", "jump of reward and entropy", jumps, counts=(100, 300)),
    Fault("outage", "the reward of other steps", outage),
    Fault("gain", "fall of the greedy reward", worse, **EXAMPLES),
    Fault("no-better", "lead of a baseline", below, **EXAMPLES),
    Fault("part-lost", "fall of a part", lost, **EXAMPLES),
    Fault("decoding", "lead of sampled answers", hotter, **EXAMPLES),
)


if __name__ == "__main__":
    main()
