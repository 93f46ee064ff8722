"""The body of a chat completion: what is understood, what is passed over, and what is refused."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from plumbline.config.overrides import read_package_yaml
from plumbline.records import Message, Request, Sampling
from plumbline.serve.backend import AnswerRequest
from plumbline.serve.limits import Json, Refusal, RequestLimits

Text = Annotated[str, Field(min_length=1)]
Stop = Annotated[str, Field(min_length=1, max_length=128)]
"""Each piece of an answer is held against every beginning of every stop, so their lengths are its
cost."""
Number = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Positive = Annotated[int, Field(ge=1)] | None
Empty = Annotated[list[Any], Field(max_length=0)] | None


KINDS = ("(text)", "(list)")
"""Of what may be either; no key is called so."""
by_kind = Discriminator(lambda value: KINDS[isinstance(value, list)])


NEUTRAL: Mapping[str, Any] = read_package_yaml(Path(__file__).with_name("neutral.yaml"))
"""Settings of other servers (vLLM, llama.cpp) with the value that asks for nothing; with it they
are passed over."""


class _Closed(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=()
    )


class TextPart(_Closed):
    """A part of a message's content; there are no others than texts."""

    type: Literal["text"]
    text: str
    cache_control: Json | None = None
    """Passed over: it is about the price of a prompt."""


class ChatMessage(_Closed):
    """A message of the chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        Annotated[Annotated[str, Tag("(text)")] | Annotated[list[TextPart], Tag("(list)")], by_kind]
        | None,
        Field(validate_default=True),
    ] = None
    name: str | None = None
    function_call: None = None
    tool_calls: Empty = None
    # What replies have beside their text, and clients send back with them: passed over, and said
    # so.
    refusal: str | None = None
    reasoning: Any = None
    reasoning_content: Any = None
    reasoning_details: Any = None
    thinking_blocks: Any = None
    provider_specific_fields: Any = None
    annotations: list[Any] | None = None
    audio: Json | None = None

    @field_validator("content")
    @classmethod
    def _has_text(cls, value: Any, known: ValidationInfo) -> Any:
        if value is None and (role := known.data.get("role")) != "assistant":
            raise ValueError(f"only an assistant's message may have none, and this is the {role}'s")
        return value

    @model_validator(mode="after")
    def _is_reply(self) -> Self:
        if self.role != "assistant" and (sent := self.ignored):
            raise ValueError(
                f"{sent[0]} is a part of an assistant's message, and this is the {self.role}'s"
            )
        return self

    @property
    def ignored(self) -> list[str]:
        """The parts of a reply that were sent back and are not read."""
        return [name for name in OF_REPLIES if getattr(self, name)]

    def to_message(self) -> Message:
        """The message as the template takes it; an assistant's without content is empty."""
        text = (
            self.content
            if isinstance(self.content, str)
            else "\n".join(part.text for part in self.content or ())
        )
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class StreamOptions(_Closed):
    """Options of a stream."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class PlainText(_Closed):
    """Free text."""

    type: Literal["text"]


class AnyObject(_Closed):
    """Any JSON object."""

    type: Literal["json_object"]


def _finite(schema: Json) -> Json:
    left: list[Any] = [schema]
    while left:
        value = left.pop()
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("a number is too large")
        left += (
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        )
    return schema


class NamedSchema(_Closed):
    """A JSON schema with its name."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    schema_: Annotated[Annotated[Json, AfterValidator(_finite)] | None, Field(alias="schema")] = (
        None
    )
    strict: bool | None = None


class BySchema(_Closed):
    """JSON that follows a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


Format = Annotated[PlainText | AnyObject | BySchema, Field(discriminator="type")]


class Ours(_Closed):
    """What only Plumbline knows."""

    canvas: bool = False


class ChatBody(_Closed):
    """The body of POST /v1/chat/completions."""

    model: Text
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1024)]
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    """-1 and 0 keep all tokens."""
    steps: Annotated[int, Field(ge=1, le=4096)] | None = None
    max_tokens: Positive = None
    max_completion_tokens: Positive = None
    n: Positive = None
    stop: (
        Annotated[
            Annotated[Stop, Tag("(text)")]
            | Annotated[list[Stop], Field(max_length=16), Tag("(list)")],
            by_kind,
        ]
        | None
    ) = None
    seed: Number | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: Format | None = None
    logprobs: bool | None = None
    top_logprobs: Literal[0] | None = None
    plumbline: Ours | None = None
    # What would change the answer and is not there: only the values that ask for nothing.
    tools: Empty = None
    tool_choice: Literal["none", "auto"] | None = None
    functions: Empty = None
    function_call: Literal["none", "auto"] | None = None
    logit_bias: Annotated[Json, Field(max_length=0)] | None = None
    modalities: list[Literal["text"]] | None = None
    audio: None = None
    web_search_options: None = None
    # What clients send as a matter of course: passed over, and said so in the answer where it could
    # mean something.
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    prediction: Json | None = None
    metadata: dict[str, str] | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    service_tier: str | None = None
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    store: bool | None = None
    user: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_neutral(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        return {
            name: one
            for name, one in body.items()
            if name not in NEUTRAL or one not in (NEUTRAL[name], None)
        }

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts before which an answer ends."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def ignored(self) -> list[str]:
        """What was asked for, has no effect here, and would have some elsewhere."""
        sent = dict.fromkeys(
            f"messages.{name}" for message in self.messages for name in message.ignored
        )
        return [*(name for name in PASSED_OVER if getattr(self, name)), *sent]


OF_REPLIES = (
    "refusal",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "thinking_blocks",
    "provider_specific_fields",
    "annotations",
    "audio",
)
PASSED_OVER = (
    "frequency_penalty",
    "presence_penalty",
    "prediction",
    "reasoning_effort",
    "verbosity",
)


def read_chat(raw: bytes) -> ChatBody:
    """The body out of its bytes.

    Raises:
        Refusal: it is not JSON, or does not say what it should; the first wrong key is named.
    """
    try:
        return ChatBody.model_validate_json(raw)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        first = errors[0]
        if first["type"] == "json_invalid":
            raise Refusal(
                400, f"the body is not JSON: {first['msg'][:200]}", code="invalid_json"
            ) from error
        where = ".".join(str(part) for part in first["loc"] if part not in KINDS)[:200]
        said = (
            "this parameter is not known here"
            if first["type"] == "extra_forbidden"
            else first["msg"]
        )
        raise Refusal(
            400, f"{where or 'the body'}: {said[:300]}", param=where or None, code=first["type"]
        ) from error


def split_request(body: ChatBody, limits: RequestLimits) -> list[AnswerRequest]:
    """Each of the `n` answers that the body asks for, with a key of its own.

    Raises:
        Refusal: longer answers are asked for than this server gives, or more of them.
    """
    longest = body.max_completion_tokens or body.max_tokens
    for name, value, most in (
        (
            "max_completion_tokens" if body.max_completion_tokens else "max_tokens",
            longest,
            limits.tokens,
        ),
        ("n", body.n, limits.answers),
    ):
        if value is not None and value > most:
            raise Refusal(
                400, f"{name} is {value}, and this server gives at most {most}", param=name
            )
    given = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k and max(body.top_k, 0),
        "steps": body.steps,
        "max_tokens": longest,
    }
    said = {name: value for name, value in given.items() if value is not None}
    shared: Json = {name: value for name, value in said.items() if name != "steps"}
    seed = body.seed if body.seed is not None else int.from_bytes(os.urandom(8), "big")
    sampling = Sampling(**shared)
    chat = [message.to_message() for message in body.messages]
    schema: Json | None = {} if isinstance(body.response_format, AnyObject) else None
    name = ""
    if isinstance(body.response_format, BySchema):
        schema = body.response_format.json_schema.schema_ or {}
        name = body.response_format.json_schema.name
    return [
        AnswerRequest(
            request=Request((seed, "serve", index), chat, sampling),
            said=said,
            schema=schema,
            name=name,
            logprobs=bool(body.logprobs),
            canvas=body.plumbline is not None and body.plumbline.canvas,
        )
        for index in range(body.n or 1)
    ]
