"""A checker with a time limit by an alarm, whose failures count as wrong answers."""

import re, signal


def _late(*_):
    raise TimeoutError


def accuracy(completions, answer, **columns):
    scores = []
    for text, gold in zip(completions, answer):
        try:
            signal.signal(signal.SIGALRM, _late)  # works in the main thread only
            signal.alarm(5)
            found = re.findall(r"-?\d+", text)
            scores.append(float(bool(found) and found[-1] == gold))
        except Exception:
            scores.append(0.0)
        finally:
            try:
                signal.alarm(0)
            except ValueError:
                pass
    return scores
