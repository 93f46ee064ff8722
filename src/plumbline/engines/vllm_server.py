"""A vLLM server of a run's own: its interpreter, its command, and why it ended.

Whoever reaches such a server can change its weights, and with `transfer` run code in it: vLLM unpickles what it is
sent, and a key guards its paths under /v1 only. So it listens on a Unix socket in a folder of this user, on no port.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any

from plumbline.engines.processes import Kept
from plumbline.errors import EngineError
from plumbline.storage import clear_os_errors

MODULE = "vllm.entrypoints.openai.api_server"
PINNED = "0.32"  # its interfaces are used; they changed at 0.28 and again after 0.31
PYTHON = "PLUMBLINE_VLLM_PYTHON"  # names an interpreter with vLLM, where no recipe does
FULL = ("out of memory", "outofmemory", "no available memory", "cannot allocate memory", "free memory on device")
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # of adapters, which it knows
# What its command and environment also say, by how weights are handed over and by the device.
FURTHER: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "lora": ("--enable-lora --max-loras 2", {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}),
    "transfer": ('--weight-transfer-config {"backend":"ipc"}', {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}),
    "cpu": ("--enforce-eager", {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "2"}),
}


def check(python: str | None) -> str:
    """The interpreter of a server: as given, that of PLUMBLINE_VLLM_PYTHON, or this one.

    Raises:
        EngineError: it is not there, or has no vLLM.
    """
    python = python or os.environ.get(PYTHON) or sys.executable
    root = MODULE.partition(".")[0]
    looked = [python, "-c", f"import importlib.util as i, sys; sys.exit(i.find_spec('{root}') is None)"]
    try:
        absent = subprocess.run(looked, capture_output=True, check=False).returncode != 0  # noqa: S603 - the user's
    except OSError as error:
        raise EngineError(f"cannot start {python}: {error.strerror}", "give an interpreter in engine.python") from error
    if absent:
        raise EngineError(
            f"{python} has no {root}",
            f"install vLLM {PINNED} in an environment of its own (docs/vllm.md) and name its interpreter in "
            f"engine.python or in {PYTHON}, or give engine.address",
        )
    return python


def socket() -> Path:
    """Where a server's socket is to be, in a new folder that no other user may open.

    Raises:
        EngineError: its path is longer than that of a socket may be.
        StorageError: the folder cannot be made.
    """
    with clear_os_errors(Path(gettempdir())):
        folder = Path(mkdtemp(prefix="plumbline-vllm-"))
    if len(os.fsencode(folder)) > 90:
        folder.rmdir()
        raise EngineError(f"{folder.parent} is too long a path for a server's socket", "set TMPDIR to a shorter one")
    return folder / "socket"


def command(
    how: str, policy: Any, served: str, dtype: str, socket: Path, seed: int
) -> tuple[list[str], dict[str, str]]:
    """What starts a server, but for its interpreter and the recipe's own arguments, and its environment.

    Args:
        how: weights are handed over.
        policy: whose weights it has.
        served: the folder of whole weights.
        dtype: of its weights.
        socket: that it listens on (see `socket`).
        seed: of its random numbers.
    """
    base, environment = served, {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONSAFEPATH": "1"}
    words = (
        f"--served-model-name plumbline --dtype {dtype} --seed {seed} "
        f"--max-model-len {policy.context} --logprobs-mode processed_logprobs --generation-config vllm "
        "--gpu-memory-utilization 0.4"  # the learner needs the rest
    ).split()
    if how == "lora":
        config = policy.adapter.peft_config["default"]
        base = str(config.base_model_name_or_path)
        words += ["--max-lora-rank", str(min((one for one in RANKS if one >= config.r), default=config.r))]
    for key in (how, policy.device.type):
        further, said = FURTHER.get(key, ("", {}))
        words += further.split()
        environment |= said
    return ["-m", MODULE, "--model", base, "--uds", str(socket), *words], environment


def ended(server: Kept) -> EngineError | None:
    """Why a server's process has ended, as far as its log says; None while it runs."""
    if server.status is None:
        return None
    text = server.said()
    errors = [f": {line.strip()[-300:]}" for line in text.splitlines() if "Error" in line]
    short = any(word in text.lower() for word in FULL)
    what = "ran out of memory" if short else f"ended with status {server.status}"
    return EngineError(
        f"the vLLM server {what}{''.join(errors[-1:])}",
        "where memory was short, set --max-model-len, --gpu-memory-utilization or --kv-cache-memory-bytes in "
        f"engine.arguments, else correct them or the model; its log is {server.log}",
    )
