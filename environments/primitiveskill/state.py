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
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from ...core.contracts import Fits, check_of, json_object
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
    kind = KINDS.get(str(data.get("task"))) if isinstance(data, dict) else None
    if kind is None:
        raise LevelError(f"the state is {_shown(data)}, expected an object with a task of {', '.join(KINDS)}")
    if misfit := check_of(_schema(kind.name))(data):
        raise LevelError(f"{misfit.field or 'the state'} is {misfit}")
    positions = {item["name"]: _rounded(item["position"]) for item in data["objects"]}
    if list(positions) != list(kind.things):
        raise LevelError(f"objects are {_shown(list(positions))}, expected a list of {', '.join(kind.things)}")
    opening = None if data["drawer"] is None else _micrometres(data["drawer"])
    return SkillState(data["backend"], kind.name, Scene(positions, data["held"], opening), tuple(data["achieved"]))


_Length = Annotated[
    float,
    Fits(
        lambda value: abs(value) <= FARTHEST and abs(_micrometres(value) - value) <= 1e-9,
        f"millimetres in whole micrometres, at most {FARTHEST:g}",
    ),
]


@cache
def _schema(task: str) -> Any:
    """Return the annotation of the states of a task."""
    kind, stages = KINDS[task], len(KINDS[task].stages)
    opening = Annotated[_Length, Fits(lambda value: 0 <= value <= DRAWER_TRAVEL, f"0 to {DRAWER_TRAVEL:g} mm")]
    position = Annotated[list[_Length], Fits(lambda values: len(values) == 3, "three numbers")]
    return json_object(
        achieved=Annotated[list[bool], Fits(lambda flags: len(flags) == stages, f"{stages} times true or false")],
        backend=Literal[EMBEDDED, MANISKILL],
        drawer=opening if task == "drawer" else None,
        held=Literal[(None, *kind.things)],
        objects=list[json_object(name=str, position=position)],
        task=str,
    )


def _micrometres(length: float) -> float:
    return round(1000 * length) / 1000 + 0.0  # never minus zero


def _rounded(point: Point) -> Point:
    x, y, z = point
    return _micrometres(x), _micrometres(y), _micrometres(z)


def _shown(value: Any) -> str:
    return repr(value)[:80]
