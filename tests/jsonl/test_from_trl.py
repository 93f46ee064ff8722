"""Scripts for TRL as people write them: what each becomes, what stays open, and what is taken over
of their rewards."""

import json
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from plumbline.checks.audit.trial import try_reward
from plumbline.config.imports import consent
from plumbline.errors import RecipeError, StorageError
from plumbline.recipe import load_recipe, walk_leaves
from plumbline.recipe.from_trl import read_script
from plumbline.storage import write_jsonl
from plumbline.tasks.jsonl.init_recipe import add_script_options, write_init_recipe

DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))

GIST = DATA["gist"]
ARGUMENTS = DATA["arguments"]
PARSER = DATA["parser"]
YAML = DATA["yaml"]
QUICK = DATA["quick"]
UNSLOTH = DATA["unsloth"]
SETTINGS = DATA["settings"]
COURSE = DATA["course"]
CLASSES = DATA["classes"]
SUPERVISED = DATA["supervised"]
REWARDS = """
def accuracy(completions, answer, **kwargs):
    return [float(one.split("####")[1].strip() in each) for each, one in zip(completions, answer)]
def brief(completions, **kwargs):
    return [float(len(each) < 40) for each in completions]
"""
OURS = {
    "rl.optimiser.schedule": "linear",
    "rl.optimiser.warmup": 0,
    "seed": 42,
    "sampling.max_tokens": 512,
}
"""TRL's defaults that are not Plumbline's."""


@pytest.fixture
def place(workplace):
    rows = [{"question": f"{n} + 1 is", "answer": f"We add. #### {n + 1}"} for n in range(40)]
    write_jsonl(workplace.folder / "rows.jsonl", rows)
    (workplace.folder / "my_rewards.py").write_text(REWARDS)
    yield workplace
    for name in [name for name in sys.modules if name.endswith("_rewards")]:
        del sys.modules[name]


def begin(place, files, out="mine.yaml", *, trusted=True, **more):
    """Write files, of which the first is the script; what is said, and the recipe's values by their
    paths."""
    for name, text in files.items():
        (place.folder / name).write_text(text)
    given = {"model": None, "data": None, "reward": None, **more}
    with consent(trusted):
        lines, _ = write_init_recipe(
            add_script_options(
                script=place.folder / next(iter(files)), out=place.folder / out, **given
            ),
            try_reward,
        )
    return "\n".join(lines), dict(walk_leaves(yaml.safe_load((place.folder / out).read_text())))


def script(place, text):
    (place.folder / "train.py").write_text(text)
    return place.folder / "train.py"


def notebook(text):
    cells = [
        {"cell_type": "markdown", "source": "# no (code"},
        {"cell_type": "code", "source": "%%bash\nls ("},
    ]
    cells += [
        {"cell_type": "code", "source": cell.splitlines(keepends=True)}
        for cell in text.split("# %%\n")[1:]
    ]
    return json.dumps({"cells": cells, "nbformat": 4})


HUB = "task.options.train"
NO_STEPS = {"rl.steps": "TODO"}
KINDS = {
    "functions": (
        {"train.py": GIST},
        {
            "name": "Qwen2.5-1.5B-Instruct",
            "model.name": "Qwen/Qwen2.5-1.5B-Instruct",
            "model.dtype": "bfloat16",
            HUB: "hf://openai/gsm8k/main:train",
            "task.options.prompt": "question",
            "task.options.system": "Think first.\n<answer>\n{...}\n</answer>",
            "task.options.score": ["train_rewards:right", "train_rewards:shape"],
            "rl.optimiser.learning_rate": 5e-6,
            "rl.beta": 0.01,
            "rl.steps": 40,
            "rl.prompts_per_step": 2,
        },
    ),
    "argparse": (
        {"train.py": ARGUMENTS},
        {
            "model.name": "some/model",
            HUB: "rows.jsonl",
            "task.options.prompt": "question",
            "task.options.score": ["my_rewards:accuracy", "my_rewards:brief"],
            "rl.optimiser.learning_rate": 3e-5,
            "rl.steps": 50,
            "rl.beta": "TODO",
            **OURS,
        },
    ),
    "parser": (
        {"train.py": PARSER, "train.yaml": YAML},
        {
            "model.name": "some/model",
            HUB: "hf://some/rows:train",
            "task.options.score": ["my_rewards:accuracy", "my_rewards:brief"],
            "model.lora.rank": 8,
            "model.lora.alpha": 32,
            "name": "mine",
            "rl.optimiser.learning_rate": 2e-6,
            "rl.prompts_per_step": 2,
            "rl.steps": 50,
            **OURS,
        },
    ),
    "parser without its file": (
        {"train.py": PARSER},
        {"model.name": "TODO", HUB: "TODO", "rl.optimiser.learning_rate": 1e-6, **NO_STEPS},
    ),
    "command line": (
        {"grpo.yaml": YAML + "reward_funcs: [accuracy_reward, my_rewards.brief]\n"},
        {
            "model.name": "some/model",
            HUB: "hf://some/rows:train",
            "task.options.score": ["trl.rewards:accuracy_reward", "my_rewards:brief"],
            "model.lora.rank": 8,
            "rl.group_size": 4,
            "rl.steps": 50,
        },
    ),
    "settings": (
        {"train.py": SETTINGS},
        {
            "name": "first",
            "model.name": "some/model",
            "task.options.prompt": "Solve {{this}}: {question}\nEnd with ####.",
            "task.options.score": "my_rewards:accuracy",
            "rl.optimiser.learning_rate": pytest.approx(1e-6),
            "rl.prompts_per_step": 2,
            **NO_STEPS,
        },
    ),
}
KINDS |= {
    "course": (
        {"train.py": COURSE},
        {
            "model.name": "some/model",
            "model.quantize": "4bit",
            "model.lora.alpha": 32,
            HUB: "hf://some/rows:train[:5%]",
            "task.options.prompt": "problem",
            "task.options.system": "S",
            "rl.prompts_per_step": 32,
            **NO_STEPS,
        },
    ),
    "classes": (
        {"train.py": CLASSES, "config.py": "MODEL = 'some/model'\nEXTRA = dict(beta=0.1, seed=3)"},
        {
            "model.name": "some/model",
            HUB: "hf://some/rows/main:train",
            "task.options.prompt": "Q: {question}",
            "task.options.score": "train_rewards:accuracy",
            "rl.optimiser.learning_rate": 5e-6,
            "rl.beta": 0.1,
            "rl.prompts_per_step": 2,
            "seed": 3,
            **NO_STEPS,
        },
    ),
    "supervised": (
        {"train.py": SUPERVISED},
        {
            "model.name": "some/model",
            "model.context": 512,
            "model.quantize": None,
            "task.options.prompt": "TODO",
            "task.options.score": "TODO",
            "sft.batch_size": 8,
            "sft.steps": 60,
            "sft.optimiser.learning_rate": 5e-5,
        },
    ),
}
NOTEBOOK = {
    "model.name": "some/model",
    "model.context": 1024,
    "model.quantize": "4bit",
    "model.lora.rank": 32,
    "model.lora.targets": ["q_proj", "v_proj"],
    HUB: "hf://some/rows:train[:1000]",
    "task.options.score": "train_rewards:started",
    "rl.optimiser.name": "adamw8bit",
    "rl.prompts_per_step": 4,
    "rl.steps": 250,
    "sampling.max_tokens": 768,
    "name": "outputs",
}
KINDS |= {
    "export": ({"train.py": UNSLOTH}, NOTEBOOK),
    "notebook": ({"train.ipynb": notebook(UNSLOTH)}, NOTEBOOK),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_script_in_the_style_of_tutorials_becomes_a_recipe(place, kind):
    files, right = KINDS[kind]
    said, values = begin(place, files)
    assert {key: values.get(key) for key in right} == right
    assert not (place.folder / "ran").exists()
    todo = [key for key, value in values.items() if value == "TODO"]
    assert all(f"TODO: {key} (" in said for key in todo)
    if todo:
        with pytest.raises(RecipeError) as error:
            load_recipe(place.folder / "mine.yaml")
        assert all(key in error.value.cause for key in todo)
        assert "Train:" not in said + (place.folder / "mine.yaml").read_text()
    else:
        assert load_recipe(place.folder / "mine.yaml").name


LINES = """
import json, os
import pandas as pd
from datasets import *
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer
model, rows, held, lora, more = "m/llama", load_dataset("a/b", split="train"), None, None, {}
def f(completions, **k): return [1.0 for one in completions]
rewards = [f]
def length(completions, completion_ids, **k): return [0.0 for one in completion_ids]
def asked(form): return rows.map(lambda row: {"prompt": form(row)})
both = load_dataset("json", data_files="rows.jsonl", split="train").rename_column("question", "prompt")
"""
TRAINS = (
    'GRPOTrainer(model, rewards, GRPOConfig("o", max_steps=8, **more), rows, held, '
    "peft_config=lora).train()\n"
)
OPEN = {HUB: "TODO"}
BY_ONE = [
    # what is held out
    (
        "d = both.train_test_split(test_size=0.2)\nrows, held = d['train'], d['test']",
        {"task.options.val": 0.2},
        "",
    ),
    (
        "d = both.train_test_split(train_size=0.7)\nrows = d['train'].shuffle()",
        {"task.options.val": 0.3},
        "",
    ),
    (
        "d = both.train_test_split(test_size=4)\nrows, held = d['train'], d['test']",
        {"task.options.val": 0.1},
        "",
    ),
    (
        "d = rows.train_test_split(test_size=4)\nrows, held = d['train'], d['test']",
        {"task.options.val": None},
        "test_size",
    ),
    (
        "held = load_dataset('a/b', split='test').select(range(9))",
        {"task.options.val": "hf://a/b:test"},
        "",
    ),
    ("held = load_dataset('a/b', split='test').select(range(9))", {"evaluation.limit": 9}, ""),
    ("held = rows.select(range(9))", {"task.options.val": None}, "eval_dataset"),
    (
        "c = GRPOConfig()\nheld = rows if c.eval_strategy != 'no' else None",
        {"task.options.val": None},
        "",
    ),
    # where rows are from
    (
        "rows = Dataset.from_list([{'prompt': f'{a}{b}'} for a in 'xyz' for b in 'abc'])",
        {HUB: "train_rows.jsonl"},
        "",
    ),
    (
        "rows = Dataset.from_dict({'prompt': [*'abcdefghi'], 'answer': [1, 2, 3] * 3})",
        {HUB: "train_rows.jsonl"},
        "",
    ),
    ("rows = Dataset.from_list([{'prompt': str(id(a))} for a in 'xyz'])", OPEN, ""),
    (
        "rows = Dataset.from_list([json.loads(line) for line in open('rows.jsonl')])",
        {HUB: "rows.jsonl"},
        "",
    ),
    (
        "rows = load_dataset('json', data_files='https://x.org/a.jsonl', split='train')",
        OPEN,
        "no single file",
    ),
    ("rows = load_dataset('json', data_dir='data', split='train')", OPEN, "no single file"),
    ("rows = load_dataset('a/b', data_files='x.jsonl', split='train')", OPEN, "no single file"),
    ("rows = rows.filter(lambda row: row['ok'])", {HUB: "hf://a/b:train"}, "filter("),
    # prompts
    ("rows = asked(lambda row: 'Q: %s' % row['q'])", {"task.options.prompt": "Q: {q}"}, "map("),
    (
        "rows = asked(lambda row: 'Q: [q]'.replace('[q]', row['q']))",
        {"task.options.prompt": "Q: {q}"},
        "",
    ),
    ("rows = asked(lambda row: 'Q: {q}'.format(**row))", {"task.options.prompt": "Q: {q}"}, ""),
    ("rows = asked(lambda row: row.get('q', '') + '?')", {"task.options.prompt": "{q}?"}, ""),
    (
        (
            "d = pd.read_csv('a.csv')\nd['prompt'] = d['q'].apply(lambda q: f'Q: {q}')\nrows = "
            "Dataset.from_pandas(d)"
        ),
        {"task.options.prompt": "Q: {q}", HUB: "a.csv"},
        "",
    ),
    (
        (
            "rows = asked(lambda row: [{'role': 'user', 'content': row['q']}, {'role': "
            "'assistant', "
            "'content': 'So'}])"
        ),
        {"task.options.prompt": "TODO"},
        "",
    ),
    # the model
    (
        "lora = LoraConfig(r=4)",
        {"model.lora.targets": ["q_proj", "v_proj"], "model.lora.alpha": 8},
        "",
    ),
    ("model, lora = 'microsoft/phi-2', LoraConfig(r=4)", {"model.lora.targets": "TODO"}, ""),
    # rewards
    (
        "rewards = ['a/judge', f]\nmore = {'reward_weights': [1, 3]}",
        {"task.options.weights": [3]},
        "a/judge",
    ),
    ("rewards = [f, length]", {"task.options.score": "train_rewards:f"}, "completion_ids"),
    (
        "rewards = AutoModelForCausalLM.from_pretrained('a/judge')",
        {"task.options.score": "TODO"},
        "reward model",
    ),
    ("more = {}", {"task.options.score": "train_rewards:f"}, "unless range has"),
    # settings
    ("more = {'use_vllm': True, 'vllm_gpu_memory_utilization': 0.4}", {"engine.name": "vllm"}, ""),
    ("more = {'vllm_mode': 'colocate', 'eval_strategy': 'steps'}", {"engine.name": None}, ""),
    ("more = {'num_generations': int(os.getenv('N') or 4)}", {"rl.group_size": 4}, ""),
    (
        "more = {'lr_scheduler_type': 'cosine_with_min_lr'}",
        {"rl.optimiser.schedule": "cosine"},
        "cosine_with_min_lr",
    ),
    (
        "more = {'lr_scheduler_type': 'polynomial'}",
        {"rl.optimiser.schedule": "TODO"},
        "TODO: rl.optim",
    ),
    (
        "more = {'per_device_train_batch_size': 1, 'num_generations': 6}",
        {"rl.prompts_per_step": 1},
        "no multiple",
    ),
]


@pytest.mark.parametrize(("lines", "right", "word"), BY_ONE)
def test_a_line_of_a_script_is_in_its_recipe_or_spoken_of(place, lines, right, word):
    text = f"{LINES}{lines}\n{TRAINS}"
    said, values = begin(place, {"train.py": text}, trusted=False)
    values[HUB] = values[HUB].removeprefix(f"{place.folder}/")
    assert {key: values.get(key) for key in right} == right
    if "_rows" in values[HUB]:
        assert len((place.folder / values[HUB]).read_text().splitlines()) == 9
    assert word in said + (place.folder / "mine.yaml").read_text()
    assert word or "has no twin" not in said


def test_trls_own_script_leaves_open_what_its_command_line_gives(place):
    spec = find_spec("trl")
    if spec is None:
        pytest.skip("TRL is not installed")
    text = Path(spec.submodule_search_locations[0], "scripts", "grpo.py").read_text()
    said, values = begin(place, {"grpo.py": text}, trusted=False)
    todo = {key for key, value in values.items() if value == "TODO"}
    assert todo == {HUB, "model.name", "task.options.score", "rl.steps"}
    assert all(f"TODO: {key} (" in said for key in todo)


# -- rewards ---------------------------------------------------------------------------------------


def rewards_of(place, name="train_rewards"):
    space = {"__name__": name}
    text = (place.folder / f"{name}.py").read_text()
    exec(compile(text, name, "exec"), space)
    return text, space


def test_rewards_are_taken_over_with_what_they_need_and_see_what_the_script_makes_of_a_row(place):
    begin(place, {"train.py": GIST})
    text, space = rewards_of(place)
    assert "load_dataset" not in text
    assert "# the gold" in text
    columns = {"answer": ["We add. #### 2"], "question": ["1 + 1 is"]}
    given = {"prompts": ["1 + 1 is"], "completions": ["it is <answer>2</answer>"], **columns}
    assert [space[name](**given) for name in ("right", "shape")] == [[2.0], [0.5]]
    assert space["right"](prompts=["1 + 1 is"], completions=["3"], **columns) == [0.0]
    as_trl = {
        "prompts": [[]],
        "completions": [[{"content": "it is <answer>2</answer>"}]],
        "answer": ["2"],
    }
    assert [space[name](**as_trl) for name in ("right", "shape")] == [[2.0], [0.5]]
    # the same file of rewards
    said, values = begin(place, {"train.py": GIST}, "rows.yaml", data="rows.jsonl")
    assert values["task.options.system"].startswith("Think")
    assert "not ready" not in said


def test_what_a_reward_prints_stays_out_of_what_init_says(place, capsys):
    loud = QUICK.replace(
        "def letters(completions, **kwargs):",
        "def letters(completions, **kwargs):\n    print('loud')",
    )
    assert loud != QUICK
    begin(place, {"train.py": loud}, data="rows.jsonl")
    assert "loud" not in capsys.readouterr().out


def test_without_trust_nothing_of_a_script_is_imported(place, monkeypatch):
    monkeypatch.setenv("PLUMBLINE_TRUST_CODE", "")
    source = QUICK.replace("def letters", "open('ran', 'w')\ndef letters").replace(
        '"some/rows"', '"json"'
    )
    source = source.replace('split="train"', 'data_files="rows.jsonl"')
    rows = "".join(f'{{"prompt": "{n}", "answer": "So. #### {n}"}}\n' for n in range(9))
    said, values = begin(place, {"train.py": source, "rows.jsonl": rows}, trusted=False)
    assert "--trust-code" in said
    assert values["task.options.gold"] == "{answer:####}"
    assert not (place.folder / "ran").exists()


def test_a_file_of_rewards_that_was_changed_is_left_alone(place):
    begin(place, {"train.py": QUICK})
    path = place.folder / "train_rewards.py"
    begin(place, {"train.py": QUICK.replace("set(one)", "one")}, "second.yaml")
    assert "len(one)" in path.read_text()
    for changed in (path.read_text() + "# mine\n", REWARDS):
        path.write_text(changed)
        with pytest.raises(StorageError, match="train_rewards"):
            begin(place, {"train.py": QUICK}, "third.yaml")
        assert path.read_text() == changed
    assert not (place.folder / "third.yaml").exists()


TRAINER = """
from datasets import load_dataset
from functools import partial
from trl import GRPOConfig, GRPOTrainer
{before}
GRPOTrainer("m", reward_funcs={rewards}, args=GRPOConfig(max_steps=8), train_dataset=load_dataset("a/b", split="train"))
"""


@pytest.mark.parametrize(
    ("before", "rewards", "names"),
    DATA["a_reward_is_taken_over_however_it_is_made"],
)
def test_a_reward_is_taken_over_however_it_is_made(place, before, rewards, names):
    source = TRAINER.format(before=before, rewards=rewards)
    if names is None:
        read = read_script(script(place, source))
        assert read.rewards == ["train_rewards:f"]
        return
    _, values = begin(place, {"train.py": source})
    score = values["task.options.score"]
    assert (score if isinstance(score, list) else [score]) == [
        f"train_rewards:{name}" for name in names
    ]
    _, space = rewards_of(place)
    assert {name: space[name](completions=["x"])[0] for name in names} == names


@pytest.mark.parametrize(
    ("before", "word"),
    [
        ("model = load()\ndef f(completions, **k): return [model(c) for c in completions]", None),
        (
            (
                "from x import M\nmodel = M.from_pretrained('m')\ndef f(completions, **k): return "
                "[model(completions)]"
            ),
            "model",
        ),
        (
            (
                "def g(c): return trainer.step\ndef f(completions, **k): return [g(c) for c in "
                "completions]"
            ),
            "trainer",
        ),
        ("rows = load_dataset('a/b')\ndef f(completions, **k): return [len(rows)]", "rows"),
        ("def f(completions, **k): return [never_defined]", "never_defined"),
        (
            (
                "from argparse import *\np = ArgumentParser()\np.add_argument('--n')\nargs = "
                "p.parse_args()\n"
                "def f(completions, **k): return [args.n]"
            ),
            "args.n",
        ),
    ],
)
def test_a_reward_that_needs_the_training_is_refused_with_words(place, before, word):
    source = TRAINER.format(before=before, rewards="[f, f]").replace(
        'GRPOTrainer("m"', 'trainer = GRPOTrainer("m"'
    )
    if word is None:
        before = before.replace("load()", "len")
        begin(place, {"train.py": TRAINER.format(before=before, rewards="f")})
        return
    with pytest.raises(RecipeError, match=rf"uses {word}") as error:
        begin(place, {"train.py": source})
    assert "--reward rewards:f" in error.value.fix
    assert not (place.folder / "train_rewards.py").exists()
    _, values = begin(place, {"train.py": source}, reward="my_rewards:brief")
    assert values["task.options.score"] == "my_rewards:brief"


# -- what is foreign -------------------------------------------------------------------------------

HOSTILE = {
    "calls twice each": "def h0(): return 1\n"
    + "".join(f"def h{n + 1}(): return h{n}(), h{n}()\n" for n in range(40))
    + "x = h40()",
    "recursion": "def g(n): return g(n - 1) + g(n - 2)\nx = g(9)",
    "no end": "x = 1\nwhile True:\n x = x * x",
    "one in itself": "x = []\nx.append(x)\ny = {}\ny['y'] = y\nif foo(): z = x\nelse: z = y\nx = z",
    "doubled": "x = [1]\n" + "x = [x, x]\n" * 60 + "y = str(x)\nif foo():\n x = [x]",
    "large": (
        "x = 9 ** 9 ** 9 ** 9\ny = 'a' * 10 ** 12\nz = 1 << 10 ** 12\nx = "
        "'{:>9999999999}'.format(1)"
    ),
    "long": "x = 'a' * 60000\nx = x.join([x] * 1000).replace('a', x)\ny = f'{1:>99999999}'",
    "loops": "x = 0\n"
    + "".join(" " * n + f"for a{n} in range(150):\n" for n in range(9))
    + " " * 9
    + "x = x + 1",
    "classes": "class A: a = 1\n"
    + "".join(f"class A(A): b: int = {n}\n" for n in range(900))
    + "x = A().b",
    "lambdas": "x = " + "lambda: " * 400 + "1",
    "itself": "import train\nfrom train import *\nx = train.x",
    "a file of others": "import yaml\nx = yaml.safe_load(open('../secret.yaml'))",
    "rewards": "".join(f"def g{n}(): return g{n + 1}()\n" for n in range(2000)) + "x = g0",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_script_is_read_in_bounded_time_or_refused(place, kind):
    (place.folder.parent / "secret.yaml").write_text("secret")
    ends = (
        "\ndef f(completions, **k): return [x]\nGRPOTrainer(x, f, GRPOConfig(learning_rate=x, "
        "seed=x), x)\n"
    )
    began = time.process_time()
    with suppress(RecipeError):
        read = read_script(script(place, HOSTILE[kind] + ends))
        assert "'secret'" not in f"{read.values}{read.taken}"
    assert time.process_time() - began < 20
