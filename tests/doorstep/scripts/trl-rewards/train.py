from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
from trl.rewards import accuracy_reward, get_soft_overlong_punishment, think_format_reward

dataset = load_dataset("riverbank/competition-maths", split="train")
trainer = GRPOTrainer(
    model="Qwen/Qwen3-1.7B",
    reward_funcs=[think_format_reward, accuracy_reward, get_soft_overlong_punishment(max_completion_len=1024, soft_punish_cache=128)],
    train_dataset=dataset,
    args=GRPOConfig(output_dir="out", max_steps=500, max_completion_length=1024, per_device_train_batch_size=16, num_generations=8),
)
trainer.train()
