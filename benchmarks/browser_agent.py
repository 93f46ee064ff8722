"""A browser agent fills in the suite's forms: browser-use in its own environment, real Chromium,
our model behind it.

    PLUMBLINE_BROWSER_USE_PYTHON=ENV/bin/python python benchmarks/browser_agent.py --out FILE

Every form is served on a loopback port, the model on another (as `plumbline serve` does it), and
the agent is told the form's address and what to enter. A form counts when the server received it
exactly; beside it stands what the direct executor makes of the very same plans. Without --model the
planner is the oracle, which gives the ceiling. Outcomes are lines of JSON; a form that has one
already is not done again, unless the agent broke down.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import uvicorn

from environments.forms.tests.agent.fake_agent import OraclePlanner
from plumbline.evaluation.statistics import mean_interval, rate_interval
from plumbline.records import Example, Message
from plumbline.serve.app import application
from plumbline.serve.backend import AnswerChunk, AnswerRequest, Backend
from plumbline.tasks import silent
from plumbline_browser.chromium import find_chromium
from plumbline_browser.plans.actions import Plan
from plumbline_forms.agent.scene import given_of
from plumbline_forms.agent.served import AgentServed, Planning
from plumbline_forms.build import values_of, write_gold
from plumbline_forms.executors.direct import stub
from plumbline_forms.executors.executor import Execution
from plumbline_forms.plans.oracle import ADDRESS
from plumbline_forms.rubric import expected, mistakes_of, score
from plumbline_forms.site.serve import listen, serve
from plumbline_forms.site.site import submission_of
from plumbline_forms.task import FormsTask, open_forms

VARIABLE = "PLUMBLINE_BROWSER_USE_PYTHON"
DRIVER = Path(__file__).with_name("browser_use_driver.py")
VARIANTS: dict[str, dict[str, Any]] = {
    "thinking": {"agent": {}},
    "no-thinking": {"agent": {"use_thinking": False}},
    "flash": {"agent": {"flash_mode": True}},
    "unforced": {"agent": {}, "llm": {"dont_force_structured_output": True}},
    "told": {
        "agent": {},
        "llm": {"dont_force_structured_output": True, "add_schema_to_system_prompt": True},
    },
}
"""Variants of the agent's output: whether it thinks, and whether it sends its schema, or writes it
into its prompt."""


class Slipping(Backend):
    """An oracle whose first plan for a page is wrong: the page, or the browser, has something to
    say to it."""

    def __init__(self, oracle: OraclePlanner, task: FormsTask, rows: Sequence[Example]) -> None:
        self.oracle, self.name, self.family, self.context = (
            oracle,
            oracle.name,
            oracle.family,
            oracle.context,
        )
        self.wrong = {given_of(row.messages[-1]["content"])[0]: _wrong(task, row) for row in rows}

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """See `Backend`."""
        return self.oracle.prompt_length(messages)

    async def answer(self, asked: AnswerRequest) -> AsyncGenerator[AnswerChunk, None]:
        """See `Backend`."""
        chat = asked.request.messages
        if any(one["role"] == "assistant" for one in chat):
            async for piece in self.oracle.answer(asked):
                yield piece
        else:
            user = next(one["content"] for one in chat if one["role"] == "user")
            yield AnswerChunk(text=self.wrong[given_of(user)[0]], finish="stop")

    async def close(self) -> None:
        """See `Backend`."""
        await self.oracle.close()


def _wrong(task: FormsTask, row: Example) -> str:
    """The gold plan with two dates or numbers the wrong way round, which the server alone sees;
    else with a gap.

    "" where a form has neither.
    """
    view, values = task.view_of(row), values_of(row.reference)
    for rule in view.form.rules:
        first, second = rule.names[0], rule.names[-1]
        if (
            rule.kind == "in_order"
            and values[first]
            and values[second] not in {None, values[first]}
        ):
            swapped = {first: values[second], second: values[first]}
            return write_gold(view, {**values, **swapped}, task.options.plan)
    gap = next(
        (one.name for one in view.form.fields if one.required and values[one.name] is not None),
        None,
    )
    return write_gold(view, {**values, gap: None}, task.options.plan) if gap else ""


class Remembering(Backend):
    """A planner, and the plans that it gave for each request of values."""

    def __init__(self, planner: Backend) -> None:
        self.planner = planner
        self.name, self.family, self.context = planner.name, planner.family, planner.context
        self.plans: dict[str, list[str]] = {}

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """See `Backend`."""
        return self.planner.prompt_length(messages)

    async def answer(self, asked: AnswerRequest) -> AsyncGenerator[AnswerChunk, None]:
        """See `Backend`."""
        text = ""
        async for piece in self.planner.answer(asked):
            text += piece.text
            yield piece
        user = next(one["content"] for one in asked.request.messages if one["role"] == "user")
        self.plans.setdefault(given_of(user)[0], []).append(text)

    async def close(self) -> None:
        """See `Backend`."""
        await self.planner.close()


@contextmanager
def model_server(served: Backend) -> Iterator[str]:
    """The address of an OpenAI-compatible server of one model while the block runs."""
    listening = listen()
    server = uvicorn.Server(
        uvicorn.Config(application([served]), log_level="warning", access_log=False)
    )
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join(10)


class Driver:
    """browser-use in a process of its own interpreter, which is begun again where it does not
    answer."""

    def __init__(self, python: str, seconds: float = 180.0) -> None:
        """Start nothing yet; a task may take so many seconds."""
        self.python, self.seconds = python, seconds
        self.process: subprocess.Popen[str] | None = None

    def run(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """One task."""
        self.process = self.process or self._started()
        told, said = self.process.stdin, self.process.stdout
        assert told is not None
        assert said is not None
        print(json.dumps(asked), file=told, flush=True)
        late = threading.Timer(self.seconds, self.close)
        late.start()
        line = said.readline()
        late.cancel()
        if not line:
            self.close()
            return {"failed": f"the agent did not come to an end within {self.seconds:.0f} s"}
        return dict(json.loads(line))

    def _started(self) -> subprocess.Popen[str]:
        log = None if os.environ.get("PLUMBLINE_BROWSER_USE_LOG") else subprocess.DEVNULL
        pipe = subprocess.PIPE
        command = [self.python, str(DRIVER)]
        return subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=log, text=True, start_new_session=True
        )

    def close(self) -> None:
        """End the process, and the browser that it started."""
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Place:
    """Where the forms and the models are served, and what the model is called there."""

    forms: str
    models: str
    name: str


def fill_in(
    task: FormsTask, example: Example, driver: Driver, place: Place, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Have the agent fill in one form, and compare what the server received.

    Args:
        task: whose site is served.
        example: what is to be entered.
        driver: browser-use.
        place: of the forms and of the model.
        options: of the agent (`VARIANTS`).
    """
    case, site = task.case_of(example), task.executor.site
    view = case.view
    episode = site.open(view)
    address = place.forms + site.address(episode, view)
    told = example.messages[-1]["content"].partition("\n\n" + "The controls of the form:")[0]
    told = told.partition("\n\nOs controles do formulário:")[0].replace(
        ADDRESS + view.form.path, address
    )
    with tempfile.TemporaryDirectory(prefix="plumbline-files-") as folder:
        for name in case.files:
            (Path(folder) / name).write_bytes(stub(name))
        asked = {
            "task": told,
            "url": place.models,
            "model": place.name,
            "browser": find_chromium(),
            "files": [str(Path(folder) / name) for name in sorted(case.files)],
            "steps": 40,
            **options,
        }
        outcome = driver.run(asked)
    receipts = site.close(episode)
    wanted = expected(view, values_of(example.reference))
    execution = Execution((), receipts, "")
    judged = score(wanted, Plan(()), execution, len(view.form.pages))
    mistakes = [
        f"{one.what}: {one.received}, not {one.expected}" for one in mistakes_of(wanted, execution)
    ]
    return {
        "id": example.id,
        "form": view.form.name,
        "pages": len(view.form.pages),
        "sent": submission_of(receipts) is not None,
        "exact": judged.parts["exact"] == 1.0,
        "posts": len(receipts),
        "errors_shown": sum(bool(receipt.errors) for receipt in receipts),
        "mistakes": mistakes,
        **outcome,
    }


def directly(task: FormsTask, example: Example, plans: Sequence[str]) -> bool | None:
    """Whether the direct executor sends the form exactly with the last plan; None where there was
    no plan."""
    return task.judge(example, plans[-1])[1].parts["exact"] == 1.0 if plans else None


def report(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the figures."""
    exact = rate_interval([row["exact"] for row in rows])
    direct = rate_interval([row["direct"] for row in rows if row["direct"] is not None])
    print(f"forms {len(rows)}, of {len({row['form'] for row in rows})} kinds")
    print(f"received exactly   {exact.mean:.3f}  [{exact.low:.3f}, {exact.high:.3f}]  n={exact.n}")
    print(
        f"direct executor    {direct.mean:.3f}  [{direct.low:.3f}, {direct.high:.3f}]  "
        f"n={direct.n}  (the same plans)"
    )
    for key in ("steps", "seconds"):
        found = mean_interval([float(row[key]) for row in rows if key in row])
        print(f"{key:<18} {found.mean:.1f}  [{found.low:.1f}, {found.high:.1f}]  n={found.n}")
    for row in rows:
        if not row["exact"]:
            print(
                f"  {row['id']}: {row.get('failed') or row['mistakes'][:3]} "
                f"{row.get('errors', [])[:2]}"
            )


def planned(
    model: str | None, task: FormsTask, rows: Sequence[Example], *, slip: bool
) -> tuple[Remembering, AgentServed]:
    """What plans, the oracle or a model that is opened as `plumbline serve --agent` opens it, and
    what agents ask."""
    if model is None:
        oracle = OraclePlanner(rows)
        planner = Remembering(Slipping(oracle, task, rows) if slip else oracle)
        return planner, AgentServed(
            planner, Planning(plan=task.options.plan, full=task.options.instructions == "full")
        )
    from plumbline.cli.output import show_progress
    from plumbline.policies.opening import ModelOptions
    from plumbline.serve.served_models import named_models, open_models
    from plumbline_forms.agent.opening import planning_of

    sources = named_models([model])
    with show_progress() as view:
        (opened,) = open_models(sources, ModelOptions(), view)
    planner = Remembering(opened)
    return planner, AgentServed(planner, planning_of(sources[opened.name]))


def chosen(task: FormsTask, n: int) -> list[Example]:
    """Examples of both kinds of splits, form after form, so that a short run meets every form."""
    rows = [
        *task.examples("test"),
        *(task.examples("held-out-forms") if "held-out-forms" in task.splits else ()),
    ]
    turns: dict[str, int] = {}
    order = []
    for row in rows:
        turns[row.stratum] = turns.get(row.stratum, 0) + 1
        order.append((turns[row.stratum], row.stratum, row))
    return [row for _, _, row in sorted(order, key=lambda one: one[:2])][:n]


def main() -> None:
    """Run the forms that are not in the file yet, and print the figures of all that are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one a form")
    parser.add_argument("--n", type=int, default=25, help="forms")
    parser.add_argument("--form", help="only this form")
    parser.add_argument("--variant", choices=sorted(VARIANTS), default="no-thinking")
    parser.add_argument(
        "--actions", type=int, default=5, help="the agent's limit of actions a step"
    )
    parser.add_argument(
        "--model", help="a run or model of the forms task that plans; left out: the oracle"
    )
    parser.add_argument(
        "--slip", action="store_true", help="the oracle's first plan of each form is wrong"
    )
    parser.add_argument(
        "--seconds", type=float, default=180.0, help="of one form, all steps together"
    )
    parser.add_argument("--options", default="{}", help="JSON: the forms task's options")
    arguments = parser.parse_args()
    python = os.environ.get(VARIABLE)
    if not python:
        sys.exit(f"set {VARIABLE} to the interpreter of an environment with browser-use 0.13")
    options = json.loads(arguments.options)
    task = open_forms(options, Path(), silent)
    rows = chosen(task, 10_000 if arguments.form else arguments.n)
    rows = [row for row in rows if arguments.form in {None, row.stratum}]
    rows = [row for row in rows if not arguments.slip or _wrong(task, row)][: arguments.n]
    planner, agent = planned(arguments.model, task, rows, slip=arguments.slip)
    there = (
        arguments.out.read_text(encoding="utf-8").splitlines() if arguments.out.is_file() else []
    )
    done = {row["id"]: row for row in map(json.loads, there) if "failed" not in row}
    given = {**VARIANTS[arguments.variant]}
    patience = {"llm_timeout": int(arguments.seconds), "step_timeout": int(arguments.seconds)}
    given["agent"] = {**given["agent"], **patience, "max_actions_per_step": arguments.actions}
    driver = Driver(python, arguments.seconds)
    try:
        with (
            serve(task.executor.site) as forms,
            model_server(agent) as models,
            arguments.out.open("a") as out,
        ):
            for row in rows:
                if row.id in done:
                    continue
                planner.plans.clear()
                found = fill_in(task, row, driver, Place(forms, models, agent.name), given)
                plans = next(iter(planner.plans.values()), [])
                found |= {
                    "direct": directly(task, row, plans),
                    "plans": len(plans),
                    "variant": arguments.variant,
                }
                done[row.id] = found
                print(json.dumps(found, ensure_ascii=False), file=out, flush=True)
                print(
                    f"{row.id}: "
                    f"{'exact' if found['exact'] else found.get('failed') or found['mistakes'][:2]}",
                    flush=True,
                )
    finally:
        driver.close()
    report([done[row.id] for row in rows if row.id in done])


if __name__ == "__main__":
    main()
