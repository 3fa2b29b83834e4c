"""Generator of furnished kitchens, living rooms, bedrooms, bathrooms and studies with small objects in them.

Each kind of room is a short program over a layout that places furniture along walls, in the open, or next to other
furniture. Only ``rng.random()`` is used, so a seed gives the same room on every machine.
"""

import random
from collections.abc import Callable, Sequence

from ....core.identity import digest
from ...grid import pick
from ..state import Finish, Room, RoomObject
from .catalogue import DATA, KINDS, THINGS, Names, Thing, choose, colour, furniture, number, palette
from .layout import HEIGHT, Layout, attached
from .parts import Item, Placed, Slot, between, shuffled


def furnish(rng: random.Random, kind: str) -> tuple[Room, list[RoomObject]]:
    """Return a room of a kind, and the objects in it that can be targets (each the only one of its type)."""
    data = DATA["rooms"][kind]
    width, depth = number(rng, data["size"], {}), number(rng, data["size"], {})
    layout = Layout(rng, width, depth)
    plan = Plan(layout, palette(rng))
    plan.openings()
    _PROGRAMS[kind](plan)
    plan.decorate()
    targets = [placed.as_object() for placed in _things(layout, kind)]
    floor, wall = (_finish(choose(rng, data[name])) for name in ("floors", "walls"))
    objects = [placed.as_object() for placed in layout.placed] + targets
    size = layout.width, HEIGHT, layout.depth
    return Room(size, floor, wall, Finish("#f4f2ec", "plain"), tuple(_with_distinct_ids(objects))), targets


def _finish(text: str) -> Finish:
    paint, surface = text.split(" ")
    return Finish(f"#{paint}", surface)


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


class Plan:
    """A layout and the colours of its furniture."""

    def __init__(self, layout: Layout, colours: Names) -> None:
        """Begin with an empty room."""
        self.layout, self.rng, self.colours = layout, layout.rng, colours

    def item(self, name: str, into: Item | None = None, **names: int) -> Item:
        """Return a piece of furniture."""
        return furniture(name, self.rng, self.colours | names, into)

    def wall(self, *names: str, odds: float = 1.0) -> None:
        """Place furniture along walls, each piece with a probability."""
        for name in names:
            if odds == 1.0 or self.rng.random() < odds:
                self.layout.on_wall(self.item(name))

    def open(self, *names: str, margin: int = 620) -> None:
        """Place furniture in the open."""
        for name in names:
            self.layout.in_the_open(self.item(name), margin)

    def chance(self, odds: float) -> bool:
        """Return True with a probability."""
        return self.rng.random() < odds

    def openings(self) -> None:
        """Add a door with free floor in front of it, and one or two windows."""
        layout, rng = self.layout, self.rng
        walls = shuffled(rng, range(4))
        door = self.item("door")
        offset = between(rng, 300, layout.wall_length(walls[0]) - 1260, 50)
        layout.placed.append(layout.against(door, walls[0], offset))
        layout.hang(walls[0], offset - 60, offset + 1020, 0)
        layout.taken.append(layout.against(Item("Clearance", 960, 1100), walls[0], offset).footprint())
        for wall in walls[1 : 2 + pick(rng, 2)]:
            width = between(rng, 1100, min(2000, layout.wall_length(wall) - 1200), 100)
            window = self.item("window", w=width)
            offset = between(rng, 500, layout.wall_length(wall) - width - 500, 50)
            if self.chance(0.7):
                self.item("curtains", window, w=width)
            layout.placed.append(layout.against(window, wall, offset, 960))
            layout.hang(wall, offset - 280, offset + width + 280, 920)

    def decorate(self) -> None:
        """Hang pictures and a clock, and a lamp from the ceiling."""
        layout = self.layout
        for name, bottom in (("picture", 1350), ("picture", 1350), ("picture", 1350), ("wall_clock", 1800)):
            layout.on_bare_wall(self.item(name), bottom)
        lamp = self.item("ceiling_lamp")
        layout.placed.append(Placed(lamp, layout.width // 2 - 230, layout.depth // 2 - 230, HEIGHT - 400, 0))

    def rug(self, leader: Placed, x: int, z: int, width: int, depth: int) -> None:
        """Lay a rug at a position in the coordinates of other furniture."""
        paint = colour(choose(self.rng, DATA["rugs"]), self.colours)
        rug = furniture("rug", self.rng, self.colours | {"w": width, "d": depth, "hue": paint})
        self.layout.lay(attached(leader, rug, x, z))

    def dining(self) -> None:
        """Place a table with chairs around it."""
        table = self.layout.in_the_open(self.item("table"), 900) or self.layout.in_the_open(self.item("table"))
        if table is None:
            return
        width, depth = table.item.width, table.item.depth
        for x in (width // 4 - 220, 3 * width // 4 - 220):
            for z, turn in ((-240, 0), (depth - 220, 2)):
                if self.chance(0.85):
                    self.layout.beside(table, self.item("chair"), x, z, turn, tucked=True)
        if self.chance(0.5):
            self.rug(table, -400, -500, width + 800, depth + 1000)

    def desk(self) -> None:
        """Place a desk with its chair."""
        desk = self.layout.on_wall(self.item("desk"))
        if desk is not None:
            self.layout.beside(desk, self.item("chair"), 250, desk.item.depth - 160, 2, tucked=True)


def _kitchen(plan: Plan) -> None:
    plan.wall("counter", "sink")
    cooker = plan.layout.on_wall(plan.item("stove"))
    if cooker is not None:
        plan.layout.placed.append(attached(cooker, plan.item("hood"), 0, 0))
    plan.wall("fridge", "counter")
    if plan.chance(0.4):
        plan.open("island")
    else:
        plan.dining()
    plan.layout.on_bare_wall(plan.item("wall_cupboard"), 1450)
    plan.wall("plant", odds=0.5)


def _living_room(plan: Plan) -> None:
    layout = plan.layout
    if plan.chance(0.35):
        plan.open("divider", margin=700)
    seat = layout.on_wall(plan.item("sofa"))
    if seat is not None:
        low = plan.item("coffee_table")
        layout.beside(seat, low, (seat.item.width - low.width) // 2, seat.item.depth + 420)
        plan.rug(seat, 0, seat.item.depth - 150, seat.item.width, 1500)
        if layout.on_wall(plan.item("tv_bench"), [(seat.turn + 2) % 4]) is None:
            plan.wall("tv_bench")
    plan.wall("bookcase", "floor_lamp", "armchair", "plant")
    if plan.chance(0.5):
        plan.dining()
    else:
        plan.open("round_table", "stool")


def _bedroom(plan: Plan) -> None:
    bed = plan.layout.on_wall(plan.item("bed"))
    if bed is not None:
        for x in (-500, bed.item.width + 40):
            plan.layout.beside(bed, plan.item("night_table"), x, 0)
        plan.rug(bed, -350, 1300, bed.item.width + 700, 1200)
    plan.wall("wardrobe", "dresser")
    plan.desk()
    plan.wall("plant")
    plan.wall("floor_lamp", "armchair", "bookcase", odds=0.6)
    if plan.chance(0.6):
        plan.open("stool")


def _bathroom(plan: Plan) -> None:
    tub = plan.layout.on_wall(plan.item("bathtub"))
    if tub is not None:
        plan.rug(tub, 400, tub.item.depth + 40, 900, 600)
    plan.wall("washbasin", "toilet", "washing_machine")
    plan.wall("shower", odds=0.7)
    plan.wall("basket", "bookcase", "plant", "dresser", odds=0.55)
    if plan.chance(0.7):
        plan.open("stool")


def _study(plan: Plan) -> None:
    if plan.chance(0.5):
        plan.open("divider", margin=700)
    plan.desk()
    plan.wall("bookcase", "bookcase", "armchair", "dresser")
    table = plan.layout.in_the_open(plan.item("coffee_table"), 700)
    if table is not None:
        plan.rug(table, -500, -500, table.item.width + 1000, table.item.depth + 1000)
    plan.wall("floor_lamp", "plant")
    if plan.chance(0.5):
        plan.open("round_table")


_PROGRAMS: dict[str, Callable[[Plan], None]] = dict(
    zip(KINDS, (_kitchen, _living_room, _bedroom, _bathroom, _study), strict=True)
)


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
