"""Ctrl-C, kill -9 at any moment, and a full disk leave a run that resumes to the same result, bit
for bit.

One helper process imports torch once, then forks a child for each attempt of each run, so that a
kill costs no imports.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from plumbline.errors import RunError
from plumbline.recipe import parse_recipe
from plumbline.runs.run import Run

RECIPE = {
    "name": "lost",
    "seed": 3,
    "task": {"name": "tests.toy:open_toy", "options": {"size": 8}},
    "sft": {"steps": 4, "batch_size": 4, "optimiser": {"learning_rate": 1e-3}},
    "rl": {
        "steps": 4,
        "prompts_per_step": 2,
        "group_size": 4,
        "inner_epochs": 2,
        "optimiser": {"learning_rate": 1e-3},
    },
    "sampling": {"max_tokens": 8},
    "evaluation": {"every": 2, "limit": 4, "final": ["val"]},
    "run": {"checkpoint_every": 2},
}

IMPORTED_ONCE = """
    import gc, json, os, random, shutil, signal, subprocess, sys
    from pathlib import Path
    import torch, transformers, peft  # noqa: F401 - imported once, before any fork; no tensor is touched here
    import transformers.models.llama.modeling_llama  # noqa: F401
    from plumbline.errors import StorageError
    from plumbline.evaluation import evaluate
    from plumbline.training.pipeline import run_recipe
    from plumbline.recipe import parse_recipe
    evaluate.AT_ONCE = 3  # so that an evaluation is killed in its midst, too
    gc.freeze()  # the children collect garbage before each model, and need not look through what is imported
    recipe = parse_recipe(json.loads(sys.argv[1]))
"""
DRIVER = """
    folder = Path(sys.argv[2])

    def attempt(folder, mode, seconds):
        pid = os.fork()
        if pid:
            _, status, used = os.wait4(pid, 0)
            return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        torch.set_num_threads(1)
        try:
            if mode == "interrupt":
                signal.signal(signal.SIGPROF, lambda *_: os.kill(os.getpid(), signal.SIGINT))
            signal.setitimer(signal.ITIMER_PROF, seconds)  # nothing takes its signal, which ends the process: a kill
            run_recipe(recipe, folder, resume=True)
            os._exit(0)
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)

    def drive(mode, times, seed, latest):
        random.seed(seed)
        kills = 0
        while True:
            moment = random.uniform(0.02, latest) if kills < times else 0
            code, seconds = attempt(folder / mode, mode, moment)
            if code == 0:
                return {"kills": kills, "seconds": seconds}
            if code == 1:
                sys.exit(1)
            kills += 1

    driven = {"whole": drive("whole", 0, 0, 0)}
    times = int(sys.argv[3])
    for mode, (seed, share) in json.loads(sys.argv[4]).items():
        driven[mode] = drive(mode, times, seed, share * driven["whole"]["seconds"])
    print(json.dumps(driven))
"""
KILLED = {"kill": (1, 0.2), "interrupt": (3, 0.12)}
"""How: the seed of the moments, and the latest as a share of the whole run's time of the processor.
Ctrl-C keeps each step, and must come sooner to come often."""
SELDOM, OFTEN = 4, 20
LATER = {SELDOM: 2.25, OFTEN: 1.0}
"""A run that is killed seldom is killed later on."""


def fingerprint(folder: Path, lived: str = "") -> dict[str, str]:
    """Hashes of everything that the result consists of (no clocks, no environment, nor where the
    run `lived`)."""
    paths = [
        *(folder / name for name in ("metrics.jsonl", "samples.jsonl", "result.json")),
        *sorted((folder / "evaluations").glob("*.json")),
        *sorted((folder / "models").rglob("*.safetensors")),
    ]
    content = {
        str(p.relative_to(folder)): p.read_bytes().replace((lived or str(folder)).encode(), b"")
        for p in paths
    }
    return {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}


@pytest.fixture(scope="module")
def recipe(tiny_folder):
    return {**RECIPE, "model": {"name": str(tiny_folder)}}


def forked(script, *arguments, under=()):
    """Run a script that forks a child for each attempt of a run."""
    words = [
        *under,
        sys.executable,
        "-c",
        textwrap.dedent(IMPORTED_ONCE) + textwrap.dedent(script),
        *arguments,
    ]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=600, cwd=Path(__file__).parents[1]
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module", params=[SELDOM, pytest.param(OFTEN, marks=pytest.mark.slow)])
def driven(request, recipe, tmp_path_factory):
    """How often runs are killed, the folder of them and of one that is left alone, and of each its
    kills."""
    folder, times = tmp_path_factory.mktemp("driven"), request.param
    killed = {mode: (seed, share * LATER[times]) for mode, (seed, share) in KILLED.items()}
    done = forked(DRIVER, json.dumps(recipe), str(folder), str(times), json.dumps(killed))
    return times, folder, json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize("mode", KILLED)
def test_a_run_killed_at_random_moments_is_the_same_run(driven, mode):
    times, folder, measured = driven
    assert measured["whole"]["kills"] == 0
    assert measured[mode]["kills"] >= times / 2, (
        "it ended before it was interrupted often enough to say anything"
    )
    assert fingerprint(folder / mode) == fingerprint(folder / "whole")
    assert not [*folder.rglob("*.tmp"), *folder.rglob("*.part.jsonl")]
    assert not list(folder.rglob(".writing-*"))


def has_small_disks() -> bool:
    line = [
        "unshare",
        "--mount",
        "--map-root-user",
        "sh",
        "-c",
        "mount -t tmpfs -o size=1m none /mnt",
    ]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(line, capture_output=True).returncode == 0
    )


needs_small_disks = pytest.mark.skipif(
    not has_small_disks(), reason="this system does not let a test mount a small disk"
)


WRITES = (
    "recipe.yaml", "metrics.jsonl", "samples.jsonl", "checkpoints/sft", "models/.sft", "checkpoints/rl", "models/.rl",
    "evaluations/", "result.json", "report.html",
)  # fmt: skip
"""The kinds of write, by a part of the path that is first opened or made for each."""
FULL_DISK = """
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", "/mnt"], check=True)
    ballast = Path("/mnt/ballast")

    def fill():
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    def fill_at(part):
        def watch(event, arguments):
            made = event in ("os.mkdir", "tempfile.mkstemp")
            made |= event == "open" and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
            if made and part in str(arguments[0]) and not ballast.exists():
                fill()
        sys.addaudithook(watch)

    def attempt(part, errors, **how):
        pid = os.fork()
        if pid:
            return os.waitpid(pid, 0)[1]
        if part:
            fill_at(part)
        torch.set_num_threads(1)
        try:
            run_recipe(recipe, Path("/mnt/run"), **how)
        except StorageError as error:
            errors.write_text(str(error))
            os._exit(7)
        os._exit(0)

    for number, part in enumerate(json.loads(sys.argv[2])):
        out = Path(sys.argv[3]) / str(number)
        out.mkdir()
        first = attempt(part, out / "error.txt")
        ballast.unlink(missing_ok=True)
        second = attempt("", out / "again.txt", resume=True)
        (out / "ends.json").write_text(json.dumps([os.waitstatus_to_exitcode(end) for end in (first, second)]))
        shutil.move("/mnt/run", out / "run")
"""


@pytest.mark.slow
@needs_small_disks
def test_a_disk_that_is_full_at_any_kind_of_write_is_an_error_and_loses_nothing(recipe, tmp_path):
    """The disk fills up when a kind of file is first written; then there is space again, and the
    run is resumed."""
    parts = ("", *WRITES)  # the first is of a run that is left alone
    mounted = ("unshare", "--mount", "--map-root-user")
    done = forked(FULL_DISK, json.dumps(recipe), json.dumps(parts), str(tmp_path), under=mounted)
    assert json.loads((tmp_path / "0" / "ends.json").read_text()) == [0, 0], done.stderr[-3000:]
    uninterrupted = fingerprint(tmp_path / "0" / "run", "/mnt/run")
    for number, part in enumerate(WRITES, 1):
        folder = tmp_path / str(number)
        assert json.loads((folder / "ends.json").read_text()) == [7, 0], (part, done.stderr[-3000:])
        error = (folder / "error.txt").read_text()
        assert "No space left" in error, part
        assert "--resume" in error, part
        assert fingerprint(folder / "run", "/mnt/run") == uninterrupted, part
        assert not [
            path
            for path in (folder / "run").rglob("*")
            if path.suffix == ".tmp" or ".writing" in path.name
        ]


def test_a_second_process_is_kept_out(recipe, tmp_path):
    with (
        Run.start(parse_recipe(recipe), tmp_path / "run"),
        pytest.raises(RunError, match="another process"),
    ):
        Run.start(parse_recipe(recipe), tmp_path / "run", resume=True)


def test_a_run_is_not_overwritten_and_not_resumed_with_another_recipe(recipe, tmp_path):
    with Run.start(parse_recipe(recipe), tmp_path / "run") as run:
        run.metrics("sft", 1, {"train/loss": 1.0})
    with pytest.raises(RunError, match="already holds a run"):
        Run.start(parse_recipe(recipe), tmp_path / "run")
    with pytest.raises(RunError, match=r"another recipe \(seed: 3 -> 4\)"):
        Run.start(parse_recipe({**recipe, "seed": 4}), tmp_path / "run", resume=True)
    with Run.start(
        parse_recipe({**recipe, "run": {"checkpoint_every": 7}}), tmp_path / "run", resume=True
    ):
        pass
