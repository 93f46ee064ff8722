"""Recorded denoising steps as tensors, one row each: what the scorer reads.

Letters in shapes: S steps, L places, N filled places of all steps, n most places that a step filled.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.masked.schedule import Slice, slices
from plumbline.policies.masked.selectors import FREE
from plumbline.records import Step, Trajectory


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
    def of(cls, trajectories: Sequence[Trajectory], mask_id: int) -> "Recorded":
        """Lay out the steps of trajectories that share a law.

        Raises:
            ValueError: a step has no state, or fills a place that was not hidden in it.
        """
        made = cls()
        sampling = MaskedSampling.of(trajectories[0].sampling)
        distinct: dict[bytes, int] = {}
        prompts: list[list[int]] = []
        steps: list[Step] = []
        prompt_of: list[int] = []
        for trajectory in trajectories:
            key = trajectory.prompt.tobytes()
            if key not in distinct:
                distinct[key] = len(prompts)
                prompts.append(trajectory.prompt.tolist())
            for step in trajectory.steps:
                steps.append(step)
                prompt_of.append(distinct[key])
        known = [step.state for step in steps if step.state is not None]
        if len(known) != len(steps):
            raise ValueError("a step without its state cannot be scored")
        states = np.stack(known)
        rows, places = states.shape
        made.prompts, made.prompt_of = prompts, torch.tensor(prompt_of)
        made.states = torch.from_numpy(states)
        made.times = [step.time or 0.0 for step in steps]
        counts = [len(step.positions) for step in steps]
        made.step_of = torch.arange(rows).repeat_interleave(torch.tensor(counts))
        positions = torch.from_numpy(np.concatenate([step.positions for step in steps]))
        made.tokens = torch.from_numpy(np.concatenate([step.tokens for step in steps]))
        made.chosen = torch.zeros((rows, places), dtype=torch.bool)
        made.chosen[made.step_of, positions] = True
        made.selected = torch.tensor([step.selection is not None for step in steps])
        made.eligible, made.pieces = made.chosen, []
        if bool(made.selected.any()):
            by_time = {piece.time: piece for piece in slices(sampling)}
            made.pieces = [by_time[time] for time in made.times]
            block = torch.zeros((rows, places), dtype=torch.bool)
            for row, piece in enumerate(made.pieces):
                block[row, piece.start : piece.end] = True
            made.eligible = (made.states == mask_id) & block
        looked_at = made.chosen if sampling.selector in FREE else made.eligible
        made.looked_at = looked_at
        index = torch.full((rows, places), -1, dtype=torch.long)
        index[looked_at] = torch.arange(int(looked_at.sum()))
        made.filled = index[made.step_of, positions]
        if bool((made.filled < 0).any()):
            raise ValueError("a recorded step fills a place that was not hidden in its state")
        width = max(counts)
        column = torch.cat([torch.arange(count) for count in counts])
        first = torch.tensor([int(step.positions[:1].sum()) for step in steps]).unsqueeze(1).expand(-1, width)
        made.order = first.clone().index_put((made.step_of, column), positions)
        first = torch.tensor([int(step.tokens[:1].sum()) for step in steps]).unsqueeze(1).expand(-1, width)
        made.order_tokens = first.clone().index_put((made.step_of, column), made.tokens)
        # Terms stand step by step, tokens first: where each is found in [all tokens, all selections].
        layout: list[int] = []
        token, selection = 0, len(made.tokens)
        for step, count in zip(steps, counts, strict=True):
            layout += range(token, token + count)
            token += count
            if step.selection is not None:
                layout.append(selection)
                selection += 1
        made.layout = torch.tensor(layout)
        return made
