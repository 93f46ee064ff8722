"""Pictures of a plan."""

from environments.forms.tests.small import small_form
from plumbline_browser.chromium import MOST
from plumbline_browser.plans.actions import Plan, Submit, Type
from plumbline_forms.executors.executor import FormCase
from plumbline_forms.executors.pictures import film
from plumbline_forms.site.page import FormView


def test_a_plan_as_a_strip_of_pictures_that_keeps_its_ends():
    begun = (Type("Name", "Ada"), Type("Nothing", "x"), Type("Code", "bad"), Submit())
    lost = [Type(f"Nothing {number}", "x") for number in range(12)]
    frames = film(
        FormCase(FormView(small_form())), Plan((*begun, *lost, Type("Code", "A1"), Submit()))
    )
    captions = [frame.caption for frame in frames]
    assert len(frames) == MOST
    assert all(
        frame.image.startswith(b"\xff\xd8") and len(frame.image) < 100_000 for frame in frames
    )
    assert captions[0] == "before step 1: Type 'Ada' into the 'Name' field"
    assert captions[1].startswith("not found, nothing is called 'Nothing'; step 2")
    assert captions[2] == "before step 4: Click the Submit button"
    assert captions[3].startswith("refused, not sent, 'Code': not in the format that is asked for")
    assert captions[-3:] == [
        *(
            "before step 18: Click the Submit button",
            "after step 18: Click the Submit button",
            "the end",
        )
    ]
