"""Reading of tiles: exact on both generators at three sizes; noise, other skins and JPEG are refused."""

import random
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pivot.core.images import CODECS, Frame, decode, encode_png
from pivot.environments.base import PivotEnv
from pivot.environments.frozenlake import FrozenLakeConfig, FrozenLakeEnv
from pivot.environments.sokoban import SokobanConfig, SokobanEnv
from pivot.interop.tiles import read_level
from pivot.tests.dataset.containers import one_pixel

SIZES = [
    (SokobanEnv, SokobanConfig(cell=16)),
    (SokobanEnv, SokobanConfig(cell=32, rows=8, cols=7, boxes=2)),
    (SokobanEnv, SokobanConfig(cell=48)),
    (FrozenLakeEnv, FrozenLakeConfig(cell=64)),
    (FrozenLakeEnv, FrozenLakeConfig(cell=32, size=8)),
    (FrozenLakeEnv, FrozenLakeConfig(cell=42, size=5)),
]


def _first(kind: type[PivotEnv], config: Any, seed: int) -> tuple[str, Frame]:
    env = kind(config)
    frame, _ = env.reset(seed=seed)
    return env.state_text(), frame


@pytest.mark.parametrize(("kind", "config"), SIZES, ids=lambda each: str(getattr(each, "cell", "")))
def test_every_rendered_level_and_later_state_is_read(kind: type[PivotEnv], config: Any) -> None:
    env, rng = kind(config), random.Random(0)
    for seed in range(30):
        frame, _ = env.reset(seed=seed)
        assert read_level(kind.profile.name, frame) == env.state_text()
    (frame, _), ended = env.reset(seed=3), False
    while not ended:
        assert read_level(kind.profile.name, frame) == env.state_text()
        frame, _, ended, truncated, _ = env.step(rng.randrange(4))
        ended |= truncated


DAMAGES = {
    "jpeg": lambda frame: decode(CODECS["jpeg"].encode(frame)),
    "one pixel": lambda frame: decode(one_pixel(encode_png(frame))),
    "noise": lambda frame: np.random.default_rng(0).integers(0, 256, frame.shape, np.uint8),
    "another skin": lambda frame: np.ascontiguousarray(255 - frame),
    "shifted": lambda frame: np.roll(frame, 1, axis=1),
    "cut": lambda frame: np.ascontiguousarray(frame[:-3]),
    "smaller": lambda frame: np.ascontiguousarray(frame[::2, ::2]),
    "mirrored": lambda frame: np.ascontiguousarray(frame[:, ::-1]),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("kind", "config"), [SIZES[1], SIZES[3]], ids=["sokoban", "frozenlake"])
def test_other_pictures_are_refused(kind: type[PivotEnv], config: Any, damage: str) -> None:
    for seed in range(5):
        assert read_level(kind.profile.name, DAMAGES[damage](_first(kind, config, seed)[1])) is None


def test_a_picture_without_a_level_is_refused() -> None:
    state, frame = _first(FrozenLakeEnv, FrozenLakeConfig(), 1)
    hidden = frame.copy()

    def cell(mark: str) -> tuple[slice, slice]:
        row, column = next((r, line.index(mark)) for r, line in enumerate(state.splitlines()) if mark in line)
        return slice(row * 64, row * 64 + 64), slice(column * 64, column * 64 + 64)

    hidden[cell("S")] = frame[cell("H")]
    assert read_level("frozenlake", hidden) is None and read_level("svg", frame) is None


def test_gym_sokoban() -> None:
    try:
        files = distribution("gym-sokoban").files or []
    except PackageNotFoundError:
        pytest.skip("needs the pictures of gym-sokoban: pip install --no-deps gym-sokoban==0.0.6")
    names = {"#": "wall", " ": "floor", ".": "box_target", "*": "box_on_target", "$": "box", "@": "player"}
    paths = {Path(each).stem: each.locate() for each in files if Path(each).parent.name == "surface"}
    tiles = {char: decode(Path(str(paths[name])).read_bytes()) for char, name in names.items()}
    tiles["+"] = decode(Path(str(paths["player_on_target"])).read_bytes())
    for seed in range(30):
        for cols in (6, 8, 10):
            state, _ = _first(SokobanEnv, SokobanConfig(rows=7, cols=cols, boxes=2), seed)
            rows = [np.concatenate([tiles[char] for char in line], axis=1) for line in state.splitlines()]
            assert read_level("sokoban", np.concatenate(rows)) == state
