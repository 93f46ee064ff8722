def accuracy(completions, answer, **kwargs):
    scores = []
    for completion, gold in zip(completions, answer):
        said = completion.split("####")[1].strip()
        scores.append(1.0 if said == gold.split("####")[1].strip() else 0.0)
    return scores
