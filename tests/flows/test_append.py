"""Stores that grow by parts: every reader sees all finished ones, none twice, and a kill leaves what was there."""

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pivot
import pyarrow.parquet as pq
import pytest
from pivot.datasets.config import make_config
from pivot.datasets.parts import (
    begun_parts,
    listed_parts,
    load_store,
    members_of,
    unlisted_note,
    unlisted_parts,
    write_parts,
)
from pivot.datasets.parts_card import part_problems, write_parts_card
from pivot.datasets.progress import Silent
from pivot.datasets.proof.parts import whole_problems
from pivot.datasets.proof.verify import verify_store
from pivot.datasets.run import Run
from pivot.datasets.split import SIDES, TRAIN, side_by_hash
from pivot.datasets.store import Store
from pivot.datasets.views import query
from pivot.environments.frozenlake import FrozenLakeEnv
from pivot.errors import ConfigError, StoreError
from pivot.flows.append import reserve_part, take_up_parts
from pivot.insight.probe.proof import probe_problems
from pivot.insight.report.contents import Selection, page_name
from pivot.insight.report.serve import LiveSite
from pivot.storage import LocalStorage
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.flow_runs import config_of, files_of, fingerprint
from pivot.tests.storage.faults import Fate, Killed, mortal

import datasets

BASE = config_of({"sokoban": 3, "frozenlake": 3})


def append(root: Path, config: dict[str, Any]) -> int | None:
    """Append a part as the command does; return its number, or None when there was nothing to add."""
    part = reserve_part(root, make_config(config))
    if part is None:
        take_up_parts(root)
        return None
    pivot.build(part.config, part.root)
    take_up_parts(root, [part.number])
    return part.number


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with more levels of one environment, and another seed of both. Copy it before changing anything."""
    root = tmp_path_factory.mktemp("grown") / "store"
    pivot.build(BASE, root)
    assert append(root, config_of({"sokoban": 5})) == 1
    assert append(root, config_of({"sokoban": 2, "frozenlake": 4}, seed=9)) == 2
    return root


@pytest.fixture
def store(grown: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(grown, tmp_path / "store"))


def test_what_is_there_is_left_out(grown: Path) -> None:
    parts = [*members_of(Store.open(grown)).values()]
    assert [part.config.part for part in parts] == [0, 1, 2]
    assert parts[1].config.environments["sokoban"].drawn == (3, 4)
    assert append(grown, BASE) is None
    assert append(grown, config_of({"sokoban": 5, "frozenlake": 2})) is None
    ids = load_store(grown).episodes.collect()["episode_id"]
    assert len(ids) == (6 + 2 + 6) * 4
    assert ids.n_unique() == len(ids)


def test_more_rollouts_of_the_same_levels_are_refused(grown: Path, tmp_path: Path) -> None:
    more = make_config(config_of({"sokoban": 3}, rollouts=8))
    with pytest.raises(StoreError, match=r"fewer rollouts \(4 per level of sokoban; --rollouts asks for 8\)"):
        reserve_part(grown, more)
    assert reserve_part(grown, make_config(config_of({"sokoban": 3}, rollouts=2))) is None  # it has more than these
    root = Path(shutil.copytree(grown, tmp_path / "store"))
    part = reserve_part(root, make_config(config_of({"sokoban": 7}, rollouts=8)))
    assert part is not None
    assert (part.left_out, part.fewer) == ({"sokoban": 5}, {"sokoban": 4})
    said = run("build", "--config", str(part.root / "run.json"), "--out", root, "--append", "--workers", "1")
    assert f"part {part.number} of {root}" in said


def test_a_part_that_was_given_up_is_named(store: Path) -> None:
    for seed in (5, 6):
        assert reserve_part(store, make_config(config_of({"sokoban": 1}, seed=seed))) is not None
    assert unlisted_parts(Store.open(store)) == [3, 4]
    shutil.rmtree(store / "parts" / "0003")
    (store / "parts" / "notes").mkdir()
    assert [*begun_parts(Store.open(store))] == [4]  # also behind a gap
    note = unlisted_note(Store.open(store))
    assert "unfinished parts, which are not read: parts/0004; finish the first with: pivot build --append" in note
    assert note in verify_store(store, Silent()).notes
    assert "parts/0004" in run("stats", store)
    (command,) = re.findall(r"pivot (build --append .*?), or remove their folders", note)
    run(*command.split(), "--workers", "1")
    assert unlisted_note(Store.open(store)) == ""
    assert [*listed_parts(LocalStorage(store))] == [1, 2, 4]


@pytest.mark.parametrize("options", [(), ("--refresh",)])
def test_a_store_that_has_it_all_stays_a_store_without_parts(options: tuple[str, ...], tmp_path: Path) -> None:
    """It still grows in place; an empty list of parts, as earlier versions left, is removed."""
    root, lakes = tmp_path / "store", ("build", "frozenlake", "--workers", "1", "--rollouts", "4", "--out")
    run(*lakes, root, "--tasks", "1")
    before = fingerprint(root)
    again = (*lakes, root, "--tasks", "1", "--append", *options)
    assert "holds all of it already, in 1 part" in run(*again)
    assert fingerprint(root) == before
    write_parts(LocalStorage(root), {})
    write_parts_card(Store.open(root))
    run(*again)
    assert fingerprint(root) == before
    write_parts(LocalStorage(root), {})
    assert "frozenlake" in run(*lakes, root, "--tasks", "2")
    assert load_store(root).episodes.collect().height == 8


def test_the_levels_of_a_part_are_those_of_one_run(grown: Path, tmp_path: Path) -> None:
    """Two runs of 3 and 5 levels hold what one run of 5 does."""
    pivot.build(config_of({"sokoban": 5}), tmp_path / "whole")
    whole = load_store(tmp_path / "whole").labels.collect()
    parts = load_store(grown).labels.collect()
    kept = parts.filter(parts["episode_id"].is_in(whole["episode_id"].implode()))
    assert kept.sort("episode_id").equals(whole.sort("episode_id"))


def test_every_reader_sees_all_parts(grown: Path, tmp_path: Path) -> None:
    frames = load_store(grown)
    episodes, labels = frames.episodes.collect().height, frames.labels.collect().height
    assert query(grown, "SELECT count(*) FROM episodes")[1] == [(episodes,)]
    assert query(grown, "SELECT sum(failures)::INT FROM modes")[1] == [(labels,)]
    with duckdb.connect(str(grown / "pivot.duckdb"), read_only=True) as connection:
        connection.execute(f"SET file_search_path = '{grown}'")
        assert connection.execute("SELECT count(*) FROM labels").fetchall() == [(labels,)]
    report = verify_store(grown, Silent())
    assert report.problems == []
    assert report.checked["episodes"] == episodes
    last = frames.episodes.collect()["episode_id"][-1]
    assert last[:30] in run("peek", grown, last)
    loaded = datasets.load_dataset(str(grown), "all", cache_dir=str(tmp_path / "cache"))
    rows = {episode for side in loaded.values() for episode in side.data["episode_id"].to_pylist()}
    assert rows == set(frames.labels.filter("accepted").collect()["episode_id"])
    whole = datasets.load_dataset(str(grown), "sokoban_episodes", cache_dir=str(tmp_path / "cache"))
    assert sum(side.num_rows for side in whole.values()) == (5 + 2) * 4


def test_a_grown_store_is_read_as_of_a_part(grown: Path, store: Path) -> None:
    storage = LocalStorage(store)
    listed = listed_parts(storage)
    for last in (2, 1, 0):  # the copy shrinks back to what it was
        write_parts(storage, {number: record for number, record in listed.items() if number <= last})
        now, then = load_store(store), load_store(grown, as_of_part=last)
        for table in ("episodes", "steps", "labels", "frames"):
            assert getattr(now, table).collect().equals(getattr(then, table).collect())
        assert pivot.stats(grown, as_of_part=last) == pivot.stats(store)
        rows = run(
            "stats",
            grown,
            "--as-of-part",
            str(last),
            "--sql",
            "select count(*) as rows from episodes",
            "--format",
            "json",
        )
        assert json.loads(rows) == [{"rows": (6 + 2 * (last > 0) + 6 * (last > 1)) * 4}]
    for wrong in (3, -1):
        with pytest.raises(ConfigError, match=rf"as of part: found {wrong}, expected 0 .*; the last is 2"):
            load_store(grown, as_of_part=wrong)
    assert "--predictors reads all parts" in str(error_of("stats", grown, "--predictors", "--as-of-part", "1"))


def test_no_level_is_on_both_sides(grown: Path) -> None:
    sides: dict[str, set[str]] = {}
    for name, side in itertools.product(files_of(grown), SIDES):
        if f"_episodes/{side}-" in name and "frozenlake" in name:
            episodes = pq.read_table(grown / name, columns=["episode_id"])["episode_id"].to_pylist()
            states = load_store(grown).episodes.collect().rows_by_key("episode_id", named=True, unique=True)
            for episode in episodes:
                level = FrozenLakeEnv.canonical_state(states[episode]["initial_state"])
                sides.setdefault(level, set()).add(side)
    assert len(sides) >= 6
    assert all(len(each) == 1 for each in sides.values())


def test_a_level_on_the_other_side_is_no_part_of_a_later_one(tmp_path: Path) -> None:
    """All three are on one side by their hashes, so the first part has moved one; the later one must not undo that."""
    root, lakes = tmp_path / "store", config_of({"frozenlake": 3})
    lakes["seed"] = next(seed for seed in itertools.count() if _sides_of_levels(lakes, seed) == {TRAIN})
    pivot.build(lakes, root)
    assert len([*(root / "dataset" / "frozenlake").glob("validation-*.parquet")]) == 1
    policy = {"name": "scripted", "options": {"habits": {"frozenlake": {"skill": 0.5}}}}
    part = reserve_part(root, make_config(lakes | {"policy": policy}))
    assert part is not None
    assert part.left_out == {"frozenlake": 1}


def _sides_of_levels(config: dict[str, Any], seed: int) -> set[str]:
    levels = Run(make_config(config)).env("frozenlake").plan(seed)
    return {side_by_hash(FrozenLakeEnv.canonical_state(each.initial_state), 0.1) for each in levels}


def test_a_part_in_the_making_is_seen_by_nobody_and_gone_on_with(store: Path) -> None:
    before = load_store(store).episodes.collect()
    config = make_config(config_of({"sokoban": 8}))
    part = reserve_part(store, config)
    assert part is not None and part.number == 3
    pivot.build(part.config, part.root)  # and killed before it is taken up
    assert load_store(store).episodes.collect().equals(before)
    [problem] = verify_store(store, Silent()).problems  # a reader's pattern would find its files
    assert problem.startswith("parts/0003: 42 files, not listed in parts.json; finish the part")
    again = reserve_part(store, config)
    assert again is not None and again.number == 3
    assert pivot.build(again.config, again.root).already_complete
    take_up_parts(store, [3])
    assert load_store(store).episodes.collect().height == before.height + 3 * 4


def test_killed_while_a_part_is_taken_up(store: Path) -> None:
    """Before any of its changes: readers see the part or do not, and the same command again sets all right."""
    config = make_config(config_of({"sokoban": 6}))
    part = reserve_part(store, config)
    assert part is not None
    pivot.build(part.config, part.root)
    before = load_store(store).episodes.collect().height
    with mortal(Fate()) as fate:
        take_up_parts(store, [part.number])
    assert len(fate.changes) >= 3
    for moment in range(1, len(fate.changes) + 1):
        (store / "parts.json").write_text(json.dumps({"parts": _listed(store, 2)}))
        with mortal(Fate(moment)), pytest.raises(Killed):
            take_up_parts(store, [part.number])
        assert load_store(store).episodes.collect().height in (before, before + 4)
        again = reserve_part(store, config)
        take_up_parts(store, [] if again is None else [again.number])
        assert load_store(store).episodes.collect().height == before + 4
        assert part_problems(Store.open(store)) == []


def _listed(store: Path, parts: int) -> dict[str, Any]:
    """The first entries of ``parts.json``."""
    return dict(sorted(json.loads((store / "parts.json").read_text())["parts"].items())[:parts])


def test_two_parts_that_were_made_at_once_do_not_hold_the_same(store: Path) -> None:
    one, other = (reserve_part(store, make_config(config_of({"sokoban": tasks}))) for tasks in (6, 7))
    assert one is not None and other is not None and (one.number, other.number) == (3, 4)
    for part in (one, other):
        pivot.build(part.config, part.root)
    take_up_parts(store, [3])
    with pytest.raises(StoreError, match="holds 1 groups of sokoban that another part has taken up meanwhile"):
        take_up_parts(store, [4])
    assert load_store(store).episodes.collect()["episode_id"].is_unique().all()


def test_what_does_not_fit_is_refused(store: Path) -> None:
    before = fingerprint(store)
    with pytest.raises(StoreError, match="dataset whose log is 'full'; a part that differs"):
        append(store, config_of({"sokoban": 9}, log="actions"))
    with pytest.raises(StoreError, match="has later parts, so it grows by parts alone; give --append"):
        pivot.build(config_of({"sokoban": 9, "frozenlake": 3}), store)
    assert "does not exist" in str(error_of("build", "sokoban", "--out", store.parent / "none", "--append"))
    assert fingerprint(store) == before


@pytest.mark.parametrize("lie", ["manifest", "listed", "card", "removed"])
def test_a_changed_part_is_found(store: Path, lie: str) -> None:
    manifest = store / "parts/0002/manifest.json"
    if lie == "manifest":
        manifest.write_text(manifest.read_text() + "\n")
    elif lie == "listed":
        listed = json.loads((store / "parts.json").read_text())
        listed["parts"]["0002"]["sha256"] = "0" * 64
        (store / "parts.json").write_text(json.dumps(listed))
    elif lie == "card":
        (store / "README.md").write_text((store / "README.md").read_text().replace("sokoban", "frozenlake", 1))
    else:
        shutil.rmtree(store / "parts/0002")
        with pytest.raises(StoreError, match=r"parts/0002 does not exist"):
            load_store(store)
        return
    problems = part_problems(Store.open(store))
    assert len(problems) == 1
    assert ("README.md: it is not the card" if lie == "card" else "parts/0002/manifest.json: it is not") in problems[0]
    take_up_parts(store)
    assert part_problems(Store.open(store)) == []


def test_a_relabelled_part_is_taken_up_again(store: Path) -> None:
    run("relabel", store / "parts/0001", "--workers", "1")
    assert any("parts/0001/manifest.json: it is not" in each for each in verify_store(store, Silent()).problems)
    assert "holds all of it already, in 3 parts" in run("build", "--out", store, "--append")
    assert verify_store(store, Silent()).problems == []
    assert set(load_store(store).labels.collect()["label_version"]) == {"1", "2"}


@pytest.mark.parametrize("change", [("split", "episode"), ("log", "actions"), ("target-vocabulary", "paper")])
def test_a_part_that_was_relabelled_into_another_dataset_is_none(store: Path, change: tuple[str, str]) -> None:
    name, value = change
    run("relabel", store / "parts/0001", f"--{name}", value, "--workers", "1")
    said = str(error_of("build", "--out", store, "--append"))
    assert f"its {name.replace('-', '_')} is '{value}', that of the first part" in said
    assert f"pivot relabel {store}" in said
    [problem] = part_problems(Store.open(store))
    assert problem.endswith(f"it was labelled alone; label all parts alike with: pivot relabel {store}")
    # The check of a store reports it too, when the list of parts was written by hand.
    storage = LocalStorage(store)
    parts = {number: storage.record(f"parts/{number:04d}/manifest.json") for number in (1, 2)}
    write_parts(storage, parts)
    write_parts_card(Store.open(store))
    problems = verify_store(store, Silent()).problems
    assert any(f"parts/0001/: its {name.replace('-', '_')} is" in each for each in problems)
    assert any("on both sides of the split" in each for each in whole_problems(Store.open(store))) == (name == "split")


def test_a_part_that_is_there_twice_is_found(store: Path) -> None:
    assert whole_problems(Store.open(store)) == []
    shutil.copytree(store / "parts/0001", store / "parts/0003")
    storage = LocalStorage(store)
    write_parts(storage, {n: storage.record(f"parts/{n:04d}/manifest.json") for n in (1, 2, 3)})
    [problem] = whole_problems(Store.open(store))
    assert problem.startswith("parts/0003/: ")
    assert "are in an earlier part, too" in problem


def test_a_card_of_parts_that_nothing_lists_is_found(store: Path) -> None:
    (store / "parts.json").write_text('{"parts": {}}')
    assert part_problems(Store.open(store)) == ["README.md: a card of parts, of which parts.json names none"]


def test_a_grown_store_is_relabelled_as_a_whole(store: Path, grown: Path) -> None:
    said = run("relabel", store, "--split", "episode", "--workers", "1")
    assert "all 3 parts" in said
    episodes = load_store(store).episodes.group_by("env").len().collect().rows()
    assert all(re.search(rf"{env} .*\b{count}\b", said) for env, count in episodes), said
    assert verify_store(store, Silent()).problems == []
    members = members_of(Store.open(store))
    assert {each.config.split for each in members.values()} == {"episode"}
    assert set(load_store(store).labels.collect()["label_version"]) == {"2"}
    labels = [load_store(root).labels.drop("label_version").collect() for root in (store, grown)]
    assert labels[0].equals(labels[1])


def test_a_solver_setting_is_for_the_parts_with_its_environment(tmp_path: Path) -> None:
    root = tmp_path / "store"
    pivot.build(config_of({"frozenlake": 1}, rollouts=1), root)
    append(root, config_of({"sokoban": 1}, rollouts=1))
    run("relabel", root, "--solver", "sokoban.max_states=1000", "--workers", "1")
    solvers = [member.config.solvers for member in members_of(Store.open(root)).values()]
    assert solvers == [{}, {"sokoban": {"max_states": 1000}}]
    assert "environment 'svg' is not part of this build" in str(error_of("relabel", root, "--solver", "svg.a=1"))


def test_the_site_of_a_grown_store_shows_every_part(store: Path, tmp_path: Path) -> None:
    whole = load_store(store).episodes.collect()
    assert f"{whole.height} of {whole.height} episodes" in run("report", store, "--out", tmp_path / "site")
    live = LiveSite(store, Selection(draw_plans=True))
    listed = live.contents.record["columns"]["id"]
    assert set(listed) == set(whole["episode_id"])
    assert len(listed) == whole.height
    for number in (0, whole.height - 1):
        name = f"{page_name(number)}.json"
        page = json.loads(live.content(name) or b"")
        assert page["episode"]["episode_id"] == listed[number]
        assert page == json.loads((tmp_path / "site" / name).read_bytes())
    overview = json.loads(live.content("overview.json") or b"")
    assert [each["folder"] for each in overview["parts"]] == ["parts/0001", "parts/0002"]
    assert overview["parts"][1]["seed"] == "9"
    live.close()


def test_probes_of_parts_are_proved_with_the_whole(store: Path) -> None:
    assert f"the next: pivot probe {store}/parts/0001" in run("probe", store, "--arm", "no_hint", "--workers", "1")
    run("probe", store / "parts/0001", "--arm", "no_hint", "--workers", "1")
    assert probe_problems(Store.open(store)) == []
    shutil.copy(store / "parts/0001/probe/sokoban/00000.parquet", store / "parts/0001/probe/sokoban/00009.parquet")
    assert probe_problems(Store.open(store)) == [
        "parts/0001/probe/sokoban/00009.parquet: the file is not in manifest.json"
    ]
