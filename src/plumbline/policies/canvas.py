"""The canvas of a diffusion or flow policy: a fixed number of places that an answer is written into.

An answer shorter than the canvas is followed by its end token up to the last place, in demonstrations and in what is
sampled, so "how long" is learnt like everything else and needs no padding mask.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import DataError
from plumbline.policies.policy import Demonstration
from plumbline.policies.pretrained.chat import Chat
from plumbline.records import Finish, Sampling, Step, Trajectory


def answer_of(canvas: NDArray[np.int64], stop_ids: Collection[int]) -> tuple[NDArray[np.int64], Finish]:
    """The answer on a finished canvas [L]: everything up to its first end token, that token included."""
    ends = np.flatnonzero(np.isin(canvas, list(stop_ids)))
    if len(ends) == 0:
        return canvas, "length"
    return canvas[: ends[0] + 1], "stop"


def read_off(
    canvas: NDArray[np.int64],
    steps: Sequence[Step],
    prompt: Sequence[int],
    sampling: Sampling,
    chat: Chat,
    version: int,
) -> Trajectory:
    """A finished canvas [L] and the steps that filled it as a trajectory of weights of this version."""
    answer, finish = answer_of(canvas, chat.stop_ids)
    return Trajectory(
        prompt=np.array(prompt, dtype=np.int64),
        steps=tuple(steps),
        text=chat.text(answer.tolist()),
        sampling=sampling,
        finish=finish,
        answer=answer,
        version=version,
    )


def split_demonstration(
    demonstration: Demonstration, length: int, end: int, *, allow_truncation: bool = False
) -> tuple[list[int], list[int], bool]:
    """A demonstration as prompt and canvas.

    Args:
        demonstration: a chat with one answer, at its end.
        length: L, places of the canvas.
        end: the token that fills the canvas behind the answer.
        allow_truncation: cut a longer answer instead of refusing it.

    Returns:
        The prompt's ids, the canvas [L], and whether the answer was cut.

    Raises:
        DataError: the answer does not fit, or the chat has several answers.
    """
    start = demonstration.is_target.index(True)
    if not all(demonstration.is_target[start:]):
        raise DataError(
            "a diffusion policy learns one answer at a time, and this chat has several",
            "split the chat into one record for each answer",
        )
    answer = list(demonstration.tokens[start:])
    if len(answer) > length and not allow_truncation:
        raise DataError(
            f"an answer of {len(answer)} tokens exceeds the canvas of {length}",
            "raise sampling.max_tokens (the canvas), or set sft.allow_truncation (the cut ones are counted)",
        )
    cut = len(answer) > length
    return list(demonstration.tokens[:start]), (answer + [end] * length)[:length], cut


def joined(prompt: Sequence[int], canvas: Sequence[int], *, truncated: bool) -> Demonstration:
    """Prompt and canvas as a demonstration whose targets are the canvas."""
    return Demonstration(
        tokens=(*prompt, *canvas),
        is_target=(False,) * len(prompt) + (True,) * len(canvas),
        truncated=truncated,
    )
