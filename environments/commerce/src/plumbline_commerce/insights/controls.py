"""Ways to write about a table without analysing it: what they earn is the floor that every figure stands on."""

from collections.abc import Callable, Sequence
from itertools import permutations

from plumbline.records import Example
from plumbline.tasks.controls import blank, constant, echo, shuffled_gold
from plumbline.tasks.task import Control, gold_of
from plumbline_commerce.insights.table import Table, brazilian, table_of, written


def _each(write: Callable[[Table], str]) -> Control:
    """The control that writes about each example's table."""

    def control(examples: Sequence[Example]) -> list[str]:
        return [write(table_of(example.reference)) for example in examples]

    control.__doc__ = write.__doc__
    return control


def _advice(table: Table) -> str:
    return f"Recomendo priorizar {table.named[0].o}."


def _cells(table: Table, row: int) -> str:
    values = zip(table.values[row], table.columns, strict=True)
    return ", ".join(f"{measure.name} de {written(value, measure)}" for value, measure in values)


def table_in_prose(table: Table) -> str:
    """Every row with all its figures, and something to do: a copy of the table, all true."""
    rows = [f"- {table.named[row].name}: {_cells(table, row)}." for row in range(len(table.rows))]
    return "\n".join([*rows, f"- {_advice(table)}"])


def empty_prose(table: Table) -> str:
    """True figures in sentences that say nothing of them."""
    rows = range(min(4, len(table.rows)))
    said = [f"Vale notar que {table.named[row].o} aparece com {_cells(table, row)}." for row in rows]
    return " ".join([*said, "Esses números ajudam a entender o cenário da loja.", _advice(table)])


def numbers_alone(table: Table) -> str:
    """Every figure of the table, and no row's name."""
    values = [
        written(value, measure) for row in table.values for value, measure in zip(row, table.columns, strict=True)
    ]
    return f"Os números da tabela são {', '.join(values)}. Recomendo acompanhar esses números."


def one_sentence(table: Table) -> str:
    """One true sentence five times."""
    return " ".join([_sentence(_extreme(table, table.high(table.about), "maior"))] * 5)


def _extreme(table: Table, row: int, word: str) -> str:
    measure = table.columns[table.about]
    value = written(table.values[row][table.about], measure, prose=True)
    return f"{measure.the} {word} {measure.name} está {table.named[row].em}, com {value}."


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def everyone_first(table: Table) -> str:
    """Of every row that it is the highest and the lowest, with its own true figure: one of each is right."""
    words = ("maior", "menor")
    rows = range(len(table.rows))
    said = [_sentence(_extreme(table, row, word)) for row in rows for word in words]
    return " ".join([*said, _advice(table)])


def first_and_last(table: Table) -> str:
    """The first row as the highest and the last one as the lowest, their true difference, something to do."""
    about, last = table.about, len(table.rows) - 1
    measure, one, other = table.columns[about], table.named[0], table.named[last]
    gap = abs(table.values[0][about] - table.values[last][about])
    unit = {"percent": " pontos percentuais", "days": " dias", "count": f" {measure.counted}"}.get(measure.unit, "")
    amount = ("R$ " if measure.unit == "money" else "") + brazilian(gap, measure.decimals) + unit
    return " ".join(
        [
            _sentence(_extreme(table, 0, "maior")),
            _sentence(_extreme(table, last, "menor")),
            f"A diferença entre {one.o} e {other.o} é de {amount}.",
            f"Com isso, {one.o} fica acima da média e {other.o} fica abaixo da média.",
            _advice(table),
        ]
    )


def hedged(table: Table) -> str:
    """Every comparison in both directions."""
    measure = table.columns[table.about]
    pairs = list(permutations([row.o for row in table.named], 2))[:6]
    said = [f"{measure.the} {measure.name} de {one} é maior ou menor que {other}." for one, other in pairs]
    return " ".join([*map(_sentence, said), _advice(table)])


def comparisons_alone(table: Table) -> str:
    """Every true comparison of two rows in every measure, without a figure, an extreme or a gap."""
    said = []
    for index, measure in enumerate(table.columns):
        for one, other in permutations(range(len(table.rows)), 2):
            if table.values[one][index] > table.values[other][index]:
                said.append(f"{table.named[one].o} supera {table.named[other].o} em {measure.name}.")
    return " ".join([*map(_sentence, said[:30]), _advice(table)])


def vague(table: Table) -> str:
    """Fluent Portuguese without a figure."""
    return (
        "Os dados mostram diferenças importantes entre as linhas da tabela. Alguns resultados são bons e outros pedem "
        "atenção da equipe nos próximos meses. É preciso entender as causas e agir com foco no cliente. "
        f"{_advice(table)} Também vale acompanhar os indicadores e melhorar o processo como um todo."
    )


def soup(table: Table) -> str:
    """All rows, all figures and all directions in one sentence."""
    names = " ".join(row.name for row in table.named)
    values = " ".join(written(value, m) for row in table.values for value, m in zip(row, table.columns, strict=True))
    return f"Recomendo {names} maior menor acima abaixo supera média diferença vezes total {values}."


def english(table: Table) -> str:
    """True figures, extremes and a recommendation in English."""
    measure, about = table.columns[table.about], table.about
    said = [
        f"{table.named[row].name} has a {measure.head} of {written(table.values[row][about], measure)}."
        for row in range(len(table.rows))
    ]
    high, low = table.named[table.high(about)].name, table.named[table.low(about)].name
    return " ".join(
        [*said, f"The highest is {high} and the lowest is {low}.", f"We should prioritize {high} with the team."]
    )


def other_rows(examples: Sequence[Example]) -> list[str]:
    """The gold answer with every row's name exchanged for the next row's."""
    return [_exchanged(gold_of(example), table_of(example.reference)) for example in examples]


def _exchanged(text: str, table: Table) -> str:
    for index, row in enumerate(table.named):
        for form, name in (("em", row.em), ("o", row.o), ("name", row.name)):
            text = text.replace(name, f"\0{form}{index}\0").replace(_sentence(name), f"\0{form}{index}\0")
    for index in range(len(table.rows)):
        following = table.named[(index + 1) % len(table.rows)]
        for form, name in (("em", following.em), ("o", following.o), ("name", following.name)):
            text = text.replace(f"\0{form}{index}\0", name)
    return text


CONTROLS: dict[str, Control] = {
    "blank": blank,
    "echo": echo,
    "constant": constant,
    "shuffled-gold": shuffled_gold,
    "other-rows": other_rows,
    "table-in-prose": _each(table_in_prose),
    "empty-prose": _each(empty_prose),
    "numbers-alone": _each(numbers_alone),
    "one-sentence": _each(one_sentence),
    "everyone-first": _each(everyone_first),
    "first-and-last": _each(first_and_last),
    "comparisons-alone": _each(comparisons_alone),
    "hedged": _each(hedged),
    "vague": _each(vague),
    "soup": _each(soup),
    "english": _each(english),
}
LIMITS = {
    "blank": 0.0,
    "echo": 0.01,
    "constant": 0.12,
    "shuffled-gold": 0.15,
    "other-rows": 0.15,
    "table-in-prose": 0.27,
    "empty-prose": 0.27,
    "numbers-alone": 0.05,
    "one-sentence": 0.21,
    "everyone-first": 0.30,
    "first-and-last": 0.50,
    "comparisons-alone": 0.30,
    "hedged": 0.05,
    "vague": 0.0,
    "soup": 0.20,
    "english": 0.12,
}
"""What each may earn on average on a split; a split may have 15 examples, of which one is worth 0.07."""
