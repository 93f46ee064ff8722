"""People's rows: which columns a question is made of, which holds its answer, and files in the
forms that come."""

import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from plumbline.checks.audit.trial import check_reward
from plumbline.errors import DataError
from plumbline.tasks.jsonl.files import Foreign, read_rows
from plumbline.tasks.jsonl.rows import scorer_rows
from plumbline.tasks.jsonl.task import open_guessed


def said(role, text):
    return {"role": role, "content": text}


def told(role, text):
    return {"from": role, "value": text}


LETTERED = "{question}\n\n{choices:options}"
SCHEMAS = {
    "gsm8k": (
        lambda n: {"question": f"{n}?", "answer": f"It is\n#### {n}"},
        "'<answer>' + answer.split('#### ')[1] + '</answer>'",
        {"prompt": "question", "gold": "<answer>{answer:####}</answer>"},
    ),
    "alpaca": (
        lambda n: {
            "instruction": f"Add {n}.",
            "input": f"to {n}" * (n % 2),
            "output": str(2 * n),
            "text": f"all {n}",
        },
        "output",
        {"prompt": "{instruction}\n\n{input}", "gold": "output", "left": ["text"]},
    ),
    "sharegpt": (
        lambda n: {
            "conversations": [told("system", "Add"), told("human", f"{n}?"), told("gpt", f"{n}!")]
        },
        "conversations[-1]['value']",
        {"prompt": "conversations"},
    ),
    "messages": (
        lambda n: {"messages": [said("user", f"{n}?"), said("assistant", f"{n}!")]},
        "messages[-1]['content']",
        {"prompt": "messages"},
    ),
    "parts": (
        lambda n: {"prompt": [said("user", [{"type": "text", "text": f"{n}?"}])], "answer": n},
        "answer",
        {"prompt": "prompt", "gold": "answer"},
    ),
    "arc": (
        lambda n: {
            "question": f"{n}?",
            "choices": {"text": [f"x{n}", "y"], "label": ["A", "B"]},
            "answerKey": "AB"[n % 2],
        },
        "answerKey",
        {"prompt": LETTERED, "gold": "answerKey"},
    ),
    "mmlu": (
        lambda n: {
            "question": f"{n}?",
            "subject": f"s{n % 2}",
            "choices": [f"x{n}", "y"],
            "answer": n % 2,
        },
        "'AB'[answer]",
        {"prompt": LETTERED, "gold": "{answer:letter}", "left": ["subject"]},
    ),
    "choice as text": (
        lambda n: {"question": f"{n}?", "choices": [f"x{n}", f"y{n}"], "answer": n % 2},
        "choices[answer]",
        {"prompt": LETTERED, "gold": "{choices:of answer}"},
    ),
    "a column a choice": (
        lambda n: {"question": f"{n}?", "opa": "x", "opb": str(n), "cop": n % 2},
        "'AB'[cop]",
        {"prompt": "{question}\n\nA. {opa}\nB. {opb}", "gold": "{cop:letter}"},
    ),
    "squad": (
        lambda n: {
            "title": f"T{n}",
            "context": f"Here are {n}.",
            "question": "How many?",
            "answers": {"text": [str(n)]},
        },
        "answers['text'][0]",
        {"prompt": "{context}\n\n{question}", "gold": "{answers.text.0}", "left": ["title"]},
    ),
    "true or false, and an image": (
        lambda n: {
            "question": f"{n}?",
            "passage": f"On {n}.",
            "answer": n % 2 == 0,
            "image": Foreign("bytes"),
        },
        "answer",
        {"prompt": "{passage}\n\n{question}", "gold": "{answer:str}", "left": ["image"]},
    ),
    "preference": (
        lambda n: {
            "prompt": f"{n}?",
            "chosen": [said("user", "?"), said("assistant", f"{n}")],
            "rejected": f"no {n}",
        },
        "chosen[-1]['content']",
        {"prompt": "prompt", "gold": "chosen"},
    ),
    "preference that the reward does not read": (
        lambda n: {"prompt": f"{n}?", "chosen": f"Is {n}.", "rejected": "no", "score": n % 2},
        "completion if 'Is' in completion else 0",
        {"prompt": "prompt", "gold": "chosen", "left": ["rejected", "score"]},
    ),
    "answers that lack at first": (
        lambda n: {
            "question": f"{n}?",
            "answers": {"text": [f"{n}"][: n > 7]},
            "level": 3,
            "photo": [{"path": "x"}],
        },
        "(answers['text'] or ['']) [0]",
        {"prompt": "question", "gold": "{answers.text.0}", "left": ["level", "photo"]},
    ),
    "nli": (
        lambda n: {"premise": f"A {n}", "hypothesis": f"B {n}", "label": n % 2},
        "['entailment', 'neutral'][label]",
        {"prompt": "Premise: {premise}\n\nHypothesis: {hypothesis}"},
    ),
    "tool calls": (
        lambda n: {"query": f"{n}?", "tools": [{"name": "f"}], "answers": [{"name": "f", "n": n}]},
        "__import__('json').dumps(answers)",
        {"prompt": "{tools}\n\n{query}", "gold": "answers"},
    ),
    "code": (
        lambda n: {
            "text": f"Write f{n}.",
            "code": f"def f{n}():\n    pass",
            "test_list": [f"f{n}()"],
        },
        "'```python\\n' + code + '\\n```'",
        {"prompt": "text", "gold": "```python\n{code}\n```", "left": ["test_list"]},
    ),
    "verl": (
        lambda n: {
            "prompt": [said("user", f"{n}?")],
            "reward_model": {"ground_truth": {"target": n}},
            "data_source": "x",
        },
        "ground_truth['target']",
        {"prompt": "prompt", "gold": "{ground_truth.target}"},
    ),
    "system": (
        lambda n: {"system": f"Be {n % 3}.", "Problem": f"{n}?", "Answer": float(n)},
        "Answer",
        {"prompt": "Problem", "system": "{system}", "gold": "Answer"},
    ),
    "one instruction for all": (
        lambda n: {"prompt": "Say it.", "question": f"{n}?", "context": f"c{n}", "answer": n},
        "answer",
        {"prompt": "{prompt}\n\n{context}\n\n{question}", "gold": "answer"},
    ),
    "all in the prompt": (
        lambda n: {"prompt": f"Of c{n}: {n}?", "context": f"c{n}", "answer": n / 2},
        "answer",
        {"prompt": "prompt", "gold": "answer"},
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_columns_of_a_question_are_in_the_prompt_and_its_answer_is_found(
    workplace, monkeypatch, name
):
    row, right, wanted = SCHEMAS[name]
    rows, left = [row(n) for n in range(24)], wanted.get("left", [])
    monkeypatch.setattr(
        "plumbline.tasks.jsonl.task.read_rows", lambda _: iter([*enumerate(rows, 1)])
    )
    monkeypatch.setattr(
        "plumbline.tasks.jsonl.rows.read_rows", lambda _: iter([*enumerate(rows, 1)])
    )
    columns = [*scorer_rows(rows, texts=False)[0][0]]
    given = ", ".join(column for column in columns if column not in {"prompt", *left})
    workplace.functions(
        f"def score(completion, {given}): return float(completion.strip() == "
        f"str({right}).strip())\n"
    )
    task = open_guessed(workplace.options())
    options = task.options
    held = [name for name in left if not isinstance(rows[0][name], Foreign)]
    assert task.describe_left_out().partition(": ")[2] == ", ".join(held)
    found = {"prompt": options.prompt, "gold": options.gold, "system": options.system}
    assert {key: value for key, value in found.items() if value} == {
        key: value for key, value in wanted.items() if key != "left"
    }
    assert task.has_gold == (name != "nli")
    assert not {"unpaid", "part-dead"} & {one.check for one in check_reward(task)}
    assert any("texts alone" in note for note in task.notes) == bool({"photo", "image"} & {*left})
    if task.has_gold:
        assert {task.judge(one, one.gold)[1].total for one in task.examples("train")} == {1.0}


def test_what_a_template_makes_of_a_row(workplace):
    rows = [
        {"id": n, "a": "" if n else None, "b": ["x", "y"], "c": {"d": [n]}, "s": "S" * (n % 2)}
        for n in range(9)
    ]
    workplace.rows(rows)
    workplace.functions(
        "def score(prompts, completions, **rows): return [float(p == c) for p, c in zip(prompts, "
        "completions)]"
    )
    task = workplace.open(
        prompt="Is it?\n\nA: {a}\n\n{b:options}\n\n{b}\n\n{c.d.0}",
        gold="{c}",
        system="{s}",
        val=0.3,
        test=0.3,
    )
    (one,) = [one for split in task.splits for one in task.examples(split) if one.id == "3"]
    assert one.messages == [
        said("system", "S"),
        said("user", asked := "Is it?\n\nA. x\nB. y\n\nx\ny\n\n3"),
    ]
    assert one.gold == '{"d": [3]}'
    assert task.judge(one, asked)[1].total == 1.0


@pytest.mark.parametrize(
    ("values", "held", "whole"),
    [
        ([9.0, None, 8.0], [9, None, 8], True),
        ([9.0, 8], [9, 8], True),
        ([1.5, 2.0], [1.5, 2.0], False),
        ([9, 8], [9, 8], False),
        (["9.0", "8.0"], ["9.0", "8.0"], False),
        ([True, 1.0], [True, 1.0], False),
    ],
)
def test_whole_numbers_of_a_whole_column_are_whole(values, held, whole):
    rows, named = scorer_rows([{"answer": value} for value in values], texts=False)
    assert [repr(row["answer"]) for row in rows] == [repr(value) for value in held]
    assert named == ["answer"] * whole
    assert scorer_rows([{"a": "9.0"}, {"a": ""}], texts=True)[0] == [{"a": "9"}, {"a": ""}]


def test_a_prompt_with_several_gold_answers_is_counted(workplace):
    workplace.rows([{"prompt": f"{n % 9}?", "answer": str(n % 18)} for n in range(36)])
    notes = workplace.open(gold="answer").describe_before_run(quick=True)
    assert any("7 of 7 prompts" in note for note in notes)


# -- files -----------------------------------------------------------------------------------------

ROWS = [{"prompt": f"é {n}", "answer": f"a,{n}"} for n in range(3)]
TABLE = "prompt;answer\n" + "".join(f"{row['prompt']};{row['answer']}\n" for row in ROWS)
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", TABLE.encode()),
        ("x.csv", ("sep=;\r\n" + TABLE.replace("\n", "\r\n")).encode("utf-8-sig")),
        ("x.csv", TABLE.replace(";", "\t").encode("utf-16")),
        ("x.tsv", TABLE.replace(";", "\t").encode()),
        (
            "x.csv",
            f'prompt,answer\n{"".join(f"""{row["prompt"]},"{row["answer"]}"{chr(10)}""" for row in ROWS)}'.encode(),
        ),
        ("x.json", json.dumps(ROWS, indent=1).encode("utf-8-sig")),
        ("x.jsonl", json.dumps(ROWS).encode()),
        ("x.json", json.dumps({"version": 1, "data": ROWS}).encode()),
        ("x.json", LINES.encode()),
        ("x.csv", LINES.encode()),
        ("x", LINES.replace("\n", "\r\n").encode()),
    ],
)
def test_rows_are_read_in_the_form_in_which_they_come(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert [row for _, row in read_rows(str(tmp_path / name))] == ROWS


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("x.csv", "prompt;answer\né;1\n".encode("cp1252"), "not UTF-8"),
        ("x.csv", b"a;b\n1;2;3\n", r"x\.csv:2 .* cells"),
        ("x.csv", b'a;b\n"1"x;2\n', r"x\.csv:1 .*';' expected after '\"'"),
        ("x.csv", b"a,a\n1,2\n", "two columns 'a'"),
        ("x.jsonl.gz", b"\x1f\x8b\x08", "compressed"),
        ("x.csv", b"PK\x03\x04", "Excel"),
        (
            "x.json",
            b'{"train": [{"a": 1}], "test": [{"a": 2}]}',
            r"x\.json .* rows .* train, test\n",
        ),
        ("x.json", b'{\n"prompt": ["a", "b"], "answer": ["c", "d"]}', r"x\.json .* none .* keys\n"),
        ("x.json", b"[1, 2]", r"x\.json, row 1: .* not int"),
        ("x.json", b'[{"a": "\\ud800"}]', r"x\.json, row 1 .*surrogates \(\\ud800 "),
        ("x.jsonl", b'{"a": 1}\n{"a": \n', "x.jsonl:2: not JSON"),
        ("x.parquet", b"PAR1 no", r"x\.parquet .*Parquet: ArrowInvalid: "),
        ("x.parquet", None, "does not exist"),
    ],
)
def test_what_is_no_such_file_is_said_with_its_cause(tmp_path, name, content, cause):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=cause):
        list(read_rows(str(tmp_path / name)))


@pytest.mark.parametrize(
    ("text", "encoding", "read"),
    [
        ("Größe;Straße über Köln", "cp1252", True),
        ("où est la mère à Paris; ça va; être", "cp1252", True),
        ("¿Dónde está el niño? Mañana", "cp1252", True),
        ("informação; não; maçã; avó", "cp1252", True),
        ("rød grød med fløde på; æble", "cp1252", True),
        ("costs £20; “hello” – it’s €5", "cp1252", True),
        ("mère", "cp1252", False),
        ("Příliš žluťoučký kůň", "cp1250", False),
        ("zażółć gęślą jaźń", "cp1250", False),
        ("árvíztűrő tükörfúrógép", "cp1250", False),
        ("Привет мир", "cp1251", False),
        ("şöyle çağrı", "cp1254", False),
        ("Größe über", "mac_roman", False),
        ("Größe Käse", "cp850", False),
        ("日本語テスト", "shift_jis", False),
        ("中文测试文本", "gbk", False),
    ],
)
def test_a_table_is_read_as_cp1252_where_it_can_be_nothing_else(workplace, text, encoding, read):
    lines = ["prompt,answer", *(f"{n} {text},1" for n in range(20))]
    (workplace.folder / "x.csv").write_bytes("\n".join(lines).encode(encoding))
    with nullcontext() if read else pytest.raises(DataError, match="not UTF-8"):
        task = workplace.open(train="x.csv")
        assert task.examples("train")[1].messages[0]["content"].endswith(text)
        assert all(word in task.notes[0] for word in ("x.csv", "cp1252"))


def test_parquet_needs_pyarrow_alone_and_short_floats_are_short(tmp_path, monkeypatch):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    short = pa.array([0.1], pa.float32())
    columns = {
        "a": short,
        "b": pa.array([[0.1]], pa.list_(pa.float32())),
        "c": pa.array([{"d": np.float16(0.1)}], pa.struct([("d", pa.float16())])),
        "e": pa.array(["x"]).dictionary_encode(),
        "f": pa.array([0.1]),
        "g": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        "h": pa.array([10**18 + 1], pa.timestamp("ns")),
    }
    parquet.write_table(pa.table(columns), tmp_path / "x")  # known by its first bytes
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    ((_, row),) = read_rows(str(tmp_path / "x"))
    assert {key: row[key] for key in "abcefg"} == {
        "a": 0.1,
        "b": [0.1],
        "c": {"d": 0.1},
        "e": "x",
        "f": 0.1,
        "g": [["k", 1]],
    }


HANDED_OVER = Path(__file__).parents[1] / "public_reports"


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        (
            "n82-datasets-8365-null-makes-floats/floats-no-null.jsonl",
            {"prompt": "prompt", "gold": "answer"},
        ),
        ("n85-sheetjs-2239-semicolons-and-cp1252/sep.csv", {"prompt": "prompt", "gold": "answer"}),
        ("n85-sheetjs-2239-semicolons-and-cp1252/tab.tsv", {"prompt": "prompt", "gold": "answer"}),
        (
            "n86-soup-565-alpaca-rows/varied.jsonl",
            {"prompt": "{instruction}\n\n{input}", "gold": "output"},
        ),
        ("n86-soup-565-alpaca-rows/nested.jsonl", {"prompt": "question", "gold": "{label.value}"}),
        ("n88-datasets-6937-a-json-list/rows.json", {"prompt": "prompt", "gold": "answer"}),
        ("n88-datasets-6937-a-json-list/under.json", {"prompt": "prompt", "gold": "answer"}),
    ],
)
def test_rows_of_public_reports_are_read_as_they_are_meant(workplace, file, wanted):
    right = {"varied": "output", "nested": "label['value']"}.get(Path(file).stem, "answer")
    column = right.partition("[")[0]
    workplace.functions(
        f"def score(completion, {column}): return float(completion == str({right}))\n"
    )
    task = open_guessed(workplace.options(train=str(HANDED_OVER / file)))
    assert {"prompt": task.options.prompt, "gold": task.options.gold} == wanted
    (one, *_) = task.examples("train")
    assert task.judge(one, one.gold)[1].total == 1.0
    assert not one.gold.endswith(".0")
