"""What is drawn together, what is dropped, and what one request can do to others."""

import asyncio
import threading

import numpy as np
import pytest

from plumbline.errors import DataError, EngineError
from plumbline.records import Request, Sampling, Trajectory, Transition
from plumbline.serve.backend import AnswerRequest
from plumbline.serve.batched import BatchedBackend


class Slow:
    """Draws when it is let; an answer is its key. The distribution of temperature 2 breaks."""

    family, context = "slow", 100

    def __init__(self):
        self.batches, self.go = [], threading.Semaphore(0)

    def prompt_length(self, messages):
        return len(messages[0]["content"])

    def sample(self, requests):
        self.batches.append([request.key for request in requests])
        assert len({request.key for request in requests}) == len(requests)
        for request in requests:
            self.go.acquire()
            if request.sampling.temperature == 2:
                raise RuntimeError("no memory")
            step = Transition(
                positions=np.arange(1), tokens=np.arange(1), logprobs=np.zeros(1, dtype=np.float32)
            )
            yield request, Trajectory(
                prompt=np.zeros(1, dtype=np.int64), transitions=(step,), text=str(request.key),
                sampling=request.sampling, finish="stop",
            )  # fmt: skip


def asked(key, temperature=1.0, text="x"):
    sampling = Sampling(temperature=temperature, max_tokens=5)
    return AnswerRequest(request=Request((key,), [{"role": "user", "content": text}], sampling))


async def text_of(served, one):
    return "".join([piece.text async for piece in served.answer(one)])


def with_slow(work):
    async def run():
        sampler = Slow()
        served = BatchedBackend("slow", sampler, Sampling(), at_once=3)
        try:
            return await asyncio.wait_for(work(served, sampler), 60)
        finally:
            for _ in range(20):
                sampler.go.release()
            await served.close()

    return asyncio.run(run())


async def begun(sampler, count):
    while len(sampler.batches) < count:
        await asyncio.sleep(0.005)


def test_what_waits_is_drawn_together_by_distribution_and_no_key_twice():
    async def work(served, sampler):
        first = asyncio.create_task(text_of(served, asked(0)))
        await begun(sampler, 1)
        rest = [asyncio.create_task(text_of(served, asked(key, temperature))) for key, temperature in
                [(1, 1.0), (1, 1.0), (2, 0.5), (3, 1.0), (4, 1.0), (5, 1.0)]]  # fmt: skip
        while served.waiting < 6:
            await asyncio.sleep(0.005)
        for _ in range(7):
            sampler.go.release()
        return [await first, *await asyncio.gather(*rest)], sampler.batches

    texts, batches = with_slow(work)
    assert texts == ["(0,)", "(1,)", "(1,)", "(2,)", "(3,)", "(4,)", "(5,)"]
    assert batches == [[(0,)], [(1,), (3,), (4,)], [(1,), (5,)], [(2,)]]


def test_who_has_gone_is_not_drawn():
    async def work(served, sampler):
        first = asyncio.create_task(text_of(served, asked(0)))
        await begun(sampler, 1)
        gone, stays = (asyncio.create_task(text_of(served, asked(key))) for key in (1, 2))
        while served.waiting < 2:
            await asyncio.sleep(0.005)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        for _ in range(2):
            sampler.go.release()
        return [await first, await stays], sampler.batches

    assert with_slow(work) == (["(0,)", "(2,)"], [[(0,)], [(2,)]])


def test_what_breaks_in_one_distribution_breaks_no_other_and_the_server_goes_on():
    async def work(served, sampler):
        for _ in range(10):
            sampler.go.release()
        found = await asyncio.gather(
            *(
                text_of(served, asked(key, temperature))
                for key, temperature in [(1, 2), (2, 1), (3, 2), (4, 1)]
            ),
            return_exceptions=True,
        )
        return found, await text_of(served, asked(9))

    found, later = with_slow(work)
    assert [type(one) for one in found] == [RuntimeError, str, RuntimeError, str]
    assert later == "(9,)"


def test_a_chat_that_does_not_fit_fails_alone():
    async def work(served, sampler):
        for _ in range(10):
            sampler.go.release()
        return await asyncio.gather(
            text_of(served, asked(1, text="x" * 96)),
            text_of(served, asked(2)),
            return_exceptions=True,
        )

    long, short = with_slow(work)
    assert isinstance(long, DataError)
    assert short == "(2,)"


def test_closing_answers_those_who_wait():
    async def work(served, sampler):
        tasks = [asyncio.create_task(text_of(served, asked(key))) for key in (0, 1)]
        await begun(sampler, 1)
        tasks.append(asyncio.create_task(text_of(served, asked(2))))
        while not served.waiting:
            await asyncio.sleep(0.005)
        closing = asyncio.create_task(served.close())
        await asyncio.sleep(0.05)
        sampler.go.release()
        await closing
        with pytest.raises(EngineError, match="is being closed"):
            await text_of(served, asked(3))
        return await asyncio.gather(*tasks, return_exceptions=True)

    drawn, *others = with_slow(work)
    assert drawn == "(0,)"
    assert [type(one) for one in others] == [EngineError, EngineError]


def test_closing_answers_who_was_still_being_looked_at():
    async def work(served, sampler):
        looking, look = threading.Event(), threading.Event()
        length = sampler.prompt_length
        sampler.prompt_length = lambda messages: (looking.set(), look.wait(60), length(messages))[2]
        task = asyncio.create_task(text_of(served, asked(0)))
        await asyncio.to_thread(looking.wait, 60)
        await served.close()
        look.set()
        return await asyncio.gather(task, return_exceptions=True)

    (error,) = with_slow(work)
    assert isinstance(error, EngineError)
