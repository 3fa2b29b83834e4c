"""The compiled ray caster of the tabletop: boxes, ellipsoids and cylinders turned any way, with soft shadows.

A solid is a centre and three half axes at right angles; a ray is cast in the solid's own coordinates, where every solid
has size one. Only pixels that are asked for are drawn, so what never moves is drawn once. A shadow asks sixteen places
of a round lamp, and pixels on an edge are cast again eight times among the solids around them. All of it is plain IEEE
arithmetic (+ - * / and square roots, in a fixed order, nothing fused or reordered), so equal scenes give equal pixels
on every machine.
"""

import numpy as np

from ....compiled import compiled

NEAR = 10.0
"""Nothing closer to the eye is drawn, millimetres."""
FAR = 1e9
HALF_VIEW = 0.5463024898437905
"""Tangent of half a radian: half the field of view (spec section 2)."""
BOX, ELLIPSOID, CYLINDER = 0, 1, 2
"""Kinds of solids; a cylinder stands along its third axis."""
KIND, CENTRE, AXES, COLOUR, GLOSS, COLUMNS = 0, 1, 4, 13, 16, 17
"""Columns of the array of solids: kind, centre, three half axes, red green blue (0 to 255), strength of highlights."""
TABLE, WALL = -1, -2
"""What a pixel shows where it shows no solid."""
ZONES = 8
"""A key is this times (index of a solid - WALL), plus the face, or the painted zone of the table."""
TABLE_X, TABLE_Y = (-735.0, 475.0), (-1210.0, 1210.0)
"""The table top at z = 0."""

_LIGHT = (4.0 / 13.0, -3.0 / 13.0, 12.0 / 13.0)
"""Towards the lamp: high, so that a shadow lies nearly below what throws it."""
_ACROSS, _BESIDE = (0.6, 0.8, 0.0), (-48.0 / 65.0, 36.0 / 65.0, 25.0 / 65.0)
_LAMP_RADIUS = 0.07
"""Of the lamp, seen from the table, radians."""
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
_SAMPLES = 8
_SAMPLES_X = (0.5625, 0.4375, 0.8125, 0.3125, 0.1875, 0.0625, 0.6875, 0.9375)
_SAMPLES_Y = (0.3125, 0.6875, 0.5625, 0.1875, 0.8125, 0.4375, 0.9375, 0.0625)
# Columns of what is worked out for each solid: inverse axes (world to own coordinates), eye in own coordinates, centre
# and radius of a ball around it, directions to the lamp's places in own coordinates, and one over each of these.
_EYE, _BALL, _RADIUS = 9, 12, 15
_LAMP_X, _LAMP_Y, _LAMP_Z = 16, 16 + _PLACES, 16 + 2 * _PLACES
_OVER_X, _OVER_Y, _OVER_Z, _WORKED = 16 + 3 * _PLACES, 16 + 4 * _PLACES, 16 + 5 * _PLACES, 16 + 6 * _PLACES


@compiled
def _safe(d):
    """Return a component of a direction that can be divided by."""
    if abs(d) < 1e-12:
        return 1e-12
    return d


@compiled
def _enter(kind, ox, oy, oz, dx, dy, dz, least):  # noqa: PLR0911
    """Return (t, face) where a ray enters the solid of size one later than ``least``; (FAR, 0) when it does not.

    Faces count -x +x -y +y -z +z of the solid, 6 is round.
    """
    if kind == ELLIPSOID:
        a = dx * dx + dy * dy + dz * dz
        b = ox * dx + oy * dy + oz * dz
        c = ox * ox + oy * oy + oz * oz - 1.0
        root = b * b - a * c
        if root <= 0.0:
            return FAR, 0
        t = (-b - np.sqrt(root)) / a
        return (t, 6) if t > least else (FAR, 0)
    dz = _safe(dz)
    za, zb = (-1.0 - oz) / dz, (1.0 - oz) / dz
    near_z, far = min(za, zb), max(za, zb)
    if kind == BOX:
        dx, dy = _safe(dx), _safe(dy)
        xa, xb = (-1.0 - ox) / dx, (1.0 - ox) / dx
        ya, yb = (-1.0 - oy) / dy, (1.0 - oy) / dy
        near_x, near_y = min(xa, xb), min(ya, yb)
        near = max(near_x, near_y, near_z)
        if near > min(max(xa, xb), max(ya, yb), far) or near <= least:
            return FAR, 0
        if near == near_x:
            return near, 0 if dx > 0.0 else 1
        if near == near_y:
            return near, 2 if dy > 0.0 else 3
        return near, 4 if dz > 0.0 else 5
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
def _own(worked, solid, dx, dy, dz):
    """Return a direction in the solid's own coordinates."""
    w = worked[solid]
    return (
        w[0] * dx + w[1] * dy + w[2] * dz,
        w[3] * dx + w[4] * dy + w[5] * dz,
        w[6] * dx + w[7] * dy + w[8] * dz,
    )


@compiled
def _work_out(solids, eye):
    """Return what casting needs to know of each solid, see the columns above."""
    worked = np.zeros((len(solids), _WORKED))
    for solid in range(len(solids)):
        reach = 0.0
        for axis in range(3):
            at = AXES + 3 * axis
            x, y, z = solids[solid, at], solids[solid, at + 1], solids[solid, at + 2]
            square = x * x + y * y + z * z
            reach += square
            worked[solid, 3 * axis] = x / square
            worked[solid, 3 * axis + 1] = y / square
            worked[solid, 3 * axis + 2] = z / square
        cx, cy, cz = solids[solid, CENTRE], solids[solid, CENTRE + 1], solids[solid, CENTRE + 2]
        x, y, z = _own(worked, solid, eye[0] - cx, eye[1] - cy, eye[2] - cz)
        worked[solid, _EYE], worked[solid, _EYE + 1], worked[solid, _EYE + 2] = x, y, z
        worked[solid, _BALL], worked[solid, _BALL + 1], worked[solid, _BALL + 2] = cx, cy, cz
        worked[solid, _RADIUS] = np.sqrt(reach)
        for place in range(_PLACES):
            lx, ly, lz = _towards_lamp(place)
            x, y, z = _own(worked, solid, lx, ly, lz)
            worked[solid, _LAMP_X + place], worked[solid, _OVER_X + place] = x, 1.0 / _safe(x)
            worked[solid, _LAMP_Y + place], worked[solid, _OVER_Y + place] = y, 1.0 / _safe(y)
            worked[solid, _LAMP_Z + place], worked[solid, _OVER_Z + place] = z, 1.0 / _safe(z)
    return worked


@compiled
def _towards_lamp(place):
    """Return a direction, nearly of length one, towards one of the places of the lamp."""
    a, b = _LAMP_RADIUS * _LAMP[place][0], _LAMP_RADIUS * _LAMP[place][1]
    return (
        _LIGHT[0] + a * _ACROSS[0] + b * _BESIDE[0],
        _LIGHT[1] + a * _ACROSS[1] + b * _BESIDE[1],
        _LIGHT[2] + a * _ACROSS[2] + b * _BESIDE[2],
    )


@compiled
def _widen(bounds, camera, x, y, z):
    """Widen ``bounds`` (least and largest u and v on the picture's plane) by a point; all of it if behind the eye."""
    x, y, z = x - camera[0, 0], y - camera[0, 1], z - camera[0, 2]
    depth = x * camera[3, 0] + y * camera[3, 1] + z * camera[3, 2]
    if depth < NEAR:
        bounds[0], bounds[1], bounds[2], bounds[3] = -FAR, FAR, -FAR, FAR
        return
    u = (x * camera[1, 0] + y * camera[1, 1] + z * camera[1, 2]) / depth
    v = (x * camera[2, 0] + y * camera[2, 1] + z * camera[2, 2]) / depth
    bounds[0], bounds[1] = min(bounds[0], u), max(bounds[1], u)
    bounds[2], bounds[3] = min(bounds[2], v), max(bounds[3], v)


@compiled
def _rectangle(solids, solid, camera, side, with_shadow):
    """Return the pixels (left, top, right, bottom; ends excluded) that a solid, or its shadow too, can touch."""
    bounds = np.array([FAR, -FAR, FAR, -FAR])
    for corner in range(8):
        x, y, z = solids[solid, CENTRE], solids[solid, CENTRE + 1], solids[solid, CENTRE + 2]
        for axis in range(3):
            sign = 1.0 if corner & (1 << axis) else -1.0
            at = AXES + 3 * axis
            x, y, z = x + sign * solids[solid, at], y + sign * solids[solid, at + 1], z + sign * solids[solid, at + 2]
        _widen(bounds, camera, x, y, z)
        if with_shadow and z > 0.0:
            for place in range(_PLACES):
                lx, ly, lz = _towards_lamp(place)
                _widen(bounds, camera, x - z * lx / lz, y - z * ly / lz, 0.0)
    # Two pixels of margin cover rounding and the neighbours of an edge.
    half = 0.5 * side
    left = int(np.floor((max(bounds[0] / HALF_VIEW, -2.0) + 1.0) * half) - 2.0)
    right = int(np.ceil((min(bounds[1] / HALF_VIEW, 2.0) + 1.0) * half) + 2.0)
    top = int(np.floor((1.0 - min(bounds[3] / HALF_VIEW, 2.0)) * half) - 2.0)
    bottom = int(np.ceil((1.0 - max(bounds[2] / HALF_VIEW, -2.0)) * half) + 2.0)
    return max(0, left), max(0, top), min(side, right), min(side, bottom)


@compiled
def mark(solids, first, camera, depths, keys, dirty):
    """Set ``dirty`` where solids from ``first`` on, or their shadows, can change a pixel drawn without them.

    ``depths`` and ``keys`` are those of the drawing without them.
    """
    side = dirty.shape[0]
    pixel = 2.0 * HALF_VIEW / side
    last = side - 1
    worked = _work_out(solids, camera[0])
    for solid in range(first, len(solids)):
        left, top, right, bottom = _rectangle(solids, solid, camera, side, False)
        dirty[top:bottom, left:right] = True
        left, top, right, bottom = _rectangle(solids, solid, camera, side, True)
        for row in range(top, bottom):
            v = HALF_VIEW - (row + 0.5) * pixel
            for column in range(left, right):
                key = keys[row, column]
                if dirty[row, column] or key == 0:
                    continue
                if (
                    key != keys[row, max(0, column - 1)]
                    or key != keys[row, min(last, column + 1)]
                    or key != keys[max(0, row - 1), column]
                    or key != keys[min(last, row + 1), column]
                ):  # it shows several places
                    dirty[row, column] = True
                    continue
                u = (column + 0.5) * pixel - HALF_VIEW
                t = depths[row, column]
                x = camera[0, 0] + t * (camera[3, 0] + v * camera[2, 0] + u * camera[1, 0])
                y = camera[0, 1] + t * (camera[3, 1] + v * camera[2, 1] + u * camera[1, 1])
                z = camera[0, 2] + t * (camera[3, 2] + v * camera[2, 2] + u * camera[1, 2])
                dirty[row, column] = _can_shade(worked, solid, x, y, z)


@compiled
def _zone(x, y, targets):
    """Return what is painted at a point of the table: 0 nothing, 1 a white ring, 2 and on the targets around it."""
    for target in range(len(targets)):
        a, b = x - targets[target, 0], y - targets[target, 1]
        part = (a * a + b * b) / (targets[target, 2] * targets[target, 2])
        if part < 1.0:
            return 1 if 0.12 < part < 0.5 else 2 + target
    return 0


@compiled
def _background(eye, dx, dy, dz, targets):
    """Return (t, key) of the table or the wall behind it."""
    if dz < 0.0:
        t = -eye[2] / dz
        x, y = eye[0] + t * dx, eye[1] + t * dy
        if TABLE_X[0] < x < TABLE_X[1] and TABLE_Y[0] < y < TABLE_Y[1]:
            return t, ZONES * (TABLE - WALL) + _zone(x, y, targets)
    return FAR, 0


@compiled
def _lit(solids, worked, own, x, y, z, hidden):
    """Return how much of the lamp a point sees, 0 to 1; the solid that it lies on hides nothing.

    ``hidden`` is working memory, one byte for each place of the lamp.
    """
    hidden[:] = 0
    for solid in range(len(solids)):
        if solid != own and _can_shade(worked, solid, x, y, z):
            _hide(int(solids[solid, KIND]), worked[solid], x, y, z, hidden)
    seen = _PLACES
    for place in range(_PLACES):
        seen -= hidden[place]
    return seen / _PLACES


@compiled
def _can_shade(worked, solid, x, y, z):
    """Return whether the ball around a solid touches the cone from a point to the lamp."""
    a, b, c = worked[solid, _BALL] - x, worked[solid, _BALL + 1] - y, worked[solid, _BALL + 2] - z
    along = a * _LIGHT[0] + b * _LIGHT[1] + c * _LIGHT[2]
    reach = worked[solid, _RADIUS]
    if along < -reach:
        return False
    reach += 1.1 * _LAMP_RADIUS * max(0.0, along)
    return a * a + b * b + c * c - along * along < reach * reach


@compiled
def _hide(kind, worked, x, y, z, hidden):
    """Set ``hidden`` for the places of the lamp that a solid hides from a point."""
    x, y, z = x - worked[_BALL], y - worked[_BALL + 1], z - worked[_BALL + 2]
    ox = worked[0] * x + worked[1] * y + worked[2] * z
    oy = worked[3] * x + worked[4] * y + worked[5] * z
    oz = worked[6] * x + worked[7] * y + worked[8] * z
    if kind != BOX:
        for place in range(_PLACES):
            lx, ly, lz = worked[_LAMP_X + place], worked[_LAMP_Y + place], worked[_LAMP_Z + place]
            if hidden[place] == 0 and _enter(kind, ox, oy, oz, lx, ly, lz, 0.0)[0] < FAR:
                hidden[place] = 1
        return
    # Most solids are boxes: for them without branches, so that several places are asked at once.
    for place in range(_PLACES):
        ix, iy, iz = worked[_OVER_X + place], worked[_OVER_Y + place], worked[_OVER_Z + place]
        xa, xb = (-1.0 - ox) * ix, (1.0 - ox) * ix
        ya, yb = (-1.0 - oy) * iy, (1.0 - oy) * iy
        za, zb = (-1.0 - oz) * iz, (1.0 - oz) * iz
        near = max(min(xa, xb), min(ya, yb), min(za, zb))
        far = min(max(xa, xb), max(ya, yb), max(za, zb))
        hidden[place] |= (near > 0.0) & (near <= far)


@compiled
def _paint(solids, targets, key, y):
    """Return red, green, blue (0 to 255, before light) and the strength of highlights at a point."""
    solid = key // ZONES + WALL
    if solid == TABLE:
        zone = key % ZONES
        if zone == 1:
            return 242.0, 242.0, 240.0, 0.0
        if zone > 1:
            return targets[zone - 2, 3], targets[zone - 2, 4], targets[zone - 2, 5], 0.0
        board = int((y - TABLE_Y[0]) / 110.0)
        tone = 0.975 + 0.01 * ((7 * board) % 6)
        return 205.0 * tone, 176.0 * tone, 138.0 * tone, 0.0
    return solids[solid, COLOUR], solids[solid, COLOUR + 1], solids[solid, COLOUR + 2], solids[solid, GLOSS]


@compiled
def _normal(solids, worked, key, x, y, z):
    """Return the outward normal of length one at a point of a solid or the table."""
    solid, face = key // ZONES + WALL, key % ZONES
    if solid == TABLE:
        return 0.0, 0.0, 1.0
    if face < 6:
        axis, sign = face // 2, 1.0 if face & 1 else -1.0
        nx, ny, nz = worked[solid, 3 * axis], worked[solid, 3 * axis + 1], worked[solid, 3 * axis + 2]
    else:
        sign = 1.0
        px, py, pz = _own(
            worked, solid, x - worked[solid, _BALL], y - worked[solid, _BALL + 1], z - worked[solid, _BALL + 2]
        )
        if int(solids[solid, KIND]) == CYLINDER:
            pz = 0.0
        w = worked[solid]
        nx = px * w[0] + py * w[3] + pz * w[6]
        ny = px * w[1] + py * w[4] + pz * w[7]
        nz = px * w[2] + py * w[5] + pz * w[8]
    length = sign / np.sqrt(nx * nx + ny * ny + nz * nz)
    return nx * length, ny * length, nz * length


@compiled
def _shade(solids, targets, key, lit, nx, ny, nz, y, dx, dy, dz):
    """Return the colour (red, green, blue, 0 to 255 and above) that a point shows, given how much lamp it sees."""
    red, green, blue, gloss = _paint(solids, targets, key, y)
    facing = nx * _LIGHT[0] + ny * _LIGHT[1] + nz * _LIGHT[2]
    # A weak light from the camera's side throws no shadow, so no face that is seen is black.
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
    return red * light + shine, green * light + shine, blue * light + shine


@compiled
def _wall(v):
    """Return the colour of the wall behind the table, lighter towards the top of the picture."""
    s = min(1.0, max(0.0, 0.5 + v / (2.0 * HALF_VIEW)))
    return 158.0 + 24.0 * s, 172.0 + 22.0 * s, 188.0 + 20.0 * s


@compiled
def _neighbours(keys, row, column, around):
    """Write the solids that a pixel and its eight neighbours show into ``around``; return how many there are."""
    found, side = 0, keys.shape[0]
    for y in range(max(0, row - 1), min(side, row + 2)):
        for x in range(max(0, column - 1), min(side, column + 2)):
            other = keys[y, x] // ZONES + WALL
            known = other < 0
            for index in range(found):
                known = known or around[index] == other
            if not known:
                around[found] = other
                found += 1
    return found


@compiled
def draw(solids, targets, camera, dirty, frame, depths, keys):  # noqa: PLR0912, PLR0915
    """Draw the pixels that are ``dirty``.

    Args:
        solids: float64 (n, COLUMNS), see :data:`COLUMNS`.
        targets: float64 (m, 6), middle, radius and colour of each target painted on the table, six at most.
        camera: float64 (4, 3): position in millimetres, and the unit vectors right, up and ahead.
        dirty: bool (side, side); other pixels of the arrays below stay as they are, and must be right.
        frame: uint8 (side, side, 3), RGB.
        depths: float64 (side, side), working memory.
        keys: int16 (side, side), what each pixel's middle shows, see :data:`ZONES`.
    """
    side = frame.shape[0]
    pixel = 2.0 * HALF_VIEW / side
    eye = camera[0]
    worked = _work_out(solids, eye)
    for row in range(side):
        v = HALF_VIEW - (row + 0.5) * pixel
        for column in range(side):
            if dirty[row, column]:
                u = (column + 0.5) * pixel - HALF_VIEW
                dx = camera[3, 0] + v * camera[2, 0] + u * camera[1, 0]
                dy = camera[3, 1] + v * camera[2, 1] + u * camera[1, 1]
                dz = camera[3, 2] + v * camera[2, 2] + u * camera[1, 2]
                depths[row, column], keys[row, column] = _background(eye, dx, dy, dz, targets)
    for solid in range(len(solids)):
        left, top, right, bottom = _rectangle(solids, solid, camera, side, False)
        for row in range(top, bottom):
            v = HALF_VIEW - (row + 0.5) * pixel
            for column in range(left, right):
                if dirty[row, column]:
                    u = (column + 0.5) * pixel - HALF_VIEW
                    dx = camera[3, 0] + v * camera[2, 0] + u * camera[1, 0]
                    dy = camera[3, 1] + v * camera[2, 1] + u * camera[1, 1]
                    dz = camera[3, 2] + v * camera[2, 2] + u * camera[1, 2]
                    t, face = _cast(solids, worked, solid, dx, dy, dz)
                    if t < depths[row, column]:
                        depths[row, column] = t
                        keys[row, column] = ZONES * (solid - WALL) + face
    around, hidden = np.empty(9, np.int64), np.empty(_PLACES, np.uint8)
    last = side - 1
    for row in range(side):
        for column in range(side):
            if not dirty[row, column]:
                continue
            key = keys[row, column]
            inner = (
                key == keys[row, max(0, column - 1)]
                and key == keys[row, min(last, column + 1)]
                and key == keys[max(0, row - 1), column]
                and key == keys[min(last, row + 1), column]
            )
            red = green = blue = 0.0
            lit, lit_key = 1.0, -1
            samples, found = 1, 0
            if not inner:
                samples, found = _SAMPLES, _neighbours(keys, row, column, around)
            for sample in range(samples):
                a = b = 0.5
                if not inner:
                    a, b = _SAMPLES_X[sample], _SAMPLES_Y[sample]
                u, v = (column + a) * pixel - HALF_VIEW, HALF_VIEW - (row + b) * pixel
                dx = camera[3, 0] + v * camera[2, 0] + u * camera[1, 0]
                dy = camera[3, 1] + v * camera[2, 1] + u * camera[1, 1]
                dz = camera[3, 2] + v * camera[2, 2] + u * camera[1, 2]
                t, here = depths[row, column], key
                if not inner:
                    t, here = _background(eye, dx, dy, dz, targets)
                    for index in range(found):
                        depth, face = _cast(solids, worked, around[index], dx, dy, dz)
                        if depth < t:
                            t, here = depth, ZONES * (around[index] - WALL) + face
                if here == 0:
                    r, g, b = _wall(v)
                else:
                    x, y, z = eye[0] + t * dx, eye[1] + t * dy, eye[2] + t * dz
                    nx, ny, nz = _normal(solids, worked, here, x, y, z)
                    # One look at the lamp serves all samples of a pixel on the same face.
                    if here != lit_key and nx * _LIGHT[0] + ny * _LIGHT[1] + nz * _LIGHT[2] > 0.0:
                        lit, lit_key = _lit(solids, worked, here // ZONES + WALL, x, y, z, hidden), here
                    r, g, b = _shade(solids, targets, here, lit, nx, ny, nz, y, dx, dy, dz)
                red, green, blue = red + min(r, 255.0), green + min(g, 255.0), blue + min(b, 255.0)
            share = 1.0 / samples
            frame[row, column, 0] = int(red * share + 0.5)
            frame[row, column, 1] = int(green * share + 0.5)
            frame[row, column, 2] = int(blue * share + 0.5)


@compiled
def _cast(solids, worked, solid, dx, dy, dz):
    """Return (t, face) where a ray from the eye enters a solid."""
    w = worked[solid]
    x, y, z = _own(worked, solid, dx, dy, dz)
    return _enter(int(solids[solid, KIND]), w[_EYE], w[_EYE + 1], w[_EYE + 2], x, y, z, NEAR)
