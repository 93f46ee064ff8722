from dataclasses import dataclass, field
from typing import Optional

from datasets import load_dataset
from transformers import HfArgumentParser
from trl import GRPOConfig, GRPOTrainer


@dataclass
class Arguments:
    model_id: str = field(default="Qwen/Qwen2.5-0.5B", metadata={"help": "what is trained"})
    file: str = "colours.jsonl"
    steps: int = 75
    group: int = field(default=4)
    rate: float = field(default=2e-5, metadata={"help": "learning rate"})
    note: Optional[str] = None


def names_colour(completions, colour, **kwargs):
    return [1.0 if want in text.lower() else 0.0 for text, want in zip(completions, colour)]


if __name__ == "__main__":
    (script,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()
    training = GRPOConfig(
        output_dir="colours-out",
        learning_rate=script.rate,
        max_steps=script.steps,
        num_generations=script.group,
        per_device_train_batch_size=16,
        scale_rewards="none",
        lr_scheduler_type="constant",
    )
    GRPOTrainer(
        model=script.model_id,
        reward_funcs=[names_colour],
        args=training,
        train_dataset=load_dataset("json", data_files={"train": script.file}, split="train"),
    ).train()
