"""The script that measures the pages."""

import sys

from benchmarks import miniwob
from plumbline_miniwob.browser.pool import First, OracleEpisode
from plumbline_miniwob.world import Played

RIGHT = Played(1.0, True, "", (), "")


class Pool:
    def __init__(self, **_):
        self.closed = False

    def gold(self, task, seed):
        return OracleEpisode(First("", "", ()), (), RIGHT, "")

    def run(self, task, seed, plans, *, shows):
        return [RIGHT] * len(plans)

    def close(self):
        self.closed = True


def test_a_page_has_a_line_with_its_speed_and_whether_it_is_loaded_anew(monkeypatch, capsys):
    monkeypatch.setattr(miniwob, "EpisodePool", Pool)
    monkeypatch.setattr(sys, "argv", ["miniwob", "click-button", "drag-cube", "--seconds", "0.001"])
    miniwob.main()
    button, cube, *_ = capsys.readouterr().out.splitlines()
    assert button.startswith("click-button ")
    assert "episodes/s" in button
    assert "loaded" not in button
    assert "loaded" in cube
