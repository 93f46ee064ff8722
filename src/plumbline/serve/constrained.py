"""JSON schemas as constraints of decoding, by xgrammar (Dong et al. 2024, arXiv:2411.15100; the
extra `constrained`).

A schema is compiled once for a tokenizer, and the last few are kept. While an answer is drawn, its
matcher says which tokens may come next, and the token that ends it only where the JSON is whole.

Schemas come from clients. xgrammar takes counts such as `maxLength` apart into states, so a line of
schema can ask for hours; what may be asked is bounded before it sees a schema (`check_schema`), and
the time of compiling is, too.
"""

import json
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow
from functools import cached_property
from typing import TYPE_CHECKING, Any

from plumbline.config.imports import import_needed
from plumbline.errors import EngineError, RecipeError
from plumbline.serve.backend import make_validator

if TYPE_CHECKING:
    from plumbline.policies.autoregressive.policy import AutoregressivePolicy

BYTES = 32_768
"""The longest schema, as compact JSON."""
DEPTH = 32
"""Of objects and lists within one another, in a schema."""
COUNT = 8192
"""What all counts of a schema may add up to."""
PATTERN = 256
"""Characters of a regular expression, and the product of its counts: counts within counts cost as
much as all of them written out, and some a power of that."""
COUNTED = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
SECONDS = 10.0
"""That compiling may take."""
KEPT_BYTES = 2**26
"""Of compiled schemas that are kept; the one unused for longest goes first."""
WHITESPACE = 16
"""Characters between two parts of the JSON, at most: without an end a model may write on and on."""


class Grammars:
    """The compiled schemas of one model."""

    def __init__(self, policy: "AutoregressivePolicy") -> None:
        """Take the policy whose tokenizer and whose ends of an answer they are for."""
        self._policy, self._width = policy, policy.model.get_output_embeddings().weight.shape[0]
        # of its own: what is slow there delays no free text
        self.threads = ThreadPoolExecutor(4, "schema")
        self._kept: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()
        self._one = threading.Semaphore()

    @cached_property
    def _compiler(self) -> Any:
        xgrammar: Any = import_needed("xgrammar", "a response_format", RecipeError)
        information = xgrammar.TokenizerInfo.from_huggingface(
            self._policy.chat.tokenizer,
            vocab_size=self._width,
            stop_token_ids=list(self._policy.chat.stop_ids),
        )
        return xgrammar.GrammarCompiler(information, max_threads=1, cache_enabled=False)

    def follow(self, schema: Mapping[str, Any]) -> tuple["SchemaConstraint", Callable[[str], bool]]:
        """What holds one answer to a schema, and what judges it: grammars leave out `not`,
        `multipleOf` and the like.

        Raises:
            RecipeError, EngineError: see `constraint` and `make_validator`.
        """
        constraint, (validator, _) = self.constraint(schema), make_validator(schema)

        def judge(text: str) -> bool:
            try:
                return bool(validator.is_valid(json.loads(text)))
            # no JSON; too deep; or a pattern that takes too long
            except (ValueError, RecursionError):
                return False

        return constraint, judge

    def constraint(self, schema: Mapping[str, Any]) -> "SchemaConstraint":
        """What holds one answer to a schema; {} is any object.

        Raises:
            RecipeError: the schema is too large, or xgrammar refuses it.
            EngineError: compiling did not come to an end in time.
        """
        text = check_schema(schema or {"type": "object"})
        with self._lock:
            compiled = self._kept.pop(text, None)
            if compiled is not None:
                self._kept[text] = compiled
        if compiled is None:
            compiled = self._compile(text)
            with self._lock:
                self._kept[text] = compiled
                while (
                    len(self._kept) > 1
                    and sum(one.memory_size_bytes for one in self._kept.values()) > KEPT_BYTES
                ):
                    self._kept.popitem(last=False)
        return SchemaConstraint(compiled, self._width, self._policy.chat.stop_ids[0])

    def _compile(self, text: str) -> Any:
        """Compile in a thread, which is left alone where it takes too long; there is one at a
        time."""
        done: Future[Any] = Future()

        def work() -> None:
            try:
                done.set_result(
                    self._compiler.compile_json_schema(
                        text, any_whitespace=True, max_whitespace_cnt=WHITESPACE
                    )
                )
            except BaseException as error:  # noqa: BLE001 - told to whoever asked
                done.set_exception(error)
            finally:
                self._one.release()

        slow = EngineError(
            f"the JSON schema was not compiled within {SECONDS:g} seconds",
            "ask for a simpler one: fewer counts, patterns and alternatives",
        )
        if not self._one.acquire(timeout=SECONDS):
            raise slow
        threading.Thread(target=work, name="constrained", daemon=True).start()
        try:
            return done.result(SECONDS)
        except TooSlow:
            raise slow from None
        # xgrammar's own are RuntimeError and ValueError, and whatever C++ raises
        except Exception as error:
            said = " ".join(str(error).split())[-300:]
            raise RecipeError(
                f"the JSON schema cannot be followed: {said}", "change response_format"
            ) from error


class SchemaConstraint:
    """One answer's way through a schema: see `policies.policy.Constraint`."""

    def __init__(self, compiled: Any, width: int, stop: int) -> None:
        """Take a compiled schema, how many logits there are, and a token that ends an answer."""
        import xgrammar

        self._apply, self._stop = xgrammar.apply_token_bitmask_inplace, stop
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._mask = xgrammar.allocate_token_bitmask(1, width)
        self.failure: RecipeError | None = None

    def begin(self) -> None:
        """See `Constraint.begin`."""
        self._matcher.reset()
        self.failure = None

    def restrict(self, logits: Any) -> None:
        """See `Constraint.restrict`. Where no token may come next, the answer ends, and `failure`
        says so."""
        if not self._matcher.fill_next_token_bitmask(self._mask):
            return  # everything may come next
        if not self._mask.any():
            self.failure = RecipeError(
                "nothing that this model can write continues as the JSON schema wants it",
                "change it",
            )
            logits.fill_(-math.inf)[self._stop] = 0.0
        else:
            self._apply(logits.unsqueeze(0), self._mask.to(logits.device))

    def accept(self, token: int) -> None:
        """See `Constraint.accept`."""
        assert self.failure or self._matcher.accept_token(token), (
            "a token was drawn that the mask excluded"
        )


def check_schema(schema: Mapping[str, Any]) -> str:
    """A schema as compact JSON, if it is one that is safe to compile.

    Raises:
        RecipeError: it is too long, too deep, counts too far, or refers to something outside of
            itself.
    """
    nodes = list(_nodes(schema))
    try:
        text = json.dumps(schema, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise _schema_error("it has a number that JSON cannot say") from error
    if len(text) > BYTES:
        raise _schema_error(f"it has {len(text)} characters, and {BYTES} are allowed")
    total = 0
    for node in nodes:
        total += sum(
            int(count)
            for name in COUNTED
            if isinstance(count := node.get(name), int | float) and count > 0
        )
        patterns = node.get("patternProperties")
        for pattern in [node.get("pattern"), *(patterns if isinstance(patterns, Mapping) else ())]:
            if isinstance(pattern, str):
                total += _counts(pattern)
        reference = node.get("$ref", "#")
        if isinstance(reference, str) and not reference.startswith("#"):
            raise _schema_error("a $ref leads out of it")
    if total > COUNT:
        raise _schema_error(
            f"what it counts (lengths, items, repetitions) adds up to {total}, and {COUNT} is the "
            "most"
        )
    return text


def _schema_error(why: str) -> RecipeError:
    return RecipeError(f"the JSON schema is refused: {why}", "ask for a smaller one")


def _counts(pattern: str) -> int:
    """How often the parts of a regular expression are repeated at most, by its counts."""
    if len(pattern) > PATTERN:
        raise _schema_error(f"a pattern has {len(pattern)} characters, and {PATTERN} are allowed")
    product = math.prod(
        max(1, *(int(count) for count in re.findall(r"[0-9]+", counts)))
        for counts in re.findall(r"\{([0-9,\s]+)\}", pattern)
    )
    if product > PATTERN:
        raise _schema_error(
            f"the counts of a pattern multiply to {product}, and {PATTERN} is the most"
        )
    return product


def _nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Every object in a schema, whatever it stands for; the outer ones first.

    Raises:
        RecipeError: there are too many levels.
    """
    level = [schema]
    for _ in range(DEPTH):
        yield from (value for value in level if isinstance(value, Mapping))
        inside = [value.values() if isinstance(value, Mapping) else value for value in level]
        level = [
            part for parts in inside for part in parts if isinstance(part, Mapping | list | tuple)
        ]
        if not level:
            return
    raise _schema_error(f"it has more than {DEPTH} levels")
