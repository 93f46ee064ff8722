import argparse
import re

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

NUMBER = re.compile(r"-?\d+")


def right_number(completions, total, **kwargs):
    last = [NUMBER.findall(text)[-1:] for text in completions]
    return [float(found == [str(want)]) for found, want in zip(last, total)]


def parse_args():
    parser = argparse.ArgumentParser(description="Sums")
    parser.add_argument("--model", type=str, default="Qwen/Qwen3-0.6B")
    parser.add_argument("--data", default="sums.jsonl")
    parser.add_argument("--lr", type=float, default=4e-6)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("-g", "--generations", dest="num_generations", type=int, default=6)
    parser.add_argument("--max_steps", type=int, default=90)
    parser.add_argument("--no-scale", action="store_true")
    return parser.parse_args()


def main():
    args = parse_args()
    data = load_dataset("json", data_files=args.data, split="train")
    config = GRPOConfig(
        output_dir="out",
        learning_rate=args.lr,
        per_device_train_batch_size=args.batch_size,
        num_generations=args.num_generations,
        max_steps=args.max_steps,
        max_completion_length=64,
    )
    GRPOTrainer(model=args.model, args=config, train_dataset=data, reward_funcs=[right_number]).train()


if __name__ == "__main__":
    main()
