def int_reward(completions, answer, **kwargs):
    return [1.0 if int(c.split()[-1]) == int(a) else 0.0 for c, a in zip(completions, answer)]
