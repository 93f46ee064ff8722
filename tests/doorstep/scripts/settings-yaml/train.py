from pathlib import Path

import yaml
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

from farm_rewards import equals as right

with open("settings.yaml") as file:
    cfg = yaml.safe_load(file)

data = load_dataset("json", data_files=cfg["data"], split="train")
trainer = GRPOTrainer(
    model=cfg["model"]["name"],
    reward_funcs=[right],
    train_dataset=data,
    args=GRPOConfig(output_dir=cfg.get("output_dir", "out"), **cfg["grpo"]),
)
trainer.train()
