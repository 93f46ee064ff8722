"""From a directory, a GGUF file or a hub name to a causal model and its tokenizer, or to an error
that says what to do.

transformers starts weights that a checkpoint lacks from random numbers and mentions it in a
warning. Here that is an error, because a model that was never loaded looks like one that learns
badly.
"""

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.checkpoint import checkpoint

from plumbline.errors import DataError, ModelError
from plumbline.policies.library_errors import clear_opening_errors, refuse_growth
from plumbline.policies.model_files import (
    ADAPTER,
    check_config,
    has_tokenizer,
    held_bytes,
    is_adapter,
    is_gguf,
    is_here,
)
from plumbline.policies.opening import (
    adapter_base,
    adapter_settings,
    check_code_consent,
    check_source,
    reach_hub,
)
from plumbline.policies.options import HidingModel, PretrainedModel
from plumbline.policies.pretrained.adapters import find_adapted_modules, not_for_adapters
from plumbline.policies.pretrained.chat import Chat
from plumbline.policies.pretrained.gguf_file import (
    make_source_arguments,
    read_header,
    silence_bars,
    split_as_trained,
    unmark_quantisation,
)
from plumbline.policies.pretrained.tokenizer import check_tokenizer
from plumbline.recipe import LoraSection, ModelSection
from plumbline.storage import read_object


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model, its adapter where it has one, and the chat that goes with it."""

    model: Any
    """The transformers causal model (with LoRA layers in place)."""
    adapter: Any
    """The PeftModel around it, or None where every weight is trained."""
    chat: Chat
    context: int


ConfigOf = Callable[[str], Any]
"""From where the weights are to the transformers config to load them with, or to None for their
own."""


def load(
    section: PretrainedModel,
    source: str,
    seed: int,
    config_of: ConfigOf | None = None,
    renames: Mapping[str, str] | None = None,
) -> Loaded:
    """Load the model at `source` as the recipe's section says.

    Args:
        section: dtype, device, adapters, template.
        source: a model directory, a LoRA adapter's directory, a GGUF file, or a hub name.
        seed: for the start of new LoRA matrices.
        config_of: for checkpoints whose config.json names a class that transformers does not have.
        renames: for checkpoints in a layout of their own: patterns of weight names, and what stands
            for them.

    Raises:
        ModelError: no such model, not a causal one, weights missing or of another shape, no chat
            template, an adapter on other layers than the section asks for.
    """
    from transformers import GenerationConfig

    quieten_transformers()
    if section.threads is not None:
        torch.set_num_threads(section.threads)
    base = adapter_base(source) or source
    config = _read_config(base, section, config_of)
    own = base == source or (Path(source) / "tokenizer_config.json").is_file()
    tokenizer = load_tokenizer(source if own else base, section)
    model = _model(base, section, config, renames)
    check_finite(model, base)
    adapter = None
    if is_adapter(source):
        _try_patterns(model, source)
        wanted = None
        if section.lora is not None and _count_names(section.lora.targets) != _count_names(
            adapter_settings(source).targets
        ):
            asked = _with_lora(model, section.lora, seed, empty=True)
            wanted = find_adapted_modules(model)
            asked.unload()
        adapter = _adapter(model, source)
        check_finite(model, source)
        # The layers that the adapter has, against those that peft chooses for what the recipe asks
        # for. Its own names are not asked for: they are not all that peft chose by.
        if wanted is not None and (odd := sorted(wanted ^ find_adapted_modules(model))):
            raise ModelError(
                f"the adapter in {source} is on other layers than model.lora.targets asks for: "
                f"{len(odd)} differ "
                f"({', '.join(odd[:3])})",
                f"set model.lora.targets to those of its {ADAPTER} (target_modules)",
            )
    elif section.lora is not None:
        adapter = _with_lora(model, section.lora, seed)
    _without_dropout(model)  # that of a loaded adapter
    if section.gradient_checkpointing is True:
        checkpoint_layers(model)
    rows = _check_embeddings(model, base)
    chat = open_chat(
        tokenizer, section, source, rows, getattr(model.generation_config, "eos_token_id", None)
    )
    # it is saved with the model, and names what ends an answer here
    if (generation := model.generation_config) is not None:
        generation.eos_token_id = list(chat.stop_ids)
        try:
            generation.validate(strict=True)
        except ValueError:  # of sampling settings that transformers reads, and would not write
            ids = {
                name: getattr(generation, name)
                for name in ("eos_token_id", "bos_token_id", "pad_token_id")
            }
            model.generation_config = GenerationConfig(**ids)
    return Loaded(model=model, adapter=adapter, chat=chat, context=_context(model, section))


def choose_device(section: ModelSection) -> torch.device:
    """The section's device; auto is a GPU where there is one.

    Raises:
        ModelError: the device is not there.
    """
    if section.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(section.device)
    there = count_devices(device.type)
    if (device.index or 0) >= there:
        raise ModelError(
            f"the device is {section.device}, and torch {torch.__version__} finds "
            f"{there or 'none'} of that kind here",
            "use cpu or auto, or install a torch that is built for this GPU",
        )
    return device


def count_devices(kind: str) -> int:
    """How many devices of a kind torch finds here."""
    return torch.cuda.device_count() if kind == "cuda" else 1


def choose_dtype(section: ModelSection, device: torch.device) -> torch.dtype:
    """The section's dtype; auto is bfloat16 on a GPU and float32 on a CPU."""
    if section.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return getattr(torch, section.dtype)


TOKENIZERS = {"DreamTokenizer": "Qwen2Tokenizer"}
"""Classes of tokenizers that only a checkpoint's own code has, and those of transformers that read
the same files."""


def load_tokenizer(source: str, section: ModelSection) -> Any:
    """The tokenizer of a directory, GGUF file or hub name; raises ModelError where there is
    none."""
    import transformers
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    check_source(source, whole=False)
    check_code_consent(section, source)  # a check of a recipe opens a tokenizer and no model
    folder, file = make_source_arguments(source)
    fix = "save the model's tokenizer into the same directory (tokenizer.save_pretrained)"
    if is_gguf(source):
        fix = _suggest_gguf_fix(source)
    elif not Path(source).is_dir():
        fix = (
            f"there is no directory {source} here, so it was taken for a hub name: check it, and "
            "the network"
        )
    elif not has_tokenizer(Path(source)):
        raise ModelError(f"{source} has a model and no tokenizer", fix)
    reach_hub(source)
    with clear_opening_errors(f"cannot load a tokenizer from {source}", fix):
        kind = transformers.AutoTokenizer
        if not is_gguf(source):
            named = get_tokenizer_config(source, local_files_only=Path(source).is_dir()).get(
                "tokenizer_class"
            )
            kind = getattr(transformers, TOKENIZERS.get(str(named), "AutoTokenizer"))
        tokenizer = kind.from_pretrained(
            folder,
            trust_remote_code=section.trust_remote_code,
            local_files_only=is_here(source),
            **file,
        )
        check_tokenizer(tokenizer, source)
    if is_gguf(source):
        split_as_trained(tokenizer, source)
    if isinstance(section, HidingModel) and section.mask_token is not None:
        _name_mask(tokenizer, section.mask_token, source)
    return tokenizer


def _suggest_gguf_fix(source: str) -> str:
    """What to do where transformers cannot read a GGUF file."""
    return (
        f"the file is of architecture {read_header(source)[0]}; if this transformers cannot read that "
        "from GGUF, use the "
        "model's own directory (config.json and safetensors)"
    )


def _name_mask(tokenizer: Any, token: str, source: str) -> None:
    """Make a token of a tokenizer its mask; it is saved with it.

    Raises:
        ModelError: it has no such token, or another mask.
    """
    if token not in tokenizer.get_vocab():
        special = [str(one) for one in tokenizer.added_tokens_decoder.values() if one.special]
        last = ", ".join(special[-12:]) or "none"
        raise ModelError(
            f"model.mask_token is {token}, which the tokenizer of {source} does not have",
            f"name one that it has and no text does; the last of its special tokens are {last}",
        )
    if tokenizer.mask_token not in {None, token}:
        raise ModelError(
            f"model.mask_token is {token}, and the tokenizer of {source} already has the mask "
            f"{tokenizer.mask_token}",
            "leave out model.mask_token",
        )
    tokenizer.mask_token = token


def open_chat(
    tokenizer: Any, section: ModelSection, source: str, rows: int | None = None, stops: Any = ()
) -> Chat:
    """A tokenizer with its template, for a model of so many embeddings, where that is known; a
    first chat is tried.

    Raises:
        ModelError: the template or the tokenizer fails on it, or gives a token without an
            embedding.
    """
    fix = (
        "use the tokenizer and template that were saved with this model, or set model.chat_template"
    )
    what = f"the tokenizer or chat template of {source} cannot be used"
    with clear_opening_errors(what, fix):
        try:
            chat = Chat(tokenizer, stops, section.chat_template, section.date, rows)
            first = chat.prompt([{"role": "user", "content": "?"}])
        except (DataError, ModelError) as error:
            if isinstance(error, ModelError) and source in error.cause:
                raise
            raise ModelError(f"{what}: {error.cause}", error.fix or fix, error.code) from error
    if not first:
        raise ModelError(f"{what}: a chat of one question has no token", fix)
    if rows is not None and len(tokenizer) > rows:
        warnings.warn(
            f"the tokenizer of {source} has {len(tokenizer)} tokens, but the model has embeddings "
            f"for {rows}: a text "
            "with one of the others is refused",
            stacklevel=2,
        )
    return chat


UNLOADABLE = "cannot load a causal language model from"
CAUSAL = (
    "give a directory or hub name of a causal model (its config.json says architecture "
    "...ForCausalLM)"
)


def _read_config(source: str, section: PretrainedModel, config_of: ConfigOf | None) -> Any:
    """What `config_of` says. A config that cannot be read would be said of the tokenizer, which
    asks it for its kind."""
    from transformers import AutoConfig

    if is_gguf(source):
        return None
    with clear_opening_errors(f"{UNLOADABLE} {source}", CAUSAL):
        found = config_of(source) if config_of is not None else None
        if found is None:
            AutoConfig.from_pretrained(
                source,
                trust_remote_code=section.trust_remote_code,
                local_files_only=is_here(source),
            )
        return found


def _model(
    source: str, section: PretrainedModel, config: Any, renames: Mapping[str, str] | None
) -> Any:
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    device = choose_device(section)
    dtype = choose_dtype(section, device)
    options: dict[str, Any] = {"dtype": dtype, "trust_remote_code": section.trust_remote_code}
    options |= {"local_files_only": is_here(source), "output_loading_info": True}
    folder, file = make_source_arguments(source)
    with clear_opening_errors(
        f"{UNLOADABLE} {source}", _suggest_gguf_fix(source) if file else CAUSAL
    ):
        if config is not None:
            options |= {"config": config, "key_mapping": dict(renames) if renames else None}
        if section.quantize == "4bit":
            four_bits = BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=torch.bfloat16,
            )
            options |= {"quantization_config": four_bits, "device_map": {"": device}}
        try:
            with silence_bars(source), refuse_growth(source, held_bytes(source)):
                model, info = AutoModelForCausalLM.from_pretrained(folder, **file, **options)
        except RuntimeError as error:
            if "ignore_mismatched_sizes" not in str(error):
                raise
            raise ModelError(
                f"the checkpoint in {source} is of another model: its weights have other shapes "
                "than its config.json",
                "use the config.json that was saved with these weights",
            ) from error
    _check_complete(source, info)
    check_config(model.config.get_text_config().to_dict(), f"the config of {source}")
    head = model.get_output_embeddings()
    if head is not None and head.weight is not model.get_input_embeddings().weight:
        # transformers unties a head that differs in the checkpoint, whatever its config says; a
        # copy must know.
        model.config.get_text_config().tie_word_embeddings = False
    if file:
        unmark_quantisation(model, source)
    if "key_mapping" in options:
        # Else transformers would save under the checkpoint's own names, beside a stock config:
        # nobody could load that.
        model._weight_conversions = None  # noqa: SLF001
    if section.quantize is None:
        model = model.to(device)
    model.eval()
    return model


def _check_complete(source: str, info: Mapping[str, Any]) -> None:
    for key, what in (
        ("missing_keys", "lacks"),
        ("mismatched_keys", "has another shape for"),
        ("unexpected_keys", "also has"),
    ):
        names = sorted(str(name) for name in info.get(key) or ())
        if names:
            some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            raise ModelError(
                f"the checkpoint in {source} is of another model: it {what} {len(names)} weights "
                f"({some})",
                "use the config.json that was saved with these weights",
            )


def check_finite(model: nn.Module, source: str) -> None:
    """Look at every weight once, without a copy of any.

    Raises:
        ModelError: one is NaN or infinite; says which.
    """
    weights = {
        name: each
        for name, each in model.named_parameters()
        if each.dtype.is_floating_point and each.numel()
    }
    if not weights:
        return
    # A NaN is the least and the largest of its tensor, too.
    ends = torch.stack([torch.stack(each.detach().aminmax()).float() for each in weights.values()])
    # once, so that a GPU is waited for once
    odd = (~ends.isfinite().all(1)).nonzero().flatten().tolist()
    if odd:
        names = [*weights]
        more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        raise ModelError(
            f"the weights in {source} are not finite: {names[odd[0]]}{more} holds NaN or infinity",
            "the training that wrote them broke down: take an earlier checkpoint, or fetch the "
            "model again",
        )


def _check_embeddings(model: Any, source: str) -> int:
    """How many tokens the model has embeddings for.

    Raises:
        ModelError: they are all the same, as a sharded training leaves them whose weights were not
            gathered.
    """
    weight = model.get_input_embeddings().weight
    least, most = weight.detach().aminmax()
    if least == most:
        raise ModelError(
            f"the weights in {source} were never written: every embedding holds {float(least):g} "
            "alone",
            "gather the weights of all processes before they are saved, or fetch the model again",
        )
    return int(weight.shape[0])


def _without_dropout(model: Any) -> None:
    """Sampler and scorer are one sampling distribution only without dropout, so it is off
    everywhere, in training as well."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "attn_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)


def checkpoint_layers(model: Any) -> None:
    """Recompute each layer in the backward pass, wherever a gradient is asked for.

    transformers' own switch works in training mode only, where it also drops the cache that
    sampling needs.
    """
    stacks = [
        module for module in model.get_decoder().modules() if isinstance(module, nn.ModuleList)
    ]
    for layer in max(stacks, key=len):
        layer.forward = partial(_recompute, layer.forward)


def _recompute(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)


def _count_names(targets: str | list[str]) -> set[str]:
    return {targets} if isinstance(targets, str) else {*targets}


def _with_lora(model: Any, section: LoraSection, seed: int, *, empty: bool = False) -> Any:
    """The model with the adapters that a section asks for; `empty` ones take no memory, and cannot
    be used."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=section.rank,
        lora_alpha=section.alpha,
        target_modules=section.targets,
        exclude_modules=not_for_adapters(model) or None
        if section.targets == "all-linear"
        else None,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng():  # peft draws its start from the global generator
        torch.manual_seed(seed)
        with clear_opening_errors("model.lora does not fit this model", "check model.lora.targets"):
            return get_peft_model(model, config, low_cpu_mem_usage=empty)


def _adapter(model: Any, folder: str) -> Any:
    from peft import PeftConfig, PeftModel

    with clear_opening_errors(f"the adapter in {folder} is of another model", _ANOTHER):
        config: Any = PeftConfig.from_pretrained(folder, local_files_only=True)
        # what training began with may be costly, and is overwritten
        config.init_lora_weights = True
        with (
            warnings.catch_warnings(record=True) as said,
            refuse_growth(folder, held_bytes(folder)),
        ):
            warnings.simplefilter("always")
            adapter = PeftModel.from_pretrained(model, folder, is_trainable=True, config=config)
        if any("missing adapter keys" in str(each.message) for each in said):
            # peft renames weights for some architectures, finds nothing of the new name, and leaves
            # random ones.
            saved = load_file(Path(folder) / "adapter_model.safetensors")
            with torch.no_grad():
                for name, weight in adapter.named_parameters():
                    if ".lora_" in name:
                        weight.copy_(saved[name.replace(".default.", ".")])
    return adapter


_ANOTHER = "check base_model_name_or_path in its adapter_config.json"
PATTERNS = ("target_modules", "exclude_modules", "layers_pattern", "rank_pattern", "alpha_pattern")
"""Keys of an adapter's configuration whose texts, or keys, peft takes for regular expressions."""
PATIENCE = 10.0
"""Seconds for all of them over all names of a model; honest ones take some hundredths."""
TRY = """
import json, re, sys
patterns, names = json.load(sys.stdin)
for pattern in patterns:
    for name in names:
        re.fullmatch(pattern, name), re.fullmatch(rf".*\\.({pattern})", name)
"""


def _try_patterns(model: Any, folder: str) -> None:
    """Match an adapter's patterns in another process, which can be ended: peft's own matching could
    take years.

    Raises:
        ModelError: one is no pattern, or takes too long.
    """
    config = read_object(Path(folder) / ADAPTER)
    found = [
        [config.get(key)] if isinstance(config.get(key), str) else config.get(key) or ()
        for key in PATTERNS
    ]
    patterns = [
        str(one) for each in found for one in each if not re.fullmatch(r"[\w.-]*", str(one))
    ]
    if not patterns:
        return
    with clear_opening_errors(f"the adapter in {folder} is of another model", _ANOTHER):
        for pattern in patterns:
            re.compile(pattern)
    given = json.dumps([patterns, [name for name, _ in model.named_modules()]])
    try:
        subprocess.run(  # noqa: S603 - the patterns are its input
            [sys.executable, "-I", "-c", TRY],
            input=given,
            text=True,
            timeout=PATIENCE,
            check=True,
            capture_output=True,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"the patterns in {Path(folder) / ADAPTER} take over {PATIENCE:.0f} s to be matched: "
            f"{patterns[0][:80]}",
            "list the names of the layers in target_modules there",
        ) from error


def _context(model: Any, section: ModelSection) -> int:
    config = model.config.get_text_config()
    own = getattr(config, "max_position_embeddings", getattr(config, "n_positions", None))
    most = 2**31 if own is None else int(own)
    if section.context is not None and section.context > most:
        raise ModelError(
            f"model.context is {section.context}, but this model was made for {own} tokens",
            "lower it",
        )
    return section.context or most


def quieten_transformers() -> None:
    """Keep transformers' progress bars and advice off the terminal, where they would cut through
    the run's own view."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # peft asks transformers by a name that is being retired: nothing that a user of either could
    # fix.
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing", category=FutureWarning)
    # Its keyword for a cache is being renamed; the old one is right for all versions that are
    # allowed.
    warnings.filterwarnings(
        "ignore", message=".*past_key_values.* deprecated", category=FutureWarning
    )
    # Nor this one: peft looks for the base's config.json to see a changed vocabulary, and a GGUF
    # file has none. peft doubles the rank of fused experts, and says so of dense models of the same
    # kind, too.
    warnings.filterwarnings(
        "ignore",
        message=r"The following (rank|alpha)_pattern keys did not match",
        category=RuntimeWarning,
    )
    warnings.filterwarnings(
        "ignore", message=r"Could not find a config file in .*\.gguf", category=UserWarning
    )
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
