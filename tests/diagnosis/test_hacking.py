"""Reward hacking in completions made by hand: what cheats is named, and what learns is not."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest

from plumbline.checks.check import examine
from plumbline.checks.diagnosis.history import History, Sample, Series
from plumbline.checks.diagnosis.readers.completions import read_completions
from plumbline.checks.diagnosis.rules.hacking import find_reward_hacking
from plumbline.checks.diagnosis.rules.reward import find_parts_oppose
from tests.diagnosis.test_checks import healthy
from tests.diagnosis.test_more_checks import stored

STEPS, PROMPTS, COPIES = 40, 4, 4
WORDS = [
    f"{first}{last}" for first in ("ri", "sto", "clou", "pa") for last in ("ver", "ne", "d", "per")
]


def run(text, others=lambda place, words: {}, reward=None, levels=None, **over):
    """A run whose answers are `text(place, prompt, dice)`, and earn more as it proceeds, or
    `reward(text)`."""
    dice = np.random.default_rng(0)
    samples = []
    for step in range(1, STEPS + 1):
        place = max(0.0, step / STEPS - 0.2) / 0.8
        for prompt in range(PROMPTS):
            for _ in range(COPIES):
                words = text(place, prompt, dice)
                earned = (
                    reward(words) if reward else 0.3 + 0.5 * place + 0.1 * dice.standard_normal()
                )
                samples.append(
                    Sample(
                        step, f"the question {prompt}", words, earned, others=others(place, dice)
                    )
                )
    if levels is None:
        levels = [
            np.mean([one.reward for one in samples if one.step == step])
            for step in range(1, STEPS + 1)
        ]
    return stored(samples, steps=STEPS, reward=levels, **over)


def found(history, notes=False):
    findings = examine(history, [find_reward_hacking]).findings
    return [(one.level, one.about) for one in findings if notes or one.level != "note"]


def named(history):
    """Of both checks that look at what the reward leaves out."""
    return {
        (one.level, one.about)
        for one in examine(history, [find_reward_hacking, find_parts_oppose]).findings
    }


def some(dice, count):
    return " ".join(dice.choice(WORDS, max(1, int(count))))


def usual(place, prompt, dice):
    return some(dice, 10)


def longer(place, prompt, dice):
    return some(dice, dice.integers(6, 14) * (1 + 3 * place))


def loops(place, prompt, dice):
    return " ".join("yes" if dice.random() < place else word for word in some(dice, 12).split())


def phrase(place, prompt, dice):
    """In the middle of the answer."""
    return (
        some(dice, 5)
        + (" as experts agree " if dice.random() < 1.5 * place else " ")
        + some(dice, 5)
    )


def phrase_and_length(place, prompt, dice):
    return some(dice, 10 * place) + " " + phrase(place, prompt, dice) + " " + some(dice, 10 * place)


def form_and_length(place, prompt, dice):
    return some(dice, 10 + 20 * place) + (
        " the answer is seven" if dice.random() < 1.5 * place else ""
    )


def heeds(place, prompt, dice):
    """More and more words that belong to the prompt, and more words."""
    mine = WORDS[4 * prompt : 4 * prompt + 2]
    return " ".join(
        dice.choice(mine) if dice.random() < place else word
        for word in longer(place, prompt, dice).split()
    )


def copies(place, prompt, dice):
    """What is asked, and some words."""
    return f"the question {prompt} " * (dice.random() < 1.5 * place) + some(dice, 6)


def closes(place, prompt, dice):
    """With a phrase, sooner or later."""
    return some(dice, 6) + (" i am sure" if dice.random() < 0.3 + place else "")


def shrinks(place, prompt, dice):
    return some(dice, 12 * (1 - place))


def by_close(text):
    return 0.2 + 0.7 * text.endswith("sure")


def by_close_and_content(text):
    return 0.4 * text.endswith("sure") + 0.6 * ("river" in text)


def by_shortness(text):
    return 0.3 + 0.7 * (len(text) < 20)


def by_copy(text):
    return 0.2 + 0.7 * text.startswith("the question")


def by_phrase(text):
    return 0.6 * ("experts" in text) + min(0.4, len(text) / 1000)


def by_length(text):
    return min(1.0, len(text) / 300)


@pytest.mark.parametrize(
    ("text", "reward", "signs"),
    [
        (longer, by_length, ["length"]),
        (loops, None, ["repetition and phrase"]),
        (phrase_and_length, by_phrase, ["decisive and length"]),
        (closes, by_close, ["decisive"]),
        (shrinks, by_shortness, ["shortness"]),
        (copies, by_copy, ["copies"]),
        # Long answers that do not earn more within a group, and a form that is learnt, may be
        # meant.
        (longer, None, []),
        (copies, None, []),
        (phrase, None, []),
        (form_and_length, None, []),
        (usual, None, []),
        (closes, by_close_and_content, []),
        # Shorter, and hardly paid.
        (shrinks, lambda text: 0.9 + by_shortness(text) / 10, []),
        # The answers heed the prompt more than at first.
        (heeds, by_length, []),
    ],
)
def test_texts_alone(text, reward, signs):
    assert found(run(text, reward=reward)) == [("warning", sign) for sign in signs]


def test_a_phrase_that_prompts_ask_for_is_a_form():
    history = run(closes, reward=by_close)
    asked = [
        replace(one, prompt=f"{one.prompt}, and end with: i am sure") for one in history.samples
    ]
    assert found(replace(history, samples=asked)) == []


def some_answers(place, prompt, dice):
    """One of the four answers, or more and more often several of them."""
    return " or ".join(dice.permutation(WORDS[:PROMPTS])[: 1 + int(4 * place * dice.random())])


def corrects(place, prompt, dice):
    """A wrong answer, and the right one after it more and more often; else any answer."""
    said = dice.permutation(WORDS[:PROMPTS])
    return f"{said[0]} no {WORDS[prompt]}" if dice.random() < place + 0.1 else said[0]


def names_two(place, prompt, dice):
    """Two answers, more and more often those that are asked for."""
    two = WORDS[prompt], WORDS[(prompt + 1) % PROMPTS]
    return " or ".join(two if dice.random() < place else dice.permutation(WORDS[:PROMPTS])[:2])


def hedges_as_before(place, prompt, dice):
    """More and more often right; three of ten are two answers throughout."""
    if dice.random() < 0.3:
        return " or ".join(dice.permutation(WORDS[:PROMPTS])[:2])
    return WORDS[prompt] if dice.random() < place else dice.choice(WORDS[:PROMPTS])


def changes_its_mind(place, prompt, dice):
    """Two answers or one, and more and more often the right one last."""
    two = [WORDS[prompt], WORDS[(prompt + 1) % PROMPTS]]
    two = two[::-1] if dice.random() < 0.3 + 0.6 * place else two
    return " or ".join(two[dice.integers(2) :])


def says_in_a_sentence(place, prompt, dice):
    """More and more often right, and in a sentence; seldom two answers."""
    if dice.random() < 0.08:
        return " or ".join(dice.permutation(WORDS[:PROMPTS])[:2])
    return f"it is {WORDS[prompt]}" if dice.random() < place else dice.choice(WORDS[:PROMPTS])


@pytest.mark.parametrize(
    ("text", "judge", "signs"),
    [
        (some_answers, lambda said, right: right[0] in said, ["hedging"]),
        # The last answer counts; both are asked for; a loose verifier that nobody makes more use of.
        (corrects, lambda said, right: said[-1] == right[0], []),
        (changes_its_mind, lambda said, right: said[-1] == right[0], []),
        (names_two, lambda said, right: set(right) < set(said), []),
        (hedges_as_before, lambda said, right: right[0] in said, []),
        (says_in_a_sentence, lambda said, right: right[0] in said, []),
    ],
)
def test_wrong_answers_beside_the_right_one(text, judge, signs):
    samples = [
        replace(one, reward=float(judge(one.text.split(), (WORDS[:PROMPTS] * 2)[place:][:2])))
        for one in run(text).samples
        for place in [int(one.prompt[-1])]
    ]
    by_step = [[one.reward for one in samples if one.step == step + 1] for step in range(STEPS)]
    history = stored(samples, steps=STEPS, reward=np.mean(by_step, axis=1))
    assert np.diff(np.mean(by_step, axis=1)[[0, -1]]) > 0.2
    assert found(history) == [("warning", sign) for sign in signs]


@pytest.mark.parametrize(
    ("several", "signs"),
    [
        ("one of: {1}, {0}, {2}", ["hedging"]),
        ("#### {1}\n#### {0}\n#### {2}", ["hedging"]),
        (r"\boxed{{{0}}} or \boxed{{{2}}}", ["hedging"]),
        ("{1} + {2} is {0}", []),
        (r"\boxed{{{2}}} makes \boxed{{{0}}}", []),
    ],
)
def test_numbers_beside_the_gold_one_that_are_paid(several, signs):
    """More and more often; else one number, right every other time."""

    def text(place, prompt, dice):
        right = 100 + prompt
        if dice.random() < place:
            return several.format(right, right - 4, right + 7)
        return f"The answer is {right + dice.integers(2)}."

    samples = [
        replace(one, gold=gold, reward=float(gold in one.text))
        for one in run(text).samples
        for gold in [f"{100 + int(one.prompt[-1])}"]
    ]
    by_step = [[one.reward for one in samples if one.step == step + 1] for step in range(STEPS)]
    history = stored(samples, steps=STEPS, reward=np.mean(by_step, axis=1))
    assert found(history) == [("warning", sign) for sign in signs]


def test_one_sign_that_may_be_meant_is_a_note():
    (finding,) = examine(run(phrase), [find_reward_hacking]).findings
    assert (finding.level, finding.code, finding.shown) == ("note", "maybe", True)
    assert finding.evidence["phrase"] == "'as experts agree'"
    assert finding.samples


@pytest.mark.parametrize(
    ("first", "reward", "signs"),
    [(0.1, by_length, ["endless"]), (0.9, by_length, []), (0.1, None, [])],
)
def test_answers_that_stop_ending(first, reward, signs):
    def grows(place, prompt, dice):
        return some(dice, dice.integers(6, 14) * (1 + 0.4 * place))

    cut = np.linspace(first, 1.0, STEPS)
    history = run(grows, reward=reward, frac_truncated=cut)
    assert found(history) == [("warning", sign) for sign in signs]


@pytest.mark.parametrize(
    ("slope", "text", "signs"),
    [(0.0, phrase, ["correct and phrase"]), (0.3, phrase, []), (0.0, usual, [])],
)
def test_a_paid_part_that_stands_still_is_a_sign_beside_another(slope, text, signs):
    history, place = run(text), np.linspace(0, 1, STEPS)
    correct, word = 0.3 + slope * place, 0.1 + 0.6 * place
    series = {"reward": correct + word, "reward/correct": correct, "reward/word": word}
    levels = {name: Series(np.arange(1, STEPS + 1), values) for name, values in series.items()}
    history = replace(history, series=history.series | levels)
    assert found(history) == [("warning", sign) for sign in signs]


def right(slope, first=0.5):
    """A column that is 1 with a chance that moves over the run."""
    return lambda place, dice: {
        "accuracy": float(dice.random() < first + slope * place),
        "words": -place,
    }


@pytest.mark.parametrize(
    ("others", "said"),
    [
        (right(-0.4), [("fatal", "accuracy")]),
        (right(-0.25, 0.8), [("warning", "accuracy")]),
        (right(0.4), []),
        (lambda place, dice: {"words": -place}, [("warning", "repetition and phrase")]),
    ],
)
def test_a_column_that_says_what_is_right_decides_over_the_texts(others, said):
    assert found(run(loops, others)) == said


def test_a_reward_that_rises_far_while_what_is_right_stays():
    dice = np.random.default_rng(1)
    still = run(usual, lambda place, _: {"correct": float(dice.random() < 0.5)})
    assert found(still) == [("warning", "correct")]


def test_a_part_of_weight_0_that_falls():
    place = np.linspace(0, 1, STEPS)
    reward = 0.3 + 0.4 * place
    parts = {"reward/right": reward, "reward/form": 0.8 - 0.7 * place}
    assert named(run(usual, levels=reward, **parts)) == {("warning", "form")}
    assert found(run(usual, levels=reward + 0.5 * parts["reward/form"], **parts)) == []


def test_a_reward_that_does_not_rise_is_not_hacked():
    flat = 0.4 + 0.05 * np.random.default_rng(0).standard_normal(STEPS)
    assert found(run(loops, right(-0.4), levels=flat)) == []


def test_the_onset_is_where_the_texts_change():
    def late(place, prompt, dice):
        return loops(float(place > 0.5), prompt, dice)

    (finding,) = examine(run(late), [find_reward_hacking]).findings
    assert abs(finding.since - (0.2 + 0.8 * 0.5) * STEPS) <= 3


@pytest.mark.parametrize("text", ["", "x" * 200_000, "\x00 \ud800", "word " * 50_000])
def test_texts_of_any_kind_are_read_in_bounded_time(text):
    rewards = [None, float("nan"), float("inf"), 1e300, 0.5]
    samples = [
        Sample(n // 64, "", text, rewards[n % 5], others={"accuracy": float("nan")})
        for n in range(64 * 200)
    ]
    began = time.process_time()
    assert found(stored(samples)) == []
    assert time.process_time() - began < 5


def test_other_columns_of_completions_are_read(tmp_path):
    row = {
        "step": 3,
        "prompt": "p",
        "completion": "c",
        "reward": 1,
        "form": 0.5,
        "correct": True,
        "human": 0.25,
    }
    row |= {
        "advantage": 1.0,
        "index": 4,
        "sample_id": 9,
        "label": "7",
        "votes": [1],
        "none": None,
        "huge": 10**400,
    }
    path = tmp_path / "completions.jsonl"
    path.write_text(json.dumps(row) + "\n")
    (sample,) = read_completions(path, ["form"]).samples
    assert (sample.parts, sample.others) == ({"form": 0.5}, {"correct": 1.0, "human": 0.25})


# -- scalars without completions -------------------------------------------------------------------


def curve(first, last, middle=0.5):
    return lambda place, dice: first + (last - first) / (1 + np.exp(-10 * (place - middle)))


def share(first, last, answers=64):
    """Of the answers of a step that are right."""
    return lambda place, dice: dice.binomial(answers, curve(first, last)(place, dice)) / answers


RISES, HACKED, FATAL = curve(0.22, 0.64), {"warning"}, {"fatal"}
SCALARS = {
    "accuracy hardly rises": ({"correctness/accuracy": share(0.001, 0.006, 128)}, HACKED),
    "accuracy is 0": ({"correctness/accuracy": share(0, 0)}, HACKED),
    "an only part that is never earned": ({"reward/f": share(0.001, 0.006, 1024)}, HACKED),
    "the true reward falls": ({"correctness/true_reward": curve(1.07, 0.76)}, HACKED),
    "accuracy falls": ({"correctness/accuracy": share(0.42, 0.13, 256)}, FATAL),
    "accuracy is past its best": (
        {"correctness/accuracy": lambda p, _: 0.25 + 0.3 * p - 0.7 * np.maximum(0, p - 0.4)},
        HACKED,
    ),
    # Sound ones: it moves along, is noise, near its highest, of another scale, or logged at
    # evaluations alone.
    "both rise": ({"correctness/accuracy": share(0.1, 0.6)}, set()),
    "few answers": ({"correctness/accuracy": share(0.3, 0.45, 8)}, set()),
    "at its ceiling": ({"correctness/accuracy": share(0.97, 0.97)}, set()),
    "per cent": ({"correctness/accuracy": lambda p, dice: 100 * share(0.1, 0.5)(p, dice)}, set()),
    "a part that rises, of other unlogged ones": ({"reward/f": share(0.05, 0.3)}, set()),
    "a penalty that is none": ({"reward/penalty": share(0.001, 0.001, 128)}, set()),
}


@pytest.mark.parametrize(("rows", "apart"), [(10, 1), (10, 10), (30, 1), (300, 1)])
@pytest.mark.parametrize("name", SCALARS)
def test_a_logged_scalar_that_says_what_is_right(name, rows, apart):
    columns, levels = SCALARS[name]
    if rows * apart == 10 and name == "accuracy is past its best":
        levels = set()  # too few to tell
    for seed in range(3):
        dice, place = np.random.default_rng(seed), np.linspace(0, 1, rows)
        values = {"reward": RISES(place, dice) + 0.02 * dice.standard_normal(rows)}
        values |= {column: make(place, dice) for column, make in columns.items()}
        series = {
            column: Series(apart * np.arange(1, rows + 1), of) for column, of in values.items()
        }
        history = History(origin="table", name="rl", kind="rl", series=series)
        assert {level for level, _ in found(history)} == levels, seed


def test_what_is_paid_beside_a_form_that_is_learnt_first_is_no_cheat():
    """Accuracy stands still at first, and every step's chance of it shows in the reward."""
    for seed in range(20):
        dice, place = np.random.default_rng(seed), np.linspace(0, 1, 60)
        right, form = share(0.3, 0.34)(place, dice), share(0.05, 0.95)(place, dice)
        series = {"reward": right + form, "correctness/accuracy": right}
        columns = {column: Series(np.arange(1, 61), of) for column, of in series.items()}
        assert found(History(origin="table", name="rl", kind="rl", series=columns)) == []


def test_a_log_of_the_reward_alone_is_not_looked_at():
    history = healthy()
    series = {name: one for name, one in history.series.items() if not name.startswith("reward/")}
    missing = examine(replace(history, series=series), [find_reward_hacking]).not_run
    assert missing == {"reward-hacking": ["samples|correctness/|reward/"]}
