"""The job: a manager's question about a small table of figures, answered by a short analysis in
Portuguese.

The baselines are ways to write about a table without analysing it: what they earn is the floor under
every figure.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations

from plumbline.records import Example, Outcome, Score
from plumbline.tasks.task import Baseline, gold_of
from plumbline_commerce.insights.pairs import pairs
from plumbline_commerce.insights.rubric import RUBRIC, judge
from plumbline_commerce.insights.table import (
    InsightTable,
    capitalise,
    check,
    data,
    table_of,
    write_value,
)
from plumbline_commerce.job import Job, read_limits


def _each(write: Callable[[InsightTable], str]) -> Baseline:
    """The baseline that writes about each example's table."""
    return lambda examples: [write(table_of(example.reference)) for example in examples]


def _row(table: InsightTable, row: int) -> dict[str, str]:
    """What a template may say of a row."""
    name, measure, value = (
        table.named[row],
        table.columns[table.about],
        table.values[row][table.about],
    )
    cells = zip(table.columns, table.values[row], strict=True)
    slots = {
        "name": name.name,
        "o": name.o,
        "head": measure.head,
        "figure": write_value(value, measure),
    }
    slots["cells"] = ", ".join(
        f"{column.name} de {write_value(value, column)}" for column, value in cells
    )
    for slot, word in (("highest", "maior"), ("lowest", "menor")):
        shown = write_value(value, measure, prose=True)
        slots[slot] = capitalise(
            f"{measure.the} {word} {measure.name} está {name.em}, com {shown}."
        )
    return slots


def _fill_template(way: Mapping[str, str]) -> Baseline:
    """The baseline that fills a template of `baselines.yaml`."""

    def write(table: InsightTable) -> str:
        rows = [_row(table, row) for row in range(len(table.rows))]
        column, measure = table.column(table.about), table.columns[table.about]
        named = {
            "first": 0,
            "last": -1,
            "high": table.high(table.about),
            "low": table.low(table.about),
        }
        slots = {
            f"{slot}_{place}": text
            for place, row in named.items()
            for slot, text in rows[row].items()
        }
        gap = write_value(abs(column[0] - column[-1]), measure, prose=True).replace(
            "%", " pontos percentuais"
        )
        figures = [
            write_value(one, m)
            for row in table.values
            for one, m in zip(row, table.columns, strict=True)
        ]
        slots |= {"gap": gap, "values": ", ".join(figures), "figures": " ".join(figures)}
        slots["names"] = " ".join(row["name"] for row in rows)
        said = [
            way.get("each", "").format(**row) for row in rows[: int(way.get("most", len(rows)))]
        ]
        return "".join([*said, way["end"].format(**slots)])

    return _each(write)


def _write_comparisons(table: InsightTable, said: Sequence[str]) -> str:
    return " ".join([*map(capitalise, said), f"Recomendo priorizar {table.named[0].o}."])


def hedge_comparisons(table: InsightTable) -> str:
    """Every comparison in both directions."""
    measure = table.columns[table.about]
    pairs = list(permutations([row.o for row in table.named], 2))[:6]
    said = [
        f"{measure.the} {measure.name} de {one} é maior ou menor que {other}."
        for one, other in pairs
    ]
    return _write_comparisons(table, said)


def comparisons_alone(table: InsightTable) -> str:
    """Every true comparison of two rows in every measure, without a figure, an extreme or a gap."""
    said = [
        f"{table.named[one].o} supera {table.named[other].o} em {measure.name}."
        for index, measure in enumerate(table.columns)
        for one, other in permutations(range(len(table.rows)), 2)
        if table.values[one][index] > table.values[other][index]
    ]
    return _write_comparisons(table, said[:30])


def other_rows(examples: Sequence[Example]) -> list[str]:
    """The gold answer with every row's name exchanged for the next row's."""
    answers = []
    for example in examples:
        text, named = gold_of(example), table_of(example.reference).named
        for index, row in enumerate(named):
            for form in ("em", "o", "name"):
                name = getattr(row, form)
                text = text.replace(name, f"\0{form}{index}\0").replace(
                    capitalise(name), f"\0{form}{index}\0"
                )
        for index, row in enumerate([*named[1:], named[0]]):
            for form in ("em", "o", "name"):
                text = text.replace(f"\0{form}{index}\0", getattr(row, form))
        answers.append(text)
    return answers


WAYS: dict[str, Baseline] = {
    "other-rows": other_rows,
    "comparisons-alone": _each(comparisons_alone),
    "hedged": _each(hedge_comparisons),
    **{name: _fill_template(way) for name, way in data("baselines")["texts"].items()},
}


class Insights(Job):
    """See `Job`."""

    name, rubric, limits, ways = "insights", RUBRIC, read_limits("insights"), WAYS
    cluster = "kind"
    pairs, check = staticmethod(pairs), staticmethod(check)

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Job.judge`."""
        return judge(table_of(example.reference), completion)
