"""`layout/` is a directory in the layout of the benchmark, with forms, records and texts of our own.

Eight forms carry the ids and addresses that the importer knows, and the mismatches that it must
cope with: labels with stars, a group and a list that no label is tied to, keys without a field,
values that no option has, a second schema, required files, styles from elsewhere, an address in a
form's action, a form that a script builds. The texts of A15 and D12 have numbered lists with the
sign of the texts' own numbers.
"""

import shutil
import warnings
from pathlib import Path

import pytest

from plumbline.tasks import silent
from plumbline_forms.formfactory.importer import DriftWarning
from plumbline_forms.task import open_forms

LAYOUT = Path(__file__).with_name("layout")
FORMS = sorted(page.stem for page in LAYOUT.glob("templates/*.html"))


@pytest.fixture(scope="session")
def layout(tmp_path_factory):
    return shutil.copytree(LAYOUT, tmp_path_factory.mktemp("formfactory") / "layout")


@pytest.fixture(scope="session")
def open_layout(layout, tmp_path_factory):
    """Opens the forms task on the layout; the drift (it is not the real benchmark) is another
    test's matter."""

    def opened(path=layout, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DriftWarning)
            given = {"suite": "formfactory", "path": str(path), "forms": FORMS, **options}
            return open_forms(given, tmp_path_factory.getbasetemp(), silent)

    return opened


@pytest.fixture(scope="session")
def task(open_layout):
    return open_layout()


@pytest.fixture(scope="session")
def examples(task):
    return {example.id: example for example in task.examples("test")}
