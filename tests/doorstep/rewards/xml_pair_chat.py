import re


def extract_xml_answer(text):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[-1].strip() if found else ""


def same_number(said, want):
    try:
        return float(said.replace(",", "").strip("$. ")) == float(want)
    except ValueError:
        return False


def correctness_reward_func(prompts, completions, answer, **kwargs):
    responses = [extract_xml_answer(c[0]["content"]) for c in completions]
    print("-" * 20, f"Question:\n{prompts[0][-1]['content']}", f"\nAnswer:\n{answer[0]}", f"\nResponse:\n{completions[0][0]['content']}")
    return [2.0 if same_number(r, a) else 0.0 for r, a in zip(responses, answer)]


def format_reward_func(completions, **kwargs):
    pattern = r"\s*<reasoning>.*?</reasoning>\s*<answer>.*?</answer>\s*"
    return [0.5 if re.fullmatch(pattern, c, re.DOTALL) else 0.0 for c in (one[0]["content"] for one in completions)]
