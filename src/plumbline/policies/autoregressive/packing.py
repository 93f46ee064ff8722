"""A group in one sequence: its prompt once, then its completions, none of which sees another.

Letters in shapes: T packed tokens, N completion tokens (terms).

    tokens      p0 p1 p2 | a0 a1 | b0 b1 b2
    positions    0  1  2 |  3  4 |  3  4  5
    a0 is predicted at p2, a1 at a0; b0 at p2, b1 at b0, ...

The last token of a completion predicts nothing that is scored, so it is left out of the pack. Exact: a completion's
token attends to its prompt and to its own past, at the positions that it was sampled at. Several prompts may share a
pack; the mask keeps them apart, too.

The mask is always given. With permuted or restarting positions and no mask, transformers takes a sequence for packed
documents and cuts the attention on its own (measured on 4.57: silently, in both sdpa and eager).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from plumbline.policies.pretrained.inputs import padded
from plumbline.records import Trajectory

PASS_TOKENS = 100
"""What starting one more pass costs, in tokens, whatever its length: every weight's gradient is added once.

With it the cheapest size was predicted on a CPU for widths 96 and 256, prompts of 64 to 300 and answers of 30 to 256
tokens.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """Tensors of one packed forward pass."""

    ids: Tensor  # [1, T]
    positions: Tensor  # [1, T]
    prompts: Tensor  # [T]: which prompt a token belongs to
    branches: Tensor  # [T]: 0 for a prompt's tokens, else the completion's number
    predictors: Tensor  # [N]: the packed position whose hidden state predicts each term
    targets: Tensor  # [N]
    blocks: tuple["Block", ...]
    """The same as the mask, prompt by prompt: what `shared_attention` needs."""

    @property
    def mask(self) -> Tensor:
        """May attend, bool [1, 1, T, T]; made when it is asked for, which `shared_attention` does not."""
        same_prompt = self.prompts.unsqueeze(1) == self.prompts
        visible = (self.branches == 0) | (self.branches.unsqueeze(1) == self.branches)
        return (same_prompt & visible).tril_()[None, None]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A prompt and its completions in a pack."""

    start: int
    """Where the prompt begins; its completions follow it."""
    prompt: int
    """Tokens of the prompt, P."""
    own: Tensor  # [G, C]: the packed position of each completion's tokens, filled up with its prompt's first
    there: Tensor  # [G, C], bool: which of them are no filling
    sees: Tensor  # [C, P + C], bool: a completion's token sees its prompt, and its own past

    @classmethod
    def of(cls, start: int, prompt: int, lengths: Sequence[int], device: torch.device) -> "Block":
        """Lay out a prompt and completions of `lengths` tokens each, in the order of the pack."""
        longest = max(lengths, default=0)
        column = torch.arange(longest, device=device)
        length = torch.tensor(list(lengths), device=device).unsqueeze(1)
        there = column < length
        first = start + prompt + length.cumsum(0) - length
        past = column.unsqueeze(1) >= column
        sees = torch.cat([past.new_ones((longest, prompt)), past], dim=1)
        return cls(start, prompt, torch.where(there, first + column, start), there, sees)


def pack(trajectories: Sequence[Trajectory], device: torch.device) -> Pack:
    """Lay trajectories out behind one copy of each distinct prompt (equal prompts must stand side by side)."""
    ids: list[int] = []
    positions: list[int] = []
    prompt_of: list[int] = []  # which prompt a packed token belongs to
    branch_of: list[int] = []  # 0 for a prompt's tokens, else the completion's number
    predictors: list[int] = []
    targets: list[int] = []
    previous: bytes | None = None
    number = start = length = 0
    laid: list[tuple[int, int, list[int]]] = []  # start and length of each prompt, lengths of its completions
    for index, trajectory in enumerate(trajectories):
        key = trajectory.prompt.tobytes()
        if key != previous:
            previous, number = key, number + 1
            prompt = trajectory.prompt.tolist()
            start, length = len(ids), len(prompt)
            ids += prompt
            positions += range(length)
            prompt_of += [number] * length
            branch_of += [0] * length
            laid.append((start, length, []))
        tokens = trajectory.tokens.tolist()
        at = len(ids)
        predictors += [start + length - 1, *range(at, at + len(tokens) - 1)]
        targets += tokens
        laid[-1][2].append(len(tokens) - 1)
        ids += tokens[:-1]
        positions += range(length, length + len(tokens) - 1)
        prompt_of += [number] * (len(tokens) - 1)
        branch_of += [index + 1] * (len(tokens) - 1)
    return Pack(
        ids=torch.tensor([ids], device=device),
        positions=torch.tensor([positions], device=device),
        prompts=torch.tensor(prompt_of, device=device),
        branches=torch.tensor(branch_of, device=device),
        predictors=torch.tensor(predictors, device=device),
        targets=torch.tensor(targets, device=device),
        blocks=tuple(Block.of(*block, device) for block in laid),
    )


SHARED = "plumbline_shared"
"""Under this name transformers finds `shared_attention`."""


def install_shared_attention(model: Any) -> bool:
    """Let a model's layers take `blocks` beside a mask; False where its attention is not the usual one (sdpa)."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    config = model.config.get_text_config()
    if config._attn_implementation == SHARED:  # noqa: SLF001 - the only place where transformers keeps it
        return True
    if config._attn_implementation != "sdpa":  # noqa: SLF001
        return False
    AttentionInterface.register(SHARED, shared_attention)
    AttentionMaskInterface.register(SHARED, sdpa_mask)
    config._attn_implementation = SHARED  # noqa: SLF001
    return True


def remove_shared_attention(model: Any) -> None:
    """Give back the attention that `install_shared_attention` replaced, if it did."""
    config = model.config.get_text_config()
    if config._attn_implementation == SHARED:  # noqa: SLF001
        config._attn_implementation = "sdpa"  # noqa: SLF001


def reach(model: Any) -> int | None:
    """Tokens that a layer with a window sees; None where every layer sees all.

    A pack says with its own mask, or with blocks, who sees whom, so it is right up to this length only.
    """
    config = model.config.get_text_config()
    windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    if not getattr(config, "use_sliding_window", True):
        return None
    if (kinds := getattr(config, "layer_types", None)) and all(kind == "full_attention" for kind in kinds):
        return None
    return min((int(window) for window in windows if window), default=None)


def shared_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention over a pack without its square: prompts among themselves, completions to their prompt and their past.

    A pack of T tokens costs P^2 + G C (P + C) instead of T^2 products, and no mask of that size. Heads are shared as
    in grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245).

    Args:
        module: the layer.
        query: [1, heads, T, D].
        key: [1, key-value heads, T, D].
        value: like `key`.
        attention_mask: of a plain pass; unread where `blocks` says the same.
        kwargs: what else transformers gives, such as `scaling`, and the pack's `blocks`; without them it is a plain
            pass, left to transformers.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    blocks: Sequence[Block] | None = kwargs.pop("blocks", None)
    if blocks is None:
        result: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return result
    scale = kwargs.get("scaling") or query.shape[-1] ** -0.5
    times = query.shape[1] // key.shape[1]
    key, value = (states.repeat_interleave(times, dim=1) for states in (key, value))
    outputs = []
    for block in blocks:
        end = block.start + block.prompt
        first_q, first_k, first_v = (states[:, :, block.start : end] for states in (query, key, value))
        outputs.append(_attend(first_q, first_k, first_v, None, scale)[0])
        groups, longest = block.own.shape
        if longest == 0:
            continue
        own_q, own_k, own_v = (  # [G, heads, C, D]
            states[0].index_select(1, block.own.flatten()).unflatten(1, (groups, longest)).transpose(0, 1)
            for states in (query, key, value)
        )
        seen_k = torch.cat([first_k.expand(groups, -1, -1, -1), own_k], dim=2)
        seen_v = torch.cat([first_v.expand(groups, -1, -1, -1), own_v], dim=2)
        mixed = _attend(own_q, seen_k, seen_v, block.sees, scale)
        outputs.append(mixed.transpose(0, 1)[:, block.there])  # [heads, own tokens, D], in the order of the pack
    return torch.cat(outputs, dim=1).transpose(0, 1).unsqueeze(0).contiguous(), None


SCORES_AT_ONCE = 2**26
"""Attention scores that are written out at once on a CPU."""


def _attend(query: Tensor, key: Tensor, value: Tensor, sees: Tensor | None, scale: float) -> Tensor:
    """Attention of [B, heads, Q, D] to [B, heads, K, D] as `sees` [Q, K] allows; None is causal.

    On a CPU the products are written out, with the softmax in float32, as the lean decoder does it: forward and
    backward take a third of the time of torch's flash attention there (8 x 9 heads, 40 to 150 positions, bfloat16).
    """
    places = (query.shape[2], key.shape[2])
    if query.device.type != "cpu" or query.shape[0] * query.shape[1] * places[0] * places[1] > SCORES_AT_ONCE:
        causal = sees is None
        return functional.scaled_dot_product_attention(query, key, value, sees, is_causal=causal, scale=scale)
    if sees is None:
        sees = torch.ones(places, dtype=torch.bool).tril()
    hidden = torch.zeros(places, dtype=query.dtype).masked_fill(~sees, float("-inf"))
    scores = (query * scale) @ key.transpose(-1, -2) + hidden
    return scores.softmax(-1, dtype=torch.float32).to(query.dtype) @ value


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Tensors of one padded forward pass: a row a sequence, padded on the right, where a causal model never sees it."""

    ids: Tensor  # [B, L]
    predictors: tuple[Tensor, Tensor]  # rows [N] and columns [N] of the hidden states that predict each term
    targets: Tensor  # [N]


def rows(sequences: Sequence[tuple[Sequence[int], Sequence[bool]]], device: torch.device) -> Rows:
    """Pad (tokens, is_target) sequences to one rectangle."""
    ids, _ = padded([tokens for tokens, _ in sequences])
    is_target, _ = padded([targets for _, targets in sequences])
    row_of, column_of = is_target.nonzero(as_tuple=True)
    return Rows(
        ids=ids.to(device),
        predictors=(row_of.to(device), (column_of - 1).to(device)),
        targets=ids[row_of, column_of].to(device),
    )
