"""Runs beside one another: what is compared with what, what is not comparable, and how certain a
difference is."""

import itertools
import json
import resource
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from plumbline.errors import DataError, IncomparableError, RunError
from plumbline.evaluation import statistics
from plumbline.evaluation.compared_runs import (
    EvaluationFilter,
    Lineage,
    compare_paths,
    comparisons_to_dict,
    history_to_dict,
    read_lineage,
)
from plumbline.evaluation.comparison import Pairing, adjust_pairings
from plumbline.evaluation.statistics import Interval, detectable_difference, direction, holm
from plumbline.reports.evaluation_output import render_tables
from plumbline.reports.run_comparison import history_page, history_tables
from plumbline.runs.evaluations import write_evaluation
from plumbline.storage import dumps, read_object, write_json
from tests.runs.stored import evaluation, rewards, stored

GREEDY, BASE = "rl.test.greedy", "base.test.greedy"
RL = {"steps": 60, "prompts_per_step": 4, "group_size": 8}


def day(hour: int) -> str:
    return f"2026-02-17T{hour:02d}:00:00+00:00"


def said(found: Lineage) -> list[tuple[str, str, str]]:
    return [
        (one.run, one.against, one.direction if one.paired else str(one.error))
        for one in found.pairings
    ]


# -- Holm, and what n can show ---------------------------------------------------------------------


def closed(p_values: list[float]) -> list[float]:
    """The adjusted p-values from their definition: the worst Bonferroni p of all sets of hypotheses
    with this one."""
    numbers = range(len(p_values))
    sets = [
        some
        for size in range(1, len(p_values) + 1)
        for some in itertools.combinations(numbers, size)
    ]
    return [
        max(min(1.0, len(some) * min(p_values[j] for j in some)) for some in sets if i in some)
        for i in numbers
    ]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_holm_is_the_closed_test_of_bonferroni(n):
    rng = np.random.default_rng(n)
    for _ in range(30):
        p_values = rng.choice([0.0002, 0.004, 0.01, 0.02, 0.3, 0.9, 1.0], n).tolist()
        assert holm(p_values) == pytest.approx(closed(p_values), abs=1e-12)
    assert holm([]) == []


def test_holm_calls_any_of_twenty_equals_different_no_more_often_than_one_test_would():
    rng = np.random.default_rng(5)
    trials = rng.random((2000, 20))
    assert 0.035 < np.mean([min(holm(list(row))) < 0.05 for row in trials]) < 0.065
    assert np.mean((trials < 0.05).any(axis=1)) > 0.5, (
        "without it most tables would have a false one"
    )


@pytest.mark.parametrize("tests", [1, 12])
def test_the_detectable_difference_is_found_four_times_in_five(tests):
    n, sd = 200, 0.4
    half = 1.96 * sd / np.sqrt(n)
    least = detectable_difference(Interval(0, -half, half, n), tests)
    z = stats.norm.ppf(1 - 0.025 / tests)
    power = stats.norm.sf(z - least / (sd / np.sqrt(n)))
    assert power == pytest.approx(0.8, abs=1e-3)


def test_what_too_few_clusters_could_never_show_is_not_called_detectable():
    """Of five that all rise the least p of flips is 2 in 32; of eight in two comparisons, 2 times 2
    in 256."""
    for clusters, tests, can in ((5, 1, False), (6, 1, True), (6, 2, False), (8, 2, True)):
        rng, names = np.random.default_rng(clusters), [str(n // 4) for n in range(4 * clusters)]
        change = statistics.paired_difference(
            np.zeros(len(names)), rng.normal(0, 0.1, len(names)), names
        )
        one = Pairing(run="b", against="a", asked="test greedy", paired=change)
        assert [
            pairing.paired.detectable is not None for pairing in adjust_pairings([one] * tests)
        ] == [can] * tests


def test_a_direction_needs_both_the_interval_and_the_test():
    clear, touching = Interval(0.2, 0.1, 0.3, 9), Interval(0.1, 0.0, 0.2, 9)
    assert [direction(clear, p) for p in (0.049, 0.05)] == ["rise", "same"]
    assert direction(touching, 0.001) == "same"
    assert direction(Interval(-0.2, -0.3, -0.1, 9), 0.01) == "fall"


# -- lineages --------------------------------------------------------------------------------------


def test_versions_are_compared_with_the_one_before_and_p_is_adjusted_over_the_table(tmp_path):
    low, high = rewards(0.3, seed=1), rewards(0.95, seed=2)
    stored(tmp_path / "v1", {GREEDY: low, BASE: low}, began=day(1))
    stored(tmp_path / "v2", {GREEDY: high}, began=day(2), rl=RL | {"beta": 0.1})
    stored(tmp_path / "v3", {GREEDY: low}, began=day(3), rl=RL | {"beta": 0.2}, steps=0)
    found = read_lineage([tmp_path])
    assert said(found) == [
        ("v1", "its start, models/small", "same"),
        ("v2", "v1", "rise"),
        ("v3", "v2", "fall"),
    ]
    changes = [[*member.changes] for member in found.members]
    assert changes == [[], [("rl.beta", 0.0, 0.1)], [("rl.beta", 0.1, 0.2)]]
    assert found.tests == 3
    assert [one.paired.p for one in found.pairings] == holm(
        [one.paired.p_value for one in found.pairings]
    )
    start, rise, _ = found.pairings
    assert (start.paired.detectable, start.paired.p) == (None, 1.0), (
        "where no pair differs nobody knows what would be found"
    )
    difference = rise.paired.difference
    assert rise.paired.detectable == detectable_difference(difference, 3)
    assert difference.mean == pytest.approx(np.mean(high) - np.mean(low))
    result = found.members[1].results[0]
    assert (result.reward.mean, result.floor, result.ceiling) == (
        pytest.approx(np.mean(high)),
        0.0,
        1.0,
    )
    first, _, last = json.loads(dumps(history_to_dict(found)))["runs"]
    assert [one["steps"]["rl"] for one in (first, last)] == [
        {"done": 60, "of": 60},
        {"done": 0, "of": 60},
    ]
    assert last["changes"] == [{"key": "rl.beta", "before": 0.1, "after": 0.2}]


def test_two_seeds_of_one_recipe_are_not_called_different(tmp_path):
    """Twelve pairs of seeds drawn from one distribution; a table of all of them may err once in
    twenty tables, not in twelve."""
    for seed in range(13):
        stored(
            tmp_path / f"seed{seed:02d}",
            {GREEDY: rewards(0.5, seed=seed)},
            began=day(seed),
            seed=seed,
        )
    found = read_lineage([tmp_path])
    assert [(one.against, one.direction) for one in found.pairings] == [("seed00", "same")] * 12


def test_a_difference_that_seeds_alone_make_too_is_remarked(tmp_path):
    """Two seeds of v1 are 0.5 apart; v2 is 0.4 above one of them. v3 is compared with v2, which has
    one seed."""
    for name, level, beta, seed in (
        ("a", 0.05, 0.0, 1),
        ("b", 0.55, 0.0, 2),
        ("c", 0.45, 0.1, 1),
        ("d", 1.0, 0.2, 1),
    ):
        ones = round(level * 60)
        result = {GREEDY: [1.0] * ones + [0.0] * (60 - ones)}
        stored(
            tmp_path / name, result, began=day(ord(name) - 96), rl=RL | {"beta": beta}, seed=seed
        )
    found = {one.run: one for one in read_lineage([tmp_path]).pairings}
    assert {name: (one.against, "0.500" in one.remark) for name, one in found.items()} == {
        "b": ("a", True),
        "c": ("a", True),
        "d": ("c", False),
    }
    assert found["d"].remark == ""
    assert found["c"].direction == "rise", "the two models differ all the same"


def test_a_metric_that_was_redefined_and_other_examples_are_not_comparable(tmp_path):
    values = rewards(0.5)
    stored(tmp_path / "v1", {GREEDY: values}, began=day(1))
    stored(
        tmp_path / "v2",
        {GREEDY: evaluation(values, rubric="toy/2+def456")},
        began=day(2),
        rl=RL | {"beta": 0.1},
    )
    other = evaluation(values, rubric="toy/2+def456", ids="other")
    stored(tmp_path / "v3", {GREEDY: other}, began=day(3), rl=RL | {"beta": 0.2})
    stored(tmp_path / "v4", {"rl.val.greedy": values}, began=day(4), rl=RL | {"beta": 0.3})
    found = read_lineage([tmp_path])
    reasons = [one.error.cause for one in found.pairings]
    named = (("v1", "toy/1+abc123", "v2", "toy/2+def456"), ("0 examples", "60 and 60"), ("v3",))
    for reason, names in zip(reasons, named, strict=True):
        assert [name for name in names if name not in reason] == []
    assert found.tests == 0


def test_results_of_other_distributions_and_of_other_stages_are_remarked(tmp_path):
    changed, stages = tmp_path / "changed", tmp_path / "stages"
    for number, longest in ((1, 80), (2, 512)):
        drawn = replace(
            evaluation(rewards(0.5)), sampling={"temperature": 0.0, "max_tokens": longest}
        )
        stored(
            changed / f"v{number}",
            {GREEDY: drawn},
            began=day(number),
            rl=RL | {"beta": number / 10},
        )
    assert [one.remark for one in read_lineage([changed]).pairings] == [
        "drawn otherwise: max_tokens 80 → 512"
    ]
    stored(
        stages / "v1",
        {"sft.test.greedy": rewards(0.5)},
        began=day(1),
        sft={"steps": 5},
        finished=False,
    )
    stored(stages / "v2", {GREEDY: rewards(0.6)}, began=day(2), sft={"steps": 6})
    for found in (read_lineage([stages]), compare_paths(stages / "v1", stages / "v2")):
        (remark,) = (one.remark for one in found.pairings)
        assert ("rl" in remark, "v1 after sft" in remark) == (True, True)


def test_split_and_mode_decide_what_is_shown_and_how_strict_the_correction_is(tmp_path):
    for name, level, beta in (("v1", 0.4, 0.0), ("v2", 0.6, 0.1)):
        keys = ("rl.test.greedy", "rl.val.greedy", "rl.test.sampled")
        stored(
            tmp_path / name,
            {key: rewards(level, seed=len(name)) for key in keys},
            rl=RL | {"beta": beta},
        )
    for asked, tests in (((None, None), 3), ((None, "greedy"), 2), (("val", None), 1)):
        assert read_lineage([tmp_path], EvaluationFilter(*asked)).tests == tests


def test_a_run_without_an_outcome_has_its_result_from_its_evaluations(tmp_path):
    values = rewards(0.5)
    references = {"reference.test.oracle": [1.0] * 60, "reference.test.blank": [0.1] * 60}
    stored(tmp_path / "v1", {GREEDY: values} | references, finished=False)
    (result,) = read_lineage([tmp_path]).members[0].results
    assert (result.reward.mean, result.floor, result.ceiling) == (
        np.mean(values),
        pytest.approx(0.1),
        1.0,
    )
    # its training has no result, and its start has
    stored(tmp_path / "begun" / "v1", {BASE: values}, finished=False)
    found = read_lineage([tmp_path / "begun"])
    assert (found.members[0].results, found.pairings) == ((), ())


@pytest.mark.parametrize(
    "damage", [{"reward": 7}, {"reward": {"mean": "x"}}, {"floor": 3}, {"rubric": None}, "gone"]
)
def test_an_outcome_that_does_not_say_what_it_should_is_named(tmp_path, damage):
    run = stored(tmp_path / "v1", {GREEDY: rewards(0.5)})
    result = read_object(run.folder / "result.json")
    result["evaluations"][GREEDY] = (
        damage if damage == "gone" else result["evaluations"][GREEDY] | damage
    )
    write_json(run.folder / "result.json", result)
    member = read_lineage([tmp_path]).members[0]
    assert member.results == ()
    assert ("result.json" in member.problems[0], GREEDY in member.problems[0]) == (True, True)


def test_a_damaged_evaluation_spoils_its_own_comparison_only(tmp_path):
    for hour, name in enumerate(("v1", "v2", "v3")):
        stored(
            tmp_path / name,
            {GREEDY: rewards(0.5, seed=hour)},
            began=day(hour),
            rl=RL | {"beta": hour / 10},
        )
    (tmp_path / "v3" / "evaluations" / f"{GREEDY}.json").write_text('{"rows": [')
    first, second = read_lineage([tmp_path]).pairings
    assert first.paired is not None
    assert "is not JSON" in str(second.error)


# -- runs and files that are named one by one ------------------------------------------------------


def test_several_are_each_compared_with_the_first(tmp_path):
    for seed, name in enumerate("abc"):
        stored(tmp_path / name, {GREEDY: rewards(0.2 + 0.35 * seed, seed=seed)}, seed=seed)
    found = compare_paths(*(tmp_path / name for name in "abc"))
    assert said(found) == [("b", "a", "rise"), ("c", "a", "rise")]
    plain = comparisons_to_dict(found)
    assert plain["first"] == "a"
    assert plain["recipe"] == {"b": [["seed", 0, 1]], "c": [["seed", 0, 2]]}
    assert (
        plain["comparisons"]["c"]["test greedy"]["p_holm"]
        <= 2 * plain["comparisons"]["c"]["test greedy"]["p_value"]
    )


def test_of_two_the_values_stand_as_they_did(tmp_path):
    for seed, name in enumerate("ab"):
        stored(tmp_path / name, {GREEDY: rewards(0.5, seed=seed)}, seed=seed)
    plain = comparisons_to_dict(compare_paths(tmp_path / "a", tmp_path / "b"))
    assert set(plain) == {"comparisons", "recipe"}
    paired = plain["comparisons"]["test greedy"]
    assert {"difference", "p_value", "wins", "losses", "ties", "before", "after", "p_holm"} <= set(
        paired
    )
    assert plain["recipe"] == [["seed", 0, 1]]


def test_runs_that_are_compared_show_their_floors_and_ceilings(tmp_path):
    references = {"reference.test.oracle": [1.0] * 60, "reference.test.blank": [0.1] * 60}
    stored(tmp_path / "a", {GREEDY: rewards(0.5)} | references)
    stored(tmp_path / "b", {GREEDY: rewards(0.9)})
    write_evaluation(tmp_path / "c.json", evaluation(rewards(0.7)))
    found = compare_paths(tmp_path / "a", tmp_path / "b", tmp_path / "c.json")
    bounds = [(one.floor, one.ceiling) for member in found.members for one in member.results]
    assert bounds == [(pytest.approx(0.1), 1.0), (None, None), (None, None)]


def test_one_that_is_not_comparable_has_a_row_and_if_none_is_that_is_an_error(tmp_path):
    values = rewards(0.5)
    stored(tmp_path / "a", {GREEDY: values})
    stored(tmp_path / "b", {GREEDY: evaluation(values, rubric="toy/2")})
    stored(tmp_path / "c", {GREEDY: rewards(0.5, seed=3)})
    stored(tmp_path / "d", {"rl.val.greedy": values})
    paths = [tmp_path / name for name in "abcd"]
    found = comparisons_to_dict(compare_paths(*paths))["comparisons"]
    (reason,) = found["b"]["test greedy"].values()
    assert ("toy/1+abc123" in reason, "b under toy/2" in reason) == (True, True)
    assert found["c"]["test greedy"]["p_value"] > 0.05
    assert str(paths[3]) in found["d"][""]["not_comparable"]
    with pytest.raises(IncomparableError, match="rubric"):
        compare_paths(paths[0], paths[1])
    with pytest.raises(DataError, match="split and mode"):
        compare_paths(paths[0], paths[3])


def test_a_file_is_compared_with_the_evaluation_of_a_run_that_was_drawn_alike(tmp_path):
    run = stored(
        tmp_path / "a", {GREEDY: rewards(0.9, seed=1), "rl.test.sampled": rewards(0.1, seed=2)}
    )
    write_evaluation(tmp_path / "one.json", evaluation(rewards(0.5)))
    (one,) = compare_paths(tmp_path / "one.json", run.folder).pairings
    assert one.paired.after == pytest.approx(np.mean(rewards(0.9, seed=1)))


def test_what_is_no_run_cannot_be_compared(tmp_path):
    stored(tmp_path / "a", {BASE: rewards(0.5)}, finished=False)
    with pytest.raises(DataError, match="no evaluation"):
        compare_paths(tmp_path / "a", tmp_path / "a")
    with pytest.raises(RunError, match=r"recipe\.yaml"):
        compare_paths(tmp_path, tmp_path)


# -- whatever stands there -------------------------------------------------------------------------


NONSENSE = (
    *(b"", b"null", b"[]", b"{}", b"\xff\xfe", b'{"a":', b"NaN", b"[" * 100_000),
    b"name: [1]\nmodel: {name: 3}\n",
    b"model: {name: ../x, tiny: 3}\nsft: 3\nrl: [1]\ntask: 4\ntasks: [1]\ncontrols: 7\nseed: {a: 1}\n",
    *(b'{"evaluations": 3}', b'{"evaluations": {"rl.test.greedy": 3}}'),
    b'{"kind": "started", "message": "x", "time": 3}\n',
    b'{"stage": "rl", "step": 3, "time/x": true}\n{"stage": "zz", "step": 99999999999999999999}\n',
)


def test_whatever_stands_in_the_records_every_run_has_its_line(tmp_path):
    """Each file of a lineage in turn: gone, a folder, cut short, or nonsense; the others keep their
    results."""
    for seed in range(3):
        stored(
            tmp_path / "runs" / f"v{seed}",
            {GREEDY: rewards(0.5, 9, seed)},
            steps=2,
            seed=seed,
            finished=seed != 1,
        )
    rng = np.random.default_rng(0)
    files = sorted(path for path in (tmp_path / "runs" / "v1").rglob("*") if path.is_file())
    files += sorted(path for path in (tmp_path / "runs" / "v2").rglob("*.json"))
    for path in files:
        whole = path.read_bytes()
        nonsense = [NONSENSE[at] for at in rng.integers(len(NONSENSE), size=2)]
        for damage in (None, whole[: len(whole) // 2], *nonsense):
            path.unlink()
            if damage is None:
                path.mkdir()
            else:
                path.write_bytes(damage)
            found = read_lineage([tmp_path / "runs"])
            by_name = {member.name: member for member in found.members}
            assert sorted(by_name) == ["v0", "v1", "v2"]
            assert by_name["v0"].results
            assert dumps(history_to_dict(found))
            assert history_page(found, "x")
            assert all(
                render_tables(history_tables(found), form) for form in ("md", "csv", "latex")
            )
            if damage is None:
                path.rmdir()
                path.touch()
        path.write_bytes(whole)


# -- fast, and without torch -----------------------------------------------------------------------


def test_fifty_runs_are_listed_without_torch_in_three_times_what_one_takes(tmp_path):
    """Of a processor's time, because a busy machine says nothing about the command; imports are
    counted."""

    def seconds(runs):
        folder = tmp_path / f"{runs}"
        for seed in range(runs):
            values = {GREEDY: rewards(0.5, seed=seed), BASE: rewards(0.4)}
            began = f"2026-02-17T12:00:{seed:02d}+00:00"
            stored(folder / f"v{seed:02d}", values, began=began, rl=RL | {"beta": seed / 100})
        code = (
            f"import sys; sys.argv[1:] = ['runs', {str(folder)!r}, '--json'];"
            "from plumbline.cli.main import main; main();"
            "assert not set(sys.modules) & {'torch', 'transformers'}"
        )
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.stdout.count('"p_holm"') == runs
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert seconds(50) < 3 * seconds(1)
