"""Every causal architecture of the installed transformers, with tiny random weights: it agrees, or
it is refused.

    python benchmarks/architectures.py                    # all not yet in the file; 15 minutes on one core
    python benchmarks/architectures.py lfm2 gemma2        # these, again
    python benchmarks/architectures.py --table            # write docs/research/architectures.md from the file

What is compared is in tests/policies/architectures.py. A family whose tiny model cannot be made from
the sizes there is named as not tried.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tests.policies.architectures import FAMILIES, measure, verdict

RESULTS = Path(__file__).with_name("architectures.jsonl")
PAGE = Path(__file__).parents[1] / "docs" / "research" / "architectures.md"
MARK = "<!-- made by benchmarks/architectures.py -->"
REFUSED = {
    "lora_refused": "LoRA on `all-linear` is refused",
    "merged_refused": "The adapter is not merged into the weights",
}
"""What adapters cannot do, by the key of a row that says why."""
SECONDS = 180
"""Given to one architecture."""


def names() -> list[str]:
    """Every architecture and variant."""
    return sorted({*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *FAMILIES})


def in_a_child(name: str, pipe: Any) -> None:
    """Measure, and send the result."""
    warnings.filterwarnings("ignore")
    root = Path(tempfile.mkdtemp())
    try:
        row = measure(name, root)
    except Exception as error:  # noqa: BLE001 - a defect is a result here
        row = {"crash": f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]}
    finally:
        shutil.rmtree(root, ignore_errors=True)
    pipe.send(row)


def measured(name: str) -> dict[str, Any]:
    """`measure` in a process of its own, which is ended when it takes too long."""
    context = multiprocessing.get_context("fork")  # the imports are done already
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=in_a_child, args=(name, theirs))
    began = time.monotonic()
    child.start()
    theirs.close()
    try:
        row = ours.recv() if ours.poll(SECONDS) else {"crash": f"not done after {SECONDS} s"}
    except EOFError:
        row = {"crash": "its process died"}
    child.kill()
    child.join()
    return {"architecture": name, **row, "seconds": round(time.monotonic() - began, 1)}


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table."""
    result = verdict(row)
    if "sampler" not in row:
        said = row.get("refused") or row.get("crash") or row.get("not_tried", "")
        return [row["architecture"], "", result, *[""] * 5, said.splitlines()[0].replace("|", "/")]
    numbers = [
        f"{row[key]:.0e}" if key in row else ""
        for key in ("sampler", "scorer", "gradient", "reload", "merged")
    ]
    engine = f"{row['decoder']}, {row['scoring']}, {row['head']}"
    notes = [row[key].splitlines()[0] for key in ("lora_refused", "merged_refused") if key in row]
    return [row["architecture"], engine, result, *numbers, "; ".join(notes).replace("|", "/")]


def group(row: dict[str, Any]) -> tuple[str, str]:
    """The result of a row, and how its model is drawn and scored or why it is not: a line of the
    page."""
    result = verdict(row)
    if "sampler" in row:
        return result, f"{row['decoder']}, {row['scoring']}, {row['head']}"
    said = row.get("refused") or row.get("crash") or row.get("not_tried", "")
    if result == "refused":
        reasons = {
            "logits differ": "its logits in a batch differ from its own",
            "it fails here": "a batch fails",
        }
        return result, next(
            (why for part, why in reasons.items() if part in said), "it does not open"
        )
    if result == "not tried":
        large = "sizes of their own" in said
        return (
            result,
            "its parts have sizes of their own" if large else "its tiny config is not valid",
        )
    return result, said.splitlines()[0].replace("|", "/")


def write_table(rows: dict[str, dict[str, Any]]) -> None:
    """Put the table, a line for each `group`, behind the mark of the page; then what adapters
    cannot do."""
    counts = Counter(map(verdict, rows.values()))
    numbers = ("sampler", "scorer", "gradient", "merged")
    groups: dict[tuple[str, str], list[str]] = {}
    for name in sorted(rows):
        groups.setdefault(group(rows[name]), []).append(name)
    head = ["result", "decoder, scoring, head; or why not", "n", *numbers, "architectures"]
    lines = [head, ["---"] * len(head)]
    for (result, how), names_of in sorted(groups.items()):
        values = [[rows[name][key] for name in names_of if key in rows[name]] for key in numbers]
        largest_of = [f"{max(found):.0e}" if found else "" for found in values]
        lines.append([result, how, str(len(names_of)), *largest_of, "; ".join(names_of)])
    said = f"transformers {transformers.__version__}, torch {torch.__version__}: "
    said += ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    without = {
        key: "; ".join(name for name in sorted(rows) if key in rows[name]) for key in REFUSED
    }
    adapters = "\n".join(f"- {REFUSED[key]}: {found}." for key, found in without.items() if found)
    page, _, _ = PAGE.read_text().partition(MARK)
    PAGE.write_text(
        f"{page}{MARK}\n\n{said}. Figures are the largest of a line.\n\n{table}\n\n{adapters}\n"
    )


def main() -> None:
    """Measure what is asked for or not yet in the file; then write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="architectures to measure again")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--table", action="store_true", help="write the table of docs/research/architectures.md"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    found = (
        [json.loads(line) for line in options.results.read_text().splitlines()]
        if options.results.exists()
        else []
    )
    rows = {row["architecture"]: row for row in found}
    for name in options.names or (
        [] if options.table else [name for name in names() if name not in rows]
    ):
        rows[name] = measured(name)
        with options.results.open("a") as file:
            file.write(json.dumps(rows[name]) + "\n")
        print(" | ".join(cells(rows[name])), f"({rows[name]['seconds']} s)", flush=True)
    print(Counter(map(verdict, rows.values())))
    if options.table:
        write_table(rows)


if __name__ == "__main__":
    main()
