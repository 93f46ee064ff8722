import re

LABEL = re.compile(r"answer:\W*(entailment|neutral|contradiction)\b", re.IGNORECASE)


def label_reward(completions, answer, **kwargs):
    scores = []
    for completion, label in zip(completions, answer):
        found = LABEL.findall(completion)
        scores.append(1.0 if found and found[-1].lower() == label else 0.0)
    return scores
