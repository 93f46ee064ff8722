"""A plan to be looked at: the pages as it leaves them, and a strip of pictures. Nothing in the
pages does anything."""

from itertools import pairwise
from typing import TYPE_CHECKING

from selectolax.lexbor import LexborHTMLParser, LexborNode

from plumbline.records import Frame
from plumbline_browser.chromium import clear_breakdowns, frame, shortened
from plumbline_browser.plans.actions import Action, Navigate, Plan, Press, Submit
from plumbline_browser.plans.writer import write_step
from plumbline_forms.executors.browser import BrowserExecutor, PlanRun, on_the_site
from plumbline_forms.executors.direct import DirectExecutor, Visit
from plumbline_forms.executors.executor import Attempt, FormCase
from plumbline_forms.executors.page import Control, control_nodes
from plumbline_forms.site.site import Site

if TYPE_CHECKING:
    from playwright.async_api import Page, ViewportSize


# -- pages as a plan leaves them -------------------------------------------------------------------

MOST = 12
"""Pages of one plan; what is between the first ones and the last is left out where there would be
more."""
_ACTIVE = "script,style,link,meta,base,iframe,frame,object,embed,img,picture,svg,video,audio,template,noscript"
_NAMES = """accept aria-hidden aria-label aria-labelledby checked class cols colspan disabled for hidden id label lang
    max maxlength min minlength multiple name placeholder readonly required role rows rowspan selected step title type
    value"""
_KEPT = frozenset(_NAMES.split())
"""Attributes that say how a page looks or what it holds; all others run, load or send something."""


def filled(case: FormCase, plan: Plan, site: Site | None = None) -> list[str]:
    """Carry out a plan directly, and show each page that it came to with what its controls held
    when it was left.

    Args:
        case: the form.
        plan: what to do.
        site: where the form is; a new one where it is left out.

    Returns:
        HTML of the pages' bodies. All texts are escaped; scripts, styles, links, and whatever loads
        or sends are gone.
    """
    visits = DirectExecutor(site).visits(case, plan)
    # Plans begin by opening the page that they are at.
    again = [
        one is two for (_, one), (_, two) in pairwise((body, visit.model) for body, visit in visits)
    ]
    visits = [
        each
        for each, anew in zip(visits, [*again, False], strict=True)
        if not anew or each[1].last is not None
    ]
    if len(visits) > MOST:
        visits = [*visits[: MOST // 2], *visits[-(MOST - MOST // 2) :]]
    return [_page(body, visit) for body, visit in visits]


def _page(html: bytes, visit: Visit) -> str:
    tree = LexborHTMLParser(html.decode("utf-8", "replace"))
    for node in tree.css(_ACTIVE):
        node.decompose()
    for place, part in enumerate(tree.css("fieldset[data-shown-if]")):
        for name in ("hidden", "disabled"):
            _mark(part, name, on=not visit.shows(place))
    for node, control in zip(control_nodes(tree), visit.now, strict=True):
        _put(node, control)
    if tree.body is None:
        return ""
    for node in tree.body.css("*"):
        for name in node.attributes.keys() - _KEPT:
            del node.attrs[name]
    return "".join(child.html or "" for child in tree.body.iter(include_text=True))


def _put(node: LexborNode, control: Control) -> None:
    """Write what a control holds into its element, as its default."""
    if control.kind in {"checkbox", "radio"}:
        _mark(node, "checked", on=control.checked)
    elif control.kind in {"select", "multiselect"}:
        for place, option in enumerate(node.css("option")):
            _mark(option, "selected", on=place in control.chosen)
    elif control.kind == "file":
        if control.files:
            node.insert_after(" " + ", ".join(control.files))
    elif control.kind == "textarea":
        for child in list(node.iter(include_text=True)):
            child.decompose()
        node.insert_child("\n" + _clean(control.value))  # a parser drops the first line break
    elif control.is_typed:
        node.attrs["value"] = _clean(control.value)


def _mark(node: LexborNode, name: str, *, on: bool) -> None:
    if on:
        node.attrs[name] = ""
    elif name in node.attributes:
        del node.attrs[name]


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "")


# -- a strip of pictures ---------------------------------------------------------------------------

_SIZE: "ViewportSize" = {"width": 720, "height": 540}
_LOADS = (Submit, Press, Navigate)


def film(case: FormCase, plan: Plan, site: Site | None = None) -> list[Frame]:
    """Carry out a plan in a real browser, with pictures: of the page as it was found, before and
    after everything that loads another one, of every action that was refused, and of the end.

    Args:
        case: the form.
        plan: what to do.
        site: where the form is; a new one where it is left out.

    Raises:
        RecipeError: Playwright or a Chromium is missing.
        PlumblineError: the browser broke down.
    """
    executor = BrowserExecutor(site, 60, pages=1)
    try:
        with clear_breakdowns(executor.broken):
            return executor.use(
                lambda page, address: _film(
                    page, address, executor.site, case, plan, executor.seconds
                )
            )
    finally:
        executor.close()


async def _film(
    page: "Page", address: str, site: Site, case: FormCase, plan: Plan, seconds: float
) -> list[Frame]:
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

    await on_the_site(page, site, address, case, PlanRun(plan), seconds, watch)
    await shoot("the end")
    return shortened(frames)
