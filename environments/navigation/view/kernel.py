"""The compiled ray caster of navigation: which solid each pixel shows, then its colour.

Every solid is cast only inside the rectangle of pixels that its box can cover, against a depth buffer; then each pixel
is shaded once, and pixels on an edge between two faces are cast again four times among the solids around them. All of
it is plain IEEE arithmetic (+ - * / and square roots, in a fixed order, nothing fused or reordered), and patterns come
from hashed integers, so equal rooms give equal pixels on every machine.
"""

import numpy as np

from ....compiled import compiled, forget_stale
from . import surfaces as surfaces_module
from .surfaces import CEILING, FLOOR, WALL, surface_colour

forget_stale(__file__, surfaces_module)

NEAR = 0.02
"""Nothing closer to the eye is drawn, metres along the view."""
FAR = 1e9
HALF_VIEW = 1.1917535925942098
"""Tangent of 50 degrees: half the field of view (spec section 2)."""
BOX, ELLIPSOID, ROUND = 0, 1, 2
"""Kinds of solids; a round one is a vertical cylinder whose radius goes evenly from bottom to top."""
SHELL = -1
"""The room itself: floor, ceiling and walls."""
KIND, LOW, HIGH, ENDS, COLOUR, CODE, COLUMNS = 0, 1, 4, 7, 9, 12, 13
"""Columns of the array of solids: kind, lowest and highest corner, radius at either end, colour, surface. One array,
because every array that a compiled function takes costs time at each of its many calls."""
SIZE, SHELL_COLOURS, SHELL_CODES, SHADOW_STEP, SHELL_NUMBERS = 0, 3, 12, 15, 16
"""Places in the array of the room: size, colours and surfaces of floor, wall and ceiling, step of the shadow map."""


@compiled
def _safe(d):
    """Return a component of a direction that can be divided by."""
    if abs(d) < 1e-12:
        return 1e-12
    return d


@compiled
def _cast(solids, solid, ox, oy, oz, dx, dy, dz, ix, iy, iz):  # noqa: PLR0911, PLR0912
    """Return (depth, face) where the ray o + t d first enters a solid; face counts -x +x -y +y -z +z, 6 is round.

    ``ix``, ``iy`` and ``iz`` are the inverses of the direction.
    """
    x0, y0, z0 = solids[solid, LOW], solids[solid, LOW + 1], solids[solid, LOW + 2]
    x1, y1, z1 = solids[solid, HIGH], solids[solid, HIGH + 1], solids[solid, HIGH + 2]
    xa, xb = (x0 - ox) * ix, (x1 - ox) * ix
    ya, yb = (y0 - oy) * iy, (y1 - oy) * iy
    za, zb = (z0 - oz) * iz, (z1 - oz) * iz
    near_x, near_y, near_z = min(xa, xb), min(ya, yb), min(za, zb)
    near = max(near_x, near_y, near_z)
    far = min(max(xa, xb), max(ya, yb), max(za, zb))
    if near > far or far < NEAR:
        return FAR, 0
    kind = solids[solid, KIND]
    if kind == BOX:
        if near < NEAR:
            return FAR, 0
        if near == near_x:
            return near, 0 if dx > 0.0 else 1
        if near == near_y:
            return near, 2 if dy > 0.0 else 3
        return near, 4 if dz > 0.0 else 5
    rx, rz = 0.5 * (x1 - x0), 0.5 * (z1 - z0)
    px, pz, qx, qz = (ox - x0) / rx - 1.0, (oz - z0) / rz - 1.0, dx / rx, dz / rz
    if kind == ELLIPSOID:
        ry = 0.5 * (y1 - y0)
        py, qy = (oy - y0) / ry - 1.0, dy / ry
        a = qx * qx + qy * qy + qz * qz
        b = px * qx + py * qy + pz * qz
        c = px * px + py * py + pz * pz - 1.0
        root = b * b - a * c
        if root <= 0.0:
            return FAR, 0
        t = (-b - np.sqrt(root)) / a
        if t < NEAR:
            return FAR, 0
        return t, 6
    tall = y1 - y0
    py, qy = (oy - y0) / tall, dy / tall
    k0 = solids[solid, ENDS]
    k1 = solids[solid, ENDS + 1] - k0
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
        k = solids[solid, ENDS + end]
        if NEAR <= t < best and x * x + z * z <= k * k:
            best, best_face = t, 2 + end
    return best, best_face


@compiled
def _shell(room, ox, oy, oz, dx, dy, dz, ix, iy, iz):
    """Return (depth, face) where a ray from inside leaves the room."""
    tx = (room[SIZE] - ox) * ix if dx > 0.0 else -ox * ix
    ty = (room[SIZE + 1] - oy) * iy if dy > 0.0 else -oy * iy
    tz = (room[SIZE + 2] - oz) * iz if dz > 0.0 else -oz * iz
    if tx < ty and tx < tz:
        return tx, 1 if dx > 0.0 else 0
    if ty < tz:
        return ty, 3 if dy > 0.0 else 2
    return tz, 5 if dz > 0.0 else 4


@compiled
def _bounds(solids, solid, camera, side):
    """Return the pixel rectangle (left, top, right, bottom; ends excluded) that a box can cover; empty if none."""
    xs, ys, zs = np.empty(8), np.empty(8), np.empty(8)
    any_front = False
    for corner in range(8):
        x = solids[solid, (HIGH if corner & 1 else LOW)] - camera[0, 0]
        y = solids[solid, (HIGH if corner & 2 else LOW) + 1] - camera[0, 1]
        z = solids[solid, (HIGH if corner & 4 else LOW) + 2] - camera[0, 2]
        xs[corner] = x * camera[1, 0] + y * camera[1, 1] + z * camera[1, 2]
        ys[corner] = x * camera[2, 0] + y * camera[2, 1] + z * camera[2, 2]
        zs[corner] = x * camera[3, 0] + y * camera[3, 1] + z * camera[3, 2]
        any_front = any_front or zs[corner] > NEAR
    if not any_front:
        return 0, 0, 0, 0
    u0, u1, v0, v1 = FAR, -FAR, FAR, -FAR
    for corner in range(8):
        if zs[corner] > NEAR:
            u, v = xs[corner] / zs[corner], ys[corner] / zs[corner]
            u0, u1, v0, v1 = min(u0, u), max(u1, u), min(v0, v), max(v1, v)
        for bit in range(3):
            other = corner ^ (1 << bit)
            if other > corner and (zs[corner] > NEAR) != (zs[other] > NEAR):
                k = (NEAR - zs[corner]) / (zs[other] - zs[corner])
                u = (xs[corner] + k * (xs[other] - xs[corner])) / NEAR
                v = (ys[corner] + k * (ys[other] - ys[corner])) / NEAR
                u0, u1, v0, v1 = min(u0, u), max(u1, u), min(v0, v), max(v1, v)
    # One pixel of margin covers rounding and the samples around a pixel's middle.
    half = 0.5 * side
    left = int(max(0.0, np.floor((max(u0, -4.0) / HALF_VIEW + 1.0) * half) - 1.0))
    end_x = int(min(float(side), np.ceil((min(u1, 4.0) / HALF_VIEW + 1.0) * half) + 1.0))
    top = int(max(0.0, np.floor((1.0 - min(v1, 4.0) / HALF_VIEW) * half) - 1.0))
    end_y = int(min(float(side), np.ceil((1.0 - max(v0, -4.0) / HALF_VIEW) * half) + 1.0))
    return left, top, end_x, end_y


@compiled
def _colour(solids, room, shadow, solid, face, t, ox, oy, oz, dx, dy, dz):  # noqa: PLR0912, PLR0915
    """Return the lit colour (red, green, blue, 0 to 255) of the point at depth t on a face."""
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
            # How much stands around here: a soft shadow, read between the four nearest points of its map.
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
    # One light from above and behind a shoulder, one weak one from the other side, and what the room scatters.
    key = 0.36 * nx + 0.80 * ny - 0.48 * nz
    fill = -0.60 * nx + 0.28 * ny + 0.75 * nz
    light = 0.76 + 0.21 * max(0.0, key) + 0.14 * max(0.0, fill) + 0.05 * ny
    light *= (1.0 - min(dark, 0.7)) * (1.0 - 0.018 * min(t, 12.0))
    return red * light, green * light, blue * light


@compiled
def _cover(solids, room, camera, depths, keys):
    """Fill ``depths`` and ``keys`` (8 times the index of the nearest solid, plus its face) for every pixel's middle."""
    side = depths.shape[0]
    pixel = 2.0 * HALF_VIEW / side
    ox, oy, oz = camera[0, 0], camera[0, 1], camera[0, 2]
    rx, ry, rz = camera[1, 0], camera[1, 1], camera[1, 2]
    for row in range(side):
        v = HALF_VIEW - (row + 0.5) * pixel
        bx, by, bz = camera[3, 0] + v * camera[2, 0], camera[3, 1] + v * camera[2, 1], camera[3, 2] + v * camera[2, 2]
        for column in range(side):
            u = (column + 0.5) * pixel - HALF_VIEW
            dx, dy, dz = _safe(bx + u * rx), _safe(by + u * ry), _safe(bz + u * rz)
            t, face = _shell(room, ox, oy, oz, dx, dy, dz, 1.0 / dx, 1.0 / dy, 1.0 / dz)
            depths[row, column] = t
            keys[row, column] = 8 * SHELL + face
    for solid in range(len(solids)):
        left, top, end_x, end_y = _bounds(solids, solid, camera, side)
        for row in range(top, end_y):
            v = HALF_VIEW - (row + 0.5) * pixel
            bx = camera[3, 0] + v * camera[2, 0]
            by = camera[3, 1] + v * camera[2, 1]
            bz = camera[3, 2] + v * camera[2, 2]
            for column in range(left, end_x):
                u = (column + 0.5) * pixel - HALF_VIEW
                dx, dy, dz = _safe(bx + u * rx), _safe(by + u * ry), _safe(bz + u * rz)
                t, face = _cast(solids, solid, ox, oy, oz, dx, dy, dz, 1.0 / dx, 1.0 / dy, 1.0 / dz)
                if t < depths[row, column]:
                    depths[row, column] = t
                    keys[row, column] = 8 * solid + face


@compiled
def _neighbours(keys, row, column, around):
    """Write the solids of a pixel and its eight neighbours into ``around``; return how many there are."""
    found = 0
    side = keys.shape[0]
    for y in range(max(0, row - 1), min(side, row + 2)):
        for x in range(max(0, column - 1), min(side, column + 2)):
            other = keys[y, x] >> 3
            known = other == SHELL
            for index in range(found):
                known = known or around[index] == other
            if not known:
                around[found] = other
                found += 1
    return found


@compiled
def draw(solids, room, shadow, camera, frame, depths, keys):
    """Draw one frame.

    Args:
        solids: float64 (n, COLUMNS), see :data:`COLUMNS`.
        room: float64 (SHELL_NUMBERS,), see :data:`SHELL_NUMBERS`.
        shadow: float64 (i, j), how dark the floor is.
        camera: float64 (4, 3): position in metres, and the unit vectors right, up and ahead.
        frame: uint8 (side, side, 3), filled with RGB.
        depths: float64 (side, side), working memory.
        keys: int32 (side, side), filled with 8 times the index of the solid each pixel shows (-1 for the room itself)
            plus the number of its face.
    """
    _cover(solids, room, camera, depths, keys)
    side = frame.shape[0]
    pixel = 2.0 * HALF_VIEW / side
    ox, oy, oz = camera[0, 0], camera[0, 1], camera[0, 2]
    rx, ry, rz = camera[1, 0], camera[1, 1], camera[1, 2]
    around = np.empty(9, np.int64)
    last = side - 1
    for row in range(side):
        for column in range(side):
            key = keys[row, column]
            inner = (
                key == keys[row, max(0, column - 1)]
                and key == keys[row, min(last, column + 1)]
                and key == keys[max(0, row - 1), column]
                and key == keys[min(last, row + 1), column]
            )
            samples, found = 1, 0
            if not inner:
                samples, found = 4, _neighbours(keys, row, column, around)
            red = green = blue = 0.0
            for sample in range(samples):
                a = b = 0.5
                if not inner:  # a turned square of samples, so that neither rows nor columns repeat
                    a, b = (0.375, 0.875, 0.125, 0.625)[sample], (0.125, 0.375, 0.625, 0.875)[sample]
                u, v = (column + a) * pixel - HALF_VIEW, HALF_VIEW - (row + b) * pixel
                dx = _safe(camera[3, 0] + v * camera[2, 0] + u * rx)
                dy = _safe(camera[3, 1] + v * camera[2, 1] + u * ry)
                dz = _safe(camera[3, 2] + v * camera[2, 2] + u * rz)
                t, solid, face = depths[row, column], key >> 3, key & 7
                if not inner:
                    ix, iy, iz = 1.0 / dx, 1.0 / dy, 1.0 / dz
                    t, face = _shell(room, ox, oy, oz, dx, dy, dz, ix, iy, iz)
                    solid = SHELL
                    for index in range(found):
                        other = around[index]
                        depth, other_face = _cast(solids, other, ox, oy, oz, dx, dy, dz, ix, iy, iz)
                        if depth < t:
                            t, face, solid = depth, other_face, other
                r, g, b = _colour(solids, room, shadow, solid, face, t, ox, oy, oz, dx, dy, dz)
                red, green, blue = red + r, green + g, blue + b
            if not inner:
                red, green, blue = 0.25 * red, 0.25 * green, 0.25 * blue
            frame[row, column, 0] = min(255, int(red + 0.5))
            frame[row, column, 1] = min(255, int(green + 0.5))
            frame[row, column, 2] = min(255, int(blue + 0.5))
