"""What a training script for TRL says, as keys of a recipe. The script is followed as text and never run."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plumbline.errors import RecipeError
from plumbline.recipe.files import TODO
from plumbline.recipe.script import (
    LIBRARY,
    PARSED,
    UNKNOWN,
    Function,
    Instance,
    LibraryName,
    Made,
    Module,
    Script,
    Text,
    Unknown,
    plain,
    read_module,
    read_settings,
    shown,
    source,
)
from plumbline.recipe.script_rewards import RewardFile, module_name
from plumbline.storage import one_line

CONFIGS = {"GRPOConfig": "rl", "SFTConfig": "sft"}
"""Which section of a recipe each configuration of TRL becomes."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "rl": {
        "learning_rate": 1e-6,
        "lr_scheduler_type": "linear",
        "warmup_steps": 0,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "num_train_epochs": 3.0,
        "num_generations": 8,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 1,
        "max_completion_length": 512,
        "loss_type": "dapo",
        "scale_rewards": "group",
        "seed": 42,
    },
    "sft": {
        "learning_rate": 2e-5,
        "lr_scheduler_type": "linear",
        "warmup_steps": 0,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "num_train_epochs": 3.0,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 1,
        "max_length": 1024,
        "seed": 42,
    },
}
"""Defaults of TRL 1.16 that are not ours: what a script does not set has these."""
SAME = {
    "seed": "seed",
    "bf16": "model.dtype",
    "gradient_checkpointing": "model.gradient_checkpointing",
    "trust_remote_code": "model.trust_remote_code",
    "max_length": "model.context",
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "top_k": "sampling.top_k",
    "max_completion_length": "sampling.max_tokens",
    "num_generations": "rl.group_size",
    "num_iterations": "rl.inner_epochs",
    "beta": "rl.beta",
    "reward_weights": "task.options.weights",
    "eval_steps": "evaluation.every",
    "save_steps": "run.checkpoint_every",
    "save_total_limit": "run.keep_checkpoints",
    "project": "run.project",
}
"""Keys that have a twin of the same meaning."""
OPTIMISER = {
    "learning_rate": "learning_rate",
    "lr_scheduler_type": "schedule",
    "weight_decay": "weight_decay",
    "max_grad_norm": "max_grad_norm",
}
UNNEEDED = frozenset({"output_dir", "run_name", "logging_steps", "logging_first_step", "log_completions"})
"""The name of the run; and what every run records anyway."""
LORA = {"r": "rank", "lora_alpha": "alpha", "target_modules": "targets"}
SILENT = ("logging_", "log_", "hub_", "push_to_hub", "dataloader_", "disable_tqdm", "ddp_", "save_", "vllm_", "remove_")
"""What begins so changes nothing that is learnt."""
SCHEDULES = ("constant", "constant_with_warmup", "cosine", "linear")
LOADS = {"from_csv", "from_json", "from_parquet", "read_csv", "read_json", "read_parquet", "load_from_disk"}
SAME_ROWS = {
    *("shuffle", "remove_columns", "select_columns", "with_format", "set_format", "cast", "cast_column", "flatten"),
    *(
        "to_iterable_dataset",
        "reset_index",
        "flatten_indices",
        "with_transform",
        "copy",
        "dropna",
        "to_dict",
        "to_list",
    ),
}
"""Changes of a data set that change no value of a row."""
INNER_ROWS = {"from_list", "from_pandas", "from_dict", "from_records", "DataFrame", "list", "loads", "load", "open"}
"""What holds the rows of what it is given."""
TO_FILE = "write the rows that the script makes to a file (dataset.to_json) and name it in train"
POSITIONS = {
    "GRPOTrainer": ("model", "reward_funcs", "args", "train_dataset"),
    "SFTTrainer": ("model", "args", "data_collator", "train_dataset"),
}


@dataclass
class TrlScript:
    """What was found in a script."""

    stage: str
    """rl or sft."""
    model: str | None = None
    data: str | None = None
    rewards: list[str] = field(default_factory=list)
    """Each as `module:function`."""
    values: dict[str, Any] = field(default_factory=dict)
    """By the key of the recipe, such as `rl.optimiser.learning_rate`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the task: `prompt`, `system`, where the script says how a row becomes a prompt."""
    todo: dict[str, str] = field(default_factory=dict)
    """What the script has where a key is open, by the key."""
    epochs: float | None = None
    """Where the script counts passes over the prompts and not steps of RL."""
    count: int | None = None
    """Rows that the script takes, where it says so."""
    makes: bool = False
    """Whether rewards see columns that the script makes, or messages where the rows have texts."""
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
        config: the YAML file that its own parser is given; by default one of the same name beside it, or the only one
            there that names a setting of a training.

    Raises:
        RecipeError: it cannot be read, is no Python, or trains with nothing that is known.
    """
    try:
        if path.suffix in {".yaml", ".yml"}:
            return _Reader(Script(Module(path, "", ast.parse("")), {}), []).from_settings(_settings(path))
        beside = [config] if config is not None else _beside(path)
        settings = _settings(beside[0]) if len(beside) == 1 else {}
        return _Reader(Script(read_module(path), settings), beside).from_script()
    except RecursionError as error:
        raise RecipeError(f"{path} is nested too deeply", "give --model, --data and --reward") from error
    except (TypeError, ZeroDivisionError) as error:
        raise RecipeError(
            f"{path}: a value of the configuration is of the wrong kind: {one_line(error)}", "correct it there"
        ) from error


def _settings(path: Path) -> dict[str, Any]:
    read = read_settings(path)
    if not isinstance(read, dict) or "compute_environment" in read or "distributed_type" in read:
        raise RecipeError(f"{path} holds no settings of a training with TRL", "give the file that sets them")
    return {str(key): each for key, each in read.items()}


def _beside(path: Path) -> list[Path]:
    """The YAML files beside a script that may hold its settings, the one of its name alone where there is one."""
    same = [file for suffix in (".yaml", ".yml") if (file := path.with_suffix(suffix)).is_file()]
    if same:
        return same[:1]
    found = []
    for file in sorted([*path.parent.glob("*.yaml"), *path.parent.glob("*.yml")])[:50]:
        try:
            keys = read_settings(file)
        except RecipeError:
            continue
        wanted = {"model_name_or_path", "learning_rate", "dataset_name", "num_generations"}
        other = file.with_suffix(".py").exists()  # it is that script's
        if isinstance(keys, dict) and len(wanted & keys.keys()) > 1 and not other:
            found.append(file)
    return found


class _Reader:
    def __init__(self, script: Script, beside: Sequence[Path]) -> None:
        self.script, self.path, self.beside = script, script.main.path, beside

    def from_script(self) -> TrlScript:
        """Everything that the script says."""
        trainer, config = self._trainer(), None
        if trainer is None:
            self.script.follow_unasked("Trainer")
            trainer = self._trainer()
        given = dict(trainer.keys) if trainer else {}
        if trainer is None:
            config = next((call for call in self.script.made if call.name in CONFIGS), None)
            if config is None:
                raise self._trains_otherwise()
            stage = CONFIGS[config.name]
        else:
            name = next(name for name in POSITIONS if trainer.name.endswith(name))
            stage = "rl" if name == "GRPOTrainer" else "sft"
            given = {**dict(zip(POSITIONS[name], trainer.args, strict=False)), **given}
            config = given.get("args")
        result = TrlScript(stage, notes=[*self.script.main.notes])
        if trainer is not None and (own := trainer.kind or trainer.name) not in POSITIONS:
            result.notes.append(f"{own} is a trainer of the script's own: what it changes is not taken over")
        self._say_parsers(result)
        self._model(given, result)
        steps = self._rows(given.get("train_dataset"), result) if trainer else []
        if stage == "rl":
            self._rewards(given.get("reward_funcs"), steps, result)
        self._config(self._settings(config, given, result), result)
        return result

    def from_settings(self, settings: Mapping[str, Any]) -> TrlScript:
        """What `trl grpo --config` or `trl sft --config` would do."""
        rl = {"reward_funcs", "num_generations", "max_completion_length", "beta", "loss_type", "scale_rewards"}
        stage = "rl" if rl & settings.keys() else "sft"
        if (
            not ({"model_name_or_path", "dataset_name", "datasets", "learning_rate", "max_length"} | rl)
            & settings.keys()
        ):
            raise RecipeError(f"{self.path} holds no settings of a training with TRL", "give the file that sets them")
        result = TrlScript(stage)
        scope = self.script.scope
        own = Made(
            "call", "ModelConfig", None, [], {key: settings[key] for key in LIBRARY.keys() & settings}, None, scope
        )
        first = next(iter(settings.get("datasets") or [{}]))
        where = {"path": settings.get("dataset_name"), "name": settings.get("dataset_config"), **first}
        where["split"] = first.get("split") or settings.get("dataset_train_split", "train")
        lora = Made("call", "get_peft_config", None, [own], {}, None, scope)
        self._model({"model": settings.get("model_name_or_path"), "peft_config": lora}, result)
        result.values |= {"model.quantize": "4bit"} if settings.get("load_in_4bit") is True else {}
        self._rows(Made("call", "load_dataset", None, [], where, None, scope), result)
        if len(settings.get("datasets") or []) > 1:
            result.notes.append("datasets names several: the recipe has the first")
        if stage == "rl":
            names = settings.get("reward_funcs") or []
            known = [LibraryName(name if "." in name else f"trl.rewards.{name}") for name in map(str, names)]
            self._rewards(known or None, [], result)
        self._config({key: each for key, each in settings.items() if key not in LIBRARY}, result)
        return result

    def _trainer(self) -> Made | None:
        found = [call for name in POSITIONS for call in self.script.made if call.name.endswith(name)]
        return found[0] if found else None

    def _trains_otherwise(self) -> RecipeError:
        others = sorted({call.name for call in self.script.made if call.name.endswith("Trainer")})
        what = f"trains with {', '.join(others)}" if others else "builds no GRPOTrainer and no SFTTrainer"
        return RecipeError(
            f"{self.path} {what}, and init reads scripts for GRPOTrainer and SFTTrainer",
            "give the script that builds one, or the YAML file of `trl grpo`; or use --model, --data and --reward",
        )

    def _say_parsers(self, result: TrlScript) -> None:
        names = [call.name for call in self.script.made if call.name.endswith(tuple(POSITIONS))]
        if len(names) > 1:
            result.notes.append(f"the script builds {', '.join(names)}: the recipe has the first of {result.stage}")
        if not self.script.parsers:
            return
        read = "what its command line has by default"
        if self.script.settings and {*self.script.parsers} & PARSED:
            read = f"what {self.beside[0].name} says"
        elif len(self.beside) > 1:
            read += f"; of {', '.join(file.name for file in self.beside)} give one with --config"
        result.notes.append(f"the script reads a command line: the recipe has {read}")

    # -- the model -----------------------------------------------------------------------------------------------------

    def _model(self, given: Mapping[str, Any], result: TrlScript) -> None:
        value = given.get("model")
        chain: list[Made] = []
        while isinstance(value, Made) and len(chain) < 20:
            chain.append(value)
            if value.how == "call" and value.name == "from_pretrained":
                keys = value.keys
                names = (keys.get("model_name"), keys.get("pretrained_model_name_or_path"), *value.args[:1], TODO)
                value = next(name for name in names if name is not None)
            else:
                inner = [one for one in (*value.args, *value.keys.values()) if isinstance(one, Made)]
                value = inner[0] if inner and value.how == "call" else value.owner
        text = plain(value)
        if isinstance(text, str) and text and text != TODO:
            result.model = text
        else:
            result.open("model.name", value if isinstance(value, Unknown) else f"the script has {_written(value)}")
        values = result.values
        for made in chain:
            if made.name == "from_pretrained":
                self._loaded(made, result)
            elif made.name == "get_peft_model":
                config = next((one for one in made.args if isinstance(one, Made) and one.name == "LoraConfig"), None)
                size, keys = (16, made.keys) if config is None else (8, config.keys)
                self._lora({"r": size, "lora_alpha": size, **keys}, result)
        match given.get("peft_config"):
            case Made(name="LoraConfig", keys=keys):
                self._lora({"r": 8, "lora_alpha": 8, **keys}, result)
            case Made(name="get_peft_config", args=[Made(keys=keys), *_]):
                keys = {**LIBRARY, **keys}
                if keys["use_peft"] is True:
                    twins = {"r": "lora_r", "lora_alpha": "lora_alpha", "target_modules": "lora_target_modules"}
                    self._lora({one: keys[other] for one, other in twins.items()}, result)
            case Unknown() as unknown:
                result.open("model.lora", unknown)
            case Made() as made:
                result.notes.append(f"peft_config={source(made.node)} has no twin")
        if "model.quantize" in values and "model.lora" not in values:
            result.notes.append("the script loads 4 bits: model.quantize needs model.lora")

    def _loaded(self, made: Made, result: TrlScript) -> None:
        """What a model is loaded with."""
        keys, owner = made.keys, getattr(made.owner, "tail", "") or getattr(made.owner, "name", "")
        unsloth = {"load_in_4bit": True, "max_seq_length": 2048} if owner in {"FastLanguageModel", "FastModel"} else {}
        keys = {**unsloth, **keys}
        quantized = keys.get("quantization_config")
        if isinstance(quantized, Made) and quantized.name == "BitsAndBytesConfig":
            keys = {**keys, **quantized.keys}
        four = keys.get("load_in_4bit")
        if isinstance(four, Unknown):
            result.open("model.quantize", four)
        elif four is True:
            result.values["model.quantize"] = "4bit"
        self._dtype(keys.get("dtype", keys.get("torch_dtype")), result)
        length = plain(keys.get("max_seq_length", UNKNOWN))
        if isinstance(length, int):
            result.values["model.context"] = length
        elif "max_seq_length" in keys:
            result.open("model.context", keys["max_seq_length"])

    def _dtype(self, value: Any, result: TrlScript) -> None:
        name = value.tail if isinstance(value, LibraryName) else value
        if name in {"bfloat16", "float32"}:
            result.values["model.dtype"] = name
        elif name in {"float16", "half"}:
            result.notes.append("dtype float16 has no twin: model.dtype is auto, bfloat16 on a GPU")

    def _lora(self, keys: Mapping[str, Any], result: TrlScript) -> None:
        values = {}
        for key, twin in LORA.items():
            found = plain(keys.get(key))
            if found is UNKNOWN:
                result.todo[f"model.lora.{twin}"] = str(_reason(keys[key]))
                found = TODO
            if found is not None:
                values[twin] = found
        result.values["model.lora"] = values
        silent = {*LORA, "task_type", "bias", "random_state", "use_gradient_checkpointing"}
        for key, each in keys.items():
            if key not in silent and each not in (None, False, 0):
                result.notes.append(f"{key}={_written(each)} of LoRA has no twin")

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _rows(self, value: Any, result: TrlScript) -> list[Made]:
        """Where the rows are from; what the script makes of them, in its order."""
        changes: list[Made] = []
        split: str | int | None = None
        for _ in range(200):
            match value:
                case Made(how="call", name="load_dataset"):
                    self._data_set(value, split, result)
                    break
                case Made(how="call", name=name, args=[str() as place, *_]) if name in LOADS:
                    result.data = f"hf://{place}" if name == "load_from_disk" else str(place)
                    break
                case Made(how="call", name="open" | "Path", args=[str() as place, *_]):
                    result.data = str(place)
                    break
                case Made(how="call", name=name, args=[inner, *_]) if name in INNER_ROWS:
                    value = inner
                case Made(how="call", name="select" | "take" | "head", args=[many, *_]):
                    count = len(many) if isinstance(many, list) else many
                    if isinstance(many, Made) and many.name == "range":
                        count = many.args[-1]
                    result.count = count if isinstance(count, int) else None
                    result.notes.append(f"the script takes {_written(count)} rows, and the recipe all of the split")
                    value = value.owner
                case Made(how="call", name="train_test_split"):
                    result.notes.append("the script splits the rows: val and test of the recipe hold out a tenth each")
                    value = value.owner
                case Made(how="call", name="map" | "rows" | "rename_column" | "rename_columns" | "filter"):
                    changes.append(value)
                    value = value.owner
                case Made(how="call", name=name, owner=Made() as owner) if name in SAME_ROWS:
                    value = owner
                case Made(how="item", args=[key], owner=owner):
                    split = key if isinstance(key, str | int) else split
                    value = owner
                case Made(how="call", args=[Made() as inner, *_], node=node) if value.name not in {"chain", "zip"}:
                    result.notes.append(f"{source(node)} changes the rows, and is not taken over")
                    value = inner
                case Made(how="attribute", owner=Made() as owner):
                    value = owner
                case [Made(name="rows") as several]:
                    value = several
                case list() | dict() if plain(value) is not UNKNOWN:
                    each = next(iter(value.values()), None) if isinstance(value, dict) else value
                    result.count = len(each) if isinstance(each, list) else None
                    result.open(
                        "task.options.train", "the rows stand in the script: write them to a file of JSON lines"
                    )
                    break
                case _:
                    break
        if result.data is None and "task.options.train" not in result.todo:
            result.open("task.options.train", f"the script has {_written(value)}")
        changes = changes[::-1]
        self._prompts(changes, result)
        return changes

    def _data_set(self, call: Made, split: str | int | None, result: TrlScript) -> None:
        path, config, *_ = [*call.args, None, None]
        path, config = call.keys.get("path", path), call.keys.get("name", config)
        given: Any = call.keys.get("split", None if isinstance(split, int) else split)
        if isinstance(given, list | tuple):
            given = dict[Any, Any](enumerate(given)).get(split, Unknown(call.node))
        files = call.keys.get("data_files")
        if isinstance(files, dict):
            files = files.get(given, next(iter(files.values()), None))
        if isinstance(files, list):
            result.notes += ["the script reads several files: the recipe has the first"] if len(files) > 1 else []
            files = files[0] if files else None
        unknown = next((one for one in (files or path, config, given) if plain(one) is UNKNOWN), None)
        if unknown is not None or not isinstance(files or path, str):
            result.open(
                "task.options.train", _reason(unknown) if unknown is not None else "the script names no data set"
            )
        elif files:
            result.data = str(files)
        else:
            result.data = f"hf://{path}{f'/{config}' if config else ''}{f':{given}' if given else ''}"

    def _prompts(self, changes: list[Made], result: TrlScript) -> None:
        """The column that is asked, and the system message, where every change of the rows is plain."""
        columns: dict[str, Any] = {}
        for change in changes:
            row = Made("call", "row", None, [], dict(columns), None, change.scope)
            if change.name == "filter":
                result.notes.append(f"filter({source_of(change)}) leaves rows out, and is not taken over")
                continue
            made = self._changed(change, row)
            if made is None:
                result.notes.append(f"{change.name}({source_of(change)}) changes the rows, and is not plain")
                columns |= {"prompt": UNKNOWN, "**": UNKNOWN}
            else:
                columns |= made
        prompt = columns.get("prompt")
        result.makes = isinstance(prompt, list) or any(
            key not in {"prompt", "**"} and _column(each) != key for key, each in columns.items()
        )
        if result.stage == "sft" and not changes:
            result.open("task.options.prompt", "messages; or prompt, with gold: completion; or as the rows have it")
        elif "prompt" in columns or "messages" in columns:
            self._prompt_of(columns.get("prompt", columns.get("messages")), columns, result)
        elif changes and "text" in columns:
            result.open("task.options.prompt", "the script trains on whole texts: name prompt and gold")

    def _changed(self, change: Made, row: Made) -> dict[str, Any] | None:
        """The columns that a change gives, by the columns of the row."""
        match change:
            case Made(name="rename_column", args=[str() as old, str() as new]):
                return {new: row.keys.get(old, Made("item", "", row, [old], {}, None, row.scope))}
            case Made(name="rename_columns", args=[dict() as names]):
                return {new: Made("item", "", row, [old], {}, None, row.scope) for old, new in names.items()}
            case Made(name="rows", args=[dict() as made]):
                return made
            case Made(name="map", args=args, keys=keys, node=node):
                function = args[0] if args else keys.get("function")
                extra = keys.get("fn_kwargs")
                indices = [0] if keys.get("with_indices") else []
                found = self.script.called(
                    function, [row, *indices], extra if isinstance(extra, dict) else {}, node or ast.Pass(), row.scope
                )
                found = found.keys if found is row else found
                return found if isinstance(found, dict) else None
        return None

    def _prompt_of(self, value: Any, columns: Mapping[str, Any], result: TrlScript) -> None:
        if isinstance(value, Made) and value.name == "apply_chat_template":
            value = value.args[0] if value.args else value.keys.get("conversation", value.keys.get("messages"))
        if isinstance(value, Made) and value.name == "rows" and value.args:
            value = value.args[0]
        content, system, gold = value, None, None
        if isinstance(value, list):
            turns = [(one.get("role"), one.get("content")) for one in value if isinstance(one, dict)]
            system = turns.pop(0)[1] if turns and turns[0][0] == "system" else None
            gold = turns.pop()[1] if len(turns) == 2 and turns[1][0] == "assistant" else None
            content = turns[0][1] if len(turns) == 1 and turns[0][0] == "user" else UNKNOWN
        form = _template(content)
        if form is None or not (system is None or isinstance(system, str)):
            result.open("task.options.prompt", f"not plain: {_written(value)}; {TO_FILE}")
            return
        result.options["prompt"] = form
        if system is not None:
            result.options["system"] = str(system)
        gold = columns.get("completion", gold)
        if isinstance(gold, list) and len(gold) == 1 and isinstance(gold[0], dict):
            gold = gold[0].get("content")
        if result.stage == "sft" and gold is not None and (form := _template(gold)) is not None:
            result.options["gold"] = form

    # -- rewards -------------------------------------------------------------------------------------------------------

    def _rewards(self, value: Any, changes: list[Made], result: TrlScript) -> None:
        items = [*value] if isinstance(value, list | tuple) else [] if value is None else [value]
        file = RewardFile(self.script)
        names: list[str] = []
        wrong = [] if items else ["the script names no reward function"]
        module = result.module = module_name(self.path)
        try:
            for item in items:
                if isinstance(item, Function) and item.scope.module is not self.script.main and item.origin is None:
                    names.append(f"{self._module(item.scope.module)}:{getattr(item.node, 'name', '')}")
                elif isinstance(item, LibraryName) and "." in item.path:
                    where, _, name = item.path.rpartition(".")
                    names.append(f"{where}:{name}")
                elif isinstance(item, Function | Instance) or (isinstance(item, Made) and item.how == "call"):
                    if isinstance(item, Made) and item.name == "from_pretrained":
                        wrong.append(f"{source(item.node)} is a reward model, which has no twin")
                        continue
                    name = file.add(item, [one.partition(":")[2] for one in names])
                    names.append(f"{module}:{name}")
                else:
                    what = "is a reward model, which has no twin" if isinstance(item, str) else "is no function by name"
                    wrong.append(f"{_written(item)} {what}")
            result.rewards = list(dict.fromkeys(names))
            if result.makes and not file.refused:
                self._see_rows(file, changes, result)
        except (SyntaxError, RecursionError, ValueError, AssertionError) as error:
            file.refused.append(f"the rewards are beyond what can be read: {error}")
        result.refused = list(dict.fromkeys(file.refused))
        if any(name.startswith(f"{module}:") for name in result.rewards) and not result.refused:
            result.taken = file.text()
        if wrong:
            known = f"besides {', '.join(result.rewards[:5])}, " if result.rewards else ""
            result.todo["task.options.score"] = f"{known}{'; '.join(wrong[:5])}"

    def _module(self, module: Module) -> str:
        """A module beside the script, as it is imported from the working directory."""
        if Path(*module.name.split(".")).with_suffix(".py").exists() or not module.path.is_file():
            return module.name
        try:
            inner = module.path.resolve().relative_to(Path.cwd()).with_suffix("").parts
        except ValueError:
            return module.name
        return ".".join(inner) if all(part.isidentifier() for part in inner) else module.name

    def _see_rows(self, file: RewardFile, changes: list[Made], result: TrlScript) -> None:
        """Let rewards see the columns that the script makes, and completions as messages where its prompts are."""
        prompt = result.options.get("prompt", "prompt")
        steps: list[tuple[ast.AST, Any, str]] = []
        for change in changes:
            match change:
                case Made(name="rename_column", args=[str() as old, str() as new]):
                    node = ast.parse(f"lambda row: {{{new!r}: row[{old!r}]}}", mode="eval").body
                    steps.append((node, change.scope, "{}"))
                case Made(
                    name="rows", node=ast.ListComp(elt=each, generators=[ast.comprehension(target=ast.Name(id=row))])
                ):
                    inner = ast.parse(f"lambda {row}: {ast.unparse(each)}", mode="eval").body
                    steps.append((inner, change.scope, "({})"))
                case Made(name="rows"):
                    result.open("task.options.prompt", f"{source(change.node)} makes the rows; {TO_FILE}")
                    return
                case Made(name="map", node=ast.Call() as node, keys=keys):
                    inner = (
                        node.args[0] if node.args else next(one.value for one in node.keywords if one.arg == "function")
                    )
                    if "fn_kwargs" in keys or "with_indices" in keys:
                        result.open("task.options.prompt", f"{source(inner)} takes more than a row; {TO_FILE}")
                        return
                    one = "{{key: [each] for key, each in row.items()}}"
                    many = f"lambda row: {{{{key: each[0] for key, each in ({{}})({one}).items()}}}}"
                    steps.append((inner, change.scope, many if keys.get("batched") is True else "({})"))
        if not steps or not result.rewards or "task.options.prompt" in result.todo:
            return
        names = [name.partition(":")[2] for name in result.rewards]
        for name, item in zip(names, result.rewards, strict=True):
            if not item.startswith(f"{result.module}:"):
                file.add_import(item.partition(":")[0], name)
        added = file.add_steps(steps, prompt if "{" not in prompt else "prompt", names)
        if file.refused:
            result.open("task.options.prompt", f"{file.refused.pop()}; {TO_FILE}")
            file.refused.clear()
            file.drop_steps()
            return
        result.rewards = [f"{result.module}:{name}" for name in added]

    # -- the configuration ---------------------------------------------------------------------------------------------

    def _settings(self, config: Any, given: Mapping[str, Any], result: TrlScript) -> dict[str, Any]:
        """The keys of the configuration as the script has them."""
        if isinstance(config, Made) and config.how == "call":
            keys = {**dict(zip(("output_dir",), config.args, strict=False)), **config.keys}
            keys = {"learning_rate": 5e-5, **keys} if config.name == "TrainingArguments" else keys
        elif config is None:
            keys = {}
        else:
            keys = {"**": config if isinstance(config, Unknown) else Unknown(getattr(config, "node", None))}
        length = {"max_length": given["max_seq_length"]} if result.stage == "sft" and "max_seq_length" in given else {}
        keys = {**keys, **length}
        if (more := keys.pop("**", None)) is not None:
            keys = {**dict.fromkeys([*DEFAULTS[result.stage], "max_steps"], more), **keys}
        return keys

    def _config(self, keys: dict[str, Any], result: TrlScript) -> None:
        stage, values = result.stage, result.values
        inner = keys.get("model_init_kwargs")
        if isinstance(inner, dict):
            self._dtype(inner.get("dtype", inner.get("torch_dtype")), result)
            keys = {key: each for key, each in keys.items() if key != "model_init_kwargs"}
        read = {key: plain(each) for key, each in keys.items()}
        unknown = {key: _reason(keys[key]) for key, each in read.items() if each is UNKNOWN}
        if "max_seq_length" in read:
            read["max_length"] = read.pop("max_seq_length")
        all_ = {key: each for key, each in {**DEFAULTS[stage], **read}.items() if each is not UNKNOWN}
        wrong = [key for key in all_ if key in _NUMBERS and not isinstance(all_[key], int | float | None)]
        if wrong:
            raise TypeError(", ".join(f"{key}={shown(all_[key])}" for key in wrong))
        name = all_.get("run_name") or Path(str(all_.get("output_dir") or "")).name
        if name:
            values["name"] = name
        for key, twin in SAME.items():
            if stage == "sft" and twin.startswith(("rl", "sampling", "task")):
                continue
            if key in unknown:
                if twin in _MACHINE or twin.startswith(("run", "evaluation")):
                    result.notes.append(f"{key}={unknown[key]} is no constant: {twin} is left to what it is here")
                else:
                    result.open(twin, unknown[key])
            elif all_.get(key) is not None:
                values[twin] = all_[key]
        for key, twin in (("eval_steps", "evaluation.every"), ("save_steps", "run.checkpoint_every")):
            if not isinstance(values.get(twin, 1), int) or values.get(twin, 1) < 1:
                result.notes.append(f"{key}={shown(values.pop(twin))} has no twin")
        if "bf16" in all_:
            values |= {"model.dtype": "bfloat16"} if values.pop("model.dtype", None) else {}
        if (top := values.get("sampling.top_k", 1)) != TODO and top <= 0:
            values.pop("sampling.top_k")
        if (trackers := all_.get("report_to")) not in (None, "none", "all"):
            known = [item for item in ([trackers] if isinstance(trackers, str) else trackers) if item in _TRACKERS]
            values["run.trackers"] = known
        self._schedule(all_, unknown, result)
        if stage == "rl":
            self._batches(all_, unknown, result)
            self._algorithm(all_, unknown, result)
        else:
            self._supervised(all_, unknown, result)
        if all_.get("use_vllm") is True:
            result.notes.append("use_vllm=True is engine: vllm, which needs the extra vllm: add it to the recipe")
        if isinstance(kind := all_.get("optim"), str) and "8bit" in kind:
            values[f"{stage}.optimiser.name"] = "adamw8bit"
        left = [key for key in keys if key not in _READ | {*SAME, *OPTIMISER, *UNNEEDED}]
        left += ["optim"] if "optim" in keys and "adamw" not in str(kind) else []
        result.notes += [
            f"{key}={_written(keys[key])} has no twin"
            for key in left
            if keys[key] is not None and not key.startswith(SILENT) and (key != "fp16" or keys[key] is True)
        ]

    def _schedule(self, all_: Mapping[str, Any], unknown: Mapping[str, str], result: TrlScript) -> None:
        at = f"{result.stage}.optimiser."
        result.values |= {at + twin: all_[key] for key, twin in OPTIMISER.items() if key in all_}
        if result.values.get(at + "schedule") not in SCHEDULES:
            kind = result.values.pop(at + "schedule", None)
            if kind is not None:
                result.notes.append(f"lr_scheduler_type={shown(kind)} has no twin; there are {', '.join(SCHEDULES)}")
        result.values[at + "warmup"] = all_.get("warmup_ratio") or all_.get("warmup_steps", 0)
        if "adam_beta1" in all_ and "adam_beta2" in all_:
            result.values[at + "betas"] = [all_["adam_beta1"], all_["adam_beta2"]]
        twins = {**OPTIMISER, "warmup_ratio": "warmup", "warmup_steps": "warmup", "adam_beta1": "betas"}
        for key, twin in {**twins, "adam_beta2": "betas"}.items():
            if key in unknown:
                result.open(at + twin, unknown[key])

    def _batches(self, all_: Mapping[str, Any], unknown: Mapping[str, str], result: TrlScript) -> None:
        """Prompts of a batch of rollouts, and steps: TRL counts answers, and steps of the optimiser."""
        group, rows = all_.get("num_generations", 8), all_.get("per_device_train_batch_size", 8)
        accumulated = all_.get("gradient_accumulation_steps", 1)
        generations = all_.get("steps_per_generation") or accumulated
        answers = all_.get("generation_batch_size") or rows * generations
        learnt = rows * accumulated
        values = result.values
        lacking = [f"{key}={unknown[key]}" for key in _BATCH if key in unknown]
        if lacking:
            formula = "per_device_train_batch_size x gradient_accumulation_steps / num_generations"
            result.open("rl.prompts_per_step", f"{formula}: {', '.join(lacking)}")
        else:
            values["rl.prompts_per_step"] = max(1, answers // group)
            result.notes.append(
                f"{answers} answers a batch are those of one process: with several GPUs multiply rl.prompts_per_step"
            )
            if answers > learnt:
                values["rl.minibatch"] = max(1, learnt // group)
        steps = all_.get("max_steps", -1)
        lacking += [f"{key}={unknown[key]}" for key in ("max_steps", "num_iterations") if key in unknown]
        if steps > 0 and not lacking:
            repeats = max(1, answers // learnt) * all_.get("num_iterations", 1)
            values["rl.steps"] = max(1, steps // repeats)
        elif "max_steps" in unknown or steps > 0:
            result.open("rl.steps", ", ".join(lacking))
        elif "num_train_epochs" in unknown:
            result.open("rl.steps", f"num_train_epochs={unknown['num_train_epochs']} x prompts / rl.prompts_per_step")
        else:
            result.epochs = all_.get("num_train_epochs", 3.0)

    def _supervised(self, all_: Mapping[str, Any], unknown: Mapping[str, str], result: TrlScript) -> None:
        values = result.values
        batch = [key for key in ("per_device_train_batch_size", "gradient_accumulation_steps") if key in unknown]
        if batch:
            result.open("sft.batch_size", ", ".join(f"{key}={unknown[key]}" for key in batch))
        else:
            values["sft.batch_size"] = all_["per_device_train_batch_size"] * all_["gradient_accumulation_steps"]
        steps = all_.get("max_steps", -1)
        if "max_steps" in unknown:
            result.open("sft.steps", unknown["max_steps"])
        elif steps > 0:
            values["sft.steps"] = steps
        elif "num_train_epochs" in unknown:
            result.open("sft.epochs", unknown["num_train_epochs"])
        else:
            values["sft.epochs"] = all_.get("num_train_epochs", 3.0)
        result.todo.setdefault(
            "task.options.score", "a script of SFT has no reward: module:function that judges answers"
        )

    def _algorithm(self, all_: Mapping[str, Any], unknown: Mapping[str, str], result: TrlScript) -> None:
        lacking = [f"{key}={unknown[key]}" for key in _ALGORITHM if key in unknown]
        if lacking:
            result.open("rl.algorithm", ", ".join(lacking))
            return
        loss, level = all_.get("loss_type", "dapo"), all_.get("importance_sampling_level", "token")
        low, high = all_.get("epsilon", 0.2), all_.get("epsilon_high")
        options: dict[str, Any] = {"name": "gspo" if level == "sequence" else "grpo"}
        if loss == "cispo":
            options = {"name": "cispo", "clip_high": (high or 5.0) - 1}
        elif loss in {"grpo", "dr_grpo", "dapo", "bnpo"}:
            options["normaliser"] = "dapo" if loss == "bnpo" else loss
        else:
            result.notes.append(f"loss_type={shown(loss)} has no twin: GRPO's is written")
        if loss != "cispo" and (low, high or low) != (0.2, 0.2):
            options |= {"clip_low": low, "clip_high": high or low}
        scale = all_.get("scale_rewards", "group")
        options["scale_advantages"] = "none" if scale in (False, "none") else "group"
        if scale == "batch":
            result.notes.append("scale_rewards='batch' has no twin: each group's own deviation is written")
        result.values["rl.algorithm"] = options


_MACHINE = {"model.dtype", "model.gradient_checkpointing", "model.trust_remote_code"}
_TRACKERS = ("trackio", "wandb", "tensorboard")
_BATCH = (
    *("num_generations", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("steps_per_generation", "generation_batch_size"),
)
_ALGORITHM = ("loss_type", "importance_sampling_level", "epsilon", "epsilon_high", "scale_rewards")
_READ = {
    *("warmup_ratio", "warmup_steps", "adam_beta1", "adam_beta2", "max_steps", "num_train_epochs", "report_to"),
    *("use_vllm", "max_seq_length", "optim", *_BATCH, *_ALGORITHM),
}
"""Keys that several others of a recipe come of."""
_NUMBERS = {"max_steps", "num_train_epochs", "top_k", "num_iterations", "epsilon", "epsilon_high", *_BATCH}
"""Keys that are calculated with."""


def _reason(value: Any) -> str:
    """What the script has where no constant is."""
    return str(value) if isinstance(value, Unknown) else _written(value)


def _written(value: Any) -> str:
    if isinstance(value, LibraryName):
        return value.path
    if isinstance(value, Unknown):
        return str(value)
    if isinstance(value, list | tuple):
        value = next((one for one in value if isinstance(one, Unknown)), value)
    known = plain(value)
    node = getattr(value, "node", None)
    return shown(known) if known is not UNKNOWN else source(node) if node is not None else "no constant"


def source_of(change: Made) -> str:
    """What a change of the rows is given."""
    args = getattr(change.node, "args", None)
    return source(args[0]) if isinstance(args, list) and args else "..."


def _column(value: Any) -> str | None:
    """The column of a row that a value is."""
    if not isinstance(value, Made) or value.how != "item" or isinstance(value.args[0], int):
        return None
    key, owner = value.args[0], value.owner
    if not isinstance(key, str):
        return _column(owner)  # one of many
    is_row = isinstance(owner, Made) and (owner.name == "row" or owner.how == "item")
    return key if is_row and _column(owner) is None else None


def _template(value: Any) -> str | None:
    """A column, or a template of columns as the recipe has it; None where a value is neither."""
    if (column := _column(value)) is not None:
        return column
    if not isinstance(value, Text):
        return None
    parts = [one.replace("{", "{{").replace("}", "}}") if isinstance(one, str) else _column(one) for one in value.parts]
    if None in parts:
        return None
    return "".join(
        str(part) if isinstance(one, str) else f"{{{part}}}" for part, one in zip(parts, value.parts, strict=True)
    )
