"""The tables: nine named as in Olist (misspelt columns included), and `orders_enriched`.

Every table has the primary key that Olist's rows allow; `geolocation` has none there either. Foreign keys are
declared, so `PRAGMA foreign_key_check` finds any row that points nowhere.

Writes a shop's tables to one SQLite file, wherever the rows are from.
"""

import sqlite3
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from plumbline.errors import StorageError
from plumbline.storage import clear_os_errors, sync_folder

Row = tuple[str | int | float | None, ...]
"""Of any table."""
TABLES = {
    "product_category_name_translation": """
        product_category_name TEXT PRIMARY KEY,
        product_category_name_english TEXT NOT NULL""",
    "geolocation": """
        geolocation_zip_code_prefix TEXT NOT NULL,
        geolocation_lat REAL NOT NULL,
        geolocation_lng REAL NOT NULL,
        geolocation_city TEXT NOT NULL,
        geolocation_state TEXT NOT NULL""",
    "customers": """
        customer_id TEXT PRIMARY KEY,
        customer_unique_id TEXT NOT NULL,
        customer_zip_code_prefix TEXT NOT NULL,
        customer_city TEXT NOT NULL,
        customer_state TEXT NOT NULL""",
    "sellers": """
        seller_id TEXT PRIMARY KEY,
        seller_zip_code_prefix TEXT NOT NULL,
        seller_city TEXT NOT NULL,
        seller_state TEXT NOT NULL""",
    "products": """
        product_id TEXT PRIMARY KEY,
        product_category_name TEXT REFERENCES product_category_name_translation (product_category_name),
        product_name_lenght INTEGER,
        product_description_lenght INTEGER,
        product_photos_qty INTEGER,
        product_weight_g INTEGER,
        product_length_cm INTEGER,
        product_height_cm INTEGER,
        product_width_cm INTEGER""",
    "orders": """
        order_id TEXT PRIMARY KEY,
        customer_id TEXT NOT NULL UNIQUE REFERENCES customers (customer_id),
        order_status TEXT NOT NULL,
        order_purchase_timestamp TEXT NOT NULL,
        order_approved_at TEXT,
        order_delivered_carrier_date TEXT,
        order_delivered_customer_date TEXT,
        order_estimated_delivery_date TEXT NOT NULL""",
    "order_items": """
        order_id TEXT NOT NULL REFERENCES orders (order_id),
        order_item_id INTEGER NOT NULL,
        product_id TEXT NOT NULL REFERENCES products (product_id),
        seller_id TEXT NOT NULL REFERENCES sellers (seller_id),
        shipping_limit_date TEXT NOT NULL,
        price REAL NOT NULL,
        freight_value REAL NOT NULL,
        PRIMARY KEY (order_id, order_item_id)""",
    "order_payments": """
        order_id TEXT NOT NULL REFERENCES orders (order_id),
        payment_sequential INTEGER NOT NULL,
        payment_type TEXT NOT NULL,
        payment_installments INTEGER NOT NULL,
        payment_value REAL NOT NULL,
        PRIMARY KEY (order_id, payment_sequential)""",
    "order_reviews": """
        review_id TEXT NOT NULL,
        order_id TEXT NOT NULL REFERENCES orders (order_id),
        review_score INTEGER NOT NULL CHECK (review_score BETWEEN 1 AND 5),
        review_comment_title TEXT,
        review_comment_message TEXT,
        review_creation_date TEXT NOT NULL,
        review_answer_timestamp TEXT NOT NULL,
        PRIMARY KEY (review_id, order_id)""",
    "orders_enriched": """
        order_id TEXT PRIMARY KEY REFERENCES orders (order_id),
        customer_id TEXT NOT NULL REFERENCES customers (customer_id),
        customer_unique_id TEXT NOT NULL,
        first_name TEXT NOT NULL,
        customer_city TEXT NOT NULL,
        customer_state TEXT NOT NULL,
        product_category TEXT,
        num_items INTEGER NOT NULL,
        order_value REAL,
        freight_value REAL,
        payment_type TEXT,
        installments INTEGER,
        order_status TEXT NOT NULL,
        order_date TEXT NOT NULL,
        estimated_date TEXT NOT NULL,
        delivered_date TEXT,
        delivery_days INTEGER,
        delay_days INTEGER,
        review_id TEXT,
        review_score INTEGER,
        review_title TEXT,
        review_text TEXT,
        sentiment TEXT,
        sentiment_score REAL,
        complaint_category TEXT,
        delivery_issue INTEGER,
        product_issue INTEGER,
        service_issue INTEGER,
        would_recommend INTEGER,
        main_complaint TEXT,
        churn_risk REAL""",
}
"""The columns of each table, in an order in which every reference points back."""

INDICES = {
    "geolocation_zip": "geolocation (geolocation_zip_code_prefix)",
    "customers_unique": "customers (customer_unique_id)",
    "customers_state": "customers (customer_state)",
    "sellers_state": "sellers (seller_state)",
    "products_category": "products (product_category_name)",
    "orders_purchase": "orders (order_purchase_timestamp)",
    "order_items_product": "order_items (product_id)",
    "order_items_seller": "order_items (seller_id)",
    "order_reviews_order": "order_reviews (order_id)",
    "enriched_customer": "orders_enriched (customer_id)",
    "enriched_unique": "orders_enriched (customer_unique_id)",
    "enriched_state": "orders_enriched (customer_state)",
    "enriched_category": "orders_enriched (product_category)",
    "enriched_complaint": "orders_enriched (complaint_category)",
    "enriched_date": "orders_enriched (order_date)",
}


def create_tables() -> list[str]:
    """The statements that create every table."""
    return [f"CREATE TABLE {name} ({columns}\n)" for name, columns in TABLES.items()]


def create_indices() -> list[str]:
    """The statements that create every index; run them after the rows are in."""
    return [f"CREATE INDEX {name} ON {place}" for name, place in INDICES.items()]


Rows = Callable[[str, sqlite3.Connection], Iterable[Row]]
"""The rows of a table by its name, asked for in the order of `schema.TABLES`; the tables before it are filled."""
PARTIAL = "partial.db"
"""The file until it is whole, in a folder of its own beside its place."""


def write_database(path: Path, rows: Rows) -> None:
    """Write the file beside its target and rename it over it.

    Raises:
        StorageError: the disk is full or the folder cannot be written; an old file is untouched.
    """
    with clear_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.")
        partial = Path(folder) / PARTIAL
        try:
            _fill(partial, rows)
            partial.replace(path)
        except sqlite3.Error as error:
            raise StorageError(f"cannot write {path}: {error}", "free some space and start again") from error
        finally:
            for rest in Path(folder).iterdir():
                rest.unlink()
            Path(folder).rmdir()
        sync_folder(path.parent)


def _fill(path: Path, rows: Rows) -> None:
    """Create the tables, their rows and indices, and the planner's statistics."""
    with closing(sqlite3.connect(path)) as connection:
        # Nobody reads the file before it is renamed, so a journal would protect nothing.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        for statement in create_tables():
            connection.execute(statement)
        for name in TABLES:
            marks = ", ".join("?" * len(connection.execute(f"PRAGMA table_info({name})").fetchall()))
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows(name, connection))  # noqa: S608 - ours
        for statement in create_indices():
            connection.execute(statement)
        connection.execute("ANALYZE")
        connection.commit()
