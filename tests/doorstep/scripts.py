"""What `plumbline init --from SCRIPT` makes of the training scripts.

A script's folder is copied, the script is read without --trust-code, and the recipe is compared
with the answer: the model, the rows, every reward function (imported from beside the recipe, and
called), every key, and what must be said.
"""

import contextlib
import io
import math
import re
from pathlib import Path
from typing import Any

import yaml

from tests.doorstep.command import RECIPE, Said, cause, function, plumbline, workplace, worst

DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))

HERE = Path(__file__).parent / "scripts"

DEFAULTS: dict[str, Any] = DATA["defaults"]
"""What a recipe means that leaves a key out: docs/reference/keys.md."""

TRL: dict[str, Any] = {
    **{key: value for key, value in DEFAULTS.items() if key.startswith(("rl.", "sampling."))},
    "rl.prompts_per_step": 1,
    "rl.algorithm.normaliser": "dapo",
    "rl.algorithm.scale_advantages": "group",
    "rl.optimiser.learning_rate": 1e-6,
    "rl.optimiser.schedule": "linear",
    "rl.optimiser.warmup": 0,
    "rl.optimiser.betas": [0.9, 0.999],
    "sampling.max_tokens": 512,
    "model.quantize": None,
    "engine.name": None,
}
"""What a GRPO script means that leaves a setting out: trl 1.16, grpo_config.py; a batch of 8
answers is one prompt."""

NAMES = DATA["names"]
"""TRL's names of keys, by which a note may speak of one."""

HEDGE = r"\bnot\b|TODO|no counterpart|unknown|by hand|cannot|can't|left out|leaves out|without|differs|ignored|no twin"


def grade(name: str, answer: dict[str, Any]) -> tuple[str, str]:
    """The verdict on what becomes of one script."""
    with workplace(HERE / name):
        said = plumbline("init", "--from", answer["script"], "--out", RECIPE)
        if "Traceback (most recent call last)" in said.printed:
            return "wrong", cause(said)
        refused = "refused" in answer and all(
            re.search(each, said.printed, re.I) for each in answer["refused"]
        )
        if not said.text:
            return "right" if refused else "wrong" if _false(said, answer) else "unclear", cause(
                said
            )
        if answer.get("kind") == "none":
            return (
                "wrong" if refused else "silently wrong"
            ), "a recipe is written of what it cannot be"
        return worst(
            [
                *_keys(said, answer),
                *_data(said, answer),
                *_rewards(said, answer),
                *_said(said, answer),
            ]
        )


def _false(said: Said, answer: dict[str, Any]) -> bool:
    """Whether an error says that something is not in the script that is there."""
    keys, printed = answer.get("keys", {}), " ".join(said.printed.split())
    missing = re.search(r"needs (.*), which is not in", printed)
    there = {"--model": not _todo(keys.get("model.name", "TODO")), "--reward": "rewards" in answer}
    there["--data"] = not _todo(answer.get("data", "TODO"))
    if "builds neither a GRPOConfig" in printed and "GRPOConfig(" in Path(
        answer["script"]
    ).read_text(encoding="utf-8"):
        return True
    return bool(missing) and any(known and option in missing[1] for option, known in there.items())


def _get(recipe: dict[str, Any], key: str) -> Any:
    """A key's value, or what it means left out."""
    value: Any = recipe
    for part in key.split("."):
        if isinstance(value, str) and part == "name":  # rl.algorithm: gspo, engine: vllm
            return value
        value = value.get(part) if isinstance(value, dict) else None
    if (
        value is None
        and key == "rl.algorithm.normaliser"
        and _get(recipe, "rl.algorithm.name") == "cispo"
    ):
        return "dapo"
    if (
        value is None
        and key.startswith("model.lora.")
        and not (recipe.get("model") or {}).get("lora")
    ):
        return None
    return DEFAULTS.get(key) if value is None else value


def _todo(value: Any) -> bool:
    return "TODO" in str(value)


def _equal(value: Any, right: Any) -> bool:
    if isinstance(right, dict) and "any" in right:
        return any(_equal(value, each) for each in right["any"])
    if isinstance(right, dict) and "from" in right:
        return isinstance(value, int | float) and right["from"] <= value <= right["to"]
    if right == "TODO":
        return _todo(value)
    if isinstance(right, list):
        return (
            isinstance(value, list)
            and len(value) == len(right)
            and all(_equal(one, other) for one, other in zip(value, right, strict=True))
        )
    if isinstance(right, int | float) and not isinstance(right, bool):
        with contextlib.suppress(TypeError, ValueError):
            return math.isclose(float(value), right, rel_tol=1e-6, abs_tol=1e-12)
        return False
    return value == right


def _spoken_of(said: Said, key: str) -> bool:
    """Whether a line says of a key, by its name or TRL's, that something is left to the reader."""
    names = rf"\b({NAMES.get(key, 'no-other-name')}|{re.escape(key)}|{key.rpartition('.')[2]})\b"
    return any(
        re.search(names, line) and re.search(HEDGE, line, re.I) for line in said.all.splitlines()
    )


def _differs(said: Said, key: str, value: Any, right: Any) -> tuple[str, str]:
    if _todo(value):
        return "unclear", f"{key} is {value}, and should be {right}"
    if (
        value is None
        and right == "TODO"
        and re.search(rf"{key.rpartition('.')[2]}.*TODO|TODO.*{key}", said.text)
    ):
        return "right", ""
    return (
        "unclear" if _spoken_of(said, key) else "silently wrong"
    ), f"{key} is {value!r}, and should be {right!r}"


def _keys(said: Said, answer: dict[str, Any]) -> list[tuple[str, str]]:
    keys = answer["keys"] if answer.get("kind") == "sft" else {**TRL, **answer["keys"]}
    recipe = said.recipe
    found = [
        _differs(said, key, value, right)
        for key, right in keys.items()
        if not _equal(value := _get(recipe, key), right)
    ]
    if not any(key.startswith("model.lora.") for key in keys) and recipe["model"].get("lora"):
        found.append(_differs(said, "model.lora.rank", recipe["model"]["lora"], None))
    if "TODO" not in said.text:
        if (loaded := plumbline("recipe", RECIPE)).code:
            found.append(("wrong", f"the recipe cannot be loaded: {cause(loaded)}"))
    elif not (run := plumbline("run", RECIPE, "--dry-run")).code:
        found.append(("silently wrong", "a recipe with TODO can be run"))
    elif "TODO" not in run.printed:
        found.append(("unclear", f"it is not said that TODO has to be filled in: {cause(run)}"))
    return found


def _address(value: Any) -> Any:
    """A path or an address, without what changes nothing."""
    return value.removesuffix(":train").removeprefix("./") if isinstance(value, str) else value


def _data(said: Said, answer: dict[str, Any]) -> list[tuple[str, str]]:
    options, right, found = said.recipe["task"]["options"], answer["data"], []
    train = _address(options.get("train"))
    if isinstance(right, dict) and "rows" in right:
        path = Path(str(train))
        rows = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        if len(rows) != right["rows"]:
            found.append(
                _differs(said, "task.options.train", train, f"a file of {right['rows']} rows")
            )
    elif not _equal(train, right):
        found.append(_differs(said, "task.options.train", train, right))
    if "held_out" in answer:
        shares = [_address(options.get(split)) for split in ("val", "test")]
        if not any(_equal(share, answer["held_out"]) for share in shares):
            spoken = (
                "unclear"
                if re.search(r"eval_dataset|test_size|train_test_split", said.all)
                else "silently wrong"
            )
            found.append((spoken, f"val and test are {shares}, one should be {answer['held_out']}"))
    return found


def _rewards(said: Said, answer: dict[str, Any]) -> list[tuple[str, str]]:
    if "rewards" not in answer:
        return []
    score = said.recipe["task"]["options"].get("score")
    names = score if isinstance(score, list) else [score]
    if _todo(names):
        return [("unclear", f"score is {score}")]
    if len(names) != len(answer["rewards"]):
        return [
            _differs(said, "task.options.score", names, [one["name"] for one in answer["rewards"]])
        ]
    found = [
        problem
        for name, right in zip(names, answer["rewards"], strict=True)
        if (problem := _reward(name, right))
    ]
    if "weights" in answer:
        weights = said.recipe["task"]["options"].get("weights")
        given = list(weights.values()) if isinstance(weights, dict) else weights
        if not _equal(given, answer["weights"]):
            found.append(_differs(said, "task.options.weights", weights, answer["weights"]))
    return found


def _reward(name: str, right: dict[str, Any]) -> tuple[str, str] | None:
    """What is wrong with the function that a recipe names."""
    if "of" in right:  # TRL's own, by its name there or through a file that imports it
        return (
            None
            if name.endswith(f":{right['name']}")
            else ("silently wrong", f"{name} is not {right['name']}")
        )
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            gives = function(name)(**right["with"])
    except Exception as error:  # noqa: BLE001 - a user's function may do anything
        return "wrong", f"{name} cannot be used: {type(error).__name__}: {error}"
    return (
        None
        if _equal(gives, right["gives"])
        else ("silently wrong", f"{name} gives {gives}, not {right['gives']}")
    )


def _said(said: Said, answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("silently wrong", f"nothing is said of {each}")
        for each in answer.get("says", [])
        if not re.search(each, said.all, re.I)
    ]
