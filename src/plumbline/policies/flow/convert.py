"""From the published FS-DFM checkpoints (.pth dictionaries) to a flow model's directory.

    from plumbline.policies.flow.convert import convert
    convert(Path("FS_DFM_checkpoint.pth"), Path("fs-dfm"), tokenizer="gpt2")

A checkpoint of pretraining holds its weights under `model`; one of distillation holds a teacher, a
student and the student's moving average, of which the last is the one that was evaluated. Only
tensors are read: a pickle that would run anything is refused. Sizes are taken from the weights
themselves, except the number of heads, which they do not tell (the published model has 32).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plumbline.errors import ModelError
from plumbline.policies.flow.network import FlowConfig, FlowNetwork
from plumbline.policies.library_errors import clear_opening_errors, refuse_growth
from plumbline.policies.model_files import AGAIN, is_pointer
from plumbline.policies.pretrained.causal_model import check_finite, load_tokenizer
from plumbline.policies.pretrained.foreign import LAYOUTS
from plumbline.recipe import ModelSection
from plumbline.runs import output_guard

MODEL = "model"
"""What the mark in the folder says (see `plumbline.runs.output_guard`)."""
FS_DFM = LAYOUTS["fs_dfm"]
"""Under which keys weights are looked for, and the published names of weights and ours."""


def convert(
    checkpoint: Path,
    folder: Path,
    tokenizer: str,
    *,
    heads: int = 32,
    context: int = 1024,
    weights: str | None = None,
) -> FlowConfig:
    """Write a flow model's directory from a checkpoint.

    Args:
        checkpoint: the .pth file.
        folder: where the model goes.
        tokenizer: a directory or hub name of the tokenizer that the model was trained with
            (GPT-2's, as published). An embedding of one row more than it has tokens is that of a
            mask source.
        heads: attention heads.
        context: tokens of the sequences that it was trained on.
        weights: a key of the dictionary; None takes the best that is there.

    Raises:
        ModelError: not a checkpoint, a pickle that runs code, unknown or missing weights, or some
            of another shape.
        StorageError: the folder holds what is not ours.
    """
    output_guard.check_folder(folder, MODEL)
    with clear_opening_errors(
        f"{checkpoint} is no FS-DFM checkpoint", "give an unchanged checkpoint"
    ):
        tensors = _tensors(_read(checkpoint), weights, checkpoint)
        words = load_tokenizer(tokenizer, ModelSection(name=tokenizer))
        config = _config(tensors, heads, context, len(words), checkpoint)
        with refuse_growth(str(checkpoint), checkpoint.stat().st_size), torch.device("meta"):
            network = FlowNetwork(config)
        renamed = {_rename(name, checkpoint): tensor.float() for name, tensor in tensors.items()}
        try:
            missing, unexpected = network.load_state_dict(renamed, strict=False, assign=True)
        # torch's word for sizes that do not fit, of which the last line says most
        except RuntimeError as error:
            raise ModelError(
                f"{checkpoint} has weights of another shape: "
                f"{str(error).strip().splitlines()[-1].strip()[:200]}",
                "give an unchanged checkpoint",
            ) from error
    if missing or unexpected:
        raise ModelError(
            f"{checkpoint} is no FS-DFM checkpoint of this shape: missing {missing[:3]}, unknown "
            f"{unexpected[:3]}",
            "check the number of heads, and that the file is complete",
        )
    check_finite(network, str(checkpoint))
    output_guard.claim_folder(folder, MODEL)
    network.save_pretrained(folder)
    words.save_pretrained(folder)
    return config


def _read(checkpoint: Path) -> Mapping[str, Any]:
    if not checkpoint.is_file():
        raise ModelError(f"there is no file {checkpoint}", "give the path of the .pth file")
    if is_pointer(checkpoint):
        raise ModelError(f"{checkpoint} is a pointer of Git LFS, and not the weights", AGAIN)
    fix = "it is damaged, or holds code, which is never run; ask its author for safetensors"
    with clear_opening_errors(f"{checkpoint} cannot be read as plain tensors", fix):
        content = torch.load(checkpoint, map_location="cpu", mmap=True, weights_only=True)
    if not isinstance(content, dict):
        raise ModelError(f"{checkpoint} is no dictionary of weights", "give an FS-DFM checkpoint")
    return content


def _tensors(
    content: Mapping[str, Any], weights: str | None, checkpoint: Path
) -> dict[str, Tensor]:
    """The chosen weights without wrappers' prefixes and without rotary buffers, which are
    computed."""
    there = [key for key in FS_DFM["choices"] if isinstance(content.get(key), dict)]
    key = weights or (there[0] if there else None)
    if key is None or key not in content:
        has = ", ".join(map(str, content))
        raise ModelError(
            f"{checkpoint} has no weights under {weights or ', '.join(FS_DFM['choices'])} (it has {has})",
            "name the key with weights=...",
        )
    plain = {
        re.sub(r"^(module\.|_orig_mod\.)+", "", name): tensor
        for name, tensor in content[key].items()
    }
    found = {
        name: t
        for name, t in plain.items()
        if isinstance(t, Tensor) and not name.endswith("inv_freq")
    }
    odd = [
        name
        for name, t in found.items()
        if t.layout != torch.strided or not t.is_floating_point() or t.is_meta
    ]
    # of a view, more than is stored of it
    size = sum(t.numel() * t.element_size() for t in found.values())
    if odd or size > 2 * checkpoint.stat().st_size:
        what = (
            f"{odd[0]}, which is no plain tensor of floats"
            if odd
            else f"tensors of {size:,} bytes, more than it has"
        )
        raise ModelError(f"{checkpoint} holds {what}", "give an unchanged checkpoint")
    return found


def _config(
    tensors: Mapping[str, Tensor], heads: int, context: int, vocabulary: int, checkpoint: Path
) -> FlowConfig:
    try:
        rows, hidden = tensors["vocab_embed.weight"].shape
        conditioning = tensors["time_embedding.mlp.2.weight"].shape[0]
    except KeyError as error:
        raise ModelError(f"{checkpoint} lacks {error}", "give an FS-DFM checkpoint") from error
    if rows not in {vocabulary, vocabulary + 1} or hidden % heads:
        raise ModelError(
            f"{checkpoint} embeds {rows} tokens of size {hidden}, which fits neither a vocabulary "
            f"of {vocabulary} "
            f"(with or without a mask) nor {heads} heads",
            "give the tokenizer and the number of heads that it was trained with",
        )
    numbers = {found[1] for name in tensors if (found := re.match(r"blocks\.(\d+)\.", name))}
    return FlowConfig(
        vocabulary=vocabulary,
        hidden=hidden,
        conditioning=conditioning,
        layers=len(numbers),
        heads=heads,
        context=context,
        step_conditioned="time_condition_fuser.weight" in tensors,
        source="mask" if rows == vocabulary + 1 else "uniform",
    )


def _rename(name: str, checkpoint: Path) -> str:
    stem, _, kind = name.rpartition(".")
    found = re.fullmatch(r"blocks\.(\d+)\.(.*)", stem)
    if found and (ours := FS_DFM["layers"].get(found[2])):
        return f"layers.{found[1]}.{ours}.{kind}"
    if stem in FS_DFM["names"]:
        return f"{FS_DFM['names'][stem]}.{kind}"
    raise ModelError(
        f"{checkpoint} has a weight {name}, which no FS-DFM network has",
        "give an unchanged checkpoint",
    )
