"""The pictures of the embedded tabletop: correct positions, equal pixels everywhere, and drawing speed."""

import hashlib
import random
from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pivot.core.images import decode, encode_jpeg
from pivot.environments.primitiveskill.environment import PrimitiveSkillConfig, PrimitiveSkillEnv
from pivot.environments.primitiveskill.tasks import (
    APPLE,
    CUBE,
    DRAWER_BOXES,
    DRAWER_TRAVEL,
    KINDS,
    TARGETS,
    Point,
    Scene,
    tray_centre,
)
from pivot.environments.primitiveskill.view import picture
from pivot.environments.primitiveskill.world import CAMERAS, FAR, Camera

draw_parts = partial(picture.draw_parts, camera=FAR)
draw_scene, draw_whole = partial(picture.draw_scene, camera=FAR), partial(picture.draw_whole, camera=FAR)
NEAR = CAMERAS["near"]
TRAY_FLOOR = DRAWER_BOXES[0][1][2]
REST = {"apple": APPLE / 2}


def scene_of(
    task: str, in_hand: str | None = None, opening: float | None = None, at: Mapping[str, Point] | None = None
) -> Scene:
    """Return a scene of the objects with a position; the others are far behind the camera."""
    places = {name: (at or {}).get(name, (4000.0, 0.0, 20.0)) for name in KINDS[task].things}
    return Scene(places, in_hand, opening)


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


def pixel_of(point: Point, camera: Camera = FAR) -> tuple[int, int]:
    """Return row and column at which a point must appear, by the camera's matrices."""
    ahead = np.array(camera.looked_at) - camera.eye
    ahead /= np.linalg.norm(ahead)
    right = np.cross(ahead, (0, 0, 1))
    right /= np.linalg.norm(right)
    x, y, z = np.stack([right, np.cross(right, ahead), ahead]) @ (np.array(point) - camera.eye)
    half = np.tan(camera.field_of_view / 2)
    return int((1 - y / z / half) * camera.side / 2), int((x / z / half + 1) * camera.side / 2)


def pixels_of(task: str, scene: Scene, thing: int, camera: Camera = FAR) -> NDArray[np.int64]:
    """Rows and columns, (n, 2), of the moving solids from number ``thing`` of the task on that make up one thing."""
    kind = KINDS[task]
    _, parts = picture.draw_parts(kind, scene, camera)
    first = len(picture.fixed_solids(kind)) + thing
    return np.argwhere((parts >= first) & (parts < first + (3 if task == "drawer" else 1)))


@pytest.mark.parametrize("task", ["align", "place", "stack"])
def test_cubes_are_where_the_camera_says_in_their_colours(task: str) -> None:
    rng = random.Random(1)
    strongest = {"red cube": (0,), "green cube": (1,), "purple cube": (0, 2)}
    for _ in range(10):
        for number, name in enumerate(KINDS[task].things):
            x, y, z = rng.uniform(-90, 140), rng.uniform(-190, 190), rng.choice((20.0, 60.0, 100.0))
            scene = scene_of(task, at={name: (x, y, z)})
            frame, _ = draw_parts(KINDS[task], scene)
            seen = pixels_of(task, scene, number)
            for point in ((x, y, z + 20), (x + 20, y, z)):  # middles of the top and of the side towards the camera
                assert list(pixel_of(point)) in seen.tolist()
                colour = frame[pixel_of(point)].astype(int)
                rest = [colour[channel] for channel in range(3) if channel not in strongest[name]]
                assert min(colour[channel] for channel in strongest[name]) > 1.8 * max(rest)


def test_targets_are_painted_where_they_are_and_only_in_place() -> None:
    frame = draw_scene(KINDS["place"], scene_of("place"))
    for name, channel in (("left target", 0), ("right target", 1)):
        x, y, _ = TARGETS[name]
        for beside in (0, 43):
            colour = frame[pixel_of((x, y + beside, 0))].astype(int).tolist()
            assert colour.pop(channel) > 1.4 * max(colour)
        assert frame[pixel_of((x, y + 29, 0))].min() > 200
    assert (draw_scene(KINDS["align"], scene_of("align"))[210:240] > 200).all(2).sum() == 0


@pytest.mark.parametrize("task", list(KINDS))
def test_drawing_what_changed_is_drawing_everything(task: str) -> None:
    rng = random.Random(3)
    for camera in (FAR, NEAR[task]):
        for _ in range(12):
            scene = random_scene(rng, task)
            drawn, whole = (draw(KINDS[task], scene, camera) for draw in (picture.draw_scene, picture.draw_whole))
            np.testing.assert_array_equal(drawn, whole)


@pytest.mark.parametrize("task", ["align", "place", "stack"])
def test_the_near_camera_shows_cubes_at_least_a_visual_token_wide_everywhere(task: str) -> None:
    (x0, x1), (y0, y1), _ = KINDS[task].workspace
    for x, y in product((x0, 0, x1), (y0, -70, 0, 130, y1)):
        for number, name in enumerate(KINDS[task].things):
            centre = (float(x), float(y), 20.0)
            seen = pixels_of(task, scene_of(task, at={name: centre}), number, NEAR[task])
            assert pixel_of((x + 20.0, y, 20.0), NEAR[task]) in {(row, column) for row, column in seen.tolist()}
            assert np.ptp(seen[:, 1]) + 1 >= 28
            assert np.ptp(seen[:, 0]) + 1 >= 28
            assert seen.min() > 0
            assert seen.max() < NEAR[task].side - 1


@pytest.mark.parametrize(
    "place",
    [
        FAR.eye,
        (5000.0, 5000.0, 5000.0),
        (-5000.0, 0.0, -5000.0),
        (985.0, 0.0, 590.0),
        (900.0, 0.0, 560.0),
        (0.0, 0.0, 0.0),
    ],
)
def test_things_in_absurd_places_are_drawn_or_not_but_break_nothing(place: Point) -> None:
    for task, name in (("align", "red cube"), ("drawer", "apple")):
        scene = scene_of(task, opening=100.0 if task == "drawer" else None, at={name: place})
        np.testing.assert_array_equal(draw_scene(KINDS[task], scene), draw_whole(KINDS[task], scene))


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


def test_the_picture_of_the_docs_shows_the_environment() -> None:
    columns = []
    for task in KINDS:
        env = PrimitiveSkillEnv(PrimitiveSkillConfig(tasks=(task,)))
        start, _ = env.reset(seed=5)
        places = list(env.state.scene.positions.values())
        there = {"align": "0,-60,28", "place": "80,-100,28", "drawer": "-300,-180,195"}
        on_the_green_cube = "{:.0f},{:.0f},68".format(*places[min(1, len(places) - 1)])
        pick = "pick({:.0f},{:.0f},{:.0f})"
        later, *_ = env.step(f"{pick.format(*places[0])}|place({there.get(task, on_the_green_cube)})")
        if len(places) > 1:
            later, *_ = env.step(pick.format(*places[-1]))
        columns.append(np.concatenate([start, later]))
    made = decode(encode_jpeg(np.concatenate(columns, axis=1))).astype(int)
    picture_of_docs = Path(picture.__file__).parents[3] / "docs/pictures/primitiveskill-views.jpg"
    shown = decode(picture_of_docs.read_bytes()).astype(int)
    assert made.shape == shown.shape
    assert np.abs(made - shown).max() < 12  # decoders may round otherwise
