"""What a run would take of this machine: an order of magnitude of its time and memory.

The arithmetic is counted (two operations for each weight and token forward, as many for the
gradient of activations, as many for that of weights; Kaplan et al. 2020, arXiv:2001.08361, section
2.1). How fast the machine does it is measured: products of matrices of the model's own shape, with
as many rows as a step of drawing has, and as many as a micro-batch has.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from plumbline.checks.preflight import products
from plumbline.checks.preflight.before import TaskPrompts
from plumbline.checks.preflight.shapes import Shapes
from plumbline.errors import ModelError
from plumbline.policies.memory import main_memory
from plumbline.recipe import Recipe, SftSection
from plumbline.records import SteppedSampling

MATRICES = 2**27
"""Bytes of the matrices that a measurement goes through, so that they come from main memory."""
ROWS, TOKENS = 64, 1024
"""Answers drawn at a time on a CPU (`model.rows_at_once`), and tokens of the product that stands
for reading and learning."""
PROGRAM = 0.8e9
"""Bytes of torch and what belongs to it."""
SMALLER = (
    "shorter answers (sampling.max_tokens), smaller micro-batches (tokens_per_microbatch), adapters "
    "(model.lora), or a smaller model"
)
HOLES = 1.5
"""Memory of activations with what lies unused between them."""
LAYER = 2e-4
"""Seconds of a layer's many small operations, whatever their rows."""
CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
LIMIT = 120
"""Seconds after which a measurement is given up."""
GPU = Path("/dev/nvidiactl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Orders of magnitude."""

    device: str
    seconds: Mapping[str, tuple[float, float]]
    """Of each part of the run: where answers have the mean length of gold answers, and where they
    are as long as `sampling.max_tokens` allows."""
    needed: tuple[float, float]
    """Bytes of memory that the run takes, with answers of the same two lengths."""
    there: float
    """Bytes that the device has."""

    @property
    def fits(self) -> bool:
        """Whether the memory is enough while answers are short."""
        return self.needed[0] <= self.there

    def lines(self) -> Iterator[str]:
        """For people."""
        least, most = (sum(each[end] for each in self.seconds.values()) for end in (0, 1))
        ends = (
            ", with answers as long as gold ones, or of sampling.max_tokens" if least < most else ""
        )
        yield f"time: very roughly {_format_range(least, most)} on this {self.device}{ends}"
        for name, (low, high) in self.seconds.items():
            yield f"  {name}: {_format_range(low, high)}"
        about = " to ".join(dict.fromkeys(f"{one / 1e9:.1f}" for one in self.needed))
        verdict = "it fits"
        if self.needed[1] > self.there:
            verdict = "it may not fit" if self.fits else "it DOES NOT FIT"
            verdict += f": {SMALLER}"
        yield f"memory: about {about} GB of the {self.there / 1e9:.1f} GB here: {verdict}"

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {**asdict(self), "fits": self.fits}


def estimate_costs(
    recipe: Recipe, prompts: Sequence[TaskPrompts], shapes: Shapes | None
) -> Costs | None:
    """What a run would take of this machine; takes half a second.

    Args:
        recipe: of the run.
        prompts: of each task.
        shapes: of the model.

    Returns:
        None where the model's shape or the lengths of the texts are not known.
    """
    if shapes is None or min(shapes.hidden, shapes.inner, shapes.layers) < 1:
        return None
    if not prompts or any(one.lengths is None for one in prompts):
        return None
    machine = _measure(recipe, shapes)
    weights = shapes.parameters - (0 if shapes.tied else shapes.vocabulary * shapes.hidden)
    few, many = (
        2 * weights / speed + shapes.layers * LAYER / rows
        for speed, rows in zip(
            machine["speeds"], (recipe.model.rows_at_once or ROWS, TOKENS), strict=True
        )
    )
    ends = [_count_seconds(recipe, prompts, few, many, long=long) for long in (False, True)]
    return Costs(
        device=machine["name"],
        seconds={name: (ends[0][name], ends[1][name]) for name in ends[0]},
        needed=(
            _count_bytes(recipe, prompts, shapes, machine["width"], long=False),
            _count_bytes(recipe, prompts, shapes, machine["width"], long=True),
        ),
        there=machine["memory"],
    )


def _count_seconds(
    recipe: Recipe, prompts: Sequence[TaskPrompts], few: float, many: float, *, long: bool
) -> dict[str, float]:
    """Of each part of a run.

    Args:
        few, many: seconds of a token's way through the model, with few rows and with many.
        long: answers take all of `sampling.max_tokens`, and not what gold answers do.
    """
    rl, sft, most = recipe.rl, recipe.sft, recipe.sampling.max_tokens
    steps = recipe.sampling.steps if isinstance(recipe.sampling, SteppedSampling) else None
    backward = 2 if getattr(recipe.model, "lora", None) else 3
    """Of a pass forward and backward, in passes forward."""
    stages = [recipe.untrained_limit()] if recipe.evaluates_untrained() else []
    stages += [None] * ((sft is not None) + (rl is not None))
    modes = 1 + recipe.evaluation.sampled
    found = dict.fromkeys(("pretraining", "sft", "drawing", "learning", "evaluations"), 0.0)
    tiny = recipe.model.tiny if recipe.model.name is None else None
    for one in prompts:
        lengths = one.lengths or {}
        prompt = lengths["prompt"]
        length = most if long or steps else min(lengths["answer"], most)
        # a canvas is read as a whole at each of its steps
        read = (steps or 1) * (prompt + length)
        draw = read * many if steps else length * few
        if tiny is not None:
            rows = one.share * tiny.steps * tiny.batch_size
            found["pretraining"] += rows * (prompt + min(lengths["answer"], most)) * 3 * many
        if sft is not None:
            examples = (sft.epochs or 0) * one.sizes["train"] or (
                one.share * (sft.steps or 0) * sft.batch_size
            )
            found["sft"] += examples * (prompt + min(lengths["answer"], most)) * backward * many
        if rl is not None:
            answers = one.drawn * rl.group_size
            found["drawing"] += answers * draw + one.drawn * prompt * many
            tokens = answers * (read if steps else length) + one.drawn * prompt
            found["learning"] += rl.inner_epochs * tokens * backward * many
            if recipe.evaluation.every:
                found["evaluations"] += (
                    one.inside * (rl.steps // recipe.evaluation.every) * (draw + prompt * many)
                )
        for limit in stages:
            count = sum(
                min(one.sizes[split], limit or recipe.evaluation.final_limit or one.sizes[split])
                for split in one.finals
            )
            found["evaluations"] += count * (1 if limit else modes) * (draw + prompt * many)
    for names, section in ((("sft",), sft), (("drawing", "learning"), rl)):
        if section is not None and section.seconds is not None:
            whole = sum(found[name] for name in names)
            share = min(1.0, section.seconds / _count_threads(recipe) / (whole or 1.0))
            found |= {name: share * found[name] for name in names}
    return {name: value for name, value in found.items() if value}


def _count_bytes(
    recipe: Recipe, prompts: Sequence[TaskPrompts], shapes: Shapes, width: int, *, long: bool
) -> float:
    """What a run takes at once: weights, what is trained of them with its gradient and moments, and
    the larger of a micro-batch's activations and the caches of answers that are drawn."""
    lora = getattr(recipe.model, "lora", None)
    held = 0.6 if getattr(recipe.model, "quantize", None) else width
    trained = shapes.parameters if lora is None else 0
    if lora is not None:
        ends = 7 * shapes.hidden + 3 * shapes.inner  # of the seven matrices of a layer
        trained = lora.rank * shapes.layers * ends
    used = [section for section in (recipe.sft, recipe.rl) if section is not None]
    moments = max((2 if one.optimiser.name == "adamw8bit" else 8 for one in used), default=0)
    lengths = [one.lengths for one in prompts if one.lengths]
    of = "longest_" if long else ""
    prompt, gold = (max(one[of + what] for one in lengths) for what in ("prompt", "answer"))
    answer = recipe.sampling.max_tokens if long else min(gold, recipe.sampling.max_tokens)
    activations = 0.0
    for section in used:
        if isinstance(section, SftSection):
            tokens = section.batch_size * (prompt + gold)
        else:
            asked = section.minibatch or section.prompts_per_step
            tokens = asked * (prompt + section.group_size * answer)
        limit = section.tokens_per_microbatch
        tokens = min(tokens, section.on_cpu if limit == "auto" else limit)
        each = shapes.layers * (10 * shapes.hidden + 4 * shapes.inner)
        activations = max(activations, tokens * each * width)
    rows = recipe.model.rows_at_once or ROWS
    cache = rows * (prompt + answer) * shapes.layers * 2 * shapes.kv_heads * shapes.head_size
    kept = shapes.parameters * held + trained * (4 + moments if used else 0)
    return PROGRAM + kept + HOLES * max(activations, cache * width)


def _measure(recipe: Recipe, shapes: Shapes) -> dict[str, Any]:
    """What `products` prints: of the GPU that the recipe's model would take, or of one thread of the
    CPU, times the threads that it would have.

    Raises:
        ModelError: they cannot be measured.
    """
    section = recipe.model
    on_gpu = section.device != "cpu" and GPU.exists()
    device = "cpu" if not on_gpu else "cuda" if section.device == "auto" else section.device
    half = section.dtype == "bfloat16" or (section.dtype == "auto" and on_gpu)
    count = max(1, min(MATRICES // (4 * shapes.hidden * shapes.inner), 3 * shapes.layers))
    sizes = [shapes.hidden, shapes.inner, count, section.rows_at_once or ROWS, TOKENS]
    dtype = "bfloat16" if half else "float32"
    try:
        ended = subprocess.run(  # noqa: S603 - a file of this package
            [sys.executable, products.__file__, device, dtype, *map(str, sizes)],
            env=os.environ | dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1"),
            capture_output=True,
            text=True,
            check=True,
            timeout=LIMIT,
        )
    except subprocess.SubprocessError as error:
        why = str(getattr(error, "stderr", None) or error).strip().splitlines()[-1]
        raise ModelError(
            f"products of matrices cannot be measured on {device}: {why[-200:]}",
            "see model.device; time and memory are then not estimated",
        ) from error
    found: dict[str, Any] = json.loads(ended.stdout)
    threads = 1 if on_gpu else _count_threads(recipe)
    memory = found["memory"] or main_memory()
    speeds = [threads * each for each in found["speeds"]]
    return found | {"memory": memory, "speeds": speeds, "width": 2 if half else 4}


def _count_threads(recipe: Recipe) -> int:
    return min(recipe.model.threads or CPUS, CPUS)


def _format_range(low: float, high: float) -> str:
    return " to ".join(dict.fromkeys((_format_time(low), _format_time(high))))


def _format_time(seconds: float) -> str:
    """With two digits."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{float(f'{seconds / size:.2g}'):,g} {unit}"
    return f"{seconds:.0f} s"
