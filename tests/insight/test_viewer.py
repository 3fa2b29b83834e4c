"""The viewer in a real Chromium and its server: keys and addresses, literal texts, no requests to other servers."""

import http.client
import json
import shutil
import unicodedata
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import Mock

import pytest
from pivot.datasets.store.nights import nights_of
from pivot.insight.report.contents import Selection, contents
from pivot.insight.report.plain import json_text, script
from pivot.insight.report.serve import HOST, ViewServer
from pivot.insight.report.site import ASSETS, Site, asset, report
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.flow_runs import PATIENCE
from pivot.tests.insight.browsing import EPISODE, Visit, a_failure, listed, violations
from pivot.tests.insight.hostile import HOSTILE, LONG, everything
from pivot.tests.insight.test_report import ALL
from pivot.tests.stores import copy_store

pytestmark = pytest.mark.xdist_group("viewer")


@contextmanager
def serving(site: Site, say: Callable[[str], None] = lambda _: None) -> Iterator[ViewServer]:
    """Answer requests in another thread."""
    with ViewServer(site, 0, say) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def test_an_episode_opens_at_its_pivot_and_keys_lead_on(visit: Visit, sites: dict[str, Path]) -> None:
    """Catch a page that opens at another step than the fatal one, or keys that lead elsewhere than they say."""
    columns = listed(sites["plain"])
    number = a_failure(columns)
    pivot = columns["pivot"][number]
    page = visit.open(f"#/episode/{columns['id'][number]}", EPISODE)
    visit.shows(".step h2", f"Step {pivot} pivot")
    visit.shows(".tile.pivot .at", f"{pivot} pivot")
    assert columns["mode"][number] in page.inner_text("h1")
    visit.counts(".pair.plan", 1)
    page.keyboard.press("ArrowRight")
    visit.address(f"step={pivot + 1}")
    visit.shows(".step h2", f"Step {pivot + 1}")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    visit.shows(".step h2", f"Step {pivot - 1}")
    page.keyboard.press("p")
    visit.shows(".step h2", f"Step {pivot} pivot")
    visit.shows(".moves .place", f"{number + 1} of 48")
    page.keyboard.press("j")
    page.wait_for_selector(f'main.episode[data-ready="{number + 1}"]')
    visit.address(columns["id"][number + 1])
    visit.address("step", absent=True)
    page.keyboard.press("k")
    page.wait_for_selector(f'main.episode[data-ready="{number}"]')
    page.keyboard.press("?")
    visit.counts("dialog[open]", 1)
    page.keyboard.press("Escape")
    visit.counts("dialog[open]", 0)
    page.keyboard.press("/")
    page.wait_for_selector("#search:focus")
    page.keyboard.type("zzz no such thing")
    page.wait_for_selector(".nothing")


def test_an_episode_of_two_stores_has_two_pages(browser: Any, tiny_store: Path, tmp_path: Path) -> None:
    for name in "ab":
        copy_store(tiny_store, tmp_path / "stores" / name)
    report(tmp_path / "stores", tmp_path / "site")
    visit = Visit(browser, f"file://{tmp_path}/site/")
    page = visit.open("#/episodes", ".row")
    for link in (".row a", ".grid-link a", "text=back to the episode"):
        page.click(link)
    assert page.wait_for_selector(EPISODE).get_attribute("data-ready") == "0"
    visit.close()


def test_playing_shows_what_happened_beside_what_was_possible(visit: Visit, sites: dict[str, Path]) -> None:
    columns = listed(sites["plain"])
    number = a_failure(columns)
    record = json.loads((sites["plain"] / f"episodes/0/{number}.json").read_text())
    page = visit.open(f"#/episode/{columns['id'][number]}", EPISODE)
    pivot, plan = columns["pivot"][number], record["witness"]
    shown = page.locator(".pair.plan img")
    assert [shown.nth(i).get_attribute("src") for i in range(2)] == [frame["src"] for frame in plan["frames"][:2]]
    happened = page.locator(".pair.past img")
    assert happened.nth(1).get_attribute("src") == record["frames"][pivot + 1]["src"]
    for image in page.locator(".pair img").all():
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth > 0)")
    page.keyboard.press("Space")
    page.wait_for_selector('.tile.current [aria-current="step"] >> nth=0')
    page.wait_for_function(
        "step => document.querySelector('.step h2')?.innerText.includes(step)", arg=f"Step {pivot + 1}"
    )
    page.keyboard.press("Space")


def test_filters_live_in_the_address(visit: Visit, sites: dict[str, Path]) -> None:
    columns = listed(sites["plain"])
    expected = [i for i, mode in enumerate(columns["mode"]) if mode == "deadlock" and columns["env"][i] == "sokoban"]
    page = visit.open("#/episodes?env=sokoban&mode=deadlock", ".row")
    visit.shows(".total", f"{len(expected)} of 48 episodes")
    visit.counts(".facet input:checked", 2)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(f'main.episode[data-ready="{expected[1]}"]')
    visit.address("mode=deadlock")
    visit.shows(".moves .place", f"2 of {len(expected)}")
    page.keyboard.press("j")
    page.wait_for_selector(f'main.episode[data-ready="{expected[2]}"]')
    page.keyboard.press("Escape")
    page.wait_for_selector(".row.selected")
    page.click('.facet label:has-text("deadlock")')
    page.wait_for_selector('.total:has-text("24 of 48")')
    visit.address("mode", absent=True)
    page.fill("#search", columns["id"][7][-12:])
    page.wait_for_selector('.total:has-text("1 of 48")')
    page.fill("#search", "</think>")
    page.check(".replies input")
    page.wait_for_selector('.total:has-text("24 of 48")')
    page.select_option(".sort select", "pivot")
    visit.address("sort=pivot")
    page.go_back()


def test_a_bar_leads_to_its_failures(visit: Visit) -> None:
    page = visit.open("#/overview", ".charts")
    for name in ("pivot step", "slack at the pivot"):
        bar = page.locator(f'.stack a[title*="{name}"]').first
        count = bar.get_attribute("title").split()[0]
        bar.click()
        visit.shows(".total", f"{count} of 48 episodes")
        page.go_back()
        page.wait_for_selector(".charts")
    page.locator(".ladder a").last.dispatch_event("click")
    page.wait_for_selector(".level-grid")


IGNORABLE = {0x34F, 0x3164, 0xFE0F, 0x2800}
"""Invisible characters of the hostile texts that no Unicode category marks as such."""


def spelled(text: str) -> str:
    """Return the text with characters spelled out that are invisible or reorder others."""
    return "".join(
        (f"\\u{{{ord(each):x}}}" if ord(each) > 0xFFFF else f"\\u{ord(each):04x}")
        if each not in "\n\t "
        and (unicodedata.category(each) in ("Cc", "Cf", "Co", "Zl", "Zp", "Zs") or ord(each) in IGNORABLE)
        else each
        for each in text
    )


def text_of(page: Any, selector: str) -> str:
    return page.locator(selector).first.evaluate("element => element.textContent")


def test_texts_are_shown_as_texts(browser: Any, sites: dict[str, Path]) -> None:
    """Catch a foreign text that becomes markup or code of the page."""
    visit = Visit(browser, f"file://{sites['hostile']}/")
    columns = listed(sites["hostile"])
    number = next(i for i, pivot in enumerate(columns["pivot"]) if pivot is not None)
    page = visit.open(f"#/episode/{columns['id'][number]}", EPISODE)
    page.click('[aria-label="Reply"] .more')
    assert text_of(page, '[aria-label="Reply"] pre') == spelled(everything() + LONG)
    for selector in ("blockquote", ".reasons"):
        page.locator(f"{selector} .more").first.click()
        assert spelled(everything() + LONG) in text_of(page, f"{selector} pre")
    made = page.evaluate(
        "document.querySelectorAll('#app :is(script, img:not(.frame, .sent img), b b, svg svg), iframe').length"
    )
    visit.open(f"#/episodes?q={'script'}", ".row")
    assert HOSTILE[0] in page.locator(".row .said").first.evaluate("element => element.textContent")
    visit.open("#/overview", ".tables")
    visit.open("#/episode/%3Cimg%20src=x%20onerror=alert(1)%3E", "h1:has-text('No such episode')")
    visit.open("#/episode/%E0%A4%A", "h1:has-text('No such episode')")
    visit.turn("#/<script>alert(1)</script>?env=<b>&q=%", "h1:has-text('No such page')")
    for name in ("__proto__", "constructor", "toString"):
        visit.turn(f"#/level/{name}", "h1:has-text('No such level')")
        visit.turn(f"#/{name}?sort={name}&env={name}", "h1:has-text('No such page')")
    assert (made, page.evaluate("[typeof window.pwned, ({}).polluted]")) == (0, ["undefined", None])
    with pytest.raises(Exception, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<b>markup</b>'")
    visit.problems = [problem for problem in visit.problems if "TrustedHTML" not in problem]
    visit.close()


def axe_finds(page: Any, within: str = "html") -> list[Any]:
    """Return all violations in the light scheme, and those of the dark one, which differs in its colours alone."""
    page.emulate_media(color_scheme="light")
    problems = violations(page, within)
    page.emulate_media(color_scheme="dark")
    return problems + violations(page, within, only_contrast=True)


def test_axe_finds_nothing(browser: Any, sites: dict[str, Path]) -> None:
    """Catch a page that some people cannot read or operate."""
    columns = listed(sites["few"])
    visit = Visit(browser, f"file://{sites['few']}/", bypass_csp=True)
    name = columns["id"][a_failure(columns)]
    for address, ready in addresses(name):
        page = visit.open(address, ready)
        if ready == EPISODE:
            while page.locator("details:not([open])").count():
                page.locator("details:not([open]) > summary").first.click()
        assert axe_finds(page) == [], address
    page = visit.open("#/episodes", ".row")
    for key, dialog in (("?", "#help-title"), ("", "#export-title")):
        if key:
            page.keyboard.press(key)
        else:
            page.click(".export")
        page.wait_for_selector(f"dialog[open] {dialog}")
        assert axe_finds(page, "dialog[open]") == [], dialog
        page.keyboard.press("Escape")
    visit.close()


def addresses(name: str) -> list[tuple[str, str]]:
    """Return an address of every kind of page, with an element to wait for."""
    return [
        ("", ".failure img.frame"),
        ("#/episodes?sort=-return&outcome=failed", ".row"),
        ("#/episodes?q=nothing+such", ".nothing"),
        (f"#/episode/{name}", EPISODE),
        (f"#/level/{name}", ".level-grid"),
        ("#/overview", ".tables"),
    ]


def test_nothing_overflows_on_a_narrow_screen_and_the_theme_is_kept(browser: Any, sites: dict[str, Path]) -> None:
    columns = listed(sites["plain"])
    visit = Visit(browser, f"file://{sites['plain']}/", viewport={"width": 360, "height": 740})
    page = visit.page
    for address, ready in addresses(columns["id"][a_failure(columns)]):
        visit.open(address, ready)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    visit.open("#/episodes", ".row")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark != light
    visit.close()


def test_the_served_site_works_alike(browser: Any, small_store: Path, sites: dict[str, Path]) -> None:
    columns = listed(sites["plain"])
    site = Site(small_store, Selection())
    with serving(site) as server:
        visit = Visit(browser, server.address)
        page = visit.open(f"#/episode/{columns['id'][a_failure(columns)]}", EPISODE)
        for image in page.locator(".pair img").all():
            assert image.evaluate("image => image.decode().then(() => image.naturalWidth > 0)")
        visit.open("#/overview", ".charts")
        visit.close()
    site.close()


@pytest.fixture(scope="module")
def large_site(small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list of 10,000 episodes without their pages: the rows of a small store again and again."""
    folder = tmp_path_factory.mktemp("large")
    record = contents(small_store, nights_of(small_store), Selection()).record
    columns, times = record["columns"], 209
    for name, column in columns.items():
        columns[name] = (column * times)[:10_000]
    words = record["words"]
    words["task"] = [f"{name}-{turn}" for turn in range(times) for name in words["task"]]
    count = len(words["task"]) // times
    columns["task"] = [each + count * (number // 48) for number, each in enumerate(columns["task"])]
    columns["id"] = [f"{name}-{number}" for number, name in enumerate(columns["id"])]
    columns["guidance"] = [f"{text} ({number})" for number, text in enumerate(columns["guidance"])]
    record |= {"count": 10_000, "stored": 10_000}
    made = {name: asset(name) for name in ASSETS} | {"contents.js": script("contents", json_text(record))}
    for name, content in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_a_list_of_ten_thousand_episodes_holds_the_rows_that_are_seen(browser: Any, large_site: Path) -> None:
    visit = Visit(browser, f"file://{large_site}/")
    page = visit.open("#/episodes", ".row")
    assert page.inner_text(".total") == "10,000 of 10,000 episodes" and page.locator(".row").count() < 60
    page.locator(".rows").evaluate("element => { element.scrollTop = element.scrollHeight; }")
    page.wait_for_selector('.row[aria-posinset="10000"]')
    assert page.locator(".row").count() < 60
    visit.problems = [problem for problem in visit.problems if "ERR_FILE_NOT_FOUND" not in problem]
    visit.close()


@pytest.fixture(scope="module")
def live(small_store: Path) -> Iterator[Site]:
    live_site = Site(small_store, ALL)
    yield live_site
    live_site.close()


@pytest.fixture(scope="module")
def server(live: Site) -> Iterator[ViewServer]:
    with serving(live) as answering:
        yield answering


def ask(
    server: ViewServer, path: str, method: str = "GET", host: str | None = None
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=PATIENCE)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", f"{HOST}:{server.server_port}" if host is None else host)
    connection.endheaders()
    answer = connection.getresponse()
    result = answer.status, answer.read(), dict(answer.getheaders())
    connection.close()
    return result


def test_the_server_answers_nothing_else(server: ViewServer, small_store: Path) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    paths = (
        "/etc/passwd /../run.json /run.json /viewer/../../../run.json /%2e%2e/run.json //etc/passwd "
        "/episodes/0/99999.json /pages/0/999999999.js /frames/99/0.png /frames/0/999999.png /frames/0/w99-0.png "
        "/frames/0/-1.png /viewer/ /episodes/0/0.json/x /contents.JSON"
    )
    for name in paths.split():
        assert ask(server, name)[0] == 404, name
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(server, "/", method)[0] == 501
    assert (small_store / "run.json").exists()


def test_the_server_answers_its_own_name_only(server: ViewServer) -> None:
    port = server.server_port
    for host in ("evil.example", f"evil.example:{port}", HOST, f"{HOST}:{port + 1}", "", f"[::1]:{port}"):
        assert ask(server, "/contents.json", host=host)[0] == 421, host
    status, body, headers = ask(server, "/contents.json?x=1", host=f"localhost:{port}")
    assert (status, json.loads(body)["count"]) == (200, 48)
    assert headers["Content-Type"] == "application/json"
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "http" not in policy and "unsafe" not in policy
    assert [ask(server, "/", method)[1] for method in ("HEAD", "GET")] == [b"", asset("index.html")]


def test_only_a_browser_that_leaves_early_has_no_traceback(
    server: ViewServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, tracebacks in ((BrokenPipeError, 0), (ConnectionResetError, 0), (KeyError, 1)):
        monkeypatch.setattr(server.site, "content", Mock(side_effect=error))
        with pytest.raises(ConnectionError):
            ask(server, "/")
        assert capsys.readouterr().err.count("Traceback") == tracebacks


def test_a_store_that_breaks_while_one_looks_is_said(small_store: Path, tmp_path: Path) -> None:
    store = copy_store(small_store, tmp_path / "store")
    said: list[str] = []
    with serving(Site(store, ALL), said.append) as answering:
        shutil.rmtree(store / "steps")
        status, body, _ = ask(answering, "/episodes/0/0.json")
    assert status == 500 and b"steps" in body and said == [body.decode().rstrip("\n")]


def test_the_command_serves_until_it_is_stopped(small_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses: list[str] = []

    def stop(server: ViewServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ViewServer, "serve_forever", stop)
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    said = run("view", small_store, "--limit", "3")
    assert said.startswith(f"6 episodes at {addresses[0]} until Ctrl-C") and "http://127.0.0.1:" in addresses[0]
    run("view", small_store, "--no-open")
    assert len(addresses) == 1


def test_a_port_in_use_is_said(server: ViewServer, small_store: Path) -> None:
    message = str(error_of("view", small_store, "--port", str(server.server_port), "--no-open"))
    assert f"port {server.server_port} of 127.0.0.1 cannot be used" in message and "--port" in message
