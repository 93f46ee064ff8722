"""The files of an export, and whether what lies there is what was meant."""

import math
import shutil
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.errors import DataError, EngineError, ModelError
from plumbline.policies import open_policy
from plumbline.policies.model_files import ADAPTER, KNOWN, TOKENIZERS, is_adapter
from plumbline.policies.opening import LargeGgufWarning, ModelOptions, options_as_trained
from plumbline.records import Message, Request
from plumbline.runs.metadata import METADATA
from plumbline.storage import find_object, read_object, write_json

if TYPE_CHECKING:
    from torch import Tensor

    from plumbline.policies.pretrained.gguf_writer import ReadBack, Stored
    from plumbline.policies.pretrained.weight_sync_check import NumberPair, SyncedShare

OPTIONS = ModelOptions(dtype="float32", device="cpu")
"""How a model is opened to be written: merging rounds nothing, and the memory beside a GPU is the
larger one."""
SAME = 1e-3
"""Nats a token, in the mean, by which float32 may differ: merging and another order of sums make
1e-6 to 1e-4."""
COPIED = {ADAPTER, METADATA, *TOKENIZERS, *KNOWN["beside"]}
"""What of an adapter's directory is exported: no state of its trainer, and no file that nobody
asked for."""


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What became of the weights."""

    parameters: int
    arrived: "SyncedShare | None"
    """Of the update since the base, what the stored weights hold; None where nothing is known to
    have been learnt."""
    compared_with: str
    """What the update was measured from; empty where nobody knows what the weights were before."""
    gap: "LogprobGap"
    """Between the policy and what was stored."""


@dataclass(frozen=True, slots=True)
class LogprobGap:
    """How far the log-probabilities of tokens of a few texts are apart [nats]; of a flow, the
    losses of the texts."""

    mean: float
    largest: float
    compared: int


def open_float32(model: str) -> Any:
    """A model as its own run opens it, in float32 on the CPU.

    Raises:
        ModelError: there is none, or it was trained on quantised weights.
    """
    section, _ = options_as_trained(model, OPTIONS)
    if getattr(section, "quantize", None) is not None:
        raise ModelError(
            f"the adapter in {model} was trained on weights of 4 bits, and merged with others it "
            "is another model",
            "export it with --kind adapter",
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LargeGgufWarning)  # what it advises is done here
        return open_policy(section, model)


def write_merged(
    policy: Any, folder: Path, dtype: str, base: str | None, model: str
) -> MergeResult:
    """Write weights with adapters merged in float32 and then stored in `dtype`, in the family's own
    format.

    Args:
        policy: see `open_float32`.
        folder: is empty.
        dtype: float32, bfloat16 or float16.
        base: the model that training began from; opened only where every weight was trained and 16
            bits are stored.
        model: where the policy is from: what stands there about its use is kept.

    Raises:
        ModelError: adapters that cannot be merged, before anything is written; what was read back
            differs.
    """
    import torch

    from plumbline.policies.pretrained.adapters import round_weights
    from plumbline.policies.pretrained.policy import PretrainedPolicy
    from plumbline.policies.pretrained.weight_sync_check import measure_sync

    if not isinstance(policy, PretrainedPolicy):
        return _write_own(policy, folder, dtype, model)
    stored: torch.dtype = getattr(torch, dtype)
    check_mergeable(policy)
    _, now = round_weights(policy, stored)
    before = None
    if policy.adapter is not None:
        before = _weights_below(policy, stored)
    elif (
        stored is not torch.float32
        and base is not None
        and Path(base).absolute() != Path(model).absolute()
    ):
        _, before = round_weights(open_float32(base), stored)
        if before.exact.shape != now.exact.shape:
            raise DataError(
                f"{base} is of another shape than {model}",
                "give the model that training began from",
            )
    meant = merge_adapter(policy)
    with torch.no_grad():
        for weight in policy.model.state_dict().values():
            weight.copy_(weight.to(stored))
    after = measure_logprobs(
        policy
    )  # here, because buffers that are not stored would be rounded below
    policy.model.to(stored)
    policy.write(folder)
    # what it says of the weights' use; 4 bits and adapters are gone
    if metadata := find_object(Path(model) / METADATA):
        use = {key: value for key, value in metadata.get("model", {}).items() if key != "quantize"}
        write_json(folder / METADATA, {**metadata, "model": use})
    read = open_float32(str(folder))
    found = read.model.state_dict()
    for name, weight in policy.model.state_dict().items():
        if name not in found or not torch.equal(found[name], weight.float()):
            raise ModelError(f"{name} was not read back as it was written", "report this as a bug")
    check_same(after, measure_logprobs(read), "what was read back")
    return MergeResult(
        sum(weight.numel() for weight in policy.model.parameters()),
        None if before is None else measure_sync(before, now),
        "" if before is None else str(base),
        _measure_gap(meant, after),
    )


def _write_own(policy: Any, folder: Path, dtype: str, model: str) -> MergeResult:
    """Write the model of a family that keeps its weights in a format of its own."""
    if dtype != "float32":
        raise ModelError(
            f"{model} is of family {policy.family}, which stores its weights itself",
            "leave out --dtype",
        )
    chat: list[Message] = [{"role": "user", "content": "?"}]
    sampling = options_as_trained(model, replace(OPTIONS, temperature=1.0))[1]
    answers = [
        answer
        for _, answer in policy.sample([Request((copy,), chat, sampling) for copy in range(4)])
    ]
    policy.save(folder, find_object(Path(model) / METADATA))
    meant, after = (
        one.score(answers).logprobs.detach() for one in (policy, open_float32(str(folder)))
    )
    check_same(meant, after, "what was read back")
    count = sum(weight.numel() for weight in policy.trainable().values())
    return MergeResult(count, None, "", _measure_gap(meant, after))


def _measure_gap(meant: "Tensor", after: "Tensor") -> LogprobGap:
    gap = (meant - after).abs()
    return LogprobGap(float(gap.mean()), float(gap.max()), len(gap))


def check_mergeable(policy: Any) -> None:
    """Raise ModelError where a policy's adapter cannot be merged."""
    from plumbline.policies.pretrained import adapters

    try:
        adapters.check_mergeable(policy)
    except EngineError as error:
        raise ModelError(error.cause, "export it with --kind adapter") from error


def merge_adapter(policy: Any) -> "Tensor":
    """Merge a policy's adapter, if it has one, into its weights; the log-probabilities that it had
    before.

    Raises:
        ModelError: it has others now.
    """
    meant = measure_logprobs(policy)
    if policy.adapter is not None:
        policy.adapter.merge_and_unload()
        policy.adapter = None
        check_same(meant, measure_logprobs(policy), "the merged model")
    return meant


def measure_logprobs(policy: Any) -> "Tensor":
    """Log-probabilities of the tokens of a few texts [N], in one pass of its network; of a flow the
    losses of texts."""
    import torch

    from plumbline.policies.policy import Demonstration
    from plumbline.policies.pretrained.numerics import compute_float32_logprobs
    from plumbline.policies.pretrained.weight_sync_check import encode_probe
    from plumbline.policies.sampling_distribution import noises

    if policy.family != "flow":
        return compute_float32_logprobs(policy.model, encode_probe(policy.chat, policy.context))
    canvas = (policy.chat.end_of_turn,) * (policy.canvas or 16)
    losses = []
    with torch.no_grad():
        for prompt in encode_probe(policy.chat, policy.context - len(canvas)):
            shown = Demonstration(
                (*prompt, *canvas), (False,) * len(prompt) + (True,) * len(canvas)
            )
            losses.append(policy.supervised_loss([shown], noises(1, 0)) / len(canvas))
    return torch.stack(losses).double()


def check_same(meant: "Tensor", found: "Tensor", what: str) -> None:
    """Raise ModelError where log-probabilities [N] are not those that were meant."""
    gap = float((meant - found).abs().mean())
    if not gap <= SAME:
        raise ModelError(
            f"{what} is another model than was trained: its log-probabilities of a few texts are "
            f"{gap:.2g} nats a "
            "token from the policy's",
            "export it with --kind adapter, and report this as a bug",
        )


def _weights_below(policy: Any, stored: Any) -> "NumberPair | None":
    """The weights below the adapters, as `round_weights` samples what is above them; None where
    others were trained, too."""
    import torch

    from plumbline.policies.pretrained.adapters import lora_layers, sample_elements
    from plumbline.policies.pretrained.weight_sync_check import NumberPair

    if any(".lora_" not in name for name in policy.trainable()):
        return None
    ours = set(lora_layers(policy.model))
    weights = [layer.base_layer.weight for layer in policy.model.modules() if layer in ours]
    exact, served = (
        [sample_elements(weight.to(dtype)) for weight in weights]
        for dtype in (torch.float32, stored)
    )
    return NumberPair(torch.cat(exact), torch.cat(served))


def check_links(model: Path) -> None:
    """Refuse a model's folder with a link out of it: what lies there would be exported, and
    published.

    In the hub's cache all files are links to the blobs of the same repository.

    Raises:
        ModelError: names the link.
    """
    place = model.resolve()
    homes = [place, *([place.parents[1] / "blobs"] if place.parent.name == "snapshots" else ())]
    for path in (*place.iterdir(), *place.glob("additional_chat_templates/*")):
        if path.is_file() and not any(path.resolve().is_relative_to(home) for home in homes):
            raise ModelError(
                f"{model / path.relative_to(place)} is a link to {path.resolve()}, out of the "
                "model's folder",
                "put the file itself in its place where it belongs to the model, else remove the "
                "link",
            )


def write_adapter(model: str, folder: Path, base: str) -> int:
    """Copy an adapter with its tokenizer, and name its base as the world does; its number of
    parameters.

    Raises:
        ModelError: the model is no adapter.
    """
    if not is_adapter(model):
        raise ModelError(
            f"{model} is no adapter: every weight of it was trained", "export it with --kind merged"
        )
    from safetensors import safe_open

    for path in sorted(Path(model).iterdir()):
        if path.is_file() and path.name in COPIED:
            shutil.copyfile(path, folder / path.name)
    write_json(folder / ADAPTER, {**read_object(folder / ADAPTER), "base_model_name_or_path": base})
    with safe_open(folder / "adapter_model.safetensors", "pt") as file:
        shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118 - it is no mapping
    return sum(math.prod(shape) for shape in shapes)


def write_gguf(policy: Any, path: Path, stored: "Stored", about: dict[str, str]) -> "ReadBack":
    """Write a GGUF file, read it back through the path that opens any, and compare.

    Raises:
        ModelError: it cannot be written, or was not read back as it was meant.
    """
    from plumbline.policies.pretrained.gguf_writer import compare
    from plumbline.policies.pretrained.gguf_writer import write_gguf as write

    check_mergeable(policy)
    merge_adapter(policy)
    write(policy, path, stored, about)
    return compare(policy, open_float32(str(path)), stored)
