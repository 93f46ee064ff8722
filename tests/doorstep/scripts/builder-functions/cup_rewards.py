def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]


def brief(completions, **kwargs):
    return [float(len(text) < 20) for text in completions]
