"""The lenient JSON reader, the standard library, json-repair and the parser that this one replaces.

    python benchmarks/lenient_json.py [documents for each seed] [seeds]

Every reader gets the same texts, and the same typed coercion on top (`"4,5"` becomes 4.5 where the
schema says number), which only helps the others. Right: equal to the document, types included.
Silently wrong: something else came back as if it were the answer. Incomplete: something else came
back, and the reader said so (only ours can). Failed: nothing, or no object. Times are process time
of one core, the best of several rounds.
"""

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from plumbline.tasks.text.json_schema import coerce
from plumbline.tasks.text.lenient_json import Schema, read_json
from tests.text import json_fuzz
from tests.text.json_fuzz import FAULTS, PUBLISHED, same
from tests.text.seed_parser import extract_json

Reader = Callable[[str, Schema], tuple[Any, bool]]
"""A value, and whether the reader calls it complete."""
Sample = tuple[str, list[Any]]
"""A text, and the values that are right."""


def ours(text: str, schema: Schema) -> tuple[Any, bool]:
    reading = read_json(text, schema)
    return reading.value, reading.complete


def loads(text: str, schema: Schema) -> tuple[Any, bool]:
    try:
        value = json.loads(text)
    except ValueError:
        return None, True
    return (coerce(value, schema, set()) if isinstance(value, dict) else None), True


def seed(text: str, schema: Schema) -> tuple[Any, bool]:
    value = extract_json(text)
    return (None if value is None else coerce(value, schema, set())), True


def readers() -> dict[str, Reader]:
    found: dict[str, Reader] = {
        "plumbline": ours,
        "json.loads": loads,
        "the commerce log's parser": seed,
    }
    try:
        import json_repair
    except ImportError:
        print("(json-repair is not installed: `pip install json-repair`)")
        return found

    def repair(text: str, schema: Schema) -> tuple[Any, bool]:
        value = json_repair.loads(text)
        return (coerce(value, schema, set()) if isinstance(value, dict) else None), True

    return {**found, "json-repair": repair}


def measure(
    reader: Reader, samples: list[Sample], schema: Schema, rounds: int
) -> tuple[Counter[str], float]:
    """What became of the texts, and microseconds a call."""
    counts: Counter[str] = Counter()
    for text, accepted in samples:
        value, complete = reader(text, schema)
        if any(same(value, right) for right in accepted):
            counts["right"] += 1
        elif value is None:
            counts["failed"] += 1
        else:
            counts["wrong" if complete else "incomplete"] += 1
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        for text, _ in samples:
            reader(text, schema)
        best = min(best, time.process_time() - start)
    return counts, best / len(samples) * 1e6


def table(title: str, samples: list[Sample], schema: Schema, rounds: int) -> None:
    print(f"\n{title} (n = {len(samples)})\n")
    print("| reader | right | silently wrong | incomplete, and says so | failed | µs a call |")
    print("|---|---|---|---|---|---|")
    for name, reader in readers().items():
        counts, micros = measure(reader, samples, schema, rounds)
        shares = " | ".join(
            str(counts[verdict]) for verdict in ("right", "wrong", "incomplete", "failed")
        )
        print(f"| {name} | {shares} | {micros:.1f} |")


def corpus() -> tuple[list[Sample], Schema]:
    folder = ROOT / "tests" / "text"
    rows = [
        json.loads(line) for line in (folder / "lenient_json_cases.jsonl").read_text().splitlines()
    ]
    schema = Schema.from_json(json.loads((folder / "lenient_json_schema.json").read_text()))
    return [(row["text"], [row["expected"], *row["alts"]]) for row in rows], schema


def fuzz(faults: tuple[str, ...], documents: int, seeds: int) -> list[Sample]:
    samples = []
    for number in range(seeds):
        for i in range(documents):
            rng = random.Random((number + 100) * 10_000_000 + i)
            document = json_fuzz.document(rng)
            chosen = json_fuzz.sample_faults(rng, faults)
            samples.append((json_fuzz.write(document, rng, chosen), [document]))
    return samples


def main() -> None:
    documents, seeds = (
        int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((1, 1_500), (2, 2))
    )
    print(f"Python {sys.version.split()[0]}, one core, process time")
    cases, schema = corpus()
    table("The development cases", cases, schema, rounds=30)
    typed = Schema.from_json(json_fuzz.SCHEMA)
    few, many = fuzz(PUBLISHED, documents, seeds), fuzz(FAULTS, documents, seeds)
    table(f"Fuzz, the {len(PUBLISHED)} faults of the published comparison", few, typed, 2)
    table(f"Fuzz, all {len(FAULTS)} faults", many, typed, 2)


if __name__ == "__main__":
    main()
