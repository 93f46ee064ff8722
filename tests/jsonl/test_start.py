"""A first recipe for rows and a reward function: what is written, what is said, and what a script
for TRL becomes."""

import json
import re
from contextlib import nullcontext, suppress

import pytest
import yaml

from plumbline.checks.audit.trial import try_reward
from plumbline.config.imports import consent
from plumbline.errors import DataError, RecipeError, RewardError, StorageError
from plumbline.recipe import load_recipe, parse_recipe
from plumbline.recipe.from_trl import read_script
from plumbline.storage import write_jsonl
from plumbline.tasks.jsonl.init_recipe import _address, add_script_options, write_init_recipe
from plumbline.training.pipeline import run_recipe

TRL = """
import re
def accuracy(completions, answer, **kwargs):
    return [2.0 if re.findall("#### (.+)", text)[-1:] == [one] else 0.0 for text, one in zip(completions, answer)]
def form(completions, **kwargs):
    return [0.5 * ("####" in text) for text in completions]
def picky(completions, answer, **kwargs):
    return [float(text == f"never {one}") for text, one in zip(completions, answer)]
def score(completion, answer):
    return float(completion.strip() == answer)
def named(completion, answer):
    return {"right": float(completion.strip() == answer), "brief": float(len(completion) < 4)}
class Nameless(dict):
    def __iter__(self): raise ValueError("no names")
def nameless(completion): return Nameless(a=1)
def broken(completion):
    return completion["x"]
"""


def begin(place, reward="accuracy,form", out="recipe.yaml", *, trusted=True, **more):
    given = {"model": "some/model-1b", "data": "rows.jsonl", "script": None, **more}
    names = ",".join(f"{place.module}:{name}" for name in reward.split(",")) if reward else None
    with consent(trusted):
        lines, _ = write_init_recipe(
            add_script_options(reward=names, out=place.folder / out, **given), try_reward
        )
    return (
        "\n".join(lines),
        yaml.safe_load((place.folder / out).read_text()),
        (place.folder / out).read_text(),
    )


@pytest.fixture
def place(workplace):
    workplace.functions(TRL)
    return workplace


def test_a_recipe_is_written_from_what_the_rows_and_the_reward_are_and_it_runs(place, tiny_folder):
    said, values, text = begin(place, model=str(tiny_folder))
    options = values["task"]["options"]
    assert (options["prompt"], options["gold"]) == ("prompt", "#### {answer}")
    assert options["range"] == {"accuracy": [0, 2], "form": [0, 0.5]}
    assert "range: {accuracy" in said
    assert re.search(r"label, .* 0\.000 .*'#### {answer}'", said)
    assert "(32 train, 4 val, 4 test)" in said
    assert "prompt, answer, kind" in said
    assert re.search("prompt, 9 to 11", said)
    assert "gold answers earn 1.000" in said
    assert (
        said.splitlines()[-1]
        == f"Train:  plumbline run {place.folder / 'recipe.yaml'} --trust-code"
    )
    assert text.startswith("# yaml-language-server: $schema=recipe.schema.json\n")
    assert len(text.splitlines()) <= 25
    small = [
        "rl.steps=1",
        "rl.prompts_per_step=1",
        "rl.group_size=2",
        "sampling.max_tokens=16",
        "model.threads=1",
    ]
    with consent(everything=True):
        run = run_recipe(load_recipe(place.folder / "recipe.yaml", small), place.folder / "run")
    assert run.result()["evaluations"]["rl.test.greedy"]["ceiling"] == 1.0


def test_a_completion_is_no_label_and_a_reward_of_one_answer_needs_no_range(place):
    said, values, _ = begin(place, "score")
    assert values["task"]["options"]["gold"] == "answer"
    assert "range" not in values["task"]["options"]
    assert "looks like a label" not in said


def test_a_label_that_no_known_form_makes_right_is_said_with_a_template_to_write(place):
    said, values, text = begin(place, "picky")
    assert "gold" not in values["task"]["options"]
    assert "range" not in values["task"]["options"]
    assert "paid nothing" in said.splitlines()[2]
    assert "Train:" not in said
    assert "    # gold: '#### {answer}'" in text


def test_parts_that_a_function_names_get_weights_and_one_that_fails_is_said_to(place):
    _, values, _ = begin(place, "named")
    assert values["task"]["options"]["weights"] == {"right": 1, "brief": 1}
    assert values["task"]["options"]["gold"] == "answer"
    said, values, _ = begin(place, "broken", "broken.yaml")
    assert re.search("not ready: .*baseline blank", said)
    assert "plumbline run" not in said
    begin(place, "nameless", "nameless.yaml")  # a mapping that cannot be iterated
    assert "label" not in said.split("\n")[2]


DEAD = """
import re, socket, urllib.error
def of_type(completions, answer, **columns): return [float(c == a) for c, a in zip(completions, answer)]
def last(completions, solution, **columns):
    return [float((re.findall(r"[0-9]+", c) or [""])[-1] == s) for c, s in zip(completions, solution)]
def form(completions, **columns): return [0.5 * ("####" in c) for c in completions]
def down(completion): raise urllib.error.URLError("no route")
def chained(completion):
    try: raise socket.gaierror("no name")
    except OSError as error: raise RuntimeError("the judge") from error
def says(completion): raise RuntimeError("the judge: HTTP 503")
def limit(completion):
    if "{" in completion: raise TimeoutError
    return 1.0
def arrays(completion, values): return float(completion == str(values.tolist()[0]))
def chat(completion): return float("1" in completion[0]["content"])
def other(completion, **columns): return float(completion == "never" + " written")
def parses(completion): return float(__import__("json").loads(completion)["x"])
"""


@pytest.mark.parametrize(
    ("reward", "word", "last"),
    [
        ("of_type", r"\banswer is .*\btext\b", False),
        ("last", r"\bsolution is .*'####'", False),
        ("of_type,form", "by of_type for", False),
        ("down", r"left out .* counted", False),
        ("chained", r"left out .* counted", False),
        ("says", r"left out .* counted", False),
        ("limit", "catch it there", False),
        ("arrays", "values is a list", False),
        ("chat", "a completion is text", False),
        ("parses", "catch it there", False),
        ("form", "", True),
        ("other", "", True),
    ],
)
def test_what_is_not_ready_is_said_first_and_nothing_says_to_train(place, reward, word, last):
    place.functions(DEAD)
    more = {"of_type": "answer", "other": "answer", "last": "solution", "arrays": "values"}
    rows = [
        {"prompt": f"{n}?", "answer": n, "solution": f"so\n#### {n}", "values": [n]}
        for n in range(24)
    ]
    place.rows(
        [
            {k: v for k, v in row.items() if k in {"prompt", more.get(reward.split(",")[0])}}
            for row in rows
        ]
    )
    names = ",".join(f"{place.module}:{name}" for name in reward.split(","))
    out = place.folder / "recipe.yaml"
    with consent(True):
        lines, ready = write_init_recipe(
            add_script_options("m", "rows.jsonl", names, None, out), try_reward
        )
    assert (ready, "Train:" in "".join(lines), "Train:" in out.read_text()) == (last, last, last)
    assert re.search(word, "\n".join(lines))
    assert ("let it raise" in "\n".join(lines)) == (reward in {"down", "chained", "says"})


def test_the_exit_status_says_whether_something_must_be_mended(place, plumbline):
    given = ["--model", "m", "--data", "rows.jsonl", "--trust-code"]
    assert plumbline("init", *given, "--reward", f"{place.module}:score", "--out", "a.yaml")[0] == 0
    assert plumbline("init", *given, "--reward", f"{place.module}:picky", "--out", "b.yaml")[0] == 1
    given[1] = "./gone"
    assert plumbline("init", *given, "--reward", f"{place.module}:score", "--out", "c.yaml")[0] == 1


def test_prompts_of_two_forms_are_counted_where_a_function_fails_for_one(place):
    place.rows(
        [
            {"prompt": [{"role": "user", "content": f"{n}?"}] if n % 2 else f"{n}?", "answer": "1"}
            for n in range(40)
        ]
    )
    assert "of 8 prompts 4 are messages" in begin(place, "accuracy")[0]
    assert "4 are messages" not in begin(place, "broken", "other.yaml")[0], "fails for both"


def test_a_reward_outside_of_the_working_directory_is_refused_at_once(place):
    out = place.folder / "recipe.yaml"
    what = add_script_options("m", "rows.jsonl", "../rewards.py:score", None, out)
    with consent(True), pytest.raises(RecipeError, match="outside of the working directory"):
        write_init_recipe(what, try_reward)
    assert not out.exists()
    inside = f"{place.folder.resolve()}/{place.module}.py:score"
    with consent(True):
        write_init_recipe(add_script_options("m", "rows.jsonl", inside, None, out), try_reward)
    assert yaml.safe_load(out.read_text())["task"]["options"]["score"] == f"{place.module}:score"


def test_rewards_that_were_written_and_cannot_be_tried_are_taken_back(place):
    source = script(
        place,
        """
from datasets import load_dataset
from no_such_library.rewards import fancy
from trl import GRPOTrainer
def mine(completions, answer, **_): return [float(a == c) for a, c in zip(completions, answer)]
rows = load_dataset("json", data_files="rows.jsonl", split="train")
GRPOTrainer(model="some/model", reward_funcs=[mine, fancy], train_dataset=rows).train()
""",
    )
    before = {*place.folder.iterdir()}
    with pytest.raises(RecipeError, match="no_such_library") as raised:
        begin(place, None, model=None, data=None, script=source)
    assert "pip install no_such_library" in raised.value.fix
    assert {one for one in place.folder.iterdir() if one.suffix != ".pyc"} - before <= {
        place.folder / "__pycache__"
    }


def test_ranges_that_nothing_showed_are_not_invented(place):
    assert place.open(["accuracy", "form", "picky"]).measure_ranges() == {
        "accuracy": (0, 2),
        "form": (0, 0.5),
    }


def test_a_form_that_no_prompt_names_is_said(place):
    assert re.search("'####', .* 0.000 .* 1.000", begin(place, "accuracy")[0])
    place.rows([{"prompt": f"{n}? End with ####", "answer": str(n)} for n in range(24)])
    assert "no prompt names" not in begin(place, "accuracy", "named.yaml")[0]


def test_rows_are_csv_too_and_columns_can_be_named(place):
    (place.folder / "my rows.csv").write_text(
        "ask,right\n" + "".join(f"{n}?,{n}\n" for n in range(20))
    )
    with pytest.raises(DataError, match=r"my rows\.csv .*prompt") as error:
        begin(place, "form", data="my rows.csv")
    assert all(word in error.value.fix for word in ("--prompt", "ask, right"))
    _, values, _ = begin(place, "form", data="my rows.csv", prompt="ask", gold="#### {right}")
    assert values["task"]["options"]["gold"] == "#### {right}"
    assert values["name"] == "my-rows-model-1b"


@pytest.mark.parametrize(
    ("data", "address"),
    [
        ("openai/gsm8k", "hf://openai/gsm8k"),
        ("openai/gsm8k/main:train", "hf://openai/gsm8k/main:train"),
        ("hf://a/b", "hf://a/b"),
        ("folder", "hf://folder"),
        ("data/rows.jsonl", "data/rows.jsonl"),
    ],
)
def test_data_of_the_hub_and_of_a_folder_are_told_from_files(workplace, data, address):
    (workplace.folder / "folder").mkdir()
    assert _address(data) == address


def test_nothing_is_overwritten_and_what_is_missing_is_named(place):
    begin(place, "score")
    before = (place.folder / "recipe.yaml").read_text()
    with pytest.raises(StorageError, match=r"recipe\.yaml"):
        begin(place, "form")
    assert (place.folder / "recipe.yaml").read_text() == before
    with pytest.raises(RecipeError, match=r"recipe\.txt"):
        begin(place, "score", "recipe.txt")
    with pytest.raises(RecipeError, match="--model MODEL and --reward MODULE:FUNCTION"):
        begin(place, None, "other.yaml", model=None)
    with pytest.raises(RecipeError, match=":nothing"):
        begin(place, "nothing", "other.yaml")
    assert not (place.folder / "other.yaml").exists()


# -- a script for TRL ------------------------------------------------------------------------------

SCRIPT = """
import sys
open("ran", "w").close()
from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer
from {module} import accuracy, form as shape

RATE = 1e-5
rows = load_dataset("json", data_files="rows.jsonl", split="train")
args = GRPOConfig(
    output_dir="out/first", learning_rate=RATE, num_generations=4, per_device_train_batch_size=8,
    gradient_accumulation_steps=2, max_completion_length=128, beta=0.04, num_train_epochs=2, num_iterations=2,
    reward_weights=[1.0, 0.5], loss_type="bnpo", epsilon_high=0.28, top_k=50, bf16=True, report_to=["wandb"],
    seed=int(sys.argv[1]), min_p=0.1, use_vllm=True, lr_scheduler_type="cosine", warmup_ratio=0.1, logging_steps=5,
)
trainer = GRPOTrainer(
    model="some/model", reward_funcs=[accuracy, shape], args=args, train_dataset=rows,
    peft_config=LoraConfig(r=16, lora_alpha=64, lora_dropout=0.05),
)
trainer.train()
"""


def script(place, text, name="train.py"):
    path = place.folder / name
    path.write_text(text.replace("{module}", place.module))
    return path


def test_a_script_for_trl_becomes_a_recipe_and_is_not_run(place):
    said, values, text = begin(place, None, model=None, data=None, script=script(place, SCRIPT))
    assert not (place.folder / "ran").exists()
    assert values["name"] == "first"
    lora = {"rank": 16, "alpha": 64, "targets": "TODO"}
    assert values["model"] == {"name": "some/model", "dtype": "bfloat16", "lora": lora}
    options = values["task"]["options"]
    assert options["train"] == "rows.jsonl"
    assert options["score"] == [f"{place.module}:accuracy", f"{place.module}:form"]
    assert (options["weights"], options["gold"]) == ([1.0, 0.5], "#### {answer}")
    assert values["rl"] == {
        "steps": 16,  # 2 epochs of 32 prompts, 4 a batch
        "prompts_per_step": 4,
        "group_size": 4,
        "inner_epochs": 2,
        "beta": 0.04,
        "algorithm": {
            "name": "grpo",
            "normaliser": "dapo",
            "scale_advantages": "group",
            "clip_low": 0.2,
            "clip_high": 0.28,
        },
        "optimiser": {
            "learning_rate": 1e-5,
            "schedule": "cosine",
            "warmup": 0.1,
            "betas": [0.9, 0.999],
        },
    }
    assert values["sampling"] == {"max_tokens": 128, "top_k": 50}
    assert values["run"] == {"trackers": ["wandb"]}
    assert values["seed"] == "TODO"
    assert re.search(r"seed: TODO .*int\(sys.argv\[1\]\)", text)
    assert re.search(r"TODO: seed .*int\(sys.argv\[1\]\)", said)
    for note in (
        r"min_p=0\.1 .*no twin",
        r"lora_dropout=0\.05 .*LoRA .*no twin",
        "use_vllm=True is engine: vllm",
    ):
        assert re.search(f"from the script: {note}", said)
        assert re.search(f"# From the script: {note}", text)
    assert "logging_steps" not in said


def test_code_that_only_a_script_names_is_not_imported_without_trust(place, monkeypatch):
    monkeypatch.setenv("PLUMBLINE_TRUST_CODE", "")
    source = script(place, SCRIPT)
    said, values, _ = begin(place, None, model=None, data=None, script=source, trusted=False)
    assert "--trust-code" in said
    assert values["task"]["options"]["gold"] == "answer"
    assert "gold answers earn" not in said


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (
            "",
            {
                "rl.optimiser.learning_rate": 1e-6,
                "sampling.max_tokens": 512,
                "rl.prompts_per_step": 1,
                "seed": 42,
            },
        ),
        ("max_steps=60, num_iterations=3", {"rl.steps": 20}),
        (
            "steps_per_generation=4, gradient_accumulation_steps=2",
            {"rl.prompts_per_step": 4, "rl.minibatch": 2},
        ),
        (
            "loss_type='cispo', epsilon_high=5.0",
            {"rl.algorithm": {"name": "cispo", "clip_high": 4.0, "scale_advantages": "group"}},
        ),
        (
            "importance_sampling_level='sequence', scale_rewards=False, loss_type='grpo'",
            {"rl.algorithm": {"name": "gspo", "normaliser": "grpo", "scale_advantages": "none"}},
        ),
    ],
)
def test_settings_mean_what_they_mean_in_trl(place, config, values):
    read = read_script(script(place, f"import trl\nconfig = trl.GRPOConfig({config})\n"))
    assert {key: read.values[key] for key in values} == values
    kept = {key: each for key, each in read.values.items() if key.startswith("rl.algorithm")}
    parse_recipe(
        {"name": "x", "model": {"name": "m"}, "rl": {"steps": 1, "algorithm": kept["rl.algorithm"]}}
    )


def test_supervised_scripts_and_those_of_unsloth_are_read(place):
    source = """
model, tokenizer = FastLanguageModel.from_pretrained(model_name="unsloth/some-model", load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=8, lora_alpha=16, random_state=3)
rows = load_dataset("openai/gsm8k", "main", split="train").map(str)
trainer = SFTTrainer(model=model, train_dataset=rows, args=SFTConfig(max_length=2048, num_train_epochs=1))
"""
    read = read_script(script(place, source))
    assert (read.stage, read.model, read.data) == (
        "sft",
        "unsloth/some-model",
        "hf://openai/gsm8k/main:train",
    )
    assert read.values["model.lora"] == {"rank": 8, "alpha": 16, "targets": "all-linear"}
    assert read.values["model.quantize"] == "4bit"
    assert (
        read.values["model.context"],
        read.values["sft.epochs"],
        read.values["sft.batch_size"],
    ) == (2048, 1, 8)
    assert "map(str)" in read.notes[0]
    _, values, _ = begin(place, "score", data="rows.jsonl", script=place.folder / "train.py")
    assert values["sft"]["epochs"] == 1
    assert "rl" not in values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (", "is no Python"),
        ("x = 1", "builds no GRPOTrainer"),
        ("GRPOConfig(num_generations='8')", r"train\.py: .* num_generations='8'"),
    ],
)
def test_a_script_that_says_nothing_is_an_error(place, text, message):
    with pytest.raises(RecipeError, match=message):
        read_script(script(place, text))


HEX = "0x" + "f" * 5000
STRANGE = [
    *(
        "a",
        "c",
        "3j",
        "...",
        'b"x"',
        r'"\ud800"',
        'f"{x}"',
        "{1, 2}",
        "x",
        "1e999",
        "-1e999",
        HEX,
        f"[{HEX}]",
        f"f({HEX})",
    ),
    *(
        "-" * 5000 + "1",
        "a" + ".b" * 900,
        "f" + "()" * 900,
        "(" * 150 + ")" * 150,
        "[" * 90 + "]" * 90,
        "1" + "+1" * 2000,
    ),
    *("1e308", "[1, 3j]", '{"a": 3j}', r'"a\nb: c\x1b\0"', "-1", "0", '"3"', "None", "[]"),
]
"""Names of themselves, depth, and values that no recipe can hold or that mean nothing there."""


@pytest.mark.parametrize("strange", STRANGE, ids=lambda text: text[:12])
@pytest.mark.parametrize(
    "where",
    [
        (
            "LoraConfig(r=@, other=@), t.GRPOConfig(seed=@, learning_rate=@, unknown=@, "
            "run_name=@, "
            "report_to=@, **@)"
        ),
        "t.GRPOConfig(num_train_epochs=@)",
        (
            "t.GRPOConfig(max_steps=@, num_generations=@, per_device_train_batch_size=@, "
            "gradient_accumulation_steps=@)"
        ),
        "t.SFTConfig(num_train_epochs=@, max_length=@)",
        (
            "t.GRPOTrainer(@, [@], args=t.GRPOConfig())\nload_dataset(@, "
            "split=@).from_pretrained(@)\nif @: pass"
        ),
    ],
    ids=range(5),
)
def test_whatever_a_script_says_becomes_a_recipe_or_one_error(place, where, strange):
    source = script(place, f"import trl as t\na = a\nc = d\nd = c\n{where.replace('@', strange)}\n")
    path = place.folder / "strange.yaml"
    path.unlink(missing_ok=True)
    with suppress(RecipeError):
        lines, _ = write_init_recipe(
            add_script_options("m", "rows.jsonl", f"{place.module}:score", source, path),
            try_reward,
        )
        assert max(map(len, lines)) < 400
    if path.exists():
        with (
            pytest.raises(RecipeError, match="is not finished")
            if "TODO" in path.read_text()
            else nullcontext()
        ):
            assert load_recipe(path).model.name == "m"


def test_a_name_that_no_file_can_have_is_none(place):
    read = read_script(
        script(place, r"t.GRPOTrainer('a\0b', args=t.GRPOConfig()); load_dataset('a\0b')")
    )
    assert (read.model, read.data) == (None, None)


def test_a_script_may_be_long_and_names_many_functions(place):
    many = [f"f{number}" for number in range(2000)]
    text = (
        f"import trl\n{''.join(f'def {name}(): ...' + chr(10) for name in many)}config = "
        "trl.GRPOConfig()\n"
    )
    read = read_script(
        script(place, f"{text}trainer = trl.GRPOTrainer(reward_funcs=[{', '.join(many)}])\n")
    )
    assert read.rewards == [f"train_rewards:{name}" for name in many]
    with pytest.raises(RecipeError, match="too large"):
        read_script(script(place, text + "#" * 2**20))


def test_columns_and_names_with_line_breaks_stay_in_their_lines(place):
    names = ["a\nb", "a\x85b", "\x1b31m", "x #z", "\u202e"]
    rows = [
        {"prompt": f"say {number}", **dict.fromkeys(names, str(number))} for number in range(20)
    ]
    write_jsonl(place.folder / "odd.jsonl", rows)
    for number, name in enumerate(names):
        _, values, text = begin(
            place, "form", f"odd{number}.yaml", data="odd.jsonl", gold=name, model=name
        )
        assert values["model"]["name"] == name
        assert len(text.splitlines()) <= 25


# -- TRL's scale -----------------------------------------------------------------------------------


def test_trls_parts_are_worth_their_range_and_without_range_and_gold_the_scale_is_said(place):
    task = place.open(["accuracy", "form"], range={"accuracy": [0, 2], "form": [0, 0.5]})
    example = task.examples("train")[0]
    answer = example.reference["answer"]
    totals = [task.judge(example, text)[1].total for text in (f"#### {answer}", "####", "no")]
    assert totals == pytest.approx([1.0, 0.2, 0.0])
    assert not [note for note in task.describe_before_run(quick=False) if "range" in note]
    (note,) = place.open("form").describe_before_run(quick=False)
    assert all(word in note for word in ("form", "0 to 1", "task.options.range"))
    with pytest.raises(RewardError, match=r"accuracy .* 2, .* \[0, 1\]") as error:
        place.open("accuracy").judge(example, f"#### {answer}")
    assert json.dumps([0, 2]) in error.value.fix
