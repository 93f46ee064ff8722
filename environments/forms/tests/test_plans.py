"""The plan languages: readings by hand, round trips over hostile texts, the bridge to the agents'
JSON."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from environments.forms.tests.small import small_form
from plumbline.api import HOSTILE
from plumbline_browser.plans.actions import (
    Attach,
    Check,
    Click,
    Done,
    Navigate,
    Press,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline_browser.plans.reader import MAX_STEPS, read_step, read_steps
from plumbline_browser.plans.reader import _read_body as _read
from plumbline_browser.plans.writer import write_steps
from plumbline_forms.plans.agent import read_plan, write_agent
from plumbline_forms.plans.oracle import elements_of
from plumbline_forms.suite.catalogue import FORMS
from tests.work import calls, most_work

DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))

URL = "http://127.0.0.1:5050/a/b"


@pytest.mark.parametrize(
    ("line", "action"),
    [
        (f"Step 1: Navigate to {URL}", Navigate(URL)),
        (f"1. Go to {URL}.", Navigate(URL)),
        (f"Open the page {URL}", Navigate(URL)),
        ("Step 2: Click on the 'Artist Name' input field", Click("Artist Name", "field")),
        (
            "Step 3: Type 'Amanda Lee' into the 'Artist Name' field",
            Type("Artist Name", "Amanda Lee"),
        ),
        ('3) Enter "Amanda Lee" in the "Artist Name" text box.', Type("Artist Name", "Amanda Lee")),
        ("- Type “Amanda” into the “Name” field", Type("Name", "Amanda")),
        ("**Step 4:** Fill in the 'Name' field with 'Ann'", Type("Name", "Ann")),
        ("Fill in 'Ann' in the 'Name' field", Type("Name", "Ann")),
        ("Set the 'Name' field to 'Ann'", Type("Name", "Ann")),
        ("Type 'O'Dowd's \"cat\"' into the 'Pet' field", Type("Pet", "O'Dowd's \"cat\"")),
        ("Type 'a' into the 'b' into the 'c' field", Type("c", "a' into the 'b")),
        ("Type 'two\\nlines' into the 'Notes' textarea", Type("Notes", "two\nlines")),
        ("Type '' into the 'Name' field", Type("Name", "")),
        ("Type Amanda Lee into the Artist Name field", Type("Artist Name", "Amanda Lee")),
        ("Append ' more' to the 'Notes' field", Type("Notes", " more", clear=False)),
        ("Select 'Oil' from the 'Medium' dropdown", Select("Medium", "Oil")),
        ("Choose 'Oil' as the 'Medium'", Select("Medium", "Oil")),
        ("Select Oil from the Medium drop-down list", Select("Medium", "Oil")),
        ("Check the 'I agree' checkbox", Check("I agree")),
        ("Tick 'Monday' in the 'Days' group", Check("Days", "Monday")),
        ("Uncheck the 'News' checkbox", Uncheck("News")),
        ("Click on the 'I agree' checkbox", Click("I agree", "box")),
        ("Attach 'cv.pdf' to the 'CV' field", Attach("CV", "cv.pdf")),
        ("Upload the file 'cv.pdf' to the 'CV' field", Attach("CV", "cv.pdf")),
        ("Step 19: Click the Submit button", Submit()),
        ("Click on the Submit button", Submit()),
        ("Click Submit", Submit()),
        ("Submit the form", Submit()),
        ("Click the 'Book Instrument' button", Submit("Book Instrument")),
        ("Click Continue button", Submit("Continue")),
        ("Press Enter", Press("Enter")),
        ("Press the Submit button", Submit()),
        ("Done", Done()),
        ("Done without success: 'no form'", Done("no form", success=False)),
        (f"Passo 1: Acesse {URL}", Navigate(URL)),
        (
            "Passo 2: Digite 'Zé D'Ávila' no campo 'Nome completo'",
            Type("Nome completo", "Zé D'Ávila"),
        ),
        ("2 - Preencha o campo 'Nome' com 'Zé'", Type("Nome", "Zé")),
        ("Etapa 3: Selecione 'Tarde' na lista 'Turno'", Select("Turno", "Tarde")),
        ("Marque a caixa de seleção 'Aceito'", Check("Aceito")),
        ("Marque 'Rádio' no grupo 'Como soube'", Check("Como soube", "Rádio")),
        ("Anexe 'rg.pdf' ao campo 'Documento'", Attach("Documento", "rg.pdf")),
        ("Clique no botão 'Enviar inscrição'", Submit("Enviar inscrição")),
        ("Clique no botão Enviar", Submit()),
        ("Envie o formulário", Submit()),
        ("Desmarque a caixa 'Aceito'", Uncheck("Aceito")),
    ],
)
def test_one_step(line, action):
    assert read_step(line) == action


@pytest.mark.parametrize(
    "line", ["", "Step 3:", "The form is ready.", "Type 'x'", "Attach it", "- -"]
)
def test_what_is_no_step(line):
    assert read_step(line) is None


LIBRARY = elements_of(FORMS["library-card"])
CHANGE = elements_of(FORMS["change-ticket"])


@pytest.mark.parametrize(
    ("line", "actions"),
    [
        ("Set 'Full name' to 'Ann'", (Type("Full name", "Ann"),)),
        # Quotation marks as they come.
        ("Type ”Ann” into the ‘Full name‘ field", (Type("Full name", "Ann"),)),
        ("Type **Ann** into the **Full name** field", (Type("Full name", "Ann"),)),
        ("Type **'Ann'** into the *`Full name`* field", (Type("Full name", "Ann"),)),
        ("- **Full name**: Type 'Ann'", (Type("Full name", "Ann"),)),
        # Words that say what is meant.
        ("Set 'Ann' to 'Full name'", (Type("Full name", "Ann"),)),  # only one of them is a control
        ("Check the box for 'Law' in 'Branches'", (Check("Branches", "Law"),)),
        ("Set 'Reader type' to 'Staff'", (Select("Reader type", "Staff"),)),
        ("Set 'Newsletter' to 'no'", (Uncheck("Newsletter"),)),
        # the words say which
        ("Type 'Newsletter' into the 'Nickname' field", (Type("Nickname", "Newsletter"),)),
        # nobody types into radios
        ("Type 'Staff' into the 'Reader type' field", (Type("Reader type", "Staff"),)),
        ("Type Ann into Full name", (Type("Full name", "Ann"),)),
        ("Check I accept the house rules", (Check("I accept the house rules"),)),
        (
            "Check 'Law' and 'Maps' in the 'Branches' group",
            (Check("Branches", "Law"), Check("Branches", "Maps")),
        ),
        (
            "Type 'Ann' into 'Full name' and click 'Request Card'",
            (Type("Full name", "Ann"), Click("Request Card")),
        ),
        ("Click the 'Staff' radio button", (Click("Staff", "box"),)),
        (
            "Type +44 20 7946 (ext 5) into Phone number",
            (Type("Phone number", "+44 20 7946 (ext 5)"),),
        ),
        ("Type The Old Mill into the Home address field", (Type("Home address", "The Old Mill"),)),
        ("Clear the 'Home address' field", (Type("Home address", ""),)),
        ("Clear the 'Newsletter' checkbox", (Uncheck("Newsletter"),)),
        ("Tick 'Law' and 'Maps'", (Check("Law"), Check("Maps"))),
        ("Leave the 'Home address' field empty", ()),
        ("Do not check 'Newsletter'", ()),
        ("Make sure that 'Newsletter' is checked", (Check("Newsletter"),)),
        ("Make sure that 'Newsletter' is not selected", (Uncheck("Newsletter"),)),
        ("Type the link a@b.com into Home address", (Type("Home address", "a@b.com"),)),
        (
            "Type Golden Circle Line into Home address",
            (Type("Home address", "Golden Circle Line"),),
        ),
        (
            "Type Bank of the West at 13:30 in the 'Home address' field",
            (Type("Home address", "Bank of the West at 13:30"),),
        ),
        ("Put 'Staff' in the 'Reader type' text box", (Type("Reader type", "Staff"),)),
        ("In the 'Full name' field type 'Ann'", (Type("Full name", "Ann"),)),
        (
            "Clear the 'Full name' field and type 'Ann'",
            (Type("Full name", ""), Type("Full name", "Ann")),
        ),
        ("Submit the form by clicking 'Request Card' when done.", (Click("Request Card"),)),
        ("Use 'Request Card' to submit the form", (Submit("Request Card"),)),
        ("Wait for the page to load", ()),
    ],
)
def test_a_reader_that_knows_the_form(line, actions):
    plan = read_plan(line, LIBRARY)
    assert plan.actions == actions
    assert plan.unread == 0
    assert plan.idle == (not actions)


@pytest.mark.parametrize(
    "line",
    DATA["what_does_not_say_what_is_to_be_done_is_not_guessed"],
)
def test_what_does_not_say_what_is_to_be_done_is_not_guessed(line):
    plan = read_plan(line, LIBRARY)
    assert (plan.actions, plan.unread) == ((), 1)


@pytest.mark.parametrize(
    "line",
    DATA["what_only_tells_something_is_no_step"],
)
def test_what_only_tells_something_is_no_step(line):
    assert read_plan(line, LIBRARY).actions == ()


@pytest.mark.parametrize(
    ("text", "actions", "idle"),
    [
        (
            "Click on the 'Full name' field\nType 'Ann'",
            (Click("Full name", "field"), Type("Full name", "Ann")),
            0,
        ),
        ("2. **Full name**\n   - Type 'Ann'", (Type("Full name", "Ann"),), 0),
        (
            "Click on the 'Full name' field\nWait\nType 'Ann'",
            (Click("Full name", "field"), Type("Full name", "Ann")),
            1,
        ),
        ("### Submit\n- Click the 'Request Card' button", (Submit("Request Card"),), 0),
        ("Submit the form:\n  Click the 'Request Card' button", (Submit("Request Card"),), 0),
    ],
)
def test_what_the_line_above_says(text, actions, idle):
    plan = read_plan(text, LIBRARY)
    assert (plan.actions, plan.idle, plan.unread) == (actions, idle, 0)


def test_a_button_of_any_name_is_no_part_of_what_a_step_is_for():
    elements = elements_of(dataclasses.replace(FORMS["library-card"], button="Submit"))
    assert read_plan("Click 'Staff' to submit the form", elements).actions == (Click("Staff", ""),)


@pytest.mark.parametrize("text", ["Full name is required.\nType 'Ann'", "Press 'Tab'\nType 'Ann'"])
def test_a_value_without_a_control_is_not_guessed(text):
    assert not any(isinstance(one, Type) for one in read_plan(text, LIBRARY).actions)


@pytest.mark.parametrize(
    "line", ["- Full name: Ann", "Good luck!", "Here is the plan:", "Change date: 2026-03-12", ""]
)
def test_lines_that_claim_nothing_are_not_counted(line):
    plan = read_plan(line, CHANGE)
    assert plan.actions == ()
    assert plan.unread <= line.startswith("Change")


def test_a_plan_around_which_a_model_talks():
    text = (
        "<think>Type 'wrong' into the 'A' field</think>Sure! Here are the steps:\n\n```\n"
        "Step 1: Type 'first\nsecond line' into the 'Notes' field\n\n"
        "Step 7: Frobnicate the 'B' field\n"
        "(b) nothing\n"
        "Click the Submit button\n```\nGood luck!"
    )
    plan = read_steps(text)
    assert plan.actions == (Type("Notes", "first\nsecond line"), Submit())
    assert plan.how == "steps+unread"
    assert (
        read_steps("no steps here").how == "none+unread"
        or read_steps("no steps here").how == "none"
    )
    assert read_steps("").how == "none"


ANSWERS = [
    json.loads(line)
    for line in Path(__file__).with_name("answers.jsonl").read_text("utf-8").splitlines()
]
"""Greedy answers of SmolLM2-135M-Instruct to held-out forms, untrained and after 24 steps of SFT on
two plans each."""


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: f"{row['form']}-{row['sft_steps']}")
def test_what_a_model_wrote_is_read(row):
    form, steps = FORMS[row["form"]], row["text"].count("\n") + 1
    plan = read_plan(row["text"], elements_of(form))
    assert (len(plan.actions), plan.unread) == (row["actions"], row["unread"])
    if row["sft_steps"]:  # the last line is cut
        assert plan.unread <= 1
        assert len(plan.actions) >= steps - 1
    else:
        assert not any(
            getattr(one, "label", "") in {each.label for each in form.fields}
            for one in plan.actions
        )


PIECES = st.lists(
    st.sampled_from(
        [
            *"'\"\\\n\r\t a“”.\ud800\x00",
            *("' into the '", "field", " in the ", " no campo '", "Step 2:", "Type", "' with '"),
            *(". ", "' field", "Submit", "Click the 'x' button"),
        ]
    ),
    max_size=8,
).map("".join)
TEXTS = st.one_of(st.text(max_size=30), PIECES).filter(lambda text: "</think>" not in text)
LABELS = TEXTS.filter(bool)
ACTIONS = st.one_of(
    st.builds(Navigate, TEXTS.filter(lambda text: "/" in text)),
    st.builds(Type, LABELS, TEXTS, st.booleans()),
    *(st.builds(kind, LABELS, TEXTS) for kind in (Select, Check, Uncheck, Attach)),
    st.builds(Click, LABELS, st.sampled_from(["", "field", "box"])),
    st.builds(Submit, TEXTS),
    st.builds(Press, LABELS),
    st.builds(Done, TEXTS, st.booleans()),
)


@given(st.lists(ACTIONS, max_size=6), st.sampled_from(["en", "pt"]))
@example([Navigate("/)"), Navigate("(/a")], "en")
@settings(max_examples=150, deadline=None)
def test_reading_what_was_written_gives_the_same_actions(actions, language):
    assert list(read_steps(write_steps(actions, language)).actions) == actions


FORM = small_form()
ELEMENTS = elements_of(FORM)
BY_KIND = {
    kind: [one for one in ELEMENTS if one.kind == kind] for kind in {one.kind for one in ELEMENTS}
}
SEEN = st.sampled_from(sorted({one.label for one in ELEMENTS if one.kind != "button"}))
BRIDGED = st.one_of(
    st.builds(Navigate, st.just(URL)),
    st.builds(Type, SEEN, TEXTS, st.booleans()),
    st.builds(Select, st.just("Colour"), TEXTS),
    st.builds(Select, st.just("Way"), st.sampled_from(["Post", "Pick up"])),
    st.builds(Check, st.just("Days"), st.sampled_from(["Monday", "Tuesday"])),
    st.builds(Check, st.just("News"), st.just("")),
    st.builds(Uncheck, st.just("News"), st.just("")),
    st.builds(Attach, st.just("CV"), TEXTS),
    st.builds(Click, SEEN, st.sampled_from(["", "field", "box"])),
    st.builds(Submit, st.sampled_from(["", "Go!", "Submit"])),
    st.builds(Press, LABELS),
    st.builds(Done, TEXTS, st.booleans()),
)


def whole(text):
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") == text


@given(st.lists(BRIDGED, min_size=1, max_size=9), st.sampled_from(["en", "pt"]))
@settings(max_examples=120, deadline=None)
def test_the_bridge_loses_nothing(actions, language):
    text = write_agent(actions, ELEMENTS, language)
    if whole(write_steps(actions)):
        plan = read_plan(text, ELEMENTS)
        assert list(plan.actions) == actions
        assert plan.how == "json"


def test_agents_get_at_most_four_actions_at_once_with_the_names_they_know():
    outputs = json.loads(
        write_agent([Type("Name", str(n)) for n in range(9)] + [Submit()], ELEMENTS)
    )
    assert [len(output["action"]) for output in outputs] == [4, 4, 2]
    assert set(outputs[0]) == {
        "thinking",
        "evaluation_previous_goal",
        "memory",
        "next_goal",
        "action",
    }
    assert outputs[0]["action"][0] == {"input": {"index": 1, "text": "0", "clear": True}}
    with pytest.raises(ValueError, match="Elsewhere"):
        write_agent([Type("Elsewhere", "x")], ELEMENTS)


def test_prose_beside_an_action_is_believed_only_if_it_is_that_action():
    output = {
        "next_goal": "Type 'right' into the 'Name' field",
        "action": [{"input": {"index": 1, "text": "wrong"}}],
    }
    assert read_plan(json.dumps(output), ELEMENTS).actions == (Type("Name", "wrong"),)
    box = BY_KIND["checkbox"][0].index
    claimed = {"next_goal": "Uncheck the 'News' checkbox", "action": [{"click": {"index": box}}]}
    assert read_plan(json.dumps(claimed), ELEMENTS).actions == (Uncheck("News"),)
    plain = {
        "action": [
            {"click": {"index": box}},
            {"click_element": {"index": BY_KIND["radio"][1].index}},
        ]
    }
    assert read_plan(json.dumps(plain), ELEMENTS).actions == (
        Click("News", "box"),
        Select("Way", "Pick up"),
    )


@pytest.mark.parametrize(
    "item",
    [
        {"input": {"index": 99, "text": "x"}},
        {"input": {"index": True, "text": "x"}},
        {"input": {"index": 1}},
        {"input": "x"},
        {"evaluate": {"code": "alert(1)"}},
        {"click": {}},
        {"click": {"index": 1}, "input": {"index": 1, "text": "x"}},
        {},
    ],
)
def test_actions_that_are_none_are_counted(item):
    plan = read_plan(
        json.dumps({"action": [item, {"done": {"text": "", "success": True}}]}), ELEMENTS
    )
    assert plan.actions == (Done(),)
    assert plan.unread == (1 if item else 0)


def test_agent_json_is_read_leniently_and_in_lines():
    first = {"memory": "m", "action": [{"input": {"index": 1, "text": "a"}}]}
    lines = json.dumps(first) + "\n" + json.dumps({"action": [{"click": {"index": len(ELEMENTS)}}]})
    assert read_plan(lines, ELEMENTS).actions == (Type("Name", "a"), Submit("Go!"))
    fenced = "Here:\n```json\n" + json.dumps(first)[:-1] + ",}\n```"
    assert read_plan(fenced, ELEMENTS).actions == (Type("Name", "a"),)


@pytest.mark.parametrize(
    "text",
    [
        "{'action': [{'input': {'index': 1, 'text': 'a'}}, {'click': {'index': LAST}}]}",
        (
            "[{'memory': '', 'action': [{'input': {'index': 1, 'text': 'a'}}]}, {'action': "
            "[{'click': "
            "{'index': LAST}}]}]"
        ),
        (
            'Sure!\n```json\n{"action": [{"input": {"index": 1, "text": "a"}}, {"click": {"index": '
            "LAST,}},],}\n```\nDone."
        ),
        '{"action": [{"input": {"index": "1", "text": "a"}}, {"click": {"index": "LAST"}}]}',
        '[{"action": {"input": {"index": 1, "text": "a"}}}, {"action": {"click": {"index": LAST}}}]',
        '{action: [{input: {index: 1, text: "a"}}, {click: {index: LAST}}]}',
    ],
)
def test_agent_json_as_models_write_it(text):
    plan = read_plan(text.replace("LAST", str(len(ELEMENTS))), ELEMENTS)
    assert plan.actions == (Type("Name", "a"), Submit("Go!"))
    assert plan.how == "json"


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_any_text_is_read(text):
    read_plan(text, ELEMENTS)
    read_plan('{"action": ' + text, ELEMENTS)


def test_hostile_plans_are_read_in_no_time():
    texts = [
        *HOSTILE,
        "Type '" + "' into the '" * 4000,
        "Type " + "in to " * 9000,
        "Fill in the '" + "' field with '" * 3000,
        "Step 1: " * 7000,
        "Click " + "the button " * 5000,
        "\n".join(f"Type '{n}" for n in range(5000)),
        '[{"action": ' * 3000,
        '{"action": [' + '{"input": {"index": 1, "text": "x"}},' * 2000,
        "Type 'a\n" * 8000,
        "\\" * 50000,
        "Type '" + "' in '" * 1900,
        "Type 'a' into the '\n" + "' in '\n" * 5000,
        "Set " + "to the " * 1500,
        "Type 'a' into " + "Name " * 2000,
        "\n[" * 20000,
        "\n[" * 100 + "a" * 20000,
        "Type 'a' in the b: " + "a" * 11000,
        "Type 'a' into '" + ":*" * 5500 + "x'",
        *(" " * 11000 + "Type 'a'", "Click " + "and " * 2900, "Click " + ", " * 5000),
        *("_" * 11900, "\n".join(["_" * 11900] * 4), "_" * 5000 + " a" + "_" * 5000, "a_" * 5000),
    ]

    def within_limits(text):
        _read.cache_clear()
        assert len(read_plan(text, ELEMENTS).actions) <= MAX_STEPS

    assert most_work(within_limits, texts) < 150


def test_elements_are_numbered_over_all_pages():
    elements = elements_of(FORMS["exchange-nomination"])
    assert [one.index for one in elements] == list(range(1, len(elements) + 1))
    assert [one.page for one in elements if one.kind == "button"] == [1, 2, 3]


@pytest.mark.parametrize(
    "unit",
    [
        "\n“",
        "\n«",
        '\n"',
        "x “\n",
        "Type 'a' ",
        "' into the '\n",
        "click 'a', type \"b\" \n",
        "Name: “a”, 'b\n",
    ],
)
def test_the_work_on_a_plan_has_a_bound(unit):
    """A quotation that is open is read anew at every line, and each time in a hundred ways."""
    for size in (4000, 16000):
        text = unit * (size // len(unit))
        _read.cache_clear()
        assert calls(lambda: read_plan(text, ELEMENTS)) < 1_500_000  # noqa: B023  # called at once
        if read_plan(text, ELEMENTS).how == "none+costly":
            break  # as is a longer one, after as much work


def test_a_plan_of_too_much_work_is_unreadable_and_says_so_whatever_was_read_before():
    text = "Type 'a' into the 'Name' field\n" + "\n“" * 2000
    _read.cache_clear()
    for _ in range(2):
        plan = read_plan(text, ELEMENTS)
        assert (plan.how, plan.actions) == ("none+costly", ())


def test_long_values_of_many_lines_and_quotation_marks_are_read():
    said = 'It is nice; don\'t "quote" this, and go to the house (1, 2). ' * 30
    value = "\n".join(said[at : at + 90] for at in range(0, len(said), 90)).strip()
    for text in (f"Type '{value}' into the 'Name' field", f'Set the "Name" field to «{value}»'):
        assert read_plan(text + "\nClick the 'Go!' button", ELEMENTS).actions == (
            Type("Name", value),
            Submit("Go!"),
        )
