"""The insights job: the law of the task, sentences that people write, damaged answers, where tables
are from."""

import re
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.api import HOSTILE
from plumbline.errors import DataError
from plumbline.seeds import generator
from plumbline.storage import write_jsonl
from plumbline.tasks import open_task
from plumbline.tasks.tables import read_table
from plumbline_commerce.build import _record
from plumbline_commerce.database import build_database
from plumbline_commerce.insights.pairs import SHOP_MONTHS, pairs, period
from plumbline_commerce.insights.rubric import judge, language, read_claims
from plumbline_commerce.insights.table import brazilian, check, data, measures, table_of
from plumbline_commerce.job import Shop
from plumbline_commerce.options import CommerceOptions
from tests.work import most_work

OPTIONS = {"job": "insights", "insights": 90, "seed": 5}


def made(folder, **options):
    return pairs(
        Shop(folder / "commerce.db", folder, CommerceOptions(**OPTIONS, **options), lambda *_: None)
    )


@pytest.fixture(scope="module")
def splits(commerce_folder):
    return made(commerce_folder)


@pytest.fixture(scope="module")
def insights(splits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("insights")
    for split, members in splits.items():
        write_jsonl(folder / f"{split}.jsonl", [_record("insights", pair) for pair in members])
    return open_task("commerce", {"job": "insights", "data": str(folder)}, folder)


def test_what_is_said_twice_is_claimed_twice_and_asked_again_is_not(insights):
    """Wrong claims weigh as often as they are made, though a sentence is looked at once."""
    for example in insights.examples("test"):
        table = table_of(example.reference)
        once = read_claims(example.gold, table)
        again = read_claims(
            f"{example.gold}\n{example.gold}\n{example.gold.replace('.', '?')}", table
        )
        assert once.claims
        assert again.claims[: 2 * len(once.claims)] == 2 * list(once.claims)
        assert len(again.sentences) > 2 * len(once.sentences)
        if "\n" not in example.gold:
            assert len(again.claims) == 2 * len(once.claims)


def test_splits_share_no_slice_and_have_all_kinds_in_the_same_shares(splits):
    every = [pair for members in splits.values() for pair in members]
    assert {split: len(members) for split, members in splits.items()} == {
        "train": 72,
        "val": 9,
        "test": 9,
    }
    assert len({(pair.about["kind"], pair.about["slice"]) for pair in every}) == len(every)
    assert len({pair.prompt[1]["content"].split("\nPergunta")[0] for pair in every}) == len(every)
    counts = Counter(pair.about["kind"] for pair in every)
    assert len(counts) >= 10
    assert max(counts.values()) - min(counts.values()) <= 1
    for members in splits.values():
        of_split = Counter(pair.about["kind"] for pair in members)
        assert all(
            abs(of_split[kind] - counts[kind] * len(members) / len(every)) < 2 for kind in counts
        )


def test_months_of_two_tables_are_never_the_same_row(splits):
    seen = Counter()
    for pair in (
        pair for members in splits.values() for pair in members if "mes" in pair.about["kind"]
    ):
        within = pair.about["slice"].rpartition(", ")[0]
        seen.update((pair.about["kind"], within, row) for row in pair.reference["rows"])
    assert set(seen.values()) == {1}


def test_the_same_seed_gives_the_same_pairs_and_another_seed_others(commerce_folder, splits):
    assert made(commerce_folder) == splits
    other = CommerceOptions(**{**OPTIONS, "seed": 6})
    assert (
        pairs(Shop(commerce_folder / "commerce.db", commerce_folder, other, lambda *_: None))
        != splits
    )


def by_hand(rows, key):
    """The measures again, in Python."""
    values = {
        "ticket": [row["order_value"] for row in rows],
        "frete": [row["freight_value"] for row in rows],
        "prazo": [row["delivery_days"] for row in rows],
        "atraso": [
            100 * (row["delay_days"] > 0) if row["delay_days"] is not None else None for row in rows
        ],
        "nota": [row["review_score"] for row in rows],
        "negativas": [100 * (row["sentiment"] == "negativo") for row in rows],
        "risco": [row["churn_risk"] for row in rows],
        "parcelas": [row["installments"] for row in rows],
    }
    if key in {"pedidos", "avaliacoes", "reclamacoes"}:
        return len(rows)
    if key == "faturamento":
        return sum(row["order_value"] for row in rows)
    if key == "peso_frete":
        return (
            100
            * sum(row["freight_value"] for row in rows)
            / sum(row["order_value"] for row in rows)
        )
    known = [value for value in values[key] if value is not None]
    return sum(known) / len(known)


@pytest.mark.parametrize("scope", ["all", "negative"])
def test_figures_are_those_of_the_orders(commerce_folder, splits, scope):
    """Every table of states, categories and payments that is narrowed to a period only, recomputed
    from the rows."""
    connection = sqlite3.connect(commerce_folder / "commerce.db")
    connection.row_factory = sqlite3.Row
    orders = connection.execute("SELECT * FROM orders_enriched").fetchall()
    spans = {
        period(first, last): (first, last)
        for first in SHOP_MONTHS
        for last in SHOP_MONTHS
        if first <= last
    }
    column = {
        "estado": "customer_state",
        "categoria": "product_category",
        "pagamento": "payment_type",
    }
    checked = 0
    found = splits if scope == "all" else made(commerce_folder, insights_from=scope)
    for pair in (pair for members in found.values() for pair in members):
        about = data("kinds")[pair.about["kind"]]
        if pair.about["slice"] not in spans or about["rows"] not in column:
            continue
        first, last = spans[pair.about["slice"]]
        needed = {
            "risco_estado": "churn_risk",
            "negativas_categoria": "sentiment",
            "atraso_estado": "delay_days",
        }
        needed |= {"nota_estado": "review_score", "nota_categoria": "review_score"}
        for row, values in zip(pair.reference["rows"], pair.reference["values"], strict=True):
            mine = [
                order
                for order in orders
                if first <= order["order_date"][:7] <= last
                and order[column[about["rows"]]] == row
                and order[needed.get(pair.about["kind"], "order_value")] is not None
                and (scope == "all" or order["sentiment"] == "negativo")
            ]
            for key, value in zip(pair.reference["measures"], values, strict=True):
                assert value == pytest.approx(
                    by_hand(mine, key), abs=0.5 * 10.0 ** -measures()[key].decimals + 1e-9
                )
                checked += 1
    assert checked > 30


def test_a_shop_that_is_too_small_says_so(tmp_path):
    build_database(tmp_path / "commerce.db", orders=300, seed=5)
    shop = Shop(
        tmp_path / "commerce.db",
        tmp_path,
        CommerceOptions(job="insights", insights=5000),
        lambda *_: None,
    )
    with pytest.raises(DataError, match=r"5000 prompts.* its orders"):
        pairs(shop)


def test_where_figures_are_from_is_part_of_what_records_are():
    assert CommerceOptions(insights_from="negative").records() != CommerceOptions().records()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "lua"}, "kind is 'lua'"),
        ({"measures": ["pedidos"]}, r"measures are \['pedidos'\]"),
        ({"rows": ["SP", "XX"]}, "'XX' is no"),
        ({"rows": ["SP", "SP"]}, "two different rows"),
        ({"values": [[1, 2.0, 3.0], [1, 2.0]]}, "a number for each"),
        ({"values": None}, "a number for each"),
        ({"values": [[1, 2.0, "x"], [1, 2.0, 3.0]]}, "a number for each"),
    ],
)
def test_a_reference_that_somebody_edited(change, said):
    good = {
        "kind": "atraso_estado",
        "rows": ["SP", "RJ"],
        "measures": ["pedidos", "prazo", "atraso"],
    }
    good["values"] = [[5, 9.5, 3.1], [4, 8.0, 2.0]]
    check(good)
    with pytest.raises(ValueError, match=said):
        check({**good, **change})


# What sentences claim


WRITTEN = read_table(Path(__file__).parent / "insights.yaml")
TABLES = {
    name: table_of(
        {**table, "values": [[float(value) for value in row] for row in table["values"]]}
    )
    for name, table in WRITTEN["tables"].items()
}
SENTENCES = [
    (name, wanted, sentence)
    for name, by_verdict in WRITTEN["sentences"].items()
    for wanted, listed in by_verdict.items()
    for sentence in listed
]


def test_what_a_sentence_claims():
    wrong = []
    for name, wanted, sentence in SENTENCES:
        verdicts = {claim.verdict for claim in read_claims(sentence, TABLES[name]).claims}
        worst = next(
            (one for one in ("contradicted", "unsupported", "supported") if one in verdicts), "none"
        )
        if worst != wanted:
            wrong.append((name, sentence, wanted, worst))
    assert wrong == []


def parts(text, name="estados"):
    return judge(TABLES[name], text)[1].parts


def test_a_fact_counts_once_however_often_it_is_said():
    once = "O MA tem a maior taxa de atraso, com 18,5%."
    again = "O MA lidera em taxa de atraso, com 18,5%."
    assert parts(once)["claims"] == parts(f"{once} {again} {once}")["claims"] > 0
    assert parts(f"{once} {once}")["repetition"] == 0.5
    more = f"{once} MG tem a menor, com 5,2%."
    assert parts(more)["claims"] > parts(once)["claims"]


def test_a_contradiction_costs_more_than_what_cannot_be_answered():
    true = "O MA tem a maior taxa de atraso, com 18,5%. "
    unknown, wrong = true + "Na Bahia foram 9,9%.", true + "Já o RJ tem 9,9%."
    assert parts(true)["claims"] > parts(unknown)["claims"] > parts(wrong)["claims"] > 0


def test_coverage_is_of_the_ends_and_the_gap():
    high, low = "O MA tem a maior taxa de atraso. ", "MG tem a menor taxa de atraso. "
    assert parts(high)["coverage"] == pytest.approx(1 / 3)
    assert parts(high + low)["coverage"] == pytest.approx(2 / 3)
    assert (
        parts(high + low + "A diferença entre MA e MG é de 13,3 pontos percentuais.")["coverage"]
        == 1
    )
    half = parts(high + low + "A diferença entre MA e RJ é de 4,4 pontos percentuais.")["coverage"]
    assert half == pytest.approx(2.5 / 3)
    assert parts("SP tem o maior volume de pedidos.")["coverage"] == 0, (
        "not the measure in question"
    )


def test_a_recommendation_is_about_a_row_that_the_text_has_compared():
    compared = "O MA tem a maior taxa de atraso, com 18,5%. "
    assert parts(compared + "Recomendo rever a rota do MA.")["recommendation"] == 1
    assert (
        parts("Recomendo rever a rota do MA. " + compared * 2 + compared)["recommendation"] == 0.8
    )
    assert parts(compared + "Recomendo rever a rota do RJ.")["recommendation"] == 0.4
    assert parts(compared + "Recomendo rever as rotas.")["recommendation"] == 0.2
    assert parts(compared)["recommendation"] == 0
    assert parts("Recomendo rever a rota do MA.")["recommendation"] == 0, "nothing was shown"


@pytest.mark.parametrize(
    ("sentence", "counts"),
    [
        ("R$ 0 mil é o ticket do boleto.", 0),
        ("O boleto fica acima de R$ 1,00.", 0),
        ("O boleto fica acima de R$ 140,00.", 1),
    ],
)
def test_what_is_true_of_nearly_anything_claims_nothing(sentence, counts):
    assert len(read_claims(sentence, TABLES["pagamentos"]).supported()) == counts


# Damaged gold answers


def test_every_number_of_a_gold_answer_matters(insights):
    """Another number in the place of any: the answer is never worth as much."""
    rng = generator(0, "damage")
    caught = total = 0
    for example in insights.examples("train"):
        for found in re.finditer(
            r"(?<![\w,.])(?:\d+(?:[.,]\d+)*)(?=%| dias\b| pontos| vezes)", example.gold
        ):
            decimals = len(found[0].partition(",")[2])
            value = float(found[0].replace(".", "").replace(",", "."))
            other = brazilian(value * float(rng.uniform(1.3, 1.9)) + 1.0, decimals)
            damaged = example.gold[: found.start()] + other + example.gold[found.end() :]
            total += 1
            caught += insights.judge(example, damaged)[1].total < 1
    assert total > 150
    assert caught / total > 0.98, (caught, total)


def test_every_direction_of_a_gold_answer_matters(insights):
    turned = {
        "maior": "menor",
        "menor": "maior",
        "acima": "abaixo",
        "abaixo": "acima",
        "alta": "queda",
    }
    turned |= {"queda": "alta", "subiu": "caiu", "caiu": "subiu"}
    caught = total = 0
    for example in insights.examples("train"):
        for found in re.finditer(r"\b(?:" + "|".join(turned) + r")\b(?! valor)", example.gold):
            damaged = example.gold[: found.start()] + turned[found[0]] + example.gold[found.end() :]
            if damaged.count("Do maior valor") or "reclamações de" in damaged:
                continue
            total += 1
            caught += insights.judge(example, damaged)[1].total < 0.95
    assert total > 150
    assert caught / total > 0.95, (caught, total)


@given(st.text(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_text_is_scored(text):
    for table in TABLES.values():
        assert 0 <= judge(table, text)[1].total <= 1


@given(
    st.lists(
        st.sampled_from(
            [*"0123456789.,%R$ -()|:;", "SP", " RJ ", " maior ", " que ", "média ", "\n", "ou"]
        ),
        max_size=120,
    )
)
@settings(max_examples=300, deadline=None)
def test_any_soup_of_numbers_and_marks_is_scored(pieces):
    assert 0 <= judge(TABLES["estados"], "".join(pieces))[1].total <= 1


LONG = [
    *"9,(|\x01",
    "1,2.",
    "p.",
    "SP ",
    "SP, RJ e ",
    "SP maior que RJ ",
    "SP 9,1% maior média ",
    "\n- ",
    "ou ",
]


def test_twenty_kilobytes_take_no_longer_than_a_page():
    texts = [(piece * (20_000 // len(piece) + 1))[:20_000] for piece in (*LONG, *HOSTILE) if piece]
    assert most_work(lambda text: judge(TABLES["estados"], text), texts) < 5


# Language


FOREIGN = [
    (
        "The state with the highest delay rate is MA, and we should review the contract with the "
        "carrier in that state."
    ),
    (
        "La tasa de retraso más alta es la de MA, y el promedio de los estados es más bajo; hay "
        "que "
        "revisar el contrato."
    ),
    (
        "Le taux de retard le plus haut est dans le MA, et il faut revoir le contrat avec le "
        "transporteur."
    ),
]


def spoken(text):
    return [
        word
        for sentence in read_claims(text, TABLES["estados"]).sentences
        for word in sentence.plain.split()
    ]


def test_gold_answers_are_portuguese_to_us_and_to_another_judge(insights):
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    oracle = LanguageIdentifier.from_model_file(MODEL_FILE)
    oracle.set_languages(["pt", "es", "en", "fr"])
    for example in insights.examples("train"):
        assert insights.judge(example, example.gold)[1].parts["language"] == 1
        assert oracle.classify(example.gold)[0] == "pt"
    for text in FOREIGN:
        assert oracle.classify(text)[0] != "pt"
        assert language(spoken(text)) < 0.5
    for _, _, sentence in SENTENCES:
        if len(sentence.split()) >= 12:
            assert language(spoken(sentence)) > 0.5, sentence
