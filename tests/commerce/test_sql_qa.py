"""The job sql_qa: what the gate lets pass, what a query may take, and what an answer is worth."""

from pathlib import Path

import pytest
import yaml

from plumbline.tasks.commerce.sql_qa.databases import databases
from plumbline.tasks.commerce.sql_qa.engine import Refusal, run
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
