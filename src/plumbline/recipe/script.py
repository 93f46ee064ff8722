"""What the names of a Python script stand for, as far as its text says it; nothing of the script is
run or imported.

The syntax tree is followed in the order in which Python would run it. Constants are calculated,
functions and classes of the script are followed into, and what a library would give is kept as the
call that asks for it (`LibraryValue`). All else is `Unknown`. Steps, depth and the size of every value are
bounded: a script is foreign text.
"""

import ast
import operator
import os.path
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from string import Formatter
from typing import Any

from plumbline.config.overrides import read_package_yaml, read_yaml
from plumbline.errors import PlumblineError, RecipeError
from plumbline.records import Values
from plumbline.storage import SMALL, one_line, parse_json, read_text, shorten

LARGEST = 2**20
"""Bytes of a script. Its syntax tree has some thousand times as many."""
LARGEST_NUMBER = 2**64
LONGEST = 2**16
"""Letters of a text, and items of a list, that are calculated."""
MOST_STEPS, DEEPEST, MOST_ROUNDS, MOST_FILES = 300_000, 90, 200, 20
"""Expressions that are followed; expressions and statements inside each other; rounds of a loop;
modules beside it."""
LONGEST_SHOWN = 120
"""Letters of a value or an expression in a note."""
TRL = read_package_yaml(Path(__file__).with_name("trl.yaml"))
LIBRARY: Values = TRL["library"]
"""Keys of TRL's ScriptArguments, ModelConfig and DatasetMixtureConfig, with their defaults."""


@dataclass(eq=False, repr=False)
class Unknown:
    """What only a run of the script would tell."""

    node: ast.AST | None = None
    why: str = ""
    unset: bool = False
    """Whether it is nothing unless it is set: a variable of the environment, an option of a command
    line."""

    def __str__(self) -> str:
        return self.why or unparse_expression(self.node)


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
class Scope:
    """The names of a module, or of a call of a function."""

    module: "Module"
    parent: "Scope | None" = None
    names: Values = field(default_factory=dict)
    returned: list[Any] = field(default_factory=list)

    def holder(self, name: str) -> "Scope | None":
        """The scope that binds a name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.parent
        return scope


@dataclass(eq=False, repr=False)
class LibraryValue:
    """What a library gives: the result of a `call`, an `attribute` or an `item` of what it gave
    before."""

    how: str
    name: str
    owner: Any
    args: list[Any]
    keys: Values
    node: ast.AST | None
    scope: Scope
    kind: str = ""
    """The class of the script that inherits from what is called."""

    def item(self, key: Any, node: ast.AST | None = None) -> "LibraryValue":
        """What stands under a key."""
        return LibraryValue("item", "", self, [key], {}, node, self.scope)


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
    defaults: Values
    decorators: Sequence[Any] = ()
    itself: Any = None
    origin: tuple[ast.AST, Scope] | None = None
    """The call that returned it."""

    @property
    def name(self) -> str:
        """Empty for a lambda."""
        return getattr(self.node, "name", "")


@dataclass(eq=False, repr=False)
class ScriptClass:
    """A class of the script."""

    node: ast.ClassDef
    scope: Scope
    values: Values
    bases: list[Any]

    def fields(self) -> Values:
        """What is declared with a type, and those of classes above, with their defaults."""
        found = {
            key: each
            for base in self.bases
            if isinstance(base, ScriptClass)
            for key, each in base.fields().items()
        }
        for item in self.node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                name = item.target.id
                found[name] = self.values.get(
                    name, Unknown(why=f"{self.node.name}.{name} has no default")
                )
        return found

    def member(self, name: str) -> Any:
        """A method, or another value of the class; None where there is none."""
        if name in self.values:
            return self.values[name]
        return next(
            (
                found
                for base in self.bases
                if isinstance(base, ScriptClass) and (found := base.member(name))
            ),
            None,
        )

    def library(self) -> str:
        """The class of a library that it inherits from."""
        names = [
            base.library() if isinstance(base, ScriptClass) else getattr(base, "tail", "")
            for base in self.bases
        ]
        return next(
            (name for name in names if name.endswith(("Trainer", "Config", "Arguments"))), ""
        )


@dataclass(eq=False, repr=False)
class Instance:
    """An object of a class of the script, or a module beside it."""

    kind: ScriptClass | None
    values: Values
    origin: tuple[ast.AST, Scope] | None = None


@dataclass(eq=False, repr=False)
class Text:
    """A text with parts that are not constants."""

    parts: list[Any]


class AttributeDict(dict[str, Any]):
    """Values that some libraries give as attributes too."""


# -- files -----------------------------------------------------------------------------------------

_MAGIC = re.compile(r"^([ \t]*)(?:[!%?].*|[\w.]+\?{1,2})$")
_SHELL = re.compile(r"^([ \t]*[\w, ]+=[ \t]*)[!%].*$")


def read_module(path: Path, name: str = "__main__") -> Module:
    """Read a script, or the cells of a notebook.

    Raises:
        RecipeError: it cannot be read, or is no Python.
    """
    is_notebook = path.suffix == ".ipynb"
    text = read_text(path, RecipeError, SMALL if is_notebook else LARGEST)
    notes, kept = [], []
    for number, cell in enumerate(_cells(text, path) if is_notebook else [text], 1):
        if is_notebook and re.match(r"\s*%%(?!(capture|time|timeit)\b)", cell):
            continue
        try:
            _parse_source(cell, path)
        except RecipeError:
            cell = _without_magics(cell)
            try:
                _parse_source(cell, path)
            except RecipeError:
                if not is_notebook:
                    raise
                notes.append(f"cell {number} is no Python, and was not read")
                continue
        kept.append(cell)
    whole = "\n".join(kept)
    return Module(path, whole, _parse_source(whole, path), name, notes)


def _parse_source(text: str, path: Path) -> ast.Module:
    if len(text) > LARGEST:
        raise RecipeError(
            f"{path} has more than {LARGEST:,} letters of code", "give the script that trains alone"
        )
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        deep = isinstance(error, MemoryError | RecursionError)
        why = "it is nested too deeply" if deep else one_line(error)
        raise RecipeError(
            f"{path} is no Python: {why}", "give the script that trains with TRL"
        ) from error


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
    fix = "give the notebook as it is saved"
    try:
        whole = parse_json(text)
    except (PlumblineError, ValueError, RecursionError) as error:
        raise RecipeError(f"{path} is no notebook: it is not JSON", fix) from error
    if not (cells := whole.get("cells") if isinstance(whole, dict) else None):
        raise RecipeError(f"{path} is no notebook: it has no cells", fix)
    for cell in cells:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            lines = cell.get("source", "")
            yield "".join(map(str, lines)) if isinstance(lines, list) else str(lines)


def read_settings(path: Path) -> Any:
    """Values of a file of YAML or JSON.

    Raises:
        RecipeError: it cannot be read.
    """
    return read_yaml(read_text(path, RecipeError, LARGEST), str(path), strict=False)


# -- values ----------------------------------------------------------------------------------------

UNKNOWN = Unknown()


def to_recipe_value(value: Any) -> Any:
    """A value that a recipe can hold; `UNKNOWN` for all else: bytes, endless numbers, NUL, half of
    a character."""
    left = [10_000]

    def of(one: Any) -> Any:
        left[0] -= 1
        match one:
            case _ if left[0] < 0:
                raise ValueError
            case PurePath():
                return of(str(one))
            case str() if "\0" not in one and one == one.encode(errors="ignore").decode():
                return one
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


def describe_value(value: Any) -> str:
    """A value in a note."""
    return shorten(repr(value), LONGEST_SHOWN, words=True)


def unparse_expression(node: ast.AST | None) -> str:
    """How an expression is written."""
    try:
        text = "..." if node is None else " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):  # an integer of thousands of digits
        return "..."
    return shorten(text, LONGEST_SHOWN, words=True)


def last_name(function: ast.AST) -> str:
    """The last name of what is called."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def is_row(value: Any) -> bool:
    """Whether a value is a row of the data."""
    return isinstance(value, LibraryValue) and value.name == "row"


def _merge_branches(one: Any, other: Any) -> Any:
    """What is known where either of two is so."""
    if one is other or _is_equal(one, other):
        return one
    if UNKNOWN not in (to_recipe_value(one), to_recipe_value(other)):
        either = " or ".join(describe_value(to_recipe_value(each)) for each in (one, other))
        return Unknown(why=f"{either}, as an if of the script decides")
    return next(
        (each for each in (one, other) if isinstance(each, Unknown)), Unknown(why="an if decides")
    )


def _is_equal(one: Any, other: Any) -> bool:
    return (
        type(one) is type(other)
        and to_recipe_value(one) is not UNKNOWN
        and to_recipe_value(one) == to_recipe_value(other)
    )


def _is_small(value: Any) -> bool:
    if isinstance(value, str | list | tuple | dict):
        return len(value) <= LONGEST
    return not isinstance(value, int) or abs(value) <= LARGEST_NUMBER**4


def _join_text(parts: Sequence[Any]) -> Any:
    flat = [one for part in parts for one in (part.parts if isinstance(part, Text) else [part])]
    if all(isinstance(part, str) for part in flat):
        return "".join(flat) if sum(map(len, flat)) <= LONGEST else UNKNOWN
    unknown = [part for part in flat if isinstance(part, Unknown)]
    return unknown[0] if unknown else Text(flat) if len(flat) <= MOST_ROUNDS else UNKNOWN


def _fill_braces(text: str, args: Sequence[Any], keys: Mapping[str, Any], node: ast.AST) -> Any:
    """What `format` makes of a text whose braces hold names or nothing."""
    parts: list[Any] = []
    rest = iter(args)
    for between, name, form, conversion in Formatter().parse(text):
        parts.append(between)
        if name is not None:
            if form or conversion:
                return Unknown(node)
            value = next(rest) if not name else args[int(name)] if name.isdigit() else keys[name]
            parts.append(str(value) if isinstance(value, int | float) else value)
    return _join_text(parts)


def _make_bags(value: Any) -> Any:
    return (
        AttributeDict({key: _make_bags(each) for key, each in value.items()})
        if isinstance(value, dict)
        else value
    )


def _bind_method(function: Any, owner: Any) -> Any:
    static = any(getattr(item, "path", "") == "staticmethod" for item in function.decorators)
    return function if static else replace(function, itself=owner)


def _default_value(value: Any, script: "Script") -> Any:
    """A field's default, or an option's: its own, or what `field` says."""
    if not isinstance(value, LibraryValue) or value.name not in {
        "field",
        "Field",
        "Option",
        "Argument",
    }:
        return _copy_value(value)
    if (factory := value.keys.get("default_factory")) is not None:
        return script.call(factory, [], {}, value.node or ast.Pass(), value.scope)
    return value.keys.get("default", value.args[0] if value.args else Unknown(value.node))


def _copy_value(value: Any, **changed: Any) -> Any:
    match value:
        case Instance():
            return replace(value, values={**value.values, **changed})
        case LibraryValue():
            return replace(value, keys={**value.keys, **changed}) if changed else value
    return type(value)(value) if isinstance(value, list | dict) else value


_NAMES = {
    "Add": "add",
    "Sub": "sub",
    "Mult": "mul",
    "Div": "truediv",
    "FloorDiv": "floordiv",
    "Mod": "mod",
    "Pow": "pow",
    "BitOr": "or_",
    "Eq": "eq",
    "NotEq": "ne",
    "Lt": "lt",
    "LtE": "le",
    "Gt": "gt",
    "GtE": "ge",
    "Is": "eq",
    "IsNot": "ne",
}
_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    **{getattr(ast, one): getattr(operator, other) for one, other in _NAMES.items()},
    ast.In: lambda one, some: one in some,
    ast.NotIn: lambda one, some: one not in some,
}
_FAILS = (
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
    MemoryError,
)
"""What an operation on constants raises."""
_CHANGES = {*TRL["changes"]}
_METHODS = _CHANGES.union(TRL["methods"])
"""Of constants."""
_CALCULATED: dict[str, Callable[..., Any]] = {
    **{
        each.__name__: each
        for each in (int, float, str, bool, min, max, round, abs, sum, sorted, range)
    },
    "os.path.join": lambda *parts: os.path.join(*map(str, parts)),  # noqa: PTH118 - texts, as the script has them
    "os.path.dirname": os.path.dirname,
    "os.path.basename": os.path.basename,
    **dict.fromkeys(("Path", "PurePath", "Path.cwd"), PurePath),
    "os.getcwd": lambda: ".",
    **dict.fromkeys(("os.path.abspath", "os.path.realpath", "os.path.expanduser"), str),
}
"""Functions of constants alone."""
_GATHERED: dict[str, Callable[..., Any]] = {
    "len": len,
    "list": list,
    "tuple": tuple,
    "set": lambda items=(): list(dict.fromkeys(items)),
    "dict": lambda items=(), **more: {**dict(items), **more},
    "zip": lambda *some: list(zip(*some, strict=False)),
    "enumerate": lambda items, start=0: list(enumerate(items, start)),
}
"""Functions of constants that hold anything."""
PARSED = {*TRL["parsed"]}
_SEQUENCES = list | tuple | range | str


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
        self.made: list[LibraryValue] = []
        """All calls of libraries, in their order."""
        self.parsers: list[str] = []
        """Names of the parsers of a command line that the script asks."""
        self.read: set[str] = set()
        """Columns that functions of a row take from it."""
        self._modules: dict[Path, Scope] = {}
        self._steps = self._depth = self._unsure = 0
        self._active: list[ast.AST] = []
        self._loops: list[tuple[int, ast.expr, Any]] = []
        self._followed: set[ast.AST] = set()
        self.scope = Scope(module)
        self._run(module.tree.body, self.scope)

    def follow_unasked(self) -> None:
        """Follow functions that nothing calls, as a launcher would, until one makes a trainer."""
        own = [*self.scope.names.values()]
        found = [(None, one) for one in own if isinstance(one, Function)]
        methods = [
            (kind, one)
            for kind in own
            if isinstance(kind, ScriptClass)
            for one in kind.values.values()
        ]
        inner = {
            last_name(node)
            for _, one in [*found, *methods]
            for node in ast.walk(getattr(one, "node", ast.Pass()))
        }
        # first what no other names
        found.sort(key=lambda pair: pair[1].name in inner)
        for kind, one in [*found, *methods]:
            if any(call.name.endswith("Trainer") for call in self.made):
                break
            if (
                isinstance(one, Function)
                and one.node not in self._followed
                and one.scope is self.scope
            ):
                self._follow_function(
                    _bind_method(one, kind and Instance(kind, dict(kind.values))), [], {}, one.node
                )

    # -- statements --------------------------------------------------------------------------------

    def _run(self, body: Sequence[ast.stmt], scope: Scope) -> str:
        """Follow statements; how they end their block: `return`, `raise`, `break`, `continue`, or
        empty."""
        for node in body:
            self._step()
            if self._depth >= DEEPEST:
                return ""
            self._depth += 1
            try:
                end = self._run_statement(node, scope)
            finally:
                self._depth -= 1
            if end:
                return end
        return ""

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise RecipeError(
                f"{self.main.path} takes more than {MOST_STEPS:,} steps to read",
                "give --model, --data and --reward",
            )

    def _run_statement(self, node: ast.stmt, scope: Scope) -> str:
        match node:
            case ast.Assign(targets, value):
                found = self.value(value, scope)
                for target in targets:
                    self._bind(target, found, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, self.value(value, scope), scope)
            case ast.AugAssign(target, operation, value):
                self._bind(target, self.value(ast.BinOp(target, operation, value), scope), scope)
            case ast.Expr(value):
                found = self.value(value, scope)
                if isinstance(found, LibraryValue) and found.name in {"exit", "quit", "_exit"}:
                    return "raise"
            case ast.Return(value):
                scope.returned.append(None if value is None else self.value(value, scope))
                return "return"
            case ast.Raise() | ast.Break() | ast.Continue():
                return type(node).__name__.lower()
            case ast.If(test, body, other):
                true = self._is_true(self.value(test, scope))
                if true is None:
                    return self._follow_branches([body, other], scope)
                return self._run(body if true else other, scope)
            case ast.For(target, items, body):
                return self._loop(target, self.value(items, scope), body, scope)
            case ast.While(body=body):
                return self._follow_branches([body, []], scope)
            case ast.With(managers, body):
                for manager in managers:
                    found = self.value(manager.context_expr, scope)
                    if manager.optional_vars is not None:
                        self._bind(manager.optional_vars, found, scope)
                return self._run(body, scope)
            case ast.Try(body=body, orelse=other, finalbody=last):  # as though nothing was raised
                return self._run([*body, *other, *last], scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                decorators = [self.value(item, scope) for item in node.decorator_list]
                scope.names[node.name] = self._function(node, scope, decorators)
            case ast.ClassDef(name, bases, body=body):
                inner = Scope(scope.module, scope)
                self._run(body, inner)
                for found in inner.names.values():
                    if isinstance(found, Function) and found.scope is inner:
                        found.scope = scope
                scope.names[name] = ScriptClass(
                    node, scope, inner.names, [self.value(base, scope) for base in bases]
                )
            case ast.Import(names):
                for item in names:
                    name = item.name if item.asname else item.name.partition(".")[0]
                    beside = self._follow_sibling(item.name, scope)
                    library = LibraryName(name, ast.unparse(ast.Import([item])))
                    scope.names[item.asname or name] = (
                        Instance(None, beside.names) if beside else library
                    )
            case ast.ImportFrom(module, names, level):
                beside = self._follow_sibling(module or "", scope)
                for item in names:
                    line = ast.unparse(ast.ImportFrom(module, [item], level))
                    library = LibraryName(f"{module}.{item.name}".lstrip("."), line)
                    known = {} if beside is None else beside.names
                    if item.name == "*":
                        scope.names |= known
                    scope.names[item.asname or item.name] = known.get(item.name, library)
        return ""

    def _loop(self, target: ast.expr, items: Any, body: Sequence[ast.stmt], scope: Scope) -> str:
        items = [*items] if isinstance(items, dict) else items
        if not isinstance(items, _SEQUENCES) or len(items) > MOST_ROUNDS:
            self._bind(target, self._item(items, Unknown(target), target), scope)
            self._loops.append((self._unsure + 1, target, items))
            end = self._follow_branches([body, []], scope)
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

    def _follow_branches(self, bodies: Sequence[Sequence[ast.stmt]], scope: Scope) -> str:
        """Follow each of several blocks, and go on with what is true after all that do not
        leave."""
        before, after = scope.names, []
        self._unsure += 1
        for body in bodies:
            scope.names = dict(before)
            if self._run(body, scope) not in {"return", "raise"}:
                after.append(scope.names)
        self._unsure -= 1
        scope.names = before
        names = {name for some in after for name in some}
        self._steps += len(names) // 16
        for name in names:
            found, *others = [some[name] for some in after if name in some]
            for other in others:
                found = _merge_branches(found, other)
            scope.names[name] = found
        return "" if after else "return"

    def _bind(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name(name):
                scope.names[name] = value
            case ast.Tuple(targets) | ast.List(targets):
                known = isinstance(value, list | tuple) and len(value) == len(targets)
                for at, one in enumerate(targets):
                    inner = one.value if isinstance(one, ast.Starred) else one
                    self._bind(inner, value[at] if known else self._item(value, at, target), scope)
            case ast.Attribute(owner, key):
                self._assign(self.value(owner, scope), key, value)
            case ast.Subscript(owner, slice_):
                self._assign(self.value(owner, scope), self.value(slice_, scope), value)

    def _assign(self, owner: Any, key: Any, value: Any) -> None:
        """Set an attribute of an object, or what stands under a key."""
        if isinstance(owner, Instance | ScriptClass | LibraryValue):
            owner = owner.keys if isinstance(owner, LibraryValue) else owner.values
        if isinstance(owner, dict) and isinstance(key, str | int) and len(owner) < LONGEST:
            sure = not self._unsure or (key in owner and _is_equal(owner[key], value))
            owner[key] = value if sure else Unknown(why="an if or a loop of the script sets it")

    # -- expressions -------------------------------------------------------------------------------

    def value(self, node: ast.AST, scope: Scope) -> Any:
        """What an expression is."""
        self._step()
        if self._depth >= DEEPEST:
            return Unknown(node)
        self._depth += 1
        try:
            found = self._value(node, scope)
        except _FAILS:
            found = Unknown(node)
        finally:
            self._depth -= 1
        return found if _is_small(found) else Unknown(node)

    def _value(self, node: ast.AST, scope: Scope) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                if (holder := scope.holder(name)) is not None:
                    return holder.names[name]
                own = {"__file__": str(scope.module.path), "__name__": scope.module.name}
                return own.get(name) or LibraryName(name)
            case ast.Attribute(owner, name):
                return self._attribute(self.value(owner, scope), name, node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.List(items) | ast.Tuple(items) | ast.Set(items):
                found = self._evaluate_items(items, scope)
                return tuple(found) if isinstance(node, ast.Tuple) else found
            case ast.Dict(keys, values):
                result: dict[Any, Any] = {}
                for key, each in zip(keys, values, strict=True):
                    one = self.value(each, scope)
                    if key is None:
                        one = one.keys if is_row(one) else one
                        result |= one if isinstance(one, dict) else {"**": Unknown(each)}
                    elif isinstance(name := self.value(key, scope), str | int | float | None):
                        result[name] = one
                return result
            case ast.JoinedStr(parts):
                return _join_text([self._format_part(part, scope) for part in parts])
            case ast.BinOp(left, operation, right):
                return self._apply_operator(
                    operation, self.value(left, scope), self.value(right, scope), node
                )
            case ast.UnaryOp(operation, operand):
                value = self.value(operand, scope)
                if isinstance(operation, ast.Not):
                    true = self._is_true(value)
                    return Unknown(node) if true is None else not true
                if not isinstance(value, int | float):
                    return Unknown(node)
                return -value if isinstance(operation, ast.USub) else value
            case ast.BoolOp(operation, values):
                for each in values:
                    found = self.value(each, scope)
                    unset = (
                        isinstance(operation, ast.Or) and isinstance(found, Unknown) and found.unset
                    )
                    true = False if unset else self._is_true(found)
                    if true is None or true is isinstance(operation, ast.Or):
                        break
                return Unknown(node) if true is None and each is not values[-1] else found
            case ast.Compare(left, [operation], [right]):
                return self._compare(
                    operation, self.value(left, scope), self.value(right, scope), node
                )
            case ast.IfExp(test, body, other):
                true = self._is_true(self.value(test, scope))
                if true is None:
                    return _merge_branches(self.value(body, scope), self.value(other, scope))
                return self.value(body if true else other, scope)
            case ast.Subscript(owner, key):
                return self._item(self.value(owner, scope), self.value(key, scope), node)
            case ast.Slice(lower, upper, step):
                ends = [part and self.value(part, scope) for part in (lower, upper, step)]
                known = all(isinstance(end, int | None) for end in ends)
                return slice(*ends) if known else Unknown(node)
            case ast.Lambda():
                return self._function(node, scope)
            case ast.NamedExpr(target, value):
                found = self.value(value, scope)
                self._bind(target, found, scope)
                return found
            case ast.Await(value):
                return self.value(value, scope)
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp() | ast.SetComp():
                return self._evaluate_comprehension(node, scope)
        return Unknown(node)

    def _evaluate_items(self, items: Sequence[ast.expr], scope: Scope) -> list[Any]:
        found: list[Any] = []
        for item in items:
            if not isinstance(item, ast.Starred):
                found.append(self.value(item, scope))
                continue
            some = self.value(item.value, scope)
            found += some if isinstance(some, _SEQUENCES) else [Unknown(item)]
        return found

    def _format_part(self, part: ast.expr, scope: Scope) -> Any:
        if not isinstance(part, ast.FormattedValue):
            return self.value(part, scope)
        value = self.value(part.value, scope)
        form = "" if part.format_spec is None else self.value(part.format_spec, scope)
        if not isinstance(value, str | int | float | PurePath | None) or not isinstance(form, str):
            return value
        if not re.fullmatch(r"[<>^]?[+,]?\d{0,2}(\.\d{1,2})?[a-z%]?", form):
            return Unknown(part)
        return format(repr(value) if part.conversion == ord("r") else value, form)

    def _attribute(self, owner: Any, name: str, node: ast.AST | None, scope: Scope) -> Any:
        match owner:
            case LibraryName(path):
                return LibraryName(f"{path}.{name}", owner.line)
            case Instance(kind, values):
                if name in values or name == "__dict__":
                    return values.get(name, values)
                found = None if kind is None else kind.member(name)
                if not isinstance(found, Function):
                    return Unknown(node) if found is None else found
                method = _bind_method(found, owner)
                tails = {getattr(one, "tail", "") for one in found.decorators}
                if tails & {"property", "cached_property"}:
                    return self._follow_function(method, [], {}, node or found.node)
                return method
            case ScriptClass():
                found = owner.member(name)
                return Unknown(node) if found is None else _default_value(found, self)
            case LibraryValue():
                return self._given_attribute(owner, name, node, scope)
            case AttributeDict() if name in owner:
                return owner[name]
            case PurePath() if name in {"parent", "name", "stem", "suffix"}:
                return getattr(owner, name)
            case str() | list() | dict() | tuple() | PurePath():
                return LibraryValue("attribute", name, owner, [], {}, node, scope)
        return Unknown(node)

    def _given_attribute(
        self, owner: LibraryValue, name: str, node: ast.AST | None, scope: Scope
    ) -> Any:
        """An attribute of what a library made: as it was given, or as a command line has it by
        default."""
        known = self.settings_of(owner) if owner.name == "parse_args" else owner.keys
        if name in known:
            return known[name]
        if owner.name == "parse_args":
            return Unknown(node)
        is_parsed = owner.how == "call" and owner.name.endswith(("Config", "Arguments"))
        if is_parsed and name in {*LIBRARY, "eval_strategy"}:
            return LIBRARY.get(name, "no")
        return LibraryValue("attribute", name, owner, [], {}, node, scope)

    def settings_of(self, value: Any) -> Values:
        """The attributes of what a parser of a command line gives."""
        if isinstance(value, LibraryValue):
            return {**(self._arguments() if value.name == "parse_args" else LIBRARY), **value.keys}
        return dict(value.values) if isinstance(value, Instance) else {}

    def _arguments(self) -> Values:
        """The arguments of the command line, with their defaults."""
        found: Values = {}
        self._steps += len(self.made) // 8
        for call in self.made:
            if call.name == "set_defaults":
                found |= call.keys
            if call.name != "add_argument" or not (
                names := [one for one in call.args if isinstance(one, str)]
            ):
                continue
            long = next((one for one in names if one.startswith("--")), names[0])
            flag = {"store_true": False, "store_false": True}.get(str(call.keys.get("action")))
            missing = Unknown(why=f"{long} has no default", unset=True) if flag is None else flag
            value = call.keys.get("default", missing)
            kind = getattr(call.keys.get("type"), "path", "")
            if isinstance(value, str) and kind in {"int", "float"}:
                value = self.call(
                    LibraryName(kind), [value], {}, call.node or ast.Pass(), call.scope
                )
            found[str(call.keys.get("dest") or long.lstrip("-").replace("-", "_"))] = value
        return found

    def _item(self, owner: Any, key: Any, node: ast.AST) -> Any:
        match owner:
            case LibraryValue(how="call", keys=known) | Instance(values=known) if (
                isinstance(key, str) and key in known
            ):
                return known[key]
            case LibraryValue():
                self.read |= {key} if is_row(owner) and isinstance(key, str) else set()
                return owner.item(key, node)
            case list() | tuple() | range() | str() | dict() if isinstance(key, str | int | slice):
                inside: Any = owner
                with suppress(*_FAILS):
                    return inside[key]
        return Unknown(node)

    def _apply_operator(
        self, operation: ast.operator | ast.cmpop, one: Any, other: Any, node: ast.AST
    ) -> Any:
        pair = {type(one), type(other)}
        if (
            isinstance(operation, ast.Add)
            and pair & {str, Text}
            and pair <= {str, Text, LibraryValue}
        ):
            return _join_text([one, other])
        if isinstance(operation, ast.Mod) and isinstance(one, str):
            given = other if isinstance(other, tuple) else (other,)
            simple = one.count("%") == len(given) == len(re.findall(r"%[sd]", one)) and not {
                *one
            } & {*"{}"}
            return (
                _fill_braces(re.sub(r"%[sd]", "{}", one), given, {}, node)
                if simple
                else Unknown(node)
            )
        sizes = [len(item) if isinstance(item, str | list | tuple) else 0 for item in (one, other)]
        numbers = [abs(item) for item in (one, other) if isinstance(item, int | float)]
        large = isinstance(operation, ast.Mult) and max(sizes) * max(numbers, default=0) > LONGEST
        large |= isinstance(operation, ast.Pow) and not (
            len(numbers) == 2 and numbers[0] <= 10**6 and numbers[1] <= 64
        )
        constants = str | list | tuple | dict | int | float | PurePath
        if large or not isinstance(one, constants) or not isinstance(other, constants):
            return Unknown(node)
        found = _OPERATIONS[type(operation)](one, other)
        return float(f"{found:.12g}") if isinstance(found, float) else found

    def _compare(self, operation: ast.cmpop, one: Any, other: Any, node: ast.AST) -> Any:
        if isinstance(operation, ast.Is | ast.IsNot | ast.Eq | ast.NotEq) and None in (one, other):
            known = one if other is None else other
            if isinstance(known, Unknown) or (
                isinstance(known, LibraryValue) and known.how != "call"
            ):
                return Unknown(node)
            return (known is None) is isinstance(operation, ast.Is | ast.Eq)
        keys = [*other] if isinstance(other, dict) else other
        known = UNKNOWN not in (to_recipe_value(one), to_recipe_value(keys))
        return _OPERATIONS[type(operation)](one, keys) if known else Unknown(node)

    def _is_true(self, value: Any) -> bool | None:
        """Whether a value counts as true; None where that is not known."""
        if isinstance(value, str | int | float | list | tuple | dict | None):
            return bool(value)
        return True if isinstance(value, Function | ScriptClass | Instance) else None

    def _evaluate_comprehension(self, node: Any, scope: Scope) -> Any:
        found: list[Any] = []
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)

        def gather(generators: Sequence[ast.comprehension], inner: Scope) -> None:
            if not generators:
                found.append(tuple(self.value(part, inner) for part in parts))
                return
            first, *others = generators
            items = self.value(first.iter, inner)
            if not isinstance(items, _SEQUENCES | dict) or len(found) + len(items) > MOST_ROUNDS:
                raise ValueError
            for item in items:
                self._bind(first.target, item, inner)
                tests = [self._is_true(self.value(test, inner)) for test in first.ifs]
                if None in tests:
                    raise ValueError
                if all(tests):
                    gather(others, inner)

        inner = Scope(scope.module, scope)
        items = self.value(node.generators[0].iter, inner)
        if isinstance(items, LibraryValue) and len(node.generators) == len(parts) == 1:
            self._bind(node.generators[0].target, self._item(items, Unknown(node), node), inner)
            return LibraryValue(
                "call", "rows", items, [self.value(node.elt, inner)], {}, node, scope
            )
        gather(node.generators, inner)
        return dict(found) if len(parts) == 2 else [one for (one,) in found]

    # -- calls -------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        function = self.value(node.func, scope)
        args = self._evaluate_items(node.args, scope)
        keys: Values = {}
        for key in node.keywords:
            given = self.value(key.value, scope)
            if key.arg:
                keys[key.arg] = given
            elif isinstance(given, dict):
                keys |= {str(name): each for name, each in given.items()}
            else:
                why = f"**{unparse_expression(key.value)}"
                keys["**"] = given if is_row(given) else Unknown(key.value, why)
        return self.call(function, args, keys, node, scope)

    def call(
        self, function: Any, args: list[Any], keys: Values, node: ast.AST, scope: Scope
    ) -> Any:
        """What a call gives."""
        with suppress(*_FAILS):
            return self._call_value(function, args, keys, node, scope)
        return Unknown(node)

    def _call_value(
        self, function: Any, args: list[Any], keys: Values, node: ast.AST, scope: Scope
    ) -> Any:
        match function:
            case Function():
                return self._follow_function(function, args, keys, node, scope)
            case ScriptClass():
                return self._instance(function, args, keys, node, scope)
            case LibraryName(path):
                return self._library(path, args, keys, node, scope)
            case LibraryValue(
                "attribute", name, LibraryValue() | LibraryName() | Unknown() as owner
            ):
                return self._library_value(name, owner, args, keys, node, scope)
            case LibraryValue("attribute", name, base):
                return self._method(base, name, args, keys, node)
            case LibraryValue("call", "partial", args=[inner, *first]):
                return self.call(inner, [*first, *args], {**function.keys, **keys}, node, scope)
        return Unknown(node)

    def _library_value(
        self,
        name: str,
        owner: Any,
        args: list[Any],
        keys: Values,
        node: ast.AST,
        scope: Scope,
    ) -> Any:
        if name == "get" and args and is_row(owner):
            return self._item(owner, args[0], node)
        if name in PARSED:
            return self._parsers(name, owner, args, scope, node)
        if name in {"parse_args", "parse_known_args"}:
            self.parsers.append(name)
            parsed = LibraryValue("call", "parse_args", owner, args, keys, node, scope)
            return (parsed, []) if name == "parse_known_args" else parsed
        if (
            name == "apply"
            and isinstance(owner, LibraryValue)
            and args
            and isinstance(args[0], Function)
        ):
            # of a row of pandas, or of a column
            return self.call(args[0], [owner], {}, node, scope)
        made = LibraryValue("call", name, owner, args, keys, node, scope)
        self.made.append(made)
        return made

    def _parsers(self, name: str, owner: Any, args: list[Any], scope: Scope, node: ast.AST) -> Any:
        """The objects that HfArgumentParser and TrlParser fill."""
        kinds = None
        if isinstance(owner, LibraryValue):
            kinds = next(iter(owner.args), owner.keys.get("dataclass_types"))
        kinds = kinds if isinstance(kinds, list | tuple) else [kinds]
        given = self.settings
        if name == "parse_dict" or (name.endswith("_file") and args):
            given = args[0] if name == "parse_dict" else self._load_settings(args[0], scope)
            given = given if isinstance(given, dict) else {}
        self.parsers.append(name)
        known = {key for kind in kinds if isinstance(kind, ScriptClass) for key in kind.fields()}
        found = []
        for kind in kinds:
            own, library = set(), getattr(kind, "tail", "")
            if isinstance(kind, ScriptClass):
                own, library = {*kind.fields()}, kind.library()
            configures = library.endswith("Config") and library != "ModelConfig"
            if configures or library == "TrainingArguments":
                own |= given.keys() - LIBRARY.keys() - known
            elif library:
                own |= {*LIBRARY}
            keys = {key: each for key, each in given.items() if key in own}
            found.append(self.call(kind, [], keys, node, scope))
        return found

    def _library(
        self, path: str, args: list[Any], keys: Values, node: ast.AST, scope: Scope
    ) -> Any:
        path = path.removeprefix("builtins.").removeprefix("pathlib.")
        tail, first = path.rpartition(".")[2], args[0] if args else None
        if path in _CALCULATED or (path in _GATHERED and not isinstance(first, LibraryValue)):
            given = [*args, *keys.values()]
            if path in _CALCULATED and (
                unknown := next((one for one in given if to_recipe_value(one) is UNKNOWN), None)
            ):
                return Unknown(node, getattr(unknown, "why", ""))
            return {**_CALCULATED, **_GATHERED}[path](*args, **keys)
        match tail:
            case "getenv" | "get" if path in {"os.getenv", "os.environ.get"}:
                value = args[1] if len(args) > 1 else keys.get("default")
                return Unknown(node, unset=True) if value is None else value
            case "getattr" if len(args) > 1 and isinstance(args[1], str):
                found = self._attribute(first, args[1], node, scope)
                missing = isinstance(found, Unknown) or (
                    isinstance(found, LibraryValue) and found.how == "attribute"
                )
                return (
                    args[2]
                    if missing and len(args) > 2 and not isinstance(first, Unknown)
                    else found
                )
            case "cli" | "parse" if isinstance(first, ScriptClass):
                self.parsers.append(tail)
                return self._instance(first, [], {}, node, scope)
            case "asdict" | "vars" if isinstance(first, Instance | LibraryValue):
                return self.settings_of(first)
            case _ if tail in TRL["copies"] and args:
                return _copy_value(first, **keys)
            case _ if tail in TRL["bags"] and isinstance(first, dict | None):
                return _make_bags({**(first or {}), **keys})
            case _ if (
                tail in TRL["loaders"] and (loaded := self._load_settings(first, scope)) is not None
            ):
                return loaded
        return self._library_value(
            tail, LibraryName(path.rpartition(".")[0]), args, keys, node, scope
        )

    def _load_settings(self, what: Any, scope: Scope) -> Any:
        """The values of a file of settings that lies beside the script; None where it is none."""
        while isinstance(what, LibraryValue):
            what = what.args[0] if what.name == "open" and what.args else what.owner
        name = Path(what if isinstance(what, str | PurePath) else "")
        safe = (
            name.suffix in {".yaml", ".yml", ".json"}
            and not name.is_absolute()
            and ".." not in name.parts
        )
        folders = (Path(), scope.module.path.parent)
        path = next(
            (folder / name for folder in folders if safe and (folder / name).is_file()), None
        )
        read = None if path is None else read_settings(path)
        return _make_bags(read) if isinstance(read, dict) else None

    def _method(self, base: Any, name: str, args: list[Any], keys: Values, node: ast.AST) -> Any:
        if name == "format":
            if isinstance(row := keys.get("**"), LibraryValue):
                keys = {one: self._item(row, one, node) for one in re.findall(r"\{(\w+)\}", base)}
            return _fill_braces(base, args, keys, node)
        if name == "join" and isinstance(args[0], list | tuple):
            return _join_text([one for item in args[0] for one in (base, item)][1:])
        if name == "replace" and isinstance(args[1], LibraryValue | Text):
            return _join_text(
                [one for piece in base.split(args[0]) for one in (args[1], piece)][1:]
            )
        if name in {"resolve", "absolute", "expanduser"}:
            return base
        if name in {"read_text", "open"}:
            return LibraryValue("call", "open", None, [str(base)], keys, node, self.scope)
        if name in {"update", "setdefault"} and isinstance(base, dict):
            given = {args[0]: base.get(*args)} if name == "setdefault" else dict(*args, **keys)
            for key, each in given.items():
                self._assign(base, key, each)
            return None
        if name == "append" and not base and self._loops and self._loops[-1][0] == self._unsure:
            _, target, over = self._loops[-1]
            # a row for each of a data set
            if isinstance(over, LibraryValue) and isinstance(node, ast.Call):
                loop = [ast.comprehension(target, target, [], 0)]
                base.append(
                    LibraryValue(
                        "call", "rows", over, args, {}, ast.ListComp(node.args[0], loop), over.scope
                    )
                )
                return None
        if name in _CHANGES and self._unsure:
            if isinstance(base, list):
                base.append(Unknown(node, f"{unparse_expression(node)} is in an if or a loop"))
            return Unknown(node)
        large = name == "replace" and len(base) * max(1, len(args[1])) > LONGEST
        if name not in _METHODS or large or len(base if isinstance(base, list) else "") >= LONGEST:
            return Unknown(node)
        found = getattr(base, name)(*args, **keys)
        return list(found) if name in {"items", "keys", "values"} else found

    def _function(self, node: Any, scope: Scope, decorators: Sequence[Any] = ()) -> Function:
        given = node.args
        names = [one.arg for one in (*given.posonlyargs, *given.args)][
            -len(given.defaults) or None :
        ]
        pairs = [*zip(names, given.defaults, strict=False)]
        pairs += [*zip((one.arg for one in given.kwonlyargs), given.kw_defaults, strict=True)]
        defaults = {name: self.value(value, scope) for name, value in pairs if value is not None}
        return Function(node, scope, defaults, decorators)

    def _follow_function(
        self,
        function: Function,
        args: list[Any],
        keys: Values,
        node: ast.AST,
        scope: Scope | None = None,
    ) -> Any:
        """Follow a function of the script; what it returns."""
        if function.node in self._active:
            return Unknown(node)
        inner = Scope(function.scope.module, function.scope)
        given = function.node.args
        positional = [one.arg for one in (*given.posonlyargs, *given.args)]
        named = [*positional, *(one.arg for one in given.kwonlyargs)]
        args = args if function.itself is None else [function.itself, *args]
        for name in named:
            fallback = self._hydra_config(function, name)
            inner.names[name] = _default_value(
                {**function.defaults, **keys}.get(name, fallback), self
            )
        inner.names |= dict(zip(positional, args, strict=False))
        if given.vararg:
            inner.names[given.vararg.arg] = tuple(args[len(positional) :])
        if given.kwarg:
            inner.names[given.kwarg.arg] = {
                key: each for key, each in keys.items() if key not in named
            }
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
        values = inner.returned + ([] if inner.returned and end in {"return", "raise"} else [None])
        found = values[0]
        for other in values[1:]:
            found = _merge_branches(found, other)
        if isinstance(found, Function | Instance) and found.origin is None and scope is not None:
            found.origin = node, scope
        return found

    def _hydra_config(self, function: Function, name: str) -> Any:
        """What a parameter has that has no default: the configuration that a decorator of hydra
        names."""
        for keys in (one.keys for one in function.decorators if isinstance(one, LibraryValue)):
            where = f"{keys.get('config_path') or '.'}/{str(keys.get('config_name')).removesuffix('.yaml')}.yaml"
            if (loaded := self._load_settings(os.path.normpath(where), function.scope)) is not None:
                return loaded
        return Unknown(why=f"{name} has no default")

    def _instance(
        self, kind: ScriptClass, args: list[Any], keys: Values, node: ast.AST, scope: Scope
    ) -> Any:
        fields = {name: _default_value(value, self) for name, value in kind.fields().items()}
        start, library = kind.member("__init__"), kind.library()
        trains = library.endswith("Trainer")
        if library and (trains or not isinstance(start, Function)):
            made = LibraryValue(
                "call",
                library,
                None,
                args,
                keys if trains else {**fields, **keys},
                node,
                scope,
                kind.node.name,
            )
            self.made.append(made)
            return made
        found = Instance(kind, {**fields}, (node, scope))
        if isinstance(start, Function):
            self._follow_function(_bind_method(start, found), args, keys, node)
        else:
            found.values |= {**dict(zip(fields, args, strict=False)), **keys}
            if isinstance(after := kind.member("__post_init__"), Function):
                self._follow_function(_bind_method(after, found), [], {}, node)
        return found

    def _follow_sibling(self, name: str, scope: Scope) -> Scope | None:
        """A module that lies beside the script, followed; None where there is none."""
        parts = name.split(".")
        if not all(part.isidentifier() for part in parts) or len(self._modules) >= MOST_FILES:
            return None
        folder = scope.module.path.parent.joinpath(*parts)
        for path in (folder.with_suffix(".py"), folder / "__init__.py"):
            if path not in self._modules and path.is_file() and path != self.main.path:
                try:
                    module = read_module(path, name)
                except RecipeError:
                    return None
                self._modules[path] = Scope(module)
                self._run(module.tree.body, self._modules[path])
            if path in self._modules:
                return self._modules[path]
        return None
