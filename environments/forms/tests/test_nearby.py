"""Labels by place: what a person reads above a control that no label is tied to."""

import pytest

from plumbline_forms.executors.page import parse_page


def labels(inner):
    page = parse_page(f"<html><body><h1>Title</h1><form>{inner}</form></body></html>".encode())
    return [(one.name, one.label, one.group) for one in page.controls]


@pytest.mark.parametrize(
    ("inner", "label"),
    [
        ("<h4>Colour</h4><div><input name=a></div>", "Colour"),
        ("<div><label>Colour *</label></div><div><p>why</p><input name=a></div>", ""),
        ("<label>Colour</label> <span>any</span> <input name=a>", "Colour"),
        ("<input name=a>", ""),  # the page's own title is no label
        ("<label for=elsewhere>Colour</label><input name=a>", ""),
        ("<h4>Colour</h4><input name=a placeholder=Shade>", "Shade"),
        ("<h4>Colour</h4><input type=hidden name=h><input name=a>", "Colour"),
    ],
)
def test_a_control_is_called_by_what_stands_right_before_it(inner, label):
    assert labels(inner)[-1][1] == label


def test_what_stands_before_another_control_is_that_ones():
    assert labels("<h4>One</h4><input name=a><input name=b>") == [("a", "One", ""), ("b", "", "")]


def test_a_group_has_one_label():
    box = "<div><input type=checkbox id={0} name=g value={0}><label for={0}>{0}</label></div>"
    inner = "<h3>Part</h3><label>Pick</label>" + "".join(box.format(key) for key in "xyz")
    assert labels(inner) == [("g", "x", "Pick"), ("g", "y", "Pick"), ("g", "z", "Pick")]


def test_a_single_box_is_no_group():
    inner = "<h3>Consent</h3><input type=checkbox id=c name=c><label for=c>I agree</label>"
    assert labels(inner) == [("c", "I agree", "")]


def test_a_legend_comes_first():
    inner = (
        "<h3>Part</h3><fieldset><legend>Way</legend><input type=radio name=r><input type=radio "
        "name=r></fieldset>"
    )
    assert {group for _, _, group in labels(inner)} == {"Way"}
