"""Prompts that never taught anything: at every visit all of their answers earned the same."""

from collections import defaultdict
from collections.abc import Iterator

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

MOST = 0.5
VISITS = 3
ENOUGH = 10
EQUAL = 1e-6


def look(history: History) -> Iterator[Finding]:
    """Of the prompts that were visited three times or more. It costs rollouts and breaks nothing: a note."""
    visits: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in history.samples:
        if one.prompt and one.reward is not None:
            visits[one.prompt][one.step].append(one.reward)
    often = {
        prompt: [rewards for rewards in steps.values() if len(rewards) > 1]
        for prompt, steps in visits.items()
        if sum(len(rewards) > 1 for rewards in steps.values()) >= VISITS
    }
    stuck = {
        prompt: groups[-1][0]
        for prompt, groups in often.items()
        if all(max(rewards) - min(rewards) < EQUAL for rewards in groups)
    }
    if len(often) < ENOUGH or len(stuck) < MOST * len(often):
        return
    low = [prompt for prompt, reward in stuck.items() if reward < EQUAL]
    yield Finding(
        check="stuck-prompts",
        level="note",
        what=f"{len(stuck)} of {len(often)} prompts gave every one of their groups equal rewards, {len(low)} of them 0",
        evidence={"prompts": len(often), "without a spread": len(stuck), "at 0": len(low)},
        samples=tuple(prompt[:80] for prompt in list(stuck)[:3]),
        causes=("prompts that are too hard",) if 2 * len(low) > len(stuck) else ("prompts that are solved",),
        fix="leave them out for a while: they cost rollouts and have no gradient",
    )


CHECK = Check(
    name="stuck-prompts",
    asks="whether most prompts never gave a group with different rewards",
    needs=("samples",),
    look=look,
    live=False,
)
