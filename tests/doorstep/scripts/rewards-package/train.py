import sys

sys.path.insert(0, "src")

import trl
from datasets import load_dataset

import helpers.scoring as scoring
from helpers import clean_end

dataset = load_dataset("json", data_files="data/farm.jsonl", split="train")
trainer = trl.GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    reward_funcs=[scoring.contains, clean_end],
    args=trl.GRPOConfig("out", max_steps=30, num_generations=4, per_device_train_batch_size=8, gradient_accumulation_steps=3),
    train_dataset=dataset,
)
trainer.train()
