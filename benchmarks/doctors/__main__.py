"""Runs whose state is known, and what eight doctors say of each of them.

    python -m benchmarks.doctors TOOLS --install [--from NAME=PATH]   # an environment for each doctor
    python -m benchmarks.doctors FOLDER --tools TOOLS                 # the table, also FOLDER/table.md

Whose state is known:
    planted    runs of TRL and of our trainer, healthy and with one fault each (faults.yaml)     FOLDER/runs
    seeds      the same from other seeds                                                         FOLDER/seeds
    stranger   the same by somebody who had not read the checks (stranger.yaml)                  FOLDER/stranger
    stranger-seeds   these from other seeds                                                FOLDER/stranger-seeds
    hacked     runs that learn to cheat with sound twins (cheats.yaml), once more with a column
               of what is right                                                                 FOLDER/hacked
    scenarios  what the doctors themselves publish (scenarios.py, tools.yaml)                    FOLDER/scenarios
    public     logs of public repositories (public.yaml)                                         FOLDER/public

What FOLDER has not is trained, written or fetched; what lies elsewhere, `--runs SET=PATH` names, and
none of it is made. What a doctor said of a run already is not asked again. So the command can be
stopped and started again. Ours is asked anew each time. `--page FILE` has the table put between the
marks of a page. The rule of judgement: tools.yaml and table.py.
"""

import argparse
import hashlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import Pool
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# two threads on tiny matrices wait for each other more than they work
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import yaml

from benchmarks.doctors.job import Job
from benchmarks.doctors.look import Case, Seen, list_scenarios, list_told, look
from benchmarks.doctors.table import FOLDER as HERE
from benchmarks.doctors.table import OURS, TOOLS, put_into_page, write_rows, write_table

MADE = {
    "planted": ("runs", ("trl_jobs", "our_jobs"), "faults.yaml", 0),
    "seeds": ("seeds", ("trl_jobs", "our_jobs"), "faults.yaml", 300),
    "stranger": ("stranger", ("stranger",), "stranger.yaml", 0),
    "stranger-seeds": ("stranger-seeds", ("stranger",), "stranger.yaml", 1),
    "hacked": ("hacked", ("cheats",), "cheats.yaml", 0),
}
"""Sets of runs that are trained: folder, modules with `jobs(models, more)`, labels, what is added to
every seed."""
SETS = (*MADE, "scenarios", "public")
RAW = "https://raw.githubusercontent.com"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tools", type=Path, help="environments of the others; else ours alone")
    parser.add_argument("--install", action="store_true", help="make these environments in FOLDER")
    parser.add_argument(
        "--from",
        dest="sources",
        nargs="+",
        default=[],
        metavar="NAME=PATH",
        help="install a doctor's own package from a folder",
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--runs", nargs="+", default=[], metavar="SET=PATH", help="where they lie")
    parser.add_argument("--page", type=Path, help="a page with the marks of the table")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="runs whose names contain one of these"
    )
    parser.add_argument(
        "--seeds-from", type=int, default=0, metavar="N", help="add N to every seed"
    )
    parser.add_argument("--list", action="store_true", help="name the runs and make none")
    arguments = parser.parse_args()
    if arguments.install:
        _install(arguments.folder, dict(one.split("=", 1) for one in arguments.sources))
        return
    try:
        _judge_all(arguments)
    except KeyboardInterrupt:
        sys.exit("stopped; the same command continues from here")


def _judge_all(arguments: argparse.Namespace) -> None:
    arguments.runs = {
        name: Path(path) for name, path in (one.split("=", 1) for one in arguments.runs)
    }
    if unknown := arguments.runs.keys() - set(SETS):
        sys.exit(f"--runs: no set {', '.join(unknown)}")
    began, failed = time.perf_counter(), dict[str, str]()
    cases = [
        case
        for name in arguments.sets
        for case in _list_cases(name, arguments, failed)
        if not arguments.only or any(part in case.key for part in arguments.only)
    ]
    if arguments.list:
        print("\n".join(case.key for case in cases))
        return
    seen = _look_at_all(cases, arguments.folder)
    idle = [
        one.key for one in cases if one.must_learn and not one.label and not seen[one.key].learnt
    ]
    cases = [case for case in cases if case.key not in idle]
    answers: dict[str, Mapping[str, Any]] = {OURS: {name: one.answer for name, one in seen.items()}}
    for tool in TOOLS:
        if tool != OURS and arguments.tools is not None:
            answers[tool] = _ask(tool, cases, arguments)
    table = list(write_table(cases, answers))
    lines = [*table, "", *write_rows(cases, answers)]
    if idle:
        lines.append(f"without a fault, did not learn, and count as neither: {', '.join(idle)}")
    (arguments.folder / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    if arguments.page:
        put_into_page(table, arguments.page)
    print(f"\n{(time.perf_counter() - began) / 60:.1f} minutes", file=sys.stderr)
    if failed:
        sys.exit(f"{len(failed)} runs could not be made: {failed}")


def _report(*words: Any) -> None:
    print(*words, file=sys.stderr, flush=True)


def _count(what: str, number: int, of: int) -> None:
    """Progress: on a terminal one line that changes, else the last."""
    if number == of or sys.stderr.isatty():
        print(f"\r{what} {number}/{of}", end="\n" * (number == of), file=sys.stderr, flush=True)


def _install(folder: Path, sources: Mapping[str, str]) -> None:
    """An environment for each doctor; those that are there are left as they are."""
    for tool, about in TOOLS.items():
        if tool == OURS or (folder / tool / "done").is_file():
            continue
        _report(f"installing {tool}")
        own, *others = about["packages"]
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder / tool], check=True)
        pip = [folder / tool / "bin" / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, sources.get(tool, own), *others], check=True)
        (folder / tool / "done").touch()


# -- the runs --------------------------------------------------------------------------------------


def _list_cases(name: str, arguments: argparse.Namespace, failed: dict[str, str]) -> Iterator[Case]:
    folder: Path = arguments.folder
    if name == "scenarios":
        for tool, about in TOOLS.items():
            made = folder / "scenarios" / tool
            if "scenarios" not in about or arguments.tools is None:
                continue
            if not made.is_dir():
                half = made.with_name(f"{tool}.half")
                shutil.rmtree(half, ignore_errors=True)
                python = arguments.tools / tool / "bin" / "python"
                subprocess.run(
                    [python, HERE / "scenarios.py", tool, half], check=True, capture_output=True
                )
                half.rename(made)
            yield from list_scenarios(tool, made, about["scenarios"])
    elif name == "public" and (HERE / "public.yaml").is_file():
        for entry in yaml.safe_load((HERE / "public.yaml").read_text()):
            yield from _list_public(entry, arguments.runs.get("public", folder / "public"), failed)
    elif name in MADE and (HERE / MADE[name][2]).is_file():
        yield from _list_made(name, arguments, failed)


def _list_public(entry: Mapping[str, Any], folder: Path, failed: dict[str, str]) -> Iterator[Case]:
    path = folder / entry["id"] / Path(entry["path"]).name
    if not path.is_file():
        try:
            address = f"{RAW}/{entry['repo']}/{entry['commit']}/{entry['path']}"
            with urllib.request.urlopen(address, timeout=60) as page:
                found = page.read()
        except OSError as error:
            failed[entry["id"]] = str(error)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(found)
    yield Case(
        group="public",
        name=entry["id"],
        kind=entry["kind"],
        path=path,
        label={} if entry["judgement"] == "healthy" else {"what": entry["why"], **entry},
        stage=entry.get("stage", ""),
        state=path if path.name == "trainer_state.json" else None,
        known=entry["judgement"] != "unknown",
    )


def _list_made(name: str, arguments: argparse.Namespace, failed: dict[str, str]) -> Iterator[Case]:
    within, modules, labels, more = MADE[name]
    runs = arguments.runs.get(name, arguments.folder / within)
    jobs: list[Job] = []
    for module in modules:
        found = importlib.import_module(f"benchmarks.doctors.{module}")
        jobs += found.jobs(arguments.folder / "models", arguments.seeds_from + more)
    faults = yaml.safe_load((HERE / labels).read_text())
    faults = faults.get("faults", faults)
    if arguments.only:
        jobs = [job for job in jobs if any(part in f"{name}/{job.name}" for part in arguments.only)]
    for number, job in enumerate(jobs, 1):
        folder = runs / job.name
        if name in arguments.runs:
            if not folder.is_dir():
                failed[job.name] = f"{runs} has it not"
                continue
        elif not arguments.list:
            try:
                if (seconds := _make(job, folder)) is not None:
                    _report(f"[{name} {number}/{len(jobs)}] {job.name}: {seconds:.0f} s")
            except Exception as error:  # noqa: BLE001 - the others are made all the same
                failed[job.name] = f"{type(error).__name__}: {error}"
                _report(f"[{name} {number}/{len(jobs)}] {job.name} FAILED: {failed[job.name]}")
                continue
        beside = runs.with_name(f"{runs.name}.states") / f"{job.name}.json"
        states = [one for one in (beside, folder / "trainer_state.json") if one.is_file()]
        case = Case(
            group=name,
            name=job.name,
            kind="rl" if job.stage == "rl" else "sft",
            path=folder,
            label=faults[job.fault] if job.fault else {},
            stage=job.stage,
            state=states[0] if states else None,
            must_learn=True,
        )
        yield case
        truth = folder.with_name(f"{job.name}.truth.jsonl")
        if name == "hacked":
            yield replace(case, group="hacked, told", truth=truth)


def _make(job: Job, folder: Path) -> float | None:
    """Make a run where it is not there, or not to its end, with all that it says in a file; the
    seconds that it took."""
    says = folder.with_name(f"{folder.name}.said.txt")
    if folder.is_dir() and not says.is_file():
        return None
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    with _everything_into(says):
        job.make(folder)
    says.unlink()
    return time.perf_counter() - began


@contextmanager
def _everything_into(path: Path) -> Iterator[None]:
    """Standard output and error of this process, of libraries' loggers and of C too, into a
    file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with path.open("wb") as file:
        try:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, old in enumerate(kept, 1):
                os.dup2(old, number)
                os.close(old)


# -- the doctors -----------------------------------------------------------------------------------


def _look_at_all(cases: Sequence[Case], folder: Path) -> dict[str, Seen]:
    seen = {}
    todo = [(case, folder / "told" / case.key) for case in cases]
    # Ctrl-C is the parent's, which ends them
    with Pool(initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
        for number, (key, one) in enumerate(pool.imap_unordered(_look, todo), 1):
            seen[key] = one
            _count("examined", number, len(cases))
    return seen


def _look(todo: tuple[Case, Path]) -> tuple[str, Seen]:
    return todo[0].key, look(*todo)


def _ask(tool: str, cases: Sequence[Case], arguments: argparse.Namespace) -> dict[str, Any]:
    """What a doctor says of all runs that we could read; answers are kept as they come."""
    folder: Path = arguments.folder
    path = folder / "said" / f"{tool}.jsonl"
    path.parent.mkdir(exist_ok=True)
    lines = path.read_text().splitlines() if path.is_file() else ()
    kept = {(one["name"], one["of"]): one for one in map(json.loads, lines)}
    answers: dict[str, Any] = {}
    todo: dict[str, tuple[str, dict[str, str]]] = {}
    for case in cases:
        told = list_told(case, folder / "told" / case.key)
        if case.maker == tool:
            told["own"] = str(next(case.path.parent.glob("own*")))
        if not (Path(told["folder"]) / "trainer_state.json").is_file():
            answers[case.key] = {"found": None}
            continue
        digest = hashlib.sha256((HERE / "ask.py").read_bytes() + json.dumps(told).encode())
        for one in sorted(Path(told["folder"]).iterdir()):
            digest.update(one.read_bytes())
        of = digest.hexdigest()[:16]
        if (case.key, of) in kept:
            answers[case.key] = kept[case.key, of]
        else:
            todo[case.key] = of, told
    if not todo:
        return answers
    asked = folder / "said" / f"{tool}.ask"
    asked.write_text("".join(json.dumps(told) + "\n" for _, told in todo.values()))
    with asked.open() as questions, path.open("a") as file:
        command = [arguments.tools / tool / "bin" / "python", HERE / "ask.py", tool]
        with subprocess.Popen(
            command, stdin=questions, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            for number, line in enumerate(process.stdout, 1):
                answer = json.loads(line)
                answers[answer["name"]] = answer | {"of": todo[answer["name"]][0]}
                file.write(json.dumps(answers[answer["name"]]) + "\n")
                file.flush()
                _count(tool, number, len(todo))
    for name in todo:  # one that ends the process ends what comes after it
        answers.setdefault(name, {"found": [], "crash": "the process ended"})
    return answers


if __name__ == "__main__":
    main()
