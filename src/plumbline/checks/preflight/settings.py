"""Settings that are allowed and known to disappoint, before a run; and what a job or another
machine would not have."""

import math
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import numpy as np

from plumbline.checks.check import Finding, MissingDataError, check
from plumbline.checks.diagnosis.history import History, Series
from plumbline.checks.diagnosis.rules.steps import ADAPTERS, FAR_OFF, FULL, find_small_updates
from plumbline.checks.preflight.before import BeforeRun
from plumbline.config.imports import code_file
from plumbline.errors import PlumblineError
from plumbline.policies.downloads.get import ENTRIES
from plumbline.policies.opening import find_model_path, is_hub_name
from plumbline.policies.options import PretrainedModel
from plumbline.recipe import OptimiserSection, Recipe, list_parents, list_recipe_names, walk_leaves
from plumbline.records import SteppedSampling
from plumbline.runs.metadata import ModelMetadata

# -- rates -----------------------------------------------------------------------------------------

SLOW_RATE, SLOW_STEPS = 0.1, 0.15
"""A rate under a tenth of its peak for more than so many of the steps teaches little in them; a
line has a tenth."""
SMALL = 5e7
"""Weights of a model up to which nothing is usual: it is one of a demo or a test."""


@check("before", name="rates")
def find_unusual_rates(before: BeforeRun) -> Iterator[Finding]:
    """The planned rates of each stage: their sum as that of a run, and what of the steps they
    leave."""
    recipe = before.recipe
    if (sft := recipe.sft) is not None:
        shown = sum(
            one.sizes["train"]
            for name, one in before.tasks.items()
            if sft.tasks is None or name in sft.tasks
        )
        steps = sft.steps or max(1, round((sft.epochs or 0) * math.ceil(shown / sft.batch_size)))
        yield from _check_planned_rates(sft.optimiser, steps, "sft")
    if recipe.rl is not None:
        yield from _check_planned_rates(recipe.rl.optimiser, recipe.rl.steps, "rl")
        try:
            small = before.shapes is not None and before.shapes.parameters < SMALL
        except PlumblineError:
            small = False  # what is damaged is said of the checkpoint
        if recipe.model.tiny is None and not small:
            adapters = isinstance(recipe.model, PretrainedModel) and recipe.model.lora is not None
            yield from _find_unusual_rate(recipe.rl.optimiser.learning_rate, adapters=adapters)


def _check_planned_rates(
    section: OptimiserSection, steps: int, kind: Literal["rl", "sft"]
) -> Iterator[Finding]:
    """Whether they move the weights; and in RL, whether they are near 0 for a large share of the
    steps."""
    warmup = section.warmup_steps(steps)
    shares = [section.learning_rate_factor(step, steps) for step in range(steps)]
    series = {
        "learning_rate": Series(np.arange(1, steps + 1), section.learning_rate * np.array(shares))
    }
    history = History(
        origin="recipe", name=kind, kind=kind, series=series, settings={"steps": steps}
    )
    for finding in find_small_updates(history):
        yield replace(finding, evidence={**finding.evidence, "section": f"{kind}: "})
    if 2 * warmup > steps:
        yield Finding(
            "warning",
            "long-warmup",
            check="schedule",
            evidence={"section": kind, "warmup": warmup, "steps": steps},
            causes=("of-a-longer-run",),
            change={f"{kind}.optimiser.warmup": 0.05},
        )
    slow = sum(share < SLOW_RATE for share in shares[warmup:])
    if kind == "rl" and slow > SLOW_STEPS * steps:
        yield Finding(
            "warning",
            "ends-low",
            check="schedule",
            evidence={
                "schedule": section.schedule,
                "under": SLOW_RATE,
                "slow": slow,
                "steps": steps,
            },
            causes=("of-pretraining",),
            change={"rl.optimiser.schedule": "constant_with_warmup"},
        )


def _find_unusual_rate(rate: float, *, adapters: bool) -> Iterator[Finding]:
    (low, high), other = (ADAPTERS, FULL) if adapters else (FULL, ADAPTERS)
    if low / FAR_OFF * (1 - 1e-9) <= rate <= high * FAR_OFF * (1 + 1e-9):
        return
    above, nearest = rate > high, high if rate > high else low
    trained = "adapters" if adapters else "all weights"
    yield Finding(
        "warning",
        "high" if above else "low",
        check="rate",
        evidence={
            "learning_rate": rate,
            "usual": [low, high],
            "usual from": low,
            "usual to": high,
            "adapters": adapters,
            "trained": trained,
            "other from": other[0],
            "other to": other[1],
            "nearest": nearest,
        },
        causes=(
            *(("of-supervised-training",) if above else ()),
            *(("of-adapters" if not adapters else "of-all-weights",) if adapters != above else ()),
            *(() if above else ("power-of-ten",)),
        ),
        change={"rl.optimiser.learning_rate": nearest},
    )


# -- how answers are drawn and scored ---------------------------------------------------------------

SAMPLING = ("temperature", "top_k", "top_p", "steps", "max_tokens")


@check("before", name="sampling")
def find_sampling_mismatch(before: BeforeRun) -> Iterator[Finding]:
    """What is drawn, scored, clipped and evaluated, against one another."""
    recipe = before.recipe
    sampling, rl, controls = recipe.sampling, recipe.rl, recipe.controls
    if isinstance(sampling, SteppedSampling) and recipe.evaluation.steps not in {
        None,
        sampling.steps,
    }:
        yield Finding(
            "warning",
            "other-steps",
            evidence={"training": sampling.steps, "evaluation": recipe.evaluation.steps},
            causes=("set-for-quality",),
            change={"evaluation.steps": None},
        )
    yield from _compare_with_model_card(before)
    if rl is None:
        return
    if controls.score_temperature not in {None, sampling.temperature}:
        yield Finding(
            "warning",
            "other-temperature",
            evidence={"drawn": sampling.temperature, "scored": controls.score_temperature},
            causes=("of-a-control",),
            change={"controls.score_temperature": None},
        )
    if rl.off_policy_steps and rl.old == "rescored" and rl.tis is None:
        yield Finding(
            "warning",
            "off-policy",
            evidence={"off-policy steps": rl.off_policy_steps},
            causes=("rescored",),
            change={"rl.tis": 2.0},
        )
    clips = {key for key in ("clip_low", "clip_high") if key in rl.algorithm.model_fields_set}
    if clips and rl.inner_epochs == 1 and rl.off_policy_steps == 0 and rl.uses_recorded_logprobs:
        yield Finding(
            "note",
            "clip-cannot-act",
            check="clip-idle",
            evidence={"clips": sorted(clips), "inner_epochs": 1, "off-policy steps": 0},
            causes=("several-updates",),
            change={"rl.inner_epochs": 2},
        )


def _compare_with_model_card(before: BeforeRun) -> Iterator[Finding]:
    """The sampling distribution of the run that made the model, where it says so."""
    name, sampling = before.recipe.model.name, before.recipe.sampling
    model = None if name is None else find_model_path(name)
    metadata = ModelMetadata.read(model) if model is not None and model.is_dir() else None
    now = asdict(sampling) | {"steps": before.recipe.evaluation.steps or sampling.most_steps}
    then = (
        {key: metadata.sampling[key] for key in SAMPLING if key in metadata.sampling}
        if metadata is not None
        else {}
    )
    # it was evaluated greedily alone, which says nothing of how it drew
    if then.get("temperature") == 0:
        then = {key: value for key, value in then.items() if key in {"steps", "max_tokens"}}
    changed = {key: [old, now.get(key)] for key, old in then.items() if old != now.get(key)}
    if changed:
        named = ", ".join(f"{key} {old} then and {new} now" for key, (old, new) in changed.items())
        yield Finding(
            "warning",
            "other-than-model",
            evidence={"model": name, "changed": named, **changed},
            causes=("two-recipes",),
            change={f"sampling.{key}": old for key, (old, _) in changed.items()},
        )


# -- what another machine would not have -----------------------------------------------------------

SECONDS = 10


@check("before", name="ignored-files", quick=False)
def find_ignored_files(before: BeforeRun) -> Iterator[Finding]:
    """A team lost jobs so: what packs a working tree for a cluster leaves out what git ignores."""
    named = list_files_read(before.recipe, before.file)
    # which is fetched there, too
    wanted = {
        path: key for path, key in named if key != "model.name" or not _is_made_by_command(path)
    }
    rules = _ignore_rules(list(wanted)) if wanted else {}
    if not rules:
        return
    path, rule = next(iter(rules.items()))
    only_model = all(wanted[one] == "model.name" for one in rules)  # which jobs fetch, as a rule
    yield Finding(
        "note" if only_model else "warning",
        evidence={
            "ignored": len(rules),
            "read": len(wanted),
            "example": str(path),
            "key": wanted[path],
            "rule": rule,
            "files": {str(one): {"key": wanted[one], "rule": rule} for one, rule in rules.items()},
        },
        causes=("kept-out",),
    )


def list_files_read(recipe: Recipe, file: Path | None) -> Iterator[tuple[Path, str]]:
    """Files and folders that a run reads, by what names them, as far as they are there; relative to
    where it runs.

    Args:
        recipe: of the run.
        file: of the recipe, where it is in one.

    Raises:
        RecipeError: the file, or one that it extends, cannot be read.
    """
    if file is not None:
        yield file, "the recipe"
        yield from ((one, "extends") for one in list_parents(file))
    for name, section in recipe.each_task.items():
        prefix = f"tasks.{name}" if name else "task"
        yield from _module_file(section.name, f"{prefix}.name")
        for key, values in walk_leaves(dict(section.options)):
            for value in values if isinstance(values, list) else [values]:
                if not isinstance(value, str):
                    continue
                yield from _module_file(value, f"{prefix}.options.{key}")
                if value and len(value) < 1000 and "\n" not in value and Path(value).exists():
                    yield Path(value), f"{prefix}.options.{key}"
    yield from _module_file(recipe.model.family, "model.family")
    template = recipe.model.chat_template
    if template is not None and Path(template).is_file():
        yield Path(template), "model.chat_template"
    if recipe.model.name is not None and (place := Path(recipe.model.name)).exists():
        yield place, "model.name"


def _module_file(name: str, key: str) -> Iterator[tuple[Path, str]]:
    """The file of `module:function`, where it is the user's own."""
    module, _, function = name.partition(":")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        return
    file = code_file(module)
    if file is not None and Path.cwd() in file.parents and "site-packages" not in file.parts:
        yield file, key


def _is_made_by_command(model: Path) -> bool:
    """Whether a command makes it: `plumbline get`, or the run of one of our recipes."""
    folder, name, *_ = *model.parts, "", ""
    return (folder == "models" and name in {entry.name for entry in ENTRIES}) or (
        folder == "runs" and name in list_recipe_names()
    )


def _ignore_rules(paths: list[Path]) -> dict[Path, str]:
    """The rule that ignores each path that is ignored.

    Raises:
        MissingDataError: nobody can say.
    """
    found, answered = {}, False
    for path in paths:
        place = path if path.is_dir() else path.parent
        try:
            asked = subprocess.run(  # noqa: S603
                ["git", "-C", str(place), "check-ignore", "-v", "--", str(path.resolve())],  # noqa: S607
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            raise MissingDataError("git") from None
        answered |= asked.returncode in {0, 1}  # 128: not in a work tree
        if asked.returncode == 0:
            found[path] = asked.stdout.partition("\t")[0]
    if not answered:
        raise MissingDataError("a git work tree")
    return found


@check("before", name="reproducible", quick=False)
def find_unpinned(before: BeforeRun) -> Iterator[Finding]:
    """What is not pinned, as far as the recipe shows it."""
    model = before.recipe.model
    sums_vary = model.name is None and model.threads is None
    if model.trust_remote_code or sums_vary or (model.name and is_hub_name(model.name)):
        yield Finding(
            "note",
            evidence={
                "seed": before.recipe.seed,
                "hub": model.name if model.name and is_hub_name(model.name) else None,
                "remote code": model.trust_remote_code,
                "threads": sums_vary,
            },
            change={"model.threads": 1} if model.name is None else {},
        )


CHECKS = (find_unusual_rates, find_sampling_mismatch, find_ignored_files, find_unpinned)
