"""Embedded tabletop: pick, place and push as rules about boxes instead of a physics engine.

Objects have no mass or velocity. The hand moves down until it touches something, grasps the object between its fingers
together with everything stacked on it, releases it at the given point, and shoves obstacles aside. A released object
falls straight down; it stays if its centre is above its support and topples off otherwise. The tray carries its
contents.

The rules use plain arithmetic and whole micrometres, so results are equal on every machine. docs/internals/measured.md
compares them with ManiSkill's physics.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from ....core.errors import LevelError
from ....core.images import Frame
from ..actions import Primitive
from ..state import SkillState, settled
from ..tasks import CABINET_BOXES, DRAWER_BOXES, DRAWER_TRAVEL, Box, Point, Scene, TaskKind
from ..view.picture import draw_scene
from ..world import CAMERAS, CameraName, World
from .boxes import TOUCH, above_each_other, box_around, collision, half_side, highest_under, overlap, shifted
from .hand import FINGER_HALF_WIDTH, OPEN, PALM, core, fingers, grasped, lowest_reach, slip

HELD_ABOVE = {"align": 250.0, "place": 250.0, "stack": 250.0, "drawer": 400.0}
"""Height above which an object is in the hand at home, millimetres, per task."""
HELD_REACH = 100.0
"""Largest distance of the held object's centre from the hand along each axis, millimetres."""
MOST_FALLS = 8
"""Maximum number of times that an object topples before it stays."""
ROLLS = {"cube": 18.0, "apple": 0.0}
"""Distance from its former support at which a toppled object comes to rest if there is room: a cube tips over."""
EDGE = {"cube": 0.0, "apple": 12.0}
"""Minimum distance of an object's centre from the edge of its support; with less, it topples."""


@dataclass(frozen=True, slots=True)
class _Mover:
    """Boxes that move in a shove, from time ``start`` (0 to 1) with ``velocity`` (displacement from time 0 to 1)."""

    boxes: list[Box]
    velocity: Point
    start: float
    thing: str | None = None


class Table:
    """Objects on a table, with or without a drawer, and the arm above them; see the module docstring."""

    def __init__(self, kind: TaskKind, scene: Scene) -> None:
        """Set the positions without checking that they are stable; see :meth:`problem`."""
        self.kind = kind
        self._at, self._held, self._opening = dict(scene.positions), scene.in_hand, scene.opening
        high = [name for name in self._at if name != scene.in_hand and self._at[name][2] > HELD_ABOVE[kind.name]]
        # The object in the hand, then the objects stacked on it.
        self._carried = [] if scene.in_hand is None else [scene.in_hand, *high]

    @property
    def scene(self) -> Scene:
        """The current scene."""
        return Scene(dict(self._at), self._held, self._opening)

    def execute(self, primitive: Primitive) -> None:
        """Execute a primitive and move home; positions are then rounded to whole micrometres."""
        x, y, z = (float(value) for value in primitive.arguments[:3])
        if primitive.name == "pick":
            self._pick((x, y, z))
        elif primitive.name == "place":
            self._release((x, y, z))
        else:
            ex, ey, ez = (float(value) for value in primitive.arguments[3:])
            self._push((x, y, z), (ex, ey, ez))
        self._settle()
        scene = settled(Scene(self._at, self._held, self._opening))
        self._at, self._opening = dict(scene.positions), scene.opening

    # --- primitives --------------------------------------------------------------------------------------------------

    def _pick(self, place: Point) -> None:
        """Move down, open the fingers (which releases an object in the hand), close them, and lift what they grasp."""
        if self._held is not None:
            hand = self._release(place)
            self._settle()
        else:
            things = [core(name, box_around(name, self._at[name])) for name in self._free()]
            parts = (*fingers(OPEN), PALM)
            hand = place[0], place[1], lowest_reach(parts, [*things, *self._furniture()], place)
        thing = grasped(self._at, hand)
        if thing is None:
            return
        group = [thing, *self._standing_on(thing)]
        self._close(hand, thing, group)
        home = self.kind.home
        for name in group:
            self._move(name, (home[0] - hand[0], home[1] - hand[1], home[2] - hand[2]))
        self._held = thing

    def _close(self, hand: Point, thing: str, group: list[str]) -> None:
        """Close the fingers on an object: they centre it along y, with the objects on it that they reach.

        Obstacles of these objects or of the fingers are shoved aside.
        """
        low, high = hand[0] - FINGER_HALF_WIDTH, hand[0] + FINGER_HALF_WIDTH
        off_x, off_y = self._at[thing][0] - hand[0], self._at[thing][1] - hand[1]
        aside = slip(thing, off_x, off_y)
        movers = []
        for name in group:
            box = self._box(name)
            centred = name if box[0][0] < high and low < box[1][0] else thing
            movers.append(_Mover([box], (aside, hand[1] - self._at[centred][1], 0.0), 0.0, name))
        self._shove(movers)
        self._carried = group
        self._spread(hand, OPEN, half_side(thing))

    def _spread(self, hand: Point, before: float, after: float) -> None:
        """Move both fingers from one distance to another and shove obstacles."""
        for finger, way in zip(fingers(before), (before - after, after - before), strict=True):
            self._shove([_Mover([shifted(finger, hand)], (0.0, way, 0.0), 0.0)])

    def _release(self, place: Point) -> Point:
        """Move down and release the object in the hand; return the hand's position. Do nothing if the hand is empty."""
        if self._held is None:
            return place
        home = self.kind.home
        parts = self._hand_parts()
        hand = place[0], place[1], lowest_reach(parts, self._solids(), place)
        for name in self._carried:
            self._move(name, (hand[0] - home[0], hand[1] - home[1], hand[2] - home[2]))
        inner = half_side(self._held)
        self._held, self._carried = None, []
        self._settle()
        self._spread(hand, inner, OPEN)
        return hand

    def _push(self, start: Point, end: Point) -> None:
        """Move down with closed fingers, then straight to the end, and shove obstacles."""
        parts = self._hand_parts()
        start = start[0], start[1], lowest_reach(parts, self._solids(), start)
        way = end[0] - start[0], end[1] - start[1], end[2] - start[2]
        self._shove([_Mover([shifted(part, start) for part in parts], way, 0.0)])

    # --- positions ---------------------------------------------------------------------------------------------------

    def _box(self, thing: str) -> Box:
        return box_around(thing, self._at[thing])

    def _free(self) -> list[str]:
        """Return the objects that are not in the hand."""
        return [name for name in self._at if name not in self._carried]

    def _drawer(self) -> list[Box]:
        """Return the sliding parts of the drawer at their current position."""
        if self._opening is None:
            return []
        return [shifted(box, (0.0, self._opening, 0.0)) for box in DRAWER_BOXES]

    def _furniture(self) -> list[Box]:
        return [] if self._opening is None else [*self._drawer(), *CABINET_BOXES]

    def _solids(self) -> list[Box]:
        return [*map(self._box, self._free()), *self._furniture()]

    def _hand_parts(self) -> list[Box]:
        """Return the closed hand and the objects in it, relative to the tool centre."""
        home = self.kind.home
        hanging = [shifted(self._box(name), (-home[0], -home[1], -home[2])) for name in self._carried]
        return [*fingers(0.0 if self._held is None else half_side(self._held)), PALM, *hanging]

    def _move(self, thing: str, by: Point) -> None:
        x, y, z = self._at[thing]
        self._at[thing] = x + by[0], y + by[1], z + by[2]

    def _standing_on(self, thing: str) -> list[str]:
        """Return the objects that an object carries: those whose centre is above it, and the objects on them."""
        group, queue = [], [thing]
        while queue:
            below = self._box(queue.pop())
            for name in self._free():
                x, y, _ = self._at[name]
                stands = abs(self._box(name)[0][2] - below[1][2]) <= TOUCH
                if stands and name not in group and below[0][0] <= x <= below[1][0] and below[0][1] <= y <= below[1][1]:
                    group.append(name)
                    queue.append(name)
        return group

    def _in_tray(self) -> list[str]:
        """Return the objects that the drawer carries: all that stand on a part of it."""
        drawer = self._drawer()
        return [
            name
            for name in self._free()
            if any(
                abs(self._box(name)[0][2] - box[1][2]) <= TOUCH and above_each_other(self._box(name), box)
                for box in drawer
            )
        ]

    # --- shoving -----------------------------------------------------------------------------------------------------

    def _shove(self, movers: list[_Mover]) -> None:
        """Move objects and parts of the hand together, with everything that they hit, until something stops them.

        An object that is hit moves on with what hit it, horizontally; the drawer slides only along y. The cabinet, the
        end of the drawer's slide, and a collision from above or below stop everything.
        """
        end = 1.0
        while (met := self._next_meeting(movers)) is not None and met[0] < end:
            when, axis, mover, what = met
            moving = {mover.thing for mover in movers}
            vx, vy, _ = mover.velocity
            if what == "drawer" and axis == 1:
                opening = self._opening or 0.0
                room = opening if vy < 0 else DRAWER_TRAVEL - opening
                end = min(end, when + room / abs(vy))
                along = (0.0, vy, 0.0)
                movers.append(_Mover(self._drawer(), along, when, "drawer"))
                movers += [
                    _Mover([self._box(name)], along, when, name) for name in self._in_tray() if name not in moving
                ]
            elif what in self._at and axis != 2:
                names = [what, *self._standing_on(what)]
                movers += [_Mover([self._box(name)], (vx, vy, 0.0), when, name) for name in names if name not in moving]
            else:
                end = when
        for mover in movers:
            part = max(end - mover.start, 0.0)
            x, y, z = mover.velocity
            if mover.thing == "drawer" and self._opening is not None:
                self._opening = min(max(self._opening + part * y, 0.0), DRAWER_TRAVEL)
            elif mover.thing is not None:
                self._move(mover.thing, (part * x, part * y, part * z))

    def _next_meeting(self, movers: list[_Mover]) -> tuple[float, int, _Mover, str] | None:
        """Return the next time at which a mover hits a box at rest, along which axis, and which box."""
        best: tuple[float, int, _Mover, str] | None = None
        moving = {mover.thing for mover in movers}
        for what, box in self._resting(moving):
            for mover in movers:
                for part in mover.boxes:
                    met = collision(part, mover.velocity, box)
                    if met is not None and (best is None or mover.start + met[0] < best[0]):
                        best = mover.start + met[0], met[1], mover, what
        return best

    def _resting(self, moving: set[str | None]) -> Iterator[tuple[str, Box]]:
        for name in self._free():
            if name not in moving:
                yield name, self._box(name)
        if self._opening is not None:
            if "drawer" not in moving:
                yield from (("drawer", box) for box in self._drawer())
            yield from (("cabinet", box) for box in CABINET_BOXES)

    # --- falling -----------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Let all objects outside the hand fall until they rest, from bottom to top."""
        for name in sorted(self._free(), key=lambda name: self._at[name][2]):
            self._fall(name)

    def _fall(self, thing: str) -> None:
        shape = "apple" if thing == "apple" else "cube"
        half = half_side(thing)
        others = [self._box(name) for name in self._free() if name != thing]
        others += self._furniture()
        for _ in range(MOST_FALLS):
            box = self._box(thing)
            top, supports = highest_under(others, box)
            x, y, _ = self._at[thing]
            self._at[thing] = x, y, top + half
            if not supports:
                return
            beside = _beside(self._box(thing), supports, EDGE[shape], ROLLS[shape], others)
            if beside is None:
                return
            self._at[thing] = beside

    def problem(self) -> str | None:
        """Return why the objects are not at rest, or None; objects without support have then fallen."""
        high = HELD_ABOVE[self.kind.name]
        for name, at in self._at.items():
            if (name in self._carried) != (at[2] > high):
                return f"{name} is at z = {at[2]:g}; what is held is above {high:g} mm, and nothing else is"
        if self._held is not None:
            for place, hand in zip(self._at[self._held], self.kind.home, strict=True):
                if abs(place - hand) > HELD_REACH:
                    return f"{self._held} is held, but more than {HELD_REACH:g} mm from the hand at {self.kind.home}"
        for name in self._at:
            others = {other: self._box(other) for other in self._at if other > name}
            for other, box in [*others.items(), *(("the drawer", box) for box in self._furniture())]:
                if overlap(self._box(name), box):
                    return f"{name} and {other} overlap"
        before = dict(self._at)
        self._settle()
        for name, at in before.items():
            if any(abs(a - b) > TOUCH for a, b in zip(at, self._at[name], strict=True)):
                return f"{name} does not rest where it is: from {at} it would come to {self._at[name]}"
        return None


def _beside(box: Box, supports: list[Box], edge: float, rolls: float, others: list[Box]) -> Point | None:
    """Return the position from which an object that topples off ``supports`` falls; None if it stays.

    It stays if its centre is above the bounding rectangle of all supported areas. Otherwise it topples to the side
    where its centre is farthest out, ``rolls`` beyond the edge or directly next to it, or to another side if that
    space is occupied.
    """
    centre = tuple((low + high) / 2 for low, high in zip(*box, strict=True))
    sides: list[tuple[float, int, int]] = []
    for axis in (0, 1):
        low = max(box[0][axis], min(support[0][axis] for support in supports)) + edge
        high = min(box[1][axis], max(support[1][axis] for support in supports)) - edge
        sides += [(centre[axis] - high, axis, 1), (low - centre[axis], axis, -1)]
    sides.sort(key=lambda side: -side[0])
    if sides[0][0] < 0:
        return None
    for _, axis, sign in sides:
        half = (box[1][axis] - box[0][axis]) / 2
        edges = [support[1 if sign > 0 else 0][axis] for support in supports]
        for far in (half + rolls, half):
            at = list(centre)
            at[axis] = (max(edges) if sign > 0 else min(edges)) + sign * far
            by = tuple(new - old for new, old in zip(at, centre, strict=True))
            if not any(overlap(shifted(box, (by[0], by[1], by[2])), other) for other in others):
                return at[0], at[1], at[2]
    return None


class TabletopWorld(World):
    """Embedded world: a :class:`Table` and its renderer."""

    def __init__(self, camera: CameraName = "near") -> None:
        """Create a world without a table; call ``load`` before any other method."""
        self._camera: CameraName = camera
        self._table: Table | None = None

    def load(self, state: SkillState) -> None:
        """Load a state; see the base class."""
        check_rest(state)
        self._table = Table(state.kind, state.scene)

    @property
    def scene(self) -> Scene:
        """The current scene."""
        return self._loaded.scene

    def execute(self, primitive: Primitive) -> None:
        """Execute one primitive; see the base class."""
        self._loaded.execute(primitive)

    def draw(self) -> Frame:
        """Return the camera's picture."""
        kind = self._loaded.kind
        return draw_scene(kind, self.scene, CAMERAS[self._camera][kind.name])

    def frame_key(self) -> Hashable:
        """Return everything that a frame of a level depends on."""
        scene = self.scene
        return scene.in_hand, scene.opening, tuple(scene.positions.values())

    @property
    def _loaded(self) -> Table:
        if self._table is None:
            raise RuntimeError("no table is loaded; call load() first")
        return self._table


def check_rest(state: SkillState) -> None:
    """Check that all objects of a state are at rest.

    Raises:
        LevelError: an object hovers, overlaps another, or would fall; the message names it.
    """
    if problem := Table(state.kind, state.scene).problem():
        raise LevelError(problem)
