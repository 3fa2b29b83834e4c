"""Workers with other sources than the driver are refused, whichever file differs and whenever they join."""

import pickle
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pivot.core.errors import ConfigError
from pivot.flows.engines import cluster
from pivot.flows.engines.cluster import carry_out, packed
from pivot.flows.engines.versions import CODE, OURS, ROOMS, source_digest, versions_here
from pivot.flows.running import Running, pool_of
from pivot.tests.flow_runs import PATIENCE, clean_environment

ROOTS = sorted(path.name for path in OURS.glob("*.py"))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the files of a wheel."""
    target = tmp_path_factory.mktemp("copy") / "pivot"
    target.mkdir()
    for name in ROOTS:
        shutil.copy(OURS / name, target)
    for room in ROOMS:
        shutil.copytree(OURS / room, target / room, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def test_every_room_of_the_package_is_in_the_digest() -> None:
    declared = tomllib.loads((OURS / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert {name.split(".")[1] for name in declared if "." in name} == set(ROOMS)


def test_a_change_of_any_file_changes_the_digest(copy: Path) -> None:
    before = source_digest(copy)
    assert before == source_digest(OURS), "a wheel and a checkout of the same source are equal"
    for place in [*(copy / name for name in ROOTS), *(next((copy / room).rglob("*.py")) for room in ROOMS)]:
        source = place.read_bytes()
        place.write_bytes(source + b"\n")
        assert source_digest(copy) != before, place
        place.write_bytes(source)
    (copy / "flows/engines/extra.py").touch()
    assert source_digest(copy) != before
    (copy / "flows/engines/extra.py").unlink()
    assert source_digest(copy) == before


def test_an_order_of_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    theirs = {**versions_here(), CODE: "another", "pyarrow": "25.0"}
    monkeypatch.setattr(cluster, "versions_here", lambda: theirs)
    order = packed(abs, (-3,), tmp_path)
    monkeypatch.undo()
    _, error, _ = pickle.loads(carry_out(order))
    assert isinstance(error, ConfigError)
    assert re.search(r"a worker on .* has other versions .*PIVOT's source .*pyarrow .*here 25\.0", str(error))
    assert pickle.loads(carry_out(packed(abs, (-3,), tmp_path)))[0] == 3
    assert pickle.loads(order)[0] == theirs


@pytest.mark.operations
@pytest.mark.xdist_group("engines")
@pytest.mark.timeout(1200)
def test_a_dask_worker_of_other_sources_is_refused_also_when_it_joins_late(copy: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    changed = Path(shutil.copytree(copy, tmp_path / "pivot")) / "core/identity.py"
    changed.write_bytes(changed.read_bytes() + b"\n")
    command = [sys.executable, "-P", "-m", "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny"]
    settings = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**settings) as workers, distributed.Client(workers) as client:
        engine: Running = {"engine": "dask", "address": workers.scheduler_address, "workers": 0}
        with pool_of(engine, ["sokoban"], tmp_path / "store") as pool:
            assert list(pool.stream(abs, [(-3,)])) == [3]
            command += ["--no-dashboard", workers.scheduler_address]
            environment = clean_environment() | {"PYTHONPATH": str(tmp_path)}
            with subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL) as late:
                client.wait_for_workers(2, timeout=PATIENCE)
                with pytest.raises(ConfigError, match=r"a worker on .* has other versions .*PIVOT's source"):
                    list(pool.stream(subprocess.check_output, [(["sleep", "0.2"],)] * 40))
                late.kill()
