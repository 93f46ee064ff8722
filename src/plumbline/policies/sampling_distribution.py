"""The distribution by which a token is drawn: one function restricts the logits, for the sampler
and for the scorer.

Letters in shapes: B rows, V vocabulary, N tokens to score.

The distribution of logits z under a `Sampling` is p = softmax(restrict(z)): z is divided by the
temperature, then tokens outside the top k are removed, then tokens outside the smallest set that
holds `top_p` of the remaining probability (the order in which transformers applies its warpers).
Temperature 0 is a point mass on the largest logit.

Every family uses this module for its tokens. A sampler that drew by anything else would break law 2
of `plumbline.api.check_policy`; a scorer that used another temperature or filter would break law 1.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plumbline.errors import ModelError
from plumbline.records import Key, Sampling
from plumbline.seeds import derive, generator

# -- draws -----------------------------------------------------------------------------------------
#
# Random numbers that belong to one request or one demonstration, whatever stands beside it in a
# chunk or a micro-batch.
#
# How many rows a device holds at once must not change what is drawn or what is learnt, so nothing
# is drawn for a chunk as a whole: each request has a generator of its own, seeded by its key, and
# each demonstration one seeded by its place.


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """The randomness of one demonstration in one step of supervised training."""

    time: float
    """In [0, 1), for families whose loss looks at one time; evenly spread over the whole batch."""
    generator: torch.Generator
    """For everything else that is drawn."""


def noises(count: int, seed: int) -> list[Noise]:
    """The randomness of each demonstration of a batch, to be dealt before the batch is cut into
    micro-batches.

    Times are stratified, (u + i / count) mod 1 with one u for all, which lowers the variance of a
    mean over times.
    """
    start = generator(seed, "time").random()
    own = generators((seed, "row", index) for index in range(count))
    return [Noise((start + index / count) % 1.0, each) for index, each in enumerate(own)]


def generators(keys: Iterable[Key]) -> list[torch.Generator]:
    """A CPU generator for each key."""
    return [torch.Generator().manual_seed(derive(*key)) for key in keys]


def uniforms(own: Sequence[torch.Generator], *shape: int) -> Tensor:
    """Numbers in [0, 1) [R, *shape] in float64 on the CPU, so that every device uses the same; a
    row a generator."""
    return torch.stack([torch.rand(shape, dtype=torch.float64, generator=each) for each in own])


PLAIN = Sampling()
"""The sampling distribution of supervised training: temperature 1, no filter."""


def restrict(logits: Tensor, sampling: Sampling, keep: Tensor | None = None) -> Tensor:
    """Unnormalised log-probabilities [..., V] of the distribution, in float32 (or float64 where the
    logits are).

    Args:
        logits: [..., V], any floating type; log_softmax on bfloat16 would be off by up to 0.05
            nats.
        sampling: the sampling distribution; its temperature must not be 0.
        keep: [...] tokens that stay in the support whatever the filters say. The scorer passes the
            recorded token: it was drawn, so it was in the support, and a rounding at the filter's
            edge must not make it impossible.

    Returns:
        The logits over the temperature, minus infinity outside the support.
    """
    if sampling.greedy:
        raise ValueError("temperature 0 has no density: a greedy trajectory cannot be scored")
    scaled = logits if logits.dtype == torch.float64 else logits.float()
    if sampling.temperature != 1.0:
        scaled = scaled / sampling.temperature
    outside = _filtered_tokens(scaled.detach(), sampling)
    if outside is None:
        return scaled
    if keep is not None:
        outside = outside.scatter(-1, keep.unsqueeze(-1), value=False)
    return scaled.masked_fill(outside, float("-inf"))


def _filtered_tokens(scaled: Tensor, sampling: Sampling) -> Tensor | None:
    """Which tokens the filters remove, bool [..., V]; None where there is no filter."""
    outside = None
    vocabulary = scaled.shape[-1]
    if 0 < sampling.top_k < vocabulary:
        # Ties at the k-th place all stay, as in transformers: which of them went would depend on
        # the kernel.
        outside = scaled < scaled.topk(sampling.top_k, dim=-1).values[..., -1:]
        scaled = scaled.masked_fill(outside, float("-inf"))
    if sampling.top_p < 1:
        ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        removed = before >= sampling.top_p  # the first token has 0 before it, so one always stays
        nucleus = torch.zeros_like(removed).scatter(-1, order, removed)
        outside = nucleus if outside is None else outside | nucleus
    return outside


def log_prob(logits: Tensor, tokens: Tensor, sampling: Sampling) -> Tensor:
    """Log-probability [...] of `tokens` [...] under the distribution of `logits` [..., V];
    differentiable."""
    restricted = restrict(logits, sampling, keep=tokens)
    return restricted.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - restricted.logsumexp(-1)


def kl(log_p: Tensor, log_r: Tensor) -> Tensor:
    """KL [...] of distributions from others, both as log-probabilities [..., V]; what the filters
    removed adds 0."""
    # Masked before it is multiplied: a token that the filters removed would have a gradient of 0
    # times no number.
    return (log_p.exp() * (log_p - log_r).masked_fill(log_p.isneginf(), 0.0)).sum(-1)


AT_ONCE = 2**19
"""Logits from which a CPU draws at once: 2 MiB stay in its caches, and larger tensors would be new
pages at every step (1.1 ms instead of 1.6 to 6.6 for 32 rows of 49,152)."""


def draw(logits_bv: Tensor, uniforms_b: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Draw a token for each row by inverting the cumulative distribution.

    One uniform number a row instead of one a token: 5 to 20 times faster than `torch.multinomial`
    on a CPU, and a row's draw depends on its own number only, not on which rows share its batch.

    Args:
        logits_bv: [B, V].
        uniforms_b: [B] in [0, 1), float64.
        sampling: the sampling distribution; at temperature 0 the uniforms are not read.

    Returns:
        tokens [B] (int64) and their log-probabilities [B] (float32; 0 where greedy). Where logits
        are NaN or infinite the log-probability is NaN and the token any: see `check_drawn`.
    """
    if sampling.greedy:
        best, tokens = logits_bv.max(-1)
        return tokens, (best - best).float()
    rows = max(1, AT_ONCE // logits_bv.shape[-1])
    if logits_bv.device.type == "cpu" and len(logits_bv) > rows:
        parts = zip(logits_bv.split(rows), uniforms_b.split(rows), strict=True)
        drawn = [draw(logits, uniforms, sampling) for logits, uniforms in parts]
        return torch.cat([tokens for tokens, _ in drawn]), torch.cat(
            [logprobs for _, logprobs in drawn]
        )
    probabilities_bv = restrict(logits_bv, sampling).softmax(-1)
    tokens = _invert(probabilities_bv, uniforms_b.unsqueeze(-1)).clamp_max(logits_bv.shape[-1] - 1)
    return tokens.squeeze(-1), probabilities_bv.gather(-1, tokens).squeeze(-1).log().float()


def check_drawn(logprobs: Iterable[float]) -> None:
    """Refuse tokens that were drawn from logits that are no numbers.

    Raises:
        ModelError: a log-probability is NaN.
    """
    if any(map(math.isnan, logprobs)):
        raise ModelError(
            "the logits of the model are not finite (NaN or infinite), so no token can be drawn",
            "its weights are damaged, or too large for its dtype: try model.dtype: float32; of a "
            "run that is resumed "
            "take an earlier checkpoint",
        )


BLOCK = 128
"""Width of the blocks in which a distribution is inverted (it divides the usual padded
vocabularies)."""


def _invert(probabilities_bv: Tensor, uniforms_b1: Tensor) -> Tensor:
    """The tokens [B, 1] at which the cumulative distributions of `probabilities_bv` [B, V] pass
    `uniforms_b1` [B, 1].

    A block is drawn in float64, then a token within it. A plain float32 cumulative sum has steps of
    6e-8 near 1, the size of a tail token's whole probability in a 152k vocabulary; a float64 one
    over the whole vocabulary costs more than the rest of the draw.
    """
    if short := -probabilities_bv.shape[-1] % BLOCK:
        probabilities_bv = torch.nn.functional.pad(probabilities_bv, (0, short))
    blocks_bmw = probabilities_bv.unflatten(-1, (-1, BLOCK))
    masses_bm = blocks_bmw.sum(-1).double()
    block_b1, fraction_b1 = _pass(masses_bm, uniforms_b1)
    chosen_bw = (
        blocks_bmw.gather(1, block_b1.unsqueeze(-1).expand(-1, 1, BLOCK)).squeeze(1).double()
    )
    return block_b1 * BLOCK + _pass(chosen_bw, fraction_b1)[0]


def _pass(masses_bm: Tensor, fractions_b1: Tensor) -> tuple[Tensor, Tensor]:
    """The entries [B, 1] of float64 `masses_bm` [B, M] at which their sums pass `fractions_b1` [B,
    1] of the total.

    Returns:
        The entries, and which fraction of the entry's own mass was passed: a fresh uniform number
        in [0, 1).
    """
    cumulative_bm = masses_bm.cumsum(-1)
    total_b1 = cumulative_bm[:, -1:]
    target_b1 = torch.minimum(
        fractions_b1 * total_b1, torch.nextafter(total_b1, torch.zeros_like(total_b1))
    )
    # right=True finds the first entry strictly above the target, so what has mass 0 is never drawn.
    entry_b1 = torch.searchsorted(cumulative_bm, target_b1, right=True)
    entry_b1 = entry_b1.clamp_max(masses_bm.shape[-1] - 1)  # of a NaN: nothing is above it
    mass_b1 = masses_bm.gather(1, entry_b1)
    fraction_b1 = (target_b1 - cumulative_bm.gather(1, entry_b1) + mass_b1) / mass_b1
    return entry_b1, fraction_b1.clamp(0.0, 1.0 - 2.0**-53)
