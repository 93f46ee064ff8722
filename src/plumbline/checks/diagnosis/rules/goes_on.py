"""Completions that go on after their end: the mark that ends a text is not one that stops the sampler."""

import re
from collections.abc import Iterator

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

SOME = 0.2
_END = r"(?:<\|im_end\|>|<\|endoftext\|>|<\|eot_id\|>|<\|end_of_text\|>|<end_of_turn>|</s>|<eos>|<\|end\|>)"
_AFTER = re.compile(
    _END + r"\s*(?!\s|" + _END + r"|<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|<s>|<pad>|\[PAD\])\S"
)
"""An end, and then neither another one nor the beginning of a turn (of an episode of several)."""


def look(history: History) -> Iterator[Finding]:
    """The last half of the completions. Most trainers store them without such marks; then there is nothing to see."""
    last = history.samples[len(history.samples) // 2 :][-2000:]
    found = [one for one in last if _AFTER.search(one.text)]
    if len(last) < 16 or len(found) < SOME * len(last):
        return
    share = len(found) / len(last)
    yield Finding(
        check="goes-on",
        level="warning",
        what=f"{share:.0%} of the last {len(last)} completions go on after a mark that ends a text",
        since=found[0].step,
        evidence={"share": round(share, 3)},
        samples=tuple(dict.fromkeys(one.prompt[:80] for one in found[:3])),
        causes=("the template ends an answer with a mark that the sampler does not stop at",),
        fix="give sampler and trainer every id that ends a text (generation_config.eos_token_id)",
    )


CHECK = Check(
    name="goes-on",
    asks="whether completions go on after a mark that ends a text",
    needs=("samples",),
    look=look,
)
