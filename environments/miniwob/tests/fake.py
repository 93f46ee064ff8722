"""A world of one button and one field, without a browser: what it takes is to type the word and to
click Go."""

import re
from dataclasses import replace

from plumbline.records import Failure, Frame
from plumbline_miniwob.actions import Act, Named, Ref, to_json
from plumbline_miniwob.world import Played, Solved, page_of

WORDS = (
    "red",
    "green",
    "blue",
    "grey",
    "pink",
    "black",
    "white",
    "brown",
    "cyan",
    "olive",
    "teal",
    "navy",
)
ELEMENTS = (("textbox", "Word"), ("button", "Go"))
PAGE = page_of(ELEMENTS)


def text_of(value):
    return f"[1] textbox 'Word' = '{value}'\n[2] button 'Go'"


class FakeWorld:
    """See `plumbline_miniwob.world.World`."""

    def __init__(self, at_once=1):
        self.at_once = at_once
        self.broken = set()
        """Seeds on which the browser breaks down."""
        self.calls = []

    def word(self, task, seed):
        return WORDS[(int(re.sub(r"\D", "", seed)) + len(task)) % len(WORDS)]

    def solve(self, task, seeds, *, turns):
        found = [self.solved(task, seed) for seed in seeds]
        return (
            found
            if turns
            else [one if isinstance(one, Failure) else replace(one, turns=None) for one in found]
        )

    def solved(self, task, seed):
        if seed in self.broken:
            return Failure(cause="hang")
        word = self.word(task, seed)
        acts = [Act(do="type", on=Ref(1), text=word), Act(do="click", on=Ref(2))]
        given = tuple(map(to_json, acts))
        pages = [text_of(""), text_of(word)]
        turns = tuple({"page": page, "act": act} for page, act in zip(pages, given, strict=True))
        why = "there is no oracle" if task == "hover-shape" else ""
        asked = f"{task}: send the word {word} ({seed.split('-')[0]})"
        return Solved(asked, pages[0], PAGE, () if why else given, why, None if why else turns)

    def play(self, task, seed, plans):
        self.calls.append((task, seed, plans))
        if seed in self.broken:
            return [Failure(cause="hang")] * len(plans)
        return [self.played(task, seed, [acts]) for acts in plans]

    def begin(self, task, seed):
        turns = []

        def turn(acts):
            turns.append(acts)
            return Failure(cause="hang") if seed in self.broken else self.played(task, seed, turns)

        return turn

    def played(self, task, seed, plan):
        value, answered, raw = "", False, 0.0
        attempts = []
        for acts in plan:
            for act in acts:
                if answered:
                    break
                if act.on in (Ref(1), Named("Word", "textbox"), Named("Word")) and act.do == "type":
                    value = act.text
                elif act.on in (Ref(2), Named("Go", "button"), Named("Go")) and act.do == "click":
                    answered, raw = True, 1.0 if value == self.word(task, seed) else -1.0
                else:
                    attempts.append(("not found", "there is no such thing"))
                    continue
                attempts.append(("ok", ""))
        return Played(raw, answered, "", tuple(attempts), text_of(value), elements=ELEMENTS)

    def film(self, task, seed, stretches):
        return [
            Frame(caption=f"action {number}", image=b"")
            for number in range(sum(map(len, stretches)) + 1)
        ]
