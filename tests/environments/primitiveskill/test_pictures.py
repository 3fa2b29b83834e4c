"""The pictures of the embedded tabletop: equal pixels everywhere, from what changed alone."""

import hashlib
import random
from collections.abc import Mapping

import numpy as np
import pytest
from pivot.environments.primitiveskill.tasks import (
    APPLE,
    CUBE,
    DRAWER_BOXES,
    DRAWER_TRAVEL,
    KINDS,
    Point,
    Scene,
    tray_centre,
)
from pivot.environments.primitiveskill.view import picture
from pivot.environments.primitiveskill.world import CAMERAS, FAR, Camera

NEAR = CAMERAS["near"]
TRAY_FLOOR = DRAWER_BOXES[0][1][2]
REST = {"apple": APPLE / 2}


def random_scene(rng: random.Random, task: str) -> Scene:
    """Things anywhere in the workspace, some stacked, some held, some in the tray."""
    kind = KINDS[task]
    opening = float(rng.randrange(int(DRAWER_TRAVEL) + 1)) if task == "drawer" else None
    places: dict[str, Point] = {}
    for name in kind.things:
        x, y, _ = (float(rng.randint(*limits)) for limits in kind.workspace)
        places[name] = (x, y, rng.choice((1, 1, 3, 5)) * REST.get(name, CUBE / 2))
    in_hand = rng.choice((None, *kind.things))
    if in_hand is not None:
        places[in_hand] = (kind.home[0] + rng.uniform(-15, 15), kind.home[1], kind.home[2] + rng.uniform(-8, 8))
    elif opening is not None and rng.random() < 0.5:
        x, y, _ = tray_centre(opening)
        places["apple"] = (x + rng.uniform(-50, 50), y + rng.uniform(-50, 50), TRAY_FLOOR + APPLE / 2)
    return Scene(places, in_hand, opening)


@pytest.mark.parametrize("task", list(KINDS))
def test_drawing_what_changed_is_drawing_everything(task: str) -> None:
    rng = random.Random(3)
    for camera in (FAR, NEAR[task]):
        for _ in range(12):
            scene = random_scene(rng, task)
            drawn, whole = (draw(KINDS[task], scene, camera) for draw in (picture.draw_scene, picture.draw_whole))
            np.testing.assert_array_equal(drawn, whole)


def digest(cameras: Mapping[str, Camera]) -> str:
    """A digest of eight frames."""
    rng = random.Random(4)
    scenes = [(task, random_scene(rng, task)) for task in KINDS for _ in range(2)]
    frames = [picture.draw_scene(KINDS[task], scene, cameras[task]).tobytes() for task, scene in scenes]
    return hashlib.sha256(b"".join(frames)).hexdigest()[:16]


def test_frames_are_those_of_other_machines() -> None:
    """A deliberate change of the pictures needs new digests; a different machine must not need them."""
    assert digest(CAMERAS["far"]) == "3e22b57538abc2ad"
    assert digest(NEAR) == "74f000120e361e9d"
