"""The model card of an export, as the hub reads it: a head of YAML, then Markdown for people."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from plumbline.checks.check import examine
from plumbline.checks.diagnosis.readers import read_histories
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.checks.findings_output import summarise_counts
from plumbline.config.overrides import read_yaml
from plumbline.errors import RecipeError, RunError
from plumbline.evaluation.command import EvaluationSpec, each_task, open_task_for
from plumbline.evaluation.models import evaluate_model
from plumbline.evaluation.statistics import Interval, paired_difference
from plumbline.export.weights import OPTIONS, check_links
from plumbline.policies.downloads.get import ENTRIES, ORIGIN
from plumbline.policies.model_files import is_gguf
from plumbline.policies.opening import adapter_base, check_source, find_run, options_as_trained
from plumbline.records import Evaluation, clusters_of
from plumbline.reports.templating import escape_markdown, render_template
from plumbline.reports.view import RunView
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.metadata import ModelMetadata
from plumbline.runs.record import STAGES, RunRecord
from plumbline.runs.remote import check_named, local_model
from plumbline.runs.run import Listener
from plumbline.storage import SMALL, find_object, read_bytes
from plumbline.tasks.task import Task
from plumbline.version import __version__

# -- source ----------------------------------------------------------------------------------------
#
# What is exported: a run's last model or any other, what it began from, and under which licence
# that is.

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
class ExportSource:
    """A model to export, and what is known of it."""

    model: str
    run: RunRecord | None
    """Where its run's records are still beside it."""
    stage: str
    metadata: ModelMetadata | None
    base: Base | None
    """None where the weights were made on the spot, from random numbers."""


def find_source(given: str, public: str | None = None) -> ExportSource:
    """The model of a run's last finished stage, or a model as it is named.

    Args:
        given: a run's folder; or a model directory, GGUF file, address or hub name.
        public: the base's name, where its directory does not say it.

    Raises:
        RunError: the run has no finished stage.
        ModelError: there is no model, or a link leads out of its folder or its base's.
    """
    if (Path(given) / "recipe.yaml").is_file():
        run: RunRecord | None = RunRecord.read(Path(given))
        assert run is not None
        done = [stage for stage in STAGES if run.is_done(stage)]
        if not done:
            raise RunError(f"{given} has no model yet", "let the run finish a stage")
        model, stage = str(run.model(done[-1])), done[-1]
    else:
        model = local_model(given)
        check_source(model)
        folder = find_run(model)
        run, stage = (
            (None, "") if folder is None else (RunRecord.read(folder), Path(model).absolute().name)
        )
    if Path(model).is_dir():
        check_links(Path(model))
    metadata, base = ModelMetadata.read(model), adapter_base(model)
    if base is None and run is not None:
        base = run.recipe.model.name
        if base is not None:
            check_named(base, "a model")
            base = local_model(base)
    elif base is None and metadata is None:  # nothing was trained here: it is its own base
        base = model
    if base is not None and Path(base).is_dir() and find_run(base) and Path(base).name == "base":
        base = None  # made on the spot by a run
    known = None if base is None else find_base(base, public)
    if known is None and public is not None:
        known = Base("", public, True, _listed_licence(public))
    return ExportSource(
        model, run, stage or (metadata.stage if metadata is not None else ""), metadata, known
    )


def find_base(source: str, public: str | None = None) -> Base:
    """What a base's directory says of it, else what the catalogue does."""
    folder = Path(source)
    if not folder.exists():
        name = public or source
        return Base(source, name, True, _listed_licence(name))
    if folder.is_dir():
        check_links(folder)
    origin = find_object(folder / ORIGIN)
    entry = next((one for one in ENTRIES if one.name == origin.get("model")), None)
    name = public or (entry.hub if entry is not None else "")
    licence = origin.get("licence") or _read_licence(folder / "README.md") or _listed_licence(name)
    file = next(
        (path for path in (folder / "LICENSE", folder / "LICENSE.txt") if path.is_file()), None
    )
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


def _read_licence(readme: Path) -> str | None:
    """The licence in the head of a model card, as the hub writes it."""
    if not readme.is_file():
        return None
    head = read_bytes(readme, limit=SMALL).decode(errors="replace")[:20_000].split("---\n")
    try:
        values = (
            read_yaml(head[1], str(readme), strict=False)
            if len(head) > 2 and not head[0].strip()
            else None
        )
    except RecipeError:
        return None
    found = values.get("license") if isinstance(values, dict) else None
    return found if isinstance(found, str) else None


# -- change ----------------------------------------------------------------------------------------
#
# What an export costs in reward: the same examples before and after, both computed in float32.


@dataclass(frozen=True, slots=True)
class RewardChange:
    """Greedy rewards of one task's examples, by the model as it was trained and by what was
    exported."""

    task: str
    split: str
    n: int
    before: float
    after: float
    difference: Interval
    same: int
    """Answers that are the same to the letter."""


def open_tasks(model: str, listener: Listener) -> dict[str, Task]:
    """The tasks that a model was trained on, by name.

    Raises:
        RecipeError: their code is not trusted.
    """
    specs = each_task(EvaluationSpec(model=model, task="")).values()
    opened = [
        (one.task, open_task_for(model, one.task, one.options, None, listener.working))
        for one in specs
    ]
    return {name or task.name: task for name, task in opened}


def measure_changes(
    source: ExportSource, exported: Path, tasks: Mapping[str, Task], n: int, listener: Listener
) -> list[RewardChange]:
    """Evaluate both on the first `n` examples of each task.

    Args:
        source: the model as it was trained.
        exported: a model directory or GGUF file made of it.
        tasks: see `open_tasks`.
        n: examples of a task.
        listener: is told how far it has come.

    Raises:
        DataError: the task has no such split.
    """
    found = []
    split = held_out(source)
    _, sampling = options_as_trained(source.model, OPTIONS)
    options = replace(OPTIONS, max_tokens=sampling.max_tokens)
    for name, task in tasks.items():
        examples = task.examples(split)[:n]
        before, after = (
            evaluate_model(model, task, examples, split, options, listener)
            for model in (source.model, str(exported))
        )
        found.append(compare_rewards(name, before, after))
    return found


def held_out(source: ExportSource) -> str:
    """The split on which a model's run evaluated it last, else test."""
    final = source.run.recipe.evaluation.final if source.run else ()
    return final[-1] if final else "test"


def compare_rewards(name: str, before: Evaluation, after: Evaluation) -> RewardChange:
    """Two evaluations of the task `name`, on the examples that both judged."""
    rows = {row.id: row for row in after.rows}
    pairs = [(one, rows[one.id]) for one in before.rows if one.id in rows]
    rewards = [one.reward for one, _ in pairs], [other.reward for _, other in pairs]
    compared = paired_difference(*rewards, clusters_of([one for one, _ in pairs]))
    same = sum(one.completion == other.completion for one, other in pairs)
    change = compared.before, compared.after, compared.difference
    return RewardChange(name, before.split, len(pairs), *change, same)


LIBRARIES = {"merged": "transformers", "adapter": "peft", "gguf": "gguf"}


def model_card(
    source: ExportSource, *, kind: str, family: str, said: Sequence[str], **export: object
) -> str:
    """The whole card.

    Args:
        source: what was exported; what its run's records say of it is read there.
        kind: merged, adapter or gguf.
        family: of the model.
        said: sentences about what was measured when it was written.
        export: its `title`; how its weights are `stored` (a dtype, or a kind of GGUF), and how many
            `parameters` they are; lines that `open_with` it.
    """
    base, run = source.base, source.run
    head: dict[str, object] = {}
    if base is not None:
        head["license"] = base.licence.lower() if base.licence != UNKNOWN else "unknown"
    if base is not None and base.public:
        head["base_model"] = base.name
    head |= {
        "library_name": LIBRARIES[kind] if family != "flow" else "plumbline",
        "pipeline_tag": "text-generation",
        "tags": ["plumbline", family],
    }
    metadata = source.metadata
    known = {} if metadata is None else metadata.tasks or {metadata.task: {"name": metadata.task}}
    checked = read_histories(run.folder) if run is not None and run.metrics else []
    examined = [(history.name, examine(history, CHECKS)) for history in checked]
    return (
        render_template(
            "card.md",
            **export,
            head=yaml.safe_dump(head, sort_keys=False, allow_unicode=True).rstrip(),
            source=source,
            kind=kind,
            family=family,
            said=said,
            tasks={name: one["name"] for name, one in known.items()},
            rows=[] if run is None else list(_rows(RunView(run), source.stage)),
            examined=[
                (name, summarise_counts(one.findings, one.clear, one.not_run), one.findings)
                for name, one in examined
            ],
            licence=licence_text(base),
            version=__version__,
        )
        + "\n"
    )


def _rows(view: RunView, stage: str) -> Iterator[dict[str, object]]:
    """The stage's evaluations, for a table."""
    for one in view.tasks or [view]:
        for split in one.splits:
            for mode in one.modes(split):
                if (found := one.final(stage, split, mode)) is not None:
                    summary = one.summary(EvaluationKey(stage, split, mode))
                    yield {
                        "task": one.task or found.task,
                        "split": split,
                        "mode": mode,
                        "bounds": one.bounds(found),
                        "n": summary["n"],
                        "reward": summary["reward"],
                    }


def licence_text(base: Base | None) -> str:
    """What is known about whose terms the weights are under."""
    if base is None:
        return (
            "No published weights went into this model: whoever trained it says under which "
            "licence it is."
        )
    if base.licence == UNKNOWN:
        return (
            f"The licence of the base, {base.name}, is unknown: look it up where the base was "
            "published. "
            "What is derived from it is under its terms."
        )
    return (
        f"The base, {base.name}, is under {base.licence}; what is derived from it is under its "
        "terms."
    )


def change_text(one: RewardChange, now: str = "stored") -> str:
    """A change of reward as a sentence; `now` is what became of the model."""
    return (
        f"{escape_markdown(one.task)}, {escape_markdown(one.split)}, greedy, computed in float32: mean reward "
        f"{one.before:.4f} as it "
        f"was trained, {one.after:.4f} as it is {now}: {one.difference:+.4f} on n = {one.n}; "
        f"{one.same} of {one.n} "
        "answers are the same to the letter."
    )
