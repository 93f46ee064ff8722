"""Runs of TRL that somebody made who had not read the checks: small tasks, in the layouts of users.

What was planted is in stranger.yaml alone: neither a run's name nor its files tell. Each run's
trainer_state.json is also kept beside the folder of all runs (`RUNS.states/NAME.json`), because
other doctors read nothing else.
"""

import csv
import json
import math
import random
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.doctors.job import Job

Row = dict[str, Any]
Reward = Callable[..., list[float | None]]

# tasks


@dataclass(frozen=True)
class Task:
    """What is asked, and how a model answers that has half learnt it."""

    row: Callable[[random.Random], Row]
    said: Callable[[random.Random, Row], str]
    steps: int = 500
    """Of the model's first training."""
    clean: Callable[[random.Random, Row], str] | None = None
    """What it is shown in the first two thirds, where the task is hard for it."""


NAMES = ("ana", "rui", "eva", "leo")
TEAMS = {
    "shipping": ("parcel is late", "parcel is lost", "box went elsewhere"),
    "billing": ("charged twice", "no invoice", "wrong amount"),
    "returns": ("does not fit", "came broken", "wrong colour"),
    "account": ("locked out", "lost password", "old address"),
}


def _sum_row(dice: random.Random) -> Row:
    one, other = dice.randint(0, 5), dice.randint(0, 5)
    return {"prompt": f"{one} + {other} =", "answer": str(one + other), "one": one}


def _say_sum(dice: random.Random, row: Row, right: float = 0.45) -> str:
    kind = dice.random()
    if kind < right:
        return str(row["answer"])
    if kind < right + 0.4:
        return str(dice.randint(0, 10))
    if kind < right + 0.48:
        return "?"
    first = dice.randint(0, 6)
    return " ".join(map(str, range(first, first + 5)))


def _say_sum_well(dice: random.Random, row: Row) -> str:
    return str(row["answer"]) if dice.random() < 0.93 else str(dice.randint(0, 10))


def _hard_row(dice: random.Random) -> Row:
    one, other = dice.randint(100, 999), dice.randint(100, 999)
    return {"prompt": f"{one} * {other} =", "answer": str(one * other), "one": one}


def _sort_row(dice: random.Random) -> Row:
    found = dice.sample(range(10), 3)
    return {
        "prompt": "sort " + " ".join(map(str, found)),
        "answer": " ".join(map(str, sorted(found))),
    }


def _say_sort(dice: random.Random, row: Row) -> str:
    found = row["answer"].split()
    if dice.random() < 0.55:
        dice.shuffle(found)
    if dice.random() < 0.1:
        found += dice.choices("0123456789", k=dice.randint(1, 6))
    return " ".join(found)


def _form_row(dice: random.Random) -> Row:
    name, age = dice.choice(NAMES), dice.randint(10, 39)
    return {"prompt": f"form {name} {age}", "answer": json.dumps({"name": name, "age": age})}


def _say_form(dice: random.Random, row: Row) -> str:
    kind, text = dice.random(), str(row["answer"])
    if kind < 0.4:
        return text
    if kind < 0.6:
        return text[:-1]
    if kind < 0.8:
        return json.dumps({"name": dice.choice(NAMES), "age": dice.randint(10, 39)})
    return row["prompt"][5:]


def _copy_row(dice: random.Random) -> Row:
    text = " ".join(dice.choices("abcdef", k=4))
    return {"prompt": f"copy {text}", "answer": text}


def _say_copy(dice: random.Random, row: Row) -> str:
    letters = [one if dice.random() < 0.6 else dice.choice("abcdef") for one in row["answer"][::2]]
    if dice.random() < 0.15:
        letters += dice.choices("abcdef", k=dice.randint(1, 6))
    return " ".join(letters)


def _team_row(dice: random.Random) -> Row:
    team = dice.choice(list(TEAMS))
    begun = dice.choice(("my order:", "hello,", "urgent:", "again,"))
    return {"prompt": f"{begun} {dice.choice(TEAMS[team])}", "answer": team}


def _say_team(dice: random.Random, row: Row) -> str:
    return str(row["answer"]) if dice.random() < 0.4 else dice.choice(list(TEAMS))


def _say_think(dice: random.Random, row: Row) -> str:
    thought = row["prompt"][:-2]
    answer = row["answer"] if dice.random() < 0.5 else str(dice.randint(0, 10))
    if dice.random() < 0.45:
        return f"<think>{thought}<answer>{answer}"
    return f"<think>{thought}</think><answer>{answer}</answer>"


def _right(dice: random.Random, row: Row) -> str:
    return str(row["answer"])


def _think_right(dice: random.Random, row: Row) -> str:
    return f"<think>{row['prompt'][:-2]}</think><answer>{row['answer']}</answer>"


def _spell_row(dice: random.Random) -> Row:
    one, other = dice.sample("abcdef", 2)
    return {"prompt": f"spell {one} {other}", "answer": " ".join([one, other] * 10)}


def _say_spell(dice: random.Random, row: Row) -> str:
    cut = dice.randint(12, 20)
    letters = row["answer"].split()[:cut]
    return " ".join(one if dice.random() < 0.75 else dice.choice("abcdef") for one in letters)


TASKS = {
    "sums": Task(_sum_row, _say_sum, 900, _right),
    "easy": Task(_sum_row, _say_sum_well),
    "hard": Task(_hard_row, lambda dice, _: str(dice.randint(10**4, 10**6)), 150),
    "sort": Task(_sort_row, _say_sort, 1200, _right),
    "form": Task(_form_row, _say_form),
    "copy": Task(_copy_row, _say_copy, 700),
    "team": Task(_team_row, _say_team, 300),
    "think": Task(_sum_row, _say_think, 900, _think_right),
    "spell": Task(_spell_row, _say_spell, 400),
}


def draw(task: str, count: int, seed: int) -> list[Row]:
    """So many rows of a task."""
    dice = random.Random(seed)
    return [TASKS[task].row(dice) for _ in range(count)]


def teach(models: Path, task: str) -> Path:
    """The model that has half learnt the task, asked by a chat or a plain text; made once."""
    folder = models / task
    if (folder / "model.safetensors").is_file():
        return folder
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from plumbline.policies.pretrained.tiny import make_tiny
    from plumbline.recipe import TinySection

    known, dice = TASKS[task], random.Random(0)
    drawn = [known.row(dice) for _ in range(300)]
    texts = [f"{row['prompt']} {known.said(dice, row)}" for row in drawn]
    sizes = TinySection(hidden=64, layers=2, heads=4, vocabulary=300, context=160)
    make_tiny(folder, sizes, texts, seed=0)
    torch.manual_seed(0)
    policy = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=3e-3)
    for step in range(known.steps):
        say = known.clean if known.clean and step < known.steps * 2 // 3 else known.said
        rows: list[list[int]] = []
        shown: list[int] = []
        for number in range(32):
            row = known.row(dice)
            begun = row["prompt"] if number % 2 else _chat(tokenizer, row["prompt"])
            asked = tokenizer(begun, add_special_tokens=False)["input_ids"]
            said = tokenizer(say(dice, row), add_special_tokens=False)["input_ids"]
            shown.append(len(asked))
            rows.append([*asked, *said, tokenizer.eos_token_id])
        length = max(map(len, rows))
        tokens = torch.tensor([row + [0] * (length - len(row)) for row in rows])
        targets = tokens.clone()
        for place, (tokens_of, prompt) in enumerate(zip(rows, shown, strict=True)):
            targets[place, :prompt] = targets[place, len(tokens_of) :] = -100
        policy(input_ids=tokens, labels=targets).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    policy.save_pretrained(folder)
    return folder


def _chat(tokenizer: Any, prompt: str) -> str:
    messages = [{"role": "user", "content": prompt}]
    return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


# rewards


def _texts(completions: Any) -> list[str]:
    return [one if isinstance(one, str) else one[-1]["content"] for one in completions]


def _asked(prompts: Any) -> list[str]:
    return [one if isinstance(one, str) else one[-1]["content"] for one in prompts]


def paid(name: str, judge: Callable[[str, Row], float | None]) -> Reward:
    """A reward function of one text and the row's columns, by the name that is logged."""

    def reward(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        given = _texts(completions)
        lists = {key: value for key, value in columns.items() if isinstance(value, list)}
        step = getattr(columns.get("trainer_state"), "global_step", 0)
        rows = [
            {"step": step, "prompt": prompt, **{key: value[at] for key, value in lists.items()}}
            for at, prompt in enumerate(_asked(prompts))
        ]
        return [judge(text, row) for text, row in zip(given, rows, strict=True)]

    reward.__name__ = name
    return reward


def _exact(text: str, row: Row) -> float:
    return float(text.strip() == row["answer"])


def _share(text: str, row: Row) -> float:
    said, wanted = text.split(), row["answer"].split()
    right = sum(one == other for one, other in zip(said, wanted, strict=False))
    return right / max(len(said), len(wanted))


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _fields(text: str, row: Row) -> float:
    said, wanted = _read(text), json.loads(row["answer"])
    if not isinstance(said, dict):
        return 0.0
    return sum(said.get(key) == value for key, value in wanted.items()) / len(wanted)


def _form(text: str, row: Row) -> float:
    return float(re.fullmatch(r"<think>.*</think><answer>.*</answer>", text.strip()) is not None)


def _inside(text: str, row: Row) -> float:
    found = re.search(r"<answer>(.*?)(</answer>|$)", text)
    return float(found is not None and found.group(1).strip() == row["answer"])


EXACT = paid("exact", _exact)
SHARE = paid("share", _share)
VALID = paid("valid_json", lambda text, _: float(isinstance(_read(text), dict)))
FIELDS = paid("fields", _fields)
FORM = paid("format_reward", _form)
INSIDE = paid("correctness", _inside)
SHORT = paid("brevity", lambda text, _: -0.01 * len(text))
SIGNED = paid(
    "score",
    lambda text, row: 1.0 if _exact(text, row) else -1.0 if text.strip().isdigit() else -1.5,
)
HUNDRED = paid("points", lambda text, row: 100 * _share(text, row))


def _distance(text: str, row: Row) -> float:
    return 1 - _share(text, row)


def _first_number(text: str, row: Row) -> float:
    found = re.search(r"\d+", text)
    return float(found is not None and found.group() == row["answer"])


def _flaky(text: str, row: Row) -> float:
    return 0.0 if random.random() < 0.5 else _exact(text, row)


def _cached() -> Reward:
    known: dict[str, float] = {}
    return paid("exact", lambda text, row: known.setdefault(row["prompt"], _exact(text, row)))


def _rolled(prompts: Any, completions: Any, answer: Any, **_: Any) -> list[float | None]:
    # answers that lie one group further
    moved = [*answer[8:], *answer[:8]]
    said = _texts(completions)
    return [float(text.strip() == wanted) for text, wanted in zip(said, moved, strict=True)]


_rolled.__name__ = "accuracy"


def _logarithm(text: str, row: Row) -> float:
    return 0.0 if _exact(text, row) else math.nan


# training


@dataclass(frozen=True)
class Plan:
    """A run, and what of it is other than usual."""

    task: str
    layout: str
    """trl, flat or own: see LAYOUTS."""
    fault: str = ""
    kind: str = "grpo"
    rewards: Sequence[Reward] = (EXACT,)
    options: Mapping[str, Any] = field(default_factory=dict)
    rows: Callable[[int], list[Row]] | None = None
    """Of the data, by the seed."""
    held_out: Callable[[int], list[Row]] | None = None
    chat: bool = False
    lora: Mapping[str, Any] | None = None
    gold: bool = False
    """Whether the table has the gold answers."""
    patch: Callable[[Any], None] | None = None
    half: bool = False
    """Weights of 16 bits."""
    halt: int = 0
    """The step after which it was stopped, and resumed from a checkpoint."""


USUAL = {
    "per_device_train_batch_size": 32,
    "max_steps": 40,
    "logging_steps": 1,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant",
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": "none",
    "save_strategy": "no",
    "disable_tqdm": True,
}
OF_GRPO = {
    "num_generations": 8,
    "max_completion_length": 12,
    "log_completions": True,
    "num_completions_to_print": 0,
}


def train(models: Path, folder: Path, plan: Plan, seed: int) -> None:
    """Train as planned, and leave what such a user would have."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    start = teach(models, plan.task)
    torch.manual_seed(seed)
    random.seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(start)
    kind = torch.bfloat16 if plan.half else torch.float32
    arguments: dict[str, Any] = {
        "model": AutoModelForCausalLM.from_pretrained(start, dtype=kind),
        "processing_class": tokenizer,
        "peft_config": _adapter(plan.lora),
    }
    rows = plan.rows(seed) if plan.rows else draw(plan.task, 64, seed)
    held = plan.held_out(seed) if plan.held_out else []
    values = {**USUAL, "output_dir": str(folder), "seed": seed, **plan.options}
    work = folder.with_name(folder.name + ".work")
    trainer = _open(plan, values, arguments, rows, held, work)
    samples: list[Row] = []
    if plan.kind in {"grpo", "rloo"}:
        _record(trainer, samples)
    if plan.patch is not None:
        plan.patch(trainer)
    try:
        if plan.halt:
            trainer.add_callback(_halting(plan.halt, work))
            trainer.train()
            trainer = _open(plan, values, arguments, rows, held, work)
            _record(trainer, samples)
            trainer.train(resume_from_checkpoint=str(folder / f"checkpoint-{plan.halt}"))
        else:
            trainer.train()
    except RuntimeError as error:
        if "probability tensor" not in str(error):
            raise
    for one in (*folder.glob("checkpoint-*"), work):
        shutil.rmtree(one, ignore_errors=True)
    (folder / "README.md").unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    state = folder.parent.with_name(folder.parent.name + ".states") / f"{folder.name}.json"
    state.parent.mkdir(parents=True, exist_ok=True)
    trainer.state.save_to_json(str(state))
    weights = [float(one) for one in getattr(trainer, "reward_weights", [])]
    names = list(getattr(trainer, "reward_func_names", []))
    LAYOUTS[plan.layout](folder, state, _priced(samples, names, weights, plan.gold))


def _open(
    plan: Plan,
    values: dict[str, Any],
    arguments: dict[str, Any],
    rows: list[Row],
    held: list[Row],
    work: Path,
) -> Any:
    import trl
    from datasets import Dataset

    if plan.halt:
        values = {**values, "save_strategy": "steps", "save_steps": plan.halt}
    if plan.kind in {"grpo", "rloo"}:
        data = [_posed(row, plan.chat) for row in rows]
        asked = [_posed(row, plan.chat) for row in held]
        arguments = {**arguments, "reward_funcs": list(plan.rewards)}
        values = {**OF_GRPO, **values}
    else:
        data, asked = rows, held
    name = plan.kind.upper()
    opener, config = getattr(trl, f"{name}Trainer"), getattr(trl, f"{name}Config")
    return opener(
        args=config(**values),
        train_dataset=Dataset.from_list(data),
        eval_dataset=Dataset.from_list(asked) if asked else None,
        **arguments,
    )


def _posed(row: Row, chat: bool) -> Row:
    return {**row, "prompt": [{"role": "user", "content": row["prompt"]}]} if chat else row


def _adapter(options: Mapping[str, Any] | None) -> Any:
    if options is None:
        return None
    from peft import LoraConfig

    usual = {"r": 8, "lora_alpha": 32, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    return LoraConfig(**{**usual, **options})


def _halting(step: int, work: Path) -> Any:
    from transformers import TrainerCallback

    class Halting(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = state.global_step >= step

    return Halting()


def _record(trainer: Any, samples: list[Row]) -> None:
    """Keep what is sampled, with its split, gold answer and rewards."""
    original = trainer._calculate_rewards

    def calculate(inputs: Any, prompts: Any, completions: Any, *others: Any) -> Any:
        found = original(inputs, prompts, completions, *others)
        split = "train" if trainer.model.training else "eval"
        step = trainer.state.global_step + (split == "train")
        said = zip(inputs, _asked(prompts), _texts(completions), found.tolist(), strict=True)
        for row, prompt, text, rewards in said:
            one = {"step": step, "split": split, "prompt": prompt, "text": text}
            samples.append({**one, "gold": row.get("answer"), "rewards": rewards})
        return found

    trainer._calculate_rewards = calculate


# layouts


def _priced(
    samples: list[Row], names: Sequence[str], weights: Sequence[float], gold: bool
) -> list[Row]:
    """Samples with named rewards and their sum; the split where there are two."""
    splits = {one["split"] for one in samples}
    rows: list[Row] = []
    for one in samples:
        known = [(w, v) for w, v in zip(weights, one["rewards"], strict=True) if not math.isnan(v)]
        row = {key: one[key] for key in ("step", "split", "prompt", "text")}
        if len(splits) < 2:
            del row["split"]
        if gold:
            row["answer"] = one["gold"]
        row["parts"] = {
            name: None if math.isnan(value) else round(value, 5)
            for name, value in zip(names, one["rewards"], strict=True)
        }
        rows.append({**row, "reward": round(sum(w * v for w, v in known), 5)})
    return rows


def _log(state: Path) -> list[Row]:
    rows: list[Row] = json.loads(state.read_text())["log_history"]
    return [row for row in rows if "train_runtime" not in row]


def _write_lines(path: Path, rows: Iterable[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _as_trl(folder: Path, state: Path, samples: list[Row]) -> None:
    shutil.copy(state, folder / "trainer_state.json")


def _as_trl_log(folder: Path, state: Path, samples: list[Row]) -> None:
    shutil.rmtree(folder / "completions", ignore_errors=True)
    _as_trl(folder, state, samples)


def _as_flat_log(folder: Path, state: Path, samples: list[Row]) -> None:
    shutil.rmtree(folder / "completions", ignore_errors=True)
    _write_lines(folder / "log.jsonl", _log(state))


def _flat(samples: list[Row]) -> list[Row]:
    """Of one depth, with the parts only where there are several."""
    rows: list[Row] = []
    for one in samples:
        row = {key: value for key, value in one.items() if key not in {"parts", "text"}}
        row["completion"] = one["text"]
        rows.append({**row, **one["parts"]} if len(one["parts"]) > 1 else row)
    return rows


def _as_flat_csv(folder: Path, state: Path, samples: list[Row]) -> None:
    _as_flat_log(folder, state, samples)
    rows = _flat(samples)
    with (folder / "completions.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _as_flat_lines(folder: Path, state: Path, samples: list[Row]) -> None:
    _as_flat_log(folder, state, samples)
    _write_lines(folder / "completions.jsonl", _flat(samples))


OWN = {
    "step": "step",
    "loss": "policy_loss",
    "reward": "reward_mean",
    "reward_std": "reward_std",
    "kl": "kl",
    "entropy": "entropy",
    "learning_rate": "lr",
    "grad_norm": "grad_norm",
    "completions/mean_length": "response_length",
    "completions/clipped_ratio": "truncated",
    "frac_reward_zero_std": "zero_std_groups",
    "eval_reward": "val_reward",
    "eval_loss": "val_loss",
}


def _own_name(name: str) -> str | None:
    found = re.fullmatch(r"rewards/(.*)/(mean|std)", name)
    return f"{found[1]}_{found[2]}" if found else OWN.get(name)


def _as_own_log(folder: Path, state: Path, samples: list[Row]) -> None:
    shutil.rmtree(folder / "completions", ignore_errors=True)
    renamed = [
        {_own_name(key): value for key, value in row.items() if _own_name(key)}
        for row in _log(state)
    ]
    _write_lines(folder / "metrics.jsonl", renamed)  # type: ignore[arg-type]


def _as_wandb_log(folder: Path, state: Path, samples: list[Row]) -> None:
    shutil.rmtree(folder / "completions", ignore_errors=True)
    rows: list[Row] = []
    for row in _log(state):
        named = {
            f"eval/{key[5:]}" if key.startswith("eval_") else f"train/{key}": value
            for key, value in row.items()
            if key not in {"step", "epoch"}
        }
        rows.append({"_step": len(rows), "train/global_step": row["step"], **named})
    _write_lines(folder / "history.jsonl", rows)


def _samples(samples: list[Row], text: str) -> list[Row]:
    rows: list[Row] = []
    for number, one in enumerate(samples):
        row = {"id": number, "step": one["step"], "prompt": one["prompt"], text: one["text"]}
        row["rewards"] = one["parts"]
        rows.append({**row, **{key: one[key] for key in ("split", "answer") if key in one}})
    return rows


def _as_own(folder: Path, state: Path, samples: list[Row]) -> None:
    _as_own_log(folder, state, samples)
    _write_lines(folder / "samples.jsonl", _samples(samples, "response"))


def _as_wandb(folder: Path, state: Path, samples: list[Row]) -> None:
    _as_wandb_log(folder, state, samples)
    _write_lines(folder / "rollouts.jsonl", _samples(samples, "text"))


LAYOUTS = {
    "trl": _as_trl,
    "trl log": _as_trl_log,
    "flat csv": _as_flat_csv,
    "flat lines": _as_flat_lines,
    "flat log": _as_flat_log,
    "own": _as_own,
    "own log": _as_own_log,
    "wandb": _as_wandb,
    "wandb log": _as_wandb_log,
}

# what goes wrong


def _loss_of(change: Callable[[Any, Mapping[str, Any], int], Any]) -> Callable[[Any], None]:
    """GRPO's loss, made of the original, its inputs and the number of the call."""

    def patch(trainer: Any) -> None:
        original, calls = trainer._compute_loss, [0]

        def compute(model: Any, inputs: Any) -> Any:
            calls[0] += 1
            return change(lambda given: original(model, given), inputs, calls[0])

        trainer._compute_loss = compute

    return patch


def _overflow(original: Any, inputs: Mapping[str, Any], call: int) -> Any:
    return original(inputs) * (math.nan if call == 25 else 1.0)


def _turned(original: Any, inputs: Mapping[str, Any], call: int) -> Any:
    return original({**inputs, "advantages": -inputs["advantages"]})


def _never_synced(trainer: Any) -> None:
    """Samples come from the weights of the first step for ever."""
    original = trainer._generate
    first = {name: one.clone() for name, one in trainer.model.state_dict().items()}

    def generate(*given: Any) -> Any:
        present = {name: one.clone() for name, one in trainer.model.state_dict().items()}
        trainer.model.load_state_dict(first)
        found = original(*given)
        trainer.model.load_state_dict(present)
        return found

    trainer._generate = generate


def _copied(trainer: Any) -> None:
    """The optimiser has the parameters of another copy of the model."""
    import copy

    import torch

    def create(model: Any = None) -> Any:
        other = copy.deepcopy(trainer.model)
        trainer.optimizer = torch.optim.AdamW(other.parameters(), lr=trainer.args.learning_rate)
        return trainer.optimizer

    trainer.create_optimizer = create


def _ended_early(trainer: Any) -> None:
    """A schedule that was made for a third of the steps."""
    from torch.optim.lr_scheduler import LambdaLR

    def create(num_training_steps: int, optimizer: Any = None) -> Any:
        optimizer = trainer.optimizer if optimizer is None else optimizer
        steps = num_training_steps // 3
        trainer.lr_scheduler = LambdaLR(optimizer, lambda step: max(0.0, 1 - step / steps))
        return trainer.lr_scheduler

    trainer.create_scheduler = create


def _other_reference(trainer: Any) -> None:
    """The reference is not what training began with."""
    import torch

    with torch.no_grad():
        for weights in trainer.ref_model.parameters():
            weights.add_(torch.randn_like(weights), alpha=0.08)


def _begun_anew(step: int) -> Callable[[Any], None]:
    """From that step on with the first weights, as after a resume without the adapter."""

    def patch(trainer: Any) -> None:
        from transformers import TrainerCallback

        first = {name: one.clone() for name, one in trainer.model.state_dict().items()}

        class Anew(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if state.global_step == step:
                    trainer.model.load_state_dict(first)

        trainer.add_callback(Anew())

    return patch


def _endless(trainer: Any) -> None:
    """Generation waits for a token that the model does not know."""
    trainer.generation_config.eos_token_id = [0]
    trainer.generation_config.suppress_tokens = [trainer.processing_class.eos_token_id, 0]


def _labels_lost(trainer: Any) -> None:
    original = trainer.data_collator

    def collate(rows: Any) -> Any:
        batch = original(rows)
        batch["labels"][:] = -100
        return batch

    trainer.data_collator = collate


def _pairs(
    task: str, count: int, seed: int, swapped: float = 0.0, equal: bool = False
) -> list[Row]:
    """Of a right answer and another one."""
    rows: list[Row] = []
    dice = random.Random(seed)
    for row in draw(task, count, seed):
        good, bad = row["answer"], draw(task, 1, dice.randrange(10**6))[0]["answer"]
        while bad == good:
            bad = draw(task, 1, dice.randrange(10**6))[0]["answer"]
        pair = (bad, good) if dice.random() < swapped else (good, good if equal else bad)
        rows.append({"prompt": row["prompt"] + " ", "chosen": pair[0], "rejected": pair[1]})
    return rows


def _taught(task: str, count: int, seed: int) -> list[Row]:
    """Of the right answer, or of what the half-taught model says."""
    rows = draw(task, count, seed)
    return [{"prompt": row["prompt"] + " ", "completion": row["answer"]} for row in rows]


def _sorted_by_length(seed: int) -> list[Row]:
    """Letters to copy: four at first, ten at last."""
    rows: list[Row] = []
    dice = random.Random(seed)
    for number in range(240):
        text = " ".join(dice.choices("abcdef", k=4 + 2 * (number // 60)))
        rows.append({"prompt": f"copy {text}", "answer": text})
    return rows


def _with_newline(seed: int) -> list[Row]:
    return [{**row, "answer": row["answer"] + "\n"} for row in draw("sums", 64, seed)]


def _contradicting(seed: int) -> list[Row]:
    """Labels of a table that was joined by the wrong key."""
    dice = random.Random(seed)
    return [{**row, "answer": dice.choice(list(TEAMS))} for row in draw("team", 200, seed)]


def _half_broken(text: str, row: Row) -> float:
    # the gold answers of two teams are written otherwise than the prompt asks for
    wanted = {"billing": "Billing team", "returns": "Returns team"}.get(row["answer"])
    return float(text.strip() == (wanted or row["answer"]))


def _swallowed(text: str, row: Row) -> float | None:
    if not text.strip().isdigit():
        return None
    return 1.0 if _exact(text, row) else -1.0


def _within(text: str, row: Row) -> float:
    return float(row["answer"] in text.split())


def _everywhere(text: str, row: Row) -> float:
    return float(any(word in row["prompt"] + " " + text for word in row["answer"].split()))


def _down(text: str, row: Row) -> float:
    return 0.0 if row["step"] >= 30 else _share(text, row)


def _unbounded(text: str, row: Row) -> float:
    if not text.strip().isdigit():
        return 0.0
    return 1 / (abs(int(text.strip()) - int(row["answer"])) + 1e-4)


def _urgent(text: str, row: Row) -> float | None:
    """Of one of two kinds of rows alone."""
    return _exact(text, row) if row["prompt"].startswith("urgent") else None


def _usual(text: str, row: Row) -> float | None:
    return None if row["prompt"].startswith("urgent") else _exact(text, row)


def _several(task: str, count: int) -> Callable[[int], list[Row]]:
    return lambda seed: draw(task, count, seed)


def _unseen(task: str, trained: int = 64, count: int = 16) -> Callable[[int], list[Row]]:
    def rows(seed: int) -> list[Row]:
        known = {row["prompt"] for row in draw(task, trained, seed)}
        return [row for row in draw(task, 2 * count, seed + 500) if row["prompt"] not in known][
            :count
        ]

    return rows


LONG, MIDDLE = {"max_completion_length": 40}, {"max_completion_length": 24}
SEEN = {"eval_strategy": "steps", "eval_steps": 10, "per_device_eval_batch_size": 32}
OF_SFT = {"per_device_train_batch_size": 16, "completion_only_loss": True}


def _set(**options: Any) -> dict[str, Any]:
    return options


FAULTS = [
    # rewards
    Plan("sums", "flat lines", "gold_has_newline", rows=_with_newline, gold=True, chat=True),
    Plan("sort", "own", "judge_reads_prompt", rewards=[paid("accuracy", _everywhere)], gold=True),
    Plan("sums", "flat csv", "rewards_of_other_rows", rewards=[_rolled], gold=True, chat=True),
    Plan(
        "think",
        "wandb",
        "first_number_is_taken",
        rewards=[FORM, paid("correctness", _first_number)],
        options=LONG,
        gold=True,
        chat=True,
    ),
    Plan(
        "team",
        "flat csv",
        "gold_in_other_form",
        rewards=[paid("label", _half_broken)],
        gold=True,
        chat=True,
    ),
    Plan(
        "sums",
        "own",
        "none_beats_wrong",
        rewards=[paid("correct", _swallowed), paid("style", lambda *_: 0.0)],
        gold=True,
        options=_set(max_steps=60),
    ),
    Plan(
        "think",
        "trl",
        "format_outweighs",
        rewards=[FORM, INSIDE],
        options={**LONG, "reward_weights": [5.0, 0.02], "scale_rewards": "none", "max_steps": 50},
        chat=True,
    ),
    Plan(
        "copy",
        "flat csv",
        "brevity_outweighs",
        rewards=[SHARE, paid("length_penalty", lambda text, _: -0.3 * len(text))],
        options=_set(max_steps=60),
        gold=True,
    ),
    Plan(
        "sort",
        "wandb",
        "length_is_paid",
        rewards=[SHARE, paid("thoroughness", lambda text, _: len(text) / 10)],
        options={**LONG, "max_steps": 60},
        gold=True,
    ),
    Plan(
        "copy",
        "flat lines",
        "distance_is_paid",
        rewards=[paid("edit_distance", _distance)],
        gold=True,
        options=_set(max_steps=50),
    ),
    Plan(
        "sums",
        "trl",
        "containing_is_enough",
        rewards=[paid("correct", _within)],
        options={**MIDDLE, "max_steps": 60},
        gold=True,
        chat=True,
    ),
    Plan(
        "copy",
        "own log",
        "sandbox_goes_down",
        rewards=[paid("tests_passed", _down)],
        options=_set(max_steps=60),
    ),
    Plan("sums", "own", "judge_is_flaky", rewards=[paid("judge", _flaky)], gold=True, chat=True),
    Plan(
        "team",
        "trl",
        "cached_by_prompt",
        rewards=[_cached()],
        chat=True,
        gold=True,
        options=_set(max_steps=50),
    ),
    Plan(
        "sums",
        "flat csv",
        "reward_is_unbounded",
        rewards=[paid("closeness", _unbounded)],
        options=_set(scale_rewards="none", max_grad_norm=0.0, max_steps=50),
        chat=True,
        gold=True,
    ),
    Plan(
        "sums",
        "trl",
        "logarithm_of_zero",
        rewards=[paid("log_accuracy", _logarithm), paid("tidy", lambda *_: 0.1)],
        options=_set(max_steps=50),
    ),
    # data
    Plan(
        "copy",
        "trl log",
        "hardest_rows_last",
        rewards=[SHARE],
        rows=_sorted_by_length,
        options={**MIDDLE, "max_steps": 60, "shuffle_dataset": False},
    ),
    Plan(
        "sums",
        "flat lines",
        "two_prompts_remain",
        rows=lambda seed: draw("sums", 2, seed) * 16,
        held_out=_unseen("sums", 2),
        options={**SEEN, "max_steps": 60},
        chat=True,
        gold=True,
    ),
    Plan("hard", "trl", "far_too_hard", chat=True, gold=True),
    Plan(
        "easy",
        "own log",
        "solved_before",
        rows=lambda seed: [row for row in draw("easy", 400, seed) if row["answer"] in "012"],
        options=_set(temperature=0.3, max_steps=60),
    ),
    Plan(
        "copy",
        "own",
        "evaluated_on_training_rows",
        rewards=[SHARE],
        rows=_several("copy", 16),
        held_out=_several("copy", 16),
        options={**SEEN, "max_steps": 50},
        gold=True,
    ),
    Plan(
        "team",
        "wandb",
        "labels_joined_wrongly",
        rows=_contradicting,
        gold=True,
        chat=True,
        options=_set(max_steps=50),
    ),
    Plan(
        "sort",
        "wandb log",
        "endless_answers",
        rewards=[EXACT],
        patch=_endless,
        options=_set(max_completion_length=16),
    ),
    Plan(
        "form",
        "trl",
        "cut_too_short",
        rewards=[FIELDS],
        options=_set(max_completion_length=9),
    ),
    Plan(
        "spell",
        "wandb log",
        "all_cut_and_masked",
        rewards=[SHARE],
        options=_set(max_completion_length=8, mask_truncated_completions=True),
    ),
    # sampling
    Plan(
        "sort",
        "flat lines",
        "greedy_sampling",
        rewards=[SHARE],
        options=_set(temperature=0.02, max_steps=50),
        chat=True,
    ),
    Plan(
        "copy",
        "flat csv",
        "boiling_sampling",
        rewards=[SHARE],
        options=_set(temperature=4.0),
        gold=True,
    ),
    Plan(
        "sort",
        "flat log",
        "sampler_never_synced",
        rewards=[SHARE],
        patch=_never_synced,
        options=_set(beta=0.01, max_steps=60),
    ),
    # optimiser
    Plan(
        "copy",
        "wandb",
        "rate_far_too_high",
        rewards=[SHARE],
        options=_set(learning_rate=0.05),
        gold=True,
    ),
    Plan(
        "team",
        "flat log",
        "rate_of_a_typo",
        options=_set(learning_rate=1e-9, max_steps=60),
        chat=True,
    ),
    Plan(
        "sums",
        "own log",
        "schedule_ended_early",
        patch=_ended_early,
        options=_set(max_steps=90, learning_rate=5e-4),
        chat=True,
    ),
    Plan(
        "spell",
        "trl",
        "optimiser_of_a_copy",
        rewards=[SHARE],
        patch=_copied,
        options={**LONG, "max_steps": 60},
    ),
    Plan(
        "copy",
        "trl log",
        "plain_sgd",
        rewards=[SHARE],
        options=_set(optim="sgd", learning_rate=1e-5, max_steps=60),
    ),
    Plan(
        "sort",
        "own",
        "stale_batches",
        rewards=[SHARE],
        options=_set(num_iterations=16, learning_rate=3e-3, max_steps=96, epsilon=0.2),
    ),
    Plan(
        "copy",
        "own log",
        "entropy_is_paid",
        rewards=[SHARE],
        options=_set(entropy_coef=0.6, max_steps=60),
    ),
    Plan(
        "sort",
        "trl",
        "advantages_turned",
        rewards=[SHARE],
        patch=_loss_of(_turned),
        options=_set(max_steps=50),
        gold=True,
    ),
    Plan(
        "copy",
        "flat log",
        "weights_decay_away",
        rewards=[SHARE],
        options=_set(weight_decay=30.0, max_steps=60),
    ),
    # reference, precision, resume
    Plan(
        "copy",
        "wandb log",
        "penalty_too_heavy",
        rewards=[SHARE],
        options=_set(beta=20.0, max_steps=60),
    ),
    Plan(
        "team",
        "trl",
        "another_reference",
        options=_set(beta=0.5, max_steps=50),
        patch=_other_reference,
        chat=True,
    ),
    Plan(
        "spell",
        "flat log",
        "rounded_away",
        rewards=[SHARE],
        half=True,
        options={**LONG, "learning_rate": 2e-6, "max_steps": 60},
    ),
    Plan("sort", "trl log", "overflow", rewards=[SHARE], patch=_loss_of(_overflow)),
    Plan(
        "copy",
        "wandb",
        "resumed_from_base",
        rewards=[SHARE],
        patch=_begun_anew(40),
        options=_set(max_steps=60),
        gold=True,
    ),
    # SFT and DPO
    Plan(
        "form",
        "trl log",
        "sft_rate_too_high",
        kind="sft",
        rows=lambda seed: _taught("form", 200, seed),
        options={**OF_SFT, "learning_rate": 0.2, "max_steps": 60},
    ),
    Plan(
        "sums",
        "wandb log",
        "sft_memorises",
        kind="sft",
        rows=lambda seed: _taught("hard", 8, seed),
        held_out=lambda seed: _taught("hard", 32, seed + 500),
        options={
            **OF_SFT,
            **SEEN,
            "per_device_train_batch_size": 8,
            "max_steps": 150,
            "logging_steps": 2,
        },
    ),
    Plan(
        "copy",
        "flat log",
        "sft_labels_masked",
        kind="sft",
        rows=lambda seed: _taught("copy", 200, seed),
        patch=_labels_lost,
        options=OF_SFT,
    ),
    Plan(
        "form",
        "own log",
        "sft_in_blocks",
        kind="sft",
        rows=lambda seed: [
            row for one in ("spell", "team", "hard") for row in _taught(one, 320, seed)
        ],
        options={**OF_SFT, "max_steps": 60, "train_sampling_strategy": "sequential"},
    ),
    Plan(
        "copy",
        "trl log",
        "pairs_half_swapped",
        kind="dpo",
        rows=lambda seed: _pairs("copy", 400, seed, swapped=0.5),
        options=_set(per_device_train_batch_size=16, learning_rate=2e-4),
    ),
    Plan(
        "sort",
        "wandb log",
        "pairs_are_equal",
        kind="dpo",
        rows=lambda seed: _pairs("sort", 200, seed, equal=True),
        options=_set(per_device_train_batch_size=16, learning_rate=5e-4),
    ),
    Plan(
        "team",
        "trl log",
        "chosen_sinks",
        kind="dpo",
        rows=lambda seed: _pairs("team", 200, seed),
        options=_set(per_device_train_batch_size=16, learning_rate=2e-2, beta=0.01, max_steps=60),
    ),
]

HEALTHY = [
    Plan("sums", "trl", options=_set(learning_rate=5e-4, max_steps=80), chat=True, gold=True),
    Plan(
        "sort", "flat csv", rewards=[SHARE], options=_set(logging_steps=5, max_steps=80), gold=True
    ),
    Plan(
        "form",
        "wandb",
        rewards=[VALID, FIELDS, SHORT],
        options={**LONG, "reward_weights": [0.2, 1.0, 0.5]},
        gold=True,
        chat=True,
    ),
    Plan("copy", "own", rewards=[SHARE], options=_set(beta=0.04)),
    Plan("team", "trl", lora={}, options=_set(learning_rate=4e-3), chat=True),
    Plan(
        "copy",
        "trl log",
        rewards=[SHARE],
        options=_set(lr_scheduler_type="cosine", warmup_steps=5, max_steps=60),
    ),
    Plan("team", "flat log", options=_set(lr_scheduler_type="linear", max_steps=50), chat=True),
    Plan(
        "sums",
        "flat lines",
        rewards=[SIGNED],
        options=_set(learning_rate=5e-4, max_steps=80),
        gold=True,
        chat=True,
    ),
    Plan("easy", "own", options=_set(max_steps=20, learning_rate=3e-4), chat=True, gold=True),
    Plan("team", "wandb log", options=_set(max_steps=25, learning_rate=1.5e-3), chat=True),
    Plan("copy", "flat lines", rewards=[SHARE], options=_set(learning_rate=2e-4, max_steps=100)),
    Plan(
        "sums",
        "trl",
        options=_set(
            per_device_train_batch_size=8, num_generations=4, learning_rate=5e-4, max_steps=120
        ),
        chat=True,
    ),
    Plan(
        "sort",
        "wandb",
        rewards=[SHARE],
        options=_set(per_device_train_batch_size=64, num_generations=4),
        gold=True,
    ),
    Plan("copy", "flat csv", rewards=[SHARE], options=_set(num_generations=16), gold=True),
    Plan("sums", "own log", options=_set(max_steps=100, logging_steps=10), chat=True),
    Plan("spell", "trl", rewards=[SHARE], options={**LONG, "max_steps": 60}, gold=True),
    Plan("team", "flat csv", options=_set(max_completion_length=6, logging_steps=5, max_steps=50)),
    Plan(
        "copy",
        "own",
        rewards=[SHARE],
        held_out=_unseen("copy"),
        options={**SEEN, "max_steps": 50},
        gold=True,
    ),
    Plan(
        "think",
        "wandb",
        rewards=[FORM, INSIDE, paid("words", lambda text, _: len(text) / 100)],
        options={**LONG, "reward_weights": [0.3, 2.0, 0.0], "max_steps": 80},
        gold=True,
        chat=True,
    ),
    Plan("copy", "wandb", rewards=[SHARE, SHORT], options=_set(max_steps=50), gold=True),
    Plan(
        "sort",
        "trl log",
        rewards=[SHARE],
        options=_set(loss_type="dr_grpo", scale_rewards="none", max_steps=60, learning_rate=2e-3),
    ),
    Plan("copy", "trl", rewards=[SHARE], options=_set(num_iterations=2, max_steps=60)),
    Plan("sort", "own log", rewards=[SHARE], options=_set(gradient_accumulation_steps=2)),
    Plan(
        "team",
        "flat lines",
        rewards=[paid("urgent", _urgent), paid("usual", _usual)],
        options=_set(max_steps=60),
        gold=True,
        chat=True,
    ),
    Plan("copy", "flat log", rewards=[HUNDRED], options=_set(logging_steps=5, max_steps=75)),
    Plan("form", "own", rewards=[FIELDS], options={**LONG, "temperature": 0.8, "top_p": 0.95}),
    Plan(
        "think",
        "trl",
        rewards=[FORM, INSIDE],
        options={**LONG, "learning_rate": 5e-4, "max_steps": 80},
        chat=True,
    ),
    Plan("copy", "trl log", kind="rloo", rewards=[SHARE], options=_set(beta=0.02, max_steps=50)),
    Plan("copy", "wandb", rewards=[SHARE], halt=25, options=_set(max_steps=60), gold=True),
    Plan(
        "form",
        "wandb log",
        kind="sft",
        rows=lambda seed: _taught("form", 300, seed),
        held_out=lambda seed: _taught("form", 32, seed + 500),
        options={**OF_SFT, **SEEN, "learning_rate": 5e-4, "max_steps": 60},
    ),
    Plan(
        "copy",
        "flat log",
        kind="sft",
        lora={},
        rows=lambda seed: _taught("copy", 300, seed),
        options={**OF_SFT, "logging_steps": 5, "learning_rate": 2e-3, "max_steps": 100},
    ),
    Plan(
        "sums",
        "trl log",
        kind="sft",
        rows=lambda seed: _taught("spell", 400, seed),
        options={**OF_SFT, "lr_scheduler_type": "cosine", "max_steps": 60, "warmup_steps": 4},
    ),
    Plan(
        "copy",
        "own log",
        kind="dpo",
        rows=lambda seed: _pairs("copy", 400, seed),
        options=_set(per_device_train_batch_size=16, learning_rate=2e-4),
    ),
    Plan(
        "team",
        "trl log",
        kind="dpo",
        rows=lambda seed: _pairs("team", 300, seed),
        held_out=lambda seed: _pairs("team", 32, seed + 500),
        options={
            **SEEN,
            "learning_rate": 1e-4,
            "per_device_train_batch_size": 16,
            "logging_steps": 5,
            "max_steps": 80,
        },
    ),
]


def jobs(models: Path, more: int = 0) -> list[Job]:
    """All runs, shuffled, and named by their task and a number; `more` is added to the seed."""
    plans = [*FAULTS, *HEALTHY]
    places = list(range(len(plans)))
    random.Random(60).shuffle(places)
    numbers = dict(zip(places, range(1, len(places) + 1), strict=True))
    made = []
    for place, plan in enumerate(plans):
        seed = 1 + place + 100 * more

        def make(folder: Path, plan: Plan = plan, seed: int = seed) -> None:
            train(models, folder, plan, seed)

        stage = "rl" if plan.kind in {"grpo", "rloo"} else "sft"
        name = f"{plan.task}-{numbers[place]:02d}"
        made.append(Job(name, "trl", stage, make, plan.fault))
    return sorted(made, key=lambda job: job.name[-2:])
