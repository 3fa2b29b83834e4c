"""Stands in for AI2-THOR's Unity program under the real controller: speaks through two pipes, and breaks as planned.

    fake_unity.py FOLDER ACTION=WHAT,... [what AI2-THOR adds]

It writes its arguments, and the actions it got, to the folder. Only the first one of a folder misbehaves: it
``dies`` (or is ``late`` to), ``hangs``, ``aborts`` or is ``slow`` at an action, or at ``boot``.
"""

import json
import math
import os
import resource
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

import msgpack

SIDE = 255
HEADER = struct.Struct("!BI")
METADATA, ACTION, IMAGE, END = 1, 2, 4, 255
SCENES = ["FloorPlan1_physics", "FloorPlan11_physics"]


def misbehave(how: str | None) -> None:
    """Execute a planned fault."""
    if how == "hangs":
        time.sleep(600)
    elif how == "slow":
        time.sleep(4.5)
    elif how in {"dies", "late"}:
        time.sleep(1.3 if how == "late" else 0)
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "aborts":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.abort()


class Program:
    """The agent's pose, and the pipes."""

    def __init__(self) -> None:
        self.scene, self.x, self.z, self.yaw = "Bootstrap", 0.0, 0.0, 0.0
        self.pipe: BinaryIO = open(os.environ["AI2THOR_FIFO_SERVER_PIPE_PATH"], "wb")  # noqa: SIM115, PTH123

    def take(self, action: dict[str, Any]) -> Any:
        """Execute an action; return its event."""
        if action["action"] == "Reset":
            self.scene = action["sceneName"]
        elif action["action"] == "Teleport":
            self.x, self.z, self.yaw = action["position"]["x"], action["position"]["z"], action["rotation"]["y"]
        elif action["action"] == "MoveAhead":
            self.x += action["moveMagnitude"] * math.sin(math.radians(self.yaw))
            self.z += action["moveMagnitude"] * math.cos(math.radians(self.yaw))
        return SCENES if action["action"] == "GetScenesInBuild" else None

    def tell(self, number: int, name: str, returned: Any) -> None:
        """Send an event."""
        agent = {
            "screenWidth": SIDE,
            "screenHeight": SIDE,
            "agentId": 0,
            "sceneName": self.scene,
            "agent": {
                "position": {"x": self.x, "y": 0.9, "z": self.z},
                "rotation": {"x": 0.0, "y": self.yaw, "z": 0.0},
                "cameraHorizon": 0.0,
            },
            "lastAction": name,
            "lastActionSuccess": True,
            "errorCode": "",
            "errorMessage": "",
            "actionReturn": returned,
            "objects": [],
            "colors": [],
            "colorBounds": [],
            "thirdPartyCameras": None,
        }
        metadata = {"agents": [agent], "thirdPartyCameras": [], "sequenceId": number, "activeAgentId": 0}
        body = msgpack.dumps(metadata)
        assert isinstance(body, bytes)
        picture = b"".join(bytes([row]) * (3 * SIDE) for row in range(SIDE))
        for kind, part in ((METADATA, body), (IMAGE, picture), (END, b"")):
            self.pipe.write(HEADER.pack(kind, len(part)) + part)
        self.pipe.flush()


def main() -> None:
    """Serve the controller."""
    folder = Path(sys.argv[1])
    number = len(list(folder.glob("unity-*.json")))
    plan = dict(item.split("=") for item in sys.argv[2].split(",") if item) if number == 0 else {}
    about = {"pid": os.getpid(), "arguments": sys.argv[3:], "display": os.environ.get("DISPLAY")}
    (folder / f"unity-{number}.json").write_text(json.dumps(about))
    misbehave(plan.get("boot"))
    program = Program()
    program.tell(0, "", None)
    with (
        open(os.environ["AI2THOR_FIFO_CLIENT_PIPE_PATH"], "rb") as requests,  # noqa: PTH123
        (folder / f"actions-{number}.jsonl").open("w") as log,
    ):
        while head := requests.read(HEADER.size):
            kind, size = HEADER.unpack(head)
            body = requests.read(size)
            if kind != ACTION:
                continue
            action = json.loads(body)
            log.write(json.dumps(action) + "\n")
            log.flush()
            misbehave(plan.get(action["action"]))
            program.tell(action["sequenceId"], action["action"], program.take(action))


if __name__ == "__main__":
    main()
