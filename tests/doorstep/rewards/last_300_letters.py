import re


def compute_score(solution_str, ground_truth):
    tail = solution_str[-300:]
    found = re.findall(r"#### (-?[0-9.,]+)", tail)
    return float(bool(found) and found[-1].replace(",", "").rstrip(".") == ground_truth)


def score(completions, answer, **kwargs):
    return [compute_score(c, a.split("#### ")[-1]) for c, a in zip(completions, answer)]
