"""Two commits of Plumbline: sampling, or a whole RL step, of every family, in two processes that take turns.

    git worktree add --detach ../before COMMIT
    python benchmarks/commits.py ../before [--pairs 15] [--only flow/16/sample]

A tiny model of equal random weights, equal prompts, 16 rows that all fill 64 places, one thread. So small a network
leaves what stands around it the largest share that it can have. Counted is the processes' CPU time, which other work on
the machine disturbs less than it does the clock. Each checkout runs its own copy of this file, because calls change; an
older one is given a copy that fits it.
"""

import argparse
import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pairing import HEADER, Ratio

STEPS = {"autoregressive": [64], "masked": [16, 64], "slots": [4, 16], "flow": [16, 64]}
POINTS = [f"{family}/{n}/{what}" for family, counts in STEPS.items() for n in counts for what in ("sample", "step")]
CHATS = [[{"role": "user", "content": f"{number} " + "ola mundo " * 3}] for number in range(4)]
COPIES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of the other commit")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=POINTS, default=POINTS)
    options = parser.parse_args()
    sides = [start(root.resolve()) for root in (Path(__file__).parents[1], options.before)]
    print("| family / steps / what | " + " | ".join(HEADER).replace("theirs", "before").replace("ours", "now") + " |")
    print("|" + "---|" * (1 + len(HEADER)))
    for point in options.only:
        pairs = [[ask(side, point) for side in sides] for _ in range(options.pairs + 1)][1:]
        ratios, (now, before) = [then / now for now, then in pairs], map(statistics.median, zip(*pairs, strict=True))
        row = Ratio(statistics.median(ratios), min(ratios), max(ratios), now, before, len(pairs), None, None).row(point)
        print(row, flush=True)


def start(root: Path) -> subprocess.Popen[str]:
    threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    environment = {**os.environ, **threads, "PYTHONPATH": str(root / "src"), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", "import commits; commits.answer()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=root / "benchmarks", env=environment, **pipes)


def ask(side: subprocess.Popen[str], point: str) -> float:
    print(point, file=side.stdin, flush=True)
    return float(side.stdout.readline())


def answer() -> None:
    """Do each point that standard input names, and say how many CPU seconds it took."""
    work = {}
    for line in sys.stdin:
        point = line.strip()
        work[point] = work.get(point) or prepare(*point.split("/"))
        began = time.process_time()
        work[point]()
        print(time.process_time() - began, flush=True)


def prepare(family: str, steps: str, what: str):
    from plumbline.api import sampled
    from plumbline.policies import open_policy
    from plumbline.policies.pretrained.tiny import make_tiny
    from plumbline.recipe import TinySection
    from plumbline.recipe.families import options_of
    from rl_step import stepping

    sizes, options = TinySection(hidden=64, layers=2, heads=4, vocabulary=1024, context=256), options_of(family)
    own = {"autoregressive": {}, "slots": {"slot": 4}}.get(family, {"canvas": 64})
    with tempfile.TemporaryDirectory() as folder:
        make_tiny(Path(folder), sizes, [f"ola mundo {i}" for i in range(2000)], seed=0, family=family)
        policy = open_policy(options.model(name=folder, device="cpu", threads=1, **own), folder)
    policy.chat.stop_ids = (-1,)  # no answer ends early
    if family == "slots":
        policy.ids = dataclasses.replace(policy.ids, stops=(-1,))
    law = options.sampling(max_tokens=64, **({} if family == "autoregressive" else {"steps": int(steps)}))
    if what == "step":
        return stepping(policy, CHATS, law, COPIES)
    return lambda: sampled(policy, CHATS, COPIES, law, seed=0)


if __name__ == "__main__":
    main()
