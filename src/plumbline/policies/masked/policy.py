"""The masked-diffusion policy: fills hidden places of a canvas in steps, and scores each step by
itself.

Letters in shapes: S scored steps, L places, N chosen tokens.

A trajectory is the sequence of its steps; each step's probability is that of its tokens, under
`sampling_distribution`, times that of the choice of its places, where the model has a say in it
(`selectors`). Both are exact.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from plumbline.errors import ModelError, RecipeError
from plumbline.policies.canvas import DenoisingPolicy, LearnedTemperature, split_demonstration
from plumbline.policies.chunks import Chunk
from plumbline.policies.library_errors import clear_opening_errors
from plumbline.policies.masked.network import Network, Prompts
from plumbline.policies.masked.options import MaskedModel, MaskedSampling
from plumbline.policies.masked.sampler import ReadDistributions, denoise
from plumbline.policies.masked.scorer import Recorded, log_probs, slices, step_divergence
from plumbline.policies.policy import Demonstration
from plumbline.policies.pretrained.causal_model import Loaded, load
from plumbline.policies.pretrained.foreign import BLOCKWISE, LLADA_NAMES, masked_config
from plumbline.policies.pretrained.fused import fuse_if_right
from plumbline.policies.pretrained.numerics import AgreementCheck
from plumbline.policies.pretrained.policy import make_additive_mask, mask_token, pad_rows
from plumbline.policies.sampling_distribution import PLAIN, Noise, uniforms
from plumbline.policies.token_logprobs import TokenDistributions, token_log_prob
from plumbline.records import BoolArray, Draws, Request, Trajectory, Transition

SEQUENCES, PROMPT, CANVAS = 6, 9, 12
"""That are tried (see `AgreementCheck`), tokens of their prompts, and places behind them."""
# -- probe -----------------------------------------------------------------------------------------
#
# What a model must be able to do, tried out on the loaded weights: nothing that the sampler relies
# on is assumed.

FAMILIES = "use a model of plain attention and a linear head (Llama, Qwen, Mistral, LLaDA, Dream)"


def check_model(network: Network, source: str) -> None:
    """Try out that the explicit mask is obeyed, that logits are the head's, and that a kept prompt
    changes nothing.

    Adapters are tried, too, and run in fewer products from then on where these give the same.

    Raises:
        ModelError: a later token does not change an earlier hidden state, so the model stays causal
            whatever the mask; or its logits are more than a linear head's; or it computes something
            else behind a kept prompt; or it takes no mask, positions or cache at all.
    """
    model, head = network.model, network.model.get_output_embeddings()

    def run_plain_pass(network: Network | None = None) -> tuple[Tensor, Tensor]:
        """One forward pass without short cuts: hidden [R L, H] and logits [R L, V] that predict the
        canvas.

        Everything sees everything, and a place is predicted where it stands; or as `network` has
        it.
        """
        allowed = torch.ones((size, size), dtype=torch.bool, device=tokens.device)
        if network is not None and network.attention == "prefix":
            allowed[:PROMPT, PROMPT:] = False
        if network is not None and network.block is not None:
            number = torch.arange(size, device=tokens.device) // network.block
            allowed = number <= number.unsqueeze(1)
        back = int(network is not None and network.shifted)
        # that in which this pass runs: `AgreementCheck` has one in float32
        dtype = model.get_input_embeddings()(tokens).dtype
        mask = make_additive_mask(allowed.expand(SEQUENCES, 1, size, size), dtype)
        hidden = model.get_decoder()(tokens, attention_mask=mask, use_cache=False).last_hidden_state
        logits = model(tokens, attention_mask=mask, use_cache=False).logits
        at = slice(PROMPT - back, size - back)
        return hidden[:, at].flatten(0, 1), logits[:, at].flatten(0, 1)

    with (
        clear_opening_errors(f"{source} cannot be read as a masked-diffusion model", FAMILIES),
        torch.no_grad(),
    ):
        vocabulary, size = model.config.get_text_config().vocab_size, PROMPT + CANVAS
        tokens = torch.randint(
            0, vocabulary, (SEQUENCES, size), generator=torch.Generator().manual_seed(0)
        )
        tokens[1, : PROMPT + 1] = tokens[0, : PROMPT + 1]
        tokens = tokens.to(model.device)
        fuse_if_right(model, lambda: run_plain_pass()[1], SEQUENCES)
        hidden, _ = run_plain_pass()
        if bool((hidden[0] - hidden[CANVAS]).abs().max() <= 1e-6 * hidden.abs().max()):
            raise ModelError(
                f"{source} stays causal whatever mask it is given, so it cannot be a "
                "masked-diffusion model",
                FAMILIES,
            )
        if not AgreementCheck.from_model(model, lambda: run_plain_pass()[1], SEQUENCES).agrees(
            head(hidden)
        ):
            raise ModelError(
                f"the logits of {source} are not those of its linear head (they are capped or "
                "scaled behind it)",
                FAMILIES,
            )
        kept = network.encode(tokens[:, :PROMPT].tolist())
        trial = AgreementCheck.from_model(model, lambda: run_plain_pass(network)[1], SEQUENCES)
        if not trial.agrees(head(network.hidden(kept, tokens[:, PROMPT:]).flatten(0, 1))):
            raise ModelError(
                f"{source} computes something else when its prompt is read once and kept",
                "set model.attention to full, or " + FAMILIES,
            )


KEPT = 0.1
"""What the keys and values of a prompt's token cost, against all that a canvas's token leaves for
the backward pass.

Measured on a Llama with as many key as query heads: 0.09; fewer key heads cost less.
"""


class MaskedPolicy(DenoisingPolicy):
    """A bidirectional model with a mask token as a `Policy`. Open one with `MaskedPolicy.open`."""

    family = "masked"
    sampling_type = MaskedSampling
    mask_id: int

    def __init__(self, loaded: Loaded, section: MaskedModel, source: str) -> None:
        super().__init__(loaded, section, source)
        self.mask_id = mask_token(self.model, self.chat.tokenizer, source)
        self.canvas = section.canvas or self.read_saved_settings(source).get("canvas")
        if section.predicts_next is not None:
            self.model.config.predicts_next = section.predicts_next
        shifted = bool(getattr(self.model.config, "predicts_next", False))
        block = _block(self.model.config, section, source)
        self.network = Network(
            self.model,
            section.attention if block is None else "blocks",
            shifted=shifted,
            block=block,
        )
        check_model(self.network, source)
        if block is not None:
            self.model.config.update({BLOCKWISE: True, "block_size": block})
        self.model.config.plumbline = {
            "family": self.family,
            "canvas": self.canvas,
            "attention": section.attention,
        }

    @classmethod
    def open(cls, section: MaskedModel, source: str, seed: int = 0) -> Self:
        """Load a causal model, or one of the published checkpoints that `pretrained.foreign` knows.

        Raises:
            ModelError: it cannot be loaded, has no mask token, stays causal under any mask, or
                computes its logits otherwise than by a linear head.
        """
        return cls(load(section, source, seed, masked_config, LLADA_NAMES), section, source)

    @property
    def engine(self) -> Mapping[str, str]:
        """See `Policy.engine`."""
        return {
            "family": self.family,
            "attention": f"blocks of {self.network.block}"
            if self.network.block
            else self.network.attention,
            **self.facts(),
        }

    # -- sampling ----------------------------------------------------------------------------------

    def draw(self, requests: Sequence[Request]) -> Draws:
        """See `Sampler.sample`. Prompts are denoised in chunks of `rows_at_once` rows."""
        end = self.chat.end_of_turn
        ends = [end, *(stop for stop in self.chat.stop_ids if stop != end)]
        block = self.network.block
        for whole in self.chunks(requests, MaskedSampling, self.canvas):
            for chunk in [whole] if block is None else whole.by_length(block):
                pieces = slices(chunk.sampling, block, len(chunk.prompts[0]))
                for row, canvas, steps in denoise(
                    self._make_reader(chunk), chunk, pieces, self.mask_id, ends
                ):
                    yield self.finish_trajectory(chunk, row, canvas, steps)

    @torch.no_grad()
    def _make_reader(self, chunk: Chunk[MaskedSampling]) -> ReadDistributions:
        """The model on a chunk's prompts, each of them encoded once."""
        encoded = self.network.encode(chunk.prompts)
        prompt_of = chunk.prompt_of
        everyone = torch.arange(len(prompt_of))
        rows = encoded.rows(prompt_of.to(self.device))

        def read_distributions(
            active: Tensor, canvas: Tensor, which: Tensor, time: float
        ) -> TokenDistributions:
            mine = (
                rows
                if torch.equal(active, everyone)
                else encoded.rows(prompt_of[active].to(self.device))
            )
            hidden = self.network.hidden(mine, canvas.to(self.device))[which.to(self.device)]
            divisor = (
                None
                if self.learned_temperature is None
                else self.learned_temperature.divisor([time]).expand(len(hidden))
            )
            return TokenDistributions(
                self.model.get_output_embeddings(), self.mask_id, hidden, divisor
            )

        return read_distributions

    # -- scoring -----------------------------------------------------------------------------------

    def cost(self, trajectory: Trajectory) -> tuple[int, int]:
        """See `DenoisingPolicy.cost`. Under prefix attention a prompt is encoded once for all of
        its steps that stand together, and what each of them keeps of it counts `KEPT`.
        """
        if self.network.attention == "full":
            return super().cost(trajectory)
        prompt = len(trajectory.prompt)
        return len(trajectory.transitions) * (
            trajectory.sampling.max_tokens + math.ceil(KEPT * prompt)
        ), prompt

    def record(self, trajectories: Sequence[Trajectory], sampling: MaskedSampling) -> Recorded:
        """See `CanvasPolicy.record`."""
        return Recorded.of(trajectories, sampling, self.mask_id, self.network.block)

    def distributions(
        self, recorded: Recorded, model: Any, learned_temperature: LearnedTemperature | None
    ) -> TokenDistributions:
        """The distributions of all places that any recorded step could have filled, step by
        step."""
        prompts: Prompts = self.network.encode(recorded.prompts, model).rows(
            recorded.prompt_of.to(self.device)
        )
        hidden = self.network.hidden(prompts, recorded.states.to(self.device), model)
        looked_at = recorded.looked_at.to(self.device)
        divisor = (
            None
            if learned_temperature is None
            else learned_temperature.divisor(recorded.times)[looked_at.nonzero()[:, 0]]
        )
        return TokenDistributions(
            model.get_output_embeddings(), self.mask_id, hidden[looked_at], divisor
        )

    log_probs = staticmethod(log_probs)
    step_divergence = staticmethod(step_divergence)

    def mask_positions(self, trajectory: Trajectory, hidden: BoolArray) -> Transition:
        """See `Policy.mask_positions`; behind its end an answer's canvas is filled with end tokens.

        Raises:
            RecipeError: the answer was drawn by a model that never sees hidden places in earlier
                blocks.
        """
        if self.network.block is not None:
            raise RecipeError(
                "a bound hides any place of an answer, and this model reads a block behind "
                "finished ones only",
                "take an algorithm of exact trajectories (rl.algorithm: grpo)",
            )
        answer = trajectory.answer if trajectory.answer is not None else trajectory.tokens
        whole = np.full(trajectory.sampling.max_tokens, self.chat.end_of_turn, dtype=np.int64)
        whole[: len(answer)] = answer
        positions = np.flatnonzero(hidden)
        return Transition(
            positions=positions,
            tokens=whole[positions],
            logprobs=np.full(len(positions), np.nan, dtype=np.float32),
            state=np.where(hidden, self.mask_id, whole),
            time=float(1 - hidden.mean()),
        )

    # -- training ----------------------------------------------------------------------------------

    def supervised_loss(self, batch: Sequence[Demonstration], noise: Sequence[Noise]) -> Tensor:
        """See `Policy.supervised_loss`: cross-entropy of hidden places over the share t that is
        hidden.

        L = E_t E_hidden (1/t) sum over hidden places of -log p(token), t uniform in (0, 1] (LLaDA,
        Nie et al. 2025, arXiv:2502.09992, eq. 3), summed over the batch; t is each demonstration's
        `Noise.time`. Where nothing is hidden the row adds 0: hiding one place nevertheless, at
        weight 1/t, would bias the mean. A model with blocks sees the finished blocks before the one
        that it fills (`Network.training_hidden`), as SDAR was trained.
        """
        prompts, canvases = zip(*map(split_demonstration, batch), strict=True)
        canvas, present = pad_rows(canvases, self.chat.end_of_turn)
        share = torch.tensor([each.time for each in noise], dtype=torch.float64).clamp_min(1e-3)
        numbers = uniforms([each.generator for each in noise], canvas.shape[1])
        hidden = present & (numbers < share.unsqueeze(1))
        states = canvas.masked_fill(hidden, self.mask_id).to(self.device)
        read = self.network.training_hidden(
            self.network.encode(prompts), states, canvas.to(self.device)
        )
        at = read[hidden.to(self.device)]
        weight = (1 / share)[hidden.nonzero()[:, 0]].to(self.device, torch.float32)
        distributions = TokenDistributions(self.model.get_output_embeddings(), self.mask_id, at)
        log_p = token_log_prob(distributions, canvas[hidden].to(self.device), PLAIN)
        return -(log_p * weight).sum()


def _block(config: Any, section: MaskedModel, source: str) -> int | None:
    """Tokens of a block, of a model that writes block after block."""
    own, wanted = getattr(config, "block_size", None), section.block
    if not getattr(config, BLOCKWISE, False):
        return wanted
    block = own if wanted is None else wanted
    if block is None:
        raise ModelError(
            f"{source} writes block after block, and its config.json does not say how long a block "
            "is (block_size)",
            "set model.block to what it was trained with: 4 for SDAR-1.7B-Chat, 4B and 8B, and the "
            "number in the name "
            "of those that end in -b8 to -b64",
        )
    if own is not None and wanted is not None and own != wanted:
        raise ModelError(
            f"{source} writes blocks of {own} tokens, not of {wanted}", f"set model.block to {own}"
        )
    if section.attention == "prefix":
        raise ModelError(
            f"{source} writes block after block, and a block may begin in the prompt",
            "leave model.attention out",
        )
    return int(block)
