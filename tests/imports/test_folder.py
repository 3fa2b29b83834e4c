"""Folders of episodes without a state: what stats, verify and view read from them, and planted defects."""

import json
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.environments.frozenlake import FrozenLakeEnv
from pivot.errors import ConfigError, StoreError
from pivot.images import encode_png
from pivot.imports.folder_site import FolderSite
from pivot.insight.report.serve import ViewServer
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.disks import obeyed_permissions

from .test_vagen_navigation import dump

Rows = list[dict[str, Any]]


def _log(path: Path, distances: list[float], actions: list[int]) -> None:
    """Write an episode of EB-Navigation."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(
            {"distance": each, "action_id": action, "env_step": t, "task_success": 0.0, "reasoning": "<b>go</b>"}
        )
        for t, (each, action) in enumerate(zip(distances, actions, strict=True), 1)
    ]
    path.write_text("\n\n" + "\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def eb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of three logs of EB-Navigation; the first has pictures."""
    tmp_path = tmp_path_factory.mktemp("eb")
    source = tmp_path / "base"
    _log(source / "episode_1.json", [2.75] * 20, [4] * 20)
    _log(source / "episode_2.json", [2.75, 2.5], [0, 0])  # the log stops
    _log(source / "episode_3.json", [2.75] * 5 + [2.45] * 15, [0] * 20)
    frame = FrozenLakeEnv().reset(seed=1)[0].copy()
    for step in range(3):
        frame[0, step] ^= 255
        (source / f"episode_1_step_{step}_2026_front.png").write_bytes(encode_png(frame))
    folder = pivot.import_rollouts(source, tmp_path / "store", format="embodiedbench").stateless
    assert folder is not None
    (folder / "labels.jsonl").open("a").write(json.dumps(_estimate()) + "\n")
    return folder


def _estimate() -> dict[str, Any]:
    where = {"line": 2, "id": "episode_2.json", "env": "navigation"}
    return {**where, "kind": "estimated", "pivot_step": 1, "failure_mode": "budget", "probability": 0.5}


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of two episodes of VAGEN."""
    tmp_path = tmp_path_factory.mktemp("vagen")
    dump(tmp_path / "a" / "one", [["turn_left"] * 5] * 6, [2.8] * 6, max_turns=10, terminated=True)
    dump(tmp_path / "a" / "two", [["turn_left"], ["move_forward"]], [2.8, 2.5])
    folder = pivot.import_rollouts(tmp_path / "a", tmp_path / "store", format="vagen").stateless
    assert folder is not None
    return folder


def test_what_holds(turns: Path, tmp_path: Path, eb: Path) -> None:
    shown = run("verify", turns)
    assert "holds: 2 episodes, 2 labels, 0 pictures" in shown and "was replayed" in shown
    report = pivot.verify(turns)
    assert report.holds and report.unproved == 0
    folder = _changed(eb, tmp_path, lambda labels, _: labels[:-1], "labels.jsonl")
    assert pivot.verify(folder).problems == [] and pivot.verify(folder).checked["pictures"] == 3
    with pytest.raises(ConfigError, match="give no export"):
        pivot.verify(turns, export=tmp_path)


def _changed(folder: Path, tmp_path: Path, change: Callable[[Rows, Path], Rows], name: str) -> Path:
    """Return a copy of a folder with other rows in a file."""
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    rows = [json.loads(line) for line in (copy / name).read_text().splitlines()]
    (copy / name).write_text("".join(json.dumps(row) + "\n" for row in change(rows, copy)))
    return copy


def _set(row: int, *path: str | int, value: Any) -> Callable[[Rows, Path], Rows]:
    def change(rows: Rows, _: Path) -> Rows:
        inner: Any = rows[row]
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value
        return rows

    return change


def _rename(rows: Rows, folder: Path) -> Rows:
    one, other = sorted((folder / "frames").iterdir())[:2]
    one.write_bytes(other.read_bytes())
    return rows


def _stray(rows: Rows, folder: Path) -> Rows:
    (folder / "frames" / "stray.png").write_bytes(b"x")
    return rows


def _link(rows: Rows, folder: Path) -> Rows:
    one = min((folder / "frames").iterdir())
    (folder.parent / "outside.png").write_bytes(one.read_bytes())
    one.unlink()
    one.symlink_to(folder.parent / "outside.png")
    return rows


DEFECTS: dict[str, tuple[str, Callable[[Rows, Path], Rows], str]] = {
    "later pivot": ("labels.jsonl", _set(0, "pivot_step", value=15), "second derivation gives 14"),
    "other need": ("labels.jsonl", _set(0, "certificate", "after", value=7.0), "does not fit"),
    "other budget": ("labels.jsonl", _set(0, "certificate", "budget_after", value=9), "budget_after is 9"),
    "other mode": ("labels.jsonl", _set(0, "failure_mode", value="blocked"), "failure_mode is 'blocked'"),
    "other step": ("labels.jsonl", _set(0, "by", "settings", "step", value=0.1), "by is"),
    "other episode": ("labels.jsonl", _set(0, "id", value="x"), "its row names 'x'"),
    "no label": ("labels.jsonl", lambda rows, _: rows[1:], "which it lacks"),
    "no such line": ("labels.jsonl", _set(0, "line", value=9), "the folder has 3 episodes"),
    "shorter way": ("episodes.jsonl", _set(0, "distances", 15, value=2.5), "found 15"),
    "torn episode": ("episodes.jsonl", _set(0, "turns", value=[]), "turns"),
    "other reason": ("unlabelled.jsonl", _set(0, "reason", value="none"), "the reason for no label"),
    "both": ("unlabelled.jsonl", lambda rows, _: [*rows, {**rows[0], "line": 1}], "both a label and a reason"),
    "estimate of an open end": ("labels.jsonl", lambda rows, _: [*rows, _estimate()], "that nothing gives"),
    "picture of other pixels": ("labels.jsonl", _rename, "not named by its pixels"),
    "stray picture": ("labels.jsonl", _stray, "no episode names"),
    "picture by a link": ("labels.jsonl", _link, "leads out of the folder"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_planted_defects(eb: Path, tmp_path: Path, name: str) -> None:
    file, change, words = DEFECTS[name]
    whole = _changed(
        eb, tmp_path, lambda labels, _: [row for row in labels if row["kind"] != "estimated"], "labels.jsonl"
    )
    folder = _changed(whole.rename(tmp_path / "whole"), tmp_path, change, file)
    problems = pivot.verify(folder).problems
    assert problems and any(words in problem for problem in problems), problems
    assert "problems found" in str(error_of("verify", folder))


def test_rows_that_are_none(turns: Path, tmp_path: Path) -> None:
    folder = _changed(turns, tmp_path, lambda rows, _: [*rows, rows[0]], "labels.jsonl")
    for command in ("stats", "verify"):
        assert "line 1 of another row" in str(error_of(command, folder))
    (folder / "labels.jsonl").write_text("{")
    with pytest.raises(StoreError, match="is not a row"):
        FolderSite(folder)


def test_stats(eb: Path) -> None:
    shown = run("stats", eb)
    assert "Episodes without a state" in shown and "lower_bound" in shown and "estimated" in shown
    tables = json.loads(run("stats", eb, "--format", "json"))
    counts = {(row["outcome"], row["label"]): row["episodes"] for row in tables["Episodes without a state"]}
    assert counts == {("failed", "lower_bound"): 2, ("open", "estimated"): 1}
    assert {row["pivot_step"]: row["failures"] for row in tables["Pivot step"]} == {1: 1, 14: 1, 15: 1}
    assert [row["episodes"] for row in tables["Reasons for the missing state"]] == [3]
    assert "no views" in str(error_of("stats", eb, "--sql", "select 1"))


@pytest.mark.parametrize("command", ["stats", "verify", "view"])
def test_a_folder_without_permission_is_named(command: str, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(0)
    with obeyed_permissions():
        assert f"cannot list {tmp_path / 'closed'}: Permission denied" in str(error_of(command, tmp_path / "closed"))


def test_view(eb: Path, tmp_path: Path) -> None:
    site = FolderSite(eb)
    with ViewServer(site, 0, print) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def get(name: str) -> str:
            with urllib.request.urlopen(server.address + name, timeout=60) as answer:
                return answer.read().decode(errors="replace")

        listed, page = get(""), get("episodes/1.html")
        assert "episode_3.json" in listed and "lower_bound" in listed and "estimated" in listed
        assert "needs 6 turns of 6 left before the turn, 6 of 5 after it" in page
        assert page.count("class=pivot") == 1 and "&lt;b&gt;go" in page and "<b>go" not in page
        picture = page.partition('src="/')[2].partition('"')[0]
        assert get(picture).startswith("\ufffdPNG")
        for name in (
            "episodes/9.html",
            "list/1.html",
            "frames/../labels.jsonl",
            "labels.jsonl",
            f"frames/{'0' * 64}.png",
        ):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(name)
        server.shutdown()
    assert "give no selection" in str(error_of("view", eb, "--failures-only", "--no-open"))
