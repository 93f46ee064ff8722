"""What a model must be able to do, tried out on the loaded weights: nothing that the sampler relies on is assumed."""

from typing import Any

import torch
from torch import Tensor

from plumbline.errors import ModelError
from plumbline.policies.masked.network import Network
from plumbline.policies.opening import clear_opening_errors
from plumbline.policies.pretrained.adapters import fuse_if_right
from plumbline.policies.pretrained.inputs import additive
from plumbline.policies.pretrained.trial import Trial

SEQUENCES, PROMPT, CANVAS = 6, 9, 12
"""That are tried (see `Trial`), tokens of their prompts, and places behind them."""
FAMILIES = "use a model of plain attention and a linear head (Llama, Qwen, Mistral, LLaDA, Dream)"


def check_model(network: Network, source: str) -> None:
    """Try out that the explicit mask is obeyed, that logits are the head's, and that a kept prompt changes nothing.

    Adapters are tried, too, and run in fewer products from then on where these give the same.

    Raises:
        ModelError: a later token does not change an earlier hidden state, so the model stays causal whatever the mask;
            or its logits are more than a linear head's; or it computes something else behind a kept prompt; or it takes
            no mask, positions or cache at all.
    """
    with clear_opening_errors(f"{source} cannot be read as a masked-diffusion model", FAMILIES), torch.no_grad():
        _try(network, source)


def _try(network: Network, source: str) -> None:
    model, head = network.model, network.model.get_output_embeddings()
    generator = torch.Generator().manual_seed(0)
    vocabulary = model.config.get_text_config().vocab_size
    tokens = torch.randint(0, vocabulary, (SEQUENCES, PROMPT + CANVAS), generator=generator)
    tokens[1] = tokens[0]
    tokens[1, -1] = (tokens[1, -1] + 1) % vocabulary
    tokens = tokens.to(model.device)

    def plain(network: Network | None = None) -> tuple[Tensor, Tensor]:
        return _plain(model, tokens, network)

    fuse_if_right(model, lambda: plain()[1], SEQUENCES)
    hidden, _ = plain()
    if bool((hidden[0] - hidden[CANVAS]).abs().max() <= 1e-6 * hidden.abs().max()):
        raise ModelError(
            f"{source} stays causal whatever mask it is given, so it cannot be a masked-diffusion model", FAMILIES
        )
    if not Trial.of(model, lambda: plain()[1], SEQUENCES).agrees(head(hidden)):
        raise ModelError(
            f"the logits of {source} are not those of its linear head (they are capped or scaled behind it)", FAMILIES
        )
    kept = network.encode(tokens[:, :PROMPT].tolist())
    trial = Trial.of(model, lambda: plain(network)[1], SEQUENCES)
    if not trial.agrees(head(network.hidden(kept, tokens[:, PROMPT:]).flatten(0, 1))):
        raise ModelError(
            f"{source} computes something else when its prompt is read once and kept",
            "set model.attention to full, or " + FAMILIES,
        )


def _plain(model: Any, tokens: Tensor, network: Network | None) -> tuple[Tensor, Tensor]:
    """One forward pass without short cuts: hidden [R L, H] and logits [R L, V] that predict the canvas.

    Everything sees everything, and a place is predicted where it stands; or as `network` has it.
    """
    rows, size = tokens.shape
    allowed = torch.ones((size, size), dtype=torch.bool, device=tokens.device)
    if network is not None and network.attention == "prefix":
        allowed[:PROMPT, PROMPT:] = False
    if network is not None and network.block is not None:
        number = torch.arange(size, device=tokens.device) // network.block
        allowed = number <= number.unsqueeze(1)
    back = int(network is not None and network.shifted)
    dtype = model.get_input_embeddings()(tokens).dtype  # that in which this pass runs: `Trial` has one in float32
    mask = additive(allowed.expand(rows, 1, size, size), dtype)
    hidden = model.get_decoder()(tokens, attention_mask=mask, use_cache=False).last_hidden_state
    logits = model(tokens, attention_mask=mask, use_cache=False).logits
    at = slice(PROMPT - back, size - back)
    return hidden[:, at].flatten(0, 1), logits[:, at].flatten(0, 1)
