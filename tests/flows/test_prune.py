"""`pivot du` and `pivot prune`: sums as on disk, nothing that a manifest needs is removed, a kill leaves no half."""

import json
import logging
import os
import random
import re
import shutil
import time
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pivot
import pytest
from pivot.cli.console import size_text
from pivot.datasets.config import make_config
from pivot.datasets.nights import load_store
from pivot.datasets.progress import Silent
from pivot.datasets.proof.inventory import file_problems
from pivot.datasets.proof.verify import verify_store
from pivot.datasets.store import Store
from pivot.errors import ConfigError, NoStoreError, StoreError
from pivot.flows import deployments
from pivot.flows.append import reserve_part
from pivot.flows.engines.local import InProcess, execute_with
from pivot.flows.pipeline import BuildResult
from pivot.flows.prune import Retention, Rules, prune
from pivot.models.cache import FORMAT, CallCache
from pivot.storage import LocalStorage
from pivot.storage.commit import COMMIT
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.flow_runs import assert_whole, config_of, files_of, fingerprint
from pivot.tests.storage.faults import Fate, Killed, mortal

GIVEN_UP = "parts/0002"
OLDER = ("labels/v1/", "labels/v2/", "-labels-v1.parquet", "-labels-v2.parquet")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two parts, three label versions, a probe, a report, a part that was given up, and leftovers."""
    root = tmp_path_factory.mktemp("whole") / "store"
    pivot.build(config_of({"sokoban": 2, "frozenlake": 2}), root)
    pivot.append(config_of({"sokoban": 3}), root)
    for split in ("episode", "task"):
        pivot.relabel(root, {"split": split}, keep_old=True)
    pivot.probe(root, {"arms": ["no_hint"]})
    pivot.report(root, root.with_name("store-report"), limit=1)
    given_up = reserve_part(root, make_config(config_of({"sokoban": 1}, seed=5)))
    assert given_up is not None and given_up.root == root / GIVEN_UP
    for name in (".tmp/half", f"{COMMIT}/{'run.json'}", ".dataset-v2/old/train.parquet", "steps/.00000.parquet.tmp"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"left")
    return root


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole.with_name("store-report"), tmp_path / "store-report")
    return Path(shutil.copytree(whole, tmp_path / "store"))


def on_disk(root: Path) -> dict[str, int]:
    """Return the bytes of every file below a folder, counted by the standard library."""
    paths = [Path(folder) / name for folder, _, names in os.walk(root) for name in names]
    return {path.relative_to(root).as_posix(): path.stat().st_size for path in paths}


def refused(*arguments: str | Path) -> str:
    """Return the error of a command."""
    return str(error_of(*arguments))


def removed_bytes(before: dict[str, int], root: Path) -> int:
    """Return the bytes that are gone, except those of files that every prune rewrites."""
    after = on_disk(root)
    return sum(size for name, size in before.items() if name not in after)


def nights_in(folder: Path, template: Path, days: Iterable[str]) -> None:
    """Copy a store for each of these days, with a report next to it."""
    for day in days:
        shutil.copytree(template, folder / day)
        (folder / f"{day}-report").mkdir()
        (folder / f"{day}-report" / "report.json").write_text('{"report": "pivot"}')


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("night") / "night"
    pivot.build(config_of(1, rollouts=1), root)
    return root


# pivot du


def test_the_sums_are_those_of_the_files_on_disk(store: Path) -> None:
    for root in (store, store.parent):
        usage, files = pivot.disk_usage(root), on_disk(root)
        assert (usage.files, usage.bytes) == (len(files), sum(files.values()))
        shown = json.loads(run("du", root, "--format", "json"))
        assert shown["bytes"] == sum(row["bytes"] for row in shown["rows"]) == sum(files.values())
        assert f"{len(files)} files, {size_text(sum(files.values()))}" in run("du", root)
    kinds = {(row.store, row.part, row.kind): row for row in pivot.disk_usage(store.parent).rows}
    own: dict[tuple[str, str], dict[str, int]] = {}
    for (at, part, kind), row in kinds.items():
        own.setdefault((at, part), {})[kind] = row.bytes
    first, later = own[str(store), ""], own[str(store), "parts/0001"]
    tables = {f"table {name}" for name in ("episodes", "steps", "frames", "prompts", "calls")}
    shared = {*tables, "labels", "older labels v1", "older labels v2", "dataset", "receipts", "records"}
    assert first.keys() == shared | {"probe", "leftovers"}
    assert later.keys() == shared
    assert own[str(store), GIVEN_UP].keys() == {"unfinished part"}
    assert own[f"{store}-report", ""].keys() == {"report"}
    assert first["leftovers"] == 4 * len(b"left")
    older = [size for name, size in on_disk(store).items() if re.search(r"labels/v1/|-labels-v1\.", name)]
    assert first["older labels v1"] + later["older labels v1"] == sum(older) > 0


def test_stores_without_a_readable_config_take_space_too(store: Path) -> None:
    for content in ("{}", "[", '{"config": {"label_version": "many"}}'):
        (store / "run.json").write_text(content)
        (store / "parts.json").write_text(content)
        assert pivot.disk_usage(store).bytes == sum(on_disk(store).values())


def test_what_cannot_be_counted_is_named(store: Path, tmp_path: Path) -> None:
    with pytest.raises(NoStoreError, match="does not exist; name a store, or a folder of stores"):
        pivot.disk_usage(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"run\.json is a file"):
        pivot.disk_usage(store / "run.json")
    (store / "steps" / "far").symlink_to("/")
    for command in ("du", "prune"):
        assert "steps/far is a link" in refused(command, store)
    (store / "steps" / "far").unlink()
    os.mkfifo(store / "steps" / "pipe")
    for command in ("du", "prune"):
        assert "steps/pipe is a named pipe" in refused(command, store)
        assert "steps/pipe is a named pipe" in refused(command, store.parent)


# pivot prune of a store


def test_a_dry_run_lists_what_a_prune_removes_and_changes_nothing(store: Path) -> None:
    before = on_disk(store.parent)
    options = {"unfinished": "0d", "reports": True}
    planned = pivot.prune(store, dry_run=True, **options)
    said = run("prune", store, "--unfinished", "0d", "--reports", "--dry-run")
    assert f"{size_text(planned.bytes)} would be removed; nothing was changed" in said
    assert on_disk(store.parent) == before
    done = pivot.prune(store, **options)
    assert done.removals == planned.removals
    kinds = ["older labels", "leftovers", "older labels", "unfinished part", "report"]
    assert [each.kind for each in done.removals] == kinds
    assert done.bytes == removed_bytes(before, store.parent)
    again = pivot.prune(store, **options)
    assert (again.removals, again.bytes) == ([], 0)
    assert not store.with_name("store-report").exists()


def test_a_pruned_store_verifies_with_the_same_dataset(store: Path) -> None:
    before, frames = fingerprint(store), load_store(store)
    labels, episodes = frames.labels.collect(), frames.episodes.collect()
    assert verify_store(store, Silent()).problems != []  # the leftovers, and the part that was given up
    said = run("prune", store, "--unfinished", "0d")
    assert "older labels" in said and "pivot du" in said
    after = fingerprint(store)
    gone = before.keys() - after.keys()
    assert {name for name in gone if not name.startswith((GIVEN_UP, ".", "steps/."))} == {
        name for name in before if any(each in name for each in OLDER) and not name.startswith(GIVEN_UP)
    }
    card = {"README.md", "parts.json", "parts/0001/manifest.json", "parts/0001/pivot.duckdb"}  # digests of manifests
    same = after.keys() - {name for name in after if name in card or "/calls/" in name}
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert any(name.startswith("dataset/") for name in same)
    assert any(name.startswith("parts/0001/dataset/") for name in same)
    frames = load_store(store)
    assert frames.labels.collect().equals(labels)
    assert frames.episodes.collect().equals(episodes)
    report = pivot.verify(store)
    assert report.problems == []


def test_an_older_version_that_a_manifest_lists_would_be_missed(store: Path) -> None:
    """The step needs the manifest: without it, the same removal is a damage that verify finds."""
    shutil.rmtree(store / "labels" / "v1")
    missed = file_problems(Store.open(store))
    assert any(each.startswith("labels/v1/") and "missing" in each for each in missed)
    pivot.prune(store, unfinished="0d")
    assert file_problems(Store.open(store)) == []


def test_killed_before_any_change_the_next_prune_ends_as_if_nothing_had_happened(store: Path, tmp_path: Path) -> None:
    rules = Rules(unfinished_days=0, reports=True)
    expected_root = Path(shutil.copytree(store, tmp_path / "undisturbed" / "store"))
    with mortal(Fate()) as fate:
        prune(expected_root, rules, Silent())
    expected, changes = _content(expected_root), len(fate.changes)
    assert changes > 20
    assert verify_store(expected_root, Silent()).problems == []
    labels = load_store(store).labels.collect()
    steps = [index for index, change in enumerate(fate.changes, 1) if "journal" in change or "manifest" in change]
    moments = {*steps, *(step + 1 for step in steps), *random.Random(7).sample(range(1, changes + 1), 2), changes}
    interrupted = 0
    for moment in sorted(each for each in moments if each <= changes):
        root = Path(shutil.copytree(store, tmp_path / "killed" / "store"))
        with mortal(Fate(moment)), pytest.raises(Killed):
            prune(root, rules, Silent())
        place = f"killed before {fate.changes[moment - 1]}"
        assert load_store(root).labels.collect().equals(labels), place
        if any((root / part / COMMIT / "journal.json").exists() for part in (".", "parts/0001")):
            interrupted += 1
            with pytest.raises(StoreError, match=f"finish it with: pivot prune {root}"):
                verify_store(root, Silent())
            with pytest.raises(StoreError, match=f"finish it with: pivot prune {root}"):
                pivot.prune(root, dry_run=True)
        prune(root, rules, Silent())
        assert _content(root) == expected, place
        shutil.rmtree(root)
    assert interrupted > 3


def test_older_labels_stay_where_they_are_wanted(store: Path) -> None:
    older = sorted(path for path in store.rglob("labels/v1/**/*.parquet"))
    assert older
    assert "nothing to remove" in run("prune", store, "--keep-labels")
    assert all(path.exists() for path in older)
    assert pivot.prune(store, labels=False, unfinished="9d").removals == []
    assert "older labels" in {each.kind for each in pivot.prune(store).removals}
    assert not any(path.exists() for path in older)


def _content(root: Path) -> dict[str, bytes]:
    """Return all files but those with a time or digest of a database in them."""
    names = [name for name in files_of(root) if not name.endswith(("pivot.duckdb", ".lock"))]
    return {name: (root / name).read_bytes() for name in names}


def test_a_relabel_after_a_killed_prune_labels_again(store: Path) -> None:
    with mortal(Fate()) as fate:
        prune(Path(shutil.copytree(store, store.with_name("other"))), Rules(), Silent())
    bound = next(index for index, change in enumerate(fate.changes, 1) if "journal" in change)
    with mortal(Fate(bound + 1)), pytest.raises(Killed):
        prune(store, Rules(), Silent())
    pivot.relabel(store, {})  # not taken for the relabel that was interrupted
    assert Store.open(store).config.label_version == 4
    assert not [name for name in files_of(store) if name.startswith(("labels/v1", "labels/v2", "labels/v3"))]
    assert pivot.prune(store, unfinished="0d").removals
    assert verify_store(store, Silent()).problems == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"target": "dataset"}, "it replaces 'dataset', 'manifest.json' without a folder"),
        ({"objects": ["run.json"]}, "'run.json' without a folder"),
        ({"objects": []}, "without a folder"),
        ({"obsolete": ["labels/v3"]}, "it removes 'labels/v3'"),
        ({"obsolete": ["dataset"]}, "it removes 'dataset'"),
        ({"obsolete": ["labels/v1/../v3"]}, "is not a name below the store"),
        ({"mark": "7"}, "without a folder"),
    ],
)
def test_a_strangers_journal_removes_nothing(store: Path, change: dict[str, object], named: str) -> None:
    journal = {"source": "", "target": "", "mark": "", "objects": ["manifest.json"], "obsolete": ["labels/v1"]}
    (store / COMMIT / "journal.json").write_text(json.dumps(journal | change))
    before = on_disk(store)
    assert named in refused("prune", store)
    assert {name for name in before if not name.startswith(".tmp/")} <= on_disk(store).keys()


def test_a_store_that_is_written_is_left_alone(store: Path) -> None:
    before = fingerprint(store)
    with LocalStorage(store).lock():
        with pytest.raises(StoreError, match="being written by another run"):
            pivot.prune(store)
        assert f"{store} is being written by process {os.getpid()}" in pivot.prune(store.parent).kept
    assert fingerprint(store) == before


def test_a_part_is_given_up_by_its_age_and_never_when_it_is_complete(store: Path) -> None:
    pruned = pivot.prune(store)
    assert [each.kind for each in pruned.removals if each.kind == "unfinished part"] == []
    assert any(f"{GIVEN_UP} may still be resumed (7 days are not over)" in line for line in pruned.kept)
    week = time.time() - 8 * 86400
    for name in files_of(store / GIVEN_UP):
        os.utime(store / GIVEN_UP / name, (week, week))
    with LocalStorage(store / GIVEN_UP).lock():
        assert any(f"{GIVEN_UP} is being written" in line for line in pivot.prune(store).kept)
    parts = Path(shutil.copytree(store / "parts", store.with_name("parts")))
    assert [each.address for each in pivot.prune(store).removals] == [str(store / GIVEN_UP)]
    assert not (store / GIVEN_UP).exists()
    shutil.copytree(parts / "0002", store / GIVEN_UP)
    (store / GIVEN_UP / "manifest.json").write_text('{"files": {}}')  # killed before it was listed
    shutil.copytree(parts / "0001", store / "parts" / "notes")
    kept = pivot.prune(store, unfinished="0d")
    assert (kept.removals, len(kept.kept)) == ([], 1)
    assert "is complete and not listed" in kept.kept[0]


# Nights


@pytest.mark.parametrize(
    ("rule", "nights", "gone"),
    [
        ("3d", {"2026-01-01": True, "2026-01-06": True, "2026-01-07": True, "2026-01-10": True}, 2),
        ("3d", {"2026-01-01": True}, 0),
        ("3d", {"2026-01-01": True, "2026-01-02": False}, 1),
        ("3d", {"2026-01-01": False, "2026-01-02": False}, 2),
        ("2", {"2026-01-01": True, "2026-01-02": True, "2026-01-03": True}, 1),
        ("2", {"2026-01-01": True, "2026-01-02": False, "2026-01-03": False, "2026-01-04": True}, 0),
        ("1", {"2026-01-01": True, "2026-01-02": False, "2026-01-03": True, "2026-01-04": False}, 2),
        ("30", {"2026-01-01": True}, 0),
    ],
)
def test_the_rule_keeps_the_newest_nights(rule: str, nights: dict[str, bool], gone: int) -> None:
    expired = Retention.parse(rule).expired(nights, date(2026, 1, 10))
    assert len(expired) == gone
    whole = [name for name, finished in nights.items() if finished]
    assert not whole or max(whole) not in expired


@pytest.mark.parametrize("rule", ["0", "0d", "-1", "d", "14 d", "two", "14w", "٣"])
def test_a_rule_that_keeps_nothing_or_says_nothing_is_refused(rule: str) -> None:
    with pytest.raises(ConfigError, match="expected days such as 14d"):
        Retention.parse(rule)


def test_a_year_of_random_nights_is_pruned_as_an_independent_count_says() -> None:
    today, chance = date(2026, 6, 1), random.Random(3)
    for _ in range(300):
        ages = sorted(chance.sample(range(60), chance.randrange(1, 25)), reverse=True)
        nights = {(today - timedelta(days=age)).isoformat(): chance.random() < 0.7 for age in ages}
        count = chance.randrange(1, 20)
        done = [age for age, whole in zip(ages, nights.values(), strict=True) if whole]
        by_days = {age for age in ages if age > count and age not in done[-1:]}
        by_count = {age for age in ages if len(done) >= count and age > done[-count]}
        for rule, oracle in ((f"{count}d", by_days), (str(count), by_count)):
            expired = Retention.parse(rule).expired(nights, today)
            assert {(today - date.fromisoformat(name)).days for name in expired} == oracle


def test_nights_beyond_the_rule_go_with_their_reports_and_nothing_else(night: Path, tmp_path: Path) -> None:
    folder = tmp_path / "nightly"
    for name in ("sokoban", "svg"):
        nights_in(folder / name, night, ["2026-01-01", "2026-01-02", "2026-01-03"])
    (folder / "sokoban" / "2026-01-01" / "manifest.json").unlink()  # a night that failed
    others = ("sokoban/2026-01-00", "sokoban/2025-12-31-copy", "sokoban/best", "2024")
    for name in others:
        shutil.copytree(night, folder / name)
    (folder / "svg" / "2025-01-01").mkdir()
    (folder / "svg" / "2025-01-01" / "thesis.txt").write_text("years of work")
    before = on_disk(folder)
    planned = pivot.prune(folder, keep="1", dry_run=True)
    assert on_disk(folder) == before
    said = run("prune", folder, "--keep", "1")
    assert f"{size_text(planned.bytes)} removed" in said
    assert removed_bytes(before, folder) == planned.bytes > 0
    left = {path.relative_to(folder).as_posix() for path in folder.glob("*/*") if not path.is_file()}
    kept = {f"{name}/{each}" for name in ("sokoban", "svg") for each in ("2026-01-03", "2026-01-03-report")}
    named = {name for name in left if name.count("/") == 1 and not name.startswith("2024")}
    assert named == {*kept, *(name for name in others if "/" in name), "svg/2025-01-01"}
    assert (folder / "svg" / "2025-01-01" / "thesis.txt").exists()
    for name in ("sokoban/2026-01-03", "svg/2026-01-03", *others):
        assert_whole(folder / name)
    assert pivot.prune(folder, keep="1").removals == []


def test_a_night_that_was_killed_while_it_was_removed_goes_with_the_next_prune(night: Path, tmp_path: Path) -> None:
    days = ["2026-01-01", "2026-01-02"]
    nights_in(tmp_path / "whole", night, days)
    with mortal(Fate()) as fate:
        prune(tmp_path / "whole", Rules(Retention.parse("1")), Silent())
    for moment in range(1, len(fate.changes) + 1):
        folder = tmp_path / str(moment)
        nights_in(folder, night, days)
        with mortal(Fate(moment)), pytest.raises(Killed):
            prune(folder, Rules(Retention.parse("1")), Silent())
        with suppress(NoStoreError):  # whole, or no store any more
            Store.open(folder / days[0])
            assert_whole(folder / days[0])
        prune(folder, Rules(Retention.parse("1")), Silent())
        assert sorted(path.name for path in folder.iterdir()) == [days[1], f"{days[1]}-report"], moment
    assert len(fate.changes) > 10


def test_a_night_that_is_written_is_kept(night: Path, tmp_path: Path) -> None:
    nights_in(tmp_path, night, ["2026-01-01", "2026-01-02"])
    with LocalStorage(tmp_path / "2026-01-01").lock():
        pruned = pivot.prune(tmp_path, keep="1")
        assert pruned.removals == []
        assert pruned.kept[0] == f"{tmp_path / '2026-01-01'} is being written by process {os.getpid()}"
    assert_whole(tmp_path / "2026-01-01")


def test_wrong_wishes_are_refused_before_anything_changes(night: Path, tmp_path: Path) -> None:
    nights_in(tmp_path, night, ["2026-01-01", "2026-01-02"])
    before = on_disk(tmp_path)
    assert "is one store, expected a folder of nights" in refused("prune", tmp_path / "2026-01-01", "--keep", "1")
    assert "keep: found '0'" in refused("prune", tmp_path, "--keep", "0")
    assert "unfinished: found 'soon', expected days" in refused("prune", tmp_path, "--unfinished", "soon")
    assert "cache: found '9', expected days" in refused("prune", tmp_path, "--keep", "1", "--cache", "9")
    assert "does not exist" in refused("prune", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "holds no store" in refused("prune", tmp_path / "empty")
    (tmp_path / "2026-01-02" / "steps" / "far").symlink_to("/")
    assert "is a link" in refused("prune", tmp_path, "--keep", "1")
    (tmp_path / "2026-01-02" / "steps" / "far").unlink()
    assert on_disk(tmp_path) == before


def test_linked_nights_are_pruned_on_request(night: Path, tmp_path: Path) -> None:
    nights_in(tmp_path / "disk", night, ["2026-01-02"])
    (tmp_path / "nightly").mkdir()
    shutil.copytree(night, tmp_path / "nightly" / "2026-01-01")
    (tmp_path / "nightly" / "2026-01-02").symlink_to(tmp_path / "disk" / "2026-01-02")
    assert "is a link" in refused("prune", tmp_path / "nightly", "--keep", "1")
    run("prune", tmp_path / "nightly", "--keep", "1", "--follow-links")
    assert [path.name for path in (tmp_path / "nightly").iterdir()] == ["2026-01-02"]
    assert_whole(tmp_path / "disk" / "2026-01-02")


# The nightly flow


@pytest.mark.parametrize(("whole", "rule"), [(True, "2"), (False, "2"), (True, "1d")])
def test_a_nightly_prunes_after_a_night_that_completed(
    night: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool, rule: str
) -> None:
    nights_in(tmp_path, night, ["2020-01-01", "2020-01-02"])
    made, day = tmp_path / "2020-01-03", datetime(2020, 1, 3, tzinfo=UTC)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(deployments, "flow_run", SimpleNamespace(id=str(UUID(int=1)), scheduled_start_time=day))
    watch = nullcontext((_Watch(), None))
    monkeypatch.setattr(deployments, "at_work", lambda *_: watch)
    monkeypatch.setattr(deployments, "execute_as_tasks", lambda _: execute_with(InProcess()))
    monkeypatch.setattr(deployments, "show", lambda *_, **__: None)
    monkeypatch.setattr(BuildResult, "is_whole", whole)
    config = make_config(config_of(1, rollouts=1))
    for out, keep, named in (("{date}", "none", "expected days such as 14d"), ("fixed", "2", "ends with /{date}")):
        with pytest.raises(ConfigError, match=re.escape(named)):
            deployments.build_dataset.fn(config, out, keep=keep)
    assert not made.exists()
    deployments.build_dataset.fn(config, str(tmp_path / "{date}"), keep=rule)  # days count from the night, not from now
    stores = sorted(path.name for path in tmp_path.iterdir() if not path.name.endswith("-report"))
    assert stores == (["2020-01-02", made.name] if whole else ["2020-01-01", "2020-01-02", made.name])
    assert (tmp_path / "2020-01-01-report").exists() is not whole
    assert_whole(made)


class _Watch(Silent):
    """Stands in for the reports of a flow run."""

    log = logging.getLogger("pivot.tests")


# The call cache


def test_old_answers_leave_the_call_cache(night: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "calls.sqlite"
    monkeypatch.setattr("pivot.api.upkeep.default_cache", lambda: str(path))
    assert pivot.prune(night, cache="0d").removals == []  # no cache yet
    calls = CallCache(path)
    facts = {"model": {"model": "m"}, "prompt_hash": "h"}
    for key in ("old", "new"):
        calls.put(key, facts, "teacher", {"text": "x" * 100_000})
    calls.close()
    calls = CallCache(path)
    calls._reader.execute(f"UPDATE calls_v{FORMAT} SET stored_at = '2020-01-01T00:00:00Z' WHERE key = 'old'")
    calls.close()
    size = path.stat().st_size
    (planned,) = pivot.prune(night, cache="90d", dry_run=True).removals
    assert (planned.kind, planned.files, planned.address) == ("cache entries", 1, str(path))
    assert 100_000 < planned.bytes < 101_000
    assert path.stat().st_size == size
    assert pivot.prune(night, cache="90d").removals == [planned]
    assert path.stat().st_size < size - 90_000
    calls = CallCache(path)
    assert calls.get("old") is None
    assert calls.get("new") == {"text": "x" * 100_000}
    calls.close()
