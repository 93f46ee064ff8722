"""The synthetic shop: schema, marginals, determinism, gold laws, and that texts agree with their
orders."""

import json
import random
import re
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.commerce.tests import measure_shop as describe
from plumbline.errors import StorageError
from plumbline.tasks.tables import read_tables
from plumbline_commerce.database import build_database, marginals
from plumbline_commerce.database import plans as banks
from plumbline_commerce.database import schema as writing
from plumbline_commerce.database.catalogue import BY_NAME, CATEGORIES, Kind
from plumbline_commerce.database.dice import Dice, Weighted, split_list
from plumbline_commerce.database.gold import (
    MAX_SPAN,
    TextLabels,
    churn_risk,
    is_strong_complaint,
    is_strong_praise,
    label,
    shorten,
)
from plumbline_commerce.database.orders import Facts
from plumbline_commerce.database.people import CITIES, Person, fold_accents
from plumbline_commerce.database.plans import BANKS
from plumbline_commerce.database.reviews import write_review
from plumbline_commerce.database.schema import TABLES
from plumbline_commerce.database.words import (
    MARKS,
    NUMBERS,
    STYLES,
    Words,
    days_text,
    money_text,
    spell_text,
)

ORDERS = 20_000


Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("commerce") / "commerce.db"
    build_database(path, orders=ORDERS, seed=42)
    return path


@pytest.fixture(scope="module")
def shop(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(database)
    connection.row_factory = sqlite3.Row
    return connection


@pytest.fixture(scope="module")
def rows(shop: sqlite3.Connection) -> Rows:
    """Every order with a message, its enriched row and the day on which the review was written."""
    query = (
        "SELECT e.*, date(r.review_answer_timestamp) AS today FROM orders_enriched e "
        "JOIN order_reviews r ON r.order_id = e.order_id WHERE e.review_text IS NOT NULL"
    )
    return [dict(row) for row in shop.execute(query)]


@pytest.fixture(scope="module")
def figures(database: Path) -> list[describe.Figure]:
    return list(describe.measure(database))


ENRICHED = split_list(
    "order_id, customer_id, customer_unique_id, first_name, customer_city, customer_state, "
    "product_category, "
    "num_items, order_value, freight_value, payment_type, installments, order_status, order_date, "
    "estimated_date, "
    "delivered_date, delivery_days, delay_days, review_id, review_score, review_title, "
    "review_text, sentiment, "
    "sentiment_score, complaint_category, delivery_issue, product_issue, service_issue, would_recommend, "
    "main_complaint, churn_risk"
)
GOLD = ENRICHED[ENRICHED.index("sentiment") :]


def columns(shop: sqlite3.Connection, table: str) -> list[str]:
    return [row["name"] for row in shop.execute(f"PRAGMA table_info({table})")]


def one(shop: sqlite3.Connection, query: str) -> Any:
    """The only value of the only row."""
    return shop.execute(query).fetchone()[0]


def count(shop: sqlite3.Connection, rows_where: str) -> int:
    return int(one(shop, f"SELECT COUNT(*) FROM {rows_where}"))


# The schema.


def test_tables_and_columns_are_those_of_olist_and_the_enriched_one(
    shop: sqlite3.Connection,
) -> None:
    names = {
        row["name"] for row in shop.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    assert " ".join(sorted(names - {"sqlite_stat1", "sqlite_stat4"})) == (
        "customers geolocation order_items order_payments order_reviews orders orders_enriched "
        "product_category_name_translation products sellers"
    )
    assert "product_name_lenght" in columns(shop, "products")
    assert columns(shop, "order_reviews")[2:5] == [
        "review_score",
        "review_comment_title",
        "review_comment_message",
    ]
    assert tuple(columns(shop, "orders_enriched")) == ENRICHED


def test_the_file_is_sound_and_every_reference_points_somewhere(shop: sqlite3.Connection) -> None:
    assert one(shop, "PRAGMA integrity_check") == "ok"
    assert shop.execute("PRAGMA foreign_key_check").fetchall() == []
    declared = {row["table"] for row in shop.execute("PRAGMA foreign_key_list(order_items)")}
    assert declared == {"orders", "products", "sellers"}


def test_indices_and_statistics_exist(shop: sqlite3.Connection) -> None:
    indexed = {row["tbl"] for row in shop.execute("SELECT tbl FROM sqlite_stat1")}
    assert indexed >= set(TABLES)
    plan = shop.execute(
        "EXPLAIN QUERY PLAN SELECT * FROM orders_enriched WHERE customer_state = 'AC'"
    ).fetchall()
    assert "enriched_state" in plan[0]["detail"]


def test_identifiers_are_32_hexadecimal_digits(shop: sqlite3.Connection) -> None:
    for table, column in (
        ("orders", "order_id"),
        ("customers", "customer_unique_id"),
        ("order_reviews", "review_id"),
    ):
        assert count(shop, f"{table} WHERE length({column}) <> 32") == 0
    sample = shop.execute("SELECT order_id FROM orders LIMIT 50").fetchall()
    assert all(re.fullmatch("[0-9a-f]{32}", row[0]) for row in sample)


def test_all_73_categories_are_there_with_an_english_name(shop: sqlite3.Connection) -> None:
    translated = dict(shop.execute("SELECT * FROM product_category_name_translation").fetchall())
    assert len(translated) == 73
    assert translated["cama_mesa_banho"] == "bed_bath_table"
    used = {row[0] for row in shop.execute("SELECT DISTINCT product_category_name FROM products")}
    assert used == {*translated, None}


SOME = """
products WHERE product_category_name IS NULL AND product_name_lenght IS NULL
orders WHERE order_delivered_customer_date IS NULL
order_reviews WHERE review_comment_message IS NULL
orders_enriched WHERE review_id IS NULL
orders_enriched WHERE num_items = 0
(SELECT 1 FROM order_reviews GROUP BY review_id HAVING COUNT(*) > 1)
"""


@pytest.mark.parametrize("rows_where", SOME.strip().splitlines())
def test_nulls_and_repeated_reviews_are_where_olist_has_them(
    shop: sqlite3.Connection, rows_where: str
) -> None:
    assert count(shop, rows_where) > 0


def test_some_people_repeat(shop: sqlite3.Connection) -> None:
    assert (
        count(shop, "(SELECT 1 FROM customers GROUP BY customer_unique_id HAVING COUNT(*) > 1)")
        > 300
    )


# Orders.

NONE = {
    "some columns of a product without a category": (
        "products WHERE (product_category_name IS NULL) <> (product_photos_qty IS NULL)"
    ),
    "a value without items": "orders_enriched WHERE (num_items = 0) <> (order_value IS NULL)",
    "customers twice": "(SELECT 1 FROM customers GROUP BY customer_id HAVING COUNT(*) > 1)",
    "timestamps out of order": (
        "orders WHERE order_approved_at < order_purchase_timestamp "
        "OR order_delivered_carrier_date < order_approved_at "
        "OR order_delivered_customer_date < order_delivered_carrier_date "
        "OR order_estimated_delivery_date <= order_purchase_timestamp "
        "OR (order_status = 'delivered') <> (order_delivered_customer_date IS NOT NULL)"
    ),
    "answers before reviews": "order_reviews WHERE review_answer_timestamp < review_creation_date",
    "payments that are not items and freight": (
        "orders_enriched e JOIN (SELECT order_id, SUM(payment_value) AS paid FROM order_payments "
        "GROUP BY order_id) p USING (order_id) WHERE abs(p.paid - e.order_value - e.freight_value) "
        "> 0.005"
    ),
    "payments of nothing": "order_payments WHERE payment_value <= 0",
    "enriched rows that are not those of the tables": """
        orders_enriched e JOIN orders o USING (order_id) JOIN customers c ON c.customer_id = e.customer_id
        LEFT JOIN (
            SELECT order_id, COUNT(*) AS n, SUM(price) AS value, SUM(freight_value) AS freight FROM order_items
            GROUP BY order_id
        ) i USING (order_id)
        LEFT JOIN (
            SELECT order_id, product_category_name AS category FROM order_items JOIN products USING (product_id)
            WHERE order_item_id = 1
        ) f USING (order_id)
        LEFT JOIN order_reviews r USING (order_id)
        WHERE o.customer_id <> e.customer_id OR c.customer_unique_id <> e.customer_unique_id
        OR c.customer_city <> e.customer_city OR c.customer_state <> e.customer_state
        OR coalesce(i.n, 0) <> e.num_items OR abs(i.value - e.order_value) > 0.005
        OR abs(i.freight - e.freight_value) > 0.005 OR f.category IS NOT e.product_category
        OR o.order_status <> e.order_status OR date(o.order_purchase_timestamp) <> e.order_date
        OR date(o.order_estimated_delivery_date) <> e.estimated_date
        OR date(o.order_delivered_customer_date) IS NOT e.delivered_date
        OR r.review_id IS NOT e.review_id OR r.review_score IS NOT e.review_score
        OR r.review_comment_title IS NOT e.review_title OR r.review_comment_message IS NOT e.review_text
    """,
}


@pytest.mark.parametrize("what", NONE)
def test_there_are_no(shop: sqlite3.Connection, what: str) -> None:
    assert count(shop, NONE[what]) == 0


def test_every_order_is_there_and_within_the_period(shop: sqlite3.Connection) -> None:
    assert count(shop, "orders_enriched") == ORDERS
    first, last = shop.execute(
        "SELECT MIN(date(order_purchase_timestamp)), MAX(date(order_purchase_timestamp)) FROM "
        "orders"
    ).fetchone()
    assert marginals.FIRST_DAY.isoformat() <= first < "2016-11"
    assert "2018-08" <= last <= marginals.LAST_DAY.isoformat()


def test_delays_are_those_of_the_dates(shop: sqlite3.Connection) -> None:
    for row in shop.execute("SELECT * FROM orders_enriched"):
        if row["delivered_date"] is None:
            assert row["delay_days"] is None
            assert row["delivery_days"] is None
        else:
            delivered = date.fromisoformat(row["delivered_date"])
            assert row["delay_days"] == max(
                0, (delivered - date.fromisoformat(row["estimated_date"])).days
            )
            assert row["delivery_days"] == (delivered - date.fromisoformat(row["order_date"])).days


# Marginals.

TOLERANCE = {
    "customers in": 0.012,
    "paid by": 0.015,
    "orders not delivered": 0.006,
    "late among delivered": 0.008,
    "delivery time, median": 1.0,
    "price, median": 6.0,
    "price, mean": 10.0,
    "freight, median": 1.0,
    "freight, mean": 1.5,
    "orders of several items": 0.01,
    "people with several orders": 0.008,
    "score": 0.012,
    "mean score, late": 0.15,
    "mean score, on time": 0.06,
    "reviews with a message": 0.015,
    "message at score": 0.045,
    "message length, median words": 1.0,
    "message length, median": 5.0,
    "message length, p90": 7.0,
    "message length, p99": 4.0,
    "message length, most": 4.0,
    "messages with a line break": 0.02,
    "messages with a double quote": 0.004,
    "main complaint at 1-2 stars": 0.04,
}


def test_marginals_match(figures: list[describe.Figure]) -> None:
    aimed = [figure for figure in figures if figure.target is not None]
    assert len(aimed) > 40
    far = []
    for figure in aimed:
        allowed = next(
            TOLERANCE[key]
            for key in sorted(TOLERANCE, key=len, reverse=True)
            if figure.name.startswith(key)
        )
        if abs(figure.measured - figure.target) > allowed:
            far.append(
                f"{figure.name}: {figure.measured:.4f}, not {figure.target} within {allowed}"
            )
    assert far == []


def test_the_measurements_are_right(
    figures: list[describe.Figure], shop: sqlite3.Connection, rows: Rows
) -> None:
    """A second way to the figures that matter most, so that a slip in `describe` cannot hide one in
    the generator."""
    measured = {figure.name: figure.measured for figure in figures}
    scores = [row[0] for row in shop.execute("SELECT review_score FROM order_reviews")]
    assert measured["score 5"] == pytest.approx(scores.count(5) / len(scores))
    late = one(
        shop,
        "SELECT AVG(date(order_delivered_customer_date) > date(order_estimated_delivery_date)) "
        "FROM orders "
        "WHERE order_delivered_customer_date IS NOT NULL",
    )
    assert measured["late among delivered"] == pytest.approx(late)
    lengths = sorted(len(row["review_text"]) for row in rows)
    assert measured["message length, p90"] == pytest.approx(np.percentile(lengths, 90), abs=1.5)
    assert measured["message length, median words"] == pytest.approx(
        np.median([len(row["review_text"].split()) for row in rows])
    )
    low = [row for row in rows if row["review_score"] <= 2]
    share = sum(
        row["complaint_category"] in ("entrega_atrasada", "nao_entregue") for row in low
    ) / len(low)
    assert measured["main complaint at 1-2 stars: delivery"] == pytest.approx(share)


# Determinism.


def test_equal_seeds_give_equal_files_whatever_the_global_state(tmp_path: Path) -> None:
    np.random.seed(1)
    random.seed(1)
    build_database(tmp_path / "a.db", orders=400, seed=7)
    np.random.seed(2)
    random.seed(2)
    before = np.random.get_state()[1].tolist()
    build_database(tmp_path / "b.db", orders=400, seed=7)
    assert (tmp_path / "a.db").read_bytes() == (tmp_path / "b.db").read_bytes()
    assert np.random.get_state()[1].tolist() == before


def test_other_seeds_and_numbers_give_other_databases(tmp_path: Path) -> None:
    dumps, ids = [], []
    for orders, seed in ((300, 1), (300, 2), (301, 1)):
        build_database(tmp_path / "x.db", orders=orders, seed=seed)
        with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
            dumps.append("".join(connection.iterdump()))
            ids.append({row[0] for row in connection.execute("SELECT order_id FROM orders")})
    assert len(set(dumps)) == 3
    assert ids[0].isdisjoint(ids[1])


def test_the_summary_counts_what_is_in_the_file(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    summary = build_database(
        tmp_path / "x.db", orders=1500, seed=3, progress=lambda *now: told.append(now)
    )
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        assert summary.rows == {table: count(connection, table) for table in summary.rows}
        messages = count(connection, "order_reviews WHERE review_comment_message IS NOT NULL")
    assert (summary.orders, summary.seed, summary.messages) == (1500, 3, messages)
    assert told
    assert all(0 <= done <= total for _, done, total in told)


@pytest.mark.parametrize("orders", [1, 2, 17])
def test_the_smallest_databases_are_sound(tmp_path: Path, orders: int) -> None:
    build_database(tmp_path / "x.db", orders=orders, seed=0)
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert count(connection, "orders_enriched") == orders


# Failure.


def test_no_orders_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_database(tmp_path / "x.db", orders=0)


def test_a_folder_that_cannot_be_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot write"):
        build_database(tmp_path / "file" / "x.db", orders=5)


def test_a_full_disk_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    build_database(path, orders=5, seed=1)
    old = path.read_bytes()

    def full(partial: Path, tables: object) -> None:
        partial.write_bytes(b"half")
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(writing, "_fill", full)
    with pytest.raises(StorageError, match="disk is full"):
        build_database(path, orders=5, seed=2)
    assert path.read_bytes() == old
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.db"]


# Gold.

TOPICS = {
    "delivery_issue": ("entrega_atrasada", "nao_entregue"),
    "product_issue": ("produto_defeituoso", "produto_errado"),
    "service_issue": ("atendimento",),
}
FLAGS = {category: flag for flag, categories in TOPICS.items() for category in categories}


def test_gold_is_there_exactly_where_a_message_is(shop: sqlite3.Connection) -> None:
    for row in shop.execute("SELECT * FROM orders_enriched WHERE review_text IS NULL"):
        assert all(row[name] is None for name in GOLD)
    required = [name for name in GOLD if name not in ("would_recommend", "main_complaint")]
    for row in shop.execute("SELECT * FROM orders_enriched WHERE review_text IS NOT NULL"):
        assert all(row[name] is not None for name in required)


def test_the_span_is_literal_and_there_exactly_with_a_category(rows: Rows) -> None:
    for row in rows:
        span, text = row["main_complaint"], row["review_text"]
        assert (span is None) == (row["complaint_category"] == "nenhum")
        if span is not None:
            assert span in text
            assert 0 < len(span) <= MAX_SPAN
            assert span == span.strip()
            end = text.index(span) + len(span)
            assert end == len(text) or not (text[end].isalnum() and span[-1].isalnum()), (
                span,
                text,
            )


def test_flags_agree_with_the_category(rows: Rows) -> None:
    for row in rows:
        flag = FLAGS.get(row["complaint_category"])
        if flag:
            assert row[flag] == 1
        if row["complaint_category"] == "nenhum":
            assert [row[flag] for flag in TOPICS] == [0, 0, 0]
        assert {row[flag] for flag in TOPICS} <= {0, 1}


def test_scores_lie_in_the_band_of_their_sentiment(rows: Rows) -> None:
    bands = {"negativo": (0.0, 1.9), "neutro": (2.0, 3.0), "positivo": (3.1, 5.0)}
    for row in rows:
        low, high = bands[row["sentiment"]]
        assert low <= row["sentiment_score"] <= high
        assert round(row["sentiment_score"], 1) == row["sentiment_score"]
    assert {row["sentiment_score"] for row in rows} == {
        0.3,
        0.5,
        1.3,
        1.5,
        2.5,
        3.5,
        4.0,
        4.2,
        4.8,
        5.0,
    }


def test_sentiment_follows_complaint_and_recommendation(rows: Rows) -> None:
    for row in rows:
        complains, recommends = row["main_complaint"] is not None, row["would_recommend"]
        if recommends is not None and complains:
            assert row["sentiment"] == ("positivo" if recommends else "negativo")
        if complains and recommends is None:
            assert row["sentiment"] != "positivo"
        if recommends == 0:
            assert row["sentiment"] == "negativo"


REFUSAL = re.compile(
    r"\b(?:nao|n) (?:recomendo|indico|compro|comprarei|compraria|comprem|volto a comprar|vou voltar a comprar|"
    r"vou comprar)|nunca mais compr|jamais compr"
)
RECOMMENDATION = re.compile(
    r"recomendo|recomendei|\bindico|comprarei|compraria|voltarei a comprar|comprar sem medo|"
    r"vou comprar (?:de novo|novamente|mais|outra)"
)


def test_recommendations_are_labelled_exactly_where_the_text_has_one(rows: Rows) -> None:
    for row in rows:
        text = re.sub(r"\s+", " ", fold_accents(row["review_text"])).replace("vzs", "vezes")
        refuses = REFUSAL.search(text) is not None
        recommends = RECOMMENDATION.search(REFUSAL.sub("", text)) is not None
        found = 0 if refuses else 1 if recommends else None
        assert row["would_recommend"] == found, row["review_text"]


def test_churn_follows_its_one_sentence(rows: Rows) -> None:
    exact = 0
    for row in rows:
        topics = row["delivery_issue"] + row["product_issue"] + row["service_issue"]
        topics = max(topics, row["complaint_category"] != "nenhum")
        shift = {None: 0, 0: 2, 1: -2}[row["would_recommend"]]
        least = min(
            10, max(0, round((50 - round(10 * row["sentiment_score"])) / 5 + topics + shift))
        )
        # A text may complain about two topics of one flag, or about the price, which has none.
        assert least <= round(10 * row["churn_risk"]) <= least + 2
        exact += least == round(10 * row["churn_risk"])
    assert exact > 0.9 * len(rows)


CUES = {
    "entrega_atrasada": r"atras|prazo|depois d|demor|levou|espe?rei|chegou|para chegar|previst|entrega|"
    r"so (?:recebi|fui|veio|entreg)",
    "nao_entregue": r"nao|\bn\b|\bnada?\b|\bnd\b|\bnem\b|nunca|sem \w|cade|falt|\bso\b|mandaram \w+$|esperando|aguard|"
    r"cancel|resto|parte|metade|incompleto|extravi|estoque|recebi|recebo|venderam|golpe",
    "produto_defeituoso": r"defeit|quebr|danific|qualidade|qlde|falt|estrag|avari|material|acabament|acabad|mal feit|"
    r"malfeit|riscad|trincad|lascad|amassad|empenad|manch|rasg|furad|descostur|desfi|descol|descasc|enferruj|entort|"
    r"funcion|parou|queim|falha|contato|desligando|barulho|esquenta|durou|fragil|frac|aguent|presta|lixo|pessim|horrivel|"
    r"vencid|validade|vaz|derram|abert|lacre|cheiro|gosto|aguad|pinica|encolheu|desbot|solt|costura|tecido|zip|alca|forro|"
    r"sola|machuca|madeira|pintura|bamb|balanca|furos|firme|uso|caco|desmont|plastico|paginas|capa|impressao|papel|trava|"
    r"pula|roda|caixa|sem (?:uma|o|um)|metade|botao|mofad|molhad|tort|rachad|batid|prob|suj|usad",
    "produto_errado": r"errad|outr|diferen|(?:nao|\bn) e |nao foi|menor|original|falsific|pedi|comprei|tamanho|\bcor\b|"
    r"voltagem|igual|medidas|numeracao|confere|bate|corresponde|\bpes\b|compativel|nada a ver",
    "atendimento": r"atend|respond|ningu|ngm|nota fiscal|\bsac\b|pos-venda|contato|gross|cliente|consumidor|recebo|"
    r"mensage|msg|retorno|suporte|ignor|reclam|protocol|respost|culpa|pouco caso|trat|recusa|chat|som[ei]|sumiu|"
    r"resolv|assistencia|comunicacao|conversei|falar|reembolso|estorno|devolu|demora|troca|gravacao|educad|prometeu|vendeu",
    "preco_frete": r"caro|cara|frete|preco|barat|compens|vale|custo|em conta|pela metade|reais|r\$|caiu|baixou|"
    r"salgad|cobra",
}
"""Words that a reader would look for in each kind of complaint, written down apart from the phrase
banks."""


def test_spans_state_their_category(rows: Rows) -> None:
    silent: dict[str, list[str]] = {category: [] for category in CUES}
    total: Counter[str] = Counter()
    for row in rows:
        if row["main_complaint"]:
            total[row["complaint_category"]] += 1
            if not re.search(CUES[row["complaint_category"]], fold_accents(row["main_complaint"])):
                silent[row["complaint_category"]].append(row["main_complaint"])
    assert set(total) == set(CUES)
    for category, spans in silent.items():
        assert len(spans) <= 0.05 * total[category], spans  # a typo may hide the word


def test_topics_complained_about_leave_a_word_in_the_text(rows: Rows) -> None:
    """The flags of second and third complaints, too, rest on something in the text."""
    for flag, categories in TOPICS.items():
        texts = [fold_accents(row["review_text"]) for row in rows if row[flag]]
        found = sum(
            any(re.search(CUES[category], text) for category in categories) for text in texts
        )
        assert found >= 0.95 * len(texts) > 200


def test_label_on_texts_labelled_by_hand() -> None:
    def labelled(text: str, span: str | None, **said: Any) -> tuple[Any, ...]:
        gold = label(TextLabels(**said), text, span)
        return (
            gold.sentiment,
            gold.sentiment_score,
            gold.complaint_category,
            gold.would_recommend,
            gold.churn_risk,
        )

    assert labelled("Gostei", None, praised=True) == ("positivo", 4.0, "nenhum", None, 0.2)
    assert labelled("Gostei muito", None, praised=True) == ("positivo", 4.2, "nenhum", None, 0.2)
    assert labelled("Otimo produto", None, praised=True) == ("positivo", 4.8, "nenhum", None, 0.0)
    assert labelled("ÓTIMO PRODUTO", None, praised=True) == ("positivo", 5.0, "nenhum", None, 0.0)
    assert labelled("Recomendo", None, recommends=True) == ("positivo", 4.0, "nenhum", True, 0.0)
    assert labelled("Ainda não usei", None) == ("neutro", 2.5, "nenhum", None, 0.5)
    assert labelled("Péssimo", None, displeased=True) == ("negativo", 0.5, "nenhum", None, 0.9)
    late = ("late",)
    assert labelled("Atrasou", "Atrasou", complaints=late) == (
        "negativo",
        1.5,
        "entrega_atrasada",
        None,
        0.8,
    )
    assert labelled("Atrasou!!", "Atrasou", complaints=late) == (
        "negativo",
        1.3,
        "entrega_atrasada",
        None,
        0.8,
    )
    mixed = {"complaints": late, "praised": True}
    assert labelled("Ótimo, mas atrasou", "atrasou", **mixed) == (
        "neutro",
        2.5,
        "entrega_atrasada",
        None,
        0.6,
    )
    assert labelled("Bom, atrasou, recomendo", "atrasou", **mixed, recommends=True)[:2] == (
        "positivo",
        3.5,
    )
    assert labelled("Bom, atrasou, não recomendo", "atrasou", **mixed, recommends=False)[:2] == (
        "negativo",
        1.5,
    )
    ironic = {"complaints": late, "praised": True, "ironic": True}
    assert labelled("Parabéns, só 40 dias", "só 40 dias", **ironic) == (
        "negativo",
        0.5,
        "entrega_atrasada",
        None,
        1.0,
    )
    with pytest.raises(AssertionError, match="not a span"):
        label(TextLabels(complaints=late), "Atrasou", "chegou tarde")
    with pytest.raises(AssertionError, match="a complaint has a span"):
        label(TextLabels(praised=True), "Gostei", "Gostei")


IRONY = re.compile(
    r"parabens|que (?:maravilha|beleza|rapid|agilidade|velocidade|surpresa|pechincha|barato hein|qualidade|atend)|"
    r"que (?:capricho|entrega relamp|eficiencia|produto mara)|uau|nossa, que|se a pe|quase pontual|acho q|adorei|"
    r"adoro|presente de natal|impressionante|nota 10|deve ser lind|otim[oa]|excelente|rapidos p|q(?:ue)? blz|amando|"
    r"lenda|lind[oa]|jogar dinheiro|banhado a ouro|atenciosos|maravilh|amei"
)


def test_the_worst_score_has_a_strong_word_or_irony_in_the_text(rows: Rows) -> None:
    worst = [row["review_text"] for row in rows if row["sentiment_score"] <= 0.5]
    assert len(worst) > 500
    silent = [
        text
        for text in worst
        if not is_strong_complaint(text) and not IRONY.search(fold_accents(text))
    ]
    assert len(silent) <= 0.01 * len(worst), silent  # a typo may hide the word
    calm = [
        row["review_text"]
        for row in rows
        if row["sentiment_score"] in (1.3, 1.5) and row["would_recommend"] is None
    ]
    assert len(calm) > 500
    assert not any(is_strong_complaint(text) for text in calm)
    assert sum(IRONY.search(fold_accents(text)) is not None for text in calm) < 0.02 * len(calm)


@given(st.integers(0, 50), st.integers(0, 6), st.sampled_from([None, True, False]))
def test_churn_is_bounded_and_falls_with_the_score(
    tenths: int, topics: int, recommends: bool | None
) -> None:
    risk = churn_risk(tenths / 10, topics, recommends)
    assert 0 <= risk <= 1
    assert risk == round(risk, 1)
    assert risk >= churn_risk(min(50, tenths + 1) / 10, topics, recommends)
    assert churn_risk(tenths / 10, topics, False) >= risk >= churn_risk(tenths / 10, topics, True)


@given(
    st.text(alphabet="abç ,\n", min_size=1, max_size=200).filter(lambda text: len(text.split()) > 0)
)
def test_shortened_spans_end_with_a_word(text: str) -> None:
    text = " ".join(text.split())
    short = shorten(text)
    assert text.startswith(short)
    if len(text) <= MAX_SPAN:
        assert short == text
    elif " " in text[: MAX_SPAN + 1]:
        assert len(short) <= MAX_SPAN
        assert not text[len(short)].isalnum()


# Texts and facts.


def overdue(row: dict[str, Any]) -> int:
    """Days after the estimated date: of the delivery, or of the review where nothing had come by
    then."""
    end = min(filter(None, (row["delivered_date"], row["today"])))
    return (date.fromisoformat(end) - date.fromisoformat(row["estimated_date"])).days


def received(row: dict[str, Any]) -> bool:
    return row["delivered_date"] is not None and row["delivered_date"] <= row["today"]


def test_nobody_complains_of_a_delay_that_was_none(rows: Rows) -> None:
    late = [row for row in rows if row["complaint_category"] == "entrega_atrasada"]
    assert len(late) > 300
    assert all(received(row) and row["delay_days"] > 0 for row in late)
    on_time = [row for row in rows if received(row) and row["delay_days"] == 0]
    assert not any(
        re.search(r"atras[oa]|fora do prazo|depois do prazo", fold_accents(row["review_text"]))
        for row in on_time
    )


def test_nobody_praises_a_delivery_that_was_late(rows: Rows) -> None:
    early = r"antes d[oa] (?:prazo|previsto|data prevista|esperado)"
    prompt = (
        r"entrega (?:muito |super )?(?:rapida|agil|pontual|expressa|no prazo|antes)"
        r"|prazo de entrega (?:cumpr|resp)"
    )
    seen = 0
    for row in rows:
        text = " ".join(fold_accents(row["review_text"]).split())
        if re.search(early, text):
            assert received(row)
            assert overdue(row) < 0, text
            seen += 1
        if re.search(prompt, re.sub(r'prometeram "[^"]*"', "", text)):
            assert received(row)
            assert row["delay_days"] == 0, text
            seen += 1
    assert seen > 500


def test_what_is_missing_has_not_come(rows: Rows) -> None:
    missing = [row for row in rows if row["complaint_category"] == "nao_entregue"]
    assert len(missing) > 500
    for row in missing:
        if received(row):
            assert row["num_items"] > 1  # a part of the order
        elif row["delivered_date"] is not None:
            assert overdue(row) >= 3
    nothing = [row for row in rows if not received(row)]
    assert len(nothing) > 500
    assert not any(row["product_issue"] for row in nothing)


def number(written: str) -> int | None:
    if written.isdigit():
        return int(written)
    return NUMBERS.index(written) if written in NUMBERS else None


def test_days_in_the_text_are_those_of_the_order(rows: Rows) -> None:
    checked: Counter[str] = Counter()
    for row in rows:
        text = re.sub(r"\s+", " ", row["review_text"].lower())
        days = r"(\d+|um|dois|três|quatro|cinco|seis|sete|oito|nove|dez) dias?"
        for pattern in (
            rf"{days} de atraso",
            rf"atras(?:ou|aram) {days}",
            rf"{days} (?:depois|além) d[oa] (?:prazo|prom|data)",
        ):
            for found in re.findall(pattern, text):
                if number(found) is not None:
                    assert number(found) == overdue(row), row["review_text"]
                    checked["late"] += 1
        for found in re.findall(rf"{days} antes d[oa] (?:prazo|previsto|data)", text):
            if number(found) is not None:
                assert number(found) == -overdue(row), row["review_text"]
                checked["early"] += 1
        for found in re.findall(rf"(?:chegou|veio) em (?:apenas )?{days}", text):
            assert number(found) == row["delivery_days"], row["review_text"]
            checked["delivery"] += 1
    assert checked["late"] > 200
    assert checked["early"] > 200
    assert checked["delivery"] > 50


def test_prices_and_cities_in_the_text_are_those_of_the_order(rows: Rows) -> None:
    checked = 0
    names = {city.plain: city.name for cities in CITIES.values() for city in cities}
    for row in rows:
        text = " ".join(row["review_text"].split())
        for found in re.findall(r"[Rr]\$ ?(\d+,\d\d)", text):
            value = float(found.replace(",", "."))
            assert any(
                abs(value - row[name]) < 0.006 for name in ("order_value", "freight_value")
            ), text
            checked += 1
        lived = re.match(r"Moro (?:em|no) ([A-ZÀ-Ú][\wÀ-ú ]+?)(?:[.,!]| e )", text)
        if lived and lived[1] in names.values():
            assert names[row["customer_city"]] == lived[1]
            checked += 1
    assert checked > 100


# The texts as texts.


def test_texts_are_clean_and_within_the_limit(rows: Rows) -> None:
    for row in rows:
        text = row["review_text"]
        assert 0 < len(text) <= marginals.MESSAGE_MAX_CHARS
        assert text == text.strip()
        assert not re.search(r"[<>{}\[\]|@§]|  | [,.?!]|[\ue000-\ue0ff]", text), text
        assert not re.search(r"\b(None|null|nan)\b", text)


def test_a_cut_text_ends_with_a_whole_word(rows: Rows) -> None:
    known = Counter(
        word for row in rows for word in re.findall(r"\w+", fold_accents(row["review_text"]))
    )
    cut = [
        row["review_text"]
        for row in rows
        if len(row["review_text"]) >= 185 and row["review_text"][-1].isalpha()
    ]
    assert len(cut) > 300
    odd = [text for text in cut if known[re.findall(r"\w+", fold_accents(text))[-1]] < 3]
    assert len(odd) <= 0.03 * len(cut)  # rare names and typos


def test_texts_are_diverse(rows: Rows) -> None:
    texts = [row["review_text"] for row in rows if len(row["review_text"].split()) >= 5]
    assert len(set(texts)) >= 0.97 * len(texts)
    openings = Counter(" ".join(fold_accents(text).split()[:4]) for text in texts)
    assert openings.most_common(1)[0][1] <= 0.03 * len(texts)
    assert len({word for text in texts for word in fold_accents(text).split()}) > 3000


def test_styles_are_all_there(rows: Rows) -> None:
    texts = [row["review_text"] for row in rows]
    shares = {
        "capitals": sum(text.isupper() for text in texts),
        "slang": sum(
            bool(re.search(r"\b(vc|tbm|mto|mt|pq|td|tá|tô|msm|vlw|obg|aki|ngm|ñ)\b|d\+", text))
            for text in texts
        ),
        "laughing": sum("kkk" in text.lower() for text in texts),
        "emoji": sum(bool(re.search("[\U0001f300-\U0001faff❤]", text)) for text in texts),
        "no accents": sum(text.isascii() for text in texts),
        "exclaiming": sum("!!" in text for text in texts),
        "irony": sum(
            bool(re.search(r"parabéns, só|que maravilha|que beleza|nota 10 para", text.lower()))
            for text in texts
        ),
        "mixed": sum(
            row["sentiment"] == "neutro" and row["main_complaint"] is not None for row in rows
        ),
        "two topics": sum(
            row["delivery_issue"] + row["product_issue"] + row["service_issue"] > 1 for row in rows
        ),
    }
    assert all(count >= 3 for count in shares.values()), shares
    assert shares["capitals"] > 200
    assert shares["slang"] > 200


def test_articles_agree_with_their_nouns(rows: Rows) -> None:
    genders: dict[str, set[bool]] = {}
    for category in CATEGORIES:
        for noun in category.nouns:
            genders.setdefault(noun.word, set()).add(noun.feminine)
    texts = "\n".join(row["review_text"].lower() for row in rows)
    for feminine, articles in ((True, "o|um|do|no|meu|pelo"), (False, "a|uma|da|na|minha|pela")):
        words = "|".join(
            re.escape(word.lower()) for word, gender in genders.items() if gender == {feminine}
        )
        assert re.search(rf"\b(?:{articles}) (?:{words})\b", texts) is None
        right = "a|uma|da|na" if feminine else "o|um|do|no"
        assert len(re.findall(rf"\b(?:{right}) (?:{words})\b", texts)) > 500


# The phrase banks.

ABOUT = ("late", "missing", "defective", "wrong", "service", "price")
COMPLAINTS = {
    name: bank
    for name, bank in BANKS.items()
    if name.startswith(
        (*ABOUT, "ironic.", *(f"quoted.{about}" for about in (*ABOUT, "cancelled", "part")))
    )
    and not name.endswith("_more")
}
"""Each of their phrases has one span."""


def facts(
    *,
    feminine: bool = True,
    came: bool = True,
    items: int = 3,
    category: str = "utilidades_domesticas",
) -> Facts:
    city = CITIES["MG"][0]
    found = BY_NAME[category]
    return Facts(
        received=came,
        cancelled=False,
        shipped=True,
        overdue=5,
        waited=25,
        owned=4,
        promised=20,
        early=3,
        items=items,
        category=found,
        noun=found.nouns[0],
        value=89.9,
        freight=21.5,
        purchased=date(2018, 3, 1),
        estimated=date(2018, 3, 21),
        delivered=date(2018, 3, 26) if came else None,
        payment="no boleto",
        person=Person("0" * 32, "Ana" if feminine else "João", feminine, city, "30100"),
    )


def test_each_aspect_has_at_least_25_phrases() -> None:
    aspects = [
        (about,) for about in (*ABOUT, "displeased", "praise_product", "praise_general", "neutral")
    ]
    aspects += [
        ("missing_cancelled", "missing_part"),
        ("praise_price", "praise_service"),
        ("recommends", "refuses"),
    ]
    aspects += [("praise_delivery", "praise_delivery_early", "praise_delivery_fast")]
    for names in aspects:
        assert len({phrase for name in names for phrase in BANKS[name]}) >= 25, names


def test_every_state_has_cities_and_prefixes_of_its_own() -> None:
    assert set(CITIES) == set(marginals.STATE_SHARES)
    blocks = sorted(city.zips for cities in CITIES.values() for city in cities)
    assert all(last < first for (_, last), (first, _) in pairwise(blocks))
    assert all(0 < first <= last < 100_000 for first, last in blocks)
    assert all(
        -34 < city.latitude < 6 and -74 < city.longitude < -34
        for of in CITIES.values()
        for city in of
    )


def test_a_category_is_read_as_it_is_written() -> None:
    bag = BY_NAME["esporte_lazer"].nouns[0]
    assert (bag.word, bag.feminine, bag.kind) == ("mochila", True, "bag")
    assert len(CATEGORIES) == len({category.english for category in CATEGORIES}) == 73
    kinds = set(get_args(Kind))
    for category in CATEGORIES:
        assert category.weight > 0 < category.price
        assert all(
            noun.kind in kinds and noun.word == noun.word.strip() != "" for noun in category.nouns
        ), category
    assert kinds == {noun.kind for category in CATEGORIES for noun in category.nouns}


def test_a_bank_stands_in_one_file_and_says_nothing_twice() -> None:
    files = read_tables(Path(banks.__file__).with_name("phrases"))
    assert len(BANKS) == sum(map(len, files.values()))
    for name, bank in BANKS.items():
        assert all(phrase == phrase.strip() != "" for phrase in bank), name
        assert len(set(bank)) == len(bank), name
    kinds = set(get_args(Kind))
    for name in BANKS:
        point, _, rest = name.partition(".")
        if rest and point in ("defective", "praise_product", "neutral", "after_kept"):
            assert rest in kinds, name


TEMPLATES = [(name, template) for name, bank in BANKS.items() for template in bank]


def test_every_phrase_can_be_filled() -> None:
    for name, template in TEMPLATES:
        assert template.count("[") == template.count("]") == (name in COMPLAINTS), (name, template)
        for turn in range(8):
            dice = Dice(turn, name, template)
            words = Words(dice, facts(feminine=turn % 2 == 0), strong=turn % 3 == 0)
            text = words.fill(template, shipment=turn % 2 == 1)
            assert not re.search(r"[<>{}|@§]|  |^ | $", text), (template, text)
            assert "[]" not in text


def test_phrases_marked_as_strong_are_strong() -> None:
    for name, template in TEMPLATES:
        strong = (
            is_strong_praise if name.startswith(("praise", "recommends")) else is_strong_complaint
        )
        if template.startswith("+"):
            for turn in range(12):
                text = Words(Dice(turn, template), facts(), strong=True).fill(template)
                assert strong(text.replace("[", "").replace("]", "")), (template, text)


def test_every_kind_of_customer_gets_a_labelled_review() -> None:
    seen: Counter[str] = Counter()
    for turn in range(600):
        known = facts(
            feminine=turn % 2 == 0,
            came=turn % 3 != 0,
            items=1 + turn % 3,
            category=CATEGORIES[turn % 73].name,
        )
        review = write_review(Dice(turn, "review"), known, 1 + turn % 5)
        seen[review.gold.complaint_category] += 1
        assert review.gold.main_complaint is None or review.gold.main_complaint in review.text
    assert len(seen) == 7


# Small parts.


@given(st.integers(1, 400), st.integers(0, 50))
def test_days_are_written_truly(days: int, seed: int) -> None:
    text = days_text(Dice(seed, days), days)
    words = {
        "uma semana": 7,
        "duas semanas": 14,
        "três semanas": 21,
        "um mês": 30,
        "quinze dias": 15,
        "um dia": 1,
    }
    bounds = {
        "uma semana": 7,
        "duas semanas": 14,
        "três semanas": 21,
        "um mês": 30,
        "dois meses": 60,
        "três meses": 90,
    }
    if text.startswith("mais de "):
        assert days > bounds[text.removeprefix("mais de ")]
    elif text.startswith("quase "):
        assert 0 < bounds[text.removeprefix("quase ")] - days <= 7
    elif text in words:
        assert words[text] == days
    else:
        assert number(text.split()[0]) == days


@given(st.integers(300, 250_000), st.integers(0, 50))
def test_money_is_written_truly(cents: int, seed: int) -> None:
    text = money_text(Dice(seed, cents), cents / 100)
    figure = float(re.sub(r"[^\d,]", "", text).replace(",", "."))
    if text.startswith("quase"):
        assert 0 < figure - cents / 100 <= 0.16
    else:
        assert round(figure * 100) == cents


@settings(max_examples=60)
@given(st.sampled_from(sorted(STYLES)), st.integers(0, 1000))
def test_typing_keeps_marks_figures_and_deciding_words(style: str, seed: int) -> None:
    text = (
        f"comprei por R$ 89,90 e {MARKS[0]}não chegou em 12 dias{MARKS[1]}, péssimo, nunca "
        f"mais{MARKS[2]} compro aqui"
    )
    typed = spell_text(Dice(seed, style), text, STYLES[style])
    assert [letter for letter in typed if letter in MARKS] == list(MARKS)
    assert re.findall(r"\d+", typed) == ["89", "90", "12"]
    assert is_strong_complaint(typed)
    assert re.search(r"\b(nao|n) chegou", fold_accents(typed))


def test_weighted_things_need_a_weight() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        Weighted([("a", 0.0)])
    assert Weighted([("a", 1), ("b", 0), ("c", 3)]).at(0.999) == "c"


@given(st.integers(0, 10**6))
@settings(max_examples=25)
def test_draws_are_those_of_their_seed_and_name(seed: int) -> None:
    one, two, other = Dice(seed, "a"), Dice(seed, "a"), Dice(seed, "b")
    first = [one.random() for _ in range(5)]
    assert first == [two.random() for _ in range(5)]
    assert first != [other.random() for _ in range(5)]
    assert all(0 <= value < 1 for value in first)


def test_the_document_shows_this_database(figures: list[describe.Figure], rows: Rows) -> None:
    """The tables and the reviews of shop_42.md and of docs/research/commerce-data.md are those of
    seed 42."""
    text = (Path(__file__).parent / "shop_42.md").read_text(encoding="utf-8")
    page = (Path(__file__).parents[3] / "docs" / "research" / "commerce-data.md").read_text(
        encoding="utf-8"
    )
    shown = [
        json.loads(line) for line in text.splitlines() if line.startswith('{"product_category"')
    ]
    assert len(shown) == 10
    for review in shown:
        assert any(all(row[name] == value for name, value in review.items()) for row in rows), (
            review
        )
    table = dict(re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", text, re.M))
    assert {
        row.name: describe.written(row.measured, row.unit) for row in figures
    }.items() <= table.items()
    chosen = re.findall(
        r'^(?:\| .* (?:%|days|stars|characters) \||\{"product_category".*)$', page, re.M
    )
    assert len({*chosen} & {*text.splitlines()}) == len(chosen) == 11
