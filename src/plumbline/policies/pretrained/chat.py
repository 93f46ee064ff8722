"""Chats to token ids: prompts as the sampler sees them, demonstrations with the same boundary.

A demonstration is the prompt's ids (with the generation prompt) followed by the answer's ids and
the token that ends a turn, each tokenised on its own. So what training shows is byte for byte what
sampling starts from, even where a tokenizer would merge characters across the boundary, or a
template would treat a finished turn differently.

Control tokens are the template's own: what a message spells like one is tokenised as the ordinary
text that it is.
"""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from plumbline.errors import DataError, ModelError
from plumbline.policies.library_errors import clear_opening_errors
from plumbline.policies.policy import Demonstration
from plumbline.policies.pretrained.rendering import TEMPLATE, render
from plumbline.policies.pretrained.tokenizer import encode
from plumbline.recipe import ModelSection
from plumbline.records import Message
from plumbline.storage import one_line, read_text

NO_TEMPLATE = "no-template"
"""The code of that error."""
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] "
    "}}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QUESTION, ANSWER = "plummet", "plumbline"
"""What a template is tried with."""
_THOUGHT = re.compile(
    r"<\|?([^<>|/]+)>\s*\w*\s*<[/|]?\1\|?>|<\|?([^<>|/]+)\|>\s*<\|?/\2\|>|</[^<>|/]+>"
)
"""A thought without a thought: <think></think>, <|channel>thought<channel|>, or the end alone."""
_MARK = re.compile(r"[^\w\s]")
"""Part of every added token but blanks and words, which any text has."""
_ADDRESS = re.compile(r"<[^<>]* at 0x[0-9a-f]+>")
"""How Python writes a function or an object: by where it lies in memory."""
_OPENED = re.compile(r"<([^<>|/]+)>\s*$")


def read_template(path: str) -> str:
    """A chat template from its file.

    Raises:
        ModelError: it cannot be read.
    """
    if not Path(path).is_file():
        raise ModelError(
            f"cannot read the chat template {path}: there is no such file",
            "give chatml, or the path of a Jinja file",
        )
    return read_text(Path(path), ModelError)


class Chat:
    """A tokenizer and its template: which ids a chat is, and which ids end an answer."""

    def __init__(
        self,
        tokenizer: Any,
        generation_stops: Any = (),
        template: str | None = None,
        date: str = ModelSection.model_fields["date"].default,
        rows: int | None = None,
    ) -> None:
        """Take a tokenizer and how its model is asked.

        Args:
            tokenizer: its template is replaced where another is given.
            generation_stops: the model's own stop ids as its generation config has them: one,
                several or None.
            template: chatml, or the path of a Jinja file.
            date: the day (YYYY-MM-DD) that it is for a template, whenever it is rendered.
            rows: how many embeddings the model has; no text may become a token without one.

        Raises:
            ModelError: no chat template, one that fails, or one whose answers do not begin where it
                asks for them; no token that could end an answer.
        """
        self.tokenizer, self.rows = tokenizer, rows
        if template == "chatml":
            bos = tokenizer.bos_token_id
            begins = bos is not None and encode(
                lambda: tokenizer("x")["input_ids"], "x", tokenizer, rows
            )[:1] == [bos]
            tokenizer.chat_template = ("{{ bos_token }}" if begins else "") + CHATML
        elif template is not None:
            tokenizer.chat_template = read_template(template)
        if not tokenizer.chat_template:
            raise ModelError(
                f"the tokenizer of {tokenizer.name_or_path or 'this model'} has no chat template",
                "set model.chat_template to chatml, or to the path of a Jinja file",
                NO_TEMPLATE,
            )
        self._date = date
        self._added = {
            int(i): str(token)
            for i, token in getattr(tokenizer, "added_tokens_decoder", {}).items()
        }
        asked, finished = self._render_trial()
        self.end_of_turn = self._find_end_of_turn(finished.rpartition(ANSWER)[2].lstrip())
        stops = {self.end_of_turn, *_read_stop_ids(generation_stops, rows)}
        if tokenizer.eos_token_id is not None:
            stops.add(int(tokenizer.eos_token_id))
        self.stop_ids = tuple(sorted(stops))
        # with a finished answer, a template may write what is before otherwise
        begun = finished.rpartition(ANSWER)[0]
        self._closing = self._find_closing(
            *(text.rpartition(QUESTION)[2] for text in (asked, begun))
        )
        opened = _OPENED.search(asked)
        self.opened = opened[0] if opened else ""
        """The mark that opens a thought at the end of the generation prompt, with blanks behind it;
        else nothing."""
        self.control = self._find_control(_OPENED.sub("", asked) if self._closing else asked)
        """The control tokens' texts by id: special ones, stop tokens, and what else the template
        marks turns with."""

    def _render_trial(self) -> tuple[str, str]:
        """A question up to where the answer begins, and with the answer; behind a system message
        where one may be."""
        system: Message = {"role": "system", "content": "."}
        chat: list[Message] = [
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": ANSWER},
        ]
        for lead in ([system], []):
            try:
                asked, finished = (
                    self._render([*lead, chat[0]], prompt=True),
                    self._render([*lead, *chat], prompt=False),
                )
            except (DataError, ModelError) as error:
                if not lead:
                    raise ModelError(
                        f"a question and an answer cannot be rendered: {error.cause}", TEMPLATE
                    ) from error
            else:
                break
        if found := _ADDRESS.search(asked):
            raise ModelError(
                f"the chat template writes {found[0]}, which is another text in each process",
                TEMPLATE,
            )
        if QUESTION not in asked or ANSWER not in finished:
            lost = "the answer" if QUESTION in asked else "the question"
            raise ModelError(
                f"the chat template leaves out {lost} of a chat whose messages are plain text",
                TEMPLATE,
            )
        return asked, finished

    def _find_end_of_turn(self, rest: str) -> int:
        """The token that the template puts after an answer; the end-of-text token where that is
        none."""
        for first in self._ids(rest)[:1]:
            if first in self.tokenizer.all_special_ids or first in self._added:
                return first
        if self.tokenizer.eos_token_id is None:
            raise ModelError(
                "neither the chat template nor the tokenizer has a token that ends an answer",
                "set eos_token in the model's tokenizer_config.json",
            )
        return int(self.tokenizer.eos_token_id)

    def _find_closing(self, asked: str, begun: str) -> str:
        """What closes a thought that the generation prompt opens, with which demonstrations begin;
        else nothing.

        Args:
            asked: what follows the question, with the generation prompt.
            begun: what follows it before the text of a finished answer.

        Raises:
            ModelError: a finished answer begins otherwise: with tokens that an answer's text cannot
                hold, or without what the generation prompt ends with. An empty thought, and one
                that is opened, may differ.
        """
        left, inserted = self._split_endings(asked, begun)
        closing = ""
        if opened := _OPENED.search(asked):
            closes = re.match(rf"\s*</{re.escape(opened[1])}>\s*", inserted)
            if closes and not left:
                closing, inserted = closes[0], inserted[closes.end() :]
            elif _OPENED.search(left):
                closing, left = f"\n</{opened[1]}>\n\n", _OPENED.sub("", left)
        left, inserted = (_THOUGHT.sub("", text).strip() for text in (left, inserted))
        if left or any(token in inserted for token in self._added.values() if _MARK.search(token)):
            raise ModelError(
                f"the chat template asks for an answer with {asked[-80:]!r}, and begins a finished "
                "one with "
                f"{begun[-80:]!r}: what is sampled would be no answer as the template writes it",
                "use another model, or set model.chat_template to a Jinja file whose generation "
                "prompt ends where the "
                "text of an answer begins",
            )
        return closing

    def _split_endings(self, one: str, other: str) -> list[str]:
        """What two texts end with behind their common beginning, which cuts through no added
        token."""
        unit = re.compile(f"{_match_any(self._added.values()).pattern}|[\\s\\S]")
        units = [[found[0] for found in unit.finditer(text)] for text in (one, other)]
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*units, strict=False)))
        return ["".join(each[same:]) for each in units]

    def _find_control(self, asked: str) -> dict[int, str]:
        tokenizer, stops = self.tokenizer, {*self.stop_ids}
        special = {
            *tokenizer.all_special_ids,
            *(i for i, one in tokenizer.added_tokens_decoder.items() if one.special),
        }
        shown = self._ids(re.sub(rf"(?:{_THOUGHT.pattern})\s*$", "", asked))
        marks = {i for i in {*stops, *shown} if _MARK.search(self._added.get(i, ""))}
        # what a tokenizer makes of unknown letters
        found = (special | marks) - ({tokenizer.unk_token_id} - stops)
        return {i: text for i, text in self._added.items() if i in found}

    def _render(self, messages: Sequence[Message], *, prompt: bool) -> str:
        if not messages:
            raise DataError("a chat without a message", "give at least one")
        told: dict[str, Any] = {
            "messages": [dict(each) for each in messages],
            "tools": None,
            "documents": None,
        }
        special = {**self.tokenizer.special_tokens_map, "add_generation_prompt": prompt}
        try:
            template = self.tokenizer.get_chat_template()
            values = json.dumps({**told, **special}, default=str)
        except (TypeError, ValueError) as error:  # several by name, of which none is the default
            raise ModelError(
                f"the chat template fails: {type(error).__name__}: {one_line(error)}", TEMPLATE
            ) from error
        if not isinstance(template, str):
            raise ModelError(
                f"the chat template is {type(template).__name__}, and no text", TEMPLATE
            )
        return render(template, self._date, values)

    def _ids(self, text: str) -> list[int]:
        return encode(
            lambda: self.tokenizer(text, add_special_tokens=False)["input_ids"],
            text,
            self.tokenizer,
            self.rows,
        )

    def find_control_tokens(self, text: str) -> list[str]:
        """The control tokens that the tokenizer would read in a text."""
        return [self.control[token] for token in self._ids(text) if token in self.control]

    @cached_property
    def _escaper(self) -> "_ControlEscaper":
        return _ControlEscaper(self.tokenizer, self.control)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a chat up to where the answer begins.

        Raises:
            DataError: the template refuses it; it spells a control token that the tokenizer cannot
                write as text.
            ModelError: the template or the tokenizer fails.
        """
        if not any(self.find_control_tokens(message["content"]) for message in messages):
            return self._ids(self._render(messages, prompt=True))
        hidden: list[Message] = [
            {**each, "content": self._escaper.escape(each["content"])} for each in messages
        ]
        return self._escaper.ids(self._render(hidden, prompt=True))

    def demonstration(self, messages: Sequence[Message]) -> Demonstration:
        """Ids of a chat whose last answer is the target, with the token that ends it; all before it
        is its prompt.

        Earlier answers are what the last one follows, as when it is sampled, and are no targets.
        Where the generation prompt opens a thought, the target continues it, or closes it where the
        answer has none.

        Raises:
            DataError: the chat does not end with an answer; see `prompt`.
        """
        if not messages or messages[-1]["role"] != "assistant":
            raise DataError("a demonstration ends with the assistant's answer")
        prompt, (closing, said) = (
            self.prompt(messages[:-1]),
            self._split_thought(messages[-1]["content"]),
        )
        own = (
            self._escaper.ids(self._escaper.escape(said))
            if self.find_control_tokens(said)
            else self._ids(said)
        )
        answer = [*self._ids(closing), *own, self.end_of_turn]
        return Demonstration((*prompt, *answer), (False,) * len(prompt) + (True,) * len(answer))

    def _split_thought(self, answer: str) -> tuple[str, str]:
        """What closes the thought that the generation prompt opens, and what of the answer
        follows."""
        if (thought := self.strip_opened_thought(answer)) is not None:
            return "", thought
        ends = self.opened.strip().replace("<", "</")
        goes_on = ends and ends in answer and self.opened.strip() not in answer
        return "" if goes_on else self._closing, answer

    def strip_opened_thought(self, answer: str) -> str | None:
        """An answer that begins with a thought, as it is sampled behind a prompt that opens it;
        None for any other."""
        mark, begun = self.opened.strip(), answer.lstrip()
        if not mark or not begun.startswith(mark):
            return None
        rest, blanks = begun[len(mark) :], self.opened[len(mark) :]
        return rest.removeprefix(blanks) if rest.startswith(blanks) else rest.lstrip()

    def stop_texts(self) -> list[str]:
        """The stop tokens' texts."""
        return [str(text) for text in self.tokenizer.convert_ids_to_tokens(list(self.stop_ids))]

    def text(self, tokens: Sequence[int]) -> str:
        """The text of an answer's ids, without the token that ended it and other special tokens."""
        kept = list(tokens[:-1] if len(tokens) and tokens[-1] in self.stop_ids else tokens)
        with clear_opening_errors(
            "the tokenizer cannot write an answer as text", "use the model's own tokenizer"
        ):
            return str(
                self.tokenizer.decode(
                    kept, skip_special_tokens=True, clean_up_tokenization_spaces=False
                )
            )


class _ControlEscaper:
    """A copy of a tokenizer to which control tokens have other names, so that what spells one is
    text like any other.

    All else of it is the same, so a chat is still tokenised in one piece.
    """

    def __init__(self, tokenizer: Any, control: Mapping[int, str]) -> None:
        """Take a tokenizer and its control tokens by id."""
        mark = secrets.token_hex(8)  # which no text can know
        self._control = control
        self._own = {text: f"<{mark}={i}>" for i, text in control.items()}
        self._held = {text: f"<{mark}:{i}>" for i, text in control.items()}
        self._spelled = _match_any(control.values())
        backend = getattr(tokenizer, "backend_tokenizer", None)
        try:
            self._copy = _rename_tokens(backend, self._own)
        except Exception as error:  # it has no such backend, or one with parts in Python
            raise self._control_token_error([*control.values()][:3]) from error
        added = {i: str(token) for i, token in tokenizer.added_tokens_decoder.items()}
        self._id_of = {
            self._copy.token_to_id(self._own.get(text, text)): i for i, text in added.items()
        }

    def _control_token_error(self, texts: Sequence[str]) -> DataError:
        return DataError(
            "a message spells a control token, and this tokenizer cannot write that as text",
            f"take {' and '.join(texts)} out of the messages",
        )

    def escape(self, text: str) -> str:
        """A message in which nothing spells a control token, as a template may take it."""
        return self._spelled.sub(lambda found: self._held[found[0]], text)

    def ids(self, rendered: str) -> list[int]:
        """Ids of a text whose messages were hidden: the control tokens in it are the template's.

        Raises:
            DataError: the tokenizer has them in its vocabulary of ordinary text, too.
        """
        told, count = self._spelled.subn(lambda found: self._own[found[0]], rendered)
        for text, held in self._held.items():
            told = told.replace(held, text)
        found = encode(
            lambda: self._copy.encode(told, add_special_tokens=False).ids, told, self._copy, None
        )
        ids = [self._id_of.get(token, token) for token in found]
        if sum(token in self._control for token in ids) != count:
            raise self._control_token_error(
                [text for text, held in self._held.items() if held in rendered]
            )
        return ids


def _rename_tokens(backend: Any, names: Mapping[str, str]) -> Any:
    """A copy of a tokenizers.Tokenizer in which some tokens have other names, and no merge leads to
    them."""
    from tokenizers import Tokenizer

    state = json.loads(backend.to_str()) | {
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    for token in state["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    model = state["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {names.get(text, text): i for text, i in model["vocab"].items()}
    else:
        model["vocab"] = [[names.get(text, text), score] for text, score in model["vocab"]]
    if "merges" in model:
        pairs = [one.split(" ", 1) if isinstance(one, str) else one for one in model["merges"]]
        model["merges"] = [[a, b] for a, b in pairs if names.keys().isdisjoint((a, b, a + b))]
    model["unk_token"] = names.get(model.get("unk_token"), model.get("unk_token"))
    return Tokenizer.from_str(json.dumps(state))


def _match_any(texts: Any) -> re.Pattern[str]:
    """Finds any of some texts, the longest first; nothing where there are none."""
    return re.compile(
        f"({'|'.join(map(re.escape, sorted(texts, key=len, reverse=True))) or '(?!)'})"
    )


def _read_stop_ids(stops: Any, rows: int | None) -> list[int]:
    """The stop ids of a generation config that a model of so many embeddings can give.

    Raises:
        ModelError: it has something else there.
    """
    found = (
        [] if stops is None else list(stops) if isinstance(stops, list | tuple | set) else [stops]
    )
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in found):
        raise ModelError(
            f"eos_token_id of the model is {stops!r}, and no token's id or list of ids",
            "correct it in generation_config.json or config.json",
        )
    return [one for one in found if one >= 0 and (rows is None or one < rows)]
