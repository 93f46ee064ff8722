"""Warm pages for the whole folder; without a browser or the pages, tests that need them are
skipped, with a reason."""

import pytest

from plumbline.errors import RecipeError
from plumbline_browser.chromium import find_chromium, import_playwright
from plumbline_miniwob import pages


def why_not() -> str:
    try:
        import_playwright()
        find_chromium()
        pages.folder()
    except RecipeError as error:
        return str(error)
    return ""


@pytest.fixture(scope="session")
def pool():
    from plumbline_miniwob.browser.pool import EpisodePool

    if reason := why_not():
        pytest.skip(reason)
    found = EpisodePool(keep=4)
    yield found
    found.close()
