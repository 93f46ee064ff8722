"""Settings that are allowed and known to disappoint, before a run; and what a job or another
machine would not have."""

import math
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

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
        yield replace(finding, what=f"{kind}: {finding.what}")
    if 2 * warmup > steps:
        what = f"{kind}.optimiser.warmup takes {warmup} of {steps} steps"
        evidence = {"warmup": warmup, "steps": steps}
        causes = ("a number of steps that was meant for a longer run",)
        fix = "a share of the steps"
        change: dict[str, Any] = {f"{kind}.optimiser.warmup": 0.05}
        yield Finding(
            "warning",
            what,
            check="schedule",
            evidence=evidence,
            causes=causes,
            fix=fix,
            change=change,
        )
    slow = sum(share < SLOW_RATE for share in shares[warmup:])
    if kind == "rl" and slow > SLOW_STEPS * steps:
        what = (
            f"rl.optimiser.schedule {section.schedule}: the learning rate is under {SLOW_RATE:.0%} of its "
            "peak for the last "
        )
        what += (
            f"{slow} of {steps} steps; linear has {SLOW_RATE:.0%} of such steps, "
            "constant_with_warmup none"
        )
        causes = (
            "a schedule of pretraining, where the end anneals: RL learns from its last prompts, too",
        )
        evidence = {"slow": slow, "steps": steps}
        fix = "a line, or a constant rate after a warmup"
        change = {"rl.optimiser.schedule": "constant_with_warmup"}
        yield Finding(
            "warning",
            what,
            check="schedule",
            evidence=evidence,
            causes=causes,
            fix=fix,
            change=change,
        )


def _find_unusual_rate(rate: float, *, adapters: bool) -> Iterator[Finding]:
    (low, high), other = (ADAPTERS, FULL) if adapters else (FULL, ADAPTERS)
    if low / FAR_OFF <= rate <= high * FAR_OFF * (1 + 1e-9):
        return
    above, nearest = rate > high, high if rate > high else low
    trained, others = ("adapters", "all weights") if adapters else ("all weights", "adapters")
    meant = (f"a learning rate for {others} ({other[0]:.0e} to {other[1]:.0e})",)
    what = (
        f"rl.optimiser.learning_rate is {rate:.1e}, more than ten times "
        f"{'above' if above else 'below'} what is "
    )
    yield Finding(
        "warning",
        f"{what}usual for {trained} ({low:.0e} to {high:.0e})",
        check="rate",
        evidence={"learning_rate": rate, "usual": [low, high], "adapters": adapters},
        causes=(
            *(["a learning rate for supervised training"] if above else []),
            *(meant if adapters != above else []),
            *([] if above else ["a power of ten too many when it was written"]),
        ),
        fix=f"begin with {nearest:.0e}",
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
        what = (
            f"evaluations take {recipe.evaluation.steps} denoising steps and training "
            f"{sampling.steps}: what is "
        )
        what += "evaluated is another sampler than the one that learns"
        causes = ("evaluation.steps was set for quality, or to save time",)
        fix = "evaluate with the steps of training, and beside it with others if you want to know"
        evidence: dict[str, Any] = {
            "training": sampling.steps,
            "evaluation": recipe.evaluation.steps,
        }
        change: dict[str, Any] = {"evaluation.steps": None}
        yield Finding(
            "warning",
            what,
            check="sampling",
            evidence=evidence,
            causes=causes,
            fix=fix,
            change=change,
        )
    yield from _compare_with_model_card(before)
    if rl is None:
        return
    if controls.score_temperature not in {None, sampling.temperature}:
        what = (
            f"answers are drawn at temperature {sampling.temperature:g} and scored at "
            f"{controls.score_temperature:g}"
        )
        what += ": the gradient is that of another model. It is a control that is wrong on purpose"
        causes = ("the recipe of a control",)
        fix = "for a real run leave controls out"
        evidence = {"drawn": sampling.temperature, "scored": controls.score_temperature}
        change = {"controls.score_temperature": None}
        yield Finding(
            "warning",
            what,
            check="sampling",
            evidence=evidence,
            causes=causes,
            fix=fix,
            change=change,
        )
    if rl.off_policy_steps and rl.old == "rescored" and rl.tis is None:
        what = f"answers are off-policy by {rl.off_policy_steps} steps, and nothing corrects for it (rl.old: "
        what += "rescored without rl.tis)"
        causes = ("rl.old: rescored leaves the sampler out of the ratio",)
        fix = "weight by learner over sampler, or take the recorded log-probabilities"
        change = {"rl.tis": 2.0}
        yield Finding(
            "warning",
            what,
            check="sampling",
            evidence={"off-policy steps": rl.off_policy_steps},
            causes=causes,
            fix=fix,
            change=change,
        )
    clips = {key for key in ("clip_low", "clip_high") if key in rl.algorithm.model_fields_set}
    if clips and rl.inner_epochs == 1 and rl.off_policy_steps == 0 and rl.uses_recorded_logprobs:
        what = (
            f"{' and '.join(sorted(clips))} can never act: each batch is used once, on-policy, so "
            "every ratio is 1"
        )
        causes = ("settings of a recipe with several updates a batch",)
        fix = "leave the clip out, or use each batch several times"
        evidence = {"inner_epochs": 1, "off-policy steps": 0}
        change = {"rl.inner_epochs": 2}
        yield Finding(
            "note",
            what,
            check="clip-idle",
            evidence=evidence,
            causes=causes,
            fix=fix,
            change=change,
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
        what = (
            f"the run that made {name} drew its answers by another sampling distribution ({named}): its evaluations "
            "and those of this "
        )
        what += "run are not of one kind"
        causes = ("two recipes with settings of their own",)
        fix = "draw as that run did, or evaluate its model again in this way before you compare"
        change = {f"sampling.{key}": old for key, (old, _) in changed.items()}
        yield Finding(
            "warning",
            what,
            check="sampling",
            evidence=changed,
            causes=causes,
            fix=fix,
            change=change,
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
    what = (
        f"git ignores {len(rules)} of the {len(wanted)} files that this recipe reads, for example "
        f"{path} "
    )
    what += (
        f"({wanted[path]}; {rule}): a job on another machine that is sent the working tree will "
        "not have them"
    )
    causes = (
        "data are kept out of git, and packages for a cluster (Ray's working_dir) go by .gitignore",
    )
    fix = (
        "let the job fetch or build them first, or name them to what packs the job; check there "
        "with this command"
    )
    evidence = {
        "files": {str(one): {"key": wanted[one], "rule": rule} for one, rule in rules.items()}
    }
    yield Finding(
        "note" if only_model else "warning", what, evidence=evidence, causes=causes, fix=fix
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
    why = []
    if model.name is not None and is_hub_name(model.name):
        why.append(f"{model.name} is fetched as it is on that day (no revision is named)")
    if model.trust_remote_code:
        why.append("model.trust_remote_code runs code that its author may change")
    if model.name is None and model.threads is None:
        sums = "sums are rounded by how many a machine has, and a tiny model's result goes by it"
        why.append(f"model.threads is not set: {sums}")
    if why:
        fix, change = "keep a copy of the model and name its directory", dict[str, Any]()
        if model.name is None:
            fix, change = "model.threads: 1", {"model.threads": 1}
        what = "the same recipe can give another result elsewhere: " + "; ".join(why)
        yield Finding("note", what, evidence={"seed": before.recipe.seed}, fix=fix, change=change)


CHECKS = (find_unusual_rates, find_sampling_mismatch, find_ignored_files, find_unpinned)
