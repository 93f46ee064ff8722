"""A policy's weights for somebody else who draws with them: in files, or in memory, and what rounding made of them.

Letters in shapes: S sampled elements. What is measured on them is `arrival.py`'s.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import reduce_tensor

from plumbline.errors import EngineError
from plumbline.policies.pretrained.adapters import lora_layers, low_rank
from plumbline.policies.pretrained.arrival import Pair
from plumbline.storage import clear_os_errors

SPREAD = 2**14
"""Elements of each trained matrix that are compared: of 210 matrices 3.4 million, so a share is exact to 0.001."""
STABLE = "STABLE"
"""Written into an adapter's folder when all else is there."""


def check_mergeable(policy: Any) -> None:
    """Refuse a policy whose adapter is more than W + s B A of linear layers of its own: merged it is another model.

    Raises:
        EngineError: says what stands in the way.
    """
    for reason in _obstacles(policy):
        raise EngineError(
            f"the adapter cannot be merged into the weights: {reason}", "set engine.publish: lora, or leave out engine"
        )


def _obstacles(policy: Any) -> Iterator[str]:
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import AuxiliaryTrainingWrapper, PeftType

    if policy.adapter is None:
        return
    kind = policy.adapter.peft_config["default"].peft_type
    if kind != PeftType.LORA:
        yield f"it is {kind.value}, not LoRA"
    ours = set(lora_layers(policy.model))
    for name, module in policy.model.named_modules():
        if module in ours:
            if low_rank(module) is None:
                yield f"{name} has more to it than two low-rank matrices (such as DoRA or lora_bias)"
        elif isinstance(module, BaseTunerLayer | AuxiliaryTrainingWrapper):
            yield f"{name} is adapted by peft's {type(module).__name__}, and only LoRA of linear layers can be"
    owners: dict[int, list[str]] = {}
    for name, module in policy.model.named_modules():  # each once, under whatever names it stands
        for weight in module.parameters(recurse=False):
            owners.setdefault(id(weight), []).append(name.removesuffix(".base_layer"))
    for layer in ours:
        shared = owners[id(layer.base_layer.weight)]
        if len(shared) > 1:
            yield f"{' and '.join(shared)} have one weight, and merging would change it for all of them"


def merged(policy: Any) -> Iterator[tuple[str, Tensor, bool]]:
    """Every weight of a policy's model in float32, adapters added in, and whether training changes it.

    Raises:
        EngineError: adapters that cannot be merged (see `check_mergeable`), or are on quantised weights.
    """
    check_mergeable(policy)
    ours = set(lora_layers(policy.model))
    layers = {name: one for name, one in policy.model.named_modules(remove_duplicate=False) if one in ours}
    trained = {name for name, weight in policy.model.named_parameters() if weight.requires_grad}
    seen = set[tuple[int, Any]]()
    with torch.no_grad():
        for name, weight in policy.model.state_dict().items():
            if name.partition(".lora_")[0] in layers:
                continue
            owner, _, rest = name.partition(".base_layer.")
            if ".lora_" in name or not weight.is_floating_point() or weight.element_size() == 1:
                raise EngineError(
                    f"{name} ({weight.dtype}) cannot be merged with its adapter", "set engine.publish: lora"
                )
            if (weight.data_ptr(), weight.shape) in seen:  # tied weights are written once
                continue
            seen.add((weight.data_ptr(), weight.shape))
            if rest == "weight":
                yield f"{owner}.weight", weight.float() + layers[owner].get_delta_weight("default").float(), True
            else:
                yield f"{owner}.{rest}" if rest else name, weight.float(), name in trained


def spread(matrix: Tensor) -> Tensor:
    """Some elements [S] of a matrix, always those at the same places, on the CPU."""
    flat = matrix.detach().flatten()
    return flat[:: max(1, len(flat) // SPREAD)].float().cpu().clone()


def write_full(policy: Any, folder: Path, dtype: torch.dtype) -> Pair:
    """Write a policy's model with adapters merged in float32 and then rounded, each file whole or not at all.

    Args:
        policy: its tokenizer and configuration are written, too.
        folder: what a server has opened may stand there; it keeps reading what it has open.
        dtype: of the server.
    """
    state, sampled = rounded(policy, dtype)
    with clear_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
        try:
            policy.model.save_pretrained(temporary, state_dict=state)
            policy.chat.tokenizer.save_pretrained(temporary)
            for file in sorted(temporary.iterdir(), key=lambda one: one.name.endswith(".index.json")):
                file.chmod(0o644)
                file.replace(folder / file.name)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return sampled


def rounded(policy: Any, dtype: torch.dtype) -> tuple[dict[str, Tensor], Pair]:
    """All weights in the server's dtype by name, and what rounding did to those that are trained."""
    state: dict[str, Tensor] = {}
    pairs = list[tuple[Tensor, Tensor]]()
    for name, weight, trained in merged(policy):
        state[name] = weight.to(dtype)
        if trained:
            pairs.append((spread(weight), spread(state[name])))
    return state, Pair(*map(torch.cat, zip(*pairs, strict=True)))


def write_adapter(policy: Any, folder: Path, dtype: torch.dtype) -> Pair:
    """Write a policy's adapter into a folder that is not there yet, STABLE last.

    A server rounds A and B, not their product, so more of an update arrives than of merged weights.
    """
    with clear_os_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        policy.adapter.save_pretrained(folder, selected_adapters=["default"])
        (folder / STABLE).touch()
    pairs = list[tuple[Tensor, Tensor]]()
    for layer in lora_layers(policy.model):
        a, b = (part["default"].weight.detach() for part in (layer.lora_A, layer.lora_B))
        scale = layer.scaling["default"]
        served = scale * (b.to(dtype).float() @ a.to(dtype).float())
        pairs.append((spread(scale * (b.float() @ a.float())), spread(served)))
    return Pair(*map(torch.cat, zip(*pairs, strict=True)))


def handles(state: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """Where another process finds weights in the memory of a GPU, for as long as they are kept here.

    Returns:
        For each, by the name of its GPU, the arguments of what rebuilds it there (CUDA IPC, pickled by torch).

    Raises:
        EngineError: they are on no GPU.
    """
    found = []
    for name, weight in state.items():
        if weight.device.type != "cuda":
            raise EngineError(
                f"{name} is on {weight.device}, and transfer hands over memory of a GPU",
                "set engine.publish: full or lora",
            )
        device = str(torch.cuda.get_device_properties(weight.device).uuid)
        found.append({device: reduce_tensor(weight.contiguous())[1]})
    return found
