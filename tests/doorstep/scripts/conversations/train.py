from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def says_team(completions, team, **kwargs):
    answers = [completion[-1]["content"].strip().lower() for completion in completions]
    return [1.0 if answer == want else 0.0 for answer, want in zip(answers, team)]


GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    reward_funcs=[says_team],
    train_dataset=load_dataset("json", data_files="tickets.jsonl", split="train"),
    args=GRPOConfig(
        output_dir="out",
        max_steps=90,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_generations=4,
        max_completion_length=12,
        chat_template_kwargs={"enable_thinking": False},
    ),
).train()
