"""How the Parquet files beside this were made (`python make_parquet.py`)."""

import datetime
import decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent

pq.write_table(
    pa.Table.from_pylist(
        [
            {
                "data_source": "ours/boats",
                "prompt": [{"role": "user", "content": f"A boat carries {n} people. How many do {n + 2} boats carry?"}],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": str(n * (n + 2))},
                "extra_info": {"split": "train", "index": n, "answer": f"{n} * {n + 2} = {n * (n + 2)}"},
            }
            for n in range(3, 17)
        ]
    ),
    HERE / "verl.parquet",
)

fees = [decimal.Decimal(n) / 4 for n in range(1, 15)]
kinds = {
    "question": [f"What is the fee of parcel {n}?" for n in range(1, 15)],
    "fee": pa.array(fees, pa.decimal128(8, 2)),
    "sent": pa.array([datetime.date(2026, 3, n) for n in range(1, 15)]),
    "stored": pa.array([datetime.datetime(2026, 3, n, 8, 30) for n in range(1, 15)], pa.timestamp("us", tz="UTC")),
    "photo": pa.array([bytes([137, 80, n]) for n in range(14)]),
    "marks": [[n, n + 1] for n in range(14)],
    "size": [{"width": n, "height": 2.5} for n in range(14)],
    "floor": pa.array([None if n == 4 else n for n in range(14)], pa.int64()),
}
pq.write_table(pa.table(kinds), HERE / "kinds.parquet")

pq.write_table(
    pa.table(
        {
            "question": [f"How many floors has house {n}?" for n in range(1, 15)],
            "answer": pa.array([None if n in (3, 7) else n for n in range(1, 15)], pa.int64()),
        }
    ),
    HERE / "nullable.parquet",
)
