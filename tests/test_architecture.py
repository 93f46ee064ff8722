"""Imports point one way, light packages import without torch, and no package exceeds its budget."""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest

import plumbline
from plumbline.config.imports import extras, missing_module_error

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "plumbline"
ENVIRONMENTS = {
    path.name: path for path in sorted((ROOT / "environments").glob("*/src/plumbline_*"))
}
FLOORS: tuple[set[str], ...] = (
    {"errors", "seeds", "version"},
    {"config", "records", "storage"},
    {"algorithms"},
    {"recipe"},
    {"runs"},
    {"policies", "tasks"},
    {"engines", "rollouts"},
    {"evaluation"},
    {"checks"},
    {"adapters", "jobs", "reports"},
    {"export", "serve", "training"},
    {"api"},
    {"__init__", "cli"},
    {"__main__"},
)
"""Folders and modules at the top of the core, from the ground up: each imports from floors below its
own alone, wherever in a file the import stands."""
FLOOR = {name: floor for floor, names in enumerate(FLOORS) for name in names}
PUBLIC = {
    *(
        "cli.options",
        "cli.output",
        "config.imports",
        "config.overrides",
        "errors",
        "recipe",
        "records",
        "seeds",
    ),
    *("runs.metadata", "runs.output_guard", "runs.remote", "serve.backend", "storage"),
    *("tasks", "tasks.baselines", "tasks.rubric", "tasks.tables", "tasks.task"),
    *("tasks.text.json_schema", "tasks.text.lenient_json", "tasks.text.numbers"),
}
"""Modules of the core that an environment may use: what docs/your-task.md and docs/architecture.md
call public."""
FOREIGN = re.compile(
    r"commerce|miniwob|formfactory|\bolist|\bshops?\b|web forms?\b|\bforms\b", re.IGNORECASE
)
"""Words of environments, of which the core has none."""
WITHOUT_TORCH = (
    *("records", "algorithms", "recipe", "runs.remote", "runs", "tasks", "evaluation", "reports"),
    *("api", "cli.main", "cli.job_entry", "jobs.follow", "export.export", "serve.backend"),
    *("checks.diagnosis.rule", "checks.audit.trial", "checks.refusals", "checks.preflight.report"),
    *("rollouts.collect", "training.pipeline", "training.sweep", "policies.downloads.get"),
)
HEAVY = {
    "torch",
    "gguf",
    "transformers",
    "peft",
    "tokenizers",
    "safetensors",
    "trl",
    "datasets",
    "accelerate",
    "ray",
}
MAY_IMPORT_TORCH = (
    "policies/autoregressive",
    "policies/pretrained",
    "policies/masked",
    "policies/chunks.py",
    "policies/sampling_distribution.py",
    "policies/canvas.py",
    "policies/token_logprobs.py",
    "policies/plackett_luce.py",
    "policies/slots",
    "policies/flow",
    "policies/sampling_distribution.py",
    "training",
)


def modules() -> list[Path]:
    """Of the core and of all environments."""
    return sorted(
        path for folder in (PACKAGE, *ENVIRONMENTS.values()) for path in folder.rglob("*.py")
    )


def core() -> list[Path]:
    return [path for path in modules() if path.is_relative_to(PACKAGE)]


def files_of_tests() -> set[Path]:
    folders = [ROOT / "tests", *ROOT.glob("environments/*/tests")]
    inputs = set((ROOT / "tests" / "doorstep").glob("*/**/*.py"))  # which are data
    return {path for folder in folders for path in folder.rglob("*.py")} - inputs


def where(path: Path) -> str:
    """A file below its package, and before it the package where that is not the core."""
    above = next(folder for folder in (PACKAGE, *ENVIRONMENTS.values()) if folder in path.parents)
    return path.relative_to(above if above == PACKAGE else above.parent).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree; nobody may change it."""
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All of a file's syntax tree, from the top down; nobody may change it."""
    return tuple(ast.walk(parsed(path)))


def imported(among: Iterable[ast.AST]) -> set[str]:
    """Dotted names that are imported among these nodes (relative imports are banned by the
    linter)."""
    names: set[str] = set()
    for node in among:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imports_of_core(path: Path) -> set[str]:
    """Dotted names below `plumbline` that a file imports, lazily or not."""
    names = imported(nodes(path))
    return {name.removeprefix("plumbline.") for name in names if name.startswith("plumbline.")}


def folder_of(path: Path) -> str:
    """The folder or module at the top of the core in which a file stands."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def edges() -> set[tuple[str, str]]:
    """Which folder at the top of the core imports which other."""
    return {
        (folder_of(path), theirs)
        for path in core()
        for name in imports_of_core(path)
        if (theirs := name.partition(".")[0]) != folder_of(path)
    }


def test_folders_import_from_floors_below_their_own():
    assert {folder_of(path) for path in core()} == FLOOR.keys(), "a folder without a floor"
    assert [pair for pair in edges() if FLOOR[pair[0]] <= FLOOR[pair[1]]] == []


def test_the_page_of_the_architecture_shows_the_floors():
    shown: dict[int, set[str]] = {}
    floor = -1
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        if row := re.match(r"    ([ \d]\d|  ) [o ] (\w[\w/., ]*?)(?:  |$)", line):
            floor = int(row[1]) if row[1].strip() else floor
            shown.setdefault(floor, set()).update(re.findall(r"\w+", row[2].replace(".py", "")))
    assert shown == {floor: names - {"__init__"} for floor, names in enumerate(FLOORS)}


def test_the_core_has_no_word_of_an_environment():
    kinds = {".py", ".yaml", ".json", ".html", ".css", ".js", ".j2"}
    texts = (path for path in PACKAGE.rglob("*") if path.suffix in kinds)
    assert [
        f"{path}: {found}" for path in texts if (found := set(FOREIGN.findall(path.read_text())))
    ] == []
    assert all(
        not name.startswith("plumbline_") for path in core() for name in imported(nodes(path))
    )


def test_an_environment_uses_public_interfaces_alone():
    """Of the core, and of other environments what the docstrings of their packages call public."""
    public = {f"plumbline.{name}" for name in PUBLIC}
    for package, folder in ENVIRONMENTS.items():
        said = (ast.get_docstring(parsed(folder / "__init__.py")) or "").partition("Public are")[2]
        public |= {f"{package}.{name}" for name in re.findall(r"`([\w.]+)`", said)}
    for package, folder in ENVIRONMENTS.items():
        for path in folder.rglob("*.py"):
            for name in imported(nodes(path)):
                if not name.startswith("plumbline") or name.split(".")[0] == package:
                    continue
                module, _, last = name.rpartition(".")
                assert name in public or module in public, f"{path} imports {name}"
                assert not last.startswith("_"), f"{path} imports {name}"


def test_a_diagnosis_reads_records_and_knows_no_task_and_no_policy():
    """Readers of numbers and of JSON in answers are no task."""
    for path in (PACKAGE / "checks" / "diagnosis").rglob("*.py"):
        names = {name for name in imports_of_core(path) if not name.startswith("tasks.text")}
        assert not {name.partition(".")[0] for name in names} & {"tasks", "policies", "rollouts"}, (
            path
        )


def test_a_heavy_import_at_the_top_of_a_file_stands_only_where_it_may():
    for path in modules():
        tops = [node for node in parsed(path).body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {name.split(".")[0] for node in tops for name in imported([node])}
        if found := names & HEAVY:
            assert where(path).startswith(MAY_IMPORT_TORCH), (
                f"{where(path)} imports {found} at its top"
            )


def test_no_test_imports_a_benchmark_or_an_experiment():
    """Their own tests stand beside them: `make test-studies`."""
    for path in files_of_tests():
        tops = {name.partition(".")[0] for name in imported(nodes(path))}
        assert not tops & {"benchmarks", "experiments"}, path


def test_light_packages_import_without_torch():
    names = ", ".join([*("plumbline." + name for name in WITHOUT_TORCH), *ENVIRONMENTS])
    code = f"import {names}, sys; print(sorted(set(sys.modules) & {HEAVY!r}))"
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == "[]"


def test_the_tests_of_plumbline_check_are_collected_without_torch():
    """`make test-check` runs them where no package of training is installed."""
    (paths,) = re.findall(r"^CHECK_TESTS = (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    asked = ["--collect-only", "-q", "--no-summary", "-p", "no:cacheprovider", *paths.split()]
    code = f"import pytest, sys; sys.modules |= dict.fromkeys({HEAVY!r}); sys.exit(pytest.main({asked!r}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    files = (ROOT / "tests" / "diagnosis").glob("test_*.py")
    assert [path.name for path in files if f"{path.name}::" not in done.stdout] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["recipe"],
        ["init", "--help"],
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
    """It imports at most a fifth more modules than every command needs."""
    needed = modules_of("-c", "import numpy, pydantic, rich.markdown, typer.rich_utils, yaml")
    assert modules_of("-m", "plumbline", *arguments) < 1.2 * needed


def modules_of(*arguments):
    """How many modules a command of Python imports."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, input="{}", text=True)
    return done.stderr.count("import time:")


LAYOUT = {
    tokenize.ENCODING,
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_tokens(path: Path) -> int:
    """Tokens of code: no comments, no texts that stand alone (docstrings), no layout. A text in
    several pieces is one token, and so is an f-string; a comma before a closing bracket is none."""
    alone = {
        (node.lineno, node.col_offset)
        for node in nodes(path)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    start, end = getattr(tokenize, "FSTRING_START", None), getattr(tokenize, "FSTRING_END", None)
    kinds = []
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        depth -= token.type == end
        if depth == 0 and token.type not in LAYOUT and token.start not in alone:
            text = token.type in {tokenize.STRING, end}
            if kinds and (
                (text and kinds[-1] == "text") or (token.string in {*")]}"} and kinds[-1] == ",")
            ):
                kinds.pop()
            kinds.append("text" if text else token.string)
        depth += token.type == start
    return len(kinds)


def sizes() -> dict[str, list[int]]:
    """The tokens of code of each file, by package; each environment is one, and the modules at the
    top are one."""
    found: dict[str, list[int]] = {}
    for path in modules():
        first, *rest = where(path).split("/")
        name = first if rest else "modules"
        found.setdefault(name, []).append(code_tokens(path))
    return found


def table() -> str:
    """The floors from the top down, with tokens of code beside their budgets, files and their
    median; then the sums, and folders that import each other."""
    found = sizes()
    order = sorted(found, key=lambda name: (-FLOOR.get(name, len(FLOORS)), name))
    rows = [f"{'floor':6}{'package':20}{'code':>8}{'budget':>8}{'files':>7}{'median':>8}"]
    for name in order:
        rows.append(f"{FLOOR.get(name, ''):<6}{name:20}" + figures(found[name], BUDGETS[name]))
    for name, most in TOTALS.items():
        rows.append(f"{'':6}{name:20}" + figures(found_in(name), most))
    mutual = sorted(pair for pair in edges() if pair[::-1] in edges() and pair < pair[::-1])
    rows.append(
        f"{len(edges())} imports between packages, {len(mutual)} mutual pairs {mutual or ''}"
    )
    return "\n".join(rows)


def figures(files: list[int], budget: int) -> str:
    return f"{sum(files):8}{budget:8}{len(files):7}{median(files):8.0f}"


def found_in(total: str) -> list[int]:
    """The tokens of code of each file of the core, of all environments, or of the tests."""
    if total == "tests":
        return [code_tokens(path) for path in files_of_tests()]
    found = sizes().items()
    return [
        each
        for name, files in found
        for each in files
        if (name in ENVIRONMENTS) == (total != "core")
    ]


BUDGETS = {
    "plumbline_answers": 4_300,
    "plumbline_browser": 11_600,
    "plumbline_commerce": 71_800,
    "plumbline_forms": 61_200,
    "plumbline_miniwob": 18_200,
    "adapters": 9_000,
    "algorithms": 5_500,
    "checks": 131_000,
    "cli": 11_500,
    "config": 4_900,
    "engines": 8_500,
    "evaluation": 19_100,
    "export": 9_000,
    "jobs": 8_600,
    "modules": 7_700,
    "policies": 80_700,
    "recipe": 35_400,
    "reports": 27_900,
    "rollouts": 2_300,
    "runs": 21_400,
    "serve": 16_900,
    "tasks": 44_000,
    "training": 25_700,
}
"""The most tokens of code of each package, 5 % over its size: room for a change, not for an ability.
Who deletes lowers one; to raise one, lower another."""
TOTALS = {"core": 455_400, "environments": 160_400, "tests": 514_200}
NAMES = 20


def test_no_package_exceeds_its_budget():
    """`python tests/test_architecture.py` prints the table."""
    found = sizes()
    assert found.keys() == BUDGETS.keys(), (
        "a package without a budget, or a budget without a package"
    )
    assert all(sum(files) <= BUDGETS[name] for name, files in found.items()), f"\n{table()}"
    assert all(sum(found_in(name)) <= most for name, most in TOTALS.items()), f"\n{table()}"
    assert len(plumbline.__all__) <= NAMES


def test_a_name_is_of_one_class_and_a_protocol_is_rare():
    """A base class with defaults says what a part must do; a protocol is for what others write
    (ASGI, trainers)."""
    classes = [node for path in modules() for node in nodes(path) if isinstance(node, ast.ClassDef)]
    names = Counter(node.name for node in classes if not node.name.startswith("_"))
    protocols = [
        node.name for node in classes if any("Protocol" in ast.unparse(base) for base in node.bases)
    ]
    assert len(protocols) <= 12, protocols
    assert len(twice := [name for name, count in names.items() if count > 1]) <= 8, twice


def test_only_named_boundaries_catch_everything():
    """A handler for every exception hides bugs; these are boundaries to foreign code or files, and
    say so."""
    allowed = {
        "config/imports.py",
        "rollouts/reward_workers.py",
        "engines/workers.py",
        "tasks/cases.py",
        "runs/observers.py",
        "checks/diagnosis/readers/wandb.py",
        "runs/remote_sync.py",
        "runs/remote.py",
        "policies/pretrained/chat.py",
        "policies/forks.py",
        "policies/pretrained/render_process.py",
        "training/checkpoints.py",
        "adapters/callback.py",
        "checks/audit/other_conditions.py",
        "serve/batched.py",
        "serve/constrained.py",
    }
    found = set()
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None or getattr(node.type, "id", "") in {"Exception", "BaseException"}
            ):
                raises = any(
                    isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node)
                )
                if not raises:
                    found.add(where(path))
    assert found <= allowed, found - allowed


def test_a_module_of_no_extra_is_advised_by_its_own_name():
    assert missing_module_error("a task", "nowhere.part").fix == "pip install nowhere"
    assert missing_module_error("a task", "torch.nn").fix.startswith("pip install '.[train]'")
    assert missing_module_error("a task", "sqlglot").fix.startswith(
        "pip install ./environments/commerce"
    )
    assert missing_module_error("a task", "flask").fix.startswith(
        "pip install './environments/forms[formfactory]'"
    )


def test_what_an_error_says_to_install_is_an_extra():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for path in modules():
        said = "not installed" in "".join(
            node.value
            for node in nodes(path)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and "\n" not in node.value
        )
        assert not said or path.name == "imports.py", f"{path}: say it with imports.missing"
    for extra, brought in extras().items():
        needed = {
            re.match(r"[\w-]+", requirement)[0].replace("-", "_") for requirement in declared[extra]
        }
        assert needed - {"plumbline_rl"} <= set(brought), extra
    text = "".join(path.read_text() for path in modules())
    assert "plumbline[" not in text, "that name belongs to another project on the package index"


READS_ITSELF = {
    *("storage.py", "config/overrides.py", "tasks/tables.py"),  # the functions themselves
    "config/imports.py",  # of installed packages
    "checks/preflight/shapes.py",
    *(
        "plumbline_commerce/classify.py",
        "plumbline_commerce/extraction/schema.py",
        "plumbline_commerce/sql_qa/engine.py",
    ),  # ours
    *("plumbline_miniwob/build.py", "plumbline_miniwob/browser/script.py"),
    "plumbline_forms/executors/browser.py",
    *("serve/page/routes.py", "serve/app.py", "reports/templating.py"),
    "policies/memory.py",  # of the system
    # What this process has just written.
    *("engines/processes.py", "policies/downloads/get.py"),
    *("training/checkpoints.py", "runs/remote_sync.py"),
    "policies/pretrained/gguf_file.py",
}
"""Who may read a file without `storage`: its readers wait for no pipe, and fill no memory."""


def test_files_of_others_are_read_by_storage_alone():
    found = set()
    for path in modules():
        for node in nodes(path):
            if not isinstance(node, ast.Call) or not isinstance(
                node.func, ast.Attribute | ast.Name
            ):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            modes = [one.value for one in node.args if isinstance(one, ast.Constant)]
            reads = (
                name == "open"
                and isinstance(node.func, ast.Attribute)
                and modes[:1] in ([], ["rb"], ["r"])
            )
            of_path = not node.args or bool(modes)  # not task.open(working)
            if name in {"read_text", "read_bytes"}:
                reads = isinstance(node.func, ast.Attribute)
            elif name == "safe_load":
                reads, of_path = True, True
            if reads and of_path:
                found.add(where(path))
    assert found == READS_ITSELF, found ^ READS_ITSELF


WORD = re.compile(r"(?<![\w./:=-])[^\W\d_]{2,}(?![\w/:=-]|\.\w)")
"""A word of a sentence; parts of names, of paths, of keys and of options are none."""
PATTERNS = {"re.search", "re.match", "re.fullmatch"}
MOST_PROSE = 90
"""Tests that may compare four words or more: of prompts, of golden texts, of others' messages."""


def test_tests_compare_figures_and_not_sentences():
    """A message may be reworded, and no test knows it."""
    folders = (ROOT / "tests", *ROOT.glob("environments/*/tests"))
    found = [
        f"{path.relative_to(ROOT)}:{prose[0]}"
        for folder in folders
        for path in sorted(folder.rglob("test_*.py"))
        for test in nodes(path)
        if isinstance(test, ast.FunctionDef)
        and test.name.startswith("test")
        and (prose := prose_of(test))
    ]
    assert len(found) <= MOST_PROSE, "\n".join([str(len(found)), *found])


def test_prose_is_seen_wherever_it_is_compared():
    code = """@pytest.mark.parametrize(("made", "said"), [(1, "a row"), (2, "it cannot be read")])
def test(made, said):
    with pytest.raises(ValueError, match=said):
        make(made)
    assert "rows.jsonl:3 lacks tasks.forms.name" in make("what is handed over")["what is a key"]
    assert "it lacks a name, too" in out and re.search(r"is\\b .* too\\.", out)
"""
    (test,) = ast.parse(code).body
    assert prose_of(test) == [6, 1]


def prose_of(test: ast.FunctionDef) -> list[int]:
    """The lines of a test's texts of four words or more that it compares."""
    cells = cells_of(test)
    texts = [
        text
        for side in compared(test)
        for part in texts_in(side)
        for cell in (cells.get(part.id, []) if isinstance(part, ast.Name) else [part])
        for text in texts_in(cell)
        if isinstance(text, ast.Constant)
    ]
    return [
        text.lineno
        for text in texts
        if len(WORD.findall(re.sub(r"\\(?:(\W)|\w)", r"\1", text.value))) >= 4
    ]


def compared(test: ast.FunctionDef) -> Iterator[ast.expr]:
    """Sides of comparisons, beginnings and ends that are asserted, and patterns."""
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            for part in ast.walk(node.test):
                if isinstance(part, ast.Compare):
                    yield from (part.left, *part.comparators)
                elif isinstance(part, ast.Call):
                    name = ast.unparse(part.func).rpartition(".")[2]
                    yield from part.args if name in {"startswith", "endswith"} else ()
        elif isinstance(node, ast.keyword) and node.arg == "match":
            yield node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in PATTERNS:
            yield from node.args[:1]


def cells_of(test: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    """What a name stands for, in rows of `parametrize` or of a loop."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(test):
        names, rows = getattr(node, "target", None), getattr(node, "iter", None)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.parametrize":
            names, rows = node.args[:2]
        columns = getattr(names, "elts", [names])
        for row in getattr(rows, "elts", []):
            cells = [row] if len(columns) == 1 else getattr(row, "elts", getattr(row, "args", []))
            for column, cell in zip(columns, cells, strict=False):
                name = getattr(column, "id", getattr(column, "value", ""))
                found.setdefault(name, []).append(cell)
    return found


def texts_in(side: ast.AST) -> Iterator[ast.Constant | ast.Name]:
    """Texts and names that are compared: none that is handed to a call, or is a key."""
    if isinstance(side, ast.Name) or (
        isinstance(side, ast.Constant) and isinstance(side.value, str)
    ):
        yield side
    elif isinstance(side, ast.Subscript):
        yield from texts_in(side.value)
    elif not isinstance(side, ast.Call) or ast.unparse(side.func) == "re.escape":
        for part in ast.iter_child_nodes(side):
            yield from texts_in(part)


if __name__ == "__main__":
    print(table())
