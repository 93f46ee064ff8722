"""Each adapter through the code of the program that it is for: right and wrong answers, and a
verifier that fails."""

import asyncio

import pytest

from plumbline.adapters import to_inspect, to_openenv, to_trl_reward, to_trl_rows, to_verifiers
from plumbline.errors import DataError, ModelError
from tests.audit.faulty import FaultyTask


class Failing(FaultyTask):
    """Fails on one example, whatever the text."""

    def judge(self, example, completion):
        if example.id == "review-1":
            raise RuntimeError("the database is gone")
        return super().judge(example, completion)


@pytest.fixture
def task():
    return Failing()


def golds(task, split="train"):
    return [example.gold for example in task.examples(split)]


# -- TRL -------------------------------------------------------------------------------------------


def test_trl_rows_and_rewards_as_a_trainer_calls_them(task):
    rows = to_trl_rows(task)[:3]
    assert rows[0]["prompt"][-1]["role"] == "user"
    told = {}
    reward = to_trl_reward(task)
    completions = [
        [{"role": "assistant", "content": text}]
        for text in (golds(task)[0], golds(task)[1], "não sei")
    ]
    columns = {
        "id": [row["id"] for row in rows],
        "trainer_state": None,
        "log_metric": told.__setitem__,
    }
    assert reward(prompts=[row["prompt"] for row in rows], completions=completions, **columns) == [
        1.0,
        None,
        0.0,
    ]
    assert told == {"faulty/nota": 0.5, "faulty/tipo": 0.5}
    assert reward(completions=[golds(task)[0]], id=[rows[0]["id"]]) == [1.0], (
        "and completions that are plain texts"
    )


def test_trl_trains_with_it(task, tiny_folder, tmp_path):
    trl = pytest.importorskip("trl", reason="TRL is the peer of this test; pip install '.[dev]'")
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    config = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        max_steps=2,
        logging_steps=1,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
    )
    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32),
        reward_funcs=to_trl_reward(task),
        args=config,
        train_dataset=Dataset.from_list(to_trl_rows(task)[2:6]),
        processing_class=AutoTokenizer.from_pretrained(tiny_folder),
    )
    trainer.train()
    rows = [row for row in trainer.state.log_history if "rewards/faulty/mean" in row]
    assert len(rows) == 2
    assert all("faulty/nota" in row for row in rows)


# -- verifiers -------------------------------------------------------------------------------------


def test_verifiers_scores_a_trace_and_validates_the_gold(task):
    vf = pytest.importorskip("verifiers.v1", reason="pip install '.[verifiers]'")
    from verifiers.v1.errors import TaskError

    taskset = to_verifiers(task, "train")
    tasks = list(taskset.take(3))
    assert [one.data.id for one in tasks] == [example.id for example in task.examples("train")[:3]]
    assert tasks[0].data.prompt_text == task.examples("train")[0].messages[-1]["content"]
    assert len({one.key for one in taskset}) == 40

    def traced(one, text):
        data = vf.WireTaskData.model_validate(one.data.model_dump())
        agent = {"config": {}, "name": "a"}
        trace = vf.Trace.model_construct(
            task=data, agent=agent, rewards={}, metrics={}, root_reply=text, nodes=[]
        )
        asyncio.run(one.score(trace))
        return trace

    right = traced(tasks[0], golds(task)[0])
    assert (right.reward, right.metrics) == (1.0, {"nota": 1.0, "tipo": 1.0})
    assert traced(tasks[2], "não sei").reward == 0.0
    with pytest.raises(TaskError, match="could not judge"):
        traced(tasks[1], golds(task)[1])
    assert asyncio.run(tasks[0].validate(None)) is True
    assert asyncio.run(tasks[1].validate(None)) is False
    assert asyncio.run(next(iter(to_verifiers(FaultyTask("no gold")))).validate(None)) is None


# -- Inspect ---------------------------------------------------------------------------------------


def test_inspect_evaluates_it(task, tmp_path, monkeypatch):
    inspect_ai = pytest.importorskip("inspect_ai", reason="pip install '.[inspect]'")
    from inspect_ai.model import ModelAPI, ModelOutput, get_model

    async def count(self, text):  # its own would fetch a vocabulary from the network
        return len(text)

    monkeypatch.setattr(ModelAPI, "count_text_tokens", count)

    right, _, wrong = golds(task)[0], golds(task)[1], "não sei"
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in (right, right, wrong)]
    (log,) = inspect_ai.eval(
        to_inspect(task, "train", limit=3),
        model=get_model("mockllm/model", custom_outputs=outputs),
        log_dir=str(tmp_path),
        display="none",
        max_connections=1,
        max_samples=1,
    )
    assert log.status == "success"
    scores = [sample.scores["plumbline_faulty"] for sample in log.samples]
    assert [scores[0].value, scores[2].value] == [1.0, 0.0]
    assert scores[0].metadata["parts"] == {"nota": 1.0, "tipo": 1.0}
    assert scores[1].value != scores[1].value, "unscored, which is NaN there"
    assert "database" in scores[1].explanation
    assert log.results.scores[0].metrics["mean"].value == 0.5, "of the two that have a score"


# -- OpenEnv ---------------------------------------------------------------------------------------


@pytest.fixture
def environment(task):
    pytest.importorskip("openenv", reason="pip install '.[openenv]'")
    return to_openenv(task)


def test_openenv_serves_it(task, environment):
    pytest.importorskip("openenv.core.env_server", reason="pip install '.[openenv]'")
    from fastapi.testclient import TestClient
    from openenv.core.env_server import create_fastapi_app

    client = TestClient(create_fastapi_app(*environment, max_concurrent_envs=2))
    with client.websocket_connect("/ws") as socket:

        def send(kind, **data):
            socket.send_json({"type": kind, "data": data})
            return socket.receive_json()["data"]

        asked = send("reset", split="train", index=0)
        assert asked["observation"]["messages"] == task.examples("train")[0].messages
        assert asked["done"] is False
        answered = send("step", text=golds(task)[0])
        assert (answered["reward"], answered["done"]) == (1.0, True)
        send("reset", split="train", id=task.examples("train")[2].id)
        assert send("step", text="não sei")["reward"] == 0.0
        send("reset", split="train", index=1)
        failed = send("step", text="{}")
        assert (failed["reward"], failed["done"]) == (None, True)


def test_openenv_asks_again_where_the_task_does(environment):
    class Twice(FaultyTask):
        turns = 2

        def episode(self, example):
            return TwoAnswers(self, example)

    factory, answer, _ = to_openenv(Twice())
    env = factory()
    assert env.reset(index=0).messages[-1]["role"] == "user"
    again = env.step(answer(text="não sei"))
    assert (again.done, again.reward, again.messages[-1]["content"]) == (
        False,
        None,
        "De novo, por favor.",
    )
    last = env.step(answer(text=golds(FaultyTask())[0]))
    assert (last.done, last.reward, env.state.step_count) == (True, 1.0, 2)


class TwoAnswers:
    """An episode whose second answer counts."""

    def __init__(self, task, example):
        self.task, self.example, self.told = task, example, []

    def ask(self):
        if len(self.told) == 2:
            return None
        again = [{"role": "user", "content": "De novo, por favor."}]
        return [*self.example.messages, *(again if self.told else [])]

    def tell(self, text):
        self.told.append(text)

    def result(self):
        return self.task.judge(self.example, self.told[-1])


def test_openenv_chooses_an_example_by_seed_index_or_id(task, environment):
    env = environment[0]()
    first, again, other = (env.reset(seed=seed).metadata["id"] for seed in (1, 1, 2))
    assert first == again != other
    assert env.num_tasks("val") == 40
    assert env.get_task("val", 3) == {"id": task.examples("val")[3].id, "index": 3}
    with pytest.raises(DataError, match="example 99"):
        env.reset(split="val", index=99)
    env.reset(split="val", index=0)
    env.step(environment[1](text="a"))
    with pytest.raises(DataError, match="no episode"):
        env.step(environment[1](text="a"))


@pytest.mark.parametrize(
    ("adapter", "module"),
    [(to_verifiers, "verifiers"), (to_inspect, "inspect_ai"), (to_openenv, "openenv")],
)
def test_what_is_not_installed_is_said(task, adapter, module, monkeypatch):
    import sys

    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModelError, match=f"needs {module}") as error:
        adapter(task)
    assert "pip install '.[" in error.value.fix
