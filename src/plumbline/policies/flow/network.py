"""The transformer of FS-DFM: bidirectional, conditioned on time, and for the few-step student on
the step's size.

Letters in shapes: R rows, T tokens, L places, H hidden size, C conditioning size, V vocabulary.

Adaptive layer norm with gates that start at 0 (Peebles and Xie 2023, arXiv:2212.09748), rotary
positions, tanh GELU; layer norms and rotations in float32. The published sizes: hidden 2048,
conditioning 256, 21 layers, 32 heads, vocabulary 50,257 (GPT-2).

Attention is `full` (prompt and canvas see each other, as published) or `prefix`: the prompt is
clean text, so it is conditioned as at time 1, sees itself alone, and its keys and values are
computed once for all steps and copies.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.nn import functional

from plumbline.errors import ModelError
from plumbline.policies.flow.options import FlowModel
from plumbline.policies.flow.sampler import sinusoid
from plumbline.policies.library_errors import clear_opening_errors, refuse_growth
from plumbline.policies.masked.network import Network
from plumbline.policies.masked.policy import CANVAS, PROMPT, SEQUENCES, check_model
from plumbline.policies.model_files import held_bytes
from plumbline.policies.opening import saved_settings
from plumbline.policies.pretrained.causal_model import check_finite
from plumbline.policies.pretrained.policy import make_additive_mask, pad_rows
from plumbline.storage import read_object

MODEL_TYPE = "plumbline-flow"
FREQUENCIES = 256
Size = Annotated[int, Field(gt=0, le=2**26)]


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """Everything that decides the shape and the sampling distribution of a flow model."""

    vocabulary: Size
    hidden: Size
    conditioning: Size
    layers: Annotated[int, Field(gt=0, le=10**4)]
    heads: Size
    context: Size
    step_conditioned: bool = False
    """The few-step student: the network is told how long the step is."""
    source: Literal["uniform", "mask"] = "uniform"
    """What an empty canvas holds: random tokens, or a mask token behind the vocabulary's last."""
    exponent: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """n of kappa_t = t^n."""
    attention: Literal["full", "prefix"] = "full"
    canvas: Size | None = None

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    model_type = MODEL_TYPE

    @property
    def tokens(self) -> int:
        """Rows of embedding and head: the vocabulary, and the mask where the source is one."""
        return self.vocabulary + (self.source == "mask")


Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of places."""
KeysValues = tuple[Tensor, Tensor]
"""Of a layer: what its attention looks back at."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """Prompts as the network keeps them."""

    ids: Tensor  # [R, N]
    lengths: Tensor  # [R]
    past: Sequence[KeysValues] = ()
    """Keys and values [R, heads, N, D] of each layer; none under full attention."""

    def rows(self, index: Tensor) -> "Prefix":
        """The prompts of rows, one each."""
        past = [(keys[index], values[index]) for keys, values in self.past]
        return Prefix(self.ids[index], self.lengths[index], past)


class FlowNetwork(nn.Module):
    """See the module."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.config = config
        size = config.conditioning
        self.embed = nn.Embedding(config.tokens, config.hidden)
        self.time = TimeEmbedding(size)
        self.width: TimeEmbedding | None = TimeEmbedding(size) if config.step_conditioned else None
        self.fuse: nn.Linear | None = (
            nn.Linear(2 * size, 2 * size) if config.step_conditioned else None
        )
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm: nn.Module = Norm(config.hidden)
        self.modulation = Modulation(config, 2)
        self.head = nn.Linear(config.hidden, config.tokens)
        nn.init.normal_(self.embed.weight, std=0.02)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return self.head.weight.dtype

    def get_output_embeddings(self) -> nn.Linear:
        """The head, under transformers' name."""
        return self.head

    def encode(self, prompts: Sequence[Sequence[int]]) -> Prefix:
        """Pad prompts on the right, and under prefix attention run them through the layers."""
        ids, there = (each.to(self.device) for each in pad_rows(prompts))
        lengths = there.sum(1)
        if self.config.attention == "full":
            return Prefix(ids, lengths)
        clean = torch.ones(len(ids), device=self.device)
        positions = torch.arange(ids.shape[1], device=self.device).expand(len(ids), -1)
        _, past = self._run_layers(
            ids, self._condition(clean, torch.zeros_like(clean)), positions, there
        )
        return Prefix(ids, lengths, past)

    def _run_layers(
        self,
        ids: Tensor,
        condition: Tensor,
        positions: Tensor,
        seen: Tensor,
        past: Sequence[KeysValues] = (),
    ) -> tuple[Tensor, list[KeysValues]]:
        """States [R, T, H] behind the last layer of tokens [R, T] at these positions, and each
        layer's keys and values.

        `seen` is bool [R, keys], those of the `past` first.
        """
        states, rotation, own = self.embed(ids), self._rotation(positions), []
        for layer, before in zip_longest(self.layers, past):
            states, key, value = layer(states, condition, rotation, seen[:, None, None], before)
            own.append((key, value))
        return states, own

    def hidden_states(self, prefix: Prefix, canvas: Tensor, time: Tensor, width: Tensor) -> Tensor:
        """Hidden states [R, L, H] before the head of canvases [R, L], each behind its row's prompt.

        Args:
            prefix: one prompt a row.
            canvas: [R, L].
            time: [R], in [0, 1].
            width: [R], the step's size; read by a step-conditioned network only.
        """
        condition = self._condition(time, width)
        rows, size = canvas.shape
        within = prefix.lengths.unsqueeze(1) + torch.arange(size, device=canvas.device)
        longest = prefix.ids.shape[1]
        if self.config.attention == "prefix":
            there = torch.arange(longest, device=canvas.device) < prefix.lengths.unsqueeze(1)
            seen = torch.cat([there, torch.ones_like(canvas, dtype=torch.bool)], dim=1)
            states, _ = self._run_layers(canvas, condition, within, seen, prefix.past)
        else:
            ids = torch.zeros((rows, longest + size), dtype=torch.long, device=canvas.device)
            ids[:, :longest] = prefix.ids
            positions = torch.arange(longest + size, device=canvas.device).expand(rows, -1)
            seen = positions < (prefix.lengths + size).unsqueeze(1)
            states, _ = self._run_layers(ids.scatter(1, within, canvas), condition, positions, seen)
            states = states.gather(1, within.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
        return self._read_out(states, condition)

    def _read_out(self, states: Tensor, condition: Tensor) -> Tensor:
        """Hidden states before the head, of those behind the last layer [R, L, H]."""
        shift, scale = self.modulation(condition)
        return self.norm(states) * (1 + scale) + shift

    def get_decoder(self) -> nn.Module:
        """The layers, under transformers' name."""
        return self.layers

    def _condition(self, time: Tensor, width: Tensor) -> Tensor:
        embedded = self.time(time)
        if self.width is None or self.fuse is None:
            return functional.silu(embedded)
        return functional.silu(self.fuse(torch.cat([embedded, self.width(width)], dim=-1)))

    def _rotation(self, positions: Tensor) -> Rotation:
        """Cosines and sines [R, 1, T, D] of positions [R, T], in float32."""
        half = self.config.hidden // self.config.heads // 2
        inverse = 10_000.0 ** (
            -torch.arange(half, device=positions.device, dtype=torch.float32) / half
        )
        angle = positions.unsqueeze(-1).float() * inverse
        angle = torch.cat([angle, angle], dim=-1).unsqueeze(1)
        return angle.cos(), angle.sin()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors` into a folder."""
        from safetensors.torch import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        facts = {
            "model_type": MODEL_TYPE,
            "plumbline": {"family": "flow", "attention": self.config.attention},
        }
        text = json.dumps({**facts, **asdict(self.config)}, indent=1)
        (folder / "config.json").write_text(text + "\n", encoding="utf-8")
        weights = {
            name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()
        }
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """Read what `save_pretrained` wrote.

        Raises:
            ModelError: the config is no flow network's, or the weights do not fit it.
        """
        from safetensors.torch import load_file

        config, path = Path(folder) / "config.json", Path(folder) / "model.safetensors"
        with clear_opening_errors(
            f"the weights in {folder} are of another model", "use the config.json saved with them"
        ):
            with refuse_growth(str(folder), held_bytes(str(folder))), torch.device("meta"):
                network = cls(read_config(read_object(config), str(config)))
            network.load_state_dict(
                {name: each.float() for name, each in load_file(path).items()}, assign=True
            )
        return network


def read_config(values: Mapping[str, Any], where: str) -> FlowConfig:
    """A config from its JSON.

    Raises:
        ModelError: keys are missing, unknown or of the wrong kind.
    """
    own = {key: value for key, value in values.items() if key not in {"model_type", "plumbline"}}
    fix = "use the config.json that was saved with the model"
    try:
        config = TypeAdapter(FlowConfig).validate_json(json.dumps(own))
    except ValidationError as error:
        said = "; ".join(
            f"{one['loc'][-1]}: {one['msg']}" for one in error.errors()[:3] if one["loc"]
        )
        raise ModelError(f"{where} is damaged: {said}", fix) from error
    if config.hidden % (2 * config.heads):
        uneven = f"{config.heads} heads cannot share hidden {config.hidden} in even parts"
        raise ModelError(f"{where} is damaged: {uneven}", fix)
    return config


class TimeEmbedding(nn.Module):
    """A time or a step's size [R] as a vector [R, C]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(FREQUENCIES, size), nn.Linear(size, size)

    def forward(self, time: Tensor) -> Tensor:
        """Sinusoid, then two linear maps."""
        return self.outer(
            functional.silu(self.inner(sinusoid(time, FREQUENCIES).to(self.inner.weight.dtype)))
        )


class Norm(nn.Module):
    """Layer norm in float32 with a weight and no bias."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, states: Tensor) -> Tensor:
        """Normalise the last axis."""
        normed = functional.layer_norm(states.float(), (states.shape[-1],))
        return normed.to(states.dtype) * self.weight


class Modulation(nn.Module):
    """From the condition [R, C or 2C] to `count` vectors [R, 1, H]; all 0 at the start, so layers
    begin as nothing."""

    def __init__(self, config: FlowConfig, count: int) -> None:
        super().__init__()
        size = config.conditioning
        self.count = count
        self.fuse = nn.Linear(2 * size, size) if config.step_conditioned else None
        self.out = nn.Linear(size, count * config.hidden)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, condition: Tensor) -> tuple[Tensor, ...]:
        """Shifts, scales and gates."""
        if self.fuse is not None:
            condition = functional.silu(self.fuse(condition))
        return tuple(self.out(condition).unsqueeze(1).chunk(self.count, dim=2))


class Layer(nn.Module):
    """Attention and a feed-forward part, each shifted, scaled and gated by the condition."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        size = config.hidden
        self.heads = config.heads
        self.before_attention, self.before_feed = Norm(size), Norm(size)
        self.query, self.key, self.value, self.out = (
            nn.Linear(size, size, bias=False) for _ in range(4)
        )
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.modulation = Modulation(config, 6)

    def forward(
        self,
        states: Tensor,
        condition: Tensor,
        rotation: Rotation,
        seen: Tensor,
        past: KeysValues | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """New states [R, T, H], and this layer's keys and values of these tokens [R, heads, T, D].

        Args:
            states: [R, T, H].
            condition: [R, C].
            rotation: cosines and sines [R, 1, T, D].
            seen: bool [R, 1, 1, keys], past ones first.
            past: keys and values of the prompt.
        """
        shift_a, scale_a, gate_a, shift_f, scale_f, gate_f = self.modulation(condition)
        inner = self.before_attention(states) * (1 + scale_a) + shift_a
        query, key = (
            _rotate(self._split(part(inner)), rotation) for part in (self.query, self.key)
        )
        value = self._split(self.value(inner))
        keys, values = key, value
        if past is not None:
            keys, values = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        mixed = functional.scaled_dot_product_attention(query, keys, values, attn_mask=seen)
        states = states + gate_a * self.out(mixed.transpose(1, 2).flatten(2))
        inner = self.before_feed(states) * (1 + scale_f) + shift_f
        states = states + gate_f * self.down(functional.gelu(self.up(inner), approximate="tanh"))
        return states, key, value

    def _split(self, states: Tensor) -> Tensor:
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def _rotate(states: Tensor, rotation: Rotation) -> Tensor:
    """Rotary positions, in float32: the second half of each head turned into the first."""
    cos, sin = rotation
    wide = states.float()
    first, second = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat([-second, first], dim=-1) * sin).to(states.dtype)


# -- backbone --------------------------------------------------------------------------------------
#
# A causal transformers model as a flow network: it sees both ways, and is told the time.
#
# Letters in shapes: R rows, T tokens, H hidden size, C conditioning size.
#
# Each half of a layer is shifted, scaled and gated by the time, as FS-DFM's are (adaptive layer
# norm, Peebles and Xie 2023, arXiv:2212.09748), around what the backbone computes:
#
#     x + (1 + gate) part((1 + scale) norm(x) + shift)        part: attention, feed-forward; likewise the last norm
#
# Shifts, scales and gates come from a linear layer that starts as 0, so before its first update the
# network gives the backbone's own logits under the same attention, whatever the time. They are kept
# and applied in float32, beside a backbone of any dtype, and are trained whether or not the
# backbone has adapters.

FILE = "clock.safetensors"
"""The conditioning's weights, beside a backbone or its adapter."""
PARTS = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
"""What a layer must have."""
PLAIN_LAYERS = "use a model of plain layers (Llama, Qwen, Mistral)"
NEAR = 1e-2
"""How far hidden states may be from the backbone's own, as a share of the largest: they are the
same sums."""


class TimedBackbone(FlowNetwork):
    """See the module."""

    def __init__(self, backbone: Any, config: FlowConfig, seed: int) -> None:
        nn.Module.__init__(self)  # the weights of a `FlowNetwork` are the backbone's
        self.config, self.backbone = config, backbone
        decoder = backbone.get_decoder()
        self.embed, self.head = backbone.get_input_embeddings(), backbone.get_output_embeddings()
        self.norm, self.rotary = decoder.norm, decoder.rotary_emb
        self.width, self.fuse = None, None
        with torch.random.fork_rng():  # layers draw their start from the global generator
            torch.manual_seed(seed)
            self.time = TimeEmbedding(config.conditioning)
            self.layers = nn.ModuleList(TimedLayer(layer, config) for layer in decoder.layers)
            self.modulation = Modulation(config, 2)

    @classmethod
    def of(cls, backbone: Any, section: FlowModel, source: str, context: int, seed: int) -> Self:
        """Around a loaded backbone, with the conditioning that stands at `source`, or one that does
        nothing yet.

        Raises:
            ModelError: the backbone's layers are of another kind, or the conditioning's file is
                missing or unfit.
        """
        layers = getattr(backbone.get_decoder(), "layers", [None])
        lacking = [part for part in PARTS for layer in layers if not hasattr(layer, part)]
        if lacking or not hasattr(backbone.get_decoder(), "rotary_emb"):
            raise ModelError(
                f"the layers of {source} have no {(*lacking, 'rotary_emb')[0]}, so they cannot be "
                "told the time",
                PLAIN_LAYERS,
            )
        with clear_opening_errors(f"the layers of {source} cannot be told the time", PLAIN_LAYERS):
            saved, inner = saved_settings(source), backbone.config.get_text_config()
            config = FlowConfig(
                vocabulary=backbone.get_output_embeddings().weight.shape[0],
                hidden=inner.hidden_size,
                conditioning=section.conditioning,
                layers=len(backbone.get_decoder().layers),
                heads=inner.num_attention_heads,
                context=context,
                attention=section.attention,
                canvas=section.canvas or saved.get("canvas"),
            )
            network = cls(backbone, config, seed)
            for weight in network.clock().values():
                weight.data = weight.data.to(network.device)
            check_backbone(network, source)
            if saved.get("family") == "flow":
                network._read_clock(Path(source) / FILE)
            elif (Path(source) / FILE).is_file():
                raise ModelError(
                    f"{source} holds a {FILE}, and does not say that it is a flow",
                    f"delete {FILE} there",
                )
            check_finite(network, source)
            return network

    def clock(self) -> dict[str, nn.Parameter]:
        """The weights of the conditioning, by name; the backbone's stand under `backbone`."""
        return {
            name: weight
            for name, weight in self.named_parameters()
            if not name.startswith("backbone.")
        }

    def _read_clock(self, path: Path) -> None:
        from safetensors.torch import load_file

        mine = self.clock()
        what = f"{path} is missing or damaged, and without it the model is not told the time"
        with clear_opening_errors(what, "copy the model's whole directory"):
            found = load_file(path)
        if {name: tensor.shape for name, tensor in found.items()} != {
            name: one.shape for name, one in mine.items()
        }:
            raise ModelError(
                f"the weights in {path} are not of model.conditioning: {self.config.conditioning}",
                "set model.conditioning to what the model was trained with",
            )
        with torch.no_grad():
            for name, weight in mine.items():
                weight.copy_(found[name])

    def save_clock(self, folder: Path) -> None:
        """Write the conditioning's weights beside a backbone or its adapter."""
        from safetensors.torch import save_file

        save_file(
            {name: weight.detach().cpu().contiguous() for name, weight in self.clock().items()},
            folder / FILE,
        )

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the backbone with what its config says of its use; see `save_clock` for the
        rest."""
        facts = {
            name: getattr(self.config, name) for name in ("attention", "canvas", "conditioning")
        }
        self.backbone.config.plumbline = {"family": "flow", **facts}
        self.backbone.save_pretrained(folder)

    def _rotation(self, positions: Tensor) -> Rotation:
        """Cosines and sines [R, T, D] of positions [R, T], as the backbone takes them."""
        return self.rotary(self.embed.weight, position_ids=positions)

    def _read_out(self, states: Tensor, condition: Tensor) -> Tensor:
        """See `FlowNetwork`."""
        return _modulate(self.norm(states), *self.modulation(condition))


class TimedLayer(nn.Module):
    """A backbone's layer between shifts, scales and gates that begin as 0."""

    def __init__(self, layer: Any, config: FlowConfig) -> None:
        super().__init__()
        self.layer = layer
        self.modulation = Modulation(config, 6)

    def forward(
        self,
        states: Tensor,
        condition: Tensor,
        rotation: Rotation,
        seen: Tensor,
        past: KeysValues | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Layer.forward`; the rotation is as the backbone takes it."""
        shift_a, scale_a, gate_a, shift_f, scale_f, gate_f = self.modulation(condition)
        layer, cache = self.layer, _Past(past)
        inner = _modulate(layer.input_layernorm(states), shift_a, scale_a)
        mixed, _ = layer.self_attn(
            hidden_states=inner,
            position_embeddings=rotation,
            attention_mask=make_additive_mask(seen, states.dtype).expand(
                -1, -1, states.shape[1], -1
            ),
            past_key_values=cache,
        )
        states = states + _apply_gate(mixed, gate_a)
        inner = _modulate(layer.post_attention_layernorm(states), shift_f, scale_f)
        states = states + _apply_gate(layer.mlp(inner), gate_f)
        return states, *cache.own


class _Past:
    """What transformers' attention takes for a cache: lets it see a prompt, and keeps the keys that
    it made itself."""

    def __init__(self, past: KeysValues | None) -> None:
        self.past = past
        self.own: KeysValues

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> KeysValues:
        self.own = keys, values
        if self.past is None:
            return keys, values
        return torch.cat([self.past[0], keys], dim=2), torch.cat([self.past[1], values], dim=2)


def _modulate(states: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return (states.float() * (1 + scale) + shift).to(states.dtype)


def _apply_gate(states: Tensor, gate: Tensor) -> Tensor:
    return (states.float() * (1 + gate)).to(states.dtype)


@torch.no_grad()
def check_backbone(network: TimedBackbone, source: str) -> None:
    """Try out that a network whose conditioning does nothing yet is its backbone under a
    bidirectional mask.

    Raises:
        ModelError: it computes something else (a layer with more parts, scaled embeddings), or the
            backbone cannot be made bidirectional (see `masked.policy.check_model`).
    """
    config = network.config
    plain = Network(network.backbone, config.attention, shifted=False)
    check_model(plain, source)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, config.vocabulary, (SEQUENCES, PROMPT + CANVAS), generator=generator)
    prompts, canvas = tokens[:, :PROMPT].tolist(), tokens[:, PROMPT:].to(network.device)
    time = torch.linspace(0, 1, SEQUENCES, device=network.device)
    mine = network.hidden_states(network.encode(prompts), canvas, time, torch.zeros_like(time))
    theirs = plain.hidden(plain.encode(prompts), canvas)
    if float((mine - theirs).abs().max()) > NEAR * float(theirs.abs().max()):
        raise ModelError(
            f"told no time, the layers of {source} give something else one by one than the model "
            "as a whole",
            PLAIN_LAYERS,
        )
