from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

NAME = "Qwen/Qwen2.5-0.5B"
demonstrations = load_dataset("json", data_files="shown.jsonl", split="train")
sft = SFTTrainer(
    model=NAME,
    train_dataset=demonstrations,
    args=SFTConfig(output_dir="warm", max_steps=30, learning_rate=1e-4, per_device_train_batch_size=8),
)
sft.train()
sft.save_model("warm")


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


trainer = GRPOTrainer(
    model="warm",
    reward_funcs=[contains],
    train_dataset=load_dataset("json", data_files="cups.jsonl", split="train"),
    args=GRPOConfig(output_dir="out", max_steps=120, learning_rate=2e-6, per_device_train_batch_size=8, num_generations=4),
)
trainer.train()
