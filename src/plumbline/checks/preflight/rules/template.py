"""What the model would really be shown: the prompts as its own tokenizer and template write them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.preflight.before import Before, Check
from plumbline.checks.preflight.prompts import Opened
from plumbline.errors import DataError, ModelError
from plumbline.policies.options import HidingModel
from plumbline.records import Example
from plumbline.storage import read_object, read_text

if TYPE_CHECKING:
    from plumbline.policies.pretrained.chat import Chat

TRIED = 20
"""Examples of each task that are rendered."""


def look(before: Before) -> Iterator[Finding]:
    """Of a few prompts of each task."""
    try:
        chat = before.chat
    except ModelError as error:
        lacking = "no chat template" in error.cause
        yield Finding(
            "template",
            "fatal",
            error.cause,
            causes=("a base model, which was never shown a chat",) if lacking else (),
            fix=error.fix,
            change={"model.chat_template": "chatml"} if lacking else {},
        )
        return
    yield from _mask(before, chat)
    for one in before.tasks.values():
        examples = one.splits["train"][:TRIED]
        try:
            prompts = [chat.prompt(example.messages) for example in examples]
        except (DataError, ModelError) as error:
            refuses = isinstance(error, DataError)
            yield Finding(
                "template",
                "fatal",
                f"{one.called}{error.cause}",
                causes=("it takes no message of the system's, or no two of one role in a row",) if refuses else (),
                fix=error.fix or "give messages that the template takes (task options), or another template",
            )
            continue
        if prompts:
            yield from _begins(chat, one, prompts)
            yield from _left_out(chat, one, examples, prompts)
            yield from _control_tokens(chat, one, examples)
    yield from _replaced(before)


def _mask(before: Before, chat: "Chat") -> Iterator[Finding]:
    """The token that hides a position, which a masked or slot model cannot do without."""
    folder = before.model_folder
    if not isinstance(before.recipe.model, HidingModel) or folder is None:
        return
    from plumbline.policies.pretrained.policy import find_mask

    config = read_object(folder / "config.json")
    try:
        find_mask(chat.tokenizer, (config.get("text_config") or config).get("mask_token_id"), str(folder))
    except ModelError as error:
        causes = ("the model was trained to predict the next token, and never saw a mask",)
        yield Finding("template", "fatal", error.cause, causes=causes, fix=error.fix)


def _begins(chat: "Chat", one: Opened, prompts: Sequence[Sequence[int]]) -> Iterator[Finding]:
    """None, one or two begin-of-text tokens."""
    begin = chat.tokenizer.bos_token_id
    if begin is None:
        return
    if all(list(prompt[:2]) == [begin, begin] for prompt in prompts):
        yield Finding(
            "template",
            "fatal",
            f"{one.called}every prompt begins with two begin-of-text tokens ({chat.tokenizer.bos_token}): the model "
            "was never trained on such a beginning",
            evidence={"token": chat.tokenizer.bos_token, "first ids": list(prompts[0][:4])},
            causes=("the template writes one and the messages have one", "the template writes two"),
            fix="take it out of the messages or of the template: one of them is enough",
        )
    adds = chat.tokenizer("x")["input_ids"][:1] == [begin]
    if adds and not any(prompt[0] == begin for prompt in prompts):
        yield Finding(
            "template",
            "warning",
            f"{one.called}no prompt begins with the begin-of-text token ({chat.tokenizer.bos_token}), which the "
            "tokenizer adds to every other text: the template leaves it out",
            evidence={"token": chat.tokenizer.bos_token, "first ids": list(prompts[0][:4])},
            causes=("a template that was written for another model",),
            fix="begin the template with {{ bos_token }}, in a file of its own (model.chat_template)",
        )


def _left_out(
    chat: "Chat", one: Opened, examples: Sequence[Example], prompts: Sequence[Sequence[int]]
) -> Iterator[Finding]:
    for example, prompt in zip(examples, prompts, strict=True):
        text = _plain(chat.tokenizer.decode(list(prompt), skip_special_tokens=False))
        lost = [message["role"] for message in example.messages if _plain(message["content"]) not in text]
        if lost:
            yield Finding(
                "template",
                "fatal",
                f"{one.called}the prompt of {example.id} has no word of its {lost[0]} message: the chat template "
                "leaves it out, or the tokenizer cannot write it",
                evidence={"lost": lost},
                samples=(example.id,),
                causes=("a template without a place for that role",),
                fix="use a template that writes every role (model.chat_template), or put that text into the user's "
                "message",
            )
            return


def _control_tokens(chat: "Chat", one: Opened, examples: Sequence[Example]) -> Iterator[Finding]:
    """Data that writes the template's own marks, which a model is shown as ordinary text."""
    for example in examples:
        texts = [*(message["content"] for message in example.messages), example.gold or ""]
        found = [token for text in texts for token in chat.spelled(text)]
        if found:
            yield Finding(
                "template",
                "warning",
                f"{one.called}the text of {example.id} has the control token {found[0]} in it: only the template "
                "writes those, so the model is shown its letters",
                evidence={"tokens": found[:5]},
                samples=(example.id,),
                causes=("rows that were rendered for another trainer already",),
                fix="give messages, and leave the rendering to the template",
            )
            return


def _replaced(before: Before) -> Iterator[Finding]:
    """A template of the model's own that the recipe's goes over: that of its training, of an earlier stage, too."""
    section = before.recipe.model
    if section.chat_template is None or section.name is None:
        return
    folders = [Path(section.name).expanduser(), before.model_folder]
    own = next((found for folder in folders if folder is not None and (found := _own(folder))), None)
    if own is None or own == before.chat.tokenizer.chat_template:
        return
    yield Finding(
        "template",
        "warning",
        f"model.chat_template is {section.chat_template}, and the model has another template of its own: its prompts "
        "are rendered otherwise than in its training",
        evidence={"set": section.chat_template},
        causes=("a key from a recipe for a base model", "two stages with different templates"),
        fix="leave model.chat_template out: it is for a tokenizer without a template",
        change={"model.chat_template": None},
    )


def _own(folder: Path) -> str | None:
    """The chat template that a model's directory holds."""
    if (folder / "chat_template.jinja").is_file():
        return read_text(folder / "chat_template.jinja")
    config = folder / "tokenizer_config.json"
    found = read_object(config).get("chat_template") if config.is_file() else None
    return found if isinstance(found, str) else None


def _plain(text: str) -> str:
    return "".join(text.split())


CHECK = Check(
    name="template",
    asks="how prompts are rendered: begin-of-text, messages left out, control tokens in the data",
    look=look,
    cheap=False,
)
