"""How far a plan has come, as a line in the `memory` of every answer, which the agent sends back with its history."""

import re
from dataclasses import dataclass

from plumbline_forms.agent.acts import MARK

_LINE = re.compile(
    r"Plan ([0-9a-f]{12}): sent ([\d+ ]*)of (\d+), next (\d+), page ([0-9a-f]{8})(, prepared)?(?:, looked (\d+))?\."
)
_WENT_WELL = ("Typed ", "Selected dropdown option ", "Clicked ", "Uploaded file ", "Sent keys", "Navigated to ", MARK)
"""What the agent writes of an action that went well begins like this; of others it writes what was wrong."""
_RESULT = re.compile(rf"^(?:{'|'.join(_WENT_WELL)})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Memory:
    """Where an answer left a plan."""

    id: str
    sent: tuple[tuple[int, ...], ...]
    """Numbers of the plan's actions, those together that were one action of the agent's."""
    total: int
    next: int
    page: str
    """Stands for the page that was open."""
    prepared: bool = False
    """Whether the page was made ready for the next action."""
    looked: int = 0
    """How often it was scrolled in search of what the next action is about."""
    results: str = ""
    """What the agent says became of the actions."""

    def text(self) -> str:
        """The line."""
        sent = "".join("+".join(map(str, group)) + " " for group in self.sent)
        more = ", prepared" * self.prepared + (f", looked {self.looked}" if self.looked else "")
        return f"Plan {self.id}: sent {sent}of {self.total}, next {self.next}, page {self.page}{more}."

    @property
    def went_well(self) -> int:
        """How many of the agent's actions went well; it stops at the first that does not."""
        return len(_RESULT.findall(self.results))


def memory_of(history: str) -> Memory | None:
    """The last line in an agent's history that is one of ours."""
    found = [*_LINE.finditer(history)][-1:]
    if not found:
        return None
    key, sent, total, following, page, prepared, looked = found[0].groups()
    groups = tuple(tuple(map(int, filter(None, group.split("+")))) for group in sent.split())
    results = history[found[0].end() :]
    return Memory(key, groups, int(total), int(following), page, bool(prepared), int(looked or 0), results)
