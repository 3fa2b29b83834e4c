"""A real Chromium for the viewer's tests: pages that record errors, and the newest axe-core."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pivot.tests.flow_runs import PATIENCE

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync", *(["--no-sandbox"] if os.geteuid() == 0 else [])]

EPISODE = "main.episode[data-ready]"


def _expect(locator: Any) -> Any:
    return pytest.importorskip("playwright.sync_api").expect(locator)


class Visit:
    """A browser page that records errors and blocks requests to other servers."""

    def __init__(self, browser: Any, base: str, **options: Any) -> None:
        self.base = base
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}} | options)
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.context.route(re.compile(f"^(?!{re.escape(base)})"), self._refuse)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE * 1000)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("console", self._hear)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("dialog", lambda dialog: (self.problems.append("a dialog"), dialog.dismiss()))

    def _refuse(self, route: Any) -> None:
        self.problems.append(f"asked for {route.request.url}")
        route.abort()

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def open(self, address: str, ready: str) -> Any:
        self.page.goto("about:blank")
        self.page.goto(f"{self.base}index.html{address}")
        self.page.wait_for_selector(ready)
        return self.page

    def turn(self, address: str, ready: str) -> None:
        """Go to another page of the open site, without loading it again."""
        self.page.evaluate("address => { location.hash = address }", address)
        self.page.wait_for_selector(ready)

    def shows(self, selector: str, text: str) -> None:
        """Wait until the element shows the text: a page reacts to keys with a delay."""
        _expect(self.page.locator(selector).first).to_have_text(text, use_inner_text=True)

    def counts(self, selector: str, number: int) -> None:
        """Wait until so many elements fit the selector."""
        _expect(self.page.locator(selector)).to_have_count(number)

    def address(self, part: str, *, absent: bool = False) -> None:
        """Wait until the page's address holds the part, or no longer does."""
        self.page.wait_for_function("([part, absent]) => location.hash.includes(part) !== absent", arg=[part, absent])

    def close(self) -> None:
        self.context.close()
        assert self.problems == []
        assert all(url.startswith((self.base, "about:")) for url in self.asked), self.asked


def listed(site: Path) -> dict[str, list[Any]]:
    record = json.loads((site / "contents.json").read_text())
    words = record["words"]
    return {
        name: [words[name][each] for each in column] if name in words else column
        for name, column in record["columns"].items()
    }


def a_failure(columns: dict[str, list[Any]]) -> int:
    """Number of the first failure whose pivot is not its first step and whose next episode failed, too."""
    pivots = columns["pivot"]
    return next(
        i
        for i in range(len(pivots) - 1)
        if pivots[i] and pivots[i + 1] is not None and pivots[i] + 1 < columns["steps"][i]
    )


def axe_source() -> str:
    """Return the script of axe-core: the one that ``tests/install_axe.sh`` fetched, or that of a Python package."""
    fetched = Path(__file__).resolve().parents[2] / ".venv" / "axe-core" / "axe.min.js"
    if fetched.exists():
        return fetched.read_text(encoding="utf-8")
    package = pytest.importorskip("axe_playwright_python")
    return (Path(package.__path__[0]) / "axe.min.js").read_text(encoding="utf-8")


def violations(page: Any, within: str = "html", *, only_contrast: bool = False) -> list[tuple[str, str, str]]:
    """Return what axe-core finds in a part of a page: rule, impact and the first element."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(axe_source())
    options = {"preload": False, "resultTypes": ["violations"]}
    options |= {"runOnly": ["color-contrast"]} if only_contrast else {}
    script = "([within, options]) => axe.run(within, options).then((found) => found.violations)"
    findings = page.evaluate(script, [within, options])
    return [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in findings]
