"""The picture of the embedded tabletop: from a scene to solids, and from these to a frame.

The camera is that of both backends (``world.py``). What never moves (robot, cabinet, table) is drawn once
a task and process; a frame copies that and draws anew where fingers, things, the tray, or their shadows can be seen,
which gives the same pixels as drawing everything.
"""

import math
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from ....images import Frame
from ...raycast import rgb
from ..tasks import APPLE, CABINET_BOXES, CUBE, DRAWER_BOXES, KINDS, TARGET_RADIUS, TARGETS, Box, Point, Scene, TaskKind
from ..world import EYE, LOOKED_AT, SIDE
from .arm import FINGERS_OPEN, arm, fingers
from .kernel import draw, mark
from .solids import Solid, array_of, ball, box, cylinder

CUBE_COLOURS = {"red cube": "#ea3034", "green cube": "#2fb552", "purple cube": "#9a48d6"}
TARGET_COLOURS = {"left target": "#d9605c", "right target": "#5fb86a"}
"""Paler than the cubes that belong there, which stand out from them."""
APPLE_COLOUR = "#e0242e"
_APPLE_GLOSS = 0.5
_STALK, _LEAF = "#5a3d22", "#3f9a3a"
_CABINET, _TRAY, _FRONT, _METAL = "#7d5b41", "#dcc39c", "#a5764c", "#cfd4d9"
_HANDLE_HALF, _HANDLE_DEEP = 45.0, 12.0


def draw_scene(kind: TaskKind, scene: Scene) -> Frame:
    """Return what the camera sees: uint8 (SIDE, SIDE, 3), RGB."""
    return draw_parts(kind, scene)[0]


def draw_parts(kind: TaskKind, scene: Scene) -> tuple[Frame, NDArray[np.int16]]:
    """Return the frame, and which solid the middle of each pixel shows.

    Solids are counted through :func:`fixed_solids`, then :func:`moving_solids`; -1 is the table, -2 the wall behind.
    """
    below = _background(kind.name) if scene.opening is None else _with_drawer(kind.name, scene.opening)
    layer = _drawn(kind, below, [*_things(scene), *_fingers(kind, scene)])
    return layer.frame, layer.keys >> 3


def draw_whole(kind: TaskKind, scene: Scene) -> Frame:
    """Return the same frame with every pixel drawn anew: slow, and what :func:`draw_scene` is held against."""
    return _drawn(kind, None, [*fixed_solids(kind), *moving_solids(kind, scene)]).frame


def fixed_solids(kind: TaskKind) -> list[Solid]:
    """Return what stands the same in every frame of the task."""
    cabinet = [_box(limits, _CABINET) for limits in CABINET_BOXES] if kind.name == "drawer" else []
    return [*cabinet, *arm(kind.home)]


def moving_solids(kind: TaskKind, scene: Scene) -> list[Solid]:
    """Return what differs between frames: tray, things, and the fingers, which touch what they hold."""
    drawer = [] if scene.opening is None else _drawer(scene.opening)
    return [*drawer, *_things(scene), *_fingers(kind, scene)]


@dataclass(frozen=True, slots=True)
class _Layer:
    """A drawing of some solids, on which others can be drawn."""

    solids: list[Solid]
    frame: Frame
    depths: NDArray[np.float64]
    keys: NDArray[np.int16]


def _drawn(kind: TaskKind, below: _Layer | None, solids: list[Solid]) -> _Layer:
    """Draw more solids on a layer, where they can change it; without one, draw every pixel."""
    if below is None:
        frame, depths = np.empty((SIDE, SIDE, 3), np.uint8), np.empty((SIDE, SIDE))
        layer = _Layer(solids, frame, depths, np.empty((SIDE, SIDE), np.int16))
        dirty = np.ones((SIDE, SIDE), np.bool_)
    else:
        layer = _Layer([*below.solids, *solids], below.frame.copy(), below.depths.copy(), below.keys.copy())
        dirty = np.zeros((SIDE, SIDE), np.bool_)
        mark(array_of(layer.solids), len(below.solids), _CAMERA, layer.depths, layer.keys, dirty)
    draw(array_of(layer.solids), _targets(kind), _CAMERA, dirty, layer.frame, layer.depths, layer.keys)
    return layer


@cache
def _background(name: str) -> _Layer:
    """Draw what never moves in a task."""
    return _drawn(KINDS[name], None, fixed_solids(KINDS[name]))


@lru_cache(maxsize=8)
def _with_drawer(name: str, opening: float) -> _Layer:
    """Draw the drawer on what never moves; it often stays as it is for many frames."""
    return _drawn(KINDS[name], _background(name), _drawer(opening))


def _things(scene: Scene) -> list[Solid]:
    solids: list[Solid] = []
    for name, centre in scene.positions.items():
        solids += _apple(centre) if name == "apple" else [_cube(name, centre)]
    return solids


def _fingers(kind: TaskKind, scene: Scene) -> list[Solid]:
    """Return the fingers, open, or around what they hold."""
    return fingers(kind.home, FINGERS_OPEN if scene.held is None else APPLE if scene.held == "apple" else CUBE)


def _targets(kind: TaskKind) -> NDArray[np.float64]:
    """Return middle, radius and colour of the targets, float64 (m, 6)."""
    places = TARGETS.items() if kind.name == "place" else ()
    return np.array([(*at[:2], TARGET_RADIUS, *rgb(TARGET_COLOURS[name])) for name, at in places]).reshape(-1, 6)


def _cube(name: str, centre: Point) -> Solid:
    return box(centre, (CUBE / 2, CUBE / 2, CUBE / 2), CUBE_COLOURS[name])


def _apple(centre: Point) -> list[Solid]:
    x, y, z = centre
    radius = APPLE / 2
    return [
        ball(centre, radius, APPLE_COLOUR, _APPLE_GLOSS),
        cylinder((x, y, z + radius - 4), (x - 3, y + 4, z + radius + 14), 3.0, _STALK),
        box((x + 1, y + 13, z + radius + 8), (5.0, 10.0, 2.0), _LEAF),
    ]


def _drawer(opening: float) -> list[Solid]:
    """Return tray, front and a flat handle; the handle is there to be seen, nothing touches it."""
    *tray, front = (((x0, y0 + opening, z0), (x1, y1 + opening, z1)) for (x0, y0, z0), (x1, y1, z1) in DRAWER_BOXES)
    (x0, _, z0), (x1, y1, z1) = front
    middle, height = (x0 + x1) / 2, (z0 + z1) / 2
    handle = ((middle - _HANDLE_HALF, y1, height - 6), (middle + _HANDLE_HALF, y1 + _HANDLE_DEEP, height + 6))
    return [*(_box(limits, _TRAY) for limits in tray), _box(front, _FRONT), _box(handle, _METAL)]


def _box(limits: Box, colour: str) -> Solid:
    (x0, y0, z0), (x1, y1, z1) = limits
    centre = ((x0 + x1) / 2, (y0 + y1) / 2, (z0 + z1) / 2)
    return box(centre, ((x1 - x0) / 2, (y1 - y0) / 2, (z1 - z0) / 2), colour)


def _camera() -> NDArray[np.float64]:
    """Return eye, right, up and ahead, float64 (4, 3).

    In plain arithmetic: a matrix product of a library may round otherwise on another machine.
    """
    dx, dy, dz = (at - eye for at, eye in zip(LOOKED_AT, EYE, strict=True))
    level, length = math.sqrt(dx * dx + dy * dy), math.sqrt(dx * dx + dy * dy + dz * dz)
    ahead = (dx / length, dy / length, dz / length)
    right = (dy / level, -dx / level, 0.0)
    up = (-ahead[2] * dx / level, -ahead[2] * dy / level, level / length)
    return np.array([EYE, right, up, ahead])


_CAMERA = _camera()

__all__ = ["draw_parts", "draw_scene", "draw_whole", "fixed_solids", "moving_solids"]
