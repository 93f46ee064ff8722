def length_reward(completions, **kwargs):
    """Longer answers think more."""
    return [min(len(c) / 400, 1.0) for c in completions]
