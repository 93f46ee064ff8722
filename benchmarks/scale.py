"""What workers gain: verdicts and rollouts in this process, and with 1, 2, ... Ray actors.

    python benchmarks/scale.py [--quick] [--most WORKERS]

Verdicts are those of the commerce job sql_qa: eight wrong and right queries to each prompt, no text
twice, judged as in training, up to eight to a call. Rollouts are those of a small random model, in
as many chunks as there are workers at most, with one thread each. Every number of workers does the
same work, and is checked to come to the same: verdicts to the last part, rollouts to the bit. Times
are of the wall, the median of the rounds; workers are open before the first.

Efficiency is the throughput over that of one worker, by what the machine could do: the number of
workers, or its cores where these are fewer.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

from models import SMALL, prompts, save_model
from plumbline.engines.workers import Samplers, open_workers, spread_verdicts
from plumbline.policies import open_policy
from plumbline.recipe import parse_recipe
from plumbline.records import Request, Sampling
from plumbline.rollouts.reward_workers import RewardWorkers
from plumbline.tasks import open_task

COPIES, VOCABULARY = 8, 4096


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="little work, one round: whether it works, not how fast",
    )
    parser.add_argument("--most", type=int, default=2, help="workers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cores = len(os.sched_getaffinity(0))
    counts, rounds = range(options.most + 1), 1 if options.quick else 5
    print(f"{cores} cores; torch {torch.__version__}; {rounds} rounds\n")
    print("| work | workers | a second [least, most] | efficiency |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for what, bench in (("verdicts", verdicts), ("answers", rollouts)):
            one, first = 0.0, None
            for count in counts:
                with bench(Path(folder), count, options) as work:
                    work(-1)  # opens the workers, and fills caches that a run fills once
                    rates, found = zip(
                        *(_timed(work, number) for number in range(rounds)), strict=True
                    )
                first = found[0] if first is None else first
                assert found[0] == first, f"{count} workers come to something else"
                middle = statistics.median(rates)
                one = middle if count == 1 else one
                share = f"{middle / one / min(count, cores):.2f}" if count else ""
                spread = f"{middle:,.0f} [{min(rates):,.0f}, {max(rates):,.0f}]"
                print(f"| {what} | {count or 'this process'} | {spread} | {share} |", flush=True)


Work = Callable[[int], list[Any]]
"""Does the work of a round, which differs from that of others in its texts or keys alone; gives
what it came to."""


def _timed(work: Work, number: int) -> tuple[float, list[Any]]:
    start = time.perf_counter()
    found = work(number)
    return len(found) / (time.perf_counter() - start), found


@contextmanager
def verdicts(folder: Path, count: int, options: argparse.Namespace) -> Iterator[Work]:
    records = folder / "data"
    size = 40 if options.quick else 400
    wanted = {"job": "sql_qa", "orders": 4000, "sql_qa": size + size // 4}
    task = open_task("commerce", wanted, records)
    examples = list(task.examples("train"))[:size]
    wrong = [task.baselines[name](examples) for name in ("shuffled-gold", "select-everything")]
    texts = [
        [one.gold, *others, one.gold + " LIMIT 1"]
        for one, *others in zip(examples, *wrong, strict=True)
    ]
    recipe = _recipe(wanted, verdicts=count)

    def work(number: int) -> list[Any]:
        with RewardWorkers(judged, examples) as judges:
            # as a sampler tells them: whole groups wait where a worker is late
            for copy in range(COPIES):
                for prompt, answers in enumerate(texts):
                    judges.submit(
                        prompt,
                        copy,
                        answers[copy % 4].replace("SELECT", f"SELECT /* {number} {copy} */", 1),
                    )
        return [
            judges.result(prompt, copy)[1]
            for prompt in range(len(examples))
            for copy in range(COPIES)
        ]

    with open_workers(recipe.scale) if count else nullcontext():
        run = SimpleNamespace(folder=folder)
        judged = spread_verdicts(recipe, task, "", run) if count else task
        yield work


@contextmanager
def rollouts(folder: Path, count: int, options: argparse.Namespace) -> Iterator[Work]:
    source = folder / "model"
    if not source.is_dir():
        save_model(source, **SMALL, vocabulary=VOCABULARY)
    length, rows = (32, 8) if options.quick else (128, 32)
    recipe = _recipe({}, str(source), rows, samplers=count)
    policy = open_policy(recipe.model, str(source))
    chats = prompts(2 * options.most, 64, VOCABULARY)
    sampling = Sampling(max_tokens=length)

    def work(number: int) -> list[Any]:
        requests = [
            Request((number, p, copy), chat, sampling)
            for p, chat in enumerate(chats)
            for copy in range(rows // 2)
        ]
        drawn = {
            request.key: trajectory.logprobs.tobytes()
            for request, trajectory in sampler.sample(requests)
        }
        return [drawn[request.key] for request in requests]

    with open_workers(recipe.scale) if count else nullcontext():
        run = SimpleNamespace(event=print)
        sampler: Any = policy
        if count:
            sampler = Samplers(recipe, policy, str(source), run)
            sampler.take(policy, 0)
        yield work


def _recipe(options: dict[str, Any], model: str = "none", rows: int = 1, **scale: int) -> Any:
    return parse_recipe(
        {
            "name": "scale",
            "model": {"name": model, "rows_at_once": rows, "threads": 1},
            "task": {"name": "commerce", "options": options},
            "scale": scale,
        }
    )


if __name__ == "__main__":
    main()
