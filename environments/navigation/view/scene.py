"""Renderer of a room: the arrays for the kernel, the camera of a pose, and the frame.

The camera is AI2-THOR's: 0.675 m above the agent's position, a square picture with a field of view of 100 degrees.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ....core.errors import LevelError
from ....core.images import Frame
from ...raycast import rgb
from ..state import Pose, Room, millimetres, parse_room
from .kernel import (
    BOX,
    CODE,
    COLOUR,
    COLUMNS,
    ELLIPSOID,
    ENDS,
    HIGH,
    KIND,
    LOW,
    ROUND,
    SHADOW_STEP,
    SHELL_CODES,
    SHELL_COLOURS,
    SHELL_NUMBERS,
    SIZE,
    draw,
)
from .surfaces import CEILING, CODES, FLOOR, WALL

SIDE = 255
"""Width and height of a frame, pixels."""
EYE = 675
"""Height of the camera above the agent's position, millimetres."""

SHAPES = {
    "box": (BOX, 1.0, 1.0),
    "ellipsoid": (ELLIPSOID, 1.0, 1.0),
    "cylinder": (ROUND, 1.0, 1.0),
    "shade": (ROUND, 1.0, 0.6),
    "bowl": (ROUND, 0.55, 1.0),
    "cone": (ROUND, 1.0, 0.03),
}
"""Kernel's kind, and relative radius at the bottom and at the top, per shape of a part."""

_ROOT = 0.8660254037844386  # sine of 60 degrees
_PITCH = {-30: (_ROOT, -0.5), 0: (1.0, 0.0), 30: (_ROOT, 0.5), 60: (0.5, _ROOT)}  # cosine and sine
_YAW = {0: (1.0, 0.0), 90: (0.0, 1.0), 180: (-1.0, 0.0), 270: (0.0, -1.0)}
_SHADOW_STEP = 0.05  # metres between the points of the shadow map
_SHADOW_REACH = 5  # half width of the blur, points; applied twice
_SHADOW_TOP = 900  # millimetres: parts above this height cast no shadow on the floor


@lru_cache(maxsize=32)
def scene_of(room_json: str) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the kernel's arrays of a room.

    Raises:
        LevelError: the text is not a room, or the room has an unknown shape or surface.
    """
    room = parse_room(room_json)
    parts = [part for item in room.objects for part in item.parts]
    solids = np.zeros((len(parts), COLUMNS))
    for row, part in zip(solids, parts, strict=True):
        if part.shape not in SHAPES:
            raise LevelError(f"the room has a part of shape {part.shape!r}; known: {', '.join(SHAPES)}")
        row[KIND], row[ENDS], row[ENDS + 1] = SHAPES[part.shape]
        row[LOW : LOW + 3], row[HIGH : HIGH + 3] = np.array(part.low) / 1000, np.array(part.high) / 1000
        row[COLOUR : COLOUR + 3], row[CODE] = rgb(part.colour), _code(part.surface)
    shell = np.zeros(SHELL_NUMBERS)
    shell[SIZE : SIZE + 3], shell[SHADOW_STEP] = np.array(room.size) / 1000, _SHADOW_STEP
    for which, finish in ((FLOOR, room.floor), (WALL, room.wall), (CEILING, room.ceiling)):
        at = SHELL_COLOURS + 3 * which
        shell[at : at + 3], shell[SHELL_CODES + which] = rgb(finish.colour), _code(finish.surface)
    return solids, shell, _shadow(room)


def draw_view(room_json: str, pose: Pose) -> tuple[Frame, NDArray[np.int32]]:
    """Draw the agent's view.

    Returns:
        The frame, and the index of the part that each pixel shows, counted over all objects of the room in order;
        -1 for floor, walls and ceiling.
    """
    cos_yaw, sin_yaw = _YAW[int(pose.rotation)]
    cos_pitch, sin_pitch = _PITCH[int(pose.horizon)]
    camera = np.array(
        [
            [pose.x, (millimetres(pose.y) + EYE) / 1000, pose.z],
            [cos_yaw, 0.0, -sin_yaw],
            [sin_yaw * sin_pitch, cos_pitch, cos_yaw * sin_pitch],
            [sin_yaw * cos_pitch, -sin_pitch, cos_yaw * cos_pitch],
        ]
    )
    frame, keys = np.empty((SIDE, SIDE, 3), np.uint8), np.empty((SIDE, SIDE), np.int32)
    draw(*scene_of(room_json), camera, frame, keys)
    return frame, keys >> 3


def _code(surface: str) -> int:
    if surface not in CODES:
        raise LevelError(f"the room has a surface {surface!r}; known: {', '.join(CODES)}")
    return CODES[surface]


def _shadow(room: Room) -> NDArray[np.float64]:
    """Return the darkness of the floor on a grid: the footprints of the parts, box-blurred twice.

    Integer sums are divided once at the end, so the map does not depend on the order of additions.
    """
    across, along = (int(room.size[axis] / 1000 / _SHADOW_STEP) + 3 for axis in (0, 2))
    covered = np.zeros((across, along), np.int64)
    for item in room.objects:
        for part in item.parts:
            if part.low[1] < _SHADOW_TOP and part.high[1] > 30:
                (x0, _, z0), (x1, _, z1) = part.low, part.high
                covered[max(0, -(-x0 // 50)) : max(0, x1 // 50 + 1), max(0, -(-z0 // 50)) : max(0, z1 // 50 + 1)] = 1
    reach = 2 * _SHADOW_REACH + 1
    for _ in range(2):
        for axis in (0, 1):
            padded = np.concatenate([np.take(covered, [0], axis) * 0, covered], axis).cumsum(axis)
            index = np.arange(covered.shape[axis])
            top = np.minimum(index + _SHADOW_REACH + 1, covered.shape[axis])
            covered = np.take(padded, top, axis) - np.take(padded, np.maximum(index - _SHADOW_REACH, 0), axis)
    return covered.astype(np.float64) * (0.5 / reach**4)
