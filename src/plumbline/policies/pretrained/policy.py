"""What every policy around a pretrained causal model shares: its chat, its weights, its reference,
its file format."""

import copy
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from plumbline.errors import DataError, ModelError, RecipeError
from plumbline.policies.chunks import Chunk, SamplingT, chunks
from plumbline.policies.forks import may_fork, run_forked
from plumbline.policies.memory import give_back_where_scarce, is_full, release_after_error
from plumbline.policies.model_files import ADAPTER
from plumbline.policies.policy import LiveRequest, Policy
from plumbline.policies.pretrained.adapters import list_unadapted_layers
from plumbline.policies.pretrained.causal_model import Loaded, checkpoint_layers
from plumbline.policies.pretrained.numerics import find_steady_context
from plumbline.recipe import ModelSection
from plumbline.records import Draws, Key, Message, Request, Trajectory
from plumbline.runs.metadata import METADATA
from plumbline.runs.remote import portable_path
from plumbline.storage import (
    apply_umask,
    clear_os_errors,
    folder_beside,
    read_object,
    sync_folder,
    write_json,
)

# -- inputs ----------------------------------------------------------------------------------------
#
# Token ids and attention masks as models take them.
#
# Letters in shapes: R rows, T tokens of the longest row.


def uses_onednn(model: Any) -> bool:
    """Whether oneDNN multiplies a model's matrices, as it does in 16 bits on a CPU; lengths are
    then rounded up.

    It makes code for every shape that it has not met, and keeps 0.6 MB of it, half of them for
    good; the micro-batches of a run have hundreds of lengths, and 30 products each.
    """
    return bool(model.device.type == "cpu" and model.dtype != torch.float32)


LANES = 32
"""Positions that a row of attention is rounded up to: what a softmax adds up side by side, so that
the sum of a row is the same to the bit however much padding there is."""


def round_up(length: int, unit: int) -> int:
    """The least multiple of `unit` that is not below `length`."""
    return -(-length // unit) * unit


def pad_rows(
    rows: Sequence[Sequence[int]], fill: int = 0, *, left: bool = False, rounded: bool = False
) -> tuple[Tensor, Tensor]:
    """Rows as a rectangle [R, T] (int64, on the CPU), `fill` behind or `left` of each, and which
    entries are theirs.

    With `round_weights` T is a multiple of `LANES`.
    """
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.long)
    longest = max(map(len, rows), default=0)
    longest = round_up(longest, LANES) if rounded else longest
    column = torch.arange(longest)
    there_rt = column >= (longest - lengths).unsqueeze(1) if left else column < lengths.unsqueeze(1)
    ids_rt = torch.full(there_rt.shape, fill, dtype=torch.long)
    ids_rt[there_rt] = torch.tensor([*chain.from_iterable(rows)], dtype=torch.long)
    return ids_rt, there_rt


def make_additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool mask (may attend) as the additive one that every attention of transformers takes."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)


def mask_token(model: Any, tokenizer: Any, source: str) -> int:
    """The id of the mask token of an open model (see `find_mask`).

    Raises:
        ModelError: see `find_mask`; or the model has no embedding for it.
    """
    token = find_mask(
        tokenizer, getattr(model.config.get_text_config(), "mask_token_id", None), source
    )
    rows = model.get_input_embeddings().weight.shape[0]
    if not 0 <= token < rows:
        raise ModelError(
            f"the mask token of {source} is {token}, but the model has embeddings for {rows} tokens",
            "use the tokenizer that was saved with this model, correct mask_token_id in its "
            "config.json, or resize the "
            "model's embeddings",
        )
    return token


def find_mask(tokenizer: Any, own: int | None, source: str) -> int:
    """The id of the mask token, as the tokenizer or else the model's config names it (`own`).

    Raises:
        ModelError: neither names one, they name two, or the config names a word of the vocabulary.
    """
    named = tokenizer.mask_token_id
    if named is not None and own is not None and named != own:
        raise ModelError(
            f"the tokenizer's mask token is {named} ({tokenizer.mask_token}), and that of "
            f"config.json is {own}",
            "correct mask_token_id in config.json, or mask_token in tokenizer_config.json",
        )
    if (
        named is None
        and own is not None
        and own < len(tokenizer)
        and own not in tokenizer.added_tokens_decoder
    ):
        raise ModelError(
            f"mask_token_id in config.json is {own}, which is no token of its own but the word "
            f"{tokenizer.convert_ids_to_tokens(own)!r}",
            "correct it, or name the mask in tokenizer_config.json (mask_token)",
        )
    token = own if named is None else int(named)
    if token is None:
        raise ModelError(
            f"the model in {source} has no mask token: neither the tokenizer nor the config names "
            "one",
            "use a checkpoint that has one, name a token of its that no text has "
            "(model.mask_token), or add one: "
            "tokenizer.add_special_tokens({'mask_token': '<|mask|>'}), "
            "model.resize_token_embeddings(len(tokenizer)), and save both",
        )
    return token


WIDE = 512
"""Inputs of a model's widest layer from which on each core has work of its own: smaller operations
are all Python."""
FORKED = 8
"""Answers that a process of its own is started for at least."""


class PretrainedPolicy(Policy):
    """The part of a policy that does not depend on how it samples and scores."""

    rows_on_gpu = 512
    """Answers that a GPU draws at once, unless `model.rows_at_once` says otherwise; a CPU draws
    64."""

    def __init__(self, loaded: Loaded, section: ModelSection) -> None:
        self.model, self.adapter, self.chat = loaded.model, loaded.adapter, loaded.chat
        self.context = find_steady_context(loaded.model, loaded.context)
        self._context_ends = ""
        if self.context < loaded.context:
            self._context_ends = (
                f"the context ends at {self.context} of {loaded.context} tokens: beyond, this "
                "model's rotary "
                "frequencies depend on the longest sequence of a pass, so an answer would depend "
                "on those beside it"
            )
            if section.context is not None:
                raise ModelError(
                    f"model.context is {section.context}, but {self._context_ends}",
                    f"set model.context to at most {self.context}",
                )
        self.device: torch.device = self.model.device
        self.rows_at_once = section.rows_at_once or (
            64 if self.device.type == "cpu" else self.rows_on_gpu
        )
        self.recomputes = getattr(section, "gradient_checkpointing", False)
        self._reference: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A policy with trainable weights of its own; frozen ones, such as those below adapters,
        are shared."""
        for model in (self.model, self._reference):
            if isinstance(model, nn.Module):
                memo |= {
                    id(weight): memo.get(id(weight), weight)
                    for weight in model.parameters()
                    if not weight.requires_grad
                }
        memo[id(self.say)] = self.say  # whoever is told is the same
        other = object.__new__(type(self))
        memo[id(self)] = other
        other.__dict__ = copy.deepcopy(self.__dict__, memo)
        return other

    def is_wide(self) -> bool:
        """Whether its operations are large enough for each core to have work of its own."""
        return max(weight.shape[-1] for weight in self.model.parameters()) >= WIDE

    def replica(self) -> Self | None:
        """See `Policy.replica`."""
        if self.device.type != "cpu" or not self.is_wide():
            return None
        # Of the reference's adapter, too: each replica switches between the two for itself.
        own = [
            each
            for name, each in self.model.named_parameters()
            if each.requires_grad or ".reference." in name
        ]
        return copy.deepcopy(
            self, {id(each): nn.Parameter(each.detach(), each.requires_grad) for each in own}
        )

    def facts(self) -> dict[str, str]:
        """What every family says about its engine."""
        bare = [] if self.adapter is None else list_unadapted_layers(self.model)
        return {
            "context_ends": self._context_ends,
            "without_adapters": f"{len(bare)} linear layers ({', '.join(bare[:3])})"
            if bare
            else "",
            "model_type": str(self.model.config.model_type),
            "trains": "every weight" if self.adapter is None else "LoRA adapters",
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "emulated": "bfloat16"
            if self.model.dtype == torch.bfloat16 and not _has_bfloat16(self.device)
            else "",
            "device": str(self.device),
            "parameters": str(sum(parameter.numel() for parameter in self.model.parameters())),
        }

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """See `Policy.prompt_length`."""
        return len(self.chat.prompt(messages))

    def check_length(self, prompt: int, answer: int, server: int | None = None) -> None:
        """Raise DataError where a prompt and an answer of so many tokens exceed the context, or
        that of a server."""
        context, whose, longer = self.context, "the", "use a model with a longer context"
        if server is not None:
            context, whose, longer = (
                server,
                "the server's",
                "raise --max-model-len in engine.arguments",
            )
        if prompt + answer > context:
            raise DataError(
                f"a prompt of {prompt} tokens and an answer of up to {answer} exceed {whose} "
                f"context of {context}",
                f"lower sampling.max_tokens, shorten the prompts, or {longer}",
            )

    def sample(self, requests: Sequence[Request]) -> Draws:
        """See `Sampler.sample`. What the memory cannot hold side by side is drawn in chunks of half
        as many rows.

        A row's numbers come from its own key, so answers that had ended before are kept, and the
        others are the same.
        """
        done: set[Key] = set()
        while True:
            left = [request for request in requests if request.key not in done]
            try:
                for request, trajectory in self._concurrently(left):
                    done.add(request.key)
                    yield request, trajectory
            except RuntimeError as error:
                before = min(
                    self.rows_at_once,
                    len(left) - len(done.intersection(request.key for request in left)),
                )
                if before == 1 or not is_full(error):
                    raise
                release_after_error(error)
                self.rows_at_once = before // 2
            else:
                return
            self.say(
                "out_of_memory",
                f"{before} answers side by side take more memory than there is; from here on "
                f"{self.rows_at_once} are "
                f"drawn at once, and are the same. Set model.rows_at_once: {self.rows_at_once} to "
                "begin with that",
            )

    def _concurrently(self, requests: Sequence[Request]) -> Draws:
        """`draw`, by as many processes as there are threads where that pays; the answers are the
        same."""
        processes = min(torch.get_num_threads(), len(requests) // FORKED)
        live = self.watch is not None or any(isinstance(each, LiveRequest) for each in requests)
        if (
            processes < 2
            or live
            or self.device.type != "cpu"
            or not self.is_wide()
            or not may_fork()
        ):
            yield from self.draw(requests)
            return
        rows = self.rows_at_once
        rounds = -(-len(requests) // rows)
        with self.drawing():
            try:
                self.rows_at_once = -(-len(requests) // (rounds * processes))
                parts = self.cut(requests)
            finally:
                self.rows_at_once = rows
            by_key = {request.key: request for request in requests}
            works = [partial(self._draw_part, *part) for part in parts]
            for key, trajectory in run_forked(works, processes):
                yield by_key[key], trajectory

    def _draw_part(
        self, requests: Sequence[Request], shared: int
    ) -> Iterator[tuple[Key, Trajectory]]:
        """A part of what was cut, in a process of its own."""
        self.shared = shared
        for request, trajectory in self.draw(requests):
            yield request.key, trajectory

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """A context in which the weights do not change, for what a family makes of them before it
        draws."""
        yield

    def draw(self, requests: Sequence[Request]) -> Draws:
        """See `Sampler.sample`; a family draws `chunks` here, or overrides `sample`."""
        raise NotImplementedError

    def chunks(
        self, requests: Sequence[Request], sampling_type: type[SamplingT], canvas: int | None = None
    ) -> Iterator[Chunk[SamplingT]]:
        """Requests as they are drawn together.

        Args:
            requests: see `Sampler.sample`.
            sampling_type: the family's kind of sampling distribution.
            canvas: places that the model was trained with, for families that have them.

        Raises:
            DataError: a prompt does not fit into the context, or an answer into the canvas.
            RecipeError: a sampling distribution is another family's.
        """

        def encode(request: Request) -> list[int]:
            longest = request.sampling.max_tokens
            if canvas is not None and longest > canvas:
                raise DataError(
                    f"sampling.max_tokens is {longest}, but this model's canvas has {canvas} places",
                    "lower sampling.max_tokens, or train with a larger model.canvas",
                )
            ids = self.chat.prompt(request.messages)
            self.check_length(len(ids), longest)
            return ids

        for chunk in chunks(requests, sampling_type, encode, self.rows_at_once, self.shared):
            # a CPU kills a process whose memory is full, and raises nothing
            give_back_where_scarce()
            yield replace(chunk, watch=self.watch)

    def cut(self, requests: Sequence[Request]) -> list[tuple[list[Request], int]]:
        """See `Policy.cut`: chunks of `rows_at_once` rows. A chunk that is cut again stays as it
        is."""
        kinds = {type(request.sampling) for request in requests}
        return [(one.requests, one.shared) for kind in kinds for one in self.chunks(requests, kind)]

    def recompute(self) -> bool:
        """See `Policy.recompute`; only where the recipe leaves it to the memory (auto)."""
        if self.recomputes != "auto":
            return False
        checkpoint_layers(self.model)
        self.recomputes = True
        return True

    def keep_reference(self) -> None:
        """See `Policy.keep_reference`. With LoRA only the small adapter is copied; else the whole
        model is."""
        if self.adapter is None:
            self._reference = copy.deepcopy(self.model).requires_grad_(False)
            return
        if "reference" not in self.adapter.peft_config:
            config = copy.deepcopy(self.adapter.peft_config["default"])
            config.lora_dropout = 0.0  # as in the adapter itself since it was loaded
            self.adapter.add_adapter("reference", config)
            self.adapter.set_adapter("default")
        weights = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, parameter in weights.items():
                if ".reference." in name:
                    parameter.copy_(weights[name.replace(".reference.", ".default.")])
                    parameter.requires_grad_(False)
        self._reference = "adapter"

    @contextmanager
    def as_reference(self) -> Iterator[Any]:
        """A context in which the model holds the reference's weights; it yields that model."""
        if self._reference is None:
            raise ValueError("no reference is kept: call keep_reference first")
        if self.adapter is None:
            yield self._reference
            return
        self.adapter.set_adapter("reference")
        try:
            yield self.model
        finally:
            self.adapter.set_adapter("default")
            # Switching adapters makes the active one trainable; the reference never is.
            for name, parameter in self.model.named_parameters():
                if ".reference." in name:
                    parameter.requires_grad_(False)

    def trainable(self) -> Mapping[str, Tensor]:
        """See `Policy.trainable`."""
        return {
            name: weight for name, weight in self.model.named_parameters() if weight.requires_grad
        }

    def write(self, folder: Path) -> None:
        """Write weights and tokenizer into an empty folder; families with more to keep write that,
        too."""
        if self.adapter is None:
            self.model.save_pretrained(folder)
        else:
            self.adapter.save_pretrained(folder, selected_adapters=["default"])
            if (generation := getattr(self.model, "generation_config", None)) is not None:
                generation.save_pretrained(folder)
            said = read_object(folder / ADAPTER)
            if (base := portable_path(str(said["base_model_name_or_path"]))) != said[
                "base_model_name_or_path"
            ]:
                write_json(folder / ADAPTER, {**said, "base_model_name_or_path": base})
        self.chat.tokenizer.save_pretrained(folder)

    def save(self, folder: Path, metadata: Mapping[str, Any]) -> None:
        """See `Policy.save`: a model directory, or an adapter directory where LoRA was trained.

        Whatever the metadata says, it knows the ends of answers, and the family: an adapter has no
        config.json that could.
        """
        own = {"family": self.family, **(getattr(self.model.config, "plumbline", None) or {})}
        with clear_os_errors(folder), folder_beside(folder) as temporary:
            self.write(temporary)
            model = {**own, **metadata.get("model", {})}
            write_json(
                temporary / METADATA,
                {**metadata, "ends": self.chat.stop_texts(), "model": model},
            )
            apply_umask(temporary)
            if folder.exists():
                shutil.rmtree(folder)
            temporary.rename(folder)
            sync_folder(folder.parent)


def check_vocabularies(policy: Policy, teacher: Policy) -> None:
    """Raise RecipeError where a teacher's tokens, or the number of its logits, are not the
    policy's."""
    pair = [each for each in (policy, teacher) if isinstance(each, PretrainedPolicy)]
    mine, theirs = (each.chat.tokenizer.get_vocab() for each in pair)
    sizes = [each.model.get_output_embeddings().weight.shape[0] for each in pair]
    if mine != theirs or sizes[0] != sizes[1]:
        other = sum(theirs.get(token) != index for token, index in mine.items())
        raise RecipeError(
            f"rl.teacher.model has another vocabulary: {other} of {len(mine)} tokens differ, and "
            "the heads have "
            f"{sizes[0]} and {sizes[1]} logits",
            "take a teacher of the same family of models, such as a larger one of the same release",
        )


def _has_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 fast; true where that is not known, as of processors
    other than x86.

    Intel's AVX-512 without AMX has it at half the speed of float32 (84 against 158 GFLOPS a core,
    960 x 576 x 1536).
    """
    able: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    x86, intel = able.get("architecture") == "x86_64", "Intel" in able.get("cpu_name", "")
    fast = able.get("amx_bf16") or (able.get("avx512_bf16") and not intel)
    return device.type != "cpu" or not x86 or bool(fast)
