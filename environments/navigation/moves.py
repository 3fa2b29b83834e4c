"""Rules of movement in an embedded room, in whole millimetres; ``state.py`` defines them.

Every movement is along an axis, so the square agent sweeps a rectangle, and collision checks compare integers. From a
given start the agent can only reach a lattice of half-metre steps, on which shortest paths are searched. Paths need no
turns, because the agent can step sideways and backwards.
"""

from collections import deque

from .state import Room

STEP = 500
HALF_WIDTH = 200
BODY_LOW, BODY_HIGH = 50, 1800
REACH = 1500
"""Success distance along the floor, millimetres."""

HEADINGS = {0: (0, 1), 90: (1, 0), 180: (0, -1), 270: (-1, 0)}
"""Unit step (x, z) of ``moveahead`` at each yaw."""
TURNS = {"moveahead": 0, "moveright": 90, "moveback": 180, "moveleft": 270}
"""Direction of each movement relative to the agent's yaw, degrees."""

Cell = tuple[int, int]
"""x, z of the agent in millimetres."""


def direction(action: str, rotation: int) -> Cell:
    """Return the unit step (x, z) of a movement at a yaw."""
    return HEADINGS[(rotation + TURNS[action]) % 360]


class Floor:
    """Obstacles of one room at the agent's height."""

    def __init__(self, room: Room) -> None:
        """Collect the footprints of the parts that overlap the agent's height."""
        self._width, _, self._depth = room.size
        self._steps: dict[tuple[Cell, Cell], Cell | None] = {}
        self._obstacles = sorted(
            {
                (part.low[0], part.low[2], part.high[0], part.high[2])
                for item in room.objects
                for part in item.parts
                if part.low[1] < BODY_HIGH and part.high[1] > BODY_LOW
            }
        )

    def is_free(self, low_x: int, low_z: int, high_x: int, high_z: int) -> bool:
        """Return whether a rectangle is inside the room and overlaps no obstacle."""
        if low_x < 0 or low_z < 0 or high_x > self._width or high_z > self._depth:
            return False
        return not any(low_x < x1 and x0 < high_x and low_z < z1 and z0 < high_z for x0, z0, x1, z1 in self._obstacles)

    def can_stand(self, cell: Cell) -> bool:
        """Return whether the agent fits at ``cell``."""
        x, z = cell
        return self.is_free(x - HALF_WIDTH, z - HALF_WIDTH, x + HALF_WIDTH, z + HALF_WIDTH)

    def step(self, cell: Cell, heading: Cell) -> Cell | None:
        """Return the cell after a movement of one step; None if it is blocked."""
        # Cached, because rollouts revisit the same few cells.
        key = cell, heading
        if key not in self._steps:
            self._steps[key] = self._find_step(cell, heading)
        return self._steps[key]

    def _find_step(self, cell: Cell, heading: Cell) -> Cell | None:
        x, z = cell
        new_x, new_z = x + STEP * heading[0], z + STEP * heading[1]
        free = self.is_free(
            min(x, new_x) - HALF_WIDTH,
            min(z, new_z) - HALF_WIDTH,
            max(x, new_x) + HALF_WIDTH,
            max(z, new_z) + HALF_WIDTH,
        )
        return (new_x, new_z) if free else None

    def reachable(self, *starts: Cell, limit: int | None = None) -> dict[Cell, int]:
        """Return the fewest steps from the nearest of ``starts`` to every cell that is reachable in ``limit`` steps."""
        steps = dict.fromkeys(starts, 0)
        queue = deque(steps)
        while queue:
            cell = queue.popleft()
            if limit is not None and steps[cell] >= limit:
                continue
            for heading in HEADINGS.values():
                beside = self.step(cell, heading)
                if beside is not None and beside not in steps:
                    steps[beside] = steps[cell] + 1
                    queue.append(beside)
        return steps


def is_near(cell: Cell, target: Cell) -> bool:
    """Return whether the agent at ``cell`` has reached the target."""
    return (cell[0] - target[0]) ** 2 + (cell[1] - target[1]) ** 2 <= REACH * REACH


def fewest_steps(steps: dict[Cell, int], target: Cell) -> int | None:
    """Return the fewest steps to the target, given the result of :meth:`Floor.reachable`; None if unreachable."""
    return min((count for cell, count in steps.items() if is_near(cell, target)), default=None)


def steps_to_target(floor: Floor, start: Cell, target: Cell) -> dict[Cell, int]:
    """Return the fewest steps to success from every cell of the start's lattice from which success is possible.

    Steps are reversible, so a breadth-first search from all goal cells gives the distances.
    """
    return floor.reachable(*(cell for cell in floor.reachable(start) if is_near(cell, target)))
