"""Workers with other sources than the driver are refused, whichever file differs and whenever they join."""

import pickle
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pivot.errors import ConfigError
from pivot.flows.engines import cluster
from pivot.flows.engines.base import Workers, open_pool
from pivot.flows.engines.cluster import Order, carry_out, packed, unpacked
from pivot.flows.engines.versions import CODE, OURS, ROOMS, source_digest, versions_here
from pivot.tests.flow_runs import clean_environment

ROOTS = sorted(path.name for path in OURS.glob("*.py") if path.name != "setup.py")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a wheel has it."""
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
    for place in [*(copy / name for name in ROOTS), *(next((copy / room).glob("*.py")) for room in ROOMS)]:
        source = place.read_bytes()
        place.write_bytes(source + b"\n")
        assert source_digest(copy) != before, place
        place.write_bytes(source)
    (copy / "flows/engines/extra.py").touch()
    assert source_digest(copy) != before
    (copy / "flows/engines/extra.py").unlink()
    assert source_digest(copy) == before


def test_an_order_of_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {**versions_here(), CODE: "another", "pyarrow": "25.0"}
    monkeypatch.setattr(cluster, "versions_here", lambda: theirs)
    order, checked_nowhere = packed(Order(abs, (-3,))), packed(Order(abs, (-3,)), checked=False)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"a worker on .* has other versions .*PIVOT's source .*pyarrow .*here 25\.0"):
        unpacked(carry_out(order))
    assert unpacked(carry_out(checked_nowhere)) == unpacked(carry_out(packed(Order(abs, (-3,))))) == 3
    assert pickle.loads(order)[0] == theirs


@pytest.fixture
def late_worker(copy: Path, tmp_path: Path) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Dask workers that a test starts; they end with it."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for each in started:
        each.kill()
        each.wait()


@pytest.mark.operations
@pytest.mark.xdist_group("engines")
@pytest.mark.timeout(300)
def test_a_dask_worker_of_other_sources_is_refused_also_when_it_joins_late(
    copy: Path, tmp_path: Path, late_worker: list["subprocess.Popen[bytes]"]
) -> None:
    distributed = pytest.importorskip("distributed")
    changed = copy / "identity.py"
    changed.write_bytes(changed.read_bytes() + b"\n")

    def join(address: str) -> None:
        command = [sys.executable, "-P", "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny"]
        environment = clean_environment() | {"PYTHONPATH": str(copy.parent)}
        late_worker.append(subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL))

    settings = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**settings) as workers, distributed.Client(workers) as client:
        with open_pool(Workers("dask", workers.scheduler_address), ["sokoban"], tmp_path / "store") as pool:
            join(workers.scheduler_address)
            client.wait_for_workers(2, timeout=60)
            with pytest.raises(ConfigError, match=r"a worker on .* has other versions .*PIVOT's source"):
                list(pool.stream(subprocess.check_output, [(["sleep", "0.2"],)] * 40))
        with (
            pytest.raises(ConfigError, match=r"node tcp://.* has other versions.*PIVOT's source"),
            open_pool(Workers("dask", workers.scheduler_address), ["sokoban"], tmp_path / "store"),
        ):
            pass
