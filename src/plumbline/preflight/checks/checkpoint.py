"""A checkpoint that is not all there: shards that the index names, files cut off by a broken download, no tokenizer."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

from plumbline.diagnosis.finding import Finding
from plumbline.errors import PlumblineError
from plumbline.overrides import as_mapping
from plumbline.policies.pretrained.gguf_file import is_gguf
from plumbline.policies.saved import ADAPTER, is_adapter
from plumbline.preflight.before import TOKENIZERS, Before, Check, Lacking, has_tokenizer
from plumbline.storage import open_regular, read_object

INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
AGAIN = "fetch or copy the model again, and let it finish"


def look(before: Before) -> Iterator[Finding]:
    """Of the model's directory, and of an adapter's that it is the base of; headers are read, and no weights."""
    name, folder = before.recipe.model.name, before.model_folder
    if name is None or is_gguf(name):
        return
    if folder is None:
        raise Lacking("the model, which is not here")
    own = Path(name).expanduser()
    if is_adapter(own):
        yield from _weights(own, "adapter_model")
    if not (folder / "config.json").is_file():
        return  # which a run refuses
    try:
        read_object(folder / "config.json")
        yield from _weights(folder, "model")
    except PlumblineError as error:
        yield _broken(error.cause, folder)
    if not has_tokenizer(own) and not has_tokenizer(folder):
        yield Finding(
            "checkpoint",
            "fatal",
            f"{folder} has a model and no tokenizer",
            evidence={"looked for": list(TOKENIZERS)},
            causes=("only the model was saved, not the tokenizer beside it",),
            fix="save the model's tokenizer into the same directory (tokenizer.save_pretrained)",
        )


def _weights(folder: Path, stem: str) -> Iterator[Finding]:
    there = sorted(folder.glob("*.safetensors"))
    named = (
        as_mapping(read_object(folder / INDEX).get("weight_map"))
        if stem == "model" and (folder / INDEX).is_file()
        else {}
    )
    absent = sorted({str(file) for file in named.values()} - {file.name for file in there})
    if absent:
        shards = len({*named.values()})
        yield _broken(
            f"{folder} lacks {len(absent)} of the {shards} files that its index names: {', '.join(absent[:3])}", folder
        )
    elif not there:
        yield from _other_files(folder)
    held: set[str] = set()
    for file in there:
        if why := _cut(file, held):
            yield _broken(f"{file} {why}", folder)
            return
    if not absent and (lost := sorted(named.keys() - held)):
        yield _broken(f"{folder}: {len(lost)} weights of its index are in no file, for example {lost[0]}", folder)


def _other_files(folder: Path) -> Iterator[Finding]:
    pickled = sorted(
        file.name for pattern in PICKLES for file in folder.glob(pattern) if file.name != "training_args.bin"
    )
    if not pickled:
        yield _broken(f"{folder} has a config and no weights (no *.safetensors)", folder)
        return
    yield Finding(
        "checkpoint",
        "warning",
        f"the weights in {folder} are pickles only ({', '.join(pickled[:3])}): to read them may run what is in them",
        evidence={"files": pickled},
        causes=("an old checkpoint, or one that a training loop wrote",),
        fix="save it as safetensors (model.save_pretrained) where you trust it, and use that",
    )


def _cut(file: Path, held: set[str]) -> str:
    """Why a file of weights is not whole, and the names that it holds into `held`; its header says how long it is."""
    size = file.stat().st_size
    with open_regular(file) as stream:
        start = stream.read(8)
        if start.startswith(b"version"):
            return "is a pointer of Git LFS, and not the weights"
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if 8 + length > size:
            return f"is cut off: {size} bytes, which is less than its own header"
        try:
            header = json.loads(stream.read(length))
            tensors = {name: one for name, one in header.items() if name != "__metadata__"}
            end = max((one["data_offsets"][1] for one in tensors.values()), default=0)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            return "is damaged: its header is none of safetensors"
    held |= tensors.keys()
    return f"is cut off: {size:,} of {8 + length + end:,} bytes" if size < 8 + length + end else ""


def _broken(what: str, folder: Path) -> Finding:
    return Finding(
        "checkpoint",
        "fatal",
        what,
        evidence={"folder": str(folder), "adapter": (folder / ADAPTER).is_file()},
        causes=("a download or a copy that did not end", "a run that was killed while it saved"),
        fix=AGAIN,
    )


CHECK = Check(name="checkpoint", asks="whether the model's files are all there and whole, with a tokenizer", look=look)
