"""State text of navigation, ``navigation-json-1``: the agent's pose, its target, and the room.

The text is canonical JSON (sorted keys, no spaces) in metres and degrees, with the axes of AI2-THOR: x right, z
forward, y up, yaw clockwise from +z seen from above; a positive horizon looks down. The text suffices to compute
distances, blocked moves and the picture without this package::

    {"agent":  {"horizon": 0, "position": {"x": 1.25, "y": 0.9, "z": 2.0}, "rotation": 90},
     "backend": "embedded",                 or "thor"
     "room":   {...},                       embedded only
     "scene":  "kitchen-81a0c3d2",          a name; equal for equal rooms
     "target": {"id": "Apple|+01.300|+00.950|+00.400", "position": {"x":..., "y":..., "z":...}, "type": "Apple"}}

The text does not contain the instruction: the splits ``base`` and ``common_sense`` have equal states. With the backend
``thor`` there is no ``room``, and numbers are stored as the simulator returns them. For ``embedded``, these rules hold.

**Room.** ``{"size": {"x", "y", "z"}, "floor": FINISH, "wall": FINISH, "ceiling": FINISH, "objects": [OBJECT, ...]}``;
the inside spans 0 to ``size`` on each axis. ``FINISH`` is ``{"colour": "#rrggbb", "surface": NAME}``. An ``OBJECT`` is
``{"id", "type", "parts": [PART, ...]}``. A ``PART`` is ``{"min": [x, y, z], "max": [x, y, z], "shape": NAME,
"colour": "#rrggbb", "surface": NAME}``; only the renderer uses its shape, everything else its axis-aligned box. The
target is one of the objects (equal ``id``), the only one of its type, and its ``position`` is the middle of the box
around its parts.

**Exactness.** Lengths are whole millimetres: a reader computes ``round(1000 * value)`` and continues with integers.
``rotation`` is 0, 90, 180 or 270, ``horizon`` -30, 0, 30 or 60.

**Moves.** A movement is 500 mm long; ahead is +z at yaw 0, +x at 90, -z at 180, -x at 270, and right is ahead at
yaw + 90. The agent is an axis-aligned square of 400 mm around its position. A part is an obstacle if ``min.y < 1.8``
and ``max.y > 0.05`` (m). The movement fails, without moving the agent, if the rectangle that the square sweeps
(including its start and its end) leaves the room or overlaps the footprint (x and z) of an obstacle by more than an
edge. ``rotateright`` adds 90 to the yaw. ``lookup`` subtracts 30 from the horizon and fails below -30, ``lookdown``
adds 30 and fails above 60.

**Success.** The horizontal distance from the agent's position to the target's is at most 1500 mm: ``dx*dx + dz*dz <=
1500*1500``. It is checked at the start and after every action; success ends the episode.
"""

import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ...core.errors import LevelError
from ...core.identity import canonical_json
from ..backends import EMBEDDED

THOR = "thor"
MAX_STATE_BYTES = 1_000_000
MAX_PARTS = 4000
"""Maximum number of parts, to bound the time that a malicious state can cost; generated rooms have up to about 300."""
MAX_SIDE = 100.0
"""Longest accepted side of a room, and largest accepted coordinate, metres."""

ROTATIONS = (0, 90, 180, 270)
HORIZONS = (-30, 0, 30, 60)

Point = tuple[int, int, int]
"""x, y, z in millimetres."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Colour and surface of a floor, wall or ceiling."""

    colour: str
    surface: str


@dataclass(frozen=True, slots=True)
class Part:
    """A solid part of an object; lengths in millimetres."""

    low: Point
    high: Point
    shape: str
    colour: str
    surface: str


@dataclass(frozen=True, slots=True)
class RoomObject:
    """A named object made of parts."""

    id: str
    type: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """The geometry of an embedded room; lengths in millimetres."""

    size: Point
    floor: Finish
    wall: Finish
    ceiling: Finish
    objects: tuple[RoomObject, ...]


@dataclass(frozen=True, slots=True)
class Pose:
    """Position and orientation of the agent, metres and degrees, as in the text."""

    x: float
    y: float
    z: float
    rotation: float
    horizon: float


@dataclass(frozen=True, slots=True)
class Target:
    """Object that the agent has to find; metres."""

    type: str
    id: str
    x: float
    y: float
    z: float


@dataclass(frozen=True, slots=True)
class NavigationState:
    """A state; ``room_json`` is the room as canonical JSON, stored as text because it is constant in an episode."""

    backend: str
    scene: str
    pose: Pose
    target: Target
    room_json: str | None = None

    def at(self, pose: Pose) -> "NavigationState":
        """Return the state with the agent at a different pose."""
        return replace(self, pose=pose)

    def text(self) -> str:
        """Return the canonical text."""
        target = self.target
        target_data = {"id": target.id, "position": {"x": target.x, "y": target.y, "z": target.z}, "type": target.type}
        parts = [self.agent_text(), f'"backend":{canonical_json(self.backend)}']
        if self.room_json is not None:
            parts.append(f'"room":{self.room_json}')
        parts += [f'"scene":{canonical_json(self.scene)}', f'"target":{canonical_json(target_data)}']
        return "{" + ",".join(parts) + "}"

    def agent_text(self) -> str:
        """Return the key and value of the text that hold the agent's pose."""
        pose = self.pose
        position = {"x": pose.x, "y": pose.y, "z": pose.z}
        return f'"agent":{canonical_json({"horizon": pose.horizon, "position": position, "rotation": pose.rotation})}'

    def distance(self) -> float:
        """Return the horizontal distance from agent to target, metres.

        With the embedded backend, comparing it with 1.5 m is exact.
        """
        x, z = self.pose.x - self.target.x, self.pose.z - self.target.z
        if self.backend == EMBEDDED:
            return math.sqrt(millimetres(x) ** 2 + millimetres(z) ** 2) / 1000
        return math.sqrt(x * x + z * z)


def millimetres(metres: float) -> int:
    """Return a length of the text in whole millimetres."""
    return round(1000 * metres)


def parse_state(text: object) -> NavigationState:
    """Parse a state text; equal levels give equal states.

    Raises:
        LevelError: the text is not in ``navigation-json-1``.
    """
    if not isinstance(text, str):
        raise LevelError(f"a navigation state is text, not {type(text).__name__}")
    if len(text) > MAX_STATE_BYTES:
        raise LevelError(f"the navigation state has {len(text)} characters; at most {MAX_STATE_BYTES} are read")
    return _parse(text)


@lru_cache(maxsize=64)
def _parse(text: str) -> NavigationState:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LevelError(f"the navigation state is not JSON: {error}") from error
    _keys(data, "the navigation state", {"agent", "backend", "scene", "target"}, {"room"})
    backend = data["backend"]
    if backend not in (EMBEDDED, THOR):
        raise LevelError(f"the navigation state has backend {backend!r}; known: {EMBEDDED}, {THOR}")
    if ("room" in data) != (backend == EMBEDDED):
        raise LevelError(
            f"the navigation state with backend {backend} {'lacks' if backend == EMBEDDED else 'has'} a room"
        )
    scene = _text(data["scene"], "scene")
    agent, sought = data["agent"], data["target"]
    _keys(agent, "agent", {"position", "rotation", "horizon"})
    _keys(sought, "target", {"position", "type", "id"})
    exact = backend == EMBEDDED
    pose = Pose(
        *_position(agent["position"], "agent.position", exact),
        _number(agent["rotation"], "agent.rotation", 1e6),
        _number(agent["horizon"], "agent.horizon", 1e6),
    )
    target = Target(
        _text(sought["type"], "target.type"),
        _text(sought["id"], "target.id"),
        *_position(sought["position"], "target.position", exact),
    )
    if not exact:
        return NavigationState(backend, scene, pose, target)
    if pose.rotation not in ROTATIONS or pose.horizon not in HORIZONS:
        raise LevelError(
            f"the agent's rotation {pose.rotation:g} and horizon {pose.horizon:g} are not of {ROTATIONS} and {HORIZONS}"
        )
    pose = replace(pose, rotation=int(pose.rotation), horizon=int(pose.horizon))
    room_json = canonical_json(data["room"])
    room = parse_room(room_json)
    if not any(item.id == target.id for item in room.objects):
        raise LevelError(f"the target {target.id!r} is not among the objects of the room")
    return NavigationState(backend, scene, pose, target, room_json)


@lru_cache(maxsize=64)
def parse_room(room_json: str) -> Room:
    """Return the room of an embedded state from its canonical JSON.

    Raises:
        LevelError: the text is not a room.
    """
    data = json.loads(room_json)
    _keys(data, "room", {"size", "floor", "wall", "ceiling", "objects"})
    _keys(data["size"], "room.size", {"x", "y", "z"})
    width, height, depth = (_length(data["size"][axis], f"room.size.{axis}") for axis in "xyz")
    if min(width, height, depth) < 1000:
        raise LevelError(f"the room is {width}x{height}x{depth} mm; every side is at least 1000")
    if not isinstance(data["objects"], list):
        raise LevelError("room.objects is not a list")
    objects = tuple(_object(item, index) for index, item in enumerate(data["objects"]))
    if sum(len(item.parts) for item in objects) > MAX_PARTS:
        raise LevelError(f"the room has more than {MAX_PARTS} parts")
    floor, wall, ceiling = (_finish(data[name], f"room.{name}") for name in ("floor", "wall", "ceiling"))
    return Room((width, height, depth), floor, wall, ceiling, objects)


def room_json(room: Room) -> str:
    """Return a room as canonical JSON in metres."""
    size = dict(zip("xyz", (_metres(side) for side in room.size), strict=True))
    return canonical_json(
        {
            "size": size,
            **{name: _finish_data(getattr(room, name)) for name in ("floor", "wall", "ceiling")},
            "objects": [
                {"id": item.id, "type": item.type, "parts": [_part_data(part) for part in item.parts]}
                for item in room.objects
            ],
        }
    )


def metres(point: Point) -> tuple[float, float, float]:
    """Return a point in metres."""
    x, y, z = point
    return _metres(x), _metres(y), _metres(z)


def _metres(length: int) -> float:
    return length / 1000


def _finish_data(finish: Finish) -> dict[str, str]:
    return {"colour": finish.colour, "surface": finish.surface}


def _part_data(part: Part) -> dict[str, Any]:
    return {
        "min": list(metres(part.low)),
        "max": list(metres(part.high)),
        "shape": part.shape,
        "colour": part.colour,
        "surface": part.surface,
    }


def _object(data: Any, index: int) -> RoomObject:
    what = f"room.objects[{index}]"
    _keys(data, what, {"id", "type", "parts"})
    if not isinstance(data["parts"], list) or not data["parts"]:
        raise LevelError(f"{what}.parts is not a list with at least one part")
    parts = tuple(_part(part, f"{what}.parts[{number}]") for number, part in enumerate(data["parts"]))
    return RoomObject(_text(data["id"], f"{what}.id"), _text(data["type"], f"{what}.type"), parts)


def _part(data: Any, what: str) -> Part:
    _keys(data, what, {"min", "max", "shape", "colour", "surface"})
    corners = []
    for name in ("min", "max"):
        if not isinstance(data[name], list) or len(data[name]) != 3:
            raise LevelError(f"{what}.{name} is not a list of three numbers")
        corners.append(tuple(_length(value, f"{what}.{name}") for value in data[name]))
    low, high = corners
    if any(one >= other for one, other in zip(low, high, strict=True)):
        raise LevelError(f"{what} has min {data['min']} not below max {data['max']}")
    shape, surface = _text(data["shape"], f"{what}.shape"), _text(data["surface"], f"{what}.surface")
    return Part(low, high, shape, _colour(data["colour"], what), surface)


def _finish(data: Any, what: str) -> Finish:
    _keys(data, what, {"colour", "surface"})
    return Finish(_colour(data["colour"], what), _text(data["surface"], f"{what}.surface"))


def _colour(value: Any, what: str) -> str:
    text = _text(value, f"{what}.colour")
    if len(text) != 7 or text[0] != "#" or not all(digit in "0123456789abcdef" for digit in text[1:]):
        raise LevelError(f"{what}.colour is {text!r}, expected '#' and six hex digits in lower case")
    return text


def _position(data: Any, what: str, exact: bool) -> tuple[float, float, float]:
    _keys(data, what, {"x", "y", "z"})
    values = [_number(data[axis], f"{what}.{axis}", MAX_SIDE) for axis in "xyz"]
    if exact:
        values = [_metres(_length(value, what)) for value in values]
    return values[0], values[1], values[2]


def _length(value: Any, what: str) -> int:
    number = _number(value, what, MAX_SIDE)
    whole = millimetres(number)
    if abs(number - whole / 1000) > 1e-9:
        raise LevelError(f"{what} is {number!r}; lengths are whole millimetres")
    return whole


def _number(value: Any, what: str, limit: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= limit:
        raise LevelError(f"{what} is {str(value)[:40]!r}, expected a number of at most {limit:g}")
    return float(value)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 200:
        raise LevelError(f"{what} is {str(value)[:40]!r}, expected a text of 1 to 200 characters")
    return value


def _keys(data: Any, what: str, needed: set[str], optional: frozenset[str] | set[str] = frozenset()) -> None:
    if not isinstance(data, dict):
        raise LevelError(f"{what} is {type(data).__name__}, expected an object")
    if missing := sorted(needed - set(data)):
        raise LevelError(f"{what} lacks {missing}")
    if unknown := sorted(set(data) - needed - optional):
        raise LevelError(f"{what} has unknown keys {unknown}")
