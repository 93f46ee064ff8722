"""A whole RL step: sample, judge, update; ours and TRL's GRPOTrainer.

    python benchmarks/rl_step.py                  # a small model on a CPU
    python benchmarks/rl_step.py --device cuda    # 0.5B, random, bfloat16

Same weights, prompts, lengths (no completion ends early), sampling distribution, loss (dr_grpo, no
KL), optimiser (AdamW, constant rate), and no gradient checkpointing on either side. TRL's step is
its own `training_step` (generate, score, loss, backward), then clipping and AdamW, without the rest
of its loop. Before anything is timed, TRL's own batch is scored by both: log-probabilities to 1e-4,
and the cosine of the two gradients at least 0.9999.
"""

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
warnings.filterwarnings("ignore", category=FutureWarning)

import numpy as np
import torch

from models import HALF_BILLION, SMALL, prompts, save_model
from pairing import HEADER, compare
from plumbline.policies import open_policy
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.recipe import parse_recipe
from plumbline.records import Example, Outcome, Sampling, Score, Trajectory, Transition
from plumbline.rollouts.collect import collect
from plumbline.tasks.task import Task
from plumbline.training.microbatches import Microbatches
from plumbline.training.optimiser import Optimiser
from plumbline.training.rl import weigh_rollouts
from plumbline.training.update import update_policy

CPU_POINTS = [(64, 64, 8, 4096), (256, 64, 8, 4096), (512, 64, 8, 32768)]
GPU_POINTS = [(512, 256, 16, 151_936), (128, 512, 8, 151_936)]
RATE = 1e-6


def judge(text: str) -> float:
    """A cheap reward that differs within a group."""
    return (hash(text) % 1000) / 1000


class AnyText(Task):
    """A task whose reward is `judge`."""

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        return Outcome(), Score(total=judge(completion))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--pairs", type=int, help="by default 9 on a CPU, and 2 on a GPU, whose steps are of 0.5B"
    )
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    print(f"torch {torch.__version__}, {options.threads} threads, {device}\n")
    print("| prompt | answer | copies | vocabulary | " + " | ".join(HEADER) + " |")
    print("|" + "---|" * (4 + len(HEADER)))
    for length, answer, copies, vocabulary in CPU_POINTS if device.type == "cpu" else GPU_POINTS:
        shape = {**SMALL, "vocabulary": vocabulary} if device.type == "cpu" else HALF_BILLION
        with tempfile.TemporaryDirectory() as folder:
            source = str(save_model(Path(folder) / "model", **shape))
            measure(
                source,
                device,
                (length, answer, copies, vocabulary),
                options.pairs or (9 if device.type == "cpu" else 2),
                Path(folder),
            )


def measure(
    source: str, device: torch.device, point: tuple[int, int, int, int], pairs: int, folder: Path
) -> None:
    length, answer, copies, vocabulary = point
    chats = prompts(1, length, vocabulary)
    ours, policy = our_step(source, device, chats, answer, copies)
    trainer = their_trainer(source, device, chats, answer, copies, folder)
    check_equal(policy, trainer, answer, copies)
    ratio = compare(ours, lambda: their_step(trainer, chats, copies), device, pairs)
    print(ratio.row(length, answer, copies, vocabulary), flush=True)


def our_step(source, device, chats, answer, copies, **model):
    """One step of ours, and its policy; `model` are further keys of the recipe's section, such as
    dtype and lora."""
    policy = open_policy(AutoregressiveModel(name=source, device=str(device), **model), source)
    policy.chat.stop_ids = (-1,)
    return stepping(policy, chats, Sampling(max_tokens=answer), copies), policy


def stepping(policy, chats, sampling, copies):
    """One of our RL steps, of any family; it returns the seconds of its rollouts and of its
    update."""
    rates = {"learning_rate": RATE, "schedule": "constant", "betas": (0.9, 0.999)}
    rl = {"steps": 10**6, "group_size": copies, "optimiser": rates, "tokens_per_microbatch": 16384}
    recipe = parse_recipe(
        {"name": "ours", "model": {"name": "any", "family": policy.family}, "rl": rl}
    )
    optimiser = Optimiser(policy.trainable(), recipe.rl.optimiser, recipe.rl.steps)
    microbatches = Microbatches(optimiser, policy)
    examples = [Example(id=str(i), messages=chat, gold="") for i, chat in enumerate(chats)]
    count = [0]

    def step():
        count[0] += 1
        began = time.perf_counter()
        groups = collect(
            policy, AnyText(), examples, copies=copies, sampling=sampling, key=(count[0],)
        )
        drawn = time.perf_counter()
        groups = weigh_rollouts(groups, recipe.rl.algorithm)
        update_policy(policy, optimiser, groups, recipe, count[0], microbatches)
        return drawn - began, time.perf_counter() - drawn

    return step


def their_trainer(source, device, chats, answer, copies, folder, dtype=None, lora=None):
    """TRL's trainer; `dtype` is float32 on a CPU and bfloat16 on a GPU unless given, `lora` a peft
    config."""
    import trl
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    on_cpu = device.type == "cpu"
    dtype = dtype or (torch.float32 if on_cpu else torch.bfloat16)
    config = trl.GRPOConfig(
        output_dir=str(folder / "trl"),
        per_device_train_batch_size=len(chats) * copies,
        num_generations=copies,
        max_completion_length=answer,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        loss_type="dr_grpo",
        scale_rewards="none",
        temperature=1.0,
        use_cpu=on_cpu,
        bf16=dtype == torch.bfloat16,
        gradient_checkpointing=False,
        report_to="none",
    )
    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(source, dtype=dtype),
        peft_config=lora,
        reward_funcs=lambda completions, **_: [judge(c[0]["content"]) for c in completions],
        args=config,
        train_dataset=Dataset.from_list([{"prompt": chat} for chat in chats]),
        processing_class=AutoTokenizer.from_pretrained(source),
    )
    trainer.eos_token_ids = [-1]
    trainer.generation_config.eos_token_id = None
    trainer.model.train()
    trainer.create_optimizer_and_scheduler(10**6)
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def their_step(trainer, chats, copies):
    trainer._step += 1
    inputs = [{"prompt": chat} for chat in chats for _ in range(copies)]
    trainer._buffered_inputs = None
    trainer.training_step(trainer.model, inputs, None)
    torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()


def check_equal(policy, trainer, answer, copies):
    """TRL's own batch through both."""
    inputs = [{"prompt": row["prompt"]} for row in trainer.train_dataset for _ in range(copies)]
    batch = trainer._generate_and_score_completions(inputs)
    assert (
        batch["completion_mask"].sum() == batch["completion_mask"].numel() == len(inputs) * answer
    )
    trajectories = []
    for row in range(len(inputs)):
        tokens = batch["completion_ids"][row].cpu().numpy()
        step = Transition(
            positions=np.arange(answer), tokens=tokens, logprobs=np.zeros(answer, np.float32)
        )
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].cpu().numpy()
        trajectories.append(
            Trajectory(
                prompt=prompt,
                transitions=(step,),
                text="",
                sampling=Sampling(max_tokens=answer),
                finish="length",
            )
        )
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    theirs, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, answer)
    scored = policy.score(trajectories)
    worst = (scored.logprobs - theirs.flatten()).abs().max().item()
    assert worst < (1e-4 if policy.device.type == "cpu" else 0.2), worst
    advantages = batch["advantages"]
    trainer._compute_loss(trainer.model, batch).backward()
    ratio = (scored.logprobs - scored.logprobs.detach()).exp()
    (-(ratio * advantages[scored.owner]).sum() / (len(inputs) * answer)).backward()
    wanted = {
        name: parameter.grad.flatten().float()
        for name, parameter in trainer.model.named_parameters()
    }
    one = torch.cat([parameter.grad.flatten().float() for parameter in policy.trainable().values()])
    other = torch.cat([wanted[name] for name in policy.trainable()])
    cosine = torch.nn.functional.cosine_similarity(one, other, dim=0).item()
    assert cosine > (0.9999 if policy.device.type == "cpu" else 0.98), cosine
    policy.model.zero_grad()
    trainer.model.zero_grad()


if __name__ == "__main__":
    main()
