"""Levels of users: every common way to write them is read, or refused with line and reason."""

import json
import re
from pathlib import Path

import numpy as np
import pivot
import pytest
from pivot.core.errors import ConfigError, PivotError
from pivot.core.progress import Reporter
from pivot.datasets.store.config import env_config
from pivot.environments.collections import Collection, collection_of, read_files
from pivot.environments.frozenlake import FrozenLakeEnv
from pivot.environments.grid import GridEnv
from pivot.environments.sokoban import SokobanEnv

ROOM = "#####\n#@$.#\n#####"
LETTERS = "######\n#+ $*#\n######"
LAKE = "SFF\nFHF\nFFG"


def read_collection(env: type[GridEnv], name: str) -> Collection:
    return collection_of(read_files(name), env.level_row, env.own_level)


SOKOBAN = {
    "one level": ROOM,
    "numbers of Boxoban": f"; 0\n{ROOM}\n\n; 1\n######\n#@ $.#\n######\n",
    "title, author and comment": f"Title: T\nAuthor: A\n\n{ROOM}\nComment:\n#@$.# is not a level\nComment-End:\n",
    "a name in quotes, and a solution": f"'First'\n{ROOM}\nSolution: R\n",
    "run-length encoding": "5#|#@$.#|5#",
    "runs over lines": "5#\n#@$.#\n5#",
    "minus and underscore": ROOM.replace(" ", "-"),
    "letters": "#####\n#pbo#\n#####",
    "letters on goals": "######\n#P bB#\n######",
    "line ends of Windows, and a mark of UTF-8": "\ufeff" + ROOM.replace("\n", "\r\n") + "\r\n",
    "tabs": "\t#####\n\t#@$.#\n\t#####",
    "boxes on goals outside": "#####\n#@$.#\n#####\n#*#*#\n#####",
    "a box on a goal in the open": "*   *\n#####\n#@$.#\n#####".replace("*   *", "* # *"),
    "floor outside": "  #####\n  #@$.#\n  #####\n###",
    "names in Latin-1": f"Author: Jos\xe9\n{ROOM}",
}
"""The first level of each is the room above, or the one with letters on goals."""


@pytest.mark.parametrize("text", SOKOBAN.values(), ids=SOKOBAN)
def test_levels_of_sokoban_are_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "levels.txt"
    path.write_bytes(text.encode("latin-1" if "\xe9" in text else "utf-8"))
    collection = read_collection(SokobanEnv, str(path))
    assert not collection.refused
    first = collection.levels[0]
    assert SokobanEnv.canonical_state(first.text) == first.text
    expected = LETTERS if "P" in text and "b" in text else ROOM
    assert [*map(_core, (first.text, expected))] == [expected.splitlines()] * 2


def _core(level: str) -> list[str]:
    """Return the rows and columns of a level that hold more than walls, with one ring of walls around them."""
    rows = level.splitlines()
    inside = [(r, c) for r, row in enumerate(rows) for c, cell in enumerate(row) if cell != "#"]
    (top, bottom), (left, right) = ((min(each), max(each)) for each in zip(*inside, strict=True))
    return [row[left - 1 : right + 2] for row in rows[top - 1 : bottom + 2]]


REFUSED = {
    "no player": ("#####\n# $.#\n#####", "line 3: .*0 players"),
    "two players": ("#####\n#@@$.#\n#####", "line 3: .*2 players"),
    "open": ("#####\n#@$. \n#####", "line 3: .*open"),
    "a box that nobody reaches": ("#######\n#@.#$.#\n#######", "line 3: .*box in row 1, column 4"),
    "a target that nobody reaches": ("#######\n#@$.#.#\n#######", "line 3: .*target in row 1, column 5"),
    "no box": ("####\n#@.#\n####", "line 3: .*no box"),
    "solved": ("#####\n#@* #\n#####", "line 3: .*solved before the first move"),
    "solved with a target to spare": ("#####\n#@*.#\n#####", "line 3: .*solved before the first move"),
    "fewer targets": ("######\n#@$$.#\n######", "line 3: .*targets"),
    "a count without a cell": ("#####\n#@$.#\n###5", "line 3: .*ends in a number"),
    "a run without end": ("99999999999#\n#@$.#\n#####", "line 3: .*run of"),
    "too wide": (f"{'#' * 70}\n#@$.{' ' * 65}#\n{'#' * 70}", "line 3: .*at most 64"),
    "a comment without end": (f"{ROOM}\nComment:\nfor ever", "line 6: .*comment"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_level_is_refused_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "levels.xsb").write_text(f"Title: T\n\n{text}\n\n{ROOM}\n")
    collection = read_collection(SokobanEnv, str(tmp_path))
    if message.startswith("line 6"):
        assert "line 6: a comment" in collection.refused[0]
    else:
        assert len(collection.levels) == 1 and len(collection.refused) == 1
        assert re.search(message, collection.refused[0])


LAKES = {"rows": LAKE, "two maps": f"{LAKE}\n\nSFG\nFFF\n", "as Python prints it": "['SFF',\n 'FHF',\n 'FFG']"}
DESC = np.array([list(row) for row in LAKE.splitlines()], "S1")
LAKES |= {"as NumPy prints it": str(DESC), "its repr": repr(DESC), "lists in one line": str(DESC.tolist())}


@pytest.mark.parametrize("text", LAKES.values(), ids=LAKES)
def test_texts_of_lakes_are_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "lakes.txt").write_text(text)
    collection = read_collection(FrozenLakeEnv, str(tmp_path / "lakes.txt"))
    assert collection.levels[0].text == LAKE and not collection.refused


ROWS = LAKE.splitlines()
DATA = (LAKE, ROWS, [ROWS], [list(row) for row in ROWS], {"desc": ROWS}, [{"map": LAKE}], {"levels": [LAKE, LAKE]})


@pytest.mark.parametrize("data", DATA, ids=range(len(DATA)))
@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_json_holds_a_text_rows_or_objects(data: object, suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"lakes.{suffix}").write_text(json.dumps(data) + "\n")
    collection = read_collection(FrozenLakeEnv, str(tmp_path))
    assert [own.text for own in collection.levels] == [LAKE] and not collection.refused


def test_lines_that_are_no_levels_are_refused_and_the_others_read(tmp_path: Path) -> None:
    lines = ['{"desc": ["SFX", "FFG"]}', "{", '{"name": 1}', "3", json.dumps(f"{LAKE}\n@ 2 2"), json.dumps(LAKE)]
    (tmp_path / "lakes.jsonl").write_text("\n".join(lines))
    (tmp_path / "mistyped.txt").write_text("SFFF\nFXFF\nFFFG\n")
    collection = read_collection(FrozenLakeEnv, str(tmp_path))
    assert len(collection.levels) == 1
    assert [each.split(":")[0] for each in collection.refused] == [
        *(f"lakes.jsonl line {number}" for number in (1, 2, 3, 4, 5)),
        "mistyped.txt line 1",
    ]


def test_an_address_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError, match="levels is an address, expected a file") as refused:
        env_config("sokoban", {"levels": "s3://key:secret@bucket/levels.txt"})
    assert "secret" not in str(refused.value)


def test_equal_levels_count_once_whatever_stands_around_them(tmp_path: Path) -> None:
    thick = "#######\n" + "\n".join(f"#{row}#" for row in ROOM.splitlines()) + "\n#######"
    (tmp_path / "a.txt").write_text(f"{ROOM}\n\n{thick}\n")
    (tmp_path / "b.sok").write_text("#####\n#@$.#\n#####\n##\n\n#####\n#@.$#\n#####\n")
    collection = read_collection(SokobanEnv, str(tmp_path))
    assert len(collection.levels) == 2 and collection.repeated == 2


@pytest.mark.parametrize("name", ["missing.txt", "empty.txt", "folder"])
def test_nothing_to_read_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("Title: nothing\n")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="levels"):
        read_collection(SokobanEnv, str(tmp_path / name))


def test_a_store_of_own_levels_is_built_verified_and_grown(tmp_path: Path) -> None:
    """Its ids are those of the levels, so that a second collection with one of them has the same task."""
    path = tmp_path / "levels.txt"
    path.write_text(f"{ROOM}\n\n######\n#@ $.#\n######\n")
    config = {"environments": {"sokoban": {"tasks": 2, "settings": {"levels": str(path)}}}, "rollouts": 2}
    pivot.build(config, tmp_path / "store")
    episodes = pivot.load_store(tmp_path / "store").episodes.collect()
    assert set(episodes["initial_state"]) == set(path.read_text().strip().split("\n\n"))
    assert pivot.verify(tmp_path / "store", sources=True).holds
    other = tmp_path / "other.txt"
    other.write_text(f"; renamed\n{ROOM}\n")
    config["environments"]["sokoban"] = {"tasks": 1, "settings": {"levels": str(other)}}
    pivot.build(config, tmp_path / "second")
    again = pivot.load_store(tmp_path / "second").episodes.collect()
    assert set(again["task_id"]) < set(episodes["task_id"])
    path.write_text("#####\n#@.$#\n#####\n")  # the rules of the store's config do not change with a file
    with pytest.raises(PivotError, match="levels_digest"):
        pivot.build(
            {"environments": {"sokoban": {"tasks": 1, "settings": _stored(tmp_path / "store")}}}, tmp_path / "n"
        )
    config["environments"]["sokoban"] = {"tasks": 1, "settings": {"levels": str(path)}}
    pivot.build(config, tmp_path / "changed")  # in the process that has read the file before
    assert set(pivot.load_store(tmp_path / "changed").episodes.collect()["initial_state"]) == {path.read_text().strip()}
    path.unlink()
    assert pivot.verify(tmp_path / "store").holds


def test_a_build_says_what_it_read_and_refused(tmp_path: Path) -> None:
    (tmp_path / "levels.txt").write_text(f"{ROOM}\n\n{ROOM}\n\n" + "#####\n# $.#\n#####\n\n" * 22)
    notes: list[str] = []

    class Notes(Reporter):
        def note(self, line: str) -> None:
            notes.append(line)

    settings = {"levels": str(tmp_path / "levels.txt")}
    config = {"environments": {"sokoban": {"tasks": 1, "settings": settings}}, "rollouts": 1}
    pivot.build(config, tmp_path / "store", reporter=Notes())
    first, *refused, last = [line for line in notes if line.startswith("sokoban: ")]
    assert first == "sokoban: 1 level read; 1 more repeat one of them" and last == "sokoban:   and 2 more"
    assert len(refused) == 20 and "levels.txt line 9" in refused[0] and "0 players" in refused[0]


def _stored(store: Path) -> dict[str, object]:
    return json.loads((store / "run.json").read_text())["config"]["environments"]["sokoban"]["settings"]
