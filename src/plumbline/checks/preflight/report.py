"""What is wrong with a run before it begins, and what it would do and need:
`plumbline check RECIPE`, `plumbline run --dry-run`, and what `plumbline run` refuses to begin
with."""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.text import Text

from plumbline.checks.check import (
    Check,
    Examination,
    Finding,
    describe_refusal,
    examine,
    refuse_findings,
)
from plumbline.checks.findings_output import finding_to_json, render_finding, render_findings
from plumbline.checks.preflight import data, model, overlap, settings
from plumbline.checks.preflight.before import BeforeRun, TaskPrompts, gather_before_run
from plumbline.checks.preflight.costs import Costs, estimate_costs
from plumbline.checks.preflight.shapes import Shapes
from plumbline.config.imports import missing_module_error
from plumbline.errors import (
    DataError,
    ModelError,
    PlumblineError,
    RecipeError,
    UntrustedCodeError,
)
from plumbline.policies.downloads.get import ENTRIES, megabytes
from plumbline.policies.model_files import is_gguf
from plumbline.policies.opening import find_model_folder, is_hub_name, needed_packages
from plumbline.recipe import Recipe, find_recipe, load_recipe
from plumbline.runs import output_guard
from plumbline.runs.remote import folder_for, join_address
from plumbline.runs.run import RUN
from plumbline.tasks.task_data import TaskData

CHECKS: tuple[Check[BeforeRun], ...] = (
    *overlap.CHECKS,
    *model.CHECKS,
    *data.CHECKS,
    *settings.CHECKS,
)
"""What is looked at. A new one is a function with the decorator `check`, and a word in the table of
its subject."""
ANYWAY = "to begin all the same, add --set run.preflight=false"
NAMES = {RecipeError: "recipe", DataError: "data", ModelError: "model"}
"""What a finding is called that is an error which a run would end with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight(Examination[BeforeRun]):
    """What was found before a run."""

    looked_at: tuple[str, ...]
    """How much of each task was looked at, in words."""
    seconds: float

    @property
    def recipe(self) -> Recipe:
        """Of the run."""
        return self.context.recipe

    def render(self, *, verbose: bool) -> Iterator[Text]:
        """For terminals; see `findings_output.render_stages`."""
        took = f"({self.seconds:.1f} s, no weights loaded)"
        yield Text(
            f"{self.recipe.name}: taken for a recipe, and looked at before it runs {took}",
            style="bold",
        )
        for line in self.looked_at:
            yield Text(line, style="dim")
        yield from render_findings(
            self.findings, self.clear, self.not_run, ours=True, verbose=verbose
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values, of the form that runs have."""
        stage = {
            "stage": "before",
            "origin": "recipe",
            "recipe": self.recipe.name,
            "looked_at": list(self.looked_at),
            "seconds": round(self.seconds, 2),
            "findings": [finding_to_json(finding) for finding in self.findings],
            "clear": list(self.clear),
            "not_run": {name: list(needs) for name, needs in self.not_run.items()},
        }
        return {"fatal": self.fatal, "stages": [stage]}


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun(Preflight):
    """The same, and what the run would do and need."""

    needs: Sequence[str]
    prompts: Sequence[TaskPrompts]
    shapes: Shapes | None
    costs: Costs | None
    """None where they cannot be estimated."""
    notes: Sequence[str]
    """What is not known exactly, and when it will be."""

    @property
    def answers(self) -> int:
        """Answers that RL draws."""
        rl = self.recipe.rl
        return 0 if rl is None else rl.steps * rl.prompts_per_step * rl.group_size

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "recipe": self.recipe.to_dict(),
            "needs": list(self.needs),
            "prompts": [{**asdict(one), "coverage": one.coverage} for one in self.prompts],
            "answers": self.answers,
            "model": None
            if self.shapes is None
            else {**asdict(self.shapes), "parameters": self.shapes.parameters},
            "costs": self.costs and self.costs.to_json(),
            "notes": list(self.notes),
            "fatal": self.fatal,
            "findings": [finding_to_json(finding) for finding in self.findings],
        }

    def text(self) -> str:
        """The same for people."""
        sections = {
            "findings": [render_finding(one, ours=True).plain for one in self.findings] or ["none"],
            "needs": self.needs or ["nothing that is not there"],
            "prompts": [line for one in self.prompts for line in self._prompts(one)]
            or ["not known"],
            "costs": ["not known"] if self.costs is None else [*self.costs.lines()],
            "notes": self.notes,
        }
        lines = [f"{self.recipe.name}: a dry run, nothing is trained", ""]
        for heading, found in sections.items():
            if not found:
                continue
            lines += [f"{heading}:", *(f"  {line}" for line in found), ""]
        return "\n".join(lines)

    def _prompts(self, one: TaskPrompts) -> Iterator[str]:
        rl, sft = self.recipe.rl, self.recipe.sft
        sizes = ", ".join(f"{split} {count:,}" for split, count in one.sizes.items())
        yield f"{one.name or one.task}: {sizes} ({one.source})"
        if rl is not None:
            yield (
                f"  RL: share {one.share:.0%}, {one.share * rl.prompts_per_step:.2g} prompts a "
                f"step, {one.drawn:,.0f} "
                f"in all: {one.coverage:.2f} epochs, {min(1.0, one.coverage):.0%} of its prompts; "
                f"{one.drawn * rl.group_size:,.0f} answers"
            )
        if sft is not None:
            shown = (sft.epochs or 0) or one.share * (sft.steps or 0) * sft.batch_size / max(
                1, one.sizes["train"]
            )
            yield f"  SFT: {shown:.2f} epochs"
        if one.lengths is not None:
            gold = (
                "a gold answer {answer:.0f} (at most {longest_answer})"
                if one.gold
                else "no gold answers"
            )
            tokens = f"a prompt {{prompt:.0f}} (at most {{longest_prompt}}), {gold}".format(
                **one.lengths
            )
            yield f"  tokens: {tokens}; sampling.max_tokens {self.recipe.sampling.max_tokens}"


def run_preflight(recipe: Recipe, folder: Path, file: Path | None = None) -> Preflight:
    """Look at all that can be known of a run without it and without its weights; nothing is kept.

    Args:
        recipe: of the run.
        folder: its directory, which need not be there.
        file: of the recipe, where there is one.
    """
    began = time.monotonic()
    with gather_before_run(recipe, folder, file) as known:
        return _examine_run(known, began)


def preflight_source(source: str, overrides: Sequence[str] = ()) -> Preflight:
    """The same by a recipe's file or name, for the folder that it runs in.

    Raises:
        RecipeError: it cannot be read.
    """
    recipe = load_recipe(source, overrides)
    return run_preflight(
        recipe, folder_for(join_address(recipe.run.folder, recipe.name)), find_recipe(source)
    )


def dry_run(recipe: Recipe, folder: Path, *, resume: bool = False) -> DryRun:
    """Find out what a run would do and need, and what is wrong with it; nothing is built that is
    kept.

    Args:
        recipe: of the run.
        folder: its directory.
        resume: it would go on with what is there.
    """
    began = time.monotonic()
    with gather_before_run(recipe, folder) as known:
        prompts, shapes = known.prompts, known.shapes
        found = _examine_run(known, began)
    notes = (
        []
        if known.counter[1]
        else ["lengths are in characters over 3: the model's tokenizer is not at hand"]
    )
    try:
        costs = estimate_costs(recipe, prompts, shapes)
    except ModelError as error:
        costs = None
        notes.append(error.cause)
    values = {one.name: getattr(found, one.name) for one in fields(found)}
    return DryRun(
        **{**values, "findings": (*_check_folder(folder, resume=resume), *found.findings)},
        needs=[*_missing_model(recipe.model.name, shapes), *_missing_packages(recipe)],
        prompts=prompts,
        shapes=shapes,
        costs=costs,
        notes=notes,
    )


def refuse_fatal(recipe: Recipe, folder: Path, tasks_data: Sequence[TaskData]) -> None:
    """Refuse to begin where something fatal can be seen in the run's own records, by the checks
    that take seconds.

    Raises:
        RunError: says all of it, and how to begin all the same.
    """
    if not recipe.run.preflight:
        return
    known = BeforeRun(recipe=recipe, folder=folder, tasks={one.name: one for one in tasks_data})
    found = examine(known, [check for check in CHECKS if check.quick])
    refuse_findings("preflight failed", found.findings, ANYWAY)


def _examine_run(known: BeforeRun, began: float) -> Preflight:
    """What checks find, and before it what a run would end with at once."""
    found = examine(known, CHECKS)
    causes = {finding.evidence.get("cause") for finding in found.findings}
    refused = [one for one in _refusal_findings(known) if one.evidence["cause"] not in causes]
    return Preflight(
        context=known,
        findings=tuple(sorted((*refused, *found.findings), key=known.rank)),
        clear=found.clear,
        not_run=found.not_run,
        looked_at=tuple(_describe_extent(known)),
        seconds=time.monotonic() - began,
    )


def _refusal_findings(known: BeforeRun) -> Iterator[Finding]:
    """What a run would end with at once."""
    for error in known.wrong:
        # what needs none of that code is looked at all the same
        if isinstance(error, UntrustedCodeError):
            evidence = {"cause": error.cause, "fix": error.fix}
            yield Finding("warning", "not-checked", evidence=evidence, check="code")
        else:
            name = next((name for kind, name in NAMES.items() if isinstance(error, kind)), "run")
            yield describe_refusal(error, check=name)


def _describe_extent(known: BeforeRun) -> Iterator[str]:
    for one in known.tasks.values():
        sizes = ", ".join(f"{split} {len(found):,}" for split, found in one.splits.items())
        what = (
            "all examples"
            if one.built
            else "records are not built yet, so a few like them were looked at"
        )
        if one.built and any(len(found) > overlap.MOST for found in one.splits.values()):
            what = f"the first {overlap.MOST:,} of each split"
        yield f"{one.called}{what} ({sizes})"
    if (target := model.render_first_target(known)) is not None:
        yield target


def _check_folder(folder: Path, *, resume: bool) -> Iterator[Finding]:
    try:
        output_guard.check_folder(folder, RUN)
    except PlumblineError as error:
        yield describe_refusal(error, check="folder")
    if not resume and any(
        (folder / made).exists() for made in ("metrics.jsonl", "models", "result.json")
    ):
        yield Finding("fatal", "holds-a-run", evidence={"folder": str(folder)}, check="folder")


def _missing_model(name: str | None, shapes: Shapes | None) -> Iterator[str]:
    """What has to be fetched first, or will be fetched by the run."""
    if name is None or find_model_folder(name) is not None or is_gguf(name):
        return
    for entry in ENTRIES:
        if Path(name) == Path("models") / entry.name:
            yield (
                f"{name} is not there: `plumbline get {entry.name}` fetches it "
                f"({megabytes(entry.download_bytes)})"
            )
            return
    if not is_hub_name(name):
        return  # that nothing is there is an error of the recipe
    size = "a size that is not known here"
    if shapes is not None:
        size = (
            f"about {shapes.parameters * shapes.dtype_bytes / 1e9:.1f} GB ({shapes.parameters:,} "
            "weights)"
        )
    yield (
        f"transformers will fetch {name} from the hub: config, tokenizer and *.safetensors, {size}"
    )


def _missing_packages(recipe: Recipe) -> Iterator[str]:
    """What has to be installed first."""
    lacking = defaultdict[str, list[str]](list)
    for name in [*needed_packages(recipe.model), *recipe.run.trackers]:
        if (
            find_spec(
                "torch.utils.tensorboard" if name == "tensorboard" and find_spec("torch") else name
            )
            is None
        ):
            lacking[missing_module_error("this recipe", name).fix].append(name)
    for fix, names in lacking.items():
        yield f"this recipe needs {', '.join(names)}: {fix}"
