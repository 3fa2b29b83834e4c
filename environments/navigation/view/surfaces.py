"""Surface patterns: a compiled function from a point on a face to a colour, based on hashed integers.

Points are in metres from the lower corner of a face. Patterns such as doors, books and screens appear only on vertical
faces. Fine patterns fade with distance, as they would in a camera, instead of flickering.
"""

import math

from ....compiled import compiled

SURFACES = (
    "plain",
    "wood",
    "planks",
    "tiles",
    "bricks",
    "fabric",
    "carpet",
    "stripes",
    "books",
    "window",
    "door",
    "painting",
    "screen",
    "metal",
    "rug",
    "drawers",
    "cupboard",
    "leaves",
    "clock",
    "keys",
    "crust",
    "ball",
    "mirror",
    "hob",
    "checks",
    "weave",
    "label",
    "glow",
    "oven",
    "page",
    "herringbone",
)
"""Names of the surfaces in state texts; their indices are the codes of the kernel."""
CODES = {name: code for code, name in enumerate(SURFACES)}
FLOOR, WALL, CEILING = 0, 1, 2


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
def surface_colour(code, red, green, blue, u, v, wide, tall, face, t):  # noqa: PLR0911, PLR0912, PLR0915
    """Return the unlit colour (red, green, blue, 0 to 255) at (u, v) on a face of ``wide`` x ``tall`` metres."""
    upright = not 2 <= face <= 3  # faster than a set, which would be built at every call
    f = 1.0
    if code == 0:
        return red, green, blue
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
    elif code == 3:  # tiles
        i, j = int(u / 0.40), int(v / 0.40)
        a, b = u - i * 0.40, v - j * 0.40
        f = 0.95 + 0.08 * noise(i, j, 8)
        if a < 0.012 or b < 0.012:
            f *= 1.0 - 0.26 * _fade(t, 0.016)
    elif code == 4:  # glazed bricks, half of them shifted
        j = int(v / 0.10)
        x = u + (0.10 if j & 1 else 0.0)
        i = int(x / 0.20)
        f = 0.95 + 0.07 * noise(i, j, 9)
        if x - i * 0.20 < 0.008 or v - j * 0.10 < 0.008:
            f *= 1.0 - 0.20 * _fade(t, 0.010)
    elif code == 5:  # fabric
        f = 1.0 + (noise(int(u / 0.010), int(v / 0.010), 12) - 0.5) * 0.16 * _fade(t, 0.010)
        f *= 0.96 + 0.08 * noise(int(u / 0.09), int(v / 0.09), 13)
    elif code == 6:  # carpet
        f = 1.0 + (noise(int(u / 0.018), int(v / 0.018), 14) - 0.5) * 0.22 * _fade(t, 0.018)
        f *= 0.97 + 0.06 * noise(int(u / 0.15), int(v / 0.15), 15)
    elif code == 7:  # stripes: wallpaper, curtains
        i = int(u / 0.11)
        f = 1.0 if i & 1 else 0.90
    elif code == 8:  # books: spines side by side, of different height and colour
        if upright and wide > 0.2:
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
            pick = noise(i, int(wide * 1000.0), 23)
            if pick < 0.2:
                red, green, blue = 164.0, 48.0, 44.0
            elif pick < 0.4:
                red, green, blue = 42.0, 84.0, 138.0
            elif pick < 0.55:
                red, green, blue = 50.0, 116.0, 72.0
            elif pick < 0.7:
                red, green, blue = 208.0, 164.0, 62.0
            elif pick < 0.85:
                red, green, blue = 222.0, 212.0, 190.0
            else:
                red, green, blue = 98.0, 62.0, 104.0
            if u - at < 0.005:
                f = 0.55
            band = v / height
            if 0.74 < band < 0.82:
                f = 1.28
    elif code == 9:  # window: frame, bars, sky and trees
        if upright:
            edge = min(u, wide - u, v, tall - v)
            if edge < 0.055 or abs(u - 0.5 * wide) < 0.025 or abs(v - 0.62 * tall) < 0.02:
                return 238.0, 238.0, 236.0
            s = v / tall
            hill = 0.30 + 0.10 * noise(int(u / 0.16), 3, 31) + 0.04 * noise(int(u / 0.05), 5, 32)
            if s < hill:
                g = 0.86 + 0.26 * noise(int(u / 0.05), int(v / 0.05), 33)
                return 84.0 * g, 138.0 * g, 70.0 * g
            return 168.0 + 70.0 * (1.0 - s), 208.0 + 34.0 * (1.0 - s), 246.0
    elif code == 10:  # door: four panels
        if upright:
            a, b = u / wide, v / tall
            a = a if a < 0.5 else 1.0 - a
            if 0.14 < a < 0.46 and (0.08 < b < 0.44 or 0.52 < b < 0.93):
                f = 0.90
                if a < 0.165 or b < 0.10 or 0.52 < b < 0.54:
                    f = 0.72
                elif a > 0.435 or 0.42 < b < 0.44 or b > 0.91:
                    f = 1.12
    elif code == 11:  # painting: a landscape in a frame, its hue from the base colour
        if upright:
            edge = min(u, wide - u, v, tall - v)
            if edge < 0.045:
                return 92.0, 66.0, 40.0
            a, b = u / wide, v / tall
            sun_x, sun_y = (a - 0.70) * wide, (b - 0.72) * tall
            if sun_x * sun_x + sun_y * sun_y < 0.0036 * (1.0 + 4.0 * wide * wide):
                return 248.0, 214.0, 120.0
            hill = 0.40 + 0.9 * (a - 0.35) * (a - 0.35)
            if b < hill * 0.62:
                return 0.55 * red, 0.62 * green, 0.50 * blue
            if b < hill:
                return 0.85 * red, 0.88 * green, 0.80 * blue
            return 0.5 * red + 116.0, 0.5 * green + 118.0, 0.5 * blue + 124.0
    elif code == 12:  # screen
        if upright:
            edge = min(u, wide - u, v, tall - v)
            if edge < 0.018:
                return 22.0, 22.0, 24.0
            g = 1.0 + 0.5 * max(0.0, (u / wide + v / tall) - 1.2)
            return red * g, green * g, blue * g
    elif code == 13:  # metal
        f = 0.94 + 0.12 * noise(int(u / 0.02), 0, 41) * _fade(t, 0.02)
        if upright:
            f *= 0.92 + 0.16 * v / tall
    elif code == 14:  # rug: border and diamonds
        edge = min(u, wide - u, v, tall - v)
        if edge < 0.05:
            return 0.72 * red, 0.72 * green, 0.72 * blue
        if 0.12 < edge < 0.18:
            return 0.5 * red + 118.0, 0.5 * green + 112.0, 0.5 * blue + 96.0
        if edge >= 0.18:
            a = abs((u - 0.5 * wide) / 0.44 - math.floor((u - 0.5 * wide) / 0.44) - 0.5)
            b = abs((v - 0.5 * tall) / 0.44 - math.floor((v - 0.5 * tall) / 0.44) - 0.5)
            if a + b < 0.24:
                return 0.5 * red + 110.0, 0.5 * green + 104.0, 0.5 * blue + 90.0
        f = 1.0 + (noise(int(u / 0.015), int(v / 0.015), 16) - 0.5) * 0.14 * _fade(t, 0.015)
    elif 15 <= code <= 16:  # drawer fronts one above the other, or pairs of cupboard doors
        f = _grain(v, u, t) if code == 16 else _grain(u, v, t)
        if upright and wide > 0.15:
            columns = max(1, int(wide / (0.9 if code == 15 else 0.42) + 0.5))
            rows = max(2, int(tall / 0.23 + 0.5)) if code == 15 else 1
            a, b = wide / columns, tall / rows
            x, y = u - int(u / a) * a, v - int(v / b) * b
            if min(x, a - x, y, b - y) < 0.010:
                f *= 0.55
            elif code == 15:
                if abs(y - 0.5 * b) < 0.014 and abs(x - 0.5 * a) < 0.075:
                    return 70.0, 68.0, 66.0
            elif int(u / a) & 1:
                if abs(x - 0.055) < 0.011 and abs(y - 0.62 * b) < 0.06:
                    return 70.0, 68.0, 66.0
            elif abs(x - a + 0.055) < 0.011 and abs(y - 0.62 * b) < 0.06:
                return 70.0, 68.0, 66.0
    elif code == 17:  # leaves
        f = 0.70 + 0.5 * noise(int(u / 0.035), int(v / 0.035), 51)
    elif code == 18:  # clock face
        a, b = u - 0.5 * wide, v - 0.5 * tall
        if upright and a * a + b * b < 0.2 * wide * wide:
            if (abs(a) < 0.035 * wide and 0.0 < b < 0.30 * tall) or (abs(b) < 0.035 * tall and 0.0 < a < 0.24 * wide):
                return 20.0, 20.0, 20.0
            return 244.0, 242.0, 232.0
    elif code == 19:  # keys on the lying part of a laptop
        if not upright:
            x, y = u / 0.03, v / 0.03
            if min(u, wide - u, v, tall - v) > 0.03 and (x - int(x) > 0.25) and (y - int(y) > 0.25):
                return 0.35 * red, 0.35 * green, 0.35 * blue
    elif code == 20:  # crust: cuts across
        x = u / 0.07 if wide > tall else v / 0.07
        f = 0.86 if x - int(x) < 0.25 else 1.06
        f *= 0.94 + 0.12 * noise(int(u / 0.01), int(v / 0.01), 61)
    elif code == 21:  # ball: dark seams
        a, b = u - 0.5 * wide, v - 0.5 * tall
        c = a * a + b * b
        if abs(a) < 0.035 * wide or abs(b) < 0.035 * wide or abs(c - 0.12 * wide * wide) < 0.018 * wide * wide:
            f = 0.25
    elif code == 22:  # mirror
        if upright:
            edge = min(u, wide - u, v, tall - v)
            if edge < 0.03:
                return 200.0, 196.0, 188.0
            x = (u + v) / 0.5
            f = 1.10 if x - int(x) < 0.22 else 1.0
    elif code == 23:  # hob: four rings on a dark plate
        if not upright:
            a = abs(u / wide - 0.5) - 0.24
            b = abs(v / tall - 0.5) - 0.24
            r = a * a + b * b
            if r < 0.030 and not 0.010 < r < 0.019:
                return 190.0, 62.0, 40.0
    elif code == 24:  # checks
        i, j = int(u / 0.09), int(v / 0.09)
        f = 1.0 if (i + j) & 1 else 0.74
    elif code == 25:  # weave: baskets
        i, j = int(u / 0.035), int(v / 0.035)
        f = 1.08 if (i + j) & 1 else 0.78
    elif code == 26:  # label: a paper band around a bottle or a box
        if upright and 0.25 * tall < v < 0.68 * tall:
            if 0.40 * tall < v < 0.52 * tall:
                return 0.7 * red, 0.7 * green, 0.7 * blue
            return 240.0, 236.0, 222.0
    elif code == 27:  # glow: lamps
        return 255.0, 246.0, 214.0
    elif code == 28:  # oven door: glass and a handle bar
        if upright:
            a, b = u / wide, v / tall
            if b > 0.86:
                x = a * 6.0 - int(a * 6.0)
                if 0.3 < x < 0.7 and 0.90 < b < 0.96:
                    return 60.0, 60.0, 62.0
            elif 0.78 < b < 0.82 and 0.08 < a < 0.92:
                return 110.0, 110.0, 112.0
            elif 0.14 < a < 0.86 and 0.24 < b < 0.68:
                return 40.0, 40.0, 44.0
    elif code == 29:  # page edges of a book
        if upright:
            y = v / 0.006
            f = 1.0 if (y - int(y)) > 0.3 else 0.88
            return 236.0 * f, 230.0 * f, 212.0 * f
    elif code == 30:  # herringbone floor
        i, j = int(u / 0.12), int(v / 0.12)
        k = (i + j) % 6
        if k < 3:
            f = 0.86 + 0.20 * noise((i + 3 * j) // 3, j, 71)
            if v - j * 0.12 < 0.006:
                f *= 1.0 - 0.35 * _fade(t, 0.010)
        else:
            f = 0.82 + 0.20 * noise(i, (j + 3 * i) // 3, 72)
            if u - i * 0.12 < 0.006:
                f *= 1.0 - 0.35 * _fade(t, 0.010)
    return red * f, green * f, blue * f
