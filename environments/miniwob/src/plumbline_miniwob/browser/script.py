"""The script that is installed in every page before the page's own."""

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from plumbline_browser import hand

_HERE = files(__package__)
PARTS = (
    *(_HERE / "clock.js", _HERE / "see.js"),
    *hand.PARTS,
    *(_HERE / "acts.js", _HERE / "run.js", _HERE / "turns.js"),
)
"""What decides how an episode goes: what a page shows, what an action does and how long it takes,
what is earned."""


def _oracles() -> list[Traversable]:
    found = [one for one in (_HERE / "oracle").iterdir() if one.name.endswith(".js")]
    return sorted(found, key=lambda one: (one.name != "shared.js", one.name))


@cache
def script() -> str:
    """Clock, eyes, hand and oracles as one text; each oracle's file has names of its own."""
    parts = [one.read_text(encoding="utf-8") for one in PARTS]
    for one in _oracles():
        body = one.read_text(encoding="utf-8")
        parts.append(
            f"((oracles, shared, see) => {{\n{body}\n}})(plumbline.oracles, plumbline.shared, "
            "plumbline.see);"
        )
    return "\n".join(parts)
