"""Whatever stands in a file, an argument or the environment: one cause and one remedy, status 1 or
2, and nothing made.

`bad_input.txt` is the table. The commands run in this process, with no network.
"""

import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bad_files import make_place

SECONDS = 60  # so that a command that hangs is an error; no limit of its speed
TABLE = [
    re.split(r"\s{2,}", line, maxsplit=1)
    for line in Path(__file__).with_name("bad_input.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
]


class Hangs(BaseException):
    """Not an Exception: nothing on the way may take it for its own."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    import plumbline.policies.flow.convert  # noqa: F401 - torch, once and before the first command

    folder = tmp_path_factory.mktemp("bad")
    make_place(folder)
    return folder


@pytest.fixture(scope="module")
def seen(place):
    """What the last test left there, in a list of one."""
    return [contents(place)]


@pytest.fixture
def untouched(place, seen):
    """Asserts that nothing has been made, changed or removed since it was last called."""

    def check():
        before, seen[0] = seen[0], contents(place)
        assert seen[0] == before

    return check


@pytest.fixture
def asked_network(monkeypatch):
    """What was asked of the network, which is not there."""
    asked = []

    def refuse(*arguments, **_):
        asked.append(arguments)
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return asked


@pytest.fixture
def plumbline(plumbline, place, monkeypatch, asked_network):
    """Run a command in the place of bad files; gives status, standard output and standard error."""
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("HF_HOME", str(place / "hub"))

    def run(command: str) -> tuple[int, str, str]:
        def hang(*_):
            raise Hangs(command)

        before = signal.signal(signal.SIGALRM, hang)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            return plumbline(*command.split())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    return run


def contents(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Everything in a folder: what it is, its size, and when it was changed."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = f"{root}/{name}"
            facts = os.lstat(path)
            found[path] = (facts.st_mode, facts.st_size if name in files else 0, facts.st_mtime_ns)
    return found


def words(text: str) -> str:
    """On one line, without the frames that typer draws."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


def test_the_table_is_long_and_no_command_is_in_it_twice():
    assert len(TABLE) >= 120
    assert all(len(row) == 2 for row in TABLE)
    assert len({command for command, _ in TABLE}) == len(TABLE)
    commands = {command.split()[0] for command, _ in TABLE}
    assert commands >= {
        "eval",
        "score",
        "compare",
        "report",
        "parse",
        "recipe",
        "run",
        "sweep",
        "get",
        "data",
    }


@pytest.mark.parametrize(("command", "message"), TABLE, ids=[command for command, _ in TABLE])
def test_a_bad_input_is_one_message_and_leaves_nothing(
    plumbline, untouched, asked_network, command, message
):
    status, out, err = plumbline(command)
    untouched()
    assert asked_network == []
    assert "Traceback" not in err
    assert " ".join(message.split()) in words(err)
    if status == 1:
        errors = [line for line in err.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        cause, remedy = err[err.index("error: ") :].splitlines()
        assert remedy.startswith("  fix: "), (
            "there is a remedy, and cause and remedy are a line each"
        )
        assert len(cause) > len("error: ")
    else:
        assert status == 2, "typer's own, which says how the command is written"
    assert out == "" or command.startswith("parse "), (
        "only parse answers line by line, up to the bad one"
    )


# -- what a table of commands cannot say -----------------------------------------------------------


BLOCKED = [
    (
        "torch",
        "eval models/plain --task commerce",
        "a model needs torch, which is not installed",
        "'.[train]'",
    ),
    (
        "transformers",
        "eval models/plain --task commerce",
        "a model needs transformers",
        "'.[train]'",
    ),
    ("torch", "run commerce-tiny --out new", "a model needs torch", "'.[train]'"),
    ("torch", "sweep commerce-tiny --vary seed=0,1 --out new", "a model needs torch", "'.[train]'"),
    (
        "peft",
        'run commerce-tiny --set model={"name":"models/plain","lora":{}}',
        "a model needs peft",
        "'.[train]'",
    ),
    (
        "torch",
        "convert junk.pth --out new --tokenizer gpt2",
        "this command needs torch",
        "'.[train]'",
    ),
    (
        "selectolax",
        "eval oracle --task forms",
        "the direct executor needs selectolax",
        "./environments/forms",
    ),
    (
        "selectolax",
        "run forms-demo --out new",
        "the direct executor needs selectolax",
        "./environments/forms",
    ),
    (
        "selectolax",
        "data forms --out new",
        "the direct executor needs selectolax",
        "./environments/forms",
    ),
    (
        "playwright",
        "eval oracle --task forms --executor browser --n 1",
        "driving a browser (any Chromium will do) needs playwright",
        "'./environments/browser[playwright]'",
    ),
    (
        "flask",
        "eval oracle --task forms --suite formfactory --path full",
        "flask, which is not",
        "'./environments/forms[formfactory]'",
    ),
    (
        "tensorboard",
        "run commerce-tiny --out new --set run.trackers=[tensorboard]",
        "tensorboard",
        "'.[tensorboard]'",
    ),
]


@pytest.mark.parametrize(
    ("package", "command", "message", "brings"), BLOCKED, ids=[f"{p}: {c}" for p, c, *_ in BLOCKED]
)
def test_a_missing_extra_is_named(
    plumbline, untouched, monkeypatch, package, command, message, brings
):
    forget = [
        name
        for name in sys.modules
        if name.split(".")[0] == package
        or name.startswith(("plumbline.policies.flow.", "plumbline_forms.execut"))
    ]
    for name in forget:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    if package == "tensorboard":
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    status, out, err = plumbline(command)
    assert (status, out) == (1, "")
    assert message in err
    assert f"pip install {brings} in a clone" in err
    untouched()


def test_a_gpu_that_is_not_there_is_said_before_anything_is_built(
    plumbline, untouched, monkeypatch
):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    for command in (
        "eval models/plain --task commerce --device cuda",
        "run commerce-tiny --out new --set model.device=cuda",
        "run commerce-tiny --out new --set model.device=cuda:3",
    ):
        status, _, err = plumbline(command)
        assert status == 1
        assert "finds none of" in err
    untouched()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", b"mine"),
        ("config.json", b'{"model_type": "thing"}'),
        ("tokenizer.json", b"["),
    ],
)
def test_a_model_whose_files_are_damaged(plumbline, tiny_folder, tmp_path, file, content):
    model = shutil.copytree(tiny_folder, tmp_path / "model")
    (model / file).write_bytes(content)
    status, out, err = plumbline(f"eval {model} --n 1")
    assert (status, out) == (1, "")
    assert str(model) in err
    assert "Traceback" not in err
    assert "  fix: " in err


@pytest.mark.parametrize("name", ["events.jsonl", "evaluations"])
@pytest.mark.skipif(
    os.geteuid() == 0, reason="root may read everything; the links to themselves stand for this"
)
def test_a_record_that_may_not_be_read(plumbline, place, name):
    path = place / "run" / name
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        status, out, err = plumbline("report run")
    finally:
        path.chmod(mode)
    assert (status, out) == (1, "")
    assert "read: Permission denied" in err


def test_standard_input_that_is_closed_or_is_no_text(plumbline, monkeypatch):
    for stdin, message in (
        (None, "input is closed"),
        (
            io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), errors="surrogateescape"),
            "standard input: not UTF-8",
        ),
    ):
        monkeypatch.setattr(sys, "stdin", stdin)
        status, out, err = plumbline("parse")
        assert (status, out) == (1, "")
        assert message in err


@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', "9" * 6000, "[" * 20_000, '{"a": 1e999}'])
def test_what_a_model_wrote_is_no_error(plumbline, monkeypatch, text):
    """Half a surrogate, too: it goes out as the escape that it came as."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    status, out, err = plumbline("parse")
    assert (status, err) == (0, "")
    out.encode()
    assert out.count("\n") == 1


def test_a_place_with_escapes_is_shown_without_them(plumbline, tmp_path):
    status, out, _ = plumbline(f"recipe --schema --out {tmp_path}/\x1b[31m.json")
    assert status == 0
    assert "\x1b" not in out


def in_a_process(command, place, **how):
    """Of its own, with the buffers of one: what the interpreter writes at its end counts as
    well."""
    words = [sys.executable, "-m", "plumbline", *command.split()]
    return subprocess.run(words, stderr=subprocess.PIPE, text=True, cwd=place, **how)


PRINTS = ["recipe", "eval oracle --task commerce", "eval --help"]  # by print, by rich and by typer


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", PRINTS)
def test_a_full_device_is_said(place, command):
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = in_a_process(command, place, stdout=full, env=buffered)
    assert done.returncode == 1
    assert re.match("error: .*: No space left .*\n  fix: ", done.stderr)
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("command", ["recipe", "eval --help"])
def test_a_reader_that_went_away_has_a_status_of_its_own(place, command):
    reads, writes = os.pipe()
    os.close(reads)
    with open(writes, "w") as gone:  # noqa: PTH123 - a descriptor
        done = in_a_process(command, place, stdout=gone)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    "variables",
    [
        {"TERMINAL_WIDTH": "wide", "PYTHONIOENCODING": "ascii"},
        {"COLUMNS": "wide", "LC_ALL": "C"},
        {"COLUMNS": "0"},
        {"COLUMNS": "9" * 5000, "LINES": "9" * 5000},
    ],
)
def test_an_odd_environment_is_no_error(place, variables):
    done = in_a_process(
        "eval --help", place, stdout=subprocess.PIPE, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stderr
    assert "--temperature" in done.stdout


def test_a_file_that_begins_with_a_byte_order_mark_is_read(plumbline, place, tmp_path):
    """The mark says nothing, and many editors write it."""
    (tmp_path / "answers.jsonl").write_bytes(b"\xef\xbb\xbf" + (place / "good.jsonl").read_bytes())
    status, out, _ = plumbline(
        f"score --task commerce --completions {tmp_path / 'answers.jsonl'} --json"
    )
    assert status == 0
    assert '"n": 1' in out
