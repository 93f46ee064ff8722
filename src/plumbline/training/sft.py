"""Supervised fine-tuning: the loss of the answers' tokens, and nothing else.

Batches are drawn without replacement, epoch by epoch, from windows sorted by length, so that a
batch's sequences are about equally long and little is padded. The loss of a batch is the sum over
its targets divided by their number, however many micro-batches it was cut into. Of several tasks
every batch has each task's share, drawn as RL draws prompts; the shares are of examples, so a task
with longer answers, or with more turns, has more of the targets.

Where a task asks again, its second turn is shown, too: the chat with what the careless first answer
came to, and the gold answer to it. A task whose gold answer differs from turn to turn
(`Task.demonstrations`) says what each turn shows.

A policy may lay a micro-batch's sequences end to end, each of which sees itself alone; sorting by
length leaves little padding to those that do not.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import numpy as np

from plumbline.errors import DataError
from plumbline.policies.memory import begin_peak, read_peak
from plumbline.policies.policy import Demonstration, Helpers, Policy
from plumbline.policies.sampling_distribution import Noise, noises
from plumbline.recipe import SftSection
from plumbline.records import Example, Message
from plumbline.runs.lineage import RATES
from plumbline.runs.run import Run
from plumbline.seeds import derive, generator
from plumbline.tasks.task import Task, episode_of, gold_of
from plumbline.training import guards
from plumbline.training.microbatches import Microbatches, shared_out
from plumbline.training.optimiser import Optimiser
from plumbline.training.prompts import Source
from plumbline.training.stage import Stage

WINDOW = 16
"""Batches in a window that is sorted by length."""


def train_sft(
    policy: Policy,
    demonstrations: Mapping[str, Sequence[Sequence[Demonstration]]],
    section: SftSection,
    run: Run,
    *,
    source: Source,
    stage: str = "sft",
) -> None:
    """Train on demonstrations until the section's steps or epochs are done, or its seconds spent.

    Args:
        policy: any family.
        demonstrations: of each task, in the order of the source's examples, and of each example,
            turn by turn.
        section: the recipe's, or that of the tiny model's pretraining.
        run: where records and checkpoints go.
        source: deals a batch to its tasks, as it deals a step of RL.
        stage: base or sft.

    Raises:
        DataError: a task has no demonstrations.
        TrainingStopped: the loss or the gradient is not finite, or a check says so.
    """
    if not all(demonstrations.values()):
        raise DataError("there is nothing to train on: the training split is empty")
    seed = run.recipe.seed
    shown = [one for examples in demonstrations.values() for turns in examples for one in turns]
    per_epoch = math.ceil(
        (len(shown) if len(demonstrations) == 1 else source.size) / section.batch_size
    )
    total = section.steps or max(1, round((section.epochs or 0) * per_epoch))
    optimiser = Optimiser(policy.trainable(), section.optimiser, total, RATES[stage])
    truncated = sum(one.truncated for one in shown)
    if truncated:
        run.event(
            "truncated", f"{truncated} of {len(shown)} demonstrations were cut to the context"
        )
    microbatches = Microbatches(optimiser, policy, run, stage)
    progress = Stage(run, stage, optimiser, section.seconds)
    batches: list[list[int]] = []
    epoch = -1
    for step in progress.steps():
        began, clock, rate = time.perf_counter(), time.process_time(), optimiser.learning_rate(step)
        begin_peak(microbatches.device)
        if len(demonstrations) > 1:
            dealt = source.deal(section.batch_size, step, stage, seed)
            batch = [
                one
                for name, indices in dealt.items()
                for index in indices
                for one in demonstrations[name][index]
            ]
            # a micro-batch of equally long ones pads little
            batch.sort(key=lambda demonstration: len(demonstration.tokens))
        else:
            if step // per_epoch != epoch:
                epoch = step // per_epoch
                batches = epoch_batches(
                    shown, section.batch_size, generator(seed, stage, "order", epoch)
                )
            batch = [shown[index] for index in batches[step % per_epoch]]
        seed_of_step = derive(seed, stage, "noise", step)
        cut, work = (
            partial(cut_microbatches, batch),
            partial(_backward, policy, helpers=microbatches.helpers, seed=seed_of_step),
        )
        loss = microbatches.run_fitting(cut, work, microbatches.max_tokens(cut, work, section))
        guards.check_finite(loss, "loss", step, optimiser.rate_key)
        norm = optimiser.step(step)
        progress.spend(spent := time.process_time() - clock)
        progress.record(
            step + 1,
            {
                "train/loss": loss,
                "train/grad_norm": norm,
                "train/learning_rate": rate,
                "train/epoch": (step + 1) / per_epoch,
                **source.epochs(section.batch_size, step + 1, stage, seed),
                "train/tokens": sum(len(demonstration.tokens) for demonstration in batch),
                "train/frac_truncated": truncated / len(shown),
            },
        )
        beside = {"cpu/step": spent, "memory/peak_gb": read_peak(microbatches.device) / 1e9}
        run.timings(stage, step + 1, {"time/step": time.perf_counter() - began} | beside)


def demonstrate(
    policy: Policy, task: Task, example: Example, section: SftSection, seed: int
) -> list[Demonstration]:
    """What is shown of an example: its demonstration and, where the episode then asks again, the
    gold answer to that.

    Raises:
        DataError: a turn exceeds the context.
    """
    own = derive(seed, "demonstration", example.id)
    chats = task.demonstrations(example, own)
    shown = []
    for chat in _episode_chats(task, example, own) if chats is None else chats:
        try:
            shown.append(policy.demonstrate(chat, allow_truncation=section.allow_truncation))
        except DataError as error:
            raise DataError(f"example {example.id}: {error.cause}", error.fix) from error
    return shown


def _episode_chats(task: Task, example: Example, seed: int) -> Iterator[list[Message]]:
    """The chats of an episode, with the demonstration first and the gold answer to whatever is
    asked after it."""
    answer = task.demonstration(example, seed)
    episode = episode_of(task, example)
    for left in reversed(range(task.turns)):
        asked = episode.ask()
        if asked is None:
            break
        yield [*asked, {"role": "assistant", "content": answer}]
        if left:
            episode.tell(answer)
            answer = gold_of(example)


def epoch_batches(
    demonstrations: Sequence[Demonstration], batch_size: int, rng: np.random.Generator
) -> list[list[int]]:
    """Indices of each batch of one epoch: every demonstration once, neighbours in length
    together."""
    order = rng.permutation(len(demonstrations))
    lengths = np.array([len(demonstration.tokens) for demonstration in demonstrations])
    batches: list[list[int]] = []
    for start in range(0, len(order), batch_size * WINDOW):
        window = order[start : start + batch_size * WINDOW]
        window = window[np.argsort(lengths[window], kind="stable")]
        batches += [
            window[at : at + batch_size].tolist() for at in range(0, len(window), batch_size)
        ]
    # The short batch at an epoch's end stays the last one, so that a step's place in the epoch is
    # its number.
    last = [batches.pop()] if len(batches[-1]) < batch_size else []
    return [batches[index] for index in rng.permutation(len(batches))] + last


def _backward(
    policy: Policy,
    parts: Sequence[Sequence[Demonstration]],
    seed: int,
    helpers: Helpers | None = None,
) -> float:
    """Mean loss [nats a target] of a batch that is cut into parts, its gradient left in the
    weights."""
    targets = sum(demonstration.num_targets for part in parts for demonstration in part)
    dealt = iter(noises(sum(map(len, parts)), seed))  # of the whole batch, however it is cut
    given = [(part, list(islice(dealt, len(part)))) for part in parts]
    return sum(shared_out(helpers, policy, given, partial(_add_up, targets)))


def _add_up(
    targets: int, parts: Sequence[tuple[Sequence[Demonstration], Sequence[Noise]]], policy: Policy
) -> float:
    """The share of the mean loss that some parts have, with the noise that was dealt to each."""
    total = 0.0
    for part, noise in parts:
        loss = policy.supervised_loss(part, noise) / targets
        loss.backward()
        total += float(loss.detach())
    return total


def cut_microbatches(
    batch: Sequence[Demonstration], tokens_per_microbatch: int
) -> list[list[Demonstration]]:
    """Cut a batch into rectangles of at most `tokens_per_microbatch` tokens, at least one sequence
    each."""
    parts: list[list[Demonstration]] = []
    longest = 0
    for demonstration in batch:
        longest = max(longest, len(demonstration.tokens))
        if parts and (len(parts[-1]) + 1) * longest <= tokens_per_microbatch:
            parts[-1].append(demonstration)
        else:
            parts.append([demonstration])
            longest = len(demonstration.tokens)
    return parts
