"""The commerce task on a small shop, built once."""

import os
from pathlib import Path

import pytest

from plumbline.tasks import open_task
from plumbline_commerce.build import build_commerce
from plumbline_commerce.options import CommerceOptions
from plumbline_commerce.sql_qa.engine import databases
from plumbline_commerce.task import CommerceTask

OPTIONS = {"seed": 5, "orders": 3000, "extraction": 200}


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Path:
    """A folder that all workers of a run have together: what one of them builds there the others
    find."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def commerce_folder(shared) -> Path:
    """The records; tests must not change them."""
    build_commerce(CommerceOptions(**OPTIONS), shared / "commerce")
    return shared / "commerce"


@pytest.fixture(scope="session")
def commerce(commerce_folder) -> CommerceTask:
    return open_task("commerce", OPTIONS, commerce_folder)


@pytest.fixture(scope="session")
def shops(shared) -> tuple[Path, ...]:
    """The databases of sql_qa."""
    return databases(shared / "shops", 3)
