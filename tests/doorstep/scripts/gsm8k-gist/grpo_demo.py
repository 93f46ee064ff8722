import re

import torch
from datasets import Dataset, load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

SYSTEM_PROMPT = """
Answer in two parts:
<think_aloud>
...
</think_aloud>
<result>
...
</result>
"""

XML_FORM = """\
<think_aloud>
{thoughts}
</think_aloud>
<result>
{result}
</result>
"""


def extract_result(text: str) -> str:
    part = text.split("<result>")[-1]
    return part.split("</result>")[0].strip()


def after_hashes(text: str) -> str | None:
    if "####" not in text:
        return None
    return text.split("####")[1].strip().replace(",", "").replace("$", "")


def get_questions(split="train") -> Dataset:
    data = load_dataset("openai/gsm8k", "main")[split]
    data = data.map(
        lambda x: {
            "prompt": [
                {"role": "system", "content": SYSTEM_PROMPT},
                {"role": "user", "content": x["question"]},
            ],
            "answer": after_hashes(x["answer"]),
        }
    )
    return data


dataset = get_questions()


def correctness(prompts, completions, answer, **kwargs) -> list[float]:
    responses = [completion[0]["content"] for completion in completions]
    found = [extract_result(r) for r in responses]
    print(f"Question:\n{prompts[0][-1]['content']}", f"\nAnswer:\n{answer[0]}", f"\nFound:\n{found[0]}")
    return [2.0 if r == a else 0.0 for r, a in zip(found, answer)]


def whole_number(completions, **kwargs) -> list[float]:
    found = [extract_result(completion[0]["content"]) for completion in completions]
    return [0.5 if r.isdigit() else 0.0 for r in found]


def strict_form(completions, **kwargs) -> list[float]:
    pattern = r"^<think_aloud>\n.*?\n</think_aloud>\n<result>\n.*?\n</result>\n$"
    responses = [completion[0]["content"] for completion in completions]
    return [0.5 if re.match(pattern, r, re.DOTALL) else 0.0 for r in responses]


def count_marks(text) -> float:
    count = 0.0
    for mark in ("<think_aloud>\n", "\n</think_aloud>\n", "\n<result>\n", "\n</result>"):
        if text.count(mark) == 1:
            count += 0.125
    return count


def mark_count(completions, **kwargs) -> list[float]:
    return [count_marks(completion[0]["content"]) for completion in completions]


model_name = "Qwen/Qwen2.5-1.5B-Instruct"
if "Llama" in model_name:
    output_dir, run_name = "outputs/llama-grpo", "llama-grpo-gsm8k"
else:
    output_dir, run_name = "outputs/qwen-grpo", "qwen-grpo-gsm8k"

training_args = GRPOConfig(
    output_dir=output_dir,
    run_name=run_name,
    learning_rate=5e-6,
    adam_beta1=0.9,
    adam_beta2=0.99,
    weight_decay=0.1,
    warmup_ratio=0.1,
    lr_scheduler_type="cosine",
    logging_steps=1,
    bf16=True,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=8,
    num_generations=16,
    max_prompt_length=256,
    max_completion_length=786,
    num_train_epochs=1,
    save_steps=100,
    max_grad_norm=0.1,
    report_to="wandb",
    log_on_each_node=False,
)
peft_config = LoraConfig(
    r=16,
    lora_alpha=64,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "gate_proj"],
    task_type="CAUSAL_LM",
    lora_dropout=0.05,
)
model = AutoModelForCausalLM.from_pretrained(
    model_name, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2", device_map=None
).to("cuda")
tokenizer = AutoTokenizer.from_pretrained(model_name)
tokenizer.pad_token = tokenizer.eos_token

trainer = GRPOTrainer(
    model=model,
    processing_class=tokenizer,
    reward_funcs=[mark_count, strict_form, whole_number, correctness],
    args=training_args,
    train_dataset=dataset,
    # peft_config=peft_config
)
trainer.train()
