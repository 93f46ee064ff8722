"""AdamW (in 8 bits, too) with a schedule, gradient clipping, and master weights where the model is
held in 16 bits.

An update of 5e-6 is far below bfloat16's resolution (2^-8 of the weight), so a 16-bit weight is
updated in a float32 copy and rounded once, after the step; otherwise most updates would vanish
without a word.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from plumbline.config.imports import import_needed
from plumbline.errors import ModelError, RunError
from plumbline.recipe import OptimiserSection
from plumbline.records import group_by_key
from plumbline.storage import one_line
from plumbline.training.guards import check_finite

MOMENTS = {
    "adamw": ("step", "exp_avg", "exp_avg_sq"),
    "adamw8bit": ("step", "state1", "state2", "absmax1", "absmax2"),
}
"""The state of a weight, by optimiser."""
TRIAL = 4096
"""Weights of a trial step: bitsandbytes keeps the moments of smaller tensors in 32 bits."""


class Optimiser:
    """Steps the trainable weights of a policy.

    Args:
        weights: by name, as `Policy.trainable` gives them.
        section: learning rate, schedule, clipping.
        total: steps of the whole stage, for the schedule.
        rate_key: of the learning rate in the recipe, for messages.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        section: OptimiserSection,
        total: int,
        rate_key: str = "optimiser.learning_rate",
    ) -> None:
        if not weights:
            raise RunError("nothing to train: no weight of the model requires a gradient")
        self.weights = dict(weights)
        self.section, self.total, self.rate_key = section, total, rate_key
        self.gone = 0.0
        """The share of a budget of seconds that is spent; the schedule follows it where it is ahead
        of the steps'."""
        self.masters = {
            name: weight.detach().float().clone()
            if weight.dtype in (torch.bfloat16, torch.float16)
            else weight
            for name, weight in self.weights.items()
        }
        groups = group_by_key(
            (section.weight_decay if _decays(name, master) else 0.0, master)
            for name, master in self.masters.items()
        )
        self.adam = _adam(
            [{"params": weights, "weight_decay": decay} for decay, weights in groups.items()],
            section,
        )

    def learning_rate(self, step: int) -> float:
        """The learning rate of `step` (from 0)."""
        at = max(float(step), self.gone * self.total)
        return self.section.learning_rate * self.section.learning_rate_factor(at, self.total)

    def step(self, step: int) -> float:
        """Clip the gradients, update the weights, clear the gradients; the norm [nats / weight]
        before clipping.

        Raises:
            TrainingStopped: the gradient is not finite; the weights are as they were.
        """
        gradients = [weight.grad for weight in self.weights.values() if weight.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients)) if gradients else 0.0
        check_finite(norm, "gradient", step, self.rate_key)
        scale = min(1.0, self.section.max_grad_norm / (norm + 1e-6))
        for name, weight in self.weights.items():
            if weight.grad is not None:
                master = self.masters[name]
                gradient = weight.grad.float() if master is not weight else weight.grad
                master.grad = gradient.mul_(scale) if scale < 1 else gradient
        for group in self.adam.param_groups:
            group["lr"] = self.learning_rate(step)
        self.adam.step()
        with torch.no_grad():
            for name, weight in self.weights.items():
                if self.masters[name] is not weight:
                    weight.copy_(self.masters[name])
        self.clear()
        return norm

    def clear(self) -> None:
        """Forget the gradients."""
        for name, weight in self.weights.items():
            weight.grad = None
            self.masters[name].grad = None

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs, as flat tensors: weights, masters, moments,
        counts."""
        tensors: dict[str, Tensor] = {}
        for name, weight in self.weights.items():
            tensors[f"weight:{name}"] = weight.detach()
            if self.masters[name] is not weight:
                tensors[f"master:{name}"] = self.masters[name]
            moments = self.adam.state.get(self.masters[name], {})
            tensors |= {
                f"{key}:{name}": torch.as_tensor(moments[key])
                for key in self._moments
                if key in moments
            }
        return tensors

    @property
    def _moments(self) -> tuple[str, ...]:
        """What of the optimiser's state of a weight is its own: the tables that 8 bits are read
        with are not."""
        return MOMENTS[self.section.name]

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave.

        Raises:
            RunError: the tensors are of another model.
        """
        names = {key.partition(":")[2] for key in tensors}
        if names != set(self.weights):
            odd = sorted(names ^ set(self.weights))
            raise RunError(
                f"the checkpoint is of another model: {len(odd)} weights differ "
                f"({', '.join(odd[:3])})",
                "resume with the model that the run was started with",
            )
        with torch.no_grad():
            for name, weight in self.weights.items():
                saved = tensors[f"weight:{name}"]
                if saved.shape != weight.shape:
                    raise RunError(
                        f"the checkpoint is of another model: {name} is {tuple(saved.shape)} there"
                    )
                # Where the run has moved, 16-bit weights may have become 32-bit ones (dtype: auto),
                # or the reverse.
                saved = tensors.get(f"master:{name}", saved)
                master = self.masters[name]
                master.copy_(saved)
                if master is not weight:
                    weight.copy_(master)
                # all of them where the weight is, the count as well: a fused step takes no other
                moments = {
                    key: tensors[f"{key}:{name}"].clone().to(master.device)
                    for key in self._moments
                    if f"{key}:{name}" in tensors
                }
                if moments and self.section.name == "adamw8bit":
                    group, at = next(
                        (group, at)
                        for group in range(len(self.adam.param_groups))
                        for at, parameter in enumerate(self.adam.param_groups[group]["params"])
                        if parameter is master
                    )
                    self.adam.init_state(self.adam.param_groups[group], master, group, at)
                    self.adam.state[master] |= {**moments, "step": int(moments["step"])}
                elif moments:
                    self.adam.state[master] = moments


def _adam(groups: list[dict[str, Any]], section: OptimiserSection) -> Any:
    """AdamW of torch, or that of bitsandbytes with moments in 8 bits, once it has done a step on
    the weights' device.

    Raises:
        ModelError: bitsandbytes is not installed, or does not work there.
    """
    if section.name == "adamw":
        return torch.optim.AdamW(groups, lr=section.learning_rate, betas=section.betas, fused=True)
    kind = import_needed("bitsandbytes", "optimiser.name: adamw8bit").optim.AdamW8bit
    device = groups[0]["params"][0].device
    try:
        trial = torch.ones(TRIAL, device=device, requires_grad=True)
        trial.grad = torch.ones_like(trial)
        kind([trial]).step()
    except (RuntimeError, NotImplementedError, ValueError, AttributeError, OSError) as error:
        raise ModelError(
            f"the AdamW of 8 bits in bitsandbytes does not work on {device}: {one_line(error)}",
            "set optimiser.name: adamw, or install a bitsandbytes that is built for this device",
        ) from error
    return kind(groups, lr=section.learning_rate, betas=section.betas)


def _decays(name: str, weight: Tensor) -> bool:
    """Whether weight decay is for a weight: norms, biases and embeddings have a scale that nothing
    makes up for."""
    return weight.dim() > 1 and not any(part in name for part in ("embed", "wte", "wpe"))
