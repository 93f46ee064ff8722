"""Olist's CSV files make the same database: table by table, with what is odd about them, and with
what is wrong."""

import csv
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from environments.commerce.tests.olist_files import UNTRANSLATED, export_olist
from plumbline.cli.main import app
from plumbline.errors import DataError, RecipeError
from plumbline.storage import read_object
from plumbline.tasks import open_task, silent
from plumbline_commerce.build import SPLITS, make_commerce
from plumbline_commerce.database import build_database
from plumbline_commerce.database.schema import TABLES
from plumbline_commerce.job import rows_of
from plumbline_commerce.olist.build import LOG, import_olist
from plumbline_commerce.olist.enriched import LABELS, first_name, gold_of
from plumbline_commerce.olist.files import FILES
from plumbline_commerce.options import read_options

DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))

ORDERS, ITEMS, REVIEWS = FILES["orders"], FILES["order_items"], FILES["order_reviews"]


def table(database, name, columns="*"):
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(f"SELECT {columns} FROM {name}").fetchall()


@pytest.fixture(scope="session")
def imported(commerce_folder, tmp_path_factory):
    """The session's shop, written as CSV files and read again."""
    folder = tmp_path_factory.mktemp("olist")
    export_olist(commerce_folder / "commerce.db", folder / "csv")
    before = {path.name: path.stat().st_mtime_ns for path in (folder / "csv").iterdir()}
    said = []
    result = import_olist(folder / "commerce.db", folder / "csv", lambda *told: said.append(told))
    assert before == {path.name: path.stat().st_mtime_ns for path in (folder / "csv").iterdir()}, (
        "they are left alone"
    )
    assert [told[1:] for told in said if "labelling" in told[0]] == [(2000, 3000), (3000, 3000)]
    assert {what.split()[1] for what, *_ in said if what.startswith("reading")} == set(
        FILES.values()
    )
    return folder / "commerce.db", result


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """The files of a shop of 300 orders."""
    folder = tmp_path_factory.mktemp("small")
    build_database(folder / "small.db", orders=300, seed=8)
    export_olist(folder / "small.db", folder / "csv")
    return folder / "csv"


@pytest.fixture
def mine(small, tmp_path):
    """A copy to spoil."""
    return shutil.copytree(small, tmp_path / "csv")


def edit(path, change):
    """Change the rows of a file, the header first."""
    with path.open(encoding="utf-8-sig", newline="") as opened:
        rows = list(csv.reader(opened))
    change(rows)
    with path.open("w", encoding="utf-8", newline="") as opened:
        csv.writer(opened, lineterminator="\n").writerows(rows)


def column(file, name):
    table_name = next(key for key, value in FILES.items() if value == file)
    return [line.split()[0] for line in TABLES[table_name].strip().splitlines()].index(name)


def read(folder, tmp_path):
    return import_olist(
        tmp_path / "out" / "commerce.db", folder, silent
    ), tmp_path / "out" / "commerce.db"


# -- the same tables -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_every_table_comes_back_row_by_row(commerce_folder, imported, name):
    rows, original = table(imported[0], name), table(commerce_folder / "commerce.db", name)
    if name == "product_category_name_translation":  # the two that Olist leaves out come last
        assert {row[0] for row in rows[-2:]} <= set(UNTRANSLATED)
        rows, original = sorted(rows), sorted(original)
    assert rows == original
    assert imported[1]["rows"][name] == len(rows)


def test_the_derived_columns_are_those_of_the_synthetic_shop(commerce_folder, imported):
    derived = [line.split()[0] for line in TABLES["orders_enriched"].strip().splitlines()]
    derived = ", ".join(name for name in derived if name not in {"first_name", *LABELS})
    shop = commerce_folder / "commerce.db"
    assert table(imported[0], "orders_enriched", derived) == table(shop, "orders_enriched", derived)


def test_the_schema_the_references_and_the_log_are_whole(commerce_folder, imported):
    schema, shop = "type, name, sql", commerce_folder / "commerce.db"
    assert table(imported[0], "sqlite_master", schema) == table(shop, "sqlite_master", schema)
    with closing(sqlite3.connect(imported[0])) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert imported[1]["malformed"] == {"rows": {}, "first": []}
    assert not imported[0].with_name(LOG).exists()


def test_a_first_name_belongs_to_a_customer(imported):
    names = dict(table(imported[0], "orders_enriched", "customer_unique_id, first_name"))
    assert all(first_name(person) == name for person, name in names.items())
    assert len(set(names.values())) > 100


def test_what_is_odd_about_the_real_files(mine, tmp_path):
    seen = {}

    def payments(rows):
        seen["unpaid"], seen["undefined"] = rows[1][0], rows[-1][0]
        rows[1:] = [row for row in rows[1:] if row[0] != seen["unpaid"]]
        rows[-1][2:] = ["not_defined", "0", "0.00"]

    def reviews(rows):
        seen["twice"] = rows[1][1]
        rows.append(
            [
                "f" * 32,
                rows[1][1],
                "2",
                " ",
                'He said ""no""\r\n\r\nand, left',
                *["2030-01-01 00:00:00"] * 2,
            ]
        )
        rows[2][0] = rows[3][0]  # one review of two orders

    def products(rows):
        rows[1][1:] = ["", "", "12.0", "", "225.0", "", "", ""]
        rows[2][1] = "a_new_category"

    def customers(rows):
        rows[1][2] = "1151"

    for name, change in {
        "order_payments": payments,
        "order_reviews": reviews,
        "products": products,
    }.items():
        edit(mine / FILES[name], change)
    edit(mine / FILES["customers"], customers)
    result, database = read(mine, tmp_path)
    assert result["malformed"]["rows"] == {}
    enriched = {
        row[0]: row
        for row in table(database, "orders_enriched", "order_id, payment_type, installments")
    }
    assert enriched[seen["unpaid"]][1:] == (None, None)
    assert enriched[seen["undefined"]][1:] in {("not_defined", 0), ("credit_card", 1)}
    review = "order_id, review_id, review_title, review_text"
    assert (
        [row[1:] for row in table(database, "orders_enriched", review) if row[0] == seen["twice"]]
    ) == [("f" * 32, None, 'He said ""no""\n\nand, left')]
    assert table(database, "products")[0][1:] == (None, None, 12, None, 225, None, None, None)
    assert ("a_new_category", "a_new_category") in table(
        database, "product_category_name_translation"
    )
    assert table(database, "customers", "customer_zip_code_prefix")[0] == ("01151",)


# -- files that cannot be used ---------------------------------------------------------------------


def test_all_files_that_are_missing_empty_or_others_are_named_at_once(mine, tmp_path):
    (mine / ORDERS).unlink()
    (mine / FILES["sellers"]).unlink()
    (mine / FILES["customers"]).write_bytes(b"")
    edit(mine / FILES["geolocation"], lambda rows: rows[0].pop())
    with pytest.raises(DataError) as error:
        read(mine, tmp_path)
    for said in (
        f"{ORDERS} is missing",
        "olist_sellers_dataset.csv is missing",
        "olist_customers_dataset.csv is empty",
        "olist_geolocation_dataset.csv begins with",
        "kaggle.com/datasets/olistbr",
    ):
        assert said in str(error.value)
    with pytest.raises(DataError, match="typo"):
        read(mine / "typo", tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_file_with_a_header_only_has_no_rows(mine, tmp_path):
    edit(mine / ORDERS, lambda rows: rows.__delitem__(slice(1, None)))
    with pytest.raises(DataError, match=f"{ORDERS} has no rows"):
        read(mine, tmp_path)


@pytest.mark.parametrize(
    ("file", "name", "value", "said"),
    [
        (
            ORDERS,
            "order_purchase_timestamp",
            "2017-13-02 10:56:33",
            "order_purchase_timestamp is .* date",
        ),
        (
            ORDERS,
            "order_approved_at",
            "2017-10-02 10:56+01",
            "order_approved_at is .* date",
        ),
        (ORDERS, "order_estimated_delivery_date", "", "order_estimated_delivery_date is empty"),
        (
            ORDERS,
            "customer_id",
            "x" * 32,
            "customer_id 'x+' is none of olist_customers_dataset.csv",
        ),
        (ITEMS, "order_id", "x" * 32, "order_id 'x+' is none of olist_orders_dataset.csv"),
        (ITEMS, "price", "12,90", "price is '12,90', not"),
        (ITEMS, "price", "-1", "price is '-1', below 0"),
        (ITEMS, "price", "1e999", "price is '1e999', not"),
        (ITEMS, "order_item_id", "1.5", "order_item_id is '1.5', .* 0"),
        (ITEMS, "freight_value", "1\0", "holds a NUL"),
        (REVIEWS, "review_score", "6", "review_score is '6', .* 1 to 5"),
        (
            FILES["customers"],
            "customer_zip_code_prefix",
            "123456",
            "customer_zip_code_prefix is '123456', not",
        ),
    ],
)
def test_a_malformed_row_is_left_out_and_named_by_file_and_line(
    mine, tmp_path, file, name, value, said
):
    edit(mine / file, lambda rows: rows[-1].__setitem__(column(file, name), value))
    line = len((mine / file).read_text().splitlines())
    result, database = read(mine, tmp_path)
    assert result["malformed"]["rows"][file] == 1
    assert re.match(f"{re.escape(file)}:{line}: {said}", result["malformed"]["first"][0])
    log = database.with_name(LOG).read_text().splitlines()
    assert log[0] == result["malformed"]["first"][0]
    assert len(log) == sum(result["malformed"]["rows"].values()), "with the rows that named it"


def test_a_row_of_another_length_one_that_comes_twice_and_the_lines_of_messages(mine, tmp_path):
    def spoil(rows):
        rows.insert(1, [*rows[1][:4], "two\r\nlines", *rows[1][5:]])
        rows[2].append("more")
        rows.append(rows[3])

    edit(mine / REVIEWS, spoil)
    result, _ = read(mine, tmp_path)
    long, twice = result["malformed"]["first"]
    assert long == f"{REVIEWS}:4: 8 fields instead of 7", "the first row has the lines 2 and 3"
    assert "review_id, order_id of" in twice


def test_a_lost_quote_and_bytes_of_another_encoding_spoil_their_lines_only(mine, tmp_path):
    lines = (mine / ITEMS).read_bytes().split(b"\n")
    lines[3] = lines[3].replace(b",", b',"', 1)
    lines[-3] = "São".encode("latin-1") + lines[-3]
    (mine / ITEMS).write_bytes(b"\n".join([*lines[:4], lines[4] + b'"', *lines[5:]]))
    result, database = read(mine, tmp_path)
    assert result["malformed"]["rows"] == {ITEMS: 3}
    places = [reason.split(": ")[0] for reason in result["malformed"]["first"]]
    assert places == [f"{ITEMS}:4", f"{ITEMS}:{len(lines) - 2}"]
    assert "not UTF-8" in result["malformed"]["first"][1]
    assert len(table(database, "order_items")) == len(lines) - 2 - 3


def test_over_one_percent_malformed_is_an_error_that_leaves_the_log_and_no_records(mine, tmp_path):
    edit(mine / REVIEWS, lambda rows: [row.__setitem__(2, "0") for row in rows[1:9]])
    options = read_options({"olist": str(mine), "extraction": 20})
    with pytest.raises(
        DataError,
        match=rf"{REVIEWS}: 8 of \d+ rows .*{REVIEWS}:2: review_score",
    ):
        make_commerce(options, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {LOG, ".plumbline"}
    assert len((tmp_path / "out" / LOG).read_text().splitlines()) == 8
    edit(mine / REVIEWS, lambda rows: [row.__setitem__(2, "1") for row in rows[1:9]])
    make_commerce(options, tmp_path / "out")
    assert not (tmp_path / "out" / LOG).exists()


def test_a_file_saved_as_latin_1_is_refused(mine, tmp_path):
    header, rows = (mine / REVIEWS).read_text().split("\n", 1)
    (mine / REVIEWS).write_bytes(f"{header}\n{rows.replace('a', 'ã')}".encode("latin-1", "ignore"))
    with pytest.raises(DataError, match=f"{REVIEWS}: .*UTF-8"):
        read(mine, tmp_path)


def test_a_database_without_a_table_is_a_clear_error(tmp_path):
    sqlite3.connect(tmp_path / "commerce.db").close()
    with pytest.raises(DataError, match="no such table: orders"):
        list(rows_of(tmp_path / "commerce.db", "SELECT * FROM orders"))


# -- labels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stars", "arrived", "expected"),
    DATA,
)  # fmt: skip
def test_the_rules_read_what_a_review_says(text, stars, arrived, expected):
    gold = gold_of(text, stars, arrived)
    assert {key: getattr(gold, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("text", "stars"),
    [
        ("Segunda via do boleto", 3),
        ("veio quebrado", 5),
        ("excelente", 1),
        ("ainda não usei", 5),
        ("", 3),
        ("👍", 5),
    ],
)
def test_what_the_rules_do_not_know_is_none(text, stars):
    assert gold_of(text, stars, True) is None


def test_a_long_text_takes_little_time_and_its_span_fits():
    gold = gold_of("não recebi " * 20_000, 1, False)
    assert gold.main_complaint == ("não recebi " * 7).strip()
    assert gold_of("q" * 100_000 + " veio quebrado", 1, True) is None


def test_the_rules_agree_with_the_latent_gold_of_the_synthetic_shop(commerce_folder, imported):
    """Bounds far below what docs/research/commerce-data.md has."""
    columns = ", ".join(LABELS)
    pairs = list(
        zip(
            table(imported[0], "orders_enriched", columns),
            table(commerce_folder / "commerce.db", "orders_enriched", columns),
            strict=True,
        )
    )
    assert all(mine[0] is None for mine, gold in pairs if gold[0] is None), "no text, no labels"
    known = [(mine, gold) for mine, gold in pairs if mine[0] is not None]
    assert len(known) > 0.85 * sum(gold[0] is not None for _, gold in pairs)
    bounds = {
        "sentiment": 0.92,
        "complaint_category": 0.92,
        "would_recommend": 0.97,
        "main_complaint": 0.78,
    }
    for name, most in bounds.items():
        place = LABELS.index(name)
        assert sum(mine[place] == gold[place] for mine, gold in known) > most * len(known), name
    assert any(mine != gold for mine, gold in known), "they are not the gold itself"


def test_labels_of_ones_own_are_a_task_of_rows():
    with pytest.raises(RecipeError, match=r"task\.options\.enriched"):
        read_options({"enriched": "labels.csv"})


# -- records ---------------------------------------------------------------------------------------


def test_records_of_olist_train_and_know_their_files(mine, tmp_path):
    folder = tmp_path / "records"
    options = {"olist": str(mine), "extraction": 40}
    task = open_task("commerce", options, folder)
    for split in SPLITS:
        for example in task.examples(split):
            assert task.judge(example, example.gold)[1].total == 1.0
            assert example.reference["sentiment"] is not None
    manifest = read_object(folder / "manifest.json")
    assert manifest["options"]["olist"] == str(mine)
    assert "orders" not in manifest["options"]
    assert len(manifest["olist"]["sources"]["olist_orders_dataset.csv"]["sha256"]) == 64
    moved = mine.rename(tmp_path / "moved")
    (moved / ORDERS).touch()
    assert (
        len(open_task("commerce", {**options, "olist": str(moved)}, folder).examples("train")) == 32
    )
    orders = (moved / ORDERS).read_bytes()
    # of the same size
    (moved / ORDERS).write_bytes(orders.replace(b",delivered,", b",shipped,  ", 1))
    with pytest.raises(DataError, match=f"other files \\({ORDERS}\\)"):
        open_task("commerce", {**options, "olist": str(moved)}, folder)
    with pytest.raises(DataError, match="orders: None there, 500 wanted"):
        open_task("commerce", {"orders": 500}, folder)
    shutil.rmtree(moved)
    assert len(open_task("commerce", options, folder).examples("train")) == 32, (
        "records do not need the files"
    )


def test_records_of_a_synthetic_shop_are_not_those_of_olist(commerce_folder, small):
    with pytest.raises(DataError, match=r"olist: None .*csv"):
        open_task("commerce", {"olist": str(small)}, commerce_folder)


def test_the_command_says_what_was_left_out(mine, tmp_path):
    edit(mine / ITEMS, lambda rows: rows[-1].__setitem__(5, "free"))
    command = [
        "data",
        "commerce",
        "--olist",
        str(mine),
        "--extraction",
        "20",
        "--out",
        str(tmp_path / "out"),
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "train 16, val 2, test 2" in result.stdout
    assert f"({ITEMS} 1)" in result.stdout
    assert "price is 'free'" in result.stdout
