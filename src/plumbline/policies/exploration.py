"""A learnable temperature over the course of denoising, inside the law.

ReinFlow (Zhang et al. 2025, arXiv:2505.22094) lets RL learn how much noise a flow policy adds at each time, with the
noise's density part of the log-probability. For discrete choices the noise is the temperature: logits are divided by
exp(theta_b), where b is the bin of the step's time, before the sampling law's own temperature and filters. Sampler and
scorer divide by the same number, so both laws of a policy hold and the gradient reaches theta.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

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

        made = cls()
        path = Path(folder) / FILE
        if path.is_file():
            with torch.no_grad():
                made.log_temperature.copy_(load_file(path)["log_temperature"])
        return made
