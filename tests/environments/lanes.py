"""A lane of five cells, and lanes with one fault each, as a user's package registers environments."""

import sys
import threading
from typing import Any

import gymnasium
import numpy as np


class Lane(gymnasium.Env[Any, Any]):
    """The goal is cell 4; stepping left of cell 0 ends the episode. The seed chooses among cells 0 to 2."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - of the base class

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Discrete(3)
        self.observation_space = gymnasium.spaces.Discrete(5)
        self.cell = 0

    def observation(self) -> Any:
        return self.cell

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = (seed or 0) % 3
        return self.observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.cell += int(action) - 1
        return self.observation(), float(self.cell == 4), self.cell in (-1, 4), False, {}

    def render(self) -> Any:
        picture = np.zeros((8, 40, 3), np.uint8)
        picture[:, 8 * self.cell : 8 * self.cell + 8] = 255
        return picture


class GoesOn(Lane):
    """A lane that reports success in cell 3 and never ends."""

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.cell = min(max(self.cell + int(action) - 1, 0), 4)
        return self.observation(), 0.0, False, False, {"success": self.cell == 3}


class Logging(Lane):
    """Every step adds to a list that no reset empties."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.log: list[int] = []

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.log.append(int(action))
        return super().step(action)


class Remembering(Lane):
    """Keeps all steps of an episode, and never ends without success."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps: list[int] = []
        return super().reset(seed=seed)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps.append(int(action))
        self.cell = max(self.cell, 1)
        return super().step(action)


class ManyActions(Lane):
    """Has more actions than a search can try."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = gymnasium.spaces.Discrete(65)


class Locked(Lane):
    """A lane with attributes that can be neither copied nor read; its observation shows the full state."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.lock = threading.Lock()
        self.numbers = (number for number in range(3))

    def observation(self) -> Any:
        return {"cell": np.array([self.cell]), "goal": (4, "east"), "names": np.array(["a", None], object)}


class Opaque(Lane):
    """A lane whose observation is an object that cannot be turned into a state key."""

    def observation(self) -> Any:
        return {"cell": self}


class Hidden(Lane):
    """A lane in which no action has an effect after six steps, which no attribute counts."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        steps = [0]

        def count() -> int:
            steps[0] += 1
            return steps[0]

        self.count = count
        return super().reset(seed=seed)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return super().step(action if self.count() < 7 else 1)


class NoNumber(Lane):
    """Every reward is not a number."""

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, *rest = super().step(action)
        return (observation, float("nan"), *rest)  # pyright: ignore[reportReturnType]


class Exits(Lane):
    """A lane whose ``reset`` calls ``sys.exit``."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        sys.exit(3)


class SomeSeeds(Lane):
    """Has no level for one of three seeds."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed and seed % 3 == 2:
            raise RuntimeError("no level of this seed\nsecond line")
        return super().reset(seed=seed)


class NoPicture(Lane):
    """Draws nothing."""

    def render(self) -> Any:
        return None


class BrokenPicture(Lane):
    """Cannot draw."""

    def render(self) -> Any:
        raise OSError("no display\nsecond line")


class Continuous(Lane):
    """Has an action for every real number."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = gymnasium.spaces.Box(0, 1, (1,))


for _kind in Lane.__subclasses__():
    gymnasium.register(f"Lane{_kind.__name__}-v0", entry_point=f"{__name__}:{_kind.__name__}")
