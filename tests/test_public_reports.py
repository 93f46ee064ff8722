"""Inputs that follow public bug reports of people who do this job: what is read of each is what its
report calls right.

A folder of `public_reports` is one input, named after the repository and the number of its report.
Reports of models that would not open are in policies/test_opening.py, those of servers in
serve/test_core.py, those of queries and of forms beside the environments' tests.
"""

import json
import sys
from pathlib import Path

import pytest

from plumbline.checks.audit import cheats

INPUTS = Path(__file__).with_name("public_reports")


def folder_of(number: str) -> Path:
    (folder,) = INPUTS.glob(f"{number}-*")
    return folder


def inputs(file: str) -> list[str]:
    return sorted(
        folder.name.partition("-")[0] for folder in INPUTS.iterdir() if (folder / file).is_file()
    )


# -- logs: findings that must be there with words of them, and words that no finding may have ------

LOGS = [
    (
        "n01",
        "trainer_state.json",
        {"no-margin": "reference-is-policy"},
        ["same-texts", "beta-zero"],
    ),
    ("n02", "trainer_state.json", {"less-likely": "warning"}, ["fatal"]),
    ("n03", "trainer_state.json", {"sft-loss": "fatal"}, []),
    ("n06", "trainer_state.json", {"summed-loss": "4 times"}, ["warning", "fatal"]),
    ("n08", "logging.jsonl", {"below-zero": "warning"}, ["fatal"]),
    ("n13", "trainer_state.json", {"no-gradient": "fatal"}, []),
    (
        "02",
        "trainer_state.json",
        {"gap": "product-of-small"},
        ["other-sampl", "old-weights"],
    ),
    ("03", "trainer_state.json", {"gap": "filters"}, []),
    (
        "05",
        "logging.jsonl",
        {"no-signal": "never reach"},
        ["does not tell answers apart", "they are solved"],
    ),
    ("07", "train.log", {"not-finite": "step 110"}, []),
    ("10", "trainer_state.json", {"parts-oppose|part-lost|dead-part": "accuracy"}, []),
    ("11", "trainer.log", {"gap": "widened"}, ["targets"]),
    ("11", "wandb_export.csv", {"gap": "widened"}, ["targets"]),
    ("11d", "trainer.log", {}, ["warning", "fatal"]),
    ("12b", "trainer_state.json", {"loss-zero": "no-target"}, []),
    ("13", "verl.log", {"reward-falls": "", "entropy": "", "kl|reward-falls": "KL"}, []),
    ("15", "logging.jsonl", {"small-updates": "rate-for-all-weights"}, []),
    ("18", "metrics.jsonl", {"gap": "product-of-small"}, ["other-sampl", "old-weights"]),
    ("19", "logging.jsonl", {"no-signal": "equal"}, []),
    ("20", "trainer_state.json", {"gap": "old-weights"}, []),
    ("20b", "trainer_state.json", {"kl|gap": "unseen-by-samples"}, []),
    ("n06", "trainer_state.json", {}, ["untrained"]),
    ("n11", "metrics.jsonl", {"gap": "is 5."}, []),
    ("n05", "grpo.log", {"no-signal": "fatal"}, ["rose from"]),
    ("n07", "trainer_log.jsonl", {}, ["fatal"]),
    ("n16", "run.log", {"reward-falls": "fatal"}, []),
]


@pytest.mark.parametrize(
    ("number", "file", "wanted", "unwanted"), LOGS, ids=[f"{one[0]} {one[1]}" for one in LOGS]
)
def test_a_log_is_read_as_what_it_is(plumbline, number, file, wanted, unwanted):
    _, out, err = plumbline("check", folder_of(number) / file, "--json")
    (stage,) = json.loads(out or err)["stages"]
    said = {}
    for finding in stage["findings"]:
        causes = [text for one in finding["causes"] for text in one.values()]
        words = [finding["level"], finding["code"], finding["what"], *causes, finding["fix"]]
        said[finding["check"]] = said.get(finding["check"], "") + " ".join(words)
    for names, words in wanted.items():
        assert any(words in said.get(name, "-" * 9) for name in names.split("|")), said
    assert not [word for word in unwanted if any(word in one for one in said.values())], said
    assert stage["stage"] == {"11": "rl", "11d": "rl", "n07": "sft"}.get(number, stage["stage"])


# -- rewards ---------------------------------------------------------------------------------------

REWARDS = {
    "21": ("accuracy", "thread"),
    "25": ("accuracy", "blank"),
    "26": ("accuracy", "every-gold"),
    "27": ("accuracy", "hostile"),
    "29": ("correct", "every-gold"),
    "n22": ("compute_score", "tail behind"),
    "n23c": ("correct", "working before"),
    "n25b": ("passes", "pays-anything"),
    "n27": ("form,rewards:correct", "doubled closing mark"),
}
"""The function, and what names its fault."""


@pytest.mark.parametrize("number", REWARDS)
def test_what_is_wrong_with_a_reward_is_named(plumbline, monkeypatch, number):
    monkeypatch.chdir(folder_of(number))
    monkeypatch.syspath_prepend(folder_of(number))
    monkeypatch.delitem(sys.modules, "rewards", raising=False)
    monkeypatch.setattr(cheats, "VERDICTS", 300)
    gold = "#### {ground_truth}" if number == "n22" else "answer"
    rows = ["--rows", "rows.jsonl", "--set", f"task.options.gold={gold}"]
    _, out, err = plumbline("audit", f"rewards:{REWARDS[number][0]}", *rows, "--json")
    assert out, err
    (audit,) = json.loads(out)["audits"].values()
    assert any(
        REWARDS[number][1] in f"{one['check']} {one['code']} {one['evidence']}"
        for one in audit["findings"]
    ), audit["findings"]


# -- answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", inputs("schema.json"))
def test_json_is_read_as_it_was_meant(plumbline, number):
    folder = folder_of(number)
    code, out, err = plumbline(
        "parse", folder / "answers.jsonl", "--schema", folder / "schema.json"
    )
    assert code == 0, err
    said = {row["id"]: row for row in map(json.loads, out.splitlines())}
    for name, wanted in json.loads((folder / "expected.json").read_text()).items():
        if wanted["value"] is None:  # one of several, whichever
            assert "several" in said[name]["how"]
        else:
            assert said[name]["value"] == wanted["value"], said[name]
