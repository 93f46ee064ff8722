"""A policy's weights for somebody else who draws with them, and how much of what was learnt is left after rounding.

Letters in shapes: S sampled elements, O outputs, H inputs.

A 16-bit weight of size w has neighbours about w / 256 away, and an update of RL is often smaller than half of that: it
is rounded away, and whoever takes them draws with the old weights although every file is new. So the update that
arrives is measured against the wanted one, on elements spread over every trained matrix.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plumbline.errors import EngineError
from plumbline.policies.pretrained.adapters import lora_layers
from plumbline.storage import clear_os_errors

SPREAD = 2**14
"""Elements of each trained matrix that are compared: of 210 matrices 3.4 million, so a share is exact to 0.001."""
MARK = ".plumbline-served"
"""Stands in a folder whose weights a run may overwrite."""
STABLE = "STABLE"
"""Written into an adapter's folder when all else is there."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Elements of the trained matrices as they are, and as the server holds them: float32 [S] each, by name."""

    exact: Mapping[str, Tensor]
    served: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Arrived:
    """How much of an update is left after rounding; all are shares."""

    share: float
    """Of the wanted update, as the projection of what arrived on it: <served, wanted> / <wanted, wanted>. The ratio of
    the two norms would count rounding errors as if they had been learnt."""
    elements: float
    """Of the elements that should have changed, those that did."""
    noise: float
    """Norm of what arrived beside the wanted, over the norm of the wanted."""


def arrived(before: Sampled, now: Sampled) -> Arrived | None:
    """What of the update from `before` to `now` the server has; None where nothing was learnt."""
    wanted = along = beside = changed = meant = 0.0
    for name, exact in now.exact.items():
        want, got = exact - before.exact[name], now.served[name] - before.served[name]
        wanted += float(want.double().square().sum())
        along += float((want.double() * got.double()).sum())
        beside += float((got - want).double().square().sum())
        changed += float(((got != 0) & (want != 0)).sum())
        meant += float((want != 0).sum())
    return Arrived(along / wanted, changed / meant, (beside / wanted) ** 0.5) if wanted else None


def merged(policy: Any) -> Iterator[tuple[str, Tensor, bool]]:
    """Every weight of a policy's model in float32, adapters added in, and whether training changes it.

    Raises:
        EngineError: adapters that cannot be merged: on quantised weights, or others than LoRA of linear layers.
    """
    ours = set(lora_layers(policy.model))
    layers = {name: layer for name, layer in policy.model.named_modules() if layer in ours}
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


def write_full(policy: Any, folder: Path, dtype: torch.dtype) -> Sampled:
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
            (temporary / MARK).touch()
            for file in sorted(temporary.iterdir(), key=lambda one: one.name.endswith(".index.json")):
                file.chmod(0o644)
                file.replace(folder / file.name)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return sampled


def rounded(policy: Any, dtype: torch.dtype) -> tuple[dict[str, Tensor], Sampled]:
    """All weights in the server's dtype by name, and what rounding did to those that are trained."""
    state: dict[str, Tensor] = {}
    exact, served = dict[str, Tensor](), dict[str, Tensor]()
    for name, weight, trained in merged(policy):
        state[name] = weight.to(dtype)
        if trained:
            exact[name], served[name] = spread(weight), spread(state[name])
    return state, Sampled(exact, served)


def write_adapter(policy: Any, folder: Path, dtype: torch.dtype) -> Sampled:
    """Write a policy's adapter into a folder that is not there yet, STABLE last.

    A server rounds A and B, not their product, so more of an update arrives than of merged weights.
    """
    with clear_os_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        policy.adapter.save_pretrained(folder, selected_adapters=["default"])
        (folder / STABLE).touch()
    exact, served = dict[str, Tensor](), dict[str, Tensor]()
    for number, layer in enumerate(lora_layers(policy.model)):
        a, b = (part["default"].weight.detach() for part in (layer.lora_A, layer.lora_B))
        scale = layer.scaling["default"]
        exact[str(number)] = spread(scale * (b.float() @ a.float()))
        served[str(number)] = spread(scale * (b.to(dtype).float() @ a.to(dtype).float()))
    return Sampled(exact, served)
