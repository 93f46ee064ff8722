"""LoRA layers in few products: y = W x + s B (A x), with A and B as exact as they are stored.

Letters in shapes: N rows, H inputs, O outputs, r rank.

peft (Hu et al. 2021, arXiv:2106.09685) keeps A and B in float32 beside 16-bit weights and casts
every input and output to float32 and back, which costs more than the products. Here the products
run in the model's dtype, with each float32 matrix written as the sum of two 16-bit ones, high + low
(16 bits of mantissa): rounding it to one 16-bit matrix, or merging it into W, would drop updates of
the size that RL makes. The products with the low halves are never added to those with the high ones
in 16 bits, where they would be rounded away; they meet in the accumulator of the last product: s
(B_high A_high x + B_high A_low x + B_low A_high x). Layers that read the same input share one
product with their A's. `fused.py` puts this in the place of peft's own forward pass, where it gives
the same.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import reduce_tensor
from torch.nn import functional

from plumbline.errors import EngineError
from plumbline.policies.pretrained.numerics import UNFIT
from plumbline.policies.pretrained.weight_sync_check import NumberPair
from plumbline.storage import apply_umask, clear_os_errors, folder_beside

ORIGINAL = "plumbline_original_forward"
"""The attribute of a module that keeps its forward pass while one of `fused.py` is in place."""
ROWS = 32
"""Of a product that weights are laid out for; one of 1 to 128 is as fast with it as with a layout
of its own."""
FILLED = 0.2
"""Size of B A while adapters are tried, as a share of a usual weight matrix of that width."""


def lora_layers(model: Any) -> list[Any]:
    """Every LoRA linear layer of a model."""
    from peft.tuners.lora import Linear

    return [module for module in model.modules() if isinstance(module, Linear)]


def find_adapted_modules(model: Any) -> set[str]:
    """Names of the modules of a model that have LoRA adapters."""
    from peft.tuners.lora import LoraLayer

    return {name for name, module in model.named_modules() if isinstance(module, LoraLayer)}


def list_unadapted_layers(model: Any) -> list[str]:
    """Names of the linear layers of a model that have no adapter, its head left out."""
    inside = tuple(f"{name}." for name in find_adapted_modules(model))
    return [
        name
        for name in _linear(model)
        if not name.startswith(inside) and name.rpartition(".")[2] != "base_layer"
    ]


def _linear(model: Any) -> dict[str, nn.Linear]:
    head = model.get_output_embeddings()
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    }


def not_for_adapters(model: Any) -> list[str]:
    """Names of linear layers that adapters of "all" are not for.

    Those that are outside of the language model, such as a vision tower's; routers and others with
    a forward pass of their own; those whose weight the model reads without calling them, so that an
    adapter would never act; and those that peft refuses for the same reason.
    """
    from peft import LoraConfig
    from peft.tuners.lora import LoraModel

    config = LoraConfig()
    within = set(model.get_decoder().modules())
    # what the class calls its decoder is something else
    if model.get_input_embeddings() not in within:
        within = set(model.modules())
    passed_over = _passed_over(model)

    def refused(name: str) -> bool:
        try:
            LoraModel._check_target_module_compatiblity(  # noqa: SLF001
                None, config, model, name.rpartition(".")[2]
            )
        except ValueError:
            return True
        return False

    return [
        name
        for name, module in _linear(model).items()
        if module not in within or _is_special(module) or name in passed_over or refused(name)
    ]


@torch.no_grad()
def _passed_over(model: Any) -> set[str]:
    """Names of linear layers that a pass does not call, though it calls the module that they stand
    in.

    An expert that no token was sent to is not called, and so is not passed over.
    """
    called: set[Any] = set()
    hooks = [
        module.register_forward_pre_hook(lambda module, _: called.add(module))
        for module in model.modules()
    ]
    try:
        model(torch.arange(4, device=model.device)[None], use_cache=False)
    except UNFIT:
        return set()  # of another family: no language model that takes tokens alone
    finally:
        for hook in hooks:
            hook.remove()
    return {
        name
        for name, module in _linear(model).items()
        if module not in called and model.get_submodule(name.rpartition(".")[0]) in called
    }


def _is_special(layer: nn.Linear) -> bool:
    """Whether a model's own code has given a linear layer another forward pass."""
    kind = type(layer)
    return kind.forward is not nn.Linear.forward and kind.__module__.startswith(
        ("transformers.models.", "transformers_modules.")
    )


@contextmanager
def randomise_adapters(model: Any) -> Iterator[None]:
    """While open, adapters do something: new ones start as 0, and a wrong scale on 0 would not be
    seen."""
    before: list[tuple[Tensor, Tensor]] = []
    generator = torch.Generator().manual_seed(0)
    for layer in lora_layers(model):
        for name, up in layer.lora_B.items():
            if name not in layer.lora_A:
                continue
            before.append((up.weight, up.weight.data))
            size = FILLED / (layer.scaling[name] * up.weight.shape[1] ** 0.5)
            up.weight.data = (torch.randn(up.weight.shape, generator=generator) * size).to(
                up.weight
            )
    try:
        yield
    finally:
        for weight, data in before:
            weight.data = data


class Projection:
    """Linear layers that read the same input, for decoding: their weights are taken as they are
    when it is made.

    With `lay_out` the weights are copied into one matrix, as oneDNN wants it: of a few rows a
    product then takes two thirds of the time (16 rows, 576 x 3072: 205 us instead of 309), with the
    same bits, and all layers are one product.
    """

    def __init__(self, layers: Sequence[Any], *, lay_out: bool = False) -> None:
        """Take linear layers, with or without adapters."""
        self.layers = list(layers)
        parts = [low_rank(layer) if hasattr(layer, ORIGINAL) else None for layer in layers]
        self.ups: list[Tensor | None] = []  # [r or 3r, O] each; see `_spread`
        self.ranks: list[int] = []
        downs = []
        for layer, part in zip(layers, parts, strict=True):
            if part is None:
                self.ups.append(None)
                self.ranks.append(0)
                continue
            down, up = part
            dtype = layer.base_layer.weight.dtype
            # quantised: the products run in the adapter's own dtype
            if not dtype.is_floating_point:
                dtype = down.dtype
            downs.append(split_halves(down.detach(), dtype).flatten(0, 1))
            self.ups.append(_spread(up.detach(), dtype).contiguous())
            self.ranks.append(down.shape[0])
        self.widths = [len(down) for down in downs]  # r or 2r each
        self.down = torch.cat(downs) if downs else None  # [sum of widths, H]
        self.laid_out, self.bias = _laid_out(layers, parts) if lay_out else (None, None)
        # A x is needed as high, low and high; zeros keep the layers apart
        if self.laid_out is not None and downs:
            ranks = filter(None, self.ranks)
            thrice = [
                torch.cat([down, down[: len(down) - rank]])
                for down, rank in zip(downs, ranks, strict=True)
            ]
            wide = [
                layer.weight.new_zeros(0, layer.out_features) if up is None else up
                for up, layer in zip(self.ups, layers, strict=True)
            ]
            self.low_rank = (
                _lay_out(torch.cat(thrice)),
                _lay_out(torch.block_diag(*wide).T.contiguous()),
            )

    def __call__(self, hidden: Tensor) -> Sequence[Tensor]:
        """Outputs [N, O] of every layer for inputs [N, H], without gradient."""
        if self.laid_out is not None:
            whole = _times(hidden, self.laid_out, bias=self.bias)
            if self.down is not None:
                low = _times(hidden, self.low_rank[0])
                whole = _times(low, self.low_rank[1], base=whole)
            return whole.split([layer.out_features for layer in self.layers], dim=1)
        if self.down is None:
            return [layer(hidden) for layer in self.layers]
        low = functional.linear(hidden.to(self.down.dtype), self.down)
        parts = iter(low.split(self.widths, dim=1))
        outputs = []
        for layer, up, rank in zip(self.layers, self.ups, self.ranks, strict=True):
            if up is None:
                outputs.append(layer(hidden))
                continue
            outputs.append(_add(layer.base_layer(hidden), next(parts), up, rank))
        return outputs


def _laid_out(layers: Sequence[Any], parts: Sequence[Any]) -> tuple[Tensor | None, Tensor | None]:
    """The weights of some layers as one matrix of oneDNN's own layout, and their biases; None where
    they are more than bfloat16 matrices, or have no bias.

    The operations are those that torch's compiler calls on a CPU; a torch without them goes
    without.
    """
    bases = [
        layer if part is None else layer.base_layer
        for layer, part in zip(layers, parts, strict=True)
    ]
    plain = all(type(base) is nn.Linear for base in bases)
    there = hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    if not (plain and there and torch.ops.mkldnn._is_mkldnn_bf16_supported()):  # noqa: SLF001
        return None, None
    weights = [base.weight.detach() for base in bases]
    if any(weight.dtype != torch.bfloat16 for weight in weights):
        return None, None
    if all(base.bias is None for base in bases):
        return _lay_out(torch.cat(weights)), None
    biases = [
        weight.new_zeros(len(weight)) if base.bias is None else base.bias.detach()
        for base, weight in zip(bases, weights, strict=True)
    ]
    return _lay_out(torch.cat(weights)), torch.cat(biases)


def _lay_out(weight: Tensor) -> Tensor:
    """W [O, H] as oneDNN wants it."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)  # noqa: SLF001


def _times(
    hidden: Tensor, laid_out: Tensor, *, bias: Tensor | None = None, base: Tensor | None = None
) -> Tensor:
    """x W^T + bias [N, O] for x [N, H], or base [N, O] + x W^T, rounded once as `addmm_` does."""
    linear: Any = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
    return (
        linear(hidden, laid_out, bias, "none", [], "")
        if base is None
        else linear.binary(hidden, base, laid_out, None, "add")
    )


def split_halves(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """A matrix [a, b] as [1, a, b] in its own dtype, or as [2, a, b] of a narrower one whose sum it
    is (nearly).

    The gradient is that of the matrix itself: the second half is a constant.
    """
    if dtype == matrix.dtype:
        return matrix.unsqueeze(0)
    high = matrix.to(dtype)
    with torch.no_grad():
        low = (matrix - high).to(dtype)
    return torch.stack([high, low])


def low_rank(layer: Any) -> tuple[Tensor, Tensor] | None:
    """A [r, H] and s B [O, r] of a layer's adapter; None where it has several, none, or more to it
    than these."""
    names = layer.active_adapters
    if layer.disable_adapters or layer.merged or len(names) != 1 or names[0] not in layer.lora_A:
        return None
    (name,) = names
    down, up = layer.lora_A[name], layer.lora_B[name]
    variants = getattr(layer, "lora_variant", {})
    if name in variants or up.bias is not None or not _is_idle(layer.lora_dropout[name]):
        return None
    return down.weight, up.weight * layer.scaling[name]


def _is_idle(dropout: Any) -> bool:
    return type(dropout) is torch.nn.Identity or (
        type(dropout) is torch.nn.Dropout and dropout.p == 0
    )


def _spread(up: Tensor, dtype: torch.dtype) -> Tensor:
    """s B [O, r] as the factor of what `_add` makes of A x: [r, O], or [3r, O] as high, high and
    low."""
    summands = split_halves(up, dtype).transpose(1, 2)
    return summands[0] if len(summands) == 1 else torch.cat([summands[0], summands[0], summands[1]])


def _add(base: Tensor, low: Tensor, up: Tensor, rank: int) -> Tensor:
    """base [N, O] + A x [N, r], given as one or two summands [N, r or 2r], times s B [r or 3r, O];
    base is changed."""
    if low.shape[1] > rank:
        low = torch.cat([low, low[:, :rank]], dim=1)  # by high and low of A, and again by its high
    return base.addmm_(low.to(base.dtype), up.to(base.dtype))


# -- merged ----------------------------------------------------------------------------------------
#
# A policy's weights for somebody else who draws with them: in files, or in memory, and what
# rounding made of them.
#
# Letters in shapes: S sampled elements. What is measured on them is `arrival.py`'s.

SPREAD = 2**14
"""Elements of each trained matrix that are compared: of 210 matrices 3.4 million, so a share is
exact to 0.001."""
STABLE = "STABLE"
"""Written into an adapter's folder when all else is there."""


def check_mergeable(policy: Any) -> None:
    """Refuse a policy whose adapter is more than W + s B A of linear layers of its own: merged it
    is another model.

    Raises:
        EngineError: says what stands in the way.
    """
    for reason in _obstacles(policy):
        raise EngineError(
            f"the adapter cannot be merged into the weights: {reason}",
            "set engine.publish: lora, or leave out engine",
        )


def _obstacles(policy: Any) -> Iterator[str]:
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import AuxiliaryTrainingWrapper, PeftType

    if policy.adapter is None:
        return
    kind = policy.adapter.peft_config["default"].peft_type
    if kind != PeftType.LORA:
        yield f"it is {kind.value}, not LoRA"
    ours = set(lora_layers(policy.model))
    for name, module in policy.model.named_modules():
        if module in ours:
            if low_rank(module) is None:
                yield (
                    f"{name} has more to it than two low-rank matrices (such as DoRA or lora_bias)"
                )
        elif isinstance(module, BaseTunerLayer | AuxiliaryTrainingWrapper):
            yield (
                f"{name} is adapted by peft's {type(module).__name__}, and only LoRA of linear "
                "layers can be"
            )
    owners: dict[int, list[str]] = {}
    for name, module in policy.model.named_modules():  # each once, under whatever names it stands
        for weight in module.parameters(recurse=False):
            owners.setdefault(id(weight), []).append(name.removesuffix(".base_layer"))
    for layer in ours:
        shared = owners[id(layer.base_layer.weight)]
        if len(shared) > 1:
            yield (
                f"{' and '.join(shared)} have one weight, and merging would change it for all of "
                "them"
            )


def merge_adapters(policy: Any) -> Iterator[tuple[str, Tensor, bool]]:
    """Every weight of a policy's model in float32, adapters added in, and whether training changes
    it.

    Raises:
        EngineError: adapters that cannot be merged (see `check_mergeable`), or are on quantised
            weights.
    """
    check_mergeable(policy)
    ours = set(lora_layers(policy.model))
    layers = {
        name: one for name, one in policy.model.named_modules(remove_duplicate=False) if one in ours
    }
    trained = {name for name, weight in policy.model.named_parameters() if weight.requires_grad}
    seen = set[tuple[int, Any]]()
    with torch.no_grad():
        for name, weight in policy.model.state_dict().items():
            if name.partition(".lora_")[0] in layers:
                continue
            owner, _, rest = name.partition(".base_layer.")
            if ".lora_" in name or not weight.is_floating_point() or weight.element_size() == 1:
                raise EngineError(
                    f"{name} ({weight.dtype}) cannot be merged with its adapter",
                    "set engine.publish: lora",
                )
            if (weight.data_ptr(), weight.shape) in seen:  # tied weights are written once
                continue
            seen.add((weight.data_ptr(), weight.shape))
            if rest == "weight":
                yield (
                    f"{owner}.weight",
                    weight.float() + layers[owner].get_delta_weight("default").float(),
                    True,
                )
            else:
                yield f"{owner}.{rest}" if rest else name, weight.float(), name in trained


def sample_elements(matrix: Tensor) -> Tensor:
    """Some elements [S] of a matrix, always those at the same places, on the CPU."""
    flat = matrix.detach().flatten()
    return flat[:: max(1, len(flat) // SPREAD)].float().cpu().clone()


def write_full(policy: Any, folder: Path, dtype: torch.dtype) -> NumberPair:
    """Write a policy's model with adapters merged in float32 and then rounded, each file whole or
    not at all.

    Args:
        policy: its tokenizer and configuration are written, too.
        folder: what a server has opened may stand there; it keeps reading what it has open.
        dtype: of the server.
    """
    state, sampled = round_weights(policy, dtype)
    with clear_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with folder_beside(folder) as temporary:
            policy.model.save_pretrained(temporary, state_dict=state)
            policy.chat.tokenizer.save_pretrained(temporary)
            apply_umask(temporary)
            for file in sorted(
                temporary.iterdir(), key=lambda one: one.name.endswith(".index.json")
            ):
                file.replace(folder / file.name)
    return sampled


def round_weights(policy: Any, dtype: torch.dtype) -> tuple[dict[str, Tensor], NumberPair]:
    """All weights in the server's dtype by name, and what rounding did to those that are
    trained."""
    state: dict[str, Tensor] = {}
    pairs = list[tuple[Tensor, Tensor]]()
    for name, weight, trained in merge_adapters(policy):
        state[name] = weight.to(dtype)
        if trained:
            pairs.append((sample_elements(weight), sample_elements(state[name])))
    return state, NumberPair(*map(torch.cat, zip(*pairs, strict=True)))


def write_adapter(policy: Any, folder: Path, dtype: torch.dtype) -> NumberPair:
    """Write a policy's adapter into a folder that is not there yet, STABLE last.

    A server rounds A and B, not their product, so more of an update arrives than of merged weights.
    """
    with clear_os_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        policy.adapter.save_pretrained(folder, selected_adapters=["default"])
        (folder / STABLE).touch()
    pairs = list[tuple[Tensor, Tensor]]()
    for layer in lora_layers(policy.model):
        a, b = (part["default"].weight.detach() for part in (layer.lora_A, layer.lora_B))
        scale = layer.scaling["default"]
        served = scale * (b.to(dtype).float() @ a.to(dtype).float())
        pairs.append((sample_elements(scale * (b.float() @ a.float())), sample_elements(served)))
    return NumberPair(*map(torch.cat, zip(*pairs, strict=True)))


def list_ipc_handles(state: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """Where another process finds weights in the memory of a GPU, for as long as they are kept
    here.

    Returns:
        For each, by the name of its GPU, the arguments of what rebuilds it there (CUDA IPC, pickled
        by torch).

    Raises:
        EngineError: they are on no GPU.
    """
    found = []
    for name, weight in state.items():
        if weight.device.type != "cuda":
            raise EngineError(
                f"{name} is on {weight.device}, and transfer hands over memory of a GPU",
                "set engine.publish: full or lora",
            )
        device = str(torch.cuda.get_device_properties(weight.device).uuid)
        found.append({device: reduce_tensor(weight.contiguous())[1]})
    return found
