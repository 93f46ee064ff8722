"""The oracle's analysis of a table: sentences of templates, filled with what is true of it."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from plumbline.tasks.tables import read_table
from plumbline_commerce.insights.table import HERE, Table, brazilian, kinds, written

FAR_APART = 1.5
"""From which ratio on "so many times" says more than a percentage."""


@cache
def phrases() -> Mapping[str, Any]:
    """The templates by what they say, as `phrases.yaml` has them."""
    found: Mapping[str, Any] = read_table(HERE / "phrases.yaml")
    return found


def analysis(table: Table, rng: np.random.Generator) -> str:
    """Three to five statements in prose or as a list: both ends, the gap, what puts it in proportion, what to do."""
    slots = facts(table)
    together = rng.random() < 0.35
    names = ["ends"] if together else ["high", "low"] if rng.random() < 0.5 else ["low", "high"]
    names += [_gap(table, rng), _proportion(table, rng)]
    if together and "share" in slots:
        names.append("share")
    sentences = [_filled(_one_of(phrases()[name], rng), slots) for name in names]
    sentences.append(_filled(_one_of(phrases()["advice"], rng), {**slots, "action": _action(table, slots, rng)}))
    if rng.random() < 0.5:
        return "\n".join(f"- {sentence}" for sentence in sentences)
    return " ".join(sentences)


def facts(table: Table) -> dict[str, str]:
    """What the templates may say of a table, by slot."""
    about = table.about
    measure, column = table.columns[about], table.column(about)
    high, low, mean = table.high(about), table.low(about), sum(column) / len(column)
    slots = {"m": measure.name, "the": measure.the, "da": "da" if measure.the == "a" else "do", "n": str(len(column))}
    slots |= {"na": "na" if measure.the == "a" else "no", "mean": written(mean, measure, prose=True)}
    best, worst = (high, low) if measure.high_is_good else (low, high)
    first, last = 0, len(column) - 1
    named = {
        "hi": high,
        "lo": low,
        "best": best,
        "worst": worst,
        "first": first,
        "last": last,
        "odd": _odd(column, mean),
    }
    for slot, row in named.items():
        name = table.named[row]
        slots |= {slot: name.o, f"em_{slot}": name.em, f"v_{slot}": written(column[row], measure, prose=True)}
        slots |= {f"do_{slot}": contracted("de", name.o), f"ao_{slot}": contracted("a", name.o)}
    slots |= {"gap": _difference(abs(column[high] - column[low]), table), "times": _times(column[high] / column[low])}
    slots["percent"] = f"{brazilian(100 * (column[high] / column[low] - 1), 0)}%"
    slots["step"] = _difference(abs(column[last] - column[first]), table)
    slots["moved"], slots["move"] = ("subiu", "alta") if column[last] > column[first] else ("caiu", "queda")
    slots["side"] = "acima" if column[named["odd"]] > mean else "abaixo"
    return slots | _counted(table)


def contracted(preposition: str, name: str) -> str:
    """A preposition, de or a, before a name that may have an article: "do RJ", "à faixa", "de SP"."""
    article, _, rest = name.partition(" ")
    joined = {("de", "o"): "do", ("de", "a"): "da", ("a", "o"): "ao", ("a", "a"): "à"}.get((preposition, article))
    return f"{joined} {rest}" if joined else f"{preposition} {name}"


def _odd(column: Sequence[float], mean: float) -> int:
    """The row that is farthest from the mean."""
    return max(range(len(column)), key=lambda row: abs(column[row] - mean))


def _counted(table: Table) -> dict[str, str]:
    """The largest row of the table's count or sum, and its share of the whole."""
    measure = next((index for index, column in enumerate(table.columns) if column.additive), None)
    if measure is None:
        return {}
    column, row = table.column(measure), table.high(measure)
    name = table.named[row]
    share = f"{brazilian(100 * column[row] / sum(column), 0)}%"
    total = written(sum(column), table.columns[measure], prose=True)
    largest = written(column[row], table.columns[measure], prose=True)
    what = table.columns[measure]
    named = {"large": name.o, "em_large": name.em, "v_large": largest, "share": share, "total": total}
    return named | {"c": what.counted or what.name, "c_name": what.name, "c_the": what.the}


def _difference(gap: float, table: Table) -> str:
    measure = table.columns[table.about]
    number = brazilian(gap, measure.decimals)
    points = ("ponto", "ponto percentual") if gap < 2 else ("pontos", "pontos percentuais")  # "1,3 ponto"
    units = {"percent": f"{number} {points[1]}", "mean": f"{number} {points[0]}", "money": f"R$ {number}"}
    return units.get(measure.unit) or written(gap, measure, prose=True)


def _times(ratio: float) -> str:
    return f"{brazilian(ratio, 1)} vezes"


def _gap(table: Table, rng: np.random.Generator) -> str:
    column = table.column(table.about)
    ratio = max(column) / min(column)
    if rng.random() < 0.5:
        return "difference"
    if ratio >= FAR_APART:
        return "ratio"
    return "difference" if table.columns[table.about].unit == "percent" else "percentage"


def _proportion(table: Table, rng: np.random.Generator) -> str:
    """The mean; or how rows with an order went from the first to the last, where that is not the gap over again."""
    ends = {table.high(table.about), table.low(table.about)}
    column = table.column(table.about)
    moved = table.ordered and column[0] != column[-1] and ends != {0, len(column) - 1}
    return "trend" if moved and rng.random() < 0.7 else "mean"


def _action(table: Table, slots: Mapping[str, str], rng: np.random.Generator) -> str:
    """What to do, where the measure in question is worst; now and then what to learn from where it is best."""
    about = kinds()[table.kind]
    which = "like" if rng.random() < 0.2 else "at"
    row = "best" if which == "like" else "worst"
    return _one_of(about[which], rng).format(em=slots[f"em_{row}"], o=slots[row])


def _one_of(choices: list[str], rng: np.random.Generator) -> str:
    return choices[int(rng.integers(len(choices)))]


def _filled(template: str, slots: Mapping[str, str]) -> str:
    text = template.format(**slots)
    return text[0].upper() + text[1:]
