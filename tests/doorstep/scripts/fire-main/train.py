import fire
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


def main(
    model: str = "Qwen/Qwen3-0.6B",
    data: str = "cups.jsonl",
    lr: float = 1.5e-6,
    steps: int = 85,
    group: int = 8,
    seed: int = 7,
):
    config = GRPOConfig(
        output_dir=f"out/{seed}", seed=seed, learning_rate=lr, max_steps=steps, num_generations=group, per_device_train_batch_size=2 * group
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[contains],
        train_dataset=load_dataset("json", data_files=data, split="train"),
        args=config,
    )
    trainer.train()


if __name__ == "__main__":
    fire.Fire(main)
