"""What a checkout must hold, what is said where it does not, and that nothing is written into
it."""

import builtins
import re
import shutil
import sys
import warnings
from pathlib import Path

import pytest

from plumbline.errors import DataError, RecipeError
from plumbline.tasks import silent
from plumbline_forms.formfactory.checkout import NAMES, ROWS
from plumbline_forms.formfactory.importer import DriftWarning
from plumbline_forms.task import open_forms

BENCHMARK = {"suite": "formfactory"}


@pytest.fixture
def root(layout, tmp_path):
    """A layout to spoil."""
    return shutil.copytree(layout, tmp_path / "other")


def test_the_table_adds_up():
    assert len(ROWS) == 25
    assert len({row.stem for row in ROWS}) == len(set(NAMES)) == len({row.id for row in ROWS}) == 25
    assert sum(row.records for row in ROWS) == 1240
    assert sum(row.fields for row in ROWS) == 281


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="nowhere") as caught:
        open_forms({**BENCHMARK, "path": str(tmp_path / "nowhere")}, tmp_path, silent)
    assert "git clone" in caught.value.fix


def test_missing_files_are_listed(layout, tmp_path):
    copy = shutil.copytree(layout, tmp_path / "copy")
    (copy / "app.py").unlink()
    (copy / "data/data1/student_courses.json").unlink()
    with pytest.raises(DataError, match=r" app\.py, data/data1/student_courses\.json\n") as caught:
        open_forms({**BENCHMARK, "path": str(copy), "forms": ["A15"]}, tmp_path, silent)
    assert "no complete checkout" in caught.value.cause


def test_a_whole_checkout_is_asked_for_where_no_forms_are_named(layout, tmp_path):
    with pytest.raises(DataError, match=r"templates/A11\.html.* and \d+ more"):
        open_forms({**BENCHMARK, "path": str(layout)}, tmp_path, silent)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"splits": "80-10-10"}, "suite own .* task.options.splits"),
        (
            {**BENCHMARK, "path": "x", "records": 20, "noise": {"stars": 1}},
            "no .*records, .*noise",
        ),
        ({**BENCHMARK, "path": "x", "forms": ["A16"]}, "no form A16"),
        (
            {**BENCHMARK, "path": "x", "forms": ["thesis-defence"]},
            "no form thesis-defence",
        ),
    ],
)
def test_options_of_the_other_suite(options, said, tmp_path):
    with pytest.raises(RecipeError, match=said):
        open_forms(options, tmp_path, silent)


def test_how_options_of_a_models_own_run_are_set_back(tmp_path):
    given = {"records": 20, "noise": {"stars": 1}, "max_fields": 3}
    with pytest.raises(RecipeError) as caught:
        open_forms({**BENCHMARK, "path": "x", **given}, tmp_path, silent)
    assert caught.value.fix.endswith(
        ": task.options.records=50, task.options.max_fields=null, task.options.noise={}"
    )
    back = {"records": 50, "max_fields": None, "noise": {}}
    with pytest.raises(DataError):  # of the checkout, which is not there
        open_forms({**BENCHMARK, "path": "x", **back}, tmp_path, silent)


def test_forms_are_named_by_id_or_name(open_layout):
    task = open_layout(forms=["E12", "course-registration"])
    assert list(task.forms) == ["course-registration", "account-opening"]


def test_without_flask(layout, tmp_path, monkeypatch):
    plain = builtins.__import__

    def without(name, *rest):
        if name == "flask":
            raise ImportError("No module named 'flask'", name="flask")
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RecipeError, match="needs flask") as caught:
        open_forms({**BENCHMARK, "path": str(layout)}, tmp_path, silent)
    assert "./environments/forms[formfactory]" in caught.value.fix


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import not_installed_anywhere", "cannot be imported: .*not_installed_anywhere"),
        ("app = 1", "Flask .* app .* save_submission_to_json"),
        ("from flask import Flask\napp = Flask(__name__)", "no function save_submission_to_json"),
        ("def broken(:", "cannot be imported"),
    ],
)
def test_another_app(open_layout, root, source, said):
    (root / "app.py").write_text(source)
    with pytest.raises(DataError, match=said):
        open_layout(root)


def test_a_page_that_fails(open_layout, root):
    (root / "app.py").write_text(
        (root / "app.py").read_text().replace("/tech-software/", "/elsewhere/")
    )
    with pytest.raises(DataError, match=r"answers 404 for /tech-software/support-request \(D12\)"):
        open_layout(root)


@pytest.mark.parametrize("content", ["{}", "[1]", "[", "[]"])
def test_gold_that_is_none(open_layout, root, content):
    (root / "data/data1/IT_support.json").write_text(content)
    with pytest.raises(DataError, match=r"IT_support\.json"):
        open_layout(root)


def test_drift_is_said(layout, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_forms({**BENCHMARK, "path": str(layout), "forms": ["D12"]}, tmp_path, silent)
    (said,) = [str(one.message) for one in caught if one.category is DriftWarning]
    assert re.findall(r"\w*\d+", said) == ["D12", "3", "11", "2", "50"]


def test_records_that_nobody_could_send_are_left_out(root, tmp_path):
    path = root / "data/data1/Health_Insurance.json"
    path.write_text('[{"Policy Number": "P-1", "Colour": "red"}, {"Policy Number": ""}]')
    with pytest.warns(DriftWarning, match=r"no label .*: Colour; .*: 1"):
        task = open_forms({**BENCHMARK, "path": str(root), "forms": ["F13"]}, tmp_path, silent)
    assert [example.id for example in task.examples("test")] == ["F13-000"]


def test_the_checkout_is_identified(open_layout, task, root):
    same = open_layout(root)
    assert same.rubric == task.rubric
    assert "formfactory " + same.examples("test")[0].reference["checkout"] in same.rubric
    path = root / "data/data1/IT_support.json"
    path.write_text(path.read_text().replace("Slow", "Sloww"))
    assert open_layout(root).rubric != task.rubric


def test_nothing_is_written(open_layout, root, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    task = open_layout(root)
    for example in task.examples("test"):
        assert task.judge(example, example.gold)[0].facts["submitted"]
    assert list(elsewhere.iterdir()) == []
    assert {path.name for path in root.iterdir()} == {"app.py", "templates", "data"}
    assert Path.cwd() == elsewhere
    assert sys.dont_write_bytecode is False
