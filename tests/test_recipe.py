"""Recipes: what they accept, how they are laid over each other, and what they say about a
mistake."""

import hashlib
import json
import re
import sys
from contextlib import suppress
from datetime import date
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.errors import RecipeError
from plumbline.recipe import (
    Recipe,
    difference_lines,
    differences,
    find_recipe,
    group_recipes,
    list_differences,
    list_recipe_names,
    load_recipe,
    options_of,
    parse_recipe,
)
from plumbline.recipe.families import FAMILIES
from plumbline.recipe.files import walk_leaves
from plumbline.recipe.schema_docs import (
    EDITOR_LINE,
    build_json_schema,
    read_key_descriptions,
    render_commented_recipe,
    render_reference,
    section_tables,
)
from plumbline.recipe.sections import NO_RESULT
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run

MINIMAL = {"name": "x", "model": {"name": "some-model"}}
FLOW = {"name": "x", "model": {"name": "m", "family": "flow"}}


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_resolved_recipe_reads_back_as_itself(tmp_path):
    recipe = parse_recipe({**MINIMAL, "rl": {"steps": 3}, "sft": {"epochs": 1}})
    again = load_recipe(write(tmp_path, "again.yaml", recipe.to_yaml()))
    assert again == recipe
    assert again.identity() == recipe.identity()


def test_extends_is_laid_under_key_by_key_and_null_removes_a_section(tmp_path):
    write(
        tmp_path,
        "base.yaml",
        "name: base\nmodel: {name: m}\nsft: {epochs: 1}\nrl: {steps: 5, group_size: 4}\n",
    )
    child = load_recipe(
        write(
            tmp_path, "child.yaml", "extends: base.yaml\nname: child\nsft: null\nrl: {steps: 7}\n"
        )
    )
    assert (child.name, child.rl.steps, child.rl.group_size, child.sft) == ("child", 7, 4, None)


def test_overrides_are_yaml_and_numbers_are_numbers(tmp_path):
    path = write(tmp_path, "r.yaml", "name: x\nmodel: {name: m}\n")
    recipe = load_recipe(
        path,
        [
            "rl.steps=50",
            "rl.optimiser.learning_rate=5e-6",
            "model.lora={rank: 8}",
            "run.trackers=[trackio]",
        ],
    )
    assert recipe.rl.steps == 50
    assert recipe.rl.optimiser.learning_rate == 5e-6
    assert recipe.model.lora.rank == 8
    assert recipe.run.trackers == ["trackio"]


def test_an_override_of_a_tasks_option_is_a_number_where_it_reads_as_one(tmp_path):
    """Nothing else makes a number of YAML 1.1's text `5e-6` there: what a task's options are, only
    the task knows."""
    path = write(tmp_path, "r.yaml", "name: x\nmodel: {name: m}\n")
    given_ = [
        "task.options.rate=5e-6",
        "task.options.size=1E3",
        "task.options.word=free",
        "task.options.count=12",
    ]
    options = load_recipe(path, given_).task.options
    assert options == {"rate": 5e-6, "size": 1000.0, "word": "free", "count": 12}
    assert type(options["count"]) is int


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**MINIMAL, "seeed": 1}, r"key seeed \(.* seed\?\)"),
        (
            {**MINIMAL, "rl": {"steps": 1, "groupsize": 2}},
            r"rl\.groupsize \(.* group_size\?\)",
        ),
        ({**MINIMAL, "rl": {"steps": 1, "optimiser": {"lr": 1}}}, r"unknown key rl.optimiser.lr"),
        ({**MINIMAL, "rl": {"steps": 0}}, r"rl\.steps: .* greater than 0"),
        (
            {**MINIMAL, "rl": {"steps": 1, "group_size": 1}},
            r"rl: rl\.algorithm: grpo .* rl\.group_size is 2",
        ),
        (
            {**MINIMAL, "sampling": {"temperature": 0}},
            r"sampling: temperature .* than 0",
        ),
        (
            {**MINIMAL, "sampling": {"temperature": True}},
            "sampling: temperature is true",
        ),
        (
            {**MINIMAL, "sampling": {"top_q": 1}},
            r"sampling\.top_q \(.* top_p\?\)",
        ),
        ({**MINIMAL, "sampling": {"top_p": 3}}, r"sampling: top_p must lie in \(0, 1\]"),
        ({**MINIMAL, "sampling": []}, r"sampling: .* dictionary"),
        (
            {"name": "x", "model": {"name": "m", "decodr": "lean"}},
            r"model\.decodr \(.* decoder",
        ),
        (
            {**MINIMAL, "rl": {"steps": 1, "optimiser": {"learning_rate": float("inf")}}},
            "learning_rate",
        ),
        ({**MINIMAL, "sft": {}}, "give either sft.steps or sft.epochs"),
        (
            {**FLOW, "rl": {"steps": 1, "algorithm": {"keep": 9}}, "sampling": {"steps": 4}},
            r"rl\.algorithm\.keep is 9, .* 4 steps",
        ),
        ({**MINIMAL, "seed": True}, "seed is true"),
        (
            {**MINIMAL, "rl": {"steps": 10, "optimiser": {"warmup": 500}}},
            r"warmup is 500 .* 10\b",
        ),
        (
            {**MINIMAL, "sft": {"steps": 10, "optimiser": {"warmup": 11}}},
            r"warmup is 11 .* 10\b",
        ),
        (
            {"name": "x", "model": {"name": "m", "dtype": "float16"}},
            r"model\.dtype: .*'auto', 'float32'",
        ),
        ({"name": "x", "model": {"name": "m"}, "sft": {"steps": 1, "seconds": 0}}, "sft.seconds"),
        ({"name": "x", "model": {"name": "m", "quantize": "4bit"}}, "set model.lora"),
    ],
)
def test_a_mistake_is_named_with_its_path(values, message):
    with pytest.raises(RecipeError, match=message):
        parse_recipe(values)


@pytest.mark.parametrize("name", list_recipe_names())
def test_every_recipe_that_comes_along_is_valid(name):
    assert load_recipe(name).description


@pytest.mark.parametrize(
    ("family", "values", "message"),
    [
        (
            "autoregressive",
            {"sampling": {"selector": "plackett_luce"}},
            r"sampling\.selector .* masked and slots",
        ),
        (
            "autoregressive",
            {"sampling": {"steps": 8}},
            r"sampling\.steps .* masked .* slots .* flow",
        ),
        ("masked", {"rl": {"steps": 1, "kl": "forward"}}, r"family masked, .* rl\.kl: forward"),
        (
            "slots",
            {"rl": {"steps": 1, "beta": 1, "teacher": {"hint": "x"}}},
            r"rl\.teacher\.hint and again .* autoregressive",
        ),
        ("masked", {"sampling": {"kernel": "marginal"}}, r"sampling\.kernel .* flow"),
        ("masked", {"model": {"decoder": "lean"}}, r"model\.decoder .* autoregressive"),
        (
            "slots",
            {"sampling": {"selector": "ancestral"}},
            "sampling.selector: Input should be 'plackett_luce'",
        ),
        (
            "slots",
            {"model": {"attention": "prefix"}},
            r"model\.attention .* masked and flow",
        ),
        ("slots", {"rl": {"steps": 1, "algorithm": "espo"}}, r"rl\.algorithm: espo .* masked"),
        (
            "slots",
            {"rl": {"steps": 1, "algorithm": {"keep": 2}}},
            r"rl\.algorithm\.keep: 2 .* masked and flow",
        ),
        ("flow", {"model": {"slot": 8}}, r"model\.slot .* slots"),
        (
            "flow",
            {"model": {"mask_token": "x"}},
            r"model\.mask_token .* masked and slots",
        ),
        (
            "flow",
            {"sampling": {"blocks": 2}, "evaluation": {"steps": 4}},
            r"sampling\.blocks .* masked and slots",
        ),
    ],
)
def test_a_key_that_the_family_does_not_read_is_an_error_that_names_those_that_do(
    family, values, message
):
    """It was passed over in silence."""
    with pytest.raises(RecipeError, match=message):
        parse_recipe(
            {
                **MINIMAL,
                **values,
                "model": {"name": "m", "family": family, **values.get("model", {})},
            }
        )


def test_a_recipe_of_another_family_is_extended_where_its_own_keys_have_their_defaults(tmp_path):
    write(
        tmp_path,
        "masked.yaml",
        "name: x\nmodel: {name: m, family: masked}\nsampling: {selector: plackett_luce}",
    )
    flow = "extends: masked.yaml\nmodel: {family: flow}\n"
    with pytest.raises(RecipeError, match=r"sampling\.selector .* masked and slots"):
        load_recipe(write(tmp_path, "flow.yaml", flow))
    assert (
        load_recipe(
            write(tmp_path, "flow.yaml", flow + "sampling: {selector: random}")
        ).model.family
        == "flow"
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_recipe_prints_the_keys_of_its_family_only(family):
    values = {
        "name": "x",
        "model": {"name": "m", "family": family},
        "sft": {"steps": 1},
        "rl": {"steps": 1},
    }
    printed = dict(walk_leaves(yaml.safe_load(parse_recipe(values).to_yaml())))
    every = {
        key for one in FAMILIES for key in (*options_of(one).defaults(), *options_of(one).reads)
    }
    mine = {*options_of(family).defaults(), *options_of(family).reads}
    assert {key for key in printed if key in every} == mine


OWN = """
from dataclasses import dataclass
from plumbline.recipe import FamilyOptions, ModelSection
from plumbline.records import SteppedSampling

class Model(ModelSection):
    how = ModelSection.how | {"speed"}
    depth: int = 3
    speed: float = 1.0

@dataclass(frozen=True, kw_only=True)
class OwnSampling(SteppedSampling):
    heat: float = 2.0

class Policy:
    options = FamilyOptions(model=Model, sampling=OwnSampling,
    reads=frozenset({"evaluation.steps"}))

    @classmethod
    def open(cls, section, source, seed=0): ...

class Undeclared:
    open = Policy.open
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The values of a recipe of a family of one's own."""
    write(tmp_path, "own_family.py", OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield {
        "name": "x",
        "model": {"name": "m", "family": "own_family:Policy", "depth": 5},
        "sampling": {"steps": 3},
        "evaluation": {"steps": 2},
    }
    sys.modules.pop("own_family", None)


def test_a_family_of_ones_own_has_keys_of_its_own_and_no_others(own):
    recipe = parse_recipe(own)
    assert (recipe.model.depth, recipe.sampling.heat, recipe.sampling.most_steps) == (5, 2.0, 3)
    assert recipe.model.meaning()["depth"] == 5
    assert "speed" not in recipe.model.meaning()
    with pytest.raises(RecipeError, match=r"model\.dept .* depth\?"):
        parse_recipe({**own, "model": {**own["model"], "dept": 1}})
    with pytest.raises(RecipeError, match=r"model\.canvas .* masked"):
        parse_recipe({**own, "model": {**own["model"], "canvas": 8}})
    with pytest.raises(RecipeError, match=r"rl\.kl: closed .* autoregressive .* masked"):
        parse_recipe({**own, "rl": {"steps": 1, "kl": "closed"}})
    with pytest.raises(RecipeError, match="own_family:Undeclared"):
        parse_recipe({**own, "model": {"name": "m", "family": "own_family:Undeclared"}})


def test_a_run_of_a_family_that_is_not_there_any_more_can_be_read(own, tmp_path):
    recipe = parse_recipe(own)
    with Run.start(recipe, tmp_path / "run") as run:
        run.metrics("rl", 1, {})
    with Run.start(recipe, tmp_path / "run", resume=True):
        assert RunRecord.read(tmp_path / "run").recipe.model_dump() == recipe.model_dump()
    (tmp_path / "own_family.py").unlink()
    sys.modules.pop("own_family")
    read = RunRecord.read(tmp_path / "run").recipe
    assert list(differences(recipe, read)) == []
    with pytest.raises(RecipeError, match="own_family:"):
        parse_recipe(own)


def test_differences_are_leaves_with_old_and_new():
    old, new = (
        parse_recipe({**MINIMAL, "rl": {"steps": 200}}),
        parse_recipe({**MINIMAL, "rl": {"steps": 600}, "seed": 3}),
    )
    assert list(differences(old, new)) == [("seed", 0, 3), ("rl.steps", 200, 600)]


def test_two_recipes_are_compared_a_line_a_key():
    old = parse_recipe({**MINIMAL, "rl": {"steps": 200}, "description": "one"})
    new = parse_recipe(
        {**MINIMAL, "rl": {"steps": 600}, "description": "two", "name": "other", "seed": 3}
    )
    assert difference_lines(list_differences(old, new)) == [
        "seed      0    3\n",
        "rl.steps  200  600\n",
    ]
    renamed = parse_recipe({**MINIMAL, "rl": {"steps": 200}, "description": "one", "name": "other"})
    assert difference_lines(list_differences(old, renamed)) == [f'name  "{old.name}"  "other"\n']
    assert difference_lines(list_differences(old, old)) == []
    lines = [
        line.split()
        for line in difference_lines(
            list_differences(old, parse_recipe({**MINIMAL, "sft": {"steps": 4}}))
        )
    ]
    assert ["rl.steps", "200", "-"] in lines
    assert ["sft.steps", "-", "4"] in lines


def test_where_a_run_is_written_does_not_change_its_identity():
    recipe = parse_recipe(MINIMAL)
    assert (
        parse_recipe({**MINIMAL, "run": {"folder": "elsewhere", "trackers": ["wandb"]}}).identity()
        == recipe.identity()
    )
    assert parse_recipe({**MINIMAL, "seed": 1}).identity() != recipe.identity()


def test_the_day_of_prompts_is_a_key_and_its_default_changes_no_identity():
    recipe, model = parse_recipe(MINIMAL), MINIMAL["model"]
    content = recipe.model_dump(mode="json", exclude=set(NO_RESULT))
    del content["model"]["date"]  # as versions without the key wrote it
    assert (
        recipe.identity()
        == hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
    )
    for day in ("2026-11-25", date(2026, 11, 25)):  # YAML reads a day that is not quoted as one
        other = parse_recipe({**MINIMAL, "model": {**model, "date": day}})
        assert other.model.date == other.model.meaning()["date"] == "2026-11-25"
        assert other.identity() != recipe.identity()
        assert parse_recipe(yaml.safe_load(other.to_yaml())) == other
    for wrong in ("tomorrow", 7, None, "2026-02-30"):
        with pytest.raises(RecipeError, match=f"{wrong} is no day: .*2024-07-26"):
            parse_recipe({**MINIMAL, "model": {**model, "date": wrong}})


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=8),
        st.one_of(
            st.none(), st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=2)
        ),
        max_size=5,
    )
)
def test_any_mapping_is_a_recipe_or_a_recipe_error(values):
    with suppress(RecipeError):
        assert isinstance(parse_recipe(values), Recipe)


def test_a_recipe_that_extends_far_too_many_is_an_error(tmp_path):
    for number in range(500):
        write(tmp_path, f"{number}.yaml", f"extends: {number + 1}.yaml\n")
    with pytest.raises(RecipeError, match="more than 20 recipes"):
        load_recipe(tmp_path / "0.yaml")


# -- keys that can be looked up --------------------------------------------------------------------

KEYS = Path(__file__).parents[1] / "docs" / "reference" / "keys.md"


def test_the_page_of_keys_is_what_the_code_says():
    """`python -m plumbline.recipe.schema_docs > docs/reference/keys.md` writes it again."""
    assert KEYS.read_text(encoding="utf-8") == render_reference()
    assert len(render_reference().split()) <= 4500


def test_no_key_lacks_a_description():
    rows = {
        (table.paths[0], key): meaning
        for table in section_tables()
        for key, (_, meaning) in table.rows.items()
    }
    assert {
        ("rl", "steps"),
        ("sampling", "kernel"),
        ("model", "mask_token"),
        ("task.options", "gold"),
    } <= rows.keys()
    assert [
        key for key, meaning in rows.items() if not re.sub(r"^\([\w, ]+\)", "", meaning).strip()
    ] == []


@pytest.mark.parametrize("name", ["demo-flow", "mixed-demo", "commerce-v4.1"])
def test_a_recipe_with_comments_reads_back_as_itself_and_says_what_each_key_means(name, tmp_path):
    recipe = load_recipe(name)
    text = render_commented_recipe(recipe)
    assert load_recipe(write(tmp_path, "again.yaml", text)) == recipe
    assert text.startswith(EDITOR_LINE)
    lines = text.splitlines()
    at = lines.index("  steps: " + str(recipe.rl.steps), lines.index("rl:"))
    assert lines[at - 1] == f"  # {read_key_descriptions(type(recipe.rl))['steps']}"


def test_the_schema_for_editors_takes_every_recipe_and_marks_wrong_keys():
    validator = jsonschema.Draft202012Validator(build_json_schema())
    validator.check_schema(build_json_schema())
    for name in list_recipe_names():
        values = yaml.safe_load(find_recipe(name).read_text(encoding="utf-8"))
        assert not [error.message for error in validator.iter_errors(values)], name
    for name in ("demo-flow", "commerce-v4.1"):
        assert validator.is_valid(load_recipe(name).to_dict()), name
    jsonl = {
        "name": "jsonl",
        "options": {"train": "x.csv", "score": ["a:f", "a:g"], "weights": [1, 2]},
    }
    good = {
        **MINIMAL,
        "task": jsonl,
        "rl": {"algorithm": {"name": "gdpo", "mask_samples": 2}},
        "engine": "vllm",
    }
    assert validator.is_valid(good)
    assert validator.is_valid({"model": {"family": "mine:Policy", "depth": 3}})
    for wrong in (
        {"seeed": 1},
        {"rl": {"stepz": 1}},
        {"rl": {"algorithm": "grop"}},
        {"model": {"decodr": "lean"}},
        {"sampling": {"top_q": 1}},
        {"task": {**jsonl, "options": {"promt": "x"}}},
    ):
        assert not validator.is_valid({**good, **wrong}), wrong
    described = build_json_schema()["$defs"]["RlSection"]["properties"]
    assert all("description" in key for key in described.values())


def test_what_a_person_would_start_is_listed_under_headings_that_the_recipes_bring():
    groups = group_recipes()
    assert next(iter(groups)) == "First steps"
    listed = [name for some in groups.values() for name in some]
    assert len(listed) == len(set(listed)) < len(list_recipe_names())
    assert not [name for name in listed if re.search(r"-control|v4\.2-|seed-v8|unverified", name)]


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ("Qwen/Qwen3-0.6B", "--model Qwen/Qwen3-0.6B --data FILE --reward"),
        ("my-model", "--model my-model --data FILE --reward"),
        ("rows.csv", "--model MODEL --data rows.csv --reward"),
        ("my rows.jsonl", "--model MODEL --data 'my rows.jsonl' --reward"),
        ("missing.parquet", "--model MODEL --data missing.parquet --reward"),
    ],
)
def test_a_model_or_rows_in_place_of_a_recipe_are_answered_with_the_command_that_writes_one(
    tmp_path, monkeypatch, source, command
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").mkdir()
    for name in ("my-model/config.json", "rows.csv", "my rows.jsonl"):
        write(tmp_path, name, "{}")
    with pytest.raises(RecipeError) as error:
        load_recipe(source)
    assert f"plumbline init {command} MODULE:FUNCTION" in error.value.fix
