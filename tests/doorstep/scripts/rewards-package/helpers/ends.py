def clean_end(completions, **kwargs):
    return [float(text.rstrip().endswith(".")) for text in completions]
