"""The slot policy: plans which slots to fill, fills them side by side, and scores a whole trajectory in one pass.

Letters in shapes: N terms, P prompts, G copies, L places of the canvas.

The model is a causal one that was trained on slots in any order (ReFusion, Li et al. 2025, arXiv:2512.13586). A
trajectory is a sequence of rounds (`sampler`); a round's terms are the tokens that it drew and its ordered choice of
slots. All of the randomness that depends on the weights is in the terms, so the log-probability is exact.

The paper's deterministic decoding (`selector: threshold`) is there for evaluation; it cannot be scored.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from plumbline.errors import ModelError, RecipeError
from plumbline.policies.canvas import CanvasPolicy
from plumbline.policies.chunks import LAUNCHES, pack_sizes
from plumbline.policies.draws import Noise
from plumbline.policies.policy import Demonstration, Terms, common_law
from plumbline.policies.pretrained.inputs import mask_token
from plumbline.policies.pretrained.loading import Loaded, load
from plumbline.policies.slots.grid import Grid, count_slots
from plumbline.policies.slots.loading import check_attention, plain_config
from plumbline.policies.slots.options import SlotModel, SlotSampling
from plumbline.policies.slots.packing import PASS_COST, Pack, branch, pack
from plumbline.policies.slots.sampler import Ids, roll_out
from plumbline.policies.slots.scoring import divergences, laws_of, log_probs
from plumbline.policies.slots.supervised import summed_loss
from plumbline.policies.slots.threshold import decide
from plumbline.records import Request, Sampling, Trajectory

TOKENS_AT_ONCE = 8192
"""The longest pack that `score` makes of trajectories it was given together."""


class SlotPolicy(CanvasPolicy):
    """A causal model with slots as a `Policy`. Open one with `SlotPolicy.open`."""

    family = "slots"
    stepwise = False

    def __init__(self, loaded: Loaded, section: SlotModel, source: str) -> None:
        super().__init__(loaded, section)
        self.width = section.slot
        self.ids = Ids(
            mask=mask_token(self.model, self.chat.tokenizer, source),
            end=self.chat.end_of_turn,
            stops=tuple(self.chat.stop_ids),
        )
        self.mask_id = self.ids.mask
        saved = self.settled(source)
        if saved.get("slot", self.width) != self.width:
            raise ModelError(
                f"the model in {source} was trained with slots of {saved['slot']} tokens, not of {self.width}",
                f"set model.slot to {saved['slot']}",
            )
        self.canvas = section.canvas or saved.get("canvas")
        if self.canvas is not None:
            count_slots(self.canvas, self.width, "model.canvas")
        check_attention(self.model, source, self.context)
        self.model.config.plumbline = {"family": self.family, "canvas": self.canvas, "slot": self.width}

    @classmethod
    def open(cls, section: SlotModel, source: str, seed: int = 0) -> "SlotPolicy":
        """Load a model directory, an adapter directory or a hub name; a ReFusion checkpoint as the Qwen3 that it is.

        Raises:
            ModelError: it cannot be loaded (see `pretrained.loading.load`), has no mask token, does not follow explicit
                masks and positions, or was trained with slots of another size.
            RecipeError: the canvas is no whole number of slots.
        """
        return cls(load(section, source, seed, plain_config), section, source)

    @property
    def engine(self) -> Mapping[str, str]:
        """See `Policy.engine`."""
        return {
            "family": self.family,
            "decoder": "rounds of slots over one cache",
            "scoring": "packed",
            "slot": str(self.width),
            "mask_token": str(self.ids.mask),
            **self.facts(),
        }

    def exact(self, sampling: Sampling) -> bool:
        """See `Policy.exact`: threshold decoding decides without a density; all else is covered."""
        return SlotSampling.of(sampling).selector != "threshold"

    def draw(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Trajectory]]:
        """See `Sampler.sample`. Prompts are decoded in chunks of `rows_at_once` rows; by threshold one by one.

        Raises:
            DataError: a prompt does not fit into the context.
            RecipeError: a law does not fit the slots (see `Grid.of`), is longer than the model's canvas, or asks for
                random threshold decoding.
        """
        grids = {law: self._grid(law) for law in dict.fromkeys(SlotSampling.of(each.sampling) for each in requests)}
        for chunk in self.chunks(requests, SlotSampling):
            fill = decide if chunk.sampling.selector == "threshold" else roll_out
            for row, drawn in fill(self.model, chunk, grids[chunk.sampling], self.ids):
                yield self.finished(chunk, row, drawn.canvas, drawn.steps)

    def _grid(self, sampling: SlotSampling) -> Grid:
        """The law's grid, or the error that says why this model cannot follow it."""
        if self.canvas is not None and sampling.max_tokens > self.canvas:
            raise RecipeError(
                f"sampling.max_tokens is {sampling.max_tokens}, but the model's canvas has {self.canvas} places",
                f"lower it to {self.canvas}, or train with a larger model.canvas",
            )
        if sampling.selector == "threshold" and not sampling.greedy:
            raise RecipeError(
                "sampling.selector: threshold decides and never draws, so it has no temperature",
                "use it for greedy answers only (evaluation.sampled: false), or set the selector to plackett_luce",
            )
        return Grid.of(sampling, self.width)

    def batches(self, trajectories: Sequence[Trajectory], tokens_per_pass: int) -> list[list[int]]:
        """See `Policy.batches`: consecutive trajectories of one prompt, as many as are cheapest together."""
        if not trajectories:
            return []
        grid = self._scored_grid(SlotSampling.of(common_law(trajectories)))
        width = self.model.config.get_text_config().hidden_size
        lengths = [len(branch(trajectory, grid, self.ids.mask).ids) for trajectory in trajectories]
        return pack_sizes(
            trajectories, lengths, tokens_per_pass, width, PASS_COST if self.device.type == "cpu" else LAUNCHES
        )

    def score(self, trajectories: Sequence[Trajectory], *, reference: bool = False, divergence: bool = False) -> Terms:
        """See `Policy.score`.

        Raises:
            RecipeError: the trajectories were decoded by threshold.
            ValueError: they are greedy, or not this family's.
        """
        law = SlotSampling.of(common_law(trajectories))
        grid = self._scored_grid(law)
        logprobs, kls = [], []
        for part in self.batches(trajectories, TOKENS_AT_ONCE):
            packed = pack([trajectories[index] for index in part], grid, self.ids.mask, self.device)
            one, kl = self._score(packed, law, reference=reference, divergence=divergence)
            logprobs.append(one)
            kls += [] if kl is None else [kl]
        return Terms.of(trajectories, torch.cat(logprobs), torch.cat(kls) if kls else None)

    def _scored_grid(self, law: SlotSampling) -> Grid:
        if not self.exact(law):
            raise RecipeError(
                "a trajectory decoded by threshold has no density, so it cannot be scored",
                "set sampling.selector to plackett_luce (or random) for training",
            )
        if law.greedy:
            raise ValueError("temperature 0 has no density: a greedy trajectory cannot be scored")
        return Grid.of(law, self.width)

    def _score(
        self, packed: Pack, law: SlotSampling, *, reference: bool, divergence: bool
    ) -> tuple[Tensor, Tensor | None]:
        other = None
        if reference or divergence:
            with torch.no_grad(), self.as_reference() as model:
                other = laws_of(model, self.ids.mask, packed)
                if reference:
                    return log_probs(packed, other, law), None
        laws = laws_of(self.model, self.ids.mask, packed)
        logprobs = log_probs(packed, laws, law)
        return logprobs, None if other is None else divergences(packed, laws, other, law)

    def supervised_loss(self, batch: Sequence[Demonstration], noise: Sequence[Noise]) -> Tensor:
        """See `Policy.supervised_loss`, and `supervised` for the formula."""
        return summed_loss(self.model, batch, self.width, self.ids.mask, noise)
