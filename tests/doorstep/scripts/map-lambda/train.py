from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def equals(completions, answer, **kwargs):
    return [float(text.strip() == want) for text, want in zip(completions, answer)]


data = load_dataset("json", data_files="farm.jsonl")["train"]
data = data.filter(lambda x: len(x["question"]) < 400)
data = data.map(lambda x: {"prompt": x["question"]}).shuffle(seed=3)
config = GRPOConfig(output_dir="o", max_steps=40, per_device_train_batch_size=16, num_generations=8)
GRPOTrainer(model="Qwen/Qwen3-1.7B", reward_funcs=[equals], train_dataset=data, args=config).train()
