"""Each kind of finding on a task with that fault planted and nothing else wrong; and none on tasks
that are sound."""

import json
import re
import sys
from dataclasses import replace

import pytest

from plumbline.checks.audit import cheats, checks, other_conditions, scoring_runner
from plumbline.checks.audit.texts import (
    DECIMAL_COMMA,
    rewrite_answer,
    sample_examples,
    writes_commas,
)
from plumbline.checks.audit.trial import try_reward
from plumbline.errors import DataError
from plumbline.records import Example, Score
from plumbline.storage import write_jsonl
from plumbline.tasks import silent
from plumbline.tasks.cases import Case
from tests.audit.faulty import FaultyTask
from tests.work import work


@pytest.fixture(autouse=True)
def few_verdicts(monkeypatch):
    monkeypatch.setattr(cheats, "VERDICTS", 1500)


@pytest.mark.parametrize(
    ("fault", "check", "level", "evidence"),
    [
        ("dead", "part-dead", "fatal", {"part": "tom", "most": 0.0}),
        ("constant", "part-constant", "warning", {"part": "tom", "most": 1.0}),
        ("silent", "part-silent", "note", {"part": "tom"}),
        ("floor", "part-floor", "warning", {"part": "nota", "least": 0.2}),
        ("contradiction", "parts-contradict", "fatal", {"parts": ["longo", "curto"]}),
        ("shape", "baseline", "warning", {"baseline": "constant", "limit": 0.3}),
        ("shape-fatal", "baseline", "fatal", {"baseline": "constant", "limit": 0.3}),
        ("oracle", "oracle", "fatal", {"low": 120, "n": 120, "least": 0.9}),
        ("wrong gold", "oracle", "fatal", {"low": 1, "n": 120}),
        ("brief", "oracle", "warning", {"parts": {"nota": 120}}),
        ("decimal comma", "writing", "fatal", {}),
        ("raises", "raises", "fatal", {"raised": {"JSONDecodeError": 124}}),
        ("dice", "repeat", "fatal", {}),
        ("main thread only", "repeat", "fatal", {}),
        ("all dice", "repeat", "fatal", {}),
        ("hostile", "hostile", "warning", {"floor": 0.0}),
        ("strict pays more", "readings", "fatal", {}),
        ("ragged gold", "readings", "warning", {"count": 120, "of": 120}),
        ("contains", "cheat", "fatal", {}),
        ("no gold", "no-oracle", "note", {}),
    ],
)
def test_a_planted_fault_is_found_and_nothing_else(fault, check, level, evidence):
    task = FaultyTask(fault)
    if fault == "no gold":
        task.__class__ = type(
            "Goldless", (FaultyTask,), {"baselines": {"blank": FaultyTask().baselines["blank"]}}
        )
    found = try_reward(task).findings
    by_length = {"pays-length"} if fault == "contradiction" else set()
    assert {finding.check for finding in found} - {"part-unreached"} == {check} | by_length, [
        one.what for one in found
    ]
    assert {finding.level for finding in found if finding.check == check} == {level}
    shown = next(finding.evidence for finding in found if finding.check == check)
    assert {key: shown[key] for key in evidence} == evidence
    assert fault != "decimal comma" or shown["decimal comma"]["loss"] == 1.0
    assert fault != "hostile" or len(shown["rewards"]) == 16


def test_examples_that_share_a_cluster_count_once():
    alone, alike = FaultyTask("shape"), FaultyTask("shape")
    of_each = alone.examples
    alike.examples = lambda split: [
        replace(one, cluster=f"{at % 4}") for at, one in enumerate(of_each(split))
    ]
    assert "baseline" in {finding.check for finding in try_reward(alone).findings}
    # four clusters decide nothing
    assert "baseline" not in {finding.check for finding in try_reward(alike).findings}


def test_a_sound_task_has_no_finding_and_its_figures():
    heard = []
    found = try_reward(FaultyTask(), progress=lambda *told: heard.append(told))
    assert found.findings == ()
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["gold"] == {"n": 120, "mean": 1.0, "least": 1.0}
    assert plain["splits"] == {"train": 40, "val": 40, "test": 40}
    assert plain["baselines"]["blank"] == {"limit": None, "train": 0.0, "val": 0.0, "test": 0.0}
    assert plain["parts"]["nota"]["least"] == 0.0
    assert plain["parts"]["nota"]["most"] == 1.0
    assert plain["writings"][DECIMAL_COMMA]["loss"] == 0.0
    assert plain["cheat"]["reward"]["mean"] < 0.3
    assert {what for what, _, _ in heard} >= {
        "gold answers",
        "search for cheats",
        "all a second time",
    }
    assert len(try_reward(FaultyTask(), splits=["val"], limit=5).context.golds) == 5


def test_a_way_of_writing_loses_a_share_of_what_its_own_gold_answer_earns():
    task = FaultyTask("oracle")  # every gold answer earns 0.9
    seen, example = scoring_runner.ScoringRunner(task, silent), task.examples("val")[0]
    whole, half = (
        Case(example, "", text) for text in (example.gold, example.gold.replace("tipo", "other"))
    )
    seen.judge(
        "all",
        {("gold",): [whole], ("writing", "same"): [whole], ("writing", "half"): [half, whole]},
    )
    assert {way: figures["loss"] for way, figures in seen.measure_writings().items()} == {
        "same": 0.0,
        "half": 0.25,
    }


def test_parts_that_gold_answers_lack_are_named_in_their_own_order():
    names = [f"part{number}" for number in range(9)]

    class Half(FaultyTask):
        def judge(self, example, completion):
            share = 0.25 if example is golds[0].example else 0.5
            return super().judge(example, completion)[0], Score(
                total=share, parts=dict.fromkeys(names, share)
            )

    bench_ = scoring_runner.ScoringRunner(Half(), silent)
    golds = [
        Case(example, "gold answer", example.gold) for example in bench_.task.examples("val")[:3]
    ]
    bench_.judge("gold answers", {("gold",): golds})
    (finding,) = [one for one in checks.find_unpaid_gold(bench_) if one.check == "oracle"]
    assert list(finding.evidence["parts"]) == names


def test_the_same_seed_gives_the_same_audit():
    first, second, other = (
        try_reward(FaultyTask("shape"), limit=20, seed=seed).to_dict() for seed in (3, 3, 4)
    )
    drop = {"seconds", "verdicts_per_second"}
    assert {k: v for k, v in first.items() if k not in drop} == {
        k: v for k, v in second.items() if k not in drop
    }
    assert first["cheat"] != other["cheat"]


def test_a_verifier_that_does_not_come_back_ends_the_audit_and_is_the_finding(monkeypatch):
    monkeypatch.setattr(scoring_runner, "LIMIT", 0.2)
    found = try_reward(FaultyTask("hangs"))
    assert [
        (finding.check, finding.level) for finding in found.findings if finding.level != "note"
    ] == [("slow", "fatal")]
    evidence = found.findings[0].evidence
    assert (evidence["count"], evidence["limit"]) == (3, checks.LIMIT)


def test_a_hostile_text_that_takes_long_is_told(monkeypatch):
    monkeypatch.setattr(checks, "SLOW", 0.1)
    (finding,) = try_reward(FaultyTask("slow"), limit=2).findings
    assert (finding.check, finding.level) == ("slow", "warning")
    assert finding.evidence["seconds"] > 0.1


def test_a_verifiers_own_code_of_an_error_is_no_cause_of_ours():
    class Coded(FaultyTask):
        def judge(self, example, completion):
            if completion != example.gold:
                raise DataError("it cannot be read", "write it", "codes-of-my-own")
            return super().judge(example, completion)

    found = [one for one in try_reward(Coded(), limit=2).findings if one.check == "raises"]
    assert [one.causes for one in found] == [("no-reward",)]
    assert all(one.explain_causes() for one in found)


def test_the_search_puts_together_what_no_single_start_has(monkeypatch):
    """Three words earn a third each, and stand in the prompt, in gold answers, and in a baseline."""

    class Words(FaultyTask):
        baselines = {"says": lambda examples: ["sim"] * len(examples)}  # noqa: RUF012

        def judge(self, example, completion):
            outcome, _ = super().judge(example, completion)
            words = {"sim", "avaliação", "tipo"}
            share = len(words & set(completion.replace('"', " ").replace(":", " ").split())) / 3
            return outcome, self.weighed.score({"nota": share, "tipo": share})

    monkeypatch.setattr(cheats, "VERDICTS", 6000)
    found = try_reward(Words())
    assert found.context.cheat.reward == pytest.approx(1.0)
    assert "sim" in found.context.cheat.text
    assert "<the prompt" in found.context.cheat.rule


def test_a_cheat_is_measured_on_examples_that_were_not_sought_on_and_lends_no_gold_of_theirs():

    class Opaque(FaultyTask):
        def _example(self, number):
            return replace(super()._example(number), gold=f"<resposta {number}>")

    task, answered = Opaque("contains"), {}
    original = task.judge
    task.judge = lambda example, text: (
        answered.setdefault(example.id, set()).add(text),
        original(example, text),
    )[1]
    examples = sample_examples({split: task.examples(split) for split in task.splits}, 60, 0)
    found = cheats.cheapest_cheat(
        scoring_runner.ScoringRunner(task, lambda *_: None), examples, {}, 0
    )
    assert len(answered) == 40  # 20 of the 60 lend their golds
    texts = set.union(*answered.values())
    lent = {example.id for example in examples if any(example.gold in text for text in texts)}
    assert lent
    assert not lent & answered.keys()
    assert len(found.rewards) == 20


def test_the_braces_of_a_prompt_are_found_in_linear_time():
    rule = cheats.RULES["<the prompt's braces>"]
    assert rule("a } b {x} {y} c { d") == "{x} {y}"
    assert work(lambda: rule("{" * 20_000)) < 2


@pytest.mark.parametrize(
    ("gold", "way", "text"),
    [
        ('{"nota": 4.5}', "decimal comma", '{"nota": 4,5}'),
        ('{"nota": 4.5}', "decimal comma in quotes", '{"nota": "4,5"}'),
        ('{"preco": 1234.5}', "R$", '{"preco": "R$ 1.234,5"}'),
        ('{"taxa": 12.5}', "percent sign", '{"taxa": "12,5%"}'),
        ('{"n": 12345}', "thousands points", '{"n": "12.345"}'),
        ('{"a": [1.5, {"b": "São"}]}', "accents left out", '{"a": [1.5, {"b": "Sao"}]}'),
        ('{"a": "x"}', "trailing comma", '{"a": "x",}'),
        ('{"a": "x"}', "curly quotes", "{“a”: “x”}"),
        ('{"a": "x"}', "single quotes", "{'a': 'x'}"),
        ("4.5", "decimal comma", "4,5"),
        ("São Paulo", "accents left out", "Sao Paulo"),
        ("São Paulo", "case", "são paulo"),
        ("São Paulo", "fence", "```\nSão Paulo\n```"),
        ("São Paulo", "curly quotes around", "“São Paulo”"),
    ],
)
def test_a_value_is_written_in_other_ways(gold, way, text):
    example = Example(id="a", messages=[{"role": "user", "content": "Qual?"}], gold=gold)
    assert text in [written for name, written in rewrite_answer(example, "pt") if name == way]


def test_what_does_not_mean_the_same_is_not_written():
    query = Example(
        id="a", messages=[{"role": "user", "content": "?"}], gold="SELECT x FROM t WHERE y = 4.5;"
    )
    assert {name for name, _ in rewrite_answer(query, "en")} == {
        "blanks around",
        "fence",
        "prose around",
    }
    price = Example(id="a", messages=[{"role": "user", "content": "?"}], gold='{"score": 0.5}')
    assert "R$" not in dict(rewrite_answer(price, "en"))
    assert list(rewrite_answer(Example(id="a", messages=[]), "en")) == []


def test_the_language_of_the_prompts_says_whether_a_comma_is_decimal():
    def asked(text):
        return [Example(id="a", messages=[{"role": "user", "content": text}])]

    assert writes_commas(asked("Quanto é 4,5 mais 1?"))
    assert writes_commas(asked("Leia a avaliação."))
    assert not writes_commas(asked("What is 4.5 plus 1,000?"))


# -- the command -----------------------------------------------------------------------------------


def test_a_recipe_a_task_and_a_reward_function_with_rows_are_audited(
    plumbline, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    opener = "tests.audit.faulty:open_faulty"
    code, out, _ = plumbline("audit", opener, "--limit", "10", "--json")
    assert code == 0
    assert json.loads(out)["audits"]["faulty"]["findings"] == []
    code, out, _ = plumbline(
        "audit", opener, "--set", "task.options.fault=oracle", "--split", "val", "--out", "a.json"
    )
    assert code == 1
    assert re.search(r"fatal: 40 of 40.*\(oracle\)", out)
    audited = json.loads((tmp_path / "a.json").read_text())["audits"]["faulty"]
    assert audited["fatal"] is True
    assert audited["findings"][0]["evidence"]["low"] == 40
    recipe = "name: two\nmodel: {tiny: {}}\nrl: {steps: 1}\ntasks:\n"
    recipe += "".join(
        f"  {name}: {{name: '{opener}', options: {{fault: '{fault}'}}}}\n"
        for name, fault in (("a", ""), ("b", "dead"))
    )
    (tmp_path / "two.yaml").write_text(recipe)
    code, out, _ = plumbline("audit", "two.yaml", "--limit", "10", "--json")
    assert code == 1
    assert {name: one["fatal"] for name, one in json.loads(out)["audits"].items()} == {
        "a": False,
        "b": True,
    }
    assert plumbline("audit", "two.yaml:a", "--limit", "10")[0] == 0


VERL = r"""
import re
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    right = re.findall(r"#### (\d+)", solution_str)[-1:] == [ground_truth] and extra_info["n"] ** 2 == int(ground_truth)
    return {"score": 2.0 * right - 1, "acc": right}
"""


def test_verls_compute_score_is_audited_as_it_is(plumbline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    rows = [
        {
            "prompt": f"{n}?",
            "data_source": "x",
            "extra_info": {"n": n},
            "reward_model": {"ground_truth": str(n * n)},
        }
        for n in range(30, 60)
    ]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    (tmp_path / "verl_reward.py").write_text(VERL)
    gold = "task.options.gold=#### {ground_truth}"
    code, out, err = plumbline(
        "audit", "verl_reward.py:compute_score", "--rows", "rows.jsonl", "--set", gold, "--json"
    )
    (audit,) = json.loads(out or err)["audits"].values()
    assert code == 0
    assert [(one["check"], one["level"]) for one in audit["findings"]] == [
        ("range", "note"),
        ("rows", "note"),
    ]
    assert "no prompt names '####'" in audit["findings"][1]["what"]
    assert "compute_score: [-1, 1]" in audit["findings"][0]["fix"]


USERS = """
import asyncio, json, re, signal, threading, time
from signal import alarm as ring_in, signal as set_handler
from pathlib import Path

def last(text):
    return (re.findall(r"-?\\d+", text if isinstance(text, str) else text[-1]["content"]) or [None])[-1]
def right(completions, answer):
    return [float(last(text) == one) for text, one in zip(completions, answer)]
def ring(*_):
    raise TimeoutError
local = threading.local()
local.open = True
asked, known = [], {}

def sound(completions, answer, **_): return right(completions, answer)
async def coroutine(completions, answer, **_): return right(completions, answer)
def careful(completions, answer, **_):
    main = threading.current_thread() is threading.main_thread()
    if main:
        signal.signal(signal.SIGALRM, ring), signal.alarm(5)
    scores = right(completions, answer)
    if main:
        signal.alarm(0)
    return scores
def alarm(completions, answer, **_):
    try:
        signal.signal(signal.SIGALRM, ring)
        signal.alarm(5)
        return right(completions, answer)
    except Exception:
        return [0.0 for _ in completions]
    finally:
        signal.alarm(0)
def raising(completions, answer, **_):
    signal.signal(signal.SIGALRM, ring)
    return right(completions, answer)
class Deadline:
    def __enter__(self): set_handler(signal.SIGALRM, ring), ring_in(5)
    def __exit__(self, *_): ring_in(0)
def imported(completions, answer, **_):
    try:
        with Deadline():
            return right(completions, answer)
    except ValueError:
        return [0.0 for _ in completions]
def lengthy(completions, **rest):
    return [min(0.5, len(text) / 400) for text in completions]


def lacking(completions, answer, **rest):
    import nothing_of_the_kind


def slow_off_main(completions, answer, **rest):
    if threading.current_thread() is not threading.main_thread():
        time.sleep(3)
    return [float(one == mine) for one, mine in zip(completions, answer)]


def of_a_thread(completions, answer, **_):
    return right(completions, answer) if getattr(local, "open", False) else [0.0 for _ in completions]
def loop(completions, answer, **_):
    async def wait(): return right(completions, answer)
    return asyncio.run(wait())
def first_row(completions, answer, **_): return right(completions, [answer[0]] * len(completions))
def shared(completions, answer, **_):
    return [score / completions.count(text) for score, text in zip(right(completions, answer), completions)]
def hashed(completions, answer, **_):
    return [score * (hash(one) % 97 + 1) / 97 for score, one in zip(right(completions, answer), answer)]
def cached(prompts, completions, answer, **_):
    return [known.setdefault(p, score) for p, score in zip(prompts, right(completions, answer))]
def relative(completions, answer, **_):
    return right(completions, answer) if Path("rows.jsonl").exists() else [0.0 for _ in completions]
def printing(completions, answer, **_):
    print("judging", len(completions))
    return right(completions, answer)
def accuracy(completions, answer, **_): return [2 * score for score in right(completions, answer)]
def hashes(completions, **_): return [0.5 * text.startswith("#### ") for text in completions]
def tagged(completions, answer, **_):
    return [float(f"<answer>{one}</answer>" in text) for text, one in zip(completions, answer)]
def boxed_messages(completions, **columns):
    return [float("boxed" in one[0]["content"]) for one in completions]


def messages(completions, answer, **_): return right([text[0]["content"] for text in completions], answer)
def exact(prompts, completions, answer, **kwargs):
    return [float(text.strip() == one) for text, one in zip(completions, answer)]
def contains(completions, answer, **kwargs): return [float(one in text) for text, one in zip(completions, answer)]
def first(completions, answer, **_):
    return [float(next(iter(re.findall(r"\\d+", text)), None) == one) for text, one in zip(completions, answer)]
def end(completions, answer, **_): return right([text[-300:] for text in completions], answer)
def some(completions, answer, **_):
    return [float(len(one) < 3 or score) for one, score in zip(answer, right(completions, answer))]
def number(completions, answer, **_): return [float(last(text) == int(one)) for text, one in zip(completions, answer)]
def form(completions, **_):
    return [float(bool(re.fullmatch("<answer>.*</answer>", text))) for text in completions]
def whole_form(completions, **_):
    return [float(bool(re.fullmatch("<answer>[^<]*</answer>", text))) for text in completions]
def thinks_first(completions, **_): return [0.9 * text.startswith("<think>") for text in completions]
def short_penalty(completions, **_): return [-0.001 * (len(text) > 0) for text in completions]
def even(completions, answer, **_):
    return [None if int(one) % 4 else score for one, score in zip(answer, right(completions, answer))]
def repeats(completions, **_):
    return [-0.5 * (len(text.split()) > 9 and len({*text.split()}) < 9) for text in completions]
def rude_penalty(completions, **_): return [0.0 for _ in completions]
def rude(completions, **_): return [-1.0 * ("damn" in text) for text in completions]
def wordy(completions, **_): return [min(1.0, len(text) / 400) for text in completions]
def lenient(completions, answer, **_):
    return [1.0 if one is None else right([text], [one])[0] for text, one in zip(completions, answer)]
def skips(completions, answer, **_):
    return [None if one is None else right([text], [one])[0] for text, one in zip(completions, answer)]
def strict(completions, answer, **_):
    return [float(json.loads(text) == one) for text, one in zip(completions, answer)]
"""


@pytest.fixture
def users(plumbline, tmp_path, monkeypatch):
    """Audits functions of the module above, by name; gives what stands in the JSON."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cheats, "VERDICTS", 300)
    sys.modules.pop("users_rewards", None)
    (tmp_path / "users_rewards.py").write_text(USERS)
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    rows = [
        {"prompt": f"Twice {words[n // 10]} {words[n % 10]}?", "answer": str(2 * n)}
        for n in range(60)
    ]
    write_jsonl(tmp_path / "rows.jsonl", rows)

    def audited(names, gold="answer"):
        functions = ",".join(f"users_rewards:{name}" for name in names.split(","))
        chosen = () if gold is None else ("--set", f"task.options.gold={gold}")
        _, out, _ = plumbline("audit", functions, "--rows", "rows.jsonl", *chosen, "--json")
        return json.loads(out)["audits"]["jsonl"]

    return audited


@pytest.mark.parametrize(
    ("names", "loud"),
    [
        ("sound,repeats", set()),
        ("sound,rude_penalty", set()),
        ("sound,rude", set()),
        ("skips", set()),
        ("lenient", {"pays-anything"}),
        ("wordy", {"oracle", "hostile", "cheat", "part-floor", "baseline"}),
    ],
)
def test_penalties_rows_without_gold_and_paid_forms_are_told_apart(users, tmp_path, names, loud):
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    if names in {"skips", "lenient"}:
        rows = [row | ({"answer": None} if n % 6 == 5 else {}) for n, row in enumerate(rows)]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    found = users(names)["findings"]
    checks_ = {one["check"] for one in found if one["level"] != "note"}
    assert checks_ == loud if names != "wordy" else checks_ & loud and "label" not in checks_
    assert any("10 of 60 rows" in one["what"] for one in found) == (names in {"skips", "lenient"})


@pytest.mark.parametrize(
    ("name", "level", "where", "cause"),
    [
        ("alarm", "warning", "thread", "alarm-signal"),
        ("raising", "warning", "thread", "alarm-signal"),
        ("imported", "warning", "thread", "alarm-signal"),
        ("of_a_thread", "warning", "thread", "thread-state"),
        ("loop", "warning", "event-loop", "own-loop"),
        ("first_row", "warning", "other-prompts", "first-row"),
        ("shared", "fatal", "group", "same-call"),
        ("hashed", "warning", "process", "global"),
        ("cached", "warning", "process", "global"),
        ("relative", "warning", "directory", "relative-file"),
        ("sound", "", "", ""),
        ("coroutine", "", "", ""),
        ("careful", "", "", ""),
    ],
)
def test_a_reward_is_judged_under_other_conditions(users, name, level, where, cause):
    found = [one for one in users(name)["findings"] if one["check"] == "elsewhere"]
    assert [(one["level"], one["evidence"]["where"]) for one in found] == (
        [(level, where)] if level else []
    )
    assert [one["causes"][0]["code"] for one in found] == [cause] * len(found)


def test_a_condition_that_gives_no_verdict_in_time_is_no_other_verdict(users, monkeypatch):
    monkeypatch.setattr(other_conditions, "SECONDS", 1.0)
    found = [one for one in users("slow_off_main")["findings"] if one["check"] == "elsewhere"]
    assert ("note", "late", "thread") in [
        (one["level"], one["code"], one["evidence"]["where"]) for one in found
    ]
    assert {one["code"] for one in found} == {"late"}


def test_a_part_that_pays_for_length_is_named(users):
    found = [one for one in users("right,lengthy")["findings"] if one["check"] == "pays-length"]
    assert [(one["level"], one["evidence"]["part"]) for one in found] == [("warning", "lengthy")]


@pytest.mark.parametrize("gold", [None, "answer"])
def test_a_part_that_reads_a_column_of_another_kind_is_named_beside_one_that_pays(
    users, tmp_path, gold
):
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    write_jsonl(tmp_path / "rows.jsonl", [{**row, "answer": int(row["answer"])} for row in rows])
    found = users("accuracy,lengthy", gold=gold)["findings"]
    (fatal,) = [one for one in found if one["level"] == "fatal"]
    assert (fatal["check"], "answer is a text" in fatal["what"]) == ("unpaid", True)


def test_parts_of_trls_signature_add_up_over_the_ranges_that_are_seen(users):
    found = users("accuracy,hashes", gold="#### {answer}")
    assert found["effective_weights"] == pytest.approx({"accuracy": 0.8, "hashes": 0.2})
    assert found["gold"]["mean"] == 1.0
    (note,) = [one for one in found["findings"] if one["check"] == "range"]
    assert note["level"] == "note"
    assert "task.options.range: {accuracy: [0, 2], hashes: [0, 0.5]}" in note["fix"]
    assert not found["fatal"]


def test_what_options_do_not_name_is_guessed_and_a_reward_that_never_pays_is_named(users, tmp_path):
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    write_jsonl(
        tmp_path / "rows.jsonl",
        [
            {"question": row["prompt"], "answer": row["answer"], "aside": f"of {row}"}
            for row in rows
        ],
    )
    found = users("accuracy,hashes", gold=None)
    assert found["effective_weights"] == pytest.approx({"accuracy": 0.8, "hashes": 0.2})
    assert found["gold"]["mean"] == 1.0
    notes = [one["what"] for one in found["findings"] if one["check"] == "rows"]
    assert ["'#### {answer}'" in notes[0], notes[1].endswith(": aside")] == [True, True]
    write_jsonl(tmp_path / "rows.jsonl", [{**row, "answer": int(row["answer"])} for row in rows])
    found = users("accuracy", gold=None)
    (finding,) = [one for one in found["findings"] if one["level"] != "note"]
    assert (finding["check"], finding["level"]) == ("unpaid", "fatal")
    assert "answer is a text" in finding["what"]
    assert found["effective_weights"] is None


@pytest.mark.parametrize(
    ("names", "gold", "check", "said"),
    [
        ("accuracy,hashes", "answer", "label", 'task.options.gold: "#### {answer}"'),
        ("tagged", "answer", "label", 'task.options.gold: "<answer>{answer}</answer>"'),
        ("messages", "answer", "form", "lists of messages"),
        ("messages", None, "form", "lists of messages"),
        ("boxed_messages", "answer", "form", "lists of messages"),
        ("strict", "word {answer}", "raises", "catch it there"),
        ("lacking", "answer", "raises", "install"),
        ("lacking", None, "raises", "install"),
    ],
)
def test_one_cause_is_named_where_one_explains_all(users, names, gold, check, said):
    (finding,) = [one for one in users(names, gold)["findings"] if one["level"] == "fatal"]
    assert finding["check"] == check
    assert said in finding["fix"]
    line = next(at for at, text in enumerate(USERS.splitlines(), 1) if "json.loads" in text)
    assert names != "strict" or f"users_rewards.py, line {line})" in finding["what"], (
        "the user's, not that of json"
    )


@pytest.mark.parametrize(
    ("names", "gold", "wanted", "ways"),
    [
        ("first", "answer", ("writing", "warning"), {"a long working before"}),
        ("first", "answer", ("wrong-paid", "warning"), {"another answer behind the gold one"}),
        ("end", "answer", ("writing", "warning"), {"a long tail behind"}),
        ("some", "answer", ("pays-anything", "fatal"), {"row-3"}),
        ("number", None, ("unpaid", "fatal"), set()),
        ("right,form", "<answer>{answer}</answer>", ("marks", "note"), {"a doubled closing mark"}),
        ("right,whole_form", "<answer>{answer}</answer>", ("marks", None), set()),
        ("sound", "answer", ("pays-anything", None), set()),
        ("sound", "answer", ("writing", "note"), {"whole number as a float"}),
    ],
)
def test_what_a_reward_pays_and_refuses_beside_gold_answers(users, names, gold, wanted, ways):
    found = users(names, gold=gold)
    levels = {(one["check"], one["level"]) for one in found["findings"]}
    check, level = wanted
    assert wanted in levels if level else check not in dict(levels), found["findings"]
    shown = str([one for one in found["findings"] if one["check"] == check])
    assert all(way in shown for way in ways), shown


def test_every_gold_answer_at_once_counts_where_it_holds_the_rows_own(users, tmp_path):
    """Of long ones it holds few: a tenth of the rows are paid, and each of those whose gold answer
    is in it."""
    rows = [
        {"prompt": f"Row {n}?", "answer": f"{'So it goes on. ' * 20}#### {n * 7919}"}
        for n in range(60)
    ]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    (found,) = [one for one in users("contains")["findings"] if one["check"] == "baseline"]
    assert (found["level"], found["evidence"]["reward"]["mean"]) == ("fatal", 1.0)


def test_the_first_lines_count_what_is_refused_and_paid_wrongly(users):
    tried = {name: users(name, gold="answer")["misjudged"] for name in ("sound", "first")}
    refused, paid = ([tried[name][what]["count"] for name in tried] for what in tried["first"])
    assert refused == [24, 24]  # a whole number as a float; the first number of a working
    assert paid == [24, 48]  # the gold answer negated, and another one behind it


def test_form_may_take_its_share_and_a_small_penalty_is_a_note(users):
    found = users("sound,thinks_first", gold="<think>so</think> {answer}")
    assert {one["check"] for one in found["findings"] if one["level"] != "note"} <= {
        "baseline",
        "marks",
    }
    assert found["misjudged"]["right answers refused"]["count"] == 0
    (low,) = [one for one in users("sound,short_penalty")["findings"] if one["check"] == "oracle"]
    assert low["level"] == "note"


def test_gold_answers_without_a_reward_are_not_counted(users):
    gold = users("even")["gold"]
    assert (gold["n"], gold["mean"], gold["least"]) == (30, 1, 1)


def test_a_reward_function_of_trls_signature_is_audited_with_rows(users):
    found = users("exact")["findings"]
    # it compares letter by letter
    assert {(one["check"], one["level"]) for one in found} == {("writing", "warning")}
    found = users("contains")["findings"]
    assert "fatal" in {one["level"] for one in found if one["check"] in {"baseline", "cheat"}}


def test_what_a_verifier_prints_is_counted_and_stays_out_of_the_figures(users):
    finding, *others = users("printing")["findings"]
    assert {(one["check"], one["level"]) for one in others} == {
        ("wrong-paid", "note"),
        ("writing", "note"),
    }
    assert (finding["check"], finding["level"]) == ("prints", "note")
    assert "first 'judging 1'" in finding["what"]
