import random

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

random.seed(4)
pairs = [(random.randint(1, 50), random.randint(1, 50)) for _ in range(400)]
dataset = Dataset.from_dict(
    {
        "prompt": [f"{a} - {b} =" for a, b in pairs],
        "difference": [str(a - b) for a, b in pairs],
    }
)


def right(completions, difference, **kwargs):
    return [float(text.strip() == want) for text, want in zip(completions, difference)]


GRPOTrainer(
    model="Qwen/Qwen3-0.6B-Base",
    reward_funcs=[right],
    train_dataset=dataset,
    args=GRPOConfig(output_dir="out", max_steps=200, per_device_train_batch_size=64, max_completion_length=8, temperature=1.2),
).train()
