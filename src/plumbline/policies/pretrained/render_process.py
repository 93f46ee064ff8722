"""The process that renders chat templates: a program, run beside ours, with bounds of memory and
time.

A template is code of others. What it may reach is transformers' sandbox; what it may use up, only
the system can bound: a multiplication holds the interpreter for as long as it takes. Each line of
standard input is a request, each line of standard output its answer. What takes too much ends the
process, which says why by how it ended.

It imports no more than jinja2, and is the same in every run: no clock, no random numbers, no order
of its own.
"""

import json
import resource
import signal
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

RANDOM = ("random", "lipsum")
"""What jinja2 has whose value is another one each time."""


class Generation(Extension):
    """The tag that marks what an assistant said; it changes nothing here."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 has it

    def parse(self, parser: Parser) -> nodes.Node:
        """Read it as transformers does: its body is a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_render_body"), [], [], body).set_lineno(line)

    def _render_body(self, caller: Any) -> Any:
        return caller()


class ChatNamespace(Namespace):
    """A namespace without names that lead into the interpreter."""

    def __init__(*args: Any, **values: Any) -> None:
        named = dict(*args[1:], **values)
        for name in named:
            _check_name(name)
        Namespace.__init__(args[0], named)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


class Dictionaries:
    """`dict` of a template, which is no class."""

    def __call__(self, *args: Any, **values: Any) -> dict[Any, Any]:
        """A dictionary."""
        return dict(*args, **values)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """A dictionary of the same value for each key."""
        return dict.fromkeys(*args)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace has no name {name!r}")


def refuse(message: object) -> None:
    """`raise_exception` of a template."""
    raise jinja2.TemplateError(message)  # type: ignore[arg-type]


def as_json(
    value: object,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """`tojson` of a template, which escapes no HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def make_environment() -> ImmutableSandboxedEnvironment:
    """Templates as `apply_chat_template` of transformers reads them, without what is random."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, LoopControlExtension]
    )
    made.filters["tojson"] = as_json
    made.globals |= {"raise_exception": refuse, "dict": Dictionaries(), "namespace": ChatNamespace}
    for name in RANDOM:
        made.filters.pop(name, None)
        made.globals.pop(name, None)
    return made


def answer(request: bytes, compiled: Any) -> dict[str, Any]:
    """What is sent back: the text, or what the template says against the messages, or how it
    fails."""
    try:
        asked = json.loads(request)
        signal.setitimer(signal.ITIMER_PROF, asked["seconds"])  # whose signal ends the process
        clock = datetime.fromisoformat(asked["date"]).strftime
        text = compiled(asked["template"]).render(**asked["values"], strftime_now=clock)
        signal.setitimer(signal.ITIMER_PROF, 0)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a template raises is said
        # raise_exception's; its subclasses are faults of the template
        own = type(error) is jinja2.TemplateError
        return {"refused" if own else "failed": str(error)[:1000], "kind": type(error).__name__}
    return {"text": text} if len(text) <= asked["longest"] else {"longer": len(text)}


def main(memory: int, full: int) -> None:
    """Answer requests until there are no more; where `memory` bytes of addresses are not enough,
    end with `full`."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "darwin":  # which refuses this limit; the one of time holds there, too
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    compiled = lru_cache(maxsize=16)(make_environment().from_string)
    try:
        for request in sys.stdin.buffer:
            sys.stdout.buffer.write(json.dumps(answer(request, compiled)).encode() + b"\n")
            sys.stdout.buffer.flush()
    except MemoryError:
        sys.exit(full)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
