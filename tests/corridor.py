"""A one-line environment for tests of rollouts and labels: walk a corridor to ``G``, avoid ``x``."""

import json
from typing import Any, ClassVar

import gymnasium
import numpy as np
from pivot.core.identity import derive_seed
from pivot.environments.base import EnvConfig, EnvProfile, Frame, ParsedAction, PivotEnv, Task
from pivot.environments.turns import StudentPrompt

MOVES = {"left": -1, "right": 1}


class CorridorConfig(EnvConfig):
    """Settings; ``break_at`` makes the environment fail at that step."""

    horizon: int = 5
    length: int = 6
    break_at: int | None = None
    endless: bool = False


class CorridorEnv(PivotEnv):
    """``A`` walks along ``.``; ``G`` wins, ``x`` loses. Every frame is one row of cells."""

    profile: ClassVar[EnvProfile] = EnvProfile(
        name="corridor",
        version="1",
        backend="embedded",
        answer_tag="action",
        unusable_action="invalid",
        failure_modes=("timeout", "deadlock"),
        state_format="corridor",
        log_fields=("moved", "remaining_turns"),
        task_description="Walk to the goal.",
        default_tasks=4,
    )
    config_type: ClassVar[type[EnvConfig]] = CorridorConfig
    config: CorridorConfig
    made: ClassVar[int] = 0
    renders: ClassVar[int] = 0

    def __init__(self, config: CorridorConfig | None = None) -> None:
        super().__init__(config)
        CorridorEnv.made += 1
        self.action_space = gymnasium.spaces.Discrete(3)
        self._cells, self._at, self._t = "", 0, 0

    @classmethod
    def make_task(cls, config: Any, seed: int) -> Task:
        start = derive_seed(seed, "start") % (config.length - 2) + 1
        hole = derive_seed(seed, "hole") % 2
        cells = ("x" if hole else ".") + "." * (config.length - 2) + "G"
        state = cells[:start] + "A" + cells[start + 1 :]
        return Task(f"corridor-{config.digest()}-{state}", seed, state, "reach G")

    @classmethod
    def canonical_state(cls, initial_state: str) -> str:
        return initial_state

    def parse_action(self, answer: str) -> ParsedAction | None:
        return ParsedAction(answer) if answer in MOVES else None

    def encode_action(self, name: str, payload: str | None = None) -> int:
        return ["left", "right", "invalid"].index(name)

    def state_text(self) -> str:
        return self._cells[: self._at] + "A" + self._cells[self._at + 1 :]

    def frame_key(self) -> int:
        return self._at

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        state = (options or {})["state"]
        self._at = state.index("A")
        self._cells = state.replace("A", ".")
        self._t = 0
        return self._frame(), {}

    def step(self, action: int) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        if self._t == self.config.break_at:
            raise OSError("the simulator is gone")
        before = self._at
        self._at = min(max(self._at + (-1, 1, 0)[action], 0), len(self._cells) - 1)
        self._t += 1
        here = self._cells[self._at]
        left = self.config.horizon - self._t
        info = {
            "moved": np.bool_(self._at != before),
            "remaining_turns": left,
            "dist": float("nan"),
            "success": here == "G",
        }
        return (
            self._frame(),
            10.0 if here == "G" else -0.1,
            here in "Gx",
            not self.config.endless and here not in "Gx" and left == 0,
            info,
        )

    def render(self) -> Frame:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._frame()

    def _frame(self) -> Frame:
        CorridorEnv.renders += 1
        frame = np.zeros((4, 4 * len(self._cells), 3), np.uint8)
        frame[:, 4 * self._at : 4 * self._at + 4] = (0, 200, 0)
        return frame

    def snapshot(self) -> bytes:
        return json.dumps([self._cells, self._at, self._t]).encode()

    def restore(self, snapshot: bytes) -> Frame:
        self._cells, self._at, self._t = json.loads(snapshot)
        return self._frame()


class CorridorPrompt(StudentPrompt):
    """The shortest prompt that depends on all its inputs."""

    template = "student.corridor"
    version = "1"

    def render(self, profile, task, *, t, frame_id, history, observation):
        past = " ".join(f"{entry.step}:{entry.action}" for entry in history[-2:])
        text = f"{task.instruction}; so far {past or 'nothing'}; {observation}"
        return ({"role": "user", "content": [{"type": "text", "text": text}, {"type": "image", "frame_id": frame_id}]},)
