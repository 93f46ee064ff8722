"""Pages as a plan leaves them: the values are there, and nothing in them runs, loads or sends."""

import pytest
from selectolax.lexbor import LexborHTMLParser

from environments.forms.tests.small import ANY, FILES, small_form
from plumbline_browser.plans.actions import Attach, Check, Navigate, Plan, Select, Type, Uncheck
from plumbline_forms.executors.direct import DirectExecutor
from plumbline_forms.executors.executor import FormCase
from plumbline_forms.executors.pictures import MOST, filled
from plumbline_forms.site.page import FormView
from plumbline_forms.site.site import submission_of
from plumbline_forms.suite.catalogue import area

HOSTILE = "\"><img src=x onerror=alert(1)></textarea></script><script>alert(1)</script>'&\0\ud800"


@pytest.mark.parametrize("split", ["train", "held-out-forms"])
def test_the_last_page_before_sending_holds_what_is_sent(forms, split):
    """By the page alone: what a parser finds in the controls is what the server received."""
    for example in forms.examples(split)[::41][:10]:
        pages = forms.render_pages(example, forms.demonstration(example, 0))
        (execution,) = forms.executor.run(forms.case_of(example), [_plan(forms, example)])
        received = submission_of(execution.receipts).entries
        assert len(pages) == len(forms.view_of(example).form.pages) + 1  # and the receipt
        held = {}
        for page in pages[:-1]:
            for node in LexborHTMLParser(page).css("input,textarea,select"):
                held.setdefault(node.attributes.get("name"), []).extend(_held(node))
        for name, values in received.items():
            assert [" ".join(one.split()) for one in held[name]] == [
                " ".join(one.split()) for one in values
            ], name


def _plan(forms, example):
    from plumbline_forms.plans.agent import read_plan
    from plumbline_forms.plans.oracle import elements_of

    return read_plan(forms.demonstration(example, 0), elements_of(forms.view_of(example).form))


def _held(node):
    attributes = node.attributes
    if any(parent.tag == "fieldset" and "hidden" in parent.attributes for parent in _parents(node)):
        return []
    if node.tag == "select":
        return [
            one.attributes["value"] for one in node.css("option") if "selected" in one.attributes
        ]
    if attributes.get("type") in {"checkbox", "radio"}:
        return [attributes["value"]] if "checked" in attributes else []
    return [node.text() if node.tag == "textarea" else attributes.get("value") or ""]


def _parents(node):
    while node.parent is not None:
        node = node.parent
        yield node


def test_hostile_values_stay_text_and_pages_do_nothing():
    view = FormView(small_form(notes=area("Notes", ANY)))
    actions = (
        Type("Long word", HOSTILE),
        Type("Notes", HOSTILE),
        Select("Size", HOSTILE),
        Attach("CV", "cv.pdf"),
    )
    page = filled(FormCase(view, FILES), Plan(actions))[0]
    tree = LexborHTMLParser(page)
    assert not tree.css("script,img,style,link,iframe,[onerror],[src],[action],[href]")
    assert "cv.pdf" in tree.css_first("form").text()
    for value in (
        tree.css_first("input[name^=long]").attributes["value"],
        tree.css_first("textarea").text(),
    ):
        assert "<img src=x onerror=alert(1)></textarea></script><script>alert(1)</script>" in value


def test_a_page_that_was_only_opened_again_is_shown_once_and_a_long_plan_is_cut():
    case = FormCase(FormView(small_form()))
    assert len(filled(case, Plan((Navigate("/test/small"), Type("Name", "Ada"))))) == 1
    assert len(filled(case, Plan(()))) == 1
    many = [Type("Name", "Ada"), Navigate("/test/small")] * 20
    assert len(DirectExecutor().visits(case, Plan(tuple(many)))) == 21
    assert len(filled(case, Plan(tuple(many)))) == MOST


def test_a_box_that_is_unticked_is_not_ticked():
    case = FormCase(FormView(small_form()))
    ticked, unticked = (filled(case, Plan((one("News"),)))[0] for one in (Check, Uncheck))
    assert ticked.count("checked") == unticked.count("checked") + 1
