"""The probability of every way to fill a small canvas, by brute force: plain forward passes and
explicit products.

Nothing here comes from the package's samplers or scorers. Two tokens a place (top_k = 2) keep the
enumeration small. A test that opens the model in float64 gets its numbers in float64.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import torch

from plumbline.policies.masked.scorer import slices
from plumbline.records import Trajectory, Transition


def token_logprobs(policy, prompt, state, temperature=1.0, kept=2):
    """Log-probabilities {place: {token: log p}} of the `kept` best tokens of each hidden place (0:
    of all), differentiable."""
    logits = logits_of(policy, prompt, state)
    result = {}
    for place, token in enumerate(state):
        if token == policy.mask_id:
            count = kept or int(logits[place].isfinite().sum())
            best = logits[place].topk(count).indices.tolist()
            log_p = (logits[place, best] / temperature).log_softmax(-1)
            result[place] = dict(zip(best, log_p, strict=True))
    return result


def logits_of(policy, prompt, state):
    """Logits [L, V] by one plain forward pass over prompt and canvas, the prompt blind to the
    canvas where it is."""
    return logits_of_many(policy, prompt, [state])[0]


def logits_of_many(policy, prompt, states):
    """Logits [S, L, V] of many canvases behind one prompt."""
    ids = torch.tensor([[*prompt, *state] for state in states])
    size, start = ids.shape[1], len(prompt)
    allowed = torch.ones((size, size), dtype=torch.bool)
    if policy.network.attention == "prefix":
        allowed[:start, start:] = False
    dtype = policy.model.dtype
    mask = torch.zeros((1, 1, size, size), dtype=dtype).masked_fill(
        ~allowed, torch.finfo(dtype).min
    )
    logits = policy.model(ids, attention_mask=mask, use_cache=False).logits.double()
    logits = logits.index_fill(-1, torch.tensor([policy.mask_id]), float("-inf"))
    return logits[:, start - 1 : -1] if policy.network.shifted else logits[:, start:]


def ways(
    policy, prompt, sampling, temperature=1.0
) -> Iterator[tuple[tuple, torch.Tensor, tuple[int, ...]]]:
    """(key, log-probability, canvas) of every trajectory; a key is a tuple of steps ((places),
    (tokens))."""
    start = (policy.mask_id,) * sampling.max_tokens
    todo = [((), torch.zeros((), dtype=torch.float64), start)]
    for piece in slices(sampling):
        found = []
        for key, total, state in todo:
            for action, log_p in steps(policy, prompt, state, piece, sampling, temperature):
                canvas = list(state)
                for place, token in zip(*action, strict=True):
                    canvas[place] = token
                end_early(policy, canvas, piece, sampling)
                hidden = policy.mask_id in state[piece.start : piece.end]
                found.append(((*key, action) if hidden else key, total + log_p, tuple(canvas)))
        todo = found
    yield from todo


def end_early(policy, canvas, piece, sampling):
    """Fill what stands behind a finished block with an end token in it; of the leftmost selector,
    behind the token."""
    done = (
        piece.end
        if sampling.selector != "leftmost"
        else [*canvas, policy.mask_id].index(policy.mask_id)
    )
    if (piece.last or sampling.selector == "leftmost") and set(canvas[:done]) & set(
        policy.chat.stop_ids
    ):
        canvas[done:] = [policy.chat.end_of_turn] * (len(canvas) - done)


def steps(policy, prompt, state, piece, sampling, temperature):
    """Every action of a step with its log-probability."""
    table = token_logprobs(policy, prompt, state, temperature, sampling.top_k)
    hidden = [place for place in sorted(table) if piece.start <= place < piece.end]
    if not hidden:
        yield ((), ()), torch.zeros((), dtype=torch.float64)
        return
    fills = {place: list(table[place].items()) for place in hidden}

    def tokens_of(places):
        for choice in itertools.product(*(fills[place] for place in places)):
            total = torch.zeros((), dtype=torch.float64)
            yield tuple(token for token, _ in choice), sum((log_p for _, log_p in choice), total)

    best = {place: max(log_p for _, log_p in fills[place]) for place in hidden}

    def in_order(order):
        left, log_s = dict(best), 0.0
        for place in order:
            rest = torch.stack(
                [value / sampling.position_temperature for value in left.values()]
            ).logsumexp(0)
            log_s = log_s + left.pop(place) / sampling.position_temperature - rest
        return log_s

    if sampling.selector == "random":
        sets = list(itertools.combinations(hidden, piece.count))
        for places in sets:
            for tokens, log_p in tokens_of(places):
                yield (
                    (places, tokens),
                    log_p - torch.tensor(float(len(sets)), dtype=torch.float64).log(),
                )
    elif sampling.selector == "leftmost":
        for tokens, log_p in tokens_of(hidden[: piece.count]):
            yield (tuple(hidden[: piece.count]), tokens), log_p
    elif sampling.selector == "ancestral":
        for size in range(len(hidden) + 1):
            for places in itertools.combinations(hidden, size):
                q = 1.0 if piece.last else piece.share
                chance = q**size * (1 - q) ** (len(hidden) - size)
                if chance > 0:
                    for tokens, log_p in tokens_of(places):
                        yield (places, tokens), math.log(chance) + log_p
    elif sampling.selector == "plackett_luce":
        for order in itertools.permutations(hidden, piece.count):
            for tokens, log_p in tokens_of(order):
                yield (order, tokens), in_order(order) + log_p
    elif sampling.selector == "plackett_luce_set":
        grouped = {}
        for order in itertools.permutations(hidden, piece.count):
            grouped.setdefault(tuple(sorted(order)), []).append(in_order(order))
        for places, parts in grouped.items():
            for tokens, log_p in tokens_of(places):
                yield (places, tokens), torch.stack(parts).logsumexp(0) + log_p
    elif sampling.selector == "threshold":
        passes = {
            p: torch.sigmoid((best[p].exp() - sampling.threshold) / sampling.position_temperature)
            for p in hidden
        }
        weights = {p: (best[p].exp() / sampling.position_temperature).exp() for p in hidden}
        for size in range(1, len(hidden) + 1):
            for places in itertools.combinations(hidden, size):
                chance = torch.ones((), dtype=torch.float64)
                none = torch.ones((), dtype=torch.float64)
                for place in hidden:
                    chance = chance * (passes[place] if place in places else 1 - passes[place])
                    none = none * (1 - passes[place])
                if size == 1:
                    chance = chance + none * weights[places[0]] / sum(weights.values())
                if piece.last:
                    chance = torch.tensor(float(size == len(hidden)), dtype=torch.float64)
                if chance > 0:
                    for tokens, log_p in tokens_of(places):
                        yield (places, tokens), chance.log() + log_p
    elif sampling.selector == "low_confidence":
        plain = logits_of(policy, prompt, state).softmax(-1).detach()
        grouped = {}
        for tokens, log_p in tokens_of(tuple(hidden)):
            drawn = dict(zip(hidden, tokens, strict=True))
            ranked = sorted(hidden, key=lambda place: (-float(plain[place, drawn[place]]), place))[
                : piece.count
            ]
            places = tuple(sorted(ranked))
            grouped.setdefault((places, tuple(drawn[p] for p in places)), []).append(log_p)
        for action, parts in grouped.items():
            yield action, torch.stack(parts).logsumexp(0)


def trajectory_of(policy, prompt, key, sampling):
    """The record of a way to fill a canvas, as a sampler that took it would have written it
    (log-probabilities: 0)."""
    state, steps, actions = [policy.mask_id] * sampling.max_tokens, [], list(key)
    for piece in slices(sampling):
        if policy.mask_id in state[piece.start : piece.end]:
            places, tokens = (np.array(part, dtype=np.int64) for part in actions.pop(0))
            settled = sampling.selector == "leftmost" or (
                sampling.selector == "threshold" and piece.last
            )
            steps.append(
                Transition(
                    positions=places,
                    tokens=tokens,
                    logprobs=np.zeros(len(places), dtype=np.float32),
                    selection=None if settled else 0.0,
                    state=np.array(state),
                    time=piece.time,
                )
            )
            for place, token in zip(places, tokens, strict=True):
                state[place] = int(token)
        end_early(policy, state, piece, sampling)
    assert not actions
    return Trajectory(
        prompt=np.array(prompt),
        transitions=tuple(steps),
        text="",
        sampling=sampling,
        finish="length",
    )
