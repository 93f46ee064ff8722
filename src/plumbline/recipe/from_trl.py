"""What a training script for TRL says, as keys of a recipe. The script is followed as text and
never run."""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from plumbline.errors import RecipeError
from plumbline.recipe.files import TODO
from plumbline.recipe.script import (
    LIBRARY,
    PARSED,
    TRL,
    UNKNOWN,
    Function,
    Instance,
    LibraryName,
    LibraryValue,
    Module,
    Script,
    Text,
    Unknown,
    describe_value,
    read_module,
    read_settings,
    to_recipe_value,
    unparse_expression,
)
from plumbline.recipe.script_rewards import RewardFile, module_name
from plumbline.records import Values
from plumbline.storage import one_line

CONFIGS = {"GRPOConfig": "rl", "SFTConfig": "sft"}
"""Which section of a recipe each configuration of TRL becomes."""
DEFAULTS: dict[str, Values] = TRL["defaults"]
"""What a script does not set has these, where they are not ours."""
SAME: dict[str, str] = TRL["same"]
"""Keys that have a twin of the same meaning; * is the section of the training."""
ENGINE: dict[str, str] = TRL["engine"]
"""Arguments of vLLM's server."""
PEFT_TARGETS = r"qwen-?[23]|qwq|llama|mi[sx]tral|smollm|gemma|vicuna|deepseek-r1-distill"
"""Models whose LoRA peft gives the query and value projections, where no targets are named."""
LORA = {"r": "rank", "lora_alpha": "alpha", "target_modules": "targets"}
SILENT = tuple(TRL["silent"])
"""What begins so changes nothing that is learnt, or is said elsewhere."""
USUAL: dict[str, tuple[Any, ...]] = {
    "eval_strategy": ("steps", "no"),
    "vllm_importance_sampling_correction": (True,),
    "shuffle_dataset": (True,),
}
"""Values that are nothing to be said of; of other keys those that are false."""
SCHEDULES = ("constant", "constant_with_warmup", "cosine", "linear")
TRACKERS = ("trackio", "wandb", "tensorboard")
LOADS = TRL["loads"]
BUILDERS = TRL["builders"]
"""What data sets of files are called."""
SAME_ROWS = TRL["same_rows"]
"""Changes of a data set that change no value of a row."""
INNER_ROWS = TRL["inner_rows"]
"""What holds the rows of what it is given."""
TO_FILE = "write the rows that the script makes to a file (dataset.to_json) and name it in train"
POSITIONS = TRL["positions"]
"""Arguments of the trainers by their place."""
BATCH, ALGORITHM = TRL["batch"], TRL["algorithm"]
READ = {*TRL["read"], *SAME, *BATCH, *ALGORITHM}
"""All keys that are read."""
NUMBERS = {*TRL["numbers"], *BATCH}
"""Keys that are calculated with."""
COMMAND = """
script, training, model = TrlParser((ScriptArguments, {config}, ModelConfig)).parse_args_and_config()
training.model_init_kwargs = dict(quantization_config=get_quantization_config(model))
data = load_dataset(script.dataset_name, name=script.dataset_config)
{trainer}(
    model=model.model_name_or_path,
    args=training,
    reward_funcs=script.reward_funcs,
    train_dataset=data[script.dataset_train_split],
    eval_dataset=data[script.dataset_test_split] if training.eval_strategy != "no" else None,
    peft_config=get_peft_config(model),
)
"""
"""What `trl grpo` and `trl sft` do with the settings of their command line."""


@dataclass
class TrlScript:
    """What was found in a script."""

    stage: str
    """rl or sft."""
    model: str | None = None
    data: str | None = None
    rewards: list[str] = field(default_factory=list)
    """Each as `module:function`."""
    values: Values = field(default_factory=dict)
    """By the key of the recipe, such as `rl.optimiser.learning_rate`."""
    options: Values = field(default_factory=dict)
    """Of the task: `prompt`, `system`, `gold` and `val`, where the script says them."""
    todo: dict[str, str] = field(default_factory=dict)
    """What the script has where a key is open, by the key."""
    epochs: float | None = None
    """Where the script counts passes over the prompts and not steps of RL."""
    rows: list[Values] | None = None
    """Rows that stand in the script."""
    count: int | None = None
    """Rows that the script takes, where it says so."""
    notes: list[str] = field(default_factory=list)
    """What has no twin, or could not be read, a sentence each."""
    module: str = ""
    """What the module of taken rewards is called."""
    taken: str = ""
    """Its text."""
    refused: list[str] = field(default_factory=list)
    """Why rewards of the script cannot be taken over."""

    def open(self, key: str, why: object) -> None:
        """Leave a key of the recipe open."""
        self.values[key] = TODO
        self.todo[key] = str(why)


def read_script(path: Path, config: Path | None = None) -> TrlScript:
    """Read a script or notebook that trains with TRL, or the YAML file of its command line.

    Args:
        path: of the script.
        config: the YAML file that its own parser is given; by default one of the same name beside
            it, or the only one there that names a setting of a training.

    Raises:
        RecipeError: it cannot be read, is no Python, or trains with nothing that is known.
    """
    try:
        if path.suffix in {".yaml", ".yml"}:
            settings = _read_settings(path)
            rl = settings.keys() & TRL["grpo"]
            if not rl and not settings.keys() & TRL["command"]:
                raise RecipeError(
                    f"{path} holds no settings of a training with TRL",
                    "give the file that sets them",
                )
            name = "GRPO" if rl else "SFT"
            text = COMMAND.format(config=f"{name}Config", trainer=f"{name}Trainer")
            first = {"split": "train", **next(iter(settings.get("datasets") or []), {})}
            twins = TRL["data_set"]
            named = {twins[key]: each for key, each in first.items() if key in twins}
            settings = {**named, **settings}
            return _Reader(Script(Module(path, text, ast.parse(text)), settings), None).read()
        beside = [config] if config is not None else _find_settings_files(path)
        settings = _read_settings(beside[0]) if len(beside) == 1 else {}
        return _Reader(Script(read_module(path), settings), beside).read()
    except RecursionError as error:
        raise RecipeError(
            f"{path} is nested too deeply", "give --model, --data and --reward"
        ) from error
    except (TypeError, ZeroDivisionError) as error:
        raise RecipeError(
            f"{path}: a value of the configuration is of the wrong kind: {one_line(error)}",
            "correct it there",
        ) from error


def _read_settings(path: Path) -> Values:
    read = read_settings(path)
    if not isinstance(read, dict) or "compute_environment" in read or "distributed_type" in read:
        raise RecipeError(
            f"{path} holds no settings of a training with TRL", "give the file that sets them"
        )
    return {str(key): each for key, each in read.items()}


def _find_settings_files(path: Path) -> list[Path]:
    """The YAML files beside a script that may hold its settings, the one of its name alone where
    there is one."""
    same = [file for suffix in (".yaml", ".yml") if (file := path.with_suffix(suffix)).is_file()]
    found = []
    for file in (
        [] if same else sorted([*path.parent.glob("*.yaml"), *path.parent.glob("*.yml")])[:50]
    ):
        try:
            keys = read_settings(file)
        except RecipeError:
            continue
        wanted = {"model_name_or_path", "learning_rate", "dataset_name", "num_generations"}
        other = file.with_suffix(".py").exists()  # it is that script's
        if isinstance(keys, dict) and len(wanted & keys.keys()) > 1 and not other:
            found.append(file)
    return same[:1] or found


@dataclass
class _Rows:
    """Where rows are from, as far as a script says it."""

    data: str | None = None
    why: str = ""
    """What the script has where that is not known."""
    rows: list[Values] | None = None
    """Rows that stand in the script."""
    taken: int | None = None
    """The first so many alone."""
    share: float | None = None
    """What the script holds out: a share, or a number of rows."""
    changes: list[LibraryValue] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Reader(TrlScript):
    def __init__(self, script: Script, beside: Sequence[Path] | None) -> None:
        super().__init__("rl", notes=[*script.main.notes])
        self.script, self.path, self.beside = script, script.main.path, beside
        self.unscored: set[int] = set()
        """Which of the script's rewards are left out."""
        self.makes: set[str] = set()
        """Columns that rewards see as the script makes them; the prompt where it makes messages of
        texts."""
        self.given: Values = {}
        """Keys of the configuration, TRL's defaults among them."""
        self.unknown: dict[str, str] = {}
        """What the script has for those that are no constants."""

    def read(self) -> TrlScript:
        """Everything that the script says."""
        if not (trainers := self._trainers()):
            self.script.follow_unasked()
            trainers = self._trainers()
        given: Values = {}
        if trainers:
            trainer = trainers[0]
            name = next(name for name in POSITIONS if trainer.name.endswith(name))
            given = {**dict(zip(POSITIONS[name], trainer.args, strict=False)), **trainer.keys}
            self.stage = "rl" if name == "GRPOTrainer" else "sft"
            if (own := trainer.kind or trainer.name) not in POSITIONS:
                self.notes.append(
                    f"{own} is a trainer of the script's own: what it changes is not taken over"
                )
        elif config := next((call for call in self.script.made if call.name in CONFIGS), None):
            self.stage, given["args"] = CONFIGS[config.name], config
        else:
            others = sorted(
                {call.name for call in self.script.made if call.name.endswith("Trainer")}
            )
            what = (
                f"trains with {', '.join(others)}"
                if others
                else "builds no GRPOTrainer and no SFTTrainer"
            )
            raise RecipeError(
                f"{self.path} {what}, and init reads scripts for GRPOTrainer and SFTTrainer",
                "give the script that builds one, or the YAML file of `trl grpo`; or use --model, "
                "--data and --reward",
            )
        self._say_parsers([call.name for call in trainers])
        self._model(given)
        changes = self._rows(given.get("train_dataset")) if trainers else []
        self._held_out_rows(given.get("eval_dataset"))
        if self.stage == "rl":
            self._rewards(given.get("reward_funcs"), changes)
        self._config(given)
        return self

    def _trainers(self) -> list[LibraryValue]:
        return [call for name in POSITIONS for call in self.script.made if call.name.endswith(name)]

    def _say_parsers(self, trainers: list[str]) -> None:
        if len(trainers) > 1:
            self.notes.append(
                f"the script builds {', '.join(trainers)}: the recipe has the first of {self.stage}"
            )
        if len(self.script.settings.get("datasets") or []) > 1:
            self.notes.append("datasets names several: the recipe has the first")
        if self.beside is None or not self.script.parsers:
            return
        read = "what its command line has by default"
        if self.script.settings and {*self.script.parsers} & PARSED:
            read = f"what {self.beside[0].name} says"
        elif len(self.beside) > 1:
            read += f"; of {', '.join(file.name for file in self.beside)} give one with --config"
        self.notes.append(f"the script reads a command line: the recipe has {read}")

    # -- the model ---------------------------------------------------------------------------------

    def _model(self, given: Mapping[str, Any]) -> None:
        value = given.get("model")
        chain: list[LibraryValue] = []
        while isinstance(value, LibraryValue) and len(chain) < 20:
            chain.append(value)
            if value.how == "call" and value.name == "from_pretrained":
                spelled = ("model_name", "pretrained_model_name_or_path")
                names = (*map(value.keys.get, spelled), *value.args[:1], TODO)
                value = next(name for name in names if name is not None)
            else:
                inner = [
                    one
                    for one in (*value.args, *value.keys.values())
                    if isinstance(one, LibraryValue)
                ]
                value = inner[0] if inner and value.how == "call" else value.owner
        text = to_recipe_value(value)
        if isinstance(text, str) and text and text != TODO:
            self.model = text
        else:
            self.open(
                "model.name",
                value if isinstance(value, Unknown) else f"the script has {_quote_source(value)}",
            )
        for made in chain:
            if made.name == "from_pretrained":
                owner = getattr(made.owner, "tail", "") or getattr(made.owner, "name", "")
                fast = owner in {"FastLanguageModel", "FastModel"}
                usual = {"load_in_4bit": True, "max_seq_length": 2048} if fast else {}
                self._loading_keys({**usual, **made.keys})
            elif made.name == "get_peft_model":
                size, keys = 16, {"target_modules": "all-linear", **made.keys}
                for one in made.args:
                    if isinstance(one, LibraryValue) and one.name == "LoraConfig":
                        size, keys = 8, one.keys
                        break
                self._lora({"r": size, "lora_alpha": size, **keys})
        match given.get("peft_config"):
            case LibraryValue(name="LoraConfig", keys=keys):
                self._lora({"r": 8, "lora_alpha": 8, **keys})
            case LibraryValue(name="get_peft_config", args=[LibraryValue(keys=keys), *_]):
                if {**LIBRARY, **keys}["use_peft"] is True:
                    given = {**LIBRARY, **keys}
                    self._lora({one: given[f"lora_{one.removeprefix('lora_')}"] for one in LORA})
            case Unknown() as unknown:
                self.open("model.lora", unknown)
            case LibraryValue() as made:
                self.notes.append(f"peft_config={unparse_expression(made.node)} has no twin")
        if "model.quantize" in self.values and "model.lora" not in self.values:
            self.notes.append("the script loads 4 bits: model.quantize needs model.lora")

    def _loading_keys(self, keys: Mapping[str, Any]) -> None:
        """What a model is loaded with."""
        match keys.get("quantization_config"):
            case (
                LibraryValue(name="BitsAndBytesConfig", keys=more)
                | LibraryValue(args=[LibraryValue(keys=more), *_])
            ):
                keys = {**keys, **more}
        four = keys.get("load_in_4bit")
        if isinstance(four, Unknown):
            self.open("model.quantize", four)
        elif four is True:
            self.values["model.quantize"] = "4bit"
        if keys.get("fast_inference") is True:
            self.notes.append(
                "fast_inference=True draws with vLLM: engine: vllm would, and is not in the recipe"
            )
        dtype = keys.get("dtype", keys.get("torch_dtype"))
        name = dtype.tail if isinstance(dtype, LibraryName) else dtype
        if name in {"bfloat16", "float32"}:
            self.values["model.dtype"] = name
        elif name in {"float16", "half"}:
            self.notes.append("dtype float16 has no twin: model.dtype is auto, bfloat16 on a GPU")
        length = to_recipe_value(keys.get("max_seq_length"))
        if isinstance(length, int):
            self.values["model.context"] = length
        elif length is not None:
            self.open("model.context", _quote_source(keys["max_seq_length"]))

    def _lora(self, keys: Mapping[str, Any]) -> None:
        if keys.get("target_modules") is None:
            known = re.search(PEFT_TARGETS, self.model or "", re.I)
            targets = ["q_proj", "v_proj"] if known else Unknown(why="peft's, by the model")
            keys = {**keys, "target_modules": targets}
        values: Values = {}
        for key, twin in LORA.items():
            values[twin] = to_recipe_value(keys[key])
            if values[twin] is UNKNOWN:
                values[twin], self.todo[f"model.lora.{twin}"] = TODO, _quote_source(keys[key])
        self.values["model.lora"] = values
        silent = {*LORA, "task_type", "bias", "random_state", "use_gradient_checkpointing"}
        for key, each in keys.items():
            if (
                key not in silent
                and not key.startswith("finetune_")
                and each not in (None, False, 0)
            ):
                self.notes.append(f"{key}={_quote_source(each)} of LoRA has no twin")

    # -- rows --------------------------------------------------------------------------------------

    def _rows(self, value: Any) -> list[LibraryValue]:
        """Where the rows are from; what the script makes of them, in its order."""
        found = self._find_rows(value)
        self.data, self.rows, self.count = found.data, found.rows, found.taken
        self.notes += found.notes
        if found.data is None:
            self.open("task.options.train", found.why)
        if found.taken is not None:
            self.notes.append(
                f"the script takes {found.taken} rows, and the recipe all of the split"
            )
        elif found.rows is not None:
            self.count = len(found.rows)
        if found.share is not None:
            self.options["val"] = found.share
        self._prompts(found.changes)
        return found.changes

    def _held_out_rows(self, value: Any) -> None:
        """Where the rows are from that the script evaluates on: a file or split of their own, or a
        share."""
        if value is None:
            return
        found = self._find_rows(
            next(iter(value.values()), None) if isinstance(value, dict) else value
        )
        if found.share is not None:
            self.options["val"] = found.share
        elif found.data is None or found.data == self.data:
            of = "rows of train" if found.data else found.why
            self.notes.append(f"eval_dataset is {of}: val of the recipe holds out a tenth of train")
        else:
            self.options["val"] = found.data
        if found.taken is not None:
            self.values["evaluation.limit"] = found.taken

    def _find_rows(self, value: Any) -> _Rows:
        """Follow rows to where they are from."""
        found, split = _Rows(), None
        for _ in range(200):
            match value:
                case LibraryValue("call", "load_dataset"):
                    self._data_set(value, split, found)
                    break
                case LibraryValue("call", name, args=[str() | PurePath() as place, *_]) if (
                    name in LOADS
                ):
                    found.data = f"hf://{place}" if name == "load_from_disk" else str(place)
                    keywords = {one.arg for one in getattr(value.node, "keywords", [])}
                    # by assignment
                    if made := {
                        key: each for key, each in value.keys.items() if key not in keywords
                    }:
                        code = f"lambda row: {_script_expression(made)}"
                        found.changes.insert(0, self._add_map(value, code))
                    break
                case str() | PurePath():
                    found.data = str(value)
                    break
                case LibraryValue("call", name, args=[inner, *_]) if name in INNER_ROWS:
                    value = inner
                case LibraryValue("call", "select" | "take" | "head", args=[many, *_], owner=owner):
                    many = len(many) if isinstance(many, list | range) else many
                    if isinstance(many, int):
                        found.taken = many
                    else:
                        found.notes.append(
                            f"select({_quote_source(many)}): the recipe has all rows of the split"
                        )
                    value = owner
                case LibraryValue("call", "train_test_split", args=args, keys=keys):
                    given = {**dict(zip(("test_size", "train_size"), args, strict=False)), **keys}
                    rest = to_recipe_value(given.get("train_size"))
                    share = to_recipe_value(given.get("test_size")) or (
                        0.25 if rest is None else 1 - rest if isinstance(rest, float) else None
                    )
                    if isinstance(share, int | float):
                        found.share = share
                    else:
                        found.notes.append(
                            f"{_quote_source(value)}: val and test of the recipe hold out a tenth each"
                        )
                    split, value = None, value.owner
                case LibraryValue(
                    "call",
                    "rows",
                    args=[LibraryValue(name="loads" | "literal_eval")],
                    owner=owner,
                ):
                    value = owner
                case LibraryValue(
                    name="rename_column" | "rename_columns" | "rename", args=args, keys=keys
                ):
                    names = keys.get("columns") or (args[0] if len(args) == 1 else dict([args]))
                    pairs = ", ".join(f"{new!r}: row[{old!r}]" for old, new in dict(names).items())
                    found.changes.insert(0, self._add_map(value, f"lambda row: {{{pairs}}}"))
                    value = value.owner
                case LibraryValue(
                    name="rows",
                    node=ast.ListComp(each, [ast.comprehension(ast.Name(row))]),
                ):
                    found.changes.insert(
                        0, self._add_map(value, f"lambda {row}: {ast.unparse(each)}", "rows")
                    )
                    value = value.owner
                case LibraryValue("call", "map" | "rows" | "filter"):
                    found.changes.insert(0, replace(value, kind=value.name))
                    value = value.owner
                case LibraryValue("call", name, owner=LibraryValue() as owner) if name in SAME_ROWS:
                    value = owner
                case LibraryValue("item", args=[key], owner=owner):
                    split = key if isinstance(key, str | int) else split
                    value = owner
                case LibraryValue("call", args=[LibraryValue() as inner, *_], node=node) if (
                    value.name
                    not in {
                        "chain",
                        "zip",
                    }
                ):
                    found.notes.append(
                        f"{unparse_expression(node)} changes the rows, and is not taken over"
                    )
                    value = inner
                case LibraryValue("attribute", owner=LibraryValue() as owner) | [
                    LibraryValue(name="rows") as owner
                ]:
                    value = owner
                case list() | dict():
                    found.rows = _constant_rows(value)
                    break
                case _:
                    break
        if found.rows is not None:
            found.data = f"{self.path.stem}_rows.jsonl"
        found.why = found.why or f"the script has {_quote_source(value)}"
        return found

    def _add_map(self, made: LibraryValue, code: str, kind: str = "") -> LibraryValue:
        """A change of the rows as a map by a function."""
        node = ast.parse(code, mode="eval").body
        function = self.script.value(node, made.scope)
        return replace(
            made, name="map", args=[function], keys={}, node=ast.Call(node, [node], []), kind=kind
        )

    def _data_set(self, call: LibraryValue, split: str | int | None, found: _Rows) -> None:
        keys = {**dict(zip(("path", "name"), call.args, strict=False)), **call.keys}
        path, config = keys.get("path"), keys.get("name")
        given: Any = keys.get("split", None if isinstance(split, int) else split)
        if isinstance(given, list | tuple):
            given = dict[Any, Any](enumerate(given)).get(split, Unknown(call.node))
        files = keys.get("data_files")
        if isinstance(files, dict):
            files = files.get(given, next(iter(files.values()), None))
        if isinstance(files, list):
            if len(files) > 1:
                found.notes.append("the script reads several files: the recipe has the first")
            files = files[0] if files else None
        place = to_recipe_value(files or path)
        unknown = [one for one in (files or path, config, given) if to_recipe_value(one) is UNKNOWN]
        if unknown:
            found.why = _quote_source(unknown[0])
        elif not isinstance(place, str):
            found.why = "the script names no data set"
        elif (path in BUILDERS) != bool(files) or (files and re.search(r"://|[*?]", place)):
            found.why = f"{unparse_expression(call.node)} is no single file here: name one"
        else:
            hub = f"hf://{place}{f'/{config}' if config else ''}{f':{given}' if given else ''}"
            found.data = place if files else hub

    def _prompts(self, changes: list[LibraryValue]) -> None:
        """The column that is asked, and the system message, where every change of the rows is
        plain."""
        columns: Values = {}
        for change in changes:
            given = getattr(change.node, "args", None)
            source = unparse_expression(given[0]) if isinstance(given, list) and given else "..."
            said = f"{change.kind}({source})"
            if change.name == "filter":
                self.notes.append(f"{said} leaves rows out, and is not taken over")
                continue
            row = LibraryValue("call", "row", None, [], dict(columns), None, change.scope)
            keys = change.keys
            more, at = keys.get("fn_kwargs"), [0] if keys.get("with_indices") else []
            made = self.script.call(
                next(iter(change.args), keys.get("function")),
                [row, *at],
                more if isinstance(more, dict) else {},
                change.node or ast.Pass(),
                row.scope,
            )
            made = made.keys if made is row else made
            if not isinstance(made, dict):
                self.notes.append(f"{said} changes the rows, and is not plain")
                columns |= {"prompt": UNKNOWN, "**": UNKNOWN}
                continue
            columns |= made
            if change.kind:
                also = "; rewards see its columns" if self.stage == "rl" else ""
                self.notes.append(f"{said} is not run: the prompt is written anew{also}")
        self.makes = {
            key
            for key, each in columns.items()
            if (isinstance(each, list) if key == "prompt" else key != "**" and _column(each) != key)
        }
        if self.stage == "sft" and not changes:
            self.open(
                "task.options.prompt",
                "messages; or prompt, with gold: completion; or as the rows have it",
            )
        elif "prompt" in columns or "messages" in columns:
            self._prompt_of(columns.get("prompt", columns.get("messages")), columns)
        elif changes and "text" in columns:
            self.open(
                "task.options.prompt", "the script trains on whole texts: name prompt and gold"
            )

    def _prompt_of(self, value: Any, columns: Mapping[str, Any]) -> None:
        if isinstance(value, LibraryValue) and value.name == "apply_chat_template":
            value = next(
                iter(value.args), value.keys.get("conversation", value.keys.get("messages"))
            )
        if isinstance(value, LibraryValue) and value.name == "rows" and value.args:
            value = value.args[0]
        content, system, gold = value, None, None
        if isinstance(value, list):
            turns = [
                (one.get("role"), one.get("content")) for one in value if isinstance(one, dict)
            ]
            system = turns.pop(0)[1] if turns and turns[0][0] == "system" else None
            supervised = self.stage == "sft" and len(turns) == 2 and turns[1][0] == "assistant"
            gold = turns.pop()[1] if supervised else None
            content = turns[0][1] if len(turns) == 1 and turns[0][0] == "user" else UNKNOWN
        form = _template(content)
        if form is None or not isinstance(system, str | None):
            self.open("task.options.prompt", f"not plain: {_quote_source(value)}; {TO_FILE}")
            return
        gold = columns.get("completion", gold)
        if isinstance(gold, list) and len(gold) == 1 and isinstance(gold[0], dict):
            gold = gold[0].get("content")
        answer = _template(gold) if self.stage == "sft" else None
        found = {"prompt": form, "system": system, "gold": answer}
        self.options |= {key: each for key, each in found.items() if each is not None}

    # -- rewards -----------------------------------------------------------------------------------

    def _rewards(self, value: Any, changes: list[LibraryValue]) -> None:
        items = [*value] if isinstance(value, list | tuple) else [] if value is None else [value]
        if self.beside is None:  # names of the command line
            items = [
                one if "/" in one else LibraryName(one if "." in one else f"trl.rewards.{one}")
                for one in items
            ]
            if (model := self.script.settings.get("reward_model_name_or_path")) is not None:
                items.append(model)
        file = RewardFile(self.script)
        left: list[str] = []
        wrong = [] if items else ["the script names no reward function"]
        module = self.module = module_name(self.path)
        names = self.rewards
        try:
            for at, item in enumerate(items):
                if why := _explain_no_twin(item):
                    left.append(f"{_quote_source(item)} {why}")
                    self.unscored.add(at)
                elif (
                    isinstance(item, Function)
                    and item.scope.module is not self.script.main
                    and item.origin is None
                ):
                    names.append(f"{self._write_module(item.scope.module)}:{item.name}")
                elif isinstance(item, LibraryName) and "." in item.path:
                    names.append(":".join(item.path.rsplit(".", 1)))
                elif isinstance(item, Function | Instance) or (
                    isinstance(item, LibraryValue) and item.how == "call"
                ):
                    names.append(
                        f"{module}:{file.add(item, [one.partition(':')[2] for one in names])}"
                    )
                else:
                    wrong.append(f"{_quote_source(item)} is no function by name")
            self.rewards = list(dict.fromkeys(names))
            self.notes += [f"{each}, and is left out of score" for each in left]
            if (
                self.makes
                and self.rewards
                and not file.refused
                and "task.options.prompt" not in self.todo
            ):
                self._show_rows(file, changes)
        except (SyntaxError, RecursionError, ValueError, AssertionError) as error:
            file.refused.append(f"the rewards are beyond what can be read: {error}")
        self.refused = list(dict.fromkeys(file.refused))
        if any(name.startswith(f"{module}:") for name in self.rewards) and not self.refused:
            self.taken = file.text()
        if wrong := wrong or ([] if self.rewards else left):
            known = f"besides {', '.join(self.rewards[:5])}, " if self.rewards else ""
            self.todo["task.options.score"] = f"{known}{'; '.join(wrong[:5])}"

    def _write_module(self, module: Module) -> str:
        """A module beside the script, as it is imported from the working directory."""
        found = Path(*module.name.split(".")).with_suffix(".py").exists()
        path = module.path.resolve()
        if not found and module.path.is_file() and path.is_relative_to(Path.cwd()):
            inner = path.relative_to(Path.cwd()).with_suffix("").parts
            if all(map(str.isidentifier, inner)):
                return ".".join(inner)
        return module.name

    def _show_rows(self, file: RewardFile, changes: list[LibraryValue]) -> None:
        """Let rewards see the columns that the script makes, and completions as messages where its
        prompts are."""
        prompt = self.options.get("prompt", "prompt")
        if self.makes == {"prompt"}:
            turns = [f"{{'role': 'user', 'content': {_row_expression(prompt)}}}"]
            if (system := self.options.get("system")) is not None:
                turns.insert(0, f"{{'role': 'system', 'content': {system!r}}}")
            code = f"lambda row: {{'prompt': [{', '.join(turns)}]}}"
            changes = [self._add_map(changes[0], code)]
        steps: list[tuple[ast.AST, Any, str]] = []
        for change in changes:
            if change.name == "filter":
                continue
            given = change.node
            if (
                change.name == "rows"
                or not isinstance(given, ast.Call)
                or {"fn_kwargs", "with_indices"} & {*change.keys}
            ):
                self.open(
                    "task.options.prompt",
                    f"{unparse_expression(given)} takes more than a row; {TO_FILE}",
                )
                return
            inner = next(
                iter([*given.args, *(one.value for one in given.keywords if one.arg == "function")])
            )
            one = "{{key: [each] for key, each in row.items()}}"
            many = f"lambda row: {{{{key: each[0] for key, each in ({{}})({one}).items()}}}}"
            steps.append(
                (inner, change.scope, many if change.keys.get("batched") is True else "({})")
            )
        names = [name.partition(":")[2] for name in self.rewards]
        for name, item in zip(names, self.rewards, strict=True):
            if not item.startswith(f"{self.module}:"):
                file.add_import(item.partition(":")[0], name)
        added = file.add_steps(
            steps, prompt if "{" not in prompt else "prompt", self.script.read - {"prompt"}, names
        )
        if file.refused:
            self.open("task.options.prompt", f"{file.refused.pop()}; {TO_FILE}")
            file.refused.clear()
            file.drop_steps()
            return
        self.rewards = [f"{self.module}:{name}" for name in added]

    # -- the configuration -------------------------------------------------------------------------

    def _config(self, trainer: Mapping[str, Any]) -> None:
        config, keys = trainer.get("args"), {}
        if isinstance(config, LibraryValue) and config.how == "call":
            rate = {"learning_rate": 5e-5} if config.name == "TrainingArguments" else {}
            keys = {**rate, **dict(zip(("output_dir",), config.args, strict=False)), **config.keys}
        elif config is not None:
            known = isinstance(config, Unknown)
            keys = {"**": config if known else Unknown(getattr(config, "node", None))}
        if self.stage == "sft" and "max_seq_length" in {**keys, **trainer}:
            keys["max_length"] = keys.pop("max_seq_length", trainer.get("max_seq_length"))
        if (more := keys.pop("**", None)) is not None:
            keys = {**dict.fromkeys(DEFAULTS[self.stage], more), **keys}
        if isinstance(inner := keys.get("model_init_kwargs"), dict):
            self._loading_keys(inner)
        read = {key: to_recipe_value(each) for key, each in keys.items()}
        self.unknown = {
            key: _quote_source(keys[key]) for key, each in read.items() if each is UNKNOWN
        }
        given = self.given = {**DEFAULTS[self.stage], **read}
        for key in self.unknown:
            del given[key]
        if wrong := [
            key for key in NUMBERS & given.keys() if not isinstance(given[key], int | float | None)
        ]:
            raise TypeError(
                ", ".join(f"{key}={describe_value(given[key])}" for key in sorted(wrong))
            )
        if name := given.get("run_name") or Path(str(given.get("output_dir") or "")).name:
            self.values["name"] = name
        self._copy_equal_keys()
        self._derive_key(f"{self.stage}.optimiser.schedule", self._schedule, "lr_scheduler_type")
        self._derive_key(
            f"{self.stage}.optimiser.warmup",
            lambda share, steps: share or steps,
            "warmup_ratio",
            "warmup_steps",
        )
        self._derive_key(
            f"{self.stage}.optimiser.betas", lambda *betas: [*betas], "adam_beta1", "adam_beta2"
        )
        optimiser = str(given.get("optim", "adamw"))
        if "8bit" in optimiser:
            self.values[f"{self.stage}.optimiser.name"] = "adamw8bit"
        if self.stage == "rl":
            self._rl()
        else:
            self._derive_key("sft.batch_size", lambda rows, times: rows * times, *BATCH[1:3])
            steps = given.get("max_steps", 1) > 0
            key, twin = ("max_steps", "sft.steps") if steps else ("num_train_epochs", "sft.epochs")
            self._derive_key(twin, lambda many: many, key)
            no_reward = "a script of SFT has no reward: module:function that judges answers"
            self.todo.setdefault("task.options.score", no_reward)
        left = [key for key in keys if key not in READ and not key.startswith(SILENT)]
        left += [] if "adamw" in optimiser else ["optim"]
        self.notes += [
            f"{key}={_quote_source(keys[key])} has no twin"
            for key in left
            if read[key] not in USUAL.get(key, (None, False, "", []))
            and read[key] not in self.options.values()
        ]

    def _copy_equal_keys(self) -> None:
        given, values = self.given, self.values
        for key, twin in SAME.items():
            if self.stage == "sft" and twin.startswith(("rl", "sampling", "task")):
                continue
            twin = twin.replace("*", self.stage)
            if key in self.unknown and twin.startswith(
                ("model.d", "model.g", "model.t", "run", "evaluation")
            ):
                self.notes.append(
                    f"{key}={self.unknown[key]} is no constant: {twin} is left to what it is here"
                )
            else:
                self._derive_key(twin, lambda value: value, key)
        if isinstance(weights := values.get("task.options.weights"), list):
            values["task.options.weights"] = [
                one for at, one in enumerate(weights) if at not in self.unscored
            ]
        for key in ("eval_steps", "save_steps"):
            twin = SAME[key]
            if not isinstance(values.get(twin, 1), int) or values.get(twin, 1) < 1:
                self.notes.append(f"{key}={describe_value(values.pop(twin))} has no twin")
        if "bf16" in given:
            values |= {"model.dtype": "bfloat16"} if values.pop("model.dtype", None) else {}
        if (top := values.get("sampling.top_k", 1)) != TODO and top <= 0:
            values.pop("sampling.top_k")
        if (trackers := given.get("report_to")) not in (None, "none", "all"):
            known = [trackers] if isinstance(trackers, str) else trackers
            values["run.trackers"] = [item for item in known if item in TRACKERS]

    def _derive_key(self, twin: str, make: Callable[..., Any], *keys: str) -> None:
        """A key of the recipe that is made of keys of the configuration; open where one of them is
        not known."""
        lacking = [f"{key}={self.unknown[key]}" for key in keys if key in self.unknown]
        if lacking:
            self.open(twin, ", ".join(lacking) if len(keys) > 1 else self.unknown[keys[0]])
        elif (value := make(*map(self.given.get, keys))) is not None:
            self.values[twin] = value
            if value == TODO:
                self.open(
                    twin, ", ".join(f"{key}={describe_value(self.given[key])}" for key in keys)
                )

    def _schedule(self, kind: Any) -> str:
        if kind in SCHEDULES:
            return str(kind)
        self.notes.append(
            f"lr_scheduler_type={describe_value(kind)} has no twin; there are {', '.join(SCHEDULES)}"
        )
        return "cosine" if str(kind).startswith("cosine") else TODO

    def _rl(self) -> None:
        """Prompts of a batch of rollouts, and steps: TRL counts answers, and steps of the
        optimiser."""
        given = self.given
        if not self.unknown.keys() & {*BATCH}:
            group, rows, accumulated = (given[key] for key in BATCH[:3])
            generations = given.get("steps_per_generation") or accumulated
            answers = given.get("generation_batch_size") or rows * generations
            if answers % group:
                self.notes.append(
                    f"{answers} answers are no multiple of {group}: a batch is a group, as in "
                    "Unsloth"
                )
                rows, answers = group, group * generations
            self.notes.append(
                f"{answers} answers a batch are those of one process: with several GPUs multiply "
                "rl.prompts_per_step"
            )
            learnt = rows * accumulated
            self.values |= {"rl.minibatch": max(1, learnt // group)} if answers > learnt else {}
            prompts, batches = max(1, answers // group), max(1, answers // learnt)
        else:
            prompts = batches = 1
        self._derive_key("rl.prompts_per_step", lambda *_: prompts, *BATCH)
        if given.get("max_steps", 1) <= 0:
            if "num_train_epochs" in self.unknown:
                self._derive_key("rl.steps", lambda *_: None, "num_train_epochs")
            self.epochs = given.get("num_train_epochs")
        else:
            repeated = ("max_steps", "num_iterations", *BATCH)
            self._derive_key(
                "rl.steps", lambda steps, times, *_: max(1, steps // (batches * times)), *repeated
            )
        self._derive_key("rl.algorithm", self._algorithm, *ALGORITHM)
        if given.get("use_vllm") is True:
            self.values["engine.name"] = "vllm"
            self.notes.append(
                "use_vllm=True is engine: vllm, which needs the extra vllm; without it leave it out"
            )
            pairs = [(flag, given.get(key)) for key, flag in ENGINE.items()]
            if flags := [str(one) for pair in pairs if pair[1] is not None for one in pair]:
                self.values["engine.arguments"] = flags
            if given.get("vllm_mode") == "server":
                self.notes.append(
                    "vllm_mode='server' is TRL's own server: engine.address is that of vLLM's"
                )

    def _algorithm(self, loss: Any, level: Any, low: Any, high: Any, scale: Any) -> Values:
        options: Values = {"name": "gspo" if level == "sequence" else "grpo"}
        if loss == "cispo":
            options = {"name": "cispo", "clip_high": (high or 5.0) - 1}
        elif loss in {"grpo", "dr_grpo", "dapo", "bnpo"}:
            options["normaliser"] = "dapo" if loss == "bnpo" else loss
        else:
            self.notes.append(f"loss_type={describe_value(loss)} has no twin: GRPO's is written")
        if loss != "cispo" and (low, high or low) != (0.2, 0.2):
            options |= {"clip_low": low, "clip_high": high or low}
        if scale == "batch":
            self.notes.append(
                "scale_rewards='batch' has no twin: each group's own deviation is written"
            )
        return {**options, "scale_advantages": "none" if scale in (False, "none") else "group"}


def _quote_source(value: Any) -> str:
    """What the script has where no constant is."""
    if isinstance(value, list | tuple):
        value = next((one for one in value if isinstance(one, Unknown)), value)
    if isinstance(value, LibraryName):
        return value.path
    if isinstance(value, Unknown):
        return str(value)
    if (known := to_recipe_value(value)) is not UNKNOWN:
        return describe_value(known)
    node = getattr(value, "node", None)
    return "no constant" if node is None else unparse_expression(node)


def _constant_rows(value: list[Any] | dict[Any, Any]) -> list[Values] | None:
    """Rows that stand in a script, each by itself or by columns; None where they are not all
    constants."""
    rows: Any = to_recipe_value(value)
    if isinstance(rows, dict) and all(isinstance(each, list) for each in rows.values()):
        rows = [dict(zip(rows, each, strict=False)) for each in zip(*rows.values(), strict=False)]
    sound = isinstance(rows, list) and all(
        isinstance(row, dict) and all(map(str.isidentifier, row)) for row in rows
    )
    return rows or None if sound else None


def _explain_no_twin(item: Any) -> str:
    """Why a reward has no twin; empty where it may have one."""
    while (
        isinstance(item, LibraryValue)
        and item.how == "call"
        and item.name in {"to", "cuda", "eval"}
    ):
        item = item.owner
    match item:
        case str() | LibraryValue(name="from_pretrained"):
            return "is a reward model, which has no twin"
        case Function(node=node):
            given = node.args.args[: len(node.args.args) - len(node.args.defaults)]
            names = {one.arg for one in given}.intersection(TRL["trainer_only"])
        case (
            LibraryValue(name="get_soft_overlong_punishment")
            | LibraryName(tail="get_soft_overlong_punishment")
        ):
            names = {"completion_ids"}
        case _:
            return ""
    return f"takes {min(names)}, which only TRL's trainer has" if names else ""


def _column(value: Any) -> str | None:
    """The column of a row that a value is."""
    if not isinstance(value, LibraryValue) or value.how != "item" or isinstance(value.args[0], int):
        return None
    key, owner = value.args[0], value.owner
    if not isinstance(key, str):
        return _column(owner)  # one of many
    is_row = isinstance(owner, LibraryValue) and (
        owner.name in {"row", *LOADS} or owner.how == "item"
    )
    return key if is_row and _column(owner) is None else None


def _template(value: Any) -> str | None:
    """A column, or a template of columns as the recipe has it; None where a value is neither."""
    if not isinstance(value, Text):
        return _column(value)
    found = []
    for part in value.parts:
        if isinstance(part, str):
            found.append(part.replace("{", "{{").replace("}", "}}"))
        elif (column := _column(part)) is not None:
            found.append(f"{{{column}}}")
        else:
            return None
    return "".join(found)


def _row_expression(form: str) -> str:
    """A column or a template as an expression of a row."""
    return f"{form!r}.format(**row)" if "{" in form else f"row[{form!r}]"


def _script_expression(value: Any) -> str:
    """What the script makes, as an expression of a row."""
    if isinstance(value, dict):
        inner = [f"{key!r}: {_script_expression(each)}" for key, each in value.items()]
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_script_expression, value))}]"
    if (form := _template(value)) is not None:
        return _row_expression(form)
    known = to_recipe_value(value)
    return "not_plain" if known is UNKNOWN else repr(known)
