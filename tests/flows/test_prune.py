"""A folder of nights: every reader takes it as one store, and `pivot prune` removes nothing but old nights."""

import errno
import json
import logging
import os
import random
import re
import shutil
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Never
from uuid import UUID

import pivot
import pytest
from pivot.core.errors import ConfigError, NoStoreError, StoreError
from pivot.core.progress import Reporter
from pivot.core.storage import LocalStorage
from pivot.datasets.store.config import make_config
from pivot.datasets.store.nights import nights_of, unfinished_nights, write_nights_card
from pivot.datasets.store.store import Store
from pivot.flows import deployments
from pivot.flows import prune as pruning
from pivot.flows.engines.local import InProcess
from pivot.flows.pipeline import BuildResult
from pivot.flows.prune import OWNER, Retention, RetentionError
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.core.faults import Fate, Killed, mortal
from pivot.tests.flow_runs import assert_whole, config_of
from pivot.tests.stores import built_once

import datasets


def on_disk(root: Path) -> dict[str, int]:
    """Return the bytes of every file below a folder, counted by the standard library."""
    paths = [Path(folder) / name for folder, _, names in os.walk(root) for name in names]
    return {path.relative_to(root).as_posix(): path.stat().st_size for path in paths}


def prune_error(*arguments: str | Path) -> str:
    """Return the error of `pivot prune`."""
    return str(error_of("prune", *arguments))


def removed_bytes(before: dict[str, int], root: Path) -> int:
    """Return the bytes that are gone, except those of files that every prune rewrites."""
    after = on_disk(root)
    return sum(size for name, size in before.items() if name not in after)


def nights_in(folder: Path, template: Path, days: Iterable[str]) -> None:
    """Copy a store for each of these days, with a report next to it."""
    for day in days:
        shutil.copytree(template, folder / day)
        (folder / f"{day}-report").mkdir()
        run_id = json.loads((template / "run.json").read_text())["run_id"]
        (folder / f"{day}-report" / "report.json").write_text(json.dumps({"run_id": run_id, "files": ["pages/1.js"]}))


night = built_once(config_of(1, rollouts=1))


# Nights


@pytest.mark.parametrize("rule", ["0", "0d", "-1", "d", "14 d", "two", "14w", "٣"])
def test_an_empty_or_invalid_rule_is_refused(rule: str) -> None:
    with pytest.raises(ConfigError, match="expected days such as 14d"):
        Retention.parse(rule)


def test_a_year_of_random_nights_is_pruned_as_an_independent_count_says() -> None:
    today, chance = date(2026, 6, 1), random.Random(3)
    for _ in range(300):
        ages = sorted(chance.sample(range(60), chance.randrange(1, 25)), reverse=True)
        nights = [(today - timedelta(days=age)).isoformat() for age in ages]
        count = chance.randrange(1, 20)
        by_days = {age for age in ages[:-1] if age > count}
        by_count = {age for age in ages if sum(other <= age for other in ages) > count}
        for rule, oracle in ((f"{count}d", by_days), (str(count), by_count)):
            expired = Retention.parse(rule).expired(nights, today)
            assert {(today - date.fromisoformat(name)).days for name in expired} == oracle


def test_the_name_of_a_folder_is_no_template(night: Path, tmp_path: Path) -> None:
    """Catch a card that runs code which a folder's name holds."""
    shutil.copytree(night, tmp_path / "{{ 7 * 7 }}")
    write_nights_card(tmp_path)
    assert "| {{ 7 * 7 }} | [card]({{ 7 * 7 }}/" in (tmp_path / "README.md").read_text()


def test_nights_beyond_the_rule_go_with_their_reports_and_nothing_else(night: Path, tmp_path: Path) -> None:
    folder = tmp_path / "nightly"
    nights_in(folder, night, ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"])
    (folder / "2026-01-01" / "manifest.json").unlink()  # a night that failed
    others = ("2026-01-00", "2025-12-31-copy", "best", "below/2026-01-01", "below/2026-01-02")
    for name in others:
        shutil.copytree(night, folder / name)
    (folder / "2025-01-01").mkdir()
    (folder / "2025-01-01" / "thesis.txt").write_text("years of work")
    (folder / "2025-01-02").write_text("a file")
    write_nights_card(folder)
    before = on_disk(folder)
    planned = pivot.prune(folder, keep="1", now=True, dry_run=True)
    assert on_disk(folder) == before
    assert "removes 2 of 3 nights" in prune_error(folder, "--keep", "1", "--now")
    assert on_disk(folder) == before
    run("prune", folder, "--keep", "1", "--now", "--yes")
    assert removed_bytes(before, folder) == planned.bytes > 0
    gone = {name.partition("/")[0] for name in before.keys() - on_disk(folder).keys()}
    assert gone == {f"{day}{kind}" for day in ("2026-01-02", "2026-01-03") for kind in ("", "-report")}
    for name in ("2026-01-04", *others):
        assert_whole(folder / name)
    card = (folder / "README.md").read_text()
    assert "2026-01-04/dataset" in card and "2026-01-03" not in card
    assert pivot.prune(folder, keep="1").removals == []


@pytest.mark.parametrize("owner", [None, "mine"])
def test_a_night_killed_while_removed_goes_with_the_next_prune(night: Path, tmp_path: Path, owner: str | None) -> None:
    days = ["2026-01-01", "2026-01-02"]
    owned(tmp_path / "whole", night, dict.fromkeys(days, owner))
    with mortal(Fate()) as fate:
        pivot.prune(tmp_path / "whole", keep="1", owner=owner, now=True)
    for moment in range(1, len(fate.changes) + 1):
        folder = tmp_path / str(moment)
        owned(folder, night, dict.fromkeys(days, owner))
        with mortal(Fate(moment)), pytest.raises(Killed):
            pivot.prune(folder, keep="1", owner=owner, now=True)
        with suppress(NoStoreError):  # whole, or no store any more
            Store.open(folder / days[0])
            assert_whole(folder / days[0])
        assert f"{days[1]}/" in nights_of(folder), "readers take what is left"
        pivot.prune(folder, keep="1", owner=owner, now=True)
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
    assert "is one store, expected a folder of nights" in prune_error(tmp_path / "2026-01-01", "--keep", "1")
    assert "keep: found '0'" in prune_error(tmp_path, "--keep", "0")
    assert "does not exist" in prune_error(tmp_path / "nowhere", "--keep", "1")
    (tmp_path / "empty").mkdir()
    assert "holds no finished night" in prune_error(tmp_path / "empty", "--keep", "1")
    (tmp_path / "2026-01-02" / "steps" / "far").symlink_to("/")
    assert "is a link" in prune_error(tmp_path, "--keep", "1")
    (tmp_path / "2026-01-02" / "steps" / "far").unlink()
    assert on_disk(tmp_path) == before


def test_a_night_is_marked_and_goes_another_day_or_comes_back(night: Path, tmp_path: Path) -> None:
    folder, first = tmp_path / "nightly", date(2026, 2, 1)
    days = [f"2026-01-0{day}" for day in range(1, 6)]
    nights_in(folder, night, days)
    write_nights_card(folder)
    before = on_disk(folder)
    marked = pivot.prune(folder, keep="3", today=first)
    assert [(each.kind, Path(each.address).name) for each in marked.removals] == [("mark", day) for day in days[:2]]
    assert removed_bytes(before, folder) == sum(before[f"{day}/manifest.json"] for day in days[:2])
    assert [*nights_of(folder)] == [f"{day}/" for day in days[2:]] and not unfinished_nights(folder)
    for unfinished in (False, True):
        with pytest.raises(NoStoreError, match=r"to keep it, rename \.removed-2026-02-01\.json to manifest\.json"):
            nights_of(folder / days[0], unfinished=unfinished)
    assert days[0] not in (folder / "README.md").read_text()
    assert pivot.prune(folder, keep="3", today=first).removals == [], "not on the same day"
    (folder / days[1] / ".removed-2026-02-01.json").rename(folder / days[1] / "manifest.json")
    assert_whole(folder / days[1])
    later = pivot.prune(folder, keep="4", today=first + timedelta(days=1))
    removed = {(each.kind, Path(each.address).name) for each in later.removals}
    assert removed == {("night", days[0]), ("report", f"{days[0]}-report")}
    assert not (folder / days[0]).exists() and not (folder / f"{days[0]}-report").exists()
    assert_whole(folder / days[1])
    (folder / days[1] / "manifest.json").rename(folder / days[1] / ".removed-2026-01-30.json")
    pivot.build(config_of(1, rollouts=1), folder / days[1])  # so does a build that resumes it
    assert not [*(folder / days[1]).glob(".removed-*")]
    assert_whole(folder / days[1])


def owned(folder: Path, template: Path, owners: dict[str, str | None]) -> None:
    nights_in(folder, template, owners)
    for day, owner in owners.items():
        if owner is not None:
            (folder / day / OWNER).write_text(json.dumps({"owner": owner}))


def test_a_deployment_removes_its_own_nights_alone(night: Path, tmp_path: Path) -> None:
    """The nights of another owner, of nobody and of a damaged owner file stay as they are."""
    kinds = ("mine", "theirs", None, "mine", None, "mine", "theirs")
    owners = {f"2026-01-{day:02d}": kind for day, kind in enumerate(kinds, 1)}
    owned(tmp_path, night, owners)
    shutil.copytree(night, tmp_path / "2026-01-08")
    (tmp_path / "2026-01-08" / OWNER).write_text("{")
    others = {day for day in [*owners, "2026-01-08"] if owners.get(day) != "mine"}
    before = {day: on_disk(tmp_path / day) for day in others}
    pivot.prune(tmp_path, keep="1", owner="mine", now=True, yes=True)
    left = others | {"2026-01-06"}
    assert {path.name for path in tmp_path.glob("20*") if not path.name.endswith("-report")} == left
    assert {day: on_disk(tmp_path / day) for day in others} == before
    assert {path.name[:10] for path in tmp_path.glob("*-report")} == left - {"2026-01-08"}
    assert "holds nights of several owners" in prune_error(tmp_path, "--keep", "1", "--yes")


def test_what_only_looks_like_a_night_stays(night: Path, tmp_path: Path) -> None:
    """Forged owners, stores of other tools, reports of other stores and a mark without a day are not removed."""
    owned(tmp_path, night, dict.fromkeys(("2026-01-01", "2026-01-02", "2026-01-03"), "mine"))
    strange = ['{"owner": ["mine"]}', '{"owner": null}', '["mine"]', '""', "", '{"owner": "mine "}']
    for day, text in enumerate(strange, 1):
        shutil.copytree(night, tmp_path / f"2025-01-0{day}")
        (tmp_path / f"2025-01-0{day}" / OWNER).write_text(text)
    shutil.copytree(night, tmp_path / "2025-02-01")
    (tmp_path / "2025-02-01" / "manifest.json").rename(tmp_path / "2025-02-01" / ".removed-2025-02-31.json")
    (tmp_path / "2025-02-01" / OWNER).write_text('{"owner": "mine"}')
    nights_in(tmp_path, night, ["2025-03-01"])
    shutil.rmtree(tmp_path / "2025-03-01")
    (tmp_path / "2025-03-01").mkdir()
    (tmp_path / "2026-01-02-report" / "report.json").write_text('{"run_id": "of another store"}')
    before = {name: size for name, size in on_disk(tmp_path).items() if name[:11] not in ("2026-01-01/", "2026-01-02/")}
    pruned = pivot.prune(tmp_path, keep="1", owner="mine", now=True, yes=True)
    assert before.keys() - on_disk(tmp_path).keys() == {"2026-01-01-report/report.json"}
    assert not (tmp_path / "2026-01-01").exists() and not (tmp_path / "2026-01-02").exists()
    assert "is the report of another store" in "".join(pruned.kept)
    for owner in ("None", "?", "mi"):
        pruned = pivot.prune(tmp_path, keep="1", owner=owner, now=True, yes=True)
        assert not pruned.removals and f"holds no night of {owner}, but 1 of mine" in "".join(pruned.kept)
    assert "found an empty name" in prune_error(tmp_path, "--keep", "1", "--owner", "")
    for day, text in (("2025-01-01", '{"files": {"a": 1}}'), ("2025-01-02", "{}")):
        (tmp_path / "else" / day).mkdir(parents=True)
        (tmp_path / "else" / day / "run.json").write_text('{"name": "of another tool"}')
        (tmp_path / "else" / day / "manifest.json").write_text(text)
    others = on_disk(tmp_path / "else")
    nights_in(tmp_path / "else", night, ["2026-01-01"])
    assert not pivot.prune(tmp_path / "else", keep="1", now=True, yes=True).removals
    assert others.items() <= on_disk(tmp_path / "else").items()


def test_a_clock_that_is_behind_is_noticed(night: Path, tmp_path: Path) -> None:
    nights_in(tmp_path, night, ["2026-01-01", "2026-01-02", "2026-01-09"])
    with pytest.raises(RetentionError, match="check the clock"):
        pivot.prune(tmp_path, keep="2", today=date(2026, 1, 2))
    assert len(pivot.prune(tmp_path, keep="2", today=date(2026, 1, 2), yes=True).removals) == 1


def test_files_that_no_run_wrote_are_kept_and_named(night: Path, tmp_path: Path) -> None:
    nights_in(tmp_path, night, ["2026-01-01", "2026-01-02"])
    mine = {
        *(f"2026-01-01/{name}" for name in ("notes.md", "steps/mine.csv", "more/deep/file", ".receipts/why")),
        *(f"2026-01-01-report/{name}" for name in ("why.md", "why.html", "pages/2.js")),
    }
    for name in (*mine, "2026-01-01-report/pages/1.js"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("years of work")
    kept = pivot.prune(tmp_path, keep="1", now=True).kept
    assert {re.split(" was not| is not", line)[0] for line in kept} == {str(tmp_path / name) for name in mine}
    assert {name for name in on_disk(tmp_path) if name.startswith("2026-01-01")} - {"2026-01-01/.lock"} == mine
    assert pivot.prune(tmp_path, keep="1", now=True).removals == []


def test_a_night_that_ends_meanwhile_is_kept(night: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both steps look again under the lock: a marked night may be built again, an old one given to somebody."""
    nights_in(tmp_path, night, ["2026-01-01", "2026-01-02", "2026-01-03"])
    pivot.prune(tmp_path, keep="2", today=date(2026, 2, 1))
    taken, lock = [], LocalStorage.lock

    def meanwhile(self: LocalStorage) -> Any:
        if self.root.name == "2026-01-01":
            shutil.copyfile(night / "manifest.json", self.root / "manifest.json")
        if self.root.name == "2026-01-02":
            (self.root / OWNER).write_text('{"owner": "somebody"}')
        taken.append(self.root.name)
        return lock(self)

    monkeypatch.setattr(LocalStorage, "lock", meanwhile)
    assert pivot.prune(tmp_path, keep="1", today=date(2026, 2, 2)).removals == []
    assert {"2026-01-01", "2026-01-02"} <= set(taken)
    for day in ("2026-01-01", "2026-01-02", "2026-01-03"):
        assert_whole(tmp_path / day)


def test_a_full_disk_is_freed_now_leftovers_first(night: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is written before there is room, not even the process id in a lock."""
    nights_in(tmp_path, night, [f"2026-01-0{day}" for day in range(1, 6)])
    pivot.prune(tmp_path, keep="4", today=date(2026, 2, 1))
    monkeypatch.setattr(pruning.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))

    def written(*_: Any) -> Never:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", written)
    pruned = pivot.prune(tmp_path, keep="3", today=date(2026, 2, 1))
    nights = [Path(each.address).name for each in pruned.removals if each.kind == "night"]
    assert nights == ["2026-01-01", "2026-01-02"], "also the one that was marked today"
    assert pruned.marked == 0


def test_a_damaged_night_does_not_keep_the_others(night: Path, tmp_path: Path) -> None:
    nights_in(tmp_path, night, ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"])
    write_nights_card(tmp_path)
    (tmp_path / "2026-01-01" / "manifest.json").write_text("{")
    (tmp_path / "2026-01-04" / "run.json").write_text("{")
    pruned = pivot.prune(tmp_path, keep="1", now=True, yes=True)
    assert not (tmp_path / "2026-01-02").exists()
    assert any("2026-01-01" in line for line in pruned.kept)
    assert (tmp_path / "2026-01-01" / "manifest.json").read_text() == "{", "it was not made a mark"
    assert "they cannot be read: 2026-01-04." in (tmp_path / "README.md").read_text()


# The nightly flow


@pytest.mark.parametrize(("whole", "rule"), [(True, "2"), (False, "2"), (True, "1d")])
def test_a_nightly_prunes_after_a_night_that_completed(
    night: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool, rule: str
) -> None:
    nights_in(tmp_path, night, ["2020-01-01", "2020-01-02"])
    made = tmp_path / "2020-01-03"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(BuildResult, "is_whole", whole)
    build = partial(run_night, monkeypatch, made.name, config=config_of(1, rollouts=1))
    for out, keep, owner, named in (
        ("{date}", "none", "mine", "expected days such as 14d"),
        ("fixed", "2", "mine", "ends with /{date}"),
        ("{date}", "2", "", "found no owner"),
    ):
        with pytest.raises(ConfigError, match=re.escape(named)):
            build(out, keep=keep, owner=owner)
    assert not made.exists()
    for day in ("2020-01-01", "2020-01-02"):
        (tmp_path / day / OWNER).write_text('{"owner": "mine"}')
    # Days count from the night, marks from now. A full disk makes it remove nights at once.
    build(str(tmp_path / "{date}"), keep=rule, owner="mine")
    assert [path.name > ".removed-2021" for path in tmp_path.glob("20*/.removed-*")] == [True] * whole
    monkeypatch.setattr(pruning, "FULL", 2**80)
    build(str(tmp_path / "{date}"), keep=rule, owner="mine")
    assert json.loads((made / OWNER).read_text()) == {"owner": "mine"}
    with pytest.raises(ConfigError, match="belongs to mine, expected theirs"):
        build(str(tmp_path / "{date}"), owner="theirs")
    stores = sorted(path.name for path in tmp_path.glob("20*") if not path.name.endswith("-report"))
    assert stores == (["2020-01-02", made.name] if whole else ["2020-01-01", "2020-01-02", made.name])
    assert (tmp_path / "2020-01-01-report").exists() is not whole
    assert_whole(made)
    (made / OWNER).unlink()
    pruning.own(made, "mine")
    assert not (made / OWNER).exists(), "a store that nobody owned is not taken over"


CONFIG = config_of({"sokoban": 2, "frozenlake": 2}, rollouts=2)
DAYS = ("2026-01-31", "2026-02-01")


def run_night(
    patch: pytest.MonkeyPatch, day: str, out: str, config: dict[str, Any] = CONFIG, attempt: int = 1, **parameters: Any
) -> None:
    """Run the flow of a day, without a server."""
    start = datetime.fromisoformat(f"{day}T00:00:00Z")
    run = SimpleNamespace(id=str(UUID(int=1)), scheduled_start_time=start, run_count=attempt)
    watch = Reporter()
    watch.log = logging.getLogger("pivot.tests")  # type: ignore[attr-defined]
    patch.setattr(deployments, "at_work", lambda *_: nullcontext((watch, InProcess())))
    patch.setattr(deployments, "TaskPool", lambda pool: pool)
    patch.setattr(deployments, "show", lambda *_, **__: None)
    patch.setattr(deployments, "flow_run", run)
    deployments.build_dataset.fn(make_config(config), out, **parameters)


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
    """Catch a reader that counts a night twice, leaves one out, or takes an unfinished one for finished."""
    each = [pivot.load_store(nights / day) for day in DAYS]
    whole = pivot.load_store(nights)
    for table in ("episodes", "steps", "frames", "prompts", "calls", "labels"):
        heights = [getattr(frames, table).collect().height for frames in each]
        assert getattr(whole, table).collect().height == sum(heights) > 0, table
    count = whole.episodes.collect().height
    assert pivot.query(nights, "select count(*) as n from episodes")["n"].to_list() == [count]
    warning, _, shown = run("stats", nights, "--format", "json").partition("{")
    assert "2026-02-02 left out, not finished" in warning
    assert json.loads("{" + shown)["modes"]
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


def test_a_flow_resumes_a_store_as_a_build_does(night: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Path(shutil.copytree(night, tmp_path / "store"))
    config = {"environments": {"sokoban": {"tasks": 2}}, "rollouts": 1}
    build = partial(run_night, monkeypatch, DAYS[0], str(store), config)
    build()
    assert Store.open(store).config.tasks_per_shard == 1, "the size of its shards stays"
    (store / "manifest.json").unlink()
    (store / "episodes" / "mine").write_text("discarded by a refresh")
    for attempt, stays in ((2, True), (2, False)):  # the second finds a finished store
        build(attempt=attempt, refresh=True)
        assert (store / "episodes" / "mine").exists() is stays


def test_the_seed_of_a_night_is_that_of_its_day_and_of_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two deployments with different seeds play different levels on one day."""
    monkeypatch.setattr(deployments, "_day", lambda: date(2030, 1, 2))
    seeds = {seed: deployments._dated("nights/{date}", seed) for seed in (0, 1, 7)}
    assert {str(root) for root, _ in seeds.values()} == {str(Path("nights/2030-01-02"))}
    assert [number - seeds[0][1] for _, number in seeds.values()] == [0, 1, 7]
    assert deployments._dated("nights/fixed", 7)[1] == 7
