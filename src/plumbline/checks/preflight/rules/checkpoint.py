"""A checkpoint that is not all there: shards that the index names, files cut off by a broken download, no tokenizer."""

from collections.abc import Iterator
from pathlib import Path

from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.preflight.before import Before, Check, Lacking
from plumbline.errors import PlumblineError
from plumbline.policies.pretrained.gguf_file import AGAIN, is_gguf
from plumbline.policies.saved import ADAPTER, TOKENIZERS, find_fault, has_tokenizer, is_adapter, pickles
from plumbline.storage import read_object


def look(before: Before) -> Iterator[Finding]:
    """Of the model's directory, and of an adapter's that it is the base of; headers are read, and no weights."""
    name, folder = before.recipe.model.name, before.model_folder
    if name is None or is_gguf(name):
        return
    if folder is None:
        raise Lacking("the model, which is not here")
    own = Path(name).expanduser()
    if is_adapter(own):
        yield from _weights(own)
    if not (folder / "config.json").is_file():
        return  # which a run refuses
    try:
        read_object(folder / "config.json")
        yield from _weights(folder)
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


def _weights(folder: Path) -> Iterator[Finding]:
    if fault := find_fault(folder):
        yield _broken(fault, folder)
    elif not any(folder.glob("*.safetensors")) and (pickled := pickles(folder)):
        yield Finding(
            "checkpoint",
            "warning",
            f"the weights in {folder} are pickles only ({', '.join(pickled[:3])}): to read them may run what is in "
            "them",
            evidence={"files": pickled},
            causes=("an old checkpoint, or one that a training loop wrote",),
            fix="save it as safetensors (model.save_pretrained) where you trust it, and use that",
        )


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
