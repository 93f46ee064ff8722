"""What a law says about single places, from their hidden states, without holding [places, V] at once.

Letters in shapes: Q places, H hidden size, V vocabulary.

Slices of the places are pushed through the head one at a time; with a gradient each slice is computed again in the
backward pass.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from plumbline.policies.pretrained.head import rows_at_once
from plumbline.policies.token_law import draw, kl, restrict
from plumbline.records import Sampling


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The laws of Q places: hidden states, a linear head, and what their logits are divided by besides.

    A mask is a question and never an answer: its logit is minus infinity for the sampler and for the scorer alike.
    """

    head: Any
    mask_id: int | None  # None: there is none
    hidden: Tensor  # [Q, H]
    divisor: Tensor | None = None  # [Q], the exploration's

    def __len__(self) -> int:
        return len(self.hidden)

    def __getitem__(self, index: Tensor | slice) -> "Places":
        divisor = None if self.divisor is None else self.divisor[index]
        return replace(self, hidden=self.hidden[index], divisor=divisor)

    def plain(self) -> Tensor:
        """Logits [Q, V] as the model gives them, the mask token suppressed."""
        return self._suppressed(self.head(self.hidden))

    def logits(self) -> Tensor:
        """Logits [Q, V] after exploration, before the sampling law."""
        if self.divisor is None:
            return self.plain()
        # Suppressed after the division: minus infinity times a gradient of 0 is no number.
        return self._suppressed(self.head(self.hidden).float() / self.divisor.unsqueeze(-1))

    def _suppressed(self, logits: Tensor) -> Tensor:
        if self.mask_id is not None:
            logits[..., self.mask_id] = float("-inf")
        return logits

    @property
    def bias(self) -> Tensor | None:
        """The head's bias [V] with the mask token suppressed, for what reads hidden states without logits between."""
        bias, weight = self.head.bias, self.head.weight
        if self.mask_id is None:
            return bias
        bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
        return bias.masked_fill(torch.arange(len(bias), device=bias.device) == self.mask_id, float("-inf"))

    def _slices(self, arguments: Sequence[Tensor]) -> Iterator[tuple["Places", list[Tensor]]]:
        rows = rows_at_once(self.head.weight)
        for start in range(0, len(self), rows):
            at = slice(start, start + rows)
            yield self[at], [argument[at] for argument in arguments]

    def each(self, work: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
        """`work(places, *arguments)` over slices of the places, joined; `arguments` are sliced alike."""
        again = torch.is_grad_enabled() and len(self) > rows_at_once(self.head.weight)
        parts = [
            checkpoint(work, part, *given, use_reentrant=False) if again else work(part, *given)
            for part, given in self._slices(arguments)
        ]
        if not parts:  # of no places, and yet with a gradient: a pass in which nothing is hidden has a loss of 0
            return self.hidden.float().sum(-1)
        return torch.cat(parts)

    def several(self, work: Callable[..., tuple[Tensor, ...]], *arguments: Tensor) -> tuple[Tensor, ...]:
        """The same for work of several results, of at least one place, without gradient."""
        parts = [work(part, *given) for part, given in self._slices(arguments)]
        return tuple(torch.cat(results) for results in zip(*parts, strict=True))

    def against(
        self, reference: "Places", sampling: Sampling, work: Callable[..., Tensor], *arguments: Tensor
    ) -> Tensor:
        """`work(restricted, theirs, *arguments)` over slices, as `each`: unnormalised laws [., V] here and there.

        The reference's are without gradient, and within the support of those here: what the filters removed adds 0.
        """

        def compare(part: Places, hidden: Tensor, divisor: Tensor, *given: Tensor) -> Tensor:
            mine = restrict(part.logits(), sampling)
            with torch.no_grad():
                theirs = replace(reference, hidden=hidden, divisor=divisor).logits().float() / sampling.temperature
                theirs = theirs.masked_fill(mine.isneginf(), float("-inf"))
            return work(mine, theirs, *given)

        ones = torch.ones(len(reference), device=reference.hidden.device)
        divisor = ones if reference.divisor is None else reference.divisor
        return self.each(compare, reference.hidden, divisor, *arguments)


def token_log_prob(places: Places, tokens: Tensor, sampling: Sampling) -> Tensor:
    """Log-probability [Q] of tokens [Q]."""

    def work(part: Places, chosen: Tensor) -> Tensor:
        restricted = restrict(part.logits(), sampling, keep=chosen)
        return restricted.gather(-1, chosen.unsqueeze(-1)).squeeze(-1) - restricted.logsumexp(-1)

    return places.each(work, tokens)


def largest_log_prob(places: Places, sampling: Sampling) -> Tensor:
    """Log-probability [Q] of each place's most probable token: its confidence, under the law."""

    def work(part: Places) -> Tensor:
        restricted = restrict(part.logits(), sampling)
        return restricted.amax(-1) - restricted.logsumexp(-1)

    return places.each(work)


def log_confidence(places: Places, tokens: Tensor) -> Tensor:
    """Log-probability [Q] of tokens [Q] at temperature 1 without filters: what LLaDA's sampler ranks places by."""

    def work(part: Places, chosen: Tensor) -> Tensor:
        return _confidence(part.plain(), chosen)

    return places.each(work, tokens)


def _confidence(plain: Tensor, tokens: Tensor) -> Tensor:
    plain = plain.float()
    return plain.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - plain.logsumexp(-1)


def draw_tokens(places: Places, uniforms: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """A token [Q] for each place, and its log-probability [Q]."""
    tokens, logprobs = places.several(lambda part, numbers: draw(part.logits(), numbers, sampling), uniforms)
    return tokens, logprobs


def draw_with_confidence(places: Places, uniforms: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor, Tensor]:
    """A token [Q] for each place, its log-probability [Q], and its log-confidence [Q], from one pass of the head."""

    def work(part: Places, numbers: Tensor) -> tuple[Tensor, ...]:
        plain = part.plain()
        tokens, logprobs = draw(plain if part.divisor is None else part.logits(), numbers, sampling)
        return tokens, logprobs, _confidence(plain, tokens)

    tokens, logprobs, confidence = places.several(work, uniforms)
    return tokens, logprobs, confidence


def log_less_confident(places: Places, sampling: Sampling, bound: Tensor, ties: Tensor) -> Tensor:
    """Log-probability [Q] that a place draws a token less confident than `bound` [Q], or equally where `ties`."""

    def work(part: Places, most: Tensor, equal: Tensor) -> Tensor:
        plain = part.plain()
        restricted = restrict(plain if part.divisor is None else part.logits(), sampling)
        with torch.no_grad():
            level = plain.float()
            level = level - level.logsumexp(-1, keepdim=True)  # as in `_confidence`, so equal ones are equal here
            most, equal = most.unsqueeze(-1), equal.unsqueeze(-1)
            above = (level > most) | ((level == most) & ~equal)
        return restricted.masked_fill(above, float("-inf")).logsumexp(-1) - restricted.logsumexp(-1)

    return places.each(work, bound, ties)


def divergence(places: Places, reference: Places, sampling: Sampling) -> Tensor:
    """KL [Q] of each place's token law to the reference's, summed over the vocabulary."""
    return places.against(reference, sampling, lambda mine, theirs: kl(mine.log_softmax(-1), theirs.log_softmax(-1)))
