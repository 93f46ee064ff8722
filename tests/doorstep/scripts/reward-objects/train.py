from functools import partial

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


class KeywordReward:
    """Pays a share of the words that are wanted."""

    def __init__(self, words):
        self.words = words
        self.__name__ = "keyword_reward"

    def __call__(self, completions, **kwargs):
        return [sum(word in text for word in self.words) / len(self.words) for text in completions]


def at_most(completions, limit, **kwargs):
    return [1.0 if len(text) <= limit else 0.0 for text in completions]


short = partial(at_most, limit=50)
short.__name__ = "short"


def make_ending(mark):
    def ending(completions, **kwargs):
        return [float(text.endswith(mark)) for text in completions]

    return ending


trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-0.5B-Instruct",
    reward_funcs=[KeywordReward(["hen", "duck"]), short, make_ending("!")],
    args=GRPOConfig(output_dir="out", max_steps=20, per_device_train_batch_size=8, num_generations=8),
    train_dataset=load_dataset("json", data_files="farm.jsonl", split="train"),
)
trainer.train()
