from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

SETTINGS = {
    "model": {"name": "Qwen/Qwen2.5-0.5B-Instruct"},
    "data": {"path": "farm.jsonl"},
    "training": {
        "learning_rate": 8e-6,
        "max_steps": 64,
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "temperature": 0.8,
    },
}
BASE = dict(output_dir="out", logging_steps=2, max_completion_length=96, num_generations=16)


def equals(completions, answer, **kwargs):
    return [float(text.strip() == want) for text, want in zip(completions, answer)]


arguments = {**BASE, **SETTINGS["training"]}
data = load_dataset("json", data_files=SETTINGS["data"]["path"], split="train").rename_column("question", "prompt")
trainer = GRPOTrainer(
    model=SETTINGS["model"]["name"],
    reward_funcs=[equals],
    train_dataset=data,
    args=GRPOConfig(**arguments, beta=0.04),
)
trainer.train()
