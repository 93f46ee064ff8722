"""The vLLM sampler against a stand-in that speaks the same HTTP: its distribution, its
publications, and every fault."""

import gzip
import json
import os
import re
import stat
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest
import torch

from plumbline.engines import processes
from plumbline.engines import vllm as servers
from plumbline.engines.vllm import EngineContext, VllmSampler, check_engine
from plumbline.errors import DataError, EngineError
from plumbline.evaluation import endpoint
from plumbline.policies import open_policy
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.pretrained import adapters as weights
from plumbline.policies.pretrained.weight_sync_check import (
    NumberPair,
    WeightSyncCheck,
    measure_sync,
)
from plumbline.recipe.execution import EngineSection
from plumbline.records import Request, Sampling
from tests.engines import vllm_stand_in as stand_in
from tests.policies.families import move

OLDER = r"older weights: .* \+- \d"
"""How little of the learner's change a server made."""


class Heard:
    """A listener that keeps what it is told."""

    def __init__(self):
        self.events, self.waited = [], 0

    def working(self, what, done, total):
        self.waited += 1

    def event(self, kind, message):
        self.events.append(message)


@pytest.fixture
def policy(tiny_folder):
    """A policy whose LoRA adapter a test may change."""
    section = AutoregressiveModel(name=str(tiny_folder), lora={"rank": 4}, dtype="float32")
    return open_policy(section, str(tiny_folder), 0)


change = partial(move, size=0.02, seed=0)
"""Move every trained weight, as an optimiser would."""


@pytest.fixture
def served(policy, tmp_path):
    """Starts stand-ins of the policy's model on threads, and engines to their address; ends them
    all."""
    opened = []

    def start(**faults):
        folder = tmp_path / f"served-{len(opened)}"
        weights.write_full(policy, folder, torch.float32)
        server = stand_in.serve(folder, **faults)
        opened.append(server.shutdown)
        return server

    def engine(server, **section):
        values = {
            "name": "vllm",
            "address": server.address,
            "publish": "full",
            "timeout": 20,
            **section,
        }
        heard = Heard()
        sampler = VllmSampler(
            EngineSection(**values), policy, EngineContext(tmp_path / "engine", 0, heard)
        )
        opened.append(sampler.close)
        sampler.heard = heard
        return sampler

    yield start, engine
    for close in reversed(opened):
        close()


def requests(prompts, copies, sampling):
    return [
        Request((0, "sample", prompt, copy), [{"role": "user", "content": prompt}], sampling)
        for prompt in prompts
        for copy in range(copies)
    ]


def gap(policy, trajectories):
    with torch.no_grad():
        terms = policy.score(trajectories)
    return float((terms.logprobs - terms.recorded).abs().max())


def answered(sampler, asked, policy, most):
    """Its answers, one to each that is asked, which the learner scores as they were drawn."""
    got = dict(sampler.sample(asked))
    assert set(got) == set(asked)
    assert gap(policy, list(got.values())) < most
    return got


# -- the sampling distribution ---------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.7, "top_k": 5}, {"top_p": 0.8}])
def test_what_is_recorded_is_what_the_learner_scores_under_the_same_distribution(
    served, policy, sampling
):
    start, engine = served
    sampler = engine(start())
    asked = requests(["o produto", "sim ou"], 3, Sampling(max_tokens=6, **sampling))
    got = answered(sampler, asked, policy, 1e-4)
    for request, trajectory in got.items():
        assert trajectory.prompt.tolist() == policy.chat.prompt(request.messages)
        assert trajectory.text == policy.chat.text(trajectory.tokens.tolist())
        assert trajectory.finish == (
            "stop" if trajectory.tokens[-1] in policy.chat.stop_ids else "length"
        )
        assert trajectory.sampling == request.sampling


def test_equal_prompts_go_in_one_request_and_no_more_are_in_flight_than_may_be(served, monkeypatch):
    monkeypatch.setattr("plumbline.engines.vllm.IN_FLIGHT", 4)
    start, engine = served
    server = start()
    sampler = engine(server)
    asked = requests(["o produto", "sim ou"], 6, Sampling(max_tokens=3))
    assert len(list(sampler.sample(asked))) == 12
    assert sorted(server.state.asked) == [2, 2, 4, 4]


def test_greedy_answers_are_those_of_the_policy_and_have_no_density(served, policy):
    start, engine = served
    sampler = engine(start())
    asked = requests(["o produto", "compra"], 2, Sampling(max_tokens=8, temperature=0.0))
    ours = {request.key: trajectory.text for request, trajectory in policy.sample(asked)}
    got = {request.key: trajectory for request, trajectory in sampler.sample(asked)}
    assert {key: trajectory.text for key, trajectory in got.items()} == ours
    assert all(not trajectory.logprobs.any() for trajectory in got.values())


def test_a_prompt_that_is_too_long_for_the_server_is_refused_before_anything_is_drawn(served):
    start, engine = served
    server = start()
    with pytest.raises(DataError, match=r"\b200\b"):
        list(engine(server).sample(requests(["sim"], 1, Sampling(max_tokens=190))))
    assert not server.state.asked


# -- publications ----------------------------------------------------------------------------------


@pytest.mark.parametrize("publish", ["full", "lora", "transfer"])
def test_new_weights_are_what_samples_and_say_their_version(served, policy, publish, monkeypatch):
    if publish == "transfer":  # memory of a GPU is handed over as itself here
        monkeypatch.setattr(weights, "list_ipc_handles", lambda state: list(state.values()))
    start, engine = served
    server = start()
    sampler = engine(server, publish=publish)
    assert sampler.engine["publish"] == publish
    before = server.state.told.copy()
    for version in (1, 2):
        change(policy, seed=version)
        sampler.take(policy, version)
    sampler.take(policy, 2)  # it has them
    got = [
        trajectory
        for _, trajectory in sampler.sample(requests(["o produto"], 4, Sampling(max_tokens=5)))
    ]
    assert gap(policy, got) < 1e-3
    assert {trajectory.version for trajectory in got} == {2}
    assert sampler.figures["engine/update_arrived"] == pytest.approx(1, abs=1e-3)
    assert sampler.figures["engine/probe_moved"] == pytest.approx(1, abs=1e-2)
    told = server.state.told[len(before) :]
    if publish == "lora":
        assert told == ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"] * 2
        assert len(server.state.adapters) == 1
    else:
        loads = {
            "full": ["/collective_rpc"],
            "transfer": ["/init_weight_transfer_engine", "/start_weight_update"],
        }
        ends = [] if publish == "full" else ["/update_weights", "/finish_weight_update"]
        assert told == [*loads[publish], *ends, "/reset_prefix_cache", "/update_weight_version"] * 2


@pytest.mark.parametrize("publish", ["full", "lora"])
def test_a_server_that_keeps_its_old_weights_is_found_out(served, policy, publish):
    start, engine = served
    server = start(stale=True)
    sampler = engine(server, publish=publish)
    change(policy)
    with pytest.raises(EngineError, match=OLDER):
        sampler.take(policy, 1)


def test_an_update_that_16_bits_round_away_is_an_error_that_says_what_to_do(served, policy):
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_" not in name:
                weight.copy_(weight.bfloat16().float())
    start, engine = served
    sampler = engine(start(), arguments=["--dtype", "bfloat16"])
    change(policy, size=1e-7)
    with pytest.raises(EngineError, match=r"\d% .* rounded to bfloat16") as told:
        sampler.take(policy, 1)
    assert "engine.publish: lora" in str(told.value)
    change(policy, size=0.1)
    sampler.take(policy, 2)
    assert 0.9 < sampler.figures["engine/update_arrived"] < 1.1
    assert sampler.figures["engine/update_elements"] > 0.5


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_how_much_arrives_counts_what_points_the_way_and_not_rounding_errors():
    zeros, wanted = torch.zeros(1000), torch.full((1000,), 0.1)
    half = torch.where(torch.arange(1000) % 2 == 0, 0.1, 0.0)
    found = measure_sync(NumberPair(zeros, zeros), NumberPair(wanted, half))
    assert (found.share, found.elements) == pytest.approx((0.5, 0.5))
    beside = 0.1 * torch.where(torch.arange(1000) % 2 == 0, 1.0, -1.0)
    found = measure_sync(NumberPair(zeros, zeros), NumberPair(wanted, beside))
    assert found.share == pytest.approx(0, abs=1e-6)
    assert found.noise == pytest.approx(2**0.5)
    assert measure_sync(NumberPair(zeros, zeros), NumberPair(zeros, zeros)) is None


def test_rounding_moves_the_share_by_no_more_than_the_bound():
    learner, *noise = numbers(3, 400)
    before = NumberPair(torch.zeros(400), 0.1 * noise[0])
    found = measure_sync(before, NumberPair(learner, learner + 0.1 * noise[1]))
    assert abs(found.share - 1) < found.bound == pytest.approx(0.2, rel=0.1)
    found = measure_sync(before, NumberPair(learner, 0.1 * noise[1]))
    assert abs(found.share) < found.bound
    worst = 0.1 * learner  # rounding that points along the change, one way and then the other
    found = measure_sync(NumberPair(torch.zeros(400), worst), NumberPair(learner, learner - worst))
    assert (1 - found.share, found.bound) == pytest.approx((0.2, 0.2))
    assert measure_sync(before, before) is None


@pytest.mark.parametrize(("made", "stale"), [(1.0, False), (0.7, False), (0.1, True), (0.0, True)])
def test_a_server_that_moves_by_its_rounding_alone_is_told_from_one_that_has_the_weights(
    made, stale
):
    """`made`: the share of the learner's change that the server makes, beside noise a third of its
    size."""
    first, change, noise = numbers(3, 150)
    arrivals = WeightSyncCheck()
    arrivals.check_probe(NumberPair(first, first), 1.0)
    now = NumberPair(first + 0.1 * change, first + 0.1 * (made * change + noise / 3))
    if stale:
        with pytest.raises(EngineError, match=OLDER):
            arrivals.check_probe(now, 1.0)
    else:
        assert arrivals.check_probe(now, 1.0)["engine/probe_moved"] == pytest.approx(made, abs=0.1)


def test_where_rounding_hides_a_step_steps_are_added_up_until_it_cannot():
    """A server in 16 bits that has lost the weights: each small step of the learner is less than
    its rounding."""
    change, *noise = numbers(41, 150)
    arrivals = WeightSyncCheck()

    def check(steps):
        for step in steps:
            arrivals.check_probe(NumberPair(0.01 * step * change, 0.03 * noise[step]), 1.0)

    check(range(10))
    with pytest.raises(EngineError, match=OLDER):
        check(range(10, 20))


def test_a_server_that_moves_by_not_one_bit_is_stale_however_small_the_change():
    first, change, *noise = numbers(4, 150)
    arrivals = WeightSyncCheck()
    arrivals.check_probe(NumberPair(first, first + 1e-3 * noise[0]), 1.0)
    # a step so small that rounding hides it
    hidden = NumberPair(first + 1e-6 * change, first + 1e-3 * noise[1])
    assert arrivals.check_probe(hidden, 1.0)["engine/probe_moved_bound"] > 100
    with pytest.raises(EngineError, match=OLDER):
        arrivals.check_probe(NumberPair(first + 2e-6 * change, hidden.served), 1.0)


# -- which server it is ----------------------------------------------------------------------------


def test_another_model_and_another_tokenizer_are_refused(served):
    start, engine = served
    with pytest.raises(EngineError, match="another tokenizer"):
        engine(start(shifts=1))
    server = start()
    with torch.no_grad():
        for weight in server.state.model.parameters():
            weight.mul_(-1.5)
    server.state.faults.stale = True
    with pytest.raises(EngineError, match=r"\d nats .* another model"):
        engine(server)


def test_the_folder_that_a_given_server_was_started_with_stays_as_it_is(served, policy):
    start, engine = served
    server = start()
    before = {path.name: path.read_bytes() for path in server.state.folder.iterdir()}
    sampler = engine(server)
    change(policy)
    sampler.take(policy, 1)
    sampler.close()
    assert {path.name: path.read_bytes() for path in server.state.folder.iterdir()} == before
    assert not list(sampler.place.folder.glob("plumbline-*"))


def test_a_given_server_that_lets_nobody_change_its_weights_is_an_error_that_says_how_to_start_it(
    served,
):
    start, engine = served
    with pytest.raises(EngineError, match=r"/weight_info .* 404: .*\(4 times") as told:
        engine(start(locked=True))
    assert "VLLM_SERVER_DEV_MODE=1" in told.value.fix


def test_a_server_that_was_started_again_is_handed_the_weights_once_more(served, policy):
    start, engine = served
    server = start()
    sampler = engine(server)
    change(policy)
    sampler.take(policy, 1)
    server.state.version = "default"
    for _ in sampler.sample(requests(["sim"], 2, Sampling(max_tokens=2))):
        pass
    assert server.state.version.startswith("plumbline-1-")
    assert any("version 1" in message for message in sampler.heard.events)


# -- faults ----------------------------------------------------------------------------------------


def test_a_stream_that_breaks_off_is_asked_again_for_what_had_not_ended(served):
    start, engine = served
    server = start(cuts=3)
    sampler = engine(server)
    asked = requests(["sim"], 5, Sampling(max_tokens=2))
    got = [request.key for request, _ in sampler.sample(asked)]
    assert sorted(got) == sorted(request.key for request in asked)
    assert server.state.asked == [5, 2]


def test_a_given_server_that_never_answers_is_an_error_in_the_end(served, monkeypatch):
    monkeypatch.setattr("plumbline.engines.vllm.BARREN", 1)
    start, engine = served
    sampler = engine(start(hangs=1), timeout=1)
    asked = sampler.sample(requests(["sim"], 2, Sampling(max_tokens=2)))
    next(asked)
    with pytest.raises(EngineError, match=r"none .* 1 seconds \(2 times"):
        list(asked)


def own(policy, tmp_path, monkeypatch, module, *, timeout=60, **told):
    monkeypatch.setattr(servers, "MODULE", module)
    monkeypatch.setenv("STAND_IN", json.dumps(told))
    monkeypatch.setenv("PYTHONPATH", f"{Path.cwd()}:{Path.cwd() / 'src'}")
    heard = Heard()
    section = EngineSection(name="vllm", publish="full", timeout=timeout)
    sampler = VllmSampler(section, policy, EngineContext(tmp_path / "engine", 0, heard))
    sampler.heard = heard
    return sampler


@pytest.fixture
def relayed(policy, tmp_path, monkeypatch):
    """Starts a server of the run: a process that hands on to a stand-in on a thread, which has a
    model of its own."""
    opened, honest = [], processes.start_process

    def start(command, environment, log):
        folder, dtype, name = (
            command[command.index(one) + 1] for one in ("--model", "--dtype", "--served-model-name")
        )
        opened.append(stand_in.serve(Path(folder), dtype))
        opened[-1].state.base = name
        told = {**json.loads(os.environ["STAND_IN"]), "at": opened[-1].server_address}
        return honest(command, {**environment, "STAND_IN": json.dumps(told)}, log)

    monkeypatch.setattr(processes, "start_process", start)
    yield lambda **told: own(policy, tmp_path, monkeypatch, "tests.engines.vllm_relay", **told)
    for server in opened:
        server.shutdown()
        server.server_close()


def test_a_server_of_the_run_that_is_killed_is_started_again_and_no_answer_is_lost(
    policy, relayed, tmp_path
):
    """Version 1 was handed over before, so that is what draws afterwards."""
    sampler = relayed(dies=3, once=str(tmp_path / "happened"))
    first, folder = sampler.server, sampler.socket.parent
    try:
        assert sampler.socket.is_socket()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, "nobody else reaches it"
        change(policy)
        sampler.take(policy, 1)
        asked = requests(["sim", "o produto"], 4, Sampling(max_tokens=3))
        answered(sampler, asked, policy, 1e-3)
        assert sampler.server is not first
        assert any("started again" in message for message in sampler.heard.events)
    finally:
        sampler.close()
    assert first.process.poll() is not None
    assert sampler.server.process.poll() is not None
    assert not sampler.weights.served.exists()
    assert not folder.exists()
    assert sampler.server.log.is_file()


def test_nobody_else_reaches_a_server_of_the_run(policy):
    """vLLM's calls that change weights ask for no key, and one of them unpickles: no port, and no
    other user."""
    for how in ("full", "lora", "transfer"):
        words, said = servers.server_command(how, policy, "served", "float32", Path("/x/socket"), 0)
        assert words[words.index("--uds") + 1] == "/x/socket"
        assert not {"--host", "--port"} & set(words)
        assert ("VLLM_ALLOW_INSECURE_SERIALIZATION" in said) == (how == "transfer")


def test_a_path_that_is_too_long_for_a_socket_is_an_error(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(EngineError, match="too long a path"):
        servers.reserve_socket()
    assert list(long.iterdir()) == []


def test_a_server_of_the_run_that_hangs_or_ends_between_two_steps_is_started_again(
    policy, tmp_path, monkeypatch
):
    started, heard = stand_in.on_threads(monkeypatch, hangs=2), Heard()
    sampler = VllmSampler(
        EngineSection(name="vllm", timeout=1), policy, EngineContext(tmp_path / "engine", 0, heard)
    )
    asked = requests(["sim"], 4, Sampling(max_tokens=3))
    assert {request.key for request, _ in sampler.sample(asked)} == {
        request.key for request in asked
    }
    assert [running.state.asked for running in started] == [[4], [2]]
    processes.stop_process(sampler.server)
    change(policy)
    sampler.take(policy, 1)
    answered(sampler, asked, policy, 1e-3)
    assert len({running.seed for running in started}) == 3, (
        "a second server would draw what the first one drew"
    )
    lost = [event for event in heard.events if "started again" in event]
    assert len(lost) == 2
    assert "none of" in lost[0]
    assert "no longer well" in lost[1]
    sampler.close()


def test_a_server_that_does_not_fit_into_memory_says_so_and_what_to_do(
    policy, tmp_path, monkeypatch
):
    sleeper = "tests.engines.sleeper"
    with pytest.raises(EngineError, match=r"memory: torch\.OutOfMemoryError") as told:
        own(
            policy,
            tmp_path,
            monkeypatch,
            sleeper,
            starts="torch.OutOfMemoryError: CUDA out of memory",
        )
    assert "--gpu-memory-utilization" in told.value.fix
    with pytest.raises(EngineError, match="status 1: ValueError"):
        own(policy, tmp_path, monkeypatch, sleeper, starts="ValueError: no such flag")


def test_what_is_missing_is_said_with_how_to_get_it(policy, tmp_path, monkeypatch):
    section = EngineSection(name="vllm", python=sys.executable)
    monkeypatch.setattr(servers, "MODULE", "no_such_engine.server")
    with pytest.raises(EngineError, match="has no no_such_engine") as told:
        VllmSampler(section, policy, EngineContext(tmp_path, 0, Heard()))
    assert "engine.python" in told.value.fix
    section = EngineSection(name="vllm", python="/no/such/python")
    with pytest.raises(EngineError, match="cannot start /no/such/python"):
        VllmSampler(section, policy, EngineContext(tmp_path, 0, Heard()))
    with pytest.raises(EngineError, match=r"http://127\.0\.0\.1:1"):
        check_engine(EngineSection(name="vllm", address="http://127.0.0.1:1"), "autoregressive")
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(EngineError, match="needs httpx"):
        VllmSampler(
            EngineSection(name="vllm", address="http://127.0.0.1:1"),
            policy,
            EngineContext(tmp_path, 0, Heard()),
        )


@pytest.fixture
def short():
    """A folder whose path is short enough for a socket's."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_an_evaluation_leaves_the_log_of_a_server_that_failed_and_nothing_else(
    plumbline, tiny_folder, short, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    monkeypatch.setattr(servers, "MODULE", "tests.engines.sleeper")
    monkeypatch.setenv("STAND_IN", json.dumps({"starts": "ValueError: no such flag"}))
    monkeypatch.setenv("PYTHONPATH", f"{Path.cwd()}:{Path.cwd() / 'src'}")
    asked = ["eval", tiny_folder, "--task", "tests.toy:open_toy", "--engine", "vllm"]
    code, _, err = plumbline(*asked, "--max-tokens", 2)
    assert code == 1
    (log,) = short.glob("plumbline-*/*")
    assert str(log) in err.replace("\n", "").replace(" ", "")
    assert "no such flag" in log.read_text()
    log.unlink()
    log.parent.rmdir()
    started = stand_in.on_threads(monkeypatch)
    code, _, err = plumbline(*asked, "--max-tokens", 2)
    assert (code, len(started)) == (0, 1), err
    assert not list(short.glob("plumbline-*"))


# -- any endpoint ----------------------------------------------------------------------------------


def test_any_endpoint_is_evaluated_by_its_address(served, plumbline, tmp_path, monkeypatch):
    start, _ = served
    address = start().address
    task = ["--task", "tests.toy:open_toy", "--engine", f"{address}/v1", "--json"]
    code, out, err = plumbline("eval", "echo", *task, "--max-tokens", 2)
    assert code == 0, err
    assert json.loads(out)["reward"]["mean"] == 1.0
    code, _, err = plumbline("eval", "other", *task)
    assert code == 1
    assert "no model other" in err
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    code, _, err = plumbline("eval", "echo", *task)
    assert code == 1
    assert "OPENAI_API_KEY" in err
    assert httpx.get(f"{address}/health").status_code == 200


GOOD = {
    "choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}],
    "usage": {"completion_tokens": 1},
}
CHOICE = GOOD["choices"][0]


def good(content="a", tokens=1, **choice):
    choices = [{**CHOICE, "message": {"content": content}, **choice}]
    return json.dumps({"choices": choices, "usage": {"completion_tokens": tokens}})


class Says(BaseHTTPRequestHandler):
    """Answers every request with `said`: bytes, a text, a status with either, or what is done with
    the connection."""

    said = None
    asked = 0
    body = None

    def log_message(self, *_):
        pass

    def do_POST(self):
        type(self).asked += 1
        type(self).body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if callable(self.said):
            with suppress(OSError):
                self.said()
            return
        status, body = self.said if isinstance(self.said, tuple) else (200, self.said)
        body = body if isinstance(body, bytes) else body.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/elsewhere")
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)

    def endless(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            self.wfile.write(b" " * 2**20)

    def bomb(self):
        self.wfile.write(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b" " * 2**26)
        )

    def drips(self, head=b"HTTP/1.1 200 OK\r\n\r\n"):
        self.wfile.write(head)
        while True:
            self.wfile.write(b"x")
            time.sleep(0.05)

    def drips_headers(self):
        self.drips(b"HTTP/1.1 200 OK\r\nX: ")

    def closes(self):
        self.connection.shutdown(2)


@pytest.fixture
def says():
    """An endpoint that says what its handler's class is told; the address, and the class."""
    handler = type("Bound", (Says,), {})
    server = stand_in.Quiet(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", handler
    server.shutdown()
    server.server_close()


NO_COMPLETION = "no chat completion of one choice"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("hello", NO_COMPLETION),
        ("", NO_COMPLETION),
        ("[]", NO_COMPLETION),
        ("null", NO_COMPLETION),
        ("[" * 100_000, NO_COMPLETION),
        (b"\xff\xfe\0", NO_COMPLETION),
        (good().replace("a", "\xe9").encode("latin-1"), NO_COMPLETION),
        ('{"choices": NaN}', NO_COMPLETION),
        (json.dumps({**GOOD, "choices": []}), NO_COMPLETION),
        (json.dumps({**GOOD, "choices": [CHOICE, CHOICE]}), NO_COMPLETION),
        (json.dumps({**GOOD, "choices": None}), NO_COMPLETION),
        (json.dumps({**GOOD, "choices": [5]}), NO_COMPLETION),
        (json.dumps({**GOOD, "choices": [{"text": "a"}]}), NO_COMPLETION),
        (json.dumps({**GOOD, "usage": None}), NO_COMPLETION),
        (json.dumps({**GOOD, "usage": 3}), NO_COMPLETION),
        (good(tokens=10**13), "has 10000000000000 tokens"),
        (good(tokens=-5), "has -5 tokens"),
        (good(tokens="many"), "has 'many' tokens"),
        (good(tokens=1.5), "has 1.5 tokens"),
        (good(tokens=True), "has True tokens"),
        (good(tokens=1).replace(": 1}", ": 1e400}"), "has inf tokens"),
        (good(tokens=1).replace(": 1}", ": 1" + "0" * 5000 + "}"), NO_COMPLETION),
        (good(5), "no text: 5"),
        (good(["a"]), "no text: ['a']"),
        (good("\ud800"), "no text: '\\ud800'"),
        (good(finish_reason=5), "finish_reason that"),
        (good(index=3), "choice 3"),
        ((302, ""), "answered 302, a redirect to http://127.0.0.1"),
        ((304, ""), "answered 304"),
        (
            (400, "\x1b]0;pwned\x07 the key sk-secret\x9b31m"),
            "400: <1b>]0;pwned<07> the key <OPENAI_API_KEY>",
        ),
        ((400, b"\xff" * 100), "refused with 400"),
        ((401, "x" * 10**6), "refused with 401: xxx"),
        ((500, "broken"), "refused with 500: broken"),
        (Says.endless, "more than 16 MiB"),
        (Says.bomb, "more than 16 MiB"),
        (Says.drips, "within 1 seconds"),
        (Says.drips_headers, "within 1 seconds"),
        (Says.closes, "breaks off"),
    ],
    ids=lambda one: getattr(one, "__name__", None) or repr(one)[:30],
)
def test_whatever_an_endpoint_answers_is_an_answer_or_one_clear_error(says, said, why, monkeypatch):
    address, handler = says
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setattr(endpoint, "TRIES", 2)
    handler.said = said
    asked = requests(["a b", "c"], 1, Sampling(max_tokens=3))
    sampler = endpoint.Endpoint(
        address, "echo", timeout=1.0 if callable(said) and "drips" in said.__name__ else 60.0
    )
    threads = threading.active_count()
    with pytest.raises(EngineError) as error:
        list(sampler.sample(asked))
    assert why in error.value.cause
    assert error.value.cause.isprintable()
    assert len(error.value.cause) < 600
    assert "sk-secret" not in str(error.value)
    assert handler.asked <= 4, "a redirect is not followed"
    assert "endpoint" not in {one.name for one in threading.enumerate()[threads:]}


@pytest.mark.parametrize(
    ("written", "options", "asked"),
    [
        ({"max_tokens": 16}, [], {"temperature": 0.0, "max_tokens": 16}),
        ({"max_tokens": 16, "temperature": 0.7, "top_p": 0.9, "top_k": 5}, [], {}),
        (
            {"max_tokens": 16, "temperature": 0.7, "top_k": 5},
            ["--greedy"],
            {"temperature": 0.0, "max_tokens": 16},
        ),
        (
            {"max_tokens": 16, "temperature": 0.7},
            ["--temperature", 0],
            {"temperature": 0.0, "max_tokens": 16},
        ),
        ({"temperature": 0.7}, ["--max-tokens", 3], {"temperature": 0.7, "max_tokens": 3}),
        ({}, [], {"temperature": 0.0, "max_tokens": 256}),
    ],
)
def test_an_endpoint_draws_as_the_recipe_says_where_the_command_does_not(
    says, plumbline, tmp_path, written, options, asked
):
    address, handler = says
    handler.said = good()
    task = {"tests": {"name": "tests.toy:open_toy"}, "more": {"name": "tests.toy:open_toy"}}
    recipe = {
        "name": "x",
        "model": {"name": "m"},
        "tasks": task,
        "rl": {"steps": 1},
        "sampling": written,
    }
    (tmp_path / "base.yaml").write_text(json.dumps(recipe))
    (tmp_path / "recipe.yaml").write_text(json.dumps({"extends": "base.yaml"}))
    where = ["--task", f"{tmp_path / 'recipe.yaml'}:more", "--engine", address, "--limit", 1]
    code, _, err = plumbline("eval", "echo", *where, *options)
    assert code == 0, err
    body = {key: one for key, one in handler.body.items() if key not in {"model", "messages"}}
    assert body == (asked or written)


def refused(says, said):
    """What is said to do where an endpoint refuses."""
    address, handler = says
    handler.said = said
    asked = requests(["a"], 1, Sampling(max_tokens=256))
    with pytest.raises(EngineError) as error:
        list(endpoint.Endpoint(address, "echo").sample(asked))
    return error.value.fix


@pytest.mark.parametrize(
    "said",
    [
        (
            400,
            "This model's maximum context length is 96 tokens and your request has 31 input tokens",
        ),
        (400, '{"error": {"code": "context_length_exceeded"}}'),
        (400, "the request exceeds the available context size"),
        (400, "'max_tokens' or 'max_completion_tokens' is too large: 256"),
        (400, "max_tokens is too large: 9999. This model supports at most 4096 completion tokens"),
        (400, "a prompt of 31 tokens and an answer of up to 256 exceed the context of 96"),
        (422, "`inputs` tokens + `max_new_tokens` must be <= 4096"),
        (400, "prompt is too long: 200000 tokens"),
    ],
)
def test_a_refusal_of_the_length_names_the_limit_of_tokens(says, said):
    fix = refused(says, said)
    assert re.search(r"--max-tokens .*256", fix)
    assert "OPENAI_API_KEY" not in fix


@pytest.mark.parametrize(
    "said",
    [
        (400, "Unsupported parameter: 'max_tokens' is not supported with this model."),
        (400, "temperature must be less than 2"),
        (401, "no key, whatever the context length"),
        (404, "no model other"),
    ],
)
def test_a_refusal_of_anything_else_does_not(says, said):
    assert "OPENAI_API_KEY" in refused(says, said)


def test_an_endpoint_that_counts_more_tokens_than_memory_holds_numbers_allocates_none(says):
    address, handler = says
    handler.said = good(None, tokens=2**24)
    ((_, answer),) = endpoint.Endpoint(address, "echo").sample(
        requests(["a"], 1, Sampling(max_tokens=3))
    )
    assert (answer.text, answer.num_tokens, answer.answer.base.nbytes) == ("", 2**24, 8)


def test_a_key_or_a_proxy_that_cannot_be_used_is_a_clear_error(says, monkeypatch):
    address, handler = says
    handler.said = good()
    for name, value in (
        ("OPENAI_API_KEY", "a\nb"),
        ("OPENAI_API_KEY", "\xe9"),
        ("HTTP_PROXY", "foo://x"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(EngineError, match=name):
                list(
                    endpoint.Endpoint(address, "echo").sample(
                        requests(["a"], 1, Sampling(max_tokens=3))
                    )
                )


# -- whole runs ------------------------------------------------------------------------------------


def test_rl_with_an_engine_trains_by_what_it_drew_and_records_how_the_weights_arrived(
    served, policy, tmp_path
):
    from plumbline.runs.run import Run
    from plumbline.training.prompts import Source
    from plumbline.training.rl import train_rl
    from tests.toy import ToyTask
    from tests.training.toy_runs import toy_recipe

    start, engine = served
    server = start()
    sampler = engine(server, publish="full")
    task = ToyTask({})
    with Run.start(toy_recipe(steps=2, old="rescored", tis=2.0), tmp_path / "run") as run:
        train_rl(policy, Source.of(task, task.examples("train")), run, None, sampler)
    rows = list(run.files["metrics"].rows())
    assert [row["step"] for row in rows] == [1, 2]
    assert server.state.asked == [4] * 4
    assert all(row["train/sampler_scorer_gap"] < 1e-4 for row in rows)
    assert "engine/update_arrived" not in rows[0], "at the first step nothing was learnt"
    assert rows[1]["engine/update_arrived"] == pytest.approx(1)
    assert rows[1]["engine/probe_moved"] == pytest.approx(1, abs=0.05)


def test_a_recipe_with_an_engine_corrects_for_its_rounding_and_is_refused_where_it_cannot_draw(
    monkeypatch,
):
    from plumbline.checks.refusals import find_problems
    from plumbline.recipe import load_recipe
    from plumbline.runs.lineage import is_other_seed

    monkeypatch.delenv("PLUMBLINE_VLLM_PYTHON", raising=False)
    recipe = load_recipe("commerce-tiny", ["engine=vllm"])
    assert (recipe.rl.old, recipe.rl.tis) == ("rescored", 2.0)
    assert load_recipe("commerce-tiny", ["engine=vllm", "rl.tis=5", "rl.old=rescored"]).rl.tis == 5
    assert load_recipe("commerce-tiny", []).rl.tis is None
    assert is_other_seed(
        recipe,
        load_recipe(
            "commerce-tiny", ["engine.name=vllm", "engine.publish=lora", "engine.timeout=9"]
        ),
    )
    assert not is_other_seed(recipe, load_recipe("commerce-tiny", []))
    monkeypatch.setattr(servers, "MODULE", "no_such_engine.server")
    assert any("has no no_such_engine" in str(problem) for problem in find_problems(recipe))
    masked = load_recipe("demo-masked", []).model
    found = find_problems(recipe.model_copy(update={"model": masked}))
    assert any("the family masked" in str(problem) for problem in found)


def test_a_run_refuses_adapters_that_its_server_cannot_be_handed_before_anything_is_trained(
    served, tiny_folder, tmp_path
):
    from plumbline.recipe import parse_recipe
    from plumbline.training.pipeline import run_recipe

    recipe = parse_recipe(
        {
            "name": "toy",
            "task": {"name": "tests.toy:open_toy"},
            "model": {
                "name": str(tiny_folder),
                "lora": {"rank": 2, "targets": ["q_proj", "lm_head"]},
            },
            "sft": {"steps": 1, "batch_size": 2, "optimiser": {"learning_rate": 1e-3}},
            "rl": {
                "steps": 1,
                "prompts_per_step": 1,
                "group_size": 2,
                "optimiser": {"learning_rate": 1e-3},
            },
            "sampling": {"max_tokens": 4},
            "evaluation": {"untrained": False, "final_limit": 2, "limit": 2},
            "engine": {"name": "vllm", "publish": "full", "address": served[0]().address},
        }
    )
    with pytest.raises(EngineError, match="embed_tokens and lm_head"):
        run_recipe(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "models").exists()
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
