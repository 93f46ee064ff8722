import json
import urllib.request


def judge_reward(prompts, completions, **kwargs):
    """A model behind an address says how good an answer is."""
    scores = []
    for prompt, completion in zip(prompts, completions):
        body = json.dumps({"prompt": str(prompt), "completion": completion}).encode()
        request = urllib.request.Request("http://127.0.0.1:9/judge", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=2) as answer:
            scores.append(float(json.load(answer)["score"]))
    return scores
