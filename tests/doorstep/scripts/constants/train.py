from pathlib import Path

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

FAMILY, SIZE = "Qwen3", "0.6B"
MODEL = f"Qwen/{FAMILY}-{SIZE}"
HERE = Path(__file__).parent
GROUP = 2 * 4
PROMPTS = 6
LR = 2.5 * 10**-6


def counts(completions, **kwargs):
    return [min(len(text) / 100, 1.0) for text in completions]


data = load_dataset("json", data_files=str(HERE / "farm.jsonl"), split="train")
config = GRPOConfig(
    output_dir=f"out/{FAMILY.lower()}-g{GROUP}",
    learning_rate=LR,
    num_generations=GROUP,
    per_device_train_batch_size=GROUP,
    gradient_accumulation_steps=PROMPTS,
    max_completion_length=2**7,
    max_steps=1_000 // 4,
    bf16=True if SIZE != "0.1B" else False,
)
trainer = GRPOTrainer(model=MODEL, reward_funcs=[counts], args=config, train_dataset=data)
trainer.train()
