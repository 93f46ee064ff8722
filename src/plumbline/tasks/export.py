"""A task's examples as files: chat messages with the gold answer, if any; an object a line, a file for each split."""

from pathlib import Path

from plumbline.runs import claims
from plumbline.storage import write_jsonl
from plumbline.tasks.task import Task


def export(task: Task, folder: Path) -> dict[str, int]:
    """Write `SPLIT.jsonl` for every split; the same examples give the same bytes.

    Returns:
        How many examples each split has.

    Raises:
        DataError: a split is empty, or its records are malformed.
        StorageError: the disk is full, or the folder holds what is not ours.
    """
    claims.check(folder, kind := f"{task.name} records")
    counts = {}
    for split in task.splits:
        examples = task.examples(split)
        claims.claim(folder, kind)
        write_jsonl(
            folder / f"{split}.jsonl",
            (
                {
                    "id": one.id,
                    "stratum": one.stratum,
                    "messages": [
                        *one.messages,
                        *([] if one.gold is None else [{"role": "assistant", "content": one.gold}]),
                    ],
                    "reference": one.reference,
                }
                for one in examples
            ),
        )
        counts[split] = len(examples)
    return counts
