"""Test the harness of the benchmarks: rows are printed and kept as they are measured."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pivot.benchmarks import __main__ as command
from pivot.benchmarks.harness import Row, output_of


def _row(name: str, *, passed: bool = True) -> Row:
    return Row(name=name, ours=4.0, baseline=1.0, ratio=4.0, required=3.0, passed=passed, note="[s]econds")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Replace two benchmarks: one passes, one is interrupted by an error after its first row."""

    def good() -> Iterator[Row]:
        yield _row("first")
        assert [row["name"] for row in _kept(out)] == ["first"], "a row is kept before the next is measured"
        yield _row("second")

    def broken() -> Iterator[Row]:
        yield _row("third")
        raise ValueError("no server")

    out = tmp_path / "runs" / "rows.json"
    monkeypatch.setitem(sys.modules, "pivot.benchmarks.bench_export", SimpleNamespace(rows=good))  # pyright: ignore[reportArgumentType]
    monkeypatch.setitem(sys.modules, "pivot.benchmarks.bench_stats", SimpleNamespace(rows=broken))  # pyright: ignore[reportArgumentType]
    return out


def _kept(path: Path) -> list[dict[str, object]]:
    return json.loads(path.read_text(encoding="utf-8"))["rows"]


def test_rows_are_kept_and_decide_the_status(modules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["bench_export", "--out", str(modules)]) == 0
    assert command.main(["bench_stats", "--out", str(modules)]) == 1
    expected = [("first", True), ("second", True), ("third", True), ("bench_stats", False)]
    assert [(row["name"], row["passed"]) for row in _kept(modules)] == expected
    printed = capsys.readouterr().out
    assert "pass  first: ours 4, baseline 1, ratio 4, required 3\n      [s]econds" in printed
    assert "FAIL  bench_stats\n      broke: ValueError: no server" in printed
    assert json.loads(modules.read_text(encoding="utf-8"))["machine"]["cores"] >= 1


def test_the_error_of_a_child_process_is_shown() -> None:
    assert output_of([sys.executable, "-c", "print(input())"], "level") == "level\n"
    with pytest.raises(RuntimeError, match=r"(?s)status 1:\n.*ZeroDivisionError"):
        output_of([sys.executable, "-c", "1 / 0"])
