"""A first recipe for rows and a reward function: looks at the data, tries the reward, and writes
what it saw."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import yaml

from plumbline.config.imports import is_allowed, module_names, note_addresses, note_file_text
from plumbline.config.overrides import read_yaml
from plumbline.errors import DataError, PlumblineError, RecipeError, StorageError, to_visible_line
from plumbline.recipe import parse_recipe
from plumbline.recipe.files import TODO
from plumbline.recipe.from_trl import TrlScript, read_script
from plumbline.recipe.schema_docs import EDITOR_LINE
from plumbline.recipe.script_rewards import is_unchanged
from plumbline.records import Values
from plumbline.storage import clear_read_errors, dumps, read_text, shorten, write_text
from plumbline.tasks.cases import LABEL, TRIED, Case, cases_of, within_budget
from plumbline.tasks.jsonl.columns import as_text, gold_columns, gold_expressions, guess_prompt
from plumbline.tasks.jsonl.files import HUB, read_rows
from plumbline.tasks.jsonl.reward_functions import Scorer, Scoring
from plumbline.tasks.jsonl.rows import scorer_rows
from plumbline.tasks.jsonl.task import LOOKED_AT, JsonlTask, open_rows
from plumbline.tasks.task import Task

UNSOUND = 0.5
"""Of what gold answers earn: a baseline that earns more makes the reward no good to train
with."""
UNMEASURED = "not tried: each counts from 0 to 1, unless range has the least and the most of it"
STEPS, PROMPTS_PER_STEP, TOKENS = 200, 8, 256


@dataclass
class InitOptions:
    """What a recipe is written from."""

    model: str
    data: str
    rewards: Sequence[str]
    out: Path
    prompt: str | None = None
    """A column or a template; None: what `guess_prompt` makes of the rows."""
    gold: str | None = None
    """A column or a template; None: the column whose texts earn most, where one earns anything."""
    script: TrlScript | None = None
    asked: bool = True
    """Whether the user named the rows: what only a script names is looked at where it is a file
    here."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keys of `model` that the model's directory has settled, such as `lora` of an adapter."""


@dataclass
class _SettledOptions:
    """The options that were settled on, and what is said of them."""

    options: Values
    columns: list[str] = field(default_factory=list)
    remarks: dict[str, str] = field(default_factory=dict)
    """Comments by key."""
    lines: list[str] = field(default_factory=list)
    gold_tried: str = ""
    blocked: bool = False
    """Whether something must be mended before a training."""
    count: int | None = None
    """Prompts to train on, where that is known."""
    next_step: str = ""
    """What to do before a training; empty where nothing is in the way."""
    task: JsonlTask | None = None


def add_script_options(
    model: str | None,
    data: str | None,
    reward: str | None,
    script: Path | None,
    out: Path,
    prompt: str | None = None,
    gold: str | None = None,
    config: Path | None = None,
) -> InitOptions:
    """What is given, and of what is not given what a script for TRL says; `TODO` where that is
    open.

    Args:
        config: the YAML file that the script is given.

    Raises:
        RecipeError: the script cannot be used; or there is none, and something is not given.
    """
    note_addresses([_address(data)] if data else [])
    if script is not None:
        return _merge_script(
            read_script(script, config),
            script,
            InitOptions(model or "", data or "", [], out, prompt, gold),
            reward,
        )
    rewards = reward.split(",") if reward else []
    needed = {"--model MODEL": model, "--data FILE": data, "--reward MODULE:FUNCTION": rewards}
    if model is None or data is None or not rewards:
        lacking = [option for option, value in needed.items() if not value]
        raise RecipeError(
            f"a recipe needs {' and '.join(lacking)}, which is not given",
            f"add {' '.join(lacking)}, or --from SCRIPT",
        )
    return InitOptions(model, data, rewards, out, prompt, gold)


def _merge_script(
    read: TrlScript, script: Path, given: InitOptions, reward: str | None
) -> InitOptions:
    """What is given, over what a script says."""
    if reward:
        read.taken, read.refused, read.rewards = "", [], reward.split(",")
        read.todo.pop("task.options.score", None)
    if read.rows is not None and not given.data:
        read.data = str(given.out.with_name(str(read.data)))
    if read.refused:
        names = ",".join(f"rewards:{name.partition(':')[2]}" for name in read.rewards[:5])
        raise RecipeError(
            f"the rewards of {script} cannot be taken over: {'; '.join(read.refused[:3])}",
            f"move them to a file of their own, such as rewards.py, and add --reward {names}",
        )
    for key, value in {"task.options.train": given.data, "model.name": given.model}.items():
        if value:
            read.todo.pop(key, None)
    if given.prompt:
        read.todo.pop("task.options.prompt", None)
    own, held_out = (
        _find_beside_script(script, each) for each in (read.data, read.options.get("val"))
    )
    if not (given.data or own):
        read.todo.setdefault("task.options.train", "the script names no rows")
    if isinstance(held_out, str):
        read.options["val"] = None if given.data else _address(held_out)
    return InitOptions(
        given.model or read.model or TODO,
        given.data or own or TODO,
        [TODO] if "task.options.score" in read.todo else read.rewards,
        given.out,
        given.prompt or read.options.get("prompt"),
        given.gold or read.options.get("gold"),
        read,
        asked=bool(given.data),
    )


def _find_beside_script(script: Path, data: Any) -> Any:
    """A file as it is found from here, where it lies beside the script."""
    place = script.parent / data if isinstance(data, str) else script
    return (
        str(place)
        if isinstance(data, str) and not Path(data).exists() and place.is_file()
        else data
    )


TryReward = Callable[[Task, Literal["load"]], Any]
"""The trial of a reward before a run (`plumbline.checks.audit.trial`)."""


def write_init_recipe(what: InitOptions, try_reward: TryReward) -> tuple[list[str], bool]:
    """Write a recipe, and say in a few lines what was seen of the data and the reward, and whether
    it is ready.

    Raises:
        StorageError: the file is there already; it is not touched. Or the one of the script's
            rewards is another's.
        RecipeError: something is not given, or the reward function cannot be used.
        DataError: the rows cannot be read, or have no column that is a prompt.
    """
    if what.out.suffix not in {".yaml", ".yml"}:
        raise RecipeError(f"{what.out} is no name of a recipe", "give a file that ends in .yaml")
    if what.out.exists():
        raise StorageError(
            f"{what.out} is there already; it was not touched", "give another file with --out"
        )
    taken, made = _copy_from_script(what)
    try:
        with redirect_stdout(io.StringIO()):  # a reward may print at each text that is tried
            seen = inspect_rows(what, try_reward) if _is_seen(what) else _options_without_rows(what)
    except PlumblineError:
        for path in made:
            path.unlink(missing_ok=True)
        raise
    if what.model.startswith((".", "/", "~")) and not Path(what.model).expanduser().exists():
        seen.lines.append(f"not ready: there is no model {what.model} here; correct model.name")
        seen.blocked |= what.script is None
    if seen.blocked:
        seen.next_step = seen.next_step or "Do not train yet: mend what is not ready."
    text = render_recipe(what, seen)
    values = read_yaml(text, str(what.out))
    parse_recipe(_without_open(values), str(what.out))
    write_text(what.out, text)
    named = [f"{key} ({why})" for key, why in (what.script.todo if what.script else {}).items()]
    train = "" if named else f"Train:  plumbline run {what.out} --trust-code"
    lines = [
        *seen.lines,
        *taken,
        *(
            f"from the script: {_comment(note)}"
            for note in (what.script.notes if what.script else ())
        ),
        *(f"TODO: {_comment(each)}" for each in named),
        *(
            [f"{what.out} is written. No command takes it before each TODO in it is a value."]
            if named
            else [
                f"{what.out} is written. Try the reward:  plumbline audit {what.out} --trust-code"
            ]
        ),
        "Keys in your editor:  plumbline recipe --schema --out recipe.schema.json",
        *filter(None, [seen.next_step or train]),
    ]
    return lines, not seen.blocked


def _copy_from_script(what: InitOptions) -> tuple[list[str], list[Path]]:
    """Write what a script defines beside the recipe: its rewards, and its rows; what to say of
    it, and the files that were not there before."""
    if (script := what.script) is None:
        return [], []
    files, lines, made = [], [], []
    if script.taken:
        path = what.out.with_name(f"{script.module}.py")
        option = f"--reward {','.join(what.rewards)}"
        files.append(
            (path, script.taken, option, "the rewards of the script, and what they need of it")
        )
        note_file_text(
            what.out, "\n".join(what.rewards)
        )  # so that they are found beside the recipe
    if script.rows is not None and what.data == script.data:
        text = "".join(f"{dumps(row)}\n" for row in script.rows)
        files.append((Path(what.data), text, f"--data {what.data}", "the rows of the script"))
    for path, text, option, has in files:
        before = read_text(path, StorageError) if path.exists() else text
        if before != text and not is_unchanged(before):
            raise StorageError(
                f"{path} is there already, and is not what init wrote; it was not touched",
                f"rename it, or use what is in it: {option}",
            )
        made += [] if path.exists() else [path]
        write_text(path, text)
        lines.append(f"{path} has {has}")
    return lines, made


def _is_seen(what: InitOptions) -> bool:
    """Whether the rows are looked at, and the reward is tried on them."""
    if what.asked or what.script is None:
        return what.rewards != [TODO] and what.data != TODO
    file = Path(what.data).is_file() or Path(what.data.removeprefix(HUB).partition(":")[0]).is_dir()
    if isinstance(val := what.script.options.get("val"), str):
        file = file and Path(val).is_file()
    return file and what.rewards != [TODO] and "task.options.prompt" not in what.script.todo


def _options_without_rows(what: InitOptions) -> _SettledOptions:
    """The options as far as the script says them."""
    assert what.script is not None
    read, data = what.script, what.data if what.data == TODO else _address(what.data)
    rewards = [module_names(name) for name in what.rewards]
    asked = TODO if "task.options.prompt" in read.todo else what.prompt or "prompt"
    seen = _SettledOptions({"train": data, "prompt": asked, **_options_of_script(what, read.count)})
    seen.options |= {"gold": what.gold} if what.gold else {}
    seen.options["score"] = rewards[0] if len(rewards) == 1 else rewards
    seen.remarks["score"] = "" if rewards == [TODO] else UNMEASURED
    if "task.options.weights" in read.values:
        seen.options["weights"] = read.values["task.options.weights"]
    if read.count is not None:
        held_out = [
            0.0 if isinstance(each, str) else each
            for each in map(seen.options.get, ("val", "test"))
        ]
        seen.count = round(
            read.count * (1 - sum(0.1 if each is None else each for each in held_out))
        )
    if data != TODO:
        more = (
            ""
            if rewards == [TODO]
            else f": with  --data {what.data}  it is, and the reward is tried on it"
        )
        seen.lines.append(f"{data} was not looked at{more}")
    return seen


def _options_of_script(what: InitOptions, count: int | None) -> Values:
    """Options that the script alone settles: the system message, and what is held out of `count`
    rows."""
    given = what.script.options if what.script else {}
    options = {key: given[key] for key in ("system", "val") if given.get(key)}
    if isinstance(val := options.get("val"), int | float) and what.script is not None:
        if val >= 1 and (count is None or val >= count):
            del options["val"]
            what.script.notes.append(f"test_size={val} rows: val is a share, and holds out a tenth")
        elif (share := round(val / (count or 1) if val >= 1 else val, 4)) > 0.85:
            options |= {"val": share, "test": round((1 - share) / 2, 4)}
        else:
            options["val"] = share
    return options


def _without_open(values: Any) -> Any:
    """A recipe with what is needed where it says TODO, to see whether all else of it is right."""
    if isinstance(values, dict):
        kept = {key: _without_open(each) for key, each in values.items() if each != TODO}
        needed = {"train": "x", "score": "x:x", "steps": 1, "name": "x"}
        return {
            **kept,
            **{key: needed[key] for key, each in values.items() if each == TODO and key in needed},
        }
    return values


# -- looking ---------------------------------------------------------------------------------------


def inspect_rows(what: InitOptions, try_reward: TryReward) -> _SettledOptions:
    """Read the rows, find the columns, and try the reward on them.

    Raises:
        RecipeError, DataError: see `write_init_recipe`.
    """
    data = _address(what.data)
    raw = [row for _, row in islice(read_rows(data), LOOKED_AT)]
    if not raw:
        raise DataError(f"{data} has no rows", "give a file or a data set with rows")
    rows, _ = scorer_rows(raw, texts=False)
    columns = [*dict.fromkeys([*raw[0], *rows[0]])]
    with clear_read_errors(data):
        asked = guess_prompt(rows)
    if what.prompt is not None:
        asked = {"prompt": what.prompt}
    if not asked or (
        "{" not in asked["prompt"]
        and not {asked["prompt"], asked["prompt"].partition(".")[0]} & {*columns}
    ):
        raise DataError(
            f"{data} has no column {asked['prompt']}"
            if asked
            else f"no column of {data} is called as a prompt is",
            f"name it with --prompt; the columns are {', '.join(columns)}",
        )
    rewards = [module_names(name) for name in what.rewards]
    score = rewards[0] if len(rewards) == 1 else rewards
    settled = _options_of_script(what, len(raw) if len(raw) < LOOKED_AT else None)
    seen = _SettledOptions({"train": data, **asked, **settled, "score": score}, columns)
    if what.script is not None and "task.options.weights" in what.script.values:
        seen.options["weights"] = what.script.values["task.options.weights"]
    if what.script is None and (far := [name for name in rewards if "/" in name]):
        raise RecipeError(
            f"{far[0]} lies outside of the working directory, where rewards are looked for",
            "start init in the folder of the file, and leave the folder out of --reward",
        )
    if not all(map(is_allowed, rewards)):
        seen.lines.append(
            "the reward was not tried, because only the script names it: add --trust-code to try it"
        )
        other = what.out.with_stem(f"{what.out.stem}-tried")
        seen.next_step = f"Before you train, the same command with  --trust-code --out {other}"
        _describe_untried(what, seen)
    else:
        if "weights" not in seen.options and (parts := _parts(open_rows(seen.options))):
            seen.options["weights"] = dict.fromkeys(parts, 1.0)
            seen.remarks["weights"] = "of the parts that the function names"
        _try_reward(seen, what.gold, try_reward)
    assert seen.task is not None
    counts = {split: len(seen.task.examples(split)) for split in ("train", "val", "test")}
    share = ", ".join(f"{count} {split}" for split, count in counts.items())
    lengths = [
        sum(len(message["content"]) for message in one.messages)
        for one in seen.task.examples("train")[:LOOKED_AT]
    ]
    what_is_asked = ", ".join(
        f"{key} {value!r}" if "{" in value else f"column {value}" for key, value in asked.items()
    )
    left = seen.task.describe_left_out()
    more = f"; {left} (--prompt takes a template, {{COLUMN}} for each)" if left else ""
    seen.lines = [
        f"{data}: {sum(counts.values())} rows ({share}); columns {', '.join(columns)}",
        f"prompts: {what_is_asked}, {min(lengths)} to {max(lengths)} characters{more}",
        *seen.task.notes,
        *seen.lines,
    ]
    return seen


def _address(data: str) -> str:
    """Data as the option `train` has it: a name of the hub, or a folder, begins with `hf://`."""
    path = Path(data)
    if data.startswith(HUB) or path.is_file():
        return data
    if path.is_dir():
        return f"{HUB}{data}"
    hub = re.fullmatch(r"[\w-][\w.-]*(/[\w.-]+){1,2}(:.+)?", data) and path.suffix not in {
        ".json",
        ".jsonl",
        ".csv",
        ".tsv",
        ".parquet",
    }
    return f"{HUB}{data}" if hub else data


def _describe_untried(what: InitOptions, seen: _SettledOptions) -> None:
    seen.remarks["score"] = UNMEASURED
    task = open_rows(seen.options)
    rows = [one.reference for one in task.examples("train")[:LOOKED_AT]]
    gold = what.gold
    for name in gold_columns(rows, (), seen.options["prompt"])[:1] if gold is None else ():
        # of a solution its end, which audit finds a template for
        ways = gold_expressions(rows, name)
        gold = next((way for way in ways if way.endswith(":####}")), name)
    if gold is not None and not task.has_gold:
        seen.options["gold"] = gold
        seen.remarks["gold"] = "the gold answer: it should earn 1"
    seen.task = open_rows(seen.options)


def _try_reward(seen: _SettledOptions, given: str | None, try_reward: TryReward) -> None:
    """Settle on the column of the gold answers, and on ranges, by what they earn."""
    task = open_rows(seen.options)
    guess, refused = (None, {}) if task.has_gold else task.guess_gold([given] if given else [])
    if given:
        seen.options["gold"] = given
    if guess is not None:
        seen.options["gold"] = guess.gold
        seen.remarks["gold"] = "the gold answer, which should earn 1"
        if guess.labelled is not None:
            seen.lines.append(f"{guess.labelled.cause}; the recipe has the template {guess.gold!r}")
            alone = f"the column is a label, which alone earns {guess.labelled.gold:.3f}"
            seen.remarks["gold"] = f"{alone}; this is a completion"
    task = open_rows(seen.options).with_seen_ranges()
    trial = try_reward(task, "load")
    earned = trial.to_dict()
    said, gold = "no gold answers, so no ceiling and no SFT", 1.0
    if earned["gold"] is not None:
        gold = earned["gold"]["mean"]
        said = f"gold answers earn {gold:.3f}"
    if guess is None and not task.has_gold and (tried := task.answer_columns):
        rows = [one.reference for one in task.examples("train")[:TRIED]]
        if max(len(as_text(row.get(tried[0]))) for row in rows) <= LABEL:
            seen.gold_tried = tried[0]
    for name in (
        set(refused) & Scoring(task.options).named_columns if guess is None and not given else ()
    ):
        seen.lines.append(f"not ready: {refused[name]}")
        seen.blocked = True
    if baselines := {name: means["train"] for name, means in earned["baselines"].items()}:
        best = max(baselines, key=baselines.__getitem__)
        means = " (all gold answers in one text)" if best == "every-gold" else ""
        said += f"; the best baseline, {best}{means}, earns {baselines[best]:.3f}"
        if baselines[best] > UNSOUND * gold:
            said += ", and an answer that knows nothing should not: such answers will be learnt"
            seen.next_step = "Do not train yet: mend the reward, or see what audit says of it."
            seen.blocked = True
    seen.lines.append(said)
    if task.options.range:
        pairs = task.options.range
        seen.options["range"] = (
            {part: list(pair) for part, pair in pairs.items()} if isinstance(pairs, dict) else pairs
        )
        seen.remarks["range"] = (
            "the least and the most of each part, as seen in a few texts: correct them if need be"
        )
        seen.lines.append(f"range: {_flow(seen.options['range'])}, {seen.remarks['range']}")
    if (refusal := trial.refusal) is not None:
        seen.lines.append(f"not ready: {refusal.what}. {refusal.fix}")
        seen.blocked = True
    else:
        unpaid = [
            one.summary
            for one in trial.findings
            if one.check == "unpaid"
            or (one.check == "part-dead" and one.evidence["part"] in task.answer_parts)
        ]
        form = task.explain_unnamed_form(task.examples("train")[:LOOKED_AT])
        seen.lines = [*unpaid, *seen.lines, *filter(None, [form])]
        seen.blocked |= bool(unpaid)
    seen.task = task


def _parts(task: JsonlTask) -> list[str]:
    """The parts that functions name, where one of them returns a mapping and not a number."""
    cases = next(cases_of(task, task.examples("train")))
    parts: dict[str, bool] = {}
    for scorer in Scoring(task.options).scorers:

        def named(case: Case, scorer: Scorer = scorer) -> dict[str, bool]:
            value = scorer([task.prompt_of(case.example)], [case.text], [case.example.reference])[0]
            return (
                dict.fromkeys(map(str, value), True)
                if isinstance(value, Mapping)
                else {scorer.part: False}
            )

        for _, found in within_budget(cases, named):
            parts |= found
    return [*parts] if any(parts.values()) else []


# -- writing ---------------------------------------------------------------------------------------


def render_recipe(what: InitOptions, seen: _SettledOptions) -> str:
    """The recipe's text."""
    train = seen.task.examples("train") if seen.task else []
    count = len(train) if seen.task else seen.count
    todo = dict(what.script.todo) if what.script else {}
    values = dict(what.script.values) if what.script else {}
    stage = what.script.stage if what.script else "rl"
    name = (
        re.sub(r"[^A-Za-z0-9._-]+", "-", str(values.pop("name", "") or _name_recipe(what)))[
            :80
        ].strip("-._")
        or "first"
    )
    values.pop("task.options.weights", None)
    if stage == "rl":
        values.setdefault("rl.prompts_per_step", min(PROMPTS_PER_STEP, len(train)))
        each = values["rl.prompts_per_step"]
        if what.script is None:
            values |= {"rl.steps": STEPS, "rl.group_size": 8, "rl.optimiser.learning_rate": 5e-6}
            longest = max((len(item.gold or "") for item in train), default=0)
            values["sampling.max_tokens"] = max(TOKENS, 1 << (longest // 2).bit_length())
        elif what.script.epochs is not None:
            known = count is not None and each != TODO
            values["rl.steps"] = (
                max(1, round(what.script.epochs * (count or 0) / each)) if known else TODO
            )
            if not known:
                todo["rl.steps"] = what.script.todo["rl.steps"] = (
                    f"{what.script.epochs:g} epochs x prompts to train on / rl.prompts_per_step"
                )
    values.setdefault("evaluation.final", ["test"])
    values["model.name"] = what.model
    for key, value in what.settings.items():
        values.setdefault(f"model.{key}", value)
    out = to_visible_line(str(what.out))
    sections: Values = {}
    for key, value in values.items():
        _put(sections, key, value)
    is_open = what.script is not None and what.script.todo
    lines = [
        EDITOR_LINE.rstrip(),
        f"# Try the reward: plumbline audit {out} --trust-code",
        *([] if seen.blocked or is_open else [f"# Train: plumbline run {out} --trust-code"]),
        f"# What each key means: plumbline recipe {out} --commented",
        *(
            f"# From the script: {_comment(note)}"
            for note in (what.script.notes if what.script else ())
        ),
        *(["# What the script does not set has TRL's defaults."] if what.script else []),
        f"name: {_flow(name)}",
        *(
            [f"seed: {_flow(sections.pop('seed'))}{_remark('seed', todo)}"]
            if "seed" in sections
            else []
        ),
        "task:",
        "  name: jsonl",
        "  options:",
        *_option_lines(seen, todo),
        "model:",
        *(
            f"  {key}: {_flow(value)}{_remark(f'model.{key}', todo)}"
            for key, value in sorted(sections["model"].items(), key=lambda item: item[0] != "name")
        ),
    ]
    if "lora" not in sections.pop("model"):
        lines.append(
            "  # lora: {rank: 16, alpha: 32}  # train adapters alone, which needs less memory"
        )
    if stage == "rl" and "gold" in seen.options:
        lines.append("# sft: {epochs: 1}  # first learn from the gold answers")
    for section in (
        stage,
        *(item for item in ("sampling", "engine", "evaluation", "run") if item in sections),
    ):
        inner = sections[section]
        if section == stage:
            lines.append(f"{section}:")
            order = sorted(inner, key=lambda key: (*FIRST, key).index(key))
            lines += [
                f"  {key}: {_flow(inner[key])}{_remark(f'{section}.{key}', todo)}" for key in order
            ]
        else:
            lines.append(f"{section}: {_flow(inner)}{_remark(section, todo)}")
    return "\n".join(lines) + "\n"


def _name_recipe(what: InitOptions) -> str:
    data = what.data.removeprefix(HUB).partition(":")[0]
    parts = [Path(data).stem if Path(data).suffix else Path(data).name, Path(what.model).name]
    return "-".join(part for part in parts if part != TODO).lower()


def _option_lines(seen: _SettledOptions, todo: Mapping[str, str]) -> list[str]:
    lines = []
    for key, value in seen.options.items():
        remark = {
            "train": (f"columns: {', '.join(seen.columns)}; " if seen.columns else "")
            + (
                f"{'test holds' if 'val' in seen.options else 'val and test each hold'} out a "
                "tenth of the prompts"
            ),
            "prompt": "what is asked: a column, or a template of columns",
            **seen.remarks,
        }.get(key)
        remark = todo.get(f"task.options.{key}", remark)
        lines.append(f"    {key}: {_flow(value)}{f'  # {_comment(remark)}' if remark else ''}")
        if key == "prompt" and seen.gold_tried:
            lines.append(
                f"    # gold: '#### {{{seen.gold_tried}}}'  # {_comment(seen.gold_tried)} alone "
                "earns nothing: a "
                "template of a whole answer"
            )
    return lines


def _comment(text: str) -> str:
    """A comment that stays on its line, whatever columns are called."""
    return shorten(to_visible_line(text), 160, words=True)


FIRST = ("steps", "epochs", "prompts_per_step", "batch_size", "group_size")
REMARKS = {
    "rl.steps": "batches of answers that are drawn and learnt from",
    "rl.prompts_per_step": "prompts of a batch",
    "rl.group_size": "answers to each prompt, which are compared",
    "sampling": "the longest answer, in tokens",
}


def _remark(key: str, todo: Mapping[str, str]) -> str:
    """The comment behind a key: what the script has where it, or a key below it, is open; else what
    it means."""
    inner = {
        name.removeprefix(f"{key}."): why
        for name, why in todo.items()
        if name.startswith(f"{key}.")
    }
    said = (
        todo.get(key)
        or "; ".join(f"{name}: {why}" for name, why in inner.items())
        or REMARKS.get(key)
    )
    return f"  # {_comment(said)}" if said else ""


def _put(values: Values, key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        values = values.setdefault(section, {})
    values[last] = value


def _flow(value: Any) -> str:
    """A value as YAML on one line."""
    form: dict[str, Any] = {
        "default_flow_style": True,
        "allow_unicode": True,
        "sort_keys": False,
        "width": 10**6,
    }
    text: str = yaml.safe_dump(value, **form).strip().removesuffix("...").strip()
    if len(text.splitlines()) > 1:  # it holds a line break
        text = yaml.safe_dump(value, default_style='"', **form).strip()
    return text
