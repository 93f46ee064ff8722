"""Do two executors give the same? Oracle plans and damaged ones through both; what the server received is compared.

python -m plumbline.tasks.forms.differential --damaged 2000            # browser and direct
python -m plumbline.tasks.forms.differential --executor in-page        # without navigation
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from plumbline.records import Failure
from plumbline.seeds import generator
from plumbline.tasks.forms.build import values_of
from plumbline.tasks.forms.damage import damaged
from plumbline.tasks.forms.executors.executor import Case, Execution, Executor
from plumbline.tasks.forms.plans.actions import Plan
from plumbline.tasks.forms.plans.elements import elements_of
from plumbline.tasks.forms.plans.oracle import plan_for
from plumbline.tasks.forms.task import FormsTask, open_executor, open_forms

NOISE = {"labels": 0.3, "stars": 0.5, "prefilled": 0.3}


@dataclass(frozen=True, slots=True)
class Trial:
    """A plan and where it is carried out."""

    name: str
    case: Case
    plan: Plan


@dataclass(frozen=True, slots=True)
class Difference:
    """Two executors that came to different submissions, or one that broke down."""

    trial: Trial
    first: Execution | Failure
    second: Execution | Failure


def oracle_trials(task: FormsTask) -> Iterator[Trial]:
    """The oracle's plan for every example."""
    for split in task.splits:
        for example in task.examples(split):
            case = task.case_of(example)
            plan = plan_for(case.view, values_of(example.reference))
            yield Trial(f"{split}/{example.id}", case, Plan(tuple(plan)))


def damaged_trials(task: FormsTask, count: int, seed: int = 0) -> Iterator[Trial]:
    """So many damaged plans, over examples drawn anew for each."""
    examples = [example for split in task.splits for example in task.examples(split)]
    for number in range(count):
        rng = generator(seed, "damaged-plan", number)
        example = examples[int(rng.integers(len(examples)))]
        case = task.case_of(example)
        actions = plan_for(case.view, values_of(example.reference))
        form = case.view.form
        plan = damaged(actions, elements_of(form), form, rng)
        yield Trial(f"damaged-{number}/{example.id}", case, Plan(plan))


def compare(first: Executor, second: Executor, trials: Iterable[Trial]) -> Iterator[Difference | None]:
    """For each trial, None where both give the same submissions: every one, in order, with its answer."""
    for trial in trials:
        (one,), (other,) = first.run(trial.case, [trial.plan]), second.run(trial.case, [trial.plan])
        alike = isinstance(one, Execution) and isinstance(other, Execution) and one.receipts == other.receipts
        yield None if alike else Difference(trial, one, other)


def say(line: str = "") -> None:
    """A line on standard output."""
    sys.stdout.write(line + "\n")


def main() -> None:
    """The command; exits with 1 where more than one plan in a hundred differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executor", choices=("browser", "in-page"), default="browser")
    parser.add_argument("--damaged", type=int, default=2000)
    parser.add_argument("--oracle", type=int, default=None, help="only so many oracle plans")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=5, help="differences to print")
    options = parser.parse_args()
    task = open_forms({"noise": NOISE}, Path(), lambda *_: None)
    direct, browser = task.executor, open_executor(options.executor)
    worst = 0.0
    try:
        for kind, trials in (
            ("oracle", list(oracle_trials(task))[: options.oracle]),
            ("damaged", list(damaged_trials(task, options.damaged, options.seed))),
        ):
            found: list[Difference] = []
            for number, difference in enumerate(compare(direct, browser, trials), 1):
                if difference is not None:
                    found.append(difference)
                    if len(found) <= options.show:
                        _print(difference)
                if number % 100 == 0:
                    sys.stderr.write(f"\r{kind} {number} of {len(trials)}, {len(found)} differ")
            sys.stderr.write("\r")
            say(f"{kind}: {len(found)} of {len(trials)} plans differ between direct and {options.executor}")
            worst = max(worst, len(found) / max(len(trials), 1))
    finally:
        browser.close()
    sys.exit(worst > 0.01)


def _print(difference: Difference) -> None:
    say(difference.trial.name)
    for action in difference.trial.plan.actions:
        say(f"    {action}")
    for name, result in (("direct", difference.first), ("browser", difference.second)):
        if isinstance(result, Execution):
            refused = [attempt for attempt in result.attempts if attempt.status != "ok"]
            say(f"  {name}: {refused}")
            for receipt in result.receipts:
                say(f"      {receipt}")
        else:
            say(f"  {name}: {result}")


if __name__ == "__main__":
    main()
