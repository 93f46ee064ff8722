"""A run with workers that loses its cluster, or is interrupted, ends cleanly and resumes to the
same result."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from plumbline.errors import EngineError, ModelError
from plumbline.recipe import parse_recipe
from plumbline.recipe.execution import ScaleSection
from plumbline.training.pipeline import run_recipe
from tests.test_never_lost import fingerprint

pytest.importorskip("ray", reason="ray is not installed (pip install '.[ray]')")

RECIPE = {
    "name": "spread",
    "seed": 5,
    "task": {"name": "tests.engines.faults:open_faulty", "options": {"size": 8, "turns": 2}},
    "rl": {
        "steps": 12,
        "prompts_per_step": 2,
        "group_size": 4,
        "optimiser": {"learning_rate": 1e-3},
    },
    "sampling": {"max_tokens": 8},
    "evaluation": {"every": 6, "limit": 4, "final": ["val"]},
    "run": {"checkpoint_every": 1, "preflight": False},
    "checks": {"every": 0},
}
SCALE = {"verdicts": 1, "samplers": 1}
DRIVER = """
    import json, os, signal, subprocess, sys, threading, time
    from pathlib import Path
    import torch
    from plumbline.engines import workers
    from plumbline.errors import EngineError
    from plumbline.training.pipeline import run_recipe
    from plumbline.recipe import parse_recipe

    torch.set_num_threads(1)
    folder, mode = Path(sys.argv[2]), sys.argv[3]
    workers.PATIENCE, workers.LOOK = 0.4, 0.05  # the run is over in seconds
    facts = {}

    def strike():
        import ray
        metrics = folder / "metrics.jsonl"
        while not (metrics.is_file() and metrics.read_text().count("train/loss") >= 1):
            time.sleep(0.02)
        processes = ray._private.worker._global_node.all_processes
        head, raylet = (processes[name][0].process for name in ("gcs_server", "raylet"))
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(raylet.pid)], capture_output=True, text=True).stdout
        facts["pids"] = [head.pid, raylet.pid, *map(int, found.split())]
        if mode == "head":
            head.kill()
        if mode == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=strike, daemon=True).start()
    try:
        run_recipe(parse_recipe(json.loads(sys.argv[1])), folder)
        facts["ended"] = "finished"
    except EngineError as error:
        facts["ended"] = str(error)
    except KeyboardInterrupt:
        facts["ended"] = "interrupted"
    print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def recipe(tiny_folder):
    return {**RECIPE, "model": {"name": str(tiny_folder), "threads": 1}}


@pytest.fixture(scope="module")
def alone(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone") / "run"
    run_recipe(parse_recipe(recipe), folder)
    return fingerprint(folder)


def lives(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.is_file() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "ended"), [("head", "has not answered"), ("interrupt", "interrupted")]
)
def test_a_run_that_loses_its_cluster_or_is_interrupted_resumes_to_the_same(
    recipe, alone, tmp_path, mode, ended
):
    """kill -9 of the head of its local cluster, or Ctrl-C: a clear end, no process is left, and
    nothing is lost."""
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(DRIVER),
            json.dumps({**recipe, "scale": SCALE}),
            tmp_path / "run",
            mode,
        ],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "RAY_ADDRESS": ""},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    facts = json.loads(result.stdout.strip().splitlines()[-1])
    assert ended in facts["ended"]
    assert not (tmp_path / "run" / "result.json").exists()
    run_recipe(parse_recipe(recipe), tmp_path / "run", resume=True)
    assert fingerprint(tmp_path / "run") == alone
    limit = time.monotonic() + 60
    while any(lives(pid) for pid in facts["pids"]) and time.monotonic() < limit:
        time.sleep(0.1)
    assert not [pid for pid in facts["pids"] if lives(pid)]


def test_where_no_cluster_answers():
    from plumbline.engines.workers import open_workers

    nowhere = ScaleSection(verdicts=1, address="127.0.0.1:9")
    with (
        pytest.raises(EngineError, match=r"127\.0\.0\.1:9"),
        open_workers(nowhere),
    ):
        pass


ASKS = (
    "import sys; from ray._raylet import GcsClient; "
    "GcsClient(address=sys.argv[1]).get_all_node_info(timeout=60)"
)
LOCAL = f"""
    import json, os, subprocess, sys
    from plumbline.engines.workers import connect_cluster

    with connect_cluster(None, 1, "this test"):
        import ray
        address = sys.argv[1:] = [ray.get_runtime_context().gcs_address]
        exec({ASKS!r})  # this process has the token
        others = {{name: value for name, value in os.environ.items() if not name.startswith("RAY_")}}
        environment = {{**others, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}}
        command = [sys.executable, "-c", {ASKS!r}, *address]
        asked = subprocess.run(command, env=environment, capture_output=True, text=True)
        print(json.dumps([*address, asked.returncode, "token" in asked.stderr]))
"""


def test_a_local_cluster_takes_nobody_who_does_not_show_its_token():
    """In a process of its own: Ray keeps a token for as long as its process lives."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [sys.executable, "-c", textwrap.dedent(LOCAL)]
    result = subprocess.run(command, env=others, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    address, *refused = json.loads(result.stdout.strip().splitlines()[-1])
    assert (address.startswith("127."), refused) == (True, [1, True])


def test_without_ray_the_extra_is_named(monkeypatch):
    from plumbline.engines.workers import open_workers

    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(ModelError, match=r"needs ray.*\n.*\.\[ray\]"),
        open_workers(ScaleSection(samplers=1)),
    ):
        pass
