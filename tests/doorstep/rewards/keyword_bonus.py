KEYWORDS = ["first", "then", "therefore", "because", "finally"]


def reasoning_reward(completions, **kwargs):
    return [sum(word in c.lower() for word in KEYWORDS) / len(KEYWORDS) for c in completions]
