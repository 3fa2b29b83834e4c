"""Primitives of the Panda arm: five phases, each a straight line of the tool centre with a limit of steps.

``pick``: above the point, down, close, lift, home. ``place``: above, down, open, lift, home. ``push``: with closed
fingers above the start, down, straight to the end, lift, home; the hand is turned so that both fingers are side by side
across the direction of the push. Each line starts and ends with zero velocity and acceleration, and commands compensate
in advance for the damping and inertia of the drives: the tool stays within millimetres of its line and ends within
0.2 mm of its end. A downward line or a push ends early if the hand, or the object in it, meets resistance.
"""

import math
from collections.abc import Callable

from ..actions import Primitive
from .arm import Vector, highest, joint_angles, nearest_yaw, reachable
from .scene import CONTROL_RATE, OPEN, SHUT, Tabletop

BELOW_HOME = 0.1
"""Height of a downward line's start below home, metres."""
FAST, DOWN, CAREFUL, PUSHING = 1.0, 0.6, 0.12, 0.4
"""Maximum speed of the tool, metres per second: in the air, down, down near objects, and while pushing."""
ROOM = 0.025
"""Height above surrounding objects at which the tool slows down, metres: fingertips, lag and a margin."""
ARRIVED = 0.0002
"""Distance from a point at which the tool counts as arrived, metres."""
SETTLE_STEPS = 40
"""Maximum number of control steps until the tool arrives, after its line has ended."""
STEADY = 0.00002
"""Speed below which the tool counts as stationary, metres per control step; it is then about 0.1 mm from its end."""
RESISTED, AT_DRAWER, STOPPED = 8.0, 25.0, 40.0
"""Forces against the hand that end a downward line near cubes, a downward line near the apple, and a push, newtons. A
cube weighs 0.3 N; the drawer slides with a few newtons."""
BACK = 0.001
"""Distance that the tool moves back after it was stopped, metres."""
LEAD = 0.1 - 0.5 / CONTROL_RATE
"""Lead time of commands, seconds: damping divided by stiffness of the arm's drives, minus half a control step."""
INERTIA = ((1.5, 0, 0), (0, 2.0, -1.0), (1.3, 0, 0), (0, -1.0, 1.03))
"""Inertia of the arm over the middle of the table divided by the drives' stiffness of 1000, in 1/1000 s^2: correction
of the first four joints' commands (rows) per acceleration of the first, second and fourth joint (columns)."""
LETTING_GO, CLOSING = (0.0, 0.001, 0.001, 0.003, 0.003), 0.0025
"""Distance that each finger opens beyond the object in the first control steps, and that it closes per control step,
metres."""
WIDE = 0.0395
"""Distance of each finger from the middle at which the hand counts as open, metres; it opens to 0.04."""
GRIP_STEPS, REST_STEPS, HOLDING_STEPS = 40, 150, 10
"""Maximum number of control steps for the fingers to open or close, for everything to come to rest, and for closed
fingers to press on an object."""


class Hand:
    """Controller of the arm, for one episode."""

    def __init__(self, table: Tabletop, *, holds: bool) -> None:
        """Start with the hand at home; ``holds`` says whether its fingers have to close on an object."""
        self._table = table
        x, y, z = table.kind.home
        self._home = (x / 1000, y / 1000, z / 1000)
        self._at, self._yaw = self._home, 0.0
        self._aim = self._at
        self._grip, self._held = OPEN, None
        if holds:
            self._grip = SHUT  # at once, or the object would fall
            self._until(lambda: False, HOLDING_STEPS)
            self._held = table.grasped()

    def execute(self, primitive: Primitive) -> None:
        """Execute a primitive, move home, and wait until everything is at rest."""
        x, y, z, *end = (length / 1000 for length in primitive.arguments)
        point = reachable((x, y, z))
        if primitive.name == "push":
            self._push(point, reachable((end[0], end[1], end[2])))
        else:
            self._above(point)
            self._down(point)
            self._fingers(OPEN)  # a pick with an object in the hand drops it at the point first
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
        """Move straight down, slowly near objects."""
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
        """Move the tool along a straight line; stop if the force against it exceeds ``limit`` newtons.

        Unless it was stopped or ``settles`` is false, the tool ends exactly at the end of the line.
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
                # Move back a little along the line: pressing would bend the arm, and the object would slip.
                gone = sum((t - s) * d for t, s, d in zip(self._table.tool, start, along, strict=True)) - BACK
                self._at = _between(start, end, max(gone, 0.0) / length)
                self._aim, self._yaw = self._at, first_yaw + (yaw - first_yaw) * _smooth(step / steps)
                self._settle()
                return
        self._at, self._aim, self._yaw = end, end, yaw
        if settles:
            self._settle()

    def _settle(self) -> None:
        """Correct the tool's position: the weight of an object lowers it by tenths of a millimetre."""
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
        """Open or close the fingers until they stop.

        They open gradually, so that the object is not kicked aside, and close slowly, so that an object which one
        finger touches first does not rotate.
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
        """Command the arm to keep its position for a control step."""
        self._table.command(joint_angles(self._aim, self._yaw), self._grip)

    def _until(self, done: Callable[[], bool], most: int) -> None:
        """Keep the tool's position until ``done`` returns True, for at most ``most`` control steps."""
        for _ in range(most):
            if done():
                return
            self._hold()


def _smooth(share: float) -> float:
    """Return the fraction of the path after a fraction of the time; velocity and acceleration are 0 at both ends."""
    return share * share * share * (10 + share * (6 * share - 15))


def _ahead(before: list[float], now: list[float], after: list[float]) -> list[float]:
    """Return the command that moves the joints to ``now``, given the angles one control step before and after."""
    command = [b + LEAD * CONTROL_RATE * (b - a) for a, b in zip(before, now, strict=True)]
    rates = [(after[j] - 2 * now[j] + before[j]) * CONTROL_RATE * CONTROL_RATE / 1000 for j in (0, 1, 3)]
    for joint, row in enumerate(INERTIA):
        command[joint] += sum(share * rate for share, rate in zip(row, rates, strict=True))
    return command


def _between(start: Vector, end: Vector, share: float) -> Vector:
    x, y, z = (a + (b - a) * share for a, b in zip(start, end, strict=True))
    return x, y, z
