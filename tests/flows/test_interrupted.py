"""Interrupted runs of deployments: which slots are freed, and which runs are scheduled again; also with a server."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import psutil
import pytest
from pivot.flows import deployments
from pivot.flows.interrupted import ENDED, read_leases, recover
from pivot.flows.limits import MODEL_SERVER
from pivot.flows.serve import POOL, end_flow_runs
from pivot.tests.flow_runs import PATIENCE, assert_whole
from pivot.tests.flows.test_deployments import WIDE, Served
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, State
from prefect.server.concurrency.lease_storage import ConcurrencyLimitLeaseMetadata
from prefect.server.concurrency.lease_storage.filesystem import ConcurrencyLeaseStorage


class Server:
    """A Prefect client whose server has these runs and limits."""

    def __init__(self, runs: list[dict[str, Any]], limits: list[SimpleNamespace], deployments: list[Any]) -> None:
        self.runs, self.limits, self.deployments = runs, limits, deployments
        self.states: dict[str, State[Any]] = {}
        self.released: list[UUID] = []
        self.scheduled: list[dict[str, Any]] = []
        self.counts: dict[str, int | None] = {}

    def request(self, method: str, path: str, json: dict[str, Any]) -> SimpleNamespace:
        assert method == "POST"
        assert json["work_pools"] == {"name": {"any_": [POOL]}}
        answer = {"/flow_runs/filter": self.runs, "/deployments/filter": self.deployments}[path]
        return SimpleNamespace(json=lambda: answer)

    def set_flow_run_state(self, run: UUID, state: State[Any], force: bool) -> None:
        assert force
        self.states[str(run)] = state

    def release_concurrency_slots_with_lease(self, lease: UUID) -> None:
        self.released.append(lease)

    def read_global_concurrency_limits(self, limit: int) -> list[SimpleNamespace]:
        return self.limits[:limit]

    def update_global_concurrency_limit(self, name: str, update: Any) -> None:
        self.counts[name] = update.active_slots

    def create_flow_run_from_deployment(self, deployment: UUID, **fields: Any) -> None:
        self.scheduled.append({"deployment": deployment} | fields)


def _run(state: str) -> dict[str, Any]:
    start = datetime(2026, 1, 2, 1, tzinfo=UTC).isoformat()
    about = {"id": str(uuid4()), "flow_id": str(uuid4()), "deployment_id": str(uuid4()), "tags": ["nightly"]}
    return about | {"state_type": state, "expected_start_time": start, "parameters": {"out": "runs/{date}"}}


def _limit(name: str, active: int) -> SimpleNamespace:
    return SimpleNamespace(id=uuid4(), name=name, active_slots=active)


@pytest.fixture
def processes(tmp_path: Path) -> Path:
    """A folder like `/proc`, without processes of flow runs."""
    (tmp_path / "proc" / "1").mkdir(parents=True)
    (tmp_path / "proc" / "1" / "environ").write_bytes(b"HOME=/root\0")
    return tmp_path / "proc"


def _work_on(processes: Path, run: dict[str, Any]) -> None:
    (processes / "77").mkdir()
    (processes / "77" / "environ").write_bytes(b"A=b\0PREFECT__FLOW_RUN_ID=" + run["id"].encode() + b"\0C=d\0")


def test_runs_without_a_process_are_marked_and_scheduled_again(processes: Path, tmp_path: Path) -> None:
    gone, alive, cancelled, pending = (_run(state) for state in ("RUNNING", "RUNNING", "CANCELLING", "PENDING"))
    _work_on(processes, alive)
    server = Server([gone, alive, cancelled, pending], [], [])
    assert recover(cast(SyncPrefectClient, server), POOL, tmp_path, processes) == 2
    assert {run: state.type.value for run, state in server.states.items()} == {
        gone["id"]: "CRASHED",
        pending["id"]: "CRASHED",
        cancelled["id"]: "CANCELLED",
    }
    assert "ended during this run; it is scheduled again" in str(server.states[gone["id"]].message)
    assert [each["deployment"] for each in server.scheduled] == [
        UUID(gone["deployment_id"]),
        UUID(pending["deployment_id"]),
    ]
    again = server.scheduled[0]
    # The same night: `{date}` and the seed come from the scheduled time.
    assert again["state"].state_details.scheduled_time.isoformat() == gone["expected_start_time"]
    assert (again["parameters"], again["tags"]) == (gone["parameters"], ["nightly", "resumed"])
    assert again["idempotency_key"] == f"resume-{gone['id']}"


def test_a_killed_run_is_scheduled_again_as_often_as_errors_are_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[str] = []
    monkeypatch.setattr(deployments, "report_failure", lambda _flow, _run, state: reported.append(state.message))
    monkeypatch.setenv("PIVOT_RUN_RETRIES", "2")
    server = Server([], [], [])
    run = FlowRun.model_validate(_run("CRASHED"))
    for tags, count in ((["nightly"], 1), (["nightly", "resumed"], 2), (["nightly", "resumed", "resumed-2"], 2)):
        run.tags = tags
        client = SimpleNamespace(
            read_flow_run=lambda _: run, create_flow_run_from_deployment=server.create_flow_run_from_deployment
        )
        monkeypatch.setattr(deployments, "get_client", lambda client=client, **_: contextlib.nullcontext(client))
        deployments.resume_killed(None, run, SimpleNamespace(message="killed"))
        assert len(server.scheduled) == count
    assert [each["tags"][1:] for each in server.scheduled] == [["resumed"], ["resumed", "resumed-2"]]
    assert {each["state"].state_details.scheduled_time for each in server.scheduled} == {run.expected_start_time}
    assert reported == ["killed"]
    deployments.resume_killed(None, SimpleNamespace(deployment_id=None), SimpleNamespace(message="by hand"))
    assert (len(server.scheduled), reported) == (2, ["killed", "by hand"])


def test_slots_of_runs_without_a_process_are_freed(processes: Path, tmp_path: Path) -> None:
    gone, alive = _run("RUNNING"), _run("RUNNING")
    _work_on(processes, alive)
    model, nightly, foreign = _limit(f"{MODEL_SERVER}:gpu:8000", 10), _limit("nightly", 1), _limit("foreign", 5)
    store = ConcurrencyLeaseStorage(tmp_path / "leases")
    leases = {
        run["id"]: asyncio.run(
            store.create_lease(
                [model.id],
                timedelta(seconds=60),
                ConcurrencyLimitLeaseMetadata(slots=4, holder=cast(Any, {"type": "flow_run", "id": run["id"]})),
            )
        )
        for run in (gone, alive)
    }
    (tmp_path / "leases" / "torn-lease.json").write_text('{"id": ')
    assert [(lease.slots, lease.limits) for lease in read_leases(tmp_path / "leases")] == [(4, (str(model.id),))] * 2
    server = Server([gone, alive], [model, nightly, foreign], [{"global_concurrency_limit": {"id": str(nightly.id)}}])
    recover(cast(SyncPrefectClient, server), POOL, tmp_path / "leases", processes)
    assert server.released == [leases[gone["id"]].id]
    # The server of this test removes no lease file, so both still count; two slots and the nightly's one have no lease.
    assert server.counts == {model.name: 8, nightly.name: 0}


def test_without_a_list_of_processes_the_recorded_one_decides(tmp_path: Path) -> None:
    alive, gone = _run("RUNNING") | {"infrastructure_pid": str(os.getpid())}, _run("RUNNING")
    server = Server([alive, gone], [], [])
    recover(cast(SyncPrefectClient, server), POOL, tmp_path, tmp_path / "missing")
    assert list(server.states) == [gone["id"]]


def test_runs_of_a_killed_worker_end_with_their_server() -> None:
    ours, foreign = "http://127.0.0.1:1/api", "http://127.0.0.1:2/api"
    variables = [
        {"PREFECT__FLOW_RUN_ID": "a", "PREFECT_API_URL": ours},
        {"PREFECT__FLOW_RUN_ID": "b", "PREFECT_API_URL": foreign},
        {"PREFECT_API_URL": ours},  # a shell of the operator
    ]
    runs = [subprocess.Popen(["sleep", "600"], env=each, start_new_session=True) for each in variables]
    try:
        end_flow_runs(ours)
        assert runs[0].wait(PATIENCE) == -signal.SIGKILL
        assert [run.poll() for run in runs[1:]] == [None, None]
    finally:
        for run in runs:
            run.kill()
            run.wait()


# With a server


@pytest.mark.operations
@pytest.mark.xdist_group("prefect")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_night_that_was_interrupted_goes_on_after_a_restart(end: signal.Signals, tmp_path: Path) -> None:
    home = tmp_path / "cache" / "pivot" / "prefect"
    home.mkdir(parents=True)
    (tmp_path / "work").mkdir()
    served = Served(home, tmp_path / "work")
    try:
        _interrupt_and_restart(served, end)
    finally:
        served.process.send_signal(signal.SIGINT)
        served.process.communicate(timeout=PATIENCE)


def _interrupt_and_restart(served: Served, end: signal.Signals) -> None:
    served.wait()
    wide = {"environments": {"sokoban": {"tasks": 400}}, "tasks_per_shard": 3}  # longer than the worker takes to end
    run = served.start("nightly-sokoban", config=wide, out="nights/{date}", workers=1, verify=False, report=False)
    second = served.start("nightly-sokoban", config=WIDE, out="after", workers=1, verify=False, report=False)
    deadline = time.monotonic() + PATIENCE
    while not list((served.folder / "nights").glob("*/.receipts/**/*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    slots = {"names": [MODEL_SERVER], "slots": 256, "mode": "concurrency", "lease_duration": 300}
    served.get("v2/concurrency_limits/increment-with-lease", slots | {"holder": {"type": "flow_run", "id": run}})
    assert served.get(f"v2/concurrency_limits/{MODEL_SERVER}")["active_slots"] == 256
    everything = psutil.Process(served.process.pid).children(recursive=True)
    served.process.send_signal(end)
    if end == signal.SIGKILL:  # as a power cut: runs have sessions of their own and would outlive the others
        for process in everything:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    served.process.communicate(timeout=PATIENCE)
    (root,) = (served.folder / "nights").iterdir()
    assert not (root / "manifest.json").exists()  # it was interrupted in the middle

    served.begin()
    served.wait()
    assert served.get(f"v2/concurrency_limits/{MODEL_SERVER}")["active_slots"] == 0
    state = served.get(f"flow_runs/{run}")
    assert state["state_type"] == "CRASHED"
    assert state["state"]["message"].startswith(ENDED)
    of_both = {"deployments": {"id": {"any_": [served.deployment("nightly-sokoban")["id"]]}}}
    tagged = of_both | {"flow_runs": {"tags": {"all_": ["resumed"]}}}
    (resumed,) = served.get("flow_runs/filter", tagged)
    served.completed(resumed["id"])
    assert ": kept, " in served.log(resumed["id"])  # shards of the interrupted run
    assert_whole(root)
    served.completed(second)  # the run that waited for the slot of the deployment
    assert served.deployment("nightly-sokoban")["global_concurrency_limit"]["active_slots"] == 0
