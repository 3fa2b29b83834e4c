"""Parser of Sokoban levels in XSB text, with error messages for malformed levels.

``#`` wall, ``@`` player, ``+`` player on a target, ``$`` box, ``*`` box on a target, ``.`` target, space floor; ``-``
and ``_`` are floor, too. Lines may have different lengths (missing cells are floor) and may end in CR LF.
There must be exactly one player, at least one box, at least as many targets as boxes (solved means that every *box* is
on a target), and walls around every area that holds the player, a box or a target.
"""

from dataclasses import dataclass

from ...core.errors import LevelError

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
