def label_reward(completion, answer):
    return float(answer.lower() not in completion.lower())
