import os
from os import environ, getenv

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

MODEL = os.environ.get("MODEL", "Qwen/Qwen3-0.6B")
STEPS = int(getenv("STEPS", "65"))
GROUP = int(os.getenv("GROUP") or 4)
RATE = float(environ["RATE"])


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


GRPOTrainer(
    model=MODEL,
    reward_funcs=[contains],
    train_dataset=load_dataset("json", data_files="cups.jsonl", split="train"),
    args=GRPOConfig(output_dir="out", max_steps=STEPS, num_generations=GROUP, per_device_train_batch_size=GROUP * 3, learning_rate=RATE),
).train()
