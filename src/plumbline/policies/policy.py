"""What a model family must be able to do; the loops know nothing else about it.

Letters in shapes: N terms (log-probabilities of single choices, flat over a batch), n trajectories.

A policy samples and scores by one law. `plumbline.testing.check_policy` holds every family to it:
law 1, scoring a recorded trajectory with the weights that sampled it gives the recorded log-probabilities;
law 2, the draws really come from the declared law.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from plumbline.records import Message, Sampling, Trajectory

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The log-probabilities of recorded choices under some weights, flat, and whose they are.

    Example: two trajectories of 2 and 1 tokens give logprobs [3] and owner [0, 0, 1].
    """

    logprobs: Tensor  # [N], float32, differentiable unless scored without gradient
    recorded: Tensor  # [N], float32, what the sampler wrote down
    owner: Tensor  # [N], int64, index into the scored trajectories
    weight: Tensor | None = None  # [N], the unbiased weight of a term where only some terms were scored; None is 1


@dataclass(frozen=True, slots=True, eq=False)
class Demonstration:
    """One supervised sequence as token ids; only the answer's tokens are targets."""

    tokens: tuple[int, ...]
    is_target: tuple[bool, ...]
    example: str = ""
    truncated: bool = False

    @property
    def num_targets(self) -> int:
        """How many tokens the loss counts."""
        return sum(self.is_target)


class Policy(Protocol):
    """A language model that can sample, score, be trained and be saved."""

    family: str
    exact: bool
    """Whether the log-probabilities cover every random choice of the sampler."""
    context: int
    """The longest prompt plus answer, in tokens."""

    @property
    def engine(self) -> Mapping[str, str]:
        """What samples and scores (decoder, packing, dtype, device), for the run's records."""
        ...

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """Tokens of a chat up to where the answer begins."""
        ...

    def sample(
        self, prompts: Sequence[Sequence[Message]], copies: int, sampling: Sampling, seed: int
    ) -> list[list[Trajectory]]:
        """Draw `copies` trajectories for each prompt; the same seed draws the same.

        Raises:
            DataError: a prompt does not fit into the context.
        """
        ...

    def batches(self, trajectories: Sequence[Trajectory], tokens_per_pass: int) -> list[list[int]]:
        """Cut trajectories into parts that one forward and backward pass can hold."""
        ...

    def score(self, trajectories: Sequence[Trajectory], *, reference: bool = False) -> Terms:
        """Log-probabilities of the recorded choices under the present weights, each at its own sampling law.

        Args:
            trajectories: what `sample` returned, any number, of any prompts.
            reference: score with the weights that `keep_reference` remembered (without gradient).
        """
        ...

    def keep_reference(self) -> None:
        """Remember the present weights as the reference of the KL."""
        ...

    def demonstrate(self, messages: Sequence[Message], *, allow_truncation: bool = False) -> Demonstration:
        """Encode a chat that ends with the assistant's answer.

        Raises:
            DataError: it does not fit into the context and truncation is not allowed.
        """
        ...

    def supervised_loss(self, batch: Sequence[Demonstration], generator: torch.Generator) -> Tensor:
        """Summed loss over the batch's targets (a scalar); `generator` feeds families whose loss draws noise."""
        ...

    def trainable(self) -> Mapping[str, Tensor]:
        """The weights that training changes, by name."""
        ...

    def save(self, folder: Path, card: Mapping[str, Any]) -> None:
        """Write a model directory in the standard format, whole or not at all; `card` says where it came from."""
        ...
