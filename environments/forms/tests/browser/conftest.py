"""Browsers for the whole folder; without one its tests are skipped, and the reason is shown."""

from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest

from environments.forms.tests.differential import Pages, compare
from plumbline.errors import RecipeError
from plumbline_browser.chromium import find_chromium, import_playwright
from plumbline_forms.executors.direct import DirectExecutor
from plumbline_forms.site.site import Site


def pytest_collection_modifyitems(items):
    try:
        import_playwright()
        find_chromium()
    except RecipeError as error:
        for item in items:
            if "forms/browser" in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.fixture(scope="session")
def browsers():
    """The two browser executors by name."""
    from plumbline_forms.executors.browser import BrowserExecutor

    found = {"browser": BrowserExecutor(), "in-page": BrowserExecutor(navigates=False)}
    yield found
    for one in found.values():
        one.close()


@pytest.fixture(scope="session", params=["browser", "in-page"])
def browser(request, browsers):
    return browsers[request.param]


@pytest.fixture(scope="session")
def differing():
    """The trials in which two executors differ; both have several under way at once, so that none
    waits alone."""

    def found(first, second, trials, **options):
        with ThreadPoolExecutor(second.at_once) as threads:
            each = threads.map(
                lambda trial: list(compare(first, second, [trial], **options)), trials
            )
        return [one for one in chain.from_iterable(each) if one is not None]

    return found


@pytest.fixture(scope="session", params=["browser", "in-page"])
def foreign(request):
    """A browser executor and a direct one for pages that are not the site's own, and these
    pages."""
    from plumbline_forms.executors.browser import BrowserExecutor

    pages = Pages()
    executor = BrowserExecutor(Site(pages), navigates=request.param == "browser")
    yield executor, DirectExecutor(Site(pages)), pages
    executor.close()
