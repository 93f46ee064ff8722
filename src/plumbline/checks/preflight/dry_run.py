"""What `plumbline run RECIPE --dry-run` says: the recipe, what it needs, its prompts, and its findings."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.preflight.before import before
from plumbline.checks.preflight.preflight import examine
from plumbline.checks.preflight.prompts import TaskPrompts, token_counter
from plumbline.checks.preflight.rules import CHECKS
from plumbline.checks.preflight.shapes import Shapes, folder_of, is_hub_name
from plumbline.config.imports import missing
from plumbline.errors import PlumblineError
from plumbline.policies import NEEDED
from plumbline.policies.downloads.get import ENTRIES, megabytes
from plumbline.policies.options import PretrainedModel
from plumbline.policies.pretrained.gguf_file import is_gguf
from plumbline.recipe import Recipe
from plumbline.reports.findings import plain, text_of
from plumbline.runs import claims
from plumbline.runs.run import RUN, is_run

TIME = "time: a run measures a step of each kind when it starts, and says how long all will take (event forecast)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What can be said of a run without it."""

    recipe: Recipe
    needs: Sequence[str]
    prompts: Sequence[TaskPrompts]
    shapes: Shapes | None
    notes: Sequence[str]
    """What is not known exactly, and when it will be."""
    findings: Sequence[Finding]
    """Those of `plumbline check RECIPE`, and what only a run of its own can tell: its folder."""

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
                *_section("notes", self.notes, ""),
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


def _section(heading: str, lines: Sequence[str], none: str) -> list[str]:
    shown = [f"  {line}" for line in lines or [none] if line]
    return [f"{heading}:", *shown, ""]


def dry_run(recipe: Recipe, folder: Path, *, resume: bool = False) -> DryRun:
    """Find out what a run would do and need, and what is wrong with it; nothing is built that is kept.

    Args:
        recipe: of the run.
        folder: its directory.
        resume: it would go on with what is there.
    """
    with before(recipe, folder) as known:
        prompts, shapes = known.prompts, known.shapes
        findings = [*_folder(folder, resume=resume), *examine(known, CHECKS).findings]
    notes = [TIME]
    if not token_counter(recipe.model.name)[1]:
        notes.append("lengths are in characters over 3: the model's tokenizer is not at hand")
    return DryRun(
        recipe=recipe,
        needs=needs(recipe, shapes),
        prompts=prompts,
        shapes=shapes,
        notes=notes,
        findings=findings,
    )


def _folder(folder: Path, *, resume: bool) -> Iterator[Finding]:
    try:
        claims.check(folder, RUN, is_run)
    except PlumblineError as error:
        yield Finding("folder", "fatal", error.cause, fix=error.fix)
    if not resume and any((folder / made).exists() for made in ("metrics.jsonl", "models", "result.json")):
        advice = "add --resume to go on with it, or --out to write somewhere else"
        yield Finding("folder", "fatal", f"{folder} already holds a run", fix=advice)


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
    if not is_hub_name(name):
        return  # that nothing is there is an error of the recipe
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
