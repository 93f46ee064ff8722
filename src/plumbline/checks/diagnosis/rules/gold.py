"""Answers against the gold answers that a user stores with completions."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from plumbline.checks.check import Finding
from plumbline.checks.diagnosis.history import History, Sample
from plumbline.checks.diagnosis.rule import rule
from plumbline.tasks.text.lenient_json import read_json
from plumbline.tasks.text.numbers import read_number

GOLD_UNPAID_SOME, GOLD_UNPAID_MANY = 0.05, 0.2
"""Share of the right answers that earn nothing; the limits of `parser`."""
GOLD_UNPAID_ENOUGH = 5
"""Right answers that earn nothing."""
PAID_WRONG = 0.05
"""Share of the wrong answers that a part may pay, and still be one of rightness: a gold answer has
more than one form that no reading here knows."""
DEALT_ENOUGH, DEALT_LESS = 40, 0.2
"""Groups with right and wrong answers, and the share of the rewards' range that right ones would
earn more by."""
GOLD_UNPAID_LOOKED_AT = 2000
"""Completions, evenly over the run."""
_LONG = 2000
"""Characters of a completion that are read, from its end."""
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]{0,200}\}){0,400})\}")
_TAGGED = re.compile(r"<answer>(.{0,1000}?)</answer>", re.DOTALL | re.IGNORECASE)
_SAID = re.compile(
    r"\b(?:answer|resposta)(?: is| é|:| :)+ ?(.{1,400})$", re.IGNORECASE | re.MULTILINE
)
_UNIT = re.compile(r"(.*\d) ?([a-zµ°²³/]{1,12})", re.IGNORECASE)


@rule("gold-unpaid", needs=("golds",), live=False)
def find_gold_unpaid(history: History) -> Iterator[Finding]:
    """Answers that are the gold answer, read as they are meant, and earn nothing: a reader of
    answers rejects them.

    Only where what pays is rightness: the parts that pay hardly any wrong answer, and right ones or
    none at all.
    """
    samples = [one for one in history.samples if one.gold.strip()]
    samples = samples[:: -(-len(samples) // GOLD_UNPAID_LOOKED_AT) or 1]
    right = [one for one in samples if is_right(one.text, one.gold)]
    known = set(map(id, right))
    wrong = [one for one in samples if id(one) not in known]
    parts = _parts_paying_right_answers(right, wrong)
    if not _is_gold_of_prompt(samples):
        return
    if not parts:
        yield from _find_shuffled_rewards(right, wrong)
        return
    lost = [
        one for one in right if all(_reward_or_nan(one, name) <= low for name, low in parts.items())
    ]
    share = len(lost) / len(right)
    if len(lost) < GOLD_UNPAID_ENOUGH or share < GOLD_UNPAID_SOME:
        return
    late = right[-max(GOLD_UNPAID_ENOUGH, len(right) // 3) :]
    unpaid = set(map(id, lost))
    still = sum(id(one) in unpaid for one in late) / len(late)
    learnt = still < GOLD_UNPAID_SOME  # a form that is asked for, and is kept by now
    yield Finding(
        level="note" if learnt else "fatal" if share >= GOLD_UNPAID_MANY else "warning",
        code="unpaid",
        since=lost[0].step,
        evidence={
            "right": len(right),
            "earn nothing": len(lost),
            "share": round(share, 3),
            "of the last": still,
            "learnt": learnt,
        },
        samples=tuple(
            dict.fromkeys(f"{_quote_end(one.text)} for gold {_quote_end(one.gold)}" for one in lost)
        )[:3],
        causes=("reader-rejects", "form-paid"),
    )


def _find_shuffled_rewards(right: Sequence[Sample], wrong: Sequence[Sample]) -> Iterator[Finding]:
    """Whether right answers surely earn no more than those to the same prompt that do not hold the
    gold answer."""
    groups: dict[tuple[int, str], tuple[list[float], list[float]]] = {}
    for place, some in enumerate(
        (right, [one for one in wrong if one.gold.strip() not in one.text])
    ):
        for one in some:
            groups.setdefault((one.step, one.prompt), ([], []))[place].append(
                _reward_or_nan(one, "")
            )
    gaps = [np.mean(good) - np.mean(bad) for good, bad in groups.values() if good and bad]
    earned = np.array([_reward_or_nan(one, "") for one in right])
    if len(gaps) < DEALT_ENOUGH or not np.isfinite(gaps).all() or not np.isfinite(earned).all():
        return
    surely, least = (
        3 * float(np.std(gaps, ddof=1)) / len(gaps) ** 0.5,
        DEALT_LESS * float(np.ptp(earned)),
    )
    some_paid = least / 2 < earned.mean() - earned.min() < np.ptp(earned) - least / 2
    if not some_paid or np.mean(gaps) > min(surely, least - surely):
        return
    yield Finding(
        level="warning",
        code="no-more-than-others",
        evidence={"difference": float(np.mean(gaps)), "groups": len(gaps)},
        causes=("order-lost", "pays-else"),
    )


def _is_gold_of_prompt(samples: Sequence[Sample]) -> bool:
    """Whether what is stored is of the prompt: an answer that was read from the completion differs
    within a group."""
    golds: dict[str, set[str]] = {}
    for one in samples:
        golds.setdefault(one.prompt, set()).add(one.gold)
    return sum(len(several) > 1 for several in golds.values()) <= 0.1 * len(golds)


def _parts_paying_right_answers(
    right: Sequence[Sample], wrong: Sequence[Sample]
) -> Mapping[str, float]:
    """The parts that pay right answers and hardly any wrong one, with their lowest values; none
    where none does."""
    if min(len(right), len(wrong)) < GOLD_UNPAID_ENOUGH:
        return {}
    names = sorted({name for one in right for name in one.parts}) or [""]
    found: dict[str, float] = {}
    for name in names:
        values = [
            value for one in (*right, *wrong) if np.isfinite(value := _reward_or_nan(one, name))
        ]
        low, high = min(values, default=0.0), max(values, default=0.0)
        paid, others = (
            float(np.mean([_reward_or_nan(one, name) > (low + high) / 2 for one in some]))
            if some
            else 0.0
            for some in (right, wrong)
        )
        if others <= PAID_WRONG and (paid > others or (high <= 0 and len(names) == 1)):
            found[name] = low + 1e-6 * (high - low)
    return found


def _reward_or_nan(one: Sample, name: str) -> float:
    """Of a part, or of the whole; what is not known is NaN, which is not below anything."""
    value = one.parts.get(name) if name else one.reward
    return float("nan") if value is None else value


def _quote_end(text: str) -> str:
    return repr(text.strip()[-60:])


def is_right(text: str, gold: str) -> bool:
    """Whether an answer is the gold answer once both are read as they are meant."""
    gold = gold.strip()
    wanted = {_normalise_text(one) for one in (gold, *_BOXED.findall(gold))} - {""}
    value, number = _parse_json(gold), _parse_number(gold)
    return any(
        _normalise_text(one) in wanted
        or (number is not None and _are_equal_numbers(number, _parse_number(one)))
        or (value is not None and value == _parse_json(one))
        for one in _extract_answers(text)
    )


def _extract_answers(text: str) -> list[str]:
    """What may be meant by a completion: the whole of it, or what stands in a box, in a tag or
    after a phrase."""
    text = text.strip()[-_LONG:]
    lines = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    marked = [
        found[-1] for pattern in (_BOXED, _TAGGED, _SAID) if (found := pattern.findall(lines))
    ]
    return [text, *marked, *(box[-1] for one in marked if (box := _BOXED.findall(one)))]


def _normalise_text(text: str) -> str:
    """Without case, quotes, marks of emphasis, a final point, and with single blanks."""
    return " ".join(text.casefold().split()).strip(" \"'`*$.“”‘’")


def _parse_number(text: str) -> tuple[float, str] | None:
    """A number, and the unit behind it."""
    text = " ".join(text[:200].split()).strip("\"'`*“”‘’").rstrip(". ").removesuffix("$")
    unit = _UNIT.fullmatch(text)
    for one, name in ((text, ""), (unit[1], unit[2].lower()) if unit else ("", "")):
        read = read_number(one) or read_number(one, integer=True) if one else None
        if read is not None and read.value is not None:
            return float(read.value), name
    return None


def _are_equal_numbers(one: tuple[float, str], other: tuple[float, str] | None) -> bool:
    """Whether two numbers are equal, and their units, where both have one."""
    return (
        other is not None
        and one[0] == other[0]
        and (one[1] == other[1] or "" in (one[1], other[1]))
    )


def _parse_json(text: str) -> Any:
    return read_json(text).value if "{" in text or "[" in text else None
