"""A causal transformers model as a flow network: it sees both ways, and is told the time.

Letters in shapes: R rows, T tokens, H hidden size, C conditioning size.

Each half of a layer is shifted, scaled and gated by the time, as FS-DFM's are (adaptive layer norm, Peebles and Xie
2023, arXiv:2212.09748), around what the backbone computes:

    x + (1 + gate) part((1 + scale) norm(x) + shift)        part: attention, feed-forward; likewise the last norm

Shifts, scales and gates come from a linear layer that starts as 0, so before its first update the network gives the
backbone's own logits under the same attention, whatever the time. They are kept and applied in float32, beside a
backbone of any dtype, and are trained whether or not the backbone has adapters.
"""

from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from plumbline.errors import ModelError
from plumbline.policies.flow.network import FlowConfig, FlowNetwork, Modulation, TimeEmbedding
from plumbline.policies.flow.options import FlowModel
from plumbline.policies.masked.network import Network
from plumbline.policies.masked.probe import CANVAS, PROMPT, SEQUENCES, check_model
from plumbline.policies.opening import clear_opening_errors
from plumbline.policies.pretrained.inputs import additive
from plumbline.policies.pretrained.loading import check_finite
from plumbline.policies.saved import saved_settings

FILE = "clock.safetensors"
"""The conditioning's weights, beside a backbone or its adapter."""
PARTS = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
"""What a layer must have."""
NEAR = 1e-2
"""How far hidden states may be from the backbone's own, as a share of the largest: they are the same sums."""


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
        """Around a loaded backbone, with the conditioning that stands at `source`, or one that does nothing yet.

        Raises:
            ModelError: the backbone's layers are of another kind, or the conditioning's file is missing or unfit.
        """
        layers = getattr(backbone.get_decoder(), "layers", [None])
        lacking = [part for part in PARTS for layer in layers if not hasattr(layer, part)]
        if lacking or not hasattr(backbone.get_decoder(), "rotary_emb"):
            raise ModelError(
                f"the layers of {source} have no {(*lacking, 'rotary_emb')[0]}, so they cannot be told the time",
                "use a model of plain layers (Llama, Qwen, Mistral)",
            )
        fix = "use a model of plain layers (Llama, Qwen, Mistral)"
        with clear_opening_errors(f"the layers of {source} cannot be told the time", fix):
            return cls._around(backbone, section, source, context, seed)

    @classmethod
    def _around(cls, backbone: Any, section: FlowModel, source: str, context: int, seed: int) -> Self:
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
            raise ModelError(f"{source} holds a {FILE}, and does not say that it is a flow", f"delete {FILE} there")
        check_finite(network, source)
        return network

    def clock(self) -> dict[str, nn.Parameter]:
        """The weights of the conditioning, by name; the backbone's stand under `backbone`."""
        return {name: weight for name, weight in self.named_parameters() if not name.startswith("backbone.")}

    def _read_clock(self, path: Path) -> None:
        from safetensors.torch import load_file

        mine = self.clock()
        what = f"{path} is missing or damaged, and without it the model is not told the time"
        with clear_opening_errors(what, "copy the model's whole directory"):
            found = load_file(path)
        if {name: tensor.shape for name, tensor in found.items()} != {name: one.shape for name, one in mine.items()}:
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

        save_file({name: weight.detach().cpu().contiguous() for name, weight in self.clock().items()}, folder / FILE)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the backbone with what its config says of its use; see `save_clock` for the rest."""
        facts = {
            "attention": self.config.attention,
            "canvas": self.config.canvas,
            "conditioning": self.config.conditioning,
        }
        self.backbone.config.plumbline = {"family": "flow", **facts}
        self.backbone.save_pretrained(folder)

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [R, T, D] of positions [R, T], as the backbone takes them."""
        cos, sin = self.rotary(self.embed.weight, position_ids=positions)
        return cos, sin

    def _read_out(self, states: Tensor, condition: Tensor) -> Tensor:
        """See `FlowNetwork`."""
        return _modulated(self.norm(states), *self.modulation(condition))


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
        rotation: tuple[Tensor, Tensor],
        seen: Tensor,
        past: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `network.Layer.forward`; the rotation is as the backbone takes it."""
        shift_a, scale_a, gate_a, shift_f, scale_f, gate_f = self.modulation(condition)
        layer, cache = self.layer, _Past(past)
        inner = _modulated(layer.input_layernorm(states), shift_a, scale_a)
        mixed, _ = layer.self_attn(
            hidden_states=inner,
            position_embeddings=rotation,
            attention_mask=additive(seen, states.dtype).expand(-1, -1, states.shape[1], -1),
            past_key_values=cache,
        )
        states = states + _gated(mixed, gate_a)
        inner = _modulated(layer.post_attention_layernorm(states), shift_f, scale_f)
        states = states + _gated(layer.mlp(inner), gate_f)
        return states, *cache.own


class _Past:
    """What transformers' attention takes for a cache: lets it see a prompt, and keeps the keys that it made itself."""

    def __init__(self, past: tuple[Tensor, Tensor] | None) -> None:
        self.past = past
        self.own: tuple[Tensor, Tensor]

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.own = keys, values
        if self.past is None:
            return keys, values
        return torch.cat([self.past[0], keys], dim=2), torch.cat([self.past[1], values], dim=2)


def _modulated(states: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return (states.float() * (1 + scale) + shift).to(states.dtype)


def _gated(states: Tensor, gate: Tensor) -> Tensor:
    return (states.float() * (1 + gate)).to(states.dtype)


@torch.no_grad()
def check_backbone(network: TimedBackbone, source: str) -> None:
    """Try out that a network whose conditioning does nothing yet is its backbone under a bidirectional mask.

    Raises:
        ModelError: it computes something else (a layer with more parts, scaled embeddings), or the backbone cannot be
            made bidirectional (see `masked.probe.check_model`).
    """
    config = network.config
    plain = Network(network.backbone, config.attention, shifted=False)
    check_model(plain, source)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, config.vocabulary, (SEQUENCES, PROMPT + CANVAS), generator=generator)
    prompts, canvas = tokens[:, :PROMPT].tolist(), tokens[:, PROMPT:].to(network.device)
    time = torch.linspace(0, 1, SEQUENCES, device=network.device)
    mine = network.places(network.encode(prompts), canvas, time, torch.zeros_like(time))
    theirs = plain.hidden(plain.encode(prompts), canvas)
    if float((mine - theirs).abs().max()) > NEAR * float(theirs.abs().max()):
        raise ModelError(
            f"told no time, the layers of {source} give something else one by one than the model as a whole",
            "use a model of plain layers (Llama, Qwen, Mistral)",
        )
