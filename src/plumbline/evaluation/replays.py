"""Episodes again, for people to look at: which ones by a rule, so that nobody picks them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from plumbline.errors import DataError, PlumblineError
from plumbline.evaluation.summary import EARNED
from plumbline.records import Evaluation, Example, Judged
from plumbline.runs.evaluations import Replay
from plumbline.tasks.task import Task

MOST = 4
"""Episodes that are replayed at most."""
RULE = (
    "The answer of each stratum that earned least, by reward and id, then the others; last the "
    "first that is right."
)


def replay_episodes(
    task: Task, examples: Sequence[Example], evaluation: Evaluation, count: int
) -> tuple[Replay, ...]:
    """Replay the answers that earned least, of different strata where there are some, and a right
    one.

    A replay that cannot be made says why: an evaluation is never lost for a picture.

    Args:
        task: what they are episodes of.
        examples: of the evaluation.
        evaluation: whose answers are replayed.
        count: how many at most, no more than `MOST`.

    Raises:
        DataError: the task has no episodes that can be replayed, or `count` is out of range.
    """
    check_replayable(task, count)
    known = {example.id: example for example in examples}
    return tuple(
        _replay(task, known[row.id], row) for row in _choose_answers(evaluation.rows, count)
    )


def _choose_answers(rows: Sequence[Judged], count: int) -> list[Judged]:
    failed = sorted(
        (row for row in rows if row.reward < EARNED), key=lambda row: (row.reward, row.id)
    )
    before: Counter[str] = Counter()
    ranks = {}
    for row in failed:
        ranks[row.id] = before[row.stratum]
        before[row.stratum] += 1
    failed.sort(key=lambda row: ranks[row.id])
    right = sorted((row for row in rows if row.reward >= EARNED), key=lambda row: row.id)[
        : count > 1
    ]
    return [*failed[: count - len(right)], *right]


def check_replayable(task: Task, count: int) -> None:
    """Refuse a task whose episodes cannot be replayed; to be asked before anything is evaluated.

    Raises:
        DataError: its episodes cannot be replayed, or `count` is out of range.
    """
    if not task.replayable:
        raise DataError(f"episodes of the task {task.name} cannot be replayed", "ask for 0 replays")
    if not 0 <= count <= MOST:
        raise DataError(f"{count} replays were asked for", f"ask for 0 to {MOST}")


def _replay(task: Task, example: Example, row: Judged) -> Replay:
    replay = Replay(id=row.id, stratum=row.stratum, reward=row.reward)
    try:
        if (together := task.replay_episode(example, row.turns or (row.completion,))) is not None:
            mistakes, pictures = together
            replay = replace(replay, mistakes=tuple(mistakes), frames=tuple(pictures))
            return replay if pictures else replace(replay, problem="no picture was taken")
        replay = replace(replay, mistakes=tuple(task.mistakes(example, row.completion)))
        for number, text in enumerate(row.turns or (row.completion,), 1):
            turn = f"Turn {number}: " if row.turns else ""
            frames = (
                replace(frame, caption=turn + frame.caption) for frame in task.replay(example, text)
            )
            replay = replace(replay, frames=(*replay.frames, *frames))
    except PlumblineError as error:
        return replace(replay, problem=f"{error.cause}; {error.fix}" if error.fix else error.cause)
    return replay if replay.frames else replace(replay, problem="no picture was taken")
