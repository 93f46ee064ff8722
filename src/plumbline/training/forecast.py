"""How long a run will take, from a measured pass of each kind, said before it begins.

A causal model's time is in three kinds of work: a token of a pass with gradient, a decoding step of
all rows, and reading prompts. Each is measured once on the run's own prompts and multiplied by how
many the recipe asks for.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import torch

from plumbline.policies.memory import is_full, release_after_error
from plumbline.policies.policy import Demonstration, Policy
from plumbline.policies.sampling_distribution import noises
from plumbline.recipe import Recipe
from plumbline.records import Request
from plumbline.rollouts.collect import check_prompts
from plumbline.runs.run import Run
from plumbline.tasks.source import Source
from plumbline.tasks.task import gold_of
from plumbline.training.microbatches import Threads, shared_out

FEW, MORE = 2, 10
"""Tokens of the two measured answers: their difference is decoding, what is left of the first is
reading."""
SHOWN = 4
"""Demonstrations of the measured passes, one for each thread."""
SAID = 60
"""Seconds from which a run says beforehand how long it will take."""


def foretell(run: Run, policy: Policy, source: Source, answers: int) -> None:
    """Say how long a run will take on this machine; nothing where there are no gold answers, or
    none that fit.

    Args:
        run: is told.
        policy: see `forecast`, like `source` and `answers`.
        source: the training examples.
        answers: that the evaluations of one stage ask for.

    Raises:
        DataError: a prompt of RL does not fit into the context.
    """
    recipe = run.recipe
    for examples in source.examples.values():
        if recipe.rl is not None:
            check_prompts(policy, examples, recipe.sampling)
        elif any(
            policy.prompt_length(each.messages) + recipe.sampling.max_tokens > policy.context
            for each in examples
        ):
            return
        if any(example.gold is None for example in examples):
            return
    run.working("measuring a step", 0, 1)
    try:
        seconds = forecast(policy, source, recipe, answers)
    except RuntimeError as error:  # the steps themselves are cut to what fits (`training.passes`)
        if not is_full(error):
            raise
        release_after_error(error)
        run.event(
            "note",
            "how long the run will take is not known: measuring a step took more memory than there "
            "is",
        )
        return
    run.working("measuring a step", 1, 1)
    if (total := sum(seconds.values())) >= SAID:
        parts = ", ".join(f"{name} {spent / 60:.1f}" for name, spent in seconds.items())
        run.event(
            "forecast",
            f"about {total / 60:.0f} minutes on this machine, by a measured step of each: {parts}",
        )


def forecast(policy: Policy, source: Source, recipe: Recipe, answers: int) -> Mapping[str, float]:
    """Seconds of each kind of work of a run (`sft`, `rl`, `evaluations`), as one pass of each says.

    Answers are taken to be as long as the gold ones, and before any training as long as they may
    be.

    Args:
        policy: a causal model; its gradients are cleared.
        source: the training examples, with gold answers.
        recipe: of the run.
        answers: that the evaluations of one stage ask for.
    """
    rows = (8, 8) if recipe.rl is None else (recipe.rl.prompts_per_step, recipe.rl.group_size)
    examples = [
        example
        for found in source.examples.values()
        for example in islice(found, max(rows[0], SHOWN))
    ]
    shown = [
        policy.demonstrate(
            [*each.messages, {"role": "assistant", "content": gold_of(each)}], allow_truncation=True
        )
        for each in examples
    ]
    length = sum(one.num_targets for one in shown) / len(shown)
    prompt = sum(len(one.tokens) for one in shown) / len(shown) - length

    def drawing(tokens: int) -> float:
        sampling = replace(recipe.sampling, max_tokens=tokens)
        keys = [(each, copy) for each in examples[: rows[0]] for copy in range(rows[1])]
        began = time.perf_counter()
        for _ in policy.sample(
            [Request(("forecast", each.id, copy), each.messages, sampling) for each, copy in keys]
        ):
            pass
        return time.perf_counter() - began

    threads = Threads()
    threads.follow(policy)

    def learn(parts: Sequence[Sequence[Demonstration]], learner: Policy) -> None:
        for part in parts:
            learner.supervised_loss(part, noises(len(part), 0)).backward()

    def learning() -> float:
        began, shares = time.perf_counter(), min(SHOWN, len(shown), 1 + threads.count)
        shared_out(threads, policy, [shown[at:SHOWN:shares] for at in range(shares)], learn)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - began

    learning()  # the first pass also makes what later ones find
    a_token = learning() / sum(len(one.tokens) for one in shown[:SHOWN])
    for weight in policy.trainable().values():
        weight.grad = None
    reading = drawing(FEW)
    a_step = max(0.0, drawing(MORE) - reading) / (MORE - FEW)
    later = (recipe.sft is not None) + (recipe.rl is not None)
    written = recipe.sampling.max_tokens + later * length
    seconds = {
        "evaluations": answers
        * (a_step * written / math.prod(rows) + (1 + later) * a_token * prompt / 3)
    }
    if (sft := recipe.sft) is not None:
        steps = sft.steps or (sft.epochs or 0) * source.size / sft.batch_size
        seconds["sft"] = min(
            steps * sft.batch_size * (prompt + length) * a_token, sft.seconds or math.inf
        )
    if (rl := recipe.rl) is not None:
        learnt = rl.prompts_per_step * (prompt + rl.group_size * length) * a_token * rl.inner_epochs
        seconds["rl"] = min(rl.steps * (reading + a_step * length + learnt), rl.seconds or math.inf)
    return seconds
