"""What policies share that fill a canvas over a denoising time and score each step by itself.

Among it a learnable temperature over that time, inside the law. ReinFlow (Zhang et al. 2025, arXiv:2505.22094) lets RL
learn how much noise a flow policy adds at each time, with the noise's density part of the log-probability. For discrete
choices the noise is the temperature: logits are divided by exp(theta_b), where b is the bin of the step's time, before
the sampling law's own temperature and filters. Sampler and scorer divide by the same number, so both laws of a policy
hold and the gradient reaches theta.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from plumbline.errors import ModelError
from plumbline.policies.canvas import CanvasPolicy
from plumbline.policies.options import DenoisingModel
from plumbline.policies.places import Places
from plumbline.policies.policy import Terms, common_law
from plumbline.policies.pretrained.loading import Loaded
from plumbline.records import Sampling, SteppedSampling, Trajectory

Law = TypeVar("Law", bound=SteppedSampling)
Recorded = TypeVar("Recorded")
"""What a family makes of recorded steps before it scores them."""
BINS = 16
"""Stretches of the time from 0 to 1 that have a temperature of their own."""
FILE = "exploration.safetensors"


class Exploration(nn.Module):
    """Log-temperatures [BINS], 0 at the start."""

    def __init__(self) -> None:
        super().__init__()
        self.log_temperature = nn.Parameter(torch.zeros(BINS))

    def divisor(self, times: Sequence[float] | Tensor) -> Tensor:
        """What logits at these times [N] are divided by."""
        at = (torch.as_tensor(times, dtype=torch.float64) * BINS).long().clamp(0, BINS - 1)
        return self.log_temperature[at.to(self.log_temperature.device)].exp()

    def save(self, folder: Path) -> None:
        """Write the temperatures beside a model's weights."""
        from safetensors.torch import save_file

        save_file({"log_temperature": self.log_temperature.detach().cpu().contiguous()}, folder / FILE)

    @classmethod
    def read(cls, folder: str | Path) -> "Exploration":
        """The temperatures in a model's directory; fresh ones where it has none."""
        from safetensors.torch import load_file

        exploration = cls()
        path = Path(folder) / FILE
        if path.is_file():
            with torch.no_grad():
                exploration.log_temperature.copy_(load_file(path)["log_temperature"])
        return exploration


class DenoisingPolicy(CanvasPolicy, Generic[Law, Recorded]):
    """The part of a `Policy` that does not depend on what a step does. A family has its `law` and the abstract part."""

    stepwise = True
    rows_on_gpu = 256
    law: type[Law]

    def __init__(self, loaded: Loaded, section: DenoisingModel, source: str) -> None:
        super().__init__(loaded, section)
        if not section.explore and (Path(source) / FILE).is_file():
            raise ModelError(
                f"{source} was trained with learnt temperatures, which model.explore: false would leave out of its law",
                f"set model.explore to true, or delete {FILE} there",
            )
        self.exploration = Exploration.read(source).to(self.device) if section.explore else None
        self._reference_exploration: Exploration | None = None

    def facts(self) -> dict[str, str]:
        """See `PretrainedPolicy.facts`."""
        return {"exploration": "learnt" if self.exploration is not None else "fixed", **super().facts()}

    def exact(self, sampling: Sampling) -> bool:  # noqa: ARG002 - every selector and kernel has its probability
        """See `Policy.exact`."""
        return True

    # -- scoring -------------------------------------------------------------------------------------------------

    def cost(self, trajectory: Trajectory) -> tuple[int, int]:
        """Tokens that scoring its steps takes, and further ones that its prompt takes once for all that stand together.

        By default each step reads the prompt again.
        """
        return len(trajectory.steps) * (trajectory.sampling.max_tokens + len(trajectory.prompt)), 0

    def batches(self, trajectories: Sequence[Trajectory], tokens_per_pass: int) -> list[list[int]]:
        """See `Policy.batches`: in order, as many as fit."""
        parts: list[list[int]] = []
        left, previous = 0, b""
        for index, trajectory in enumerate(trajectories):
            key, (cost, once) = trajectory.prompt.tobytes(), self.cost(trajectory)
            if not parts or cost + (once if key != previous else 0) > left:
                parts.append([])
                left, previous = tokens_per_pass, b""
            parts[-1].append(index)
            left, previous = left - cost - (once if key != previous else 0), key
        return parts

    def score(self, trajectories: Sequence[Trajectory], *, reference: bool = False, divergence: bool = False) -> Terms:
        """See `Policy.score`."""
        law = self.law.of(common_law(trajectories))
        recorded = self.record(trajectories, law)
        other = None
        if reference or divergence:
            with torch.no_grad(), self.as_reference() as model:
                other = self.laws(recorded, model, self._reference_exploration)
                if reference:
                    return Terms.of(trajectories, self.log_probs(recorded, other, law))
        laws = self.laws(recorded, self.model, self.exploration)
        kl = None if other is None else self.step_divergence(recorded, laws, other, law)
        return Terms.of(trajectories, self.log_probs(recorded, laws, law), kl)

    @abstractmethod
    def record(self, trajectories: Sequence[Trajectory], law: Law) -> Recorded:
        """Recorded steps as tensors."""

    @abstractmethod
    def laws(self, recorded: Recorded, model: Any, exploration: Exploration | None) -> Places:
        """The laws of all places that scoring the steps needs, step by step, under these weights."""

    @abstractmethod
    def log_probs(self, recorded: Recorded, laws: Places, law: Law) -> Tensor:
        """Log-probabilities of the recorded terms, in the order of `Trajectory.logprobs`."""

    @abstractmethod
    def step_divergence(self, recorded: Recorded, laws: Places, other: Places, law: Law) -> Tensor:
        """KL of each step to the reference, whose laws of the same places are `other`."""

    # -- training ------------------------------------------------------------------------------------------------

    def keep_reference(self) -> None:
        """See `Policy.keep_reference`."""
        super().keep_reference()
        if self.exploration is not None:
            self._reference_exploration = Exploration().to(self.device)
            self._reference_exploration.load_state_dict(self.exploration.state_dict())

    def trainable(self) -> Mapping[str, Tensor]:
        """See `Policy.trainable`; with the exploration's temperatures where they are learnt."""
        weights = dict(super().trainable())
        if self.exploration is not None:
            weights["exploration.log_temperature"] = self.exploration.log_temperature
        return weights

    def write(self, folder: Path) -> None:
        """See `PretrainedPolicy.write`."""
        super().write(folder)
        if self.exploration is not None:
            self.exploration.save(folder)
