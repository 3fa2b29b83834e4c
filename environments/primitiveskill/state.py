"""State text of the tabletop, ``primitiveskill-json-1``: the task and the positions of all objects.

The text is canonical JSON (sorted keys, no spaces), lengths in millimetres, in the frame of ``tasks.py``::

    {"achieved": [true, false, false],          stages achieved so far, in the order of the task
     "backend":  "embedded",                    or "maniskill"
     "drawer":   null,                          or its opening
     "held":     "red cube",                    or null
     "objects":  [{"name": "red cube", "position": [-40.0, 35.5, 350.0]}, ...],   in the order of the task
     "task":     "stack"}

The arm is at its home pose in every state, because every primitive ends there. Positions are centres, in whole
micrometres. A level is an initial state: every object is at rest, none is held, and no stage is achieved.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

from ...core.errors import LevelError
from ...core.identity import canonical_json
from ..backends import EMBEDDED
from .tasks import DRAWER_TRAVEL, KINDS, Point, Scene, TaskKind

MANISKILL = "maniskill"
MAX_STATE_BYTES = 10_000
FARTHEST = 5000.0
"""Largest accepted coordinate, millimetres."""


@dataclass(frozen=True, slots=True)
class SkillState:
    """A state of the tabletop."""

    backend: str
    task: str
    scene: Scene
    achieved: tuple[bool, ...]

    @property
    def kind(self) -> TaskKind:
        """The constants of the task."""
        return KINDS[self.task]

    def text(self) -> str:
        """Return the state as ``primitiveskill-json-1``."""
        scene = self.scene
        return canonical_json(
            {
                "achieved": list(self.achieved),
                "backend": self.backend,
                "drawer": scene.opening,
                "held": scene.in_hand,
                "objects": [{"name": name, "position": list(at)} for name, at in scene.positions.items()],
                "task": self.task,
            }
        )


def settled(scene: Scene) -> Scene:
    """Return the scene rounded to whole micrometres, as in state texts."""
    positions = {name: _rounded(at) for name, at in scene.positions.items()}
    return Scene(positions, scene.in_hand, None if scene.opening is None else _micrometres(scene.opening))


def parse_state(text: object) -> SkillState:
    """Parse a state text.

    Raises:
        LevelError: the text is not in ``primitiveskill-json-1``; the message names the field.
    """
    if not isinstance(text, str):
        raise LevelError(f"the state is {type(text).__name__}, expected primitiveskill-json-1 text")
    if len(text) > MAX_STATE_BYTES:
        raise LevelError(f"the state has {len(text)} characters, at most {MAX_STATE_BYTES} are read")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LevelError(f"the state is not JSON: {error}") from error
    _keys(data, "the state", {"achieved", "backend", "drawer", "held", "objects", "task"})
    if data["backend"] not in (EMBEDDED, MANISKILL):
        raise LevelError(f"backend is {_shown(data['backend'])}, expected {EMBEDDED} or {MANISKILL}")
    if not isinstance(data["task"], str) or data["task"] not in KINDS:
        raise LevelError(f"task is {_shown(data['task'])}, expected one of {', '.join(KINDS)}")
    kind = KINDS[data["task"]]
    positions = _positions(data["objects"], kind)
    in_hand, achieved = data["held"], data["achieved"]
    if in_hand is not None and in_hand not in kind.things:
        raise LevelError(f"held is {_shown(in_hand)}, expected null or one of {', '.join(kind.things)}")
    if not isinstance(achieved, list) or [type(flag) for flag in achieved] != [bool] * len(kind.stages):
        raise LevelError(f"achieved is {_shown(achieved)}, expected {len(kind.stages)} times true or false")
    opening = data["drawer"]
    if kind.name == "drawer":
        opening = _length(opening, "drawer")
        if not 0 <= opening <= DRAWER_TRAVEL:
            raise LevelError(f"drawer is open by {opening} mm, expected 0 to {DRAWER_TRAVEL:g}")
    elif opening is not None:
        raise LevelError(f"drawer is {_shown(opening)}, but the task {kind.name} has none; expected null")
    return SkillState(data["backend"], kind.name, Scene(positions, in_hand, opening), tuple(achieved))


def _positions(data: Any, kind: TaskKind) -> dict[str, Point]:
    if not isinstance(data, list) or len(data) != len(kind.things):
        raise LevelError(f"objects is {_shown(data)}, expected a list of {', '.join(kind.things)}")
    positions: dict[str, Point] = {}
    for index, (item, name) in enumerate(zip(data, kind.things, strict=True)):
        what = f"objects[{index}]"
        _keys(item, what, {"name", "position"})
        if item["name"] != name:
            raise LevelError(f"{what} is named {_shown(item['name'])}, expected {name!r}")
        if not isinstance(item["position"], list) or len(item["position"]) != 3:
            raise LevelError(f"{what}.position is {_shown(item['position'])}, expected three numbers")
        x, y, z = (_length(value, f"{what}.position") for value in item["position"])
        positions[name] = (x, y, z)
    return positions


def _length(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= FARTHEST:
        raise LevelError(f"{what} is {_shown(value)}, expected millimetres, at most {FARTHEST:g}")
    if not math.isclose(_micrometres(value), value, rel_tol=0, abs_tol=1e-9):
        raise LevelError(f"{what} is {value!r}; lengths are whole micrometres")
    return _micrometres(value)


def _micrometres(length: float) -> float:
    return round(1000 * length) / 1000 + 0.0  # never minus zero


def _rounded(point: Point) -> Point:
    x, y, z = point
    return _micrometres(x), _micrometres(y), _micrometres(z)


def _keys(data: Any, what: str, needed: set[str]) -> None:
    if not isinstance(data, dict) or set(data) != needed:
        keys = sorted(map(str, data)) if isinstance(data, dict) else type(data).__name__
        raise LevelError(f"{what} has {_shown(keys)}, expected an object with {', '.join(sorted(needed))}")


def _shown(value: Any) -> str:
    return repr(value)[:80]


__all__ = ["EMBEDDED", "MANISKILL", "SkillState", "parse_state", "settled"]
