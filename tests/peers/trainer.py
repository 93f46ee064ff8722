"""TRL's trainer on a tiny model, for tests that set ours beside it."""

from typing import Any

import pytest


def grpo_trainer(model, folder, reward, prompts, **options: Any):
    """A GRPOTrainer that may be trained, or of which one part is used."""
    trl = pytest.importorskip("trl", reason="TRL is the peer of these tests; pip install '.[dev]'")
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    own = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": "none"}
    return trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        reward_funcs=reward,
        args=trl.GRPOConfig(output_dir=str(folder), **own, **options),
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
        processing_class=AutoTokenizer.from_pretrained(model),
    )
