"""Prompts and answers that do not fit: into the context, or into the tokens that an answer may have."""

from collections.abc import Iterator

from plumbline.checks.diagnosis.finding import Finding, Level
from plumbline.checks.preflight.before import Before, Check, Lacking
from plumbline.checks.preflight.prompts import Opened
from plumbline.errors import PlumblineError
from plumbline.records import Example
from plumbline.seeds import derive

MOST = 2000
"""Texts of a split that are counted in tokens."""
TEMPLATE, EACH = 64, 32
"""Tokens that a template may add to a prompt, and to each message; of the texts a token has at least one byte."""
SOME, MANY = 0.01, 0.5
"""Shares of gold answers beyond the limit, from which on some answers, and most, cannot be right."""


def look(before: Before) -> Iterator[Finding]:
    """Of every task: prompts against the context, gold answers against the limit, demonstrations against the
    context."""
    if before.recipe.model.name is not None and before.context is None and not before.exact:
        raise Lacking("the model's tokenizer and its context")
    for one in before.tasks.values():
        yield from _prompts(before, one)
        yield from _targets(before, one)
        yield from _demonstrations(before, one)


def _prompts(before: Before, one: Opened) -> Iterator[Finding]:
    """A run refuses them, after it has evaluated its first model."""
    context, limit = before.context, before.recipe.sampling.max_tokens
    if context is None:
        return
    drawn = {"train": one.splits["train"]} if before.recipe.rl is not None else {}
    for split, examples in {**drawn, **before.evaluated(one)}.items():
        suspects = [e for e in examples if _bytes(e) + limit > context]
        counted = [(before.prompt_tokens(e.messages), e) for e in suspects[:MOST]]
        long = sorted((pair for pair in counted if pair[0] + limit > context), key=lambda pair: -pair[0])
        if not long:
            continue
        share = len(long) / len(counted) * len(suspects) / len(examples)
        most, worst = long[0]
        yield Finding(
            "context",
            "fatal" if before.exact else "warning",
            f"{one.called}{_about(before)}{share:.0%} of {len(examples)} prompts of {split} do not fit: {worst.id} has "
            f"{most} tokens, and with an answer of up to {limit} exceeds the context of {context}",
            evidence={"share": share, "longest": most, "max_tokens": limit, "context": context},
            samples=tuple(example.id for _, example in long[:5]),
            causes=("an answer may be longer than any gold answer is", "long prompts", "a context set too low"),
            fix="lower sampling.max_tokens, shorten the prompts, or use a model with a longer context",
            change=_fitting(before, one, context - most),
        )


def _fitting(before: Before, one: Opened, left: int) -> dict[str, int]:
    """The limit that fits the longest prompt, where it still holds the gold answers."""
    golds = [before.answer_tokens(e.gold) for e in one.splits["train"][:MOST] if e.gold is not None]
    return {"sampling.max_tokens": left} if golds and max(golds) <= left else {}


def _targets(before: Before, one: Opened) -> Iterator[Finding]:
    limit = before.recipe.sampling.max_tokens
    golds = [(e.gold, e) for e in one.splits["train"][:MOST] if e.gold is not None]
    counted = [(before.answer_tokens(gold) - 1, e) for gold, e in golds if len(gold.encode()) > limit]
    long = sorted((pair for pair in counted if pair[0] > limit), key=lambda pair: -pair[0])
    if not long:
        return
    share, (most, worst) = len(long) / len(golds), long[0]
    level: Level = "fatal" if share >= MANY and before.exact else "warning" if share >= SOME else "note"
    yield Finding(
        "targets",
        level,
        f"{one.called}{_about(before)}{share:.1%} of {len(golds)} gold answers are longer than sampling.max_tokens "
        f"({limit}; {worst.id} has {most}): such answers are cut off, and earn what their beginning earns",
        evidence={"share": share, "longest": most, "max_tokens": limit, "n": len(golds)},
        samples=tuple(example.id for _, example in long[:5]),
        causes=("the limit was set for another task or another tokenizer",),
        fix="raise sampling.max_tokens to what the longest gold answer has",
        change={"sampling.max_tokens": most + 1},
    )


def _demonstrations(before: Before, one: Opened) -> Iterator[Finding]:
    """Prompt and shown answer against the context; too long ones are an error of SFT, or cut where that is allowed."""
    sft, context = before.recipe.sft, before.context
    if sft is None or context is None or (sft.tasks is not None and one.name not in sft.tasks):
        return
    suspects = [e for e in one.splits["train"] if e.gold is not None and _bytes(e) + 2 * len(e.gold.encode()) > context]
    long = []
    for example in suspects[:MOST]:
        try:
            shown = one.probed.demonstration(example, derive(before.recipe.seed, "demonstration", example.id))
        except PlumblineError:
            continue  # which is said of the data
        if (tokens := before.prompt_tokens(example.messages) + before.answer_tokens(shown)) > context:
            long.append((tokens, example))
    if not long:
        return
    share = len(long) / len(suspects[:MOST]) * len(suspects) / len(one.splits["train"])
    most, worst = max(long, key=lambda pair: pair[0])
    yield Finding(
        "targets",
        "fatal" if before.exact and not sft.allow_truncation else "warning",
        f"{one.called}{_about(before)}{share:.1%} of the demonstrations are longer than the context of {context} "
        f"({worst.id} has {most} tokens): "
        + ("SFT shows them cut, without their ends" if sft.allow_truncation else "SFT refuses them"),
        evidence={"share": share, "longest": most, "context": context},
        samples=tuple(example.id for _, example in long[:5]),
        causes=("long prompts", "a context set too low"),
        fix="use a longer context, shorten the prompts, or leave those examples out",
        change={"model.context": most} if before.recipe.model.context is not None else {},
    )


def _bytes(example: Example) -> int:
    return TEMPLATE + sum(len(one["content"].encode()) + EACH for one in example.messages)


def _about(before: Before) -> str:
    return "" if before.exact else "by characters, about "


CHECK = Check(
    name="lengths",
    asks="whether prompts fit into the context, and gold answers into what an answer may have",
    look=look,
)
