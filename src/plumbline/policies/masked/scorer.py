"""The log-probability of recorded denoising steps, from the distributions of their places.

Letters in shapes: S steps (rows), L places, n filled places, Q looked-at places.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from plumbline.errors import RecipeError
from plumbline.policies import plackett_luce
from plumbline.policies.canvas import distinct_prompts
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.token_logprobs import (
    TokenDistributions,
    divergence,
    largest_log_prob,
    log_confidence,
    log_less_confident,
    token_log_prob,
)
from plumbline.records import Trajectory

# -- schedule --------------------------------------------------------------------------------------
#
# How many places are filled in when: fixed in advance, so no part of the distribution depends on
# the weights.
#
# Letters: L places, T steps, B blocks.


@dataclass(frozen=True, slots=True)
class Slice:
    """One denoising step."""

    start: int
    """First place of the block that is being filled."""
    end: int
    """One past its last place."""
    count: int
    """Places to fill, where the selector fills a fixed number."""
    share: float
    """Probability that a hidden place is filled, where each is decided by itself (ancestral): 1 /
    steps left."""
    last: bool
    """Whether the block must be finished in this step."""
    time: float
    """When the step begins, in [0, 1)."""


def slices(sampling: MaskedSampling, block: int | None = None, start: int = 0) -> list[Slice]:
    """The steps of a `MaskedSampling`, block after block, places and steps dealt as evenly as whole
    numbers allow.

    Args:
        sampling: the sampling distribution.
        block: tokens of a block, of a model that has its own; they are counted from the prompt's
            first token.
        start: tokens of the prompt, of which the last ones may stand in the canvas's first block.

    Raises:
        RecipeError: there are no steps, or fewer than blocks, or more than places; or the
            distribution has blocks, and the model its own.
    """
    places, steps = sampling.max_tokens, sampling.steps
    if block is not None and sampling.blocks != 1:
        raise RecipeError(
            f"sampling.blocks is {sampling.blocks}, but this model writes blocks of {block} tokens "
            "of its own",
            "leave sampling.blocks out",
        )
    edges = _split_evenly(places, sampling.blocks)
    if block is not None:
        edges = [0, *range(block - start % block, places, block), places]
    blocks = len(edges) - 1
    if steps is None:
        raise RecipeError(
            "a diffusion policy needs a number of denoising steps",
            "set sampling.steps, for example to 8",
        )
    if not blocks <= steps <= places:
        raise RecipeError(
            f"{steps} steps do not fit {blocks} blocks of a canvas of {places} places",
            f"set sampling.steps between the number of blocks and sampling.max_tokens ({places})",
        )
    result = []
    turns = _deal(steps, [end - start for start, end in pairwise(edges)])
    for block, (start, end) in enumerate(pairwise(edges)):
        number, before = turns[block], sum(turns[:block])
        filled = _split_evenly(end - start, number)
        for step in range(number):
            result.append(
                Slice(
                    start=start,
                    end=end,
                    count=filled[step + 1] - filled[step],
                    share=1 / (number - step),
                    last=step + 1 == number,
                    time=(before + step) / steps,
                )
            )
    return result


def _deal(steps: int, sizes: Sequence[int]) -> list[int]:
    """Steps of each block: one, and each further one to the block with the most places a step.

    So no block has more steps than places, and no step has nothing to fill.
    """
    turns = [1] * len(sizes)
    for _ in range(steps - len(sizes)):
        turns[max(range(len(sizes)), key=lambda block: sizes[block] / turns[block])] += 1
    return turns


def _split_evenly(total: int, parts: int) -> list[int]:
    """Edges of `parts` nearly equal stretches of `total`."""
    return [total * part // parts for part in range(parts + 1)]


# -- selectors -------------------------------------------------------------------------------------
#
# Which hidden places a step fills in: how they are drawn, and the log-probability of that choice.
#
# Letters in shapes: R rows, L places, n places to fill. Scores are minus infinity where a place may
# not be chosen.
#
#    plackett_luce      places one after the other, each in proportion to exp(score) among those left
#    plackett_luce_set  the same draw, but only which places were chosen counts (see `plumbline.policies.plackett_luce`)
#    threshold          each place by itself with probability sigmoid((confidence - threshold) / temperature); if that
#                       is none, one by softmax(confidence / temperature)
#    low_confidence     what LLaDA's sampler does (Nie et al. 2025, arXiv:2502.09992): a token for every hidden place,
#                       and the n most confident are kept. Tokens are independent, so the kept set and its tokens have
#                       P = prod_{i in S} p_i(x_i) * prod_{j not in S} P(conf_j < least kept confidence); the gradient
#                       is exact almost everywhere, but the expected reward jumps where a token's confidence crosses the
#                       least kept one, and no gradient of this kind sees that
#
# `leftmost` fills the first hidden places of the block, which is no choice: its steps have no term
# for it, and with a step for each place an answer is written as an autoregressive model writes it
# (`plumbline.algorithms.just_grpo`).
#
# The weights have no say in `random` (a set of fixed size) and `ancestral` (each place with a fixed
# probability, Sahoo et al. 2024, arXiv:2406.07524): their log-probabilities are numbers without a
# gradient (`scorer.free_log_prob`).

FREE = frozenset({"random", "ancestral", "leftmost"})

"""Selectors in whose choices the model has no say: their log-probability is a number without
gradient, or none."""


def threshold_draw(
    confidence: Tensor,
    eligible: Tensor,
    threshold_and_temperature: tuple[float, float],
    uniforms: Tensor,
) -> Tensor:
    """Chosen places [R, L] (bool).

    Args:
        confidence: [R, L], in [0, 1].
        eligible: [R, L], bool.
        threshold_and_temperature: of the selector.
        uniforms: [R, L + 1]: one for each place, and one for the single place where none passed.
    """
    threshold, temperature = threshold_and_temperature
    chosen = eligible & (
        uniforms[:, :-1] < torch.sigmoid((confidence - threshold) / temperature).double()
    )
    none = ~chosen.any(1) & eligible.any(1)
    single = (confidence / temperature).masked_fill(~eligible, float("-inf")).softmax(1).double()
    place = torch.searchsorted(
        single.cumsum(1), uniforms[:, -1:] * single.sum(1, keepdim=True), right=True
    )
    place = place.clamp_max(confidence.shape[1] - 1)
    return torch.where(
        none.unsqueeze(1), torch.zeros_like(chosen).scatter(1, place, value=True), chosen
    )


def threshold_log_prob(
    confidence: Tensor,
    eligible: Tensor,
    threshold_and_temperature: tuple[float, float],
    chosen: Tensor,
) -> Tensor:
    """Log-probability [R] of the chosen places; those of all sets that are not empty sum to 1."""
    threshold, temperature = threshold_and_temperature
    margin = (confidence - threshold) / temperature
    log_in, log_out = (
        torch.nn.functional.logsigmoid(margin),
        torch.nn.functional.logsigmoid(-margin),
    )
    direct = torch.where(chosen, log_in, log_out).masked_fill(~eligible, 0.0).sum(1)
    single = (confidence / temperature).masked_fill(~eligible, float("-inf")).log_softmax(1)
    none = log_out.masked_fill(~eligible, 0.0).sum(1) + single.masked_fill(~chosen, 0.0).sum(1)
    return torch.where(chosen.sum(1) == 1, torch.logaddexp(direct, none), direct)


# -- recorded --------------------------------------------------------------------------------------
#
# Recorded denoising steps as tensors, one row each: what the scorer reads.
#
# Letters in shapes: S steps, L places, N filled places of all steps, n most places that a step
# filled.


class Recorded:
    """Steps of some trajectories, on the CPU."""

    prompts: list[list[int]]  # distinct
    prompt_of: Tensor  # [S]
    states: Tensor  # [S, L]
    times: list[float]  # [S]
    pieces: list[Slice]  # [S], where a choice of places has a term
    eligible: Tensor  # [S, L] bool: places that could have been filled
    looked_at: Tensor  # [S, L] bool: places whose distributions are needed
    chosen: Tensor  # [S, L] bool
    # [S, n] filled places in the order drawn, the first repeated where there are fewer
    order: Tensor
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
        """Lay out the steps of trajectories that share `sampling`.

        `block` is that of a model with blocks of its own (see `slices`).

        Raises:
            ValueError: a step has no state, or fills a place that was not hidden in it.
        """
        result = cls()
        prompts, prompt_of = distinct_prompts(trajectories)
        steps = [step for trajectory in trajectories for step in trajectory.transitions]
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
            phases = [
                len(trajectory.prompt) % (block or 1)
                for trajectory in trajectories
                for _ in trajectory.transitions
            ]
            known_at = {
                phase: {piece.time: piece for piece in slices(sampling, block, phase)}
                for phase in set(phases)
            }
            result.pieces = [
                known_at[phase][time] for phase, time in zip(phases, result.times, strict=True)
            ]
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
        firsts = torch.tensor(
            [[int(each[:1].sum()) for each in (step.positions, step.tokens)] for step in steps]
        )
        result.order, result.order_tokens = (
            first.unsqueeze(1).repeat(1, width).index_put((result.step_of, column), values)
            for first, values in zip(firsts.T, (positions, result.tokens), strict=True)
        )
        # Terms stand step by step, tokens first: where each is found in [all tokens, all
        # selections].
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


def log_probs(
    recorded: Recorded, distributions: TokenDistributions, sampling: MaskedSampling
) -> Tensor:
    """Log-probabilities of recorded steps in the order of `Trajectory.logprobs`.

    Args:
        recorded: the steps.
        distributions: of their looked-at places, row by row.
        sampling: their sampling distribution.
    """
    device = distributions.hidden.device
    filled = distributions[recorded.filled.to(device)]
    tokens = token_log_prob(filled, recorded.tokens.to(device), sampling)
    if not bool(recorded.selected.any()):
        return tokens
    if sampling.selector in FREE:
        chosen = free_log_prob(recorded.eligible, recorded.chosen, recorded.pieces, sampling).to(
            device
        )
    else:
        chosen = selection_log_prob(
            distributions,
            recorded.eligible,
            recorded.chosen,
            recorded.order,
            recorded.order_tokens,
            sampling,
        )
    return torch.cat([tokens, chosen[recorded.selected.to(device)]])[recorded.layout.to(device)]


def free_log_prob(
    eligible_sl: Tensor, chosen_sl: Tensor, pieces: Sequence[Slice], sampling: MaskedSampling
) -> Tensor:
    """Log-probability [S] of a choice of places that does not depend on the model.

    random: one of the sets of its size, -log C(m, n). ancestral: each of m places by itself, so
    q^n (1 - q)^(m - n) with the step's share q.

    Args:
        eligible_sl: [S, L] bool.
        chosen_sl: [S, L] bool.
        pieces: the step of each row.
        sampling: the sampling distribution.
    """
    m, n = eligible_sl.sum(1).double(), chosen_sl.sum(1).double()
    if sampling.selector == "random":
        return plackett_luce.even_log_prob(m, n).float()
    share = torch.tensor(
        [1.0 if piece.last else piece.share for piece in pieces], dtype=torch.float64
    )
    left = torch.where(share < 1, (m - n) * torch.log1p(-share), torch.zeros_like(share))
    return (n * share.log() + left).float()


def selection_log_prob(
    distributions: TokenDistributions,
    eligible_sl: Tensor,
    chosen_sl: Tensor,
    order_sn: Tensor,
    tokens_sn: Tensor,
    sampling: MaskedSampling,
) -> Tensor:
    """Log-probability [S] of the choice of places, for the selectors in which the model has a say.

    Rows may fill different numbers of places: only those of `chosen_sl` count.

    Args:
        distributions: of the eligible places, row by row.
        eligible_sl: [S, L] bool: what could have been filled.
        chosen_sl: [S, L] bool: what was.
        order_sn: [S, n] the filled places in the order drawn (padded with any place where rows
            differ in length and the selector does not look at the order).
        tokens_sn: [S, n] what they were filled with.
        sampling: the sampling distribution.
    """
    device = distributions.hidden.device
    eligible_sl, chosen_sl, order_sn, tokens_sn = (
        value.to(device) for value in (eligible_sl, chosen_sl, order_sn, tokens_sn)
    )
    if sampling.selector == "low_confidence":
        return _low_confidence(distributions, eligible_sl, chosen_sl, order_sn, tokens_sn, sampling)
    dense_sl = _best_log_probs(distributions, eligible_sl, sampling)
    if sampling.selector == "threshold":
        # exp of minus infinity at places that are not eligible has a gradient of 0 * inf; they are
        # masked out anyway.
        confidence_sl = dense_sl.masked_fill(~eligible_sl, 0.0).exp()
        threshold_and_temperature = (sampling.threshold, sampling.position_temperature)
        return threshold_log_prob(confidence_sl, eligible_sl, threshold_and_temperature, chosen_sl)
    scores_sl = dense_sl / sampling.position_temperature
    if sampling.selector == "plackett_luce":
        return plackett_luce.log_prob(scores_sl, _pad_filled(order_sn, chosen_sl))
    return plackett_luce.set_log_prob(scores_sl, chosen_sl)


def _low_confidence(
    distributions: TokenDistributions,
    eligible_sl: Tensor,
    chosen_sl: Tensor,
    order_sn: Tensor,
    tokens_sn: Tensor,
    sampling: MaskedSampling,
) -> Tensor:
    """That every other hidden place drew something less confident than the least confident kept
    token."""
    index_sl = torch.full(eligible_sl.shape, -1, dtype=torch.long, device=eligible_sl.device)
    index_sl[eligible_sl] = torch.arange(len(distributions), device=eligible_sl.device)
    with torch.no_grad():
        kept_sn = log_confidence(
            distributions[index_sl.gather(1, order_sn).flatten()], tokens_sn.flatten()
        ).view_as(order_sn)
        least_s1 = kept_sn.amin(1, keepdim=True)
        # Of equally confident places the first are kept, so one behind the last kept of them may be
        # as confident.
        edge_s1 = torch.where(kept_sn == least_s1, order_sn, torch.full_like(order_sn, -1)).amax(
            1, keepdim=True
        )
    others_sl = eligible_sl & ~chosen_sl
    row, place = others_sl.nonzero().T
    below = log_less_confident(
        distributions[index_sl[others_sl]],
        sampling,
        least_s1[row].squeeze(1),
        place > edge_s1[row].squeeze(1),
    )
    return below.new_zeros(len(eligible_sl)).index_add(0, row, below)


def step_divergence(
    recorded: Recorded,
    distributions: TokenDistributions,
    other: TokenDistributions,
    sampling: MaskedSampling,
) -> Tensor:
    """KL [S] of each step to the reference, whose distributions of the same places are `other`.

    It is that of the filled places' tokens and of an ordered Plackett-Luce choice; the choices of
    the other selectors are left out.
    """
    device = distributions.hidden.device
    filled = recorded.filled.to(device)
    kl = divergence(distributions[filled], other[filled], sampling)
    total = kl.new_zeros(len(recorded.states)).index_add(0, recorded.step_of.to(device), kl)
    if sampling.selector != "plackett_luce":
        return total
    return total + _order_divergence(recorded, distributions, other, sampling)


def _order_divergence(
    recorded: Recorded,
    distributions: TokenDistributions,
    other: TokenDistributions,
    sampling: MaskedSampling,
) -> Tensor:
    """KL [S] of the draws of places, one categorical after the other along the order that was
    drawn."""
    eligible_sl, chosen_sl, order_sn = (
        each.to(distributions.hidden.device)
        for each in (recorded.eligible, recorded.chosen, recorded.order)
    )
    mine_sl = _best_log_probs(distributions, eligible_sl, sampling)
    with torch.no_grad():
        theirs_sl = _best_log_probs(other, eligible_sl, sampling)
    temperature = sampling.position_temperature
    return plackett_luce.divergence(
        mine_sl / temperature, theirs_sl / temperature, _pad_filled(order_sn, chosen_sl)
    )


def _best_log_probs(
    of: TokenDistributions, eligible_sl: Tensor, sampling: MaskedSampling
) -> Tensor:
    """The most probable token's log-probability at each eligible place; minus infinity
    elsewhere."""
    best = largest_log_prob(of, sampling)
    nowhere = best.new_full(eligible_sl.shape, float("-inf"))
    return nowhere.index_put(tuple(eligible_sl.nonzero().T), best)


def _pad_filled(order_sn: Tensor, chosen_sl: Tensor) -> Tensor:
    """Filled places [S, n] with -1 behind the last of those that were chosen [S, L]."""
    behind_sn = torch.arange(order_sn.shape[1], device=order_sn.device) >= chosen_sl.sum(
        1, keepdim=True
    )
    return order_sn.masked_fill(behind_sn, -1)
