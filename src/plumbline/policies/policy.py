"""What a model family must be able to do; the loops know nothing else about it.

Letters in shapes: N terms (log-probabilities of single choices, flat over a batch), n trajectories.

A policy is a sampler and a learner that share their weights, and both follow one sampling
distribution. `plumbline.api.check_policy` holds every family to it: law 1, scoring a recorded
trajectory with the weights that sampled it gives the recorded log-probabilities; law 2, the draws
really come from the declared distribution.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from plumbline.errors import RecipeError
from plumbline.policies.memory import Say, ignore_message
from plumbline.recipe.families import explain_lacking, foreign_error
from plumbline.records import (
    BoolArray,
    Draws,
    IntArray,
    Message,
    Request,
    Sampling,
    Terms,
    Trajectory,
    Transition,
)

if TYPE_CHECKING:
    from torch import Tensor

    from plumbline.policies.chunks import Watch
    from plumbline.policies.sampling_distribution import Noise
    from plumbline.policies.token_logprobs import TokenDistributions


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
    """A request of a client that waits; the autoregressive family reads what it has beside the
    rest."""

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


class Sampler(Protocol):
    """What draws trajectories: a model in this process, or an engine elsewhere that is given its
    weights."""

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
        """Whether under this sampling distribution the log-probabilities cover every random choice
        that the sampler makes."""
        ...

    def sample(self, requests: Sequence[Request]) -> Draws:
        """Draw a trajectory for each request, and yield each soon after it has ended.

        Every random number of a request comes from its key, so its draws do not depend on what
        stands beside it, on how requests are cut into chunks, or on their order. The numbers are
        the same to the bit. What is drawn with them is too, except where a number falls within
        rounding of the border between two choices: a matrix product of more rows rounds otherwise,
        and moves borders and recorded log-probabilities (in float32 by about 1e-6).

        Args:
            requests: of any prompts and distributions; their keys differ.

        Raises:
            DataError: a prompt does not fit into the context (raised before anything is drawn).
            ValueError: two requests have one key.
        """
        ...


class Policy(ABC):
    """A language model that can sample, score, be trained and be saved: sampler and learner share
    their weights.

    A family subclasses it; what is not abstract has a default.
    """

    family: str
    context: int
    stepwise: bool = False
    """Whether each step is scored by a forward pass of its own; False: one pass scores a whole
    trajectory."""
    version: int = 0
    """What trajectories carry."""
    rows_at_once: int = 64
    """Requests that are drawn together at most."""
    shared: int | None = None
    """Tokens that all prompts of what is asked next begin with and that are read once; None: found
    by itself."""
    say: Say = staticmethod(ignore_message)
    """Told of events, such as an out of memory that the policy could help itself with."""
    watch: Watch | None = None
    """Hears what each canvas holds after each step, from the thread that draws; nothing that is
    drawn depends on it."""

    # -- sampling, as `Sampler` says ---------------------------------------------------------------

    @property
    def engine(self) -> Mapping[str, str]:
        """See `Sampler.engine`."""
        return {"family": self.family}

    @abstractmethod
    def prompt_length(self, messages: Sequence[Message]) -> int:
        """See `Sampler.prompt_length`."""

    def exact(self, sampling: Sampling) -> bool:  # noqa: ARG002 - each is scored exactly
        """See `Sampler.exact`; by default under every sampling distribution."""
        return True

    @abstractmethod
    def sample(self, requests: Sequence[Request]) -> Draws:
        """See `Sampler.sample`."""

    def cut(self, requests: Sequence[Request]) -> list[tuple[list[Request], int]]:
        """Requests as they are drawn together, each part with its `shared`; by default each by
        itself.

        Replicas of the policy then draw them as it would.

        Raises:
            DataError, RecipeError, ValueError: see `Sampler.sample`.
        """
        return [([request], 0) for request in requests]

    def render_canvas(self, canvas: IntArray) -> str:
        """What a canvas [L] reads up to its first end token, with a sign for each hidden place, for
        who has `watch`."""
        raise NotImplementedError

    # -- scoring -----------------------------------------------------------------------------------

    def batches(
        self,
        trajectories: Sequence[Trajectory],
        tokens_per_microbatch: int,  # noqa: ARG002
    ) -> list[list[int]]:
        """Cut trajectories into parts that one forward and backward pass can hold; by default all
        stand in one."""
        return [list(range(len(trajectories)))]

    @abstractmethod
    def score(
        self,
        trajectories: Sequence[Trajectory],
        *,
        reference: bool = False,
        divergence: bool = False,
    ) -> Terms:
        """Log-probabilities of the recorded choices under the present weights, each at its own
        sampling distribution.

        Args:
            trajectories: what `sample` returned, or some of its steps; any number, of any prompts,
                under one sampling distribution.
            reference: score with the weights that `keep_reference` remembered (without gradient).
            divergence: also compute each step's KL to the reference in closed form, with gradient.
        """

    def compare(
        self,
        trajectories: Sequence[Trajectory],  # noqa: ARG002
        hinted: Sequence[Trajectory],  # noqa: ARG002
        teacher: Policy | None,  # noqa: ARG002
        *,
        forward: bool = False,  # noqa: ARG002
        present: bool = False,  # noqa: ARG002
    ) -> Terms:
        """The KL of each scored step between these weights and a teacher's, in closed form, with
        gradient.

        Args:
            trajectories: what `sample` returned, under one sampling distribution.
            hinted: the same answers after the prompts that the teacher is given.
            teacher: another model; None: the reference's weights.
            forward: of the teacher to this policy; else the reverse.
            present: take the present weights in place of the reference's.

        Returns:
            What `score` returns, with `divergence`.

        Raises:
            RecipeError: by default, because the family cannot.
        """
        raise self._lacks("compare")

    def teacher_distributions(
        self,
        trajectories: Sequence[Trajectory],  # noqa: ARG002
        *,
        reference: bool = False,  # noqa: ARG002
    ) -> TokenDistributions:
        """What a teacher, or the `reference`, says at each token of the answers, without gradient,
        for `compare`.

        Raises:
            RecipeError: by default, because the family cannot.
        """
        raise self._lacks("compare")

    def encode(self, messages: Sequence[Message]) -> IntArray:  # noqa: ARG002
        """The prompt of a trajectory that answers a chat.

        Raises:
            RecipeError: by default, because the family cannot be given another prompt afterwards.
        """
        raise self._lacks("encode")

    def mask_positions(self, trajectory: Trajectory, hidden: BoolArray) -> Transition:  # noqa: ARG002
        """See `plumbline.algorithms.algorithm.Scores.mask_positions`.

        Raises:
            RecipeError: by default, because the family cannot score an answer with positions
                hidden.
        """
        raise self._lacks("mask_positions")

    def _lacks(self, ability: str) -> RecipeError:
        return foreign_error("the policy", self.family, explain_lacking(ability))

    # -- training ----------------------------------------------------------------------------------

    @abstractmethod
    def keep_reference(self) -> None:
        """Remember the present weights as the reference of the KL."""

    @abstractmethod
    def demonstrate(
        self, messages: Sequence[Message], *, allow_truncation: bool = False
    ) -> Demonstration:
        """Encode a chat that ends with the assistant's answer.

        Raises:
            DataError: it does not fit into the context and truncation is not allowed.
        """

    @abstractmethod
    def supervised_loss(self, batch: Sequence[Demonstration], noise: Sequence[Noise]) -> Tensor:
        """Summed loss over the batch's targets (a scalar).

        Args:
            batch: demonstrations, or those of a micro-batch that a larger batch was cut into.
            noise: each one's randomness, for families whose loss draws some. Nothing else may be
                drawn: a sum over micro-batches is then the loss of the whole batch, however it was
                    cut.
        """

    @abstractmethod
    def trainable(self) -> Mapping[str, Tensor]:
        """The weights that training changes, by name."""

    def recompute(self) -> bool:
        """Compute activations again in the backward pass from now on, which takes less memory and
        more time.

        False: it does already, or may not.
        """
        return False

    def replica(self) -> Policy | None:
        """A policy with these very weights and gradients of its own, for another thread; None where
        that gains nothing.

        What it holds of the weights is what they are: an optimiser changes them in place for both.
        """
        return None

    @abstractmethod
    def save(self, folder: Path, metadata: Mapping[str, Any]) -> None:
        """Write a model directory in the standard format, whole or not at all; `metadata` says
        where it came from."""

    def publish(self, version: int) -> None:
        """Let the present weights draw what follows; their trajectories carry `version`."""
        self.version = version


class Engine(Sampler, Protocol):
    """A sampler elsewhere: it draws with the weights that it was handed last."""

    figures: Mapping[str, float]
    """How well the weights arrived that it took last, by the names of metrics; empty where it does
    not measure that."""

    def take(self, learner: Policy, version: int) -> None:
        """Take over the learner's present weights as this version, and see that they are what draws
        from now on.

        Raises:
            EngineError: they are not, or too little of what was learnt arrived.
        """
        ...

    def close(self) -> None:
        """End what was started for it."""
        ...


Work = Callable[[Policy], Any]
"""What is done with a policy: some of the micro-batches of a batch."""
Done = tuple[Any, Mapping[str, "Tensor"]]
"""What a piece of work returned, and the gradients that it left, by the names of the weights."""


class Helpers(Protocol):
    """Replicas of a learner, in other processes or threads, which do some of the micro-batches
    of a batch."""

    count: int

    def working(
        self, learner: Policy, works: Sequence[Work]
    ) -> AbstractContextManager[Callable[[], list[Done]]]:
        """A context in which at most `count` pieces of work are done, each on a replica with the
        learner's weights.

        Args:
            learner: whose replicas they are.
            works: called with a replica whose gradients are cleared; each leaves its own in the
                replica's weights.

        Returns:
            A function that waits, and gives for each what it returned and its gradients, by the
            names of the weights. It raises what the work raised, or EngineError where the replicas
            are gone.
        """
        ...

    def close(self) -> None:
        """End the replicas."""
        ...


def with_gradients(policy: Policy, work: Work) -> Done:
    """What the work returns, and the gradients that it left on the CPU, by the names of the
    weights."""
    weights = policy.trainable()
    for weight in weights.values():
        weight.grad = None
    found = work(policy)
    return found, {
        name: weight.grad.cpu() for name, weight in weights.items() if weight.grad is not None
    }


def common_sampling(trajectories: Sequence[Trajectory]) -> Sampling:
    """The one sampling distribution that all trajectories of a call were drawn under.

    Raises:
        ValueError: there are none, or they carry several distributions.
    """
    if not trajectories:
        raise ValueError("nothing to score")
    sampling = trajectories[0].sampling
    if any(trajectory.sampling != sampling for trajectory in trajectories):
        raise ValueError("trajectories of one call share one sampling distribution")
    return sampling


def slowness(policy: Policy) -> str:
    """What to say of what makes a model slow here; empty if nothing does.

    Short cuts that did not agree with the model and were left out, and numbers that the processor
    is slow at.
    """
    said = []
    if left_out := policy.engine.get("left_out", ""):
        said.append(f"this model goes without {left_out}: slower, no less exact")
    if emulated := policy.engine.get("emulated", ""):
        said.append(
            f"this processor is slow at {emulated}: model.dtype=float32 takes half of the time or "
            "less"
        )
    return "; ".join(said)


def limits(policy: Policy) -> list[str]:
    """What to say of where a model's context ends before its own, and of layers that an adapter
    could have had."""
    bare = policy.engine.get("without_adapters", "")
    said = [policy.engine.get("context_ends", ""), f"without an adapter: {bare}" if bare else ""]
    return [each for each in said if each]
