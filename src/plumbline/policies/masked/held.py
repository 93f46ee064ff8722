"""A denoising step on a scaffold: places, and tokens with which the other places of their holes can still be filled.

Letters in shapes: R rows, L places, n places filled in a step.

Places are chosen by the law of each place given the state at the step's beginning, as without a scaffold. Their tokens
are then drawn one after the other, in the recorded order, from the same logits: a token drawn earlier in the step says
what may still stand at the others of its hole. The log-probability of the step is the sum over these draws, and exact,
because each is normalised over what was allowed just then (`Scaffold.in_turn`).

Rows differ in how many places are hidden, and places that leave no choice fill themselves between the steps, so a step
takes an even share of what a row has left: the number of hidden places over the steps that are left, rounded up.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from plumbline.errors import RecipeError
from plumbline.policies import plackett_luce
from plumbline.policies.masked import selectors
from plumbline.policies.masked.filling import Filling, Settled, spread
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.masked.scaffold import Scaffold
from plumbline.policies.masked.schedule import Slice
from plumbline.policies.masked.scorer import free_log_prob
from plumbline.policies.places import Places, largest_log_prob, log_confidence
from plumbline.policies.token_law import draw


@dataclass(frozen=True, slots=True)
class Held:
    """A law with its scaffold."""

    scaffold: Scaffold
    sampling: MaskedSampling


def held_step(
    law_of: Settled, canvas_rl: Tensor, eligible_rl: Tensor, piece: Slice, held: Held, uniforms_ru: Tensor
) -> Filling:
    """Fill some of the eligible places of each row; see `sampler.denoise`.

    Raises:
        RecipeError: the selector draws a token for every place and keeps some, whose probability is not known here.
    """
    places = canvas_rl.shape[1]
    laws = law_of(canvas_rl, eligible_rl, piece.time)
    states = list(canvas_rl.numpy())
    laws = laws.within(held.scaffold.allowed(states, [np.flatnonzero(row) for row in eligible_rl.numpy()]))
    order_rn, selection = _choose(laws, eligible_rl, piece, held.sampling, uniforms_ru)
    index_rl = torch.full(eligible_rl.shape, -1, dtype=torch.long)
    index_rl[eligible_rl] = torch.arange(len(laws))
    state_rl = canvas_rl.clone()
    tokens_rn, logprobs_rn = torch.zeros_like(order_rn), torch.zeros(order_rn.shape)
    device = laws.hidden.device
    for column in range(order_rn.shape[1]):
        rows = (order_rn[:, column] >= 0).nonzero().flatten()
        at = order_rn[rows, column]
        allowed = held.scaffold.allowed(list(state_rl[rows].numpy()), list(at.unsqueeze(1).numpy()))
        uniforms = uniforms_ru[rows, places + at].to(device)
        found = laws[index_rl[rows, at].to(device)].within(allowed)
        tokens, logprobs = draw(found.logits(), uniforms, held.sampling)
        tokens_rn[rows, column], logprobs_rn[rows, column] = tokens.cpu(), logprobs.cpu()
        state_rl[rows, at] = tokens.cpu()
    return Filling(order_rn, tokens_rn, logprobs_rn, (order_rn >= 0).sum(1), selection)


def _choose(
    laws: Places, eligible_rl: Tensor, piece: Slice, sampling: MaskedSampling, uniforms_ru: Tensor
) -> tuple[Tensor, Tensor | None]:
    """The places [R, n] to fill in their order, -1 behind the last, and the log-probability [R] of this choice."""
    selector, uniforms_rl = sampling.selector, uniforms_ru[:, : eligible_rl.shape[1]]
    left = 1 if piece.last else round(1 / piece.share)
    counts = -(-eligible_rl.sum(1) // left)
    if selector == "leftmost":
        return _in_order(eligible_rl & (eligible_rl.cumsum(1) <= counts.unsqueeze(1))), None
    if sampling.greedy:
        confidence_rl = spread(log_confidence(laws, laws.each(lambda part: part.plain().argmax(-1))), eligible_rl)
        if selector == "threshold" and not piece.last:
            counts = (confidence_rl > math.log(sampling.threshold)).sum(1).clamp_min(1)
        return _first(plackett_luce.choose(confidence_rl, None, int(counts.max())), counts), None
    if selector == "random":
        keys_rl = uniforms_rl.masked_fill(~eligible_rl, -1.0)
        order_rn = _first(plackett_luce.choose(keys_rl, None, int(counts.max())), counts)
        chosen_rl = _as_set(order_rn, eligible_rl)
        return _in_order(chosen_rl), free_log_prob(eligible_rl, chosen_rl, [piece] * len(chosen_rl), sampling)
    if selector == "ancestral":
        chosen_rl = eligible_rl if piece.last else eligible_rl & (uniforms_rl < piece.share)
        return _in_order(chosen_rl), free_log_prob(eligible_rl, chosen_rl, [piece] * len(chosen_rl), sampling)
    if selector == "low_confidence":
        raise RecipeError(
            "the low_confidence selector draws a token for every place and keeps some, which a scaffold cannot follow",
            "set sampling.selector to plackett_luce, or sampling.temperature to 0",
        )
    best_rl = spread(largest_log_prob(laws, sampling), eligible_rl)
    if selector == "threshold":
        if piece.last:
            return _in_order(eligible_rl), None
        law, confidence_rl = (sampling.threshold, sampling.position_temperature), best_rl.exp()
        both = torch.cat([uniforms_rl, uniforms_ru[:, -1:]], 1)
        chosen_rl = selectors.threshold_draw(confidence_rl, eligible_rl, law, both)
        return _in_order(chosen_rl), selectors.threshold_log_prob(confidence_rl, eligible_rl, law, chosen_rl)
    scores_rl = best_rl / sampling.position_temperature
    order_rn = _first(plackett_luce.choose(scores_rl, uniforms_rl, int(counts.max())), counts)
    if selector == "plackett_luce":
        return order_rn, plackett_luce.log_prob(scores_rl, order_rn)
    chosen_rl = _as_set(order_rn, eligible_rl)
    return _in_order(chosen_rl), plackett_luce.set_log_prob(scores_rl, chosen_rl)


def _first(order_rn: Tensor, counts: Tensor) -> Tensor:
    """So many places [R] of each row's order, and -1 behind them."""
    return order_rn.masked_fill(torch.arange(order_rn.shape[1]) >= counts.unsqueeze(1), -1)


def _as_set(order_rn: Tensor, eligible_rl: Tensor) -> Tensor:
    """The places of an order as [R, L] (bool)."""
    chosen_rl = torch.zeros_like(eligible_rl)
    chosen_rl[(order_rn >= 0).nonzero()[:, 0], order_rn[order_rn >= 0]] = True
    return chosen_rl


def _in_order(chosen_rl: Tensor) -> Tensor:
    """The places of a set, from the left."""
    counts = chosen_rl.sum(1)
    return _first((~chosen_rl).to(torch.int8).sort(dim=1, stable=True).indices[:, : int(counts.max())], counts)
