"""Replacement of the child process with ManiSkill: it works, or misbehaves as its first argument says.

    maniskill_stand_in.py MODE FOLDER

The mode is ``well``, or a request and what happens at it, as ``execute-hang``; with ``once-`` before it only the first
process of the folder misbehaves. With ``gone`` the first one dies at its third primitive, and no other one starts.
Needs the standard library alone. A primitive moves the first thing by one millimetre.
"""

import json
import struct
import sys
import time
from pathlib import Path
from typing import Any

LENGTH = struct.Struct("<I")
SIDES = {"near": 420, "far": 300}


def write(part: bytes) -> None:
    """Send a reply."""
    sys.stdout.buffer.write(LENGTH.pack(len(part)) + part)
    sys.stdout.buffer.flush()


def misbehave(how: str) -> None:
    """Execute the fault of the mode."""
    if how == "hang":
        time.sleep(600)
    elif how == "die":
        sys.stderr.write("Segmentation of something\n")
        sys.exit(3)
    elif how == "text":
        write(b"no JSON at all")
    elif how == "list":
        write(b"[1, 2]")
    elif how == "huge":
        sys.stdout.buffer.write(LENGTH.pack(2**32 - 1))
        sys.stdout.buffer.flush()
        time.sleep(600)
    elif how == "half":
        sys.stdout.buffer.write(LENGTH.pack(100) + b"{")
        sys.stdout.buffer.flush()
        sys.exit(4)
    elif how in {"missing", "failed"}:
        write(json.dumps({how: "SomeError: it went wrong"}).encode())
    else:
        scenes: dict[str, Any] = {
            "empty": {},
            "nan": {"objects": {"red cube": [float("nan"), 0, 0], "green cube": [0, 0, 0]}},
            "other": {"objects": {"apple": [0, 0, 0]}},
        }
        write(json.dumps({"scene": {"held": None, "opening": None, **scenes[how]}}).encode())


def main() -> None:
    """Serve."""
    mode, folder = sys.argv[1], Path(sys.argv[2])
    number = len(list(folder.glob("started-*")))
    (folder / f"started-{number}").touch()
    if mode.startswith("once-"):
        mode = mode.removeprefix("once-") if number == 0 else "well"
    if mode == "gone":
        mode = "start-failed" if number else "gone"
    at, _, how = mode.partition("-")
    objects: dict[str, list[float]] = {}
    drift = 0.5 if at == "drift" and number else 0.0
    executed = side = 0
    while head := sys.stdin.buffer.read(LENGTH.size):
        request = json.loads(sys.stdin.buffer.read(LENGTH.unpack(head)[0]))
        do = request["do"]
        executed += do == "execute"
        if do == at:
            misbehave(how)
            continue
        if number == 0 and executed == {"drift": 2, "gone": 3}.get(at):
            sys.exit(5)
        if do == "load":
            side = SIDES[request["camera"]]
            objects = {item["name"]: item["position"] for item in json.loads(request["state"])["objects"]}
        elif do == "execute":
            next(iter(objects.values()))[0] += 1 + drift
        if do == "draw":
            flat = at == "flat"
            write(json.dumps({"picture": [side, side if at != "small" else 7, 3], "type": "uint8"}).encode())
            write(bytes([number]) * (side * side * 3) if flat else bytes(range(240)) * (side * side * 3 // 240))
        else:
            in_hand = next(iter(objects), None) if at in {"holds", "flat"} else None
            write(json.dumps({"scene": {"objects": objects, "held": in_hand, "opening": None}}).encode())


if __name__ == "__main__":
    main()
