"""The figures of docs/research/forms.md: how gold values were resolved, and what the oracle and the
baselines earn.

python -m benchmarks.formfactory_figures DIR            # a checkout of the benchmark
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.forms_figures import markdown
from plumbline.records import Example
from plumbline.tasks import silent
from plumbline.tasks.task import gold_of
from plumbline_forms.formfactory.gold import LEVELS
from plumbline_forms.formfactory.importer import TEST
from plumbline_forms.suite.declaration import Form
from plumbline_forms.task import FILLABLE, STRICT, FormsTask, open_forms

ORACLE = "oracle"
Row = dict[str, Any]


def levels_table(forms: Mapping[str, Form], examples: Sequence[Example]) -> list[Row]:
    """How many gold values of each kind of control were resolved at each level; the last row is all
    kinds."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for example in examples:
        form = forms[example.reference["form"]]
        for name, level in example.reference["levels"].items():
            counts[form.by_name[name].kind][level] += 1
            counts["all"][level] += 1
    kinds = sorted(
        (kind for kind in counts if kind != "all"), key=lambda kind: -counts[kind].total()
    )
    return [
        {
            "kind": kind,
            **{level: counts[kind][level] for level in LEVELS},
            "values": counts[kind].total(),
        }
        for kind in (*kinds, "all")
    ]


def notes_table(examples: Sequence[Example]) -> list[Row]:
    """How many records have what is flagged: unfillable values, keys without a field, stubs, a
    ported page."""
    flags = ("unfillable", "unplaced", "stubbed", "ported")
    return [
        {
            "flag": flag,
            "records": sum(bool(example.reference[flag]) for example in examples),
            "of": len(examples),
        }
        for flag in flags
    ]


def rewards_table(task: FormsTask, examples: Sequence[Example]) -> list[Row]:
    """What the oracle and every baseline earn: submissions, both readings, exact forms, the highest
    mean of a form."""
    rows = []
    for source in (ORACLE, *task.baselines):
        golden = list(map(gold_of, examples))
        answers = golden if source == ORACLE else task.baselines[source](examples)
        scores = [
            task.judge(example, answer)[1]
            for example, answer in zip(examples, answers, strict=True)
        ]
        by_form: dict[str, list[float]] = defaultdict(list)
        for example, score in zip(examples, scores, strict=True):
            by_form[example.stratum].append(score.total)
        rows.append(
            {
                "source": source,
                "submitted": int(sum(score.parts["submitted"] or 0 for score in scores)),
                FILLABLE: fmean([score.readings[FILLABLE] for score in scores]),
                STRICT: fmean([score.readings[STRICT] for score in scores]),
                "exact": sum(score.parts["exact"] == 1 for score in scores),
                "highest form": max(map(fmean, by_form.values())),
            }
        )
    return rows


def tables(task: FormsTask) -> dict[str, list[Row]]:
    """All tables of a task of the benchmark, by their title."""
    examples = task.examples(TEST)
    return {
        "How gold values were resolved": levels_table(task.forms, examples),
        "What is flagged": notes_table(examples),
        "What is earned": rewards_table(task, examples),
    }


if __name__ == "__main__":
    opened = open_forms({"suite": "formfactory", "path": sys.argv[1]}, Path(), silent)
    sys.stdout.write(f"{opened.rubric}\n\n")
    for title, rows in tables(opened).items():
        sys.stdout.write(f"{title}\n\n{markdown(rows)}\n\n")
