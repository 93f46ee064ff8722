from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


data = load_dataset("csv", data_files="cups.csv", split="train").train_test_split(test_size=0.2, seed=1)
GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    reward_funcs=[contains],
    train_dataset=data["train"],
    eval_dataset=data["test"],
    args=GRPOConfig(output_dir="out", num_train_epochs=2, per_device_train_batch_size=16, num_generations=8),
).train()
