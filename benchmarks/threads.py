"""What threads that spin while they wait gain a training that is alone, and cost two that share the cores.

    plumbline get smollm2-135m
    python benchmarks/threads.py --spins 0 300 1000 3000 10000

Each line is of processes of their own, because GNU's OpenMP reads GOMP_SPINCOUNT when torch is loaded.
"""

import argparse
import os
import subprocess
import sys
import time

from plumbline.errors import PlumblineError

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

BATCHES, COPIES = 4, 8
SHARED, ANSWER = 170, 30
"""Tokens that all sequences begin with, and that are learnt."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/smollm2-135m")
    parser.add_argument("--spins", type=int, nargs="+", default=[0, 10_000])
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        try:
            print(batches(given.model))
        except PlumblineError as error:
            sys.exit(f"error: {error}")
        return
    print("| GOMP_SPINCOUNT | alone [s] | two side by side [s] |\n|---|---|---|")
    for spin in given.spins:
        alone, beside = ([f"{one:.1f}" for one in started(given.model, spin, count)] for count in (1, 2))
        print(f"| {spin} | {alone[0]} | {', '.join(beside)} |", flush=True)


def started(model: str, spin: int, count: int) -> list[float]:
    """Seconds that each of so many processes took for its batches, all at once."""
    command = [sys.executable, __file__, "--worker", "--model", model]
    own = os.environ | {"GOMP_SPINCOUNT": str(spin)}
    workers = [subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    found = [(worker.communicate()[0], worker.returncode) for worker in workers]
    if any(status for _, status in found):
        sys.exit("a worker failed; its error stands above")
    return [float(told) for told, _ in found]


def batches(model: str) -> float:
    """Seconds of a few batches of SFT after a first, which compiles its products."""
    import numpy as np

    from plumbline.policies import open_policy
    from plumbline.policies.autoregressive.options import AutoregressiveModel
    from plumbline.policies.policy import Demonstration

    lora = {"rank": 16, "alpha": 32}
    options = AutoregressiveModel(name=model, dtype="bfloat16", lora=lora, threads=os.cpu_count() or 1)
    policy, rng = open_policy(options, model), np.random.default_rng(0)
    first, *rest = (rng.integers(100, 40_000, count).tolist() for count in (SHARED, *rng.integers(150, 300, COPIES)))
    shown = [Demonstration((*first, *own), (False,) * (SHARED + len(own) - ANSWER) + (True,) * ANSWER) for own in rest]
    policy.supervised_loss(shown, ()).backward()
    began = time.perf_counter()
    for _ in range(BATCHES):
        policy.supervised_loss(shown, ()).backward()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
