"""Whether what is learnt arrives where somebody else draws: how much rounding leaves of it, and
whether it draws.

Letters in shapes: S numbers that are compared, N tokens of the probe.

Two things can go wrong between a learner and a server that is handed its weights. A 16-bit weight
of size w has neighbours about w / 256 away, and an update of RL is often smaller than half of that:
it is rounded away, and the server draws with the old weights although every file is new. Or the
weights are not loaded, whatever the server says. So the update is measured on elements of every
trained matrix, before and after rounding; and a probe of fixed texts is scored by the learner and
by the server: the server's log-probabilities must move with the learner's. Rounding of its
activations moves them, too, in 16 bits by more than the first steps of RL do: their share of the
learner's move is judged once rounding cannot explain it, and until then they must only have
changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plumbline.errors import EngineError
from plumbline.records import Message

if TYPE_CHECKING:
    from torch import Tensor

LEAST = 0.3
"""Share of an update that must arrive. Weights that are multiples of 16-bit steps lose nearly all
of a small update, and others keep nearly all of it on average; below, most of what was learnt is
not what samples."""
WRONG = 0.5
"""Nats a token between learner and server from which on they are two models; rounding to 16 bits
makes 0.01 to 0.1."""
PROBE: tuple[tuple[str, str], ...] = (
    (
        "What is the capital of France, and which river runs through it?",
        "Paris; the Seine runs through it.",
    ),
    (
        "O produto chegou atrasado e com defeito. Qual é o sentimento?",
        '{"sentiment": "negativo", "nota": 2}',
    ),
    (
        "Write a query that counts the orders of a month.",
        "SELECT COUNT(*) FROM orders WHERE month = '2018-03';",
    ),
    ("List three colours, one a line.", "red\ngreen\nblue"),
)
TEXT = "".join(question + answer for question, answer in PROBE)
"""What tells two tokenizers apart."""


@dataclass(frozen=True, slots=True)
class NumberPair:
    """Numbers that training changes, [S] each on the CPU: elements of the trained matrices, or
    log-probabilities."""

    exact: Tensor
    """As the learner has them."""
    served: Tensor
    """As the server has them."""


@dataclass(frozen=True, slots=True)
class SyncedShare:
    """How much of a change the server has; all are shares."""

    share: float
    """Of the wanted change, as the projection of what arrived on it: <served, wanted> / <wanted,
    wanted>, the slope of a line through the origin. The ratio of the two norms would count rounding
    errors as if they had been learnt."""
    bound: float
    """How far rounding can move that slope. Between two versions that arrived, the server's change
    differs from the learner's by two rounding errors, each about as long as that of the earlier
    version; by Cauchy and Schwarz they move the slope by at most the sum of their lengths over that
    of the learner's change. A standard error would be too small: the tokens of a text share what
    its first ones are rounded to, and a few tokens make most of a change."""
    elements: float
    """Of the elements that should have changed, those that did."""
    noise: float
    """Norm of what arrived beside the wanted, over the norm of the wanted."""


def measure_sync(before: NumberPair, now: NumberPair) -> SyncedShare | None:
    """What of the change from `before` to `now` the server has; None where the learner has not
    changed."""
    wanted, got = (now.exact - before.exact).double(), (now.served - before.served).double()
    size = float(wanted.norm())
    if not size:
        return None
    share = float(wanted @ got) / size**2
    return SyncedShare(
        share=share,
        bound=2 * float((before.served - before.exact).double().norm()) / size,
        elements=float((got[wanted != 0] != 0).double().mean()),
        noise=float((got - wanted).norm()) / size,
    )


def check_tokenizer(chat: Any, theirs: list[int]) -> None:
    """See that a server cut `TEXT` into tokens as the learner does.

    Raises:
        EngineError: it did not.
    """
    if theirs != list(chat.tokenizer(TEXT, add_special_tokens=False)["input_ids"]):
        raise EngineError(
            "the server has another tokenizer than the learner", "start it with the learner's model"
        )


def encode_probe(chat: Any, context: int) -> list[list[int]]:
    """The token ids of the probe's texts, each one token shorter than a context at most."""
    chats: list[list[Message]] = [
        [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        for question, answer in PROBE
    ]
    return [list(chat.demonstration(one).tokens)[: context - 1] for one in chats]


class WeightSyncCheck:
    """What one server has of the versions that it was handed, told from those that it had
    before."""

    def __init__(self) -> None:
        self._first: NumberPair | None = None  # weights of the first version
        # the probe of the last version that was seen to have arrived
        self._anchor: NumberPair | None = None
        self._last: NumberPair | None = None  # that of the last version

    def check_rounding(self, weights: NumberPair, dtype: Any) -> Mapping[str, float]:
        """How much of the update since the first version the server's dtype leaves; nothing where
        there was none.

        Raises:
            EngineError: too little.
        """
        self._first = self._first or weights
        found = measure_sync(self._first, weights)
        if found is None:
            return {}
        if found.share < LEAST:
            raise EngineError(
                f"{found.share:.1%} of what was learnt since this stage began is left when weights "
                "are rounded to "
                f"{str(dtype).removeprefix('torch.')} ({found.elements:.1%} of the elements "
                "change): the server would "
                "sample with the old weights",
                "set engine.publish: lora, or serve float32 (engine.arguments: [--dtype, float32])",
            )
        return {
            "engine/update_arrived": found.share,
            "engine/update_elements": found.elements,
            "engine/update_noise": found.noise,
        }

    def check_probe(self, now: NumberPair, due: float) -> Mapping[str, float]:
        """Whether the server made at least half of the share `due` of the learner's change of the
        probe [N].

        Raises:
            EngineError: it did not, or it has another model.
        """
        gap = float((now.exact - now.served).abs().mean())
        if not gap <= WRONG:
            raise EngineError(
                f"the server's log-probabilities of the probe are {gap:.2f} nats a token from the "
                "learner's: it serves "
                "another model, or other weights of it",
                "start it with the learner's model, or let the run start its own (without "
                "engine.address)",
            )
        figures = {"engine/probe_gap": gap}
        anchor, last = self._anchor or now, self._last or now
        found, latest = measure_sync(anchor, now), measure_sync(last, now)
        if found is not None:
            if (latest is not None and not latest.elements) or found.share + found.bound < due / 2:
                raise EngineError(
                    "new weights were handed over, and the server still samples with older "
                    "weights: of the learner's "
                    f"change of the probe's log-probabilities it made {found.share:.2f} +- "
                    f"{found.bound:.2f}",
                    "use the version of vLLM that docs/cluster.md names, or another engine.publish",
                )
            if found.share - found.bound > due / 2:
                anchor = now  # what follows is told from this version
            figures |= {"engine/probe_moved": found.share, "engine/probe_moved_bound": found.bound}
        self._anchor, self._last = anchor, now
        return figures
