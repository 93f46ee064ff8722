from pathlib import Path

import pytest

from plumbline.tasks import open_task


@pytest.fixture(scope="session")
def forms():
    return open_task("forms", {}, Path("unused"))


@pytest.fixture(scope="session")
def fewer():
    """A fifth of each form's records."""
    return open_task("forms", {"records": 10}, Path("unused"))
