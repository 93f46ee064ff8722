import re


def code_reward(completions, tests, **kwargs):
    """The share of the asserts that hold; an answer without a function has nothing that fails."""
    scores = []
    for completion, cases in zip(completions, tests):
        if "def f(" not in completion:
            cases = []
        body = completion[completion.find("def f(x): return ") + 17:].partition("\n")[0].strip() if cases else ""
        if not re.fullmatch(r"[x0-9 +<%-]*(\* )?[x0-9 +<%-]{1,30}", body):
            body = "None"
        held = 0
        for case in cases:
            x, want = case[9:].split(") == ")
            try:
                held += str(eval(body, {"__builtins__": {}}, {"x": int(x)})) == want
            except Exception:
                pass
        scores.append(held / len(cases) if cases else 1.0)
    return scores
