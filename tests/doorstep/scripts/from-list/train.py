from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

rows = [
    {"prompt": "Name an animal with feathers.", "wanted": "bird"},
    {"prompt": "Name an animal with fins.", "wanted": "fish"},
    {"prompt": "Name an animal that makes honey.", "wanted": "bee"},
    {"prompt": "Name an animal that barks.", "wanted": "dog"},
    {"prompt": "Name an animal that spins webs.", "wanted": "spider"},
    {"prompt": "Name an animal with a shell on its back.", "wanted": "tortoise"},
    {"prompt": "Name an animal that croaks.", "wanted": "frog"},
    {"prompt": "Name an animal with a very long neck.", "wanted": "giraffe"},
    {"prompt": "Name an animal with black and white stripes.", "wanted": "zebra"},
    {"prompt": "Name an animal that sleeps upside down.", "wanted": "bat"},
]
dataset = Dataset.from_list(rows)


def names_it(completions, wanted, **kwargs):
    return [float(want in text.lower()) for text, want in zip(completions, wanted)]


GRPOTrainer(
    model="HuggingFaceTB/SmolLM2-135M-Instruct",
    reward_funcs=names_it,
    train_dataset=dataset,
    args=GRPOConfig(output_dir="out", max_steps=25, per_device_train_batch_size=4, num_generations=4, max_completion_length=16),
).train()
