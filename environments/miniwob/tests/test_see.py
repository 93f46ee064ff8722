"""What a model reads of a page."""

import re

import pytest

from plumbline_miniwob import pages

TEXTS = {
    "login-user": "[1] textbox 'Username'\n[2] password 'Password'\n[3] button 'Login'",
    "click-test-2": "[1] button 'ONE'\n[2] button 'TWO'",
    "choose-date": "[1] textbox 'Date' (read-only)\n[2] button 'Submit'",
}


@pytest.mark.parametrize("task", sorted(TEXTS))
def test_pages_read_as_they_look(pool, task):
    assert pool.first(task, "d-0").text == TEXTS[task]


def test_a_checkbox_is_called_by_the_words_beside_it_and_a_table_reads_as_rows(pool):
    boxes = pool.first("click-checkboxes", "d-0")
    assert all(one.name for one in boxes.elements if one.role == "checkbox")
    assert len(boxes.text.split("\n")) == len(boxes.elements)
    rows = pool.first("read-table", "d-0").text.split("\n")[:-1]
    assert all(row.count(" | ") == 1 for row in rows)


def test_shapes_have_a_colour_a_size_and_a_place(pool):
    first = pool.first("click-shape", "d-0")
    assert any(one.role in ("circle", "rectangle", "triangle") for one in first.elements)
    assert first.text.count(" at (") == len(first.elements)


def test_what_is_not_the_tasks_is_not_shown(pool):
    for task in ("click-button", "draw-line", "terminal"):
        text = pool.first(task, "d-0").text
        assert not any(
            word in text for word in ("Last reward", "Episodes done", "START", "Time left")
        )


def test_values_and_states_are_those_of_the_moment(pool):
    acts = [{"do": "check", "on": {"ref": 1}}, {"do": "uncheck", "on": {"ref": 1}}]
    checked, cleared = pool.run("click-checkboxes", "d-0", [acts[:1], acts])
    assert "(checked)" in checked.text.split("\n")[0]
    assert "(checked)" not in cleared.text


def test_a_card_that_lies_face_down_shows_no_number(pool):
    assert [one.name for one in pool.first("find-greatest", "d-0").elements[:3]] == ["card"] * 3
    opened = pool.run("find-greatest", "d-0", [[{"do": "click", "on": {"ref": 2}}]])[0].text
    assert re.match(r"\[1\] item 'card' \[2\] item '\d+' \[3\] item 'card'\n", opened)


def test_a_menu_and_its_instruction_name_icons_alike(pool):
    seed = next(
        f"d-{n}"
        for n in range(20)
        if "labeled" not in pool.first("click-menu-2", f"d-{n}").utterance
    )
    acts = [
        {"do": "click", "on": {"ref": 1}},
        {"do": "hover", "on": {"name": "Playback"}},
        {"do": "wait", "ms": 300},
    ]
    asked = re.search(r"with the (\S+) icon", pool.first("click-menu-2", seed).utterance)
    assert f" icon {asked[1]}\n" in pool.run("click-menu-2", seed, [acts])[0].text + "\n"


def test_pale_shades_keep_their_colour_and_white_is_white(pool):
    for place in range(5):
        boxes = re.findall(r"box [^\[]*", pool.first("click-shades", f"d-{place}").text)
        assert len(boxes) == 12
        assert all(re.search("red|green|blue", box) for box in boxes)
        assert "box at" not in pool.first("click-color", f"d-{place}").text


def test_the_bitmap_of_a_digit_is_drawn_in_signs(pool):
    rows = pool.first("number-checkboxes", "d-0").text.split("\n")
    assert all(re.fullmatch("[.#]{4}", row) for row in rows[:7])
    assert all(row.count("checkbox") == 4 for row in rows[7:14])


def test_there_are_130_tasks(pool):
    assert len(pages.names()) == 130
