"""A film strip: pictures of what was done on a page, for people who want to see what went wrong."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from plumbline.errors import PlumblineError
from plumbline.records import Frame

MOST = 12
"""Pictures of one strip; what is between the first ones and the last is left out where there would be more."""
_CAPTION = 160


def frame(caption: str, image: bytes) -> Frame:
    """A picture [JPEG], with what was done in a line under it."""
    return Frame(caption=caption[:_CAPTION], image=image)


def shortened(frames: Sequence[Frame]) -> list[Frame]:
    """The first and the last pictures of a strip that would be too long."""
    if len(frames) <= MOST:
        return list(frames)
    return [*frames[: MOST // 2], *frames[-(MOST - MOST // 2) :]]


@contextmanager
def clear_breakdowns(broken: tuple[type[BaseException], ...]) -> Iterator[None]:
    """Say what happened where a browser breaks down while it is filmed.

    Raises:
        PlumblineError: one of `broken` was raised.
    """
    try:
        yield
    except broken as error:
        cause = str(error).strip().split("\n")[0][:200]
        raise PlumblineError(f"the browser broke down while the plan was filmed: {cause}", "try it again") from error
