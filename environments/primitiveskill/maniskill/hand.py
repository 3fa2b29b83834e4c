"""The primitives of the Panda: five phases, each a straight line of the tool centre with a limit of steps.

``pick``: above the point, down, close, lift, home. ``place``: above, down, open, lift, home. ``push``: with closed
fingers above the start, down, straight to the end, lift, home; the hand is turned so that its two fingers stand side
by side across the way. The tool follows a profile without jerk at either end, and the drives are told ahead what
damping and inertia will hold back; so the tool stays within millimetres of its line and ends within a fifth of one. A
way down ends early where the hand or what it holds meets resistance, and so does a push that is stopped.
"""

import math
from collections.abc import Callable

from ..actions import Primitive
from .arm import Vector, highest, joint_angles, nearest_yaw, reachable
from .scene import CONTROL_RATE, OPEN, SHUT, Tabletop

BELOW_HOME = 0.1
"""Metres by which the hand comes lower than home before it goes straight down to a point."""
FAST, DOWN, CAREFUL, PUSHING = 1.0, 0.6, 0.12, 0.4
"""Top speed of the tool, metres a second: in the air, down, down among things, and along the table."""
ROOM = 0.025
"""Metres that the tool is higher than what is around where it gets careful: fingertips, a lag, and some more."""
ARRIVED = 0.0002
"""Metres from a point at which the tool has arrived."""
SETTLE_STEPS = 40
"""Control steps that the tool may take to arrive after its line has ended."""
STEADY = 0.00002
"""Metres a control step below which the tool counts as standing; what is left of its way is then a tenth of one mm."""
RESISTED, AT_DRAWER, STOPPED = 8.0, 25.0, 40.0
"""Newtons against the hand that end a way down, among cubes and where an apple may roll aside, and a push. A cube
weighs 0.3, the drawer slides with a few."""
BACK = 0.001
"""Metres that the tool goes back along its way then."""
LEAD = 0.1 - 0.5 / CONTROL_RATE
"""Seconds: damping over stiffness of the arm's drives, less half a control step, for which a command already holds."""
INERTIA = ((1.5, 0, 0), (0, 2.0, -1.0), (1.3, 0, 0), (0, -1.0, 1.03))
"""Of the arm in the middle of the table over the drives' stiffness of 1000, in 1/1000 s^2: how much the first four
joints' commands (rows) need for the acceleration of the first, second and fourth (columns)."""
LETTING_GO, CLOSING = (0.0, 0.001, 0.001, 0.003, 0.003), 0.0025
"""Metres beyond what it holds to which each finger goes in the first control steps of opening, and by which each
closes in a control step."""
WIDE = 0.0395
"""Metres of each finger from the middle from which the hand counts as open; it opens to 0.04."""
GRIP_STEPS, REST_STEPS, HOLDING_STEPS = 40, 150, 10
"""Control steps at most for the fingers to close or open, and for everything to come to rest; and for fingers that lie
on a thing to press on it."""


class Hand:
    """Moves the arm of a table that has just been entered."""

    def __init__(self, table: Tabletop, *, holds: bool) -> None:
        """Take over a hand at home; ``holds`` says whether its fingers have to close on something."""
        self._table = table
        x, y, z = table.kind.home
        self._home = (x / 1000, y / 1000, z / 1000)
        self._at, self._yaw = self._home, 0.0
        self._aim = self._at
        self._grip, self._held = OPEN, None
        if holds:
            self._grip = SHUT  # at once: what is to be held would fall
            self._until(lambda: False, HOLDING_STEPS)
            self._held = table.grasped()

    def execute(self, primitive: Primitive) -> None:
        """Execute a primitive and go home; wait until everything is at rest."""
        x, y, z, *end = (length / 1000 for length in primitive.arguments)
        point = reachable((x, y, z))
        if primitive.name == "push":
            self._push(point, reachable((end[0], end[1], end[2])))
        else:
            self._above(point)
            self._down(point)
            self._fingers(OPEN)  # a pick lets go of what is held where it closes
            if primitive.name == "pick":
                self._fingers(SHUT)
        self._above(self._at, self._yaw)
        self._line(self._home, FAST)
        self._held = self._table.grasped()
        if self._held is None:
            self._fingers(OPEN)
        self._until(lambda: not self._table.moving(), REST_STEPS)

    def _push(self, start: Vector, end: Vector) -> None:
        self._fingers(SHUT)
        dx, dy = end[0] - start[0], end[1] - start[1]
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2, start[2])
        yaw = nearest_yaw(middle, math.atan2(dy, dx)) if dx or dy else 0.0
        self._above(start, yaw)
        self._down(start, yaw)
        self._line(end, PUSHING, STOPPED, yaw)

    def _above(self, point: Vector, yaw: float = 0.0) -> None:
        x, y, z = point
        lowest_free = max(z, self._home[2] - BELOW_HOME)
        self._line((x, y, max(z, min(lowest_free, highest(x, y)))), FAST, yaw=yaw, settles=False)

    def _down(self, point: Vector, yaw: float = 0.0) -> None:
        """Go straight down, slowly where something could be in the way."""
        x, y, z = point
        limit = AT_DRAWER if self._table.kind.name == "drawer" else RESISTED
        careful_from = self._table.height_around(x, y, self._held) + self._table.depth(self._held) + ROOM
        if z < careful_from < self._at[2]:
            self._line((x, y, careful_from), DOWN, limit, yaw, settles=False)
            if self._at != (x, y, careful_from):
                return
            self._line(point, CAREFUL, limit, yaw)
        else:
            self._line(point, DOWN if z >= careful_from else CAREFUL, limit, yaw)

    def _line(
        self, end: Vector, speed: float, limit: float = math.inf, yaw: float = 0.0, *, settles: bool = True
    ) -> None:
        """Move the tool along a straight line; stop where more than ``limit`` newtons stand against it.

        Where it was not stopped it ends exactly at the end, unless ``settles`` is false.
        """
        start, first_yaw = self._at, self._yaw
        length = math.dist(start, end)
        along = [(b - a) / length if length else 0.0 for a, b in zip(start, end, strict=True)]
        steps = math.ceil(CONTROL_RATE * max(1.875 * length / speed, 0.1 + 0.4 * abs(yaw - first_yaw)))

        def angles(step: int) -> list[float]:
            share = _smooth(min(max(step / steps, 0.0), 1.0))
            return joint_angles(_between(start, end, share), first_yaw + (yaw - first_yaw) * share)

        before, now = angles(-1), angles(0)
        for step in range(1, steps + 1):
            before, now, after = now, angles(step), angles(step + 1)
            self._table.command(_ahead(before, now, after), self._grip)
            force = self._table.resistance(self._held) if limit < math.inf else (0.0, 0.0, 0.0)
            if -sum(f * d for f, d in zip(force, along, strict=True)) > limit:
                # Stay on the line, a little back: pressing bends the arm aside, and what it holds would slip.
                gone = sum((t - s) * d for t, s, d in zip(self._table.tool, start, along, strict=True)) - BACK
                self._at = _between(start, end, max(gone, 0.0) / length)
                self._aim, self._yaw = self._at, first_yaw + (yaw - first_yaw) * _smooth(step / steps)
                self._settle()
                return
        self._at, self._aim, self._yaw = end, end, yaw
        if settles:
            self._settle()

    def _settle(self) -> None:
        """Bring the tool to where it should be: what it holds weighs it down by tenths of a millimetre."""
        before = self._table.tool
        for _ in range(SETTLE_STEPS):
            self._hold()
            here = self._table.tool
            if math.dist(here, before) < STEADY:
                if math.dist(here, self._at) < ARRIVED:
                    return
                x, y, z = (aim + at - now for aim, at, now in zip(self._aim, self._at, here, strict=True))
                self._aim = x, y, z
            before = here

    def _fingers(self, command: float) -> None:
        """Open or close the fingers, until they stand still.

        They let go little by little, and close slowly: what is squeezed would be kicked aside otherwise, and what is
        met by one finger first would turn.
        """
        between = sum(self._table.fingers) / 2
        if command > self._grip:
            ramp = [between + opened for opened in LETTING_GO]
        else:
            ramp = [between - CLOSING * step for step in range(1, math.ceil((between - command) / CLOSING))]
        for self._grip in ramp:
            self._hold()
        self._grip = command
        seen = [self._table.fingers]

        def done() -> bool:
            seen.append(self._table.fingers)
            if command == OPEN and min(seen[-1]) > WIDE:
                return True
            return len(seen) > 3 and math.dist(seen[-1], seen[-2]) < 1e-5

        self._until(done, GRIP_STEPS)

    def _hold(self) -> None:
        """Command the arm to stay for a control step."""
        self._table.command(joint_angles(self._aim, self._yaw), self._grip)

    def _until(self, done: Callable[[], bool], most: int) -> None:
        """Hold the tool where it is until something holds, for some steps at most."""
        for _ in range(most):
            if done():
                return
            self._hold()


def _smooth(share: float) -> float:
    """Return how much of the way is done after a share of the time: velocity and acceleration are 0 at both ends."""
    return share * share * share * (10 + share * (6 * share - 15))


def _ahead(before: list[float], now: list[float], after: list[float]) -> list[float]:
    """Return what to command so that the joints are at ``now``, given the angles a control step before and after."""
    command = [b + LEAD * CONTROL_RATE * (b - a) for a, b in zip(before, now, strict=True)]
    rates = [(after[j] - 2 * now[j] + before[j]) * CONTROL_RATE * CONTROL_RATE / 1000 for j in (0, 1, 3)]
    for joint, row in enumerate(INERTIA):
        command[joint] += sum(share * rate for share, rate in zip(row, rates, strict=True))
    return command


def _between(start: Vector, end: Vector, share: float) -> Vector:
    x, y, z = (a + (b - a) * share for a, b in zip(start, end, strict=True))
    return x, y, z


__all__ = ["Hand"]
