"""What `plumbline init --data FILE --reward FUNCTION` makes of the rows.

The file is copied with the reward functions; the recipe's task is opened, and its prompts and golds
are looked at.
"""

import json
import re
from pathlib import Path
from typing import Any

import plumbline as library
from plumbline.errors import PlumblineError
from tests.doorstep.command import RECIPE, Said, cause, plumbline, workplace, worst

HERE = Path(__file__).parent / "rows"
LEFT_OUT = r"left out|leaves out|not in the prompt|not asked|not used|unused|ignored|not read|no part of the prompt"


def grade(name: str, answer: dict[str, Any]) -> tuple[str, str]:
    """The verdict on what becomes of one file of rows."""
    with workplace(HERE, answer["file"], "shop_rewards.py"):
        given = [
            "--data",
            answer["file"],
            "--reward",
            f"shop_rewards:{answer['reward']}",
            *answer.get("options", []),
        ]
        said = plumbline("init", "--model", "Qwen/Qwen3-0.6B", *given, "--out", RECIPE)
        if "Traceback (most recent call last)" in said.printed:
            return "wrong", cause(said)
        if (
            "refused" in answer
            and said.code
            and all(re.search(e, said.printed, re.I) for e in answer["refused"])
        ):
            return "right", cause(said)
        if not said.text:
            return "wrong" if "not JSON" in said.printed and "json" in answer[
                "file"
            ] else "unclear", cause(said)
        if "TODO" in said.text:
            return "unclear", "; ".join(
                line.strip() for line in said.text.splitlines() if "TODO" in line
            )
        try:
            return worst(_compare(said, answer))
        except PlumblineError as error:
            return "wrong", f"the recipe's task cannot be opened: {error}"


def _compare(said: Said, answer: dict[str, Any]) -> list[tuple[str, str]]:
    task = library.open_task("jsonl", **said.recipe["task"]["options"])
    examples = [example for split in task.splits for example in task.examples(split)]
    prompts = {
        example.id: "\n".join(str(m["content"]) for m in example.messages) for example in examples
    }
    found = [
        ("silently wrong", f"nothing is said of {each}")
        for each in answer.get("says", [])
        if not re.search(each, said.all, re.I)
    ]
    if len(examples) not in _any(answer["rows"]):
        found.append(("silently wrong", f"{len(examples)} rows, and there are {answer['rows']}"))
    firsts = [
        max(examples, key=lambda e, texts=texts: sum(_in(t, prompts[e.id]) for t in texts))
        for texts in answer["prompts"]
    ]
    for texts, example in zip(answer["prompts"], firsts, strict=True):
        missing = [text for text in texts if not _in(text, prompts[example.id])]
        columns = [
            key
            for key, value in example.reference.items()
            if any(text in str(value) for text in missing)
        ]
        if missing:
            spoken = columns and all(_left_out(said, column) for column in columns)
            found.append(
                ("unclear" if spoken else "silently wrong", f"the prompt is without {missing}")
            )
        found += [
            ("silently wrong", f"the prompt has {text!r}")
            for text in answer.get("absent", [])
            if text in prompts[example.id]
        ]
    for column in answer.get("or_said", []):
        values = [str(example.reference.get(column)) for example in firsts]
        if not _left_out(said, column) and not all(
            v in prompts[e.id] for v, e in zip(values, firsts, strict=True)
        ):
            found.append(("unclear", f"nothing says that the column {column} is left out"))
    return found + _gold(said, answer["gold"], task, firsts[0])


def _gold(said: Said, right: Any, task: Any, example: Any) -> list[tuple[str, str]]:
    if (gold := example.gold) is None:
        spoken = re.search(r"gold|gold answer", said.all)
        return [("unclear" if spoken else "silently wrong", f"no gold, and it should be {right!r}")]
    found = []
    earned = task.judge(example, gold)[1].total
    if earned != 1:
        spoken = re.search(
            r"earns? (nothing|0|only|less)|earn(s|ed)? 0|gold answers earn 0|not ready", said.all
        )
        found.append(
            ("unclear" if spoken else "silently wrong", f"the gold {gold!r} earns {earned}")
        )
    if isinstance(right, dict) and "json" in right:
        same = json.loads(gold) == right["json"]
    else:
        same = gold in _any(right)
    return (
        found
        if same
        else [*found, ("silently wrong", f"the gold is {gold!r}, and should be {right!r}")]
    )


def _any(right: Any) -> list[Any]:
    return right["any"] if isinstance(right, dict) else [right]


def _in(text: str, prompt: str) -> bool:
    """Whether a text is in a prompt; one letter has to stand alone."""
    return bool(re.search(rf"\b{text}\b", prompt)) if len(text) == 1 else text in prompt


def _left_out(said: Said, column: str) -> bool:
    lines = said.all.splitlines()
    return any(
        re.search(rf"\b{re.escape(column)}\b", line) and re.search(LEFT_OUT, line, re.I)
        for line in lines
    )
