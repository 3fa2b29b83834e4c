"""Check exports in registered formats, and formats and storages that come from outside."""

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pivot
import pyarrow.parquet as pq
import pytest
from pivot.core import plugins
from pivot.core.errors import ConfigError, PluginError
from pivot.tests.flow_runs import config_of, fingerprint

FORMAT = """
import pyarrow as pa
from pivot.plugin import Column, Exporter, TableSchema

ID, TEXT = Column("id", pa.string(), "Id."), Column("text", pa.string(), "Text.")
CHAT = TableSchema("chat", "One row per failure.", (ID, TEXT))


class ChatExporter(Exporter):
    def tables(self, shard):
        rows = {"train": [], "validation": []}
        for each in shard.episodes():
            if each.label is not None:
                rows[each.side].append({"id": each.episode["episode_id"], "text": each.label["target"]})
        return {(CHAT, side): CHAT.table(found) for side, found in rows.items()}


class BrokenExporter(ChatExporter):
    def tables(self, shard):
        return {(CHAT, "test"): CHAT.table([])}


class NoExporter:
    pass
"""

STORAGE = """
import contextlib
import os
from pathlib import Path
from pivot.core.storage import LocalStorage


class FolderStorage(LocalStorage):
    def __init__(self, url):
        super().__init__(Path(os.environ["PIVOT_SHELF"]) / url.text.partition("://")[2])
        self.url = url

    @contextlib.contextmanager
    def lock(self):
        with super().lock():
            yield self.url


class ForgetfulStorage(FolderStorage):
    def entries(self):
        return None
"""

Register = Callable[[str, str, str], None]


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Register:
    """Return a function that registers a member of a group besides the installed ones."""
    installed, points = plugins.entry_points, list[EntryPoint]()
    (tmp_path / "outside_format.py").write_text(FORMAT)
    (tmp_path / "outside_storage.py").write_text(STORAGE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PIVOT_SHELF", str(tmp_path / "shelf"))
    monkeypatch.setattr(
        plugins, "entry_points", lambda group: [*installed(group=group), *(p for p in points if p.group == group)]
    )
    for name in ("outside_format", "outside_storage"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def add(group: str, name: str, value: str) -> None:
        points.append(EntryPoint(name=name, value=value, group=f"pivot.{group}"))
        plugins.registered.cache_clear()
        plugins.load.cache_clear()

    monkeypatch.setattr(plugins, "registered", plugins.cache(plugins.registered.__wrapped__))
    monkeypatch.setattr(plugins, "load", plugins.cache(plugins.load.__wrapped__))
    return add


def test_the_dataset_of_a_store_is_its_export_in_the_format_dataset(small_store: Path, tmp_path: Path) -> None:
    result = pivot.export(small_store, tmp_path / "out")
    stored = {path.relative_to(small_store / "dataset"): path for path in (small_store / "dataset").rglob("*.parquet")}
    assert {*map(Path, result.files)} == {*stored}
    assert all((tmp_path / "out" / name).read_bytes() == path.read_bytes() for name, path in stored.items())
    assert pivot.export(small_store, tmp_path / "out") == result


def test_a_format_from_outside_has_its_own_columns(small_store: Path, tmp_path: Path, register: Register) -> None:
    register("exporters", "chat", "outside_format:ChatExporter")
    result = pivot.export(small_store, tmp_path / "chat", format="chat")
    labels = pivot.load_store(small_store).labels.filter("accepted").select("episode_id", "target").collect()
    rows = [row for name in result.files for row in pq.read_table(tmp_path / "chat" / name).to_pylist()]
    assert sorted((row["id"], row["text"]) for row in rows) == sorted(labels.rows())
    with pytest.raises(ConfigError, match="expected an empty folder or an export of format dataset"):
        pivot.export(small_store, tmp_path / "chat")
    with pytest.raises(ConfigError, match="is in the store that is read"):
        pivot.export(small_store, small_store / "chat", format="chat")


def test_a_format_that_breaks_its_contract_is_refused(small_store: Path, tmp_path: Path, register: Register) -> None:
    register("exporters", "broken", "outside_format:BrokenExporter")
    register("exporters", "none", "outside_format:NoExporter")
    with pytest.raises(PluginError, match=r"export format 'broken' .* answered tables\(\).* expected tables by"):
        pivot.export(small_store, tmp_path / "out", format="broken")
    with pytest.raises(PluginError, match=r"does not fit the group pivot.exporters: .* expected a subclass of"):
        pivot.export(small_store, tmp_path / "out", format="none")
    with pytest.raises(PluginError, match=r"unknown export format 'trl'; registered: analyzer, broken, .*none, pairs"):
        pivot.export(small_store, tmp_path / "out", format="trl")


def test_a_storage_from_outside_holds_a_store(tmp_path: Path, register: Register) -> None:
    register("storages", "shelf", "outside_storage:FolderStorage")
    config = config_of({"sokoban": 2}, rollouts=2)
    pivot.build(config, tmp_path / "local")
    pivot.build(config, "shelf://top/store")
    assert fingerprint(tmp_path / "shelf" / "top" / "store") == fingerprint(tmp_path / "local")
    assert pivot.verify("shelf://top/store").holds
    assert pivot.build(config, "shelf://top/store").already_complete


def test_a_storage_that_breaks_its_contract_is_refused(register: Register) -> None:
    register("storages", "lost", "outside_storage:ForgetfulStorage")
    register("storages", "odd", "outside_format:NoExporter")
    with pytest.raises(PluginError, match=r"storage 'lost' .* answered entries\(\) = None, expected a list"):
        pivot.build(config_of({"sokoban": 1}), "lost://top/store")
    with pytest.raises(PluginError, match=r"does not fit the group pivot.storages: .* expected a subclass of"):
        pivot.build(config_of({"sokoban": 1}), "odd://top/store")
    with pytest.raises(ConfigError, match=r"unknown scheme nfs://, registered: az, gs, lost, odd, s3"):
        pivot.build(config_of({"sokoban": 1}), "nfs://top/store")
