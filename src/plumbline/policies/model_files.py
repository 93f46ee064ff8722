"""What stands at a model's path, without loading it: its kind, and whether its files are whole."""

import json
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from plumbline.config.overrides import read_package_yaml
from plumbline.errors import ModelError, make_visible
from plumbline.storage import (
    LARGEST_JSON,
    check_regular,
    clear_read_errors,
    find_object,
    open_regular,
    read_object,
)

AGAIN = "fetch or copy the model again, and let it finish"
POINTER = b"version https://git-"
"""What a file begins with that Git LFS left in another's place."""
ADAPTER = "adapter_config.json"
INDICES = {
    "model.safetensors": "model.safetensors.index.json",
    "pytorch_model.bin": "pytorch_model.bin.index.json",
}
"""Weights in one file, and the index of those in several; the first that is there is read."""
TEXTS = (".json", ".jinja", ".txt", ".model")
"""Endings of what is read at once, and of which the largest have some tens of MB."""
KNOWN = read_package_yaml(Path(__file__).with_name("model_files.yaml"))
"""Names of files, and keys of a config.json: see the file."""
TOKENIZERS: list[str] = KNOWN["tokenizers"]
SIZES: Mapping[str, int] = KNOWN["sizes"]
"""Keys of a config.json that are sizes, and what none of them exceeds: lists, tables and modules of
so many are made before the weights are looked at."""
WEIGHTS = re.compile(
    r"model[\w.-]*\.safetensors|pytorch_model[\w.-]*\.bin|adapter_model\.(safetensors|bin)"
)
ONE_SET = "move away what is not meant"


def is_gguf(source: str) -> bool:
    """Whether a model's source means a GGUF file, there or not."""
    return source.lower().endswith(".gguf") and not Path(source).is_dir()


def looks_like_path(source: str) -> bool:
    """Whether a name is a path, there or not: `plumbline get` writes into `models/`, and runs are
    in `runs/`, so no hub is asked for those."""
    return source.startswith((".", "/", "~", "models/", "runs/")) or source.count("/") > 1


def is_here(source: str) -> bool:
    """Whether a model is on this machine: of such one no hub is asked for anything."""
    return is_gguf(source) or Path(source).exists()


def is_adapter(source: str | Path) -> bool:
    """Whether a directory holds a LoRA adapter, and not the weights that it is for."""
    return (Path(source) / ADAPTER).is_file()


def check_files(folder: Path) -> None:
    """See that a library which opens the files in a model's folder neither waits nor reads without
    end.

    Raises:
        ModelError: one is a pipe, a device or a socket, or of texts and far larger than any is.
    """
    with clear_read_errors(folder, ModelError):
        for file in sorted(folder.iterdir()):
            if not file.exists() or file.is_dir():
                continue
            check_regular(file, file.stat().st_mode, ModelError)
            if file.suffix in TEXTS and file.stat().st_size > LARGEST_JSON:
                fix = "use the file that was saved with these weights"
                raise ModelError(
                    f"{file} is too large: it has more than {LARGEST_JSON >> 20:,} MiB", fix
                )


def find_fault(folder: Path) -> str:
    """What is wrong with the files of a model or an adapter, in words; empty where all are there
    and whole.

    Headers are read, and no weights.
    """
    stem = "adapter_model" if is_adapter(folder) else "model"
    single = folder / f"{stem}.safetensors"
    index = folder / INDICES["model.safetensors"]
    for file in (*(folder / name for name in TOKENIZERS), *folder.glob("*.bin")):
        if is_pointer(file):
            return f"{file} is a pointer of Git LFS, and not the file itself"
    named: dict[str, str] = {}
    if stem == "model":
        for each in INDICES.values():
            if (folder / each).is_file():
                files = read_object(folder / each).get("weight_map")
                if not isinstance(files, dict) or not all(
                    isinstance(file, str) for file in files.values()
                ):
                    return (
                        f"{folder / each} does not say which file holds which weight (weight_map)"
                    )
                if outside := [file for file in files.values() if Path(file).name != file]:
                    return f"{folder / each} names a file that is not in its folder: {outside[0]}"
                if each == index.name and (not single.is_file() or single.name in files.values()):
                    named = files  # else the one file is read, and the index is of an earlier model
    absent = sorted(file for file in {*named.values()} if not (folder / file).is_file())
    if absent:
        shards = len({*named.values()})
        return (
            f"{folder} lacks {len(absent)} of the {shards} files that its index names: "
            f"{', '.join(absent[:3])}"
        )
    wanted = sorted({folder / file for file in named.values()}) or [
        file for file in (single,) if file.is_file()
    ]
    if (
        not wanted
        and not list_pickles(folder)
        and "transformers_weights" not in find_object(folder / "config.json")
    ):
        return f"{folder} has a config and no weights (no {single.name})"
    held: dict[str, Any] = {}
    for file in wanted:
        if why := _find_cut(file, held):
            return f"{file} {why}"
    integers = [name for name, entry in held.items() if _is_integer_matrix(name, entry)]
    if (
        integers
        and stem == "model"
        and "quantization_config" not in find_object(folder / "config.json")
    ):
        kind = held[integers[0]]["dtype"]
        return (
            f"{folder} holds {integers[0]} as integers ({kind}), and its config.json has no "
            "quantization_config"
        )
    if lost := sorted(named.keys() - held.keys()):
        return f"{folder}: {len(lost)} weights of its index are in no file, for example {lost[0]}"
    return ""


def find_unread(folder: Path) -> str:
    """What weights stand beside those that are read, in words; empty where none do."""
    inside = {file.name for file in folder.glob("*") if file.is_file()}
    sets = [{str(find_object(folder / "config.json").get("transformers_weights"))}]
    if is_adapter(folder):
        sets += [{"adapter_model.safetensors"}, {"adapter_model.bin"}]
    for single, index in INDICES.items():
        files = read_object(folder / index).get("weight_map") if index in inside else None
        named = set(map(str, files.values())) if isinstance(files, dict) else set[str]()
        sets += [named, {single}] if single in named else [{single}, named]
    there = [found for each in sets if (found := each & inside)]
    unread = {*filter(WEIGHTS.fullmatch, inside)}.union(*there) - set().union(*there[:1])
    if not there or not unread:
        return ""
    last, other = (
        max((folder / file).stat().st_mtime for file in files) for files in (there[0], unread)
    )
    read, beside = (", ".join(sorted(files)[:3]) for files in (there[0], unread))
    age = ", which is newer" if other > last else ""
    return make_visible(
        f"{folder} holds more than one set of weights: {read} is read, and {beside} is not{age}"
    )


def has_tokenizer(folder: Path) -> bool:
    """Whether a model's directory has any file of a tokenizer."""
    return any((folder / name).is_file() for name in TOKENIZERS)


def held_bytes(source: str) -> int:
    """How large the files of weights of a model or an adapter are; without end for one of a hub."""
    path = Path(source)
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 2**63
    return sum(
        (path / name).stat().st_size
        for name in [*list_pickles(path), *(file.name for file in path.glob("*.safetensors"))]
    )


def list_pickles(folder: Path) -> list[str]:
    """The files of weights in a folder whose reading may run what is in them."""
    found = (
        file.name
        for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt")
        for file in folder.glob(pattern)
    )
    return sorted(name for name in found if name != "training_args.bin")


def is_pointer(file: Path) -> bool:
    """Whether Git LFS left a file's address in its place."""
    if not file.is_file():
        return False
    with open_regular(file) as stream:
        return stream.read(len(POINTER)) == POINTER


def _is_integer_matrix(name: str, entry: Any) -> bool:
    """Whether a header says that a weight is a matrix of integers (masks have other names)."""
    dtype, shape = entry.get("dtype"), entry.get("shape")
    integer = isinstance(dtype, str) and dtype.startswith(("I", "U"))
    return name.endswith(".weight") and integer and isinstance(shape, list) and len(shape) > 1


def _find_cut(file: Path, held: dict[str, Any]) -> str:
    """Why a file of weights is not whole, and its header into `held`; that says how long the file
    is."""
    if is_pointer(file):
        return "is a pointer of Git LFS, and not the weights"
    size = file.stat().st_size
    with open_regular(file) as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if 8 + length > size:
            return f"is cut off: {size} bytes, which is less than its own header"
        try:
            header = json.loads(stream.read(length))
            tensors = {name: one for name, one in header.items() if name != "__metadata__"}
            end = max((int(one["data_offsets"][1]) for one in tensors.values()), default=0)
        except (ValueError, OverflowError, TypeError, LookupError, AttributeError, RecursionError):
            return "is damaged: its header is none of safetensors"
    held.update(tensors)
    return f"is cut off: {size:,} of {8 + length + end:,} bytes" if size < 8 + length + end else ""


def check_config(values: Mapping[str, Any], where: str) -> None:
    """Refuse sizes and windows that no model can have, and kernels that would be fetched.

    Args:
        values: of a config.json, or of a loaded model's config.
        where: that says so, for the message.

    Raises:
        ModelError: names the key.
    """
    fix = "use the config.json that was saved with these weights"
    for key, value in _walk_keys(values):
        if key in SIZES and isinstance(value, int) and value > SIZES[key]:
            raise ModelError(f"{where} says {key}: {value}, which is no size", fix)
    for part in (values, values.get("text_config")):
        if not isinstance(part, Mapping):
            continue
        for key, value in part.items():
            if key in SIZES and value is not None and not _is_size(value, SIZES[key]):
                raise ModelError(f"{where} says {key}: {value}, which is no size", fix)
            windowed = (
                key in KNOWN["windows"]
                and value is not None
                and part.get("use_sliding_window") is not False
            )
            if windowed and not _is_size(value) and _has_windows(part.get("layer_types")):
                raise ModelError(
                    f"{where} says {key}: {value}, a window through which no token is seen",
                    f"set {key} to null there for a model without a window, or to the window that "
                    "it was trained with",
                )
            if key.endswith("_implementation") and "/" in str(value):
                raise ModelError(
                    f"{where} says {key}: {value}, code that would be fetched and run",
                    f"delete {key}",
                )


def _is_size(value: object, most: int = 2**31) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_is_size(each, most) for each in value)
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most


def _walk_keys(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The keys of a config and of those in it, such as that of an encoder of images."""
    for key, value in values.items():
        yield from _walk_keys(value) if isinstance(value, Mapping) else [(key, value)]


def _has_windows(kinds: object) -> bool:
    """Whether some layer has a window, by the `layer_types` of a config, which not every config
    has."""
    return not isinstance(kinds, list) or any("full" not in str(kind) for kind in kinds)


def is_model(path: Path) -> bool:
    """Whether a directory holds a model or an adapter."""
    return (path / "config.json").is_file() or is_adapter(path)


def models_in(path: Path) -> Iterator[Path]:
    """Models that somebody may mean who names this folder: of a run its last stage's, then any in
    it."""
    for place in (path / "models", path):
        yield from (found for stage in ("rl", "sft", "base") if is_model(found := place / stage))
    yield from sorted(path.glob("*.gguf"))
    yield from sorted(found for found in path.glob("*") if is_model(found))
