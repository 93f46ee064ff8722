"""The only two ways in which this family runs its model, both with an explicit mask and explicit positions.

Letters in shapes: R rows, Q tokens read at once, C cached tokens, T packed tokens, H hidden size.

The mask is never left to transformers: positions out of order without a mask are taken there for several packed
documents, and the attention is cut silently (a test shows that the present version still does it).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from plumbline.policies.pretrained.inputs import additive, padded

ALL, PAD = -1, -2
"""Tags of tokens that see everything before them (the prompt, masks), and of tokens that nothing sees."""


def read_packed(model: Any, ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
    """Hidden states [B, T, H] of `ids` [B, T] at `positions` [B, T] under a bool mask [B or 1, 1, T, T]."""
    hidden: Tensor = model.get_decoder()(
        ids, attention_mask=additive(mask, model.dtype), position_ids=positions, use_cache=False
    ).last_hidden_state
    return hidden


class Context:
    """The keys and values that rows have read so far, and which of them a new token may see.

    Each token has a tag. A token tagged `ALL` sees everything before it. A token tagged with its slot sees what is
    settled (the prompt and the slots of earlier rounds) and what came before it in its own slot: slots that are filled
    side by side never see one another.
    """

    def __init__(self, model: Any, rows: int) -> None:
        from transformers import DynamicCache

        self.model = model
        self.cache = DynamicCache()
        self.tags = torch.zeros((rows, 0), dtype=torch.long, device=model.device)
        self.settled = 0

    def read(self, ids: Tensor, positions: Tensor, tags: Tensor, *, drop: int = 0) -> Tensor:
        """Hidden states [R, Q, H] of new tokens, which are kept except for the last `drop`.

        Args:
            ids: [R, Q].
            positions: [R or 1, Q].
            tags: [R, Q], `ALL`, `PAD` or a slot's number.
            drop: the last so many are forgotten again (masks are asked, not remembered).
        """
        before, new = self.tags.shape[1], ids.shape[1]
        self.tags = torch.cat([self.tags, tags], 1)
        column = torch.arange(before + new, device=ids.device)
        sees = (tags == ALL).unsqueeze(2) | (tags.unsqueeze(2) == self.tags.unsqueeze(1)) | (column < self.settled)
        sees &= (self.tags != PAD).unsqueeze(1) & (column <= column[before:].unsqueeze(1))
        hidden: Tensor = self.model.get_decoder()(
            ids,
            attention_mask=additive(sees.unsqueeze(1), self.model.dtype),
            position_ids=positions.expand_as(ids),
            past_key_values=self.cache,
            use_cache=True,
        ).last_hidden_state
        self.drop(drop)
        return hidden

    def drop(self, count: int) -> None:
        """Forget the last `count` tokens."""
        if count:
            self.cache.crop(-count)
            self.tags = self.tags[:, :-count]

    def settle(self) -> None:
        """A round is over: everything read so far is seen by all that follows."""
        self.settled = self.tags.shape[1]

    def select(self, rows: Tensor) -> None:
        """Go on with these rows [R'], of which one may come several times."""
        self.cache.batch_select_indices(rows)
        self.tags = self.tags[rows]


def pad_prompts(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, positions and tags [P, longest] of prompts padded on the left, where nothing sees the padding."""
    ids, there = (each.to(device) for each in padded(prompts, left=True))
    return ids, (there.cumsum(1) - 1).clamp(min=0), torch.where(there, ALL, PAD)
