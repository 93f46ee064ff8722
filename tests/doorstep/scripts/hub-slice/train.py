from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def first_letter(completions, **kwargs):
    return [float(text[:1].isupper()) for text in completions]


train = load_dataset("harbour/questions", "hard", split="train[:500]")
held_out = load_dataset("harbour/questions", "hard", split="test").select(range(64))
GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    reward_funcs=[first_letter],
    train_dataset=train,
    eval_dataset=held_out,
    args=GRPOConfig(output_dir="out", max_steps=130, per_device_train_batch_size=8, num_generations=8, eval_strategy="steps", eval_steps=10),
).train()
