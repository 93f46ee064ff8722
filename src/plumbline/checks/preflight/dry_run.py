"""What `plumbline run RECIPE --dry-run` says: the recipe, what it needs, its prompts, its cost, and its findings."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.preflight import estimate
from plumbline.checks.preflight.before import before
from plumbline.checks.preflight.machine import Machine, measure
from plumbline.checks.preflight.needs import needs
from plumbline.checks.preflight.preflight import examine
from plumbline.checks.preflight.prompts import TaskPrompts, together, token_counter
from plumbline.checks.preflight.rules import CHECKS
from plumbline.checks.preflight.shapes import Shapes, folder_of
from plumbline.errors import PlumblineError
from plumbline.recipe import Recipe
from plumbline.reports import numbers
from plumbline.reports.findings import plain, text_of
from plumbline.runs import claims
from plumbline.runs.run import RUN, is_run

FULL = 0.9
"""Of the machine's memory, above which a run is said not to fit."""
SLOWER = 1.25
"""How many times as long as in float32 products may take before it is said: nearly 2 on a Xeon without AMX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What can be said of a run without it."""

    recipe: Recipe
    needs: Sequence[str]
    prompts: Sequence[TaskPrompts]
    shapes: Shapes | None
    machine: Machine | None
    memory: Mapping[str, float]
    """Bytes; empty where it cannot be told."""
    seconds: Mapping[str, float]
    notes: Sequence[str]
    """What the estimate rests on, or why there is none."""
    findings: Sequence[Finding]
    """Those of `plumbline check RECIPE`, and what only a run of its own can tell: its folder, its memory."""

    @property
    def fatal(self) -> bool:
        """Whether a fatal finding stands."""
        return any(finding.level == "fatal" for finding in self.findings)

    @property
    def answers(self) -> int:
        """Answers that RL draws."""
        rl = self.recipe.rl
        return 0 if rl is None else rl.steps * rl.prompts_per_step * rl.group_size

    def plain(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "recipe": self.recipe.plain(),
            "needs": list(self.needs),
            "prompts": [{**asdict(one), "coverage": one.coverage} for one in self.prompts],
            "answers": self.answers,
            "model": None if self.shapes is None else {**asdict(self.shapes), "parameters": self.shapes.parameters},
            "machine": None if self.machine is None else asdict(self.machine),
            "memory_bytes": {name: round(size) for name, size in self.memory.items()},
            "seconds": {name: round(spent, 1) for name, spent in self.seconds.items()},
            "notes": list(self.notes),
            "fatal": self.fatal,
            "findings": [plain(finding) for finding in self.findings],
        }

    def text(self) -> str:
        """The same for people."""
        return "\n".join(
            [
                self.recipe.to_yaml(),
                *_section("needs", self.needs, "nothing that is not there"),
                *_section("prompts", [line for one in self.prompts for line in self._prompts(one)], "not known"),
                *_section("estimate", [*self._cost(), *self.notes], ""),
                *_section("findings", [text_of(one, ours=True).plain for one in self.findings], "none"),
            ]
        )

    def _prompts(self, one: TaskPrompts) -> Iterator[str]:
        called, rl = one.name or one.task, self.recipe.rl
        sizes = ", ".join(f"{split} {count:,}" for split, count in one.sizes.items())
        yield f"{called}: {sizes} ({one.source})"
        if rl is not None:
            yield (
                f"  RL: share {one.share:.0%}, {one.share * rl.prompts_per_step:.2g} prompts a step, {one.drawn:,.0f} "
                f"in all: {one.coverage:.2f} epochs, {min(1.0, one.coverage):.0%} of its prompts; "
                f"{one.drawn * rl.group_size:,.0f} answers"
            )
        if (sft := self.recipe.sft) is not None:
            shown = (sft.epochs or 0) or one.share * (sft.steps or 0) * sft.batch_size / max(1, one.sizes["train"])
            yield f"  SFT: {shown:.2f} epochs"
        if one.lengths is not None:
            gold = f"a gold answer {one.lengths.answer:.0f} (at most {one.lengths.longest_answer})"
            yield (
                f"  tokens: a prompt {one.lengths.prompt:.0f} (at most {one.lengths.longest_prompt}), "
                f"{gold if one.gold else 'no gold answers'}; sampling.max_tokens {self.recipe.sampling.max_tokens}"
            )

    def _cost(self) -> Iterator[str]:
        if self.memory:
            parts = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in self.memory.items() if name != "total")
            total = self.memory["total"] / 1e9
            yield f"memory: about {total:.1f} GB at the peak ({parts}; of the last three the largest counts)"
        if self.seconds:
            parts = ", ".join(f"{name} {numbers.duration(spent)}" for name, spent in self.seconds.items())
            yield f"time: about {numbers.duration(sum(self.seconds.values()))} ({parts})"


def _section(heading: str, lines: Sequence[str], none: str) -> list[str]:
    shown = [f"  {line}" for line in lines or [none] if line]
    return [f"{heading}:", *shown, ""]


def dry_run(recipe: Recipe, folder: Path, *, resume: bool = False) -> DryRun:
    """Find out what a run would do, need and cost, and what is wrong with it; nothing is built that is kept.

    Args:
        recipe: of the run.
        folder: its directory.
        resume: it would go on with what is there.
    """
    with before(recipe, folder) as known:
        prompts, shapes = known.prompts, known.shapes
        findings = [*_folder(folder, resume=resume), *examine(known, CHECKS).findings]
    try:
        machine, unmeasured = measure(recipe.model), ""
    except PlumblineError as error:
        machine, unmeasured = None, f"nothing was measured: {error.cause} ({error.fix})"
    found = DryRun(
        recipe=recipe,
        needs=needs(recipe, shapes),
        prompts=prompts,
        shapes=shapes,
        machine=machine,
        memory={},
        seconds={},
        notes=[unmeasured] if unmeasured else [],
        findings=findings,
    )
    return _estimated(found)


def _folder(folder: Path, *, resume: bool) -> Iterator[Finding]:
    try:
        claims.check(folder, RUN, is_run)
    except PlumblineError as error:
        yield Finding("folder", "fatal", error.cause, fix=error.fix)
    if not resume and any((folder / made).exists() for made in ("metrics.jsonl", "models", "result.json")):
        advice = "add --resume to go on with it, or --out to write somewhere else"
        yield Finding("folder", "fatal", f"{folder} already holds a run", fix=advice)


def _estimated(found: DryRun) -> DryRun:
    """With memory and time where model, machine and lengths are known and the family is one that they are known of."""
    recipe, shapes, machine, lengths = found.recipe, found.shapes, found.machine, together(found.prompts)
    if recipe.model.family != "autoregressive":
        why = f"memory and time are not estimated: no estimate covers the family {recipe.model.family}"
        return replace(found, notes=[*found.notes, why])
    if shapes is None:
        unknown = f"the shape of {recipe.model.name} is not known (not on disk, not in the table)"
        why = f"memory and time are not estimated: {unknown}"
        return replace(found, notes=[*found.notes, why])
    if machine is None or lengths is None:
        lacking = [] if machine is None else ["memory and time are not estimated: no prompt is known"]
        return replace(found, notes=[*found.notes, *lacking])
    modes = 1 + recipe.evaluation.sampled
    rl, every = recipe.rl, recipe.evaluation.every
    times = 0 if rl is None or not every else 1 + -(-rl.steps // every)
    most = recipe.evaluation.final_limit or math.inf
    asked, first = (
        int(sum(min(one.sizes[split], most, limit) for one in found.prompts for split in one.finals))
        for limit in (math.inf, recipe.untrained_limit() or math.inf)
    )
    work = estimate.Work(
        recipe,
        shapes,
        lengths,
        evaluated=modes * asked,
        untrained=first * (1 if recipe.untrained_limit() else modes),
        inside=modes * times * sum(one.inside for one in found.prompts),
        train=sum(one.sizes["train"] for one in found.prompts),
    )
    memory, findings = estimate.memory(work, machine), list(found.findings)
    if memory["total"] > FULL * machine.memory:
        what = f"about {memory['total'] / 1e9:.1f} GB are needed at the peak, and {machine.device} has "
        fix = "see docs/benchmarks.md for what takes how much"
        findings.append(Finding("memory", "warning", f"{what}{machine.memory / 1e9:.1f} GB", evidence=memory, fix=fix))
    if machine.in_float32 is not None and machine.in_float32 > SLOWER * machine.products:
        what = (
            f"products in {machine.dtype} take {machine.in_float32 / machine.products:.1f} times as long as in float32"
        )
        fix = "--set model.dtype=float32, where the memory is enough; decoding, which reads the weights, gains nothing"
        findings.append(Finding("dtype", "warning", f"{what} on this processor", fix=fix))
    notes = [*found.notes, *_basis(recipe, shapes, machine)]
    if not all(one.gold for one in found.prompts):
        notes.append(
            "no gold answers: every answer is counted as sampling.max_tokens long, so memory and time are bounds"
        )
    return replace(found, memory=memory, seconds=estimate.seconds(work, machine), findings=findings, notes=notes)


def _basis(recipe: Recipe, shapes: Shapes, machine: Machine) -> Iterator[str]:
    """What the estimate rests on."""
    yield (
        f"measured here, {machine.device}, {machine.dtype}: large products {machine.products / 1e9:.0f} GFLOP/s, "
        f"reading {machine.reading / 1e9:.0f} GB/s; the model has {shapes.parameters:,} weights ({shapes.source})"
    )
    if not token_counter(recipe.model.name)[1]:
        yield "lengths are in characters over 3: the model's tokenizer is not at hand"
    if not machine.on_cpu:
        yield "how far our code stays behind these rates was fitted on CPUs, and is not known of a GPU"
    if recipe.model.name is not None and folder_of(recipe.model.name) is not None:
        yield "expect a factor of 2: `plumbline run` measures a step of each kind when it starts (event forecast)"
    else:
        yield "expect a factor of 2"
