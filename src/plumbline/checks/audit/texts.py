"""The texts of an audit beside gold answers and baselines: gold answers damaged, and written in the
other ways in which people and models write the same.

What means the same depends on what the answer is: values of a JSON object are written otherwise one
by one, a number or a few words as a whole, and of a long text (a query, a plan, a message) only
what stands around it.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.records import Example, group_by_key
from plumbline.seeds import generator
from plumbline.tasks.tables import read_table
from plumbline.tasks.task_data import Splits
from plumbline.tasks.text.numbers import without_accents

# -- examples, and their gold answers damaged ------------------------------------------------------

CUTS = (0.75, 0.5, 0.25)
"""Shares of a gold answer that are left when it is cut short."""
MOST = 16
"""Damaged copies of one gold answer."""


def list_examples(splits: Splits) -> list[Example]:
    """The examples of all splits, each once."""
    return [*{one.id: one for examples in splits.values() for one in examples}.values()]


def sample_examples(splits: Splits, count: int, seed: int) -> list[Example]:
    """So many examples at most, from all splits, of every stratum as evenly as there are; in a
    seeded order."""
    every = list_examples(splits)
    places = generator(seed, "audit", "examples").permutation(len(every))
    strata = group_by_key((every[place].stratum, every[place]) for place in places)
    deepest = max(map(len, strata.values()), default=0)
    dealt = [
        group[level] for level in range(deepest) for group in strata.values() if level < len(group)
    ]
    return dealt[:count]


def damage_answer(example: Example, other: Example, seed: int) -> list[str]:
    """A gold answer made worse in different places and to different degrees.

    Args:
        example: whose gold answer is damaged.
        other: lends pieces of its own.
        seed: decides which of the copies are kept where there are over `MOST`.
    """
    gold, foreign = example.gold or "", other.gold or ""
    rng = generator(seed, "audit", "damage", example.id)
    found = [gold[: int(share * len(gold))] for share in CUTS]
    found += [
        gold[: len(gold) // 2] + foreign[len(foreign) // 2 :],
        f"{gold}\n{foreign}",
        f"{gold}\n{gold}",
    ]
    found.append(re.sub(r"\d+", lambda match: str(int(match[0][:18]) + 7), gold))
    words, lines = gold.split(" "), gold.split("\n")
    found.append(" ".join(rng.permutation(words)))
    found += [" ".join([*words[:at], *words[at + 1 :]]) for at in rng.permutation(len(words))[:3]]
    found += ["\n".join([*lines[:at], *lines[at + 1 :]]) for at in rng.permutation(len(lines))[:4]]
    value, lent = parse_object(gold), parse_object(foreign)
    for key in value:
        found.append(dump_json({name: one for name, one in value.items() if name != key}))
        found.append(dump_json({**value, key: lent.get(key)}))
    kept = list(dict.fromkeys(text for text in found if text != gold))
    if len(kept) > MOST:
        kept = [kept[place] for place in sorted(rng.permutation(len(kept))[:MOST])]
    return kept


def parse_object(text: str) -> dict[str, object]:
    """The JSON object that a text is; empty where it is none."""
    value = _json(text)
    return value if isinstance(value, dict) else {}


def dump_json(value: Mapping[str, object]) -> str:
    """An object as JSON, its letters as they are."""
    return json.dumps(value, ensure_ascii=False)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# -- written otherwise -----------------------------------------------------------------------------

_TABLE = read_table(Path(__file__).parent / "writings.yaml")
DECIMAL_COMMA, WHOLE_FLOAT = "decimal comma", "whole number as a float"
LABEL, INSIDE, LINES = 120, 40, 4
"""Characters of an answer that a working may lead to, of what is inside of its marks, and its line
breaks."""
SHORT = 60
"""Characters of a few words; a longer text that is no JSON is changed around only."""
_COMMA = re.compile(r"(?<![\d.,])\d+,\d{1,2}(?![\d,])")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_CODE = re.compile(r"[=();{}<>\[\]]")


def rewrite_answer(
    example: Example, language: str, others: Sequence[str] = ()
) -> Iterator[tuple[str, str]]:
    """The name of each way and the text; nothing where there is no gold answer, or where a way
    changes nothing.

    Args:
        example: with a gold answer.
        language: of the words around it: "pt" or "en".
        others: gold answers to other examples, whose labels a working may name.
    """
    gold = example.gold
    if not gold:
        return
    prompt = " ".join(one["content"] for one in example.messages)
    value = _json(gold)
    if not isinstance(value, dict | list) or not value:
        value = None
    few_words = value is None and len(gold) <= SHORT and not _CODE.search(gold)
    prose = _TABLE["prose"][language]
    ways = [("blanks around", f"\n  {gold}  \n\n")]
    if "```" not in gold:
        ways.append(("fence", f"```{'json' if value is not None else ''}\n{gold}\n```"))
    ways.append(("prose around", f"{prose['before']}\n\n{gold}\n\n{prose['after']}"))
    if is_label(gold.rpartition("\n")[2]) and value is None:
        ways.append(("a long tail behind", f"{gold}\n\n{prose['tail']}"))
    if is_label(gold):
        ways.append(("a long working before", put_behind(gold, _working(gold, others, prose))))
    if few_words:
        ways += [("quotes around", f'"{gold}"'), ("curly quotes around", f"“{gold}”")]
    if value is not None:
        ways += _values(value, gold)
    elif _NUMBER.fullmatch(gold):
        number = float(gold) if "." in gold else int(gold)
        written, percent = _brazilian(number), "%" in prompt or "porcent" in prompt.lower()
        numbers = (
            (DECIMAL_COMMA, isinstance(number, float), str(number).replace(".", ",")),
            (WHOLE_FLOAT, isinstance(number, int), f"{number}.0"),
            ("thousands points", abs(number) >= 1000, written),
            ("R$", "R$" in prompt, f"R$ {written}"),
            ("percent sign", percent, f"{written}%"),
        )
        ways += [(name, text) for name, applies, text in numbers if applies]
    elif few_words:
        ways += [
            ("case", gold.lower() if gold != gold.lower() else gold.capitalize()),
            ("accents left out", without_accents(gold)),
            ("full stop", gold if gold.endswith(".") else f"{gold}."),
        ]
    yield from ((name, text) for name, text in ways if text != gold)


_EMPTY_THOUGHT = re.compile(r"\s*<(?P<name>\w+)>(?P<thought>\s*)</(?P=name)>")
_TAG = re.compile(r"</?\w+>")
_QUERY = re.compile(
    r"\s*(?:select|with|insert|update|delete|create|def|import|class)\b", re.IGNORECASE
)
NUMBERS = (17, 28, 45, 31, 52, 83)
"""Of a working; the first three that are not in the answer."""


def is_label(gold: str) -> bool:
    """Whether an answer is a few words, a number, or one of them in marks, and no JSON, query, plan
    or message."""
    is_short = len(gold) <= LABEL and gold.strip("\n").count("\n") <= LINES
    is_short = is_short and len(label_of(gold)) <= INSIDE
    return is_short and _QUERY.match(gold) is None and not isinstance(_json(gold), dict | list)


def label_of(gold: str) -> str:
    """An answer without the thought and the marks around it."""
    text = _EMPTY_THOUGHT.sub("", gold)
    inside = (
        [text]
        if (boxed := re.fullmatch(r"\s*\\boxed\{(.*)\}\s*", text, re.DOTALL)) is None
        else [boxed[1]]
    )
    return _TAG.sub("", inside[0]).rpartition("####")[2].strip()


def put_behind(gold: str, words: str) -> str:
    """An answer behind words, or with them in its thought where that is empty."""
    if (thought := _EMPTY_THOUGHT.match(gold)) is None:
        return f"{words}\n\n{gold}"
    return f"{gold[: thought.start('thought')]}\n{words}\n{gold[thought.end('thought') :]}"


def _working(gold: str, others: Sequence[str], prose: Mapping[str, str]) -> str:
    own = label_of(gold)
    numbers = [number for number in NUMBERS if str(number) not in gold][:3]
    labels = [
        label
        for label in dict.fromkeys(map(label_of, others))
        if label and label.casefold() != own.casefold()
    ]
    known = [label for label in labels if own.casefold() not in label.casefold()][:2]
    words = prose["working"].format(*numbers)
    return f"{words} {prose['others'].format(prose['or'].join(known))}" if known else words


def make_wrong_answers(example: Example, other: str, language: str) -> Iterator[tuple[str, str]]:
    """Wrong answers that name the right one: the name of each way and the text; nothing where none
    is sure to be wrong.

    Args:
        example: with a gold answer.
        other: the gold answer to another example.
        language: of the words around them.
    """
    gold = example.gold or ""
    own, theirs = label_of(gold).casefold(), label_of(other).casefold()
    if (
        not own
        or not theirs
        or own in theirs
        or theirs in own
        or not (is_label(gold) and is_label(other))
    ):
        return
    prose = _TABLE["prose"][language]
    yield OTHER, other
    yield (
        "another answer behind the gold one",
        put_behind(other, prose["dropped"].format(label_of(gold))),
    )
    yield NEGATED, prose["not"].format(label_of(gold))


OTHER, NEGATED, UNCLOSED = "another answer", "the gold answer negated", "no closing mark"


def shape_of(text: str) -> str:
    """A text with every word and number as one letter: `a: 0`."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", text))


def damage_marks(gold: str) -> Iterator[tuple[str, str]]:
    """A gold answer whose XML marks are damaged: the name of each way and the text."""
    ends = re.findall(r"</\w+>", gold)
    if not ends:
        return
    last = ends[-1]
    head, _, tail = gold.rpartition(last)
    apart = "\n" if head.endswith("\n") else ""
    yield "a doubled closing mark", head + last + apart + last + tail
    yield UNCLOSED, f"{head}{tail}"
    yield (
        "a doubled opening mark",
        gold.replace(last.replace("/", ""), last.replace("/", "") * 2, 1),
    )


def writes_commas(examples: Sequence[Example]) -> bool:
    """Whether most prompts are in a language that writes 4,5: such a number is in them, or a letter
    with an accent."""
    texts = [" ".join(one["content"] for one in example.messages) for example in examples]
    return sum(
        _COMMA.search(text) is not None or without_accents(text) != text for text in texts
    ) * 2 > len(texts)


def _values(value: Any, gold: str) -> Iterator[tuple[str, str]]:
    """A JSON object or array, its values written otherwise."""

    def bare(_key: str, number: float) -> str:
        return json.dumps(number)

    def quoted(text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    def written(
        number: Callable[[str, float], str] = bare, text: Callable[[str], str] = quoted
    ) -> str:
        return _dump(value, "", number, text)

    def named(key: str, what: str) -> bool:
        return any(word in key.lower() for word in _TABLE[what])

    plain = written()
    ways = {
        DECIMAL_COMMA: written(lambda _, one: json.dumps(one).replace(".", ",")),
        "decimal comma in quotes": written(
            lambda _, one: (
                f'"{one!s}"'.replace(".", ",") if isinstance(one, float) else json.dumps(one)
            )
        ),
        "numbers in quotes": written(lambda _, one: f'"{one!s}"'),
        "thousands points": written(
            lambda _, one: f'"{_brazilian(one)}"' if abs(one) >= 1000 else json.dumps(one)
        ),
        "R$": written(
            lambda key, one: f'"R$ {_brazilian(one)}"' if named(key, "money") else json.dumps(one)
        ),
        "percent sign": written(
            lambda key, one: f'"{_brazilian(one)}%"' if named(key, "percent") else json.dumps(one)
        ),
        "case": written(
            text=lambda one: quoted(one.capitalize() if one != one.capitalize() else one.upper())
        ),
        "accents left out": written(text=lambda one: quoted(without_accents(one))),
        "escaped letters": json.dumps(value, ensure_ascii=True),
    }
    yield from ((name, text) for name, text in ways.items() if text != plain)
    yield "trailing comma", f"{gold.rstrip()[:-1]},{gold.rstrip()[-1]}"
    yield "curly quotes", re.sub(r'"([^"\\]*)"', r"“\1”", gold)
    yield "single quotes", gold if "'" in gold else gold.replace('"', "'")
    yield "on several lines", json.dumps(value, ensure_ascii=False, indent=2)


def _dump(
    value: Any, key: str, number: Callable[[str, float], str], text: Callable[[str], str]
) -> str:
    """JSON whose numbers, with the key that they stand under, and texts are written by these
    functions."""
    if isinstance(value, dict):
        inside = ", ".join(
            f"{json.dumps(name)}: {_dump(one, name, number, text)}" for name, one in value.items()
        )
        return f"{{{inside}}}"
    if isinstance(value, list):
        return f"[{', '.join(_dump(one, key, number, text) for one in value)}]"
    if isinstance(value, str):
        return text(value)
    return json.dumps(value) if value is None or isinstance(value, bool) else number(key, value)


def _brazilian(value: float) -> str:
    """1234.5 as 1.234,5."""
    return f"{value:,}".translate(str.maketrans(",.", ".,"))
