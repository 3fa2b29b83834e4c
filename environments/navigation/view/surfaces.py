"""Surface patterns: a compiled function from a point on a face to a colour, based on hashed integers.

Points are in metres from the lower corner of a face. Doors and books appear only on vertical faces. Fine patterns fade
with distance, as they would in a camera, instead of flickering.
"""

from ....core.compiled import compiled

SURFACES = ("plain", "wood", "planks", "tiles", "fabric", "stripes", "doors", "books")
"""Names of the surfaces in state texts; their indices are the codes of the kernel."""
CODES = {name: code for code, name in enumerate(SURFACES)}
FLOOR, WALL, CEILING = 0, 1, 2
SPINES = (
    (164.0, 48.0, 44.0),
    (42.0, 84.0, 138.0),
    (50.0, 116.0, 72.0),
    (208.0, 164.0, 62.0),
    (222.0, 212.0, 190.0),
    (98.0, 62.0, 104.0),
)
"""Colours of books: red, green, blue."""


@compiled
def noise(i, j, k):
    """Return a pseudo-random number in [0, 1) that is a hash of three integers."""
    h = (i * 374761393 + j * 668265263 + k * 2147483647 + 374761) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 1274126177) & 0xFFFFFFFF
    h = ((h ^ (h >> 16)) * 2246822519) & 0xFFFFFFFF
    return ((h ^ (h >> 15)) & 0xFFFF) / 65536.0


@compiled
def _fade(t, size):
    """Return the strength, 0 to 1, of a pattern with details of ``size`` metres at depth ``t``."""
    return min(1.0, max(0.0, size / (0.0093 * t) - 0.35))


@compiled
def _grain(u, v, t):
    """Return the brightness factor of wood with its grain along u."""
    row = int(v / 0.012)
    wave = noise(row, int(u / 0.30 + 3.0 * noise(row, 0, 5)), 11)
    return 1.0 + (wave - 0.5) * 0.20 * _fade(t, 0.012) + (noise(int(v / 0.07), int(u / 0.9), 3) - 0.5) * 0.10


@compiled
def surface_colour(code, red, green, blue, u, v, wide, tall, face, t):  # noqa: PLR0912, PLR0915
    """Return the unlit colour (red, green, blue, 0 to 255) at (u, v) on a face of ``wide`` x ``tall`` metres."""
    upright = not 2 <= face <= 3  # faster than a set, which would be built at every call
    f = 1.0
    if code == 1:  # wood, the grain along the longer side
        f = _grain(u, v, t) if wide > tall else _grain(v, u, t)
    elif code == 2:  # planks
        row = int(u / 0.14)
        along = v / 1.1 + noise(row, 7, 1)
        board = int(along)
        f = 0.88 + 0.22 * noise(row, board, 2)
        f *= 1.0 + (noise(int(u / 0.02), int(v / 0.25 + 9.0 * noise(row, board, 4)), 6) - 0.5) * 0.12 * _fade(t, 0.02)
        gap = min(u - row * 0.14, 0.3)
        if gap < 0.006 or (along - board) * 1.1 < 0.006:
            f *= 1.0 - 0.40 * _fade(t, 0.010)
    elif code == 3:  # tiles; on a wall they are small, and every second row is shifted
        width, height = (0.20, 0.10) if upright else (0.40, 0.40)
        j = int(v / height)
        x = u + (0.5 * width if upright and j & 1 else 0.0)
        i = int(x / width)
        f = 0.95 + 0.08 * noise(i, j, 8)
        if x - i * width < 0.010 or v - j * height < 0.010:
            f *= 1.0 - 0.23 * _fade(t, 0.012)
    elif code == 4:  # fabric
        f = 1.0 + (noise(int(u / 0.014), int(v / 0.014), 12) - 0.5) * 0.18 * _fade(t, 0.014)
        f *= 0.96 + 0.08 * noise(int(u / 0.09), int(v / 0.09), 13)
    elif code == 5:  # stripes: wallpaper, curtains
        f = 1.0 if int(u / 0.11) & 1 else 0.88
    elif code == 6:  # pairs of cupboard doors
        f = _grain(v, u, t)
        if upright and wide > 0.15:
            a = wide / max(1, int(wide / 0.42 + 0.5))
            i = int(u / a)
            x = u - i * a
            if min(x, a - x, v, tall - v) < 0.010:
                f *= 0.55
            elif abs((x - 0.055) if i & 1 else (x - a + 0.055)) < 0.011 and abs(v - 0.62 * tall) < 0.06:
                return 70.0, 68.0, 66.0
    elif code == 7 and upright and wide > 0.2:  # books: spines side by side, of different height and colour
        at, i = 0.0, 0
        width = 0.03
        while i < 80:
            width = 0.024 + 0.026 * noise(i, int(wide * 100.0), 21)
            if at + width > u:
                break
            at += width
            i += 1
        height = tall * (0.72 + 0.26 * noise(i, int(wide * 100.0), 22))
        if v > height:
            return 0.30 * red, 0.30 * green, 0.30 * blue
        red, green, blue = SPINES[int(6.0 * noise(i, int(wide * 1000.0), 23))]
        if u - at < 0.005:
            f = 0.55
        elif 0.74 < v / height < 0.82:
            f = 1.28
    return red * f, green * f, blue * f
