"""What we did not make is never touched: every command that writes, against a folder of a user's
files."""

import pytest

from plumbline.errors import StorageError
from plumbline.reports.write import write_report
from plumbline.runs import output_guard
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from plumbline.storage import write_jsonl
from tests.bad_files import make_run
from tests.training.toy_runs import toy_recipe

THEIRS = {
    "labels.csv": "id,label\n1,2\n",
    "train.jsonl": '{"id": "mine"}\n',
    "test.jsonl": "",
    "manifest.json": '{"options": {}}',
    "recipe.yaml": "name: mine\n",
    "config.json": "{}",
    "report.html": "<html>mine</html>",
    "report.md": "mine",
    "metrics.jsonl": '{"mine": 1}\n',
    "data/labels.csv": "1,2\n",
    "data/train.jsonl": '{"id": "mine"}\n',
    "evaluations/paper.json": '{"mean": 1}',
    "evaluations/reference.val.oracle.json": "{}",
    "models/sft/model.safetensors": "mine",
    "tables/results.csv": "1\n",
    "checkpoints/rl/step-000001/state.json": "{}",
    "dev0=1/notes.txt": "mine",
}
COMMANDS = [
    "run commerce-tiny --out {folder}",
    "run commerce-tiny --resume --out {folder}",
    "run commerce-v4.1 --set model.name=./typo --out {folder}",
    "run commerce-tiny --set run.trackers=['tensorboard'] --out {folder}",
    "run no-such-recipe --out {folder}",
    "sweep commerce-tiny --vary seed=0,1 --out {folder}",
    "sweep commerce-tiny --vary seed=0,1 --resume --out {folder}",
    "sweep commerce-tiny --vary nonsense --out {folder}",
    "data commerce --orders 1500 --extraction 60 --out {folder}",
    "data commerce --orders 0 --out {folder}",
    "data forms --out {folder}",
    "data forms --set task.options.nonsense=1 --out {folder}",
    "convert {folder}/labels.csv --out {folder} --tokenizer gpt2",
    "convert no-such-file.pth --out {folder} --tokenizer gpt2",
    "get smollm2-135m --out {folder}",
    "eval oracle --task forms --n 2 --out {folder}/config.json",
    "eval oracle --task forms --n 2 --out {folder}",
    "eval oracle --task forms --n 2 --tables {folder}",
    "eval oracle --task forms --n 2 --tables {folder}/labels.csv",
    "eval oracle --task forms --n 2 --report {folder}/report.html",
    "eval no-such-model --task forms --report {folder}/report.html",
    "eval oracle --n 2 --data {folder}/data",
    "score --completions {answers} --task forms --out {folder}/config.json",
    "score --completions {answers} --task forms --out {folder}/labels.csv",
    "score --completions {folder}/labels.csv --task forms --out {folder}/labels.csv",
    "report {folder}",
    "report {folder}/data",
]


def begin(folder, *, resume=False, **changed):
    """Start a run and leave it."""
    with Run.start(toy_recipe(**changed), folder, resume=resume) as run:
        return run


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def theirs(tmp_path):
    folder = tmp_path / "theirs"
    for name, text in THEIRS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_touches_a_users_files(plumbline, command, theirs, tmp_path, monkeypatch):
    answers = tmp_path / "answers.jsonl"
    write_jsonl(answers, [{"id": "val-event-registration-0", "completion": "Submit"}])
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    before = contents(theirs)
    code, _, err = plumbline(*command.format(folder=theirs, answers=answers).split())
    assert code in {1, 2}
    assert contents(theirs) == before
    assert contents(tmp_path / "cwd") == {}, "nothing was made before the refusal"
    assert "Traceback" not in err


def test_what_we_made_for_one_purpose_is_not_taken_for_another(tmp_path):
    output_guard.claim_folder(tmp_path / "made", "run")
    (tmp_path / "made" / "metrics.jsonl").write_text("")
    output_guard.claim_folder(tmp_path / "made", "run")
    with pytest.raises(StorageError, match=r"another purpose \(run\)"):
        output_guard.check_folder(tmp_path / "made", "sweep")


def test_a_blank_run_is_begun_anew_without_a_users_file_in_it(tmp_path):
    begin(tmp_path / "run")
    theirs = {"data/labels.csv", "data/mine/train.jsonl"}
    ours = {"data/train.jsonl", "evaluations/reference.val.oracle.json"}
    for name in (*theirs, *ours):
        (tmp_path / "run" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "run" / name).write_text("")
    (tmp_path / "run" / "data" / output_guard.MARK).write_text("commerce records\n")
    assert begin(tmp_path / "run", name="other").recipe.name == "other"
    there = set(contents(tmp_path / "run"))
    assert theirs <= there
    assert not there & ours


LINKS = ["data", "data/commerce", "models", "checkpoints", "checkpoints/rl"]
LINKS += ["evaluations", "replays", "engine", "events.jsonl"]


@pytest.mark.parametrize("link", LINKS)
def test_a_run_removes_and_writes_nothing_behind_a_link(tmp_path, link):
    """A run that was stopped while it built its records is begun anew; a checkpoint's folder is
    swept."""
    theirs = tmp_path / "theirs"
    for name in (*THEIRS, "step-000001/state.json", ".writing-x/a", ".a.tmp", ".plumbline"):
        (theirs / name).parent.mkdir(parents=True, exist_ok=True)
        (theirs / name).write_text("commerce records\n" if name == ".plumbline" else "mine")
    begin(tmp_path / "run")
    place = tmp_path / "run" / link
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(theirs / "metrics.jsonl" if place.suffix else theirs)
    before = contents(tmp_path / "theirs")
    for resume in (False, True):
        with pytest.raises(StorageError, match=rf"{link} is a link .*theirs"):
            begin(tmp_path / "run", resume=resume, name="other")
    assert contents(theirs) == before


def test_records_behind_a_link_in_a_run_are_read_and_not_written(tmp_path):
    begin(tmp_path / "run")
    (tmp_path / "large" / "disk").mkdir(parents=True)
    (tmp_path / "run" / "data").symlink_to(tmp_path / "large")
    with pytest.raises(StorageError, match=r"data .*link .*large"):
        output_guard.check_folder(tmp_path / "run" / "data" / "disk", "commerce records")
    begin(tmp_path / "run", resume=True)  # nothing is to be removed: the recipe is the same


def test_a_run_that_is_a_link_itself_is_the_users_choice(tmp_path):
    (tmp_path / "large").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "large")
    for name in ("one", "other"):
        begin(tmp_path / "run", name=name)
    output_guard.claim_folder(tmp_path / "run" / "data" / "x", "commerce records")
    assert (tmp_path / "large" / "data" / "x" / output_guard.MARK).is_file()


def test_a_report_writes_no_table_behind_a_link(tmp_path):
    make_run(tmp_path / "run")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "run" / "tables").symlink_to(tmp_path / "theirs")
    with pytest.raises(StorageError, match=r"tables .*link .*theirs"):
        write_report(RunRecord.read(tmp_path / "run"))
    assert list((tmp_path / "theirs").iterdir()) == []
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_users_folder_that_looks_like_a_run_that_began_is_no_run_to_go_on_with(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "recipe.yaml").write_text("flour: 500 g")
    with pytest.raises(StorageError, match="holds other files"):
        begin(tmp_path)
