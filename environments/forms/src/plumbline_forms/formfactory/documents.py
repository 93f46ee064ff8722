"""The documents of a form: one file, numbered texts one after the other."""

import re

from plumbline.errors import DataError

_MARK = re.compile(r"^[ \t]*(\d+)([.)])[ \t]*", re.MULTILINE)


def split_documents(text: str, count: int, source: str) -> tuple[str, ...]:
    """The texts of a file, without their numbers.

    Texts hold numbered lists of their own, so a line that begins with a number begins a text only if the number is
    the one that is due next, with the sign after it that the first one has.

    Args:
        text: of the file.
        count: of the records; text n belongs to record n.
        source: named in errors.

    Raises:
        DataError: there are more or fewer texts than records.
    """
    starts: list[tuple[int, int]] = []
    sign = ""
    for mark in _MARK.finditer(text):
        if int(mark.group(1)) == len(starts) + 1 and mark.group(2) == (sign or mark.group(2)):
            sign = mark.group(2)
            starts.append((mark.start(), mark.end()))
    if len(starts) != count:
        raise DataError(
            f"{source} has {len(starts)} numbered texts for {count} records",
            "use a checkout whose data1 and data2 belong together, or task.options.surface: values",
        )
    ends = [begin for begin, _ in starts[1:]] + [len(text)]
    return tuple(text[begin:end].strip() for (_, begin), end in zip(starts, ends, strict=True))
