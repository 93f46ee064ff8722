from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def contains(prompts, completions, answer, **kwargs):
    return [1.0 if want in text else 0.0 for text, want in zip(completions, answer)]


def short(completions, **kwargs):
    return [1.0 if len(text) < 80 else 0.0 for text in completions]


def shouting(completions, **kwargs):
    return [1.0 if text.isupper() else 0.0 for text in completions]


trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-0.5B-Instruct",
    reward_funcs=[contains, short, shouting],
    args=GRPOConfig(
        output_dir="out",
        reward_weights=[2.0, 0.5, -0.25],
        max_steps=100,
        per_device_train_batch_size=32,
        num_generations=8,
        scale_rewards=False,
    ),
    train_dataset=load_dataset("json", data_files="farm.jsonl", split="train"),
)
trainer.train()
