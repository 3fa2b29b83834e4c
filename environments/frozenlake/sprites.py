"""FrozenLake's pictures: sprites of the installed gymnasium package, composed without pygame.

Pixels equal those of gymnasium's ``render()`` (a test compares them if pygame is installed): nearest-neighbour scaling,
overlays, a line around every cell. The player looks the same after every action and is not drawn in a hole. Alpha is 0
or 255 in these files, so blending is a mask. The sprites may change with gymnasium: :data:`ART` is a digest of them and
part of the environment's version, and therefore of every episode id.
"""

import hashlib
from functools import cache
from pathlib import Path

import numpy as np
from gymnasium import __version__ as gymnasium_version
from gymnasium.envs.toy_text import frozen_lake
from numpy.typing import NDArray
from PIL import Image

from ...core.errors import ConfigError
from ..base import Frame

LEGEND = {
    "start": "ice with the letter S in its corner",
    "goal": "ice with a red flag and the letter G in its corner",
    "frozen": "a light blue square of ice, some with thin cracks",
    "hole": "a dark blue pool of open water",
    "player": "a small pale figure with a dark outline; it is no longer seen once it has fallen into a hole",
}
"""Description of each cell; prompts use these texts, so that they agree with the pictures."""

NATIVE_CELL = 64  # pixels of a cell in the sprite files; overlays are scaled in proportion
_LINE = (180, 200, 230)
_FOLDER = Path(frozen_lake.__file__).parent / "img"
_TILES = ("tile_ice", "tile_hole", "tile_ice_crack_a", "tile_ice_crack_b")
_OVERLAYS = {"agent": (40, 36), "goal_flag": (24, 32), "letter_s": (12, 20), "letter_g": (12, 20)}  # width, height


def _file_bytes(name: str) -> bytes:
    path = _FOLDER / f"{name}.png"
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"gymnasium {gymnasium_version} lacks the picture {path.name} ({error}); reinstall gymnasium>=1.4"
        ) from error


ART = hashlib.sha256(b"".join(_file_bytes(name) for name in (*_TILES, *_OVERLAYS))).hexdigest()[:8]
"""Eight hex digits of the hash of the sprite files."""


def _scaled(name: str, width: int, height: int) -> NDArray[np.uint8]:
    """Return a sprite as RGBA, shape (height, width, 4), with nearest-neighbour scaling."""
    with Image.open(_FOLDER / f"{name}.png") as image:
        pixels = np.asarray(image.convert("RGBA"))
    rows = np.arange(height) * pixels.shape[0] // height
    columns = np.arange(width) * pixels.shape[1] // width
    return pixels[rows[:, np.newaxis], columns]


@cache
def _tile(name: str, cell: int) -> NDArray[np.uint8]:
    return _scaled(name, cell, cell)[..., :3]


@cache
def _overlay(name: str, cell: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return an overlay's RGB and its mask, both of shape (height, width, 3)."""
    width, height = (max(1, round(length * cell / NATIVE_CELL)) for length in _OVERLAYS[name])
    pixels = _scaled(name, width, height)
    return pixels[..., :3], np.repeat(pixels[..., 3:] > 0, 3, axis=2)


def _blit(frame: Frame, name: str, cell: int, left: float, top: float) -> None:
    pixels, mask = _overlay(name, cell)
    region = frame[int(top) : int(top) + pixels.shape[0], int(left) : int(left) + pixels.shape[1]]
    np.copyto(region, pixels, where=mask)


def draw_map(rows: tuple[str, ...], cell: int) -> Frame:
    """Return the picture of a map without the player; ``cell`` is the side of a cell in pixels."""
    frame = np.empty((len(rows) * cell, len(rows[0]) * cell, 3), np.uint8)
    corner = round(cell * 0.06)
    for row, line in enumerate(rows):
        for column, letter in enumerate(line):
            top, left = row * cell, column * cell
            square = frame[top : top + cell, left : left + cell]
            crack = (column * 3 + row * 5) % 7  # 0 and 1: which crack the cell shows; above: none
            if letter == "H":
                square[:] = _tile("tile_hole", cell)
            elif letter == "F" and crack < 2:
                square[:] = _tile(("tile_ice_crack_a", "tile_ice_crack_b")[crack], cell)
            else:
                square[:] = _tile("tile_ice", cell)
            if letter == "S":
                _blit(frame, "letter_s", cell, left + corner, top + corner)
            elif letter == "G":
                height, width = _overlay("goal_flag", cell)[0].shape[:2]
                _blit(frame, "goal_flag", cell, left + (cell - width) / 2, top + cell - height - round(cell * 0.12))
                _blit(frame, "letter_g", cell, left + corner, top + corner)
            square[[0, -1]] = _LINE
            square[:, [0, -1]] = _LINE
    return frame


def draw_player(frame: Frame, row: int, column: int, cell: int) -> None:
    """Draw the player in the middle of a cell of ``frame``."""
    height, width = _overlay("agent", cell)[0].shape[:2]
    _blit(frame, "agent", cell, column * cell + (cell - width) / 2, row * cell + (cell - height) / 2)
