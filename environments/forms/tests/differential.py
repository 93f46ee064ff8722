"""Do two executors give the same? Plans through both; what the server received is compared.

The plans are those of oracles, damaged ones, and random ones on random pages, which have what the
suite's forms lack: several forms and buttons, form owners, fieldsets, groups of options, list
boxes, all types of inputs.

python -m environments.forms.tests.differential --damaged 2000            # browser and direct
python -m environments.forms.tests.differential --executor in-page        # without navigation
python -m environments.forms.tests.differential --executor in-page --oracle 0 --damaged 0 --pages 1000
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import yaml

from environments.forms.tests.damage import damaged
from plumbline.records import Failure
from plumbline.seeds import generator
from plumbline_browser.plans.actions import (
    Action,
    Attach,
    Check,
    Click,
    Plan,
    Press,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline_forms.build import values_of
from plumbline_forms.executors.direct import DirectExecutor
from plumbline_forms.executors.executor import Execution, Executor, FormCase
from plumbline_forms.plans.oracle import elements_of, plan_for
from plumbline_forms.site.page import FormView
from plumbline_forms.site.site import ReceivedPost, Response, Site, read_body
from plumbline_forms.suite.catalogue import text
from plumbline_forms.suite.declaration import Form, FormPage
from plumbline_forms.suite.drawing import drawn
from plumbline_forms.task import FormsTask, open_executor, open_forms

DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))

NOISE = {"labels": 0.3, "stars": 0.5, "prefilled": 0.3}
FILES = frozenset({"cv.pdf", "b.png"})
_NAMES = tuple(DATA["names"])
_BUTTONS = tuple(DATA["buttons"])
_LINES = tuple(DATA["lines"])
_PICKED = tuple(DATA["picked"])
_TEXTS = tuple(DATA["texts"])
_PATTERNS = tuple(DATA["patterns"])
_OPTIONS = tuple(DATA["options"])


@dataclass(frozen=True, slots=True)
class Trial:
    """A plan and where it is carried out."""

    name: str
    case: FormCase
    plan: Plan


@dataclass(frozen=True, slots=True)
class Difference:
    """Two executors that came to different submissions, or one that broke down."""

    trial: Trial
    first: Execution | Failure
    second: Execution | Failure


def oracle_trials(task: FormsTask) -> Iterator[Trial]:
    """The oracle's plan for every example."""
    for split in task.splits:
        for example in task.examples(split):
            case = task.case_of(example)
            plan = plan_for(case.view, values_of(example.reference))
            yield Trial(f"{split}/{example.id}", case, Plan(tuple(plan)))


def damaged_trials(task: FormsTask, count: int, seed: int = 0) -> Iterator[Trial]:
    """So many damaged plans, over examples drawn again for each."""
    examples = [example for split in task.splits for example in task.examples(split)]
    for number in range(count):
        rng = generator(seed, "damaged-plan", number)
        example = examples[int(rng.integers(len(examples)))]
        case = task.case_of(example)
        actions = plan_for(case.view, values_of(example.reference))
        form = case.view.form
        plan = damaged(actions, elements_of(form), form, rng)
        yield Trial(f"damaged-{number}/{example.id}", case, Plan(plan))


@dataclass(slots=True, eq=False)
class Pages:
    """An application with a page for each view; it keeps the entries in the order in which they
    were sent."""

    html: dict[FormView, str] = field(default_factory=dict)

    def add(self, html: str) -> FormView:
        """A view of a new page."""
        form = Form(
            name="page",
            domain="any",
            title="p",
            pages=(FormPage((text("Name", drawn("whole", 1, 2)),)),),
            button="Send",
        )
        view = FormView(form)
        self.html[view] = html
        return view

    def page(self, view: FormView) -> Response:
        """See `Application`."""
        return Response(200, self.html[view].encode(), {"content-type": "text/html; charset=utf-8"})

    def take(self, view: FormView, content_type: str, body: bytes) -> ReceivedPost:
        """See `Application`."""
        entries, files = read_body(content_type, body)
        ordered, sent = (
            {f"{place} {name}": (value,) for place, (name, value) in enumerate(pairs)}
            for pairs in (entries, files)
        )
        return ReceivedPost(ordered, sent, "", self.page(view))

    def other(self, path: str) -> Response | None:
        """See `Application`."""
        return (
            Response(200, b"<p>elsewhere</p>", {"content-type": "text/html"})
            if path == "/other"
            else None
        )


def page_trials(pages: Pages, count: int, seed: int = 0) -> Iterator[Trial]:
    """So many random pages, each with a random plan."""
    for number in range(count):
        rng = generator(seed, "random-page", number)
        html = _page(rng)
        yield Trial(
            f"page-{number}\n{html}",
            FormCase(pages.add(html), FILES),
            Plan(tuple(_plan(rng, html))),
        )


def _one(rng: Any, offered: Sequence[str]) -> str:
    return offered[int(rng.integers(len(offered)))]


def _some(rng: Any, chances: dict[str, float]) -> str:
    """Attributes, each with its chance."""
    return "".join(f" {name}" for name, chance in chances.items() if rng.random() < chance)


def _page(rng: Any) -> str:
    forms = int(rng.integers(1, 4))
    parts = []
    for form in range(forms):
        inner = "".join(_part(rng, forms, 0) for _ in range(int(rng.integers(2, 7))))
        given = _some(
            rng,
            {
                "novalidate": 0.2,
                'action="/save"': 0.1,
                'action="?x=1"': 0.1,
                'action="https://example.org/"': 0.03,
                'enctype="multipart/form-data"': 0.3,
            },
        )
        method = "" if rng.random() < 0.05 else ' method="post"'
        parts.append(f'<form id="f{form}"{method}{given}>{inner}</form>')
        if rng.random() < 0.4:
            parts.append(_part(rng, forms, 0))
    language = _one(rng, ("en", "pt"))
    return (
        "<!doctype html><html "
        f'lang="{language}"><head><title>p</title></head><body>{"".join(parts)}</body></html>'
    )


def _part(rng: Any, forms: int, depth: int) -> str:
    draw = rng.random()
    if draw < 0.15 and depth < 2:
        legends = "".join(
            f"<legend>{_one(rng, _NAMES)}{_part(rng, forms, 2) if rng.random() < 0.5 else ''}</legend>"
            for _ in range(int(rng.integers(0, 3)))
        )
        inner = "".join(_part(rng, forms, depth + 1) for _ in range(int(rng.integers(1, 4))))
        before = _part(rng, forms, 2) if rng.random() < 0.2 else ""
        return f"<fieldset{_some(rng, {'disabled': 0.4, 'hidden': 0.05})}>{before}{legends}{inner}</fieldset>"
    if draw < 0.35:
        return _button(rng, forms)
    return f"<div{_some(rng, {'hidden': 0.03})}>{_control(rng, forms)}</div>"


def _control(rng: Any, forms: int) -> str:
    label = _one(rng, _NAMES)
    name = (
        ""
        if rng.random() < 0.05
        else label.lower()
        if rng.random() < 0.9
        else _one(rng, ("a", "action"))
    )
    common = f' name="{name}"' + _some(rng, {"disabled": 0.08, "required": 0.15, "readonly": 0.05})
    if rng.random() < 0.1:
        common += f' form="{_one(rng, [f"f{place}" for place in range(forms)] + ["", "nothing"])}"'
    kind = _one(
        rng,
        (
            "line",
            "line",
            "line",
            "picked",
            "textarea",
            "box",
            "radio",
            "select",
            "select",
            "hidden",
            "file",
        ),
    )
    value = f' value="{escape(_one(rng, _TEXTS))}"' if rng.random() < 0.4 else ""
    chosen = _some(rng, {"checked": 0.3})
    if kind == "line":
        limits = _some(
            rng,
            {'minlength="3"': 0.1, 'maxlength="5"': 0.1, "multiple": 0.1, 'dirname="way"': 0.15},
        )
        limits += _some(rng, {'dir="auto"': 0.1, 'dir="rtl"': 0.1})
        if rng.random() < 0.2:
            limits += f' pattern="{escape(_one(rng, _PATTERNS))}"'
        return f'<label>{label} <input type="{_one(rng, _LINES)}"{common}{value}{limits}></label>'
    if kind == "picked":
        kind, limits = (
            _one(rng, _PICKED),
            _some(rng, {'min="3"': 0.1, 'max="8"': 0.1, 'step="5"': 0.2}),
        )
        return f'<label>{label} <input type="{kind}"{common}{value}{limits}></label>'
    if kind == "textarea":
        return f"<label>{label} <textarea{common}>{escape(_one(rng, _TEXTS))}</textarea></label>"
    if kind == "box":
        return f'<label><input type="checkbox"{common}{value}{chosen}> {label}</label>'
    if kind == "radio":
        return "".join(
            (
                f'<label><input type="radio"{common} '
                f'value="{place}"{_some(rng, {"checked": 0.3})}> '
                f"{option}</label>"
            )
            for place, option in enumerate(("Post", "Pick up", "Mail"))
        )
    if kind == "select":
        shape = _some(rng, {"multiple": 0.2, 'size="3"': 0.2})
        return f"<label>{label} <select{common}{shape}>{_options(rng)}</select></label>"
    common += value if kind == "hidden" else _some(rng, {"multiple": 0.3})
    return f'<label>{label} <input type="{kind}"{common}></label>'


def _options(rng: Any) -> str:
    def option() -> str:
        given = _some(
            rng,
            {
                "disabled": 0.15,
                "selected": 0.15,
                'value=""': 0.1,
                'value="v"': 0.2,
                'label="Violet"': 0.1,
            },
        )
        return f"<option{given}>{_one(rng, _OPTIONS)}</option>"

    parts = []
    for _ in range(int(rng.integers(0, 5))):
        if rng.random() < 0.3:
            inner = option() + option()
            parts.append(f'<optgroup label="g"{_some(rng, {"disabled": 0.4})}>{inner}</optgroup>')
        else:
            parts.append(option())
    return "".join(parts)


def _button(rng: Any, forms: int) -> str:
    label = _one(rng, _BUTTONS)
    given = _some(
        rng,
        {
            'name="do"': 0.5,
            'value="1"': 0.4,
            "disabled": 0.1,
            "formnovalidate": 0.2,
            'formaction="/save"': 0.05,
            'formmethod="post"': 0.1,
            'formmethod="get"': 0.03,
            'formenctype="multipart/form-data"': 0.1,
        },
    )
    if rng.random() < 0.15:
        given += f' form="{_one(rng, [f"f{place}" for place in range(forms)] + ["nothing"])}"'
    draw = rng.random()
    if draw < 0.4:
        kind = _one(rng, ("submit", "submit", "reset", "button"))
        given = given.replace(' value="1"', "")
        return f'<input type="{kind}" value="{label}"{given}>'
    kind = _one(rng, ("", "", ' type="submit"', ' type="reset"', ' type="button"', ' type="menu"'))
    return (
        f'<button{kind}{given} aria-label="{label}">*</button>'
        if draw < 0.5
        else f"<button{kind}{given}>{label}</button>"
    )


def _plan(rng: Any, html: str) -> Iterator[Action]:
    names = [name for name in _NAMES if f">{name} <" in html or f"> {name}<" in html] or _NAMES
    buttons = [name for name in _BUTTONS if f">{name}<" in html or f'"{name}"' in html] or _BUTTONS
    for _ in range(int(rng.integers(0, 7))):
        label, draw = _one(rng, names), rng.random()
        if draw < 0.45:
            yield Type(label, _one(rng, _TEXTS), clear=bool(rng.random() < 0.8))
        elif draw < 0.6:
            yield Select(label, _one(rng, (*_OPTIONS, "Violet", "v", "Pick up")))
        elif draw < 0.8:
            yield (Check, Uncheck)[int(rng.integers(2))](_one(rng, (label, "Pick up", "Mail")))
        elif draw < 0.85:
            yield Attach(label, "cv.pdf")
        elif draw < 0.9:
            yield Press("Enter")
        else:
            yield Click(_one(rng, (*names, *buttons)))
    yield Submit(_one(rng, (*buttons, "")))


def compare(
    first: Executor, second: Executor, trials: Iterable[Trial], *, attempts: bool = False
) -> Iterator[Difference | None]:
    """For each trial, None where both give the same submissions: every one, in order, with its
    answer.

    Args:
        first: an executor.
        second: another one.
        trials: what both carry out.
        attempts: whether what became of each action is compared, too.
    """
    for trial in trials:
        (one,), (other,) = first.run(trial.case, [trial.plan]), second.run(trial.case, [trial.plan])
        alike = (
            isinstance(one, Execution)
            and isinstance(other, Execution)
            and one.receipts == other.receipts
        )
        if attempts and isinstance(one, Execution) and isinstance(other, Execution):
            alike = alike and one.attempts == other.attempts
        yield None if alike else Difference(trial, one, other)


def say(line: str = "") -> None:
    """A line on standard output."""
    sys.stdout.write(line + "\n")


def main() -> None:
    """The command; exits with 1 where more than one plan in a hundred differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--executor", choices=("browser", "in-page"), default="browser")
    parser.add_argument("--damaged", type=int, default=2000)
    parser.add_argument("--oracle", type=int, default=None, help="only so many oracle plans")
    parser.add_argument("--pages", type=int, default=1000, help="random pages")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=5, help="differences to print")
    options = parser.parse_args()
    task = open_forms({"noise": NOISE}, Path(), lambda *_: None)
    pages = Pages()
    both = (task.executor, open_executor(options.executor))
    foreign = (DirectExecutor(Site(pages)), open_executor(options.executor, Site(pages)))
    worst = 0.0
    try:
        for kind, trials in (
            ("oracle", list(oracle_trials(task))[: options.oracle]),
            ("damaged", list(damaged_trials(task, options.damaged, options.seed))),
            ("pages", list(page_trials(pages, options.pages, options.seed))),
        ):
            found: list[Difference] = []
            executors = foreign if kind == "pages" else both
            for number, difference in enumerate(
                compare(*executors, trials, attempts=kind == "pages"), 1
            ):
                if difference is not None:
                    found.append(difference)
                    if len(found) <= options.show:
                        _print(difference)
                if number % 100 == 0:
                    sys.stderr.write(f"\r{kind} {number} of {len(trials)}, {len(found)} differ")
            sys.stderr.write("\r")
            say(
                f"{kind}: {len(found)} of {len(trials)} plans differ between direct and "
                f"{options.executor}"
            )
            worst = max(worst, len(found) / max(len(trials), 1))
    finally:
        both[1].close()
        foreign[1].close()
    sys.exit(worst > 0.01)


def _print(difference: Difference) -> None:
    say(difference.trial.name)
    for action in difference.trial.plan.actions:
        say(f"    {action}")
    for name, result in (("direct", difference.first), ("browser", difference.second)):
        if isinstance(result, Execution):
            refused = [attempt for attempt in result.attempts if attempt.status != "ok"]
            say(f"  {name}: {refused}")
            for receipt in result.receipts:
                say(f"      {receipt}")
        else:
            say(f"  {name}: {result}")


if __name__ == "__main__":
    main()
