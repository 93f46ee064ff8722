"""Each finding before a run: planted by itself, it is found, and nothing else that is fatal is."""

import json
import random
import shutil
import struct
import subprocess
from dataclasses import replace
from functools import partial

import pytest

from plumbline import api
from plumbline.checks.audit import trial
from plumbline.checks.preflight.overlap import ALIKE, find_near_texts
from plumbline.checks.preflight.report import preflight_source, run_preflight
from plumbline.errors import RunError
from plumbline.recipe import parse_recipe
from plumbline.records import Evaluation, Judged, Sampling
from plumbline.runs.evaluations import EvaluationKey, write_evaluation
from plumbline.runs.metadata import ModelMetadata
from plumbline.runs.record import RunRecord
from tests.preflight.rows import SPLITS, some_rows

TEMPLATE, WEIGHTS, INDEX = (
    "chat_template.jinja",
    "model.safetensors",
    "model.safetensors.index.json",
)


class Plan:
    """A recipe and what it reads, healthy until a test plants something."""

    def __init__(self, place, model) -> None:
        self.place, self.model = place, model
        self.rows = SPLITS["planted"] = {
            "train": some_rows("train", 160),
            "val": some_rows("val", 60),
            "test": some_rows("test", 60),
        }
        self.values = {
            "name": "planned",
            "model": {"name": str(model)},
            "task": {"name": "tests.preflight.rows:open_rows", "options": {"rows": "planted"}},
            "rl": {"steps": 100, "prompts_per_step": 3, "group_size": 8},
            "sampling": {"max_tokens": 16},
        }

    def set(self, **values) -> None:
        """Keys with two underscores for a point."""
        for key, value in values.items():
            *path, last = key.split("__")
            inner = self.values
            for part in path:
                inner = inner.setdefault(part, {})
            inner[last] = value

    def change(self, split: str, index: int, **changed) -> None:
        self.rows[split][index] = replace(self.rows[split][index], **changed)

    def own_model(self):
        """A copy of the model to be broken."""
        folder = shutil.copytree(self.model, self.place / "model")
        self.set(model__name=str(folder))
        return folder

    def look(self):
        return run_preflight(parse_recipe(self.values), self.place / "runs" / "planned")


@pytest.fixture
def plan(tmp_path, monkeypatch, tiny_folder):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(trial.EXAMPLES, "run", 20)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    return Plan(tmp_path, tiny_folder)


def test_a_healthy_recipe_has_no_finding_and_says_what_was_looked_at(plan):
    found = plan.look()
    assert found.findings == ()
    (seen,) = found.looked_at
    assert all(f"{split} {len(rows)}" in seen for split, rows in plan.rows.items())
    assert found.not_run == {"ignored-files": ["a git work tree"]} or not found.not_run


# -- what is planted: a function that breaks the plan, and the finding -----------------------------


def a_prompt_in_both(plan):
    plan.change("val", 3, messages=plan.rows["train"][5].messages)


def near_copies(plan, count=12):
    for index in range(count):
        twin = plan.rows["train"][10 + index]
        text = twin.messages[1]["content"].split()
        text[-1] = f"novo{index}"
        messages = [twin.messages[0], {"role": "user", "content": " ".join(text)}]
        plan.change("val", index, gold=twin.gold, messages=messages)


def near_copies_with_another_answer(plan):
    near_copies(plan)
    for index in range(12):
        plan.change("val", index, gold="outro")


def ids_twice(plan):
    plan.change("val", 0, id="train-7")


def the_same_customers(plan):
    for split in ("train", "val"):
        for index, row in enumerate(plan.rows[split]):
            plan.change(split, index, reference={**row.reference, "customer_id": f"c{index // 2}"})


def products_of_a_shop(plan):
    for split in ("train", "val"):
        for index, row in enumerate(plan.rows[split]):
            plan.change(split, index, reference={**row.reference, "order": index % 9})


def a_long_prompt(plan):
    row = plan.rows["test"][0]
    plan.change(
        "test", 0, messages=[*row.messages[:1], {"role": "user", "content": "palavra " * 90}]
    )


def long_answers(plan, count=160):
    for index in range(count):
        plan.change("train", index, gold=plan.rows["train"][index].gold * 8)


def demonstrations_cut(plan):
    plan.set(sft={"steps": 30, "allow_truncation": True}, rl=None)
    plan.change("train", 0, messages=[{"role": "user", "content": "palavra " * 90}])


def demonstrations_too_long(plan):
    demonstrations_cut(plan)
    plan.set(sft__allow_truncation=False)


def two_beginnings(plan):
    folder = plan.own_model()
    edit(folder / "tokenizer_config.json", bos_token="<|endoftext|>")
    (folder / TEMPLATE).write_text("<|endoftext|><|endoftext|>" + (folder / TEMPLATE).read_text())


def no_beginning(plan):
    folder = plan.own_model()
    edit(folder / "tokenizer_config.json", bos_token="<|endoftext|>")
    name = "<|endoftext|>"
    first = [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    known = {name: {"id": name, "ids": [0], "tokens": [name]}}
    pair = [*first, {"Sequence": {"id": "B", "type_id": 1}}]
    processor = {
        "type": "TemplateProcessing",
        "single": first,
        "pair": pair,
        "special_tokens": known,
    }
    edit(folder / "tokenizer.json", post_processor=processor)


def marks_in_the_data(plan):
    row = plan.rows["train"][2]
    plan.change(
        "train",
        2,
        messages=[{"role": "user", "content": row.messages[1]["content"] + "<|im_end|>"}],
    )


def a_thought_is_opened(plan):
    template = plan.own_model() / TEMPLATE
    template.write_text(template.read_text() + "{% if add_generation_prompt %}<think>\n{% endif %}")
    plan.set(
        task__options__reward="thought", sampling__max_tokens=64, sft={"steps": 9, "batch_size": 4}
    )
    for split, rows in plan.rows.items():
        for index, row in enumerate(rows):
            plan.change(split, index, gold=f"<think>hm</think>{row.gold}")


def another_template(plan):
    plan.own_model()
    (plan.place / "mine.jinja").write_text(
        "{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}"
    )
    plan.set(model__chat_template="mine.jinja")


def a_file_is_cut(plan):
    path = plan.own_model() / WEIGHTS
    path.write_bytes(path.read_bytes()[:-100])


def pickles_only(plan):
    folder = plan.own_model()
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


def weights_twice(plan):
    folder = plan.own_model()
    (folder / "pytorch_model.bin").write_bytes((folder / WEIGHTS).read_bytes())


def no_tokenizer(plan):
    folder = plan.own_model()
    for path in (
        *folder.glob("tokenizer*"),
        *folder.glob("chat_template*"),
        *folder.glob("special*"),
    ):
        path.unlink()


def few_to_evaluate(plan):
    plan.rows["test"] = plan.rows["test"][:25]


def rows_in_order(plan):
    plan.rows["val"].sort(key=lambda row: row.stratum)
    plan.set(evaluation__limit=30)


def a_kind_is_never_asked(plan):
    plan.rows["test"] = [row for row in some_rows("test", 120) if row.stratum == "long"]


def few_of_each_kind(plan):
    for split in ("train", "val", "test"):
        for index in range(len(plan.rows[split])):
            plan.change(split, index, stratum=f"kind {index % 40}")
    plan.set(evaluation__limit=None)


def hopeless_prompts(plan):
    """An earlier run of the recipe, whose base answered 3 of 60 prompts."""
    rows = [
        Judged(
            id=f"val-{i}",
            stratum="",
            completion="",
            how="text",
            reward=float(i < 3),
            parts={},
            readings={},
        )
        for i in range(60)
    ]
    folder = plan.place / "runs" / "planned"
    (folder / "evaluations").mkdir(parents=True)
    (folder / "recipe.yaml").write_text(parse_recipe(plan.values).to_yaml())
    of = {"source": "base", "task": "rows", "split": "val", "rubric": "rows"}
    evaluation = Evaluation(**of, sampling=Sampling(), seed=0, rows=rows)
    write_evaluation(
        folder / "evaluations" / f"{EvaluationKey('base', 'val', 'sampled')}.json", evaluation
    )


def another_sampling_than_before(plan):
    card = ModelMetadata(
        recipe="sft 0",
        stage="sft",
        task="rows",
        options={},
        sampling={"temperature": 0.7, "max_tokens": 16},
    )
    (plan.own_model() / "plumbline.json").write_text(json.dumps(card.to_json()))


def git_ignores(plan, pattern):
    subprocess.run(["git", "-C", str(plan.place), "init", "-q"], check=True)
    (plan.place / ".gitignore").write_text(pattern)


def files_that_git_ignores(plan):
    git_ignores(plan, "/data/\n")
    (plan.place / "data").mkdir()
    shutil.copy(plan.model / TEMPLATE, plan.place / "data" / "mine.jinja")
    plan.set(model__chat_template="data/mine.jinja")


def a_model_that_git_ignores(plan):
    git_ignores(plan, "/model/\n")
    plan.own_model()


def edit(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


MASKED = {"tiny": {"context": 256}, "family": "masked", "threads": 1}
SETTINGS = {
    # what is planted by the recipe alone: (values with two underscores for a point, check, level)
    "no mask": ({"model__family": "masked", "sampling__steps": 4}, "template", "fatal"),
    "no model": ({"model__name": "models/smollm2-135m"}, "model", "fatal"),
    "gold earns half": ({"task__options__reward": "half"}, "oracle", "fatal"),
    "all earn all": ({"task__options__reward": "all"}, "part-constant", "warning"),
    "few inside": ({"evaluation__limit": 10}, "evaluation-size", "warning"),
    "half a run": ({"rl__steps": 25}, "coverage", "note"),
    "short run": ({"rl__steps": 12}, "coverage", "warning"),
    "small groups": ({"rl__group_size": 2}, "groups", "warning"),
    "rate of nothing": ({"rl__optimiser__learning_rate": 1e-8}, "small-updates", "warning"),
    "rate of sft": (
        {"model": {"name": "Qwen/Qwen3-8B"}, "rl__optimiser__learning_rate": 2e-4},
        "rate",
        "warning",
    ),
    "rate of all weights": (
        {"model": {"name": "Qwen/Qwen3-8B", "lora": {}}, "rl__optimiser__learning_rate": 9e-7},
        "rate",
        "warning",
    ),
    "a cosine": ({"rl__optimiser": {"schedule": "cosine", "warmup": 0.1}}, "schedule", "warning"),
    "a long warmup": ({"rl__optimiser": {"warmup": 60}}, "schedule", "warning"),
    "two temperatures": ({"controls__score_temperature": 0.7}, "sampling", "warning"),
    "two numbers of steps": (
        {"model": MASKED, "sampling__steps": 4, "evaluation__steps": 16},
        "sampling",
        "warning",
    ),
    "stale and uncorrected": (
        {"rl__off_policy_steps": 2, "rl__old": "rescored"},
        "sampling",
        "warning",
    ),
    "an idle clip": ({"rl__algorithm": {"name": "grpo", "clip_high": 0.28}}, "clip-idle", "note"),
    "a hub name": ({"model": {"name": "some/model", "context": 256}}, "reproducible", "note"),
    "threads as the machine has": ({"model": {"tiny": {"context": 512}}}, "reproducible", "note"),
}
FILES = {
    # a file of the model: its content, None where it is not there, and the check that finds it
    "no template": (TEMPLATE, None, "template"),
    "no place for the system": (
        TEMPLATE,
        b"{% for m in messages if m['role'] != 'system' %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}",
        "template",
    ),
    "refuses the system": (
        TEMPLATE,
        b"{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}<|im_start|>x<|im_end|>",
        "template",
    ),
    "no weights": (WEIGHTS, None, "checkpoint"),
    "a shard is absent": (
        INDEX,
        b'{"weight_map": {"a": "model.safetensors", "b": "model-2-of-2.safetensors"}}',
        "checkpoint",
    ),
    "a weight is in no file": (
        INDEX,
        b'{"weight_map": {"lost": "model.safetensors"}}',
        "checkpoint",
    ),
    "a header is cut": (WEIGHTS, struct.pack("<Q", 10**6) + b"{", "checkpoint"),
    "a header is none": (WEIGHTS, struct.pack("<Q", 4) + b"null", "checkpoint"),
    "a pointer": (
        WEIGHTS,
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        "checkpoint",
    ),
}
PLANTED = [
    (a_prompt_in_both, "overlap", "fatal"),
    (near_copies, "near-copies", "fatal"),
    (partial(near_copies, count=3), "near-copies", "warning"),
    (partial(near_copies, count=1), "near-copies", "note"),
    (near_copies_with_another_answer, None, None),
    (ids_twice, "overlap", "warning"),
    (the_same_customers, "entity", "warning"),
    (products_of_a_shop, "entity", "note"),
    (a_long_prompt, "context", "fatal"),
    (long_answers, "targets", "fatal"),
    (partial(long_answers, count=9), "targets", "warning"),
    (demonstrations_cut, "targets", "warning"),
    (demonstrations_too_long, "targets", "fatal"),
    (two_beginnings, "template", "fatal"),
    (no_beginning, "template", "warning"),
    (marks_in_the_data, "template", "warning"),
    (a_thought_is_opened, "template", "warning"),
    (another_template, "template", "warning"),
    (a_file_is_cut, "checkpoint", "fatal"),
    (pickles_only, "checkpoint", "warning"),
    (weights_twice, "checkpoint", "warning"),
    (no_tokenizer, "checkpoint", "fatal"),
    (few_to_evaluate, "evaluation-size", "warning"),
    (rows_in_order, "strata", "warning"),
    (a_kind_is_never_asked, "strata", "warning"),
    (few_of_each_kind, "strata", "note"),
    (hopeless_prompts, "groups", "warning"),
    (another_sampling_than_before, "sampling", "warning"),
    (files_that_git_ignores, "ignored-files", "warning"),
    (a_model_that_git_ignores, "ignored-files", "note"),
]


def assert_found(plan, check, level):
    found = plan.look().findings
    assert [finding.check for finding in found if finding.level == "fatal"] == [check] * (
        level == "fatal"
    )
    assert (check, level) in {(finding.check, finding.level) for finding in found} | {(None, None)}
    assert {finding.check for finding in found} <= {check, "reproducible"}


@pytest.mark.parametrize(
    ("plant", "check", "level"), PLANTED, ids=lambda one: getattr(one, "__name__", None)
)
def test_what_is_planted_is_found_and_nothing_else_is_fatal(plan, plant, check, level):
    plant(plan)
    assert_found(plan, check, level)


def test_examples_that_share_a_cluster_are_said_to_count_for_less(plan):
    few_to_evaluate(plan)
    alone = [one.evidence for one in plan.look().findings if one.check == "evaluation-size"]
    plan.rows["test"] = [
        replace(row, cluster=f"c{n // 5}") for n, row in enumerate(plan.rows["test"])
    ]
    shared = [one.evidence for one in plan.look().findings if one.check == "evaluation-size"]
    assert [evidence["clusters"] for evidence in (*alone, *shared)] == [False, True]


@pytest.mark.parametrize("what", SETTINGS)
def test_what_the_recipe_says_is_found_and_nothing_else_is_fatal(plan, what):
    values, check, level = SETTINGS[what]
    plan.set(**values)
    assert_found(plan, check, level)


@pytest.mark.parametrize("what", FILES)
def test_a_broken_file_of_a_model_is_found_and_nothing_else_is_fatal(plan, what):
    name, content, check = FILES[what]
    path = plan.own_model() / name
    path.unlink() if content is None else path.write_bytes(content)
    assert_found(plan, check, "fatal")


def test_a_finding_says_why_what_to_do_and_how_in_the_recipe(plan):
    plan.set(rl__steps=12)
    (plan.own_model() / TEMPLATE).unlink()
    found = {finding.check: finding for finding in plan.look().findings}
    assert found["coverage"].change == {"rl.steps": 54}
    assert found["coverage"].evidence["rows"]["drawn"] == 36
    assert found["template"].change == {"model.chat_template": "chatml"}
    assert all(finding.causes and finding.fix for finding in found.values())


# -- nearly equal texts ----------------------------------------------------------------------------


def test_nearly_equal_texts_are_those_that_a_comparison_of_all_with_all_finds():
    rng = random.Random(1)
    texts = [
        [rng.choice("abcdefghijklmnop") * 2 for _ in range(rng.randrange(3, 40))] for _ in range(60)
    ]
    for text in texts[:30]:
        twin = list(text)
        for _ in range(rng.randrange(3)):
            twin[rng.randrange(len(twin))] = "neu"
        texts.append(twin)
    held_out, train = (
        [" ".join(text) for text in texts[:30]],
        [" ".join(text) for text in texts[30:]],
    )

    def shingles(text):
        words = text.split()
        return {tuple(words[at : at + 5]) for at in range(max(1, len(words) - 4))}

    def jaccard(one, other):
        return len(shingles(one) & shingles(other)) / len(shingles(one) | shingles(other))

    best = {
        place: max(jaccard(text, other) for other in train) for place, text in enumerate(held_out)
    }
    wanted = {place: alike for place, alike in best.items() if alike >= ALIKE}
    found = find_near_texts(held_out, train)
    assert 5 < len(wanted) < 30
    assert {one.held_out: one.alike for one in found} == pytest.approx(wanted)
    assert all(
        jaccard(held_out[one.held_out], train[one.train]) == pytest.approx(one.alike)
        for one in found
    )


def test_an_instruction_that_all_prompts_have_is_no_likeness():
    instruction = " ".join(f"instruction{place}" for place in range(40)) + ": "
    rng = random.Random(2)
    texts = [instruction + " ".join(rng.choices("abcdefghijklmnop", k=4)) for _ in range(120)]
    assert find_near_texts(texts[:20], texts[20:]) == []
    assert [one.train for one in find_near_texts(texts[20:21], texts[20:])] == [0]
    assert (
        find_near_texts([], ["a"])
        == find_near_texts(["a"], [])
        == find_near_texts([""], [""])
        == []
    )


# -- the command, and a run that does not begin ----------------------------------------------------


def test_the_command_takes_a_recipe_and_ends_with_1_where_something_is_fatal(plumbline, plan):
    (plan.place / "mine.yaml").write_text(json.dumps(plan.values))
    code, out, _ = plumbline("check", "mine.yaml")
    assert code == 0
    assert "planned: taken for a recipe" in out
    assert "nothing found" in out
    code, out, err = plumbline("check", "mine.yaml", "--set", "sampling.max_tokens=240", "--json")
    assert (code, err) == (1, "")
    said = json.loads(out)
    (stage,) = said["stages"]
    assert (said["fatal"], stage["origin"], stage["recipe"]) == (True, "recipe", "planned")
    assert stage["findings"][0]["check"] == "context"
    assert list(plan.place.iterdir()) == [plan.place / "mine.yaml"]


def test_a_folder_is_no_recipe_though_it_has_the_name_of_one(plumbline, plan):
    (plan.place / "commerce-tiny").mkdir()
    assert "no record" in plumbline("check", "commerce-tiny")[2]
    assert "--set" in plumbline("check", "commerce-tiny", "--set", "seed=1")[2]


def test_a_run_does_not_begin_with_what_is_fatal_unless_told_to(plan):
    near_copies(plan)
    says = r"preflight failed: 12 of 60 prompts of val .*\(near-copies\)"
    with pytest.raises(RunError, match=says) as refused:
        api.run(plan.values, quiet=True)
    assert "run.preflight=false" in refused.value.fix
    assert RunRecord.read(plan.place / "runs" / "planned").evaluations() == {}
    plan.set(
        run__preflight=False,
        run__folder="anyway",
        evaluation={"every": 0, "final": ["test"]},
        rl__steps=1,
    )
    assert api.run(plan.values, quiet=True).result()["status"] == "finished"


def test_a_shipped_recipe_is_looked_at_in_a_second_or_two(plan):
    found = preflight_source("commerce-tiny")
    assert {finding.check: finding.level for finding in found.findings} == {"coverage": "note"}
    assert found.looked_at[0].startswith("records are not built yet")
    assert list(plan.place.iterdir()) == []
