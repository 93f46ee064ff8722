"""What is asked: prompts cut, repeated, seen before, too few; rows lost at a resume."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil

import numpy as np

from plumbline.checks.check import Finding
from plumbline.checks.diagnosis.facts import (
    has_logged_means,
    list_prompts,
    reward_rises,
    samples_by_step,
    shorten_prompts,
)
from plumbline.checks.diagnosis.history import History, Sample
from plumbline.checks.diagnosis.rule import rule
from plumbline.checks.diagnosis.rules.series import list_jumps
from plumbline.checks.diagnosis.trends import fit_trend, median
from plumbline.records import FloatArray, IntArray, group_by_key

SOME = 0.05
"""Share of the prompts. What is looked for is written by a program, so it is in all of them or in
none."""
COMMON = 12
"""Characters that most prompts begin or end with, from which on it is a template's and no
chance."""
LONGEST = 90
"""Percentile of the lengths of whole prompts, over which those that lack a template's beginning or
end are cut."""
EQUAL = 1.6
"""The longest of the cut ones over the shortest, in characters: tokens of one text have more of
them than another's."""
_BEGIN = r"(<s>|<\|begin_of_text\|>|<bos>|<\|startoftext\|>|<\|begin▁of▁sentence\|>|\[gMASK\]<sop>)"
_TWICE = re.compile(_BEGIN + r"\s*\1")
_MARKS = (
    "<|im_start|>",
    "<|start_header_id|>",
    "<start_of_turn>",
    "[INST]",
    "<|user|>",
    "### Instruction",
    "<|turn>",
)
"""What only one template of chats has."""


@rule("prompts", "prompts|frac_prompts_truncated")
def find_prompts(history: History) -> Iterator[Finding]:
    """Prompts as a trainer stored them: begun twice, written by two templates, or cut.

    Each different prompt once, in the order in which they came.
    """
    prompts = list(dict.fromkeys(one.prompt for one in history.samples))
    series = history["frac_prompts_truncated"]
    cut = series.finite_values
    if len(cut) and cut.mean() >= SOME:
        yield _cut_finding("as-long-as-the-limit", float(cut.mean()), [])
    if len(prompts) < 8:
        return
    twice = [prompt for prompt in prompts if _TWICE.search(prompt[:4000])]
    if len(twice) >= SOME * len(prompts):
        yield Finding(
            "warning",
            "begun-twice",
            evidence={"share": round(len(twice) / len(prompts), 3)},
            samples=shorten_prompts(twice),
            causes=("two-marks",),
        )
    yield from _find_template_change(prompts)
    for end, code in ((1, "beginning-cut"), (-1, "end-cut")):
        if (
            lacking := _find_cut_prompts([prompt[::end] for prompt in prompts])
        ) is not None and not len(cut):
            found = [prompts[at] for at in lacking]
            yield _cut_finding(code, len(found) / len(prompts), found)


def _cut_finding(code: str, share: float, found: Sequence[str]) -> Finding:
    return Finding(
        "warning",
        code,
        evidence={"share": round(share, 3)},
        samples=shorten_prompts(found),
        causes=("prompt-limit",),
    )


def _find_template_change(prompts: Sequence[str]) -> Iterator[Finding]:
    """Whether the marks of the early prompts and the late ones are those of two templates."""
    marks = [frozenset(mark for mark in _MARKS if mark in prompt) for prompt in prompts]
    third = max(4, len(marks) // 3)
    early, late = set(marks[:third]), set(marks[-third:])
    if early & late:
        return
    changed = next(at for at, one in enumerate(marks) if one in late)
    yield Finding(
        "warning",
        "two-templates",
        evidence={
            "prompts before": changed,
            "prompts": len(prompts),
            "early": _name_marks(early),
            "late": _name_marks(late),
        },
        samples=shorten_prompts([prompts[0], prompts[-1]]),
        causes=("other-template",),
    )


def _name_marks(kinds: set[frozenset[str]]) -> str:
    return " or ".join(sorted(", ".join(sorted(kind)) or "no mark" for kind in kinds))


def _find_cut_prompts(prompts: Sequence[str]) -> list[int] | None:
    """Where the prompts are that do not begin as most do; None unless they look cut.

    What a limit of tokens cut is about equally long, longer than nearly all others, and begins
    anywhere.
    """
    # Of a sorted list the half in the middle begins alike if its two ends do.
    ends = sorted(prompts)[len(prompts) // 4 :: len(prompts) // 2][:2]
    begins = ends[0][:COMMON]
    if len(begins) < COMMON or not ends[1].startswith(begins):
        return None
    without = [at for at, prompt in enumerate(prompts) if not prompt.startswith(begins)]
    if not SOME * len(prompts) <= len(without) <= len(prompts) / 2:
        return None
    whole = [len(prompt) for prompt in prompts if prompt.startswith(begins)]
    lengths = [len(prompts[at]) for at in without]
    _, alike = Counter(prompts[at][:COMMON] for at in without).most_common(1)[0]
    long = min(lengths) >= np.percentile(whole, LONGEST) and max(lengths) <= EQUAL * min(lengths)
    return without if long and (alike == 1 or alike < len(without) / 4) else None


SHARE = 0.3
"""Of the draws, over which of a prompt that had come often enough. Where every prompt is drawn
again out of all (with replacement) 0.27 are over the epochs at most, and over what is usual among
the prompts."""
FEW = 8
"""Different prompts, under which a run may be meant so."""
ENOUGH = 40
ANOTHER = 50
"""Draws of each prompt in an epoch, over which it is not of another sort."""
OFTEN = 20
"""Draws of each of few prompts: as many as passes in which a small model learns single answers by
heart."""
IN_ORDER = 16
"""Draws in a row that follow the prompts that they once followed: of 32 prompts in a new order that
is no chance."""


@rule("repeated-prompts", "samples")
def find_repeated_prompts(history: History) -> Iterator[Finding]:
    """Prompts that come again before the others came: a resume that began the data again,
    duplicates, file order.

    Very few prompts; draws of each prompt against the epochs; then steps that have the prompts of
    earlier ones in the same order.
    """
    by_step = _prompts_by_step(history)
    draws = Counter(prompt for prompts in by_step.values() for prompt in prompts)
    total, epochs = sum(draws.values()), history["epoch"].finite_values[-1:].tolist()
    if 1 < len(draws) < FEW and total >= OFTEN * len(draws) and _has_all_samples(history):
        yield _few_prompts_finding(history, len(draws), total // len(draws))
        return
    several = len(history.names("task/")) > 1  # each of several tasks has epochs of its own
    if total >= ENOUGH and (epochs or len(draws) >= FEW) and epochs != [0.0] and not several:
        counts = list(draws.values())
        # Not all trainers mean the same by an epoch, and rows that were made by chance come twice:
        # then all prompts come about equally often.
        often = usual = int(2 * median(counts))
        if epochs:
            allowed = ceil(round(epochs[0], 3))
            usual = min(usual, ANOTHER * allowed + 1)
            often = allowed if len(draws) < FEW else max(allowed, usual)
        again = sum(max(0, count - often) for count in counts)
        if again > SHARE * total:
            yield Finding(
                "warning" if len(draws) >= FEW else "note",
                "drawn-again",
                evidence={
                    "draws": total,
                    "different": len(draws),
                    "epochs": epochs[0] if epochs else None,
                    "again": again,
                    "often": often,
                },
                samples=shorten_prompts([prompt for prompt, _ in draws.most_common(3)]),
                causes=("duplicates", "resumed-at-start", "no-whole-prompt"),
            )
            return
    yield from _find_repeated_order(by_step)


def _has_all_samples(history: History) -> bool:
    """Whether the stored completions are all that were drawn: at nine steps of ten they have the
    logged means."""
    by_step = samples_by_step(history.samples)
    matches = [has_logged_means(stored, step, history.series) for step, stored in by_step.items()]
    return matches.count(True) >= 0.9 * len(matches)


def _few_prompts_finding(history: History, prompts: int, draws: int) -> Finding:
    """So few prompts that a reward that rises may be learnt by heart; a test of the set-up may have
    as few."""
    rose = reward_rises(history)
    elsewhere = fit_trend(history["eval/reward"].values).t > 2
    return Finding(
        "warning" if rose and not elsewhere else "note",
        "few-prompts",
        evidence={"different": prompts, "draws of each": draws, "rose": rose},
        causes=("few-rows-left", "test-run"),
    )


def _prompts_by_step(history: History) -> dict[int, list[str]]:
    """The different prompts of each step; without steps that use old rollouts again, which TRL then
    stores again."""
    rows = group_by_key((one.step, (one.prompt, one.text)) for one in history.samples if one.prompt)
    steps = sorted(rows)
    again = {now for before, now in pairwise(steps) if rows[before] == rows[now]}
    return {
        step: list(dict.fromkeys(prompt for prompt, _ in rows[step]))
        for step in steps
        if step not in again
    }


def _find_repeated_order(by_step: dict[int, list[str]]) -> Iterator[Finding]:
    """The longest stretch of draws each of which came before, after the same prompt as now."""
    draws = [(step, prompt) for step in sorted(by_step) for prompt in by_step[step]]
    last: dict[str, int] = {}
    now, longest, begins, whence = 0, 0, 0, 0
    for at, (_, prompt) in enumerate(draws):
        before = last.get(prompt)
        now = (
            now + 1
            if before is not None and at and before and draws[before - 1][1] == draws[at - 1][1]
            else 0
        )
        if before is not None and now > longest:
            longest, begins, whence = now, at - now, before - now
        last[prompt] = at
    if longest < IN_ORDER or len(last) < 2 * IN_ORDER:
        return
    whole = whence == 0 and begins >= len(last)
    yield Finding(
        "note" if whole else "warning",
        "not-shuffled" if whole else "same-order",
        since=draws[begins][0],
        evidence={"prompts": longest + 1, "as from": draws[whence][0], "different": len(last)},
        causes=("file-order", "one-order") if whole else ("resumed-at-start",),
    )


OVERLAP_SOME = 0.05
"""Share of the prompts that are evaluated on, below which they may be common ones of two sets."""


@rule("overlap", "samples", "finals|evaluated", live=False)
def find_overlap(history: History) -> Iterator[Finding]:
    """Examples that were trained on and evaluated on.

    By their ids, for each held-out split of each task; by the text of the prompt for evaluations
    inside training.
    """
    trained = {one.prompt for one in history.samples}
    by_split: dict[str, set[str]] = {}
    for final in history.finals:
        if final.split != "train":
            by_split.setdefault(final.where, set()).update(row.id for row in final.evaluation.rows)
    for where, ids in by_split.items():
        if shared := sorted(ids & trained):
            yield Finding(
                "fatal",
                "examples-trained-on",
                evidence={"where": where, "shared": len(shared), "of": len(ids)},
                samples=tuple(shared[:3]),
                causes=("splits-share", "slice-of-training"),
            )

    asked = {prompt for one in history.evaluated if (prompt := one.prompt.strip())}
    both = sorted(asked & {prompt.strip() for prompt in trained})
    if both and len(asked) > 1:
        yield Finding(
            "warning" if len(both) >= OVERLAP_SOME * len(asked) else "note",
            "prompts-trained-on",
            since=history.evaluated[0].step,
            evidence={"shared": len(both), "of": len(asked)},
            samples=shorten_prompts(both),
            causes=("splits-share", "slice-of-training"),
        )


ORDER_ENOUGH = 40
"""Different prompts; of fewer an order may be chance."""
KINDS, KIND = 12, 8
"""The most kinds, and the fewest prompts of each: kinds are a task's templates or sources, and no
single rows."""
SORTED = 0.3
"""Share of the variance of the places of prompts that their kinds explain: shuffled rows have the
number of kinds over the number of prompts, two kinds one after the other 0.75."""
APART = 0.5
"""Of that share, over which kinds hardly mix: a model learns one after the other, and forgets."""
LENGTHS = 0.6
"""Spearman's correlation of a prompt's length with its place: of 40 shuffled prompts one in 10,000
has as much."""
BY_LENGTH = 0.8
"""Of it, over which short and long prompts hardly mix."""
SHUFFLES, LOOKED_AT = 200, 4000
"""Random orders, none of which may explain as much, and the most prompts that are looked at."""
_TAG = re.compile(r"<[^>\s]{1,40}>|\[/?INST\]")
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")


LENGTHS_ENOUGH = 20
"""Logged mean lengths of prompts."""


@rule("data-order", "prompts|prompt_length", live=False)
def find_data_order(history: History) -> Iterator[Finding]:
    """Prompts sorted by their kind or by their length: what is learnt early and late is not the
    same.

    The first draw of each prompt; kinds by a stored column, else by the first words. A warning
    where one kind comes after the other, or where the reward jumps as the kind changes.
    """
    first = {one.prompt: one for one in reversed(history.samples)}
    rows = sorted(first.values(), key=lambda one: one.step)
    logged = history["prompt_length"]
    epoch = history["epoch"]
    once = logged.values[~np.isin(logged.steps, epoch.steps[epoch.values > 1])]
    if not rows and len(once) >= LENGTHS_ENOUGH:
        share = _correlation(np.arange(len(once), dtype=np.float64), once)
        if abs(share) > LENGTHS:
            yield _sorted_finding(share, rows, [], None)
    if len(rows) < ORDER_ENOUGH or any(_find_template_change([one.prompt for one in rows])):
        return
    rows = rows[:: -(-len(rows) // LOOKED_AT)]
    steps = np.array([one.step for one in rows], dtype=np.float64)
    kinds = _kinds(rows)
    lengths = np.array(
        [len(_DIGITS.sub("#", one.prompt[:LOOKED_AT])) for one in rows], dtype=np.float64
    )
    if kinds is not None and (share := _share_explained(steps, kinds)) > SORTED:
        dice = np.random.default_rng(0)
        if share <= max(_share_explained(dice.permutation(steps), kinds) for _ in range(SHUFFLES)):
            return
        most = [kinds[steps == step] for step in np.unique(steps)]
        main = [Counter(one.tolist()).most_common(1)[0][0] for one in most]
        at = [
            int(step)
            for step, (old, new) in zip(np.unique(steps)[1:], pairwise(main), strict=True)
            if old != new
        ]
        near = {step + apart for step in at for apart in range(-2, 3)}
        jumps = [step for step in list_jumps(history["reward"]) if step in near]
        yield _sorted_finding(share, rows, jumps, kinds)
    elif np.ptp(lengths) > 0 and abs(share := _correlation(steps, lengths)) > LENGTHS:
        yield _sorted_finding(share, rows, [], None)


def _sorted_finding(
    share: float,
    rows: Sequence[Sample],
    jumps: Sequence[int],
    kinds: IntArray | None,
) -> Finding:
    """Prompts in the order of their kinds [n], or of their lengths where there are none."""
    return Finding(
        "warning" if jumps or abs(share) > (BY_LENGTH if kinds is None else APART) else "note",
        "sorted-by-length" if kinds is None else "sorted-by-kind",
        since=jumps[0] if jumps else None,
        evidence={
            "prompts": len(rows) or None,
            "kinds": None if kinds is None else int(kinds.max()) + 1,
            "share explained" if kinds is not None else "correlation": round(share, 3),
        },
        samples=list_prompts((*rows[:1], *rows[-1:])),
        causes=("file-order", "curriculum"),
    )


def _kinds(rows: Sequence[Sample]) -> IntArray | None:
    """The kind of each prompt by number; None where there is one kind, or where many prompts have
    none."""
    names = [one.kind for one in rows]
    if not all(names):
        texts = [_TAG.sub(" ", one.prompt[:LOOKED_AT]).strip() for one in rows]
        # What the first and the last of a sorted list begin with is what all begin with.
        both = list(zip(min(texts), max(texts), strict=False))
        common = min(texts)[
            : next((at for at, (one, other) in enumerate(both) if one != other), len(both))
        ]
        begin = max(common.rfind(" "), common.rfind("\n")) + 1
        names = [" ".join(_DIGITS.sub("#", text[begin:]).lower().split()[:2]) for text in texts]
    counts = Counter(names)
    usual = [name for name, count in counts.items() if count >= KIND]
    if not 2 <= len(usual) <= KINDS or sum(counts[name] for name in usual) < 0.8 * len(rows):
        return None
    return np.array([usual.index(name) if name in usual else len(usual) for name in names])


def _share_explained(places: FloatArray, kinds: IntArray) -> float:
    """The share of the variance of places that lies between kinds."""
    counts = np.bincount(kinds)
    means = np.bincount(kinds, places) / np.maximum(counts, 1)
    whole = float(places.var()) * len(places)
    return float(counts @ (means - places.mean()) ** 2) / whole if whole > 0 else 0.0


def _correlation(one: FloatArray, other: FloatArray) -> float:
    """Spearman's, with mean ranks for ties."""
    ranks = []
    for values in (one, other):
        _, at, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - counts / 2)[at])
    return (
        float(np.corrcoef(ranks[0], ranks[1])[0, 1])
        if all(np.ptp(rank) > 0 for rank in ranks)
        else 0.0
    )


LITTLE = 0.2
"""Of an epoch; one team's log stopped at 0.135."""


@rule("coverage", "epoch", live=False)
def find_coverage(history: History) -> Iterator[Finding]:
    """How much of the data a run has seen: a plateau on a seventh of the prompts is no ceiling.

    At the last step, of each task where there are several. Whether more would help nobody knows, so
    it is a note.
    """
    planned = history.settings.get("steps")
    if history.last_step < 20 or (isinstance(planned, int) and history.last_step < 0.9 * planned):
        return
    for task in history.names("epoch/") or [""]:
        series = history[f"epoch/{task}" if task else "epoch"]
        values = series.finite_values
        if not len(values) or values[-1] >= LITTLE:
            continue
        whole = round(history.last_step / max(float(values[-1]), 1e-9))
        yield Finding(
            "note",
            since=series.steps[-1],
            evidence={
                "part of the data": task,
                "epochs": values[-1],
                "steps": history.last_step,
                "steps for an epoch": whole,
            },
            causes=("few-steps",),
            change={"rl.steps": whole},
        )


USUAL = 0.6
"""Share of the windows that must have one length."""


@rule("window-cut", "reward", "loss")
def find_window_cut(history: History) -> Iterator[Finding]:
    """A resume within a window of rollouts: what was drawn for several steps is lost, and drawn
    again by other weights.

    TRL logs a reward where it draws, and in the steps that use the same rollouts again only the
    loss.

    With every step logged, the steps with a reward are so many apart; a resume begins a window
    again, wherever it is.
    """
    loss, reward = history["loss"].steps, history["reward"].steps
    if history.origin != "trl" or len(reward) < 4 or len(loss) < 2 or (np.diff(loss) != 1).any():
        return
    apart = np.diff(reward)
    lengths, counts = np.unique(apart, return_counts=True)
    usual = int(lengths[np.argmax(counts)])
    short = np.flatnonzero(apart < usual)
    if usual < 2 or counts.max() < USUAL * len(apart) or not len(short):
        return
    at = [int(reward[one + 1]) for one in short]
    yield Finding(
        "warning",
        since=at[0],
        evidence={
            "window": usual,
            "cut": len(at),
            "at": reward[short[0]],
            "used": apart[short[0]],
        },
        causes=("checkpoint-in-window",),
    )
