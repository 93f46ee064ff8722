"""A task with nothing wrong, and the same with one planted fault."""

import itertools
import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from plumbline.records import Example, Headline, Outcome, Score
from plumbline.tasks.baselines import blank, constant, shuffled_gold
from plumbline.tasks.rubric import Part, Rubric
from plumbline.tasks.task import Task
from plumbline.tasks.text.lenient_json import read_json
from plumbline.tasks.text.numbers import read_number, without_accents

KINDS = (
    *(
        "frete",
        "prazo",
        "troca",
        "embalagem",
        "defeito",
        "cobrança",
        "garantia",
        "elogio",
        "atraso",
        "tamanho",
        "cor",
    ),
)
NOTE, KIND = Part("nota", 1, "the number"), Part("tipo", 1, "the word")
WEIGHTS = {"dead": 0.5, "silent": 0.5, "constant": 0.5, "shape": 3.0, "shape-fatal": 30.0}


class FaultyTask(Task):
    """Two values out of a text, in JSON; `fault` names what is wrong."""

    name = "faulty"
    splits = ("train", "val", "test")
    form = ()
    headline = Headline(limits={"constant": 0.3})

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.calls = itertools.count()
        more = {
            "dead": "tom",
            "constant": "tom",
            "silent": "tom",
            "shape": "chaves",
            "shape-fatal": "chaves",
        }
        parts = [
            NOTE,
            KIND,
            *([Part(more[fault], WEIGHTS[fault], "the fault")] if fault in more else []),
        ]
        if fault == "contradiction":
            parts += [Part("longo", 0.5, "much"), Part("curto", 0.5, "little")]
        self.weighed = Rubric("faulty", 1, tuple(parts))

    @property
    def rubric(self) -> str:
        return self.weighed.identity

    @property
    def judges(self) -> int:
        return 2 if self.fault == "main thread only" else 0

    @property
    def baselines(self) -> Mapping[str, Any]:
        return {"blank": blank, "constant": constant, "shuffled-gold": shuffled_gold}

    def examples(self, split: str) -> Sequence[Example]:
        start = 1000 * self.splits.index(split)
        return [self._example(start + number) for number in range(40)]

    def _example(self, number: int) -> Example:
        note, kind = (number * 7 % 8) / 8 + 0.125, KINDS[number * 5 % len(KINDS)]
        gold = (
            None
            if self.fault == "no gold"
            else json.dumps({"nota": note, "tipo": kind}, ensure_ascii=False)
        )
        return Example(
            id=f"review-{number}",
            messages=[
                {
                    "role": "user",
                    "content": f"Qual é a nota da avaliação nº {number}, e de que tipo é?",
                }
            ],
            gold=gold,
            reference={"nota": note, "tipo": kind},
        )

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        reference = example.reference
        if self.fault == "raises":
            json.loads(completion if completion.startswith("}") else "{}")
        if self.fault == "hangs" and completion.startswith('""'):
            time.sleep(5)
        if (
            self.fault == "main thread only"
            and threading.current_thread() is not threading.main_thread()
        ):
            raise RuntimeError("signals need the main thread")
        if self.fault == "slow" and completion.startswith("{{"):
            time.sleep(0.2)
        if self.fault == "decimal comma" and re.search(r"\d,\d", completion):
            completion = ""
        read = read_json(completion)
        value = read.value if isinstance(read.value, dict) else {}
        values = {
            "nota": float(_number(value.get("nota")) == reference["nota"]),
            "tipo": float(_same(value.get("tipo"), reference["tipo"])),
        }
        readings = {}
        match self.fault:
            case "dead":
                values["tom"] = 0.0
            case "silent":
                values["tom"] = None
            case "constant":
                values["tom"] = 1.0
            case "shape" | "shape-fatal":
                values["chaves"] = float({"nota", "tipo"} <= value.keys())
            case "contradiction":
                values["longo"] = min(1.0, len(completion) / 70)
                values["curto"] = 1 - values["longo"]
            case "contains":
                text = completion.replace(",", ".")
                values = {
                    "nota": float(str(reference["nota"]) in text),
                    "tipo": float(_in(reference["tipo"], text)),
                }
            case "floor":
                values["nota"] = 0.2 + 0.8 * values["nota"]
            case "hostile":
                values["nota"] = values["nota"] if value else 0.6
            case "strict pays more":
                total = self.weighed.total(values)
                readings = {"strict": min(1.0, total + 0.1), "lenient": total}
            case "ragged gold":
                readings = {"strict": 0.0, "lenient": self.weighed.total(values)}
            case "brief":
                values["nota"] *= max(0.0, 1 - len(completion) / 400)
            case "all dice":
                values["nota"] = next(self.calls) % 101 / 100
        score = self.weighed.score(values, readings)
        if self.fault == "oracle":
            score = Score(total=0.9 * score.total, parts=values)
        if self.fault == "wrong gold" and example.id == "review-7":
            score = Score(total=score.total / 2, parts={**values, "tipo": 0.0})
        if self.fault == "dice" and score.total < 1:
            score = Score(total=score.total + next(self.calls) % 7 / 1000, parts=values)
        return Outcome(how="json"), score

    def demonstration(self, example: Example, seed: int) -> str:
        return example.gold


def _number(given: object) -> object:
    read = read_number(given, quoted=True) if isinstance(given, str) else None
    return given if read is None else read.value


def _same(given: object, wanted: str) -> bool:
    return isinstance(given, str) and without_accents(given.lower()) == without_accents(wanted)


def _in(wanted: str, text: str) -> bool:
    return (
        without_accents(wanted) in without_accents(text.lower()) or json.dumps(wanted)[1:-1] in text
    )


def open_faulty(options: Mapping[str, Any], folder: object, progress: object) -> FaultyTask:
    return FaultyTask(options.get("fault", ""))
