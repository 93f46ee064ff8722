"""Runs of Plumbline's trainer: four families, two tasks, healthy and with one fault each."""

import copy
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.doctors.job import Job

FAMILIES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "autoregressive": ({}, {}),
    "masked": ({"attention": "prefix"}, {"steps": 6, "selector": "plackett_luce"}),
    "slots": ({"slot": 4}, {"steps": 4, "selector": "plackett_luce", "position_temperature": 0.3}),
    "flow": ({"attention": "prefix"}, {"steps": 6, "kernel": "conditional"}),
}
"""What a family's model and its sampling have beside what all have."""
TASKS = ("halves", "alphabet")
COMMERCE = {
    "orders": 6000,
    "extraction": 600,
    "keys": ["sentiment", "sentiment_score"],
    "instructions": "short",
    "sloppiness": {"abridged": 0.3, "decimal_comma": 0.6, "unclosed": 0.3},
}
"""The log's main job with two of its keys: `kind: commerce`."""
BASE_STEPS = 400
Plant = Callable[[], Any]
"""A context in which the fault is there."""


@dataclass(frozen=True)
class Kind:
    """What is other than usual."""

    rl: dict[str, Any] = field(default_factory=dict)
    """Keys of `rl`, and, with their section's name before a dot, of others."""
    task: dict[str, Any] = field(default_factory=dict)
    plant: Plant = nullcontext
    family: str = "autoregressive"


# -- faults that no option makes: the code is changed while the run is made ------------------------


@contextmanager
def _credited(change: Callable[[int, Any], Any]) -> Iterator[None]:
    from plumbline.training import rl

    original, calls = rl.weigh_rollouts, []

    def changed(*arguments: Any, **how: Any) -> Any:
        calls.append(1)
        return [
            replace(group, rollouts=tuple(change(len(calls), one) for one in group.rollouts))
            for group in original(*arguments, **how)
        ]

    with mock.patch.object(rl, "weigh_rollouts", changed):
        yield


def wrong_sign() -> Any:
    return _credited(lambda _, one: replace(one, advantage=-one.advantage))


def spikes() -> Any:
    """Every ninth batch weighs two hundred times as much."""
    return _credited(
        lambda step, one: replace(one, weight=one.weight * (200 if step % 9 == 0 else 1))
    )


@contextmanager
def _collected(changed: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Rollouts of training drawn otherwise; evaluations as they were."""
    from plumbline.training import prompts

    with mock.patch.object(prompts, "collect_parts", changed(prompts.collect_parts)):
        yield


def stale() -> Any:
    """The sampler has the first weights for ever."""
    first: list[Any] = []

    def changed(original: Callable[..., Any]) -> Callable[..., Any]:
        def collect(sampler: Any, *arguments: Any, **how: Any) -> Any:
            if not first:
                first.append(copy.deepcopy(sampler))
            return original(first[0], *arguments, **how)

        return collect

    return _collected(changed)


def same_seed() -> Any:
    """All answers of a group are drawn with one seed."""

    def changed(original: Callable[..., Any]) -> Callable[..., Any]:
        def collect(*arguments: Any, **how: Any) -> Any:
            return [
                replace(one, rollouts=one.rollouts[:1] * len(one.rollouts))
                for one in original(*arguments, **how)
            ]

        return collect

    return _collected(changed)


@contextmanager
def exhausted() -> Iterator[None]:
    """A schedule that was made for 60 % of the steps."""
    from plumbline.training.optimiser import Optimiser

    def short(self: Any, step: int) -> float:
        return float(self.section.learning_rate * max(0.0, 1 - step / round(0.6 * self.total)))

    with mock.patch.object(Optimiser, "learning_rate", short):
        yield


@contextmanager
def other_reference() -> Iterator[None]:
    """The reference is another checkpoint."""
    import torch

    from plumbline.policies.pretrained.policy import PretrainedPolicy as Policy

    original = Policy.keep_reference

    def keep(policy: Any) -> None:
        weights = policy.trainable()
        saved = {name: weight.detach().clone() for name, weight in weights.items()}
        noise = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weight in weights.values():
                weight.add_(0.3 * weight.std() * torch.randn(weight.shape, generator=noise))
            original(policy)
            for name, weight in weights.items():
                weight.copy_(saved[name])

    with mock.patch.object(Policy, "keep_reference", keep):
        yield


@contextmanager
def no_reference() -> Iterator[None]:
    """The reference is the policy itself."""
    from plumbline.policies.autoregressive.policy import AutoregressivePolicy as Policy

    original = Policy.score

    def score(
        policy: Any, trajectories: Any, *, reference: bool = False, divergence: bool = False
    ) -> Any:
        return original(policy, trajectories, divergence=divergence)

    with mock.patch.object(Policy, "score", score):
        yield


@contextmanager
def plant_other_sampling() -> Iterator[None]:
    """Answers are drawn at 0.3 in the last evaluation."""
    from plumbline.training import stage_evaluations

    original, modes = stage_evaluations._evaluate, stage_evaluations.evaluation_modes

    def colder(recipe: Any) -> Any:
        return {
            name: sampling if sampling.greedy else replace(sampling, temperature=0.3)
            for name, sampling in modes(recipe).items()
        }

    def evaluate(run: Any, policy: Any, task: Any, examples: Any, key: Any) -> Any:
        last = key.stage == "rl" and key.step is None
        with mock.patch.object(stage_evaluations, "evaluation_modes", colder if last else modes):
            return original(run, policy, task, examples, key)

    with mock.patch.object(stage_evaluations, "_evaluate", evaluate):
        yield


@contextmanager
def not_a_number() -> Iterator[None]:
    """The loss of the twentieth batch is NaN."""
    from plumbline.training import update

    original, calls = update._loss, []

    def loss(*arguments: Any) -> Any:
        calls.append(1)
        return original(*arguments) * (float("nan") if len(calls) == 20 else 1.0)

    with mock.patch.object(update, "_loss", loss):
        yield


BROKEN: Mapping[str, Kind] = {
    "our constant reward": Kind(task={"reward": "constant"}),
    "our reward 0": Kind(task={"reward": "zero"}, family="masked"),
    "our groups of equal rewards": Kind(task={"reward": "by_prompt"}),
    "our dead part": Kind(task={"reward": "dead"}),
    "our dead part, masked": Kind(task={"reward": "dead"}, family="masked"),
    "strict parser": Kind(task={"reward": "strict", "comma": 0.4}),
    "strict parser, all": Kind(task={"reward": "strict", "comma": 1.0}, rl={"patience": 1000}),
    "parts that contradict": Kind(task={"reward": "opposed"}),
    "gold answers earn less": Kind(task={"reward": "gold_earns_less"}),
    "a blank answer pays": Kind(task={"reward": "unread_pays"}),
    "verdicts that fail": Kind(task={"reward": "raises"}),
    "trained on another reward": Kind(
        task={"reward": "other_in_training"}, rl={"evaluation.every": 6}
    ),
    "length is paid, ours": Kind(task={"reward": "length"}),
    "sparse reward, ours": Kind(
        task={"reward": "sparse", "kind": "alphabet"}, rl={"group_size": 2, "prompts_per_step": 8}
    ),
    "limit far too low, ours": Kind(rl={"sampling.max_tokens": 4}),
    "rate exhausted, ours": Kind(plant=exhausted),
    "rate exhausted, flow": Kind(plant=exhausted, family="flow"),
    "rate of nothing, ours": Kind(rl={"optimiser": {"learning_rate": 1e-9}}),
    "rate too high, ours": Kind(rl={"optimiser": {"learning_rate": 2e-2}}),
    "rate too high, masked": Kind(rl={"optimiser": {"learning_rate": 5e-2}}, family="masked"),
    "rate too high, slots": Kind(rl={"optimiser": {"learning_rate": 2e-2}}, family="slots"),
    "wrong sign": Kind(plant=wrong_sign),
    "wrong sign, flow": Kind(plant=wrong_sign, family="flow"),
    "advantages at random": Kind(rl={"controls.shuffle_advantages": True, "steps": 60}),
    "scored at another temperature": Kind(rl={"controls.score_temperature": 0.6, "max_gap": 100.0}),
    "scored at another temperature, slots": Kind(
        rl={"controls.score_temperature": 0.6, "max_gap": 100.0}, family="slots"
    ),
    "stale weights": Kind(plant=stale, rl={"max_gap": 100.0}),
    "stale weights, masked": Kind(plant=stale, rl={"max_gap": 100.0}, family="masked"),
    "one seed a group": Kind(plant=same_seed, rl={"patience": 1000}),
    "gradient spikes": Kind(plant=spikes),
    "another reference": Kind(plant=other_reference, rl={"beta": 0.05}),
    "the policy is its own reference": Kind(plant=no_reference, rl={"beta": 0.05}),
    "evaluated under another sampling distribution": Kind(plant=plant_other_sampling),
    "NaN loss, ours": Kind(plant=not_a_number),
}
HEALTHY: Mapping[str, Kind] = {
    "as it is": Kind(),
    "KL": Kind(rl={"beta": 0.02}),
    "cosine": Kind(rl={"optimiser": {"learning_rate": 1e-3, "schedule": "cosine"}}),
    "twice": Kind(rl={"inner_epochs": 2, "optimiser": {"learning_rate": 5e-4}}),
    "commas read": Kind(task={"comma": 0.4}),
    "lag": Kind(rl={"off_policy_steps": 1}),
}
"""Of the autoregressive family; the others have the first."""


def jobs(models: Path, more: int = 0) -> list[Job]:
    """All of them; a model that several start from is made once, as a run of its own. `more` is
    added to each seed."""
    found = []
    for task in TASKS:
        for family in FAMILIES:
            for seed in (1, 2):
                kind = Kind(family=family, task={"kind": task})
                found.append(
                    Job(
                        f"base {family} {task} {seed}",
                        "plumbline",
                        "base",
                        partial(_copied, models, kind, seed + more),
                    )
                )
                for name in HEALTHY if (family, seed) == ("autoregressive", 1) else ("as it is",):
                    how = replace(
                        HEALTHY[name], family=family, task={**HEALTHY[name].task, "kind": task}
                    )
                    title = f"{family} {task} {name} {seed}"
                    found.append(
                        Job(title, "plumbline", "rl", partial(_rl, models, how, seed + more))
                    )
    for seed in (3,):
        for family in FAMILIES:
            how = Kind(family=family)
            made = partial(_rl, models, how, seed + more)
            found.append(Job(f"{family} halves as it is {seed}", "plumbline", "rl", made))
    commerce = Kind(
        task={"kind": "commerce"},
        rl={"prompts_per_step": 6, "group_size": 8, "optimiser": {"learning_rate": 3e-4}},
    )
    found.append(
        Job("base commerce 1", "plumbline", "base", partial(_copied, models, commerce, 1 + more))
    )
    found += [
        Job(f"commerce {seed}", "plumbline", "rl", partial(_rl, models, commerce, seed + more))
        for seed in (1, 3)
    ]
    found += [
        Job(name, "plumbline", "rl", partial(_rl, models, kind, 1 + more), name)
        for name, kind in BROKEN.items()
    ]
    high = {"sft": {"steps": 60, "optimiser": {"learning_rate": 0.3, "max_grad_norm": 1e9}}}
    name = "our SFT, rate far too high"
    found.append(Job(name, "plumbline", "sft", partial(_sft, models, high, 1 + more), name))
    return found


def _values(kind: Kind, seed: int) -> dict[str, Any]:
    model, sampling = FAMILIES[kind.family]
    task = {"name": "benchmarks.doctors.letters:open_letters", "options": kind.task}
    if kind.task.get("kind") == "commerce":
        task = {"name": "commerce", "options": COMMERCE}
    return {
        "name": "run",
        "seed": seed,
        "task": task,
        "model": {"family": kind.family, "threads": 1, **model},
        "sampling": {"max_tokens": 28 if task["name"] != "commerce" else 40, **sampling},
        "evaluation": {"every": 10, "limit": 24, "final": ["test"]},
        "run": {"checkpoint_every": 1000, "preflight": False},
        "checks": {"every": 0},  # what is broken is broken on purpose, and is to be seen to its end
    }


def _base(kind: Kind, seed: int, folder: Path) -> None:
    wide = kind.family != "autoregressive"
    tiny = {"hidden": 48 if wide else 32, "layers": 2, "heads": 2, "vocabulary": 300, "context": 96}
    how: dict[str, Any] = {"steps": BASE_STEPS, "batch_size": 16, "learning_rate": 5e-3}
    if kind.task.get("kind") == "commerce":
        tiny |= {"hidden": 64, "heads": 4, "vocabulary": 1024, "context": 256}
        how |= {"batch_size": 12, "learning_rate": 3e-3}
        how |= {"task_options": {"seed": 7, "orders": 8000, "extraction": 1000}}  # another shop's
    values = _values(kind, seed)
    _run({**values, "model": {**values["model"], "tiny": {**tiny, **how}}}, folder)


def _copied(models: Path, kind: Kind, seed: int, folder: Path) -> None:
    shutil.copytree(_model(models, kind, seed).parent.parent, folder)


def _model(models: Path, kind: Kind, seed: int) -> Path:
    """The model that a run starts from, which one of two seeds of a hundred made; a planted reward
    is no part of it."""
    plain = replace(
        kind, task={"kind": kind.task.get("kind", TASKS[0]), "comma": kind.task.get("comma", 0.0)}
    )
    made = 100 * (seed // 100) + 1 + (seed + 1) % 2
    folder = models / "-".join(str(one) for one in (kind.family, *plain.task.values(), made))
    if not (folder / "result.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        _base(plain, made, folder)
    return folder / "models" / "base"


def _rl(models: Path, kind: Kind, seed: int, folder: Path) -> None:
    values = _values(kind, seed)
    values["model"]["name"] = str(_model(models, kind, seed))
    values["rl"] = {
        "steps": 60,
        "prompts_per_step": 4,
        "group_size": 4,
        "optimiser": {"learning_rate": 1e-3},
    }
    for key, value in kind.rl.items():
        section, _, name = key.rpartition(".")
        values.setdefault(section or "rl", {})[name] = value
    with kind.plant():
        _run(values, folder)


def _sft(models: Path, sections: dict[str, Any], seed: int, folder: Path) -> None:
    values = _values(Kind(), seed)
    values["model"]["name"] = str(_model(models, Kind(), seed))
    _run({**values, **sections}, folder)


def _run(values: dict[str, Any], folder: Path) -> None:
    from plumbline.errors import PlumblineError
    from plumbline.recipe import parse_recipe
    from plumbline.training.pipeline import run_recipe

    try:
        run_recipe(parse_recipe(values), folder)
    except PlumblineError as error:
        if not (folder / "metrics.jsonl").is_file():
            raise
        print(f"STOPPED: {error}")
