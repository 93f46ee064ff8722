def contains(completions, answer, **kwargs):
    return [float(want in text) for text, want in zip(completions, answer)]
