"""Sokoban: push every box onto a target within the turn budget.

Levels are XSB text. The environment and the solver implement the rules independently, and a contract test compares
them. A new level is a carved room whose exact shortest solution has a length within the configured range.
"""

import random
from typing import ClassVar, Self

import numpy as np
from gymnasium import spaces
from pydantic import Field, model_validator

from ...core.errors import CertifyError, GenerationError
from ...solvers.sokoban import SokobanSolver, sample_level
from ..base import EnvConfig, EnvProfile, Frame
from ..generated import first_level
from ..grid import MAX_SIDE, UNUSABLE, GridConfig, GridEnv
from .levels import carve_room, level_text, parse_level
from .sprites import BOX, MIN_CELL, PLAYER, TARGET, WALL, tiles

_OVERSIZED_ROOMS = 3  # rooms too large to search before generation gives up; each costs about a second

_STATIC = bytes(code & (WALL | TARGET) for code in range(256))
"""Code of each code's cell without player and box."""


class SokobanConfig(GridConfig):
    """Settings of Sokoban; the defaults are the paper's."""

    added: ClassVar[frozenset[str]] = GridConfig.added | {"box_on_reward", "box_off_reward"}

    horizon: int = Field(default=9, gt=0, le=1000)
    """``T_max``, turns."""
    rows: int = Field(default=6, ge=3, le=MAX_SIDE)
    """Height in cells, including the outer ring of walls."""
    cols: int = Field(default=6, ge=3, le=MAX_SIDE)
    """Width in cells, including the outer ring of walls."""
    boxes: int = Field(default=1, ge=1, le=32)
    """Number of boxes, and of targets."""
    min_solution: int = Field(default=1, ge=1)
    """Minimum length of the shortest solution, moves."""
    max_solution: int = Field(default=5, ge=1, le=10_000)
    """Maximum length of the shortest solution, moves."""
    cell: int = Field(default=32, ge=MIN_CELL, le=128)
    """Side of a cell, pixels: 32 gives 192x192 frames; 16 is the smallest that shows every detail."""
    max_tries: int = Field(default=200, ge=1, le=100_000)
    """Maximum number of rooms to carve per level; with the defaults nearly every room has a level."""
    max_states: int = Field(default=2_000_000, ge=1)
    """Maximum number of states within ``max_solution`` moves that the search for a start may store (memory)."""
    box_on_reward: float = 1.0
    """Reward added when a box is pushed onto a target."""
    box_off_reward: float = -1.0
    """Reward added when a box is pushed off a target."""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.min_solution > self.max_solution:
            raise ValueError(
                f"min_solution={self.min_solution} is larger than max_solution={self.max_solution}; lower the first or "
                "raise the second"
            )
        interior = (self.rows - 2) * (self.cols - 2)
        if interior < self.boxes + 2:
            raise ValueError(
                f"a {self.rows}x{self.cols} room has {interior} cells inside its walls, too few for "
                f"boxes={self.boxes}, a free target and the player; raise rows or cols, or lower boxes"
            )
        return self


class SokobanEnv(GridEnv):
    """A room of boxes and targets; see the module docstring and :class:`~pivot.environments.base.PivotEnv`."""

    config: SokobanConfig
    config_type: ClassVar[type[EnvConfig]] = SokobanConfig
    instruction: ClassVar[str] = "Push every box onto a target."
    profile: ClassVar[EnvProfile] = EnvProfile(
        name="sokoban",
        version="1",
        backend="embedded",
        answer_tag="action",
        unusable_action=UNUSABLE,
        failure_modes=SokobanSolver.modes,
        state_format="xsb",
        log_fields=("moved",),
        task_description=(
            "Sokoban: walk up, down, left or right in a walled room and push every box onto a target before the turns "
            "run out; a box can be pushed but never pulled, and only when the cell behind it is free."
        ),
        default_tasks=180,
    )

    def __init__(self, config: EnvConfig | None = None, render_mode: str | None = "rgb_array") -> None:
        """Create the environment; see the base class."""
        super().__init__(config, render_mode)
        shape = self.config.rows * self.config.cell, self.config.cols * self.config.cell, 3
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self._tiles = tiles(self.config.cell)
        self._cols = 0
        self._static = b""  # walls and targets, one code per cell
        self._boxes: set[int] = set()
        self._player = 0
        self._off_target = 0  # boxes that are not on a target

    @classmethod
    def find_level(cls, config: SokobanConfig, seed: int) -> tuple[int, str]:
        """Carve rooms until the solver finds a start within the configured range; see the base class."""
        oversized = 0

        def draw(rng: random.Random) -> str | None:
            nonlocal oversized
            room = carve_room(config.rows, config.cols, config.boxes, rng)
            if room is None:
                return None
            try:
                return sample_level(
                    room, config.boxes, config.min_solution, config.max_solution, rng, config.max_states
                )
            except CertifyError as error:
                oversized += 1
                if oversized < _OVERSIZED_ROOMS:
                    return None
                raise GenerationError(
                    f"{oversized} carved rooms have more than max_states={config.max_states} starts within "
                    f"max_solution={config.max_solution} moves; lower max_solution or boxes={config.boxes}, or raise "
                    "max_states"
                ) from error

        advice = (
            f"widen min_solution={config.min_solution}..max_solution={config.max_solution}, enlarge the "
            f"{config.rows}x{config.cols} room (rows, cols), or lower boxes={config.boxes}"
        )
        return first_level(draw, cls.profile.name, seed, config.max_tries, advice)

    @classmethod
    def level_row(cls, line: str) -> str | None:
        """Return a line that holds a wall and nothing but cells; see the base class."""
        from .collection import is_row  # noqa: PLC0415 - few runs have levels of their own

        return line if is_row(line) else None

    @classmethod
    def own_level(cls, text: str) -> tuple[str, str]:
        """Read what collections hold, see :mod:`.collection`; equal levels may have other walls around them."""
        from .collection import own_level  # noqa: PLC0415 - as above

        return own_level(text)

    @classmethod
    def canonical_state(cls, initial_state: str) -> str:
        """Return the level without surrounding blank lines and columns, padded to a rectangle; see the base class."""
        level = parse_level(initial_state)
        return level_text(level.cells, level.cols)

    def state_text(self) -> str:
        """Return the current state as XSB text, every line padded to the full width."""
        cells = bytearray(self._static)
        for box in self._boxes:
            cells[box] |= BOX
        cells[self._player] |= PLAYER
        return level_text(cells, self._cols)

    def frame_key(self) -> tuple[int, bytes, int, frozenset[int]]:
        """Return width, walls and targets, player, and boxes; frames are equal if and only if these are."""
        return self._cols, self._static, self._player, frozenset(self._boxes)

    def _load(self, text: str) -> None:
        level = parse_level(text)
        static = level.cells.translate(_STATIC)
        if (level.cols, static) != (self._cols, self._static):
            self._cols, self._static = level.cols, static
            side = self.config.cell
            grid = np.frombuffer(static, np.uint8).reshape(-1, level.cols)
            pictures = self._tiles[grid].transpose(0, 2, 1, 3, 4)
            self._background = pictures.reshape(grid.shape[0] * side, grid.shape[1] * side, 3)
        self._boxes = set(level.boxes)
        self._player = level.player
        self._off_target = sum(static[cell] != TARGET for cell in self._boxes)

    def _move(self, direction: int) -> tuple[bool, float]:
        # The room is closed (checked when the level was parsed), so player and boxes never reach the border.
        step = (-self._cols, self._cols, -1, 1)[direction]
        ahead = self._player + step
        if self._static[ahead] == WALL:
            return False, 0.0
        reward = 0.0
        if ahead in self._boxes:
            behind = ahead + step
            if self._static[behind] == WALL or behind in self._boxes:
                return False, 0.0
            self._boxes.remove(ahead)
            self._boxes.add(behind)
            if self._static[ahead] == TARGET:
                reward += self.config.box_off_reward
                self._off_target += 1
            if self._static[behind] == TARGET:
                reward += self.config.box_on_reward
                self._off_target -= 1
        self._player = ahead
        return True, reward

    def _is_solved(self) -> bool:
        return self._off_target == 0

    def _is_lost(self) -> bool:
        return False

    def _draw(self) -> Frame:
        side = self.config.cell
        frame = self._background.copy()
        for cell, thing in (*((box, BOX) for box in self._boxes), (self._player, PLAYER)):
            top, left = cell // self._cols * side, cell % self._cols * side
            frame[top : top + side, left : left + side] = self._tiles[self._static[cell] | thing]
        return frame
