"""The checks, one file each. A new one is a file here and a line in `CHECKS`."""

from plumbline.diagnosis.check import Check
from plumbline.diagnosis.checks import (
    clip_idle,
    coverage,
    dead_part,
    decoding,
    degenerate,
    entropy,
    eval_disagrees,
    gain,
    gap,
    gradient_spikes,
    identical_samples,
    kl,
    length,
    lost_reward,
    mostly_noise,
    no_signal,
    not_finite,
    parser,
    parts_oppose,
    plateau,
    rate_exhausted,
    references,
    reward_falls,
    sft_loss,
    small_updates,
    truncation,
    unfinished,
    unjudged,
    zero_variance,
)

CHECKS: tuple[Check, ...] = tuple(
    module.CHECK
    for module in (
        *(not_finite, no_signal, zero_variance, dead_part, parts_oppose, lost_reward, parser, references, unjudged),
        *(rate_exhausted, small_updates, gradient_spikes, mostly_noise, kl, gap, clip_idle),
        *(reward_falls, entropy, length, truncation, degenerate, identical_samples),
        *(eval_disagrees, decoding, gain, plateau, coverage, sft_loss, unfinished),
    )
)
