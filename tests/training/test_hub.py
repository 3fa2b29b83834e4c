"""A dataset on the hub, trained on and evaluated by its id: the hub is a server on this machine that speaks its API."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from pivot.core.errors import TrainingError
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.models.chat_server import MODEL, served
from pivot.tests.training.analyzers import reads
from pivot.training.records import find_files

ID, COMMIT = "someone/failures", "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """One dataset repository, by the requests with which the hub's library takes a snapshot."""

    def __init__(self, folder: Path) -> None:
        hub = self
        self.folder, self.sent = folder, list[str]()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(with_body=True)

            def do_HEAD(self) -> None:
                self.answer(with_body=False)

            def answer(self, *, with_body: bool) -> None:
                path = self.path.partition("?")[0]
                head, body = {"X-Repo-Commit": COMMIT}, b'{"error": "Repository not found"}'
                status = 404
                resolved = f"/datasets/{ID}/resolve/{COMMIT}/"
                if path in (f"/api/datasets/{ID}", f"/api/datasets/{ID}/revision/main"):
                    status, body = 200, json.dumps({"id": ID, "sha": COMMIT, "private": False}).encode()
                elif path == f"/api/datasets/{ID}/tree/{COMMIT}":
                    status, body = 200, json.dumps(hub.tree()).encode()
                elif path.startswith(resolved) and (hub.folder / path.removeprefix(resolved)).is_file():
                    status, body = 200, (hub.folder / path.removeprefix(resolved)).read_bytes()
                    head["ETag"] = f'"{hashlib.sha256(body).hexdigest()}"'
                    hub.sent += [path.removeprefix(resolved)] * with_body
                else:
                    head["X-Error-Code"] = "RepoNotFound"
                self.send_response(status)
                for name, value in (head | {"Content-Length": str(len(body))}).items():
                    self.send_header(name, value)
                self.end_headers()
                if with_body:
                    self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def tree(self) -> list[dict[str, Any]]:
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return [
            {
                "type": "file",
                "path": path.relative_to(self.folder).as_posix(),
                "size": path.stat().st_size,
                "oid": hashlib.sha256(path.read_bytes()).hexdigest()[:40],
            }
            for path in files
        ]


@pytest.fixture
def hub(small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub of this process; its library reads HF_ENDPOINT when it is imported, which may have been before."""
    made = Hub(Path(shutil.copytree(small_store / "dataset", tmp_path / "repository")))
    here = {"ENDPOINT": made.url, "HUGGINGFACE_CO_URL_TEMPLATE": made.url + "/{repo_id}/resolve/{revision}/{filename}"}
    here |= {"HF_HUB_CACHE": str(tmp_path / "home" / "hub"), "HF_HUB_DISABLE_XET": True, "HF_HUB_OFFLINE": False}
    for name, value in here.items():
        monkeypatch.setattr(constants, name, value)
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


def leave(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unplug the network."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    hub.server.shutdown()


def test_a_hub_id_is_read_like_its_folder(
    hub: Hub, small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(reads) as server:
        how = ("evaluate", "analyzer", MODEL, "--base-url", server.url, "--no-cache", "--no-learned", "--side", "train")
        run(*how, "--data", ID, "--env", "sokoban", "--out", tmp_path / "hub")
        run(*how, "--data", small_store / "dataset", "--env", "sokoban", "--out", tmp_path / "own")
    assert hub.sent and all(name.startswith("sokoban/") for name in hub.sent), "the config that was asked for"
    results = [json.loads((tmp_path / name / "result.json").read_text("utf-8")) for name in ("hub", "own")]
    assert results[0]["cells"] == results[1]["cells"] and results[0]["usage"]["answered"] > 10
    assert results[0]["fingerprint"] == results[1]["fingerprint"]
    run("evaluate", "baselines", ID, "--no-learned", "--side", "train")
    assert any(name.startswith("frozenlake/") for name in hub.sent)
    assert len(hub.sent) == len(set(hub.sent)), "no file is fetched twice"
    assert not any("_episodes" in name for name in hub.sent), "what nobody asked for"
    digests = [find_files(each).digest for each in (ID, str(small_store / "dataset"))]
    assert digests[0] == digests[1]
    leave(hub, monkeypatch)
    run("evaluate", "baselines", ID, "--no-learned", "--side", "train")  # works offline: all needed files are cached


@pytest.mark.parametrize("unplugged", [False, True])
@pytest.mark.parametrize(("source", "message"), [("nobody/nothing", "RepositoryNotFoundError: 404"), (ID, "")])
def test_what_the_hub_does_not_give_is_said(
    hub: Hub, source: str, message: str, unplugged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if unplugged:
        leave(hub, monkeypatch)
        message = "the hub cannot be reached (or HF_HUB_OFFLINE forbids it)"
    if message:
        error = error_of("evaluate", "baselines", source, "--no-learned")
        assert isinstance(error, TrainingError)
        assert message in str(error) and f"{source} is not a folder" in str(error)


def test_offline_an_id_that_is_none_and_a_config_that_lacks(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = error_of("evaluate", "baselines", ID, "--no-learned", "--env", "svg")
    assert "holds no file svg/*.parquet" in str(lacking)
    assert "HFValidationError" in str(error_of("evaluate", "baselines", "some one/failures!", "--no-learned"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "(or HF_HUB_OFFLINE forbids it)" in str(error_of("evaluate", "baselines", ID, "--no-learned"))


@pytest.mark.train
def test_a_hub_id_is_trained_on(hub: Hub, small_model: Path, tmp_path: Path) -> None:
    """In a separate process, which finds the hub through environment variables."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "other"), "OMP_NUM_THREADS": "1"}
    words = ["train", "sft", ID, "--model", small_model, "--recipe", "tiny", "--env", "sokoban", "--check-only"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pivot", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "supervised in episode" in done.stdout
    assert hub.sent and all(name.startswith("sokoban/") for name in hub.sent)
