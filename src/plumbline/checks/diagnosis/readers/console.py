"""What a trainer printed, amid everything else that it printed: five kinds, of which a log has one.

    {'loss': 0.1, 'grad_norm': '2.4', ...}      transformers, TRL, ms-swift, OpenRLHF; progress bars give the steps
    step:3 - critic/score/mean:0.25 - ...       verl
    Step 3/500 | Loss: 0.1 | Reward: 0.25       prime-rl, and many scripts; also `iter 3: loss 2.1, lr 1e-4`
    │ loss │ 0.1 │  and  • Loss: 0.1            metrics below the step: NeMo-RL, tinker, torchforge, AReaL
    12%|█ | 3/25 [00:09<01:06, loss=0.1]         a bar of tqdm with its metrics: old OpenRLHF, trlx, torchtune, scripts

Numbers are matched as text and nothing is evaluated.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.readers.logs import config_beside, read_log
from plumbline.checks.diagnosis.readers.rows import (
    AT,
    as_number,
    find_series_name,
    has_mark,
    is_step,
    mark_evaluation,
    refuse_many,
    split_at_restarts,
    take_only,
)
from plumbline.storage import decode_text, read_bytes

_SUFFIXES = frozenset({".log", ".out", ".txt", ".err", ".stdout", ".stderr"})
_NUMBER = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,4})?|\.\d{1,30}|nan|inf(?:inity)?)"
_VALUE = rf"(?:np\.float\d\d\(|tensor\()?({_NUMBER})(?![\w.])"
_WRAPPED = re.compile(r"(?<! ) *│\n│ {6,}(?=\S)")
"""Between the lines of one cell of a panel (rich's), as narrow terminals have it."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_WORKER = re.compile(r"^\([^()\n]{1,80} pid=\d{1,12}[^()\n]{0,60}\) ", re.MULTILINE)
"""Of Ray, at the front of a line."""
_DICT = re.compile(r"\{['\"][^{}]{3,20000}\}")
_ITEM = re.compile(
    rf"['\"]([^'\"]{{1,200}})['\"]:\s*['\"]?(?:(\d{{1,12}}/\d{{1,12}})|{_VALUE})", re.IGNORECASE
)
_NUMBERED = re.compile(r"\b(?:step|rollout)[ \t]{1,3}(\d{1,12}):[ \t]{0,3}$", re.IGNORECASE)
"""Of slime and OpenRLHF, before a dictionary."""
_BAR = re.compile(r"(?:^|[\s\]])\d{1,3}%\|[^|]{0,200}\|\s*(\d{1,12})/(\d{1,12})\s*\[")
"""Of tqdm, without a description: training and evaluation; `Map: 5%|` is neither."""
_VERL = re.compile(r"(?:^|\s)step:(\d{1,12}) - (\S.*)")
_VERL_ITEM = re.compile(rf"^([^\s:]\S*?)(?:\(([-+.\deE]+)\))?:{_VALUE}", re.IGNORECASE)
_STEP = re.compile(
    r"(?:\b|_)(?:epoch \d{1,9}/\d{1,9} step \d{1,12}/\d{1,12} train )?"
    r"(?:step|iter|iteration|update)s?\b\s{0,3}[:=#]?\s{0,3}\[?(\d{1,12})(?:\s{0,3}/\s{0,3}(\d{1,12}))?"
    r"|\bepoch\s{0,3}:?\s{0,3}\[?\d{1,9}/\d{1,9}\]?\s{0,3}\((\d{1,12})/(\d{1,12})\)",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"\s{0,8}\[\s{0,3}(\d{1,12})\s{0,3}/\s{0,3}(\d{1,12})\s{0,3}\]")
"""`[0001/120] loss=...`."""
_END = 4000
_RAISED = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].{0,500}\n){1,200}(\w.{0,1000})", re.MULTILINE
)
_METERED = re.compile(r"\d{1,3}%\|[^|]{0,200}\|\s*(\d{1,12})/(\d{1,12})\s*\[([^\]]{0,2000})")
_WORD = r"[A-Za-z][\w./-]{0,60}"
_PAIR = re.compile(
    rf"(?<![\w./-])({_WORD}(?: {_WORD}){{0,2}})[\t :=]{{1,6}}{_VALUE}", re.IGNORECASE
)
_CELL = re.compile(
    rf"\W{{0,20}}[│|┃]\s{{0,80}}([A-Za-z][^│|┃]{{0,90}})[│|┃]\s{{0,80}}{_VALUE}\s{{0,80}}(?=[│|┃])",
    re.IGNORECASE,
)
_SECTION = re.compile(r"\W{0,20}[│|┃]\s{0,80}([A-Za-z]\w{0,40}/)\s{0,80}[│|┃]\s{0,80}[│|┃]")
"""Of Stable-Baselines3: `| rollout/ |  |`, and the names below it without that."""
_BULLET = re.compile(
    rf"(?:\W{{0,20}}[•*-]\s{{1,4}}|\s{{1,8}})({_WORD}(?: {_WORD}){{0,4}})\s?[:=]\s{{1,9}}{_VALUE}\s*$",
    re.IGNORECASE,
)
_ANCHORS = frozenset({"loss", "reward", "reward_std", "eval/loss", "eval/reward"})
"""A line that has none of these is a configuration or a sample, and no logged step."""


_Row = dict[str, str]
_Line = tuple[_Row, tuple[int, int] | None]
"""A row, and the place and the length of the last progress bar before it."""


def find(path: Path) -> Path | None:
    """A text with lines of one kind; in a folder the only file that has some.

    Raises:
        DataError: there are several; it lists them.
    """
    if path.is_file():
        return path if path.suffix.lower() in _SUFFIXES and parse_lines(_read_text(path)) else None
    files = [one for one in path.iterdir() if one.suffix.lower() in _SUFFIXES and one.is_file()]
    return take_only([one for one in files if parse_lines(_read_text(one))], path, "console logs")


def read(path: Path) -> list[History]:
    """See `Reader.read`: a stage a run, where the file holds several; one of a few rows before
    another is left out."""
    text = _read_text(path)
    found = read_lines(
        parse_lines(text), path, config=config_beside(path.parent), folder=path.parent
    )
    raised = _RAISED.findall(text[-_END:])
    ended = [f"the log ends with an error of Python: {raised[-1][:200]}"] if raised else []
    return [*found[:-1], replace(found[-1], remarks=(*ended, *found[-1].remarks))]


def read_lines(
    lines: list[_Line], path: Path, *, config: Mapping[str, Any], folder: Path | None
) -> list[History]:
    """The stages of `parse_lines` a text; see `read_log`."""
    runs = split_at_restarts(_drop_repeats(lines), _line_place)
    refuse_many(len(runs), path)
    return [
        read_log("console", path, _number_steps(run), folder=folder, config=config) for run in runs
    ]


def _read_text(path: Path) -> str:
    return decode_text(read_bytes(path), errors="replace")


def parse_lines(text: str) -> list[_Line]:
    """The rows of the form that most lines have."""
    with suppress(ValueError, RecursionError):
        if isinstance(json.loads(text.lstrip().partition("\n")[0]), dict | list):
            return []  # JSON lines, which the tables' reader knows more of
    plain = _WRAPPED.sub(" ", _WORKER.sub("", _COLOUR.sub("", text).replace("\r", "\n")))
    lines = plain.split("\n")
    found, verl = list(_parse_dicts(lines)), list(_parse_verl(lines))
    if len(verl) > len(found) and any(map(_is_logged, verl)):
        found = [(row, None) for row in verl]
    for kind in (_parse_pairs, _parse_blocks, _parse_bars):
        found = found or [(row, None) for row in kind(lines) if _is_logged(row)]
    return found


def _parse_dicts(lines: Sequence[str]) -> Iterator[_Line]:
    bar, begun = None, list[str]()
    for line in lines:
        if "%|" in line and (bars := _BAR.findall(line)):
            bar = (int(bars[-1][0]), int(bars[-1][1]))
        # One may be cut where the terminal ended, or after a comma.
        if begun and "{" not in line:
            begun.append(line)
            if "}" not in line:
                continue  # it is read where it ends, and not at each line before
        text, begun = line if "{" in line else "".join(begun), []
        if text.rfind("{") > text.rfind("}"):
            begun = [text[text.rfind("{") :]]
        for held in _DICT.finditer(text):
            row = mark_evaluation({key: number or of for key, of, number in _ITEM.findall(held[0])})
            if (
                numbered := _NUMBERED.search(text[max(0, held.start() - 40) : held.start()])
            ) and not any(map(is_step, row)):
                row["step"] = numbered[1]
            # One name alone, as {'format': 1.0, 'reward': 1.0}, is what a reward function says of
            # one answer.
            if _is_logged(row) and (
                "loss" in row or sum(find_series_name(key) is not None for key in row) > 1
            ):
                yield row, bar


def _parse_verl(lines: Sequence[str]) -> Iterator[_Row]:
    for line in lines:
        if "step:" in line and (found := _VERL.search(line)):
            row = {"step": found[1]}
            for item in found[2].split(" - "):
                if pair := _VERL_ITEM.match(item.strip()):
                    scaled = pair[2] and as_number(pair[2]) is not None
                    with suppress(ArithmeticError):  # beyond every exponent
                        row[pair[1]] = (
                            str(Decimal(pair[3]) * Decimal(pair[2])) if scaled else pair[3]
                        )
            if len(row) > 1:
                yield row


def _find_pairs(text: str) -> _Row:
    """The metrics of a line; nothing where it is no logged step."""
    found: _Row = dict(_PAIR.findall(text))
    # mlx-lm logs each part of the reward as `NAME mean X, NAME std Y`.
    parts = {
        key.removesuffix(" std")
        for key in found
        if key.endswith(" std") and find_series_name(key) is None
    }
    parts = {
        part
        for part in parts
        if f"{part} mean" in found and find_series_name(f"{part} mean") is None
    }
    of = {f"{part} mean": f"rewards/{part}" for part in parts} | {
        f"{part} std": f"rewards_{part}_std" for part in parts
    }
    named = {of.get(key, key): value for key, value in found.items()}
    pairs = {
        key: value
        for key, value in named.items()
        if find_series_name(key) is not None or has_mark(key, "rl")
    }
    return pairs if _is_logged(pairs) else {}


def _parse_pairs(lines: Sequence[str]) -> Iterator[_Row]:
    row: _Row = {}
    since = 0
    for line in lines:
        since += 1
        if len(line) > 2000 or "%|" in line:
            continue
        if not (step := _STEP.search(line) or _COUNTED.match(line)):
            # DeepSpeed-Chat prints the reward below the line of the step.
            pair = _PAIR.match(line)
            if (
                pair
                and row
                and since <= 3
                and find_series_name(pair[1]) == "reward"
                and pair[1] not in row
            ):
                row[pair[1]] = pair[2]
            continue
        if found := _find_pairs(line[: step.start()] + " | " + line[step.end() :]):
            yield row
            row, since = found | {"step": step[1] or step[3]}, 0
            if total := step[2] or step[4]:
                row["total_steps"] = total
    yield row


def _parse_bars(lines: Sequence[str]) -> Iterator[_Row]:
    """The last state of each step of a bar; an epoch has a bar of its own, and steps count over all
    of them."""
    row: _Row = {}
    before, last = 0, 0
    for line in lines:
        if len(line) > 4000 or "%|" not in line or not (bar := _METERED.search(line)):
            continue
        if found := _find_pairs(f"{line[: bar.start()]} | {bar[3]}"):
            step = int(bar[1])
            if step != last:
                yield row
            if step < last:
                before += last
            row, last = {**found, "step": str(before + step)}, step
    yield row


def _parse_blocks(lines: Sequence[str]) -> Iterator[_Row]:
    row: _Row = {}
    step: str | None = None
    section = ""
    for line in lines:
        if len(line) > 500:
            continue
        if found := _SECTION.match(line):
            section = found[1]
        elif found := _CELL.match(line) or _BULLET.match(line):
            for cell in _CELL.finditer(line) if found.re is _CELL else [found]:
                name = cell[1].strip()
                name = (
                    f"{section}{name}" if find_series_name(f"{section}{name}") is not None else name
                )
                if is_step(name):
                    step = cell[2]
                elif find_series_name(name) is None:
                    continue
                if name in row:  # the next block
                    yield row
                    row = {}
                row[name] = cell[2]
                if step is not None:
                    row["step"] = step
        elif header := _STEP.search(line):
            yield row
            row, step = {}, header[1] or header[3]
    yield row


def _is_logged(row: _Row) -> bool:
    names = {find_series_name(key) for key in row}
    return bool(names & _ANCHORS) or any(
        name is not None and name.startswith(("reward/", "eval/")) for name in names
    )


def _drop_repeats(lines: list[_Line]) -> list[_Line]:
    """Rows that each of several processes printed, once; equal rows of a run that stands still are
    all kept."""
    groups = [list(group) for _, group in groupby(lines, key=lambda line: line[0])]
    several = len(groups) > 2 and min(len(group) for group in groups) > 1
    return [group[0] for group in groups] if several else lines


def _line_place(line: _Line) -> float | None:
    """The step of a row of training, or its epoch."""
    row, _ = line
    return (
        next((as_number(row[key]) for key in ("step", "epoch") if key in row), None)
        if _is_training(row)
        else None
    )


def _is_training(row: _Row) -> bool:
    """Whether it is of training, and neither an evaluation nor the summary at the end."""
    return "train_runtime" not in row and any(
        not name.startswith("eval/")
        for key in row
        if (name := find_series_name(key)) is not None and name != "epoch"
    )


def _number_steps(run: Sequence[_Line]) -> list[_Row]:
    """Rows with their steps, which transformers does not print: they are equally far apart.

    How far the progress bar tells, where it was written to the same place as it went: the distance
    that most rows agree on. Where it lags (what is printed is held back in a file) the summary at
    the end tells the number of all steps.
    """
    logged = [row for row, _ in run]
    at = [number for number, row in enumerate(logged) if _is_training(row)]
    if not at or any("step" in row or "global_step/max_steps" in row for row in logged):
        return logged
    places = {number: bar for number in at if (bar := run[number][1]) is not None}
    total = Counter(of for _, of in places.values()).most_common(1)[0][0] if places else 0
    pairs = [(places[a][0], places[b][0]) for a, b in pairwise(at) if a in places and b in places]
    gap, often = next(iter(Counter(b - a for a, b in pairs if b > a).most_common(1)), (1, 0))
    # The summary of a run that ended.
    time, speed = (
        as_number(logged[-1].get(f"train_{name}", "")) for name in ("runtime", "steps_per_second")
    )
    done = round(time * speed) if time and speed and 0 < time * speed < 1e9 else 0
    every, offset, known = 1, 0, True
    if len(at) > 1 and often * 2 > len(at) - 1:
        start = places[at[0]][0] - gap if at[0] in places else 0
        every, offset = gap, gap * round(start / gap)
    elif done:
        total = total or done
        every = max(1, round(total / len(at)))
    else:
        known = False
    back = _rows_back(run, at, {number: bar for number, bar in places.items() if bar[1] == total})
    rows, step = [], offset
    for number, row in enumerate(logged):
        step += every * (1 - back[number]) if number in back else 0
        rows.append({**row, "step" if known else AT: str(max(step, offset + every))})
    if known and total >= step:
        rows[-1]["total_steps"] = str(total)
    return rows


def _rows_back(
    run: Sequence[_Line], at: Sequence[int], bars: Mapping[int, tuple[int, int]]
) -> dict[int, int]:
    """How many rows each of some goes back, as one of a run that was resumed: by its bars, or else
    by its epochs."""
    epochs = {number: as_number(run[number][0].get("epoch")) or 0.0 for number in at}
    places = [bars[number][0] if len(bars) == len(at) else epochs[number] for number in at]
    gaps = [b - a for a, b in pairwise(places)]
    forward = [gap for gap in gaps if gap >= 0]
    usual = sum(forward) / max(1, len(forward)) or 1.0
    return dict(
        zip(at, [0, *(round((usual - gap) / usual) if gap < 0 else 0 for gap in gaps)], strict=True)
    )
