"""A folder of nights: every reader takes it as one store, and its card names only finished nights."""

import json
import logging
import shutil
from contextlib import nullcontext
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pivot
import pytest
from pivot.core.errors import StoreError
from pivot.core.progress import Reporter
from pivot.datasets.store.config import make_config
from pivot.datasets.store.nights import write_nights_card
from pivot.flows import deployments
from pivot.flows.engines.local import InProcess
from pivot.tests.cli.command_line import run
from pivot.tests.flow_runs import config_of

import datasets

CONFIG = config_of({"sokoban": 2, "frozenlake": 2}, rollouts=2)
DAYS = ("2026-01-31", "2026-02-01")


class _Watch(Reporter):
    """Stands in for the reports of a flow run."""

    log = logging.getLogger("pivot.tests")


def run_night(monkeypatch: pytest.MonkeyPatch, day: str, out: str, **parameters: Any) -> dict[str, Any]:
    """Run the flow of a day, without a server."""
    start = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC)
    monkeypatch.setattr(deployments, "at_work", lambda *_: nullcontext((_Watch(), InProcess())))
    monkeypatch.setattr(deployments, "TaskPool", lambda pool: pool)
    monkeypatch.setattr(deployments, "show", lambda *_: None)
    monkeypatch.setattr(deployments, "flow_run", SimpleNamespace(id=str(UUID(int=1)), scheduled_start_time=start))
    return deployments.build_dataset.fn(make_config(CONFIG), out, **parameters)


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nights of the flow, a killed night, a report, notes, and a hidden store."""
    folder = tmp_path_factory.mktemp("nights") / "nightly"
    with pytest.MonkeyPatch.context() as monkeypatch:
        for day in DAYS:
            run_night(monkeypatch, day, str(folder / "{date}"))
    shutil.copytree(folder / DAYS[0], folder / "2026-02-02")
    (folder / "2026-02-02" / "manifest.json").unlink()
    shutil.copytree(folder / DAYS[0], folder / ".hidden")
    (folder / f"{DAYS[0]}-report").mkdir()
    (folder / "notes.txt").write_text("mine")
    return folder


def test_readers_see_the_finished_nights_as_one_store(nights: Path, tmp_path: Path) -> None:
    each = [pivot.load_store(nights / day) for day in DAYS]
    whole = pivot.load_store(nights)
    for table in ("episodes", "steps", "frames", "prompts", "calls", "labels"):
        heights = [getattr(frames, table).collect().height for frames in each]
        assert getattr(whole, table).collect().height == sum(heights) > 0, table
    count = whole.episodes.collect().height
    assert pivot.query(nights, "select count(*) as n from episodes")["n"].to_list() == [count]
    assert json.loads(run("stats", nights, "--format", "json"))["modes"]
    names = whole.labels.filter("accepted").collect()["episode_id"].to_list()
    assert names[-1] in run("peek", nights, names[-1])
    record = pivot.report(nights, tmp_path / "site").record
    assert (record["count"], record["name"]) == (count, "nightly")
    overview = json.loads((tmp_path / "site" / "overview.json").read_text())
    assert [night["folder"] for night in overview["nights"]] == [*DAYS]
    assert "sokoban" in run("compare", nights, nights / DAYS[0])
    rows = pivot.export(nights, tmp_path / "pairs", format="pairs").rows
    assert rows == sum(pivot.export(nights / day, tmp_path / day, format="pairs").rows for day in DAYS) > 0
    report = pivot.verify(nights, export=tmp_path / "pairs")
    assert (report.problems, report.checked["episodes"]) == ([], count)


def test_load_dataset_reads_the_finished_nights(nights: Path, tmp_path: Path) -> None:
    def loaded(root: Path, config: str) -> dict[str, list[str]]:
        whole = datasets.load_dataset(str(root), config, cache_dir=str(tmp_path / "cache" / root.name))
        return {str(side): sorted(rows["episode_id"]) for side, rows in whole.items()}

    for config in ("all", "sokoban", "frozenlake_episodes"):
        each = [loaded(nights / day / "dataset", config) for day in DAYS]
        sides = sorted({side for one in each for side in one})
        assert loaded(nights, config) == {
            side: sorted(name for one in each for name in one.get(side, [])) for side in sides
        }


def test_a_damaged_night_is_named(nights: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(nights, tmp_path / "nightly"))
    next((folder / DAYS[1]).glob("steps/*/*.parquet")).unlink()
    with pytest.raises(StoreError, match=f"{DAYS[1]}/steps/"):
        pivot.load_store(folder)
    assert any(each.startswith(f"{DAYS[1]}: ") for each in pivot.verify(folder).problems)


def test_nights_that_differ_are_not_loaded_as_one_dataset(nights: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(nights, tmp_path / "nightly"))
    pivot.relabel(folder / DAYS[0], {"log": "actions"})
    assert write_nights_card(folder)
    card = (folder / "README.md").read_text()
    assert "Not loaded with the others, because their split, " in card and f"newest night: {DAYS[0]}." in card
    assert f"- {DAYS[0]}/" not in card and f"- {DAYS[1]}/dataset/sokoban/" in card


def test_a_readme_of_somebody_else_stays(
    nights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "README.md").write_text("mine")
    run_night(monkeypatch, DAYS[0], str(tmp_path / "{date}"))
    assert (tmp_path / "README.md").read_text() == "mine"
    assert "README.md was not written by PIVOT and stays" in caplog.text
    run_night(monkeypatch, DAYS[0], str(tmp_path / "plain" / "{date}-copy"))
    assert not (tmp_path / "plain" / "README.md").exists(), "only nights named by their day have a card"


def test_the_seed_of_a_night_is_that_of_its_day_and_of_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two deployments with different seeds play different levels on one day."""
    monkeypatch.setattr(deployments, "_day", lambda: date(2030, 1, 2))
    seeds = {seed: deployments._dated("nights/{date}", seed) for seed in (0, 1, 7)}
    assert {str(root) for root, _ in seeds.values()} == {str(Path("nights/2030-01-02"))}
    assert [number - seeds[0][1] for _, number in seeds.values()] == [0, 1, 7]
    assert deployments._dated("nights/fixed", 7)[1] == 7
