"""The canvas of a policy that writes into a fixed number of places, and what such policies share.

Letters in shapes: L places of the canvas, S recorded steps.

An answer shorter than the canvas is followed by its end token up to the last place, in demonstrations and in what is
sampled, so "how long" is learnt like everything else and needs no padding mask.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import DataError, RecipeError
from plumbline.policies.chunks import Chunk, Law, Watch
from plumbline.policies.policy import Demonstration
from plumbline.policies.pretrained.adapters import ORIGINAL, lora_layers
from plumbline.policies.pretrained.policy import PretrainedPolicy
from plumbline.policies.saved import saved_settings
from plumbline.policies.token_law import check_drawn
from plumbline.records import Finish, Message, Request, Step, Trajectory

HIDDEN = "\N{LIGHT SHADE}"
"""What a hidden place is shown as."""


class CanvasPolicy(PretrainedPolicy):
    """The part of a `Policy` with a canvas that does not depend on how the canvas is filled."""

    canvas: int | None
    """L in demonstrations, and the most places that an answer may have; None where neither is settled."""
    mask_id: int | None
    """The token of a hidden place; None where a canvas begins as noise."""
    watch: Watch | None = None
    """Hears what each canvas holds after each step, from the thread that draws."""

    def facts(self) -> dict[str, str]:
        """See `PretrainedPolicy.facts`; a model with adapters says how they run."""
        fused = self.adapter is not None and all(hasattr(layer, ORIGINAL) for layer in lora_layers(self.model))
        return {**super().facts(), "adapters": "none" if self.adapter is None else "fused" if fused else "peft"}

    def settled(self, source: str) -> Mapping[str, Any]:
        """What the model at `source` says about its use, in its own config or in its directory."""
        return {**(getattr(self.model.config, "plumbline", None) or {}), **saved_settings(source)}

    def chunks(self, requests: Sequence[Request], law: type[Law], canvas: int | None = None) -> Iterator[Chunk[Law]]:
        """See `PretrainedPolicy.chunks`: watched, where somebody watches."""
        for chunk in super().chunks(requests, law, canvas):
            yield chunk if self.watch is None else replace(chunk, watch=self.watch)

    def finished(
        self, chunk: Chunk[Law], row: int, canvas: NDArray[np.int64], steps: Sequence[Step]
    ) -> tuple[Request, Trajectory]:
        """A chunk's row, and its finished canvas [L] with the steps that filled it as a trajectory.

        Raises:
            ModelError: the model's logits were NaN or infinite.
        """
        check_drawn(logprob for step in steps for logprob in step.logprobs.tolist())
        answer, finish = answer_of(canvas, self.chat.stop_ids)
        return chunk.requests[row], Trajectory(
            prompt=np.array(chunk.prompts[int(chunk.prompt_of[row])], dtype=np.int64),
            steps=tuple(steps),
            text=self.chat.text(answer.tolist()),
            sampling=chunk.sampling,
            finish=finish,
            answer=answer,
            version=self.version,
        )

    def shown(self, canvas: NDArray[np.int64]) -> str:
        """What a canvas [L] reads up to its first end token, with `HIDDEN` for each hidden place."""
        answer, _ = answer_of(canvas, self.chat.stop_ids)
        runs = groupby(answer.tolist(), key=lambda token: token == self.mask_id)
        return "".join(HIDDEN * len(list(run)) if hidden else self.chat.text(list(run)) for hidden, run in runs)

    def demonstrate(self, messages: Sequence[Message], *, allow_truncation: bool = False) -> Demonstration:
        """See `Policy.demonstrate`: the prompt, and a canvas filled behind the answer with end tokens.

        Raises:
            RecipeError: the canvas has no size.
            DataError: the answer does not fit.
        """
        if self.canvas is None:
            raise RecipeError("training fills a canvas, and model.canvas is not set", "set model.canvas")
        whole = self.chat.demonstration(messages)
        prompt, answer = split(whole)
        if len(answer) > self.canvas and not allow_truncation:
            raise DataError(
                f"an answer of {len(answer)} tokens exceeds the canvas of {self.canvas}",
                "raise sampling.max_tokens (the canvas), or set sft.allow_truncation (the cut ones are counted)",
            )
        self.check_length(len(prompt), self.canvas)
        return Demonstration(
            tokens=(*prompt, *answer, *[self.chat.end_of_turn] * self.canvas)[: len(prompt) + self.canvas],
            is_target=(False,) * len(prompt) + (True,) * self.canvas,
            truncated=len(answer) > self.canvas,
        )


def answer_of(canvas: NDArray[np.int64], stop_ids: Collection[int]) -> tuple[NDArray[np.int64], Finish]:
    """The answer on a finished canvas [L]: everything up to its first end token, that token included."""
    ends = np.flatnonzero(np.isin(canvas, list(stop_ids)))
    if len(ends) == 0:
        return canvas, "length"
    return canvas[: ends[0] + 1], "stop"


def split(demonstration: Demonstration) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Prompt and canvas [L] of a demonstration."""
    start = len(demonstration.tokens) - demonstration.num_targets
    return demonstration.tokens[:start], demonstration.tokens[start:]


def distinct_prompts(trajectories: Sequence[Trajectory]) -> tuple[list[list[int]], list[int]]:
    """Each prompt once, and the number of the prompt of every step [S]."""
    distinct = {trajectory.prompt.tobytes(): trajectory.prompt.tolist() for trajectory in trajectories}
    number = {key: index for index, key in enumerate(distinct)}
    return [*distinct.values()], [number[each.prompt.tobytes()] for each in trajectories for _ in each.steps]
