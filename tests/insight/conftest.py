"""Fixtures of the viewer's tests: a browser and sites."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pivot.insight.report.site import report
from pivot.tests.insight.browsing import CHROMIUM, FLAGS, Visit
from pivot.tests.insight.hostile import poison
from pivot.tests.stores import copy_store


@pytest.fixture(scope="module")
def browser(small_store: Path, tiny_store: Path) -> Iterator[Any]:
    """A running Chromium, after the stores: its event loop lets no build start in this thread."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium; as root on Debian `make test` installs it")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright; make dev installs it")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def sites(small_store: Path, tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Sites of a store, of one with few episodes, and of a store full of hostile texts."""
    folder = tmp_path_factory.mktemp("viewer")
    poisoned = copy_store(tiny_store, folder / "store")
    poison(poisoned)
    made = {"plain": small_store, "few": tiny_store, "hostile": poisoned}
    for name, store in made.items():
        report(store, folder / name)
    return {name: folder / name for name in made}


@pytest.fixture
def visit(browser: Any, sites: dict[str, Path]) -> Iterator[Visit]:
    visit = Visit(browser, f"file://{sites['plain']}/")
    yield visit
    visit.close()
