"""What the two logs found, tried again.

    python -m experiments.findings                       # the list
    python -m experiments.findings group-size            # one: its rows, its figure and its table
    python -m experiments.findings all --seeds 0,1,2     # all; what is finished is not done again
    python -m experiments.findings schedule --real       # with SmolLM2-135M (`plumbline get smollm2-135m`): hours

The findings are data (findings.yaml); what needs no model is a function in measured.py. Results are
written beside, into results/, and figures into docs/research/findings/; docs/research/findings.md
says what they come to.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import yaml

from experiments.findings import arms
from experiments.findings.show import figure, table
from plumbline.config.overrides import read_yaml
from plumbline.errors import PlumblineError
from plumbline.storage import read_json, write_json, write_text

HERE = Path(__file__).parent
RESULTS, FIGURES = HERE / "results", HERE.parents[1] / "docs" / "research" / "findings"


def main(words: Sequence[str] | None = None) -> None:
    arms.know_divided()
    known = declarations()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"all, or some of {', '.join(known)}")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="of a recipe, for starts and arms alike",
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/findings"), help="where arms are trained"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--figures", type=Path, default=FIGURES)
    parser.add_argument(
        "--real", action="store_true", help="with the real model, of those that say how"
    )
    parser.add_argument(
        "--draw", action="store_true", help="only the figures and tables of stored results"
    )
    options = parser.parse_args(words)
    names = list(known) if options.names == ["all"] else options.names
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"no finding {', '.join(unknown)}; there are {', '.join(known)}")
    if not names:
        print("\n".join(f"{name:18} {one['title']}" for name, one in known.items()))
    seeds = [int(seed) for seed in options.seeds.split(",")]
    over = {
        key: read_yaml(value, key)
        for key, _, value in (item.partition("=") for item in options.set)
    }
    for name in names:
        file = f"{name}-real" if options.real else name
        if not options.draw:
            try:
                found = find(
                    known[name],
                    seeds,
                    options.runs / ("real" if options.real else "small"),
                    over,
                    options.real,
                )
            except PlumblineError as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            write_json(options.results / f"{file}.json", found)
        found = read_json(options.results / f"{file}.json")
        options.figures.mkdir(parents=True, exist_ok=True)
        write_text(options.figures / f"{file}.svg", figure(found))
        print(f"\n## {found['title']} ({found['said']})\n\n{table(found)}", flush=True)


def declarations() -> dict[str, Any]:
    return {name: one for name, one in _file().items() if name != "bases"}


def _file() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((HERE / "findings.yaml").read_text(encoding="utf-8"))
    return values


def find(
    declared: Mapping[str, Any],
    seeds: Sequence[int],
    runs: Path,
    over: Mapping[str, Any],
    real: bool,
) -> dict[str, Any]:
    """The rows of a finding: for each arm and measure one value a seed.

    Raises:
        PlumblineError: an arm could not be run to its end, or the finding has none for the real
            model.
    """
    if real and "real" not in declared:
        raise PlumblineError("it has no arms for the real model", "leave out --real")
    if "measured" in declared:
        from experiments.findings import measured

        return {"title": declared["title"], **getattr(measured, declared["measured"])(seeds)}
    return trained(declared, seeds, runs, over, real)


def trained(
    declared: Mapping[str, Any],
    seeds: Sequence[int],
    runs: Path,
    over: Mapping[str, Any],
    real: bool,
) -> dict[str, Any]:
    from experiments.findings.arms import MEASURES, Base, arm, curve

    base = Base(**_file()["bases"]["real" if real else "small"])
    arms = (declared["real"] if real else declared)["arms"]
    rows: dict[str, dict[str, list[float]]] = {name: {} for name in arms}
    curves: dict[str, dict[str, Any]] = {}
    for seed in seeds:
        for name, keys in arms.items():
            began = time.process_time()
            run = arm(base, keys, seed, runs, over)
            for measure in declared["measures"]:
                label, value = MEASURES[measure]
                rows[name].setdefault(label, []).append(value(run))
            if run.recipe.rl is not None:
                one = curve(run)
                curves.setdefault(name, {"steps": one["steps"], "values": []})["values"].append(
                    one["values"]
                )
            shown = ", ".join(f"{label} {values[-1]:.3f}" for label, values in rows[name].items())
            spent = time.process_time() - began
            print(f"seed {seed}, {name}: {shown} ({spent:.0f} cpu-s)", file=sys.stderr, flush=True)
    found = {
        "title": declared["title"],
        "said": (
            f"means over {len(seeds)} seeds with Student's 95 % interval; changes are paired by "
            "seed"
        ),
        "seeds": list(seeds),
        "reference": next(iter(arms)) if real else declared["reference"],
        "shown": [
            MEASURES[one][0]
            for one in declared["measures"]
            if one not in ("gap", "grad_norm", "reward")
        ],
        "rows": rows,
    }
    return {**found, **({"curves": curves} if declared.get("figure") == "curves" else {})}


if __name__ == "__main__":
    main()
