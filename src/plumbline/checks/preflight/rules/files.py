"""What a remote job would not have: files that git ignores; and what would come out otherwise on another machine."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.preflight.before import Before, Check, Lacking
from plumbline.checks.preflight.shapes import is_hub_name
from plumbline.config.imports import code_file
from plumbline.policies.downloads.get import ENTRIES
from plumbline.recipe import Recipe, extended, leaves, names

SECONDS = 10


def ignored(before: Before) -> Iterator[Finding]:
    """A team lost jobs so: what packs a working tree for a cluster leaves out what git ignores."""
    wanted = {
        path: key
        for path, key in needed(before.recipe, before.file)
        if key != "model.name" or not _made(path)  # what a command makes anew is fetched there, too
    }
    if not wanted:
        return
    rules = _rules(list(wanted))
    if not rules:
        return
    path, rule = next(iter(rules.items()))
    only_model = all(wanted[one] == "model.name" for one in rules)  # which jobs fetch, as a rule
    yield Finding(
        "ignored-files",
        "note" if only_model else "warning",
        f"git ignores {len(rules)} of the {len(wanted)} files that this recipe reads, for example {path} "
        f"({wanted[path]}; {rule}): a job on another machine that is sent the working tree will not have them",
        evidence={"files": {str(one): {"key": wanted[one], "rule": said} for one, said in rules.items()}},
        causes=("data are kept out of git, and packages for a cluster (Ray's working_dir) go by .gitignore",),
        fix="let the job fetch or build them first, or name them to what packs the job; check there with this command",
    )


def needed(recipe: Recipe, file: Path | None) -> Iterator[tuple[Path, str]]:
    """Files and folders that a run reads, by what names them, as far as they are there; relative to where it runs.

    Args:
        recipe: of the run.
        file: of the recipe, where it is in one.

    Raises:
        RecipeError: the file, or one that it extends, cannot be read.
    """
    if file is not None:
        yield file, "the recipe"
        yield from ((one, "extends") for one in extended(file))
    for name, section in recipe.each_task.items():
        prefix = f"tasks.{name}" if name else "task"
        yield from _module(section.name, f"{prefix}.name")
        for key, value in _texts(section.options):
            yield from _module(value, f"{prefix}.options.{key}")
            if value and len(value) < 1000 and "\n" not in value and Path(value).exists():
                yield Path(value), f"{prefix}.options.{key}"
    yield from _module(recipe.model.family, "model.family")
    template = recipe.model.chat_template
    if template is not None and Path(template).is_file():
        yield Path(template), "model.chat_template"
    if recipe.model.name is not None and (place := Path(recipe.model.name)).exists():
        yield place, "model.name"


def _texts(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in leaves(dict(options)):
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str):
                yield key, one


def _module(name: str, key: str) -> Iterator[tuple[Path, str]]:
    """The file of `module:function`, where it is the user's own."""
    module, _, function = name.partition(":")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        return
    file = code_file(module)
    if file is not None and Path.cwd() in file.parents and "site-packages" not in file.parts:
        yield file, key


def _made(model: Path) -> bool:
    """Whether a command makes it: `plumbline get`, or the run of one of our recipes."""
    folder, name, *_ = *model.parts, "", ""
    return (folder == "models" and name in {entry.name for entry in ENTRIES}) or (folder == "runs" and name in names())


def _rules(paths: list[Path]) -> dict[Path, str]:
    """The rule that ignores each path that is ignored.

    Raises:
        Lacking: nobody can say.
    """
    found, answered = {}, False
    for path in paths:
        place = path if path.is_dir() else path.parent
        try:
            asked = subprocess.run(  # noqa: S603
                ["git", "-C", str(place), "check-ignore", "-v", "--", str(path.resolve())],  # noqa: S607
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            raise Lacking("git") from None
        answered |= asked.returncode in {0, 1}  # 128: not in a work tree
        if asked.returncode == 0:
            found[path] = asked.stdout.partition("\t")[0]
    if not answered:
        raise Lacking("a git work tree")
    return found


def reproducible(before: Before) -> Iterator[Finding]:
    """What is not pinned, as far as the recipe shows it."""
    model = before.recipe.model
    why = []
    if model.name is not None and is_hub_name(model.name):
        why.append(f"{model.name} is fetched as it is on that day (no revision is named)")
    if model.trust_remote_code:
        why.append("model.trust_remote_code runs code that its author may change")
    if model.name is None and model.threads is None:
        why.append(
            "model.threads is not set: sums are rounded by how many a machine has, and a tiny model's result goes by it"
        )
    if why:
        yield Finding(
            "reproducible",
            "note",
            "the same recipe can give another result elsewhere: " + "; ".join(why),
            evidence={"seed": before.recipe.seed},
            fix="keep a copy of the model and name its directory" if model.name is not None else "model.threads: 1",
            change={} if model.name is not None else {"model.threads": 1},
        )


IGNORED = Check(
    name="ignored-files", asks="whether git ignores files that a job elsewhere needs", look=ignored, cheap=False
)
REPRODUCIBLE = Check(name="reproducible", asks="what is not pinned", look=reproducible, cheap=False)
