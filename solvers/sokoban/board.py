"""Sokoban levels: their parser, with messages for malformed ones, the board that a search needs, and its rules.

Levels are XSB text: ``#`` wall, ``@`` player, ``+`` player on a target, ``$`` box, ``*`` box on a target, ``.`` target,
space floor; ``-`` and ``_`` are floor, too. Lines may have different lengths (missing cells are floor) and may end in
CR LF. There must be exactly one player, at least one box, at least as many targets as boxes (solved means that every
*box* is on a target), and walls around every area that holds the player, a box or a target.

On a board, cells are numbered row by row over the bounding box of the floor; cell c is bit c of a set. A state is the
set of boxes and the player's cell.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import comb

from ...core.errors import LevelError
from ..puzzles import Search, TooLargeError

MAX_CELLS = 65_536
"""Maximum number of cells (lines x columns) of a level."""

FLOOR = " -_"
SYMBOLS = "#@+$*. -_"

Cell = tuple[int, int]
"""Line and column, both from 0."""


@dataclass(frozen=True, slots=True)
class SokobanLevel:
    """A well-formed level: the cells of each kind."""

    walls: frozenset[Cell]
    targets: frozenset[Cell]
    boxes: frozenset[Cell]
    player: Cell | None
    """Cell of the player; None in a room, which has neither player nor boxes."""
    lines: int

    def __str__(self) -> str:
        """Return the level as XSB text with spaces for floor and without trailing spaces."""
        symbols = dict.fromkeys(self.walls, "#") | dict.fromkeys(self.targets, ".")
        symbols |= {cell: "*" if cell in self.targets else "$" for cell in self.boxes}
        if self.player is not None:
            symbols[self.player] = "+" if self.player in self.targets else "@"
        width = 1 + max(column for _, column in symbols)
        rows = ("".join(symbols.get((line, column), " ") for column in range(width)) for line in range(self.lines))
        return "\n".join(row.rstrip() for row in rows)


def clean_text(text: str) -> str:
    """Return the text with LF line ends and without trailing ones."""
    return text.replace("\r\n", "\n").rstrip("\n") if "\r" in text or text.endswith("\n") else text


def parse_level(text: str) -> SokobanLevel:
    """Parse a complete level.

    Raises:
        LevelError: the text is not a well-formed level; the message names the position and the fix.
    """
    level = _read(text)
    if level.player is None:
        raise LevelError("the level has no player; put one '@' (or '+' on a target) on a floor cell")
    if not level.boxes:
        raise LevelError("the level has no box; put at least one '$' (or '*' on a target) in it")
    if len(level.targets) < len(level.boxes):
        raise LevelError(
            f"the level has {len(level.boxes)} boxes but {len(level.targets)} targets; add '.' cells or remove boxes"
        )
    objects = [level.player, *sorted(level.targets), *sorted(level.boxes)]
    _check_closed(level, text, objects)
    return level


def parse_room(room: str, boxes: int) -> SokobanLevel:
    """Parse a room: walls, floor and at least ``boxes`` targets, without boxes and player.

    Raises:
        LevelError: the text is not a valid room.
    """
    level = _read(room)
    if level.player is not None or level.boxes:
        raise LevelError("the room contains a player or a box; it must consist of '#', '.' and floor only")
    if boxes < 1:
        raise LevelError(f"a room cannot be filled with {boxes} boxes; ask for at least 1")
    if len(level.targets) < boxes:
        raise LevelError(
            f"the room has {len(level.targets)} targets for {boxes} boxes; add '.' cells or use fewer boxes"
        )
    _check_closed(level, room, sorted(level.targets))
    return level


def _read(text: str) -> SokobanLevel:
    walls: set[Cell] = set()
    targets: set[Cell] = set()
    boxes: set[Cell] = set()
    players: list[Cell] = []
    lines = clean_text(text).split("\n")
    width = max(map(len, lines))
    if len(lines) * width > MAX_CELLS:
        raise LevelError(f"the level measures {len(lines)} x {width} cells; at most {MAX_CELLS} are supported")
    for y, line in enumerate(lines):
        for x, symbol in enumerate(line):
            if symbol not in SYMBOLS:
                raise LevelError(
                    f"unknown symbol {symbol!r} in line {y + 1}, column {x + 1} of the level; "
                    "use only '# @ + $ * .' and space"
                )
            if symbol == "#":
                walls.add((y, x))
            if symbol in ".*+":
                targets.add((y, x))
            if symbol in "$*":
                boxes.add((y, x))
            if symbol in "@+":
                players.append((y, x))
    if len(players) > 1:
        places = " and ".join(f"line {y + 1}, column {x + 1}" for y, x in players[:2])
        raise LevelError(f"the level has {len(players)} players ({places}); keep exactly one '@' or '+'")
    return SokobanLevel(
        frozenset(walls), frozenset(targets), frozenset(boxes), players[0] if players else None, len(lines)
    )


def _check_closed(level: SokobanLevel, text: str, objects: list[Cell]) -> None:
    """Raise LevelError if the area of an object reaches the edge of the text, or no area is closed."""
    lines = clean_text(text).split("\n")
    width = max(map(len, lines))
    seen: set[Cell] = set()
    stack = list(objects)
    while stack:
        cell = stack.pop()
        if cell in seen or cell in level.walls:
            continue
        y, x = cell
        if y in (0, len(lines) - 1) or x in (0, width - 1):
            raise LevelError(
                f"the level is not closed: line {y + 1}, column {x + 1} can be left; put walls '#' around it"
            )
        seen.add(cell)
        stack += [(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]


State = tuple[int, int]


@dataclass(frozen=True)
class Board:
    """A level, or a room that is to be filled with ``count`` boxes."""

    top: int
    left: int
    stride: int
    """Width of the bounding box; its top left corner is cell 0."""
    size: int
    """Number of cells in the bounding box."""
    count: int
    """Number of boxes."""
    floor: int
    """Floor of the closed areas that hold the player, a box or a target; in a room, of all closed areas."""
    area: int
    """Floor of the player's area; in a room, of all closed areas."""
    targets: int
    boxes: int
    player: int
    """Cell of the player; -1 in a room."""

    @classmethod
    def of(cls, level: SokobanLevel, count: int = 0) -> "Board":
        """Number the cells of a level, or with ``count`` of a room.

        Raises:
            LevelError: no wall closes an area.
        """
        if level.player is None:
            area = floor = _closed_floor(level)
        else:
            area = _connected(level, [level.player])
            floor = area | _connected(level, [*level.boxes, *level.targets])
        if not floor:
            raise LevelError("the level has no closed area; put walls '#' around the floor")
        rows, columns = [y for y, _ in floor], [x for _, x in floor]
        top, left, stride = min(rows), min(columns), max(columns) - min(columns) + 1
        players = {level.player} if level.player is not None else set[Cell]()
        floor, area, targets, boxes, player = (
            sum(1 << (y - top) * stride + x - left for y, x in cells)
            for cells in (floor, area, level.targets, level.boxes, players)
        )
        size = (max(rows) - top + 1) * stride
        return cls(
            *(top, left, stride, size, count or len(level.boxes)),
            *(floor, area, targets, boxes, player.bit_length() - 1),
        )

    @property
    def room(self) -> tuple[int, ...]:
        """Part of the board that is equal for all states of the level."""
        return self.top, self.left, self.stride, self.size, self.count, self.floor, self.targets

    @property
    def most_states(self) -> int:
        """An upper bound of the number of states."""
        cells = self.floor.bit_count()
        return comb(cells, self.count) * (cells - self.count)

    @cached_property
    def near(self) -> list[int]:
        """Cells above, below, left and right of each cell, at ``4 * cell + direction``; -1 if not floor."""
        near = [-1] * (4 * self.size)
        for cell in cells_of(self.floor):
            column = cell % self.stride
            beside = cell - self.stride, cell + self.stride, cell - 1, cell + 1
            inside = cell >= self.stride, cell < self.size - self.stride, column > 0, column < self.stride - 1
            for direction in range(4):
                if inside[direction] and self.floor >> beside[direction] & 1:
                    near[4 * cell + direction] = beside[direction]
        return near

    def move(self, state: State, direction: int) -> State:
        """Return the state after a move, an index of up, down, left and right; a blocked one changes nothing."""
        boxes, player = state
        ahead = self.near[4 * player + direction]
        if ahead < 0:
            return state
        if boxes >> ahead & 1:
            behind = self.near[4 * ahead + direction]
            if behind < 0 or boxes >> behind & 1:
                return state
            boxes ^= 1 << ahead | 1 << behind
        return boxes, ahead

    @cached_property
    def live(self) -> int:
        """Cells from which a box can be pushed to a target if there are no other boxes."""
        live, stack = self.targets, cells_of(self.targets)
        while stack:
            cell = stack.pop()
            for direction in range(4):
                # Pulling a box to `other` is the reverse of a push from there; the player ends one cell beyond.
                other = self.near[4 * cell + direction]
                if other >= 0 and not live >> other & 1 and self.near[4 * other + direction] >= 0:
                    live |= 1 << other
                    stack.append(other)
        return live


def cells_of(cells: int) -> list[int]:
    """List the cells of a set in ascending order."""
    return [cell for cell in range(cells.bit_length()) if cells >> cell & 1]


def _connected(level: SokobanLevel, starts: list[Cell]) -> set[Cell]:
    """Return the floor cells that are connected to ``starts``; walls must close them in."""
    seen: set[Cell] = set()
    stack = starts
    while stack:
        cell = stack.pop()
        if cell not in seen and cell not in level.walls:
            seen.add(cell)
            y, x = cell
            stack += [(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]
    return seen


def _closed_floor(level: SokobanLevel) -> set[Cell]:
    """Return the floor of a room that is not connected to the outside."""
    width = 2 + max((x for _, x in level.walls), default=0)
    # A frame of floor around the text is the outside; a frame of wall around that ends the search.
    frame = {(y, x) for y in (-2, level.lines + 1) for x in range(-2, width + 1)}
    frame |= {(y, x) for y in range(-2, level.lines + 2) for x in (-2, width)}
    fenced = SokobanLevel(level.walls | frame, level.targets, level.boxes, None, level.lines)
    outside = _connected(fenced, [(-1, -1)])
    inside = {(y, x) for y in range(level.lines) for x in range(width)}
    return inside - outside - level.walls


class SokobanSearch(Search):
    """Rules of a level; subclasses search it."""

    success = "every box is on a target"
    ending = "solved the level"

    def __init__(self, board: Board, max_states: int) -> None:
        """Create a search that keeps at most ``max_states`` states."""
        self.board, self.max_states = board, max_states
        self.start: State = board.boxes, board.player
        self._open = ~board.targets

    def move(self, state: State, direction: int) -> State:
        """Return the state after a move, which may be blocked; see the base class."""
        return self.board.move(state, direction)

    def is_solved(self, state: State) -> bool:
        """Return whether every box is on a target."""
        return not state[0] & self._open

    @abstractmethod
    def counts(self) -> list[int]:
        """Return the number of states at each depth that was searched."""

    @abstractmethod
    def state_at(self, depth: int, number: int) -> State:
        """Return a state of a depth by its number, in the order of boxes and player."""

    def too_large(self) -> TooLargeError:
        """Return the error of a search that would keep too many states."""
        limit = f"a search met more than max_states = {self.max_states} states"
        return TooLargeError(f"{limit}; raise max_states, lower the limit of depth or use a smaller level")
