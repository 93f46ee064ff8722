"""Log-probabilities in slices: the same values and gradients as the plain way, without its
memory."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from plumbline.policies import token_logprobs as head
from plumbline.policies.sampling_distribution import log_prob
from plumbline.records import Sampling


def inputs(rows: int, hidden: int, vocabulary: int, *, bias: bool) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(rows, hidden, generator=generator, requires_grad=True)
    weight = torch.randn(vocabulary, hidden, generator=generator, requires_grad=True)
    shift = torch.randn(vocabulary, generator=generator, requires_grad=True) if bias else None
    tokens = torch.randint(vocabulary, (rows,), generator=generator)
    return states, weight, shift, tokens


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(temperature=0.5), Sampling(top_k=3), Sampling(top_p=0.7)],
    ids=str,
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
        torch.testing.assert_close(
            head.head_log_prob(states, weight, shift, tokens, sampling), plain
        )


@pytest.mark.parametrize("trained", [False, True], ids=["frozen", "trained"])
def test_a_frozen_head_is_computed_once_a_token(monkeypatch, trained):
    states, weight, _, tokens = inputs(10, 6, 23, bias=False)
    monkeypatch.setitem(head.LOGITS_AT_ONCE, "cpu", 3 * 23)
    seen, true = [], head._flow
    monkeypatch.setattr(
        head, "_flow", lambda hidden, *rest: seen.append(len(hidden)) or true(hidden, *rest)
    )
    head.head_log_prob(
        states, weight.requires_grad_(trained), None, tokens, Sampling()
    ).sum().backward()
    assert states.grad is not None
    assert sum(seen) == (20 if trained else 10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_gradient_changes_no_bit_of_a_value(monkeypatch, dtype):
    """The ratio to old log-probabilities is 1 before any update."""
    monkeypatch.setitem(head.LOGITS_AT_ONCE, "cpu", 30 * 500)
    monkeypatch.setattr(head, "CACHED", 7 * 500)
    states, weight, _, tokens = inputs(100, 64, 500, bias=False)
    leaves = [leaf.detach().to(dtype) for leaf in (states, weight)]
    ours = head.head_log_prob(
        leaves[0].requires_grad_(), leaves[1], None, tokens, Sampling(top_p=0.9)
    )
    with torch.no_grad():
        assert torch.equal(head.head_log_prob(*leaves, None, tokens, Sampling(top_p=0.9)), ours)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_a_16_bit_head_is_as_exact_as_one_in_float32(dtype, bias):
    """Logits of up to 30; every other row has recorded a token that is rare, whose logit stays
    rounded."""
    states, weight, shift, tokens = inputs(200, 64, 3000, bias=bias)
    with torch.no_grad():
        leaves = [
            states.to(dtype),
            weight.to(dtype),
            None if shift is None else (shift * 4).to(dtype),
        ]
        whole = [None if leaf is None else leaf.float() for leaf in leaves]
        tokens = torch.where(
            torch.arange(200) % 2 == 0, torch.nn.functional.linear(*whole).argmax(-1), tokens
        )
        exact = log_prob(torch.nn.functional.linear(*whole), tokens, Sampling())
        rounded = log_prob(torch.nn.functional.linear(*leaves), tokens, Sampling())
    ours = head.head_log_prob(leaves[0].requires_grad_(), *leaves[1:], tokens, Sampling())
    assert ours.dtype == torch.float32
    # The likely token, then the rare one.
    error, plain = ((found - exact).abs().view(-1, 2).mean(0) for found in (ours, rounded))
    assert error[0] < plain[0] / 10
    assert error[1] < plain[1] * 1.1
    assert plain[0] > (0.01 if dtype == torch.bfloat16 else 1e-3)
    ours.sum().backward()
    wanted = whole[0].clone().requires_grad_()
    log_prob(torch.nn.functional.linear(wanted, *whole[1:]), tokens, Sampling()).sum().backward()
    assert (leaves[0].grad - wanted.grad).norm() < 0.01 * wanted.grad.norm()


@pytest.mark.parametrize("trained", [False, True], ids=["frozen", "trained"])
@pytest.mark.parametrize("sure", [0.5, 0.97, 0.99, 0.999, 0.9999])
def test_a_16_bit_gradient_is_right_for_tokens_that_the_model_is_sure_of(sure, trained):
    """1 - p is what is left there, and less than 16 bits tell apart; against float64."""
    torch.manual_seed(0)
    weight = (torch.randn(500, 64) / 8).bfloat16()
    tokens, hidden = torch.randint(500, (200,)), torch.randn(200, 64).double()
    along = torch.nn.functional.normalize(weight[tokens].double(), dim=1)
    low, high = torch.full((200, 1), -300.0).double(), torch.full((200, 1), 300.0).double()
    for _ in range(60):  # as far along its token's row as gives that probability
        middle = (low + high) / 2
        found = (
            ((hidden + middle * along) @ weight.double().T).softmax(-1).gather(1, tokens[:, None])
        )
        low, high = torch.where(found < sure, middle, low), torch.where(found < sure, high, middle)
    states = (hidden + low * along).bfloat16()

    def gradients(log_probability, dtype):
        leaves = [
            states.detach().to(dtype).requires_grad_(),
            weight.detach().to(dtype).requires_grad_(trained),
        ]
        log_probability(*leaves).sum().backward()
        return [leaf.grad.double() for leaf in leaves if leaf.requires_grad]

    ours = gradients(
        lambda x, w: head.head_log_prob(x, w, None, tokens, Sampling()), torch.bfloat16
    )
    exact = gradients(lambda x, w: log_prob(x @ w.T, tokens, Sampling()), torch.float64)
    for mine, wanted in zip(ours, exact, strict=True):
        assert (mine - wanted).norm() < 0.03 * wanted.norm()


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
