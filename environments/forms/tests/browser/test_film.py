"""Pictures of a plan."""

from environments.forms.tests.small import small_form
from plumbline_forms.driver.chromium import MOST
from plumbline_forms.executors.executor import FormCase
from plumbline_forms.executors.pictures import film
from plumbline_forms.plans.actions import Plan, Submit, Type
from plumbline_forms.site.page import FormView


def test_a_plan_as_a_strip_of_pictures():
    plan = Plan(
        (Type("Name", "Ada"), Type("Nothing", "x"), Type("Code", "bad"), Submit(), Type("Code", "A1"), Submit())
    )
    frames = film(FormCase(FormView(small_form())), plan)
    captions = [frame.caption for frame in frames]
    assert all(frame.image.startswith(b"\xff\xd8") and len(frame.image) < 100_000 for frame in frames)
    assert captions[0] == "before step 1: Type 'Ada' into the 'Name' field"
    assert captions[1].startswith("not found, nothing is called 'Nothing'; step 2")
    assert captions[2] == "before step 4: Click the Submit button"
    assert captions[3].startswith("refused, not sent, 'Code': not in the format that is asked for")
    assert captions[-2:] == ["after step 6: Click the Submit button", "the end"]


def test_a_long_strip_keeps_its_ends():
    frames = film(FormCase(FormView(small_form())), Plan(tuple(Type(f"Nothing {n}", "x") for n in range(20))))
    assert len(frames) == MOST
    assert frames[-1].caption == "the end"
