"""Reward functions that a training script defines, as the text of a module of their own: the
functions, and what they need of the script. Nothing of the script is run or imported."""

import ast
import builtins
import hashlib
import re
import symtable
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plumbline.recipe.script import (
    UNKNOWN,
    AttributeDict,
    Function,
    Instance,
    LibraryName,
    LibraryValue,
    Scope,
    Script,
    ScriptClass,
    last_name,
    to_recipe_value,
    unparse_expression,
)

TRAINS = (
    "Trainer",
    "GRPOConfig",
    "SFTConfig",
    "get_peft_model",
    "load_dataset",
    "load_from_disk",
    "from_pretrained",
)
"""Calls that are the training: no reward takes what they give."""
PARSES = {
    "parse_args",
    "parse_known_args",
    "parse_args_into_dataclasses",
    "parse_args_and_config",
    "cli",
}
CHANGES = {"append", "extend", "update", "add", "setdefault", "insert", "setLevel"}
ROWS = "what the script makes of a row"
CHAT = 'SimpleNamespace(apply_chat_template=lambda messages, **_: messages[-1]["content"], eos_token="")'
"""A tokenizer where rows are made: the prompt is filled in elsewhere, and is a text here."""
FIRST = "# Taken over by plumbline init from"
BAG = "class Bag(dict):\n    __getattr__ = dict.__getitem__\n"
OF_ROW = '''
def {wrapper}(reward):
    """The reward as the script has it: with the columns that the script makes of a row, and completions in its form."""

    def scored(completions, prompts=None, **columns):
        if prompts is None or not {read} <= columns.keys():  # rows as the script makes them
            given = columns if prompts is None else {{"prompts": prompts, **columns}}
            return reward(completions=completions, **given)
        rows = [{{name: values[at] for name, values in columns.items()}} for at in range(len(completions))]
        rows = [{{{prompt!r}: prompt, **row}} for row, prompt in zip(rows, prompts)]
        for step in ({steps}):
            rows = [{{**row, **step(row)}} for row in rows]
        if isinstance(rows[0]["prompt"], list) and not isinstance(completions[0], list):
            completions = [[{{"role": "assistant", "content": text}}] for text in completions]
        made = {{name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}}
        return reward(prompts=[row["prompt"] for row in rows], completions=completions, **made)

    return scored
'''


class RewardFile:
    """A module that grows by the rewards that are added to it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.refused: list[str] = []
        """Why a reward cannot be taken over, a sentence each."""
        self._imports: dict[str, None] = {}
        self._parts: dict[tuple[int, int, str], str] = {}
        self._known: dict[str, Scope | None] = {}
        self._bound: dict[str, dict[ast.stmt, None]] = {}
        self._ends: list[str] = []
        self._lines = script.main.text.split("\n")
        for statement in _top_statements(script.main.tree.body):
            for name in _bound_names(statement):
                self._bound.setdefault(name, {})[statement] = None

    def add(self, value: Any, taken: Sequence[str]) -> str:
        """Add a reward function of the script; the name that it has in the module."""
        scope = self.script.scope
        name = next(
            (key for key, each in scope.names.items() if each is value and key in self._bound), ""
        )
        if name:
            self._need(name, scope, name)
            return name
        node, where = _value_origin(value)
        if (
            isinstance(value, Function)
            and value.origin is None
            and not isinstance(node, ast.Lambda)
        ):
            self._known[value.name] = where
            self._add(node, where, value.name, value.name)
            return value.name
        called = last_name(node.func) if isinstance(node, ast.Call) else ""
        match value:
            case (
                Function(name=inner) | LibraryValue(name="partial", args=[Function(name=inner), *_])
            ):
                called = inner or called
        name = _unused_name(
            re.sub(r"\W", "", called).lower() or "reward", [*taken, *self._known, *self._bound]
        )
        self._ends.append(f"{name} = {ast.unparse(node)}")
        self._needs(node, where, name)
        return name

    def add_import(self, module: str, name: str) -> None:
        """Have a reward of another module here."""
        self._imports[f"from {module} import {name}"] = None
        self._known[name] = None

    def add_steps(
        self,
        steps: Sequence[tuple[ast.AST, Scope, str]],
        prompt: str,
        read: set[str],
        rewards: Sequence[str],
    ) -> list[str]:
        """Let rewards see what the script makes of a row.

        Args:
            steps: expressions of a function from a row, where they stand, and a form with {} for
                each.
            prompt: the column that is asked.
            read: columns that they take from a row.
            rewards: names in the module.

        Returns:
            The names of the rewards that do.
        """
        texts = []
        for node, scope, form in steps:
            self._needs(node, scope, ROWS)
            texts.append(form.format(ast.unparse(node)))
        wrapper = _unused_name("of_row", [*self._known, *self._bound])
        self._ends.append(
            OF_ROW.format(
                wrapper=wrapper, prompt=prompt, read={*read}, steps=", ".join(texts) + ","
            )
        )
        used = {name for part in self._parts.values() for name in _free_names(ast.parse(part))}
        names = [
            name if name not in used else _unused_name(f"{name}_of_row", self._known)
            for name in rewards
        ]
        self._ends.append(
            "\n".join(
                f"{new} = {wrapper}({name})" for new, name in zip(names, rewards, strict=True)
            )
        )
        return names

    def drop_steps(self) -> None:
        """Leave out what was added last."""
        del self._ends[-2:]

    def text(self) -> str:
        """The module, whose first line has a digest of the others: who changed it is not
        overwritten."""
        future = [line for line in self._imports if "__future__" in line]
        imports = sorted(line for line in self._imports if line not in future)
        parts = [text for _, text in sorted(self._parts.items())]
        body = (
            "\n".join([*future, *imports, *(f"\n{part}" for part in [*parts, *self._ends])]) + "\n"
        )
        name = " ".join(self.script.main.path.name.split())
        return f"{FIRST} {name}, {compute_digest(body)}: its rewards and what they need.\n{body}"

    # -- names -------------------------------------------------------------------------------------

    def _needs(self, node: ast.AST, scope: Scope, user: str) -> None:
        for name in sorted(_free_names(node)):
            self._need(name, scope, user, node)

    def _need(self, name: str, scope: Scope, user: str, node: ast.AST | None = None) -> None:
        """Add what a name stands for, and what that needs."""
        holder = scope.holder(name)
        if name in self._known:
            if self._known[name] is not holder:
                self.refused.append(f"{user} uses {name}, which is two things in the script")
            return
        if holder is None and (hasattr(builtins, name) or name in {"__file__", "__name__"}):
            return
        self._known[name] = holder
        if holder is None:
            stars = self._bound.get("*", {})
            self._imports |= dict.fromkeys(map(ast.unparse, stars))
            if not stars:
                self.refused.append(f"{user} uses {name}, which the script does not define")
            return
        value = holder.names[name]
        own = self._bound.get(name, {}) if holder is self.script.scope else []
        calls = any(isinstance(one, ast.Call) for each in own for one in ast.walk(each))
        if to_recipe_value(value) is not UNKNOWN and (calls or not own):
            self._parts[0, 0, name] = f"{name} = {self._literal(value)}"
        elif user == ROWS and _is_tokenizer(value):
            self._imports["from types import SimpleNamespace"] = None
            self._parts[0, 0, name] = f"{name} = {CHAT}"
        elif (
            isinstance(value, LibraryName)
            and value.line
            and not any(isinstance(one, ast.Try | ast.If) for one in own)
        ):
            self._imports[value.line] = None
        elif own:
            for statement in own:
                self._add_statement(statement, name, value, user, node)
        elif isinstance(value, Function | ScriptClass) and getattr(value.node, "name", "") == name:
            self._add(value.node, value.scope, name, user)
        elif isinstance(value, Function | Instance) and value.origin is not None:
            inner, where = value.origin
            self._parts[getattr(inner, "lineno", 0), 0, name] = f"{name} = {ast.unparse(inner)}"
            self._needs(inner, where, user)
        else:
            self.refused.append(f"{user} uses {name}, which only a run of the script would tell")

    def _add_statement(
        self, statement: ast.stmt, name: str, value: Any, user: str, node: ast.AST | None
    ) -> None:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self._imports[ast.unparse(statement)] = None
            return
        calls = [one for one in ast.walk(statement) if isinstance(one, ast.Call)]
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            calls = []
        if any(last_name(call.func) in PARSES for call in calls):
            self._add_settings(name, value, user, node)
        elif trains := next((call for call in calls if _starts_training(call)), None):
            self.refused.append(f"{user} uses {name}, which is {unparse_expression(trains)}")
        else:
            self._add(statement, self.script.scope, name, user)

    def _add_settings(self, name: str, value: Any, user: str, node: ast.AST | None) -> None:
        """The values that a command line has by default, in the place of a parser."""
        pairs = [one for one in ast.walk(node or ast.Pass()) if isinstance(one, ast.Attribute)]
        used = {
            one.attr for one in pairs if isinstance(one.value, ast.Name) and one.value.id == name
        }
        given = self.script.settings_of(value)
        known = {
            key: found
            for key, each in given.items()
            if (found := to_recipe_value(each)) is not UNKNOWN
        }
        if lacking := sorted(used - known.keys()):
            self.refused.append(f"{user} uses {name}.{lacking[0]}, which the command line gives")
        self._parts[0, 0, name] = f"{name} = {self._literal(AttributeDict(known))}"

    def _literal(self, value: Any) -> str:
        """A constant as code, with attributes where the script has them."""
        match value:
            case AttributeDict():
                self._parts[0, 0, ""] = BAG
                return f"Bag({self._literal(dict(value))})"
            case dict():
                return f"{{{', '.join(f'{key!r}: {self._literal(each)}' for key, each in value.items())}}}"
            case list() | tuple():
                return f"[{', '.join(map(self._literal, value))}]"
        return repr(to_recipe_value(value))

    def _add(self, node: ast.AST, scope: Scope, name: str, user: str) -> None:
        at = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        if (*at, "") in self._parts:
            return
        decorators = getattr(node, "decorator_list", [])
        first = min([one.lineno for one in decorators] + [at[0]])
        last = getattr(node, "end_lineno", 0) or at[0]
        lines = self._lines[first - 1 : last]
        after = lines[-1].encode()[getattr(node, "end_col_offset", 0) :].strip()
        whole = (
            scope.module is self.script.main
            and at[1] == 0
            and (not after or after.startswith(b"#"))
        )
        self._parts[*at, ""] = "\n".join(lines) if whole else ast.unparse(node)
        self._needs(
            node, scope, user if user in {name, ROWS} or f"({name})" in user else f"{user} ({name})"
        )


def compute_digest(body: str) -> str:
    """What tells whether a file was changed."""
    return hashlib.sha256(body.encode()).hexdigest()[:12]


def is_unchanged(text: str) -> bool:
    """Whether a file is one of ours that nobody changed."""
    first, _, body = text.partition("\n")
    return first.startswith(FIRST) and f", {compute_digest(body)}: " in first


def module_name(script: Path) -> str:
    """What the module of a script's rewards is called."""
    name = re.sub(r"\W+", "_", script.stem, flags=re.ASCII).strip("_") or "script"
    return f"{'' if name[0].isalpha() else 'from_'}{name}_rewards"[-80:].lstrip("_0123456789")


def _value_origin(value: Any) -> tuple[Any, Scope]:
    """The expression that makes a value, and where it stands."""
    if isinstance(value, Function | Instance) and value.origin is not None:
        return value.origin
    assert isinstance(value, Function | LibraryValue)
    return value.node, value.scope


def _unused_name(name: str, taken: Sequence[str] | dict[str, Any]) -> str:
    return next(
        one
        for at in range(1, len(taken) + 2)
        if (one := name if at == 1 else f"{name}_{at}") not in taken
    )


def _top_statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements at the top, those below `if __name__` among them."""
    for statement in body:
        if isinstance(statement, ast.If) and any(
            last_name(one) == "__name__" for one in ast.walk(statement.test)
        ):
            yield from _top_statements(statement.body)
        else:
            yield statement


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement gives a value, or changes."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        match node:
            case ast.alias(name, other):
                yield other or name.partition(".")[0]
            case ast.Name(name, ast.Store()) | ast.FunctionDef(name):
                yield name
            case ast.Call(ast.Attribute(ast.Name(name), method)) if method in CHANGES:
                yield name
            case ast.Subscript(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
                inner: ast.expr = node
                while isinstance(inner, ast.Subscript | ast.Attribute):
                    inner = inner.value
                yield getattr(inner, "id", "")


def _free_names(node: ast.AST) -> set[str]:
    """The names that code takes from around it."""
    table = symtable.symtable(ast.unparse(node), "script", "exec")
    waiting, names = [table], set()
    while waiting:
        one = waiting.pop()
        waiting += one.get_children()
        names |= {each.get_name() for each in one.get_symbols() if _is_outer(one, each)}
    return names - {*_bound_names(node)} if isinstance(node, ast.stmt) else names


def _is_outer(table: symtable.SymbolTable, name: symtable.Symbol) -> bool:
    if table.get_type() == "module":
        return name.is_referenced()
    return name.is_declared_global() or (name.is_global() and name.is_referenced())


def _is_tokenizer(value: Any) -> bool:
    match value:
        # the second of what Unsloth gives
        case LibraryValue(how="item", args=[1], owner=LibraryValue(name="from_pretrained")):
            return True
        case LibraryValue(name="from_pretrained", owner=LibraryName(path)):
            return path.endswith(("Tokenizer", "Processor"))
    return False


def _starts_training(call: ast.Call) -> bool:
    name = last_name(call.func)
    reads = name == "from_pretrained" and any(
        one in unparse_expression(call.func) for one in ("Tokenizer", "Processor")
    )
    return name.endswith(TRAINS) and not reads
