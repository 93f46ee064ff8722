"""A form of the tests' own with one control of every kind, and a user at it."""

from plumbline_browser.plans.actions import Plan, Submit
from plumbline_forms.executors.direct import DirectExecutor
from plumbline_forms.executors.executor import FormCase
from plumbline_forms.site.page import FormView
from plumbline_forms.suite.catalogue import (
    area,
    box,
    boxes,
    date,
    email,
    file,
    hidden,
    multiselect,
    number,
    password,
    radio,
    select,
    shown,
    tel,
    text,
    time,
    url,
)
from plumbline_forms.suite.declaration import Form, FormPage, Rule
from plumbline_forms.suite.drawing import drawn

ANY = drawn("whole", 1, 2)
FILES = frozenset({"cv.pdf", "b.pdf", "photo.png"})


def small_form(*, language="en", rules=(), **changes):
    fields = {
        "token": hidden("token", "t-1"),
        "name": text("Name", ANY, maxlength=10),
        "code": text("Code", ANY, pattern="[A-Z][0-9]", hint="a letter and a digit"),
        "long": text("Long word", ANY, minlength=4),
        "notes": area("Notes", ANY, maxlength=12),
        "mail": email("Email", ANY, name="mail"),
        "phone": tel("Phone", ANY, named_by="placeholder"),
        "site": url("Site", ANY, named_by="aria"),
        "count": number("Count", ANY, minimum="2", maximum="10", step="2"),
        "start": date("Start", ANY, minimum="2020-01-01"),
        "end": date("End", ANY),
        "hour": time("Hour", ANY, named_by="name"),
        "secret": password("Secret", ANY, named_by="wrap"),
        "colour": select("Colour", "r=Red|b=Dark blue|g=Green"),
        "size": select("Size", "s=Small|l=Large", blank=None),
        "langs": multiselect("Languages", "en=English|pt=Portuguese|de=German", name="langs"),
        "way": radio("Way", "Post|Pick up", named_by="heading"),
        "news": box("News"),
        "days": boxes("Days", "mo=Monday|tu=Tuesday|we=Wednesday"),
        "cv": file("CV", ANY, accept=(".pdf",)),
        "pics": file("Pictures", ANY, accept=(".png", ".pdf"), multiple=True, name="pics"),
        "why": text("Why news", ANY, shown_if=shown("news"), required=True, name="why"),
    }
    fields |= changes
    return Form(
        name="small",
        domain="test",
        title="Small <form> & co",
        pages=(FormPage(tuple(one for one in fields.values() if one is not None)),),
        button="Go!",
        rules=rules,
        language=language,
    )


def visit(form, *actions, view=None, submit=True, files=FILES):
    """Carry out actions and send the form: the execution, and what arrived (None where nothing
    did)."""
    actions = (*actions, Submit()) if submit else actions
    (result,) = DirectExecutor().run(
        FormCase(view or FormView(form), files), [Plan(tuple(actions))]
    )
    arrived = (
        {**result.receipts[-1].entries, **result.receipts[-1].files} if result.receipts else None
    )
    return result, arrived


def ordered_form():
    return small_form(rules=(Rule("in_order", ("start", "end")),))


def form_of(*fields, **more):
    """A form of one page with these fields."""
    return Form(
        **{
            "name": "f",
            "domain": "d",
            "title": "F",
            "pages": (FormPage(fields),),
            "button": "Go",
            **more,
        }
    )
