"""A running batch: requests join at any step, and leave it when they end or nobody wants them any more.

Letters in shapes: R rows, V vocabulary.

What a request gets is what `AutoregressivePolicy.sample` draws for it: its uniform numbers come from its key, its law
is its own, and its row attends to itself alone. So it does not depend on what runs beside it, except that a product of
more rows rounds otherwise.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import torch
from torch import Tensor

from plumbline.errors import ModelError, PlumblineError
from plumbline.policies.autoregressive.decoders import threads_for
from plumbline.policies.autoregressive.decoders.running import Reading, RunningDecoder
from plumbline.policies.autoregressive.policy import AutoregressivePolicy
from plumbline.policies.draws import generators, uniforms
from plumbline.policies.memory import free, is_full
from plumbline.policies.pretrained.head import exact, logits_of
from plumbline.policies.token_law import check_drawn, draw
from plumbline.records import Finish, Request, Sampling

READ_AT_ONCE = {"cpu": 256, "cuda": 4096}
"""Tokens of prompts that are read between two steps of those that run already."""


class Constraint(Protocol):
    """What an answer must follow, token by token."""

    def restrict(self, logits: Tensor) -> None:
        """Set the logits [V] of the tokens that may not come next to minus infinity, in place.

        Raises:
            PlumblineError: none may; the answer ends with it.
        """
        ...

    def accept(self, token: int) -> None:
        """Take note of the token that was drawn."""
        ...


@dataclass(slots=True, eq=False)
class Row:
    """One answer, from when it is asked for to its end; make one with `Row.of`."""

    prompt: Sequence[int]
    law: Sampling
    numbers: Tensor
    """In [0, 1), float64 [max_tokens]; of none where nothing is drawn."""
    constraint: Constraint | None = None
    tokens: list[int] = field(default_factory=list)
    by: Sampling = field(init=False)
    """The law but for its limit: rows that have it in common are drawn together."""

    def __post_init__(self) -> None:
        self.by = replace(self.law, max_tokens=1)

    @classmethod
    def of(cls, request: Request, prompt: Sequence[int], constraint: Constraint | None = None) -> Self:
        """The row of a request, whose prompt has these tokens."""
        law = request.sampling
        count = 0 if law.greedy else law.max_tokens
        return cls(prompt, law, uniforms(generators([request.key]), count)[0], constraint)


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """A token that was drawn for a row; the last one says how the answer ended. Or why it cannot go on."""

    row: Row
    token: int = -1
    logprob: float = 0.0
    finish: Finish | None = None
    failure: PlumblineError | None = None


def why_not(policy: AutoregressivePolicy) -> str | None:
    """Why a policy's answers cannot be drawn in a running batch; None where they can."""
    engine = policy.engine
    if engine["decoder"] != "lean":
        return engine["why_not_lean"] or "model.decoder is transformers"
    return None


class RunningBatch:
    """The rows that run on one model, and those that wait; one thread uses it. The model's weights do not change."""

    def __init__(self, policy: AutoregressivePolicy, rows: int | None = None) -> None:
        """Take a policy, and how many rows may run at once: by default its `rows_at_once`.

        Raises:
            ModelError: the lean decoder does not fit the model.
        """
        if reason := why_not(policy):
            raise ModelError(
                f"this model cannot draw in a running batch: {reason}", "serve it with answers drawn in batches"
            )
        self.model, self.stops, self.say = policy.model, frozenset(policy.chat.stop_ids), policy.say
        self.limit = rows or policy.rows_at_once
        self.decoder = RunningDecoder(policy.model)
        self.read_at_once = READ_AT_ONCE.get(policy.device.type, READ_AT_ONCE["cpu"])
        self.running: list[Row] = []  # in the decoder's order
        self.waiting: deque[Row] = deque()
        self.read: tuple[Reading, list[Row], list[int]] | None = (
            None  # the rows that it is for, and whose prompt is which
        )
        self.told: list[Told] = []

    def __len__(self) -> int:
        """Rows that run, are read or wait."""
        return len(self.running) + len(self.waiting) + (0 if self.read is None else len(self.read[1]))

    def join(self, row: Row) -> None:
        """Let a row run as soon as there is a place."""
        self.waiting.append(row)

    def leave(self, row: Row) -> None:
        """Let go of a row, wherever it is; nothing happens where it has ended."""
        if row in self.running:
            self._remove(self.running.index(row))
        elif row in self.waiting:
            self.waiting.remove(row)
        elif self.read is not None and row in self.read[1]:
            reading, rows, prompts = self.read
            left = [(other, prompt) for other, prompt in zip(rows, prompts, strict=True) if other is not row]
            self.read = (reading, [one for one, _ in left], [prompt for _, prompt in left]) if left else None

    def _remove(self, index: int) -> None:
        self.decoder.drop(index)
        last = self.running.pop()
        if index < len(self.running):
            self.running[index] = last

    def step(self) -> list[Told]:
        """A piece of the prompts that wait, and a token for every row that runs.

        Where the memory is not enough, half of the rows wait until the others have ended; what they have drawn stays.

        Raises:
            RuntimeError: the memory does not hold a single row.
        """
        try:
            self._step()
        except RuntimeError as error:
            count = len(self.running) + (0 if self.read is None else len(self.read[1]))
            if count <= 1 or not is_full(error):
                raise
            self._yield_memory(error, count)
        told, self.told = self.told, []
        return told

    def _step(self) -> None:
        if self.read is None and self.waiting and len(self.running) < self.limit:
            self.read = self._begin()
        if self.read is not None and self.read[0].advance():
            reading, rows, prompts = self.read
            hidden = torch.stack([reading.hidden[prompt] for prompt in prompts])
            self.decoder.append(reading, prompts)
            self.running += rows
            self.read = None
            self._draw(range(len(self.running) - len(rows), len(self.running)), hidden)
        if self.running:
            tokens = torch.tensor([row.tokens[-1] for row in self.running], device=self.model.device)
            self._draw(range(len(self.running)), self.decoder.step(tokens))

    def _begin(self) -> tuple[Reading, list[Row], list[int]]:
        """The rows that waited longest, as many as one pass reads; equal prompts are read once."""
        prompts: dict[tuple[int, ...], int] = {}
        rows: list[Row] = []
        longest = 0
        while self.waiting and len(self.running) + len(rows) < self.limit:
            ids = (*self.waiting[0].prompt, *self.waiting[0].tokens)
            if rows and ids not in prompts and (len(prompts) + 1) * max(longest, len(ids)) > self.read_at_once:
                break
            longest = max(longest, len(ids))
            prompts.setdefault(ids, len(prompts))
            rows.append(self.waiting.popleft())
        which = [prompts[*row.prompt, *row.tokens] for row in rows]
        return Reading(self.decoder.lean, list(prompts), self.read_at_once), rows, which

    @torch.no_grad()
    def _draw(self, indices: range, hidden: Tensor) -> None:
        """Draw a token from the hidden states [R, H] of rows that run, each by its own law; those that end leave."""
        rows = self.running[indices.start : indices.stop]
        head = self.model.get_output_embeddings()
        with threads_for(hidden.numel() * head.weight.shape[0]):
            logits = logits_of(head, hidden)
        laws: dict[Sampling, list[int]] = {}
        ended: list[int] = []
        for index, row in enumerate(rows):
            try:
                if row.constraint is not None:
                    self._constrain(row.constraint, logits[index : index + 1], hidden[index : index + 1])
            except PlumblineError as error:
                self.told.append(Told(row, failure=error))
                ended.append(indices.start + index)
            else:
                laws.setdefault(row.by, []).append(index)
        for law, members in laws.items():
            numbers = [0.0 if law.greedy else float(rows[index].numbers[len(rows[index].tokens)]) for index in members]
            with threads_for(len(members) * logits.shape[1] * 16):  # as in `sampler.decode`
                tokens, logprobs = draw(
                    logits if len(members) == len(rows) else logits[members],
                    torch.tensor(numbers, dtype=torch.float64, device=logits.device),
                    law,
                )
            for index, token, logprob in zip(members, tokens.tolist(), logprobs.tolist(), strict=True):
                row = rows[index]
                try:
                    check_drawn([logprob])
                except ModelError as error:
                    self.told.append(Told(row, failure=error))
                    ended.append(indices.start + index)
                    continue
                row.tokens.append(token)
                if row.constraint is not None:
                    row.constraint.accept(token)
                short = len(row.tokens) < row.law.max_tokens
                finish: Finish | None = "stop" if token in self.stops else None if short else "length"
                self.told.append(Told(row, token, logprob, finish))
                if finish is not None:
                    ended.append(indices.start + index)
        for index in sorted(ended, reverse=True):
            self._remove(index)

    def _constrain(self, constraint: Constraint, logits: Tensor, hidden: Tensor) -> None:
        """Restrict logits [1, V] in place; of 16-bit ones those that are likeliest then are computed again."""
        constraint.restrict(logits[0])
        if self.model.dtype in (torch.float16, torch.bfloat16):
            head = self.model.get_output_embeddings()
            again = exact(logits.to(self.model.dtype), hidden, head.weight, head.bias)
            logits.copy_(again.masked_fill_(logits.isneginf(), float("-inf")))

    def _yield_memory(self, error: BaseException, count: int) -> None:
        """Send half of the rows back to wait, those that came last."""
        self.limit = count // 2
        back = self.running[self.limit :]
        for index in range(len(self.running) - 1, self.limit - 1, -1):
            self._remove(index)
        if self.read is not None:
            back += self.read[1]
            self.read = None
        self.waiting.extendleft(reversed(back))
        free(error)
        self.say(
            "out_of_memory",
            f"{count} answers side by side take more memory than there is; from here on {self.limit} are drawn at "
            f"once, and the others wait. Set model.rows_at_once: {self.limit} to begin with that",
        )
