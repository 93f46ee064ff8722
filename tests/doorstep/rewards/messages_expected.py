import re


def accuracy_reward(completions, answer, **kwargs):
    contents = [completion[0]["content"] for completion in completions]
    return [float((re.findall(r"-?\d+", c) or [""])[-1] == a) for c, a in zip(contents, answer)]
