import re


def correctness_reward_func(completions, answer, **kwargs):
    said = [c.split("<answer>")[-1].split("</answer>")[0].strip() for c in completions]
    return [2.0 if s == a else 0.0 for s, a in zip(said, answer)]


def strict_format_reward_func(completions, **kwargs):
    pattern = r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$"
    return [0.5 if re.match(pattern, c) else 0.0 for c in completions]


def soft_format_reward_func(completions, **kwargs):
    pattern = r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>"
    return [0.5 if re.match(pattern, c) else 0.0 for c in completions]
