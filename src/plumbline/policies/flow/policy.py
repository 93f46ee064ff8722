"""The discrete-flow policy: text out of noise in a few steps, each place's every stay and jump with its probability.

Letters in shapes: S scored steps (rows), L places, N = S L.

The canvas has a fixed number of places behind the prompt. The prompt is never changed. An answer shorter than the
canvas is followed by end tokens up to its last place, in training as in sampling: the network then learns how long
answers are, and nothing depends on tails that no record ever showed it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from plumbline.errors import ModelError
from plumbline.policies.canvas import joined, read_off, split_demonstration
from plumbline.policies.chunks import Chunk
from plumbline.policies.draws import Noise, uniforms
from plumbline.policies.exploration import Exploration
from plumbline.policies.flow import kernels
from plumbline.policies.flow.network import FlowNetwork, Prefix
from plumbline.policies.flow.options import FlowModel, FlowSampling
from plumbline.policies.flow.sampler import Flowed, flow
from plumbline.policies.flow.schedule import Tick, kappa, tick, ticks
from plumbline.policies.places import Places
from plumbline.policies.policy import Demonstration, Terms, common_law
from plumbline.policies.pretrained.chat import Chat
from plumbline.policies.pretrained.loading import Loaded, choose_device, choose_dtype, load_tokenizer
from plumbline.policies.pretrained.policy import PretrainedPolicy
from plumbline.policies.pretrained.quiet import quieten
from plumbline.policies.token_law import restrict
from plumbline.records import Message, Request, Sampling, Trajectory

LATEST = 1 - 1e-3
"""The last time that training looks at; the path's rate is infinite at 1."""


class FlowPolicy(PretrainedPolicy):
    """A flow network as a `Policy`. Open one with `FlowPolicy.open`."""

    family = "flow"
    stepwise = True

    def __init__(self, loaded: Loaded, section: FlowModel, source: str) -> None:
        super().__init__(loaded)
        self.network: FlowNetwork = self.model
        config = self.network.config
        self.network.config = replace(config, canvas=section.canvas or config.canvas, attention=section.attention)
        self.mask_id = config.vocabulary if config.source == "mask" else None
        self.rows_at_once = section.rows_at_once or (64 if self.device.type == "cpu" else 256)
        self.exploration = Exploration.read(source).to(self.device) if section.explore else None
        self._reference_exploration: Exploration | None = None

    @classmethod
    def open(cls, section: FlowModel, source: str, seed: int = 0) -> Self:  # noqa: ARG003 - nothing is drawn here
        """Load a flow model's directory.

        Raises:
            ModelError: there is none, or its weights do not fit.
        """
        quieten()
        if section.threads is not None:
            torch.set_num_threads(section.threads)
        network = FlowNetwork.from_pretrained(source)
        device = choose_device(section)
        network.to(device=device, dtype=choose_dtype(section, device)).eval()
        tokenizer = load_tokenizer(source, section)
        if len(tokenizer) > network.config.vocabulary:
            raise ModelError(
                f"the tokenizer of {source} has {len(tokenizer)} tokens, the network {network.config.vocabulary}",
                "use the tokenizer that was saved with this model",
            )
        chat = Chat(tokenizer, (), section.chat_template)
        context = min(section.context or network.config.context, network.config.context)
        return cls(Loaded(model=network, adapter=None, chat=chat, context=context), section, source)

    @property
    def engine(self) -> Mapping[str, str]:
        """See `Policy.engine`."""
        config = self.network.config
        return {
            "family": self.family,
            "attention": config.attention,
            "source": config.source,
            "step_conditioned": str(config.step_conditioned),
            "exploration": "learnt" if self.exploration is not None else "fixed",
            **self.facts(),
        }

    def exact(self, sampling: Sampling) -> bool:  # noqa: ARG002 - both kernels have their probability
        """See `Policy.exact`."""
        return True

    # -- sampling ------------------------------------------------------------------------------------------------

    def sample(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Trajectory]]:
        """See `Sampler.sample`. The noise that a canvas begins with does not depend on the weights."""
        for chunk in self.chunks(requests, FlowSampling, self.network.config.canvas):
            done = self._flow(chunk)
            rows = zip(chunk.requests, chunk.prompt_of.tolist(), done.canvas, done.steps, strict=True)
            for request, prompt, canvas, steps in rows:
                yield request, read_off(canvas, steps, chunk.prompts[prompt], chunk.sampling, self.chat, self.version)

    @torch.no_grad()
    def _flow(self, chunk: Chunk[FlowSampling]) -> Flowed:
        own, rows = chunk.generators(), len(chunk.requests)
        prefix = self.network.encode(chunk.prompts).rows(chunk.prompt_of.to(self.device))

        def look(canvas: Tensor, step: Tick) -> Places:
            times, widths = (torch.full((rows,), value) for value in (step.time, step.until - step.time))
            return self._places(self.network, self.exploration, prefix, canvas, times, widths)

        start = torch.stack([self._noise(chunk.sampling.max_tokens, each) for each in own])
        return flow(look, start, chunk.sampling, self.network.config.exponent, own)

    def _noise(self, places: int, generator: torch.Generator) -> Tensor:
        """What an empty canvas holds, [L]."""
        if self.mask_id is not None:
            return torch.full((places,), self.mask_id, dtype=torch.long)
        return torch.randint(0, self.network.config.vocabulary, (places,), generator=generator)

    def _places(
        self,
        network: FlowNetwork,
        exploration: Exploration | None,
        prefix: Prefix,
        canvas: Tensor,
        times: Tensor,
        widths: Tensor,
    ) -> Places:
        """The laws of all places of canvases [R, L], row by row."""
        hidden = network.places(
            prefix, canvas.to(self.device), times.to(self.device).float(), widths.to(self.device).float()
        )
        divisor = None
        if exploration is not None:
            divisor = exploration.divisor(times).repeat_interleave(canvas.shape[1])
        return Places(network.head, self.mask_id, hidden.flatten(0, 1), divisor)

    # -- scoring -------------------------------------------------------------------------------------------------

    def batches(self, trajectories: Sequence[Trajectory], tokens_per_pass: int) -> list[list[int]]:
        """See `Policy.batches`: in order, as many as fit."""
        parts: list[list[int]] = []
        room = 0
        for index, trajectory in enumerate(trajectories):
            cost = len(trajectory.steps) * (trajectory.sampling.max_tokens + len(trajectory.prompt))
            if not parts or cost > room:
                parts.append([])
                room = tokens_per_pass
            parts[-1].append(index)
            room -= cost
        return parts

    def score(self, trajectories: Sequence[Trajectory], *, reference: bool = False, divergence: bool = False) -> Terms:
        """See `Policy.score`."""
        sampling = FlowSampling.of(common_law(trajectories))
        if reference:
            with torch.no_grad(), self.as_reference() as network:
                places = self._look(trajectories, network, self._reference_exploration)
                return Terms.of(trajectories, self._log_probs(trajectories, places, sampling))
        places = self._look(trajectories, self.network, self.exploration)
        kl = None
        if divergence:
            with torch.no_grad(), self.as_reference() as network:
                other = self._look(trajectories, network, self._reference_exploration)
            kl = self._divergence(trajectories, places, other, sampling)
        return Terms.of(trajectories, self._log_probs(trajectories, places, sampling), kl)

    def _look(
        self, trajectories: Sequence[Trajectory], network: FlowNetwork, exploration: Exploration | None
    ) -> Places:
        distinct: dict[bytes, int] = {}
        prompts: list[list[int]] = []
        index: list[int] = []
        for trajectory in trajectories:
            key = trajectory.prompt.tobytes()
            if key not in distinct:
                distinct[key] = len(prompts)
                prompts.append(trajectory.prompt.tolist())
            index += [distinct[key]] * len(trajectory.steps)
        steps = [step for trajectory in trajectories for step in trajectory.steps]
        if any(step.state is None or step.time is None or step.until is None for step in steps):
            raise ValueError("a step without its state and times cannot be scored")
        prefix = network.encode(prompts).rows(torch.tensor(index, device=self.device))
        states = torch.from_numpy(np.stack([step.state for step in steps if step.state is not None]))
        times = torch.tensor([step.time for step in steps], dtype=torch.float64)
        widths = torch.tensor([step.until for step in steps], dtype=torch.float64) - times
        return self._places(network, exploration, prefix, states, times, widths)

    def _by_tick(self, trajectories: Sequence[Trajectory]) -> dict[Tick, Tensor]:
        """Indices [N'] of the places that belong to each step of the clock."""
        found: dict[Tick, list[int]] = {}
        sampling = FlowSampling.of(trajectories[0].sampling)
        ends = {piece.time: piece for piece in ticks(sampling, self.network.config.exponent)}
        start = 0
        for trajectory in trajectories:
            for step in trajectory.steps:
                assert step.time is not None
                assert step.until is not None
                piece = ends.get(step.time) or tick(step.time, step.until, self.network.config.exponent)
                found.setdefault(piece, []).extend(range(start, start + len(step.tokens)))
                start += len(step.tokens)
        return {piece: torch.tensor(index, device=self.device) for piece, index in found.items()}

    def _log_probs(self, trajectories: Sequence[Trajectory], places: Places, sampling: FlowSampling) -> Tensor:
        now, following = self._moves(trajectories)
        result = torch.zeros(len(now), device=self.device)
        for step, index in self._by_tick(trajectories).items():

            def work(part: Places, current: Tensor, after: Tensor, step: Tick = step) -> Tensor:
                logits = part.logits()
                # A jump's token was drawn, so it is in the support whatever a rounding says; a stay may well be one
                # of a token that the filters would not draw, and must not be let in.
                drawn = after if step.last else torch.where(after == current, logits.argmax(-1), after)
                restricted = restrict(logits, sampling, keep=drawn)
                return kernels.log_prob(restricted, current, after, sampling.kernel, step)

            result = result.index_put((index,), places[index].each(work, now[index], following[index]))
        return result

    def _divergence(
        self, trajectories: Sequence[Trajectory], places: Places, other: Places, sampling: FlowSampling
    ) -> Tensor:
        """KL [S] of each step, summed over its places."""
        now, _ = self._moves(trajectories)
        per_place = torch.zeros(len(now), device=self.device)
        for step, index in self._by_tick(trajectories).items():

            def work(part: Places, hidden: Tensor, divisor: Tensor, current: Tensor, step: Tick = step) -> Tensor:
                mine = restrict(part.logits(), sampling)
                with torch.no_grad():
                    theirs = replace(other, hidden=hidden, divisor=divisor).logits().float() / sampling.temperature
                    theirs = theirs.masked_fill(mine.isneginf(), float("-inf"))
                return kernels.divergence(mine, theirs, current, sampling.kernel, step)

            picked = other[index]
            ones = torch.ones(len(picked), device=self.device)
            divisor = ones if picked.divisor is None else picked.divisor
            values = places[index].each(work, picked.hidden, divisor, now[index])
            per_place = per_place.index_put((index,), values)
        return per_place.view(-1, sampling.max_tokens).sum(1)

    def _moves(self, trajectories: Sequence[Trajectory]) -> tuple[Tensor, Tensor]:
        """Present and next token [N] of every place of every step."""
        steps = [step for trajectory in trajectories for step in trajectory.steps]
        now = np.concatenate([step.state for step in steps if step.state is not None])
        after = np.concatenate([step.tokens for step in steps])
        return torch.from_numpy(now).to(self.device), torch.from_numpy(after).to(self.device)

    # -- training ------------------------------------------------------------------------------------------------

    def keep_reference(self) -> None:
        """See `Policy.keep_reference`."""
        super().keep_reference()
        if self.exploration is not None:
            self._reference_exploration = Exploration().to(self.device)
            self._reference_exploration.load_state_dict(self.exploration.state_dict())

    def demonstrate(self, messages: Sequence[Message], *, allow_truncation: bool = False) -> Demonstration:
        """See `Policy.demonstrate`: the prompt, and a canvas filled behind the answer with end tokens."""
        canvas = self.network.config.canvas
        if canvas is None:
            raise ModelError("training a flow policy needs the size of its canvas", "set model.canvas")
        prompt, filled, cut = split_demonstration(
            self.chat.demonstration(messages), canvas, self.chat.end_of_turn, allow_truncation=allow_truncation
        )
        self.check_length(len(prompt), len(filled))
        return joined(prompt, filled, truncated=cut)

    def supervised_loss(self, batch: Sequence[Demonstration], noise: Sequence[Noise]) -> Tensor:
        """See `Policy.supervised_loss`: the generalised KL of the path (`kernels.path_loss`) at `Noise.time`."""
        canvas = torch.tensor([[t for t, w in zip(d.tokens, d.is_target, strict=True) if w] for d in batch])
        prompts = [[t for t, w in zip(d.tokens, d.is_target, strict=True) if not w] for d in batch]
        exponent = self.network.config.exponent
        times = torch.tensor([each.time for each in noise], dtype=torch.float64) * LATEST
        stands = torch.tensor([kappa(float(time), exponent) for time in times], dtype=torch.float64)
        own = [each.generator for each in noise]
        keep = uniforms(own, canvas.shape[1]) < stands.unsqueeze(1)
        noisy = torch.where(keep, canvas, torch.stack([self._noise(canvas.shape[1], each) for each in own]))
        rate = exponent * times.clamp_min(1e-12) ** (exponent - 1) / (1 - stands)
        widths = torch.zeros(len(batch))
        prefix = self.network.encode(prompts)
        places = self._places(self.network, None, prefix, noisy, times, widths)

        def work(part: Places, now: Tensor, clean: Tensor, pace: Tensor) -> Tensor:
            return kernels.path_loss(part.logits().float().log_softmax(-1), now, clean, pace)

        flat = (noisy.flatten(), canvas.flatten(), rate.float().repeat_interleave(canvas.shape[1]))
        return places.each(work, *(value.to(self.device) for value in flat)).sum()

    def trainable(self) -> Mapping[str, Tensor]:
        """See `Policy.trainable`; with the exploration's temperatures where they are learnt."""
        weights = dict(super().trainable())
        if self.exploration is not None:
            weights["exploration.log_temperature"] = self.exploration.log_temperature
        return weights

    def write(self, folder: Any) -> None:
        """See `PretrainedPolicy.write`."""
        super().write(folder)
        if self.exploration is not None:
            self.exploration.save(folder)
