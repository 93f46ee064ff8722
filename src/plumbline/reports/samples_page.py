"""Every recorded answer on a page of its own, to search and filter: held-out ones of the last
stage first, then rollouts of training from the last step back."""

from collections.abc import Iterator
from typing import Any

from plumbline.errors import make_visible
from plumbline.records import Judged, Unjudged
from plumbline.reports.format_numbers import format_count, is_finite
from plumbline.reports.page_sections import name_gold
from plumbline.reports.templating import clip_middle, render_page, render_section
from plumbline.reports.view import RunView, stage_name

MOST = 8_000_000
"""Characters of answers and prompts that a page holds."""
LONGEST = 20_000
"""Bytes of HTML of a text; of a longer one both ends are shown."""


def samples_page(view: RunView) -> str:
    """The HTML file. Its data is JSON: texts that answers share, and a row for each answer (where
    it is from, id, reward or null, what else is known, and the places of its texts: answer, prompt,
    gold answer, and what the gold answer is called)."""
    texts: dict[str, int] = {}
    rows: list[list[Any]] = []
    size = left = 0
    for where, name, reward, note, *given in _answers(view):
        shown = [clip_middle(make_visible(text), LONGEST) for text in given]
        size += sum(len(text) for text in shown if text not in texts)
        if size > MOST:
            left += 1
            continue
        places = [texts.setdefault(text, len(texts)) for text in shown]
        earned = round(reward, 4) if is_finite(reward) else None
        rows.append([*map(make_visible, (where, name)), earned, make_visible(note), *places])
    data = {"texts": list(texts), "rows": rows}
    note = f"{format_count(left)} more are in samples.jsonl and evaluations/." if left else ""
    title = f"{view.run.recipe.name}: all answers"
    sections = [render_section("top", "", "samples_page", title=title, note=note)]
    return render_page(f"{title} · Plumbline", sections, data)


def _answers(view: RunView) -> Iterator[tuple[str, str, float | None, str, str, str, str, str]]:
    """Where it is from, id, reward, what else is known, answer, prompt, gold answer and its name of
    each."""
    for one in view.tasks or [view]:
        golden = name_gold(one)
        for key in reversed([key for split in one.splits for key in one.final_keys(split)]):
            found = one.evaluations[key]
            where = " ".join([stage_name(key.stage), key.mode, key.split, one.task]).strip()
            rows: list[Judged | Unjudged] = [*found.rows, *found.unjudged]
            for row in rows:
                prompt, gold = one.texts.get(row.id, ("", None))
                if isinstance(row, Judged):
                    reward, note = row.reward, row.how and f"read as {row.how}"
                    text = _episode(row.turns, row.asked) if row.turns else row.completion
                else:
                    reward, note, text = None, row.failure, row.completion
                yield where, row.id, reward, note, text, prompt, gold or "", golden
    for drawn in reversed(view.samples):
        turns = drawn.get("turns", ())
        text = _episode(turns, drawn.get("asked", ())) if turns else drawn["text"]
        note = f"step {drawn['step']}, read as {drawn['how']}"
        yield "training", drawn["id"], drawn["reward"], note, text, "", "", ""


def _episode(turns: Any, asked: Any) -> str:
    """The turns of an episode, and what was asked between them."""
    between = ["", *(f"[asked] {text}\n\n" for text in asked)]
    return "\n\n".join(
        f"{before}[turn {number}] {text}"
        for number, (before, text) in enumerate(zip(between, turns, strict=False), 1)
    )
