"""Child process that runs ManiSkill.

:mod:`~pivot.environments.primitiveskill.maniskill.process` starts it with ``python -m``; its argument is the physics
backend.
"""

import sys
from typing import Any

from ...simulators import Answer, serve
from ..actions import read_primitives
from ..state import parse_state
from ..tasks import Scene


class _Table:
    """Server of the parent's requests, with the table and the hand of the current episode."""

    def __init__(self, physics: str) -> None:
        self._physics = physics
        self._table: Any = None
        self._hand: Any = None

    def answer(self, request: Answer) -> tuple[Answer, bytes]:
        """Answer a request of the parent."""
        what = request["do"]
        if what == "start":
            from .scene import Tabletop  # noqa: PLC0415 - a missing ManiSkill is an answer, not a crash

            self._table = Tabletop(self._physics)
            return {"ready": self._physics}, b""
        if what == "load":
            from .hand import Hand  # noqa: PLC0415

            state = parse_state(request["state"])
            self._table.enter(state, request["camera"])
            self._hand = Hand(self._table, holds=state.scene.in_hand is not None)
            return _answer(state.scene), b""
        if what == "execute":
            (primitive,), _ = read_primitives(request["primitive"])
            self._hand.execute(primitive)
            return _answer(self._table.scene_now()), b""
        frame = self._table.picture()
        return {"picture": list(frame.shape), "type": str(frame.dtype)}, frame.tobytes()


def _answer(scene: Scene) -> Answer:
    """Return a scene as JSON data."""
    objects = {name: list(at) for name, at in scene.positions.items()}
    return {"scene": {"objects": objects, "held": scene.in_hand, "opening": scene.opening}}


if __name__ == "__main__":
    serve(_Table(sys.argv[1]).answer)
