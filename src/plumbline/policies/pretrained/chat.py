"""Chats to token ids: prompts as the sampler sees them, demonstrations with the same boundary.

A demonstration is the prompt's ids (with the generation prompt) followed by the answer's ids and the token that ends
a turn, each tokenised on its own. So what training shows is byte for byte what sampling starts from, even where a
tokenizer would merge characters across the boundary, or a template would treat a finished turn differently.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plumbline.errors import DataError, ModelError
from plumbline.policies.opening import encode
from plumbline.policies.policy import Demonstration
from plumbline.records import Message
from plumbline.storage import read_text

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def read_template(path: str) -> str:
    """A chat template from its file.

    Raises:
        ModelError: it cannot be read.
    """
    if not Path(path).is_file():
        raise ModelError(
            f"cannot read the chat template {path}: there is no such file", "give chatml, or the path of a Jinja file"
        )
    return read_text(Path(path), ModelError)


class Chat:
    """A tokenizer and its template: which ids a chat is, and which ids end an answer."""

    def __init__(
        self,
        tokenizer: Any,
        generation_stops: Sequence[int] = (),
        template: str | None = None,
        rows: int | None = None,
    ) -> None:
        """Take a tokenizer, the model's own stop ids, a template for a tokenizer that has none, and how many
        embeddings the model has.

        Raises:
            ModelError: no chat template, or no token that could end an answer.
        """
        if template is not None:
            tokenizer.chat_template = CHATML if template == "chatml" else read_template(template)
        if not tokenizer.chat_template:
            raise ModelError(
                f"the tokenizer of {tokenizer.name_or_path or 'this model'} has no chat template",
                "set model.chat_template to chatml, or to the path of a Jinja file",
            )
        self.tokenizer, self.rows = tokenizer, rows
        self.end_of_turn = self._find_end_of_turn()
        self.stop_ids = tuple(sorted({self.end_of_turn, *generation_stops, *_own_stops(tokenizer)}))

    def _find_end_of_turn(self) -> int:
        """The token that the template puts after an answer; the end-of-text token where it puts none."""
        marker = "plumbline"
        text = self._render([{"role": "user", "content": "?"}, {"role": "assistant", "content": marker}], prompt=False)
        rest = text.rpartition(marker)[2].lstrip()
        if rest:
            first = next(iter(self._ids(rest)), -1)
            if first in self.tokenizer.all_special_ids or first in _added_ids(self.tokenizer):
                return int(first)
        if self.tokenizer.eos_token_id is None:
            raise ModelError(
                "neither the chat template nor the tokenizer has a token that ends an answer",
                "set eos_token in the model's tokenizer_config.json",
            )
        return int(self.tokenizer.eos_token_id)

    def _render(self, messages: Sequence[Message], *, prompt: bool) -> str:
        try:
            text = self.tokenizer.apply_chat_template(
                [dict(m) for m in messages], tokenize=False, add_generation_prompt=prompt
            )
        except Exception as error:
            raise DataError(f"the chat template refuses these messages: {error}") from error
        return str(text)

    def _ids(self, text: str) -> list[int]:
        return encode(self.tokenizer, text, self.rows)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a chat up to where the answer begins."""
        return self._ids(self._render(messages, prompt=True))

    def demonstration(self, messages: Sequence[Message]) -> Demonstration:
        """Ids of a chat whose last answer is the target, with the token that ends it; all before it is its prompt.

        Earlier answers are what the last one follows, as when it is sampled, and are no targets.

        Raises:
            DataError: the chat does not end with an answer.
        """
        if not messages or messages[-1]["role"] != "assistant":
            raise DataError("a demonstration ends with the assistant's answer")
        prompt = self.prompt(messages[:-1])
        answer = [*self._ids(messages[-1]["content"]), self.end_of_turn]
        return Demonstration((*prompt, *answer), (False,) * len(prompt) + (True,) * len(answer))

    def text(self, tokens: Sequence[int]) -> str:
        """The text of an answer's ids, without the token that ended it and other special tokens."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _own_stops(tokenizer: Any) -> list[int]:
    return [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]


def _added_ids(tokenizer: Any) -> set[int]:
    return set(getattr(tokenizer, "added_tokens_decoder", {}))
