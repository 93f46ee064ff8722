"""What answers look like: length, truncation, repetition, language."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from plumbline.checks.check import Finding
from plumbline.checks.diagnosis.facts import (
    correlate_with_reward,
    count_characters,
    fit_part_weights,
    group_samples,
    has_enough_rows,
    is_cut_from_start,
    is_every_step,
    is_sustained,
    list_prompts,
    quote_sample,
    recent_median,
    reward_rises,
    shorten_prompts,
    step_distance,
    unrefuted_causes,
)
from plumbline.checks.diagnosis.history import History, Sample, Series
from plumbline.checks.diagnosis.rule import persisted, rule
from plumbline.checks.diagnosis.rules.reward import LENGTH
from plumbline.checks.diagnosis.trends import (
    end_medians,
    fit_trend,
    median,
    tenth_of,
)
from plumbline.config.overrides import read_package_yaml
from plumbline.runs.evaluations import REFERENCE

LENGTH_TIMES = 3.0
SHORT = 0.2
LENGTH_ENOUGH = 20
GAIN = 0.05
"""Of the reward, which answers that grew must earn more."""
ENDING = 0.01
"""Share of cut answers, under which ends are still drawn."""


@rule("length", "completion_length")
def find_length(history: History) -> Iterator[Finding]:
    """The length of completions runs away or shrinks to nothing, and the reward with it or in spite
    of it.

    The first tenth of the steps against the last.
    """
    series = history["completion_length"]
    values = series.finite_values
    if not has_enough_rows(series, LENGTH_ENOUGH):
        return
    first, last = end_medians(values, tenth_of(values))
    reward = fit_trend(history["reward"].values)
    more = reward.t >= 2 and reward.last - reward.first > GAIN * max(
        abs(reward.first), abs(reward.last)
    )
    evidence = {"first": first, "last": last, "reward t": np.clip(reward.t, -99, 99)}
    if last > LENGTH_TIMES * max(first, 1) and last - first > 20:
        paid = (
            _follows_length(history)
            or correlate_with_reward(history.samples, count_characters)[0] > STRONG
        )
        yield Finding(
            "note" if more and not paid else "warning",
            "grew",
            since=series.steps[np.argmax(series.values > LENGTH_TIMES * max(first, 1))],
            evidence=evidence | {"earns more": more, "paid": paid},
            causes=unrefuted_causes(
                ("length-paid", not (paid or _pays_length(history))),
                ("charged-less", paid),
                ("end-unlearnt", recent_median(history["frac_truncated"]) < ENDING),
            ),
        )
    elif first >= 5 and last < SHORT * first:
        yield Finding(
            "warning",
            "shrank",
            since=series.steps[np.argmax(series.values < SHORT * first)],
            evidence=evidence,
            causes=("short-paid", "early-end"),
        )


STRONG = 0.8
"""The correlation within groups, in both halves of the run: length then explains two thirds of what
is learnt from."""
MOVED = 0.2
"""Of the length at first."""
LENGTH_PAID_ENOUGH = 64


@rule("length-paid", "samples", live=False)
def find_length_paid(history: History) -> Iterator[Finding]:
    """Length is what is paid: within groups the reward follows it, and it moves.

    A task may want short answers, so it is a note: a reader of the reward must know that it is one
    of length.
    """
    half = len(history.samples) // 2
    if half < LENGTH_PAID_ENOUGH:
        return
    early, late = (
        correlate_with_reward(history.samples[:half], count_characters)[0],
        correlate_with_reward(history.samples[half:], count_characters)[0],
    )
    series = history["completion_length"]
    line = fit_trend(
        series.values
        if len(series)
        else np.array([count_characters(one) for one in history.samples])
    )
    moved = line.last / max(line.first, 1.0) - 1
    if (
        min(abs(early), abs(late)) < STRONG
        or early * late < 0
        or moved * late < 0
        or abs(line.t) < 3
        or abs(moved) < MOVED
    ):
        return
    longer = late > 0
    yield Finding(
        "note",
        "longer" if longer else "shorter",
        evidence={
            "correlation at first": round(early, 2),
            "at last": round(late, 2),
            "completion_length": round(line.last, 1),
            "change": abs(moved),
        },
        causes=("long-paid" if longer else "short-paid",),
    )


TRUNCATION_MOST, OFTEN, TRUNCATION_SOME = 0.9, 0.7, 0.3
WINDOW = 10


@rule(
    "truncation",
    "frac_truncated|num_eos_tokens",
    stops=lambda history, since: (
        persisted(30)(history, since) and fit_trend(history["frac_truncated"].values).t > -2
    ),
)
def find_truncation(history: History) -> Iterator[Finding]:
    """Completions at the ceiling: cut before they end, so what is judged is not what was meant.

    Of the last window; and marks of completions that count as cut and are not.
    """
    series, ends = history["frac_truncated"], history["num_eos_tokens"]
    counted = not len(series)
    if counted:  # how many answers end, of an unknown number: none at all says enough
        series = Series(ends.steps, (ends.values == 0) * 1.0)
    width = min(WINDOW, max(3, len(series) // 2))
    last = series.last(width).finite_values
    if len(last) < 3 or (counted and (len(series) < WINDOW or not last.all())):
        return
    share, first = float(last.mean()), float(np.nanmean(series.values[:width]))
    longest = _longest_where_cut(history)
    ceiling = history.settings.get("sampling.max_tokens")
    shorter = len(longest) >= 5 and share > 0.05 and _is_below_ceiling(longest, ceiling)
    if shorter:
        yield Finding(
            "warning",
            "not-cut",
            evidence={
                "share": round(share, 3),
                "longest": longest.max(),
                "least longest": longest.min(),
                "limit": ceiling,
            },
            causes=("second-end",),
        )
    elif share >= TRUNCATION_SOME:
        rose = share > min(first + 0.2, float(np.nanmean(series.values[:2])) + 0.5)
        from_start = is_cut_from_start(history) and not rose
        by_length = _pays_length(history, STRONG if from_start else LONGER)
        learns = not rose and reward_rises(history)
        dead = len(history["reward"]) > 0 and not history["reward"].values.any()
        most = share >= TRUNCATION_MOST or (is_cut_from_start(history) and dead)
        long = len(series) >= 5 or (dead and is_sustained(series.steps, len(series)))
        fed = rose or by_length
        cut = [one for one in history.samples if one.truncated] or history.samples
        known = ceiling or (float(longest.max()) if len(longest) and not np.ptp(longest) else None)
        yield Finding(
            ("warning" if learns else "fatal")
            if most and long and not counted
            else "note"
            if learns
            else "warning",
            "cut",
            since=series.steps[np.argmax(series.values >= TRUNCATION_SOME)],
            evidence={
                "share": round(share, 3),
                "steps": len(last),
                "at first": round(first, 3),
                "limit": ceiling,
                "limit here": known if isinstance(known, int | float) else None,
                "rose": rose,
                "learns": learns,
                "fed": fed,
                "from start": from_start,
                "end unpaid": rose and not by_length,
                "example": quote_sample(cut[::-1]),
            },
            causes=("length-paid",)
            if by_length
            else ("end-unpaid",)
            if rose
            else ("end-unlearnt", "limit-too-low")
            if counted
            else ("limit-too-low", "end-unlearnt"),
            change={"sampling.max_tokens": 2 * ceiling}
            if isinstance(ceiling, int) and not fed
            else {},
        )


LONGER = 0.3
"""The correlation within groups, from which on longer answers earn more."""


def _pays_length(history: History, limit: float = LONGER) -> bool:
    """Whether longer answers earn more: by completions of a group, else where both rise."""
    if known := correlate_with_reward(history.samples, count_characters)[0]:
        return known > limit
    return all(
        any(fit_trend(history[one].values).t > 2 for one in of)
        for of in (history.reward_names, ("completion_length", "frac_truncated"))
    )


FOLLOWS = 0.7
"""The correlation of differences from step to step, from which on length is paid; trends of means
are alike."""


def _follows_length(history: History) -> bool:
    """Whether a paid part that has its name of length rises, or a reward goes up and down with it
    from step to step."""
    length, known = history["completion_length"], fit_part_weights(history) or {}
    for name in history.reward_names:
        series, part = history[name], name.removeprefix("reward/")
        if LENGTH.search(part) and known.get(part, 0) > 0 and fit_trend(series.values).t > 2:
            return True
        _, here, there = np.intersect1d(series.steps, length.steps, return_indices=True)
        pair = np.diff([series.values[here], length.values[there]])
        pair = pair[:, np.isfinite(pair).all(axis=0)]
        some = is_every_step(length) and pair.shape[1] >= LENGTH_ENOUGH and pair.std(axis=1).all()
        if some and np.corrcoef(pair)[0, 1] > FOLLOWS:
            return True
    return False


def _longest_where_cut(history: History) -> np.ndarray:
    """The longest completions of those steps of the last window in which some was cut for sure.

    Where only every k-th step is logged, what is logged is a mean of k, and in some of those
    nothing may have been cut: in all of them it was where more than 1 - 1/k of the completions
    were.
    """
    series, longest = history["frac_truncated"].last(WINDOW), history["completion_length_max"]
    every = step_distance(history["frac_truncated"].steps)
    sure = series.steps[series.values > 1 - 1 / max(every, 1)]
    # A length of half a token is a mean over batches, of which some had no answer at the limit,
    # unless most are cut.
    often = np.isin(longest.steps, series.steps[series.values > OFTEN])
    return longest.values[
        np.isin(longest.steps, sure) & (often | (longest.values == np.round(longest.values)))
    ]


def _is_below_ceiling(longest: np.ndarray, ceiling: object) -> bool:
    """Whether the longest completion of steps is below the ceiling; without a known one it would be
    the same in all."""
    if isinstance(ceiling, int | float):
        return bool(longest.max() < ceiling)
    return bool(np.unique(longest).size > 0.8 * len(longest))


DEGENERATE_OUTPUT_MANY, DEGENERATE_OUTPUT_MOST = 0.2, 0.5
EQUAL = 0.01
RAN_AWAY, SPIKE = 1.0, 100.0
"""Nats of KL, and times the usual gradient, that weights which still hold together do not have."""
LONG, FEW = 60, 0.2
"""Rows of four words, and the share of different ones: each comes five times and more. Tables have
over half."""
DEGENERATE_OUTPUT_LOOKED_AT = 2000
"""Of the last completions."""
ASKED = 0.75
"""Share of the words of a sentence that a prompt must have to ask for it."""
_A_WORD = re.compile(r"\w+")
_REPEATED = re.compile(r"(.{1,12}?)\1{19,}", re.DOTALL)
"""The same one to twelve characters twenty times in a row."""


@rule("degenerate-output", "samples", stops=persisted(30))
def find_degenerate_output(history: History) -> Iterator[Finding]:
    """Completions that are no answers: empty, one sign over and over, or the same for every prompt.

    The later half of the last ones, at least 16 of them.
    """
    last = list(history.samples[-DEGENERATE_OUTPUT_LOOKED_AT:])
    last = last[-max(16, len(last) // 2) :]
    if len(last) < 8:
        return
    kinds = KINDS if (same := _find_one_text(last)) is None else {**KINDS, ONE_TEXT: same}
    for kind, like in kinds.items():
        found = list(filter(like, last))
        if len(found) / len(last) >= DEGENERATE_OUTPUT_MANY:
            yield _degenerate_finding(history, len(last), kind, like, found)


ONE_TEXT = "one-text"
KINDS: dict[str, Callable[[Sample], bool]] = {
    "empty": lambda one: not one.text.strip(),
    "repeating": lambda one: (
        bool(_REPEATED.search(one.text[:4000])) or _repeats_words(one.text[:4000])
    ),
}


def _degenerate_finding(
    history: History,
    count: int,
    kind: str,
    like: Callable[[Sample], bool],
    found: Sequence[Sample],
) -> Finding:
    early = history.samples[: max(16, len(history.samples) // 10)]
    share = len(found) / count
    rewarded = [one for one in found if (one.reward or 0) > 0.5]
    cheat, broken = (
        len(rewarded) > len(found) / 2 or reward_rises(history),
        _has_broken_weights(history),
    )
    at_first = sum(map(like, early)) > share / 2 * len(early)
    return Finding(
        "fatal" if share >= DEGENERATE_OUTPUT_MOST else "warning",
        kind,
        since=found[0].step,
        evidence={
            "share": round(share, 3),
            "of": count,
            "of these rewarded above .5": len(rewarded),
            "cheat": cheat,
            "example": quote_sample(found),
        },
        samples=list_prompts(found),
        about=kind,
        causes=unrefuted_causes(
            ("cheat", not cheat),
            ("broken-weights", cheat or not broken),
            ("template", cheat or broken or not at_first),
            ("nothing-tells", cheat or broken or at_first),
        ),
    )


def _has_broken_weights(history: History) -> bool:
    """Whether the figures of training show that weights were damaged: none that is finite, a KL or
    an entropy that ran away, gradients far above the usual, or a reward that falls.
    """
    gradient, entropy = (
        np.abs(history["grad_norm"].values),
        history["entropy"].finite_values,
    )
    return (
        any(
            not np.isfinite(history[name].values).all()
            for name in ("loss", "grad_norm", "reward", "kl", "entropy")
        )
        or recent_median(history["kl"]) > RAN_AWAY
        or (len(entropy) > 0 and recent_median(history["entropy"]) > entropy[0] + 1)
        or bool((gradient > SPIKE * max(1.0, median(gradient))).any() if len(gradient) else False)
        or fit_trend(history["reward"].values).t < -2
    )


def _repeats_words(text: str) -> bool:
    """Whether it says the same words again and again: of its rows of four few differ."""
    words = text.split()
    rows = list(zip(words, words[1:], words[2:], words[3:], strict=False))
    return len(rows) >= LONG and len(set(rows)) < FEW * len(rows)


def _find_one_text(last: Sequence[Sample]) -> Callable[[Sample], bool] | None:
    """Whether one is the most frequent text, where that answers many different prompts and is no
    answer to them.

    Many prompts may have one right answer: it earns much with some and little with others. One that
    earns the same with all of them was not written for any.
    """
    prompts = len({one.prompt for one in last})
    text, count = Counter(one.text.strip() for one in last).most_common(1)[0]
    found = [one for one in last if one.text.strip() == text]
    answered = len({one.prompt for one in found})
    if (
        prompts < 8
        or not text
        or count / len(last) < DEGENERATE_OUTPUT_MANY
        or answered < max(5, 0.3 * prompts)
    ):
        return None
    earned = [one.reward for one in found if one.reward is not None]
    if earned and (max(earned) - min(earned) >= EQUAL or _is_asked_for(text, found)):
        return None
    return lambda one: one.text.strip() == text


def _is_asked_for(text: str, found: Sequence[Sample]) -> bool:
    """Whether a sentence is paid that stands, word by word, in nearly every prompt."""
    words = set(text.casefold().split())
    asked = [len(words & set(_A_WORD.findall(one.prompt.casefold()))) for one in found]
    paid = sum((one.reward or 0) > 0.5 for one in found)
    return len(words) > 2 and paid > len(found) / 2 and min(asked) >= ASKED * len(words)


IDENTICAL_SAMPLES_MOST = 0.6
WARM = 0.5
"""A temperature at which answers differ."""
EARLY = 0.25
"""Of the run: later a solved prompt may well be answered in one way."""


@rule("identical-samples", "samples")
def find_identical_samples(history: History) -> Iterator[Finding]:
    """The completions of a group are one text from the first steps on: nothing is drawn, or all by
    one stream of draws.

    Groups of at least three completions of the first quarter of the steps.
    """
    steps = sorted({sample.step for sample in history.samples})
    early = set(steps[: max(1, round(EARLY * len(steps)))])
    groups = group_samples(one for one in history.samples if one.step in early and one.prompt)
    whole = {key: [one.text for one in group] for key, group in groups.items() if len(group) >= 3}
    same = [key for key, texts in whole.items() if len(set(texts)) == 1]
    if len(whole) < 4 or len(same) / len(whole) < IDENTICAL_SAMPLES_MOST:
        return
    first = {key for key in whole if key[0] == steps[0]}
    collapsed = bool(first) and not first & {*same}
    rewards = [one.reward for group in groups.values() for one in group if one.reward is not None]
    if collapsed and rewards and min(rewards) < max(rewards):
        # a short answer that is right is soon given every time
        solved = [key for key in same if {one.reward for one in groups[key]} == {max(rewards)}]
        if len(solved) > len(same) / 2:
            return
    yield Finding(
        "fatal",
        since=min(same)[0],
        evidence={"groups": len(whole), "with one text": len(same)},
        samples=shorten_prompts([prompt for _, prompt in same]),
        causes=("high-rate",)
        if collapsed
        else unrefuted_causes(
            ("temperature", (history.settings.get("sampling.temperature") or 0) >= WARM),
            "one-seed",
            "order-not-drawn",
        ),
        change={} if collapsed else {"sampling.temperature": 1.0},
    )


_TABLE = read_package_yaml(Path(__file__).with_name("languages.yaml"))
_WORDS = {name: frozenset(words) for name, words in _TABLE["words"].items()}
_SCRIPTS = {begins: name for name, beginnings in _TABLE["scripts"].items() for begins in beginnings}
HITS, WRONG_LANGUAGE_TIMES = 4, 2
"""Frequent words that a text must have of a language, and how many times as many as of the next
one."""
MIXED = 0.05
"""Of a text's letters, that must be of a script: a name or a quotation has fewer, and a whole text
nearly all."""
WRONG_LANGUAGE_SOME, WRONG_LANGUAGE_MANY = 0.3, 0.7
"""Share of completions in a language that is not expected. Answers of the two real multi-task runs
of the documents have 1 % at most."""
USUAL = 0.05
"""Share of the references from which on a language is expected."""
WRONG_LANGUAGE_LOOKED_AT = 400


@rule("wrong-language", "samples")
def find_wrong_language(history: History) -> Iterator[Finding]:
    """Completions in another language than the gold answers, or than those of the first steps.

    The last tenth, against gold answers; without them against the first tenth; and prompts against
    completions.
    """
    last = _sample_tenth(history.samples, -1)
    found = [(one, detect_languages(one.text)) for one in last]
    golds = [
        row.completion
        for one in history.finals
        if (one.stage, one.mode) == (REFERENCE, "oracle")
        for row in one.evaluation.rows
    ]
    expected = of_golds = _expected_languages(golds[:WRONG_LANGUAGE_LOOKED_AT])
    if not expected:
        expected = _expected_languages([one.text for one in _sample_tenth(history.samples, 1)])
    wrong = [one for one, there in found if there - expected]
    share = len(wrong) / max(len(found), 1)
    if expected and len(found) >= 16 and share >= WRONG_LANGUAGE_SOME:
        names = Counter(name for _, there in found for name in there - expected)
        yield Finding(
            "fatal" if share >= WRONG_LANGUAGE_MANY and of_golds else "warning",
            "not-of-gold" if of_golds else "not-of-first",
            since=wrong[0].step,
            evidence={
                **names,
                "share": round(share, 3),
                "of": len(found),
                "language": names.most_common(1)[0][0],
                "expected": sorted(expected),
                "example": quote_sample(wrong),
            },
            samples=list_prompts(wrong),
            causes=("language-unpaid", "hardly-known"),
        )


def detect_languages(text: str) -> set[str]:
    """What a text is written in: the language of its frequent words, where they decide, and scripts
    with a share of its letters. Empty for data, code and a few words.
    """
    text = text[:2000]
    counts = Counter(word for word in re.findall(r"[^\W\d_]+", text.lower()))
    hits = Counter({name: sum(counts[word] for word in words) for name, words in _WORDS.items()})
    (best, most), (_, second) = hits.most_common(2)
    found = {best} if most >= HITS and most >= WRONG_LANGUAGE_TIMES * second else set()
    letters = [letter for letter in text if letter.isalpha()]
    scripts = Counter(
        script for letter in letters if ord(letter) > 0x370 and (script := _script(letter))
    )
    return found | {
        name for name, count in scripts.items() if count >= max(HITS, MIXED * len(letters))
    }


@cache
def _script(letter: str) -> str | None:
    return _SCRIPTS.get(unicodedata.name(letter, "").partition(" ")[0])


def _expected_languages(texts: Sequence[str]) -> set[str]:
    """The languages of texts, where a third of them can be told."""
    each = [detect_languages(text) for text in texts]
    if len(each) < 16 or sum(map(bool, each)) < len(each) / 3:
        return set()
    counts = Counter(name for names in each for name in names)
    return {name for name, count in counts.items() if count >= USUAL * len(each)}


def _sample_tenth(samples: Sequence[Sample], end: int) -> Sequence[Sample]:
    """A tenth of the completions from the beginning (1) or the end (-1), at least 16 and at most
    `WRONG_LANGUAGE_LOOKED_AT` of them, drawn evenly.
    """
    count = max(16, len(samples) // 10)
    some = samples[:count] if end > 0 else samples[-count:]
    return some[:: -(-len(some) // WRONG_LANGUAGE_LOOKED_AT) or 1]


GOES_ON_SOME = 0.2
_END = r"(?:<\|im_end\|>|<\|endoftext\|>|<\|eot_id\|>|<\|end_of_text\|>|<end_of_turn>|</s>|<eos>|<\|end\|>)"
_AFTER = re.compile(
    _END
    + r"\s*(?!\s|"
    + _END
    + r"|<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|<s>|<pad>|\[PAD\])\S"
)
"""An end, and then neither another one nor the beginning of a turn (of an episode of several)."""


@rule("goes-on", "samples")
def find_goes_on(history: History) -> Iterator[Finding]:
    """Completions that go on after their end: the mark that ends a text is not one that stops the
    sampler.

    The last half of the completions. Most trainers store them without such marks; then there is
    nothing to see.
    """
    last = history.samples[len(history.samples) // 2 :][-2000:]
    found = [one for one in last if _AFTER.search(one.text)]
    if len(last) < 16 or len(found) < GOES_ON_SOME * len(last):
        return
    share = len(found) / len(last)
    yield Finding(
        "warning",
        since=found[0].step,
        evidence={"share": round(share, 3), "of": len(last), "example": quote_sample(found)},
        samples=list_prompts(found),
        causes=("mark-does-not-stop",),
    )
