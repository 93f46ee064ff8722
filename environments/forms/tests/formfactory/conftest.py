import warnings

import pytest

from environments.forms.tests.formfactory.layout import STEMS, write_layout
from plumbline.tasks import silent
from plumbline_forms.formfactory.importer import DriftWarning
from plumbline_forms.task import open_forms


@pytest.fixture(scope="session")
def layout(tmp_path_factory):
    return write_layout(tmp_path_factory.mktemp("layout"))


@pytest.fixture(scope="session")
def open_layout(layout, tmp_path_factory):
    """Opens the forms task on the layout; the drift (it is not the real benchmark) is another
    test's matter."""

    def opened(path=layout, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DriftWarning)
            given = {"suite": "formfactory", "path": str(path), "forms": list(STEMS), **options}
            return open_forms(given, tmp_path_factory.getbasetemp(), silent)

    return opened


@pytest.fixture(scope="session")
def task(open_layout):
    return open_layout()


@pytest.fixture(scope="session")
def examples(task):
    return {example.id: example for example in task.examples("test")}
