"""A group in one sequence: its prompt once, then its completions, none of which sees another.

Letters in shapes: T packed tokens, N completion tokens (terms).

    tokens      p0 p1 p2 | a0 a1 | b0 b1 b2
    positions    0  1  2 |  3  4 |  3  4  5
    a0 is predicted at p2, a1 at a0; b0 at p2, b1 at b0, ...

The last token of a completion predicts nothing that is scored, so it is left out of the pack.
Exact: a completion's token attends to its prompt and to its own past, at the positions that it was
sampled at. Several prompts may share a pack; the mask keeps them apart, too. Of demonstrations,
what several begin with (a system prompt) is the prompt.

The mask is always given. With permuted or restarting positions and no mask, transformers takes a
sequence for packed documents and cuts the attention on its own (measured on 4.57: silently, in both
sdpa and eager).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, count, groupby, islice, takewhile
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from plumbline.policies.pretrained.policy import pad_rows, round_up
from plumbline.records import Trajectory, group_by_key

# -- bands -----------------------------------------------------------------------------------------
#
# Causal attention on a CPU, written out as matrix products with a backward pass of their own.
#
# Letters in shapes: K key-value heads, Q query heads of each, R rows, C places of a row, D size of
# a head, P places of the prompt before a row, S own keys of a row (C, and those of a cache before
# them).
#
# The rows of a product are the query heads that share a key (Ainslie et al. 2023,
# arXiv:2305.13245). The causal square is cut into bands of queries, each with the keys that it
# sees. What is kept for the backward pass is the softmax of each band, from which the gradients
# follow (Vaswani et al. 2017, arXiv:1706.03762, differentiated): with A the softmax of s q k^T and
# o = A v, dv = A^T do, dA = do v^T, dS = A * (dA - rowsum(A * dA)), dq = s dS k and dk = s dS^T q.
# Left to autograd, every band's keys are cut out again in the backward pass, with a gradient of
# full size for each.

BAND = 128
"""Queries that are multiplied together: fewer make more products, more multiply what is masked."""


SCORES_AT_ONCE = 2**26
"""Attention scores that are written out at once on a CPU."""


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    first: tuple[Tensor, Tensor, Tensor] | None,
    scale: float,
) -> Tensor:
    """Attention [K, Q, R, C, D] of rows to what stands before them, and to their prompts, under one
    softmax.

    On a CPU it is written out in bands: forward and backward take a third of the time of torch's
    flash attention there (8 x 9 heads, 40 to 150 positions, bfloat16). It is done in the very
    products of `decoders.lean`, rounded where it rounds: of 16 bits both then give the same to the
    bit (without AMX), and a scorer that rounds elsewhere is 0.04 nats a token off after thirty
    layers.

    Args:
        query: [K, Q, R, C, D].
        key: [K, R, S, D]; the last C are those of the queries, which see no later one.
        value: like `key`.
        first: keys and values [K, R, P, D] of each row's prompt, and which of them are there, bool
            [R, P].
        scale: of the products.
    """
    *prompt, there = first or (None,)
    heads, times, rows, places, _ = query.shape
    seen = key.shape[2] + (prompt[0].shape[2] if prompt else 0)
    if query.device.type == "cpu" and query.shape[:4].numel() * seen <= SCORES_AT_ONCE:
        return _Bands.apply(scale, there, query, key, value, *prompt)
    mask = None
    # torch's own causal mask begins at the first key: another one behind a cache
    if prompt or key.shape[2] > places:
        past = torch.ones((places, key.shape[2]), dtype=torch.bool, device=query.device).tril(
            key.shape[2] - places
        )
        mask = past.expand(rows, 1, -1, -1)
        if there is not None:
            mask = torch.cat([there[:, None, None].expand(-1, 1, places, -1), mask], dim=3)
            key, value = torch.cat([prompt[0], key], dim=2), torch.cat([prompt[1], value], dim=2)
    wide_k, wide_v = (states.transpose(0, 1).repeat_interleave(times, 1) for states in (key, value))
    mixed = functional.scaled_dot_product_attention(
        query.flatten(0, 1).transpose(0, 1),
        wide_k,
        wide_v,
        mask,
        is_causal=mask is None,
        scale=scale,
    )
    return mixed.transpose(0, 1).unflatten(0, (heads, times))


def widen(states: Tensor) -> Tensor:
    """16-bit queries or keys as wide as their products have to be, of which attention is the
    softmax.

    Those of Qwen2.5-Coder-0.5B reach 1,456 in its first layer, where 16 bits count by eights: a
    quarter of a query's weight went to other keys (total variation .23). In 32 bits the order in
    which a product is added up still decides some roundings of the weights, and sampler and scorer
    have products of other shapes: they were .012 nats a token apart, and are 2.6e-5 with 64 bits.
    On a GPU, where these take long, it is 32.
    """
    wide = torch.float64 if states.device.type == "cpu" else torch.float32
    return states.to(wide) if states.dtype in (torch.float16, torch.bfloat16) else states


def multiply(query: Tensor, keys: Tensor) -> Tensor:
    """Scores of queries and wide keys, in float32 at least."""
    return (widen(query) @ keys).to(torch.promote_types(query.dtype, torch.float32))


class _Bands(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scale: float, there: Tensor | None, query: Tensor, *states: Tensor
    ) -> Tensor:
        key, value, *prompt = states
        kept = any(ctx.needs_input_grad)
        rows = query.transpose(1, 2)  # [K, R, Q, C, D]
        keys = torch.cat([prompt[0], key], dim=2) if prompt else key  # [K, R, P + S, D]
        wide = widen(keys)
        width = keys.shape[2] - key.shape[2]
        # Its shape is [R, 1, 1, P].
        hidden = None if there is None or bool(there.all()) else ~there[:, None, None]
        parts, attentions = [], []
        for start, end, seen in _bands(query.shape[3], key.shape[2]):
            band = rows[..., start:end, :]
            scores = multiply(band.flatten(2, 3), wide[:, :, : width + seen].mT).mul_(scale)
            each = scores.view(*band.shape[:-1], width + seen)
            each[..., width + seen - (end - start) :].masked_fill_(
                _later_keys(end - start), float("-inf")
            )
            if hidden is not None:
                each[..., :width].masked_fill_(hidden, float("-inf"))
            attention = scores.softmax(-1).to(rows.dtype)  # [K, R, Q x band, P + seen]
            mixed = attention[..., width:] @ value[:, :, :seen]
            if prompt:
                mixed = attention[..., :width] @ prompt[1] + mixed
            parts.append(mixed.view(band.shape))
            attentions += [attention] if kept else []
        if kept:
            values = torch.cat([prompt[1], value], dim=2) if prompt else value
            ctx.save_for_backward(rows, keys, values, *attentions)
            ctx.scale, ctx.width, ctx.behind = scale, width, bool(prompt)
        return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=3)).transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        rows, keys, values, *attentions = ctx.saved_tensors
        width = ctx.width
        flow = upstream[0].transpose(1, 2)  # [K, R, Q, C, D]
        # Summed over bands in float32 at least, and turned round, so that what a product transposes
        # is the small side.
        exact = torch.promote_types(keys.dtype, torch.float32)
        flow_k, flow_v = (
            torch.zeros_like(each.mT, dtype=exact).contiguous() for each in (keys, values)
        )
        flow_q = torch.empty_like(rows, memory_format=torch.contiguous_format)
        bands = _bands(rows.shape[3], keys.shape[2] - width)
        for (start, end, seen), attention in zip(bands, attentions, strict=True):
            band = flow[..., start:end, :].flatten(2, 3)  # [K, R, Q x band, D]
            flow_attention = band @ values[:, :, : width + seen].mT
            flow_s = torch._softmax_backward_data(flow_attention, attention, -1, attention.dtype)  # noqa: SLF001
            flow_s *= ctx.scale
            flow_q[..., start:end, :] = (flow_s @ keys[:, :, : width + seen]).view_as(
                flow_q[..., start:end, :]
            )
            flow_k[..., : width + seen] += rows[..., start:end, :].flatten(2, 3).mT @ flow_s
            flow_v[..., : width + seen] += band.mT @ attention
        flow_k, flow_v = (each.mT.to(keys.dtype) for each in (flow_k, flow_v))
        before = (flow_k[:, :, :width], flow_v[:, :, :width]) if ctx.behind else ()
        own = flow_q.transpose(1, 2), flow_k[:, :, width:], flow_v[:, :, width:]
        return None, None, *own, *before


def _bands(places: int, seen: int) -> list[tuple[int, int, int]]:
    """Of each band its first place, its end, and how many own keys it sees."""
    ends = [(start, min(start + BAND, places)) for start in range(0, places, BAND)]
    return [(start, end, seen - places + end) for start, end in ends]


def _later_keys(places: int) -> Tensor:
    """What the places of a band do not see of their own keys: bool [C, C]."""
    return torch.ones((places, places), dtype=torch.bool).triu(1)


PASS_TOKENS = 100
"""What starting one more pass costs, in tokens, whatever its length: every weight's gradient is
added once.

With it the cheapest size was predicted on a CPU for widths 96 and 256, prompts of 64 to 300 and
answers of 30 to 256 tokens.
"""
UNIT = 64
"""Tokens that a pack is rounded up to where lengths are."""


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """Tensors of one packed forward pass."""

    ids: Tensor  # [1, T]
    positions: Tensor  # [1, T]
    prompts: Tensor  # [T]: which prompt a token belongs to
    branches: Tensor  # [T]: 0 for a prompt's tokens, else the completion's number
    predictors: Tensor  # [N]: the packed position whose hidden state predicts each term
    targets: Tensor  # [N]
    groups: "Groups"
    """The same as the mask, as `shared_attention` needs it."""

    @property
    def mask(self) -> Tensor:
        """May attend, bool [1, 1, T, T]; made when it is asked for, which `shared_attention` does
        not."""
        same_prompt = self.prompts.unsqueeze(1) == self.prompts
        visible = (self.branches == 0) | (self.branches.unsqueeze(1) == self.branches)
        return (same_prompt & visible).tril_()[None, None]


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The prompts of a pack and all their completions, as two rectangles: B of up to P tokens, and
    R of up to C."""

    prompts: Tensor  # [B, P]: the packed position of each prompt's tokens, filled up with 0
    there: Tensor  # [B, P], bool: which of these are tokens of the prompt
    own: Tensor  # [R, C]: the packed position of each completion's tokens, filled up alike
    owners: Tensor  # [R]: the prompt of each completion
    order: Tensor  # [T]: where a packed token stands in the two, the one behind the other

    @classmethod
    def of(
        cls,
        prompts: Sequence[tuple[int, int]],
        completions: Sequence[Sequence[int]],
        device: torch.device,
        *,
        rounded: bool = False,
    ) -> Self:
        """Lay out prompts, as (start, length), and the lengths of what follows each, in the order
        of the pack.

        With `rounded`, T, P and C are; the tokens of no prompt are given what the first place
        gives.
        """
        behind, owners = [], []
        for index, ((start, length), lengths) in enumerate(zip(prompts, completions, strict=True)):
            at = start + length
            for tokens in lengths:
                behind.append(range(at, at := at + tokens))
                owners.append(index)
        first, first_there = pad_rows(
            [range(start, start + length) for start, length in prompts], rounded=rounded
        )
        own, own_there = pad_rows(behind, rounded=rounded)
        there = torch.cat([first_there.flatten(), own_there.flatten()])
        places = torch.cat([first.flatten(), own.flatten()])[there]
        order = places.new_zeros(round_up(len(places), UNIT) if rounded else len(places))
        order = order.scatter_(0, places, there.nonzero().squeeze(1))
        laid = (first, first_there, own, torch.tensor(owners), order)
        return cls(*(each.to(device) for each in laid))


Targets = tuple[Sequence[int], Sequence[bool]]
"""Tokens, and which of them are scored."""


def pack(
    trajectories: Sequence[Trajectory], device: torch.device, *, rounded: bool = False
) -> Pack:
    """Lay trajectories out behind one copy of each distinct prompt (equal prompts must stand side
    by side).

    With `rounded` the lengths that decide the shapes of products are rounded up; T by tokens of no
    prompt.
    """
    groups = [
        (
            prompt,
            [(tokens, [True] * len(tokens)) for tokens in (one.tokens.tolist() for one in alike)],
        )
        for prompt, alike in groupby(trajectories, key=lambda one: one.prompt.tolist())
    ]
    return _laid_out(groups, device, rounded=rounded)


BEGINNING = 32
"""Tokens that demonstrations must begin with alike for what they have in common to be read once."""


def pack_demonstrations(
    sequences: Sequence[Targets], device: torch.device, *, rounded: bool = False
) -> Pack:
    """Lay (tokens, is_target) sequences out, none of which sees another; what several begin with is
    there once.

    The first token of each is no target: nothing predicts it. The terms are in the order of the
    pack.
    """
    alike = group_by_key((tuple(one[0][:BEGINNING]), one) for one in sequences)
    groups = []
    for members in alike.values():
        most = BEGINNING if len(members) == 1 else min(len(tokens) for tokens, _ in members)
        most = min(most, *(next(compress(count(), is_target), most) for _, is_target in members))
        columns = islice(zip(*(tokens for tokens, _ in members), strict=False), most)
        common = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
        rest = [(tokens[common:], is_target[common:]) for tokens, is_target in members]
        groups.append((members[0][0][:common], rest))
    return _laid_out(groups, device, rounded=rounded)


def _laid_out(
    groups: Sequence[tuple[Sequence[int], Sequence[Targets]]],
    device: torch.device,
    *,
    rounded: bool,
) -> Pack:
    ids: list[int] = []
    positions: list[int] = []
    prompt_of: list[int] = []  # which prompt a packed token belongs to
    branch_of: list[int] = []  # 0 for a prompt's tokens, else the completion's number
    predictors: list[int] = []
    targets: list[int] = []
    # start and length of each prompt, lengths of its completions
    laid: list[tuple[int, int, list[int]]] = []
    numbers = count(1)
    for number, (prompt, completions) in enumerate(groups, 1):
        start, length = len(ids), len(prompt)
        laid.append((start, length, [len(tokens) - 1 for tokens, _ in completions]))
        ids += prompt
        positions += range(length)
        branch_of += [0] * length
        for tokens, is_target in completions:
            at, past = len(ids), len(tokens) - 1
            predictors += compress([start + length - 1, *range(at, at + past)], is_target)
            targets += compress(tokens, is_target)
            ids += tokens[:-1]
            positions += range(length, length + past)
            branch_of += [next(numbers)] * past
        prompt_of += [number] * (len(ids) - start)
    filling = [0] * (-len(ids) % UNIT if rounded else 0)
    for each in (ids, positions, prompt_of, branch_of):
        each += filling
    return Pack(
        ids=torch.tensor([ids], device=device),
        positions=torch.tensor([positions], device=device),
        prompts=torch.tensor(prompt_of, device=device),
        branches=torch.tensor(branch_of, device=device),
        predictors=torch.tensor(predictors, device=device),
        targets=torch.tensor(targets, device=device),
        groups=Groups.of(
            [(start, length) for start, length, _ in laid],
            [lengths for *_, lengths in laid],
            device,
            rounded=rounded,
        ),
    )


SHARED = "plumbline_shared"
"""Under this name transformers finds `shared_attention`."""


def install_shared_attention(model: Any) -> bool:
    """Let a model's layers take `groups` beside a mask; False where its attention is not the usual
    one (sdpa)."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    config = model.config.get_text_config()
    if has_shared_attention(model):
        return True
    if config._attn_implementation != "sdpa":  # noqa: SLF001 - the only place where transformers keeps it
        return False
    AttentionInterface.register(SHARED, shared_attention)
    AttentionMaskInterface.register(SHARED, sdpa_mask)
    config._attn_implementation = SHARED  # noqa: SLF001
    return True


def has_shared_attention(model: Any) -> bool:
    """Whether `install_shared_attention` is in force."""
    return bool(model.config.get_text_config()._attn_implementation == SHARED)  # noqa: SLF001


def remove_shared_attention(model: Any) -> None:
    """Give back the attention that `install_shared_attention` replaced, if it did."""
    if has_shared_attention(model):
        model.config.get_text_config()._attn_implementation = "sdpa"  # noqa: SLF001


WINDOW = re.compile(r"window|chunk|local|extent|sparse|topk|budget")
"""In the name of a setting that says how many tokens a layer sees, or keeps."""
NO_WINDOW = re.compile(r"layer|pattern|expert|head|feed_forward|group|block|moe|router|infer")


def windows(model: Any) -> list[int]:
    """Numbers of tokens that a config names as what a layer sees, ascending; those of windows that
    are not in use, not.

    Models name them as they like: sliding_window, window_size, attention_chunk_size,
    local_attention, index_topk.
    """
    config = model.config.get_text_config()
    unused = [] if getattr(config, "use_sliding_window", True) else ["sliding_window"]
    if (kinds := getattr(config, "layer_types", None)) and all(
        kind == "full_attention" for kind in kinds
    ):
        return []
    return sorted(
        {
            value
            for name, value in config.to_dict().items()
            if isinstance(value, int) and value > 1 and WINDOW.search(name)
            if not NO_WINDOW.search(name) and name not in unused
        }
    )


def shared_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention over a pack without its square: prompts among themselves, completions to their
    prompt and their past.

    A pack of T tokens costs P^2 + G C (P + C) a prompt instead of T^2 products, and no mask of that
    size. Heads are shared as in grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245).

    Args:
        module: the layer.
        query: [1, heads, T, D].
        key: [1, key-value heads, T, D].
        value: like `key`.
        attention_mask: of a plain pass; unread where `groups` says the same.
        kwargs: what else transformers gives, such as `scaling`, and the pack's `groups`; or, of
            rows [B, ...] that are no pack, `rows`: each sees what stands before it, behind a cache
            as well, and is rounded as a pack is. With neither it is a plain pass, left to
            transformers.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    groups: Groups | None = kwargs.pop("groups", None)
    rows: bool = kwargs.pop("rows", False)
    scale = kwargs.get("scaling") or query.shape[-1] ** -0.5
    heads = key.shape[1]  # K
    if rows:  # [K, Q heads, rows, positions, D]
        states = query.unflatten(1, (heads, -1)).permute(1, 2, 0, 3, 4)
        mixed = attend(states, key.transpose(0, 1), value.transpose(0, 1), None, scale)
        return mixed.permute(2, 3, 0, 1, 4).flatten(2, 3).contiguous(), None
    if groups is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    places = torch.cat([groups.prompts.flatten(), groups.own.flatten()])
    counts = [groups.prompts.numel(), groups.own.numel()]
    (first_q, own_q), (first_k, own_k), (first_v, own_v) = (
        states[0].index_select(1, places).unflatten(0, (heads, -1)).split(counts, dim=2)
        for states in (query, key, value)
    )
    first_q, first_k, first_v = (
        states.unflatten(2, groups.prompts.shape) for states in (first_q, first_k, first_v)
    )
    first = first_k[:, 0], first_v[:, 0]  # twice [K, B, P, D]
    outputs = [attend(first_q, *first, None, scale).flatten(2, 3)]
    if groups.own.numel():
        own_q, own_k, own_v = (
            states.unflatten(2, groups.own.shape) for states in (own_q, own_k, own_v)
        )
        before = (
            *(states.index_select(1, groups.owners) for states in first),
            groups.there[groups.owners],
        )
        outputs.append(attend(own_q, own_k[:, 0], own_v[:, 0], before, scale).flatten(2, 3))
    mixed = torch.cat(outputs, dim=2).flatten(0, 1)  # [heads, prompts' and completions' places, D]
    return mixed.index_select(1, groups.order).transpose(0, 1).unsqueeze(0).contiguous(), None
