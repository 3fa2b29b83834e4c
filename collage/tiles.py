"""Which of an episode's frames stand in its collage and panel, and under which labels (spec section 5).

Usually a tile is what the agent saw before it acted, and the terminal frame is left out. Where every action submits a
whole result, the first frame is the target and gets a tile of its own; the tile of step k is then the frame after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from .layout import step_label

TileKind = Literal["observations", "outcomes"]
TARGET_LABEL = "target"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tiles(Generic[T]):
    """The tiles of one episode: frames, or the ids of frames."""

    frames: tuple[T, ...]
    """Tiles of the collage, in order."""
    labels: tuple[str, ...]
    first_step: int
    """Index of the tile of step 0: what comes before belongs to no step."""

    @property
    def steps(self) -> tuple[T, ...]:
        """The tile of each step, from which the panel is taken."""
        return self.frames[self.first_step :]


def episode_tiles(kind: TileKind, frames: Sequence[T]) -> Tiles[T]:
    """Choose the tiles of an episode of T steps.

    Args:
        kind: ``profile.tiles`` of the environment.
        frames: T + 1 frames or frame ids: the one before each action, then the terminal one.
    """
    labels = tuple(step_label(t) for t in range(len(frames) - 1))
    if kind == "outcomes":
        return Tiles(tuple(frames), (TARGET_LABEL, *labels), 1)
    return Tiles(tuple(frames[:-1]), labels, 0)
