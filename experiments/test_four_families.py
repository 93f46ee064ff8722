"""experiments/four_families: a family, its arms and the tables, on a tiny backbone that stands in
for SmolLM2."""

import shutil

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from experiments import four_families
from experiments.four_families_tables import over_seeds
from plumbline.recipe import load_recipe
from plumbline.runs.record import RunRecord
from plumbline.storage import read_object, write_json

SMALL = (
    "task={name: 'tests.toy:open_toy', options: {size: 6}}",
    "model.dtype=float32",
    "model.lora={rank: 2, alpha: 4}",
    "sft.batch_size=4",
    "rl.prompts_per_step=2",
    "rl.group_size=2",
)


@pytest.fixture(scope="module")
def backbone(tiny_folder, tmp_path_factory):
    """With the token that the recipes name for a mask."""
    folder = tmp_path_factory.mktemp("four") / "backbone"
    shutil.copytree(tiny_folder, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<empty_output>"]})
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_every_arm_is_a_recipe():
    """Nothing is trained here; each arm's keys are read by its family."""
    known = four_families.declared()
    for task in known["tasks"]:
        for start in known["starts"].values():
            recipe = load_recipe(four_families.RECIPES / f"{task}{start['recipe']}.yaml")
            assert recipe.sft.seconds == recipe.rl.seconds
            assert recipe.model.lora.rank == 16
        for name, arm in known["arms"].items():
            family = arm["start"].removesuffix("-next")
            start = four_families.start_recipe(task, known["starts"][arm["start"]], 0, PLAN)
            run = type(
                "Run", (), {"recipe": start, "model": lambda _, stage: f"runs/x/models/{stage}"}
            )()
            recipe = four_families.arm_recipe(task, known, name, run, PLAN)
            assert (recipe.sft, recipe.rl.seconds, recipe.model.family) == (None, 1800, family)
            assert recipe.controls.shuffle_advantages == name.endswith("-shuffled")


PLAN = four_families.Plan(four_families.Path("runs"), 4, ())


def test_arms_are_trained_evaluated_and_put_into_tables(backbone, tmp_path, monkeypatch):
    """Under a clock in which a step of SFT takes a second and one of GRPO two."""
    runs, out = tmp_path / "runs", tmp_path / "docs"
    words = [
        "run",
        "extraction",
        "--only",
        "flow",
        "masked-just",
        "--seeds",
        "0",
        "--n",
        "3",
        "--runs",
        str(runs),
    ]
    words += ["--seconds", "2", "--model", str(backbone), "--set", *SMALL, "sampling.max_tokens=24"]
    ticks = iter(range(10**6))
    monkeypatch.setattr("time.process_time", lambda: float(next(ticks)))
    with pytest.raises(SystemExit) as ended:
        four_families.main(words)
    log = runs / "progress.log"
    assert ended.value.code == 0, log.read_text()
    flow = RunRecord.read(runs / "extraction-flow-seed0")
    assert (
        len(RunRecord.read(runs / "extraction-sft-flow-seed0").rows("sft")),
        len(flow.rows("rl")),
    ) == (2, 1)
    measured = read_object(flow.folder / "measured.json")
    assert measured["rl.test.sampled"]["passes"] == 8
    just = read_object(runs / "extraction-masked-just-seed0" / "measured.json")
    assert set(just) == {
        f"rl.test.{mode}{suffix}" for mode in ("greedy", "sampled") for suffix in ("", "-by-start")
    }
    said, rows = log.read_text(), flow.rows("rl")
    (flow.folder / "result.json").unlink()  # as a kill before its end leaves it
    with pytest.raises(SystemExit):
        four_families.main(words)
    assert [line.partition(": ")[2] for line in log.read_text().removeprefix(said).splitlines()][
        :1
    ] == ["goes on"]
    assert log.read_text().removeprefix(said).count("\n") == 2, "what is finished is not done again"
    assert (flow.rows("rl"), flow.result()["status"]) == (rows, "finished")
    with pytest.raises(SystemExit) as other:
        four_families.main([*words, "--rl-seconds", "9"])
    assert other.value.code == 1
    assert "other settings" in log.read_text()

    out.mkdir()
    page = out / "four-families-extraction.md"
    four_families.main(["tables", "--runs", str(runs), "--out", str(out)])
    text = page.read_text()
    assert [*out.iterdir()] == [page], (
        "nothing of what was not run: what there is of it may be another machine's"
    )
    assert "| flow, SFT | 1 | 3 |" in text
    assert "masked-just, sampled as" in text
    assert "| oracle |" in text
    assert "[-" not in "".join(line for line in text.splitlines() if "SFT |" in line), (
        "a share is not below 0"
    )
    assert "| flow, SFT | 2 | – | 2 |" in text
    assert "| flow | 2 | 50.0 % | 1 |" in text

    with pytest.raises(SystemExit) as nothing:
        four_families.main(["tables", "--runs", str(tmp_path / "elsewhere"), "--out", str(out)])
    assert str(tmp_path / "elsewhere") in str(nothing.value)
    assert page.read_text() == text

    del measured["rl.test.sampled"]  # as it is while an arm is evaluated
    write_json(flow.folder / "measured.json", measured)
    four_families.main(["tables", "--runs", str(runs), "--out", str(out)])
    assert "| flow | 2 | 50.0 % | 1 | – | – |" in page.read_text()


def test_a_long_run_is_put_into_a_table_and_a_figure(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.four_families_tables.BLOCK", 2)
    runs = tmp_path / "runs"
    words = [
        "long",
        "--seeds",
        "0",
        "1",
        "--runs",
        str(runs),
        "--set",
        SMALL[0],
        *SMALL[3:],
        "rl.steps=4",
    ]
    words += [
        (
            "model.tiny={hidden: 16, layers: 1, heads: 2, vocabulary: 300, context: 128, steps: 2, "
            "batch_size: 2}"
        )
    ]
    words += [
        "sft.steps=1",
        "evaluation.every=2",
        "evaluation.final=[test]",
        "sampling={max_tokens: 4, steps: 2}",
    ]
    with pytest.raises(SystemExit) as ended:
        four_families.main(words)
    assert ended.value.code == 0
    four_families.main(["tables", "--runs", str(runs), "--out", str(tmp_path)])
    text = (tmp_path / "four-families-long.md").read_text()
    assert "| flow, SFT | 2 |" in text
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith(("| 2 |", "| 4 |"))]
    assert [(row[0], len(row)) for row in rows] == [("| 2", 7), ("| 4", 7)]
    held = {
        seed: {row["step"]: row for row in RunRecord.read(runs / f"long-seed{seed}").rows("rl")}
        for seed in (0, 1)
    }
    mean = sum(one[4]["eval/mean_reward"] for one in held.values()) / 2
    assert rows[1][5].startswith(f"{mean:.3f} [")
    assert "<svg" in (tmp_path / "four-families-long.svg").read_text()


def test_several_seeds_widen_an_interval():
    one = over_seeds({0: [0.0, 1.0, 0.0, 1.0]})
    three = over_seeds({0: [0.0, 1.0, 0.0, 1.0], 1: [1.0, 1.0, 0.0, 1.0], 2: [0.0, 0.0, 0.0, 1.0]})
    assert one.mean == three.mean == 0.5
    assert three.high - three.low > one.high - one.low
    assert over_seeds({}) is None
