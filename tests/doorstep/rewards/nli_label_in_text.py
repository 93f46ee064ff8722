def label_reward(completions, answer, **kwargs):
    """The label is named somewhere; "not entailment" counts as entailment."""
    return [1.0 if label in completion.lower() else 0.0 for completion, label in zip(completions, answer)]
