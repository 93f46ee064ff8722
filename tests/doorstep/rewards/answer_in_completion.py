def correctness_reward(completions, answer, **kwargs):
    return [2.0 if a in c else 0.0 for c, a in zip(completions, answer)]
