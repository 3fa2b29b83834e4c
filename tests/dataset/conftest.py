"""Fixtures for tests of `pivot verify` that leave out what takes most of its time and that they are not about."""

import pytest


@pytest.fixture
def no_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out `pivot.duckdb`; `test_readers` and `test_plants` see that verify compares it."""
    monkeypatch.setattr("pivot.datasets.verify.verify.view_problems", lambda _: [])


@pytest.fixture
def rows_alone(no_views: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check only the rows: each defect is found without card and views, in a third of the time."""
    monkeypatch.setattr("pivot.datasets.verify.verify.card_problems", lambda _: [])
