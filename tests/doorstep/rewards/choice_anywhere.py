def choice_reward(completions, answer, **kwargs):
    return [1.0 if letter in completion else 0.0 for completion, letter in zip(completions, answer)]
