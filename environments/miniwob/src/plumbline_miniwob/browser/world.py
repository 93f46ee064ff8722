"""The pages of the task, by the pool."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from plumbline.records import Failure, Frame
from plumbline_browser.chromium import clear_breakdowns, frame, shortened
from plumbline_miniwob.actions import Act, to_json
from plumbline_miniwob.browser.pool import EpisodePool, PlayedEpisode
from plumbline_miniwob.grammar import PageText, TextElement
from plumbline_miniwob.world import Played, Solved, Turns
from plumbline_miniwob.writing import write_step

if TYPE_CHECKING:
    from playwright.async_api import Page as Tab

_TOLD = "([seed, acts]) => plumbline.turns.told(seed, acts)"
_BEGIN = "seed => plumbline.episodes.first(seed)"
_ACT = (
    "async one => [await plumbline.episodes.act(one), WOB_DONE_GLOBAL === true, "
    "WOB_RAW_REWARD_GLOBAL]"
)
_LOOK = "() => plumbline.episodes.look()"
_AREA = {"x": 0.0, "y": 0.0, "width": 160.0, "height": 210.0}
_UNCOVERED = "#sync-task-cover { visibility: hidden }"
"""A page that has ended covers itself, and how it ended is what the last picture is for."""


class BrowserWorld:
    """See `plumbline_miniwob.world.World`."""

    def __init__(self, pool: EpisodePool | None = None) -> None:
        """Look for a browser; it is started with the first episode.

        Raises:
            RecipeError: the pages, Playwright or a Chromium are missing.
        """
        self.pool = EpisodePool() if pool is None else pool
        self.at_once = self.pool.at_once

    def solve(self, task: str, seeds: Sequence[str], *, turns: bool) -> list[Solved | Failure]:
        """See `World.solve`."""
        return [self._solved(task, seed, turns) for seed in seeds]

    def _solved(self, task: str, seed: str, in_turns: bool) -> Solved | Failure:
        gold = self.pool.gold(task, seed)
        if isinstance(gold, Failure):
            return gold
        turns = None
        why = gold.why or ("" if gold.ran.raw == 1 else f"the oracle earns {gold.ran.raw:g}")
        if not why:
            (again,) = self.pool.run(task, seed, [gold.acts], shows=False)
            if isinstance(again, Failure):
                return again
            why = "" if again.answered and again.raw == 1 else "the plan earns less the second time"
        if in_turns and not why:
            turns = self.pool.evaluate(task, _TOLD, [seed, list(gold.acts)])
            if isinstance(turns, Failure):
                return turns
        page = PageText(
            tuple(TextElement(one.ref, one.role, one.name) for one in gold.first.elements)
        )
        return Solved(
            gold.first.utterance,
            gold.first.text,
            page,
            gold.acts,
            why,
            None if turns is None else tuple(turns),
        )

    def play(self, task: str, seed: str, plans: Sequence[Sequence[Act]]) -> list[Played | Failure]:
        """See `World.play`."""
        return self.pool.run(
            task, seed, [[to_json(act) for act in acts] for acts in plans], shows=False
        )

    def begin(self, task: str, seed: str) -> Turns:
        """See `World.begin`."""
        visit = PlayedEpisode(task, seed)
        return lambda acts: self.pool.act(visit, [to_json(act) for act in acts])

    def film(self, task: str, seed: str, stretches: Sequence[Sequence[Act]]) -> list[Frame]:
        """See `World.film`."""
        with clear_breakdowns(self.pool.broken):
            return shortened(self.pool.use(task, lambda tab: _film(tab, seed, stretches)))


async def _film(tab: "Tab", seed: str, stretches: Sequence[Sequence[Act]]) -> list[Frame]:
    first = await tab.evaluate(_BEGIN, seed)
    frames: list[Frame] = []

    async def shoot(caption: str) -> None:
        image = await tab.screenshot(
            type="jpeg",
            quality=60,
            clip=_AREA,  # type: ignore[arg-type]
            scale="css",
            style=_UNCOVERED,
        )
        frames.append(frame(caption, image))

    await shoot(f"before: {first['utterance']}")
    for number, acts in enumerate(stretches, 1):
        turn = f"turn {number}: " if len(stretches) > 1 else ""
        for act in acts:
            (status, reason), answered, raw = await tab.evaluate(_ACT, to_json(act))
            ended = f"; the page ends with reward {raw:g}" if answered else ""
            missed = "" if status == "ok" else f"{status}, {reason}; "
            await shoot(f"{turn}{missed}after {write_step(act)}{ended}")
            if answered:
                return frames
        await tab.evaluate(_LOOK)
    return frames
