"""Choice of an episode's frames for its collage and panel, and their labels.

Usually the tile of a step is the frame before its action, and the terminal frame is left out. Behind the tile of a turn
of several actions come the frames between them. If every action submits a
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
    places: tuple[int, ...]
    """Index of the tile of each step; other tiles are a target, or inside of a turn."""

    @property
    def steps(self) -> tuple[T, ...]:
        """Tiles of the steps, from which the panel is taken."""
        return tuple(self.frames[place] for place in self.places)


def episode_tiles(kind: TileKind, frames: Sequence[T], inside: Sequence[Sequence[T]] = ()) -> Tiles[T]:
    """Choose the tiles of an episode of T steps.

    Args:
        kind: ``profile.tiles`` of the environment.
        frames: T + 1 frames or frame ids: the frame before each action, then the terminal frame.
        inside: for each step, the frames between the actions of its turn; empty where every turn has one action.
    """
    steps = range(len(frames) - 1)
    labels = tuple(step_label(t) for t in steps)
    if kind == "outcomes":
        return Tiles(tuple(frames), (TARGET_LABEL, *labels), tuple(t + 1 for t in steps))
    if not any(inside):
        return Tiles(tuple(frames[:-1]), labels, tuple(steps))
    tiles: list[tuple[T, str]] = []
    places: list[int] = []
    for t, between in zip(steps, inside, strict=True):
        places.append(len(tiles))
        tiles.append((frames[t], labels[t]))
        tiles += [(frame, f"{labels[t]}.{made}") for made, frame in enumerate(between, 1)]
    return Tiles(tuple(frame for frame, _ in tiles), tuple(label for _, label in tiles), tuple(places))
