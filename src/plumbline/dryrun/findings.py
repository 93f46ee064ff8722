"""What a run lacks, and what is known to go wrong with settings like these, before anything is built."""

import math
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from plumbline.dryrun.prompts import TaskPrompts
from plumbline.dryrun.shapes import Shapes, folder_of
from plumbline.imports import missing
from plumbline.models.catalogue import ENTRIES, megabytes
from plumbline.policies import NEEDED
from plumbline.policies.options import PretrainedModel
from plumbline.policies.pretrained.gguf_file import is_gguf
from plumbline.recipe import OptimiserSection, Recipe

FEW_PROMPTS, FEW_ANSWERS = 30, 4
"""Examples of an evaluation, and answers of a group, under which a run is warned of."""
SCATTER = 0.3
"""Standard deviation of a single answer's reward: the commerce log had 0.31 at two prompts a job."""
HALF = 0.5
"""Epochs of a task's prompts under which RL is warned of: the commerce log plateaued at 0.135."""
SLOW_RATE, SLOW_STEPS = 0.1, 0.15
"""A rate under a tenth of its peak for more than so many of the steps teaches little in them."""


def needs(recipe: Recipe, shapes: Shapes | None) -> list[str]:
    """What has to be fetched or installed first, or will be fetched by the run."""
    return [*_model(recipe.model.name, shapes), *_packages(recipe)]


def _model(name: str | None, shapes: Shapes | None) -> Iterator[str]:
    if name is None or folder_of(name) is not None or is_gguf(name):
        return
    for entry in ENTRIES:
        if Path(name) == Path("models") / entry.name:
            yield f"{name} is not there: `plumbline get {entry.name}` fetches it ({megabytes(entry.download_bytes)})"
            return
    if name.count("/") != 1 or name.startswith((".", "/", "~", "models/", "runs/")):
        return  # a path: that nothing is there is an error of the recipe
    size = "a size that is not known here"
    if shapes is not None:
        size = f"about {shapes.parameters * shapes.dtype_bytes / 1e9:.1f} GB ({shapes.parameters:,} weights)"
    yield f"transformers will fetch {name} from the hub: config, tokenizer and *.safetensors, {size}"


def _packages(recipe: Recipe) -> Iterator[str]:
    model = recipe.model
    wanted = [*NEEDED]
    if isinstance(model, PretrainedModel):
        wanted += ["peft"] * (model.lora is not None) + ["bitsandbytes"] * (model.quantize is not None)
    for name in [*wanted, *recipe.run.trackers]:
        if find_spec("torch.utils.tensorboard" if name == "tensorboard" and find_spec("torch") else name) is None:
            lacking = missing("this recipe", name)
            yield f"{lacking.cause}: {lacking.fix}"


def warnings(recipe: Recipe, prompts: Sequence[TaskPrompts], context: int | None) -> list[str]:
    """Settings that are allowed and known to disappoint, each with its figure."""
    found = [line for one in prompts for line in _of_task(recipe, one, context)]
    if (rl := recipe.rl) is not None:
        found += _rate(rl.optimiser, rl.steps)
        if rl.group_size < FEW_ANSWERS:
            found.append(
                f"rl.group_size is {rl.group_size}: a group learns nothing where its rewards are equal, which happens "
                "often to so few answers; 8 are usual"
            )
    return found


def _of_task(recipe: Recipe, one: TaskPrompts, context: int | None) -> Iterator[str]:
    called = f"{one.name}: " if one.name else ""
    limit, rl = recipe.sampling.max_tokens, recipe.rl
    if rl is not None and one.coverage < HALF:
        needed = math.ceil(one.sizes["train"] / (one.share * rl.prompts_per_step))
        yield (
            f"{called}RL draws {one.drawn:.0f} of {one.sizes['train']} training prompts ({one.coverage:.0%}); "
            f"rl.steps: {needed} would see each once"
        )
    evaluated = {f"the final split {split}": one.sizes[split] for split in one.finals}
    if one.inside:
        evaluated["an evaluation inside RL"] = one.inside
    for what, n in evaluated.items():
        if n < FEW_PROMPTS:
            yield (
                f"{called}{what} has {n} prompts: a mean reward is then known to ± {1.96 * SCATTER / math.sqrt(n):.2f} "
                f"(95 %, for answers that scatter by {SCATTER})"
            )
    if one.lengths is None:
        return
    if one.longer:
        yield (
            f"{called}{one.longer:.0%} of the gold answers are longer than sampling.max_tokens ({limit}; the longest "
            f"has about {one.lengths.longest_answer} tokens), so such answers are cut off"
        )
    if context is not None and one.lengths.longest_prompt + limit > context:
        yield (
            f"{called}the longest prompt (about {one.lengths.longest_prompt} tokens) and sampling.max_tokens ({limit}) "
            f"exceed the context of {context}"
        )


def _rate(section: OptimiserSection, steps: int) -> Iterator[str]:
    """Whether the rate is near 0 for a large share of the steps."""
    from plumbline.training.schedule import schedule, warmup_steps

    warmup = warmup_steps(section.warmup, steps)
    slow = sum(schedule(section.schedule, step, steps, warmup) < SLOW_RATE for step in range(warmup, steps))
    if slow > SLOW_STEPS * steps:
        yield (
            f"rl.optimiser.schedule {section.schedule}: the rate is under {SLOW_RATE:.0%} of its peak for the last "
            f"{slow} of {steps} steps; linear has {SLOW_RATE:.0%} of such steps, constant_with_warmup none"
        )
    if 2 * warmup > steps:
        yield f"rl.optimiser.warmup takes {warmup} of {steps} steps"
