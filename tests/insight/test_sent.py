"""The page of a probed, served store holds every request as the server got it, with its answer and cost."""

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.core.progress import Reporter
from pivot.insight.probe.records import ProbeSettings
from pivot.insight.probe.run import probe_store
from pivot.insight.report import site as overviews
from pivot.insight.report.site import report
from pivot.models.preflight import SEED
from pivot.tests.flow_runs import config_of
from pivot.tests.flows.test_served_faults import QUICK
from pivot.tests.flows.test_writers import coach
from pivot.tests.models.chat_server import MODEL, ChatServer, number_of, served, walker
from pivot.tests.models.coaching import asked

Body = dict[str, Any]


def player(body: Body) -> Body:
    """Plays, and writes guidance where a schema is given; half of the first answers are no use."""
    if "response_format" not in body:
        return walker(body)
    refuses = len(body["messages"]) == 1 and number_of(asked(body)) % 2 == 0
    return {"text": "Rather not."} if refuses else coach(body)


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Body]]]:
    """The site of a probed, served store, and every request that the server got."""
    folder = tmp_path_factory.mktemp("sent")
    with served(player) as server, pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as thread:
        patch.setattr(overviews, "save_plots", lambda root, suffix: {})
        thread.submit(_make, folder, server).result()  # a thread with a browser has an event loop already
    yield folder / "site", [body for body in server.log.bodies if body["seed"] != SEED]


def _make(folder: Path, server: ChatServer) -> None:
    part = _part(server)
    pivot.build(config_of({"sokoban": 3}, policy=part, teacher=part), folder / "store")
    probe_store(folder / "store", ProbeSettings(), Reporter())
    report(folder / "store", folder / "site")


def _part(server: ChatServer) -> dict[str, Any]:
    return {"name": "openai", "options": {"model": MODEL}, "service": {**QUICK, "base_url": server.url}}


def pages(site: Path) -> list[Any]:
    return [json.loads(path.read_text()) for path in sorted(site.glob("episodes/0/*.json"))]


def as_sent(site: Path, page: Any, request: Any) -> str:
    """The body of a request, put together from a page."""
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
    assert len(shown) > 100
    assert {*shown} <= played  # the others are those of retries


def test_every_call_shows_its_answer_and_what_it_cost(probed: tuple[Path, list[Body]]) -> None:
    site, bodies = probed
    retries = 0
    answers: list[str] = []
    for page in pages(site):
        assert all(request["call"]["prompt_tokens"] == 100 for request in page["requests"])
        assert all(request["call"]["latency"] > 0 for request in page["requests"])
        if page["outcome"] == "failed":
            answers += [call["answer"] for call in page["analyzer"]["calls"]]
            assert {retry["arm"] for retry in page["retries"]} >= {"no_hint", "after", "self", "teacher"}
        retries += sum(retry["status"] == "done" for retry in page["retries"])
    assert retries > 40
    assert set(answers) <= {player(body)["text"] for body in bodies if "response_format" in body}
    assert len(answers) > 8
