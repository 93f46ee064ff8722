"""The model card of an export, as the hub reads it: a head of YAML, then Markdown for people."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from plumbline import __version__
from plumbline.checks.check import Examination, examine
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.readers import read_histories
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.config.overrides import read_yaml
from plumbline.errors import RecipeError, RunError
from plumbline.evaluation.command import EvaluationSpec, each_task, open_task_for
from plumbline.evaluation.models import as_trained, evaluate_model
from plumbline.evaluation.statistics import Interval, paired
from plumbline.policies.downloads.get import ENTRIES, ORIGIN
from plumbline.policies.export.weights import OPTIONS
from plumbline.policies.pretrained.gguf_file import is_gguf
from plumbline.policies.saved import adapter_base, check_source
from plumbline.reports.findings import counted
from plumbline.reports.page import markdown
from plumbline.reports.view import View
from plumbline.runs.cards import Card
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.record import STAGES
from plumbline.runs.remote import local_model
from plumbline.runs.run import Listener, Run
from plumbline.storage import SMALL, read_bytes, read_object

# -- source ----------------------------------------------------------------------------------------------------------
#
# What is exported: a run's last model or any other, what it began from, and under which licence that is.

UNKNOWN = "unknown: look it up"


@dataclass(frozen=True, slots=True)
class Base:
    """The model that training began from."""

    source: str
    """Where it is on this machine, or its hub name."""
    name: str
    """What the world calls it; where nobody knows, the last part of its path."""
    public: bool
    """Whether others find it by that name."""
    licence: str
    """`UNKNOWN` where neither its files nor the catalogue say it."""
    text: str | None = None
    """Of the licence, where it lies beside the weights."""
    note: str = ""
    """What is different from what the world calls by that name."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model to export, and what is known of it."""

    model: str
    run: Run | None
    """Where its run's records are still beside it."""
    stage: str
    card: Card | None
    base: Base | None
    """None where the weights were made on the spot, from random numbers."""


def find(given: str, public: str | None = None) -> Source:
    """The model of a run's last finished stage, or a model as it is named.

    Args:
        given: a run's folder; or a model directory, GGUF file, address or hub name.
        public: the base's name, where its directory does not say it.

    Raises:
        RunError: the run has no finished stage.
        ModelError: there is no model.
    """
    folder = Path(given)
    if (folder / "recipe.yaml").is_file():
        run = Run.read(folder)
        done = [stage for stage in STAGES if run.is_done(stage)]
        if not done:
            raise RunError(f"{given} has no model yet", "let the run finish a stage")
        return _source(str(run.model(done[-1])), run, done[-1], public)
    model = local_model(given)
    check_source(model)
    place = Path(model).absolute()
    ours = place.parent.name == "models" and (place.parents[1] / "recipe.yaml").is_file()
    return _source(model, Run.read(place.parents[1]) if ours else None, place.name if ours else "", public)


def _source(model: str, run: Run | None, stage: str, public: str | None) -> Source:
    card = Card.read(model)
    base = adapter_base(model)
    if base is None and run is not None:
        base = None if run.recipe.model.name is None else local_model(run.recipe.model.name)
    elif base is None and card is None:  # nothing was trained here: it is its own base
        base = model
    if base is not None and (name := _made_in(base)) is not None:
        base = name or None
    known = None if base is None else base_of(base, public)
    if known is None and public is not None:
        known = Base("", public, True, _listed_licence(public))
    return Source(model, run, stage or (card.stage if card is not None else ""), card, known)


def _made_in(base: str) -> str | None:
    """What a base that a run made in its own folder began from; "" where it is made on the spot, None for any other."""
    run = Path(base).absolute().parents[1] if Path(base).is_dir() and len(Path(base).absolute().parents) > 1 else None
    if run is None or Path(base).absolute().parent.name != "models" or not (run / "recipe.yaml").is_file():
        return None
    return "" if Path(base).name == "base" else None


def base_of(source: str, public: str | None = None) -> Base:
    """What a base's directory says of it, else what the catalogue does."""
    folder = Path(source)
    if not folder.exists():
        name = public or source
        return Base(source, name, True, _listed_licence(name))
    origin = read_object(folder / ORIGIN) if (folder / ORIGIN).is_file() else {}
    entry = next((one for one in ENTRIES if one.name == origin.get("model")), None)
    name = public or (entry.hub if entry is not None else "")
    licence = origin.get("licence") or _said_in(folder / "README.md") or _listed_licence(name)
    file = next((path for path in (folder / "LICENSE", folder / "LICENSE.txt") if path.is_file()), None)
    return Base(
        source,
        name or (folder.stem if is_gguf(source) else folder.absolute().name),
        bool(name),
        str(licence),
        None if file is None else read_bytes(file, limit=SMALL).decode(errors="replace"),
        "" if entry is None else f"{entry.about}; {origin.get('weights', '')}".strip("; "),
    )


def _listed_licence(name: str) -> str:
    return next((one.licence for one in ENTRIES if name and name in {one.name, one.hub}), UNKNOWN)


def _said_in(readme: Path) -> str | None:
    """The licence in the head of a model card, as the hub writes it."""
    if not readme.is_file():
        return None
    head = read_bytes(readme, limit=SMALL).decode(errors="replace")[:20_000].split("---\n")
    try:
        values = read_yaml(head[1], str(readme), strict=False) if len(head) > 2 and not head[0].strip() else None
    except RecipeError:
        return None
    found = values.get("license") if isinstance(values, dict) else None
    return found if isinstance(found, str) else None


# -- change ----------------------------------------------------------------------------------------------------------
#
# What an export costs in reward: the same examples before and after, both computed in float32.


@dataclass(frozen=True, slots=True)
class Change:
    """Greedy rewards of one task's examples, by the model as it was trained and by what was exported."""

    task: str
    split: str
    n: int
    before: float
    after: float
    difference: Interval
    same: int
    """Answers that are the same to the letter."""


def changes(source: Source, exported: Path, n: int, listener: Listener) -> list[Change]:
    """Evaluate both on the first `n` examples of each task that the model was trained on.

    Args:
        source: the model as it was trained.
        exported: a model directory or GGUF file made of it.
        n: examples of a task.
        listener: is told how far it has come.

    Raises:
        DataError: the task has no such split.
    """
    found = []
    split = source.run.recipe.evaluation.final[-1] if source.run and source.run.recipe.evaluation.final else "test"
    _, law = as_trained(source.model, OPTIONS)
    options = replace(OPTIONS, max_tokens=law.max_tokens)
    for spec in each_task(EvaluationSpec(model=source.model, task="")).values():
        task = open_task_for(source.model, spec.task, spec.options, None, listener.working)
        examples = task.examples(split)[:n]
        before, after = (
            evaluate_model(model, task, examples, split, options, listener) for model in (source.model, str(exported))
        )
        rows = {row.id: row for row in after.rows}
        pairs = [(one, rows[one.id]) for one in before.rows if one.id in rows]
        rewards = [one.reward for one, _ in pairs], [other.reward for _, other in pairs]
        compared = paired(*rewards)
        same = sum(one.completion == other.completion for one, other in pairs)
        label = spec.task or task.name
        found.append(Change(label, split, len(pairs), compared.before, compared.after, compared.difference, same))
    return found


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
        yield f"{markdown(one.context.name)}: {counted(one.findings, one.clear, one.not_run)}."
        for finding in one.findings:
            yield f"- {finding.level} ({finding.check}): {markdown(finding.what)}"


def _examined(run: Run) -> list[Examination[History]]:
    return [examine(history, CHECKS) for history in read_histories(run.folder)]
