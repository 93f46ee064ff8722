TAGS = ["<reasoning>\n", "\n</reasoning>\n", "\n<answer>\n", "\n</answer>"]


def xmlcount_reward_func(completions, **kwargs):
    return [sum(0.125 for tag in TAGS if c.count(tag) == 1) for c in completions]
