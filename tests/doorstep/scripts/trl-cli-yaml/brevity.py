def few_words(completions, **kwargs):
    return [1.0 if len(completion[0]["content"].split()) < 60 else 0.0 for completion in completions]
