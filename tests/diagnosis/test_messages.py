"""The table of messages: each sentence renders, is short and names a remedy."""

import ast
import re
from itertools import product
from pathlib import Path

import pytest

from plumbline.checks.check import LEVELS
from plumbline.checks.messages import FOLDER, read_messages, render_message
from plumbline.config.overrides import read_package_yaml

ROOT = Path(__file__).parents[2] / "src" / "plumbline"
TWO_LINES = 2 * 80


class AnyFigure:
    """A figure of any kind, as wide as one usually is."""

    def __format__(self, form: str) -> str:
        try:
            return format(0.1234, form) if form else "a figure"
        except ValueError:
            return format(12, form)


def _fields(template: str) -> set[str]:
    fields = re.findall(r"\{([^{}]+)\}", template)
    return {re.split(r"[:|]", one)[0] for one in fields if not one.startswith("key:")}


def _renderings(template: str) -> list[str]:
    """With every combination of flags, and with and without what is optional."""
    names = _fields(template)
    flags = sorted({name[1:] for name in names if name[0] in "?!"})
    figures = {name: AnyFigure() for name in names if name[0] not in "?!"}
    needed = re.sub(r"\[\[|\]\]", "", template)
    for _ in range(2):  # brackets within brackets
        needed = re.sub(r"\[[^\[\]]*\]", "", needed)
    return [
        render_message(template, some | dict(zip(flags, values, strict=True)))
        for values in product((True, False), repeat=len(flags))
        for some in (figures, {name: figures[name] for name in _fields(needed) & set(figures)})
    ]


SENTENCES = [
    (f"{check}:{code}:{kind}", text, [*entry.get("figures", {}), "since", "about", "follows"])
    for check, entry in read_messages().items()
    for code, text, kind in (
        *((code, text, "cause") for code, text in entry.get("causes", {}).items()),
        *(
            (code, text, kind)
            for code, message in entry.get("found", {}).items()
            for kind, text in message.items()
        ),
    )
]


@pytest.mark.parametrize(
    ("template", "figures"), [pytest.param(*one[1:], id=one[0]) for one in SENTENCES]
)
def test_each_sentence_renders_in_two_lines(template, figures):
    for text in _renderings(template):
        assert text or template[0] == "["
        assert len(text) <= TWO_LINES, text
        assert not re.search(r"[{}]|  ", text), text
    assert {name.lstrip("?!") for name in _fields(template)} <= {*figures, *QUOTED}


QUOTED = {"example"}


def _calls() -> list[tuple[str, str | None, str | None]]:
    """File, level and code of each place that makes a finding, None where it is computed."""
    found = []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                given = dict(zip(("level", "code"), node.args, strict=False))
                given |= {one.arg: one.value for one in node.keywords if one.arg}
                level, code = (
                    getattr(given.get(name), "value", None) for name in ("level", "code")
                )
                found.append((path.name, level, code))
    return found


def test_each_code_is_used_and_what_is_no_note_names_a_remedy():
    literals = {
        node.value
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    notes = {code for _, level, code in _calls() if level == LEVELS[-1]}
    for check, entry in read_messages().items():
        codes = {*entry.get("found", {}), *entry.get("causes", {})}
        assert codes <= {*literals, check}, check
        assert set(entry) <= {"figures", "terms", "causes", "found"}, check
        for code, message in entry.get("found", {}).items():
            assert set(message) <= {"what", "fix"}
            assert "fix" in message or code in notes, (check, code)


def test_no_check_stands_in_two_files():
    names = [name for path in FOLDER.glob("*.yaml") for name in read_package_yaml(path)]
    assert len(names) == len(set(names))
