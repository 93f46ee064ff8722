"""What a form is worth: what the server received for it, and nothing else.

A field pays if an untouched form would have sent something else, and it pays in proportion to how
hard it is to guess: 1 for what is typed or attached, 1 - 1/k for one of k options, nothing for a
box that must be ticked anyway. So the blank form, the prefilled one, and the one that agrees to
everything stand at or near zero. Changing what should have stayed alone takes away, and so does
every action that came to nothing: who tries every kind of action on every control has not said what
is to be done. Without a complete form at the server there is no reward at all: not for actions that
were carried out, not for a page that says thank you, not for what the plan says.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from plumbline.records import Figure, Headline, Mistake, Score
from plumbline.tasks.rubric import Part, Rubric
from plumbline_browser.plans.actions import Action, Attach, Check, Fill, Plan, Select, Type
from plumbline_forms.executors.executor import Execution
from plumbline_forms.site.page import Entries, FormView
from plumbline_forms.site.site import Submission, submission_of
from plumbline_forms.suite.catalogue import is_shown
from plumbline_forms.suite.declaration import Field, Form, Value
from plumbline_forms.suite.drawing import plain
from plumbline_forms.values import read_decimal

# -- canonical forms: what two entries of a kind have in common when they say the same -------------

Canonical = str | tuple[str, ...]
_PHONE = re.compile(r"[^\d+]")
_HOST = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://[^/?#]*)(.*)", re.DOTALL)


def gold(one: Field, value: Value) -> Canonical:
    """The canonical form of a record's value."""
    if isinstance(value, bool):
        return ("on",) if value else ()
    if isinstance(value, tuple):
        return tuple(sorted(value))
    return canonical(one, () if value is None else (value,))


def canonical(one: Field, values: tuple[str, ...]) -> Canonical:
    """The canonical form of what was received for a field."""
    if one.kind in {"checkbox", "checkboxes", "multiselect", "file"}:
        return tuple(sorted(value for value in values if value))
    text = values[0] if values else ""
    if one.kind in {"select", "radio", "time", "date", "password", "hidden"}:
        return text
    if one.kind == "number":
        number = read_decimal(text)
        return (
            text
            if number is None
            else plain(number)
            if -50 < number.adjusted() < 50
            else f"{number:E}"
        )
    if one.kind == "email":
        return text.strip().casefold()
    if one.kind == "tel":
        return _PHONE.sub("", text)
    folded = " ".join(unicodedata.normalize("NFKC", text).split())
    if one.kind == "url" and (parts := _HOST.fullmatch(folded)):
        return parts.group(1).casefold() + parts.group(2).rstrip("/")
    return folded


# -- what the server received ----------------------------------------------------------------------

RUBRIC = Rubric(
    "forms-received",
    2,
    parts=(
        Part(
            "fields",
            0.8,
            "entries that had to be made: each right one, weighted by how hard it is to guess",
        ),
        Part("exact", 0.2, "the whole form is right, every field of it"),
    ),
    form=(
        Part(
            "clean",
            1.0,
            "what should have stayed as it was did, and the plan's actions came to something",
        ),
    ),
)
_CHANGES_TAKE, _WASTE_TAKES = 0.5, 0.9
"""Of the reward, at most: changing what should have stayed alone, and actions that came to nothing.
`clean` is the product of what both leave; a change of either number is a new version of the rubric,
because its hash has only the weights."""
KIND = "kind-"
"""Prefix of the parts that say what share of the entries of one kind was right; they are reported
and do not pay."""
_SET_WORTH = 0.75
"""Of a group of boxes or a list with several choices: more than one option, less than a text."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What one field should have received."""

    field: Field
    gold: Canonical
    weight: float
    """What it pays; 0 where an untouched form is right already, or where nothing else could be
    sent."""
    kept: bool
    """Whether it should stay as it was."""
    untouched: Canonical


def expected(view: FormView, values: Mapping[str, Value]) -> tuple[Expected, ...]:
    """What every visible field of a form should receive for these values."""
    found = []
    for one in view.form.fields:
        if one.kind == "hidden":
            continue
        shown = is_shown(one, values)
        value = values.get(one.name) if shown else None
        nothing = canonical(one, view.untouched(one) if shown else ())
        wanted = nothing if value is None else gold(one, value)
        kept = wanted == nothing
        found.append(Expected(one, wanted, 0.0 if kept else worth(one), kept, nothing))
    return tuple(found)


def worth(one: Field) -> float:
    """What a field pays where it had to be changed: 1 less the chance that a blind guess is
    right."""
    if one.kind == "checkbox":
        return 0.0 if one.required else 0.5
    if one.kind in {"select", "radio"}:
        return 1 - 1 / len(one.options)
    if one.kind in {"checkboxes", "multiselect"}:
        return _SET_WORTH
    return 1.0


def needed(asked: Sequence[Expected], pages: int) -> int:
    """How many actions a form takes: going there, one for each entry that was told, and a button a
    page.

    What is right already counts as well, because whoever writes a plan has not seen the page.
    """
    entries = 0
    for one in asked:
        if not one.kept or one.gold or one.field.kind == "checkbox":
            entries += max(1, len(one.gold)) if isinstance(one.gold, tuple) else 1
    return 1 + entries + pages


def wasted(plan: Plan, execution: Execution, need: int) -> int:
    """How many actions of a plan came to nothing.

    These are: actions that failed (no such control or option, not of this kind, a form that was not
    sent) or were never carried out, lines that claim to be steps and are not understood, forms that
    the server refused, and whatever succeeds beyond use: more entries than the form takes actions,
    or more of the rest (clicks into a field, keys, waiting) than that.
    """
    done = [
        action
        for action, attempt in zip(plan.actions, execution.attempts, strict=False)
        if attempt.status == "ok"
    ]
    entries = sum(isinstance(action, Fill) for action in done)
    refused = sum(bool(receipt.errors) for receipt in execution.receipts)
    beyond = max(0, entries - need) + max(0, len(done) - entries + plan.idle - need)
    return len(plan.actions) - len(done) + plan.unread + refused + beyond


def score(asked: Sequence[Expected], plan: Plan, execution: Execution, pages: int = 1) -> Score:
    """Judge what the server received.

    Args:
        asked: what it should have received.
        plan: what was carried out.
        execution: the facts.
        pages: of the form.

    Returns:
        The score; every part is 0 where no complete form arrived.
    """
    submission = submission_of(execution.receipts)
    values: dict[str, float | None] = {"fields": 0.0, "exact": 0.0, "clean": 0.0}
    facts = {"submitted": float(submission is not None), "kept": 0.0, "economy": 0.0}
    kinds: dict[str, list[float]] = {}
    paid = weight = 0.0
    changed, exact = 0, True
    for one in asked:
        got = _received(one, submission)
        right = submission is not None and got == one.gold
        exact = exact and right
        if one.kept:
            changed += not right
            continue
        # A prefilled text may resemble the right one; leaving it there is nothing that was entered.
        nothing = submission is None or got == one.untouched
        value = 1.0 if right else 0.0 if nothing else closeness(one, got)
        paid += one.weight * value
        weight += one.weight
        kinds.setdefault(one.field.kind, []).append(value)
    if submission is not None:
        need = needed(asked, pages)
        facts["kept"] = 1 - min(1.0, 2 * changed / max(len(asked), 1))
        facts["economy"] = 1 - min(1.0, wasted(plan, execution, need) / need)
        clean = (1 - _CHANGES_TAKE * (1 - facts["kept"])) * (
            1 - _WASTE_TAKES * (1 - facts["economy"])
        )
        values = {
            "fields": paid / weight if weight else 0.0,
            "exact": float(exact and bool(weight)),
            "clean": clean,
        }
    extra = {KIND + kind: sum(worths) / len(worths) for kind, worths in sorted(kinds.items())}
    return Score(
        total=RUBRIC.total(values), parts={**values, **facts, **extra}, rubric=RUBRIC.identity
    )


def _received(one: Expected, submission: Submission | None) -> Canonical:
    """What arrived for a field."""
    entries: Entries = {}
    if submission is not None:
        entries = submission.files if one.field.kind == "file" else submission.entries
    return canonical(one.field, entries.get(one.field.name, ()))


def closeness(one: Expected, got: Canonical) -> float:
    """What an entry that is not right is worth: sets and long texts that are mostly right pay in
    part.

    From half on: what shares half of its words, or half of its options, with the right one is still
    worth nothing.
    """
    if isinstance(one.gold, tuple):
        both, either = set(one.gold) & set(got), set(one.gold) | set(got)
        # two empty sets would be equal, and so right
        return max(0.0, 2 * len(both) / len(either) - 1)
    if one.field.kind != "textarea" or not isinstance(got, str):
        return 0.0
    mine, wanted = got.split(), one.gold.split()
    if not mine or not wanted or len(mine) > 4 * len(wanted):
        return 0.0
    return max(0.0, 2 * _in_order(mine, wanted) / (len(mine) + len(wanted)) * 2 - 1) * 0.9


def _in_order(mine: Sequence[str], wanted: Sequence[str]) -> int:
    """Length of the longest common subsequence of words: the same words in another order are
    another text."""
    row = [0] * (len(wanted) + 1)
    for word in mine:
        before = 0
        for place, other in enumerate(wanted, 1):
            before, row[place] = (
                row[place],
                before + 1 if word == other else max(row[place], row[place - 1]),
            )
    return row[-1]


# -- the rubric of the log -------------------------------------------------------------------------
# seed-v6: the rubric of the forms log's tables, for figures that are compared with them. It does
# not judge well.
#
# 0.4 for words of success on the last page, 0.4 for what the plan says that it typed, 0.2 for the
# share of its actions that raised no error. It never looks at what the server received, pays for
# sending an empty form, and pays a perfect plan no more than one that types after the form is gone:
# that is what it is here to show.

SEED_RUBRIC = Rubric(
    "forms-seed-v6",
    2,  # 1 read fewer phrasings of a plan
    parts=(
        Part("task_completion", 0.4, "the last page has words of success"),
        Part("field_accuracy", 0.4, "what the plan says that it typed resembles the right values"),
        Part("execution_completeness", 0.2, "the share of the actions that raised no error"),
    ),
)
_WORDS = (
    "successfully submitted",
    "thank you",
    "submission received",
    "form submitted",
    "success",
    "com sucesso",
)
_LONGEST = 2000
"""Characters of a text that is compared; the time that it takes grows with the square."""


def seed_score(form: Form, values: Mapping[str, Value], plan: Plan, execution: Execution) -> Score:
    """Judge a plan as version 6 of that rubric did."""
    done = list(zip(plan.actions, execution.attempts, strict=False))
    if not done:
        return SEED_RUBRIC.score(dict.fromkeys(SEED_RUBRIC.names, 0.0))
    # A click always counts as carried out, and an action on a page that is gone does, too.
    ran = [
        action
        for action, attempt in done
        if attempt.status != "refused" or not isinstance(action, Fill)
    ]
    claims = _claims(ran)
    wanted = {
        one.label: value for one in form.fields if (value := values.get(one.name)) is not None
    }
    alike = [_alike(value, claims.get(label.casefold(), [])) for label, value in wanted.items()]
    text = execution.text.casefold()
    return SEED_RUBRIC.score(
        {
            "task_completion": float(any(word in text for word in _WORDS)),
            "field_accuracy": sum(alike) / len(alike) if alike else 0.0,
            "execution_completeness": len(ran) / len(plan.actions),
        }
    )


def _claims(actions: list[Action]) -> dict[str, list[str]]:
    """What a plan says that it entered, by label."""
    claims: dict[str, list[str]] = {}
    for action in actions:
        match action:
            case Type(label, text):
                claims[label.casefold()] = [text]
            case Select(label, option) | Attach(label, option):
                claims.setdefault(label.casefold(), []).append(option)
            case Check(label, option):
                claims.setdefault(label.casefold(), []).append(option or "true")
            case _:
                pass
    return claims


def _alike(value: Value, claimed: list[str]) -> float:
    if not claimed:
        return 0.0
    if isinstance(value, bool):
        return float(value == (claimed[-1].casefold() in {"true", "yes", "sim", "on"}))
    if isinstance(value, tuple):
        mine, wanted = {_plain(text) for text in claimed}, {_plain(text) for text in value}
        return len(mine & wanted) / len(mine | wanted)
    first, second = (
        (value or "").casefold().strip()[:_LONGEST],
        claimed[-1].casefold().strip()[:_LONGEST],
    )
    if not first or not second:
        return 0.0
    return SequenceMatcher(None, first, second).ratio()


def _plain(text: str) -> str:
    return text.casefold().replace(" ", "_").strip()


# -- which fields are wrong, in words --------------------------------------------------------------

NOTHING = "(nothing)"
_MOST_REASONS = 6


def mistakes_of(asked: Sequence[Expected], execution: Execution) -> list[Mistake]:
    """Every field that is wrong; for a form that never arrived whole, what was refused instead."""
    submission = submission_of(execution.receipts)
    if submission is None:
        return [
            Mistake(what="the form", expected="sent, and accepted", received=_why_not(execution))
        ]
    return [
        Mistake(what=one.field.label, expected=_text(one.gold), received=_text(got))
        for one in asked
        if (got := _received(one, submission)) != one.gold
    ]


def _why_not(execution: Execution) -> str:
    """What the server said, else which actions failed."""
    said = [
        f"{name}: {error}"
        for receipt in execution.receipts
        for name, error in receipt.errors.items()
    ]
    failed = [
        f"action {number} {attempt.status}: {attempt.reason}".removesuffix(": ")
        for number, attempt in enumerate(execution.attempts, 1)
        if attempt.status != "ok"
    ]
    reasons = said or failed
    if not reasons:
        return (
            "nothing was sent" if execution.attempts else "no action could be read from the answer"
        )
    left = len(reasons) - _MOST_REASONS
    return "; ".join(reasons[:_MOST_REASONS]) + (f"; and {left} more" if left > 0 else "")


def _text(value: Canonical) -> str:
    return (value if isinstance(value, str) else ", ".join(value)) or NOTHING


# -- what evaluations put first --------------------------------------------------------------------

RECEIVED = Headline(
    figures=(
        Figure(key="field_accuracy", title="Field accuracy", part="fields"),
        Figure(key="exact_form_rate", title="Exact form", part="exact", rate=True),
        Figure(key="submitted_rate", title="Submitted", part="submitted", rate=True),
    ),
    stratum="form",
    breakdown="kind",
    prefix=KIND,
    limits={
        "blank": 0.05,
        "submit-only": 0.05,
        "type-after-submit": 0.05,
        "constant": 0.15,
        "shuffled-gold": 0.15,
        "spray": 0.15,
    },
)
SEED_V6 = Headline(
    figures=(
        Figure(key="claimed_accuracy", title="Claimed accuracy", part="field_accuracy"),
        Figure(key="success_text_rate", title="Success text", part="task_completion", rate=True),
        Figure(key="executed", title="Executed", part="execution_completeness"),
    ),
    stratum="form",
    note=(
        "seed-v6: the rubric of the forms log's tables, which never looks at what the server "
        "received"
    ),
)
