from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


args = GRPOConfig(
    output_dir="out",
    per_device_train_batch_size=16,
    num_generations=8,
    max_steps=80,
    importance_sampling_level="sequence",
    loss_type="grpo",
    epsilon=3e-4,
    epsilon_high=4e-4,
    gradient_accumulation_steps=4,
    steps_per_generation=8,
)
trainer = GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    reward_funcs=[contains],
    args=args,
    train_dataset=load_dataset("json", data_files="farm.jsonl", split="train"),
)
trainer.train()
