"""An episode is decided by its seed and its acts: not by its page, not by the episodes before, not
by the turns."""

import re
import time
from dataclasses import replace

import pytest

from plumbline_miniwob.browser.pool import PlayedEpisode


def waiting(pool, seed):
    """Press ONE, wait as long as this seed says, press TWO."""
    seconds = int(re.search(r"wait (\d+)", pool.first("button-delay", seed).utterance)[1])
    one, two = ({"do": "click", "on": {"role": "button", "name": name}} for name in ("ONE", "TWO"))
    return [one, {"do": "wait", "ms": 1000 * seconds}, two]


POKES = [
    {"do": "type", "on": {"ref": 1}, "text": "abc"},
    {"do": "click", "on": {"ref": 1}},
    {"do": "drag", "on": {"x": 40, "y": 90}, "to": {"x": 90, "y": 120}},
    {"do": "scroll", "on": {"x": 40, "y": 90}, "by": [0, 60]},
]


@pytest.mark.parametrize("task", ["choose-date", "drag-box", "use-autocomplete"])
def test_the_same_seed_and_plan_come_to_the_same_in_a_fresh_page_and_after_other_episodes(
    pool, task
):
    pool.forget()
    first, plan = pool.first(task, "a-0"), pool.run(task, "a-0", [POKES])
    pool.run(task, "a-1", [POKES[:2]])
    assert (pool.first(task, "a-0"), pool.run(task, "a-0", [POKES])) == (first, plan)
    assert (
        pool.first(task, "a-1").text != first.text
        or pool.first(task, "a-1").utterance != first.utterance
    )


def test_time_is_the_pages_own_and_passes_by_actions_alone(pool):
    plan = waiting(pool, "a-0")
    plans = [plan, [plan[0], plan[2]], [{"do": "wait", "ms": 20000}]]
    waits, hurries, sleeps = pool.run("button-delay", "a-0", plans)
    # the page answers at once
    assert (waits.raw, waits.answered, waits.ms) == (1, True, 100 + plan[1]["ms"])
    assert hurries.raw <= 0
    assert (sleeps.raw, sleeps.answered, sleeps.reason) == (-1, True, "timed out")
    assert sleeps.ms < 11_000  # nothing happens any more once the page has answered


def test_plans_of_a_group_do_not_see_one_another(pool):
    right = pool.gold("enter-text", "a-3").acts
    wrong = [{**right[0], "text": "x"}, right[1]]
    results = pool.run("enter-text", "a-3", [wrong, right, [right[0]], [], right])
    assert [one.raw for one in results] == [-1, 1, 0, 0, 1]
    assert [one.answered for one in results] == [True, True, False, False, True]
    assert results[3].text == pool.first("enter-text", "a-3").text


def test_what_a_menu_was_left_with_is_gone_in_the_next_episode(pool):
    opens = [
        {"do": "click", "on": {"name": "Menu"}},
        {"do": "hover", "on": {"name": "Playback"}},
        {"do": "wait", "ms": 500},
    ]
    left, next_one = pool.run(
        "click-menu-2", "a-0", [opens, [opens[0], {"do": "click", "on": {"name": "Play"}}]]
    )
    assert "'Play'" in left.text
    assert "'Play'" not in next_one.text
    assert next_one.attempts[1].status == "not found"


def test_what_was_typed_before_cannot_be_taken_back_in_the_next_episode(pool):
    typed = [{"do": "type", "on": {"ref": ref}, "text": "abc"} for ref in (1, 2)]
    back = [{"do": "click", "on": {"ref": 1}}, {"do": "key", "key": "Control+Z"}]
    _, one = pool.run("login-user", "a-0", [typed, back])
    assert "[1] textbox 'Username' (focused)" in one.text
    (own,) = pool.run("login-user", "a-0", [[*typed, back[1]]])
    assert "[1] textbox 'Username' = 'abc'\n[2] password 'Password' (focused)" in own.text


def test_what_leaving_a_field_begins_does_not_fall_due_in_the_next_episode(pool):
    plan = pool.gold("enter-text", "a-0").acts
    begins = (
        "() => document.getElementById('tt').addEventListener('blur', () => setTimeout(() => "
        "core.endEpisode(-1), 50))"
    )
    pool.evaluate("enter-text", begins, None)
    left, right = pool.run("enter-text", "a-0", [plan[:1], [{"do": "wait", "ms": 500}]])
    pool.forget()
    assert (left.answered, right.answered) == (False, False)


@pytest.mark.parametrize(
    "typed",
    [
        "<b onclick=core.endEpisode(1)>x",
        "<img src=x onerror=core.endEpisode(1)>",
        "<iframe src=javascript:parent.core.endEpisode(1)>",
        "<iframe srcdoc='<script>parent.core.endEpisode(1)</script>'>",
    ],
)
def test_what_is_typed_is_no_script(pool, typed):
    """The page `terminal` shows a line that was sent to it as HTML."""
    visit = PlayedEpisode("terminal", "a-0")
    pool.act(
        visit, [{"do": "type", "on": {"ref": 1}, "text": typed}, {"do": "key", "key": "Enter"}]
    )
    time.sleep(0.2)  # frames and pictures are loaded in real time
    shown = pool.act(visit, [{"do": "click", "on": {"name": "x"}}])
    assert (shown.raw, shown.answered) == (0, False)


def test_turns_come_to_what_the_whole_plan_comes_to_wherever_they_are_played(pool):
    plan = waiting(pool, "a-0")
    visit = PlayedEpisode("button-delay", "a-0")
    shown = pool.act(visit, plan[:1])
    assert not shown.answered
    pool.run("button-delay", "a-1", [plan])  # the page is used by others in between
    pool.act(visit, plan[1:2])
    pool.forget()
    ended = replace(pool.act(visit, plan[2:]), elements=())
    assert ended == pool.run("button-delay", "a-0", [plan])[0]
    assert ended.raw == 1


def test_numbers_are_those_of_the_text_before_the_turn(pool):
    visit = PlayedEpisode("click-tab-2-easy", "a-0")
    number = next(
        one.ref for one in pool.first("click-tab-2-easy", "a-0").elements if one.role == "tab"
    )
    shown = pool.act(visit, [{"do": "click", "on": {"ref": number}}])
    assert shown.attempts[0].status == "ok"
    late = pool.act(visit, [{"do": "click", "on": {"ref": 99}}])
    assert [one.status for one in late.attempts] == ["ok", "not found"]


def test_limits_end_an_episode_and_say_so(pool):
    (long,) = pool.run("book-flight", "a-0", [[{"do": "hover", "on": {"x": 9, "y": 9}}] * 150])
    assert (len(long.attempts), long.cut, long.answered) == (100, True, False)
    (late,) = pool.run("focus-text", "a-0", [[{"do": "wait", "ms": 60000}] * 3])
    assert late.answered
    assert len(late.attempts) == 1
