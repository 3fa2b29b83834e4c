"""The child process that holds ManiSkill: reads requests from its standard input, answers on its standard output.

Started by :mod:`~pivot.environments.primitiveskill.maniskill.process` as ``python -m``; its argument is the
physics backend. A request is JSON, an answer JSON too, and a picture's pixels follow its answer; every part has its
length before it. Anything else that a library prints goes to the standard error.
"""

import json
import os
import struct
import sys
from typing import Any, BinaryIO

from ..actions import read_primitives
from ..state import parse_state
from ..tasks import Scene

LENGTH = struct.Struct("<I")


def read_part(stream: BinaryIO) -> bytes | None:
    """Return the next part, None at the end of the stream."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return stream.read(LENGTH.unpack(head)[0])


def write_part(stream: BinaryIO, part: bytes) -> None:
    """Write a part."""
    stream.write(LENGTH.pack(len(part)) + part)
    stream.flush()


def answer_scene(scene: Scene) -> dict[str, Any]:
    """Return a scene as JSON can hold it."""
    objects = {name: list(at) for name, at in scene.positions.items()}
    return {"scene": {"objects": objects, "held": scene.held, "opening": scene.opening}}


class _Table:
    """The table and the hand of the current episode."""

    def __init__(self, physics: str) -> None:
        from .scene import Tabletop  # noqa: PLC0415 - a missing ManiSkill is an answer, not a crash

        self._table = Tabletop(physics)
        self._hand: Any = None

    def load(self, text: str) -> dict[str, Any]:
        from .hand import Hand  # noqa: PLC0415

        state = parse_state(text)
        self._table.enter(state)
        self._hand = Hand(self._table, holds=state.scene.held is not None)
        return answer_scene(state.scene)

    def execute(self, text: str) -> dict[str, Any]:
        (primitive,), _ = read_primitives(text)
        self._hand.execute(primitive)
        return answer_scene(self._table.scene_now())

    def draw(self) -> tuple[dict[str, Any], bytes]:
        frame = self._table.picture()
        return {"picture": list(frame.shape), "type": str(frame.dtype)}, frame.tobytes()


def serve(requests: BinaryIO, answers: BinaryIO, physics: str) -> None:
    """Answer requests until there are no more. What fails is answered with its error, and ends the process."""
    table: _Table | None = None
    while (part := read_part(requests)) is not None:
        request = json.loads(part)
        pixels = b""
        try:
            if request["do"] == "start":
                table = _Table(physics)
                answer: dict[str, Any] = {"ready": physics}
            elif table is None:
                raise RuntimeError("nothing has been started")
            elif request["do"] == "load":
                answer = table.load(request["state"])
            elif request["do"] == "execute":
                answer = table.execute(request["primitive"])
            else:
                answer, pixels = table.draw()
        except Exception as error:
            kind = "missing" if isinstance(error, ImportError) else "failed"
            write_part(answers, json.dumps({kind: f"{type(error).__name__}: {error}"}).encode())
            raise
        write_part(answers, json.dumps(answer).encode())
        if pixels:
            write_part(answers, pixels)


def main() -> None:
    """Serve the parent, and keep what libraries print out of the answers."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers, sys.argv[1])


if __name__ == "__main__":
    main()
