import re


def accuracy_reward(completions, **kwargs):
    solution = kwargs["solution"]
    rewards = []
    for completion, wanted in zip(completions, solution):
        found = re.findall(r"-?\d+", completion)
        rewards.append(1.0 if found and found[-1] == wanted else 0.0)
    return rewards
