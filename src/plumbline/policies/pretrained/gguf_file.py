"""A model in one GGUF file: what transformers needs to be told, and what is wrong with a file that
it cannot read.

transformers dequantises the weights into plain tensors while it loads them. They are then ordinary
weights, to be trained and saved, and the marks of quantisation, which would forbid both, are taken
off.
"""

import io
from contextlib import AbstractContextManager, nullcontext, redirect_stderr
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.config.imports import missing_module_error
from plumbline.errors import ModelError
from plumbline.policies.library_errors import clear_opening_errors
from plumbline.policies.model_files import AGAIN, is_gguf, is_pointer


def make_source_arguments(source: str) -> tuple[str, dict[str, str]]:
    """How `from_pretrained` is told of a source: its first argument and the further ones."""
    return (
        (str(Path(source).parent), {"gguf_file": Path(source).name})
        if is_gguf(source)
        else (source, {})
    )


def read_header(source: str) -> tuple[str, str]:
    """Architecture ("llama") and splitting of text ("smollm", empty where it is not said) of a
    whole GGUF file.

    Raises:
        ModelError: no such file, not GGUF, cut short, or the package gguf is missing.
    """
    path = Path(source)
    if not path.is_file():
        raise ModelError(f"there is no GGUF file at {source}", "check the path")
    if is_pointer(path):
        raise ModelError(f"{source} is a pointer of Git LFS, and not the weights", AGAIN)
    with path.open("rb") as file:
        start = file.read(4)
    if start != b"GGUF":
        raise ModelError(
            f"{source} is not a GGUF file, in spite of its name",
            "download it again, as a binary file",
        )
    return _read(str(path.resolve()), path.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _read(path: str, modified: int) -> tuple[str, str]:  # noqa: ARG001 - part of the key: a file that changed is read
    """The tokenizer and the weights both ask, and reading a large vocabulary takes seconds."""
    try:
        from gguf import GGUFReader, GGUFValueType
    except ImportError as error:
        raise missing_module_error(f"reading {path}", error) from error
    size = Path(path).stat().st_size

    class SizeCheckedReader(GGUFReader):
        """An array that claims more entries than the file has bytes would be read for hours."""

        def _get(self, offset: Any, dtype: Any, count: Any = 1, override_order: Any = None) -> Any:
            if int(offset) + int(count) * np.dtype(dtype).itemsize > size:
                raise ValueError(
                    f"{int(count):,} entries are said to stand at byte {int(offset):,}"
                )
            return super()._get(offset, dtype, count, override_order)

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type == GGUFValueType.ARRAY:
                count = int(self._get(orig_offs + 4, np.uint64)[0])
                if count > size:
                    raise ValueError(f"an array is said to have {count:,} entries")
            return super()._get_field_parts(orig_offs, raw_type)

    fix = "compare its size with where it came from, and download it again"
    with clear_opening_errors(f"{path} ends too early or is damaged ({size:,} bytes)", fix):
        fields = SizeCheckedReader(path).fields
        architecture = str(fields["general.architecture"].contents())
        split = fields.get("tokenizer.ggml.pre")
        return architecture, "" if split is None else str(split.contents())


def split_as_trained(tokenizer: Any, source: str) -> None:
    """Let SmolLM's tokenizer take digits one by one; transformers knows the splits of other
    vocabularies, not this one.

    Without it, the blanks before a number (indented JSON) get other tokens than in training.
    """
    if read_header(source)[1] == "smollm":
        from tokenizers.pre_tokenizers import Digits, Sequence

        backend = tokenizer.backend_tokenizer
        backend.pre_tokenizer = Sequence([Digits(individual_digits=True), backend.pre_tokenizer])


def silence_bars(source: str) -> AbstractContextManager[Any]:
    """Keep the bar off the terminal that transformers draws over a GGUF file whatever its settings;
    errors raise."""
    return redirect_stderr(io.StringIO()) if is_gguf(source) else nullcontext()


def unmark_quantisation(model: Any, source: str) -> None:
    """Take the marks of quantisation off a model, and name the file itself as where it is from."""
    model.hf_quantizer, model.is_quantized = None, False
    for owner, mark in ((model.config, "quantization_config"), (model, "quantization_method")):
        if hasattr(owner, mark):
            delattr(owner, mark)
    # A LoRA adapter that is saved names its base by this.
    model.name_or_path = model.config.name_or_path = source
