"""What makes GRPO gain on a small real model: arms from one SFT model, ours beside TRL's, and their
controls.

    plumbline get smollm2-135m
    plumbline run commerce-smollm2-extraction --set rl=null --set sft.steps=150 --set 'evaluation.final=[]' \\
        --out runs/grpo-real/sft-150
    python experiments/grpo_real.py run long-3e-5 long-1e-4-32 --seed 0  # 15 to 20 minutes each; runs resume
    python experiments/grpo_real.py run trl-1e-4 --seed 0  # the same by TRL's GRPOTrainer
    python experiments/grpo_real.py signal runs/grpo-real/sft-150/models/sft  # gradients of two halves of a batch
    python experiments/grpo_real.py same runs/grpo-real/sft-150/models/sft  # one batch of TRL's through both
    python experiments/grpo_real.py classes runs/grpo-real/long-1e-4-32-seed0  # what answers say, class by class
    python experiments/grpo_real.py collect  # finished arms -> grpo_real.jsonl
    python experiments/grpo_real.py table  # that of docs/research/grpo-on-real-models.md

The arms are data: grpo_real.yaml says what they set over the recipe commerce-smollm2-extraction.
All have the same held-out prompts; arms of one seed see the same training prompts in the same
order, by whichever trainer.
"""

import argparse
import itertools
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import yaml

from plumbline.evaluation.comparison import compare
from plumbline.evaluation.statistics import mean_interval, paired_difference
from plumbline.recipe import Recipe, load_recipe
from plumbline.records import Evaluation
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.metadata import METADATA, ModelMetadata, add_trained_prompts
from plumbline.runs.observers import LiveView
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from plumbline.storage import read_jsonl, write_json, write_jsonl
from plumbline.tasks import open_task
from plumbline.tasks.text.lenient_json import strict_json
from plumbline.training.pipeline import run_recipe

HERE = Path(__file__).parent
ARMS, ROWS = HERE / "grpo_real.yaml", HERE / "grpo_real.jsonl"
FOLDER = Path("runs/grpo-real")
RECIPE, ALONE = "commerce-smollm2-extraction", ("name=commerce-smollm2-extraction-grpo", "sft=null")
"""What arms vary: the recipe's GRPO, from an SFT model that they share."""
READING = ("sentiment", "complaint_category", "main_complaint", "exact")
"""The parts that say what was read."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train and evaluate arms, or go on with them")
    run.add_argument("arms", nargs="+", help="names in grpo_real.yaml")
    run.add_argument("--seed", type=int, nargs="+", default=[0])
    run.add_argument(
        "--threads",
        type=int,
        default=1,
        help="CPU threads; two arms of one thread are faster than one of two",
    )
    same = commands.add_parser(
        "same", help="one batch of TRL's through both: log-probabilities and gradients"
    )
    same.add_argument("model")
    same.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    same.add_argument("--threads", type=int, default=1)
    signal = commands.add_parser(
        "signal", help="how alike the gradients of two halves of a batch are, by its size"
    )
    signal.add_argument("model")
    signal.add_argument("--prompts", type=int, default=32)
    signal.add_argument("--group", type=int, default=8)
    signal.add_argument("--threads", type=int, default=1)
    commands.add_parser("floor", help="what the best rule earns that does not read the review")
    classes = commands.add_parser(
        "classes", help="which values answers name, beside the gold ones, before and after"
    )
    classes.add_argument("runs", nargs="+", help="folders of finished arms")
    classes.add_argument("--key", default="sentiment")
    commands.add_parser("collect", help="write a row for each finished arm")
    commands.add_parser("table", help="print the rows as a Markdown table")
    options = parser.parse_args()
    if options.command == "run":
        known = yaml.safe_load(ARMS.read_text())
        base = known.pop("base")["set"]
        if unknown := [name for name in options.arms if name not in known]:
            sys.exit(f"no arm {', '.join(unknown)}; there are {', '.join(known)}")
        for seed in options.seed:
            for name in options.arms:
                run_arm(
                    name, {**known[name], "set": base | known[name]["set"]}, seed, options.threads
                )
    elif options.command == "same":
        print(same_batch(options.model, options.dtype, options.threads))
    elif options.command == "signal":
        print(measure_signal(options.model, options.prompts, options.group, options.threads))
    elif options.command == "floor":
        print(best_rule())
    elif options.command == "classes":
        for folder in options.runs:
            print(named_values(RunRecord.read(Path(folder)), options.key))
    elif options.command == "collect":
        write_jsonl(ROWS, collect())
    else:
        print(table([row for _, row in read_jsonl(ROWS)]))


def run_arm(name: str, arm: dict[str, Any], seed: int, threads: int) -> None:
    folder = FOLDER / f"{name}-seed{seed}"
    values = {"seed": seed, "model.threads": threads, **arm["set"]}
    recipe = load_recipe(
        RECIPE,
        [*ALONE, *(f"{key}={yaml.safe_dump(value).strip()}" for key, value in values.items())],
    )
    print(f"arm {folder.name}", file=sys.stderr, flush=True)
    if (folder / "result.json").is_file():
        return
    share_start(recipe, folder)
    if arm.get("trainer") == "trl" and not (folder / "models" / "rl" / METADATA).is_file():
        train_with_trl(recipe, folder)
    run_recipe(recipe, folder, resume=(folder / "recipe.yaml").is_file(), observers=[LiveView()])


def share_start(recipe: Recipe, folder: Path) -> None:
    """Take the greedy evaluation of the model that all arms start from, which no seed changes, from
    an earlier arm."""
    name = f"{EvaluationKey('base', 'test', 'greedy')}.json"
    if (folder / "recipe.yaml").is_file():
        return
    with Run.start(recipe, folder, resume=False):
        for other in sorted(FOLDER.glob(f"*-seed*/evaluations/{name}")):
            if RunRecord.read(other.parents[1]).recipe.model.name == recipe.model.name:
                (folder / "evaluations").mkdir(exist_ok=True)
                (folder / "evaluations" / name).write_bytes(other.read_bytes())
                return


# -- TRL -------------------------------------------------------------------------------------------


def train_with_trl(recipe: Recipe, folder: Path) -> None:
    """Leave TRL's adapter where our own run would leave its own, so that the pipeline evaluates it
    in the same way."""
    import trl

    assert recipe.model.name is not None
    with Run.start(recipe, folder, resume=(folder / "recipe.yaml").is_file()) as run:
        task = open_task(recipe.task.name, recipe.task.options, folder / "data", run.working)
        trainer = trl_trainer(recipe, task, folder / "trl")
        trainer.train(resume_from_checkpoint=any((folder / "trl").glob("checkpoint-*")) or None)
        run.rewind({"metrics": 0, "timings": 0})
        for log in trainer.state.log_history:
            if "reward" in log:
                run.metrics(
                    "rl",
                    log["step"],
                    {
                        "train/reward": log["reward"],
                        "train/entropy": log.get("entropy"),
                        "train/grad_norm": log.get("grad_norm"),
                        "train/completion_length": log.get("completions/mean_length"),
                    },
                )
                run.timings(
                    "rl", log["step"], {"time/step": log["step_time"]} if "step_time" in log else {}
                )
        saved = run.model("rl")
        trainer.model.save_pretrained(saved)
        trainer.processing_class.save_pretrained(saved)
        card = ModelMetadata(
            recipe=f"{recipe.name} {recipe.identity()} by TRL {trl.__version__}",
            stage="rl",
            task=recipe.task.name,
            options=recipe.task.options,
            model=recipe.model.meaning(),
            trained_on=add_trained_prompts(
                recipe.model.name, (example.fingerprint() for example in task.examples("train"))
            ),
        )
        write_json(saved / METADATA, card.to_json())


def trl_trainer(recipe: Recipe, task: Any, folder: Path) -> Any:
    """TRL's GRPOTrainer for a recipe: the same adapter to go on from, prompts in order, reward,
    sampling distribution and schedule."""
    import peft
    import torch
    import transformers
    import trl
    from datasets import Dataset

    from plumbline.training.prompts import Source

    assert recipe.rl is not None
    assert recipe.model.name is not None
    torch.set_num_threads(recipe.model.threads or 2)
    rl, rate = recipe.rl, recipe.rl.optimiser
    train = task.examples("train")
    examples = {example.id: example for example in train}
    source = Source.of(task, train)
    order = [
        example
        for step in range(rl.steps)
        for example in source.draw(rl.prompts_per_step, step, "rl", recipe.seed)[""]
    ]
    base = peft.PeftConfig.from_pretrained(recipe.model.name).base_model_name_or_path
    bf16 = recipe.model.dtype == "bfloat16"
    whole = transformers.AutoModelForCausalLM.from_pretrained(
        base, dtype=torch.bfloat16 if bf16 else torch.float32
    )
    model = peft.PeftModel.from_pretrained(whole, recipe.model.name, is_trainable=True)
    optimiser = torch.optim.AdamW(
        [weight for weight in model.parameters() if weight.requires_grad],
        lr=rate.learning_rate,
        betas=rate.betas,
        weight_decay=rate.weight_decay,
    )
    rates = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: rate.share(step, rl.steps))
    answers = rl.prompts_per_step * rl.group_size
    together = min(16, answers)  # that one backward pass holds
    config = trl.GRPOConfig(
        output_dir=str(folder),
        seed=recipe.seed,
        max_steps=rl.steps,
        per_device_train_batch_size=together,
        gradient_accumulation_steps=answers // together,
        num_generations=rl.group_size,
        max_completion_length=recipe.sampling.max_tokens,
        temperature=recipe.sampling.temperature,
        top_p=1.0,
        top_k=0,
        loss_type="dr_grpo",
        scale_rewards="none",
        beta=rl.beta,
        epsilon=rl.algorithm.clip_low,
        max_grad_norm=rate.max_grad_norm,
        shuffle_dataset=False,
        gradient_checkpointing=False,
        use_cpu=not torch.cuda.is_available(),
        bf16=bf16,
        logging_steps=1,
        save_steps=10,
        save_total_limit=1,
        report_to="none",
    )

    def reward(completions: Any, example: list[str], **_: Any) -> list[float]:
        texts = [completion[0]["content"] for completion in completions]
        return [
            task.judge(examples[name], text)[1].total
            for name, text in zip(example, texts, strict=True)
        ]

    return trl.GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list(
            [{"prompt": list(e.messages), "example": e.id} for e in order]
        ),
        processing_class=transformers.AutoTokenizer.from_pretrained(recipe.model.name),
        optimizers=(optimiser, rates),
    )


def same_batch(source: str, dtype: str, threads: int) -> str:
    """A batch that TRL sampled and credited, through both: how far log-probabilities and gradients
    are apart."""
    import tempfile

    import torch

    from plumbline.policies import open_policy
    from plumbline.records import Trajectory, Transition

    overrides = [f"model.name={source}", f"model.dtype={dtype}", f"model.threads={threads}"]
    recipe = load_recipe(RECIPE, [*ALONE, *overrides, "rl.prompts_per_step=2", "rl.steps=1"])
    assert recipe.rl is not None
    limit, count = recipe.sampling.max_tokens, 2 * recipe.rl.group_size
    with tempfile.TemporaryDirectory() as place:
        task = open_task(recipe.task.name, recipe.task.options, Path(place) / "data")
        trainer = trl_trainer(recipe, task, Path(place) / "trl")
        rows = [
            trainer.train_dataset[index] for index in range(2) for _ in range(recipe.rl.group_size)
        ]
        batch = trainer._generate_and_score_completions(rows)  # noqa: SLF001 - TRL has no public way to one batch
        trainer.current_gradient_accumulation_steps = 1
        trainer.model.train()
        with trainer.compute_loss_context_manager():
            trainer._compute_loss(trainer.model, batch).backward()  # noqa: SLF001
            ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
            seen = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
            with torch.no_grad():
                theirs, *_ = trainer._get_per_token_logps_and_entropies(  # noqa: SLF001
                    trainer.model, ids, seen, batch["completion_ids"].shape[1]
                )
    there = batch["completion_mask"].bool()
    policy = open_policy(recipe.model, source)
    trajectories = []
    for row in range(count):
        tokens = batch["completion_ids"][row][there[row]].numpy()
        step = Transition(
            positions=np.arange(len(tokens)),
            tokens=tokens,
            logprobs=np.zeros(len(tokens), np.float32),
        )
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].numpy()
        sampling = recipe.sampling
        trajectories.append(
            Trajectory(
                prompt=prompt, transitions=(step,), text="", sampling=sampling, finish="stop"
            )
        )
    scored = policy.score(trajectories)
    loss = -(scored.logprobs * batch["advantages"][scored.owner]).sum() / (count * limit)
    loss.backward()
    mine = {
        name.replace("base_model.model.", ""): weight.grad
        for name, weight in policy.trainable().items()
    }
    peers = dict(trainer.model.named_parameters())
    pairs = [
        (mine[name], weight.grad)
        for full, weight in peers.items()
        if (name := full.replace("base_model.model.", "")) in mine
    ]
    one, other = (torch.cat([pair[side].flatten().double() for pair in pairs]) for side in (0, 1))
    cosine = float(torch.nn.functional.cosine_similarity(one, other, dim=0))
    gap = (scored.logprobs.detach() - theirs.flatten()[there.flatten()]).abs()
    return (
        f"{dtype}: {count} answers, {int(there.sum())} tokens, {len(pairs)} of {len(mine)} "
        "weights; log-probabilities "
        f"differ by {gap.mean():.2e} nats on average, {gap.max():.2e} at most; gradients: cosine "
        f"{cosine:.5f}, norms {one.norm():.6f} and {other.norm():.6f}"
    )


# -- the floor -------------------------------------------------------------------------------------


def best_rule() -> str:
    """What the best answers earn that see the delivery alone, and may quote the review's first
    sentence as it stands.

    Chosen on the test prompts themselves, so nothing that reads no more than this can earn more.
    """
    import tempfile

    from plumbline_commerce.extraction.baselines import facts_only, opening
    from plumbline_commerce.extraction.schema import CATEGORIES, SENTIMENTS

    recipe = load_recipe(RECIPE)
    with tempfile.TemporaryDirectory() as place:
        task = open_task(recipe.task.name, recipe.task.options, Path(place))
        examples = task.examples("test")
    seen: dict[str, list[Any]] = {}
    for example, answer in zip(examples, facts_only(examples), strict=True):
        seen.setdefault(json.loads(answer)["complaint_category"], []).append(example)
    lines, rewards = [], []
    for delivery, those in seen.items():
        best: tuple[float, list[float], str] = (-1.0, [], "")
        for sentiment, category, quotes in itertools.product(SENTIMENTS, CATEGORIES, (False, True)):
            earned = []
            for example in those:
                span = opening(example.reference["review"]) if quotes else None
                values = {
                    "sentiment": sentiment,
                    "complaint_category": category,
                    "main_complaint": span,
                }
                earned.append(task.judge(example, json.dumps(values, ensure_ascii=False))[1].total)
            what = f"{sentiment}, {category}, {'first sentence' if quotes else 'null'}"
            best = max(best, (float(np.mean(earned)), earned, what))
        rewards += best[1]
        lines.append(f"{delivery}: {len(those)} prompts, {best[2]}: {best[0]:.3f}")
    return "\n".join([*lines, f"best rule without reading: {mean_interval(rewards)}"])


# -- signal and noise ------------------------------------------------------------------------------


def measure_signal(source: str, prompts: int, copies: int, threads: int) -> str:
    """Signal and noise of one batch, and how alike the gradients of two halves are."""
    import tempfile

    from plumbline.policies import open_policy
    from plumbline.rollouts.collect import collect
    from plumbline.training.prompts import Source
    from plumbline.training.rl import weigh_rollouts

    recipe = load_recipe(RECIPE, [*ALONE, f"model.name={source}", f"model.threads={threads}"])
    assert recipe.rl is not None
    with tempfile.TemporaryDirectory() as records:
        train = open_task(recipe.task.name, recipe.task.options, Path(records) / "data").examples(
            "train"
        )
        task = open_task(
            recipe.task.name,
            {**recipe.task.options, "data": str(Path(records) / "data")},
            Path(records),
        )
        policy = open_policy(recipe.model, source)
        batch = Source.of(task, train).draw(prompts, 0, "rl", 0)[""]
        groups = collect(
            policy, task, batch, copies=copies, sampling=recipe.sampling, key=(0, "signal")
        )
    rewards = np.concatenate([group.rewards() for group in groups])
    entropy = -np.mean(
        np.concatenate(
            [turn.logprobs for group in groups for each in group.rollouts for turn in each.turns]
        )
    )
    text = (
        f"{source}: {prompts} x {copies} answers, reward {np.nanmean(rewards):.3f}, spread within "
        "a group "
        f"{np.mean([np.nanstd(group.rewards()) for group in groups]):.3f}, entropy {entropy:.3f} "
        "nats a token\n"
    )
    gradients = group_gradients(policy, weigh_rollouts(groups, recipe.rl.algorithm))
    return f"{text}\n{halves(gradients @ gradients.T, copies)}\n"


def group_gradients(policy: Any, groups: list[Any]) -> Any:
    """The gradient of each group [groups, elements watched]."""
    from plumbline.training.gradient_noise import GradientParts

    watched = GradientParts(policy.trainable())
    for number, group in enumerate(groups):
        part = [c for c in group.rollouts if c.advantage and c.weight]
        if part:
            terms = policy.score([turn for c in part for turn in c.turns])
            lengths = [sum(len(turn.logprobs) for turn in c.turns) for c in part]
            given = terms.logprobs.new_tensor(
                np.repeat([c.advantage * c.weight for c in part], lengths)
            )
            (-(terms.logprobs * given).sum()).backward()
        watched.add(number)
    for weight in policy.trainable().values():
        weight.grad = None
    return np.stack([watched.sums[number].numpy() for number in sorted(watched.sums)]).astype(
        np.float64
    )


def halves(products: Any, copies: int) -> str:
    """From the products of the groups' gradients [P, P]: signal, noise, and the cosines of two
    disjoint sets."""
    prompts = len(products)
    across = products - np.diag(np.diag(products))
    of_group = across.sum(axis=1) / (prompts - 1)  # each has the signal for its mean
    signal, noise = of_group.mean(), np.diag(products).mean() - of_group.mean()
    # of a U-statistic of degree 2 (Hoeffding 1948)
    error = 2 * of_group.std(ddof=1) / np.sqrt(prompts)
    lines = [
        f"Of one group: signal {signal:.2e} +- {error:.1e}, noise {noise:.2e}",
        "",
        "| groups in each half | answers | cosine, mean over splits | standard deviation |",
        "|---|---|---|---|",
    ]
    rng = np.random.default_rng(0)
    size = 1
    while 2 * size <= prompts:
        cosines = []
        for _ in range(400):
            order = rng.permutation(prompts)
            one, other = order[:size], order[size : 2 * size]
            shared = products[np.ix_(one, other)].sum()
            lengths = products[np.ix_(one, one)].sum() * products[np.ix_(other, other)].sum()
            cosines.append(shared / np.sqrt(lengths) if lengths > 0 else 0.0)
        lines.append(
            f"| {size} | {size * copies} | {np.mean(cosines):.3f} | {np.std(cosines):.3f} |"
        )
        size *= 2
    return "\n".join(lines)


# -- what answers say ------------------------------------------------------------------------------


def named_values(run: RunRecord, key: str) -> str:
    """A Markdown table: for each gold value of a key, how often answers name which value, before
    and after RL."""
    recipe = run.recipe
    task = open_task(
        recipe.task.name,
        {**recipe.task.options, "data": str(run.folder / "data")},
        run.folder / "data",
    )
    gold = {example.id: example.reference[key] for example in task.examples("test")}
    lines = [
        f"{run.folder.name}, {key}",
        "",
        "| answers | gold | n | right | named |",
        "|---|---|---|---|---|",
    ]
    for mode, stage in itertools.product(("greedy", "sampled"), ("base", "rl")):
        rows = run.evaluations()[EvaluationKey(stage, "test", mode)].rows
        read = [(gold[row.id], strict_json(row.completion)) for row in rows]
        said = Counter(
            (right, str(value.get(key)) if isinstance(value, dict) else "no JSON")
            for right, value in read
        )
        for value in sorted(set(gold.values())):
            named = {
                other: count for (wanted, other), count in said.most_common() if wanted == value
            }
            counts = ", ".join(f"{other} {count}" for other, count in named.items())
            lines.append(
                f"| {stage} {mode} | {value} | {sum(named.values())} | {named.get(value, 0)} | "
                f"{counts} |"
            )
    return "\n".join([*lines, ""])


# -- rows and table --------------------------------------------------------------------------------


def collect() -> list[dict[str, Any]]:
    """A row for each finished arm; those of earlier collections that are not here any more stay."""
    rows = {(row["arm"], row["seed"]): row for _, row in read_jsonl(ROWS)} if ROWS.is_file() else {}
    arms = yaml.safe_load(ARMS.read_text())
    for result in sorted(FOLDER.glob("*-seed*/result.json")):
        name, _, seed = result.parent.name.rpartition("-seed")
        if name in arms:
            rows[name, int(seed)] = summary(
                name, arms[name], int(seed), RunRecord.read(result.parent)
            )
    return [rows[key] for key in sorted(rows)]


def summary(name: str, arm: dict[str, Any], seed: int, run: RunRecord) -> dict[str, Any]:
    rl = run.recipe.rl
    assert rl is not None
    steps = run.rows("rl")
    found = run.evaluations()
    row: dict[str, Any] = {
        "arm": name,
        "seed": seed,
        "trainer": arm.get("trainer", "plumbline"),
        "start": Path(str(run.recipe.model.name)).parts[-3],
        "learning_rate": rl.optimiser.learning_rate,
        "prompts": rl.prompts_per_step,
        "group": rl.group_size,
        "steps": rl.steps,
        "shuffled": run.recipe.controls.shuffle_advantages,
        "set": arm["set"],
        "baselines": {
            key.mode: round(e.mean_reward, 4)
            for key, e in found.items()
            if key.stage == "reference"
        },
    }
    for mode in ("greedy", "sampled"):
        before, after = (found[EvaluationKey(stage, "test", mode)] for stage in ("base", "rl"))
        change = compare(before, after)
        row[mode] = {
            "n": change.difference.n,
            "before": round(before.mean_reward, 4),
            "after": round(after.mean_reward, 4),
            "difference": interval(change),
            "p": change.p_value,
            "parts": {
                part: interval(paired_difference(of_part(before, part), of_part(after, part)))
                for part in READING
            },
        }
    row["reward"] = [round(step["train/reward"], 4) for step in steps]
    for key in ("entropy", "grad_signal", "grad_noise", "sampler_scorer_gap"):
        values = [step.get(f"train/{key}") for step in steps]
        row[key] = [None if value is None else float(f"{value:.4g}") for value in values]
    seconds = [
        sum(v for k, v in clock.items() if k.startswith("time/"))
        for clock in run.files["timings"].rows()
    ]
    row["seconds_per_step"] = round(float(np.median(seconds)), 1)
    return row


def of_part(evaluation: Evaluation, part: str) -> list[float]:
    return [float(row.parts[part] or 0.0) for row in evaluation.rows]


def interval(change: Any) -> list[float]:
    return [
        round(value, 4)
        for value in (change.difference.mean, change.difference.low, change.difference.high)
    ]


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            "| arm | seed | rate | answers | steps | entropy | signal/noise | greedy | change | "
            "sampled | change |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            row["arm"],
            row["seed"],
            f"{row['learning_rate']:.0e}",
            f"{row['prompts']} x {row['group']}",
            row["steps"],
            f"{np.mean(row['entropy'][:3]):.3f} -> {np.mean(row['entropy'][-3:]):.3f}",
            signal_to_noise(row),
        ]
        for mode in ("greedy", "sampled"):
            mean, low, high = row[mode]["difference"]
            cells += [
                f"{row[mode]['before']:.3f} -> {row[mode]['after']:.3f}",
                f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]",
            ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def signal_to_noise(row: dict[str, Any]) -> str:
    """Of a step, averaged over the arm, with its standard error."""
    signal = np.array([value for value in row["grad_signal"] if value is not None])
    if not len(signal):
        return "-"
    noise = np.mean([value for value in row["grad_noise"] if value is not None])
    return f"{signal.mean() / noise:.2f} ± {signal.std(ddof=1) / np.sqrt(len(signal)) / noise:.2f}"


if __name__ == "__main__":
    main()
