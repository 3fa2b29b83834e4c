"""Compiled core of the ray casters: find the solid that each pixel shows, then its colour.

Every solid is cast only inside the rectangle of pixels that it can cover, against a depth buffer. Each pixel is then
shaded once; pixels on an edge between two faces are supersampled among the solids around them. Only IEEE arithmetic is
used (+ - * / and square roots, in a fixed order, nothing fused or reordered), so equal scenes give equal pixels on
every machine.

A camera is float64 (4, 3): the eye, the unit vectors right and up, and the forward vector, whose length is the zoom. A
ray consists of six numbers, its origin and its direction; its ``inverse`` is the reciprocal of the direction. A scene
consists of three arrays: ``solids``, one per row; ``ground``, the surfaces behind the solids; and ``extra``, data for
the colours. A key identifies the surface that a pixel shows: 8 times the index of the solid (negative for the ground)
plus the number of the face. Each scene brings four compiled functions:

- ``behind(ground, ray, inverse)`` returns (t, key) where the ray hits the ground;
- ``cast(solids, solid, ray, inverse)`` returns (t, face) where the ray enters a solid, or (FAR, any face);
- ``cover(solids, solid, camera, side)`` returns the rectangle of pixels of a solid, see :func:`window`;
- ``colour(solids, ground, extra, sample, key, t, v, ray)`` returns red, green and blue, 0 to 255 and above, of the
  point at t. ``sample`` counts from 0 in each pixel; ``v`` is the point's height on the picture's plane.

Arrays are separate arguments because reading one from a tuple costs a reference count per pixel.
"""

from functools import partial

import numpy as np

from ..core.compiled import compiled

FAR = 1e9
"""Depth of a ray that hits nothing."""


def rgb(colour: str) -> tuple[float, float, float]:
    """Return red, green and blue, 0 to 255, of a colour #rrggbb."""
    red, green, blue = (float(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
    return red, green, blue


@compiled
def safe(d):
    """Return a component of a direction, replaced by 1e-12 if it is too small to divide by."""
    if abs(d) < 1e-12:
        return 1e-12
    return d


@compiled
def view_of(camera):
    """Return the camera as twelve numbers, which the compiler can keep in registers."""
    eye, right, up, ahead = camera
    return eye[0], eye[1], eye[2], right[0], right[1], right[2], up[0], up[1], up[2], ahead[0], ahead[1], ahead[2]


@compiled
def ray_of(view, u, v):
    """Return the ray from the eye through a point of the image plane."""
    ox, oy, oz, rx, ry, rz, ux, uy, uz, ax, ay, az = view
    return ox, oy, oz, safe(ax + v * ux + u * rx), safe(ay + v * uy + u * ry), safe(az + v * uz + u * rz)


@compiled
def between_planes(xa, xb, ya, yb, za, zb, dx, dy, dz):
    """Return (entry, exit, face) of a box, from the t at which a ray crosses its planes; it misses if entry > exit.

    Faces are numbered -x +x -y +y -z +z.
    """
    near_x, near_y, near_z = min(xa, xb), min(ya, yb), min(za, zb)
    near = max(near_x, near_y, near_z)
    far = min(max(xa, xb), max(ya, yb), max(za, zb))
    if near == near_x:
        return near, far, 0 if dx > 0.0 else 1
    if near == near_y:
        return near, far, 2 if dy > 0.0 else 3
    return near, far, 4 if dz > 0.0 else 5


@compiled
def into_ball(ox, oy, oz, dx, dy, dz):
    """Return the t at which a ray enters the unit ball, or FAR if it misses."""
    a = dx * dx + dy * dy + dz * dz
    b = ox * dx + oy * dy + oz * dz
    c = ox * ox + oy * oy + oz * oz - 1.0
    root = b * b - a * c
    if root <= 0.0:
        return FAR
    return (-b - np.sqrt(root)) / a


@compiled
def window(points, camera, near, half_view, margin, side):
    """Return the pixels (left, top, right, bottom; right and bottom excluded) that the hull of ``points`` can cover.

    Args:
        points: float64 (n, 3).
        camera: float64 (4, 3).
        near: depth of the near plane, divided by the zoom; anything closer is clipped.
        half_view: tangent of half the field of view.
        margin: pixels to add on every side, at least one, for rounding and the samples around a pixel's centre.
        side: side of the picture, pixels.
    """
    count = len(points)
    seen = np.empty((count, 3))
    square = camera[3, 0] * camera[3, 0] + camera[3, 1] * camera[3, 1] + camera[3, 2] * camera[3, 2]
    for point in range(count):
        x, y, z = points[point, 0] - camera[0, 0], points[point, 1] - camera[0, 1], points[point, 2] - camera[0, 2]
        for axis in range(3):
            seen[point, axis] = x * camera[axis + 1, 0] + y * camera[axis + 1, 1] + z * camera[axis + 1, 2]
        seen[point, 2] /= square
    u0, u1, v0, v1 = FAR, -FAR, FAR, -FAR
    for point in range(count):
        x, y, z = seen[point]
        if z > near:
            u0, u1, v0, v1 = min(u0, x / z), max(u1, x / z), min(v0, y / z), max(v1, y / z)
            continue
        for other in range(count):
            if seen[other, 2] > near:
                k = (near - z) / (seen[other, 2] - z)
                u, v = (x + k * (seen[other, 0] - x)) / near, (y + k * (seen[other, 1] - y)) / near
                u0, u1, v0, v1 = min(u0, u), max(u1, u), min(v0, v), max(v1, v)
    half = 0.5 * side
    left = int(np.floor((max(u0 / half_view, -2.0) + 1.0) * half)) - margin
    right = int(np.ceil((min(u1 / half_view, 2.0) + 1.0) * half)) + margin
    top = int(np.floor((1.0 - min(v1 / half_view, 2.0)) * half)) - margin
    bottom = int(np.ceil((1.0 - max(v0 / half_view, -2.0)) * half)) + margin
    return max(0, left), max(0, top), min(side, right), min(side, bottom)


@compiled
def uniform(keys, row, column):
    """Return whether all four neighbours of a pixel show the same surface."""
    key, last = keys[row, column], keys.shape[0] - 1
    return (
        key == keys[row, max(0, column - 1)]
        and key == keys[row, min(last, column + 1)]
        and key == keys[max(0, row - 1), column]
        and key == keys[min(last, row + 1), column]
    )


@compiled
def _neighbours(keys, row, column, around):
    """Write the solids that a pixel and its eight neighbours show into ``around``; return their number."""
    count, side = 0, keys.shape[0]
    for y in range(max(0, row - 1), min(side, row + 2)):
        for x in range(max(0, column - 1), min(side, column + 2)):
            solid = keys[y, x] >> 3
            new = solid >= 0
            for index in range(count):
                new = new and around[index] != solid
            if new:
                around[count] = solid
                count += 1
    return count


# Inlined into the callers, because numba does not cache functions on disk that take functions as arguments.
_inlined = partial(compiled, inline="always")


@_inlined
def _find(behind, cast, cover, solids, ground, camera, half_view, dirty, depths, keys):
    """Fill ``depths`` and ``keys`` for the centre of each dirty pixel."""
    side = dirty.shape[0]
    pixel = 2.0 * half_view / side
    view = view_of(camera)
    for row in range(side):
        v = half_view - (row + 0.5) * pixel
        for column in range(side):
            if dirty[row, column]:
                ray = ray_of(view, (column + 0.5) * pixel - half_view, v)
                depths[row, column], keys[row, column] = behind(ground, ray, _inverse(ray))
    for solid in range(len(solids)):
        left, top, right, bottom = cover(solids, solid, camera, side)
        for row in range(top, bottom):
            v = half_view - (row + 0.5) * pixel
            for column in range(left, right):
                if dirty[row, column]:
                    ray = ray_of(view, (column + 0.5) * pixel - half_view, v)
                    t, face = cast(solids, solid, ray, _inverse(ray))
                    if t < depths[row, column]:
                        depths[row, column], keys[row, column] = t, 8 * solid + face


@_inlined
def draw(behind, cast, cover, colour, solids, ground, extra, camera, half_view, places, dirty, frame, depths, keys):
    """Draw the ``dirty`` pixels; the others must already be correct and stay unchanged.

    Args:
        behind: function of the scene, like the next three; see the module docstring.
        cast: where a ray enters a solid.
        cover: which pixels a solid can cover.
        colour: colour of a surface point.
        solids: array of the scene, like the next two; see the module docstring.
        ground: surfaces behind the solids.
        extra: data for the colours.
        camera: float64 (4, 3).
        half_view: tangent of half the field of view.
        places: x and y of the samples within an edge pixel, 0 to 1 from its left and top; two arrays.
        dirty: bool (side, side).
        frame: written; uint8 (side, side, 3), RGB.
        depths: written; float64 (side, side), depth at each pixel's centre.
        keys: written; int (side, side), surface at each pixel's centre.
    """
    _find(behind, cast, cover, solids, ground, camera, half_view, dirty, depths, keys)
    side = dirty.shape[0]
    pixel = 2.0 * half_view / side
    view = view_of(camera)
    around = np.empty(9, np.int64)
    for row in range(side):
        for column in range(side):
            if not dirty[row, column]:
                continue
            inner = uniform(keys, row, column)
            samples, count = 1, 0
            if not inner:
                samples, count = len(places[0]), _neighbours(keys, row, column, around)
            red = green = blue = 0.0
            for sample in range(samples):
                a = b = 0.5
                if not inner:
                    a, b = places[0][sample], places[1][sample]
                v = half_view - (row + b) * pixel
                ray = ray_of(view, (column + a) * pixel - half_view, v)
                t, key = depths[row, column], np.int64(keys[row, column])
                if not inner:
                    inverse = _inverse(ray)
                    t, key = behind(ground, ray, inverse)
                    for index in range(count):
                        depth, face = cast(solids, around[index], ray, inverse)
                        if depth < t:
                            t, key = depth, 8 * around[index] + face
                r, g, b = colour(solids, ground, extra, sample, key, t, v, ray)
                red, green, blue = red + r, green + g, blue + b
            share = 1.0 / samples
            frame[row, column, 0] = min(255, int(red * share + 0.5))
            frame[row, column, 1] = min(255, int(green * share + 0.5))
            frame[row, column, 2] = min(255, int(blue * share + 0.5))


@compiled
def _inverse(ray):
    return 1.0 / ray[3], 1.0 / ray[4], 1.0 / ray[5]
