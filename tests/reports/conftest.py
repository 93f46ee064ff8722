import shutil

import pytest

from plumbline.reports.view import RunView
from plumbline.reports.write import write_report
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from tests.reports.building import examples, finished_run


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Run:
    """A finished run with its report; tests only read it."""
    run = finished_run(tmp_path_factory.mktemp("runs") / "finished")
    write_report(run, {"": examples("test", 59)})
    return run


@pytest.fixture(scope="session")
def view(finished) -> RunView:
    return RunView(RunRecord.read(finished.folder))


@pytest.fixture(scope="session")
def html(finished) -> str:
    return (finished.folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def own(finished, tmp_path) -> Run:
    """A copy that a test may change."""
    return Run(shutil.copytree(finished.folder, tmp_path / "run"), finished.recipe)
