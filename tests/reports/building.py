"""Run directories made with the real writers, of any size and any outcome: what a training would
have left behind."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.recipe import Recipe, parse_recipe
from plumbline.records import Evaluation, Example, Judged
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.run import Run

STRATA = ("extraction", "sql", "insight", "push")
WEIGHTS = {"parse": 0.15, "schema": 0.15, "alone": 0.1, "fields": 0.4, "numbers": 0.2}
GREEDY = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "max_tokens": 128, "steps": None}
SAMPLED = GREEDY | {"temperature": 1.0}


def recipe(**over: Any) -> Recipe:
    values: dict[str, Any] = {
        "name": "commerce-demo",
        "description": "A tiny model learns to read Brazilian reviews.",
        "seed": 7,
        "model": {"tiny": {"steps": 40}},
        "sft": {"steps": 30, "batch_size": 8},
        "rl": {"steps": 60, "prompts_per_step": 4, "group_size": 8},
        "sampling": {"max_tokens": 128},
        "evaluation": {"every": 10, "limit": 24},
    }
    return parse_recipe({**values, **over})


@dataclass(frozen=True)
class Level:
    """How good a stage is: form (it parses), content (the fields are right), tidy (it parses
    strictly)."""

    form: float
    content: float
    tidy: float = 0.7


BASE, SFT, RL = Level(0.35, 0.2, 0.3), Level(0.8, 0.55, 0.55), Level(0.99, 0.9, 0.97)


def answer(fields: float, tidy: bool, parses: bool) -> tuple[str, str]:
    """A completion and how it parses."""
    value = {
        "sentimento": "negativo" if fields > 0.5 else "positivo",
        "nota": 4.5,
        "atraso_dias": 12,
    }
    text = json.dumps(value, ensure_ascii=False)
    if not parses:
        return "O cliente reclama do atraso de 12 dias, acho que a nota é 4,5 e", "none"
    if tidy:
        return text, "strict"
    return f"Claro! Aqui está:\n```json\n{text.replace('4.5', '4,5')}\n```", "fence+decimal_comma"


def judged(number: int, split: str, level: Level, rng: np.random.Generator) -> Judged:
    parses = bool(rng.random() < level.form)
    tidy = bool(rng.random() < level.tidy)
    fields = float(rng.choice([0.0, 0.5, 1.0], p=_three(level.content))) if parses else 0.0
    parts: dict[str, float | None] = {
        "parse": float(parses),
        "schema": float(parses and rng.random() < 0.5 + level.form / 2),
        "alone": float(parses and tidy),
        "fields": fields,
        "numbers": (float(parses and rng.random() < level.content) if number % 3 else None),
    }
    weight = sum(WEIGHTS[name] for name, value in parts.items() if value is not None)
    reward = (
        sum(WEIGHTS[name] * value for name, value in parts.items() if value is not None) / weight
    )
    reward = min(reward, 1.0) if parses else 0.0
    text, how = answer(fields, tidy, parses)
    return Judged(
        id=f"{STRATA[number % 4]}-{split}-{number:04d}",
        stratum=STRATA[number % 4],
        completion=text,
        reward=reward,
        parts=parts,
        readings={"strict": reward if how == "strict" else 0.0, "lenient": reward},
        how=how,
        truncated=not parses and bool(rng.random() < 0.3),
        tokens=int(rng.integers(30, 90)),
    )


def _three(content: float) -> list[float]:
    return [(1 - content) ** 2, 2 * content * (1 - content), content**2]


def evaluation(
    stage: str,
    split: str,
    mode: str,
    level: Level,
    n: int,
    seed: int,
    change: Callable[[Judged], Judged] | None = None,
) -> Evaluation:
    rng = np.random.default_rng([seed, len(stage), len(split), len(mode)])
    rows = tuple(judged(number, split, level, rng) for number in range(n))
    return Evaluation(
        source=stage,
        task="commerce",
        split=split,
        rubric="commerce/1+abc123",
        sampling=GREEDY if mode == "greedy" else SAMPLED,
        seed=seed,
        rows=tuple(map(change, rows)) if change else rows,
        form=("parse", "schema", "alone"),
    )


def reference_row(name: str, reward: float, split: str, number: int) -> Judged:
    earned = 1.0 if name == "oracle" else reward * (0.5 + (number % 5) / 4)
    return Judged(
        id=f"{STRATA[number % 4]}-{split}-{number:04d}",
        stratum=STRATA[number % 4],
        completion=answer(1.0, True, True)[0] if name == "oracle" else "",
        reward=earned,
        parts={"parse": 1.0 if reward else 0.0, "fields": reward},
        readings={"strict": earned, "lenient": earned},
        how="strict" if reward else "none",
    )


def references(split: str, n: int) -> dict[str, Evaluation]:
    """The oracle and three baselines."""
    found = {}
    for name, reward in (
        ("oracle", 1.0),
        ("constant", 0.31),
        ("shuffled-gold", 0.22),
        ("blank", 0.0),
    ):
        rows = tuple(reference_row(name, reward, split, number) for number in range(n))
        found[name] = Evaluation(
            source=name,
            task="commerce",
            split=split,
            rubric="commerce/1+abc123",
            sampling={},
            seed=0,
            rows=rows,
        )
    return found


def write_evaluations(
    run: Run,
    levels: Mapping[str, Level],
    n: int,
    splits: tuple[str, ...] = ("val", "test"),
    beside: bool = True,
) -> None:
    """After each stage, and the references."""
    for split in splits:
        if beside:
            for name, found in references(split, n).items():
                run.evaluation(EvaluationKey("reference", split, name), found)
        for number, (stage, level) in enumerate(levels.items()):
            for mode in ("greedy", "sampled"):
                run.evaluation(
                    EvaluationKey(stage, split, mode),
                    evaluation(stage, split, mode, level, n, number),
                )


def write_supervised(run: Run, stage: str, steps: int) -> None:
    rng = np.random.default_rng(3)
    for step in range(1, steps + 1):
        values = {
            "train/loss": 0.4
            + 2.5 * math.exp(-6 * step / steps)
            + 0.08 * float(rng.standard_normal()),
            "train/grad_norm": 0.5 + float(rng.random()),
            "train/learning_rate": 1e-4 * min(1.0, step / (0.1 * steps + 1)),
        }
        values |= {
            "train/epoch": step / steps,
            "train/tokens": 1700 + step,
            "train/frac_truncated": 0.0,
        }
        run.metrics(stage, step, values)
        run.timings(stage, step, {"time/step": 0.21})


def write_rl(
    run: Run, steps: int, *, every: int = 10, n: int = 24, beta: float = 0.0, evaluate: bool = True
) -> None:
    """RL's metrics, samples and timings, and the evaluations inside it."""
    rng = np.random.default_rng(5)
    total = run.recipe.rl.steps if run.recipe.rl else steps
    for step in range(steps + 1):
        done = 1 - math.exp(-3.5 * step / total)
        level = Level(0.8 + 0.18 * done, 0.55 + 0.35 * done, 0.55 + 0.42 * done)
        values: dict[str, float | None] = {}
        if evaluate and step % every == 0:
            for mode in ("greedy", "sampled"):
                found = evaluation(f"rl@{step}", "val", mode, level, n, step)
                run.evaluation(EvaluationKey("rl", "val", mode, step), found)
                values["eval/mean_reward" if mode == "greedy" else "eval/sampled_mean_reward"] = (
                    found.mean_reward
                )
        if step:
            values = rl_values(level, done, rng, beta) | values
            run.timings("rl", step, {"time/rollouts": 1.9, "time/update": 0.8, "time/rest": 0.15})
            write_samples(run, step, level, rng)
        if values:
            run.metrics("rl", step, values)


def rl_values(
    level: Level, done: float, rng: np.random.Generator, beta: float
) -> dict[str, float | None]:
    def noisy(value: float, size: float = 0.07) -> float:
        return float(np.clip(value + size * rng.standard_normal(), 0, 1))

    reward = 0.25 * level.form + 0.5 * level.content + 0.2
    values: dict[str, float | None] = {
        "train/reward": noisy(reward),
        "train/reward_std": 0.2,
        "train/frac_reward_zero_std": noisy(0.1 + 0.4 * done),
        "train/completion_length": 70 - 20 * done + float(rng.standard_normal()) * 4,
        "train/frac_truncated": noisy(0.1 - 0.1 * done, 0.02),
        "train/frac_strict": noisy(level.tidy),
        "train/frac_failed": 0.0,
        "train/entropy": 0.6 - 0.3 * done + 0.03 * float(rng.standard_normal()),
        "train/loss": 0.02 * float(rng.standard_normal()),
        "train/grad_norm": 0.4 + 0.2 * float(rng.random()),
        "train/clip_fraction": 0.0,
        "train/kl": 0.04 * done if beta else None,
        "train/sampler_scorer_gap": 2e-7 * float(rng.random()),
        "train/scored_terms": 1800,
        "train/learning_rate": 5e-6,
        "train/epoch": done,
    }
    for name, good in (
        ("parse", level.form),
        ("schema", level.form),
        ("alone", level.tidy),
        ("fields", level.content),
    ):
        values[f"train/reward/{name}"] = noisy(good)
    values["train/reward/numbers"] = noisy(level.content) if rng.random() > 0.3 else None
    values["train/reading/lenient"] = values["train/reward"]
    values["train/reading/strict"] = noisy(reward * level.tidy)
    return values


def write_samples(run: Run, step: int, level: Level, rng: np.random.Generator) -> None:
    for number in range(2):
        row = judged(number, "train", level, rng)
        kept = {name: getattr(row, name) for name in ("id", "reward", "how", "tokens")}
        kept |= {
            "step": step,
            "text": row.completion,
            "parts": dict(row.parts),
            "readings": dict(row.readings),
        }
        finish = "length" if row.truncated else "stop"
        run.sample({**kept, "advantage": 0.1, "finish": finish, "failure": ""})


def examples(split: str, n: int) -> dict[str, Example]:
    names = [f"{STRATA[number % 4]}-{split}-{number:04d}" for number in range(n)]
    return {
        name: Example(
            id=name,
            messages=[
                {"role": "system", "content": "Responda só com JSON."},
                {
                    "role": "user",
                    "content": (
                        f"Avaliação {name}: o produto chegou com 12 dias de atraso, nota 4,5."
                    ),
                },
            ],
            gold=answer(1.0, True, True)[0],
            stratum=name.split("-")[0],
        )
        for name in names
    }


def finished_run(
    folder: Path, *, n: int = 59, levels: Mapping[str, Level] | None = None, **over: Any
) -> Run:
    """Base, SFT and GRPO, all evaluated, with an event and an environment."""
    with Run.start(recipe(**over), folder) as run:
        run.environment(
            {"engine": {"decoder": "lean", "scoring": "packed"}, "model": f"{folder}/models/sft"}
        )
        run.event("note", "records were built")
        write_supervised(run, "base", 40)
        write_supervised(run, "sft", 30)
        write_rl(run, 60)
        write_evaluations(run, levels or {"base": BASE, "sft": SFT, "rl": RL}, n)
        run.finish({"status": "finished", "model": str(folder / "models" / "rl")})
    return run
