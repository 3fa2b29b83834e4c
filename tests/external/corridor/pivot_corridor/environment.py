"""The environment: one row of cells, ``A`` walks over floor ``.`` to a goal ``G`` and may fall into a pit ``o``.

A state is the row with the agent in it: ``A`` on floor, ``*`` on the goal, ``x`` in a pit.
"""

import json
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from pivot.plugin import EnvConfig, EnvProfile, Frame, LevelError, ParsedAction, PivotEnv, Source, Task, derive_seed
from pydantic import Field

ACTIONS = ("left", "right")
UNUSABLE = "invalid"
LONGEST = 16
CELL = 8
COLOURS = {".": (230, 230, 225), "o": (30, 30, 40), "G": (220, 170, 40), "A": (40, 90, 200)}
_STANDING = {".": "A", "G": "*", "o": "x"}
_UNDER = {symbol: cell for cell, symbol in _STANDING.items()}


class CorridorConfig(EnvConfig):
    """Settings of the corridor."""

    horizon: int = Field(default=6, gt=0, le=1000)
    """Turns."""
    length: int = Field(default=7, ge=4, le=LONGEST)
    """Cells of a generated corridor."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """Nothing in it is made by others, so its datasets stay under the pipeline's licence."""
        return ()


def parse(text: str) -> tuple[str, int]:
    """Return the cells without the agent, and the agent's cell.

    Raises:
        LevelError: the text is not a corridor.
    """
    text = text.rstrip("\n")
    if not 2 <= len(text) <= LONGEST:
        raise LevelError(f"the corridor has {len(text)} cells; 2 to {LONGEST} are read")
    for place, symbol in enumerate(text):
        if symbol not in ".oG" and symbol not in _UNDER:
            raise LevelError(f"unknown symbol {symbol!r} in cell {place}; use only . o G and the agent A * x")
    agents = [place for place, symbol in enumerate(text) if symbol in _UNDER]
    if len(agents) != 1:
        raise LevelError(f"the corridor has {len(agents)} agents; exactly one is needed")
    cells = text[: agents[0]] + _UNDER[text[agents[0]]] + text[agents[0] + 1 :]
    if "G" not in cells:
        raise LevelError("the corridor has no goal; put at least one G in it")
    return cells, agents[0]


class CorridorEnv(PivotEnv):
    """The corridor."""

    config: CorridorConfig
    config_type: ClassVar[type[EnvConfig]] = CorridorConfig
    profile: ClassVar[EnvProfile] = EnvProfile(
        name="corridor",
        version="1",
        backend="embedded",
        answer_tag="action",
        unusable_action=UNUSABLE,
        failure_modes=("timeout", "fell"),
        state_format="corridor",
        log_fields=("moved", "remaining_turns"),
        task_description="Corridor: walk left or right to the goal; falling into a pit ends the episode.",
        default_tasks=12,
    )

    def __init__(self, config: EnvConfig | None = None, render_mode: str | None = "rgb_array") -> None:
        """Create the environment; see the base class."""
        super().__init__(config, render_mode)
        self.action_space = spaces.Discrete(len(ACTIONS) + 1)
        self.observation_space = spaces.Box(0, 255, (CELL, CELL * LONGEST, 3), np.uint8)
        self._cells, self._at, self._turn, self._over = ".G", 0, 0, True

    @classmethod
    def make_task(cls, config: Any, seed: int) -> Task:
        """Put a goal at one end, a pit at the other or none, and the agent in between; every seed gives a level."""
        at = 1 + derive_seed(seed, "agent") % (config.length - 2)
        other = "oo."[derive_seed(seed, "pit") % 3]
        ends = (other, "G") if derive_seed(seed, "goal") % 2 else ("G", other)
        floor = ["."] * (config.length - 2)
        floor[at - 1] = "A"
        level = ends[0] + "".join(floor) + ends[1]
        return Task(f"corridor-{config.digest()}-{seed}", seed, level, "Walk to the goal.")

    @classmethod
    def canonical_state(cls, initial_state: str) -> str:
        """Return the row without line ends."""
        parse(initial_state)
        return initial_state.rstrip("\n")

    def parse_action(self, answer: str) -> ParsedAction | None:
        """Read ``left`` or ``right``."""
        return ParsedAction(answer) if answer in ACTIONS else None

    def encode_action(self, name: str, payload: str | None = None) -> int:
        """Return the number of an action."""
        del payload
        if name not in (*ACTIONS, UNUSABLE):
            raise ValueError(f"unknown action {name!r}; use one of {', '.join(ACTIONS)}, {UNUSABLE}")
        return (*ACTIONS, UNUSABLE).index(name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        """Start a level; see the base class."""
        super().reset(seed=seed)
        text, _ = self.asked_level(seed, options)
        self._cells, self._at = parse(text)
        self._turn, self._over = 0, self._cells[self._at] != "."
        return self.render(), {"moved": False, "remaining_turns": self.config.horizon}

    def step(self, action: int) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Walk one cell, or waste a turn."""
        if self._over:
            raise ResetNeeded("the episode is over; call reset first")
        before = self._at
        self._at = min(max(before + (-1, 1, 0)[action], 0), len(self._cells) - 1)
        self._turn += 1
        here, left = self._cells[self._at], self.config.horizon - self._turn
        ended = here != "."
        self._over = ended or left == 0
        info = {"moved": self._at != before, "remaining_turns": left, "success": here == "G"}
        return self.render(), 9.9 if here == "G" else -0.1, ended, self._over and not ended, info

    def render(self) -> Frame:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Draw squares with integers alone, so that frames are equal on every machine."""
        frame = np.zeros((CELL, CELL * LONGEST, 3), np.uint8)
        for place, cell in enumerate(self._cells):
            frame[:, place * CELL : (place + 1) * CELL] = COLOURS[cell]
        left = self._at * CELL + 2
        frame[2 : CELL - 2, left : left + CELL - 4] = COLOURS["A"]
        frame.flags.writeable = False
        return frame

    def state_text(self) -> str:
        """Return the row with the agent."""
        return self._cells[: self._at] + _STANDING[self._cells[self._at]] + self._cells[self._at + 1 :]

    def frame_key(self) -> str:
        """Return the state; the picture shows nothing else."""
        return self.state_text()

    def snapshot(self) -> bytes:
        """Return row and turn."""
        return json.dumps([self.state_text(), self._turn]).encode()

    def restore(self, snapshot: bytes) -> Frame:
        """Return to a snapshot."""
        text, self._turn = json.loads(snapshot)
        self._cells, self._at = parse(text)
        self._over = self._cells[self._at] != "." or self._turn >= self.config.horizon
        return self.render()
