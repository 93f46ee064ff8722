"""The rule by which doctors are judged, and that it knows all that they can say."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.doctors import ask, our_jobs, scenarios, trl_jobs
from benchmarks.doctors.codes import list_codes
from benchmarks.doctors.look import Case, measure_change
from benchmarks.doctors.table import (
    FOLDER,
    MARKS,
    OURS,
    TOLD,
    TOOLS,
    flatten,
    judge,
    list_words,
    measure,
    put_into_page,
    write_table,
)
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.checks.messages import find_message, read_messages

LABEL = {"symptoms": ["no-spread", "unsolved"], "cause": ["too hard|sparse", ["levels"]]}
WORDLESS = {"prompts", "unfinished", "wrong-language"}
"""Checks of ours with findings that none of the words is for."""
LABELS = {
    path.name: {name: one for name, one in found.get("faults", found).items() if name != "_"}
    for path in sorted(FOLDER.glob("*.yaml"))
    if path.name not in ("tools.yaml", "public.yaml")
    for found in [yaml.safe_load(path.read_text())]
}


def said(kind: str, level: str = "warning", text: str = "") -> list:
    return [kind, level, 3, text]


def test_a_note_names_nothing() -> None:
    found = [said("zero-variance-groups:too-hard", "note", "too hard")]
    verdict = judge(OURS, LABEL, {"found": found})
    assert (verdict.named, verdict.cause, verdict.level, verdict.first) == (False, False, "", "")


def test_the_cause_is_of_the_first_finding_above_a_note_and_the_name_of_any() -> None:
    found = [
        said("kl:explodes", "note", "too hard"),
        said("gap:wide"),
        said("no-signal", text="Levels"),
    ]
    verdict = judge(OURS, LABEL, {"found": found})
    assert (verdict.named, verdict.cause, verdict.level) == (True, False, "warning")
    assert verdict.first == "gap:wide"
    assert judge(OURS, LABEL, {"found": found[2:]}).cause


def test_fatal_is_worse_than_a_warning_and_a_sound_run_has_no_name() -> None:
    found = [said("gap:wide"), said("reward-hacking:signs", "fatal")]
    verdict = judge(OURS, {}, {"found": found})
    assert (verdict.level, verdict.accused, verdict.named) == ("fatal", True, False)


def test_unread_and_crashed_are_told_apart() -> None:
    assert not judge("rlprobe", {}, {"found": None}).read
    broke = judge("rlprobe", LABEL, {"found": [], "crash": "ValueError"})
    assert (broke.read, broke.crashed, broke.named) == (True, True, False)


@pytest.mark.parametrize(
    ("tool", "kind", "words"),
    [
        (OURS, "no-signal:gradient-lost", ["no-gradient"]),
        (OURS, "kl:explodes", ["kl"]),
        ("post-training-toolkit", "critical: Loss loss=1e9", ["loss", "falls"]),
        ("post-training-toolkit", "critical: NaN detected in kl", ["not-finite"]),
        ("provenir", "hacking: proxy_divergence", ["hacking"]),
    ],
)
def test_the_longest_entry_counts(tool: str, kind: str, words: list[str]) -> None:
    assert list_words(tool, kind) == words


def test_what_is_not_in_the_list_is_no_silent_miss() -> None:
    with pytest.raises(KeyError, match="a new kind of runmedic"):
        list_words("runmedic", "a new kind")


def test_all_checks_and_codes_have_words() -> None:
    known = TOOLS[OURS]["findings"]
    names = {check.name for check in CHECKS}
    loud = [
        f"{name}:{code}"
        for name in sorted(names)
        for code, message in read_messages()[name]["found"].items()
        if "fix" in message  # without one it is a note
    ]
    assert len(loud) > 100
    wordless = {one for one in loud if not list_words(OURS, one)}
    assert {one.partition(":")[0] for one in wordless} <= WORDLESS
    for one in known:
        name, _, code = one.partition(":")
        if code and name in names:
            assert find_message(name, code), one


def test_all_words_are_explained() -> None:
    used = [
        word
        for tool in TOOLS.values()
        for key in ("findings", "scenarios")
        for words in tool.get(key, {}).values()
        for word in words
    ]
    used += [
        word for faults in LABELS.values() for one in faults.values() for word in one["symptoms"]
    ]
    assert set(used) <= set(TOLD["symptoms"])
    for faults in LABELS.values():
        for one in faults.values():
            assert one["what"]
            assert all(re.compile(each) for each in flatten(one["cause"]))


def test_each_tool_has_an_adapter_and_each_planted_run_a_label(tmp_path: Path) -> None:
    assert set(ask.DOCTORS) == set(TOOLS) - {OURS}
    assert set(scenarios.MAKERS) == {name for name, tool in TOOLS.items() if "scenarios" in tool}
    jobs = [*trl_jobs.jobs(tmp_path), *our_jobs.jobs(tmp_path)]
    assert {job.fault for job in jobs} - {""} == set(LABELS["faults.yaml"])


def test_broken_and_sound_runs_are_counted_apart(tmp_path: Path) -> None:
    broken, sound = (Case("planted", "a", "rl", tmp_path, label) for label in (LABEL, {}))
    loud = {"found": [said("no-signal", "fatal", "too hard")]}
    counts = measure([(case, judge(OURS, case.label, loud)) for case in (broken, sound)])
    assert counts == {
        "named": [True],
        "cause": [True],
        "fatal": [True],
        "warned": [False],
        "accused": [False],
    }


def test_what_is_unknown_or_unread_counts_as_neither(tmp_path: Path) -> None:
    case = Case("public", "a", "rl", tmp_path, LABEL)
    loud = judge(OURS, LABEL, {"found": [said("no-signal", "fatal")]})
    unread = judge(OURS, LABEL, {"found": None})
    assert not any(measure([(replace(case, known=False), loud), (case, unread)]).values())


def test_the_table_is_put_between_its_marks(tmp_path: Path) -> None:
    case = Case("planted", "a", "rl", tmp_path, LABEL)
    table = list(write_table([case], {OURS: {case.key: {"found": [said("no-signal")]}}}))
    page = tmp_path / "page.md"
    page.write_text("\n".join(("before", *MARKS, "after", "")))
    for _ in range(2):
        put_into_page(table, page)
        lines = page.read_text().splitlines()
        assert lines == ["before", MARKS[0], "", *table, "", MARKS[1], "after"]
    assert table[-1].startswith(f"| planted | {OURS} | 1/1: 1.00 [0.21, 1.00] | 0/1")
    page.write_text("no marks")
    with pytest.raises(ValueError, match="has no line"):
        put_into_page(table, page)


def test_public_logs_are_of_three_kinds() -> None:
    path = FOLDER / "public.yaml"
    for entry in yaml.safe_load(path.read_text()) if path.is_file() else ():
        assert re.fullmatch(r"[\w.-]+", entry["id"])
        assert entry["judgement"] in ("healthy", "broken", "unknown"), entry["id"]
        assert bool(entry.get("symptoms")) == (entry["judgement"] == "broken"), entry["id"]
        assert set(entry.get("symptoms", ())) <= set(TOLD["symptoms"]), entry["id"]
        assert {"repo", "commit", "path", "kind", "why"} <= entry.keys(), entry["id"]


def test_a_run_of_eight_rows_has_not_learnt() -> None:
    assert not measure_change(np.arange(8.0)).low > 0
    assert measure_change(np.arange(30.0)).low > 0


def test_the_page_of_codes_is_that_of_the_table() -> None:
    """`python -m benchmarks.doctors.codes > docs/reference/findings.md` makes it."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "findings.md"
    assert page.read_text(encoding="utf-8") == list_codes()
