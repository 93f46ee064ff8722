"""The task on real pages in a real Chromium: its laws, its episodes turn by turn, and a film."""

import re
from io import BytesIO

import pytest
from PIL import Image

from plumbline.api import HOSTILE, check_task
from plumbline_miniwob.build import build_records
from plumbline_miniwob.options import read_options
from plumbline_miniwob.task import MiniwobTask

PAGES = ["click-button", "click-checkboxes", "enter-text"]


@pytest.fixture(scope="module")
def world(pool):
    from plumbline_miniwob.browser.world import BrowserWorld

    return BrowserWorld(pool)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


def opened(world, folder, **given):
    counts = {"train": 1, "val": 1, "test": 2, "held_out_tasks": 1}
    options = read_options({"tasks": PAGES, "held_out": PAGES[:1], "per_task": counts, **given})
    if not (folder / "manifest.json").is_file():
        build_records(options, folder, world)
    return MiniwobTask(folder, options, world)


def test_the_laws_of_a_task(world, folder):
    task = opened(world, folder)
    laws = check_task(task, "test", hostile=HOSTILE[::5])
    assert laws.oracle == 1
    assert laws.raised == ()
    assert laws.baselines["blank"] == 0
    assert laws.baselines["shuffled-gold"] < 1
    assert check_task(task, "held-out-tasks", hostile=()).oracle == 1


def test_the_oracle_turn_by_turn_earns_the_same(world, tmp_path):
    task = opened(world, tmp_path, turns=8, tasks=PAGES[1:], held_out=[])
    example = next(one for one in task.examples("test") if one.stratum == "enter-text")
    episode = task.episode(example)
    chats = task.demonstrations(example, 0)
    assert len(chats) == 2
    for chat in chats:
        assert episode.ask() == chat[:-1]
        episode.tell(chat[-1]["content"])
    assert episode.ask() is None
    assert episode.result()[1].total == 1


def test_a_film_has_a_picture_before_and_after_each_action(world, folder):
    task = opened(world, folder)
    example = next(one for one in task.examples("test") if one.stratum == "enter-text")
    frames = task.replay(example, example.gold)
    assert len(frames) == 3
    assert frames[0].caption.startswith("before: ")
    assert frames[-1].caption.endswith("reward 1")
    for frame in frames:  # of the page, and not of the black cover that it ends with
        picture = Image.open(BytesIO(frame.image))
        assert picture.format == "JPEG"
        assert picture.convert("L").resize((1, 1)).getpixel((0, 0)) > 128
    assert task.mistakes(example, example.gold) == []
    assert "; action 1" in task.mistakes(example, "Click [99]")[0].received


def test_what_is_typed_without_a_field_goes_to_what_has_the_focus(world, folder):
    task = opened(world, folder)
    example = next(one for one in task.examples("test") if one.stratum == "enter-text")
    typed, sent = example.gold.split("\n")
    text = typed.partition(" into ")[0]
    assert task.judge(example, f"Click [1]\n{text}\n{sent}")[1].total == 1
    failed = task.judge(example, f"{text}\n{sent}")[0].facts["failed"]
    assert failed.keys() == {1}
    assert re.match("refused: .*focus", failed[1])
