"""What a training script for TRL says, as keys of a recipe. The script is read as a syntax tree and never run."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plumbline.errors import RecipeError
from plumbline.storage import one_line, read_text

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
SCHEDULES = ("constant", "constant_with_warmup", "cosine", "linear")
LOADS = {"from_csv", "from_json", "from_parquet", "read_csv", "read_json", "read_parquet"}
CHANGES = {"map", "filter", "rename_column", "rename_columns"}
LARGEST = 2**20
"""Bytes of a script. Its syntax tree has some thousand times as many."""
LARGEST_NUMBER = 2**64
LONGEST_SHOWN = 120
"""Letters of a value or an expression in a note."""


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
    epochs: float | None = None
    """Where the script counts passes over the prompts and not steps of RL."""
    notes: list[str] = field(default_factory=list)
    """What has no twin, or could not be read, a sentence each."""
    own: list[str] = field(default_factory=list)
    """Reward functions in the script itself, where importing it would train."""


def read_script(path: Path) -> TrlScript:
    """Read a script that trains with TRL.

    Raises:
        RecipeError: it cannot be read, is no Python, or builds neither a GRPOConfig nor an SFTConfig.
    """
    text = read_text(path, RecipeError, LARGEST)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        deep = isinstance(error, MemoryError | RecursionError)
        why = "it is nested too deeply" if deep else one_line(error)
        raise RecipeError(f"{path} is no Python: {why}", "give the script that trains with TRL") from error
    try:
        return _Reader(tree, path).script()
    except (TypeError, ZeroDivisionError) as error:
        raise RecipeError(
            f"{path}: a value of the configuration is of the wrong kind: {one_line(error)}", "correct it there"
        ) from error


class _Reader:
    def __init__(self, tree: ast.Module, path: Path) -> None:
        self.tree, self.path = tree, path
        nodes = [*ast.walk(tree)]
        self.calls = [node for node in nodes if isinstance(node, ast.Call)]
        self.functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        self.assigned: dict[str, list[ast.expr]] = {}
        self.imported: dict[str, str] = {}
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
                    if isinstance(first, ast.Name):
                        self.assigned.setdefault(first.id, []).append(node.value)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self.imported |= {item.asname or item.name: f"{node.module}:{item.name}" for item in node.names}
            elif isinstance(node, ast.Import):
                self.imported |= {item.asname or item.name: item.name for item in node.names}

    def script(self) -> TrlScript:
        """Everything that the script says."""
        config = next((call for name in CONFIGS for call in self._named(name)), None)
        if config is None:
            raise RecipeError(
                f"{self.path} builds neither a GRPOConfig nor an SFTConfig",
                "give the script that does; with a command line or a YAML file in its place, use --model, --data and "
                "--reward",
            )
        stage = CONFIGS[_name(config.func)]
        result = TrlScript(stage)
        trainer = next(iter(self._named("GRPOTrainer" if stage == "rl" else "SFTTrainer")), None)
        given = {key.arg: key.value for key in trainer.keywords if key.arg} if trainer else {}
        for name, node in zip(("model", "reward_funcs"), trainer.args if trainer else (), strict=False):
            given.setdefault(name, node)
        result.model = self._model(given.get("model"))
        result.data = self._data(result.notes)
        if stage == "rl":
            self._rewards(given.get("reward_funcs"), result)
        self._config(config, result)
        self._adapters(result)
        return result

    def _named(self, name: str) -> Iterator[ast.Call]:
        return (call for call in self.calls if _name(call.func) == name)

    def _assigned_to(self, node: ast.expr | None) -> ast.expr | None:
        """What a name stands for, where it is assigned once; any other expression is itself."""
        names: set[str] = set()
        while isinstance(node, ast.Name) and node.id not in names and len(self.assigned.get(node.id, [])) == 1:
            names.add(node.id)
            node = self.assigned[node.id][0]
        return node

    def _value(self, node: ast.expr | None) -> Any:
        """A constant that a recipe can hold, or a name that is assigned once and is one; `_UNKNOWN` for all else."""
        found = self._assigned_to(node)
        if found is None:
            return _UNKNOWN
        try:
            value = ast.literal_eval(found)
        except (ValueError, TypeError, MemoryError, RecursionError):
            return _UNKNOWN
        return value if _is_plain(value) else _UNKNOWN

    def _text(self, *nodes: ast.expr | None) -> str | None:
        """The first of these that is a text."""
        return next((value for node in nodes if isinstance(value := self._value(node), str)), None)

    def _model(self, node: ast.expr | None) -> str | None:
        if text := self._text(node):
            return text
        for call in self._named("from_pretrained"):
            keys = {key.arg: key.value for key in call.keywords}
            owner = _source(call.func)
            if "Tokenizer" in owner or "Processor" in owner:
                continue
            names = (keys.get("model_name"), keys.get("pretrained_model_name_or_path"), *call.args[:1])
            if text := self._text(*names):
                return text
        return None

    def _data(self, notes: list[str]) -> str | None:
        result: list[str] = []
        for call in self.calls:
            keys = {key.arg: key.value for key in call.keywords}
            name = _name(call.func)
            if name in LOADS and (text := self._text(*call.args[:1])):
                result.append(text)
            elif name == "load_from_disk" and (text := self._text(*call.args[:1])):
                result.append(f"hf://{text}")
            elif name == "load_dataset" and (text := self._text(keys.get("path"), *call.args[:1])):
                split = self._text(keys.get("split"))
                files = keys.get("data_files")
                if isinstance(files, ast.Dict):
                    files = next((item for item in files.values), None)
                if files is not None:
                    result += filter(None, [self._text(files)])
                elif split is None or "train" in split or not result:
                    config = self._text(keys.get("name"), *call.args[1:2])
                    result.append(f"hf://{text}{f'/{config}' if config else ''}{f':{split}' if split else ''}")
        changed = sorted({name for call in self.calls if (name := _name(call.func)) in CHANGES})
        if result and changed:
            notes.append(
                f"the script changes the rows ({', '.join(changed)}), and a recipe takes them as they are: write the "
                "changed rows to a file (dataset.to_json) where the prompt is another one"
            )
        return result[0] if result else None

    def _rewards(self, node: ast.expr | None, result: TrlScript) -> None:
        node = self._assigned_to(node)
        trains = self._trains_when_imported()
        for item in node.elts if isinstance(node, ast.List | ast.Tuple) else [] if node is None else [node]:
            name = _source(item)
            first, _, rest = name.partition(".")
            if name in self.functions and trains:
                result.own.append(name)
            elif name in self.functions:
                result.rewards.append(f"{self.path.stem}:{name}")
            elif isinstance(item, ast.Name) and ":" in self.imported.get(name, ""):
                result.rewards.append(self.imported[name])
            elif isinstance(item, ast.Attribute) and first in self.imported and "." not in rest:
                result.rewards.append(f"{self.imported[first].replace(':', '.')}:{rest}")
            else:
                result.notes.append(f"reward_funcs has {name}, which is no function by name: wrap it in one")

    def _trains_when_imported(self) -> bool:
        for node in self.tree.body:
            main = isinstance(node, ast.If) and any(_name(one) == "__name__" for one in ast.walk(node.test))
            if main or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            names = [_name(item.func) for item in ast.walk(node) if isinstance(item, ast.Call)]
            if any(name.endswith("Trainer") or name in {"train", "load_dataset", "from_pretrained"} for name in names):
                return True
        return False

    def _constants(self, call: ast.Call, notes: list[str]) -> dict[str, Any]:
        """A call's keywords that are constants; of the others it is said that they are not."""
        values = {}
        for key in call.keywords:
            name = key.arg or ""
            values[name] = self._value(key.value) if name else _UNKNOWN
            if values[name] is _UNKNOWN:
                said = f"{name}={_source(key.value)}" if name else f"**{_source(key.value)}"
                notes.append(f"{said} is no constant in the script: set its twin by hand")
        return values

    def _config(self, call: ast.Call, result: TrlScript) -> None:
        stage, given = result.stage, self._constants(call, result.notes)
        all_ = {key: value for key, value in {**DEFAULTS[stage], **given}.items() if value is not _UNKNOWN}
        wrong = [key for key in all_ if key in _NUMBERS and not isinstance(all_[key], int | float | None)]
        if wrong:
            raise TypeError(", ".join(f"{key}={_shown(all_[key])}" for key in wrong))
        values = result.values
        name = all_.get("run_name") or Path(str(all_.get("output_dir") or "")).name
        if name:
            values["name"] = name
        for key, twin in SAME.items():
            if key in all_ and all_[key] is not None and (stage == "rl" or not twin.startswith(("rl", "sampling"))):
                values[twin] = all_[key]
        if "bf16" in all_:
            values |= {"model.dtype": "bfloat16"} if values.pop("model.dtype", None) else {}
        if values.get("sampling.top_k", 0) is not None and values.get("sampling.top_k", 0) <= 0:
            values.pop("sampling.top_k", None)
        if (trackers := all_.get("report_to")) not in (None, "none", "all"):
            known = [item for item in ([trackers] if isinstance(trackers, str) else trackers) if item in _TRACKERS]
            values["run.trackers"] = known
        self._schedule(all_, result)
        if stage == "rl":
            self._batches(all_, result)
            self._algorithm(all_, result)
        else:
            batch = all_.get("per_device_train_batch_size", 8) * all_.get("gradient_accumulation_steps", 1)
            values["sft.batch_size"] = batch
            steps = all_.get("max_steps", -1)
            values |= {"sft.steps": steps} if steps > 0 else {"sft.epochs": all_.get("num_train_epochs", 3.0)}
        if all_.get("use_vllm") is True:
            result.notes.append("use_vllm=True is engine: vllm, which needs the extra vllm: add it to the recipe")
        left = [key for key in given if key not in _READ | {*SAME, *OPTIMISER, *UNNEEDED, ""}]
        result.notes += [f"{key}={_shown(given[key])} has no twin" for key in left if given[key] is not _UNKNOWN]

    def _schedule(self, all_: Mapping[str, Any], result: TrlScript) -> None:
        at = f"{result.stage}.optimiser."
        result.values |= {at + twin: all_[key] for key, twin in OPTIMISER.items() if key in all_}
        if result.values.get(at + "schedule") not in SCHEDULES:
            kind = result.values.pop(at + "schedule", None)
            if kind is not None:
                result.notes.append(f"lr_scheduler_type={_shown(kind)} has no twin; there are {', '.join(SCHEDULES)}")
        result.values[at + "warmup"] = all_.get("warmup_ratio") or all_.get("warmup_steps", 0)
        if "adam_beta1" in all_ and "adam_beta2" in all_:
            result.values[at + "betas"] = [all_["adam_beta1"], all_["adam_beta2"]]

    def _batches(self, all_: Mapping[str, Any], result: TrlScript) -> None:
        """Prompts of a batch of rollouts, and steps: TRL counts answers, and steps of the optimiser."""
        group, rows = all_.get("num_generations", 8), all_.get("per_device_train_batch_size", 8)
        accumulated = all_.get("gradient_accumulation_steps", 1)
        generations = all_.get("steps_per_generation") or accumulated
        answers = all_.get("generation_batch_size") or rows * generations
        learnt = rows * accumulated
        values = result.values
        values["rl.prompts_per_step"] = max(1, answers // group)
        if answers > learnt:
            values["rl.minibatch"] = max(1, learnt // group)
        steps = all_.get("max_steps", -1)
        if steps > 0:
            repeats = max(1, answers // learnt) * all_.get("num_iterations", 1)
            values["rl.steps"] = max(1, steps // repeats)
        else:
            result.epochs = all_.get("num_train_epochs", 3.0)
        result.notes.append(
            f"{answers} answers a batch are those of one process: with several GPUs multiply rl.prompts_per_step"
        )

    def _algorithm(self, all_: Mapping[str, Any], result: TrlScript) -> None:
        loss, level = all_.get("loss_type", "dapo"), all_.get("importance_sampling_level", "token")
        low, high = all_.get("epsilon", 0.2), all_.get("epsilon_high")
        options: dict[str, Any] = {"name": "gspo" if level == "sequence" else "grpo"}
        if loss == "cispo":
            options = {"name": "cispo", "clip_high": (high or 5.0) - 1}
        elif loss in {"grpo", "dr_grpo", "dapo", "bnpo"}:
            options["normaliser"] = "dapo" if loss == "bnpo" else loss
        else:
            result.notes.append(f"loss_type={_shown(loss)} has no twin: GRPO's is written")
        if loss != "cispo" and (low, high or low) != (0.2, 0.2):
            options |= {"clip_low": low, "clip_high": high or low}
        scale = all_.get("scale_rewards", "group")
        options["scale_advantages"] = "none" if scale in (False, "none") else "group"
        if scale == "batch":
            result.notes.append("scale_rewards='batch' has no twin: each group's own deviation is written")
        result.values["rl.algorithm"] = options

    def _adapters(self, result: TrlScript) -> None:
        call = next((call for name in ("LoraConfig", "get_peft_model") for call in self._named(name)), None)
        if call is not None and any(key.arg in LORA for key in call.keywords):
            given = {"r": 8, "lora_alpha": 8, **self._constants(call, result.notes)}
            result.values["model.lora"] = {
                twin: given[key] for key, twin in LORA.items() if given.get(key, _UNKNOWN) not in (_UNKNOWN, None)
            }
            left = [key for key in given if key not in {*LORA, "task_type", "bias", "random_state", ""}]
            result.notes += [
                f"{key}={_shown(given[key])} of LoRA has no twin" for key in left if given[key] is not _UNKNOWN
            ]
        four = [key for item in self.calls for key in item.keywords if key.arg == "load_in_4bit"]
        if any(isinstance(key.value, ast.Constant) and key.value.value is True for key in four):
            result.values["model.quantize"] = "4bit"


_UNKNOWN = object()
_TRACKERS = ("trackio", "wandb", "tensorboard")
_READ = {
    *("warmup_ratio", "warmup_steps", "adam_beta1", "adam_beta2", "max_steps", "num_train_epochs", "report_to"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation", "generation_batch_size"),
    *("use_vllm", "loss_type", "importance_sampling_level", "epsilon", "epsilon_high", "scale_rewards"),
}
"""Keys that several others of a recipe come of."""
_NUMBERS = {
    *("max_steps", "num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps", "top_k"),
    *("steps_per_generation", "generation_batch_size", "num_generations", "num_iterations", "epsilon", "epsilon_high"),
}
"""Keys that are calculated with."""


def _is_plain(value: Any) -> bool:
    """Whether a recipe can hold a value: no bytes, no complex or endless number, no NUL or half of a character."""
    match value:
        case str():
            return "\0" not in value and value == value.encode(errors="ignore").decode()
        case bool() | None:
            return True
        case int() | float():
            return abs(value) <= LARGEST_NUMBER
        case list() | tuple():
            return all(map(_is_plain, value))
        case dict():
            return all(map(_is_plain, [*value, *value.values()]))
    return False


def _shown(value: Any) -> str:
    return _cut(repr(value))


def _source(node: ast.expr) -> str:
    """How an expression is written."""
    try:
        return _cut(ast.unparse(node))
    except (RecursionError, ValueError):  # an integer of thousands of digits
        return "..."


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _name(function: ast.AST) -> str:
    """The last name of what is called."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
