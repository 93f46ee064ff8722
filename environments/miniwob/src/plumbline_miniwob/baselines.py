"""Ways to act without reading what is asked: what they earn is the floor that every figure stands
on.

Some pages give a reward to whoever clicks what there is (one button, and it is the right one). That
is no fault of a verdict, so no baseline has a limit here; the floor of each page is printed beside
its figure.
"""

from collections.abc import Mapping

import numpy as np

from plumbline.records import Example
from plumbline.seeds import generator
from plumbline.tasks.baselines import blank, constant
from plumbline.tasks.task import Baseline, gold_of
from plumbline_browser.controls import shuffle_gold
from plumbline_miniwob.actions import Act, Point, Ref
from plumbline_miniwob.writing import write_steps

CLICKS = 5
"""Of the baseline that clicks at random."""
WIDTH, TOP, BOTTOM = 160, 50, 210
"""Where a page shows what can be clicked [pixels]."""


def baselines(*, with_gold: bool) -> Mapping[str, Baseline]:
    """The baselines by name; those that take other examples' answers only where all have one."""
    known: dict[str, Baseline] = {
        "blank": blank,
        "random-clicks": lambda examples: [_random_clicks(example) for example in examples],
        "click-everything": lambda examples: [_click_everything(example) for example in examples],
    }
    if with_gold:
        known["constant"] = constant
        known["shuffled-gold"] = lambda examples: shuffle_gold(
            examples, lambda one: one.stratum, lambda _, other: gold_of(other)
        )
    return known


def _random_clicks(example: Example) -> str:
    """Elements of the page at random, again and again; points where it has no elements."""
    rng = generator(0, "random-clicks", example.id)
    count = len(example.reference["elements"])
    return write_steps([Act(do="click", on=_anything(rng, count)) for _ in range(CLICKS)])


def _anything(rng: np.random.Generator, count: int) -> Ref | Point:
    if count:
        return Ref(int(rng.integers(1, count + 1)))
    return Point(int(rng.integers(WIDTH)), int(rng.integers(TOP, BOTTOM)))


def _click_everything(example: Example) -> str:
    """Each element once, in the order of the page."""
    return write_steps(
        [
            Act(do="click", on=Ref(number + 1))
            for number in range(len(example.reference["elements"]))
        ]
    )
