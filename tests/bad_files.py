"""Files and folders with something wrong in each, and a good one of every kind: what a user may
point a command at."""

import json
import os
import shutil
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

from plumbline.runs.evaluations import to_json
from plumbline.runs.run import Run
from plumbline_commerce.build import build_commerce
from plumbline_commerce.options import CommerceOptions
from tests.reports.building import (
    Level,
    evaluation,
    recipe,
    write_evaluations,
    write_rl,
    write_supervised,
)

DEEP = "[" * 100_000 + "]" * 100_000
LONG = "9" * 5_000
HALF = '"\\ud83d"'
"""Half of a pair of surrogates, as a text in JSON or YAML: no encoding can write it."""
BAD_LINES = {
    "deep": DEEP,
    "deep-value": f'{{"id": "a", "completion": "b", "text": "b", "x": {DEEP}}}',
    "long": f'{{"id": "a", "completion": "b", "text": "b", "x": {LONG}}}',
    "surrogate": f'{{"id": "a", "completion": {HALF}, "text": {HALF}}}',
    "surrogate-key": f'{{"id": "a", "completion": "b", "text": "b", {HALF}: 1}}',
    "array": "[1]",
    "cut": '{"id": "a", "completion": "b',
    "no-keys": "{}",
    "number": '{"id": "a", "completion": 3, "text": 3}',
    "bom": (
        '{"id": "a", "completion": "b", "text": "b"}\n\ufeff{"id": "c", "completion": "b", "text": '
        '"b"}'
    ),
    "twice": '{"id": "a", "completion": "b"}\n{"id": "a", "completion": "b"}',
    "unknown": '{"id": "nobody", "completion": "b"}',
    "empty": "",
}
"""JSON lines, of which each has one thing wrong."""
BAD_JSON = {
    "deep": DEEP,
    "long": LONG,
    "array": "[]",
    "null": "null",
    "number": "3",
    "cut": '{"a": ',
    "surrogate": HALF,
}
BOMB = "\n".join(
    [
        "a: &a {x: 9}",
        *(
            f"{n}: &{n} {{k0: *{p}, k1: *{p}, k2: *{p}}}"
            for p, n in pairwise("abcdefghijklmnopqrstuvwxyz")
        ),
    ]
)
"""Anchors in anchors: 3^25 values."""
RECIPES = {
    "list": "[a, b]",
    "cut": "model: {tiny: {",
    "deep": "a: " + DEEP,
    "long": f"seed: {LONG}",
    "surrogate": f"description: {HALF}",
    "nul": 'name: x\nmodel: {name: "a\\0b"}',
    "twice": "name: x\nname: y",
    "twice-within": "rl: {steps: 1, steps: 2}",
    "self": "extends: bad-self.yaml",
    "up": "extends: ..",
    "gone": "extends: gone.yaml",
    "both": "name: x\nmodel: {name: y}\ntask: {name: forms}\ntasks: {a: {name: forms}}",
    "extends-list": "extends: [1]",
    "date": "seed: 2026-13-45",
    "loop": "rl: &a {steps: *a}",
    "bomb": BOMB,
    "merges": "\n".join(
        [
            "a: &a {x: 9}",
            *(f"{n}: &{n}\n  <<: [*{p}, *{p}, *{p}]" for p, n in pairwise("abcdefghijklm")),
        ]
    ),
    "levels": "task: {options: " + "{a: " * 300 + "1" + "}" * 301,
    "bytes": "description: !!binary /w==",
    "boolean": "seed: !!bool maybe",
    "set": "seed: !!set x",
    "map": "seed: !!map [1]",
    "sixties": "seed: 1" + ":1" * 3000,
    "tag": "seed: !!python/object/apply:os.getcwd []",
    "empty": "",
}
EVALUATIONS: dict[str, Any] = {
    "reward": lambda e: e["rows"][0].update(reward=7.5),
    "nan": lambda e: e["rows"][0].update(reward=float("nan")),
    "huge": lambda e: e["rows"][0].update(reward=10**400),
    "text": lambda e: e["rows"][0].update(reward="abc"),
    "flag": lambda e: e["rows"][0].update(reward=True),
    "ids": lambda e: e["rows"].append(e["rows"][0]),
    "ids-unjudged": lambda e: e.update(
        unjudged=[
            {key: e["rows"][0][key] for key in ("id", "stratum", "completion")} | {"failure": "x"}
        ]
    ),
    "parts": lambda e: e["rows"][0].update(parts=None),
    "part": lambda e: e["rows"][0].update(parts={"parse": 3}),
    "readings": lambda e: e["rows"][0].update(readings=[1]),
    "rows": lambda e: e.update(rows=None),
    "row": lambda e: e.update(rows=["a"]),
    "unjudged": lambda e: e.update(unjudged=[1]),
    "headline": lambda e: e.update(headline={"figures": 3}),
    "sampling": lambda e: e.update(sampling=[]),
    "seed": lambda e: e.update(seed="abc"),
    "key": lambda e: e.update(another=1),
    "split": lambda e: e.update(split=3),
    "none": lambda e: e.update(rows=[]),
}
"""What is done to a good evaluation."""


def a_file(name: str, text: str | bytes) -> Any:
    return lambda run: put(run / name, text)


def a_folder(name: str) -> Any:
    def make(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        (run / name).mkdir()

    return make


def a_loop(name: str) -> Any:
    """A link to itself cannot be read, not even by root."""

    def link(run: Path) -> None:
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
        (run / name).symlink_to(name)

    return link


def a_pipe(name: str) -> Any:
    def make(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)

    return make


def instead(name: str, text: str) -> Any:
    """A file where a folder should be."""

    def write(run: Path) -> None:
        shutil.rmtree(run / name)
        (run / name).write_text(text)

    return write


def sample(**over: Any) -> str:
    row = {
        "step": 1,
        "id": "a",
        "text": "b",
        "reward": 0.5,
        "parts": {"parse": 1.0},
        "how": "strict",
        "finish": "stop",
    }
    return json.dumps({**row, **over}) + "\n"


RUNS: dict[str, Any] = {
    "events": a_file("events.jsonl", b'{"kind": "note", "message": "\xff"}\n'),
    "event": a_file("events.jsonl", "[1]\n"),
    "environment": a_file("environment.json", "[]"),
    "environment-cut": a_file("environment.json", "{"),
    "result": a_file("result.json", "[]"),
    "metrics": a_folder("metrics.jsonl"),
    "metrics-loop": a_loop("metrics.jsonl"),
    "step": a_file("metrics.jsonl", '{"stage": "rl", "step": "x"}\n'),
    "no-step": a_file("metrics.jsonl", '{"stage": "rl"}\n'),
    "negative-step": a_file("metrics.jsonl", '{"stage": "rl", "step": -1}\n'),
    "metric": a_file("metrics.jsonl", '{"stage": "rl", "step": 1, "train/reward": "abc"}\n'),
    "metric-nan": a_file("metrics.jsonl", '{"stage": "rl", "step": 1, "train/reward": NaN}\n'),
    "metric-long": a_file("metrics.jsonl", f'{{"stage": "rl", "step": {LONG}}}\n'),
    "seconds": a_file("timings.jsonl", '{"stage": "rl", "step": 1, "time/step": "x"}\n'),
    "sample-reward": a_file("samples.jsonl", sample(reward="abc")),
    "sample-parts": a_file("samples.jsonl", sample(parts=None)),
    "sample-part": a_file("samples.jsonl", sample(parts={"parse": "x"})),
    **{
        f"{name.partition('.')[0]}-pipe": a_pipe(name)
        for name in ("metrics.jsonl", "samples.jsonl", "result.json")
    },
    "timings-huge": a_file("timings.jsonl", '{"stage": "rl", "step": 1, "time/step": 1e308}\n'),
    "recipe-loop": a_file("recipe.yaml", "a: &a {b: *a}"),
    "samples-deep": a_file("samples.jsonl", DEEP + "\n"),
    "recipe": a_file("recipe.yaml", "[]"),
    "recipe-key": a_file("recipe.yaml", "name: x\nmodell: 3\n"),
    "evaluations": instead("evaluations", "x"),
    "evaluations-loop": a_loop("evaluations"),
    "evaluation": a_file("evaluations/rl.val.greedy.json", "[]"),
    "evaluation-name": a_file("evaluations/paper.json", "{}"),
    "evaluation-step": a_file("evaluations/rl@abc.val.greedy.json", "{}"),
    "evaluation-folder": a_folder("evaluations/rl.val.odd.json"),
    "replays": a_file("replays/rl.val.greedy/index.json", "[]"),
    "replay": a_file(
        "replays/rl.val.greedy/index.json",
        json.dumps(
            {
                "replays": [
                    {
                        "id": "a",
                        "stratum": "",
                        "reward": "x",
                        "problem": "",
                        "mistakes": [],
                        "frames": [],
                    }
                ]
            }
        ),
    ),
}
"""What is done to a good run."""
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
NO_WEIGHTS = "\2" + 7 * "\0" + "{}"
"""A whole file of safetensors, with nothing in it."""
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 3\n"
CARD = {"recipe": "x 0", "stage": "rl", "task": "commerce", "options": {}, "trained_on": ""}
MODELS: dict[str, dict[str, str]] = {
    "plain": {"config.json": json.dumps(CONFIG), "model.safetensors": NO_WEIGHTS},
    "weightless": {"config.json": json.dumps(CONFIG)},
    "pointer": {"config.json": json.dumps(CONFIG), "model.safetensors": POINTER},
    "window": {
        "config.json": json.dumps({**CONFIG, "sliding_window": 0}),
        "model.safetensors": NO_WEIGHTS,
    },
    "settings": {
        "config.json": json.dumps({**CONFIG, "plumbline": {"family": ["x"]}}),
        "model.safetensors": NO_WEIGHTS,
    },
    "labels": {
        "config.json": json.dumps({**CONFIG, "num_labels": 10**7}),
        "model.safetensors": NO_WEIGHTS,
    },
    "headless": {
        "config.json": json.dumps({**CONFIG, "num_attention_heads": 0}),
        "model.safetensors": NO_WEIGHTS,
    },
    "elsewhere": {
        "config.json": json.dumps(CONFIG),
        "model.safetensors.index.json": '{"metadata": {}, "weight_map": {"a": "../../secret"}}',
    },
    "fetched": {
        "adapter_config.json": json.dumps(
            {
                "base_model_name_or_path": "http://169.254.169.254/iam",
                "peft_type": "LORA",
                "r": 2,
                "lora_alpha": 4,
            }
            | {"target_modules": ["q_proj"]}
        )
    },
    "list": {"config.json": "[]"},
    "cut": {"config.json": "{"},
    "deep": {"config.json": DEEP},
    "adapter": {"adapter_config.json": "[]"},
    "baseless": {"adapter_config.json": "{}"},
    "card": {
        "config.json": json.dumps(CONFIG),
        "plumbline.json": "[]",
        "model.safetensors": NO_WEIGHTS,
    },
    "card-keys": {"config.json": json.dumps(CONFIG), "plumbline.json": '{"recipe": 3}'},
    "card-options": {
        "config.json": json.dumps(CONFIG),
        "plumbline.json": json.dumps({**CARD, "options": [1]}),
    },
    "card-sampling": {
        "config.json": json.dumps(CONFIG),
        "plumbline.json": json.dumps({**CARD, "sampling": {"top_p": 3}}),
    },
    "card-model": {
        "config.json": json.dumps(CONFIG),
        "plumbline.json": json.dumps({**CARD, "model": {"canvas": -1}}),
    },
}
TASKS = {
    "exiting_task": 'raise SystemExit("usage: \\x1b[31m")\n',
    "syntax_error_task": "def open(:\n",
    "raising_task": "1 / 0\n",
    "hollow_task": (
        "def opens(options, folder, progress):\n    return None\ndef odd():\n    return None\n"
    ),
    "scorers": """def good(completion, answer):
    return float(completion == answer)
def raises(completion):
    return 1 / len(completion)
def high(completion):
    return 7
def nothing(completion):
    return None
def odd(answer):
    return 1
""",
}


def make_run(folder: Path) -> None:
    """A small run, finished."""
    levels = {"base": Level(0.4, 0.2, 0.3), "sft": Level(0.8, 0.5, 0.5), "rl": Level(0.9, 0.8, 0.9)}
    with Run.start(recipe(), folder) as run:
        write_evaluations(run, levels, 4, splits=("val",))
        write_supervised(run, "sft", 3)
        write_rl(run, 1, n=4)
        run.event("note", "a note")
        run.environment({})
        run.finish({"status": "finished", "model": "x", "evaluations": {}})
    (folder / "models" / "rl").mkdir(parents=True)
    (folder / "models" / "rl" / "config.json").write_text(json.dumps(CONFIG))


SCORED = {
    "good": [{"prompt": f"{n} + 1", "answer": str(n + 1)} for n in range(9)],
    "nan": [{"prompt": "a", "answer": float("nan")}],
    "column": [{"prompt": "a", "question": "b"}],
    "one": [{"prompt": "a", "answer": "b"}],
}
"""Rows for the task jsonl."""


def put(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def files(rows: str) -> dict[str, str | bytes]:
    """The content of ordinary files by name; `rows` is a good split of commerce."""
    good = json.dumps({"id": json.loads(rows.splitlines()[0])["id"], "completion": "{}"})
    key = b"general.architecture"  # an array of 2^60 numbers, of which none is there
    array = struct.pack("<IQQQ", 3, 0, 1, len(key)) + key + struct.pack("<IIQ", 9, 4, 2**60)
    return {
        "notes.txt": "mine",
        "full/notes.txt": "mine",
        "latin.jsonl": '{"id": "a", "completion": "não", "text": "não"}\n'.encode("latin-1"),
        "utf16.jsonl": '{"id": "a", "completion": "b", "text": "b"}\n'.encode("utf-16"),
        "good.jsonl": good + "\n",
        "bad-type.json": '{"type": "thing"}',
        "bad-properties.json": '{"properties": 3}',
        "bad-latin.yaml": "name: não".encode("latin-1"),
        "junk.gguf": b"GGUF" + b"\0" * 20,
        "text.gguf": "mine",
        "pointer.gguf": POINTER,
        "long.gguf": b"GGUF" + array,
        "junk.pth": "mine",
        **{f"bad-{name}.jsonl": text + "\n" for name, text in BAD_LINES.items()},
        **{f"records/{name}/val.jsonl": text + "\n" for name, text in BAD_LINES.items()},
        **{f"bad-{name}.json": text for name, text in BAD_JSON.items()},
        **{f"manifests/{name}/manifest.json": text for name, text in BAD_JSON.items()},
        **{f"manifests/{name}/val.jsonl": rows for name in BAD_JSON},
        **{f"bad-{name}.yaml": text for name, text in RECIPES.items()},
        **{
            f"models/{name}/{file}": text
            for name, model in MODELS.items()
            for file, text in model.items()
        },
        **{
            f"scored-{name}.jsonl": "\n".join(map(json.dumps, lines)) + "\n"
            for name, lines in SCORED.items()
        },
        **{f"{name}.py": text for name, text in TASKS.items()},
    }


def make_place(place: Path) -> None:
    """Everything that the table names, in one folder."""
    build_commerce(CommerceOptions(orders=200, extraction=20), place / "data" / "commerce")
    for name, content in files((place / "data" / "commerce" / "val.jsonl").read_text()).items():
        put(place / name, content)
    for name in ("emptydir", "folder.yaml", "records/folder/val.jsonl", "pipes"):
        (place / name).mkdir(parents=True)
    for name in (
        "pipe",
        "pipe.jsonl",
        "pipe.json",
        "pipe.yaml",
        "pipe.csv",
        "pipe.log",
        "pipe.parquet",
        "pipes/completions.jsonl",
    ):
        os.mkfifo(place / name)
    for suffix in ("jsonl", "json", "yaml", "csv", "log", "wandb"):
        (place / f"zero.{suffix}").symlink_to("/dev/zero")
        with (place / f"sparse.{suffix}").open("wb") as file:
            file.truncate(6 * 10**9)
    one = to_json(evaluation("rl", "val", "greedy", Level(0.9, 0.8, 0.9), 4, 0))
    put(place / "good-evaluation.json", json.dumps(one))
    for name, spoil in EVALUATIONS.items():
        spoilt = json.loads(json.dumps(one))
        spoil(spoilt)
        put(place / f"evaluation-{name}.json", json.dumps(spoilt))
    make_run(place / "run")
    for name, spoil in RUNS.items():
        shutil.copytree(place / "run", place / "runs" / name)
        spoil(place / "runs" / name)
