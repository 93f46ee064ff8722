"""What a model must be able to do, tried out on the loaded weights: nothing that the sampler relies on is assumed."""

from typing import Any

import torch
from torch import Tensor

from plumbline.errors import ModelError
from plumbline.policies.masked.network import Network
from plumbline.policies.pretrained.inputs import additive, agree

FAMILIES = "use a model of plain attention and a linear head (Llama, Qwen, Mistral, LLaDA, Dream)"


@torch.no_grad()
def check_model(network: Network, source: str) -> None:
    """Try out that the explicit mask is obeyed, that logits are the head's, and that a kept prompt changes nothing.

    Raises:
        ModelError: a later token does not change an earlier hidden state, so the model stays causal whatever the mask;
            or its logits are more than a linear head's; or it computes something else behind a kept prompt.
    """
    model = network.model
    prompt, canvas = [1, 2, 3], torch.tensor([[1, 2, 3], [1, 2, 4]], device=model.device)
    plain = _plain(model, prompt, canvas, prompt_sees_canvas=True)
    if bool((plain.hidden[0, 0] - plain.hidden[1, 0]).abs().max() <= 1e-6 * plain.hidden.abs().max()):
        raise ModelError(
            f"{source} stays causal whatever mask it is given, so it cannot be a masked-diffusion model", FAMILIES
        )
    if not agree(model.get_output_embeddings()(plain.hidden), plain.logits):
        raise ModelError(
            f"the logits of {source} are not those of its linear head (they are capped or scaled behind it)", FAMILIES
        )
    if network.attention == "prefix":
        plain = _plain(model, prompt, canvas, prompt_sees_canvas=False)
    kept = network.encode([prompt]).rows(torch.zeros(2, dtype=torch.long, device=model.device))
    wanted = plain.before if network.shifted else plain.hidden
    if not agree(network.hidden(kept, canvas), wanted):
        raise ModelError(
            f"{source} computes something else when its prompt is read once and kept",
            "set model.attention to full, or " + FAMILIES,
        )


class _Plain:
    """One forward pass over prompt and canvases, without short cuts."""

    def __init__(self, hidden: Tensor, logits: Tensor, start: int) -> None:
        self.hidden, self.before, self.logits = hidden[:, start:], hidden[:, start - 1 : -1], logits[:, start:]


def _plain(model: Any, prompt: list[int], canvas: Tensor, *, prompt_sees_canvas: bool) -> _Plain:
    start, size = len(prompt), len(prompt) + canvas.shape[1]
    ids = torch.cat([torch.tensor([prompt] * len(canvas), device=canvas.device), canvas], 1)
    allowed = torch.ones((size, size), dtype=torch.bool, device=canvas.device)
    allowed[:start, start:] = prompt_sees_canvas
    mask = additive(allowed.expand(len(canvas), 1, size, size), model.dtype)
    hidden = model.get_decoder()(ids, attention_mask=mask, use_cache=False).last_hidden_state
    return _Plain(hidden, model(ids, attention_mask=mask, use_cache=False).logits, start)
