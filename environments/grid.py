"""Base class of the puzzle environments: four moves, an unusable action that costs a turn, a turn budget, text states.

A turn has one move, or up to ``actions_per_turn`` of them. Its name is then that of its moves, joined with
``TURN_SEPARATOR``; those after success or after the end of the episode are not made.

A state consists of its text and the number of turns taken; solved, lost and budget spent follow from them. A snapshot
is therefore these two, and restoring is parsing. A subclass adds the rules of one move and the picture.
"""

import random
from abc import abstractmethod
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex

import numpy as np
from gymnasium import spaces
from pydantic import Field, ValidationInfo, model_validator

from ..core.errors import ConfigError, LevelError
from ..core.plugins import STORED
from ..solvers.base import TURN_SEPARATOR
from .base import NO_FRAME, EnvConfig, Frame, Info, NamedActions, ParsedAction, Source, Task, TurnRewards
from .generated import LevelEnv

if TYPE_CHECKING:
    from .collections import Collection

ACTIONS = ("up", "down", "left", "right")
"""Usable actions; their indices are the members of ``action_space``."""
UNUSABLE = "invalid"
UNUSABLE_INDEX = len(ACTIONS)

MAX_SIDE = 64
"""Maximum width and height of a level, cells; limits the memory that a malicious level text can allocate."""


def pick(rng: random.Random, count: int) -> int:
    """Return a uniform integer in [0, count).

    Uses ``rng.random()``, the only method whose sequence Python keeps stable between versions.
    """
    return int(rng.random() * count)


def level_lines(text: object, what: str, alphabet: str) -> list[str]:
    """Split a level text into lines and check its type, size and characters. Lines may end in CR LF.

    Raises:
        LevelError: the text is not a string, is empty, exceeds :data:`MAX_SIDE`, or has a character that is not in
            ``alphabet``.
    """
    if not isinstance(text, str):
        raise LevelError(f"a {what} is text, not {type(text).__name__}")
    if len(text) > 2 * (MAX_SIDE + 1) ** 2:
        raise LevelError(f"the {what} has {len(text)} characters; levels of up to {MAX_SIDE}x{MAX_SIDE} cells are read")
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    for row, line in enumerate(lines):
        for column, char in enumerate(line):
            if char not in alphabet:
                raise LevelError(f"the {what} has {char!r} in row {row}, column {column}; cells are {alphabet!r}")
    if lines == [""]:
        raise LevelError(f"the {what} is empty")
    if len(lines) > MAX_SIDE or max(map(len, lines)) > MAX_SIDE:
        raise LevelError(
            f"the {what} is {len(lines)}x{max(map(len, lines))} cells; at most {MAX_SIDE}x{MAX_SIDE} are read"
        )
    return lines


class GridConfig(TurnRewards):
    """Settings of a puzzle."""

    locations: ClassVar[frozenset[str]] = frozenset({"levels"})
    level_sources: ClassVar[frozenset[str]] = locations
    added: ClassVar[frozenset[str]] = TurnRewards.added | {"actions_per_turn", "levels", "levels_digest"}

    actions_per_turn: int = Field(default=1, ge=1, le=16)
    """Maximum number of moves of a turn: a reply has 1 to this many, separated by commas."""
    levels: str = ""
    """File or folder with levels of your own, in place of generated ones."""
    levels_digest: str = ""
    """Filled in: the digest of the files of ``levels``."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """The user's own levels, whose licence is unknown; empty for generated ones."""
        return (Source(f"the levels of {Path(self.levels).name}", None),) if self.levels_digest else ()

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: Any, info: ValidationInfo) -> Any:
        if not isinstance(values, dict) or not values.get("levels"):
            return values
        if not isinstance(values["levels"], str | Path):
            raise ValueError(f"levels is {values['levels']!r}, expected the path of a file or folder")
        if "://" in str(values["levels"]):
            raise ValueError("levels is an address, expected a file or folder on this machine; copy it first")
        name = str(Path(values["levels"]).expanduser().absolute())
        if values.get("levels_digest"):
            return values | {"levels": name}
        if info.context == STORED:
            raise ValueError("levels_digest is missing although levels is set; copy it from the store's run.json")
        from .collections import read_files  # noqa: PLC0415 - few runs have levels of their own

        try:
            return values | {"levels": name, "levels_digest": read_files(name).digest}
        except ConfigError as error:
            raise ValueError(str(error)) from error


class GridEnv(NamedActions, LevelEnv):
    """A puzzle on a grid; a subclass sets ``observation_space`` for the frames of generated levels."""

    config: Any
    """A :class:`GridConfig`."""
    actions: ClassVar[tuple[str, ...]] = ACTIONS

    def __init__(self, config: EnvConfig | None = None, render_mode: str | None = "rgb_array") -> None:
        """Create the environment; call ``reset`` before any other method."""
        super().__init__(config, render_mode)
        self.action_space = spaces.Discrete(self.last_index + 1)
        self._turn = 0
        self._background: Frame = NO_FRAME
        self._inside: list[Frame] = []

    # --- the rules of one puzzle -------------------------------------------------------------------------------------

    @abstractmethod
    def _load(self, text: str) -> None:
        """Load the state of ``text`` and draw ``_background``, or raise LevelError and change nothing."""

    @abstractmethod
    def _move(self, direction: int) -> tuple[bool, float]:
        """Move in a direction (index into :data:`ACTIONS`); return whether the player moved, and the extra reward."""

    @abstractmethod
    def _is_solved(self) -> bool: ...

    @abstractmethod
    def _is_lost(self) -> bool: ...

    # --- levels of one's own -----------------------------------------------------------------------------------------

    @classmethod
    def level_row(cls, line: str) -> str | None:
        """Return the row of a level that a line of a text file holds; None for a line that ends a level."""
        return line if line.strip() else None

    @classmethod
    def own_level(cls, text: str) -> tuple[str, str]:
        """Return the state text of a level that somebody wrote, and the text that equal levels share.

        Raises:
            LevelError: the text is not a level.
        """
        level = cls.canonical_state(text)
        return level, level

    @classmethod
    def collection(cls, config: Any) -> "Collection | None":
        """Return the user's own levels; None for generated ones.

        Raises:
            ConfigError: the files cannot be read, or are not those of the config.
        """
        if not config.levels_digest:
            return None
        from .collections import collection_of, read_files  # noqa: PLC0415 - as above

        files = read_files(config.levels) if config.levels else None
        if files is None or files.digest != config.levels_digest:
            raise ConfigError(
                f"{cls.profile.name}: the levels of {config.levels or 'this store'} are not those of this config "
                f"(levels_digest {config.levels_digest}); restore the files or build a new store"
            )
        return collection_of(files, cls.level_row, cls.own_level)

    @classmethod
    def fixed_tasks(cls, config: Any) -> tuple[Task, ...] | None:
        """Return the tasks of the user's own levels; None for generated ones. See the base class."""
        collection = cls.collection(config)
        if collection is None:
            return None
        same = config.model_copy(update={"levels": "", "levels_digest": ""}).digest()
        return tuple(
            Task(f"{cls.profile.name}-{same}-{own.digest}", int(own.digest[:15], 16), own.text, cls.instruction)
            for own in collection.levels
        )

    @classmethod
    def make_task(cls, config: Any, seed: int) -> Task:
        """Return the user's own level of this seed, else the one at index ``seed`` modulo their number; or draw one."""
        listed = cls.fixed_tasks(config)
        if listed is None:
            return super().make_task(config, seed)
        return next((task for task in listed if task.seed == seed), listed[seed % len(listed)])

    # --- gymnasium ---------------------------------------------------------------------------------------------------

    def _begin(self, text: str) -> Info:
        self._load(text)
        self._start_at(0)
        return {"remaining_turns": self.config.horizon, "success": self._is_solved()}

    def step(self, action: SupportsIndex) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Take one turn.

        Raises:
            ValueError: ``action`` is not in the action space.
            gymnasium.error.ResetNeeded: the episode is over.
        """
        index = self.checked_index(action, ended=self._ended)
        self._inside = []
        moved, extra = self._make_moves(_moves_of(index), shown=self.config.actions_per_turn > 1)
        self._turn += 1
        solved = self._is_solved()
        reward = self.config.step_reward + extra + (self.config.success_reward if solved else 0.0)
        terminated = solved or self._is_lost()
        remaining = self.config.horizon - self._turn
        truncated = not terminated and remaining == 0
        self._ended = terminated or truncated
        return (
            self._frame(),
            reward,
            terminated,
            truncated,
            {"moved": moved, "remaining_turns": remaining, "success": solved},
        )

    # --- PIVOT -------------------------------------------------------------------------------------------------------

    def parse_action(self, answer: str) -> ParsedAction | None:
        """Parse the moves of one turn, separated by commas.

        Among several, an unusable word costs only its own place: the others name the turn, in their order.

        Returns:
            The turn; None without any move, or with more words than a turn may have.
        """
        words = [each.strip() for each in answer.split(",")]
        moves = [word for word in words if word in ACTIONS]
        if len(words) > self.config.actions_per_turn or not moves:
            return None
        return ParsedAction(TURN_SEPARATOR.join(moves))

    def encode_action(self, name: str, payload: str | None = None) -> int:
        """Return the index of a turn; those of one move and the unusable one come first, then all by length."""
        moves = name.split(TURN_SEPARATOR)
        if payload is not None or not 1 < len(moves) <= self.config.actions_per_turn or not set(moves) <= set(ACTIONS):
            return super().encode_action(name, payload)
        index = 0
        for move in moves:
            index = index * len(ACTIONS) + ACTIONS.index(move)
        return _first_index(len(moves)) + index

    def action_name(self, index: int) -> str:
        """Return the name of a turn by its index in ``action_space``."""
        return TURN_SEPARATOR.join(ACTIONS[move] for move in _moves_of(index)) or UNUSABLE

    @property
    def last_index(self) -> int:
        """Largest member of ``action_space``."""
        return _first_index(self.config.actions_per_turn + 1) - 1

    def text_after(self, moves: Sequence[str]) -> str:
        """Return the state text after some moves from here, which are not made."""
        now = self.state_text()
        self._make_moves([ACTIONS.index(move) for move in moves])
        after = self.state_text()
        self._load(now)
        return after

    def frames_inside(self) -> Sequence[Frame]:
        """Return the frames between the moves of the last turn; see the base class."""
        return self._inside

    def _make_moves(self, moves: Sequence[int], *, shown: bool = False) -> tuple[bool, float]:
        """Move until the episode is over; return whether the player ever moved, and the extra reward."""
        moved, extra = False, 0.0
        for made, direction in enumerate(moves):
            if self._is_solved() or self._is_lost():
                break
            if made and shown:
                self._inside.append(self._new_frame())
            changed, reward = self._move(direction)
            moved, extra = moved or changed, extra + reward
        return moved, extra

    def snapshot(self) -> bytes:
        """Return the turn count and the state text."""
        return f"{self._turn}\n{self.state_text()}".encode()

    def restore(self, snapshot: bytes) -> Frame:
        """Restore a snapshot; see the base class.

        Raises:
            LevelError: the bytes are not a snapshot of this environment.
        """
        try:
            turn, _, text = snapshot.decode().partition("\n")
        except UnicodeDecodeError as error:
            raise LevelError(f"not a {self.profile.name} snapshot: {error}") from error
        if not (turn.isascii() and turn.isdigit() and len(turn) <= 4 and int(turn) <= self.config.horizon):
            raise LevelError(
                f"not a {self.profile.name} snapshot: its first line is {turn[:20]!r}, expected the turns "
                f"taken, 0 to {self.config.horizon}"
            )
        self._load(text)
        self._start_at(int(turn))
        return self._frame()

    def _start_at(self, turn: int) -> None:
        if self.observation_space.shape != self._background.shape:
            self.observation_space = spaces.Box(0, 255, self._background.shape, np.uint8)
        self._turn = turn
        self._ended = turn >= self.config.horizon or self._is_solved() or self._is_lost()


@cache
def _first_index(length: int) -> int:
    """Return the index of the first turn of ``length`` moves, two or more, after all shorter ones."""
    return len(ACTIONS) + 1 + sum(len(ACTIONS) ** each for each in range(2, length))


@lru_cache(maxsize=4096)
def _moves_of(index: int) -> tuple[int, ...]:
    """Return the moves of a turn; none of the unusable one."""
    if index <= UNUSABLE_INDEX:
        return (index,) if index < UNUSABLE_INDEX else ()
    length = 2
    while _first_index(length + 1) <= index:
        length += 1
    index -= _first_index(length)
    return tuple(index // len(ACTIONS) ** (length - 1 - place) % len(ACTIONS) for place in range(length))
