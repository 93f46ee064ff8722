"""A plan as a strip of pictures, for people who want to see what went wrong."""

from typing import TYPE_CHECKING

from plumbline.records import Frame
from plumbline_forms.driver.film import clear_breakdowns, frame, shortened
from plumbline_forms.executors.browser import served
from plumbline_forms.executors.browser.course import Course
from plumbline_forms.executors.browser.executor import BrowserExecutor
from plumbline_forms.executors.executor import Attempt, Case, Limits
from plumbline_forms.plans.actions import Action, Navigate, Plan, Press, Submit
from plumbline_forms.plans.write import write_step
from plumbline_forms.site.site import Site

if TYPE_CHECKING:
    from playwright.async_api import Page, ViewportSize

_SIZE: "ViewportSize" = {"width": 720, "height": 540}
_LOADS = (Submit, Press, Navigate)


def film(case: Case, plan: Plan, site: Site | None = None) -> list[Frame]:
    """Carry out a plan in a real browser, with pictures: of the page as it was found, before and after everything that
    loads another one, of every action that was refused, and of the end.

    Args:
        case: the form.
        plan: what to do.
        site: where the form is; a new one where it is left out.

    Raises:
        RecipeError: Playwright or a Chromium is missing.
        PlumblineError: the browser broke down.
    """
    executor = BrowserExecutor(site, Limits(seconds=60), pages=1)
    try:
        with clear_breakdowns(executor.broken):
            return executor.use(lambda page, address: _film(page, address, executor.site, case, plan, executor.limits))
    finally:
        executor.close()


async def _film(page: "Page", address: str, site: Site, case: Case, plan: Plan, limits: Limits) -> list[Frame]:
    frames: list[Frame] = []
    await page.set_viewport_size(_SIZE)

    async def shoot(caption: str) -> None:
        image = await page.screenshot(type="jpeg", quality=45, full_page=True)
        frames.append(frame(caption, image))

    async def watch(number: int, action: Action, attempt: Attempt | None) -> None:
        step = f"step {number}: {write_step(action, case.view.form.language)}"
        if attempt is None:
            if number == 1 or isinstance(action, _LOADS):
                await shoot(f"before {step}")
        elif attempt.status != "ok":
            await shoot(f"{attempt.status}, {attempt.reason}; {step}")
        elif isinstance(action, _LOADS):
            await shoot(f"after {step}")

    await served.carry_out(page, site, address, case, Course(plan, limits), watch)
    await shoot("the end")
    return shortened(frames)
