"""A causal model as one GGUF file, with what llama.cpp needs to read it: weights, tokenizer, chat
template, sizes.

Names, the order of rotary halves and the metadata are those of llama.cpp's own converter
(convert_hf_to_gguf.py, as of gguf 0.19). What it would need more than this for is refused: another
shape of model, a stretched rotary embedding, a tokenizer whose way to split text has no name there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plumbline.errors import ModelError
from plumbline.policies.pretrained.adapters import merge_adapters
from plumbline.policies.pretrained.numerics import compute_float32_logprobs
from plumbline.storage import clear_os_errors

Stored = Literal["f32", "f16", "bf16", "q8_0"]
KINDS: tuple[Stored, ...] = get_args(Stored)
SHAPES = {"llama": True, "qwen2": False, "qwen3": False}
"""Models that are written, by transformers' name, which is llama.cpp's too; whether its rotary
halves interleave."""
BLOCK = 32
"""Weights of q8_0 that share a scale; a matrix whose rows are no multiple of it is stored in f16,
as llama.cpp does."""

HEAD = 128
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    ("ByteLevel",): "gpt-2",
    ("Digits", "ByteLevel"): "smollm",
    (_WORDS + _REST, "bytes"): "qwen2",
    (_WORDS + "{1,3}" + _REST, "bytes"): "llama-bpe",
}
"""How a tokenizer splits text before it merges bytes, and llama.cpp's name for it
(`tokenizer.ggml.pre`)."""
ADVICE = "export it with --kind merged, and see whether llama.cpp's own converter takes that"


@dataclass(frozen=True, slots=True)
class ReadBack:
    """A file that was read back, beside the model that it was written from."""

    parameters: int
    weights: float
    """The largest difference of a weight, and what the kind of storage allows."""
    allowed: float
    logprob: float
    """The largest difference of a token's log-probability [nats], their mean, and how many were
    compared."""
    mean: float
    tokens: int
    same_ids: bool
    """Whether the tokenizer in the file, as transformers builds it, gives the same ids."""


def check_writable(policy: Any) -> str:
    """The name of the policy's way to split text, where its model can be written.

    Raises:
        ModelError: it cannot; says what stands in the way.
    """
    config = policy.model.config
    rope = getattr(config, "rope_parameters", None) or {}
    windows = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    shape, activation = config.model_type, config.to_dict().get("hidden_act")
    reasons = (
        (
            policy.family != "autoregressive",
            f"its family is {policy.family}, and GGUF's readers write left to right",
        ),
        (shape not in SHAPES, f"models of type {shape} are not written, only {', '.join(SHAPES)}"),
        (
            rope.get("rope_type", "default") != "default",
            f"its rotary embedding is stretched ({rope.get('rope_type')})",
        ),
        (bool(windows), "it attends within a window"),
        (activation != "silu", f"its activation is {activation}, not silu"),
        (
            shape == "qwen3" and config.head_dim != HEAD,
            (
                f"its heads are {getattr(config, 'head_dim', 0)} wide, and transformers takes all "
                "of "
                f"qwen3's for {HEAD}"
            ),
        ),
    )
    for stands, reason in reasons:
        if stands:
            raise _export_error(reason)
    backend = json.loads(policy.chat.tokenizer.backend_tokenizer.to_str())
    before, normalizer = backend["pre_tokenizer"] or {}, backend["normalizer"] or {"type": "NFC"}
    found = SPLITS.get(tuple(map(_part, before.get("pretokenizers", [before]))))
    by_bytes = backend["model"]["type"] == "BPE" and not backend["model"].get("byte_fallback")
    if found is None or not by_bytes or normalizer["type"] != "NFC":
        raise _export_error(
            "its tokenizer is none of those whose way to split text llama.cpp knows by a name that "
            "is known here "
            f"({', '.join(SPLITS.values())})"
        )
    return found


def _export_error(reason: str) -> ModelError:
    return ModelError(f"this model cannot be written as GGUF: {reason}", ADVICE)


def _part(part: dict[str, Any]) -> str:
    """A step of splitting as `SPLITS` writes it: `bytes` only spells text in bytes, ByteLevel
    splits it, too."""
    kind = str(part.get("type"))
    if kind == "Split" and part["behavior"] == "Isolated" and not part["invert"]:
        return str(part["pattern"].get("Regex"))
    if kind == "Digits" and part["individual_digits"]:
        return kind
    if kind == "ByteLevel" and not part["add_prefix_space"]:
        return kind if part["use_regex"] else "bytes"
    return f"{kind}, not as it is known here"


def write_gguf(policy: Any, path: Path, stored: Stored, about: Mapping[str, str]) -> None:
    """Write a policy's model, its adapters merged in float32.

    Args:
        policy: autoregressive.
        path: a file that is not there yet.
        stored: how matrices are kept; vectors (norms, biases) stay in float32.
        about: `name`, and where they are known `licence` and `base`.

    Raises:
        ModelError: it is no model that can be written (see `check_writable`).
        StorageError: the disk is full.
    """
    import gguf

    split, config = check_writable(policy), policy.model.config
    out = gguf.GGUFWriter(path, config.model_type)
    out.add_name(about["name"])
    if about.get("licence"):
        out.add_license(about["licence"])
    files = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16", "q8_0": "MOSTLY_Q8_0"}
    out.add_file_type(gguf.LlamaFileType[files[stored]])
    out.add_quantization_version(gguf.GGML_QUANT_VERSION)
    heads, shared = config.num_attention_heads, config.num_key_value_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(heads)
    out.add_head_count_kv(shared)
    out.add_key_length(width)
    out.add_value_length(width)
    out.add_rope_dimension_count(width)
    out.add_rope_freq_base(config.rope_parameters["rope_theta"])
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_vocab_size(config.vocab_size)
    _add_tokenizer(out, policy, split)
    names = gguf.get_tensor_name_map(
        gguf.MODEL_ARCH[config.model_type.upper()], config.num_hidden_layers
    )
    with clear_os_errors(path):
        for own, weight, _ in merge_adapters(policy):
            name = names.get_name(own, try_suffixes=(".weight", ".bias"))
            if name is None:
                raise _export_error(f"nothing there is called {own}")
            array = weight.cpu().numpy()
            count = {"q_proj": heads, "k_proj": shared}.get(own.split(".")[-2])
            if count is not None and SHAPES[config.model_type]:
                halves = array.reshape(count, 2, array.shape[0] // count // 2, *array.shape[1:])
                array = halves.swapaxes(1, 2).reshape(array.shape)
            kind = gguf.GGMLQuantizationType[_kind(array, stored).upper()]
            out.add_tensor(
                name, gguf.quants.quantize(np.ascontiguousarray(array), kind), raw_dtype=kind
            )
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
        out.close()


def _add_tokenizer(out: Any, policy: Any, split: str) -> None:
    from gguf import TokenType

    tokenizer, rows = policy.chat.tokenizer, policy.model.config.vocab_size
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    added = {one["id"]: one for one in backend["added_tokens"]}
    texts = {number: text for text, number in backend["model"]["vocab"].items()}
    texts |= {number: one["content"] for number, one in added.items()}
    # UNUSED: of no text
    kinds = [TokenType.NORMAL if number in texts else TokenType.UNUSED for number in range(rows)]
    for number, token in added.items():
        if number < rows:
            kinds[number] = TokenType.CONTROL if token["special"] else TokenType.USER_DEFINED
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre(split)
    out.add_token_list([texts.get(number, f"[PAD{number}]") for number in range(rows)])
    out.add_token_types(kinds)
    merges = backend["model"]["merges"]
    out.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in merges])
    for name in ("bos", "eos", "pad", "unk"):
        if (number := getattr(tokenizer, f"{name}_token_id")) is not None:
            getattr(out, f"add_{name}_token_id")(number)
    out.add_eot_token_id(policy.chat.end_of_turn)
    first = [*tokenizer("a")["input_ids"], None][0]
    out.add_add_bos_token(first is not None and first == tokenizer.bos_token_id)
    out.add_chat_template(tokenizer.get_chat_template())


def _kind(weight: NDArray[np.float32], stored: Stored) -> Stored:
    if weight.ndim < 2:
        return "f32"
    return "f16" if stored == "q8_0" and weight.shape[-1] % BLOCK else stored


TEXTS = (
    "O pedido 4821 chegou com 12 dias de atraso e a caixa veio amassada. Nota 3.",
    'Responda em JSON: {"nota": 4.5, "motivo": "atraso na entrega"}\n  - valor:   R$ 1.299,90\n',
    "The quick brown fox isn't here; it's 2026-11-23, and we've 1,024 things to do!",
    "SELECT COUNT(*) FROM pedidos WHERE estado = 'SP' AND valor >= 10.5;",
)
"""What a file is compared on: words, accents, numbers, blanks before numbers, code."""


@torch.no_grad()
def compare(policy: Any, read: Any, stored: Stored) -> ReadBack:
    """A policy beside what was read back from its file.

    Raises:
        ModelError: a weight is not there, or differs by more than the kind of storage rounds.
    """
    weights, found = (
        {name: weight for name, weight, _ in merge_adapters(policy)},
        dict(read.model.state_dict()),
    )
    worst = widest = 0.0
    for name, weight in weights.items():
        if name not in found or found[name].shape != weight.shape:
            raise ModelError(f"{name} was not read back from the GGUF file", "report this as a bug")
        allowed = _rounding(weight.cpu(), stored)
        differs = (found[name].cpu().float() - weight.cpu()).abs()
        if bool((differs > allowed).any()):
            raise ModelError(
                f"{name} was read back from the GGUF file with a difference of "
                f"{float(differs.max()):.2g}, and "
                f"{stored} rounds by at most {float(allowed.max()):.2g}",
                "report this as a bug",
            )
        worst, widest = max(worst, float(differs.max())), max(widest, float(allowed.max()))
    gaps, same = list[Tensor](), True
    for text in TEXTS:
        messages = [{"role": "user", "content": text}]
        ids = [*policy.chat.prompt(messages)][-policy.context :]
        same &= list(read.chat.prompt(messages))[-policy.context :] == ids
        ours, theirs = (compute_float32_logprobs(one.model, [ids]) for one in (policy, read))
        gaps.append((ours - theirs).abs())
    gap = torch.cat(gaps)
    parameters = sum(weight.numel() for weight in weights.values())
    return ReadBack(parameters, worst, widest, float(gap.max()), float(gap.mean()), len(gap), same)


def _rounding(weight: Tensor, stored: Stored) -> Tensor:
    """The most that a kind of storage may change each weight by: half a unit in the last place, or
    half a step."""
    kind = _kind(weight.numpy(), stored)
    if kind == "f32":
        return torch.zeros(1)
    if kind == "q8_0":  # 127 steps to the largest of a block, whose scale is kept in float16
        largest = weight.reshape(-1, BLOCK).abs().amax(1, keepdim=True)
        return (
            (largest * (0.5 / 127 + 2**-11) + 127 * 2**-25).expand(-1, BLOCK).reshape(weight.shape)
        )
    bits, smallest = (8, 2.0**-134) if kind == "bf16" else (11, 2.0**-25)
    return weight.abs() * 2.0**-bits + smallest
