"""Real runs of TRL with the tiny model, healthy ones and ones with one planted fault each."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Texts = Sequence[str]
Reward = Callable[..., list[float]]


def letters(completions: Any, **_: Any) -> list[float]:
    """The share of letters from a to d, of answers with some variety that end in time: learnt in
    seconds."""
    found = [[letter for letter in text if letter in "abcdefgh"] for text in texts(completions)]
    varied = [min(len(set(each)) / 4, 1.0) if 6 <= len(each) <= 14 else 0.2 for each in found]
    return [
        some * sum(one in "abcd" for one in each) / max(len(each), 1)
        for some, each in zip(varied, found, strict=True)
    ]


def short(completions: Any, **_: Any) -> list[float]:
    """More for fewer characters, down to twenty."""
    return [1 / (1 + max(0, len(text) - 20) / 20) for text in texts(completions)]


def repeated(completions: Any, **_: Any) -> list[float]:
    """The share of one letter in the text, however long: a cheat earns it all."""
    return [text.count("a") / max(len(text), 1) for text in texts(completions)]


def never(completions: Any, **_: Any) -> list[float]:
    """A part that nothing earns."""
    return [0.0] * len(completions)


def texts(completions: Any) -> list[str]:
    """Of chats or of plain texts."""
    return [one if isinstance(one, str) else one[-1]["content"] for one in completions]


def half(completions: Any, **_: Any) -> list[float]:
    """The same for everything."""
    return [0.5] * len(completions)


def by_prompt(prompts: Any, completions: Any, **_: Any) -> list[float]:
    """The same for all of a group."""
    return [int(prompt[-1]["content"].split(":")[0]) / 10 for prompt in prompts]


def opposite(completions: Any, **_: Any) -> list[float]:
    """What `letters` pays, taken away."""
    return [-value for value in letters(completions)]


def sometimes(value: float) -> Reward:
    """`letters`, and that value for answers of few letters."""

    def reward(completions: Any, **_: Any) -> list[float]:
        return [
            value if len(text) < 9 else one
            for text, one in zip(texts(completions), letters(completions), strict=True)
        ]

    return reward


@dataclass(frozen=True)
class Plan:
    """A run: what it is paid by, and what of TRL's options is other than usual."""

    rewards: Sequence[Reward] = (letters,)
    options: dict[str, Any] = field(default_factory=dict)
    patch: Callable[[Any], None] | None = None
    steps: int = 30
    rows: Sequence[Mapping[str, Any]] = tuple({"prompt": f"{n}: escreva"} for n in range(8))
    """Of the data: the text of the prompt, and further columns."""
    held_out: Sequence[Mapping[str, Any]] = ()
    """What is evaluated on."""
    resume: Path | None = None
    """A checkpoint to go on from."""


def poison(step: int) -> Callable[[Any], None]:
    """A loss that is NaN at one step."""

    def patch(trainer: Any) -> None:
        original, calls = trainer._compute_loss, []

        def poisoned(model: Any, inputs: Any) -> Any:
            calls.append(1)
            return original(model, inputs) * (math.nan if len(calls) == step else 1.0)

        trainer._compute_loss = poisoned

    return patch


def exhausted(after: float) -> Callable[[Any], None]:
    """A learning rate of 0 after a share of the steps."""

    def patch(trainer: Any) -> None:
        from torch.optim.lr_scheduler import LambdaLR

        def schedule(num_training_steps: int, optimizer: Any = None) -> Any:
            optimizer = trainer.optimizer if optimizer is None else optimizer
            trainer.lr_scheduler = LambdaLR(
                optimizer, lambda step: float(step < after * num_training_steps)
            )
            return trainer.lr_scheduler

        trainer.create_scheduler = schedule

    return patch


def long(completions: Any, **_: Any) -> list[float]:
    """More for more characters."""
    return [min(1.0, len(text) / 150) for text in texts(completions)]


def any_letters(dice: random.Random, number: int, least: int = 3, most: int = 20) -> str:
    """So many letters from a to h, three to twenty unless told."""
    return " ".join(dice.choices("abcdefgh", k=dice.randint(least, most)))


def make_talker(
    model: Path,
    folder: Path,
    answer: Callable[[random.Random, int], str] = any_letters,
    steps: int = 120,
) -> Path:
    """The tiny model, taught to answer the prompt of a number with letters from a to h, and then to
    end."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    dice = random.Random(0)
    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(model)

    def read(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    optimiser = torch.optim.AdamW(policy.parameters(), lr=5e-3)
    for _ in range(steps):
        numbers = [dice.randint(0, 7) for _ in range(16)]
        answers = [answer(dice, number) for number in numbers]
        prompts = [[{"role": "user", "content": f"{number}: escreva"}] for number in numbers]
        begun = [
            tokenizer.apply_chat_template(one, add_generation_prompt=True, tokenize=False)
            for one in prompts
        ]
        shown = [len(read(one)) for one in begun]
        rows = [
            read(one + answer + tokenizer.eos_token)
            for one, answer in zip(begun, answers, strict=True)
        ]
        length = max(map(len, rows))
        tokens = torch.tensor([row + [0] * (length - len(row)) for row in rows])
        targets = tokens.clone()
        for place, (row, prompt) in enumerate(zip(rows, shown, strict=True)):
            targets[place, :prompt] = targets[place, len(row) :] = -100
        policy(input_ids=tokens, labels=targets).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    policy.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def chats(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose prompts are chats."""
    return [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in rows]


def train(model: Path, folder: Path, plan: Plan, seed: int = 0) -> Path:
    """Train, and leave trainer_state.json and completions in `folder`, as TRL writes them; a crash
    is TRL's own."""
    trl = pytest.importorskip(
        "trl", reason="TRL made the runs that are looked at; pip install '.[dev]'"
    )
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    values = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 16,
        "num_generations": 4,
        "max_completion_length": 48,
        "max_steps": plan.steps,
        "logging_steps": 1,
        "learning_rate": 2e-3,
        "lr_scheduler_type": "constant",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "log_completions": True,
        "num_completions_to_print": 0,
        "disable_tqdm": True,
        "seed": seed,
        **plan.options,
    }
    tokenizer = AutoTokenizer.from_pretrained(model)
    torch.manual_seed(seed)
    random.seed(seed)
    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        reward_funcs=list(plan.rewards),
        args=trl.GRPOConfig(**values),
        train_dataset=Dataset.from_list(chats(plan.rows)),
        eval_dataset=Dataset.from_list(chats(plan.held_out)) if plan.held_out else None,
        processing_class=tokenizer,
    )
    if plan.patch is not None:
        plan.patch(trainer)
    try:
        trainer.train(resume_from_checkpoint=plan.resume and str(plan.resume))
    except RuntimeError as error:
        if "probability tensor" not in str(error):
            raise
    trainer.state.save_to_json(str(folder / "trainer_state.json"))
    return folder
