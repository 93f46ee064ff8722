"""Records of other trainers, written by the libraries that write them, with a fault that the checks
then name."""

import csv
import io
import json
import math
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from plumbline.checks.check import Check, Finding, examine
from plumbline.checks.diagnosis.history import History, Sample
from plumbline.checks.diagnosis.readers import read_histories, read_runs
from plumbline.checks.diagnosis.readers.completions import mean_series
from plumbline.checks.diagnosis.readers.protobuf import to_float
from plumbline.checks.diagnosis.readers.rows import (
    find_series_name,
    map_settings,
    split_at_restarts,
)
from plumbline.checks.diagnosis.readers.training_args import read_pickled_options
from plumbline.checks.diagnosis.readers.wandb import is_page
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.checks.findings_output import render_stages
from plumbline.errors import DataError
from plumbline.storage import write_jsonl
from tests.diagnosis.test_checks import healthy, said

LOGS = Path(__file__).parents[1] / "doorstep" / "logs"

HERE = Path(__file__).parent
STEPS = 120
HOST = "http://ml.company.example"
PAGE = "https://wandb.ai/team/proj/runs/abc123"


def logged(fault=""):
    """Rows under the names of transformers: a healthy run, or one with a fault from its middle
    on."""
    dice = np.random.default_rng(0)
    rows = []
    for step in range(1, STEPS + 1):
        late = step > 0.6 * STEPS
        row = {
            "train/global_step": step,
            "train/reward": 0.3 + 0.3 * step / STEPS + 0.05 * dice.standard_normal(),
            "train/rewards/right/mean": 0.2 + 0.2 * step / STEPS + 0.05 * dice.standard_normal(),
            "train/loss": 0.01 * dice.standard_normal(),
            "train/grad_norm": 0.3 * math.exp(0.4 * dice.standard_normal()),
            "train/learning_rate": 1e-5,
            "train/entropy": 0.8 - 0.4 * step / STEPS + 0.02 * dice.standard_normal(),
        }
        if late and fault:
            row |= {
                "grad_norm": {"train/grad_norm": math.nan},
                "learning_rate": {"train/learning_rate": 0.0},
            }[fault]
        rows.append(
            {
                name: value if name == "train/global_step" else float(value)
                for name, value in row.items()
            }
        )
    return rows


FAULTS = {
    "": None,
    "grad_norm": ("not-finite", "fatal"),
    "learning_rate": ("rate-exhausted", "fatal"),
}
WITH_FAULTS = pytest.mark.parametrize("fault", FAULTS)


def read(path) -> History:
    (history,) = read_histories(path)
    return history


def assert_found(history, fault):
    found = [
        (one.check, one.level) for one in examine(history, CHECKS).findings if one.level != "note"
    ]
    assert found == ([FAULTS[fault]] if fault else [])
    assert history.kind == "rl"
    rows = logged(fault)
    assert history["reward"].steps.tolist() == [row["train/global_step"] for row in rows]
    for ours, theirs in {
        "grad_norm": "train/grad_norm",
        "reward/right": "train/rewards/right/mean",
    }.items():
        assert history[ours].values == pytest.approx(
            [row[theirs] for row in rows], rel=1e-6, nan_ok=True
        )


WRITE = """
import json, sys, wandb
rows, completions = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
run = wandb.init(project="p", config={"beta": 0.04, "num_generations": 4, "max_steps": 120, "args": {"seed": 3}})
for row in rows:
    run.log(row)
    if row["train/global_step"] % 40 == 0:
        data = [list(one.values()) for one in completions]
        run.log({"completions": wandb.Table(columns=list(completions[0]), data=data)})
run.finish()
"""


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """The folder of a run with a fault, as W&B writes it without a network."""
    pytest.importorskip("wandb", reason="W&B wrote the runs that are read; pip install '.[wandb]'")
    folder = tmp_path_factory.mktemp("offline")
    (folder / "rows.json").write_text(json.dumps(logged("grad_norm")))
    made = [
        {"step": 1, "prompt": f"p{n // 4}", "completion": f"answer {n}", "right": n % 2}
        for n in range(8)
    ]
    (folder / "completions.json").write_text(json.dumps(made))
    (folder / "home").mkdir()
    quiet = {
        "MODE": "offline",
        "SILENT": "true",
        "CONSOLE": "off",
        "_DISABLE_STATS": "true",
        "DIR": str(folder),
    }
    env = {
        **os.environ,
        **{f"WANDB_{name}": value for name, value in quiet.items()},
        "HOME": str(folder / "home"),
    }
    command = [sys.executable, "-c", WRITE, "rows.json", "completions.json"]
    subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
    return folder


def test_offline_runs_of_wandb(offline, tmp_path):
    folder = shutil.copytree(offline, tmp_path / "run", symlinks=True)
    history = read(folder)
    assert_found(history, "grad_norm")
    assert 0 < history.settings.pop("seconds") < 600
    assert history.settings == {"rl.beta": 0.04, "rl.group_size": 4, "steps": 120}
    assert len(history.samples) == 24
    assert history.samples[1].reward == 1.0
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    assert file.stat().st_size > 32768, "records must cross the end of a block"
    assert read(file).series.keys() == read(file.parent).series.keys() == history.series.keys()
    whole = file.read_bytes()
    # Half written, as a run that is going on or was killed leaves it; then damaged in its middle.
    file.write_bytes(whole[: len(whole) // 2])
    half = read(file)
    assert 40 < half.logged_steps < 90
    assert half.skipped == 1
    assert half["reward"].values.tolist() == history["reward"].values[: half.logged_steps].tolist()
    at = whole.index(b"0.", whole.index(b"train/reward", 20000))
    file.write_bytes(whole[:at] + b"9." + whole[at + 2 :])
    damaged = read(file)
    assert 0 < damaged.logged_steps < STEPS
    assert damaged["reward"].values.max() < 9
    (file.parent.with_name("offline-run-20260101_000000-other")).mkdir()
    (file.parent.with_name("offline-run-20260101_000000-other") / "run-other.wandb").write_bytes(
        whole
    )
    with pytest.raises(DataError, match=r"2 runs of W&B: .*run-other\.wandb"):
        read(folder)


class StandIn:
    """The part of W&B's client that reads a run."""

    def __init__(self, overrides):
        assert overrides in ({"base_url": "https://api.wandb.ai"}, {"base_url": HOST})

    def run(self, name):
        if name != "team/proj/abc123":
            raise ValueError(f"Could not find run {name}")
        run = SimpleNamespace(
            config={"beta": 0.04, "peft_config": {"default": {"r": 16}}}, state="running"
        )
        run.scan_history = lambda: iter(
            [{"_step": at, **row} for at, row in enumerate(logged("learning_rate"))]
        )
        return run


PAGES = [
    PAGE,
    f"{PAGE}/overview?nw=nwuserme",
    f"{PAGE}#charts".removeprefix("https://"),
    f"{HOST}{PAGE[16:]}/workspace",
]


@pytest.mark.parametrize("address", PAGES)
def test_the_run_at_an_address_of_wandb(monkeypatch, address):
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Api=StandIn))
    monkeypatch.setenv("WANDB_BASE_URL", HOST)
    (history,) = read_histories(address)
    assert_found(history, "learning_rate")
    assert (history.origin, history.finished) == ("wandb", False)
    assert history.settings == {"rl.beta": 0.04, "model.lora.rank": 16}


@pytest.mark.parametrize(
    "server",
    """http://wandb.ai https://wandb.ai.evil.example https://evilwandb.ai https://wandb.ai:8443 https://wandb.ai@evil.example
    https://wandb.ai:x@evil.example https://wandb.evil.example http://wandb.evil.example:80 https://wandb.ai\\@evil.example
    https://wandb.ai.""".split(),  # noqa: SIM905
)
def test_no_other_server_is_sent_the_key_of_wandb(monkeypatch, server):
    """A client that is asked at all fails the test: it may send the key at once."""
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Api=None))
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setenv("WANDB_BASE_URL", HOST)
    with pytest.raises(DataError, match=r"WANDB_BASE_URL.* key\b") as caught:
        read_histories(f"{server}/team/proj/runs/abc123")
    assert "WANDB_BASE_URL" in caught.value.fix
    for near in (
        f"{HOST}.evil.example",
        f"{HOST}:81",
        HOST.replace("http:", "https:"),
        f"http://x@{HOST[7:]}",
    ):
        assert not is_page(f"{near}/team/proj/runs/abc123"), (
            "it is an address as any other, and no key goes there"
        )


NO_RUN = (None, "no address of one run", "ENTITY/PROJECT/runs/ID")


@pytest.mark.parametrize(
    ("address", "client", "cause", "fix"),
    [
        (PAGE, None, "not installed", r"pip .*\[wandb\].* login"),
        (PAGE, SimpleNamespace(), "not installed", r"run\('team/proj/abc123'\).*history\.jsonl"),
        (PAGE[:-1], SimpleNamespace(Api=StandIn), "ValueError: .* team/proj/abc12", "wandb login"),
        ("https://wandb.ai/team/proj", *NO_RUN),
        ("https://wandb.ai/team/proj/reports/a--Vmlldz", *NO_RUN),
    ],
)
def test_an_address_that_cannot_be_read_says_how_to_export(
    monkeypatch, address, client, cause, fix
):
    monkeypatch.setitem(sys.modules, "wandb", client)
    with pytest.raises(DataError, match=cause) as caught:
        read_histories(address)
    assert re.search(fix, caught.value.fix)
    assert "aiohttp" not in str(caught.value)


def test_a_pipe_is_named_as_one():
    reading, writing = os.pipe()
    os.close(writing)
    with pytest.raises(DataError, match="it is a pipe"):
        read_histories(f"/dev/fd/{reading}")
    os.close(reading)


def framed(records):
    """Records as LevelDB's log frames them (doc/log_format.md of google/leveldb), with W&B's header
    and CRC."""
    made = b":W&B\xe1\xbe\x00"
    for record in records:
        kind = 1
        while kind:
            space = 32768 - len(made) % 32768
            if space < 7:
                made += bytes(space)
                continue
            piece, record = record[: space - 7], record[space - 7 :]
            kind = {1: 2, 4: 3}[kind] if record and kind != 3 else kind
            kind = kind if record else {1: 1}.get(kind, 4)
            made += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            kind = 3 if record else 0
    return made


def field(number, content):
    """A protobuf field of bytes; lengths below 2 ** 14."""
    beginning = [
        number * 8 % 128 + 2 | (128 if number > 15 else 0),
        *([number >> 4] if number > 15 else []),
    ]
    return bytes([*beginning, len(content) % 128 | 128, len(content) >> 7]) + content


def logged_row(**values):
    items = [
        field(1, field(1, key.encode()) + field(16, value.encode()))
        for key, value in values.items()
    ]
    return field(2, b"".join(items))


@pytest.mark.parametrize("left", range(9))
def test_a_block_that_ends_close_behind_a_record(tmp_path, left):
    rows = [
        logged_row(step=str(step), loss="0.5", note='"' + "x" * 3000 + '"') for step in range(1, 31)
    ]
    begin = framed(rows[:10])
    fill = 32768 - len(begin) - left - 7 - len(logged_row(note='""'))
    (tmp_path / "run-a.wandb").write_bytes(
        framed([*rows[:10], logged_row(note='"' + "x" * fill + '"'), *rows[10:]])
    )
    history = read(tmp_path)
    assert history["loss"].steps.tolist() == list(range(1, 31))
    assert history.skipped == 0


@pytest.mark.parametrize(
    "value", ["1" + "0" * 400, "9" * 5000, "1e400", "-1e308", "NaN", '"1_0"', '"x"', "null"]
)
def test_numbers_beyond_every_float_are_no_end_of_a_check(tmp_path, value, recwarn):
    rows = [
        {
            "_step": str(step),
            "train/grad_norm": "0.5",
            "train/reward": value if step == 7 else f"{step / 100}",
        }
        for step in range(1, 31)
    ]
    rows = [logged_row(**row, **{"train/loss": value}) for row in rows]
    setting = b"".join(
        field(1, field(1, key) + field(16, value.encode())) for key in (b"max_grad_norm", b"beta")
    )
    (tmp_path / "run-a.wandb").write_bytes(framed([field(5, setting), *rows]))
    with suppress(DataError):  # no row was left
        list(render_stages([examine(read(tmp_path), CHECKS)], verbose=True))
    assert not recwarn.list


@pytest.mark.parametrize("size", [1e154, 1e200, 1e308])
def test_a_series_near_the_largest_float_is_no_end_of_a_check(tmp_path, size, recwarn):
    names = (
        "reward",
        "loss",
        "grad_norm",
        "kl",
        "entropy",
        "completions/mean_length",
        "rewards/right/mean",
    )
    rows = [{"step": step} | dict.fromkeys(names, size * (-1) ** step) for step in range(1, 41)]
    write_jsonl(tmp_path / "metrics.jsonl", rows)
    list(render_stages([examine(read(tmp_path / "metrics.jsonl"), CHECKS)], verbose=True))
    assert not recwarn.list


def test_a_number_of_tensorboard_with_too_many_bits_is_damage():
    with pytest.raises(ValueError, match="more bits"):
        to_float(1 << 40, "f")
    assert to_float(0x3F800000, "f") == to_float(0x3FF << 52, "d") == 1.0


def test_a_history_of_an_old_offline_run(tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    rows = [{**row, "_step": 2 * row["train/global_step"]} for row in logged("learning_rate")]
    (files / "wandb-history.jsonl").write_text("\n".join(map(json.dumps, rows)) + '\n{"_step": 24')
    (files / "config.yaml").write_text(
        "wandb_version: 1\nlearning_rate:\n  desc: null\n  value: 1e-05\nbeta:\n  value: 0\n"
    )
    history = read(tmp_path)
    assert_found(history, "learning_rate")
    assert history.settings == {"rl.optimiser.learning_rate": 1e-5, "rl.beta": 0}
    assert history.skipped == 1


@WITH_FAULTS
def test_event_files_of_tensorboard(tmp_path, fault):
    tensorboard = pytest.importorskip(
        "torch.utils.tensorboard", reason="TensorBoard wrote what is read", exc_type=ImportError
    )
    folder = tmp_path / "output" / "runs" / "Nov22_host"
    # A run that was stopped and resumed: two files, some steps in both; the second as tensors, as
    # TensorFlow 2 writes.
    for steps, new_style in ((range(70), False), (range(60, STEPS), True)):
        with tensorboard.SummaryWriter(str(folder), filename_suffix=f".{steps.start}") as writer:
            writer.add_text("args", json.dumps({"beta": 0.04, "max_steps": STEPS}))
            for row in [logged(fault)[at] for at in steps]:
                for name, value in row.items():
                    if name != "train/global_step":
                        writer.add_scalar(
                            name, value, row["train/global_step"], new_style=new_style
                        )
    history = read(tmp_path / "output")
    assert_found(history, fault)
    assert history.settings == {"rl.beta": 0.04, "steps": STEPS}
    second = max(folder.iterdir(), key=lambda file: file.name)
    whole = second.read_bytes()
    second.write_bytes(whole[: len(whole) // 2])
    assert 70 < read(folder).last_step < STEPS
    second.write_bytes(whole)
    first = min(folder.iterdir(), key=lambda file: file.name)
    whole = first.read_bytes()
    at = whole.index(b"train/reward", 2000) + len("train/reward\x15")
    # a number that was NaN in memory
    first.write_bytes(whole[:at] + b"\0\0\xc0\x7f" + whole[at + 4 :])
    damaged = read(folder)
    assert damaged.skipped == 1
    assert np.isfinite(damaged["reward"].values).all()
    first.write_bytes(whole[: at - 60] + whole[at:])
    with pytest.raises(DataError, match="damaged at byte"):
        read(folder)
    first.write_bytes(whole)
    second.write_bytes(b"")
    assert read(folder).last_step == 70
    other = folder.with_name("Nov23_host")
    other.mkdir()
    second.rename(other / second.name)
    with pytest.raises(DataError, match="2 runs of TensorBoard: runs/Nov22_host, runs/Nov23_host"):
        read(tmp_path / "output")


def as_csv(rows, mark=",", none="", nan="NaN"):
    names = list(dict.fromkeys(name for row in rows for name in row))

    def cell(row, name):
        value = row.get(name)
        return none if value is None else nan if value != value else str(value)

    return (
        "\n".join(
            [mark.join(names), *(mark.join(cell(row, name) for name in names) for row in rows)]
        )
        + "\n"
    )


def page(rows):
    """What the page of W&B exports: the run's name before each column, and bounds beside it."""
    made = []
    for row in rows:
        one = {"Step": row["train/global_step"]}
        for name in list(row)[1:]:
            for bound in ("", "__MIN", "__MAX"):
                one[f"my run - {name}{bound}"] = row[name]
        made.append(one)
    return as_csv(made)


def with_evaluations(rows):
    """Evaluations in rows of their own, as W&B has them."""
    made = []
    for row in rows:
        made += [row, {"eval/reward": 0.4}] if row["train/global_step"] % 20 == 0 else [row]
    return [{**one, "_step": step, "_runtime": 3.0} for step, one in enumerate(made)]


def pandas(rows, **options):
    import pandas as pd

    # W&B gives what was NaN as a text, and pandas what was not logged as NaN.
    texts = [
        {key: "NaN" if value != value else value for key, value in row.items()}
        for row in with_evaluations(rows)
    ]
    return pd.DataFrame(texts)


def nested(row):
    """A row whose names are cut at their slashes, a level for each piece."""
    made = {}
    for name, value in row.items():
        *within, last = name.split("/")
        held = made
        for piece in within:
            held = held.setdefault(piece, {})
        held[last] = value
    return made


TABLES = {
    "github.csv": lambda rows: as_csv(rows, " | ").replace(
        "\n", "\n" + "-- | " * (len(rows[0]) - 1) + "--\n", 1
    ),
    "nested.jsonl": lambda rows: "\n".join(json.dumps(nested(row)) for row in rows),
    "table.csv": as_csv,
    "semicolons.csv": lambda rows: as_csv(rows, ";").replace(".", ","),
    "tabs.tsv": lambda rows: as_csv(rows, "\t"),
    "page.csv": page,
    "history.csv": lambda rows: pandas(rows).to_csv(),
    "history.json": lambda rows: pandas(rows).to_json(orient="records"),
    "columns.json": lambda rows: pandas(rows).to_json(),
    "dumped.json": lambda rows: json.dumps(pandas(rows).to_dict("records")),
    "gaps.csv": lambda rows: as_csv(with_evaluations(rows), none="nan", nan="nan"),
    "scan.jsonl": lambda rows: "\n".join(map(json.dumps, with_evaluations(rows))),
    "verl.jsonl": lambda rows: "\n".join(
        json.dumps({"step": row.pop("train/global_step"), "data": row}) for row in rows
    ),
    "swift.jsonl": lambda rows: "\n".join(
        json.dumps({**row, "global_step/max_steps": f"{row.pop('train/global_step')}/120"})
        for row in rows
    ),
}


@WITH_FAULTS
@pytest.mark.parametrize("name", TABLES)
def test_tables(tmp_path, name, fault):
    if name in {"history.csv", "history.json", "columns.json", "dumped.json"}:
        pytest.importorskip("pandas", reason="pandas writes what W&B exports")
    (tmp_path / name).write_text(TABLES[name](logged(fault)))
    (tmp_path / "config.yaml").write_text(
        yaml.safe_dump({"beta": {"value": 0.04}, "_wandb": {"value": {"t": 1}}})
    )
    history = read(tmp_path if not name.endswith(".json") else tmp_path / name)
    assert_found(history, fault)
    assert history.settings["rl.beta"] == 0.04
    assert history.skipped == 0
    assert history["eval/reward"].steps.tolist() in ([], [20, 40, 60, 80, 100, 120])


def side_by_side(ok, bad):
    """W&B's page with two runs, the second of which began later and ended earlier."""
    rows = []
    for number, (one, other) in enumerate(zip(ok, bad, strict=True)):
        row = {"Step": one["train/global_step"]}
        for name in list(one)[1:]:
            for bound in ("", "__MIN", "__MAX"):
                row[f"lr 1e-5 - seed - {name}{bound}"] = one[name]
                row[f"bad - {name}{bound}"] = other[name] if 2 < number < 115 else None
        rows.append(row)
    return as_csv(rows)


def long_table(ok, bad, column="run_id"):
    return as_csv(
        [
            {column: name, **row}
            for name, rows in {"lr 1e-5 - seed": ok, "bad": bad}.items()
            for row in rows
        ]
    )


def melted(ok, bad):
    return "dir_name,step,tag,value\n" + "".join(
        f"{name},{row['train/global_step']},{key},{value}\n"
        for name, rows in {"lr 1e-5 - seed": ok, "bad": bad}.items()
        for row in rows
        for key, value in list(row.items())[1:]
    )


BY_COLUMN = [
    lambda *both, name=name: long_table(*both, column=name)
    for name in ("Name", "algo", "what I tried")
]


@pytest.mark.parametrize("table", [side_by_side, long_table, melted, *BY_COLUMN])
def test_each_run_of_a_table_is_judged(tmp_path, table):
    (tmp_path / "export.csv").write_text(table(logged(), logged("grad_norm")))
    (tmp_path / "config.json").write_text('{"beta": 0.04}')
    ok, bad = read_histories(tmp_path / "export.csv")
    assert (ok.name, bad.name, ok.settings) == ("lr 1e-5 - seed", "bad", {})
    assert_found(ok, "")
    assert {(one.check, one.level) for one in examine(bad, CHECKS).findings} == {
        ("not-finite", "fatal")
    }


def test_a_run_resumed_under_another_name_is_one(tmp_path):
    rows = [{"run": "a" if row["train/global_step"] < 60 else "b", **row} for row in logged()]
    (tmp_path / "export.csv").write_text(as_csv(rows))
    assert read(tmp_path / "export.csv").logged_steps == STEPS


def several(rows, names):
    return [{**name, **row} for row in rows for name in names]


SEEDS = [{"algo": algo, "seed": seed} for algo in ("ppo", "grpo") for seed in (0, 1)]
REPEATED = {
    "two columns": (
        several(logged(), SEEDS),
        ["ppo, seed 0", "ppo, seed 1", "grpo, seed 0", "grpo, seed 1"],
        0,
    ),
    "no steps": (
        [{"run": n % 2, "train/loss": 1.0, "train/reward": 0.1 * n} for n in range(2 * STEPS)],
        ["run 0", "run 1"],
        0,
    ),
    "one after another": (logged() + logged("learning_rate"), ["run 1", "run 2"], 0),
    "resumed": (logged()[:70] + logged("learning_rate")[50:], ["rl"], 0),
    "ranks": (several(logged(), [{"rank": rank} for rank in range(3)]), ["rl"], 240),
    "several GPUs": (
        several(logged(), [{"device": f"cuda:{rank}"} for rank in range(2)]),
        ["rl"],
        120,
    ),
    "train and validation": (several(logged(), [{"split": "train"}, {"split": "val"}]), ["rl"], 0),
}


@pytest.mark.parametrize("what", REPEATED)
def test_rows_of_one_step_are_several_runs_or_are_said(tmp_path, what):
    rows, names, left_out = REPEATED[what]
    for number, row in enumerate(rows):
        row["train/loss"] += 1e-3 * (number % 7)
    write_jsonl(tmp_path / "metrics.jsonl", rows)
    histories = read_histories(tmp_path)
    assert [history.name for history in histories] == names
    for history in histories:
        assert history.logged_steps == STEPS
        assert bool(len(history["eval/reward"])) == (what == "train and validation")
        assert [remark.split()[0] for remark in history.remarks] == [str(left_out)] * bool(left_out)


def test_a_stage_that_a_loss_alone_tells_is_said_to_be_a_guess(tmp_path):
    for more, guess in (("", True), ("\tValidation Loss", False), ("\treward", False)):
        lines = [
            f"Step\tTraining Loss{more}",
            *(f"{n}\t0.5{bool(more) * (chr(9) + '0.4')}" for n in range(10, 200, 10)),
        ]
        (tmp_path / "mine.tsv").write_text("\n".join(lines))
        assert ["guess" in remark for remark in read(tmp_path).remarks] == [True] * guess


NOTEBOOKS = "Step", "Training Loss", "reward", "completions / mean_length", "rewards / right / mean"
SAID = "Unsloth: Will smartly offload gradients, to save VRAM!\n [20/20 01:33, Epoch 1/1]\n\n"


def of_notebook():
    rows = [
        [str(n), "0.01", f"{0.4 + n / 99:.4f}", "80.5", f"{0.4 + n / 99:.4f}"] for n in range(1, 21)
    ]
    return [list(NOTEBOOKS), *rows]


def as_html(lines):
    cells = ("".join(f"<td>{cell}</td>" for cell in line) for line in lines)
    head = "".join(f"<th>{cell}</th>\n" for cell in lines[0])
    return (
        '<div><progress value="20"></progress>[20/20 00:09]</div><table border="1"><tr '
        f'style="">{head}</tr>'
    ) + "".join(f"<tr>{line}</tr>" for line in list(cells)[1:])


def as_notebook(*outputs):
    cells = [
        {"cell_type": "markdown", "source": "# mine"},
        {"cell_type": "code", "outputs": list(outputs)},
    ]
    return json.dumps({"cells": cells, "nbformat": 4})


PRINTED = [
    f"{{'loss': 0.01, 'reward': {0.4 + n / 99:.4f}, 'rewards/right/mean': 0.5}}\n"
    for n in range(1, 21)
]
PASTED = {
    "tabs.txt": SAID + "\n".join("\t".join(line) for line in of_notebook()),
    "tabs.tsv": SAID + "\n".join("\t".join(line) for line in of_notebook()),
    "blanks.txt": SAID
    + "\n".join("   ".join(line) for line in of_notebook())
    + "\n\nTrainOutput(global_step=20)",
    "commas.csv": "# my run, of May\n" + "\n".join(",".join(line) for line in of_notebook()),
    "table.ipynb": as_notebook(
        {"output_type": "stream", "text": ["loading\n"]},
        {
            "output_type": "display_data",
            "data": {"text/html": [as_html(of_notebook())], "text/plain": ["<HTML>"]},
        },
    ),
    "printed.ipynb": as_notebook(
        {"output_type": "stream", "text": PRINTED[:9]}, {"text": PRINTED[9:]}
    ),
}


@pytest.mark.parametrize("name", PASTED)
def test_what_is_pasted_or_stands_in_a_notebook(tmp_path, name):
    (tmp_path / name).write_text(PASTED[name])
    history = read(tmp_path / name)
    assert (history.kind, history.logged_steps, history.last_step) == ("rl", 20, 20)
    assert {"reward", "loss", "reward/right"} <= set(history.series)
    assert history["reward"].values[-1] == pytest.approx(0.602, abs=1e-3)


@pytest.mark.parametrize(
    "text", ["{}", '{"cells": [{"outputs": [{"data": 1}, 7]}, 3]}', "[1]", "{", as_notebook()]
)
def test_a_notebook_without_a_log_is_a_clear_error(tmp_path, text):
    (tmp_path / "mine.ipynb").write_text(text)
    with pytest.raises(DataError, match=r"mine\.ipynb"):
        read(tmp_path / "mine.ipynb")


def test_a_download_of_tensorboard_has_its_metric_in_the_files_name(tmp_path):
    rows = [
        {"Wall time": 1.7e9, "Step": row["train/global_step"], "Value": row["train/reward"]}
        for row in logged()
    ]
    (tmp_path / "run-.-tag-train_reward.csv").write_text(as_csv(rows))
    history = read(tmp_path)
    assert history.kind == "rl"
    assert history["reward"].values == pytest.approx([row["train/reward"] for row in logged()])


def test_a_table_without_steps_has_row_numbers(tmp_path):
    rows = [
        {key: value for key, value in row.items() if key != "train/global_step"}
        for row in logged("learning_rate")
    ]
    (tmp_path / "mine.csv").write_text(as_csv(rows))
    assert_found(read(tmp_path / "mine.csv"), "learning_rate")
    (tmp_path / "far.jsonl").write_text(
        '{"step": 1%s, "loss": 1}\n{"step": NaN, "loss": 2}' % ("0" * 300)
    )
    assert read(tmp_path / "far.jsonl")["loss"].steps.tolist() == [1, 2]
    assert [read(tmp_path / name)["loss"].counted for name in ("mine.csv", "far.jsonl")] == [
        False,
        False,
    ]


def test_evaluations_that_have_a_step_of_their_own(tmp_path):
    """OpenRLHF's, which come after the next step was logged where evaluation is asynchronous."""
    rows = logged()
    rows[50:50] = [{"eval/global_step": 40, "eval/eval_gsm8k_pass1": 0.3}]
    write_jsonl(tmp_path / "metrics.jsonl", rows)
    assert read(tmp_path)["eval/gsm8k_pass1"].steps.tolist() == [40]


def test_bad_lines_are_counted_and_left_out(tmp_path):
    lines = as_csv(logged("learning_rate")).splitlines()
    lines[50:50] = [lines[0], "7,broken", '"a', 'cell of two lines"', ""]
    (tmp_path / "mine.csv").write_text("\n".join([*lines, "121,0.5"]))
    history = read(tmp_path / "mine.csv")
    assert_found(history, "learning_rate")
    assert history.skipped == 4


def test_a_bad_cell_is_lost_alone_and_counted(tmp_path):
    """What stands beside it was logged: here the NaN that the run died of."""
    lines = ["step,loss,reward,grad_norm", *(f"{step},0.1,0.5,0.3" for step in range(1, 30))]
    lines[12] = "12,0.1,oops,nan"
    lines[13] = "13,0.1,,0.3"
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    history = read(tmp_path / "mine.csv")
    assert history.skipped == 1
    assert not {12, 13} & set(history["reward"].steps.tolist())
    assert np.isnan(history["grad_norm"].values[11])
    assert len(history["loss"]) == 29


def test_a_bad_cell_does_not_turn_the_gaps_of_pandas_into_nan(tmp_path):
    lines = [
        "step,loss,eval_loss",
        *(f"{step},{'nan' if step % 5 == 0 else 0.1},nan" for step in range(1, 41)),
    ]
    lines[5::5] = [f"{step},nan,0.2" for step in range(5, 41, 5)]
    lines[3] = "3,oops,nan"
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    history = read(tmp_path / "mine.csv")
    assert (len(history["loss"]), len(history["eval/loss"])) == (31, 8)
    assert np.isfinite(history["loss"].values).all()
    assert np.isfinite(history["eval/loss"].values).all()


def test_gaps_of_json_are_no_nan(tmp_path):
    """As pandas and JavaScript write what was not logged; a NaN beside what was logged is one."""
    for gap in (None, "NaN", math.nan, ""):
        rows = [
            {
                "step": n,
                "loss": 2 - n / 60,
                "grad_norm": 0.3,
                "eval_loss": 2.1 if n % 10 == 0 else gap,
                "reward": gap,
            }
            for n in range(1, 41)
        ]
        rows[30]["grad_norm"] = "NaN"
        (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
        history = read(tmp_path)
        assert (history.kind, len(history["loss"]), len(history["eval/loss"])) == ("sft", 40, 4)
        assert np.isnan(history["grad_norm"].values).sum() == 1


def test_trainer_log_of_llamafactory(tmp_path):
    more = {"total_steps": 300, "lr": 1e-5, "percentage": 1.0}
    steps = range(5, 205, 5)
    rows = [
        {"current_steps": step, "loss": 2 - step / 300, "epoch": step / 100, **more}
        for step in steps
    ]
    write_jsonl(tmp_path / "trainer_log.jsonl", rows)
    history = read(tmp_path)
    assert (history.kind, history.settings, history.last_step) == ("sft", {"steps": 300}, 200)
    assert set(history.series) == {"loss", "learning_rate", "epoch"}
    assert [one.check for one in examine(history, CHECKS).findings] == ["unfinished"]


BAD = {
    name: (text.encode(), says)
    for name, (text, says) in yaml.safe_load(
        Path(__file__).with_name("bad_logs.yaml").read_text()
    ).items()
} | {
    "binary.csv": (bytes(range(128, 256)), "not UTF-8"),
    "nul.csv": (b"step,loss\n\x00,\x00\n", "none of its 1 lines fits"),
    "deep.json": (b"[" * 100_000, "nested too deeply"),
    "other.wandb": (b":W&B\xe1\xbe\x00", "no logged step"),
    "noise.wandb": (b":W&B\xe1\xbe\x00" + bytes(range(256)) * 9, "no logged step"),
    "events.out.tfevents.2.host": (bytes(range(256)), "is no event file"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_a_clear_error(tmp_path, name):
    content, says = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read(tmp_path / name)
    assert caught.value.fix


@pytest.mark.parametrize(
    "name", ["table.csv", "scan.jsonl", "dumped.json", "run.wandb", "trainer_state.json"]
)
def test_damage_anywhere_is_read_or_a_clear_error(tmp_path, name, offline):
    pytest.importorskip("pandas", reason="pandas writes what W&B exports")
    made = {
        "run.wandb": lambda: next(offline.glob("wandb/offline-run-*/run-*.wandb")).read_bytes(),
        "trainer_state.json": lambda: json.dumps(
            {"log_history": logged(), "max_steps": 3}
        ).encode(),
    }
    whole = made[name]() if name in made else TABLES[name](logged()).encode()
    dice = np.random.default_rng(0)
    for _ in range(30):
        at, length = dice.integers(len(whole)), dice.integers(1, 30)
        (tmp_path / name).write_bytes(
            whole[:at] + dice.bytes(length) + whole[at + int(dice.integers(60)) :]
        )
        with suppress(DataError):
            assert read(tmp_path / name).logged_steps > 0


def test_a_folder_without_records_and_one_with_many(tmp_path):
    for name in ("config.json", "tokenizer.json", "generation_config.json"):
        (tmp_path / name).write_text('{"model_type": "llama", "temperature": 0.6}')
    with pytest.raises(DataError, match=f"{re.escape(str(tmp_path))} .*no record"):
        read(tmp_path)
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(as_csv(logged()))
    with pytest.raises(DataError, match=r"2 tables: a\.csv, b\.csv"):
        read(tmp_path)
    assert read(tmp_path / "a.csv").settings == {}, (
        "a model's own configuration is none of the trainer's"
    )


def test_a_folder_of_runs_has_a_line_for_each(tmp_path, plumbline):
    for name in ("a", "b c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.csv").write_text(
            as_csv(logged("learning_rate" if name == "a" else ""))
        )
        if name == "a":
            assert read(tmp_path).logged_steps == read(tmp_path / "a").logged_steps, (
                "the only run is read"
            )
    with pytest.raises(DataError, match="2 folders with a run: a, b c") as caught:
        read(tmp_path)
    assert f"plumbline check {tmp_path}/a; plumbline check '{tmp_path}/b c'" in str(
        caught.value.fix
    )
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "metrics.csv").write_text("")
    code, out, _ = plumbline("check", tmp_path)
    *lines, _ = out.splitlines()
    assert [line.split()[:2] for line in lines] == [["fatal", "a"], ["clear", "b"], ["error", "c"]]
    assert (code, "rate-exhausted" in lines[0], "rose" in lines[1], "empty" in lines[2]) == (
        1,
        True,
        True,
        True,
    )
    assert plumbline("check", tmp_path, "--completions", tmp_path / "c" / "metrics.csv")[0] == 1
    _, out, _ = plumbline("check", tmp_path, "--json")
    runs = json.loads(out)["runs"]
    assert [runs["a"]["fatal"], runs["b c"]["fatal"], set(runs["c"])] == [
        True,
        False,
        {"error", "fix"},
    ]


def test_a_log_hides_no_run_that_lies_in_a_folder_beside_it(tmp_path):
    states = tmp_path / "first" / "trainer_state.json"
    states.parent.mkdir()
    shutil.copy(LOGS / "trl-grpo-zero" / "trainer_state.json", states)
    for names in (["verl-zero.log"], ["verl-zero.log", "verl-healthy.log"]):
        for name in names:
            shutil.copy(LOGS / name, tmp_path / name)
        assert sorted(read_runs(tmp_path)) == sorted(["first", *names])
    shutil.copy(LOGS / "verl-zero.log", states.parent)
    assert list(read_runs(states.parent)) == [""], "a log in a run's folder is of that run"


def test_the_last_value_of_each_metric_is_one_row(tmp_path):
    (tmp_path / "wandb-summary.json").write_text(
        '{"_step": 9, "train/reward": 0.5, "train/loss": "NaN", "_wandb": {}}'
    )
    history = read(tmp_path / "wandb-summary.json")
    assert history["reward"].values.tolist() == [0.5]


def test_a_run_of_plumbline_by_the_file_of_its_metrics(tmp_path):
    (tmp_path / "recipe.yaml").write_text("rl: {steps: 9}\n")
    rows = [{"stage": "rl", "step": step, "train/reward": 0.5} for step in range(1, 4)]
    write_jsonl(tmp_path / "metrics.jsonl", rows)
    assert read(tmp_path).origin == read(tmp_path / "metrics.jsonl").origin == "plumbline"


def test_a_counter_of_whole_epochs_is_no_share_of_one(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        "\n".join(json.dumps({**row, "epoch": 0}) for row in logged())
    )
    assert not len(read(tmp_path)["epoch"])
    assert_found(read(tmp_path), "")


BESIDE = yaml.safe_load((HERE / "beside_a_log.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("what", BESIDE)
def test_settings_of_what_lies_beside_a_log(tmp_path, what):
    for name, text in BESIDE[what]["files"].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "checkpoint-9").mkdir(exist_ok=True)
    state = {
        "log_history": [{**row, "step": row["train/global_step"]} for row in logged()],
        "max_steps": STEPS,
    }
    (tmp_path / "checkpoint-9" / "trainer_state.json").write_text(json.dumps(state))
    assert read(tmp_path).settings == {"steps": STEPS, **BESIDE[what]["settings"]}


class Runs:
    """What would run if a pickle of it were opened as one."""

    def __reduce__(self):
        return os.mkdir, ("opened",)


def test_options_that_were_pickled_are_read_and_never_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trl = pytest.importorskip("trl")
    torch = pytest.importorskip("torch")
    options = trl.GRPOConfig(
        output_dir="out",
        bf16=False,
        beta=0.04,
        top_p=0.95,
        generation_kwargs={"temperature": 0.7},
        learning_rate=3e-6,
    )
    path = tmp_path / "training_args.bin"
    torch.save(options, path)
    wanted = {
        "rl.beta": 0.04,
        "sampling.top_p": 0.95,
        "drawn.temperature": 0.7,
        "rl.optimiser.learning_rate": 3e-6,
        "correction": True,
        "engine": False,
    }
    found = map_settings(read_pickled_options(path))
    assert wanted.items() <= found.items()
    options.hub_token = Runs()
    torch.save(options, path)
    assert wanted.items() <= map_settings(read_pickled_options(path)).items()
    assert not (tmp_path / "opened").exists()


def test_other_files_under_the_name_of_pickled_options(tmp_path):
    path = tmp_path / "training_args.bin"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 6000\n")
    assert read_pickled_options(path) == {}
    own = b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01h\x00sb."  # a dictionary that holds itself
    for data in (own, b"\x80\x02b.", b"\x80\x022.", b"", b"\x80\x02]" + b"2" * 9):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a/data.pkl", data)
        with suppress(DataError):
            assert read_pickled_options(path) in ({}, {"a": {}})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", pickle.dumps("x" * 2**21))
    with pytest.raises(DataError):
        read_pickled_options(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", pickle.dumps(list(range(5000))))
    whole = path.read_bytes()
    for damaged in (whole[:60] + bytes(range(60)) + whole[120:], whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with suppress(DataError):
            assert read_pickled_options(path) == {}  # no archive any more


def test_completions_of_verl_and_of_swift(tmp_path):
    (tmp_path / "metrics.csv").write_text(as_csv(logged()))
    lines = [{"input": "p", "output": f"answer {n}", "score": 0.5, "step": 7} for n in range(4)]
    (tmp_path / "completions").mkdir()
    (tmp_path / "completions" / "7.jsonl").write_text(
        "\n".join(map(json.dumps, lines)) + '\n{"input": "p", "out'
    )
    fourth = read(tmp_path).samples[3]
    assert (fourth.step, fourth.prompt, fourth.text, fourth.reward) == (7, "p", "answer 3", 0.5)
    columns = {
        "prompt": ["p", "p"],
        "completion": ["a", "b"],
        "right": [0.5, 1.0],
        "advantages": [-1, 1],
    }
    columns["step"] = ["3", "3"]
    (tmp_path / "completions" / "7.jsonl").write_text(json.dumps(columns) + "\n")
    assert [(one.step, one.text, one.reward) for one in read(tmp_path).samples] == [
        (3, "a", 0.5),
        (3, "b", 1.0),
    ]
    write_jsonl(tmp_path / "completions" / "8.jsonl", lines)
    # a file a step is one run
    assert read(tmp_path / "completions")["reward"].steps.tolist() == [3, 7]


# One answer, its prompt, reward 0.75 of the parts form 1 and right 0.5, at step 7, as people write
# it.
CHAT = [
    {"role": "user", "content": "what is it"},
    {"role": "assistant", "content": [{"text": "it is"}]},
]
PARTS = {"form": 1.0, "right": 0.5}
ASKED = {"prompt": "what is it", "completion": "it is", "step": 7}
LAYOUTS = {
    "id beside prompt": {**ASKED, "id": "row-3", "reward": 0.75, **PARTS},
    "nested": {**ASKED, "rewards": PARTS, "reward": 0.75},
    "nested with total": {**ASKED, "rewards": {**PARTS, "total": 0.75}},
    "components": {**ASKED, "reward": 0.75, "reward_components": {"form": True, "right": "0.5"}},
    "paths": {**ASKED, "score": 0.75, "rewards/form": 1.0, "rewards/right/mean": 0.5},
    "capitals": {"Step": 7, "Question": "what is it", "Response": "it is", "Reward": 0.75, **PARTS},
    "messages": {
        "prompt": CHAT[:1],
        "completion": CHAT[1:],
        "global_step": 7,
        "reward": 0.75,
        "scores": PARTS,
    },
    "one chat": {"messages": CHAT, "step": 7, "reward": 0.75, "metrics": PARTS},
    "verl": {
        "input": "what is it",
        "output": "it is",
        "gts": "it",
        "score": 0.75,
        "step": 7,
        **PARTS,
    },
    "verifiers": {
        "example_id": 3,
        "prompt": CHAT[:1],
        "completion": CHAT[1:],
        "reward": 0.75,
        "step": 7,
        **PARTS,
    },
    "a prompt a row": {
        "problem": "what is it",
        "completions": ["it is"] * 2,
        "rewards": [0.75] * 2,
        "scores": {"form": [1.0] * 2, "right": [0.5] * 2},
        "step": 7,
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_completions_in_the_layouts_that_people_write(tmp_path, layout):
    rows = [{**row, "train/rewards/form": 0.4, "train/rewards/right": 0.4} for row in logged()]
    (tmp_path / "metrics.csv").write_text(as_csv(rows))
    (tmp_path / "completions.jsonl").write_text(json.dumps(LAYOUTS[layout]) + "\n")
    history = read(tmp_path)
    first = history.samples[0]
    assert (first.step, first.prompt, first.text, first.reward) == (7, "what is it", "it is", 0.75)
    assert (first.parts, history.remarks) == (PARTS, ())
    assert not {"samples", "prompts"} & set(history.logs)
    with pytest.raises(DataError, match="there is no"):
        read_histories(tmp_path, tmp_path / "elsewhere.jsonl")


def test_empty_and_odd_answers_of_a_csv_are_answers(tmp_path):
    texts = ["red", "", "a\x85b\x0bc\u2028d", "two\nlines", "nan", "7"]
    table = io.StringIO(newline="")
    out = csv.writer(table)
    out.writerow(["step", "prompt", "completion", "reward"])
    out.writerows([7, "what is it", text, 0.5] for text in texts)
    (tmp_path / "completions.csv").write_text(table.getvalue(), newline="")
    (tmp_path / "metrics.csv").write_text(as_csv(logged()))
    history = read(tmp_path)
    assert [one.text for one in history.samples] == texts
    assert {(one.step, one.reward) for one in history.samples} == {(7, 0.5)}


@pytest.mark.parametrize(
    ("more", "loss", "kind"),
    [
        ({}, 2.0, "sft"),
        ({}, 0.01, "rl"),
        ({"value_loss": 0.1}, 2.0, "rl"),
        ({"reward_mean": 0.4}, 2.0, "rl"),
    ],
)
def test_a_loss_far_above_0_without_a_reward_is_a_cross_entropy(tmp_path, more, loss, kind):
    (tmp_path / "metrics.jsonl").write_text(
        "\n".join(
            json.dumps({"step": n, "policy_loss": loss - 0.001 * n, "grad_norm": 1.0, **more})
            for n in range(1, 9)
        )
    )
    assert read(tmp_path).kind == kind


def test_completions_and_tables_that_are_nested_without_end(tmp_path):
    deep = "[" * 900 + "]" * 900
    inner = '{"content": ' * 400 + "1" + "}" * 400
    for column in (
        "completion",
        "prompt",
        "rewards",
        "task",
        "config",
        "split",
        "metrics",
        "rewards/x",
    ):
        row = {"prompt": "p", "completion": "c", "reward": 1, "step": 1, "loss": 0.5, column: 0}
        for value in (deep, inner):
            text = json.dumps(row).replace(f'"{column}": 0', f'"{column}": {value}') + "\n"
            for name in ("completions.jsonl", "metrics.jsonl"):
                (tmp_path / name).write_text(text * 2)
            assert read(tmp_path).logged_steps == 1


def test_what_completions_lack_is_said_with_their_columns(tmp_path):
    rows = [{**row, "rewards/form": 0.4} for row in logged()]
    (tmp_path / "metrics.csv").write_text(as_csv(rows))
    (tmp_path / "completions.csv").write_text("text;points;asked\n1,5 apples;1;how many\n")
    history = read(tmp_path)
    assert history.samples[0].text == "1,5 apples"
    (remark,) = history.remarks
    for word in ("no prompt", "no reward", "no step", "form)", "text, points, asked"):
        assert word in remark
    (tmp_path / "completions.csv").write_text("said\nyes\n")
    (remark,) = read(tmp_path).remarks
    assert re.search(r"completions\.csv: row 1\b.* completion\b", remark)


def write_parquet(folder):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder.mkdir()
    for step in range(10, 40, 10):
        rows = [
            {
                "step": step,
                "prompt": f"p {n // 4}",
                "completion": "c",
                "form": n % 2,
                "right": 0.5,
                "advantage": 0.0,
            }
            for n in range(8)
        ]
        parquet.write_table(
            pyarrow.Table.from_pylist(rows), folder / f"completions_{step:05}.parquet"
        )


def test_parquet_without_pyarrow_costs_its_own_checks_alone(tmp_path, monkeypatch, plumbline):
    rows = [{"step": row["train/global_step"], **row} for row in logged("learning_rate")]
    (tmp_path / "trainer_state.json").write_text(
        json.dumps({"log_history": rows, "global_step": 120})
    )
    write_parquet(tmp_path / "completions")
    (history,) = read_histories(tmp_path)
    assert (len(history.samples), history.remarks) == (24, ())
    monkeypatch.setattr(
        "plumbline.config.imports.find_spec", lambda name: None if name == "pyarrow" else name
    )
    for more in ([], ["--completions", tmp_path / "completions"]):
        _, out, err = plumbline("check", tmp_path, *more)
        assert "rate-exhausted" in out, err
        assert out.count("uv tool install . --with pyarrow") == 1
        assert "log_completions" not in out


def test_completions_without_a_log_allow_the_checks_that_they_can(tmp_path):
    (tmp_path / "README.md").write_text("# mine")
    with pytest.raises(DataError, match="no record") as caught:
        read(tmp_path)
    assert "save_steps" in caught.value.fix
    write_parquet(tmp_path / "completions")
    for place in (
        tmp_path,
        tmp_path / "completions",
        tmp_path / "completions" / "completions_00010.parquet",
    ):
        history = read(place)
        assert set(history.series) == {"reward", "reward_std", "reward/form", "reward/right"}
        assert history["reward"].values[0] == 1.0
        assert "save_steps" in history.remarks[0]
    rows = [{"prompt": "p", "response": "3", "reward": 0.5, "step": n // 2} for n in range(8)]
    write_jsonl(tmp_path / "samples.jsonl", rows)
    history = read(tmp_path / "samples.jsonl")
    assert (history.origin, len(history.samples), history.logged_steps) == ("completions", 8, 4)
    (tmp_path / "samples.jsonl").write_text('{"prompt": "p", "response": "3"}\n')
    with pytest.raises(DataError, match=r"samples\.jsonl .*: prompt, response\b"):
        read(tmp_path / "samples.jsonl")


# How series are counted otherwise than here, and levels of columns that mislead.
OTHERWISE = {
    "step": lambda run: run["reward"].steps,
    "mixed": lambda run: 1 - run["frac_reward_zero_std"].values,
    "whole": lambda run: 1 - run["frac_truncated"].values,
    "ratio": lambda run: np.exp(run["logprob_gap"].values),
    "std": lambda run: 0.2 + run["clip_fraction"].values,
    "ppo_kl": lambda run: 30 * run["kl"].values,
}
LEVELS = {
    "nan": math.nan,
    "0": 0.0,
    "2": 2.0,
    "3": 3.0,
    "0.005": 5e-3,
    "0.003": 3e-3,
    "0.002": 2e-3,
}
NAMES = yaml.safe_load((HERE / "names_of_trainers.yaml").read_text(encoding="utf-8"))
DEFAULTS, TRAINERS, KINDS = NAMES["defaults"], NAMES["healthy"], NAMES["kinds"]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_healthy_run_under_each_trainers_names(tmp_path, trainer):
    run, columns = healthy(3), {}
    for pair in TRAINERS[trainer].split():
        theirs, _, ours = pair.rpartition(":")
        if ours in LEVELS:
            columns[theirs] = np.full(120, LEVELS[ours])
        else:
            columns[theirs] = OTHERWISE[ours](run) if ours in OTHERWISE else run[ours].values

    def written():
        rows = [
            dict(zip(columns, map(float, values), strict=True))
            for values in zip(*columns.values(), strict=True)
        ]
        (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return read(tmp_path)

    history = written()
    assert said(history) == []
    named = {pair.rpartition(":")[2] for pair in TRAINERS[trainer].split()}
    for ours in named - {*LEVELS, *OTHERWISE} | {"reward"}:
        assert history[ours].values == pytest.approx(run[ours].values)
    for name in ("logprob_gap", "frac_reward_zero_std", "frac_truncated"):
        assert not len(history[name]) or history[name].values == pytest.approx(run[name].values)
    rate = next(
        pair for pair in TRAINERS[trainer].split() if pair.endswith(":learning_rate")
    ).removesuffix(":learning_rate")
    columns[rate][70:] = 0
    assert said(written()) == [("rate-exhausted", "fatal")]


@pytest.mark.parametrize("trainer", DEFAULTS)
def test_default_names_of_each_trainer(trainer):
    for pair in DEFAULTS[trainer].split():
        theirs, _, ours = pair.rpartition(":")
        theirs = theirs.replace("_/_", " / ").replace("._", ". ")  # blanks
        assert find_series_name(theirs) == (ours or None), theirs


LOSS = {"loss": 0.0001, "grad_norm": 0.3, "learning_rate": 1e-6}


@pytest.mark.parametrize("what", KINDS)
def test_columns_decide_the_kind_whether_they_are_read_or_not(tmp_path, what):
    more, kind = KINDS[what]
    (tmp_path / "metrics.jsonl").write_text(
        "\n".join(json.dumps({"step": n, **LOSS, **more}) for n in range(1, 9))
    )
    history = read(tmp_path)
    assert history.kind == kind
    assert kind == "rl" or not {
        name for name in history.series if name.startswith(("reward", "part"))
    }
    pairs = history.names("preference/") if kind == "sft" else []
    assert history.name == ("preference" if pairs else kind)
    assert "accuracy" in pairs or not pairs or not any("accura" in name for name in more)


def test_of_two_names_the_better_is_read_and_shares_are_turned(tmp_path):
    row = {
        "critic/rewards/mean": 0.1,
        "critic/score/mean": 0.4,
        "val/stop_rate": 0.9,
        "token_mult_prob_error": 1.02,
    }
    rows = [{"step": n, **row} for n in range(1, 30)]
    write_jsonl(tmp_path / "metrics.jsonl", rows)
    history = read(tmp_path)
    assert set(history["reward"].values) == {0.4}
    assert history["frac_truncated"].values == pytest.approx([0.1] * 29)
    assert history["logprob_gap"].values == pytest.approx([math.log(1.02)] * 29)


@pytest.mark.parametrize(
    ("column", "told", "more"),
    [
        ("frac_reward_zero_std", "num_generations", "log_completions=True"),
        ("train/frac_reward_zero_std", "num_generations", "log_completions=True"),
        ("actor/entropy", "actor_rollout_ref.rollout.n", "trainer.rollout_data_dir=DIR"),
        ("entropy", "the answers a prompt", "--completions FILE"),
    ],
)
def test_an_answer_is_in_the_words_of_the_trainer_and_notes_are_shown_where_asked_for(
    tmp_path, column, told, more
):
    dice = np.random.default_rng(0)
    rows = [
        {"step": n, "reward": 0.4 + 0.05 * dice.standard_normal(), column: 0.9} for n in range(60)
    ]
    write_jsonl(tmp_path / "metrics.jsonl", rows)
    (history,) = read_histories(tmp_path)
    few = Finding(
        level="note",
        code="too-hard",
        evidence={"steps": 10, "share": 0.9},
        change={"rl.group_size": 8, "rl.patience": 1},
    )
    check = Check(name="zero-variance-groups", look=lambda _: iter([few]), moments=("after",))
    (theirs,) = examine(history, [check]).findings
    assert list(theirs.change) == [told]
    assert theirs.fix.startswith(f"raise {told}")
    examined = examine(history, CHECKS)
    quiet, loud = (
        " ".join(map(str, render_stages([examined], verbose=verbose))) for verbose in (False, True)
    )
    assert more in quiet
    assert ["note: " in quiet, "-v shows notes" in quiet, "skipped for" in quiet] == [
        False,
        True,
        False,
    ]
    assert ["note: " in loud, "-v shows notes" in loud, "skipped for" in loud] == [
        True,
        False,
        True,
    ]


@pytest.mark.filterwarnings("error")
def test_infinite_rewards_are_read_without_a_warning():
    stored = [Sample(1, "a", "x", value, parts={"p": value}) for value in (0.5, math.inf)]
    found = mean_series(stored)
    assert found["reward"].values == found["reward/p"].values == math.inf
    assert math.isnan(found["reward_std"].values[0])


@pytest.mark.parametrize(
    ("second", "runs"),
    [
        (range(10, 601, 10), 2),
        (range(5, 300, 5), 2),
        (range(205, 400, 5), 1),
        (range(50, 400, 5), 1),
    ],
)
def test_a_stage_that_begins_again_is_a_run_and_a_resumed_one_is_not(second, runs):
    steps = [*map(float, [*range(5, 301, 5), *second])]
    assert (
        len(split_at_restarts([{"step": step} for step in steps], lambda row: row["step"])) == runs
    )
