from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    reward_funcs=[contains],
    train_dataset=load_dataset("json", data_files="cups.jsonl", split="train"),
    args=GRPOConfig(output_dir="out", num_train_epochs=5, per_device_train_batch_size=4, gradient_accumulation_steps=4, num_generations=4),
).train()
