"""Nobody's code runs unasked: what the user typed runs; what a file names runs only if it is
installed for Plumbline, or with --trust-code. Whatever code of a file's runs here, it leaves a
mark."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

import plumbline as api
from plumbline.config import imports
from plumbline.errors import RecipeError, UntrustedCodeError
from plumbline.recipe import load_recipe
from plumbline.storage import write_jsonl

PAYLOAD = """
import pathlib
from plumbline.recipe import FamilyOptions
pathlib.Path({mark!r}).touch()
def open(options, folder, progress):
    raise RuntimeError("it was opened")
def score(completion, answer=""):
    return float(completion == answer)
class Policy:
    options = FamilyOptions()
    def open(section, source, seed):
        raise RuntimeError("it was opened")
"""
FORMS = {
    "name": "forms",
    "options": {
        "forms": ["vpn-access", "library-card"],
        "held_out": ["library-card"],
        "records": 20,
    },
}
SETTINGS = {"sft": {"steps": 2}, "evaluation": {"every": 0, "final": ["val"]}}
PLAIN = {"model": {"tiny": {}}, **SETTINGS}


@pytest.fixture(autouse=True)
def no_consent(monkeypatch):
    monkeypatch.setenv(imports.CONSENT, "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(imports, "_read", {})


@pytest.fixture(scope="module")
def somebody(tmp_path_factory, tiny_folder):
    """What somebody sent: models whose cards name code, recipes, a run; all of it in the working
    directory."""
    folder = tmp_path_factory.mktemp("somebody")
    write_jsonl(
        folder / "rows.jsonl", [{"prompt": f"q {n}", "answer": f"a {n}"} for n in range(30)]
    )
    for name in ("nice", "family", "scorer", "remote", "checkout", "config"):
        shutil.copytree(tiny_folder, folder / "models" / name)
        (folder / "models" / name / "payload.py").write_text(
            PAYLOAD.format(mark=str(folder / "RAN"))
        )
    config = json.loads((folder / "models/config/config.json").read_text())
    settled = {"plumbline": {"family": "models.config.payload:Policy"}}
    (folder / "models/config/config.json").write_text(json.dumps(config | settled))
    (folder / "models/checkout/app.py").write_text(PAYLOAD.format(mark=str(folder / "RAN")))
    (folder / "payload.py").write_text(PAYLOAD.format(mark=str(folder / "RAN")))
    rows = {"train": str(folder / "rows.jsonl"), "gold": "answer"}
    for name, task, options, model in (
        ("nice", "models.nice.payload:open", {}, {}),
        ("family", "forms", {}, {"family": "models.family.payload:Policy"}),
        ("scorer", "jsonl", {**rows, "score": "models.scorer.payload:score"}, {}),
        ("remote", "forms", {}, {"trust_remote_code": True}),
        ("checkout", "forms", {"suite": "formfactory", "path": "models/checkout"}, {}),
    ):
        card = {
            "recipe": "x 0",
            "stage": "rl",
            "task": task,
            "options": options,
            "trained_on": "",
            "model": model,
        }
        (folder / "models" / name / "plumbline.json").write_text(json.dumps(card))
    for name, values in {
        "task": {**PLAIN, "task": {"name": "payload:open"}},
        "score": {
            **PLAIN,
            "task": {"name": "jsonl", "options": {**rows, "score": "payload:score"}},
        },
        "family": {
            **SETTINGS,
            "model": {"name": str(tiny_folder), "family": "payload:Policy", "sharp": 2},
            "task": FORMS,
        },
        "remote": {
            **SETTINGS,
            "model": {"name": "models/remote", "trust_remote_code": True},
            "task": FORMS,
        },
        "engine": {**PLAIN, "task": FORMS, "engine": {"name": "vllm", "python": "./payload.py"}},
    }.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({"name": name, **values}))
    run = folder / "got" / "run"
    shutil.copytree(folder / "models" / "nice", run / "models" / "rl")
    shutil.copy(folder / "payload.py", run)
    (run / ".plumbline").write_text("run\n")
    (run / "recipe.yaml").write_text(
        yaml.safe_dump({"name": "got", **PLAIN, "task": {"name": "got.run.payload:open"}})
    )
    return folder


@pytest.fixture
def there(somebody, monkeypatch):
    monkeypatch.chdir(somebody)
    before = {*sys.modules}
    yield somebody
    (somebody / "RAN").unlink(missing_ok=True)
    for name in {*sys.modules} - before:
        if name.partition(".")[0] in {"payload", "models", "got", "mixed"}:
            del sys.modules[name]


LOOKS = """
recipe family.yaml
recipe diff family.yaml commerce-tiny
recipe task.yaml
recipe got/run/recipe.yaml
check family.yaml
check task.yaml
check score.yaml
check remote.yaml
check engine.yaml
run score.yaml --dry-run --out new
run task.yaml --dry-run --out new
run family.yaml --dry-run --out new
run got/run/recipe.yaml --dry-run --resume --out got/run
report got/run
check got/run
runs got
compare got/run got/run
decide got/run --tree commerce-v4.1
route got/run
"""
RUNS = """
run task.yaml --out new
run score.yaml --out new
run family.yaml --out new
run remote.yaml --out new
run engine.yaml --out new
run got/run/recipe.yaml --out got/run --resume
sweep score.yaml --seeds 1,2 --out new
audit task.yaml
audit score.yaml
eval oracle --task score.yaml
score --completions rows.jsonl --task score.yaml
eval models/nice --limit 1 --max-tokens 2
eval models/family --limit 1 --max-tokens 2 --task forms
eval models/scorer --limit 1 --max-tokens 2
eval models/remote --limit 1 --max-tokens 2
eval models/checkout --limit 1 --max-tokens 2
eval got/run/models/rl --limit 1 --max-tokens 2
export models/family --out new
export models/nice --out new --evaluate 2
eval models/config --limit 1 --max-tokens 2 --task forms
serve models/family
"""


@pytest.mark.parametrize("line", LOOKS.strip().splitlines())
def test_looking_runs_nothing(line, there, plumbline):
    _, _, err = plumbline(*line.split())
    assert not (there / "RAN").exists()
    assert "Traceback" not in err


@pytest.mark.parametrize("line", RUNS.strip().splitlines())
def test_what_a_file_names_is_refused(line, there, plumbline):
    code, out, err = plumbline(*line.split())
    assert not (there / "RAN").exists()
    assert code == 1, out + err
    said = " ".join(err.split())
    assert "add --trust-code" in said
    assert not (there / "new").exists()
    word = next(
        one for one in line.split() if one.startswith(("models/", "got/")) or one.endswith(".yaml")
    )
    file = (
        word
        if word.endswith(".yaml")
        else f"{word}/{'config' if 'config' in word else 'plumbline'}.json"
    )
    assert f"{file} names" in said.replace(f"{there}/", "")


def test_a_refusal_says_where_the_code_lies(there, plumbline):
    _, _, err = plumbline("eval", "models/nice", "--limit", "1")
    assert f"{there}/models/nice/payload.py; " in " ".join(err.split())


def test_a_recipe_is_checked_as_far_as_it_goes_without_its_code(there, plumbline):
    code, out, _ = plumbline("check", "score.yaml", "--json")
    (stage,) = json.loads(out)["stages"]
    first = next(one for one in stage["findings"] if one["check"] == "code")
    assert (code, first["level"]) == (0, "warning")
    assert re.search(r"score\.yaml names .* payload:score", first["what"])
    assert "--trust-code" in first["fix"]
    assert stage["not_run"]["reward"] == ["--trust-code"]
    assert "24" in " ".join(stage["looked_at"]), "rows are read without the function"
    code, out, _ = plumbline("check", "score.yaml", "--json", "--trust-code")
    assert "reward" not in json.loads(out)["stages"][0]["not_run"]
    assert (there / "RAN").exists()


def test_a_recipe_whose_family_was_not_imported_says_so(there, plumbline):
    _, out, err = plumbline("recipe", "family.yaml")
    assert "sharp: 2" in out
    assert re.fullmatch("note: payload:Policy was not imported, .*\n", err)
    code, _, err = plumbline("recipe", "family.yaml", "--set", "model.family=payload:Policy")
    assert (code, "key model.sharp" in err) == (1, True), (
        "typed, it is imported, and has no such key"
    )


@pytest.mark.parametrize(
    "line",
    [
        "audit score.yaml --trust-code --limit 5",
        "audit payload:score --rows rows.jsonl --set task.options.gold=answer --limit 5",
        "eval oracle --task score.yaml --set task.options.score=payload:score --limit 5",
        (
            "eval oracle --task jsonl --set task.options.train=rows.jsonl --set "
            "task.options.score=payload:score"
        ),
    ],
)
def test_what_is_typed_or_trusted_runs(line, there, plumbline):
    code, out, err = plumbline(*line.split())
    assert (there / "RAN").exists(), out + err
    assert code in {0, 1}, err  # an audit may find something fatal


def test_what_is_typed_consents_to_nothing_else(there, plumbline):
    code, _, err = plumbline(
        "eval", "models/scorer", "--set", "task.options.gold=answer", "--split", "payload:score"
    )
    assert (code, "--trust-code" in err, (there / "RAN").exists()) == (1, True, False)


MIXED = [
    "mixed.yaml:extraction",
    "mixed.yml:extraction",
    "my-mixed.yaml:extraction",
    "mixed.YAML:extraction",
]


@pytest.mark.parametrize("word", MIXED)
@pytest.mark.parametrize(
    "command", ["eval oracle --limit 1 --task", "audit", "score --completions rows.jsonl --task"]
)
def test_a_task_of_a_file_is_no_module(word, command, there, plumbline):
    """Its name is typed, and what the file names it after is not."""
    file, _, task = word.partition(":")
    tasks = {task: {"name": word.removeprefix("my-")}, "other": FORMS}
    (there / file).write_text(yaml.safe_dump({"name": "mixed", **PLAIN, "tasks": tasks}))
    (there / "mixed").mkdir(exist_ok=True)
    text = (there / "payload.py").read_text().replace("def open(", "def extraction(")
    for module in ("yaml", "yml", "YAML"):
        (there / "mixed" / f"{module}.py").write_text(text)
    for _ in range(2):
        code, _, err = plumbline(*command.split(), word)
        assert (code, "Traceback" in err, (there / "RAN").exists()) == (1, False, False)
        imports.trust()  # and it is none for anybody


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("payload:score", ["payload:score"]),
        ("task.options.score=payload:score", ["payload:score"]),
        ("--task=payload:open", ["payload:open"]),
        ("score={right: payload:score, 'form':'payload:open'}", ["payload:score", "payload:open"]),
        ('["payload:score"]', ["payload:score"]),
        ("rewards/payload.py:score", ["rewards.payload:score"]),
        ("mixed-demo:forms", []),
        ("hf://org/my-data:train", []),
        ("http://host:8080/x", []),
        ("dir/x.yaml:task", []),
        ("payload:score-of-it", []),
    ],
)
def test_what_is_typed_is_a_whole_name(word, names):
    imports.note_typed([word])
    noted = os.environ[imports.CONSENT].split("\n")
    assert [one for one in noted if ":" in one and "://" not in one] == names


def test_consent_reaches_jobs_and_workers(there, plumbline, monkeypatch):
    from plumbline.checks.preflight.report import preflight_source
    from plumbline.jobs.job import specify_job
    from plumbline.jobs.package import Examination, refuse_job

    asked = {
        "recipe": "score.yaml",
        "on": "process",
        "overrides": ["task.options.score=payload:score"],
    }
    spec, _ = specify_job(**asked)
    assert "--trust-code" not in spec.command()
    assert "task.options.score=payload:score" in spec.command(), (
        "the job is typed what the user typed"
    )
    findings = preflight_source("score.yaml").findings
    with pytest.raises(api.PlumblineError, match=r"score\.yaml names .* payload:score"):
        refuse_job(Examination(findings=findings, package=None, looked_at=()))
    assert not (there / "RAN").exists()
    monkeypatch.setenv(imports.CONSENT, imports.ALL)
    assert specify_job(**asked)[0].command()[-1] == "--trust-code"


def test_a_worker_of_a_cluster_is_told_what_was_consented_to(there, monkeypatch):
    from plumbline.engines.workers import adopt_home, process_home

    imports.note_typed(["payload:score"])
    home = process_home()
    monkeypatch.setenv(imports.CONSENT, "")
    sys.path.insert(0, str(there))
    adopt_home(home)
    assert imports.is_allowed("payload:score")
    assert str(there) not in sys.path


# -- addresses -------------------------------------------------------------------------------------


@pytest.fixture
def asked(there, monkeypatch):
    """What a server is asked, which the recipes in the working directory name in each place that
    takes an address."""
    found = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            found.append(self.path)
            self.send_error(404)

        do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("PLUMBLINE_CACHE", str(there / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", at)
    monkeypatch.setenv("HF_ENDPOINT", at)
    rows = {"train": str(there / "rows.jsonl"), "gold": "answer", "score": "payload:score"}
    scored = {"name": "jsonl", "options": rows}
    for name, values in {
        "rows": {"task": {"name": "jsonl", "options": {**rows, "train": f"{at}/rows.parquet"}}},
        "test-rows": {
            "task": {"name": "jsonl", "options": {**rows, "test": f"s3::{at}/rows.parquet"}}
        },
        "hub-rows": {"task": {"name": "jsonl", "options": {**rows, "train": "hf://evil/data"}}},
        "model": {"task": scored, "model": {"name": f"{at}/latest/x"}},
        "address": {"task": scored, "engine": {"name": "vllm", "address": at}},
        "place": {"task": scored, "run": {"folder": f"{at}/bucket"}},
    }.items():
        (there / f"at-{name}.yaml").write_text(yaml.safe_dump({"name": name, **PLAIN, **values}))
    run = shutil.copytree(there / "got" / "run", there / "at-run", dirs_exist_ok=True)
    (run / "recipe.yaml").write_text(
        yaml.safe_dump({"name": "got", **PLAIN, "task": FORMS, "model": {"name": f"{at}/x"}})
    )
    yield found
    server.shutdown()


def untold(file, asked, plumbline, *words):
    """What a command says that asks nothing of an address."""
    _, out, err = plumbline(*words)
    assert asked == []
    assert "Traceback" not in err
    said = " ".join((out + err).split())
    if file != "place":  # where a run would go, and nothing is
        assert "because a file says so" in said
        assert "add --trust-code" in said


@pytest.mark.parametrize("file", ["rows", "test-rows", "hub-rows", "model", "address", "place"])
def test_nothing_is_asked_of_an_address_that_a_file_names(file, asked, plumbline):
    untold(file, asked, plumbline, "check", f"at-{file}.yaml")
    untold(file, asked, plumbline, "run", f"at-{file}.yaml", "--dry-run", "--out", "new")
    untold("place", asked, plumbline, "recipe", f"at-{file}.yaml")
    if "rows" in file:
        scored = ("--set", "task.options.score=payload:score")
        untold(file, asked, plumbline, "audit", f"at-{file}.yaml", *scored)
        untold(file, asked, plumbline, "eval", "oracle", "--task", f"at-{file}.yaml", *scored)


def test_an_export_asks_nothing_of_an_address_in_a_runs_recipe(there, asked, plumbline):
    untold("model", asked, plumbline, "export", "at-run/models/rl", "--out", "new")


@pytest.mark.parametrize(
    ("file", "key"),
    [("rows", "task.options.train"), ("model", "model.name"), ("address", "engine.address")],
)
def test_what_is_typed_or_trusted_is_asked(file, key, asked, plumbline, there, monkeypatch):
    value = yaml.safe_load((there / f"at-{file}.yaml").read_text())
    for part in key.split("."):
        value = value[part]
    for words in (("--set", f"{key}={value}"), ("--trust-code",)):
        asked.clear()
        monkeypatch.setenv(imports.CONSENT, "")
        plumbline("check", f"at-{file}.yaml", *words)
        assert asked, words


@pytest.mark.parametrize(
    ("typed", "place", "reached"),
    [
        ("s3://b/runs", "s3://b/runs/x/models/rl", True),
        ("model.name=s3://b/runs/", "s3://b/runs", True),
        ("s3://b/runs", "s3://b/runs-of-others", False),
        ("s3://b/runs", "s3://b", False),
        ("task.options.train=hf://org/data/main:train", "hf://org/data/main:train", True),
        ("{train: 'hf://org/data', test: [\"hf://org/more\"]}", "hf://org/more", True),
        ("hf://org/data", "hf://org/data2", False),
        ("org/data", "hf://org/data", False),
        ("", "http://h/x", False),
        ("http://h/x.parquet", "simplecache::http://h/x.parquet", False),
    ],
)
def test_an_address_that_is_typed_counts_for_what_is_below_it(typed, place, reached):
    imports.note_typed([typed])
    with nullcontext() if reached else pytest.raises(UntrustedCodeError):
        imports.check_reach(place, "rows")


def test_a_run_asks_what_its_recipe_names(asked, plumbline, there):
    for file in ("rows", "model", "address"):
        asked.clear()
        code, _, err = plumbline(
            "run", f"at-{file}.yaml", "--out", "new", "--set", "task.options.score=payload:score"
        )
        assert (code, bool(asked)) == (1, True), err
        assert "--trust-code" not in err


# -- Python ----------------------------------------------------------------------------------------


def test_in_python_arguments_are_typed_and_files_are_not(there):
    with pytest.raises(UntrustedCodeError):
        api.run("score.yaml", out="new", quiet=True)
    assert api.load_recipe("family.yaml").model.sharp == 2
    assert not (there / "RAN").exists()
    with pytest.raises(api.PlumblineError, match=r"key model\.sharp"):
        api.load_recipe("family.yaml", trust_code=True)
    with pytest.raises(UntrustedCodeError):
        api.evaluate("models/family", api.open_task("forms"))
    with pytest.raises(RuntimeError, match="it was opened"):
        api.open_task("payload:open")
    findings = api.dry_run("score.yaml", trust_code=True).findings
    assert "code" not in [one.check for one in findings]
    assert "code" in [one.check for one in api.dry_run("score.yaml").findings], (
        "a consent ends with its call"
    )


# -- installed packages ----------------------------------------------------------------------------


def install(site: Path, name: str, entry_points: str = "", requires: str = "") -> None:
    """A distribution, as pip leaves it."""
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text("def fn(completion):\n    return 1.0\n")
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}")
    (info / "entry_points.txt").write_text(entry_points)
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n")


@pytest.mark.parametrize(
    ("entries", "requires", "allowed"),
    [
        ("[plumbline.tasks]\nmine = {name}:fn\n", "", True),
        ("", "plumbline-rl[train]>=0.1", True),
        ("", "Plumbline_RL", True),
        ("", "plumbline-like>=1", False),
        ("[console_scripts]\nmine = {name}:fn\n", "numpy", False),
    ],
)
def test_a_package_that_declares_plumbline_needs_no_consent(
    entries, requires, allowed, tmp_path, monkeypatch
):
    name = f"installed_{abs(hash((entries, requires)))}"
    install(tmp_path / "site", name, entries.format(name=name), requires)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert imports.is_allowed(f"{name}:fn") is allowed
    assert name not in sys.modules, "nothing is imported to decide it"
    monkeypatch.chdir(tmp_path / "site")
    assert not imports.is_allowed(f"{name}:fn"), (
        "the working directory is no place of installed packages"
    )
    monkeypatch.chdir(tmp_path / "work")
    imports.note_file_text(tmp_path / "site" / "recipe.yaml", "")
    assert not imports.is_allowed(f"{name}:fn"), "nor is the folder of a recipe"


@pytest.mark.parametrize(
    "name", ["os:system", "pandas:read_pickle", "subprocess:run", "numpy:load", "builtins:eval"]
)
def test_other_packages_need_it(name):
    assert not imports.is_allowed(name)


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("plumbline.adapters.verifiers:open_verifiers", True),
        ("plumbline_forms.task:open_forms", True),
        ("plumbline.engines.processes:start_process", False),
        ("plumbline.tasks.jsonl.task:open_jsonl", False),
        ("plumbline:run", False),
        ("plumbline_forms.command:app", False),
        ("plumbline_commerce.task:open_forms", False),
    ],
)
def test_of_ours_what_opens_a_task_needs_none(name, allowed):
    assert imports.is_allowed(name) is allowed


def test_our_own_code_leaves_the_folder_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = [*sys.path]
    assert callable(imports.import_own("plumbline.tasks.jsonl.task:open_jsonl", "task"))
    assert sys.path == before
    (tmp_path / "mine_in_front.py").write_text("fn = 1")
    imports.note_typed(["mine_in_front:fn"])
    assert imports.import_named("mine_in_front:fn", "task") == 1
    assert sys.path == [*before, str(tmp_path)], "the working directory is searched last"


# -- modules in the working directory --------------------------------------------------------------


def in_a_process(*words: str, at: Path) -> subprocess.CompletedProcess:
    """Of its own, without consent."""
    environment = {name: value for name, value in os.environ.items() if name != imports.CONSENT}
    return subprocess.run(
        [sys.executable, *words], cwd=at, capture_output=True, text=True, env=environment
    )


SHADOWS = (
    "profile http transformers selectolax sqlglot statistics timeit cmath email csv zipfile typer "
    "rich yaml torch"
)


@pytest.mark.parametrize(
    "word", [["-m", "plumbline"], ["-c", "from plumbline.cli.main import main; main()"]]
)
def test_a_file_of_the_users_hides_no_module(word, tmp_path):
    for name in SHADOWS.split():
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} of the user')\n")
    if word[0] == "-c":  # a console script has no working directory on its path
        word = ["-P", *word]
    done = in_a_process(
        *word, "eval", "oracle", "--task", "forms", "--limit", "2", "--json", at=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["n"] == 2


def plant(folder: Path) -> Path:
    """Modules in a working directory with names of ours, of the standard library's and of installed
    packages, which must not run; the mark that they leave."""
    mark = folder / "SHADOW"
    for (
        name
    ) in f"{SHADOWS} numpy pydantic sitecustomize usercustomize json plumbline_forms".split():
        (folder / f"{name}.py").write_text(
            f"open({str(mark)!r}, 'a').write('{name} ')\nraise ImportError\n"
        )
    (folder / "plumbline").mkdir()
    (folder / "plumbline/__init__.py").write_text(f"open({str(mark)!r}, 'a').write('plumbline ')\n")
    return mark


def test_a_job_and_its_dry_run_take_no_module_of_the_folder(tmp_path, monkeypatch):
    from plumbline.jobs.job import JobSpec
    from plumbline.jobs.package import _run_dry

    mark = plant(tmp_path)
    monkeypatch.chdir(tmp_path)
    spec = JobSpec(
        id="x", name="x", on="process", recipe="no.yaml", out="runs/x", working_dir=str(tmp_path)
    )
    findings, _ = _run_dry(spec, tmp_path)
    assert "no.yaml" in findings[0].what
    done = in_a_process(*spec.command()[1:], at=tmp_path)
    assert "no.yaml" in done.stderr
    assert not mark.exists()


def test_the_other_process_of_an_audit_takes_no_module_of_the_folder(
    tmp_path, monkeypatch, plumbline
):
    mark = plant(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(f"""
import os
def score(completion, answer):
    with open({str(tmp_path / "RAN")!r}, "a") as file:
        file.write(f"{{os.getpid()}} ")
    return float(completion == answer)
""")
    write_jsonl(
        tmp_path / "rows.jsonl", [{"prompt": f"q {n}", "answer": f"a {n}"} for n in range(12)]
    )
    gold = ("--rows", "rows.jsonl", "--set", "task.options.gold=answer", "--limit", "4")
    _, out, err = plumbline("audit", "mine:score", *gold, "--json")
    assert "Traceback" not in err
    assert "elsewhere" not in [
        one["check"] for one in json.loads(out)["audits"]["jsonl"]["findings"]
    ]
    assert len({*(tmp_path / "RAN").read_text().split()}) == 2, "it judged in both processes"
    assert not mark.exists()
    del sys.modules["mine"]


def test_each_interpreter_that_is_started_leaves_the_folder_alone():
    source = Path(imports.__file__).parents[1]
    flags = [
        flag
        for path in source.rglob("*.py")
        for flag in re.findall(r'\[sys\.executable, "(-\w+)', path.read_text())
    ]
    assert len(flags) >= 4
    assert {*flags} <= {"-P", "-I"}


def test_an_environment_in_the_clone_needs_no_consent(tmp_path):
    """It is installed from there (`pip install -e .`), and the working directory is its own."""
    words = ["data", "commerce", "--orders", "300", "--push", "3", "--out", str(tmp_path / "shop")]
    done = in_a_process("-m", "plumbline", *words, at=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr


# -- cards, adapters -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../../../escaped", "/tmp/escaped", "..", "", "a/b", "a\n", ".hidden"]
)
def test_a_name_of_a_card_is_no_path(name, tiny_folder, tmp_path, monkeypatch, plumbline):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_folder, tmp_path / "model")
    tasks = {name: {"name": "commerce", "options": {"orders": 10}}}
    card = {
        "recipe": "x 0",
        "stage": "rl",
        "task": "",
        "options": {},
        "trained_on": "",
        "tasks": tasks,
    }
    (tmp_path / "model/plumbline.json").write_text(json.dumps(card))
    code, _, err = plumbline("eval", "model", "--limit", "1", "--max-tokens", "2")
    assert (code, "json is damaged" in err) == (1, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


@pytest.mark.parametrize(
    ("evil", "said"),
    [
        ({"megatron_config": {"a": 1}, "megatron_core": "evilmega.core"}, "evilmega.core"),
        (
            {"auto_mapping": {"base_model_class": "Evil", "parent_library": "evilmega.core"}},
            "prompts do not",
        ),
    ],
)
def test_an_adapter_names_no_module(evil, said, tmp_path, monkeypatch, plumbline, tiny_folder):
    from plumbline.policies import open_policy
    from plumbline.policies.autoregressive.options import OPTIONS
    from plumbline.recipe import LoraSection
    from plumbline.runs.metadata import ModelMetadata

    monkeypatch.chdir(tmp_path)
    section = OPTIONS.model(name=str(tiny_folder), lora=LoraSection(rank=2))
    card = ModelMetadata(
        recipe="x 0", stage="rl", task="forms", options=FORMS["options"], model=section.meaning()
    )
    open_policy(section, str(tiny_folder)).save(tmp_path / "adapter", card.to_json())
    config = tmp_path / "adapter/adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **evil}))
    (tmp_path / "evilmega").mkdir()
    (tmp_path / "evilmega/__init__.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'w')\n")
    (tmp_path / "evilmega/core.py").touch()
    monkeypatch.syspath_prepend(tmp_path)  # even where it could be found
    code, _, err = plumbline("eval", "adapter", "--limit", "1", "--max-tokens", "2")
    assert (code, said in err) == (1, True), (
        "peft was asked; a prompt is looked at when the model is open"
    )
    assert not (tmp_path / "RAN").exists()


def test_code_beside_a_recipe_is_found_from_another_folder_with_consent_to_all(
    tmp_path, monkeypatch
):
    for folder in ("recipes", "here"):
        (tmp_path / folder).mkdir()
    options = {"train": "rows.jsonl", "gold": "answer", "score": "code_beside.py:score"}
    recipe = tmp_path / "recipes" / "r.yaml"
    recipe.write_text(
        yaml.safe_dump({"name": "r", "task": {"name": "jsonl", "options": options}, **PLAIN})
    )
    monkeypatch.chdir(tmp_path / "here")
    load_recipe(recipe)

    def score():
        return imports.import_named("code_beside:score", "scoring function")

    with pytest.raises(UntrustedCodeError, match="is not found") as error:
        score()
    assert "beside the recipe" in error.value.fix
    code = tmp_path / "recipes" / "code_beside.py"
    code.write_text(PAYLOAD.format(mark=str(tmp_path / "RAN")))
    with pytest.raises(UntrustedCodeError, match=f"whose code is {code}"):
        score()
    imports.note_typed(["code_beside:score"])  # what was typed is code here, not there
    with pytest.raises(RecipeError, match="No module named 'code_beside'"):
        score()
    assert not (tmp_path / "RAN").exists()
    with imports.consent(everything=True):
        assert score()("x", "x") == 1
