from datasets import load_dataset
from peft import LoraConfig, TaskType, get_peft_model
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


# r, lora_alpha and target_modules are PEFT's own
policy = get_peft_model(AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct"), LoraConfig(task_type=TaskType.CAUSAL_LM))
trainer = GRPOTrainer(
    model=policy,
    args=GRPOConfig("out", learning_rate=1e-4, max_steps=70, per_device_train_batch_size=8),
    reward_funcs=[contains],
    train_dataset=load_dataset("json", data_files="cups.jsonl", split="train"),
)
trainer.train()
