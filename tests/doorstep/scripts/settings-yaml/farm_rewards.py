def equals(completions, answer, **kwargs):
    return [float(text.strip() == want) for text, want in zip(completions, answer)]
