"""Prompts as a trainer stored them: begun twice, written by two templates, or cut."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

SOME = 0.05
"""Share of the prompts. What is looked for is written by a program, so it is in all of them or in none."""
COMMON = 12
"""Characters that most prompts begin or end with, from which on it is a template's and no chance."""
LONGEST = 90
"""Percentile of the lengths of whole prompts, over which those that lack a template's beginning or end are cut."""
EQUAL = 1.6
"""The longest of the cut ones over the shortest, in characters: tokens of one text have more of them than another's."""
_BEGIN = r"(<s>|<\|begin_of_text\|>|<bos>|<\|startoftext\|>|<\|begin▁of▁sentence\|>|\[gMASK\]<sop>)"
_TWICE = re.compile(_BEGIN + r"\s*\1")
_MARKS = ("<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "[INST]", "<|user|>", "### Instruction", "<|turn>")
"""What only one template of chats has."""


def look(history: History) -> Iterator[Finding]:
    """Each different prompt once, in the order in which they came."""
    prompts = list(dict.fromkeys(one.prompt for one in history.samples))
    series = history["prompts_cut"]
    cut = series.values[np.isfinite(series.values)]
    if len(cut) and cut.mean() >= SOME:
        yield _cut(f"{cut.mean():.0%} of the prompts are as long as the limit", float(cut.mean()), [])
    if len(prompts) < 8:
        return
    twice = [prompt for prompt in prompts if _TWICE.search(prompt[:4000])]
    if len(twice) >= SOME * len(prompts):
        yield Finding(
            check="prompts",
            level="warning",
            what=f"{len(twice) / len(prompts):.0%} of the prompts begin with the mark of the beginning twice",
            evidence={"share": round(len(twice) / len(prompts), 3)},
            samples=tuple(prompt[:80] for prompt in twice[:3]),
            causes=("the chat template writes the mark, and the tokenizer adds another",),
            fix="tokenize what the template wrote with add_special_tokens=False",
        )
    yield from _drift(prompts)
    for end, name in ((1, "beginning"), (-1, "end")):
        if (lacking := _lacking([prompt[::end] for prompt in prompts])) is not None and not len(cut):
            found = [prompts[at] for at in lacking]
            share = len(found) / len(prompts)
            yield _cut(
                f"{share:.0%} of the prompts, the longest ones, lack the {name} that the others have", share, found
            )


def _cut(what: str, share: float, found: Sequence[str]) -> Finding:
    return Finding(
        check="prompts",
        level="warning",
        what=f"{what}: they are cut",
        evidence={"share": round(share, 3)},
        samples=tuple(prompt[:80] for prompt in found[:3]),
        causes=("the limit of a prompt's length",),
        fix="raise the limit, or leave out the prompts that do not fit",
    )


def _drift(prompts: Sequence[str]) -> Iterator[Finding]:
    """Whether the marks of the early prompts and the late ones are those of two templates."""
    marks = [frozenset(mark for mark in _MARKS if mark in prompt) for prompt in prompts]
    third = max(4, len(marks) // 3)
    early, late = set(marks[:third]), set(marks[-third:])
    if early & late:
        return
    changed = next(at for at, one in enumerate(marks) if one in late)
    yield Finding(
        check="prompts",
        level="warning",
        what="prompts were written by one template at first and by another at last: "
        f"{_named(early)}, then {_named(late)}",
        evidence={"prompts before": changed, "prompts": len(prompts)},
        samples=(prompts[0][:80], prompts[-1][:80]),
        causes=("a run that was resumed with another tokenizer or template",),
        fix="begin again under one template, the one of SFT and of the evaluation",
    )


def _named(kinds: set[frozenset[str]]) -> str:
    return " or ".join(sorted(", ".join(sorted(kind)) or "no mark" for kind in kinds))


def _lacking(prompts: Sequence[str]) -> list[int] | None:
    """Where the prompts are that do not begin as most do; None unless they look cut.

    What a limit of tokens cut is about equally long, longer than nearly all others, and begins anywhere.
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


CHECK = Check(
    name="prompts",
    asks="whether prompts begin twice, were written by two templates, or are cut",
    needs=("prompts|prompts_cut",),
    look=look,
)
