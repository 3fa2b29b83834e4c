"""Choice of an episode's frames for its collage and panel, and their labels (spec section 5).

Usually the tile of a step is the frame before its action, and the terminal frame is left out. If every action submits a
whole result, the first frame is the target and gets its own tile; the tile of step k is then the frame after it.
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
    """Tiles of one episode: frames, or ids of frames."""

    frames: tuple[T, ...]
    """Tiles of the collage, in order."""
    labels: tuple[str, ...]
    first_step: int
    """Index of the tile of step 0; earlier tiles belong to no step."""

    @property
    def steps(self) -> tuple[T, ...]:
        """Tiles of the steps, from which the panel is taken."""
        return self.frames[self.first_step :]


def episode_tiles(kind: TileKind, frames: Sequence[T]) -> Tiles[T]:
    """Choose the tiles of an episode of T steps.

    Args:
        kind: ``profile.tiles`` of the environment.
        frames: T + 1 frames or frame ids: the frame before each action, then the terminal frame.
    """
    labels = tuple(step_label(t) for t in range(len(frames) - 1))
    if kind == "outcomes":
        return Tiles(tuple(frames), (TARGET_LABEL, *labels), 1)
    return Tiles(tuple(frames[:-1]), labels, 0)
