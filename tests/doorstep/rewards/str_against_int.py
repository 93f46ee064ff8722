import re


def correctness_reward(completions, answer, **kwargs):
    rewards = []
    for completion, wanted in zip(completions, answer):
        found = re.findall(r"-?\d+", completion)
        rewards.append(1.0 if found and found[-1] == wanted else 0.0)
    return rewards
