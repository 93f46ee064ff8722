"""The slot policy: plans which slots to fill, fills them side by side, and scores a whole
trajectory in one pass.

Letters in shapes: N terms, P prompts, G copies, L places of the canvas.

The model is a causal one that was trained on slots in any order (ReFusion, Li et al. 2025,
arXiv:2512.13586). A trajectory is a sequence of rounds (`sampler`); a round's terms are the tokens
that it drew and its ordered choice of slots (of an even one a number without a gradient). All of
the randomness is in the terms, so the log-probability is exact.

The paper's deterministic decoding (`selector: threshold`) is there for evaluation; it cannot be
scored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from plumbline.errors import ModelError, RecipeError
from plumbline.policies import plackett_luce
from plumbline.policies.canvas import CanvasPolicy
from plumbline.policies.chunks import LAUNCHES, pack_sizes
from plumbline.policies.policy import Demonstration, common_sampling
from plumbline.policies.pretrained.causal_model import Loaded, load
from plumbline.policies.pretrained.foreign import slot_config
from plumbline.policies.pretrained.fused import fuse_if_right
from plumbline.policies.pretrained.numerics import AgreementCheck
from plumbline.policies.pretrained.policy import mask_token, pad_rows
from plumbline.policies.sampling_distribution import PLAIN, Noise
from plumbline.policies.slots.options import SlotModel, SlotSampling
from plumbline.policies.slots.packing import (
    ALL,
    PASS_COST,
    Grid,
    KeyValues,
    SlotPack,
    count_slots,
    pack,
    packed_length,
    read_packed,
)
from plumbline.policies.slots.sampler import RoundSampler, decode_by_threshold
from plumbline.policies.token_logprobs import (
    TokenDistributions,
    divergence,
    head_log_prob,
    largest_log_prob,
)
from plumbline.records import Draws, Request, Sampling, Trajectory

SEQUENCES = 5
"""That are tried; see `AgreementCheck`."""


@torch.no_grad()
def check_attention(model: Any, source: str, context: int) -> None:
    """Try on a few tokens what packed scoring and the cache rely on.

    A sequence laid out of order, with a mask and positions that say its order, must give the logits
    of the sequence in order; so must one read in two parts through the cache; and the logits must
    be linear in the hidden states. Adapters are tried first, and run in fewer products from then on
    where these give the same.

    Raises:
        ModelError: they differ (a window, a recurrent state, positions that are ignored, a capped
            head).
    """
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    if window is not None and window < context:
        raise ModelError(
            f"the model in {source} attends within a window of {window} tokens, which packed slots "
            "cannot keep to",
            f"set model.context to at most {window}, or use a model with full attention",
        )
    length, device = 16, model.device
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab_size, (SEQUENCES, length), generator=generator).to(device)
    order = torch.randperm(length, generator=generator).to(device)
    positions = torch.arange(length, device=device)
    head = model.get_output_embeddings()

    def shuffled() -> Tensor:
        packed = read_packed(
            model, ids[:, order], positions[None, order], (order.unsqueeze(1) >= order)[None, None]
        )
        return packed[:, order.argsort()]

    def cached() -> Tensor:
        context, tags = KeyValues(model, SEQUENCES), torch.full_like(ids, ALL)
        parts = (slice(0, 9), slice(9, None))
        return torch.cat(
            [context.read(ids[:, at], positions[None, at], tags[:, at]) for at in parts], 1
        )

    def run_plain_pass() -> Tensor:
        logits: Tensor = model(ids, use_cache=False).logits
        return logits.flatten(0, 1)

    fuse_if_right(model, run_plain_pass, SEQUENCES)
    ways: tuple[Callable[[], Tensor], ...] = (
        lambda: model.get_decoder()(ids, use_cache=False).last_hidden_state,
        shuffled,
        cached,
    )
    exact = type(head) is nn.Linear and head.weight.dtype.is_floating_point
    trial = AgreementCheck.from_model(model, run_plain_pass, SEQUENCES)
    exact = exact and not any(
        trial.explain_disagreement(partial(lambda way: head(way().flatten(0, 1)), way))
        for way in ways
    )
    if not exact:
        raise ModelError(
            f"the model in {source} does not follow an explicit attention mask and explicit "
            "positions exactly",
            "slots need a causal model with full attention and a linear head, such as Qwen3 or "
            "Llama",
        )


# -- supervised ------------------------------------------------------------------------------------
#
# The training loss of ReFusion (Li et al. 2025, arXiv:2512.13586): slots in any order, masks filled
# from them.
#
# Letters: L places of a canvas, k tokens of a slot, B demonstrations, T tokens of a row.
#
# Every demonstration has a time t (`Noise.time`, even in [0, 1)), p = (1 - 1e-3) t + 1e-3, and each
# slot is masked with probability p. The model reads
#
#     [prompt] [slots that are not masked, in random order] [masked slots, in their order]
#
# causally, every token at its own position. A token of a clean slot predicts the next one of its
# slot, and a mask the token that it hides:
#
#     loss = mean over the clean slots' targets of -log p   +   (1/L) sum over masked places of -log p / p_mask
#
# The published code takes the first mean over all targets of a batch at once, so what a slot counts
# depends on how much was masked elsewhere, and it is 0/0 where every slot of the batch is masked.
# Here the mean is each demonstration's own, and 0 where it has no target, so a batch may be cut
# into any micro-batches.

LEAST = 1e-3
"""The smallest probability of a mask, which bounds its weight."""


@dataclass(frozen=True, slots=True, eq=False)
class Noised:
    """A demonstration as the model reads it; indices count from the row's first token."""

    ids: Tensor  # [T]
    positions: Tensor  # [T]
    predictors: Tensor  # [N]
    targets: Tensor  # [N]
    weights: Tensor  # [N]: what each target's -log p counts; the sum is L times the mean


def noise_demonstration(
    demonstration: Demonstration, width: int, mask_id: int, noise: Noise
) -> Noised:
    """Draw masked slots and the order of the others."""
    prompt = len(demonstration.tokens) - demonstration.num_targets
    tokens = torch.tensor(demonstration.tokens)
    canvas = tokens[prompt:]
    slots = len(canvas) // width
    probability = (1 - LEAST) * noise.time + LEAST
    masked = torch.rand(slots, generator=noise.generator, dtype=torch.float64) < probability
    order = torch.randperm(slots, generator=noise.generator)
    places = torch.arange(len(canvas)).view(slots, width)
    clean, hidden = places[order[~masked[order]]], places[masked].flatten()
    # where a clean token stands in the row
    at = prompt + torch.arange(clean.numel()).view(clean.shape)
    predictors = torch.cat(
        [at[:, :-1].flatten(), prompt + clean.numel() + torch.arange(len(hidden))]
    )
    following = clean[:, 1:].flatten()
    weights = torch.full((len(predictors),), 1 / probability, dtype=torch.float64)
    weights[: len(following)] = len(canvas) / max(len(following), 1)
    return Noised(
        ids=torch.cat([tokens[:prompt], canvas[clean.flatten()], torch.full_like(hidden, mask_id)]),
        positions=torch.cat([torch.arange(prompt), prompt + clean.flatten(), prompt + hidden]),
        predictors=predictors,
        targets=canvas[torch.cat([following, hidden])],
        weights=weights,
    )


# -- scoring ---------------------------------------------------------------------------------------
#
# The log-probabilities of recorded rounds, by one packed forward pass.
#
# Letters in shapes: N terms, T packed tokens, H hidden size.


PackDistributions = tuple[TokenDistributions, TokenDistributions]
"""What weights say about a pack: at the predictors [N], and at the queries [B m], choice by
choice."""


def read_distributions(model: Any, mask_id: int, packed: SlotPack) -> PackDistributions:
    """One forward pass over a pack."""
    hidden = read_packed(model, packed.ids, packed.positions, packed.mask)[0]
    tokens = TokenDistributions(model.get_output_embeddings(), mask_id, hidden[packed.predictors])
    return tokens, replace(tokens, hidden=hidden[packed.queries].flatten(0, 1))


def log_probs(packed: SlotPack, distributions: PackDistributions, sampling: SlotSampling) -> Tensor:
    """Log-probabilities [N + B] of a pack's terms, in the order of `Trajectory.logprobs`."""
    of, _ = distributions
    tokens = head_log_prob(of.hidden, of.head.weight, of.bias, packed.targets, sampling)
    if len(packed.queries) == 0:
        return tokens[packed.order]
    if sampling.selector == "random":
        chosen = plackett_luce.even_log_prob(packed.there.sum(1), (packed.chosen >= 0).sum(1))
    else:
        chosen = plackett_luce.log_prob(_scores(packed, distributions, sampling), packed.chosen)
    return torch.cat([tokens, chosen.to(tokens.dtype)])[packed.order]


def round_divergences(
    packed: SlotPack,
    distributions: PackDistributions,
    other: PackDistributions,
    sampling: SlotSampling,
) -> Tensor:
    """KL [steps] from the sampling distribution of `distributions` to that of `other`, in closed
    form at the states that were visited.

    A round's KL is the sum over its drawn tokens of the KL of their distributions, given the tokens
    before them in their slot, and over its picks of slots, given the picks before them. The mean
    over trajectories of the sum over rounds is the KL of the trajectories (the chain rule; a test
    enumerates it).
    """
    each = divergence(distributions[0], other[0], sampling)
    if len(packed.queries) and sampling.selector != "random":
        scores, others = _scores(packed, distributions, sampling), _scores(packed, other, sampling)
        of_choice = plackett_luce.divergence(scores, others, packed.chosen)
        each = torch.cat([each, of_choice.to(each.dtype)])
    return each.new_zeros(packed.num_steps).index_add(0, packed.step[: len(each)], each)


def _scores(packed: SlotPack, distributions: PackDistributions, sampling: SlotSampling) -> Tensor:
    """Scores [B, m] of open slots; minus infinity where there is none."""
    scores = (
        largest_log_prob(distributions[1], sampling).view(packed.queries.shape)
        / sampling.position_temperature
    )
    return scores.masked_fill(~packed.there, float("-inf"))


TOKENS_AT_ONCE = 8192
"""The longest pack that `score` makes of trajectories it was given together."""


class SlotPolicy(CanvasPolicy):
    """A causal model with slots as a `Policy`. Open one with `SlotPolicy.open`."""

    family = "slots"
    sampling_type = SlotSampling
    mask_id: int

    def __init__(self, loaded: Loaded, section: SlotModel, source: str) -> None:
        super().__init__(loaded, section)
        self.width = section.slot
        self.mask_id = mask_token(self.model, self.chat.tokenizer, source)
        saved = self.read_saved_settings(source)
        if saved.get("slot", self.width) != self.width:
            raise ModelError(
                f"the model in {source} was trained with slots of {saved['slot']} tokens, not of "
                f"{self.width}",
                f"set model.slot to {saved['slot']}",
            )
        self.canvas = section.canvas or saved.get("canvas")
        if self.canvas is not None:
            count_slots(self.canvas, self.width, "model.canvas")
        check_attention(self.model, source, self.context)
        self.model.config.plumbline = {
            "family": self.family,
            "canvas": self.canvas,
            "slot": self.width,
        }

    @classmethod
    def open(cls, section: SlotModel, source: str, seed: int = 0) -> "SlotPolicy":
        """Load a model directory, an adapter directory or a hub name; a ReFusion checkpoint as the
        Qwen3 that it is.

        Raises:
            ModelError: it cannot be loaded (see `causal_model.load`), has no mask token, does
                not follow explicit masks and positions, or was trained with slots of another size.
            RecipeError: the canvas is no whole number of slots.
        """
        return cls(load(section, source, seed, slot_config), section, source)

    @property
    def engine(self) -> Mapping[str, str]:
        """See `Policy.engine`."""
        return {
            "family": self.family,
            "decoder": "rounds of slots over one cache",
            "scoring": "packed",
            "slot": str(self.width),
            "mask_token": str(self.mask_id),
            **self.facts(),
        }

    def exact(self, sampling: Sampling) -> bool:
        """See `Policy.exact`: threshold decoding decides without a density; all else is covered."""
        return SlotSampling.of(sampling).selector != "threshold"

    def draw(self, requests: Sequence[Request]) -> Draws:
        """See `Sampler.sample`. Prompts are decoded in chunks of `rows_at_once` rows; by threshold
        one by one.

        Raises:
            DataError: a prompt does not fit into the context.
            RecipeError: a sampling distribution does not fit the slots (see `Grid.of`), is longer
                than the model's canvas, or asks for random threshold decoding.
        """
        grids = {
            sampling: self._grid(sampling)
            for sampling in dict.fromkeys(SlotSampling.of(each.sampling) for each in requests)
        }
        for chunk in self.chunks(requests, SlotSampling):
            grid = grids[chunk.sampling]
            by_threshold = chunk.sampling.selector == "threshold"
            for drawn in (
                decode_by_threshold(self, chunk, grid)
                if by_threshold
                else RoundSampler(self, chunk, grid).run()
            ):
                yield self.finish_trajectory(chunk, *drawn)

    def _grid(self, sampling: SlotSampling) -> Grid:
        """The sampling distribution's grid, or the error that says why this model cannot follow
        it."""
        if self.canvas is not None and sampling.max_tokens > self.canvas:
            raise RecipeError(
                f"sampling.max_tokens is {sampling.max_tokens}, but the model's canvas has "
                f"{self.canvas} places",
                f"lower it to {self.canvas}, or train with a larger model.canvas",
            )
        if sampling.selector == "threshold" and not sampling.greedy:
            raise RecipeError(
                "sampling.selector: threshold decides and never draws, so it has no temperature",
                "use it for greedy answers only (evaluation.sampled: false), or set the selector "
                "to plackett_luce",
            )
        return Grid.of(sampling, self.width)

    def batches(
        self, trajectories: Sequence[Trajectory], tokens_per_microbatch: int
    ) -> list[list[int]]:
        """See `Policy.batches`: consecutive trajectories of one prompt, as many as are cheapest
        together."""
        if not trajectories:
            return []
        grid = self._scored_grid(SlotSampling.of(common_sampling(trajectories)))
        width = self.model.config.get_text_config().hidden_size
        lengths = [packed_length(trajectory, grid, self.mask_id) for trajectory in trajectories]
        return pack_sizes(
            trajectories,
            lengths,
            tokens_per_microbatch,
            width,
            PASS_COST if self.device.type == "cpu" else LAUNCHES,
        )

    def parts(self, trajectories: Sequence[Trajectory]) -> Iterator[Sequence[Trajectory]]:
        """See `CanvasPolicy.parts`."""
        for part in self.batches(trajectories, TOKENS_AT_ONCE):
            yield [trajectories[index] for index in part]

    def record(self, trajectories: Sequence[Trajectory], sampling: SlotSampling) -> SlotPack:
        """See `CanvasPolicy.record`.

        Raises:
            RecipeError: the trajectories were decoded by threshold.
            ValueError: they are greedy, or not this family's.
        """
        return pack(trajectories, self._scored_grid(sampling), self.mask_id, self.device)

    def distributions(
        self,
        recorded: SlotPack,
        model: Any,
        learned_temperature: Any,  # noqa: ARG002
    ) -> PackDistributions:
        """See `CanvasPolicy.distributions`."""
        return read_distributions(model, self.mask_id, recorded)

    def terms(
        self,
        recorded: SlotPack,
        distributions: PackDistributions,
        other: PackDistributions | None,
        sampling: SlotSampling,
    ) -> tuple[Tensor, Tensor | None]:
        """See `CanvasPolicy.terms`; the log-probabilities come first."""
        logprobs = log_probs(recorded, distributions, sampling)
        return logprobs, None if other is None else round_divergences(
            recorded, distributions, other, sampling
        )

    log_probs = staticmethod(log_probs)
    step_divergence = staticmethod(round_divergences)

    def _scored_grid(self, sampling: SlotSampling) -> Grid:
        if not self.exact(sampling):
            raise RecipeError(
                "a trajectory decoded by threshold has no density, so it cannot be scored",
                "set sampling.selector to plackett_luce (or random) for training",
            )
        if sampling.greedy:
            raise ValueError("temperature 0 has no density: a greedy trajectory cannot be scored")
        return Grid.of(sampling, self.width)

    def supervised_loss(self, batch: Sequence[Demonstration], noise: Sequence[Noise]) -> Tensor:
        """See `Policy.supervised_loss`, and `supervised` for the formula: summed over the batch and
        times L, so that divided by the batch's targets it is the mean."""
        rows = [
            noise_demonstration(each, self.width, self.mask_id, own)
            for each, own in zip(batch, noise, strict=True)
        ]
        # Padded on the right, where nothing that counts looks.
        ids, positions = (
            pad_rows([part.tolist() for part in parts])[0].to(self.device)
            for parts in zip(*((one.ids, one.positions) for one in rows), strict=True)
        )
        longest = ids.shape[1]
        causal = torch.ones((1, 1, longest, longest), dtype=torch.bool, device=self.device).tril_()
        hidden = read_packed(self.model, ids, positions, causal).flatten(0, 1)
        predictors, targets, weights = (
            torch.cat(parts).to(self.device)
            for parts in zip(
                *(
                    (row * longest + one.predictors, one.targets, one.weights)
                    for row, one in enumerate(rows)
                ),
                strict=True,
            )
        )
        head = self.model.get_output_embeddings()
        logprobs = head_log_prob(hidden[predictors], head.weight, head.bias, targets, PLAIN)
        return -(logprobs * weights.to(logprobs.dtype)).sum()
