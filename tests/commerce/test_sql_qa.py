"""The job sql_qa: what the gate lets pass, what a query may take, and what an answer is worth."""

import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from plumbline.tasks.commerce.sql_qa.databases import databases
from plumbline.tasks.commerce.sql_qa.engine import HEAP, Limits, Refusal, Result, run
from plumbline.tasks.commerce.sql_qa.gate import read_query
from plumbline.tasks.commerce.sql_qa.rubric import judge

HERE = Path(__file__).parent
QUERIES = yaml.safe_load((HERE / "sql_queries.yaml").read_text(encoding="utf-8"))
QUESTION = "Quais são os 5 estados com mais pedidos em 2017?"
REFERENCE = {"question": QUESTION, "sql": QUERIES["gold"], "ordered": True}
SENTENCE = "Em 2017, o estado com mais pedidos foi {estado}, com {pedidos}."


@pytest.fixture(scope="session")
def shops(tmp_path_factory):
    return databases(tmp_path_factory.mktemp("shops"), 3)


def done(text, database):
    query = read_query(text)
    return query if isinstance(query, Refusal) else run(database, query.sql)


def answer(sql, sentence=SENTENCE):
    return f"```sql\n{sql}\n```\n{sentence}"


@pytest.mark.parametrize("text", QUERIES["right"])
def test_a_right_query_runs(shops, text):
    assert not isinstance(done(text, shops[0]), Refusal)


@pytest.mark.parametrize(
    ("cause", "text"), [(cause, text) for cause, texts in QUERIES["wrong"].items() for text in texts]
)
def test_what_means_nothing_is_refused(shops, cause, text):
    result = done(text, shops[0])
    assert isinstance(result, Refusal)
    assert result.cause == cause


@pytest.mark.parametrize("sql", QUERIES["same"])
def test_a_query_that_means_the_same_is_right(shops, sql):
    assert judge(REFERENCE, answer(sql), shops)[1].total == 1.0


@pytest.mark.parametrize("sql", QUERIES["other"])
def test_a_query_that_means_something_else_is_wrong(shops, sql):
    score = judge(REFERENCE, answer(sql), shops)[1]
    assert score.parts["runs"] == 1
    assert score.parts["result"] == 0
    assert score.total < 0.5


def written_out(text):
    return re.sub(r"\{([^{}]*?)\*(\d+)\}", lambda found: found[1] * int(found[2]), text)


ATTACKS = {
    kind: [written_out(text) for text in texts]
    for kind, texts in yaml.safe_load((HERE / "sql_attacks.yaml").read_text(encoding="utf-8")).items()
}
SHORT = Limits(steps=10**12, seconds=0.1)


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
        assert isinstance(run(untouched, text), Refusal), text


@pytest.mark.parametrize("kind", ["write", "outside", "stacked"])
def test_nothing_but_one_select_over_the_shop_gets_through(untouched, kind):
    for text in ATTACKS[kind]:
        assert isinstance(done(text, untouched), Refusal), text


def taken(text, database, limits):
    """What became of a query, and the seconds of a processor that it took; a busy machine says nothing about it."""
    began = time.thread_time()
    query = read_query(text)
    result = query if isinstance(query, Refusal) else run(database, query.sql, limits)
    return result, time.thread_time() - began


def test_an_endless_query_is_ended_by_a_limit(untouched):
    causes = Counter()
    for text in ATTACKS["endless"]:
        result, seconds = taken(text, untouched, SHORT)
        assert seconds < 1.5 * SHORT.seconds, text[:80]
        causes[result.cause if isinstance(result, Refusal) else "none"] += 1
    assert causes["time"] >= 15
    assert causes["none"] <= 1


@pytest.mark.parametrize("kind", ["large", "heavy", "strange"])
def test_no_query_takes_or_gives_more_than_its_limits(untouched, kind):
    for text in ATTACKS[kind]:
        result, seconds = taken(text, untouched, SHORT)
        assert seconds < 1.5 * SHORT.seconds, text[:80]
        if isinstance(result, Result):
            assert len(result.rows) <= SHORT.rows
            assert sum(len(value) for row in result.rows for value in row if isinstance(value, str)) <= SHORT.result


MEMORY = """
import resource, sys
from pathlib import Path
from plumbline.tasks.commerce.sql_qa.engine import LIMITS, Refusal
from tests.commerce.test_sql_qa import ATTACKS, SHORT, taken
taken("SELECT COUNT(*) FROM orders", Path(sys.argv[1]), SHORT)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for text in ATTACKS["memory"]:
    result, seconds = taken(text, Path(sys.argv[1]), LIMITS)
    assert isinstance(result, Refusal) and result.cause in ("memory", "time"), (text, result)
    assert seconds < 1.5 * LIMITS.seconds, text
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_memory_is_bounded(untouched):
    """In a process of its own, because what a process once had it keeps."""
    command = [sys.executable, "-c", MEMORY, untouched]
    found = subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE.parents[1])
    assert 0 < int(found.stdout) < 2 * HEAP >> 20, "MiB"


def test_reading_a_query_takes_no_time(untouched):
    for texts in ATTACKS.values():
        for text in texts:
            began = time.thread_time()
            read_query(text)
            assert time.thread_time() - began < 0.3, text[:80]
