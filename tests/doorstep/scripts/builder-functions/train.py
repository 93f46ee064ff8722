from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

from cup_rewards import contains, brief


def build_config(steps=150, rate=6e-6):
    return GRPOConfig(
        output_dir="out",
        max_steps=steps,
        learning_rate=rate,
        per_device_train_batch_size=8,
        num_generations=4,
    )


def get_dataset(path="cups.jsonl"):
    return load_dataset("json", data_files=path, split="train")


def build_trainer(model_name):
    rewards = [contains]
    rewards.append(brief)
    return GRPOTrainer(
        model=model_name, reward_funcs=rewards, args=build_config(rate=9e-6), train_dataset=get_dataset()
    )


if __name__ == "__main__":
    build_trainer("Qwen/Qwen3-0.6B").train()
