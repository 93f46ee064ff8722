from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


config = GRPOConfig(output_dir="out", learning_rate=1e-5, max_steps=10, per_device_train_batch_size=8, num_generations=8)
# the long run
config.learning_rate = 3e-6
config.max_steps = 1000
config.beta = 0.02

trainer = GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    reward_funcs=[contains],
    train_dataset=load_dataset("json", data_files="cups.jsonl", split="train"),
    args=config,
)
trainer.train()
