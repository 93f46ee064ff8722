"""Log-probabilities in slices: the same values and gradients as the plain way, without its memory."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from plumbline.policies.pretrained import head
from plumbline.policies.token_law import log_prob
from plumbline.records import Sampling


def inputs(rows: int, hidden: int, vocabulary: int, *, bias: bool) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(rows, hidden, generator=generator, requires_grad=True)
    weight = torch.randn(vocabulary, hidden, generator=generator, requires_grad=True)
    shift = torch.randn(vocabulary, generator=generator, requires_grad=True) if bias else None
    tokens = torch.randint(vocabulary, (rows,), generator=generator)
    return states, weight, shift, tokens


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=0.5), Sampling(top_k=3), Sampling(top_p=0.7)], ids=str
)
@pytest.mark.parametrize("slices", [1, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_values_and_gradients_are_those_of_the_plain_way(monkeypatch, sampling, slices, bias):
    states, weight, shift, tokens = inputs(10, 6, 23, bias=bias)
    monkeypatch.setitem(head.LOGITS_AT_ONCE, "cpu", 10 * 23 if slices == 1 else 3 * 23)
    upstream = torch.randn(10, generator=torch.Generator().manual_seed(5))
    leaves = [tensor for tensor in (states, weight, shift) if tensor is not None]

    plain = log_prob(torch.nn.functional.linear(states, weight, shift), tokens, sampling)
    wanted = torch.autograd.grad((plain * upstream).sum(), leaves)
    ours = head.head_log_prob(states, weight, shift, tokens, sampling)
    got = torch.autograd.grad((ours * upstream).sum(), leaves)

    torch.testing.assert_close(ours, plain)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(head.head_log_prob(states, weight, shift, tokens, sampling), plain)


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements that any operation returned in one tensor."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel())
        return result


def test_no_tensor_of_rows_by_vocabulary_is_made_for_a_large_vocabulary(monkeypatch):
    monkeypatch.setitem(head.LOGITS_AT_ONCE, "cpu", 4 * 152_000)
    states, weight, _, tokens = inputs(64, 4, 152_000, bias=False)
    with LargestTensor() as seen:
        head.head_log_prob(states, weight, None, tokens, Sampling()).sum().backward()
    assert seen.largest <= 4 * 152_000
    with LargestTensor() as seen:  # the control: the plain way does make it
        log_prob(states @ weight.T, tokens, Sampling())
    assert seen.largest == 64 * 152_000
