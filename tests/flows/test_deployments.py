"""Everything in prefect.yaml, from the file to finished stores: a server and a worker, as an operator starts them."""

import json
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pivot
import psutil
import pytest
import yaml
from pivot.core.identity import derive_seed
from pivot.datasets.store.store import Store
from pivot.flows.metrics import FOLDER
from pivot.tests.flow_runs import (
    PATIENCE,
    assert_whole,
    begun,
    clean_environment,
    config_of,
    fingerprint,
    free_port,
    python,
)
from pivot.tests.flow_runs import pivot as command
from pivot.tests.flows.own_server import FINAL, PrefectApi, until
from pivot.tests.stores import problems
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]
SHIPPED: dict[str, Any] = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
WIDE = {"environments": {"sokoban": {"tasks": 30}}, "tasks_per_shard": 3}
"""A config whose run lasts long enough to be killed."""
PARAMETERS: dict[str, dict[str, Any]] = {
    "nightly-frozenlake": {
        "config": {"environments": {"frozenlake": {"tasks": 2}}, "rollouts": 4},
        "out": "nights/frozenlake/{date}",
        "workers": 1,
        "verify": True,
        "report": True,
    },
    "build": {"config": {"environments": {"frozenlake": {"tasks": 1}}, "rollouts": 2}, "out": "made", "workers": 1},
}

pytestmark = [pytest.mark.xdist_group("prefect"), pytest.mark.timeout(1800)]


class Served(PrefectApi):
    """`pivot deploy --serve` with the deployments of the shipped file, made small."""

    def __init__(self, home: Path, folder: Path, *options: str) -> None:
        self.port, self.folder = free_port(), folder
        self.url = f"http://127.0.0.1:{self.port}/api"
        env = clean_environment() | {
            "PREFECT_HOME": str(home),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_SERVER_SERVICES_SCHEDULER_RECENT_DEPLOYMENTS_LOOP_SECONDS": "1",
            "XDG_CACHE_HOME": str(home.parents[1]),
            FOLDER: str(folder / "metrics"),
        }
        (folder / "metrics").mkdir()
        deployments = [
            each | {"parameters": PARAMETERS.get(each["name"], each["parameters"])} for each in SHIPPED["deployments"]
        ]
        (folder / "prefect.yaml").write_text(yaml.safe_dump(SHIPPED | {"deployments": deployments}))
        serve = ["deploy", "--serve", "--port", self.port, "--to", folder / "prefect.yaml", *options]
        self.process = begun(*serve, env=env)
        self.env = env | {"PREFECT_API_URL": self.url}

    def __enter__(self) -> "Served":
        """Return when everything is deployed."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert f"http://127.0.0.1:{self.port}/deployments until Ctrl-C" in line, self.process.communicate()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=PATIENCE)

    def completed(self, run: str) -> dict[str, Any]:
        """Return a flow run that has to complete."""
        read = self.until(run)
        assert read["state_type"] == "COMPLETED", f"{read['state']}\n{self.log(run)}"
        return read

    def artifacts(self, run: str) -> dict[str, dict[str, Any]]:
        """Return the artifacts of a flow run by key."""
        shown = self.get("artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}}})
        return {each["key"]: each for each in shown}


@pytest.fixture(scope="module")
def served(prefect_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Server and worker, with everything deployed."""
    with Served(prefect_home, tmp_path_factory.mktemp("operator")) as server:
        yield server


def test_everything_in_the_file_is_deployed(served: Served) -> None:
    """Catch a deployment, a schedule or a limit of prefect.yaml that does not reach the server."""
    deployed = {each["name"]: each for each in served.get("deployments/filter", {})}
    assert deployed.keys() == {each["name"] for each in SHIPPED["deployments"]}
    for name, each in deployed.items():
        assert (each["work_pool_name"], each["enforce_parameter_schema"]) == ("pivot", True)
        assert "pivot" in each["tags"]
        (shipped,) = (other for other in SHIPPED["deployments"] if other["name"] == name)
        crons = [schedule["cron"] for schedule in shipped.get("schedules", ())]
        assert [schedule["schedule"]["cron"] for schedule in each["schedules"] if schedule["active"]] == crons
        assert bool(crons) == name.startswith("nightly")
        limit = each["global_concurrency_limit"]
        assert (limit is not None and limit["limit"] == 1) == bool(each["schedules"])
    assert served.get("work_pools/pivot")["type"] == "process"


@pytest.mark.operations
def test_a_scheduled_run_completes_with_its_artifacts(served: Served) -> None:
    deployment = served.deployment("nightly-frozenlake")
    (schedule,) = deployment["schedules"]
    soon = {"interval": 10, "anchor_date": "2026-01-01T00:00:00Z"}  # instead of at night
    served.get(f"deployments/{deployment['id']}/schedules/{schedule['id']}", {"schedule": soon}, "PATCH")
    begun = {"deployments": {"id": {"any_": [deployment["id"]]}}, "sort": "EXPECTED_START_TIME_ASC", "limit": 1}
    begun["flow_runs"] = {"state": {"type": {"any_": ["PENDING", "RUNNING", *FINAL]}}}
    until(lambda: bool(served.get("flow_runs/filter", begun)))
    served.get(f"deployments/{deployment['id']}", {"paused": True}, "PATCH")  # the test needs one run
    (first,) = served.get("flow_runs/filter", begun)
    assert first["auto_scheduled"]
    run = served.completed(first["id"])
    date = run["expected_start_time"][:10]
    root = served.folder / "nights" / "frozenlake" / date
    assert run["name"] == f"build frozenlake in nights/frozenlake/{date}"
    assert Store.open(root).config.seed == derive_seed("nightly", date) % 2**32
    assert_whole(root)
    assert problems(root) == []
    assert (root.with_name(f"{date}-report") / "index.html").exists()

    shown = served.artifacts(run["id"])
    kinds = {key.removesuffix("-nightly-frozenlake"): each["type"] for key, each in shown.items()}
    tables = dict.fromkeys(("pivot-counts", "pivot-modes", "pivot-rejects"), "table")
    assert kinds == tables | dict.fromkeys(("pivot-failure", "pivot-dataset", "pivot-report"), "markdown")
    (counts,) = json.loads(shown["pivot-counts-nightly-frozenlake"]["data"])
    assert (counts["environment"], counts["episodes"]) == ("frozenlake", 8)
    modes = json.loads(shown["pivot-modes-nightly-frozenlake"]["data"])
    assert sum(row["failures"] for row in modes) == counts["failed"] > 0
    picture = shown["pivot-failure-nightly-frozenlake"]["data"]
    assert picture.startswith("![frozenlake: ") and "](data:image/png;base64," in picture
    assert len(picture) < 100_000
    assert f"]({(root / 'dataset').as_uri()})" in shown["pivot-dataset-nightly-frozenlake"]["data"]

    log = served.log(run["id"])
    for stage in ("rollout", "label", "export"):
        assert re.search(rf"^{stage} frozenlake/00000: \d+\.\d\d s, \d+ bytes$", log, re.MULTILINE), log
    text = (served.folder / "metrics" / "pivot-nightly-frozenlake.prom").read_text()
    families = text_string_to_metric_families(text)
    samples = {(each.name, *sorted(each.labels.items())): each.value for family in families for each in family.samples}
    at = ("deployment", "nightly-frozenlake")
    assert samples["pivot_run_succeeded", at] == 1
    assert samples["pivot_stage_shards_made", at, ("stage", "rollout")] == 1
    assert samples["pivot_store_count", at, ("environment", "frozenlake"), ("what", "episodes")] == 8


def test_a_build_reports_to_the_users_server(served: Served, tmp_path: Path) -> None:
    """Catch a build that a configured Prefect server does not see: its run, its tasks, its artifacts."""
    builds = {"flows": {"name": {"any_": ["build-dataset"]}}}
    before = {run["id"] for run in served.get("flow_runs/filter", builds)}
    words = ["build", "frozenlake", "--tasks", "1", "--rollouts", "2", "--workers", "1", "--out"]
    env = {"PREFECT_API_URL": served.url, "XDG_CACHE_HOME": str(tmp_path)}
    done = command(*words, tmp_path / "store", env=env)
    assert done.returncode == 0, done.stderr
    new = [run for run in served.get("flow_runs/filter", builds) if run["id"] not in before]
    runs = [run for run in new if not run["auto_scheduled"]]  # a night may be scheduled meanwhile
    assert [run["state"]["type"] for run in runs] == ["COMPLETED"]
    tasks: list[dict[str, Any]] = []

    def are_there() -> bool:
        tasks[:] = served.get("task_runs/filter", {"flow_runs": {"id": {"any_": [runs[0]["id"]]}}})
        return len(tasks) == 3 and all(task["state_type"] == "COMPLETED" for task in tasks)

    until(are_there)  # task runs reach the server's database a moment later
    assert sorted(task["name"] for task in tasks) == [
        f"{stage} frozenlake/00000" for stage in ("export", "label", "rollout")
    ]
    of_this_run = {"key": {"any_": ["pivot-counts-frozenlake"]}, "flow_run_id": {"any_": [runs[0]["id"]]}}
    (artifact,) = served.get("artifacts/filter", {"artifacts": of_this_run})
    (row,) = json.loads(artifact["data"])
    assert (row["environment"], row["episodes"]) == ("frozenlake", 2)


FLOW = """
import json, sys, threading
from pivot.flows.engines import local
from pivot.flows.engines.server import quiet_prefect

quiet_prefect()
submit, at_work, most, lock = local.InProcess.submit, 0, 0, threading.Lock()

def counted(pool, call, *arguments):
    global at_work, most
    with lock:
        at_work += 1
        most = max(most, at_work)
    done = submit(pool, call, *arguments)
    with lock:
        at_work -= 1
    return done

local.InProcess.submit = counted

from pivot.flows import watch
from pivot.flows.deployments import build_dataset

advance, watch.LONG, watch.OFTEN = watch.Watch.advance, 0.0, 0.0

def advance_and_look(self, stage, amount):
    advance(self, stage, amount)
    self.tick()

watch.Watch.advance = advance_and_look
config, root = json.loads(sys.argv[1]), sys.argv[2]
result = build_dataset(config, root, workers=1)
print(json.dumps([most, result["shards"], result["environments"]]))
"""


@pytest.mark.operations
def test_a_flow_makes_the_bytes_of_a_build(served: Served, tmp_path: Path) -> None:
    """As a worker runs it: the task runner is Prefect's own, which starts all tasks that it is given."""
    config = config_of({"frozenlake": 4}, rollouts=4)
    run = python(FLOW, json.dumps(config), tmp_path / "flow", env=served.env)
    assert run.returncode == 0, run.stderr
    most, shards, environments = json.loads(run.stdout)
    assert (most, shards) == (1, 4)  # one worker: a shard at a time
    assert environments["frozenlake"]["rejected"] == 0
    pivot.build(config, tmp_path / "same")
    assert fingerprint(tmp_path / "flow") == fingerprint(tmp_path / "same")


@pytest.mark.operations
def test_ctrl_c_leaves_no_process(served: Served) -> None:
    """The last test of the shared server: it ends what the others use, with a run at work."""
    served.until(served.start("build", config=WIDE, out="ended", workers=2), "RUNNING")
    processes = psutil.Process(served.process.pid).children(recursive=True)
    assert len(processes) >= 3  # server, worker, the run
    served.process.send_signal(signal.SIGINT)
    _, errors = served.process.communicate(timeout=PATIENCE)
    assert served.process.returncode == 0
    assert "server and worker are ended" in " ".join(errors.split())
    assert psutil.wait_procs(processes, timeout=PATIENCE)[1] == []
    with socket.create_server(("127.0.0.1", served.port)):
        pass


@pytest.mark.operations
def test_a_worker_runs_no_more_at_a_time_than_it_may(prefect_home: Path, tmp_path: Path) -> None:
    """The deployment itself has no limit: without that of the worker both runs would begin at once."""
    with Served(prefect_home, tmp_path, "--runs", "1") as served:
        assert served.deployment("build")["global_concurrency_limit"] is None
        config = config_of({"sokoban": 12}, rollouts=4)
        runs = [served.start("build", config=config, out=f"store-{number}", workers=1) for number in range(2)]
        first, second = sorted(map(served.completed, runs), key=lambda run: run["start_time"])
        assert second["start_time"] >= first["end_time"]
