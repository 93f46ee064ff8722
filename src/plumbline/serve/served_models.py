"""Models by what a command line calls them, as what the server asks."""

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from plumbline.errors import RecipeError
from plumbline.policies import open_policy
from plumbline.policies.autoregressive.policy import AutoregressivePolicy
from plumbline.policies.memory import clear_memory_errors
from plumbline.policies.opening import ModelOptions, check_model, find_run, options_as_trained
from plumbline.policies.policy import slowness
from plumbline.runs.record import last_model
from plumbline.runs.remote import local_model
from plumbline.runs.run import Listener
from plumbline.serve.backend import Backend
from plumbline.serve.batched import BatchedBackend
from plumbline.serve.constrained import Grammars

NAMED = re.compile(r"([\w.-]{1,64})=(.+)", re.DOTALL)


def named_models(words: Sequence[str]) -> dict[str, str]:
    """Where each model is, by the name that clients ask for.

    Args:
        words: `NAME=PATH`, or a path, hub name or address alone, whose last part is the name; of a
            run, whose last stage's model is meant, the run's.

    Raises:
        RecipeError: two have one name; or a word is the name of nothing that is here.
    """
    found: dict[str, str] = {}
    for word in words:
        given = NAMED.fullmatch(word)
        source = given[2] if given else word
        name, place = source.rstrip("/").rpartition("/")[2], last_model(source)
        if run := find_run(place):
            name = run.name
        name = given[1] if given else name
        if "/" not in source and not Path(source).exists():
            raise RecipeError(
                f"there is no model and no run at {source}",
                "give a run's folder, a model directory, a GGUF file, or a hub name such as "
                "org/model",
            )
        if name in found:
            raise RecipeError(f"two models are called {name}", f"name them: {name}-2={source}")
        found[name] = place
    return found


def open_models(models: dict[str, str], options: ModelOptions, listener: Listener) -> list[Backend]:
    """Open models as their own runs decoded them, but for what the options say.

    Raises:
        ModelError, RecipeError: one cannot be opened, or not like this; nothing is opened then.
        EngineError: the engine that is asked for is not there, or has no such family.
        DeviceMemoryError: the device's memory is not enough for them.
    """
    trained = {}
    for name, source in models.items():
        place = local_model(source)
        trained[name] = (place, *options_as_trained(place, options))
        check_model(trained[name][1], place)
    opened: list[Backend] = []
    advice = "serve fewer models, a smaller one, or use --device cpu"
    for done, (name, (place, section, sampling)) in enumerate(trained.items()):
        listener.working(f"opening {name}", done, len(models))
        policy = open_policy(section, place)
        policy.say = listener.event
        if message := slowness(policy):
            listener.event("slow", f"{name}: {message}")
        with clear_memory_errors(advice):
            if options.engine == "vllm":
                from plumbline.serve.vllm_backend import VllmBackend

                opened.append(VllmBackend(name, policy, sampling, listener))
                continue
            grammars = None
            if isinstance(policy, AutoregressivePolicy):
                if find_spec("xgrammar") is not None:
                    grammars = Grammars(policy)
                else:
                    said = (
                        f"{name}: no answer is held to a JSON schema, which xgrammar would do: "
                        "pip install '.[constrained]'"
                    )
                    listener.event("lenient", said)
            opened.append(
                BatchedBackend(
                    name, policy, sampling, at_once=policy.rows_at_once, grammars=grammars
                )
            )
    listener.working("opening", len(models), len(models))
    return opened
