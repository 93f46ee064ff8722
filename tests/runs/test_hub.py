"""The hub: whether it answers, and uploads, against servers of this machine that stand for it."""

import os
import socket
import subprocess
import sys
import time

import pytest

from plumbline.errors import ModelError
from plumbline.runs import hub


@pytest.fixture
def listening():
    """A port on which connections are taken and nothing is answered."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        yield silent.getsockname()[1]


@pytest.fixture
def closed():
    """A port on which nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


def at(port, monkeypatch, place):
    """Make an address of this machine the hub, and an empty folder its cache."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(place))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")


@pytest.mark.parametrize("port", ["listening", "closed"])
def test_a_hub_that_does_not_answer_ends_a_command_within_seconds(port, request, tmp_path):
    number = request.getfixturevalue(port)
    environment = {
        **{key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")},
        "HF_ENDPOINT": f"http://127.0.0.1:{number}",
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "0",
    }
    command = [sys.executable, "-m", "plumbline", "eval", "nowhere/model", "--task", "forms", "--n", "2"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    took = time.monotonic() - began
    assert done.returncode == 1
    cause, fix = done.stderr.strip().splitlines()
    assert cause.startswith(
        f"error: nowhere/model is not on this machine, and the hub http://127.0.0.1:{number} does not answer ("
    )
    assert ("Connection refused" if port == "closed" else "no answer within 3 s") in cause
    assert "HTTPS_PROXY" in fix
    assert "HF_ENDPOINT" in fix
    assert took < 25, "the hub's client alone waits for 28 s between its attempts"


def test_the_hub_is_waited_for_less_than_five_seconds(listening, monkeypatch, tmp_path):
    at(listening, monkeypatch, tmp_path)
    began = time.monotonic()
    with pytest.raises(ModelError, match="org/model is not on this machine, and the hub"):
        hub.check_hub("org/model", cached=hub.is_cached("org/model"))
    assert time.monotonic() - began < 5


def test_what_is_in_the_cache_is_used_without_the_hub(closed, monkeypatch, tmp_path, capsys):
    from huggingface_hub import is_offline_mode

    at(closed, monkeypatch, tmp_path)
    (tmp_path / "models--org--model" / "snapshots" / "abc").mkdir(parents=True)
    hub.check_hub("org/model", cached=hub.is_cached("org/model"))
    assert "org/model is taken from the cache" in capsys.readouterr().err
    assert is_offline_mode()
    assert os.environ["HF_HUB_OFFLINE"] == "1"
