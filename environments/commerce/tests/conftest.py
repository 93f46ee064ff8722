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
def commerce_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("commerce")
    build_commerce(CommerceOptions(**OPTIONS), folder)
    return folder


@pytest.fixture(scope="session")
def commerce(commerce_folder) -> CommerceTask:
    return open_task("commerce", OPTIONS, commerce_folder)


@pytest.fixture(scope="session")
def shops(tmp_path_factory) -> tuple[Path, ...]:
    """The databases of sql_qa, built once by all workers of a run together."""
    base = tmp_path_factory.getbasetemp()
    return databases((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shops", 3)
