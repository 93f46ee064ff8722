from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
pairs = load_dataset("json", data_files="pairs.jsonl", split="train")
args = DPOConfig(output_dir="dpo-out", beta=0.1, learning_rate=5e-7, num_train_epochs=1, per_device_train_batch_size=2)
trainer = DPOTrainer(model=model, args=args, train_dataset=pairs, processing_class=tokenizer)
trainer.train()
