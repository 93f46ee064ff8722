# accelerate launch --config_file two_gpus.yaml train_grpo.py
import os

import torch
from accelerate import PartialState
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

MODEL = "meta-llama/Llama-3.2-1B-Instruct"


def one_sentence(completions, **kwargs):
    return [1.0 if text.count(".") == 1 else 0.0 for text in completions]


def main():
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)
    with PartialState().main_process_first():
        train = load_dataset("harbour/headlines", split="train")
    args = GRPOConfig(
        output_dir="out",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_generations=8,
        max_steps=120,
        learning_rate=1e-5,
        bf16=True,
        gradient_checkpointing=True,
    )
    trainer = GRPOTrainer(
        model=model, processing_class=tokenizer, reward_funcs=[one_sentence], args=args, train_dataset=train
    )
    trainer.train()
    if trainer.accelerator.is_main_process:
        trainer.save_model("out/final")


if __name__ == "__main__":
    main()
