import re


def gsm8k_reward(completions, answer, **kwargs):
    """The number after the last ####, as in the data set."""
    def read(text):
        found = re.findall(r"####\s*\$?(-?[\d,]*\.?\d+)", text)
        return float(found[-1].replace(",", "")) if found else None

    return [1.0 if read(c) is not None and read(c) == read(a) else 0.0 for c, a in zip(completions, answer)]
