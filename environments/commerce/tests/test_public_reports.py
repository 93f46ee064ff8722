"""Queries of public bug reports, as pairs of a gold answer and candidates."""

import json
import shutil

import pytest

from plumbline.tasks import open_task
from tests.test_public_reports import folder_of, inputs


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The records of a small shop."""
    folder = tmp_path_factory.mktemp("shop") / "records"
    counts = {"orders": 3000, "sql_qa": 60, "extraction": 30, "insights": 30, "push": 30}
    open_task("commerce", counts, folder).examples("test")
    return folder


def score(plumbline, shop, folder, place):
    """The case's answers, judged: exit code, what each earned for its result, standard error."""
    records = shutil.copytree(shop, place / "shop")
    (records / "manifest.json").unlink()
    shutil.copy(folder / "records.jsonl", records / "test.jsonl")
    task = [
        "--task",
        "commerce",
        "--data",
        records,
        "--set",
        "task.options.job=sql_qa",
        "--split",
        "test",
    ]
    out = place / "said.json"
    code, _, err = plumbline(
        "score", *task, "--completions", folder / "answers.jsonl", "--out", out
    )
    rows = json.loads(out.read_text())["rows"] if code == 0 else []
    return code, {row["id"].split(":")[1]: row["parts"]["result"] for row in rows}, err


@pytest.mark.parametrize("number", [one for one in inputs("pair.json") if one != "73b"])
def test_a_query_is_right_where_its_answer_is(plumbline, shop, tmp_path, number):
    folder = folder_of(number)
    code, results, err = score(plumbline, shop, folder, tmp_path)
    assert code == 0, err
    for name, candidate in json.loads((folder / "pair.json").read_text())["candidates"].items():
        if candidate["right"] is not None:
            assert results[name] == float(candidate["right"]), (name, results)


def test_a_question_whose_answer_says_nothing_is_refused(plumbline, shop, tmp_path):
    code, _, err = score(plumbline, shop, folder_of("73b"), tmp_path)
    assert code == 1
    assert "NULL" in err
