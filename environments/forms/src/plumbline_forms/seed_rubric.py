"""seed-v6: the rubric of the forms log's tables, for figures that are compared with them. It does not judge well.

0.4 for words of success on the last page, 0.4 for what the plan says that it typed, 0.2 for the share of its actions
that raised no error. It never looks at what the server received, pays for sending an empty form, and pays a perfect
plan no more than one that types after the form is gone: that is what it is here to show.
"""

from collections.abc import Mapping
from difflib import SequenceMatcher

from plumbline.records import Score
from plumbline.tasks.rubric import Part, Rubric
from plumbline_forms.executors.executor import Attempt, Execution
from plumbline_forms.plans.actions import Action, Attach, Check, Fill, Plan, Select, Type
from plumbline_forms.suite.declaration import Form, Value

SEED_RUBRIC = Rubric(
    "forms-seed-v6",
    2,  # 1 read fewer phrasings of a plan
    parts=(
        Part("task_completion", 0.4, "the last page has words of success"),
        Part("field_accuracy", 0.4, "what the plan says that it typed resembles the right values"),
        Part("execution_completeness", 0.2, "the share of the actions that raised no error"),
    ),
)
_WORDS = ("successfully submitted", "thank you", "submission received", "form submitted", "success", "com sucesso")
_LONGEST = 2000
"""Characters of a text that is compared; the time that it takes grows with the square."""


def score(form: Form, values: Mapping[str, Value], plan: Plan, execution: Execution) -> Score:
    """Judge a plan as version 6 of that rubric did."""
    done = list(zip(plan.actions, execution.attempts, strict=False))
    if not done:
        return SEED_RUBRIC.score(dict.fromkeys(SEED_RUBRIC.names, 0.0))
    ran = [action for action, attempt in done if _ran(action, attempt)]
    claims = _claims(ran)
    wanted = {one.label: value for one in form.fields if (value := values.get(one.name)) is not None}
    alike = [_alike(value, claims.get(label.casefold(), [])) for label, value in wanted.items()]
    text = execution.text.casefold()
    return SEED_RUBRIC.score(
        {
            "task_completion": float(any(word in text for word in _WORDS)),
            "field_accuracy": sum(alike) / len(alike) if alike else 0.0,
            "execution_completeness": len(ran) / len(plan.actions),
        }
    )


def _ran(action: Action, attempt: Attempt) -> bool:
    """Whether an action counts as carried out: a click always, and an action on a page that is gone, too."""
    return attempt.status != "refused" or not isinstance(action, Fill)


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
    first, second = (value or "").casefold().strip()[:_LONGEST], claimed[-1].casefold().strip()[:_LONGEST]
    if not first or not second:
        return 0.0
    return SequenceMatcher(None, first, second).ratio()


def _plain(text: str) -> str:
    return text.casefold().replace(" ", "_").strip()
