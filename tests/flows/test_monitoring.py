"""Alerts, evaluated on the files of finished and killed runs; metrics, tables and lines that an operator sees."""

import json
import logging
import math
import operator
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pivot
import prefect
import promql_parser as promql
import pytest
import yaml
from pivot.core.errors import StoreError
from pivot.datasets.store.config import make_config
from pivot.flows import artifacts, metrics, watch
from pivot.flows.metrics import FOLDER, HEARTBEAT_SECONDS, RunMetrics, StageTotals, expect_runs
from pivot.tests.flow_runs import config_of
from prefect.cli.deploy._models import PrefectYamlModel
from prefect.events.schemas.automations import AutomationCore
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((ROOT / "flows/alerts.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
HOUR = 3600.0
LOG = logging.getLogger("test of flows")
Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Series = Mapping[str, Vector]


def series_of(text: str) -> Series:
    """Return the samples of a file of metrics by name."""
    series: dict[str, Vector] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return series


class Prometheus:
    """The part of PromQL that the rules use, computed at one moment.

    Averages over time are those of ``history``, series of the past week.
    """

    def __init__(self, now: float, series: Series, history: Series | None = None) -> None:
        self.now, self.series, self.history = now, series, history or {}

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire, those with a sample."""
        values = {name: self._value(promql.parse(rule["expr"])) for name, rule in RULES.items()}
        assert all(isinstance(value, dict) for value in values.values())
        return {name for name, value in values.items() if value}

    def _value(self, node: Any) -> Vector | float:
        if isinstance(node, promql.ParenExpr):
            return self._value(node.expr)
        if isinstance(node, promql.NumberLiteral):
            return node.val
        if isinstance(node, promql.VectorSelector):
            return self._selected(self.series, node)
        if isinstance(node, promql.Call):
            return self._call(node.func.name, node.args)
        assert isinstance(node, promql.BinaryExpr), node
        left, right = self._value(node.lhs), self._value(node.rhs)
        sign = str(node.op)
        if sign in ("and", "or"):
            assert isinstance(left, dict) and isinstance(right, dict)
            return right | left if sign == "or" else {labels: left[labels] for labels in left if labels in right}
        return _arithmetic(sign, left, right)

    def _call(self, name: str, arguments: list[Any]) -> Vector | float:
        if name == "time":
            return self.now
        if name == "avg_over_time":
            return self._selected(self.history, arguments[0].vector_selector)
        value = self._value(arguments[0])
        assert isinstance(value, dict)
        if name == "abs":
            return {labels: abs(each) for labels, each in value.items()}
        assert name == "absent"
        return {} if value else {frozenset(): 1.0}

    @staticmethod
    def _selected(series: Series, node: Any) -> Vector:
        matchers = node.matchers.matchers
        assert all(each.op == promql.MatchOp.Re for each in matchers)
        return {
            labels: value
            for labels, value in series.get(node.name, {}).items()
            if all(re.fullmatch(each.value, dict(labels).get(each.name, "")) for each in matchers)
        }


COMPARE = {"==": operator.eq, ">": operator.gt, "<": operator.lt}
COMPUTE = {"-": operator.sub, "*": operator.mul}


def _arithmetic(sign: str, *sides: Vector | float) -> Vector | float:
    vectors = [each for each in sides if isinstance(each, dict)]
    if not vectors:
        return COMPUTE[sign](*sides)
    labels = frozenset.intersection(*map(frozenset, vectors))
    pairs = {each: [side[each] if isinstance(side, dict) else side for side in sides] for each in labels}
    if sign in COMPARE:
        return {each: pair[0] for each, pair in pairs.items() if COMPARE[sign](*pair)}
    return {each: COMPUTE[sign](*pair) for each, pair in pairs.items()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an operator's metrics."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return tmp_path


def _ended(started: float, *, succeeded: bool = True, rejected: int = 1, tokens: float = 0.0) -> RunMetrics:
    counts = {"sokoban": {"labels": 10, "rejected": rejected}}
    usage = {"teacher": {"prompt": tokens, "completion": 0.0, "cost": tokens / 1e6}}
    stages = {"label": StageTotals(1, 0, 1.0, 1)}
    return RunMetrics("nightly-sokoban", started, started + HOUR, succeeded, stages, counts, usage)


def test_every_rule_names_metrics_that_always_exist(folder: Path) -> None:
    written = series_of(RunMetrics("nightly-sokoban", 1.0).text()).keys()
    declared = set(re.findall(r"^# TYPE (\S+) gauge$", _ended(1.0).text(), flags=re.MULTILINE))
    per_environment = {"pivot_store_reject_share"}  # exists from the end of the first run on
    for name, rule in RULES.items():
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}, name
        used = set(re.findall(r"pivot_\w+", rule["expr"]))
        assert used and used <= declared
        assert used - per_environment <= written
        assert rule["labels"]["severity"] in {"critical", "warning"}
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            assert label in {"deployment", "environment", "kind", "role"}
    assert list(folder.iterdir()) == []


def test_a_good_night_is_silent_and_a_failed_one_is_not() -> None:
    assert Prometheus(2 * HOUR, series_of(_ended(0.0).text())).firing() == set()
    assert Prometheus(2 * HOUR, series_of(_ended(0.0, succeeded=False).text())).firing() == {"PivotRunFailed"}
    assert Prometheus(25.9 * HOUR, series_of(_ended(0.0).text())).firing() == set()
    assert Prometheus(26.1 * HOUR, series_of(_ended(0.0).text())).firing() == {"PivotNightMissing"}
    assert Prometheus(0.0, {}).firing() == {"PivotMetricsMissing"}


def test_the_first_run_of_all_is_silent() -> None:
    series = series_of(RunMetrics("nightly-sokoban", 100.0).text())
    ((_, succeeded),) = series["pivot_run_succeeded"].items()
    assert math.isnan(succeeded)
    assert Prometheus(100.0 + HEARTBEAT_SECONDS, series).firing() == set()


def test_a_deployment_that_never_starts_raises_an_alarm(folder: Path) -> None:
    """A file of a run stays as it is; files can be read by node_exporter, whatever the mask of the worker."""
    ran = folder / "pivot-nightly-sokoban.prom"
    ran.write_text("of a run")
    mask = os.umask(0o077)
    try:
        expect_runs(["nightly-svg", "nightly-sokoban"])
    finally:
        os.umask(mask)
    assert ran.read_text() == "of a run"
    written = folder / "pivot-nightly-svg.prom"
    assert written.stat().st_mode & 0o777 == 0o644
    series = series_of(written.read_text())
    assert Prometheus(time.time() + HOUR, series).firing() == set()
    assert Prometheus(time.time() + 27 * HOUR, series).firing() == {"PivotNightMissing"}


def test_a_disk_with_room_for_two_nights_raises_an_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    night = _ended(0.0)
    night.store, night.store_bytes = tmp_path / "2026-01-01", 4 * 10**9
    for free, alarms in ((13e9, set()), (11e9, {"PivotDiskFull"})):
        monkeypatch.setattr(metrics.shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert Prometheus(2 * HOUR, series_of(night.text())).firing() == alarms
    night.store_bytes = 10
    monkeypatch.setattr(metrics.shutil, "disk_usage", lambda _: SimpleNamespace(free=4e9))
    assert Prometheus(2 * HOUR, series_of(night.text())).firing() == {"PivotDiskFull"}


def test_drift_tokens_and_cost_are_compared_with_the_week() -> None:
    week = series_of(_ended(0.0, tokens=100_000.0).text())

    def firing(**night: Any) -> set[str]:
        return Prometheus(2 * HOUR, series_of(_ended(0.0, **night).text()), week).firing()

    assert firing(tokens=150_000.0) == set()
    assert firing(tokens=100_000.0, rejected=2) == set()
    assert firing(tokens=100_000.0, rejected=4) == {"PivotRejectsDrift"}
    assert firing(tokens=250_000.0) == {"PivotTokensRise", "PivotCostRise"}


NIGHT = """
import logging, os, time
from pivot.flows.artifacts import Artifacts
from pivot.flows.metrics import RunMetrics
from pivot.flows.watch import Watch

log = logging.getLogger("night")
metrics = RunMetrics("nightly-sokoban", 1000.0)
metrics.follow()
watch = Watch(log, Artifacts(log, None, "nightly-sokoban"), metrics)
watch.beat(1060.0)
print("at work", flush=True)
time.sleep(600)
"""


def test_a_night_that_was_killed_raises_an_alarm_until_one_succeeds(folder: Path) -> None:
    _ended(0.0, tokens=5.0).write()
    file = folder / "pivot-nightly-sokoban.prom"
    with subprocess.Popen([sys.executable, "-c", NIGHT], stdout=subprocess.PIPE, text=True) as night:
        assert night.stdout is not None
        assert night.stdout.readline() == "at work\n"
        os.kill(night.pid, signal.SIGKILL)
    killed = series_of(file.read_text())
    assert killed.keys() == series_of(_ended(0.0).text()).keys()  # including counts and tokens of the last night
    assert [*killed["pivot_run_succeeded"].values()] == [1.0]
    assert [*killed["pivot_run_heartbeat_timestamp_seconds"].values()] == [1060.0]
    assert Prometheus(1060.0 + 599, killed).firing() == set()
    assert Prometheus(1060.0 + 601, killed).firing() == {"PivotRunKilled"}

    after = RunMetrics("nightly-sokoban", 90_000.0)
    after.follow()
    after.write()
    assert [*series_of(file.read_text())["pivot_run_succeeded"].values()] == [0.0]  # the night that was killed
    after.finished, after.succeeded = 90_100.0, True
    after.write()
    assert Prometheus(90_200.0, series_of(file.read_text())).firing() == set()


@pytest.mark.parametrize(
    ("error", "alarms"),
    [
        (StoreError("no room"), [set(), set(), {"PivotRunFailed"}]),
        (KeyboardInterrupt(), [{"PivotRunKilled"}] * 3),  # nothing restarts it while its process is dead
    ],
    ids=["error", "interrupted"],
)
def test_a_failure_is_an_alarm_after_the_last_attempt_alone(
    error: BaseException, alarms: list[set[str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "get_run_logger", lambda: LOG)
    monkeypatch.setattr(watch, "deployment", SimpleNamespace(id="1", name="nightly-sokoban"))
    for attempt, expected in enumerate(alarms, 1):
        monkeypatch.setattr(watch, "flow_run", SimpleNamespace(id=None, run_count=attempt))
        run = SimpleNamespace(run_count=attempt, empirical_policy=SimpleNamespace(retries=2))
        monkeypatch.setattr(watch, "FlowRunContext", SimpleNamespace(get=lambda run=run: SimpleNamespace(flow_run=run)))
        with pytest.raises(type(error)), watch.watched("night"):
            raise error
        series = series_of((folder / "pivot-nightly-sokoban.prom").read_text())
        pause = 601.0 if isinstance(error, KeyboardInterrupt) else 540.0  # the longest pause before an attempt
        assert Prometheus(time.time() + pause, series).firing() == expected
        assert (0.0 in series["pivot_run_succeeded"].values()) == ("PivotRunFailed" in expected)


# Reports without a server: lines, metrics, tables, also a broken one


@pytest.fixture
def reporter() -> watch.Watch:
    """A watch of a run that no server shows."""
    return watch.Watch(LOG, artifacts.Artifacts(LOG, None, "nightly"), RunMetrics("nightly", 0.0))


def test_a_build_reports_every_stage_of_every_shard(
    reporter: watch.Watch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, LOG.name):
        pivot.build(config_of({"frozenlake": 2}), tmp_path / "store", reporter=reporter)
    stages = [message.partition(":")[0] for message in caplog.messages if " bytes" in message]
    assert stages == [f"{stage} frozenlake/0000{shard}" for stage in ("rollout", "label", "export") for shard in (0, 1)]
    files = list((tmp_path / "store").rglob("*.parquet"))
    assert sum(each.size for each in reporter.metrics.stages.values()) == sum(path.stat().st_size for path in files)
    assert all(each.seconds > 0 and each.made == 2 for each in reporter.metrics.stages.values())


def test_metrics_are_what_prometheus_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = RunMetrics('odd "name"\n\\', 1.5, 2.5, True, {"rollout": StageTotals(2, 1, 0.5, 7)}, {"svg": {"rows": 3}})
    families = list(text_string_to_metric_families(metrics.text()))
    assert all(each.type == "gauge" and each.documentation for each in families)
    samples = {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}
    name = metrics.deployment
    assert samples["pivot_run_started_timestamp_seconds", name] == 1.5
    assert samples["pivot_run_succeeded", name] == 1
    assert samples["pivot_stage_bytes", name, "rollout"] == 7
    assert samples["pivot_store_count", name, "svg", "rows"] == 3
    unfinished = RunMetrics("night", 1.5).text()
    RunMetrics("night", 1.5).write()  # no folder is configured
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv(FOLDER, str(tmp_path))
    RunMetrics("night", 1.5).write()
    assert [path.name for path in tmp_path.iterdir()] == ["pivot-night.prom"]
    RunMetrics("s3://Bucket/night", 1.5).write()
    assert (tmp_path / "pivot-s3-bucket-night.prom").exists()
    assert (tmp_path / "pivot-night.prom").read_text() == unfinished


def test_a_folder_that_cannot_be_written_ends_no_run(
    reporter: watch.Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "missing"))
    reporter.write_metrics()
    assert "cannot write" in caplog.text


# Artifacts


def test_a_refused_artifact_ends_no_run(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def no_server(**_: Any) -> Any:
        raise OSError("no server")

    monkeypatch.setattr(artifacts, "get_client", no_server)
    artifacts.Artifacts(LOG, str(uuid4()), "night").table("counts", [{"a": 1}], "counts")
    assert caplog.text.count("is not shown (OSError: no server)") == 1


# The documentation


def test_the_snippets_are_what_prefect_knows() -> None:
    page = (ROOT / "docs/how-to/operations.md").read_text(encoding="utf-8")
    automations, file, manifest = (
        yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    )
    for each in automations["automations"]:
        assert AutomationCore.model_validate(each).model_dump(mode="json", exclude_unset=True).keys() == each.keys()
    assert PrefectYamlModel.model_validate(file).model_dump(mode="json", by_alias=True, exclude_unset=True) == file
    (deployment,) = file["deployments"]
    assert make_config(deployment["parameters"]["config"]).environments["sokoban"].tasks == 180
    views = Path(prefect.__file__).parent / "server/api/collections_data/views/aggregate-worker-metadata.json"
    types = {kind: each for group in json.loads(views.read_text()).values() for kind, each in group.items()}
    assert set(re.findall(r"--type (\S+)", page)) <= types.keys()
    template = types["kubernetes"]["default_base_job_configuration"]
    assert deployment["work_pool"]["job_variables"].keys() <= template["variables"]["properties"].keys()
    job = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    assert manifest["spec"]["template"]["spec"]["containers"][0]["name"] == job["containers"][0]["name"]
    script = re.search(r"```bash\n(.*?)```", page, flags=re.DOTALL)
    assert script is not None
    subprocess.run(["bash", "-n"], input=script[1], text=True, check=True)
