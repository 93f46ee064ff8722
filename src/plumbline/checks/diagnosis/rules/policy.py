"""Where the policy goes: KL, sampler against scorer, entropy, weights that are random or stand
still."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from plumbline.checks.check import Finding
from plumbline.checks.diagnosis.check import rule, stood
from plumbline.checks.diagnosis.facts import agree, enough, level, likely, rises, zeros
from plumbline.checks.diagnosis.history import Final, History, Series
from plumbline.checks.diagnosis.outcome import outcome
from plumbline.checks.diagnosis.rules.losses import too_high
from plumbline.checks.diagnosis.rules.steps import highest_rate
from plumbline.checks.diagnosis.trends import BLOCKS, finite, moves, order, trend
from plumbline.evaluation.comparison import among

FIRST = 0.05
"""Nats: before the first update policy and reference are one model; 16 bits leave about 0.001
between two passes."""
APART = 1.0
"""Below, it may be meant: the reference is the model before SFT, or a teacher, as in 12 runs of 2
public projects."""
HUGE = 10.0
AWAY = 0.1
"""Nats a token that the policy went away from the reference, which its samples would show."""
SURE = 2.5
"""Standard errors of the order of eight means: all but two pairs of neighbours ascend."""
TIMES, KL_LONG = 5.0, 40
SAMPLED = ("reward", "length", "entropy", "truncated")
"""What is measured on samples."""


@rule(
    "kl",
    needs=("kl|kl_sum",),
    stops=lambda history, since: (
        stood(10)(history, since) and bool(np.median(history["kl"].last(10).values) > HUGE)
    ),
)
def find_kl(history: History) -> Iterator[Finding]:
    """The KL to the reference: exploding, of the wrong sign, there from the first step, void, or
    unseen by samples.

    In the order of how bad it is; one finding.
    """
    series = history["kl"]
    steps, values = series.known
    if not len(values):
        yield from _below(history["kl_sum"], BELOW, " of an answer")
        return
    began = steps[0] <= 1 and values[0] > APART
    beta = history.settings.get("rl.beta")
    middle = float(np.median(values))
    high = values > HUGE
    if high.sum() >= 3 or values[-1] > 100:
        lasts = bool(high[-max(3, len(values) // 10) :].mean() > 0.5)
        yield Finding(
            level="fatal" if lasts else "warning",
            what=f"the KL to the reference goes up to {values.max():.3g} nats"
            + ("" if lasts else f" in {int(high.sum())} of {len(values)} logged steps, and back")
            + (
                f"; it is {values[0]:.3g} at step {steps[0]}, before the policy can have moved"
                if began
                else ""
            ),
            since=int(steps[high][0]),
            evidence={"highest": float(values.max()), "median": middle},
            causes=likely(
                history,
                *((one, lambda _: not began) for one in TWO_MODELS),
                ("too high a learning rate", lambda _: began and values.max() < GROWN * values[0]),
                (
                    "policy and reference are read by different templates or weights",
                    lambda _: began,
                ),
            ),
            fix=ONE_MODEL
            if began
            else (
                "go back to a checkpoint before that step; lower the learning rate or raise rl.beta"
            ),
        )
    elif steps[0] <= 2 and values[0] > FIRST and not values[0] < 0.2 * middle:
        yield Finding(
            level="warning" if values[0] > APART else "note",
            what=(
                f"the KL to the reference is {values[0]:.3g} at step {steps[0]}, before the policy "
                "can have moved"
            ),
            since=int(steps[0]),
            evidence={"first": float(values[0]), "median": middle},
            causes=TWO_MODELS,
            fix=ONE_MODEL,
            shown=(came := outcome(history)) is not None and came.better is False,
        )
    elif below := list(_below(series, 0.01)):
        yield from below
    elif len(values) >= 5 and zeros(series, 1e-300).all():
        # TRL's own loss has entropy and clip, and a KL only where it is charged; Unsloth's logs a
        # KL of 0 without one.
        own = history.origin == "trl" and len(history["entropy"]) > 0 and len(history["clip"]) > 0
        wanted = beta > 0 if isinstance(beta, int | float) else own
        still = len(history["gradient"]) > 0 and bool(zeros(history["gradient"], 1e-10).all())
        yield Finding(
            level="warning" if wanted else "note",
            what="the KL to the reference is exactly 0 at every step"
            + (", although it is charged" if wanted else ": without a penalty it has no meaning")
            + (f" (beta {beta})" if wanted and beta else ""),
            since=int(steps[0]),
            evidence={"beta": beta},
            causes=_void(history, wanted=wanted, still=still),
            fix=(
                "compare a checksum of the policy's weights before and after a step, and with the "
                "reference's"
            )
            if wanted
            else "read nothing into it",
        )
    elif _unseen(history):
        yield Finding(
            level="warning",
            what=f"the KL to the reference grows from {values[0]:.2g} to {values[-1]:.2g} nats, "
            "and "
            "nothing that is "
            "measured on samples moves: what is sampled does not follow the policy",
            since=int(steps[np.argmax(values > AWAY)]),
            evidence={"first": float(values[0]), "last": float(values[-1])},
            causes=(
                "the sampler has old weights, or the base model without the adapter",
                "weights that are published under a name the sampler does not load",
            ),
            fix=(
                "draw one greedy answer from the sampler and from the trained weights, and compare "
                "them"
            ),
        )


TWO_MODELS = (
    "dropout is on when one of the two reads",
    "the policy starts from an adapter of SFT, and the reference is the model without it",
    "the reference is another model, another dtype, or reads another template",
)
ONE_MODEL = (
    "merge the adapter of SFT before RL; set dropout to 0, and give both the same weights, dtype "
    "and template"
)
GROWN = 10.0
"""Times the first one, from which a KL that was there before the first update grew by training,
too."""
BELOW = 0.5
"""Nats under 0 that the mean KL of whole answers does not have by chance: a hundredth a token of
fifty."""


def _below(series: Series, limit: float, of: str = "") -> Iterator[Finding]:
    """A KL whose mean is below 0, which none can be."""
    values = finite(series.values)
    if len(values) and (values < -limit).mean() > 0.5:
        middle = float(np.median(values))
        yield Finding(
            level="warning",
            what=(
                f"the KL to the reference{of} is negative ({middle:.3g} in the middle); its mean "
                "cannot be"
            ),
            since=int(series.steps[series.values < -limit][0]),
            evidence={"median": middle},
            causes=(
                "its sign is wrong, so the policy is paid for leaving the reference",
                (
                    "answers are drawn by another sampling distribution than the one that is "
                    "scored (top-k, top-p, a least length)"
                ),
            ),
            fix=(
                "draw at top-p 1 without top-k; k3 = exp(-d) - 1 + d for d = log p - log q is "
                "never negative"
            ),
        )


def _void(history: History, *, wanted: bool, still: bool) -> tuple[str, ...]:
    """Why a KL may be 0 at every step."""
    same = ("the reference is the policy itself",) if wanted else ()
    stays = "the weights do not change"
    if not (wanted or still):
        return ("beta is 0",)
    if rises(history):
        return same
    live = len(history["gradient"]) > 0 and not still and bool((history["rate"].values > 0).any())
    other = (
        "the optimiser holds other weights than the policy (they were replaced after it was made, "
        "or an adapter was)"
    )
    return (other, *same) if live else (*same, stays)


def _unseen(history: History) -> bool:
    """Whether the KL grows steadily while the reward and the length or the entropy of samples stand
    still."""
    values = finite(history["kl"].values)
    if len(values) < KL_LONG or agree(history):
        return False
    width, up = (
        len(values) // 5,
        order(np.array([block.mean() for block in np.array_split(values, BLOCKS)])),
    )
    first, last = float(np.median(values[:width])), float(np.median(values[-width:]))
    known = [name for name in SAMPLED if len(history[name]) >= KL_LONG]
    return (
        up > SURE
        and last > AWAY
        and last > TIMES * max(first, 1e-3)
        and len(known) >= 2
        and "reward" in known
        and not any(moves(history[name].values) for name in known)
    )


LIMIT, LIMIT_KL = 0.1, 0.05
"""Nats a choice: two engines in 16 bits differ by about .01 to .05 (trl#5312 had .015, and .201
with stale weights). Of a KL divergence between them, which is about half the square of what single
tokens differ by: .0005 to .005 there."""
ALWAYS_KL = 0.2
"""Where it was as high at first: filters of the sampler and asynchronous training have some."""
SOME, SOME_KL = 0.05, 0.03
LEAST, LEAST_KL = 0.005, 0.001
"""What it is taken to be at first, if it was less."""
WINDOW = 10
GROWS = 4.0


def _stops(history: History, since: int) -> bool:
    """Not below what the recipe allows."""
    allowed = history.settings.get("rl.max_gap") or LIMIT
    stands = level(history["gap"]) > allowed or level(history["gap_kl"]) > LIMIT_KL
    return stood(10)(history, since) and stands


@rule("gap", needs=("gap|gap_kl|ratio_mean|ratio_max",), stops=_stops)
def find_gap(history: History) -> Iterator[Finding]:
    """Sampler and scorer are two distributions: temperature, filters, masks, stale weights, or 16
    bits.

    The mean gap now, and whether it widened; the KL divergence; then importance ratios.
    """
    found = _measured(history, "gap", SOME, LIMIT, LEAST) or _measured(
        history, "gap_kl", SOME_KL, LIMIT_KL, LEAST_KL
    )
    yield from [found] if found is not None else _ratios(history)


def _measured(
    history: History, name: str, some: float, limit: float, least: float
) -> Finding | None:
    """What a logged difference says of itself."""
    steps, values = history[name].known
    values = np.abs(values)
    if len(values) < 3:
        return None
    first, last = float(np.median(values[:WINDOW])), float(np.median(values[-WINDOW:]))
    widened = len(values) >= 2 * WINDOW and last > GROWS * max(first, least) and last > some / 2
    if not (last > some or widened):
        return None
    over = values > (GROWS / 2 * max(first, least) if widened else some)
    return Finding(
        level="fatal" if last > (limit if widened or name == "gap" else ALWAYS_KL) else "warning",
        what=(
            f"sampler and scorer differ by {last:.3f} nats a choice"
            if name == "gap"
            else f"the KL divergence between sampler and scorer is {last:.3f} nats a token"
        )
        + (
            f"; at first by {first:.3f}"
            if widened and name == "gap"
            else f"; at first {first:.4f}"
            if widened
            else ""
        ),
        since=int(steps[np.argmax(over)]),
        evidence={"first": first, "last": last, "highest": float(values.max())},
        causes=likely(
            history,
            "the sampler has old weights (a failed or cached transfer)",
            "its cache of prompts holds states of old weights",
            ("the policy became sharper in 16 bits", _not_sharper),
        )
        if widened
        else (
            "another temperature, top-p or top-k than the scorer's",
            "another template or other tokens",
        ),
        fix="compare log-probabilities of one answer in both; publish the weights again, or "
        "correct by "
        "truncated importance sampling",
    )


def _not_sharper(history: History) -> bool:
    """Whether the entropy is logged and did not fall."""
    values = finite(history["entropy"].values)
    return len(values) >= 2 * WINDOW and bool(
        np.median(values[-WINDOW:]) > 0.9 * np.median(values[:WINDOW])
    )


def _ratios(history: History) -> Iterator[Finding]:
    """Ratios alone cannot tell another sampler from products over a whole answer; a logged
    difference can."""
    mean, highest = history["ratio_mean"], history["ratio_max"]
    off = np.isfinite(mean.values) & ((mean.values > 1.5) | (mean.values < 0.67))
    far = len(highest) >= 5 and level(highest) > 100
    if len(mean) >= 5 and off[-WINDOW:].mean() > 0.5:
        found, since = float(np.median(mean.values[-WINDOW:])), int(mean.steps[off][0])
        what = f"importance ratios are {found:.3g} in the mean"
    elif far:
        found, since = level(highest), int(highest.steps[np.argmax(highest.values > 100)])
        what = f"importance ratios go up to {found:.3g} at most steps"
    else:
        return
    most = max(finite(highest.values), default=np.inf)
    product = "ratios are a product over a whole answer" + (
        f", cut at {most:.3g}" if most < 100 else ", and perhaps cut at a limit"
    )
    if agree(history):
        known = "gap" if len(history["gap"]) else "gap_kl"
        size = f"{'differ' if known == 'gap' else 'have a KL divergence of'}{' by' if known == 'gap' else ''}"
        what += (
            f", but sampler and scorer {size} {abs(level(history[known])):.2g} nats a token: the "
            "sampler is right"
        )
        causes: tuple[str, ...] = (
            (
                f"{product}: small differences of many tokens multiply, and the whole batch is "
                "weighed "
                "down"
            ),
        )
        fix = (
            "take ratios by token, or the mean over an answer's tokens (sequence_mean) in place of "
            "the sum"
        )
    else:
        what += "; where sampler and scorer are one distribution they are 1"
        causes = ("the sampler has another temperature, other filters or old weights", product)
        fix = "compare log-probabilities of one answer in sampler and scorer" + (
            "; truncate the ratios" if far else "; where they agree, take ratios by token"
        )
    yield Finding(
        level="warning",
        what=what,
        since=since,
        evidence={
            "ratio": found,
            "gap": level(history["gap"]),
            "KL divergence": level(history["gap_kl"]),
        },
        causes=causes,
        fix=fix,
    )


GONE = 0.005
"""Nats a token: an answer of 100 tokens then differs from the likeliest one in one of two cases."""
SHARE = 0.1
"""Of what it was at first."""
WARM = 0.8
"""A temperature that is none of the causes."""
ENTROPY_ENOUGH = 20
MUCH = 1.0
"""Nats a token that it rose by; English text has about 2 to 3 under a small model."""


@rule("entropy", needs=("entropy",))
def find_entropy(history: History) -> Iterator[Finding]:
    """The entropy of what is drawn: gone, so that nothing is tried any more, or running away.

    The first tenth of the steps against the last.
    """
    values = finite(history["entropy"].values)
    if not enough(history["entropy"], ENTROPY_ENOUGH) or (values < -1e-6).any():
        return  # a loss term of that name, with its sign
    width = max(3, len(values) // 10)
    first, last = float(np.median(values[:width])), float(np.median(values[-width:]))
    steps = history["entropy"].steps[np.isfinite(history["entropy"].values)]
    reward = trend(history["reward"].values)
    if last < GONE and last < SHARE * first:
        gone = np.flatnonzero(values < GONE)
        yield Finding(
            level="note" if reward.t > 2 else "warning",
            what=f"the entropy fell from {first:.3f} to {last:.4f} nats a token: the answers of a "
            "group are nearly "
            "the same",
            since=int(steps[gone[0]]) if len(gone) else None,
            evidence={"first": first, "last": last},
            causes=likely(
                history,
                ("many steps on few prompts", lambda run: 0 < level(run["epoch"]) < 1),
                (
                    "a low temperature",
                    lambda run: run.settings.get("sampling.temperature", 0) >= WARM or first > MUCH,
                ),
                ("a clip that lets only likely tokens rise", lambda run: level(run["clip"]) == 0),
                "no penalty that holds the policy near its reference",
            ),
            fix=(
                "stop where the evaluation stopped rising; for a longer run raise the upper clip "
                "or take more prompts"
            ),
        )
    elif last > first + MUCH and last > 2 * first:
        falling = reward.t < -2
        yield Finding(
            level="fatal" if falling else "warning",
            what=f"the entropy rose from {first:.2f} to {last:.2f} nats a token"
            + (" while the reward fell: the policy is coming apart" if falling else ""),
            since=int(steps[np.argmax(values > first + MUCH)]),
            evidence={"first": first, "last": last},
            causes=likely(
                history,
                "too high a learning rate",
                ("sampler and scorer disagree", agree),
                "an entropy bonus that pays more than the task",
            ),
            fix="go back to a checkpoint before that step, with half the learning rate",
        )


HIGH = 7.0
"""Nats a token: as much as one of 1,100 tokens drawn evenly. Random weights have the logarithm of
the vocabulary (32,000: 10.4; 152,000: 11.9); a pretrained model has 1 to 4 on any text of a
language that it knows."""
MOST = 13.0
"""The logarithm of 440,000: what is higher is no mean over tokens."""
KNOWN = 0.05
"""Share of right next tokens, where that is logged."""


BREAKS = 5e-4
"""A rate that can break a pretrained model before the first logged row, which stands for several
steps."""


@rule("untrained", needs=("loss|entropy",), kinds=("rl", "sft"))
def find_untrained(history: History) -> Iterator[Finding]:
    """A model that knows nothing at the first step: random weights, or weights that were loaded
    only in part.

    The first loss of supervised training, the first entropy of RL. Who pretrains knows it: then it
    is no fault.
    """
    known = (history["truth/accuracy"].values[:1] > KNOWN).any()
    if history.name == "base" or history.has("preference/") or known:
        return
    series = history["entropy" if history.kind == "rl" else "loss"]
    values = series.known[1]
    right = history["accuracy"].values
    if not len(values) or series.steps[0] > 10 or not HIGH <= values[0] <= MOST:
        return
    if (len(right) and right[0] > KNOWN) or values[0] < HIGH * _scale(history):
        return
    what = "entropy" if history.kind == "rl" else "loss"
    broke = history.kind == "sft" and series.steps[0] > 1 and highest_rate(history) >= BREAKS
    yield Finding(
        level="warning" if len(right) or history.kind == "rl" else "note",
        what=f"the {what} is {values[0]:.1f} nats a token at step {int(series.steps[0])}: about "
        "what random weights "
        "have",
        since=int(series.steps[0]),
        evidence={what: float(values[0])} | ({"accuracy": float(right[0])} if len(right) else {}),
        causes=(
            *([f"{too_high(history)}: the first steps broke the model"] if broke else []),
            (
                "weights that were not found, or loaded in part (look for 'newly initialized' in "
                "what "
                "the program said)"
            ),
            "another tokenizer than the model's",
        ),
        fix="have the model continue a sentence before training",
    )


def _scale(history: History) -> float:
    """How many times the held-out loss the logged one is at the same step: a sum over batches is no
    mean of tokens."""
    held, loss = history["eval/loss"], history["loss"]
    at = np.isfinite(held.values) & (held.values > 0)
    if history.kind == "rl" or not at.any():
        return 1.0
    near = np.argmin(np.abs(loss.steps - held.steps[at][0]))
    return float(loss.values[near] / held.values[at][0])


SAME = 0.99
ENOUGH = 20
SOLVED = 0.9
"""Mean reward from which on equal answers are right ones."""
UNCHANGED_LONG = 20
"""Characters of the median answer: a word may well stay what it was."""


@rule("unchanged", needs=("finals",), kinds=("rl", "sft"), live=False)
def find_unchanged(history: History) -> Iterator[Finding]:
    """A stage after which every greedy answer is what it was: the weights that are evaluated are
    not the trained ones.

    Each greedy evaluation of the stage against the stage before it, by text.
    """
    for after, before in pairs(history):
        texts = {row.id: row.completion for row in before.evaluation.rows}
        rows = [row for row in after.evaluation.rows if row.id in texts]
        if len(rows) < ENOUGH or after.evaluation.mean_reward > SOLVED:
            continue
        same = sum(row.completion == texts[row.id] for row in rows)
        lengths = sorted(len(row.completion) for row in rows)
        if same < SAME * len(rows) or lengths[len(lengths) // 2] < UNCHANGED_LONG:
            continue
        yield Finding(
            level="warning",
            what=f"after {after.stage} {same} of {len(rows)} greedy answers on {after.where} are "
            "letter by letter "
            f"those of {before.stage}",
            evidence={"same": same, "n": len(rows)},
            causes=(
                (
                    "the weights before training were evaluated: an adapter that was not loaded, a "
                    "wrong path"
                ),
                "a rate too low for any weight to move",
            ),
            fix="compare the weights of both models; look at the learning rate",
        )


def pairs(history: History) -> Iterator[tuple[Final, Final]]:
    """Greedy evaluations of this stage, each with that of the stage before it on the same split.

    The untrained model may have been asked fewer examples: the other is of these then.
    """
    stages = list(dict.fromkeys(one.stage for one in history.finals if one.stage != "reference"))
    if history.name not in stages or stages.index(history.name) == 0:
        return
    earlier = stages[stages.index(history.name) - 1]
    for after in history.finals:
        if after.stage == history.name and after.mode == "greedy":
            for before in history.finals:
                if (before.stage, before.task, before.split, before.mode) == (
                    earlier,
                    after.task,
                    after.split,
                    "greedy",
                ):
                    same = earlier == "base"
                    yield (
                        replace(after, evaluation=among(after.evaluation, before.evaluation))
                        if same
                        else after,
                        before,
                    )
