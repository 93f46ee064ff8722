"""Imports point one way, light packages import without torch, and no package exceeds its budget."""

import ast
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import median

import pytest

import plumbline
from plumbline.imports import EXTRAS, missing

PACKAGE = Path(__file__).parents[1] / "src" / "plumbline"
# From the bottom up; a package may import what stands below it, and nothing else.
RANKS: tuple[set[str], ...] = (
    {"errors", "seeds", "processes"},
    {"records", "storage", "overrides", "imports"},
    {"section"},
    {"algorithms"},
    {"recipe", "claims"},
    {"remote"},
    {"runs"},
    {"tasks", "policies"},
    {"judging", "models", "engines"},
    {"rollouts"},
    {"evaluation"},
    {"diagnosis"},
    {"reports", "audit", "adapters"},
    {"training"},
    {"refusals"},
    {"preflight"},
    {"stage_evaluations"},
    {"pipeline"},
    {"sweep"},
    {"jobs", "export"},
    {"serve"},
    {"testing", "api", "command_options", "command_output", "exits"},
    {
        "data_commands",
        "history_commands",
        "audit_command",
        "decide_commands",
        "job_commands",
        "export_command",
        "serve_command",
    },
    {"cli"},
    {"__main__", "job_entry"},
)
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}
WITHOUT_TORCH = (
    "records",
    "algorithms",
    "recipe",
    "remote",
    "runs",
    "tasks",
    "evaluation",
    "diagnosis",
    "reports",
    "audit.audit",
    "audit.targets",
    "rollouts",
    "refusals",
    "pipeline",
    "preflight.dry_run",
    "preflight.preflight",
    "sweep",
    "api",
    "cli",
)
WITHOUT_TORCH += ("models.catalogue", "models.get", "jobs.submit", "job_entry", "export.export", "serve.router")
HEAVY = {"torch", "gguf", "transformers", "peft", "tokenizers", "safetensors", "trl", "datasets", "accelerate", "ray"}
MAY_IMPORT_TORCH = (
    "policies/autoregressive",
    "policies/pretrained",
    "policies/masked",
    "policies/chunks.py",
    "policies/draws.py",
    "policies/denoising.py",
    "policies/places.py",
    "policies/plackett_luce.py",
    "policies/slots",
    "policies/flow",
    "policies/token_law.py",
    "training",
)


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree; nobody may change it."""
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All of a file's syntax tree, from the top down; nobody may change it."""
    return tuple(ast.walk(parsed(path)))


def imported(among: Iterable[ast.AST]) -> set[str]:
    """Dotted names that are imported among these nodes (relative imports are banned by the linter)."""
    names: set[str] = set()
    for node in among:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_imports_point_down():
    wrong = []
    for path in modules():
        mine = package_of(path)
        names = {name.split(".")[1] for name in imported(nodes(path)) if name.startswith("plumbline.")}
        for theirs in names - {mine, "__version__"} if mine != "__init__" else ():
            if RANK[theirs] >= RANK[mine]:
                wrong.append(f"{path.relative_to(PACKAGE)} may not import {theirs}")
    assert wrong == []


def test_a_diagnosis_reads_records_and_knows_no_task_and_no_policy():
    for path in (PACKAGE / "diagnosis").rglob("*.py"):
        names = {name.split(".")[1] for name in imported(nodes(path)) if name.startswith("plumbline.")}
        assert not names & {"tasks", "policies", "rollouts", "judging"}, path


def test_a_heavy_import_at_the_top_of_a_file_stands_only_where_it_may():
    for path in modules():
        where = path.relative_to(PACKAGE).as_posix()
        tops = [node for node in parsed(path).body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {name.split(".")[0] for node in tops for name in imported([node])}
        if found := names & HEAVY:
            assert where.startswith(MAY_IMPORT_TORCH), f"{where} imports {found} at its top"


def test_light_packages_import_without_torch():
    names = ", ".join("plumbline." + name for name in WITHOUT_TORCH)
    code = f"import {names}, sys; print(sorted(set(sys.modules) & {HEAVY!r}))"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["recipe"],
        ["run", "--help"],
        ["audit", "--help"],
        ["parse"],
        ["get"],
        ["decide", "--help"],
        ["submit", "--help"],
        ["jobs"],
        ["serve", "--help"],
    ],
)
def test_a_command_that_needs_no_model_starts_at_once(arguments):
    """Under half a second of a processor, once in three: a busy machine says nothing about the command.

    On a slow one the limit is 1.8 times what Python takes there to import what every command needs.
    """
    needed = "import numpy, pydantic, rich.markdown, typer.rich_utils, yaml"
    for _ in range(3):
        seconds = processor_time("-m", "plumbline", *arguments)
        if seconds < 0.5 or seconds < 1.8 * processor_time("-c", needed):
            return
    pytest.fail(f"{seconds:.2f} seconds of a processor")


def processor_time(*arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, input=b"{}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def code_lines(path: Path) -> int:
    """Lines of code: no blanks, no comments, no docstrings of modules, classes and functions."""
    firsts = [node.body[0] for node in nodes(path) if isinstance(node, DOCUMENTED) and node.body]
    texts = {
        line
        for node in firsts
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    lines = enumerate(path.read_text().splitlines(), 1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for at, line in lines if at not in texts)


DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def sizes() -> dict[str, list[int]]:
    """The code lines of each file, by package; each environment is one, and the modules at the top are one."""
    found: dict[str, list[int]] = {}
    for path in modules():
        first, *rest = path.relative_to(PACKAGE).parts
        name = f"tasks/{rest[0]}" if first == "tasks" and rest[0] in ENVIRONMENTS else first if rest else "modules"
        found.setdefault(name, []).append(code_lines(path))
    return found


def table() -> str:
    """Code lines of each package beside its budget, files with their median, entries at the top and public names."""
    rows = [f"{'package':20}{'code':>8}{'budget':>8}{'files':>7}{'median':>8}"]
    found = sizes()
    for name, lines in sorted(found.items(), key=lambda item: -sum(item[1])):
        rows.append(f"{name:20}{sum(lines):8}{BUDGETS[name]:8}{len(lines):7}{median(lines):8.0f}")
    every = [each for lines in found.values() for each in lines]
    rows.append(f"{'all':20}{sum(every):8}{sum(BUDGETS.values()):8}{len(every):7}{median(every):8.0f}")
    return "\n".join([*rows, f"{entries()} of {ENTRIES} top-level entries, {len(plumbline.__all__)} public names"])


def entries() -> int:
    return sum(not path.name.startswith(("__pycache__", "py.typed")) for path in PACKAGE.iterdir())


ENVIRONMENTS = {"commerce", "forms", "miniwob", "browser"}
BUDGETS = {
    "tasks/forms": 8128,
    "tasks/commerce": 7340,
    "policies": 7283,
    "diagnosis": 6083,
    "modules": 3848,
    "reports": 3624,
    "serve": 3411,
    "tasks": 3300,
    "preflight": 1919,
    "tasks/miniwob": 1859,
    "runs": 1515,
    "audit": 1414,
    "jobs": 1366,
    "evaluation": 1363,
    "training": 1309,
    "recipe": 1038,
    "engines": 758,
    "remote": 701,
    "export": 627,
    "algorithms": 539,
    "adapters": 290,
    "models": 250,
    "tasks/browser": 149,
}
"""The most code lines of each package. Whoever deletes lowers them; nobody raises one without lowering another."""
ENTRIES, NAMES = 49, 20


def test_no_package_exceeds_its_budget():
    """`python tests/test_architecture.py` prints the table."""
    found = sizes()
    assert found.keys() == BUDGETS.keys(), "a package without a budget, or a budget without a package"
    assert all(sum(lines) <= BUDGETS[name] for name, lines in found.items()), f"\n{table()}"
    assert entries() <= ENTRIES
    assert len(plumbline.__all__) <= NAMES


def test_only_named_boundaries_catch_everything():
    """A handler for every exception hides bugs; these are boundaries to foreign code or files, and say so."""
    allowed = {
        "imports.py",
        "judging.py",
        "engines/workers.py",
        "tasks/precheck.py",
        "runs/trackers.py",
        "diagnosis/readers/wandb.py",
        "runs/published.py",
        "testing.py",
        "policies/pretrained/chat.py",
        "policies/opening.py",
        "training/checkpoints.py",
        "adapters/callback.py",
        "audit/elsewhere.py",
        "serve/router.py",
        "serve/batched.py",
        "serve/constrained.py",
    }
    found = set()
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None or getattr(node.type, "id", "") in {"Exception", "BaseException"}
            ):
                raises = any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
                if not raises:
                    found.add(path.relative_to(PACKAGE).as_posix())
    assert found <= allowed, found - allowed


def test_a_module_of_no_extra_is_advised_by_its_own_name():
    assert missing("a task", "nowhere.part").fix == "pip install nowhere"
    assert missing("a task", "torch.nn").fix.startswith("pip install '.[train]'")
    assert missing("a task", "selectolax", extra="formfactory").fix.startswith("pip install '.[formfactory]'")


def test_what_an_error_says_to_install_is_an_extra():
    extras = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    calls = [
        node
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "missing"
    ]
    named = [key.value for call in calls for key in call.keywords if key.arg == "extra"]
    assert {one.value for one in named if isinstance(one, ast.Constant)} <= set(EXTRAS)
    for path in modules():
        said = "not installed" in "".join(
            node.value
            for node in nodes(path)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value
        )
        assert not said or path.name == "imports.py", f"{path}: say it with imports.missing"
    for extra, brought in EXTRAS.items():
        needed = {re.match(r"[\w-]+", requirement)[0].replace("-", "_") for requirement in extras[extra]}
        assert set(brought) <= needed | {"jinja2"}, extra
    text = "".join(path.read_text() for path in modules())
    assert "plumbline[" not in text, "that name belongs to another project on the package index"


READS_ITSELF = {
    *("storage.py", "overrides.py", "tasks/tables.py"),  # the functions themselves
    "imports.py",  # of installed packages
    "preflight/shapes.py",
    *(
        "tasks/commerce/classify.py",
        "tasks/commerce/extraction/meaning.py",
        "tasks/commerce/sql_qa/databases.py",
    ),  # ours
    *("tasks/miniwob/build.py", "tasks/miniwob/browser/script.py", "tasks/forms/executors/browser/steps.py"),
    *("serve/page/routes.py", "serve/app.py"),
    *("jobs/store.py", "policies/memory.py"),  # of the system
    *("jobs/head.py", "jobs/process.py", "processes.py", "models/get.py"),  # what this process has just written
    *("training/checkpoints.py", "remote/publish.py", "remote/fetch.py"),
    "policies/pretrained/gguf_file.py",
}
"""Who may read a file without `storage`: its readers wait for no pipe, and fill no memory."""


def test_files_of_others_are_read_by_storage_alone():
    found = set()
    for path in modules():
        for node in nodes(path):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            modes = [one.value for one in node.args if isinstance(one, ast.Constant)]
            reads = name == "open" and isinstance(node.func, ast.Attribute) and modes[:1] in ([], ["rb"], ["r"])
            of_path = not node.args or bool(modes)  # not task.open(working)
            if name in {"read_text", "read_bytes"}:
                reads = isinstance(node.func, ast.Attribute)
            elif name == "safe_load":
                reads, of_path = True, True
            if reads and of_path:
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == READS_ITSELF, found ^ READS_ITSELF


if __name__ == "__main__":
    print(table())
