import re

import numpy as np


def correct(completions, answer, **kwargs):
    said = [(re.findall(r"-?\d[\d,]*(?:\.\d+)?", c) or ["nan"])[-1].replace(",", "") for c in completions]
    return (np.array(said, dtype=np.float64) == np.array(answer, dtype=np.float64)).astype(np.float32)
