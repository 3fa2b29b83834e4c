"""Compiled code of the tabletop's renderer: boxes, ellipsoids and cylinders in any orientation, with soft shadows.

A solid is a centre and three perpendicular half axes; rays are cast in the solid's local coordinates, where every solid
has size one. Only pixels marked as dirty are drawn, so static objects are drawn once. Shadows sample sixteen points of
a round lamp. ``raycast.py`` holds the general ray caster.
"""

import numpy as np

from ....core.compiled import compiled, forget_stale
from ... import raycast
from ...raycast import FAR, between_planes, into_ball, ray_of, safe, uniform, view_of, window

forget_stale(__file__, raycast)

NEAR = 10.0
"""Depth of the near plane, millimetres; nothing closer is drawn."""
HALF_VIEW = 0.5463024898437905
"""Tangent of half a radian: half the field of view."""
BOX, ELLIPSOID, CYLINDER = 0, 1, 2
"""Kinds of solids; the third axis of a cylinder is its axis of symmetry."""
KIND, CENTRE, AXES, COLOUR, GLOSS, COLUMNS = 0, 1, 4, 13, 16, 17
"""Columns of the array of solids: kind, centre, three half axes, red green blue (0 to 255), strength of highlights."""
TABLE, WALL = -1, -2
"""Indices of the background surfaces; a face of the table is a painted zone."""
TABLE_X, TABLE_Y = (-735.0, 475.0), (-1210.0, 1210.0)
"""Limits of the table top, which is at z = 0, millimetres."""

_LIGHT = (4.0 / 13.0, -3.0 / 13.0, 12.0 / 13.0)
"""Direction to the lamp; it is high, so that shadows are almost directly below objects."""
_ACROSS, _BESIDE = (0.6, 0.8, 0.0), (-48.0 / 65.0, 36.0 / 65.0, 25.0 / 65.0)
_LAMP_RADIUS = 0.07
"""Angular radius of the lamp seen from the table, radians."""
_LAMP = (
    (0.177, 0.0),
    (-0.226, 0.207),
    (0.035, -0.394),
    (0.285, 0.371),
    (-0.522, -0.092),
    (0.495, -0.315),
    (-0.166, 0.615),
    (-0.316, -0.607),
    (0.685, 0.25),
    (-0.712, 0.294),
    (0.343, -0.734),
    (0.253, 0.809),
    (-0.764, -0.443),
    (0.897, -0.197),
    (-0.547, 0.779),
    (-0.127, -0.976),
)
_PLACES = len(_LAMP)
_DARK = (1 << _PLACES) - 1
"""Bits of a point from which no point of the lamp is visible."""
# Samples of an edge pixel, from its left and from its top.
_EDGE = (
    (0.5625, 0.4375, 0.8125, 0.3125, 0.1875, 0.0625, 0.6875, 0.9375),
    (0.3125, 0.6875, 0.5625, 0.1875, 0.8125, 0.4375, 0.9375, 0.0625),
)
# Further columns while drawing: inverse axes (world to local coordinates), eye in local coordinates, radius of the
# bounding ball, directions to the lamp's points in local coordinates, and their reciprocals.
_INVERSE, _EYE, _RADIUS, _LAMP_X = COLUMNS, COLUMNS + 9, COLUMNS + 12, COLUMNS + 13
_LAMP_Y, _LAMP_Z = _LAMP_X + _PLACES, _LAMP_X + 2 * _PLACES
_OVER_X, _OVER_Y, _OVER_Z, _ASIDE = (_LAMP_X + number * _PLACES for number in (3, 4, 5, 6))
# Of a cylinder: the unit direction across its axis and the direction to the lamp, and its radius.
_ROUND, _WORKED = _ASIDE + 3, _ASIDE + 4
# Working memory: hidden points of the lamp, then key and number of visible points of the pixel's last shadow test.
_LOOKED, _SEEN = _PLACES, _PLACES + 1


@compiled
def _enter(kind, ox, oy, oz, dx, dy, dz, least):  # noqa: PLR0911
    """Return (t, face) where a ray enters the solid of size one at t above ``least``; (FAR, 0) if it misses.

    Face 6 is round.
    """
    if kind == ELLIPSOID:
        t = into_ball(ox, oy, oz, dx, dy, dz)
        return (t, 6) if t > least else (FAR, 0)
    dz = safe(dz)
    za, zb = (-1.0 - oz) / dz, (1.0 - oz) / dz
    if kind == BOX:
        dx, dy = safe(dx), safe(dy)
        near, far, face = between_planes(
            (-1.0 - ox) / dx, (1.0 - ox) / dx, (-1.0 - oy) / dy, (1.0 - oy) / dy, za, zb, dx, dy, dz
        )
        return (near, face) if least < near <= far else (FAR, 0)
    near_z, far = min(za, zb), max(za, zb)
    a = dx * dx + dy * dy
    b = ox * dx + oy * dy
    c = ox * ox + oy * oy - 1.0
    near_round = -FAR
    if a > 1e-18:
        root = b * b - a * c
        if root <= 0.0:
            return FAR, 0
        root = np.sqrt(root)
        near_round, far = (-b - root) / a, min(far, (-b + root) / a)
    elif c > 0.0:
        return FAR, 0
    near = max(near_z, near_round)
    if near > far or near <= least:
        return FAR, 0
    if near == near_round:
        return near, 6
    return near, 4 if dz > 0.0 else 5


@compiled
def _own(solid, x, y, z):
    """Return a direction in the local coordinates of a solid from :func:`_work_out`."""
    w = solid
    return (
        w[_INVERSE + 0] * x + w[_INVERSE + 1] * y + w[_INVERSE + 2] * z,
        w[_INVERSE + 3] * x + w[_INVERSE + 4] * y + w[_INVERSE + 5] * z,
        w[_INVERSE + 6] * x + w[_INVERSE + 7] * y + w[_INVERSE + 8] * z,
    )


@compiled
def _own_place(solid, x, y, z):
    """Return a point in the local coordinates of a solid from :func:`_work_out`."""
    return _own(solid, x - solid[CENTRE], y - solid[CENTRE + 1], z - solid[CENTRE + 2])


@compiled
def _work_out(solids, eye):
    """Return the solids with the further columns for drawing."""
    worked = np.empty((len(solids), _WORKED))
    worked[:, :COLUMNS] = solids
    for solid in worked:
        reach = 0.0
        for axis in range(3):
            at = AXES + 3 * axis
            x, y, z = solid[at], solid[at + 1], solid[at + 2]
            square = x * x + y * y + z * z
            reach += square
            at = _INVERSE + 3 * axis
            solid[at], solid[at + 1], solid[at + 2] = x / square, y / square, z / square
        solid[_EYE], solid[_EYE + 1], solid[_EYE + 2] = _own_place(solid, eye[0], eye[1], eye[2])
        solid[_RADIUS] = np.sqrt(reach)
        for place in range(_PLACES):
            lx, ly, lz = _towards_lamp(place)
            x, y, z = _own(solid, lx, ly, lz)
            solid[_LAMP_X + place], solid[_OVER_X + place] = x, 1.0 / safe(x)
            solid[_LAMP_Y + place], solid[_OVER_Y + place] = y, 1.0 / safe(y)
            solid[_LAMP_Z + place], solid[_OVER_Z + place] = z, 1.0 / safe(z)
        _work_out_aside(solid)
    return worked


@compiled
def _work_out_aside(solid):
    """Set the columns of a cylinder's direction aside; zeros where its axis points to the lamp."""
    x, y, z = solid[AXES + 6], solid[AXES + 7], solid[AXES + 8]
    x, y, z = y * _LIGHT[2] - z * _LIGHT[1], z * _LIGHT[0] - x * _LIGHT[2], x * _LIGHT[1] - y * _LIGHT[0]
    length = np.sqrt(x * x + y * y + z * z)
    scale = 0.0 if length < 1e-6 else 1.0 / length
    solid[_ASIDE], solid[_ASIDE + 1], solid[_ASIDE + 2] = scale * x, scale * y, scale * z
    x, y, z = solid[AXES], solid[AXES + 1], solid[AXES + 2]
    solid[_ROUND] = np.sqrt(x * x + y * y + z * z)


@compiled
def _towards_lamp(place):
    """Return a direction of almost unit length to one of the sampled points of the lamp."""
    a, b = _LAMP_RADIUS * _LAMP[place][0], _LAMP_RADIUS * _LAMP[place][1]
    return (
        _LIGHT[0] + a * _ACROSS[0] + b * _BESIDE[0],
        _LIGHT[1] + a * _ACROSS[1] + b * _BESIDE[1],
        _LIGHT[2] + a * _ACROSS[2] + b * _BESIDE[2],
    )


@compiled
def _corners(solids, solid, with_shadow):
    """Return the corners of a solid's box, and optionally of its shadow on the table, float64 (n, 3)."""
    points, count = np.empty((8 + 8 * _PLACES, 3)), 0
    for corner in range(8):
        x, y, z = solids[solid, CENTRE], solids[solid, CENTRE + 1], solids[solid, CENTRE + 2]
        for axis in range(3):
            sign = 1.0 if corner & (1 << axis) else -1.0
            at = AXES + 3 * axis
            x, y, z = x + sign * solids[solid, at], y + sign * solids[solid, at + 1], z + sign * solids[solid, at + 2]
        points[count, 0], points[count, 1], points[count, 2] = x, y, z
        count += 1
        for place in range(_PLACES if with_shadow and z > 0.0 else 0):
            lx, ly, lz = _towards_lamp(place)
            points[count, 0], points[count, 1], points[count, 2] = x - z * lx / lz, y - z * ly / lz, 0.0
            count += 1
    return points[:count]


@compiled
def _cover(solids, solid, camera, side):
    """Return the pixels that a solid or its edges can affect: a margin of two, one of them for an edge's neighbours."""
    return window(_corners(solids, solid, False), camera, NEAR, HALF_VIEW, 2, side)


@compiled
def mark(solids, first, camera, depths, keys, shade, dirty):
    """Set ``dirty`` where the solids from index ``first`` on, or their shadows, change a picture without them.

    ``depths``, ``keys`` and ``shade`` belong to the picture without them; ``shade`` may have too few bits. A pixel
    depends on the surfaces at the centres of the nine pixels around it, and on the light there.
    """
    side = dirty.shape[0]
    pixel = 2.0 * HALF_VIEW / side
    worked, view, hidden = _work_out(solids, camera[0]), view_of(camera), np.zeros(_PLACES, np.int16)
    for solid in range(first, len(solids)):
        left, top, right, bottom = _cover(solids, solid, camera, side)
        for row in range(top, bottom):
            v = HALF_VIEW - (row + 0.5) * pixel
            for column in range(left, right):
                ray = ray_of(view, (column + 0.5) * pixel - HALF_VIEW, v)
                if _cast(worked, solid, ray, ray)[0] < depths[row, column]:
                    dirty[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2] = True
    for solid in range(first, len(solids)):
        left, top, right, bottom = window(_corners(solids, solid, True), camera, NEAR, HALF_VIEW, 2, side)
        for row in range(top, bottom):
            v = HALF_VIEW - (row + 0.5) * pixel
            for column in range(left, right):
                if dirty[row, column] or keys[row, column] == 8 * WALL:
                    continue
                if not uniform(keys, row, column):  # it shows several surfaces
                    dirty[row, column] = True
                    continue
                ox, oy, oz, dx, dy, dz = ray_of(view, (column + 0.5) * pixel - HALF_VIEW, v)
                t, dark = depths[row, column], shade[row, column]
                dirty[row, column] = dark < _DARK and _shades(
                    worked, solid, ox + t * dx, oy + t * dy, oz + t * dz, dark, hidden
                )


@compiled
def _shades(solids, solid, x, y, z, dark, hidden):
    """Return whether a solid hides a point of the lamp that ``dark`` has no bit of; ``hidden`` is working memory."""
    if not _can_shade(solids, solid, x, y, z):
        return False
    hidden[:] = 0
    _hide(solids[solid], x, y, z, hidden)
    return _bits(hidden) & ~dark != 0


@compiled
def _bits(hidden):
    """Return the hidden points of the lamp as one bit each."""
    bits = 0
    for place in range(_PLACES):
        bits |= int(hidden[place]) << place
    return bits


@compiled
def find_shade(solids, camera, depths, keys, shade):
    """Write into ``shade``, int32, which points of the lamp are hidden from each pixel's centre, one bit each."""
    side = keys.shape[0]
    pixel = 2.0 * HALF_VIEW / side
    worked, view, memory = _work_out(solids, camera[0]), view_of(camera), np.zeros(_PLACES + 2, np.int16)
    for row in range(side):
        v = HALF_VIEW - (row + 0.5) * pixel
        for column in range(side):
            key = keys[row, column]
            if key != 8 * WALL:
                ox, oy, oz, dx, dy, dz = ray_of(view, (column + 0.5) * pixel - HALF_VIEW, v)
                t = depths[row, column]
                _look(worked, key >> 3, ox + t * dx, oy + t * dy, oz + t * dz, memory)
                shade[row, column] = _bits(memory)


@compiled
def _zone(x, y, targets):
    """Return the paint at a point of the table: 0 for none, 1 for a white ring, from 2 on for the targets."""
    for target in range(len(targets)):
        a, b = x - targets[target, 0], y - targets[target, 1]
        part = (a * a + b * b) / (targets[target, 2] * targets[target, 2])
        if part < 1.0:
            return 1 if 0.12 < part < 0.5 else 2 + target
    return 0


@compiled
def _cast(solids, solid, ray, _inverse):
    """Return (t, face) where a ray from the eye enters a solid."""
    w = solids[solid]
    x, y, z = _own(w, ray[3], ray[4], ray[5])
    return _enter(int(w[KIND]), w[_EYE], w[_EYE + 1], w[_EYE + 2], x, y, z, NEAR)


@compiled
def _behind(targets, ray, _inverse):
    """Return (t, key) of the table or the wall behind it."""
    ox, oy, oz, dx, dy, dz = ray
    if dz < 0.0:
        t = -oz / dz
        x, y = ox + t * dx, oy + t * dy
        if TABLE_X[0] < x < TABLE_X[1] and TABLE_Y[0] < y < TABLE_Y[1]:
            return t, 8 * TABLE + _zone(x, y, targets)
    return FAR, 8 * WALL


@compiled
def _look(solids, own, x, y, z, memory):
    """Count in ``memory`` the points of the lamp that are visible; ``own``, the solid of the point, casts no shadow."""
    memory[:_PLACES] = 0
    memory[_SEEN] = _PLACES
    for solid in range(len(solids)):
        if solid != own and _can_shade(solids, solid, x, y, z):
            _hide(solids[solid], x, y, z, memory)
            memory[_SEEN] = _PLACES
            for place in range(_PLACES):
                memory[_SEEN] -= memory[place]
            if memory[_SEEN] == 0:
                return


@compiled
def _can_shade(solids, solid, x, y, z):
    """Return whether a solid may touch the cone from a point to the lamp: its bounding ball does, or its round part."""
    a, b, c = solids[solid, CENTRE] - x, solids[solid, CENTRE + 1] - y, solids[solid, CENTRE + 2] - z
    along = a * _LIGHT[0] + b * _LIGHT[1] + c * _LIGHT[2]
    reach = solids[solid, _RADIUS]
    if along < -reach:
        return False
    wide = 1.1 * _LAMP_RADIUS * max(0.0, along)
    if a * a + b * b + c * c - along * along >= (reach + wide) * (reach + wide):
        return False
    if int(solids[solid, KIND]) != CYLINDER:
        return True
    # No point of a cylinder is farther from its axis than its radius, and the axes are mostly long.
    aside = abs(a * solids[solid, _ASIDE] + b * solids[solid, _ASIDE + 1] + c * solids[solid, _ASIDE + 2])
    return aside < solids[solid, _ROUND] + 1.1 * _LAMP_RADIUS * max(0.0, along + reach)


@compiled
def _hide(solid, x, y, z, hidden):
    """Set ``hidden`` for the points of the lamp that a solid hides from a point."""
    kind = int(solid[KIND])
    ox, oy, oz = _own_place(solid, x, y, z)
    if kind != BOX:
        for place in range(_PLACES):
            lx, ly, lz = solid[_LAMP_X + place], solid[_LAMP_Y + place], solid[_LAMP_Z + place]
            if hidden[place] == 0 and _enter(kind, ox, oy, oz, lx, ly, lz, 0.0)[0] < FAR:
                hidden[place] = 1
        return
    # Most solids are boxes; their code has no branches, so that the compiler vectorises it.
    for place in range(_PLACES):
        ix, iy, iz = solid[_OVER_X + place], solid[_OVER_Y + place], solid[_OVER_Z + place]
        near, far, _ = between_planes(
            (-1.0 - ox) * ix,
            (1.0 - ox) * ix,
            (-1.0 - oy) * iy,
            (1.0 - oy) * iy,
            (-1.0 - oz) * iz,
            (1.0 - oz) * iz,
            ix,
            iy,
            iz,
        )
        hidden[place] |= (near > 0.0) & (near <= far)


@compiled
def _paint(solids, targets, key, y):
    """Return the unlit colour (red, green, blue, 0 to 255) and the strength of highlights at a point."""
    solid = key >> 3
    if solid == TABLE:
        zone = key & 7
        if zone == 1:
            return 242.0, 242.0, 240.0, 0.0
        if zone > 1:
            return targets[zone - 2, 3], targets[zone - 2, 4], targets[zone - 2, 5], 0.0
        board = int((y - TABLE_Y[0]) / 110.0)
        tone = 0.975 + 0.01 * ((7 * board) % 6)
        return 205.0 * tone, 176.0 * tone, 138.0 * tone, 0.0
    return solids[solid, COLOUR], solids[solid, COLOUR + 1], solids[solid, COLOUR + 2], solids[solid, GLOSS]


@compiled
def _normal(solids, key, x, y, z):
    """Return the outward unit normal at a point of a solid or the table."""
    if key >> 3 == TABLE:
        return 0.0, 0.0, 1.0
    solid, face = key >> 3, key & 7
    if face < 6:
        at, sign = _INVERSE + face // 2 * 3, 1.0 if face & 1 else -1.0
        nx, ny, nz = solids[solid, at], solids[solid, at + 1], solids[solid, at + 2]
    else:
        sign = 1.0
        w = solids[solid]
        px, py, pz = _own_place(w, x, y, z)
        if int(w[KIND]) == CYLINDER:
            pz = 0.0
        w = w[_INVERSE:]
        nx = px * w[0] + py * w[3] + pz * w[6]
        ny = px * w[1] + py * w[4] + pz * w[7]
        nz = px * w[2] + py * w[5] + pz * w[8]
    length = sign / np.sqrt(nx * nx + ny * ny + nz * nz)
    return nx * length, ny * length, nz * length


@compiled
def _colour(solids, targets, memory, sample, key, t, v, ray):
    """Return the lit colour (red, green, blue, 0 to 255) of a point."""
    if sample == 0:
        memory[_LOOKED] = 8 * WALL
    if key == 8 * WALL:
        return _wall(v)
    ox, oy, oz, dx, dy, dz = ray
    x, y, z = ox + t * dx, oy + t * dy, oz + t * dz
    nx, ny, nz = _normal(solids, key, x, y, z)
    red, green, blue, gloss = _paint(solids, targets, key, y)
    facing = nx * _LIGHT[0] + ny * _LIGHT[1] + nz * _LIGHT[2]
    # All samples of a pixel on the same face share one shadow test.
    if key != memory[_LOOKED] and facing > 0.0:
        memory[_LOOKED] = key
        _look(solids, key >> 3, x, y, z, memory)
    lit = memory[_SEEN] / _PLACES
    # A weak light from the camera's side casts no shadow, so no visible face is black.
    fill = 0.77 * nx + 0.40 * ny + 0.50 * nz
    light = 0.46 + 0.06 * nz + 0.28 * max(0.0, fill) + 0.42 * lit * max(0.0, facing)
    shine = 0.0
    if gloss > 0.0 and facing > 0.0:
        length = np.sqrt(dx * dx + dy * dy + dz * dz)
        hx, hy, hz = _LIGHT[0] - dx / length, _LIGHT[1] - dy / length, _LIGHT[2] - dz / length
        shine = max(0.0, nx * hx + ny * hy + nz * hz) / np.sqrt(hx * hx + hy * hy + hz * hz)
        for _ in range(5):  # to the power of 32
            shine *= shine
        shine *= 255.0 * gloss * lit
    return min(red * light + shine, 255.0), min(green * light + shine, 255.0), min(blue * light + shine, 255.0)


@compiled
def _wall(v):
    """Return the colour of the wall behind the table, lighter towards the top of the picture."""
    s = min(1.0, max(0.0, 0.5 + v / (2.0 * HALF_VIEW)))
    return 158.0 + 24.0 * s, 172.0 + 22.0 * s, 188.0 + 20.0 * s


@compiled
def draw(solids, targets, camera, dirty, frame, depths, keys):
    """Draw the ``dirty`` pixels.

    Args:
        solids: float64 (n, COLUMNS), see :data:`COLUMNS`.
        targets: float64 (m, 6), centre, radius and colour of each target painted on the table, at most six.
        camera: float64 (4, 3): position in millimetres, and the vectors right, up and forward (length: zoom).
        dirty: bool (side, side); other pixels must already be correct and stay unchanged.
        frame: written; uint8 (side, side, 3), RGB.
        depths: written; float64 (side, side), depth at each pixel's centre.
        keys: written; int16 (side, side), 8 times the index of the solid at each pixel's centre, plus the face.
    """
    solids, memory = _work_out(solids, camera[0]), np.zeros(_PLACES + 2, np.int16)
    raycast.draw(
        _behind, _cast, _cover, _colour, solids, targets, memory, camera, HALF_VIEW, _EDGE, dirty, frame, depths, keys
    )
