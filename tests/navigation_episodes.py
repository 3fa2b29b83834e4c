"""Navigation states and episodes for tests: random embedded rooms, random walks, and the log printed in the paper."""

import json
import math
import random
from collections import deque
from typing import Any

from pivot.solvers.base import Case

ACTIONS = ("moveahead", "moveback", "moveright", "moveleft", "rotateright", "rotateleft", "lookup", "lookdown")
TURN = {"moveahead": 0, "moveright": 90, "moveback": 180, "moveleft": 270}

PRINTED = """
moveright false false true 2.87
moveright false false false 2.87
moveahead true true true 2.39
moveleft true true true 2.56
rotateright false false false 2.56
moveahead false false false 2.39
moveright true true true 2.87
moveright true true true 3.36
moveleft true true true 2.87
rotateleft false true true 2.87
moveleft false false false 3.02
moveahead true true true 2.56
invalid false false true -
invalid false false true -
invalid false false true -
moveleft true true true 2.82
invalid false false false -
invalid false false false -
moveleft false false true 2.82
moveleft false false true 2.82
invalid false false false -
moveahead false false true 2.82
rotateright false true true 2.82
rotateright false true true 2.82
moveahead false false true 2.82
"""
"""The 25 steps of the paper's navigation log: action, moved, last_action_success, action_is_valid, dist."""

PRINTED_START = 2.87


def thor_state(distance: float, x: float = 0.0, z: float = 0.0) -> str:
    """Return a simulator's state with the target ``distance`` metres ahead of the agent."""
    return json.dumps(
        {
            "agent": {"position": {"x": x, "y": 0.9, "z": z}, "rotation": 90.0, "horizon": 0.0},
            "backend": "thor",
            "scene": "FloorPlan11",
            "target": {"id": "Bread|1", "type": "Bread", "position": {"x": x + distance, "y": 0.9, "z": z}},
        }
    )


def printed_episode(state: str | None = None) -> Case:
    """The printed log as a case."""
    actions, steps = [], []
    for t, line in enumerate(PRINTED.split("\n")[1:-1]):
        action, *flags, dist = line.split()
        moved, success, valid = (flag == "true" for flag in flags)
        info: dict[str, Any] = {"moved": moved, "last_action_success": success, "action_is_valid": valid}
        if dist != "-":
            info["dist"] = float(dist)
        actions.append(action)
        steps.append({**info, "remaining_turns": 24 - t})
    return Case(state or thor_state(PRINTED_START), actions, 25, steps)


def random_room(rng: random.Random, most_boxes: int = 14) -> dict[str, Any]:
    """A random embedded state: boxes on the floor, on legs and overhead, the agent anywhere, the target among them."""
    width, depth = rng.randint(2000, 7000), rng.randint(2000, 7000)
    finish = {"colour": "#808080", "surface": "plain"}
    objects = []
    for number in range(rng.randint(1, most_boxes)):
        w, d = rng.randint(50, 1800), rng.randint(50, 1800)
        x, z = rng.randint(0, max(1, width - w)), rng.randint(0, max(1, depth - d))
        low = rng.choice((0, 0, 0, 10, 900, 1750, 1800, 2000))
        high = low + rng.choice((30, 40, 50, 400, 900))
        part = {
            "min": [x / 1000, low / 1000, z / 1000],
            "max": [(x + w) / 1000, high / 1000, (z + d) / 1000],
            "shape": "box",
            **finish,
        }
        objects.append({"id": f"Box|{number}", "type": f"Box{number}", "parts": [part]})
    goal = rng.choice(objects)
    low, high = goal["parts"][0]["min"], goal["parts"][0]["max"]
    middle = [round(1000 * (a + b) / 2) / 1000 for a, b in zip(low, high, strict=True)]
    # Sometimes any millimetre, often one that touches walls and boxes exactly.
    step = rng.choice((1, 50, 100, 200))
    x, z = (rng.randrange(200, side - 199, step) for side in (width, depth))
    return {
        "agent": {
            "position": {"x": x / 1000, "y": 0.9, "z": z / 1000},
            "rotation": rng.choice((0, 90, 180, 270)),
            "horizon": rng.choice((-30, 0, 30, 60)),
        },
        "backend": "embedded",
        "room": {
            "size": {"x": width / 1000, "y": 2.6, "z": depth / 1000},
            "floor": finish,
            "wall": finish,
            "ceiling": finish,
            "objects": objects,
        },
        "scene": "room-test",
        "target": {"id": goal["id"], "type": goal["type"], "position": dict(zip("xyz", middle, strict=True))},
    }


class BruteRoom:
    """Second implementation of the rules, by poses instead of a lattice: ``(x, z, yaw)`` in millimetres and degrees."""

    def __init__(self, data: dict[str, Any], reach: float = 1500) -> None:
        agent, goal = data["agent"], data["target"]["position"]
        self.reach = reach
        self.start = (self._mm(agent["position"]["x"]), self._mm(agent["position"]["z"]), agent["rotation"])
        self.goal = (self._mm(goal["x"]), self._mm(goal["z"]))
        self.width, self.depth = self._mm(data["room"]["size"]["x"]), self._mm(data["room"]["size"]["z"])
        self.boxes = []
        for thing in data["room"]["objects"]:
            for part in thing["parts"]:
                if part["min"][1] < 1.8 and part["max"][1] > 0.05:
                    self.boxes.append([self._mm(part[end][axis]) for axis in (0, 2) for end in ("min", "max")])

    @staticmethod
    def _mm(metres: float) -> int:
        return round(1000 * metres)

    def after(self, pose: tuple[int, int, int], action: str) -> tuple[int, int, int]:
        x, z, yaw = pose
        if action == "rotateright":
            return x, z, (yaw + 90) % 360
        if action == "rotateleft":
            return x, z, (yaw - 90) % 360
        if action not in TURN:
            return pose
        angle = math.radians(yaw + TURN[action])
        new_x, new_z = x + round(500 * math.sin(angle)), z + round(500 * math.cos(angle))
        west, east = min(x, new_x) - 200, max(x, new_x) + 200
        south, north = min(z, new_z) - 200, max(z, new_z) + 200
        inside = west >= 0 and south >= 0 and east <= self.width and north <= self.depth
        hit = any(west < x1 and x0 < east and south < z1 and z0 < north for x0, x1, z0, z1 in self.boxes)
        return (new_x, new_z, yaw) if inside and not hit else pose

    def distance(self, pose: tuple[int, int, int]) -> float:
        return math.hypot(pose[0] - self.goal[0], pose[1] - self.goal[1]) / 1000

    def turns(self, start: tuple[int, int, int]) -> int | None:
        """The fewest actions of all eight from a pose to success."""
        seen, queue = {start: 0}, deque([start])
        while queue:
            pose = queue.popleft()
            if (pose[0] - self.goal[0]) ** 2 + (pose[1] - self.goal[1]) ** 2 <= self.reach**2:
                return seen[pose]
            for action in ACTIONS[:6]:
                beside = self.after(pose, action)
                if beside not in seen:
                    seen[beside] = seen[pose] + 1
                    queue.append(beside)
        return None


def walk(rng: random.Random, data: dict[str, Any], horizon: int = 25) -> Case | None:
    """Return a random failed episode in a room with the environment's log; None if the walk arrives."""
    room = BruteRoom(data)
    pose, horizon_angle = room.start, data["agent"]["horizon"]
    if room.distance(pose) <= 1.5:
        return None
    actions, steps = [], []
    favourite = rng.choice(ACTIONS[:4])
    for t in range(rng.choice((horizon, horizon, rng.randint(1, horizon)))):
        action = rng.choice((*ACTIONS, favourite, favourite, favourite, "invalid"))
        following = room.after(pose, action)
        done = action in ("rotateright", "rotateleft") or following != pose
        if action in ("lookup", "lookdown"):
            tilted = horizon_angle + (30 if action == "lookdown" else -30)
            done = -30 <= tilted <= 60
            horizon_angle = tilted if done else horizon_angle
        moved = following[:2] != pose[:2]
        pose = following
        if room.distance(pose) <= 1.5:
            return None
        actions.append(action)
        steps.append(
            {
                "moved": moved,
                "last_action_success": done,
                "action_is_valid": action != "invalid",
                "dist": room.distance(pose),
                "remaining_turns": horizon - 1 - t,
            }
        )
    return Case(json.dumps(data), actions, horizon, steps)


def walks(seed: int, count: int, horizon: int = 25) -> list[Case]:
    """Return ``count`` failed random walks."""
    rng = random.Random(seed)
    cases: list[Case] = []
    while len(cases) < count:
        data = random_room(rng)
        cases += [case for _ in range(4) if (case := walk(rng, data, horizon)) is not None]
    return cases[:count]
