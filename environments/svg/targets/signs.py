"""Motifs from screens and signs: symbols, charts, controls; see :mod:`~pivot.environments.svg.targets.icons`."""

from .pen import Pen


def heart(pen: Pen) -> list[str]:
    outer = pen.path("M48 86C20 64 8 48 10 32C12 14 38 8 48 28C58 8 84 14 86 32C88 48 76 64 48 86Z", pen.main)
    inner = pen.path("M48 70C32 58 24 48 26 38C28 28 42 26 48 38C54 26 68 28 70 38C72 48 64 58 48 70Z", pen.accent)
    pulse = pen.stroke("M6 50H32L40 34L52 66L60 50H90", pen.light, 4)
    shine = pen.stroke("M22 38Q22 26 34 24", pen.light, 4)
    return [outer, *pen.choose(([inner, shine], [pulse, shine], [inner, pulse]))]


def star(pen: Pen) -> list[str]:
    big = pen.path("M48 8L59 35L88 37L66 56L73 84L48 69L23 84L30 56L8 37L37 35Z", pen.accent)
    small = pen.element("path", d="M48 30L53 42L66 43L56 52L59 65L48 58L37 65L40 52L30 43L43 42Z", fill=pen.light)
    rays = pen.stroke("M12 12L18 18M84 12L78 18M48 92V86", pen.main)
    return [big, small, rays, *(pen.dot(x, y, 2, pen.ink) for x, y in ((43, 47), (53, 47)))]


def gear(pen: Pen) -> list[str]:
    count = pen.choose((6, 8, 9, 12))
    tooth = pen.box(42, 8, 12, 20, pen.main, 2)
    teeth = pen.turned(tooth, [360 * k // count for k in range(count)])
    rim = pen.circle(48, 48, pen.between(26, 30), pen.main)
    return [
        *teeth,
        rim,
        pen.circle(48, 48, pen.between(14, 17), pen.accent),
        pen.dot(48, 48, pen.between(5, 8), pen.paper),
    ]


def arrow(pen: Pen) -> list[str]:
    kind = pen.choose(("block", "cycle", "cross", "fork"))
    turn = pen.choose((0, 45, 90, 135, 180, 225, 270, 315))
    if kind == "block":
        body = [pen.path("M10 38H50V20L86 48L50 76V58H10Z", pen.main), pen.stroke("M18 48H66", pen.light)]
        body += [pen.dot(76, 48, 3, pen.accent), pen.stroke("M56 36L66 44", pen.light, 2)]
    elif kind == "cycle":
        half = pen.group(
            [pen.stroke("M18 40A32 32 0 0 1 72 26", pen.main, 7), pen.path("M80 18L64 34L87 42Z", pen.main)]
        )
        body = [*pen.turned(half, [0, 180]), pen.circle(48, 48, pen.between(8, 12), pen.accent)]
    elif kind == "cross":
        head = pen.group([pen.stroke("M48 44V22", pen.main, 5), pen.path("M36 24L48 8L60 24Z", pen.main)])
        body = [*pen.turned(head, [0, 90, 180, 270]), pen.circle(48, 48, 7, pen.accent)]
    else:
        body = [pen.stroke("M12 48H40Q52 48 58 34L64 24M40 48Q52 48 58 62L64 72", pen.main, 6)]
        body += [
            pen.path("M54 26L74 8L76 34Z", pen.main),
            pen.path("M54 70L74 88L76 62Z", pen.accent),
            pen.circle(16, 48, 8, pen.accent),
        ]
    return [pen.group(body, transform=f"rotate({turn} 48 48)")] if turn else body


def bar_chart(pen: Pen) -> list[str]:
    count = pen.between(3, 5)
    room = 68 // count
    bars = []
    for k in range(count):
        height = pen.between(14, 62)
        colour = (pen.main, pen.accent, pen.mix(pen.main, "#ffffff", 40))[k % 3]
        bars.append(pen.box(18 + k * room, 80 - height, room - 5, height, colour, pen.choose((0, 2, 4))))
    axes = pen.stroke("M12 12V82H86", pen.ink)
    ticks = pen.stroke("M8 28H12M8 46H12M8 64H12", pen.ink, 2)
    return [*bars, axes, *([ticks] if pen.chance(60) else [])]


def line_chart(pen: Pen) -> list[str]:
    points = [(18 + 15 * k, pen.between(22, 70)) for k in range(5)]
    line = "M" + "L".join(f"{x} {y}" for x, y in points)
    area = pen.element("path", d=f"{line}V80H18Z", fill=pen.tint, opacity="0.8")
    grid = [pen.stroke(f"M14 {y}H84", pen.mix(pen.tint, pen.ink, 20), 1, stroke_dasharray="3 3") for y in (24, 42, 60)]
    marks = [pen.circle(x, y, 4, pen.accent) for x, y in points]
    return [*grid, area, pen.stroke("M12 12V82H86", pen.ink), pen.stroke(line, pen.main, 4), *marks]


def pie_chart(pen: Pen) -> list[str]:
    # End points of slices on the circle of radius 36 around the centre, every 45 degrees clockwise from the top.
    rim = ((48, 12), (73, 23), (84, 48), (73, 73), (48, 84), (23, 73), (12, 48), (23, 23))
    first, second = pen.between(1, 3), pen.between(4, 6)
    disc = pen.circle(48, 48, 36, pen.main)
    slices = []
    for (start, end), colour in zip(((0, first), (first, second)), (pen.accent, pen.tint), strict=True):
        (x1, y1), (x2, y2) = rim[start], rim[end]
        slices.append(pen.element("path", d=f"M48 48L{x1} {y1}A36 36 0 0 1 {x2} {y2}Z", fill=colour))
    hole = [pen.element("circle", cx=48, cy=48, r=pen.between(12, 16), fill=pen.paper)] if pen.chance(50) else []
    x, y = rim[7]
    return [disc, *slices, pen.stroke(f"M48 48L{x} {y}", pen.light, 2), *hole]


def clock(pen: Pen) -> list[str]:
    rim = pen.circle(48, 48, 38, pen.main)
    face = pen.element("circle", cx=48, cy=48, r=pen.between(28, 32), fill=pen.light)
    tick = pen.stroke("M48 20V24", pen.ink, 2)
    ticks = pen.turned(tick, [360 * k // 12 for k in range(0, 12, pen.choose((1, 3)))])
    hour, minute = pen.between(0, 11), pen.between(0, 11)
    hands = [
        pen.stroke("M48 48V33", pen.ink, 4, transform=f"rotate({hour * 30 + minute * 5 // 2} 48 48)"),
        pen.stroke("M48 48V25", pen.ink, 3, transform=f"rotate({minute * 30} 48 48)"),
    ]
    bells = [
        pen.circle(20, 16, 9, pen.accent),
        pen.circle(76, 16, 9, pen.accent),
        pen.stroke("M24 82L16 90M72 82L80 90", pen.ink, 4),
    ]
    return [*(bells if pen.chance(40) else []), rim, face, *ticks, *hands, pen.dot(48, 48, 3, pen.accent)]


def target(pen: Pen) -> list[str]:
    colours = (pen.main, pen.light, pen.main, pen.light, pen.accent)
    rings = [pen.circle(44, 52, radius, colour) for radius, colour in zip((38, 30, 22, 14, 6), colours, strict=True)]
    shaft = pen.stroke("M44 52L80 16", pen.ink, 3)
    feathers = pen.path("M74 22L78 8L84 4L84 12L92 12L88 18Z", pen.accent)
    return [*rings, shaft, feathers]


def map_pin(pen: Pen) -> list[str]:
    shadow = pen.element("ellipse", cx=48, cy=86, rx=pen.between(14, 22), ry=5, fill=pen.ink, opacity="0.25")
    drop = pen.path("M48 86C34 64 20 52 20 36A28 28 0 0 1 76 36C76 52 62 64 48 86Z", pen.main)
    middle = pen.circle(48, 36, pen.between(10, 13), pen.pale(pen.accent))
    return [shadow, drop, middle, pen.dot(48, 36, 4, pen.accent)]


def chat(pen: Pen) -> list[str]:
    back = pen.path(
        "M38 14H80Q88 14 88 22V48Q88 56 80 56V66L68 56H38Q30 56 30 48V22Q30 14 38 14Z",
        pen.tint if pen.style == "flat" else pen.accent,
    )
    front = pen.path("M16 32H58Q66 32 66 40V64Q66 72 58 72H34L20 86V72H16Q8 72 8 64V40Q8 32 16 32Z", pen.main)
    if pen.chance(50):
        marks = [pen.dot(x, 52, 4, pen.light) for x in (24, 37, 50)]
    else:
        marks = [pen.stroke(f"M18 {y}H{x}", pen.light) for y, x in ((45, 56), (53, 48), (61, 40))]
    return [back, front, *marks]


def user(pen: Pen) -> list[str]:
    body = pen.path("M14 86Q14 56 48 56Q82 56 82 86Z", pen.main)
    collar = pen.element("path", d="M38 57L48 70L58 57Z", fill=pen.light)
    head = pen.circle(48, 34, pen.between(17, 20), "#f2c9a1" if pen.style != "line" else pen.ink)
    hair = pen.path("M28 32Q28 10 48 10Q68 10 68 32Q58 18 28 32Z", pen.ink)
    return [body, collar, head, hair, pen.stroke("M14 86H82", pen.ink)]


def battery(pen: Pen) -> list[str]:
    case = pen.box(8, 28, 72, 40, pen.pale(pen.ink), 6)
    rim = pen.element("rect", x=8, y=28, width=72, height=40, rx=6, fill="none", stroke=pen.ink, stroke_width=4)
    cells = [
        pen.element("rect", x=15 + 15 * k, y=35, width=11, height=26, rx=2, fill=pen.main)
        for k in range(pen.between(1, 4))
    ]
    bolt = pen.element("path", d="M48 30L34 52H46L42 68L58 44H46Z", fill=pen.accent)
    return [case, rim, pen.box(82, 40, 7, 16, pen.ink, 2), *cells, *([bolt] if pen.chance(40) else [])]


def wifi(pen: Pen) -> list[str]:
    arcs = [
        pen.stroke(data, colour, 8)
        for data, colour in (
            ("M10 40A54 54 0 0 1 86 40", pen.tint if pen.chance(40) else pen.main),
            ("M22 53A37 37 0 0 1 74 53", pen.main),
            ("M34 65A20 20 0 0 1 62 65", pen.main),
        )
    ]
    return [*arcs, pen.circle(48, 78, pen.between(6, 8), pen.accent)]


def play(pen: Pen) -> list[str]:
    screen = pen.box(6, 18, 84, 60, pen.main, pen.between(6, 18))
    button = pen.circle(48, 46, 18, pen.pale(pen.accent))
    triangle = pen.element("path", d="M42 36L58 46L42 56Z", fill=pen.accent if pen.style != "line" else pen.ink)
    at = pen.between(24, 70)
    bar = [
        pen.stroke("M16 71H80", pen.tint, 3),
        pen.stroke(f"M16 71H{at}", pen.accent, 3),
        pen.dot(at, 71, 4, pen.light),
    ]
    return [screen, button, triangle, *bar]


def download(pen: Pen) -> list[str]:
    tray = pen.stroke("M14 60V78Q14 84 20 84H76Q82 84 82 78V60", pen.ink, 6)
    shaft = pen.box(41, 12, 14, 30, pen.main, 2)
    head = pen.path("M26 40H70L48 66Z", pen.main)
    lamps = [pen.dot(x, 74, 3, pen.accent) for x in (60, 70)]
    return [tray, shaft, head, *lamps]


def magnifier(pen: Pen) -> list[str]:
    handle = pen.stroke("M60 60L84 84", pen.ink, 10)
    glass = pen.circle(40, 40, pen.between(26, 29), pen.main)
    lens = pen.element("circle", cx=40, cy=40, r=20, fill=pen.tint)
    sign = pen.choose(("M30 40H50M40 30V50", "M30 40H50", "M26 40Q28 28 40 27"))
    return [
        handle,
        glass,
        lens,
        pen.stroke(sign, pen.ink if "H" in sign else pen.light, 4),
        pen.stroke("M76 76L84 84", pen.accent, 4),
    ]


def traffic_light(pen: Pen) -> list[str]:
    lit = pen.below(3)
    case = pen.box(30, 6, 36, 70, pen.ink, pen.between(6, 14))
    colours = ("#e63946", "#f6c244", "#43aa5b")
    lamps = [
        pen.element("circle", cx=48, cy=20 + 21 * k, r=8, fill=colour if k == lit else pen.mix(colour, "#000000", 65))
        for k, colour in enumerate(colours)
    ]
    glow = pen.element(
        "circle", cx=48, cy=20 + 21 * lit, r=11, fill="none", stroke=colours[lit], stroke_width=2, opacity="0.7"
    )
    return [pen.stroke("M48 76V92M34 92H62", pen.main, 5), case, *lamps, glow]


MOTIFS = (
    heart,
    star,
    gear,
    arrow,
    bar_chart,
    line_chart,
    pie_chart,
    clock,
    target,
    map_pin,
    chat,
    user,
    battery,
    wifi,
    play,
    download,
    magnifier,
    traffic_light,
)
