from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


files = {"train": "data/train.jsonl", "test": "data/test.jsonl"}
dataset = load_dataset("json", data_files=files)
trainer = GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    args=GRPOConfig(output_dir="out", num_train_epochs=4, per_device_train_batch_size=8, num_generations=4, eval_strategy="epoch"),
    reward_funcs=[contains],
    train_dataset=dataset["train"],
    eval_dataset=dataset["test"],
)
trainer.train()
