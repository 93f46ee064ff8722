from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


args = GRPOConfig(
    output_dir="out",
    use_vllm=True,
    vllm_mode="colocate",
    vllm_gpu_memory_utilization=0.4,
    vllm_importance_sampling_correction=True,
    beta=0.04,
    temperature=0.7,
    top_k=50,
    top_p=0.9,
    repetition_penalty=1.1,
    max_steps=200,
    per_device_train_batch_size=16,
    num_generations=16,
    max_completion_length=1024,
    eval_strategy="steps",
    eval_steps=25,
)
trainer = GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    reward_funcs=contains,
    args=args,
    train_dataset=load_dataset("json", data_files="farm.jsonl", split="train"),
    eval_dataset=load_dataset("json", data_files="held_out.jsonl", split="train"),
)
trainer.train()
