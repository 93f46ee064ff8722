"""The job sql_qa: what the gate lets pass, what a query may take, and what an answer is worth."""

import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from plumbline.api import HOSTILE, check_task
from plumbline.errors import DataError, RewardError
from plumbline.storage import read_jsonl, write_jsonl
from plumbline.tasks import open_task
from plumbline_commerce.sql_qa import engine
from plumbline_commerce.sql_qa.engine import (
    DATES,
    HEAP,
    QueryLimits,
    QueryRefusal,
    QueryResult,
    databases,
    run,
)
from plumbline_commerce.sql_qa.gate import read_query
from plumbline_commerce.sql_qa.gold import gold_of
from plumbline_commerce.sql_qa.rubric import (
    AnswerParts,
    canonicalise_answer,
    fill_sentence,
    judge,
    read_answer,
    score_sentence,
)
from tests.work import most_work

HERE = Path(__file__).parent
QUERIES = yaml.safe_load((HERE / "sql_queries.yaml").read_text(encoding="utf-8"))
QUESTION = "Quais são os 5 estados com mais pedidos em 2017?"
REFERENCE = {"question": QUESTION, "sql": QUERIES["gold"], "ordered": True}
SENTENCE = "Em 2017, o estado com mais pedidos foi {estado}, com {pedidos}."


def done(text, database):
    query = read_query(text)
    return query if isinstance(query, QueryRefusal) else run(database, query.sql)


def answer(sql, sentence=SENTENCE):
    return f"```sql\n{sql}\n```\n{sentence}"


def test_a_right_query_runs(shops):
    assert [
        text for text in QUERIES["right"] if isinstance(done(text, shops[0]), QueryRefusal)
    ] == []


@pytest.mark.parametrize("cause", QUERIES["wrong"])
def test_what_means_nothing_is_refused(shops, cause):
    found = {text: done(text, shops[0]) for text in QUERIES["wrong"][cause]}
    assert {text: one for text, one in found.items() if getattr(one, "cause", "") != cause} == {}


def test_a_query_that_means_the_same_is_right(shops):
    totals = {sql: judge(REFERENCE, answer(sql), shops)[1].total for sql in QUERIES["same"]}
    assert totals == dict.fromkeys(totals, 1.0)


def test_queries_with_one_result_say_the_same_and_those_without_say_nothing(shops):
    """What two answers have in common."""
    golds = {canonicalise_answer(answer(sql), shops[0]) for sql in QUERIES["same"]}
    assert len(golds) == 1
    assert golds != {frozenset()}
    assert all(canonicalise_answer(answer(sql), shops[0]) not in golds for sql in QUERIES["other"])
    for text in (
        "",
        "DROP TABLE orders",
        "SELECT MAX(order_id) AS a FROM orders WHERE order_id IS NULL",
    ):
        assert canonicalise_answer(answer(text), shops[0]) == frozenset()


def test_a_query_that_means_something_else_is_wrong(shops):
    for sql in QUERIES["other"]:
        score = judge(REFERENCE, answer(sql), shops)[1]
        assert (score.parts["runs"], score.parts["result"]) == (1, 0), sql
        assert score.total < 0.5, sql


def test_what_is_too_deep_or_long_is_refused_before_it_is_parsed():
    """Else it would depend on how deep the caller's own stack is."""
    for text in (
        "SELECT " + "(" * 26 + "1" + ")" * 26,
        "SELECT " + "1," * 400 + "1",
        "SELECT '" + "a" * 4000 + "'",
    ):
        assert read_query(text) == QueryRefusal("syntax", read_query(text).detail)
        assert read_query(text).detail.startswith("over ")


def written_out(text):
    return re.sub(r"\{([^{}]*?)\*(\d+)\}", lambda found: found[1] * int(found[2]), text)


ATTACKS = {
    kind: [written_out(text) for text in texts]
    for kind, texts in yaml.safe_load(
        (HERE / "sql_attacks.yaml").read_text(encoding="utf-8")
    ).items()
}
SHORT = QueryLimits(steps=10**12, seconds=0.1)


@pytest.fixture
def untouched(shops, tmp_path, monkeypatch):
    """A database that is the same afterwards, and nothing new beside it."""
    database = tmp_path / "shop.db"
    shutil.copy(shops[0], database)
    before = database.read_bytes()
    monkeypatch.chdir(tmp_path)
    yield database
    assert database.read_bytes() == before
    assert list(tmp_path.iterdir()) == [database]


@pytest.mark.parametrize("kind", ["write", "outside"])
def test_the_engine_alone_lets_no_write_and_no_look_outside_through(untouched, kind):
    for text in ATTACKS[kind]:
        assert isinstance(run(untouched, text), QueryRefusal), text


@pytest.mark.parametrize("kind", ["write", "outside", "stacked"])
def test_nothing_but_one_select_over_the_shop_gets_through(untouched, kind):
    for text in ATTACKS[kind]:
        assert isinstance(done(text, untouched), QueryRefusal), text


def taken(text, database, limits):
    """What became of a query, and the seconds of a processor that it took; a busy machine says
    nothing about it."""
    began = time.thread_time()
    query = read_query(text)
    result = query if isinstance(query, QueryRefusal) else run(database, query.sql, limits)
    return result, time.thread_time() - began


def test_an_endless_query_is_ended_by_a_limit(untouched):
    causes = Counter()
    for text in ATTACKS["endless"]:
        result, seconds = taken(text, untouched, SHORT)
        assert seconds < 1.5 * SHORT.seconds, text[:80]
        causes[result.cause if isinstance(result, QueryRefusal) else "none"] += 1
    assert causes["time"] >= 15
    assert causes["none"] <= 1


@pytest.mark.parametrize("kind", ["large", "heavy", "strange"])
def test_no_query_takes_or_gives_more_than_its_limits(untouched, kind):
    for text in ATTACKS[kind]:
        result, seconds = taken(text, untouched, SHORT)
        assert seconds < 1.5 * SHORT.seconds, text[:80]
        if isinstance(result, QueryResult):
            assert len(result.rows) <= SHORT.rows
            assert (
                sum(len(value) for row in result.rows for value in row if isinstance(value, str))
                <= SHORT.result
            )


MEMORY = """
import resource, sys
from pathlib import Path
from plumbline_commerce.sql_qa.engine import LIMITS, QueryRefusal
from environments.commerce.tests.test_sql_qa import ATTACKS, SHORT, taken
def most():  # not ru_maxrss, which begins with that of the process that started this one
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
taken("SELECT COUNT(*) FROM orders", Path(sys.argv[1]), SHORT)
before = most()
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # if the limit were gone, the machine's memory would be next
for text in ATTACKS["memory"]:
    result, seconds = taken(text, Path(sys.argv[1]), LIMITS)
    assert isinstance(result, QueryRefusal) and result.cause in ("memory", "time"), (text, result)
    assert seconds < 1.5 * LIMITS.seconds, text
print((most() - before) >> 10)
"""


def test_memory_is_bounded(untouched):
    """In a process of its own, because what a process once had it keeps."""
    command = [sys.executable, "-c", MEMORY, untouched]
    found = subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE.parents[2])
    assert 0 < int(found.stdout) < 2 * HEAP >> 20, "MiB"


CLOCKS = """date('now') | date('n' || 'oW', '+1 day') | date(CAST('now' AS BLOB)) | time(char(110, 111, 119, 0, 65))
date() | datetime() | julianday() | strftime('%f') | strftime('%f', 'now') | unixepoch('now', 'start of day')
datetime(order_purchase_timestamp, 'localtime') | datetime(order_purchase_timestamp, 'utc')
CURRENT_DATE | current_time | CURRENT_TIMESTAMP | random() | hex(randomblob(4))
changes() | total_changes() | last_insert_rowid() | sqlite_version()"""


def test_no_query_sees_a_clock_or_other_luck(shops):
    calls = re.split(r" \| |\n", CLOCKS)
    texts = [f"SELECT {call} AS x FROM orders" for call in calls]
    texts += [f"SELECT COUNT(*) FROM orders WHERE {call} > '2'" for call in calls]
    for text in texts:
        read = read_query(text)
        for sql in {text, *([] if isinstance(read, QueryRefusal) else [read.sql])}:
            result = run(shops[0], sql)
            assert isinstance(result, QueryRefusal), sql
            assert result.cause == "forbidden", sql


def test_dates_are_what_sqlite_makes_of_them(shops):
    times = [
        "2017-08-31",
        "2016-02-29 23:59:59.987",
        "12:30",
        "2457998.5",
        "x",
        "",
        "2018-13-01",
        "0000-01-01",
        1e300,
    ]
    times += [
        2457998,
        2457998.25,
        -1,
        1503964800,
        None,
        b"2017-08-31",
        "2017-08-31T10:00+02:00",
        "now\n",
        " now",
        True,
    ]
    changes = [
        (),
        ("+1 month",),
        ("start of month", "+1 month", "-1 day"),
        ("weekday 0",),
        ("unixepoch",),
        ("auto",),
    ]
    changes += [
        ("julianday",),
        ("-1.5 days", "start of year"),
        ("+1",),
        (None,),
        ("no modifier",),
        (3,),
    ]
    formats = ["%Y-%m", "%d %f %H %j %J %M %s %S %w %W %%", "%q", "", None, 7]
    calls = [
        (name, (at, *by)) for name in sorted(DATES - {"strftime"}) for at in times for by in changes
    ]
    calls += [("strftime", (form, at, *by)) for form in formats for at in times for by in changes]

    def literal(value):
        return (
            "NULL"
            if value is None
            else f"x'{value.hex()}'"
            if isinstance(value, bytes)
            else repr(value)
        )

    with closing(sqlite3.connect(":memory:")) as plain:
        for name, given in calls:
            sql = f"SELECT {name}({', '.join(map(literal, given))})".replace('"', "'").replace(
                "\\n", "\n"
            )
            assert run(shops[0], sql) == QueryResult(
                (sql[7:],), (plain.execute(sql).fetchone(),)
            ), sql


def test_a_greedy_query_has_no_other_one_refused(shops, monkeypatch):
    """The limit of memory is that of the process, so no two queries run at once."""
    running, most = [], []
    plain = engine._Reader.run

    def watched(reader, sql):
        running.append(sql)
        most.append(len(running))
        time.sleep(0.001)
        try:
            return plain(reader, sql)
        finally:
            running.pop()

    monkeypatch.setattr(engine._Reader, "run", watched)
    greedy = next(text for text in ATTACKS["memory"])
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(
                lambda text: run(shops[0], text), [greedy, *["SELECT COUNT(*) FROM orders"] * 40]
            )
        )
    assert set(most) == {1}
    assert isinstance(found[0], QueryRefusal)
    assert all(isinstance(one, QueryResult) for one in found[1:])


def test_reading_a_query_takes_no_time():
    assert most_work(read_query, [text for texts in ATTACKS.values() for text in texts]) < 30


def test_what_a_gold_query_leaves_open(shops):
    def left_open(sql):
        try:
            return " ".join(f"{len(tie.rows)}/{tie.take}" for tie in gold_of(shops[0], sql).ties)
        except DataError as error:
            return "error" if re.search("gold query|ordered", str(error)) else str(error)

    assert {sql: left_open(sql) for sql in QUERIES["ties"]} == QUERIES["ties"]


SQL = "SELECT COUNT(*) AS n FROM orders"
SAID = "Foram {n} pedidos ao todo."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"```sql\n{SQL}\n```\n{SAID}", AnswerParts(SQL, SAID, fenced=True, alone=True)),
        (f"```sql\n{SQL};\n```\n\n{SAID}\n", AnswerParts(SQL, SAID, fenced=True, alone=True)),
        (f"```SQL\n{SQL}```{SAID}", AnswerParts(SQL, SAID, fenced=True, alone=True)),
        (
            f"<think>SELECT 1</think>```sql\n{SQL}\n```\n{SAID}",
            AnswerParts(SQL, SAID, fenced=True, alone=True),
        ),
        (f"```sqlite\n{SQL}\n```\n{SAID}", AnswerParts(SQL, SAID, fenced=False, alone=True)),
        (f"```\n{SQL}\n```\n{SAID}", AnswerParts(SQL, SAID, fenced=False, alone=True)),
        (f"```sql {SQL}```\n{SAID}", AnswerParts(SQL, SAID, fenced=True, alone=True)),
        (f"```{SQL}```\n{SAID}", AnswerParts(SQL, SAID, fenced=False, alone=True)),
        (f"{SQL};\n{SAID}", AnswerParts(SQL, SAID, fenced=False, alone=True)),
        (f"{SQL}\n\n{SAID}", AnswerParts(SQL, SAID, fenced=False, alone=True)),
        (f"{SQL}\n{SAID}", AnswerParts(SQL, SAID, fenced=False, alone=True)),
        ("  select\n1", AnswerParts("select\n1", "", fenced=False, alone=False)),
        (
            f"Claro! Aqui está:\n```sql\n{SQL}\n```\n{SAID}",
            AnswerParts(SQL, SAID, fenced=True, alone=False),
        ),
        (
            f"```sql\n{SQL}\n```\n{SAID} Espero ter ajudado.",
            AnswerParts(SQL, SAID, fenced=True, alone=False),
        ),
        (
            f"```sql\n{SQL}\n```\n{SAID}\n```sql\nSELECT 2\n```",
            AnswerParts(SQL, SAID, fenced=True, alone=False),
        ),
        (f"{SAID}\n```sql\n{SQL}\n```", AnswerParts(SQL, "", fenced=True, alone=False)),
        (f"```sql\n{SQL}", AnswerParts(SQL, "", fenced=False, alone=False)),
        (f"```sql\n{SQL}\n```", AnswerParts(SQL, "", fenced=True, alone=False)),
        ("```sql\n```\n" + SAID, AnswerParts("", SAID, fenced=True, alone=True)),
        ("O valor foi 12.", AnswerParts("", "", fenced=False, alone=False)),
        ("", AnswerParts("", "", fenced=False, alone=False)),
    ],
)
def test_an_answer_is_read_however_it_is_set_apart(text, expected):
    assert read_answer(text) == expected


RESULT = QueryResult(("estado", "Total", "COUNT(*)"), (("SP", 1234.5, 12), ("RJ", 980.25, 7)))


@pytest.mark.parametrize(
    ("sentence", "value"),
    [
        ("Em 2017 o estado {estado} vendeu {total}.", 1.0),
        ("O estado {Estado} teve ao todo { total } reais.", 1.0),
        ("Ao todo foram {COUNT(*)} pedidos.", 1.0),
        ("O estado {estado} vendeu R$ 1.234,50 em 2017.", 1.0),
        ("O estado {estado} vendeu R$ 1.234,5 em 2017.", 1.0),
        ("O segundo depois de {estado} teve 7 pedidos.", 1.0),
        ("O maior valor foi do estado paulista.", 0.5),
        ("O estado paulista teve 12 pedidos.", 0.5),
        ("O estado {uf} vendeu mais.", 0.0),
        ("O estado {estado} vendeu 13 pedidos.", 0.0),
        ("O estado {estado} vendeu R$ 1.234,56.", 0.0),
        ("O estado {estado} vendeu mais em 2018.", 0.0),
        ("O estado {estado} vendeu {total.", 0.0),
        ("O estado {{estado}} vendeu mais.", 0.0),
        ("O estado {estado} vendeu " + "muito, " * 60, 0.0),
        ("{estado} {total}", 0.0),
        ("{estado}: {total} reais", 0.0),
        ("", 0.0),
    ],
)
def test_a_sentence_says_values_of_the_result_and_no_other_number(sentence, value):
    assert score_sentence(sentence, RESULT, QUESTION) == value


def test_a_filled_sentence_is_what_a_person_reads():
    assert (
        fill_sentence("Em {estado}: {total}, {COUNT(*)}, {uf}", RESULT)
        == "Em SP: 1.234,50, 12, {uf}"
    )


def test_what_an_answer_is_worth(shops):
    def parts(sql, sentence=SENTENCE):
        return judge(REFERENCE, answer(sql, sentence), shops)[1].parts

    gold = REFERENCE["sql"]
    assert judge(REFERENCE, answer(gold), shops)[1].total == 1.0
    assert judge(REFERENCE, f"{gold};\n{SENTENCE}", shops)[1].total == pytest.approx(0.95)
    assert judge(REFERENCE, answer(gold, "Pronto. " + SENTENCE), shops)[1].total < 0.9
    assert parts(gold, "")["sentence"] == 0
    assert parts("SELECT customer_state FROM orders_enriched WHERE x = 1")["parses"] == 1
    assert 0.5 < parts("SELECT customer_state FROM orders_enriched WHERE x = 1")["names"] < 1
    assert parts("SELECT customer_state, COUNT(*) FROM orders_enriched")["parses"] == 0
    assert parts("SELECT 1 AS estado")["runs"] == 0
    assert parts("SELECT 'SP' AS estado, COUNT(*) AS pedidos FROM orders")["sentence"] < 0.5
    wrong_order = parts(gold.replace(" DESC", "").replace("LIMIT 5", ""))
    assert wrong_order["result"] == 0 < wrong_order["cells"] < 1


def test_a_constant_that_is_right_on_one_database_is_wrong(shops):
    reference = {"question": "Quantos pedidos?", "ordered": False}
    reference["sql"] = "SELECT COUNT(*) AS n FROM orders_enriched WHERE delay_days > 0"
    ((lucky,),) = gold_of(shops[0], reference["sql"]).rows
    text = answer(
        f"SELECT {lucky} AS n FROM orders_enriched LIMIT 1", "Foram {n} pedidos com atraso."
    )
    assert judge(reference, text, shops[:1])[1].parts["result"] == 1
    assert judge(reference, text, shops)[1].parts["result"] == 0
    assert judge(reference, text, shops)[1].total < 0.4


def test_a_gold_query_may_find_nothing_on_a_database_but_not_on_all(shops):
    ((elsewhere,),) = run(shops[1], "SELECT order_id FROM orders LIMIT 1").rows
    reference = REFERENCE | {
        "sql": f"SELECT order_status AS s FROM orders WHERE order_id = '{elsewhere}'"
    }
    gold = answer(reference["sql"], "O pedido está com situação {s}.")
    assert judge(reference, gold, shops)[1].total == 1.0
    assert (
        judge(reference, answer("SELECT order_status FROM orders WHERE 1 = 0"), shops)[1].parts[
            "result"
        ]
        == 0
    )
    with pytest.raises(DataError, match="no row anywhere"):
        judge(reference, gold, shops[:1])


def test_nothing_raises_whatever_the_text(shops):
    texts = [
        *HOSTILE,
        *(text for kind in ("write", "outside", "stacked", "strange") for text in ATTACKS[kind]),
    ]
    written = [
        told
        for text in texts
        for told in (text, text + "\n" + SENTENCE, answer(REFERENCE["sql"], text))
    ]
    written += [answer(text) for text in (*texts, *ATTACKS["heavy"])]
    for text in written:
        score = judge(REFERENCE, text, shops[:1])[1]
        assert score.total < 0.5 or score.parts["result"]


@pytest.fixture
def only_rows(tmp_path):
    """A folder with rows that somebody wrote, and no database."""
    rows = [
        {
            "id": f"r{number}",
            "task": "sql_qa",
            "messages": [
                {"role": "system", "content": "Responda com SQL."},
                {"role": "user", "content": pair["question"]},
                {"role": "assistant", "content": answer(pair["sql"], pair["sentence"])},
            ],
            "reference": {key: pair[key] for key in ("question", "sql", "ordered")},
        }
        for number, pair in enumerate(QUERIES["pairs"])
    ]
    write_jsonl(tmp_path / "test.jsonl", rows)
    return tmp_path


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        (
            "SELECT SUM(order_value) AS v FROM orders_enriched WHERE customer_state = 'XX'",
            "nothing but NULL",
        ),
        ("SELECT order_id FROM orders WHERE 1 = 0", "no row"),
        ("SELECT COUNT(*) AS n FROM orders WHERE order_status = 'nosuch'", "the same rows"),
        ("SELECT MAX(review_score) AS m FROM order_reviews", "the same rows"),
    ],
)
def test_a_record_whose_gold_query_asks_nothing_is_refused_at_the_first_verdict(
    shops, only_rows, sql, what
):
    shutil.copytree(shops[0].parent, only_rows / "sql_qa")
    rows = [row for _, row in read_jsonl(only_rows / "test.jsonl")]
    rows[3]["reference"]["sql"] = sql
    write_jsonl(only_rows / "test.jsonl", rows)
    task = open_task("commerce", {"job": "sql_qa", "data": str(only_rows)}, only_rows / "unused")
    with pytest.raises(RewardError, match=f"r3: .* {what} .* 3 databases"):
        task.judge(task.examples("test")[0], "")


ZIP = "substr(seller_zip_code_prefix, 1, 3)"
ZIPS = (
    "SELECT DISTINCT {} AS p, substr(shipping_limit_date, 1, 4) AS a FROM sellers NATURAL JOIN "
    "order_items"
)
MONTHS = "SELECT {} AS m, COUNT(*) AS n FROM orders_enriched GROUP BY 1"
HOURS = "SELECT {} AS h FROM orders"
MONTH, HOUR = "strftime('%m', order_date)", "substr(order_purchase_timestamp, 12, 2)"


@pytest.mark.parametrize(
    ("gold", "other", "right"),
    [
        (
            f"SELECT DISTINCT {ZIP} FROM sellers",
            f"SELECT DISTINCT CAST({ZIP} AS INTEGER) FROM sellers",
            False,
        ),
        (ZIPS.format(ZIP), ZIPS.format(f"CAST({ZIP} AS INTEGER)"), False),
        (
            ZIPS.format(ZIP),
            ZIPS.format(ZIP).replace("substr(shipping", "0 + substr(shipping"),
            True,
        ),
        (ZIPS.format(ZIP), f"SELECT a + 0, p FROM ({ZIPS.format(ZIP)})", True),
        (f"SELECT CAST(p AS INTEGER), a FROM ({ZIPS.format(ZIP)})", ZIPS.format(ZIP), False),
        (MONTHS.format(MONTH), MONTHS.format(f"{MONTH} + 0"), True),
        (MONTHS.format(f"CAST({MONTH} AS INTEGER)"), MONTHS.format(MONTH), True),
        (MONTHS.format(MONTH), f"SELECT n, m + 0 FROM ({MONTHS.format(MONTH)})", True),
        (
            f"WITH t AS ({MONTHS.format(MONTH)}) SELECT * FROM t",
            MONTHS.format(f"{MONTH} + 0"),
            True,
        ),
        (
            f"WITH t(a, b) AS ({MONTHS.format(MONTH)}) SELECT a, b FROM t",
            MONTHS.format(f"{MONTH} + 0"),
            True,
        ),
        (
            f"SELECT DISTINCT m FROM (SELECT *, {MONTH} AS m FROM orders_enriched)",
            f"SELECT DISTINCT {MONTH} + 0 FROM orders_enriched",
            True,
        ),
        (
            f"{HOURS.format(HOUR)} UNION {HOURS.format(HOUR)}",
            f"SELECT DISTINCT {HOUR} + 0 FROM orders",
            True,
        ),
        (f"SELECT m, n FROM ({MONTHS.format(MONTH)}) AS t", MONTHS.format(f"{MONTH} + 0"), True),
        (MONTHS.format(MONTH), MONTHS.format(f"'0' || {MONTH}"), False),
        (MONTHS.format(MONTH), MONTHS.format(f"CAST({MONTH} + 0 AS TEXT)"), False),
        (MONTHS.format(f"{MONTH} + 0"), MONTHS.format(f"'00' || {MONTH}"), False),
        (
            MONTHS.format(MONTH),
            "SELECT m, CAST(n AS TEXT) FROM (" + MONTHS.format(MONTH) + ")",
            False,
        ),
        (HOURS.format(HOUR), HOURS.format(f"CAST({HOUR} AS INTEGER)"), True),
        (HOURS.format(f"MAX({HOUR})"), HOURS.format(f"MAX({HOUR} + 0)"), True),
    ],
)
def test_texts_of_digits_are_numbers_only_in_the_columns_that_hold_a_part_of_a_date(
    shops, gold, other, right
):
    reference = REFERENCE | {"sql": gold, "ordered": False}
    assert judge(reference, answer(gold), shops)[1].parts["result"] == 1
    outcome, score = judge(reference, answer(other), shops)
    assert "refused" not in outcome.facts, outcome.facts
    assert score.parts["result"] == right


def test_the_law_of_the_task_on_rows_that_lack_a_database(shops, only_rows):
    folder = only_rows / "sql_qa"
    folder.mkdir()
    for path in shops[:2]:
        shutil.copy(path, folder)
    task = open_task("commerce", {"job": "sql_qa", "data": str(only_rows)}, only_rows / "unused")
    assert task.rubric.startswith("commerce-sql_qa/1+")
    assert task.rubric.endswith(":3")
    assert sorted(path.name for path in folder.iterdir()) == ["shop-1.db", "shop-2.db"]
    laws = check_task(task, "test")
    assert laws.oracle == 1.0
    assert laws.raised == ()
    assert (
        laws.baselines["blank"] == laws.baselines["echo"] == laws.baselines["prompt-example"] == 0
    )
    for name, bound in {
        "select-null": 0.1,
        "count-tables": 0.3,
        "select-everything": 0.3,
        "select-names": 0.3,
    }.items():
        assert 0 < laws.baselines[name] < bound
    assert laws.baselines["shuffled-gold"] < 0.3
    assert laws.baselines["nearest-gold"] < 0.35
    assert sorted(path.name for path in folder.iterdir()) == ["shop-1.db", "shop-2.db", "shop-3.db"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("sql", None), ("sql", 3), ("question", ["a"]), ("ordered", "sim"), ("ordered", None)],
)
def test_a_row_without_what_the_verifier_needs_is_named(only_rows, key, value):
    ((_, row), *_) = read_jsonl(only_rows / "test.jsonl")
    row["reference"][key] = value
    write_jsonl(only_rows / "test.jsonl", [row])
    task = open_task("commerce", {"job": "sql_qa", "data": str(only_rows)}, only_rows / "unused")
    with pytest.raises(DataError, match=rf"test.jsonl:1: the reference's {key}"):
        task.examples("test")


def test_a_gold_query_that_is_wrong_is_an_error_and_no_reward(shops, only_rows):
    shutil.copytree(shops[0].parent, only_rows / "sql_qa")
    ((_, row), *_) = read_jsonl(only_rows / "test.jsonl")
    row["reference"]["sql"] = "SELECT coluna FROM orders"
    write_jsonl(only_rows / "test.jsonl", [row])
    task = open_task("commerce", {"job": "sql_qa", "data": str(only_rows)}, only_rows / "unused")
    with pytest.raises(DataError, match=r"SELECT coluna .* result"):
        task.judge(task.examples("test")[0], "")


@pytest.mark.parametrize("content", [b"", b"no database", None])
def test_a_database_that_is_none_is_named(shops, tmp_path, content):
    database = tmp_path / "shop-1.db"
    if content is not None:
        database.write_bytes(content)
    with pytest.raises(DataError, match=r"shop-1\.db (cannot|.* customers)"):
        run(database, "SELECT 1")


def test_a_damaged_database_is_named_and_no_fault_of_the_query(shops, tmp_path):
    content = bytearray(shops[0].read_bytes())
    content[len(content) // 4 :] = b"\xff" * (len(content) - len(content) // 4)
    (tmp_path / "shop-1.db").write_bytes(content)
    with pytest.raises(DataError, match=r"shop-1.db is damaged"):
        run(tmp_path / "shop-1.db", "SELECT COUNT(*) FROM orders WHERE order_status = 'delivered'")


def test_a_database_without_a_table_is_named_before_anything_is_judged(shops, only_rows):
    second = only_rows / "sql_qa" / "shop-2.db"
    second.parent.mkdir()
    shutil.copy(shops[1], second)
    with closing(sqlite3.connect(second)) as connection:
        connection.execute("DROP TABLE order_reviews")
    options = {"job": "sql_qa", "data": str(only_rows)}
    for fails in (
        lambda: run(second, "SELECT 1"),
        lambda: open_task("commerce", options, only_rows / "unused").examples("test"),
    ):
        with pytest.raises(DataError, match=r"shop-2\.db .* order_reviews") as caught:
            fails()
        assert "remove" in caught.value.fix
    assert open_task("commerce", {**options, "databases": 1}, only_rows / "unused").examples("test")
    assert [path.name for path in second.parent.iterdir()] == ["shop-2.db"], (
        "to check what is there builds nothing"
    )


def test_verdicts_of_threads_are_those_of_one(shops):
    work = [answer(sql) for sql in (*QUERIES["same"], *QUERIES["other"])] * 3
    alone = [judge(REFERENCE, text, shops)[1].total for text in work]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda text: judge(REFERENCE, text, shops)[1].total, work)) == alone


def test_threads_and_processes_may_build_at_once(tmp_path):
    code = (
        "import sys; from pathlib import Path; from plumbline_commerce.sql_qa.engine import "
        "databases\n"
    )
    code += "print([path.stat().st_size > 0 for path in databases(Path(sys.argv[1]), 1)])"
    others = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: databases(tmp_path, 1), range(2)))
    assert found == [(tmp_path / "shop-1.db",)] * 2
    assert [other.communicate()[0].strip() for other in others] == ["[True]"] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["shop-1.db"]
    assert not isinstance(run(tmp_path / "shop-1.db", "SELECT COUNT(*) FROM orders"), QueryRefusal)


def test_sqlglot_is_asked_for_when_the_task_is_opened_and_imported_by_the_first_verdict(only_rows):
    code = (
        "import sys; from pathlib import Path; from plumbline.tasks import open_task\n"
        "options = {'job': 'sql_qa', 'data': sys.argv[1]}\n"
        "open_task('commerce', options, Path('unused')).examples('test')\n"
        "assert 'sqlglot' not in sys.modules\n"
        "import plumbline.config.imports; plumbline.config.imports.find_spec = lambda name: None\n"
        "open_task('commerce', options, Path('unused'))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, only_rows], check=False, capture_output=True, text=True
    )
    assert "sql_qa needs sqlglot" in found.stderr
    assert "pip install ./environments/commerce" in found.stderr


def test_texts_that_make_careless_expressions_slow_take_no_time(shops):
    texts = ["." * 15_000 + "x", "```" * 6000, "{" * 20_000, "1,," * 6000, "a\n" * 10_000]
    texts += ["SELECT" + "\n" * 19_000 + "{"]
    texts += [f"```sql\n{REFERENCE['sql']}\n```\n{text}" for text in texts]
    texts += [
        answer("SELECT order_id, price FROM order_items", "Foram os valores " + "1,23 4,5 6 " * 30)
    ]
    assert most_work(lambda text: judge(REFERENCE, text, shops), texts) < 30


def literal(value):
    return "NULL" if value is None else repr(value)


def test_the_cheats_that_know_the_gold_query_stay_under_their_bounds(shops):
    """What a model would have to know the gold query for, and earns without answering."""
    gold = QUERIES["gold"]
    first = gold_of(shops[0], gold).result.rows
    cheats = {
        "its result on the first database": (
            " UNION ALL ".join("SELECT " + ", ".join(map(literal, row)) for row in first),
            0.3,
        ),
        "in a comment": (f"SELECT 1 AS n FROM orders /* {gold} */", 0.15),
        "in a branch that decides nothing": (
            f"SELECT 1 AS n FROM orders WHERE EXISTS ({gold}) LIMIT 1",
            0.3,
        ),
        "without a row": (gold.replace("LIMIT 5", "LIMIT 0"), 0.3),
        "with a column more": (gold.replace("SELECT ", "SELECT 1 AS n, ", 1), 0.5),
        "its columns, all of their pairs": (
            (
                "SELECT DISTINCT a.customer_state, b.review_score FROM orders_enriched a, "
                "orders_enriched b"
            ),
            0.25,
        ),
        "every number": ("SELECT " + ", ".join(map(str, range(90))) + " FROM orders LIMIT 1", 0.15),
    }
    for name, (sql, bound) in cheats.items():
        assert judge(REFERENCE, answer(sql), shops)[1].total < bound, name
    hedged = answer("SELECT 1 AS n FROM orders") + "\n" + answer(gold)
    assert judge(REFERENCE, hedged, shops)[1].total < 0.15, "the first query counts"
