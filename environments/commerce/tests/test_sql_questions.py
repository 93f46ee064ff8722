"""The questions of sql_qa: what is asked, what the answers tell, and what the splits share."""

import re
import shutil
from collections import Counter

import pytest

from plumbline.errors import DataError
from plumbline_commerce.job import Shop, rows_of
from plumbline_commerce.options import CommerceOptions
from plumbline_commerce.sql_qa.engine import COLUMNS, QueryResult, build_shop, run
from plumbline_commerce.sql_qa.gate import read_query
from plumbline_commerce.sql_qa.pairs import choose_questions, families, messages, pairs, schema


@pytest.fixture(scope="module")
def shop(commerce_folder, shops, tmp_path_factory):
    folder = tmp_path_factory.mktemp("questions")
    shutil.copytree(shops[0].parent, folder / "sql_qa")
    options = CommerceOptions(seed=5, orders=3000, job="sql_qa", sql_qa=300)
    return Shop(commerce_folder / "commerce.db", folder, options, lambda *_: None)


@pytest.fixture(scope="module")
def made(shop):
    return pairs(shop)


def test_there_are_enough_families_of_each_difficulty(shop):
    there = families(shop.database)
    assert len(there) >= 12
    assert min(Counter(family.difficulty for family in there).values()) >= 6
    assert {family.difficulty for family in there} == {"easy", "medium", "hard"}
    assert 2 <= sum(family.held_out for family in there) <= 4
    assert all(len(set(family.ask)) >= 4 for family in there)


def test_the_splits_share_no_question_no_query_and_no_id(made):
    every = [pair for split in made.values() for pair in split]
    assert [len(made[split]) for split in ("train", "val", "test")] == [240, 30, 30]
    for said in (
        *(
            lambda pair: pair.reference["question"],
            lambda pair: pair.reference["sql"],
            lambda pair: pair.id,
        ),
        lambda pair: pair.prompt[1]["content"],
    ):
        assert len({said(pair) for pair in every}) == len(every)


def test_some_families_are_kept_out_of_train(made, shop):
    out = {family.name for family in families(shop.database) if family.held_out}
    assert out
    assert not out & {pair.about["family"] for pair in made["train"]}
    for split in ("val", "test"):
        assert sum(pair.about["family"] in out for pair in made[split]) == 15
        assert out == {pair.about["family"] for pair in made[split]} & out


def test_the_families_are_asked_about_evenly(made):
    counts = Counter(pair.about["family"] for pair in made["train"])
    assert max(counts.values()) - min(counts.values()) <= 3


def test_every_answer_tells_something(made, shops):
    for split in made.values():
        for pair in split:
            results = [run(shop, pair.reference["sql"]) for shop in shops]
            assert all(isinstance(result, QueryResult) and result.rows for result in results)
            assert len({result.rows for result in results}) > 1


def test_each_way_to_ask_says_all_that_the_query_depends_on(shop):
    for family in families(shop.database):
        for ask in family.ask:
            said = {place[0] for place in re.findall(r"<(\w+)\.(\w+)>", ask)}
            assert said == set(family.slots), (family.name, ask)


def test_the_same_seed_asks_the_same(made, shop):
    again = pairs(shop)
    assert again == made


def test_no_slot_is_left_open(made):
    for split in made.values():
        for pair in split:
            assert "<" not in pair.reference["question"]
            assert "<" not in pair.gold.replace("<=", "").replace("<>", "").replace(" < ", "")


def test_too_many_questions_are_refused(shop, shops):
    few = [family for family in families(shop.database) if family.name == "atrasos"]
    with pytest.raises(DataError, match="different questions"):
        choose_questions(few, 1000, 5, shops)


def test_a_short_prompt_shows_what_the_query_reads_and_no_more(shop, shops):
    for family in families(shop.database):
        for question in choose_questions([family], 3, 5, shops):
            named = read_query(question.sql).names
            assert named & COLUMNS.keys() == set(family.tables)
            shown = messages(question.text, family.tables, "short")[1]["content"]
            assert all(name in shown for name in named), question.sql
            assert shown.count("(") - question.text.count("(") == len(family.tables)


def test_the_shown_columns_are_those_of_the_tables():
    for line in schema().splitlines():
        name, columns = line.rstrip(")").split("(")
        assert set(columns.split(", ")) <= COLUMNS[name]


AGREE = """
SELECT order_id, customer_unique_id, customer_city, customer_state, order_status, date(order_purchase_timestamp),
    date(order_delivered_customer_date),
    (SELECT COUNT(*) FROM order_items AS i WHERE i.order_id = o.order_id),
    (SELECT round(SUM(price), 2) FROM order_items AS i WHERE i.order_id = o.order_id),
    (SELECT round(SUM(freight_value), 2) FROM order_items AS i WHERE i.order_id = o.order_id),
    (SELECT review_score FROM order_reviews AS r WHERE r.order_id = o.order_id)
FROM orders AS o JOIN customers USING (customer_id)
EXCEPT
SELECT order_id, customer_unique_id, customer_city, customer_state, order_status, order_date, delivered_date, num_items,
    order_value, freight_value, review_score FROM orders_enriched
"""


def test_what_is_planted_agrees_over_the_tables(shops):
    for shop in shops:
        assert list(rows_of(shop, AGREE)) == []
        assert list(rows_of(shop, "PRAGMA foreign_key_check")) == []


@pytest.mark.parametrize(
    "predicate",
    [
        "order_value IN (50, 100, 150, 200)",
        "freight_value IN (10, 15, 20)",
        "order_date = date(order_date, 'start of month')",
        "order_date = date(order_date, 'start of month', '+1 month', '-1 day')",
        *(
            "delivered_date IS NULL",
            "delay_days > 0",
            "review_score IS NULL",
            "order_value IS NULL",
        ),
        *("product_category IS NULL", "payment_type IN ('voucher', 'debit_card')"),
        (
            "customer_unique_id IN (SELECT customer_unique_id FROM customers GROUP BY 1 HAVING "
            "COUNT(*) > 1)"
        ),
    ],
)
def test_what_questions_turn_on_is_common_in_every_shop(shops, predicate):
    for shop in shops:
        (row,) = rows_of(shop, f"SELECT AVG({predicate}) AS share FROM orders_enriched")
        assert row["share"] > 0.04


def test_a_shop_is_the_same_whoever_builds_it(shops, tmp_path):
    build_shop(tmp_path / "again.db", 1)
    query = "SELECT * FROM orders_enriched ORDER BY order_id"
    assert list(rows_of(tmp_path / "again.db", query)) == list(rows_of(shops[0], query))
