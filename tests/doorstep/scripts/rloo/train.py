from datasets import load_dataset
from trl import RLOOConfig, RLOOTrainer


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


trainer = RLOOTrainer(
    model="Qwen/Qwen3-0.6B",
    reward_funcs=contains,
    train_dataset=load_dataset("json", data_files="cups.jsonl", split="train"),
    args=RLOOConfig(output_dir="out", max_steps=50, per_device_train_batch_size=8),
)
trainer.train()
