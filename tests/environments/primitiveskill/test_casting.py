"""The ray caster of the tabletop against a second one in NumPy: what each pixel shows, how much lamp the table sees.

The second one intersects all rays with all solids, without rectangles, balls around solids, or anything else that
saves time.
"""

import numpy as np
import pytest
from numpy.typing import NDArray
from pivot.environments.primitiveskill.tasks import KINDS, Scene
from pivot.environments.primitiveskill.view import kernel, picture
from pivot.environments.primitiveskill.view.picture import draw_parts, fixed_solids, moving_solids
from pivot.environments.primitiveskill.view.solids import Solid
from pivot.environments.primitiveskill.world import CAMERAS, FAR, Camera, CameraName

Numbers = NDArray[np.float64]
SCENES = {
    "align": Scene({"red cube": (120.0, -60.0, 20.0), "green cube": (-150.0, 0.0, 346.0)}, "green cube", None),
    "place": Scene({"red cube": (82.0, -95.0, 20.0), "green cube": (60.0, -95.0, 20.0)}, None, None),
    "stack": Scene(
        {"red cube": (12.0, 30.0, 60.0), "green cube": (10.0, 30.0, 20.0), "purple cube": (8.0, 33.0, 99.0)}, None, None
    ),
    "drawer": Scene({"apple": (-290.0, -150.0, 115.0)}, None, 210.0),
}


def enters(solid: Solid, origins: Numbers, directions: Numbers) -> Numbers:
    """Depths, in lengths of the directions, at which rays enter a solid from outside; infinite where they do not."""
    axes = np.array(solid[kernel.AXES : kernel.AXES + 9]).reshape(3, 3).T
    o = np.linalg.solve(axes, (origins - np.array(solid[kernel.CENTRE : kernel.CENTRE + 3])).T).T
    d = np.linalg.solve(axes, directions.T).T
    with np.errstate(divide="ignore", invalid="ignore"):
        slabs = np.sort(np.stack([(-1 - o) / d, (1 - o) / d]), axis=0)
        if solid[kernel.KIND] == kernel.BOX:
            low, high = slabs[0].max(1), slabs[1].min(1)
        else:
            across = slice(0, 3 if solid[kernel.KIND] == kernel.ELLIPSOID else 2)
            a, b = (d[:, across] ** 2).sum(1), (o[:, across] * d[:, across]).sum(1)
            root = np.sqrt(b * b - a * ((o[:, across] ** 2).sum(1) - 1))
            low, high = (-b - root) / a, (-b + root) / a
            if solid[kernel.KIND] == kernel.CYLINDER:
                low, high = np.maximum(low, slabs[0, :, 2]), np.minimum(high, slabs[1, :, 2])
        return np.where((low <= high) & (low > 0), low, np.inf)


def rays(camera: Camera) -> Numbers:
    """Directions of the middles of all pixels, (side * side, 3)."""
    ahead = np.array(camera.looked_at) - camera.eye
    ahead /= np.linalg.norm(ahead)
    right = np.cross(ahead, (0, 0, 1))
    right /= np.linalg.norm(right)
    up = np.cross(right, ahead)
    at = (2 * (np.arange(camera.side) + 0.5) / camera.side - 1) * np.tan(camera.field_of_view / 2)
    return (ahead + at[None, :, None] * right - at[:, None, None] * up).reshape(-1, 3)


@pytest.mark.parametrize("task", list(KINDS))
@pytest.mark.parametrize("name", ["near", "far"])
def test_each_pixel_shows_what_the_second_caster_finds(name: CameraName, task: str) -> None:
    kind, scene, camera = KINDS[task], SCENES[task], CAMERAS[name][task]
    directions, eye = rays(camera), np.array([camera.eye])
    solids = [*fixed_solids(kind), *moving_solids(kind, scene)]
    with np.errstate(divide="ignore"):
        table = np.where(directions[:, 2] < 0, -camera.eye[2] / directions[:, 2], np.inf)
    points = eye + np.where(np.isfinite(table), table, 0)[:, None] * directions
    on_it = (points[:, 0] > kernel.TABLE_X[0]) & (points[:, 0] < kernel.TABLE_X[1])
    on_it &= (points[:, 1] > kernel.TABLE_Y[0]) & (points[:, 1] < kernel.TABLE_Y[1]) & np.isfinite(table)
    depths = np.stack([np.full(len(table), 1e12), np.where(on_it, table, np.inf)])
    depths = np.concatenate([depths, [enters(solid, eye, directions) for solid in solids]])
    expected = depths.argmin(0) - 2
    first, second = np.sort(depths, axis=0)[:2]
    actual = draw_parts(kind, scene, camera)[1].reshape(-1)
    differs = actual != expected
    assert not (differs & (second - first > 1e-6)).any()
    assert differs.sum() < 20  # where two solids touch, either may be shown


def empty_table() -> NDArray[np.uint8]:
    """The table in full light: nothing on it, no robot, no targets."""
    side = FAR.side
    frame = np.empty((side, side, 3), np.uint8)
    everywhere, depths, keys = np.ones((side, side), bool), np.empty((side, side)), np.empty((side, side), np.int16)
    kernel.draw(np.empty((0, kernel.COLUMNS)), np.empty((0, 6)), picture._axes(FAR), everywhere, frame, depths, keys)
    return frame


@pytest.mark.parametrize("task", ["align", "stack", "drawer"])
def test_the_table_is_as_dark_as_the_second_caster_says(task: str) -> None:
    kind, scene = KINDS[task], SCENES[task]
    frame, parts = draw_parts(kind, scene, FAR)
    inner = np.ones((FAR.side, FAR.side), bool)
    for rows in (-1, 0, 1):
        for columns in (-1, 0, 1):
            inner &= np.roll(parts, (rows, columns), (0, 1)) == -1
    inner[[0, -1]] = False
    bare = empty_table()
    difference = bare.astype(int).sum(2) - frame.astype(int).sum(2)
    dark, lit = np.argwhere(inner & (difference > 3)), np.argwhere(inner & (difference == 0))
    chosen = np.concatenate([dark, lit[:: max(1, len(lit) // 400)]])
    directions = rays(FAR).reshape(FAR.side, FAR.side, 3)[chosen[:, 0], chosen[:, 1]]
    points = np.array(FAR.eye) - FAR.eye[2] / directions[:, 2:] * directions
    solids = [*fixed_solids(kind), *moving_solids(kind, scene)]
    seen = np.zeros(len(chosen))
    for a, b in kernel._LAMP:
        aside = kernel._LAMP_RADIUS * (a * np.array(kernel._ACROSS) + b * np.array(kernel._BESIDE))
        towards = np.tile(np.array(kernel._LIGHT) + aside, (len(points), 1))
        seen += np.isinf([enters(solid, points, towards) for solid in solids]).all(0) / len(kernel._LAMP)
    assert ((seen > 0.1) & (seen < 0.9)).sum() > 50  # shadows are soft
    assert (seen == 0).sum() > 50
    # Light of a level surface without the lamp, and light that the whole lamp adds.
    without, lamp = 0.46 + 0.06 + 0.28 * 0.50, 0.42 * kernel._LIGHT[2]
    expected = bare[chosen[:, 0], chosen[:, 1]] * ((without + lamp * seen) / (without + lamp))[:, None]
    assert np.abs(frame[chosen[:, 0], chosen[:, 1]] - expected).max() < 1.1
