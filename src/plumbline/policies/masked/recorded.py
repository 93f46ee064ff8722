"""Recorded denoising steps as tensors, one row each: what the scorer reads.

Letters in shapes: S steps, L places, N filled places of all steps, n most places that a step filled.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from plumbline.policies.canvas import distinct_prompts
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.masked.schedule import Slice, slices
from plumbline.policies.masked.selectors import FREE
from plumbline.records import Trajectory


class Recorded:
    """Steps of some trajectories, on the CPU."""

    prompts: list[list[int]]  # distinct
    prompt_of: Tensor  # [S]
    states: Tensor  # [S, L]
    times: list[float]  # [S]
    pieces: list[Slice]  # [S], where a choice of places has a term
    eligible: Tensor  # [S, L] bool: places that could have been filled
    looked_at: Tensor  # [S, L] bool: places whose laws are needed
    chosen: Tensor  # [S, L] bool
    order: Tensor  # [S, n] filled places in the order drawn, the first repeated where there are fewer
    order_tokens: Tensor  # [S, n]
    selected: Tensor  # [S] bool: the step has a term for its choice of places
    filled: Tensor  # [N] index among the looked-at places
    step_of: Tensor  # [N]
    tokens: Tensor  # [N]
    layout: Tensor  # [terms]

    @classmethod
    def of(
        cls,
        trajectories: Sequence[Trajectory],
        sampling: MaskedSampling,
        mask_id: int,
        block: int | None = None,
    ) -> "Recorded":
        """Lay out the steps of trajectories that share the law `sampling`.

        `block` is that of a model with blocks of its own (see `slices`).

        Raises:
            ValueError: a step has no state, or fills a place that was not hidden in it.
        """
        result = cls()
        prompts, prompt_of = distinct_prompts(trajectories)
        steps = [step for trajectory in trajectories for step in trajectory.steps]
        known = [step.state for step in steps if step.state is not None]
        if len(known) != len(steps):
            raise ValueError("a step without its state cannot be scored")
        states = np.stack(known)
        rows, places = states.shape
        result.prompts, result.prompt_of = prompts, torch.tensor(prompt_of)
        result.states = torch.from_numpy(states)
        result.times = [step.time or 0.0 for step in steps]
        counts = [len(step.positions) for step in steps]
        result.step_of = torch.arange(rows).repeat_interleave(torch.tensor(counts))
        positions = torch.from_numpy(np.concatenate([step.positions for step in steps]))
        result.tokens = torch.from_numpy(np.concatenate([step.tokens for step in steps]))
        result.chosen = torch.zeros((rows, places), dtype=torch.bool)
        result.chosen[result.step_of, positions] = True
        result.selected = torch.tensor([step.selection is not None for step in steps])
        result.eligible, result.pieces = result.chosen, []
        if bool(result.selected.any()):
            phases = [len(trajectory.prompt) % (block or 1) for trajectory in trajectories for _ in trajectory.steps]
            known_at = {phase: {piece.time: piece for piece in slices(sampling, block, phase)} for phase in set(phases)}
            result.pieces = [known_at[phase][time] for phase, time in zip(phases, result.times, strict=True)]
            within = torch.zeros((rows, places), dtype=torch.bool)
            for row, piece in enumerate(result.pieces):
                within[row, piece.start : piece.end] = True
            result.eligible = (result.states == mask_id) & within
        looked_at = result.chosen if sampling.selector in FREE else result.eligible
        result.looked_at = looked_at
        index = torch.full((rows, places), -1, dtype=torch.long)
        index[looked_at] = torch.arange(int(looked_at.sum()))
        result.filled = index[result.step_of, positions]
        if bool((result.filled < 0).any()):
            raise ValueError("a recorded step fills a place that was not hidden in its state")
        width = max(counts)
        column = torch.cat([torch.arange(count) for count in counts])
        first = torch.tensor([int(step.positions[:1].sum()) for step in steps]).unsqueeze(1).expand(-1, width)
        result.order = first.clone().index_put((result.step_of, column), positions)
        first = torch.tensor([int(step.tokens[:1].sum()) for step in steps]).unsqueeze(1).expand(-1, width)
        result.order_tokens = first.clone().index_put((result.step_of, column), result.tokens)
        # Terms stand step by step, tokens first: where each is found in [all tokens, all selections].
        layout: list[int] = []
        token, selection = 0, len(result.tokens)
        for step, count in zip(steps, counts, strict=True):
            layout += range(token, token + count)
            token += count
            if step.selection is not None:
                layout.append(selection)
                selection += 1
        result.layout = torch.tensor(layout)
        return result
