"""Reward functions as TRL takes them, for `rows.jsonl`: the README audits them."""

import re


def accuracy(completions, answer, **_):
    """1.0 where the number stands anywhere in the text: the fault that the audit finds."""
    return [
        float(gold in re.findall(r"-?\d+", text))
        for text, gold in zip(completions, answer, strict=True)
    ]


def form(completions, **_):
    """0.5 for any text behind `####`."""
    return [0.5 * bool(re.search(r"#### \S", text)) for text in completions]


def exact(completions, answer, **_):
    """1.0 where the last number behind `####` is right: the same task, mended."""
    return [
        float(re.findall(r"#### *(-?\d+)", text)[-1:] == [gold])
        for text, gold in zip(completions, answer, strict=True)
    ]
