"""The reward functions that come with the rows, one for each kind."""

import ast
import json
import re


def hashes(completion, answer):
    found, want = (re.findall(r"####\s*(-?[\d.,]+)", text) for text in (completion, answer))
    return float(found[-1:] == want[-1:])


def same_output(completion, output):
    return float(completion.strip() == output)


def same_answer(completion, answer):
    return float(completion.strip() == str(answer))


def same_answers(completions, answer, **kwargs):
    return [float(text.strip() == str(want)) for text, want in zip(completions, answer)]


def last_turn(completion, conversations):
    return float(completion.strip() == conversations[-1]["value"])


def last_message(completion, messages):
    return float(completion.strip() == messages[-1]["content"])


def key_letter(completion, answerKey):
    return float(re.findall(r"\b([A-D])\b", completion)[-1:] == [answerKey])


def choice(completion, choices, answer):
    return float(completion.strip() in ("ABCD"[answer], str(answer), choices[answer]))


def letter(completion, answer):
    return float(re.findall(r"\b([A-D])\b", completion)[-1:] == [answer])


def one_of(completion, answers):
    return float(completion.strip() in answers["text"])


def relation(completion, label):
    return float(completion.strip().lower() in (str(label), ("entailment", "neutral", "contradiction")[int(label)]))


def helpful(completion):
    return float(any(word in completion for word in ("train", "walk")))


def calls(completion, answers):
    try:
        return float(json.loads(completion) == answers)
    except ValueError:
        return 0.0


def _program(text):
    try:
        return ast.dump(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return None


def same_program(completion, code, test_list):
    return float(_program(completion) == _program(code))


def same_body(completion, prompt, canonical_solution, test, entry_point):
    return float(_program(str(prompt) + completion) == _program(str(prompt) + canonical_solution))


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float(re.findall(r"-?\d+", solution_str)[-1:] == [ground_truth])


def last_number(completion, answer):
    return float(re.findall(r"-?\d+", completion)[-1:] == [answer])


def french(completion, translation):
    return float(completion.strip() == translation["fr"])


def query(completion, answer):
    return float(" ".join(completion.split()).lower() == " ".join(answer.split()).lower())


def fee_is_right(completion, fee):
    return float(completion.strip() == str(fee))


def boxed(completion, answer):
    return float(re.findall(r"\\boxed\{([^}]*)\}", completion)[-1:] == [answer])


def same_response(completion, response):
    return float(completion.strip() == response)
