"""Findings that need no model: each gives rows of one value a seed, or of an interval that was
computed.

What is exact is exact by arithmetic; what is drawn is judged by the real verifiers.
"""

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from experiments.strict_parsing import WAYS
from plumbline.evaluation.evaluate import evaluate_completions
from plumbline.evaluation.statistics import rate_interval
from plumbline.recipe.sections import OptimiserSection
from plumbline.seeds import generator
from plumbline.tasks import open_task
from plumbline_commerce.extraction.baselines import write_sloppily
from plumbline_commerce.options import Sloppiness

OVER_SEEDS = "means over {} seeds with Student's 95 % interval"
DRAWS = 2000


def parser(seeds: Sequence[int], count: int = 300) -> dict[str, Any]:
    """Answers that hold the gold values, written in several ways and read strictly and
    leniently."""
    ways = {**WAYS, "a model's mixture": Sloppiness(decimal_comma=0.6, fenced=0.2, unclosed=0.1)}
    rows: dict[str, dict[str, list[float]]] = {name: {} for name in ways}
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            task = open_task(
                "commerce",
                {"seed": 42 + seed, "orders": 4000, "extraction": 400},
                Path(folder) / "records",
            )
            examples = list(task.examples("train"))[:count]
        for name, sloppiness in ways.items():
            rng = generator(seed, name)
            completions = [
                write_sloppily(example.gold or "", sloppiness, rng) for example in examples
            ]
            found = evaluate_completions(task, examples, completions, source=name, split="train")
            for reading in ("strict", "lenient"):
                mean = float(np.mean([row.readings[reading] for row in found.rows]))
                rows[name].setdefault(f"{reading} reward", []).append(mean)
    said = f"{OVER_SEEDS.format(len(seeds))}, {count} answers of each; all hold the gold values"
    return {
        "said": said,
        "seeds": list(seeds),
        "shown": ["strict reward", "lenient reward"],
        "rows": rows,
    }


# -- how many examples -----------------------------------------------------------------------------

LOGGED = {"ReFusion": {25: 13, 124: 9}, "FS-DFM": {25: 18, 124: 53}}
"""The forms log's answers of its SFT models with a reward above 0, of so many."""
KNOWN = 5
"""Forms that the ReFusion SFT had seen: 200 of 992 rows in the order of the file are five forms of
forty."""


def evaluation_size(seeds: Sequence[int]) -> dict[str, Any]:
    """Shares above 0 that a model which knows five of 25 forms gets, by how its examples are
    chosen."""
    ways = ("25 in file order", "25 at random", "124 by form")
    rows: dict[str, dict[str, Any]] = {
        way: {"share above 0": [], "spread over draws": []} for way in ways
    }
    for seed in seeds:
        right = forms_known(seed)
        rng = generator(seed, "evaluation-size")
        every = np.concatenate(right)
        drawn = {
            "25 in file order": [right[0][:25].mean()],
            "25 at random": [rng.choice(every, 25, replace=False).mean() for _ in range(DRAWS)],
            "124 by form": [
                np.concatenate([rng.choice(form, 5, replace=False) for form in right])[1:].mean()
                for _ in range(DRAWS)
            ],
        }
        for way, means in drawn.items():
            rows[way]["share above 0"].append(float(np.mean(means)))
            if len(means) > 1:
                rows[way]["spread over draws"].append(float(np.std(means)))
    del rows["25 in file order"]["spread over draws"]
    for name, counts in LOGGED.items():
        for n, count in counts.items():
            rows[f"log: {name}, {n}"] = {
                "share above 0": asdict(rate_interval(np.arange(n) < count))
            }
    chance = {name: at_least(counts[25], 25, counts[124] / 124) for name, counts in LOGGED.items()}
    said = (
        f"{OVER_SEEDS.format(len(seeds))}, of the log's counts Wilson's; chance of its 25 if the "
        "124 are the truth: "
    ) + ", ".join(f"{name} {value:.1e}" for name, value in chance.items())
    return {
        "said": said,
        "seeds": list(seeds),
        "shown": ["share above 0"],
        "rows": rows,
        "chance": chance,
    }


def forms_known(seed: int) -> list[np.ndarray]:
    """Of each form whether the server got anything right [50], for plans with gaps for the first
    five and none else."""
    options = {
        "seed": 42 + seed,
        "held_out": [],
        "records": 50,
        "sloppiness": {"skipped": 0.1, "unsent": 0.1},
    }
    with tempfile.TemporaryDirectory() as folder:
        task = open_task("forms", options, Path(folder))
        by_form: dict[str, list[float]] = {}
        for split in ("train", "val", "test"):
            for example in task.examples(split):
                known = list(task.forms).index(example.stratum) < KNOWN  # type: ignore[attr-defined]
                plan = task.demonstration(example, seed=hash_of(seed, example.id)) if known else ""
                by_form.setdefault(example.stratum, []).append(
                    float(task.judge(example, plan)[1].total > 0)
                )
    return [np.array(by_form[name]) for name in task.forms]  # type: ignore[attr-defined]


def hash_of(*names: int | str) -> int:
    return int(generator(*names).integers(2**31))


def at_least(count: int, n: int, rate: float) -> float:
    """The binomial probability of so many or more."""
    return sum(math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(count, n + 1))


# -- coverage --------------------------------------------------------------------------------------

JOBS = {"extraction": 590, "sql_qa": 594, "insights": 148, "push": 148}
"""The commerce log's prompts: about 1,480 in all, of which it counts insights and push."""


def coverage(seeds: Sequence[int]) -> dict[str, Any]:
    """How much of 1,480 prompts is seen by so many steps, in a fresh order or drawn with
    replacement."""
    plans = {
        "200 steps x 1 prompt": (200, 1, False),
        "200 steps x 2 prompts": (200, 2, False),
        "600 steps x 1 prompt": (600, 1, False),
        "600 steps x 2 prompts": (600, 2, False),
        "600 x 2, with replacement": (600, 2, True),
    }
    kinds = np.repeat(list(JOBS), list(JOBS.values()))
    rows: dict[str, dict[str, list[float]]] = {}
    for name, (steps, count, again) in plans.items():
        row: dict[str, list[float]] = {"share seen": [], "insights prompts seen": []}
        for seed in seeds:
            drawn = generator(seed, "coverage", name).choice(
                len(kinds), steps * count, replace=again
            )
            seen = np.unique(drawn)
            row["share seen"].append(len(seen) / len(kinds))
            row["insights prompts seen"].append(float((kinds[seen] == "insights").sum()))
        rows[name] = row
    said = f"{OVER_SEEDS.format(len(seeds))}; without replacement the share is exact"
    return {"said": said, "seeds": list(seeds), "shown": ["share seen"], "rows": rows}


def rate_left(seeds: Sequence[int]) -> dict[str, Any]:
    """What a cosine over 200 steps with a tenth of warm-up leaves of the learning rate, and of all
    that is to come."""
    section = OptimiserSection(schedule="cosine", warmup=0.1)
    rates = np.array([section.learning_rate_factor(step, 200) for step in range(200)])
    rows = {
        f"after step {step}": {
            "of the highest rate": exact(float(rates[step])),
            "of the run's sum of rates still to come": exact(
                float(rates[step:].sum() / rates.sum())
            ),
        }
        for step in (100, 130, 150, 170, 190)
    }
    names = list(rows["after step 100"])
    return {"said": "by arithmetic", "seeds": list(seeds), "shown": names, "rows": rows}


def exact(value: float) -> dict[str, float]:
    return {"mean": value, "low": value, "high": value, "n": 1}


# -- what a reward reads ---------------------------------------------------------------------------


def server(seeds: Sequence[int], limit: int = 125) -> dict[str, Any]:
    """What plans earn by the forms log's rubric, before and after its repair, and by what the
    server received."""
    rows: dict[str, dict[str, list[float]]] = {}
    for seed in seeds:
        options = {"seed": 42 + seed, "held_out": [], "records": 50}
        careless = {**options, "sloppiness": {"skipped": 0.3}}
        with tempfile.TemporaryDirectory() as folder:
            received, told = (
                open_task("forms", {**options, "rubric": r}, Path(folder))
                for r in ("received", "seed-v6")
            )
            gaps = open_task("forms", careless, Path(folder))
            examples = received.examples("test")[:limit]
            gold = [example.gold or "" for example in examples]
            plans: Mapping[str, Sequence[str]] = {
                "perfect plan": gold,
                "a third left out": [
                    gaps.demonstration(example, hash_of(seed, example.id))
                    for example in gaps.examples("test")[:limit]
                ],
                "perfect, never sent": ["\n".join(text.splitlines()[:-1]) for text in gold],
                "sent empty": received.baselines["submit-only"](examples),
                "sent empty, then typed": received.baselines["type-after-submit"](examples),
                "says thank you": received.baselines["success-text"](examples),
            }
            for name, texts in plans.items():
                row = rows.setdefault(
                    name, {"part dead": [], "reads the plan": [], "reads the server": []}
                )
                old = evaluate_completions(told, examples, texts, source=name, split="test").rows
                new = evaluate_completions(
                    received, examples, texts, source=name, split="test"
                ).rows
                dead = [one.reward - 0.4 * (one.parts["field_accuracy"] or 0.0) for one in old]
                row["part dead"].append(float(np.mean(dead)))
                row["reads the plan"].append(float(np.mean([one.reward for one in old])))
                row["reads the server"].append(float(np.mean([one.reward for one in new])))
    said = f"{OVER_SEEDS.format(len(seeds))}, {len(examples)} forms each"
    return {"said": said, "seeds": list(seeds), "shown": list(row), "rows": rows}
