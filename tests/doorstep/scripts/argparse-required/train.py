import argparse

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def polite(completions, **kwargs):
    return [float("please" in text.lower()) for text in completions]


parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--learning-rate", type=float, required=True)
parser.add_argument("--steps", type=int)
parser.add_argument("--beta", type=float, default=0.01)
args = parser.parse_args()

trainer = GRPOTrainer(
    model=args.model,
    reward_funcs=polite,
    args=GRPOConfig(
        output_dir="out",
        learning_rate=args.learning_rate,
        max_steps=args.steps,
        beta=args.beta,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        num_generations=4,
    ),
    train_dataset=load_dataset("json", data_files="letters.jsonl")["train"],
)
trainer.train()
