"""Public graders of answers, tried where they stand: which wrong answers they pay, and which right
ones they refuse.

    python benchmarks/graders.py                  # every grader whose package is installed
    python benchmarks/graders.py --only verl      # graders whose name has this in it
    python benchmarks/graders.py --defects        # the confirmed defects, each run again from its three lines

The packages are installed by name, best into an environment of their own (math-verify,
reasoning-gym, inspect-ai, rouge-score, sacrebleu, jsonschema, autoevals, trl, verl, lm-eval,
deepeval). None is installed or changed here. Cases, contracts and the rule by which labels are
decided are in graders.yaml. Intervals are Wilson's (95 %).
"""

import argparse
import asyncio
import contextlib
import importlib.metadata
import io
import json
import logging
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from plumbline.evaluation.statistics import rate_interval
from plumbline.tasks.cases import HOSTILE

TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
HALF = 0.5
"""A reward over this is paid: half of what every grader here pays for a perfect answer."""
ENTRIES = 5
"""Questions of a generated dataset."""

HANGS = "1e999999"
"""SymPy spends over half a minute on it where no signal stops it: hostile texts with it are not
tried on datasets."""
SECONDS = 5.0
"""Processor time of a verdict, after which it is stopped and counts as raised."""

Grade = Callable[[str, str], Any]
"""The gold answer and the text; what the grader says of it: a number, or None where it gives no
verdict."""


@dataclass(frozen=True)
class Case:
    """A text with its label."""

    kind: str
    gold: str
    text: str
    right: bool
    counts: bool
    """Whether the grader's contract speaks of it; else it is contested."""


@dataclass
class Outcome:
    """What a grader said of its cases."""

    verdicts: list[tuple[Case, float]] = field(default_factory=list)
    raised: list[tuple[Case, str]] = field(default_factory=list)
    none: list[Case] = field(default_factory=list)

    def flags(self, right: bool, counts: bool = True) -> list[bool]:
        """Of right texts whether they were refused, of wrong ones whether they were paid."""
        said = [(case, paid(score)) for case, score in self.verdicts] + [
            (case, False) for case, _ in self.raised
        ]
        return [
            (not yes if right else yes)
            for case, yes in said
            if case.right == right and case.counts == counts
        ]

    def defects(self) -> dict[tuple[str, str], Case]:
        """The shortest text of each class that was judged against the contract."""
        wrong = [("paid", case) for case, score in self.verdicts if not case.right and paid(score)]
        wrong += [
            ("refused", case) for case, score in self.verdicts if case.right and not paid(score)
        ]
        wrong += [("raised", case) for case, _ in self.raised]
        found: dict[tuple[str, str], Case] = {}
        for what, case in sorted(wrong, key=lambda pair: len(pair[1].text)):
            if case.counts:
                found.setdefault((what, case.kind), case)
        return found


def paid(score: float) -> bool:
    """NaN is not."""
    return score > HALF


# -- cases -----------------------------------------------------------------------------------------


def in_form(form: str, text: str) -> str:
    """A text in which «72» stands for 72 in the grader's form; one without is put into the form as
    a whole."""
    if "«" not in text:
        return form.format(text)
    return re.sub("«(.*?)»", lambda match: form.format(match[1]), text)


def cases(grader: dict[str, Any]) -> Iterator[Case]:
    """Those of the table, and the hostile texts of the audit with one gold answer."""
    judges = not grader.get("similarity", False)
    promises, documents = {"", *grader.get("promises", [])}, grader.get("documents", [])
    gold = ""
    for kind, group in TABLE[grader["of"]].items():
        counts = judges and (group["asks"] in promises if group["right"] else kind not in documents)
        for gold, text in group["texts"]:
            yield Case(kind, gold, in_form(grader["form"], text), group["right"], counts)
    yield from (Case("hostile text", gold, text, False, judges) for text in HOSTILE)


def gym(grader: dict[str, Any]) -> tuple[Grade, list[Case]]:
    """A generated dataset of reasoning-gym: its scorer, and cases on its questions; `gold` is a
    question's place."""
    import reasoning_gym

    data = reasoning_gym.create_dataset(grader["name"].split()[1], size=ENTRIES, seed=0)
    entries = [data[place] for place in range(ENTRIES)]
    judges, promises = not grader.get("similarity", False), {"", *grader.get("promises", [])}
    made = []
    for place, entry in enumerate(entries):
        gold, other = entry["answer"], entries[place - 1]["answer"]
        right = {
            ("plain", ""): gold,
            ("blanks", "blanks"): f" {gold}\n",
            ("full stop", "full stop"): f"{gold}.",
        }
        right["prose", "prose"] = f"The answer is {gold}"
        wrong = {"no answer": "", "NaN": "nan", "infinity": "inf", "negated": f"not {gold}"}
        if numbers(gold) != numbers(other):
            wrong |= {"the answer to another question": other, "two answers": f"{gold} or {other}"}
        wrong |= {
            f"cheat {form}": text
            for form in grader.get("cheats", [])
            if numbers(text := cheat(form, entry["metadata"])) != numbers(gold) or "S.One" in text
        }
        made += [
            Case(kind, str(place), text, True, judges and asks in promises)
            for (kind, asks), text in right.items()
        ]
        made += [Case(kind, str(place), text, False, judges) for kind, text in wrong.items()]
    made += [
        Case("hostile text", "0", text, False, judges) for text in HOSTILE if HANGS not in text
    ]
    return lambda gold, text: data.score_answer(text, entries[int(gold)]), made


def numbers(text: str) -> list[str]:
    """The digits of a text, sorted: what two expressions that use the same numbers have in
    common."""
    return sorted(re.findall(r"\d+", text))


def cheat(form: str, metadata: dict[str, Any]) -> str:
    """A cheat's text for a question with these numbers."""
    ones = "+".join(["S.One"] * int(metadata.get("target", 0)))
    return form.format(sum="+".join(map(str, metadata.get("numbers", []))), ones=ones)


# -- graders: each function imports one and returns it ---------------------------------------------


def trl(name: str) -> Grade:
    from trl import rewards

    function = getattr(rewards, name)
    return lambda gold, text: function([[{"role": "assistant", "content": text}]], solution=[gold])[
        0
    ]


def math_verify() -> Grade:
    from math_verify import parse, verify

    return lambda gold, text: verify(parse(gold), parse(text))


def verl(module: str, **options: Any) -> Grade:
    function = importlib.import_module(f"verl.utils.reward_score.{module}").compute_score

    def grade(gold: str, text: str) -> Any:
        said = function(text, gold, **options)
        return said["score"] if isinstance(said, dict) else said

    return grade


def verl_qa(name: str) -> Grade:
    function = getattr(
        importlib.import_module("verl.utils.reward_score.search_r1_like_qa_em"), name
    )
    return lambda gold, text: function(text, {"target": [gold]})


def inspect(name: str, **options: Any) -> Grade:
    from inspect_ai import scorer
    from inspect_ai.model import ModelOutput
    from inspect_ai.solver import TaskState

    score = getattr(scorer, name)(**options)

    def grade(gold: str, text: str) -> float:
        output = ModelOutput.from_content("none", text)
        state = TaskState(model="none", sample_id=0, epoch=0, input="", messages=[], output=output)  # type: ignore[arg-type]
        value = asyncio.run(score(state, scorer.Target(gold))).value
        return {scorer.CORRECT: 1.0, scorer.INCORRECT: 0.0}.get(value, value)

    return grade


def lm_eval(name: str) -> Grade:
    """The filter and the metric as lm-eval's own task gsm8k configures them."""
    import lm_eval.tasks
    from lm_eval.api.metrics import exact_match_hf_evaluate
    from lm_eval.filters.extraction import RegexFilter

    recipe = yaml.safe_load(
        (Path(lm_eval.tasks.__file__).parent / "gsm8k" / "gsm8k.yaml").read_text()
    )
    (steps,) = [one["filter"] for one in recipe["filter_list"] if one["name"] == name]
    extract = RegexFilter(**{key: value for key, value in steps[0].items() if key != "function"})
    (metric,) = recipe["metric_list"]
    options = {key: value for key, value in metric.items() if key.startswith(("ignore", "regexes"))}

    def grade(gold: str, text: str) -> float:
        (((answer),),) = extract.apply([[text]], [{}])
        return float(
            exact_match_hf_evaluate(predictions=[answer], references=[gold], **options)[
                "exact_match"
            ]
        )

    return grade


def deepeval(name: str) -> Grade:
    from deepeval.scorer.scorer import Scorer

    return lambda gold, text: getattr(Scorer, name)(gold, text)


def autoevals(module: str, name: str) -> Grade:
    scorer = getattr(importlib.import_module(f"autoevals.{module}"), name)()
    return lambda gold, text: scorer.eval(output=text, expected=gold).score


def jsonschema_valid() -> Grade:
    from jsonschema import Draft202012Validator

    score = {"type": "number", "minimum": 0, "maximum": 1}
    fields = {"name": {"type": "string"}, "score": score, "n": {"type": "integer", "minimum": 0}}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    validator = Draft202012Validator(schema)

    def grade(gold: str, text: str) -> bool:
        try:
            return validator.is_valid(json.loads(text))
        except ValueError:
            return False

    return grade


def rouge() -> Grade:
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"])
    return lambda gold, text: scorer.score(gold, text)["rougeL"].fmeasure


def chrf() -> Grade:
    import sacrebleu

    return lambda gold, text: sacrebleu.sentence_chrf(text, [gold]).score / 100


CALLS: dict[str, Callable[[], Grade]] = {
    "trl_accuracy": lambda: trl("accuracy_reward"),
    "trl_reasoning": lambda: trl("reasoning_accuracy_reward"),
    "trl_think": lambda: trl("think_format_reward"),
    "math_verify": math_verify,
    "verl_gsm8k": lambda: verl("gsm8k"),
    "verl_gsm8k_flexible": lambda: verl("gsm8k", method="flexible"),
    "verl_math": lambda: verl("math_reward"),
    "verl_dapo": lambda: verl("math_dapo"),
    "verl_em": lambda: verl_qa("compute_score"),
    "verl_subem": lambda: verl_qa("compute_score_subem"),
    "inspect_match_numeric": lambda: inspect("match", numeric=True),
    "inspect_match": lambda: inspect("match"),
    "inspect_includes": lambda: inspect("includes"),
    "inspect_answer": lambda: inspect("answer", pattern="line"),
    "inspect_exact": lambda: inspect("exact"),
    "inspect_f1": lambda: inspect("f1"),
    "lm_eval_strict": lambda: lm_eval("strict-match"),
    "lm_eval_flexible": lambda: lm_eval("flexible-extract"),
    "deepeval_quasi": lambda: deepeval("quasi_exact_match_score"),
    "deepeval_exact": lambda: deepeval("exact_match_score"),
    "autoevals_exact": lambda: autoevals("value", "ExactMatch"),
    "autoevals_levenshtein": lambda: autoevals("string", "Levenshtein"),
    "autoevals_json": lambda: autoevals("json", "JSONDiff"),
    "jsonschema_valid": jsonschema_valid,
    "rouge": rouge,
    "chrf": chrf,
}


# -- a trial ---------------------------------------------------------------------------------------


def installed(package: str) -> str | None:
    """The version, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


class TooSlow(BaseException):
    """A verdict took too long; no grader's `except Exception` takes it for its own."""


def stop(*_: object) -> None:
    raise TooSlow


def trial(grader: dict[str, Any]) -> Outcome:
    """A grader's verdicts on its cases.

    Raises:
        ImportError: its package, or what that needs, is not installed.
    """
    grade, tried = (
        gym(grader) if grader["of"] == "gym" else (CALLS[grader["call"]](), list(cases(grader)))
    )
    outcome = Outcome()
    signal.signal(signal.SIGVTALRM, stop)  # math-verify has SIGALRM
    for case in tried:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            with contextlib.redirect_stdout(io.StringIO()):
                score = grade(case.gold, case.text)
        except (Exception, TooSlow) as error:  # noqa: BLE001 - a grader that raises is a result
            outcome.raised.append((case, type(error).__name__))
            continue
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if score is None:
            outcome.none.append(case)
        else:
            outcome.verdicts.append((case, float(score)))
    return outcome


def rate(flags: Sequence[bool]) -> str:
    """So many of so many, with Wilson's interval."""
    if not flags:
        return "-"
    share = rate_interval(flags)
    return f"{sum(flags)} of {len(flags)} [{share.low:.2f}, {share.high:.2f}]"


def code(text: str) -> str:
    """A text in a cell of a Markdown table."""
    short = text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"
    return f"`{json.dumps(short, ensure_ascii=not short.isprintable())[1:-1]}`".replace("|", "\\|")


def table(outcomes: Sequence[tuple[dict[str, Any], Outcome]]) -> Iterator[str]:
    """Rates of each grader; then the shortest text of each class that was judged against the
    contract."""
    yield (
        "| grader | version | false accepts | false rejects | contested: wrong paid | right "
        "refused | raised |"
    )
    yield "|---|---|---|---|---|---|---|"
    for grader, outcome in outcomes:
        cells = [
            rate(outcome.flags(right, counts))
            for counts in (True, False)
            for right in (False, True)
        ]
        version = f"{grader['package']} {installed(grader['package'])}"
        yield f"| {grader['name']} | {version} | {' | '.join(cells)} | {len(outcome.raised)} |"
    yield "\n| grader | class | what | gold | text |\n|---|---|---|---|---|"
    for grader, outcome in outcomes:
        for (what, kind), case in outcome.defects().items():
            gold = f"question {case.gold}, seed 0" if grader["of"] == "gym" else code(case.gold)
            yield f"| {grader['name']} | {kind} | {what} | {gold} | {code(case.text)} |"


def reproduce(defect: dict[str, Any]) -> tuple[Any, bool]:
    """What the three lines pay now, and whether that is what they paid when the defect was
    found."""
    scope: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(defect["code"], scope)
    return scope["reward"], scope["reward"] == defect["pays"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="NAME")
    parser.add_argument("--defects", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    if arguments.defects:
        gone = 0
        for defect in TABLE["defects"]:
            version = installed(defect["package"])
            if version is None:
                print(f"skipped: {defect['of']}: {defect['package']} is not installed")
                continue
            reward, stands = reproduce(defect)
            gone += not stands
            print(
                f"{'stands' if stands else 'GONE'}: {defect['of']} ({defect['package']} "
                f"{version}): {defect['finds']}"
            )
            print(f"  reward {reward!r}; tracker: {defect['tracker']}")
            print("    " + defect["code"].strip().replace("\n", "\n    "))
        sys.exit(gone > 0)
    outcomes = []
    for grader in TABLE["graders"]:
        if arguments.only not in grader["name"]:
            continue
        begun = time.perf_counter()
        try:
            outcomes.append((grader, trial(grader)))
        except ImportError as error:
            print(f"skipped: {grader['name']}: {error}", file=sys.stderr)
            continue
        print(f"{grader['name']}: {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)
    print("\n".join(table(outcomes)))


if __name__ == "__main__":
    main()
