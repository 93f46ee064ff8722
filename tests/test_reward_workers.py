"""Completions are judged while the model samples; verdicts are the same as afterwards."""

import threading
import time

import numpy as np
import pytest

from plumbline.errors import RewardError, TrainingStopped
from plumbline.evaluation.evaluate import evaluate_completions
from plumbline.records import Outcome, Sampling, Score, Trajectory, Transition
from plumbline.rollouts.collect import collect
from plumbline.rollouts.reward_workers import RewardWorkers, check_failures, judge
from tests.toy import RUBRIC, ToyTask

SAMPLING = Sampling(max_tokens=4)


def trajectory(text):
    step = Transition(positions=np.arange(1), tokens=np.arange(1), logprobs=np.zeros(1, np.float32))
    return Trajectory(
        prompt=np.zeros(0, np.int64),
        transitions=(step,),
        text=text,
        sampling=SAMPLING,
        finish="stop",
    )


class Slow(ToyTask):
    """Judged by two threads, in groups; `begun` is set when a verdict is under way."""

    judges = 2

    def __init__(self):
        super().__init__({"size": 3})
        self.begun, self.calls = threading.Event(), []

    def judge(self, example, completion):
        self.begun.set()
        self.calls.append((example.id, threading.current_thread().name))
        if completion == "breaks":
            raise RuntimeError("no verdict")
        return Outcome(how="strict"), super().judge(example, completion)[1]


class Engine:
    """Yields texts as they end, and the last of each prompt only when one of the others is being
    judged."""

    def __init__(self, task, texts):
        self.task, self.texts, self.overlapped = task, texts, False

    def sample(self, requests):
        last = max(request.key[-2] for request in requests)
        for request in sorted(requests, key=lambda request: (request.key[-2] == last, request.key)):
            if request.key[-2] == last:
                self.overlapped = self.task.begun.wait(60)
            example, copy, _ = request.key[-3:]
            yield request, trajectory(self.texts[example][copy])


def test_judging_goes_on_while_the_model_samples():
    task = Slow()
    texts = {
        "train-0": ["a", "ab", "b"],
        "train-1": ["aa", "breaks", ""],
        "train-2": ["b", "b", "a"],
    }
    engine = Engine(task, texts)
    groups = collect(engine, task, task.examples("train"), copies=3, sampling=SAMPLING, key=(0,))
    assert engine.overlapped
    for group in groups:
        for rollout, text in zip(group.rollouts, texts[group.example.id], strict=True):
            assert (rollout.text, rollout.verdict) == (text, judge(task, group.example, text))
    assert groups[1].rollouts[1].verdict.failure.cause == "RuntimeError"
    assert all(name.startswith("judge-") for _, name in task.calls[:9])


def test_an_example_that_comes_twice_has_answers_of_its_own_each_time():
    """A step that an epoch ends in may hold an example twice."""
    task = ToyTask({"size": 1})
    (example,) = task.examples("train")
    texts = {"train-0": ["a", "ab", "b", "bb"]}
    task.begun = threading.Event()
    task.begun.set()
    groups = collect(
        Engine(task, texts), task, [example, example], copies=2, sampling=SAMPLING, key=(0,)
    )
    assert [[one.text for one in group.rollouts] for group in groups] == [["a", "ab"], ["b", "bb"]]


class Grouped(Slow):
    """Has a call for groups, which breaks on one text."""

    judges = 1

    def judge_group(self, example, completions):
        self.calls.append((example.id, len(completions)))
        if "poison" in completions:
            raise RuntimeError("the group is lost")
        return [
            (Outcome(how="together"), RUBRIC.score({"letters": 1.0, "any": 1.0}))
            for _ in completions
        ]


def test_what_waits_is_judged_together_and_one_bad_text_takes_no_other_along():
    task = Grouped()
    workers = RewardWorkers(task, task.examples("train"))
    for copy, text in enumerate(["a", "b", "aa"]):
        workers.submit(0, copy, text)
    for copy, text in enumerate(["a", "poison"]):
        workers.submit(1, copy, text)
    with workers:  # its thread begins now
        pass
    assert task.calls[:2] == [("train-0", 3), ("train-1", 2)]
    assert workers.result(0, 2)[0].how == "together"
    assert workers.result(1, 0)[0].how == "strict"
    assert isinstance(workers.result(1, 0)[1], Score)


class Held(Slow):
    """Has no verdict before `released` is set."""

    judges = 1
    released = threading.Event()

    def judge(self, example, completion):
        found = super().judge(example, completion)
        assert self.released.wait(60)
        return found


def interrupted(task):
    with RewardWorkers(task, task.examples("train") * 40) as workers:
        for prompt in range(100):
            workers.submit(prompt, 0, "a")
        assert task.begun.wait(60)
        raise KeyboardInterrupt


def test_an_interrupt_waits_for_the_verdict_in_progress_and_for_none_that_nobody_wants(monkeypatch):
    task, join = Held(), threading.Thread.join
    monkeypatch.setattr(
        threading.Thread, "join", lambda thread, *rest: task.released.set() or join(thread, *rest)
    )
    with pytest.raises(KeyboardInterrupt):
        interrupted(task)
    assert len(task.calls) == 1


def test_a_task_without_threads_is_judged_by_one_at_a_time():
    """Also where two ask at once: an evaluation, and an async sampler."""

    class Watching(ToyTask):
        inside, most = 0, 0

        def judge(self, example, completion):
            self.inside += 1
            self.most = max(self.most, self.inside)
            time.sleep(0.01)
            self.inside -= 1
            return super().judge(example, completion)

    task = Watching({})

    def ask():
        with RewardWorkers(task, task.examples("val")) as workers:
            for copy in range(5):
                workers.submit(0, copy, "a")

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert task.most == 1


class Outside(Slow):
    """Its scoring function returns what is no reward."""

    def __init__(self, judges):
        super().__init__()
        self.judges = judges

    def judge(self, example, completion):
        raise RewardError(
            "what right says is 2, which is not in [0, 1]",
            "set task.options.range: {right: [0, 2]}",
        )


@pytest.mark.parametrize("judges", [0, 2])
def test_a_number_outside_its_range_is_no_failure_of_an_answer_but_stops_everything(judges):
    task = Outside(judges)
    with pytest.raises(RewardError, match=r"\[0, 1\]"):
        evaluate_completions(
            task, task.examples("train"), ["a", "b", "c"], source="x", split="train"
        )
    task.begun.set()
    texts = {f"train-{n}": ["a", "b"] for n in range(3)}
    with pytest.raises(RewardError, match=r"\[0, 1\]"):
        collect(
            Engine(task, texts), task, task.examples("train"), copies=2, sampling=SAMPLING, key=(0,)
        )


@pytest.mark.parametrize(
    ("failed", "total"), [(1, 1), (2, 2), (3, 3), (3, 4), (3, 8), (4, 4), (7, 32)]
)
def test_a_verifier_that_fails_too_often_stops_the_run_and_a_few_failed_verdicts_do_not(
    failed, total
):
    for few, of in [(0, 0), (1, 4), (2, 4), (2, 8), (6, 32)]:
        check_failures(["TimeoutError: browser"] * few, of)
    with pytest.raises(TrainingStopped, match=rf"{failed} of {total} .*TimeoutError: browser"):
        check_failures(["TimeoutError: browser"] * failed, total)
