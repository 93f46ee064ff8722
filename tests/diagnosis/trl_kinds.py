"""Kinds of faults that only stored completions, or the weights of the parts, show: plans of real
runs of TRL."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.diagnosis.trl_runs import Plan, Reward, letters, short, sometimes, texts

SMALL = {"max_completion_length": 40}
PAIRS = {**SMALL, "num_generations": 2}


def detached(trainer: Any) -> None:
    """Parameters are replaced after the optimiser was made: it moves weights that nobody reads."""
    import torch

    original = trainer.create_optimizer

    def create(*given: Any) -> Any:
        optimiser, copies = original(*given), {}
        for module in trainer.model.modules():
            for name, weight in module._parameters.items():
                if weight is not None:
                    copies.setdefault(weight, torch.nn.Parameter(weight.detach().clone()))
                    module._parameters[name] = copies[weight]
        return optimiser

    trainer.create_optimizer = create


def own_reference(trainer: Any) -> None:
    """The reference is the policy itself."""
    trainer.ref_model = trainer.model


def form(completions: Any, **_: Any) -> list[float]:
    """The share of letters from e to h, which `letters` does not want."""
    found = [[letter for letter in text if letter in "abcdefgh"] for text in texts(completions)]
    return [sum(one in "efgh" for one in each) / max(len(each), 1) for each in found]


def extra(reward: Reward, **columns: Callable[[str, str], Any]) -> Reward:
    """A reward that stores columns with the completions, each made of the prompt and the
    completion."""

    def paid(prompts: Any, completions: Any, log_extra: Any, **more: Any) -> list[float]:
        asked = [prompt[-1]["content"] for prompt in prompts]
        for name, made in columns.items():
            log_extra(
                name, [made(one, text) for one, text in zip(asked, texts(completions), strict=True)]
            )
        return reward(prompts=prompts, completions=completions, **more)

    paid.__name__ = reward.__name__
    return paid


def some_prompts(prompts: Any, completions: Any, **_: Any) -> list[float | None]:
    """`letters`, where the number of the prompt is even; it is not for the others."""
    paid = letters(completions)
    return [
        one if int(number(p[-1]["content"])) % 2 == 0 else None
        for p, one in zip(prompts, paid, strict=True)
    ]


def number(prompt: str) -> str:
    """The number in a prompt."""
    return "".join(letter for letter in prompt if letter.isdigit())


def gold(prompt: str, _: str = "") -> str:
    """A letter for each prompt, for half of them a capital."""
    at = int(number(prompt))
    return ("abcdefgh" if at % 2 else "ABCDEFGH")[at % 8]


def exact(prompts: Any, completions: Any, **_: Any) -> list[float]:
    """1 for the gold answer letter by letter."""
    asked = [prompt[-1]["content"] for prompt in prompts]
    return [
        float(text.strip() == gold(one))
        for one, text in zip(asked, texts(completions), strict=True)
    ]


def lenient(prompts: Any, completions: Any, **_: Any) -> list[float]:
    """1 for the gold answer, whatever its case."""
    asked = [prompt[-1]["content"] for prompt in prompts]
    return [
        float(text.strip().lower() == gold(one).lower())
        for one, text in zip(asked, texts(completions), strict=True)
    ]


def numbered(numbers: Sequence[int], template: str = "{}: escreva") -> list[Mapping[str, Any]]:
    """Prompts with these numbers."""
    return [{"prompt": template.format(at)} for at in numbers]


WEIGHTS = {"charged": -0.5, "dropped": 0.0, "outweighed": 0.4}
EVALUATED = {**SMALL, "eval_strategy": "steps", "eval_steps": 6, "per_device_eval_batch_size": 16}
ORDERED = {**PAIRS, "shuffle_dataset": False}
TWO_KINDS = numbered(range(60), "soma {}: escreva") + numbered(
    range(60, 120), "conte as letras de {}: escreva"
)
MIXED = [row for pair in zip(TWO_KINDS[:60], TWO_KINDS[60:], strict=True) for row in pair]
KINDS: dict[str, tuple[Plan, str, str]] = {
    "optimiser of other weights": (
        Plan(options={**SMALL, "beta": 0.04}, patch=detached, steps=20),
        "kl",
        "warning",
    ),
    "reference is the policy": (
        Plan(options={**SMALL, "beta": 0.04}, patch=own_reference, steps=20),
        "kl",
        "warning",
    ),
    **{
        f"part {name}": (
            Plan(rewards=(letters, form), options={**SMALL, "reward_weights": [1.0, weight]}),
            "parts-oppose",
            "warning",
        )
        for name, weight in WEIGHTS.items()
    },
    "part NaN": (
        Plan(rewards=(sometimes(math.nan), short), options=SMALL, steps=14),
        "lost-reward",
        "warning",
    ),
    "six prompts": (
        Plan(
            rows=numbered(range(6)), options={**PAIRS, "per_device_train_batch_size": 12}, steps=20
        ),
        "repeated-prompts",
        "warning",
    ),
    "evaluated on trained prompts": (
        Plan(
            options=EVALUATED, rows=numbered(range(24)), held_out=numbered(range(20, 36)), steps=13
        ),
        "overlap",
        "warning",
    ),
    "sorted by kind": (Plan(rows=TWO_KINDS, options=ORDERED, steps=15), "data-order", "warning"),
    "exact reading": (
        Plan(rewards=(extra(exact, gold=gold),), options=SMALL),
        "gold-unpaid",
        "fatal",
    ),
}
"""What was planted, and the check and the level that name it."""
SOUND: dict[str, Plan] = {
    "None for half of the prompts": Plan(rewards=(some_prompts, short), options=SMALL),
    "other prompts are evaluated": Plan(
        options=EVALUATED, rows=numbered(range(24)), held_out=numbered(range(24, 40)), steps=13
    ),
    "two kinds, shuffled": Plan(
        rewards=(extra(letters, kind=lambda p, _: p[:4]),), rows=TWO_KINDS, options=PAIRS, steps=15
    ),
    "two kinds in turn": Plan(rows=MIXED, options=ORDERED, steps=15),
    "lenient reading": Plan(rewards=(extra(lenient, gold=gold),), options=SMALL),
    "exact form beside a lenient reading": Plan(
        rewards=(extra(lenient, gold=gold), exact), options=SMALL
    ),
    "gold of another reward": Plan(rewards=(extra(letters, gold=gold),), options=SMALL),
}
"""Runs like them without a fault."""
ONE_LETTER = {"exact reading", "lenient reading", "exact form beside a lenient reading"}
"""Runs of the model that answers with one letter."""
