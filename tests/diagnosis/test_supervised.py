"""Logs of supervised and preference training as trainers write them by default: one row for ten
steps, 16 to 60 rows.

The healthy ones get no warning, whatever the seed; each faulty one gets the finding that its fault
is.
"""

from dataclasses import replace

import numpy as np
import pytest

from plumbline.checks.check import examine
from plumbline.checks.diagnosis.history import Series
from plumbline.checks.diagnosis.outcome import measure_outcome
from plumbline.checks.diagnosis.readers.logs import read_log
from plumbline.checks.diagnosis.rules import CHECKS

LN2 = 0.6931
AT = 10 * np.arange(1, 31)


def log(count, *, every=10, rate=2e-5, epochs=1.0, config=None, held=None, **columns):
    """Rows of a trainer_state.json: columns [count], and `held`, columns of as many evaluations,
    spread over it."""
    steps = every * np.arange(1, count + 1)
    shown = {
        "learning_rate": rate * np.linspace(1, 0.05, count),
        "epoch": epochs * steps / steps[-1],
        **columns,
    }
    rows = [
        {"step": int(step)}
        | {
            name: round(float(values[at]), 4) if name == "loss" else float(values[at])
            for name, values in shown.items()
        }
        for at, step in enumerate(steps)
    ]
    held = held or {}
    points = len(next(iter(held.values()), ()))
    for at in range(points):
        step = int(steps[(at + 1) * count // points - 1])
        rows.append(
            {"step": step, "epoch": epochs * step / steps[-1]}
            | {name: one[at] for name, one in held.items()}
        )
    return read_log(
        "trl", "trainer_state.json", rows, folder=None, config=config or {}, step="step"
    )


def found(history):
    return {one.check: one for one in examine(history, CHECKS).findings}


def falling(dice, count, first, last, noise, speed=3.0):
    """A curve that falls (or rises), and its noise."""
    place = np.linspace(0, 1, count)
    way = (1 - np.exp(-speed * place)) / (1 - np.exp(-speed))
    return first + (last - first) * way + noise * dice.standard_normal(count)


def gradient(dice, count, size=1.0):
    return size * np.exp(0.2 * dice.standard_normal(count))


def sft(dice, count, first=2.0, last=1.4, noise=0.04, **more):
    loss = falling(dice, count, first, last, noise)
    more = {
        "grad_norm": gradient(dice, count),
        "mean_token_accuracy": 1 / (1 + np.exp(loss - 1.5)),
    } | more
    return log(count, **{"loss": loss} | more)


def pairs(dice, count, margin=2.0, chosen=-20.0, **more):
    """DPO: a margin that grows, the loss and the accuracy that follow from it, and the chosen
    answers' change."""
    margins = falling(dice, count, 0.0, margin, 0.05 + 0.05 * margin, 1.0)
    margins[0] = 0.0
    right = np.clip(1 / (1 + np.exp(-1.5 * margins)) + 0.05 * dice.standard_normal(count), 0, 1)
    paid = falling(dice, count, 0.0, 0.1 * chosen, 0.05)
    columns = {
        "loss": np.log1p(np.exp(-margins)),
        "grad_norm": gradient(dice, count, 5.0),
        "rewards/chosen": paid,
        "rewards/rejected": paid - margins,
        "rewards/margins": margins,
        "rewards/accuracies": right,
        "logps/chosen": -250 + 10 * paid + 5 * dice.standard_normal(count),
        "logps/rejected": -230 + 10 * (paid - margins) + 5 * dice.standard_normal(count),
    }
    return log(count, **{"rate": 5e-7} | columns | more)


def without_reference(dice, count, loss, right, margin, average):
    """ORPO and SimPO: log-probabilities are means over tokens, and margins begin anywhere."""
    chosen = falling(dice, count, *average, 0.02)
    margins = falling(dice, count, *margin, 0.01)
    return log(
        count,
        rate=8e-6,
        loss=falling(dice, count, *loss, 0.03),
        grad_norm=gradient(dice, count),
        **{
            "rewards/chosen": 0.1 * chosen,
            "rewards/rejected": 0.1 * chosen - margins,
            "rewards/margins": margins,
            "rewards/accuracies": np.clip(falling(dice, count, *right, 0.05), 0, 1),
            "logps/chosen": chosen,
            "logps/rejected": chosen - 10 * margins,
        },
    )


def kto(dice, count, margin=1.5, change=5):
    margins = falling(dice, count, 0.0, margin, 0.1)
    return log(
        count,
        loss=falling(dice, count, 0.5, 0.4, 0.01),
        grad_norm=gradient(dice, count),
        kl=np.abs(falling(dice, count, 0.0, 2.0, 0.2)),
        **{
            "rewards/chosen": 0.5 * margins,
            "rewards/rejected": -0.5 * margins,
            "rewards/margins": margins,
        }
        | {"logps/chosen": falling(dice, count, -200, -200 + change, 8)}
        | {"logps/rejected": falling(dice, count, -210, -225 + change, 8)},
    )


def reward_model(dice, count, last=0.8, loss=(0.72, 0.45), held=None):
    return log(
        count,
        held=held,
        loss=falling(dice, count, *loss, 0.02),
        grad_norm=gradient(dice, count, 8.0),
        accuracy=np.clip(falling(dice, count, 0.52, last, 0.05), 0, 1),
        margin=falling(dice, count, 0.01, 6 * (last - 0.5), 0.05),
        min_reward=falling(dice, count, -1, -3, 0.2),
        mean_reward=falling(dice, count, 0, 0.1, 0.1),
        max_reward=falling(dice, count, 1, 3, 0.2),
    )


def single_pairs(dice, count):
    """DPO with two pairs a step, every step logged."""
    margins = np.linspace(0, 2, count) * (1 + dice.standard_normal(count))
    margins[:3] = 0.0
    right = np.clip(
        np.round(2 / (1 + np.exp(-2 * margins)) + 0.7 * dice.standard_normal(count)) / 2, 0, 1
    )
    right[:3] = 0.0
    return pairs(
        dice,
        count,
        every=1,
        loss=np.log1p(np.exp(-margins)),
        **{"rewards/margins": margins, "rewards/accuracies": right},
    )


def warm(dice, count):
    """The first rows of DPO whose rate is still rising: margins are there, and tiny."""
    margins = 1e-4 * np.arange(count) ** 1.5 + 2e-4 * dice.standard_normal(count)
    right = 0.5 + 0.04 * dice.standard_normal(count)
    more = {
        "rewards/margins": margins,
        "rewards/accuracies": right,
        "learning_rate": 1e-7 * np.arange(1, count + 1),
    }
    return pairs(dice, count, chosen=-1.0, loss=LN2 - margins / 2, **more)


HEALTHY = {
    "SFT": sft,
    "SFT, three epochs, held-out loss up a little": lambda d, n: sft(
        d, n, epochs=3.0, held={"eval_loss": [1.55, 1.47, 1.5]}
    ),
    "SFT, packed": lambda d, n: sft(d, n, 1.35, 1.22, 0.01),
    "SFT of an adapter, a tiny fall": lambda d, n: sft(d, n, 2.05, 1.98, 0.03, rate=2e-4),
    "SFT of an adapter, a tiny fall in three epochs": lambda d, n: sft(
        d, n, 2.05, 2.0, 0.03, epochs=3.0
    ),
    "SFT on what is known": lambda d, n: sft(d, n, 1.9, 1.89, 0.05),
    "SFT, one row a step, one text a batch": lambda d, n: sft(
        d,
        2 * n,
        every=1,
        loss=falling(d, 2 * n, 1.5, 1.0, 0) * np.exp(0.5 * d.standard_normal(2 * n)),
    ),
    "SFT, learnt by heart": lambda d, n: sft(
        d,
        n,
        epochs=10.0,
        loss=2 * np.exp(-np.linspace(0, 8, n)),
        grad_norm=2 * np.exp(-np.linspace(0, 8, n)),
    ),
    "SFT, one spike": lambda d, n: sft(
        d, n, loss=falling(d, n, 2, 1.4, 0.04) + 2.0 * (np.arange(n) == n // 2)
    ),
    "SFT, harder texts later": lambda d, n: sft(d, n, 1.0, 1.12, 0.03),
    "SFT, two held-out sets": lambda d, n: sft(
        d,
        n,
        held={"eval_chat_loss": [1.6, 1.5, 1.45, 1.44], "eval_code_loss": [1.1, 1.05, 1.06, 1.08]},
    ),
    "SFT, accumulated, as it should be": lambda d, n: sft(
        d, n, held={"eval_loss": [1.7, 1.5, 1.45]}, config={"gradient_accumulation_steps": 8}
    ),
    "SFT, training texts are easier": lambda d, n: sft(
        d, n, 1.0, 0.8, 0.02, held={"eval_loss": [1.9, 1.85, 1.84]}
    ),
    "SFT, a gradient that is not logged": lambda d, n: sft(d, n, grad_norm=np.zeros(n)),
    "a classifier that grows surer": lambda d, n: log(
        n,
        loss=falling(d, n, 0.7, 0.05, 0.01),
        grad_norm=gradient(d, n),
        epochs=3.0,
        held={"eval_loss": [0.3, 0.35, 0.45, 0.5], "eval_accuracy": [0.85, 0.86, 0.88, 0.89]},
    ),
    "distillation": lambda d, n: sft(d, n, 0.2, 0.12, 0.01),
    "SFT, a stretch of harder texts": lambda d, n: curve(d, n, 0.6, 0.6, 0.6, 1.6, 1.6, 0.5, 0.5),
    "SFT, held-out texts are easier": lambda d, n: sft(
        d,
        n,
        2.0,
        1.9,
        0.02,
        held={"eval_loss": [1.0, 0.97, 0.95]},
        config={"gradient_accumulation_steps": 1},
    ),
    "a policy gradient's bare loss that grows": lambda d, n: log(
        n, loss=np.abs(0.02 * np.linspace(1, 20, n) * d.standard_normal(n)) * (-1) ** np.arange(n)
    ),
    "a policy gradient's bare loss": lambda d, n: log(
        n, loss=0.02 * d.standard_normal(n), grad_norm=gradient(d, n)
    ),
    "DPO, chosen answers fall": pairs,
    "DPO, slow": lambda d, n: pairs(d, n, 0.15, -1.0),
    "DPO, a held-out loss that rises as pairs are told apart": lambda d, n: pairs(
        d,
        n,
        6.0,
        epochs=3.0,
        held={"eval_loss": [0.6, 0.55, 0.63], "eval_rewards/accuracies": [0.68, 0.72, 0.74]},
    ),
    "DPO, warming up": lambda d, n: warm(d, n // 2),
    "DPO, warming up in 16 bits": lambda d, n: still(d, 8, learning_rate=1e-7 * np.arange(1, 9)),
    "DPO, two pairs a step": single_pairs,
    "DPO, hinge, saturated": lambda d, n: pairs(
        d,
        n,
        8.0,
        loss=np.maximum(0, 1 - np.linspace(0, 3, n)),
        grad_norm=np.maximum(0, 1 - np.linspace(0, 3, n)),
    ),
    "IPO": lambda d, n: pairs(d, n, 2.0, loss=falling(d, n, 11.0, 4.0, 0.2)),
    "ORPO": lambda d, n: without_reference(
        d, n, (1.6, 1.4), (0.44, 0.48), (-0.03, -0.01), (-1.3, -1.15)
    ),
    "SimPO": lambda d, n: without_reference(
        d, n, (1.4, 0.9), (0.5, 0.75), (-0.05, 0.5), (-0.3, -0.7)
    ),
    "CPO": lambda d, n: without_reference(d, n, (3.0, 2.4), (0.5, 0.6), (0.2, 0.9), (-250, -240)),
    "KTO": kto,
    "KTO, both fall alike": lambda d, n: kto(d, n, 0.0, -60),
    "a reward model": reward_model,
}


NOTES = {
    "SFT of an adapter, a tiny fall": "no-fall",
    "SFT of an adapter, a tiny fall in three epochs": "no-fall",
    "SFT on what is known": "no-fall",
    "SFT, a gradient that is not logged": "no-gradient",
    "a classifier that grows surer": "sft-loss",
    "a policy gradient's bare loss": "below-zero",
    "a policy gradient's bare loss that grows": "below-zero",
    "DPO, a held-out loss that rises as pairs are told apart": "sft-loss",
    "SimPO": "less-likely",
}
"""What may be said of some."""


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_logs_get_no_warning(name):
    for count in (16, 30, 60):
        for seed in range(4):
            said = found(HEALTHY[name](np.random.default_rng(seed), count))
            assert said.keys() <= {NOTES.get(name)}, (count, seed)
            assert {one.level for one in said.values()} <= {"note"}


def still(dice, count, paid=0.0, **more):
    """Pairs of equal reward: the margin is 0, and so is the accuracy."""
    zeros = np.zeros(count)
    columns = {
        "rewards/chosen": zeros + paid,
        "rewards/rejected": zeros + paid,
        "rewards/margins": zeros,
    }
    return pairs(
        dice, count, **({"loss": zeros + LN2, "rewards/accuracies": zeros} | columns | more)
    )


def coin(dice, count, **more):
    """Labels that say nothing."""
    margins, right = 0.05 * dice.standard_normal(count), 0.5 + 0.06 * dice.standard_normal(count)
    loss = LN2 + 0.01 + 0.01 * dice.standard_normal(count)
    return pairs(
        dice,
        count,
        **({"loss": loss, "rewards/margins": margins, "rewards/accuracies": right} | more),
    )


def swapped(dice, count):
    margins = falling(dice, count, 0.0, -2.0, 0.1, 1.0)
    right = np.clip(1 / (1 + np.exp(-1.5 * margins)) + 0.05 * dice.standard_normal(count), 0, 1)
    more = {"rewards/margins": margins, "rewards/accuracies": right}
    return pairs(dice, count, loss=np.log1p(np.exp(-margins)), **more)


def curve(dice, count, *points, **more):
    """SFT whose loss goes through points, evenly spaced."""
    loss = np.interp(np.linspace(0, 1, count), np.linspace(0, 1, len(points)), points)
    return sft(dice, count, loss=loss * np.exp(0.02 * dice.standard_normal(count)), **more)


BROKE, RATE, EPOCHS = "broke-at-first", "high-rate", "many-epochs"
SETS = {"eval_chat_loss": [2.2, 2.9, 3.6, 4.5], "eval_code_loss": [1.1, 1.4, 2.0, 2.6]}
FAULTY = {
    "frozen": (
        lambda d, n: curve(d, n, 0.4, 0.4, grad_norm=np.zeros(n)),
        "no-gradient",
        "fatal",
        "frozen",
    ),
    "frozen from the middle": (
        lambda d, n: curve(
            d, n, 2, 1.5, 1.5, 1.5, 1.5, grad_norm=np.where(np.arange(n) < n // 3, 1.0, 0.0)
        ),
        *("no-gradient", "fatal", "frozen"),
    ),
    "explodes in six rows": (
        lambda d, _: curve(d, 6, 0.69, 27, 200, 700, 1400),
        "sft-loss",
        "fatal",
        BROKE,
    ),
    "explodes": (lambda d, n: curve(d, n, 0.69, 27, 200, 700, 1400), "sft-loss", "fatal", BROKE),
    "broken at once": (
        lambda d, n: curve(d, n, 2.0, 9.5, 8.0, 7.0, 6.0, 5.7),
        "sft-loss",
        "fatal",
        BROKE,
    ),
    "jumps, and comes back": (
        lambda d, n: curve(d, n, 2, 2, 6, 5, 3, 2, 1.9, 1.8, 1.8),
        "sft-loss",
        "warning",
        RATE,
    ),
    "broken before the first row": (
        lambda d, n: curve(
            d, n, 10.8, 8.5, 7.5, 7.2, 7.1, rate=1e-2, mean_token_accuracy=0.04 + np.zeros(n)
        ),
        *("untrained", "warning", BROKE),
    ),
    "DPO, broken before the first row": (
        lambda d, n: pairs(
            d,
            n,
            **{
                "loss": 2 + 0.3 * d.standard_normal(n),
                "rewards/accuracies": 0.55 + 0.05 * d.standard_normal(n),
            }
            | {"rewards/chosen": falling(d, n, -10, -40, 3)},
        ),
        *("sft-loss", "warning", RATE),
    ),
    "rises": (lambda d, n: curve(d, n, 1.5, 1.6, 1.7, 1.9, 2.1, 2.1), "sft-loss", "warning", RATE),
    "stands still, and came twice": (
        lambda d, n: sft(d, 4 * n, 1.9, 1.9, 0.01, epochs=3.0),
        "no-fall",
        "warning",
        "low-rate",
    ),
    "held-out up in one epoch": (
        lambda d, n: sft(d, n, rate=1e-3, held={"eval_loss": [1.6, 1.7, 1.9, 2.1]}),
        *("sft-loss", "warning", RATE),
    ),
    "held-out up in epoch 3": (
        lambda d, n: sft(d, n, 1.4, 1.5, epochs=4.0, held={"eval_loss": [1.6, 1.5, 1.8, 2.3]}),
        *("sft-loss", "warning", EPOCHS),
    ),
    "two sets up": (lambda d, n: sft(d, n, epochs=4.0, held=SETS), "sft-loss", "warning", EPOCHS),
    "one set up, whose accuracy is another's": (
        lambda d, n: sft(
            d, n, epochs=4.0, held=SETS | {"eval_code_accuracy": [0.5, 0.6, 0.7, 0.8]}
        ),
        *("sft-loss", "warning", EPOCHS),
    ),
    "a divergence below 0": (
        lambda d, n: sft(d, n, 3e-4, 1e-4, 3e-4),
        "below-zero",
        "warning",
        "16-bits",
    ),
    "a cross-entropy below 0": (
        lambda d, n: log(n, loss=falling(d, n, 0.8, 0.4, 0.05) - 1.0 * (np.arange(n) % 5 == 4)),
        *("below-zero", "warning", "16-bits"),
    ),
    "all below 0": (lambda d, n: sft(d, n, -2.0, -1.4), "below-zero", "warning", "wrong-sign"),
    "summed over 4": (
        lambda d, n: sft(
            d,
            n,
            10.4,
            6.0,
            0.1,
            held={"eval_loss": [1.8, 1.6, 1.5]},
            config={"gradient_accumulation_steps": 4},
        ),
        *("summed-loss", "note", "logged-as-sum"),
    ),
    "summed over 8, as the log says": (
        lambda d, n: curve(d, n, 16, 14, 13, 12.5, 12, held={"eval_loss": [1.75, 1.63, 1.57, 1.5]}),
        *("summed-loss", "note", "logged-as-sum"),
    ),
    "its own reference": (still, "no-margin", "fatal", "reference-is-policy"),
    "beta 0": (lambda d, n: still(d, n, grad_norm=np.zeros(n)), "no-margin", "fatal", "beta-zero"),
    "one text in both": (
        lambda d, n: still(
            d,
            n,
            -0.2,
            grad_norm=np.zeros(n),
            **{"logps/chosen": np.full(n, -90), "logps/rejected": np.full(n, -90)},
        ),
        *("no-margin", "fatal", "same-texts"),
    ),
    "a reward model of equal texts": (
        lambda d, n: log(
            n, loss=np.full(n, LN2), grad_norm=np.zeros(n), accuracy=np.zeros(n), margin=np.zeros(n)
        ),
        *("no-margin", "fatal", "same-texts"),
    ),
    "ln 2, and no more is logged": (
        lambda d, n: log(n, loss=np.full(n, LN2)),
        "no-margin",
        "fatal",
        "same-texts",
    ),
    "a rate of nothing": (
        lambda d, n: pairs(d, n, 1e-5, 0.0, rate=1e-6, loss=np.full(n, LN2)),
        *("no-margin", "warning", "low-rate"),
    ),
    "labels at random": (coin, "no-margin", "warning", "random-labels"),
    "labels at random, in LlamaFactory's trainer_log.jsonl": (
        lambda d, n: log(
            n, loss=LN2 + 0.01 * d.standard_normal(n), accuracy=0.5 + 0.05 * d.standard_normal(n)
        ),
        *("no-margin", "warning", "random-labels"),
    ),
    "a reward model of random labels": (
        lambda d, n: reward_model(d, n, 0.5, (0.71, 0.7)),
        *("no-margin", "warning", "random-labels"),
    ),
    "pairs swapped": (swapped, "swapped-pairs", "fatal", "swapped"),
    "held-out pairs swapped": (
        lambda d, n: pairs(d, n, 4.0, held={"eval_rewards/accuracies": [0.45, 0.4, 0.3, 0.25]}),
        *("swapped-pairs", "warning", "one-swapped"),
    ),
    "a reward model of held-out pairs that are swapped": (
        lambda d, n: reward_model(d, n, 0.9, held={"eval_accuracy": [0.45, 0.4, 0.3, 0.25]}),
        *("swapped-pairs", "warning", "one-swapped"),
    ),
    "random labels by heart": (
        lambda d, n: pairs(
            d, n, 6.0, epochs=5.0, held={"eval_rewards/accuracies": [0.5, 0.52, 0.49, 0.51]}
        ),
        *("swapped-pairs", "warning", "random-labels"),
    ),
    "both fall": (lambda d, n: pairs(d, n, 4.0, -400.0), "less-likely", "warning", "pairs-alike"),
    "both fall some": (lambda d, n: pairs(d, n, 4.0, -80.0), "less-likely", "note", "pairs-alike"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_faults_are_named(name):
    make, check, level, cause = FAULTY[name]
    for count in (16, 30, 60):
        for seed in range(3):
            said = found(make(np.random.default_rng(seed), count))
            assert [one.level for one in said.values() if one.check == check] == [level], (
                count,
                seed,
                said,
            )
            assert said[check].causes[0] == cause
            fatal = {one for one, finding in said.items() if finding.level == "fatal"}
            assert fatal <= {check}


def stepped(dice, loss, wild):
    """Single steps of SFT, whose gradient is six times as large at some of them."""
    loss = np.array(loss) * np.exp(0.03 * dice.standard_normal(len(loss)))
    size = np.where(np.isin(np.arange(len(loss)), wild), 12.0, 2.0)
    return sft(dice, len(loss), every=1, rate=1e-3, loss=loss, grad_norm=gradient(dice, 60, size))


BLOCK = [9.0, 8.5, 8.0, 7.0, 6.0, 5.5, 5.0, 4.5, 4.0, 3.8, *np.linspace(3.6, 2.2, 10)]
"""A kind of rows that is learnt in twenty steps."""


@pytest.mark.parametrize(
    ("loss", "wild", "at", "cause"),
    [
        ([1.4, 9, 6, 7, 10, 9, 8, 7, 5, 4.6, 3.6, *np.full(49, 2.1)], range(1, 9), 2, RATE),
        ([0.9, *np.linspace(3.0, 1.0, 59)], (), None, ""),  # an easy first batch
        (3 * BLOCK, [*range(20, 26), *range(40, 46)], 21, "other-texts"),
        ([*BLOCK, *np.full(40, 2.1)], range(6), None, ""),
    ],
)
def test_a_loss_of_single_steps_that_jumps_early_or_for_few_rows(loss, wild, at, cause):
    for seed in range(4):
        said = found(stepped(np.random.default_rng(seed), loss, list(wild)))
        jumped = [said["sft-loss"]] if "sft-loss" in said else []
        assert [(one.level, one.code, one.since, one.causes[0]) for one in jumped] == (
            [("warning", "jumped", at, cause)] if at else []
        )


def test_the_first_line_is_of_what_is_trained_for():
    """Pairs by their accuracy, by their margin where that alone rises, and a loss where neither is
    logged."""
    dice = np.random.default_rng(0)
    right = np.ones(30)
    for history, series, better in (
        (pairs(dice, 30), "accuracy", True),
        (pairs(dice, 30, **{"rewards/accuracies": right}), "margin", True),
        (still(dice, 30), "accuracy", False),
        (kto(dice, 30), "margin", True),
        (sft(dice, 30), "loss", True),
    ):
        came = measure_outcome(history)
        assert (came.series, came.better) == (series, better)
    came = measure_outcome(swapped(dice, 30))
    assert came.worse
    assert came.summary.startswith("accuracy 0.")
    assert "fell (-0." in came.summary


def test_the_row_of_a_first_step_is_no_mean_of_several():
    dice = np.random.default_rng(0)
    loss = falling(dice, 31, 1.7, 1.2, 0.04, 6.0)
    alone, first = (
        sft(dice, 31, loss=loss),
        Series(np.array([1, *10 * np.arange(1, 32)]), np.array([2.6, *loss])),
    )
    came = measure_outcome(replace(alone, series=dict(alone.series) | {"loss": first}))
    assert (came.better, came.change.n, came.first) == (
        True,
        31,
        pytest.approx(float(np.mean(loss[:10])), abs=1e-9),
    )


def test_answers_that_are_right_refute_random_weights():
    high = sft(np.random.default_rng(0), 30, 10.4, 6.0)
    series = {name: one for name, one in high.series.items() if name != "token_accuracy"}
    assert "untrained" in found(replace(high, series=series))
    assert "untrained" not in found(
        replace(high, series=series | {"correctness/accuracy": Series(AT, np.full(30, 0.6))})
    )


@pytest.mark.parametrize("epochs", [2, 3, 5])
def test_stairs_of_epochs_are_no_slow_noise(epochs):
    """A loss that falls where texts come again fell for sure; epochs of noise change nothing of
    what is said."""
    for count in (40, 120, 300):
        for seed in range(3):
            dice = np.random.default_rng(seed)
            stair = np.floor(epochs * np.arange(count) / count)
            loss = (
                1.7
                + 0.2 * np.exp(-np.arange(count) / 4)
                - 0.25 * stair
                + 0.03 * dice.standard_normal(count)
            )
            came = measure_outcome(sft(dice, count, loss=loss, epochs=float(epochs)))
            assert came.better, came.summary
            assert came.change.mean == pytest.approx(came.last - came.first)
            slow = np.zeros(count)
            for at in range(1, count):
                slow[at] = 0.95 * slow[at - 1] + 0.03 * dice.standard_normal()
            one, several = (
                measure_outcome(sft(dice, count, loss=1.5 + slow, epochs=float(of)))
                for of in (1, epochs)
            )
            assert one.summary == several.summary
