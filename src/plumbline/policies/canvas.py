"""The canvas of a policy that writes into a fixed number of places, and what such policies share.

Letters in shapes: L places of the canvas, S recorded steps.

An answer shorter than the canvas is followed by its end token up to the last place, in
demonstrations and in what is sampled, so "how long" is learnt like everything else and needs no
padding mask.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plumbline.errors import DataError, ModelError, RecipeError
from plumbline.policies.chunks import Chunk, SamplingT
from plumbline.policies.opening import saved_settings
from plumbline.policies.options import DenoisingModel
from plumbline.policies.policy import Demonstration, common_sampling
from plumbline.policies.pretrained.adapters import ORIGINAL, lora_layers
from plumbline.policies.pretrained.causal_model import Loaded
from plumbline.policies.pretrained.policy import PretrainedPolicy
from plumbline.policies.sampling_distribution import check_drawn
from plumbline.records import (
    Finish,
    IntArray,
    Message,
    Request,
    SteppedSampling,
    Terms,
    Trajectory,
    Transition,
)

HIDDEN = "\N{LIGHT SHADE}"
"""What a hidden place is shown as."""


class CanvasPolicy(PretrainedPolicy):
    """The part of a policy with a canvas that does not depend on how the canvas is filled.

    A family has its `sampling_type` and the abstract part.
    """

    sampling_type: type[SteppedSampling]
    learned_temperature: "LearnedTemperature | None" = None
    _reference_temperature: "LearnedTemperature | None" = None
    canvas: int | None
    """L in demonstrations, and the most places that an answer may have; None where neither is
    settled."""
    mask_id: int | None
    """The token of a hidden place; None where a canvas begins as noise."""

    def facts(self) -> dict[str, str]:
        """See `PretrainedPolicy.facts`; a model with adapters says how they run."""
        fused = self.adapter is not None and all(
            hasattr(layer, ORIGINAL) for layer in lora_layers(self.model)
        )
        return {
            **super().facts(),
            "adapters": "none" if self.adapter is None else "fused" if fused else "peft",
        }

    def read_saved_settings(self, source: str) -> Mapping[str, Any]:
        """What the model at `source` says about its use, in its own config or in its directory."""
        return {**(getattr(self.model.config, "plumbline", None) or {}), **saved_settings(source)}

    def finish_trajectory(
        self,
        chunk: Chunk[SamplingT],
        row: int,
        canvas: IntArray,
        steps: Sequence[Transition],
    ) -> tuple[Request, Trajectory]:
        """A chunk's row, and its finished canvas [L] with the steps that filled it as a trajectory.

        Raises:
            ModelError: the model's logits were NaN or infinite.
        """
        check_drawn(logprob for step in steps for logprob in step.logprobs.tolist())
        answer, finish = answer_of(canvas, self.chat.stop_ids)
        return chunk.requests[row], Trajectory(
            prompt=np.array(chunk.prompts[int(chunk.prompt_of[row])], dtype=np.int64),
            transitions=tuple(steps),
            text=self.chat.text(answer.tolist()),
            sampling=chunk.sampling,
            finish=finish,
            answer=answer,
            version=self.version,
        )

    def render_canvas(self, canvas: IntArray) -> str:
        """What a canvas [L] reads up to its first end token, with `HIDDEN` for each hidden
        place."""
        answer, _ = answer_of(canvas, self.chat.stop_ids)
        runs = groupby(answer.tolist(), key=lambda token: token == self.mask_id)
        return "".join(
            HIDDEN * len(list(run)) if hidden else self.chat.text(list(run)) for hidden, run in runs
        )

    def demonstrate(
        self, messages: Sequence[Message], *, allow_truncation: bool = False
    ) -> Demonstration:
        """See `Policy.demonstrate`: the prompt, and a canvas filled behind the answer with end
        tokens.

        Raises:
            RecipeError: the canvas has no size.
            DataError: the answer does not fit.
        """
        if self.canvas is None:
            raise RecipeError(
                "training fills a canvas, and model.canvas is not set", "set model.canvas"
            )
        whole = self.chat.demonstration(messages)
        prompt, answer = split_demonstration(whole)
        if len(answer) > self.canvas and not allow_truncation:
            raise DataError(
                f"an answer of {len(answer)} tokens exceeds the canvas of {self.canvas}",
                "raise sampling.max_tokens (the canvas), or set sft.allow_truncation (the cut ones "
                "are counted)",
            )
        self.check_length(len(prompt), self.canvas)
        return Demonstration(
            tokens=(*prompt, *answer, *[self.chat.end_of_turn] * self.canvas)[
                : len(prompt) + self.canvas
            ],
            is_target=(False,) * len(prompt) + (True,) * self.canvas,
            truncated=len(answer) > self.canvas,
        )

    # -- scoring -----------------------------------------------------------------------------------

    def parts(self, trajectories: Sequence[Trajectory]) -> Iterator[Sequence[Trajectory]]:
        """Trajectories in the parts that `score` makes a forward pass of; by default one."""
        yield trajectories

    def score(
        self,
        trajectories: Sequence[Trajectory],
        *,
        reference: bool = False,
        divergence: bool = False,
    ) -> Terms:
        """See `Policy.score`."""
        sampling = self.sampling_type.of(common_sampling(trajectories))
        logprobs, kls = list[Tensor](), list[Tensor]()
        for part in self.parts(trajectories):
            recorded = self.record(part, sampling)
            other = None
            if reference or divergence:
                with torch.no_grad(), self.as_reference() as model:
                    other = self.distributions(recorded, model, self._reference_temperature)
                    if reference:
                        logprobs.append(self.log_probs(recorded, other, sampling))
                        continue
            distributions = self.distributions(recorded, self.model, self.learned_temperature)
            terms, kl = self.terms(recorded, distributions, other, sampling)
            logprobs.append(terms)
            kls += [] if kl is None else [kl]
        return Terms.of(trajectories, torch.cat(logprobs), torch.cat(kls) if kls else None)

    def terms(
        self, recorded: Any, distributions: Any, other: Any, sampling: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities, and where there is a reference each step's KL; in this order gradients
        are added up."""
        kl = (
            None
            if other is None
            else self.step_divergence(recorded, distributions, other, sampling)
        )
        return self.log_probs(recorded, distributions, sampling), kl

    @abstractmethod
    def record(self, trajectories: Sequence[Trajectory], sampling: Any) -> Any:
        """Recorded steps as tensors."""

    @abstractmethod
    def distributions(
        self, recorded: Any, model: Any, learned_temperature: "LearnedTemperature | None"
    ) -> Any:
        """The distributions of all places that scoring the steps needs, under these weights."""

    @abstractmethod
    def log_probs(self, recorded: Any, distributions: Any, sampling: Any, /) -> Tensor:
        """Log-probabilities of the recorded terms, in the order of `Trajectory.logprobs`."""

    @abstractmethod
    def step_divergence(
        self, recorded: Any, distributions: Any, other: Any, sampling: Any, /
    ) -> Tensor:
        """KL of each step to the reference, whose distributions of the same places are `other`."""


def answer_of(canvas: IntArray, stop_ids: Collection[int]) -> tuple[IntArray, Finish]:
    """The answer on a finished canvas [L]: everything up to its first end token, that token
    included."""
    ends = np.flatnonzero(np.isin(canvas, list(stop_ids)))
    if len(ends) == 0:
        return canvas, "length"
    return canvas[: ends[0] + 1], "stop"


def split_demonstration(demonstration: Demonstration) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Prompt and canvas [L] of a demonstration."""
    start = len(demonstration.tokens) - demonstration.num_targets
    return demonstration.tokens[:start], demonstration.tokens[start:]


def distinct_prompts(trajectories: Sequence[Trajectory]) -> tuple[list[list[int]], list[int]]:
    """Each prompt once, and the number of the prompt of every step [S]."""
    distinct = {
        trajectory.prompt.tobytes(): trajectory.prompt.tolist() for trajectory in trajectories
    }
    number = {key: index for index, key in enumerate(distinct)}
    return [*distinct.values()], [
        number[each.prompt.tobytes()] for each in trajectories for _ in each.transitions
    ]


# -- a learnable temperature -----------------------------------------------------------------------
#
# ReinFlow (Zhang et al. 2025, arXiv:2505.22094) lets RL learn how much noise a flow policy adds at
# each time, with the noise's density part of the log-probability. For discrete choices the noise is
# the temperature: logits are divided by exp(theta_b), where b is the bin of the step's time, before
# the sampling distribution's own temperature and filters. Sampler and scorer divide by the same number, so
# both laws of a policy hold and the gradient reaches theta.


BINS = 16
"""Stretches of the time from 0 to 1 that have a temperature of their own."""
FILE = "learned_temperature.safetensors"


class LearnedTemperature(nn.Module):
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

        save_file(
            {"log_temperature": self.log_temperature.detach().cpu().contiguous()}, folder / FILE
        )

    @classmethod
    def read(cls, folder: str | Path) -> "LearnedTemperature":
        """The temperatures in a model's directory; fresh ones where it has none."""
        from safetensors.torch import load_file

        learned_temperature = cls()
        path = Path(folder) / FILE
        if path.is_file():
            with torch.no_grad():
                learned_temperature.log_temperature.copy_(load_file(path)["log_temperature"])
        return learned_temperature


class DenoisingPolicy(CanvasPolicy):
    """The part of a policy that does not depend on what a step does."""

    stepwise = True
    rows_on_gpu = 256

    def __init__(self, loaded: Loaded, section: DenoisingModel, source: str) -> None:
        super().__init__(loaded, section)
        if not section.learned_temperature and (Path(source) / FILE).is_file():
            raise ModelError(
                f"{source} was trained with learnt temperatures, which model.learned_temperature: "
                "false would leave out of its sampling distribution",
                f"set model.learned_temperature to true, or delete {FILE} there",
            )
        self.learned_temperature = (
            LearnedTemperature.read(source).to(self.device) if section.learned_temperature else None
        )

    def facts(self) -> dict[str, str]:
        """See `PretrainedPolicy.facts`."""
        return {
            "temperature": "learnt" if self.learned_temperature is not None else "fixed",
            **super().facts(),
        }

    # -- scoring -----------------------------------------------------------------------------------

    def cost(self, trajectory: Trajectory) -> tuple[int, int]:
        """Tokens that scoring its steps takes, and further ones that its prompt takes once for all
        that stand together.

        By default each step reads the prompt again.
        """
        return len(trajectory.transitions) * (
            trajectory.sampling.max_tokens + len(trajectory.prompt)
        ), 0

    def batches(
        self, trajectories: Sequence[Trajectory], tokens_per_microbatch: int
    ) -> list[list[int]]:
        """See `Policy.batches`: in order, as many as fit."""
        parts: list[list[int]] = []
        left, previous = 0, b""
        for index, trajectory in enumerate(trajectories):
            key, (cost, once) = trajectory.prompt.tobytes(), self.cost(trajectory)
            if not parts or cost + (once if key != previous else 0) > left:
                parts.append([])
                left, previous = tokens_per_microbatch, b""
            parts[-1].append(index)
            left, previous = left - cost - (once if key != previous else 0), key
        return parts

    # -- training ----------------------------------------------------------------------------------

    def keep_reference(self) -> None:
        """See `Policy.keep_reference`."""
        super().keep_reference()
        if self.learned_temperature is not None:
            self._reference_temperature = LearnedTemperature().to(self.device)
            self._reference_temperature.load_state_dict(self.learned_temperature.state_dict())

    def trainable(self) -> Mapping[str, Tensor]:
        """See `Policy.trainable`; with the temperatures where they are learnt."""
        weights = dict(super().trainable())
        if self.learned_temperature is not None:
            weights["learned_temperature.log_temperature"] = (
                self.learned_temperature.log_temperature
            )
        return weights

    def write(self, folder: Path) -> None:
        """See `PretrainedPolicy.write`."""
        super().write(folder)
        if self.learned_temperature is not None:
            self.learned_temperature.save(folder)
