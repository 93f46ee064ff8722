"""Pictures of a plan."""

import re

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
    assert re.match("before step 1: .*'Ada'", captions[0])
    assert captions[1].startswith("not found, ")
    assert "'Nothing'; step 2" in captions[1]
    assert captions[2].startswith("before step 4: ")
    assert re.match("refused, .*'Code': ", captions[3])
    ends = [caption.partition(":")[0] for caption in captions[-3:]]
    assert ends == ["before step 18", "after step 18", "the end"]
