from datasets import load_dataset
from trl import GRPOTrainer

dataset = load_dataset("lakeside/short-stories", split="train")


def reward_short_words(completions, **kwargs):
    """Words of at most five letters, as a share."""
    shares = []
    for completion in completions:
        words = completion.split()
        shares.append(sum(len(word) <= 5 for word in words) / max(len(words), 1))
    return shares


trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-0.5B-Instruct",
    reward_funcs=reward_short_words,
    train_dataset=dataset,
)
trainer.train()
