"""Motifs from nature: plants, weather, animals, food; see :mod:`~pivot.environments.svg.targets.icons`."""

from .pen import Pen


def tree(pen: Pen) -> list[str]:
    trunk = pen.box(43, 56, 10, pen.between(24, 30), pen.mix(pen.ink, "#a4632f", 60), 2)
    radius = pen.between(15, 19)
    crown = [pen.circle(34, 44, radius, pen.main), pen.circle(62, 44, radius, pen.main)]
    crown.append(pen.circle(48, 31, radius + 3, pen.main))
    fruit = [pen.dot(x, y, 3, pen.accent) for x, y in ((40, 32), (58, 38), (47, 46), (32, 46))[: pen.between(0, 4)]]
    return [trunk, *crown, *fruit, pen.stroke("M26 86H70", pen.ink)]


def pine(pen: Pen) -> list[str]:
    spread = pen.between(22, 28)
    trunk = pen.box(44, 72, 8, 14, pen.mix(pen.ink, "#a4632f", 60))
    layers = [
        pen.path(f"M48 {top}L{48 + half} {foot}H{48 - half}Z", pen.mix(pen.main, pen.ink, shade))
        for top, foot, half, shade in ((42, 74, spread, 30), (26, 56, spread - 5, 15), (10, 38, spread - 10, 0))
    ]
    star = [pen.dot(48, 10, 4, pen.accent)] if pen.chance(50) else []
    return [trunk, *layers, *star]


def flower(pen: Pen) -> list[str]:
    count = pen.choose((5, 6, 8))
    petal = pen.shape("ellipse", pen.main, cx=48, cy=20, rx=pen.between(7, 10), ry=12)
    stem = pen.stroke("M48 38V88", pen.mix("#40916c", pen.ink, 20), 4)
    leaf = pen.path("M48 74C56 62 68 62 74 64C70 74 60 80 48 78Z", "#52b788")
    angles = [360 * k // count for k in range(count)]
    return [stem, leaf, *pen.turned(petal, angles, 48, 36), pen.circle(48, 36, pen.between(7, 9), pen.accent)]


def leaf(pen: Pen) -> list[str]:
    blade = pen.path("M16 80C10 40 34 12 84 12C86 60 62 88 16 80Z", pen.main)
    vein = pen.main if pen.style == "line" else pen.light
    veins = [
        pen.stroke(f"M{x} {96 - x}L{x + dx} {96 - x + dy}", vein, 2)
        for x in (34, 48, 60)
        for dx, dy in ((0, -16), (16, 0))
    ]
    return [blade, pen.stroke("M12 84L74 22", vein), *veins[: 2 * pen.between(1, 3)]]


def mushroom(pen: Pen) -> list[str]:
    stem = pen.path("M38 52H58L62 82Q48 90 34 82Z", pen.pale(pen.mix(pen.main, pen.ink, 50)))
    cap = pen.path("M12 54A36 36 0 0 1 84 54Q48 64 12 54Z", pen.main)
    spots = [pen.dot(x, y, r, pen.light) for x, y, r in ((48, 32, 6), (30, 44, 5), (66, 43, 5), (60, 27, 3))]
    return [stem, cap, *spots[: pen.between(2, 4)], pen.stroke("M24 88H72", pen.ink)]


def cactus(pen: Pen) -> list[str]:
    pot = pen.path("M32 66H64L60 88H36Z", pen.accent)
    body = pen.box(40, 14, 16, 54, pen.main, 8)
    left, right = pen.between(26, 38), pen.between(30, 44)
    arms = [
        pen.stroke(f"M40 52H28V{left}", pen.main, 9),
        pen.stroke(f"M56 48H70V{right}", pen.main, 9),
    ]
    ribs = [pen.stroke(f"M{x} 24V58", pen.mix(pen.main, "#ffffff", 45), 2) for x in (45, 51)]
    return [*arms, body, *ribs, pot, pen.stroke("M30 66H66", pen.ink)]


def mountain(pen: Pen) -> list[str]:
    peak = pen.between(16, 26)
    sun = [pen.circle(74, 24, pen.between(7, 11), pen.accent)] if pen.chance(70) else []
    back = pen.path("M40 82L66 38L92 82Z", pen.mix(pen.main, "#ffffff", 35))
    front = pen.path(f"M4 82L38 {peak}L72 82Z", pen.main)
    snow = pen.path(
        f"M38 {peak}L{50} {peak + 22}L42 {peak + 17}L37 {peak + 24}L32 {peak + 17}L27 {peak + 21}Z", pen.light
    )
    return [*sun, back, front, snow, pen.stroke("M4 84H92", pen.ink)]


def sun(pen: Pen) -> list[str]:
    count = pen.choose((8, 10, 12))
    ray = pen.stroke(f"M48 {pen.between(6, 9)}V{pen.between(17, 20)}", pen.accent, pen.between(3, 5))
    face = [pen.dot(41, 45, 2, pen.ink), pen.dot(55, 45, 2, pen.ink), pen.stroke("M40 53Q48 60 56 53", pen.ink, 2)]
    disc = pen.circle(48, 48, pen.between(18, 22), pen.accent)
    return [*pen.turned(ray, [360 * k // count for k in range(count)]), disc, *(face if pen.chance(40) else [])]


def moon(pen: Pen) -> list[str]:
    crescent = pen.path("M58 12A38 38 0 1 0 84 64A32 32 0 0 1 58 12Z", pen.main)
    star = "M0 -8L2 -2L8 0L2 2L0 8L-2 2L-8 0L-2 -2Z"
    places = ((72, 26), (84, 44), (62, 44), (80, 10))[: pen.between(2, 4)]
    stars = [pen.element("path", d=star, transform=f"translate({x} {y})", fill=pen.accent) for x, y in places]
    craters = [
        pen.dot(x, y, r, pen.mix(pen.main, "#ffffff", 30)) for x, y, r in ((34, 54, 5), (46, 72, 4), (28, 38, 3))
    ]
    return [crescent, *craters[: pen.between(0, 3)], *stars]


def cloud(pen: Pen) -> list[str]:
    shape = pen.path(
        "M26 58A15 15 0 0 1 27 28A21 21 0 0 1 66 24A17 17 0 0 1 72 58Z", pen.tint if pen.style == "flat" else pen.main
    )
    weather = pen.choose(("rain", "snow", "storm", "sun"))
    if weather == "sun":
        ray = pen.stroke("M68 4V9", pen.accent)
        rays = pen.turned(ray, [-60, -20, 20, 60, 100], 68, 26)
        return [
            *rays,
            pen.circle(68, 26, 13, pen.accent),
            shape,
            pen.stroke("M30 68H66", pen.main),
            pen.stroke("M38 77H74", pen.main),
        ]
    if weather == "storm":
        bolt = pen.path("M50 50L36 72H47L42 90L62 66H51L57 50Z", pen.accent)
        drops = [pen.stroke(f"M{x} 68L{x - 4} 78", pen.main) for x in (28, 74)]
        return [shape, bolt, *drops]
    columns = [26, 40, 54, 68][: pen.between(3, 4)]
    if weather == "rain":
        return [
            shape,
            *(pen.stroke(f"M{x} 66L{x - 6} {78 + 6 * (k % 2)}", pen.accent, 4) for k, x in enumerate(columns)),
        ]
    return [shape, *(pen.dot(x, y + 5 * (k % 2), 3, pen.accent) for k, x in enumerate(columns) for y in (68, 80))]


def umbrella(pen: Pen) -> list[str]:
    canopy = pen.path("M10 50A38 38 0 0 1 86 50Q79 43 72 50Q60 42 48 50Q36 42 24 50Q17 43 10 50Z", pen.main)
    panel = pen.path("M48 12Q32 30 32 46Q40 43 48 50Q56 43 64 46Q64 30 48 12Z", pen.accent)
    handle = pen.stroke("M48 48V78Q48 86 40 86Q33 86 33 79", pen.ink, 4)
    return [handle, canopy, panel, pen.stroke("M48 6V12", pen.ink, 4)]


def fish(pen: Pen) -> list[str]:
    tail = pen.path("M66 48L90 28V68Z", pen.accent)
    body = pen.shape("ellipse", pen.main, cx=42, cy=48, rx=34, ry=pen.between(18, 23))
    scales = [pen.stroke(f"M{x} 38Q{x + 8} 48 {x} 58", pen.light, 2) for x in (40, 50, 60)[: pen.between(1, 3)]]
    eye = [pen.dot(22, 43, 5, "#ffffff"), pen.dot(21, 43, 2, pen.ink)]
    bubbles = [
        pen.element("circle", cx=x, cy=y, r=3, fill="none", stroke=pen.main, stroke_width=2)
        for x, y in ((10, 24), (17, 14))
    ]
    return [
        tail,
        body,
        *scales,
        *eye,
        pen.stroke("M10 54Q16 57 20 55", pen.ink, 2),
        *(bubbles if pen.chance(60) else []),
    ]


def cat(pen: Pen) -> list[str]:
    ears = [pen.path("M18 46L20 10L44 28Z", pen.main), pen.path("M78 46L76 10L52 28Z", pen.main)]
    head = pen.shape("ellipse", pen.main, cx=48, cy=54, rx=34, ry=29)
    eyes = [pen.shape("ellipse", pen.light, cx=x, cy=48, rx=7, ry=8) for x in (35, 61)]
    pupils = [pen.element("ellipse", cx=x, cy=48, rx=pen.between(2, 4), ry=6, fill=pen.ink) for x in (35, 61)]
    nose = pen.element("path", d="M43 58H53L48 64Z", fill=pen.accent)
    mouth = pen.stroke("M48 64V68Q42 75 37 70M48 68Q54 75 59 70", pen.ink, 2)
    whiskers = pen.stroke("M8 56L26 60M8 68L26 66M88 56L70 60M88 68L70 66", pen.ink, 2)
    return [*ears, head, *eyes, *pupils, nose, mouth, *([whiskers] if pen.chance(80) else [])]


def butterfly(pen: Pen) -> list[str]:
    upper, lower = pen.between(14, 18), pen.between(11, 14)
    wing = pen.group(
        [
            pen.shape("ellipse", pen.main, cx=28, cy=36, rx=20, ry=upper),
            pen.shape("ellipse", pen.accent, cx=32, cy=64, rx=14, ry=lower),
            pen.dot(26, 36, 5, pen.light),
            pen.dot(32, 64, 4, pen.light),
        ]
    )
    name = pen.identifier("w")
    pen.definitions.append(pen.group([wing], id=name))
    left = pen.element("use", href=f"#{name}")
    right = pen.element("use", href=f"#{name}", transform="translate(96 0) scale(-1 1)")
    feelers = pen.stroke("M48 26Q44 14 36 10M48 26Q52 14 60 10", pen.ink, 2)
    return [left, right, feelers, pen.stroke("M48 28V76", pen.ink, 6)]


def apple(pen: Pen) -> list[str]:
    body = pen.path(
        "M48 32C36 20 14 26 14 50C14 72 30 90 40 88C45 87 51 87 56 88C66 90 82 72 82 50C82 26 60 20 48 32Z", pen.main
    )
    shine = pen.stroke("M24 50Q24 38 34 36", pen.light, 4)
    stem = pen.stroke("M48 32Q47 20 54 10", pen.ink, 4)
    return [body, shine, stem, pen.path("M53 20Q60 6 78 10Q72 24 53 20Z", "#52b788")]


def cherries(pen: Pen) -> list[str]:
    radius = pen.between(13, 16)
    stems = pen.stroke("M30 62Q36 30 60 12Q60 36 66 58", pen.mix(pen.ink, "#40916c", 50))
    leaf_shape = pen.path("M60 12Q76 6 86 20Q72 28 60 12Z", "#52b788")
    fruit = [pen.circle(30, 70, radius, pen.main), pen.circle(66, 66, radius, pen.main)]
    return [stems, leaf_shape, *fruit, pen.dot(25, 65, 3, pen.light), pen.dot(61, 61, 3, pen.light)]


def ice_cream(pen: Pen) -> list[str]:
    cone = pen.path("M28 50H68L48 92Z", "#e9a75b" if pen.style != "line" else pen.ink)
    grid = pen.stroke("M36 52L56 74M60 52L40 74M48 52L59 66M48 52L37 66", pen.mix("#e9a75b", pen.ink, 50), 2)
    scoops = [pen.circle(35, 40, 15, pen.main), pen.circle(61, 40, 15, pen.accent)]
    scoops.append(pen.circle(48, 24, 16, pen.pale(pen.ink)))
    topping = [pen.dot(48, 8, 4, "#d7263d")] if pen.chance(60) else []
    return [cone, grid, *scoops, *topping]


def donut(pen: Pen) -> list[str]:
    dough = pen.circle(48, 50, 38, "#d9a066")
    icing = pen.path(
        "M48 16C70 16 82 34 80 52C78 62 70 58 66 66C60 74 52 68 46 74"
        "C36 80 32 68 26 66C14 60 14 44 20 34C26 22 36 16 48 16Z",
        pen.main,
    )
    hole = pen.element("circle", cx=48, cy=48, r=pen.between(10, 13), fill=pen.paper)
    places = ((34, 28, 20), (60, 26, 70), (70, 42, 120), (30, 46, 150), (40, 62, 40), (62, 58, 10), (48, 24, 100))
    sprinkles = [
        pen.element(
            "rect", x=-4, y=-1, width=8, height=3, rx=1, transform=f"translate({x} {y}) rotate({angle})", fill=colour
        )
        for (x, y, angle), colour in zip(places, (pen.accent, pen.light, pen.tint) * 3, strict=False)
    ]
    return [dough, icing, hole, *sprinkles[: pen.between(4, 7)]]


MOTIFS = (
    tree,
    pine,
    flower,
    leaf,
    mushroom,
    cactus,
    mountain,
    sun,
    moon,
    cloud,
    umbrella,
    fish,
    cat,
    butterfly,
    apple,
    cherries,
    ice_cream,
    donut,
)
