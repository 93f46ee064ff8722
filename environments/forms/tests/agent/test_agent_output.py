"""What a browser agent is answered: every variant of its schema, and no script but ours."""

import asyncio
import json
from urllib.parse import unquote

import jsonschema
import pytest

from environments.forms.tests.agent.fake_agent import OraclePlanner, run, schema
from environments.forms.tests.agent.test_agent import at, exact
from plumbline.errors import RecipeError
from plumbline_browser.plans.actions import Attach, Check, Press, Select, Submit, Type, Uncheck
from plumbline_forms.agent.acts import act_on, actions_of, schema_of, write_output
from plumbline_forms.agent.scene import ACTIONS, read_scene
from plumbline_forms.agent.served import AgentServed
from plumbline_forms.executors.executor import Attempt

BRAIN = {"evaluation_previous_goal": "e", "memory": "m", "next_goal": "g"}
DONE = {"done": {"text": "x", "success": True, "files_to_display": []}}
PAGE = """[Start of page]
A page
Name *
[3]<input type=text name=name id=f-name value=Ann required=true />
Colour
[4]<select name=colour id=f-colour compound_components=(name=Dropdown Toggle,role=button),(name=Options,role=listbox,\
count=6,options=-|Red|Blue|Green|... 2 more options...) />
|SHADOW(open)|*|scroll element[5]<select name=size multiselectable=true compound_components=(name=Dropdown Toggle,\
role=button),(name=Options,role=listbox,count=2,options=Small|Very large) /> (0.0 pages above, 0.5 pages below)
	[6]<option value=s selected=false />
	[7]<option value=xl selected=true />
[8]<input type=checkbox name=news value=on checked=true />
Send me news
Notes
[9]<textarea name=notes value=one
two /> of it
three />
Code
[16]<input type=text name=code pattern=[A-Z]{2} title=Two letters />
Two letters
[10]<input type=tel name=phone placeholder=Telephone />
Same
[11]<input type=text name=a />
Same
[12]<input type=text name=b />
Secret
[13]<input type=password name=secret />
[14]<button />
	Help
[15]<button type=submit />
	Send it
[End of page]"""


def scene(page=PAGE, extra="", files=""):
    told = (
        "<user_request>\nFill it "
        "in.\n</user_request>\n\n<agent_history>\n\n</agent_history>\n\n<agent_state>\n"
        f"{files}</agent_state>\n<browser_state>\n{extra}Available tabs:\nTab 0001: http://a/b - "
        "A\n\n"
        f"Interactive elements (truncated to 40000 characters):\n{page}\n</browser_state>\n"
    )
    return read_scene([{"role": "user", "content": told}])


def act(action, *more, offered=None, prepared=False, of=None):
    return act_on([action, *more], of or scene(), offered, prepared=prepared)


@pytest.mark.parametrize("variant", ["thinking", "plain", "flash"])
def test_every_variant_conforms_to_its_schema(forms, examples, variant):
    example, wanted = examples["library-card"], schema(variant)
    agent = at(forms, example)
    asyncio.run(run(AgentServed(OraclePlanner([example])), agent, wanted))
    assert exact(forms, example, agent)
    for answer in agent.said:
        jsonschema.validate(answer, wanted)
    assert set(agent.said[0]) == set(wanted["required"])


def test_a_schema_may_stand_in_the_system_prompt_or_nowhere(forms, examples):
    example = examples["library-card"]
    for noise in (
        "",
        f"<json_schema>\n{ {'name': 'agent_output', 'strict': True, 'schema': schema('flash')}!r}\n</json_schema>",
    ):
        agent = at(forms, example)
        agent.noise = noise
        asyncio.run(run(AgentServed(OraclePlanner([example])), agent, None))
        assert exact(forms, example, agent)
        assert set(agent.said[0]) == ({"memory", "action"} if noise else {*BRAIN, "action"})


@pytest.mark.parametrize(
    "text", ["{'schema': {'properties'", "__import__('os').getcwd()", "(" * 9000, "[]", "x"]
)
def test_what_is_no_schema_in_a_system_prompt_is_passed_over(text):
    chat = [{"role": "system", "content": f"<json_schema>\n{text}\n</json_schema>"}]
    assert set(schema_of(chat, None)["properties"]) == {*BRAIN, "action"}


def test_an_agent_that_may_only_end_is_told_how_far_it_came(forms, examples):
    example = examples["library-card"]
    served = AgentServed(OraclePlanner([example]))
    agent = at(forms, example)
    only = schema(only={"done"})
    asyncio.run(run(served, agent, only))
    assert agent.outcome["success"] is False
    agent = at(forms, example)

    async def go():
        for wanted in (*[schema()] * 4, only):
            pieces = [piece async for piece in served.answer(agent.asked(wanted))]
            if not agent.carry_out(pieces[-1].text):
                return

    agent.actions = 40
    asyncio.run(go())
    assert exact(forms, example, agent)
    assert agent.outcome["success"] is True


def test_a_schema_with_references_and_with_optional_keys_is_followed():
    """As pydantic writes it where nothing is made flat: one model with every action as a key that
    may be null."""
    wanted = {
        "$defs": {
            "Done": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "success": {"default": True}},
                "required": ["text", "success"],
                "additionalProperties": False,
            },
            "Action": {
                "type": "object",
                "properties": {"done": {"anyOf": [{"$ref": "#/$defs/Done"}, {"type": "null"}]}},
            },
        },
        "properties": {
            "memory": {"type": ["string", "null"]},
            "action": {"type": "array", "items": {"$ref": "#/$defs/Action"}},
        },
        "required": ["memory", "action"],
    }
    assert set(actions_of(wanted)) == {"done"}
    assert json.loads(write_output(wanted, BRAIN, [{"done": {"text": "x"}}])) == {
        "action": [{"done": {"text": "x", "success": True}}],
        "memory": "m",
    }
    circle = {
        "$defs": {"A": {"$ref": "#/$defs/A"}},
        "properties": {"action": {"items": {"$ref": "#/$defs/A"}}},
    }
    with pytest.raises(RecipeError, match="leads nowhere"):
        actions_of(circle)


def test_what_does_not_conform_is_not_sent():
    with pytest.raises(RecipeError, match="conforms"):
        write_output(schema(only={"done"}), BRAIN, [{"click": {"index": 3}}])
    wanted = schema(only={"done"})
    wanted["properties"]["action"]["items"]["anyOf"][0]["properties"]["done"]["properties"][
        "data"
    ] = {"type": "object"}
    wanted["properties"]["action"]["items"]["anyOf"][0]["properties"]["done"]["required"].append(
        "data"
    )
    with pytest.raises(RecipeError, match="output_model_schema"):
        write_output(wanted, BRAIN, [DONE])


@pytest.mark.parametrize(
    "properties",
    [{"action": one} for one in (True, {"items": False}, {"items": {"anyOf": [True]}})]
    + [{"action": {}, "x": True}],
)
def test_a_schema_that_says_nothing_is_no_trouble(properties):
    wanted = {"properties": properties, "required": [*properties, "y"]}
    assert actions_of(schema_of([], wanted)) is None
    with pytest.raises(RecipeError, match="conforms"):
        write_output(wanted, BRAIN, [DONE])


@pytest.mark.parametrize(
    "wanted", [{"type": "nothing"}, {"$ref": "http://127.0.0.1:9/x"}, {"properties": 3}]
)
def test_what_is_no_schema_is_an_error_and_nothing_is_fetched(wanted):
    with pytest.raises(RecipeError, match="no JSON Schema"):
        schema_of([], wanted)


def test_a_page_is_read_from_its_lines():
    found = {one.index: one for one in scene().page.controls}
    assert ", ".join(f"{one.kind} {one.label}" for one in found.values()) == (
        "text Name *, select Colour, multiselect , checkbox Send me news, textarea Notes, text "
        "Code, tel Telephone, "
        "text Same, text Same, password Secret, button Help, button Send it"
    )
    assert found[3].value == "Ann"
    # what is in a value may look like the end of its element
    assert found[9].value == "one\ntwo /> of it\nthree"
    assert [one.text for one in found[4].choices] == ["-", "Red", "Blue", "Green"]
    assert [(one.value, one.text) for one in found[5].choices] == [
        ("s", "Small"),
        ("xl", "Very large"),
    ]
    assert found[5].chosen == (1,)
    assert found[8].checked


def test_actions_go_by_the_element():
    assert act(Type("name", "Bea")).act == {"input": {"index": 3, "text": "Bea", "clear": True}}
    assert act(Type("Name", "Ann")).act is None  # it holds that already
    assert act(Type("Name", "Ann", clear=False)).act == {
        "input": {"index": 3, "text": "Ann", "clear": False}
    }
    assert act(Type("Telephone", "1")).act == {"input": {"index": 10, "text": "1", "clear": True}}
    # not shown
    assert act(Select("Colour", "Yellow")).act == {
        "select_dropdown": {"index": 4, "text": "Yellow"}
    }
    assert act(Check("Send me news")).act is None
    assert act(Uncheck("Send me news")).act == {"click": {"index": 8}}
    assert act(Press("Enter")).act == {"send_keys": {"keys": "Enter"}}
    assert act(Submit("Send it")).act == act(Submit()).act == {"click": {"index": 15}}
    assert act(Submit("Help")).act == {"click": {"index": 14}}
    assert act(Submit()).ends


def test_what_cannot_be_done_says_why():
    for action, why in (
        (Type("Nothing like it", "x"), "nothing is called"),
        (Type("Same", "x"), "several controls"),
        (Type("Colour", "x"), "be typed"),
        (Attach("Name", "a.pdf"), "be attached"),
        (Select("size", "Huge"), "no option"),
        (Submit("Cancel"), "no button"),
        (Press("F1"), "does nothing"),
    ):
        found = act(action)
        assert isinstance(found, Attempt), action
        assert why in found.reason
    assert act(Select("size", "Small"), offered={"click"}).reason.startswith("the agent cannot")


def test_scripts_hold_their_data_encoded():
    hostile = "');alert(1)//\\\"</script>\n"
    page = PAGE.replace("name=size", "name=si'ze\\").replace(
        "options=Small", f"options={hostile.strip()}"
    )
    found = act(Select("si'ze\\", hostile.strip()), of=scene(page))
    code = found.act["evaluate"]["code"]
    assert found.ends
    assert "alert(1)" not in code
    data = code.partition("decodeURIComponent('")[2].partition("')")[0]
    assert json.loads(unquote(data)) == {"id": "", "name": "si'ze\\", "texts": [hostile.strip()]}


def test_several_files_are_collected_where_the_agent_has_scripts():
    page = (
        "Photos\n[3]<input type=file name=photos compound_components=(name=Files "
        "Selected,role=textbox,current=None) />"
    )
    files = (
        "<available_file_paths>/x/a.png\n/y/b.png\nUse with absolute paths</available_file_paths>\n"
    )
    both, given = (Attach("Photos", "a.png"), Attach("Photos", "b.png")), scene(page, files=files)
    first = act(*both, of=given)
    assert first.prepares
    assert list(first.act) == ["evaluate"]
    assert act(*both, of=given, prepared=True).act == {
        "upload_file": {"index": 3, "path": "/x/a.png"}
    }
    assert act(both[1], of=given).act == {"upload_file": {"index": 3, "path": "/y/b.png"}}
    assert act(Attach("Photos", "c.png"), of=given).reason.startswith("there is no")


def test_dialogs_are_counted_and_limits_read():
    told = scene(extra="Auto-closed JavaScript dialogs:\n  - Are you sure?\n  - Really?\n\n")
    assert told.dialogs == 2
    assert told.most_actions == ACTIONS
    assert told.url == "http://a/b"


@pytest.mark.parametrize(
    "page",
    [
        "",
        "[3]<input",
        "[3]<input type=text name=x value=",
        "[]<>",
        "[99999999999]<a />",
        "\t" * 999,
    ],
)
def test_no_page_breaks_the_reading(page):
    read = scene(page)
    assert len(read.page.controls) <= 1
