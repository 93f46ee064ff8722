"""The discrete-flow policy: text out of noise in a few steps, each place's every stay and jump with
its probability.

Letters in shapes: S scored steps (rows), L places, N = S L.

The canvas has a fixed number of places behind the prompt. The prompt is never changed. An answer
shorter than the canvas is followed by end tokens up to its last place, in training as in sampling:
the network then learns how long answers are, and nothing depends on tails that no record ever
showed it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from plumbline.errors import ModelError
from plumbline.policies.canvas import (
    DenoisingPolicy,
    LearnedTemperature,
    distinct_prompts,
    split_demonstration,
)
from plumbline.policies.flow.network import MODEL_TYPE, FlowNetwork, Prefix, TimedBackbone
from plumbline.policies.flow.options import FlowModel, FlowSampling
from plumbline.policies.flow.sampler import (
    ClockStep,
    divergence,
    flow,
    kappa,
    log_prob,
    path_loss,
    tick,
    ticks,
)
from plumbline.policies.policy import Demonstration
from plumbline.policies.pretrained.causal_model import (
    Loaded,
    check_finite,
    checkpoint_layers,
    choose_device,
    choose_dtype,
    load,
    load_tokenizer,
    open_chat,
    quieten_transformers,
)
from plumbline.policies.sampling_distribution import Noise, restrict, uniforms
from plumbline.policies.token_logprobs import TokenDistributions
from plumbline.records import Draws, Request, Trajectory
from plumbline.storage import read_object

LATEST = 1 - 1e-3
"""The last time that training looks at; the path's rate is infinite at 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """Recorded steps: what each place held before and after, and when."""

    prompts: list[list[int]]  # distinct
    prompt_of: Tensor  # [S]
    states: Tensor  # [S, L], on the CPU
    now: Tensor  # [N]
    following: Tensor  # [N]
    times: Tensor  # [S], float64
    widths: Tensor  # [S], float64
    of_tick: dict[ClockStep, Tensor]  # of each step of the clock the indices [N'] of its places


class FlowPolicy(DenoisingPolicy):
    """A flow network as a `Policy`. Open one with `FlowPolicy.open`."""

    family = "flow"
    sampling_type = FlowSampling

    def __init__(self, loaded: Loaded, section: FlowModel, source: str) -> None:
        super().__init__(loaded, section, source)
        self.network: FlowNetwork = self.model
        config = self.network.config
        self.canvas = section.canvas or config.canvas
        self.network.config = replace(config, canvas=self.canvas, attention=section.attention)
        self.mask_id = config.vocabulary if config.source == "mask" else None

    @classmethod
    def open(cls, section: FlowModel, source: str, seed: int = 0) -> Self:
        """Load a flow model's directory, or a causal model as a flow (see `backbone`).

        Raises:
            ModelError: there is none, or its weights do not fit; a causal model of another kind of
                layers.
        """
        config = Path(source) / "config.json"
        if config.is_file() and read_object(config).get("model_type") == MODEL_TYPE:
            loaded = cls._network(section, source)
        else:
            loaded = load(section, source, seed)
            loaded = replace(
                loaded, model=TimedBackbone.of(loaded.model, section, source, loaded.context, seed)
            )
        if section.gradient_checkpointing is True:
            checkpoint_layers(loaded.model)
        return cls(loaded, section, source)

    @staticmethod
    def _network(section: FlowModel, source: str) -> Loaded:
        if section.lora is not None or section.quantize is not None:
            raise ModelError(
                f"{source} is a flow network, whose weights are all trained, and in 16 or 32 bits",
                "leave out model.lora and model.quantize, or give a causal model",
            )
        quieten_transformers()
        if section.threads is not None:
            torch.set_num_threads(section.threads)
        network = FlowNetwork.from_pretrained(source)
        device = choose_device(section)
        network.to(device=device, dtype=choose_dtype(section, device)).eval()
        check_finite(network, source)
        chat = open_chat(
            load_tokenizer(source, section), section, source, network.config.vocabulary
        )
        context = min(section.context or network.config.context, network.config.context)
        return Loaded(model=network, adapter=None, chat=chat, context=context)

    @property
    def engine(self) -> Mapping[str, str]:
        """See `Policy.engine`."""
        network, config = self.network, self.network.config
        return {
            "family": self.family,
            "attention": config.attention,
            "source": config.source,
            "step_conditioned": str(config.step_conditioned),
            **(
                {"backbone": network.backbone.config.model_type}
                if isinstance(network, TimedBackbone)
                else {}
            ),
            **self.facts(),
        }

    # -- sampling ----------------------------------------------------------------------------------

    def draw(self, requests: Sequence[Request]) -> Draws:
        """See `Sampler.sample`. The noise that a canvas begins with does not depend on the
        weights."""
        for chunk in self.chunks(requests, FlowSampling, self.canvas):
            own, rows = chunk.generators(), len(chunk.requests)
            with torch.no_grad():
                prefix = self.network.encode(chunk.prompts).rows(chunk.prompt_of.to(self.device))

            def read_distributions(
                canvas: Tensor, step: ClockStep, prefix: Prefix = prefix, rows: int = rows
            ) -> TokenDistributions:
                times, widths = (
                    torch.full((rows,), value) for value in (step.time, step.until - step.time)
                )
                return self._distributions(
                    self.network, prefix, canvas, (times, widths), self.learned_temperature
                )

            start = torch.stack([self._noise(chunk.sampling.max_tokens, each) for each in own])
            drawn = zip(
                *flow(read_distributions, start, chunk, self.network.config.exponent, own),
                strict=True,
            )
            for row, (canvas, steps) in enumerate(drawn):
                yield self.finish_trajectory(chunk, row, canvas, steps)

    def _noise(self, places: int, generator: torch.Generator) -> Tensor:
        """What an empty canvas holds, [L]."""
        if self.mask_id is not None:
            return torch.full((places,), self.mask_id, dtype=torch.long)
        return torch.randint(0, self.network.config.vocabulary, (places,), generator=generator)

    def _distributions(
        self,
        network: FlowNetwork,
        prefix: Prefix,
        canvas: Tensor,
        clock: tuple[Tensor, Tensor],
        learned_temperature: LearnedTemperature | None = None,
    ) -> TokenDistributions:
        """The distributions of all places of canvases [R, L], row by row, each in a step that
        begins and takes `clock` [R]."""
        times, widths = clock
        hidden = network.hidden_states(
            prefix,
            canvas.to(self.device),
            times.to(self.device).float(),
            widths.to(self.device).float(),
        )
        divisor = (
            None
            if learned_temperature is None
            else learned_temperature.divisor(times).repeat_interleave(canvas.shape[1])
        )
        return TokenDistributions(network.head, self.mask_id, hidden.flatten(0, 1), divisor)

    # -- scoring -----------------------------------------------------------------------------------

    def record(self, trajectories: Sequence[Trajectory], sampling: FlowSampling) -> Moves:
        """See `CanvasPolicy.record`."""
        prompts, prompt_of = distinct_prompts(trajectories)
        known = {piece.time: piece for piece in ticks(sampling, self.network.config.exponent)}
        states, clock = [], []
        of_tick: dict[ClockStep, list[int]] = {}
        steps = [step for trajectory in trajectories for step in trajectory.transitions]
        start = 0
        for step in steps:
            if step.state is None or step.time is None or step.until is None:
                raise ValueError("a step without its state and times cannot be scored")
            states.append(step.state)
            clock.append((step.time, step.until))
            piece = known.get(step.time) or tick(
                step.time, step.until, self.network.config.exponent
            )
            of_tick.setdefault(piece, []).extend(range(start, start + len(step.tokens)))
            start += len(step.tokens)
        state = torch.from_numpy(np.stack(states))
        times, until = torch.tensor(clock, dtype=torch.float64).unbind(1)
        return Moves(
            prompts=prompts,
            prompt_of=torch.tensor(prompt_of),
            states=state,
            now=state.flatten().to(self.device),
            following=torch.from_numpy(np.concatenate([step.tokens for step in steps])).to(
                self.device
            ),
            times=times,
            widths=until - times,
            of_tick={
                piece: torch.tensor(index, device=self.device) for piece, index in of_tick.items()
            },
        )

    def distributions(
        self, recorded: Moves, model: FlowNetwork, learned_temperature: LearnedTemperature | None
    ) -> TokenDistributions:
        """See `CanvasPolicy.distributions`."""
        prefix = model.encode(recorded.prompts).rows(recorded.prompt_of.to(self.device))
        return self._distributions(
            model, prefix, recorded.states, (recorded.times, recorded.widths), learned_temperature
        )

    def log_probs(
        self, recorded: Moves, distributions: TokenDistributions, sampling: FlowSampling
    ) -> Tensor:
        """See `CanvasPolicy.log_probs`."""
        result = torch.zeros_like(
            recorded.now, dtype=torch.promote_types(distributions.hidden.dtype, torch.float32)
        )
        for step, index in recorded.of_tick.items():

            def work(
                part: TokenDistributions, current: Tensor, after: Tensor, step: ClockStep = step
            ) -> Tensor:
                logits = part.logits()
                # A jump's token was drawn, so it is in the support whatever a rounding says; a stay
                # may well be one of a token that the filters would not draw, and must not be let
                # in.
                drawn = (
                    after if step.last else torch.where(after == current, logits.argmax(-1), after)
                )
                restricted = restrict(logits, sampling, keep=drawn)
                return log_prob(restricted, current, after, sampling.kernel, step)

            values = distributions[index].map_slices(
                work, recorded.now[index], recorded.following[index]
            )
            result = result.index_put((index,), values)
        return result

    def step_divergence(
        self,
        recorded: Moves,
        distributions: TokenDistributions,
        other: TokenDistributions,
        sampling: FlowSampling,
    ) -> Tensor:
        """KL [S] of each step, summed over its places."""
        per_place = torch.zeros_like(
            recorded.now, dtype=torch.promote_types(distributions.hidden.dtype, torch.float32)
        )
        for step, index in recorded.of_tick.items():

            def work(
                mine: Tensor, theirs: Tensor, current: Tensor, step: ClockStep = step
            ) -> Tensor:
                return divergence(mine, theirs, current, sampling.kernel, step)

            values = distributions[index].compare_slices(
                other[index], sampling, work, recorded.now[index]
            )
            per_place = per_place.index_put((index,), values)
        return per_place.view(-1, sampling.max_tokens).sum(1)

    # -- training ----------------------------------------------------------------------------------

    def keep_reference(self) -> None:
        """See `Policy.keep_reference`; beside an adapter, of which a copy is kept, the conditioning
        is another."""
        super().keep_reference()
        if self.adapter is not None:
            self._reference_clock = {
                name: weight.detach().clone() for name, weight in self._clock().items()
            }

    @contextmanager
    def as_reference(self) -> Iterator[Any]:
        """See `PretrainedPolicy.as_reference`."""
        with super().as_reference() as model:
            mine = self._clock() if self.adapter is not None else {}
            kept = {name: weight.data for name, weight in mine.items()}
            for name, weight in mine.items():
                weight.data = self._reference_clock[name]
            try:
                yield model
            finally:
                for name, weight in mine.items():
                    weight.data = kept[name]

    def _clock(self) -> dict[str, Parameter]:
        assert isinstance(self.network, TimedBackbone)
        return self.network.clock()

    def write(self, folder: Path) -> None:
        """See `PretrainedPolicy.write`."""
        super().write(folder)
        if isinstance(self.network, TimedBackbone):
            self.network.save_clock(folder)

    def supervised_loss(self, batch: Sequence[Demonstration], noise: Sequence[Noise]) -> Tensor:
        """See `Policy.supervised_loss`: the generalised KL of the path (`path_loss`) at
        `Noise.time`."""
        prompts, canvases = zip(*map(split_demonstration, batch), strict=True)
        canvas = torch.tensor(canvases)
        exponent = self.network.config.exponent
        times = torch.tensor([each.time for each in noise], dtype=torch.float64) * LATEST
        stands = torch.tensor([kappa(float(time), exponent) for time in times], dtype=torch.float64)
        own = [each.generator for each in noise]
        keep = uniforms(own, canvas.shape[1]) < stands.unsqueeze(1)
        noisy = torch.where(
            keep, canvas, torch.stack([self._noise(canvas.shape[1], each) for each in own])
        )
        rate = exponent * times.clamp_min(1e-12) ** (exponent - 1) / (1 - stands)
        widths = torch.zeros(len(batch))
        distributions = self._distributions(
            self.network, self.network.encode(prompts), noisy, (times, widths)
        )

        def work(part: TokenDistributions, now: Tensor, clean: Tensor, pace: Tensor) -> Tensor:
            return path_loss(part.logits().float().log_softmax(-1), now, clean, pace)

        flat = (noisy.flatten(), canvas.flatten(), rate.float().repeat_interleave(canvas.shape[1]))
        return distributions.map_slices(work, *(value.to(self.device) for value in flat)).sum()
