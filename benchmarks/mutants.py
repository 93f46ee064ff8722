"""What the tests catch: small faults put into the code that decides what a result means, and
whether a test fails.

    python benchmarks/mutants.py --seed 0 --n 300
    python benchmarks/mutants.py --n 100 --only plumbline_commerce/extraction/rubric.py

A mutant is one fault: a comparison, an operator, a constant or a condition changed, a statement or
a guard taken out, two arguments swapped. `--n` of those that the files in `TESTS` allow are drawn
by `--seed` and tried on a copy of the source. What is no fault at all is listed in
`equivalent_mutants.txt`; any other survivor is one that no test sees.
"""

import argparse
import ast
import copy
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT / "src", *sorted(ROOT.glob("environments/*/src")))
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
SECONDS = 180  # tests that take longer have met a fault that does not end
TESTS = {
    "plumbline/evaluation/statistics.py": (
        "tests/evaluation/test_statistics.py",
        "tests/evaluation/test_evaluate.py",
    ),
    "plumbline/algorithms/**/*.py": ("tests/training/test_objective.py", "tests/algorithms"),
    "plumbline/policies/sampling_distribution.py": (
        "tests/policies/test_sampling_distribution.py",
    ),
    "plumbline/runs/run.py": (
        "tests/runs/test_run.py",
        "tests/runs/test_changes.py",
        "tests/test_output_guard.py",
    ),
    "plumbline_forms/rubric.py": (
        "environments/forms/tests/test_rubric.py",
        "-k",
        "not (train or held or thousand or fast)",
    ),
    "plumbline_commerce/extraction/rubric.py": (
        "environments/commerce/tests/test_answers.py",
        "environments/commerce/tests/test_extraction.py",
    ),
}
SWAPS = (
    "Lt LtE GtE,LtE Lt Gt,Gt GtE LtE,GtE Gt Lt,Eq NotEq,NotEq Eq,Is IsNot,IsNot Is,In NotIn,NotIn "
    "In,And Or,Or And"
)
SWAPS += (
    ",Add Sub,Sub Add,Mult Div,Div Mult,FloorDiv Mult,Pow Mult,Mod Mult,BitOr BitAnd,BitAnd BitOr"
)
OTHERS = {
    getattr(ast, one): [getattr(ast, to)() for to in others]
    for one, *others in map(str.split, SWAPS.split(","))
}


def places(tree: ast.AST) -> Iterator[tuple[Any, Any, ast.AST]]:
    """Every node but those of annotations, texts and messages, with what holds it and under which
    key."""
    for name, value in ast.iter_fields(tree):
        if name not in {"annotation", "returns", "exc", "decorator_list"}:
            for key, child in enumerate(value) if isinstance(value, list) else [(name, value)]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                    yield (value if isinstance(value, list) else vars(tree)), key, child
                    yield from places(child)


def faults(node: Any) -> Iterator[ast.AST]:
    """What may stand in a node's place."""

    def but(**fields: Any) -> ast.AST:
        other = copy.copy(node)
        vars(other).update(fields)
        return other

    match node:
        case ast.Compare(ops=ops):
            yield from (
                but(ops=[*ops[:i], to, *ops[i + 1 :]])
                for i, one in enumerate(ops)
                for to in OTHERS[type(one)]
            )
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op):
            yield from (but(op=to) for to in OTHERS.get(type(op), ()))
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield but(value=not value)
        case ast.Constant(value=int(value) | float(value)):
            yield from (
                but(value=one)
                for one in ((0.0, 1000 * value) if 0 < value < 1e-3 else (value + 1, value - 1))
            )
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            # those are negated where they stand
            if not isinstance(test, ast.Compare | ast.UnaryOp):
                yield but(test=ast.UnaryOp(ast.Not(), test))
            yield but(test=ast.Constant(value=False))
        case ast.comprehension(ifs=[_, *_]):
            yield but(ifs=[])
        case ast.Call(func=func, args=[one, two, *rest]):
            if ast.unparse(one) != ast.unparse(two) and ast.unparse(func) not in {"min", "max"}:
                yield but(args=[two, one, *rest])
        case ast.Return(value=ast.expr()):
            yield but(value=ast.Constant(value=None))
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    put = isinstance(node, ast.Assign) and isinstance(
        node.targets[0], ast.Attribute | ast.Subscript
    )
    if called or put or isinstance(node, ast.Raise | ast.AugAssign | ast.Assert | ast.Continue):
        yield ast.Pass()


def named(path: Path) -> str:
    """A file below the folder of sources that holds it."""
    return path.relative_to(next(folder for folder in SOURCES if folder in path.parents)).as_posix()


def mutants(path: Path) -> Iterator[tuple[str, str, str]]:
    """Of each fault of a file: where it is, what it is, and the source that has it."""
    lines = path.read_text().splitlines()
    tree = ast.parse("\n".join(lines))
    for holder, key, node in list(places(tree)):
        at = node.iter if isinstance(node, ast.comprehension) else node
        for fault in faults(node):
            holder[key] = fault
            what = " -> ".join(ast.unparse(one).split("\n")[0].strip() for one in (node, fault))
            what = f"{named(path)}: {lines[at.lineno - 1].strip()}: {what}"
            yield f"{at.lineno}:{at.col_offset}", what, ast.unparse(tree)
            holder[key] = node


def passes(tree: Path, tests: Sequence[str]) -> bool:
    """Whether tests pass on a copy of the source, in a child of this process; what takes too long
    does not."""
    if (child := os.fork()) == 0:
        signal.alarm(SECONDS)
        os.chdir(tree)
        sources = [str(tree / folder.relative_to(ROOT)) for folder in SOURCES]
        sys.path[:0] = [*sources, str(tree)]
        os.environ["PYTHONPATH"] = os.pathsep.join(sources)
        output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        _ = os.dup2(output, 1), os.dup2(output, 2)
        os._exit(
            pytest.main(
                ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile", "ci", *tests]
            )
        )
    return os.waitpid(child, 0)[1] == 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--only", choices=TESTS, help="draw from these files alone")
    asked = parser.parse_args()
    names = [asked.only] if asked.only else TESTS
    tests = {
        file: TESTS[name]
        for name in names
        for folder in SOURCES
        for file in sorted(folder.glob(name))
    }
    found = [(file, *mutant) for file in tests for mutant in mutants(file)]
    drawn = [
        found[at]
        for at in sorted(
            random.Random(asked.seed).sample(range(len(found)), min(asked.n, len(found)))
        )
    ]
    same = set(EQUIVALENT.read_text().splitlines())
    for name in (
        "torch",
        "transformers.models.llama.modeling_llama",
        "peft",
        "scipy.stats",
        "hypothesis",
        "typer",
    ):
        importlib.import_module(name)
    verdicts: dict[Path, Counter[str]] = {file: Counter() for file in tests}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in ("src", "environments", "tests"):
            shutil.copytree(ROOT / name, tree / name)
        shutil.copy2(ROOT / "pyproject.toml", tree)
        for number, (file, where, what, source) in enumerate(drawn):
            if not verdicts[file] and not passes(tree, tests[file]):
                raise SystemExit(
                    f"the tests fail without any fault:\n{(tree / 'output.txt').read_text()}"
                )
            target = tree / file.relative_to(ROOT)
            target.write_text(source)
            # else what was compiled of the last mutant might be taken for this one
            os.utime(target, (number, number))
            verdict = (
                "equivalent"
                if what in same
                else "survived"
                if passes(tree, tests[file])
                else "caught"
            )
            shutil.copy2(file, target)
            verdicts[file][verdict] += 1
            if verdict == "survived":
                print(verdict, where, what, flush=True)
    for file, counts in verdicts.items():
        print(
            named(file),
            *(f"{counts[name]} {name}" for name in ("caught", "equivalent", "survived")),
        )


if __name__ == "__main__":
    main()
