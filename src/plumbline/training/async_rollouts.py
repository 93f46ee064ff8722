"""Async rollouts, made while the learner trains and off-policy by k steps (`rl.off_policy_steps`):
those of step n are of version max(0, n - k) of the weights.

Which version answers is fixed by the step and not by what happens to be ready, so a run is the same
to the bit however fast sampler and learner are, and a resumed one is the run that was not
interrupted. The sampler has weights of its own: a copy of the policy, in which frozen weights
(below adapters) are shared. It works in one thread, and holds at most k steps of finished
rollouts. What that gains is the time in which one side would wait for the other: for verdicts (a
browser, a judge), or for a device of its own. On one busy device it gains little.

The gap between sampler and scorer is measured by the sampler's copy under the very weights that
drew, so it is rounding at any k (law 1), and `rl.max_gap` means the same. How far the learner has
gone since is `train/tis_gap`.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from plumbline.policies.policy import Engine, Policy, Sampler
from plumbline.recipe import RlSection
from plumbline.records import Message, Request, Sampling, Trajectory
from plumbline.rollouts.collect import hand_over
from plumbline.training import guards
from plumbline.training.prompts import StepRollouts
from plumbline.training.stage import Stage
from plumbline.training.update import probe_gap

Draw = Callable[[Sampler, int], StepRollouts]
"""Draws and judges the rollouts of a step."""


@contextmanager
def open_rollouts(
    policy: Policy, draw: Draw, section: RlSection, progress: Stage, engine: Engine | None = None
) -> Iterator[Callable[[int], StepRollouts]]:
    """A function that gives the rollouts of a step, called once for each, in order, before it
    changes the weights.

    Each call publishes the policy's present weights as the version of that step, and the sampler
    begins to draw with them what is trained on k steps later.

    Args:
        policy: what is trained.
        draw: is called in a thread of its own; what it raises is raised to whoever asks for the
            step. Leaving the block ends it after the answer in progress.
        section: the recipe's; its `off_policy_steps` are the versions that the sampler is behind.
        progress: of the stage; its checkpoints keep the versions that a resumed run draws with once
            more.
        engine: draws in place of the policy; it is handed every version before it draws with it.

    Raises:
        TrainingStopped: when called, where the sampler's copy does not score what it recorded
            (`rl.max_gap`).
    """
    behind = section.off_policy_steps
    twin = copy.deepcopy(policy)
    sampler = _StoppableSampler(engine or twin)
    waiting: dict[int, Future[StepRollouts]] = {}
    with ThreadPoolExecutor(1, thread_name_prefix="sampler") as thread:

        def draw_with_version(
            step: int, version: int, weights: Mapping[str, Tensor]
        ) -> StepRollouts:
            """In the sampler's thread: take a version of the weights over, and draw a step's
            rollouts with them."""
            with torch.no_grad():
                for name, weight in twin.trainable().items():
                    weight.copy_(weights[name])
            hand_over(twin, version, engine)
            drawn = draw(sampler, step)
            probed = drawn.groups[0].rollouts[0].turns
            gap = probe_gap(twin, probed)
            guards.check_gap(gap, section.max_gap, probed[0].sampling, twin.family)
            return replace(drawn, gap=gap)

        def submit_step(step: int) -> None:
            if step < progress.optimiser.total:
                version = max(0, step - behind)
                weights = {name: progress.older[f"{version}:{name}"] for name in twin.trainable()}
                waiting[step] = thread.submit(draw_with_version, step, version, weights)

        def collect_step(step: int) -> StepRollouts:
            policy.publish(step)
            weights = {
                f"{step}:{name}": weight.detach().clone()
                for name, weight in policy.trainable().items()
            }
            progress.older |= weights
            for later in range(step + behind if waiting else step, step + behind + 1):
                submit_step(later)
            for key in [
                key for key in progress.older if int(key.partition(":")[0]) <= step - behind
            ]:
                del progress.older[key]
            return waiting.pop(step).result()

        try:
            yield collect_step
        finally:
            sampler.stopped.set()
            thread.shutdown(cancel_futures=True)


class _StoppableSampler:
    """A `Sampler` that ends between two answers once it is told to."""

    def __init__(self, inner: Sampler) -> None:
        self.inner, self.family, self.context, self.engine = (
            inner,
            inner.family,
            inner.context,
            inner.engine,
        )
        self.stopped = threading.Event()

    def prompt_length(self, messages: Sequence[Message]) -> int:
        return self.inner.prompt_length(messages)

    def exact(self, sampling: Sampling) -> bool:
        return self.inner.exact(sampling)

    def sample(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Trajectory]]:
        for pair in self.inner.sample(requests):
            if self.stopped.is_set():
                raise CancelledError
            yield pair
