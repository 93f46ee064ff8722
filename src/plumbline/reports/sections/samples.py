"""Samples side by side: the same held-out examples before and after, chosen by a rule."""

import json
from typing import Any

from plumbline.evaluation.evaluate import ORACLE
from plumbline.records import Judged
from plumbline.reports import numbers
from plumbline.reports.escaping import clip, html
from plumbline.reports.page import Section, paragraph
from plumbline.reports.select_samples import RULE, Picked, select
from plumbline.reports.tables import Column, Row, Table, minus
from plumbline.reports.view import View, name_of
from plumbline.runs.evaluations import REFERENCE, EvaluationKey

ANSWER, PROMPT, GOLD = 3000, 4000, 2000
"""Most bytes of HTML that a text takes; what is left out is counted."""
MOST_PARTS = 14
SHORT = 600
"""Characters up to which a prompt stands open: what was asked is then read beside what was answered."""


def samples(view: View) -> Section:
    """Eight examples; before there are two evaluations, the latest rollouts of training."""
    compared = view.headline_comparison()
    if compared is None:
        return Section("samples", "Samples", _training(view))
    body = paragraph(
        f"Held-out examples of {compared.split}, {compared.mode} answers, {name_of(compared.before)} beside "
        f"{name_of(compared.after)}. {RULE}"
    )
    golds = golds_of(view, compared.split)
    for picked in select(compared):
        body += _sample(view, picked, golds.get(picked.after.id), name_of(compared.before), name_of(compared.after))
    return Section("samples", "Samples side by side", body)


def golds_of(view: View, split: str) -> dict[str, str]:
    """Gold answers, as far as there are any: those of the examples where given, else what the oracle answered."""
    oracle = view.evaluations.get(EvaluationKey(REFERENCE, split, ORACLE))
    known = {row.id: row.completion for row in oracle.rows} if oracle else {}
    return {**known, **{name: one.gold for name, one in view.examples.items() if one.gold is not None}}


def prompt_of(view: View, name: str) -> str:
    """The last thing that the user said; empty where the examples are not given."""
    example = view.examples.get(name)
    if example is None:
        return ""
    return next((m["content"] for m in reversed(example.messages) if m["role"] == "user"), "")


def _sample(view: View, picked: Picked, gold: str | None, before: str, after: str) -> str:
    row = picked.after
    stratum = f" · {html(clip(row.stratum, 300)[0])}" if row.stratum else ""
    prompt = prompt_of(view, row.id)
    folded = _folded("Prompt (last user message)", prompt, PROMPT) if len(prompt) > SHORT else ""
    read = _read(gold, {before: picked.before, after: row})
    folded += _folded("Gold answer", gold, GOLD) if gold is not None and not read else ""
    change = minus(numbers.signed(picked.gain))
    return (
        f'<article class="sample"><h3>{html(clip(row.id, 300)[0])}{stratum}</h3>'
        f'<p class="why">{html(picked.why)}: {numbers.fixed(picked.before.reward)} to '
        f"{numbers.fixed(row.reward)} ({change})</p>"
        f"{_text(prompt, PROMPT) if 0 < len(prompt) <= SHORT else ''}{read}"
        f'<div class="folded">{folded}</div>'
        f'<div class="sides">{_side(before, picked.before)}{_side(after, row)}</div></article>'
    )


def _read(gold: str | None, answers: dict[str, Judged]) -> str:
    """Where the gold answer is a JSON object: each of its values beside the answered ones, with what a part earned."""
    wanted = _object(gold)
    if not wanted:
        return ""
    columns = [Column("key", "What is asked"), Column("gold", "Gold")]
    cells: dict[str, list[str]] = {key: [_value(value)] for key, value in wanted.items()}
    for name, row in answers.items():
        columns.append(Column(name, name))
        said = _object(row.completion)
        for key, row_cells in cells.items():
            earned = row.parts.get(key)
            mark = "" if earned is None else "✓ " if earned == 1 else "✗ " if earned == 0 else f"{earned:.2f} "
            # Read leniently, a text that is no JSON may have said it all the same; it stands below.
            absent = "(not said)" if said else "(no plain JSON)"
            row_cells.append(mark + (_value(said[key]) if key in said else absent))
    rows = tuple(Row((clip(key, 120)[0], *row_cells)) for key, row_cells in list(cells.items())[:MOST_PARTS])
    return Table("read", "What was read, ✓ right, ✗ wrong", tuple(columns), rows).to_html()


def _object(text: str | None) -> dict[str, Any]:
    """The JSON object that a text is; empty where it is none as it stands."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _value(value: object) -> str:
    return clip(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 300)[0]


def _side(name: str, row: Judged) -> str:
    facts = [f"read as {row.how}" if row.how else ""]
    facts.append(f"{row.tokens} tokens" if row.tokens is not None else "")
    facts.append("truncated" if row.truncated else "")
    said = " · ".join(clip(fact, 300)[0] for fact in facts if fact)
    return (
        f'<div><div class="side"><b>{html(name)}</b> <span>reward {numbers.fixed(row.reward)}</span> '
        f'<span class="how">{html(said)}</span></div>{_chips(row.parts)}{_turns(row)}</div>'
    )


def _turns(row: Judged) -> str:
    """The answer; of an episode of several turns all of them, with what was asked in between."""
    body = "" if row.turns else _text(row.completion, ANSWER)
    for number, (asked, answer) in enumerate(zip(("", *row.asked), row.turns, strict=False), 1):
        body += _folded(f"Asked before turn {number}", asked, PROMPT) if asked else ""
        body += f'<p class="why">Turn {number}</p>{_text(answer, ANSWER)}'
    return body + (
        paragraph("Another turn was asked for, and did not fit into the context.", "note") if row.cut else ""
    )


def _chips(parts: Any) -> str:
    """Each part that was asked for as a small bar with its value."""
    items = []
    for name, value in [pair for pair in dict(parts).items() if pair[1] is not None][:MOST_PARTS]:
        bar = f'<i><span style="width:{min(max(value, 0.0), 1.0) * 100:.0f}%"></span></i>'
        items.append(f"<li><b>{html(clip(name, 120)[0])}</b> {bar}{numbers.fixed(value, 2)}</li>")
    return f'<ul class="chips">{"".join(items)}</ul>' if items else ""


def _text(text: str, limit: int) -> str:
    shown, left = clip(text, limit)
    if not text.strip():
        return '<pre><span class="ci">(empty)</span></pre>'
    more = f'\n<span class="ci">… {left:,} more characters</span>' if left else ""
    return f'<pre dir="auto">\n{html(shown)}{more}</pre>'


def _folded(summary: str, text: str, limit: int) -> str:
    return f"<details><summary>{html(summary)}</summary>{_text(text, limit)}</details>"


def _training(view: View) -> str:
    said = paragraph("Samples before and after need two stages that were evaluated on the same split.")
    if not view.samples:
        return said + paragraph("No rollout of training has been recorded either.")
    last = view.samples[-1].get("step")
    latest = [row for row in view.samples if row.get("step") == last and row.get("reward") is not None]
    ranked = sorted(latest, key=lambda row: (-row["reward"], str(row.get("id", ""))))
    shown = ranked if len(ranked) <= 4 else [*ranked[:2], *ranked[-2:]]
    body = said + paragraph(f"Until then: the best and the worst rollouts of training step {last}.")
    return body + "".join(_rollout(row) for row in shown)


def _rollout(row: dict[str, Any]) -> str:
    judged = Judged(
        id=str(row.get("id", "")),
        stratum="",
        completion=str(row.get("text", "")),
        reward=row["reward"],
        parts=row.get("parts", {}),
        readings={},
        how=str(row.get("how", "")),
        truncated=row.get("finish") == "length",
        turns=tuple(row.get("turns", ())),
        asked=tuple(row.get("asked", ())),
    )
    return f'<article class="sample"><h3>{html(clip(judged.id, 300)[0])}</h3>{_side("Rollout", judged)}</article>'
