"""Completions in another language than the gold answers, or than those of the first steps."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History, Sample
from plumbline.config.overrides import read_own
from plumbline.runs.evaluations import REFERENCE

_TABLE = read_own(Path(__file__).with_name("languages.yaml"))
_WORDS = {name: frozenset(words) for name, words in _TABLE["words"].items()}
_SCRIPTS = {begins: name for name, beginnings in _TABLE["scripts"].items() for begins in beginnings}
HITS, TIMES = 4, 2
"""Frequent words that a text must have of a language, and how many times as many as of the next one."""
MIXED = 0.05
"""Of a text's letters, that must be of a script: a name or a quotation has fewer, and a whole text nearly all."""
SOME, MANY = 0.3, 0.7
"""Share of completions in a language that is not expected. Answers of the two real multi-task runs of the documents
have 1 % at most."""
USUAL = 0.05
"""Share of the references from which on a language is expected."""
LOOKED_AT = 400


def look(history: History) -> Iterator[Finding]:
    """The last tenth, against gold answers; without them against the first tenth; and prompts against completions."""
    last = _last(history.samples, -1)
    found = [(one, languages(one.text)) for one in last]
    golds = [
        row.completion
        for one in history.finals
        if (one.stage, one.mode) == (REFERENCE, "oracle")
        for row in one.evaluation.rows
    ]
    against, expected = "gold answers", _expected(golds[:LOOKED_AT])
    if not expected:
        against, expected = "those of the first steps", _expected([one.text for one in _last(history.samples, 1)])
    wrong = [one for one, there in found if there - expected]
    share = len(wrong) / max(len(found), 1)
    if expected and len(found) >= 16 and share >= SOME:
        names = Counter(name for _, there in found for name in there - expected)
        yield Finding(
            check="wrong-language",
            level="fatal" if share >= MANY and against == "gold answers" else "warning",
            what=f"{share:.0%} of the last {len(found)} completions are in {names.most_common(1)[0][0]}, wholly or in "
            f"part; {against} are in {', '.join(sorted(expected))}",
            since=wrong[0].step,
            evidence={"share": round(share, 3), **names},
            samples=tuple(dict.fromkeys(one.prompt[:80] for one in wrong[:3])),
            causes=("no part of the reward looks at the language", "a base model that hardly knows the language"),
            fix="pay for the language of the answer, or take a model that was trained on it",
        )


def languages(text: str) -> set[str]:
    """What a text is written in: the language of its frequent words, where they decide, and scripts with a share of its
    letters. Empty for data, code and a few words.
    """
    text = text[:2000]
    counts = Counter(word for word in re.findall(r"[^\W\d_]+", text.lower()))
    hits = Counter({name: sum(counts[word] for word in words) for name, words in _WORDS.items()})
    (best, most), (_, second) = hits.most_common(2)
    found = {best} if most >= HITS and most >= TIMES * second else set()
    letters = [letter for letter in text if letter.isalpha()]
    scripts = Counter(script for letter in letters if ord(letter) > 0x370 and (script := _script(letter)))
    return found | {name for name, count in scripts.items() if count >= max(HITS, MIXED * len(letters))}


@cache
def _script(letter: str) -> str | None:
    return _SCRIPTS.get(unicodedata.name(letter, "").partition(" ")[0])


def _expected(texts: Sequence[str]) -> set[str]:
    """The languages of texts, where a third of them can be told."""
    each = [languages(text) for text in texts]
    if len(each) < 16 or sum(map(bool, each)) < len(each) / 3:
        return set()
    counts = Counter(name for names in each for name in names)
    return {name for name, count in counts.items() if count >= USUAL * len(each)}


def _last(samples: Sequence[Sample], end: int) -> Sequence[Sample]:
    """A tenth of the completions from the beginning (1) or the end (-1), at least 16 and at most `LOOKED_AT` of them,
    drawn evenly.
    """
    count = max(16, len(samples) // 10)
    some = samples[:count] if end > 0 else samples[-count:]
    return some[:: -(-len(some) // LOOKED_AT) or 1]


CHECK = Check(
    name="wrong-language",
    asks="whether completions are in another language than gold answers or the first completions",
    needs=("samples",),
    look=look,
)
