"""MiniWoB++: episodes a second of scripted plans in warm pages, task by task and for all together.

    python benchmarks/miniwob.py                        # every task whose oracle answers
    python benchmarks/miniwob.py click-button --seconds 10

A group is one seed and G copies of its oracle's plan, judged in one call, each in an episode of its
own. Two threads have a page each. Pages are opened, and plans made, before the clock starts; what a
run pays for changing from task to task is told apart. An episode that does not earn reward 1 is
counted and shown.
"""

import argparse
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from plumbline.records import Failure
from plumbline_miniwob import pages
from plumbline_miniwob.browser.pool import EpisodePool, OracleEpisode

THREADS = 2


def say(text: str) -> None:
    """Write a line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def timed(pool: EpisodePool, task: str, args: argparse.Namespace) -> tuple[float, int, int] | None:
    """Episodes a second, episodes, and those of them that failed; None where no oracle answers."""
    plans = {}
    for place in range(args.seeds):
        found = pool.gold(task, f"bench-{place}")
        if isinstance(found, OracleEpisode) and found.ran.raw == 1:
            plans[f"bench-{place}"] = found.acts
    if not plans:
        return None

    def judge(seed: str) -> int:
        found = pool.run(task, seed, [plans[seed]] * args.group, shows=False)
        return sum(isinstance(one, Failure) or one.raw != 1 for one in found)

    seeds = list(plans)
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(judge, seeds[:1] * THREADS))  # both pages are open
        done = failed = 0
        began = time.perf_counter()
        while time.perf_counter() - began < args.seconds:
            failed += sum(threads.map(judge, (seeds * 8)[:16]))
            done += 16 * args.group
        took = time.perf_counter() - began
    return done / took, done, failed


def changing(pool: EpisodePool, tasks: list[str], args: argparse.Namespace) -> float:
    """Episodes a second where every group is of another task than the one before."""
    plans = {
        task: found.acts
        for task in tasks
        if isinstance(found := pool.gold(task, "bench-0"), OracleEpisode)
    }
    with ThreadPoolExecutor(THREADS) as threads:
        began = time.perf_counter()
        list(
            threads.map(
                lambda task: pool.run(task, "bench-0", [plans[task]] * args.group, shows=False),
                plans,
            )
        )
        return len(plans) * args.group / (time.perf_counter() - began)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--group", type=int, default=8, help="plans of a group")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each task")
    parser.add_argument("--keep", type=int, default=32, help="pages that stay open")
    args = parser.parse_args()
    pool = EpisodePool(keep=args.keep, at_once=THREADS)
    try:
        rates = {}
        for task in args.tasks or pages.names():
            found = timed(pool, task, args)
            if found is None:
                say(f"{task:32} no oracle that answers")
                continue
            rates[task], done, failed = found
            again = " (its page is loaded for every episode)" if pages.is_reloaded(task) else ""
            say(
                f"{task:32} {rates[task]:7.0f} episodes/s   n={done}"
                + (f", {failed} failed" if failed else "")
                + again
            )
        if len(rates) > 1:
            whole = len(rates) / sum(1 / rate for rate in rates.values())
            low, middle, high = statistics.quantiles(rates.values(), n=4)
            say(
                f"{len(rates)} tasks: {whole:.0f} episodes/s where each has as many episodes as "
                "any other"
            )
            say(f"by task: quartiles {low:.0f}, {middle:.0f}, {high:.0f} episodes/s")
            rate = changing(pool, list(rates), args)
            say(
                f"groups of {args.group}, each of another task, {args.keep} pages kept: {rate:.0f} "
                "episodes/s"
            )
    finally:
        pool.close()


if __name__ == "__main__":
    main()
