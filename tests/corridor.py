"""The corridor of the example package with faults, and a prompt, for tests of rollouts and stores."""

from typing import Any, ClassVar

import numpy as np
from pivot.environments.base import EnvConfig, Frame
from pivot.environments.turns import StudentPrompt
from pivot.tests.external.corridor.pivot_corridor import environment as example


class CorridorConfig(example.CorridorConfig):
    """Settings; ``break_at`` makes the environment fail at that step."""

    horizon: int = 5
    length: int = 6
    break_at: int | None = None
    endless: bool = False


class CorridorEnv(example.CorridorEnv):
    """``A`` walks along ``.``; ``G`` wins, ``o`` loses."""

    config_type: ClassVar[type[EnvConfig]] = CorridorConfig
    config: CorridorConfig  # pyright: ignore[reportIncompatibleVariableOverride] - the settings of a subclass
    made: ClassVar[int] = 0

    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__(config)
        CorridorEnv.made += 1

    def step(self, action: int) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        if self._turn == self.config.break_at:
            raise OSError("the simulator is gone")
        frame, reward, ended, late, info = super().step(action)
        if self.config.endless:
            self._over, late = ended, False
        return (
            frame,
            reward,
            ended,
            late,
            info | {"moved": np.bool_(info["moved"]), "dist": float(("nan", "inf")[self._turn % 2])},
        )


class CorridorPrompt(StudentPrompt):
    """The shortest prompt that depends on all its inputs."""

    template = "student.corridor"
    version = "1"

    def render(self, profile, task, *, t, frame_id, history, observation):
        past = " ".join(f"{entry.step}:{entry.action}" for entry in history[-2:])
        text = f"{task.instruction}; so far {past or 'nothing'}; {observation}"
        return ({"role": "user", "content": [{"type": "text", "text": text}, {"type": "image", "frame_id": frame_id}]},)
