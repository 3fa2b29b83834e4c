"""Parser of the state text ``navigation-json-1`` for the solver, and exact distances in an embedded room.

It is independent of the environment's code and follows the description of the state text. Lengths of an embedded room
are whole millimetres. Every yaw is a multiple of 90 degrees and the agent can step in four directions. Reachable
positions therefore form a lattice around the start, turning never helps, and the fewest turns to the target are the
fewest steps: a breadth-first search from all positions within reach of the target gives the distance of every state. A
simulator's state has no room, only the positions of agent and target.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.errors import LevelError

STEP = 500
"""Length of a movement, mm."""
HALF_WIDTH = 200
"""Half the side of the agent's square footprint, mm."""
HEADROOM = 1800
FOOTROOM = 50
"""Range of heights of the agent, mm; parts outside it are not obstacles."""
HORIZON_STEP, HORIZON_MIN, HORIZON_MAX = 30, -30, 60

TURN_OF_MOVE = {"moveahead": 0, "moveright": 90, "moveback": 180, "moveleft": 270}
"""Direction of each movement relative to the yaw, degrees."""
_VECTORS = {0: (0, 1), 90: (1, 0), 180: (0, -1), 270: (-1, 0)}
"""Steps in x and z per direction."""

MAX_CELLS = 50_000
"""Maximum number of lattice positions of a room, about 100 m x 100 m; a maze of that size takes a few seconds."""
MAX_STATE_CHARS = 1 << 22


class Pose(NamedTuple):
    """Position of the agent in steps from its start, and its orientation in degrees."""

    column: int
    row: int
    yaw: int
    horizon: int


@dataclass(frozen=True, slots=True)
class State:
    """Content of a state text: positions of agent and target on the floor, in metres, and the room if there is one."""

    backend: str
    agent: tuple[float, float]
    target: tuple[float, float]
    start_distance: float
    """Horizontal distance from the agent to the target, metres."""
    room: "Room | None"
    """The embedded room; None for a simulator."""


class Room:
    """Lattice of one embedded level: the free steps, and the fewest steps to success from each position."""

    def __init__(self, raw: Mapping[str, Any], agent: Mapping[str, Any], target: tuple[int, int], reach: float) -> None:
        """Search the level; ``target`` and ``reach``, the largest horizontal distance of a success, are in mm.

        Raises:
            LevelError: a field of the text is missing or invalid.
        """
        self._x, self._z = _millimetres(agent["position"], "x"), _millimetres(agent["position"], "z")
        self._target = target
        width, depth = _millimetres(raw["size"], "x"), _millimetres(raw["size"], "z")
        self.start = Pose(0, 0, _degrees(agent, "rotation") % 360, _degrees(agent, "horizon"))
        if self.start.yaw not in _VECTORS:
            raise LevelError(f"the agent's rotation is {self.start.yaw}; use 0, 90, 180 or 270 in an embedded room")
        if not (0 <= self._x <= width and 0 <= self._z <= depth):
            raise LevelError(f"the agent at x={self._x}, z={self._z} mm is outside of its room of {width} x {depth} mm")
        self._west, self._south = self._x // STEP, self._z // STEP
        columns, rows = self._west + (width - self._x) // STEP + 1, self._south + (depth - self._z) // STEP + 1
        if columns * rows > MAX_CELLS:
            raise LevelError(f"the room of {width} x {depth} mm has more than {MAX_CELLS} places to stand on")
        xs = self._x + STEP * (np.arange(columns) - self._west)
        zs = self._z + STEP * (np.arange(rows) - self._south)
        footprints = _footprints(raw)
        self._east = _free(xs, zs, STEP, 0, width, depth, footprints)
        self._north = _free(xs, zs, 0, STEP, width, depth, footprints)
        near = (xs[:, None] - target[0]) ** 2 + (zs[None, :] - target[1]) ** 2 <= reach**2
        self._turns = _steps_to(near, self._east, self._north)

    def after(self, pose: Pose, action: str) -> tuple[Pose, bool]:
        """Return the pose after an action and whether it succeeded; an unusable action changes nothing."""
        if action in TURN_OF_MOVE:
            right, ahead = _VECTORS[(pose.yaw + TURN_OF_MOVE[action]) % 360]
            column, row = pose.column + min(right, 0), pose.row + min(ahead, 0)
            edges, i, j = self._east if right else self._north, column + self._west, row + self._south
            if not (0 <= i < edges.shape[0] and 0 <= j < edges.shape[1] and edges[i, j]):
                return pose, False
            return pose._replace(column=pose.column + right, row=pose.row + ahead), True
        if action in ("rotateright", "rotateleft"):
            return pose._replace(yaw=(pose.yaw + (90 if action == "rotateright" else 270)) % 360), True
        if action in ("lookup", "lookdown"):
            horizon = pose.horizon + (HORIZON_STEP if action == "lookdown" else -HORIZON_STEP)
            if HORIZON_MIN <= horizon <= HORIZON_MAX:
                return pose._replace(horizon=horizon), True
        return pose, False

    def turns(self, pose: Pose) -> int | None:
        """Return the fewest turns from a pose to success, None if success is unreachable."""
        turns = int(self._turns[pose.column + self._west, pose.row + self._south])
        return None if turns < 0 else turns

    def distance(self, pose: Pose) -> float:
        """Return the horizontal distance to the target, metres."""
        dx = self._x + STEP * pose.column - self._target[0]
        dz = self._z + STEP * pose.row - self._target[1]
        return math.sqrt(dx * dx + dz * dz) / 1000


def _free(
    xs: NDArray[np.int64], zs: NDArray[np.int64], dx: int, dz: int, width: int, depth: int, footprints: list[list[int]]
) -> NDArray[np.bool_]:
    """Return whether the step by ``dx, dz`` from each position (column, row), in either direction, is free."""
    low_x, high_x = xs - HALF_WIDTH, xs + dx + HALF_WIDTH
    low_z, high_z = zs - HALF_WIDTH, zs + dz + HALF_WIDTH
    free = ((low_x >= 0) & (high_x <= width))[:, None] & ((low_z >= 0) & (high_z <= depth))[None, :]
    for x_min, z_min, x_max, z_max in footprints:
        across = (low_x < x_max) & (high_x > x_min)
        along = (low_z < z_max) & (high_z > z_min)
        free[np.ix_(across, along)] = False
    return free


def _steps_to(near: NDArray[np.bool_], east: NDArray[np.bool_], north: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the fewest steps from each position to one of ``near``, -1 if there is none."""
    steps = np.where(near, 0, -1)
    front, number = near, 0
    while front.any():
        number += 1
        reached = np.zeros_like(front)
        reached[1:] |= front[:-1] & east[:-1]
        reached[:-1] |= front[1:] & east[:-1]
        reached[:, 1:] |= front[:, :-1] & north[:, :-1]
        reached[:, :-1] |= front[:, 1:] & north[:, :-1]
        front = reached & (steps < 0)
        steps[front] = number
    return steps


def _footprints(raw: Mapping[str, Any]) -> list[list[int]]:
    """Return ``[x_min, z_min, x_max, z_max]`` of every part at the height of the agent, mm."""
    obstacles = []
    for thing in raw["objects"]:
        for part in thing["parts"]:
            low, high = ([round(1000 * float(value)) for value in part[end]] for end in ("min", "max"))
            if low[1] < HEADROOM and high[1] > FOOTROOM:
                obstacles.append([low[0], low[2], high[0], high[2]])
    return obstacles


def _number(holder: Mapping[str, Any], key: str) -> float:
    value = holder[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e6:
        raise LevelError(f"{key} of the navigation state is {value!r}; expected a number of metres or degrees")
    return float(value)


def _millimetres(holder: Mapping[str, Any], key: str) -> int:
    return round(1000 * _number(holder, key))


def _degrees(agent: Mapping[str, Any], key: str) -> int:
    return round(_number(agent, key))


# Cached, because rollouts of a level are labelled in succession.
@lru_cache(maxsize=64)
def read_state(text: str, threshold: float) -> State:
    """Parse a state text and, if it has one, search its room; a distance of up to ``threshold`` metres is a success.

    Raises:
        LevelError: the text is not ``navigation-json-1``.
    """
    if len(text) > MAX_STATE_CHARS:
        raise LevelError(f"the navigation state has {len(text)} characters; at most {MAX_STATE_CHARS} are read")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LevelError(f"the navigation state is not JSON: {error}; expected navigation-json-1") from error
    try:
        backend, agent, place, goal = raw["backend"], raw["agent"], raw["agent"]["position"], raw["target"]["position"]
        here, there = ((_number(point, "x"), _number(point, "z")) for point in (place, goal))
        if backend != "embedded":
            distance = math.hypot(here[0] - there[0], here[1] - there[1])
            return State(backend, here, there, distance, None)
        room = Room(raw["room"], agent, (_millimetres(goal, "x"), _millimetres(goal, "z")), 1000 * threshold)
        return State(backend, here, there, room.distance(room.start), room)
    except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
        raise LevelError(
            f"the navigation state is not navigation-json-1: {type(error).__name__}: {error}; it needs agent, backend, "
            "target and, for the embedded backend, room"
        ) from error
