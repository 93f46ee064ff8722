"""AdamW with a schedule, gradient clipping, and master weights where the model is held in 16 bits.

An update of 5e-6 is far below bfloat16's resolution (2^-8 of the weight), so a 16-bit weight is updated in a float32
copy and rounded once, after the step; otherwise most updates would vanish without a word.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from plumbline.errors import RunError
from plumbline.policies.memory import Say, begin_peak, free, is_full, peak, unheard, within_reach
from plumbline.policies.policy import Helpers, Policy, Recomputes
from plumbline.recipe import OptimiserSection, RlSection, Schedule, SftSection
from plumbline.runs.run import Run
from plumbline.training.guards import check_finite

# -- schedule --------------------------------------------------------------------------------------------------------
#
# The learning rate over a stage's steps, as factors; no torch.


def schedule(kind: Schedule, step: float, total: int, warmup: int) -> float:
    """The factor on the learning rate at `step` (from 0, not always a whole one) of `total`.

    The warm-up rises linearly and its first step already moves: (step + 1) / warmup, 1 at most. After it `constant` and
    `constant_with_warmup` stay at 1, `linear` falls to 0 at `total`, `cosine` falls along half a cosine.
    """
    if kind != "constant" and step < warmup:
        return min(1.0, (step + 1) / warmup)
    progress = (step - warmup) / max(1, total - warmup)
    if kind == "linear":
        return max(0.0, 1.0 - progress)
    if kind == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    return 1.0


def warmup_steps(warmup: float, total: int) -> int:
    """A share below 1 of all steps, or a number of steps."""
    return round(warmup * total) if warmup < 1 else int(warmup)


# -- passes ----------------------------------------------------------------------------------------------------------
#
# How much of a batch goes into one forward and backward pass: as much as the recipe says, or what the memory holds.
#
# The gradient of a batch is the sum over its passes, however it was cut into them, so this decides about memory and
# speed and never about a result.

Part = TypeVar("Part")
Result = TypeVar("Result")
Cut = Callable[[int], Sequence[Part]]
"""From the most tokens of a pass to the passes of a batch."""

TRIALS = (2048, 8192)
"""Tokens of the passes that are measured. The smaller one has more answers than one slice of the head takes at once, so
that logits, which never take more than a slice, are not counted for every token."""
MOST = 2**16
"""Tokens of a pass, whatever the memory: the time in which it is started is then long hidden behind its arithmetic."""
SHARE = 0.8
"""Of the memory that is planned with; the rest is for what is cut less evenly, and for holes between tensors."""
ADAM = 8
"""Bytes of AdamW's moments for a trained weight, which come with its first step."""


class Passes:
    """Does work pass by pass, and again in smaller passes where the memory was not enough.

    Args:
        clear: forgets the gradients that an unfinished piece of work left.
        device: where the weights are.
        count: how many are trained.
    """

    def __init__(self, clear: Callable[[], None], device: Any, count: int) -> None:
        self.clear, self.device, self.count = clear, device, count
        self.key = ""
        """The recipe's, for messages; empty where it has none."""
        self.say: Say = unheard
        self.recompute: Callable[[], bool] = lambda: False
        """Lets the backward pass compute activations anew; False where it does already, or may not."""
        self.helpers: Helpers | None = None
        """Replicas that do some of the passes."""
        self._measured: int | None = None
        self._limit: int | None = None
        """Tokens that were too many, halved until they were not."""

    def tell(self, run: Run, stage: str, policy: Policy) -> None:
        """Tell a run what happens in a stage, and take what a policy has to save memory."""
        self.say, self.key = run.event, "" if stage == "base" else f"{stage}.tokens_per_pass"
        if isinstance(policy, Recomputes):
            self.recompute = policy.recompute

    def fitting(self, cut: Cut[Part], work: Callable[[Sequence[Part]], Result], tokens: int) -> Result:
        """What `work` makes of the passes that `cut` makes of a batch.

        Out of memory, the gradients are cleared and all of the work is done again from its start, in passes of half as
        many tokens; so `work` draws nothing and changes no weight. What it then returns is what it would have returned
        had the recipe asked for such passes. They stay that small.

        Args:
            cut: from the most tokens of a pass to the passes.
            work: forward and backward of each of them.
            tokens: the most of a pass.

        Raises:
            RuntimeError: torch's error of a full memory, where no pass can be made smaller.
        """
        tokens = min(tokens, self._limit or tokens)
        parts = cut(tokens)
        while True:
            try:
                return work(parts)
            except RuntimeError as error:
                if not is_full(error):
                    raise
                smaller = _smaller(cut, parts, tokens)
                if smaller is None and not self.recompute():
                    raise
                self.clear()
                free(error)
            if smaller is None:
                self.say("out_of_memory", f"a pass that cannot be cut takes more memory than there is; {RECOMPUTED}")
                continue
            self.say(
                "out_of_memory",
                f"passes of up to {tokens} tokens take more memory than there is; from here on they have up to "
                f"{smaller[0]}, and this step is done again with the same answers and random numbers, so no result "
                "changes" + (f". Set {self.key}: {smaller[0]} to begin with that" if self.key else ""),
            )
            tokens, parts = smaller
            self._limit = tokens

    def tokens(self, cut: Cut[Part], work: Callable[[Sequence[Part]], Any], section: SftSection | RlSection) -> int:
        """The most tokens of a pass: what the recipe says, or for auto what the first batch on a GPU shows.

        Where less fits there than this batch has use for (up to what a pass has on a CPU), activations are computed
        anew from then on, and it is measured once more.

        Args:
            cut: see `fitting`.
            work: forward and backward; its gradients are cleared.
            section: the recipe's.
        """
        if section.tokens_per_pass != "auto":  # noqa: S105 - no password
            return section.tokens_per_pass
        if self.device.type != "cuda":
            return section.on_cpu
        if self._measured is None:
            self._measured, figures = self._measure(cut, work)
            needed = _size(cut, section.on_cpu)
            if self._measured < needed and self.recompute():
                self.say("note", f"{figures}, and this batch has passes of {needed} tokens; {RECOMPUTED}")
                self._measured, figures = self._measure(cut, work)
            self.say("note", f"{figures}. Set {self.key or 'tokens_per_pass'} to have other passes")
        return self._measured

    def _measure(self, cut: Cut[Part], work: Callable[[Sequence[Part]], Any]) -> tuple[int, str]:
        """Tokens of a pass that fit, from the peaks of one or two small passes, and these figures in words.

        Bytes are taken for linear in tokens: those of two passes give the slope and the constant, where the larger one
        can be expected to fit; those of one the slope, with what lay in the memory before as the constant.
        """
        begin_peak(self.device)
        before = peak(self.device)
        most = SHARE * (within_reach(self.device) - ADAM * self.count)
        found: list[tuple[int, int]] = []  # tokens, bytes
        slope, constant = 0.0, float(before)
        for tokens in TRIALS:
            if found and constant + slope * tokens > most:
                break
            begin_peak(self.device)
            try:
                work(cut(tokens)[:1])
            except RuntimeError as error:
                if not is_full(error):
                    raise
                self.clear()
                free(error)
                break
            self.clear()
            found.append((_first(cut, tokens), peak(self.device)))
            if len(found) == 1 or found[1][0] > found[0][0]:
                (less, low), (more, high) = (0, before) if len(found) == 1 else found[0], found[-1]
                slope = max(1.0, (high - low) / (more - less))
                constant = high - slope * more
        fits = int((most - constant) / slope) if found else TRIALS[0] // 2
        told = " and ".join(f"{tokens} tokens took {size / 1e9:.2f} GB" for tokens, size in found) or "none fitted"
        tokens = max(1, min(MOST, fits))
        return tokens, f"passes that were tried: {told}; {most / 1e9:.1f} GB may be used, so up to {tokens} tokens fit"


RECOMPUTED = (
    "from here on layers are computed a second time in the backward pass, which takes about a third more time and "
    "changes no result (model.gradient_checkpointing: true begins with that, false forbids it)"
)


def _smaller(cut: Cut[Part], parts: Sequence[Part], tokens: int) -> tuple[int, Sequence[Part]] | None:
    """Half of the tokens, or half of that, until the batch is cut otherwise; None where nothing is left to cut."""
    while tokens > 1:
        tokens //= 2
        if (found := cut(tokens)) != parts:
            return tokens, found
    return None


def _size(cut: Callable[[int], Any], tokens: int) -> int:
    """The fewest tokens with which a batch is cut as with so many: those of its largest pass."""
    wanted, low, high = cut(tokens), 0, tokens  # `high` is enough, `low` is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cut(middle) == wanted else (middle, high)
    return high


def _first(cut: Cut[Part], tokens: int) -> int:
    """Tokens of the first of the passes; of one that holds a single answer, half of what two need."""

    def first(tokens: int) -> Part:
        return cut(tokens)[0]

    if first(1) != first(tokens):
        return _size(first, tokens)
    while tokens < MOST and first(1) == first(tokens):
        tokens *= 2
    return max(1, _size(first, tokens) // 2)


class Optimiser:
    """Steps the trainable weights of a policy.

    Args:
        weights: by name, as `Policy.trainable` gives them.
        section: learning rate, schedule, clipping.
        total: steps of the whole stage, for the schedule.
        rate_key: of the learning rate in the recipe, for messages.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        section: OptimiserSection,
        total: int,
        rate_key: str = "optimiser.learning_rate",
    ) -> None:
        if not weights:
            raise RunError("nothing to train: no weight of the model requires a gradient")
        self.weights = dict(weights)
        self.section, self.total, self.rate_key = section, total, rate_key
        self.warmup = warmup_steps(section.warmup, total)
        self.gone = 0.0
        """The share of a budget of seconds that is spent; the schedule follows it where it is ahead of the steps'."""
        self.masters = {
            name: weight.detach().float().clone() if weight.dtype in (torch.bfloat16, torch.float16) else weight
            for name, weight in self.weights.items()
        }
        groups: dict[float, list[Tensor]] = {}
        for name, master in self.masters.items():
            groups.setdefault(section.weight_decay if _decays(name, master) else 0.0, []).append(master)
        self.adam = torch.optim.AdamW(
            [{"params": weights, "weight_decay": decay} for decay, weights in groups.items()],
            lr=section.learning_rate,
            betas=section.betas,
            fused=True,
        )
        first = next(iter(self.weights.values()))
        self.passes = Passes(self.clear, first.device, sum(weight.numel() for weight in self.weights.values()))
        """In which the gradients of a step are added up."""

    def learning_rate(self, step: int) -> float:
        """The learning rate of `step` (from 0)."""
        at = max(float(step), self.gone * self.total)
        return self.section.learning_rate * schedule(self.section.schedule, at, self.total, self.warmup)

    def step(self, step: int) -> float:
        """Clip the gradients, update the weights, clear the gradients; the norm [nats / weight] before clipping.

        Raises:
            TrainingStopped: the gradient is not finite; the weights are as they were.
        """
        gradients = [weight.grad for weight in self.weights.values() if weight.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients)) if gradients else 0.0
        check_finite(norm, "gradient", step, self.rate_key)
        scale = min(1.0, self.section.max_grad_norm / (norm + 1e-6))
        for name, weight in self.weights.items():
            if weight.grad is not None:
                master = self.masters[name]
                gradient = weight.grad.float() if master is not weight else weight.grad
                master.grad = gradient.mul_(scale) if scale < 1 else gradient
        for group in self.adam.param_groups:
            group["lr"] = self.learning_rate(step)
        self.adam.step()
        with torch.no_grad():
            for name, weight in self.weights.items():
                if self.masters[name] is not weight:
                    weight.copy_(self.masters[name])
        self.clear()
        return norm

    def clear(self) -> None:
        """Forget the gradients."""
        for name, weight in self.weights.items():
            weight.grad = None
            self.masters[name].grad = None

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs, as flat tensors: weights, masters, moments, counts."""
        tensors: dict[str, Tensor] = {}
        for name, weight in self.weights.items():
            tensors[f"weight:{name}"] = weight.detach()
            if self.masters[name] is not weight:
                tensors[f"master:{name}"] = self.masters[name]
            for key, value in self.adam.state.get(self.masters[name], {}).items():
                tensors[f"{key}:{name}"] = value
        return tensors

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave.

        Raises:
            RunError: the tensors are of another model.
        """
        names = {key.partition(":")[2] for key in tensors}
        if names != set(self.weights):
            odd = sorted(names ^ set(self.weights))
            raise RunError(
                f"the checkpoint is of another model: {len(odd)} weights differ ({', '.join(odd[:3])})",
                "resume with the model that the run was started with",
            )
        with torch.no_grad():
            for name, weight in self.weights.items():
                saved = tensors[f"weight:{name}"]
                if saved.shape != weight.shape:
                    raise RunError(f"the checkpoint is of another model: {name} is {tuple(saved.shape)} there")
                # Where the run has moved, 16-bit weights may have become 32-bit ones (dtype: auto), or the reverse.
                saved = tensors.get(f"master:{name}", saved)
                master = self.masters[name]
                master.copy_(saved)
                if master is not weight:
                    weight.copy_(master)
                moments = {  # all of them where the weight is, the count as well: a fused step takes no other
                    key: tensors[f"{key}:{name}"].clone().to(master.device)
                    for key in ("step", "exp_avg", "exp_avg_sq")
                    if f"{key}:{name}" in tensors
                }
                if moments:
                    self.adam.state[master] = moments


def _decays(name: str, weight: Tensor) -> bool:
    """Whether weight decay is for a weight: norms, biases and embeddings have a scale that nothing makes up for."""
    return weight.dim() > 1 and not any(part in name for part in ("embed", "wte", "wpe"))
