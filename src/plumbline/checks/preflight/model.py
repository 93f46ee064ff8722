"""What the model would be given, before a run: lengths against its context, its files, its
tokenizer and template."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from plumbline.checks.check import Finding, Level, MissingDataError, check, describe_refusal
from plumbline.checks.preflight.before import BeforeRun
from plumbline.errors import DataError, ModelError, PlumblineError
from plumbline.policies.model_files import (
    ADAPTER,
    AGAIN,
    ONE_SET,
    TOKENIZERS,
    find_fault,
    find_unread,
    has_tokenizer,
    is_adapter,
    is_gguf,
    list_pickles,
)
from plumbline.policies.options import HidingModel
from plumbline.records import Example
from plumbline.seeds import derive
from plumbline.storage import read_object, read_text, shorten
from plumbline.tasks.cases import GOLD, LIMIT, Case, judge_case
from plumbline.tasks.task_data import TaskData

if TYPE_CHECKING:
    from plumbline.policies.pretrained.chat import Chat

# -- prompts and answers that do not fit -----------------------------------------------------------

MOST = 2000
"""Texts of a split that are counted in tokens."""
TEMPLATE, EACH = 64, 32
"""Tokens that a template may add to a prompt, and to each message; of the texts a token has at
least one byte."""
SOME, MANY = 0.01, 0.5
"""Shares of gold answers beyond the limit, from which on some answers, and most, cannot be
right."""


@check("before", name="lengths")
def find_long_texts(before: BeforeRun) -> Iterator[Finding]:
    """Of every task: prompts and demonstrations against the context, gold answers against the
    limit."""
    if before.recipe.model.name is not None and before.context is None and not before.exact:
        raise MissingDataError("the model's tokenizer and its context")
    for one in before.tasks.values():
        if before.context is not None:
            yield from _find_long_prompts(before, one, before.context)
        yield from _find_long_gold(before, one)
        if before.context is not None:
            yield from _find_long_demonstrations(before, one, before.context)


def _find_long_prompts(before: BeforeRun, one: TaskData, context: int) -> Iterator[Finding]:
    """A run refuses them, after it has evaluated its first model."""
    limit = before.recipe.sampling.max_tokens
    drawn = {"train": one.train} if before.recipe.rl is not None else {}
    for split, examples in {**drawn, **one.held_out}.items():
        suspects = [e for e in examples if _count_bytes(e) + limit > context]
        counted = [(before.prompt_tokens(e.messages), e) for e in suspects[:MOST]]
        long = sorted(
            (pair for pair in counted if pair[0] + limit > context), key=lambda pair: -pair[0]
        )
        if not long:
            continue
        share = len(long) / len(counted) * len(suspects) / len(examples)
        most, worst = long[0]
        golds = [before.answer_tokens(e.gold) for e in one.train[:MOST] if e.gold is not None]
        # a limit for the longest prompt still holds the gold answers
        fits = golds and max(golds) <= context - most
        yield Finding(
            "fatal" if before.exact else "warning",
            check="context",
            task=one.name,
            evidence={
                "estimated": not before.exact,
                "share": share,
                "n": len(examples),
                "split": split,
                "example": worst.id,
                "longest": most,
                "max_tokens": limit,
                "context": context,
            },
            samples=tuple(example.id for _, example in long[:5]),
            causes=("long-answers-allowed", "long-prompts", "low-context"),
            change={"sampling.max_tokens": context - most} if fits else {},
        )


def _find_long_gold(before: BeforeRun, one: TaskData) -> Iterator[Finding]:
    limit = before.recipe.sampling.max_tokens
    golds = [(e.gold, e) for e in one.train[:MOST] if e.gold is not None]
    counted = [
        (before.answer_tokens(gold) - 1, e) for gold, e in golds if len(gold.encode()) > limit
    ]
    long = sorted((pair for pair in counted if pair[0] > limit), key=lambda pair: -pair[0])
    if not long:
        return
    share, (most, worst) = len(long) / len(golds), long[0]
    level: Level = (
        "fatal" if share >= MANY and before.exact else "warning" if share >= SOME else "note"
    )
    yield Finding(
        level,
        "gold-cut",
        check="targets",
        task=one.name,
        evidence={
            "estimated": not before.exact,
            "share": share,
            "n": len(golds),
            "example": worst.id,
            "longest": most,
            "max_tokens": limit,
        },
        samples=tuple(example.id for _, example in long[:5]),
        causes=("limit-of-another",),
        change={"sampling.max_tokens": most + 1},
    )


def _find_long_demonstrations(before: BeforeRun, one: TaskData, context: int) -> Iterator[Finding]:
    """Prompt and shown answer against the context; too long ones are an error of SFT, or cut where
    that is allowed."""
    sft = before.recipe.sft
    if sft is None or (sft.tasks is not None and one.name not in sft.tasks):
        return
    suspects = [
        e
        for e in one.train
        if e.gold is not None and _count_bytes(e) + 2 * len(e.gold.encode()) > context
    ]
    long = []
    for example in suspects[:MOST]:
        try:
            answer = one.task.demonstration(
                example, derive(before.recipe.seed, "demonstration", example.id)
            )
        except PlumblineError:
            continue  # which is said of the data
        if (
            tokens := before.prompt_tokens(example.messages) + before.answer_tokens(answer)
        ) > context:
            long.append((tokens, example))
    if not long:
        return
    share = len(long) / len(suspects[:MOST]) * len(suspects) / len(one.train)
    most, worst = max(long, key=lambda pair: pair[0])
    yield Finding(
        "fatal" if before.exact and not sft.allow_truncation else "warning",
        "demonstrations-cut" if sft.allow_truncation else "demonstrations-refused",
        check="targets",
        task=one.name,
        evidence={
            "estimated": not before.exact,
            "share": share,
            "example": worst.id,
            "longest": most,
            "context": context,
        },
        samples=tuple(example.id for _, example in long[:5]),
        causes=("long-prompts", "low-context"),
        change={"model.context": most} if before.recipe.model.context is not None else {},
    )


def _count_bytes(example: Example) -> int:
    return TEMPLATE + sum(len(one["content"].encode()) + EACH for one in example.messages)


# -- a checkpoint that is not all there ------------------------------------------------------------


@check("before", name="checkpoint")
def find_broken_checkpoint(before: BeforeRun) -> Iterator[Finding]:
    """A model's directory, or an adapter's and its base's, that is not all there.

    Shards that the index names, files cut off by a broken download, no tokenizer. Headers are read,
    and no weights.
    """
    name, folder = before.recipe.model.name, before.model_folder
    if name is None or is_gguf(name):
        return
    if folder is None:
        raise MissingDataError("the model, which is not here")
    own = Path(name).expanduser()
    if is_adapter(own):
        yield from _find_broken_weights(own)
    if not (folder / "config.json").is_file():
        return  # which a run refuses
    try:
        read_object(folder / "config.json")
        yield from _find_broken_weights(folder)
    except PlumblineError as error:
        yield _broken_finding(error.cause, folder)
    if not has_tokenizer(own) and not has_tokenizer(folder):
        yield Finding(
            "fatal",
            "no-tokenizer",
            evidence={"folder": str(folder), "looked for": list(TOKENIZERS)},
            causes=("model-alone",),
        )


def _find_broken_weights(folder: Path) -> Iterator[Finding]:
    if fault := find_fault(folder):
        yield _broken_finding(fault, folder)
    elif not any(folder.glob("*.safetensors")) and (pickled := list_pickles(folder)):
        yield Finding(
            "warning",
            "pickles-only",
            evidence={"folder": str(folder), "first": pickled[:3], "files": pickled},
            causes=("old-checkpoint",),
        )
    elif unread := find_unread(folder):
        yield Finding(
            "warning",
            "two-sets",
            evidence={"cause": unread, "fix": ONE_SET, "folder": str(folder)},
            causes=("saved-beside",),
        )


def _broken_finding(fault: str, folder: Path) -> Finding:
    return Finding(
        "fatal",
        "broken",
        evidence={
            "cause": fault,
            "fix": AGAIN,
            "folder": str(folder),
            "adapter": (folder / ADAPTER).is_file(),
        },
        causes=("copy-cut-off", "killed-while-saving"),
    )


# -- the prompts as the tokenizer and the template write them --------------------------------------

TRIED, JUDGED = 20, 8
"""Examples of each task that are rendered, and those whose gold answers are judged."""
SHOWN = 120
"""Characters of a target that are shown."""
WORTH = 0.02
"""How much less a gold answer earns without a mark that matters."""


@check("before", name="template", quick=False)
def find_template_faults(before: BeforeRun) -> Iterator[Finding]:
    """What the model would really be shown of a few prompts of each task."""
    try:
        chat = before.chat
    except ModelError as error:
        from plumbline.policies.pretrained.chat import NO_TEMPLATE

        base = error.code == NO_TEMPLATE
        yield describe_refusal(
            error,
            causes=("base-model",) if base else (),
            change={"model.chat_template": "chatml"} if base else {},
        )
        return
    yield from _find_missing_mask(before, chat)
    for one in before.tasks.values():
        examples = one.train[:TRIED]
        try:
            prompts = [chat.prompt(example.messages) for example in examples]
        except (DataError, ModelError) as error:
            if isinstance(error, DataError):
                yield replace(
                    describe_refusal(error, task=one.name, causes=("roles",)),
                    code="message-refused",
                )
            else:
                yield describe_refusal(error, task=one.name)
            continue
        if prompts:
            yield from _find_bos_faults(chat, one, prompts)
            yield from _find_dropped_roles(chat, one, examples, prompts)
            yield from _find_control_tokens(chat, one, examples)
            yield from _find_opened_mark(chat, one, examples)
    yield from _find_replaced_template(before)


def _find_missing_mask(before: BeforeRun, chat: "Chat") -> Iterator[Finding]:
    """The token that hides a position, which a masked or slot model cannot do without."""
    folder = before.model_folder
    if not isinstance(before.recipe.model, HidingModel) or folder is None:
        return
    from plumbline.policies.pretrained.policy import find_mask

    config = read_object(folder / "config.json")
    try:
        find_mask(
            chat.tokenizer, (config.get("text_config") or config).get("mask_token_id"), str(folder)
        )
    except ModelError as error:
        yield describe_refusal(error, causes=("no-mask",))


def _find_bos_faults(
    chat: "Chat", one: TaskData, prompts: Sequence[Sequence[int]]
) -> Iterator[Finding]:
    """None, one or two begin-of-text tokens."""
    begin = chat.tokenizer.bos_token_id
    if begin is None:
        return
    name = chat.tokenizer.bos_token
    evidence = {"token": name, "first ids": list(prompts[0][:4])}
    if all(list(prompt[:2]) == [begin, begin] for prompt in prompts):
        causes: tuple[str, ...] = ("template-and-messages", "template-twice")
        yield Finding("fatal", "two-begins", task=one.name, evidence=evidence, causes=causes)
    adds = chat.tokenizer("x")["input_ids"][:1] == [begin]
    if adds and not any(prompt[0] == begin for prompt in prompts):
        causes = ("of-another-model",)
        yield Finding("warning", "no-begin", task=one.name, evidence=evidence, causes=causes)


def _find_dropped_roles(
    chat: "Chat", one: TaskData, examples: Sequence[Example], prompts: Sequence[Sequence[int]]
) -> Iterator[Finding]:
    for example, prompt in zip(examples, prompts, strict=True):
        text = "".join(chat.tokenizer.decode(list(prompt), skip_special_tokens=False).split())
        lost = [
            message["role"]
            for message in example.messages
            if "".join(message["content"].split()) not in text
        ]
        if lost:
            yield Finding(
                "fatal",
                "role-dropped",
                task=one.name,
                evidence={"example": example.id, "lost": lost},
                samples=(example.id,),
                causes=("no-place",),
            )
            return


def _find_control_tokens(
    chat: "Chat", one: TaskData, examples: Sequence[Example]
) -> Iterator[Finding]:
    """Data that writes the template's own marks, which a model is shown as ordinary text."""
    for example in examples:
        texts = [*(message["content"] for message in example.messages), example.gold or ""]
        found = [token for text in texts for token in chat.find_control_tokens(text)]
        if found:
            yield Finding(
                "warning",
                "control-token",
                task=one.name,
                evidence={
                    "example": example.id,
                    "token": found[0],
                    "tokens": found[:5],
                },
                samples=(example.id,),
                causes=("rendered-already",),
            )
            return


def _find_opened_mark(
    chat: "Chat", one: TaskData, examples: Sequence[Example]
) -> Iterator[Finding]:
    """A reward that wants the mark which the prompt has written already: no answer can begin with
    it."""
    golds = [
        (example, example.gold, chat.strip_opened_thought(example.gold or ""))
        for example in examples[:JUDGED]
    ]
    tried = [
        (example, gold, rest)
        for example, gold, rest in golds
        if gold is not None and rest is not None
    ]
    if not tried or one.task.turns > 1:
        return

    def earns(texts: Iterable[tuple[Example, str]]) -> float:
        return sum(
            judge_case(one.task, Case(example, GOLD, text), LIMIT).total for example, text in texts
        ) / len(tried)

    try:
        whole, sampled = (
            earns((e, gold) for e, gold, _ in tried),
            earns((e, rest) for e, _, rest in tried),
        )
    except PlumblineError:
        return  # which is said of the reward
    if sampled < whole - WORTH:
        yield Finding(
            "warning",
            "mark-opened",
            task=one.name,
            evidence={
                "mark": chat.opened.strip(),
                "whole": whole,
                "sampled": sampled,
                "n": len(tried),
            },
            causes=("other-form",),
        )


def render_first_target(before: BeforeRun) -> str | None:
    """What SFT teaches first, with its marks, behind the end of its prompt; None where that cannot
    be known."""
    if before.recipe.sft is None or not before.exact:
        return None
    for one in before.tasks.values():
        for example in one.train[:1]:
            try:
                answer = one.task.demonstration(
                    example, derive(before.recipe.seed, "demonstration", example.id)
                )
                chat = before.chat.demonstration(
                    [*example.messages, {"role": "assistant", "content": answer}]
                )
            except PlumblineError:
                return None  # which is said of the data
            begins = chat.is_target.index(True)
            parts = (list(chat.tokens[:begins]), list(chat.tokens[begins:]))
            prompt, target = (str(before.chat.tokenizer.decode(ids)) for ids in parts)
            return f"{one.called}SFT's first target, behind {prompt[-30:]!r}: {shorten(target, SHOWN)!r}"
    return None


def _find_replaced_template(before: BeforeRun) -> Iterator[Finding]:
    """A template of the model's own that the recipe's goes over: that of its training, of an
    earlier stage, too."""
    section = before.recipe.model
    if section.chat_template is None or section.name is None:
        return
    for folder in (Path(section.name).expanduser(), before.model_folder):
        if folder is None:
            continue
        config, own = folder / "tokenizer_config.json", None
        if (folder / "chat_template.jinja").is_file():
            own = read_text(folder / "chat_template.jinja")
        elif config.is_file():
            own = read_object(config).get("chat_template")
        if not isinstance(own, str) or not own:
            continue
        if own != before.chat.tokenizer.chat_template:
            yield Finding(
                "warning",
                "replaced",
                evidence={"set": section.chat_template},
                causes=("of-a-base-model", "two-stages"),
                change={"model.chat_template": None},
            )
        return


CHECKS = (find_long_texts, find_broken_checkpoint, find_template_faults)
