"""What ten texts earn as push messages, one for each situation, with name and product put in.

    python experiments/push_templates.py [prompts]

The texts are the first gold message of each situation without an offer (`push/situations.yaml`),
and where an offer is put in, the first with one.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from plumbline.evaluation.evaluate import evaluate_completions
from plumbline.evaluation.statistics import mean_interval
from plumbline.records import Example
from plumbline.tasks import open_task
from plumbline_commerce.database.catalogue import CATEGORIES
from plumbline_commerce.push.pairs import agree_words
from plumbline_commerce.push.rubric import situations

NOUNS = {noun.word: noun for category in CATEGORIES for noun in category.nouns}


def silent(example: Example, situation: str) -> str:
    """The situation's text, whatever may be offered."""
    return _filled(situations()[situation].plain[0], example)


def offering(example: Example, situation: str) -> str:
    """The situation's text for prompts with offers, with the first of them as the prompt says
    it."""
    offers, skeletons = example.reference["offers"], situations()[situation].offer
    return (
        _filled(skeletons[0], example, offer=offers[0])
        if offers and skeletons
        else silent(example, situation)
    )


def _filled(skeleton: str, example: Example, offer: str = "") -> str:
    given = example.reference
    return skeleton.format_map(
        {"name": given["name"], "offer": offer, **agree_words(NOUNS[given["product"]])}
    )


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 148
    following = dict(
        zip(situations(), [*list(situations())[1:], next(iter(situations()))], strict=True)
    )
    ways: dict[str, Callable[[Example], str]] = {
        "its situation's text": lambda example: silent(example, example.reference["situation"]),
        "its situation's text, the offer put in": lambda example: offering(
            example, example.reference["situation"]
        ),
        "the next situation's text": lambda example: silent(
            example, following[example.reference["situation"]]
        ),
    }
    with tempfile.TemporaryDirectory() as folder:
        task = open_task("commerce", {"job": "push", "push": count}, Path(folder) / "records")
        examples = [example for split in task.splits for example in task.examples(split)]
    print(
        f"n = {len(examples)}, {sum(bool(one.reference['offers']) for one in examples)} of them "
        "with offers\n"
    )
    print("| each prompt gets | reward |\n|---|---|")
    for name, way in ways.items():
        evaluation = evaluate_completions(
            task, examples, list(map(way, examples)), source=name, split="all"
        )
        mean = mean_interval(evaluation.rewards())
        print(f"| {name} | {mean.mean:.3f} [{mean.low:.3f}, {mean.high:.3f}] |")


if __name__ == "__main__":
    main()
