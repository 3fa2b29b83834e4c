"""A build resolves its config once and opens its store once; every worker process does so once, too."""

import pickle
from pathlib import Path

import pivot
import pytest
from pivot.datasets.store import store as stores
from pivot.datasets.store.config import make_config
from pivot.datasets.store.run import Run
from pivot.datasets.store.store import Store
from pivot.tests.flow_runs import config_of

FOUR_SHARDS = config_of({"sokoban": 2, "frozenlake": 2})


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return how often this process resolved a config and opened a store."""
    numbers = {"resolved": 0, "opened": 0}
    resolve, open_store = Run.__init__, Store.__init__

    def count_run(self: Run, *arguments: object, **options: object) -> None:
        numbers["resolved"] += 1
        resolve(self, *arguments, **options)  # type: ignore[arg-type]

    def count_store(self: Store, *arguments: object, **options: object) -> None:
        numbers["opened"] += 1
        open_store(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Run, "__init__", count_run)
    monkeypatch.setattr(Store, "__init__", count_store)
    return numbers


def test_a_build_of_four_shards_resolves_and_opens_once(counts: dict[str, int], tmp_path: Path) -> None:
    result = pivot.build(FOUR_SHARDS, tmp_path)
    assert result.shards == 4
    assert counts == {"resolved": 1, "opened": 1}
    assert pivot.build(FOUR_SHARDS, tmp_path).already_complete
    assert counts == {"resolved": 2, "opened": 2}


def test_a_process_opens_a_store_that_it_receives_once(counts: dict[str, int], tmp_path: Path) -> None:
    store = Store(tmp_path, make_config(FOUR_SHARDS))
    _ = store.run
    sent = pickle.dumps(store)
    assert counts == {"resolved": 1, "opened": 1}
    received = [pickle.loads(sent) for _ in range(3)]
    assert {each.run.run_id for each in received} == {store.run.run_id}
    assert counts == {"resolved": 2, "opened": 2}  # this process now stands for a worker
    assert received[0] is received[2]


def test_a_store_received_for_another_folder_or_config_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(FOUR_SHARDS)
    monkeypatch.chdir(tmp_path)
    here = stores.open_once(Path("store"), config)
    assert stores.open_once(Path("store"), config) is here
    assert stores.open_once(Path("store"), config.model_copy(update={"label_version": 2})) is not here
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert stores.open_once(Path("store"), config) is not here
