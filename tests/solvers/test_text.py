"""Level texts: valid ones, and the messages for invalid ones."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pivot.core.errors import LevelError
from pivot.solvers.base import Case, Unsolved
from pivot.solvers.frozenlake.solver import FrozenLakeSolver, check_state, split_state, state_text
from pivot.solvers.sokoban.board import parse_level, parse_room
from pivot.solvers.sokoban.solver import SokobanSolver

LEVEL = "#####\n#@$.#\n#####"
LAKE = "SFF\nFHF\nFFG"

MALFORMED_LEVELS = {
    "": "no player",
    "#####\n#@$x#\n#####": "unknown symbol 'x' in line 2, column 4",
    "#####\n# $.#\n#####": "no player",
    "#####\n#@$+#\n#####": "2 players",
    "#####\n#@ .#\n#####": "no box",
    "######\n#@$$.#\n######": "2 boxes but 1 targets",
    "#####\n#@$.\n#####": "not closed: line 2, column",
    "#### \n#@$.#\n#####\n#": None,
    "###\n#@$.#\n#####": "not closed: line 1, column 4",
    "#####\n#@$.#\n#####\n .": "not closed: line 4",
    "#####\n#@é.#\n#####": "unknown symbol 'é'",
    "@$." + " " * 70_000: "at most 65536",
}


@pytest.mark.parametrize("text", MALFORMED_LEVELS)
def test_malformed_levels_are_refused_with_place_and_fix(text: str) -> None:
    expected = MALFORMED_LEVELS[text]
    answer = SokobanSolver().certify([Case(text, ["up"], 9)])[0]
    if expected is None:
        parse_level(text)
        assert not isinstance(answer, Unsolved)
        return
    with pytest.raises(LevelError, match=expected) as caught:
        parse_level(text)
    assert answer == Unsolved("bad_episode", str(caught.value))
    with pytest.raises(LevelError):
        SokobanSolver().distance_map(text)


@pytest.mark.parametrize(
    ("room", "boxes", "expected"),
    [
        (LEVEL, 1, "contains a player or a box"),
        ("####\n#. #\n####", 2, "1 targets for 2 boxes"),
        ("####\n#. #\n####", 0, "at least 1"),
        ("####\n#. \n####", 1, "not closed"),
    ],
)
def test_malformed_rooms_are_refused(room: str, boxes: int, expected: str) -> None:
    with pytest.raises(LevelError, match=expected):
        parse_room(room, boxes)


MALFORMED_LAKES = {
    "": "row 1 of the map has 0 cells",
    "SFX\nFFG": "unknown symbol 'X' in row 1, column 3",
    "SF\nFFG": "row 2 of the map has 3 cells",
    "FF\nFG": "0 start cells",
    "SS\nFG": "2 start cells",
    "SF\nFF": "no goal",
    "SF\nFG\n@ 1": "position line '@ 1'",
    "SF\nFG\n@ 0 2": "off the map of 2 x 2",
    "SF\nFG\n@ -1 0": "position line",
    "SF\n\nFG": "row 2 of the map has 0 cells",
    "SF\nFG\n@ 0 0\nSF": "position line",
}


@pytest.mark.parametrize("text", MALFORMED_LAKES)
def test_malformed_maps_are_refused_with_place_and_fix(text: str) -> None:
    with pytest.raises(LevelError, match=MALFORMED_LAKES[text]) as caught:
        check_state(text)
    assert FrozenLakeSolver().certify([Case(text, ["up"], 9)]) == [Unsolved("bad_episode", str(caught.value))]
    with pytest.raises(LevelError):
        FrozenLakeSolver().distance_map(text)


def test_one_bad_level_does_not_hide_the_others() -> None:
    for solver, good in ((SokobanSolver(), LEVEL.replace("@$", "@ $")), (FrozenLakeSolver(), LAKE)):
        answers = solver.certify([Case(good, ["up"], 1), Case("?", ["up"], 1), Case(good, ["invalid"], 1)])
        assert [isinstance(answer, Unsolved) for answer in answers] == [False, True, False]
        assert solver.certify([]) == []


@pytest.mark.parametrize("text", ["#####\r\n#@$.#\r\n#####\r\n", "#####\n#@$.#\n#####\n\n", "#####\n#@$.#\n#####  "])
def test_line_ends_and_trailing_blanks_do_not_matter(text: str) -> None:
    assert str(parse_level(text)) == LEVEL and SokobanSolver().distance_map(text).distance(LEVEL) == 1


def test_dashes_and_underscores_are_floor() -> None:
    one, other = "######\n#@-$.#\n#_   #\n######", "######\n#@ $.#\n#    #\n######"
    assert parse_level(one) == parse_level(other) and SokobanSolver().distance_map(one).distance(other) == 2


symbols = st.sampled_from("####  .$@*+-_")
texts = st.lists(st.text(symbols, max_size=7), min_size=1, max_size=6).map("\n".join)


@st.composite
def framed(draw: st.DrawFn) -> str:
    """Return a text with a wall around it, sometimes with a gap."""
    width = draw(st.integers(1, 5))
    rows = draw(st.lists(st.text(symbols, min_size=width, max_size=width), min_size=1, max_size=5))
    lines = ["#" * (width + 2), *(f"#{row}#" for row in rows), "#" * (width + 2)]
    if draw(st.booleans()):
        at = draw(st.integers(0, len(lines) - 1))
        lines[at] = lines[at][: draw(st.integers(0, width + 2))]
    return "\n".join(lines)


@settings(max_examples=600, deadline=None)
@given(texts | framed() | st.text(max_size=20))
def test_reading_what_was_written_changes_nothing(text: str) -> None:
    try:
        level = parse_level(text)
    except LevelError:
        return
    assert parse_level(str(level)) == level
    solver = SokobanSolver()
    assert solver.distance_map(text).distance(text) == solver.distance_map(str(level)).distance(str(level))


lake_texts = st.lists(st.text(st.sampled_from("SFFHG"), max_size=4), max_size=4).map("\n".join)
positions = st.just("") | st.tuples(st.integers(-1, 5), st.integers(-1, 5)).map(lambda at: f"\n@ {at[0]} {at[1]}")


@settings(max_examples=600, deadline=None)
@given(st.tuples(lake_texts, positions).map("".join) | st.text("SFHG@ \n10", max_size=12))
def test_every_map_is_read_or_refused(text: str) -> None:
    try:
        check_state(text)
    except LevelError:
        answer = FrozenLakeSolver().certify([Case(text, ["up"], 9)])[0]
        assert isinstance(answer, Unsolved) and answer.reason == "bad_episode"
        return
    map_text, row, column = split_state(text)
    FrozenLakeSolver().distance_map(map_text).distance(text)
    FrozenLakeSolver().certify([Case(text, ["up"], 9)])
    if row >= 0:
        assert split_state(state_text(map_text, row, column)) in {(map_text, row, column), (map_text, -1, -1)}
