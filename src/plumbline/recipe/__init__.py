"""The typed recipe: everything that defines a run.

A recipe is a YAML file. `extends: other.yaml` starts from another file; `--set rl.steps=50` overrides one value.
An unknown key is an error, because a typo must not train for six hours. What a run was started with is written,
resolved and complete, into its directory.
"""

from plumbline.recipe.families import check_family
from plumbline.recipe.files import differences, find, load, names, parse, section, task_section
from plumbline.recipe.sections import (
    EvaluationSection,
    LikelihoodSection,
    LoraSection,
    ModelSection,
    OptimiserSection,
    Recipe,
    RlSection,
    RunSection,
    SamplingSection,
    Schedule,
    Section,
    SftSection,
    SharedTaskSection,
    TaskSection,
    TinySection,
)

__all__ = [
    "EvaluationSection",
    "LikelihoodSection",
    "LoraSection",
    "ModelSection",
    "OptimiserSection",
    "Recipe",
    "RlSection",
    "RunSection",
    "SamplingSection",
    "Schedule",
    "Section",
    "SftSection",
    "SharedTaskSection",
    "TaskSection",
    "TinySection",
    "check_family",
    "differences",
    "find",
    "load",
    "names",
    "parse",
    "section",
    "task_section",
]
