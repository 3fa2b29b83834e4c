"""Progress in lines: every 5 % or minute, and never a page of them."""

import re
import threading
from types import SimpleNamespace

import pytest
from pivot.core import lines as module
from pivot.core.lines import Lines
from pivot.tests.flow_runs import PATIENCE


def test_a_line_every_twentieth_and_every_minute() -> None:
    said: list[str] = []
    clock = SimpleNamespace(now=0.0)
    lines = Lines(said.append, {"rollout": "rolling out"}, lambda: clock.now)
    lines.start("rollout", 1000)
    for _ in range(1000):
        clock.now += 0.6
        lines.advance("rollout", 1)
    lines.finish("rollout")
    assert said[0] == "rolling out: 1000 episodes"
    assert said[1] == "rolling out: 50 of 1000 episodes (5 %) after 0:30, about 9:30 left"
    assert [re.findall(r"\((\d+) %\)", line) for line in said[1:]] == [[str(share)] for share in range(5, 100, 5)]
    said.clear()
    lines.start("label", 100)
    for _ in range(200):
        clock.now += 1
        lines.tick()
    assert said == ["label: 100 episodes", *(f"label: 0 of 100 episodes (0 %) after {n}:00" for n in (1, 2, 3))]
    lines.finish("label")
    clock.now += 1000
    lines.tick()
    assert len(said) == 4


def test_a_quick_stage_is_one_line() -> None:
    said: list[str] = []
    lines = Lines(said.append, {}, lambda: 0.0)
    lines.start("export", 40)
    for _ in range(40):
        lines.advance("export", 1)
    lines.finish("export")
    assert said == ["export: 40 episodes"]


def test_it_speaks_while_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = threading.Event()
    monkeypatch.setattr(module, "SILENCE", 0.0)
    with Lines(lambda line: heard.set() if " of 8 episodes" in line else None, {}) as lines:
        lines.start("rollout", 8)
        assert heard.wait(PATIENCE)
