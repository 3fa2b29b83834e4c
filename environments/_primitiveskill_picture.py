"""The picture of the embedded tabletop: from a scene to solids, and from these to a frame.

The camera is the contract of both backends (``_primitiveskill_world``). What never moves (robot, cabinet, table) is drawn
once a task and process; a frame copies that and draws anew where fingers, things, the tray, or their shadows can be
seen, which gives the same pixels as drawing everything.
"""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ..images import Frame
from ._primitiveskill_kernel import (
    AXES,
    BOX,
    CENTRE,
    COLOUR,
    COLUMNS,
    CYLINDER,
    ELLIPSOID,
    GLOSS,
    KIND,
    TABLE,
    WALL,
    ZONES,
    draw,
    mark,
)
from ._primitiveskill_tasks import (
    APPLE,
    CABINET_TOP,
    CUBE,
    FINGERS_OPEN,
    HANDLE,
    HOME,
    ROBOT_BASE,
    TARGET_RADIUS,
    TARGETS,
    TRAY_FLOOR,
    TRAY_FRONT,
    TRAY_INSIDE,
    TRAY_RIM,
    TRAY_WALL,
    Point,
    Scene,
    TaskKind,
    tray_centre,
)
from ._primitiveskill_world import EYE, LOOKED_AT, SIDE

CUBE_COLOURS = {"red cube": "#d8282c", "green cube": "#2fa84a", "purple cube": "#8a3fc0"}
_WHITE, _GREY, _DARK = "#eceef0", "#8d949c", "#3c4148"
_CABINET, _CABINET_DARK, _TRAY, _FRONT, _METAL = "#8f6a4a", "#74543a", "#d9b98c", "#a87a50", "#c9ced4"

Solid = tuple[float, ...]
"""A row of the kernel's array."""


def draw_scene(kind: TaskKind, scene: Scene) -> Frame:
    """Return what the camera sees: uint8 (SIDE, SIDE, 3), RGB."""
    return draw_parts(kind, scene)[0]


def draw_parts(kind: TaskKind, scene: Scene) -> tuple[Frame, NDArray[np.int32]]:
    """Return the frame, and which solid the middle of each pixel shows.

    Solids are counted through :func:`fixed_solids` and :func:`moving_solids`; -1 is the table, -2 the wall behind it.
    """
    fixed, background, keys = _background(kind.name)
    frame, keys = background.copy(), keys.copy()
    solids = _array([*fixed, *(solid for _, solid in moving_solids(kind, scene))])
    dirty = np.zeros((SIDE, SIDE), np.bool_)
    mark(solids, len(fixed), _CAMERA, dirty)
    draw(solids, _targets(kind), _CAMERA, dirty, frame, np.empty((SIDE, SIDE)), keys)
    return frame, keys // ZONES + WALL


def draw_whole(kind: TaskKind, scene: Scene) -> Frame:
    """Return the same frame, every pixel drawn anew: slow, and what :func:`draw_scene` is tested against."""
    frame, keys = np.empty((SIDE, SIDE, 3), np.uint8), np.empty((SIDE, SIDE), np.int32)
    solids = _array([*fixed_solids(kind), *(solid for _, solid in moving_solids(kind, scene))])
    draw(solids, _targets(kind), _CAMERA, np.ones((SIDE, SIDE), np.bool_), frame, np.empty((SIDE, SIDE)), keys)
    return frame


@cache
def _background(name: str) -> tuple[tuple[Solid, ...], Frame, NDArray[np.int32]]:
    """Return the solids of a task that never move, their frame, and its keys."""
    kind = KINDS[name]
    fixed = fixed_solids(kind)
    frame, keys = np.empty((SIDE, SIDE, 3), np.uint8), np.empty((SIDE, SIDE), np.int32)
    draw(_array(fixed), _targets(kind), _CAMERA, np.ones((SIDE, SIDE), np.bool_), frame, np.empty((SIDE, SIDE)), keys)
    return fixed, frame, keys
