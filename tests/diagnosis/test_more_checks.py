"""Each of the further checks: records with its fault, on which it speaks, and such without, on
which nobody does."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from plumbline.checks import messages
from plumbline.checks.check import Finding, examine
from plumbline.checks.diagnosis.history import Final, History, Sample, Series
from plumbline.checks.diagnosis.outcome import measure_outcome
from plumbline.checks.diagnosis.readers import read_histories
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.checks.diagnosis.rules.answers import detect_languages
from plumbline.checks.findings_output import findings_to_json, render_stages
from plumbline.checks.findings_output import render_findings as findings_said
from plumbline.records import Headline, Judged
from tests.diagnosis.test_checks import STEPS, healthy, said, with_series
from tests.reports.building import RL, SFT, Level, evaluation, references

WORDS = {
    "pt": (
        "O produto não chegou em casa, mas a loja foi muito gentil comigo e também mandou uma "
        "mensagem para você."
    ),
    "en": (
        "The product has not arrived at my house, but the shop was very kind and they have sent a "
        "message to you."
    ),
    "zh": "产品没有送到我家，但是商店非常友好，并且给你发了一条消息，谢谢大家的支持和帮助。",
    "json": '{"sentiment": "negativo", "score": 4.5}',
    "sql": (
        "SELECT name, sum(total) FROM orders WHERE state = 'SP' AND total > 5 GROUP BY name ORDER "
        "BY name"
    ),
}


def by_check(history):
    return {one.check: one for one in examine(history, CHECKS).findings}


def named(history, check):
    return [one for one in examine(history, CHECKS).findings if one.check == check]


def only(check, history):
    (found,) = named(history, check)
    return found


def notes(history):
    """Every check that said something, with its level; more than one finding of a check counts
    once."""
    return {one.check: one.level for one in examine(history, CHECKS).findings}


def without(history):
    """What was said of a history that is not said of a healthy one."""
    return {name: level for name, level in notes(history).items() if name not in notes(healthy())}


def drawn(text, prompt=None, *, steps=40, prompts=8, group=4, reward=None):
    """Completions of a run: `steps` steps with `prompts` prompts of their own, in groups."""
    dice = np.random.default_rng(0)
    return [
        Sample(
            step,
            prompt(step * prompts + n) if prompt else f"the question {step * prompts + n}",
            text(step / steps, step * prompts + n, copy),
            float(dice.random()) if reward is None else reward(step, n, copy),
        )
        for step in range(steps)
        for n in range(prompts)
        for copy in range(group)
    ]


def stored(samples, **over):
    return replace(healthy(**over), samples=samples)


def plain(place, number, copy):
    return f"the answer {number} in the {copy}th way, with {number * 7 % 31} more words"


def test_completions_of_a_usual_run_say_nothing():
    assert without(stored(drawn(plain))) == {}


# -- languages -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (WORDS["pt"], {"Portuguese"}),
        (WORDS["en"], {"English"}),
        (WORDS["zh"], {"Chinese or Japanese"}),
        (WORDS["en"] + WORDS["zh"], {"English", "Chinese or Japanese"}),
        (WORDS["json"], set()),
        (WORDS["sql"], set()),
        (
            (
                "def f(x):\n    for y in x:\n        if y is not None and y > 0:\n            "
                "return y "
                "in x"
            ),
            set(),
        ),
        ("let α be the angle, β = 2α", set()),
        ("", set()),
    ],
)
def test_the_language_of_a_text(text, found):
    assert detect_languages(text) == found


def speaks(text):
    """A run whose completions are these texts, by the place in the run and the prompt."""
    return stored(drawn(lambda place, n, copy: text(place, n) + f" {n} {copy}"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            lambda place, n: WORDS["en" if place > 0.6 and n % 3 else "pt"],
            {"wrong-language": "warning"},
        ),
        (
            lambda place, n: WORDS["pt"] + (WORDS["zh"] if place > 0.6 else ""),
            {"wrong-language": "warning"},
        ),
        # Two languages from the start are what the task asks for.
        (lambda place, n: WORDS["pt" if n % 2 else "en"], {}),
        (lambda place, n: WORDS["en" if n % (2 if place > 0.5 else 6) == 0 else "pt"], {}),
        (lambda place, n: WORDS["sql" if place > 0.5 else "json"], {"reward-hacking": "note"}),
    ],
)
def test_another_language_than_at_first_is_named(text, found):
    assert without(speaks(text)) == found


def test_another_language_than_that_of_gold_answers_is_fatal():
    gold = references("test", 40)["oracle"]
    gold = replace(gold, rows=tuple(replace(row, completion=WORDS["pt"]) for row in gold.rows))
    oracle = Final(stage="reference", split="test", mode="oracle", task="", evaluation=gold)
    wrong = speaks(lambda place, n: WORDS["en"])
    assert without(wrong) == {}
    assert without(replace(wrong, finals=[oracle])) == {"wrong-language": "fatal"}
    assert without(replace(speaks(lambda place, n: WORDS["pt"]), finals=[oracle])) == {}


# -- prompts ---------------------------------------------------------------------------------------


def chat(n):
    return (
        f"<|im_start|>user\nquestion {n}, {'word ' * (n % 40)}<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        (chat, {}),
        (lambda n: f"<s>[INST] question {n} [/INST]", {}),
        (lambda n: f"<s> <s>[INST] question {n} [/INST]", {"prompts": "warning"}),
        (lambda n: chat(n) if n < 150 else f"[INST] question {n} [/INST]", {"prompts": "warning"}),
        (lambda n: chat(n) if n % 3 else f"[INST] question {n} [/INST]", {}),
        (
            lambda n: chat(n) if n % 9 else f"w{n}ord {'word ' * (50 + n % 3)}" + chat(n)[-32:],
            {"prompts": "warning"},
        ),
        (
            lambda n: chat(n) if n % 9 else f"<|im_start|>user\n{'word ' * (60 + n % 3)} w{n}",
            {"prompts": "warning"},
        ),
        # Of two kinds of prompts the one without the template's beginning is longer, and has a
        # beginning of its own.
        (
            lambda n: (
                chat(n) if n % 9 else f"Read this passage. {n} {'word ' * 60}" + chat(n)[-32:]
            ),
            {},
        ),
        (lambda n: chat(n) if n % 9 else f"{n} passage {'word ' * (60 + n)}" + chat(n)[-32:], {}),
    ],
)
def test_prompts_that_are_not_as_they_should_be(prompt, found):
    assert without(stored(drawn(plain, prompt))) == found


def test_ids_are_no_prompts():
    examined = examine(stored(drawn(plain, lambda n: f"id-{n}")), CHECKS)
    assert examined.not_run["prompts"] == ["prompts|frac_prompts_truncated"]


def test_a_logged_share_of_cut_prompts():
    assert without(with_series(healthy(), frac_prompts_truncated=np.full(STEPS, 0.2))) == {
        "prompts": "warning"
    }
    assert without(with_series(healthy(), frac_prompts_truncated=np.full(STEPS, 0.001))) == {}


def without_epochs(history):
    return replace(history, series={k: v for k, v in history.series.items() if k != "epoch"})


def test_prompts_that_come_again_too_early():
    epoch = {"epoch": lambda v, p: p}
    assert without(stored(drawn(plain), **epoch)) == {}
    twice = stored(drawn(plain, lambda n: f"question {n if n % 2 else n % 20}"), **epoch)
    assert without(twice) == {"repeated-prompts": "warning"}
    # another sort of epoch
    assert without(stored(drawn(plain, lambda n: f"question {n % 16}"), **epoch)) == {}
    ten = stored(
        drawn(plain, lambda n: f"question {n % 10}", steps=120), epoch=lambda v, p: 0.9 * p
    )
    assert without(ten) == {"repeated-prompts": "warning"}
    three = stored(drawn(plain, lambda n: f"question {n % 107}"), epoch=lambda v, p: 3 * p)
    assert notes(three)["repeated-prompts"] == "note"  # not shuffled
    dice = np.random.default_rng(0)
    order = np.concatenate([dice.permutation(107) for _ in range(3)])
    shuffled = stored(drawn(plain, lambda n: f"question {order[n]}"), epoch=lambda v, p: 3 * p)
    assert without(shuffled) == {}
    assert without(without_epochs(shuffled)) == {}
    assert without(without_epochs(twice)) == {"repeated-prompts": "warning"}
    for times in (1, 2, 3):  # out of all, each time
        anew = dice.integers(0, 320 // times, 320)
        unknown = stored(drawn(plain, lambda n, anew=anew: f"question {anew[n]}"))
        assert without(without_epochs(unknown)) == {}
        again = stored(
            drawn(plain, lambda n, anew=anew: f"question {anew[n]}"),
            epoch=lambda v, p, e=times: e * p,
        )
        assert without(again) == {}
    few = stored(drawn(plain, lambda n: f"question {n % 4}"), **epoch)
    assert without(few) == {"repeated-prompts": "note"}


def test_a_resume_that_begins_the_data_anew_is_dated():
    again = stored(
        drawn(plain, lambda n: f"question {n if n < 160 else n - 160}"), epoch=lambda v, p: 2 * p
    )
    assert notes(again)["repeated-prompts"] == "note"  # all of the data came before
    later = stored(
        drawn(plain, lambda n: f"question {n if n < 240 else n - 160}"), epoch=lambda v, p: 2 * p
    )
    found = only("repeated-prompts", later)
    assert (found.level, found.since) == ("warning", 30)


def test_rollouts_that_are_used_again_are_not_drawn_again():
    """TRL stores them in every step that uses them."""
    samples = drawn(plain, steps=20)
    used = [replace(one, step=2 * one.step + more) for one in samples for more in (0, 1)]
    used.sort(key=lambda one: one.step)
    assert without(stored(used, epoch=lambda v, p: p)) == {}


def test_prompts_that_never_taught_anything():
    def prompt(n):
        return f"question {n % 24}"

    stuck = drawn(plain, prompt, reward=lambda step, n, copy: 0.0 if n < 6 else copy / 4)
    often = {"epoch": lambda v, p: 14 * p}
    assert without(stored(stuck, **often)) == {
        "stuck-prompts": "note",
        "zero-variance-groups": "warning",
    }
    fine = drawn(plain, prompt, reward=lambda step, n, copy: 0.0 if n < 2 else copy / 4)
    assert without(stored(fine, **often)) == {}


# -- completions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "found"),
    [
        ("<|im_end|>", {}),
        ("<|im_end|><|endoftext|><|endoftext|>\n", {}),
        (
            (
                "<|im_end|>\n<|im_start|>user\nand "
                "now?<|im_end|>\n<|im_start|>assistant\nfine<|im_end|>"
            ),
            {},
        ),
        ("<|im_end|>\nHuman: and what is more", {"goes-on": "warning"}),
        ("</s> the answer is", {"goes-on": "warning"}),
    ],
)
def test_completions_that_go_on_after_their_end(end, found):
    assert without(stored(drawn(lambda *at: plain(*at) + end))) == found


def test_the_same_words_again_and_again():
    def loop(place, n, copy):
        said = f"the review number {n} says that the product is good and cheap. "
        return f"{n} {copy}: " + said * (1 if n % 3 else 20)

    def table(place, n, copy):
        return "\n".join(f"| {row} | city {row * (n + copy) % 97} |" for row in range(40))

    assert without(stored(drawn(loop))) == {"degenerate-output": "warning"}
    assert without(stored(drawn(table))) == {}


def test_a_reward_of_length():
    def words(place, n, copy):
        return "word " * int(20 + 40 * place + 3 * (n * 7 + copy * 3) % 11)

    def paid(samples, noise):
        dice = np.random.default_rng(1)
        return [
            replace(one, reward=len(one.text) / 400 + noise * dice.standard_normal())
            for one in samples
        ]

    length = {"completion_length": lambda v, p: 20 + 40 * p}
    assert notes(stored(paid(drawn(words), 0.001), **length))["length-paid"] == "note"
    assert "length-paid" not in notes(stored(paid(drawn(words), 0.2), **length))
    assert "length-paid" not in notes(
        stored(paid(drawn(words), 0.001), completion_length=lambda v, p: 30 + 0 * p)
    )


# -- metrics ---------------------------------------------------------------------------------------


def zero_at(*steps):
    return lambda v, p: np.where(np.isin(np.arange(len(p)), steps), 0.0, v)


@pytest.mark.parametrize(
    ("over", "found"),
    [
        ({"reward": zero_at(50)}, {"outage": "warning"}),
        ({"reward": zero_at(50, 51, 80)}, {"outage": "warning"}),
        ({"reward/form": zero_at(70)}, {"outage": "warning"}),
        # Four answers a step that are right or wrong: a step without a right one is nothing.
        ({"reward": lambda v, p: np.random.default_rng(3).binomial(4, 0.6, len(p)) / 4}, {}),
        (
            {
                "reward": lambda v, p: (
                    np.random.default_rng(3).binomial(1, 0.5, (len(p), 2)).mean(axis=1)
                )
            },
            {},
        ),
    ],
)
def test_steps_that_nobody_judged(over, found):
    levels = notes(healthy(**over))
    assert {name: level for name, level in levels.items() if name == "outage"} == found


def test_a_mean_of_0_over_answers_that_differ_is_no_outage():
    """One of two answers earned 1 and the other -1, as in a public log."""
    away = with_series(
        healthy(**{"reward/form": zero_at(70)}), **{"reward_std/form": np.full(STEPS, 0.1)}
    )
    assert without(away) == {}
    level, at = healthy()["reward/form"].values, np.arange(STEPS)
    below = with_series(healthy(), **{"reward/form": np.where(at == 70, 0, level - (at == 3))})
    assert without(below) == {}


def test_binary_rewards_of_small_batches_are_no_outage():
    found = set()
    for seed in range(40):
        dice = np.random.default_rng(seed)
        count, right = int(dice.integers(2, 17)), dice.uniform(0.1, 0.9)
        found |= {
            one for one, _ in said(healthy(seed, reward=dice.binomial(count, right, STEPS) / count))
        }
    assert "outage" not in found


def windows(steps, rows):
    """A log of TRL: a loss at every step, a reward at those that draw."""
    series = {
        name: one
        for name, one in healthy(steps=steps).series.items()
        if not name.startswith(("eval/", "reward/"))
    }
    at = np.array(rows)
    series["reward"] = Series(at, 0.4 + 0.002 * at + 0.01 * np.sin(at))
    return replace(healthy(), series=series, settings={"steps": steps})


def test_a_resume_within_a_window_is_dated():
    assert without(windows(96, range(1, 97, 8))) == {}
    cut = windows(96, [1, 9, 17, 25, 28, 36, 44, 52, 60, 68, 76, 84, 92])
    assert without(cut) == {"window-cut": "warning"}
    found = only("window-cut", cut)
    assert found.since == 28
    assert without(windows(96, range(1, 97))) == {}


def test_a_model_that_knows_nothing_at_first():
    at, place = np.arange(1, STEPS + 1), np.linspace(0, 1, STEPS)

    def supervised(first, accuracy=None):
        series = {
            "loss": Series(at, first * np.exp(-2 * place)),
            "learning_rate": Series(at, np.full(STEPS, 1e-4)),
        }
        if accuracy is not None:
            series["token_accuracy"] = Series(at, accuracy + 0.3 * place)
        return History(origin="trl", name="sft", kind="sft", series=series)

    assert notes(supervised(10.8, 0.0001)) == {"untrained": "warning"}
    assert notes(supervised(10.8)) == {"untrained": "note"}
    # a sum over steps, as some versions of transformers logged it
    assert notes(supervised(10.8, 0.6)) == {}
    assert notes(supervised(2.3, 0.01)) == {}
    # sure of other texts, as a model of another task is; random weights are unsure
    trained, random = (
        with_series(supervised(9.5, 0.01), entropy=one * np.exp(-place)) for one in (1.4, 9.5)
    )
    assert (notes(trained), notes(random)) == ({}, {"untrained": "warning"})
    assert without(healthy(entropy=lambda v, p: 10.8 - p)) == {"untrained": "warning"}


@pytest.mark.parametrize(
    ("entropy", "temperature", "causes"),
    [
        (5.2, None, ("high-temperature", "not-loaded", "other-tokenizer")),
        (5.2, 1.0, ("not-loaded", "other-tokenizer")),
        (5.2, 4.0, ("high-temperature", "not-loaded", "other-tokenizer")),
        (3.0, 4.0, None),
    ],
)
def test_answers_that_are_drawn_nearly_at_random(entropy, temperature, causes):
    drawn = healthy(entropy=lambda v, p: entropy - 0.2 * p)
    if temperature is not None:
        drawn = replace(drawn, settings={"sampling.temperature": temperature})
    found = named(drawn, "untrained")
    assert [(one.level, one.code, one.causes) for one in found] == (
        [("warning", "boils", causes)] if causes else []
    )


@pytest.mark.parametrize(("cached", "said"), [(10, True), (8, False), (0, False)])
def test_a_reward_of_the_prompt_alone(cached, said):
    """Prompts that come again, and answers that differ: they earn what their prompt earns, or as
    they are."""
    dice = np.random.default_rng(0)
    samples = [
        Sample(step, f"name {n}", word, float(n % 2 if n < cached else word == "red"), None)
        for step in range(1, 41)
        for n in range(10)
        for word in dice.choice(["red", "blue", "green"], 4).tolist()
    ]
    silent = replace(
        healthy(grad_norm=lambda v, p: 0 * p, reward=lambda v, p: 0.5 + 0.1 * np.sin(90 * p)),
        samples=samples,
    )
    found = named(silent, "no-signal")
    assert [one.level for one in found] == ["fatal"]
    assert [one.causes[0] == "by-prompt" for one in found] == [said]


def test_a_ratio_of_which_only_the_cap_is_seen():
    dice = np.random.default_rng(0)
    ratios = 1 + np.abs(dice.standard_normal(STEPS))
    assert without(with_series(healthy(), importance_ratio_max=np.minimum(ratios + 1.5, 2.0))) == {
        "ratio-capped": "note"
    }
    assert without(with_series(healthy(), importance_ratio_max=ratios)) == {}


def test_parts_of_different_scales():
    parts = {
        "reward": lambda v, p: 30.5 + 0 * p,
        "reward/right": lambda v, p: 0.5 + 0.01 * np.sin(99 * p),
    }
    history = healthy(**parts)
    total = history["reward/right"].values + history["reward/form"].values
    spread = {"reward_std/right": np.full(STEPS, 0.4), "reward_std/form": np.full(STEPS, 0.3)}
    assert without(with_series(history, reward=total, **spread)) == {}
    spread["reward_std/form"] = np.full(STEPS, 9.0)
    assert without(with_series(history, reward=total, **spread)) == {"dominant-part": "note"}


def test_a_task_that_never_earns():
    level = healthy()["reward"].values
    assert without(with_series(healthy(), **{"task/one": level, "task/two": 0 * level})) == {
        "dead-task": "warning"
    }
    assert without(with_series(healthy(), **{"task/one": level, "task/two": level / 9})) == {}


def test_how_much_of_each_task_was_seen():
    """The commerce log: a plateau, and of two jobs fewer than 50 examples were seen."""
    place = np.linspace(0, 1, STEPS)
    rare = with_series(healthy(), **{"epoch/push": 0.1 * place, "epoch/sql_qa": 2 * place})
    found = only("coverage", rare)
    assert "push" in found.what


def test_a_loss_of_0_is_explained():
    zero = {"loss": lambda v, p: 0 * p}
    assert notes(healthy(**zero))["loss-zero"] == "note"
    assert (
        notes(healthy(loss=lambda v, p: np.where(p < 0.05, 0.0, 0.01 * p)))["loss-zero"] == "note"
    )
    # there it is a fault
    assert "loss-zero" not in notes(healthy(grad_norm=lambda v, p: 0 * p, **zero))
    assert "loss-zero" not in notes(healthy())


def test_an_evaluation_that_scatters_more_than_it_rose():
    scatter = 0.4 + 0.05 * np.random.default_rng(5).standard_normal(STEPS)
    bare = {name: one for name, one in healthy().series.items() if "eval" not in name}
    for name in ("eval/reward", "eval/gsm8k", "eval/reward/gsm8k"):
        flat = with_series(replace(healthy(), series=bare), **{name: scatter})
        assert notes(flat)["eval-noise"] == "note"
    assert [seed for seed in range(20) if "eval-noise" in notes(healthy(seed))] == []


def test_rates_of_0_from_the_start():
    assert without(healthy(learning_rate=lambda v, p: 0 * p)) == {"rate-exhausted": "fatal"}


# -- what other series refute, and faults of shape -------------------------------------------------


def log(over, *, kind="rl", settings=None, rounding=None, steps=200, seed=7):
    """A log that stands still, with some series of another form; over takes noise, places and
    steps."""
    dice = np.random.default_rng(seed)
    place, at = np.linspace(0, 1, steps), np.arange(1, steps + 1)

    def noise(size):
        return size * dice.standard_normal(steps)

    still = {
        "reward": 0.4 + noise(0.04),
        "reward_std": 0.3 + noise(0.02),
        "frac_reward_zero_std": np.clip(0.2 + noise(0.05), 0, 1),
        "loss": noise(0.01),
        "grad_norm": 0.3 + np.abs(noise(0.05)),
        "learning_rate": 1e-5,
        "entropy": 0.6 + noise(0.03),
        "completion_length": 400 + noise(25),
        "kl": 0.002 + 0.004 * place,
    }
    falls = {
        "loss": 2 - 1.2 * place + noise(0.1),
        "grad_norm": 1 + noise(0.1),
        "entropy": 1.5 + noise(0.1),
    }
    values = (still if kind == "rl" else falls) | {
        name: one(noise, place, at) if callable(one) else one for name, one in over.items()
    }
    digits = rounding or {}
    series = {
        name: Series(at, one * np.ones(steps), digits.get(name, 0.0))
        for name, one in values.items()
        if one is not None
    }
    return History(origin="trl", name=kind, kind=kind, series=series, settings=settings or {})


def dead(every, *names):
    """Series that are 0 at every n-th step."""

    def at_zero(name):
        level = {"loss": 1.5, "grad_norm": 0.8, "entropy": 0.6}[name]
        return lambda noise, p, at: np.where(at % every == 0, 0.0, level + noise(0.05))

    return {name: at_zero(name) for name in names}


def two_parts(accuracy, spread, share):
    """A form that all earn and an accuracy, which are added."""
    right = {
        "reward/accuracy": lambda noise, p, at: accuracy + 0.02 * np.sin(at),
        "reward_std/accuracy": spread,
    }
    total = {
        "reward": lambda noise, p, at: accuracy + 1 + 0.02 * np.sin(at),
        "frac_reward_zero_std": share,
    }
    return {**right, **total, "reward/form": 1.0, "reward_std/form": 0.0}


LORA = {"model.lora.rank": 16}
ROSE = {"reward": lambda noise, p, at: 0.3 + 0.3 * p + noise(0.04)}
AWAY = {"kl": lambda noise, p, at: 0.0005 * np.exp(6.5 * p)}
JUMPS = {
    "reward": lambda noise, p, at: 0.5 - 0.25 * (at >= 120) + noise(0.03),
    "completion_length": lambda noise, p, at: 400 + 200 * (at >= 120) + noise(20),
}
FLAT_KL = lambda noise, p, at: 7e-4 * (1 + 0.2 * np.sin(at))  # noqa: E731 - of a policy that goes nowhere
QUICK = {
    "reward": lambda noise, p, at: 0.2 + 0.6 / (1 + np.exp((80 - at) / 4)) + noise(0.03),
    "completion_length": lambda noise, p, at: 400 - 200 / (1 + np.exp((80 - at) / 4)) + noise(20),
}
OTHER = "other-sampl|old-weights|temperature"
EQUAL = "tells-nothing-apart|at-its-top"
SHAPES = {
    # name: (series, {check: words that it says, level first}, words that nothing says)
    "products over answers": (
        {"importance_ratio_mean": 0.3, "importance_ratio_max": 2.0, "logprob_gap": 0.012},
        {"gap": "warning products product-of-small"},
        OTHER,
    ),
    "products, a small KL": (
        {"importance_ratio_mean": 0.4, "mismatch_kl": 8e-4},
        {"gap": "warning products product-of-small"},
        OTHER,
    ),
    "products without a cap": (
        {"importance_ratio_mean": 1.0, "importance_ratio_max": 5e3, "logprob_gap": 0.01},
        {"gap": "warning products product-of-small"},
        OTHER,
    ),
    "filters of the sampler": (
        {"importance_ratio_mean": lambda noise, p, at: 0.895 + noise(0.01), "logprob_gap": 0.1},
        {"gap": "warning cut filters .*ratio=0.89"},
        f"{OTHER}|product|raw-record",
    ),
    "a record before the temperature": (
        {"importance_ratio_mean": lambda noise, p, at: 1.08 + noise(0.01), "logprob_gap": 0.07},
        {"gap": "warning other-record raw-record"},
        f"{OTHER}|filters",
    ),
    "old weights that draw apart": (
        {
            "importance_ratio_mean": lambda noise, p, at: 1 - 0.2 * p + noise(0.005),
            "logprob_gap": lambda noise, p, at: 0.01 + 0.4 * p,
        },
        {"gap": "fatal (wide|widened) old-weights"},
        "cut|filters",
    ),
    "ratios around 1": (
        {"importance_ratio_mean": lambda noise, p, at: 1 + noise(0.04), "logprob_gap": 0.02},
        {"no-rise": "warning no-rise"},
        "cut|other-record",
    ),
    "answers a little off": (
        {"importance_ratio_mean": lambda noise, p, at: 0.9 + noise(0.02), "logprob_gap": 0.002},
        {"no-rise": "warning no-rise"},
        "cut|other-record",
    ),
    "ratios alone": (
        {"importance_ratio_mean": 0.4},
        {"gap": "warning far-ratios other-sampler product "},
        "product-of-small",
    ),
    "ratios beside a gap": (
        {"importance_ratio_mean": 0.4, "logprob_gap": 0.2},
        {"gap": "fatal wide other-sampling"},
        "product",
    ),
    "a KL of the sampler that grows": (
        {"mismatch_kl": lambda noise, p, at: 6e-4 * np.exp(5.5 * p)},
        {"gap": "fatal widened old-weights.*first=0.000"},
        "sharper-policy",
    ),
    "a KL of the sampler as usual": (
        {"mismatch_kl": lambda noise, p, at: 5e-4 + 1.5e-3 * p, **ROSE},
        {},
        " gap$",
    ),
    "no gradient, though rewards differ": (
        {"grad_norm": 0.0},
        {"no-signal": "fatal gradient-lost"},
        EQUAL,
    ),
    "no gradient, half of the groups": (
        {"grad_norm": 0.0, "frac_reward_zero_std": 0.54, "reward": 0.72},
        {"no-signal": "fatal gradient-lost.*spread=0.4[56]", "zero-variance-groups": "share=0.54"},
        f"{EQUAL}|follows.*zero",
    ),
    "no gradient, a spread of the batch": (
        {
            "grad_norm": 0.0,
            "frac_reward_zero_std": 0.0,
            "reward/x": 0.4,
            "reward_std/x": 0.3,
            "reward_std": 0.3,
        },
        {"no-signal": "fatal.*not-trained.*mixed=True"},
        EQUAL,
    ),
    "one text a prompt": (
        {
            "grad_norm": 0.0,
            "frac_reward_zero_std": 1.0,
            "reward/x": 0.4,
            "reward_std/x": 0.3,
            "reward_std": 0.3,
        },
        {"no-signal": "fatal.*alike-in-batch.*mixed=True"},
        "not-trained|tells-nothing",
    ),
    "parts that cancel": (
        {
            **dict.fromkeys(("grad_norm", "reward_std"), 0.0),
            **dict.fromkeys(("reward", "frac_reward_zero_std"), 1.0),
            "reward/right": lambda noise, p, at: 0.5 + 0.1 * np.sin(at),
            "reward/wrong": lambda noise, p, at: 0.5 - 0.1 * np.sin(at),
        },
        {"no-signal": "fatal equal-rewards parts-cancel"},
        "tells-nothing",
    ),
    "rarely earned": (
        {
            **{
                name: lambda noise, p, at: 0.0 + (at % 9 == 0) / 4
                for name in ("grad_norm", "reward", "reward/x")
            },
            "reward_std": lambda noise, p, at: 0.0 + (at % 9 == 0) / 4,
            "frac_reward_zero_std": lambda noise, p, at: 1.0 - (at % 9 == 0) / 8,
        },
        {"no-signal": "warning.*too-hard", "zero-variance-groups": "warning"},
        "cancel|always-zero",
    ),
    "pairs that learn": (
        {**ROSE, "frac_reward_zero_std": 0.65},
        {"zero-variance-groups": "note"},
        "rose.*but",
    ),
    "hard for nearly all groups": (
        {"reward": 0.02, "frac_reward_zero_std": 0.65},
        {"zero-variance-groups": "warning too-hard hard"},
        "note solved|warning solved",
    ),
    "solved from the start": (
        {"reward": 0.99, "frac_reward_zero_std": 0.97},
        {"zero-variance-groups": "warning"},
        "too low",
    ),
    "a KL that stands": (
        {
            "kl": lambda noise, p, at: 4e-4 * (1.05 - np.exp(-30 * p)),
            "loss": lambda noise, p, at: noise(0.01),
        },
        {"no-rise": "warning.*kl-stands=0.0004"},
        "rate-if-adapter.*kl-",
    ),
    "a KL that stands, and no rate is known": (
        {"kl": lambda noise, p, at: 4e-4 * (1.05 - np.exp(-30 * p)), "learning_rate": None},
        {"no-rise": "warning.*kl-still"},
        "kl-stands",
    ),
    "no gradient, and it learns": (
        {"grad_norm": 0.0, **ROSE},
        {"no-signal": "note other-gradient norm-misread"},
        "not-trained|gradient-lost",
    ),
    "no gradient of three decimals": ({"grad_norm": 0.0}, {"no-rise": "warning"}, "no-signal"),
    "half of two": (
        two_parts(0.5, 0.5, 0.85),
        {"zero-variance-groups": "warning between.*highest=2"},
        " solved|ceiling",
    ),
    "nearly two": (
        two_parts(0.95, 0.22, 0.85),
        {"zero-variance-groups": "warning solved.*lost=170"},
        "no-rise",
    ),
    "1.5 of what": (
        {"reward": 1.5, "frac_reward_zero_std": 0.85},
        {"zero-variance-groups": "warning unknown-scale"},
        "(note|warning) solved",
    ),
    "a second rise": (
        {
            "reward": lambda noise, p, at: (
                np.where(p < 0.4, 0.3 + 2.4 * p, 1.02 + 0.6 * p) + noise(0.03)
            )
        },
        {},
        "plateau",
    ),
    "a plateau at 1.5": (
        {"reward": lambda noise, p, at: np.minimum(0.3 + 3 * p, 1.5) + noise(0.03)},
        {"plateau": "note.*plateau=1.5|note.*plateau=1.49"},
        "at-ceiling",
    ),
    "printed sums": (
        {
            name: np.round(np.array(one), 4)
            for name, one in (("reward/a", 0.41236), ("reward/b", 0.8112))
        }
        | {"reward": lambda noise, p, at: np.where(at % 3, 1.2236, 1.223)},
        {"no-rise": "warning"},
        "less-than-parts",
    ),
    "every fourth batch has no target": (
        dead(4, "loss", "grad_norm", "entropy"),
        {"loss-zero": "warning dead-steps no-target.*share of steps=0.25.*every=4"},
        "nan-as-zero",
    ),
    "some batches have no target": (
        dead(10, "loss", "grad_norm"),
        {"loss-zero": "warning.*share of steps=0.1 "},
        "overflow",
    ),
    "batches whose loss is a mean of nothing": (
        {**dead(8, "loss"), "grad_norm": lambda noise, p, at: np.where(at % 8, 1.0, np.nan)},
        {"not-finite": "warning no-target no-target"},
        "scaler|high-rate",
    ),
    "a loss of 0 for good": (
        {"loss": lambda noise, p, at: np.where(at > 80, 0.0, 1.5 + noise(0.1)), "grad_norm": 1.0},
        {"loss-zero": "fatal zero-from-step nan-as-zero"},
        "masked",
    ),
    "a loss that is learnt by heart": (
        {
            "loss": lambda noise, p, at: np.maximum(0.0, 0.5 - p),
            "grad_norm": lambda noise, p, at: np.exp(-30 * p),
        },
        {},
        "loss-zero",
    ),
    "every third step of RL is dead": (
        dead(3, "loss", "grad_norm", "entropy"),
        {"loss-zero": "warning.*masked-answers.*every=3"},
        "scaler",
    ),
    "groups without a spread are silent": (
        {
            **dead(3, "loss", "grad_norm"),
            **ROSE,
            "reward_std": lambda noise, p, at: np.where(at % 3, 0.3, 0.0),
        },
        {},
        "loss-zero",
    ),
    "solved groups under a deviation that is the batch's": (
        {
            **dead(7, "loss", "grad_norm"),
            **ROSE,
            "reward_std": 0.3,
            "frac_reward_zero_std": lambda noise, p, at: np.where(at % 7, 0.3, 1.0),
        },
        {},
        "loss-zero",
    ),
    "regular dead steps, whatever groups are": (
        {**dead(3, "loss", "grad_norm"), "reward_std": None, "frac_reward_zero_std": None},
        {"loss-zero": "warning.*every=3"},
        "scaler",
    ),
    "two series jump": (
        JUMPS,
        {"jump": "warning reward-drops resume", "reward-falls": "data-changed.*jump=120"},
        " kl ",
    ),
    "one series jumps": ({"completion_length": JUMPS["completion_length"], **ROSE}, {}, "jump"),
    "it learns in twenty steps": (QUICK, {}, "jump"),
    "a low rate for an adapter": (
        {"learning_rate": 5e-7},
        {"small-updates": "warning.*rate-for-all-weights"},
        "no-way",
    ),
    "a low rate that teaches": ({"learning_rate": 8e-7, **ROSE}, {}, "small-updates"),
    "a warmup of an adapter": ({"learning_rate": 5e-7}, {"no-rise": "warning"}, "adapter"),
    "samples do not follow": (
        AWAY,
        {"kl": "warning unseen-by-samples old-weights"},
        "high-rate",
    ),
    "samples follow": ({**AWAY, **ROSE}, {}, "unseen-by-samples"),
    "samples follow in their entropy": (
        {**AWAY, "entropy": lambda noise, p, at: 0.6 - 0.4 * p + noise(0.03)},
        {"no-rise": "warning"},
        "unseen-by-samples",
    ),
    "the sampler agrees": ({**AWAY, "logprob_gap": 0.01}, {"no-rise": "warning"}, "old-weights"),
    "a reward that falls, and the sampler agrees": (
        {"reward": lambda noise, p, at: 0.5 - 0.45 * p + noise(0.03), "logprob_gap": 0.02},
        {"reward-falls": "fatal.*high-rate"},
        " gap ",
    ),
    "length without a gain": (
        {"completion_length": lambda noise, p, at: 200 + 1500 * p**2 + noise(20)},
        {"length": "warning grew charged-less.*earns more=False"},
        "length-paid",
    ),
    "all of a longer answer is there": (
        {
            "completion_length": lambda noise, p, at: 200 + 1500 * p**2 + noise(20),
            "frac_truncated": 0.0,
        },
        {"length": "warning"},
        "end-unlearnt",
    ),
    "the KL costs too much": ({}, {"no-rise": "warning.*kl-costs=5"}, "kl-still"),
    "the loss is the KL": (
        {"kl": FLAT_KL, "loss": lambda noise, p, at: 5 * FLAT_KL(None, p, at)},
        {"no-rise": "warning.*loss-is-kl=5"},
        "kl-still",
    ),
    "the KL is taken back": (
        {"kl": lambda noise, p, at: 0.008 * np.exp(-2 * p)},
        {"no-rise": r"warning.*kl-taken-back=0.001.*first=0.005"},
        "kl-still",
    ),
    "a usual KL": (
        {"kl": FLAT_KL},
        {"no-rise": "warning.*kl-still"},
        "kl-costs|loss-is-kl|kl-taken|kl-stands",
    ),
    "a low rate": ({"learning_rate": 5e-7}, {"no-rise": "warning.*low-rate=5e-07"}, "adapter"),
    "a low rate that moves the KL": (
        {"learning_rate": 5e-7, "kl": lambda noise, p, at: 0.05 * p},
        {"no-rise": "warning"},
        "low-rate",
    ),
    "a low rate that turns the policy": (
        {"learning_rate": 5e-6, "kl": None, "kl_update": 0.15},
        {"no-rise": "warning"},
        "rate-if-adapter",
    ),
    "a low rate that clips": (
        {"learning_rate": 5e-7, "clip_fraction": 0.05},
        {"no-rise": "warning"},
        "low-rate",
    ),
    "no answer ends": (
        {
            "num_eos_tokens": 0.0,
            "learning_rate": 5e-6,
            "kl": None,
            "kl_sum": lambda noise, p, at: 6.8 * p,
        },
        {"truncation": "warning cut.*share=1.0", "no-rise": "note.*follows"},
        "rate-if-adapter",
    ),
    "no answer ends, and it learns": (
        {"num_eos_tokens": 0.0, **ROSE},
        {"truncation": "note cut.*share=1.0"},
        "fatal",
    ),
    "some answers end": ({"num_eos_tokens": 3.0, **ROSE}, {}, "truncation"),
    "a KL of answers below 0": (
        {"kl": None, "kl_sum": -6.0, **ROSE},
        {"kl": "warning negative.*other-sampling.*median=-6"},
        "fatal",
    ),
    "a KL of answers around 0": (
        {"kl": None, "kl_sum": lambda noise, p, at: noise(0.3), **ROSE},
        {},
        "negative",
    ),
    "a KL before any update": (
        {"kl": lambda noise, p, at: 19 + noise(1)},
        {"kl": "fatal explodes-from-start dropout"},
        "high-rate",
    ),
    "a KL before any update, that explodes": (
        {"kl": lambda noise, p, at: 1440 * np.exp(7 * p)},
        {"kl": "fatal explodes-from-start dropout.*high-rate"},
        "read-apart",
    ),
    "a KL that explodes": (
        {"kl": lambda noise, p, at: 0.01 * np.exp(12 * p)},
        {"kl": "fatal explodes high-rate"},
        "dropout",
    ),
    "a loss that is a sum": (
        {"loss": lambda noise, p, at: 10 - 5 * p, "eval/loss": lambda noise, p, at: 2.5 - 1.3 * p},
        {},
        "untrained",
    ),
    "random weights": (
        {
            "loss": lambda noise, p, at: 10 - 7 * p,
            "eval/loss": lambda noise, p, at: 9.9 - 7 * p,
            "entropy": lambda noise, p, at: 10 - 7 * p,
        },
        {"untrained": "note.*loss=10"},
        "warning",
    ),
    "a part of weight 0 is not outweighed": (
        {
            "reward/gains": lambda noise, p, at: 0.2 + 0.4 * p + noise(0.01),
            "reward/costs": lambda noise, p, at: 0.8 - 0.4 * p + noise(0.01),
            "reward/unpaid": lambda noise, p, at: 0.7 - 0.5 * p + noise(0.01),
        },
        {"parts-oppose": "outweighed.*about=costs"},
        "about=unpaid",
    ),
    "it stands still": (
        {"learning_rate": 1e-6},
        {"no-rise": "warning.*rate-if-adapter"},
        "follows",
    ),
    "it stands still for a while": ({}, {"no-rise": "note"}, "warning|nothing-moves"),
    "weights that stay": (
        {"kl": None, "learning_rate": 2e-6},
        {"no-rise": "warning nothing-moves weights-stay.*entropy=0.60.*completion_length=399"},
        "rounded-away|kl-",
    ),
    "equal groups have nothing to move by": (
        {"kl": None, "learning_rate": 2e-6, "frac_reward_zero_std": 1.0, "reward_std": 0.0},
        {"no-signal": "fatal equal-rewards"},
        "nothing-moves",
    ),
    "weights whose updates are rounded away": (
        {"kl": 2e-4, "learning_rate": 2e-6, "grad_norm": lambda n, p, at: 0.5 + at % 40 / 256},
        {"no-rise": "warning nothing-moves rounded-away kl-still.*rounded-away=2e-06"},
        "weights-stay",
    ),
    "norms of bfloat16 at a usual rate": (
        {"kl": None, "learning_rate": 1e-4, "grad_norm": lambda n, p, at: 0.5 + at % 40 / 256},
        {"no-rise": "warning nothing-moves weights-stay"},
        "rounded-away",
    ),
    "the entropy falls, and the reward stands": (
        {"kl": None, "entropy": lambda noise, p, at: 0.6 - 0.06 * p + noise(0.03)},
        {"no-rise": "note no-rise"},
        "nothing-moves",
    ),
    "answers become longer, and the reward stands": (
        {"kl": None, "completion_length": lambda noise, p, at: 400 + 70 * p + noise(25)},
        {"no-rise": "note no-rise"},
        "nothing-moves",
    ),
    "a short run": ({}, {}, "no-rise"),
}
MORE = {
    "no gradient of three decimals": {"rounding": {"grad_norm": 5e-4}},
    "printed sums": {"rounding": {"reward": 5e-4, "reward/a": 5e-5, "reward/b": 5e-5}},
    "every fourth batch has no target": {"kind": "sft"},
    "some batches have no target": {"kind": "sft"},
    "batches whose loss is a mean of nothing": {"kind": "sft"},
    "a loss of 0 for good": {"kind": "sft"},
    "a loss that is learnt by heart": {"kind": "sft"},
    "a low rate for an adapter": {"settings": LORA},
    "a low rate that teaches": {"settings": LORA},
    "a warmup of an adapter": {"settings": {**LORA, "rl.optimiser.learning_rate": 2e-5}},
    "it stands still for a while": {"steps": 60},
    "weights that stay": {"steps": 60},
    "weights whose updates are rounded away": {"steps": 60},
    "the entropy falls, and the reward stands": {"steps": 60},
    "answers become longer, and the reward stands": {"steps": 60},
    "a short run": {"steps": 24},
    "the KL costs too much": {"settings": {"rl.beta": 5.0}},
    "a loss that is a sum": {"kind": "sft"},
    "random weights": {"kind": "sft"},
}
"""Of what those logs are otherwise: kind, settings, steps of rounding."""


def figures_of(finding):
    figures = {"about": finding.about, **finding.evidence}
    return [f"{name}={value}" for name, value in figures.items()]


@pytest.mark.parametrize("name", SHAPES)
def test_a_cause_that_a_series_refutes_is_not_said(name):
    over, wanted, unwanted = SHAPES[name]
    history = log(over, **MORE.get(name, {}))
    # all of them but the last are the reward
    if parts := history.names("reward/") if "weight 0" in name else []:
        paid = sum(history[f"reward/{one}"].values for one in parts[:-1])
        history = replace(
            history, series=history.series | {"reward": replace(history["reward"], values=paid)}
        )
    findings = examine(history, CHECKS).findings
    lines = [
        " ".join((one.level, one.code, *one.causes, *figures_of(one), one.check))
        for one in findings
    ]
    for check, words in wanted.items():
        assert any(re.search(words, line) for line in lines if line.endswith(f" {check}")), lines
    assert not [line for line in lines if re.search(unwanted, line)], lines
    worse = {one.check for one in findings if one.level != "note"}
    assert worse <= {*wanted, "reward-falls"}, lines


FILTERED = {"sampling.top_p": 0.95, "correction": True, "engine": True}


@pytest.mark.parametrize(
    ("settings", "level", "code"),
    [
        (FILTERED, "warning", "biased-ratio"),
        ({"sampling.min_p": 0.1, "correction": "token"}, "warning", "biased-ratio"),
        ({**FILTERED, "engine": False}, "note", "not-scored"),
        ({**FILTERED, "correction": False}, "note", "not-scored"),
        ({"sampling.top_k": 50}, "note", "not-scored"),
        ({"sampling.top_p": 1.0, "drawn.top_k": 20}, "note", "not-scored"),
        ({"drawn.temperature": 0.7}, "warning", "other-temperature"),
        ({"drawn.temperature": 0.7, "sampling.temperature": 0.7}, None, None),
        ({**FILTERED, "sampling.top_p": 1.0, "sampling.top_k": -1}, None, None),
        ({**FILTERED, "drawn.top_p": 1.0}, None, None),
    ],
)
def test_settings_say_that_a_sampler_draws_what_the_loss_does_not_score(settings, level, code):
    findings = examine(log({}, settings=settings), CHECKS).findings
    found = [(one.level, one.code) for one in findings if one.check == "sampling-filters"]
    assert found == ([(level, code)] if code else [])
    assert not [one for one in findings if one.level == "fatal"]


def test_ratios_that_a_filter_explains_are_said_once():
    """TRL's with top-p .95 and a correction were measured at .895 (trl#6789)."""
    over = {"importance_ratio_mean": lambda noise, p, at: 0.895 + noise(0.01), "logprob_gap": 0.1}
    history = log(over, settings=FILTERED)
    assert only("sampling-filters", history).evidence["ratio"] == pytest.approx(0.895, abs=0.01)
    codes = {one.code for one in examine(history, CHECKS).findings}
    assert "cut" not in codes
    assert only("gap", log(over)).code == "cut"


def grows(first, last):
    return lambda noise, p, at: np.clip(first + (last - first) * p + noise(0.02), 0, 1)


def of_length(sign):
    """Completions of 40 steps that grow; the longer of a group earn more, less, or neither."""
    words = drawn(lambda place, n, copy: f"{n} " + "word " * (10 + 4 * copy + int(20 * place)))
    dice = np.random.default_rng(0)
    return [replace(one, reward=sign * len(one.text) / 400 + 0.05 * dice.random()) for one in words]


@pytest.mark.parametrize(
    ("over", "samples", "cause", "raised"),
    [
        (
            {
                "frac_truncated": grows(0.3, 1.0),
                "completion_length": lambda noise, p, at: 200 + 300 * p,
                **ROSE,
            },
            [],
            "length-paid",
            False,
        ),
        ({"frac_truncated": grows(0.2, 0.8), **ROSE}, of_length(1), "length-paid", False),
        # as where it was paid from the first row on
        ({"frac_truncated": 0.95, **ROSE}, of_length(1), "length-paid", False),
        ({"frac_truncated": grows(0.2, 0.8)}, [], "end-unpaid", False),
        ({"frac_truncated": 0.95}, [], "limit-too-low", True),
        (
            {
                "frac_truncated": 0.95,
                "completion_length": lambda noise, p, at: 200 + 300 * p,
                **ROSE,
            },
            of_length(-1),
            "limit-too-low",
            True,
        ),
    ],
)
@pytest.mark.parametrize("steps", [200, 12])
def test_a_limit_is_not_raised_where_length_is_paid(over, samples, cause, raised, steps):
    found = only(
        "truncation",
        replace(log(over, settings={"sampling.max_tokens": 48}, steps=steps), samples=samples),
    )
    assert found.causes[0] == cause
    assert found.change == ({"sampling.max_tokens": 96} if raised else {})
    assert (found.evidence["fed"], found.evidence["limit here"]) == (not raised, 48)


def one_text(place, number, copy):
    return "so we" if place > 0.2 else plain(place, number, copy)


@pytest.mark.parametrize(
    ("over", "text", "levels"),
    [
        # Cut from the first step on, and nothing was ever earned: no answer was seen whole.
        (
            {"frac_truncated": 1.0},
            one_text,
            {"truncation": "fatal", "no-signal": "note", "degenerate-output": "note"},
        ),
        ({"frac_truncated": 0.85}, plain, {"truncation": "fatal", "no-signal": "note"}),
        ({"frac_truncated": 0.5}, plain, {"truncation": "warning", "no-signal": "fatal"}),
        (
            {"frac_truncated": grows(0.2, 1.0)},
            one_text,
            {"truncation": "fatal", "no-signal": "fatal"},
        ),
        (
            {"frac_truncated": 1.0, "reward": 0.5},
            plain,
            {"truncation": "fatal", "no-signal": "fatal"},
        ),
        (
            {**ROSE, "reward/right": 0.0, "reward/form": grows(0.1, 0.6)},
            one_text,
            {"dead-part": "fatal", "degenerate-output": "note"},
        ),
        (ROSE, one_text, {"degenerate-output": "fatal"}),
    ],
)
def test_what_follows_from_another_finding_is_a_note(over, text, levels):
    silent = (
        {}
        if "reward" in over and callable(over["reward"])
        else {"reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0}
    )
    history = replace(log(silent | over), samples=drawn(text, reward=lambda *_: 0.0))
    found = by_check(history)
    assert {name: found[name].level for name in levels} == levels
    cause = next(iter(levels))
    for name, level in levels.items():
        assert (found[name].follows, found[name].change, found[name].shown) == (
            ((cause,) if level == "note" else ()),
            found[name].change if level != "note" else {},
            False,
        )


@pytest.mark.parametrize(
    ("over", "text", "cause"),
    [
        (ROSE, one_text, "cheat"),
        ({}, one_text, "nothing-tells"),
        ({}, lambda place, number, copy: "so we " * 40 + f"{number} {copy}", "template"),
        ({"entropy": lambda noise, p, at: 0.5 + 4 * p}, one_text, "broken-weights"),
        ({"kl": lambda noise, p, at: 5 * p}, one_text, "broken-weights"),
    ],
)
def test_broken_weights_need_evidence(over, text, cause):
    found = only(
        "degenerate-output", replace(log(over), samples=drawn(text, reward=lambda *_: 0.1))
    )
    assert found.causes == (cause,)
    assert "'so we" in found.evidence["example"]


@pytest.mark.parametrize(
    ("over", "steps", "name", "seen"),
    [
        ({"kl": 3e-5}, 36, "no-rise", True),
        (
            {"learning_rate": 9e-7, "reward": lambda noise, p, at: 0.4 + noise(0.2)},
            60,
            "no-rise",
            True,
        ),
        # few answers a step, and no more
        ({"reward": lambda noise, p, at: 0.4 + noise(0.2)}, 60, "no-rise", False),
        ({"kl": 0.61}, 36, "kl", True),
        ({"kl": 0.61, **ROSE}, 60, "kl", False),
    ],
)
def test_a_note_that_says_why_nothing_rose_is_in_the_normal_output(over, steps, name, seen):
    history = log(over, steps=steps)
    assert (only(name, history).level, only(name, history).shown) == ("note", seen)
    printed = [str(line) for line in render_stages([examine(history, CHECKS)], verbose=False)]
    assert any(line.startswith("note: ") and f"({name})" in line for line in printed) == seen


def test_what_follows_is_said_under_its_cause(monkeypatch):
    table = {name: {"found": {name: {"what": ""}}} for name in "abcde"}
    monkeypatch.setattr(messages, "read_messages", lambda: table)
    made = [
        ("a", "fatal", ()),
        ("b", "warning", ()),
        ("d", "note", ("a",)),
        ("c", "note", ("a", "b")),
        ("e", "note", ()),
    ]
    findings = [Finding(check=name, level=level, follows=follows) for name, level, follows in made]
    for verbose, shown in (
        (
            True,
            ["fatal:   (a)", "    note:   (d)", "    note:   (c)", "warning:   (b)", "note:   (e)"],
        ),
        (False, ["fatal:   (a)\n    follows from it: d, c", "warning:   (b)"]),
    ):
        lines = list(map(str, findings_said(findings, (), {}, ours=True, verbose=verbose)))
        assert lines[:-1] == shown


def test_both_ends_of_a_completion_are_quoted():
    samples = [replace(one, reward=0.0) for one in drawn(lambda *_: "a" * 300 + " is 42")]
    history = replace(log({"reward": 0.0, "frac_reward_zero_std": 1.0}), samples=samples)
    assert re.match(r"'a+ \.\.\. a+ is 42'", only("no-signal", history).evidence["example"])


def test_a_log_that_begins_late_does_not_show_that_nothing_rose():
    still = log({})
    late = {name: Series(one.steps + 200, one.values) for name, one in still.series.items()}
    found = [
        one
        for one in examine(replace(still, series=late), CHECKS).findings
        if one.check == "no-rise"
    ]
    assert [(one.level, one.causes[0], one.since) for one in found] == [("note", "late-log", 201)]


def test_the_first_line_says_whether_it_rose():
    rose, still = examine(log(ROSE), CHECKS), examine(log({}), CHECKS)
    said = [
        str(next(render_stages([one], verbose=True)))
        for one in (rose, still, examine(log({}, kind="sft"), CHECKS))
    ]
    assert re.fullmatch(
        r"reward 0\.\d{3} -> 0\.\d{3} over 200 steps: rose \(\+0\.\d{3} \[\+0.*, \+0.*\]\)"
        "; 200 of 200 steps had a gradient",
        said[0],
    )
    assert re.fullmatch(
        r"reward 0\.\d{3} -> 0\.\d{3} over 200 steps: .* rise \(.*\); 200 of 200 .*", said[1]
    )
    assert re.fullmatch(r"loss \d\.\d{3} -> .* over 200 steps: fell \(-.*\)", said[2])
    values = [one["outcome"] for one in findings_to_json([rose, still])["stages"]]
    assert [one["better"] for one in values] == [True, False]
    assert values[0]["change"]["low"] > 0
    assert [measure_outcome(log(ROSE, steps=n)).better for n in (6, 40)] == [None, True]


@pytest.mark.parametrize("alike", [0.0, 0.8])
def test_noise_is_rarely_said_to_rise(alike):
    """Nominally one in forty, where neighbours are not alike."""
    rose = 0
    for seed in range(200):
        dice, values = np.random.default_rng(seed), np.zeros(120)
        for step in range(120):
            values[step] = alike * values[step - 1] + 0.06 * dice.standard_normal()
        rose += bool(measure_outcome(log({"reward": 0.5 + values}, steps=120)).better)
    assert rose <= (10 if alike == 0 else 25)


# -- evaluations -----------------------------------------------------------------------------------


def final(stage, mode, found):
    return Final(stage=stage, split="test", mode=mode, task="", evaluation=found)


def answered(stage, level, *, n=120, mode="greedy", change=None):
    return final(stage, mode, evaluation(stage, "test", mode, level, n, 1, change))


def run(*finals):
    return replace(healthy(), origin="plumbline", finals=finals)


def test_a_model_that_answers_exactly_as_before():
    before = answered("sft", SFT)
    same = final("rl", "greedy", replace(before.evaluation, source="rl"))
    assert {"unchanged"} == {
        name for name, level in notes(run(before, same)).items() if level == "warning"
    }
    assert "unchanged" not in notes(run(before, answered("rl", RL)))

    def solved(row: Judged) -> Judged:
        return replace(row, reward=1.0)

    right = [answered(stage, SFT, change=solved) for stage in ("sft", "rl")]
    right[1] = final("rl", "greedy", replace(right[0].evaluation, source="rl"))
    assert "unchanged" not in notes(run(*right))


def test_a_model_that_is_no_better_than_a_baseline():
    baselines = [final("reference", name, one) for name, one in references("test", 120).items()]
    assert "no-better" not in notes(run(*baselines, answered("rl", RL)))
    assert notes(run(*baselines, answered("rl", Level(0.1, 0.05))))["no-better"] == "warning"
    for level in (Level(0.4, 0.35), Level(0.5, 0.45)):  # surely less than the baseline, and perhaps
        assert notes(run(*baselines, answered("rl", level)))["no-better"] == "note"


def test_the_lead_over_a_baseline_has_the_interval_of_a_difference():
    same = answered("rl", RL)
    history = run(final("reference", "constant", same.evaluation), same)
    (one,) = (one for one in examine(history, CHECKS).findings if one.check == "no-better")
    assert -one.evidence["low"] == one.evidence["high"] > 0


def test_a_few_examples_that_all_fell_are_no_fall_yet():
    def lower(row: Judged) -> Judged:
        return replace(row, reward=row.reward / 2)

    for n, level in ((3, "note"), (40, "warning")):
        assert (
            notes(run(answered("sft", SFT, n=n), answered("rl", SFT, n=n, change=lower)))["gain"]
            == level
        )


def test_a_part_that_was_paid_with():
    def cheat(row: Judged) -> Judged:
        return replace(row, reward=min(1.0, row.reward + 0.4), parts={**row.parts, "alone": 0.0})

    found = run(answered("sft", SFT), answered("rl", SFT, change=cheat))
    assert {name for name, level in notes(found).items() if level == "warning"} == {"part-lost"}
    assert "part-lost" not in notes(run(answered("sft", SFT), answered("rl", RL)))


def test_examples_that_were_trained_on():
    evaluated = answered("rl", RL)
    ids = [row.id for row in evaluated.evaluation.rows]
    samples = drawn(plain, lambda n: f"id-{n}")
    history = replace(run(evaluated), samples=samples)
    assert "overlap" not in notes(history)
    seen = [replace(one, prompt=ids[0] if one.prompt == "id-3" else one.prompt) for one in samples]
    assert notes(replace(history, samples=seen))["overlap"] == "fatal"


def test_a_baseline_is_over_its_limit_only_where_its_interval_is():
    def once(row: Judged) -> Judged:
        return replace(row, reward=1.0 if row.id.endswith("0001") else 0.0)

    one = answered("reference", RL, n=10, mode="echo", change=once).evaluation
    limited = replace(one, headline=Headline(limits={"echo": 0.05}))
    assert "references" not in notes(run(final("reference", "echo", limited)))
    many = replace(limited, rows=tuple(replace(row, reward=0.1) for row in limited.rows))
    assert notes(run(final("reference", "echo", many)))["references"] == "warning"


def test_a_kl_of_0():
    """The forms log read a KL of 0 in version after version."""
    void = replace(healthy(kl=lambda v, p: 0 * p), origin="table")
    assert notes(void)["kl"] == "note"
    charged = replace(void, settings={**void.settings, "rl.beta": 0.04})
    assert notes(charged)["kl"] == "warning"
    trl = replace(void, origin="trl")
    assert notes(trl)["kl"] == "warning"  # which logs one only where it is charged
    assert notes(replace(trl, settings={**void.settings, "rl.beta": 0.0}))["kl"] == "note"
    unsloth = replace(
        trl,
        series={
            name: one
            for name, one in void.series.items()
            if name not in {"entropy", "clip_fraction"}
        },
    )
    assert notes(unsloth)["kl"] == "note"


def cause_of(history, check):
    return named(history, check)[0].causes[0]


def test_why_a_kl_that_is_charged_is_0():
    """Where the reward rises the weights move, so the reference moves with them."""
    void = replace(healthy(kl=lambda v, p: 0 * p), settings={"rl.beta": 0.04})
    assert cause_of(void, "kl") == "reference-is-policy"
    dice = np.random.default_rng(0)
    flat = with_series(void, reward=0.4 + 0.05 * dice.standard_normal(STEPS))
    assert cause_of(flat, "kl") == "other-weights"
    still = with_series(flat, grad_norm=np.zeros(STEPS))
    assert cause_of(still, "kl") != "other-weights"


def in_parts(weight, *, name="form", noise=0.02, fall=0.4, level=0.5):
    """A log whose reward is right + weight * another part, which falls early."""
    dice, place = np.random.default_rng(0), np.linspace(0, 1, STEPS)
    right = 0.3 + 0.5 * (1 - np.exp(-5 * place)) + noise * dice.standard_normal(STEPS)
    other = level - fall * (1 - np.exp(-6 * place)) + noise * dice.standard_normal(STEPS)
    history = with_series(
        healthy(), reward=right + weight * other, **{"reward/right": right, f"reward/{name}": other}
    )
    series = {
        key: one
        for key, one in history.series.items()
        if not key.startswith("reward/") or key in {"reward/right", f"reward/{name}"}
    }
    return without(replace(history, series=series))


@pytest.mark.parametrize(
    ("weight", "over", "found"),
    [
        (0.5, {}, {"parts-oppose": "warning"}),
        (0.0, {}, {"parts-oppose": "warning"}),
        (-0.5, {}, {"parts-oppose": "warning"}),
        (-0.5, {"name": "format_errors"}, {"parts-oppose": "note"}),
        (0.0, {"name": "words"}, {"parts-oppose": "note"}),
        (-0.3, {"name": "value", "noise": 0.1}, {"parts-oppose": "warning"}),
        (0.0, {"name": "value", "noise": 0.1}, {"parts-oppose": "warning"}),
        (-0.5, {"name": "hints"}, {"parts-oppose": "note"}),
        (-0.5, {"name": "vowels"}, {"parts-oppose": "warning"}),
        (-0.5, {"name": "vowels", "fall": 0.1}, {"parts-oppose": "note"}),
        # A charge that grows, and one below 0 that a weight below 0 pays.
        (-0.3, {"name": "repeats", "fall": -0.4}, {"parts-oppose": "warning"}),
        (-0.3, {"name": "tokens", "fall": -0.4}, {"parts-oppose": "note"}),
        (-0.5, {"name": "penalty", "level": -0.1}, {"parts-oppose": "warning"}),
        (0.0, {"fall": 0.0}, {}),
    ],
)
def test_a_part_that_falls_while_the_reward_rises(weight, over, found):
    assert in_parts(weight, **over) == found


@pytest.mark.parametrize("digits", [16, 4])
@pytest.mark.parametrize(
    ("weights", "lost", "found"),
    [
        ((1, 0.3), 0, False),
        ((0.25, 1, 0.125), 0, False),
        ((1, 0), 0, False),
        ((0.5, 0.5), 0, False),  # their mean
        ((1, 1), 0.1, True),
        ((1, 1, 1), 0.1, True),
    ],
)
def test_a_reward_is_the_weighted_sum_of_its_parts_or_has_lost_some(weights, lost, found, digits):
    """Parts are often 0 in a step, where any weight of theirs gives the plain sum."""
    dice = np.random.default_rng(0)
    parts = [
        np.where(dice.random(STEPS) < 0.4, 0, dice.random(STEPS)).round(digits) for _ in weights
    ]
    gone = np.where(dice.random(STEPS) < 0.3, lost * parts[1], 0)
    reward = (sum(weight * part for weight, part in zip(weights, parts, strict=True)) - gone).round(
        digits
    )
    over = {
        "reward": reward,
        **{f"reward/{name}": part for name, part in zip("abc", parts, strict=False)},
    }
    history = with_series(healthy(), **over)
    series = {
        name: replace(
            one,
            rounding=0.5 * 10.0**-digits if digits < 16 and re.match("reward|part", name) else 0.0,
        )
        for name, one in history.series.items()
        if name not in {"reward/right", "reward/form"}
    }
    assert ("lost-reward" in notes(replace(history, series=series))) == found


def with_parts(part, *, steps=20):
    """Completions whose second part is this."""
    samples = [
        replace(one, parts={"form": 1.0, "right": part(one)}) for one in drawn(plain, steps=steps)
    ]
    return {
        name: level for name, level in without(stored(samples)).items() if name == "lost-reward"
    }


def test_a_part_without_a_number():
    def some(one):
        return float("nan") if "2th" in one.text else 1.0

    assert with_parts(some) == {"lost-reward": "warning"}
    assert with_parts(lambda one: None if "2th" in one.text else 1.0) == {"lost-reward": "warning"}
    # TRL lets a function return None for prompts that it is not for.
    assert with_parts(lambda one: float("nan") if one.prompt.endswith("2") else 1.0) == {
        "lost-reward": "note"
    }
    assert with_parts(lambda one: None) == {}


@pytest.mark.parametrize(
    ("prompts", "reward", "found"),
    [
        (6, lambda v, p: v, {"repeated-prompts": "warning"}),
        (8, lambda v, p: v, {}),
        (6, lambda v, p: 0.4 + 0 * p + 0.05 * np.sin(99 * p), {"repeated-prompts": "note"}),
    ],
)
def test_few_prompts(prompts, reward, found):
    """The logged reward is that of the stored completions; the evaluation stands still."""
    level = healthy(reward=reward)["reward"].values
    samples = drawn(
        plain,
        lambda n: f"question {n % prompts}",
        prompts=prompts,
        steps=STEPS,
        reward=lambda at, n, c: level[at],
    )
    still = {
        "eval/reward": lambda v, p: 0.4 + 0.01 * (np.arange(len(p)) // 10 % 2),
        "epoch": lambda v, p: STEPS * p,
    }
    whole = stored([replace(one, step=one.step + 1) for one in samples], reward=level, **still)
    assert {one: at for one, at in without(whole).items() if one == "repeated-prompts"} == found
    # A tracker that stores few completions of many says nothing of the others.
    part = replace(
        whole, series={**whole.series, "reward": Series(whole["reward"].steps, level + 0.1)}
    )
    assert "repeated-prompts" not in without(part)


def test_evaluations_on_trained_prompts():
    trained = drawn(plain)
    other = [replace(one, prompt=one.prompt + "?") for one in trained[:200]]
    assert without(replace(stored(trained), evaluated=other)) == {}
    assert without(replace(stored(trained), evaluated=other + trained[:40])) == {
        "overlap": "warning"
    }
    assert without(replace(stored(trained), evaluated=other + trained[:4])) == {"overlap": "note"}


def by_kind(n):
    return f"sum {n}" if n < 160 else f"count the letters of {n}"


def mostly_by_kind(n):
    return by_kind(n if n % 6 else 320 - n)


@pytest.mark.parametrize(
    ("prompt", "reward", "found"),
    [
        (by_kind, None, {"data-order": "warning"}),
        (mostly_by_kind, None, {"data-order": "note"}),
        (mostly_by_kind, lambda v, p: v - 0.4 * (p > 0.167), {"data-order": "warning"}),
        (lambda n: f"sum {'1' * (n // 8)} {'x' * (n // 8)}", None, {"data-order": "warning"}),
        (lambda n: f"sum {'x' * (n if n % 8 else 320 - n)}", None, {"data-order": "note"}),
        (lambda n: by_kind(n * 97 % 320), None, {}),
        (lambda n: f"sum {'x' * (n * 97 % 320)}", None, {}),
        (lambda n: f"question {n}", None, {}),
    ],
)
def test_prompts_in_the_order_of_the_file(prompt, reward, found):
    history = stored(drawn(plain, prompt), **({} if reward is None else {"reward": reward}))
    assert {one: level for one, level in without(history).items() if one == "data-order"} == found


def test_kinds_by_a_column():
    samples = [replace(one, kind="easy" if one.step < 20 else "hard") for one in drawn(plain)]
    assert without(stored(samples)) == {"data-order": "warning"}


# -- where the policy goes while the reward stands -------------------------------------------------

FLAT = {"reward": lambda v, p: 0.45 + 0.3 * (v - 0.3 - 0.3 * p)}
PEAKED = np.array([0.25, 0.33, 0.40, 0.43, 0.42, 0.38, 0.34, 0.31, 0.28, 0.27])


@pytest.mark.parametrize(
    ("over", "found"),
    [
        ({**FLAT, "entropy": lambda v, p: 0.8 * np.exp(-8 * p) + 0.02}, "entropy spent warning"),
        (
            {
                **FLAT,
                "entropy": lambda v, p: 0.8 * np.exp(-8 * p) + 0.02,
                "frac_reward_zero_std": lambda v, p: 0.5 + 0.3 * (v > 0),
            },
            "entropy spent note",
        ),
        ({"entropy": lambda v, p: 0.8 * np.exp(-8 * p) + 0.02}, ""),
        ({**FLAT, "kl": lambda v, p: 0.02 + 4.5 * p**2.4}, "kl drifts warning"),
        ({"kl": lambda v, p: 0.02 + 4.5 * p**2.4}, ""),
        ({**FLAT, "kl": lambda v, p: 0.02 + 0.9 * p**2.4}, ""),
        ({"clip_fraction": lambda v, p: 0.1 + 0.4 * p}, "clip-high clip-high warning"),
        ({"clip_fraction": lambda v, p: 0.4 + 0.0 * p}, "clip-high clip-high note"),
        ({"clip_fraction": lambda v, p: 0.1 + 0.1 * p}, ""),
        ({"repetition": lambda v, p: 0.02 + 0.5 * p}, "repetition repetition warning"),
        ({"repetition": lambda v, p: 0.3 + 0.1 * p}, ""),
        (
            {"advantage_std": lambda v, p: np.exp(-5 * p), "reward_std": lambda v, p: 0.3 + 0 * p},
            "advantages advantages warning",
        ),
        (
            {"advantage_std": lambda v, p: np.exp(-5 * p), "reward_std": lambda v, p: np.exp(-p)},
            "",
        ),
        (
            {
                "reward/right": lambda v, p: 0.03 + 0.02 * p,
                "reward/form": lambda v, p: 0.4 + 0.55 * np.minimum(5 * p, 1),
            },
            "part-alone part-alone warning",
        ),
        (
            {
                "reward/right": lambda v, p: np.minimum(0.1 + 0.6 * p, 0.4),
                "reward/form": lambda v, p: 0.1 + 0.85 * np.maximum(2 * p - 1, 0),
            },
            "part-alone part-alone warning",
        ),
        (
            {
                "reward/right": lambda v, p: 0.03 + 0.3 * p,
                "reward/form": lambda v, p: 0.4 + 0.55 * np.minimum(5 * p, 1),
            },
            "",
        ),
    ],
)
def test_where_a_run_goes_while_the_reward_stands(over, found):
    usual, place = healthy().series, np.linspace(0, 1, STEPS)
    given = {
        name: of(usual[name].values if name in usual else 0 * place, place)
        for name, of in over.items()
    }
    checks = {"entropy", "kl", "clip-high", "repetition", "advantages", "part-alone"}
    came = examine(healthy(**given), CHECKS).findings
    assert [f"{one.check} {one.code} {one.level}" for one in came if one.check in checks] == (
        [found] if found else []
    )
    for one in came:
        if one.code == "drifts":  # what it says of a step is what was logged there
            assert one.evidence["first"] == given["kl"][one.since - 1]


@pytest.mark.parametrize(("spikes", "level"), [(3, "warning"), (1, "note"), (0, None)])
def test_single_gradients_far_above_the_median(spikes, level):
    at = np.isin(np.arange(400), (100, 200, 300)[:spikes])
    history = healthy(0, 400, grad_norm=lambda v, p: np.where(at, 60 * 0.3, v))
    assert notes(history).get("gradient-spikes") == level


def held_out(values, **over):
    """A run with these evaluations, evenly over it."""
    history = healthy(**over)
    series = {name: one for name, one in history.series.items() if name != "eval/reward"}
    at = np.linspace(1, STEPS, len(values)).astype(np.int64)
    return replace(history, series=series | {"eval/accuracy": Series(at, values)})


@pytest.mark.parametrize(
    ("values", "over", "code"),
    [
        (PEAKED, {}, "eval-disagrees"),
        (PEAKED, FLAT, "falls-alone"),
        (PEAKED, {"reward": lambda v, p: v - 0.9 * p}, None),
        (np.sort(PEAKED), FLAT, None),
        (
            0.21 + 0.01 * (np.arange(12) % 3),
            {"completion_length": lambda v, p: v + 300 * p},
            "longer-only",
        ),
        (0.21 + 0.01 * (np.arange(12) % 3), {}, None),
        (0.21 + 0.02 * np.arange(12), {"completion_length": lambda v, p: v + 300 * p}, None),
    ],
)
def test_an_evaluation_against_a_reward_that_rises_or_stands(values, over, code):
    came = examine(held_out(values, **over), CHECKS).findings
    found = [one for one in came if one.check == "eval-disagrees"]
    assert [(one.code, one.level) for one in found] == ([(code, "warning")] if code else [])
    if code in {"eval-disagrees", "falls-alone"}:
        assert found[0].since == found[0].evidence["best step"] == 40


@pytest.mark.parametrize(
    ("values", "found"),
    [([0.48, 0.52, 0.35, 0.2, 0.1], True), ([0.48, 0.52, 0.35, 0.4, 0.1], False)],
)
def test_five_evaluations_that_plunge_without_a_rise_are_enough(values, found):
    came = examine(held_out(np.array(values)), CHECKS).findings
    assert any(one.check == "eval-disagrees" for one in came) == found


def hacked(perplexity, drift):
    """Rows as a logger of one's own writes them: a reward at its ceiling from half of the run."""
    dice, rows = np.random.default_rng(0), []
    for step in range(1, 81):
        over = 1 / (1 + np.exp(-0.35 * (step - 14)))
        row = {
            "step": step,
            "train_reward": 0.55 + 0.446 * over + (1 - over) * 0.08 * dice.standard_normal(),
            "train_reward_std": 0.44 * (1 - over) + 3e-4 + 0.03 * (step % 9 == 0),
            "kl": drift * step / 80,
            "pg_loss": 0.1 * dice.standard_normal(),
            "grad_norm": 8 + dice.standard_normal(),
            "lr": 1e-5 * (1 - step / 100),
            "completion_tokens": 40 + dice.standard_normal(),
        }
        if step % 10 == 0:
            worse = 1 + (perplexity - 1) * step / 80
            row |= {"eval_reward": row["train_reward"], "eval_perplexity": 4.5 * worse}
        rows.append(row)
    return rows


@pytest.mark.parametrize(
    ("perplexity", "drift", "found"),
    [
        (3.6, 1.0, {"perplexity": "warning", "zero-variance-groups": "warning"}),
        (1.0, 0.1, {"zero-variance-groups": "note"}),
    ],
)
def test_a_hacked_run_whose_reward_is_at_its_ceiling(tmp_path, perplexity, drift, found):
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(f"{json.dumps(row)}\n" for row in hacked(perplexity, drift)))
    (history,) = read_histories(log)
    assert len(history["text_nll"]) == 8
    assert len(history["completion_length"]) == len(history["reward_std"]) == 80
    came = by_check(history)
    loud = {name: one.level for name, one in came.items() if name in found or one.level != "note"}
    assert loud == found
    assert came["zero-variance-groups"].evidence["steps"] > 35


@pytest.mark.parametrize(("end", "code"), [(1.0, "solved"), (0.0, "too-hard"), (None, "between")])
def test_completions_tell_groups_that_are_right_from_wrong_ones(end, code):
    """Seven of eight groups earn one value: the most, the least, or one or the other."""
    samples = drawn(
        plain,
        reward=lambda step, n, copy: (
            float(copy % 2) if n == 0 else float(n % 2) if end is None else end
        ),
    )
    over = {"reward": lambda v, p: 3 * v, "reward/right": lambda v, p: 3 * v}
    came = examine(stored(samples, **over), CHECKS).findings
    assert [one.code for one in came if one.check == "zero-variance-groups"] == [code]


@pytest.mark.parametrize("epochs", [1.0, 3.0])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_prompts_that_become_longer_without_stored_ones(epochs, is_sorted):
    """verl logs the mean; what follows the first epoch says nothing."""
    dice, at = np.random.default_rng(0), np.arange(1, STEPS + 1)
    prompts = np.sort(dice.integers(40, 90, STEPS)).astype(np.float64)
    prompts = prompts if is_sorted else dice.permutation(prompts)
    series = {
        "epoch": epochs * at / STEPS,
        "reward": 0.8 - 0.5 * at / STEPS + 0.03 * dice.standard_normal(STEPS),
        "prompt_length": prompts,
    }
    run = with_series(healthy(), **series)
    found = by_check(run)
    assert ("data-order" in found) == is_sorted
    assert ("in-an-order" in found["reward-falls"].causes) == is_sorted
    if is_sorted:
        order = found["data-order"]
        assert (order.level, order.code) == ("warning", "sorted-by-length")
        assert order.evidence["correlation"] > 0.95
