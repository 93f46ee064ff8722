from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


data = load_dataset("parquet", data_files="cups.parquet", split="train")
GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    reward_funcs=[contains],
    train_dataset=data,
    args=GRPOConfig(output_dir="out", max_steps=33, per_device_train_batch_size=8, num_generations=8, adam_beta2=0.95),
).train()
