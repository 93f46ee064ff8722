"""How wrong the gradient of each surrogate objective is, where all trajectories can be listed.

    python -m experiments.surrogates run                         # rows to surrogates.jsonl
    python -m experiments.surrogates run --canvases masked-3     # some of them
    python -m experiments.surrogates table                       # as in docs/research/four-families.md
    python -m experiments.surrogates figure docs/surrogates.svg

Models of 3,000 to 7,000 weights in float64 write 2 to 4 places with 3 tokens. The reward is the
share of neighbouring places that differ. The true gradient is that of sum P R, with P from an oracle
that makes plain forward passes. An objective's expected gradient is that of its own loss at ratio 1,
over the same trajectories and over every result of its own draws (a uniform number: at nodes).

Letters in shapes: N terms, P weights, A possible answers.
"""

import argparse
import itertools
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from experiments.findings.show import SHAPES, STYLES, standing
from experiments.spg import Spg
from plumbline.algorithms import ALGORITHMS
from plumbline.algorithms.algorithm import (
    Algorithm,
    BoundAlgorithm,
    Clipped,
    MaskSample,
    MaskSampler,
)
from plumbline.algorithms.grpo import Grpo
from plumbline.algorithms.objective import Batch, Target
from plumbline.evaluation.statistics import Interval
from plumbline.policies import open_policy
from plumbline.policies.flow.network import FlowConfig, FlowNetwork
from plumbline.policies.flow.options import FlowModel, FlowSampling
from plumbline.policies.flow.sampler import ticks
from plumbline.policies.masked.options import MaskedModel, MaskedSampling
from plumbline.policies.slots.options import SlotModel, SlotSampling
from plumbline.records import SteppedSampling, Terms, Trajectory, Transition
from plumbline.reports.charts import Mark, dot_chart
from plumbline.storage import read_jsonl, write_jsonl, write_text
from tests.algorithms.batches import judged, rollout_of
from tests.policies.masked.oracle import trajectory_of, ways
from tests.policies.slots.models import in_double, save_mini
from tests.policies.slots.oracle import everything

ROWS = Path(__file__).parent / "surrogates.jsonl"
PROMPT = [{"role": "user", "content": "a b"}]
TOKENS, NODES = 3, 4
ANSWERS, GROUP = 64, 8
"""Answers of a step; of a group, where advantages are more than the reward minus its mean."""
STAGES = {"random": 0.0, "half trained": 0.5, "nearly solved": 0.9}
"""The share of its possible rise that the expected reward has made."""
MEASURES = ("cosine", "norm", "bias", "noise")


# -- every result of a draw ------------------------------------------------------------------------


class Choices:
    """In place of a numpy generator: its results are those of a script, then the first possible."""

    def __init__(self, script: Sequence[int]) -> None:
        self.script, self.made, self.chance, self.count = script, list[tuple[int, int]](), 1.0, 0

    def choose(self, chances: Sequence[float]) -> int:
        """A result, whose probability is multiplied into `chance`."""
        at = len(self.made)
        pick = self.script[at] if at < len(self.script) else 0
        self.made.append((pick, len(chances)))
        self.chance *= chances[pick]
        return pick

    def integers(self, low: int, high: int) -> int:
        """As numpy's."""
        return low + self.choose([1 / (high - low)] * (high - low))

    def permutation(self, count: int) -> np.ndarray:
        """As numpy's."""
        orders = [*itertools.permutations(range(count))]
        return np.array(orders[self.integers(0, len(orders))])

    def uniform(self, low: float, high: float) -> float:
        """As numpy's, at Gauss-Legendre nodes."""
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        return low + (high - low) * (nodes[self.choose(weights / 2)] + 1) / 2

    def random(self, count: int) -> "Choices":
        """As numpy's, for numbers that are only compared with a probability."""
        self.count = count
        return self

    def __lt__(self, p: float) -> np.ndarray:
        return np.array([self.choose([1 - p, p]) for _ in range(self.count)], dtype=bool)


def every(draw: Callable[[Choices], Any]) -> Iterator[tuple[float, Any]]:
    """Each result of `draw` with its probability; these sum to 1."""
    script: list[int] | None = []
    while script is not None:
        choices = Choices(script)
        result = draw(choices)
        yield choices.chance, result
        made = choices.made
        while made and made[-1][0] + 1 == made[-1][1]:
            made.pop()
        script = [*(pick for pick, _ in made[:-1]), made[-1][0] + 1] if made else None


# -- models and their trajectories -----------------------------------------------------------------


def make_policy(family: str, places: int, folder: Path, seed: int) -> Any:
    """A random model in float64 of a, b, <end> and a mask; <end> ends the answers of slots alone."""
    source = str(save_mini(folder / f"{family}{seed}", seed, num_hidden_layers=1))
    if family == "slots":
        policy = open_policy(SlotModel(name=source, slot=2), source)
    elif family == "masked":
        policy = open_policy(MaskedModel(name=source, canvas=places), source)
    else:
        sizes = {"hidden": 16, "conditioning": 8, "layers": 1, "heads": 2, "context": 64}
        network = FlowNetwork(FlowConfig(vocabulary=TOKENS, **sizes))
        generator = torch.Generator().manual_seed(seed)
        for weight in network.parameters():
            weight.data.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
        network.save_pretrained(source)
        policy = open_policy(FlowModel(name=source, canvas=places), source)
    in_double(policy.model)
    policy.chat.stop_ids = policy.chat.stop_ids if family == "slots" else ()
    return policy


def list_trajectories(policy: Any, sampling: SteppedSampling) -> tuple[list[Trajectory], Tensor]:
    """Every trajectory, and their log-probabilities [N] by the family's oracle, differentiable."""
    prompt = policy.chat.prompt(PROMPT)
    if isinstance(sampling, FlowSampling):
        return list_flows(policy, prompt, sampling)
    if isinstance(sampling, SlotSampling):
        found = everything(policy.model, prompt, sampling, policy.width, [1] * sampling.steps)
    else:
        found = [
            (replace(trajectory_of(policy, prompt, key, sampling), answer=np.array(canvas)), log_p)
            for key, log_p, canvas in ways(policy, prompt, sampling)
        ]
    return [trajectory for trajectory, _ in found], torch.stack([log_p for _, log_p in found])


def list_flows(
    policy: Any, prompt: Sequence[int], sampling: FlowSampling
) -> tuple[list[Trajectory], Tensor]:
    """See `list_trajectories`: from even noise, by rows of probabilities written plainly."""
    canvases = list_canvases(sampling.max_tokens)
    states, places = torch.tensor(canvases), range(sampling.max_tokens)
    prefix = policy.network.encode([prompt]).rows(torch.zeros(len(states), dtype=torch.long))
    now = torch.nn.functional.one_hot(states, TOKENS).double()  # [states, L, V]
    logs = torch.full((len(states),), -math.log(len(states))).double()
    paths: list[tuple[tuple[Transition, ...], tuple[int, ...]]] = [((), c) for c in canvases]
    for step in ticks(sampling, 1.0):
        clock = (torch.full((len(states),), value) for value in (step.time, step.until - step.time))
        p = policy.network.head(policy.network.hidden_states(prefix, states, *clock)).softmax(-1)
        rows = step.jump * p + (1 - step.jump) * now
        if sampling.kernel == "marginal" and not step.last:
            other = 1 - (p * now).sum(-1, keepdim=True)
            stay = (-step.amount * other).exp()
            rows = torch.where(now > 0, stay, (1 - stay) * p / other)
        logs = logs.unsqueeze(-1) + rows.log()[:, list(places), states].sum(-1)
        paths = [
            ((*steps, record(places, after, state, step.time, step.until)), after)
            for steps, state in paths
            for after in canvases
        ]
    fixed = {"prompt": np.array(prompt), "text": "", "sampling": sampling, "finish": "length"}
    trajectories = [
        Trajectory(transitions=steps, answer=np.array(c), **fixed) for steps, c in paths
    ]
    return trajectories, logs.flatten()


@cache
def list_canvases(places: int) -> list[tuple[int, ...]]:
    """All finished canvases, in lexical order."""
    return [*itertools.product(range(TOKENS), repeat=places)]


def record(
    positions: Sequence[int], tokens: Sequence[int], state: Any, time: Any, until: Any
) -> Transition:
    """A transition without recorded log-probabilities."""
    arrays = {"positions": positions, "tokens": tokens, "state": state}
    arrays = {name: np.array(values, dtype=np.int64) for name, values in arrays.items()}
    return Transition(**arrays, logprobs=np.zeros(len(tokens), np.float32), time=time, until=until)


class Listing:
    """A sampling distribution's trajectories, and the true gradient of its expected reward."""

    def __init__(self, policy: Any, sampling: SteppedSampling) -> None:
        self.trajectories, logs = list_trajectories(policy, sampling)
        canvases = list_canvases(sampling.max_tokens)
        numbers = [canvases.index(tuple(each.answer)) for each in self.trajectories]
        self.answers = torch.tensor(numbers)
        self.rewards = torch.tensor((np.diff(canvases) != 0).mean(1))
        self.expected = logs.exp() @ self.rewards[self.answers]
        self.chances = logs.detach().exp()
        self.probability = torch.zeros_like(self.rewards)
        self.probability.index_add_(0, self.answers, self.chances)

    def true_gradient(self, weights: Sequence[Tensor]) -> Tensor:
        """[P]."""
        return torch.cat([g.flatten() for g in torch.autograd.grad(self.expected, weights)])


def train(policy: Any, sampling: SteppedSampling, level: float) -> float:
    """Exact ascent until the expected reward is `level`; what it is then."""
    optimiser = torch.optim.Adam([*policy.trainable().values()], lr=0.01)
    while (expected := Listing(policy, sampling).expected).item() < level:
        optimiser.zero_grad()
        (-expected).backward()
        optimiser.step()
    return expected.item()


# -- objectives ------------------------------------------------------------------------------------


class OnePass(Grpo):
    """The answer as if it had been written in one step from the first state: what `Diffu` scores of
    a masked model, for the others."""

    def targets(self, policy: Any, rollouts: Any, rng: Any) -> list[Target]:  # noqa: ARG002
        """See `Algorithm.targets`."""
        return [Target(rollout, self.write_at_once(rollout.turns[0])) for rollout in rollouts]

    def write_at_once(self, turn: Any) -> Trajectory:
        """The same answer in a single step."""
        drawn: dict[int, int] = {}
        for step in turn.transitions:
            drawn |= zip(step.positions.tolist(), step.tokens.tolist(), strict=True)
        positions, first = sorted(drawn), turn.transitions[0]
        tokens = [drawn[at] for at in positions]
        step = record(positions, tokens, first.state, first.time, turn.transitions[-1].until)
        step = replace(step, history=first.history)
        return replace(turn, transitions=(step,), sampling=replace(turn.sampling, steps=1))


class Diffu(Clipped):
    """diffu-GRPO of d1 (Zhao et al. 2025, arXiv:2504.12216): each token by itself, everything
    hidden. Its random masking of the prompt is left out."""

    families = ("masked",)
    likelihood = "diffu"
    name: Literal["diffu_grpo"] = "diffu_grpo"

    @property
    def masks(self) -> tuple[MaskSampler, int]:
        """See `Algorithm.masks`."""

        def everything(length: int, _: int, rng: Any) -> Iterator[MaskSample]:  # noqa: ARG001
            yield np.ones(length, dtype=bool), 1.0

        return everything, 1


class Coupled(BoundAlgorithm):
    """coupled-GRPO of DiffuCoder (Gong et al. 2025, arXiv:2506.20639): each token once hidden with a
    part of the answer, which counts 1 over its share, and once with all of it."""

    likelihood = "coupled"
    name: Literal["coupled_grpo"] = "coupled_grpo"

    @staticmethod
    def sample_masks(length: int, mask_samples: int, rng: Any) -> Iterator[MaskSample]:
        """Everything, a set and its complement: three mask samples a draw."""
        for _ in range(mask_samples):
            share = rng.uniform(0.2, 0.8)
            hidden = rng.random(length) < share
            yield np.ones(length, dtype=bool), 0.5 / mask_samples
            yield hidden, 0.5 / share / mask_samples
            yield ~hidden, 0.5 / (1 - share) / mask_samples


OBJECTIVES: dict[str, tuple[Algorithm, str, str]] = {
    "exact": (Grpo(), "all", "masked slots flow"),
    "exact, 1 step of T": (Grpo(keep=1), "all", "masked flow"),
    "exact, A over the spread": (Grpo(scale_advantages="group"), "all", "masked slots flow"),
    "tokens only": (Grpo(), "tokens", "masked slots flow"),
    "order only": (Grpo(), "order", "masked slots flow"),
    "one pass": (OnePass(), "all", "slots flow"),
    "gdpo": (ALGORITHMS["gdpo"](mask_samples=2), "all", "masked"),
    "diffu_grpo": (Diffu(), "all", "masked"),
    "coupled_grpo": (Coupled(), "all", "masked"),
    "espo": (ALGORITHMS["espo"](), "all", "masked"),
    "spg": (Spg(), "all", "masked"),
    "just_grpo": (ALGORITHMS["just_grpo"](), "all", "masked"),
}
"""Algorithm, which of its terms have a gradient, and families."""
PARTS = {"all": (0, 1, 2), "tokens": (0,), "order": (1, 2)}
"""Kinds of terms: 0 a token, 1 a choice of places, 2 a place of a flow that stays."""


class Gradients:
    """Log-probabilities of a policy's transitions and their gradients, each computed once."""

    def __init__(self, policy: Any) -> None:
        self.policy, self.weights = policy, [*policy.trainable().values()]
        self.values, self.kinds, self.rows = list[float](), list[int](), list[Tensor]()
        self.known: dict[Any, list[int]] = {}
        self.tables: dict[str, Any] = {}

    def find(self, trajectories: Sequence[Trajectory]) -> list[int]:
        """The rows of all terms, in the order of `Policy.score`."""
        found: list[int] = []
        for turn in trajectories:
            for step in turn.transitions:
                arrays = (step.state, step.positions, step.tokens, step.history)
                same = (None if each is None else each.tobytes() for each in arrays)
                key = (turn.sampling, step.time, step.until, step.selection is None, *same)
                if key not in self.known:
                    self.known[key] = self.add(replace(turn, transitions=(step,)), step)
                found += self.known[key]
        return found

    def add(self, turn: Trajectory, step: Any) -> list[int]:
        """Score a single transition."""
        first, moves = len(self.values), step.until is not None and step.until < 1
        for at, term in enumerate(self.policy.score([turn]).logprobs):
            parts = torch.autograd.grad(
                term, self.weights, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            self.rows.append(torch.cat([part.flatten() for part in parts]).double())
            token = at < len(step.tokens)
            stays = moves and step.tokens[at] == step.state[step.positions[at]]
            self.kinds.append(2 if stays else int(not token))
            self.values.append(term.item())
        return [*range(first, len(self.values))]

    def collect(
        self,
        algorithm: Algorithm,
        trajectories: Sequence[Trajectory],
        weights: Tensor,
        answers: Tensor,
        part: str = "all",
        sign: float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        """An objective's gradients where every advantage is `sign`, and their squared norms.

        Args:
            algorithm: whose targets and loss are used; all its draws are made.
            trajectories: what was sampled.
            weights: what each counts.
            answers: the number of each one's answer.
            part: of `PARTS`.
            sign: 1 or -1.

        Returns:
            For each answer the weighted sums [A, P] and [A].
        """
        targets, owner, chances, of = list[Target](), list[int](), list[float](), list[int]()
        for turn, weight, answer in zip(trajectories, weights, answers, strict=True):
            one = [rollout_of(turn, advantage=sign, weight=1.0)]
            for chance, drawn in every(
                lambda rng, one=one: algorithm.targets(self.policy, one, rng)
            ):
                targets += drawn
                owner += [len(of)] * len(drawn)
                chances.append(chance * float(weight))
                of.append(int(answer))
        scored = [target.trajectory for target in targets]
        index = torch.tensor(self.find(scored))
        logprobs = torch.tensor(self.values).double()[index].requires_grad_()
        terms, ones = Terms.of(scored, logprobs), torch.ones_like(logprobs, requires_grad=False)
        loss = algorithm.loss(Batch(targets, terms, logprobs.detach(), sign * ones, ones)).value
        (slope,) = torch.autograd.grad(-loss, logprobs)
        slope = slope * torch.isin(torch.tensor(self.kinds)[index], torch.tensor(PARTS[part]))
        rows, sample = torch.stack(self.rows), torch.tensor(owner)[terms.owner]
        size = TOKENS ** trajectories[0].sampling.max_tokens
        sums, squares = torch.zeros(size, rows.shape[1]).double(), torch.zeros(size).double()
        for start in range(0, len(of), 512):
            some = slice(start, start + 512)
            mine = ((sample >= start) & (sample < start + 512)).nonzero().flatten()
            each = torch.zeros(len(of[some]), rows.shape[1]).double()
            each.index_add_(0, sample[mine] - start, slope[mine, None] * rows[index[mine]])
            chance, at = torch.tensor(chances[some]).double(), torch.tensor(of[some])
            sums.index_add_(0, at, chance[:, None] * each)
            squares.index_add_(0, at, chance * each.square().sum(1))
        return sums, squares

    def estimate(self, listing: Listing, name: str) -> tuple[Tensor, float]:
        """An objective's expected gradient [P], and the mean squared norm of one answer's."""
        algorithm, part, _ = OBJECTIVES[name]
        if algorithm.masks is None:
            given = (listing.trajectories, listing.chances, listing.answers, part)
            up = down = self.collect(algorithm, *given)
            share = torch.ones_like(listing.rewards)
        else:
            if name not in self.tables:
                one = dict(zip(listing.answers.tolist(), listing.trajectories, strict=True))
                of = ([*one.values()], torch.ones(len(one)), torch.tensor([*one]))
                self.tables[name] = [self.collect(algorithm, *of, sign=s) for s in (1.0, -1.0)]
            (up, down), share = self.tables[name], listing.probability
        advantages = expected_advantages(algorithm, listing.rewards, listing.probability)
        falls = advantages < 0
        sums = torch.where(falls[:, None], -down[0] if down is up else down[0], up[0])
        squares = torch.where(falls, down[1], up[1])
        return (share * advantages.abs()) @ sums, float((share * advantages.square()) @ squares)

    def measure(self, sampling: SteppedSampling) -> tuple[float, dict[str, list[float]]]:
        """The expected reward, and the `MEASURES` of each objective.

        Norm and bias are relative to the true gradient. Noise is the trace of the covariance of the
        mean over `ANSWERS` answers, over the squared norm of the objective's own gradient.
        """
        listing, found = Listing(self.policy, sampling), {}
        true = listing.true_gradient(self.weights)
        for name, (_, _, families) in OBJECTIVES.items():
            if self.policy.family not in families:
                continue
            if name == "just_grpo" and name not in self.tables:  # it draws answers of its own
                own = replace(sampling, selector="leftmost", steps=sampling.max_tokens)
                self.tables[name] = self.estimate(Listing(self.policy, own), name)
            mean, second = (
                self.tables[name] if name == "just_grpo" else self.estimate(listing, name)
            )
            norm, of = mean.norm(), true.norm()
            if norm > 1e-9 * of:  # else it has no gradient
                noise = (second / norm**2 - 1) / ANSWERS
                figures = (mean @ true / norm / of, norm / of, (mean - true).norm() / of, noise)
                found[name] = [float(f"{float(value):.4g}") for value in figures]
        return listing.expected.item(), found


def expected_advantages(algorithm: Algorithm, rewards: Tensor, chances: Tensor) -> Tensor:
    """The advantages [A] of answers with these rewards [A] and probabilities [A]: the reward minus
    its mean; of another rule the mean over the siblings in a group of `GROUP`."""
    if algorithm.scale_advantages == "none":
        return rewards - chances @ rewards
    values, at = rewards.unique(return_inverse=True)
    shares = torch.zeros_like(values).index_add(0, at, chances)
    result = torch.zeros_like(values)
    for others in itertools.combinations_with_replacement(range(len(values)), GROUP - 1):
        counts = np.bincount(others, minlength=len(values)).tolist()
        chance = math.factorial(GROUP - 1) / math.prod(map(math.factorial, counts))
        chance *= math.prod(float(share) ** n for share, n in zip(shares, counts, strict=True))
        for own in range(len(values)):
            group = judged(values[[own, *others]].numpy())
            result[own] += chance * float(algorithm.advantages(group)[0])
    return result[at]


# -- rows, table and figure ------------------------------------------------------------------------

SELECTORS: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("random", "ancestral", "leftmost", "low_confidence")},
    **{name: {"position_temperature": 0.3} for name in ("plackett_luce", "plackett_luce_set")},
    "threshold": {"position_temperature": 0.3, "threshold": 0.6},
}
CANVASES: dict[str, list[Any]] = {
    f"{family}-{places}": [
        kind(max_tokens=places, steps=steps, **{key: name}, **SELECTORS.get(name, {}))
        for name in names
    ]
    for family, places, steps, kind, key, names in (
        ("masked", 2, 2, MaskedSampling, "selector", SELECTORS),
        ("masked", 3, 3, MaskedSampling, "selector", SELECTORS),
        ("slots", 4, 2, SlotSampling, "selector", ("random", "plackett_luce")),
        ("flow", 2, 2, FlowSampling, "kernel", ("conditional", "marginal")),
    )
}
"""Family and places, with sampling distributions; of slots, two slots of two places."""


def measure_canvas(canvas: str, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each stage and sampling distribution."""
    samplings = CANVASES[canvas]
    with tempfile.TemporaryDirectory() as folder:
        policy = make_policy(canvas[:-2], samplings[0].max_tokens, Path(folder), seed)
    first = train(policy, samplings[0], 0.0)
    for stage, rise in STAGES.items():
        train(policy, samplings[0], first + rise * (1 - first))
        gradients = Gradients(policy)
        for sampling in samplings:
            expected, found = gradients.measure(sampling)
            by = getattr(sampling, "kernel", getattr(sampling, "selector", ""))
            row = {"canvas": canvas, "seed": seed, "stage": stage, "by": by}
            yield {**row, "expected": round(expected, 4), "figures": found}


def spread(rows: Sequence[Any], key: tuple[str, str], stage: str, measure: str) -> Interval:
    """Mean, least and largest over sampling distributions and seeds; `key` is canvas and
    objective."""
    values = [
        row["figures"][key[1]][MEASURES.index(measure)]
        for row in rows
        if (row["canvas"], row["stage"]) == (key[0], stage) and key[1] in row["figures"]
    ]
    return Interval(float(np.mean(values)), min(values), max(values), len(values))


def list_keys(rows: Sequence[Any]) -> list[tuple[str, str]]:
    """Each canvas and objective that rows have."""
    found = {(row["canvas"], name) for row in rows for name in row["figures"]}
    return [key for key in itertools.product(CANVASES, OBJECTIVES) if key in found]


def table(rows: Sequence[Any]) -> str:
    """A row for each canvas and objective; all but the cosine are of half-trained models."""
    head = [*(f"cosine, {stage}" for stage in STAGES), *MEASURES[1:]]
    lines = [f"| canvas, objective | {' | '.join(head)} |", "|---" * (1 + len(head)) + "|"]
    for key in list_keys(rows):
        cosines = [spread(rows, key, stage, "cosine") for stage in STAGES]
        cells = [f"{one.mean:.2f} ({one.low:.2f}..{one.high:.2f})" for one in cosines]
        cells += [f"{spread(rows, key, 'half trained', m).mean:.2f}" for m in MEASURES[1:]]
        lines.append(f"| {', '.join(key)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figure(rows: Sequence[Any]) -> str:
    """Cosines by stage; the bars are the least and the largest."""
    shown = []
    for key in list_keys(rows):
        if key[0] == "masked-2" or key[1].startswith("exact") or key == ("flow-2", "order only"):
            continue
        marks = [
            Mark(spread(rows, key, stage, "cosine"), stage, STYLES[at], SHAPES[at])
            for at, stage in enumerate(STAGES)
        ]
        shown.append((f"{key[0][:-2]}: {key[1]}", marks, ""))
    label = "Cosine of each objective's expected gradient with the true gradient"
    title = "cosine:  \u25cf random   \u25c6 half trained   \u25cb nearly solved"
    return standing(dot_chart(shown, label=label, x_range=(-1.0, 1.05), x_title=title))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "table", "figure"))
    parser.add_argument("out", nargs="?", type=Path, help="of figure: the file")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--canvases", nargs="+", choices=CANVASES, default=[*CANVASES])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for _, row in read_jsonl(options.rows)] if options.rows.is_file() else []
    if options.what == "run":
        for canvas, seed in itertools.product(options.canvases, options.seeds):
            others = [row for row in rows if (row["canvas"], row["seed"]) != (canvas, seed)]
            rows = [*others, *measure_canvas(canvas, seed)]
            write_jsonl(options.rows, rows)
    if options.what == "figure":
        write_text(options.out, figure(rows))
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
