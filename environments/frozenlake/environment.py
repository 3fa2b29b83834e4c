"""FrozenLake: reach the goal without falling into a hole, no slipping.

Gymnasium's FrozenLake computes the moves; PIVOT defines rewards, the turn budget and the order of the actions. A map
consists of the rows of gymnasium's ``desc``; if the player is not on S, a last line ``@ row column`` follows.
"""

import random
import re
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.envs.toy_text import frozen_lake
from pydantic import Field

from ...core.errors import LevelError
from ..base import EnvConfig, EnvProfile, Frame, Source
from ..generated import first_level
from ..grid import MAX_SIDE, UNUSABLE, GridConfig, GridEnv, level_lines, pick
from .sprites import ART, draw_map, draw_player

_GYM_ACTIONS = (frozen_lake.UP, frozen_lake.DOWN, frozen_lake.LEFT, frozen_lake.RIGHT)  # in PIVOT's order
_POSITION = re.compile(r"@ (\d{1,2}) (\d{1,2})")
_ROW, _WORD, _BETWEEN = re.compile("[A-Z]{2,}"), re.compile("['\"]([A-Z]{2,})['\"]"), re.compile(r"[\s\"',]")
_NUMPY = re.compile(r"array\(|b(?=['\"])|,?\s*dtype=.*")


class FrozenLakeConfig(GridConfig):
    """Settings of FrozenLake; the defaults are the paper's."""

    horizon: int = Field(default=9, gt=0, le=1000)
    """``T_max``, turns."""
    size: int = Field(default=4, ge=2, le=MAX_SIDE)
    """Width and height of the map, cells."""
    frozen_probability: float = Field(default=0.8, ge=0, le=1)
    """Chance that a cell other than start and goal is not a hole."""
    cell: int = Field(default=64, ge=16, le=128)
    """Side of a cell, pixels: 64 is the native size of the sprites and gives 256x256 frames."""
    max_tries: int = Field(default=1000, ge=1, le=100_000)
    """Maximum number of maps to sample per level; with the defaults 90 % of the maps have a path."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """Gymnasium's tile pictures, and the user's own levels."""
        return (Source("tile pictures of the Gymnasium package", "mit"), *super().sources)


@lru_cache(maxsize=1024)
def _parse(text: str) -> tuple[tuple[str, ...], int]:
    """Return the rows of the map and the player's cell (row-major index)."""
    body, position = text, None
    if isinstance(text, str):
        head, _, last = text.rstrip("\r\n").rpartition("\n")
        if last.startswith("@"):
            body, position = head, _POSITION.fullmatch(last)
            if position is None:
                raise LevelError(f"the FrozenLake state ends with {last[:20]!r}; expected '@ row column'")
    rows = tuple(level_lines(body, "FrozenLake map", "SFHG"))
    ragged = [row for row, line in enumerate(rows) if len(line) != len(rows[0])]
    if ragged:
        raise LevelError(
            f"row {ragged[0]} of the FrozenLake map has {len(rows[ragged[0]])} cells, row 0 has {len(rows[0])}; all "
            "rows need the same length"
        )
    cells = "".join(rows)
    if cells.count("S") != 1:
        raise LevelError(f"the FrozenLake map has {cells.count('S')} start cells (S); it needs exactly one")
    if "G" not in cells:
        raise LevelError("the FrozenLake map has no goal cell (G); it needs at least one")
    if position is None:
        return rows, cells.index("S")
    row, column = int(position[1]), int(position[2])
    if row >= len(rows) or column >= len(rows[0]):
        raise LevelError(f"the player's cell '@ {row} {column}' is outside the {len(rows)}x{len(rows[0])} map")
    return rows, row * len(rows[0]) + column


def _draw_rows(config: FrozenLakeConfig, rng: random.Random) -> str | None:
    """Sample a map; return None if every path to the goal leads through a hole."""
    size = config.size
    start = pick(rng, size * size)
    goal = (start + 1 + pick(rng, size * size - 1)) % (size * size)
    cells = ["F" if rng.random() < config.frozen_probability else "H" for _ in range(size * size)]
    cells[start], cells[goal] = "S", "G"
    if not _has_path(cells, size, start, goal):
        return None
    return "\n".join("".join(cells[row * size : (row + 1) * size]) for row in range(size))


def _has_path(cells: list[str], size: int, start: int, goal: int) -> bool:
    seen = {start}
    stack = [start]
    while stack:
        cell = stack.pop()
        if cell == goal:
            return True
        row, column = divmod(cell, size)
        for inside, neighbour in (
            (row > 0, cell - size),
            (row < size - 1, cell + size),
            (column > 0, cell - 1),
            (column < size - 1, cell + 1),
        ):
            if inside and neighbour not in seen and cells[neighbour] != "H":
                seen.add(neighbour)
                stack.append(neighbour)
    return False


class FrozenLakeEnv(GridEnv):
    """A frozen lake with holes; see the module docstring and :class:`~pivot.environments.base.PivotEnv`."""

    config: FrozenLakeConfig
    config_type: ClassVar[type[EnvConfig]] = FrozenLakeConfig
    instruction: ClassVar[str] = "Reach the goal without falling into a hole."
    profile: ClassVar[EnvProfile] = EnvProfile(
        name="frozenlake",
        version=f"1+art-{ART}",
        backend="embedded",
        answer_tag="action",
        unusable_action=UNUSABLE,
        failure_modes=("timeout", "deadlock"),
        state_format="gymnasium-desc",
        log_fields=("moved", "remaining_turns"),
        task_description=(
            "FrozenLake: walk up, down, left or right over a frozen lake from the start to the goal before the turns "
            "run out; stepping into a hole ends the episode, and the ice does not make the player slip."
        ),
        default_tasks=216,
    )

    def __init__(self, config: EnvConfig | None = None, render_mode: str | None = "rgb_array") -> None:
        """Create the environment; see the base class."""
        super().__init__(config, render_mode)
        side = self.config.size * self.config.cell
        self.observation_space = spaces.Box(0, 255, (side, side, 3), np.uint8)
        self._rows: tuple[str, ...] = ()
        self._cells = ""
        self._player = 0
        self._transitions: dict[int, dict[int, list[tuple[Any, ...]]]] = {}

    @classmethod
    def find_level(cls, config: FrozenLakeConfig, seed: int) -> tuple[int, str]:
        """Sample maps until one has a hole-free path from start to goal; see the base class."""
        advice = (
            f"raise frozen_probability={config.frozen_probability}, or lower size={config.size}; too few of such maps "
            "have a path without holes"
        )
        return first_level(lambda rng: _draw_rows(config, rng), cls.profile.name, seed, config.max_tries, advice)

    @classmethod
    def level_row(cls, line: str) -> str | None:
        """Return a line of cells, also with the brackets, quotes and commas of Python and NumPy; see the base class.

        A line may hold several rows, such as a printed list. A line of capitals counts if half of them are cells, so
        that a mistyped map is refused and not overlooked.
        """
        parts = re.split(r"[\[\]]", _NUMPY.sub("", line))
        rows = [row for part in parts for row in _WORD.findall(part) or [_BETWEEN.sub("", part)] if row]
        cells = "".join(rows)
        is_map = all(map(_ROW.fullmatch, rows)) and 2 * sum(cell in "SFHG" for cell in cells) >= len(cells) > 0
        return "\n".join(rows) if is_map else None

    @classmethod
    def own_level(cls, text: str) -> tuple[str, str]:
        """Refuse a map that ends before the first move; see the base class."""
        rows, player = _parse(text)
        if (cell := "".join(rows)[player]) in "GH":
            raise LevelError(f"the player of the FrozenLake map is on a cell {cell!r}, expected 'S' or 'F'")
        return super().own_level(text)

    @classmethod
    def canonical_state(cls, initial_state: str) -> str:
        """Return the map with LF line ends, and the player's line only if the player is not on S."""
        return _state_text(*_parse(initial_state))

    def state_text(self) -> str:
        """Return the rows of the map, and a last line ``@ row column`` if the player is not on S."""
        return _state_text(self._rows, self._player)

    def frame_key(self) -> tuple[tuple[str, ...], int | None]:
        """Return the map and the player's cell; None in a hole, where the player is not drawn."""
        return self._rows, None if self._is_lost() else self._player

    def _load(self, text: str) -> None:
        rows, player = _parse(text)
        if rows != self._rows:
            # Without slipping, gymnasium's table has exactly one outcome per cell and action.
            desc: Any = [list(row) for row in rows]  # it takes rows of text only with two columns or more
            self._transitions = frozen_lake.FrozenLakeEnv(desc=desc, is_slippery=False).P
            self._background = draw_map(rows, self.config.cell)
            self._rows, self._cells = rows, "".join(rows)
        self._player = player

    def _move(self, direction: int) -> tuple[bool, float]:
        ((_, after, _, _),) = self._transitions[self._player][_GYM_ACTIONS[direction]]
        moved = after != self._player
        self._player = int(after)
        return moved, 0.0

    def _is_solved(self) -> bool:
        return self._cells[self._player] == "G"

    def _is_lost(self) -> bool:
        return self._cells[self._player] == "H"

    def _draw(self) -> Frame:
        frame = self._background.copy()
        if not self._is_lost():
            draw_player(frame, *divmod(self._player, len(self._rows[0])), self.config.cell)
        return frame


def _state_text(rows: tuple[str, ...], player: int) -> str:
    text = "\n".join(rows)
    if "".join(rows)[player] == "S":
        return text
    return "{}\n@ {} {}".format(text, *divmod(player, len(rows[0])))
