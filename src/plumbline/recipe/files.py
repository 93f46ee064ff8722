"""Recipes as files: where they are, what they extend, what is laid over them, and what is wrong
with them."""

import copy
import difflib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from plumbline.config.imports import consent, note_file_text, note_typed, plugins
from plumbline.config.overrides import (
    as_mapping,
    read_package_yaml,
    read_yaml,
    set_value,
    task_options,
)
from plumbline.config.section import section
from plumbline.errors import RecipeError
from plumbline.recipe.families import (
    build_recipe_type,
    check_family_keys,
    explain_foreign_key,
    is_untrusted_family,
    options_as_written,
    options_of,
    without_foreign,
)
from plumbline.recipe.sections import NO_RESULT, ModelSection, Recipe, TaskSection
from plumbline.records import Values
from plumbline.storage import SMALL, dumps, read_text

MOST_PARENTS = 20
"""Recipes that a recipe may extend, one after the other."""
TODO = "TODO"
"""The value of a key that is still open: nothing starts from a recipe that has one."""
_GROUP = re.compile(r"# Group (\d+): (.+)")
_HUB = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
DATA = (".jsonl", ".csv", ".parquet")
MOST_FILES = 200
"""Files that are read for one recipe: a recipe may extend several, and each of these several
again."""


def load_recipe(
    source: str | Path,
    overrides: Sequence[str] = (),
    *,
    written: bool = False,
    trust_code: bool = False,
) -> Recipe:
    """Read a recipe file, what it extends, and overrides such as `rl.steps=50`.

    Args:
        source: a path, or the name of a bundled recipe (`plumbline recipe` lists them).
        overrides: `a.b=value` each; the value is read as YAML.
        written: see `parse_recipe`.
        trust_code: import the family of models that the file names, so that its options are
            checked.

    Raises:
        RecipeError: no such file, not YAML, an unknown key or a value out of range (each named with
            its path).
    """
    path = find_recipe(source)
    values = _read_with_parents(path, (), [])
    for override in overrides:
        set_value(values, override)
    with consent(everything=trust_code):
        note_typed(overrides)
        return parse_recipe(values, str(path), written=written)


def task_section(name: str, overrides: Sequence[str]) -> TaskSection:
    """The task that a command without a recipe of its own names, with its options.

    Args:
        name: a task, or the path of a recipe (`.yaml`, `.yml`), whose task is meant; of several,
            PATH:NAME.
        overrides: `task.options.a=value` each.

    Raises:
        RecipeError: the recipe cannot be read, or an override is not of the task's options.
    """
    options = task_options(overrides)
    path, _, one = name.partition(":")
    if Path(path).suffix not in {".yaml", ".yml"}:
        return TaskSection(name=name, options=options)
    tasks = load_recipe(path).each_task
    if one not in tasks:
        raise RecipeError(
            f"{path} has {len(tasks)} tasks, and {one or 'none of them'} was named"
            if "" not in tasks
            else f"{path} has one task, which has no name",
            f"give {' or '.join(list_task_names(path))}",
        )
    task = tasks[one]
    return TaskSection(name=task.name, options={**task.options, **options})


def read_sampling(task: str) -> Mapping[str, Any]:
    """What the recipe that is named as a command's task writes of `sampling`; nothing where that is
    no recipe.

    Raises:
        RecipeError: the recipe cannot be read.
    """
    path = task.partition(":")[0]
    if Path(path).suffix not in {".yaml", ".yml"}:
        return {}
    written = _read_with_parents(find_recipe(path), (), []).get("sampling")
    return written if isinstance(written, Mapping) else {}


def list_task_names(path: str) -> list[str]:
    """What `task_section` takes for each task of a recipe.

    Raises:
        RecipeError: the recipe cannot be read.
    """
    return [f"{path}:{name}" if name else path for name in load_recipe(path).each_task]


def parse_recipe(
    values: Mapping[str, Any], name: str = "recipe", *, written: bool = False
) -> Recipe:
    """Check plain values and type them; `model` and `sampling` are checked by what the family
    declares.

    Args:
        values: by key.
        name: what an error calls the place that they are from.
        written: they are of a run, so they were checked: a family of one's own need not be there
            any more. The options of a family that may not be imported (see
            `plumbline.config.imports.is_allowed`) are not checked either.

    Raises:
        RecipeError: names every value that is `TODO`; or every wrong key, with the nearest right
            one or with the families that read it; there is no such family.
    """
    if not written and (
        todo := [
            key for key, value in walk_leaves(values) if value == TODO and key != "description"
        ]
    ):
        raise RecipeError(
            f"{name} is not finished: {', '.join(todo[:50])} {'is' if len(todo) == 1 else 'are'} "
            f"{TODO}",
            "write a value for each; the comment behind it says what is known",
        )
    parts = {
        key: each for key in ("model", "sampling") if isinstance(each := values.get(key), Mapping)
    }
    model, sampling = parts.get("model", {}), parts.get("sampling", {})
    family = model.get("family", ModelSection.model_fields["family"].default)
    if not isinstance(family, str):
        return section(Recipe, values, name)  # which says so
    written = written or is_untrusted_family(family)
    options = options_as_written(model, sampling) if written else options_of(family)
    own = {key: without_foreign(key, each, options) for key, each in parts.items()}
    recipe = section(build_recipe_type(options), {**values, **own}, name, hint=explain_foreign_key)
    if not written:
        check_family_keys(recipe)
    return recipe


def find_recipe(source: str | Path) -> Path:
    """The file that a path or a recipe's name means.

    Raises:
        RecipeError: there is none.
    """
    path, source = Path(source), str(source)
    mistaken = None
    if path.suffix.lower() in DATA or source.startswith("hf://"):
        mistaken = "data", "MODEL", shlex.quote(source)
    elif (
        (path / "config.json").is_file()
        or path.suffix.lower() == ".gguf"
        or (_HUB.fullmatch(source) and not path.exists() and path.suffix not in {".yaml", ".yml"})
    ):
        mistaken = "a model", shlex.quote(source), "FILE"
    if mistaken is not None:
        what, model, data = mistaken
        raise RecipeError(
            f"{source} is {what}, and a recipe is meant",
            f"write one: plumbline init --model {model} --data {data} --reward MODULE:FUNCTION",
        )
    if path.suffix in {".yaml", ".yml"} or path.exists():
        if path.is_file():
            return path
        raise RecipeError(f"no recipe at {path}", "`plumbline recipe` lists the bundled ones")
    for folder in _recipe_folders():
        if (folder / f"{path}.yaml").is_file():
            return folder / f"{path}.yaml"
    close = difflib.get_close_matches(source, list_recipe_names(), n=1)
    fix = (
        f"did you mean {close[0]}?"
        if close
        else "`plumbline recipe` lists the bundled ones, which environments bring: `pip install "
        "./environments/*` in a clone of Plumbline"
    )
    raise RecipeError(f"no recipe named {source}", fix)


def list_parents(source: str | Path) -> list[Path]:
    """The files that a recipe extends, and those that they extend, each once; without the file
    itself.

    Raises:
        RecipeError: one of them cannot be read.
    """
    found: list[Path] = []
    _read_with_parents(find_recipe(source), (), found)
    return [path for path in dict.fromkeys(found) if path != found[0]]


def is_recipe(source: str | Path) -> bool:
    """Whether a word means a recipe, and not some other path: a YAML file; or a bundled name, or
    one much like it, that is no path here."""
    path = Path(source)
    close = difflib.get_close_matches(str(source), list_recipe_names(), n=1, cutoff=0.8)
    return path.suffix in {".yaml", ".yml"} or (not path.exists() and bool(close))


def list_recipe_names() -> list[str]:
    """Names of the bundled recipes."""
    return sorted({path.stem for folder in _recipe_folders() for path in folder.glob("*.yaml")})


def read_descriptions() -> dict[str, str]:
    """What the bundled recipes are for, by name; they are read, and not checked, because that takes
    longer."""
    found = {}
    for name in list_recipe_names():
        path = find_recipe(name)
        values = read_package_yaml(path)
        if not isinstance(values, dict) or "description" not in values:
            values = _read_with_parents(path, (), [])  # that of what it extends
        found[name] = str(values.get("description", ""))
    return found


def group_recipes() -> dict[str, list[str]]:
    """The bundled recipes that a person would start, by the heading in their first line:
    `# Group 2: Heading`.

    The number orders the headings; a recipe without this line is in none of them.
    """
    groups: dict[tuple[int, str], list[str]] = {}
    for name in list_recipe_names():
        if match := _GROUP.match(read_text(find_recipe(name), RecipeError, SMALL)):
            groups.setdefault((int(match[1]), match[2]), []).append(name)
    return {heading: names for (_, heading), names in sorted(groups.items())}


def format_recipe_list(every: bool) -> str:
    """The bundled recipes with what they are for, under their headings; or all of them."""
    said = read_descriptions()
    groups = {"": [*said]} if every else group_recipes()
    width = max((len(name) for some in groups.values() for name in some), default=0)
    blocks = [
        (heading and f"{heading}\n") + "".join(f"  {name:{width}}  {said[name]}\n" for name in some)
        for heading, some in groups.items()
    ]
    rest = len(said) - sum(map(len, groups.values()))
    if not said:
        return (
            "none: recipes come with environments (pip install ./environments/* in a clone); "
            "`plumbline init` writes one for your data.\n"
        )
    if not every:
        blocks.append(
            f"`plumbline recipe --all` lists {rest} more; `plumbline init` writes a recipe for "
            "your data.\n"
        )
    return "\n".join(blocks)


def _recipe_folders() -> list[Path]:
    """The folder `recipes` of each installed package that declares a task; nothing of it is
    imported."""
    packages = {entry.module.partition(".")[0] for entry in plugins("plumbline.tasks").values()}
    found = [
        Path(str(spec.origin)).with_name("recipes")
        for name in sorted(packages)
        if (spec := find_spec(name))
    ]
    return [folder for folder in found if folder.is_dir()]


def differences(old: Recipe, new: Recipe) -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, old value, new value) for every leaf that differs."""
    yield from value_differences(old.model_dump(mode="json"), new.model_dump(mode="json"))


def value_differences(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """`differences` of plain values: those of a recipe that another version wrote."""
    before, after = dict(walk_leaves(old)), dict(walk_leaves(new))
    for key in [*before, *(key for key in after if key not in before)]:
        if before.get(key) != after.get(key):
            yield key, before.get(key), after.get(key)


def load_recipe_pair(words: Sequence[str], overrides: Sequence[str] = ()) -> tuple[Recipe, Recipe]:
    """The recipes of `diff A B`, with the same overrides laid over both.

    Raises:
        RecipeError: the words are others, or one of the recipes cannot be read.
    """
    if words[0] != "diff" or len(words) != 3:
        raise RecipeError(
            f"`plumbline recipe {' '.join(words)}` is neither one recipe nor two to compare",
            "give one name, or write plumbline recipe diff A B",
        )
    return load_recipe(words[1], overrides), load_recipe(words[2], overrides)


def list_differences(old: Recipe, new: Recipe) -> list[tuple[str, Any, Any]]:
    """`differences` as a list; what a run is called, watched and asked by is left out unless
    nothing else differs."""
    found = list(differences(old, new))
    unsaid = {"name", *NO_RESULT} - {"run"}
    return [row for row in found if row[0].partition(".")[0] not in unsaid] or found


def difference_lines(rows: Sequence[tuple[str, Any, Any]]) -> list[str]:
    """A line for each difference: key, old and new value in columns; a value as JSON, and - where
    there is none."""
    cells = [
        (key, *("-" if value is None else dumps(value) for value in pair)) for key, *pair in rows
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(2)] if cells else []
    return [f"{key:{widths[0]}}  {old:{widths[1]}}  {new}\n" for key, old, new in cells]


def walk_leaves(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of nested values by its path, such as `rl.optimiser.learning_rate`."""
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from walk_leaves(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, values


def _read_with_parents(path: Path, seen: tuple[Path, ...], read: list[Path]) -> Values:
    """A recipe with what it extends below it; `read` takes the files that were read for it."""
    path = path.resolve()
    read.append(path)
    if len(read) > MOST_FILES:
        raise RecipeError(
            f"{read[0]} extends more than {MOST_FILES} recipes", "write some of them into one"
        )
    if path in seen:
        raise RecipeError(
            f"{path} extends itself, by way of {' -> '.join(p.name for p in seen)}",
            "let one of them extend nothing",
        )
    if len(seen) > MOST_PARENTS:
        raise RecipeError(
            f"{seen[0]} extends more than {MOST_PARENTS} recipes, one after the other",
            "write some of them into one",
        )
    text = read_text(path, RecipeError, SMALL)
    note_file_text(path, text)
    values = copy.deepcopy(_parse_yaml(text, str(path)))
    if not isinstance(values, dict):
        what = "empty" if values is None else f"a {type(values).__name__}"
        raise RecipeError(
            f"{path} is {what}, where a recipe is a mapping of keys", "see `plumbline recipe NAME`"
        )
    parents = values.pop("extends", None)
    below: Values = {}
    for parent in parents if isinstance(parents, list) else [] if parents is None else [parents]:
        if not isinstance(parent, str):
            raise RecipeError(
                f"{path}: extends is {parent!r}, where the name of a file is meant",
                "extends: other.yaml",
            )
        above = path.parent / parent
        if not above.exists():
            raise RecipeError(
                f"{path} extends {above}, which does not exist", "correct extends, or leave it out"
            )
        below = _merge(below, _read_with_parents(above, (*seen, path), read))
    return _merge(below, values)


_parse_yaml = lru_cache(maxsize=64)(read_yaml)
"""Recipes share what they extend, and YAML is slow to read."""


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Values:
    """Lay `over` on `base`: mappings are merged key by key (`as_mapping`), everything else is
    replaced."""
    merged = copy.deepcopy(dict(base))
    for key, value in over.items():
        if isinstance(value, dict):
            merged[key] = _merge(as_mapping(merged.get(key)), value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged
