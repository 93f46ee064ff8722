"""Strict against lenient: how the answers had to be read, and what a strict parser would have taken from them."""

from dataclasses import replace

from plumbline.records import Evaluation
from plumbline.reports import build_tables, numbers
from plumbline.reports.charts import NARROW, UNIT, WIDE, Layer, line_chart, smoothed
from plumbline.reports.page import Section, figure, key, paragraph
from plumbline.reports.readings import LENIENT, STRICT, has_both, rescued
from plumbline.reports.scales import numbers_of
from plumbline.reports.view import View, name_of

ABOUT = (
    "The same answers, judged twice. Strict reading takes the text as it stands; lenient reading repairs what a person "
    "would read over (a code fence, a decimal comma, a missing bracket). An answer that earns something leniently and "
    "0 strictly is knowledge that strict parsing throws away; it is right where its content is, whatever its form."
)


def strict(view: View) -> Section:
    """The count in a sentence, the table of parse modes, and both readings during training."""
    heading = "Strict against lenient"
    evaluations = view.headline_evaluations
    body = paragraph(ABOUT)
    if not evaluations:
        body += paragraph("No held-out evaluation is there yet, so there is nothing to read twice.")
    for stage, evaluation in evaluations:
        body += paragraph(sentence(stage, evaluation))
    if evaluations:
        body += build_tables.parse_modes(view).to_html(limit=24)
    return Section("strict", heading, body + _training(view))


def sentence(stage: str, evaluation: Evaluation) -> str:
    """How many answers strict parsing scores as zero although they earn something."""
    if not has_both(evaluation):
        return f"{name_of(stage)}: this task does not record a strict and a lenient reading."
    counted = rescued(evaluation.rows, evaluation.form)
    n = numbers.count(counted.n)
    if not counted.earning:
        return f"{name_of(stage)}: strict parsing scores none of {n} answers as 0 that earns something."
    right = f"; {numbers.count(counted.right)} of them are right" if counted.right is not None else ""
    return (
        f"{name_of(stage)}: strict parsing scores {numbers.count(counted.earning)} of {n} answers as 0 although they "
        f"earn something read leniently{right}."
    )


def _training(view: View) -> str:
    rows = view.metrics.get("rl", [])
    steps = numbers_of(row["step"] for row in rows)
    layers: list[Layer] = []
    for name, style in ((STRICT, "c2"), (LENIENT, "c1")):
        values = numbers_of(row.get(f"train/reading/{name}") for row in rows)
        if len(values) and (values == values).any():
            layers += smoothed(steps, values, style, name, band=True)
    if not layers:
        return ""
    label = "Strict and lenient reward in training"
    chart, small = (
        line_chart(layers, label=label, size=replace(size, height=250, right=64), y_range=UNIT)
        for size in (WIDE, NARROW)
    )
    about = (
        f"mean over each step's rollouts; lines are moving means with their 95 % band. {key('c1', 'circle', LENIENT)} "
        f"&nbsp;{key('c2', 'circle', STRICT)}"
    )
    return figure("Both readings in training", about, chart, small)
