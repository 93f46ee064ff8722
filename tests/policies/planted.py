"""Errors as they could stand in a short cut, to be planted with a `pytest.MonkeyPatch`: each must
be found."""

from dataclasses import replace

import torch

from plumbline.policies.autoregressive import packing, probe
from plumbline.policies.autoregressive import packing as bands
from plumbline.policies.autoregressive.decoders import lean
from plumbline.policies.pretrained import adapters, fused

LEAN = "lean decoder (its logits differ from the model's own)"


def late_positions_in_packs(patch, model):
    """A completion's first token stands two places behind its prompt's last."""
    true = probe.pack

    def wrong(*args, **kwargs):
        packed = true(*args, **kwargs)
        return replace(packed, positions=packed.positions + (packed.branches != 0))

    patch.setattr(probe, "pack", wrong)


def no_mask_between_completions(patch, model):
    """A completion sees those before it."""
    true = probe.pack
    patch.setattr(
        probe,
        "pack",
        lambda *args, **kw: replace(p := true(*args, **kw), branches=torch.zeros_like(p.branches)),
    )


def groups_without_a_mask(patch, model):
    """A completion's token sees its own future."""
    patch.setattr(
        bands, "_later_keys", lambda places: torch.zeros((places, places), dtype=torch.bool)
    )


def groups_of_a_neighbour(patch, model):
    """A completion attends to the keys of the one before it."""
    true = packing.Groups.of

    def wrong(*args, **kwargs):
        groups = true(*args, **kwargs)
        return replace(groups, own=groups.own.roll(1, 0))

    patch.setattr(packing.Groups, "of", wrong)


def late_positions_in_decoding(patch, model):
    true = lean.LeanDecoder.begin

    def wrong(self, *args):
        logits = true(self, *args)
        self.lengths = self.lengths + 1
        return logits

    patch.setattr(lean.LeanDecoder, "begin", wrong)


def wrong_rope_sign(patch, model):
    true = lean.LeanDecoder.rotary
    sign = torch.tensor([1, -1]).unsqueeze(1)
    patch.setattr(
        lean.LeanDecoder,
        "rotary",
        lambda self, length: true(self, length) * sign.to(self.model.dtype),
    )


def scaled_head(patch, model):
    """The model itself divides its logits, as some do; whoever calls the head alone misses that."""
    true = model.forward

    def scaled(*args, **kwargs):
        output = true(*args, **kwargs)
        output.logits = output.logits / 1.1
        return output

    patch.setattr(model, "forward", scaled)


def unscaled_adapters(patch, model):
    """alpha / rank is left out."""
    true = fused.low_rank
    patch.setattr(fused, "low_rank", lambda layer: (true(layer)[0], layer.lora_B["default"].weight))


def ignored_adapters(patch, model):
    patch.setattr(fused, "_add", lambda base, *_: base)


def one_ignored_adapter(patch, model):
    """That of the values only, in every layer."""
    values = {id(layer.self_attn.v_proj) for layer in model.get_decoder().layers}
    true = fused._forward

    def wrong(layer, hidden):
        return layer.base_layer(hidden) if id(layer) in values else true(layer, hidden)

    patch.setattr(fused, "_forward", wrong)


def gates_without_silu(patch, model):
    patch.setattr(fused, "_mlp", lambda mlp, x: mlp.down_proj(mlp.gate_proj(x) * mlp.up_proj(x)))


def adapters_ignored_in_decoding(patch, model):
    class Bare(adapters.Projection):
        def __init__(self, layers, **how):
            super().__init__([getattr(layer, "base_layer", layer) for layer in layers], **how)

    patch.setattr(lean, "Projection", Bare)


def merged_adapters(patch, policy):
    """The sampler merges adapters into weights of 16 bits: below half of what those stand apart
    nothing is left."""
    true = policy.sample

    def sample(requests):
        policy.adapter.merge_adapter()
        try:
            yield from true(requests)
        finally:
            policy.adapter.unmerge_adapter()

    patch.setattr(policy, "sample", sample)


PLANTED = {
    late_positions_in_packs: ["packed scoring", "shared attention"],
    no_mask_between_completions: ["packed scoring", "shared attention"],
    groups_without_a_mask: ["shared attention"],
    groups_of_a_neighbour: ["shared attention"],
    late_positions_in_decoding: [LEAN],
    wrong_rope_sign: [LEAN],
    scaled_head: ["sliced head", "packed scoring", "shared attention", LEAN],
    unscaled_adapters: ["fused adapters"],
    ignored_adapters: ["fused adapters"],
    one_ignored_adapter: ["fused adapters"],
    gates_without_silu: ["fused adapters"],
    adapters_ignored_in_decoding: [LEAN],
}
"""What the probe must leave out for each."""
