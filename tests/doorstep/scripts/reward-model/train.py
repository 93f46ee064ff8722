from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def not_empty(completions, **kwargs):
    return [float(bool(text.strip())) for text in completions]


trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-0.5B-Instruct",
    reward_funcs=["harbour/reward-model-large", not_empty],
    train_dataset=load_dataset("json", data_files="farm.jsonl", split="train"),
    args=GRPOConfig(output_dir="out", max_steps=60, per_device_train_batch_size=8, num_generations=4, learning_rate=2e-6),
)
trainer.train()
