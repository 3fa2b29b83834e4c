"""Nights that grow one store: a part per night, the same after a retry or a kill, and what is refused."""

import logging
import re
from contextlib import nullcontext
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pivot
import pytest
from pivot.datasets.config import RunConfig, make_config
from pivot.datasets.parts import listed_parts, load_store
from pivot.datasets.progress import Silent
from pivot.datasets.proof.verify import verify_store
from pivot.datasets.store import Store
from pivot.errors import ConfigError, StoreError
from pivot.flows import deployments
from pivot.flows.engines.local import InProcess, execute_with
from pivot.identity import derive_seed
from pivot.storage import LocalStorage
from pivot.tests.flow_runs import FREE_FOLDERS, config_of, fingerprint
from pivot.tests.storage.faults import Fate, Killed, mortal

CONFIG = config_of({"sokoban": 2, "frozenlake": 2}, rollouts=2)


class Nights:
    """Runs the nightly flow for a day, without a server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._set = monkeypatch.setattr
        self._set(deployments, "at_work", lambda *_: nullcontext((_Watch(), InProcess())))
        self._set(deployments, "execute_as_tasks", lambda _: execute_with(InProcess()))
        self._set(deployments, "show", lambda *_: None)

    def run(self, day: str, out: Path | str, **parameters: Any) -> dict[str, Any]:
        """Return the result of the night of a day."""
        start = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC)
        self._set(deployments, "flow_run", SimpleNamespace(id=str(UUID(int=1)), scheduled_start_time=start))
        return deployments.build_dataset.fn(make_config(CONFIG), str(out), append=True, **parameters)


class _Watch(Silent):
    """Stands in for the reports of a flow run."""

    log = logging.getLogger("pivot.tests")


@pytest.fixture
def nights(monkeypatch: pytest.MonkeyPatch) -> Nights:
    return Nights(monkeypatch)


def _config(day: str) -> RunConfig:
    return make_config(CONFIG | {"seed": derive_seed("nightly", day) % 2**32})


def _promised(root: Path) -> dict[str, str]:
    """Return the digests of the files with guaranteed bytes in all parts."""
    free = {*FREE_FOLDERS, "parts.json"}
    files = {name: digest for name, digest in fingerprint(root).items() if free.isdisjoint(name.split("/"))}
    del files["README.md"]  # like parts.json, the card of all parts has a digest of their manifests
    return files


def test_each_night_adds_a_part_and_a_second_run_of_it_nothing(nights: Nights, tmp_path: Path) -> None:
    days = ("2026-01-31", "2026-02-01", "2026-02-02")
    for number, day in enumerate(days):
        result = nights.run(day, tmp_path / "grown", verify=True)
        assert Path(result["root"]) == (tmp_path / "grown" / f"parts/{number:04d}" if number else tmp_path / "grown")
        assert result["verified"]
    whole = fingerprint(tmp_path / "grown")
    for day in days:
        nights.run(day, tmp_path / "grown")
    assert fingerprint(tmp_path / "grown") == whole
    assert [*listed_parts(LocalStorage(tmp_path / "grown"))] == [1, 2]
    pivot.build(_config(days[0]), tmp_path / "same" / "grown")
    for day in days[1:]:
        assert pivot.append(_config(day), tmp_path / "same" / "grown").number
    assert _promised(tmp_path / "same" / "grown") == _promised(tmp_path / "grown")
    groups = load_store(tmp_path / "grown").episodes.collect()["group_id"]
    assert groups.n_unique() == len(groups) / 2  # no level twice
    assert len(load_store(tmp_path / "grown", as_of_part=1).episodes.collect()) == len(groups) * 2 / 3
    pivot.compact(tmp_path / "grown", tmp_path / "large")
    compacted = load_store(tmp_path / "large").episodes.collect()
    assert sorted(compacted["episode_id"]) == sorted(load_store(tmp_path / "grown").episodes.collect()["episode_id"])
    assert [*listed_parts(LocalStorage(tmp_path / "large"))] == [1, 2]  # a part is one run, and stays one
    files = {name: len([*(tmp_path / name).rglob("*.parquet")]) for name in ("grown", "large")}
    assert files["large"] < files["grown"]
    assert verify_store(tmp_path / "large", Silent()).problems == []


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_killed_night_gets_its_part_again(nights: Nights, tmp_path: Path, share: float) -> None:
    """Killed before the first change of the second night, in the middle, and before its last change."""
    for root in (tmp_path / "same" / "grown", tmp_path / "grown"):
        nights.run("2026-01-31", root)
    with mortal(Fate()) as fate:
        nights.run("2026-02-01", tmp_path / "same" / "grown")
    root = tmp_path / "grown"
    with pytest.raises(Killed), mortal(Fate(max(1, int(len(fate.changes) * share)))):
        nights.run("2026-02-01", root)
    nights.run("2026-02-01", root)
    assert [*listed_parts(LocalStorage(root))] == [1]
    assert [path.name for path in (root / "parts").iterdir()] == ["0001"]
    assert _promised(root) == _promised(tmp_path / "same" / "grown")


def test_what_does_not_fit_is_refused(nights: Nights, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape("expected one for all nights, without {date}")):
        nights.run("2026-01-31", tmp_path / "{date}")
    with pytest.raises(ConfigError, match="leave keep empty"):
        nights.run("2026-01-31", tmp_path / "grown", keep="2")
    assert [*tmp_path.iterdir()] == []
    root = tmp_path / "grown"
    Store(root, _config("2026-01-31")).write_run()
    with pytest.raises(StoreError, match=f"unfinished first night.*finish it with: pivot build --out {root}"):
        nights.run("2026-02-01", root)
    nights.run("2026-01-31", root)
    nights.run("2026-02-01", root)
    assert [*listed_parts(LocalStorage(root))] == [1]
