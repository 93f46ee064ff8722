"""What holds for every job of the shop, and for a run of several."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from environments.commerce.tests.conftest import OPTIONS
from plumbline.api import check_task
from plumbline.errors import DataError
from plumbline.evaluation.command import EvaluationSpec, each_task
from plumbline.evaluation.score_completions import score_file
from plumbline.storage import read_jsonl, write_jsonl
from plumbline.tasks import open_task, variants_of
from plumbline_commerce import build
from plumbline_commerce.build import build_commerce, count_prompts
from plumbline_commerce.classify import job_of
from plumbline_commerce.job import JOBS
from plumbline_commerce.options import COUNTS, CommerceOptions
from plumbline_commerce.sql_qa import pairs
from plumbline_commerce.task import FIXED

SHOP = {**OPTIONS, "sql_qa": 150, "insights": 150, "push": 150}
REQUESTS = yaml.safe_load(Path(__file__).with_name("requests.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def made(commerce_folder, shops):
    """Builds records of the shop that is there already; its database and those of sql_qa are
    copied."""

    def copied(folder, _count):
        shutil.copytree(shops[0].parent, folder)
        return tuple(folder / path.name for path in shops)

    def shop(database, *, orders, seed, progress):
        assert (orders, seed) == (OPTIONS["orders"], OPTIONS["seed"])
        shutil.copy(commerce_folder / "commerce.db", database)

    def build_in(folder, **options):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(pairs, "databases", copied)
            patched.setattr(build, "build_database", shop)
            build_commerce(CommerceOptions(**options), folder)
        return folder

    return build_in


@pytest.fixture(scope="module")
def folders(made, tmp_path_factory) -> dict[str, Path]:
    """The shop by how its prompts instruct."""
    few = dict.fromkeys(JOBS, 50)
    return {
        "full": made(tmp_path_factory.mktemp("full"), **SHOP),
        "short": made(tmp_path_factory.mktemp("short"), **{**SHOP, **few}, instructions="short"),
    }


@pytest.fixture
def shop(folders) -> Path:
    return folders["full"]


@pytest.mark.parametrize("job", JOBS)
def test_the_laws_of_a_task_hold_for_every_job(shop, job):
    task = open_task("commerce", {**SHOP, "job": job}, shop)
    limits = task.headline.limits
    assert set(limits) == set(task.baselines), "every baseline has a limit"
    prompts: set[str] = set()
    for split in ("train", "val", "test"):
        laws = check_task(task, split)
        assert laws.oracle == 1.0
        assert laws.raised == ()
        # of 15 or 20 examples one is worth too much in the others
        if split == "train" or job in {"push", "insights"}:
            assert {
                name: mean for name, mean in laws.baselines.items() if mean > limits[name]
            } == {}
        if split == "train":
            assert max(laws.baselines.values()) < (0.45 if job == "push" else 0.5), (
                "no baseline comes near the oracle"
            )
        own = {example.fingerprint() for example in task.examples(split)}
        assert not own & prompts, "no prompt is in two splits"
        prompts |= own


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("instructions", ["full", "short"])
def test_the_text_of_every_prompt_says_which_job_it_is(folders, job, instructions):
    task = open_task("commerce", {"job": job}, folders[instructions])
    wrong = [
        example.messages[-1]["content"]
        for split in task.splits
        for example in task.examples(split)
        if job_of(example.messages[-1]["content"]) != job
    ]
    assert wrong == []


@pytest.mark.parametrize("job", REQUESTS)
def test_requests_as_people_write_them_are_told_apart(job):
    assert {
        text: job_of(text)
        for text in REQUESTS[job]
        if job_of(text) != (None if job == "nothing" else job)
    } == {}


def test_a_row_that_does_not_say_its_job_is_told_by_its_text(shop, tmp_path):
    for job in JOBS:
        rows = [
            line
            for line in (shop / "val.jsonl").read_text().splitlines()
            if f'"task": "{job}"' in line
        ]
        assert len(rows) == round(SHOP[job] / 10)
        mine = "\n".join(line.replace(f'"task": "{job}", ', "") for line in rows)
        (tmp_path / "val.jsonl").write_text(mine)
        assert len(
            open_task("commerce", {"data": str(tmp_path), "job": job}, tmp_path).examples("val")
        ) == len(rows)


def test_the_fixed_set_is_the_65_prompts_of_the_log(shop):
    sizes = {}
    for job in JOBS:
        task = open_task("commerce", {**SHOP, "job": job, "fixed": True}, shop)
        assert task.examples("fixed") == task.examples("val")[: FIXED[job]]
        sizes[job] = len(task.examples("fixed"))
    assert sizes == {"extraction": 20, "sql_qa": 15, "insights": 15, "push": 15}
    assert "fixed" not in open_task("commerce", SHOP, shop).splits


def test_commerce_alone_stands_for_each_job_that_the_records_have(shop, tmp_path):
    each = variants_of("commerce", {}, shop)
    assert list(each) == list(JOBS)
    assert each["push"] == {**{job: SHOP[job] for job in JOBS}, "job": "push"}
    assert list(variants_of("commerce", {}, tmp_path)) == list(JOBS), (
        "of none that are there yet: all are built"
    )
    assert variants_of("commerce", {"job": "push"}, shop) == {"": {"job": "push"}}
    assert variants_of("commerce", {"insights": 30}, tmp_path) == {
        "": {"insights": 30, "job": "insights"}
    }
    assert (
        count_prompts({})
        == COUNTS
        == {"extraction": 590, "sql_qa": 594, "insights": 148, "push": 148}
    )
    rows = (shop / "val.jsonl").read_text().splitlines()
    (tmp_path / "val.jsonl").write_text(
        "\n".join(line for line in rows if '"task": "push"' in line)
    )
    assert variants_of("commerce", {"data": str(tmp_path)}, shop) == {
        "": {"data": str(tmp_path), "job": "push"}
    }
    spec = EvaluationSpec(model="named-constant", task="commerce", data=shop)
    assert list(each_task(spec)) == ["push"], "a baseline is of the jobs that have it"


def test_answers_to_another_job_are_told_apart_from_answers_to_nothing(shop, tmp_path):
    golds = {"extraction": [], "push": [], "insights": []}
    for _, row in read_jsonl(shop / "val.jsonl"):
        if row["task"] in golds:
            golds[row["task"]].append(
                {"id": row["id"], "completion": row["messages"][-1]["content"]}
            )
    answers, task = tmp_path / "answers.jsonl", open_task("commerce", SHOP, shop)
    write_jsonl(
        answers, [*golds["push"], *golds["insights"][:2], {"id": "nobody", "completion": ""}]
    )
    with pytest.raises(DataError, match="18 ids") as caught:
        score_file(answers, task, "val")
    jobs = re.findall(r"task\.options\.job=(\w+) for the (\d+)", caught.value.fix)
    assert jobs == [("insights", "2"), ("push", "15")]
    with pytest.raises(DataError, match="check --data and --split"):
        score_file(answers, open_task("commerce", SHOP, shop), "test")
    write_jsonl(answers, [*golds["extraction"], *golds["push"]])
    (warning,) = score_file(answers, task, "val").summary["warnings"]
    assert re.search(r"task\.options\.job=push .* 15 ", warning)


def test_tasks_of_one_run_share_a_folder(made, tmp_path):
    folder = tmp_path / "shop"
    jobs = [job for job in JOBS if job != "sql_qa"]  # whose questions take seconds
    made(folder, **{**OPTIONS, "keys": ["sentiment"], **dict.fromkeys(jobs, 60)})
    # the numbers of a shop that is there say nothing
    shared = {"data": str(folder), "orders": 7, "push": 9}
    for job in jobs:
        assert (
            len(open_task("commerce", {**shared, "job": job}, tmp_path / job).examples("train"))
            == 48
        )
        assert not (tmp_path / job).exists()
    named = open_task("commerce", {**shared, "keys": ["sentiment"]}, tmp_path)
    assert (
        named.rubric
        == open_task("commerce", shared, tmp_path).rubric
        == open_task("commerce", {}, folder).rubric
    )
    assert named.rubric.endswith(":sentiment")
    with pytest.raises(DataError, match=r"keys: \['sentiment'\] there, \['churn_risk'\] wanted"):
        open_task("commerce", {**shared, "keys": ["churn_risk"]}, tmp_path)
    with pytest.raises(DataError, match=r"instructions: full .*short"):
        open_task("commerce", {**shared, "instructions": "short"}, tmp_path)
