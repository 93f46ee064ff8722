"""What is sampled and what is greedy tell two stories, or stages were asked in two ways."""

from collections.abc import Iterator

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import Final, History
from plumbline.evaluation.comparison import compare

FAR = 0.1


def look(history: History) -> Iterator[Finding]:
    """Of the last stage, greedy against sampled; of each split and mode, the laws of its stages."""
    mine = {(one.task, one.split, one.mode): one for one in history.finals if one.stage == history.name}
    for (task, split, mode), sampled in mine.items():
        greedy = mine.get((task, split, "greedy"))
        if mode != "sampled" or greedy is None:
            continue
        change = compare(greedy.evaluation, sampled.evaluation).difference
        if min(abs(change.low), abs(change.high)) > FAR and change.low * change.high > 0:
            better = "sampled" if change.mean > 0 else "greedy"
            yield Finding(
                check="decoding",
                level="warning" if better == "sampled" else "note",
                what=f"on {f'{task} {split}'.strip()} {better} answers earn {abs(change.mean):.3f} "
                f"[{min(abs(change.low), abs(change.high)):.3f}, {max(abs(change.low), abs(change.high)):.3f}] more "
                "than "
                f"the others (n = {change.n})",
                evidence={"greedy": greedy.evaluation.mean_reward, "sampled": sampled.evaluation.mean_reward},
                causes=("greedy answers repeat themselves or end at once", "the likeliest answer is a wrong default")
                if better == "sampled"
                else ("a high temperature: few sampled answers are the likeliest one",),
                fix="deploy with the law that was evaluated; say which one a figure is of",
            )
    yield from _laws(history)


def _laws(history: History) -> Iterator[Finding]:
    stages: dict[tuple[str, str, str], list[Final]] = {}
    for one in history.finals:
        if one.evaluation.sampling:
            stages.setdefault((one.task, one.split, one.mode), []).append(one)
    for (task, split, mode), found in stages.items():
        laws = [one.evaluation.sampling for one in found]
        differing = sorted({key for law in laws for key in law if any(other.get(key) != law[key] for other in laws)})
        if differing:
            yield Finding(
                check="decoding",
                level="warning",
                what=f"{mode} answers to {f'{task} {split}'.strip()} were drawn in two ways: {', '.join(differing)} "
                "differ "
                f"between {' and '.join(one.stage for one in found)}",
                evidence={
                    one.stage: str({key: law.get(key) for key in differing})
                    for one, law in zip(found, laws, strict=True)
                },
                causes=("the settings of the evaluation changed between the stages",),
                fix="evaluate both again under one law",
            )
    trained, used = (
        history.settings.get("sampling.steps"),
        {steps for one in history.finals if isinstance(steps := one.evaluation.sampling.get("steps"), int)},
    )
    if isinstance(trained, int) and used and used != {trained}:
        yield Finding(
            check="decoding",
            level="note",
            what=f"training draws in {trained} denoising steps, evaluations in {', '.join(sorted(map(str, used)))}",
            evidence={"training": trained},
            causes=("evaluation.steps",),
            fix="what is trained is the law with the steps of training",
        )


CHECK = Check(
    name="decoding",
    asks="whether greedy and sampled answers differ much, and whether all evaluations drew by one law",
    needs=("finals",),
    look=look,
    kinds=("rl", "sft"),
    live=False,
)
