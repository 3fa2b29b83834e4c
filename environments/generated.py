"""Environments whose levels a seed draws: the task of a level, the begin of an episode, and its pictures."""

import random
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np

from ..core.errors import GenerationError
from ..core.identity import derive_seed
from .base import NO_FRAME, Frame, Info, PivotEnv, Task


def first_level(
    draw: Callable[[random.Random], str | None], env: str, seed: int, tries: int, advice: str
) -> tuple[int, str]:
    """Return the first seed that gives a level, and the level: ``seed`` itself, then seeds derived from it.

    Because ``seed`` itself comes first, the returned seed gives the same level at the first attempt.

    Raises:
        GenerationError: none of ``tries`` seeds gave a level; the message ends with ``advice``.
    """
    seed = int(seed)
    if seed < 0:
        raise GenerationError(f"{env} seed {seed} is negative; use a seed of 0 or more")
    for attempt in range(tries):
        tried = seed if attempt == 0 else derive_seed(env, "level", seed, attempt)
        level = draw(random.Random(tried))
        if level is not None:
            return tried, level
    raise GenerationError(f"no {env} level for seed {seed} in {tries} tries (max_tries); {advice}")


class TextSpace(gymnasium.Space[str]):
    """Space of any text; a subclass says how one is sampled."""

    def __init__(self, seed: int | None = None) -> None:
        """Create the space."""
        super().__init__((), np.str_, seed)

    def contains(self, x: Any) -> bool:
        """Return whether ``x`` is text."""
        return isinstance(x, str)

    @property
    def is_np_flattenable(self) -> bool:
        """Texts have no fixed size."""
        return False


class LevelEnv(PivotEnv):
    """An environment that draws its levels; a subclass defines a turn."""

    config: Any
    instruction: ClassVar[str] = ""
    """The goal, in one sentence; see also :meth:`instruction_for`."""
    task_instruction: str = ""
    """The goal of the episode, from ``reset`` on."""
    _ended: bool = True

    @classmethod
    @abstractmethod
    def find_level(cls, config: Any, seed: int) -> tuple[int, str]:
        """Return the seed that succeeded and its level text; see :func:`first_level`.

        Raises:
            GenerationError: no attempt gave a level that meets the settings.
        """

    @classmethod
    def instruction_for(cls, level: str) -> str:
        """Return the instruction of a level that comes without one."""
        del level
        return cls.instruction

    @abstractmethod
    def _begin(self, text: str) -> Info:
        """Start an episode in a state and return its ``info``, or raise LevelError and change nothing."""

    @abstractmethod
    def _draw(self) -> Frame:
        """Return a new picture of the current state."""

    @classmethod
    def make_task(cls, config: Any, seed: int) -> Task:
        """Generate the level of ``seed``; see the base class."""
        used, level = cls.find_level(config, seed)
        return Task(f"{cls.profile.name}-{config.digest()}-{used}", used, level, cls.instruction_for(level))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, Info]:
        """Start an episode from ``options["state"]``, or from the level of ``seed`` (sampled if None).

        Raises:
            LevelError: the state text is not a level.
            ConfigError: ``options`` has an unknown key.
            GenerationError: no attempt gave a level.
            SimulatorError: a simulator or sandbox failed.
        """
        super().reset(seed=seed)
        text, instruction = self.asked_level(seed, options)
        info = self._begin(text)
        self.task_instruction = instruction or self.instruction_for(text)
        return self._frame(), info

    def render(self) -> Frame | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the current frame."""
        return self._new_frame() if self.render_mode == "rgb_array" else None

    def _frame(self) -> Frame:
        return self._new_frame() if self.draw_frames else NO_FRAME

    def _new_frame(self) -> Frame:
        """Return a new read-only frame; gymnasium requires a new array per call."""
        frame = self._draw()
        frame.flags.writeable = False
        return frame
