"""Generator of furnished kitchens, living rooms, bedrooms, bathrooms and studies with small objects in them.

Each kind of room is a short program over a layout that places furniture along walls, in the open, or next to other
furniture. Only ``rng.random()`` is used, so a seed gives the same room on every machine.
"""

import random
from collections.abc import Callable, Sequence

from ....identity import digest
from ...grid import pick
from ..state import Finish, Room, RoomObject
from . import furniture
from .furniture import Palette
from .layout import HEIGHT, Layout, attached
from .parts import Item, Placed, Slot, between, choice, shuffled
from .things import ALL, THINGS, Thing

_WOODS = (
    ("#b07a48", "#70482c"),
    ("#c89a64", "#8a6238"),
    ("#8a5a36", "#54341e"),
    ("#d8bc90", "#a0845c"),
    ("#6a4630", "#42291a"),
)
_CLOTHS = ("#6a7a94", "#8c5a54", "#5a7a62", "#9a8a70", "#4a6a80", "#8a6a90", "#b0a898", "#a05a3c")
_ACCENTS = ("#d08a30", "#3a8a8a", "#b84a5a", "#5a8a4a", "#c8b048", "#4a5aa0", "#a86a9a")
_FRONTS = ("#e4e0d8", "#8aa4b0", "#a8b49a", "#c8b8a0", "#5a6a74", "#d8d4cc", "#b06a4a")
_FLOORS = {
    "kitchen": (("#c8c0b4", "tiles"), ("#9aa0a4", "tiles"), ("#b07c4c", "planks"), ("#d8ccb4", "tiles")),
    "living room": (("#b8844c", "planks"), ("#8a5c38", "planks"), ("#c49a68", "herringbone"), ("#a89c8c", "carpet")),
    "bedroom": (("#c09060", "planks"), ("#b4a898", "carpet"), ("#98a4ac", "carpet"), ("#c8a880", "herringbone")),
    "bathroom": (("#b8c4c8", "tiles"), ("#d8d8d4", "tiles"), ("#8c989c", "tiles"), ("#c4b8a4", "tiles")),
    "study": (("#8e5e38", "herringbone"), ("#a87444", "planks"), ("#7c6a5c", "carpet")),
}
_WALLS = {
    "kitchen": (("#e8e0cc", "plain"), ("#dce4e0", "plain"), ("#e4dcd0", "bricks"), ("#ecd8b4", "plain")),
    "living room": (
        ("#e0d4c0", "plain"),
        ("#c8d0cc", "plain"),
        ("#d8c8b8", "stripes"),
        ("#b4c0b0", "plain"),
        ("#e4cfc0", "plain"),
    ),
    "bedroom": (("#d4dce4", "plain"), ("#e4d8dc", "stripes"), ("#dcd4c4", "plain"), ("#c4d0c4", "stripes")),
    "bathroom": (("#dce8ec", "bricks"), ("#e8e8e4", "bricks"), ("#c8dcd8", "bricks"), ("#e4dcd4", "bricks")),
    "study": (("#c8b8a0", "plain"), ("#a8b4a8", "stripes"), ("#d0c4b0", "plain"), ("#b0a8b8", "plain")),
}
_SIZES = {
    "kitchen": (4400, 6000),
    "living room": (5000, 7000),
    "bedroom": (4600, 6400),
    "bathroom": (4000, 5400),
    "study": (4600, 6200),
}


def furnish(rng: random.Random, kind: str) -> tuple[Room, list[RoomObject]]:
    """Return a room of a kind, and the objects in it that can be targets (each the only one of its type)."""
    low, high = _SIZES[kind]
    layout = Layout(rng, between(rng, low, high, 100), between(rng, low, high, 100))
    wood, dark = _WOODS[pick(rng, len(_WOODS))]
    palette = Palette(wood, dark, choice(rng, _CLOTHS), choice(rng, _ACCENTS), choice(rng, _FRONTS))
    _openings(layout, palette)
    _PROGRAMS[kind](layout, palette)
    _decorate(layout, palette)
    targets = [placed.as_object() for placed in _things(layout, kind)]
    floor_colour, floor = _FLOORS[kind][pick(rng, len(_FLOORS[kind]))]
    wall_colour, wall = _WALLS[kind][pick(rng, len(_WALLS[kind]))]
    objects = [placed.as_object() for placed in layout.placed] + targets
    room = Room(
        (layout.width, HEIGHT, layout.depth),
        Finish(floor_colour, floor),
        Finish(wall_colour, wall),
        Finish("#f4f2ec", "plain"),
        tuple(_with_distinct_ids(objects)),
    )
    return room, targets


def scene_name(kind: str, room_json: str) -> str:
    """Return the name of a room: its kind and a digest of its contents."""
    return f"{kind.replace(' ', '-')}-{digest(room_json, length=8)}"


def _with_distinct_ids(objects: Sequence[RoomObject]) -> list[RoomObject]:
    """Append numbers to ids that occur more than once."""
    seen: dict[str, int] = {}
    distinct: list[RoomObject] = []
    for item in objects:
        seen[item.id] = seen.get(item.id, 0) + 1
        number = seen[item.id]
        distinct.append(item if number == 1 else RoomObject(f"{item.id}|{number}", item.type, item.parts))
    return distinct


# --- walls, floor and ceiling ----------------------------------------------------------------------------------------


def _openings(layout: Layout, palette: Palette) -> None:
    """Add a door with free floor in front of it, and one or two windows."""
    rng = layout.rng
    walls = shuffled(rng, range(4))
    door = Item("Doorway", 960, 40)
    for x in (0, 900):
        door.add((x, 0, 0), (x + 60, 2100, 40), "#f0ece4")
    door.add((60, 2040, 0), (900, 2100, 40), "#f0ece4")
    door.add((60, 0, 0), (900, 2040, 25), choice(rng, ("#e4dccc", palette.wood, palette.dark)), "door")
    door.add((800, 960, 20), (850, 1010, 80), "#c8a850", "metal", "ellipsoid")
    offset = between(rng, 300, layout.wall_length(walls[0]) - 1260, 50)
    placed = layout.against(door, walls[0], offset)
    layout.placed.append(placed)
    layout.hang(walls[0], offset - 60, offset + 1020, 0)
    clear = Item("Clearance", 960, 1100)
    layout.taken.append(layout.against(clear, walls[0], offset).footprint())
    for wall in walls[1 : 2 + pick(rng, 2)]:
        width = between(rng, 1100, min(2000, layout.wall_length(wall) - 1200), 100)
        window = Item("Window", width, 60)
        window.add((0, 0, 0), (width, 1150, 30), "#ffffff", "window").add(
            (-60, -50, 0), (width + 60, 0, 110), "#f4f2ee"
        )
        offset = between(rng, 500, layout.wall_length(wall) - width - 500, 50)
        if rng.random() < 0.7:
            for x in (-260, width + 20):
                window.add((x, -450, 5), (x + 240, 1240, 70), palette.accent, "stripes")
        layout.placed.append(layout.against(window, wall, offset, 960))
        layout.hang(wall, offset - 280, offset + width + 280, 920)


def _decorate(layout: Layout, palette: Palette) -> None:
    """Hang pictures and a clock, and a lamp from the ceiling."""
    rng = layout.rng
    for _ in range(3):
        width = between(rng, 600, 1200, 100)
        picture = Item("Painting", width, 30)
        picture.add((0, 0, 0), (width, width * 7 // 10, 30), choice(rng, _ACCENTS), "painting")
        layout.on_bare_wall(picture, 1350)
    clock = Item("WallClock", 340, 40)
    clock.add((0, 0, 0), (340, 340, 30), palette.dark).add((20, 20, 30), (320, 320, 40), "#f4f2e8", "clock")
    layout.on_bare_wall(clock, 1800)
    lamp = Item("CeilingLamp", 460, 460)
    lamp.add((222, 220, 222), (238, 400, 238), "#404040").add((0, 0, 0), (460, 230, 460), "#f6ecd0", "glow", "shade")
    layout.placed.append(Placed(lamp, layout.width // 2 - 230, layout.depth // 2 - 230, HEIGHT - 400, 0))


def _rug(layout: Layout, palette: Palette, leader: Placed, x: int, z: int, width: int, depth: int) -> None:
    rug = Item("Rug", width, depth)
    rug.add(
        (0, 0, 0), (width, 12, depth), choice(layout.rng, (palette.accent, palette.cloth, "#a04840", "#48688a")), "rug"
    )
    layout.lay(attached(leader, rug, x, z))


# --- furniture, kind by kind -----------------------------------------------------------------------------------------


def _kitchen(layout: Layout, palette: Palette) -> None:
    rng = layout.rng
    for maker in (furniture.counter, furniture.sink):
        layout.on_wall(maker(rng, palette))
    cooker = layout.on_wall(furniture.stove(rng, palette))
    if cooker is not None:
        layout.placed.append(attached(cooker, furniture.hood(rng, palette), 0, 0))
    for maker in (furniture.fridge, furniture.counter):
        layout.on_wall(maker(rng, palette))
    if rng.random() < 0.4:
        layout.in_the_open(furniture.island(rng, palette))
    else:
        _dining(layout, palette)
    layout.on_bare_wall(_lowered(furniture.wall_cupboard(rng, palette), 1450), 1450)
    if rng.random() < 0.5:
        layout.on_wall(furniture.plant(rng, palette))


def _lowered(item: Item, bottom: int) -> Item:
    """Return an item moved down so that its lowest part is at height 0; ``bottom`` is the height at which it hangs."""
    lowered = Item(item.type, item.width, item.depth)
    for part in item.parts:
        (x0, y0, z0), (x1, y1, z1) = part.low, part.high
        lowered.add((x0, y0 - bottom, z0), (x1, y1 - bottom, z1), part.colour, part.surface, part.shape)
    return lowered


def _dining(layout: Layout, palette: Palette) -> None:
    rng = layout.rng
    table = layout.in_the_open(furniture.table(rng, palette), 900) or layout.in_the_open(furniture.table(rng, palette))
    if table is None:
        return
    width, depth = table.item.width, table.item.depth
    for x in (width // 4 - 220, 3 * width // 4 - 220):
        if rng.random() < 0.85:
            layout.beside(table, furniture.chair(rng, palette), x, -240, 0, tucked=True)
        if rng.random() < 0.85:
            layout.beside(table, furniture.chair(rng, palette), x, depth - 220, 2, tucked=True)
    if rng.random() < 0.5:
        _rug(layout, palette, table, -400, -500, width + 800, depth + 1000)


def _living_room(layout: Layout, palette: Palette) -> None:
    rng = layout.rng
    if rng.random() < 0.35:
        layout.in_the_open(furniture.divider(rng, palette), 700)
    seat = layout.on_wall(furniture.sofa(rng, palette))
    if seat is not None:
        low = furniture.coffee_table(rng, palette)
        layout.beside(seat, low, (seat.item.width - low.width) // 2, seat.item.depth + 420)
        _rug(layout, palette, seat, 0, seat.item.depth - 150, seat.item.width, 1500)
        opposite = (seat.turn + 2) % 4
        if layout.on_wall(furniture.tv_bench(rng, palette), [opposite]) is None:
            layout.on_wall(furniture.tv_bench(rng, palette))
    layout.on_wall(furniture.bookcase(rng, palette))
    layout.on_wall(furniture.floor_lamp(rng, palette))
    layout.on_wall(furniture.armchair(rng, palette))
    layout.on_wall(furniture.plant(rng, palette))
    if rng.random() < 0.5:
        _dining(layout, palette)
    else:
        layout.in_the_open(furniture.round_table(rng, palette))
        layout.in_the_open(furniture.stool(rng, palette))


def _bedroom(layout: Layout, palette: Palette) -> None:
    rng = layout.rng
    bed = layout.on_wall(furniture.bed(rng, palette))
    if bed is not None:
        for x in (-500, bed.item.width + 40):
            layout.beside(bed, furniture.night_table(rng, palette), x, 0)
        _rug(layout, palette, bed, -350, 1300, bed.item.width + 700, 1200)
    for maker in (furniture.wardrobe, furniture.dresser):
        layout.on_wall(maker(rng, palette))
    _desk(layout, palette)
    layout.on_wall(furniture.plant(rng, palette))
    for maker in (furniture.floor_lamp, furniture.armchair, furniture.bookcase):
        if rng.random() < 0.6:
            layout.on_wall(maker(rng, palette))
    if rng.random() < 0.6:
        layout.in_the_open(furniture.stool(rng, palette))


def _desk(layout: Layout, palette: Palette) -> None:
    desk = layout.on_wall(furniture.desk(layout.rng, palette))
    if desk is not None:
        seat = furniture.chair(layout.rng, palette)
        layout.beside(desk, seat, 250, desk.item.depth - 160, 2, tucked=True)


def _bathroom(layout: Layout, palette: Palette) -> None:
    rng = layout.rng
    tub = layout.on_wall(furniture.bathtub(rng, palette))
    if tub is not None:
        _rug(layout, palette, tub, 400, tub.item.depth + 40, 900, 600)
    for maker in (furniture.washbasin, furniture.toilet, furniture.washing_machine):
        layout.on_wall(maker(rng, palette))
    if rng.random() < 0.7:
        layout.on_wall(furniture.shower(rng, palette))
    for maker in (furniture.basket, furniture.bookcase, furniture.plant, furniture.dresser):
        if rng.random() < 0.55:
            layout.on_wall(maker(rng, palette))
    if rng.random() < 0.7:
        layout.in_the_open(furniture.stool(rng, palette))


def _study(layout: Layout, palette: Palette) -> None:
    rng = layout.rng
    if rng.random() < 0.5:
        layout.in_the_open(furniture.divider(rng, palette), 700)
    _desk(layout, palette)
    for maker in (furniture.bookcase, furniture.bookcase, furniture.armchair, furniture.dresser):
        layout.on_wall(maker(rng, palette))
    table = layout.in_the_open(furniture.coffee_table(rng, palette), 700)
    if table is not None:
        _rug(layout, palette, table, -500, -500, table.item.width + 1000, table.item.depth + 1000)
    layout.on_wall(furniture.floor_lamp(rng, palette))
    layout.on_wall(furniture.plant(rng, palette))
    if rng.random() < 0.5:
        layout.in_the_open(furniture.round_table(rng, palette))


_PROGRAMS: dict[str, Callable[[Layout, Palette], None]] = {
    "kitchen": _kitchen,
    "living room": _living_room,
    "bedroom": _bedroom,
    "bathroom": _bathroom,
    "study": _study,
}


# --- small objects ---------------------------------------------------------------------------------------------------


def _things(layout: Layout, kind: str) -> list[Placed]:
    """Place small objects in free slots and on the floor, each class at most once."""
    rng = layout.rng
    at_home = [thing for thing in THINGS if kind in thing.kinds]
    order = [at_home[index] for index in shuffled(rng, range(len(at_home)))]
    slots = [(placed, slot) for placed in layout.placed for slot in placed.item.slots]
    free = [slots[index] for index in shuffled(rng, range(len(slots)))]
    things: list[Placed] = []
    for thing in order:
        placed = _on_floor(layout, thing) if thing.on_floor else _on_furniture(rng, thing, free)
        if placed is not None:
            things.append(placed)
    return things[: 4 + pick(rng, 5)]


def _on_furniture(rng: random.Random, thing: Thing, free: list[tuple[Placed, Slot]]) -> Placed | None:
    for index, (leader, slot) in enumerate(free):
        spare_x, spare_z = slot.width - thing.width, slot.depth - thing.depth
        if spare_x >= 0 and spare_z >= 0:
            del free[index]
            x = slot.x - slot.width // 2 + between(rng, 0, spare_x, 10)
            z = slot.z - slot.depth // 2 + between(rng, spare_z // 3, spare_z, 10)
            standing = attached(leader, thing.make(rng), x, z)
            return Placed(standing.item, standing.x, standing.z, leader.y + slot.y, standing.turn)
    return None


def _on_floor(layout: Layout, thing: Thing) -> Placed | None:
    item = thing.make(layout.rng)
    for _ in range(12):
        x = between(layout.rng, 60, layout.width - item.width - 60, 50)
        z = between(layout.rng, 60, layout.depth - item.depth - 60, 50)
        placed = Placed(item, x, z, 0, pick(layout.rng, 4))
        rectangle = placed.footprint(50)
        near_wall = min(rectangle[0], rectangle[1], layout.width - rectangle[2], layout.depth - rectangle[3]) < 500
        if near_wall and layout.is_free(rectangle):
            layout.taken.append(rectangle)
            return placed
    return None


__all__ = ["ALL", "furnish", "scene_name"]
