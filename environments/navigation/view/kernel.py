"""Compiled code of navigation's renderer: where a ray enters the solids of a room, and the light at that point.

Solids are axis-aligned. Patterns are made of hashed integers. ``raycast.py`` holds the general ray caster.
"""

import numpy as np

from ....core.compiled import compiled, forget_stale
from ... import raycast
from ...raycast import FAR, between_planes, into_ball, window
from . import surfaces as surfaces_module
from .surfaces import CEILING, FLOOR, WALL, surface_colour

forget_stale(__file__, raycast, surfaces_module)

NEAR = 0.02
"""Depth of the near plane, metres; nothing closer is drawn."""
HALF_VIEW = 1.1917535925942098
"""Tangent of 50 degrees: half the field of view."""
BOX, ELLIPSOID, ROUND = 0, 1, 2
"""Kinds of solids; a round one is a vertical cone or cylinder, whose radius is linear in the height."""
SHELL = -1
"""Keys of the room itself: floor, ceiling and walls."""
KIND, LOW, HIGH, ENDS, COLOUR, CODE, COLUMNS = 0, 1, 4, 7, 9, 12, 13
"""Columns of the array of solids: kind, lowest and highest corner, radius at both ends, colour, surface. One array,
because each array argument of a compiled function costs time at every call."""
SIZE, SHELL_COLOURS, SHELL_CODES, SHADOW_STEP, SHELL_NUMBERS = 0, 3, 12, 15, 16
"""Indices in the array of the room: size, colours and surfaces of floor, wall and ceiling, step of the shadow map."""

# Samples of an edge pixel, from its left and from its top: a rotated square, so no two share a row or column.
_EDGE = (0.375, 0.875, 0.125, 0.625), (0.125, 0.375, 0.625, 0.875)


@compiled
def _cast(solids, solid, ray, inverse):
    """Return (t, face) where a ray enters a solid; face 6 is round."""
    (ox, oy, oz, dx, dy, dz), (ix, iy, iz) = ray, inverse
    w = solids[solid]
    x0, y0, z0 = w[LOW] - ox, w[LOW + 1] - oy, w[LOW + 2] - oz
    x1, y1, z1 = w[HIGH] - ox, w[HIGH + 1] - oy, w[HIGH + 2] - oz
    near, far, face = between_planes(x0 * ix, x1 * ix, y0 * iy, y1 * iy, z0 * iz, z1 * iz, dx, dy, dz)
    if near > far or far < NEAR:
        return FAR, 0
    kind = w[KIND]
    if kind == BOX:
        return (near, face) if near >= NEAR else (FAR, 0)
    rx, rz = 0.5 * (w[HIGH] - w[LOW]), 0.5 * (w[HIGH + 2] - w[LOW + 2])
    tall = w[HIGH + 1] - w[LOW + 1]
    px, pz, qx, qz = -x0 / rx - 1.0, -z0 / rz - 1.0, dx / rx, dz / rz
    if kind == ELLIPSOID:
        ry = 0.5 * tall
        t = into_ball(px, -y0 / ry - 1.0, pz, qx, dy / ry, qz)
        return (t, 6) if t >= NEAR else (FAR, 0)
    py, qy = -y0 / tall, dy / tall
    k0 = w[ENDS]
    k1 = w[ENDS + 1] - k0
    # |(x, z)| = k0 + k1 y
    s, g = k0 + k1 * py, k1 * qy
    best, best_face = FAR, 0
    a = qx * qx + qz * qz - g * g
    b = px * qx + pz * qz - s * g
    c = px * px + pz * pz - s * s
    if abs(a) > 1e-12:
        root = b * b - a * c
        if root > 0.0:
            root = np.sqrt(root)
            for sign in range(2):
                t = (-b - root) / a if sign == 0 else (-b + root) / a
                y = py + t * qy
                if NEAR <= t < best and 0.0 <= y <= 1.0 and s + g * t >= 0.0:
                    best, best_face = t, 6
    for end in range(2):
        t = (end - py) / qy
        x, z = px + t * qx, pz + t * qz
        k = w[ENDS + end]
        if NEAR <= t < best and x * x + z * z <= k * k:
            best, best_face = t, 2 + end
    return best, best_face


@compiled
def _shell(room, ray, inverse):
    """Return (t, key) where a ray from inside leaves the room."""
    (ox, oy, oz, dx, dy, dz), (ix, iy, iz) = ray, inverse
    tx = (room[SIZE] - ox) * ix if dx > 0.0 else -ox * ix
    ty = (room[SIZE + 1] - oy) * iy if dy > 0.0 else -oy * iy
    tz = (room[SIZE + 2] - oz) * iz if dz > 0.0 else -oz * iz
    if tx < ty and tx < tz:
        return tx, 8 * SHELL + (1 if dx > 0.0 else 0)
    if ty < tz:
        return ty, 8 * SHELL + (3 if dy > 0.0 else 2)
    return tz, 8 * SHELL + (5 if dz > 0.0 else 4)


@compiled
def _cover(solids, solid, camera, side):
    """Return the rectangle of pixels that a solid's box can cover."""
    corners = np.empty((8, 3))
    for corner in range(8):
        for axis in range(3):
            corners[corner, axis] = solids[solid, (HIGH if corner & (1 << axis) else LOW) + axis]
    return window(corners, camera, NEAR, HALF_VIEW, 1, side)


@compiled
def _colour(solids, room, shadow, _sample, key, t, _v, ray):  # noqa: PLR0912, PLR0915
    """Return the lit colour (red, green, blue) of a point."""
    ox, oy, oz, dx, dy, dz = ray
    solid, face = key >> 3, key & 7
    x, y, z = ox + t * dx, oy + t * dy, oz + t * dz
    nx = ny = nz = 0.0
    if face == 0:
        nx = -1.0
    elif face == 1:
        nx = 1.0
    elif face == 2:
        ny = -1.0
    elif face == 3:
        ny = 1.0
    elif face == 4:
        nz = -1.0
    elif face == 5:
        nz = 1.0
    dark = 0.0
    if solid == SHELL:
        nx, ny, nz = -nx, -ny, -nz
        if face == 2:
            which, u, v, wide, tall = FLOOR, x, z, room[SIZE], room[SIZE + 2]
            # Soft shadow of nearby furniture, interpolated between the four nearest points of the shadow map.
            i, j = x / room[SHADOW_STEP], z / room[SHADOW_STEP]
            i0 = min(max(int(i), 0), shadow.shape[0] - 2)
            j0 = min(max(int(j), 0), shadow.shape[1] - 2)
            i, j = i - i0, j - j0
            dark = (1.0 - i) * ((1.0 - j) * shadow[i0, j0] + j * shadow[i0, j0 + 1]) + i * (
                (1.0 - j) * shadow[i0 + 1, j0] + j * shadow[i0 + 1, j0 + 1]
            )
        elif face == 3:
            which, u, v, wide, tall = CEILING, x, z, room[SIZE], room[SIZE + 2]
        elif face < 2:
            which, u, v, wide, tall = WALL, z, y, room[SIZE + 2], room[SIZE + 1]
        else:
            which, u, v, wide, tall = WALL, x, y, room[SIZE], room[SIZE + 1]
        at = SHELL_COLOURS + 3 * which
        red, green, blue = surface_colour(
            int(room[SHELL_CODES + which]), room[at], room[at + 1], room[at + 2], u, v, wide, tall, face, t
        )
        if which == WALL:
            corner = min(u, wide - u)
            dark = (
                max(0.0, 0.16 - 0.5 * corner) + max(0.0, 0.10 - 0.4 * (room[SIZE + 1] - y)) + max(0.0, 0.12 - 0.4 * y)
            )
            if y < 0.09:  # skirting board
                red, green, blue = 226.0, 222.0, 214.0
                if y > 0.08:
                    red, green, blue = 180.0, 176.0, 170.0
                dark *= 0.5
        elif which == CEILING:
            dark = max(0.0, 0.14 - 0.3 * min(u, wide - u, v, tall - v))
    else:
        x0, y0, z0 = solids[solid, LOW], solids[solid, LOW + 1], solids[solid, LOW + 2]
        x1, y1, z1 = solids[solid, HIGH], solids[solid, HIGH + 1], solids[solid, HIGH + 2]
        seen = face
        if face == 6:
            cx, cz = 0.5 * (x0 + x1), 0.5 * (z0 + z1)
            rx, rz = 0.5 * (x1 - x0), 0.5 * (z1 - z0)
            nx, nz = (x - cx) / (rx * rx), (z - cz) / (rz * rz)
            if solids[solid, KIND] == ELLIPSOID:
                cy, ry = 0.5 * (y0 + y1), 0.5 * (y1 - y0)
                ny = (y - cy) / (ry * ry)
            else:
                tall = y1 - y0
                k0, k1 = solids[solid, ENDS], solids[solid, ENDS + 1]
                ny = (k0 + (k1 - k0) * (y - y0) / tall) * (k0 - k1) / tall
            length = np.sqrt(nx * nx + ny * ny + nz * nz)
            if length > 0.0:
                nx, ny, nz = nx / length, ny / length, nz / length
            if nx * dx + ny * dy + nz * dz > 0.0:  # the inside of a lamp shade or a bowl
                nx, ny, nz = -nx, -ny, -nz
            ax, az = abs(nx), abs(nz)
            seen = (1 if nx > 0.0 else 0) if ax > az else (5 if nz > 0.0 else 4)
        if seen < 2:
            u, v, wide, tall = z - z0, y - y0, z1 - z0, y1 - y0
        elif seen < 4:
            u, v, wide, tall = x - x0, z - z0, x1 - x0, z1 - z0
        else:
            u, v, wide, tall = x - x0, y - y0, x1 - x0, y1 - y0
        red, green, blue = surface_colour(
            int(solids[solid, CODE]),
            solids[solid, COLOUR],
            solids[solid, COLOUR + 1],
            solids[solid, COLOUR + 2],
            u,
            v,
            wide,
            tall,
            seen,
            t,
        )
        if y < 0.25 and ny < 0.5:
            dark = 0.28 * (1.0 - y / 0.25)
    # A light from above and behind the camera, a weak one from the opposite side, and ambient light.
    key = 0.36 * nx + 0.80 * ny - 0.48 * nz
    fill = -0.60 * nx + 0.28 * ny + 0.75 * nz
    light = 0.76 + 0.21 * max(0.0, key) + 0.14 * max(0.0, fill) + 0.05 * ny
    light *= (1.0 - min(dark, 0.7)) * (1.0 - 0.018 * min(t, 12.0))
    return red * light, green * light, blue * light


@compiled
def draw(solids, room, shadow, camera, frame, keys):
    """Draw one frame.

    Args:
        solids: float64 (n, COLUMNS), see :data:`COLUMNS`.
        room: float64 (SHELL_NUMBERS,), see :data:`SHELL_NUMBERS`.
        shadow: float64 (i, j), darkness of the floor.
        camera: float64 (4, 3): position in metres, and the unit vectors right, up and forward.
        frame: written; uint8 (side, side, 3), RGB.
        keys: written; int32 (side, side), 8 times the index of the solid that each pixel shows (-1 for the room
            itself) plus the number of its face.
    """
    dirty, depths = np.ones(keys.shape, np.bool_), np.empty(keys.shape)
    raycast.draw(
        _shell, _cast, _cover, _colour, solids, room, shadow, camera, HALF_VIEW, _EDGE, dirty, frame, depths, keys
    )
