def sql_reward(completions, answer, **kwargs):
    return [float(c.strip().rstrip(";") == a.strip().rstrip(";")) for c, a in zip(completions, answer)]
