"""The top: what the run is, the verdict, what the reader must know before believing it, and the key figures."""

from collections.abc import Iterator

from plumbline.evaluation.statistics import Interval, skill
from plumbline.reports import build_tables, numbers
from plumbline.reports.comparisons import Comparison
from plumbline.reports.escaping import html
from plumbline.reports.page import Section, paragraph, typeset
from plumbline.reports.readings import has_both, rescued
from plumbline.reports.sections.checked import alarms
from plumbline.reports.tables import minus
from plumbline.reports.verdict import Verdict
from plumbline.reports.view import View, name_of
from plumbline.runs.evaluations import EvaluationKey

MOST_WARNINGS = 6
LONGEST = 400


def top(view: View, said: Verdict) -> Section:
    """Title, banners, verdict, cards."""
    recipe = view.run.recipe
    reason = paragraph(said.reason, "reason") if said.reason else ""
    body = (
        f"<h1>{html(recipe.name)}</h1>"
        + (paragraph(recipe.description[:LONGEST], "lede") if recipe.description else "")
        + progress_banner(view)
        + f'<div class="verdict {said.tone}">{paragraph(said.sentence, "sentence")}{reason}</div>'
        + cards(view)
        + (build_tables.tasks(view).to_html() if view.tasks else "")
        + control_banner(view)
        + _banner("The checks found, with causes and remedies below:", alarms(view))
        + _banner("The run recorded warnings:", warning_lines(view))
    )
    return Section("top", "", body)


def progress(view: View) -> str:
    """How far an unfinished run is; empty for a finished one."""
    if view.finished:
        return ""
    last = view.last_step()
    if last is None:
        return "This run is not finished: no step has been recorded yet."
    stage, step, total = last
    of = f" of {numbers.count(total)}" if total else ""
    return f"This run is not finished: its last recorded step is {name_of(stage)} {numbers.count(step)}{of}."


def progress_banner(view: View) -> str:
    """The banner of an unfinished run."""
    said = progress(view)
    return f'<div class="banner" role="note">{paragraph(said)}</div>' if said else ""


CONTROL = (
    "This run is a negative control: RL deals its advantages at random within the batch "
    "(controls.shuffle_advantages), so the reward should not rise. It shows what a rise without any teaching would "
    "look like."
)


def control_banner(view: View) -> str:
    """The banner of a negative control."""
    return f'<div class="banner control" role="note">{paragraph(CONTROL)}</div>' if view.negative_control else ""


def warning_lines(view: View) -> list[str]:
    """The first warnings, clipped, and how many more there are."""
    lines = [
        f"{event.get('kind', 'warning')}: {str(event.get('message', ''))[:LONGEST]}"
        for event in view.warnings[:MOST_WARNINGS]
    ]
    left = len(view.warnings) - MOST_WARNINGS
    return [*lines, f"and {left} more, below under Events"] if left > 0 else lines


def _banner(said: str, lines: list[str]) -> str:
    """What the reader should know before the figures; empty where there is nothing."""
    items = "".join(f"<li>{html(line)}</li>" for line in lines)
    return f'<div class="banner" role="note"><p>{said}</p><ul>{items}</ul></div>' if lines else ""


Card = tuple[str, str, str]
"""Name, value, and what stands under it."""


def cards(view: View) -> str:
    """Three to five key figures; none before the first evaluation."""
    cells = "".join(map(_card, _cards(view)))
    return f'<dl class="cards">{cells}</dl>' if cells else ""


def _card(card: Card) -> str:
    name, value, more = card
    under = f'<dd class="more">{html(typeset(more))}</dd>'
    return f'<div class="card"><dt>{html(name)}</dt><dd>{html(minus(value))}</dd>{under}</div>'


def _cards(view: View) -> Iterator[Card]:
    if view.headline is None:
        return
    split, mode = view.headline
    stages = view.evaluated(split, mode)
    after = EvaluationKey(stages[-1], split, mode)
    compared = view.headline_comparison()
    if compared is not None:
        yield _mean_card(f"{name_of(compared.before)}, {mode}, {split}", compared.reward.before)
    reward = view.reward(view.evaluations[after])
    yield _mean_card(f"{name_of(after.stage)}, {mode}, {split}", reward)
    if compared is not None:
        yield _difference_card("Difference", compared)
        whole = view.first_to_last(split, mode)
        if isinstance(whole, Comparison) and whole.before != compared.before:
            yield _difference_card(f"First to last, from {name_of(whole.before)}", whole)
    yield from _skill_card(view, after, reward)
    yield from _strict_card(view)


def _mean_card(name: str, reward: Interval) -> Card:
    return name, numbers.fixed(reward.mean), f"{numbers.bounds(reward)}, n = {numbers.count(reward.n)}"


def _difference_card(name: str, compared: Comparison) -> Card:
    found = compared.reward.paired
    sure = f"{numbers.bounds(found.difference)}, {numbers.p_text(found.p_value)}"
    better, worse, equal = map(numbers.count, (found.wins, found.losses, found.ties))
    more = f"{sure}; {better} better, {worse} worse, {equal} equal"
    return name, numbers.signed(found.difference.mean), more


def _strict_card(view: View) -> Iterator[Card]:
    """How many answers strict parsing loses, before and after."""
    evaluations = [evaluation for _, evaluation in view.headline_evaluations]
    if not evaluations or not all(map(has_both, evaluations)):
        return
    counted = [rescued(evaluation.rows, evaluation.form) for evaluation in evaluations]
    lost, n = " → ".join(numbers.count(one.earning) for one in counted), numbers.count(counted[-1].n)
    under = f"of {n} answers earn something leniently and 0 strictly"
    right = [numbers.count(one.right) for one in counted if one.right is not None]
    if len(right) == len(counted):
        under += f"; right ones among them: {' → '.join(right)}"
    yield "Lost by strict parsing", lost, under


def _skill_card(view: View, key: EvaluationKey, reward: Interval) -> Iterator[Card]:
    """Skill is linear in the reward, so its interval is that of the reward, rescaled."""
    summary = view.summary(key)
    if "skill" not in summary or not numbers.known(summary["skill"]):
        return
    floor, ceiling = summary["floor"], summary["ceiling"]
    low, high = (skill(bound, floor, ceiling) for bound in (reward.low, reward.high))
    ends = f"0 is the best control ({numbers.fixed(floor)}), 1 the oracle ({numbers.fixed(ceiling)})"
    yield "Skill", numbers.fixed(summary["skill"], 2), f"[{numbers.fixed(low, 2)}, {numbers.fixed(high, 2)}]; {ends}"
