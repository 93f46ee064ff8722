"""What the names of a Python script stand for, as far as its text says it; nothing of the script is run or imported.

The syntax tree is followed in the order in which Python would run it. Constants are calculated, functions and classes
of the script are followed into, and what a library would give is kept as the call that asks for it (`Made`). All else
is `Unknown`. Steps, depth and the size of every value are bounded: a script is foreign text.
"""

import ast
import operator
import os.path
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plumbline.config.overrides import read_yaml
from plumbline.errors import PlumblineError, RecipeError
from plumbline.storage import SMALL, one_line, parse_json, read_text

LARGEST = 2**20
"""Bytes of a script. Its syntax tree has some thousand times as many."""
LARGEST_NUMBER = 2**64
LONGEST = 2**16
"""Letters of a text, and items of a list, that are calculated."""
MOST_STEPS, DEEPEST, MOST_ROUNDS, MOST_FILES = 300_000, 90, 200, 20
"""Expressions that are followed; expressions and statements inside each other; rounds of a loop; modules beside it."""
LONGEST_SHOWN = 120
"""Letters of a value or an expression in a note."""
LIBRARY: dict[str, Any] = {
    "dataset_name": None,
    "dataset_config": None,
    "dataset_train_split": "train",
    "dataset_test_split": "test",
    "dataset_streaming": False,
    "reward_funcs": None,
    "reward_model_name_or_path": None,
    "datasets": [],
    "model_name_or_path": None,
    "use_peft": False,
    "lora_r": 16,
    "lora_alpha": 32,
    "lora_target_modules": None,
    "load_in_4bit": False,
    "load_in_8bit": False,
    "dtype": "float32",
    "torch_dtype": None,
    "model_revision": "main",
    "attn_implementation": None,
}
"""Keys of TRL 1.16's ScriptArguments, ModelConfig and DatasetMixtureConfig, with their defaults."""


@dataclass(eq=False, repr=False)
class Unknown:
    """What only a run of the script would tell."""

    node: ast.AST | None = None
    why: str = ""

    def __str__(self) -> str:
        return self.why or source(self.node)


@dataclass(eq=False, repr=False)
class LibraryName:
    """What an import binds, or nothing in the script: a dotted name."""

    path: str
    line: str = ""
    """The import."""

    @property
    def tail(self) -> str:
        """The last name."""
        return self.path.rpartition(".")[2]


@dataclass(eq=False, repr=False)
class Made:
    """What a library gives: the result of a `call`, an `attribute` or an `item` of what it gave before."""

    how: str
    name: str
    owner: Any
    args: list[Any]
    keys: dict[str, Any]
    node: ast.AST | None
    scope: "Scope"
    kind: str = ""
    """The class of the script that inherits from what is called."""


@dataclass(eq=False, repr=False)
class Scope:
    """The names of a module, or of a call of a function."""

    module: "Module"
    parent: "Scope | None" = None
    names: dict[str, Any] = field(default_factory=dict)
    returned: list[Any] = field(default_factory=list)
    outer: set[str] = field(default_factory=set)
    """Names that `global` gives to the module."""

    def holder(self, name: str) -> "Scope | None":
        """The scope that binds a name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.parent
        return scope


@dataclass(eq=False, repr=False)
class Module:
    """A file of Python: its path, text and syntax tree."""

    path: Path
    text: str
    tree: ast.Module
    name: str = "__main__"
    notes: list[str] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class Function:
    """A function of the script, or a method with the object that it is bound to."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    defaults: dict[str, Any]
    decorators: Sequence[Any] = ()
    itself: Any = None
    origin: tuple[ast.AST, Scope] | None = None
    """The call that returned it."""


@dataclass(eq=False, repr=False)
class Kind:
    """A class of the script."""

    node: ast.ClassDef
    scope: Scope
    values: dict[str, Any]
    bases: list[Any]

    def fields(self) -> dict[str, Any]:
        """What is declared with a type, and those of classes above, with their defaults."""
        declared = [item.target for item in self.node.body if isinstance(item, ast.AnnAssign)]
        own = [target.id for target in declared if isinstance(target, ast.Name)]
        above = [base.fields() for base in self.bases if isinstance(base, Kind)]
        missing = {name: Unknown(why=f"{self.node.name}.{name} has no default") for name in own}
        return {key: each for some in above for key, each in some.items()} | {
            name: self.values.get(name, missing[name]) for name in own
        }

    def member(self, name: str) -> Any:
        """A method, or another value of the class; None where there is none."""
        if name in self.values:
            return self.values[name]
        return next((found for base in self.bases if isinstance(base, Kind) and (found := base.member(name))), None)

    def library(self) -> str:
        """The class of a library that it inherits from."""
        names = [base.library() if isinstance(base, Kind) else getattr(base, "tail", "") for base in self.bases]
        return next((name for name in names if name.endswith(("Trainer", "Config", "Arguments"))), "")


@dataclass(eq=False, repr=False)
class Instance:
    """An object of a class of the script, or a bag of values."""

    kind: Kind | None
    values: dict[str, Any]
    origin: tuple[ast.AST, Scope] | None = None


@dataclass(eq=False, repr=False)
class Text:
    """A text with parts that are not constants."""

    parts: list[Any]


class PathText(str):
    """A path."""

    __slots__ = ()


@dataclass(eq=False, repr=False)
class _Method:
    base: Any
    name: str


# -- files -------------------------------------------------------------------------------------------------------------

_MAGIC = re.compile(r"^([ \t]*)(?:[!%?].*|[\w.]+\?{1,2})$")
_SHELL = re.compile(r"^([ \t]*[\w, ]+=[ \t]*)[!%].*$")


def read_module(path: Path, name: str = "__main__") -> Module:
    """Read a script, or the cells of a notebook.

    Raises:
        RecipeError: it cannot be read, or is no Python.
    """
    text = read_text(path, RecipeError, SMALL if path.suffix == ".ipynb" else LARGEST)
    if path.suffix != ".ipynb":
        try:
            return Module(path, text, _parsed(text, path), name)
        except RecipeError:
            plain = _without_magics(text)
            if plain == text:
                raise
            return Module(path, plain, _parsed(plain, path), name)
    notes, kept = [], []
    for number, cell in enumerate(_cells(text, path), 1):
        if cell.lstrip().startswith("%%") and not re.match(r"\s*%%(capture|time|timeit)\b", cell):
            continue
        plain = _without_magics(cell)
        try:
            _parsed(plain, path)
            kept.append(plain)
        except RecipeError:
            notes.append(f"cell {number} is no Python, and was not read")
    whole = "\n".join(kept)
    return Module(path, whole, _parsed(whole, path), name, notes)


def _parsed(text: str, path: Path) -> ast.Module:
    if len(text) > LARGEST:
        raise RecipeError(f"{path} has more than {LARGEST:,} letters of code", "give the script that trains alone")
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        deep = isinstance(error, MemoryError | RecursionError)
        why = "it is nested too deeply" if deep else one_line(error)
        raise RecipeError(f"{path} is no Python: {why}", "give the script that trains with TRL") from error


def _without_magics(text: str) -> str:
    """The same lines, with `pass` for commands of the notebook and of the shell."""
    lines, goes_on = [], False
    for line in text.split("\n"):
        found = None if goes_on else _MAGIC.match(line)
        if goes_on or found:
            lines.append(f"{found[1]}pass" if found else "")
            goes_on = line.endswith("\\")
        else:
            lines.append(_SHELL.sub(r"\1None", line))
    return "\n".join(lines)


def _cells(text: str, path: Path) -> Iterator[str]:
    try:
        whole = parse_json(text)
    except (PlumblineError, ValueError, RecursionError) as error:
        raise RecipeError(f"{path} is no notebook: it is not JSON", "give the notebook as it is saved") from error
    sheets = [whole, *(whole.get("worksheets") or [])] if isinstance(whole, dict) else []
    cells = [cell for sheet in sheets if isinstance(sheet, dict) for cell in sheet.get("cells") or []]
    if not cells:
        raise RecipeError(f"{path} is no notebook: it has no cells", "give the notebook as it is saved")
    for cell in cells:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            lines = cell.get("source", cell.get("input", ""))
            yield "".join(map(str, lines)) if isinstance(lines, list) else str(lines)


# -- values ------------------------------------------------------------------------------------------------------------

UNKNOWN = Unknown()


def plain(value: Any) -> Any:
    """A value that a recipe can hold; `UNKNOWN` for all else: bytes, endless numbers, NUL, half of a character."""
    left = [10_000]

    def of(one: Any) -> Any:
        left[0] -= 1
        match one:
            case _ if left[0] < 0:
                raise ValueError
            case str() if "\0" not in one and one == one.encode(errors="ignore").decode():
                return str(one)
            case bool() | None:
                return one
            case int() | float() if abs(one) <= LARGEST_NUMBER:
                return one
            case list() | tuple():
                return list(map(of, one))
            case dict():
                return {of(key): of(each) for key, each in one.items()}
        raise ValueError

    try:
        return of(value)
    except (ValueError, TypeError, RecursionError):
        return UNKNOWN


def shown(value: Any) -> str:
    """A value in a note."""
    return cut(repr(value))


def source(node: ast.AST | None) -> str:
    """How an expression is written."""
    try:
        return "..." if node is None else cut(" ".join(ast.unparse(node).split()))
    except (RecursionError, ValueError):  # an integer of thousands of digits
        return "..."


def cut(text: str) -> str:
    """At most so many letters of a text."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def last_name(function: ast.AST) -> str:
    """The last name of what is called."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _joined(one: Any, other: Any, levels: int = 4) -> Any:
    """What is known where either of two is so."""
    if one is other or _equal(one, other):
        return one

    def both(one: Any, other: Any) -> Any:
        return _joined(one, other, levels - 1)

    match one, other:
        case _ if not levels:
            return Unknown(why="an if of the script decides")
        case Made(), Made() if (one.how, one.name) == (other.how, other.name) and len(one.args) == len(other.args):
            args = list(map(both, one.args, other.args))
            keys = both(one.keys, other.keys)
            owner = both(one.owner, other.owner)
            return Made(one.how, one.name, owner, args, keys, one.node, one.scope, one.kind)
        case Instance(), Instance() if one.kind is other.kind:
            return Instance(one.kind, both(one.values, other.values), one.origin)
        case dict(), dict():
            none = Unknown(why="an if of the script decides whether it is set")
            return {key: both(one.get(key, none), other.get(key, none)) for key in {**one, **other}}
        case list(), list() if len(one) == len(other):
            return list(map(both, one, other))
    if UNKNOWN not in (plain(one), plain(other)):
        return Unknown(why=f"{shown(plain(one))} or {shown(plain(other))}, as an if of the script decides")
    return one if isinstance(one, Unknown) else other if isinstance(other, Unknown) else Unknown(why="an if decides")


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and plain(one) is not UNKNOWN and plain(one) == plain(other)


def _small(value: Any) -> bool:
    if isinstance(value, str | list | tuple | dict):
        return len(value) <= LONGEST
    return not isinstance(value, int) or abs(value) <= LARGEST_NUMBER**4


_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.BitOr: operator.or_,
}
_COMPARED: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, some: one in some,
    ast.NotIn: lambda one, some: one not in some,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
}
_FAILS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError, MemoryError)
"""What an operation on constants raises."""
_TEXT_METHODS = {
    *("strip", "lstrip", "rstrip", "lower", "upper", "title", "capitalize", "split", "rsplit", "splitlines"),
    *("removeprefix", "removesuffix", "startswith", "endswith", "partition", "rpartition"),
}
_CALCULATED: dict[str, Callable[..., Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "len": len,
    "min": min,
    "max": max,
    "round": round,
    "abs": abs,
    "sum": sum,
    "sorted": sorted,
    "list": list,
    "tuple": tuple,
    "set": lambda items=(): list(dict.fromkeys(items)),
    "zip": lambda *some: list(zip(*some, strict=False)),
    "enumerate": lambda items, start=0: list(enumerate(items, start)),
    "os.path.join": lambda *parts: PathText(os.path.join(*parts)),  # noqa: PTH118 - texts, as the script has them
    "os.path.dirname": lambda path: PathText(os.path.dirname(path)),  # noqa: PTH120
    "os.path.basename": lambda path: PathText(os.path.basename(path)),  # noqa: PTH119
    "os.path.abspath": PathText,
    "os.path.realpath": PathText,
    "os.path.expanduser": PathText,
    "os.getcwd": lambda: PathText("."),
    "Path": lambda *parts: PathText(os.path.join(*parts) if parts else "."),  # noqa: PTH118
    "Path.cwd": lambda: PathText("."),
}
_BAGS = {"SimpleNamespace", "Namespace", "EasyDict", "edict", "Munch", "DictConfig", "create", "AttrDict", "Box"}
_COPIES = {"copy.copy", "copy.deepcopy", "deepcopy", "OmegaConf.to_container", "omegaconf.OmegaConf.to_container"}
_LOADERS = {"safe_load", "full_load", "load", "loads"}
PARSED = {"parse_args_into_dataclasses", "parse_args_and_config", "parse_yaml_file", "parse_json_file", "parse_dict"}


class Script:
    """A script that is followed."""

    def __init__(self, module: Module, settings: Mapping[str, Any]) -> None:
        """Follow a module.

        Args:
            module: the script.
            settings: what a YAML file says that the script's own parser would be given.

        Raises:
            RecipeError: it takes too many steps.
        """
        self.main, self.settings = module, settings
        self.made: list[Made] = []
        """All calls of libraries, in their order."""
        self.parsers: list[str] = []
        """Names of the parsers of a command line that the script asks."""
        self._modules: dict[Path, Scope] = {}
        self._steps = self._depth = self._unsure = 0
        self._active: list[ast.AST] = []
        self._loops: list[tuple[int, ast.expr, Any]] = []
        self._followed: set[ast.AST] = set()
        self.scope = Scope(module)
        self._run(module.tree.body, self.scope)

    def follow_unasked(self, name: str) -> None:
        """Follow functions that nothing calls, as a launcher would, until one makes what ends in `name`."""
        functions = [(None, one) for one in self.scope.names.values() if isinstance(one, Function)]
        kinds = [one for one in self.scope.names.values() if isinstance(one, Kind)]
        methods = [(kind, one) for kind in kinds for one in kind.values.values() if isinstance(one, Function)]
        inner = {last_name(node) for _, one in [*functions, *methods] for node in ast.walk(one.node)}
        functions.sort(key=lambda pair: getattr(pair[1].node, "name", "") in inner)  # first what no other names
        for kind, one in [*functions, *methods]:
            if any(call.name.endswith(name) for call in self.made):
                break
            if one.node not in self._followed and one.scope is self.scope:
                bound = one if kind is None else _bound(one, Instance(kind, dict(kind.values)))
                self._inline(bound, [], {}, one.node)

    # -- statements ----------------------------------------------------------------------------------------------------

    def _run(self, body: Sequence[ast.stmt], scope: Scope) -> str:
        """Follow statements; how they end their block: `return`, `raise`, `break`, `continue`, or empty."""
        for node in body:
            self._step()
            if self._depth >= DEEPEST:
                return ""
            self._depth += 1
            try:
                end = self._statement(node, scope)
            finally:
                self._depth -= 1
            if end:
                return end
        return ""

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise RecipeError(
                f"{self.main.path} takes more than {MOST_STEPS:,} steps to read", "give --model, --data and --reward"
            )

    def _statement(self, node: ast.stmt, scope: Scope) -> str:
        match node:
            case ast.Assign(targets=targets, value=value):
                found = self.value(value, scope)
                for target in targets:
                    self._bind(target, found, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, self.value(value, scope), scope)
            case ast.AugAssign(target=target, op=operation, value=value):
                one, other = self.value(target, scope), self.value(value, scope)
                self._bind(target, self._operated(operation, one, other, node), scope)
            case ast.Expr(value=value):
                found = self.value(value, scope)
                if isinstance(found, Made) and found.name in {"exit", "quit", "_exit"}:
                    return "raise"
            case ast.Return(value=value):
                scope.returned.append(None if value is None else self.value(value, scope))
                return "return"
            case ast.Raise() | ast.Break() | ast.Continue():
                return type(node).__name__.lower()
            case ast.If(test=test, body=body, orelse=other):
                true = self._truth(self.value(test, scope))
                return self._either([body, other], scope) if true is None else self._run(body if true else other, scope)
            case ast.For(target=target, iter=items, body=body) | ast.AsyncFor(target=target, iter=items, body=body):
                return self._loop(target, self.value(items, scope), body, scope)
            case ast.While(body=body):
                return self._either([body, []], scope)
            case ast.With(items=managers, body=body) | ast.AsyncWith(items=managers, body=body):
                for manager in managers:
                    found = self.value(manager.context_expr, scope)
                    if manager.optional_vars is not None:
                        self._bind(manager.optional_vars, found, scope)
                return self._run(body, scope)
            case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
                return self._tried([*body, *other], [item.body for item in handlers], scope) or self._run(last, scope)
            case ast.Match(cases=cases):
                return self._either([*(item.body for item in cases), []], scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                decorators = [self.value(item, scope) for item in node.decorator_list]
                self._set(node.name, self._function(node, scope, decorators), scope)
            case ast.ClassDef(name=name, bases=bases, body=body):
                inner = Scope(scope.module, scope)
                self._run(body, inner)
                for found in inner.names.values():
                    if isinstance(found, Function) and found.scope is inner:
                        found.scope = scope
                self._set(name, Kind(node, scope, inner.names, [self.value(base, scope) for base in bases]), scope)
            case ast.Import(names=names):
                for item in names:
                    path = item.name if item.asname else item.name.partition(".")[0]
                    line = f"import {item.name}" + (f" as {item.asname}" if item.asname else "")
                    found = self._beside(item.name, scope)
                    own = None if found is None else Instance(None, found.names)
                    self._set(item.asname or path, own or LibraryName(path, line), scope)
            case ast.ImportFrom(module=module, names=names, level=level):
                beside = self._beside(module or "", scope)
                for item in names:
                    line = f"from {'.' * level}{module or ''} import {item.name}" + (
                        f" as {item.asname}" if item.asname else ""
                    )
                    found = None if beside is None else beside.names.get(item.name)
                    given = LibraryName(f"{module}.{item.name}".lstrip("."), line) if found is None else found
                    self._set(item.asname or item.name, given, scope)
            case ast.Global(names=names):
                scope.outer |= {*names}
            case ast.Delete(targets=targets):
                for target in targets:
                    scope.names.pop(getattr(target, "id", ""), None)
        return ""

    def _loop(self, target: ast.expr, items: Any, body: Sequence[ast.stmt], scope: Scope) -> str:
        if isinstance(items, dict):
            items = [*items]
        if not isinstance(items, list | tuple) or len(items) > MOST_ROUNDS:
            self._bind(target, self._item(items, Unknown(target), target, scope), scope)
            self._loops.append((self._unsure + 1, target, items))
            end = self._either([body, []], scope)
            self._loops.pop()
            return end
        for item in items:
            self._bind(target, item, scope)
            end = self._run(body, scope)
            if end in {"return", "raise"}:
                return end
            if end == "break":
                break
        return ""

    def _either(self, bodies: Sequence[Sequence[ast.stmt]], scope: Scope) -> str:
        """Follow each of several blocks, and go on with what is true after all that do not leave."""
        before, after = scope.names, []
        self._unsure += 1
        for body in bodies:
            scope.names = dict(before)
            if self._run(body, scope) not in {"return", "raise"}:
                after.append(scope.names)
        self._unsure -= 1
        scope.names = before
        if not after:
            return "return"
        names = {name for some in after for name in some}
        self._steps += len(names) // 16
        for name in names:
            values = [some[name] for some in after if name in some]
            found = values[0]
            for other in values[1:]:
                found = _joined(found, other)
            scope.names[name] = found
        return ""

    def _tried(self, body: Sequence[ast.stmt], handlers: Sequence[Sequence[ast.stmt]], scope: Scope) -> str:
        """Follow a `try` as though nothing was raised; what a handler sets to something else is not known."""
        before, made = dict(scope.names), len(self.made)
        end = self._run(body, scope)
        after = scope.names
        if len(self.made) == made:  # nothing was built that a handler would build instead
            for handler in handlers:
                scope.names = dict(before)
                self._unsure += 1
                left = self._run(handler, scope) in {"return", "raise"}
                self._unsure -= 1
                for name, value in {} if left else scope.names.items():
                    known = after.get(name, value)
                    keep = isinstance(known, LibraryName | Function | Kind) or value is before.get(name)
                    after[name] = known if keep else _joined(known, value)
        scope.names = after
        return end

    def _set(self, name: str, value: Any, scope: Scope) -> None:
        while name in scope.outer and scope.parent is not None:
            scope = scope.parent
        scope.names[name] = value

    def _bind(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name(id=name):
                self._set(name, value, scope)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                known = isinstance(value, list | tuple) and len(value) == len(targets)
                for at, one in enumerate(targets):
                    inner = one.value if isinstance(one, ast.Starred) else one
                    self._bind(inner, value[at] if known else self._item(value, at, target, scope), scope)
            case ast.Attribute(value=owner, attr=name):
                self._put(self._values(self.value(owner, scope)), name, value)
            case ast.Subscript(value=owner, slice=key):
                where = self.value(owner, scope)
                self._put(where if isinstance(where, dict) else self._values(where), self.value(key, scope), value)

    def _values(self, owner: Any) -> dict[Any, Any]:
        """Where attributes of an object are kept."""
        if isinstance(owner, _Bag):
            return owner
        return owner.values if isinstance(owner, Instance | Kind) else owner.keys if isinstance(owner, Made) else {}

    def _put(self, values: dict[Any, Any], key: Any, value: Any) -> None:
        if isinstance(key, str | int) and len(values) < LONGEST:
            sure = not self._unsure or (key in values and _equal(values[key], value))
            values[key] = value if sure else Unknown(why="an if or a loop of the script sets it")

    # -- expressions ---------------------------------------------------------------------------------------------------

    def value(self, node: ast.AST, scope: Scope) -> Any:
        """What an expression is."""
        self._step()
        if self._depth >= DEEPEST:
            return Unknown(node)
        self._depth += 1
        try:
            found = self._value(node, scope)
        finally:
            self._depth -= 1
        return found if _small(found) else Unknown(node)

    def _value(self, node: ast.AST, scope: Scope) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._name(name, scope)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(self.value(owner, scope), name, node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                found: list[Any] = []
                for item in items:
                    one = self.value(item.value if isinstance(item, ast.Starred) else item, scope)
                    several = isinstance(item, ast.Starred) and isinstance(one, list | tuple)
                    found += one if several else [one]
                return tuple(found) if isinstance(node, ast.Tuple) else found
            case ast.Dict(keys=keys, values=values):
                result: dict[Any, Any] = {}
                for key, each in zip(keys, values, strict=True):
                    one = self.value(each, scope)
                    if key is None:
                        own = one.keys if isinstance(one, Made) and one.name == "row" else {"**": Unknown(each)}
                        result |= one if isinstance(one, dict) else own
                    elif isinstance(name := self.value(key, scope), str | int | float | None):
                        result[name] = one
                return result
            case ast.JoinedStr(values=parts):
                return _text([self._formatted(part, scope) for part in parts])
            case ast.BinOp(left=left, op=operation, right=right):
                return self._operated(operation, self.value(left, scope), self.value(right, scope), node)
            case ast.UnaryOp(op=operation, operand=operand):
                value = self.value(operand, scope)
                if isinstance(operation, ast.Not):
                    true = self._truth(value)
                    return Unknown(node) if true is None else not true
                known = isinstance(value, int | float)
                return (-value if isinstance(operation, ast.USub) else value) if known else Unknown(node)
            case ast.BoolOp(op=operation, values=values):
                for each in values:
                    found = self.value(each, scope)
                    true = self._truth(found)
                    if true is None or true is isinstance(operation, ast.Or):
                        break
                return Unknown(node) if true is None and each is not values[-1] else found
            case ast.Compare(left=left, ops=[operation], comparators=[right]):
                return self._compared(operation, self.value(left, scope), self.value(right, scope), node)
            case ast.IfExp(test=test, body=body, orelse=other):
                true = self._truth(self.value(test, scope))
                if true is None:
                    return _joined(self.value(body, scope), self.value(other, scope))
                return self.value(body if true else other, scope)
            case ast.Subscript(value=owner, slice=key):
                return self._item(self.value(owner, scope), self.value(key, scope), node, scope)
            case ast.Slice(lower=lower, upper=upper, step=step):
                ends = [None if part is None else self.value(part, scope) for part in (lower, upper, step)]
                return slice(*ends) if all(isinstance(end, int | None) for end in ends) else Unknown(node)
            case ast.Lambda():
                return self._function(node, scope)
            case ast.NamedExpr(target=target, value=value):
                found = self.value(value, scope)
                self._bind(target, found, scope)
                return found
            case ast.Await(value=value):
                return self.value(value, scope)
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp() | ast.SetComp():
                return self._comprehended(node, scope)
        return Unknown(node)

    def _name(self, name: str, scope: Scope) -> Any:
        holder = scope.holder(name)
        if holder is not None:
            return holder.names[name]
        if name == "__file__":
            return PathText(str(scope.module.path))
        return scope.module.name if name == "__name__" else LibraryName(name)

    def _formatted(self, part: ast.expr, scope: Scope) -> Any:
        if not isinstance(part, ast.FormattedValue):
            return self.value(part, scope)
        value = self.value(part.value, scope)
        form = "" if part.format_spec is None else self.value(part.format_spec, scope)
        if not isinstance(value, str | int | float | None) or not isinstance(form, str):
            return value if isinstance(value, Text) else _Part(value)
        if not re.fullmatch(r"[<>^]?[+,]?\d{0,2}(\.\d{1,2})?[a-z%]?", form):
            return Unknown(part)
        try:
            return format(repr(value) if part.conversion == ord("r") else value, form)
        except _FAILS:
            return Unknown(part)

    def _attribute(self, owner: Any, name: str, node: ast.AST | None, scope: Scope) -> Any:
        match owner:
            case LibraryName(path=path):
                return LibraryName(f"{path}.{name}", owner.line)
            case Instance(kind=kind, values=values):
                found = values.get(name, None if kind is None else kind.member(name))
                if name == "__dict__":
                    return values
                if name in values or not isinstance(found, Function):
                    return found if name in values or found is not None else Unknown(node)
                method = _bound(found, owner)
                is_property = any(
                    getattr(one, "tail", "") in {"property", "cached_property"} for one in found.decorators
                )
                return self._inline(method, [], {}, node or found.node) if is_property else method
            case Kind():
                found = owner.member(name)
                return Unknown(node) if found is None else _default(found, self)
            case Made():
                return self._given(owner, name, node, scope)
            case PathText() if name in {"parent", "name", "stem", "suffix"}:
                return PathText(getattr(Path(owner), name))
            case str() | list() | dict() | tuple():
                return owner[name] if isinstance(owner, _Bag) and name in owner else _Method(owner, name)
        return Unknown(node)

    def _given(self, owner: Made, name: str, node: ast.AST | None, scope: Scope) -> Any:
        """An attribute of what a library made: as it was given, or as a command line has it by default."""
        if name in owner.keys:
            return owner.keys[name]
        if owner.name == "parse_args":
            arguments = self._arguments()
            return arguments[name] if name in arguments else Unknown(node)
        if name in LIBRARY and owner.how == "call" and owner.name.endswith(("Config", "Arguments")):
            return LIBRARY[name]
        return Made("attribute", name, owner, [], {}, node, scope)

    def settings_of(self, value: Any) -> dict[str, Any]:
        """The attributes of what a parser of a command line gives."""
        if isinstance(value, Made):
            return {**(self._arguments() if value.name == "parse_args" else LIBRARY), **value.keys}
        return dict(value.values) if isinstance(value, Instance) else {}

    def _arguments(self) -> dict[str, Any]:
        """The arguments of the command line, with their defaults."""
        found: dict[str, Any] = {}
        self._steps += len(self.made) // 8
        for call in self.made:
            if call.name == "set_defaults":
                found |= call.keys
            if call.name != "add_argument" or not (names := [one for one in call.args if isinstance(one, str)]):
                continue
            long = next((one for one in names if one.startswith("--")), names[0])
            name = call.keys.get("dest") or long.lstrip("-").replace("-", "_")
            flags = {"store_true": False, "store_false": True}
            action = call.keys.get("action")
            value = call.keys.get("default", flags.get(action) if isinstance(action, str) else None)
            kind = getattr(call.keys.get("type"), "path", "")
            if isinstance(value, str) and kind in {"int", "float"}:
                value = self._calculated(kind, [value], {}, call.node)
            if value is None and "default" not in call.keys:
                value = Unknown(why=f"{long} has no default")
            found[str(name)] = value
        return found

    def _item(self, owner: Any, key: Any, node: ast.AST, scope: Scope) -> Any:
        match owner:
            case Made() if isinstance(key, str) and key in owner.keys and owner.how == "call":
                return owner.keys[key]
            case Made():
                return Made("item", "", owner, [key], {}, node, scope)
            case Instance() if isinstance(key, str) and key in owner.values:
                return owner.values[key]
            case list() | tuple() | str() | dict() if isinstance(key, str | int | slice):
                try:
                    inside: Any = owner
                    return inside[key]
                except _FAILS:
                    return Unknown(node)
        return Unknown(node)

    def _operated(self, operation: ast.operator, one: Any, other: Any, node: ast.AST) -> Any:
        if isinstance(one, PathText) and isinstance(operation, ast.Div) and isinstance(other, str):
            return PathText(os.path.join(one, other))  # noqa: PTH118
        pair = {type(one), type(other)}
        if isinstance(operation, ast.Add) and pair & {str, Text} and pair <= {str, PathText, Text, Made}:
            return _text([_Part(item) if isinstance(item, Made) else item for item in (one, other)])
        if isinstance(operation, ast.Mod) and isinstance(one, str):
            return Unknown(node)
        sized = [item for item in (one, other) if isinstance(item, str | list | tuple)]
        numbers = [abs(item) for item in (one, other) if isinstance(item, int | float)]
        known = len(sized) + len(numbers) + sum(isinstance(item, dict) for item in (one, other))
        bounded = {
            ast.Mult: not sized or len(sized[0]) * max(numbers, default=0) <= LONGEST,
            ast.Pow: max(numbers, default=0) <= 10**6 and len(numbers) == 2 and numbers[1] <= 64,
            ast.LShift: len(numbers) == 2 and numbers[1] <= 64,
        }.get(type(operation), True)
        if known < 2 or not bounded or type(operation) not in _OPERATIONS:
            return Unknown(node)
        try:
            found = _OPERATIONS[type(operation)](one, other)
            return float(f"{found:.12g}") if isinstance(found, float) else found
        except _FAILS:
            return Unknown(node)

    def _compared(self, operation: ast.cmpop, one: Any, other: Any, node: ast.AST) -> Any:
        same = isinstance(operation, ast.Is | ast.Eq)
        if isinstance(operation, ast.Is | ast.IsNot | ast.Eq | ast.NotEq) and None in (one, other):
            known = one if other is None else other
            if isinstance(known, Unknown) or (isinstance(known, Made) and known.how != "call"):
                return Unknown(node)
            return (known is None) is same
        keys = [*other] if isinstance(other, dict) else other
        if UNKNOWN in (plain(one), plain(keys)) or type(operation) not in _COMPARED:
            return Unknown(node)
        try:
            return _COMPARED[type(operation)](one, keys)
        except _FAILS:
            return Unknown(node)

    def _truth(self, value: Any) -> bool | None:
        """Whether a value counts as true; None where that is not known."""
        if isinstance(value, Function | Kind | Instance):
            return True
        return bool(value) if isinstance(value, str | int | float | list | tuple | dict | None) else None

    def _comprehended(self, node: Any, scope: Scope) -> Any:
        first = node.generators[0]
        items = self.value(first.iter, scope)
        items = [*items] if isinstance(items, dict) else items
        inner = Scope(scope.module, scope)
        known = isinstance(items, list | tuple) and len(items) <= MOST_ROUNDS and len(node.generators) == 1
        if not known:
            self._bind(first.target, self._item(items, Unknown(first.target), node, scope), inner)
            if not isinstance(items, Made) or isinstance(node, ast.DictComp) or len(node.generators) > 1:
                return Unknown(node)
            return Made("call", "rows", items, [self.value(node.elt, inner)], {}, node, scope)
        found: list[Any] = []
        for item in items:
            self._bind(first.target, item, inner)
            tests = [self._truth(self.value(test, inner)) for test in first.ifs]
            if None in tests:
                return Unknown(node)
            if all(tests):
                pair = isinstance(node, ast.DictComp)
                parts = (node.key, node.value) if pair else (node.elt,)
                one = tuple(self.value(part, inner) for part in parts)
                found.append(one if pair else one[0])
        if isinstance(node, ast.DictComp):
            return {key: each for key, each in found if isinstance(key, str | int)}
        return found

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        function = self.value(node.func, scope)
        args: list[Any] = []
        for item in node.args:
            found = self.value(item.value if isinstance(item, ast.Starred) else item, scope)
            several = isinstance(item, ast.Starred) and isinstance(found, list | tuple)
            args += found if several else [Unknown(item) if isinstance(item, ast.Starred) else found]
        keys: dict[str, Any] = {}
        for key in node.keywords:
            given = self.value(key.value, scope)
            if key.arg:
                keys[key.arg] = given
            else:
                keys |= (
                    {str(name): each for name, each in given.items()}
                    if isinstance(given, dict)
                    else {"**": Unknown(key.value, f"**{source(key.value)}")}
                )
        return self.called(function, args, keys, node, scope)

    def called(self, function: Any, args: list[Any], keys: dict[str, Any], node: ast.AST, scope: Scope) -> Any:
        """What a call gives."""
        match function:
            case Function():
                return self._inline(function, args, keys, node, scope)
            case Kind():
                return self._instance(function, args, keys, node, scope)
            case _Method(base=base, name=name):
                try:
                    return self._method(base, name, args, keys, node)
                except _FAILS:
                    return Unknown(node)
            case LibraryName(path=path):
                return self._library(path, args, keys, node, scope)
            case Made(how="attribute", name=name, owner=owner):
                return self._made(name, owner, args, keys, node, scope)
            case Made(how="call", name="partial", args=[inner, *first]):
                return self.called(inner, [*first, *args], {**function.keys, **keys}, node, scope)
        return Unknown(node)

    def _made(self, name: str, owner: Any, args: list[Any], keys: dict[str, Any], node: ast.AST, scope: Scope) -> Any:
        if name in PARSED:
            return self._parsers(name, owner, args, scope, node)
        if name in {"parse_args", "parse_known_args"}:
            self.parsers.append(name)
            parsed = Made("call", "parse_args", owner, args, keys, node, scope)
            return (parsed, []) if name == "parse_known_args" else parsed
        made = Made("call", name, owner, args, keys, node, scope)
        self.made.append(made)
        return made

    def _parsers(self, name: str, owner: Any, args: list[Any], scope: Scope, node: ast.AST) -> Any:
        """The objects that HfArgumentParser and TrlParser fill."""
        kinds = next(iter(owner.args), owner.keys.get("dataclass_types")) if isinstance(owner, Made) else None
        kinds = kinds if isinstance(kinds, list | tuple) else [kinds]
        given = self.settings
        if name == "parse_dict":
            given = args[0] if args and isinstance(args[0], dict) else {}
        elif name.endswith("_file") and args and isinstance(args[0], str):
            loaded = self._loaded(args[0], scope)
            given = loaded if isinstance(loaded, dict) else {}
        self.parsers.append(name)
        known = {key for kind in kinds if isinstance(kind, Kind) for key in kind.fields()}
        found = []
        for kind in kinds:
            if isinstance(kind, Kind):
                own = {*kind.fields(), *(LIBRARY if kind.library().endswith("Arguments") else ())}
            elif isinstance(kind, LibraryName) and kind.tail.startswith(("GRPO", "SFT", "Training")):
                own = given.keys() - LIBRARY.keys() - known
            else:
                own = {*LIBRARY}
            keys = {key: each for key, each in given.items() if key in own}
            found.append(self.called(kind, [], keys, node, scope))
        return found

    def _library(self, path: str, args: list[Any], keys: dict[str, Any], node: ast.AST, scope: Scope) -> Any:
        path = path.removeprefix("builtins.").removeprefix("pathlib.")
        tail = path.rpartition(".")[2]
        if path in _CALCULATED:
            return self._calculated(path, args, keys, node)
        first = args[0] if args else None
        match tail:
            case "dict" if path == "dict" and (isinstance(first, dict | list) or not args):
                try:
                    return {**dict(first or {}), **keys}
                except _FAILS:
                    return Unknown(node)
            case "range" if path == "range" and args and all(isinstance(one, int) for one in args):
                if len(span := range(*args)) <= MOST_ROUNDS:
                    return [*span]
            case "getenv" | "get" if path in {"os.getenv", "os.environ.get"}:
                value = args[1] if len(args) > 1 else keys.get("default")
                return Unknown(node) if value is None else value
            case "getattr" if path == "getattr" and len(args) > 1 and isinstance(args[1], str):
                found = self._attribute(first, args[1], node, scope)
                missing = isinstance(found, Unknown) or (isinstance(found, Made) and found.how == "attribute")
                return args[2] if missing and len(args) > 2 and not isinstance(first, Unknown) else found
            case "import_module" if isinstance(first, str):
                return LibraryName(first, f"import {first}")
            case "replace" if path in {"replace", "dataclasses.replace"} and isinstance(first, Instance | Made):
                return _changed(first, keys)
            case "asdict" | "vars" if isinstance(first, Instance):
                return dict(first.values)
            case "vars" if isinstance(first, Made):
                return {**(self._arguments() if first.name == "parse_args" else {}), **first.keys}
            case "cli" | "parse" if isinstance(first, Kind):
                self.parsers.append(tail)
                return self._instance(first, [], {}, node, scope)
            case _ if path in _COPIES and args:
                return _changed(first, {}) if isinstance(first, Instance | Made) else _copied(first)
            case _ if tail in _BAGS and isinstance(first, dict | None):
                return _bags({**(first or {}), **keys})
            case _ if tail in _LOADERS and (loaded := self._loaded(first, scope)) is not None:
                return loaded
        made = Made("call", tail, LibraryName(path.rpartition(".")[0]), args, keys, node, scope)
        self.made.append(made)
        return made

    def _calculated(self, name: str, args: list[Any], keys: dict[str, Any], node: ast.AST | None) -> Any:
        if (unknown := next((one for one in args if isinstance(one, Unknown)), None)) is not None:
            return Unknown(node, unknown.why)
        inner = name in {"list", "tuple", "zip", "enumerate", "len"}  # of anything; the others look at what is inside
        if not all(
            isinstance(one, str | int | list | tuple | dict) if inner else plain(one) is not UNKNOWN
            for one in (*args, *keys.values())
        ):
            return Unknown(node)
        try:
            return _CALCULATED[name](*args, **keys)
        except _FAILS:
            return Unknown(node)

    def _loaded(self, what: Any, scope: Scope) -> Any:
        """The values of a file of settings that lies beside the script; None where it is none."""
        while isinstance(what, Made) and what.name in {"open", "read", "read_text", "resolve", "absolute"}:
            what = what.args[0] if what.name == "open" and what.args else what.owner
        name = str(what) if isinstance(what, str) else ""
        suffix = Path(name).suffix
        folders = (Path(), scope.module.path.parent)
        safe = suffix in {".yaml", ".yml", ".json"} and not Path(name).is_absolute() and ".." not in Path(name).parts
        path = next((folder / name for folder in folders if safe and (folder / name).is_file()), None)
        if path is None:
            return None
        read = read_settings(path)
        return _bags(read) if isinstance(read, dict) else None

    def _method(self, base: Any, name: str, args: list[Any], keys: dict[str, Any], node: ast.AST) -> Any:
        sure = not self._unsure
        match base:
            case dict():
                if name == "get" and args and isinstance(args[0], str | int):
                    return base.get(args[0], args[1] if len(args) > 1 else None)
                if name == "pop" and args and sure and isinstance(args[0], str | int):
                    return base.pop(*args[:2])
                if name == "copy":
                    return dict(base)
                if name == "update":
                    for key, each in {**(args[0] if args and isinstance(args[0], dict) else {}), **keys}.items():
                        self._put(base, key, each)
                    return None
                if name == "setdefault" and len(args) == 2 and isinstance(args[0], str | int):
                    return base.setdefault(*args)
                if name in {"items", "keys", "values"}:
                    return list(getattr(base, name)())
            case list() if name in {"append", "extend", "insert", "copy"} and len(base) < LONGEST:
                if name == "copy":
                    return list(base)
                if name == "append" and not base and self._loops and self._loops[-1][0] == self._unsure:
                    _, target, over = self._loops[-1]
                    if isinstance(over, Made) and isinstance(node, ast.Call):  # a row for each of a data set
                        loop = [ast.comprehension(target, target, [], 0)]
                        args = [Made("call", "rows", over, args, {}, ast.ListComp(node.args[0], loop), over.scope)]
                        base += args
                        return None
                items = args[-1] if name == "extend" and isinstance(args[-1], list | tuple) else [args[-1]]
                items = items if sure else [Unknown(node, f"{source(node)} is in an if or a loop")]
                base[0:0] = items if name == "insert" else []
                base += items if name != "insert" else []
                return None
            case str():
                if isinstance(base, PathText) and name in {"resolve", "absolute", "expanduser", "as_posix"}:
                    return base
                if isinstance(base, PathText) and name == "joinpath":
                    return PathText(os.path.join(base, *args))  # noqa: PTH118
                if name == "format":
                    return _filled(base, args, keys, node)
                if name == "join" and args and isinstance(args[0], list | tuple):
                    parts = [one for item in args[0] for one in (base, _Part(item) if isinstance(item, Made) else item)]
                    return _text(parts[1:])
                if name == "replace" and len(base) * max(1, len(args[1])) <= LONGEST:
                    return base.replace(*args)
                if name in _TEXT_METHODS:
                    return getattr(base, name)(*args)
                if isinstance(base, PathText) and name in {"read_text", "open"}:
                    return Made("call", "open", None, [str(base)], keys, node, self.scope)
        return Unknown(node)

    def _function(self, node: Any, scope: Scope, decorators: Sequence[Any] = ()) -> Function:
        named, given = [*node.args.posonlyargs, *node.args.args], node.args.defaults
        pairs = [*zip(named[len(named) - len(given) :], given, strict=True)]
        pairs += [pair for pair in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if pair[1] is not None]
        return Function(node, scope, {item.arg: self.value(value, scope) for item, value in pairs}, decorators)

    def _inline(
        self, function: Function, args: list[Any], keys: dict[str, Any], node: ast.AST, scope: Scope | None = None
    ) -> Any:
        """Follow a function of the script; what it returns."""
        if function.node in self._active:
            return Unknown(node)
        inner = Scope(function.scope.module, function.scope)
        names = function.node.args
        positional = [*names.posonlyargs, *names.args]
        args = args if function.itself is None else [function.itself, *args]
        for item in [*positional, *names.kwonlyargs]:
            fallback = self._command(function, item.arg)
            value = keys.get(item.arg, function.defaults.get(item.arg, fallback))
            inner.names[item.arg] = _option(value)
        inner.names |= {item.arg: value for item, value in zip(positional, args, strict=False)}
        known = {item.arg for item in [*positional, *names.kwonlyargs]}
        if names.vararg:
            inner.names[names.vararg.arg] = tuple(args[len(positional) :])
        if names.kwarg:
            inner.names[names.kwarg.arg] = {key: each for key, each in keys.items() if key not in known}
        self._followed.add(function.node)
        self._active.append(function.node)
        try:
            if isinstance(function.node, ast.Lambda):
                return self.value(function.node.body, inner)
            end = self._run(function.node.body, inner)
        finally:
            self._active.pop()
        if any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(function.node)):
            return Unknown(node)
        values = inner.returned + ([] if end == "return" or end == "raise" else [None])
        found = values[0] if values else None
        for other in values[1:]:
            found = _joined(found, other)
        if isinstance(found, Function | Instance) and found.origin is None and scope is not None:
            found.origin = node, scope
        return found

    def _command(self, function: Function, name: str) -> Any:
        """What a decorator gives a parameter that has no default: an option of click, or the configuration of hydra."""
        for made in (one for one in function.decorators if isinstance(one, Made)):
            options = [str(one).lstrip("-").replace("-", "_") for one in made.args if isinstance(one, str)]
            if made.name == "option" and name in options and "default" in made.keys:
                return made.keys["default"]
            if isinstance(config := made.keys.get("config_name"), str):
                folder = made.keys.get("config_path") or "."
                where = f"{folder}/{config.removesuffix('.yaml')}.yaml"
                loaded = self._loaded(os.path.normpath(where), function.scope)
                if loaded is not None:
                    return loaded
        return Unknown(why=f"{name} has no default")

    def _instance(self, kind: Kind, args: list[Any], keys: dict[str, Any], node: ast.AST, scope: Scope) -> Any:
        fields = {name: _default(value, self) for name, value in kind.fields().items()}
        start = kind.member("__init__")
        library = kind.library()
        if library and not (isinstance(start, Function) and not library.endswith("Trainer")):
            made = Made("call", library, None, args, {**fields, **keys}, node, scope, kind.node.name)
            made.keys = keys if library.endswith("Trainer") else made.keys
            self.made.append(made)
            return made
        found = Instance(kind, {**fields}, (node, scope))
        if isinstance(start, Function):
            self._inline(_bound(start, found), args, keys, node)
        else:
            found.values |= {**dict(zip(fields, args, strict=False)), **keys}
            if isinstance(after := kind.member("__post_init__"), Function):
                self._inline(_bound(after, found), [], {}, node)
        return found

    def _beside(self, name: str, scope: Scope) -> Scope | None:
        """A module that lies beside the script, followed; None where there is none."""
        parts = name.split(".")
        if not all(part.isidentifier() for part in parts) or len(self._modules) >= MOST_FILES:
            return None
        folder = scope.module.path.parent.joinpath(*parts)
        for path in (folder.with_suffix(".py"), folder / "__init__.py"):
            if path in self._modules:
                return self._modules[path]
            if path.is_file() and path != self.main.path:
                try:
                    module = read_module(path, name)
                except RecipeError:
                    return None
                inner = self._modules[path] = Scope(module)
                self._run(module.tree.body, inner)
                return inner
        return None


class _Bag(dict[str, Any]):
    """Values that some libraries give as attributes too."""


def _bags(value: Any) -> Any:
    return _Bag({key: _bags(each) for key, each in value.items()}) if isinstance(value, dict) else value


@dataclass(eq=False, repr=False)
class _Part:
    """What stands in braces of a text."""

    value: Any


def read_settings(path: Path) -> Any:
    """Values of a file of YAML or JSON.

    Raises:
        RecipeError: it cannot be read.
    """
    return read_yaml(read_text(path, RecipeError, LARGEST), str(path), strict=False)


def _text(parts: list[Any]) -> Any:
    flat = [one for part in parts for one in (part.parts if isinstance(part, Text) else [part])]
    if all(isinstance(part, str) for part in flat):
        return "".join(flat) if sum(map(len, flat)) <= LONGEST else UNKNOWN
    if len(flat) > MOST_ROUNDS:
        return UNKNOWN
    unknown = [one for part in flat if isinstance(one := part.value if isinstance(part, _Part) else part, Unknown)]
    return unknown[0] if unknown else Text([part.value if isinstance(part, _Part) else part for part in flat])


def _filled(text: str, args: Sequence[Any], keys: Mapping[str, Any], node: ast.AST) -> Any:
    """What `format` makes of a text whose braces hold names or nothing."""
    parts: list[Any] = []
    rest = iter(args)
    for piece in re.split(r"(\{\{|\}\}|\{\w*\})", text):
        if piece in {"{{", "}}"}:
            parts.append(piece[0])
        elif re.fullmatch(r"\{\w*\}", piece):
            name = piece[1:-1]
            value = next(rest) if not name else args[int(name)] if name.isdigit() else keys[name]
            parts.append(str(value) if isinstance(value, str | int | float) else _Part(value))
        elif "{" in piece or "}" in piece:
            return Unknown(node)
        else:
            parts.append(piece)
    return _text(parts)


def _bound(function: Any, owner: Any) -> Any:
    if any(getattr(item, "path", "") == "staticmethod" for item in function.decorators):
        return function
    return Function(function.node, function.scope, function.defaults, function.decorators, owner)


def _option(value: Any) -> Any:
    """The default of typer's Option and Argument."""
    is_option = isinstance(value, Made) and value.name in {"Option", "Argument"}
    return value.keys.get("default", value.args[0] if value.args else Unknown(value.node)) if is_option else value


def _default(value: Any, script: Script) -> Any:
    """A field's default: its own, or what `field` says."""
    if not isinstance(value, Made) or value.name not in {"field", "Field"}:
        return _copied(value)
    if (factory := value.keys.get("default_factory")) is not None:
        if isinstance(factory, LibraryName):
            return {"list": [], "dict": {}}.get(factory.path, Unknown(value.node))
        return script.called(factory, [], {}, value.node or ast.Pass(), value.scope)
    return value.keys.get("default", value.args[0] if value.args else Unknown(value.node))


def _copied(value: Any) -> Any:
    return list(value) if isinstance(value, list) else dict(value) if isinstance(value, dict) else value


def _changed(value: Instance | Made, keys: Mapping[str, Any]) -> Any:
    """A copy with other values."""
    if isinstance(value, Instance):
        return Instance(value.kind, {**value.values, **keys}, value.origin)
    return Made(value.how, value.name, value.owner, value.args, {**value.keys, **keys}, value.node, value.scope)
