"""Two executors, one semantics: what the server receives is the same, for right plans and damaged
ones."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from environments.forms.tests.differential import NOISE, damaged_trials, oracle_trials, page_trials
from environments.forms.tests.pages import CASES, carry_out
from environments.forms.tests.small import FILES, ordered_form, small_form
from plumbline.records import Failure
from plumbline_browser.plans.actions import (
    Attach,
    Check,
    Click,
    Done,
    Navigate,
    Plan,
    Press,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline_forms.executors.direct import DirectExecutor
from plumbline_forms.executors.executor import FormCase
from plumbline_forms.site.page import FormView
from plumbline_forms.task import open_forms

COUNTS = {"browser": (5, 15, 10), "in-page": (20, 60, 30)}
"""Oracle plans, damaged plans and random pages here; docs/research/forms.md has the figures of many
more."""


@pytest.fixture(scope="module")
def task():
    return open_forms({"noise": NOISE}, Path(), lambda *_: None)


def test_the_servers_receipts_are_the_same(browser, task, differing):
    oracle, damaged, _ = COUNTS[browser.name]
    trials = [
        *list(oracle_trials(task))[:: 1250 // oracle],
        *damaged_trials(task, damaged, seed=11),
    ]
    differences = differing(task.executor, browser, trials)
    assert not differences, differences[0]


def test_random_pages_are_sent_alike(foreign, differing):
    executor, direct, pages = foreign
    trials = list(page_trials(pages, COUNTS[executor.name][2], seed=3))
    differences = differing(direct, executor, trials, attempts=True)
    assert not differences, differences[0]


def test_pages_are_sent_as_html_says(foreign):
    executor, direct, pages = foreign
    with ThreadPoolExecutor(executor.at_once) as threads:
        found = dict(
            zip(
                CASES,
                threads.map(lambda name: carry_out(executor, pages, name), CASES),
                strict=True,
            )
        )
    assert {name: got for name, got in found.items() if got[0] != CASES[name][2]} == {}
    assert {name: got for name, got in found.items() if got != carry_out(direct, pages, name)} == {}


ACTIONS = (
    [Type("Name", "twelve letters and more")],
    [Type("Name", "😀" * 8)],
    [Type("Name", "one\ntwo")],
    [Type("Notes", "one\r\ntwo\nthree")],
    [Type("Long word", "abc")],
    [Type("Long word", "abcd"), Type("Long word", "efg", clear=False)],
    [Type("Code", "bad")],
    [Type("Email", " someone@example.org ")],
    [Type("Email", "someone")],
    [Type("Site", "https://example.org/ä")],
    [Type("Count", "7")],
    [Type("Count", "1,000")],
    [Type("Count", "many")],
    [Type("Count", "2"), Type("Count", "x", clear=False)],
    [Type("Start", "April 3, 2026"), Type("End", "03/05/2026")],
    [Type("Start", "2019-12-31")],
    [Type("Hour", "2:30 PM")],
    [Type("Secret", "s'e\"c\\ret")],
    [Select("Colour", "Dark blue"), Select("Size", "l")],
    [
        Select("Languages", "English"),
        Select("Languages", "German"),
        Uncheck("Languages", "English"),
    ],
    [Select("Way", "Pick up"), Check("Way", "Post")],
    [
        Check("Days", "Monday"),
        Check("Days", "Wednesday"),
        Uncheck("Days", "Monday"),
        Click("Tuesday"),
    ],
    [Check("News")],
    [Check("News"), Type("Why news", "because"), Uncheck("News")],
    [Click("News"), Type("Why news", "because")],
    [
        Attach("CV", "cv.pdf"),
        Attach("CV", "b.pdf"),
        Attach("Pictures", "photo.png"),
        Attach("Pictures", "b.pdf"),
    ],
    [Attach("CV", "/etc/passwd")],
    [Type("Name", "a"), Press("Enter")],
    [Type("Notes", "a"), Press("Enter"), Type("Notes", "b", clear=False)],
    [Submit("Go!"), Type("Name", "too late")],
    [Type("Name", "gone"), Navigate("http://127.0.0.1:5050/test/small")],
    [Navigate("http://example.org/"), Navigate("file:///etc/passwd"), Type("Name", "still here")],
    [Done("done"), Type("Name", "never")],
    [],
)


def test_every_kind_of_action(browser):
    """The attempts, too: a second one reads the reasons."""
    case, plans = (
        FormCase(FormView(small_form()), FILES),
        [Plan((*actions, Submit())) for actions in ACTIONS],
    )
    found = zip(plans, DirectExecutor().run(case, plans), browser.run(case, plans), strict=True)
    wrong = [
        (plan, wanted, got)
        for plan, wanted, got in found
        if isinstance(got, Failure)
        or (got.receipts, got.attempts, got.text) != (wanted.receipts, wanted.attempts, wanted.text)
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_errors_of_the_server_come_back_and_can_be_corrected(browser):
    plan = Plan(
        (
            Type("Start", "2026-05-02"),
            Type("End", "2026-05-01"),
            Submit(),
            Type("End", "2026-05-03"),
            Submit(),
        )
    )
    (got,) = browser.run(FormCase(FormView(ordered_form())), [plan])
    assert [bool(receipt.errors) for receipt in got.receipts] == [True, False]
    assert got.receipts[1].complete
    assert (
        got.receipts == DirectExecutor().run(FormCase(FormView(ordered_form())), [plan])[0].receipts
    )


def test_plans_of_a_group_do_not_see_one_another(browser):
    case = FormCase(FormView(small_form()), FILES)
    plans = [Plan((Type("Name", f"n{number}"), Check("News"), Submit())) for number in range(6)] + [
        Plan((Submit(),))
    ]
    results = browser.run(case, plans)
    assert not any(isinstance(result, Failure) for result in results)
    # A ticked box shows a required field, so the six are not sent; the last, untouched one is.
    assert [len(result.receipts) for result in results] == [0] * 6 + [1]
    plans = [Plan((Type("Name", f"n{number}"), Submit())) for number in range(6)]
    assert [one.receipts[0].entries["name"] for one in browser.run(case, plans)] == [
        (f"n{n}",) for n in range(6)
    ]
    assert browser.site.open_episodes == 0
