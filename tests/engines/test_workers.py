"""Workers give what one process gives, and lose nothing when they, their machines or their cluster
die."""

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from plumbline.engines import workers
from plumbline.errors import EngineError
from plumbline.policies import open_policy
from plumbline.recipe import parse_recipe
from plumbline.records import Request, Sampling
from plumbline.rollouts.collect import collect
from plumbline.rollouts.reward_workers import RewardWorkers, judge
from plumbline.tasks import open_task
from plumbline.tasks.task import episode_of
from plumbline.training.pipeline import run_recipe
from tests.engines.test_runs_with_workers import RECIPE
from tests.test_never_lost import fingerprint
from tests.toy import ToyTask
from tests.training.toy_runs import toy_recipe

ray = pytest.importorskip("ray", reason="ray is not installed (pip install '.[ray]')")

ABILITIES = (
    "turns",
    "headline",
    "replayable",
    "built",
    "mistakes",
    "replay",
    "replay_episode",
    "render_pages",
    "canonicalise_answer",
)
ABILITIES += (
    "users_task",
    "find_label",
    "sizes",
    "sketch",
    "explain_foreign_ids",
    "demonstration",
    "demonstrations",
)
TOY = ToyTask({})
FAULTY = "tests.engines.faults:open_faulty"


@pytest.fixture(scope="module")
def cluster():
    """A head with this process on it, and three workers at once."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    head = {"num_cpus": 3, "node_ip_address": "127.0.0.2", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def spread_over(folder, name=FAULTY, count=2, timeout=30.0, **options):
    """A task, and the same with workers for its verdicts, which somebody has to end."""
    from plumbline.engines.workers import spread_verdicts

    scale = {"verdicts": count, "timeout": timeout}
    recipe = parse_recipe(
        {
            "name": "spread",
            "model": {"name": "nowhere"},
            "task": {"name": name, "options": options},
            "scale": scale,
        }
    )
    task = open_task(name, options, folder / "data")
    return task, spread_verdicts(recipe, task, "", SimpleNamespace(folder=folder))


@pytest.fixture
def spread(cluster, tmp_path):
    """Opens a task with workers of its own; they are ended after the test."""
    opened = []

    def spread(*what, **options):
        opened.append(spread_over(tmp_path, *what, **options))
        return opened[-1]

    yield spread
    for _, task in opened:
        task.pool.close()


@pytest.fixture(scope="class")
def pair(cluster, tmp_path_factory):
    """A task of two turns, and the same with two workers, which no test may end: to start one takes
    a second."""
    own, far = spread_over(tmp_path_factory.mktemp("pair"), turns=2)
    yield own, far
    far.pool.close()


def pids(pool) -> list[int]:
    """Of the workers that are there."""
    there = ray.wait(list(pool._workers.values()), num_returns=len(pool._workers), timeout=0)[0]
    workers = [worker for worker, promised in pool._workers.items() if promised in there]
    return [ray.get(worker.__ray_call__.remote(lambda self: os.getpid())) for worker in workers]


@pytest.mark.parametrize("name", ["commerce", "forms", "jsonl", "tests.toy:open_toy", FAULTY])
def test_a_spread_task_has_what_the_task_has(spread, tmp_path, name):
    options = {"job": "sql_qa"} if name == "commerce" else {}
    if name == "jsonl":
        (tmp_path / "train.jsonl").write_text(
            "".join(f'{{"prompt": "{row}"}}\n' for row in range(9))
        )
        options = {"train": str(tmp_path / "train.jsonl"), "score": "tests.engines.faults:letters"}
    own, far = spread(name, count=3, **options)
    for ability in ABILITIES:
        assert getattr(far, ability) == getattr(own, ability), ability
    assert (far.name, far.splits, far.rubric, far.form) == (
        own.name,
        own.splits,
        own.rubric,
        own.form,
    )
    assert far.baselines.keys() == own.baselines.keys()
    assert far.judges == 3


class TestWorkersThatLive:
    def test_verdicts_are_those_of_one_process(self, pair):
        own, far = pair
        examples = own.examples("val")
        texts = ["aaa", "bab", "", "breaks"]
        with RewardWorkers(far, examples) as judges:
            for prompt in range(len(examples)):
                for copy, text in enumerate(texts):
                    judges.submit(prompt, copy, text)
        for prompt, example in enumerate(examples):
            for copy, text in enumerate(texts):
                assert judges.result(prompt, copy) == judge(own, example, text)
        assert judges.result(0, 3)[2].cause == "TwoPartsError"
        assert judges.result(0, 3)[2].detail.split(" and ") == ["the page", "its server"]

    def test_an_episode_stays_where_it_lives(self, pair):
        own, far = pair
        first = episode_of(far, own.examples("val")[0])
        first.tell("um")
        lives = first._lives
        for _ in range(3):
            episode_of(far, own.examples("val")[1]).tell("outro")
        first.tell("dois")
        assert first._lives == lives

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
    def test_a_full_disk_fails_the_verdicts_that_write_and_ends_no_worker(self, pair):
        own, far = pair
        example = own.examples("val")[0]
        far.judge(example, "aa")
        before = set(far.pool._workers)
        with RewardWorkers(far, [example] * 3) as judges:
            for prompt, text in enumerate(("aa", "full", "ab")):
                judges.submit(prompt, 0, text)
        full = judges.result(1, 0)[2]
        assert (full.cause, "No space left" in full.detail) == ("OSError", True)
        for prompt, text in ((0, "aa"), (2, "ab")):
            assert judges.result(prompt, 0) == judge(own, example, text)
        far.judge(example, "aa")
        assert set(far.pool._workers) == before


def test_an_episode_goes_on_in_another_worker_where_its_own_died(spread):
    own, far = spread(turns=2, count=1)
    example = own.examples("val")[0]
    here, there = episode_of(own, example), episode_of(far, example)
    lived = set()
    for text in ("um", "dois"):
        assert there.ask() == here.ask()
        here.tell(text)
        there.tell(text)
        assert there.result() == here.result()
        lived.add(there._lives)
        for pid in pids(far.pool):
            os.kill(pid, signal.SIGKILL)
    assert there.ask() is None
    assert len(lived) == 2


def test_what_hangs_and_what_kills_are_failures_of_their_own(spread, tmp_path, monkeypatch):
    monkeypatch.setitem(workers.MOST, "ChildProcessError", 2)
    own, far = spread(timeout=1.5)
    example = own.examples("val")[0]
    texts = ["hangs", "dies", f"once {tmp_path / 'died'}", "aa"]
    with RewardWorkers(far, [example] * 4) as judges:
        for prompt, text in enumerate(texts):
            judges.submit(prompt, 0, text)
    hung, dead, once, fine = (judges.result(prompt, 0) for prompt in range(4))
    assert (hung[2].cause, dead[2].cause) == ("TimeoutError", "ChildProcessError")
    assert "scale.timeout" in hung[2].detail
    assert (once[2], fine[2]) == (None, None)
    assert fine[1] == own.judge(example, "aa")[1]


def test_a_worker_that_cannot_be_opened_says_why_at_once(spread):
    _, far = spread(count=1, opens_in=os.getpid())
    cause = (
        r"one of the workers for verdicts cannot be opened: .*DataError: there are no records here"
        r"\n  fix: copy them"
    )
    with pytest.raises(EngineError, match=cause), RewardWorkers(far, far.examples("val")) as judges:
        judges.submit(0, 0, "aa")


KILLS = 6


def test_random_kills_change_nothing(spread):
    """Workers are killed at random while they judge; every verdict is there, and each is what it
    would have been."""
    own, far = spread(count=2, wait=0.05, timeout=300.0)  # however busy the machine
    examples = own.examples("val")
    rng, done, kills = random.Random(5), threading.Event(), []

    def kill():
        while not done.is_set() and len(kills) < KILLS:
            time.sleep(rng.uniform(0.05, 0.2))
            workers = list(far.pool._workers)
            worker = rng.choice(workers) if workers else None
            if worker is not None and worker not in kills:
                ray.kill(worker)  # SIGKILL, as Ray does it: nothing is cleared up
                kills.append(worker)

    killer = threading.Thread(target=kill)
    killer.start()
    end, told = time.monotonic() + 300, 0
    with RewardWorkers(far, examples) as judges:
        while len(kills) < KILLS and time.monotonic() < end:
            for prompt in range(len(examples)):
                judges.submit(prompt, told, "a" * (told % 7) + "b" * prompt)
            told += 1
            judges.next_prompts()
    done.set()
    killer.join()
    assert len(kills) == KILLS
    for prompt, example in enumerate(examples):
        for copy in range(told):
            found = judges.result(prompt, copy)
            assert found == judge(TOY, example, "a" * (copy % 7) + "b" * prompt)


def verdicts(far, texts, act=None) -> None:
    """Judge texts of one example, and let `act` happen while every worker is at one."""
    example, end = far.examples("val")[0], time.monotonic() + 300
    with RewardWorkers(far, [example] * len(texts)) as judges:
        for prompt, text in enumerate(texts):
            judges.submit(prompt, 0, text)
        if act is not None:
            while len(far.pool._lent) < far.pool.count and time.monotonic() < end:
                time.sleep(0.01)
            act()
    assert [judges.result(prompt, 0)[2] for prompt in range(len(texts))] == [None] * len(texts)
    assert [judges.result(prompt, 0) for prompt in range(len(texts))] == [
        judge(TOY, example, text) for text in texts
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "limit"), [("killed", 30.0), ("stopped", 3.0)])
def test_a_node_that_dies_or_stalls_loses_no_verdict(cluster, spread, how, limit):
    """kill -9 of all processes of a node; or none of them moves any more (SIGSTOP): verdicts go
    elsewhere."""
    node = cluster.add_node(num_cpus=1, include_dashboard=False)
    _, far = spread(count=4, timeout=limit)
    while len(pids(far.pool)) < 4:
        verdicts(far, ["slow 0.1"] * 8)
    before = set(far.pool._workers)
    raylet = node.all_processes["raylet"][0].process.pid
    stopped = [raylet, *children(raylet)]
    number = signal.SIGKILL if how == "killed" else signal.SIGSTOP
    verdicts(far, [f"slow 0.{digit}" for digit in (4, 5, 6) * 6], lambda: tell(stopped, number))
    assert set(far.pool._workers) != before
    if how == "stopped":
        tell(stopped, signal.SIGCONT)
    cluster.remove_node(node, allow_graceful=False)


def children(pid: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True
    ).stdout
    return [int(one) for one in found.split()]


def tell(pids: list[int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)


# -- replicas of the model -------------------------------------------------------------------------


LONG = "Considere com atenção o que o cliente escreveu e responda apenas com o que foi pedido."
SAMPLING = Sampling(temperature=1.0, max_tokens=12)


def replicas(tiny_folder, opener, **scale):
    recipe = parse_recipe(
        {
            "name": "replicas",
            "model": {"name": str(tiny_folder), "rows_at_once": 4},
            "task": {"name": "tests.toy:open_toy"},
            "rl": {"steps": 1},
            "scale": scale,
        }
    )

    policy = open_policy(recipe.model, str(tiny_folder))
    events = []
    run = SimpleNamespace(event=lambda kind, message: events.append(message))
    return policy, opener(recipe, policy, str(tiny_folder), run), events


def kill_one(pool):
    worker = next(iter(pool._workers))
    ray.kill(worker)
    return worker


def requests_of(prompts=6, copies=3):
    asked = [
        [{"role": "user", "content": f"{LONG} {'nota ' * prompt}"}] for prompt in range(prompts)
    ]
    return [
        Request(("drawn", prompt, copy), asked[prompt], SAMPLING)
        for prompt in range(prompts)
        for copy in range(copies)
    ]


def bits(pairs):
    return {
        request.key: (
            trajectory.text,
            trajectory.version,
            trajectory.tokens.tolist(),
            trajectory.logprobs.tobytes(),
        )
        for request, trajectory in pairs
    }


def change(policy, seed):
    from tests.policies.families import move

    move(policy, seed=seed)


@pytest.mark.slow
def test_samplers_draw_to_the_bit_what_one_process_draws_also_where_they_die(cluster, tiny_folder):
    requests = requests_of()
    policy, samplers, events = replicas(tiny_folder, workers.Samplers, samplers=2)
    assert {shared for _, shared in policy.cut(requests)} != {0}, (
        "nothing is read once, so a chunk alone would do"
    )
    for version in (1, 2):
        change(policy, version)
        policy.publish(version)
        samplers.take(policy, version)
        alone = bits(policy.sample(requests))
        assert bits(samplers.sample(requests)) == alone
    dead = kill_one(samplers.pool)
    assert bits(samplers.sample(requests)) == alone
    assert dead not in samplers.pool._workers
    assert events == []
    assert bits(samplers.sample(requests[:3])) == bits(policy.sample(requests[:3]))
    assert "1 of 2 samplers" in events[0]
    for worker in list(samplers.pool._workers):
        ray.kill(worker)
    assert bits(samplers.sample(requests)) == alone, "who replaces one has its weights"
    samplers.close()


@pytest.mark.slow
def test_learners_add_up_the_gradient_of_one_process(cluster, tiny_folder):
    """With weights that change from step to step, and a replica that is killed; the metrics are the
    same, too."""
    policy, learners, _ = replicas(tiny_folder, workers.open_learners, learners=2)
    recipe = toy_recipe(tokens_per_microbatch=64, beta=0.05, max_gap=10.0)
    groups = make_weighted_groups(policy, recipe)
    policy.keep_reference()
    for step in range(2):
        change(policy, step)
        if step == 1:
            dead = kill_one(learners.pool)
        alone, figures = updated(policy, recipe, groups, None)
        shared, theirs = updated(policy, recipe, groups, learners)
        largest = max(float(gradient.abs().max()) for gradient in alone.values())
        assert shared.keys() == alone.keys()
        assert max(float((shared[name] - alone[name]).abs().max()) for name in alone) < 1e-6 * max(
            1.0, largest
        )
        for name in ("loss", "kl", "gap", "clip_fraction", "terms"):
            assert getattr(theirs, name) == pytest.approx(
                getattr(figures, name), rel=1e-5, abs=1e-7
            ), name
        for name in ("signal", "noise"):
            found, wanted = getattr(theirs.gradient, name), getattr(figures.gradient, name)
            assert found == pytest.approx(wanted, rel=1e-3), name
    assert dead not in learners.pool._workers
    learners.close()


def updated(policy, recipe, groups, helpers):
    """The gradients of an update that is then not done, and what it says of itself."""
    from plumbline.training.microbatches import Microbatches
    from plumbline.training.optimiser import Optimiser
    from plumbline.training.update import update_policy

    optimiser, kept = Optimiser(policy.trainable(), recipe.rl.optimiser, 1), {}
    optimiser.step = lambda step: kept.update(gradients(policy)) or 1.0
    update = update_policy(
        policy, optimiser, groups, recipe, 0, Microbatches(optimiser, helpers=helpers)
    )
    optimiser.clear()
    return kept, update


def gradients(policy):
    return {
        name: weight.grad.clone()
        for name, weight in policy.trainable().items()
        if weight.grad is not None
    }


def make_weighted_groups(policy, recipe):
    """Four groups of the toy task, of which each rollout has its weight."""
    from plumbline.training.rl import weigh_rollouts

    examples = TOY.examples("train")[:4]
    groups = collect(policy, TOY, examples, copies=4, sampling=recipe.sampling, key=("credited",))
    return weigh_rollouts(groups, recipe.rl.algorithm)


def test_a_run_with_workers_is_the_run_without(cluster, tiny_folder, tmp_path):
    values = {
        **RECIPE,
        "model": {"name": str(tiny_folder), "threads": 1},
        "rl": {**RECIPE["rl"], "steps": 2},
    }
    values["evaluation"] = {**RECIPE["evaluation"], "every": 1}
    run_recipe(parse_recipe(values), tmp_path / "alone")
    run_recipe(
        parse_recipe({**values, "scale": {"verdicts": 2, "samplers": 1}}), tmp_path / "spread"
    )
    assert fingerprint(tmp_path / "spread") == fingerprint(tmp_path / "alone")
    assert ray.is_initialized(), "this process was connected before, and stays so"
    end = time.monotonic() + 60
    while ray.available_resources().get("CPU") != 3 and time.monotonic() < end:
        time.sleep(0.1)
    assert ray.available_resources().get("CPU") == 3, "no worker is left"
