"""The server of `pivot view` answers with files of the site, with nothing else, and stops when asked to."""

import http.client
import json
import shutil
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from pivot.insight.report.serve import HOST, ViewServer
from pivot.insight.report.site import Site, asset
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.flow_runs import PATIENCE
from pivot.tests.insight.test_report import ALL, without_plots
from pivot.tests.stores import copy_store

__all__ = ["without_plots"]


@pytest.fixture(scope="module")
def live(small_store: Path) -> Iterator[Site]:
    live_site = Site(small_store, ALL)
    yield live_site
    live_site.close()


@pytest.fixture(scope="module")
def server(live: Site) -> Iterator[ViewServer]:
    with ViewServer(live, 0, lambda message: None) as serving:
        Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield serving
        serving.shutdown()


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
        "/frames/0/-1.png /plots/../modes.svg /plots/nothing.svg /viewer/ /episodes/0/0.json/x /contents.JSON"
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
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert "unsafe" not in policy
    assert ask(server, "/", "HEAD")[1] == b""
    assert ask(server, "/")[1] == asset("index.html")


def test_a_store_that_breaks_while_one_looks_is_said(small_store: Path, tmp_path: Path) -> None:
    store = copy_store(small_store, tmp_path / "store")
    said: list[str] = []
    with ViewServer(Site(store, ALL), 0, said.append) as serving:
        Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        shutil.rmtree(store / "steps")
        status, body, _ = ask(serving, "/episodes/0/0.json")
        serving.shutdown()
    assert status == 500
    assert b"steps" in body
    assert said == [body.decode().rstrip("\n")]


def test_the_command_serves_until_it_is_stopped(small_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses: list[str] = []

    def stop(server: ViewServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ViewServer, "serve_forever", stop)
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    said = run("view", small_store, "--limit", "3")
    assert said.startswith(f"6 episodes at {addresses[0]} until Ctrl-C")
    assert addresses[0].startswith("http://127.0.0.1:")
    run("view", small_store, "--no-open")
    assert len(addresses) == 1


def test_a_port_in_use_is_said(server: ViewServer, small_store: Path) -> None:
    message = str(error_of("view", small_store, "--port", str(server.server_port), "--no-open"))
    assert f"port {server.server_port} of 127.0.0.1 cannot be used" in message
    assert "--port" in message
