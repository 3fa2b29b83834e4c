"""Optional downloaded models that ManiSkill shows instead of the built-in shapes.

ManiSkill's command stores them in its asset folder (``python -m mani_skill.utils.download_asset ycb``). Only the
appearance changes: collisions use the built-in shapes, so a task is the same with and without the models.
"""

import json
from typing import Any

import sapien  # pyright: ignore[reportMissingImports]
from mani_skill import ASSET_DIR  # pyright: ignore[reportMissingImports]

from ..tasks import APPLE

YCB = "assets/mani_skill2_ycb"
APPLE_MODEL = "013_apple"


def apple_visual(builder: Any) -> bool:
    """Add the YCB apple's mesh, scaled to the size of the built-in apple; return whether it is installed."""
    folder = ASSET_DIR / YCB
    model = folder / "models" / APPLE_MODEL / "textured.obj"
    try:
        box = json.loads((folder / "info_pick_v0.json").read_text())[APPLE_MODEL]["bbox"]
        low, high = ([float(length) for length in box[end]] for end in ("min", "max"))
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if not model.is_file():
        return False
    widths = [b - a for a, b in zip(low, high, strict=True)]
    scale = APPLE / 1000 / max(widths)
    middle = [-(a + b) / 2 * scale for a, b in zip(low, high, strict=True)]
    builder.add_visual_from_file(str(model), pose=sapien.Pose(middle), scale=[scale] * 3)
    return True


__all__ = ["apple_visual"]
