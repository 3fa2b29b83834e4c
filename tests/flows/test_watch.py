"""Check the reports to an operator without a server: lines, metrics, tables, and a hook, also a broken one."""

import json
import logging
import re
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pivot
import prefect
import pytest
import yaml
from pivot.datasets.store.config import make_config
from pivot.flows import artifacts
from pivot.flows.artifacts import Artifacts
from pivot.flows.metrics import FOLDER, RunMetrics, StageTotals
from pivot.flows.watch import Watch
from pivot.tests.flow_runs import config_of
from prefect.cli.deploy._models import PrefectYamlModel
from prefect.events.schemas.automations import AutomationCore
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]
LOG = logging.getLogger("test of flows")


@pytest.fixture
def watch() -> Watch:
    """A watch of a run that no server shows."""
    return Watch(LOG, Artifacts(LOG, None, "nightly"), RunMetrics("nightly", 0.0))


def test_a_build_reports_every_stage_of_every_shard(
    watch: Watch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, LOG.name):
        pivot.build(config_of({"frozenlake": 2}), tmp_path / "store", reporter=watch)
    stages = [message.partition(":")[0] for message in caplog.messages if " bytes" in message]
    assert stages == [f"{stage} frozenlake/0000{shard}" for stage in ("rollout", "label", "export") for shard in (0, 1)]
    files = list((tmp_path / "store").rglob("*.parquet"))
    assert sum(each.size for each in watch.metrics.stages.values()) == sum(path.stat().st_size for path in files)
    assert all(each.seconds > 0 and each.made == 2 for each in watch.metrics.stages.values())


# Metrics


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
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "missing"))
    watch.write_metrics()
    assert "cannot write" in caplog.text


# Artifacts


def test_a_refused_artifact_ends_no_run(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def no_server(**_: Any) -> Any:
        raise OSError("no server")

    monkeypatch.setattr(artifacts, "get_client", no_server)
    Artifacts(LOG, str(uuid4()), "night").table("counts", [{"a": 1}], "counts")
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
