"""The files of an export, and whether what lies there is what was meant."""

import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.errors import DataError, EngineError, ModelError
from plumbline.evaluation.models import ModelOptions, as_trained
from plumbline.models.get import ORIGIN
from plumbline.policies import open_policy
from plumbline.policies.saved import ADAPTER, is_adapter
from plumbline.runs.cards import CARD
from plumbline.storage import read_object, write_json

if TYPE_CHECKING:
    from plumbline.policies.pretrained.arrival import Arrived, Pair
    from plumbline.policies.pretrained.gguf_writer import Compared, Stored

OPTIONS = ModelOptions(dtype="float32", device="cpu")
"""How a model is opened to be written: merging rounds nothing, and the memory beside a GPU is the larger one."""
KEPT = ("README.md", "LICENSE", ORIGIN, ".plumbline")
"""Files of a model directory that an export writes itself, or leaves out."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of the weights."""

    parameters: int
    arrived: "Arrived | None"
    """Of the update since the base, what the stored weights hold; None where nothing is known to have been learnt."""
    compared_with: str
    """What the update was measured from; empty where nobody knows what the weights were before."""


def opened(model: str) -> Any:
    """A model as its own run opens it, in float32 on the CPU.

    Raises:
        ModelError: there is none, or it was trained on quantised weights.
    """
    section, _ = as_trained(model, OPTIONS)
    if getattr(section, "quantize", None) is not None:
        raise ModelError(
            f"the adapter in {model} was trained on weights of 4 bits, and merged with others it is another model",
            "export it with --kind adapter",
        )
    return open_policy(section, model)


def write_merged(policy: Any, folder: Path, dtype: str, base: str | None, model: str) -> Merged:
    """Write weights with adapters merged in float32 and then stored in `dtype`, in the family's own format.

    Args:
        policy: see `opened`.
        folder: is empty.
        dtype: float32, bfloat16 or float16.
        base: the model that training began from; opened only where every weight was trained and 16 bits are stored.
        model: where the policy is from: what stands there about its use is kept.

    Raises:
        ModelError: adapters that cannot be merged; what was read back differs.
    """
    import torch

    from plumbline.policies.pretrained.arrival import arrived
    from plumbline.policies.pretrained.merged import rounded

    stored: torch.dtype = getattr(torch, dtype)
    try:
        state, now = rounded(policy, stored)
    except EngineError as error:
        raise ModelError(error.cause, "export it with --kind adapter") from error
    if policy.adapter is None:
        before = None
        if stored is not torch.float32 and base is not None and Path(base).absolute() != Path(model).absolute():
            _, before = rounded(opened(base), stored)
        policy.model.to(stored)
        policy.model.save_pretrained(folder)
    else:
        before = _below(policy, stored)
        policy.model.save_pretrained(folder, state_dict=state)
        config = read_object(folder / "config.json")
        write_json(folder / "config.json", {**config, "dtype": dtype})
    policy.chat.tokenizer.save_pretrained(folder)
    _write_use(model, folder)
    if before is not None and before.exact.shape != now.exact.shape:
        raise DataError(f"{base} is of another shape than {model}", "give the model that training began from")
    _check(state, folder)
    found = None if before is None else arrived(before, now)
    return Merged(sum(one.numel() for one in state.values()), found, "" if before is None else str(base))


def _below(policy: Any, stored: Any) -> "Pair":
    """The weights below the adapters, as `rounded` samples what is above them."""
    import torch

    from plumbline.policies.pretrained.adapters import lora_layers
    from plumbline.policies.pretrained.arrival import Pair
    from plumbline.policies.pretrained.merged import spread

    ours = set(lora_layers(policy.model))
    weights = [layer.base_layer.weight for layer in policy.model.modules() if layer in ours]
    exact, served = ([spread(weight.to(dtype)) for weight in weights] for dtype in (torch.float32, stored))
    return Pair(torch.cat(exact), torch.cat(served))


def _write_use(model: str, folder: Path) -> None:
    """What our card says of the weights' use and of what they were trained on; 4 bits and adapters are gone."""
    if (Path(model) / CARD).is_file():
        card = read_object(Path(model) / CARD)
        use = {key: value for key, value in card.get("model", {}).items() if key != "quantize"}
        write_json(folder / CARD, {**card, "model": use})


def _check(state: Any, folder: Path) -> None:
    """Raise ModelError where a directory does not open as the weights that were meant."""
    import torch

    found = opened(str(folder)).model.state_dict()
    for name, weight in state.items():
        if name not in found or not torch.equal(found[name], weight.float()):
            raise ModelError(f"{name} was not read back as it was written", "report this as a bug")


def write_adapter(model: str, folder: Path, base: str) -> int:
    """Copy an adapter with its tokenizer, and name its base as the world does; its number of parameters.

    Raises:
        ModelError: the model is no adapter.
    """
    if not is_adapter(model):
        raise ModelError(f"{model} is no adapter: every weight of it was trained", "export it with --kind merged")
    from safetensors import safe_open

    for path in _files(Path(model)):
        shutil.copyfile(path, folder / path.name)
    write_json(folder / ADAPTER, {**read_object(folder / ADAPTER), "base_model_name_or_path": base})
    with safe_open(folder / "adapter_model.safetensors", "pt") as file:
        shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118 - it is no mapping
    return sum(math.prod(shape) for shape in shapes)


def _files(folder: Path) -> Iterator[Path]:
    yield from (path for path in sorted(folder.iterdir()) if path.is_file() and path.name not in KEPT)


def write_gguf(policy: Any, path: Path, stored: "Stored", about: dict[str, str]) -> "Compared":
    """Write a GGUF file, read it back through the path that opens any, and compare.

    Raises:
        ModelError: it cannot be written, or was not read back as it was meant.
    """
    from plumbline.policies.pretrained.gguf_writer import compare
    from plumbline.policies.pretrained.gguf_writer import write_gguf as write

    write(policy, path, stored, about)
    return compare(policy, opened(str(path)), stored)
