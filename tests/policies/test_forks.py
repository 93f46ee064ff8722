"""Answers that are drawn by forked processes are those that one process draws, and no process is
left."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from plumbline.api import sample_trajectories
from plumbline.errors import EngineError, ModelError
from plumbline.policies import forks
from plumbline.policies.pretrained import policy as pretrained
from tests.policies.families import CHATS, SAMPLINGS, drawn, opened


@pytest.fixture(autouse=True)
def two_processes(monkeypatch):
    """Any answer is worth a fork; the processes that were started are kept."""
    started, fork = [], os.fork

    def counted():
        if child := fork():
            started.append(child)
        return child

    monkeypatch.setattr(pretrained, "WIDE", 0)
    monkeypatch.setattr(pretrained, "FORKED", 1)
    monkeypatch.setattr(os, "fork", counted)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield started
    torch.set_num_threads(before)


def alive(process):
    return Path(f"/proc/{process}").exists()


@pytest.mark.parametrize("family", SAMPLINGS)
def test_every_family_draws_the_same(family_folders, family, two_processes):
    policy = opened(family, family_folders[family])
    spent = forks.processor_seconds() - time.process_time()
    shared = drawn(policy)
    assert len(two_processes) == 2
    assert not any(map(alive, two_processes)), "no process is left"
    assert forks.processor_seconds() - time.process_time() > spent, "their time is counted"
    torch.set_num_threads(1)
    alone = drawn(policy)
    assert len(two_processes) == 2, "one thread starts none"
    for mine, theirs in zip(shared, alone, strict=True):
        assert mine.text == theirs.text
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=2e-5)
        assert mine.version == theirs.version


def test_nothing_forks_where_another_thread_may_multiply(family_folders, two_processes):
    policy, found = opened("autoregressive", family_folders["autoregressive"]), []
    thread = threading.Thread(target=lambda: found.append(drawn(policy)))
    thread.start()
    thread.join()
    assert len(found[0]) == 12
    assert two_processes == []


def dying(policy, monkeypatch, how):
    """The first process that draws dies so; those that are started later live."""
    honest, parent = policy.draw, os.getpid()

    def draw(requests):
        if os.getpid() != parent and len(requests) > 2:
            os.kill(os.getpid(), how)
        yield from honest(requests)

    monkeypatch.setattr(policy, "draw", draw)


def test_a_process_that_the_system_took_is_a_full_memory(family_folders, monkeypatch):
    policy, said = opened("autoregressive", family_folders["autoregressive"]), []
    expected = [each.text for each in drawn(policy)]
    policy.say = lambda kind, message: said.append(kind)
    dying(policy, monkeypatch, signal.SIGKILL)
    assert [each.text for each in drawn(policy)] == expected
    assert set(said) == {"out_of_memory"}
    assert policy.rows_at_once < 12


def test_any_other_death_and_any_error_are_told(family_folders, monkeypatch, two_processes):
    policy = opened("autoregressive", family_folders["autoregressive"])
    with monkeypatch.context() as patch:
        dying(policy, patch, signal.SIGSEGV)
        with pytest.raises(EngineError, match=r"(?s)-11.*model\.threads: 1"):
            drawn(policy)
    with torch.no_grad():
        next(iter(policy.trainable().values())).fill_(float("nan"))
    with pytest.raises(ModelError, match="not finite"):
        drawn(policy)
    assert not any(map(alive, two_processes))


def test_who_stops_asking_leaves_no_process(family_folders, two_processes):
    policy = opened("autoregressive", family_folders["autoregressive"])
    works = [lambda: iter([1]), lambda: (time.sleep(60), [2])[1]]
    coming = forks.run_forked(works, 2)
    assert next(coming) == 1
    assert any(map(alive, two_processes))
    coming.close()
    assert not any(map(alive, two_processes))
    assert len(sample_trajectories(policy, CHATS, 1, SAMPLINGS["autoregressive"], 0)) == 4


def test_there_may_be_more_pieces_than_a_pipe_has_room_for(two_processes):
    """Each is done once; those that yield nothing cost a pass through the pipe alone."""
    count, last = 20_000, [19_998, 19_999]

    def ended(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(120)  # a process that waits for room would wait for ever
    try:
        found = list(forks.run_forked([lambda n=n: [n] * (n in last) for n in range(count)], 2))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert sorted(found) == last
    assert not any(map(alive, two_processes))


def test_a_process_dies_with_its_parent(tmp_path):
    born = tmp_path / "born"

    def sleep():
        born.write_text(str(os.getpid()))
        time.sleep(60)
        return []

    if (parent := os.fork()) == 0:
        try:
            list(forks.run_forked([sleep, sleep], 1))
        finally:
            os._exit(1)
    while not (born.is_file() and born.read_text()):
        time.sleep(0.01)
    child = int(born.read_text())
    assert alive(child)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    while alive(child):
        time.sleep(0.01)


def test_an_interrupt_within_a_fork_is_not_lost():
    """Python swallows what is raised in the hooks of a fork, and what a handler raises there."""
    strikes = [True]

    def strike():
        if strikes and strikes.pop():
            os.kill(os.getpid(), signal.SIGINT)

    os.register_at_fork(after_in_parent=strike)
    with pytest.raises(KeyboardInterrupt):
        list(forks.run_forked([lambda: [1], lambda: [2]], 2))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert sorted(forks.run_forked([lambda: [1], lambda: [2]], 2)) == [1, 2]
