import re


class NumberReward:
    """A reward with settings, as an object."""

    def __init__(self, pattern):
        self.pattern = re.compile(pattern)
        self.__name__ = "number_reward"

    def __call__(self, completions, answer, **kwargs):
        return [self.one(c, a) for c, a in zip(completions, answer)]

    def one(self, completion, wanted):
        found = self.pattern.findall(completion)
        return float(bool(found) and float(found[-1].replace(",", "")) == float(wanted))


reward = NumberReward(r"-?\d[\d,]*(?:\.\d+)?")
