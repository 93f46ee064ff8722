"""How judged rollouts become a gradient. `ALGORITHMS` lists what `rl.algorithm` may name: one file
each.

A new one is a file with a class that inherits `Algorithm`, and a line here;
docs/reference/algorithms.md compares them.
"""

from plumbline.algorithms.algorithm import Algorithm
from plumbline.algorithms.cispo import Cispo
from plumbline.algorithms.distil import Distil
from plumbline.algorithms.dpo import Dpo
from plumbline.algorithms.espo import Espo
from plumbline.algorithms.gdpo import Gdpo
from plumbline.algorithms.grpo import Grpo
from plumbline.algorithms.gspo import Gspo
from plumbline.algorithms.just_grpo import JustGrpo
from plumbline.algorithms.rft import Rft

ALGORITHMS: dict[str, type[Algorithm]] = {
    "grpo": Grpo,
    "gspo": Gspo,
    "cispo": Cispo,
    "just_grpo": JustGrpo,
    "espo": Espo,
    "gdpo": Gdpo,
    "rft": Rft,
    "dpo": Dpo,
    "distil": Distil,
}
