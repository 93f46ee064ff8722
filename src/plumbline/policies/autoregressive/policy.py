"""The autoregressive policy: samples by decoding, scores by one forward pass, under one token
distribution.

Letters in shapes: N terms, P prompts, G copies.

A trajectory is a single step that holds the whole answer, the token that ends it included: its
log-probability is the sum over its tokens of log p(token | prompt, earlier tokens) under
`sampling_distribution`, and it is exact.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plumbline.errors import DataError, ModelError, RecipeError
from plumbline.policies.autoregressive.decoders import Decoder, threads_for
from plumbline.policies.autoregressive.decoders.cached import CachedDecoder, limit_time_steps
from plumbline.policies.autoregressive.decoders.lean import LeanDecoder
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.autoregressive.packing import (
    PASS_TOKENS,
    Pack,
    Targets,
    pack,
    pack_demonstrations,
    windows,
)
from plumbline.policies.autoregressive.probe import make_mask_arguments, probe_once
from plumbline.policies.chunks import LAUNCHES, Chunk, Layout, join_packs, pack_sizes
from plumbline.policies.policy import Demonstration, LiveRequest, Policy, common_sampling
from plumbline.policies.pretrained.causal_model import Loaded, load
from plumbline.policies.pretrained.policy import PretrainedPolicy, pad_rows, uses_onednn
from plumbline.policies.sampling_distribution import (
    PLAIN,
    Noise,
    check_drawn,
    draw,
    log_prob,
    uniforms,
)
from plumbline.policies.token_logprobs import TokenDistributions, divergence, head_log_prob
from plumbline.records import (
    Draws,
    IntArray,
    Message,
    Request,
    Sampling,
    Terms,
    Trajectory,
    Transition,
)

# -- sampler ---------------------------------------------------------------------------------------
#
# The decoding loop: draw, append, drop what is finished.
#
# Letters in shapes: P prompts, G copies, R rows, C token limit.
#
# Every row has its own uniform numbers, drawn before the loop by its own request's generator, so a
# row's tokens do not depend on which other rows run beside it: dropping finished rows changes the
# speed and not the result.


Drawn = tuple[int, list[int], list[float], bool]
"""A row's number, its completion's tokens with their log-probabilities, and whether the model ended
it."""


def decode(
    decoder: Decoder, chunk: Chunk[Sampling], stop_ids: Sequence[int], device: torch.device
) -> Iterator[Drawn]:
    """Draw a completion for each row of a chunk, and yield it soon after it has ended.

    What a `LiveRequest` constrains is drawn from the distribution that is left. One that is `gone`
    yields nothing.

    Args:
        decoder: the engine.
        chunk: its prompts and its sampling distribution's `max_tokens` fit into the model's
            context.
        stop_ids: tokens that end a completion (the token itself is part of it).
        device: where the decoder's tensors are.

    Raises:
        ModelError: the model's logits are NaN or infinite.
    """
    sampling, num_rows, limit = chunk.sampling, len(chunk.requests), chunk.sampling.max_tokens
    # One row more than there are completions: cells of the grid that draw nothing, or nothing any
    # more, write there.
    numbers_rc = torch.cat(
        [uniforms(chunk.generators(), limit), torch.zeros((1, limit), dtype=torch.float64)]
    ).to(device)
    tokens_rc = torch.zeros((num_rows + 1, limit), dtype=torch.long, device=device)
    logprobs_rc = torch.zeros((num_rows + 1, limit), dtype=torch.float32, device=device)
    length = torch.full((num_rows + 1,), limit, dtype=torch.long, device=device)
    stops = torch.tensor(list(stop_ids), device=device)
    grid = chunk.grid.to(device)  # which completion a cell draws
    live, running = grid < num_rows, num_rows
    untold = torch.ones((num_rows,), dtype=torch.bool, device=device)
    waited = {row: each for row, each in enumerate(chunk.requests) if isinstance(each, LiveRequest)}
    constraints = {
        row: each.constraint for row, each in waited.items() if each.constraint is not None
    }
    for constraint in constraints.values():
        constraint.begin()

    def ended(now: int) -> Iterator[Drawn]:
        """The completions that ended by now and were not yielded before."""
        rows = (untold & (length[:-1] <= now)).nonzero().flatten()
        untold[rows] = False
        found = zip(
            *(each[rows].tolist() for each in (tokens_rc, logprobs_rc, length)), strict=True
        )
        for row, (tokens, logprobs, end) in zip(rows.tolist(), found, strict=True):
            check_drawn(logprobs[:end])
            yield row, tokens[:end], logprobs[:end], tokens[end - 1] in stop_ids

    # Asking a GPU whether rows are finished makes it wait, so there it is asked every 16 tokens
    # only.
    interval = 1 if device.type == "cpu" else 16
    logits = decoder.begin(chunk.prompts, grid.shape[1], limit, chunk.shared).repeat_interleave(
        grid.shape[1], 0
    )
    for time in range(limit):
        cells = grid.flatten()
        running_cells = (
            zip(cells.tolist(), live.flatten().tolist(), strict=True) if constraints else ()
        )
        held = {
            at: constraints[row]
            for at, (row, runs) in enumerate(running_cells)
            if runs and row in constraints
        }
        if held:  # of 16-bit logits those that are likeliest then are exact again
            logits = logits.float()
            for at, constraint in held.items():
                constraint.restrict(logits[at])
            logits[[*held]] = decoder.exact(logits[[*held]], [*held])
        # an exponential costs about as much as 16 multiplications
        with threads_for(logits.numel() * 16):
            tokens, logprobs = draw(logits, numbers_rc[cells, time], sampling)
        for cell, constraint in held.items():
            constraint.accept(int(tokens[cell]))
        # past its end a row's columns are unread
        tokens_rc[cells, time], logprobs_rc[cells, time] = tokens, logprobs
        stopped = live.flatten() & torch.isin(tokens, stops)
        # of fixed shape, so that no GPU is waited for
        length[cells] = torch.where(stopped, time + 1, length[cells])
        live &= ~stopped.view_as(live)
        if time + 1 == limit:
            break
        if (time + 1) % interval == 0:
            for row in [row for row, each in waited.items() if each.gone.is_set()]:
                live, untold[row] = live & (grid != row), False
            before, running = running, int(live.sum())
            if running < before:
                yield from ended(time + 1)
            if running == 0:
                return
            if (smaller := _smaller_grid(live)) is not None:
                keep_prompts, keep_copies, live = smaller
                tokens = tokens.view_as(grid)[keep_prompts.unsqueeze(1), keep_copies].flatten()
                grid = grid[keep_prompts.unsqueeze(1), keep_copies].masked_fill(~live, num_rows)
                decoder.keep(keep_prompts, keep_copies)
        logits = decoder.step(tokens)
    yield from ended(limit)


def _smaller_grid(live: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """The grid of what still runs, where it is small enough to be worth the copying.

    Args:
        live: bool [P, G].

    Returns:
        The prompts [P'] and columns [P', G'] to keep and which of their cells are live, or None. A
        prompt with fewer live copies than G' is filled up with finished ones, which draw on and are
        not read.
    """
    counts = live.sum(1)
    keep_prompts = counts.nonzero().squeeze(1)
    width = int(counts.max())
    # On a GPU a step of fewer rows is hardly shorter, so only a halving is worth it; on a CPU a
    # quarter is.
    share = 0.75 if live.device.type == "cpu" else 0.5
    if len(keep_prompts) * width > share * live.numel():
        return None
    live = live[keep_prompts]
    columns = live.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :width]
    return keep_prompts, columns, live.gather(1, columns)


JOINED = 1024
"""Tokens up to which prompts share a pass on a CPU: beyond, a layer's numbers leave the processor's
cache. With it the passes of four prompts took 0.75 to 0.92 of the time (SmolLM2 with adapters; a
width of 96). On a GPU all that fit do.
"""
WORTH_LAYING_OUT = 16
"""Answers for which the weights are laid out once: that takes as long as three tokens of that
many."""


class AutoregressivePolicy(PretrainedPolicy):
    """A causal model as a `Policy`. Open one with `AutoregressivePolicy.open`."""

    family = "autoregressive"

    def __init__(self, loaded: Loaded, section: AutoregressiveModel) -> None:
        super().__init__(loaded, section)
        limit_time_steps(self.model)
        self._abilities = probe_once(self.model, cached=section.decoder == "transformers")
        for what, reason in (
            ("cannot be sampled from, several answers at once", self._abilities.why_not_cached),
            ("cannot score rows of several lengths together", self._abilities.why_not_rows),
        ):
            if reason:  # its answers would be of another distribution than its forward pass has
                raise ModelError(
                    f"a model of type {self.model.config.model_type} {what}: {reason}",
                    "use a model of another architecture (docs/research/architectures.md lists "
                    "what was tried)",
                )
        if section.decoder == "lean" and not self._abilities.lean:
            raise ModelError(
                f"model.decoder: lean does not fit this model: {self._abilities.why_not_lean}",
                "set model.decoder to auto or transformers",
            )
        if section.scoring == "packed" and not self._abilities.packing:
            raise ModelError(
                "model.scoring: packed differs from plain scoring on this model",
                "set model.scoring to auto or rows",
            )
        # A pack says with its own mask, or with groups, who sees whom, so it is right up to a
        # layer's window only.
        self._reach = min(windows(self.model), default=None)
        self._rounded = uses_onednn(self.model)
        self._lean = self._abilities.lean and section.decoder != "transformers"
        self._packed = self._abilities.packing and section.scoring != "rows"
        self._ready: LeanDecoder | None = None

    @classmethod
    def open(
        cls, section: AutoregressiveModel, source: str, seed: int = 0
    ) -> "AutoregressivePolicy":
        """Load a model directory, an adapter directory or a hub name.

        Raises:
            ModelError: it cannot be loaded or does not fit (see `causal_model.load`), or an engine that
                was asked for by name does not agree with the model.
        """
        return cls(load(section, source, seed), section)

    @property
    def engine(self) -> Mapping[str, str]:
        """See `Policy.engine`."""
        return {
            "family": self.family,
            "decoder": "lean" if self._lean else "transformers",
            "why_not_lean": self._abilities.why_not_lean,
            "scoring": "packed" if self._packed else "rows",
            "head": "sliced" if self._abilities.linear_head else "whole",
            "adapters": "none"
            if self.adapter is None
            else "fused"
            if self._abilities.adapters
            else "peft",
            "left_out": self._abilities.left_out(),
            **self.facts(),
        }

    def draw(self, requests: Sequence[Request]) -> Draws:
        """See `Sampler.sample`. Prompts are decoded in chunks of `rows_at_once` rows."""
        decoder: Decoder = CachedDecoder(self.model, self.chat.stop_ids[0])
        if self._lean:
            decoder = self._ready or LeanDecoder(
                self.model, lay_out=len(requests) >= WORTH_LAYING_OUT
            )
        for chunk in self.chunks(requests, Sampling):
            prompt_of = chunk.prompt_of.tolist()
            for row, tokens, logprobs, stopped in decode(
                decoder, chunk, self.chat.stop_ids, self.device
            ):
                prompt = chunk.prompts[prompt_of[row]]
                yield (
                    chunk.requests[row],
                    self.trajectory(prompt, tokens, logprobs, chunk.sampling, stopped=stopped),
                )

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """See `PretrainedPolicy.drawing`: a decoder, with the weights laid out for it once."""
        self._ready = LeanDecoder(self.model, lay_out=True) if self._lean else None
        try:
            yield
        finally:
            self._ready = None

    def trajectory(
        self,
        prompt: list[int],
        tokens: list[int],
        logprobs: list[float],
        sampling: Sampling,
        *,
        stopped: bool,
    ) -> Trajectory:
        """An answer, drawn here or by an engine with these weights, as `score` takes it."""
        step = Transition(
            positions=np.arange(len(tokens)),
            tokens=np.array(tokens, dtype=np.int64),
            logprobs=np.array(logprobs, dtype=np.float32),
        )
        return Trajectory(
            prompt=np.array(prompt, dtype=np.int64),
            transitions=(step,),
            text=self.chat.text(tokens),
            sampling=sampling,
            finish="stop" if stopped else "length",
            version=self.version,
        )

    def batches(
        self, trajectories: Sequence[Trajectory], tokens_per_microbatch: int
    ) -> list[list[int]]:
        """See `Policy.batches`: of each prompt as many as are cheapest together, and small ones of
        several prompts."""
        width = self.model.config.get_text_config().hidden_size
        lengths = [trajectory.num_tokens for trajectory in trajectories]
        slow, square = self.device.type == "cpu", not self._abilities.shared
        pass_cost = 24 * width**2 * PASS_TOKENS if slow else LAUNCHES
        packed: Layout = "square" if square else "shared"
        layouts = [
            packed if self._goes_in_packs([trajectory]) else "rows" for trajectory in trajectories
        ]
        packs = pack_sizes(trajectories, lengths, tokens_per_microbatch, width, pass_cost, layouts)
        if not self._goes_in_packs(trajectories) or (slow and square):
            return packs  # rows repeat their prompt, and a mask is of the whole square
        return join_packs(
            packs,
            trajectories,
            lengths,
            min(tokens_per_microbatch, JOINED) if slow else tokens_per_microbatch,
        )

    def score(
        self,
        trajectories: Sequence[Trajectory],
        *,
        reference: bool = False,
        divergence: bool = False,
    ) -> Terms:
        """See `Policy.score`."""
        if divergence:
            return self.compare(trajectories, trajectories, None)
        sampling = common_sampling(trajectories)
        if not reference:
            return Terms.of(trajectories, self._score(self.model, trajectories, sampling))
        with torch.no_grad(), self.as_reference() as model:
            return Terms.of(trajectories, self._score(model, trajectories, sampling))

    def compare(
        self,
        trajectories: Sequence[Trajectory],
        hinted: Sequence[Trajectory],
        teacher: Policy | None,
        *,
        forward: bool = False,
        present: bool = False,
    ) -> Terms:
        """See `Policy.compare`."""
        sampling = common_sampling(trajectories)
        if not self._abilities.linear_head:
            raise RecipeError(
                "rl.kl: closed needs a model whose last layer is linear", "set rl.kl to sampled"
            )
        theirs = (teacher or self).teacher_distributions(hinted, reference=not (teacher or present))
        mine, targets = self._distributions(self.model, trajectories)
        logprobs = _log_probs(mine, targets, sampling)
        per_token = divergence(mine, theirs, sampling, forward=forward)
        owner = torch.repeat_interleave(
            torch.tensor([t.num_tokens for t in trajectories], device=per_token.device)
        )
        return Terms.of(
            trajectories,
            logprobs,
            per_token.new_zeros(len(trajectories)).index_add(0, owner, per_token),
        )

    @torch.no_grad()
    def teacher_distributions(
        self, trajectories: Sequence[Trajectory], *, reference: bool = False
    ) -> TokenDistributions:
        """See `Policy.teacher_distributions`."""
        with self.as_reference() if reference else nullcontext(self.model) as model:
            return self._distributions(model, trajectories)[0]

    def _distributions(
        self, model: Any, trajectories: Sequence[Trajectory]
    ) -> tuple[TokenDistributions, Tensor]:
        """Where a pass says the answers' tokens, and these tokens [N]; for a linear head."""
        if self._goes_in_packs(trajectories):
            return self._pack_distributions(
                model, pack(trajectories, self.device, rounded=self._rounded)
            )
        return self._row_distributions(model, _sequences(trajectories))

    def encode(self, messages: Sequence[Message]) -> IntArray:
        """See `Policy.encode`."""
        return np.array(self.chat.prompt(messages), dtype=np.int64)

    def _score(self, model: Any, trajectories: Sequence[Trajectory], sampling: Sampling) -> Tensor:
        if self._goes_in_packs(trajectories):
            return _log_probs(*self._distributions(model, trajectories), sampling)
        return self._score_rows(model, _sequences(trajectories), sampling)

    def _goes_in_packs(self, trajectories: Sequence[Trajectory]) -> bool:
        return self._packed and self._within_reach(
            len(t.prompt) + t.num_tokens for t in trajectories
        )

    def _within_reach(self, lengths: Iterable[int]) -> bool:
        """Whether no layer's window cuts off any token of sequences of these lengths."""
        return self._reach is None or all(length <= self._reach for length in lengths)

    def _pack_distributions(self, model: Any, packed: Pack) -> tuple[TokenDistributions, Tensor]:
        """The places of a pack's targets, and these [N]."""
        hidden = model.get_decoder()(
            packed.ids,
            **make_mask_arguments(packed, model.dtype, shared=self._abilities.shared),
            position_ids=packed.positions,
            use_cache=False,
        ).last_hidden_state[0, packed.predictors]
        return TokenDistributions(model.get_output_embeddings(), None, hidden), packed.targets

    def _rows(self, sequences: Sequence[Targets]) -> tuple[Tensor, Tensor, Tensor]:
        """Ids as padded rows, and the row and column of each target [N]; padding is on the right,
        unseen."""
        ids, is_target = (
            pad_rows(parts)[0].to(self.device) for parts in zip(*sequences, strict=True)
        )
        row, column = is_target.nonzero(as_tuple=True)
        return ids, row, column

    def _row_distributions(
        self, model: Any, sequences: Sequence[Targets]
    ) -> tuple[TokenDistributions, Tensor]:
        """The places of the targets of padded rows, and these [N]."""
        ids, row, column = self._rows(sequences)
        hidden = model.get_decoder()(ids, use_cache=False).last_hidden_state[row, column - 1]
        return TokenDistributions(model.get_output_embeddings(), None, hidden), ids[row, column]

    def _score_rows(self, model: Any, sequences: Sequence[Targets], sampling: Sampling) -> Tensor:
        """Log-probabilities [N] of the targets of padded rows."""
        if self._abilities.linear_head:
            return _log_probs(*self._row_distributions(model, sequences), sampling)
        ids, row, column = self._rows(sequences)
        return log_prob(
            model(ids, use_cache=False).logits[row, column - 1], ids[row, column], sampling
        )

    def demonstrate(
        self, messages: Sequence[Message], *, allow_truncation: bool = False
    ) -> Demonstration:
        """See `Policy.demonstrate`."""
        whole = self.chat.demonstration(messages)
        if len(whole.tokens) <= self.context:
            return whole
        if not allow_truncation:
            raise DataError(
                f"a demonstration of {len(whole.tokens)} tokens exceeds the model's context of "
                f"{self.context}",
                "shorten it, use a longer context, or set sft.allow_truncation (the cut ones are "
                "counted)",
            )
        cut = Demonstration(
            whole.tokens[: self.context], whole.is_target[: self.context], truncated=True
        )
        if cut.num_targets == 0:
            raise DataError("nothing of the answer is left after truncation", "remove this record")
        return cut

    def supervised_loss(self, batch: Sequence[Demonstration], noise: Sequence[Noise]) -> Tensor:  # noqa: ARG002
        """See `Policy.supervised_loss`: the summed negative log-likelihood of the targets; nothing
        is drawn."""
        sequences = [(demonstration.tokens, demonstration.is_target) for demonstration in batch]
        # Without shared attention a pack would cost the square of the whole batch.
        if (
            self._packed
            and self._abilities.shared
            and self._within_reach(len(tokens) for tokens, _ in sequences)
        ):
            packed = pack_demonstrations(sequences, self.device, rounded=self._rounded)
            return -_log_probs(*self._pack_distributions(self.model, packed), PLAIN).sum()
        return -self._score_rows(self.model, sequences, PLAIN).sum()


def _sequences(trajectories: Sequence[Trajectory]) -> list[Targets]:
    parts = [(each.prompt.tolist(), each.tokens.tolist()) for each in trajectories]
    return [
        (prompt + answer, [False] * len(prompt) + [True] * len(answer)) for prompt, answer in parts
    ]


def _log_probs(distributions: TokenDistributions, targets: Tensor, sampling: Sampling) -> Tensor:
    return head_log_prob(
        distributions.hidden, distributions.head.weight, distributions.head.bias, targets, sampling
    )
