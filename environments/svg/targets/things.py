"""Motifs of artefacts: buildings, vehicles, tools, vessels; see :mod:`~pivot.environments.svg.targets.icons`."""

from .pen import Pen


def house(pen: Pen) -> list[str]:
    eaves = pen.between(40, 48)
    chimney = [pen.box(64, 16, 10, 24, pen.ink)] if pen.chance(60) else []
    walls = pen.box(20, eaves, 56, 86 - eaves, pen.pale(pen.main), 2)
    roof = pen.path(f"M48 10L88 {eaves + 2}H8Z", pen.main)
    door_at = pen.choose((28, 42, 54))
    door = pen.box(door_at, 62, 14, 24, pen.accent, pen.choose((0, 3)))
    window_at = 54 if door_at < 40 else 26
    window = pen.box(window_at, 56, 14, 14, pen.tint)
    bars = pen.stroke(f"M{window_at + 7} 56V70M{window_at} 63H{window_at + 14}", pen.ink, 1)
    return [
        *chimney,
        walls,
        roof,
        door,
        window,
        bars,
        pen.dot(door_at + 11, 75, 1, pen.ink),
        pen.stroke("M8 87H88", pen.ink),
    ]


def tower(pen: Pen) -> list[str]:
    wall = pen.path("M28 30H68V88H28Z", pen.main)
    teeth = [pen.box(x, 16, 9, 14, pen.main) for x in (26, 43, 61)]
    gate = pen.element("path", d="M38 88V70A10 10 0 0 1 58 70V88Z", fill=pen.ink)
    slits = [pen.element("rect", x=x, y=40, width=5, height=12, rx=2, fill=pen.light) for x in (36, 55)]
    flag_cloth = [pen.stroke("M48 16V4", pen.ink, 2), pen.element("path", d="M48 4L62 8L48 12Z", fill=pen.accent)]
    return [wall, *teeth, gate, *slits, *(flag_cloth if pen.chance(60) else []), pen.stroke("M16 88H80", pen.ink)]


def mail(pen: Pen) -> list[str]:
    body = pen.box(8, 24, 80, 54, pen.main, pen.between(2, 8))
    flap = pen.path(f"M10 26L48 {pen.between(50, 58)}L86 26Z", pen.mix(pen.main, "#ffffff", 35))
    folds = pen.stroke("M12 74L38 50M84 74L58 50", pen.mix(pen.main, pen.ink, 55), 2)
    badge = [pen.circle(84, 26, 9, pen.accent)] if pen.chance(50) else [pen.circle(48, 54, 6, pen.accent)]
    return [body, folds, flap, *badge]


def car(pen: Pen) -> list[str]:
    cabin = pen.path("M24 44L34 24H62L76 44Z", pen.mix(pen.main, "#ffffff", 25))
    glass = [
        pen.element("path", d="M32 42L38 29H47V42Z", fill=pen.tint),
        pen.element("path", d="M51 42V29H60L68 42Z", fill=pen.tint),
    ]
    body = pen.box(6, 42, 84, 24, pen.main, pen.between(6, 11))
    wheels = []
    for x in (26, 70):
        wheels += [pen.circle(x, 66, 11, pen.ink), pen.dot(x, 66, 5, pen.light)]
    lamp = pen.dot(85, 52, 3, pen.accent)
    return [cabin, *glass, body, *wheels, lamp, pen.stroke("M48 48V62M52 52H57", pen.mix(pen.main, pen.ink, 50), 2)]


def sailboat(pen: Pen) -> list[str]:
    hull = pen.path("M10 66H86L74 82H22Z", pen.main)
    mast = pen.stroke("M48 8V66", pen.ink)
    sails = [
        pen.path("M52 12Q80 36 82 60H52Z", pen.accent),
        pen.path(f"M44 {pen.between(18, 26)}L16 60H44Z", pen.pale(pen.main)),
    ]
    water = pen.stroke("M4 88Q12 82 20 88T36 88T52 88T68 88T84 88", pen.mix(pen.main, "#2e86ab", 50))
    return [mast, *sails, hull, water]


def rocket(pen: Pen) -> list[str]:
    fins = [pen.path("M34 56L18 74L34 72Z", pen.accent), pen.path("M62 56L78 74L62 72Z", pen.accent)]
    flame = pen.element("path", d=f"M38 74Q48 {pen.between(90, 104)} 58 74Z", fill="#f6a02d")
    core = pen.element("path", d="M43 74Q48 84 53 74Z", fill="#ffe08a")
    body = pen.path("M48 6Q70 28 62 74H34Q26 28 48 6Z", pen.pale(pen.main))
    nose = pen.element("path", d="M48 6Q58 16 61 28H35Q38 16 48 6Z", fill=pen.main)
    window = pen.circle(48, 42, pen.between(6, 9), pen.main)
    return [
        flame,
        core,
        *fins,
        body,
        nose,
        window,
        pen.dot(48, 42, 4, pen.tint),
        pen.stroke("M48 58V72", pen.accent, 4),
    ]


def bulb(pen: Pen) -> list[str]:
    glass = pen.path("M36 66Q36 58 28 50A26 26 0 1 1 68 50Q60 58 60 66Z", pen.accent)
    filament = pen.stroke("M40 64L42 44L48 52L54 44L56 64", pen.ink, 2)
    base = [pen.box(36, 67, 24, 6, pen.ink, 2), pen.box(38, 75, 20, 6, pen.ink, 2), pen.box(42, 83, 12, 5, pen.ink, 2)]
    ray = pen.stroke("M48 2V-2", pen.accent)
    rays = pen.turned(ray, [-90, -55, 55, 90], 48, 34) if pen.chance(50) else []
    return [*rays, glass, filament, *base]


def cup(pen: Pen) -> list[str]:
    handle = pen.element("path", d="M68 42H76A10 10 0 0 1 76 66H66", fill="none", stroke=pen.main, stroke_width=6)
    body = pen.path("M16 36H70V64Q70 80 54 80H32Q16 80 16 64Z", pen.main)
    drink = pen.shape("ellipse", pen.mix(pen.ink, "#7b4a21", 70), cx=43, cy=37, rx=26, ry=5)
    steam = [
        pen.stroke(f"M{x} 28Q{x - 5} 22 {x} 16T{x} 6", pen.mix(pen.ink, "#ffffff", 50), 3)
        for x in (32, 43, 54)[: pen.between(1, 3)]
    ]
    return [handle, body, drink, *steam, pen.stroke("M8 87H78", pen.ink), pen.dot(43, 60, 6, pen.accent)]


def key(pen: Pen) -> list[str]:
    bow = pen.circle(30, 48, pen.between(19, 22), pen.accent)
    hole = pen.element("circle", cx=26, cy=48, r=8, fill=pen.paper)
    shaft = pen.box(48, 44, 42, 8, pen.accent, 2)
    bits = [pen.box(x, 50, 6, pen.between(8, 16), pen.accent, 1) for x in (66, 75, 84)[: pen.between(2, 3)]]
    return [shaft, *bits, bow, hole, pen.stroke("M52 48H86", pen.mix(pen.accent, pen.ink, 50), 2)]


def padlock(pen: Pen) -> list[str]:
    shackle = pen.choose(("M30 46V30A18 18 0 0 1 66 30V46", "M30 46V30A18 18 0 0 1 66 30V34"))
    body = pen.box(18, 44, 60, 44, pen.main, pen.between(4, 12))
    hole = [pen.dot(48, 62, 6, pen.ink), pen.stroke("M48 64V74", pen.ink, 5)]
    shine = pen.stroke("M26 54V76", pen.light)
    return [pen.stroke(shackle, pen.ink, 8), body, *hole, shine]


def gift(pen: Pen) -> list[str]:
    box = pen.box(16, 46, 64, 42, pen.main, 3)
    lid = pen.box(10, 32, 76, 16, pen.mix(pen.main, pen.ink, 20), 3)
    ribbon = pen.element("rect", x=42, y=32, width=12, height=56, fill=pen.accent)
    bow = [
        pen.path("M48 32C30 34 22 10 36 10C44 10 48 22 48 32Z", pen.accent),
        pen.path("M48 32C66 34 74 10 60 10C52 10 48 22 48 32Z", pen.accent),
    ]
    spots = [pen.dot(x, y, 3, pen.light) for x, y in ((28, 60), (68, 60), (30, 76), (66, 78))[: pen.between(0, 4)]]
    return [box, lid, ribbon, *bow, *spots]


def bell(pen: Pen) -> list[str]:
    clapper = pen.circle(48, 80, 8, pen.ink)
    body = pen.path("M48 14C66 14 70 30 70 44C70 60 76 66 82 72H14C20 66 26 60 26 44C26 30 30 14 48 14Z", pen.accent)
    rim = pen.stroke("M12 73H84", pen.ink, 4)
    top = pen.dot(48, 12, 5, pen.ink)
    waves = [pen.stroke("M12 30Q8 40 12 50", pen.main), pen.stroke("M84 30Q88 40 84 50", pen.main)]
    return [clapper, top, body, rim, pen.stroke("M36 30Q33 38 34 48", pen.light), *(waves if pen.chance(60) else [])]


def camera(pen: Pen) -> list[str]:
    bump = pen.path("M32 28L38 16H58L64 28Z", pen.mix(pen.main, pen.ink, 35))
    body = pen.box(8, 26, 80, 54, pen.main, pen.between(5, 12))
    band = pen.element("rect", x=8, y=40, width=80, height=8, fill=pen.mix(pen.main, pen.ink, 35))
    lens = [
        pen.circle(48, 54, 20, pen.pale(pen.ink)),
        pen.circle(48, 54, pen.between(12, 14), pen.ink),
        pen.dot(44, 50, 4, pen.tint),
    ]
    return [bump, body, band, *lens, pen.dot(78, 34, 4, pen.accent)]


def book(pen: Pen) -> list[str]:
    left = pen.path("M48 26Q30 16 8 22V76Q30 70 48 80Z", pen.main)
    right = pen.path("M48 26Q66 16 88 22V76Q66 70 48 80Z", pen.mix(pen.main, "#ffffff", 30))
    rows = range(pen.between(2, 4))
    lines = [pen.stroke(f"M16 {34 + 10 * k}Q30 {31 + 10 * k} 40 {36 + 10 * k}", pen.light, 2) for k in rows]
    lines += [pen.stroke(f"M56 {36 + 10 * k}Q68 {31 + 10 * k} 80 {34 + 10 * k}", pen.ink, 2) for k in rows]
    mark = pen.element("path", d="M66 20H74V44L70 39L66 44Z", fill=pen.accent)
    return [left, right, *lines, *([mark] if pen.chance(60) else [])]


def folder(pen: Pen) -> list[str]:
    back = pen.path("M8 24Q8 18 14 18H36L44 28H80Q86 28 86 34V74H8Z", pen.mix(pen.main, pen.ink, 25))
    sheets = [
        pen.element(
            "rect", x=18 + 4 * k, y=26 + 4 * k, width=56, height=36, fill=pen.light, stroke=pen.ink, stroke_width=1
        )
        for k in range(pen.between(1, 2))
    ]
    front = pen.path("M6 44H90L84 80Q83 82 80 82H16Q13 82 12 80Z", pen.main)
    label = pen.box(24, 56, 30, 10, pen.accent, 2)
    return [back, *sheets, front, label]


def monitor(pen: Pen) -> list[str]:
    stand = [pen.path("M40 66H56L60 82H36Z", pen.mix(pen.ink, "#ffffff", 30)), pen.stroke("M28 84H68", pen.ink, 5)]
    case = pen.box(6, 12, 84, 56, pen.ink, 5)
    screen = pen.element("rect", x=12, y=18, width=72, height=42, rx=2, fill=pen.tint)
    content = pen.choose(
        (
            [pen.stroke(f"M20 {26 + 8 * k}H{pen.between(40, 76)}", pen.main) for k in range(4)],
            [pen.element("path", d="M12 60L34 34L48 50L60 40L84 60Z", fill=pen.main), pen.dot(68, 30, 5, pen.accent)],
            [pen.stroke("M22 28L34 39L22 50", pen.main, 4), pen.stroke("M40 51H58", pen.accent, 4)],
        )
    )
    return [*stand, case, screen, *content]


def phone(pen: Pen) -> list[str]:
    case = pen.box(26, 6, 44, 84, pen.ink, pen.between(5, 10))
    screen = pen.element("rect", x=30, y=16, width=36, height=60, fill=pen.tint)
    apps = [
        pen.element(
            "rect",
            x=33 + 11 * column,
            y=20 + 12 * row,
            width=8,
            height=8,
            rx=2,
            fill=(pen.main, pen.accent)[pen.below(2)],
        )
        for row in range(pen.between(2, 4))
        for column in range(3)
    ]
    return [case, screen, *apps, pen.dot(48, 83, 3, pen.light), pen.stroke("M43 11H53", pen.light, 2)]


def crown(pen: Pen) -> list[str]:
    body = pen.path("M14 72L8 28L30 48L48 18L66 48L88 28L82 72Z", pen.accent)
    band = pen.box(14, 72, 68, 11, pen.main, 2)
    balls = [pen.circle(x, y, 5, pen.main) for x, y in ((8, 26), (48, 15), (88, 26))]
    gems = [pen.dot(x, 77, 3, pen.light) for x in (26, 48, 70)]
    return [body, band, *balls, *gems, pen.element("path", d="M48 48L55 58L48 68L41 58Z", fill=pen.ink)]


def hourglass(pen: Pen) -> list[str]:
    glass = pen.path(
        "M26 16H70Q70 40 52 48Q70 56 70 80H26Q26 56 44 48Q26 40 26 16Z", pen.tint if pen.style != "line" else pen.main
    )
    level = pen.between(24, 34)
    sand = [
        pen.element(
            "path",
            d=f"M{22 + level // 3} {level}H{74 - level // 3}Q62 42 48 47Q34 42 {22 + level // 3} {level}Z",
            fill=pen.accent,
        ),
        pen.element("path", d=f"M30 78Q32 {100 - level} 48 {92 - level}Q64 {100 - level} 66 78Z", fill=pen.accent),
    ]
    bars = [pen.box(18, 8, 60, 9, pen.ink, 3), pen.box(18, 79, 60, 9, pen.ink, 3)]
    return [glass, *sand, pen.stroke("M48 47V66", pen.accent, 2), *bars]


def flag(pen: Pen) -> list[str]:
    pole = pen.stroke("M20 8V90", pen.ink, 5)
    cloth = pen.path("M22 14Q36 6 52 14T84 14V56Q68 64 52 56T22 56Z", pen.main)
    kind = pen.choose(("stripe", "disc", "cross"))
    if kind == "stripe":
        marks = [
            pen.element("path", d="M22 28Q36 20 52 28T84 28V42Q68 50 52 42T22 42Z", fill=pen.light),
            pen.dot(53, 35, 5, pen.accent),
        ]
    elif kind == "disc":
        marks = [pen.circle(53, 35, pen.between(9, 13), pen.accent), pen.dot(53, 35, 4, pen.light)]
    else:
        marks = [pen.stroke("M42 14V54M24 35H82", pen.light, 7), pen.stroke("M42 14V54M24 35H82", pen.accent, 3)]
    return [cloth, *marks, pole, pen.dot(20, 8, 5, pen.accent), pen.stroke("M10 90H30", pen.ink, 5)]


def trophy(pen: Pen) -> list[str]:
    handles = pen.element(
        "path", d="M30 20H12Q12 44 34 46M66 20H84Q84 44 62 46", fill="none", stroke=pen.accent, stroke_width=6
    )
    bowl = pen.path("M26 12H70Q70 52 48 58Q26 52 26 12Z", pen.accent)
    foot = [pen.box(44, 56, 8, 16, pen.accent), pen.box(30, 70, 36, 8, pen.main, 2), pen.box(24, 78, 48, 9, pen.ink, 2)]
    mark = pen.element("path", d="M48 20L51 28L60 28L53 34L56 42L48 37L40 42L43 34L36 28L45 28Z", fill=pen.light)
    return [handles, *foot, bowl, mark]


def music(pen: Pen) -> list[str]:
    beam = pen.path("M34 18L82 8V24L34 34Z", pen.main)
    stems = pen.stroke("M36 30V72M80 20V62", pen.main, 5)
    heads = [
        pen.shape("ellipse", pen.main, cx=27, cy=74, rx=12, ry=9),
        pen.shape("ellipse", pen.accent, cx=71, cy=64, rx=12, ry=9),
    ]
    waves = [pen.stroke(f"M{8 + 6 * k} 30Q{14 + 6 * k} 40 {8 + 6 * k} 50", pen.tint, 3) for k in range(2)]
    return [stems, beam, *heads, *(waves if pen.chance(50) else [])]


def calendar(pen: Pen) -> list[str]:
    page = pen.box(10, 18, 76, 68, pen.pale(pen.ink), 6)
    head = pen.element("path", d="M10 38V24Q10 18 16 18H80Q86 18 86 24V38Z", fill=pen.main)
    rings = [pen.stroke(f"M{x} 10V26", pen.ink, 5) for x in (30, 66)]
    marked = pen.below(12)
    days = [
        pen.element(
            "rect",
            x=19 + 16 * (k % 4),
            y=45 + 13 * (k // 4),
            width=10,
            height=8,
            rx=1,
            fill=pen.accent if k == marked else pen.tint,
        )
        for k in range(12)
    ]
    return [page, head, *rings, *days]


def robot(pen: Pen) -> list[str]:
    antenna = [pen.stroke("M48 20V10", pen.ink), pen.dot(48, 8, 5, pen.accent)]
    ears = [pen.box(8, 40, 8, 18, pen.ink, 3), pen.box(80, 40, 8, 18, pen.ink, 3)]
    head = pen.box(16, 20, 64, 54, pen.main, pen.between(6, 16))
    eyes = []
    for x in (34, 62):
        eyes += [pen.circle(x, 42, 9, pen.light), pen.dot(x, 42, pen.between(3, 5), pen.ink)]
    mouth = pen.element("rect", x=32, y=59, width=32, height=7, rx=3, fill=pen.light)
    return [
        *antenna,
        *ears,
        head,
        *eyes,
        mouth,
        pen.stroke("M40 60V66M48 60V66M56 60V66", pen.ink, 2),
        pen.stroke("M34 84H62", pen.accent, 6),
    ]


def flask(pen: Pen) -> list[str]:
    level = pen.between(46, 62)
    glass = pen.path("M38 10H58V36L80 78Q84 88 72 88H24Q12 88 16 78L38 36Z", pen.pale(pen.ink))
    liquid = pen.element(
        "path", d=f"M{64 - level // 2} {level + 8}H{32 + level // 2}L77 80Q79 85 72 85H24Q17 85 19 80Z", fill=pen.main
    )
    bubbles = [
        pen.element("circle", cx=x, cy=y, r=r, fill=pen.tint)
        for x, y, r in ((40, 76, 4), (54, 72, 3), (62, 79, 3), (48, 80, 2))
    ]
    rim = pen.stroke("M34 10H62", pen.ink, 5)
    return [glass, liquid, *bubbles[: pen.between(2, 4)], rim, pen.stroke("M44 16V34", pen.tint, 3)]


MOTIFS = (
    house,
    tower,
    mail,
    car,
    sailboat,
    rocket,
    bulb,
    cup,
    key,
    padlock,
    gift,
    bell,
    camera,
    book,
    folder,
    monitor,
    phone,
    crown,
    hourglass,
    flag,
    trophy,
    music,
    calendar,
    robot,
    flask,
)
