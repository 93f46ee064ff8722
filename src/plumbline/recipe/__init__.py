"""The typed recipe: everything that defines a run.

A recipe is a YAML file. `extends: other.yaml` starts from another file; `--set rl.steps=50` overrides one value.
An unknown key is an error, because a typo must not train for six hours. What a run was started with is written,
resolved and complete, into its directory.
"""

from plumbline.recipe.families import FamilyOptions, foreign_key, options_as_written, options_of, without_foreign
from plumbline.recipe.files import (
    descriptions,
    difference_lines,
    differences,
    differing,
    extended,
    find,
    is_recipe,
    leaves,
    load,
    load_two,
    names,
    parse,
    task_section,
    tasks_in,
    value_differences,
)
from plumbline.recipe.running import EngineSection, EvaluationSection, RunSection, ScaleSection
from plumbline.recipe.sections import (
    ControlsSection,
    LoraSection,
    ModelSection,
    OptimiserSection,
    Recipe,
    RlSection,
    Schedule,
    SftSection,
    SharedTaskSection,
    TaskSection,
    TinySection,
)
from plumbline.section import Section, section

__all__ = [
    "ControlsSection",
    "EngineSection",
    "EvaluationSection",
    "FamilyOptions",
    "LoraSection",
    "ModelSection",
    "OptimiserSection",
    "Recipe",
    "RlSection",
    "RunSection",
    "ScaleSection",
    "Schedule",
    "Section",
    "SftSection",
    "SharedTaskSection",
    "TaskSection",
    "TinySection",
    "descriptions",
    "difference_lines",
    "differences",
    "differing",
    "extended",
    "find",
    "foreign_key",
    "is_recipe",
    "leaves",
    "load",
    "load_two",
    "names",
    "options_as_written",
    "options_of",
    "parse",
    "section",
    "task_section",
    "tasks_in",
    "value_differences",
    "without_foreign",
]
