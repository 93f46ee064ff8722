"""The masked-diffusion policy: fills hidden places of a canvas in steps, and scores each step by itself.

Letters in shapes: S scored steps, L places, N chosen tokens.

A trajectory is the sequence of its steps; each step's probability is that of its tokens, under `token_law`, times that
of the choice of its places, where the model has a say in it (`selectors`). Both are exact.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from plumbline.errors import ModelError
from plumbline.policies import places as at_places
from plumbline.policies.canvas import joined, read_off, split_demonstration
from plumbline.policies.chunks import Chunk
from plumbline.policies.draws import Noise, uniforms
from plumbline.policies.exploration import FILE as EXPLORATION
from plumbline.policies.exploration import Exploration
from plumbline.policies.masked.checkpoints import LLADA_NAMES, config_of
from plumbline.policies.masked.network import Network, Prompts
from plumbline.policies.masked.options import MaskedModel, MaskedSampling
from plumbline.policies.masked.probe import check_model
from plumbline.policies.masked.recorded import Recorded
from plumbline.policies.masked.sampler import Look, denoise
from plumbline.policies.masked.scorer import log_probs, step_divergence
from plumbline.policies.places import Places
from plumbline.policies.policy import Demonstration, Terms, common_law
from plumbline.policies.pretrained.loading import Loaded, load
from plumbline.policies.pretrained.policy import PretrainedPolicy
from plumbline.policies.saved import saved_settings
from plumbline.records import Message, Request, Sampling, Step, Trajectory

KEPT = 0.1
"""What the keys and values of a prompt's token cost, against all that a canvas's token leaves for the backward pass.

Measured on a Llama with as many key as query heads: 0.09; fewer key heads cost less.
"""
PLAIN = Sampling()
"""The law of supervised training."""


class MaskedPolicy(PretrainedPolicy):
    """A bidirectional model with a mask token as a `Policy`. Open one with `MaskedPolicy.open`."""

    family = "masked"
    stepwise = True

    def __init__(self, loaded: Loaded, section: MaskedModel, source: str) -> None:
        super().__init__(loaded)
        self.mask_id = _mask_id(self.model, self.chat.tokenizer, source)
        saved = {**(getattr(self.model.config, "plumbline", None) or {}), **saved_settings(source)}
        self.canvas: int | None = section.canvas or saved.get("canvas")
        self.rows_at_once = section.rows_at_once or (64 if self.device.type == "cpu" else 256)
        shifted = bool(getattr(self.model.config, "predicts_next", False))
        self.network = Network(self.model, section.attention, shifted=shifted)
        check_model(self.network, source)
        if not section.explore and (Path(source) / EXPLORATION).is_file():
            raise ModelError(
                f"{source} was trained with learnt temperatures, which model.explore: false would leave out of its law",
                f"set model.explore to true, or delete {EXPLORATION} there",
            )
        self.exploration = Exploration.read(source).to(self.device) if section.explore else None
        self._reference_exploration: Exploration | None = None
        self.model.config.plumbline = {"family": self.family, "canvas": self.canvas, "attention": section.attention}

    @classmethod
    def open(cls, section: MaskedModel, source: str, seed: int = 0) -> Self:
        """Load a causal model, or a checkpoint in the style of LLaDA or Dream.

        Raises:
            ModelError: it cannot be loaded, has no mask token, stays causal under any mask, or computes its logits
                otherwise than by a linear head.
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

    def sample(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Trajectory]]:
        """See `Sampler.sample`. Prompts are denoised in chunks of `rows_at_once` rows."""
        end, stops = self.chat.end_of_turn, self.chat.stop_ids
        for chunk in self.chunks(requests, MaskedSampling, self.canvas):
            prompt_of = chunk.prompt_of.tolist()
            for row, canvas, steps in denoise(self._look_at(chunk), chunk, self.mask_id, stops, end):
                prompt = chunk.prompts[prompt_of[row]]
                made = read_off(canvas, steps, prompt, chunk.sampling, self.chat, self.version)
                yield chunk.requests[row], made

    @torch.no_grad()
    def _look_at(self, chunk: Chunk[MaskedSampling]) -> Look:
        """The model on a chunk's prompts, each of them encoded once."""
        encoded = self.network.encode(chunk.prompts)
        prompt_of = chunk.prompt_of
        everyone = torch.arange(len(prompt_of))
        rows = encoded.rows(prompt_of.to(self.device))

        def look(active: Tensor, canvas: Tensor, which: Tensor, time: float) -> Places:
            mine = rows if torch.equal(active, everyone) else encoded.rows(prompt_of[active].to(self.device))
            hidden = self.network.hidden(mine, canvas.to(self.device))[which.to(self.device)]
            return self._places(self.model, hidden, self._divisor(self.exploration, [time], len(hidden)))

        return look

    def _places(self, model: Any, hidden: Tensor, divisor: Tensor | None) -> Places:
        return Places(model.get_output_embeddings(), self.mask_id, hidden, divisor)

    @staticmethod
    def _divisor(exploration: Exploration | None, times: Sequence[float], count: int) -> Tensor | None:
        """Divisors [count] of looked-at places that all belong to one time."""
        return None if exploration is None else exploration.divisor(times).expand(count)

    # -- scoring -------------------------------------------------------------------------------------------------

    def batches(self, trajectories: Sequence[Trajectory], tokens_per_pass: int) -> list[list[int]]:
        """See `Policy.batches`: in order, as many as fit. Under prefix attention a prompt is encoded once for all of
        its steps that stand together, and what each of them keeps of it counts `KEPT`.
        """
        parts: list[list[int]] = []
        room, previous = 0, b""
        for index, trajectory in enumerate(trajectories):
            places, prompt, key = trajectory.sampling.max_tokens, len(trajectory.prompt), trajectory.prompt.tobytes()
            full = self.network.attention == "full"
            cost = len(trajectory.steps) * (places + (prompt if full else math.ceil(KEPT * prompt)))
            once = 0 if full else prompt
            if not parts or cost + (once if key != previous else 0) > room:
                parts.append([])
                room, previous = tokens_per_pass, b""
            parts[-1].append(index)
            room, previous = room - cost - (once if key != previous else 0), key
        return parts

    def score(self, trajectories: Sequence[Trajectory], *, reference: bool = False, divergence: bool = False) -> Terms:
        """See `Policy.score`. The divergence of a step is that of its filled places and of an ordered Plackett-Luce
        choice; the other selectors' choices are left out of it.
        """
        sampling = MaskedSampling.of(common_law(trajectories))
        recorded = Recorded.of(trajectories, self.mask_id)
        if reference:
            with torch.no_grad(), self.as_reference() as model:
                looked = self._look(recorded, model, self._reference_exploration)
                return Terms.of(trajectories, log_probs(recorded, looked, sampling))
        looked = self._look(recorded, self.model, self.exploration)
        kl = None
        if divergence:
            with torch.no_grad(), self.as_reference() as model:
                other = self._look(recorded, model, self._reference_exploration)
            kl = step_divergence(recorded, looked, other, sampling)
        return Terms.of(trajectories, log_probs(recorded, looked, sampling), kl)

    def _look(self, recorded: Recorded, model: Any, exploration: Exploration | None) -> Places:
        """The laws of all places that any recorded step could have filled, step by step."""
        prompts: Prompts = self.network.encode(recorded.prompts, model).rows(recorded.prompt_of.to(self.device))
        hidden = self.network.hidden(prompts, recorded.states.to(self.device), model)
        looked_at = recorded.looked_at.to(self.device)
        divisor = None
        if exploration is not None:
            divisor = exploration.divisor(recorded.times)[looked_at.nonzero()[:, 0]]
        return self._places(model, hidden[looked_at], divisor)

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

    def supervised_loss(self, batch: Sequence[Demonstration], noise: Sequence[Noise]) -> Tensor:
        """See `Policy.supervised_loss`: cross-entropy of hidden places over the share t that is hidden.

        L = E_t E_hidden (1/t) sum over hidden places of -log p(token), t uniform in (0, 1] (LLaDA, Nie et al. 2025,
        arXiv:2502.09992, eq. 3), summed over the batch; t is each demonstration's `Noise.time`. Where nothing is hidden
        the row adds 0: hiding one place nevertheless, at weight 1/t, would bias the mean.
        """
        targets = [[t for t, wanted in zip(d.tokens, d.is_target, strict=True) if wanted] for d in batch]
        longest = max(map(len, targets))
        canvas = torch.full((len(batch), longest), self.chat.end_of_turn, dtype=torch.long)
        present = torch.zeros((len(batch), longest), dtype=torch.bool)
        for row, tokens in enumerate(targets):
            canvas[row, : len(tokens)] = torch.tensor(tokens)
            present[row, : len(tokens)] = True
        share = torch.tensor([each.time for each in noise], dtype=torch.float64).clamp_min(1e-3)
        numbers = uniforms([each.generator for each in noise], longest)
        hidden = present & (numbers < share.unsqueeze(1))
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
    rows = model.get_input_embeddings().weight.shape[0]  # type: ignore[operator]
    if not 0 <= int(found) < rows:
        raise ModelError(
            f"the mask token of {source} is {found}, but the model has embeddings for {rows} tokens",
            "correct mask_token_id in its config.json, or resize the model's embeddings",
        )
    return int(found)
