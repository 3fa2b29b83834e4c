"""Renderer of the embedded tabletop: from a scene to solids, and from solids to a frame.

Both backends have the same cameras (``world.py``). Static objects (robot, cabinet, table) are drawn once per task,
camera and process; a frame starts as a copy of that picture and redraws only the pixels that fingers, objects, tray, or
their shadows can affect. The pixels equal those of a full drawing.
"""

import math
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from ....core.images import Frame
from ...raycast import rgb
from ..tasks import APPLE, CABINET_BOXES, CUBE, DRAWER_BOXES, KINDS, TARGET_RADIUS, TARGETS, Box, Point, Scene, TaskKind
from ..world import Camera
from .arm import FINGERS_OPEN, arm, fingers
from .kernel import draw, find_shade, mark
from .solids import Solid, array_of, ball, box, cylinder

CUBE_COLOURS = {"red cube": "#ea3034", "green cube": "#2fb552", "purple cube": "#9a48d6"}
TARGET_COLOURS = {"left target": "#d9605c", "right target": "#5fb86a"}
"""Colours of the targets, paler than the cubes that belong on them."""
APPLE_COLOUR = "#e0242e"
_APPLE_GLOSS = 0.5
_STALK, _LEAF = "#5a3d22", "#3f9a3a"
_CABINET, _TRAY, _FRONT, _METAL = "#7d5b41", "#dcc39c", "#a5764c", "#cfd4d9"
_HANDLE_HALF, _HANDLE_DEEP = 45.0, 12.0


def draw_scene(kind: TaskKind, scene: Scene, camera: Camera) -> Frame:
    """Return the camera's picture, uint8 (side, side, 3), RGB."""
    return draw_parts(kind, scene, camera)[0]


def draw_parts(kind: TaskKind, scene: Scene, camera: Camera) -> tuple[Frame, NDArray[np.int16]]:
    """Return the frame, and the index of the solid at the centre of each pixel.

    Indices count :func:`fixed_solids`, then :func:`moving_solids`; -1 is the table, -2 the wall behind it.
    """
    below = _background(kind.name, camera) if scene.opening is None else _with_drawer(kind.name, scene.opening, camera)
    layer = _drawn(kind, camera, below, [*_things(scene), *_fingers(kind, scene)])
    return layer.frame, layer.keys >> 3


def draw_whole(kind: TaskKind, scene: Scene, camera: Camera) -> Frame:
    """Return the frame with every pixel redrawn; slow, used to test :func:`draw_scene`."""
    return _drawn(kind, camera, None, [*fixed_solids(kind), *moving_solids(kind, scene)]).frame


def fixed_solids(kind: TaskKind) -> list[Solid]:
    """Return the solids that are equal in every frame of the task."""
    cabinet = [_box(limits, _CABINET) for limits in CABINET_BOXES] if kind.name == "drawer" else []
    return [*cabinet, *arm(kind.home)]


def moving_solids(kind: TaskKind, scene: Scene) -> list[Solid]:
    """Return the solids that differ between frames: tray, objects, and the fingers, which touch the held object."""
    drawer = [] if scene.opening is None else _drawer(scene.opening)
    return [*drawer, *_things(scene), *_fingers(kind, scene)]


@dataclass(frozen=True, slots=True)
class _Layer:
    """A picture of some solids, onto which others can be drawn."""

    solids: list[Solid]
    frame: Frame
    depths: NDArray[np.float64]
    keys: NDArray[np.int16]
    shade: NDArray[np.int32]
    """Points of the lamp that are known to be hidden from the centre of each pixel, one bit each."""


def _drawn(kind: TaskKind, camera: Camera, below: _Layer | None, solids: list[Solid]) -> _Layer:
    """Draw further solids onto a layer where they can affect pixels; without a layer, draw every pixel."""
    side, axes = camera.side, _axes(camera)
    if below is None:
        frame, depths = np.empty((side, side, 3), np.uint8), np.empty((side, side))
        keys, shade = np.empty((side, side), np.int16), np.zeros((side, side), np.int32)
        layer = _Layer(solids, frame, depths, keys, shade)
        dirty = np.ones((side, side), np.bool_)
    else:
        copies = below.frame.copy(), below.depths.copy(), below.keys.copy()
        layer = _Layer([*below.solids, *solids], *copies, below.shade)
        dirty = np.zeros((side, side), np.bool_)
        mark(array_of(layer.solids), len(below.solids), axes, layer.depths, layer.keys, layer.shade, dirty)
    draw(array_of(layer.solids), _targets(kind), axes, dirty, layer.frame, layer.depths, layer.keys)
    return layer


@cache
def _background(name: str, camera: Camera) -> _Layer:
    """Draw the static objects of a task."""
    layer = _drawn(KINDS[name], camera, None, fixed_solids(KINDS[name]))
    find_shade(array_of(layer.solids), _axes(camera), layer.depths, layer.keys, layer.shade)
    return layer


@lru_cache(maxsize=8)
def _with_drawer(name: str, opening: float, camera: Camera) -> _Layer:
    """Draw the drawer onto the static objects; cached, because it often does not move for many frames."""
    below = _background(name, camera)
    layer = _drawn(KINDS[name], camera, below, _drawer(opening))
    same = (layer.keys == below.keys) & (layer.depths == below.depths)
    return replace(layer, shade=below.shade * same)


def _things(scene: Scene) -> list[Solid]:
    solids: list[Solid] = []
    for name, centre in scene.positions.items():
        solids += _apple(centre) if name == "apple" else [_cube(name, centre)]
    return solids


def _fingers(kind: TaskKind, scene: Scene) -> list[Solid]:
    """Return the fingers, open or around the held object."""
    return fingers(kind.home, FINGERS_OPEN if scene.in_hand is None else APPLE if scene.in_hand == "apple" else CUBE)


def _targets(kind: TaskKind) -> NDArray[np.float64]:
    """Return centre, radius and colour of the targets, float64 (m, 6)."""
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
    """Return tray, front and a flat handle, which is only visual."""
    *tray, front = (((x0, y0 + opening, z0), (x1, y1 + opening, z1)) for (x0, y0, z0), (x1, y1, z1) in DRAWER_BOXES)
    (x0, _, z0), (x1, y1, z1) = front
    middle, height = (x0 + x1) / 2, (z0 + z1) / 2
    handle = ((middle - _HANDLE_HALF, y1, height - 6), (middle + _HANDLE_HALF, y1 + _HANDLE_DEEP, height + 6))
    return [*(_box(limits, _TRAY) for limits in tray), _box(front, _FRONT), _box(handle, _METAL)]


def _box(limits: Box, colour: str) -> Solid:
    (x0, y0, z0), (x1, y1, z1) = limits
    centre = ((x0 + x1) / 2, (y0 + y1) / 2, (z0 + z1) / 2)
    return box(centre, ((x1 - x0) / 2, (y1 - y0) / 2, (z1 - z0) / 2), colour)


@cache
def _axes(camera: Camera) -> NDArray[np.float64]:
    """Return eye, right, up and forward, float64 (4, 3); the length of the last is the zoom.

    Uses plain arithmetic, because a library's matrix product may round differently on different machines.
    """
    dx, dy, dz = (at - eye for at, eye in zip(camera.looked_at, camera.eye, strict=True))
    level, length = math.sqrt(dx * dx + dy * dy), math.sqrt(dx * dx + dy * dy + dz * dz)
    ahead = (dx / length, dy / length, dz / length)
    right = (dy / level, -dx / level, 0.0)
    up = (-ahead[2] * dx / level, -ahead[2] * dy / level, level / length)
    return np.array([camera.eye, right, up, [camera.zoom * each for each in ahead]])
