"""Pages of the viewer for runs and requests: facets, sorting, export, levels, prompts, retries."""

import base64
import csv
import io
import json
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.core.progress import Reporter
from pivot.insight.probe.records import ProbeSettings
from pivot.insight.probe.run import probe_store
from pivot.insight.report.contents import CHUNK, chunk_name, page_name
from pivot.insight.report.plain import json_text, script
from pivot.insight.report.site import report
from pivot.models.preflight import SEED
from pivot.tests.flow_runs import config_of
from pivot.tests.flows.test_writers import QUICK, coach
from pivot.tests.insight.browsing import EPISODE, Visit, a_failure, listed
from pivot.tests.insight.test_report import pages
from pivot.tests.models.chat_server import MODEL, ChatServer, number_of, served, walker
from pivot.tests.models.coaching import asked

pytestmark = pytest.mark.xdist_group("viewer")


def ids(page: Any) -> list[str]:
    """The addresses of the first rows."""
    return [each.get_attribute("href").split("/")[-1].split("?")[0] for each in page.locator(".row > a").all()]


def test_facets_filter_by_split_policy_writer_reason_slack_and_proof(visit: Visit, sites: dict[str, Path]) -> None:
    """Catch a filter that keeps other episodes than its count says."""
    columns = listed(sites["plain"])
    page = visit.open("#/episodes", ".row")
    for facet, column in (("split", "split"), ("policy", "policy"), ("writer", "writer"), ("slack", "slack")):
        value = next(each for each in columns[column] if each not in (None, ""))
        shown = f"{value:g}" if isinstance(value, float) else value
        page.locator(f".of-{facet} label", has_text=str(shown)).first.click()
        visit.shows(".total", f"{columns[column].count(value)} of 48 episodes")
        page.click(".clear")
    proved = sum(each is True for each in columns["proved"])
    page.click('.of-proof label:has-text("proved")')
    visit.shows(".total", f"{proved} of 48 episodes")


def test_labels_are_filtered_by_reasons_with_commas_percent_signs_and_markup(
    browser: Any, sites: dict[str, Path]
) -> None:
    columns = listed(sites["hostile"])
    visit = Visit(browser, f"file://{sites['hostile']}/")
    page = visit.open("#/episodes", ".row")
    page.locator(".of-reason label").first.click()
    visit.shows(".total", f"{sum(bool(each) for each in columns['reasons'])} of {len(columns['id'])} episodes")
    assert page.locator(".of-reason input:checked").count() == 1
    visit.close()


def test_the_list_is_sorted_by_any_column(visit: Visit, sites: dict[str, Path]) -> None:
    """Catch a list in another order than its column says, or one that puts missing values first."""
    columns = listed(sites["plain"])
    for name in ("pivot", "task", "id"):
        column = columns[name]
        order = sorted(range(48), key=lambda i: ((value := column[i]) is None, 0 if value is None else value, i))
        shown = ids(visit.open(f"#/episodes?sort={name}", ".row"))
        assert shown == [columns["id"][i] for i in order[: len(shown)]]
        values = dict(zip(columns["id"], column, strict=True))
        down = [values[each] for each in ids(visit.open(f"#/episodes?sort=-{name}", ".row"))]
        present = [each for each in down if each is not None]
        assert present == sorted(present, reverse=True)
        assert down[: len(present)] == present  # what has no value comes last


def test_the_selection_is_exported_as_csv_and_json(visit: Visit, sites: dict[str, Path]) -> None:
    columns = listed(sites["plain"])
    failed = [
        i for i, outcome in enumerate(columns["outcome"]) if outcome == "failed" and columns["env"][i] == "sokoban"
    ]
    page = visit.open("#/episodes?outcome=failed&env=sokoban", ".row")
    page.click(".export")
    page.click('dialog[open] label:has-text("guidance")')
    texts: dict[str, str] = {}
    for kind in ("CSV", "JSON"):
        with page.expect_download() as download:
            page.click(f'dialog[open] button:text-is("{kind}")')
        texts[kind] = Path(download.value.path()).read_text(encoding="utf-8")
    records = json.loads(texts["JSON"])
    assert [each["id"] for each in records] == [columns["id"][i] for i in failed]
    assert [each["pivot"] for each in records] == [columns["pivot"][i] for i in failed]
    rows = list(csv.DictReader(io.StringIO(texts["CSV"])))
    assert [row["guidance"] for row in rows] == [columns["guidance"][i] for i in failed]
    assert list(rows[0]) == ["id", "env", "task", "sample", "outcome", "mode", "pivot", "return", "label", "guidance"]
    # Strangers' texts must not become formulas of a spreadsheet.
    assert page.evaluate("['=1+1', '@x', -1].map(Pivot.csvCell)") == ["'=1+1", "'@x", "-1"]


def test_the_rollouts_of_a_level_are_a_grid(visit: Visit, sites: dict[str, Path]) -> None:
    columns = listed(sites["plain"])
    number = a_failure(columns)
    page = visit.open(f"#/episode/{columns['id'][number]}", EPISODE)
    page.click(".grid-link a")
    page.wait_for_selector('.level-grid[data-ready="yes"]')
    rollouts = [i for i in range(48) if columns["task"][i] == columns["task"][number]]
    grid = page.locator('.level-grid[data-ready="yes"]')
    assert grid.locator("tbody tr").count() == len(rollouts) == 8
    assert grid.locator(".cell.pivot").count() == sum(columns["pivot"][i] is not None for i in rollouts)
    assert grid.locator(".cell .frame").count() == sum(columns["steps"][i] + 1 for i in rollouts)
    for image in grid.locator("img").all()[:12]:
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth > 0)")
    page.keyboard.press("Escape")
    page.wait_for_selector(EPISODE)


def sources(page: Any, selector: str) -> list[str]:
    return page.evaluate(
        "selector => [...document.querySelectorAll(selector)].map((image) => image.getAttribute('src'))", selector
    )


def test_long_texts_do_not_stretch_a_page(browser: Any, sites: dict[str, Path]) -> None:
    visit = Visit(browser, f"file://{sites['hostile']}/")
    columns = listed(sites["hostile"])
    number = next(i for i, pivot in enumerate(columns["pivot"]) if pivot is not None)
    page = visit.open(f"#/episode/{columns['id'][number]}", EPISODE)
    assert page.evaluate("document.documentElement.scrollHeight") < 6000
    while page.locator(".more").count():
        page.locator(".more").first.click()
    assert page.evaluate("document.documentElement.scrollHeight") < 8000
    visit.close()


def test_a_list_that_is_left_while_it_scrolls_breaks_nothing(visit: Visit) -> None:
    page = visit.open("#/episodes", ".row")
    for _ in range(8):
        page.evaluate("""() => {
            const rows = document.querySelector('.rows');
            rows.scrollTop = 600;
            Pivot.go('#/overview');
            rows.dispatchEvent(new Event('scroll'));
        }""")
        page.wait_for_selector(".tables")
        page.evaluate("Pivot.go('#/episodes')")
        page.wait_for_selector(".row")


Body = dict[str, Any]


def player(body: Body) -> Body:
    """Answer as policy, or with guidance where a schema is given; half of the first answers are unusable."""
    if "response_format" not in body:
        return walker(body)
    refuses = len(body["messages"]) == 1 and number_of(asked(body)) % 2 == 0
    return {"text": "Rather not."} if refuses else coach(body)


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Body]]]:
    """The site of a probed, served store, and every request that the server got."""
    folder = tmp_path_factory.mktemp("sent")
    with served(player) as server, ThreadPoolExecutor(1) as thread:
        thread.submit(_make, folder, server).result()  # a thread with a browser has an event loop already
    yield folder / "site", [body for body in server.log.bodies if body["seed"] != SEED]


def _make(folder: Path, server: ChatServer) -> None:
    part = {"name": "openai", "options": {"model": MODEL}, "service": {**QUICK, "base_url": server.url}}
    pivot.build(config_of({"sokoban": 3}, policy=part, teacher=part), folder / "store")
    probe_store(folder / "store", ProbeSettings(), Reporter())
    report(folder / "store", folder / "site")


def as_sent(site: Path, page: Any, request: Any) -> str:
    """Return the body of a request as a page shows it."""
    messages = [
        {"role": message["role"], "content": [_part_of(site, page, part) for part in message["parts"]]}
        for message in request["messages"]
    ]
    return json.dumps({"messages": messages, **json.loads(request["fields"])}, sort_keys=True)


def _part_of(site: Path, page: Any, part: Any) -> Any:
    if "text" in part:
        return {"type": "text", "text": page["texts"][part["text"]]}
    data = base64.b64encode((site / part["src"]).read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def test_every_request_is_on_a_page_as_it_was_sent(probed: tuple[Path, list[Body]]) -> None:
    site, bodies = probed
    shown = [as_sent(site, page, request) for page in pages(site) for request in page["requests"]]
    played = {json.dumps(body, sort_keys=True) for body in bodies if "response_format" not in body}
    assert len(shown) > 100 and {*shown} <= played  # the others are those of retries


def test_every_call_shows_its_answer_and_what_it_cost(probed: tuple[Path, list[Body]]) -> None:
    site, bodies = probed
    retries = 0
    answers: list[str] = []
    for page in pages(site):
        assert all(each["call"]["prompt_tokens"] == 100 and each["call"]["latency"] > 0 for each in page["requests"])
        if page["outcome"] == "failed":
            answers += [call["answer"] for call in page["analyzer"]["calls"]]
            assert {retry["arm"] for retry in page["retries"]} >= {"no_hint", "after", "self", "teacher"}
        retries += sum(retry["status"] == "done" for retry in page["retries"])
    assert retries > 40 and len(answers) > 8
    assert set(answers) <= {player(body)["text"] for body in bodies if "response_format" in body}


def test_requests_and_retries_of_a_probed_served_store_are_shown(browser: Any, probed: tuple[Path, list[Any]]) -> None:
    """Catch a page that leaves out or alters what a server got or answered."""
    site, bodies = probed
    record = next(page for page in pages(site) if page["retries"] and page["label"]["accepted"])
    visit = Visit(browser, f"file://{site}/")
    page = visit.open(f"#/episode/{record['episode']['episode_id']}", EPISODE)
    assert page.locator(".retry").count() == len(record["retries"])
    while page.locator("details:not([open])").count():
        page.locator("details:not([open]) > summary").first.click()
    shown = page.evaluate("[...document.querySelectorAll('main .block pre')].map((each) => each.textContent)")
    pivot = record["label"]["pivot_step"]
    needed = [
        record["texts"][part["text"]]
        for message in [*record["requests"][pivot]["messages"], record["analyzer"]["prompt"]["messages"][0]]
        for part in message["parts"]
        if "text" in part
    ]
    needed += [part for retry in record["retries"] for part in retry["responses"] or ()]
    needed += [
        record["requests"][pivot]["fields"],
        record["analyzer"]["completion"],
        record["analyzer"]["calls"][0]["answer"],
    ]
    assert set(needed) <= set(shown)
    assert json.loads(record["requests"][pivot]["fields"])["seed"] in {body["seed"] for body in bodies}
    assert {record["analyzer"]["collage"], record["analyzer"]["panel"]} <= set(sources(page, ".analyzer img"))
    tokens = page.locator(".calls tfoot td.number").all_inner_texts()
    calls = [*(request["call"] for request in record["requests"]), *record["analyzer"]["calls"]]
    assert tokens[:3] == [str(len(calls)), str(100 * len(calls)), str(20 * len(calls))]
    visit.close()


def test_free_prose_is_shown_as_unverified(browser: Any, sites: dict[str, Path], tmp_path: Path) -> None:
    columns = listed(sites["plain"])
    number = a_failure(columns)
    site = shutil.copytree(sites["plain"], tmp_path / "site")
    records = [json.loads(path.read_text()) for path in (site / f"{page_name(i)}.json" for i in range(CHUNK * 6))]
    records[number]["label"] |= {"guidance_prose": "Any push of it loses the room.", "guidance_source": "prose"}
    records[number]["steps"][columns["pivot"][number]]["finish_reason"] = ""  # an import may have none
    for chunk in range(6):
        text = json_text(records[chunk * CHUNK : (chunk + 1) * CHUNK])
        (site / f"{chunk_name(chunk)}.js").write_bytes(script(chunk_name(chunk), text))
    visit = Visit(browser, f"file://{site}/")
    page = visit.open(f"#/episode/{columns['id'][number]}", EPISODE)
    visit.shows(".verdict .prose", "Any push of it loses the room.")
    assert "stopped" not in page.inner_text(".step .line")
    assert page.locator(".verdict h3 .badge").all_inner_texts() == ["unverified, written by the model"] * 2
    visit.close()


ADDRESSES = [
    *("#/episodes", "#/overview", "#/__proto__", "#/level/x", "#/episode/%E0%A4%A"),
    *("#/?sort=__proto__", "#/episodes?q=a"),
]
KEYS = ["j", "k", "p", "g", "o", "t", "?", "/", "Enter", "ArrowRight", "ArrowLeft", "ArrowDown"]
KEYS += ["Escape", "Space", "Tab"]
TARGETS = "a:not(.json), button, summary, input, select, .rows, .film, .scroll, .chart .hit"


def test_random_interactions_raise_no_error(browser: Any, sites: dict[str, Path]) -> None:
    """Catch an error of the page after any 100 clicks, keys, choices, scrolls and addresses, without any wait."""
    draw = random.Random(0)
    visit = Visit(browser, f"file://{sites['plain']}/", accept_downloads=True)
    page = visit.open("#/episodes", ".row")
    page.on("popup", lambda popup: popup.close())
    for _ in range(100):
        kind = draw.random()
        if "index.html" not in page.url:
            visit.open(draw.choice(ADDRESSES), "main")
        if kind < 0.6:
            page.evaluate(CLICK, [TARGETS, draw.random(), draw.random()])
        elif kind < 0.85:
            page.keyboard.press(draw.choice(KEYS))
        elif kind < 0.93:
            page.evaluate("address => { location.hash = address }", draw.choice(ADDRESSES))
        else:
            with suppress(Exception):  # there may be nowhere to go back to
                page.go_back(timeout=500) if draw.random() < 0.5 else page.go_forward(timeout=500)
    page.wait_for_timeout(300)
    visit.close()


CLICK = """([targets, which, how]) => {
    const open = document.querySelector('dialog[open]') ?? document;
    const usable = (each) => !each.disabled && !each.closest('a[href$=".png"]');
    const all = [...open.querySelectorAll(targets)].filter(usable);
    const element = all[Math.floor(which * all.length)];
    if (!element) return;
    if (element.matches('.rows, .film, .scroll')) {
        element.scrollTop = how * element.scrollHeight;
        element.scrollLeft = how * element.scrollWidth;
    } else if (element.matches('select')) {
        element.selectedIndex = Math.floor(how * element.options.length);
        element.dispatchEvent(new Event('change', { bubbles: true }));
    } else if (element.matches('input[type=search]')) {
        element.value = ['dead', '</think>', '', '\\\\u202e %', 'zzz'][Math.floor(how * 5)];
        element.dispatchEvent(new Event('input', { bubbles: true }));
    } else {
        element.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true }));
    }
}"""
