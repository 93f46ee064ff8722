"""What a distribution says about single places, from their hidden states, without holding [places,
V] at once.

Letters in shapes: Q places, H hidden size, V vocabulary.

Slices of the places are pushed through the head one at a time; with a gradient each slice is
computed again in the backward pass.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from plumbline.policies.sampling_distribution import PLAIN, draw, kl, log_prob, restrict
from plumbline.records import Sampling

# -- head ------------------------------------------------------------------------------------------
#
# Log-probabilities from hidden states, without ever holding [N, V] logits at once.
#
# Letters in shapes: N scored tokens, H hidden size, V vocabulary, K likeliest tokens.
#
# For a vocabulary of 152k, the logits of 16 completions of 256 tokens take 2.5 GB in float32,
# several times over in a plain backward pass. Here the head is applied to a slice of the rows at a
# time. With p = softmax(restrict(hW^T)) the gradient of log p(y) with respect to the logits is
# (onehot(y) - p) / temperature, the softmax gradient; outside the support of the filters it is 0
# because p is. The difference is taken in float32 and then rounded: where p(y) is near 1, what 16
# bits leave of p says nothing of 1 - p. What comes from behind only scales a row of it, so the
# gradient of the hidden states, (onehot(y) - p) W / temperature, is taken in the forward pass,
# while the slice's probabilities are at hand: one pass of the head a token. Only where the head
# itself is trained does the backward pass compute them again.

LOGITS_AT_ONCE = {"cuda": 2**25, "cpu": 2**23}
"""Logits that one slice may hold: 128 MiB in float32 on a GPU; on a CPU 16 MiB in 16 bits, which
the allocator gives back to the next slice instead of asking the system for new pages each time."""
CACHED = 2**18
"""Logits that a CPU turns into probabilities at once: they stay in its cache from one operation to
the next."""
LIKELIEST = 8
"""Logits of each row that are computed in float32: those that decide its probabilities."""


def rows_at_once(weight: Tensor) -> int:
    """How many hidden states a head [V, H] is applied to at once."""
    return max(1, LOGITS_AT_ONCE.get(weight.device.type, 2**25) // weight.shape[0])


def head_log_prob(
    hidden_nh: Tensor, weight_vh: Tensor, bias: Tensor | None, tokens: Tensor, sampling: Sampling
) -> Tensor:
    """Log-probability [N] of `tokens` [N] given hidden states [N, H] and a linear head [V, H].

    Equals `sampling_distribution.log_prob(hidden @ weight.T + bias, tokens, sampling)` in value and
    gradient (a test holds it), to the bit alike with and without gradient.
    """
    return _HeadLogProb.apply(hidden_nh, weight_vh, bias, tokens, sampling)


def _slices(count: int, rows: int) -> Iterator[slice]:
    return (slice(start, min(start + rows, count)) for start in range(0, count, rows))


class _HeadLogProb(torch.autograd.Function):
    """Forward and backward in slices of rows; an only slice keeps its probabilities for a head that
    is trained."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_nh: Tensor,
        weight_vh: Tensor,
        bias: Tensor | None,
        tokens: Tensor,
        sampling: Sampling,
    ) -> Tensor:
        need_hidden, *need_head = ctx.needs_input_grad[:3]
        result = hidden_nh.new_empty(
            len(tokens), dtype=torch.promote_types(hidden_nh.dtype, torch.float32)
        )
        flow_nh = torch.empty_like(hidden_nh) if need_hidden else None  # d log p / d hidden
        single_nv = None
        for at in _slices(len(tokens), rows := rows_at_once(weight_vh)):
            result[at], flow_nv = _flow(hidden_nh[at], weight_vh, bias, tokens[at], sampling)
            if flow_nh is not None:
                flow_nh[at] = flow_nv @ weight_vh / sampling.temperature
            single_nv = flow_nv if len(tokens) <= rows else None
        kept = (hidden_nh, weight_vh, bias, tokens, single_nv) if any(need_head) else ()
        ctx.save_for_backward(flow_nh, *kept)
        ctx.sampling = sampling
        return result

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        flow_nh, *kept = ctx.saved_tensors
        (gradient,) = upstream
        grad_hidden_nh = (
            None if flow_nh is None else (flow_nh * gradient.unsqueeze(-1)).to(flow_nh.dtype)
        )
        if not kept:
            return grad_hidden_nh, None, None, None, None
        hidden_nh, weight_vh, bias, tokens, single_nv = kept
        grad_weight_vh = torch.zeros_like(weight_vh, dtype=torch.float32)
        grad_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        for at in _slices(len(tokens), rows_at_once(weight_vh)):
            flow_nv = single_nv
            if flow_nv is None:
                flow_nv = _flow(hidden_nh[at], weight_vh, bias, tokens[at], ctx.sampling)[1]
            flow_nv = flow_nv * (gradient[at].unsqueeze(-1) / ctx.sampling.temperature)
            grad_weight_vh += flow_nv.to(hidden_nh.dtype).T @ hidden_nh[at]
            if grad_bias is not None:
                grad_bias += flow_nv.sum(0)
        grad_bias = None if grad_bias is None else grad_bias.to(weight_vh.dtype)
        return grad_hidden_nh, grad_weight_vh.to(weight_vh.dtype), grad_bias, None, None


def _flow(
    hidden_nh: Tensor, weight_vh: Tensor, bias: Tensor | None, tokens: Tensor, sampling: Sampling
) -> tuple[Tensor, Tensor]:
    """Log-probabilities [N] of `tokens` in float32, and onehot - p [N, V] in the head's dtype."""
    logits_nv = functional.linear(hidden_nh, weight_vh, bias)
    rows = len(tokens) if logits_nv.device.type != "cpu" else max(1, CACHED // logits_nv.shape[1])
    logprobs = []
    for at in _slices(len(tokens), rows):
        part = tokens[at].unsqueeze(-1)
        exact_nv = exact(logits_nv[at], hidden_nh[at], weight_vh, bias)
        restricted_nv = restrict(exact_nv, sampling, keep=tokens[at])
        chosen, largest = restricted_nv.gather(-1, part), restricted_nv.amax(-1, keepdim=True)
        probs_nv = restricted_nv.sub_(largest).exp_()
        total = probs_nv.sum(-1, keepdim=True)
        logprobs.append((chosen - largest - total.log()).squeeze(-1))
        flow_nv = probs_nv.div_(-total).scatter_add_(-1, part, torch.ones_like(chosen))
        logits_nv[at] = flow_nv
    return torch.cat(logprobs), logits_nv


def logits_of(head: Any, hidden_nh: Tensor, product_nv: Tensor | None = None) -> Tensor:
    """Logits [N, V] by a model's head, as the scorer has them: `exact` where the head is a linear
    layer.

    `product_nv` is what the head gives, where it is known.
    """
    logits_nv: Tensor = head(hidden_nh) if product_nv is None else product_nv
    return (
        exact(logits_nv, hidden_nh, head.weight, head.bias)
        if type(head) is nn.Linear
        else logits_nv
    )


def exact(logits_nv: Tensor, hidden_nh: Tensor, weight_vh: Tensor, bias: Tensor | None) -> Tensor:
    """Logits [N, V] in float32, of 16-bit ones the K likeliest computed again.

    A 16-bit product rounds a logit of 20 by up to 0.06 nats; the errors of the others average out
    in their sum. On a CPU a whole product in float32 would take four times as long.
    """
    if logits_nv.dtype not in (torch.float16, torch.bfloat16):
        return logits_nv
    at_nk = logits_nv.topk(min(LIKELIEST, logits_nv.shape[1]), dim=-1).indices
    exact_nk = (weight_vh[at_nk].float() @ hidden_nh.float().unsqueeze(-1)).squeeze(-1)
    if bias is not None:
        exact_nk += bias[at_nk].float()
    return logits_nv.float().scatter_(-1, at_nk, exact_nk)


@dataclass(frozen=True, slots=True, eq=False)
class TokenDistributions:
    """The distributions of Q places: hidden states, a linear head, and what their logits are
    divided by besides.

    A mask is a question and never an answer: its logit is minus infinity for the sampler and for
    the scorer alike.
    """

    head: Any
    mask_id: int | None  # None: there is none
    hidden: Tensor  # [Q, H]
    divisor: Tensor | None = None  # [Q], of the learned temperature

    def __len__(self) -> int:
        return len(self.hidden)

    def __getitem__(self, index: Tensor | slice) -> "TokenDistributions":
        divisor = None if self.divisor is None else self.divisor[index]
        return replace(self, hidden=self.hidden[index], divisor=divisor)

    def raw_logits(self) -> Tensor:
        """Logits [Q, V] as the model gives them, the mask token suppressed."""
        return self._suppress_mask(self.head(self.hidden))

    def logits(self) -> Tensor:
        """Logits [Q, V] after the learned temperature, before the sampling distribution."""
        if self.divisor is None:
            return self.raw_logits()
        # Suppressed after the division: minus infinity times a gradient of 0 is no number.
        return self._suppress_mask(self.head(self.hidden).float() / self.divisor.unsqueeze(-1))

    def _suppress_mask(self, logits: Tensor) -> Tensor:
        if self.mask_id is not None:
            logits[..., self.mask_id] = float("-inf")
        return logits

    @property
    def bias(self) -> Tensor | None:
        """The head's bias [V] with the mask token suppressed, for what reads hidden states without
        logits between."""
        bias, weight = self.head.bias, self.head.weight
        if self.mask_id is None:
            return bias
        bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
        return bias.masked_fill(
            torch.arange(len(bias), device=bias.device) == self.mask_id, float("-inf")
        )

    def _slices(
        self, arguments: Sequence[Tensor]
    ) -> Iterator[tuple["TokenDistributions", list[Tensor]]]:
        rows = rows_at_once(self.head.weight)
        for start in range(0, len(self), rows):
            at = slice(start, start + rows)
            yield self[at], [argument[at] for argument in arguments]

    def map_slices(self, work: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
        """`work(distributions, *arguments)` over slices of the places, joined; `arguments` are
        sliced alike."""
        again = torch.is_grad_enabled() and len(self) > rows_at_once(self.head.weight)
        parts = [
            checkpoint(work, part, *given, use_reentrant=False) if again else work(part, *given)
            for part, given in self._slices(arguments)
        ]
        # of no places, and yet with a gradient: a pass in which nothing is hidden has a loss of 0
        if not parts:
            return self.hidden.float().sum(-1)
        return torch.cat(parts)

    def map_slices_jointly(
        self, work: Callable[..., tuple[Tensor, ...]], *arguments: Tensor
    ) -> tuple[Tensor, ...]:
        """The same for work of several results, of at least one place, without gradient."""
        parts = [work(part, *given) for part, given in self._slices(arguments)]
        return tuple(torch.cat(results) for results in zip(*parts, strict=True))

    def compare_slices(
        self,
        reference: "TokenDistributions",
        sampling: Sampling,
        work: Callable[..., Tensor],
        *arguments: Tensor,
    ) -> Tensor:
        """`work(restricted, theirs, *arguments)` over slices, as `map_slices`: unnormalised
        distributions [., V] here and there.

        The reference's are without gradient, and within the support of those here: what the filters
        removed adds 0.
        """

        def compare(
            part: TokenDistributions, hidden: Tensor, divisor: Tensor, *given: Tensor
        ) -> Tensor:
            mine = restrict(part.logits(), sampling)
            with torch.no_grad():
                theirs = (
                    replace(reference, hidden=hidden, divisor=divisor).logits().float()
                    / sampling.temperature
                )
                theirs = theirs.masked_fill(mine.isneginf(), float("-inf"))
            return work(mine, theirs, *given)

        ones = torch.ones(len(reference), device=reference.hidden.device)
        divisor = ones if reference.divisor is None else reference.divisor
        return self.map_slices(compare, reference.hidden, divisor, *arguments)


def token_log_prob(distributions: TokenDistributions, tokens: Tensor, sampling: Sampling) -> Tensor:
    """Log-probability [Q] of tokens [Q]."""
    return distributions.map_slices(
        lambda part, chosen: log_prob(part.logits(), chosen, sampling), tokens
    )


def largest_log_prob(distributions: TokenDistributions, sampling: Sampling) -> Tensor:
    """Log-probability [Q] of each place's most probable token: its confidence, under the
    distribution."""

    def work(part: TokenDistributions) -> Tensor:
        restricted = restrict(part.logits(), sampling)
        return restricted.amax(-1) - restricted.logsumexp(-1)

    return distributions.map_slices(work)


def log_confidence(distributions: TokenDistributions, tokens: Tensor) -> Tensor:
    """Log-probability [Q] of tokens [Q] at temperature 1 without filters: what LLaDA's sampler
    ranks places by."""
    return distributions.map_slices(
        lambda part, chosen: log_prob(part.raw_logits().float(), chosen, PLAIN), tokens
    )


def draw_tokens(
    distributions: TokenDistributions, uniforms: Tensor, sampling: Sampling
) -> tuple[Tensor, Tensor]:
    """A token [Q] for each place, and its log-probability [Q]."""
    tokens, logprobs = distributions.map_slices_jointly(
        lambda part, numbers: draw(part.logits(), numbers, sampling), uniforms
    )
    return tokens, logprobs


def draw_with_confidence(
    distributions: TokenDistributions, uniforms: Tensor, sampling: Sampling
) -> tuple[Tensor, Tensor, Tensor]:
    """A token [Q] for each place, its log-probability [Q], and its log-confidence [Q], from one
    pass of the head."""

    def work(part: TokenDistributions, numbers: Tensor) -> tuple[Tensor, ...]:
        raw = part.raw_logits()
        tokens, logprobs = draw(raw if part.divisor is None else part.logits(), numbers, sampling)
        return tokens, logprobs, log_prob(raw.float(), tokens, PLAIN)

    tokens, logprobs, confidence = distributions.map_slices_jointly(work, uniforms)
    return tokens, logprobs, confidence


def log_less_confident(
    distributions: TokenDistributions, sampling: Sampling, bound: Tensor, ties: Tensor
) -> Tensor:
    """Log-probability [Q] that a place draws a token less confident than `bound` [Q], or equally
    where `ties`."""

    def work(part: TokenDistributions, most: Tensor, equal: Tensor) -> Tensor:
        raw = part.raw_logits()
        restricted = restrict(raw if part.divisor is None else part.logits(), sampling)
        with torch.no_grad():
            level = raw.float()
            # as in `log_confidence`, so equal ones are equal here
            level = level - level.logsumexp(-1, keepdim=True)
            most, equal = most.unsqueeze(-1), equal.unsqueeze(-1)
            above = (level > most) | ((level == most) & ~equal)
        return restricted.masked_fill(above, float("-inf")).logsumexp(-1) - restricted.logsumexp(-1)

    return distributions.map_slices(work, bound, ties)


def divergence(
    distributions: TokenDistributions,
    reference: TokenDistributions,
    sampling: Sampling,
    *,
    forward: bool = False,
) -> Tensor:
    """KL [Q] of each place's token distribution to the reference's, summed over the vocabulary;
    `forward`: the other way."""

    def work(mine: Tensor, theirs: Tensor) -> Tensor:
        logs = mine.log_softmax(-1), theirs.log_softmax(-1)
        return kl(*reversed(logs)) if forward else kl(*logs)

    return distributions.compare_slices(reference, sampling, work)
