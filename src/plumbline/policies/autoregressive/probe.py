"""What this model's weights allow, found by trying it once when the model is loaded.

Letters in shapes: M compared positions, V vocabulary.

Short cuts that are exact for most models are wrong for some (a head with a soft cap, attention with
a window, a layer that keeps a state). Each is compared with a float32 pass of the same weights, as
the model's own plain pass in its own dtype is: a short cut may be about as far from the float32
pass as that is, and no further. What is compared are the log-probabilities of the tokens that are
plausible there; the largest difference over all logits is rounding, of a token that is never drawn.
Only what agrees is used; what is used, and what is left out, is recorded with the run. Padded rows
and the model's own cache are tried as well. Nothing can replace them, so a model that they are
wrong for is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plumbline.policies.autoregressive.decoders.cached import CachedDecoder
from plumbline.policies.autoregressive.decoders.lean import LeanDecoder, explain_unsupported
from plumbline.policies.autoregressive.packing import (
    Pack,
    install_shared_attention,
    pack,
    remove_shared_attention,
    windows,
)
from plumbline.policies.pretrained.adapters import randomise_adapters
from plumbline.policies.pretrained.fused import fuse, unfuse
from plumbline.policies.pretrained.numerics import AgreementCheck
from plumbline.policies.pretrained.policy import make_additive_mask, pad_rows, uses_onednn
from plumbline.records import IntArray, Sampling, Trajectory, Transition

ANSWER = 8
SHARED_TOKENS = 4
"""That both prompts of a trial begin with."""
DROPPED_AT = 3
"""Tokens of an answer after which the trial of a cache drops rows and changes the order of the
others."""
CACHE_ROUNDS = 3e-4
"""Nats that a model's own steps may be off beyond twice what a short cut may: linear attention adds
up in other order there than in its pass of a whole sequence."""
WORK = {"cuda": 1e14}
"""Weights times tokens of what is tried because it is longer than a window; 2e11 on a CPU."""


Tokens = Sequence[IntArray]


@dataclass(frozen=True, slots=True)
class Abilities:
    """Which short cuts agree with the model's own forward pass, and why one does not."""

    linear_head: bool
    """logits == linear(last hidden state): scoring can go in slices."""
    packing: bool
    """A packed group scores as its rows do."""
    shared: bool
    """So it does without a mask over its whole square (`packing.shared_attention`)."""
    lean: bool
    """The lean decoder gives the model's logits."""
    adapters: bool
    """LoRA layers, norms and MLPs give the same as `pretrained.fused` has them, which is in place
    from then on."""
    why_not_cached: str = ""
    """Why the model's own cache does not decode (`decoders.cached`); empty where it does, or was
    not asked for."""
    why_not_rows: str = ""
    """Why rows of several lengths cannot be scored together; empty where they can."""
    why_not_lean: str = ""

    def left_out(self) -> str:
        """What is slower than it could be because a short cut did not agree; empty where all
        did."""
        slow = {
            "sliced head": self.linear_head,
            "packed scoring": self.packing,
            "shared attention": self.shared,
            f"lean decoder ({self.why_not_lean})": self.lean,
            "fused adapters": self.adapters,
        }
        return ", ".join(name for name, there in slow.items() if not there)


_FOUND: dict[tuple[str, ...], Abilities] = {}


def probe_once(model: Any, *, cached: bool = False) -> Abilities:
    """`probe`, and for a model that is built as another one of this process was, what was found for
    that one.

    A run opens its model at every stage. Its build is the class, the configuration, the layers with
    their sizes, the dtype and the device; weights are not compared.
    """
    config, build = model.config.to_json_string(use_diff=False), repr(model)
    key = (str(type(model)), config, build, str(model.dtype), str(model.device), str(cached))
    if key not in _FOUND:
        _FOUND[key] = probe(model, cached=cached)
        return _FOUND[key]
    if _FOUND[key].adapters:
        fuse(model)
    if _FOUND[key].shared:
        install_shared_attention(model)
    return _FOUND[key]


@torch.no_grad()
def probe(model: Any, *, cached: bool = False) -> Abilities:
    """Compare the short cuts with plain forward passes of a few tokens; puts fused parts in place
    if they agree.

    Args:
        model: with or without adapters.
        cached: try the model's own cache, even where the lean decoder fits.
    """
    prompts, answers = _draw_texts(model, (15, 9))
    with randomise_adapters(model):
        trial = AgreementCheck.from_model(model, lambda: _run_plain_pass(model, prompts, answers))
        fuse(model)
        adapters = trial.agrees(_run_plain_pass(model, prompts, answers))
        if not adapters:
            unfuse(model)
        linear_head = _head_is_linear(model, prompts, answers, trial)
        why_not_rows = trial.explain_disagreement(lambda: _score_in_rows(model, prompts, answers))
        packing = linear_head and _packs_alike(model, prompts, answers, trial)
        shared = (
            packing
            and install_shared_attention(model)
            and _packs_alike(model, prompts, answers, trial, shared=True)
        )
        if not shared:
            remove_shared_attention(model)
            packing = packing and all(_packs_beyond(model, window) for window in windows(model))
        reason = explain_unsupported(model) or trial.explain_disagreement(
            lambda: _run_decoder(model, prompts, answers)
        )
        if not reason and uses_onednn(model):
            reason = trial.explain_disagreement(
                lambda: _run_decoder(model, prompts, answers, lay_out=True)
            )
        why_not_cached = ""
        if cached or reason:
            why_not_cached = trial.explain_disagreement(
                lambda: _run_cached_decoder(model, prompts, answers), _roughly_agrees
            )
            for window in windows(model):
                if not why_not_cached and _is_cheap(model, 4 * (window + 2 * ANSWER)):
                    longer = _draw_texts(model, (window + ANSWER // 2, window // 2 + 1))
                    beyond = AgreementCheck.from_model(
                        model, partial(_run_plain_pass, model, *longer)
                    )
                    found = beyond.explain_disagreement(
                        partial(_run_cached_decoder, model, *longer), _roughly_agrees
                    )
                    why_not_cached = found and f"{found}, past a window of {window} tokens"
    return Abilities(
        linear_head=linear_head,
        packing=packing,
        shared=shared,
        lean=not reason,
        adapters=adapters,
        why_not_cached=why_not_cached,
        why_not_rows=why_not_rows,
        why_not_lean=reason,
    )


def _draw_texts(model: Any, lengths: tuple[int, int]) -> tuple[Tokens, IntArray]:
    """Two prompts of these lengths that begin alike, and two answers to each."""
    vocabulary = model.config.get_text_config().vocab_size
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, vocabulary, size=size) for size in lengths]
    prompts[1][:SHARED_TOKENS] = prompts[0][:SHARED_TOKENS]
    # Answers repeat tokens of their prompt, so that what is attended to, and where, decides what is
    # likely.
    return prompts, np.stack([rng.choice(prompts[index // 2], ANSWER) for index in range(4)])


def _rows(model: Any, prompts: Tokens, answers: IntArray) -> list[Tensor]:
    joined = [np.concatenate([prompts[index // 2], answer]) for index, answer in enumerate(answers)]
    return [torch.tensor(row[None], device=model.device) for row in joined]


def _run_plain_pass(model: Any, prompts: Tokens, answers: IntArray) -> Tensor:
    """Logits [M, V] of every token of the answers, by one plain forward pass a row."""
    rows = _rows(model, prompts, answers)
    return torch.cat(
        [model(row, use_cache=False).logits[0, -ANSWER - 1 : -1].float() for row in rows]
    )


def _head_is_linear(model: Any, prompts: Tokens, answers: IntArray, trial: AgreementCheck) -> bool:
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear or not head.weight.dtype.is_floating_point:
        return False

    def by_head() -> Tensor:
        hidden = [
            model.get_decoder()(row, use_cache=False).last_hidden_state
            for row in _rows(model, prompts, answers)
        ]
        if hidden[0].dtype != head.weight.dtype:
            raise TypeError("the model casts between its layers and its head")
        return torch.cat([head(each[0, -ANSWER - 1 : -1]) for each in hidden])

    return not trial.explain_disagreement(by_head)


def _packs_alike(
    model: Any,
    prompts: Tokens,
    answers: IntArray,
    trial: AgreementCheck,
    *,
    shared: bool = False,
) -> bool:
    nothing = np.zeros(ANSWER, np.float32)
    steps = [
        Transition(positions=np.arange(ANSWER), tokens=answer, logprobs=nothing)
        for answer in answers
    ]
    trajectories = [
        Trajectory(
            prompt=prompts[index // 2],
            transitions=(step,),
            text="",
            sampling=Sampling(),
            finish="length",
        )
        for index, step in enumerate(steps)
    ]
    packed = pack(trajectories, model.device, rounded=uses_onednn(model))
    seen = make_mask_arguments(packed, model.dtype, shared=shared)
    given = {
        "position_ids": packed.positions,
        "use_cache": False,
        "logits_to_keep": packed.predictors,
    }
    return not trial.explain_disagreement(lambda: model(packed.ids, **seen, **given).logits[0])


def _packs_beyond(model: Any, window: int) -> bool:
    """Whether a pack longer than a window is right where no sequence of it is; False where trying
    takes too long."""
    prompts, answers = _draw_texts(model, (max(window - ANSWER, 1), max(window - ANSWER, 1)))
    if not _is_cheap(model, sum(map(len, prompts)) + answers.size):
        return False
    return _packs_alike(
        model,
        prompts,
        answers,
        AgreementCheck.from_model(model, lambda: _run_plain_pass(model, prompts, answers)),
    )


def _is_cheap(model: Any, tokens: int) -> bool:
    """Whether passes of so many tokens take seconds."""
    return bool(tokens * model.num_parameters() <= WORK.get(model.device.type, 2e11))


def _score_in_rows(model: Any, prompts: Tokens, answers: IntArray) -> Tensor:
    """Logits [M, V] by one forward pass of rows that are padded on the right."""
    joined = [row[0].tolist() for row in _rows(model, prompts, answers)]
    ids, _ = pad_rows(joined)
    logits = model(ids.to(model.device), use_cache=False).logits
    return torch.cat(
        [
            each[len(row) - ANSWER - 1 : len(row) - 1]
            for each, row in zip(logits, joined, strict=True)
        ]
    )


def _roughly_agrees(trial: AgreementCheck, logits: Tensor) -> bool:
    """As `AgreementCheck.agrees` for what a model is refused by: of each prompt's answers the
    nearer one counts."""
    parts = (each.chunk(2) for each in (trial.logprobs, trial.tokens, logits))
    allowed = 2 * trial.allowed + CACHE_ROUNDS
    return all(
        AgreementCheck(logprobs, tokens, allowed, sequences=2).agrees(part)
        for logprobs, tokens, part in zip(*parts, strict=True)
    )


def _run_cached_decoder(model: Any, prompts: Tokens, answers: IntArray) -> Tensor:
    """Logits [M, V] by the model's own cache: prompts are copied, and rows dropped and put into
    another order."""
    decoder = CachedDecoder(model, pad_id=0)
    order = torch.tensor([0, 1, 0, 2, 3, 2])  # of three copies the last is the first once more
    begun = decoder.begin([prompt.tolist() for prompt in prompts], 3, ANSWER)
    logits = [begun.repeat_interleave(2, 0)]
    for time in range(ANSWER - 1):
        step = decoder.step(torch.tensor(answers[order, time], device=model.device))
        if len(step) == len(answers):
            logits.append(step[order.argsort()])
            continue
        logits.append(step[[0, 1, 3, 4]])
        if time == DROPPED_AT:
            keep = torch.tensor([[1, 2], [2, 1]])
            order = order.view(2, 3).gather(1, keep).flatten()
            decoder.keep(torch.tensor([0, 1], device=model.device), keep.to(model.device))
    return torch.stack(logits, dim=1).flatten(0, 1)


def _run_decoder(
    model: Any, prompts: Tokens, answers: IntArray, *, lay_out: bool = False
) -> Tensor:
    """Logits [M, V] by the lean decoder."""
    decoder = LeanDecoder(model, lay_out=lay_out)
    begun = decoder.begin([prompt.tolist() for prompt in prompts], 2, ANSWER, SHARED_TOKENS)
    logits = [begun.repeat_interleave(2, 0)]
    for time in range(ANSWER - 1):
        logits.append(decoder.step(torch.tensor(answers[:, time], device=model.device)))
    return torch.stack(logits, dim=1).flatten(0, 1)


def make_mask_arguments(packed: Pack, dtype: torch.dtype, *, shared: bool) -> dict[str, Any]:
    """The arguments that say what each token of a pack attends to."""
    if shared:
        # With no mask transformers would make one over the whole square; one of four dimensions it
        # passes on as it is.
        return {
            "attention_mask": torch.zeros((1, 1, 1, 1), dtype=dtype, device=packed.ids.device),
            "groups": packed.groups,
        }
    return {"attention_mask": make_additive_mask(packed.mask, dtype)}
