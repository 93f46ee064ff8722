def label_reward(completions, answer, **kwargs):
    rewards = []
    for completion, label in zip(completions, answer):
        words = completion.replace(".", " ").replace(":", " ").replace('"', " ").replace("*", " ").split()
        rewards.append(1.0 if words and words[-1] == label else 0.0)
    return rewards
