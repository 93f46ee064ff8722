import re


def rank_reward(completions, answer, **kwargs):
    """Right answers, the shorter the better: 1 for the shortest of the batch."""
    right = [bool(f) and f[-1] == a for f, a in ((re.findall(r"-?\d+", c), a) for c, a in zip(completions, answer))]
    order = sorted((len(c), i) for i, c in enumerate(completions) if right[i])
    rewards = [0.0] * len(completions)
    for place, (_, i) in enumerate(order):
        rewards[i] = 1 - place / len(order)
    return rewards
