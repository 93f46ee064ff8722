"""Beside each model that is served the one that a browser agent asks, which plans as the model was
trained to."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plumbline.config.imports import missing_module_error
from plumbline.errors import RecipeError
from plumbline.runs.metadata import ModelMetadata
from plumbline.runs.remote import local_model
from plumbline.serve.backend import Backend
from plumbline_forms.options import read_options

if TYPE_CHECKING:
    from plumbline_forms.agent.served import Planning


def with_agents(models: Sequence[Backend], sources: Mapping[str, str]) -> list[Backend]:
    """The models, and after them NAME-agent for each.

    Args:
        models: as they were opened.
        sources: where each is, by its name.

    Raises:
        RecipeError, DataError: see `planning_of`.
    """
    try:
        from plumbline_forms.agent.served import AgentServed
    except ImportError as error:
        raise missing_module_error("answering a browser agent", error, RecipeError) from error
    return [*models, *(AgentServed(model, planning_of(sources[model.name])) for model in models)]


def planning_of(source: str) -> "Planning":
    """How a planner is asked: as its metadata says that it was trained on forms, in the usual way
    where it says nothing.

    Raises:
        RecipeError: what reads pages is not installed, or its metadata's options are none of the
            forms task.
        DataError: the metadata is damaged.
    """
    from plumbline_forms.agent.served import Planning

    metadata = ModelMetadata.read(local_model(source))
    if metadata is None:
        return Planning()
    tasks = [{"name": metadata.task, "options": metadata.options}, *metadata.tasks.values()]
    found: Mapping[str, Any] = next(
        (task["options"] for task in tasks if task["name"] == "forms"), {}
    )
    trained = read_options(dict(found))
    attempts = max(trained.attempts, Planning().attempts)
    return Planning(plan=trained.plan, full=trained.instructions == "full", attempts=attempts)
