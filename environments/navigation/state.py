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
import re
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Annotated, Any

from ...core.contracts import Fits, check_of, json_object
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


_Number = Annotated[float, Fits(lambda value: abs(value) <= 1e6, "a number of at most 1e6")]
_Metres = Annotated[float, Fits(lambda value: abs(value) <= MAX_SIDE, f"a number of at most {MAX_SIDE:g}")]
_Length = Annotated[
    float,
    Fits(
        lambda value: abs(value) <= MAX_SIDE and abs(value - millimetres(value) / 1000) <= 1e-9,
        f"a number of at most {MAX_SIDE:g} in whole millimetres",
    ),
]
_Side = Annotated[
    _Length, Fits(lambda value: millimetres(value) >= 1000, "a side of at least 1000 mm, in whole millimetres")
]
_Corner = Annotated[list[_Length], Fits(lambda values: len(values) == 3, "three numbers")]
_Name = Annotated[str, Fits(lambda text: 0 < len(text) <= 200, "a text of 1 to 200 characters")]
_Colour = Annotated[
    str, Fits(lambda text: bool(re.fullmatch("#[0-9a-f]{6}", text)), "'#' and six hex digits in lower case")
]
_Finish = json_object(colour=_Colour, surface=_Name)
_Part = Annotated[
    json_object(min=_Corner, max=_Corner, shape=_Name, colour=_Colour, surface=_Name),
    Fits(lambda part: all(map(float.__lt__, map(float, part["min"]), map(float, part["max"]))), "min below max"),
]
_Object = json_object(id=_Name, type=_Name, parts=Annotated[list[_Part], Fits(bool, "at least one part")])
_Room = json_object(
    size=json_object(x=_Side, y=_Side, z=_Side),
    floor=_Finish,
    wall=_Finish,
    ceiling=_Finish,
    objects=Annotated[
        list[_Object],
        Fits(
            lambda items: sum(len(item["parts"]) for item in items) <= MAX_PARTS, f"a list of at most {MAX_PARTS} parts"
        ),
    ],
)


def _state(length: Any, **more: Any) -> Any:
    """Return the schema of a state whose positions are made of lengths of a kind."""
    position = json_object(x=length, y=length, z=length)
    agent = json_object(position=position, rotation=_Number, horizon=_Number)
    target = json_object(position=position, type=_Name, id=_Name)
    return json_object(agent=agent, target=target, backend=str, scene=_Name, **more)


_STATES = {EMBEDDED: _state(_Length, room=dict[str, Any]), THOR: _state(_Metres)}


def _check(schema: Any, data: Any, what: str) -> None:
    if misfit := check_of(schema)(data):
        raise LevelError(f"{what}{'.' * bool(misfit.field)}{misfit.field} is {misfit}")


@lru_cache(maxsize=64)
def _parse(text: str) -> NavigationState:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LevelError(f"the navigation state is not JSON: {error}") from error
    backend = data.get("backend") if isinstance(data, dict) else None
    if backend not in (EMBEDDED, THOR):
        raise LevelError(
            f"the navigation state has the backend {str(backend)[:40]!r}, expected an object with {EMBEDDED} or {THOR}"
        )
    _check(_STATES[backend], data, "the navigation state")
    agent, sought, exact = data["agent"], data["target"], backend == EMBEDDED
    here, there = (
        [millimetres(each["position"][axis]) / 1000 if exact else float(each["position"][axis]) for axis in "xyz"]
        for each in (agent, sought)
    )
    turned = [int(agent[name]) if exact else float(agent[name]) for name in ("rotation", "horizon")]
    pose, target = Pose(*here, *turned), Target(sought["type"], sought["id"], *there)
    if not exact:
        return NavigationState(backend, data["scene"], pose, target)
    if agent["rotation"] not in ROTATIONS or agent["horizon"] not in HORIZONS:
        raise LevelError(
            f"the agent's rotation {agent['rotation']:g} and horizon {agent['horizon']:g} are not of {ROTATIONS} and "
            f"{HORIZONS}"
        )
    room_json = canonical_json(data["room"])
    if not any(item.id == target.id for item in parse_room(room_json).objects):
        raise LevelError(f"the target {target.id!r} is not among the objects of the room")
    return NavigationState(backend, data["scene"], pose, target, room_json)


@lru_cache(maxsize=64)
def parse_room(room_json: str) -> Room:
    """Return the room of an embedded state from its canonical JSON.

    Raises:
        LevelError: the text is not a room.
    """
    data = json.loads(room_json)
    _check(_Room, data, "room")

    def point(values: list[float]) -> Point:
        x, y, z = map(millimetres, values)
        return x, y, z

    objects = tuple(
        RoomObject(
            item["id"],
            item["type"],
            tuple(
                Part(point(part["min"]), point(part["max"]), part["shape"], part["colour"], part["surface"])
                for part in item["parts"]
            ),
        )
        for item in data["objects"]
    )
    floor, wall, ceiling = (Finish(**data[name]) for name in ("floor", "wall", "ceiling"))
    return Room(point([data["size"][axis] for axis in "xyz"]), floor, wall, ceiling, objects)


def room_json(room: Room) -> str:
    """Return a room as canonical JSON in metres."""
    data = asdict(room)
    data["size"] = dict(zip("xyz", metres(room.size), strict=True))
    for part in (part for item in data["objects"] for part in item["parts"]):
        part["min"], part["max"] = metres(part.pop("low")), metres(part.pop("high"))
    return canonical_json(data)


def metres(point: Point) -> tuple[float, float, float]:
    """Return a point in metres."""
    x, y, z = point
    return x / 1000, y / 1000, z / 1000
