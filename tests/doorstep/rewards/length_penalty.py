def brevity_reward(completions, **kwargs):
    return [max(0.0, 1 - len(c) / 500) for c in completions]
