"""Step-labelled collages and hindsight panels."""

from .compose import collage, label_strip, panel
from .layout import Box, Layout, collage_layout, grid_shape, make_layout, step_label, tile_box
from .tiles import TARGET_LABEL, Tiles, episode_tiles

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
