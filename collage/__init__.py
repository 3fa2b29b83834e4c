"""Step-labelled collages and hindsight panels."""

from .compose import collage, label_strip, panel
from .layout import (
    TARGET_LABEL,
    Box,
    Layout,
    Tiles,
    collage_layout,
    episode_tiles,
    grid_shape,
    make_layout,
    step_label,
    tile_box,
)

__all__ = [
    "TARGET_LABEL",
    "Box",
    "Layout",
    "Tiles",
    "collage",
    "collage_layout",
    "episode_tiles",
    "grid_shape",
    "label_strip",
    "make_layout",
    "panel",
    "step_label",
    "tile_box",
]
