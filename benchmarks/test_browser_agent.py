"""browser-use itself, in its own environment and with real Chromium, at a form of the suite."""

import os
import shutil
from pathlib import Path

import pytest

from benchmarks.browser_agent import OraclePlanner
from plumbline.errors import RecipeError
from plumbline.tasks import open_task
from plumbline_browser.chromium import find_chromium
from plumbline_forms.agent.served import AgentServed


def test_browser_use_fills_in_a_form():
    """A wizard with an upload, boxes and radio buttons, by the variant with the shortest prompt."""
    pytest.importorskip("starlette")
    python = os.environ.get("PLUMBLINE_BROWSER_USE_PYTHON")
    if not python or shutil.which(python) is None:
        pytest.skip(
            "PLUMBLINE_BROWSER_USE_PYTHON names no interpreter of an environment with browser-use"
        )
    try:
        find_chromium()
    except RecipeError as error:
        pytest.skip(str(error))
    from benchmarks.browser_agent import VARIANTS, Driver, Place, fill_in, model_server
    from plumbline_forms.site.serve import serve

    task = open_task("forms", {}, Path("unused"))
    example = next(row for row in task.examples("test") if row.stratum == "site-safety")
    agent = AgentServed(OraclePlanner([example]))
    driver = Driver(python)
    options = VARIANTS["flash"] | {"agent": {"flash_mode": True, "max_actions_per_step": 20}}
    try:
        with serve(task.executor.site) as forms, model_server(agent) as models:
            found = fill_in(task, example, driver, Place(forms, models, agent.name), options)
    finally:
        driver.close()
    assert found.get("failed") is None, found
    assert found["exact"], found
    assert found["success"]
    assert found["steps"] <= 8
