"""A tiny Llama directory as a GGUF file, and as a wheel that holds one: what a download would
bring."""

import hashlib
import json
import zipfile
from pathlib import Path

import numpy as np
from gguf import (
    MODEL_ARCH,
    GGMLQuantizationType,
    GGUFWriter,
    TokenType,
    get_tensor_name_map,
    quants,
)
from safetensors.numpy import load_file

from plumbline.policies.downloads.get import Wheel, WheelModel


def write_gguf(
    folder: Path, path: Path, *, quantised: bool = False, architecture: str = "llama", pre: str = ""
) -> Path:
    """Write the model in `folder` as llama.cpp's converter does (rotary halves interleaved)."""
    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    special = {token["content"] for token in tokenizer["added_tokens"]}
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    ids = {
        **tokenizer["model"]["vocab"],
        **{token["content"]: token["id"] for token in tokenizer["added_tokens"]},
    }
    tokens = sorted(ids, key=ids.__getitem__)
    out = GGUFWriter(path, architecture)
    out.add_name("tiny")
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(config["num_hidden_layers"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    out.add_vocab_size(config["vocab_size"])
    out.add_tokenizer_model("gpt2")
    if pre:
        out.add_tokenizer_pre(pre)
    out.add_token_list(tokens)
    out.add_token_types(
        [TokenType.CONTROL if token in special else TokenType.NORMAL for token in tokens]
    )
    out.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    out.add_eos_token_id(ids[settings["eos_token"]])
    out.add_pad_token_id(ids[settings["pad_token"]])
    out.add_chat_template((folder / "chat_template.jinja").read_text())
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, weight in load_file(folder / "model.safetensors").items():
        kind = (
            GGMLQuantizationType.Q4_1
            if quantised and weight.ndim == 2
            else GGMLQuantizationType.F32
        )
        to = names.get_name(name, try_suffixes=(".weight",))
        if count := heads.get(to.split(".")[2] if to.startswith("blk") else ""):
            rows, columns = weight.shape
            weight = (
                weight.reshape(count, 2, rows // count // 2, columns)
                .swapaxes(1, 2)
                .reshape(rows, columns)
            )
        weight = np.ascontiguousarray(weight.astype(np.float32))
        packed = quants.quantize(weight, kind) if kind != GGMLQuantizationType.F32 else weight
        out.add_tensor(to, packed, raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def write_wheels(gguf: Path, folder: Path, name: str, parts: int = 1) -> WheelModel:
    """Write wheels around the parts of a GGUF file into `folder`, and return the catalogue entry
    that fits them."""
    folder.mkdir(parents=True, exist_ok=True)
    content, wheels = gguf.read_bytes(), []
    size = -(-len(content) // parts)
    for number in range(parts):
        package = f"plumbline-{name}" + (f"-part{number + 1}" if parts > 1 else "")
        module = package.replace("-", "_")
        path, info = folder / f"{module}-1.0-py3-none-any.whl", f"{module}-1.0.dist-info"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(f"{module}/tiny.gguf", content[number * size : (number + 1) * size])
            wheel.writestr(f"{info}/LICENSE", "the licence\n")
            wheel.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
            )
            wheel.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{info}/RECORD", "")
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        wheels.append(
            Wheel(
                pinned=f"{package}==1.0",
                sha256=sha256,
                size=path.stat().st_size,
                file=f"{module}/tiny.gguf",
            )
        )
    return WheelModel(
        name=name,
        about="a tiny Llama",
        wheels=tuple(wheels),
        disk_bytes=200_000,
        licence="Apache-2.0",
        licence_file=f"{wheels[0].file.partition('/')[0]}-1.0.dist-info/LICENSE",
    )
