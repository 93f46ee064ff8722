"""The task that the small arms train on: copy six letters, all of them small or all of them
capital.

A tiny model learns it in seconds, careless demonstrations spoil it as records spoil a real one (an
"a" in the place of letters), and GRPO brings it back. Small and capital letters are equally right
and equally often shown, so what stands at one place depends on what stands at the others: an answer
that is drawn in one piece mixes them.
"""

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.records import Example, Outcome, Score
from plumbline.seeds import generator
from plumbline.tasks.baselines import blank, echo
from plumbline.tasks.task import Baseline, gold_of

HELD_OUT = {0: "test", 1: "val"}
"""Whose prompts are those whose letters, counted from 0, add up to this modulo 8: no two splits
share one."""
DEFAULTS = {
    "seed": 0,
    "skipped": 0.0,
    "distinct": None,
    "reward": "share",
    "letters": 16,
    "length": 6,
    "test": 200,
}
"""seed: of the prompts; skipped: how often a demonstration leaves a letter out; distinct: how many
prompts there are to train on (None: all); reward: one of `REWARDS`; letters: of the alphabet;
length: of a prompt; test: its prompts."""
REWARDS = {
    "share": {"share": 1.0},
    "exact": {"exact": 1.0},
    # As the forms log had it: one part for that something was sent, and one for what was sent,
    # which was dead.
    "parts": {"form": 0.6, "share": 0.4},
    "dead": {"form": 0.6},
    # Half of it is luck, so that groups have a signal however good the answers are, and that signal
    # teaches nothing.
    "luck": {"share": 0.5, "luck": 0.5},
}


class Copying:
    """See the module."""

    name = "copying"
    splits = ("train", "val", "test")
    form: Sequence[str] = ()

    def __init__(self, options: Mapping[str, Any]) -> None:
        if unknown := options.keys() - DEFAULTS.keys():
            raise ValueError(f"no option {', '.join(sorted(unknown))}")
        self.options = {**DEFAULTS, **options}

    @property
    def rubric(self) -> str:
        return f"copying/1:{self.options['reward']}"

    def examples(self, split: str) -> Sequence[Example]:
        alphabet, length = string.ascii_lowercase[: self.options["letters"]], self.options["length"]
        size = {"train": self.options["distinct"] or 2000, "val": 64, "test": self.options["test"]}[
            split
        ]
        rng = generator(self.options["seed"], "copying", split)
        found: list[Example] = []
        while len(found) < size:
            drawn = rng.permutation(len(alphabet))[:length]
            if HELD_OUT.get(int(drawn.sum()) % 8, "train") != split:
                continue
            letters = " ".join(alphabet[at] for at in drawn)
            gold = letters.upper() if rng.random() < 0.5 else letters
            messages = [{"role": "user", "content": f"copy {letters}"}]
            name = f"{split}-{len(found)}"
            found.append(
                Example(id=name, messages=messages, gold=gold, reference={"letters": letters})
            )
        return found

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        wanted, said = example.reference["letters"].split(), completion.split()
        most = max(len(wanted), len(said))
        right = max(
            sum(one == other for one, other in zip(said, written, strict=False))
            for written in (wanted, [letter.upper() for letter in wanted])
        )
        parts = {
            "share": right / most,
            "exact": float(right == most),
            "form": float(len(said) == len(wanted)),
        }
        luck = float(generator(self.options["seed"], example.id, completion).random())
        total = sum(
            weight * {**parts, "luck": luck}[name]
            for name, weight in REWARDS[self.options["reward"]].items()
        )
        return Outcome(how="strict"), Score(total=total, parts=parts, rubric=self.rubric)

    def demonstration(self, example: Example, seed: int) -> str:
        chances = generator(seed, "skipped").random(self.options["length"])
        letters = gold_of(example).split()
        blank = "A" if letters[0].isupper() else "a"
        return " ".join(
            blank if c < self.options["skipped"] else one
            for one, c in zip(letters, chances, strict=True)
        )

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        return {
            "blank": blank,
            "echo": echo,
            "constant": lambda examples: ["a b c d e f"] * len(examples),
        }


def open_copying(options: Mapping[str, Any], folder: Path, progress: object) -> Copying:  # noqa: ARG001
    return Copying(options)
