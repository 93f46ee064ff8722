"""Tasks that come from other programs, through the code of these programs."""

import re
import tomllib
from pathlib import Path

import pytest

from plumbline.checks.audit.trial import open_targets, try_reward
from plumbline.config import imports
from plumbline.config.imports import consent, note_typed
from plumbline.errors import DataError, RecipeError, RewardError, UntrustedCodeError
from plumbline.storage import write_jsonl
from plumbline.tasks import find_opener, open_task, silent
from plumbline.tasks.jsonl.rows import read_options, read_records

ROOT = Path(__file__).parents[2]


@pytest.fixture
def declared(monkeypatch):
    """The entry points of the project's file, whatever is installed."""
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][
        "plumbline.tasks"
    ]
    group = {
        name: imports.EntryPoint(name, value, "plumbline.tasks") for name, value in entries.items()
    }
    monkeypatch.setattr("plumbline.tasks.plugins", lambda _: group)


# -- reasoning-gym ---------------------------------------------------------------------------------


@pytest.fixture
def gym():
    return pytest.importorskip("reasoning_gym", reason="pip install '.[reasoning-gym]'")


def opened(name, tmp_path, **options):
    return open_task(name, options, tmp_path)


def test_a_data_set_of_reasoning_gym_is_a_task_by_its_own_score(gym, declared, tmp_path):
    task = opened("reasoning_gym:chain_sum", tmp_path, size=60, seed=7)
    assert [len(task.examples(split)) for split in task.splits] == [48, 6, 6]
    prompts = [one.fingerprint() for split in task.splits for one in task.examples(split)]
    assert len(set(prompts)) == 60
    made = gym.create_dataset("chain_sum", seed=7, size=60)
    for one in task.examples("test"):
        entry = made[int(one.id.rpartition("-")[2])]
        assert (one.messages[-1]["content"], one.gold) == (entry["question"], entry["answer"])
        for text in (one.gold, f"It is {one.gold}.", "x", ""):
            assert task.judge(one, text)[1].total == pytest.approx(made.score_answer(text, entry))
    again = opened("reasoning_gym", tmp_path, dataset="chain_sum", size=60, seed=7)
    assert again.examples("val") == task.examples("val")
    assert again.rubric == task.rubric
    assert (
        opened("reasoning_gym:chain_sum", tmp_path, config={"max_terms": 3}).rubric != task.rubric
    )


def test_problems_are_the_same_whatever_was_drawn_before(gym, declared, tmp_path):
    first, again = (
        [*opened("reasoning_gym:list_functions", tmp_path, size=30).load()] for _ in range(2)
    )
    assert first == again


def test_composite_problems_have_the_stratum_of_their_data_set(gym, declared, tmp_path):
    config = {"datasets": [{"name": "chain_sum"}, {"name": "leg_counting", "weight": 2}]}
    task = opened("reasoning_gym:composite", tmp_path, size=30, config=config)
    assert {one.stratum for one in task.examples("train")} == {"chain_sum", "leg_counting"}
    assert all(task.judge(one, one.gold)[1].total == 1 for one in task.examples("train"))


def test_a_data_set_without_answers_has_no_gold(gym, declared, tmp_path):
    task = opened("reasoning_gym:graph_color", tmp_path, size=10)
    assert {one.gold for split in task.splits for one in task.examples(split)} == {None}
    assert set(task.baselines) == {"blank", "echo"}


def test_an_answer_that_earns_less_than_1_stays_and_is_found(gym, declared, tmp_path, monkeypatch):
    task = opened("reasoning_gym:chain_sum", tmp_path, size=40)
    score, wrong = task._made.score_answer, task._made[3]["answer"]
    monkeypatch.setattr(
        task._made, "score_answer", lambda text, entry: 0.5 if text == wrong else score(text, entry)
    )
    found = {finding.check: finding for finding in try_reward(task, "run").findings}
    assert "oracle" in found
    assert "chain_sum-3" in found["oracle"].samples


def test_the_audit_command_opens_a_data_set_by_name(gym, declared, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "plumbline.checks.audit.trial.task_names", lambda: ["jsonl", "reasoning_gym", "verifiers"]
    )
    (target,) = open_targets("reasoning_gym:basic_arithmetic", {"size": 60}, None, None).values()
    found = try_reward(target(silent), "run", limit=60)
    assert found.to_dict()["gold"] == {"n": 60, "mean": 1.0, "least": 1.0}
    assert found.context.measure_writings()["blanks around"]["loss"] > 0.25, (
        "a blank costs a share of the reward there"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dataset": "chain_sums"}, "did you mean .*chain_sum"),
        ({"dataset": "chain_sum", "config": {"nothing": 1}}, "unexpected keyword"),
        ({"dataset": "chain_sum", "config": {"min_terms": 0}}, "min_terms must be positive"),
        ({"dataset": "composite"}, "at least one"),
        ({"dataset": "chain_sum", "val": 0.6, "test": 0.5}, "hold out all"),
    ],
)
def test_what_reasoning_gym_does_not_make_is_refused(gym, declared, tmp_path, options, said):
    with pytest.raises(RecipeError, match=said):
        opened("reasoning_gym", tmp_path, **options)


# -- verifiers -------------------------------------------------------------------------------------

ENVIRONMENT = """
from __future__ import annotations
import verifiers.v1 as vf

class Data(vf.TaskData):
    a: int
    answer: str

class Config(vf.TasksetConfig):
    count: int = 40

class Sum(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.reward(weight=3.0)
    async def right(self, trace) -> float:
        return {right}

    @vf.reward(weight=-1.0)
    async def long(self, trace) -> float:
        return float(len(trace.last_reply) > 20)

    @vf.metric
    async def turns(self, trace) -> float:
        return float(trace.num_turns)
{more}

class Sums(vf.Taskset[Sum, Config]):
    INFINITE = True
    def load(self):
        for a in range(self.config.count):
            yield Sum(Data(prompt=f"{{a}} + 1?", system_prompt="Add.", a=a, answer=str(a + 1){data}), self.config.task)
{env}
__all__ = {exports}
"""
BOXED = "float(trace.messages[-1].content == f'\\\\boxed{{{self.data.answer}}}')"


@pytest.fixture
def environment(tmp_path, monkeypatch):
    pytest.importorskip("verifiers.v1", reason="pip install '.[verifiers]'")
    monkeypatch.syspath_prepend(tmp_path)
    count = iter(range(100))

    def write(
        right="float(trace.last_reply == self.data.answer)",
        more="",
        data="",
        env="",
        exports='["Sums"]',
    ):
        name = f"sums_{next(count)}_{tmp_path.name}"
        code = ENVIRONMENT.format(right=right, more=more, data=data, env=env, exports=exports)
        (tmp_path / f"{name}.py").write_text(code)
        return name

    with consent(True):
        yield write


def test_an_environment_of_verifiers_is_a_task_by_its_own_rewards(environment, declared, tmp_path):
    task = opened(f"verifiers:{environment()}", tmp_path, size=30)
    assert [len(task.examples(split)) for split in task.splits] == [24, 3, 3]
    one = task.examples("train")[0]
    assert [each["role"] for each in one.messages] == ["system", "user"]
    assert one.gold == one.reference["answer"]
    outcome, score = task.judge(one, one.gold)
    assert (score.total, score.parts, outcome.facts) == (
        1.0,
        {"right": 1.0, "long": 0.0},
        {"turns": 1.0},
    )
    assert task.judge(one, "x")[1].total == 0.25
    assert task.judge(one, "x" * 30)[1].total == 0.0
    found = try_reward(task, "run")
    assert found.to_dict()["gold"]["mean"] == 1.0
    assert not found.fatal


def test_gold_answers_in_a_usual_form_are_found_and_others_are_declared(
    environment, declared, tmp_path
):
    task = opened(f"verifiers:{environment(BOXED)}", tmp_path, size=20)
    one = task.examples("train")[0]
    assert one.gold == f"\\boxed{{{one.reference['answer']}}}"
    odd = environment("float(trace.last_reply == '=' + self.data.answer)")
    assert opened(f"verifiers:{odd}", tmp_path, size=20).examples("train")[0].gold is None
    declared_gold = opened(f"verifiers:{odd}", tmp_path, size=20, gold="={answer}")
    assert declared_gold.judge(one := declared_gold.examples("train")[0], one.gold)[1].total == 1
    with pytest.raises(DataError, match=r"gold is .*\{nothing\}"):
        opened(f"verifiers:{odd}", tmp_path, gold="{nothing}").examples("train")


def test_arguments_are_the_taskset_s(environment, declared, tmp_path):
    name = environment()
    assert len(opened(f"verifiers:{name}", tmp_path, args={"count": 10}).examples("train")) == 8
    with pytest.raises(RecipeError, match=f"cannot open .*{name}"):
        opened(f"verifiers:{name}", tmp_path, args={"counts": 10})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"more": "    NEEDS_CONTAINER = True"}, "needs a container"),
        ({"more": "    async def setup(self, trace, runtime): pass"}, "prepares a runtime"),
        (
            {"more": "    @vf.reward\n    async def seen(self, runtime) -> float: return 1.0"},
            "looks into a runtime",
        ),
        ({"more": "    def plugged_judges(self): return [1]"}, "a model judges"),
        ({"more": "    @classmethod\n    def toolsets(cls, config): return [1]"}, "it has tools"),
        (
            {"env": "class Two(vf.Env): pass", "exports": '["Sums", "Two"]'},
            "otherwise than once",
        ),
    ],
)
def test_an_environment_that_needs_more_than_the_answer_is_refused(
    environment, declared, tmp_path, changed, said
):
    with pytest.raises(RecipeError, match=said):
        opened(f"verifiers:{environment(**changed)}", tmp_path).examples("train")


def test_a_reward_outside_of_its_range_stops(environment, declared, tmp_path):
    task = opened(f"verifiers:{environment('2.0')}", tmp_path, gold="{answer}")
    with pytest.raises(RewardError, match=r"right 2\.0"):
        task.judge(task.examples("train")[0], "1")


def test_an_environment_that_a_file_names_needs_consent(
    environment, declared, tmp_path, monkeypatch
):
    name = environment()
    monkeypatch.delenv(imports.CONSENT)
    with pytest.raises(UntrustedCodeError, match=f"names .*{name}"):
        opened("verifiers", tmp_path, environment=name)
    note_typed([f"verifiers:{name}"])
    assert opened("verifiers", tmp_path, environment=name).examples("val")


@pytest.mark.parametrize("name", ["reasoning_gym", "verifiers.v1"])
def test_what_is_not_installed_is_said(declared, tmp_path, monkeypatch, name):
    import sys

    task, option = (
        name.partition(".")[0],
        {"reasoning_gym": "dataset", "verifiers.v1": "environment"}[name],
    )
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RecipeError, match=f"needs {name}"):
        opened(task, tmp_path, **{option: "x"})


def test_a_task_without_parts_takes_none(declared):
    with pytest.raises(RecipeError):
        find_opener("strict-json:anything")


# -- data sets -------------------------------------------------------------------------------------

ROWS = [{"prompt": f"{n} + 1?", "answer": str(n + 1), "id": f"row{n}"} for n in range(20)]


def golds(train, **more):
    options = {"train": train, "score": "m:f", "gold": "answer", **more}
    found = read_records(read_options(options), frozenset({"answer"}))
    return {
        split: [(one.id, one.gold) for one in examples] for split, examples in found.splits.items()
    }


@pytest.fixture
def expected(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, ROWS)
    return golds(str(path))


def test_rows_of_csv_need_nothing_else(expected, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(
        "\ufeffprompt,answer,id\n" + "".join(",".join(row.values()) + "\n" for row in ROWS)
    )
    assert golds(str(path)) == expected
    path.write_text('prompt,answer\n"a\nb",007\n,1,2\n')
    with pytest.raises(DataError, match=r"rows\.csv:\d .* cells"):
        golds(str(path))
    with pytest.raises(DataError, match="does not exist"):
        golds(str(tmp_path / "none.csv"))


def test_rows_of_parquet_and_of_saved_data_sets(expected, tmp_path):
    datasets = pytest.importorskip("datasets", reason="pip install '.[datasets]'")
    made = datasets.Dataset.from_list(ROWS)
    made.to_parquet(tmp_path / "rows.parquet")
    made.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(
        train=made, held=datasets.Dataset.from_list([{**ROWS[0], "prompt": "?", "id": "h"}] * 1)
    ).save_to_disk(tmp_path / "two")
    assert golds(str(tmp_path / "rows.parquet")) == expected
    assert golds(f"hf://{tmp_path}/one") == expected
    assert golds(f"hf://{tmp_path}/two:train") == expected
    assert golds(f"hf://{tmp_path}/two", test=f"hf://{tmp_path}/two:held")["test"] == [("h", "1")]
    for wrong in (
        f"hf://{tmp_path}/two:nothing",
        str(tmp_path / "none.parquet"),
        f"{tmp_path}/broken.parquet",
    ):
        (tmp_path / "broken.parquet").write_bytes(b"no parquet")
        with pytest.raises(DataError, match=re.escape(wrong)):
            golds(wrong)


def test_a_data_set_of_the_hub_is_asked_by_configuration_and_split(monkeypatch):
    datasets = pytest.importorskip("datasets", reason="pip install '.[datasets]'")
    asked = []

    def load(path, config, split):
        asked.append((path, config, split))
        return ROWS

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr("plumbline.tasks.jsonl.files.check_hub", lambda what, *, cached: None)
    golds("hf://openai/gsm8k/main:test")
    golds("hf://openai/gsm8k")
    golds("hf://squad")
    assert asked == [
        ("openai/gsm8k", "main", "test"),
        ("openai/gsm8k", None, "train"),
        ("squad", None, "train"),
    ]
