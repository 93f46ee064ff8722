"""The nouns that flow between all other parts.

Letters in shapes: G rollouts in a group, K choices made in one step, L positions, N terms.

Everything here is plain, typed and frozen, and needs numpy and the standard library only, so that a
report or an offline scoring runs without torch.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypedDict,
    TypeVar,
)

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import RecipeError

if TYPE_CHECKING:
    from torch import Tensor

K = TypeVar("K")
V = TypeVar("V")
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
"""Of any shape: who takes or gives one says its letters."""

Finish = Literal["stop", "length"]
"""Why a trajectory ended: the model said so, or the limit cut it off."""

Key = tuple[int | str, ...]
"""What a request's random numbers are derived from: the seed, what they are for, the example, the
copy, the turn."""


Row = Mapping[str, Any]
"""A row of data or of records: values by their name."""
Rows = Sequence[Row]
Values = dict[str, Any]
"""What JSON has as an object, by name."""


class Message(TypedDict):
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One question whose answer can be checked.

    Example:
        Example(id="extraction-03fa", messages=[system, user], gold='{"sentiment": "negativo"}',
                reference={"sentiment": "negativo"}, stratum="extraction")
    """

    id: str
    messages: Sequence[Message]
    """The prompt: every turn before the answer."""
    gold: str | None = None
    """The oracle's answer: it scores 1.0. None where nobody knows one; there is no ceiling then,
    and no SFT."""
    reference: Mapping[str, Any] = field(default_factory=dict)
    """What the verifier compares with."""
    stratum: str = ""
    """The job or kind that evaluations break down by (`eval/<stratum>`)."""
    cluster: str = ""
    """What it shares with examples that are alike: a customer, a form, a template. Empty for none:
    it is its own."""

    def fingerprint(self) -> str:
        """16 hex digits of the prompt's content: equal prompts are equal whatever their ids
        (overlap checks)."""
        text = "\x1e".join(f"{m['role']}\x1f{m['content']}" for m in self.messages)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The sampling distribution by which text is drawn. A trajectory carries it, so the scorer
    cannot use another.

    A family that needs more has a subclass of its own (its `options.py`); a recipe's `sampling` is
    one of that class.
    """

    # how a recipe is checked
    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    temperature: float = 1.0
    """0 is greedy: the most probable choice, whose log-probability is recorded as 0."""
    top_k: int = 0
    """Keep the k most probable tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of tokens that holds this probability; 1 keeps all."""
    max_tokens: int = 256
    """Longest answer, in tokens; a longer one is cut and counted as truncated."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature must be finite and at least 0, not {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be at least 0 (0 keeps all tokens), not {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], not {self.top_p}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")

    @property
    def greedy(self) -> bool:
        """Whether nothing is drawn at all."""
        return self.temperature == 0

    def as_greedy(self) -> Self:
        """The same limits, the most probable token."""
        return replace(self, temperature=0.0, top_k=0, top_p=1.0)

    @property
    def most_steps(self) -> int | None:
        """The most steps that a trajectory can have; None where the sampling distribution does not
        say."""
        return None

    @classmethod
    def of(cls, sampling: "Sampling") -> Self:
        """The sampling distribution, as one of this kind.

        Raises:
            RecipeError: it is another family's.
        """
        if not isinstance(sampling, cls):
            raise RecipeError(
                f"this family samples by {cls.__name__}, and was given {type(sampling).__name__}",
                f"pass a {cls.__name__}",
            )
        return sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedSampling(Sampling):
    """The sampling distribution of an answer that is made in a number of steps."""

    steps: int | None = None
    """Denoising steps, or rounds of slots, of training rollouts; evaluations have
    `evaluation.steps`."""

    def __post_init__(self) -> None:
        Sampling.__post_init__(self)  # super() does not find its way in a class with slots
        if self.steps is not None and self.steps < 1:
            raise ValueError(
                f"steps must be at least 1, not {self.steps}: without a step nothing is ever "
                "filled in"
            )

    @property
    def most_steps(self) -> int | None:
        """See `Sampling.most_steps`."""
        return self.steps


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What is to be answered, and by which sampling distribution."""

    key: Key
    """Every random number of the answer comes from it, and from nothing else; no other request of a
    call has it."""
    messages: Sequence[Message]
    """A chat that ends before the answer."""
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transition:
    """One recorded choice: which tokens were put at which positions of a state.

    An autoregressive trajectory has a single transition that holds its whole response, because one
    causal forward pass scores it; a diffusion trajectory has one for each denoising step, with the
    `state` that it started from, so that it can be scored by itself. It is no optimiser step.
    """

    positions: IntArray  # [K], counted from the first token after the prompt
    tokens: IntArray  # [K]
    logprobs: NDArray[np.float32]  # [K], under the distribution and the weights that drew them
    selection: float | None = None
    """Log-probability of the choice of the positions, where one was made."""
    # [L] before the choice, where the tokens alone do not say it
    state: IntArray | None = None
    history: IntArray | None = None
    """The transition [L] that filled each place of the state, -1 for none, where the sampling
    distribution depends on more than the state."""
    time: float | None = None
    """When the transition began and ended, in [0, 1]; None for families without a clock."""
    until: float | None = None
    weight: float = 1.0
    """What it counts for where only some of a trajectory's transitions are scored (T/K for K of T
    drawn evenly)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trajectory:
    """Everything a policy did for one prompt: enough to score it again under other weights."""

    prompt: IntArray
    transitions: tuple[Transition, ...]
    text: str
    sampling: Sampling
    finish: Finish
    answer: IntArray | None = None
    """The answer's tokens, its end included, where they are not the transitions' tokens in
    order."""
    version: int = 0
    """Of the weights that drew it (see `Policy.publish`)."""

    @property
    def tokens(self) -> IntArray:
        """Every token chosen, transition after transition."""
        return np.concatenate([one.tokens for one in self.transitions])

    @property
    def logprobs(self) -> NDArray[np.float32]:
        """The recorded log-probability of each term: of each transition its tokens, then the choice
        of its positions."""
        parts: list[NDArray[np.float32]] = []
        for one in self.transitions:
            parts.append(one.logprobs)
            if one.selection is not None:
                parts.append(np.array([one.selection], dtype=np.float32))
        return np.concatenate(parts)

    @property
    def num_tokens(self) -> int:
        """Tokens of the answer, its end included."""
        return (
            len(self.answer)
            if self.answer is not None
            else sum(len(one.tokens) for one in self.transitions)
        )

    @property
    def truncated(self) -> bool:
        """Whether the limit ended it."""
        return self.finish == "length"


Draws = Iterator[tuple[Request, Trajectory]]
"""Each request with what was drawn for it, in the order in which they end."""


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The log-probabilities of recorded choices under some weights, flat, and whose they are.

    The order is that of `Trajectory.logprobs`: trajectory by trajectory, transition by transition,
    its tokens and then the choice of its positions where one was made.

    Example: two trajectories of one transition with 2 and 1 tokens give logprobs [3], owner [0, 0,
        1] and
    transition [0, 0, 1].
    """

    logprobs: "Tensor"  # [N], float32, differentiable unless scored without gradient
    recorded: "Tensor"  # [N], float32, what the sampler wrote down
    owner: "Tensor"  # [N], int64, index into the scored trajectories
    transition: "Tensor"  # [N], int64, index of the transition among all scored ones
    weight: "Tensor"  # [N], float32, the transition's weight: 1 unless only some are scored
    divergence: "Tensor | None" = None
    """KL of each scored transition from these weights to the reference, in closed form, where it
    was asked for."""

    @classmethod
    def of(
        cls,
        trajectories: Sequence[Trajectory],
        logprobs: "Tensor",
        divergence: "Tensor | None" = None,
    ) -> "Terms":
        """Lay out log-probabilities [N], given in the order above, with everything that the records
        say about them."""
        import torch

        steps = [
            (index, each)
            for index, trajectory in enumerate(trajectories)
            for each in trajectory.transitions
        ]
        counts = torch.tensor(
            [len(each.tokens) + (each.selection is not None) for _, each in steps]
        )

        def of_terms(values: list[float]) -> "Tensor":
            return torch.tensor(values).repeat_interleave(counts).to(logprobs.device)

        return cls(
            logprobs=logprobs,
            recorded=torch.from_numpy(np.concatenate([one.logprobs for one in trajectories])).to(
                logprobs.device
            ),
            owner=of_terms([index for index, _ in steps]),
            transition=of_terms(list(range(len(steps)))),
            weight=of_terms([float(each.weight) for _, each in steps]),
            divergence=divergence,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Facts that the world reports about a completion (how it parsed, what a server received); no
    judgement."""

    how: str = ""
    """How the completion was read: "strict", the repairs that it needed, or "none" (parse modes in
    reports)."""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A judgement: the total in [0, 1], and the named parts that it was made of.

    A part that could not be computed is None, never 0.0.
    """

    total: float
    parts: Mapping[str, float | None] = field(default_factory=dict)
    rubric: str = ""
    """Name and version: scores of two rubrics are not comparable."""
    readings: Mapping[str, float] = field(default_factory=dict)
    """The total under each way to read the completion ("strict", "lenient"), where a task has
    several."""

    def __post_init__(self) -> None:
        values = {**self.parts, **self.readings, "total": self.total}
        for name, value in values.items():
            if value is not None and not 0 <= value <= 1:  # NaN and infinity fail this, too
                raise ValueError(
                    f"a score lies in [0, 1], but {name} is {value} (rubric "
                    f"{self.rubric or 'unnamed'})"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a rollout could not be judged. It is data: the run goes on, and the failure is counted
    and shown."""

    cause: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.cause}: {self.detail}"


class Verdict(NamedTuple):
    """What became of an answer: an outcome and a score, or a failure with its cause."""

    outcome: Outcome
    score: Score | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rollout:
    """An episode and what became of it.

    The log-probability of an episode is the sum over its turns, because each prompt is given by the
    turns before it.
    """

    turns: tuple[Trajectory, ...]
    """Each with its own prompt; one where the task asks once."""
    verdict: Verdict
    asked: tuple[str, ...] = ()
    """What the task said before each turn but the first."""
    cut: bool = False
    """Whether a further turn was asked for whose prompt did not fit into the context."""
    advantage: float = 0.0
    """What the algorithm makes of its reward: every term of every turn has it."""
    weight: float = 0.0
    """Of each of its terms in the loss."""
    teacher_prompt: IntArray | None = None
    """The prompt that a teacher is given in place of the first turn's."""

    @property
    def prompt(self) -> bytes:
        """The first turn's: rollouts of one group share it, and those of no other."""
        return self.turns[0].prompt.tobytes()

    @property
    def text(self) -> str:
        """The last answer, which is the one that counts."""
        return self.turns[-1].text

    @property
    def num_tokens(self) -> int:
        """Tokens of all its answers."""
        return sum(turn.num_tokens for turn in self.turns)

    @property
    def truncated(self) -> bool:
        """Whether the limit ended one of its answers."""
        return any(turn.truncated for turn in self.turns)

    @property
    def reward(self) -> float:
        """The score's total; NaN for a rollout that could not be judged, which earns and loses
        nothing."""
        return self.verdict.score.total if self.verdict.score is not None else math.nan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """One example and its G rollouts: compared with one another."""

    example: Example
    rollouts: tuple[Rollout, ...]
    task: str = ""
    """The name of its task in a run of several."""

    def rewards(self) -> FloatArray:
        """Rewards [G], NaN where a rollout could not be judged."""
        return np.array([rollout.reward for rollout in self.rollouts], dtype=np.float64)


def rollouts_of(groups: Iterable[Group]) -> list[Rollout]:
    """The rollouts of some groups, group by group."""
    return [rollout for group in groups for rollout in group.rollouts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One completion of one example, judged: a row of an evaluation."""

    id: str
    stratum: str
    completion: str
    reward: float
    parts: Mapping[str, float | None]
    readings: Mapping[str, float]
    how: str
    cluster: str = ""
    """See `Example`."""
    truncated: bool | None = None
    """None where nobody knows: a completion from elsewhere, an oracle, a baseline."""
    tokens: int | None = None
    turns: tuple[str, ...] = ()
    """All answers of an episode of several turns, `completion` the last of them; empty where there
    was one."""
    asked: tuple[str, ...] = ()
    """What the task said before each of them but the first."""
    cut: bool = False
    """See `Rollout.cut`."""


def clusters_of(rows: Sequence[Judged | Example]) -> list[str] | None:
    """The cluster of each row or example; None where each is its own, or all are of one (it alone
    is asked about)."""
    names = [row.cluster or row.id for row in rows]
    return names if 1 < len(set(names)) < len(names) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unjudged:
    """A completion that could not be judged: it has no reward, and 0 would be a false one."""

    id: str
    stratum: str
    completion: str
    failure: str
    """Why: the type of the verifier's error, and what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number that a task's evaluations put first: the mean of one part of the score."""

    key: str
    """In JSON and CSV, such as `exact_form_rate`."""
    title: str
    """For people, such as `Exact form`."""
    part: str
    rate: bool = False
    """Whether the part is only ever 0 or 1; its interval is then that of a rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """What a task's evaluations put first, beside the nonzero rate and the mean reward, and break
    down by.

    Example:
        Headline(figures=(Figure(key="exact_rate", title="Exact", part="exact", rate=True),),
        stratum="form")
    """

    figures: tuple[Figure, ...] = ()
    stratum: str = "stratum"
    """What a stratum is: a form, a job."""
    breakdown: str = ""
    """What the parts under `prefix` are shares of, such as `kind`; empty where there are none."""
    prefix: str = ""
    """What the names of these parts begin with, such as `kind-`."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """The highest mean reward that a baseline may earn on a split, by baseline."""
    note: str = ""
    """What must be read with these figures: it stands in the caption of every table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One picture of a replayed episode."""

    caption: str
    """What is being done, or what has just been done."""
    image: bytes
    """A small JPEG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One thing that an answer got wrong, as a person would say it."""

    what: str
    """The field, or another name of what was asked for."""
    expected: str
    received: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What one source of answers (a model, the oracle, a baseline) earned on a fixed set of
    examples."""

    source: str
    task: str
    split: str
    rubric: str
    sampling: Mapping[str, Any]
    """How the answers were drawn (empty for the oracle, baselines and completions from
    elsewhere)."""
    seed: int
    rows: tuple[Judged, ...]
    """Those that could be judged: every figure is of these."""
    unjudged: tuple[Unjudged, ...] = ()
    form: tuple[str, ...] = ()
    """Names of the parts that judge how an answer is written, not what it says."""
    headline: Headline | None = None
    """What the task puts first; None where it says nothing about that."""

    def rewards(self) -> FloatArray:
        """Rewards [n], in the order of the rows."""
        return np.array([row.reward for row in self.rows], dtype=np.float64)

    def clusters(self) -> list[str] | None:
        """See `clusters_of`."""
        return clusters_of(self.rows)

    @property
    def mean_reward(self) -> float:
        """The plain mean; its interval is computed by `plumbline.evaluation.statistics`."""
        return float(self.rewards().mean()) if self.rows else math.nan


def group_by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key, in their order; the keys in the order in which they come first."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
