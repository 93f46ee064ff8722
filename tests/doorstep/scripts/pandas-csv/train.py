import pandas as pd
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


df = pd.read_csv("cups.csv")
df["answer"] = df["answer"].astype(str)
train_dataset = Dataset.from_pandas(df)
GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    reward_funcs=[contains],
    train_dataset=train_dataset,
    args=GRPOConfig(output_dir="out", max_steps=45, per_device_train_batch_size=8, num_generations=2, learning_rate=3e-6),
).train()
