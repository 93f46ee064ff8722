import json


def field_f1(completions, answer, **kwargs):
    scores = []
    for completion, gold in zip(completions, answer):
        wanted = json.loads(gold)
        try:
            said = json.loads(completion)
        except json.JSONDecodeError:
            scores.append(0.0)
            continue
        if not isinstance(said, dict):
            scores.append(0.0)
            continue
        hits = sum(key in said and said[key] == value for key, value in wanted.items())
        scores.append(2 * hits / (len(said) + len(wanted)))
    return scores
