from difflib import SequenceMatcher


def reward(completions, answer, **kwargs):
    return [
        1 - SequenceMatcher(None, text, gold).ratio()
        for text, gold in zip(completions, answer, strict=True)
    ]
