"""Embedded world of navigation: an agent in a furnished room, with exact rules of movement and a ray caster."""

from functools import lru_cache

from ...core.errors import LevelError
from ...core.images import Frame
from .moves import TURNS, Floor, direction
from .state import NavigationState, Pose, millimetres, parse_room
from .view.scene import draw_view, scene_of
from .world import World

_LOWEST, _HIGHEST, _TILT = -30, 60, 30  # degrees: AI2-THOR's limits of the horizon, and the angle of one action


@lru_cache(maxsize=64)
def floor_of(room_json: str) -> Floor:
    """Return the obstacles of a room."""
    return Floor(parse_room(room_json))


def check_room(state: NavigationState) -> str:
    """Return the room of an embedded state as JSON.

    Raises:
        LevelError: the room cannot be drawn, or the agent's eye is outside it.
    """
    if state.room_json is None:
        raise LevelError(f"the navigation state has backend {state.backend!r}, which has no embedded room")
    size = parse_room(state.room_json).size
    place = state.pose.x, state.pose.y + 0.675, state.pose.z
    if not all(0 < millimetres(at) < side for at, side in zip(place, size, strict=True)):
        raise LevelError(f"the agent at {place} (its eye, metres) is outside the room of {size} mm")
    scene_of(state.room_json)
    return state.room_json


class RoomWorld(World):
    """An embedded room; see the module docstring."""

    def __init__(self) -> None:
        """Create a world without a room; call ``load`` before any other method."""
        self._state: NavigationState | None = None
        self._room = ""
        self._floor: Floor | None = None

    def load(self, state: NavigationState) -> None:
        """Load a state; see the base class."""
        room = check_room(state)
        self._floor = floor_of(room)
        self._state, self._room = state, room

    @property
    def state(self) -> NavigationState:
        """The current state."""
        if self._state is None:
            raise RuntimeError("no state has been loaded")
        return self._state

    def act(self, action: str) -> bool:
        """Execute an action by the rules of ``moves.py``; return whether it succeeded."""
        pose = self._after(action, self.state.pose)
        if pose is None:
            return False
        self._state = self.state.at(pose)
        return True

    def _after(self, action: str, pose: Pose) -> Pose | None:
        rotation = int(pose.rotation)
        if action in TURNS:
            assert self._floor is not None
            cell = millimetres(pose.x), millimetres(pose.z)
            arrived = self._floor.step(cell, direction(action, rotation))
            if arrived is None:
                return None
            return Pose(arrived[0] / 1000, pose.y, arrived[1] / 1000, pose.rotation, pose.horizon)
        if action in ("rotateright", "rotateleft"):
            turned = (rotation + (90 if action == "rotateright" else 270)) % 360
            return Pose(pose.x, pose.y, pose.z, turned, pose.horizon)
        horizon = int(pose.horizon) + (_TILT if action == "lookdown" else -_TILT)
        if not _LOWEST <= horizon <= _HIGHEST:
            return None
        return Pose(pose.x, pose.y, pose.z, pose.rotation, horizon)

    def draw(self) -> Frame:
        """Draw the agent's view."""
        return draw_view(self._room, self.state.pose)[0]

    def frame_key(self) -> Pose:
        """Return the pose; frames of a level depend on nothing else."""
        return self.state.pose
