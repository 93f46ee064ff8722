"""How long `plumbline check RECIPE` takes, and what it finds, for each of our recipes; and
near-copies of many texts.

python benchmarks/preflight.py                     # all recipes: five minutes of one core
python benchmarks/preflight.py commerce-v4 --texts 50000
"""

import argparse
import random
import time
from collections import Counter

from plumbline.checks.preflight.overlap import find_near_texts
from plumbline.checks.preflight.report import preflight_source
from plumbline.recipe import list_recipe_names


def texts(count: int, words: int = 180) -> list[str]:
    """Random texts, the first tenth of the even ones with a copy among the rest that differs in a
    word."""
    rng = random.Random(0)
    vocabulary = [f"w{index}" for index in range(20_000)]
    made = [rng.choices(vocabulary, k=words) for _ in range(count)]
    for index in range(0, count // 10, 2):
        made[count // 10 + index] = [
            *made[index][: words // 2],
            "other",
            *made[index][words // 2 + 1 :],
        ]
    return [" ".join(one) for one in made]


def main() -> None:
    """Print a line for each recipe, and one for the texts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("recipes", nargs="*", default=list_recipe_names())
    parser.add_argument("--texts", type=int, default=0)
    asked = parser.parse_args()
    for name in asked.recipes:
        wall, cpu = time.perf_counter(), time.process_time()
        found = preflight_source(name)
        spent = f"{time.perf_counter() - wall:6.1f} s {time.process_time() - cpu:6.1f} s of a core"
        counts = Counter((finding.level, finding.check) for finding in found.findings)
        said = ", ".join(
            f"{level} {check}{f' x{n}' if n > 1 else ''}" for (level, check), n in counts.items()
        )
        print(f"{name:36} {spent}  {said}", flush=True)
    if asked.texts:
        made = texts(asked.texts)
        cpu = time.process_time()
        found = find_near_texts(made[: asked.texts // 10], made[asked.texts // 10 :])
        print(
            f"{asked.texts} texts of 180 words: {len(found)} near-copies, "
            f"{time.process_time() - cpu:.1f} s of a core"
        )


if __name__ == "__main__":
    main()
