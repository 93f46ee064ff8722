from pathlib import Path

import pytest

from plumbline.tasks import open_task


@pytest.fixture(scope="session")
def forms():
    return open_task("forms", {}, Path("unused"))
