"""What a model family must be able to do; the loops know nothing else about it.

Letters in shapes: N terms (log-probabilities of single choices, flat over a batch), n trajectories.

A policy is a sampler and a learner that share their weights, and both follow one law. `plumbline.api.check_policy`
holds every family to it:
law 1, scoring a recorded trajectory with the weights that sampled it gives the recorded log-probabilities;
law 2, the draws really come from the declared law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from plumbline.policies.memory import Say
from plumbline.records import Message, Request, Sampling, Trajectory

if TYPE_CHECKING:
    from torch import Tensor

    from plumbline.policies.chunks import Watch
    from plumbline.policies.token_law import Noise


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The log-probabilities of recorded choices under some weights, flat, and whose they are.

    The order is that of `Trajectory.logprobs`: trajectory by trajectory, step by step, a step's tokens and then the
    choice of its positions where the model had a say in it.

    Example: two trajectories of one step with 2 and 1 tokens give logprobs [3], owner [0, 0, 1] and step [0, 0, 1].
    """

    logprobs: Tensor  # [N], float32, differentiable unless scored without gradient
    recorded: Tensor  # [N], float32, what the sampler wrote down
    owner: Tensor  # [N], int64, index into the scored trajectories
    step: Tensor  # [N], int64, index of the step among all scored steps
    weight: Tensor  # [N], float32, the step's weight: 1 unless only some steps are scored
    selection: Tensor  # [N], bool: the term is a choice of positions, not a token
    divergence: Tensor | None = None
    """KL of each scored step [steps] from these weights to the reference, in closed form, where it was asked for."""

    @classmethod
    def of(cls, trajectories: Sequence[Trajectory], logprobs: Tensor, divergence: Tensor | None = None) -> Terms:
        """Lay out log-probabilities [N], given in the order above, with everything that the records say about them."""
        import torch

        owner, step, weight, selection = [], [], [], []
        count = 0
        for index, trajectory in enumerate(trajectories):
            for each in trajectory.steps:
                terms = len(each.tokens) + (each.selection is not None)
                owner += [index] * terms
                step += [count] * terms
                weight += [each.weight] * terms
                selection += [False] * len(each.tokens) + [True] * (each.selection is not None)
                count += 1
        device = logprobs.device
        recorded = np.concatenate([trajectory.logprobs for trajectory in trajectories])
        return cls(
            logprobs=logprobs,
            recorded=torch.from_numpy(recorded).to(device),
            owner=torch.tensor(owner, device=device),
            step=torch.tensor(step, device=device),
            weight=torch.tensor(weight, dtype=torch.float32, device=device),
            selection=torch.tensor(selection, dtype=torch.bool, device=device),
            divergence=divergence,
        )


class Constraint(Protocol):
    """What an answer must follow, token by token."""

    def begin(self) -> None:
        """Forget the tokens so far: the answer is drawn from its beginning."""
        ...

    def restrict(self, logits: Tensor) -> None:
        """Set the logits [V] of the tokens that may not come next to minus infinity, in place."""
        ...

    def accept(self, token: int) -> None:
        """Take note of the token that was drawn."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LiveRequest(Request):
    """A request of a client that waits; the autoregressive family reads what it has beside the rest."""

    gone: Event
    """Set when nobody waits for the answer any more: it is dropped then."""
    constraint: Constraint | None = None
    """Restricts the distribution that the tokens are drawn from."""


@dataclass(frozen=True, slots=True, eq=False)
class Demonstration:
    """One supervised sequence as token ids; only the answer's tokens are targets."""

    tokens: tuple[int, ...]
    is_target: tuple[bool, ...]
    example: str = ""
    truncated: bool = False

    @property
    def num_targets(self) -> int:
        """How many tokens the loss counts."""
        return sum(self.is_target)


@runtime_checkable
class Watched(Protocol):
    """A sampler that fills canvases, and can be watched at it."""

    watch: Watch | None
    """Hears what each canvas holds after each step, from the thread that draws; nothing that is drawn depends on it."""

    def shown(self, canvas: NDArray[np.int64]) -> str:
        """What a canvas [L] reads up to its first end token, with a sign for each hidden place."""
        ...


@runtime_checkable
class Tells(Protocol):
    """A policy that has events to tell, such as an out of memory that it could help itself with."""

    say: Say


@runtime_checkable
class Recomputes(Protocol):
    """A policy that can do with less memory in training, at the price of time."""

    def recompute(self) -> bool:
        """Compute activations anew in the backward pass from now on; False: it does already, or may not."""
        ...


class Sampler(Protocol):
    """What draws trajectories: a model in this process, or an engine elsewhere that is given its weights."""

    family: str
    context: int
    """The longest prompt plus answer, in tokens."""

    @property
    def engine(self) -> Mapping[str, str]:
        """What samples and scores (decoder, packing, dtype, device), for the run's records."""
        ...

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """Tokens of a chat up to where the answer begins."""
        ...

    def exact(self, sampling: Sampling) -> bool:
        """Whether under this law the log-probabilities cover every random choice that the sampler makes."""
        ...

    def sample(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Trajectory]]:
        """Draw a trajectory for each request, and yield each soon after it has ended.

        Every random number of a request comes from its key, so its draws do not depend on what stands beside it, on
        how requests are cut into chunks, or on their order. The numbers are the same to the bit. What is drawn with
        them is too, except where a number falls within rounding of the border between two choices: a matrix product
        of more rows rounds otherwise, and moves borders and recorded log-probabilities (in float32 by about 1e-6).

        Args:
            requests: of any prompts and laws; their keys differ.

        Raises:
            DataError: a prompt does not fit into the context (raised before anything is drawn).
            ValueError: two requests have one key.
        """
        ...


@runtime_checkable
class Cuts(Protocol):
    """A sampler that says which requests it draws together, so that replicas of it can draw them as it would."""

    shared: int | None
    """Tokens that all prompts of what is asked next begin with and that are read once; None: found by itself."""

    def cut(self, requests: Sequence[Request]) -> list[tuple[list[Request], int]]:
        """Requests as they are drawn together, each part with its `shared`.

        Raises:
            DataError, RecipeError, ValueError: see `Sampler.sample`.
        """
        ...


class Learner(Protocol):
    """What scores recorded trajectories under weights that training changes."""

    stepwise: bool
    """Whether each step is scored by a forward pass of its own; False: one pass scores a whole trajectory."""

    def batches(self, trajectories: Sequence[Trajectory], tokens_per_pass: int) -> list[list[int]]:
        """Cut trajectories into parts that one forward and backward pass can hold."""
        ...

    def score(self, trajectories: Sequence[Trajectory], *, reference: bool = False, divergence: bool = False) -> Terms:
        """Log-probabilities of the recorded choices under the present weights, each at its own sampling law.

        Args:
            trajectories: what `sample` returned, or some of its steps; any number, of any prompts, under one law.
            reference: score with the weights that `keep_reference` remembered (without gradient).
            divergence: also compute each step's KL to the reference in closed form, with gradient.
        """
        ...

    def keep_reference(self) -> None:
        """Remember the present weights as the reference of the KL."""
        ...

    def demonstrate(self, messages: Sequence[Message], *, allow_truncation: bool = False) -> Demonstration:
        """Encode a chat that ends with the assistant's answer.

        Raises:
            DataError: it does not fit into the context and truncation is not allowed.
        """
        ...

    def supervised_loss(self, batch: Sequence[Demonstration], noise: Sequence[Noise]) -> Tensor:
        """Summed loss over the batch's targets (a scalar).

        Args:
            batch: demonstrations, or those of a pass that a larger batch was cut into.
            noise: each one's randomness, for families whose loss draws some. Nothing else may be drawn: a sum over
                passes is then the loss of the whole batch, however it was cut.
        """
        ...

    def trainable(self) -> Mapping[str, Tensor]:
        """The weights that training changes, by name."""
        ...

    def save(self, folder: Path, card: Mapping[str, Any]) -> None:
        """Write a model directory in the standard format, whole or not at all; `card` says where it came from."""
        ...

    def publish(self, version: int) -> None:
        """Let the present weights draw what follows; their trajectories carry `version`."""
        ...


class Policy(Sampler, Learner, Protocol):
    """A language model that can sample, score, be trained and be saved: sampler and learner share their weights."""


class Engine(Sampler, Protocol):
    """A sampler elsewhere: it draws with the weights that it was handed last."""

    def take(self, learner: Learner, version: int) -> None:
        """Take over the learner's present weights as this version, and see that they are what draws from now on.

        Raises:
            EngineError: they are not, or too little of what was learnt arrived.
        """
        ...

    def close(self) -> None:
        """End what was started for it."""
        ...


@runtime_checkable
class Measures(Protocol):
    """An engine that finds out how well the weights arrived that it took last."""

    @property
    def figures(self) -> Mapping[str, float]:
        """What it found, by the names of metrics."""
        ...


class Helpers(Protocol):
    """Replicas of a learner in other processes, which do some of the passes of an update."""

    count: int

    def begin(
        self, learner: Learner, works: Sequence[Callable[[Learner], Any]]
    ) -> Callable[[], list[tuple[Any, Mapping[str, Tensor]]]]:
        """Begin at most `count` pieces of work, each on a replica with the learner's present weights.

        Args:
            learner: whose replicas they are.
            works: called with a replica whose gradients are cleared; each leaves its own in the replica's weights.

        Returns:
            A function that waits, and gives for each what it returned and its gradients, by the names of the weights.
            It raises what the work raised, or EngineError where the replicas are gone.
        """
        ...

    def close(self) -> None:
        """End the replicas."""
        ...


def common_law(trajectories: Sequence[Trajectory]) -> Sampling:
    """The one law that all trajectories of a call were drawn under.

    Raises:
        ValueError: there are none, or they carry several laws.
    """
    if not trajectories:
        raise ValueError("nothing to score")
    sampling = trajectories[0].sampling
    if any(trajectory.sampling != sampling for trajectory in trajectories):
        raise ValueError("trajectories of one call share one sampling law")
    return sampling


def slowness(policy: Policy) -> str:
    """What to say of the short cuts that were left out because they did not agree with the model; empty if none was."""
    left_out = policy.engine.get("left_out", "")
    if not left_out:
        return ""
    return f"this model goes without {left_out}: slower, and no less exact, because the plain way is taken instead"


def limits(policy: Policy) -> list[str]:
    """What to say of where a model's context ends before its own, and of layers that an adapter could have had."""
    bare = policy.engine.get("without_adapters", "")
    said = [policy.engine.get("context_ends", ""), f"without an adapter: {bare}" if bare else ""]
    return [each for each in said if each]
