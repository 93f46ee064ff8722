"""Whether a short cut gives what a model gives by itself, but for rounding.

Letters in shapes: M compared positions, K plausible tokens at each, V vocabulary, N tokens.

A short cut is compared with a float32 pass of the same weights, as the model's own plain pass in
its own dtype is: it may be about as far from the float32 pass as that is, and no further. So a
model is judged by what it rounds itself, whatever its dtype and its outlier channels. What is
compared are the log-probabilities of the tokens that are plausible at a position; the largest
difference over all logits is rounding, of a token that is never drawn. Where a model would be
refused by it, several sequences are tried and the middle one decides: in 16 bits a place may jump
by several nats for no reason but rounding, and takes what attends to it along. SmolLM2-135M, taken
for a masked model, came out 0.6 to 1.8 times as far as its own pass, so there it may be 3 times; an
error is far beyond that.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

PLAUSIBLE = 32
"""Tokens compared at each position, the most probable ones."""
FURTHER = 1.5
"""How many times further from the float32 pass than the model's own pass a short cut may be (root
mean square); twice that where the model would be refused."""
EXACT = 1e-4
"""Nats that a short cut may be off beyond that: what a float32 model may differ by from itself."""
UNFIT = (TypeError, ValueError, RuntimeError, AttributeError, IndexError, KeyError)
"""What a model raises whose forward pass takes other arguments."""


@dataclass(frozen=True, slots=True, eq=False)
class AgreementCheck:
    """What a short cut has to reproduce, and how exactly."""

    logprobs: Tensor  # [M, K], of the float32 pass
    tokens: Tensor  # [M, K], the plausible ones
    allowed: float
    """Nats, in the sense of `distance`."""
    sequences: int = 1
    """How many the M positions are of, equally many each."""

    @classmethod
    def from_model(
        cls, model: Any, plain: Callable[[], Tensor], sequences: int = 1
    ) -> "AgreementCheck":
        """From a plain pass of a model, which gives logits [M, V]; it is run in float32, too."""
        own = plain()
        try:
            with cast_to_float32(model):
                exact = plain().float()
        # a module that reads another's weights (Mamba's its convolution's) finds them in 16 bits
        except RuntimeError:
            with cast_to_float32(model, at_once=True):
                exact = plain().float()
        return cls.from_logits(exact, own, sequences)

    @classmethod
    def from_logits(cls, exact: Tensor, own: Tensor, sequences: int = 1) -> "AgreementCheck":
        """From the logits [M, V] of the float32 pass and of the model's own."""
        logprobs, tokens = exact.log_softmax(-1).topk(min(PLAUSIBLE, exact.shape[-1]), dim=-1)
        trial = cls(logprobs, tokens, 0.0, sequences)
        further = FURTHER if sequences == 1 else 2 * FURTHER
        return cls(logprobs, tokens, further * trial.distance(own) + EXACT, sequences)

    def distance(self, logits: Tensor) -> float:
        """How far logits [M, V] are from the float32 pass, in nats: root mean square, of the
        sequence in the middle."""
        moved = logits.float().log_softmax(-1).gather(-1, self.tokens) - self.logprobs
        return float(moved.square().view(self.sequences, -1).mean(1).sqrt().median())

    def agrees(self, logits: Tensor) -> bool:
        """Whether logits [M, V] are as near to the float32 pass as they should be."""
        return logits.shape[0] == self.tokens.shape[0] and self.distance(logits) <= self.allowed

    def explain_disagreement(
        self, way: Callable[[], Tensor], agrees: Callable[["AgreementCheck", Tensor], bool] = agrees
    ) -> str:
        """Why the logits [M, V] that a way gives are not to be relied on; empty where they are."""
        try:
            return "" if agrees(self, way()) else "its logits differ from the model's own"
        except (*UNFIT, AssertionError) as error:
            # Such as a kernel that this device or a graph does not have, or a pass that takes no
            # masks or positions.
            return (
                "it fails here: "
                f"{(str(error).strip().splitlines() or [type(error).__name__])[0][:200]}"
            )


@contextmanager
def cast_to_float32(model: Any, *, at_once: bool = False) -> Iterator[None]:
    """While open, 16-bit weights are cast to float32 where they are used, one module at a time, or
    all `at_once`."""
    kept: dict[nn.Module, dict[str, Tensor]] = {}

    def widen(module: nn.Module, _: Any) -> None:
        kept[module] = {}
        for name, weight in module.named_parameters(recurse=False):
            if weight.dtype in (torch.float16, torch.bfloat16):
                kept[module][name] = weight.data
                weight.data = weight.data.float()

    def narrow(module: nn.Module, *_: Any) -> None:
        for name, weight in kept.pop(module, {}).items():
            getattr(module, name).data = weight

    hooks = []
    for module in model.modules():
        if not at_once and next(module.parameters(recurse=False), None) is not None:
            hooks += [
                module.register_forward_pre_hook(widen),
                module.register_forward_hook(narrow, always_call=True),
            ]
    try:
        if at_once:
            for module in model.modules():
                widen(module, None)
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for module in list(kept):
            narrow(module)


STEADY = 8
"""Tokens of the row that is tried beside a distant one."""


@torch.no_grad()
def find_steady_context(model: Any, context: int) -> int:
    """Tokens, of a model's context, up to which a row's logits do not depend on how long another
    row of its pass is.

    LongRoPE and dynamic frequencies are chosen for the longest sequence of a pass. A row is tried
    beside one that stands at the end of the context, by its positions alone, so that nothing long
    is computed; where that moves it, the length from which on it does is found by halving. A model
    that takes no positions has nothing of the kind.
    """
    if context <= 2 * STEADY or context > 2**30:  # of unknown length
        return context
    ids = torch.arange(STEADY, device=model.device).repeat(2, 1)

    def beside(length: int) -> Tensor:
        """Logits [STEADY, V] of a row beside one that ends at this length."""
        near = torch.arange(STEADY, device=model.device)
        positions = torch.stack([near, near + length - STEADY])
        logits: Tensor = model(
            ids, attention_mask=torch.ones_like(ids), position_ids=positions, use_cache=False
        ).logits
        return logits[0].float().log_softmax(-1)

    def moves(length: int) -> bool:
        return not torch.allclose(beside(length), alone, rtol=0, atol=EXACT)

    try:
        alone = beside(STEADY)
        steady, moved = STEADY, context
        if not moves(context):
            return context
        while moved - steady > 1:
            middle = (steady + moved) // 2
            steady, moved = (steady, middle) if moves(middle) else (middle, moved)
    except UNFIT:
        return context
    beside(STEADY)  # dynamic frequencies stay as the longest pass so far has left them
    return steady


@torch.no_grad()
def compute_float32_logprobs(model: Any, sequences: Sequence[Sequence[int]]) -> Tensor:
    """Log-probabilities [N], float64, of every token but the first of some sequences, in a float32
    pass of each.

    In 16 bits the rounding of the activations would hide what one step of RL changes.
    """
    found = []
    with cast_to_float32(model):
        for tokens in sequences:
            ids = torch.tensor([list(tokens)], device=model.device)
            logprobs = model(ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
            found.append(logprobs.gather(-1, ids[0, 1:, None]).flatten())
    return torch.cat(found).double().cpu()
