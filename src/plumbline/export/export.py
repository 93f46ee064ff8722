"""`plumbline export`: weights, card and licence note in a folder that is there whole or not at
all."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

from plumbline.errors import ModelError, RecipeError, StorageError
from plumbline.export import weights
from plumbline.export.card import (
    ExportSource,
    RewardChange,
    change_text,
    find_source,
    licence_text,
    measure_changes,
    model_card,
    open_tasks,
)
from plumbline.policies.opening import options_as_trained
from plumbline.runs import output_guard
from plumbline.runs.hub import Repository
from plumbline.runs.run import Listener
from plumbline.storage import apply_umask, clear_os_errors, folder_beside, sync_folder, write_text
from plumbline.tasks.task import Task

EXPORT = "export"
"""What the mark in an exported folder says (see `plumbline.runs.output_guard`)."""
OURS = re.compile(
    rf"{re.escape(output_guard.MARK)}|README\.md|LICENSE|NOTICE|(merges|vocab)\.txt|.*\.(safetensors|json|gguf|jinja|model)"
)
"""Names of an export's files: a new one takes the place of an old one that has no other."""
Kind = Literal["merged", "adapter", "gguf"]
Dtype = Literal["float32", "bfloat16", "float16"]
Gguf = Literal["f32", "f16", "bf16", "q8_0"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What is to be exported, and how."""

    model: str
    """A run's folder, or a model."""
    out: Path
    kind: str = "merged"
    dtype: str | None = None
    """Of merged weights; None is float32, which rounds nothing."""
    gguf: str | None = None
    """How a GGUF file keeps matrices; None is f16."""
    evaluate: int | None = None
    """Examples on which the change in reward is measured."""
    base: str | None = None
    """The base's public name, where its directory does not say it."""
    push: str | None = None
    """USER/NAME of the model repository of the Hugging Face hub that the export is uploaded to."""
    public: bool = False
    """Whether a repository that is made for it is public."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            RecipeError: says what.
        """
        for name, value, known in (
            ("kind", self.kind, Kind),
            ("dtype", self.dtype, Dtype),
            ("gguf", self.gguf, Gguf),
        ):
            if value is not None and value not in get_args(known):
                raise RecipeError(
                    f"--{name} is {value}", f"give one of {', '.join(get_args(known))}"
                )
        if self.dtype is not None and self.kind != "merged":
            raise RecipeError(
                f"--dtype is of merged weights, and --kind is {self.kind}", "leave out --dtype"
            )
        if self.gguf is not None and self.kind != "gguf":
            raise RecipeError(
                f"--gguf is of a GGUF file, and --kind is {self.kind}", "add --kind gguf"
            )
        if self.public and self.push is None:
            raise RecipeError(
                "--public is of a repository, and --push names none", "add --push USER/NAME"
            )
        if self.evaluate is not None and self.kind == "adapter":
            raise RecipeError(
                "an adapter is exported as it was trained, so no reward changes",
                "leave out --evaluate",
            )

    @property
    def stored(self) -> str:
        """How the weights are stored, for people."""
        return {"merged": self.dtype or "float32", "gguf": self.gguf or "f16"}.get(
            self.kind, "as it was trained"
        )


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What was written, and what was measured on the way."""

    folder: Path
    files: Sequence[str]
    bytes: int
    said: Sequence[str]
    figures: dict[str, Any]
    changes: Sequence[RewardChange]
    pushed: str | None = None
    """The address of the repository."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "folder": str(self.folder)}

    def text(self) -> str:
        """For people."""
        lines = [f"{self.folder}: {len(self.files)} files, {self.bytes / 1e6:.1f} MB", *self.said]
        pushed = [] if self.pushed is None else [f"uploaded to {self.pushed}"]
        return "\n".join([*lines, *map(change_text, self.changes), *pushed]) + "\n"


def export(what: Export, listener: Listener) -> ExportResult:
    """Write an export; what we did not make is never written over.

    Raises:
        ModelError: there is no model, or it cannot be exported like this.
            The hub does not take the upload; the export stays.
        RunError: the run has no finished stage.
        StorageError: the folder holds something else, or the disk is full; nothing is left half
            written.
    """
    output_guard.check_folder(what.out, EXPORT)
    out = Path(os.path.realpath(what.out))  # a link that the user gave stays one
    if theirs := sorted(
        path.name
        for path in (out.iterdir() if out.is_dir() else ())
        if not OURS.fullmatch(path.name)
    ):
        raise StorageError(
            f"{what.out} holds {theirs[0]}, which is no file of an export; nothing in it was "
            "touched",
            "move it away, or give another folder",
        )
    source = find_source(what.model, what.base)
    section, _ = options_as_trained(source.model, weights.OPTIONS)
    if what.kind == "gguf" and section.family != "autoregressive":
        raise ModelError(
            f"{source.model} is of family {section.family}, and the readers of GGUF write from "
            "left to right: they "
            "would open it and answer by another sampling distribution",
            "export it with --kind merged",
        )
    if what.evaluate is not None and source.metadata is None:
        raise RecipeError(
            f"{source.model} does not say which task it was trained on, so --evaluate has none",
            "leave it out",
        )
    repository = None if what.push is None else Repository(what.push, public=what.public)
    tasks = {} if what.evaluate is None else open_tasks(source.model, listener)
    with clear_os_errors(what.out), folder_beside(out) as temporary:
        done = _fill(what, source, section.family, temporary, tasks, listener)
        old = temporary.with_name(f"{temporary.name}.old")
        if out.exists():
            out.rename(old)
        temporary.rename(out)
        if old.exists():  # what we made there before goes when the new one stands
            shutil.rmtree(old)
        sync_folder(out.parent)
    if repository is None:
        return done
    listener.working(f"uploading to {what.push}", 0, 1)
    pushed = repository.upload(out)
    listener.working(f"uploading to {what.push}", 1, 1)
    return replace(done, pushed=pushed)


def _fill(
    what: Export,
    source: ExportSource,
    family: str,
    folder: Path,
    tasks: Mapping[str, Task],
    listener: Listener,
) -> ExportResult:
    listener.working(f"writing {what.kind}", 0, 1)
    write = {"merged": _export_merged, "adapter": _export_adapter, "gguf": _export_gguf}[what.kind]
    said, figures, lines = write(what, source, folder)
    listener.working(f"writing {what.kind}", 1, 1)
    changed: Sequence[RewardChange] = ()
    if what.evaluate is not None:
        made = next(folder.glob("*.gguf")) if what.kind == "gguf" else folder
        changed = measure_changes(source, made, tasks, what.evaluate, listener)
    _write_licence(source, folder)
    card = model_card(
        source,
        kind=what.kind,
        family=family,
        said=[*said, *map(change_text, changed)],
        title=what.out.absolute().name,
        stored=what.stored,
        parameters=figures["parameters"],
        open_with=lines,
    )
    write_text(folder / "README.md", card)
    write_text(folder / output_guard.MARK, f"{EXPORT}\n")
    apply_umask(folder)
    files = sorted(path.name for path in folder.iterdir())
    size = sum(path.stat().st_size for path in folder.iterdir())
    return ExportResult(what.out, files, size, said, figures, changed)


Written = tuple[list[str], dict[str, Any], str]
"""Sentences about what was measured, the same as figures, and lines that open the export."""


def _export_merged(what: Export, source: ExportSource, folder: Path) -> Written:
    base = None if source.base is None else source.base.source or None
    if base is None and source.run is not None and source.run.is_done("base"):
        base = str(source.run.model("base"))
    policy = weights.open_float32(source.model)
    family = policy.family
    done = weights.write_merged(policy, folder, what.stored, base, source.model)
    compared = ("losses", "texts") if family == "flow" else ("log-probabilities", "tokens")
    said = [
        (
            "Adapters, where there were any, were merged in float32; read back, every weight is as "
            "it "
            "was written."
        ),
        (
            f"The {compared[0]} of {done.gap.compared} {compared[1]} differ from those of the "
            "model as it was trained "
            f"by {done.gap.mean:.2g} nats in the mean and by at most {done.gap.largest:.2g}."
        ),
    ]
    figures: dict[str, Any] = {"parameters": done.parameters, "gap": asdict(done.gap)}
    if what.stored == "float32":
        said.append("Nothing was rounded.")
    elif (found := done.arrived) is not None:
        figures |= {"arrived": asdict(found)}
        said.append(
            f"Rounding to {what.stored} left {found.share:.1%} of the update since the base (its "
            "projection on what "
            f"was learnt); {found.elements:.1%} of the elements that should have changed did, and "
            "the rounding noise "
            f"is {found.noise:.2f} times the update."
        )
    else:
        said.append(
            f"Rounded to {what.stored}; how much of the update is left was not measured, for "
            "nothing says what the "
            "weights were before."
        )
    lines = f'AutoModelForCausalLM.from_pretrained("{what.out.name}")  # transformers'
    return said, figures, lines if family == "autoregressive" else f"plumbline eval {what.out.name}"


def _export_adapter(what: Export, source: ExportSource, folder: Path) -> Written:
    base = source.base
    name = "" if base is None else base.name if base.public else base.source
    parameters = weights.write_adapter(source.model, folder, name)
    said = ["The adapter's weights are those of the run, to the byte; the base is not in here."]
    if base is None or not base.public:
        said.append(
            f"Its base is named by a path, {name or 'of the run'}, which nobody else has: say "
            "--base NAME."
        )
    elif base.note:
        said.append(
            f"It was trained on {base.note}: on other weights of that name its answers may differ."
        )
    lines = (
        f'PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{name}"), '
        f'"{what.out.name}")  # peft'
    )
    return said, {"parameters": parameters, "base": name}, lines


def _export_gguf(what: Export, source: ExportSource, folder: Path) -> Written:
    name = what.out.absolute().name
    path = folder / f"{name}-{what.stored}.gguf"
    about = {"name": name, "licence": "" if source.base is None else source.base.licence}
    found = weights.write_gguf(
        weights.open_float32(source.model), path, cast(Gguf, what.stored), about
    )
    other = "other ids for some texts; llama.cpp splits by a name in the file"
    ids = "the same ids" if found.same_ids else other
    said = [
        (
            "Read back by transformers: the largest difference of a weight is "
            f"{found.weights:.2g}, and none is larger "
            f"than {what.stored} rounds; the log-probabilities of {found.tokens} tokens differ by "
            f"{found.mean:.2g} in "
            f"the mean and by at most {found.logprob:.2g}."
        ),
        f"The tokenizer in the file, as transformers builds it, gives {ids}.",
    ]
    return said, asdict(found), f"llama-server -m {path.name}"


def _write_licence(source: ExportSource, folder: Path) -> None:
    """The base's licence where its text is there, with a note beside it; else a note that says what
    is known."""
    note, text = licence_text(source.base) + "\n", source.base.text if source.base else None
    write_text(folder / "LICENSE", note if text is None else text)
    if text is not None:
        write_text(folder / "NOTICE", note + "LICENSE is the text that lay beside the base.\n")
