"""A server of the operator with a password: a run, a wrong password, a killed worker, backup and restore."""

import shutil
import subprocess
from pathlib import Path

import pytest
from pivot.tests.flow_runs import assert_whole
from pivot.tests.flows.own_server import PASSWORD, kill, own_server, until

pytestmark = [pytest.mark.deploy, pytest.mark.xdist_group("prefect"), pytest.mark.timeout(3600)]

SMALL = {"config": {"environments": {"frozenlake": {"tasks": 1}}, "rollouts": 2}, "workers": 1}
WIDE = {"config": {"environments": {"sokoban": {"tasks": 30}}, "tasks_per_shard": 3}, "workers": 1, "verify": False}


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_server_with_a_password_from_the_first_run_to_a_restore(database: str, tmp_path: Path) -> None:
    if database == "postgres" and shutil.which("initdb") is None:
        pytest.skip("Postgres is not installed")
    with own_server(tmp_path, with_postgres=database == "postgres") as server:
        assert [server.status(each) for each in ("", "admin:wrong", f"admin:{PASSWORD}")] == [401, 401, 200]

        assert server.start_worker("admin:wrong").wait(600) == 2
        error = " ".join(server.printed("worker").split())
        assert (
            "refuses the password in PREFECT_API_AUTH_STRING (401); set PREFECT_API_AUTH_STRING to the value" in error
        )
        assert "Traceback" not in error

        worker = server.start_worker()
        server.wait_for_worker(worker)
        first = server.start("build", out="first", **SMALL)
        assert server.until(first)["state_type"] == "COMPLETED"
        assert_whole(tmp_path / "work" / "first")

        # A worker that was killed during a run: the next run of the night resumes its store.
        night = server.start("nightly-sokoban", out="night", **WIDE | {"report": False})
        until(lambda: list((tmp_path / "work" / "night").glob(".receipts/**/*.json")), worker)
        kill(worker)
        assert not (tmp_path / "work" / "night" / "manifest.json").exists()
        worker = server.start_worker()
        server.wait_for_worker(worker)
        assert server.get(f"flow_runs/{night}")["state_type"] == "RUNNING"  # nobody has reported its end
        assert server.until(server.start("build", out="night", **WIDE))["state_type"] == "COMPLETED"
        assert_whole(tmp_path / "work" / "night")
        worker.terminate()
        assert worker.wait(120) == 0
        assert "the worker is ended" in " ".join(server.printed("worker").split())

        if server.postgres:  # docs/how-to/backup.md
            dump = server.postgres.folder / "prefect.dump"
            server.postgres.run("pg_dump", "--format=custom", f"--file={dump}", check=True)
            kill(server.processes[0])
            server.postgres.run("dropdb", "--force", "prefect", check=True)
            server.postgres.run("createdb", "prefect", database="postgres", check=True)
            server.postgres.run("pg_restore", "--exit-on-error", "--dbname=prefect", str(dump), check=True)
        else:
            home = tmp_path / "prefect"
            copy = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).backup(sqlite3.connect(sys.argv[2]))"
            command = ["python3", "-c", copy, home / "prefect.db", tmp_path / "backup.db"]
            subprocess.run([*map(str, command)], check=True)
            kill(server.processes[0])
            for file in home.glob("prefect.db*"):
                file.unlink()
            (tmp_path / "backup.db").replace(home / "prefect.db")
        server.start_server()
        assert server.get(f"flow_runs/{first}")["state_type"] == "COMPLETED"
        server.wait_for_worker(server.start_worker())
        assert server.until(server.start("build", out="after", **SMALL))["state_type"] == "COMPLETED"
