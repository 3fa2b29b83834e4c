"""Pictures agree with the views, and equal stores give equal files."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pivot
import pytest
from PIL import Image
from pivot.core.errors import PluginError
from pivot.core.intervals import Interval
from pivot.datasets.sql.views import connect, query
from pivot.insight import plots
from pivot.insight.plots import lift_bars, save_plots
from pivot.insight.probe.rates import ArmRate
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.stores import change_rows, copy_store

OF_STORES = ["modes", "pivot_steps", "return_ladder", "slack"]


def test_a_store_is_drawn_and_equal_stores_give_equal_files(small_store: Path, tmp_path: Path) -> None:
    for suffix in ("png", "svg"):
        run("plot", small_store, "--out", tmp_path / suffix, "--format", suffix)
        made = sorted((tmp_path / suffix).iterdir())
        assert [path.stem for path in made] == OF_STORES
        assert {path.name: path.read_bytes() for path in made} == save_plots(small_store, suffix)
    for path in (tmp_path / "png").iterdir():
        with Image.open(path) as picture:
            assert picture.width > 400


def test_bars_are_as_high_as_the_views_say(small_store: Path) -> None:
    with connect(small_store) as connection:
        figure: Any = plots.pivot_histograms(small_store, connection)
        ladder: Any = plots.return_ladder(small_store, connection)
    rows = query(small_store, "SELECT env, sum(failures) FROM modes_by_step GROUP BY env ORDER BY env")[1]
    drawn = {
        axes.get_title(): sum(bar.get_height() for bar in axes.patches) for axes in figure.axes if axes.get_title()
    }
    assert drawn == {env: float(total) for env, total in rows}
    groups = dict(query(small_store, "SELECT env, count(*) FROM groups GROUP BY env")[1])
    for axes in ladder.axes:
        if axes.get_title():
            points = sum(len(each.get_offsets()) for each in axes.collections if each.get_label()[0] != "_")
            assert points == 8 * groups[axes.get_title()]


def test_modes_keep_their_colour_and_counts_are_whole_numbers(tmp_path: Path, small_store: Path) -> None:
    """Panels of a figure share colours and the scale of counts, and shares end at 100 %."""
    runs = {name: {"tasks": 2, "settings": {}} for name in ("sokoban", "frozenlake", "primitiveskill")}
    pivot.build({"environments": runs}, tmp_path / "store")
    with connect(tmp_path / "store") as connection:
        steps: Any = plots.pivot_histograms(tmp_path / "store", connection)
        slack: Any = plots.slack_histograms(tmp_path / "store", connection)
        modes: Any = plots.mode_bars(tmp_path / "store", connection)
    colours: dict[str, set[tuple[float, ...]]] = {}
    for axes in steps.axes:
        for bars, label in zip(*axes.get_legend_handles_labels(), strict=True):
            colours.setdefault(label, set()).add(bars.patches[0].get_facecolor())
    assert [len(each) for each in colours.values()] == [1] * len(colours)
    assert len(set.union(*colours.values())) == len(colours) > 3
    (legend,) = steps.legends
    shown = {
        text.get_text(): patch.get_facecolor() for text, patch in zip(legend.texts, legend.get_patches(), strict=True)
    }
    assert {name: {colour} for name, colour in shown.items()} == colours
    for figure in (steps, slack):
        assert len({axes.get_ylim() for axes in figure.axes if axes.get_title()}) == 1
        assert all(tick == int(tick) for tick in figure.axes[0].get_yticks())
    assert {axes.get_xlim() for axes in modes.axes if axes.get_title()} == {(0, 100)}


def test_failures_of_equal_slack_in_moves_and_turns_are_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "_read", lambda *_: {"lake": [("moves", 0, 19), ("turns", 0, 15)]})
    figure: Any = plots.slack_histograms(Path(), Mock())
    (bar,) = figure.axes[0].patches
    assert bar.get_height() == 34 and "moves or turns" in figure.axes[0].get_xlabel()
    assert figure.axes[0].get_xlim() == (-1, 1), "whole turns around the only bar"


def test_lifts_are_drawn_with_their_intervals_and_gaps_are_named() -> None:
    rates = [
        ArmRate("lake", "no_hint", 9, 0, 0, Interval(0.25, 0.125, 0.5), Interval(0, 0, 0), 0.5, 0.5),
        ArmRate("lake", "after", 0, 9, 0, None, None, 0.75, 0.5),
    ]
    sure = ArmRate("maze", "no_hint", 9, 0, 0, Interval(0.98, 0.95, 1.0), Interval(0, 0, 0), 1.0, 0.5)
    drawn: Any = lift_bars([*rates, sure])
    assert {axes.get_ylim() for axes in drawn.axes if axes.get_title()} == {(0, 100)}
    lifts: Any = lift_bars(rates)
    (axes,) = [axes for axes in lifts.axes if axes.get_title()]
    assert [bar.get_height() for bar in axes.patches] == [25.0]
    assert {text.get_text() for text in axes.texts} == {"25.0", "nothing\nleft"}


def test_without_the_library_the_install_line_is_said(small_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str, extra: str) -> None:
        raise PluginError(f"package {module!r} is not installed; get it with: pip install 'pivot-vlm[{extra}]'")

    monkeypatch.setattr(plots, "need", missing)
    assert "pip install 'pivot-vlm[plots]'" in str(error_of("plot", small_store))


def test_foreign_names_are_shown_literally(capfd: pytest.CaptureFixture[str]) -> None:
    """Control characters and formulas in names neither reach the terminal nor break the picture."""
    name = "\x1b[2J\x07 $\\frac{"
    assert plots.plain(name) == r"\x1b[2J\x07 \$\frac{"
    assert len(plots.plain("x" * 500)) == plots._LONGEST + 1
    rate = ArmRate(name, "after", 9, 0, 0, Interval(0.3, 0.1, 0.5), None, 0.5, 0.5)
    assert plots._encoded(lift_bars([rate]), "png")
    assert "\x1b" not in "".join(capfd.readouterr())


@pytest.mark.filterwarnings("error")
def test_long_names_leave_room_for_the_axes(small_store: Path, tmp_path: Path) -> None:
    root = copy_store(small_store, tmp_path / "store")
    for path in sorted((root / "labels").rglob("*.parquet")):
        name = path.relative_to(root).as_posix()
        change_rows(root, name, lambda rows: [row | {"failure_mode": "W" * 300} for row in rows])
    assert save_plots(root)
