"""What a law says about single places, from their hidden states, without holding [places, V] at once.

Letters in shapes: Q places, H hidden size, V vocabulary.

Slices of the places are pushed through the head one at a time; with a gradient each slice is computed again in the
backward pass.
"""

from collections.abc import Callable
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
    """The laws of Q places: hidden states, a linear head, and what their logits are divided by besides."""

    head: Any
    mask_id: int | None
    """The mask token: it says that a place is hidden, so no place is ever filled with it. None: there is none."""
    hidden: Tensor  # [Q, H]
    divisor: Tensor | None  # [Q], the exploration's

    def __len__(self) -> int:
        return len(self.hidden)

    def __getitem__(self, index: Tensor) -> "Places":
        return replace(self, hidden=self.hidden[index], divisor=None if self.divisor is None else self.divisor[index])

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

    def each(self, work: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
        """`work(places, *arguments)` over slices of the places, joined; `arguments` are sliced alike."""
        rows = rows_at_once(self.head.weight)
        parts = []
        for start in range(0, len(self), rows):
            at = torch.arange(start, min(start + rows, len(self)), device=self.hidden.device)
            given = [argument[at] for argument in arguments]
            if torch.is_grad_enabled() and len(self) > rows:
                parts.append(checkpoint(work, self[at], *given, use_reentrant=False))
            else:
                parts.append(work(self[at], *given))
        if not parts:  # of no places, and yet with a gradient: a pass in which nothing is hidden has a loss of 0
            return self.hidden.float().sum(-1)
        return torch.cat(parts)

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


def draw_with_confidence(places: Places, uniforms: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor, Tensor]:
    """A token [Q] for each place, its log-probability [Q], and its log-confidence [Q], from one pass of the head."""

    def work(part: Places, numbers: Tensor) -> Tensor:
        plain = part.plain()
        tokens, logprobs = draw(plain if part.divisor is None else part.logits(), numbers, sampling)
        # In float64, which holds every token id.
        return torch.stack([tokens.double(), logprobs.double(), _confidence(plain, tokens).double()], 1)

    found = places.each(work, uniforms)
    return found[:, 0].long(), found[:, 1].float(), found[:, 2].float()


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
