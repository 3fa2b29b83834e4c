"""Step-labelled collages and hindsight panels."""

from .compose import collage, label_strip, panel
from .layout import Box, Layout, collage_layout, grid_shape, make_layout, step_label, tile_box

__all__ = [
    "Box",
    "Layout",
    "collage",
    "collage_layout",
    "grid_shape",
    "label_strip",
    "make_layout",
    "panel",
    "step_label",
    "tile_box",
]
