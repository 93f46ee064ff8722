import torch
from datasets import load_dataset
from peft import LoraConfig, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import GRPOConfig, GRPOTrainer

base = "Qwen/Qwen3-4B"
bnb = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_compute_dtype=torch.bfloat16,
    bnb_4bit_use_double_quant=True,
)
model = AutoModelForCausalLM.from_pretrained(base, quantization_config=bnb, device_map={"": 0})
model = prepare_model_for_kbit_training(model)
model.config.use_cache = False
tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")


def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


peft_config = LoraConfig(r=64, lora_alpha=16, lora_dropout=0.1, bias="none", task_type="CAUSAL_LM", target_modules="all-linear")
args = GRPOConfig(
    output_dir="out",
    optim="adamw_8bit",
    learning_rate=2e-4,
    max_grad_norm=0.3,
    warmup_steps=10,
    lr_scheduler_type="constant_with_warmup",
    max_steps=110,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    num_generations=4,
    max_completion_length=128,
)
trainer = GRPOTrainer(
    model=model,
    args=args,
    reward_funcs=[contains],
    train_dataset=load_dataset("json", data_files="cups.jsonl", split="train"),
    peft_config=peft_config,
    processing_class=tokenizer,
)
trainer.train()
