"""The history of `pivot deploy --serve` over upgrades of Prefect, and the password of its server."""

import contextlib
import http.server
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from pivot.errors import ConfigError
from pivot.flows import history
from pivot.flows.engines.server import FlowServer, quiet_prefect
from pivot.flows.history import Migrations, installed_migrations, keep_history
from pivot.flows.serve import _share_password
from pivot.tests.cli.command_line import error_of
from prefect.server.database.alembic_commands import alembic_config
from prefect.settings import PREFECT_API_AUTH_STRING, temporary_settings

INSTALLED = "3.8.8"


def _database(path: Path, revision: str, run: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as made, made:
        made.execute("pragma journal_mode=wal")
        made.execute("create table alembic_version (version_num text)")
        made.execute("insert into alembic_version values (?)", [revision])
        made.execute("create table flow_run (name text)")
        made.execute("insert into flow_run values (?)", [run])
    return path


def _runs(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as opened:
        return [name for (name,) in opened.execute("select name from flow_run")]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with Prefect 3.8.8, whose newest schema is `new`; the folder that is chosen on it."""
    monkeypatch.setattr(history, "version", lambda _: INSTALLED)
    monkeypatch.setattr(
        history, "installed_migrations", lambda: Migrations(frozenset({"old", "new"}), frozenset({"new"}))
    )
    for name in [*history.CONNECTIONS, "PREFECT_HOME"]:
        monkeypatch.setenv(name, "to be restored")
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    quiet_prefect()
    return tmp_path / "data" / "pivot" / "prefect"


def test_the_schemas_are_those_that_prefect_migrates_to(monkeypatch: pytest.MonkeyPatch) -> None:
    config: Config = alembic_config()
    scripts = ScriptDirectory.from_config(config)
    folder = next(path for path in Path(scripts.dir).rglob("sqlite") if path.is_dir())
    scripts = ScriptDirectory(scripts.dir, version_locations=[str(folder)])
    migrations = installed_migrations()
    assert migrations.newest == set(scripts.get_heads())
    assert migrations.revisions == {script.revision for script in scripts.walk_revisions()}


def test_a_newer_prefect_gets_a_copy_first(home: Path) -> None:
    database = _database(home / "prefect.db", "old", "monday")
    copy = keep_history()
    assert os.environ["PREFECT_HOME"] == str(home)
    assert copy is not None
    assert copy == home / f"prefect.db.before-{INSTALLED}"
    assert _runs(copy) == ["monday"]
    assert copy.stat().st_mode & 0o777 == 0o600
    with contextlib.closing(sqlite3.connect(database)) as opened, opened:
        opened.execute("update alembic_version set version_num = 'new'")
        opened.execute("insert into flow_run values ('tuesday')")
    assert keep_history() is None  # nothing is migrated
    assert (_runs(database), _runs(copy)) == (["monday", "tuesday"], ["monday"])


def test_an_older_prefect_is_refused_and_the_copy_is_named(home: Path) -> None:
    _database(home / "prefect.db", "of tomorrow", "monday")
    with pytest.raises(
        ConfigError, match=r"newer Prefect, expected one of Prefect 3.8.8; install the newer one again, set"
    ):
        keep_history()
    _database(home / "prefect.db.before-3.8.9", "new", "sunday")
    with pytest.raises(ConfigError, match=r"prefect.db-wal and .* move the copy prefect.db.before-3.8.9 to prefect.db"):
        keep_history()
    (home / "prefect.db.before-3.8.9").replace(home / "prefect.db")
    assert keep_history() is None


def test_the_history_of_the_folders_per_version_is_taken_over_once(home: Path, tmp_path: Path) -> None:
    old = tmp_path / "cache" / "pivot"
    for name, revision in (("3.8.6", "old"), ("3.8.10", "of tomorrow"), ("3.8.7", "old"), ("nonsense", "old")):
        _database(old / f"prefect-{name}" / "prefect.db", revision, name)
    copy = keep_history()
    assert _runs(home / "prefect.db") == ["3.8.7"]
    assert copy is not None
    assert _runs(copy) == ["3.8.7"]
    (home / "prefect.db").unlink()
    _database(home / "prefect.db", "new", "here")
    quiet_prefect()
    assert keep_history() is None
    assert _runs(home / "prefect.db") == ["here"]


def test_a_chosen_folder_stays_and_a_database_server_is_left_alone(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _database(tmp_path / "mine" / "prefect.db", "old", "monday")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "mine"))
    monkeypatch.setenv(history.CONNECTIONS[1], "postgresql+asyncpg://prefect@db/prefect")
    assert keep_history() is None
    monkeypatch.delenv(history.CONNECTIONS[1])
    assert keep_history() == tmp_path / "mine" / f"prefect.db.before-{INSTALLED}"
    assert not home.exists()


def test_a_torn_database_and_a_copy_that_cannot_be_written_are_errors(home: Path) -> None:
    home.mkdir(parents=True)
    (home / "prefect.db").write_bytes(b"not a database" * 100)
    with pytest.raises(ConfigError, match=r"prefect.db cannot be read .*restore a backup"):
        keep_history()
    (home / "prefect.db").unlink()
    _database(home / "prefect.db", "old", "monday")
    (home / f"prefect.db.before-{INSTALLED}" / "in the way").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"cannot copy .*make room or set PREFECT_HOME"):
        keep_history()
    assert _runs(home / "prefect.db") == ["monday"]


# The password


class Locked(http.server.BaseHTTPRequestHandler):
    """A server that shows its health to everybody, and the rest to clients that send `admin:right`."""

    def do_GET(self) -> None:
        credentials = self.headers.get("Authorization")
        may = self.path == "/api/health" or credentials == "Basic YWRtaW46cmlnaHQ="
        self.send_response(200 if may else 401)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def locked() -> Iterator[str]:
    """Address of a server with a password."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Locked) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/api"
        server.shutdown()


def test_a_wrong_password_is_an_error_of_ours(locked: str) -> None:
    with pytest.raises(
        ConfigError, match=r"refuses requests without a password \(401\); set PREFECT_API_AUTH_STRING to"
    ):
        FlowServer(locked, None).wait()
    wrong = pytest.raises(ConfigError, match=r"refuses the password in PREFECT_API_AUTH_STRING \(401\)")
    with wrong, temporary_settings({PREFECT_API_AUTH_STRING: "admin:wrong"}):
        FlowServer(locked, None).wait(patient=True)
    with temporary_settings({PREFECT_API_AUTH_STRING: "admin:right"}):
        FlowServer(locked, None).wait()


def test_a_worker_gets_the_password_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "to be restored")
    monkeypatch.delenv("PREFECT_API_AUTH_STRING")
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "admin:right")
    _share_password()
    assert os.environ["PREFECT_API_AUTH_STRING"] == "admin:right"
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "admin:wrong")
    with pytest.raises(ConfigError, match="differs from PREFECT_SERVER_API_AUTH_STRING"):
        _share_password()


def test_a_worker_needs_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "")
    target = tmp_path / "prefect.yaml"
    assert "PREFECT_API_URL is not set" in str(error_of("deploy", "--work", "--to", target))
    assert "expected one of the two" in str(error_of("deploy", "--work", "--serve", "--to", target))
