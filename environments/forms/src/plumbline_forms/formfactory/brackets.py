"""The bracket that an amount or a time of day lies in, where options are written as ranges."""

import re
from collections.abc import Sequence

from plumbline_forms.values import read_number, read_time

_AMOUNTS = re.compile(r"\$?\s*([\d,]+)\s*(?:-|–|to)\s*\$?\s*([\d,]+)")
_FROM = re.compile(r"\$?\s*([\d,]+)\s*\+")
_TIMES = re.compile(r"(\d{1,2}:\d{2}\s*[AP]M)\s*(?:-|–|to)\s*(\d{1,2}:\d{2}\s*[AP]M)", re.IGNORECASE)


def bracket(text: str, options: Sequence[str]) -> int | None:
    """The place of the first option whose range holds an amount or a time; both ends belong to a range.

    Returns:
        None where the text is neither, or lies in none of them.
    """
    number, clock = read_number(text.strip()), read_time(text.strip())
    for place, option in enumerate(options):
        if times := _TIMES.search(option):
            low, high = (read_time(part) for part in times.groups())
            if clock and low and low <= clock <= high:
                return place
            continue
        if not number:
            continue
        if amounts := _AMOUNTS.fullmatch(option.strip()):
            first, last = (float(part.replace(",", "")) for part in amounts.groups())
            if first <= float(number) <= last:
                return place
        elif (least := _FROM.fullmatch(option.strip())) and float(number) >= float(least.group(1).replace(",", "")):
            return place
    return None
