"""Runs of TRL's own GRPO and SFT, healthy and with one fault each; most of GRPO's are those of
tests/diagnosis."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.doctors.job import Job
from conftest import WORDS, sharpen
from tests.diagnosis.test_trl import HEALTHY, PLANTED
from tests.diagnosis.trl_kinds import KINDS, ONE_LETTER
from tests.diagnosis.trl_runs import Plan, any_letters, letters, make_talker, repeated, texts, train

STEPS = 60
"""The other doctors' windows are up to 60 steps long."""


def no_end(completions: Any, **_: Any) -> list[float]:
    """Infrastructure that pays for what it could not read."""
    return [
        1.0 if len(text) < 6 else one
        for text, one in zip(texts(completions), letters(completions), strict=True)
    ]


def sparse(completions: Any, **_: Any) -> list[float]:
    """Everything or nothing, and nearly always nothing."""
    return [float(one > 0.95) for one in letters(completions)]


def flipped(trainer: Any) -> None:
    """The loss with the wrong sign."""
    original = trainer._compute_loss
    trainer._compute_loss = lambda model, inputs: -original(model, inputs)


MORE = {
    "rate far too high": Plan(options={"learning_rate": 0.05}),
    "rate far too high, KL": Plan(options={"learning_rate": 0.1, "beta": 0.01}),
    "wrong sign of the loss": Plan(patch=flipped),
    "limit far too low": Plan(options={"max_completion_length": 4}),
    "sparse reward": Plan(rewards=(sparse,), options={"num_generations": 2}),
    "unread answers pay": Plan(rewards=(no_end,)),
    "one letter is paid": Plan(rewards=(repeated,)),
}
SFT_ROWS = 240


def jobs(models: Path, more: int = 0) -> list[Job]:
    """All of them; `models` is where the model that they start from lies, once it is made. `more`
    is added to seeds."""
    talker = partial(_talker, models)
    grpo = {
        f"trl GRPO {name} {seed}": replace(plan, steps=STEPS)
        for seed in (1, 2)
        for name, plan in HEALTHY.items()
    }
    found = [
        Job(name, "trl", "rl", partial(_grpo, talker, plan, int(name[-1]) + more))
        for name, plan in grpo.items()
    ]
    sft: dict[str, dict[str, Any]] = {
        "constant": {},
        "linear": {"lr_scheduler_type": "linear"},
        "cosine": {"lr_scheduler_type": "cosine", "warmup_steps": 6},
    }
    found += [
        Job(f"trl SFT {name} {seed}", "trl", "sft", partial(_sft, talker, options, seed + more))
        for seed in (1, 2)
        for name, options in sft.items()
    ]
    planted = {name: plan for name, (plan, *_) in PLANTED.items()} | MORE
    found += [
        Job(
            f"trl GRPO: {name}",
            "trl",
            "rl",
            partial(_grpo, talker, replace(plan, steps=STEPS), more),
            name,
        )
        for name, plan in planted.items()
    ]
    letter = partial(_talker, models, "letter", 1)
    found += [
        Job(
            f"trl GRPO: {name}",
            "trl",
            "rl",
            partial(_grpo, letter if name in ONE_LETTER else talker, plan, more),
            name,
        )
        for name, (plan, *_) in KINDS.items()
    ]
    broken_sft: dict[str, dict[str, Any]] = {
        "SFT, rate far too high": {"learning_rate": 1.0, "max_grad_norm": 1e9},
        "SFT, too many epochs": {"rows": 16, "learning_rate": 1e-2, "max_steps": 90},
        "SFT, all targets masked": {"masked": True},
    }
    found += [
        Job(f"trl {name}", "trl", "sft", partial(_sft, talker, options, more), name)
        for name, options in broken_sft.items()
    ]
    return found


def _talker(models: Path, name: str = "talker", most: int = 20) -> Path:
    from plumbline.policies.pretrained.tiny import make_tiny
    from plumbline.recipe import TinySection

    folder, untrained = models / name, models / "untrained"
    if not (folder / "tokenizer.json").is_file():
        make_tiny(
            untrained,
            TinySection(hidden=32, layers=2, heads=2, vocabulary=300, context=256),
            WORDS * 10,
            seed=0,
        )
        sharpen(untrained)
        make_talker(untrained, folder, partial(any_letters, least=min(3, most), most=most))
    return folder


def _grpo(talker: Callable[[], Path], plan: Plan, seed: int, folder: Path) -> None:
    train(talker(), folder, plan, seed)


def _rows(count: int, seed: int) -> list[dict[str, Any]]:
    dice = random.Random(seed)
    ask = "{}: escreva de novo"
    return [
        {
            "prompt": [{"role": "user", "content": ask.format(dice.randint(0, 999))}],
            "completion": [
                {
                    "role": "assistant",
                    "content": " ".join(dice.choices("abcd", k=dice.randint(4, 9))),
                }
            ],
        }
        for _ in range(count)
    ]


def _sft(talker: Callable[[], Path], options: dict[str, Any], seed: int, folder: Path) -> None:
    import torch
    import trl
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options = dict(options)
    rows, masked = options.pop("rows", SFT_ROWS), options.pop("masked", False)
    torch.manual_seed(seed)
    model = talker()
    values = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "max_steps": STEPS,
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 15,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": seed,
        **options,
    }
    trainer = trl.SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        args=trl.SFTConfig(**values),
        train_dataset=Dataset.from_list(_rows(rows, seed)),
        eval_dataset=Dataset.from_list(_rows(48, 1000 + seed)),
        processing_class=AutoTokenizer.from_pretrained(model),
    )
    if masked:
        collate = trainer.data_collator

        def nothing(features: Any) -> Any:
            batch = collate(features)
            batch["labels"] = torch.full_like(batch["labels"], -100)
            return batch

        trainer.data_collator = nothing
    trainer.train()
    trainer.state.save_to_json(str(folder / "trainer_state.json"))
