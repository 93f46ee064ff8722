"""An evaluation as a log of Inspect (inspect_ai), for `inspect view`: each prompt, answer, reward
and part."""

import json
import math
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plumbline.config.imports import import_needed
from plumbline.errors import RecipeError
from plumbline.evaluation.summary import reward_interval
from plumbline.records import Evaluation, Example, Judged, Unjudged
from plumbline.runs import output_guard
from plumbline.storage import clear_os_errors
from plumbline.version import __version__

MADE_BY = "plumbline"
"""The key of our version in a log's metadata, by which a log is ours."""


def check_log(path: Path) -> None:
    """Refuse what would fail after the evaluation.

    Raises:
        ModelError: inspect_ai is not installed.
        RecipeError: the file's name does not end with .eval.
        StorageError: another file is there.
    """
    if path.suffix != ".eval":
        raise RecipeError(
            f"--inspect is {path}, and `inspect view` reads .eval files", f"give {path}.eval"
        )
    output_guard.check_file(path, "Inspect log", is_log)
    import_needed("inspect_ai", "--inspect")


def is_log(path: Path) -> bool:
    """Whether a file is a log that we wrote."""
    try:
        with zipfile.ZipFile(path) as archive:
            return MADE_BY in json.loads(archive.read("header.json"))["eval"]["metadata"]
    except (zipfile.BadZipFile, OSError, KeyError, TypeError, ValueError):
        return False


def write_log(path: Path, evaluation: Evaluation, examples: Sequence[Example]) -> None:
    """Write an evaluation as a log of Inspect. An answer that could not be judged is unscored
    there.

    Args:
        path: of the log, a .eval file.
        evaluation: n judged and m unjudged answers.
        examples: of the evaluation, at least these n + m.

    Raises:
        ModelError: inspect_ai is not installed.
        StorageError: the disk is full.
    """
    log = import_needed("inspect_ai.log", "--inspect")
    asked = {example.id: example for example in examples}
    rows: list[Judged | Unjudged] = [*evaluation.rows, *evaluation.unjudged]
    order = {name: number for number, name in enumerate(asked)}
    rows.sort(key=lambda row: order[row.id])
    reward = reward_interval(evaluation)
    metrics = {
        name: log.EvalMetric(name=name, value=value)
        for name, value in (
            ("mean", reward.mean),
            ("ci95_low", reward.low),
            ("ci95_high", reward.high),
        )
        if math.isfinite(value)  # of one answer there is no interval, of none no mean
    }
    scorer = log.EvalScore(
        name="reward",
        scorer="reward",
        metrics=metrics,
        scored_samples=len(evaluation.rows),
        unscored_samples=len(evaluation.unjudged),
    )
    spec = log.EvalSpec(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        task=evaluation.task,
        dataset=log.EvalDataset(
            name=f"{evaluation.task}/{evaluation.split}",
            samples=len(rows),
            sample_ids=[row.id for row in rows],
        ),
        model=evaluation.source,
        config=log.EvalConfig(),
        packages={MADE_BY: __version__},
        metadata={
            MADE_BY: __version__,
            "rubric": evaluation.rubric,
            "sampling": dict(evaluation.sampling),
            "seed": evaluation.seed,
        },
    )
    results = log.EvalResults(
        total_samples=len(rows), completed_samples=len(evaluation.rows), scores=[scorer]
    )
    samples = [_sample(row, asked[row.id], evaluation.source) for row in rows]
    with clear_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.stem}.writing.eval")
        try:
            log.write_eval_log(
                log.EvalLog(status="success", eval=spec, results=results, samples=samples),
                str(beside),
            )
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def _sample(row: Judged | Unjudged, example: Example, source: str) -> Any:
    log, model, scorer = (
        import_needed(f"inspect_ai.{name}", "--inspect") for name in ("log", "model", "scorer")
    )
    roles = {
        "system": model.ChatMessageSystem,
        "user": model.ChatMessageUser,
        "assistant": model.ChatMessageAssistant,
    }
    prompt = [roles[turn["role"]](content=turn["content"]) for turn in example.messages]
    metadata: dict[str, Any] = {"stratum": row.stratum, "reference": dict(example.reference)}
    if isinstance(row, Judged):
        answers = row.turns or (row.completion,)
        parts = {name: value for name, value in row.parts.items() if value is not None}
        told = ", ".join(f"{name} {value:.3f}" for name, value in parts.items())
        score = scorer.Score(
            value=row.reward,
            answer=row.completion,
            explanation=told or None,
            metadata={"parts": dict(row.parts), "readings": dict(row.readings), "how": row.how},
        )
        cut = bool(row.truncated)
    else:
        answers, cut = (row.completion,), False
        score = scorer.Score.unscored(answer=row.completion, explanation=row.failure)
    chat = list(prompt)
    for number, answer in enumerate(answers):
        if number:
            chat.append(model.ChatMessageUser(content=row.asked[number - 1]))  # type: ignore[union-attr]
        chat.append(model.ChatMessageAssistant(content=answer))
    return log.EvalSample(
        id=row.id,
        epoch=1,
        input=prompt,
        target=example.gold or "",
        messages=chat,
        output=model.ModelOutput.from_content(
            source, row.completion, "max_tokens" if cut else "stop"
        ),
        scores={"reward": score},
        metadata=metadata,
    )
