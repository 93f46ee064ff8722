"""The token distribution against transformers' own warpers and against counted draws."""

import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from plumbline.policies import sampling_distribution
from plumbline.policies.sampling_distribution import draw, log_prob, restrict
from plumbline.records import Sampling

DRAWS = 15_000
SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0.3),
    Sampling(temperature=2.0),
    Sampling(top_k=5),
    Sampling(top_p=0.8),
    Sampling(temperature=0.7, top_k=20, top_p=0.9),
    Sampling(top_p=1e-6),
    Sampling(top_k=1),
]


def transformers_distribution(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Probabilities by the peer's warpers, in the order in which `generate` applies them."""
    scores = (
        TemperatureLogitsWarper(sampling.temperature)(None, logits)
        if sampling.temperature != 1
        else logits
    )
    if sampling.top_k:
        scores = TopKLogitsWarper(sampling.top_k)(None, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(sampling.top_p)(None, scores)
    return scores.softmax(-1)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_the_distribution_is_transformers_distribution(sampling):
    logits = torch.randn(20, 211, generator=torch.Generator().manual_seed(1)) * 3
    ours = restrict(logits, sampling).softmax(-1)
    torch.testing.assert_close(
        ours, transformers_distribution(logits, sampling), atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("vocabulary", [7, 128, 300])
def test_draws_follow_the_distribution(sampling, vocabulary):
    """A chi-square; scipy is the oracle of its tail."""
    from scipy import stats

    generator = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(1, vocabulary, generator=generator) * 2
    uniforms = torch.rand(DRAWS, dtype=torch.float64, generator=generator)
    tokens, logprobs = draw(logits.expand(DRAWS, -1), uniforms, sampling)
    probabilities = restrict(logits, sampling).softmax(-1)[0].double()
    counts = torch.bincount(tokens, minlength=vocabulary).double()
    assert counts[probabilities == 0].sum() == 0
    often = probabilities * DRAWS >= 5
    observed = torch.cat([counts[often], counts[~often].sum()[None]])
    expected = torch.cat([probabilities[often], probabilities[~often].sum()[None]]) * DRAWS
    kept = expected > 0
    if kept.sum() > 1:
        assert (
            stats.chisquare(observed[kept], expected[kept] * observed.sum() / expected.sum()).pvalue
            > 1e-3
        )
    torch.testing.assert_close(logprobs.double(), probabilities[tokens].log(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_rows_drawn_in_slices_are_drawn_as_they_are_together(sampling, monkeypatch):
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(7, 300, generator=generator) * 4
    uniforms = torch.rand(7, dtype=torch.float64, generator=generator)
    tokens, logprobs = draw(logits, uniforms, sampling)
    sizes, true = [], sampling_distribution._invert
    monkeypatch.setattr(
        sampling_distribution,
        "_invert",
        lambda rows, *rest: sizes.append(len(rows)) or true(rows, *rest),
    )
    monkeypatch.setattr(sampling_distribution, "AT_ONCE", 2 * 300 + 1)
    sliced, also = draw(logits, uniforms, sampling)
    assert sizes == [2, 2, 2, 1]
    assert torch.equal(sliced, tokens)
    torch.testing.assert_close(also, logprobs, rtol=0, atol=1e-6)


def test_draws_at_another_temperature_fail_the_same_test():
    """The negative control: the chi-square above has the power to see a wrong distribution."""
    from scipy import stats

    logits = torch.randn(1, 40, generator=torch.Generator().manual_seed(0)) * 2
    uniforms = torch.rand(DRAWS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    tokens, _ = draw(logits.expand(DRAWS, -1), uniforms, Sampling(temperature=0.9))
    counts = torch.bincount(tokens, minlength=40).double()
    assert (
        stats.chisquare(
            counts, logits.softmax(-1)[0].double() * DRAWS * (1 + 1e-12), sum_check=False
        ).pvalue
        < 1e-6
    )


def test_the_largest_uniform_draws_a_token_that_can_be_drawn():
    logits = torch.tensor([[0.0, 1.0, float("-inf"), float("-inf")]])
    tokens, logprobs = draw(logits, torch.tensor([1.0 - 2.0**-53], dtype=torch.float64), Sampling())
    assert tokens.item() == 1
    assert logprobs.isfinite().all()
    tokens, _ = draw(logits, torch.tensor([0.0], dtype=torch.float64), Sampling())
    assert tokens.item() == 0


def test_the_uniform_0_draws_a_token_that_can_be_drawn():
    logits = torch.full((1, 300), -torch.inf)
    logits[0, 200:] = 0.0
    tokens, logprobs = draw(logits, torch.zeros(1, dtype=torch.float64), Sampling())
    assert tokens.tolist() == [200]
    assert logprobs.item() == pytest.approx(-torch.tensor(100.0).log().item())


def test_without_a_filter_the_least_likely_token_can_be_drawn():
    """Beside a token at 40 the others are below float32's last digit: a filter of 1.0 would take
    them for outside."""
    logits = torch.tensor([[40.0, 0.0, -3.0]])
    assert restrict(logits, Sampling()).equal(logits)
    assert restrict(logits, Sampling(top_k=3)).equal(logits)
    assert log_prob(logits, torch.tensor([2]), Sampling()).item() == pytest.approx(-43)


def test_a_recorded_token_stays_in_the_support_of_the_scorer():
    logits = torch.tensor([[3.0, 2.0, 1.0]])
    inside = log_prob(logits, torch.tensor([0]), Sampling(top_k=1))
    outside = log_prob(logits, torch.tensor([2]), Sampling(top_k=1))
    assert inside.item() == 0
    assert outside.isfinite().all()
    assert outside.item() < -1


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_scores_do_not_depend_on_how_the_rows_are_arranged(sampling):
    """[2, 3, V] and [V] are scored as [6, V] is, and each row keeps its own token in the
    support."""
    generator = torch.Generator().manual_seed(5)
    logits, tokens = (
        torch.randn(6, 40, generator=generator) * 3,
        torch.randint(40, (6,), generator=generator),
    )
    rows = torch.stack([log_prob(logits[i], tokens[i], sampling) for i in range(6)])
    assert rows.isfinite().all()
    torch.testing.assert_close(log_prob(logits, tokens, sampling), rows)
    torch.testing.assert_close(
        log_prob(logits.view(2, 3, 40), tokens.view(2, 3), sampling).flatten(), rows
    )
    torch.testing.assert_close(
        restrict(logits.view(2, 3, 40), sampling).flatten(0, 1), restrict(logits, sampling)
    )


def test_greedy_takes_the_largest_and_cannot_be_scored():
    logits = torch.tensor([[0.1, 5.0, 0.2]])
    tokens, logprobs = draw(logits, torch.zeros(1, dtype=torch.float64), Sampling(temperature=0))
    assert tokens.tolist() == [1]
    assert logprobs.tolist() == [0.0]
    with pytest.raises(ValueError, match="temperature 0"):
        log_prob(logits, tokens, Sampling(temperature=0))


def test_bfloat16_logits_are_normalised_in_float32():
    logits = (torch.randn(4, 5000, generator=torch.Generator().manual_seed(0)) * 4).bfloat16()
    tokens = torch.tensor([1, 2, 3, 4])
    exact = torch.log_softmax(logits.double(), -1).gather(-1, tokens[:, None])[:, 0]
    torch.testing.assert_close(
        log_prob(logits, tokens, Sampling()).double(), exact, atol=1e-5, rtol=0
    )
