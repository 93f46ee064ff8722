"""A synthetic shop as the nine CSV files of the Olist data set, with what is odd about the real
ones.

python -m environments.commerce.tests.olist_files commerce.db FOLDER [rows of geolocation]
"""

import csv
import itertools
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from plumbline_commerce.olist.files import FILES, TRANSLATION

UNTRANSLATED = ("pc_gamer", "portateis_cozinha_e_preparadores_de_alimentos")
QUOTED = ("customers", "geolocation", "sellers")
"""Their texts are quoted, ZIP prefixes among them."""


def export_olist(database: Path, folder: Path, geolocation: int | None = None) -> None:
    """Write the tables of `database`; geolocation, which has no key, repeats its points up to so
    many rows."""
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(database)) as connection:
        for name, file in FILES.items():
            rows = connection.execute(f"SELECT * FROM {name}")
            header = [column[0] for column in rows.description]
            mark = "utf-8-sig" if name == TRANSLATION else "utf-8"
            with (folder / file).open("w", encoding=mark, newline="") as opened:
                quoting = csv.QUOTE_NONNUMERIC if name in QUOTED else csv.QUOTE_MINIMAL
                end = "\r\n" if name == TRANSLATION else "\n"
                writer = csv.writer(opened, quoting=quoting, lineterminator=end)
                writer.writerow(header)
                if name == "geolocation" and geolocation is not None:
                    rows = itertools.islice(itertools.cycle(rows.fetchall()), geolocation)
                for row in rows:
                    if not (name == TRANSLATION and row[0] in UNTRANSLATED):
                        writer.writerow(
                            [
                                value.replace("\n", "\r\n") if isinstance(value, str) else value
                                for value in row
                            ]
                        )


if __name__ == "__main__":
    export_olist(
        Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None
    )
