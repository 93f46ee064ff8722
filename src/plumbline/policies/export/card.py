"""The model card of an export, as the hub reads it: a head of YAML, then Markdown for people."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from plumbline import __version__
from plumbline.checks.diagnosis.check import Examination, examine
from plumbline.checks.diagnosis.readers import read_histories
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.policies.export.change import Change
from plumbline.policies.export.source import UNKNOWN, Base, Source
from plumbline.reports.findings import counted
from plumbline.reports.page import markdown
from plumbline.reports.view import View
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.run import Run

LIBRARIES = {"merged": "transformers", "adapter": "peft", "gguf": "gguf"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a card says of the export itself; the rest is read from the run's records."""

    name: str
    kind: str
    family: str
    stored: str
    """How the weights are stored: a dtype, or a kind of GGUF."""
    parameters: int
    said: Sequence[str] = ()
    """Sentences about what was measured when it was written."""
    changes: Sequence[Change] = field(default_factory=tuple)
    open_with: str = ""
    """Lines that open it."""


def model_card(source: Source, facts: Facts) -> str:
    """The whole card."""
    lines = [*_head(source, facts), "", f"# {markdown(facts.name)}", "", *_what(source, facts), ""]
    lines += ["## Training", "", *_training(source), "", "## Evaluation", "", *_evaluation(source), ""]
    lines += ["## This export", "", *_export(facts), ""]
    lines += ["## What the checks found", "", *_checks(source.run), ""]
    lines += ["## Licence", "", licence(source.base), ""]
    return "\n".join(lines)


def licence(base: Base | None) -> str:
    """What is known about whose terms the weights are under."""
    if base is None:
        return "No published weights went into this model: whoever trained it says under which licence it is."
    if base.licence == UNKNOWN:
        return (
            f"The licence of the base, {base.name}, is unknown: look it up where the base was published. "
            "What is derived from it is under its terms."
        )
    return f"The base, {base.name}, is under {base.licence}; what is derived from it is under its terms."


def _head(source: Source, facts: Facts) -> Iterator[str]:
    base = source.base
    values: dict[str, object] = {}
    if base is not None:
        values |= {"license": base.licence.lower() if base.licence != UNKNOWN else "unknown"}
        values |= {"base_model": base.name} if base.public else {}
    values |= {"library_name": LIBRARIES[facts.kind] if facts.family != "flow" else "plumbline"}
    values |= {"pipeline_tag": "text-generation", "tags": ["plumbline", facts.family]}
    yield "---"
    yield yaml.safe_dump(values, sort_keys=False, allow_unicode=True).rstrip()
    yield "---"


def _what(source: Source, facts: Facts) -> Iterator[str]:
    base = source.base
    began = "weights that were made on the spot" if base is None else markdown(base.name)
    yield f"A model of the family {facts.family}, {facts.parameters:,} weights, that began as {began}."
    if base is not None and base.note:
        yield f"The base was {markdown(base.note)}."
    if base is not None and not base.public:
        yield "That is the name of a folder: nobody said what the base is called where it was published."
    if facts.open_with:
        yield f"\n```\n{facts.open_with}\n```"


def _training(source: Source) -> Iterator[str]:
    card, run = source.card, source.run
    if card is None:
        yield "Nothing says that Plumbline trained it."
        return
    tasks = {name: one["name"] for name, one in card.tasks.items()} or {card.task: card.task}
    named = ", ".join(markdown(name if name == task else f"{name} ({task})") for name, task in tasks.items())
    yield f"- Recipe: {markdown(card.recipe)}; the last stage is {markdown(card.stage)}."
    yield f"- Task: {named}; prompts that it was trained on: {len(card.trained_on):,}."
    if run is None:
        yield "- The run's records are not beside the model, so the recipe's values are not known here."
        return
    recipe = run.recipe
    if recipe.description:
        yield f"- {markdown(recipe.description)}"
    lora = getattr(recipe.model, "lora", None)
    trains = "every weight" if lora is None else f"LoRA of rank {lora.rank}, alpha {lora.alpha:g}"
    yield f"- Trains: {trains}; seed {recipe.seed}."
    if recipe.sft is not None and run.is_done("sft"):
        length = f"{recipe.sft.steps} steps" if recipe.sft.steps is not None else f"{recipe.sft.epochs:g} epochs"
        yield f"- SFT: {length}, learning rate {recipe.sft.optimiser.learning_rate:g}."
    if recipe.rl is not None and run.is_done("rl"):
        rl = recipe.rl
        yield (
            f"- RL: {rl.algorithm.name}, {rl.steps} steps of {rl.prompts_per_step} prompts, learning rate "
            f"{rl.optimiser.learning_rate:g}."
        )


def _evaluation(source: Source) -> Iterator[str]:
    rows = [] if source.run is None else list(_rows(View(source.run), source.stage))
    if not rows:
        yield "No evaluation of this model is recorded beside it."
        return
    yield "Mean rewards with 95 % intervals. The floor is what the best control earns that knows nothing; the ceiling,"
    yield "what the gold answers earn; both on the same examples."
    yield ""
    yield "| task | split | decoded | n | reward | floor | ceiling |"
    yield "|---|---|---|---|---|---|---|"
    yield from rows


def _rows(view: View, stage: str) -> Iterator[str]:
    for one in view.tasks or [view]:
        for split in one.splits:
            for mode in one.modes(split):
                if (found := one.final(stage, split, mode)) is None:
                    continue
                summary, bounds = one.summary(EvaluationKey(stage, split, mode)), one.bounds(found)
                floor = "-" if bounds.floor is None else f"{bounds.floor[1]:.3f} ({markdown(bounds.floor[0])})"
                ceiling = "-" if bounds.oracle is None else f"{bounds.oracle.mean:.3f}"
                cells = (markdown(one.task or found.task), markdown(split), markdown(mode), summary["n"])
                yield f"| {' | '.join(map(str, cells))} | {_interval(summary['reward'])} | {floor} | {ceiling} |"


def _interval(values: Mapping[str, float]) -> str:
    return f"{values['mean']:.3f} [{values['low']:.3f}, {values['high']:.3f}]"


def _export(facts: Facts) -> Iterator[str]:
    yield f"Written by Plumbline {__version__}: {facts.kind}, {facts.stored}."
    for sentence in facts.said:
        yield f"- {sentence}"
    for one in facts.changes:
        yield f"- {change_text(one)}"


def change_text(one: Change) -> str:
    """A change of reward as a sentence."""
    return (
        f"{markdown(one.task)}, {markdown(one.split)}, greedy, computed in float32: mean reward {one.before:.4f} as it "
        f"was trained, {one.after:.4f} as it is stored: {one.difference:+.4f} on n = {one.n}; {one.same} of {one.n} "
        "answers are the same to the letter."
    )


def _checks(run: Run | None) -> Iterator[str]:
    examined = [] if run is None or run.files["metrics"].size() == 0 else _examined(run)
    if not examined:
        yield "There are no records of training beside the model, so nothing was checked."
    for one in examined:
        yield f"{markdown(one.history.name)}: {counted(one.findings, one.clear, one.not_run)}."
        for finding in one.findings:
            yield f"- {finding.level} ({finding.check}): {markdown(finding.what)}"


def _examined(run: Run) -> list[Examination]:
    return [examine(history, CHECKS) for history in read_histories(run.folder)]
