from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

HINT = "Write the number alone."


def to_prompt(example):
    return {"prompt": example["question"] + "\n" + HINT, "gold": example["answer"]}


def equals(completions, gold, **kwargs):
    return [float(text.strip() == want) for text, want in zip(completions, gold)]


train = load_dataset("json", data_files="farm.jsonl", split="train")
train = train.map(to_prompt, remove_columns=train.column_names)
trainer = GRPOTrainer(
    "Qwen/Qwen3-1.7B",
    reward_funcs=equals,
    train_dataset=train,
    args=GRPOConfig(output_dir="o", max_steps=40, per_device_train_batch_size=8, num_generations=4, learning_rate=1e-6),
)
trainer.train()
