"""The masked-diffusion policy: fills hidden places of a canvas in steps, and scores each step by itself.

Letters in shapes: S scored steps, L places, N chosen tokens.

A trajectory is the sequence of its steps; each step's probability is that of its tokens, under `token_law`, times that
of the choice of its places, where the model has a say in it (`selectors`). Both are exact.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from plumbline.errors import DataError, ModelError
from plumbline.policies import places as at_places
from plumbline.policies.canvas import answer_of, joined, split_demonstration
from plumbline.policies.exploration import Exploration
from plumbline.policies.masked.checkpoints import LLADA_NAMES, config_of
from plumbline.policies.masked.network import Network, Prompts, check_bidirectional
from plumbline.policies.masked.sampler import denoise
from plumbline.policies.masked.schedule import Slice, slices
from plumbline.policies.masked.scorer import FREE, free_log_prob, selection_log_prob
from plumbline.policies.places import Places
from plumbline.policies.policy import Demonstration, Terms, common_law
from plumbline.policies.pretrained.loading import Loaded, load
from plumbline.policies.pretrained.policy import PretrainedPolicy
from plumbline.recipe import ModelSection
from plumbline.records import Message, Sampling, Step, Trajectory

PLAIN = Sampling()
"""The law of supervised training."""


class MaskedPolicy(PretrainedPolicy):
    """A bidirectional model with a mask token as a `Policy`. Open one with `MaskedPolicy.open`."""

    family = "masked"
    stepwise = True

    def __init__(self, loaded: Loaded, section: ModelSection, source: str) -> None:
        super().__init__(loaded)
        self.mask_id = _mask_id(self.model, self.chat.tokenizer, source)
        self.canvas = section.canvas
        self.rows_at_once = 64 if self.device.type == "cpu" else 256
        check_bidirectional(self.model, source)
        shifted = bool(getattr(self.model.config, "predicts_next", False))
        self.network = Network(self.model, section.attention, shifted=shifted)
        self.exploration = Exploration.read(source).to(self.device) if section.explore else None
        self._reference_exploration: Exploration | None = None
        self.model.config.plumbline = {"family": self.family, "canvas": self.canvas, "attention": section.attention}

    @classmethod
    def open(cls, section: ModelSection, source: str, seed: int = 0) -> Self:
        """Load a causal model, or a checkpoint in the style of LLaDA or Dream.

        Raises:
            ModelError: it cannot be loaded, has no mask token, or stays causal under any mask.
        """
        return cls(load(section, source, seed, config_of, LLADA_NAMES), section, source)

    @property
    def engine(self) -> Mapping[str, str]:
        """See `Policy.engine`."""
        return {
            "family": self.family,
            "attention": self.network.attention,
            "exploration": "learnt" if self.exploration is not None else "fixed",
            **self.facts(),
        }

    def exact(self, sampling: Sampling) -> bool:  # noqa: ARG002 - every selector has its probability
        """See `Policy.exact`."""
        return True

    # -- sampling ------------------------------------------------------------------------------------------------

    def sample(
        self, prompts: Sequence[Sequence[Message]], copies: int, sampling: Sampling, seed: int
    ) -> list[list[Trajectory]]:
        """See `Policy.sample`. Prompts are denoised in chunks of `rows_at_once` rows."""
        encoded = [self.chat.prompt(messages) for messages in prompts]
        self._check_canvas(sampling)
        for ids in encoded:
            self.check_length(len(ids), sampling.max_tokens)
        generator = torch.Generator().manual_seed(seed)
        drawn: list[list[Trajectory]] = []
        size = max(1, self.rows_at_once // copies)
        for start in range(0, len(encoded), size):
            drawn += self._sample(encoded[start : start + size], copies, sampling, generator)
        return drawn

    def _check_canvas(self, sampling: Sampling) -> None:
        if self.canvas is not None and sampling.max_tokens > self.canvas:
            raise DataError(
                f"sampling.max_tokens is {sampling.max_tokens}, but this model's canvas has {self.canvas} places",
                "lower sampling.max_tokens, or train with a larger model.canvas",
            )

    @torch.no_grad()
    def _sample(
        self, prompts: Sequence[Sequence[int]], copies: int, sampling: Sampling, generator: torch.Generator
    ) -> list[list[Trajectory]]:
        rows = self.network.encode(prompts).rows(torch.arange(len(prompts)).repeat_interleave(copies).to(self.device))

        def look(canvas: Tensor, which: Tensor, time: float) -> Places:
            hidden = self.network.hidden(rows, canvas.to(self.device))[which.to(self.device)]
            return self._places(self.model, hidden, self._divisor(self.exploration, [time], len(hidden)))

        done = denoise(look, len(prompts) * copies, self.mask_id, sampling, generator)
        made = []
        for row, steps in enumerate(done.steps):
            answer, finish = answer_of(done.canvas[row], self.chat.stop_ids)
            made.append(
                Trajectory(
                    prompt=np.array(prompts[row // copies], dtype=np.int64),
                    steps=tuple(steps),
                    text=self.chat.text(answer.tolist()),
                    sampling=sampling,
                    finish=finish,
                    answer=answer,
                )
            )
        return [made[start : start + copies] for start in range(0, len(made), copies)]

    def _places(self, model: Any, hidden: Tensor, divisor: Tensor | None) -> Places:
        return Places(model.get_output_embeddings(), self.mask_id, hidden, divisor)

    @staticmethod
    def _divisor(exploration: Exploration | None, times: Sequence[float], count: int) -> Tensor | None:
        """Divisors [count] of looked-at places that all belong to one time."""
        return None if exploration is None else exploration.divisor(times).expand(count)

    # -- scoring -------------------------------------------------------------------------------------------------

    def batches(self, trajectories: Sequence[Trajectory], tokens_per_pass: int) -> list[list[int]]:
        """See `Policy.batches`: in order, as many as fit, a prompt counted once where it is encoded once."""
        parts: list[list[int]] = []
        room, previous = 0, b""
        for index, trajectory in enumerate(trajectories):
            key = trajectory.prompt.tobytes()
            places = trajectory.sampling.max_tokens
            if self.network.attention == "full":
                cost = len(trajectory.steps) * (places + len(trajectory.prompt))
            else:
                cost = len(trajectory.steps) * places + (len(trajectory.prompt) if key != previous else 0)
            if not parts or cost > room:
                parts.append([])
                room, cost = tokens_per_pass, max(cost, len(trajectory.steps) * places + len(trajectory.prompt))
            parts[-1].append(index)
            room, previous = room - cost, key
        return parts

    def score(self, trajectories: Sequence[Trajectory], *, reference: bool = False, divergence: bool = False) -> Terms:
        """See `Policy.score`. The divergence of a step is that of its filled places and of an ordered Plackett-Luce
        choice; the other selectors' choices are left out of it.
        """
        sampling = common_law(trajectories)
        recorded = _Recorded.of(trajectories, self.mask_id)
        if reference:
            with torch.no_grad(), self.as_reference() as model:
                looked = self._look(recorded, model, self._reference_exploration)
                return Terms.of(trajectories, self._log_probs(recorded, looked, sampling))
        looked = self._look(recorded, self.model, self.exploration)
        kl = None
        if divergence:
            with torch.no_grad(), self.as_reference() as model:
                other = self._look(recorded, model, self._reference_exploration)
            kl = self._divergence(recorded, looked, other, sampling)
        return Terms.of(trajectories, self._log_probs(recorded, looked, sampling), kl)

    def _look(self, recorded: "_Recorded", model: Any, exploration: Exploration | None) -> Places:
        """The laws of all places that any recorded step could have filled, step by step."""
        prompts: Prompts = self.network.encode(recorded.prompts, model).rows(recorded.prompt_of.to(self.device))
        hidden = self.network.hidden(prompts, recorded.states.to(self.device), model)
        looked_at = recorded.looked_at.to(self.device)
        divisor = None
        if exploration is not None:
            divisor = exploration.divisor(recorded.times)[looked_at.nonzero()[:, 0]]
        return self._places(model, hidden[looked_at], divisor)

    def _log_probs(self, recorded: "_Recorded", looked: Places, sampling: Sampling) -> Tensor:
        """Log-probabilities in the order of `Trajectory.logprobs`."""
        filled = looked[recorded.filled.to(self.device)]
        tokens = at_places.token_log_prob(filled, recorded.tokens.to(self.device), sampling)
        if not bool(recorded.selected.any()):
            return tokens
        if sampling.selector in FREE:
            chosen = free_log_prob(recorded.eligible, recorded.chosen, recorded.pieces, sampling).to(self.device)
        else:
            chosen = selection_log_prob(
                looked, recorded.eligible, recorded.chosen, recorded.order, recorded.order_tokens, sampling
            )
        return torch.cat([tokens, chosen[recorded.selected.to(self.device)]])[recorded.layout.to(self.device)]

    def _divergence(self, recorded: "_Recorded", looked: Places, other: Places, sampling: Sampling) -> Tensor:
        """KL [S] of each step."""
        filled = recorded.filled.to(self.device)
        kl = at_places.divergence(looked[filled], other[filled], sampling)
        total = kl.new_zeros(len(recorded.states)).index_add(0, recorded.step_of.to(self.device), kl)
        if sampling.selector != "plackett_luce":
            return total
        return total + self._order_divergence(recorded, looked, other, sampling)

    def _order_divergence(self, recorded: "_Recorded", looked: Places, other: Places, sampling: Sampling) -> Tensor:
        """KL [S] of the draws of places, one categorical after the other along the order that was drawn."""
        at = tuple(recorded.eligible.nonzero().T.to(self.device))
        shape, order = recorded.eligible.shape, recorded.order.to(self.device)

        def scores(laws: Places) -> Tensor:
            best = at_places.largest_log_prob(laws, sampling) / sampling.position_temperature
            return best.new_full(shape, float("-inf")).index_put(at, best)

        mine = scores(looked)
        with torch.no_grad():
            theirs = scores(other)
        total = mine.new_zeros(len(mine))
        counts = recorded.chosen.sum(1).to(self.device)
        for rank in range(order.shape[1]):
            gap = (mine.log_softmax(1) - theirs.log_softmax(1)).masked_fill(mine.isneginf(), 0.0)
            total = total + (mine.softmax(1) * gap).sum(1) * (rank < counts)
            place = order[:, rank : rank + 1]
            mine, theirs = (value.scatter(1, place, float("-inf")) for value in (mine, theirs))
            done = mine.isneginf().all(1, keepdim=True)  # nothing is left to choose from
            mine, theirs = (torch.where(done, torch.zeros_like(value), value) for value in (mine, theirs))
        return total

    def hide(self, trajectory: Trajectory, hidden: NDArray[np.bool_]) -> Step:
        """See `Hides.hide`; behind its end an answer's canvas is filled with end tokens."""
        answer = trajectory.answer if trajectory.answer is not None else trajectory.tokens
        whole = np.full(trajectory.sampling.max_tokens, self.chat.end_of_turn, dtype=np.int64)
        whole[: len(answer)] = answer
        positions = np.flatnonzero(hidden)
        return Step(
            positions=positions,
            tokens=whole[positions],
            logprobs=np.full(len(positions), np.nan, dtype=np.float32),
            state=np.where(hidden, self.mask_id, whole),
            time=float(1 - hidden.mean()),
        )

    # -- training ------------------------------------------------------------------------------------------------

    def keep_reference(self) -> None:
        """See `Policy.keep_reference`."""
        super().keep_reference()
        if self.exploration is not None:
            self._reference_exploration = Exploration().to(self.device)
            self._reference_exploration.load_state_dict(self.exploration.state_dict())

    def demonstrate(self, messages: Sequence[Message], *, allow_truncation: bool = False) -> Demonstration:
        """See `Policy.demonstrate`: the prompt, and a canvas filled behind the answer with end tokens."""
        if self.canvas is None:
            raise ModelError("training a diffusion policy needs the size of its canvas", "set model.canvas")
        prompt, canvas, cut = split_demonstration(
            self.chat.demonstration(messages), self.canvas, self.chat.end_of_turn, allow_truncation=allow_truncation
        )
        self.check_length(len(prompt), len(canvas))
        return joined(prompt, canvas, truncated=cut)

    def supervised_loss(self, batch: Sequence[Demonstration], generator: torch.Generator) -> Tensor:
        """See `Policy.supervised_loss`: cross-entropy of hidden places over the share t that is hidden.

        L = E_t E_hidden (1/t) sum over hidden places of -log p(token), t uniform in (0, 1] (LLaDA, Nie et al. 2025,
        arXiv:2502.09992, eq. 3), summed over the batch; t is stratified over the batch. Where nothing is hidden the
        row adds 0: hiding one place nevertheless, at weight 1/t, would bias the mean.
        """
        targets = [[t for t, wanted in zip(d.tokens, d.is_target, strict=True) if wanted] for d in batch]
        longest = max(map(len, targets))
        canvas = torch.full((len(batch), longest), self.chat.end_of_turn, dtype=torch.long)
        present = torch.zeros((len(batch), longest), dtype=torch.bool)
        for row, tokens in enumerate(targets):
            canvas[row, : len(tokens)] = torch.tensor(tokens)
            present[row, : len(tokens)] = True
        start = torch.rand((), generator=generator, dtype=torch.float64)
        share = ((start + torch.arange(len(batch)) / len(batch)) % 1.0).clamp_min(1e-3)
        noise = torch.rand((len(batch), longest), generator=generator, dtype=torch.float64)
        hidden = present & (noise < share.unsqueeze(1))
        states = canvas.masked_fill(hidden, self.mask_id).to(self.device)
        prompts = [[t for t, wanted in zip(d.tokens, d.is_target, strict=True) if not wanted] for d in batch]
        rows = self.network.encode(prompts)
        looked = self.network.hidden(rows, states)[hidden.to(self.device)]
        weight = (1 / share)[hidden.nonzero()[:, 0]].to(self.device, torch.float32)
        log_p = at_places.token_log_prob(self._places(self.model, looked, None), canvas[hidden].to(self.device), PLAIN)
        return -(log_p * weight).sum()

    def trainable(self) -> Mapping[str, Tensor]:
        """See `Policy.trainable`; with the exploration's temperatures where they are learnt."""
        weights = dict(super().trainable())
        if self.exploration is not None:
            weights["exploration.log_temperature"] = self.exploration.log_temperature
        return weights

    def write(self, folder: Path) -> None:
        """See `PretrainedPolicy.write`."""
        super().write(folder)
        if self.exploration is not None:
            self.exploration.save(folder)


class _Recorded:
    """Recorded steps as tensors on the CPU, one row each."""

    @classmethod
    def of(cls, trajectories: Sequence[Trajectory], mask_id: int) -> "_Recorded":
        made = cls()
        sampling = trajectories[0].sampling
        distinct: dict[bytes, int] = {}
        prompts: list[list[int]] = []
        steps: list[Step] = []
        prompt_of: list[int] = []
        for trajectory in trajectories:
            key = trajectory.prompt.tobytes()
            if key not in distinct:
                distinct[key] = len(prompts)
                prompts.append(trajectory.prompt.tolist())
            for step in trajectory.steps:
                steps.append(step)
                prompt_of.append(distinct[key])
        states = np.stack([step.state for step in steps if step.state is not None])
        if len(states) != len(steps):
            raise ValueError("a step without its state cannot be scored")
        rows, places = states.shape
        made.prompts, made.prompt_of = prompts, torch.tensor(prompt_of)
        made.states = torch.from_numpy(states)
        made.times = [step.time or 0.0 for step in steps]
        counts = [len(step.positions) for step in steps]
        made.step_of = torch.arange(rows).repeat_interleave(torch.tensor(counts))
        positions = torch.from_numpy(np.concatenate([step.positions for step in steps]))
        made.tokens = torch.from_numpy(np.concatenate([step.tokens for step in steps]))
        made.chosen = torch.zeros((rows, places), dtype=torch.bool)
        made.chosen[made.step_of, positions] = True
        made.selected = torch.tensor([step.selection is not None for step in steps])
        made.eligible, made.pieces = made.chosen, []
        if bool(made.selected.any()):
            by_time = {piece.time: piece for piece in slices(sampling)}
            made.pieces = [by_time[time] for time in made.times]
            block = torch.zeros((rows, places), dtype=torch.bool)
            for row, piece in enumerate(made.pieces):
                block[row, piece.start : piece.end] = True
            made.eligible = (made.states == mask_id) & block
        looked_at = made.chosen if sampling.selector in FREE else made.eligible
        made.looked_at = looked_at
        index = torch.full((rows, places), -1, dtype=torch.long)
        index[looked_at] = torch.arange(int(looked_at.sum()))
        made.filled = index[made.step_of, positions]
        if bool((made.filled < 0).any()):
            raise ValueError("a recorded step fills a place that was not hidden in its state")
        width = max(counts)
        column = torch.cat([torch.arange(count) for count in counts])
        first = torch.tensor([int(step.positions[:1].sum()) for step in steps]).unsqueeze(1).expand(-1, width)
        made.order = first.clone().index_put((made.step_of, column), positions)
        first = torch.tensor([int(step.tokens[:1].sum()) for step in steps]).unsqueeze(1).expand(-1, width)
        made.order_tokens = first.clone().index_put((made.step_of, column), made.tokens)
        # Terms stand step by step, tokens first: where each is found in [all tokens, all selections].
        layout: list[int] = []
        token, selection = 0, len(made.tokens)
        for step, count in zip(steps, counts, strict=True):
            layout += range(token, token + count)
            token += count
            if step.selection is not None:
                layout.append(selection)
                selection += 1
        made.layout = torch.tensor(layout)
        return made

    prompts: list[list[int]]  # distinct
    prompt_of: Tensor  # [S]
    states: Tensor  # [S, L]
    times: list[float]  # [S]
    pieces: list[Slice]  # [S], where a choice of places has a term
    eligible: Tensor  # [S, L] bool: places that could have been filled
    looked_at: Tensor  # [S, L] bool: places whose laws are needed
    chosen: Tensor  # [S, L] bool
    order: Tensor  # [S, n] filled places in the order drawn, the first repeated where there are fewer
    order_tokens: Tensor  # [S, n]
    selected: Tensor  # [S] bool: the step has a term for its choice of places
    filled: Tensor  # [N] index among the looked-at places
    step_of: Tensor  # [N]
    tokens: Tensor  # [N]
    layout: Tensor  # [terms]


def _mask_id(model: nn.Module, tokenizer: Any, source: str) -> int:
    found = tokenizer.mask_token_id
    if found is None:
        found = getattr(model.config, "mask_token_id", None)
    if found is None:
        raise ModelError(
            f"neither the tokenizer nor the config of {source} names a mask token",
            "set mask_token in its tokenizer_config.json (for a causal model, add one: tokenizer.add_special_tokens("
            '{"mask_token": "<|mask|>"}), then resize the embeddings and save both)',
        )
    return int(found)
