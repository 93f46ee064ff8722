"""The typed recipe: everything that defines a run.

A recipe is a YAML file. `extends: other.yaml` starts from another file; `--set rl.steps=50` overrides one value.
An unknown key is an error, because a typo must not train for six hours. What a run was started with is written,
resolved and complete, into its directory.
"""

from plumbline.recipe.families import FamilyOptions, options_as_written, options_of, without_foreign
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
    Schedule,
    Section,
    SftSection,
    SharedTaskSection,
    TaskSection,
    TinySection,
)

__all__ = [
    "EvaluationSection",
    "FamilyOptions",
    "LikelihoodSection",
    "LoraSection",
    "ModelSection",
    "OptimiserSection",
    "Recipe",
    "RlSection",
    "RunSection",
    "Schedule",
    "Section",
    "SftSection",
    "SharedTaskSection",
    "TaskSection",
    "TinySection",
    "differences",
    "find",
    "load",
    "names",
    "options_as_written",
    "options_of",
    "parse",
    "section",
    "task_section",
    "without_foreign",
]
