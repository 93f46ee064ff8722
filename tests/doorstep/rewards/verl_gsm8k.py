import re


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"####\s*\$?(-?[\d,]*\.?\d+)", solution_str)
    if not found:
        return 0.0
    try:
        return 1.0 if float(found[-1].replace(",", "")) == float(ground_truth) else 0.0
    except ValueError:
        return 0.0
