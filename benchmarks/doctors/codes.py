"""The page of codes and figures: `python -m benchmarks.doctors.codes > docs/reference/findings.md`."""

import re
import sys
from collections.abc import Mapping

from plumbline.checks.messages import SHARED, read_messages

ABOUT = """\
# Codes of findings

`--json` has of each finding `check`, `code`, `causes` and, under `evidence`, figures. A code keeps its
meaning; its sentence may change. Words in *italics* are figures of the evidence. What stands in
brackets is said where its figures are known.

## Of any check
"""
_PIECE = re.compile(r"\[\[|\]\]|\{([^{}]+)\}")


def list_codes() -> str:
    """The codes, sentences and figures of every check as a page in Markdown."""
    lines = [ABOUT]
    table = read_messages()
    for name in (SHARED, *sorted(table.keys() - {SHARED})):
        entry = table[name]
        lines += [] if name == SHARED else [f"\n## {name}\n"]
        lines += _list_sentences(
            {code: found["what"] for code, found in entry.get("found", {}).items()}
        )
        if causes := entry.get("causes"):
            lines += ["\nLikely causes:\n", *_list_sentences(causes)]
        if figures := entry.get("figures"):
            lines += ["\nFigures:\n", *(f"- *{one}*: {what}" for one, what in figures.items())]
    return "\n".join(lines) + "\n"


def _list_sentences(sentences: Mapping[str, str]) -> list[str]:
    return [f"- `{code}`: {_PIECE.sub(_say_piece, said)}" for code, said in sentences.items()]


def _say_piece(piece: re.Match[str]) -> str:
    """A figure's place in a sentence, for a reader."""
    written = piece[1]
    if written is None:
        return piece[0][0]
    if written[0] in "?!":
        return ""
    if written.startswith("key:"):
        return f"`{written[4:]}`"
    return f"*{re.split('[:|]', written)[0]}*" + (
        f" {written.partition('|')[2]}s" if "|" in written else ""
    )


if __name__ == "__main__":
    sys.stdout.write(list_codes())
