"""How much of a batch goes into one forward and backward pass: as much as the recipe says, or what
the memory holds.

The gradient of a batch is the sum over its micro-batches, however it was cut into them, so this
decides about memory and speed and never about a result.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch

from plumbline.policies.memory import (
    Say,
    begin_peak,
    ignore_message,
    is_full,
    measure_reachable_memory,
    read_peak,
    release_after_error,
)
from plumbline.policies.policy import Done, Helpers, Policy, Work, with_gradients
from plumbline.policies.pretrained.policy import round_up
from plumbline.recipe import RlSection, SftSection
from plumbline.runs.run import Run
from plumbline.training.optimiser import Optimiser

Part = TypeVar("Part")
Result = TypeVar("Result")
Cut = Callable[[int], Sequence[Part]]
"""From the most tokens of a micro-batch to the micro-batches of a batch."""

TRIALS = (2048, 8192)
"""Tokens of the micro-batches that are measured. The smaller one has more answers than one slice of
the head takes at once, so that logits, which never take more than a slice, are not counted for
every token."""
MOST = 2**16
"""Tokens of a micro-batch, whatever the memory: the time in which it is started is then long hidden
behind its arithmetic."""
SHARE = 0.8
"""Of the memory that is planned with; the rest is for what is cut less evenly, and for holes
between tensors."""
WORTH_A_MICROBATCH = 128
"""Tokens that a thread's micro-batch may have at least: with fewer rows a product reads more than
it multiplies."""
ADAM = {"adamw": 8, "adamw8bit": 2}
"""Bytes of an optimiser's moments for a trained weight, which come with its first step."""


class Threads:
    """Threads of this process that do micro-batches on replicas of the learner with its very
    weights; see `Helpers`.

    Each then multiplies with its share of the process's threads, and so does whoever asked. A
    micro-batch of a small model is a few thousand operations: two threads that meet after every one
    of them keep 1.5 of two cores busy, and with a micro-batch each 1.95.
    """

    def __init__(self) -> None:
        self.threads = torch.get_num_threads()
        self.count = 0  # until `follow` has made replicas
        self.pool = ThreadPoolExecutor(max(1, self.threads - 1), "micro-batch")
        self.replicas: list[Policy] = []
        self.places: list[int] = []
        """In memory, of the weights that the replicas share."""

    def follow(self, learner: Policy) -> bool:
        """Have replicas of the learner; False where they would gain nothing."""
        places = [weight.data_ptr() for weight in learner.trainable().values()]
        if places != self.places or not self.replicas:
            made = (learner.replica() for _ in range(self.threads - 1))
            self.places, self.replicas = (
                places,
                [replica for replica in made if replica is not None],
            )
        self.count = len(self.replicas)
        return self.count > 0

    @contextmanager
    def working(self, learner: Policy, works: Sequence[Work]) -> Iterator[Callable[[], list[Done]]]:
        """See `Helpers.working`."""
        self.follow(learner)
        threads_each = self.threads // (1 + len(works))

        def work_in_thread(replica: Policy, work: Work) -> Done:
            torch.set_num_threads(threads_each)  # of this thread
            return with_gradients(replica, work)

        torch.set_num_threads(threads_each)
        pairs = zip(self.replicas[: len(works)], works, strict=True)
        asked = [self.pool.submit(work_in_thread, *pair) for pair in pairs]
        try:
            yield lambda: [future.result() for future in asked]
        finally:
            wait(asked)
            torch.set_num_threads(self.threads)

    def close(self) -> None:
        """See `Helpers.close`."""
        self.pool.shutdown()


def shared_out(
    helpers: Helpers | None,
    policy: Policy,
    parts: Sequence[Part],
    work: Callable[[Sequence[Part], Policy], Result],
) -> list[Result]:
    """What some work makes of the shares of its parts, the first done here and the others by
    helpers.

    The gradients that the work leaves are added up in the order of the shares, whoever is ready
    first.
    """
    count = 1 if helpers is None else min(1 + helpers.count, len(parts))
    if helpers is None or count == 1:
        return [work(parts, policy)]
    own, *others = (parts[start::count] for start in range(count))
    with helpers.working(policy, [partial(work, share) for share in others]) as finished:
        results, weights = [work(own, policy)], policy.trainable()
        for theirs, gradients in finished():
            results.append(theirs)
            for name, gradient in gradients.items():
                weight, moved = weights[name], gradient.to(weights[name].device)
                weight.grad = moved if weight.grad is None else weight.grad.add_(moved)
    return results


class Microbatches:
    """Does work micro-batch by micro-batch, and again in smaller micro-batches where the memory was
    not enough.

    Args:
        optimiser: of the weights in which the gradients add up; those of an unfinished piece of
            work are cleared.
        policy: may compute activations again in the backward pass to save memory.
        run: is told what happens in the stage.
        stage: its name.
        helpers: replicas that do some of the micro-batches; by default threads of this process,
            where they gain something.
    """

    def __init__(
        self,
        optimiser: Optimiser,
        policy: Policy | None = None,
        run: Run | None = None,
        stage: str = "base",
        helpers: Helpers | None = None,
    ) -> None:
        weights = optimiser.weights.values()
        self.clear, self.device = optimiser.clear, next(iter(weights)).device
        self.count = sum(weight.numel() for weight in weights)
        self.moments = ADAM[optimiser.section.name]
        self.key = "" if stage == "base" else f"{stage}.tokens_per_microbatch"
        """The recipe's, for messages; empty where it has none."""
        self.say: Say = ignore_message if run is None else run.event
        self.helpers = helpers or Threads()
        self.policy = policy
        self._measured: int | None = None
        self._limit: int | None = None
        """Tokens that were too many, halved until they were not."""

    def run_fitting(
        self, cut: Cut[Part], work: Callable[[Sequence[Part]], Result], tokens: int
    ) -> Result:
        """What `work` makes of the micro-batches that `cut` makes of a batch.

        Out of memory, the gradients are cleared and all of the work is done again from its start,
        in micro-batches of half as many tokens; so `work` draws nothing and changes no weight. What
        it then returns is what it would have returned had the recipe asked for such micro-batches.
        They stay that small.

        Args:
            cut: from the most tokens of a micro-batch to the micro-batches.
            work: forward and backward of each of them.
            tokens: the most of a micro-batch.

        Raises:
            RuntimeError: torch's error of a full memory, where no micro-batch can be made smaller.
        """
        cut, tokens = self._balance(cut), min(tokens, self._limit or tokens)
        parts = cut(tokens)
        while True:
            try:
                return work(parts)
            except RuntimeError as error:
                if not is_full(error):
                    raise
                smaller = _cut_smaller(cut, parts, tokens)
                if smaller is None and not self.recompute():
                    raise
                self.clear()
                release_after_error(error)
            if smaller is None:
                self.say(
                    "out_of_memory",
                    f"a micro-batch that cannot be cut takes more memory than there is; {RECOMPUTED}",
                )
                continue
            self.say(
                "out_of_memory",
                f"micro-batches of up to {tokens} tokens take more memory than there is; from here on "
                "they have up to "
                f"{smaller[0]}, and this step is done again with the same answers and random "
                "numbers, so no result "
                "changes"
                + (f". Set {self.key}: {smaller[0]} to begin with that" if self.key else ""),
            )
            tokens, parts = smaller
            self._limit = tokens

    def max_tokens(
        self, cut: Cut[Part], work: Callable[[Sequence[Part]], Any], section: SftSection | RlSection
    ) -> int:
        """The most tokens of a micro-batch: what the recipe says, or for auto what the first batch
        on a GPU shows.

        Where less fits there than this batch has use for (up to what a micro-batch has on a CPU),
        activations are computed from the start from then on, and it is measured once more.

        Args:
            cut: see `run_fitting`.
            work: forward and backward; its gradients are cleared.
            section: the recipe's.
        """
        if section.tokens_per_microbatch != "auto":
            return section.tokens_per_microbatch
        if self.device.type != "cuda":
            return section.on_cpu
        if self._measured is None:
            self._measured, figures = self._measure(cut, work)
            needed = _size(cut, section.on_cpu)
            if self._measured < needed and self.recompute():
                self.say(
                    "note",
                    f"{figures}, and this batch has micro-batches of {needed} tokens; {RECOMPUTED}",
                )
                self._measured, figures = self._measure(cut, work)
            self.say(
                "note",
                f"{figures}. Set {self.key or 'tokens_per_microbatch'} to have other micro-batches",
            )
        return self._measured

    def recompute(self) -> bool:
        """Let the backward pass compute activations again; False where it does already, or may
        not."""
        if self.policy is None or not self.policy.recompute():
            return False
        if isinstance(self.helpers, Threads):
            self.helpers.replicas.clear()
        return True

    def _balance(self, cut: Cut[Part]) -> Cut[Part]:
        """A cut into as many micro-batches for each thread, about equally long, which together hold
        so many tokens at once."""
        if not (
            isinstance(self.helpers, Threads)
            and self.policy is not None
            and self.helpers.follow(self.policy)
        ):
            return cut
        helpers = self.helpers.count

        def even(tokens: int) -> Sequence[Part]:
            threads = max(1, min(1 + helpers, tokens // WORTH_A_MICROBATCH))
            most = max(1, tokens // threads)
            wanted = round_up(len(cut(most)), threads)
            return cut(_find_least(lambda tokens: len(cut(tokens)) <= wanted, most))

        return even

    def _measure(self, cut: Cut[Part], work: Callable[[Sequence[Part]], Any]) -> tuple[int, str]:
        """Tokens of a micro-batch that fit, from the peaks of one or two small micro-batches, and
        these figures in words.

        Bytes are taken for linear in tokens: those of two micro-batches give the slope and the
        constant, where the larger one can be expected to fit; those of one the slope, with what lay
        in the memory before as the constant.
        """
        begin_peak(self.device)
        before = read_peak(self.device)
        most = SHARE * (measure_reachable_memory(self.device) - self.moments * self.count)
        found: list[tuple[int, int]] = []  # tokens, bytes
        slope, constant = 0.0, float(before)
        for tokens in TRIALS:
            if found and constant + slope * tokens > most:
                break
            begin_peak(self.device)
            try:
                work(cut(tokens)[:1])
            except RuntimeError as error:
                if not is_full(error):
                    raise
                self.clear()
                release_after_error(error)
                break
            self.clear()
            found.append((_first_tokens(cut, tokens), read_peak(self.device)))
            if len(found) == 1 or found[1][0] > found[0][0]:
                (less, low), (more, high) = (0, before) if len(found) == 1 else found[0], found[-1]
                slope = max(1.0, (high - low) / (more - less))
                constant = high - slope * more
        fits = int((most - constant) / slope) if found else TRIALS[0] // 2
        told = (
            " and ".join(f"{tokens} tokens took {size / 1e9:.2f} GB" for tokens, size in found)
            or "none fitted"
        )
        tokens = max(1, min(MOST, fits))
        return (
            tokens,
            (
                f"micro-batches that were tried: {told}; {most / 1e9:.1f} GB may be used, so up to "
                f"{tokens} "
                "tokens fit"
            ),
        )


RECOMPUTED = (
    "from here on layers are computed a second time in the backward pass, which takes about a "
    "third more time and "
    "changes no result (model.gradient_checkpointing: true begins with that, false forbids it)"
)


def _cut_smaller(
    cut: Cut[Part], parts: Sequence[Part], tokens: int
) -> tuple[int, Sequence[Part]] | None:
    """Half of the tokens, or half of that, until the batch is cut otherwise; None where nothing is
    left to cut."""
    while tokens > 1:
        tokens //= 2
        if (found := cut(tokens)) != parts:
            return tokens, found
    return None


def _size(cut: Callable[[int], Any], tokens: int) -> int:
    """The fewest tokens with which a batch is cut as with so many: those of its largest
    micro-batch."""
    wanted = cut(tokens)
    return _find_least(lambda fewer: cut(fewer) == wanted, tokens)


def _find_least(enough: Callable[[int], bool], tokens: int) -> int:
    """The fewest tokens that are enough, where so many are."""
    low, high = 0, tokens
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _first_tokens(cut: Cut[Part], tokens: int) -> int:
    """Tokens of the first of the micro-batches; of one that holds a single answer, half of what two
    need."""

    def first(tokens: int) -> Part:
        return cut(tokens)[0]

    if first(1) != first(tokens):
        return _size(first, tokens)
    while tokens < MOST and first(1) == first(tokens):
        tokens *= 2
    return max(1, _size(first, tokens) // 2)
