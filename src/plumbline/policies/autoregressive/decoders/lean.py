"""A one-token forward pass for Llama-shaped models: the same layers, without the general machinery
around them.

Letters in shapes: P prompts, G copies, K key-value heads, Q query heads for each of those, D head
size, L longest prompt, C token limit, T tokens so far, H hidden size, V vocabulary.

The layers' own modules are called (so 4-bit layers work as they are), the adapters of those that
read the same input in one product, and the prompt's keys and values are held once for a group of
copies: a query attends to two blocks, its prompt's [P, K, L, D] and its own [P, K, G, C, D], under
one softmax.

It is used only after `probe.py` has compared it with the model's forward pass on the loaded
weights.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from plumbline.policies.autoregressive.decoders import Decoder, threads_for
from plumbline.policies.autoregressive.packing import has_shared_attention, multiply, widen
from plumbline.policies.pretrained.adapters import Projection
from plumbline.policies.pretrained.policy import pad_rows, uses_onednn
from plumbline.policies.token_logprobs import exact, logits_of

MODEL_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3"})


def explain_unsupported(model: Any) -> str | None:
    """Why this model cannot be decoded here; None where it can."""
    config = model.config
    if config.model_type not in MODEL_TYPES:
        return f"model type {config.model_type} is not one of {', '.join(sorted(MODEL_TYPES))}"
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        return "sliding-window attention"
    if "dynamic" in str(
        getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    ):
        return "rotary frequencies that depend on the length"
    return None


class LeanDecoder(Decoder):
    """The fast engine; see `decoders.Decoder`. Raises ValueError for a model that `explain_unsupported`
    names.

    With `lay_out` it keeps a copy of the weights as oneDNN wants them, where that multiplies them.
    """

    def __init__(self, model: Any, *, lay_out: bool = False) -> None:
        if reason := explain_unsupported(model):
            raise ValueError(f"the lean decoder does not fit: {reason}")
        self.model = model
        self.body = model.get_decoder()
        self.layers = list(self.body.layers)
        config = model.config
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads or self.heads
        self.head_size = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.scale = self.layers[0].self_attn.scaling
        # tokens; of each layer keys and values
        self.shared: tuple[list[int], list[tuple[Tensor, Tensor]]] = [], []
        lay_out = lay_out and uses_onednn(model)
        self.projections = [_projections(layer, lay_out=lay_out) for layer in self.layers]
        self.head = Projection([model.get_output_embeddings()], lay_out=lay_out)

    @torch.no_grad()
    def begin(
        self, prompts: Sequence[Sequence[int]], copies: int, max_tokens: int, shared: int = 0
    ) -> Tensor:
        """See `Decoder.begin`. Padding stands on the right, where causal attention never sees
        it."""
        device, dtype = self.model.device, self.model.dtype
        ids, there = (
            each.to(device) for each in pad_rows(prompts, rounded=uses_onednn(self.model))
        )
        before = self._cache_shared(list(prompts[0][:shared]), len(prompts)) if shared else None
        output = self.read(ids[:, shared:], before)
        cache = output.past_key_values.layers
        self.prompt_keys = [widen(layer.keys).transpose(-1, -2) for layer in cache]  # [P, K, D, L]
        self.prompt_values = [layer.values for layer in cache]  # [P, K, L, D]
        # [P, L]: 0 where a token is, minus infinity elsewhere
        self.prompt_bias = torch.zeros_like(there, dtype=dtype).masked_fill(~there, float("-inf"))
        self.padded = min(map(len, prompts)) < ids.shape[1]
        self.lengths = lengths = there.sum(1)
        self.rope = self.rotary(ids.shape[1] + max_tokens)
        self.time = torch.zeros(1, dtype=torch.long, device=device)
        self.past = 0
        self.shape = (len(prompts), copies)
        shape = (len(self.layers), len(prompts), self.kv_heads, copies, max_tokens, self.head_size)
        self.keys = widen(torch.zeros(shape, dtype=dtype, device=device))
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        last = output.last_hidden_state[
            torch.arange(len(prompts), device=device), lengths - 1 - shared
        ]
        self.hidden = last.repeat_interleave(copies, 0)
        return logits_of(self.model.get_output_embeddings(), last)

    def _cache_shared(self, shared: list[int], rows: int) -> Any:
        """A cache that holds `shared` in each of so many rows; the tokens are read once, however
        many chunks follow."""
        from transformers import DynamicCache

        if self.shared[0] != shared:
            ids, _ = pad_rows([shared], rounded=uses_onednn(self.model))
            read = self.read(ids.to(self.model.device)).past_key_values.layers
            self.shared = (
                shared,
                [tuple(each[:, :, : len(shared)] for each in (of.keys, of.values)) for of in read],
            )
        cache = DynamicCache()
        for index, states in enumerate(self.shared[1]):
            cache.update(*(each.expand(rows, -1, -1, -1) for each in states), index)
        return cache

    def read(self, ids: Tensor, before: Any = None) -> Any:
        """The body's output for ids [P, L] behind a cache: on a CPU, in 16 bits, rounded as a
        scored pack is."""
        if not (uses_onednn(self.model) and has_shared_attention(self.model)):
            return self.body(ids, past_key_values=before, use_cache=True)
        # with None transformers makes one
        no_mask = torch.zeros((1, 1, 1, 1), dtype=self.model.dtype)
        return self.body(
            ids, past_key_values=before, use_cache=True, attention_mask=no_mask, rows=True
        )

    def rotary(self, length: int) -> Tensor:
        """Cosines and signed sines [length, 2, D], from the model's own rotary module, so every
        scaling is kept."""
        device, dtype = self.model.device, self.model.dtype
        cos, sin = self.body.rotary_emb(
            torch.zeros(1, device=device, dtype=dtype),
            torch.arange(length, device=device).unsqueeze(0),
        )
        half = self.head_size // 2
        # rotate_half(x) * sin == roll(x, D/2) * signed sin: one kernel less than negating and
        # concatenating.
        signed = torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)
        return torch.stack([cos[0], signed[0]], dim=1)

    @torch.no_grad()
    def step(self, tokens: Tensor) -> Tensor:
        """See `Decoder.step`."""
        width = self.model.config.hidden_size
        with threads_for(len(tokens) * width * width):
            self.hidden = hidden = self._forward(tokens)
        self.past += 1
        self.time += 1
        with threads_for(len(tokens) * width * self.model.config.vocab_size):
            return logits_of(self.model.get_output_embeddings(), hidden, self.head(hidden)[0])

    @torch.no_grad()
    def exact(self, logits: Tensor, rows: Sequence[int]) -> Tensor:
        """See `Decoder.exact`."""
        head = self.model.get_output_embeddings()
        if type(head) is not nn.Linear:
            return logits
        again = exact(logits.to(self.model.dtype), self.hidden[list(rows)], head.weight, head.bias)
        return again.masked_fill(logits.isneginf(), float("-inf"))

    def _forward(self, tokens: Tensor) -> Tensor:
        """The hidden states [R, H] of one more position."""
        span = self.past + 1
        cos, sin = self.rope[self.lengths + self.time].unbind(1)  # [P, D] each
        cos, sin = cos[:, None, None, None], sin[:, None, None, None]
        bias = None
        if self.padded:
            own_bias = self.prompt_bias.new_zeros(self.shape[0], 1, 1, 1, span)
            bias = torch.cat([self.prompt_bias[:, None, None, None], own_bias], dim=-1)
        hidden = self.body.embed_tokens(tokens)
        for index, layer in enumerate(self.layers):
            hidden = hidden + self._attend(
                index, _norm(layer.input_layernorm, hidden), (cos, sin), span, bias
            )
            gate, up = self.projections[index]["mlp"](_norm(layer.post_attention_layernorm, hidden))
            hidden = hidden + self.projections[index]["down"](layer.mlp.act_fn(gate) * up)[0]
        return _norm(self.body.norm, hidden)

    def _attend(
        self,
        index: int,
        hidden: Tensor,
        rope: tuple[Tensor, Tensor],
        span: int,
        bias: Tensor | None,
    ) -> Tensor:
        """Attention of one new position in each row to its prompt and to its own past, under one
        softmax."""
        num_prompts, copies = self.shape
        attention, grid = (
            self.layers[index].self_attn,
            (*self.shape, self.kv_heads, -1, self.head_size),
        )
        # [P, G, K, Q, D]; keys and values have Q = 1
        query, key, value = (
            states.view(grid) for states in self.projections[index]["attention"](hidden)
        )
        if hasattr(attention, "q_norm"):
            query, key = _norm(attention.q_norm, query), _norm(attention.k_norm, key)
        query, key = _rotate(query, *rope), _rotate(key, *rope)
        # Heads before copies: the copies of a prompt then share one matrix product with its keys.
        query = query.transpose(1, 2)  # [P, K, G, Q, D]
        own_keys, own_values = self.keys[index], self.values[index]
        own_keys.index_copy_(3, self.time, widen(key.transpose(1, 2)))
        own_values.index_copy_(3, self.time, value.transpose(1, 2))
        own_keys, own_values = own_keys[..., :span, :], own_values[..., :span, :]
        shape = (num_prompts, self.kv_heads, -1, self.head_size)
        to_prompt = multiply(query.reshape(shape), self.prompt_keys[index])
        to_prompt = to_prompt.view(*query.shape[:-1], -1)
        scores = torch.cat([to_prompt, multiply(query, own_keys.transpose(-1, -2))], dim=-1)
        scores *= self.scale
        if bias is not None:
            scores += bias
        weights = scores.softmax(-1).to(value.dtype)
        length = to_prompt.shape[-1]
        from_prompt = weights[..., :length].reshape(*shape[:-1], length) @ self.prompt_values[index]
        mixed = from_prompt.view(query.shape) + weights[..., length:] @ own_values
        return self.projections[index]["out"](
            mixed.transpose(1, 2).reshape(num_prompts * copies, -1)
        )[0]

    @torch.no_grad()
    def keep(self, prompts: Tensor, copies: Tensor) -> None:
        """See `Decoder.keep`."""
        if len(prompts) < self.shape[0]:
            self.prompt_keys = [keys[prompts] for keys in self.prompt_keys]
            self.prompt_values = [values[prompts] for values in self.prompt_values]
            self.prompt_bias, self.lengths = self.prompt_bias[prompts], self.lengths[prompts]
        rows, columns = prompts.unsqueeze(1), copies
        # Advanced indices at axes 1 and 3 come first in the result: [P', G', layers, K, C, D].
        self.keys = self.keys[:, rows, :, columns].permute(2, 0, 3, 1, 4, 5).contiguous()
        self.values = self.values[:, rows, :, columns].permute(2, 0, 3, 1, 4, 5).contiguous()
        self.shape = (len(prompts), copies.shape[1])


def _projections(layer: Any, *, lay_out: bool) -> dict[str, Projection]:
    """The linear layers of a block, together where they read the same input."""
    attention, mlp = layer.self_attn, layer.mlp
    together = {
        "attention": [attention.q_proj, attention.k_proj, attention.v_proj],
        "out": [attention.o_proj],
        "mlp": [mlp.gate_proj, mlp.up_proj],
        "down": [mlp.down_proj],
    }
    return {name: Projection(layers, lay_out=lay_out) for name, layers in together.items()}


def _norm(module: Any, hidden: Tensor) -> Tensor:
    """RMS norm in one kernel; in 16 bits with the rounding of transformers' module: normalise,
    round, then weigh."""
    size = (hidden.shape[-1],)
    if hidden.dtype == torch.float32:
        return functional.rms_norm(hidden, size, module.weight, module.variance_epsilon)
    normed = functional.rms_norm(hidden.float(), size, None, module.variance_epsilon)
    return normed.to(hidden.dtype) * module.weight


def _rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of [P, G, K, Q, D] by cosines and signed sines [P, 1, 1, 1, D]."""
    # Both products are rounded, as transformers' are.
    return (states * cos).add_(states.roll(states.shape[-1] // 2, -1).mul_(sin))
