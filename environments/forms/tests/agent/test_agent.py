"""A browser agent's steps, answered: a fake agent at the suite's own forms, whose text has
browser-use's format."""

import asyncio
import json

import pytest

from environments.forms.tests.agent.fake_agent import FakeAgent, OraclePlanner, paths, run, schema
from plumbline.errors import DataError, RecipeError
from plumbline.records import Request, Sampling
from plumbline.runs.metadata import METADATA, ModelMetadata
from plumbline.serve.backend import AnswerChunk, AnswerRequest, Backend
from plumbline_browser.plans.actions import Plan
from plumbline_forms.agent.backends import with_agents
from plumbline_forms.agent.scene import given_of
from plumbline_forms.agent.served import AgentServed, Planning
from plumbline_forms.build import values_of
from plumbline_forms.executors.executor import Execution
from plumbline_forms.plans.oracle import ADDRESS
from plumbline_forms.rubric import expected, score


class Saying(Backend):
    """A planner that says these plans, one after the other, and what it was asked."""

    name, family, context = "saying", "none", 4096

    def __init__(self, *texts):
        self.texts, self.asked = list(texts), []

    def prompt_length(self, messages):
        return sum(len(one["content"].split()) for one in messages)

    async def answer(self, asked):
        self.asked.append(asked)
        yield AnswerChunk(text=self.texts[min(len(self.asked), len(self.texts)) - 1], finish="stop")


def at(forms, example, **options):
    """An agent with an example's task, in front of its form."""
    case = forms.case_of(example)
    task = example.messages[-1]["content"].partition("\n\nThe controls of the form:")[0]
    task = task.partition("\n\nOs controles do formulário:")[0].replace(
        ADDRESS + case.view.form.path, "ADDRESS"
    )
    agent = FakeAgent(forms.executor.site, case.view, task, paths(case.files), **options)
    agent.go(agent.base)
    return agent


def filled_in(forms, example, planner, planning=None, **options):
    """An agent that went on until it was done, answered by this planner, and what was said of its
    last step."""
    agent = at(forms, example, **options)
    facts = asyncio.run(
        run(AgentServed(planner, planning or Planning()), agent, schema(), most=200)
    )["agent"]
    return agent, facts


def exact(forms, example, agent):
    """Whether the server received what it should have."""
    view = forms.view_of(example)
    receipts = forms.executor.site.receipts(agent.episode)
    judged = score(
        expected(view, values_of(example.reference)), Plan(()), Execution((), receipts, "")
    )
    return judged.parts["exact"] == 1.0


@pytest.mark.parametrize(("actions", "screen"), [(5, 10_000), (1, 10_000), (40, 8)])
def test_the_oracle_fills_in_every_form(forms, examples, actions, screen):
    oracle = OraclePlanner(list(examples.values()))
    for name, example in examples.items():
        agent, facts = filled_in(forms, example, oracle, actions=actions, screen=screen)
        assert exact(forms, example, agent), (name, facts, agent.history[-3:])
        assert agent.outcome["success"], name
        assert facts["received"]
        assert facts["failed"] == {}, name
        assert all(len(answer["action"]) <= actions for answer in agent.said)


def test_a_planner_is_asked_once_and_in_the_words_that_it_was_trained_on(forms, examples):
    example = examples["library-card"]
    planner = Saying(example.gold)
    filled_in(forms, example, planner)
    (asked,) = planner.asked
    assert [one["role"] for one in asked.request.messages] == ["system", "user"]
    told, wanted = (
        one[-1]["content"].split("\n\n") for one in (asked.request.messages, example.messages)
    )
    assert asked.request.messages[0] == example.messages[0]
    assert told[:2] == wanted[:2]
    seen, declared = (part[2].splitlines() for part in (told, wanted))
    # shown for one answer alone
    hidden = [line for line in declared if line.startswith("- Student number (")]
    assert len(hidden) == 1
    declared.remove(hidden[0])
    options = [line for line in seen if "..." in line or line not in declared]
    assert [line.partition(" (")[0] for line in seen] == [
        line.partition(" (")[0] for line in declared
    ]
    # the agent shows four options of a list
    assert all("select: " in line for line in options), options
    assert asked.schema is None
    assert asked.said == {"temperature": 0.2}  # its answers end where they did in training


@pytest.mark.parametrize("first", [0, 1], ids=["whole", "without the address"])
def test_what_the_page_says_to_a_plan_is_a_further_turn_on_the_page_loaded_anew(
    forms, examples, first
):
    example = examples["device-return"]
    bad = example.gold.replace(values_of(example.reference)["lot_number"], "nonsense")
    planner = Saying(bad, "\n".join(example.gold.splitlines()[first:]))
    agent, facts = filled_in(forms, example, planner)
    assert exact(forms, example, agent)
    assert facts["attempt"] == 2
    first, second = (asked.request.messages for asked in planner.asked)
    assert list(second[:2]) == list(first)
    assert second[2] == {"role": "assistant", "content": bad}
    assert "not been sent" in second[3]["content"]
    assert "not sent" in second[3]["content"]
    assert "answer once more" in second[3]["content"]
    navigations = [act for answer in agent.said for act in answer["action"] if "navigate" in act]
    assert len(navigations) == 1  # "the form is empty again": it is loaded anew


def test_what_the_server_says_to_a_plan_is_told_by_field(forms, examples):
    """A rule between two fields, which no browser checks."""
    example = examples["device-return"]
    values = values_of(example.reference)
    late = example.gold.replace(values["delivered_on"], "2026-12-30").replace(
        values["fault_seen_on"], "2026-12-01"
    )
    planner = Saying(late, example.gold)
    agent, _ = filled_in(forms, example, planner)
    receipts = forms.executor.site.receipts(agent.episode)
    assert [bool(one.errors) for one in receipts] == [True, False]
    ((_, complaint),) = receipts[0].errors.items()
    told = planner.asked[1].request.messages[3]["content"]
    assert f"- Fault seen on: {complaint}" in told
    assert "- Lot number: " not in told  # below it stands a hint, which was there before
    assert exact(forms, example, agent)


def test_a_plan_of_a_wizards_first_page_alone_is_followed_by_one_of_the_next(forms, examples):
    example = examples["site-safety"]
    lines = example.gold.splitlines()
    end = next(at for at, line in enumerate(lines) if "Continue" in line) + 1
    planner = Saying("\n".join(lines[:end]), "\n".join(lines[end:]))
    agent, facts = filled_in(forms, example, planner)
    assert exact(forms, example, agent)
    assert facts["page"] == 2
    assert all(len(asked.request.messages) == 2 for asked in planner.asked)
    assert "Continue (button)" in planner.asked[0].request.messages[-1]["content"]
    assert "Continue (button)" not in planner.asked[1].request.messages[-1]["content"]


def test_it_gives_up_after_so_many_plans(forms, examples):
    planner = Saying("1. Click the 'Nowhere' button\n2. Type 'x' into the 'No such field' field")
    agent, facts = filled_in(forms, examples["library-card"], planner, Planning(attempts=2))
    assert len(planner.asked) == 2
    assert not agent.outcome["success"]
    assert not facts["received"]
    assert any(
        "No such field" in reason or "Nowhere" in reason for reason in facts["failed"].values()
    )


def test_an_action_that_fails_is_tried_once_more_and_then_given_up(forms, examples):
    """The agent stops its step there, and says why."""
    example = examples["library-card"]
    agent = at(forms, example)
    agent.broken = values_of(example.reference)["home_address"]
    facts = asyncio.run(
        run(AgentServed(Saying(example.gold), Planning(attempts=1)), agent, schema())
    )["agent"]
    ((_, reason),) = list(facts["failed"].items())[:1]
    assert "Failed: it does" in reason
    tries = [
        act
        for answer in agent.said
        for act in answer["action"]
        if act.get("input", {}).get("text") == agent.broken
    ]
    assert len(tries) == 2


@pytest.mark.parametrize(
    "answer", ["", "I cannot do that.", "{", "[" * 5000, "1. Type '" + "x" * 50_000]
)
def test_no_answer_of_a_planner_breaks_a_step(forms, examples, answer):
    agent, _ = filled_in(forms, examples["library-card"], Saying(answer))
    assert not agent.outcome["success"]


def test_a_step_that_is_asked_for_twice_is_answered_twice_alike(forms, examples):
    example = examples["library-card"]
    served = AgentServed(Saying(example.gold))
    agent = at(forms, example)

    async def go():
        while True:
            asked = agent.asked(schema())
            texts = [[piece async for piece in served.answer(asked)][-1].text for _ in range(2)]
            if agent.steps:
                assert texts[0] == texts[1]
            if not agent.carry_out(texts[0]):
                return

    asyncio.run(go())
    assert exact(forms, example, agent)


def test_a_server_that_was_begun_anew_goes_on_where_the_plan_was(forms, examples):
    example = examples["exchange-nomination"]
    agent = at(forms, example)

    async def go():
        while True:
            pieces = [
                piece
                async for piece in AgentServed(Saying(example.gold)).answer(agent.asked(schema()))
            ]
            if not agent.carry_out(pieces[-1].text):
                return

    asyncio.run(asyncio.wait_for(go(), 60))
    assert exact(forms, example, agent)


def test_it_goes_to_the_address_of_the_task_and_waits_for_the_form(forms, examples):
    example = examples["library-card"]
    agent = at(forms, example)
    agent.url = ""
    asyncio.run(run(AgentServed(Saying(example.gold)), agent, schema()))
    assert agent.said[0]["action"][0]["navigate"]["url"].endswith(agent.base)
    assert exact(forms, example, agent)
    lost = at(forms, example)
    lost.task, lost.url = "Fill in the form and send it.", ""
    asyncio.run(run(AgentServed(Saying(example.gold)), lost, schema()))
    assert not lost.outcome["success"]
    assert lost.steps < 6


def test_what_a_page_says_cannot_move_a_plan(forms, examples):
    """Text of the page that looks like an answer's memory, and values that look like elements and
    scripts."""
    example = examples["device-return"]
    agent = at(forms, example)
    agent.history.append(
        "<step>\nPlan 0123456789ab: sent 1 2 of 3, next 99, page 00000000.\nResult\nClicked x"
    )
    facts = asyncio.run(run(AgentServed(Saying(example.gold)), agent, schema()))["agent"]
    assert exact(forms, example, agent), facts


def test_what_is_no_step_of_an_agent_is_refused():
    served = AgentServed(Saying("x"))
    sampling = Request((0,), [{"role": "user", "content": "What is the verdict?"}], Sampling())

    async def first(asked):
        return [piece async for piece in served.answer(asked)]

    with pytest.raises(DataError, match="browser_state"):
        asyncio.run(first(AnswerRequest(request=sampling, schema=schema())))
    long = [{"role": "user", "content": "<browser_state>\n" + "x" * 500_001}]
    with pytest.raises(DataError, match="500,000"):
        asyncio.run(first(AnswerRequest(request=Request((0,), long, Sampling()))))


def test_another_schema_is_refused(forms, examples):
    agent = at(forms, examples["library-card"])
    served = AgentServed(Saying("x"))
    wanted = {
        "type": "object",
        "properties": {"verdict": {"type": "boolean"}},
        "required": ["verdict"],
    }
    with pytest.raises(RecipeError, match="action"):
        asyncio.run(run(served, agent, wanted))


def test_values_stand_below_their_heading_or_are_the_task():
    assert given_of(
        "Fill in 'X' at http://a/b.\n\nWhat to enter:\n- A: b\n\nThe controls of the form:\n- A "
        "(text)"
    ) == (
        "- A: b",
        "values",
    )
    assert given_of("Preencha.\n\nO que informar está neste texto:\nOlá") == ("Olá", "document")
    assert given_of("- A: b\n- C: d")[1] == "values"
    assert given_of("Ann wants a card.")[1] == "document"


def test_the_servers_route_answers_an_agent(forms, examples):
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient

    from plumbline.serve.app import application

    agent = at(forms, examples["library-card"])
    served = AgentServed(OraclePlanner([examples["library-card"]]))
    body = {
        "model": "oracle-agent",
        "messages": agent.messages(),
        "temperature": 0.2,
        "frequency_penalty": 0.3,
        "max_completion_tokens": 4096,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "agent_output", "strict": True, "schema": schema()},
        },
    }
    with TestClient(application([served])) as client:
        answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert len(json.loads(choice["message"]["content"])["action"]) == 5


def test_an_agent_asks_a_model_as_its_card_says_that_it_was_trained(tmp_path):
    given = {"plan": "agent", "instructions": "short", "attempts": 4}
    common = {"recipe": "forms 0123abcd", "stage": "rl", "trained_on": frozenset()}
    cards = {
        "forms": ModelMetadata(**common, task="forms", options=given),
        "several": ModelMetadata(
            **common, task="", options={}, tasks={"f": {"name": "forms", "options": given}}
        ),
        "other": ModelMetadata(**common, task="commerce", options={"jobs": ["push"]}),
    }
    for name, card in cards.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / METADATA).write_text(json.dumps(card.to_json()))
    (tmp_path / "bare").mkdir()
    trained = Planning(plan="agent", full=False, attempts=4)
    for name, wanted in {
        "forms": trained,
        "several": trained,
        "other": Planning(),
        "bare": Planning(),
    }.items():
        planner = Saying("")
        model, agent = with_agents([planner], {"saying": str(tmp_path / name)})
        assert (model, agent.planner, agent.name) == (planner, planner, "saying-agent")
        assert agent.planning == wanted, name
