"""The site of `pivot view --out` shows the store's content, whatever it is; `pivot view` serves the same pages."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pivot.core.errors import ConfigError, StoreError
from pivot.core.images import decode, frame_id
from pivot.core.progress import Reporter
from pivot.datasets.sql.views import query
from pivot.datasets.store.schema import LABELS, STEPS
from pivot.datasets.store.store import Store
from pivot.insight.report.contents import CHUNK, Selection, chunk_name, page_name
from pivot.insight.report.plain import parsed
from pivot.insight.report.site import ASSETS, MARKER, asset, report
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.insight.hostile import HOSTILE, LONG, everything, poison
from pivot.tests.stores import build_tiny, change_rows, contents_of, copy_store, rewrite_manifest, table_files

ROOT = Path(__file__).resolve().parents[2]
ALL = Selection()
NO_VERDICT = dict.fromkeys(("pivot_step", "failure_mode", "certificate", "witness", "proved", "failure_reason"))
NO_VERDICT |= {"accepted": False}


@pytest.fixture(scope="module")
def site(small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "site"
    run("view", small_store, "--out", folder)
    return folder


def made(root: Path, target: Path, selection: Selection = ALL) -> Path:
    report(root, target, **asdict(selection))
    return target


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="ascii"))


def unwrapped(path: Path) -> Any:
    """The JSON that a script registers."""
    text = path.read_text(encoding="ascii")
    begin, end = "Pivot.put(", ");\n"
    assert text.startswith(begin) and text.endswith(end)
    name, data = json.loads("[" + text[len(begin) : -len(end)] + "]")
    assert path.as_posix().endswith(f"{name}.js")
    return json.loads(data)


def pages(folder: Path) -> list[Any]:
    count = read(folder / "contents.json")["count"]
    return [read(folder / f"{page_name(number)}.json") for number in range(count)]


def test_every_page_has_its_twin_and_every_picture_is_there(site: Path) -> None:
    contents = read(site / "contents.json")
    assert contents == unwrapped(site / "contents.js")
    assert read(site / "overview.json") == unwrapped(site / "overview.js")
    records = pages(site)
    chunks = [unwrapped(site / f"{chunk_name(number)}.js") for number in range(-(-len(records) // CHUNK))]
    assert [page for chunk in chunks for page in chunk] == records
    used = set[str]()
    for page in records:
        for frame in [*page["frames"], *((page["witness"] or {}).get("frames") or ())]:
            assert frame_id(decode((site / frame["src"]).read_bytes())) == frame["id"]
            used.add(frame["src"])
        if page["analyzer"] is not None:
            used |= {page["analyzer"]["collage"], page["analyzer"]["panel"]}
    assert {name for name in contents_of(site) if name.startswith("frames/")} == used
    assert {name for name in contents_of(site) if name == "index.html" or name.startswith("viewer/")} == set(ASSETS)
    assert {*read(site / MARKER)["files"], MARKER} == contents_of(site).keys()


def test_the_list_says_what_the_store_says(site: Path, small_store: Path) -> None:
    contents = read(site / "contents.json")
    columns, words = contents["columns"], contents["words"]
    table = {
        name: [words[name][each] for each in values] if name in words else values for name, values in columns.items()
    }
    sql = """SELECT e.episode_id, e.env, e.num_steps, round(e.episode_return, 4), l.pivot_step,
        coalesce(l.failure_mode, ''), l.accepted, coalesce(l.teacher, ''), p.slack
        FROM episodes e LEFT JOIN labels l USING (episode_id) LEFT JOIN pivots p USING (episode_id)"""
    stored = {row[0]: row[1:] for row in query(small_store, sql)[1]}
    names = ("env", "steps", "return", "pivot", "mode", "accepted", "writer", "slack")
    assert {row[0]: row[1:] for row in zip(table["id"], *(table[name] for name in names), strict=True)} == stored
    assert [page["episode"]["episode_id"] for page in pages(site)] == table["id"]
    assert contents["count"] == contents["stored"] == 48
    sides: dict[str, str] = {}
    for path in sorted((small_store / "dataset").glob("*_episodes/*.parquet")):
        names = pq.read_table(path, columns=["episode_id"])["episode_id"].to_pylist()
        sides |= dict.fromkeys(names, path.name.split("-")[0])
    assert dict(zip(table["id"], table["split"], strict=True)) == sides
    assert set(sides.values()) == {"train", "validation"}


def test_collage_panel_prompt_and_completion_are_the_datasets(site: Path, small_store: Path) -> None:
    rows = {
        row["episode_id"]: row
        for path in (small_store / "dataset").glob("*/*.parquet")
        if not path.parent.name.endswith("_episodes")
        for row in pq.read_table(path).to_pylist()
    }
    shown = {page["episode"]["episode_id"]: page for page in pages(site)}
    assert len(rows) > 20
    for name, row in rows.items():
        page = shown[name]
        analyzer = page["analyzer"]
        assert (site / analyzer["collage"]).read_bytes() == row["images"][0]["bytes"]
        assert (site / analyzer["panel"]).read_bytes() == row["panel"]["bytes"]
        assert analyzer["completion"] == row["completion"][0]["content"][0]["text"]
        (message,) = analyzer["prompt"]["messages"]
        parts = [page["texts"][part["text"]] if "text" in part else part["src"] for part in message["parts"]]
        assert parts == [analyzer["collage"], row["prompt"][0]["content"][1]["text"]]


def test_pages_hold_the_rows_of_the_store(site: Path, small_store: Path) -> None:
    store = Store.open(small_store)
    steps: dict[str, list[Any]] = {}
    for row in store.scan(STEPS).collect().to_dicts():
        steps.setdefault(row["episode_id"], []).append(row)
    labels = {row["episode_id"]: row for row in store.scan(LABELS).collect().to_dicts()}
    for page in pages(site):
        name = page["episode"]["episode_id"]
        assert [step["response"] for step in page["steps"]] == [step["response"] for step in steps[name]]
        assert [step["info"] for step in page["steps"]] == [json.loads(step["info"]) for step in steps[name]]
        if page["label"] is not None:
            assert page["label"]["certificate"] == labels[name]["certificate"]
            assert page["label"]["failure_reason"] == labels[name]["failure_reason"]
        assert (page["label"] is None) == (name not in labels)


def check_needs(page: Any) -> bool:
    """Whether the chart and the certificate agree, where both say something."""
    need, label, episode = page["need"], page["label"], page["episode"]
    assert len(need["values"]) == episode["num_steps"] + 1
    if label is None:
        return True
    for side, place in (("before", label["pivot_step"]), ("after", label["pivot_step"] + 1)):
        amount, certified = need["values"][place], label["certificate"][side]
        far = need["limit"] is not None and certified is not None and certified > need["limit"]
        assert amount == certified or (far and amount is None), (episode["env"], side)
    return True


def test_the_chart_agrees_with_the_certificate_and_the_plan_is_drawn(site: Path) -> None:
    drawn = 0
    for page in pages(site):
        assert check_needs(page)
        label, witness = page["label"], page["witness"]
        if page["outcome"] == "solved":
            assert page["need"]["values"][-1] == 0 and witness is None
        elif witness is not None:
            assert witness["actions"] == label["witness"]
            assert len(witness["frames"]) == len(witness["actions"]) + 1
            assert witness["frames"][0]["id"] == page["frames"][label["pivot_step"]]["id"]
            drawn += 1
    assert drawn > 10


def test_other_environments_take_the_need_from_their_logs(tmp_path: Path) -> None:
    """Catch a page whose chart contradicts the certificate of an environment that has logs instead of a search."""
    runs: dict[str, Any] = {name: {"tasks": 1, "settings": {}} for name in ("navigation", "primitiveskill", "svg")}
    runs["frozenlake"] = {"tasks": 3, "settings": {"actions_per_turn": 2, "horizon": 4}}  # need in turns, not moves
    store = build_tiny(tmp_path / "store", environments=runs, rollouts=4)
    records = pages(made(store, tmp_path / "site"))
    assert {page["episode"]["env"] for page in records} == set(runs)
    for page in records:
        if page["episode"]["env"] == "svg":
            assert (page["need"]["unit"], page["need"]["values"], page["tiles"]) == ("score", None, "outcomes")
        else:
            assert check_needs(page)
        for frame in (page["witness"] or {}).get("frames") or ():
            assert frame_id(decode((tmp_path / "site" / frame["src"]).read_bytes())) == frame["id"]


def test_equal_stores_give_equal_files(site: Path, small_store: Path, tmp_path: Path) -> None:
    copy = copy_store(small_store, tmp_path / "elsewhere" / small_store.name)
    assert contents_of(made(copy, tmp_path / "again")) == contents_of(site)


def test_hostile_texts_arrive_unchanged_and_mean_nothing_to_a_script(tiny_store: Path, tmp_path: Path) -> None:
    store = copy_store(tiny_store, tmp_path / "store")
    poison(store)
    folder = made(store, tmp_path / "site")
    for name, content in contents_of(folder).items():
        if name.endswith(".js") and not name.startswith("viewer/"):
            assert content.isascii() and all(byte >= 0x20 or byte == 0x0A for byte in content)
    for page in pages(folder):
        assert page["episode"]["instruction"] == everything() + LONG
        assert page["episode"]["policy_config"] == "{" + HOSTILE[7]
        assert page["steps"][0]["response"] == everything() + LONG
        assert page["steps"][0]["score_parts"] == {"__proto__": {"polluted": True}, "a": None}
        assert page["label"] is None or page["label"]["reject_reasons"][0]["detail"] == everything() + LONG
    chunk = unwrapped(folder / f"{chunk_name(0)}.js")
    assert chunk[0] == pages(folder)[0]


def test_a_damaged_row_is_shown_as_it_is(tiny_store: Path, tmp_path: Path) -> None:
    store = copy_store(tiny_store, tmp_path / "store")
    (episodes,) = [name for name in table_files(store, "sokoban") if name.startswith("episodes/")]
    (steps,) = [name for name in table_files(store, "frozenlake") if name.startswith("steps/")]
    (frames,) = [name for name in table_files(store, "frozenlake") if name.startswith("frames/")]
    bad_levels = ("no level", "#" * 50_000, "######\n#@$.\n######", "")

    def spoil_levels(rows: list[Any]) -> None:
        for row, level in zip(rows, bad_levels, strict=True):
            row |= {"initial_state": level, "env_config": "[" * 5000, "policy_config": "[" * 400 + "]" * 400}

    change_rows(store, episodes, spoil_levels)
    change_rows(store, steps, lambda rows: [row | {"info": "1" * 5000, "payload": "{"} for row in rows])
    change_rows(store, frames, lambda rows: [row | {"format": "../../svg"} for row in rows])
    rewrite_manifest(store)
    records = pages(made(store, tmp_path / "site"))
    spoiled = [page for page in records if page["episode"]["env"] == "sokoban"]
    assert [page["level"][:20] for page in spoiled] == [level[:20] for level in bad_levels]
    assert all(page["need"]["values"] is None and page["need"]["problem"] for page in spoiled)
    others = [page for page in records if page["episode"]["env"] == "frozenlake"]
    assert all(frame["src"] is None for page in others for frame in page["frames"])
    assert all(step["info"] == "1" * 5000 for page in others for step in page["steps"])


def test_numbers_that_no_browser_holds_are_texts() -> None:
    text = '{"big": 18446744073709551615, "small": 3, "nan": NaN, "far": -Infinity, "yes": true}'
    assert parsed(text) == {"big": "18446744073709551615", "small": 3, "nan": None, "far": None, "yes": True}


def test_what_is_shown_can_be_chosen(small_store: Path, tmp_path: Path) -> None:
    chosen = made(small_store, tmp_path / "a", Selection(("frozenlake",), failures_only=True, limit=5))
    contents = read(chosen / "contents.json")
    assert (contents["count"], contents["stored"]) == (5, 48)
    assert all(page["episode"]["env"] == "frozenlake" and page["outcome"] == "failed" for page in pages(chosen))
    assert sorted(each["number"] for each in contents["top"]) == [*range(5)]
    with pytest.raises(ConfigError, match=r"holds no environment 'chess'; it holds: sokoban, frozenlake"):
        made(small_store, tmp_path / "b", Selection(("chess",)))


def test_stores_in_which_nothing_failed_or_nothing_was_accepted(tmp_path: Path, tiny_store: Path) -> None:
    expert = {"name": "scripted", "options": {"habits": {"frozenlake": {"skill": 60.0, "evenness": 0.0}}}}
    runs = {"frozenlake": {"tasks": 1, "settings": {}}}
    solved = build_tiny(tmp_path / "solved", environments=runs, policy=expert)
    records = pages(made(solved, tmp_path / "site"))
    assert {page["outcome"] for page in records} == {"solved"}
    assert all(page["label"] is None and page["witness"] is None for page in records)
    empty = made(solved, tmp_path / "none", Selection(failures_only=True))
    assert read(empty / "contents.json")["count"] == 0
    assert unwrapped(empty / "contents.js")["columns"]["id"] == []
    rejected = copy_store(tiny_store, tmp_path / "rejected")
    for env in ("sokoban", "frozenlake"):
        (name,) = [name for name in table_files(rejected, env) if name.startswith("labels/")]
        change_rows(rejected, name, lambda rows: [row | NO_VERDICT for row in rows])
    rewrite_manifest(rejected)
    for page in pages(made(rejected, tmp_path / "of rejected")):
        assert page["label"] is None or page["label"]["certificate_text"] is None


class _Stop(Reporter):
    """Ctrl-C after some pages."""

    def advance(self, stage: str, amount: int) -> None:
        raise KeyboardInterrupt


def test_an_interrupted_report_leaves_the_old_one_and_the_next_replaces_it(
    site: Path, small_store: Path, tmp_path: Path
) -> None:
    target = tmp_path / "site"
    with pytest.raises(KeyboardInterrupt):
        report(small_store, target, reporter=_Stop())
    assert list(tmp_path.iterdir()) == []
    made(small_store, target, Selection(limit=1))
    before = contents_of(target)
    with pytest.raises(KeyboardInterrupt):
        report(small_store, target, reporter=_Stop())
    assert contents_of(target) == before
    (tmp_path / ".site.new" / "frames").mkdir(parents=True)  # as a kill would leave it
    (tmp_path / ".site.new" / "frames" / "0.png").write_bytes(b"half")
    (tmp_path / "link").symlink_to(target)
    made(small_store, tmp_path / "link")
    assert contents_of(target) == contents_of(site)
    assert {path.name for path in tmp_path.iterdir()} == {"site", "link"}


def test_what_is_no_report_is_left_alone(small_store: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years")
    assert "it is not a report; choose another --out" in str(
        error_of("view", small_store, "--out", tmp_path / "thesis")
    )
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years"
    assert "is a file; name a folder" in str(error_of("view", small_store, "--out", tmp_path / "thesis/chapter.tex"))
    (tmp_path / "empty").mkdir()
    assert (made(small_store, tmp_path / "empty", Selection(limit=1)) / MARKER).exists()
    with pytest.raises(StoreError, match="is not a PIVOT store"):
        made(tmp_path, tmp_path / "site")


def test_a_full_disk_is_said(small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoreError, match=r"cannot write .*site: No space left on device; choose another --out"):
        made(small_store, tmp_path / "site")
    assert not (tmp_path / "site").exists()


# The viewer's own files


def test_source_files_of_the_viewer_stay_small_and_make_no_markup() -> None:
    own = [name for name in ASSETS if "/vendor/" not in name]
    for name in own:
        text = asset(name).decode()
        assert len(text.splitlines()) <= 500, name
        for sink in ("innerHTML", "outerHTML", "AdjacentHTML", "document.write", "eval(", "new Function", "//cdn"):
            assert sink not in text, (name, sink)
    page = asset("index.html").decode()
    assert 'http-equiv="Content-Security-Policy"' in page and "unsafe" not in page and "://" not in page


def test_vendored_files_are_listed_with_version_and_licence() -> None:
    vendored = {name.rpartition("/")[2] for name in ASSETS if "/vendor/" in name} - {"README.md"}
    notice = asset("viewer/vendor/README.md").decode()
    assert all(f"`{name}`" in notice for name in vendored)
    assert {path.name for path in (ROOT / "insight/report/assets/viewer/vendor").iterdir()} == vendored | {"README.md"}
    shipped = {
        path.relative_to(ROOT / "insight/report/assets").as_posix()
        for path in (ROOT / "insight/report/assets").rglob("*.*")
    }
    assert shipped | {name for name in ASSETS if "LICENSE" in name} == set(ASSETS)
