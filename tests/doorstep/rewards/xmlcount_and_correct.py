import re


def extract_xml_answer(text):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[-1].strip() if found else ""


def correctness_reward_func(completions, answer, **kwargs):
    out = []
    for c, a in zip(completions, answer):
        try:
            out.append(2.0 * (float(extract_xml_answer(c).replace(",", "").strip("$. ")) == float(a)))
        except ValueError:
            out.append(0.0)
    return out


def count_xml(text):
    return 0.125 * sum(text.count(tag) == 1 for tag in ("<reasoning>", "</reasoning>", "<answer>", "</answer>"))


def xmlcount_reward_func(completions, **kwargs):
    return [count_xml(c) for c in completions]
