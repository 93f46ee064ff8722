"""Answers against the gold answers that a user stores with completions."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from plumbline.checks.check import Finding
from plumbline.checks.diagnosis.facts import part_names
from plumbline.checks.diagnosis.history import History, Sample
from plumbline.checks.diagnosis.rule import rule
from plumbline.tasks.text.lenient_json import read_json
from plumbline.tasks.text.numbers import read_number

GOLD_UNPAID_SOME, GOLD_UNPAID_MANY = 0.05, 0.2
"""Share of the right answers that earn nothing; the limits of `parser`."""
GOLD_UNPAID_ENOUGH = 5
"""Right answers that earn nothing."""
GOLD_UNPAID_FIRST, GOLD_UNPAID_EARLY = 25, 0.1
"""The first right answers, and the share of them that earn nothing."""
PAID_WRONG = 0.05
"""Share of the wrong answers that a part may pay, and still be one of rightness: a gold answer has
more than one form that no reading here knows."""
DEALT_ENOUGH, DEALT_LESS = 40, 0.2
"""Groups with right and wrong answers, and the share of the rewards' range that right ones would
earn more by."""
SEVERAL_ENOUGH, SEVERAL_LOOKED_AT, SEVERAL_MOST = 5, 100, 4
"""Prompts with several gold answers; of these, and of the gold answers of each, so many are looked
at."""
SEVERAL_HIT, SEVERAL_APART = 0.05, 0.1
"""Share of the answers that are right by another gold answer of their prompt, at least, and how
many more are right by their own, at most, where the same was asked."""
NUMBER_AGREES = 0.98
"""Share of the marked answers that earn as if another number were read."""
GOLD_UNPAID_LOOKED_AT = 2000
"""Completions, evenly over the run."""
_LONG = 2000
"""Characters of a completion that are read, from its end."""
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]{0,200}\}){0,400})\}")
_TAGGED = re.compile(r"<answer>(.{0,1000}?)</answer>", re.DOTALL | re.IGNORECASE)
_SAID = re.compile(
    r"\b(?:answer|resposta)(?: is| é|:| :)+ ?(.{1,400})$", re.IGNORECASE | re.MULTILINE
)
_HASHED = re.compile(r"^\s*#### ?(.{1,200})$", re.MULTILINE)
"""As the answers of GSM8K end."""
_FENCED = re.compile(r"(`{1,3})(?:[a-z]{1,12}\n)?\s*([^`]{1,1000}?)\s*\1")
_IS = re.compile(r"(?:\bis|\bé|\bare|[=:])\s+(\S.{0,100})$", re.IGNORECASE)
_MARKS = (_BOXED, _TAGGED, _SAID, _HASHED)
_NUMBER = re.compile(r"[-+]?\d(?:[\d.,]*\d)?")
_LISTED = re.compile(r"\d[\d.]*(?:(?:, ?| or |, or | ou )\$?\d[\d.]*){2,40}")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:[.,]\d{3})+")
_MARKUP = re.compile(r"</?\w{1,20}>|\\boxed")
"""Of a form that an answer may be asked for in."""
_UNIT = re.compile(r"(.*\d) ?([a-zµ°²³/]{1,12})", re.IGNORECASE)
_RATIO = re.compile(r"([-+]?\d{1,9}) ?/ ?(\d{1,9})")
_LATEX = (
    (re.compile(r"\\[dt]?frac\s*\{([^{}]{1,50})\}\s*\{([^{}]{1,50})\}"), r"\1/\2"),
    (re.compile(r"\\(?:text|mathrm|mbox)\s*\{([^{}]{0,100})\}"), r" \1"),
    (re.compile(r"\\[,;!: ]|\^\{?\\circ\}?|\\left|\\right"), ""),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\([%$])"), r"\1"),
)
"""What is written for its looks."""


@rule("gold-unpaid", "golds", live=False)
def find_gold_unpaid(history: History) -> Iterator[Finding]:
    """Answers that are the gold answer, read as they are meant, and earn nothing: a reader of
    answers rejects them.

    Only where what pays is rightness: the parts that pay hardly any wrong answer, and right ones or
    none at all.
    """
    stored = [one for one in history.samples if one.gold.strip()]
    samples = stored[:: -(-len(stored) // GOLD_UNPAID_LOOKED_AT) or 1]
    right = [one for one in samples if is_right(one.text, one.gold)]
    known = set(map(id, right))
    wrong = [one for one in samples if id(one) not in known]
    parts = _parts_paying_right_answers(right, wrong)
    if not _is_gold_of_prompt(samples):
        yield from _find_several_golds(stored)
        return
    if other := _find_other_number([*right, *wrong]):
        yield other
        return
    if not parts:
        yield from _find_shuffled_rewards(right, wrong)
        return
    lost, part = _find_rejected(right, parts)
    unpaid = set(map(id, lost))
    early, late = (
        sum(id(one) in unpaid for one in some) / len(some)
        for some in (
            right[: max(GOLD_UNPAID_FIRST, len(right) // 10)],
            right[-max(GOLD_UNPAID_ENOUGH, len(right) // 3) :],
        )
    )
    share = len(lost) / len(right)
    # What a small model soon no longer writes was rejected all the same, unless it is a form that
    # is asked for.
    paid = {(one.prompt, one.text) for one in right if id(one) not in unpaid}
    asked = any(_MARKUP.search(text) for _, text in paid)
    at_first = early >= GOLD_UNPAID_EARLY and not asked
    if len(lost) < GOLD_UNPAID_ENOUGH or (share < GOLD_UNPAID_SOME and not at_first):
        return
    learnt = late < GOLD_UNPAID_SOME
    # No reader is so fickle.
    lottery = sum((one.prompt, one.text) in paid for one in lost) > len(lost) / 2
    many = share >= GOLD_UNPAID_MANY and not learnt
    yield Finding(
        "fatal" if many else "note" if learnt and not at_first else "warning",
        "unpaid",
        since=lost[0].step,
        evidence={
            "right": len(right),
            "earn nothing": len(lost),
            "share": round(share, 3),
            "of the first": round(early, 3),
            "of the last": late,
            "learnt": learnt,
        },
        about=part,
        samples=tuple(dict.fromkeys(map(_quote_with_gold, lost)))[:3],
        causes=("order-lost",) if lottery else ("reader-rejects", "form-paid"),
    )


def _find_several_golds(samples: Sequence[Sample]) -> Iterator[Finding]:
    """Prompts that have another gold answer at another time, by which their answers do not differ.

    Answers follow what was read from them, and what no prompt shows, as a picture.
    """
    by_prompt: dict[str, dict[str, list[Sample]]] = {}
    for one in samples:
        by_prompt.setdefault(one.prompt, {}).setdefault(one.gold.strip(), []).append(one)
    again = Counter(prompt for prompt, _ in {(one.prompt, one.step) for one in samples})
    several = {
        prompt: dict(list(golds.items())[:SEVERAL_MOST])
        for prompt, golds in by_prompt.items()
        if again[prompt] > 1 and any(not is_right(one, next(iter(golds))) for one in golds)
    }
    if len(several) < SEVERAL_ENOUGH:
        return
    own, other = np.mean(
        [
            [
                np.mean([is_right(one.text, gold) for one in golds[gold]]),
                np.mean(
                    [is_right(one.text, gold) for of in golds if of != gold for one in golds[of]]
                ),
            ]
            for golds in list(several.values())[:SEVERAL_LOOKED_AT]
            for gold in golds
        ],
        axis=0,
    )
    if other < SEVERAL_HIT or own - other > SEVERAL_APART:
        return
    yield Finding(
        "warning",
        "several-golds",
        evidence={
            "prompts": len(several),
            "of": sum(times > 1 for times in again.values()),
            "own": round(float(own), 3),
            "other": round(float(other), 3),
        },
        samples=tuple(
            f"{_quote_end(prompt)}: {', '.join(map(_quote_end, golds))}"
            for prompt, golds in list(several.items())[:3]
        ),
        causes=("joined-wrongly", "part-of-prompt"),
    )


def _find_other_number(samples: Sequence[Sample]) -> Finding | None:
    """A part that pays where the first or the last number of the text is the gold answer, whatever
    the answer is that stands in a tag, in a box or after a phrase."""
    read: list[tuple[Sample, list[bool]]] = []
    for one in samples:
        marks = [found[-1] for of in _MARKS if (found := of.findall(one.text))]
        said = set(map(_parse_number, marks))
        gold, numbers = _parse_number(one.gold), _NUMBER.findall(one.text)
        if gold is not None and numbers and len(said) == 1 and None not in said:
            ends = map(_parse_number, (numbers[0], numbers[-1]))
            read.append((one, [_are_equal_numbers(gold, end) for end in (*said, *ends)]))
    if len(read) < GOLD_UNPAID_ENOUGH:
        return None
    right, *fits = np.array([fits for _, fits in read]).T
    for name in part_names(samples):
        rewards = np.array([read_reward(one, name) for one, _ in read])
        paid = rewards > (rewards.min() + rewards.max()) / 2
        for which, fit in zip(("first", "last"), fits, strict=True):
            lost, wrong = right & ~paid & ~fit, ~right & paid & fit
            if (
                min(lost.sum(), wrong.sum()) >= GOLD_UNPAID_ENOUGH
                and np.mean(fit == paid) >= NUMBER_AGREES
            ):
                rows = [one for one, _ in compress(read, lost)]
                return Finding(
                    "fatal",
                    "other-number",
                    since=rows[0].step,
                    evidence={
                        "right": right.sum(),
                        "earn nothing": len(rows),
                        "wrong": wrong.sum(),
                        "number": which,
                    },
                    about=name,
                    samples=tuple(dict.fromkeys(map(_quote_with_gold, rows)))[:3],
                    causes=("reads-anywhere",),
                )
    return None


def _find_rejected(right: Sequence[Sample], parts: Mapping[str, float]) -> tuple[list[Sample], str]:
    """Right answers that earn nothing in any part; or those that even the most lenient part
    rejects, of prompts of which it pays other answers, and its name."""
    lost = [one for one in right if all(read_reward(one, of) <= low for of, low in parts.items())]
    by_part = {}
    for name, low in parts.items():
        paid = {one.prompt for one in right if read_reward(one, name) > low}
        by_part[name] = [
            one for one in right if one.prompt in paid and read_reward(one, name) <= low
        ]
    part = min(by_part, key=lambda name: len(by_part[name]))
    return (by_part[part], part) if len(by_part[part]) > len(lost) else (lost, "")


WRITINGS_ENOUGH, WRITINGS_SURE = 5, 0.05
"""Answers whose writing is rejected, and the share that they are of all that are paid in some
writing."""
_WORD = re.compile(r"[^\W\d_]+")


@rule("writing-unpaid", "samples", "reward", live=False)
def find_writing_unpaid(history: History) -> Iterator[Finding]:
    """Answers to one prompt that differ in case, blanks, punctuation or the writing of a number
    alone, of which one earns everything and the other nothing; no gold answer is needed.

    Of the parts that are all or nothing, and pay answers of one writing or not, as what they say
    is right: a part that pays the writing alone is asked for.
    """
    if history.has("golds"):
        return
    samples = history.samples[:: -(-len(history.samples) // GOLD_UNPAID_LOOKED_AT) or 1]
    names = part_names(samples)
    styles = [_style_of(one.text) for one in samples]
    keys = [(one.prompt, _content_of(one.text)) for one in samples]
    paid = {name: _paid_in_full(samples, name) for name in names}
    parts = {name: _split_writings(keys, styles, of) for name, of in paid.items()}
    parts = {name: one for name, one in parts.items() if one.wrong >= WRITINGS_ENOUGH}
    # What one part rejects another may pay that rejects nothing.
    lenient = [paid[name] for name, one in parts.items() if len(one.rejected) < WRITINGS_ENOUGH]
    for name, (known, rejected, _) in parts.items():
        lost = [at for at in rejected if not any(of[at] for of in lenient)]
        first = known[: max(GOLD_UNPAID_FIRST, len(known) // 10)]
        early = len(set(first) & set(lost)) >= GOLD_UNPAID_EARLY * len(first)
        if len(lost) < WRITINGS_ENOUGH or (len(lost) < WRITINGS_SURE * len(known) and not early):
            continue
        yield Finding(
            "warning",
            since=samples[lost[0]].step,
            evidence={"answers": len(lost), "of": len(known)},
            samples=tuple(dict.fromkeys(_quote_end(samples[at].text) for at in lost))[:3],
            about=name,
            causes=("reader-rejects", "form-paid"),
        )


def _paid_in_full(samples: Sequence[Sample], name: str) -> list[bool]:
    """Whether each completion earned the most of a part; empty where there is something between
    the least and the most."""
    values = np.array([read_reward(one, name) for one in samples])
    low, high = np.nanmin(values, initial=np.inf), np.nanmax(values, initial=-np.inf)
    near = np.minimum(values - low, high - values) <= 1e-6 * (high - low)
    return list(values > (low + high) / 2) if near.mean() > 0.95 and high > low else []


class _Writings(NamedTuple):
    known: list[int]
    """Places of answers that are paid in some writing."""
    rejected: list[int]
    """Of these such whose own writing is never paid."""
    wrong: int
    """Answers in a writing that is paid, which say what never is."""


def _split_writings(
    keys: Sequence[tuple[str, str]], styles: Sequence[str], paid: Sequence[bool]
) -> _Writings:
    right, good = set(compress(keys, paid)), set(compress(styles, paid))
    known = [at for at, key in enumerate(keys) if key in right]
    rejected = [at for at in known if styles[at] not in good]
    rows = zip(keys, styles, strict=True)
    wrong = sum(style in good and key not in right for key, style in rows)
    return _Writings(known, rejected, wrong)


def _content_of(text: str) -> str:
    """A text without case, blanks, quotes, stops and what surrounds it; of a number its value.
    Signs of sums and what stands between two numbers say something."""
    text = text.strip()[-_LONG:].strip("`.*() \n")
    if _GROUPED.fullmatch(text):
        return re.sub(r"[.,]", "", text)
    apart = re.sub(r"(?<=\d)[\s.,:;]+(?=\d)", "|", text.casefold())  # a list
    if not (" " in text and "|" in apart) and (number := _parse_number(text)) is not None:
        return f"{number[0]:.12g}{number[1]}"
    return re.sub(r"[\s.,:;!?_\"'`“”‘’]+", "", apart)


def _style_of(text: str) -> str:
    """How a text is written: its words and digits as one sign each."""
    words = _WORD.sub(lambda word: "a" if word[0].islower() else "A", text.strip()[-_LONG:])
    return re.sub(r"\d+", "9", words)


def _find_shuffled_rewards(right: Sequence[Sample], wrong: Sequence[Sample]) -> Iterator[Finding]:
    """Whether right answers surely earn no more than those to the same prompt that do not hold the
    gold answer."""
    groups: dict[tuple[int, str], tuple[list[float], list[float]]] = {}
    for place, some in enumerate(
        (right, [one for one in wrong if one.gold.strip() not in one.text])
    ):
        for one in some:
            groups.setdefault((one.step, one.prompt), ([], []))[place].append(read_reward(one, ""))
    gaps = [np.mean(good) - np.mean(bad) for good, bad in groups.values() if good and bad]
    earned = np.array([read_reward(one, "") for one in right])
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
        "warning",
        "no-more-than-others",
        evidence={"difference": np.mean(gaps), "groups": len(gaps)},
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
    names = part_names(right)
    found: dict[str, float] = {}
    for name in names:
        values = [value for one in (*right, *wrong) if np.isfinite(value := read_reward(one, name))]
        low, high = min(values, default=0.0), max(values, default=0.0)
        paid, others = (
            float(np.mean([read_reward(one, name) > (low + high) / 2 for one in some]))
            if some
            else 0.0
            for some in (right, wrong)
        )
        if others <= PAID_WRONG and (paid > others or (high <= 0 and len(names) == 1)):
            found[name] = low + 1e-6 * (high - low)
    return found


def read_reward(one: Sample, name: str) -> float:
    """Of a part, or of the whole; what is not known is NaN, which is not below anything."""
    value = one.parts.get(name) if name else one.reward
    return np.nan if value is None else value


def _quote_end(text: str) -> str:
    return repr(text.strip()[-60:])


def _quote_with_gold(one: Sample) -> str:
    return f"{_quote_end(one.text)} for gold {_quote_end(one.gold)}"


def is_right(text: str, gold: str) -> bool:
    """Whether an answer is the gold answer once both are read as they are meant."""
    gold = gold.strip()
    marked = [*_BOXED.findall(gold), *_HASHED.findall(gold)]
    wanted = {_normalise_text(one) for one in (gold, *marked)} - {""}
    value, number = _parse_json(gold), _parse_number(marked[-1] if marked else gold)
    only = _NUMBER.findall(text[-_LONG:])
    ends = text.rstrip(" \n.`*$\"'").endswith(tuple(only))
    if number is not None and not number[1] and len(only) == 1 and ends:
        plain = re.sub(r"[.,]", "", only[0]) if _GROUPED.fullmatch(only[0]) else ""
        if plain == gold or _are_equal_numbers(number, _parse_number(only[0])):
            return True
    return any(
        _normalise_text(one) in wanted
        or (
            number is not None
            and any(
                _are_equal_numbers(number, _parse_number(one, whole=whole))
                for whole in (False, True)
            )
        )
        or (value is not None and value == _parse_json(one))
        for one in _extract_answers(text)
    )


def is_one_of_several(text: str, gold: str) -> bool:
    """Whether a text gives a gold number in a list, or in one of several boxes or tags, beside others,
    and does not end in it."""
    number, text = _parse_number(gold), text[-_LONG:]
    if number is None or is_right(text, gold):
        return False
    several = [of.findall(text) for of in _MARKS]
    several += map(_NUMBER.findall, _LISTED.findall(text))
    read = [[one for value in values if (one := _parse_number(value))] for values in several]
    return any(len({*values}) > 1 and number in values for values in read)


def _extract_answers(text: str) -> list[str]:
    """What may be meant by a completion: the whole of it, or what stands in a box, in a tag, in a
    fence or after a phrase."""
    text = text.strip()[-_LONG:]
    lines = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    marked = [found[-1] for pattern in (*_MARKS, _IS) if (found := pattern.findall(lines))]
    marked += [inner for _, inner in _FENCED.findall(text)][-1:]
    return [text, *marked, *(box[-1] for one in marked if (box := _BOXED.findall(one)))]


def _normalise_text(text: str) -> str:
    """Without case, quotes, marks of emphasis, a final point, and with single blanks."""
    return " ".join(_strip_latex(text).casefold().split()).strip(" \"'`*$.“”‘’")


def _strip_latex(text: str) -> str:
    if "\\" in text or "{" in text:
        for pattern, plain in _LATEX:
            text = pattern.sub(plain, text)
    return text


def _parse_number(text: str, *, whole: bool = False) -> tuple[float, str] | None:
    """A number, and the unit behind it; `whole` decides what 2,450 is."""
    text = " ".join(_strip_latex(text[:200]).split())
    text = text.strip("\"'`*“”‘’").rstrip(". ").removesuffix("$")
    if (ratio := _RATIO.fullmatch(text)) and int(ratio[2]):
        return int(ratio[1]) / int(ratio[2]), ""
    unit = _UNIT.fullmatch(text)
    for one, name in ((text, ""), (unit[1], unit[2].lower()) if unit else ("", "")):
        read = read_number(one, integer=whole) or read_number(one, integer=True) if one else None
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
