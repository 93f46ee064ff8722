"""What this model's weights allow, found by trying it once when the model is loaded.

Three short cuts are exact for most models and wrong for some (a head with a soft cap, attention with a window, a
layer that keeps a state). Each is compared with the model's own plain forward pass on two short made-up prompts, and
used only where it agrees; what is used is recorded with the run.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plumbline.policies.autoregressive.decoders.lean import LeanDecoder, unsupported
from plumbline.policies.autoregressive.packing import pack
from plumbline.records import Sampling, Step, Trajectory


@dataclass(frozen=True, slots=True)
class Abilities:
    """Which short cuts agree with the model's own forward pass, and why one does not."""

    linear_head: bool
    """logits == linear(last hidden state): scoring can go in slices."""
    packing: bool
    """A packed group scores as its rows do."""
    lean: bool
    """The lean decoder gives the model's logits."""
    why_not_lean: str = ""


@torch.no_grad()
def probe(model: Any) -> Abilities:
    """Compare the short cuts with plain forward passes of a few tokens."""
    vocabulary = model.config.get_text_config().vocab_size
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, vocabulary, size=size) for size in (7, 4)]
    answers = rng.integers(0, vocabulary, size=(4, 3))
    rows = [np.concatenate([prompts[index // 2], answers[index]]) for index in range(4)]
    plain = [model(torch.tensor(row[None], device=model.device), use_cache=False).logits[0].float() for row in rows]
    tolerance = (1e-3 if model.dtype == torch.float32 else 0.1) * max(
        1.0, float(torch.stack([p.std() for p in plain]).max())
    )

    linear_head = _head_is_linear(model, rows[0], plain[0], tolerance)
    packing = linear_head and _packs(model, prompts, answers, plain, tolerance)
    reason = unsupported(model)
    if reason is None and not _decodes(model, prompts, answers, plain, tolerance):
        reason = "its logits differ from the model's own"
    return Abilities(linear_head, packing, reason is None, reason or "")


def _close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    return a.shape == b.shape and bool(((a.float() - b.float()).abs() <= tolerance).all())


def _head_is_linear(model: Any, row: Any, plain: Tensor, tolerance: float) -> bool:
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear or not head.weight.dtype.is_floating_point:
        return False
    hidden = model.get_decoder()(torch.tensor(row[None], device=model.device), use_cache=False).last_hidden_state
    return _close(head(hidden[0]), plain, tolerance)


def _packs(model: Any, prompts: list[Any], answers: Any, plain: list[Tensor], tolerance: float) -> bool:
    trajectories = [
        Trajectory(
            prompt=prompts[index // 2],
            steps=(Step(positions=np.arange(3), tokens=answers[index], logprobs=np.zeros(3, np.float32)),),
            text="",
            sampling=Sampling(),
            finish="length",
        )
        for index in range(4)
    ]
    packed = pack(trajectories, model.device)
    try:
        logits = model(
            packed.ids,
            attention_mask=additive(packed.mask, model.dtype),
            position_ids=packed.positions,
            use_cache=False,
            logits_to_keep=packed.predictors,
        ).logits[0]
    except (TypeError, ValueError, RuntimeError, IndexError):  # a forward pass without masks, positions or selection
        return False
    wanted = torch.cat([plain[index][-4:-1] for index in range(4)])
    return _close(logits, wanted, tolerance)


def _decodes(model: Any, prompts: list[Any], answers: Any, plain: list[Tensor], tolerance: float) -> bool:
    decoder = LeanDecoder(model)
    logits = decoder.begin([prompt.tolist() for prompt in prompts], 2, 3).repeat_interleave(2, 0)
    agree = True
    for time in range(4):
        wanted = torch.stack([plain[index][len(prompts[index // 2]) - 1 + time] for index in range(4)])
        agree = agree and _close(logits, wanted, tolerance)
        if time < 3:
            logits = decoder.step(torch.tensor(answers[:, time], device=model.device))
    return agree


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool mask (may attend) as the additive one that every attention of transformers takes."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)
