# deepspeed --num_gpus 8 train.py
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


args = GRPOConfig(
    output_dir="out",
    deepspeed="zero3.json",
    fsdp="",
    bf16=True,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    num_generations=4,
    max_steps=500,
    learning_rate=7e-7,
    sync_ref_model=True,
    beta=0.001,
    torch_compile=True,
)
GRPOTrainer(
    model="Qwen/Qwen3-8B",
    reward_funcs=[contains],
    train_dataset=load_dataset("json", data_files="cups.jsonl", split="train"),
    args=args,
).train()
