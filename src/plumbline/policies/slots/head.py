"""The output layer without the mask token, at queried places only, a slice of the rows at a time.

Letters in shapes: N queried places, H hidden size, V vocabulary.

A mask is a question, never an answer, so its logit is minus infinity for the sampler and for the scorer alike.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from plumbline.policies import token_law
from plumbline.policies.pretrained.head import head_divergence, head_log_prob, rows_at_once
from plumbline.records import Sampling


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """A linear head [V, H] and its bias [V], minus infinity at the mask token."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, model: Any, mask_id: int) -> "Head":
        """The head of a transformers model; with gradient where its weights have one."""
        layer = model.get_output_embeddings()
        bias = layer.bias
        if bias is None:
            bias = torch.zeros(layer.weight.shape[0], dtype=layer.weight.dtype, device=layer.weight.device)
        is_mask = torch.arange(len(bias), device=bias.device) == mask_id
        return cls(layer.weight, bias.masked_fill(is_mask, float("-inf")))

    @property
    def rows(self) -> int:
        """Places whose logits are held at once."""
        return rows_at_once(self.weight)

    def log_prob(self, hidden: Tensor, tokens: Tensor, law: Sampling) -> Tensor:
        """Log-probability [N] of `tokens` [N] at hidden states [N, H]."""
        return head_log_prob(hidden, self.weight, self.bias, tokens, law)

    def divergence(self, hidden: Tensor, other: "Head", other_hidden: Tensor, law: Sampling) -> Tensor:
        """KL [N] of the token laws from this head's to another's, summed over the vocabulary."""
        return head_divergence(hidden, self.weight, self.bias, (other_hidden, other.weight, other.bias), law)

    def confidence(self, hidden: Tensor, law: Sampling) -> Tensor:
        """Log-probability [N] of the most probable token; under a greedy law that of temperature 1.

        The logits of a slice are computed again in the backward pass instead of being kept.
        """
        law = replace(law, temperature=1.0, top_k=0, top_p=1.0) if law.greedy else law
        parts = [
            checkpoint(_confidence, part, self.weight, self.bias, law, use_reentrant=False)
            for part in hidden.split(self.rows)
        ]
        return torch.cat(parts)

    def draw(self, hidden: Tensor, uniforms: Tensor, law: Sampling) -> tuple[Tensor, Tensor]:
        """Tokens [N] and their log-probabilities [N], from hidden states [N, H] and uniform numbers [N]."""
        drawn = [
            token_law.draw(linear(part, self.weight, self.bias), numbers, law)
            for part, numbers in zip(hidden.split(self.rows), uniforms.split(self.rows), strict=True)
        ]
        return torch.cat([tokens for tokens, _ in drawn]), torch.cat([logprobs for _, logprobs in drawn])


def _confidence(hidden: Tensor, weight: Tensor, bias: Tensor, law: Sampling) -> Tensor:
    restricted = token_law.restrict(linear(hidden, weight, bias), law)
    return restricted.amax(-1) - restricted.logsumexp(-1)
