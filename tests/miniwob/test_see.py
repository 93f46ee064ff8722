"""What a model reads of a page."""

import pytest

from plumbline.tasks.miniwob import pages

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
        assert not any(word in text for word in ("Last reward", "Episodes done", "START", "Time left"))


def test_values_and_states_are_those_of_the_moment(pool):
    acts = [{"do": "check", "on": {"ref": 1}}, {"do": "uncheck", "on": {"ref": 1}}]
    checked, cleared = pool.run("click-checkboxes", "d-0", [acts[:1], acts])
    assert "(checked)" in checked.text.split("\n")[0]
    assert "(checked)" not in cleared.text


def test_there_are_130_tasks(pool):
    assert len(pages.names()) == 130
