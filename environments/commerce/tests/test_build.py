"""The splits: disjoint, shuffled, reproducible byte for byte, as even as the shop allows; and what
a bad row says."""

import json
import shutil
import sqlite3
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from environments.commerce.tests.conftest import OPTIONS
from plumbline.errors import DataError, RecipeError
from plumbline.runs import output_guard
from plumbline.storage import read_jsonl
from plumbline.tasks import open_task, silent
from plumbline_commerce.build import RECORDS, SPLITS, build_commerce, has_records
from plumbline_commerce.extraction.pairs import _choose, _eligible, _quotas
from plumbline_commerce.extraction.schema import KEYS
from plumbline_commerce.job import Shop
from plumbline_commerce.options import CommerceOptions


def rows(folder, split):
    return [row for _, row in read_jsonl(folder / f"{split}.jsonl")]


def _shop(folder, seed):
    return Shop(folder / "commerce.db", folder, CommerceOptions(seed=seed), silent)


def test_the_splits_share_no_order_customer_review_or_text(commerce_folder):
    keys = ("id", "order_id", "customer_id", "customer_unique_id", "review_id")
    everything = [row for split in SPLITS for row in rows(commerce_folder, split)]
    for key in keys:
        assert len({row[key] for row in everything}) == len(everything) == 200
    texts = {" ".join(row["reference"]["review"].casefold().split()) for row in everything}
    assert len(texts) == len(everything)


def test_of_each_customer_review_and_text_one_order_is_taken(tmp_path):
    """Few repeat in a small shop, and fewer are drawn from it, so the splits alone would not show a
    repetition."""
    found = [
        ("o1", "ann", "r1", "Chegou atrasado", "negativo"),
        ("o2", "ann", "r2", "another text of the same customer", "negativo"),
        ("o3", "bob", "r1", "another text under the same review", "negativo"),
        ("o4", "eve", "r4", "chegou \n ATRASADO ", "negativo"),
        ("o5", "kim", "r5", None, "negativo"),
        ("o6", "lee", "r6", "a text that nobody labelled", None),
    ]
    given = "order_id, customer_unique_id, review_id, review_text, sentiment"
    labels = ", ".join(f"{key} DEFAULT 1" for key in KEYS if key != "sentiment")
    with sqlite3.connect(tmp_path / "commerce.db") as connection:
        connection.execute(f"CREATE TABLE orders_enriched ({given}, {labels})")
        connection.executemany(
            f"INSERT INTO orders_enriched ({given}) VALUES (?, ?, ?, ?, ?)", found
        )
        half = "'o7', 'max', 'r7', 'a text of which somebody labelled the half', 'negativo', NULL"
        connection.execute(f"INSERT INTO orders_enriched ({given}, churn_risk) VALUES ({half})")
        connection.execute(
            "UPDATE orders_enriched SET would_recommend = NULL, delay_days = NULL, main_complaint "
            "= NULL"
        )
    connection.close()
    first = set()
    for seed in range(24):
        taken = [row["order_id"] for row in _eligible(_shop(tmp_path, seed))]
        first.add(taken[0])
        # o1 shares something with each of the others; those share nothing with one another.
        assert taken == ["o1"] or sorted(taken) == ["o2", "o3", "o4"]
    assert first == {"o1", "o2", "o3", "o4"}, "which one is taken is up to the seed"


def test_the_shop_itself_has_customers_and_texts_that_repeat(commerce_folder):
    """Else the test above would test nothing that happens."""
    with closing(sqlite3.connect(commerce_folder / "commerce.db")) as connection:
        written = connection.execute(
            "SELECT customer_unique_id, review_id, review_text FROM orders_enriched"
            " WHERE review_text IS NOT NULL AND sentiment IS NOT NULL"
        ).fetchall()
    taken = _eligible(_shop(commerce_folder, OPTIONS["seed"]))
    for key in ("customer_unique_id", "review_id", "review_text"):
        assert len({row[key] for row in taken}) == len(taken) < len(written)
    assert len({row[0] for row in written}) < len(written)
    assert len({" ".join(row[2].casefold().split()) for row in written}) < len(written)


def test_sizes_are_eighty_ten_ten_and_the_default_is_590(commerce_folder):
    assert [len(rows(commerce_folder, split)) for split in SPLITS] == [160, 20, 20]
    assert CommerceOptions().count("extraction") == 590


def test_same_seed_same_bytes_and_another_seed_another_shop(tmp_path):
    for folder, seed in (("one", 5), ("same", 5), ("other", 6)):
        build_commerce(SMALL.model_copy(update={"seed": seed}), tmp_path / folder)
    for name in (*(f"{split}.jsonl" for split in SPLITS), "commerce.db"):
        one, same, other = (
            (tmp_path / folder / name).read_bytes() for folder in ("one", "same", "other")
        )
        assert one == same != other


def test_every_row_is_a_chat_that_ends_with_the_gold_answer(commerce_folder):
    for split in SPLITS:
        for row in rows(commerce_folder, split):
            assert [message["role"] for message in row["messages"]] == [
                "system",
                "user",
                "assistant",
            ]
            gold = json.loads(row["messages"][-1]["content"])
            assert {**gold, "review": row["reference"]["review"]} == row["reference"]
            assert row["reference"]["review"] in row["messages"][1]["content"]


def test_categories_are_even_and_every_split_has_its_share(commerce_folder):
    counts = {
        split: Counter(
            row["reference"]["complaint_category"] for row in rows(commerce_folder, split)
        )
        for split in SPLITS
    }
    assert counts["train"].most_common(1)[0][1] / 160 < 0.45
    for category, count in counts["train"].items():
        assert abs(counts["test"][category] - count / 8) <= 2
    order = [row["reference"]["complaint_category"] for row in rows(commerce_folder, "train")]
    assert order != sorted(order), "the rows are shuffled"


def test_quotas_add_up_and_never_exceed_what_there_is():
    assert _quotas({"a": 3, "b": 100, "nenhum": 500}, 100) == {"a": 3, "b": 72, "nenhum": 25}
    assert _quotas({"a": 3, "b": 5, "nenhum": 500}, 100) == {"a": 3, "b": 5, "nenhum": 92}
    assert sum(_quotas({"a": 40, "b": 41, "c": 42, "nenhum": 5}, 100).values()) == 100


def test_as_many_reviews_as_there_are_can_be_asked_for():
    rows = [{"complaint_category": name, "at": at} for at, name in enumerate(("a", "nenhum", "a"))]
    assert sorted(row["at"] for row in _choose(rows, 3, np.random.default_rng(0))) == [0, 1, 2]


def test_too_few_reviews_is_an_error_with_a_fix(tmp_path):
    with pytest.raises(DataError, match=r"5000 prompts(.|\n)*more orders"):
        build_commerce(CommerceOptions(orders=300, extraction=5000), tmp_path)


def test_a_folder_of_other_records_is_not_taken_for_these(commerce_folder):
    with pytest.raises(DataError, match="extraction: 200 there, 300 wanted"):
        open_task("commerce", {**OPTIONS, "extraction": 300}, commerce_folder)


def test_an_unknown_option_is_named(tmp_path):
    with pytest.raises(RecipeError, match=r"task\.options\.orderz"):
        open_task("commerce", {"orderz": 3}, tmp_path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda row: row["messages"].pop(),
            r"train.jsonl:2: messages .* user, .* assistant",
        ),
        (lambda row: row["messages"].append({"role": 3}), r"train.jsonl:2: messages"),
        (
            lambda row: row["reference"].pop("sentiment"),
            r"train.jsonl:2: sentiment .* some rows",
        ),
        (
            lambda row: row.update(task="sql"),
            r"train.jsonl:2: .* 'sql', .* extraction",
        ),
    ],
)
def test_a_malformed_row_is_named_by_file_and_line(commerce_folder, tmp_path, spoil, message):
    spoilt = rows(commerce_folder, "train")[:3]
    spoil(spoilt[1])
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in spoilt))
    with pytest.raises(DataError, match=message):
        open_task("commerce", {"data": str(tmp_path)}, tmp_path).examples("train")


def test_an_id_that_comes_twice_is_named_by_file_and_line(commerce_folder, tmp_path):
    first = (commerce_folder / "train.jsonl").read_text().splitlines()[0] + "\n"
    (tmp_path / "train.jsonl").write_text(first * 2)
    with pytest.raises(DataError, match=r"train\.jsonl:2: extraction-"):
        open_task("commerce", {"data": str(tmp_path)}, tmp_path).examples("train")


def test_nothing_is_built_before_examples_are_asked_for(tmp_path):
    task = open_task("commerce", {"orders": 200, "extraction": 20}, tmp_path / "records")
    assert task.baselines
    with pytest.raises(DataError, match="no split 'dev'"):
        task.examples("dev")
    assert not (tmp_path / "records").exists()
    assert len(task.examples("train")) == 16
    assert (tmp_path / "records" / "commerce.db").is_file()


def test_a_split_that_is_not_there(tmp_path):
    (tmp_path / "train.jsonl").write_text("")
    with pytest.raises(DataError, match="does not exist"):
        open_task("commerce", {"data": str(tmp_path)}, tmp_path).examples("val")


def test_a_build_that_was_killed_is_done_again_and_a_users_records_are_left_alone(
    commerce_folder, tmp_path
):
    killed = tmp_path / "killed"
    output_guard.claim_folder(killed, RECORDS)
    (killed / ".building").touch()
    (killed / "train.jsonl").write_text("half")
    assert (
        len(open_task("commerce", {"orders": 200, "extraction": 20}, killed).examples("test")) == 2
    )
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "val.jsonl").write_bytes((commerce_folder / "val.jsonl").read_bytes())
    assert len(open_task("commerce", {}, mine).examples("val")) == 20
    assert {path.name for path in mine.iterdir()} == {"val.jsonl"}


def test_options_left_alone_are_those_of_the_records(commerce_folder):
    assert len(open_task("commerce", {}, commerce_folder).examples("train")) == 160


SMALL = CommerceOptions(orders=200, extraction=20)


def test_two_that_build_at_once_build_once_and_say_that_they_wait(tmp_path):
    told = []
    with ThreadPoolExecutor(2) as both:
        with output_guard.lock_folder(tmp_path / "data", lambda: None):
            built = [
                both.submit(
                    build_commerce, SMALL, tmp_path / "data", lambda *said: told.append(said)
                )
                for _ in "12"
            ]
            while sum(said[0].startswith("waiting for another process") for said in told) < 2:
                assert not any(one.done() for one in built), built
                time.sleep(0.01)
            assert [path.name for path in tmp_path.iterdir()] == [".data.lock"]
        assert built[0].result() == built[1].result()
    assert [said[1] for said in told].count(0) < 40, "one of them has built"
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_the_second_that_wants_other_records_is_told_so(tmp_path):
    build_commerce(SMALL, tmp_path / "data")
    with pytest.raises(DataError, match="20 there, 30 wanted"):
        build_commerce(CommerceOptions(orders=200, extraction=30), tmp_path / "data")


@pytest.mark.parametrize(
    ("at", "empty"),
    [
        ("commerce.db", False),
        ("train.jsonl", True),
        ("manifest.json", False),
        ("rename", True),
        ("rename", False),
    ],
)
def test_what_a_kill_leaves_is_never_taken_for_whole(tmp_path, at, empty):
    """In the middle of a build with other options; in an empty folder, and in one that holds
    something of ours.

    Until files are put into their place these two are built alike, beside it.
    """
    folder = tmp_path / "data"
    if not empty:
        output_guard.claim_folder(folder, RECORDS)
        (folder / "notes.txt").write_text("mine")
    with pytest.raises(Killed), killed_at(at):
        build_commerce(CommerceOptions(orders=200, extraction=30), folder)
    assert has_records(SMALL, folder) is False
    manifest = build_commerce(SMALL, folder)
    assert manifest["splits"] == {"train": 16, "val": 2, "test": 2}
    assert has_records(SMALL, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    extra = set() if empty else {"notes.txt"}
    names = {
        "commerce.db",
        "manifest.json",
        "train.jsonl",
        "val.jsonl",
        "test.jsonl",
        output_guard.MARK,
    }
    assert {path.name for path in folder.iterdir()} == names | extra


class Killed(BaseException):
    """Not an Exception: nothing may clear up after it."""


@contextmanager
def killed_at(name):
    """Stop before a file of this name is put into its place, and clear up as little as a kill
    does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        replace = Path.replace

        def stop(path, target):
            if Path(target).name == name or (
                name == "rename" and "data" in {Path(target).name, Path(target).parent.name}
            ):
                raise Killed
            return replace(path, target)

        rename = Path.rename
        patch.setattr(Path, "replace", stop)
        patch.setattr(
            Path,
            "rename",
            lambda path, target: stop(path, target) if name == "rename" else rename(path, target),
        )
        yield


def test_records_that_are_not_those_of_their_manifest_are_not_whole(tmp_path):
    build_commerce(SMALL, tmp_path)
    assert has_records(SMALL, tmp_path)
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write((tmp_path / "val.jsonl").read_text())
    with pytest.raises(DataError, match=r"train\.jsonl is"):
        has_records(SMALL, tmp_path)
